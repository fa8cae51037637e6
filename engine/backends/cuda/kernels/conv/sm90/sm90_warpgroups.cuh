// What kernels have in common whose blocks stay: shares of the registers for teams of warpgroups and for
// the one that fetches, and sums that leave from registers.
#pragma once
#include "sm90_mainloop.cuh"

#define GROUPS (TEAMS * CONSUMERS)  // of 128 threads that multiply; one more fetches
#define ALL_CONSUMERS (128 * GROUPS)
// A thread starts with equal shares; the one that fetches gives up what it does not need.
#define SHARE (512 / BLOCKS / (GROUPS + 1) / 8 * 8)
#define PRODUCER_SHARE (BLOCKS == 1 ? 40 : 32)
#define CONSUMER_SHARE ((SHARE * (GROUPS + 1) - PRODUCER_SHARE) / GROUPS / 8 * 8)

// A warp's 16 rows of finished sums, straight from registers: shared memory is busy with what comes
// next. pixel_of(row) is the pixel of one of them, negative where there is none.
template <typename PixelOf>
__device__ __forceinline__ void finish_from_registers(float (&sum)[BN / 2], const float* bias,
                                                      const Problem& p, int n0, PixelOf pixel_of)
{
    const int lane = threadIdx.x % 32;
    const int first = n0 + column_of(lane);
    add_bias(sum, bias);
    activate_all(KIND, sum);
#if YOLO
    const int kept = 16 / OUT_PACK;  // lines whose bits fit into a word
    unsigned bits[(BN / SHARED + kept - 1) / kept] = {};
#pragma unroll
    for (int j = 0; j < BN / SHARED; ++j) {
        bits[j / kept] |= bits_from(first + j * SHARED, p) << j % kept * OUT_PACK;
    }
#endif
#pragma unroll
    for (int low_row = 0; low_row < 2; ++low_row) {
        const int m = pixel_of(lane / 4 + low_row * 8);
        const bool is_row = m >= 0;
        const result* more = p.residual + (size_t)m * p.residual_pitch;
        result* to = static_cast<result*>(p.out) + (size_t)m * p.out_pitch;
        Line residual[BN / SHARED];
#pragma unroll
        for (int j = 0; j < BN / SHARED; ++j) {
            const int n = first + j * SHARED;
            if (WHOLE && p.residual && is_row && n < p.filters) {
                residual[j] = ask_line<16>(more + n);
            }
        }
#pragma unroll
        for (int j = 0; j < BN / SHARED; ++j) {
            float pair[SHARED / 8][2];
#pragma unroll
            for (int i = 0; i < SHARED / 8; ++i) {
                pair[i][0] = sum[(j * (SHARED / 8) + i) * 4 + low_row * 2];
                pair[i][1] = sum[(j * (SHARED / 8) + i) * 4 + low_row * 2 + 1];
            }
            Line line;
            gather_line(pair, line);
            const int n = first + j * SHARED;
            if (!is_row || n >= p.filters) continue;
            if constexpr (WHOLE) {
                finish_line(line, residual[j], p.residual);
#if YOLO
                make_yolo(line, p, bits[j / kept] >> j % kept * OUT_PACK);
#endif
                store_words(to + n, line.word);
            } else {
                const int count = min(p.filters - n, OUT_PACK);
                float x[OUT_PACK];
                values_of(line, x);
                if (p.residual) add_residual(x, more + n, count);
                finish(x, p, m, n, count);
            }
        }
    }
}
