// gate: the dense part of a squeeze-and-excite block in one launch, from sums over parts of the map
// (of average_parts, or left by a depthwise convolution) to a factor for each channel; and the map
// times these factors, where that is next.
//
//   mean[c]   = sum over parts of sums[part, c] / area
//   hidden[s] = f(sum over c of squeeze[s, c] * mean[c] + bias)
//   out[n]    = last(sum over s of expand[n, s] * hidden[s] + bias)
//   scaled    = f(map * out)
//
// Work item  `shares` blocks take a row: each makes all of `hidden`, and its share of `out`. Where the
//            map is scaled, `spreads` of them have the same share, for a part of the pixels each.
// Memory     rows of weights are whole packs long, padded with zeros. Neighbouring threads share a
//            row; what they need of both layers is on its way to registers while the kernel before
//            still runs. What is between the steps stays in shared memory.
#include "common.cuh"

#define GATE_THREADS 256
#define GATE_ROWS 8   // of weights that a thread holds packs of
#define GATE_STEPS 4  // packs of a row of `squeeze` that it holds: 1024 channels of halves
#define GATE_PARTS 8  // sums that it asks for at once
#define GATE_AHEAD 4  // packs of the map, likewise

// Rows `first` to `end` of a matrix, each of `packs` packs that `lanes` threads, a power of two, share.
struct Dense {
    const real* weight;
    int packs, lanes, first, end;
};

template <int N, int M> struct Held {
    Bits<16> weight[N][M];
};

// Beyond the last row or pack it holds the last once more.
template <int N, int M>
__device__ __forceinline__ void hold(Held<N, M>& held, const Dense& layer, int first, int begin)
{
    const int groups = GATE_THREADS / layer.lanes;
    first += threadIdx.x / layer.lanes;
    begin += threadIdx.x % layer.lanes;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int row = min(first + i * groups, layer.end - 1);
#pragma unroll
        for (int j = 0; j < M; ++j) {
            const int pack = min(begin + j * layer.lanes, layer.packs - 1);
            held.weight[i][j] = ask<PACK>(layer.weight + (row * layer.packs + pack) * PACK);
        }
    }
}

// Where value `i` of a layer's input is kept: the fours of neighbouring packs side by side, so that
// neighbouring threads read neighbouring banks.
__device__ __forceinline__ int kept_at(int i, int packs)
{
    return (i % PACK / 4 * packs + i / PACK) * 4 + i % 4;
}

// The product of the rows with `in`, into `out`. What is held are the layer's first rows.
template <int N, int M>
__device__ __forceinline__ void multiply_held(Held<N, M>& held, const Dense& layer, const float* in,
                                              float* out)
{
    const int lane = threadIdx.x % layer.lanes;
    const int groups = GATE_THREADS / layer.lanes;
    for (int first = layer.first; first < layer.end; first += N * groups) {
        float sum[N] = {};
        for (int begin = 0; begin < layer.packs; begin += M * layer.lanes) {
            if (first > layer.first || begin > 0) hold(held, layer, first, begin);
#pragma unroll
            for (int j = 0; j < M; ++j) {
                const int pack = begin + j * layer.lanes + lane;
                if (pack >= layer.packs) break;
#pragma unroll
                for (int four = 0; four < PACK / 4; ++four) {
                    const Pack<4> x = load<4>(in + (four * layer.packs + pack) * 4);
#pragma unroll
                    for (int i = 0; i < N; ++i) {
#pragma unroll
                        for (int k = 0; k < 4; ++k) {
                            sum[i] += value_of<PACK>(held.weight[i][j], four * 4 + k) * x.v[k];
                        }
                    }
                }
            }
        }
        for (int apart = layer.lanes / 2; apart > 0; apart /= 2) {
#pragma unroll
            for (int i = 0; i < N; ++i) sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], apart);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int row = first + i * groups + threadIdx.x / layer.lanes;
            if (lane == 0 && row < layer.end) out[row - layer.first] = sum[i];
        }
    }
}

// A map that is to be scaled, or none.
struct Scaling {
    const real* map;
    real* out;
    int map_pitch, out_pitch, kind;
};

// Channels `first` to `end` of pixels `begin` to `stop`, times a factor for each of these channels.
__device__ __forceinline__ void scale(const Scaling& scaling, const float* factors, int first,
                                      int end, int begin, int stop)
{
    const int packs = (end - first) / PACK;
    const int items = (stop - begin) * packs;
    for (int start = threadIdx.x; start < items; start += GATE_AHEAD * GATE_THREADS) {
        Bits<16> seen[GATE_AHEAD];
#pragma unroll
        for (int i = 0; i < GATE_AHEAD; ++i) {
            const int item = min(start + i * GATE_THREADS, items - 1);
            const int pixel = item / packs;
            seen[i] = ask<PACK>(scaling.map + (begin + pixel) * scaling.map_pitch + first +
                                (item - pixel * packs) * PACK);
        }
#pragma unroll
        for (int i = 0; i < GATE_AHEAD; ++i) {
            const int item = start + i * GATE_THREADS;
            if (item >= items) break;
            const int pixel = item / packs;
            const int channel = (item - pixel * packs) * PACK;
            Pack<PACK> x;
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                x.v[k] = value_of<PACK>(seen[i], k) * factors[channel + k];
            }
            activate_all(scaling.kind, x.v);
            store<PACK>(scaling.out + (begin + pixel) * scaling.out_pitch + first + channel, x);
        }
    }
}

// The sums of all parts, in `groups` shares of the parts.
__device__ __forceinline__ void share_out_parts(const float* sums, float* shares, int quads,
                                                int parts, int groups)
{
    for (int unit = threadIdx.x; unit < quads * groups; unit += GATE_THREADS) {
        const float* from = sums + unit % quads * 4;
        Pack<4> sum = {};
        for (int first = unit / quads; first < parts; first += GATE_PARTS * groups) {
            Pack<4> seen[GATE_PARTS];
#pragma unroll
            for (int i = 0; i < GATE_PARTS; ++i) {
                seen[i] = load<4>(from + min(first + i * groups, parts - 1) * quads * 4);
            }
#pragma unroll
            for (int i = 0; i < GATE_PARTS; ++i) {
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    sum.v[k] += first + i * groups < parts ? seen[i].v[k] : 0.f;
                }
            }
        }
        store<4>(shares + unit * 4, sum);
    }
}

// Dynamic shared memory: the packs of a row of either layer, and what the largest step leaves: four
// floats for every thread or every four channels, `hidden`, or a share of `out`.
// Nothing is __restrict__: what may lie anywhere is read where the text says so, before the wait.
extern "C" __global__ void gate(const float* sums, const real* squeeze, const float* squeeze_bias,
                                const real* expand, const float* expand_bias, real* out, int rows,
                                int channels, int area, int parts, int hidden, int filters,
                                int out_pitch, int shares, int share, int squeeze_lanes,
                                int expand_lanes, int kind, int last, const real* map,
                                real* scaled, int map_pitch, int scaled_pitch, int scaled_kind,
                                int spreads)
{
    extern __shared__ float memory[];
    const int packs = (channels + PACK - 1) / PACK;
    const int hidden_packs = (hidden + PACK - 1) / PACK;
    const int quads = (channels + 3) / 4;
    const int groups = max(1, min(GATE_THREADS / quads, (parts + GATE_PARTS - 1) / GATE_PARTS));
    const float part_of_mean = 1.f / area;
    float* mean = memory;
    float* middle = mean + packs * PACK;
    float* step = middle + hidden_packs * PACK;
    for (int item = blockIdx.x; item < rows * shares * spreads; item += gridDim.x) {
        const int row = item / spreads / shares;
        const int spread = item % spreads;
        const int first = item / spreads % shares * share;
        const int end = min(first + share, filters);
        const Dense squeezes = {squeeze, packs, squeeze_lanes, 0, hidden};
        const Dense expands = {expand, hidden_packs, expand_lanes, first, end};
        const int thread = threadIdx.x;
        Held<GATE_ROWS, GATE_STEPS> squeezing;
        Held<GATE_ROWS, 1> expanding;
        hold(squeezing, squeezes, 0, 0);
        hold(expanding, expands, first, 0);
        float squeeze_start = squeeze_bias && thread < hidden ? squeeze_bias[thread] : 0.f;
        float expand_start =
            expand_bias && first + thread < end ? expand_bias[first + thread] : 0.f;
        after_previous_kernel();  // at once when it has ended
        share_out_parts(sums + (size_t)row * parts * quads * 4, step, quads, parts, groups);
        __syncthreads();
        for (int c = thread; c < packs * PACK; c += GATE_THREADS) {
            float sum = 0.f;
#pragma unroll 4
            for (int i = 0; i < groups && c < channels; ++i) sum += step[i * quads * 4 + c];
            mean[kept_at(c, packs)] = sum * part_of_mean;
        }
        __syncthreads();
        multiply_held(squeezing, squeezes, mean, step);
        __syncthreads();
        for (int s = thread; s < hidden_packs * PACK; s += GATE_THREADS) {
            if (s > thread) squeeze_start = squeeze_bias && s < hidden ? squeeze_bias[s] : 0.f;
            middle[kept_at(s, hidden_packs)] =
                s < hidden ? activate(kind, step[s] + squeeze_start) : 0.f;
        }
        __syncthreads();
        multiply_held(expanding, expands, middle, step);
        __syncthreads();
        for (int n = first + thread; n < end; n += GATE_THREADS) {
            if (n > first + thread) expand_start = expand_bias ? expand_bias[n] : 0.f;
            real factor;
            put(&factor, activate(last, step[n - first] + expand_start));
            if (spread == 0) out[row * out_pitch + n] = factor;
            step[n - first] = to_float(factor);
        }
        __syncthreads();
        if (!map) continue;
        const int run = (area + spreads - 1) / spreads;
        const int begin = row * area + spread * run;
        scale({map, scaled, map_pitch, scaled_pitch, scaled_kind}, step, first, end, begin,
              min(begin + run, (row + 1) * area));
        __syncthreads();  // the next item takes the same memory
    }
}
