// Prepares MMA accumulators for wide stores. The sums of a row lie in the four lanes of a quad, two
// of every eight columns in each; a transpose gives each lane neighbouring results.
#pragma once
#include "output_type.cuh"

// OUT_PACK neighbouring results, as words.
typedef Bits<16> ResultVector;

// Transposes four words of each lane of a quad: lane q gets word q of all four lanes.
DEVICE void transpose_quad(unsigned (&word)[4])
{
    const bool is_odd = threadIdx.x & 1;
    const bool is_high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(~0u, is_odd ? word[i] : word[i + 1], 1);
        if (is_odd)
            word[i] = other;
        else
            word[i + 1] = other;
    }
    UNROLL(i, 2) {
        const unsigned other = __shfl_xor_sync(~0u, is_high ? word[i] : word[i + 2], 2);
        if (is_high)
            word[i] = other;
        else
            word[i + 2] = other;
    }
}

// Gives each lane of a quad a vector of neighbouring results of a row, out of the pairs that the lanes
// hold. `pair` has this lane's values of QUAD_COLUMNS columns, in groups of eight; the lane's vector
// begins with quad_column(lane). The four vectors are contiguous.
#if OUT_BYTES == 1
#define QUAD_COLUMNS 32

DEVICE int quad_column(int lane) { return lane % 4 * 8; }

// Gives each lane eight bytes; `factor` is that of pack_bytes.
DEVICE void gather_bytes(const float (&pair)[QUAD_COLUMNS / 8][2], Bits<8>& x, float factor)
{
    const bool is_odd = threadIdx.x & 1;
    const bool is_high = threadIdx.x & 2;
    // A word has the pairs of two groups. Lanes two apart swap words, neighbours then swap pairs.
    const unsigned low = pack_bytes(pair[0][0], pair[0][1], pair[1][0], pair[1][1], factor);
    const unsigned high = pack_bytes(pair[2][0], pair[2][1], pair[3][0], pair[3][1], factor);
    const unsigned mine = is_high ? high : low;
    const unsigned other = __shfl_xor_sync(~0u, is_high ? low : high, 2);
    const unsigned kept = __byte_perm(mine, other, is_odd ? 0x7632 : 0x5410);
    const unsigned sent = __byte_perm(mine, other, is_odd ? 0x5410 : 0x7632);
    const unsigned received = __shfl_xor_sync(~0u, sent, 1);
    const unsigned first = is_odd ? received : kept;
    const unsigned second = is_odd ? kept : received;
    x.word[0] = __byte_perm(first, second, is_high ? 0x7632 : 0x5410);
    x.word[1] = __byte_perm(first, second, is_high ? 0x5410 : 0x7632);
}
#elif OUT_BYTES == 2
#define QUAD_COLUMNS 32

DEVICE int quad_column(int lane) { return lane % 4 * 8; }

DEVICE void gather_vector(const float (&pair)[QUAD_COLUMNS / 8][2], ResultVector& x)
{
    UNROLL(i, 4) x.word[i] = pack_half2(pair[i][0], pair[i][1]);
    transpose_quad(x.word);
}
#else
#define QUAD_COLUMNS 16

DEVICE int quad_column(int lane) { return lane % 2 * 8 + lane / 2 % 2 * 4; }

// Neighbouring lanes swap: the even one takes both pairs of the first group, the odd one those of the
// second.
DEVICE void gather_vector(const float (&pair)[QUAD_COLUMNS / 8][2], ResultVector& x)
{
    const bool is_odd = threadIdx.x & 1;
    UNROLL(k, 2) {
        const unsigned sent = __float_as_uint(is_odd ? pair[0][k] : pair[1][k]);
        const unsigned received = __shfl_xor_sync(~0u, sent, 1);
        x.word[k] = is_odd ? received : __float_as_uint(pair[0][k]);
        x.word[2 + k] = is_odd ? __float_as_uint(pair[1][k]) : received;
    }
}
#endif
