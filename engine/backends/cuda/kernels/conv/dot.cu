// dot: a 1x1 convolution of a few pixels, as in a squeeze-and-excite block: one block per value. Launched by
// conv/im2col_gemm.py.
//
//   src (pixels, channels), weight (filters, channels); `out` and `residual` are floats if has_floats
//
// Work item  a block takes one filter of one pixel; its threads share the channels and reduce in shared memory.
// Memory     weights and inputs are read once, coalesced; the product is too small for tensor cores.
#include "common.cuh"

#define DOT_THREADS 128

extern "C" __global__ void dot(const real* __restrict__ src, const real* __restrict__ weight,
    const float* __restrict__ bias, const void* __restrict__ residual, void* __restrict__ out, int pixels,
    int channels, int filters, int src_pitch, int residual_pitch, int out_pitch, int kind, int last,
    int has_floats)
{
    after_previous_kernel();
    __shared__ float shared[DOT_THREADS];
    const int thread = threadIdx.x;
    for (int item = blockIdx.x; item < pixels * filters; item += gridDim.x) {
        const int pixel = item / filters;
        const int filter = item - pixel * filters;
        float sum = 0.f;
        for (int c = thread; c < channels; c += DOT_THREADS) {
            sum += to_float(src[pixel * src_pitch + c]) * to_float(weight[filter * channels + c]);
        }
        shared[thread] = sum;
        __syncthreads();
        for (int half = DOT_THREADS / 2; half > 0; half /= 2) {
            if (thread < half) shared[thread] += shared[thread + half];
            __syncthreads();
        }
        if (thread == 0) {
            const float x = shared[0] + (bias ? bias[filter] : 0.f);
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
