// depthwise: convolution with one small filter per channel. Launched by conv/depthwise.py.
//
//   src, out, residual  (rows, height, width, channels), each with its pitch
//   weight              (kernel_y, kernel_x, channels)
//
// Work item  a pack of neighbouring channels of a run of neighbouring outputs of a line: weights and, at
//            stride 1, input columns are loaded once for the run.
// Memory     coalesced along channels; bias, activation and residual are applied before the store.
#include "common.cuh"
#include "block_sums.cuh"

#define DEPTHWISE_RUN 4
#define DEPTHWISE_WIDEST 8  // packs per block: whole cache lines
#define DEPTHWISE_THREADS 256
#define DEPTHWISE_SHORT_THREADS 128
#define DEPTHWISE_SQUEEZED 512  // packs of squeeze weights that a block keeps

#define DEPTHWISE_PARAMETERS                                                                             \
    const real *__restrict__ src, const float *__restrict__ weight, const float *__restrict__ bias,      \
        const real *__restrict__ residual, real *__restrict__ out, int rows, int channels, int height,   \
        int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int kernel_y, \
        int kernel_x, int stride_y, int stride_x, int top, int left, int dilation_y, int dilation_x,     \
        int kind, int last
#define DEPTHWISE_ARGUMENTS                                                                       \
    src, weight, bias, residual, out, rows, channels, height, width, out_h, out_w, src_pitch,     \
        residual_pitch, out_pitch, kernel_y, kernel_x, stride_y, stride_x, top, left, dilation_y, \
        dilation_x, kind, last

template <int V> DEVICE void depthwise_body(DEPTHWISE_PARAMETERS)
{
    const int packs = channels / V;
    const int runs = (out_w + DEPTHWISE_RUN - 1) / DEPTHWISE_RUN;
    GRID_STRIDE(item, rows * out_h * runs * packs)
    {
        const int channel = item % packs * V;
        const int run = item / packs % runs;
        const int line = item / packs / runs;
        const int y = line % out_h;
        const int row = line / out_h;
        const int first_x = run * DEPTHWISE_RUN;
        const real* image = src + row * height * width * src_pitch + channel;
        Pack<V> start = {};
        if (bias) start = load<V>(bias + channel);
        Pack<V> sum[DEPTHWISE_RUN];
        UNROLL(r, DEPTHWISE_RUN) sum[r] = start;
        for (int i = 0; i < kernel_y; ++i) {
            const int from_y = y * stride_y - top + i * dilation_y;
            if (from_y < 0 || from_y >= height) continue;
            for (int j = 0; j < kernel_x; ++j) {
                const Pack<V> factor = load<V>(weight + (i * kernel_x + j) * channels + channel);
                UNROLL(r, DEPTHWISE_RUN) {
                    const int from_x = (first_x + r) * stride_x - left + j * dilation_x;
                    if (from_x < 0 || from_x >= width) continue;
                    const Pack<V> v = load<V>(image + (from_y * width + from_x) * src_pitch);
                    UNROLL(k, V) sum[r].v[k] += v.v[k] * factor.v[k];
                }
            }
        }
        UNROLL(r, DEPTHWISE_RUN) {
            if (first_x + r >= out_w) break;
            const int pixel = line * out_w + first_x + r;
            activate_all(kind, sum[r].v);
            if (residual) {
                const Pack<V> v = load<V>(residual + pixel * residual_pitch + channel);
                UNROLL(k, V) sum[r].v[k] += v.v[k];
            }
            activate_all(last, sum[r].v);
            store<V>(out + pixel * out_pitch + channel, sum[r]);
        }
    }
}

SCALAR_AND_PACKED(depthwise, DEPTHWISE)

#define FIXED_PARAMETERS                                                                                 \
    const real *src, const float *weight, const float *bias, const real *residual, real *out, int lines, \
        int channels, int height, int width, int out_h, int out_w, int src_pitch, int residual_pitch,    \
        int out_pitch, int top, int left, int wide_bits, int kind, int last, int groups, int parts,      \
        const real *squeeze, int squeeze_pitch, int hidden, float *squeezed

// The same for a square filter of size K and stride S, and runs of R outputs. A block takes 1 <<
// wide_bits packs of channels and keeps their weights and biases in shared memory, loaded while the
// previous kernel still runs. The inputs of LINES lines are in flight before the first is used. Nothing
// is __restrict__: with it the compiler might move reads of the input before the wait.
//
// `groups` groups of lines are divided among `parts` blocks each. If `squeezed` is given, a group is a
// row of the batch, and the sums of what a part stores are multiplied by the first layer of the
// following squeeze-and-excite block; see write_partial_products.
template <int K, int S, int R, int LINES, int THREADS> DEVICE void depthwise_fixed(FIXED_PARAMETERS)
{
    const int fours = PACK / 4;
    const int columns = (R - 1) * S + K;
    const int ahead = ((K * K + 1) * fours * DEPTHWISE_WIDEST + THREADS - 1) / THREADS;
    const int squeezing = DEPTHWISE_SQUEEZED / THREADS;
    __shared__ Pack<4> kept[(K * K + 1) * fours * DEPTHWISE_WIDEST];  // by neighbouring packs
    __shared__ Bits<16> kept_squeeze[DEPTHWISE_SQUEEZED];
    alignas(16) __shared__ float shares[THREADS / 32 * DEPTHWISE_WIDEST * PACK];
    const int wide = 1 << wide_bits;
    const int packs = channels / PACK;
    const unsigned runs = (out_w + R - 1) / R;
    const int places = THREADS >> wide_bits;
    const int place = threadIdx.x >> wide_bits;
    const int pack_of_block = threadIdx.x & (wide - 1);
    const bool is_kept = hidden << wide_bits <= DEPTHWISE_SQUEEZED;
    for (int first_pack = blockIdx.x * wide; first_pack < packs; first_pack += gridDim.x * wide) {
        const int units = (K * K + 1) * fours << wide_bits;
        Pack<4> asked[ahead];
        UNROLL(i, ahead) {
            const int unit = min((int)threadIdx.x + i * THREADS, units - 1);
            const int cell = (unit >> wide_bits) / fours;
            const int four = first_pack * fours + (unit & ((fours << wide_bits) - 1));
            const float* from = cell < K * K ? weight + cell * channels : bias ? bias : weight;
            asked[i] = load<4>(from + min(four * 4, channels - 4));
        }
        if (squeezed && is_kept) {
            const int last_unit = (hidden << wide_bits) - 1;
            Bits<16> weights[squeezing];
            UNROLL(i, squeezing) {
                const int unit = min((int)threadIdx.x + i * THREADS, last_unit);
                const int pack = min(first_pack + (unit & (wide - 1)), packs - 1);
                weights[i] = load_bits<PACK>(squeeze + (unit >> wide_bits) * squeeze_pitch + pack * PACK);
            }
            UNROLL(i, squeezing) {
                kept_squeeze[min((int)threadIdx.x + i * THREADS, last_unit)] = weights[i];
            }
        }
        UNROLL(i, ahead) {
            const int unit = min((int)threadIdx.x + i * THREADS, units - 1);
            const int cell = (unit >> wide_bits) / fours;
            const int four = unit & ((fours << wide_bits) - 1);
            if (cell == K * K && !bias) asked[i] = {};
            // past the last unit all threads write the last one
            kept[((cell * fours + four % fours) << wide_bits) + four / fours] = asked[i];
        }
        __syncthreads();
        const int pack = first_pack + pack_of_block;
        const unsigned end = pack < packs ? lines * runs : 0;
        for (int group = blockIdx.z; group < groups; group += gridDim.z)
            for (int part = blockIdx.y; part < parts; part += gridDim.y) {
                Pack<PACK> total = {};
                for (unsigned item = part * places + place; item < end; item += parts * places) {
                    const unsigned run = item % runs;
                    const unsigned line = group * lines + item / runs;
                    const unsigned row = line / out_h;
                    const int first_y = (int)(line - row * out_h) * S - top;
                    const int first_x = (int)run * R * S - left;
                    const real* image = src + (int)row * height * width * src_pitch + pack * PACK;
                    float sum[R * PACK];
                    UNROLL(i, R * PACK) {
                        const int four = K * K * fours + i % PACK / 4;
                        sum[i] = kept[(four << wide_bits) + pack_of_block].v[i % 4];
                    }
                    after_previous_kernel();  // returns at once after the first time
#pragma unroll(LINES == 1 ? 1 : K)
                    for (int low = 0; low < K; low += LINES) {
                        Bits<16> seen[LINES][columns];
#pragma unroll
                        for (int i = 0; i < LINES && low + i < K; ++i) {
                            const int y = first_y + low + i;
                            const bool is_line = (unsigned)y < (unsigned)height;
                            const real* from = image + (y * width + first_x) * src_pitch;
                            UNROLL(j, columns) {
                                const bool is_value = (unsigned)(first_x + j) < (unsigned)width;
                                seen[i][j] = load_bits_if<PACK>(is_line && is_value, from + j * src_pitch);
                            }
                        }
#pragma unroll
                        for (int i = 0; i < LINES && low + i < K; ++i) {
                            UNROLL(four, fours) {
                                Pack<4> factor[K];
                                UNROLL(j, K) {
                                    const int cell = ((low + i) * K + j) * fours + four;
                                    factor[j] = kept[(cell << wide_bits) + pack_of_block];
                                }
                                UNROLL(r, R) {
                                    UNROLL(j, K) {
                                        UNROLL(k, 4) {
                                            sum[r * PACK + four * 4 + k] +=
                                                value_of<PACK>(seen[i][r * S + j], four * 4 + k) *
                                                factor[j].v[k];
                                        }
                                    }
                                }
                            }
                        }
                    }
                    const int pixel = (int)line * out_w + (int)run * R;
                    const int outputs = out_w - (int)run * R;
#pragma unroll 1
                    for (int step = 0; step < 2; ++step) {
                        activate_all(step == 0 ? kind : last, sum);
                        if (step == 1 || !residual) continue;
                        UNROLL(r, R) {
                            const real* from =
                                residual + pack * PACK + (pixel + min(r, outputs - 1)) * residual_pitch;
                            const Pack<PACK> v = load<PACK>(from);
                            UNROLL(k, PACK) sum[r * PACK + k] += v.v[k];
                        }
                    }
                    UNROLL(r, R) {
                        if (r >= outputs) break;
                        Pack<PACK> made;
                        UNROLL(k, PACK) {
                            made.v[k] = sum[r * PACK + k];
                            total.v[k] += made.v[k];
                        }
                        store<PACK>(out + (pixel + r) * out_pitch + pack * PACK, made);
                    }
                }
                if (!squeezed) continue;
                after_previous_kernel();  // a thread without outputs has not waited yet
                reduce_over_block<THREADS>(total, wide, shares);
                const int chunks = (packs + wide - 1) >> wide_bits;
                const int piece = (group * parts + part) * chunks + (first_pack >> wide_bits);
                float* to = piece_of(squeezed, piece, hidden);
                const int own = min(wide, packs - first_pack);
                if (is_kept) {
                    const real* held = reinterpret_cast<const real*>(kept_squeeze);
                    write_partial_products<THREADS>(shares, own, held, wide * PACK, hidden, to);
                } else {
                    const real* held = squeeze + first_pack * PACK;
                    write_partial_products<THREADS>(shares, own, held, squeeze_pitch, hidden, to);
                }
                __syncthreads();  // the next part uses the same memory
            }
        __syncthreads();  // and so do the next packs
    }
}

#define FIXED_ARGUMENTS                                                                                     \
    src, weight, bias, residual, out, lines, channels, height, width, out_h, out_w, src_pitch,              \
        residual_pitch, out_pitch, top, left, wide_bits, kind, last, groups, parts, squeeze, squeeze_pitch, \
        hidden, squeezed

// The `short` kernels are for few outputs: shorter runs in smaller blocks occupy more SMs.

extern "C" __global__ void __launch_bounds__(DEPTHWISE_THREADS, 2) depthwise_3_1(FIXED_PARAMETERS)
{
    depthwise_fixed<3, 1, 4, 3, DEPTHWISE_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_THREADS, 2) depthwise_3_2(FIXED_PARAMETERS)
{
    depthwise_fixed<3, 2, 2, 3, DEPTHWISE_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_THREADS, 2) depthwise_5_1(FIXED_PARAMETERS)
{
    depthwise_fixed<5, 1, 4, 1, DEPTHWISE_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_THREADS, 2) depthwise_5_2(FIXED_PARAMETERS)
{
    depthwise_fixed<5, 2, 2, 1, DEPTHWISE_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_SHORT_THREADS, 2) depthwise_3_1_short(FIXED_PARAMETERS)
{
    depthwise_fixed<3, 1, 2, 3, DEPTHWISE_SHORT_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_SHORT_THREADS, 2) depthwise_3_2_short(FIXED_PARAMETERS)
{
    depthwise_fixed<3, 2, 1, 3, DEPTHWISE_SHORT_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_SHORT_THREADS, 2) depthwise_5_1_short(FIXED_PARAMETERS)
{
    depthwise_fixed<5, 1, 2, 5, DEPTHWISE_SHORT_THREADS>(FIXED_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(DEPTHWISE_SHORT_THREADS, 2) depthwise_5_2_short(FIXED_PARAMETERS)
{
    depthwise_fixed<5, 2, 1, 5, DEPTHWISE_SHORT_THREADS>(FIXED_ARGUMENTS);
}
