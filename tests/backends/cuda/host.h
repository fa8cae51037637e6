// Defines CUDA's keywords and functions in C++, so that g++ compiles the kernels' text and tests run it.
//
// Kernels without barriers run as loops over blocks and threads; a kernel with __syncthreads() runs
// the threads of one block at a time as fibers. Shared memory is static: one block at a time.
#pragma once
#include <stddef.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fibers.h"

struct Dim {
    int x = 1, y = 1, z = 1;
};
static Dim threadIdx, blockIdx, blockDim, gridDim;
static Meeting block_meeting;
static Meeting warp_meetings[32];
static float shown_to_warp[1024];
static Room<double> dynamic_shared;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)

template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
inline void __syncthreads() { meet(block_meeting, blockDim.x); }
inline float __shfl_xor_sync(unsigned, float x, int lanes)
{
    const int warp = running / 32;
    const int size = min(blockDim.x - warp * 32, 32);
    shown_to_warp[running] = x;
    meet(warp_meetings[warp], size);
    const float other = shown_to_warp[running ^ lanes];
    meet(warp_meetings[warp], size);  // all lanes have read it
    return other;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selectors)
{
    const uint64_t bytes = low | (uint64_t)high << 32;
    unsigned picked = 0;
    for (int i = 0; i < 4; ++i) {
        picked |= (unsigned)(bytes >> (selectors >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    }
    return picked;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return __builtin_clz(x); }
inline float __fmul_rn(float a, float b)
{
    volatile float product = a * b;
    return product;
}
inline float __fadd_rn(float a, float b)
{
    volatile float sum = a + b;
    return sum;
}
inline float __fsub_rn(float a, float b)
{
    volatile float difference = a - b;
    return difference;
}
inline float __fdiv_rn(float a, float b)
{
    volatile float quotient = a / b;
    return quotient;
}
inline float __uint_as_float(unsigned x)
{
    float y;
    std::memcpy(&y, &x, 4);
    return y;
}
inline unsigned __float_as_uint(float x)
{
    unsigned y;
    std::memcpy(&y, &x, 4);
    return y;
}
inline float __int_as_float(int x) { return __uint_as_float((unsigned)x); }
inline int __float_as_int(float x) { return (int)__float_as_uint(x); }
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T atomicAdd(T* p, T x)
{
    const T before = *p;
    *p += x;
    return before;
}
inline unsigned atomicMax(unsigned* p, unsigned x)
{
    const unsigned before = *p;
    *p = max(before, x);
    return before;
}
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Runs `kernel` over a grid of blocks x threads.
static void run_blocks(int blocks, int threads, int shared_bytes, bool has_barriers, Work kernel)
{
    if (threads > 1024) std::abort();
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    dynamic_shared.fill(shared_bytes / sizeof(double) + 1, 0xFF);  // NaN
    for (int block = 0; block < blocks; ++block) {
        blockIdx = {block, 0, 0};
        if (has_barriers) {
            block_meeting = {};
            std::memset(warp_meetings, 0, sizeof warp_meetings);
            run_fibers(threads, kernel, [](int thread) { threadIdx = {thread, 0, 0}; });
            continue;
        }
        for (int thread = 0; thread < threads; ++thread) {
            threadIdx = {thread, 0, 0};
            kernel();
        }
    }
}

template <class Kernel>
void run_on_host(int blocks, int threads, int shared_bytes, bool has_barriers, Kernel kernel)
{
    run_blocks(blocks, threads, shared_bytes, has_barriers, work_of(kernel));
}
