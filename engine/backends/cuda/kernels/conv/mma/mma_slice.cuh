// A warp multiplies one slice of k with mma.sync.
//
// Compile-time constant MODE:
//   0  float16 operands
//   1  float32 operands, rounded to the nearest tf32, weights by the host
//   2  float32 operands, each split into two tf32 values: three multiplications; slices are
//      accumulated outside the tensor core, which drops bits that a float would keep
//   3  float16 inputs, each weight split into two halves: two multiplications
//   4  int8 operands, int32 accumulators
// HALVES is 1 if the inputs are halves (modes 0 and 3). A step is 32 bytes of k: 32 integers, 16
// halves or 8 floats. Their fragments have the same layout in bytes.
#pragma once
#include "mma_ptx.cuh"

#define STEP_BYTES 32
#if MODE == 4
typedef int Sum;
typedef signed char value;  // of the inputs
#else
typedef float Sum;
typedef real value;
#endif

#define PARTS (MODE == 2 || MODE == 3 ? 2 : 1)  // of a weight: high and low

// The row and the chunk of a step that a lane addresses for ldmatrix_x4.
DEVICE int ldmatrix_row_a(int lane) { return lane % 16; }
DEVICE int ldmatrix_chunk_a(int lane) { return lane / 16; }
DEVICE int ldmatrix_row_b(int lane) { return lane % 8 + lane / 16 * 8; }
DEVICE int ldmatrix_chunk_b(int lane) { return lane / 8 % 2; }

// A word of the input times a word of factors, rounded as if the product had been stored.
DEVICE unsigned scale_word(unsigned word, unsigned factor)
{
#if HALVES
    return multiply_half2(word, factor);
#else
    return __float_as_uint(__fmul_rn(__uint_as_float(word), __uint_as_float(factor)));
#endif
}

// b has low k and high k for each of two blocks of 8 columns.
template <int ROWS, int COLUMNS> DEVICE void mma_all(Sum (&sum)[ROWS / 16][COLUMNS / 8][4],
    const unsigned (&a)[ROWS / 16][4], const unsigned (&b)[COLUMNS / 16][4])
{
    UNROLL(i, ROWS / 16) {
        UNROLL(j, COLUMNS / 8) {
            mma_step(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// sum += STEPS steps of a warp's ROWS x COLUMNS. a_at(i, step) is this lane's address in the i-th 16
// rows, b_at(j, step, part) in the j-th 16 columns; see ldmatrix_row_a. change(i, step, a) may change a
// fragment of A before it is multiplied.
template <int ROWS, int COLUMNS, int STEPS, typename A, typename B, typename Change>
DEVICE void mma_slice(Sum (&sum)[ROWS / 16][COLUMNS / 8][4], A a_at, B b_at, Change change)
{
#if MODE == 2
    float part[ROWS / 16][COLUMNS / 8][4] = {};
#endif
    UNROLL(step, STEPS) {
        unsigned a[ROWS / 16][4], b[COLUMNS / 16][4];
        UNROLL(i, ROWS / 16) {
            ldmatrix_x4(a[i], a_at(i, step));
            change(i, step, a[i]);
        }
        UNROLL(j, COLUMNS / 16) ldmatrix_x4(b[j], b_at(j, step, 0));
#if HALVES || MODE == 4
        mma_all<ROWS, COLUMNS>(sum, a, b);
#if MODE == 3
        UNROLL(j, COLUMNS / 16) ldmatrix_x4(b[j], b_at(j, step, 1));
        mma_all<ROWS, COLUMNS>(sum, a, b);
#endif
#else
        unsigned high[ROWS / 16][4];
        UNROLL(i, ROWS / 16) {
            UNROLL(r, 4) high[i][r] = round_to_tf32(__uint_as_float(a[i][r]));
        }
#if MODE == 1
        mma_all<ROWS, COLUMNS>(sum, high, b);
#else
        UNROLL(i, ROWS / 16) {
            UNROLL(r, 4) {
                const float rest = __uint_as_float(a[i][r]) - __uint_as_float(high[i][r]);
                a[i][r] = round_to_tf32(rest);
            }
        }
        mma_all<ROWS, COLUMNS>(part, a, b);
        unsigned low[COLUMNS / 16][4];
        UNROLL(j, COLUMNS / 16) ldmatrix_x4(low[j], b_at(j, step, 1));
        mma_all<ROWS, COLUMNS>(part, high, low);
        mma_all<ROWS, COLUMNS>(part, high, b);
#endif
#endif
    }
#if MODE == 2
    UNROLL(i, ROWS / 16) {
        UNROLL(j, COLUMNS / 8) {
            UNROLL(r, 4) sum[i][j][r] += part[i][j][r];
        }
    }
#endif
}
