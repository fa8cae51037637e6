// PTX instructions of every card since Turing under readable names: cp.async, ldmatrix, mma.sync, and
// programmatic dependent launch.
#pragma once
#include "common.cuh"

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- programmatic dependent launch

DEVICE void launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEVICE void wait_for_previous_kernel()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- copies of 16 bytes into shared memory
//
// Since Ampere they are asynchronous. Turing holds the bytes in registers between cp_async_16 and
// store_held_16, so that MMAs can run in between.

DEVICE void cp_async_16(unsigned to, const void* from, bool exists, uint4& held)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0)
        : "memory");
#else
    held = exists ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}

DEVICE void store_held_16(unsigned to, const uint4& held)
{
#if __CUDA_ARCH__ < 800
    asm volatile(
        "st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(held.x), "r"(held.y), "r"(held.z), "r"(held.w)
        : "memory");
#endif
}

DEVICE void cp_async_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the newest N groups have arrived.
template <int N> DEVICE void cp_async_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// ---- fragments and MMAs

// Loads four matrices of 8 rows by 16 bytes; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void ldmatrix_x4(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(address)
        : "memory");
}

// sum += one k-step of 16 rows times one k-step of 8 columns.
#if MODE == 4
DEVICE void mma_step(int (&sum)[4], const unsigned (&a)[4], unsigned low_k, unsigned high_k)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low_k), "r"(high_k));
#else
    UNROLL(i, 4) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
            : "+r"(sum[i % 2 * 2]), "+r"(sum[i % 2 * 2 + 1])
            : "r"(a[i]), "r"(i < 2 ? low_k : high_k));
    }
#endif
}
#else
DEVICE void mma_step(float (&sum)[4], const unsigned (&a)[4], unsigned low_k, unsigned high_k)
{
#if !HALVES
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
#endif

#if !HALVES
DEVICE unsigned round_to_tf32(float x)
{
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
#endif
