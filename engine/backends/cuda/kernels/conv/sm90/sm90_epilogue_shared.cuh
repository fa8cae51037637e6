// Finished sums whose rows are pixels pass through shared memory on their way out.
#pragma once
#include "sm90_epilogue.cuh"

#define PACKS (BN / OUT_PACK)  // of a row: results in 16 bytes
#define ROW_PITCH (BN + 8)  // of stored values, for a warp: keeps fragments off each other's banks

#if OUT_BYTES == 2
// A warp's 16 rows: two words of each lane for every eight columns, as four matrices of 8 x 8 halves.
__device__ __forceinline__ void put_rows(result* corner, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    const unsigned to = shared_address(corner) + (lane % 16 * ROW_PITCH + lane / 16 * 8) * 2;
#pragma unroll
    for (int j = 0; j < BN / 8; j += 2) {
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            word[i] = halves_of(sum[j * 4 + i * 2], sum[j * 4 + i * 2 + 1]);
        }
        store_matrices(to + j * 16, word);
    }
}
#else
__device__ __forceinline__ void put_rows(result* corner, const float (&sum)[BN / 2])
{
    const int lane = threadIdx.x % 32;
    float* to = corner + lane / 4 * ROW_PITCH + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < BN / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(sum[j * 4], sum[j * 4 + 1]);
        *reinterpret_cast<float2*>(to + 8 * ROW_PITCH + j * 8) =
            make_float2(sum[j * 4 + 2], sum[j * 4 + 3]);
    }
}
#endif

#define LINES_OF_LANE (PACKS / 2)  // of a warp's 16 rows
#define LINES_AT_ONCE (LINES_OF_LANE < 8 ? LINES_OF_LANE : LINES_OF_LANE % 8 == 0 ? 8 : 6)

typedef Line Lines[LINES_AT_ONCE];

// How a warp goes through its rows: lanes side by side take lines side by side, so that sectors of the L2
// are written whole, not in two halves that each take as long.
struct Walk {
    unsigned lane;
    int rows, columns;  // that exist

    static constexpr bool KEEPS_COLUMN = 32 % PACKS == 0;  // a lane has the same one in each row

    __device__ __forceinline__ int row(int i) const
    {
        return KEEPS_COLUMN ? i * (32 / PACKS) + lane / PACKS : (i * 32 + lane) / PACKS;
    }
    __device__ __forceinline__ int column(int i) const
    {
        return int((KEEPS_COLUMN ? lane : i * 32 + lane) % PACKS * OUT_PACK);
    }
    __device__ __forceinline__ bool is_there(int i) const
    {
        return i < LINES_OF_LANE && row(i) < rows && column(i) < columns;
    }
};

__device__ __forceinline__ Walk walk_of(const Problem& p, int first_row, int n0)
{
    return {threadIdx.x % 32, p.pixels - first_row, p.filters - n0};
}

// The residuals of a warp's rows, from its line `first` on.
__device__ __forceinline__ void ask_lines(Lines& residual, const Problem& p, int first_row, int n0,
                                          int first)
{
    const Walk walk = walk_of(p, first_row, n0);
    const result* from = p.residual + (size_t)first_row * p.residual_pitch + n0;
#pragma unroll
    for (int i = 0; i < LINES_AT_ONCE; ++i) {
        const int line = first + i;
        ask_words(residual[i].word, from + walk.row(line) * p.residual_pitch + walk.column(line),
                  p.residual && walk.is_there(line));
    }
}

// From a warp's corner on; the first residuals have been asked for.
__device__ __forceinline__ void finish_lines(const result* corner, Lines& residual, const Problem& p,
                                             int first_row, int n0)
{
    static_assert(PACKS % 2 == 0, "16 rows are a whole number of lines for each lane");
    const Walk walk = walk_of(p, first_row, n0);
    result* out = static_cast<result*>(p.out) + (size_t)first_row * p.out_pitch + n0;
#if YOLO
    const unsigned own_bits = bits_from(n0 + walk.column(0), p);
#endif
#pragma unroll 1
    for (int first = 0; first < LINES_OF_LANE; first += LINES_AT_ONCE) {
#pragma unroll
        for (int i = 0; i < LINES_AT_ONCE; ++i) {
            const int line = first + i;
            if (!walk.is_there(line)) continue;
            const int row = walk.row(line);
            const int column = walk.column(line);
            Line x = *reinterpret_cast<const Line*>(corner + row * ROW_PITCH + column);
            finish_line(x, residual[i], p.residual);
#if YOLO
            make_yolo(x, p, Walk::KEEPS_COLUMN ? own_bits : bits_from(n0 + column, p));
#endif
            if constexpr (REPEATED > 1) {
                store_line(p, first_row + row, n0 + column, x);
            } else {
                store_words(out + row * p.out_pitch + column, x.word);
            }
        }
        if (first + LINES_AT_ONCE < LINES_OF_LANE) {
            ask_lines(residual, p, first_row, n0, first + LINES_AT_ONCE);
        }
    }
}

// The same for any number of filters, anywhere, value by value: lanes side by side write side by
// side. Each keeps its filter from row to row.
__device__ __forceinline__ void finish_values(const result* corner, const Problem& p, int first_row,
                                              int n0)
{
    const int at_once = 8;
    const int rows = min(p.pixels - first_row, 16);
#pragma unroll 1
    for (int column = threadIdx.x % 32; column < BN; column += 32) {
        const int n = n0 + column;
        if (n >= p.filters) break;
#if YOLO
        const unsigned bits = yolo_bits<1>(n % p.entries, p.entries, p.box);
#endif
#pragma unroll 1
        for (int first = 0; first < rows; first += at_once) {
            const size_t m = first_row + first;
            const result* more = p.residual + m * p.residual_pitch + n;
            result* to = static_cast<result*>(p.out) + m * p.out_pitch + n;
            float x[at_once];
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                x[i] = to_float(corner[(first + i) * ROW_PITCH + column]);
                if (p.residual && first + i < rows) {
                    x[i] += to_float(__ldcg(more + i * p.residual_pitch));
                }
            }
            activate_all(LAST, x);
#if YOLO
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                if (first + i < rows) note_strange(p.flag, x[i]);
            }
            yolo_values<false>(x, bits, YOLO == RAW, p.scale_x_y);
#endif
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                if (first + i < rows) put(to + i * p.out_pitch, x[i]);
            }
        }
    }
}

// A warp's 16 rows of a finished block of rows pass through its own corner of shared memory, so that
// residuals are read and results written 16 bytes at a time. The first residuals may be on their way.
__device__ __forceinline__ void finish_rows(float (&sum)[BN / 2], result* corner, Lines& residual,
                                            bool is_asked, const float* bias, const Problem& p,
                                            int first_row, int n0)
{
    add_bias(sum, bias);
    activate_all(KIND, sum);
    put_rows(corner, sum);
    __syncwarp();
    if constexpr (WHOLE) {
        if (!is_asked) ask_lines(residual, p, first_row, n0, 0);
        finish_lines(corner, residual, p, first_row, n0);
    } else {
        finish_values(corner, p, first_row, n0);
    }
    __syncwarp();
}
