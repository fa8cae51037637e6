// thin_conv: convolution of few channels, a network's first layer, on the matrix units.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, or (row, y, x, cell) where 2 x 2 cells are pooled, k = (tap,
//   channel), W is (lines, k), filled up with zeros
//
// A window is too short and too crooked for wide copies, so each lane gathers the one of its own
// pixel, value by value, into its line of shared memory. Warps work alone: 32 windows, their
// products, wide stores, and on to the next 32. Weights are brought into shared memory once.
// Lines are an odd number of 16 bytes, so that eight lines of one column lie in different banks.
//
// Chosen at compile time: CHANNELS TAPS_Y TAPS_X, DEPTH (k in whole steps), BN (filters of a block),
// WARPS, BLOCKS (resident on a multiprocessor) MODE, see
// products.cuh, OUT_BYTES, CELLS and IS_YOLO, see finish.cuh.
#include "products.cuh"
#include "finish.cuh"

#define K (TAPS_Y * TAPS_X * CHANNELS)
#define LINE_BYTES (DEPTH * (int)sizeof(real) + 16)
#define STEPS (DEPTH * (int)sizeof(real) / STEP_BYTES)
#define WINDOWS 32
#define WEIGHT_BYTES (PARTS * BN * LINE_BYTES)
#define CORNER (16 * (BN + CORNER_PADDING))
#define WARP_BYTES (WINDOWS * LINE_BYTES + CORNER * 4)
#define AT_ONCE 4  // chunks of 16 bytes whose values are asked for before the first is needed

struct Problem {
    Output output;
    const real* input;
    const real* weight;
    int height, width, pitch, out_h, out_w;
    int filters, lines;  // of weights: filters and what fills them up to whole blocks
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
};

// The window of output pixel m, one line of K values and the zeros behind them.
__device__ __forceinline__ void gather(unsigned char* line, int m, const Problem& p)
{
    const Corner corner = corner_of(m, p.out_h, p.out_w, p.stride_y, p.stride_x);
    const int y = corner.y - p.top;
    const int x = corner.x - p.left;
    const int pixel = (corner.row * p.height + y) * p.width + x;
    const bool exists = m < p.output.pixels * CELLS;
    real zero;
    put(&zero, 0.f);
#pragma unroll
    for (int first = 0; first < DEPTH / PACK; first += AT_ONCE) {
        Raw<PACK> chunks[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE * PACK; ++i) {
            const int k = first * PACK + i;
            const int tap_y = k / (TAPS_X * CHANNELS);
            const int tap_x = k / CHANNELS % TAPS_X;
            const int down = tap_y * p.dilation_y;
            const int right = tap_x * p.dilation_x;
            const bool is_inside = k < K && exists && (unsigned)(y + down) < (unsigned)p.height &&
                                   (unsigned)(x + right) < (unsigned)p.width;
            const int cell = (pixel + down * p.width + right) * p.pitch;
            chunks[i / PACK].v[i % PACK] = is_inside ? p.input[cell + k % CHANNELS] : zero;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (first + i < DEPTH / PACK) {
                reinterpret_cast<Raw<PACK>*>(line)[first + i] = chunks[i];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    thin_conv(const __grid_constant__ Problem p)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int blocks_n = p.lines / BN;
    const int n0 = blockIdx.x % blocks_n * BN;
    dependents_may_start();
    for (int item = threadIdx.x; item < PARTS * BN * (DEPTH / PACK); item += 32 * WARPS) {
        const int line = item / (DEPTH / PACK);
        const int chunk = item % (DEPTH / PACK);
        const int from = line / BN * p.lines + n0 + line % BN;
        *reinterpret_cast<uint4*>(memory + line * LINE_BYTES + chunk * 16) =
            *reinterpret_cast<const uint4*>(p.weight + from * DEPTH + chunk * PACK);
    }
    __syncthreads();
    wait_for_previous_kernel();

    unsigned char* mine = memory + WEIGHT_BYTES + warp * WARP_BYTES;
    float* corner = reinterpret_cast<float*>(mine + WINDOWS * LINE_BYTES);
    const unsigned a_row =
        shared_address(mine) + row_of_a(lane) * LINE_BYTES + chunk_of_a(lane) * 16;
    const unsigned b_row =
        shared_address(memory) + row_of_b(lane) * LINE_BYTES + chunk_of_b(lane) * 16;
    const int runs = (p.output.pixels * CELLS + WINDOWS - 1) / WINDOWS;
    const int stride = gridDim.x / blocks_n * WARPS;
    for (int run = blockIdx.x / blocks_n * WARPS + warp; run < runs; run += stride) {
        gather(mine + lane * LINE_BYTES, run * WINDOWS + lane, p);
        __syncwarp();
#pragma unroll 1
        for (int half = 0; half < WINDOWS; half += 16) {
            float sum[1][BN / 8][4] = {};
            const int slice = MODE == 2 ? 4 : STEPS;
#pragma unroll
            for (int step = 0; step < STEPS; step += slice) {
                const auto a_at = [&](int, int s) {
                    return a_row + half * LINE_BYTES + (step + s) * STEP_BYTES;
                };
                const auto b_at = [&](int j, int s, int part) {
                    return b_row + (part * BN + j * 16) * LINE_BYTES + (step + s) * STEP_BYTES;
                };
                if (step + slice <= STEPS) {
                    multiply_slice<16, BN, slice>(sum, a_at, b_at);
                } else {
                    multiply_slice<16, BN, (STEPS + slice - 1) % slice + 1>(sum, a_at, b_at);
                }
            }
            finish<16, BN>(sum, corner, p.output, (run * WINDOWS + half) / CELLS, n0, p.filters - n0, n0);
        }
    }
}
