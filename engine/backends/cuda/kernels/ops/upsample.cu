// upsample: out[y,x] = scale * src[y / stride, x / stride].
// block_sum: out[y,x] = scale * sum of the stride x stride block of src.
//
// Work item  one output pixel and a pack of channels.   Memory  coalesced along channels.
#include "common.cuh"

template <int V> DEVICE void upsample_body(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int out_h, int out_w, int src_pitch, int out_pitch, int stride, float scale)
{
    const int packs = channels / V;
    GRID_STRIDE(item, rows * out_h * out_w * packs)
    {
        const int pixel = item / packs;
        const int channel = (item - pixel * packs) * V;
        const int x = pixel % out_w;
        const int y = pixel / out_w;  // over all rows: out_h is a multiple of stride
        const int from = y / stride * (out_w / stride) + x / stride;
        Pack<V> v = load<V>(src + from * src_pitch + channel);
#pragma unroll
        for (int i = 0; i < V; ++i) v.v[i] *= scale;
        store<V>(out + pixel * out_pitch + channel, v);
    }
}

extern "C" __global__ void upsample(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int out_h, int out_w, int src_pitch, int out_pitch, int stride, float scale)
{
    after_previous_kernel();
    upsample_body<1>(src, out, rows, channels, out_h, out_w, src_pitch, out_pitch, stride, scale);
}

extern "C" __global__ void upsample_packed(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int out_h, int out_w, int src_pitch, int out_pitch, int stride, float scale)
{
    after_previous_kernel();
    upsample_body<PACK>(src, out, rows, channels, out_h, out_w, src_pitch, out_pitch, stride, scale);
}

extern "C" __global__ void block_sum(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int stride,
    float scale)
{
    after_previous_kernel();
    GRID_STRIDE(item, rows * out_h * out_w * channels)
    {
        const int pixel = item / channels;
        const int channel = item - pixel * channels;
        const int x = pixel % out_w;
        const int y = pixel / out_w % out_h;
        const int row = pixel / out_w / out_h;
        const real* image = src + row * height * width * src_pitch + channel;
        float sum = 0.f;
        for (int i = y * stride; i < (y + 1) * stride; ++i) {
            for (int j = x * stride; j < (x + 1) * stride; ++j) {
                sum += to_float(image[(i * width + j) * src_pitch]);
            }
        }
        put(out + pixel * out_pitch + channel, scale * sum);
    }
}
