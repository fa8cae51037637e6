// copy_channels: a run of channels of every pixel, from one map into another.
//
// Work item  one pack of neighbouring channels.   Memory  one read, one write, coalesced.
#include "common.cuh"

template <int V> DEVICE void copy_channels_body(const real* __restrict__ src, real* __restrict__ out,
    int pixels, int channels, int src_pitch, int out_pitch)
{
    const int packs = channels / V;
    GRID_STRIDE(item, pixels * packs)
    {
        const int pixel = item / packs;
        const int channel = (item - pixel * packs) * V;
        *reinterpret_cast<Raw<V>*>(out + pixel * out_pitch + channel) =
            *reinterpret_cast<const Raw<V>*>(src + pixel * src_pitch + channel);
    }
}

extern "C" __global__ void copy_channels(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    copy_channels_body<1>(src, out, pixels, channels, src_pitch, out_pitch);
}

extern "C" __global__ void copy_channels_packed(const real* __restrict__ src, real* __restrict__ out,
    int pixels, int channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    copy_channels_body<PACK>(src, out, pixels, channels, src_pitch, out_pitch);
}
