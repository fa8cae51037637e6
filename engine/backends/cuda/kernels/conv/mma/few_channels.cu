// few_channels: convolution with few input channels, such as a network's first layer, on tensor cores.
// Launched by conv/few_channels.py.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output; if 2 x 2 cells are pooled, the largest of four sums
//
// Layout: input (rows, height, width, pitch); weights as ldmatrix wants them, permuted and padded by the
// host; factors (rows, factor_pitch). Filters are the rows of the mma and windows its columns, because a
// lane's share of a column is 8 bytes that come straight from global memory, in any order of k that the
// weights share: k = (step, lane, value). A piece is 8 bytes, channels of one tap, padded with zeros. If
// pixels are aligned to 8 bytes, a piece is one load, and values past the last channel are cleared.
//
// A thread block copies the weights of its BN filters into shared memory once; their lines are an odd
// number of 16-byte chunks, so that eight lines of a column lie in different banks. Then its warps work
// independently, each on WARP_PIXELS pixels at a time. The next pieces are loaded before the current ones
// are multiplied. Filters are ordered so that a lane gets neighbouring channels, and sums go from
// registers into wide stores; see channel_of.
//
// If IS_SCALED, the input is multiplied by a factor for each channel of a row (squeeze-and-excite),
// rounded as if the product had been stored.
//
// Compile-time constants: CHANNELS TAPS_Y TAPS_X; BN (filters of a block); WARPS; BLOCKS (resident
// per SM); POOLED (cells per maximum, 1 or 4); IS_WIDE (pixels aligned to 8 bytes); IS_SCALED;
// HAS_RESIDUAL; KIND and LAST (activations); MODE, see mma_slice.cuh; OUT_BYTES and YOLO, see
// epilogue.cuh. Sums start with the bias.
#define CELLS 1  // rows of sums per output; this kernel pools before the epilogue
#include "fast_divide.cuh"
#include "mma_slice.cuh"
#include "epilogue.cuh"

// ---- k
#define PIECE (8 / (int)sizeof(real))  // values
#define PIECES_OF_TAP ((CHANNELS + PIECE - 1) / PIECE)
#define PIECES (TAPS_Y * TAPS_X * PIECES_OF_TAP)
#define STEPS ((PIECES + 3) / 4)
#define LAST_PIECES (PIECES % 4)  // pieces of the last step if it is not full
#define LINE_BYTES (STEPS * STEP_BYTES + 16)
// If the last step has room, the low parts of its weights lie next to the high ones.
#define LOW_STEPS (LAST_PIECES == 1 || LAST_PIECES == 2 ? STEPS - 1 : STEPS)
#define PASSES ((STEPS + 4) / 5)  // each over as many steps as registers can hold
#define STEPS_IN_FLIGHT ((STEPS + PASSES - 1) / PASSES)

// ---- pixels: a lane reads the windows of one of every 8 pixels and gets the sums of two, see pixel_in
#define SIDE (POOLED == 4 ? 2 : 1)
#define WARP_PIXELS (POOLED == 4 || BN > 32 ? 16 : 32)  // pixels per iteration of a warp
#define WINDOWS (POOLED == 4 ? 4 : WARP_PIXELS / 8)     // of a lane at once
#define BATCHES (WARP_PIXELS * POOLED / 8 / WINDOWS)

// ---- filters
#define VALUES (BN / 8)                                                           // of a pixel, per lane
#define CHUNK (VALUES % OUT_PACK == 0 ? OUT_PACK : VALUES % 4 == 0 ? 4 : VALUES)  // values per store
// Groups of 8 pixels that are finished together.
#define GROUPS_IN_FLIGHT (VALUES >= 8 ? 1 : 8 / VALUES < WARP_PIXELS / 8 ? 8 / VALUES : WARP_PIXELS / 8)

typedef Bits<8> Piece;

struct KernelArgs {
    Output output;
    const real* src;
    const real* weight;
    const real* factor;  // of each channel, row by row
    int height, width, src_pitch, out_h, out_w;
    int filters, lines;  // of weights: filters, padded to whole blocks
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
    int factor_pitch;  // values from one row of factors to the next
    Divisor by_out_h, by_out_w;
};

// A lane's windows: their first pixels in the map and their offsets in memory.
struct Windows {
    int y[WINDOWS], x[WINDOWS], at[WINDOWS];
    int factors[WINDOWS];  // offsets of their rows' factors
    bool exists[WINDOWS];
    bool are_inside;     // those of all lanes are inside the map
    bool is_single_row;  // those of all lanes are of one row
};

// Loads in flight: the pieces of all windows for the steps of a pass, and the factors if all windows are
// of one row.
struct InFlight {
    Piece pieces[STEPS_IN_FLIGHT][WINDOWS];
    Piece factors[STEPS_IN_FLIGHT];
};

// Offsets of what a lane reads of a window in each step.
struct Taps {
    int down[STEPS], right[STEPS], at[STEPS];
};

DEVICE int piece_of(int lane, int step)
{
    const bool is_full = LAST_PIECES == 0 || step < PIECES / 4;
    return step * 4 + (is_full ? lane % 4 : lane % 4 % (LAST_PIECES ? LAST_PIECES : 1));
}

DEVICE int first_channel(int lane, int step) { return piece_of(lane, step) % PIECES_OF_TAP * PIECE; }

DEVICE Taps taps_of(int lane, const KernelArgs& p)
{
    Taps taps;
    UNROLL(step, STEPS) {
        const int tap = piece_of(lane, step) / PIECES_OF_TAP;
        const int down = taps.down[step] = tap / TAPS_X * p.dilation_y;
        const int right = taps.right[step] = tap % TAPS_X * p.dilation_x;
        taps.at[step] = (down * p.width + right) * p.src_pitch + first_channel(lane, step);
    }
    return taps;
}

// The pixel of column n, out of 8. A lane gets columns 2 i and 2 i + 1: pixels i and i + 4, so that
// neighbouring lanes store neighbouring pixels.
DEVICE int pixel_in(int n) { return n / 2 + n % 2 * 4; }

DEVICE int row_of(int m, const KernelArgs& p) { return divide(divide(m, p.by_out_w), p.by_out_h); }

// The windows of the batch that begins with pixel m0. If a lane's windows are on one line, as on most
// large maps, the line is found once.
DEVICE Windows windows_of(int m0, int lane, const KernelArgs& p)
{
    Windows windows;
    const int room_y = p.height - 1 - (TAPS_Y - 1) * p.dilation_y;
    const int room_x = p.width - 1 - (TAPS_X - 1) * p.dilation_x;
    const int right = p.stride_x * p.src_pitch;
    const int down = p.stride_y * p.width * p.src_pitch;
    const int last = p.output.pixels - 1;
    const int first_row = row_of(min(m0, last), p);
    const int last_row = row_of(min(m0 + WINDOWS / POOLED * 8 - 1, last), p);
    windows.is_single_row = first_row == last_row;
    const auto place = [&](int i, int m, int row, int y, int x, int at) {
        UNROLL(cell, POOLED) {
            windows.y[i + cell] = y + cell / SIDE * p.stride_y;
            windows.x[i + cell] = x + cell % SIDE * p.stride_x;
            windows.at[i + cell] = at + cell / SIDE * down + cell % SIDE * right;
            windows.factors[i + cell] = min(row, last_row) * p.factor_pitch;
            windows.exists[i + cell] = m <= last;
        }
    };
    const auto first_y = [&](int line, int row) {
        return (line - row * p.out_h) * (SIDE * p.stride_y) - p.top;
    };
    const auto first_x = [&](int m, int line) { return (m - line * p.out_w) * (SIDE * p.stride_x) - p.left; };
    const auto is_inside = [&](int i) {  // all cells from i on
        const int end = i + POOLED - 1;
        return windows.exists[i] & (windows.y[i] >= 0) & (windows.x[i] >= 0) & (windows.y[end] <= room_y) &
            (windows.x[end] <= room_x);
    };
    const int m = m0 + pixel_in(lane / 4);
    const int line = divide(m, p.by_out_w);
    const int row = divide(line, p.by_out_h);
    const int far = WINDOWS - POOLED;  // first cell of the last pixel
    const bool are_of_a_line = m - line * p.out_w + far / POOLED * 8 < p.out_w;
    bool are_inside;
    if (__all_sync(~0u, are_of_a_line)) {
        const int y = first_y(line, row);
        const int x = first_x(m, line);
        const int at = ((row * p.height + y) * p.width + x) * p.src_pitch;
#pragma unroll
        for (int i = 0; i < WINDOWS; i += POOLED) {
            const int next = i / POOLED * 8;
            const int over = next * SIDE;
            place(i, m + next, row, y, x + over * p.stride_x, at + over * right);
        }
        are_inside = is_inside(0) & is_inside(far);
    } else {
        are_inside = true;
#pragma unroll
        for (int i = 0; i < WINDOWS; i += POOLED) {
            const int own = m + i / POOLED * 8;
            const int own_line = divide(own, p.by_out_w);
            const int own_row = divide(own_line, p.by_out_h);
            const int y = first_y(own_line, own_row);
            const int x = first_x(own, own_line);
            place(i, own, own_row, y, x, ((own_row * p.height + y) * p.width + x) * p.src_pitch);
            are_inside &= is_inside(i);
        }
    }
    windows.are_inside = __all_sync(~0u, are_inside);
    return windows;
}

// Issues the loads for the steps of a pass, from `first` on.
template <bool ARE_INSIDE> DEVICE void gather_windows(
    InFlight& in_flight, const Windows& windows, const Taps& taps, int first, int lane, const KernelArgs& p)
{
    UNROLL(s, STEPS_IN_FLIGHT) {
        const int step = first + s;
        if (step >= STEPS) continue;
        UNROLL(i, WINDOWS) {
            const unsigned y = windows.y[i] + taps.down[step];
            const unsigned x = windows.x[i] + taps.right[step];
            const bool is_inside =
                ARE_INSIDE || (windows.exists[i] && y < (unsigned)p.height && x < (unsigned)p.width);
            const real* from = p.src + (taps.at[step] + windows.at[i]);
            Piece& piece = in_flight.pieces[s][i];
            piece.word[0] = piece.word[1] = 0;
            if constexpr (IS_WIDE) {
                if (is_inside) piece = *reinterpret_cast<const Piece*>(from);
            } else {
                Raw<PIECE> raw;
                UNROLL(v, PIECE) {
                    put(&raw.v[v], 0.f);
                    if (is_inside && first_channel(lane, step) + v < CHANNELS) raw.v[v] = from[v];
                }
                piece = reinterpret_cast<const Piece&>(raw);
            }
        }
    }
}

DEVICE Piece factors_of(int row, int step, int lane, const KernelArgs& p)
{
    return *reinterpret_cast<const Piece*>(p.factor + row + first_channel(lane, step));
}

DEVICE void gather(
    InFlight& in_flight, const Windows& windows, const Taps& taps, int first, int lane, const KernelArgs& p)
{
    if (IS_WIDE && windows.are_inside) {
        gather_windows<true>(in_flight, windows, taps, first, lane, p);
    } else {
        gather_windows<false>(in_flight, windows, taps, first, lane, p);
    }
    if constexpr (IS_SCALED) {
        UNROLL(s, STEPS_IN_FLIGHT) {
            if (first + s < STEPS && windows.is_single_row) {
                in_flight.factors[s] = factors_of(windows.factors[0], first + s, lane, p);
            }
        }
    }
}

template <int BEGIN, int END>
DEVICE void apply_factors(InFlight& in_flight, const Windows& windows, int lane, const KernelArgs& p)
{
    const bool is_single_row = windows.is_single_row;
    UNROLL(s, END - BEGIN) {
        UNROLL(i, WINDOWS) {
            Piece own = in_flight.factors[s];
            if (!is_single_row) own = factors_of(windows.factors[i], BEGIN + s, lane, p);
            for (int word = 0; word < 2; ++word) {
                unsigned& x = in_flight.pieces[s][i].word[word];
                x = scale_word(x, own.word[word]);
            }
        }
    }
}

// Clears values of a piece that lie past the last channel.
DEVICE void clear_past_last_channel(Piece& piece, int channel)
{
    if constexpr (CHANNELS % PIECE != 0) {
        UNROLL(word, 2) {
            const int values = PIECE / 2;
            const int left = CHANNELS - channel - word * values;
            piece.word[word] &= left >= values ? ~0u : left > 0 ? 0xFFFFu : 0u;
        }
    }
}

// sum += steps BEGIN to END of BN filters times the lanes' windows.
template <int BEGIN, int END>
DEVICE void multiply_steps(float (&sum)[BN / 16][WINDOWS][4], InFlight& in_flight, unsigned weights, int lane)
{
#if MODE == 2
    float part[BN / 16][WINDOWS][4] = {};
#else
    auto& part = sum;
#endif
#pragma unroll
    for (int step = BEGIN; step < END; ++step) {
        Piece(&piece)[WINDOWS] = in_flight.pieces[step - BEGIN];
        UNROLL(j, WINDOWS) clear_past_last_channel(piece[j], first_channel(lane, step));
#if !HALVES
        Piece rest[WINDOWS];
        UNROLL(j, WINDOWS) {
            UNROLL(word, 2) {
                const float x = __uint_as_float(piece[j].word[word]);
                piece[j].word[word] = round_to_tf32(x);
                rest[j].word[word] = round_to_tf32(x - __uint_as_float(piece[j].word[word]));
            }
        }
#endif
        UNROLL(i, BN / 16) {
            unsigned high[4], low[4];
            const unsigned from = weights + i * 16 * LINE_BYTES + step * STEP_BYTES;
            ldmatrix_x4(high, from);
            if (MODE == 2 || (MODE == 3 && step < LOW_STEPS)) {
                ldmatrix_x4(low, from + BN * LINE_BYTES);
                UNROLL(j, WINDOWS) {
                    mma_step(part[i][j], low, piece[j].word[0], piece[j].word[1]);
                }
            }
            UNROLL(j, WINDOWS) {
#if MODE == 2
                mma_step(part[i][j], high, rest[j].word[0], rest[j].word[1]);
#endif
                mma_step(part[i][j], high, piece[j].word[0], piece[j].word[1]);
            }
        }
    }
#if MODE == 2
    UNROLL(i, BN / 16) {
        UNROLL(j, WINDOWS) {
            UNROLL(r, 4) sum[i][j][r] += part[i][j][r];
        }
    }
#endif
}

// All passes over the current windows. Returns with the first loads of the windows from pixel `next` on
// in flight.
template <int PASS> DEVICE void multiply_passes(float (&sum)[BN / 16][WINDOWS][4], InFlight& in_flight,
    Windows& windows, const Taps& taps, unsigned weights, int next, int lane, const KernelArgs& p)
{
    const int first = PASS * STEPS_IN_FLIGHT;
    const int last = PASS == PASSES - 1 ? STEPS : first + STEPS_IN_FLIGHT;
    if constexpr (IS_SCALED) apply_factors<first, last>(in_flight, windows, lane, p);
    multiply_steps<first, last>(sum, in_flight, weights, lane);
    if constexpr (PASS == PASSES - 1) {
        windows = windows_of(next, lane, p);
        gather(in_flight, windows, taps, 0, lane, p);
    } else {
        gather(in_flight, windows, taps, last, lane, p);
        multiply_passes<PASS + 1>(sum, in_flight, windows, taps, weights, next, lane, p);
    }
}

// The offset of the channel of a lane's value v from that of its first value. The chunks of a lane
// lie 8 chunks apart, so that one store of a warp is contiguous.
DEVICE constexpr int channel_offset(int v) { return v / CHUNK * (8 * CHUNK) + v % CHUNK; }

DEVICE int channel_of(int lane, int v) { return lane / 4 * CHUNK + channel_offset(v); }

// Finishes and stores values from channel n on of every fourth pixel from m on. If `is_whole`, all
// of them exist and are aligned, and there are no checks per value.
DEVICE void finish_pixels(
    float (&x)[GROUPS_IN_FLIGHT * 2 * VALUES], int m, int n, bool is_whole, const KernelArgs& p)
{
    const Output& o = p.output;
    const int values = GROUPS_IN_FLIGHT * 2 * VALUES;
    const auto exists = [=](int i) {
        return m + i / VALUES * 4 < p.output.pixels && n + channel_offset(i % VALUES) < p.filters;
    };
#if HAS_RESIDUAL
    const result* residual_from = o.residual + (m * o.residual_pitch + n);
    Raw<CHUNK, result> residual[values / CHUNK];
    if (is_whole) {
#pragma unroll
        for (int i = 0; i < values; i += CHUNK) {
            residual[i / CHUNK] = *reinterpret_cast<const Raw<CHUNK, result>*>(
                residual_from + i / VALUES * 4 * o.residual_pitch + channel_offset(i % VALUES));
        }
    } else {
        UNROLL(i, values) {
            const result* from =
                residual_from + i / VALUES * 4 * o.residual_pitch + channel_offset(i % VALUES);
            result& residual_value = residual[i / CHUNK].v[i % CHUNK];
            if (exists(i)) {
                residual_value = *from;
            } else {
                put_result(&residual_value, 0.f, 1.f);
            }
        }
    }
#endif
    activate_common(KIND, x);
#if HAS_RESIDUAL
    UNROLL(i, values) x[i] += residual_of(residual[i / CHUNK].v[i % CHUNK], o.residual_scale);
#endif
    activate_common(LAST, x);
#if YOLO
    unsigned bits[VALUES / CHUNK];
    UNROLL(c, VALUES / CHUNK) {
        const unsigned entry = (unsigned)(n + channel_offset(c * CHUNK)) % (unsigned)o.entries;
        bits[c] = yolo_mask<CHUNK>(entry, o.entries, o.box);
    }
#pragma unroll
    for (int i = 0; i < values; i += CHUNK) {
        float y[CHUNK];
        UNROLL(v, CHUNK) y[v] = exists(i + v) ? x[i + v] : 0.f;
        flag_non_finite(o.flag, y);
        apply_yolo<true>(y, bits[i % VALUES / CHUNK], YOLO == RAW, o.scale_x_y);
        UNROLL(v, CHUNK) x[i + v] = y[v];
    }
#endif
    result* out = o.out + (m * o.out_pitch + n);
    if (is_whole) {
#pragma unroll
        for (int i = 0; i < values; i += CHUNK) {
            Pack<CHUNK> pack;
            UNROLL(v, CHUNK) pack.v[v] = x[i + v];
            result* to = out + i / VALUES * 4 * o.out_pitch + channel_offset(i % VALUES);
            store_result<CHUNK>(to, pack, o.out_factor);
        }
        return;
    }
    UNROLL(i, values) {
        result* to = out + i / VALUES * 4 * o.out_pitch + channel_offset(i % VALUES);
        if (exists(i)) put_result(to, x[i], o.out_factor);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    few_channels(const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int blocks_n = p.lines / BN;
    const int n0 = blockIdx.x % blocks_n * BN;
    launch_dependents();
    const int chunks = STEPS * STEP_BYTES / 16;
    for (int item = threadIdx.x; item < PARTS * BN * chunks; item += 32 * WARPS) {
        const int line = item / chunks;
        const int chunk = item % chunks;
        const int from = line / BN * p.lines + n0 + line % BN;
        *reinterpret_cast<uint4*>(memory + line * LINE_BYTES + chunk * 16) =
            *reinterpret_cast<const uint4*>(p.weight + (from * chunks + chunk) * PACK);
    }
    float bias[VALUES];
    UNROLL(v, VALUES) bias[v] = p.output.bias[n0 + channel_of(lane, v)];
    __syncthreads();
    wait_for_previous_kernel();

    const Taps taps = taps_of(lane, p);
    const unsigned weights =
        shared_address(memory) + ldmatrix_row_a(lane) * LINE_BYTES + ldmatrix_chunk_a(lane) * 16;
    const int runs = (p.output.pixels + WARP_PIXELS - 1) / WARP_PIXELS;
    const int stride = gridDim.x / blocks_n * WARPS;
    int run = blockIdx.x / blocks_n * WARPS + warp;
    InFlight in_flight;
    Windows windows = windows_of(run * WARP_PIXELS, lane, p);
    gather(in_flight, windows, taps, 0, lane, p);
    for (; run < runs; run += stride) {
        const bool is_whole =
            p.output.is_aligned && n0 + BN <= p.filters && (run + 1) * WARP_PIXELS <= p.output.pixels;
        float pooled[WARP_PIXELS / 8][2][VALUES];
        UNROLL(batch, BATCHES) {
            float sum[BN / 16][WINDOWS][4];
            UNROLL(i, BN / 16 * WINDOWS * 4) {
                sum[i / (WINDOWS * 4)][i / 4 % WINDOWS][i % 4] = bias[i / (WINDOWS * 4) * 2 + i % 4 / 2];
            }
            const int next = batch + 1 < BATCHES ? run * WARP_PIXELS + (batch + 1) * WINDOWS / POOLED * 8
                                                 : (run + stride) * WARP_PIXELS;
            multiply_passes<0>(sum, in_flight, windows, taps, weights, next, lane, p);
            UNROLL(e, 2) {
                UNROLL(v, VALUES) {
                    UNROLL(j, WINDOWS) {
                        const float x = sum[v / 2][j][v % 2 * 2 + e];
                        float& largest = pooled[(batch * WINDOWS + j) / POOLED][e][v];
                        largest = j % POOLED ? fmaxf(largest, x) : x;
                    }
                }
            }
        }
#pragma unroll
        for (int first = 0; first < WARP_PIXELS / 8; first += GROUPS_IN_FLIGHT) {
            float x[GROUPS_IN_FLIGHT * 2 * VALUES];
            UNROLL(i, GROUPS_IN_FLIGHT * 2 * VALUES) {
                x[i] = pooled[first + i / (2 * VALUES)][i / VALUES % 2][i % VALUES];
            }
            const int m = run * WARP_PIXELS + first * 8 + lane % 4;
            finish_pixels(x, m, n0 + channel_of(lane, 0), is_whole, p);
        }
    }
}
