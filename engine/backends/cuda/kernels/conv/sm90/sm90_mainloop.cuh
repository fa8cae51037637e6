// The mainloop of the sm90 convolutions: arguments, tile coordinates, TMA loads and the wgmma of a
// slice.
#pragma once
#define ELEMENT_BYTES (MODE == 4 ? 1 : MODE == 0 ? 2 : 4)
#define ROW_BYTES (BK * ELEMENT_BYTES)  // 128, 64 or 32: one swizzled row of a slice
#include "fast_divide.cuh"
#include "sm90_ptx.cuh"
#include "quad_transpose.cuh"
#include "wgmma.cuh"

#define STEP_BYTES 32  // the k of one wgmma: 32 integers, 16 halves or 8 floats
#define A_BYTES (BM * ROW_BYTES)
#define B_BYTES (BN * ROW_BYTES)
#define WEIGHT_BYTES ((MODE == 2 ? 2 : 1) * B_BYTES)  // high parts, then low parts
#define STAGE_BYTES (A_BYTES + WEIGHT_BYTES)
#define M_BLOCKS (BM / 64 / CONSUMERS)  // blocks of 64 rows for each warpgroup
// Each filter has a bias, which follows the scale of its sums if those are integers.
#define COLUMN_FLOATS (MODE == 4 ? 2 : 1)
#define BIAS_FLOATS (COLUMN_FLOATS * BN)
#define BIASES_PER_THREAD ((BIAS_FLOATS + 128 * CONSUMERS - 1) / (128 * CONSUMERS))

struct KernelArgs {
    const float* bias;  // COLUMN_FLOATS for each filter
    const result* residual;
    void* out;
    result* kept;  // the input of the pool, if it is stored as well
    unsigned* flag;
    const unsigned char* weight;
    const unsigned char* next;        // weights of a later layer, to prefetch
    unsigned next_bytes, next_share;  // of all weights; of a thread block
    int pixels, filters;              // M, N
    int out_h, out_w;
    int kernel_x;
    int slices, steps;  // of BK channels: per tap; in all
    int stride_y, stride_x;  // from the window of one pixel of the output to the next
    int top, left, dilation_y, dilation_x;
    int out_pitch, residual_pitch, kept_pitch;
    int tiles_n, is_aligned;
    int inbox;            // its offset from the pipeline's buffers, in bytes
    int is_residual_far;  // too large to be in the L2 still
    int entries, box;     // of an anchor, if the output of [yolo] is computed
    float scale_x_y;
    float residual_scale, out_factor;  // int8: scale of residual, inverse scale of result
    Divisor by_tiles_n, by_out_h, by_out_w, by_slices, by_kernel_x;
};

// The coordinates of a tile; consecutive indices are tiles of neighbouring filters.
struct Tile {
    int down, across;
};

DEVICE Tile tile_at(const KernelArgs& p, int index)
{
    const int down = divide(index, p.by_tiles_n);
    return {down, index - down * p.tiles_n};
}

// ---- producer

struct Origin {  // the first input pixel of a tile's windows
    int x, y, row;
};

DEVICE Origin window_origin(const KernelArgs& p, int m)
{
    const int line = divide(m, p.by_out_w);
    const int row = divide(line, p.by_out_h);
    return {(m - line * p.out_w) * p.stride_x - p.left, (line - row * p.out_h) * p.stride_y - p.top, row};
}

// A slice of k: its first channel and its tap. The single producer thread advances it without a division.
struct Slice {
    int channel, tap_x, tap_y;
};

DEVICE Slice slice_at(const KernelArgs& p, int k)
{
    const int tap = divide(k, p.by_slices);
    const int tap_y = divide(tap, p.by_kernel_x);
    return {(k - tap * p.slices) * BK, tap - tap_y * p.kernel_x, tap_y};
}

DEVICE void advance(Slice& slice, const KernelArgs& p)
{
    slice.channel += BK;
    if (slice.channel < p.slices * BK) return;
    slice.channel = 0;
    if (++slice.tap_x < p.kernel_x) return;
    slice.tap_x = 0;
    ++slice.tap_y;
}

DEVICE void load_weights(unsigned stage, unsigned full, const unsigned char* weights)
{
    mbarrier_expect_bytes(full, STAGE_BYTES);
    bulk_load(stage + A_BYTES, weights, WEIGHT_BYTES, full);
}

DEVICE void load_input(unsigned stage, unsigned full, const TensorMap* map, const KernelArgs& p,
    const Origin& tile, const Slice& slice)
{
    UNROLL(cell, CELLS) {
        tma_load_im2col(stage + cell * (A_BYTES / CELLS), map, full, slice.channel, tile.x, tile.y, tile.row,
            slice.tap_x * p.dilation_x + cell % 2 * p.stride_x / 2,
            slice.tap_y * p.dilation_y + cell / 2 * p.stride_y / 2);
    }
}

// ---- consumers

template <int N, int M> DEVICE void clear(Sum (&sum)[N][M])
{
    UNROLL(i, N * M) sum[i / M][i % M] = 0;
}

// Keeps the compiler from moving reads of accumulators (conversions of integers, say) before the
// wait for them: it would serialize the wgmmas.
template <int N, int M> DEVICE void keep_after(Sum (&sum)[N][M])
{
    UNROLL(i, N * M) sum[i / M][i % M] = opaque(sum[i / M][i % M]);
}

#if MODE != 2
// Multiplies one slice: sum += 64 rows of input at `a` times BN rows of weights at `b`.
DEVICE void wgmma_slice(Sum (&sum)[BN / 2], unsigned a, unsigned b)
{
    const auto rows = matrix_descriptor(a);
    const auto columns = matrix_descriptor(b);
#pragma unroll
    for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
        wgmma(sum, advance_descriptor(rows, step), advance_descriptor(columns, step));
    }
}
#else
DEVICE void wgmma_slice(float (&sum)[BN / 2], unsigned a, unsigned b)
{
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const unsigned chunks = ROW_BYTES / 16;
    unsigned high[ROW_BYTES / STEP_BYTES][4], low[ROW_BYTES / STEP_BYTES][4];
    UNROLL(step, ROW_BYTES / STEP_BYTES) {
        UNROLL(i, 4) {
            unsigned at = a + (row + i % 2 * 8) * ROW_BYTES + (step * 2 + i / 2) * 16;
            at ^= (at >> 7 & (chunks - 1)) << 4;  // TMA's swizzle
            const float x = read_shared(at + lane % 4 * 4);
            high[step][i] = round_to_tf32(x);
            low[step][i] = round_to_tf32(x - __uint_as_float(high[step][i]));
        }
    }
    float part[BN / 2];
    wgmma_fence();
    UNROLL(step, ROW_BYTES / STEP_BYTES) {
        const unsigned at = b + step * STEP_BYTES;
        if (step == 0) {
            wgmma_registers_zeroed(part, low[step], matrix_descriptor(at));
        } else {
            wgmma_registers(part, low[step], matrix_descriptor(at));
        }
        wgmma_registers(part, high[step], matrix_descriptor(at + B_BYTES));
        wgmma_registers(part, high[step], matrix_descriptor(at));
    }
    wgmma_commit();
    wgmma_wait<0>();
    UNROLL(j, BN / 2) sum[j] += part[j];
}
#endif
