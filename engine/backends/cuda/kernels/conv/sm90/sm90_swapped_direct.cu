// sm90_swapped_direct: sm90_direct_tiles turned round: filters are the rows of a product, pixels its columns. A
// wgmma of 64 rows reads as much of its rows whatever its columns are, and with few of these the shared
// memory cannot keep up: 64 filters by 256 pixels read two thirds of what four products of 64 pixels by
// 64 filters do.
//
// A warpgroup takes blocks of 8 pixels by BN / 8 lines. A lane has two filters of each of its pixels; by
// the order in which the host puts filters they are neighbours, and eight lanes store a whole sector.
//
// Chosen at compile time: BM 64 (filters), BN (pixels), STRIDE 1 or 2, and the rest as in sm90_direct_tiles.
#define WIDE 8
#define HIGH (BN / WIDE)
#define TAP_BYTES A_BYTES
#include "sm90_patches.cuh"
#include "sm90_epilogue_swapped.cuh"

// A slice of channels: every tap's weights times its rows of the patch, added to sum.
__device__ __forceinline__ void multiply_patch(float (&sum)[BN / 2], unsigned weights,
                                               unsigned patch)
{
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        const unsigned a = weights + tap * SLICES * TAP_BYTES;
        const unsigned b = patch + place_of(tap);
#pragma unroll
        for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
            wgmma(sum, matrix_at(a + step), matrix_at(b + step, PATCH_W));
        }
    }
}

// The residual of a block is called into the L2 while the products are summed, each pixel's by one
// thread.
__device__ __forceinline__ void call_residual_of(const Problem& p, const Corner& corner, int n0)
{
    if (!p.is_residual_far) return;
    for (int pixel = threadIdx.x % 128; pixel < BN; pixel += 128) {
        const int x = corner.x + pixel % WIDE;
        const int y = corner.y + pixel / WIDE;
        if (x >= p.out_w || y >= p.out_h) continue;
        call_residual_of(p, (corner.row * p.out_h + y) * p.out_w + x, n0, BM);
    }
}

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    sm90_swapped_direct(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Room room = room_from(shared_address(memory));

    // A block of threads keeps its filters.
    const int tile_n = blockIdx.x % p.tiles_n;
    const int first = blockIdx.x / p.tiles_n;
    const int stride = gridDim.x / p.tiles_n;
    const Blocks blocks = blocks_of(p);

    prepare(room, &input);
    __syncthreads();

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        if (threadIdx.x == ALL_CONSUMERS) {
            fetch_all(room, &input, p, blocks, tile_n, first, stride);
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
    } else {
        more_registers<CONSUMER_SHARE>();
        const int team = threadIdx.x / 128;
        const int n = tile_n * BM + own_filter(0);
        float bias[OWN];
        read_biases(bias, p, n);
        if (threadIdx.x == 0) call_next_weights(p);
        barrier_wait(room.ready, 0);
        int taken = 0;
        for (int block = first + team * stride; block < blocks.count; block += TEAMS * stride) {
            const Corner corner = corner_of(blocks, block);
            call_residual_of(p, corner, tile_n * BM);
            float sum[1][BN / 2];
            begin_with(bias, sum);
            Residuals residual;
            const int x = corner.x + threadIdx.x % 4 * 2;
            const int m = (corner.row * p.out_h + corner.y) * p.out_w + x;
            auto ahead = [&](int i) { return i / 2 * p.out_w + i % 2; };
            auto exists = [&](int i) { return x + i % 2 < p.out_w && corner.y + i / 2 < p.out_h; };
#pragma unroll 1
            for (int slice = 0; slice < SLICES; ++slice, ++taken) {
                const int stage = team * STAGES + taken % STAGES;
                barrier_wait(room.full + 8 * stage, taken / STAGES & 1);
                products_begin();
                multiply_patch(sum[0], room.weights + slice * A_BYTES,
                               room.patches + stage * PLACE_BYTES);
                products_commit();
                if (slice == SLICES - 1) ask_some(residual, p, m, n, 0, ASKED, exists, ahead);
                products_wait<0>();
                if (threadIdx.x % 32 == 0) barrier_arrive(room.empty + 8 * stage);
            }
            finish_filters(sum, residual, p, m, n, exists, ahead);
            __syncwarp();
        }
    }
}
