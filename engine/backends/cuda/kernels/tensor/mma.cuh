// The matrix units of every card from Turing on: copies into shared memory, fragments, products.
//
// Chosen at compile time, MODE:
//   0  halves in, half products
//   1  floats in, tf32 products; both factors are rounded to nearest, weights by the host
//   2  floats in, each factor the sum of two tf32, three products; the sums of a slice are added
//      up outside the matrix unit, which drops bits that a float would keep
// A step is 32 bytes of k: 16 halves or 8 floats. Fragments of both are the same bytes.
#pragma once
#include "common.cuh"

#define STEP_BYTES 32
#define PARTS (MODE == 2 ? 2 : 1)  // of a weight: high and low

__device__ __forceinline__ unsigned shared_address(const void* p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

// ---- the kernel before and the kernel after

__device__ __forceinline__ void dependents_may_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous_kernel()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- copies of 16 bytes into shared memory
//
// From Ampere on they need no registers and arrive by themselves. Turing holds them in registers
// between copy_chunk and settle_chunk, so that products may run in between.

__device__ __forceinline__ void copy_chunk(unsigned to, const void* from, bool exists, uint4& held)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#else
    held = exists ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void settle_chunk(unsigned to, const uint4& held)
{
#if __CUDA_ARCH__ < 800
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(held.x), "r"(held.y),
                 "r"(held.z), "r"(held.w)
                 : "memory");
#endif
}

__device__ __forceinline__ void copies_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until all but the newest N groups have arrived.
template <int N> __device__ __forceinline__ void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// ---- fragments and products

// Four matrices of 8 rows by 16 bytes; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// sum += a step of 16 rows times a step of 8 columns.
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned low_k,
                                         unsigned high_k)
{
#if MODE > 0
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low_k), "r"(high_k));
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low_k), "r"(high_k));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(low_k));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[2]), "r"(a[3]), "r"(high_k));
#endif
}

#if MODE > 0
__device__ __forceinline__ unsigned round_to_tf32(float x)
{
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
#endif

// b: for every two blocks of 8 columns low k, high k, low k, high k.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_all(float (&sum)[ROWS / 16][COLUMNS / 8][4],
                                             const unsigned (&a)[ROWS / 16][4],
                                             const unsigned (&b)[COLUMNS / 16][4])
{
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j) {
            multiply(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// sum += STEPS steps of a warp's ROWS x COLUMNS. a_at(i, step) is this lane's address in the 16 rows
// of number i, b_at(j, step, part) in the 16 columns of number j; see row_of_a and its neighbours.
template <int ROWS, int COLUMNS, int STEPS, typename A, typename B>
__device__ __forceinline__ void multiply_slice(float (&sum)[ROWS / 16][COLUMNS / 8][4], A a_at,
                                               B b_at)
{
#if MODE == 2
    float part[ROWS / 16][COLUMNS / 8][4] = {};
#endif
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        unsigned a[ROWS / 16][4], b[COLUMNS / 16][4];
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) load_matrices(a[i], a_at(i, step));
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; ++j) load_matrices(b[j], b_at(j, step, 0));
#if MODE == 0
        multiply_all<ROWS, COLUMNS>(sum, a, b);
#else
        unsigned high[ROWS / 16][4];
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
            for (int r = 0; r < 4; ++r) high[i][r] = round_to_tf32(__uint_as_float(a[i][r]));
        }
#if MODE == 1
        multiply_all<ROWS, COLUMNS>(sum, high, b);
#else
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const float rest = __uint_as_float(a[i][r]) - __uint_as_float(high[i][r]);
                a[i][r] = round_to_tf32(rest);
            }
        }
        multiply_all<ROWS, COLUMNS>(part, a, b);
        unsigned low[COLUMNS / 16][4];
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; ++j) load_matrices(low[j], b_at(j, step, 1));
        multiply_all<ROWS, COLUMNS>(part, high, low);
        multiply_all<ROWS, COLUMNS>(part, high, b);
#endif
#endif
    }
#if MODE == 2
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j) {
#pragma unroll
            for (int r = 0; r < 4; ++r) sum[i][j][r] += part[i][j][r];
        }
    }
#endif
}

// Which row and which chunk of a step a lane addresses for load_matrices.
__device__ __forceinline__ int row_of_a(int lane) { return lane % 16; }
__device__ __forceinline__ int chunk_of_a(int lane) { return lane / 16; }
__device__ __forceinline__ int row_of_b(int lane) { return lane % 8 + lane / 16 * 8; }
__device__ __forceinline__ int chunk_of_b(int lane) { return lane / 8 % 2; }
