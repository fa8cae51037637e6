// PTX instructions of Hopper under readable names: mbarrier, TMA, wgmma, setmaxnreg, clusters. Shared
// memory is addressed by 32-bit shared-window addresses.
#pragma once
#include "mma_ptx.cuh"

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// ---- warps
//
// Copies and wgmmas take addresses from uniform registers, in which the compiler computes only what it
// knows to be the same in all lanes. For any other address it adds a move before each of them, or
// serializes them.

// The number of this warp, the same in all lanes.
DEVICE int warp_index() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }

// Returns true in one lane of a converged warp.
DEVICE bool is_elected()
{
    unsigned is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(is));
    return is;
}

// ---- mbarriers: barriers in shared memory that count threads and bytes

DEVICE void mbarrier_init(unsigned barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void mbarrier_expect_bytes(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
        : "memory");
}

DEVICE void mbarrier_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

DEVICE void mbarrier_wait(unsigned barrier, int phase)
{
    asm volatile("{\n.reg .pred done;\n"
                 "WAIT%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE%=;\nbra WAIT%=;\nDONE%=:\n}" ::"r"(barrier),
        "r"(phase)
        : "memory");
}

// A barrier among `threads` threads; barrier 0 is __syncthreads().
DEVICE void named_barrier(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- TMA, the asynchronous copy engine

DEVICE void prefetch_tensor_map(const TensorMap* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads a slice of im2col: channels from `channel` on, windows from pixel (x, y, row) on, tap (tap_x,
// tap_y).
DEVICE void tma_load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int channel, int x, int y,
    int row, int tap_x, int tap_y)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6}], [%2], {%7,%8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row), "h"((unsigned short)tap_x),
        "h"((unsigned short)tap_y)
        : "memory");
}

// Loads a box: channels from `channel` on, pixels from (x, y) of a row on; zeros outside the map.
DEVICE void tma_load_box(
    unsigned to, const TensorMap* map, unsigned barrier, int channel, int x, int y, int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row)
        : "memory");
}

// Loads contiguous bytes; addresses and size are multiples of 16. It is faster than a copy by a
// tensor map, for each row of which TMA takes time.
DEVICE void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// Prefetches bytes into the L2; address and size are multiples of 16.
DEVICE void prefetch_l2(const void* from, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// ---- wgmma

// Descriptor of a K-major matrix in shared memory with rows of BYTES, swizzled as TMA leaves them. Eight
// rows are contiguous; groups of eight begin `row_distance` rows apart.
template <int BYTES = ROW_BYTES>
DEVICE unsigned long long matrix_descriptor(unsigned address, int row_distance = 8)
{
    const unsigned long long swizzle = BYTES == 128 ? 1 : BYTES == 64 ? 2 : 3;
    return (unsigned long long)((address & 0x3FFFF) >> 4) | 1ull << 16 |
        (unsigned long long)(row_distance * BYTES >> 4) << 32 | swizzle << 62;
}

// Advances a descriptor by `bytes`, a multiple of 16.
DEVICE unsigned long long advance_descriptor(unsigned long long matrix, int bytes)
{
    return matrix + (bytes >> 4);
}

// Descriptor of an unswizzled matrix whose rows begin 16 bytes apart. Groups of eight rows begin
// `apart` bytes apart, and 16-byte chunks of k lie `across` bytes apart. Rows may overlap.
DEVICE unsigned long long unswizzled_descriptor(unsigned address, int across, int apart)
{
    return (unsigned long long)((address & 0x3FFFF) >> 4) | (unsigned long long)(across >> 4) << 16 |
        (unsigned long long)(apart >> 4) << 32;
}

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N> DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

DEVICE float read_shared(unsigned from)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from));
    return x;
}

// Stores neighbouring results with one instruction; the compiler might split the store, and each part
// would write a sector of the L2. Nothing in a kernel reads them back.
DEVICE void store_vector(void* to, const unsigned (&word)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
        "r"(word[3]));
}

DEVICE void store_vector(void* to, const unsigned (&word)[2])
{
    asm volatile("st.global.v2.b32 [%0], {%1,%2};" ::"l"(to), "r"(word[0]), "r"(word[1]));
}

DEVICE void store_vector(void* to, const unsigned (&word)[1])
{
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(word[0]));
}

DEVICE void store_vector(void* to, const unsigned short (&word)[1])
{
    asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(word[0]));
}

// Issues a load here; the compiler would sink it to its first use. Returns zeros if not
// `are_there`, because registers that only some threads write would keep old values.
DEVICE void issue_load(unsigned (&word)[4], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@p ld.global.cg.v4.b32 {%0,%1,%2,%3}, [%4];\n}"
        : "=&r"(word[0]), "=&r"(word[1]), "=&r"(word[2]), "=&r"(word[3])
        : "l"(from), "r"((int)are_there));
}

DEVICE void issue_load(unsigned (&word)[2], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
                 "@p ld.global.cg.v2.b32 {%0,%1}, [%2];\n}"
        : "=&r"(word[0]), "=&r"(word[1])
        : "l"(from), "r"((int)are_there));
}

DEVICE void issue_load(unsigned (&word)[1], const void* from, bool are_there)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n"
                 "@p ld.global.cg.b32 %0, [%1];\n}"
        : "=&r"(word[0])
        : "l"(from), "r"((int)are_there));
}

// Returns x, opaque to the compiler, so that it is computed here and no multiple of it is kept.
DEVICE int opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

DEVICE float opaque(float x)
{
    asm volatile("" : "+f"(x));
    return x;
}

// Stores four matrices of 8 x 8 halves; lane l gives the address of row l % 8 of matrix l / 8.
DEVICE void stmatrix_x4(unsigned to, const unsigned (&word)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(word[0]),
        "r"(word[1]), "r"(word[2]), "r"(word[3])
        : "memory");
}

// ---- registers, which a warpgroup gives up or takes together

template <int COUNT> DEVICE void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> DEVICE void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- clusters

// After cluster_wait() all threads of the cluster have reached cluster_arrive(). Earlier writes are not
// made visible: that would take until they had reached global memory.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// The same address in the shared memory of block `rank` of the cluster.
DEVICE unsigned map_to_rank(unsigned address, int rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Makes earlier writes to shared memory visible to asynchronous copies and wgmma.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies bytes of this block's shared memory to another block of the cluster and signals an
// mbarrier there; addresses and size are multiples of 16.
DEVICE void bulk_copy_to_rank(unsigned to, unsigned from, int bytes, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
