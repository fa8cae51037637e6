// largest: the largest magnitude of a tensor; NaN and infinity rank above all numbers.
//
//   out  its bits: the bits of non-negative floats are ordered like the floats
//
// Work item  one value.   Memory  coalesced along channels. Used when a network is loaded and when its
// results are not finite, never in an ordinary run.
#include "common.cuh"

extern "C" __global__ void largest(
    const real* __restrict__ src, unsigned* out, int pixels, int channels, int src_pitch)
{
    after_previous_kernel();
    unsigned most = 0;
    GRID_STRIDE(item, pixels * channels)
    {
        const int pixel = item / channels;
        const float x = to_float(src[pixel * src_pitch + item - pixel * channels]);
        most = max(most, __float_as_uint(x) & 0x7FFFFFFFu);
    }
    atomicMax(out, most);
}
