// Epilogue for swapped operands: rows of the sums are filters, columns are pixels. The host orders
// filters so that the LANE_FILTERS filters that a lane has of each of its pixels are neighbours,
// and eight lanes store whole sectors.
#pragma once
#include "sm90_warpgroups.cuh"

#define LANE_FILTERS (2 * M_BLOCKS)
#define LANE_PIXELS (BN / 4)
#define RESIDUALS_IN_FLIGHT (16 / M_BLOCKS)  // pixels whose residuals are loaded together

typedef Bits<LANE_FILTERS * OUT_BYTES> LaneVector;
// The residuals of a lane's pixels, in registers from the load until they are added.
typedef LaneVector Residuals[LANE_PIXELS];

// A lane's first filter in a tile, for member `member` of a team.
DEVICE int lane_filter(int member)
{
    const int warp = member * 4 + threadIdx.x / 32 % 4;
    return (warp * 8 + threadIdx.x % 32 / 4) * LANE_FILTERS;
}

typedef float LaneBiases[LANE_FILTERS * COLUMN_FLOATS];

DEVICE void load_lane_biases(LaneBiases& bias, const KernelArgs& p, int n)
{
    UNROLL(c, LANE_FILTERS * COLUMN_FLOATS) {
        bias[c] = n + c / COLUMN_FLOATS < p.filters ? p.bias[n * COLUMN_FLOATS + c] : 0.f;
    }
}

// Integer sums start at zero, because their bias is added after they are scaled.
DEVICE void init_with_bias(const LaneBiases& bias, Sum (&sum)[M_BLOCKS][BN / 2])
{
    UNROLL(i, M_BLOCKS) {
        UNROLL(j, BN / 2) sum[i][j] = MODE == 4 ? 0 : bias[i * 2 + j / 2 % 2];
    }
}

// Issues the loads of `count` residuals from pixel `first` on. A lane has the filters from n on of
// LANE_PIXELS pixels, two of every eight columns; the i-th pixel, if exists(i), is m +
// pixel_offset(i).
template <typename Exists, typename PixelOffset> DEVICE void issue_residual_loads(Residuals& residual,
    const KernelArgs& p, int m, int n, int first, int count, Exists exists, PixelOffset pixel_offset)
{
    if (!WHOLE) return;
    const bool is_stored = RESIDUAL && n < p.filters;
    const int pitch = opaque(p.residual_pitch);
    const result* from = p.residual + (size_t)m * pitch + n;
    UNROLL(i, LANE_PIXELS) {
        if (i < first || i >= first + count) continue;
        issue_load(residual[i].word, from + pixel_offset(i) * pitch, is_stored && exists(i));
    }
}

// Finishes and stores a lane's pixels; the first residuals are in flight. The registers of stored
// sums then hold three times as many residuals, so that the latency of the L2 is paid twice, not
// for every part.
template <typename Exists, typename PixelOffset> DEVICE void epilogue_swapped(Sum (&sum)[M_BLOCKS][BN / 2],
    const LaneBiases& bias, Residuals& residual, const KernelArgs& p, int m, int n, Exists exists, PixelOffset pixel_offset)
{
    const int count = min(p.filters - n, LANE_FILTERS);
    auto is_stored = [&](int i) { return count > 0 && exists(i); };
    result* out = static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n;
#if MODE != 4
    UNROLL(i, M_BLOCKS) activate_all(KIND, sum[i]);
#endif
#pragma unroll
    for (int first = 0; first < LANE_PIXELS; first += RESIDUALS_IN_FLIGHT) {
        const int end = first + RESIDUALS_IN_FLIGHT < LANE_PIXELS ? first + RESIDUALS_IN_FLIGHT : LANE_PIXELS;
#pragma unroll
        for (int i = first; i < end; ++i) {
            float x[LANE_FILTERS];
            UNROLL(c, LANE_FILTERS) x[c] = sum[c / 2][i / 2 * 4 + c % 2 * 2 + i % 2];
#if MODE == 4
            scale_sums(x, bias);
            activate_all(KIND, x);
#endif
            if constexpr (WHOLE) {
                const LaneVector vector = finished_vector(x, residual[i], p);
                if (is_stored(i)) store_vector(out + pixel_offset(i) * p.out_pitch, vector.word);
            } else if (is_stored(i)) {
                if (RESIDUAL) {
                    add_residual(x, p.residual + (size_t)(m + pixel_offset(i)) * p.residual_pitch + n, count);
                }
                store_results(x, p, m + pixel_offset(i), n, count);
            }
        }
        issue_residual_loads(residual, p, m, n, 3 * first + RESIDUALS_IN_FLIGHT, 3 * RESIDUALS_IN_FLIGHT,
            exists, pixel_offset);
    }
}
