// Epilogue of the sm90 convolutions: bias, residual, last activation, [yolo] values, upsampled stores.
#pragma once
#include "sm90_mainloop.cuh"
#define ALIKE 1     // RESIDUAL if the residual has the result's shape
#define QUARTERS 2  // RESIDUAL if it has four times the area
#ifndef REPEATED
#define REPEATED 1
#endif

// Returns the c-th float of a tile's biases. For int8 the host pads them to whole tiles.
DEVICE float bias_at(const KernelArgs& p, int n0, int c)
{
    const bool exists = c < BIAS_FLOATS && (MODE == 4 || n0 + c < p.filters);
    return exists ? p.bias[n0 * COLUMN_FLOATS + c] : 0.f;
}

// Each thread loads a few biases of a tile before the mainloop and writes them to shared memory
// after it, where every lane finds those of its columns.
DEVICE void load_biases(float (&own)[BIASES_PER_THREAD], const KernelArgs& p, int n0, int thread)
{
    UNROLL(i, BIASES_PER_THREAD) {
        own[i] = bias_at(p, n0, thread + i * 128 * CONSUMERS);
    }
}

DEVICE void stage_biases(float* bias, const float (&own)[BIASES_PER_THREAD], int thread)
{
    UNROLL(i, BIASES_PER_THREAD) {
        const int c = thread + i * 128 * CONSUMERS;
        if (c < BIAS_FLOATS) bias[c] = own[i];
    }
}

// Multiplies integer sums by their scales and adds their biases, which alternate in `bias`.
template <int N> DEVICE void scale_sums(float (&x)[N], const float* bias)
{
    UNROLL(i, N) x[i] = fmaf(x[i], bias[2 * i], bias[2 * i + 1]);
}

// Adds the bias to a warp's 16 rows in the layout of wgmma.
DEVICE void add_bias(float (&sum)[BN / 2], const float* bias)
{
    UNROLL(j, BN / 8) {
        const float2 pair = *reinterpret_cast<const float2*>(bias + j * 8 + threadIdx.x % 4 * 2);
        sum[j * 4] += pair.x;
        sum[j * 4 + 1] += pair.y;
        sum[j * 4 + 2] += pair.x;
        sum[j * 4 + 3] += pair.y;
    }
}

// Residuals bypass the L1: only the producer thread waits for the previous kernel, and the L1 may hold
// older values.
template <int N> DEVICE void add_residual(float (&x)[N], const result* from, int count)
{
    UNROLL(c, N) {
        if (c < count) x[c] += to_float(__ldcg(from + c));
    }
}

// Prefetches a row of the residual into the L2 during the mainloop. It is called only if the
// residual is too large to be in the L2 still, because each prefetch takes time of the TMA unit.
DEVICE void prefetch_residual_row(const KernelArgs& p, int m, int n0, int filters)
{
    const unsigned bytes = min(filters, p.filters - n0) * OUT_BYTES;
    prefetch_l2(p.residual + (size_t)m * p.residual_pitch + n0, bytes);
}

// Does the same for `pixels` rows.
DEVICE void prefetch_residual(const KernelArgs& p, int m0, int n0, int pixels, int filters, int thread)
{
    if constexpr (RESIDUAL == ALIKE && WHOLE) {
        if (!p.is_residual_far) return;
        for (int i = thread; i < pixels && m0 + i < p.pixels; i += 128 * CONSUMERS) {
            prefetch_residual_row(p, m0 + i, n0, filters);
        }
    }
}

// Prefetches this block's share of the next convolution's weights into the L2, which cannot hold the
// weights of all layers.
DEVICE void prefetch_next_weights(const KernelArgs& p)
{
    const unsigned begin = blockIdx.x * p.next_share;
    if (begin < p.next_bytes) prefetch_l2(p.next + begin, min(p.next_share, p.next_bytes - begin));
}

// Loads and stores of any number of words in pieces of at most 16 bytes.
template <int N> DEVICE void load_words(unsigned (&word)[N], const void* from, bool are_there)
{
    const int wide = N < 4 ? N : 4;
    UNROLL(i, N / wide) {
        auto& piece = reinterpret_cast<unsigned (&)[wide]>(word[i * wide]);
        issue_load(piece, static_cast<const unsigned*>(from) + i * wide, are_there);
    }
}

// Issues the loads of whole vectors of the residual of pixel m, from filter n on.
//
// With QUARTERS the residual has four times the area, as where a residual network halves its
// feature maps. It is added in flat (channel, y, x) order: four neighbouring filters are one of its
// channels, at four pixels a quarter of its area apart. They are loaded in memory order, and
// in_order() sorts them later.
template <int N>
DEVICE void issue_residual_load(unsigned (&word)[N], const KernelArgs& p, int m, int n, bool exists)
{
    if constexpr (RESIDUAL != QUARTERS) {
        load_words(word, p.residual + (size_t)m * p.residual_pitch + n, exists);
        return;
    }
    const int area = p.out_h * p.out_w;
    const int row = divide(divide(m, p.by_out_w), p.by_out_h);
    const result* from = p.residual + (size_t)(m + row * 3 * area) * p.residual_pitch + n / 4;
    UNROLL(i, N) {
        const size_t quarter = (size_t)(i % 4) * area * p.residual_pitch;
        issue_load(reinterpret_cast<unsigned (&)[1]>(word[i]), from + i / 4 * (4 / OUT_BYTES) + quarter, exists);
    }
}

// Returns a residual in the order of filters.
template <int BYTES> DEVICE Bits<BYTES> in_order(const Bits<BYTES>& loaded)
{
    Bits<BYTES> ordered = loaded;
    if constexpr (RESIDUAL == QUARTERS && OUT_BYTES == 2) {  // a word has halves of two channels
        UNROLL(i, BYTES / 4) {
            ordered.word[i] =
                __byte_perm(loaded.word[i % 2 * 2], loaded.word[i % 2 * 2 + 1], i < 2 ? 0x5410 : 0x7632);
        }
    }
    return ordered;
}

template <int N> DEVICE void store_words(void* to, const unsigned (&word)[N])
{
    const int wide = N < 4 ? N : 4;
    UNROLL(i, N / wide) {
        auto& piece = reinterpret_cast<const unsigned (&)[wide]>(word[i * wide]);
        store_vector(static_cast<unsigned*>(to) + i * wide, piece);
    }
}

template <int BYTES = 16> DEVICE Bits<BYTES> load_vector(const result* from)
{
    if constexpr (BYTES == 8) {
        const uint2 words = __ldcg(reinterpret_cast<const uint2*>(from));
        return reinterpret_cast<const Bits<BYTES>&>(words);
    } else {
        const uint4 words = __ldcg(reinterpret_cast<const uint4*>(from));
        return reinterpret_cast<const Bits<BYTES>&>(words);
    }
}

template <int N> DEVICE void unpack_vector(const Bits<N * OUT_BYTES>& vector, float (&x)[N])
{
    UNROLL(i, N) x[i] = to_float(reinterpret_cast<const Raw<N, result>&>(vector).v[i]);
}

template <int N> DEVICE Bits<N * OUT_BYTES> pack_vector(const float (&x)[N])
{
    Bits<N * OUT_BYTES> vector;
    UNROLL(i, N * OUT_BYTES / 4) {
        if constexpr (OUT_BYTES == 2)
            vector.word[i] = pack_half2(x[2 * i], x[2 * i + 1]);
        else
            vector.word[i] = __float_as_uint(x[i]);
    }
    return vector;
}

#if OUT_BYTES == 2
#define LAST_IS_PACKED (LAST == KIND_linear || LAST == KIND_relu)

// The sum of two halves rounds to the same value in half and in float arithmetic.
template <int BYTES> DEVICE void add_vectors(Bits<BYTES>& x, const Bits<BYTES>& more)
{
    UNROLL(i, BYTES / 4) x.word[i] = add_half2(x.word[i], more.word[i]);
}

template <int BYTES> DEVICE void activate_packed(Bits<BYTES>& x)
{
    if constexpr (LAST == KIND_relu) {
        UNROLL(i, BYTES / 4) x.word[i] = max_half2_nan(x.word[i], 0);
    }
}
#else
#define LAST_IS_PACKED (LAST == KIND_linear)

template <int BYTES> DEVICE void add_vectors(Bits<BYTES>& x, const Bits<BYTES>& more)
{
    UNROLL(i, BYTES / 4) {
        x.word[i] = __float_as_uint(__uint_as_float(x.word[i]) + __uint_as_float(more.word[i]));
    }
}

template <int BYTES> DEVICE void activate_packed(Bits<BYTES>&) {}
#endif

// Adds the residual and applies the last activation.
template <int BYTES> DEVICE void finish_vector(Bits<BYTES>& x, const Bits<BYTES>& loaded, bool has_residual)
{
    const Bits<BYTES> residual = in_order(loaded);
    if constexpr (LAST_IS_PACKED) {
        if (has_residual) add_vectors(x, residual);
        activate_packed(x);
    } else {
        float y[BYTES / OUT_BYTES], more[BYTES / OUT_BYTES];
        unpack_vector(x, y);
        unpack_vector(residual, more);
        UNROLL(c, BYTES / OUT_BYTES) y[c] += has_residual ? more[c] : 0.f;
        activate_all(LAST, y);
        x = pack_vector(y);
    }
}

// Adds residuals to values after their first activation, applies the last activation, and packs.
template <int N>
DEVICE Bits<N * OUT_BYTES> finished_vector(float (&x)[N], const Bits<N * OUT_BYTES>& residual, const KernelArgs& p)
{
    if constexpr (OUT_BYTES == 1) {
        if constexpr (RESIDUAL) {  // a test for each vector would cost registers
            UNROLL(i, N) {
                const float more = byte_to_float(residual.word[i / 4] ^ 0x80808080, i % 4);
                x[i] = fmaf(more, p.residual_scale, x[i]);
            }
        }
        activate_all(LAST, x);
        Bits<N> vector;
        UNROLL(i, N / 4) {
            vector.word[i] = pack_bytes(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3], p.out_factor);
        }
        return vector;
    } else {
        Bits<N * OUT_BYTES> vector = pack_vector(x);
        finish_vector(vector, residual, RESIDUAL);
        return vector;
    }
}

#if YOLO
// The mask of N filters from n on.
template <int N = OUT_PACK> DEVICE unsigned yolo_mask_at(int n, const KernelArgs& p)
{
    return yolo_mask<N>((unsigned)n % (unsigned)p.entries, p.entries, p.box);
}

// Computes the output of [yolo] for a vector of filters with mask `bits`.
template <int BYTES> DEVICE void yolo_vector(Bits<BYTES>& x, const KernelArgs& p, unsigned bits)
{
    float y[BYTES / OUT_BYTES];
    unpack_vector(x, y);
    flag_non_finite(p.flag, y);
    apply_yolo<true>(y, bits, YOLO == RAW, p.scale_x_y);
    x = pack_vector(y);
}
#endif

// Applies the last activation and [yolo], and stores; `count` of the N values exist.
template <int N> DEVICE void store_results(float (&x)[N], const KernelArgs& p, int m, int n, int count)
{
    const int wide = N < OUT_PACK ? N : OUT_PACK;
    activate_all(LAST, x);
#if YOLO
    UNROLL(c, N) x[c] = c < count ? x[c] : 0.f;
    flag_non_finite(p.flag, x);
    const int entry = (unsigned)n % (unsigned)p.entries;
    apply_yolo<true>(x, yolo_mask<N>(entry, p.entries, p.box), YOLO == RAW, p.scale_x_y);
#endif
    result* to = static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n;
    if (WHOLE || (count == N && p.is_aligned)) {
#pragma unroll
        for (int c = 0; c < N; c += wide) {
            Pack<wide> pack;
            UNROLL(i, wide) pack.v[i] = x[c + i];
            store<wide>(to + c, pack);
        }
    } else {
        UNROLL(c, N) {
            if (c < count) put(to + c, x[c]);
        }
    }
}

// Stores a vector to the REPEATED x REPEATED pixels of an upsampled map.
template <int BYTES> DEVICE void store_upsampled(const KernelArgs& p, int m, int n, const Bits<BYTES>& line)
{
    const int x = m - divide(m, p.by_out_w) * p.out_w;
    const size_t first = (size_t)m * REPEATED * REPEATED - x * REPEATED * (REPEATED - 1);
    result* to = static_cast<result*>(p.out) + first * p.out_pitch + n;
    UNROLL(i, REPEATED) {
        UNROLL(j, REPEATED) {
            store_words(to + (i * REPEATED * p.out_w + j) * p.out_pitch, line.word);
        }
    }
}
