// multiply: out = f(src * factor). The factor has the map's shape, one value per channel or one per pixel:
// factor_row, factor_pixel and factor_channel are its strides, 0 where it does not vary.
//
// Work item  one pack of neighbouring channels.   Memory  coalesced along channels.
#include "common.cuh"

#define MULTIPLY_PARAMETERS                                                                          \
    const real *__restrict__ src, const real *__restrict__ factor, real *__restrict__ out, int rows, \
        int area, int channels, int src_pitch, int out_pitch, int factor_row, int factor_pixel,      \
        int factor_channel, int kind
#define MULTIPLY_ARGUMENTS                                                                                  \
    src, factor, out, rows, area, channels, src_pitch, out_pitch, factor_row, factor_pixel, factor_channel, \
        kind

template <int V> DEVICE void multiply_body(MULTIPLY_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, rows * area, channel, channels)
    {
        const int row = pixel / area;
        const real* at = factor + row * factor_row + (pixel - row * area) * factor_pixel;
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        if (factor_channel) {
            const Pack<V> y = load<V>(at + channel);
            UNROLL(i, V) x.v[i] *= y.v[i];
        } else {
            const float y = to_float(*at);
            UNROLL(i, V) x.v[i] *= y;
        }
        activate_all(kind, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

SCALAR_AND_PACKED(multiply, MULTIPLY)
