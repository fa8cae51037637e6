// noise: pseudo-random halves between -2 and 2, or the floats with the same bits, as input for timings.
// With zeros a card draws so much less power that its clock is higher than in real runs.
//
// Work item  a word: two halves.   Memory  coalesced. Used when a network is loaded, never in a run.
#include "common.cuh"

extern "C" __global__ void noise(unsigned* __restrict__ out, int words)
{
    after_previous_kernel();
    GRID_STRIDE(word, words)
    {
        unsigned x = (unsigned)word * 0x9E3779B9u;
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        x = (x ^ x >> 13) * 0xC2B2AE35u;
        x ^= x >> 16;
        // For each half: any sign and fraction, and one of four exponents, 2^-3 to 1.
        out[word] = (x & 0x8FFF8FFFu) | 0x30003000u;
    }
}
