// A host implementation of kernels/conv/mma/mma_ptx.cuh.
//
// Copies into shared memory arrive as late as the kernel allows, and memory that was never written is
// NaN. Fragments are distributed over the lanes as the PTX manual describes.
#pragma once
#include "common.cuh"

// A function that becomes a part of those that call it, FAST ones also.
#define QUICK __attribute__((always_inline)) inline
// A function that takes much of the time: the others are compiled in haste.
#define FAST __attribute__((noinline, optimize("O2"))) static

struct uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline void __threadfence() {}
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline void __stcg(T* p, T x) { *p = x; }

struct Copy {
    unsigned to;
    const void* from;
    bool exists;
    int group;
};

// Words that the lanes of a warp exchange; double-buffered, because the fastest lane may already write
// the next ones.
struct Shown {
    unsigned words[2][32][8];
    unsigned sums[2][32][4];
    Meeting meeting;
};

static Room<Shown> shown;

// What a thread has yet to copy, in the order in which it asked for it.
static const int MOST_COPIES = 256;
struct Copies {
    Copy waiting[MOST_COPIES];
    int first, count, group;
};
static Room<Copies> copies;

// The blocks of a cluster run together, each with its own shared memory, which later clusters reuse.
struct Block {
    Room<double> room;
    unsigned char* memory;
    Meeting meeting;
};
static Block cluster[8];
static int cluster_size;
static int block_rank;               // in its cluster, of the block whose thread runs
static unsigned char* block_memory;  // of that block

inline void __syncwarp() { meet(shown[running / 32].meeting, 32); }
inline void sync_block() { meet(cluster[block_rank].meeting, blockDim.x); }

// Publishes `count` words to the warp and returns those of all lanes.
inline const unsigned (*show(const unsigned* words, int count))[8]
{
    Shown& warp = shown[running / 32];
    const int side = warp.meeting.generation % 2;
    std::memcpy(warp.words[side][running % 32], words, 4 * count);
    __syncwarp();
    return warp.words[side];
}

inline bool __all_sync(unsigned, bool is_so)
{
    const unsigned word = is_so;
    const auto lanes = show(&word, 1);
    for (int lane = 0; lane < 32; ++lane) {
        if (!lanes[lane][0]) return false;
    }
    return true;
}

// ---- the functions of mma_ptx.cuh

inline unsigned shared_address(const void* p)
{
    return (unsigned)(static_cast<const unsigned char*>(p) - block_memory);
}
inline void launch_dependents() {}
inline void wait_for_previous_kernel() {}

inline void copy_now(unsigned to, const void* from, bool exists)
{
    if (exists) {
        std::memcpy(block_memory + to, from, 16);
    } else {
        std::memset(block_memory + to, 0, 16);
    }
}

#ifdef HELD_COPIES
inline void cp_async_16(unsigned, const void* from, bool exists, uint4& held)
{
    held = {};
    if (exists) std::memcpy(&held, from, 16);
}
inline void store_held_16(unsigned to, const uint4& held) { copy_now(to, &held, true); }
inline void cp_async_commit() {}
template <int N> inline void cp_async_wait() {}
#else
inline void cp_async_16(unsigned to, const void* from, bool exists, uint4&)
{
    Copies& all = copies[running];
    if (all.count == MOST_COPIES) std::abort();
    all.waiting[(all.first + all.count++) % MOST_COPIES] = {to, from, exists, all.group};
}
inline void store_held_16(unsigned, const uint4&) {}
inline void cp_async_commit() { ++copies[running].group; }
template <int N> inline void cp_async_wait()
{
    Copies& all = copies[running];
    for (; all.count && all.waiting[all.first].group < all.group - N; --all.count) {
        const Copy& each = all.waiting[all.first];
        copy_now(each.to, each.from, each.exists);
        all.first = (all.first + 1) % MOST_COPIES;
    }
}
#endif

inline void ldmatrix_x4(unsigned (&r)[4], unsigned address)
{
    const auto lanes = show(&address, 1);
    const int lane = running % 32;
    for (int i = 0; i < 4; ++i) {
        std::memcpy(&r[i], block_memory + lanes[i * 8 + lane / 4][0] + lane % 4 * 4, 4);
    }
}

QUICK float half_at(unsigned word, int index)
{
#ifdef STORE_HALF
    return half_values.of_bits[(uint16_t)(word >> 16 * index)];
#else
    return 0.f;
#endif
}

// Drops the bits below tf32's precision, as the hardware does.
QUICK float tf32_of(unsigned word) 
{
    word &= 0xFFFFE000u;
    float x;
    std::memcpy(&x, &word, 4);
    return x;
}

// Value `k` of the two words that lanes have of a row or of a column: `low` of its first half of k.
template <class Value> QUICK Value value_at(const unsigned (*lanes)[8], int first, int low, int apart, int k)
{
    const int each = std::is_same_v<Value, int> ? 4 : HALVES ? 2 : 1;  // values of a word
    const unsigned word = lanes[first + k / each % 4][low + k / each / 4 * apart];
    if constexpr (std::is_same_v<Value, int>) return (signed char)(word >> 8 * (k % 4));
    return HALVES ? half_at(word, k % 2) : tf32_of(word);
}

// The product of a warp: 16 rows by 8 columns, which one lane computes for all of them, because every
// value is of several lanes.
template <class Value, class Sum> FAST void multiply(Shown& warp, int side)
{
    typedef Value Columns __attribute__((vector_size(8 * sizeof(Value))));
    const int depth = std::is_same_v<Value, int> ? 32 : HALVES ? 16 : 8;
    const auto lanes = warp.words[side];
    Columns right[depth];
    for (int k = 0; k < depth; ++k) {
        for (int column = 0; column < 8; ++column) {
            right[k][column] = value_at<Value>(lanes, column * 4, 4, 1, k);
        }
    }
    for (int row = 0; row < 16; ++row) {
        Sum sums[8];
        for (int pair = 0; pair < 4; ++pair) {
            std::memcpy(sums + pair * 2, warp.sums[side][row % 8 * 4 + pair] + row / 8 * 2, 8);
        }
        Columns total;
        for (int column = 0; column < 8; ++column) total[column] = sums[column];
        for (int k = 0; k < depth; ++k) total += value_at<Value>(lanes, row % 8 * 4, row / 8, 2, k) * right[k];
        for (int column = 0; column < 8; ++column) sums[column] = (Sum)total[column];
        for (int pair = 0; pair < 4; ++pair) {
            std::memcpy(warp.sums[side][row % 8 * 4 + pair] + row / 8 * 2, sums + pair * 2, 8);
        }
    }
}

template <class Sum> inline void mma_step(Sum (&sum)[4], const unsigned (&a)[4], unsigned low_k, unsigned high_k)
{
    const unsigned words[] = {a[0], a[1], a[2], a[3], low_k, high_k};
    Shown& warp = shown[running / 32];
    const int side = warp.meeting.generation % 2;
    std::memcpy(warp.words[side][running % 32], words, sizeof words);
    std::memcpy(warp.sums[side][running % 32], sum, sizeof sum);
    if (warp.meeting.count == 31) {
        multiply<std::conditional_t<std::is_same_v<Sum, int>, int, double>, Sum>(warp, side);
    }
    __syncwarp();
    std::memcpy(sum, warp.sums[side][running % 32], sizeof sum);
}

inline unsigned round_to_tf32(float x) { return (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u; }

// ---- blocks

// Runs a grid cluster by cluster, beginning with cluster `first` and wrapping around.
static void run_warps(int blocks, int threads, int shared, int together, int first,
                      Work kernel)
{
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    if (together > 8) std::abort();
    cluster_size = together;
    const int clusters = blocks / together;
    for (int each = 0; each < clusters; ++each) {
        for (int rank = 0; rank < together; ++rank) {
            Block& block = cluster[rank];
            block.room.fill(shared / 8 + 32, 0xFF);
            const uintptr_t begin = reinterpret_cast<uintptr_t>(block.room.values);
            block.memory = reinterpret_cast<unsigned char*>((begin + 127) & ~127ull);
            block.meeting = {};
        }
        shown.fill(threads / 32 * together, 0);
        copies.reserve(threads * together);
        for (int i = 0; i < threads * together; ++i) copies[i].first = copies[i].count = copies[i].group = 0;
        run_fibers(threads * together, kernel, [=](int thread) {
            block_rank = thread / threads;
            block_memory = cluster[block_rank].memory;
            blockIdx.x = (each + first) % clusters * together + block_rank;
            threadIdx.x = thread % threads;
        });
    }
}
