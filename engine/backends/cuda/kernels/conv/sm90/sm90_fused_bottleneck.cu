// sm90_fused_bottleneck: a residual block in one kernel: a 1x1 convolution to half as many channels, a
// 3x3 convolution back, and the addition of the block's input. Launched by conv/sm90_fused.py.
//
//   map[m, n] = f(sum over c of in[m, c] * V[n, c] + b[n])
//   out[n, m] = l(g(sum over k of W[n, k] * map[m, k] + bias[n]) + in[n, m])
//
// Layout: the NHWC input is loaded in boxes by a tiled tensor map; weights of both convolutions are
// swizzled by the host and stay in shared memory. Inputs and results are float16.
//
// Thread blocks are persistent. A warpgroup computes tiles of 8 x HIGH pixels: it loads the patch
// of the input that their windows cover, computes `map` from it, which stays in shared memory, and
// multiplies that by the second weights. The residuals come from the same patch. TEAMS warpgroups
// work independently and load the next patch while they work on one.
//
// Compile-time constants: TEAMS, BM 64 (filters), BN (pixels: 8 * HIGH), BK 64 (channels), BETWEEN 32
// (filters of the first convolution), FIRST_KIND, KIND, LAST.
#define WIDE 8
#define HIGH (BN / WIDE)
#define STRIDE 1
#define TAP_BYTES A_BYTES
#include "sm90_fused_pair.cuh"

#define FIRST_BYTES (BETWEEN * ROW_BYTES)
#define PATCH_PIXELS (PATCH_W * PATCH_H)
#define GROUPS_DOWN ((PATCH_PIXELS + 63) / 64)  // groups of 64 pixels of a patch
#define PATCH_GROUP_BYTES (GROUPS_DOWN * 64 * ROW_BYTES)
#define MAP_BYTES (GROUPS_DOWN * 64 * BETWEEN_BYTES)
#define TEAM_BYTES (2 * PATCH_GROUP_BYTES + MAP_BYTES)

struct FirstArgs {
    const float* bias;
    const unsigned char* weight;
};

// Returns a mask of a lane's pixels that are inside the feature map, two bits for each group. The
// others are the padding of the second convolution and must be zero.
DEVICE unsigned inside(const KernelArgs& p, const TileOrigin& origin)
{
    unsigned bits = 0;
    UNROLL(i, 2 * GROUPS_DOWN) {
        const int pixel = i * 8 + i / 2 * 48 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        const int y = origin.y - 1 + pixel / PATCH_W;
        const int x = origin.x - 1 + pixel % PATCH_W;
        bits |= ((unsigned)y < (unsigned)p.out_h && (unsigned)x < (unsigned)p.out_w) << i;
    }
    return bits;
}

// Writes the finished sums of a group of 64 pixels to the map.
DEVICE void store_group(float (&sum)[BETWEEN / 2], unsigned map, int group, unsigned is_inside)
{
    const int lane = threadIdx.x % 32;
    activate_all(FIRST_KIND, sum);
    UNROLL(low, 2) {
        const unsigned mask = is_inside >> (group * 2 + low) & 1 ? ~0u : 0;
        unsigned word[4];
        UNROLL(i, 4) {
            word[i] = pack_half2(sum[i * 4 + low * 2], sum[i * 4 + low * 2 + 1]) & mask;
        }
        const int pixel = group * 64 + threadIdx.x / 32 % 4 * 16 + low * 8 + lane % 8;
        stmatrix_x4(chunk_at(map, pixel, lane / 8), word);
    }
}

extern "C" __global__ void __launch_bounds__(128 * TEAMS, 1)
    sm90_fused_bottleneck(const __grid_constant__ TensorMap input, const __grid_constant__ FirstArgs first,
        const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const int team = warp_index() / 4;
    const int thread = threadIdx.x % 128;
    const unsigned begin = (shared_address(memory) + 1023) & ~1023u;
    const unsigned patches = begin + team * TEAM_BYTES;
    const unsigned map = patches + 2 * PATCH_GROUP_BYTES;
    const unsigned weights = begin + TEAMS * TEAM_BYTES;
    const unsigned first_weights = weights + SECOND_BYTES;
    const unsigned ready = first_weights + FIRST_BYTES;
    const unsigned full = ready + 8 + team * 16;

    if (threadIdx.x == 0) {
        prefetch_tensor_map(&input);
        mbarrier_init(ready, 1);
        for (int i = 0; i < 2 * TEAMS; ++i) mbarrier_init(ready + 8 + i * 8, 1);
        mbarrier_init_fence();
        load_all_weights(weights, ready, p, first.weight, FIRST_BYTES);
    }
    const int n = lane_filter(0);
    LaneBiases bias;
    load_lane_biases(bias, p, n);
    float first_bias[BETWEEN / 4];
    load_first_biases(first_bias, first.bias);
    __syncthreads();
    wait_for_previous_kernel();

    const PixelTiles blocks = pixel_tiles(p);
    const int stride = gridDim.x * TEAMS;
    int block = blockIdx.x + team * gridDim.x;
    auto fetch = [&](int number, int stage) {
        const TileOrigin origin = tile_origin(blocks, number);
        mbarrier_expect_bytes(full + 8 * stage, PATCH_BYTES);
        tma_load_box(patches + stage * PATCH_GROUP_BYTES, &input, full + 8 * stage, 0, origin.x - 1,
            origin.y - 1, origin.row);
    };
    if (thread == 0 && block < blocks.count) fetch(block, 0);
    mbarrier_wait(ready, 0);
#pragma unroll 1
    for (int iteration = 0; block < blocks.count; ++iteration, block += stride) {
        const TileOrigin origin = tile_origin(blocks, block);
        const int stage = iteration % 2;
        const unsigned patch = patches + stage * PATCH_GROUP_BYTES;
        const bool is_inside =
            origin.x > 0 && origin.y > 0 && origin.x + WIDE < p.out_w && origin.y + HIGH < p.out_h;
        const unsigned bits = is_inside ? ~0u : inside(p, origin);
        float between[GROUPS_DOWN][BETWEEN / 2];
        mbarrier_wait(full + 8 * stage, iteration / 2 & 1);
        const auto a = matrix_descriptor(patch);
        const auto b = matrix_descriptor(first_weights);
        UNROLL(group, GROUPS_DOWN) {
            UNROLL(j, BETWEEN / 2) {
                between[group][j] = first_bias[j / 4 * 2 + j % 2];
            }
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
                wgmma(between[group], advance_descriptor(a, group * 64 * ROW_BYTES + step),
                    advance_descriptor(b, step));
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
        named_barrier(1 + team, 128);  // all four warps have read the map and the other patch
        if (thread == 0 && block + stride < blocks.count) fetch(block + stride, stage ^ 1);
        UNROLL(group, GROUPS_DOWN) {
            store_group(between[group], map, group, bits);
        }
        fence_async_proxy();
        named_barrier(1 + team, 128);
        float sum[1][BN / 2];
        init_with_bias(bias, sum);
        wgmma_fence();
        multiply_map(sum[0], weights, map, PATCH_W,
            [](int tap) { return (tap / 3 * PATCH_W + tap % 3) * BETWEEN_BYTES; });
        wgmma_commit();
        wgmma_wait<0>();
        activate_all(KIND, sum[0]);
        const unsigned char* own = memory + (patch - shared_address(memory));
        auto residual = [&](int i) {
            const int pixel = (i / 2 + 1) * PATCH_W + thread % 4 * 2 + i % 2 + 1;
            const int at = pixel * ROW_BYTES + (n / 8 * 16 ^ pixel % 8 * 16) + n % 8 * 2;
            return *reinterpret_cast<const LaneVector*>(own + at);
        };
        if (is_inside && p.filters == BM) {
            store_block<true, true>(sum[0], p, origin, n, residual);
        } else {
            store_block<false, true>(sum[0], p, origin, n, residual);
        }
    }
    __syncwarp();
    launch_dependents();  // earlier, they would take resources from this kernel
}
