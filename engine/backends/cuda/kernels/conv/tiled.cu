// tiled: convolution from shared memory. A block loads a tile of the input with its halo, a few
// channels at a time; cells outside the input are zero. Each thread computes one output pixel of
// the tile and TILED_FILTERS filters in registers. Launched by conv/direct.py.
//
//   weight  (groups, kernel_y, kernel_x, group_channels, filters)
//   tile_h x tile_w = blockDim.x output pixels; 1 x n is the tile of a 1-D signal
//   shared memory: TILED_CHANNELS * halo_h * halo_w floats,
//           halo = (tile - 1) * stride + (kernel - 1) * dilation + 1
//
// Work item  a block takes one tile of one row and TILED_FILTERS filters of one group.
// Memory     each input value is read once per block instead of kernel_y * kernel_x times.
#include "common.cuh"

#define TILED_CHANNELS 4
#define TILED_FILTERS 8

extern "C" __global__ void tiled(const real* __restrict__ src, const float* __restrict__ weight,
    const float* __restrict__ bias, const real* __restrict__ residual, real* __restrict__ out, int rows,
    int groups, int group_channels, int filters, int height, int width, int out_h, int out_w, int src_pitch,
    int residual_pitch, int out_pitch, int kernel_y, int kernel_x, int stride_y, int stride_x, int top,
    int left, int dilation_y, int dilation_x, int kind, int last, int tile_h, int tile_w)
{
    after_previous_kernel();
    extern __shared__ float halo[];
    const int halo_h = (tile_h - 1) * stride_y + (kernel_y - 1) * dilation_y + 1;
    const int halo_w = (tile_w - 1) * stride_x + (kernel_x - 1) * dilation_x + 1;
    const int tiles_x = (out_w + tile_w - 1) / tile_w;
    const int tiles_y = (out_h + tile_h - 1) / tile_h;
    const int slices = (filters + TILED_FILTERS - 1) / TILED_FILTERS;
    const int thread = threadIdx.x;
    const int tile_x = thread % tile_w;
    const int tile_y = thread / tile_w;
    for (int item = blockIdx.x; item < rows * tiles_y * tiles_x * groups * slices; item += gridDim.x) {
        const int slice = item % slices;
        const int group = item / slices % groups;
        const int tile = item / slices / groups;
        const int first_x = tile % tiles_x * tile_w;
        const int first_y = tile / tiles_x % tiles_y * tile_h;
        const int row = tile / tiles_x / tiles_y;
        const real* image = src + row * height * width * src_pitch + group * group_channels;
        const int first_filter = slice * TILED_FILTERS;
        const int here = min(filters - first_filter, TILED_FILTERS);
        float sum[TILED_FILTERS];
        UNROLL(f, TILED_FILTERS) sum[f] = 0.f;
        for (int low = 0; low < group_channels; low += TILED_CHANNELS) {
            const int depth = min(group_channels - low, TILED_CHANNELS);
            __syncthreads();
            for (int i = thread; i < halo_h * halo_w * depth; i += blockDim.x) {
                const int c = i % depth;
                const int x = i / depth % halo_w + first_x * stride_x - left;
                const int y = i / depth / halo_w + first_y * stride_y - top;
                const bool is_inside = 0 <= y && y < height && 0 <= x && x < width;
                halo[c * halo_h * halo_w + i / depth] =
                    is_inside ? to_float(image[(y * width + x) * src_pitch + low + c]) : 0.f;
            }
            __syncthreads();
            for (int i = 0; i < kernel_y; ++i) {
                for (int j = 0; j < kernel_x; ++j) {
                    const int at =
                        (tile_y * stride_y + i * dilation_y) * halo_w + tile_x * stride_x + j * dilation_x;
                    const int tap = (group * kernel_y + i) * kernel_x + j;
                    const float* w = weight + (tap * group_channels + low) * filters + first_filter;
                    for (int c = 0; c < depth; ++c, w += filters) {
                        const float v = halo[c * halo_h * halo_w + at];
                        UNROLL(f, TILED_FILTERS) {
                            if (f < here) sum[f] += v * w[f];
                        }
                    }
                }
            }
        }
        const int x = first_x + tile_x;
        const int y = first_y + tile_y;
        if (x < out_w && y < out_h) {
            const int pixel = (row * out_h + y) * out_w + x;
            UNROLL(f, TILED_FILTERS) {
                if (f >= here) break;
                const int filter = group * filters + first_filter + f;
                finish_value(sum[f] + (bias ? bias[filter] : 0.f), kind, residual,
                    pixel * residual_pitch + filter, last, out, pixel * out_pitch + filter);
            }
        }
    }
}
