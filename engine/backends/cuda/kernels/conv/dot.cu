// dot: a 1x1 convolution of a few pixels, as in a squeeze-and-excite block: one warp per value. Launched by
// conv/im2col_gemm.py.
//
//   src (pixels, channels), weight (filters, channels); `out` and `residual` are floats if has_floats
//
// Work item  a warp takes one filter of one pixel; its lanes share the channels.
// Memory     weights and inputs are read once, coalesced; the work is too small for tensor cores.
//            Weights and biases do not depend on the previous kernel: the first are loaded early.
#include "common.cuh"

#define DOT_WARPS 4  // per block
#define DOT_AHEAD 8  // loads in flight per lane

// Nothing is __restrict__: with it the compiler might move reads of the input before the wait.
template <int V> DEVICE void dot_body(const real* src, const real* weight, const float* bias, const void* residual,
    void* out, int pixels, int channels, int filters, int src_pitch, int residual_pitch, int out_pitch,
    int kind, int last, int has_floats)
{
    const int lane = threadIdx.x % 32;
    const int warp = blockIdx.x * DOT_WARPS + threadIdx.x / 32;
    for (int item = warp; item < pixels * filters; item += gridDim.x * DOT_WARPS) {
        const int pixel = item / filters;
        const int filter = item - pixel * filters;
        const float own = bias ? bias[filter] : 0.f;
        float sum = 0.f;
#pragma unroll 1
        for (int first = lane * V; first < channels; first += DOT_AHEAD * 32 * V) {
            Bits<V * sizeof(real)> weights[DOT_AHEAD], inputs[DOT_AHEAD];
            auto channel = [&](int i) { return min(first + i * 32 * V, channels - V); };
            UNROLL(i, DOT_AHEAD) weights[i] = load_bits<V>(weight + filter * channels + channel(i));
            after_previous_kernel();  // returns at once after the first time
            UNROLL(i, DOT_AHEAD) inputs[i] = load_bits<V>(src + pixel * src_pitch + channel(i));
            UNROLL(i, DOT_AHEAD) {
                if (first + i * 32 * V >= channels) break;
                UNROLL(k, V) sum += value_of<V>(inputs[i], k) * value_of<V>(weights[i], k);
            }
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        }
        if (lane > 0) continue;
        float x = sum + own;
#pragma unroll 1
        for (int turn = 0; turn < 2; ++turn) {  // one copy of the code of all activations
            x = activate(turn ? last : kind, x);
            if (turn || !residual) continue;
            const int from = pixel * residual_pitch + filter;
            x += has_floats ? static_cast<const float*>(residual)[from]
                            : to_float(static_cast<const real*>(residual)[from]);
        }
        const int to = pixel * out_pitch + filter;
        if (has_floats) {
            static_cast<float*>(out)[to] = x;
        } else {
            put(static_cast<real*>(out) + to, x);
        }
    }
}

#define DOT_PARAMETERS                                                                                    \
    const real *src, const real *weight, const float *bias, const void *residual, void *out, int pixels,  \
        int channels, int filters, int src_pitch, int residual_pitch, int out_pitch, int kind, int last,  \
        int has_floats
#define DOT_ARGUMENTS                                                                                         \
    src, weight, bias, residual, out, pixels, channels, filters, src_pitch, residual_pitch, out_pitch, kind,  \
        last, has_floats

extern "C" __global__ void dot(DOT_PARAMETERS) { dot_body<1>(DOT_ARGUMENTS); }

extern "C" __global__ void dot_packed(DOT_PARAMETERS) { dot_body<PACK>(DOT_ARGUMENTS); }
