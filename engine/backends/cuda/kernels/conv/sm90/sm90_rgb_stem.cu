// sm90_rgb_stem: the first layer of a network, a convolution of a picture's three channels, with
// wgmma. Launched by conv/sm90_rgb_stem.py.
//
//   out[m, n] = f(max over cells of (sum over k of A[m, k] * W[n, k]) + bias[n]); 1 cell, or 2 x 2 if pooled
//
// Layout: lines of the picture are copied to shared memory as they are, four halves per pixel. A
// window's part of a line is a row of A, and the next row begins two pixels, 16 bytes, further on:
// wgmma reads overlapping rows in place, so nothing is unfolded. If windows are one pixel apart
// (PAIR is 2), two of them share a row, and the filters of the second, shifted by a pixel, are
// further columns. Inputs are float16, results float16 or int8.
//
// Thread blocks are persistent and keep all weights in shared memory. A warpgroup computes a line of 64
// rows at a time, or two lines if cells are pooled.
//
// Compile-time constants: BN (columns), PAIR (windows per row), TAPS_Y, STEPS (of four pixels of a line),
// PARTS (of a weight: 2 if it is the sum of two halves), POOLED (cells: 1 or 4), STRIDE_Y, LINES (of a
// tile), BLOCKS (resident per SM), KIND, OUT_BYTES.
#define ROW_BYTES 128
#include "fast_divide.cuh"
#include "sm90_ptx.cuh"
#include "quad_transpose.cuh"
#include "wgmma.cuh"

#define GROUPS 2
#define THREADS (128 * GROUPS)
#define AHEAD 5                                 // loads in flight per thread
#define WINDOWS 64                              // rows of A
#define PIXELS (2 * (WINDOWS - 1) + 4 * STEPS)  // that these rows cover in a line
#define LINE_BYTES ((PIXELS * 8 + 15) / 16 * 16)
#define LINES_IN ((LINES - 1) * STRIDE_Y + TAPS_Y)
#define PART_BYTES (BN * 32)  // weights of a step
#define WEIGHT_BYTES (TAPS_Y * STEPS * PARTS * PART_BYTES)
#define SIDE (POOLED == 4 ? 2 : 1)
#define FILTERS (BN / PAIR)
#define COLUMNS (POOLED == 4 ? FILTERS : BN)  // that a lane finishes

struct KernelArgs {
    const float* bias;  // one per column
    const half* src;
    const unsigned char* weight;
    result* out;
    int height, width, src_pitch;
    int is_wide;         // pixels of `src` are aligned to 8 bytes
    int grid_h, grid_w;  // of windows
    int out_h, out_w, out_pitch;
    int across, blocks;  // tiles of a line; all tiles
    int top, left;
    float out_factor;  // of int8 results
    Divisor by_across, by_down;
};

struct Tile {
    int window, line, row;  // the first of each
};

DEVICE Tile tile_at(const KernelArgs& p, int index)
{
    const int line = divide(index, p.by_across);
    const int row = divide(line, p.by_down);
    const int down = (p.grid_h + LINES - 1) / LINES;
    return {(index - line * p.across) * WINDOWS, (line - row * down) * LINES, row};
}

// Returns three channels and an arbitrary fourth value, or zeros outside the picture.
DEVICE uint2 pixel_at(const KernelArgs& p, int row, int y, int x)
{
    const bool is_inside = ((unsigned)y < (unsigned)p.height) & ((unsigned)x < (unsigned)p.width);
    const half* from = p.src + ((size_t)(row * p.height + y) * p.width + x) * p.src_pitch;
    uint2 pixel = {0, 0};
    if (is_inside && p.is_wide) pixel = *reinterpret_cast<const uint2*>(from);
    if (is_inside && !p.is_wide) {
        const unsigned short* bits = reinterpret_cast<const unsigned short*>(from);
        pixel.x = bits[0] | (unsigned)bits[1] << 16;
        pixel.y = bits[2];
    }
    return pixel;
}

DEVICE void load_lines(unsigned char* lines, const KernelArgs& p, const Tile& tile)
{
    const int y = tile.line * STRIDE_Y - p.top;
    const int x = tile.window * 2 - p.left;
#pragma unroll 1
    for (int first = threadIdx.x; first < LINES_IN * PIXELS; first += AHEAD * THREADS) {
        uint2 pixels[AHEAD];
        UNROLL(i, AHEAD) {
            const int at = first + i * THREADS;
            pixels[i] = pixel_at(p, tile.row, y + at / PIXELS, x + at % PIXELS);
        }
        UNROLL(i, AHEAD) {
            const int at = first + i * THREADS;
            if (at >= LINES_IN * PIXELS) break;
            pixels[i].y &= 0xFFFF;  // clear the value after the last channel
            *reinterpret_cast<uint2*>(lines + at / PIXELS * LINE_BYTES + at % PIXELS * 8) = pixels[i];
        }
    }
}

// Multiplies the windows of one line of the tile by the weights.
DEVICE void multiply_line(float (&sum)[BN / 2], unsigned lines, unsigned weights)
{
    UNROLL(tap, TAPS_Y) {
        UNROLL(step, STEPS) {
            UNROLL(part, PARTS) {
                const unsigned b = weights + ((tap * STEPS + step) * PARTS + part) * PART_BYTES;
                wgmma(sum, unswizzled_descriptor(lines + tap * LINE_BYTES + step * 32, 16, 128),
                    unswizzled_descriptor(b, BN * 16, 128));
            }
        }
    }
}

// Finishes and stores a lane's pairs of window `window`, or of two neighbours if PAIR is 2, in the
// line that begins at `out`.
DEVICE void finish_row(
    float (&x)[COLUMNS / 8][2], const KernelArgs& p, result* out, int window, const float* bias)
{
    const int lane = threadIdx.x % 32;
    UNROLL(j, COLUMNS / 8) {
        const float2 pair = *reinterpret_cast<const float2*>(bias + j * 8 + lane % 4 * 2);
        x[j][0] += pair.x, x[j][1] += pair.y;
    }
    activate_all(KIND, reinterpret_cast<float (&)[COLUMNS / 4]>(x));
#pragma unroll
    for (int j = 0; j < COLUMNS; j += QUAD_COLUMNS) {
        const auto& pairs = reinterpret_cast<const float (&)[QUAD_COLUMNS / 8][2]>(x[j / 8]);
        Bits<8 * OUT_BYTES> line;
#if OUT_BYTES == 1
        gather_bytes(pairs, line, p.out_factor);
#else
        gather_vector(pairs, line);
#endif
        const int n = j + quad_column(lane);
        const int pixel = window + n / FILTERS;
        if (pixel < p.out_w) store_vector(out + (size_t)pixel * p.out_pitch + n % FILTERS, line.word);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    sm90_rgb_stem(const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char* lines = memory + WEIGHT_BYTES;
    float* bias = reinterpret_cast<float*>(lines + LINES_IN * LINE_BYTES);
    const unsigned weights = shared_address(memory);
    const unsigned ready = weights + WEIGHT_BYTES + LINES_IN * LINE_BYTES + COLUMNS * 4;
    const int group = warp_index() / 4;
    const int lane = threadIdx.x % 32;
    const int first_row = threadIdx.x / 32 % 4 * 16 + lane / 4;

    if (threadIdx.x == 0) {
        mbarrier_init(ready, 1);
        mbarrier_init_fence();
        mbarrier_expect_bytes(ready, WEIGHT_BYTES);
        bulk_load(weights, p.weight, WEIGHT_BYTES, ready);
    }
#pragma unroll 1
    for (int n = threadIdx.x; n < COLUMNS; n += THREADS) bias[n] = p.bias[n];
    __syncthreads();
    wait_for_previous_kernel();
    mbarrier_wait(ready, 0);
#pragma unroll 1
    for (int index = blockIdx.x; index < p.blocks; index += gridDim.x) {
        const Tile tile = tile_at(p, index);
        load_lines(lines, p, tile);
        fence_async_proxy();
        __syncthreads();
        if (index + gridDim.x >= p.blocks) launch_dependents();
        const int end = min(LINES, p.grid_h - tile.line);
#pragma unroll 1
        for (int line = group * SIDE; line < end; line += GROUPS * SIDE) {
            const int y = tile.line + line;
            float sum[SIDE][BN / 2];
            UNROLL(i, SIDE) {
                UNROLL(j, BN / 2) sum[i][j] = opaque(0.f);  // set here, not between wgmmas
            }
            const unsigned from = shared_address(lines) + line * STRIDE_Y * LINE_BYTES;
            wgmma_fence();
            UNROLL(i, SIDE) multiply_line(sum[i], from + i * STRIDE_Y * LINE_BYTES, weights);
            wgmma_commit();
            wgmma_wait<0>();
            if (POOLED == 1 || y / SIDE < p.out_h) {
                const size_t line_out = (size_t)tile.row * p.out_h + y / SIDE;
                result* out = p.out + line_out * p.out_w * p.out_pitch;
#if POOLED == 1
                UNROLL(low, 2) {
                    float x[COLUMNS / 8][2];
                    UNROLL(j, COLUMNS / 4) {
                        x[j / 2][j % 2] = sum[0][j / 2 * 4 + low * 2 + j % 2];
                    }
                    finish_row(x, p, out, (tile.window + first_row + low * 8) * PAIR, bias);
                }
#elif PAIR == 2
                UNROLL(low, 2) {
                    float x[COLUMNS / 8][2];
                    UNROLL(j, COLUMNS / 4) {
                        const int left = j / 2 * 4 + low * 2 + j % 2;
                        const int right = left + FILTERS / 2;
                        x[j / 2][j % 2] =
                            fmaxf(fmaxf(sum[0][left], sum[0][right]), fmaxf(sum[1][left], sum[1][right]));
                    }
                    finish_row(x, p, out, tile.window + first_row + low * 8, bias);
                }
#else
                // Neighbouring windows are in neighbouring quads: even quads finish the first rows,
                // odd quads those eight further on.
                const bool is_odd = lane / 4 % 2;
                float x[COLUMNS / 8][2];
                UNROLL(j, COLUMNS / 4) {
                    const int at = j / 2 * 4 + j % 2;
                    const float first = fmaxf(sum[0][at], sum[1][at]);
                    const float second = fmaxf(sum[0][at + 2], sum[1][at + 2]);
                    const float sent = is_odd ? first : second;
                    const float received = __uint_as_float(__shfl_xor_sync(~0u, __float_as_uint(sent), 4));
                    x[j / 2][j % 2] = fmaxf(is_odd ? second : first, received);
                }
                const int window = tile.window + first_row / 2 * 2 + is_odd * 8;
                finish_row(x, p, out, window / 2, bias);
#endif
            }
            __syncwarp();
        }
        __syncthreads();  // the lines have been read
    }
}
