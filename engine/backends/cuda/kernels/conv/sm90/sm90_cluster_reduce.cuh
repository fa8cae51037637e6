// A sum over k that the blocks of a cluster share: each adds up a part of it for all columns of the tile,
// sends its sums to those that own the columns, and finishes its own, always in the order of ranks, so
// that a result never changes from run to run.
//
// Sums lie in an outbox, by owner, and the copy engine brings them: stores into another block's memory,
// each lane's by itself, take far longer. A barrier there knows when all has come. The inbox lies apart,
// where shared memory has room for it: else behind the outbox in place of the ring, and nobody sends
// before all have read theirs.
#pragma once
#include "sm90_epilogue.cuh"

#define EIGHTS (BN / 8)       // of the columns of a tile
#define SIXTEENS (BM / 16)    // of its rows, one for each warp at a time
#define AT_ONCE 2             // of what a thread finishes: two rows, eight further, of an eight
#define LINES (8 / OUT_PACK)  // of an eight
// Of sixteen rows: four floats of each lane, as wgmma leaves them; the rest keeps eights off each other's
// banks.
#define EIGHT_BYTES (32 * 16 + 16)

// Sums of all ranks, of the columns that this block owns: of a rank, of sixteen rows, of an eight.
struct Inbox {
    unsigned at, full;  // full: a barrier
    int first, count;   // eights that this block owns
    bool is_apart;
};

__device__ __forceinline__ int first_eight(const Problem& p, int rank)
{
    return divide(rank * EIGHTS, p.by_split);
}

// `room` bytes are the ring's, or of what takes its place.
__device__ __forceinline__ Inbox inbox_at(unsigned base, unsigned full, const Problem& p, int rank,
                                          int room)
{
    const int first = first_eight(p, rank);
    return {base + p.inbox, full, first, first_eight(p, rank + 1) - first, p.inbox >= room};
}

__device__ __forceinline__ void expect_sums(const Inbox& inbox, const Problem& p)
{
    barrier_init(inbox.full, 1);
    barrier_expect(inbox.full, (p.split - 1) * SIXTEENS * inbox.count * EIGHT_BYTES);
}

// In an outbox, where an owner's columns begin: this block's own are not there.
__device__ __forceinline__ unsigned outbox_of(unsigned base, const Inbox& inbox, int first)
{
    return base + (first - (first > inbox.first ? inbox.count : 0)) * SIXTEENS * EIGHT_BYTES;
}

// A warp's sums, of the sixteen rows `first` and of each fourth behind them: into the outbox, and its own
// share into its own inbox. `memory` is what is addressed from `base` on.
__device__ __forceinline__ void put_sums(const float (&sum)[BLOCKS_OF_ROWS][BN / 2], const Problem& p,
                                         const Inbox& inbox, int rank, int first, unsigned base,
                                         unsigned char* memory)
{
    int owner = -1;
    int begin = 0;
    int end = 0;
    unsigned to = 0;
    unsigned next = 0;  // block of rows
#pragma unroll
    for (int j = 0; j < EIGHTS; ++j) {
        while (j == end) {
            begin = end;
            end = first_eight(p, ++owner + 1);
            const bool is_own = owner == rank;
            const unsigned start = is_own ? inbox.at + rank * SIXTEENS * inbox.count * EIGHT_BYTES
                                          : outbox_of(base, inbox, begin);
            to = start - base + first * (end - begin) * EIGHT_BYTES + threadIdx.x % 32 * 16;
            next = 4 * (end - begin) * EIGHT_BYTES;
        }
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
            const float* x = sum[i] + j * 4;
            *reinterpret_cast<float4*>(memory + to + i * next) = make_float4(x[0], x[1], x[2], x[3]);
        }
        to += EIGHT_BYTES;
    }
    copies_may_read();
    __syncwarp();
}

// What a warp has put into the outbox goes to its owners, each by a lane.
__device__ __forceinline__ void send_sums(const Problem& p, const Inbox& inbox, int rank, int first,
                                          unsigned base)
{
    const int owner = threadIdx.x % 32;
    if (owner < p.split && owner != rank) {
        const int begin = first_eight(p, owner);
        const int bytes = (first_eight(p, owner + 1) - begin) * EIGHT_BYTES;
        const unsigned from = outbox_of(base, inbox, begin);
        const unsigned to = neighbour(inbox.at, owner) + rank * SIXTEENS * bytes;
        const unsigned full = neighbour(inbox.full, owner);
        for (int i = 0; bytes > 0 && i < BLOCKS_OF_ROWS; ++i) {
            const int before = (first + i * 4) * bytes;
            copy_to_neighbour(to + before, from + before, bytes, full);
        }
    }
    __syncwarp();
}

// The consumers finish the columns that their block owns, lanes side by side eights side by side.
// `sums` is the inbox.
__device__ __forceinline__ void finish_share(const Inbox& inbox, const float* bias, const Problem& p,
                                             int m0, int n0, const unsigned char* sums)
{
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
    cluster_arrive();  // what came has left its block
#pragma unroll 1
    for (int first = threadIdx.x; first < total; first += AT_ONCE * stride) {
        if (first >= AT_ONCE * stride) ask_residuals(first);
        float x[AT_ONCE][2][8];
        const unsigned char* from[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int item = min(first + i * stride, total - 1);
            const int eight = min(eight_of(item), inbox.count - 1);
            const float* start = bias + (inbox.first + eight) * 8;
#pragma unroll
            for (int c = 0; c < 8; ++c) x[i][0][c] = x[i][1][c] = start[c];
            const int pair = item >> shift;
            from[i] = sums + (pair / 8 * inbox.count + eight) * EIGHT_BYTES + pair % 8 * 64;
        }
#pragma unroll 1
        for (int r = 0; r < p.split; ++r) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float4 part = reinterpret_cast<const float4*>(from[i])[c];
                    x[i][0][c * 2] += part.x, x[i][0][c * 2 + 1] += part.y;
                    x[i][1][c * 2] += part.z, x[i][1][c * 2 + 1] += part.w;
                }
                from[i] += SIXTEENS * inbox.count * EIGHT_BYTES;
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
    __syncwarp();
}
