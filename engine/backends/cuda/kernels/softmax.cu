// softmax: exp(x / t - max / t) / sum over runs of consecutive flat values.
//
//   starts, lengths  the runs of one row, in (channel, row, column) order
//
// Work item  a block takes one run of one row; its threads share the run.
// Memory     three passes over the run, which stays in the first cache.
#include "common.cuh"

extern "C" __global__ void softmax(const real* __restrict__ src, real* __restrict__ out,
                                   const int* __restrict__ starts, const int* __restrict__ lengths,
                                   int rows, int runs, int channels, int area,
                                   int out_channels, int out_area, int src_pitch, int out_pitch,
                                   float temperature)
{
    after_previous_kernel();
    __shared__ float shared[256];
    const int thread = threadIdx.x;
    for (int item = blockIdx.x; item < rows * runs; item += gridDim.x) {
        const int row = item / runs;
        const int first = row * channels * area + starts[item - row * runs];
        const int count = lengths[item - row * runs];
        float top = -3.4e38f;
        for (int i = thread; i < count; i += blockDim.x) {
            top = fmaxf(top, to_float(src[place(first + i, channels, area, src_pitch)]));
        }
        shared[thread] = top;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (thread < half) shared[thread] = fmaxf(shared[thread], shared[thread + half]);
            __syncthreads();
        }
        top = shared[0];
        __syncthreads();
        float sum = 0.f;
        for (int i = thread; i < count; i += blockDim.x) {
            const float x = to_float(src[place(first + i, channels, area, src_pitch)]);
            sum += expf(x / temperature - top / temperature);
        }
        shared[thread] = sum;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (thread < half) shared[thread] += shared[thread + half];
            __syncthreads();
        }
        sum = shared[0];
        __syncthreads();
        for (int i = thread; i < count; i += blockDim.x) {
            const float x = to_float(src[place(first + i, channels, area, src_pitch)]);
            put(out + place(first + i, out_channels, out_area, out_pitch),
                expf(x / temperature - top / temperature) / sum);
        }
    }
}
