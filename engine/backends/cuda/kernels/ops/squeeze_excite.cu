// gate: the dense layers of a squeeze-and-excite block in one launch. From the partial products
// that earlier kernels wrote (write_partial_products) it computes a factor for each channel, and
// optionally the feature map times these factors. Launched by ops/squeeze_excite.py.
//
//   hidden[s] = f(sum over pieces of squeezed[piece, s] / area + bias)
//   out[n]    = last(sum over s of expand[n, s] * hidden[s] + bias)
//   scaled    = f(map * out)
//
// Work item  `shares` blocks take a row of the batch: each computes all of `hidden` and its share of `out`.
//            If the map is scaled, `spreads` blocks have the same share and scale some of the pixels each.
// Memory     rows of weights are padded with zeros to whole packs; neighbouring threads share a row. Weights
//            are loaded while the previous kernel still runs, and the map while the pieces are added.
//            Intermediate results stay in shared memory.
#include "common.cuh"

#define GATE_THREADS 256
#define GATE_ROWS 4    // of weights, a pack of each per thread
#define GATE_PIECES 8  // loads in flight per thread
#define GATE_AHEAD 4   // packs of the map in flight per thread

// Rows `first` to `end` of a matrix of `packs` packs per row; `lanes` threads (a power of two) share a
// row.
struct Dense {
    const real* weight;
    int packs, lanes, first, end;
};

// Loads the last row or pack again past the end.
DEVICE void load_rows(Bits<16> (&held)[GATE_ROWS], const Dense& layer, int first, int begin)
{
    const int pack = min(begin + (int)threadIdx.x % layer.lanes, layer.packs - 1);
    UNROLL(i, GATE_ROWS) {
        const int row = first + (i * GATE_THREADS + threadIdx.x) / layer.lanes;
        held[i] = load_bits<PACK>(layer.weight + (min(row, layer.end - 1) * layer.packs + pack) * PACK);
    }
}

// The position of value `i` of a layer's input in shared memory: groups of four of neighbouring packs are
// adjacent, so that neighbouring threads read neighbouring banks.
DEVICE int packed_index(int i, int packs) { return (i % PACK / 4 * packs + i / PACK) * 4 + i % 4; }

// out = rows * in. `held` has the first rows already.
DEVICE void multiply_held(Bits<16> (&held)[GATE_ROWS], const Dense& layer, const float* in, float* out)
{
    const int lane = threadIdx.x % layer.lanes;
    const int groups = GATE_THREADS / layer.lanes;
#pragma unroll 1
    for (int first = layer.first; first < layer.end; first += GATE_ROWS * groups) {
        float sum[GATE_ROWS] = {};
#pragma unroll 1
        for (int begin = 0; begin < layer.packs; begin += layer.lanes) {
            if (first > layer.first || begin > 0) load_rows(held, layer, first, begin);
            const int pack = begin + lane;
            if (pack >= layer.packs) break;
            UNROLL(four, PACK / 4) {
                const Pack<4> x = load<4>(in + (four * layer.packs + pack) * 4);
                UNROLL(i, GATE_ROWS) {
                    UNROLL(k, 4) {
                        sum[i] += value_of<PACK>(held[i], four * 4 + k) * x.v[k];
                    }
                }
            }
        }
#pragma unroll 1
        for (int distance = layer.lanes / 2; distance > 0; distance /= 2) {
            UNROLL(i, GATE_ROWS) sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], distance);
        }
        UNROLL(i, GATE_ROWS) {
            const int row = first + i * groups + threadIdx.x / layer.lanes;
            if (lane == 0 && row < layer.end) out[row - layer.first] = sum[i];
        }
    }
}

// The part of a map that a block scales: `packs` packs (a power of two) of each pixel, the last of which
// may lie past the channels' `end`. A thread has one pack of every `step`-th pixel.
struct Scaling {
    const real* map;
    real* out;
    int map_pitch, out_pitch, kind, packs, pixels;
};

DEVICE void issue_map_loads(Bits<16> (&seen)[GATE_AHEAD], const Scaling& scaling, int first)
{
    const int step = GATE_THREADS / scaling.packs;
    UNROLL(i, GATE_AHEAD) {
        const int pixel = min(first + i * step, scaling.pixels - 1);
        seen[i] = load_bits<PACK>(scaling.map + pixel * scaling.map_pitch);
    }
}

// Multiplies the map by its factors. `seen` has the thread's first pixels already.
DEVICE void scale_map(Bits<16> (&seen)[GATE_AHEAD], const Scaling& scaling, const float* factors)
{
    const int step = GATE_THREADS / scaling.packs;
    const int start = threadIdx.x / scaling.packs;
    Pack<4> factor[PACK / 4];
    UNROLL(four, PACK / 4) factor[four] = load<4>(factors + four * 4);
#pragma unroll 1
    for (int first = start; first < scaling.pixels; first += GATE_AHEAD * step) {
        if (first > start) issue_map_loads(seen, scaling, first);
        UNROLL(i, GATE_AHEAD) {
            if (first + i * step >= scaling.pixels) break;
            Pack<PACK> x;
            UNROLL(k, PACK) {
                x.v[k] = value_of<PACK>(seen[i], k) * factor[k / 4].v[k % 4];
            }
            activate_all(scaling.kind, x.v);
            store<PACK>(scaling.out + (first + i * step) * scaling.out_pitch, x);
        }
    }
}

// Adds all pieces into `groups` partial sums.
DEVICE void sum_pieces(const float* squeezed, float* shares, int quads, int pieces, int groups)
{
#pragma unroll 1
    for (int unit = threadIdx.x; unit < quads * groups; unit += GATE_THREADS) {
        const float* from = squeezed + unit % quads * 4;
        Pack<4> sum = {};
#pragma unroll 1
        for (int first = unit / quads; first < pieces; first += GATE_PIECES * groups) {
            Pack<4> seen[GATE_PIECES];
            UNROLL(i, GATE_PIECES) {
                seen[i] = load<4>(from + min(first + i * groups, pieces - 1) * quads * 4);
            }
            UNROLL(i, GATE_PIECES) {
                UNROLL(k, 4) {
                    sum.v[k] += first + i * groups < pieces ? seen[i].v[k] : 0.f;
                }
            }
        }
        store<4>(shares + unit * 4, sum);
    }
}

// Dynamic shared memory: `hidden` in whole packs, then room for the larger step: four floats per thread
// or per four of `hidden`, or a share of `out`. Nothing is __restrict__: with it the compiler might move
// reads before the wait.
extern "C" __global__ void __launch_bounds__(GATE_THREADS, 2) gate(const float* squeezed,
    const float* squeeze_bias, const real* expand, const float* expand_bias, real* out, int rows, int area,
    int pieces, int hidden, int filters, int out_pitch, int shares, int share, int expand_lanes, int kind,
    int last, const real* map, real* scaled, int map_pitch, int scaled_pitch, int scaled_kind, int spreads)
{
    extern __shared__ float memory[];
    const int thread = threadIdx.x;
    const int packs = (hidden + PACK - 1) / PACK;
    const int quads = (hidden + 3) / 4;
    const int groups = max(1, min(GATE_THREADS / quads, (pieces + GATE_PIECES - 1) / GATE_PIECES));
    const float part_of_mean = 1.f / area;
    float* middle = memory;
    float* step = middle + packs * PACK;
    for (int item = blockIdx.x; item < rows * shares * spreads; item += gridDim.x) {
        const int row = item / spreads / shares;
        const int spread = item % spreads;
        const int first = item / spreads % shares * share;
        const int end = min(first + share, filters);
        const Dense expands = {expand, packs, expand_lanes, first, end};
        Bits<16> held[GATE_ROWS];
        load_rows(held, expands, first, 0);
        float squeeze_start = squeeze_bias && thread < hidden ? squeeze_bias[thread] : 0.f;
        float expand_start = expand_bias && first + thread < end ? expand_bias[first + thread] : 0.f;
        const int run = (area + spreads - 1) / spreads;
        const int begin = row * area + spread * run;
        const int share_packs = share / PACK;
        const int channel = thread % max(share_packs, 1) * PACK;
        const bool scales = map && first + channel < end;
        const Scaling scaling = {map + begin * map_pitch + first + channel,
            scaled + begin * scaled_pitch + first + channel, map_pitch, scaled_pitch, scaled_kind,
            share_packs, min(run, area - spread * run)};
        Bits<16> seen[GATE_AHEAD];
        after_previous_kernel();  // returns at once after the first time
        if (scales && scaling.pixels > 0) issue_map_loads(seen, scaling, thread / share_packs);
        sum_pieces(squeezed + (size_t)row * pieces * quads * 4, step, quads, pieces, groups);
        __syncthreads();
        for (int s = thread; s < packs * PACK; s += GATE_THREADS) {
            float sum = 0.f;
#pragma unroll 4
            for (int i = 0; i < groups && s < hidden; ++i) sum += step[i * quads * 4 + s];
            if (s > thread) squeeze_start = squeeze_bias && s < hidden ? squeeze_bias[s] : 0.f;
            middle[packed_index(s, packs)] =
                s < hidden ? activate(kind, sum * part_of_mean + squeeze_start) : 0.f;
        }
        __syncthreads();
        multiply_held(held, expands, middle, step);
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
        if (scales) scale_map(seen, scaling, step + channel);
        __syncthreads();  // the next item uses the same memory
    }
}
