// What kernels have in common whose blocks take tile after tile of an implicit GEMM: a ring of slices that
// never runs dry between two of them.
//
// TEAMS of CONSUMERS warpgroups take turns: while one finishes its tile, another multiplies.
#pragma once
#include "sm90_warpgroups.cuh"

struct Ring {  // addresses in shared memory
    unsigned slots, full, empty, turns, end;
};

__device__ __forceinline__ Ring ring_from(unsigned begin)
{
    Ring ring;
    ring.slots = (begin + 1023) & ~1023u;
    ring.full = ring.slots + STAGES * STAGE_BYTES;
    ring.empty = ring.full + 8 * STAGES;
    ring.turns = ring.empty + 8 * STAGES;
    ring.end = ring.turns + 8 * TEAMS;
    return ring;
}

__device__ __forceinline__ void prepare(const Ring& ring, const TensorMap* input)
{
    if (threadIdx.x == ALL_CONSUMERS) prefetch_map(input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(ring.full + 8 * s, 1);
            barrier_init(ring.empty + 8 * s, 4 * CONSUMERS);
        }
        for (int t = 0; t < TEAMS; ++t) barrier_init(ring.turns + 8 * t, 4 * CONSUMERS);
        barrier_fence();
    }
    __syncthreads();
}

// One thread: the slices of a block's tiles of PIXELS, one after the other. A slice of weights
// has SLICE_BYTES. want_weights(weights, slot, full) and want_input(origin, slice, slot, full) ask for what
// it consists of.
template <int PIXELS, int SLICE_BYTES, typename WantWeights, typename WantInput>
__device__ __forceinline__ void fetch_tiles(const Ring& ring, const Problem& p, int tiles,
                                            WantWeights want_weights, WantInput want_input)
{
    const unsigned char* weights;
    Origin origin;
    Slice slice;
    auto begin = [&](int index) {
        const Tile tile = tile_at(p, index);
        weights = p.weight + (size_t)tile.across * p.steps * SLICE_BYTES;
        origin = origin_of(p, tile.down * PIXELS);
        slice = slice_at(p, 0);
    };
    auto want = [&](int k, int stage) {
        want_weights(weights + (size_t)k * SLICE_BYTES, ring.slots + stage * STAGE_BYTES,
                     ring.full + 8 * stage);
    };
    auto want_rest = [&](int stage) {
        want_input(origin, slice, ring.slots + stage * STAGE_BYTES, ring.full + 8 * stage);
        advance(slice, p);
    };
    int index = blockIdx.x;
    begin(index);
    // Of the first tile the weights, which are nobody's output, then wait for the input.
    const int first = min(p.steps, STAGES);
    for (int s = 0; s < first; ++s) want(s, s);
    wait_for_previous_kernel();
    for (int s = 0; s < first; ++s) want_rest(s);
    int stage = first % STAGES;
    int phase = first / STAGES;
    int k = first;
    while (true) {
        if (k == p.steps) {
            index += gridDim.x;
            if (index >= tiles) return;
            begin(index);
            k = 0;
        }
        // Of the first lap every slot is free: the phase before the first counts as done.
        barrier_wait(ring.empty + 8 * stage, phase ^ 1);
        want(k, stage);
        want_rest(stage);
        ++k;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

// A warp has read a slot. Each says so for itself: one that still finished its tile while its three others
// went on would find the slots that it waits for two laps further on.
__device__ __forceinline__ void leave(const Ring& ring, int stage)
{
    const unsigned barrier = ring.empty + 8 * stage;
    const int lane = threadIdx.x % 32;
    if (lane == 0) barrier_arrive(barrier);
}

// A team's turn: multiply(slot) adds the products of each slice of a tile to its sums, and while the last
// are added up ask() asks for what the sums need.
template <typename Multiply, typename Ask>
__device__ __forceinline__ void take_turn(const Ring& ring, const Problem& p, int turn, int team,
                                          Multiply multiply, Ask ask)
{
    // A wait tells a phase from the next one only: whoever skipped the slices of another team must know
    // that those have come before it waits for its own.
    if (TEAMS > 1 && turn > 0) {
        barrier_wait(ring.turns + 8 * team, (turn / TEAMS - (team == 0)) & 1);
    }
    const unsigned before = (unsigned)turn * p.steps;  // slices of the tiles before this
    int stage = before % STAGES;
    int phase = before / STAGES & 1;
    int previous = -1;
    int k = 0;
    do {  // once at least: sums that nothing was added to would be another set of registers
        barrier_wait(ring.full + 8 * stage, phase);
        // Every warp says so: one that still waited for its turn would miss the next one's.
        if (TEAMS > 1 && k + 1 == p.steps && threadIdx.x % 32 == 0) {
            barrier_arrive(ring.turns + 8 * ((team + 1) % TEAMS));
        }
        products_begin();
        multiply(ring.slots + stage * STAGE_BYTES);
        products_commit();
        products_wait<1>();  // the slice before this one has been read
        if (previous >= 0) leave(ring, previous);
        previous = stage;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    } while (++k < p.steps);
    ask();
    products_wait<0>();
    leave(ring, previous);
}
