// Reductions over a block for channels that several threads share.
#pragma once
#include "common.cuh"

#define SQUEEZE_LANES 8  // threads that share a row of squeeze weights; a block has no more packs

// Adds V sums per thread over all threads of the same channels: every `wide`-th thread (a power of
// two up to 32). The totals of wide * V channels are then at the start of `shares`, which has room
// for the sums of every warp. The order of additions is fixed.
template <int THREADS, int V> DEVICE void reduce_over_block(Pack<V> sums, int wide, float* shares)
{
    const int columns = wide * V;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int distance = wide; distance < 32; distance *= 2) {
        UNROLL(k, V) sums.v[k] += __shfl_xor_sync(0xFFFFFFFFu, sums.v[k], distance);
    }
    if (lane < wide) store<V>(shares + threadIdx.x / 32 * columns + lane * V, sums);
    __syncthreads();
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float total = 0.f;
        UNROLL(warp, THREADS / 32) total += shares[warp * columns + i];
        shares[i] = total;  // read by no other thread
    }
    __syncthreads();
}

// The address of a piece's products, one for each of `hidden` rows of weights, padded to a multiple
// of four. The pieces of a large batch may have more floats than an int can count.
DEVICE float* piece_of(float* products, int piece, int hidden)
{
    return products + (size_t)piece * ((hidden + 3) / 4 * 4);
}

// Multiplies a block's totals, of `packs` packs of channels, by the first weights of a
// squeeze-and-excite block, whose rows are `pitch` values apart, and writes a multiple of four
// products, because they are read in fours.
template <int THREADS> DEVICE void write_partial_products(
    const float* totals, int packs, const real* weight, int pitch, int hidden, float* to)
{
    const int lane = threadIdx.x % SQUEEZE_LANES;
    const int end = (hidden + 3) / 4 * 4;
#pragma unroll 4
    for (int first = 0; first < end; first += THREADS / SQUEEZE_LANES) {
        const int row = first + threadIdx.x / SQUEEZE_LANES;
        float sum = 0.f;
        if (row < hidden && lane < packs) {
            const Bits<16> held = load_bits<PACK>(weight + row * pitch + lane * PACK);
#pragma unroll
            for (int four = 0; four < PACK; four += 4) {
                const Pack<4> x = load<4>(totals + lane * PACK + four);
                UNROLL(k, 4) sum += value_of<PACK>(held, four + k) * x.v[k];
            }
        }
#pragma unroll
        for (int distance = SQUEEZE_LANES / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        }
        if (lane == 0 && row < end) to[row] = sum;
    }
}
