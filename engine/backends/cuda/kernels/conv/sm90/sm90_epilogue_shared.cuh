// Epilogue staged through shared memory, if rows of the GEMM are pixels: residuals are read and
// results written 16 bytes at a time, as whole sectors.
#pragma once
#include "sm90_epilogue.cuh"

#define PACKS (BN / OUT_PACK)  // packs of 16 bytes in a row
#define ROW_PITCH (BN + 8)     // in a warp's staging area; the padding avoids bank conflicts

#if OUT_BYTES == 2
// Writes a warp's 16 rows to its staging area: two words of each lane for every eight columns, as four
// matrices of 8 x 8 halves.
DEVICE void stage_rows(result* staging, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    const unsigned to = shared_address(staging) + (lane % 16 * ROW_PITCH + lane / 16 * 8) * 2;
#pragma unroll
    for (int j = 0; j < BN / 8; j += 2) {
        unsigned word[4];
        UNROLL(i, 4) {
            word[i] = pack_half2(sum[j * 4 + i * 2], sum[j * 4 + i * 2 + 1]);
        }
        stmatrix_x4(to + j * 16, word);
    }
}
#else
DEVICE void stage_rows(result* staging, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    float* to = staging + lane / 4 * ROW_PITCH + lane % 4 * 2;
    UNROLL(j, BN / 8) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(sum[j * 4], sum[j * 4 + 1]);
        *reinterpret_cast<float2*>(to + 8 * ROW_PITCH + j * 8) = make_float2(sum[j * 4 + 2], sum[j * 4 + 3]);
    }
}
#endif

#define VECTORS_PER_LANE (PACKS / 2)  // in a warp's 16 rows
#define VECTORS_IN_FLIGHT (VECTORS_PER_LANE < 8 ? VECTORS_PER_LANE : VECTORS_PER_LANE % 8 == 0 ? 8 : 6)

typedef ResultVector ResidualVectors[VECTORS_IN_FLIGHT];

// The order in which a warp visits its rows: neighbouring lanes take neighbouring vectors, so that
// whole sectors of the L2 are written; writing each in two halves would cost twice as much.
struct LaneWalk {
    unsigned lane;
    int rows, columns;  // that exist

    static constexpr bool KEEPS_COLUMN = 32 % PACKS == 0;  // a lane keeps its column in all rows

    DEVICE int row(int i) const
    {
        return KEEPS_COLUMN ? i * (32 / PACKS) + lane / PACKS : (i * 32 + lane) / PACKS;
    }
    DEVICE int column(int i) const { return int((KEEPS_COLUMN ? lane : i * 32 + lane) % PACKS * OUT_PACK); }
    DEVICE bool exists(int i) const { return i < VECTORS_PER_LANE && row(i) < rows && column(i) < columns; }
};

DEVICE LaneWalk lane_walk(const KernelArgs& p, int first_row, int n0)
{
    return {threadIdx.x % 32, p.pixels - first_row, p.filters - n0};
}

// Issues the loads of the residuals of a warp's rows, from vector `first` on.
DEVICE void issue_residual_loads(
    ResidualVectors& residual, const KernelArgs& p, int first_row, int n0, int first)
{
    const LaneWalk walk = lane_walk(p, first_row, n0);
    UNROLL(i, VECTORS_IN_FLIGHT) {
        const int index = first + i;
        issue_residual_load(residual[i].word, p, first_row + walk.row(index), n0 + walk.column(index),
            RESIDUAL && walk.exists(index));
    }
}

// Finishes the rows in a warp's staging area; the first residuals are in flight.
DEVICE void epilogue_rows_vectorized(
    const result* staging, ResidualVectors& residual, const KernelArgs& p, int first_row, int n0)
{
    static_assert(PACKS % 2 == 0, "16 rows are a whole number of lines for each lane");
    const LaneWalk walk = lane_walk(p, first_row, n0);
    result* out = static_cast<result*>(p.out) + (size_t)first_row * p.out_pitch + n0;
#if YOLO
    const unsigned own_bits = yolo_mask_at(n0 + walk.column(0), p);
#endif
#pragma unroll 1
    for (int first = 0; first < VECTORS_PER_LANE; first += VECTORS_IN_FLIGHT) {
        UNROLL(i, VECTORS_IN_FLIGHT) {
            const int index = first + i;
            if (!walk.exists(index)) continue;
            const int row = walk.row(index);
            const int column = walk.column(index);
            ResultVector x = *reinterpret_cast<const ResultVector*>(staging + row * ROW_PITCH + column);
            finish_vector(x, residual[i], RESIDUAL);
#if YOLO
            yolo_vector(x, p, LaneWalk::KEEPS_COLUMN ? own_bits : yolo_mask_at(n0 + column, p));
#endif
            if constexpr (REPEATED > 1) {
                store_upsampled(p, first_row + row, n0 + column, x);
            } else {
                store_vector(out + row * p.out_pitch + column, x.word);
            }
        }
        if (first + VECTORS_IN_FLIGHT < VECTORS_PER_LANE) {
            issue_residual_loads(residual, p, first_row, n0, first + VECTORS_IN_FLIGHT);
        }
    }
}

// The same for any number of filters and any alignment, one value at a time. Neighbouring lanes write
// neighbouring values, and each keeps its filter from row to row.
DEVICE void epilogue_rows_scalar(const result* staging, const KernelArgs& p, int first_row, int n0)
{
    const int at_once = 8;
    const int rows = min(p.pixels - first_row, 16);
#pragma unroll 1
    for (int column = threadIdx.x % 32; column < BN; column += 32) {
        const int n = n0 + column;
        if (n >= p.filters) break;
#if YOLO
        const unsigned bits = yolo_mask<1>(n % p.entries, p.entries, p.box);
#endif
#pragma unroll 1
        for (int first = 0; first < rows; first += at_once) {
            const size_t m = first_row + first;
            const result* more = p.residual + m * p.residual_pitch + n;
            result* to = static_cast<result*>(p.out) + m * p.out_pitch + n;
            float x[at_once];
            UNROLL(i, at_once) {
                x[i] = to_float(staging[(first + i) * ROW_PITCH + column]);
                if (RESIDUAL && first + i < rows) {
                    x[i] += to_float(__ldcg(more + i * p.residual_pitch));
                }
            }
            activate_all(LAST, x);
#if YOLO
            UNROLL(i, at_once) {
                if (first + i < rows) flag_non_finite(p.flag, x[i]);
            }
            apply_yolo<false>(x, bits, YOLO == RAW, p.scale_x_y);
#endif
            UNROLL(i, at_once) {
                if (first + i < rows) put(to + i * p.out_pitch, x[i]);
            }
        }
    }
}

// Runs the epilogue on a warp's 16 rows through its staging area. If is_issued, the first residuals are
// already in flight.
DEVICE void epilogue_rows(float (&sum)[BN / 2], result* staging, ResidualVectors& residual, bool is_issued,
    const float* bias, const KernelArgs& p, int first_row, int n0)
{
    add_bias(sum, bias);
    activate_all(KIND, sum);
    stage_rows(staging, sum);
    __syncwarp();
    if constexpr (WHOLE) {
        if (!is_issued) issue_residual_loads(residual, p, first_row, n0, 0);
        epilogue_rows_vectorized(staging, residual, p, first_row, n0);
    } else {
        epilogue_rows_scalar(staging, p, first_row, n0);
    }
    __syncwarp();
}
