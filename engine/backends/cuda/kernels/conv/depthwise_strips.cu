// depthwise_strips: as depthwise, for many outputs and square kernels of a known size and stride.
//
//   weight  (kernel_y, kernel_x, channels)
//
// Work item  two neighbouring channels of a strip, STRIP outputs wide, down a band of lines. The
//            weights and all outputs under way stay in registers: each value is read and made a
//            float once for all outputs of the strip that it is part of.
// Memory     a warp takes whole lines of the cache; a line is asked for before it is needed.
#include "common.cuh"
#include "shares.cuh"

#define STRIP 4
#define STRIP_THREADS 128

// Activations that have code of their own at each of the places where outputs are done.
template <int N> __device__ __forceinline__ void activate_strip(int kind, float (&x)[N])
{
    if (kind == KIND_swish) {
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] = swish(x[i]);
    } else if (kind == KIND_leaky) {
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] = activate(KIND_leaky, x[i]);
    } else if (kind == KIND_relu6) {
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] = activate(KIND_relu6, x[i]);
    } else if (kind == KIND_relu) {
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] = activate(KIND_relu, x[i]);
    }
}

// The columns of a line that are there: those of `inside` that have their bits set.
template <int COLUMNS>
__device__ __forceinline__ void ask_line(const real* from, int pitch, unsigned inside,
                                         Bits<2 * sizeof(real)> (&line)[COLUMNS])
{
#pragma unroll
    for (int x = 0; x < COLUMNS; ++x) {
        line[x] = ask_if<2>(inside >> x & 1, from + (long long)x * pitch);
    }
}

#define STRIP_PARAMETERS                                                                          \
    const real *src, const float *weight, const float *bias, const real *residual, real *out,     \
        int bands, int band, int channels, int height, int width, int out_h, int out_w,           \
        int src_pitch, int residual_pitch, int out_pitch, int top, int left, int wide_bits,       \
        int kind, int groups, int parts, const real *squeeze, int squeeze_pitch, int hidden,      \
        float *squeezed

// A block takes 1 << wide_bits pairs of channels. There are `groups` groups of bands, of which
// `parts` blocks take a part each; `squeezed` as in depthwise.cu, with a group for each row. With
// step m of a band come S lines, number m * S and on, the last that its output line
// m - (UNDER_WAY - 1) needs; of UNDER_WAY sums, the oldest goes out and begins anew.
template <int K, int S>
__device__ __forceinline__ void depthwise_strips(STRIP_PARAMETERS)
{
    constexpr int UNDER_WAY = (K + S - 1) / S;
    constexpr int COLUMNS = (STRIP - 1) * S + K;
    alignas(16) __shared__ float shares[STRIP_THREADS / 32 * 64];
    const int wide = 1 << wide_bits;
    const int places = STRIP_THREADS >> wide_bits;
    const int place = threadIdx.x >> wide_bits;
    const int pairs = channels / 2;
    const unsigned strips = (out_w + STRIP - 1) / STRIP;
    const unsigned segments = (out_h + band - 1) / band;  // bands of a row
    for (int first_pair = blockIdx.x * wide; first_pair < pairs; first_pair += gridDim.x * wide) {
        const int pair = first_pair + (threadIdx.x & (wide - 1));
        const int channel = min(pair, pairs - 1) * 2;
        Pack<2> weights[K * K];
#pragma unroll
        for (int cell = 0; cell < K * K; ++cell) {
            weights[cell] = load<2>(weight + cell * channels + channel);
        }
        Pack<2> start = {};
        if (bias) start = load<2>(bias + channel);
        const unsigned end = pair < pairs ? bands * strips : 0;
        for (int group = blockIdx.z; group < groups; group += gridDim.z)
        for (int part = blockIdx.y; part < parts; part += gridDim.y) {
            Pack<2> total = {};
            for (unsigned item = part * places + place; item < end; item += parts * places) {
                const unsigned strip = item % strips;
                const unsigned number = group * bands + item / strips;
                const unsigned row = number / segments;
                const int first_line = (int)(number - row * segments) * band;
                const int lines = min(band, out_h - first_line);
                const int first_x = (int)strip * STRIP * S - left;
                const int outputs = out_w - (int)strip * STRIP;
                unsigned inside = 0;  // a bit for each column that is not border
#pragma unroll
                for (int x = 0; x < COLUMNS; ++x) {
                    inside |= ((unsigned)(first_x + x) < (unsigned)width) << x;
                }
                const int first_y = first_line * S - top;
                const unsigned end_y = max(0, min(first_y + (lines - 1) * S + K, height));
                const int end_step = lines + UNDER_WAY - 1;
                int step = min(max(0, -first_y) / S, UNDER_WAY - 1);  // before it lies border
                int y = first_y + step * S;       // of the line that is asked for next
                const real* from = src + (((int)row * height + y) * width + first_x) * src_pitch +
                                   channel;
                const long long from_line = (long long)width * src_pitch;
                int pixel = ((int)row * out_h + first_line) * out_w + (int)strip * STRIP;
                float sum[UNDER_WAY][STRIP * 2];
#pragma unroll
                for (int n = 0; n < UNDER_WAY; ++n) {
#pragma unroll
                    for (int i = 0; i < STRIP * 2; ++i) sum[n][i] = start.v[i % 2];
                }
                after_previous_kernel();  // at once when it has ended
                Bits<2 * sizeof(real)> next[S][COLUMNS];
#pragma unroll
                for (int s = 0; s < S; ++s) {
                    ask_line(from, src_pitch, (unsigned)y < end_y ? inside : 0, next[s]);
                    ++y;
                    from += from_line;
                }
                while (step < end_step) {
#pragma unroll
                    for (int oldest = 0; oldest < UNDER_WAY; ++oldest) {
                        if (step >= end_step) break;
                        Bits<2 * sizeof(real)> seen[S][COLUMNS];
#pragma unroll
                        for (int s = 0; s < S; ++s) {
#pragma unroll
                            for (int x = 0; x < COLUMNS; ++x) seen[s][x] = next[s][x];
                            ask_line(from, src_pitch, (unsigned)y < end_y ? inside : 0, next[s]);
                            ++y;
                            from += from_line;
                        }
#pragma unroll
                        for (int s = 0; s < S; ++s) {
#pragma unroll
                            for (int x = 0; x < COLUMNS; ++x) {
#pragma unroll
                                for (int k = 0; k < 2; ++k) {
                                    const float v = value_of<2>(seen[s][x], k);
#pragma unroll
                                    for (int n = 0; n < UNDER_WAY; ++n) {
                                        const int i = (UNDER_WAY - 1 - n) * S + s;
                                        float* to = sum[(oldest + n) % UNDER_WAY];
#pragma unroll
                                        for (int r = 0; r < STRIP; ++r) {
                                            const int j = x - r * S;
                                            if (i >= K || j < 0 || j >= K) continue;
                                            to[2 * r + k] += v * weights[i * K + j].v[k];
                                        }
                                    }
                                }
                            }
                        }
                        float made[STRIP * 2];
#pragma unroll
                        for (int i = 0; i < STRIP * 2; ++i) {
                            made[i] = sum[oldest][i];
                            sum[oldest][i] = start.v[i % 2];
                        }
                        if (++step < UNDER_WAY) continue;
                        activate_strip(kind, made);
                        real* to = out + pixel * out_pitch + channel;
#pragma unroll
                        for (int r = 0; r < STRIP; ++r) {
                            if (r >= outputs) break;
                            Pack<2> pack = {made[2 * r], made[2 * r + 1]};
                            if (residual) {
                                const int at = (pixel + r) * residual_pitch + channel;
                                const Pack<2> more = load<2>(residual + at);
                                pack.v[0] += more.v[0];
                                pack.v[1] += more.v[1];
                            }
                            total.v[0] += pack.v[0];
                            total.v[1] += pack.v[1];
                            store<2>(to + (long long)r * out_pitch, pack);
                        }
                        pixel += out_w;
                    }
                }
            }
            if (!squeezed) continue;
            after_previous_kernel();  // whoever had nothing to read has not waited
            add_up<STRIP_THREADS>(total, wide, shares);
            const int packs = wide * 2 / PACK;
            const int first_pack = first_pair * 2 / PACK;
            const int chunks = (channels / PACK + packs - 1) / packs;
            const int piece = (group * parts + part) * chunks + first_pack / packs;
            leave_squeezed<STRIP_THREADS>(shares, min(packs, channels / PACK - first_pack),
                                          squeeze + first_pair * 2, squeeze_pitch, hidden,
                                          squeezed + piece * ((hidden + 3) / 4 * 4));
            __syncthreads();  // the next turn takes the same memory
        }
    }
}

#define STRIP_ARGUMENTS                                                                           \
    src, weight, bias, residual, out, bands, band, channels, height, width, out_h, out_w,         \
        src_pitch, residual_pitch, out_pitch, top, left, wide_bits, kind, groups, parts, squeeze, \
        squeeze_pitch, hidden, squeezed

extern "C" __global__ void __launch_bounds__(STRIP_THREADS, 5)
    depthwise_strips_3_1(STRIP_PARAMETERS)
{
    depthwise_strips<3, 1>(STRIP_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(STRIP_THREADS, 4)
    depthwise_strips_3_2(STRIP_PARAMETERS)
{
    depthwise_strips<3, 2>(STRIP_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(STRIP_THREADS, 3)
    depthwise_strips_5_1(STRIP_PARAMETERS)
{
    depthwise_strips<5, 1>(STRIP_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(STRIP_THREADS, 3)
    depthwise_strips_5_2(STRIP_PARAMETERS)
{
    depthwise_strips<5, 2>(STRIP_ARGUMENTS);
}
