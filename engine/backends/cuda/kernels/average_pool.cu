// average_pool: the mean of the window's cells that lie inside the map.
// average_parts, average_join: the mean of a whole map in two steps, so that a large map of few
// channels fills the device: each part sums a run of pixels, then the parts are added in order.
//
// Work item  one output value; average_parts: one channel of one part of one row.
// Memory     coalesced along channels.
#include "common.cuh"

extern "C" __global__ void average_pool(const real* __restrict__ src, real* __restrict__ out,
                                        int rows, int channels, int height, int width, int out_h,
                                        int out_w, int src_pitch, int out_pitch, int size_y,
                                        int size_x, int stride_y, int stride_x, int top, int left)
{
    after_previous_kernel();
    GRID_STRIDE(item, rows * out_h * out_w * channels)
    {
        const int pixel = item / channels;
        const int channel = item - pixel * channels;
        const int x = pixel % out_w;
        const int y = pixel / out_w % out_h;
        const int row = pixel / out_w / out_h;
        const int low_y = max(y * stride_y - top, 0);
        const int low_x = max(x * stride_x - left, 0);
        const int high_y = min(y * stride_y - top + size_y, height);
        const int high_x = min(x * stride_x - left + size_x, width);
        const real* image = src + row * height * width * src_pitch + channel;
        float sum = 0.f;
        for (int i = low_y; i < high_y; ++i) {
            for (int j = low_x; j < high_x; ++j) sum += to_float(image[(i * width + j) * src_pitch]);
        }
        const int cells = max(high_y - low_y, 0) * max(high_x - low_x, 0);
        put(out + pixel * out_pitch + channel, sum / cells);
    }
}

extern "C" __global__ void average_parts(const real* __restrict__ src, float* __restrict__ sums,
                                         int rows, int channels, int area, int src_pitch, int parts)
{
    after_previous_kernel();
    const int run = (area + parts - 1) / parts;
    GRID_STRIDE(item, rows * parts * channels)
    {
        const int channel = item % channels;
        const int part = item / channels % parts;
        const int row = item / channels / parts;
        const real* image = src + row * area * src_pitch + channel;
        float sum = 0.f;
        for (int i = part * run; i < min((part + 1) * run, area); ++i) {
            sum += to_float(image[i * src_pitch]);
        }
        sums[item] = sum;
    }
}

extern "C" __global__ void average_join(const float* __restrict__ sums, real* __restrict__ out,
                                        int rows, int channels, int area, int parts, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(item, rows * channels)
    {
        const int row = item / channels;
        const int channel = item - row * channels;
        float sum = 0.f;
        for (int part = 0; part < parts; ++part) {
            sum += sums[(row * parts + part) * channels + channel];
        }
        put(out + row * out_pitch + channel, sum / area);
    }
}
