// Hopper's own instructions under readable names: barriers, bulk tensor copies, wgmma, clusters.
#pragma once
#include "common.cuh"

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- barriers in shared memory that copies complete on

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

// Barrier 0 is the whole block's.
DEVICE void named_barrier(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- the bulk copy engine

// BeforeWait for a map before the first copy needs it.
DEVICE void prefetch_tensor_map(const TensorMap* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A slice of im2col: `channel` on, windows counted from pixel (x, y, row), tap (tap_x, tap_y).
DEVICE void tma_load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int channel, int x, int y,
    int row, int tap_x, int tap_y)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6}], [%2], {%7,%8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row), "h"((unsigned short)tap_x),
        "h"((unsigned short)tap_y)
        : "memory");
}

// A box of a map: `channel` on, pixels from (x, y) of a row on; zeros where the map has none.
DEVICE void tma_load_box(
    unsigned to, const TensorMap* map, unsigned barrier, int channel, int x, int y, int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(row)
        : "memory");
}

// Bytes as they lie, both ends on 16: no maps, and none of the time that each row of a map takes.
DEVICE void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// Bytes that somebody else will issue_stage_weights soon, both ends on 16, into the L2.
DEVICE void prefetch_l2(const void* from, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// ---- wgmma

// A matrix in shared memory, k innermost, rows of ROW_BYTES swizzled by the copy engine; eight of them
// lie together, the next eight `apart` rows from where they begin.
DEVICE unsigned long long matrix_descriptor(unsigned address, int apart = 8)
{
    const unsigned long long swizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    return (unsigned long long)((address & 0x3FFFF) >> 4) | 1ull << 16 |
        (unsigned long long)(apart * ROW_BYTES >> 4) << 32 | swizzle << 62;
}

// One whose rows begin 16 bytes apart, each eight of them `apart` from the eight before; the next 16 bytes of
// k of all rows lie `across`. Rows may overlap.
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

// Results that lie side by side, which a compiler may tear into words, or halves, however they are aligned:
// each of them would be a write of a sector of the L2. Nothing in a kernel reads them.
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

// Words that are on their way from here on, if they are there: a compiler would load_bits for them just
// before they are needed. Else zeros: registers that only some threads wrote would keep what they had before.
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

// The same number, of which a compiler knows nothing: so it does not keep multiples of it in registers.
DEVICE int opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Four matrices of 8 x 8 halves; lane l says where row l % 8 of matrix l / 8 goes.
DEVICE void stmatrix_x4(unsigned to, const unsigned (&word)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(word[0]),
        "r"(word[1]), "r"(word[2]), "r"(word[3])
        : "memory");
}

// ---- registers, which 128 threads give up or take together

template <int COUNT> DEVICE void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> DEVICE void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- clusters, the kernel before and the kernel after

// Behind cluster_wait() all have come as far as cluster_arrive(). What was written before is not seen for
// it: that would take until all of it had reached the memory of the card.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// The same place in the shared memory of block `rank` of the cluster.
DEVICE unsigned map_to_rank(unsigned address, int rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// What was written to shared memory is there for copies of it.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Bytes of this block's shared memory into a map_to_rank's, both ends on 16, for a barrier there.
DEVICE void bulk_copy_to_rank(unsigned to, unsigned from, int bytes, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "r"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

DEVICE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
