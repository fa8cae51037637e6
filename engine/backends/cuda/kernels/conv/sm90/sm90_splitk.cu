// sm90_splitk: convolution as an implicit GEMM on Hopper's own units: the bulk tensor copy engine
// unfolds windows (im2col) straight into shared memory and wgmma multiplies; nothing is unfolded
// in global memory.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, k = (tap, channel)
//
// The host leaves W as a buffer's slots have it, slice after slice of each BN filters, swizzled and
// filled up with zeros: a slice is one copy. The engine takes over three cycles for each row of a
// map, which is what bounds most layers, and weights have none.
//
// A producer thread keeps a buffer of STAGES slices, BM x BK of input and BN x BK of weights;
// CONSUMERS warpgroups before it multiply BM / CONSUMERS rows each. A cluster of `split` blocks shares the
// sum over k: each adds up a part, see sm90_cluster_reduce.cuh.
// Weights do not depend on the layer before, so they are fetched before the wait for it.
// On a small map a block finishes one tile and its code is cold: the activations, KIND and LAST, are
// chosen at compile time, and what can be issued for early is.
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
#define ROWS_BYTES (BM * ROW_PITCH * OUT_BYTES)  // take the place of the buffer
// Barriers lie behind both: nothing else may write to them.
#define BUFFER_BYTES (RING_BYTES > ROWS_BYTES ? RING_BYTES : ROWS_BYTES)
// Registers of a thread: each quarter of a multiprocessor has 512 for every lane of its warps. Where they
// suffice for sums, residuals and the rest, residuals are on their way while products are summed.
#define REGISTERS (512 / ((BLOCKS * (4 * CONSUMERS + 1) + 3) / 4) / 8 * 8)
#define EARLY_RESIDUALS (WHOLE && M_BLOCKS * BN / 2 + VECTORS_IN_FLIGHT * 4 + 56 <= REGISTERS)

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    sm90_splitk(const __grid_constant__ TensorMap input, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = base + BUFFER_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const bool is_producer = threadIdx.x >= 128 * CONSUMERS;
    const int index = divide(blockIdx.x, p.by_split);
    const int rank = blockIdx.x - index * p.split;
    const Tile tile = tile_at(p, index);
    const int m0 = tile.down * BM;
    const int n0 = tile.across * BN;
    const int first = divide(rank * p.steps, p.by_split);
    const int end = divide((rank + 1) * p.steps, p.by_split);
    const unsigned inbox_full = empty + 8 * STAGES;
    float* bias = reinterpret_cast<float*>(memory + (inbox_full + 16 - shared_address(memory)));
    const Inbox inbox = inbox_at(base, inbox_full, p, rank, BUFFER_BYTES);

    if (threadIdx.x == 128 * CONSUMERS) prefetch_tensor_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(empty + 8 * s, 4 * CONSUMERS);  // every warp reads for itself
        }
        if (p.split > 1) expect_inbox(inbox, p);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (p.split > 1 && inbox.is_apart) cluster_arrive();  // its barrier is there

    if (is_producer) {
        if (threadIdx.x == 128 * CONSUMERS) {
            const Origin origin = window_origin(p, m0);
            const unsigned char* weight = p.weight + (size_t)tile.across * p.steps * WEIGHT_BYTES;
            const int ahead = min(end - first, STAGES);
            Slice slice = slice_at(p, first);
            auto issue_weights = [&](int k, int stage) {
                load_weights(base + stage * STAGE_BYTES, full + 8 * stage, weight + (size_t)k * WEIGHT_BYTES);
            };
            auto issue_input = [&](int stage) {
                load_input(base + stage * STAGE_BYTES, full + 8 * stage, &input, p, origin, slice);
                advance(slice, p);
            };
            for (int s = 0; s < ahead; ++s) issue_weights(first + s, s);
            wait_for_previous_kernel();
            for (int s = 0; s < ahead; ++s) issue_input(s);
            int stage = 0;
            int phase = 0;
            for (int k = first + ahead; k < end; ++k) {
                mbarrier_wait(empty + 8 * stage, phase);
                issue_weights(k, stage);
                issue_input(stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        __syncwarp();
        launch_dependents();  // any earlier, they would be in the way
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            cluster_wait();
            cluster_arrive();
        }
    } else {
        const int group = threadIdx.x / 128;
        const int warp = threadIdx.x / 32 % 4;
        const bool is_first = threadIdx.x % 32 == 0;
        float own[BIASES_PER_THREAD];
        load_biases(own, p, n0, threadIdx.x);
        prefetch_residual(p, m0, n0, BM, BN, threadIdx.x);
        if (threadIdx.x == 0) prefetch_next_weights(p);
        float sum[M_BLOCKS][BN / 2];
#pragma unroll
        for (int i = 0; i < M_BLOCKS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
        }
        const int first_row = group * M_BLOCKS * 64 + warp * 16;
        ResidualVectors residual;
        if (EARLY_RESIDUALS && p.split == 1) {
            mbarrier_wait(full, 0);  // the kernel before has ended
            issue_residual_loads(residual, p, m0 + first_row, n0, 0);
        }
        int stage = 0;
        int phase = 0;
        int previous = -1;
        for (int k = first; k < end; ++k) {
            mbarrier_wait(full + 8 * stage, phase);
            const unsigned a = base + stage * STAGE_BYTES;
            if (MODE < 2) wgmma_fence();
#pragma unroll
            for (int i = 0; i < M_BLOCKS; ++i) {
                wgmma_slice(sum[i], a + (group * M_BLOCKS + i) * 64 * ROW_BYTES, a + A_BYTES);
            }
            if (MODE < 2) {
                wgmma_commit();
                wgmma_wait<1>();  // the slice before this one has been read
                if (previous >= 0 && is_first) mbarrier_arrive(empty + 8 * previous);
                previous = stage;
            } else if (is_first) {
                mbarrier_arrive(empty + 8 * stage);
            }
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
        wgmma_wait<0>();
        stage_biases(bias, own, threadIdx.x);
        unsigned char* buffer = memory + (base - shared_address(memory));
        named_barrier(1, 128 * CONSUMERS);  // the buffer is read: its memory takes the sums, or the rows
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            write_outbox(sum, p, inbox, rank, first_row / 16, base, buffer);
            cluster_wait();
            send_outbox(p, inbox, rank, first_row / 16, base);
            named_barrier(1, 128 * CONSUMERS);  // the own share is there
            reduce_and_finish(inbox, bias, p, m0, n0, buffer + p.inbox);
            cluster_wait();  // a block is there until what it has sent has come
            return;
        }
        result* staging = reinterpret_cast<result*>(buffer) + threadIdx.x / 32 * 16 * ROW_PITCH;
#pragma unroll
        for (int i = 0; i < M_BLOCKS; ++i) {
            const bool is_issued = EARLY_RESIDUALS && i == 0;
            epilogue_rows(sum[i], staging, residual, is_issued, bias, p, m0 + first_row + i * 64, n0);
        }
    }
}
