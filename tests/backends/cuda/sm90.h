// A host implementation of kernels/conv/sm90/sm90_ptx.cuh and of the wgmma wrappers, on top of warps.h.
// Copies and products complete at once: it tests the layout of data and that no barrier deadlocks.
#pragma once
struct uint2 {
    unsigned x, y;
};
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int lanes)
{
    const int other = running % 32 ^ lanes;
    return show(&x, 1)[other][0];
}
inline unsigned __shfl_sync(unsigned, unsigned x, int lane) { return show(&x, 1)[lane][0]; }

inline int warp_index() { return threadIdx.x / 32; }
inline bool is_elected() { return running % 32 == 0; }

// ---- addresses of a cluster

// The upper bits are the rank of the block that owns the memory, plus one; 0 is the block's own memory.
inline unsigned map_to_rank(unsigned address, int rank)
{
    return (address & 0xFFFFFF) | (unsigned)(rank + 1) << 24;
}
inline unsigned anywhere(unsigned address)
{
    return address >> 24 ? address : map_to_rank(address, block_rank);
}
inline unsigned char* memory_at(unsigned address)
{
    const unsigned at = anywhere(address);
    return cluster[(at >> 24) - 1].memory + (at & 0xFFFFFF);
}

// ---- mbarriers

struct Barrier {
    int arrivals, pending, phase;
    long long bytes;
};
static Barrier barriers[8][1 << 15];  // by the block that has it, and by its place of 8 bytes
inline Barrier& barrier_place(unsigned address)
{
    const unsigned at = anywhere(address);
    return barriers[(at >> 24) - 1][(at & 0xFFFFFF) / 8];
}
inline Barrier& barrier_at(unsigned address)
{
    Barrier& barrier = barrier_place(address);
    if (address % 8 || !barrier.arrivals) std::abort();  // not initialised
    return barrier;
}

inline void barrier_moves_on(Barrier& barrier)
{
    if (barrier.pending || barrier.bytes) return;
    barrier.phase ^= 1;
    barrier.pending = barrier.arrivals;
}
inline void mbarrier_init(unsigned at, int arrivals)
{
    barrier_place(at) = {arrivals, arrivals, 0, 0};
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(unsigned at)
{
    --barrier_at(at).pending;
    barrier_moves_on(barrier_at(at));
}
inline void mbarrier_expect_bytes(unsigned at, int bytes)
{
    barrier_at(at).bytes += bytes;
    mbarrier_arrive(at);
}
inline void bytes_have_come(unsigned at, int bytes)
{
    barrier_at(at).bytes -= bytes;
    barrier_moves_on(barrier_at(at));
}
inline void mbarrier_wait(unsigned at, int phase)
{
    for (int turns = 0; barrier_at(at).phase == (phase & 1); ++turns) {
        if (turns == 20000) std::abort();  // a deadlock
        wait_a_turn();
    }
}
inline void named_barrier(int barrier, int threads)
{
    static Meeting meetings[8][16];  // of each block of a cluster
    meet(meetings[block_rank][barrier], threads);
}

// ---- TMA

struct TensorMap {  // of what tests/backends/cuda/tensor_host.py says
    const unsigned char* from;
    long long is_tf32, value_bytes, channels, width, height, rows, row_bytes;
    long long first_x, first_y, last_x, last_y, stride_x, stride_y;
    int box_channels, box_pixels, box_width, box_height;
};
inline void prefetch_tensor_map(const TensorMap*) {}
inline void prefetch_l2(const void*, unsigned) {}

// Swizzles chunks of 16 bytes by the line of 128 bytes that they are in.
QUICK unsigned swizzled(unsigned at, int row_bytes = ROW_BYTES)
{
    return at ^ (at >> 7 & (row_bytes / 16 - 1)) << 4;
}

inline void copy_pixel(unsigned to, const TensorMap& map, int channel, int x, int y, int row)
{
    const bool is_pixel = x >= 0 && x < map.width && y >= 0 && y < map.height && row < map.rows;
    for (int c = 0; c < map.box_channels; ++c) {
        unsigned char value[4] = {};
        if (is_pixel && channel + c < map.channels) {
            const long long pixel = (row * map.height + y) * map.width + x;
            const long long at = pixel * map.row_bytes + (channel + c) * map.value_bytes;
            std::memcpy(value, map.from + at, map.value_bytes);
        }
        if (map.is_tf32) {
            float x;
            std::memcpy(&x, value, 4);
            const unsigned bits = round_to_tf32(x);
            std::memcpy(value, &bits, 4);
        }
        const unsigned at = to + c * map.value_bytes;
        std::memcpy(memory_at(swizzled(at)), value, map.value_bytes);
    }
}
inline void tma_load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int channel, int x,
                         int y, int row, int tap_x, int tap_y)
{
    for (int pixel = 0; pixel < map->box_pixels; ++pixel) {
        copy_pixel(to + pixel * ROW_BYTES, *map, channel, x + tap_x, y + tap_y, row);
        x += map->stride_x;
        if (x <= map->last_x) continue;
        x = map->first_x;
        y += map->stride_y;
        if (y <= map->last_y) continue;
        y = map->first_y;
        ++row;
    }
    bytes_have_come(barrier, map->box_pixels * ROW_BYTES);
}
inline void tma_load_box(unsigned to, const TensorMap* map, unsigned barrier, int channel, int x, int y,
                     int row)
{
    for (int down = 0; down < map->box_height; ++down) {
        for (int right = 0; right < map->box_width; ++right) {
            const unsigned pixel = down * map->box_width + right;
            copy_pixel(to + pixel * ROW_BYTES, *map, channel, x + right * (int)map->stride_x,
                       y + down * (int)map->stride_y, row);
        }
    }
    bytes_have_come(barrier, map->box_height * map->box_width * ROW_BYTES);
}
inline void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier)
{
    std::memcpy(block_memory + to, from, bytes);
    bytes_have_come(barrier, bytes);
}

// ---- wgmma

#define DEPTH (MODE == 4 ? 32 : MODE == 0 ? 16 : 8)

struct Matrix {
    unsigned address;
    int row, apart, across;  // bytes; across: to the next 16 of k, zero where they follow, swizzled

    // Reads the values of a row, which are 32 bytes, sixteen at a time.
    QUICK void read(int i, float* values) const
    {
        const unsigned line = address + i / 8 * apart + i % 8 * row;
        for (int chunk = 0; chunk < 2; ++chunk) {
            const unsigned at = across ? line + chunk * across : swizzled(line + chunk * 16, row);
            unsigned words[4];
            std::memcpy(words, block_memory + at, 16);
            for (int j = 0; j < DEPTH / 2; ++j) *values++ = value_of(words, j);
        }
    }
    QUICK static float value_of(const unsigned (&words)[4], int j)
    {
        if (MODE == 4) return (signed char)(words[j / 4] >> j % 4 * 8);
        return MODE == 0 ? half_at(words[j / 2], j % 2) : tf32_of(words[j]);
    }
};
template <int BYTES = ROW_BYTES> inline Matrix matrix_descriptor(unsigned address, int apart = 8)
{
    return {address, BYTES, apart * BYTES, 0};
}
inline Matrix unswizzled_descriptor(unsigned address, int across, int apart) { return {address, 16, apart, across}; }
inline Matrix advance_descriptor(Matrix matrix, int bytes)
{
    matrix.address += bytes;
    return matrix;
}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int N> inline void wgmma_wait() {}

typedef std::conditional_t<MODE == 4, int, float> Sum;

// A lane has rows lane / 4 and lane / 4 + 8 of its warp's 16, and pairs of every eight columns.
FAST void add_products(Sum* sum, int count, const float (&rows)[2][DEPTH], const Matrix& b)
{
    const int lane = running % 32;
    for (int first = 0; first < count; first += 4) {
        for (int j = first; j < first + 2; ++j) {
            float values[DEPTH];
            b.read(first * 2 + lane % 4 * 2 + j % 2, values);
            double one = sum[j], other = sum[j + 2];
            for (int k = 0; k < DEPTH; ++k) {
                one += (double)rows[0][k] * values[k];
                other += (double)rows[1][k] * values[k];
            }
            sum[j] = (Sum)one;
            sum[j + 2] = (Sum)other;
        }
    }
}
FAST void add_products_of_shared(Sum* sum, int count, const Matrix& a, const Matrix& b)
{
    const int first = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float rows[2][DEPTH];
    for (int i = 0; i < 2; ++i) a.read(first + i * 8, rows[i]);
    add_products(sum, count, rows, b);
}
template <int N> inline void wgmma(Sum (&sum)[N], const Matrix& a, const Matrix& b)
{
    static_assert(N % 4 == 0, "both rows of two columns");
    add_products_of_shared(sum, N, a, b);
}
template <int N>
inline void wgmma_registers(Sum (&sum)[N], const unsigned (&a)[4], const Matrix& b)
{
    const auto lanes = show(a, 4);
    const int first = running % 32 / 4 * 4;
    float rows[2][DEPTH] = {};
    for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < 8; ++k) rows[i][k] = tf32_of(lanes[first + k % 4][i + k / 4 * 2]);
    }
    static_assert(N % 4 == 0, "both rows of two columns");
    add_products(sum, N, rows, b);
}
template <int N>
inline void wgmma_registers_zeroed(Sum (&sum)[N], const unsigned (&a)[4], const Matrix& b)
{
    for (Sum& each : sum) each = 0;
    wgmma_registers(sum, a, b);
}
inline float read_shared(unsigned at)
{
    float x;
    std::memcpy(&x, block_memory + at, 4);
    return x;
}
// The last warp of four is slow here, so that the others get far ahead of it.
template <int N, typename Word> inline void store_vector(void* to, const Word (&word)[N])
{
    for (int turns = 0; running / 32 % 4 == 3 && turns < 50; ++turns) wait_a_turn();
    std::memcpy(to, word, sizeof word);
}
inline int opaque(int x) { return x; }
inline float opaque(float x) { return x; }
template <int N> inline void issue_load(unsigned (&word)[N], const void* from, bool are_there)
{
    std::memset(word, 0, sizeof word);
    if (are_there) std::memcpy(word, from, sizeof word);
}
inline void stmatrix_x4(unsigned to, const unsigned (&word)[4])
{
    const auto lanes = show(&to, 1);
    const int lane = running % 32;
    for (int i = 0; i < 4; ++i) {
        std::memcpy(block_memory + lanes[i * 8 + lane / 4][0] + lane % 4 * 4, &word[i], 4);
    }
    __syncwarp();
}

// ---- registers and clusters

template <int> inline void setmaxnreg_dec() {}
template <int> inline void setmaxnreg_inc() {}
static Meeting cluster_meeting;
static int cluster_turns[MOST_FIBERS];  // the generation to which each thread came
inline void cluster_arrive()
{
    const int size = blockDim.x * cluster_size;
    cluster_turns[running] = cluster_meeting.generation;
    if (++cluster_meeting.count == size) {
        cluster_meeting.count = 0;
        ++cluster_meeting.generation;
    }
}
inline void cluster_wait()
{
    while (cluster_meeting.generation == cluster_turns[running]) wait_a_turn();
}
inline void fence_async_proxy() {}
inline void bulk_copy_to_rank(unsigned to, unsigned from, int bytes, unsigned barrier)
{
    std::memcpy(memory_at(to), block_memory + from, bytes);
    bytes_have_come(barrier, bytes);
}
