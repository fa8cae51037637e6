// multiply: out = f(src * factor); the factor has the map's shape, one value a channel, or one a
// pixel: factor_row, factor_pixel and factor_channel are its steps, 0 where it does not vary.
//
// Work item  one value.   Memory  coalesced along channels.
#include "common.cuh"

extern "C" __global__ void multiply(const real* __restrict__ src, const real* __restrict__ factor,
                                    real* __restrict__ out, int rows, int area, int channels,
                                    int src_pitch, int out_pitch, int factor_row, int factor_pixel,
                                    int factor_channel, int kind)
{
    GRID_STRIDE(item, rows * area * channels)
    {
        const int pixel = item / channels;
        const int channel = item - pixel * channels;
        const int row = pixel / area;
        const int at =
            row * factor_row + (pixel - row * area) * factor_pixel + channel * factor_channel;
        const float x = to_float(src[pixel * src_pitch + channel]) * to_float(factor[at]);
        put(out + pixel * out_pitch + channel, activate(kind, x));
    }
}
