// A host implementation of kernels/conv/mma/mma_ptx.cuh.
//
// Copies into shared memory arrive as late as the kernel allows, and memory that was never written is
// NaN. Fragments are distributed over the lanes as the PTX manual describes.
#pragma once
#include "common.cuh"

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

inline float half_at(unsigned word, int index)
{
#ifdef STORE_HALF
    return to_float(half{(uint16_t)(word >> 16 * index)});
#else
    return 0.f;
#endif
}

// Drops the bits below tf32's precision, as the hardware does.
inline float tf32_of(unsigned word) { return __uint_as_float(word & 0xFFFFE000u); }

inline void mma_step(float (&sum)[4], const unsigned (&a)[4], unsigned low_k, unsigned high_k)
{
    const unsigned words[] = {a[0], a[1], a[2], a[3], low_k, high_k};
    const auto lanes = show(words, 6);
    const int lane = running % 32;
    const int depth = HALVES ? 16 : 8;
    const int each = HALVES ? 2 : 1;  // values of a word
    double left[2][depth], right[2][depth];  // two rows and two columns
    for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < depth; ++k) {
            const bool is_high = k >= depth / 2;
            const int holder = k % (depth / 2) / each;
            const unsigned of_row = lanes[lane / 4 * 4 + holder][i + 2 * is_high];
            const unsigned of_column = lanes[(lane % 4 * 2 + i) * 4 + holder][4 + is_high];
            left[i][k] = HALVES ? half_at(of_row, k % 2) : tf32_of(of_row);
            right[i][k] = HALVES ? half_at(of_column, k % 2) : tf32_of(of_column);
        }
    }
    for (int i = 0; i < 4; ++i) {
        double total = sum[i];
        for (int k = 0; k < depth; ++k) total += left[i / 2][k] * right[i % 2][k];
        sum[i] = (float)total;
    }
}

inline void mma_step(int (&sum)[4], const unsigned (&a)[4], unsigned low_k, unsigned high_k)
{
    const unsigned words[] = {a[0], a[1], a[2], a[3], low_k, high_k};
    const auto lanes = show(words, 6);
    const int lane = running % 32;
    const auto byte = [](unsigned word, int index) { return (int)(signed char)(word >> 8 * index); };
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8;
        const int column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 32; ++k) {
            const unsigned left = lanes[row % 8 * 4 + k % 16 / 4][row / 8 + k / 16 * 2];
            const unsigned right = lanes[column * 4 + k % 16 / 4][4 + k / 16];
            sum[i] += byte(left, k % 4) * byte(right, k % 4);
        }
    }
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
