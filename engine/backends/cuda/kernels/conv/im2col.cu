// im2col: writes the window of every output pixel as one row of a matrix, so that a convolution is one GEMM.
// Launched by conv/im2col_gemm.py.
//
//   src  (rows, height, width, groups * group_channels), with its pitch
//   col  (groups, pixels, kernel_y * kernel_x * group_channels): a row per pixel, channels innermost
//
// Only pixels first to first + pixels of the output are unfolded, so that large layers fit the
// workspace. Cells outside the input are zero; with is_signed every value is its sign, and -1
// outside.
// im2col_elements: a thread writes one pack of the matrix; neighbouring threads write neighbouring
//                  addresses.
// im2col_windows: a thread takes one channel of one window: fewer divisions, and a window's
//                 position is computed once.
// Memory  reads and writes coalesce along channels; each value is read kernel_y * kernel_x times.
#include "common.cuh"

DEVICE float seen(float x, int is_signed) { return is_signed ? (x > 0.f ? 1.f : -1.f) : x; }

#define IM2COL_PARAMETERS                                                                                 \
    const real *__restrict__ src, real *__restrict__ col, int first, int pixels, int groups,              \
        int group_channels, int height, int width, int out_h, int out_w, int src_pitch, int kernel_y,     \
        int kernel_x, int stride_y, int stride_x, int top, int left, int dilation_y, int dilation_x,      \
        int is_signed
#define IM2COL_ARGUMENTS                                                                                  \
    src, col, first, pixels, groups, group_channels, height, width, out_h, out_w, src_pitch, kernel_y,    \
        kernel_x, stride_y, stride_x, top, left, dilation_y, dilation_x, is_signed

template <int V> DEVICE void im2col_elements_body(IM2COL_PARAMETERS)
{
    const int packs = group_channels / V;
    const int line = kernel_y * kernel_x * packs;
    GRID_STRIDE(item, groups * pixels * line)
    {
        const int pack = item % packs;
        const int tap = item / packs % (kernel_y * kernel_x);
        const int at = item / line;
        const int pixel = at % pixels + first;
        const int group = at / pixels;
        const int y = pixel / out_w % out_h * stride_y - top + tap / kernel_x * dilation_y;
        const int x = pixel % out_w * stride_x - left + tap % kernel_x * dilation_x;
        const int row = pixel / out_w / out_h;
        Pack<V> v;
        if (0 <= y && y < height && 0 <= x && x < width) {
            const int from = ((row * height + y) * width + x) * src_pitch;
            v = load<V>(src + from + group * group_channels + pack * V);
            UNROLL(i, V) v.v[i] = seen(v.v[i], is_signed);
        } else {
            UNROLL(i, V) v.v[i] = is_signed ? -1.f : 0.f;
        }
        store<V>(col + (size_t)item * V, v);
    }
}

SCALAR_AND_PACKED(im2col_elements, IM2COL)

extern "C" __global__ void im2col_windows(IM2COL_PARAMETERS)
{
    after_previous_kernel();
    const int line = kernel_y * kernel_x * group_channels;
    GRID_STRIDE(item, groups * pixels * group_channels)
    {
        const int channel = item % group_channels;
        const int at = item / group_channels;
        const int pixel = at % pixels + first;
        const int group = at / pixels;
        const int first_y = pixel / out_w % out_h * stride_y - top;
        const int first_x = pixel % out_w * stride_x - left;
        const int row = pixel / out_w / out_h;
        const real* image = src + row * height * width * src_pitch + group * group_channels + channel;
        real* cell = col + (size_t)at * line + channel;
        for (int i = 0; i < kernel_y; ++i) {
            const int y = first_y + i * dilation_y;
            for (int j = 0; j < kernel_x; ++j, cell += group_channels) {
                const int x = first_x + j * dilation_x;
                const bool is_inside = 0 <= y && y < height && 0 <= x && x < width;
                const float outside = is_signed ? -1.f : 0.f;
                put(cell,
                    is_inside ? seen(to_float(image[(y * width + x) * src_pitch]), is_signed) : outside);
            }
        }
    }
}
