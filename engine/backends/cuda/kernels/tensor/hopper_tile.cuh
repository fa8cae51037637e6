// Products of slices, and finished sums on their way out.
#pragma once
#define ELEMENT_BYTES (MODE == 0 ? 2 : 4)
#define ROW_BYTES (BK * ELEMENT_BYTES)  // 128, 64 or 32: one swizzled row of a slice
#include "divide.cuh"
#include "hopper.cuh"
#include "result.cuh"
#include "wgmma.cuh"

#define STEP_BYTES 32  // one wgmma along k: 16 halves or 8 floats
#define A_BYTES (BM * ROW_BYTES)
#define B_BYTES (BN * ROW_BYTES)
#define WEIGHT_BYTES ((MODE == 2 ? 2 : 1) * B_BYTES)  // high parts, low parts
#define STAGE_BYTES (A_BYTES + WEIGHT_BYTES)
#define BLOCKS_OF_ROWS (BM / 64 / CONSUMERS)  // of 64, for each warpgroup
#define OWN_BIASES ((BN + 128 * CONSUMERS - 1) / (128 * CONSUMERS))  // of a thread
#define PACKS (BN / OUT_PACK)  // of a row: results in 16 bytes
#define ROW_PITCH (BN + 8)  // of stored values, for a warp: keeps fragments off each other's banks

struct Problem {
    const float* bias;
    const result* residual;
    void* out;
    unsigned* flag;
    const unsigned char* weight;
    const unsigned char* next;        // weights of a later layer
    unsigned next_bytes, next_share;  // of all of them, of a block
    int pixels, filters;              // M, N
    int out_h, out_w;
    int taps_x;                       // width of the kernel
    int slices, steps;                // of BK channels: a tap's, all
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
    int out_pitch, residual_pitch;
    int split, tiles_n, is_aligned;
    int is_residual_far;  // larger than what the L2 still has of it
    int entries, box;  // of an anchor, where [yolo]'s own output is to be made
    float scale_x_y;
    Divisor by_split, by_tiles_n, by_out_h, by_out_w, by_slices, by_taps_x;
};

// OUT_PACK results side by side, as words.
typedef Bits<16> Line;

template <int BYTES> struct WordsOf;
template <> struct WordsOf<4> {
    typedef unsigned type;
};
template <> struct WordsOf<8> {
    typedef uint2 type;
};
template <> struct WordsOf<16> {
    typedef uint4 type;
};

// ---- the thread that fetches

struct Origin {  // of a tile: where its windows begin, its slices of weights
    int x, y, row;
    const unsigned char* weight;
};

__device__ __forceinline__ Origin origin_of(const Problem& p, int tile)
{
    const int down = divide(tile, p.by_tiles_n);
    const int m = down * BM;
    const int line = divide(m, p.by_out_w);
    const int row = divide(line, p.by_out_h);
    return {(m - line * p.out_w) * p.stride_x - p.left, (line - row * p.out_h) * p.stride_y - p.top,
            row, p.weight + (size_t)(tile - down * p.tiles_n) * p.steps * WEIGHT_BYTES};
}

// A slice of k: where its channels begin, and its tap. One thread fetches for all others, so it goes
// from slice to slice without a division.
struct Slice {
    int channel, tap_x, tap_y;
};

__device__ __forceinline__ Slice slice_at(const Problem& p, int k)
{
    const int tap = divide(k, p.by_slices);
    const int tap_y = divide(tap, p.by_taps_x);
    return {(k - tap * p.slices) * BK, tap - tap_y * p.taps_x, tap_y};
}

__device__ __forceinline__ void advance(Slice& slice, const Problem& p)
{
    slice.channel += BK;
    if (slice.channel < p.slices * BK) return;
    slice.channel = 0;
    if (++slice.tap_x < p.taps_x) return;
    slice.tap_x = 0;
    ++slice.tap_y;
}

__device__ __forceinline__ void fetch_weights(unsigned stage, unsigned full, const Origin& tile,
                                              int k)
{
    barrier_expect(full, STAGE_BYTES);
    copy_bytes(stage + A_BYTES, tile.weight + (size_t)k * WEIGHT_BYTES, WEIGHT_BYTES, full);
}

__device__ __forceinline__ void fetch_input(unsigned stage, unsigned full, const TensorMap* map,
                                            const Problem& p, const Origin& tile, Slice& slice)
{
    copy_windows(stage, map, full, slice.channel, tile.x, tile.y, tile.row,
                 slice.tap_x * p.dilation_x, slice.tap_y * p.dilation_y);
    advance(slice, p);
}

// ---- the warps that multiply

#if MODE < 2
// One slice: 64 rows of input at `a` times the BN rows of weights at `b`, added to sum.
__device__ __forceinline__ void multiply_slice(float (&sum)[BN / 2], unsigned a, unsigned b)
{
#pragma unroll
    for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
        wgmma(sum, matrix_at(a + step), matrix_at(b + step));
    }
}
#else
__device__ __forceinline__ void multiply_slice(float (&sum)[BN / 2], unsigned a, unsigned b)
{
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const unsigned chunks = ROW_BYTES / 16;
    unsigned high[ROW_BYTES / STEP_BYTES][4], low[ROW_BYTES / STEP_BYTES][4];
#pragma unroll
    for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned at = a + (row + i % 2 * 8) * ROW_BYTES + (step * 2 + i / 2) * 16;
            at ^= (at >> 7 & (chunks - 1)) << 4;  // the copy engine's swizzle
            const float x = read_shared(at + lane % 4 * 4);
            high[step][i] = round_to_tf32(x);
            low[step][i] = round_to_tf32(x - __uint_as_float(high[step][i]));
        }
    }
    float part[BN / 2];
    products_begin();
#pragma unroll
    for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
        const unsigned at = b + step * STEP_BYTES;
        if (step == 0) {
            wgmma_registers_anew(part, low[step], matrix_at(at));
        } else {
            wgmma_registers(part, low[step], matrix_at(at));
        }
        wgmma_registers(part, high[step], matrix_at(at + B_BYTES));
        wgmma_registers(part, high[step], matrix_at(at));
    }
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int j = 0; j < BN / 2; ++j) sum[j] += part[j];
}
#endif

// The biases of a tile: asked for before the products, by one thread each, and put into shared
// memory after them, where every lane finds those of its columns.
__device__ __forceinline__ void ask_biases(float (&own)[OWN_BIASES], const Problem& p, int n0,
                                           int thread)
{
#pragma unroll
    for (int i = 0; i < OWN_BIASES; ++i) {
        const int c = thread + i * 128 * CONSUMERS;
        own[i] = c < BN && n0 + c < p.filters ? p.bias[n0 + c] : 0.f;
    }
}

__device__ __forceinline__ void put_biases(float* bias, const float (&own)[OWN_BIASES], int thread)
{
#pragma unroll
    for (int i = 0; i < OWN_BIASES; ++i) {
        const int c = thread + i * 128 * CONSUMERS;
        if (c < BN) bias[c] = own[i];
    }
}

// A warp's 16 rows lie in its lanes as wgmma leaves them.
__device__ __forceinline__ void add_bias(float (&sum)[BN / 2], const float* bias)
{
#pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
        const float2 pair = *reinterpret_cast<const float2*>(bias + j * 8 + threadIdx.x % 4 * 2);
        sum[j * 4] += pair.x;
        sum[j * 4 + 1] += pair.y;
        sum[j * 4 + 2] += pair.x;
        sum[j * 4 + 3] += pair.y;
    }
}

// ---- results on their way out

// Residuals are read past the multiprocessor's own cache: only the thread that fetches waits for
// the kernel before, and that cache may hold what was there earlier.
template <int V> __device__ __forceinline__ Raw<V, result> ask_residual(const result* from)
{
    typedef typename WordsOf<sizeof(Raw<V, result>)>::type Words;
    const Words words = __ldcg(reinterpret_cast<const Words*>(from));
    return reinterpret_cast<const Raw<V, result>&>(words);
}

template <int N>
__device__ __forceinline__ void add_residual(float (&x)[N], const result* from, int count)
{
#pragma unroll
    for (int c = 0; c < N; ++c) {
        if (c < count) x[c] += to_float(__ldcg(from + c));
    }
}

// A large map's residual lies beyond the L2 by the time it is needed: it is called there while the
// products are summed, each row by one thread. Every call takes time of the copy engine, which is why
// what is near is not called.
__device__ __forceinline__ void call_residual_of(const Problem& p, int m, int n0)
{
    if (!WHOLE || !p.is_residual_far) return;
    const unsigned bytes = min(BN, p.filters - n0) * OUT_BYTES;
    call_bytes(p.residual + (size_t)m * p.residual_pitch + n0, bytes);
}

__device__ __forceinline__ void call_residual(const Problem& p, int m0, int n0, int thread)
{
    if (!p.is_residual_far) return;
    for (int row = thread; row < BM && m0 + row < p.pixels; row += 128 * CONSUMERS) {
        call_residual_of(p, m0 + row, n0);
    }
}

// The weights of the next convolution come from memory while this one computes: the L2 does not
// hold those of all. Each block calls a share of them.
__device__ __forceinline__ void call_next_weights(const Problem& p)
{
    const unsigned begin = blockIdx.x * p.next_share;
    if (begin < p.next_bytes) call_bytes(p.next + begin, min(p.next_share, p.next_bytes - begin));
}

__device__ __forceinline__ Line ask_line(const result* from)
{
    const uint4 words = __ldcg(reinterpret_cast<const uint4*>(from));
    return {{words.x, words.y, words.z, words.w}};
}

#if OUT_BYTES == 2
__device__ __forceinline__ void values_of(const Line& line, float (&x)[OUT_PACK])
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 pair = reinterpret_cast<const __half2&>(line.word[i]);
        x[2 * i] = to_float(pair.x), x[2 * i + 1] = to_float(pair.y);
    }
}

__device__ __forceinline__ Line line_of(const float (&x)[OUT_PACK])
{
    Line line;
#pragma unroll
    for (int i = 0; i < 4; ++i) line.word[i] = halves_of(x[2 * i], x[2 * i + 1]);
    return line;
}

#define LAST_OF_WORDS (LAST == KIND_linear || LAST == KIND_relu)

// Sums of two halves round alike in halves and in floats.
__device__ __forceinline__ void add_line(Line& x, const Line& more)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 sum = __hadd2(reinterpret_cast<const __half2&>(x.word[i]),
                                    reinterpret_cast<const __half2&>(more.word[i]));
        x.word[i] = reinterpret_cast<const unsigned&>(sum);
    }
}

__device__ __forceinline__ void finish_words(Line& x)
{
    if constexpr (LAST == KIND_relu) {
        const unsigned zeros = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const __half2 most = __hmax2_nan(reinterpret_cast<const __half2&>(x.word[i]),
                                             reinterpret_cast<const __half2&>(zeros));
            x.word[i] = reinterpret_cast<const unsigned&>(most);
        }
    }
}
#else
#define LAST_OF_WORDS (LAST == KIND_linear)

__device__ __forceinline__ void values_of(const Line& line, float (&x)[OUT_PACK])
{
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(line.word[i]);
}

__device__ __forceinline__ Line line_of(const float (&x)[OUT_PACK])
{
    Line line;
#pragma unroll
    for (int i = 0; i < 4; ++i) line.word[i] = __float_as_uint(x[i]);
    return line;
}

__device__ __forceinline__ void add_line(Line& x, const Line& more)
{
    float sums[OUT_PACK], others[OUT_PACK];
    values_of(x, sums);
    values_of(more, others);
#pragma unroll
    for (int c = 0; c < OUT_PACK; ++c) sums[c] += others[c];
    x = line_of(sums);
}

__device__ __forceinline__ void finish_words(Line&) {}
#endif

// The residual and the last activation.
__device__ __forceinline__ void finish_line(Line& x, const Line& residual, bool has_residual)
{
    if constexpr (LAST_OF_WORDS) {
        if (has_residual) add_line(x, residual);
        finish_words(x);
    } else {
        float y[OUT_PACK], more[OUT_PACK];
        values_of(x, y);
        values_of(residual, more);
#pragma unroll
        for (int c = 0; c < OUT_PACK; ++c) y[c] += has_residual ? more[c] : 0.f;
        activate_all(LAST, y);
        x = line_of(y);
    }
}

#if YOLO
// Of a line's filters from n on.
__device__ __forceinline__ unsigned bits_from(int n, const Problem& p)
{
    return yolo_bits<OUT_PACK>((unsigned)n % (unsigned)p.entries, p.entries, p.box);
}

// What [yolo] makes of a line of filters, which are those of `bits`.
__device__ __forceinline__ void make_yolo(Line& x, const Problem& p, unsigned bits)
{
    float y[OUT_PACK];
    values_of(x, y);
    note_strange(p.flag, y);
    yolo_values<true>(y, bits, YOLO == RAW, p.scale_x_y);
    x = line_of(y);
}
#endif

// The last activation, what [yolo] makes of it, and the store; `count` of the N values exist.
template <int N>
__device__ __forceinline__ void finish(float (&x)[N], const Problem& p, int m, int n, int count)
{
    const int wide = N < OUT_PACK ? N : OUT_PACK;
    activate_all(LAST, x);
#if YOLO
#pragma unroll
    for (int c = 0; c < N; ++c) x[c] = c < count ? x[c] : 0.f;
    note_strange(p.flag, x);
    const int entry = (unsigned)n % (unsigned)p.entries;
    yolo_values<true>(x, yolo_bits<N>(entry, p.entries, p.box), YOLO == RAW, p.scale_x_y);
#endif
    result* to = static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n;
    if (WHOLE || (count == N && p.is_aligned)) {
#pragma unroll
        for (int c = 0; c < N; c += wide) {
            Pack<wide> pack;
#pragma unroll
            for (int i = 0; i < wide; ++i) pack.v[i] = x[c + i];
            store<wide>(to + c, pack);
        }
    } else {
#pragma unroll
        for (int c = 0; c < N; ++c) {
            if (c < count) put(to + c, x[c]);
        }
    }
}

#if OUT_BYTES == 2
// A warp's 16 rows: two words of each lane for every eight columns, as four matrices of 8 x 8 halves.
__device__ __forceinline__ void put_rows(result* corner, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    const unsigned to = shared_address(corner) + (lane % 16 * ROW_PITCH + lane / 16 * 8) * 2;
#pragma unroll
    for (int j = 0; j < BN / 8; j += 2) {
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            word[i] = halves_of(sum[j * 4 + i * 2], sum[j * 4 + i * 2 + 1]);
        }
        store_matrices(to + j * 16, word);
    }
}
#else
__device__ __forceinline__ void put_rows(result* corner, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    float* to = corner + lane / 4 * ROW_PITCH + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(sum[j * 4], sum[j * 4 + 1]);
        *reinterpret_cast<float2*>(to + 8 * ROW_PITCH + j * 8) =
            make_float2(sum[j * 4 + 2], sum[j * 4 + 3]);
    }
}
#endif

// From a warp's corner on: lanes side by side take lines side by side, so that sectors of the L2 are
// written whole, not in two halves that each take as long.
__device__ __forceinline__ void finish_lines(const result* corner, const Problem& p, int first_row,
                                             int n0)
{
    static_assert(PACKS % 2 == 0, "16 rows are a whole number of lines for each lane");
    const unsigned lane = threadIdx.x % 32;
    const int items = PACKS / 2;
    const int at_once = items < 8 ? items : items % 8 == 0 ? 8 : 6;
    const bool keeps_column = 32 % PACKS == 0;  // a lane has the same one in each row
    const int rows = p.pixels - first_row;
    const int columns = p.filters - n0;
    const int own_column = lane % PACKS * OUT_PACK;
    if (keeps_column && own_column >= columns) return;
    result* out = static_cast<result*>(p.out) + (size_t)first_row * p.out_pitch + n0;
    const result* residuals = p.residual + (size_t)first_row * p.residual_pitch + n0;
#if YOLO
    const unsigned own_bits = bits_from(n0 + own_column, p);
#endif
    auto row_of = [&](int i) {
        return keeps_column ? i * (32 / PACKS) + lane / PACKS : (i * 32 + lane) / PACKS;
    };
    auto column_of = [&](int i) {
        return keeps_column ? own_column : int((i * 32 + lane) % PACKS * OUT_PACK);
    };
    auto is_there = [&](int i) {
        return i < items && int(row_of(i)) < rows && (keeps_column || column_of(i) < columns);
    };
#pragma unroll 1
    for (int first = 0; first < items; first += at_once) {
        Line residual[at_once];
#pragma unroll
        for (int i = first; i < first + at_once; ++i) {
            if (!p.residual || !is_there(i)) continue;
            residual[i - first] = ask_line(residuals + row_of(i) * p.residual_pitch + column_of(i));
        }
#pragma unroll
        for (int i = first; i < first + at_once; ++i) {
            if (!is_there(i)) continue;
            Line x = *reinterpret_cast<const Line*>(corner + row_of(i) * ROW_PITCH + column_of(i));
            finish_line(x, residual[i - first], p.residual);
#if YOLO
            make_yolo(x, p, keeps_column ? own_bits : bits_from(n0 + column_of(i), p));
#endif
            store_words(out + row_of(i) * p.out_pitch + column_of(i), x.word);
        }
    }
}

// The same for any number of filters, anywhere, value by value: lanes side by side write side by
// side. Each keeps its filter from row to row.
__device__ __forceinline__ void finish_values(const result* corner, const Problem& p, int first_row,
                                              int n0)
{
    const int at_once = 8;
    const int rows = min(p.pixels - first_row, 16);
#pragma unroll 1
    for (int column = threadIdx.x % 32; column < BN; column += 32) {
        const int n = n0 + column;
        if (n >= p.filters) break;
#if YOLO
        const unsigned bits = yolo_bits<1>(n % p.entries, p.entries, p.box);
#endif
#pragma unroll 1
        for (int first = 0; first < rows; first += at_once) {
            const size_t m = first_row + first;
            const result* more = p.residual + m * p.residual_pitch + n;
            result* to = static_cast<result*>(p.out) + m * p.out_pitch + n;
            float x[at_once];
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                x[i] = to_float(corner[(first + i) * ROW_PITCH + column]);
                if (p.residual && first + i < rows) {
                    x[i] += to_float(__ldcg(more + i * p.residual_pitch));
                }
            }
            activate_all(LAST, x);
#if YOLO
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                if (first + i < rows) note_strange(p.flag, x[i]);
            }
            yolo_values<false>(x, bits, YOLO == RAW, p.scale_x_y);
#endif
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                if (first + i < rows) put(to + i * p.out_pitch, x[i]);
            }
        }
    }
}

// A warp's 16 rows of a finished block of rows pass through its own corner of shared memory, so that
// residuals are read and results written 16 bytes at a time.
__device__ __forceinline__ void finish_rows(float (&sum)[BN / 2], result* corner, const float* bias,
                                            const Problem& p, int first_row, int n0)
{
    add_bias(sum, bias);
    activate_all(KIND, sum);
    put_rows(corner, sum);
    __syncwarp();
    if constexpr (WHOLE) {
        finish_lines(corner, p, first_row, n0);
    } else {
        finish_values(corner, p, first_row, n0);
    }
    __syncwarp();
}
