// What kernels have in common that bring patches of a map and keep the weights of all taps: a block of
// WIDE x HIGH pixels, and what its windows reach.
//
// Where windows are two pixels apart, pixels of even and odd columns and lines come as patches of their
// own, in each of which taps are neighbours. WIDE, HIGH, STRIDE and TAP_BYTES, the weights of a slice of a
// tap, are the kernel's.
#pragma once
#include "sm90_warpgroups.cuh"

#define TAPS (TAPS_Y * TAPS_X)
#define PATCH_W (WIDE + (TAPS_X - 1) / STRIDE)
#define PATCH_H (HIGH + (TAPS_Y - 1) / STRIDE)
#define PATCH_BYTES (PATCH_W * PATCH_H * ROW_BYTES)
#define PATCHES (STRIDE * STRIDE)
#define PATCH_PLACE ((PATCH_BYTES + 1023) / 1024 * 1024)
#define PLACE_BYTES (PATCHES * PATCH_PLACE)
#define PLACES (TEAMS * STAGES)

// Blocks of pixels of all rows, and where one begins.
struct Blocks {
    int across, down, count;
};

struct Corner {
    int x, y, row;
};

__device__ __forceinline__ Blocks blocks_of(const Problem& p)
{
    const int across = (p.out_w + WIDE - 1) / WIDE;
    const int down = (p.out_h + HIGH - 1) / HIGH;
    return {across, down, p.pixels / (p.out_h * p.out_w) * down * across};
}

__device__ __forceinline__ Corner corner_of(const Blocks& blocks, int block)
{
    const int line = block / blocks.across;
    return {(block - line * blocks.across) * WIDE, line % blocks.down * HIGH, line / blocks.down};
}

// Where a tap's pixels begin in a place.
__device__ __forceinline__ int place_of(int tap)
{
    const int y = tap / TAPS_X;
    const int x = tap % TAPS_X;
    return (y % STRIDE * STRIDE + x % STRIDE) * PATCH_PLACE +
           (y / STRIDE * PATCH_W + x / STRIDE) * ROW_BYTES;
}

// Addresses in shared memory.
struct Room {
    unsigned weights, patches, full, empty, ready, end;
};

__device__ __forceinline__ Room room_from(unsigned begin)
{
    Room room;
    room.weights = (begin + 1023) & ~1023u;
    room.patches = room.weights + TAPS * SLICES * TAP_BYTES;
    room.full = room.patches + PLACES * PLACE_BYTES;
    room.empty = room.full + 8 * PLACES;
    room.ready = room.empty + 8 * PLACES;
    room.end = room.ready + 8;
    return room;
}

__device__ __forceinline__ void prepare(const Room& room, const TensorMap* input)
{
    if (threadIdx.x == ALL_CONSUMERS) prefetch_map(input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < PLACES; ++s) {
            barrier_init(room.full + 8 * s, 1);
            barrier_init(room.empty + 8 * s, 4);
        }
        barrier_init(room.ready, 1);
        barrier_fence();
    }
}

// One thread: weights of tile_n, then the patches of every block from `first` on, team by team.
__device__ __forceinline__ void fetch_all(const Room& room, const TensorMap* input, const Problem& p,
                                          const Blocks& blocks, int tile_n, int first, int stride)
{
    const int bytes = TAPS * SLICES * TAP_BYTES;
    barrier_expect(room.ready, bytes);
    for (int at = 0; at < bytes; at += TAP_BYTES) {
        copy_bytes(room.weights + at, p.weight + (size_t)tile_n * bytes + at, TAP_BYTES, room.ready);
    }
    wait_for_previous_kernel();
    int team = 0;
    int asked = 0;  // slices of the blocks that a team had before
    for (int block = first; block < blocks.count; block += stride) {
        const Corner corner = corner_of(blocks, block);
#pragma unroll 1
        for (int slice = 0; slice < SLICES; ++slice) {
            const int stage = team * STAGES + (asked + slice) % STAGES;
            const int lap = (asked + slice) / STAGES;
            // Of the first lap every place is free: the phase before the first counts as done.
            barrier_wait(room.empty + 8 * stage, (lap & 1) ^ 1);
            barrier_expect(room.full + 8 * stage, PATCHES * PATCH_BYTES);
#pragma unroll
            for (int i = 0; i < PATCHES; ++i) {
                copy_box(room.patches + stage * PLACE_BYTES + i * PATCH_PLACE, input,
                         room.full + 8 * stage, slice * BK, corner.x * STRIDE - p.left + i % STRIDE,
                         corner.y * STRIDE - p.top + i / STRIDE, corner.row);
            }
        }
        if (++team == TEAMS) {
            team = 0;
            asked += SLICES;
        }
    }
}
