// sm90_direct_tiles: convolution with stride 1 for large feature maps of few channels. The patch
// that the windows of a tile cover is loaded once for all taps; im2col would load each pixel once
// for each tap. Launched by conv/sm90_direct_tiles.py.
//
// Layout: the NHWC input is loaded in boxes by a tiled tensor map; weights (tile of filters, tap,
// slice, BN x BK), swizzled by the host, stay in shared memory for the life of the block.
//
// A warpgroup computes 8 x 8 pixels: the 64 rows of a wgmma are 8 groups of 8 neighbouring pixels, and
// groups lie PATCH_W rows of shared memory apart. Another tap only moves the first row.
//
// Thread blocks are persistent. TEAMS warpgroups take tiles in turn, so that one multiplies while another
// runs its epilogue; each has STAGES patches in flight.
//
// Compile-time constants: TEAMS, TAPS_Y TAPS_X, SLICES (of BK channels), MODE 0, 1 or 4, BM 64, CONSUMERS 1,
// and the rest as in sm90_splitk.
#define WIDE 8
#define HIGH 8
#define STRIDE 1
#define TAP_BYTES B_BYTES
#include "sm90_patches.cuh"

// The index of a tile's pixel, or -1 outside the feature map. If SIDE is 2, the index of the pooled
// pixel whose first cell this is, or -1 for its other cells.
template <int SIDE> DEVICE int pixel_of(const KernelArgs& p, const TileOrigin& origin, int row)
{
    const int x = origin.x + row % WIDE;
    const int y = origin.y + row / WIDE;
    const int width = p.out_w * POOL_SIDE / SIDE;
    const int height = p.out_h * POOL_SIDE / SIDE;
    const bool exists = x % SIDE == 0 && x / SIDE < width && y / SIDE < height;
    return exists ? (origin.row * height + y / SIDE) * width + x / SIDE : -1;
}

#if CELLS > 1
// Runs the epilogue on a warp's 16 rows, two lines of 8 pixels: a lane has two pixels, one below
// the other, and another lane has their neighbours to the right or left.
template <typename MapPixel, typename Pixel> DEVICE void epilogue_of_pool(float (&sum)[BN / 2],
    const float* bias, const KernelArgs& p, int n0, MapPixel map_pixel, Pixel pixel)
{
    add_bias(sum, bias);
    if (KEPT) {
        activate_all(KIND, sum);
        finish_rows<2>(sum, p, n0, p.kept, p.kept_pitch, map_pixel);
    }
    UNROLL(j, BN / 8) {
        UNROLL(i, 2) {
            const float most = fmaxf(sum[j * 4 + i], sum[j * 4 + 2 + i]);
            const unsigned other = __shfl_xor_sync(~0u, __float_as_uint(most), 4);
            sum[j * 4 + i] = fmaxf(most, __uint_as_float(other));
        }
    }
    if (!KEPT) activate_all(KIND, sum);
    finish_rows<1>(sum, p, n0, static_cast<result*>(p.out), p.out_pitch, pixel);
}
#endif

// Multiplies one slice of channels: the patch's rows of every tap by the weights of the tap.
DEVICE void multiply_patch(Sum (&sum)[BN / 2], unsigned patch, unsigned weights)
{
    UNROLL(tap, TAPS) {
        const auto a = matrix_descriptor(patch + tap_offset(tap), PATCH_W);
        const auto b = matrix_descriptor(weights + tap * SLICES * B_BYTES);
#pragma unroll
        for (int step = 0; step < ROW_BYTES; step += STEP_BYTES) {
            wgmma(sum, advance_descriptor(a, step), advance_descriptor(b, step));
        }
    }
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + 128, BLOCKS)
    sm90_direct_tiles(const __grid_constant__ TensorMap input, const __grid_constant__ KernelArgs p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedLayout shared = shared_layout(shared_address(memory));
    float* bias = reinterpret_cast<float*>(memory + (shared.end - shared_address(memory)));

    // A thread block keeps its filters.
    const int tile_n = blockIdx.x % p.tiles_n;
    const int first = blockIdx.x / p.tiles_n;
    const int stride = gridDim.x / p.tiles_n;
    const int n0 = tile_n * BN;
    const PixelTiles blocks = pixel_tiles(p);

    init_barriers(shared, &input);
    for (int c = threadIdx.x; c < BIAS_FLOATS; c += CONSUMER_THREADS + 128) {
        bias[c] = bias_at(p, n0, c);
    }
    __syncthreads();

    const int team = warp_index() / 4;
    const int warp = warp_index() % 4;
    if (team == TEAMS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp == 0 && is_elected()) {
            produce_patches(shared, &input, p, blocks, tile_n, first, stride);
        }
        __syncwarp();
        launch_dependents();  // earlier, they would take resources from this kernel
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        if (threadIdx.x == 0) prefetch_next_weights(p);
        mbarrier_wait(shared.ready, 0);
        int consumed = 0;
        for (int block = first + team * stride; block < blocks.count; block += TEAMS * stride) {
            const TileOrigin origin = tile_origin(blocks, block);
            if (RESIDUAL && WHOLE && p.is_residual_far && threadIdx.x % 128 < WIDE * HIGH) {
                const int m = pixel_of<POOL_SIDE>(p, origin, threadIdx.x % 128);
                if (m >= 0) prefetch_residual_row(p, m, n0, BN);
            }
            Sum sum[BN / 2];
            UNROLL(j, BN / 2) sum[j] = 0;
#pragma unroll 1
            for (int slice = 0; slice < SLICES; ++slice, ++consumed) {
                const int stage = team * STAGES + consumed % STAGES;
                mbarrier_wait(shared.full + 8 * stage, consumed / STAGES & 1);
                wgmma_fence();
                multiply_patch(sum, shared.patches + stage * SLOT_BYTES, shared.weights + slice * B_BYTES);
                wgmma_commit();
                wgmma_wait<0>();
                if (threadIdx.x % 32 == 0) mbarrier_arrive(shared.empty + 8 * stage);
            }
            auto map_pixel = [&](int row) { return pixel_of<1>(p, origin, warp * 16 + row); };
#if CELLS > 1
            epilogue_of_pool(sum, bias, p, n0, map_pixel,
                [&](int row) { return pixel_of<2>(p, origin, warp * 16 + row); });
#else
            epilogue_from_registers(sum, bias, p, n0, map_pixel);
#endif
            __syncwarp();
        }
    }
}
