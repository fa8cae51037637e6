// The type of results, chosen at compile time by OUT_BYTES. It may differ from the type of the inputs.
#pragma once
#include "common.cuh"

#if OUT_BYTES == 1
typedef signed char result;
#elif OUT_BYTES == 2
typedef __half result;
#else
typedef float result;
#endif
#define OUT_PACK (16 / OUT_BYTES)

// ---- values in bytes: signed steps, from -128 to 127
//
// Conversions of floats and bytes run at a fraction of the rate of sums. A float of 2^23 and more has its
// integer part in its lowest bits.

// Four values times `factor`, rounded to nearest, ties to even, and saturated.
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

// The i-th byte of a word of which every byte has been xored with 0x80.
DEVICE float byte_to_float(unsigned flipped, int i)
{
    return __uint_as_float(__byte_perm(flipped, 0x4B000000, 0x7540 + i)) - (8388608.f + 128.f);
}

// Stores one result, or N neighbouring ones; `factor` is that of pack_bytes.
DEVICE void put_result(result* p, float x, float factor)
{
#if OUT_BYTES == 1
    *p = (signed char)pack_bytes(x, x, x, x, factor);
#else
    put(p, x);
#endif
}

template <int N> DEVICE void store_result(result* p, const Pack<N>& pack, float factor)
{
    if constexpr (OUT_BYTES > 1) {
        store<N>(p, pack);
    } else {
        Raw<N, result> raw;
        UNROLL(i, (N + 3) / 4) {
            const auto at = [&](int j) { return pack.v[i * 4 + j % N]; };
            const unsigned word = pack_bytes(at(0), at(1), at(2), at(3), factor);
            UNROLL(j, N < 4 ? N : 4) raw.v[i * 4 + j] = (signed char)(word >> 8 * j);
        }
        *reinterpret_cast<Raw<N, result>*>(p) = raw;
    }
}

// A residual as a float; `scale` is the value of a step of bytes.
DEVICE float residual_of(result x, float scale) { return OUT_BYTES == 1 ? to_float(x) * scale : to_float(x); }

#define RAW 2  // a value of YOLO: 0 without [yolo], 1 with logistic, 2 if [yolo] only scales
