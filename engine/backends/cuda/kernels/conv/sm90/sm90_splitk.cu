// sm90_splitk: convolution as an implicit GEMM with TMA and wgmma, optionally split along k over the
// thread blocks of a cluster. Launched by conv/sm90_splitk.py.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, k = (tap, channel)
//
// Layout: an im2col tensor map describes the NHWC input A: TMA unfolds windows on the way to shared
// memory, and nothing is unfolded in global memory. The host stores W as the pipeline's slots hold
// it, slice after slice of BN filters, swizzled and padded with zeros: a slice is one bulk copy.
// TMA takes more than three cycles for each row of a tensor map, which bounds most layers; bulk
// copies have no rows.
//
// A thread block computes a tile of BM x BN. A producer thread keeps a ring of STAGES slots full. A
// slot has TOGETHER slices of k, each BM x BK of input and BN x BK of weights: in small tiles the
// barriers of a slot take as long as the wgmmas of a slice. CONSUMERS warpgroups multiply BM /
// CONSUMERS rows each. If SPLIT > 1, each block of a cluster sums a part of k, see
// sm90_cluster_reduce.cuh. Weights do not depend on the previous layer and are loaded before the
// wait for it. In a small layer a block computes one tile and its code is cold: whatever selects a
// code path is a compile-time constant, and loads are issued as early as possible.
//
// Compile-time constants: BM BN BK STAGES CONSUMERS BLOCKS (resident per SM), KIND and LAST
// (activations), OUT_BYTES (of a result)
//   SPLIT     blocks of a cluster, which divide k
//   RESIDUAL  0 without one, or ALIKE or QUARTERS, see sm90_epilogue.cuh
//   WHOLE     filters come in eights, aligned to 16 bytes; code for other cases is left out
//   YOLO      output of a detection layer, see output_type.cuh
//   REPEATED  upsampling of the result, with WHOLE only
//   CELLS     4 if a 2 x 2 pool follows, else 1; KEPT: its input is stored as well, with WHOLE only
//   MODE 0    float16 operands
//   MODE 1    float32 operands, rounded to the nearest tf32 by TMA and by the host
//   MODE 4    int8 operands, int32 accumulators
//   MODE 2    float32 operands, each split into two tf32 values: three multiplications; slices are
//             accumulated outside the tensor core, which drops bits that a float would keep
#include "sm90_cluster_reduce.cuh"
#if MODE == 4
#include "sm90_epilogue_int8.cuh"
#define ROWS_BYTES 0
#else
#include "sm90_epilogue_shared.cuh"
#define ROWS_BYTES (BM * ROW_PITCH * OUT_BYTES)  // in the memory of the ring
#endif

#define SLOT_BYTES (TOGETHER * STAGE_BYTES)  // inputs of all its slices, then weights
#define RING_BYTES (STAGES * SLOT_BYTES)
// The barriers lie after both.
#define BUFFER_BYTES (RING_BYTES > ROWS_BYTES ? RING_BYTES : ROWS_BYTES)
// Registers per thread: each quarter of an SM has 512 for every lane. If they suffice for
// accumulators, residuals and the rest, residuals are loaded during the mainloop.
#define REGISTERS (512 / ((BLOCKS * (4 * CONSUMERS + 1) + 3) / 4) / 8 * 8)
#define EARLY_RESIDUALS (WHOLE && M_BLOCKS * BN / 2 + VECTORS_IN_FLIGHT * 4 + 56 <= REGISTERS)

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    sm90_splitk(const __grid_constant__ TensorMap input, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = base + BUFFER_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const int group = warp_index() / 4;
    const int warp = warp_index() % 4;
    const bool is_producer = group == CONSUMERS;
    const int index = blockIdx.x / SPLIT;
    const int rank = blockIdx.x % SPLIT;
    const Tile tile = tile_at(p, index);
    const int m0 = tile.down * (BM / CELLS);
    const int n0 = tile.across * BN;
    const int slots = p.steps / TOGETHER;
    const int first = rank * slots / SPLIT;
    const int end = (rank + 1) * slots / SPLIT;
    const unsigned inbox_full = empty + 8 * STAGES;
    float* bias = reinterpret_cast<float*>(memory + (inbox_full + 16 - shared_address(memory)));
    const Inbox inbox = inbox_at(base, inbox_full, p, rank, BUFFER_BYTES);

    if (threadIdx.x == 128 * CONSUMERS) prefetch_tensor_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(empty + 8 * s, 4 * CONSUMERS);  // each warp releases slots for itself
        }
        if (SPLIT > 1) expect_inbox(inbox);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (SPLIT > 1 && inbox.is_apart) cluster_arrive();  // this block's inbox barrier is initialized

    if (is_producer) {
        if (is_elected()) {
            const Origin origin = window_origin(p, m0);
            const unsigned char* weight =
                p.weight + (size_t)(tile.across * slots + first) * TOGETHER * WEIGHT_BYTES;
            Slice slice = slice_at(p, first * TOGETHER);
            auto issue_weights = [&](int stage) {
                mbarrier_expect_bytes(full + 8 * stage, SLOT_BYTES);
                bulk_load(base + stage * SLOT_BYTES + TOGETHER * A_BYTES, weight, TOGETHER * WEIGHT_BYTES,
                    full + 8 * stage);
                weight += TOGETHER * WEIGHT_BYTES;
            };
            auto issue_input = [&](int stage) {
#pragma unroll 1
                for (int s = 0; s < TOGETHER; ++s) {
                    load_input(
                        base + stage * SLOT_BYTES + s * A_BYTES, full + 8 * stage, &input, p, origin, slice);
                    advance(slice, p);
                }
            };
            const int ahead = min(end - first, STAGES);
#pragma unroll 1
            for (int s = 0; s < ahead; ++s) issue_weights(s);
            wait_for_previous_kernel();
#pragma unroll 1
            for (int s = 0; s < ahead; ++s) issue_input(s);
            int stage = 0;
            int phase = 0;
#pragma unroll 1
            for (int slot = first + ahead; slot < end; ++slot) {
                mbarrier_wait(empty + 8 * stage, phase);
                issue_weights(stage);
                issue_input(stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        end_producer(inbox);
    } else {
        const bool is_first = threadIdx.x % 32 == 0;
        float own[BIASES_PER_THREAD];
        load_biases(own, p, n0, threadIdx.x);
        prefetch_residual(p, m0, n0, BM / CELLS, BN, threadIdx.x);
        if (threadIdx.x == 0) prefetch_next_weights(p);
        Sum sum[M_BLOCKS][BN / 2];
        clear(sum);
        const int first_row = group * M_BLOCKS * 64 + warp * 16;
#if MODE != 4
        ResidualVectors residual;
        if (RESIDUAL && EARLY_RESIDUALS && CELLS == 1 && SPLIT == 1) {
            mbarrier_wait(full, 0);  // the previous kernel has ended
            issue_residual_loads(residual, p, m0 + first_row, n0, 0);
        }
#endif
        int stage = 0;
        int phase = 0;
        int previous = -1;
#pragma unroll 1
        for (int slot = first; slot < end; ++slot) {
            mbarrier_wait(full + 8 * stage, phase);
            const unsigned a = base + stage * SLOT_BYTES + group * M_BLOCKS * 64 * ROW_BYTES;
            const unsigned b = base + stage * SLOT_BYTES + TOGETHER * A_BYTES;
            if (MODE != 2) wgmma_fence();
            UNROLL(s, TOGETHER) {
                UNROLL(i, M_BLOCKS) {
                    wgmma_slice(sum[i], a + s * A_BYTES + i * 64 * ROW_BYTES, b + s * WEIGHT_BYTES);
                }
            }
            if (MODE != 2) {
                wgmma_commit();
                wgmma_wait<1>();  // the previous slot has been read
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
        keep_after(sum);
        stage_biases(bias, own, threadIdx.x);
        unsigned char* buffer = memory + (base - shared_address(memory));
        named_barrier(1, 128 * CONSUMERS);  // the ring has been read; sums or rows reuse its memory
        auto pixel_of = [&](int row) { return m0 + row < p.pixels ? m0 + row : -1; };
        if (SPLIT > 1 || CELLS > 1) {
            exchange_sums(sum, inbox, rank, first_row / 16, base, buffer);
            named_barrier(1, 128 * CONSUMERS);  // this block's own share has been written
            reduce_and_finish(inbox, bias, p, n0, buffer + p.inbox, pixel_of);
            if (SPLIT > 1) cluster_wait();  // a block must exist until what it sent has arrived
            return;
        }
#if MODE == 4
        UNROLL(i, M_BLOCKS) {
            epilogue_from_registers(
                sum[i], bias, p, n0, [&](int row) { return pixel_of(first_row + i * 64 + row); });
        }
#else
        result* staging = reinterpret_cast<result*>(buffer) + threadIdx.x / 32 * 16 * ROW_PITCH;
        UNROLL(i, M_BLOCKS) {
            const bool is_issued = EARLY_RESIDUALS && i == 0;
            epilogue_rows(sum[i], staging, residual, is_issued, bias, p, m0 + first_row + i * 64, n0);
        }
#endif
    }
}
