// Hopper's own instructions under readable names: barriers, bulk tensor copies, wgmma, clusters.
#pragma once
#include "common.cuh"

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

__device__ __forceinline__ unsigned shared_address(const void* p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

// ---- barriers in shared memory that copies complete on

__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, int phase)
{
    asm volatile(
        "{\n.reg .pred done;\n"
        "WAIT%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra DONE%=;\nbra WAIT%=;\nDONE%=:\n}" ::"r"(barrier),
        "r"(phase)
        : "memory");
}

// Barrier 0 is the whole block's.
__device__ __forceinline__ void consumers_barrier(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- the bulk copy engine

// Ask for a map before the first copy needs it.
__device__ __forceinline__ void prefetch_map(const TensorMap* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A slice of im2col: `channel` on, windows counted from pixel (x, y, row), tap (tap_x, tap_y).
__device__ __forceinline__ void copy_windows(unsigned to, const TensorMap* map, unsigned barrier,
                                             int channel, int x, int y, int row, int tap_x,
                                             int tap_y)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3,%4,%5,%6}], [%2], {%7,%8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row),
        "h"((unsigned short)tap_x), "h"((unsigned short)tap_y)
        : "memory");
}

// A box of a map: `channel` on, pixels from (x, y) of a row on; zeros where the map has none.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap* map, unsigned barrier,
                                         int channel, int x, int y, int row)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row)
        : "memory");
}

// Bytes as they lie, both ends on 16: no maps, and none of the time that each row of a map takes.
__device__ __forceinline__ void copy_bytes(unsigned to, const void* from, int bytes,
                                           unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// Bytes that somebody else will want soon, both ends on 16, into the L2.
__device__ __forceinline__ void call_bytes(const void* from, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// ---- wgmma

// A matrix in shared memory, k innermost, rows of ROW_BYTES swizzled by the copy engine; eight of them
// lie together, the next eight `apart` rows from where they begin.
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, int apart = 8)
{
    const unsigned long long swizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    return (unsigned long long)((address & 0x3FFFF) >> 4) | 1ull << 16 |
           (unsigned long long)(apart * ROW_BYTES >> 4) << 32 | swizzle << 62;
}

// One whose rows begin 16 bytes apart, each eight of them `apart` from the eight before; the next 16 bytes of
// k of all rows lie `across`. Rows may overlap.
__device__ __forceinline__ unsigned long long rows_at(unsigned address, int across, int apart)
{
    return (unsigned long long)((address & 0x3FFFF) >> 4) | (unsigned long long)(across >> 4) << 16 |
           (unsigned long long)(apart >> 4) << 32;
}

__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ float read_shared(unsigned from)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from));
    return x;
}

// Results that lie side by side, which a compiler may tear into words, or halves, however they are aligned:
// each of them would be a write of a sector of the L2. Nothing in a kernel reads them.
__device__ __forceinline__ void store_words(void* to, const unsigned (&word)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3]));
}

__device__ __forceinline__ void store_words(void* to, const unsigned (&word)[2])
{
    asm volatile("st.global.v2.b32 [%0], {%1,%2};" ::"l"(to), "r"(word[0]), "r"(word[1]));
}

__device__ __forceinline__ void store_words(void* to, const unsigned (&word)[1])
{
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(word[0]));
}

// Words that are on their way from here on, if they are there: a compiler would ask for them just before
// they are needed. Else zeros: registers that only some threads wrote would keep what they had before.
__device__ __forceinline__ void ask_words(unsigned (&word)[4], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@p ld.global.cg.v4.b32 {%0,%1,%2,%3}, [%4];\n}"
                 : "=&r"(word[0]), "=&r"(word[1]), "=&r"(word[2]), "=&r"(word[3])
                 : "l"(from), "r"((int)are_there));
}

__device__ __forceinline__ void ask_words(unsigned (&word)[2], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
                 "@p ld.global.cg.v2.b32 {%0,%1}, [%2];\n}"
                 : "=&r"(word[0]), "=&r"(word[1])
                 : "l"(from), "r"((int)are_there));
}

__device__ __forceinline__ void ask_words(unsigned (&word)[1], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n"
                 "@p ld.global.cg.b32 %0, [%1];\n}"
                 : "=&r"(word[0])
                 : "l"(from), "r"((int)are_there));
}

// The same number, of which a compiler knows nothing: so it does not keep multiples of it in registers.
__device__ __forceinline__ int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Four matrices of 8 x 8 halves; lane l says where row l % 8 of matrix l / 8 goes.
__device__ __forceinline__ void store_matrices(unsigned to, const unsigned (&word)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to),
                 "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

// ---- registers, which 128 threads give up or take together

template <int COUNT> __device__ __forceinline__ void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- clusters, the kernel before and the kernel after

// Behind cluster_wait() all have come as far as cluster_arrive(). What was written before is not seen for
// it: that would take until all of it had reached the memory of the card.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ unsigned neighbour(unsigned address, int rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// What was written to shared memory is there for copies of it.
__device__ __forceinline__ void copies_may_read()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Bytes of this block's shared memory into a neighbour's, both ends on 16, for a barrier there.
__device__ __forceinline__ void copy_to_neighbour(unsigned to, unsigned from, int bytes,
                                                  unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void dependents_may_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_previous_kernel()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
