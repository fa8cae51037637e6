// bias_activate: out = last(f(src + bias[channel]) + residual), the epilogue after a cuBLAS GEMM.
// Launched by conv/kernel_args.py.
//
//   src, out, residual  (pixels, channels), each with its pitch; src may be out
//   bias, residual      may be null
//
// Work item  one pack of neighbouring channels.   Memory  coalesced along channels.
#include "common.cuh"

#define BIAS_ACTIVATE_PARAMETERS                                                                   \
    const real *src, const float *__restrict__ bias, const real *__restrict__ residual, real *out, \
        int pixels, int channels, int src_pitch, int residual_pitch, int out_pitch, int kind, int last
#define BIAS_ACTIVATE_ARGUMENTS \
    src, bias, residual, out, pixels, channels, src_pitch, residual_pitch, out_pitch, kind, last

template <int V> DEVICE void bias_activate_body(BIAS_ACTIVATE_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        Pack<V> x = load<V>(src + pixel * src_pitch + channel);
        if (bias) {
            UNROLL(i, V) x.v[i] += bias[channel + i];
        }
        activate_all(kind, x.v);
        if (residual) {
            const Pack<V> r = load<V>(residual + pixel * residual_pitch + channel);
            UNROLL(i, V) x.v[i] += r.v[i];
        }
        activate_all(last, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

SCALAR_AND_PACKED(bias_activate, BIAS_ACTIVATE)
