// What the threads of a block have added up for columns that several of them share.
#pragma once
#include "common.cuh"

// `shares` has a line of `columns` sums for each of `lanes` lanes; their totals, added in order,
// are those of channels from `first` on. A part's sums are whole fours long, so that `gate` reads
// them as such.
template <int THREADS>
__device__ __forceinline__ void leave_totals(float* shares, int lanes, int columns, float* to,
                                             int first, int channels)
{
    const int groups = min(THREADS / columns, lanes);
    const int group = threadIdx.x / columns;
    const int column = threadIdx.x % columns;
    __syncthreads();
    if (group < groups) {
        float total = 0.f;
#pragma unroll 4
        for (int i = group; i < lanes; i += groups) total += shares[i * columns + column];
        shares[group * columns + column] = total;  // which no other thread has read
    }
    __syncthreads();
    const int channel = first + column;
    if (group == 0 && channel < channels) {
        float total = 0.f;
#pragma unroll 4
        for (int i = 0; i < groups; ++i) total += shares[i * columns + column];
        to[channel] = total;
        // nobody's, but read with the others
        const int end = (channels + 3) / 4 * 4;
        for (int c = channels; c < end && channel == channels - 1; ++c) to[c] = 0.f;
    }
    __syncthreads();  // the next turn takes the same memory
}
