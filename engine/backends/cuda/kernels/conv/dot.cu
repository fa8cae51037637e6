// dot: a 1x1 convolution of a few pixels, as in a squeeze-and-excite block: one block per value. Launched by
// conv/im2col_gemm.py.
//
//   src (pixels, channels), weight (filters, channels); `out` and `residual` are floats if has_floats
//
// Work item  a block takes one filter of one pixel; its threads share the channels.
// Memory     weights and inputs are read once, coalesced; the product is too small for tensor cores. Weights and
//            biases do not depend on the previous kernel: the first are loaded before the wait for it.
#include "common.cuh"

#define DOT_THREADS 128
#define DOT_AHEAD 4  // loads in flight per thread

// Nothing is __restrict__: with it the compiler might move reads of the input before the wait.
template <int V> DEVICE void dot_body(const real* src, const real* weight, const float* bias, const void* residual,
    void* out, int pixels, int channels, int filters, int src_pitch, int residual_pitch, int out_pitch,
    int kind, int last, int has_floats)
{
    __shared__ float shared[DOT_THREADS / 32];
    const int thread = threadIdx.x;
    for (int item = blockIdx.x; item < pixels * filters; item += gridDim.x) {
        const int pixel = item / filters;
        const int filter = item - pixel * filters;
        const float own = bias ? bias[filter] : 0.f;
        float sum = 0.f;
        for (int first = thread * V; first < channels; first += DOT_AHEAD * DOT_THREADS * V) {
            Bits<V * sizeof(real)> weights[DOT_AHEAD], inputs[DOT_AHEAD];
            auto channel = [&](int i) { return min(first + i * DOT_THREADS * V, channels - V); };
            UNROLL(i, DOT_AHEAD) weights[i] = load_bits<V>(weight + filter * channels + channel(i));
            after_previous_kernel();  // returns at once after the first time
            UNROLL(i, DOT_AHEAD) inputs[i] = load_bits<V>(src + pixel * src_pitch + channel(i));
            UNROLL(i, DOT_AHEAD) {
                if (first + i * DOT_THREADS * V >= channels) break;
                UNROLL(k, V) sum += value_of<V>(inputs[i], k) * value_of<V>(weights[i], k);
            }
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        }
        if (thread % 32 == 0) shared[thread / 32] = sum;
        __syncthreads();
        if (thread == 0) {
            UNROLL(warp, DOT_THREADS / 32 - 1) sum += shared[warp + 1];
            const float x = sum + own;
            const int from = pixel * residual_pitch + filter;
            const int to = pixel * out_pitch + filter;
            if (has_floats) {
                finish_value(
                    x, kind, static_cast<const float*>(residual), from, last, static_cast<float*>(out), to);
            } else {
                finish_value(
                    x, kind, static_cast<const real*>(residual), from, last, static_cast<real*>(out), to);
            }
        }
        __syncthreads();
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
