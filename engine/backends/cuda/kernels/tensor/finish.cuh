// What follows the products: bias, activation, residual, last activation, and wide stores.
#pragma once
#include "result.cuh"

#define CORNER_PADDING 8  // floats between rows: fragments stay off each other's banks

struct Output {
    const float* bias;  // of every line of weights, those that only fill a tile too
    const result* residual;
    result* out;
    int pixels, pitch, residual_pitch;
    int kind, last;
    int is_aligned;  // lines of eight channels of `out` and `residual` begin on 16 bytes
};

// A warp's sums pass through its own corner of shared memory, ROWS x (COLUMNS + CORNER_PADDING)
// floats, so that residuals are read and results written 16 bytes at a time.
//   m0       the first pixel
//   channel  the first channel in `out`, of which `count` exist
//   line     of the first bias; a multiple of 8
// Several residuals are asked for before the first is needed.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void finish(const float (&sum)[ROWS / 16][COLUMNS / 8][4],
                                       float* corner, const Output& o, int m0, int channel,
                                       int count, int line)
{
    const int lane = threadIdx.x % 32;
    const int pitch = COLUMNS + CORNER_PADDING;
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j) {
            float* to = corner + (i * 16 + lane / 4) * pitch + j * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(sum[i][j][0], sum[i][j][1]);
            *reinterpret_cast<float2*>(to + 8 * pitch) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
    __syncwarp();
    const int items = ROWS * COLUMNS / 8 / 32;  // lines of eight channels for each lane
    const int at_once = items < 4 ? items : 4;
#pragma unroll 1
    for (int first = 0; first < items; first += at_once) {
        Raw<OUT_PACK, result> residual[at_once][8 / OUT_PACK];
        float x[at_once * 8];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const int item = lane + (first + i) * 32;
            const int m = m0 + item / (COLUMNS / 8);
            const int n = item % (COLUMNS / 8) * 8;
            if (o.residual && o.is_aligned && m < o.pixels && n + 8 <= count) {
                const result* from = o.residual + (size_t)m * o.residual_pitch + channel + n;
#pragma unroll
                for (int c = 0; c < 8 / OUT_PACK; ++c) {
                    residual[i][c] = reinterpret_cast<const Raw<OUT_PACK, result>*>(from)[c];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const int item = lane + (first + i) * 32;
            const int n = item % (COLUMNS / 8) * 8;
            const float* from = corner + item / (COLUMNS / 8) * pitch + n;
#pragma unroll
            for (int c = 0; c < 8; c += 4) {
                const float4 bias = *reinterpret_cast<const float4*>(o.bias + line + n + c);
                const float4 v = *reinterpret_cast<const float4*>(from + c);
                x[i * 8 + c] = v.x + bias.x;
                x[i * 8 + c + 1] = v.y + bias.y;
                x[i * 8 + c + 2] = v.z + bias.z;
                x[i * 8 + c + 3] = v.w + bias.w;
            }
        }
        activate_common(o.kind, x);
        if (o.residual) {
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                const int item = lane + (first + i) * 32;
                const int m = m0 + item / (COLUMNS / 8);
                const int n = item % (COLUMNS / 8) * 8;
                const result* from = o.residual + (size_t)m * o.residual_pitch + channel + n;
                const bool is_wide = o.is_aligned && n + 8 <= count;
#pragma unroll
                for (int c = 0; c < 8; ++c) {
                    if (m < o.pixels && n + c < count) {
                        const result r =
                            is_wide ? residual[i][c / OUT_PACK].v[c % OUT_PACK] : from[c];
                        x[i * 8 + c] += to_float(r);
                    }
                }
            }
        }
        activate_common(o.last, x);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const int item = lane + (first + i) * 32;
            const int m = m0 + item / (COLUMNS / 8);
            const int n = item % (COLUMNS / 8) * 8;
            if (m >= o.pixels) continue;
            result* to = o.out + (size_t)m * o.pitch + channel + n;
            if (o.is_aligned && n + 8 <= count) {
#pragma unroll
                for (int c = 0; c < 8; c += OUT_PACK) {
                    Pack<OUT_PACK> pack;
#pragma unroll
                    for (int k = 0; k < OUT_PACK; ++k) pack.v[k] = x[i * 8 + c + k];
                    store<OUT_PACK>(to + c, pack);
                }
            } else {
#pragma unroll
                for (int c = 0; c < 8; ++c) {
                    if (n + c < count) put(to + c, x[i * 8 + c]);
                }
            }
        }
    }
    __syncwarp();
}
