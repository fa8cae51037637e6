// Epilogue of integer sums from registers: scale, bias, activations, residual, and results of any
// type.
#pragma once
#include "sm90_epilogue.cuh"

#if MODE == 4
// The host orders filters within every COLUMNS_AT_ONCE columns so that a lane's columns are neighbours
// and it stores them without shuffles.
#define COLUMNS_AT_ONCE (BN % 64 ? 32 : 64)
#define LANE_COLUMNS (COLUMNS_AT_ONCE / 4)

// Runs the epilogue on a warp's 16 rows. pixel_of(row) is the pixel of a row; it is negative past the end.
template <typename PixelOf> DEVICE void epilogue_from_registers(
    const Sum (&sum)[BN / 2], const float* bias, const KernelArgs& p, int n0, PixelOf pixel_of)
{
    static_assert(RESIDUAL != QUARTERS, "a residual is read like the result");
    typedef Bits<LANE_COLUMNS * OUT_BYTES> Vector;
    const int lane = threadIdx.x % 32;
    const int first = n0 + lane % 4 * LANE_COLUMNS;
    const int pixel[2] = {pixel_of(lane / 4), pixel_of(lane / 4 + 8)};
    Vector residual[BN / COLUMNS_AT_ONCE][2];
    auto exists = [&](int j, int low) {
        return pixel[low] >= 0 && first + j * COLUMNS_AT_ONCE < p.filters;
    };
    UNROLL(low, 2) {
        const result* from = p.residual + (size_t)pixel[low] * p.residual_pitch + first;
        UNROLL(j, BN / COLUMNS_AT_ONCE) {
            load_words(residual[j][low].word, from + j * COLUMNS_AT_ONCE, RESIDUAL && exists(j, low));
        }
    }
    UNROLL(j, BN / COLUMNS_AT_ONCE) {
        const Sum* own = sum + j * COLUMNS_AT_ONCE / 2;
        float x[2][LANE_COLUMNS];
        UNROLL(i, LANE_COLUMNS / 2) {
            const int column = j * COLUMNS_AT_ONCE + i * 8 + lane % 4 * 2;
            const float4 factors = *reinterpret_cast<const float4*>(bias + column * 2);
            UNROLL(low, 2) {
                x[low][2 * i] = fmaf(own[i * 4 + low * 2], factors.x, factors.y);
                x[low][2 * i + 1] = fmaf(own[i * 4 + low * 2 + 1], factors.z, factors.w);
            }
        }
        UNROLL(low, 2) {
            activate_all(KIND, x[low]);
#if YOLO
            const unsigned entry = (unsigned)(first + j * COLUMNS_AT_ONCE) % (unsigned)p.entries;
            flag_non_finite(p.flag, x[low]);
            apply_yolo<true>(
                x[low], yolo_mask<LANE_COLUMNS>(entry, p.entries, p.box), YOLO == RAW, p.scale_x_y);
#endif
            const Vector vector = finished_vector(x[low], residual[j][low], p);
            if (!exists(j, low)) continue;
            const int n = first + j * COLUMNS_AT_ONCE;
            if constexpr (REPEATED > 1) {
                store_upsampled(p, pixel[low], n, vector);
            } else {
                store_words(static_cast<result*>(p.out) + (size_t)pixel[low] * p.out_pitch + n, vector.word);
            }
        }
    }
}
#endif
