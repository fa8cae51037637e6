// The type of results, chosen at compile time by OUT_BYTES. It may differ from the type of the inputs.
#pragma once
#include "common.cuh"

#if OUT_BYTES == 1
typedef signed char result;
#elif OUT_BYTES == 2
typedef half result;
#else
typedef float result;
#endif
#define OUT_PACK (16 / OUT_BYTES)

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
        store_bytes<N>(reinterpret_cast<signed char*>(p), pack, factor);
    }
}

// Returns a residual as a float; `scale` is that of int8.
DEVICE float residual_of(result x, float scale) { return OUT_BYTES == 1 ? to_float(x) * scale : to_float(x); }

#define RAW 2  // a value of YOLO: 0 without [yolo], 1 with logistic, 2 if [yolo] only scales
