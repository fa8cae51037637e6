// quantise: out = src / scale, rounded to int8.   dequantise: out = src * scale.
// add_bytes: out = f(a + b) for int8 tensors, each with a scale of its own.
// add_quarters_to_bytes: add_quarters_packed of add.cu, where b and out are int8.
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

extern "C" __global__ void add_quarters_to_bytes(const real* __restrict__ a,
    const signed char* __restrict__ b, signed char* __restrict__ out, int pixels, int channels, int area,
    int b_channels, int a_pitch, int b_pitch, int out_pitch, int kind, float b_scale, float inverse)
{
    after_previous_kernel();
    const int share = PACK / 4;  // channels of b in a pack
    FOR_EACH_PACK(PACK, pixel, pixels, channel, channels)
    {
        Pack<PACK> x = load<PACK>(a + pixel * a_pitch + channel);
        if (channel / 4 < b_channels) {
            const int row = pixel / area;
            const signed char* from = b + (size_t)(pixel + row * 3 * area) * b_pitch + channel / 4;
            UNROLL(quarter, 4) {
                const Pack<share> y = load<share>(from + (size_t)quarter * area * b_pitch);
                UNROLL(i, share) {
                    float& sum = x.v[i * 4 + quarter];
                    sum = fmaf(y.v[i], b_scale, sum);
                }
            }
        }
        activate_all(kind, x.v);
        store_bytes<PACK>(out + pixel * out_pitch + channel, x, inverse);
    }
}
