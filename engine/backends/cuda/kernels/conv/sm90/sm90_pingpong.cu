// sm90_pingpong: sm90_splitk without the split, for layers that fill the device many times over.
// Thread blocks are persistent and take tile after tile; TEAMS groups of warpgroups alternate, so
// that one multiplies while another runs its epilogue. Launched by conv/sm90_pingpong.py.
//
// Layout of the operands as in sm90_splitk. Compile-time constants: TEAMS, MODE 0, 1 or 4, and the rest as
// in sm90_splitk.
#include "sm90_pipeline.cuh"

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + 128, BLOCKS)
    sm90_pingpong(const __grid_constant__ TensorMap input, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const Pipeline pipeline = pipeline_at(shared_address(memory));
    float* biases = reinterpret_cast<float*>(memory + (pipeline.end - shared_address(memory)));
    const int tiles = (p.pixels + BM - 1) / BM * p.tiles_n;

    init_barriers(pipeline, &input);

    const int group = warp_index() / 4;
    const int warp = warp_index() % 4;
    if (group == CONSUMER_GROUPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp == 0 && is_elected()) {
            auto issue_weights = [&](const unsigned char* weights, unsigned slot, unsigned full) {
                load_weights(slot, full, weights);
            };
            auto issue_input = [&](const Origin& origin, const Slice& slice, unsigned slot, unsigned full) {
                load_input(slot, full, &input, p, origin, slice);
            };
            produce_tiles<BM, WEIGHT_BYTES>(pipeline, p, tiles, issue_weights, issue_input);
        }
        __syncwarp();
        launch_dependents();  // earlier, they would take resources from this kernel
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const int team = group / CONSUMERS;
        const int member = group % CONSUMERS;
        const int thread = member * 128 + threadIdx.x % 128;
        if (threadIdx.x == 0) prefetch_next_weights(p);
        int iteration = 0;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x, ++iteration) {
            if (TEAMS > 1 && iteration % TEAMS != team) continue;
            float own[BIASES_PER_THREAD];
            const Tile tile = tile_at(p, index);
            const int m0 = tile.down * BM;
            const int n0 = tile.across * BN;
            load_biases(own, p, n0, thread);
            prefetch_residual(p, m0, n0, BM, BN, thread);
            Sum sum[M_BLOCKS][BN / 2];
            clear(sum);
            run_mainloop(
                pipeline, p, iteration, team,
                [&](unsigned slot) {
                    UNROLL(i, M_BLOCKS) {
                        wgmma_slice(sum[i], slot + (member * M_BLOCKS + i) * 64 * ROW_BYTES, slot + A_BYTES);
                    }
                },
                [] {});
            // Each team has two bias buffers: some threads may still need those of the previous
            // tile.
            float* bias = biases + (team * 2 + iteration / TEAMS % 2) * BIAS_FLOATS;
            stage_biases(bias, own, thread);
            named_barrier(1 + team, 128 * CONSUMERS);
            UNROLL(i, M_BLOCKS) {
                const int first_row = m0 + (member * M_BLOCKS + i) * 64 + warp * 16;
                epilogue_from_registers(sum[i], bias, p, n0,
                    [&](int row) { return first_row + row < p.pixels ? first_row + row : -1; });
            }
            __syncwarp();
        }
    }
}
