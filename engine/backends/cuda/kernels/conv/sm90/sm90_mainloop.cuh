// Products of slices, and finished sums on their way out.
#pragma once
#define ELEMENT_BYTES (MODE == 0 ? 2 : 4)
#define ROW_BYTES (BK * ELEMENT_BYTES)  // 128, 64 or 32: one swizzled row of a slice
#include "fast_divide.cuh"
#include "sm90_ptx.cuh"
#include "quad_transpose.cuh"
#include "wgmma.cuh"

#define STEP_BYTES 32  // one wgmma along k: 16 halves or 8 floats
#define A_BYTES (BM * ROW_BYTES)
#define B_BYTES (BN * ROW_BYTES)
#define WEIGHT_BYTES ((MODE == 2 ? 2 : 1) * B_BYTES)  // high parts, low parts
#define STAGE_BYTES (A_BYTES + WEIGHT_BYTES)
#define M_BLOCKS (BM / 64 / CONSUMERS)                                      // of 64, for each warpgroup
#define BIASES_PER_THREAD ((BN + 128 * CONSUMERS - 1) / (128 * CONSUMERS))  // of a thread

struct KernelArgs {
    const float* bias;
    const result* residual;
    void* out;
    unsigned* flag;
    const unsigned char* weight;
    const unsigned char* next;        // weights of a later layer
    unsigned next_bytes, next_share;  // of all of them, of a block
    int pixels, filters;              // M, N
    int out_h, out_w;
    int taps_x;         // width of the kernel
    int slices, steps;  // of BK channels: a tap's, all
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
    int out_pitch, residual_pitch;
    int split, tiles_n, is_aligned;
    int inbox;            // bytes behind where the pipeline begins
    int is_residual_far;  // larger than what the L2 still has of it
    int entries, box;     // of an anchor, where [yolo]'s own output is to be made
    float scale_x_y;
    Divisor by_split, by_tiles_n, by_out_h, by_out_w, by_slices, by_taps_x;
};

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

// Where a tile lies: tiles side by side over the filters come first.
struct Tile {
    int down, across;
};

DEVICE Tile tile_at(const KernelArgs& p, int index)
{
    const int down = divide(index, p.by_tiles_n);
    return {down, index - down * p.tiles_n};
}

// ---- the thread that fetches

struct Origin {  // of a tile: where its windows begin
    int x, y, row;
};

DEVICE Origin window_origin(const KernelArgs& p, int m)
{
    const int line = divide(m, p.by_out_w);
    const int row = divide(line, p.by_out_h);
    return {(m - line * p.out_w) * p.stride_x - p.left, (line - row * p.out_h) * p.stride_y - p.top, row};
}

// A slice of k: where its channels begin, and its tap. One thread fetches for all others, so it goes
// from slice to slice without a division.
struct Slice {
    int channel, tap_x, tap_y;
};

DEVICE Slice slice_at(const KernelArgs& p, int k)
{
    const int tap = divide(k, p.by_slices);
    const int tap_y = divide(tap, p.by_taps_x);
    return {(k - tap * p.slices) * BK, tap - tap_y * p.taps_x, tap_y};
}

DEVICE void advance(Slice& slice, const KernelArgs& p)
{
    slice.channel += BK;
    if (slice.channel < p.slices * BK) return;
    slice.channel = 0;
    if (++slice.tap_x < p.taps_x) return;
    slice.tap_x = 0;
    ++slice.tap_y;
}

DEVICE void load_weights(unsigned stage, unsigned full, const unsigned char* weights)
{
    mbarrier_expect_bytes(full, STAGE_BYTES);
    bulk_load(stage + A_BYTES, weights, WEIGHT_BYTES, full);
}

DEVICE void load_input(unsigned stage, unsigned full, const TensorMap* map, const KernelArgs& p,
    const Origin& tile, const Slice& slice)
{
    tma_load_im2col(stage, map, full, slice.channel, tile.x, tile.y, tile.row, slice.tap_x * p.dilation_x,
        slice.tap_y * p.dilation_y);
}

// ---- the warps that multiply

#if MODE < 2
// One slice: 64 rows of input at `a` times the BN rows of weights at `b`, added to sum.
DEVICE void wgmma_slice(float (&sum)[BN / 2], unsigned a, unsigned b)
{
#pragma unroll
    for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
        wgmma(sum, matrix_descriptor(a + step), matrix_descriptor(b + step));
    }
}
#else
DEVICE void wgmma_slice(float (&sum)[BN / 2], unsigned a, unsigned b)
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
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
        const unsigned at = b + step * STEP_BYTES;
        if (step == 0) {
            wgmma_registers_zeroed(part, low[step], matrix_descriptor(at));
        } else {
            wgmma_registers(part, low[step], matrix_descriptor(at));
        }
        wgmma_registers(part, high[step], matrix_descriptor(at + B_BYTES));
        wgmma_registers(part, high[step], matrix_descriptor(at));
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < BN / 2; ++j) sum[j] += part[j];
}
#endif

// The biases of a tile: issued for before the products, by one thread each, and put into shared
// memory after them, where every lane finds those of its columns.
DEVICE void load_biases(float (&own)[BIASES_PER_THREAD], const KernelArgs& p, int n0, int thread)
{
#pragma unroll
    for (int i = 0; i < BIASES_PER_THREAD; ++i) {
        const int c = thread + i * 128 * CONSUMERS;
        own[i] = c < BN && n0 + c < p.filters ? p.bias[n0 + c] : 0.f;
    }
}

DEVICE void stage_biases(float* bias, const float (&own)[BIASES_PER_THREAD], int thread)
{
#pragma unroll
    for (int i = 0; i < BIASES_PER_THREAD; ++i) {
        const int c = thread + i * 128 * CONSUMERS;
        if (c < BN) bias[c] = own[i];
    }
}

// A warp's 16 rows lie in its lanes as wgmma leaves them.
DEVICE void add_bias(float (&sum)[BN / 2], const float* bias)
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
template <int N> DEVICE void add_residual(float (&x)[N], const result* from, int count)
{
#pragma unroll
    for (int c = 0; c < N; ++c) {
        if (c < count) x[c] += to_float(__ldcg(from + c));
    }
}

// A large map's residual lies beyond the L2 by the time it is needed: it is called there while the
// products are summed, each row by one thread. Every call takes time of the copy engine, which is why
// what is near is not called.
DEVICE void prefetch_residual_row(const KernelArgs& p, int m, int n0, int filters)
{
    if (!WHOLE || !p.is_residual_far) return;
    const unsigned bytes = min(filters, p.filters - n0) * OUT_BYTES;
    prefetch_l2(p.residual + (size_t)m * p.residual_pitch + n0, bytes);
}

// Of so many pixels.
DEVICE void prefetch_residual(const KernelArgs& p, int m0, int n0, int pixels, int filters, int thread)
{
    if (!p.is_residual_far) return;
    for (int i = thread; i < pixels && m0 + i < p.pixels; i += 128 * CONSUMERS) {
        prefetch_residual_row(p, m0 + i, n0, filters);
    }
}

// The weights of the next convolution come from memory while this one computes: the L2 does not
// hold those of all. Each block calls a share of them.
DEVICE void prefetch_next_weights(const KernelArgs& p)
{
    const unsigned begin = blockIdx.x * p.next_share;
    if (begin < p.next_bytes) prefetch_l2(p.next + begin, min(p.next_share, p.next_bytes - begin));
}

template <int BYTES> DEVICE Bits<BYTES> load_vector(const result* from)
{
    typedef typename WordsOf<BYTES>::type Words;
    const Words words = __ldcg(reinterpret_cast<const Words*>(from));
    return reinterpret_cast<const Bits<BYTES>&>(words);
}

#if OUT_BYTES == 2
template <int N> DEVICE void unpack_vector(const Bits<N * OUT_BYTES>& line, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        const __half2 pair = reinterpret_cast<const __half2&>(line.word[i]);
        x[2 * i] = to_float(pair.x), x[2 * i + 1] = to_float(pair.y);
    }
}

template <int N> DEVICE Bits<N * OUT_BYTES> pack_vector(const float (&x)[N])
{
    Bits<N * OUT_BYTES> line;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) line.word[i] = pack_half2(x[2 * i], x[2 * i + 1]);
    return line;
}

#define LAST_IS_PACKED (LAST == KIND_linear || LAST == KIND_relu)

// Sums of two halves round alike in halves and in floats.
template <int BYTES> DEVICE void add_vectors(Bits<BYTES>& x, const Bits<BYTES>& more)
{
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) {
        const __half2 sum = __hadd2(
            reinterpret_cast<const __half2&>(x.word[i]), reinterpret_cast<const __half2&>(more.word[i]));
        x.word[i] = reinterpret_cast<const unsigned&>(sum);
    }
}

template <int BYTES> DEVICE void activate_packed(Bits<BYTES>& x)
{
    if constexpr (LAST == KIND_relu) {
        const unsigned zeros = 0;
#pragma unroll
        for (int i = 0; i < BYTES / 4; ++i) {
            const __half2 most = __hmax2_nan(
                reinterpret_cast<const __half2&>(x.word[i]), reinterpret_cast<const __half2&>(zeros));
            x.word[i] = reinterpret_cast<const unsigned&>(most);
        }
    }
}
#else
#define LAST_IS_PACKED (LAST == KIND_linear)

template <int N> DEVICE void unpack_vector(const Bits<N * OUT_BYTES>& line, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = __uint_as_float(line.word[i]);
}

template <int N> DEVICE Bits<N * OUT_BYTES> pack_vector(const float (&x)[N])
{
    Bits<N * OUT_BYTES> line;
#pragma unroll
    for (int i = 0; i < N; ++i) line.word[i] = __float_as_uint(x[i]);
    return line;
}

template <int BYTES> DEVICE void add_vectors(Bits<BYTES>& x, const Bits<BYTES>& more)
{
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) {
        x.word[i] = __float_as_uint(__uint_as_float(x.word[i]) + __uint_as_float(more.word[i]));
    }
}

template <int BYTES> DEVICE void activate_packed(Bits<BYTES>&) {}
#endif

// The residual and the last activation.
template <int BYTES> DEVICE void finish_vector(Bits<BYTES>& x, const Bits<BYTES>& residual, bool has_residual)
{
    if constexpr (LAST_IS_PACKED) {
        if (has_residual) add_vectors(x, residual);
        activate_packed(x);
    } else {
        float y[BYTES / OUT_BYTES], more[BYTES / OUT_BYTES];
        unpack_vector(x, y);
        unpack_vector(residual, more);
#pragma unroll
        for (int c = 0; c < BYTES / OUT_BYTES; ++c) y[c] += has_residual ? more[c] : 0.f;
        activate_all(LAST, y);
        x = pack_vector(y);
    }
}

#if YOLO
// Of a line's filters from n on.
DEVICE unsigned yolo_mask_at(int n, const KernelArgs& p)
{
    return yolo_mask<OUT_PACK>((unsigned)n % (unsigned)p.entries, p.entries, p.box);
}

// What [yolo] makes of a line of filters, which are those of `bits`.
DEVICE void yolo_vector(ResultVector& x, const KernelArgs& p, unsigned bits)
{
    float y[OUT_PACK];
    unpack_vector(x, y);
    flag_non_finite(p.flag, y);
    apply_yolo<true>(y, bits, YOLO == RAW, p.scale_x_y);
    x = pack_vector(y);
}
#endif

// The last activation, what [yolo] makes of it, and the store; `count` of the N values exist.
template <int N> DEVICE void store_results(float (&x)[N], const KernelArgs& p, int m, int n, int count)
{
    const int wide = N < OUT_PACK ? N : OUT_PACK;
    activate_all(LAST, x);
#if YOLO
#pragma unroll
    for (int c = 0; c < N; ++c) x[c] = c < count ? x[c] : 0.f;
    flag_non_finite(p.flag, x);
    const int entry = (unsigned)n % (unsigned)p.entries;
    apply_yolo<true>(x, yolo_mask<N>(entry, p.entries, p.box), YOLO == RAW, p.scale_x_y);
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
