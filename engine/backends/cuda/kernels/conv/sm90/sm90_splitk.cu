// sm90_splitk: convolution as an implicit GEMM on Hopper's own units: the bulk tensor copy engine
// unfolds windows (im2col) straight into shared memory and wgmma multiplies; nothing is unfolded
// in global memory.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, k = (tap, channel)
//
// The host leaves W as a ring's slots have it, slice after slice of each BN filters, swizzled and
// filled up with zeros: a slice is one copy. The engine takes over three cycles for each row of a
// map, which is what bounds most layers, and weights have none.
//
// A producer thread keeps a ring of STAGES slices, BM x BK of input and BN x BK of weights;
// CONSUMERS warpgroups before it multiply BM / CONSUMERS rows each. A cluster of `split` blocks shares the
// sum over k: each adds up a part, see sm90_cluster_reduce.cuh.
// Weights do not depend on the layer before, so they are fetched before the wait for it.
// On a small map a block finishes one tile and its code is cold: the activations, KIND and LAST, are
// chosen at compile time, and what can be asked for early is.
//
// Chosen at compile time: BM BN BK STAGES CONSUMERS BLOCKS (resident on a multiprocessor), KIND and
//   LAST, OUT_BYTES of a result
//   WHOLE   filters come in eights and lie on 16 bytes: what else would be needed is left out
//   YOLO what a detection layer makes of the results, see output_type.cuh
//   REPEATED of an upsampled map, of WHOLE alone
//   MODE 0  halves in, half products
//   MODE 1  floats in, tf32 products; the copy engine and the host round to nearest
//   MODE 2  floats in, each factor the sum of two tf32, three products; the sums of a slice are added
//           up outside the matrix unit, which drops bits that a float would keep
#include "sm90_cluster_reduce.cuh"
#include "sm90_epilogue_shared.cuh"

#define RING_BYTES (STAGES * STAGE_BYTES)
#define ROWS_BYTES (BM * ROW_PITCH * OUT_BYTES)  // take the place of the ring
// Barriers lie behind both: nothing else may write to them.
#define ROOM_BYTES (RING_BYTES > ROWS_BYTES ? RING_BYTES : ROWS_BYTES)
// Registers of a thread: each quarter of a multiprocessor has 512 for every lane of its warps. Where they
// suffice for sums, residuals and the rest, residuals are on their way while products are summed.
#define REGISTERS (512 / ((BLOCKS * (4 * CONSUMERS + 1) + 3) / 4) / 8 * 8)
#define ASKS_EARLY (WHOLE && BLOCKS_OF_ROWS * BN / 2 + LINES_AT_ONCE * 4 + 56 <= REGISTERS)

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    sm90_splitk(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = base + ROOM_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const bool is_producer = threadIdx.x >= 128 * CONSUMERS;
    const int index = divide(blockIdx.x, p.by_split);
    const int rank = blockIdx.x - index * p.split;
    const Tile tile = tile_at(p, index);
    const int m0 = tile.down * BM;
    const int n0 = tile.across * BN;
    const int first = divide(rank * p.steps, p.by_split);
    const int end = divide((rank + 1) * p.steps, p.by_split);
    const unsigned posted = empty + 8 * STAGES;
    float* bias = reinterpret_cast<float*>(memory + (posted + 16 - shared_address(memory)));
    const Inbox inbox = inbox_at(base, posted, p, rank, ROOM_BYTES);

    if (threadIdx.x == 128 * CONSUMERS) prefetch_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 4 * CONSUMERS);  // every warp reads for itself
        }
        if (p.split > 1) expect_sums(inbox, p);
        barrier_fence();
    }
    __syncthreads();
    if (p.split > 1 && inbox.is_apart) cluster_arrive();  // its barrier is there

    if (is_producer) {
        if (threadIdx.x == 128 * CONSUMERS) {
            const Origin origin = origin_of(p, m0);
            const unsigned char* weight = p.weight + (size_t)tile.across * p.steps * WEIGHT_BYTES;
            const int ahead = min(end - first, STAGES);
            Slice slice = slice_at(p, first);
            auto want_weights = [&](int k, int stage) {
                fetch_weights(base + stage * STAGE_BYTES, full + 8 * stage,
                              weight + (size_t)k * WEIGHT_BYTES);
            };
            auto want_input = [&](int stage) {
                fetch_input(base + stage * STAGE_BYTES, full + 8 * stage, &input, p, origin, slice);
                advance(slice, p);
            };
            for (int s = 0; s < ahead; ++s) want_weights(first + s, s);
            wait_for_previous_kernel();
            for (int s = 0; s < ahead; ++s) want_input(s);
            int stage = 0;
            int phase = 0;
            for (int k = first + ahead; k < end; ++k) {
                barrier_wait(empty + 8 * stage, phase);
                want_weights(k, stage);
                want_input(stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            cluster_wait();
            cluster_arrive();
        }
    } else {
        const int group = threadIdx.x / 128;
        const int warp = threadIdx.x / 32 % 4;
        const bool is_first = threadIdx.x % 32 == 0;
        float own[OWN_BIASES];
        ask_biases(own, p, n0, threadIdx.x);
        call_residual(p, m0, n0, BM, BN, threadIdx.x);
        if (threadIdx.x == 0) call_next_weights(p);
        float sum[BLOCKS_OF_ROWS][BN / 2];
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
        }
        const int first_row = group * BLOCKS_OF_ROWS * 64 + warp * 16;
        Lines residual;
        if (ASKS_EARLY && p.split == 1) {
            barrier_wait(full, 0);  // the kernel before has ended
            ask_lines(residual, p, m0 + first_row, n0, 0);
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
                if (previous >= 0 && is_first) barrier_arrive(empty + 8 * previous);
                previous = stage;
            } else if (is_first) {
                barrier_arrive(empty + 8 * stage);
            }
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
        products_wait<0>();
        put_biases(bias, own, threadIdx.x);
        unsigned char* ring = memory + (base - shared_address(memory));
        consumers_barrier(1, 128 * CONSUMERS);  // the ring is read: its memory takes the sums, or the rows
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            put_sums(sum, p, inbox, rank, first_row / 16, base, ring);
            cluster_wait();
            send_sums(p, inbox, rank, first_row / 16, base);
            consumers_barrier(1, 128 * CONSUMERS);  // the own share is there
            finish_share(inbox, bias, p, m0, n0, ring + p.inbox);
            cluster_wait();  // a block is there until what it has sent has come
            return;
        }
        result* corner = reinterpret_cast<result*>(ring) + threadIdx.x / 32 * 16 * ROW_PITCH;
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
            const bool is_asked = ASKS_EARLY && i == 0;
            finish_rows(sum[i], corner, residual, is_asked, bias, p, m0 + first_row + i * 64, n0);
        }
    }
}
