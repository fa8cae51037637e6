// softmax: exp(x / t - max / t) / sum over runs of consecutive values. Sets `flag` if results are not finite.
//
//   starts, lengths  the runs of one row, in (channel, y, x) order
//
// Work item  a block takes one run of one row; its threads share the run.
// Memory     one pass over the run if its values fit in registers, otherwise three. The starts of
//            runs do not depend on the previous kernel and are loaded before the wait for it.
#include "common.cuh"

#define SOFTMAX_HELD 2  // values per thread in registers: few, because code that runs once is cold

// Reduces x over a warp with `join`.
template <typename Join> DEVICE float warp_reduce(float x, Join join)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x = join(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

// Reduces x over the block: within each warp, then over `shared`, which has a place for every warp. join(x,
// neutral) is x.
template <typename Join> DEVICE float block_reduce(float x, float* shared, float neutral, Join join)
{
    const int lane = threadIdx.x % 32;
    x = warp_reduce(x, join);
    if (lane == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_reduce(lane < blockDim.x / 32 ? shared[lane] : neutral, join);
}

// The offset of a value of a row, which is counted in (channel, y, x) order.
DEVICE int offset_in_row(int flat, int area, int pitch)
{
    const int channel = area == 1 ? flat : flat / area;
    return (flat - channel * area) * pitch + channel;
}

// `src` is not __restrict__: with it the compiler might move reads of the input before the wait.
extern "C" __global__ void softmax(const real* src, real* out, const int* __restrict__ starts,
    const int* __restrict__ lengths, int rows, int runs, int area, int out_area, int src_pitch, int out_pitch,
    float temperature, unsigned* flag)
{
    __shared__ float tops[32];
    __shared__ float sums[32];
    const int thread = threadIdx.x;
    const int stride = blockDim.x;
    for (int item = blockIdx.x; item < rows * runs; item += gridDim.x) {
        const int row = item / runs;
        const int start = starts[item - row * runs];
        const int count = lengths[item - row * runs];
        after_previous_kernel();  // returns at once after the first time
        const real* from = src + (size_t)row * area * src_pitch;
        real* to = out + (size_t)row * out_area * out_pitch;
        auto value = [&](int i) { return to_float(from[offset_in_row(start + i, area, src_pitch)]); };
        auto store_result = [&](int i, float x) {
            put(to + offset_in_row(start + i, out_area, out_pitch), x);
        };
        float held[SOFTMAX_HELD];
        const float lowest = -3.4e38f;
        float top = lowest;
        UNROLL(i, SOFTMAX_HELD) {
            if (i * stride >= count) break;  // no thread has another value
            const int at = thread + i * stride;
            held[i] = at < count ? value(at) : lowest;
        }
        UNROLL(i, SOFTMAX_HELD) {
            if (i * stride >= count) break;
            top = fmaxf(top, held[i]);
        }
#pragma unroll 1
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) {
            top = fmaxf(top, value(i));
        }
        top = block_reduce(top, tops, lowest, [](float a, float b) { return fmaxf(a, b); });
        auto power = [&](float x) { return expf(x / temperature - top / temperature); };
        float sum = 0.f;
        UNROLL(i, SOFTMAX_HELD) {
            if (i * stride >= count) break;
            held[i] = power(held[i]);
            if (thread + i * stride < count) sum += held[i];
        }
#pragma unroll 1
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) sum += power(value(i));
        // The next run's maxima are written after this barrier, and its sums after the barrier of its
        // maxima.
        sum = block_reduce(sum, sums, 0.f, [](float a, float b) { return a + b; });
        const float share = 1.f / sum;
        flag_non_finite(flag, sum * share);
        UNROLL(i, SOFTMAX_HELD) {
            if (i * stride >= count) break;
            const int at = thread + i * stride;
            if (at < count) store_result(at, held[i] * share);
        }
#pragma unroll 1
        for (int i = thread + SOFTMAX_HELD * stride; i < count; i += stride) {
            store_result(i, power(value(i)) * share);
        }
    }
}
