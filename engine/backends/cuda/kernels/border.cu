// border: between the host's float (rows, channels, height, width) and the network's own layout.
//
//   enter  host values -> an NHWC tensor        leave  an NHWC tensor -> host values
//
// Where the host's values are is read when `enter` runs: every run brings them in another place.
//
// Work item  one value, in the order in which it is written.   Memory  writes coalesce.
// enter_colours takes a pixel of three channels with room for a fourth: reads coalesce, too.
// leave_tiles, for large maps, turns TILE pixels by TILE channels in shared memory: likewise.
#include "common.cuh"

extern "C" __global__ void enter(const float* const* src_pointer, real* __restrict__ out,
                                 int pixels, int channels, int area, int out_pitch)
{
    after_previous_kernel();
    const float* __restrict__ src = *src_pointer;
    GRID_STRIDE(item, pixels * channels)
    {
        const int pixel = item / channels;
        const int channel = item - pixel * channels;
        const int row = pixel / area;
        put(out + pixel * out_pitch + channel,
            src[(row * channels + channel) * area + pixel - row * area]);
    }
}

extern "C" __global__ void enter_colours(const float* const* src_pointer, real* __restrict__ out,
                                         int pixels, int area)
{
    after_previous_kernel();
    const float* __restrict__ src = *src_pointer;
    GRID_STRIDE(pixel, pixels)
    {
        const float* from = src + pixel / area * 2 * area + pixel;
        const Pack<4> colours = {{from[0], from[area], from[2 * area], 0.f}};
        store<4>(out + pixel * 4, colours);
    }
}

extern "C" __global__ void leave(const real* __restrict__ src, float* __restrict__ out, int pixels,
                                 int channels, int area, int src_pitch, unsigned* flag)
{
    after_previous_kernel();
    GRID_STRIDE(flat, pixels * channels)
    {
        out[flat] = to_float(src[place(flat, channels, area, src_pitch)]);
        note_strange(flag, out[flat]);
    }
}

#define TILE 32

extern "C" __global__ void leave_tiles(const real* __restrict__ src, float* __restrict__ out,
                                       int pixels, int channels, int area, int src_pitch,
                                       unsigned* flag)
{
    after_previous_kernel();
    __shared__ float tile[TILE][TILE + 1];
    const int across = (channels + TILE - 1) / TILE;
    const int tiles = (pixels + TILE - 1) / TILE * across;
    const int lane = threadIdx.x % TILE;
    for (int item = blockIdx.x; item < tiles; item += gridDim.x) {
        const int first_pixel = item / across * TILE;
        const int first_channel = item % across * TILE;
        for (int y = threadIdx.x / TILE; y < TILE; y += blockDim.x / TILE) {
            const int pixel = first_pixel + y;
            const int channel = first_channel + lane;
            if (pixel < pixels && channel < channels) {
                tile[y][lane] = to_float(src[pixel * src_pitch + channel]);
            }
        }
        __syncthreads();
        const int pixel = first_pixel + lane;
        const int row = pixel / area;
        for (int x = threadIdx.x / TILE; x < TILE; x += blockDim.x / TILE) {
            const int channel = first_channel + x;
            if (pixel < pixels && channel < channels) {
                note_strange(flag, tile[lane][x]);
                out[(row * channels + channel) * area + pixel - row * area] = tile[lane][x];
            }
        }
        __syncthreads();  // the next tile takes the same memory
    }
}
