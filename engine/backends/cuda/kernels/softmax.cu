// softmax: exp(x / t - max / t) / sum over runs of consecutive flat values.
//
//   starts, lengths  the runs of one row, in (channel, row, column) order
//
// Work item  a block takes one run of one row; its threads share the run.
// Memory     one pass over the run where each thread holds its values, else three, of which the first
//            cache serves two.
#include "common.cuh"

#define SOFTMAX_HELD 8  // values of a thread

extern "C" __global__ void softmax(const real* __restrict__ src, real* __restrict__ out,
                                   const int* __restrict__ starts, const int* __restrict__ lengths,
                                   int rows, int runs, int channels, int area,
                                   int out_channels, int out_area, int src_pitch, int out_pitch,
                                   float temperature)
{
    after_previous_kernel();
    __shared__ float shared[256];
    const int thread = threadIdx.x;
    const int stride = blockDim.x;
    for (int item = blockIdx.x; item < rows * runs; item += gridDim.x) {
        const int row = item / runs;
        const int first = row * channels * area + starts[item - row * runs];
        const int count = lengths[item - row * runs];
        auto value = [&](int i) {
            return to_float(src[place(first + i, channels, area, src_pitch)]);
        };
        auto leave = [&](int i, float x) {
            put(out + place(first + i, out_channels, out_area, out_pitch), x);
        };
        float held[SOFTMAX_HELD];
        float top = -3.4e38f;
#pragma unroll
        for (int i = 0; i < SOFTMAX_HELD; ++i) {
            const int at = thread + i * stride;
            held[i] = at < count ? value(at) : top;
        }
#pragma unroll
        for (int i = 0; i < SOFTMAX_HELD; ++i) top = fmaxf(top, held[i]);
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) {
            top = fmaxf(top, value(i));
        }
        shared[thread] = top;
        __syncthreads();
        for (int half = stride / 2; half > 0; half /= 2) {
            if (thread < half) shared[thread] = fmaxf(shared[thread], shared[thread + half]);
            __syncthreads();
        }
        top = shared[0];
        __syncthreads();
        auto power = [&](float x) { return expf(x / temperature - top / temperature); };
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < SOFTMAX_HELD; ++i) {
            held[i] = power(held[i]);
            if (thread + i * stride < count) sum += held[i];
        }
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) sum += power(value(i));
        shared[thread] = sum;
        __syncthreads();
        for (int half = stride / 2; half > 0; half /= 2) {
            if (thread < half) shared[thread] += shared[thread + half];
            __syncthreads();
        }
        sum = shared[0];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SOFTMAX_HELD; ++i) {
            const int at = thread + i * stride;
            if (at < count) leave(at, held[i] / sum);
        }
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) {
            leave(i, power(value(i)) / sum);
        }
    }
}
