// hopper_turns: hopper_conv for maps that fill the device many times over. Its blocks stay: each
// takes tile after tile, and its ring never runs dry between two of them.
//
// TEAMS of CONSUMERS warpgroups take turns: while one finishes its tile, another multiplies.
//
// Chosen at compile time: TEAMS, MODE 0 or 1, and the rest as in hopper_conv.
#include "hopper_teams.cuh"

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    hopper_turns(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const unsigned turns = empty + 8 * STAGES;
    float* biases = reinterpret_cast<float*>(memory + (turns + 8 * TEAMS - shared_address(memory)));
    const int tiles = (p.pixels + BM - 1) / BM * p.tiles_n;

    if (threadIdx.x == ALL_CONSUMERS) prefetch_map(&input);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, CONSUMERS);
        }
        for (int t = 0; t < TEAMS; ++t) barrier_init(turns + 8 * t, 4 * CONSUMERS);
        barrier_fence();
    }
    __syncthreads();

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        if (threadIdx.x == ALL_CONSUMERS) {
            int tile = blockIdx.x;
            Origin origin = origin_of(p, tile);
            Slice slice = slice_at(p, 0);
            auto want_weights = [&](int k, int stage) {
                fetch_weights(base + stage * STAGE_BYTES, full + 8 * stage, origin, k);
            };
            auto want_input = [&](int stage) {
                fetch_input(base + stage * STAGE_BYTES, full + 8 * stage, &input, p, origin, slice);
            };
            // Of the first tile the weights, which are nobody's output, then wait for the input.
            const int ahead = min(p.steps, STAGES);
            for (int s = 0; s < ahead; ++s) want_weights(s, s);
            wait_for_previous_kernel();
            for (int s = 0; s < ahead; ++s) want_input(s);
            int stage = ahead % STAGES;
            int phase = ahead / STAGES;
            int k = ahead;
            while (true) {
                if (k == p.steps) {
                    tile += gridDim.x;
                    if (tile >= tiles) break;
                    origin = origin_of(p, tile);
                    slice = slice_at(p, 0);
                    k = 0;
                }
                // Of the first lap every slot is free: the phase before the first counts as done.
                barrier_wait(empty + 8 * stage, phase ^ 1);
                want_weights(k, stage);
                want_input(stage);
                ++k;
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
    } else {
        more_registers<CONSUMER_SHARE>();
        const int group = threadIdx.x / 128;
        const int team = group / CONSUMERS;
        const int member = group % CONSUMERS;
        const int thread = member * 128 + threadIdx.x % 128;
        const int warp = threadIdx.x / 32 % 4;
        auto leave = [&](int stage) {
            if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * stage);
        };
        if (threadIdx.x == 0) call_next_weights(p);
        int turn = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
            if (TEAMS > 1 && turn % TEAMS != team) continue;
            float own[OWN_BIASES];
            const int down = divide(tile, p.by_tiles_n);
            const int m0 = down * BM;
            const int n0 = (tile - down * p.tiles_n) * BN;
            ask_biases(own, p, n0, thread);
            call_residual(p, m0, n0, thread);
            float sum[BLOCKS_OF_ROWS][BN / 2];
#pragma unroll
            for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
            }
            // A wait tells a phase from the next one only: whoever skipped the slices of another
            // team must know that those have come before it waits for its own.
            if (TEAMS > 1 && turn > 0) {
                barrier_wait(turns + 8 * team, (turn / TEAMS - (team == 0)) & 1);
            }
            const unsigned before = (unsigned)turn * p.steps;  // slices of the tiles before this
            int stage = before % STAGES;
            int phase = before / STAGES & 1;
            int previous = -1;
            for (int k = 0; k < p.steps; ++k) {
                barrier_wait(full + 8 * stage, phase);
                // Every warp says so: one that still waited for its turn would miss the next one's.
                if (TEAMS > 1 && k == p.steps - 1 && threadIdx.x % 32 == 0) {
                    barrier_arrive(turns + 8 * ((team + 1) % TEAMS));
                }
                const unsigned a = base + stage * STAGE_BYTES;
                products_begin();
#pragma unroll
                for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                    multiply_slice(sum[i], a + (member * BLOCKS_OF_ROWS + i) * 64 * ROW_BYTES,
                                   a + A_BYTES);
                }
                products_commit();
                products_wait<1>();  // the slice before this one has been read
                if (previous >= 0) leave(previous);
                previous = stage;
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
            products_wait<0>();
            leave(previous);
            // Two rows for each team: some of its threads may still need that of the tile before.
            float* bias = biases + (team * 2 + turn / TEAMS % 2) * BN;
            put_biases(bias, own, thread);
            consumers_barrier(1 + team, 128 * CONSUMERS);
#pragma unroll
            for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                const int first_row = m0 + (member * BLOCKS_OF_ROWS + i) * 64 + warp * 16;
                finish_from_registers(sum[i], bias, p, n0, [&](int row) {
                    return first_row + row < p.pixels ? first_row + row : -1;
                });
            }
            __syncwarp();
        }
    }
}
