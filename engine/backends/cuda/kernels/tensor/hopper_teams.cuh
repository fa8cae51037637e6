// What kernels have in common whose blocks stay: shares of the registers for teams of warpgroups and for
// the one that fetches, and sums that leave from registers.
#pragma once
#include "hopper_tile.cuh"

#define GROUPS (TEAMS * CONSUMERS)  // of 128 threads that multiply; one more fetches
#define ALL_CONSUMERS (128 * GROUPS)
// A thread starts with equal shares; the one that fetches gives up what it does not need.
#define SHARE (512 / BLOCKS / (GROUPS + 1) / 8 * 8)
#define PRODUCER_SHARE (BLOCKS == 1 ? 40 : 32)
#define CONSUMER_SHARE ((SHARE * (GROUPS + 1) - PRODUCER_SHARE) / GROUPS / 8 * 8)

// Four words of each lane of a quad: lane q gets the words q of all four, in the order of lanes.
__device__ __forceinline__ void transpose_quad(unsigned (&word)[4])
{
    const bool is_odd = threadIdx.x & 1;
    const bool is_high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(~0u, is_odd ? word[i] : word[i + 1], 1);
        if (is_odd) word[i] = other;
        else word[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned other = __shfl_xor_sync(~0u, is_high ? word[i] : word[i + 2], 2);
        if (is_high) word[i] = other;
        else word[i + 2] = other;
    }
}

// Eight neighbouring results of a row for each lane, out of the pairs that a quad's lanes hold:
// `pair` has those of four groups of eight columns, lane q gets group q.
__device__ __forceinline__ void gather_lines(const float (&pair)[4][2], Line (&x)[LINES])
{
    unsigned word[4];
#if OUT_BYTES == 2
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 halves = __floats2half2_rn(pair[i][0], pair[i][1]);
        word[i] = reinterpret_cast<const unsigned&>(halves);
    }
    transpose_quad(word);
#pragma unroll
    for (int i = 0; i < 4; ++i) reinterpret_cast<unsigned*>(x[0].v)[i] = word[i];
#else
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = __float_as_uint(pair[i][k]);
        transpose_quad(word);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i / 2].v[i % 2 * 2 + k] = __uint_as_float(word[i]);
    }
#endif
}

// A warp's 16 rows of finished sums, straight from registers: shared memory is busy with what comes
// next. pixel_of(row) is the pixel of one of them, negative where there is none.
template <typename PixelOf>
__device__ __forceinline__ void finish_from_registers(float (&sum)[BN / 2], const float* bias,
                                                      const Problem& p, int n0, PixelOf pixel_of)
{
    const int lane = threadIdx.x % 32;
    add_bias(sum, bias);
    activate_all(KIND, sum);
#if IS_YOLO
    unsigned bits[BN / 32];
#pragma unroll
    for (int j = 0; j < BN / 32; ++j) bits[j] = bits_from(n0 + j * 32 + lane % 4 * 8, p);
#endif
#pragma unroll
    for (int low_row = 0; low_row < 2; ++low_row) {
        const int m = pixel_of(lane / 4 + low_row * 8);
        const bool is_row = m >= 0;
        const result* more = p.residual + (size_t)m * p.residual_pitch;
        result* to = static_cast<result*>(p.out) + (size_t)m * p.out_pitch;
        Line residual[BN / 32][LINES];
#pragma unroll
        for (int j = 0; j < BN / 32; ++j) {
            const int n = n0 + j * 32 + lane % 4 * 8;
            if (WHOLE && p.residual && is_row && n < p.filters) {
#pragma unroll
                for (int c = 0; c < LINES; ++c) {
                    residual[j][c] = ask_residual<OUT_PACK>(more + n + c * OUT_PACK);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < BN / 32; ++j) {
            float pair[4][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pair[i][0] = sum[(j * 4 + i) * 4 + low_row * 2];
                pair[i][1] = sum[(j * 4 + i) * 4 + low_row * 2 + 1];
            }
            Line line[LINES];
            gather_lines(pair, line);
            const int n = n0 + j * 32 + lane % 4 * 8;
            if (!is_row || n >= p.filters) continue;
            if constexpr (WHOLE) {
#pragma unroll
                for (int c = 0; c < LINES; ++c) {
                    finish_line(line[c], residual[j][c], p.residual);
#if IS_YOLO
                    make_yolo(line[c], p, c, bits[j]);
#endif
                    *reinterpret_cast<Line*>(to + n + c * OUT_PACK) = line[c];
                }
            } else {
                const int count = min(p.filters - n, 8);
                float x[8];
#pragma unroll
                for (int c = 0; c < 8; ++c) x[c] = to_float(line[c / OUT_PACK].v[c % OUT_PACK]);
                if (p.residual) add_residual(x, more + n, count);
                finish(x, p, m, n, count);
            }
        }
    }
}
