// Sums of a row lie in four lanes, two of every eight columns in each: results on their way out of them.
#pragma once
#include "output_type.cuh"

// OUT_PACK results side by side, as words.
typedef Bits<16> Line;

// Four words of each lane of a quad: lane q gets the words q of all four, in the order of lanes.
__device__ __forceinline__ void transpose_quad(unsigned (&word)[4])
{
    const bool is_odd = threadIdx.x & 1;
    const bool is_high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(~0u, is_odd ? word[i] : word[i + 1], 1);
        if (is_odd) word[i] = other;
        else word[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned other = __shfl_xor_sync(~0u, is_high ? word[i] : word[i + 2], 2);
        if (is_high) word[i] = other;
        else word[i + 2] = other;
    }
}

// A line of neighbouring results of a row for each lane of a quad, out of the pairs that they hold:
// `pair` has those of SHARED columns, in groups of eight, which begin with column_of(lane). The four
// lines lie side by side.
#if OUT_BYTES == 2
#define SHARED 32

__device__ __forceinline__ int column_of(int lane) { return lane % 4 * 8; }

__device__ __forceinline__ void gather_line(const float (&pair)[SHARED / 8][2], Line& x)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) x.word[i] = halves_of(pair[i][0], pair[i][1]);
    transpose_quad(x.word);
}
#else
#define SHARED 16

__device__ __forceinline__ int column_of(int lane) { return lane % 2 * 8 + lane / 2 % 2 * 4; }

// Neighbours swap: the even one takes both pairs of the first group, the odd one those of the second.
__device__ __forceinline__ void gather_line(const float (&pair)[SHARED / 8][2], Line& x)
{
    const bool is_odd = threadIdx.x & 1;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const unsigned given = __float_as_uint(is_odd ? pair[0][k] : pair[1][k]);
        const unsigned taken = __shfl_xor_sync(~0u, given, 1);
        x.word[k] = is_odd ? taken : __float_as_uint(pair[0][k]);
        x.word[2 + k] = is_odd ? __float_as_uint(pair[1][k]) : taken;
    }
}
#endif
