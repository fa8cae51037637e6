// Gives CUDA's words a meaning in C++, so that g++ compiles the kernels' own text and a test runs it.
//
// Kernels without barriers run as loops over blocks and threads; a kernel with __syncthreads() runs
// the threads of one block at a time as real threads. Shared memory is static: one block at a time.
#pragma once
#include <ucontext.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

struct Dim {
    int x = 1, y = 1, z = 1;
};
static thread_local Dim threadIdx, blockIdx;
static Dim blockDim, gridDim;
static std::barrier<>* block_barrier = nullptr;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static std::vector<float> shown_to_warp;
static std::vector<double> dynamic_shared;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() { block_barrier->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float x, int lanes)
{
    std::barrier<>& warp = *warp_barriers[threadIdx.x / 32];
    shown_to_warp[threadIdx.x] = x;
    warp.arrive_and_wait();
    const float other = shown_to_warp[threadIdx.x ^ lanes];
    warp.arrive_and_wait();  // all have read it
    return other;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
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
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
template <class T> inline T atomicAdd(T* p, T x) { return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST); }
inline unsigned atomicMax(unsigned* p, unsigned x)
{
    std::atomic_ref<unsigned> place(*p);
    unsigned before = place.load();
    while (before < x && !place.compare_exchange_weak(before, x)) {}
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
template <class Kernel>
void run_on_host(int blocks, int threads, int shared_bytes, bool has_barriers, Kernel kernel)
{
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    dynamic_shared.assign(shared_bytes / sizeof(double) + 1, 0.);
    for (int block = 0; block < blocks; ++block) {
        if (!has_barriers) {
            for (int thread = 0; thread < threads; ++thread) {
                blockIdx = {block, 0, 0};
                threadIdx = {thread, 0, 0};
                kernel();
            }
            continue;
        }
        std::barrier<> barrier(threads);
        block_barrier = &barrier;
        shown_to_warp.resize(threads);
        warp_barriers.clear();
        for (int left = threads; left > 0; left -= 32) {
            warp_barriers.push_back(std::make_unique<std::barrier<>>(std::min(left, 32)));
        }
        std::vector<std::thread> workers;
        for (int thread = 0; thread < threads; ++thread) {
            workers.emplace_back([=] {
                blockIdx = {block, 0, 0};
                threadIdx = {thread, 0, 0};
                kernel();
            });
        }
        for (auto& worker : workers) worker.join();
    }
}
