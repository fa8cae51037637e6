// Shared by all kernels: the storage type, packs of values, activations and the grid-stride loop.
//
// Layout: activations are NHWC. A tensor is a pointer and a pitch, the number of values from one pixel to
// the next: at least its channels, and more if it lies inside a wider concatenation. Rows (samples) are
// runs of height * width pixels. `real` is the type in memory; arithmetic is in float.
#pragma once

#include "half.cuh"

#if defined(STORE_INT8)
typedef signed char real;
#elif defined(STORE_HALF)
typedef half real;
#else
typedef float real;
#endif
DEVICE float to_float(float x) { return x; }
DEVICE void put(float* p, float x) { *p = x; }
DEVICE void put(half* p, float x) { *p = to_half(x); }

// int8 values are quantisation steps. Conversion instructions run at a fraction of the rate of
// additions, so the code adds: a float from 2^23 on has its integer part in its lowest bits.

// Packs four values times `factor`, rounded to nearest, ties to even, and saturated to int8.
DEVICE unsigned pack_bytes(float a, float b, float c, float d, float factor)
{
    const auto step = [=](float x) {
        const float zero = 12582912.f;  // 1.5 * 2^23
        const float sum = fmaf(x, factor, zero);
        return __float_as_uint(fminf(fmaxf(sum, zero - 128.f), zero + 127.f));
    };
    return __byte_perm(
        __byte_perm(step(a), step(b), 0x0040), __byte_perm(step(c), step(d), 0x0040), 0x5410);
}

// Converts the i-th byte of a word, every byte of which was xored with 0x80.
DEVICE float byte_to_float(unsigned flipped, int i)
{
    return __uint_as_float(__byte_perm(flipped, 0x4B000000, 0x7540 + i)) - (8388608.f + 128.f);
}

DEVICE float to_float(signed char x) { return x; }
DEVICE void put(signed char* p, float x) { *p = (signed char)pack_bytes(x, x, x, x, 1.f); }

// The first statement of a kernel that is launched early (programmatic dependent launch): wait until the
// previous kernel has ended and its results are visible, and let the next kernel start early too.
DEVICE void after_previous_kernel()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Sets `flag`, unless it is null, if x is infinite or NaN. Halves overflow beyond 65504; the host reads
// the flag and finds the first layer that overflowed.
DEVICE void flag_non_finite(unsigned* flag, float x)
{
    if (flag && x - x != 0.f) *flag = 1;
}

// The same for several values with one test: 0 * x is NaN when x is not finite, and so is a sum that
// contains it.
template <int N> DEVICE void flag_non_finite(unsigned* flag, const float (&x)[N])
{
    float nothing = 0.f;
    UNROLL(i, N) nothing += x[i] * 0.f;
    flag_non_finite(flag, nothing);
}

// The values in 16 bytes, which a thread of a `_packed` kernel moves at once.
#define PACK (16 / (int)sizeof(real))

// Every loop over items is a grid-stride loop, so any launch size gives the right result.
#define GRID_STRIDE(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

// The same over packs of V channels of all pixels.
#define FOR_EACH_PACK(V, pixel, pixels, channel, channels)                                                \
    GRID_STRIDE(item, (pixels) * ((channels) / (V)))                                                      \
    if (const int pixel = item / ((channels) / (V)), channel = (item - pixel * ((channels) / (V))) * (V); \
        true)

// Defines the kernels `name`, whose threads move single values, and `name_packed`, whose threads move packs
// of 16 bytes, from the template name_body<V>. driver/compiler.py knows this macro.
#define SCALAR_AND_PACKED(name, NAME)                           \
    extern "C" __global__ void name(NAME##_PARAMETERS)          \
    {                                                           \
        after_previous_kernel();                                \
        name##_body<1>(NAME##_ARGUMENTS);                       \
    }                                                           \
    extern "C" __global__ void name##_packed(NAME##_PARAMETERS) \
    {                                                           \
        after_previous_kernel();                                \
        name##_body<PACK>(NAME##_ARGUMENTS);                    \
    }

// The coordinates of a pixel whose index counts through all rows of a batch.
struct Position {
    int row, y, x;
};

DEVICE Position position_of(int pixel, int height, int width)
{
    return {pixel / width / height, pixel / width % height, pixel % width};
}

// V neighbouring values of one pixel, as floats.
template <int V> struct Pack {
    float v[V];
};

template <int V, typename T = real> struct alignas(V * sizeof(T)) Raw {
    T v[V];
};

template <int V, typename T> DEVICE Pack<V> load(const T* p)
{
    const Raw<V, T> raw = *reinterpret_cast<const Raw<V, T>*>(p);
    Pack<V> pack;
    UNROLL(i, V) pack.v[i] = to_float(raw.v[i]);
    return pack;
}

// V neighbouring values as raw words. To keep many loads in flight, issue all of them, without a
// branch in between, before the first use. With an array of halves the compiler would wait for each
// load.
template <int BYTES> struct alignas(BYTES) Bits {
    unsigned word[BYTES / 4];
};
template <> struct Bits<2> {
    unsigned short word[1];
};
template <> struct Bits<1> {
    unsigned char word[1];
};

template <int V> DEVICE Bits<V * sizeof(real)> load_bits(const real* p)
{
    return *reinterpret_cast<const Bits<V * sizeof(real)>*>(p);
}

// The same, or zeros without a read if `is_value` is false.
template <int V> DEVICE Bits<V * sizeof(real)> load_bits_if(bool is_value, const real* p)
{
    Bits<V * sizeof(real)> bits = {};
    if (is_value) bits = load_bits<V>(p);
    return bits;
}

template <int V> DEVICE float value_of(const Bits<V * sizeof(real)>& bits, int i)
{
    return to_float(reinterpret_cast<const Raw<V>&>(bits).v[i]);
}

// Stores values times `factor`, rounded to int8.
template <int V> DEVICE void store_bytes(signed char* p, const Pack<V>& pack, float factor)
{
    Raw<V, signed char> raw;
    UNROLL(i, (V + 3) / 4) {
        const float* v = pack.v + 4 * i;
        const int last = V < 4 ? V - 1 : 3;
        const unsigned word = pack_bytes(v[0], v[min(1, last)], v[min(2, last)], v[last], factor);
        UNROLL(j, last + 1) raw.v[i * 4 + j] = (signed char)(word >> 8 * j);
    }
    *reinterpret_cast<Raw<V, signed char>*>(p) = raw;
}

// Halves are packed into words first, because the compiler would split the store into one store per half.
template <int V, typename T> DEVICE void store(T* p, const Pack<V>& pack)
{
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        Bits<V * 2> bits;
        UNROLL(i, V / 2) bits.word[i] = pack_half2(pack.v[2 * i], pack.v[2 * i + 1]);
        *reinterpret_cast<Bits<V * 2>*>(p) = bits;
    } else if constexpr (sizeof(T) == 1) {
        store_bytes<V>(p, pack, 1.f);
    } else {
        Raw<V, T> raw;
        UNROLL(i, V) put(&raw.v[i], pack.v[i]);
        *reinterpret_cast<Raw<V, T>*>(p) = raw;
    }
}

// Applies an activation that needs an exponential and a reciprocal. In half precision four values share
// one reciprocal; the clamps keep the product of four denominators finite. NaN must not reach a shared
// denominator, and fminf drops it, so it stays in its own numerator.
template <int N> DEVICE void activate_with_exp(int kind, float (&x)[N])
{
#ifdef STORE_HALF
    float upper[N], lower[N];
    UNROLL(i, N) {
        if (kind == KIND_mish) {
            const float e = exponential(fminf(x[i], 10.f));
            upper[i] = x[i] * (e * (e + 2.f));
            lower[i] = e * (e + 2.f) + 2.f;
        } else {
            upper[i] = x[i] == x[i] ? 1.f : x[i];
            lower[i] = 1.f + exponential(fminf(-x[i], 21.f));
        }
    }
    reciprocals(lower);
    UNROLL(i, N) x[i] = upper[i] * lower[i];
    // A shared reciprocal is up to one unit in the last place too large, and scores end at 1.
    if (kind == KIND_logistic) UNROLL(i, N) x[i] = x[i] > 1.f ? 1.f : x[i];
#else
    UNROLL(i, N) x[i] = activate(kind, x[i]);
#endif
}

// x * sigmoid(x). In half precision it is computed from tanh(x / 2) in three instructions instead of
// seven, because in 1x1 convolutions the epilogue takes as long as the mainloop.
DEVICE float swish(float x)
{
#ifdef STORE_HALF
    const float half = .5f * x;
    return half * hyperbolic_tangent(half) + half;
#else
    return activate(KIND_swish, x);
#endif
}

// Applies one of the common activations and returns true, or returns false for any other. The kind is the
// same for the whole launch, so one switch serves all values; a switch per value would cost more than the
// arithmetic.
template <int N> DEVICE bool activate_common(int kind, float (&x)[N])
{
#define CASE(name, function) \
    case KIND_##name:        \
        function;            \
        return true
#define EACH(name, value) CASE(name, _Pragma("unroll") for (int i = 0; i < N; ++i) x[i] = value)
    switch (kind) {
    case KIND_linear:
        return true;
        EACH(leaky, activate(KIND_leaky, x[i]));
        EACH(relu, activate(KIND_relu, x[i]));
        EACH(swish, swish(x[i]));
        CASE(mish, activate_with_exp(KIND_mish, x));
        CASE(logistic, activate_with_exp(KIND_logistic, x));
    }
    return false;
#undef EACH
#undef CASE
}

// Bit masks for N neighbouring channels; the first is entry `entry` of its anchor. Low bits
// mark the box's width and height, bits from 16 on its centre. The entries of an anchor are its box
// (4 values, or 8 with sigmas), objectness and classes.
template <int N> DEVICE unsigned yolo_mask(int entry, int entries, int box)
{
    unsigned bits = 0;
    UNROLL(i, N) {
        int own = entry + i;
#pragma unroll
        for (int most = 5; most <= N + 4; most += 5) own -= own >= entries ? entries : 0;
        const bool is_extent = box == 4 ? own == 2 || own == 3 : own == 4 || own == 6;
        const bool is_centre = box == 4 ? own < 2 : own == 0 || own == 2;
        bits |= (unsigned)is_extent << i | (unsigned)is_centre << (16 + i);
    }
    asm("" : "+r"(bits));  // keeps the compiler from holding every bit in its own register
    return bits;
}

// Computes the output of [yolo] from several values: neighbouring channels, or one channel of several
// pixels.
template <bool ARE_NEIGHBOURS, int N>
DEVICE void apply_yolo(float (&x)[N], unsigned bits, int is_raw, float scale_x_y)
{
    float y[N];
    UNROLL(i, N) y[i] = x[i];
    if (!is_raw) activate_with_exp(KIND_logistic, y);
    UNROLL(i, N) x[i] = bits >> (ARE_NEIGHBOURS ? i : 0) & 1 ? x[i] : y[i];
    if (scale_x_y == 1.f) return;
    UNROLL(i, N) {
        const bool is_centre = bits >> (ARE_NEIGHBOURS ? 16 + i : 16) & 1;
        x[i] = is_centre ? x[i] * scale_x_y - (scale_x_y - 1.f) / 2.f : x[i];
    }
}

// Applies any activation. The rare ones go through local memory, because inlined code for each value
// would be longer than the rest of the kernel.
template <int N> DEVICE void activate_all(int kind, float (&x)[N])
{
    if (activate_common(kind, x)) return;
    float rare[N];
    UNROLL(i, N) rare[i] = x[i];
#pragma unroll 1
    for (int i = 0; i < N; ++i) rare[i] = activate(kind, rare[i]);
    UNROLL(i, N) x[i] = rare[i];
}

// The offset in an NHWC tensor of the value with index `flat` in (row, channel, y, x) order.
DEVICE int nhwc_offset(int flat, int channels, int area, int pitch)
{
    const int row = flat / (channels * area);
    const int inside = flat - row * channels * area;
    const int channel = inside / area;
    return (row * area + inside - channel * area) * pitch + channel;
}

// out = last(f(sum) + residual), for the value at these offsets; `residual` may be null.
template <typename T> DEVICE void finish_value(
    float sum, int kind, const T* residual, int residual_offset, int last, T* out, int offset)
{
    sum = activate(kind, sum);
    if (residual) sum += to_float(residual[residual_offset]);
    put(out + offset, activate(last, sum));
}
