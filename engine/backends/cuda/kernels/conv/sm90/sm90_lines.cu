// sm90_lines: 3x3 convolution with stride 1 for small batches. Filters are the rows of the GEMM,
// pixels its columns. Launched by conv/sm90_lines.py.
//
// im2col loads every pixel nine times. Here whole lines of the feature map lie in shared memory,
// out_w + 1 pixels each: one pixel of padding is the right border of a line and the left border of
// the next. Columns of the GEMM are numbered the same way, so the pixels of a tap are the same
// columns, shifted; every (out_w + 1)th column is computed in vain.
//
// A thread block computes BM filters, 64 for each warpgroup, by BN columns. Its producer thread
// loads patches (the lines that the windows cover, for one slice of channels) into PATCHES slots,
// and weights into a ring of STAGES, a line of taps at a time: barriers for each tap would cost as
// much as its wgmmas. Blocks of a cluster divide the slices of channels as in
// sm90_cluster_reduce.cuh.
//
// Compile-time constants: PATCHES, EARLY, the stages whose weights are loaded before the first patch, and the
// rest as in sm90_splitk.
#include "sm90_cluster_reduce.cuh"

#define SIDE 3                       // of a window
#define LINE_BYTES (SIDE * A_BYTES)  // weights of a line of taps

struct LinesArgs {
    int patch_bytes, slot_bytes;  // of lines; of a slot that holds them
    int tiles;                    // of a row
    Divisor by_pitch, by_tiles;
};

// In the epilogue LANES neighbouring lanes have the filters of a pixel, eight each, so that whole
// lines of the L2 are read and written. Instructions that run once come from the L2, so the code is
// short instead of unrolled, and sums pass through shared memory even without a split.
#define LANES (BM / 8)
#define PIXELS (128 * CONSUMERS / LANES)  // at a time

// Returns the pixel of a column of this block; negative if the column or its pixel does not exist.
template <typename PixelOf> DEVICE int owned_pixel(const Inbox& inbox, int column, PixelOf pixel_of)
{
    return column < inbox.count * 8 ? pixel_of(inbox.first * 8 + column) : -1;
}

// Issues the load of a lane's residuals for such a column.
template <typename PixelOf> DEVICE void issue_residual_load_of(
    Eight& residual, const Inbox& inbox, const KernelArgs& p, int n, int column, PixelOf pixel_of)
{
    issue_residual_load(residual, p, owned_pixel(inbox, column, pixel_of), n);
}

// Adds up what all ranks have sent for the columns that this block owns, and finishes them. The residual
// of a lane's first column is in flight; each load is issued a column ahead.
template <typename PixelOf> DEVICE void finish_filters(const Inbox& inbox, const float* biases,
    const KernelArgs& p, int n0, Eight residual, const unsigned char* sums, PixelOf pixel_of)
{
    const int own = threadIdx.x % LANES;
    const int n = n0 + own * 8;
    const int count = min(p.filters - n, 8);
    float bias[8];
    UNROLL(c, 8) bias[c] = biases[own * 8 + c];
    sums += own / 2 * inbox.count * GROUP_BYTES + own % 2 * 8;
#pragma unroll 1
    for (int column = threadIdx.x / LANES; column < inbox.count * 8; column += PIXELS) {
        const Eight more = residual;
        issue_residual_load_of(residual, inbox, p, n, column + PIXELS, pixel_of);
        const int m = owned_pixel(inbox, column, pixel_of);
        if (m < 0 || count <= 0) continue;
        float x[8];
        UNROLL(c, 8) x[c] = bias[c];
        const unsigned char* from = sums + column / 8 * GROUP_BYTES + column % 8 / 2 * 16 + column % 2 * 4;
#pragma unroll 1
        for (int r = 0; r < SPLIT; ++r) {
            UNROLL(c, 8) x[c] += *reinterpret_cast<const float*>(from + c * 64);
            from += ROW_GROUPS * inbox.count * GROUP_BYTES;
        }
        activate_all(KIND, x);
        if constexpr (WHOLE) {
            const Eight vector = finished_vector(x, more, p);
            store_words(static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n, vector.word);
        } else {
            if (RESIDUAL) add_residual(x, p.residual + (size_t)m * p.residual_pitch + n, count);
            store_results(x, p, m, n, count);
        }
    }
    __syncwarp();  // barriers of a cluster need whole warps
}

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    sm90_lines(const __grid_constant__ TensorMap input, const __grid_constant__ LinesArgs o,
        const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned weights = base + PATCHES * o.slot_bytes;
    const unsigned full = weights + STAGES * LINE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const unsigned patch_full = empty + 8 * STAGES;
    const unsigned patch_empty = patch_full + 8 * PATCHES;
    const unsigned inbox_full = patch_empty + 8 * PATCHES;
    const int group = warp_index() / 4;
    const bool is_producer = group == CONSUMERS;
    const int index = blockIdx.x / SPLIT;
    const int rank = blockIdx.x % SPLIT;
    const Tile tile = tile_at(p, index);
    const int row = divide(tile.down, o.by_tiles);
    const int pitch = p.out_w + 1;
    const int start = (tile.down - row * o.tiles) * BN;
    const int top = divide(start, o.by_pitch);
    const int left = start - top * pitch;
    const int first = rank * p.slices / SPLIT;
    const int end = (rank + 1) * p.slices / SPLIT;
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
        if (SPLIT > 1) expect_inbox(inbox);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (SPLIT > 1 && inbox.is_apart) cluster_arrive();  // this block's inbox barrier is initialized

    if (is_producer) {
        if (is_elected()) {
            const unsigned char* weight =
                p.weight + (size_t)(tile.across * p.slices + first) * SIDE * LINE_BYTES;
            auto issue_weights = [&](int stage) {
                mbarrier_expect_bytes(full + 8 * stage, LINE_BYTES);
                bulk_load(weights + stage * LINE_BYTES, weight, LINE_BYTES, full + 8 * stage);
                weight += LINE_BYTES;
            };
            int channel = first * BK;
            auto issue_patch = [&](int slot) {
                mbarrier_expect_bytes(patch_full + 8 * slot, o.patch_bytes);
                tma_load_box(
                    base + slot * o.slot_bytes, &input, patch_full + 8 * slot, channel, -1, top - 1, row);
                channel += BK;
            };
            const int slices = end - first;
            const int ahead = min(STAGES, slices * SIDE);
#pragma unroll 1
            for (int s = 0; s < min(EARLY, ahead); ++s) issue_weights(s);
            wait_for_previous_kernel();
            issue_patch(0);
#pragma unroll 1
            for (int s = EARLY; s < ahead; ++s) issue_weights(s);
#pragma unroll 1
            for (int s = 1; s < min(PATCHES, slices); ++s) issue_patch(s);
            // Refill the slots that the wgmmas have read.
            int stage = 0;
            int phase = 0;
            int slot = 0;
            int lap = 0;
#pragma unroll 1
            for (int slice = 0; slice < slices; ++slice) {
#pragma unroll 1
                for (int line = slice * SIDE; line < min((slice + 1) * SIDE, slices * SIDE - STAGES);
                    ++line) {
                    mbarrier_wait(empty + 8 * stage, phase);
                    issue_weights(stage);
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                if (slice + PATCHES < slices) {
                    mbarrier_wait(patch_empty + 8 * slot, lap);
                    issue_patch(slot);
                    if (++slot == PATCHES) {
                        slot = 0;
                        lap ^= 1;
                    }
                }
            }
        }
        end_producer(inbox);
    } else {
        const bool is_first = threadIdx.x % 32 == 0;
        const int n0 = tile.across * BM;
        if (threadIdx.x < BM)
            bias[threadIdx.x] = n0 + threadIdx.x < p.filters ? p.bias[n0 + threadIdx.x] : 0.f;
        if (threadIdx.x == 0) prefetch_next_weights(p);
        Sum sum[M_BLOCKS][BN / 2];
        clear(sum);
        int slot = 0;
        int lap = 0;
        int stage = 0;
        int phase = 0;
        unsigned previous = 0;        // the barrier of the slot that the last wgmmas read
        unsigned previous_patch = 0;  // the same for a patch that is no longer needed
        int line = 0;
        unsigned pixels = base + left * ROW_BYTES;
        auto pixel_of = [&](int column) {
            const int down = divide(left + column, o.by_pitch);
            const int x = left + column - down * pitch;
            const int y = top + down;
            return x < p.out_w && y < p.out_h ? (row * p.out_h + y) * p.out_w + x : -1;
        };
        mbarrier_wait(patch_full, 0);  // the previous kernel has ended
        Eight residual;
        issue_residual_load_of(residual, inbox, p, n0 + threadIdx.x % LANES * 8, threadIdx.x / LANES, pixel_of);
        int left_over = (end - first) * SIDE;
        do {  // at least once, or the compiler would keep a second set of registers for untouched sums
            mbarrier_wait(full + 8 * stage, phase);
            const unsigned filters = weights + stage * LINE_BYTES + group * 64 * ROW_BYTES;
            wgmma_fence();
            UNROLL(tap, SIDE) wgmma_slice(sum[0], filters + tap * A_BYTES, pixels + tap * ROW_BYTES);
            wgmma_commit();
            wgmma_wait<1>();  // the previous wgmmas have read their slots
            if (previous && is_first) mbarrier_arrive(previous);
            if (previous_patch && is_first) mbarrier_arrive(previous_patch);
            previous = empty + 8 * stage;
            previous_patch = 0;
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
            pixels += pitch * ROW_BYTES;
            if (++line == SIDE) {
                line = 0;
                previous_patch = patch_empty + 8 * slot;
                if (++slot == PATCHES) {
                    slot = 0;
                    lap ^= 1;
                }
                pixels = base + slot * o.slot_bytes + left * ROW_BYTES;
                if (left_over > 1) mbarrier_wait(patch_full + 8 * slot, lap);
            }
        } while (--left_over > 0);
        wgmma_wait<0>();
        named_barrier(1, 128 * CONSUMERS);  // the slots have been read; the sums reuse their memory
        unsigned char* buffer = memory + (base - shared_address(memory));
        exchange_sums(sum, inbox, rank, warp_index(), base, buffer);
        named_barrier(1, 128 * CONSUMERS);  // this block's own share has been written
        wait_for_inbox(inbox);
        finish_filters(inbox, bias, p, n0, residual, buffer + p.inbox, pixel_of);
        if (SPLIT > 1) cluster_wait();  // a block must exist until what it sent has arrived
    }
}
