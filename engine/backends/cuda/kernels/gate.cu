// gate: the dense part of a squeeze-and-excite block in one launch, from sums over parts of the map
// (average_parts) to a factor for each channel.
//
//   mean[c]   = sum over parts of sums[part, c] / area
//   hidden[s] = f(sum over c of squeeze[s, c] * mean[c] + bias)
//   out[n]    = last(sum over s of expand[s, n] * hidden[s] + bias)
//
// Work item  a block takes one row: these layers are so small that starting kernels takes longer.
// Memory     weights are read once, coalesced: `squeeze` by a warp for each s, `expand` by a thread
//            for each n; what is between the steps stays in shared memory.
#include "common.cuh"

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, apart);
    return x;
}

// Dynamic shared memory: channels + hidden floats, and as many as there are threads, or channels if
// these are more. Channels are a multiple of 32 there.
extern "C" __global__ void gate(const float* __restrict__ sums, const real* __restrict__ squeeze,
                                const float* __restrict__ squeeze_bias,
                                const real* __restrict__ expand,
                                const float* __restrict__ expand_bias, real* __restrict__ out,
                                int rows, int channels, int area, int parts, int hidden,
                                int filters, int out_pitch, int kind, int last)
{
    after_previous_kernel();
    extern __shared__ float memory[];
    const int chunks = (channels + 31) / 32;
    float* mean = memory;
    float* middle = mean + chunks * 32;
    float* shares = middle + hidden;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warps = blockDim.x / 32;
    const int split = max(1, warps / chunks);  // warps that share the parts of 32 channels
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int unit = warp; unit < chunks * split; unit += warps) {
            const int channel = unit % chunks * 32 + lane;
            float sum = 0.f;
            if (channel < channels) {
                const float* from = sums + (size_t)row * parts * channels + channel;
#pragma unroll 4
                for (int part = unit / chunks; part < parts; part += split) {
                    sum += from[(size_t)part * channels];
                }
            }
            shares[unit * 32 + lane] = sum;
        }
        __syncthreads();
        for (int c = threadIdx.x; c < chunks * 32; c += blockDim.x) {
            float sum = 0.f;
            for (int i = 0; i < split; ++i) sum += shares[i * chunks * 32 + c];
            mean[c] = sum / area;
        }
        __syncthreads();
        for (int s = warp; s < hidden; s += warps) {
            float sum = 0.f;
#pragma unroll 4
            for (int c = lane; c < channels; c += 32) {
                sum += mean[c] * to_float(squeeze[s * channels + c]);
            }
            sum = warp_sum(sum);
            if (lane == 0) middle[s] = activate(kind, sum + (squeeze_bias ? squeeze_bias[s] : 0.f));
        }
        __syncthreads();
        for (int n = threadIdx.x; n < filters; n += blockDim.x) {
            float sum = 0.f;
#pragma unroll 4
            for (int s = 0; s < hidden; ++s) sum += middle[s] * to_float(expand[s * filters + n]);
            put(out + row * out_pitch + n,
                activate(last, sum + (expand_bias ? expand_bias[n] : 0.f)));
        }
        __syncthreads();  // the next row takes the same memory
    }
}
