// Shared by kernels that fuse two convolutions, the second of which is 3x3: the feature map between
// them stays in shared memory, BETWEEN_BYTES per pixel. Filters are the rows of the second GEMM.
#pragma once
#include "sm90_patches.cuh"
#include "sm90_epilogue_swapped.cuh"

#define BETWEEN_BYTES (2 * BETWEEN)            // per pixel of the map
#define CHUNKS (BETWEEN_BYTES / 16)            // per pixel
#define SECOND_TAP_BYTES (BM * BETWEEN_BYTES)  // weights of a tap
#define SECOND_BYTES (9 * SECOND_TAP_BYTES)

// The swizzled address of a 16-byte chunk of a pixel of the map, in a patch aligned to 512 bytes.
DEVICE unsigned chunk_at(unsigned patch, int pixel, int chunk)
{
    const unsigned at = patch + pixel * BETWEEN_BYTES + chunk * 16;
    return at ^ (at >> 7 & (CHUNKS - 1)) << 4;
}

// One thread: loads all weights into shared memory, those of the first convolution after those of the
// second.
DEVICE void load_all_weights(
    unsigned weights, unsigned ready, const KernelArgs& p, const unsigned char* first, int first_bytes)
{
    mbarrier_expect_bytes(ready, SECOND_BYTES + first_bytes);
    bulk_load(weights, p.weight, SECOND_BYTES, ready);
    bulk_load(weights + SECOND_BYTES, first, first_bytes, ready);
    prefetch_next_weights(p);
}

// The biases of a lane's two filters out of each eight.
DEVICE void load_first_biases(float (&bias)[BETWEEN / 4], const float* from)
{
    UNROLL(i, BETWEEN / 4) bias[i] = from[i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2];
}

// Multiplies every tap's weights by its pixels, which begin from_of(tap) bytes after `map`. There
// are eight to a line, and lines are `width` pixels apart.
template <typename From>
DEVICE void multiply_map(float (&sum)[BN / 2], unsigned weights, unsigned map, int width, From from_of)
{
    const auto a = matrix_descriptor<BETWEEN_BYTES>(weights);
    const auto b = matrix_descriptor<BETWEEN_BYTES>(map, width);
    UNROLL(tap, 9) {
#pragma unroll
        for (int step = 0; step < BETWEEN_BYTES; step += STEP_BYTES) {
            wgmma(sum, advance_descriptor(a, tap * SECOND_TAP_BYTES + step),
                advance_descriptor(b, from_of(tap) + step));
        }
    }
}

// Finishes and stores a lane's two filters of its pixels; bounds are checked unless IS_INSIDE.
// residual_of(i) is the residual of the i-th pixel.
template <bool IS_INSIDE, bool HAS_RESIDUAL, typename ResidualOf> DEVICE void store_block(
    const float (&sum)[BN / 2], const KernelArgs& p, const TileOrigin& origin, int n, ResidualOf residual_of)
{
    const int x = origin.x + threadIdx.x % 4 * 2;
    const size_t m = (size_t)(origin.row * p.out_h + origin.y) * p.out_w + x;
    result* to[2];
    to[0] = static_cast<result*>(p.out) + m * p.out_pitch + n;
    to[1] = to[0] + p.out_pitch;
    const size_t step = (size_t)p.out_w * p.out_pitch;
    UNROLL(down, HIGH) {
        if (!IS_INSIDE && origin.y + down >= p.out_h) break;
        UNROLL(right, 2) {
            const float pair[2] = {sum[down * 4 + right], sum[down * 4 + 2 + right]};
            LaneVector vector;
            if constexpr (OUT_BYTES == 1) {
                static_assert(!HAS_RESIDUAL, "residuals are of halves");
                vector.word[0] = pack_bytes(pair[0], pair[1], 0.f, 0.f, p.out_factor);
            } else {
                vector = pack_vector(pair);
                finish_vector(vector, residual_of(down * 2 + right), HAS_RESIDUAL);
            }
            if (IS_INSIDE || (x + right < p.out_w && n < p.filters)) store_vector(to[right], vector.word);
            to[right] += step;
        }
    }
}
