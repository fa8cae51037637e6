// Shared by persistent kernels: how registers are divided between the producer warpgroup and the
// consumers, and an epilogue straight from registers.
#pragma once
#include "sm90_epilogue_int8.cuh"

#define CONSUMER_GROUPS (TEAMS * CONSUMERS)  // warpgroups that multiply; one more loads
#define CONSUMER_THREADS (128 * CONSUMER_GROUPS)
// Threads start with equal shares of the registers; the producer gives up what it does not need.
#define REGISTER_SHARE (512 / BLOCKS / (CONSUMER_GROUPS + 1) / 8 * 8)
#define PRODUCER_REGISTERS (BLOCKS == 1 ? 40 : 32)
#define CONSUMER_REGISTERS \
    ((REGISTER_SHARE * (CONSUMER_GROUPS + 1) - PRODUCER_REGISTERS) / CONSUMER_GROUPS / 8 * 8)

// Epilogue of a warp's 16 rows from registers, because shared memory is busy with the next slices.
// pixel_of(row) is the pixel of a row; it is negative past the end.
#if MODE != 4 && OUT_BYTES > 1
// Runs the epilogue from the residual on, for the first ROW_HALVES of eight rows. With WHOLE,
// results go to `out`.
template <int ROW_HALVES, typename PixelOf> DEVICE void finish_rows(const float (&sum)[BN / 2],
    const KernelArgs& p, int n0, result* out, int out_pitch, PixelOf pixel_of)
{
    const int lane = threadIdx.x % 32;
    const int first = n0 + quad_column(lane);
#if YOLO
    const int kept = 16 / OUT_PACK;  // vectors whose masks fit into a word
    unsigned bits[(BN / QUAD_COLUMNS + kept - 1) / kept] = {};
    UNROLL(j, BN / QUAD_COLUMNS) {
        bits[j / kept] |= yolo_mask_at(first + j * QUAD_COLUMNS, p) << j % kept * OUT_PACK;
    }
#endif
    UNROLL(row_half, ROW_HALVES) {
        const int m = pixel_of(lane / 4 + row_half * 8);
        const bool is_row = m >= 0;
        const result* residual_from = p.residual + (size_t)m * p.residual_pitch;
        result* to = out + (size_t)m * out_pitch;
        ResultVector residual[BN / QUAD_COLUMNS];
        UNROLL(j, BN / QUAD_COLUMNS) {
            const int n = first + j * QUAD_COLUMNS;
            if (WHOLE && RESIDUAL && is_row && n < p.filters) {
                if constexpr (RESIDUAL == QUARTERS) {
                    issue_residual_load(residual[j].word, p, m, n, true);
                } else {
                    residual[j] = load_vector(residual_from + n);
                }
            }
        }
        UNROLL(j, BN / QUAD_COLUMNS) {
            float pair[QUAD_COLUMNS / 8][2];
            UNROLL(i, QUAD_COLUMNS / 8) {
                pair[i][0] = sum[(j * (QUAD_COLUMNS / 8) + i) * 4 + row_half * 2];
                pair[i][1] = sum[(j * (QUAD_COLUMNS / 8) + i) * 4 + row_half * 2 + 1];
            }
            ResultVector vector;
            gather_vector(pair, vector);
            const int n = first + j * QUAD_COLUMNS;
            if (!is_row || n >= p.filters) continue;
            if constexpr (WHOLE) {
                finish_vector(vector, residual[j], RESIDUAL);
#if YOLO
                yolo_vector(vector, p, bits[j / kept] >> j % kept * OUT_PACK);
#endif
                store_vector(to + n, vector.word);
            } else {
                const int count = min(p.filters - n, OUT_PACK);
                float x[OUT_PACK];
                unpack_vector(vector, x);
                if (RESIDUAL) add_residual(x, residual_from + n, count);
                store_results(x, p, m, n, count);
            }
        }
    }
}

template <typename PixelOf> DEVICE void epilogue_from_registers(
    float (&sum)[BN / 2], const float* bias, const KernelArgs& p, int n0, PixelOf pixel_of)
{
    add_bias(sum, bias);
    activate_all(KIND, sum);
    finish_rows<2>(sum, p, n0, static_cast<result*>(p.out), p.out_pitch, pixel_of);
}
#endif
