// largest: the magnitude of the value that is furthest from zero; above all numbers what is none.
//
//   out  its bits: those of floats without a sign are in the order of the floats
//
// Work item  one value.   Memory  coalesced along channels; looked at when a network is loaded, and
// when its results are strange, never in a run.
#include "common.cuh"

extern "C" __global__ void largest(
    const real* __restrict__ src, unsigned* out, int pixels, int channels, int pitch)
{
    after_previous_kernel();
    unsigned most = 0;
    GRID_STRIDE(item, pixels * channels)
    {
        const int pixel = item / channels;
        const float x = to_float(src[pixel * pitch + item - pixel * channels]);
        most = max(most, __float_as_uint(x) & 0x7FFFFFFFu);
    }
    atomicMax(out, most);
}
