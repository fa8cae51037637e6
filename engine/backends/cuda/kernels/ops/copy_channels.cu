// copy_channels: copies a run of channels of every pixel from one tensor to another.
//
// Work item  one pack of neighbouring channels.   Memory  one read, one write, coalesced.
#include "common.cuh"

#define COPY_CHANNELS_PARAMETERS                                                                   \
    const real *__restrict__ src, real *__restrict__ out, int pixels, int channels, int src_pitch, \
        int out_pitch
#define COPY_CHANNELS_ARGUMENTS src, out, pixels, channels, src_pitch, out_pitch

template <int V> DEVICE void copy_channels_body(COPY_CHANNELS_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        *reinterpret_cast<Raw<V>*>(out + pixel * out_pitch + channel) =
            *reinterpret_cast<const Raw<V>*>(src + pixel * src_pitch + channel);
    }
}

SCALAR_AND_PACKED(copy_channels, COPY_CHANNELS)
