// average_pool: the mean of the window's cells that lie inside the map.
// average_parts, average_join: the mean of a whole map in two steps, so that a large map of few
// channels fills the device: each part sums a run of pixels, then the parts are added in order.
//
// Work item  one output value; average_parts: a pack of channels of one part of one row.
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

template <int V>
__device__ __forceinline__ void average_parts_body(const real* __restrict__ src,
                                                   float* __restrict__ sums, int rows, int channels,
                                                   int area, int src_pitch, int parts)
{
    const int run = (area + parts - 1) / parts;
    const int packs = channels / V;
    GRID_STRIDE(item, rows * parts * packs)
    {
        const int channel = item % packs * V;
        const int part = item / packs % parts;
        const int row = item / packs / parts;
        const real* image = src + row * area * src_pitch + channel;
        Pack<V> sum = {};
#pragma unroll 4
        for (int i = part * run; i < min((part + 1) * run, area); ++i) {
            const Pack<V> v = load<V>(image + i * src_pitch);
#pragma unroll
            for (int k = 0; k < V; ++k) sum.v[k] += v.v[k];
        }
#pragma unroll
        for (int k = 0; k < V; ++k) sums[(row * parts + part) * channels + channel + k] = sum.v[k];
    }
}

extern "C" __global__ void average_parts(const real* __restrict__ src, float* __restrict__ sums,
                                         int rows, int channels, int area, int src_pitch, int parts)
{
    after_previous_kernel();
    average_parts_body<1>(src, sums, rows, channels, area, src_pitch, parts);
}

extern "C" __global__ void average_parts_packed(const real* __restrict__ src,
                                                float* __restrict__ sums, int rows, int channels,
                                                int area, int src_pitch, int parts)
{
    after_previous_kernel();
    average_parts_body<PACK>(src, sums, rows, channels, area, src_pitch, parts);
}

// A block adds up 32 channels of one row: AVERAGE_LANES threads share the parts of a channel.
#define AVERAGE_LANES 8

extern "C" __global__ void average_join(const float* __restrict__ sums, real* __restrict__ out,
                                        int rows, int channels, int area, int parts, int out_pitch)
{
    after_previous_kernel();
    __shared__ float shared[AVERAGE_LANES][32];
    const int lane = threadIdx.x / 32;
    const int groups = (channels + 31) / 32;
    for (int item = blockIdx.x; item < rows * groups; item += gridDim.x) {
        const int row = item / groups;
        const int channel = (item - row * groups) * 32 + threadIdx.x % 32;
        float sum = 0.f;
        if (channel < channels) {
            for (int part = lane; part < parts; part += AVERAGE_LANES) {
                sum += sums[(row * parts + part) * channels + channel];
            }
        }
        shared[lane][threadIdx.x % 32] = sum;
        __syncthreads();
        if (lane == 0 && channel < channels) {
            for (int i = 1; i < AVERAGE_LANES; ++i) sum += shared[i][threadIdx.x % 32];
            put(out + row * out_pitch + channel, sum / area);
        }
        __syncthreads();
    }
}
