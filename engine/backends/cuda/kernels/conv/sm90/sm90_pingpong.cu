// sm90_pingpong: sm90_splitk for maps that fill the device many times over. Its blocks stay: each
// takes tile after tile.
//
// Chosen at compile time: TEAMS, MODE 0 or 1, and the rest as in sm90_splitk.
#include "sm90_pipeline.cuh"

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    sm90_pingpong(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Ring ring = ring_from(shared_address(memory));
    float* biases = reinterpret_cast<float*>(memory + (ring.end - shared_address(memory)));
    const int tiles = (p.pixels + BM - 1) / BM * p.tiles_n;

    prepare(ring, &input);

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        if (threadIdx.x == ALL_CONSUMERS) {
            auto want_weights = [&](const unsigned char* weights, unsigned slot, unsigned full) {
                fetch_weights(slot, full, weights);
            };
            auto want_input = [&](const Origin& origin, const Slice& slice, unsigned slot,
                                  unsigned full) {
                fetch_input(slot, full, &input, p, origin, slice);
            };
            fetch_tiles<BM, WEIGHT_BYTES>(ring, p, tiles, want_weights, want_input);
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
        if (threadIdx.x == 0) call_next_weights(p);
        int turn = 0;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x, ++turn) {
            if (TEAMS > 1 && turn % TEAMS != team) continue;
            float own[OWN_BIASES];
            const Tile tile = tile_at(p, index);
            const int m0 = tile.down * BM;
            const int n0 = tile.across * BN;
            ask_biases(own, p, n0, thread);
            call_residual(p, m0, n0, BM, BN, thread);
            float sum[BLOCKS_OF_ROWS][BN / 2];
#pragma unroll
            for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
            }
            take_turn(ring, p, turn, team, [&](unsigned slot) {
#pragma unroll
                for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                    multiply_slice(sum[i], slot + (member * BLOCKS_OF_ROWS + i) * 64 * ROW_BYTES,
                                   slot + A_BYTES);
                }
            }, [] {});
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
