// Sums whose rows are filters, on their way out. By the order in which the host puts filters those of a
// lane, OWN of each of its pixels, are neighbours, and eight lanes store whole sectors.
#pragma once
#include "sm90_warpgroups.cuh"

#define OWN (2 * BLOCKS_OF_ROWS)
#define OWN_PIXELS (BN / 4)
#define ASKED (16 / BLOCKS_OF_ROWS)  // pixels whose residuals are asked for together

typedef Bits<OWN * OUT_BYTES> Own;
// What a lane's pixels are added to: each in registers from when it is asked for until it is added.
typedef Own Residuals[OWN_PIXELS];

// The first of a lane's filters in a tile, of member `member` of a team.
__device__ __forceinline__ int own_filter(int member)
{
    const int warp = member * 4 + threadIdx.x / 32 % 4;
    return (warp * 8 + threadIdx.x % 32 / 4) * OWN;
}

__device__ __forceinline__ void read_biases(float (&bias)[OWN], const Problem& p, int n)
{
#pragma unroll
    for (int c = 0; c < OWN; ++c) bias[c] = n + c < p.filters ? p.bias[n + c] : 0.f;
}

__device__ __forceinline__ void begin_with(const float (&bias)[OWN],
                                           float (&sum)[BLOCKS_OF_ROWS][BN / 2])
{
#pragma unroll
    for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < BN / 2; ++j) sum[i][j] = bias[i * 2 + j / 2 % 2];
    }
}

// Filters from n on, as many as exist, of a lane's pixels, of which two and two are neighbours in every
// eight: the i-th of them, if it exists(i), is so many pixels further than m as ahead(i) says.
//
// Asks for the residuals of `first` and those behind it, `count` in all.
template <typename Exists, typename Ahead>
__device__ __forceinline__ void ask_some(Residuals& residual, const Problem& p, int m, int n, int first,
                                         int count, Exists exists, Ahead ahead)
{
    if (!WHOLE) return;
    const bool is_there = p.residual && n < p.filters;
    const int pitch = anew(p.residual_pitch);
    const result* from = p.residual + (size_t)m * pitch + n;
#pragma unroll
    for (int i = 0; i < OWN_PIXELS; ++i) {
        if (i < first || i >= first + count) continue;
        ask_words(residual[i].word, from + ahead(i) * pitch, is_there && exists(i));
    }
}

// The first residuals have been asked for. As sums leave, their registers take those of three times as
// many others: what comes from the L2 is waited for twice, not for every part.
template <typename Exists, typename Ahead>
__device__ __forceinline__ void finish_filters(float (&sum)[BLOCKS_OF_ROWS][BN / 2],
                                               Residuals& residual, const Problem& p, int m, int n,
                                               Exists exists, Ahead ahead)
{
    const int count = min(p.filters - n, OWN);
    auto is_there = [&](int i) { return count > 0 && exists(i); };
    result* out = static_cast<result*>(p.out) + (size_t)m * p.out_pitch + n;
#pragma unroll
    for (int i = 0; i < BLOCKS_OF_ROWS; ++i) activate_all(KIND, sum[i]);
#pragma unroll
    for (int first = 0; first < OWN_PIXELS; first += ASKED) {
        const int end = first + ASKED < OWN_PIXELS ? first + ASKED : OWN_PIXELS;
#pragma unroll
        for (int i = first; i < end; ++i) {
            float x[OWN];
#pragma unroll
            for (int c = 0; c < OWN; ++c) x[c] = sum[c / 2][i / 2 * 4 + c % 2 * 2 + i % 2];
            if constexpr (WHOLE) {
                Own line = line_of(x);
                finish_line(line, residual[i], p.residual);
                if (is_there(i)) store_words(out + ahead(i) * p.out_pitch, line.word);
            } else if (is_there(i)) {
                if (p.residual) {
                    add_residual(x, p.residual + (size_t)(m + ahead(i)) * p.residual_pitch + n, count);
                }
                finish(x, p, m + ahead(i), n, count);
            }
        }
        ask_some(residual, p, m, n, 3 * first + ASKED, 3 * ASKED, exists, ahead);
    }
}
