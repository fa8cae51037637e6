// hopper_patches: convolution of stride 1 for large maps of few channels. What the windows of a block of
// pixels reach comes once, a patch, where im2col brings a pixel once for each of its taps; and the
// weights of all taps stay in shared memory.
//
// A warpgroup takes blocks of 8 x 8 pixels: 64 rows of a product, eight neighbours and eight times as
// many below them, which lie PATCH_W rows of shared memory apart. A tap begins some rows further on.
//
// Blocks of threads stay. TEAMS of a warpgroup each take turns, so that one multiplies while another
// finishes; each has STAGES patches on their way.
//
// Chosen at compile time: TEAMS, TAPS_Y TAPS_X, SLICES (of BK channels), MODE 0 or 1, BM 64, CONSUMERS 1,
// and the rest as in hopper_conv.
#include "hopper_teams.cuh"

#define SIDE 8
#define TAPS (TAPS_Y * TAPS_X)
#define PATCH_W (SIDE + TAPS_X - 1)
#define PATCH_H (SIDE + TAPS_Y - 1)
#define PATCH_BYTES (PATCH_W * PATCH_H * ROW_BYTES)
#define PLACE_BYTES ((PATCH_BYTES + 1023) / 1024 * 1024)

// Blocks of pixels of all rows, and where one begins.
struct Blocks {
    int across, down, count;
};

struct Corner {
    int x, y, row;
};

__device__ __forceinline__ Blocks blocks_of(const Problem& p)
{
    const int across = (p.out_w + SIDE - 1) / SIDE;
    const int down = (p.out_h + SIDE - 1) / SIDE;
    return {across, down, p.pixels / (p.out_h * p.out_w) * down * across};
}

__device__ __forceinline__ Corner corner_of(const Blocks& blocks, int block)
{
    const int line = block / blocks.across;
    return {(block - line * blocks.across) * SIDE, line % blocks.down * SIDE, line / blocks.down};
}

// Of a block's pixel, or negative where the map has none.
__device__ __forceinline__ int pixel_of(const Problem& p, const Corner& corner, int row)
{
    const int x = corner.x + row % SIDE;
    const int y = corner.y + row / SIDE;
    return x < p.out_w && y < p.out_h ? (corner.row * p.out_h + y) * p.out_w + x : -1;
}

// A slice of channels: every tap's rows of the patch times its weights, added to sum.
__device__ __forceinline__ void multiply_patch(float (&sum)[BN / 2], unsigned patch,
                                               unsigned weights)
{
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        const unsigned a = patch + (tap / TAPS_X * PATCH_W + tap % TAPS_X) * ROW_BYTES;
        const unsigned b = weights + tap * SLICES * B_BYTES;
#pragma unroll
        for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
            wgmma(sum, matrix_at(a + step, PATCH_W), matrix_at(b + step));
        }
    }
}

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    hopper_patches(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned weights = (shared_address(memory) + 1023) & ~1023u;
    const unsigned patches = weights + TAPS * SLICES * B_BYTES;
    const unsigned full = patches + TEAMS * STAGES * PLACE_BYTES;
    const unsigned empty = full + 8 * TEAMS * STAGES;
    const unsigned ready = empty + 8 * TEAMS * STAGES;
    float* bias = reinterpret_cast<float*>(memory + (ready + 8 - shared_address(memory)));

    // A block of threads keeps its filters.
    const int tile_n = blockIdx.x % p.tiles_n;
    const int first = blockIdx.x / p.tiles_n;
    const int stride = gridDim.x / p.tiles_n;
    const int n0 = tile_n * BN;
    const Blocks blocks = blocks_of(p);

    if (threadIdx.x == ALL_CONSUMERS) prefetch_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < TEAMS * STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 4);
        }
        barrier_init(ready, 1);
        barrier_fence();
    }
    for (int c = threadIdx.x; c < BN; c += ALL_CONSUMERS + 128) {
        bias[c] = n0 + c < p.filters ? p.bias[n0 + c] : 0.f;
    }
    __syncthreads();

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        if (threadIdx.x == ALL_CONSUMERS) {
            const int bytes = TAPS * SLICES * B_BYTES;
            barrier_expect(ready, bytes);
            for (int at = 0; at < bytes; at += B_BYTES) {
                copy_bytes(weights + at, p.weight + (size_t)tile_n * bytes + at, B_BYTES, ready);
            }
            wait_for_previous_kernel();
            int team = 0;
            int asked = 0;  // slices of the blocks that a team had before
            for (int block = first; block < blocks.count; block += stride) {
                const Corner corner = corner_of(blocks, block);
#pragma unroll 1
                for (int slice = 0; slice < SLICES; ++slice) {
                    const int stage = team * STAGES + (asked + slice) % STAGES;
                    const int lap = (asked + slice) / STAGES;
                    // Of the first lap every place is free: the phase before counts as done.
                    barrier_wait(empty + 8 * stage, (lap & 1) ^ 1);
                    barrier_expect(full + 8 * stage, PATCH_BYTES);
                    copy_box(patches + stage * PLACE_BYTES, &input, full + 8 * stage, slice * BK,
                             corner.x - p.left, corner.y - p.top, corner.row);
                }
                if (++team == TEAMS) {
                    team = 0;
                    asked += SLICES;
                }
            }
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
    } else {
        more_registers<CONSUMER_SHARE>();
        const int team = threadIdx.x / 128;
        const int warp = threadIdx.x / 32 % 4;
        if (threadIdx.x == 0) call_next_weights(p);
        barrier_wait(ready, 0);
        int taken = 0;
        for (int block = first + team * stride; block < blocks.count; block += TEAMS * stride) {
            const Corner corner = corner_of(blocks, block);
            if (threadIdx.x % 128 < SIDE * SIDE) {
                const int m = pixel_of(p, corner, threadIdx.x % 128);
                if (m >= 0) call_residual_of(p, m, n0);
            }
            float sum[BN / 2];
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[j] = 0.f;
#pragma unroll 1
            for (int slice = 0; slice < SLICES; ++slice, ++taken) {
                const int stage = team * STAGES + taken % STAGES;
                barrier_wait(full + 8 * stage, taken / STAGES & 1);
                products_begin();
                multiply_patch(sum, patches + stage * PLACE_BYTES, weights + slice * B_BYTES);
                products_commit();
                products_wait<0>();
                if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
            }
            finish_from_registers(sum, bias, p, n0, [&](int row) {
                return pixel_of(p, corner, warp * 16 + row);
            });
            __syncwarp();
        }
    }
}
