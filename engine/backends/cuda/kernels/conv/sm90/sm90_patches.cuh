// Shared by kernels that load patches of the feature map with TMA and keep the weights of all taps
// in shared memory. A tile is WIDE x HIGH pixels; its patch is what their windows cover.
//
// With stride 2, pixels of even and odd columns and lines are loaded as separate patches, in each of
// which neighbouring windows have neighbouring pixels. The kernel defines WIDE, HIGH, STRIDE and
// TAP_BYTES, the weights of one slice of a tap.
#pragma once
#include "sm90_warpgroups.cuh"

#define TAPS (TAPS_Y * TAPS_X)
#define PATCH_W (WIDE + (TAPS_X - 1) / STRIDE)
#define PATCH_H (HIGH + (TAPS_Y - 1) / STRIDE)
#define PATCH_BYTES (PATCH_W * PATCH_H * ROW_BYTES)
#define PATCHES (STRIDE * STRIDE)
#define PATCH_SLOT_BYTES ((PATCH_BYTES + 1023) / 1024 * 1024)
#define SLOT_BYTES (PATCHES * PATCH_SLOT_BYTES)
#define SLOTS (TEAMS * STAGES)

#define POOL_SIDE (CELLS > 1 ? 2 : 1)

// The grid of tiles over all rows of the batch.
struct PixelTiles {
    int across, down, count;
};

struct TileOrigin {  // the first pixel of a tile
    int x, y, row;
};

DEVICE PixelTiles pixel_tiles(const KernelArgs& p)
{
    const int across = (p.out_w * POOL_SIDE + WIDE - 1) / WIDE;
    const int down = (p.out_h * POOL_SIDE + HIGH - 1) / HIGH;
    return {across, down, p.pixels / (p.out_h * p.out_w) * down * across};
}

DEVICE TileOrigin tile_origin(const PixelTiles& blocks, int block)
{
    const int line = block / blocks.across;
    return {(block - line * blocks.across) * WIDE, line % blocks.down * HIGH, line / blocks.down};
}

// The offset of a tap's first pixel in a slot.
DEVICE int tap_offset(int tap)
{
    const int y = tap / TAPS_X;
    const int x = tap % TAPS_X;
    return (y % STRIDE * STRIDE + x % STRIDE) * PATCH_SLOT_BYTES +
        (y / STRIDE * PATCH_W + x / STRIDE) * ROW_BYTES;
}

// Addresses in shared memory.
struct SharedLayout {
    unsigned weights, patches, full, empty, ready, end;
};

DEVICE SharedLayout shared_layout(unsigned begin)
{
    SharedLayout shared;
    shared.weights = (begin + 1023) & ~1023u;
    shared.patches = shared.weights + TAPS * SLICES * TAP_BYTES;
    shared.full = shared.patches + SLOTS * SLOT_BYTES;
    shared.empty = shared.full + 8 * SLOTS;
    shared.ready = shared.empty + 8 * SLOTS;
    shared.end = shared.ready + 16;  // aligned for vectors
    return shared;
}

DEVICE void init_barriers(const SharedLayout& shared, const TensorMap* input)
{
    if (threadIdx.x == CONSUMER_THREADS) prefetch_tensor_map(input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; ++s) {
            mbarrier_init(shared.full + 8 * s, 1);
            mbarrier_init(shared.empty + 8 * s, 4);
        }
        mbarrier_init(shared.ready, 1);
        mbarrier_init_fence();
    }
}

// One thread: loads the weights of tile_n, then the patches of every tile from `first` on, team by team.
DEVICE void produce_patches(const SharedLayout& shared, const TensorMap* input, const KernelArgs& p,
    const PixelTiles& blocks, int tile_n, int first, int stride)
{
    const int bytes = TAPS * SLICES * TAP_BYTES;
    mbarrier_expect_bytes(shared.ready, bytes);
    for (int at = 0; at < bytes; at += TAP_BYTES) {
        bulk_load(shared.weights + at, p.weight + (size_t)tile_n * bytes + at, TAP_BYTES, shared.ready);
    }
    wait_for_previous_kernel();
    int team = 0;
    int issued = 0;  // slices of a team's earlier tiles
    for (int block = first; block < blocks.count; block += stride) {
        const TileOrigin origin = tile_origin(blocks, block);
#pragma unroll 1
        for (int slice = 0; slice < SLICES; ++slice) {
            const int stage = team * STAGES + (issued + slice) % STAGES;
            const int lap = (issued + slice) / STAGES;
            // In the first lap every slot is free: the phase before the first counts as complete.
            mbarrier_wait(shared.empty + 8 * stage, (lap & 1) ^ 1);
            mbarrier_expect_bytes(shared.full + 8 * stage, PATCHES * PATCH_BYTES);
            UNROLL(i, PATCHES) {
                tma_load_box(shared.patches + stage * SLOT_BYTES + i * PATCH_SLOT_BYTES, input,
                    shared.full + 8 * stage, slice * BK, origin.x * STRIDE - p.left + i % STRIDE,
                    origin.y * STRIDE - p.top + i / STRIDE, origin.row);
            }
        }
        if (++team == TEAMS) {
            team = 0;
            issued += SLICES;
        }
    }
}
