// What every kernel shares: the storage type, packs of values, and the grid-stride loop.
//
// Layout: activations are NHWC. A tensor is a pointer and a pitch: the values from one pixel to the
// next, at least its channels, more when it lives inside a wider concatenation. Rows (samples) are
// runs of height * width pixels. `real` is how values are stored; arithmetic is always float.
#pragma once

#if defined(STORE_HALF) || OUT_BYTES == 2
#include <cuda_fp16.h>
DEVICE float to_float(__half x) { return __half2float(x); }
DEVICE void put(__half* p, float x) { *p = __float2half_rn(x); }
#endif
DEVICE unsigned pack_half2(float low, float high)
{
#if defined(__CUDA_ARCH__) && (defined(STORE_HALF) || OUT_BYTES == 2)
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(pair);
#elif defined(STORE_HALF) || OUT_BYTES == 2
    return __float2half_rn(low).bits | (unsigned)__float2half_rn(high).bits << 16;
#else
    return 0;  // of no program that has none
#endif
}
#ifdef STORE_HALF
typedef __half real;
#else
typedef float real;
#endif
DEVICE float to_float(float x) { return x; }
DEVICE void put(float* p, float x) { *p = x; }

// The first line of every kernel: it may have been started while the kernel before it still runs.
// It waits until that has ended and its results can be seen, and lets the next one start as early.
DEVICE void after_previous_kernel()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Notes in `flag`, where there is one, that a value is none: halves end at 65504, and beyond them is
// infinity. Who reads the flag finds out where it began.
DEVICE void flag_non_finite(unsigned* flag, float x)
{
    if (flag && x - x != 0.f) *flag = 1;
}

// The same of several values: zero times one that is none is none, and so is a sum with it.
template <int N> DEVICE void flag_non_finite(unsigned* flag, const float (&x)[N])
{
    float nothing = 0.f;
#pragma unroll
    for (int i = 0; i < N; ++i) nothing += x[i] * 0.f;
    flag_non_finite(flag, nothing);
}

// Values in 16 bytes: what one thread of a `_packed` kernel moves at once.
#define PACK (16 / (int)sizeof(real))

// Every loop is this one, so that a launch of any size is right.
#define GRID_STRIDE(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

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
#pragma unroll
    for (int i = 0; i < V; ++i) pack.v[i] = to_float(raw.v[i]);
    return pack;
}

// V neighbouring values as they lie in memory. To have many on their way at once: load_bits for all of
// them, without a branch between, before the first is looked at. An array of halves is looked at as
// soon as it arrives.
template <int BYTES> struct alignas(BYTES) Bits {
    unsigned word[BYTES / 4];
};
template <> struct Bits<2> {
    unsigned short word[1];
};

template <int V> DEVICE Bits<V * sizeof(real)> load_bits(const real* p)
{
    return *reinterpret_cast<const Bits<V * sizeof(real)>*>(p);
}

// The same, or zeros where no value lies: nothing is read there.
template <int V> DEVICE Bits<V * sizeof(real)> load_bits_if(bool is_value, const real* p)
{
    Bits<V * sizeof(real)> bits = {};
    if (is_value) bits = load_bits<V>(p);
    return bits;
}

// Zeros in the nhwc_offset of values that are none.
template <int BYTES> DEVICE void zero_unless(bool is_value, Bits<BYTES>& bits)
{
    for (auto& word : bits.word) word = is_value ? word : 0;
}

template <int V> DEVICE float value_of(const Bits<V * sizeof(real)>& bits, int i)
{
    return to_float(reinterpret_cast<const Raw<V>&>(bits).v[i]);
}

// Halves are put into words first, which a compiler does not tear apart into stores of one half each.
template <int V, typename T> DEVICE void store(T* p, const Pack<V>& pack)
{
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        Bits<V * 2> bits;
#pragma unroll
        for (int i = 0; i < V / 2; ++i) bits.word[i] = pack_half2(pack.v[2 * i], pack.v[2 * i + 1]);
        *reinterpret_cast<Bits<V * 2>*>(p) = bits;
    } else {
        Raw<V, T> raw;
#pragma unroll
        for (int i = 0; i < V; ++i) put(&raw.v[i], pack.v[i]);
        *reinterpret_cast<Raw<V, T>*>(p) = raw;
    }
}

// Those that take a power and a reciprocal. Of values that will be halves fours share a reciprocal:
// powers end where halves have nothing left, so that four factors still have a product. What is no
// number, which fminf drops, is in no factor, so that it spoils none of the others, and stays none.
template <int N> DEVICE void activate_with_exp(int kind, float (&x)[N])
{
#ifdef STORE_HALF
    float upper[N], lower[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
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
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = upper[i] * lower[i];
#else
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = activate(kind, x[i]);
#endif
}

// x times its logistic. Of values that will be halves by the tangent of half of it, in three
// instructions: a power and a reciprocal take seven, and at 1x1 convolutions as long as the products.
DEVICE float swish(float x)
{
#ifdef STORE_HALF
    const float half = .5f * x;
    return half * hyperbolic_tangent(half) + half;
#else
    return activate(KIND_swish, x);
#endif
}

// The commonest activations over several values. A launch has one kind, so the switch costs once for
// all of them; before each value it would cost more than the arithmetic. True where it knew the kind.
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

// Which of N neighbouring values, the first of which is entry `entry` of its anchor, are a box's width
// or height, and from bit 16 on which are its centre. Box (4, or 8 with sigmas), objectness, classes.
template <int N> DEVICE unsigned yolo_mask(int entry, int entries, int box)
{
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        int own = entry + i;
#pragma unroll
        for (int most = 5; most <= N + 4; most += 5) own -= own >= entries ? entries : 0;
        const bool is_extent = box == 4 ? own == 2 || own == 3 : own == 4 || own == 6;
        const bool is_centre = box == 4 ? own < 2 : own == 0 || own == 2;
        bits |= (unsigned)is_extent << i | (unsigned)is_centre << (16 + i);
    }
    asm("" : "+r"(bits));  // else a compiler keeps every bit in a register of its own
    return bits;
}

// What [yolo] makes of several values: of neighbours, or of the same entry of several pixels.
template <bool ARE_NEIGHBOURS, int N>
DEVICE void apply_yolo(float (&x)[N], unsigned bits, int is_raw, float scale_x_y)
{
    float y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = x[i];
    if (!is_raw) activate_with_exp(KIND_logistic, y);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = bits >> (ARE_NEIGHBOURS ? i : 0) & 1 ? x[i] : y[i];
    if (scale_x_y == 1.f) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const bool is_centre = bits >> (ARE_NEIGHBOURS ? 16 + i : 16) & 1;
        x[i] = is_centre ? x[i] * scale_x_y - (scale_x_y - 1.f) / 2.f : x[i];
    }
}

// Any activation over several values; what is not common goes through memory, as code for each value
// would be longer than all the rest.
template <int N> DEVICE void activate_all(int kind, float (&x)[N])
{
    if (activate_common(kind, x)) return;
    float rare[N];
#pragma unroll
    for (int i = 0; i < N; ++i) rare[i] = x[i];
#pragma unroll 1
    for (int i = 0; i < N; ++i) rare[i] = activate(kind, rare[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = rare[i];
}

// The nhwc_offset, in an NHWC tensor, of the value that is number `flat` in (channel, row, column) order.
DEVICE int nhwc_offset(int flat, int channels, int area, int pitch)
{
    const int row = flat / (channels * area);
    const int inside = flat - row * channels * area;
    const int channel = inside / area;
    return (row * area + inside - channel * area) * pitch + channel;
}
