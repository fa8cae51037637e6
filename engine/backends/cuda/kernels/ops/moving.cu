// Layers that only move values.
//
//   reshape  the same values in (channel, y, x) order with another shape
//   reorg    darknet's reorg over a grid (C,H,W): at = (k,j,i), q = C / stride^2,
//            from = (k % q, j*stride + k/q/stride, i*stride + k/q % stride); reverse swaps the two
//   crop     out[y,x] = src[y + top, x + left] * scale + shift
//
// Work item  one value.   Memory  reshape and reorg gather.
#include "common.cuh"

extern "C" __global__ void reshape(const real* __restrict__ src, real* __restrict__ out, int rows,
    int out_channels, int out_area, int channels, int area, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(flat, rows * out_channels * out_area)
    {
        out[nhwc_offset(flat, out_channels, out_area, out_pitch)] =
            src[nhwc_offset(flat, channels, area, src_pitch)];
    }
}

extern "C" __global__ void reorg(const real* __restrict__ src, real* __restrict__ out, int rows,
    int out_channels, int out_area, int channels, int area, int src_pitch, int out_pitch, int stride,
    int grid_c, int grid_h, int grid_w, int reverse)
{
    after_previous_kernel();
    const int size = grid_c * grid_h * grid_w;
    const int quotient = grid_c / (stride * stride);
    GRID_STRIDE(item, rows * size)
    {
        const int row = item / size;
        const int at = item - row * size;
        const int i = at % grid_w;
        const int j = at / grid_w % grid_h;
        const int k = at / grid_w / grid_h;
        const int offset = k / quotient;
        const int x = i * stride + offset % stride;
        const int y = j * stride + offset / stride;
        const int from = x + grid_w * stride * (y + grid_h * stride * (k % quotient));
        const int read = row * size + (reverse ? at : from);
        const int write = row * size + (reverse ? from : at);
        out[nhwc_offset(write, out_channels, out_area, out_pitch)] =
            src[nhwc_offset(read, channels, area, src_pitch)];
    }
}

extern "C" __global__ void crop(const real* __restrict__ src, real* __restrict__ out, int rows, int channels,
    int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int top, int left, float scale,
    float shift)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, channel, channels)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const int from = (at.row * height + at.y + top) * width + at.x + left;
        const float v = to_float(src[from * src_pitch + channel]);
        put(out + pixel * out_pitch + channel, v * scale + shift);
    }
}
