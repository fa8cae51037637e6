// hopper_columns: hopper_patches turned round: filters are the rows of a product, pixels its columns. A
// wgmma of 64 rows reads as much of its rows whatever its columns are, and with few of these the shared
// memory cannot keep up: 64 filters by 256 pixels read two thirds of what four products of 64 pixels by
// 64 filters do.
//
// A warpgroup takes blocks of 8 pixels by BN / 8 lines. A lane has two filters of each of its pixels; by
// the order in which the host puts filters they are neighbours, and eight lanes store a whole sector.
//
// Chosen at compile time: BM 64 (filters), BN (pixels), STRIDE 1 or 2, and the rest as in hopper_patches.
#define WIDE 8
#define HIGH (BN / WIDE)
#define TAP_BYTES A_BYTES
#include "hopper_blocks.cuh"

#define AT_ONCE 8  // lines whose residuals are asked for together

typedef Raw<2, result> Pair;

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
    if (!WHOLE || !p.is_residual_far) return;
    const unsigned bytes = min(BM, p.filters - n0) * OUT_BYTES;
    for (int pixel = threadIdx.x % 128; pixel < BN; pixel += 128) {
        const int x = corner.x + pixel % WIDE;
        const int y = corner.y + pixel / WIDE;
        if (x >= p.out_w || y >= p.out_h) continue;
        const int m = (corner.row * p.out_h + y) * p.out_w + x;
        call_bytes(p.residual + (size_t)m * p.residual_pitch + n0, bytes);
    }
}

__device__ __forceinline__ void finish_pair(float (&x)[2], const Pair& residual, bool has_residual)
{
#pragma unroll
    for (int c = 0; c < 2; ++c) x[c] += has_residual ? to_float(residual.v[c]) : 0.f;
    activate_all(LAST, x);
}

// Two filters from n on, of which `count` exist, of a lane's pixels: neighbours in each of its lines.
__device__ __forceinline__ void finish_columns(float (&sum)[BN / 2], const Problem& p,
                                               const Corner& corner, int n, int count)
{
    const int x = corner.x + threadIdx.x % 4 * 2;
    const int first = (corner.row * p.out_h + corner.y) * p.out_w + x;
    const int lines = count > 0 ? min(p.out_h - corner.y, HIGH) : 0;
    activate_all(KIND, sum);
#pragma unroll
    for (int begin = 0; begin < HIGH; begin += AT_ONCE) {
        Pair residual[AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; ++i) {
            const int y = begin + i / 2;
            if (!p.residual || y >= lines || x + i % 2 >= p.out_w) continue;
            const int m = first + y * p.out_w + i % 2;
            const result* from = p.residual + (size_t)m * p.residual_pitch + n;
            if (WHOLE) {
                residual[i / 2][i % 2] = ask_residual<2>(from);
            } else {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    if (c < count) residual[i / 2][i % 2].v[c] = from[c];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; ++i) {
            const int y = begin + i / 2;
            if (y >= lines || x + i % 2 >= p.out_w) continue;
            const int m = first + y * p.out_w + i % 2;
            float pair[2] = {sum[y * 4 + i % 2], sum[y * 4 + 2 + i % 2]};
            finish_pair(pair, residual[i / 2][i % 2], p.residual);
            result* to = static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n;
            if (WHOLE) {
                store<2>(to, Pack<2>{pair[0], pair[1]});
            } else {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    if (c < count) put(to + c, pair[c]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    hopper_columns(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
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
        const int n = tile_n * BM + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 * 2;
        const int count = min(p.filters - n, 2);
        const float start[2] = {count > 0 ? p.bias[n] : 0.f, count > 1 ? p.bias[n + 1] : 0.f};
        if (threadIdx.x == 0) call_next_weights(p);
        barrier_wait(room.ready, 0);
        int taken = 0;
        for (int block = first + team * stride; block < blocks.count; block += TEAMS * stride) {
            const Corner corner = corner_of(blocks, block);
            call_residual_of(p, corner, tile_n * BM);
            float sum[BN / 2];
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[j] = start[j / 2 % 2];
#pragma unroll 1
            for (int slice = 0; slice < SLICES; ++slice, ++taken) {
                const int stage = team * STAGES + taken % STAGES;
                barrier_wait(room.full + 8 * stage, taken / STAGES & 1);
                products_begin();
                multiply_patch(sum, room.weights + slice * A_BYTES,
                               room.patches + stage * PLACE_BYTES);
                products_commit();
                products_wait<0>();
                if (threadIdx.x % 32 == 0) barrier_arrive(room.empty + 8 * stage);
            }
            finish_columns(sum, p, corner, n, count);
            __syncwarp();
        }
    }
}
