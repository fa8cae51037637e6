// implicit_gemm: convolution as an implicit GEMM on the tensor cores of any card since Turing. Launched
// by conv/implicit_gemm.py.
//
//   out[m, n] = last(f(sum over k of A[m, k] * W[n, k] + bias[n]) + residual[m, n])
//   m = (row, y, x) of the output, or (row, y, x, cell) if 2 x 2 cells are pooled; k = (tap, channel)
//
// Layout: A is the NHWC input, never unfolded in memory; W is (groups, lines, k), padded with zeros by
// the host to whole tiles of filters and whole slices of k. `output` has its own pitch.
//
// A thread block computes a tile of BM x BN, each of its warps WM x WN. It walks over k in slices of BK
// values through a ring of STAGES buffers: all threads copy the next slices 16 bytes at a time with
// cp.async while the warps multiply the current one. Rows of a slice are ROW_BYTES; 16-byte chunks are
// swizzled from row to row, so that eight rows of a column lie in different banks. Weights do not depend
// on the previous layer and are loaded before the wait for it.
//
// Split-K: `split` blocks share the sum over k. Each writes its partial sums to the workspace, and the
// block that arrives last adds them in the order of their ranks, so that results repeat bit for bit.
//
// Only the common activations are supported, because each is inlined over all values of a thread;
// int8 supports all of them. If IS_SCALED, a 1x1 convolution multiplies its input by a factor for
// each channel of a row (squeeze-and-excite). The factors of the next slice are loaded during the
// current one, unless the warp has pixels of several rows.
//
// Compile-time constants: BM BN BK WM WN STAGES BLOCKS (resident per SM) IS_SCALED; MODE, see
// mma_slice.cuh; OUT_BYTES, CELLS and YOLO, see epilogue.cuh. On Turing STAGES is 2.
#include "mma_slice.cuh"
#include "epilogue.cuh"

#define ROW_BYTES (BK * (int)sizeof(value))  // 128 or 64
#define CHUNKS (ROW_BYTES / 16)
#define THREADS (32 * (BM / WM) * (BN / WN))
#define A_BYTES (BM * ROW_BYTES)
#define B_BYTES (BN * ROW_BYTES)
#define STAGE_BYTES (A_BYTES + PARTS * B_BYTES)
#define ROWS_AT_ONCE (THREADS / CHUNKS)  // copied by all threads together
#define A_ROUNDS (BM / ROWS_AT_ONCE)
#define B_ROUNDS (PARTS * BN / ROWS_AT_ONCE)
#define STAGING_FLOATS (WM * (WN + STAGING_PADDING))
#define CHUNK_VALUES (16 / (int)sizeof(value))
#define STEPS (ROW_BYTES / STEP_BYTES)

struct KernelArgs {
    Output output;
    const value* src;
    const value* weight;
    const real* factor;  // of each channel, row by row
    float4* parts;       // partial sums of a split
    int* arrivals;       // a counter for each tile; zero before and after the kernel
    int height, width, src_pitch, out_h, out_w;
    int groups, group_channels, filters;  // filters of a group
    int kernel_y, kernel_x, steps;        // slices of k
    int stride_y, stride_x, top, left, dilation_y, dilation_x;
    int next_y, next_x, next_channel;  // one slice of k, in taps and channels
    int split, tiles_n;
    int area, factor_pitch;  // of a row; values from a row of factors to the next
};

// The first input pixel of an output pixel's window.
struct Window {
    int pixel, y, x;
};

DEVICE Window window_at(int m, const KernelArgs& p)
{
    const WindowOrigin staging = window_origin(m, p.out_h, p.out_w, p.stride_y, p.stride_x);
    Window window;
    window.y = staging.y - p.top;
    window.x = staging.x - p.left;
    window.pixel = (staging.row * p.height + window.y) * p.width + window.x;
    if (m >= p.output.pixels * CELLS) window.y = -(1 << 30);  // never inside the map
    return window;
}

// The factors for a lane's share of a slice: the words of its two chunks in each step.
struct Factors {
    unsigned word[STEPS][2];
};

// The factors of the row of pixel m; zero past the last channel.
DEVICE unsigned factor_of(int m, int slice, int step, int chunk, int lane, const KernelArgs& p)
{
    const int channel = slice * BK + (step * 2 + chunk) * PACK;
    const int row = min(m, p.output.pixels - 1) / p.area;
    const real* at = p.factor + row * p.factor_pitch + channel + lane % 4 * (PACK / 4);
    return channel < p.group_channels ? *reinterpret_cast<const unsigned*>(at) : 0;
}

DEVICE Factors factors_of(int m, int slice, int lane, const KernelArgs& p)
{
    Factors factors;
    UNROLL(step, STEPS) {
        UNROLL(chunk, 2) {
            factors.word[step][chunk] = factor_of(m, slice, step, chunk, lane, p);
        }
    }
    return factors;
}

DEVICE int swizzle(int row, int chunk) { return (chunk ^ (row * ROW_BYTES / 128 % CHUNKS)) * 16; }

// Writes this block's partial sums. Returns true in the block that arrived last, with the total in `sum`.
DEVICE bool reduce_splits(Sum (&sum)[WM / 16][WN / 8][4], const KernelArgs& p, int tile, int rank)
{
    __shared__ int arrival;
    const int size = BM * BN / 4;
    float4* parts = p.parts + (size_t)tile * p.split * size + threadIdx.x;
    UNROLL(i, WM / 16) {
        UNROLL(j, WN / 8) {
            const float* s = reinterpret_cast<const float*>(sum[i][j]);  // their bits
            __stcg(parts + rank * size + (i * (WN / 8) + j) * THREADS, make_float4(s[0], s[1], s[2], s[3]));
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrival = atomicAdd(p.arrivals + tile, 1);
    __syncthreads();
    if (arrival < p.split - 1) return false;
    if (threadIdx.x == 0) p.arrivals[tile] = 0;
    __threadfence();
    UNROLL(i, WM / 16) {
        UNROLL(j, WN / 8) {
            UNROLL(r, 4) sum[i][j][r] = 0;
        }
    }
#pragma unroll 1
    for (int other = 0; other < p.split; ++other) {
        UNROLL(i, WM / 16) {
            UNROLL(j, WN / 8) {
                const float4 part = __ldcg(parts + other * size + (i * (WN / 8) + j) * THREADS);
                const Sum* s = reinterpret_cast<const Sum*>(&part);
                UNROLL(r, 4) sum[i][j][r] += s[r];
            }
        }
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    implicit_gemm(const __grid_constant__ KernelArgs p)
{
    static_assert(BM % ROWS_AT_ONCE == 0 && BN % ROWS_AT_ONCE == 0, "copies come in whole rounds");
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned base = shared_address(memory);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_m = warp % (BM / WM) * WM;
    const int warp_n = warp / (BM / WM) * WN;
    const int tile = blockIdx.x / p.split;
    const int rank = blockIdx.x - tile * p.split;
    const int column = tile % (p.tiles_n * p.groups);  // of tiles; groups follow each other
    const int group = column / p.tiles_n;
    const int m0 = tile / (p.tiles_n * p.groups) * BM;
    const int n0 = (column - group * p.tiles_n) * BN;
    const int first = (int)((long long)rank * p.steps / p.split);
    const int end = (int)((long long)(rank + 1) * p.steps / p.split);
    launch_dependents();

    // Each thread copies one chunk of a row of k, in every ROWS_AT_ONCE-th row.
    const int my_row = threadIdx.x / CHUNKS;
    const int my_chunk = threadIdx.x % CHUNKS;
    const unsigned my_address = base + my_row * ROW_BYTES + swizzle(my_row, my_chunk);
    const int depth = p.steps * BK;
    const value* weight =
        p.weight + (size_t)(column * BN + my_row) * depth + first * BK + my_chunk * CHUNK_VALUES;
    const size_t low_parts = (size_t)p.tiles_n * p.groups * BN * depth;
    Window windows[A_ROUNDS];
    UNROLL(i, A_ROUNDS) windows[i] = window_at(m0 + my_row + i * ROWS_AT_ONCE, p);
    const int k = first * BK + my_chunk * CHUNK_VALUES;
    int channel = k % p.group_channels;
    int tap_x = k / p.group_channels % p.kernel_x;
    int tap_y = k / p.group_channels / p.kernel_x;
    const value* input = p.src + group * p.group_channels;

    uint4 held_a[A_ROUNDS], held_b[B_ROUNDS];
    auto load_weights = [&](int stage) {
        const unsigned to = my_address + stage * STAGE_BYTES + A_BYTES;
        UNROLL(i, B_ROUNDS) {
            const int row = i * ROWS_AT_ONCE;
            const value* from = row < BN ? weight + row * depth : weight + low_parts + (row - BN) * depth;
            cp_async_16(to + row * ROW_BYTES, from, true, held_b[i]);
        }
        weight += BK;
    };
    auto load_input = [&](int stage) {
        const unsigned to = my_address + stage * STAGE_BYTES;
        const int down = tap_y * p.dilation_y;
        const int right = tap_x * p.dilation_x;
        const bool exists = tap_y < p.kernel_y;
        UNROLL(i, A_ROUNDS) {
            const bool is_inside = exists && (unsigned)(windows[i].y + down) < (unsigned)p.height &&
                (unsigned)(windows[i].x + right) < (unsigned)p.width;
            const int pixel = windows[i].pixel + down * p.width + right;
            const value* from = is_inside ? input + (size_t)pixel * p.src_pitch + channel : p.src;
            cp_async_16(to + i * ROWS_AT_ONCE * ROW_BYTES, from, is_inside, held_a[i]);
        }
        channel += p.next_channel;
        tap_x += p.next_x;
        tap_y += p.next_y;
        if (channel >= p.group_channels) {
            channel -= p.group_channels;
            ++tap_x;
        }
        if (tap_x >= p.kernel_x) {
            tap_x -= p.kernel_x;
            ++tap_y;
        }
    };
    auto store_held = [&](int stage) {
        const unsigned to = my_address + stage * STAGE_BYTES;
        UNROLL(i, A_ROUNDS) {
            store_held_16(to + i * ROWS_AT_ONCE * ROW_BYTES, held_a[i]);
        }
        UNROLL(i, B_ROUNDS) {
            store_held_16(to + A_BYTES + i * ROWS_AT_ONCE * ROW_BYTES, held_b[i]);
        }
    };

    // One commit group for each slice, empty after the last; the first also holds all early weights.
    const int ahead = min(end - first, STAGES - 1);
    for (int s = 0; s < ahead; ++s) load_weights(s);
    wait_for_previous_kernel();
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < ahead) {
            load_input(s);
            store_held(s);
        }
        cp_async_commit();
    }

    const unsigned a_row = base + (warp_m + ldmatrix_row_a(lane)) * ROW_BYTES;
    const unsigned b_row = base + A_BYTES + (warp_n + ldmatrix_row_b(lane)) * ROW_BYTES;
    const int first_m = m0 + warp_m;
    const int last_m = min(first_m + WM, p.output.pixels) - 1;
    const bool is_single_row = IS_SCALED && (last_m < first_m || first_m / p.area == last_m / p.area);
    Factors factors = {}, next = {};
    if (is_single_row) next = factors_of(first_m, first, lane, p);
    Sum sum[WM / 16][WN / 8][4] = {};
    int read_stage = 0;
    int write_stage = STAGES - 1;
    for (int step = first; step < end; ++step) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // this slice has arrived for all, and the previous one has been read
        const bool has_more = step + STAGES - 1 < end;
        if (has_more) {
            load_weights(write_stage);
            load_input(write_stage);
        }
        cp_async_commit();
        factors = next;
        if (is_single_row) next = factors_of(first_m, step + 1, lane, p);
        const unsigned stage = read_stage * STAGE_BYTES;
        mma_slice<WM, WN, STEPS>(
            sum,
            [&](int i, int s) {
                return a_row + stage + i * 16 * ROW_BYTES +
                    swizzle(ldmatrix_row_a(lane), s * 2 + ldmatrix_chunk_a(lane));
            },
            [&](int j, int s, int part) {
                return b_row + stage + part * B_BYTES + j * 16 * ROW_BYTES +
                    swizzle(ldmatrix_row_b(lane), s * 2 + ldmatrix_chunk_b(lane));
            },
            [&](int i, int s, unsigned (&a)[4]) {
                if constexpr (IS_SCALED) {
                    UNROLL(word, 4) {
                        const int m = first_m + i * 16 + lane / 4 + word % 2 * 8;
                        unsigned factor = factors.word[s][word / 2];
                        if (!is_single_row) factor = factor_of(m, step, s, word / 2, lane, p);
                        a[word] = scale_word(a[word], factor);
                    }
                }
            });
        if (has_more) store_held(write_stage);
        if (++read_stage == STAGES) read_stage = 0;
        if (++write_stage == STAGES) write_stage = 0;
    }
    cp_async_wait<0>();
    __syncthreads();  // the ring has been read; the sums reuse its memory
    if (p.split > 1 && !reduce_splits(sum, p, tile, rank)) return;
    float* staging = reinterpret_cast<float*>(memory) + warp * STAGING_FLOATS;
    const int n = n0 + warp_n;
    run_epilogue<WM, WN>(sum, staging, p.output, (m0 + warp_m) / CELLS, group * p.filters + n, p.filters - n,
        column * BN + warp_n);
}
