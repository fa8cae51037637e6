// hopper_patch: 3x3 convolution at stride 1 with each input fetched once instead of nine times.
//
// A block of BM output positions runs over the map as if every line had one more cell on either
// side: position q = y * (width + 2) + x. The window of q at tap (i, j) is then the padded cell
// q + i * (width + 2) + j, so that the nine taps are nine views of one patch of lines in shared
// memory, and a tap costs an offset. Two positions of every line are computed in vain.
//
// A producer thread fetches patches, some lines of BK channels, into a ring of their own, and for
// every tap BN x BK weights into another. Blocks stay for many tiles: while CONSUMERS warpgroups
// finish one, patches and weights of the next are on their way.
//
// Chosen at compile time: BM BN BK STAGES (of weights) CONSUMERS BLOCKS MODE, as for hopper_conv.
#include "hopper_tile.cuh"

#define WEIGHT_BYTES (WEIGHT_COPIES * B_BYTES)
#define CORNER_VALUES (16 * ROW_PITCH)  // of a warp, on the way out
#define MOST_PATCHES 3

struct Lines {
    int images, height, width;
    int tiles_q, tiles;          // of an image, in all
    int patches, patch_bytes;    // the ring; bytes of one, whole kilobytes
    int patch_rows;              // cells that the copy engine writes for one
};

extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
    hopper_patch(const __grid_constant__ TensorMap input, const __grid_constant__ TensorMap weight,
                 const __grid_constant__ Problem p, const __grid_constant__ Lines lines)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023) & ~1023u;
    const unsigned weights = base + lines.patches * lines.patch_bytes;
    const unsigned corners = weights + STAGES * WEIGHT_BYTES;
    const unsigned barriers = corners + CONSUMERS * 4 * CORNER_VALUES * (int)sizeof(real);
    const unsigned patch_full = barriers;
    const unsigned patch_empty = patch_full + 8 * MOST_PATCHES;
    const unsigned full = patch_empty + 8 * MOST_PATCHES;
    const unsigned empty = full + 8 * STAGES;
    const int padded = lines.width + 2;
    const int per_tile = p.slices * 9;
    const int my_tiles = (lines.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;

    if (threadIdx.x == 128 * CONSUMERS) {
        prefetch_map(&input);
        prefetch_map(&weight);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < lines.patches; ++s) {
            barrier_init(patch_full + 8 * s, 1);
            barrier_init(patch_empty + 8 * s, CONSUMERS);
        }
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, CONSUMERS);
        }
        barrier_fence();
    }
    __syncthreads();
    dependents_may_start();

    if (threadIdx.x >= 128 * CONSUMERS) {
        if (threadIdx.x > 128 * CONSUMERS) return;
        const int steps = my_tiles * per_tile;
        int stage = 0;
        int phase = 1;  // a fresh barrier counts as passed
        auto fetch_weights = [&](int step) {
            const int tile = blockIdx.x + step / per_tile * gridDim.x;
            const int inside = step % per_tile;
            const int column = inside % 9 * p.channels + inside / 9 * BK;
            const int n0 = tile % p.tiles_n * BN;
            const unsigned to = weights + stage * WEIGHT_BYTES;
            barrier_wait(empty + 8 * stage, phase);
            barrier_expect(full + 8 * stage, WEIGHT_BYTES);
            copy_tile(to, &weight, full + 8 * stage, column, n0);
            if (MODE == 2) {
                copy_tile(to + B_BYTES, &weight, full + 8 * stage, column, p.tiles_n * BN + n0);
            }
            if (++stage == STAGES) {
                stage = 0;
                phase ^= 1;
            }
        };
        int fetched = 0;
        for (; fetched < min(steps, STAGES); ++fetched) fetch_weights(fetched);
        wait_for_previous_kernel();
        int patch = 0;
        int patch_phase = 1;
        for (int first = 0; first < steps; first += 9) {
            const int tile = (blockIdx.x + first / per_tile * gridDim.x) / p.tiles_n;
            const int y = tile % lines.tiles_q * BM / padded;
            barrier_wait(patch_empty + 8 * patch, patch_phase);
            barrier_expect(patch_full + 8 * patch, lines.patch_rows * ROW_BYTES);
            copy_patch(base + patch * lines.patch_bytes, &input, patch_full + 8 * patch,
                       first % per_tile / 9 * BK, -1, y - 1, tile / lines.tiles_q);
            if (++patch == lines.patches) {
                patch = 0;
                patch_phase ^= 1;
            }
            for (; fetched < min(steps, first + 9); ++fetched) fetch_weights(fetched);
        }
        return;
    }

    const int group = threadIdx.x / 128;
    const int warp = threadIdx.x / 32 % 4;
    const bool speaks = threadIdx.x % 128 == 0;
    real* corner = reinterpret_cast<real*>(memory + (corners - shared_address(memory))) +
                   threadIdx.x / 32 * CORNER_VALUES;
    int stage = 0;
    int phase = 0;
    int patch = 0;
    int patch_phase = 0;
    bool has_waited = false;
    for (int tile = blockIdx.x; tile < lines.tiles; tile += gridDim.x) {
        const int n0 = tile % p.tiles_n * BN;
        const int q0 = tile / p.tiles_n % lines.tiles_q * BM;
        const int image = tile / p.tiles_n / lines.tiles_q;
        const int offset = q0 % padded + group * BLOCKS_OF_ROWS * 64;
        float sum[BLOCKS_OF_ROWS][BN / 2];
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < BN / 2; ++j) sum[i][j] = 0.f;
        }
        int read_stage = -1;  // what the products now under way still read
        int read_patch = -1;
        for (int slice = 0; slice < p.slices; ++slice) {
            barrier_wait(patch_full + 8 * patch, patch_phase);
            const unsigned cells = base + patch * lines.patch_bytes;
            for (int tap = 0; tap < 9; ++tap) {
                barrier_wait(full + 8 * stage, phase);
                const unsigned a = cells + (offset + tap / 3 * padded + tap % 3) * ROW_BYTES;
                const unsigned b = weights + stage * WEIGHT_BYTES;
                if (MODE < 2) products_begin();
#pragma unroll
                for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
                    multiply_slice(sum[i], a + i * 64 * ROW_BYTES, b);
                }
                if (MODE < 2) {
                    products_commit();
                    products_wait<1>();
                    if (speaks && read_stage >= 0) barrier_arrive(empty + 8 * read_stage);
                    if (speaks && read_patch >= 0) barrier_arrive(patch_empty + 8 * read_patch);
                    read_stage = stage;
                    read_patch = -1;
                } else if (speaks) {
                    barrier_arrive(empty + 8 * stage);
                }
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
            read_patch = patch;
            if (MODE == 2 && speaks) barrier_arrive(patch_empty + 8 * patch);
            if (++patch == lines.patches) {
                patch = 0;
                patch_phase ^= 1;
            }
        }
        if (MODE < 2) {
            products_wait<0>();
            if (speaks) {
                barrier_arrive(empty + 8 * read_stage);
                barrier_arrive(patch_empty + 8 * read_patch);
            }
        }
        if (!has_waited) wait_for_previous_kernel();  // the residual is another kernel's work
        has_waited = true;
#pragma unroll
        for (int i = 0; i < BLOCKS_OF_ROWS; ++i) {
            const int first_row = q0 + (group * BLOCKS_OF_ROWS + i) * 64 + warp * 16;
            finish_rows(sum[i], corner, p, n0, [&](int row) {
                const int y = (first_row + row) / padded;
                const int x = first_row + row - y * padded;
                const bool is_real = y < lines.height && x < lines.width;
                return is_real ? (image * lines.height + y) * lines.width + x : -1;
            });
        }
    }
}
