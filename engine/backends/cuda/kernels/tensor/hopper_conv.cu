// hopper_conv: convolution as an implicit GEMM on Hopper's own units: the bulk tensor copy engine
// unfolds windows (im2col) straight into shared memory and wgmma multiplies; nothing is unfolded
// in global memory.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, k = (tap, channel), W is (filters, taps, channels)
//
// A producer thread keeps a ring of STAGES slices, BM x BK of input and BN x BK of weights;
// CONSUMERS warpgroups before it multiply BM / CONSUMERS rows each. A cluster of `split` blocks shares the
// sum over k: each adds up a part, then they reduce through each other's shared memory, always in
// the order of their ranks, so that a result never changes from run to run.
// Weights do not depend on the layer before, so they are fetched before the wait for it.
// Only the common activations: each is inlined over all of a thread's values.
//
// Chosen at compile time: BM BN BK STAGES CONSUMERS BLOCKS (resident on a multiprocessor) and
//   OUT_BYTES of a result
//   MODE 0  halves in, half products
//   MODE 1  floats in, tf32 products; the copy engine and the host round to nearest
//   MODE 2  floats in, each factor the sum of two tf32, three products; the sums of a slice are added
//           up outside the matrix unit, which drops bits that a float would keep
#include "hopper_tile.cuh"

#define A_BYTES (BM * ROW_BYTES)
#define STAGE_BYTES (A_BYTES + WEIGHT_COPIES * B_BYTES)
#define SUM_PITCH (BN + 8)  // of floats, for a cluster

// The consumers of all blocks of a cluster add up the sums in each other's shared memory.
__device__ __forceinline__ void finish_cluster(unsigned sums, const Problem& p, int m0, int n0,
                                               int rank)
{
    const int threads = 128 * CONSUMERS;
    for (int item = rank * threads + threadIdx.x; item < BM * BN / 8; item += p.split * threads) {
        const int m = m0 + item / (BN / 8);
        const int n = n0 + item % (BN / 8) * 8;
        if (m >= p.pixels || n >= p.filters) continue;
        const int count = min(p.filters - n, 8);
        const unsigned at = sums + ((m - m0) * SUM_PITCH + n - n0) * 4;
        float x[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) x[c] = c < count ? p.bias[n + c] : 0.f;
        for (int r = 0; r < p.split; ++r) {
            const unsigned from = neighbour(at, r);
            const float4 low = read_neighbour(from);
            const float4 high = read_neighbour(from + 16);
            x[0] += low.x, x[1] += low.y, x[2] += low.z, x[3] += low.w;
            x[4] += high.x, x[5] += high.y, x[6] += high.z, x[7] += high.w;
        }
        activate_common(p.kind, x);
        if (p.residual) {
            const result* from = p.residual + (size_t)m * p.residual_pitch + n;
            if (count == 8 && p.is_aligned) {
#pragma unroll
                for (int c = 0; c < 8; c += OUT_PACK) {
                    const Pack<OUT_PACK> pack = load<OUT_PACK>(from + c);
#pragma unroll
                    for (int k = 0; k < OUT_PACK; ++k) x[c + k] += pack.v[k];
                }
            } else {
                add_residual(x, from, count);
            }
        }
        finish(x, p, m, n, count);
    }
}

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    hopper_conv(const __grid_constant__ TensorMap input, const __grid_constant__ TensorMap weight,
                const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const bool is_producer = threadIdx.x >= 128 * CONSUMERS;
    const int lane = threadIdx.x % 32;
    const int tile = blockIdx.x / p.split;
    const int rank = blockIdx.x - tile * p.split;
    const int m0 = tile / p.tiles_n * BM;
    const int n0 = tile % p.tiles_n * BN;
    const int first = rank * p.steps / p.split;
    const int end = (rank + 1) * p.steps / p.split;

    if (threadIdx.x == 128 * CONSUMERS) {
        prefetch_map(&input);
        prefetch_map(&weight);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, CONSUMERS);
        }
        barrier_fence();
    }
    __syncthreads();
    dependents_may_start();

    if (is_producer) {
        if (threadIdx.x == 128 * CONSUMERS) {
            const int x0 = m0 % p.out_w * p.stride_x - p.left;
            const int y0 = m0 / p.out_w % p.out_h * p.stride_y - p.top;
            const int row = m0 / p.out_w / p.out_h;
            auto fetch_weights = [&](int k, int stage) {
                const unsigned to = base + stage * STAGE_BYTES + A_BYTES;
                const int tap = k / p.slices;
                // A last slice reaches into the next tap's weights; its inputs there are zero.
                const int column = tap * p.channels + (k - tap * p.slices) * BK;
                barrier_expect(full + 8 * stage, STAGE_BYTES);
                copy_tile(to, &weight, full + 8 * stage, column, n0);
                if (MODE == 2) {
                    const int low_parts = p.tiles_n * BN;
                    copy_tile(to + B_BYTES, &weight, full + 8 * stage, column, low_parts + n0);
                }
            };
            auto fetch_input = [&](int k, int stage) {
                const int tap = k / p.slices;
                const int tap_y = tap / p.taps_x;
                const int tap_x = tap - tap_y * p.taps_x;
                copy_windows(base + stage * STAGE_BYTES, &input, full + 8 * stage,
                             (k - tap * p.slices) * BK, x0, y0, row, tap_x * p.dilation_x,
                             tap_y * p.dilation_y);
            };
            const int ahead = min(end - first, STAGES);
            for (int s = 0; s < ahead; ++s) fetch_weights(first + s, s);
            wait_for_previous_kernel();
            for (int s = 0; s < ahead; ++s) fetch_input(first + s, s);
            int stage = 0;
            int phase = 0;
            for (int k = first + ahead; k < end; ++k) {
                barrier_wait(empty + 8 * stage, phase);
                fetch_weights(k, stage);
                fetch_input(k, stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        const int group = threadIdx.x / 128;
        const int warp = threadIdx.x / 32 % 4;
        float sum[BLOCKS_OF_ROWS][BN / 2];
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
        }
        int stage = 0;
        int phase = 0;
        int previous = -1;
        for (int k = first; k < end; ++k) {
            barrier_wait(full + 8 * stage, phase);
            const unsigned a = base + stage * STAGE_BYTES;
            if (MODE < 2) products_begin();
#pragma unroll
            for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                multiply_slice(sum[i], a + (group * BLOCKS_OF_ROWS + i) * 64 * ROW_BYTES,
                               a + A_BYTES);
            }
            if (MODE < 2) {
                products_commit();
                products_wait<1>();  // the slice before this one has been read
                if (previous >= 0 && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * previous);
                previous = stage;
            } else if (threadIdx.x % 128 == 0) {
                barrier_arrive(empty + 8 * stage);
            }
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
        products_wait<0>();
        wait_for_previous_kernel();  // the residual is another kernel's work
        consumers_barrier(128 * CONSUMERS);  // the ring is read: its memory takes the sums
        unsigned char* ring = memory + (base - shared_address(memory));
        if (p.split == 1) {
            result* corner = reinterpret_cast<result*>(ring) + threadIdx.x / 32 * 16 * ROW_PITCH;
#pragma unroll
            for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                const int first_row = m0 + (group * BLOCKS_OF_ROWS + i) * 64 + warp * 16;
                finish_rows(sum[i], corner, p, n0, [&](int row) {
                    const int m = first_row + row;
                    return m < p.pixels ? m : -1;
                });
            }
            return;
        }
        float* sums = reinterpret_cast<float*>(ring);
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
            const int m = (group * BLOCKS_OF_ROWS + i) * 64 + warp * 16 + lane / 4;
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                float* to = sums + m * SUM_PITCH + j * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(to) = make_float2(sum[i][j * 4], sum[i][j * 4 + 1]);
                *reinterpret_cast<float2*>(to + 8 * SUM_PITCH) =
                    make_float2(sum[i][j * 4 + 2], sum[i][j * 4 + 3]);
            }
        }
    }

    if (p.split == 1) return;
    cluster_barrier();
    if (!is_producer) finish_cluster(base, p, m0, n0, rank);
    cluster_barrier();  // nobody leaves while a neighbour reads its sums
}
