// direct: convolution by its definition, one thread for each of rows x out_h x out_w x filters outputs.
// Launched by conv/direct.py.
//
//   src     (rows, height, width, groups * group_channels), with its pitch
//   weight  (groups, kernel_y, kernel_x, group_channels, filters): filters innermost, so that the threads of
//           a warp read neighbouring weights and the same input value
//
// Work item  one output value.   Memory  no workspace; weights come from the caches.
// It pays only for few channels: a first layer, or small groups.
#include "common.cuh"

#define DIRECT_PARAMETERS                                                                               \
    int rows, int groups, int group_channels, int filters, int height, int width, int out_h, int out_w, \
        int src_pitch, int residual_pitch, int out_pitch, int kernel_y, int kernel_x, int stride_y,     \
        int stride_x, int top, int left, int dilation_y, int dilation_x, int is_signed, int kind, int last
#define DIRECT_ARGUMENTS                                                                                     \
    src, weight, bias, residual, out, rows, groups, group_channels, filters, height, width, out_h, out_w,    \
        src_pitch, residual_pitch, out_pitch, kernel_y, kernel_x, stride_y, stride_x, top, left, dilation_y, \
        dilation_x, is_signed, kind, last

template <typename In, typename Out> DEVICE void direct_body(const In* __restrict__ src,
    const float* __restrict__ weight, const float* __restrict__ bias, const Out* __restrict__ residual,
    Out* __restrict__ out, DIRECT_PARAMETERS)
{
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, filter, groups * filters)
    {
        const int group = filter / filters;
        const Position at = position_of(pixel, out_h, out_w);
        const int first_x = at.x * stride_x - left;
        const int first_y = at.y * stride_y - top;
        const In* image = src + at.row * height * width * src_pitch + group * group_channels;
        const float* w =
            weight + group * kernel_y * kernel_x * group_channels * filters + (filter - group * filters);
        float sum = 0.f;
        for (int i = 0; i < kernel_y; ++i) {
            const int y = first_y + i * dilation_y;
            for (int j = 0; j < kernel_x; ++j, w += group_channels * filters) {
                const int x = first_x + j * dilation_x;
                if (0 <= y && y < height && 0 <= x && x < width) {
                    const In* v = image + (y * width + x) * src_pitch;
                    for (int c = 0; c < group_channels; ++c) {
                        const float s = to_float(v[c]);
                        sum += (is_signed ? (s > 0.f ? 1.f : -1.f) : s) * w[c * filters];
                    }
                } else if (is_signed) {
                    for (int c = 0; c < group_channels; ++c) sum -= w[c * filters];
                }
            }
        }
        if (bias) sum += bias[filter];
        finish_value(
            sum, kind, residual, pixel * residual_pitch + filter, last, out, pixel * out_pitch + filter);
    }
}

extern "C" __global__ void direct(const real* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, const real* __restrict__ residual, real* __restrict__ out,
    DIRECT_PARAMETERS)
{
    after_previous_kernel();
    direct_body(DIRECT_ARGUMENTS);
}

extern "C" __global__ void direct_to_floats(const real* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, const float* __restrict__ residual, float* __restrict__ out,
    DIRECT_PARAMETERS)
{
    after_previous_kernel();
    direct_body(DIRECT_ARGUMENTS);
}

extern "C" __global__ void direct_from_floats(const float* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, const real* __restrict__ residual, real* __restrict__ out,
    DIRECT_PARAMETERS)
{
    after_previous_kernel();
    direct_body(DIRECT_ARGUMENTS);
}
