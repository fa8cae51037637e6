// upsample: out[y, x] = scale * src[y / stride, x / stride].
// block_sum: out[y, x] = scale * sum of the stride x stride block of src.
//
// Work item  one output pixel and a pack of channels.   Memory  coalesced along channels.
#include "common.cuh"

#define UPSAMPLE_PARAMETERS                                                                             \
    const real *__restrict__ src, real *__restrict__ out, int rows, int channels, int out_h, int out_w, \
        int src_pitch, int out_pitch, int stride, float scale
#define UPSAMPLE_ARGUMENTS src, out, rows, channels, out_h, out_w, src_pitch, out_pitch, stride, scale

template <int V> DEVICE void upsample_body(UPSAMPLE_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, rows * out_h * out_w, channel, channels)
    {
        const int x = pixel % out_w;
        const int y = pixel / out_w;  // over all rows: out_h is a multiple of stride
        const int from = y / stride * (out_w / stride) + x / stride;
        Pack<V> v = load<V>(src + from * src_pitch + channel);
        UNROLL(i, V) v.v[i] *= scale;
        store<V>(out + pixel * out_pitch + channel, v);
    }
}

SCALAR_AND_PACKED(upsample, UPSAMPLE)

extern "C" __global__ void block_sum(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int stride,
    float scale)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, channel, channels)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const real* image = src + at.row * height * width * src_pitch + channel;
        float sum = 0.f;
        for (int i = at.y * stride; i < (at.y + 1) * stride; ++i) {
            for (int j = at.x * stride; j < (at.x + 1) * stride; ++j) {
                sum += to_float(image[(i * width + j) * src_pitch]);
            }
        }
        put(out + pixel * out_pitch + channel, scale * sum);
    }
}
