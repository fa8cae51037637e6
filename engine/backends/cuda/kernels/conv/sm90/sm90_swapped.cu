// sm90_swapped: sm90_pingpong turned round: filters are the rows of a product, pixels its columns. Rows come
// by 64, but columns by 8: a tile has as many pixels as give every multiprocessor the same number of
// tiles, or nearly.
//
// Chosen at compile time: TEAMS, MODE 0 or 1, BM (filters), BN (pixels), and the rest as in
// sm90_splitk.
#include "sm90_pipeline.cuh"
#include "sm90_epilogue_swapped.cuh"

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    sm90_swapped(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Ring ring = ring_from(shared_address(memory));
    const int tiles = (p.pixels + BN - 1) / BN * p.tiles_n;

    prepare(ring, &input);

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        if (threadIdx.x == ALL_CONSUMERS) {
            auto want_weights = [&](const unsigned char* weights, unsigned slot, unsigned full) {
                barrier_expect(full, A_BYTES + BN * ROW_BYTES);
                copy_bytes(slot, weights, A_BYTES, full);
            };
            auto want_input = [&](const Origin& origin, const Slice& slice, unsigned slot,
                                  unsigned full) {
                fetch_input(slot + A_BYTES, full, &input, p, origin, slice);
            };
            fetch_tiles<BN, A_BYTES>(ring, p, tiles, want_weights, want_input);
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
    } else {
        more_registers<CONSUMER_SHARE>();
        const int group = threadIdx.x / 128;
        const int team = group / CONSUMERS;
        const int member = group % CONSUMERS;
        const int own = own_filter(member);
        if (threadIdx.x == 0) call_next_weights(p);
        int turn = 0;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x, ++turn) {
            if (TEAMS > 1 && turn % TEAMS != team) continue;
            const Tile tile = tile_at(p, index);
            const int m0 = tile.down * BN;
            const int n0 = tile.across * BM;
            call_residual(p, m0, n0, BN, BM, member * 128 + threadIdx.x % 128);
            float sum[BLOCKS_OF_ROWS][BN / 2];
            float bias[OWN];
            read_biases(bias, p, n0 + own);
            begin_with(bias, sum);
            Residuals residual;
            const int first = m0 + threadIdx.x % 4 * 2;
            const int left = p.pixels - first;
            auto ahead = [](int i) { return i / 2 * 8 + i % 2; };
            auto exists = [&](int i) { return ahead(i) < left; };
            auto multiply = [&](unsigned slot) {
#pragma unroll
                for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                    multiply_slice(sum[i], slot + (member * BLOCKS_OF_ROWS + i) * 64 * ROW_BYTES,
                                   slot + A_BYTES);
                }
            };
            take_turn(ring, p, turn, team, multiply, [&] {
                ask_some(residual, p, first, n0 + own, 0, ASKED, exists, ahead);
            });
            finish_filters(sum, residual, p, first, n0 + own, exists, ahead);
            __syncwarp();
        }
    }
}
