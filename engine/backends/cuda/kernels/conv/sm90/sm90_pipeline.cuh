// The pipeline of persistent kernels: a producer thread keeps a ring of STAGES slices full across tiles,
// and TEAMS groups of CONSUMERS warpgroups alternate (ping-pong): while one team runs the epilogue of its
// tile, another multiplies. An order barrier passes the right to multiply from team to team.
#pragma once
#include "sm90_warpgroups.cuh"

struct Pipeline {  // addresses in shared memory
    unsigned slots, full, empty, order, end;
};

DEVICE Pipeline pipeline_at(unsigned begin)
{
    Pipeline pipeline;
    pipeline.slots = (begin + 1023) & ~1023u;
    pipeline.full = pipeline.slots + STAGES * STAGE_BYTES;
    pipeline.empty = pipeline.full + 8 * STAGES;
    pipeline.order = pipeline.empty + 8 * STAGES;
    pipeline.end = pipeline.order + 8 * TEAMS;
    return pipeline;
}

DEVICE void init_barriers(const Pipeline& pipeline, const TensorMap* input)
{
    if (threadIdx.x == CONSUMER_THREADS) prefetch_tensor_map(input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(pipeline.full + 8 * s, 1);
            mbarrier_init(pipeline.empty + 8 * s, 4 * CONSUMERS);
        }
        for (int t = 0; t < TEAMS; ++t) mbarrier_init(pipeline.order + 8 * t, 4 * CONSUMERS);
        mbarrier_init_fence();
    }
    __syncthreads();
}

// Producer thread: loads the slices of this block's tiles of PIXELS pixels, one after another. A slice of
// weights has SLICE_BYTES. issue_weights(weights, slot, full) and issue_input(origin, slice, slot, full)
// issue the copies.
template <int PIXELS, int SLICE_BYTES, typename IssueWeights, typename IssueInput>
DEVICE void produce_tiles(const Pipeline& pipeline, const KernelArgs& p, int tiles,
    IssueWeights issue_weights, IssueInput issue_input)
{
    const unsigned char* weights;
    Origin origin;
    Slice slice;
    auto begin = [&](int index) {
        const Tile tile = tile_at(p, index);
        weights = p.weight + (size_t)tile.across * p.steps * SLICE_BYTES;
        origin = window_origin(p, tile.down * PIXELS);
        slice = slice_at(p, 0);
    };
    auto issue_stage_weights = [&](int k, int stage) {
        issue_weights(weights + (size_t)k * SLICE_BYTES, pipeline.slots + stage * STAGE_BYTES,
            pipeline.full + 8 * stage);
    };
    auto issue_stage_input = [&](int stage) {
        issue_input(origin, slice, pipeline.slots + stage * STAGE_BYTES, pipeline.full + 8 * stage);
        advance(slice, p);
    };
    int index = blockIdx.x;
    begin(index);
    // The weights of the first tile do not depend on the previous kernel, so they are loaded early.
    const int first = min(p.steps, STAGES);
    for (int s = 0; s < first; ++s) issue_stage_weights(s, s);
    wait_for_previous_kernel();
    for (int s = 0; s < first; ++s) issue_stage_input(s);
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
        // In the first lap every slot is free: the phase before the first counts as complete.
        mbarrier_wait(pipeline.empty + 8 * stage, phase ^ 1);
        issue_stage_weights(k, stage);
        issue_stage_input(stage);
        ++k;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
}

// Releases a slot that this warp has read. Each warp arrives for itself: if one arrived for all four, a
// warp still busy with its epilogue could find its slots overwritten two laps later.
DEVICE void release_slot(const Pipeline& pipeline, int stage)
{
    const unsigned barrier = pipeline.empty + 8 * stage;
    const int lane = threadIdx.x % 32;
    if (lane == 0) mbarrier_arrive(barrier);
}

// Runs a team's mainloop over one tile: multiply(slot) issues the wgmmas of a slice; before_wait()
// runs while the last of them are in flight.
template <typename Multiply, typename BeforeWait> DEVICE void run_mainloop(const Pipeline& pipeline,
    const KernelArgs& p, int iteration, int team, Multiply multiply, BeforeWait before_wait)
{
    // The parity of an mbarrier distinguishes a phase only from the next one: before a team waits
    // for its own slices, it must know that those which it skips have arrived.
    if (TEAMS > 1 && iteration > 0) {
        mbarrier_wait(pipeline.order + 8 * team, (iteration / TEAMS - (team == 0)) & 1);
    }
    const unsigned before = (unsigned)iteration * p.steps;  // slices of earlier tiles
    int stage = before % STAGES;
    int phase = before / STAGES & 1;
    int previous = -1;
    int k = 0;
    do {  // at least once, or the compiler would keep a second set of registers for untouched sums
        mbarrier_wait(pipeline.full + 8 * stage, phase);
        // Every warp arrives: one that still waited for this tile would otherwise miss the next phase.
        if (TEAMS > 1 && k + 1 == p.steps && threadIdx.x % 32 == 0) {
            mbarrier_arrive(pipeline.order + 8 * ((team + 1) % TEAMS));
        }
        wgmma_fence();
        multiply(pipeline.slots + stage * STAGE_BYTES);
        wgmma_commit();
        wgmma_wait<1>();  // the previous slice has been read
        if (previous >= 0) release_slot(pipeline, previous);
        previous = stage;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    } while (++k < p.steps);
    before_wait();
    wgmma_wait<0>();
    release_slot(pipeline, previous);
}
