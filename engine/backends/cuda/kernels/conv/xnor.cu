// xnor: binary convolution, 32 channels per word: the number of equal signs minus that of different ones.
// Launched by conv/xnor.py.
//
//   xnor_pack  (pixels, channels) -> (pixels, words): a bit is 1 if the value is above zero
//   xnor_dot   dot = cells - 2 * popcount(input ^ weight); out = f(dot * scale[filter] + bias)
//   weight     (kernel_y, kernel_x, words, filters): the threads of a warp have neighbouring filters and
//              share the input word
//
// A cell outside the map is a word of zeros, -1 in every channel, as in darknet.
// Work item  one word; one output value.   Memory  1/32 of the float form.
#include "common.cuh"

extern "C" __global__ void xnor_pack(const real* __restrict__ src, unsigned* __restrict__ out, int pixels,
    int channels, int words, int src_pitch)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, pixels, index, words)
    {
        const int first = index * 32;
        unsigned word = 0;
        for (int i = 0; i < min(channels - first, 32); ++i) {
            if (to_float(src[pixel * src_pitch + first + i]) > 0.f) word |= 1u << i;
        }
        out[pixel * words + index] = word;
    }
}

extern "C" __global__ void xnor_dot(const unsigned* __restrict__ src, const unsigned* __restrict__ weight,
    const float* __restrict__ scale, const float* __restrict__ bias, const real* __restrict__ residual,
    real* __restrict__ out, int rows, int channels, int words, int filters, int height, int width, int out_h,
    int out_w, int residual_pitch, int out_pitch, int kernel_y, int kernel_x, int stride_y, int stride_x,
    int top, int left, int dilation_y, int dilation_x, int kind, int last)
{
    after_previous_kernel();
    const int cells = kernel_y * kernel_x * channels;
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, filter, filters)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const int first_x = at.x * stride_x - left;
        const int first_y = at.y * stride_y - top;
        const unsigned* image = src + at.row * height * width * words;
        const unsigned* w = weight + filter;
        int differ = 0;
        for (int i = 0; i < kernel_y; ++i) {
            const int y = first_y + i * dilation_y;
            for (int j = 0; j < kernel_x; ++j) {
                const int x = first_x + j * dilation_x;
                const bool is_inside = 0 <= y && y < height && 0 <= x && x < width;
                const unsigned* v = image + (y * width + x) * words;
                for (int k = 0; k < words; ++k, w += filters) {
                    differ += __popc((is_inside ? v[k] : 0u) ^ *w);
                }
            }
        }
        const float sum = (cells - 2 * differ) * scale[filter] + (bias ? bias[filter] : 0.f);
        finish_value(
            sum, kind, residual, pixel * residual_pitch + filter, last, out, pixel * out_pitch + filter);
    }
}
