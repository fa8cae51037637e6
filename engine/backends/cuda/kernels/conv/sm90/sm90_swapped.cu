// sm90_swapped: sm90_pingpong turned round: filters are the rows of a product, pixels its columns. Rows come
// by 64, but columns by 8: a tile has as many pixels as give every multiprocessor the same number of
// tiles, or nearly.
//
// Where SHARERS is 2, both blocks of a cluster have the same pixels and other filters: each brings half of
// those for both, as rows of a map are what the copy engine takes longest for. Halves begin with an eighth
// row, as swizzling does; where they overlap both bring the same.
//
// Chosen at compile time: TEAMS, SHARERS, MODE 0 or 1, BM (filters), BN (pixels), and the rest as in
// sm90_splitk.
#include "sm90_pipeline.cuh"
#include "sm90_epilogue_swapped.cuh"

#define BROUGHT ((BN / 8 + SHARERS - 1) / SHARERS * 8)  // pixels, by each block
#define COMING_BYTES (A_BYTES + SHARERS * BROUGHT * ROW_BYTES)

extern "C" __global__ void __launch_bounds__(ALL_CONSUMERS + 128, BLOCKS)
    sm90_swapped(const __grid_constant__ TensorMap input, const __grid_constant__ Problem p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Ring ring = ring_from(shared_address(memory));
    const int tiles = (p.pixels + BN - 1) / BN * p.tiles_n;

    prepare(ring, &input);

    if (threadIdx.x >= ALL_CONSUMERS) {
        fewer_registers<PRODUCER_SHARE>();
        Next next = {};
        if (threadIdx.x == ALL_CONSUMERS) {
            const int ahead = blockIdx.x % SHARERS * (BN - BROUGHT);
            auto want_weights = [&](const unsigned char* weights, unsigned slot, unsigned full) {
                barrier_expect(full, COMING_BYTES);
                copy_bytes(slot, weights, A_BYTES, full);
            };
            auto want_input = [&](const Origin& origin, const Slice& slice, unsigned slot,
                                  unsigned full) {
                const unsigned to = slot + A_BYTES + ahead * ROW_BYTES;
#if SHARERS > 1
                copy_windows_to_all(to, &input, full, slice.channel, origin.x, origin.y, origin.row,
                                    slice.tap_x * p.dilation_x, slice.tap_y * p.dilation_y, SHARERS);
#else
                fetch_input(to, full, &input, p, origin, slice);
#endif
            };
            next = fetch_tiles<BN, A_BYTES>(ring, p, tiles, ahead, want_weights, want_input);
        }
        __syncwarp();
        dependents_may_start();  // any earlier, they would be in the way
        if (SHARERS > 1 && threadIdx.x == ALL_CONSUMERS) wait_for_readers(ring, next);
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
