// winograd: 3x3, stride 1, as F(2x2, 3x3): 16 products where the direct way needs 36.
//
//   winograd_input   patches of 4x4, two apart:  V = B'd B   -> (16, tiles, channels)
//   (16 products)    M[e] = V[e] * U[e], one strided-batched Sgemm; U = G g G' made once
//   winograd_output  Y = A'M A, then bias, activation, residual -> two by two output pixels
//
//   B' = 1 0 -1 0 / 0 1 1 0 / 0 -1 1 0 / 0 1 0 -1     A' = 1 1 1 0 / 0 1 -1 -1
//
// Work item  one channel of one tile.   Memory  coalesced along channels.
#include "common.cuh"

extern "C" __global__ void winograd_input(const real* __restrict__ src, real* __restrict__ patches,
                                          int rows, int channels, int height, int width,
                                          int tiles_y, int tiles_x, int src_pitch, int top,
                                          int left)
{
    after_previous_kernel();
    const int tiles = rows * tiles_y * tiles_x;
    GRID_STRIDE(item, tiles * channels)
    {
        const int tile = item / channels;
        const int channel = item - tile * channels;
        const int first_x = tile % tiles_x * 2 - left;
        const int first_y = tile / tiles_x % tiles_y * 2 - top;
        const int row = tile / tiles_x / tiles_y;
        const real* image = src + row * height * width * src_pitch + channel;
        float d[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int y = first_y + i;
                const int x = first_x + j;
                const bool is_inside = 0 <= y && y < height && 0 <= x && x < width;
                d[i][j] = is_inside ? to_float(image[(y * width + x) * src_pitch]) : 0.f;
            }
        }
        float t[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            t[0][j] = d[0][j] - d[2][j];
            t[1][j] = d[1][j] + d[2][j];
            t[2][j] = d[2][j] - d[1][j];
            t[3][j] = d[1][j] - d[3][j];
        }
        real* to = patches + item;
        const size_t step = (size_t)tiles * channels;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            put(to + (i * 4 + 0) * step, t[i][0] - t[i][2]);
            put(to + (i * 4 + 1) * step, t[i][1] + t[i][2]);
            put(to + (i * 4 + 2) * step, t[i][2] - t[i][1]);
            put(to + (i * 4 + 3) * step, t[i][1] - t[i][3]);
        }
    }
}

extern "C" __global__ void winograd_output(const real* __restrict__ products,
                                           const float* __restrict__ bias,
                                           const real* __restrict__ residual,
                                           real* __restrict__ out, int rows, int filters, int out_h,
                                           int out_w, int tiles_y, int tiles_x, int residual_pitch,
                                           int out_pitch, int kind, int last)
{
    after_previous_kernel();
    const int tiles = rows * tiles_y * tiles_x;
    GRID_STRIDE(item, tiles * filters)
    {
        const int tile = item / filters;
        const int filter = item - tile * filters;
        const size_t step = (size_t)tiles * filters;
        float m[4][4];
#pragma unroll
        for (int i = 0; i < 16; ++i) m[i / 4][i % 4] = to_float(products[item + i * step]);
        float t[2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            t[0][j] = m[0][j] + m[1][j] + m[2][j];
            t[1][j] = m[1][j] - m[2][j] - m[3][j];
        }
        const float add = bias ? bias[filter] : 0.f;
        const int first_x = tile % tiles_x * 2;
        const int first_y = tile / tiles_x % tiles_y * 2;
        const int row = tile / tiles_x / tiles_y;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float y[2] = {t[i][0] + t[i][1] + t[i][2], t[i][1] - t[i][2] - t[i][3]};
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (first_y + i >= out_h || first_x + j >= out_w) continue;
                const int pixel = (row * out_h + first_y + i) * out_w + first_x + j;
                float v = activate(kind, y[j] + add);
                if (residual) v += to_float(residual[pixel * residual_pitch + filter]);
                put(out + pixel * out_pitch + filter, activate(last, v));
            }
        }
    }
}
