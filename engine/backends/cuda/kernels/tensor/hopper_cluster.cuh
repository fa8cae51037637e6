// A sum over k that the blocks of a cluster share: each adds up a part of it for all columns of the tile,
// posts its sums to those that own the columns, and finishes its own, always in the order of ranks, so
// that a result never changes from run to run.
//
// What is posted is on its way while a block does something else, and a barrier knows when all has come:
// nobody waits for a neighbour's answer, or for the memory of the whole card to settle, as at a barrier of
// the cluster that makes stores seen. The inbox lies apart, where shared memory has room for it: else in
// place of the ring, and nobody posts before all have read theirs.
#pragma once
#include "hopper_places.cuh"

#define EIGHTS (BN / 8)       // of the columns of a tile
#define AT_ONCE 2             // of what a thread finishes: two rows, eight further, of an eight
#define LINES (8 / OUT_PACK)  // of an eight

// Sums of all ranks, of the columns that this block owns. Of a rank, of two rows that are eight apart: four
// pairs of columns of every eight, the first of all eights, the second, ...; of a pair both rows side by side.
struct Inbox {
    unsigned at, full;  // full: a barrier
    int first, count;   // eights that this block owns
    int most;           // that any block owns
};

__device__ __forceinline__ int first_eight(const Problem& p, int rank)
{
    return divide(rank * EIGHTS, p.by_split);
}

__device__ __forceinline__ Inbox inbox_at(unsigned at, unsigned full, const Problem& p, int rank)
{
    const int first = first_eight(p, rank);
    return {at, full, first, first_eight(p, rank + 1) - first, divide(EIGHTS + p.split - 1, p.by_split)};
}

__device__ __forceinline__ void expect_sums(const Inbox& inbox, const Problem& p)
{
    barrier_init(inbox.full, 1);
    barrier_expect(inbox.full, p.split * BM * inbox.count * 8 * 4);
}

// Nobody posts to a block that has not begun, or whose ring is still read where the inbox is in its place.
__device__ __forceinline__ void wait_for_inboxes(const Problem& p)
{
    cluster_wait();
    if (p.inbox) return;
    cluster_arrive();
    cluster_wait();
}

// A warp's rows, from first_row of the tile on, and 64 further.
__device__ __forceinline__ void post_sums(const float (&sum)[BLOCKS_OF_ROWS][BN / 2], const Problem& p,
                                          const Inbox& inbox, int rank, int first_row)
{
    const int lane = threadIdx.x % 32;
    const int row = (rank * BM + first_row) / 2 + lane / 4;  // and its partner
    const unsigned own = inbox.at + (row * 4 + lane % 4) * inbox.most * 16;
    const unsigned next = 32 * 4 * inbox.most * 16;  // block of rows
    unsigned there = neighbour(own, 0);
    unsigned full = neighbour(inbox.full, 0);
    int owner = 0;
    int end = first_eight(p, 1);
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j) {
        while (j == end) {
            there = neighbour(own, ++owner);
            full = neighbour(inbox.full, owner);
            end = first_eight(p, owner + 1);
        }
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
            const float* x = sum[i] + j * 4;
            post(there + i * next, full, make_float4(x[0], x[1], x[2], x[3]));
        }
        there += 16;
    }
}

// The consumers finish the columns that their block owns, lanes side by side eights side by side.
__device__ __forceinline__ void finish_share(const Inbox& inbox, const float* bias, const Problem& p,
                                             int m0, int n0, const unsigned char* memory)
{
    const float4* sums = reinterpret_cast<const float4*>(memory);
    const int shift = inbox.count > 1 ? 32 - __clz(inbox.count - 1) : 0;
    const int stride = 128 * CONSUMERS;
    const int total = BM / 2 << shift;
    auto eight_of = [&](int item) { return item & ((1 << shift) - 1); };
    auto row_of = [&](int item, int low) {
        const int pair = item >> shift;
        return pair / 8 * 16 + pair % 8 + low * 8;
    };
    auto n_of = [&](int item) { return n0 + (inbox.first + eight_of(item)) * 8; };
    auto is_there = [&](int item, int low) {
        return item < total && eight_of(item) < inbox.count && m0 + row_of(item, low) < p.pixels &&
               n_of(item) < p.filters;
    };
    auto residual_of = [&](int item, int low) {
        return p.residual + (size_t)(m0 + row_of(item, low)) * p.residual_pitch + n_of(item);
    };
    Line residual[AT_ONCE][2][LINES];
    auto ask_residuals = [&](int first) {
        if constexpr (WHOLE) {
#pragma unroll
            for (int i = 0; i < AT_ONCE * 2; ++i) {
                const int item = first + i / 2 * stride;
                if (!p.residual || !is_there(item, i % 2)) continue;
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    const result* from = residual_of(item, i % 2) + l * OUT_PACK;
                    residual[i / 2][i % 2][l] = ask_line<16>(from);
                }
            }
        }
    };
    ask_residuals(threadIdx.x);
    barrier_wait(inbox.full, 0);
#pragma unroll 1
    for (int first = threadIdx.x; first < total; first += AT_ONCE * stride) {
        if (first >= AT_ONCE * stride) ask_residuals(first);
        float x[AT_ONCE][2][8];
        const float4* from[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int item = min(first + i * stride, total - 1);
            const int eight = min(eight_of(item), inbox.count - 1);
            const float* start = bias + (inbox.first + eight) * 8;
#pragma unroll
            for (int c = 0; c < 8; ++c) x[i][0][c] = x[i][1][c] = start[c];
            from[i] = sums + (item >> shift) * 4 * inbox.most + eight;
        }
#pragma unroll 1
        for (int r = 0; r < p.split; ++r) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float4 part = from[i][c * inbox.most];
                    x[i][0][c * 2] += part.x, x[i][0][c * 2 + 1] += part.y;
                    x[i][1][c * 2] += part.z, x[i][1][c * 2 + 1] += part.w;
                }
                from[i] += BM / 2 * 4 * inbox.most;
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; ++i) {
            const int item = first + i / 2 * stride;
            const int low = i % 2;
            if (!is_there(item, low)) continue;
            float(&y)[8] = x[i / 2][low];
            activate_all(KIND, y);
            const int m = m0 + row_of(item, low);
            const int n = n_of(item);
            if constexpr (WHOLE) {
#pragma unroll
                for (int l = 0; l < LINES; ++l) {
                    float z[OUT_PACK];
#pragma unroll
                    for (int c = 0; c < OUT_PACK; ++c) z[c] = y[l * OUT_PACK + c];
                    Line line = line_of(z);
                    finish_line(line, residual[i / 2][low][l], p.residual);
#if YOLO
                    make_yolo(line, p, bits_from(n + l * OUT_PACK, p));
#endif
                    store_line(p, m, n + l * OUT_PACK, line);
                }
            } else {
                const int count = min(p.filters - n, 8);
                if (p.residual) add_residual(y, residual_of(item, low), count);
                finish(y, p, m, n, count);
            }
        }
    }
}
