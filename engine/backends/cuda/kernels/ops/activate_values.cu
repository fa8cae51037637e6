// activate_values: out = f(src), value by value.
//
//   src, out  (pixels, channels), each with its pitch
//
// Work item  one pack of neighbouring channels.   Memory  one read, one write, coalesced.
#include "common.cuh"

template <int V> DEVICE void activate_body(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch, int kind)
{
    const int packs = channels / V;
    GRID_STRIDE(item, pixels * packs)
    {
        const int pixel = item / packs;
        const int channel = (item - pixel * packs) * V;
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        activate_all(kind, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

extern "C" __global__ void activate_values(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch, int kind)
{
    after_previous_kernel();
    activate_body<1>(src, out, pixels, channels, src_pitch, out_pitch, kind);
}

extern "C" __global__ void activate_values_packed(const real* __restrict__ src, real* __restrict__ out,
    int pixels, int channels, int src_pitch, int out_pitch, int kind)
{
    after_previous_kernel();
    activate_body<PACK>(src, out, pixels, channels, src_pitch, out_pitch, kind);
}
