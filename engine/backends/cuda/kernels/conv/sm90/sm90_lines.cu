// sm90_lines: sm90_splitk for 3x3 windows one pixel apart, of which im2col would load every pixel nine
// times. Launched by conv/sm90_lines.py.
//
// Layout: as in sm90_splitk, but k = (slice of channels, tap). Whole lines of the map lie in shared memory
// with one pixel of padding between them, which is the right one of a line and the left one of the next:
// line after line, out_w + 1 pixels each. Rows of a product are numbered the same way, so the pixels of a
// tap are the same rows, shifted; every (out_w + 1)th row is computed in vain.
//
// A thread block computes BM such rows by BN filters. Its producer thread keeps PATCHES patches, the lines
// that the rows' windows cover for one slice of channels, and a ring of STAGES taps' weights.
//
// Compile-time constants: PATCHES, and the rest as in sm90_splitk.
#include "sm90_cluster_reduce.cuh"
#include "sm90_warpgroups.cuh"

#define TAPS 9

struct LinesArgs {
    int patch_bytes, slot_bytes;  // of lines; of a slot that holds them
    int tiles;                    // of a row
    Divisor by_pitch, by_tiles;
};

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS) sm90_lines(
    const __grid_constant__ TensorMap input, const __grid_constant__ LinesArgs o, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned weights = base + PATCHES * o.slot_bytes;
    const unsigned full = weights + STAGES * WEIGHT_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const unsigned patch_full = empty + 8 * STAGES;
    const unsigned patch_empty = patch_full + 8 * PATCHES;
    const unsigned inbox_full = patch_empty + 8 * PATCHES;
    const int group = warp_index() / 4;
    const int warp = warp_index() % 4;
    const bool is_producer = group == CONSUMERS;
    const int index = divide(blockIdx.x, p.by_split);
    const int rank = blockIdx.x - index * p.split;
    const Tile tile = tile_at(p, index);
    const int row = divide(tile.down, o.by_tiles);
    const int pitch = p.out_w + 1;
    const int start = (tile.down - row * o.tiles) * BM;
    const int top = divide(start, o.by_pitch);
    const int left = start - top * pitch;
    const int n0 = tile.across * BN;
    const int first = divide(rank * p.steps, p.by_split);
    const int end = divide((rank + 1) * p.steps, p.by_split);
    float* bias = reinterpret_cast<float*>(memory + (inbox_full + 16 - shared_address(memory)));
    const Inbox inbox = inbox_at(base, inbox_full, p, rank, full - base);

    if (threadIdx.x == 128 * CONSUMERS) prefetch_tensor_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(empty + 8 * s, 4 * CONSUMERS);  // each warp releases slots for itself
        }
        for (int s = 0; s < PATCHES; ++s) {
            mbarrier_init(patch_full + 8 * s, 1);
            mbarrier_init(patch_empty + 8 * s, 4 * CONSUMERS);
        }
        if (p.split > 1) expect_inbox(inbox, p);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (p.split > 1 && inbox.is_apart) cluster_arrive();  // this block's inbox barrier is initialized

    if (is_producer) {
        if (is_elected()) {
            const unsigned char* weight = p.weight + (size_t)tile.across * p.steps * WEIGHT_BYTES;
            int slice = first / TAPS;  // the next one to be loaded
            int slot = 0;
            int lap = 0;
            auto issue_patch = [&] {
                // In the first lap every slot is free: the phase before the first counts as complete.
                mbarrier_wait(patch_empty + 8 * slot, lap ^ 1);
                mbarrier_expect_bytes(patch_full + 8 * slot, o.patch_bytes);
                tma_load_box(base + slot * o.slot_bytes, &input, patch_full + 8 * slot, slice * BK, -1, top - 1, row);
                ++slice;
                if (++slot == PATCHES) {
                    slot = 0;
                    lap ^= 1;
                }
            };
            auto issue_weights = [&](int k, int stage) {
                mbarrier_expect_bytes(full + 8 * stage, WEIGHT_BYTES);
                bulk_load(weights + stage * WEIGHT_BYTES, weight + (size_t)k * WEIGHT_BYTES, WEIGHT_BYTES,
                    full + 8 * stage);
            };
            const int ahead = min(end, first + STAGES);
#pragma unroll 1
            for (int k = first; k < ahead; ++k) issue_weights(k, k - first);
            wait_for_previous_kernel();
#pragma unroll 1
            for (int i = 0; i < PATCHES && slice * TAPS < end; ++i) issue_patch();
            int stage = 0;
            int phase = 0;
#pragma unroll 1
            for (int k = ahead; k < end; ++k) {
                if (k / TAPS >= slice) issue_patch();
                mbarrier_wait(empty + 8 * stage, phase);
                issue_weights(k, stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
#pragma unroll 1
            while (slice * TAPS < end) issue_patch();
        }
        __syncwarp();
        launch_dependents();  // earlier, they would take resources from this kernel
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            cluster_wait();
            cluster_arrive();
        }
    } else {
        const bool is_first = threadIdx.x % 32 == 0;
        float own[BIASES_PER_THREAD];
        load_biases(own, p, n0, threadIdx.x);
        if (threadIdx.x == 0) prefetch_next_weights(p);
        Sum sum[M_BLOCKS][BN / 2];
        clear(sum);
        int stage = 0;
        int phase = 0;
        int slot = 0;
        int lap = 0;
        int tap = first % TAPS;
        unsigned previous = 0;        // the barrier of the slot that the last products read
        unsigned previous_patch = 0;  // the same for a patch that is no longer needed
        mbarrier_wait(patch_full, 0);
#pragma unroll 1
        for (int k = first; k < end; ++k) {
            mbarrier_wait(full + 8 * stage, phase);
            const unsigned a = base + slot * o.slot_bytes + (left + tap / 3 * pitch + tap % 3) * ROW_BYTES;
            const unsigned b = weights + stage * WEIGHT_BYTES;
            if (MODE != 2) wgmma_fence();
            UNROLL(i, M_BLOCKS) {
                wgmma_slice(sum[i], a + (group * M_BLOCKS + i) * 64 * ROW_BYTES, b);
            }
            if (MODE != 2) {
                wgmma_commit();
                wgmma_wait<1>();  // the previous products have read their slots
            }
            if (previous && is_first) mbarrier_arrive(previous);
            if (previous_patch && is_first) mbarrier_arrive(previous_patch);
            previous = empty + 8 * stage;
            previous_patch = 0;
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
            if (++tap == TAPS) {
                tap = 0;
                previous_patch = patch_empty + 8 * slot;
                if (++slot == PATCHES) {
                    slot = 0;
                    lap ^= 1;
                }
                if (k + 1 < end) mbarrier_wait(patch_full + 8 * slot, lap);
            }
        }
        wgmma_wait<0>();
        stage_biases(bias, own, threadIdx.x);
        unsigned char* buffer = memory + (base - shared_address(memory));
        named_barrier(1, 128 * CONSUMERS);  // the slots have been read; their memory takes the sums
        const int first_row = group * M_BLOCKS * 64 + warp * 16;
        auto pixel_of = [&](int i) {
            const int down = divide(left + i, o.by_pitch);
            const int x = left + i - down * pitch;
            const int y = top + down;
            return x < p.out_w && y < p.out_h ? (row * p.out_h + y) * p.out_w + x : -1;
        };
        if (p.split > 1) {
            if (!inbox.is_apart) cluster_arrive();
            write_outbox(sum, p, inbox, rank, first_row / 16, base, buffer);
            cluster_wait();
            send_outbox(p, inbox, rank, first_row / 16, base);
            named_barrier(1, 128 * CONSUMERS);  // this block's own share has been written
            reduce_and_finish(inbox, bias, p, n0, buffer + p.inbox, pixel_of);
            cluster_wait();  // a block must exist until what it sent has arrived
            return;
        }
        UNROLL(i, M_BLOCKS) {
            epilogue_from_registers(
                sum[i], bias, p, n0, [&](int each) { return pixel_of(first_row + i * 64 + each); });
        }
    }
}
