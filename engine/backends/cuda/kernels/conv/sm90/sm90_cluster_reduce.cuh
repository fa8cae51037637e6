// Split-K reduction within a cluster. Each thread block of the cluster sums a part of k for all columns
// of the tile, sends its partial sums to the blocks that own the columns, and finishes the columns that
// it owns. Partial sums are added in the order of ranks, so that results repeat bit for bit.
//
// Sums are written to an outbox in the block's own shared memory, sorted by owner, and bulk copies
// carry them to the owners' inboxes, because remote stores by single lanes are far slower. An
// mbarrier at the owner counts the bytes. The inbox has memory of its own if there is room.
// Otherwise it lies after the outbox in the memory of the pipeline, and no block sends before all
// blocks have read their stages.
//
// A fused 2 x 2 pool uses the same exchange, with or without a cluster: each quarter of a tile's
// rows has one of the CELLS of the pool's windows, and the sums of a window meet in the inbox.
#pragma once
#include "sm90_epilogue.cuh"

#define COLUMN_GROUPS (BN / 8)  // groups of 8 columns
#define ROW_GROUPS (BM / 16)    // groups of 16 rows, one per warp at a time
// A group is 16 rows by 8 columns: four accumulators of each lane, as wgmma leaves them, and
// padding against bank conflicts between groups.
#define GROUP_BYTES (32 * 16 + 16)

struct alignas(16) FourSums {
    Sum v[4];
};

struct alignas(8) TwoSums {
    Sum v[2];
};

typedef Bits<8 * OUT_BYTES> Eight;  // neighbouring results or residuals

// Partial sums of all ranks for the columns that this block owns, as [rank][row group][column group].
struct Inbox {
    unsigned at, full;  // full: the address of an mbarrier
    int first, count;   // column groups that this block owns
    bool is_apart;
};

DEVICE int first_column_group(int rank) { return rank * COLUMN_GROUPS / SPLIT; }

// `shared` is the size of the pipeline's buffers, which the inbox may reuse.
DEVICE Inbox inbox_at(unsigned base, unsigned full, const KernelArgs& p, int rank, int shared)
{
    const int first = first_column_group(rank);
    return {base + p.inbox, full, first, first_column_group(rank + 1) - first, p.inbox >= shared};
}

DEVICE void expect_inbox(const Inbox& inbox)
{
    mbarrier_init(inbox.full, 1);
    mbarrier_expect_bytes(inbox.full, (SPLIT - 1) * ROW_GROUPS * inbox.count * GROUP_BYTES);
}

// The address of an owner's first column group in the outbox, which omits this block's own columns.
DEVICE unsigned outbox_of(unsigned base, const Inbox& inbox, int first)
{
    return base + (first - (first > inbox.first ? inbox.count : 0)) * ROW_GROUPS * GROUP_BYTES;
}

// Writes a warp's sums of row group `first` and every fourth one after it to the outbox, and those
// of this block's own columns to its own inbox. `memory` is the pointer to address `base`.
DEVICE void write_outbox(const Sum (&sum)[M_BLOCKS][BN / 2], const Inbox& inbox, int rank, int first,
    unsigned base, unsigned char* memory)
{
    int owner = -1;
    int begin = 0;
    int end = 0;
    unsigned to = 0;
    unsigned next = 0;  // bytes to the next row group
    UNROLL(j, COLUMN_GROUPS) {
        while (j == end) {
            begin = end;
            end = first_column_group(++owner + 1);
            const bool is_own = owner == rank;
            const unsigned start = is_own ? inbox.at + rank * ROW_GROUPS * inbox.count * GROUP_BYTES
                                          : outbox_of(base, inbox, begin);
            to = start - base + first * (end - begin) * GROUP_BYTES + threadIdx.x % 32 * 16;
            next = 4 * (end - begin) * GROUP_BYTES;
        }
        UNROLL(i, M_BLOCKS) {
            const Sum* x = sum[i] + j * 4;
            *reinterpret_cast<FourSums*>(memory + to + i * next) = {x[0], x[1], x[2], x[3]};
        }
        to += GROUP_BYTES;
    }
    if (SPLIT > 1) fence_async_proxy();
    __syncwarp();
}

// Sends what a warp has written to the outbox, one lane for each owner.
DEVICE void send_outbox(const Inbox& inbox, int rank, int first, unsigned base)
{
    const int owner = threadIdx.x % 32;
    if (owner < SPLIT && owner != rank) {
        const int begin = first_column_group(owner);
        const int bytes = (first_column_group(owner + 1) - begin) * GROUP_BYTES;
        const unsigned from = outbox_of(base, inbox, begin);
        const unsigned to = map_to_rank(inbox.at, owner) + rank * ROW_GROUPS * bytes;
        const unsigned full = map_to_rank(inbox.full, owner);
        for (int i = 0; bytes > 0 && i < M_BLOCKS; ++i) {
            const int before = (first + i * 4) * bytes;
            bulk_copy_to_rank(to + before, from + before, bytes, full);
        }
    }
    __syncwarp();
}

// Sends a warp's sums to the blocks that own their columns, once this block has read its buffers.
DEVICE void exchange_sums(const Sum (&sum)[M_BLOCKS][BN / 2], const Inbox& inbox, int rank, int first,
    unsigned base, unsigned char* memory)
{
    if (SPLIT > 1 && !inbox.is_apart) cluster_arrive();
    write_outbox(sum, inbox, rank, first, base, memory);
    if (SPLIT > 1) {
        cluster_wait();
        send_outbox(inbox, rank, first, base);
    }
}

// Waits for the sums of other blocks.
DEVICE void wait_for_inbox(const Inbox& inbox)
{
    if constexpr (SPLIT > 1) {
        mbarrier_wait(inbox.full, 0);
        __syncwarp();
        cluster_arrive();  // this block's outbox has been sent
    }
}

// Ends a producer warp, which takes part in the cluster's barriers.
DEVICE void end_producer(const Inbox& inbox)
{
    __syncwarp();
    launch_dependents();  // earlier, they would take resources from this kernel
    if (SPLIT > 1) {
        if (!inbox.is_apart) cluster_arrive();
        cluster_wait();
        cluster_arrive();
    }
}

// Stores a vector to a cell of the feature map that is pooled to pixel m; its sides are even.
template <int BYTES> DEVICE void store_kept(const KernelArgs& p, int m, int cell, int n, const Bits<BYTES>& vector)
{
    const int line = divide(m, p.by_out_w);
    const int pixel = 2 * (m + line * p.out_w) + cell / 2 * 2 * p.out_w + cell % 2;
    store_words(p.kept + (size_t)pixel * p.kept_pitch + n, vector.word);
}

// Issues the load of eight neighbouring residuals. Without WHOLE they are loaded one by one later.
DEVICE void issue_residual_load(Eight& residual, const KernelArgs& p, int m, int n)
{
    if (WHOLE && RESIDUAL) issue_residual_load(residual.word, p, m, n, m >= 0 && n < p.filters);
}

// Scales integer sums and applies the first activation.
DEVICE void finish_sums(float (&x)[8], const float* columns)
{
    if (MODE == 4) scale_sums(x, columns);
    activate_all(KIND, x);
}

// Adds the partial sums of the columns that this block owns and runs the epilogue. A thread takes
// one row of a column group after another, neighbouring threads neighbouring groups. Instructions
// that run once come from the L2, so the code is short instead of unrolled. `sums` is the inbox;
// pixel_of(row) is negative past the end.
template <typename PixelOf> DEVICE void reduce_and_finish(const Inbox& inbox, const float* bias,
    const KernelArgs& p, int n0, const unsigned char* sums, PixelOf pixel_of)
{
    const int shift = inbox.count > 1 ? 32 - __clz(inbox.count - 1) : 0;
    const int stride = 128 * CONSUMERS;
    auto group_of = [&](int item) { return item & ((1 << shift) - 1); };
    auto n_of = [&](int item) { return n0 + (inbox.first + group_of(item)) * 8; };
    auto pixel_at = [&](int item) {  // negative if there is no such row or column group
        const int row = item >> shift;
        const bool exists = row < BM / CELLS && group_of(item) < inbox.count && n_of(item) < p.filters;
        return exists ? pixel_of(row) : -1;
    };
    Eight residual;
    issue_residual_load(residual, p, pixel_at(threadIdx.x), n_of(threadIdx.x));
    wait_for_inbox(inbox);
#pragma unroll 1
    for (int item = threadIdx.x; item >> shift < BM / CELLS; item += stride) {
        const Eight more = residual;
        issue_residual_load(residual, p, pixel_at(item + stride), n_of(item + stride));
        const int m = pixel_at(item);
        if (m < 0) continue;
        const int n = n_of(item);
        const int row = item >> shift;
        const float* columns = bias + (n - n0) * COLUMN_FLOATS;
        float x[8];
        UNROLL(cell, CELLS) {
            const int rows = cell * (ROW_GROUPS / CELLS) + row / 16;
            const unsigned char* from = sums + (rows * inbox.count + group_of(item)) * GROUP_BYTES +
                row % 8 * 64 + row % 16 / 8 * 8;
            Sum sum[8];
            UNROLL(c, 8) sum[c] = MODE == 4 ? 0 : columns[c];
#pragma unroll 4
            for (int r = 0; r < SPLIT; ++r) {
                UNROLL(c, 4) {
                    const TwoSums part = *reinterpret_cast<const TwoSums*>(from + c * 16);
                    sum[c * 2] += part.v[0];
                    sum[c * 2 + 1] += part.v[1];
                }
                from += ROW_GROUPS * inbox.count * GROUP_BYTES;
            }
            float y[8];
            UNROLL(c, 8) y[c] = sum[c];
            if (KEPT) finish_sums(y, columns);
            UNROLL(c, 8) x[c] = cell ? fmaxf(x[c], y[c]) : y[c];
            if constexpr (KEPT) store_kept(p, m, cell, n, finished_vector(y, more, p));
        }
        if (!KEPT) finish_sums(x, columns);
        if constexpr (WHOLE) {
            Eight vector = finished_vector(x, more, p);
#if YOLO
            yolo_vector(vector, p, yolo_mask_at<8>(n, p));
#endif
            store_upsampled(p, m, n, vector);
        } else {
            const int count = min(p.filters - n, 8);
            if (RESIDUAL) add_residual(x, p.residual + (size_t)m * p.residual_pitch + n, count);
            store_results(x, p, m, n, count);
        }
    }
    __syncwarp();
}
