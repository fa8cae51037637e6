// sm90_fused_stem: the first two convolutions of many networks in one kernel. The feature map
// between them, the network's largest, stays in shared memory, tile by tile. Launched by
// conv/sm90_fused.py.
//
//   map[m, n] = f(sum over k of A[m, k] * V[n, k] + b[n])       3x3 over three channels, as sm90_rgb_stem
//   out[n, m] = g(sum over k of W[n, k] * map[m, k] + bias[n])  3x3, stride 2, swapped operands
//
// Layout: the picture is NHWC with four values per pixel, and the fourth is ignored; weights of both
// convolutions are swizzled by the host and stay in shared memory. Halves in, halves out.
//
// Thread blocks are persistent. A warpgroup computes tiles of 8 x HIGH results from left to right.
// A tile needs 17 x (2 * HIGH + 1) pixels of the map: the first column is the last one of the
// previous tile, the other 16 are computed, eight lines at a time; two neighbouring pixels form a
// row of the GEMM, eight rows a line. TEAMS warpgroups work independently.
//
// Compile-time constants: TEAMS, BM 64 (filters), BN (pixels: 8 * HIGH), BETWEEN (filters of the first
// convolution) and BK 32, PARTS (of its weights: 2 if each is the sum of two halves), FIRST_KIND, KIND.
#define WIDE 8
#define HIGH (BN / WIDE)
#define TAP_BYTES A_BYTES
#include "sm90_fused_pair.cuh"

#define FIRST_COLUMNS (2 * BETWEEN)      // of the GEMM: filters of two neighbouring pixels
#define PART_BYTES (FIRST_COLUMNS * 32)  // weights of four pixels
#define FIRST_BYTES (TAPS_Y * PARTS * PART_BYTES)
#define GROUPS_DOWN ((2 * HIGH + 1 + 7) / 8)           // groups of eight lines of the map
#define GROUP_BYTES (8 / 2 * PATCH_W * BETWEEN_BYTES)  // of a group, in each patch
#define LINE_PIXELS (2 * WIDE + 2)                     // of the picture
#define LINE_BYTES (LINE_PIXELS * 8)
#define LINES_AT_ONCE (128 / LINE_PIXELS)  // loaded by a warpgroup at once
#define PICTURE_LINES (8 * GROUPS_DOWN + 2)
#define PIXELS_PER_THREAD ((PICTURE_LINES + LINES_AT_ONCE - 1) / LINES_AT_ONCE)  // loaded by each thread
#define PICTURE_BYTES ((PIXELS_PER_THREAD * LINES_AT_ONCE * LINE_BYTES + 1023) / 1024 * 1024)
#define TEAM_BYTES (SLOT_BYTES + PICTURE_BYTES)

struct StemArgs {
    const float* bias;  // one for each column of the GEMM
    const unsigned char* weight;
    const uint2* picture;
    int height, width;
};

// Issues the loads of the picture's pixels for a tile; a thread loads pixels of one column.
DEVICE void issue_pixel_loads(uint2 (&pixel)[PIXELS_PER_THREAD], const StemArgs& o, const TileOrigin& origin)
{
    const int thread = threadIdx.x % 128;
    const int y = origin.y * 2 - 2 + thread / LINE_PIXELS;
    const int x = origin.x * 2 - 1 + thread % LINE_PIXELS;
    const bool is_column = (unsigned)x < (unsigned)o.width && thread < LINES_AT_ONCE * LINE_PIXELS;
    const uint2* from = o.picture + (origin.row * o.height + y) * o.width + x;
    const int step = LINES_AT_ONCE * o.width;
    UNROLL(i, PIXELS_PER_THREAD) {
        const bool exists = is_column && (unsigned)(y + i * LINES_AT_ONCE) < (unsigned)o.height;
        unsigned word[2];
        issue_load(word, from + i * step, exists);
        pixel[i] = {word[0], word[1]};
    }
}

DEVICE void store_pixels(unsigned char* lines, const uint2 (&pixel)[PIXELS_PER_THREAD])
{
    const int thread = threadIdx.x % 128;
    if (thread >= LINES_AT_ONCE * LINE_PIXELS) return;
    UNROLL(i, PIXELS_PER_THREAD) {
        const int at = i * LINES_AT_ONCE * LINE_BYTES + thread * 8;
        *reinterpret_cast<uint2*>(lines + at) = {pixel[i].x, pixel[i].y & 0xFFFF};
    }
}

// The address of the chunk that a thread carries from a tile's last column to the next tile's first
// column.
DEVICE unsigned carried_at(unsigned map, int column)
{
    static_assert(8 * GROUPS_DOWN * CHUNKS == 128, "each thread carries one");
    const int line = threadIdx.x % 128 / CHUNKS;
    return chunk_at(map + line % 2 * 2 * PATCH_SLOT_BYTES, line / 2 * PATCH_W + column, threadIdx.x % CHUNKS);
}

// The addresses where a lane stores its matrices of the upper lines of the first group: left and
// right pixels of the pairs. Column 0 is carried over, so the first computed column is odd.
struct Targets {
    unsigned left, right;
};

DEVICE Targets targets_of(unsigned map)
{
    const int lane = threadIdx.x % 32;
    const int pixel = threadIdx.x / 32 % 4 * PATCH_W + lane % 8;
    return {chunk_at(map + PATCH_SLOT_BYTES, pixel, lane / 8), chunk_at(map, pixel + 1, lane / 8)};
}

// The same address for another group or for the lower lines, which lie a multiple of 128 bytes
// further on; the swizzle changes every 128 bytes.
DEVICE unsigned target_of(unsigned first, int group, int low)
{
    const int further = group * GROUP_BYTES + low * 2 * PATCH_SLOT_BYTES;
    static_assert(GROUP_BYTES % 128 == 0 && PATCH_SLOT_BYTES % 512 == 0, "whole lines");
    return (first ^ (group * (GROUP_BYTES / 128) & (CHUNKS - 1)) << 4) + further;
}

// Multiplies eight lines of 16 pixels by the weights of the first convolution.
template <typename Matrix>
DEVICE void multiply_lines(float (&sum)[FIRST_COLUMNS / 2], Matrix lines, Matrix weights)
{
    UNROLL(tap, TAPS_Y) {
        UNROLL(part, PARTS) {
            wgmma(sum, advance_descriptor(lines, tap * LINE_BYTES),
                advance_descriptor(weights, (tap * PARTS + part) * PART_BYTES));
        }
    }
}

// Writes the finished sums to the map: a lane has two neighbouring pixels of two lines. Pixels outside
// the map are the padding of the second convolution and must be zero.
DEVICE void store_lines(float (&sum)[FIRST_COLUMNS / 2], const Targets& targets, int group, const StemArgs& o,
    const TileOrigin& origin)
{
    const int y = origin.y * 2 - 1 + group * 8 + threadIdx.x / 32 % 4 * 2;
    const int x = origin.x * 2 + threadIdx.x % 32 / 4 * 2;
    activate_all(FIRST_KIND, sum);
    UNROLL(low, 2) {
        UNROLL(right, 2) {
            const bool exists = (unsigned)(y + low) < (unsigned)o.height && x + right < o.width;
            unsigned word[4];
            UNROLL(i, 4) {
                const int at = (right * 4 + i) * 4 + low * 2;
                word[i] = exists ? pack_half2(sum[at], sum[at + 1]) : 0;
            }
            stmatrix_x4(target_of(right ? targets.right : targets.left, group, low), word);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128 * TEAMS, 1)
    sm90_fused_stem(const __grid_constant__ StemArgs o, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const int team = warp_index() / 4;
    const unsigned begin = (shared_address(memory) + 1023) & ~1023u;
    const unsigned map = begin + team * TEAM_BYTES;
    const unsigned lines = map + SLOT_BYTES;
    const unsigned weights = begin + TEAMS * TEAM_BYTES;
    const unsigned first_weights = weights + SECOND_BYTES;
    const unsigned ready = first_weights + FIRST_BYTES;
    auto at = [&](unsigned address) { return memory + (address - shared_address(memory)); };

    if (threadIdx.x == 0) {
        mbarrier_init(ready, 1);
        mbarrier_init_fence();
        load_all_weights(weights, ready, p, o.weight, FIRST_BYTES);
    }
    const int n = lane_filter(0);
    LaneBiases bias;
    load_lane_biases(bias, p, n);
    float first_bias[BETWEEN / 4];
    load_first_biases(first_bias, o.bias);
    const Targets targets = targets_of(map);
    const unsigned carried_from = carried_at(map, WIDE);
    const unsigned carried_to = carried_at(map, 0);
    __syncthreads();
    wait_for_previous_kernel();
    mbarrier_wait(ready, 0);

    const PixelTiles blocks = pixel_tiles(p);
    const long long teams = gridDim.x * TEAMS;
    const long long number = blockIdx.x * TEAMS + team;
    const int from = int(number * blocks.count / teams);
    const int end = int((number + 1) * blocks.count / teams);
    // A range that begins in the middle of a line first computes the map of the previous tile, for its
    // last column.
    const int start = from < end && tile_origin(blocks, from).x > 0 ? from - 1 : from;
    uint2 pixel[PIXELS_PER_THREAD];
    if (start < end) issue_pixel_loads(pixel, o, tile_origin(blocks, start));
#pragma unroll 1
    for (int block = start; block < end; ++block) {
        const TileOrigin origin = tile_origin(blocks, block);
        uint4 carried = {0, 0, 0, 0};
        if (block > start && origin.x > 0) {
            carried = *reinterpret_cast<const uint4*>(at(carried_from));
        }
        store_pixels(at(lines), pixel);
        fence_async_proxy();
        named_barrier(1 + team, 128);  // the wgmmas of all four warps have read the map
        *reinterpret_cast<uint4*>(at(carried_to)) = carried;
#pragma unroll
        for (int group = 0; group < GROUPS_DOWN; group += 2) {
            float sum[2][FIRST_COLUMNS / 2];
            UNROLL(i, 2) {
                UNROLL(j, FIRST_COLUMNS / 2) {
                    sum[i][j] = first_bias[j / 4 % (BETWEEN / 8) * 2 + j % 2];
                }
                wgmma_fence();
                multiply_lines(sum[i],
                    unswizzled_descriptor(lines + (group + i) * 8 * LINE_BYTES, 16, LINE_BYTES),
                    unswizzled_descriptor(first_weights, FIRST_COLUMNS * 16, 128));
                wgmma_commit();
            }
            wgmma_wait<1>();
            store_lines(sum[0], targets, group, o, origin);
            wgmma_wait<0>();
            store_lines(sum[1], targets, group + 1, o, origin);
        }
        fence_async_proxy();
        named_barrier(1 + team, 128);
        if (block + 1 < end) issue_pixel_loads(pixel, o, tile_origin(blocks, block + 1));
        if (block < from) continue;
        float sum[1][BN / 2];
        init_with_bias(bias, sum);
        wgmma_fence();
        multiply_map(sum[0], weights, map, PATCH_W, [](int tap) { return tap_offset(tap); });
        wgmma_commit();
        wgmma_wait<0>();
        activate_all(KIND, sum[0]);
        const bool is_inside = origin.x + WIDE <= p.out_w && origin.y + HIGH <= p.out_h;
        auto nothing = [](int) { return LaneVector(); };
        if (is_inside && p.filters == BM) {
            store_block<true, false>(sum[0], p, origin, n, nothing);
        } else {
            store_block<false, false>(sum[0], p, origin, n, nothing);
        }
    }
    __syncwarp();
    launch_dependents();  // earlier, they would take resources from this kernel
}
