// bias_activate: out = last(f(src + bias[channel]) + residual), what follows a matrix product.
//
//   src, out, residual  (pixels, channels), each with its pitch; src may be out; bias and residual
//   may be null
//
// Work item  one pack of neighbouring channels.   Memory  coalesced along channels.
#include "common.cuh"

template <int V> DEVICE void bias_activate_body(const real* src, const float* __restrict__ bias,
    const real* __restrict__ residual, real* out, int pixels, int channels, int src_pitch, int residual_pitch,
    int out_pitch, int kind, int last)
{
    const int packs = channels / V;
    GRID_STRIDE(item, pixels * packs)
    {
        const int pixel = item / packs;
        const int channel = (item - pixel * packs) * V;
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        if (bias) {
#pragma unroll
            for (int i = 0; i < V; ++i) x.v[i] += bias[channel + i];
        }
        activate_all(kind, x.v);
        if (residual) {
            const Pack<V> r = load<V>(residual + pixel * residual_pitch + channel);
#pragma unroll
            for (int i = 0; i < V; ++i) x.v[i] += r.v[i];
        }
        activate_all(last, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

extern "C" __global__ void bias_activate(const real* src, const float* __restrict__ bias,
    const real* __restrict__ residual, real* out, int pixels, int channels, int src_pitch, int residual_pitch,
    int out_pitch, int kind, int last)
{
    after_previous_kernel();
    bias_activate_body<1>(
        src, bias, residual, out, pixels, channels, src_pitch, residual_pitch, out_pitch, kind, last);
}

extern "C" __global__ void bias_activate_packed(const real* src, const float* __restrict__ bias,
    const real* __restrict__ residual, real* out, int pixels, int channels, int src_pitch, int residual_pitch,
    int out_pitch, int kind, int last)
{
    after_previous_kernel();
    bias_activate_body<PACK>(
        src, bias, residual, out, pixels, channels, src_pitch, residual_pitch, out_pitch, kind, last);
}
