// normalise: out = (src - mean) / sqrt(variance + 1e-5) * scale + bias, per channel.
//
// Work item  one value.   Memory  coalesced along channels.
#include "common.cuh"

extern "C" __global__ void normalise(const real* __restrict__ src, real* __restrict__ out,
    const float* __restrict__ mean, const float* __restrict__ variance, const float* __restrict__ scale,
    const float* __restrict__ bias, int pixels, int channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, pixels, c, channels)
    {
        const float x = to_float(src[pixel * src_pitch + c]);
        const float y = (x - mean[c]) / sqrtf(variance[c] + 1e-5f) * scale[c] + bias[c];
        put(out + pixel * out_pitch + c, y);
    }
}
