// border: between the host's float (rows, channels, height, width) and NHWC tensors.
//
//   enter          host values -> an NHWC tensor
//   enter_colours  the same for three channels stored as four, four pixels at a time if planes are aligned
//   leave          an NHWC tensor -> host values
//   leave_tiles    the same for large maps, transposed in shared memory; all loads of a thread are in flight
//                  before the first is used
//
// The address of the host's values is read when the kernel runs, because it differs in every run of
// a graph.
// Work item  one value, in the order of writes.   Memory  writes coalesce, and reads too in the variants.
#include "common.cuh"

#define COLOURS 3
#define FOUR 4  // pixels

extern "C" __global__ void enter(const float* const* src_pointer, real* __restrict__ out, int pixels,
    int channels, int area, int out_pitch)
{
    after_previous_kernel();
    const float* __restrict__ src = *src_pointer;
    FOR_EACH_PACK(1, pixel, pixels, channel, channels)
    {
        const int row = pixel / area;
        put(out + pixel * out_pitch + channel, src[(row * channels + channel) * area + pixel - row * area]);
    }
}

extern "C" __global__ void enter_colours(
    const float* const* src_pointer, real* __restrict__ out, int pixels, int area)
{
    after_previous_kernel();
    const float* __restrict__ src = *src_pointer;
    if (area % FOUR == 0 && reinterpret_cast<size_t>(src) % sizeof(float4) == 0) {
        GRID_STRIDE(four, pixels / FOUR)
        {
            const int pixel = four * FOUR;
            const float* from = src + pixel / area * 2 * area + pixel;
            Pack<FOUR> planes[COLOURS];
            UNROLL(c, COLOURS) planes[c] = load<FOUR>(from + c * area);
#pragma unroll
            for (int first = 0; first < FOUR; first += PACK / 4) {
                Pack<PACK> colours;
                UNROLL(i, PACK) {
                    colours.v[i] = i % 4 < COLOURS ? planes[i % 4].v[first + i / 4] : 0.f;
                }
                store<PACK>(out + (pixel + first) * 4, colours);
            }
        }
        return;
    }
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
        out[flat] = to_float(src[nhwc_offset(flat, channels, area, src_pitch)]);
        flag_non_finite(flag, out[flat]);
    }
}

#define TILE_CHANNELS 32
#define TILE_PIXELS 64
#define TILE_WARPS 8  // per block

extern "C" __global__ void leave_tiles(const real* __restrict__ src, float* __restrict__ out, int pixels,
    int channels, int area, int src_pitch, unsigned* flag)
{
    after_previous_kernel();
    __shared__ float tile[TILE_CHANNELS][TILE_PIXELS + 1];
    const int across = (channels + TILE_CHANNELS - 1) / TILE_CHANNELS;
    const int tiles = (pixels + TILE_PIXELS - 1) / TILE_PIXELS * across;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    for (int item = blockIdx.x; item < tiles; item += gridDim.x) {
        const int first_pixel = item / across * TILE_PIXELS;
        const int first_channel = item % across * TILE_CHANNELS;
        const real* from = src + first_pixel * src_pitch + first_channel + lane;
        const int most = first_channel + lane < channels ? pixels - first_pixel : 0;
        Bits<sizeof(real)> held[TILE_PIXELS / TILE_WARPS];
        UNROLL(i, TILE_PIXELS / TILE_WARPS) {
            const int pixel = i * TILE_WARPS + warp;
            held[i] = load_bits_if<1>(pixel < most, from + pixel * src_pitch);
        }
        UNROLL(i, TILE_PIXELS / TILE_WARPS) {
            tile[lane][i * TILE_WARPS + warp] = value_of<1>(held[i], 0);
        }
        __syncthreads();
#pragma unroll
        for (int first = 0; first < TILE_PIXELS; first += 32) {
            const int pixel = first_pixel + first + lane;
            const int row = pixel / area;
            float* to = out + row * channels * area + pixel - row * area;
            UNROLL(i, TILE_CHANNELS / TILE_WARPS) {
                const int own = i * TILE_WARPS + warp;
                if (pixel >= pixels || first_channel + own >= channels) continue;
                const float x = tile[own][first + lane];
                flag_non_finite(flag, x);
                to[(first_channel + own) * area] = x;
            }
        }
        __syncthreads();  // the next tile uses the same memory
    }
}
