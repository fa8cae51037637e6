// quantise: out = src / scale, rounded to bytes.   dequantise: out = src * scale.
// add_bytes: out = f(a + b) for maps of bytes, each with a scale of its own.
//
// Work item  one value, or a pack of neighbouring channels.   Memory  coalesced along channels.
#include "common.cuh"

#define QUANTISE_PARAMETERS                                                                              \
    const real *__restrict__ src, signed char *__restrict__ out, int pixels, int channels, int src_pitch, \
        int out_pitch, float inverse
#define QUANTISE_ARGUMENTS src, out, pixels, channels, src_pitch, out_pitch, inverse

template <int V> DEVICE void quantise_body(QUANTISE_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        store_bytes<V>(out + pixel * out_pitch + channel, load<V>(src + pixel * src_pitch + channel), inverse);
    }
}

SCALAR_AND_PACKED(quantise, QUANTISE)

#define DEQUANTISE_PARAMETERS                                                                            \
    const signed char *__restrict__ src, real *__restrict__ out, int pixels, int channels, int src_pitch, \
        int out_pitch, float scale
#define DEQUANTISE_ARGUMENTS src, out, pixels, channels, src_pitch, out_pitch, scale

template <int V> DEVICE void dequantise_body(DEQUANTISE_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        UNROLL(i, V) x.v[i] *= scale;
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

SCALAR_AND_PACKED(dequantise, DEQUANTISE)

#define ADD_BYTES_PARAMETERS                                                                            \
    const signed char *__restrict__ a, const signed char *__restrict__ b, signed char *__restrict__ out, \
        int pixels, int channels, int a_pitch, int b_pitch, int out_pitch, int kind, float a_scale,      \
        float b_scale, float inverse
#define ADD_BYTES_ARGUMENTS \
    a, b, out, pixels, channels, a_pitch, b_pitch, out_pitch, kind, a_scale, b_scale, inverse

template <int V> DEVICE void add_bytes_body(ADD_BYTES_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        Pack<V> x = load<V>(a + pixel * a_pitch + channel);
        const Pack<V> y = load<V>(b + pixel * b_pitch + channel);
        UNROLL(i, V) x.v[i] = fmaf(y.v[i], b_scale, x.v[i] * a_scale);
        activate_all(kind, x.v);
        store_bytes<V>(out + pixel * out_pitch + channel, x, inverse);
    }
}

SCALAR_AND_PACKED(add_bytes, ADD_BYTES)
