// local_conv: a convolution whose weights differ at every output cell.
//   weight (cells, channels * size * size, filters), bias (cells, filters)
// deconv: out[n, y*stride+i-padding, x*stride+j-padding] += weight[c,n,i,j] * src[c,y,x], computed per output
//   value, so that no two threads write the same one; weight (size, size, channels, filters)
//
// Work item  one output value, filters innermost.   Memory  weights and writes coalesce.
#include "common.cuh"

extern "C" __global__ void local_conv(const real* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, real* __restrict__ out, int rows, int channels, int filters, int height,
    int width, int out_h, int out_w, int src_pitch, int out_pitch, int size, int stride, int padding)
{
    after_previous_kernel();
    const int cells = out_h * out_w;
    FOR_EACH_PACK(1, pixel, rows * cells, filter, filters)
    {
        const int cell = pixel % cells;
        const int row = pixel / cells;
        const int first_x = cell % out_w * stride - padding;
        const int first_y = cell / out_w * stride - padding;
        const float* w = weight + cell * channels * size * size * filters + filter;
        float sum = bias[cell * filters + filter];
        for (int c = 0; c < channels; ++c) {
            for (int i = 0; i < size; ++i) {
                for (int j = 0; j < size; ++j, w += filters) {
                    const int y = first_y + i;
                    const int x = first_x + j;
                    if (0 <= y && y < height && 0 <= x && x < width) {
                        sum += *w * to_float(src[((row * height + y) * width + x) * src_pitch + c]);
                    }
                }
            }
        }
        put(out + pixel * out_pitch + filter, sum);
    }
}

extern "C" __global__ void deconv(const real* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, real* __restrict__ out, int rows, int channels, int filters, int height,
    int width, int out_h, int out_w, int src_pitch, int out_pitch, int size, int stride, int padding)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, filter, filters)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const int x = at.x + padding;
        const int y = at.y + padding;
        float sum = bias ? bias[filter] : 0.f;
        for (int i = 0; i < size; ++i) {
            const int from_y = (y - i) / stride;
            if (y < i || (y - i) % stride || from_y >= height) continue;
            for (int j = 0; j < size; ++j) {
                const int from_x = (x - j) / stride;
                if (x < j || (x - j) % stride || from_x >= width) continue;
                const real* v = src + ((at.row * height + from_y) * width + from_x) * src_pitch;
                const float* w = weight + (i * size + j) * channels * filters + filter;
                for (int c = 0; c < channels; ++c) sum += to_float(v[c]) * w[c * filters];
            }
        }
        put(out + pixel * out_pitch + filter, sum);
    }
}
