// sm90_swapped: sm90_pingpong with swapped operands: filters are the rows of the GEMM, pixels its
// columns. Rows come in multiples of 64 but columns in multiples of 8, so a tile has as many pixels as
// give every SM nearly the same number of tiles. Launched by conv/sm90_swapped.py.
//
// Layout of the operands as in sm90_splitk; W is stored in tiles of BM filters, ordered as
// sm90_epilogue_swapped.cuh says. Compile-time constants: TEAMS, MODE 0, 1 or 4, BM (filters), BN (pixels),
// and the rest as in sm90_splitk.
#include "sm90_pipeline.cuh"
#include "sm90_epilogue_swapped.cuh"

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + 128, BLOCKS)
    sm90_swapped(const __grid_constant__ TensorMap input, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Pipeline pipeline = pipeline_at(shared_address(memory));
    const int tiles = (p.pixels + BN - 1) / BN * p.tiles_n;

    init_barriers(pipeline, &input);

    const int group = warp_index() / 4;
    if (group == CONSUMER_GROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp_index() % 4 == 0 && is_elected()) {
            auto issue_weights = [&](const unsigned char* weights, unsigned slot, unsigned full) {
                mbarrier_expect_bytes(full, A_BYTES + BN * ROW_BYTES);
                bulk_load(slot, weights, A_BYTES, full);
            };
            auto issue_input = [&](const Origin& origin, const Slice& slice, unsigned slot, unsigned full) {
                load_input(slot + A_BYTES, full, &input, p, origin, slice);
            };
            produce_tiles<BN, A_BYTES>(pipeline, p, tiles, issue_weights, issue_input);
        }
        __syncwarp();
        launch_dependents();  // earlier, they would take resources from this kernel
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const int team = group / CONSUMERS;
        const int member = group % CONSUMERS;
        const int own = lane_filter(member);
        if (threadIdx.x == 0) prefetch_next_weights(p);
        int iteration = 0;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x, ++iteration) {
            if (TEAMS > 1 && iteration % TEAMS != team) continue;
            const Tile tile = tile_at(p, index);
            const int m0 = tile.down * BN;
            const int n0 = tile.across * BM;
            prefetch_residual(p, m0, n0, BN, BM, member * 128 + threadIdx.x % 128);
            Sum sum[M_BLOCKS][BN / 2];
            LaneBiases bias;
            if (MODE != 4) load_lane_biases(bias, p, n0 + own);
            init_with_bias(bias, sum);
            Residuals residual;
            const int first = m0 + threadIdx.x % 4 * 2;
            const int left = p.pixels - first;
            auto pixel_offset = [](int i) { return i / 2 * 8 + i % 2; };
            auto exists = [&](int i) { return pixel_offset(i) < left; };
            auto multiply = [&](unsigned slot) {
                UNROLL(i, M_BLOCKS) {
                    wgmma_slice(sum[i], slot + (member * M_BLOCKS + i) * 64 * ROW_BYTES, slot + A_BYTES);
                }
            };
            run_mainloop(pipeline, p, iteration, team, multiply, [&] {
                if (MODE == 4) load_lane_biases(bias, p, n0 + own);  // earlier, registers run out
                issue_residual_loads(
                    residual, p, first, n0 + own, 0, RESIDUALS_IN_FLIGHT, exists, pixel_offset);
            });
            epilogue_swapped(sum, bias, residual, p, first, n0 + own, exists, pixel_offset);
            __syncwarp();
        }
    }
}
