// thin_conv: convolution of few channels, a network's first layer, on the matrix units.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output; where 2 x 2 cells are pooled, the largest of four sums
//
// Windows come straight from memory into the registers that the matrix units read: a lane's share of
// a step of a row is 8 bytes, in any order of k that the weights share. So k = (step, lane, value):
// a piece of 8 bytes, channels of one tap, filled up with zeros. Where pixels begin on 8 bytes a piece
// is one load, and what lies behind the last channel is cleared. The steps that follow are asked for
// before those that came are multiplied and finished.
//
// Columns are in an order that leaves a lane with channels that lie side by side, so that sums go from
// registers into wide stores; see channel_of. Warps work alone; weights, permuted so by the host, are
// brought into shared memory once. Their lines are an odd number of 16 bytes, so that eight lines of
// one column lie in different banks.
//
// Chosen at compile time: CHANNELS TAPS_Y TAPS_X, BN (filters of a block), WARPS, BLOCKS (resident on
// a multiprocessor), POOLED (cells that share a maximum, 1 or 4), MODE, see products.cuh, OUT_BYTES
// and IS_YOLO, see finish.cuh.
#define CELLS 1  // of rows of sums: cells are pooled before
#include "products.cuh"
#include "finish.cuh"

// ---- k
#define PIECE (8 / (int)sizeof(real))  // values
#define PIECES_OF_TAP ((CHANNELS + PIECE - 1) / PIECE)
#define PIECES (TAPS_Y * TAPS_X * PIECES_OF_TAP)
#define STEPS ((PIECES + 3) / 4)
#define REST (PIECES % 4)  // pieces of a last step that is not full
#define LINE_BYTES (STEPS * STEP_BYTES + 16)
// Where the last step has room, low parts of its weights lie beside the high ones.
#define LOW_STEPS (REST == 1 || REST == 2 ? STEPS - 1 : STEPS)
#define TURNS ((STEPS + 4) / 5)  // of as many steps as registers hold
#define AT_ONCE ((STEPS + TURNS - 1) / TURNS)

// ---- rows: of 8 pixels that a warp takes side by side, a lane has one
#define SIDE (POOLED == 4 ? 2 : 1)
#define ROWS (POOLED == 4 || BN > 32 ? 16 : 32)  // pixels of a run
#define WINDOWS (POOLED == 4 ? 4 : ROWS / 8)     // of a lane at once
#define BATCHES (ROWS * POOLED / 8 / WINDOWS)

// ---- columns
#define VALUES (BN / 4)  // of a pixel that a lane has
#define NEIGHBOURS (VALUES < 8 ? VALUES : 8)
#define CHUNK (NEIGHBOURS < OUT_PACK ? NEIGHBOURS : OUT_PACK)  // values that are stored at once

typedef Bits<8> Piece;

// Divides what is below 2^31.
struct Divisor {
    unsigned factor;
    int shift;
};

__device__ __forceinline__ int divide(int n, Divisor by)
{
    return (int)((unsigned long long)(unsigned)n * by.factor >> by.shift);
}

struct Problem {
    Output output;
    const real* input;
    const real* weight;
    int height, width, pitch, out_h, out_w;
    int filters, lines;  // of weights: filters and what fills them up to whole blocks
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
    int is_wide;               // every pixel begins on 8 bytes
    Divisor by_out_h, by_out_w;
};

// The windows of a lane: where each begins, in the map and in memory.
struct Windows {
    int y[WINDOWS], x[WINDOWS], at[WINDOWS];
    bool exists[WINDOWS];
    bool are_inside;  // those of all lanes
};

// What a lane reads of a window in each step.
struct Taps {
    int down[STEPS], right[STEPS];
    const real* from[STEPS];  // of a window that begins at the first pixel
};

__device__ __forceinline__ int piece_of(int lane, int step)
{
    const bool is_full = REST == 0 || step < PIECES / 4;
    return step * 4 + (is_full ? lane % 4 : lane % 4 % (REST ? REST : 1));
}

__device__ __forceinline__ int first_channel(int lane, int step)
{
    return piece_of(lane, step) % PIECES_OF_TAP * PIECE;
}

__device__ __forceinline__ Taps taps_of(int lane, const Problem& p)
{
    Taps taps;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int tap = piece_of(lane, step) / PIECES_OF_TAP;
        const int down = taps.down[step] = tap / TAPS_X * p.dilation_y;
        const int right = taps.right[step] = tap % TAPS_X * p.dilation_x;
        taps.from[step] = p.input + (down * p.width + right) * p.pitch + first_channel(lane, step);
    }
    return taps;
}

// Of the batch that begins with pixel m0.
__device__ __forceinline__ Windows windows_of(int m0, int lane, const Problem& p)
{
    Windows windows;
    const int room_y = p.height - 1 - (TAPS_Y - 1) * p.dilation_y;
    const int room_x = p.width - 1 - (TAPS_X - 1) * p.dilation_x;
    bool are_inside = true;
#pragma unroll
    for (int i = 0; i < WINDOWS; i += POOLED) {
        const int m = m0 + lane / 4 + i / POOLED * 8;
        const int line = divide(m, p.by_out_w);
        const int row = divide(line, p.by_out_h);
        const int first_y = (line - row * p.out_h) * (SIDE * p.stride_y) - p.top;
        const int first_x = (m - line * p.out_w) * (SIDE * p.stride_x) - p.left;
#pragma unroll
        for (int cell = 0; cell < POOLED; ++cell) {
            const int y = windows.y[i + cell] = first_y + cell / SIDE * p.stride_y;
            const int x = windows.x[i + cell] = first_x + cell % SIDE * p.stride_x;
            windows.at[i + cell] = ((row * p.height + y) * p.width + x) * p.pitch;
            windows.exists[i + cell] = m < p.output.pixels;
        }
        const int last = i + POOLED - 1;
        are_inside = are_inside && windows.exists[i] && first_y >= 0 && first_x >= 0 &&
                     windows.y[last] <= room_y && windows.x[last] <= room_x;
    }
    windows.are_inside = __all_sync(~0u, are_inside);
    return windows;
}

template <bool IS_WIDE, bool ARE_INSIDE>
__device__ __forceinline__ void gather_as(Piece (&pieces)[AT_ONCE][WINDOWS], const Windows& windows,
                                          const Taps& taps, int first, int lane, const Problem& p)
{
#pragma unroll
    for (int s = 0; s < AT_ONCE; ++s) {
        const int step = first + s;
        if (step >= STEPS) continue;
#pragma unroll
        for (int i = 0; i < WINDOWS; ++i) {
            const unsigned y = windows.y[i] + taps.down[step];
            const unsigned x = windows.x[i] + taps.right[step];
            const bool is_inside = ARE_INSIDE || (windows.exists[i] && y < (unsigned)p.height &&
                                                  x < (unsigned)p.width);
            const real* from = taps.from[step] + windows.at[i];
            Piece& piece = pieces[s][i];
            piece.word[0] = piece.word[1] = 0;
            if (IS_WIDE) {
                if (is_inside) piece = *reinterpret_cast<const Piece*>(from);
                continue;
            }
            Raw<PIECE> raw;
#pragma unroll
            for (int v = 0; v < PIECE; ++v) {
                put(&raw.v[v], 0.f);
                if (is_inside && first_channel(lane, step) + v < CHANNELS) raw.v[v] = from[v];
            }
            piece = reinterpret_cast<const Piece&>(raw);
        }
    }
}

// Asks for the steps of a turn, from `first` on.
__device__ __forceinline__ void gather(Piece (&pieces)[AT_ONCE][WINDOWS], const Windows& windows,
                                       const Taps& taps, int first, int lane, const Problem& p)
{
    if (!p.is_wide) {
        gather_as<false, false>(pieces, windows, taps, first, lane, p);
    } else if (windows.are_inside) {
        gather_as<true, true>(pieces, windows, taps, first, lane, p);
    } else {
        gather_as<true, false>(pieces, windows, taps, first, lane, p);
    }
}

// What a piece may have of channels that are others', or nobody's.
__device__ __forceinline__ void clear_behind(Piece& piece, int channel)
{
    if (CHANNELS % PIECE == 0) return;
#pragma unroll
    for (int word = 0; word < 2; ++word) {
        const int values = PIECE / 2;
        const int left = CHANNELS - channel - word * values;
        piece.word[word] &= left >= values ? ~0u : left > 0 ? 0xFFFFu : 0u;
    }
}

// The channel of value v of a lane's.
__device__ __forceinline__ int channel_of(int lane, int v)
{
    return (v / NEIGHBOURS * 4 + lane % 4) * NEIGHBOURS + v % NEIGHBOURS;
}

// Two pixels of a lane, 8 apart: m and m + 8 of `out`, channels from n0 on.
__device__ __forceinline__ void finish_pair(float (&x)[2 * VALUES], const float (&bias)[VALUES],
                                            int m, int n0, int lane, const Problem& p)
{
    const Output& o = p.output;
#pragma unroll
    for (int i = 0; i < 2 * VALUES; ++i) x[i] += bias[i % VALUES];
    activate_common(o.kind, x);
    if (o.residual) {
#pragma unroll
        for (int i = 0; i < 2 * VALUES; ++i) {
            const int pixel = m + i / VALUES * 8;
            const int n = n0 + channel_of(lane, i % VALUES);
            if (pixel < o.pixels && n < p.filters) {
                x[i] += to_float(o.residual[(size_t)pixel * o.residual_pitch + n]);
            }
        }
    }
    activate_common(o.last, x);
#if IS_YOLO
#pragma unroll
    for (int i = 0; i < 2 * VALUES; ++i) {
        const int n = n0 + channel_of(lane, i % VALUES);
        if (m + i / VALUES * 8 < o.pixels && n < p.filters) {
            note_strange(o.flag, x[i]);
            x[i] = yolo_value(x[i], n % o.entries, o.box, o.is_raw, o.scale_x_y);
        }
    }
#endif
#pragma unroll
    for (int i = 0; i < 2 * VALUES; i += CHUNK) {
        const int pixel = m + i / VALUES * 8;
        const int n = n0 + channel_of(lane, i % VALUES);
        if (pixel >= o.pixels) continue;
        result* to = o.out + (size_t)pixel * o.pitch + n;
        if (o.is_aligned && n + CHUNK <= p.filters) {
            Pack<CHUNK> pack;
#pragma unroll
            for (int v = 0; v < CHUNK; ++v) pack.v[v] = x[i + v];
            store<CHUNK>(to, pack);
        } else {
#pragma unroll
            for (int v = 0; v < CHUNK; ++v) {
                if (n + v < p.filters) put(to + v, x[i + v]);
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
    const int chunks = STEPS * STEP_BYTES / 16;
    for (int item = threadIdx.x; item < PARTS * BN * chunks; item += 32 * WARPS) {
        const int line = item / chunks;
        const int chunk = item % chunks;
        const int from = line / BN * p.lines + n0 + line % BN;
        *reinterpret_cast<uint4*>(memory + line * LINE_BYTES + chunk * 16) =
            *reinterpret_cast<const uint4*>(p.weight + (from * chunks + chunk) * PACK);
    }
    float bias[VALUES];
#pragma unroll
    for (int v = 0; v < VALUES; ++v) bias[v] = p.output.bias[n0 + channel_of(lane, v)];
    __syncthreads();
    wait_for_previous_kernel();

    const Taps taps = taps_of(lane, p);
    const unsigned b_row =
        shared_address(memory) + row_of_b(lane) * LINE_BYTES + chunk_of_b(lane) * 16;
    const int runs = (p.output.pixels + ROWS - 1) / ROWS;
    const int stride = gridDim.x / blocks_n * WARPS;
    int run = blockIdx.x / blocks_n * WARPS + warp;
    Piece pieces[AT_ONCE][WINDOWS];
    Windows windows = windows_of(run * ROWS, lane, p);
    gather(pieces, windows, taps, 0, lane, p);
    for (; run < runs; run += stride) {
        float sum[ROWS / 16][BN / 8][4];
#pragma unroll
        for (int batch = 0; batch < BATCHES; ++batch) {
            float products[WINDOWS / 2][BN / 8][4] = {};
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                const int first = turn * AT_ONCE;
                const bool is_last = turn == TURNS - 1;
                const auto a_at = [&](int i, int s) {
                    Piece& upper = pieces[s][2 * i];
                    Piece& lower = pieces[s][2 * i + 1];
                    clear_behind(upper, first_channel(lane, first + s));
                    clear_behind(lower, first_channel(lane, first + s));
                    return Fragment{upper.word[0], lower.word[0], upper.word[1], lower.word[1]};
                };
                const auto b_at = [&](int j, int s, int part) {
                    return b_row + (part * BN + j * 16) * LINE_BYTES + (first + s) * STEP_BYTES;
                };
                if (!is_last) {
                    multiply_slice<8 * WINDOWS, BN, AT_ONCE>(products, a_at, b_at);
                } else {
                    const int before = (TURNS - 1) * AT_ONCE;
                    multiply_slice<8 * WINDOWS, BN, STEPS - before, LOW_STEPS - before>(
                        products, a_at, b_at);
                }
                if (is_last) {
                    const int next = batch + 1 < BATCHES ? run * ROWS + (batch + 1) * 8
                                                         : (run + stride) * ROWS;
                    windows = windows_of(next, lane, p);
                }
                gather(pieces, windows, taps, is_last ? 0 : first + AT_ONCE, lane, p);
            }
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
#pragma unroll
                for (int r = 0; r < 4; ++r) {
#if POOLED == 4
                    if (r >= 2) continue;
                    sum[0][j][batch * 2 + r] =
                        fmaxf(fmaxf(products[0][j][r], products[0][j][r + 2]),
                              fmaxf(products[1][j][r], products[1][j][r + 2]));
#else
#pragma unroll
                    for (int i = 0; i < ROWS / 16; ++i) sum[i][j][r] = products[i][j][r];
#endif
                }
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
            float x[2 * VALUES];
#pragma unroll
            for (int v = 0; v < 2 * VALUES; ++v) {
                x[v] = sum[i][v % VALUES / 2][v / VALUES * 2 + v % 2];
            }
            finish_pair(x, bias, run * ROWS + i * 16 + lane / 4, n0, lane, p);
        }
    }
}
