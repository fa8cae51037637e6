// activate_values: out = f(src), value by value. Launched by ops/elementwise.py.
//
//   src, out  (pixels, channels), each with its pitch
//
// Work item  one pack of neighbouring channels.   Memory  one read, one write, coalesced.
#include "common.cuh"

#define ACTIVATE_VALUES_PARAMETERS                                                                 \
    const real *__restrict__ src, real *__restrict__ out, int pixels, int channels, int src_pitch, \
        int out_pitch, int kind
#define ACTIVATE_VALUES_ARGUMENTS src, out, pixels, channels, src_pitch, out_pitch, kind

template <int V> DEVICE void activate_values_body(ACTIVATE_VALUES_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        activate_all(kind, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

SCALAR_AND_PACKED(activate_values, ACTIVATE_VALUES)
