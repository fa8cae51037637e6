// Where results go: to their pixel, or to the REPEATED x REPEATED pixels of an upsampled map.
#pragma once
#include "sm90_mainloop.cuh"
#ifndef REPEATED
#define REPEATED 1
#endif

DEVICE void store_upsampled(const KernelArgs& p, int m, int n, const ResultVector& line)
{
    const int x = m - divide(m, p.by_out_w) * p.out_w;
    const size_t first = (size_t)m * REPEATED * REPEATED - x * REPEATED * (REPEATED - 1);
    result* to = static_cast<result*>(p.out) + first * p.out_pitch + n;
#pragma unroll
    for (int i = 0; i < REPEATED; ++i) {
#pragma unroll
        for (int j = 0; j < REPEATED; ++j) {
            store_vector(to + (i * REPEATED * p.out_w + j) * p.out_pitch, line.word);
        }
    }
}
