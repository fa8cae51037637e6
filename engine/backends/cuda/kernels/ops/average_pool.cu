// average_pool: the mean of the cells of a window that lie inside the feature map.
// average_map: the mean of a whole small map.
// average_parts, average_join: the same in two steps, so that a large map of few channels occupies the
//               whole card: a block sums a run of pixels, then the parts are added in order.
//               For a squeeze-and-excite block average_parts multiplies its sums by the first
//               layer, and `gate` is the second step.
//
// Work item  one output value; average_map, average_parts: a block takes neighbouring channels of one map or
//            part.
// Memory     coalesced along channels.
#include "common.cuh"
#include "block_sums.cuh"

extern "C" __global__ void average_pool(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_y, int stride_x, int top, int left)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, rows * out_h * out_w, channel, channels)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const int low_y = max(at.y * stride_y - top, 0);
        const int low_x = max(at.x * stride_x - left, 0);
        const int high_y = min(at.y * stride_y - top + size_y, height);
        const int high_x = min(at.x * stride_x - left + size_x, width);
        const real* image = src + at.row * height * width * src_pitch + channel;
        float sum = 0.f;
        for (int i = low_y; i < high_y; ++i) {
            for (int j = low_x; j < high_x; ++j) sum += to_float(image[(i * width + j) * src_pitch]);
        }
        const int cells = max(high_y - low_y, 0) * max(high_x - low_x, 0);
        put(out + pixel * out_pitch + channel, sum / cells);
    }
}

#define AVERAGE_THREADS 256
#define AVERAGE_AHEAD 4     // loads in flight per thread
#define AVERAGE_COLUMNS 64  // channels per block at most

// Adds the values of a pack of channels of every `lanes`-th pixel from `first` to `end`.
template <int V>
DEVICE void add_pixels(Pack<V>& sum, const real* image, int src_pitch, int first, int end, int lanes)
{
#pragma unroll 1
    for (; first < end; first += AVERAGE_AHEAD * lanes) {
        Bits<V * sizeof(real)> seen[AVERAGE_AHEAD];
        UNROLL(i, AVERAGE_AHEAD) {
            const int pixel = first + i * lanes;
            seen[i] = load_bits_if<V>(pixel < end, image + pixel * src_pitch);
        }
        UNROLL(i, AVERAGE_AHEAD) {
            UNROLL(k, V) sum.v[k] += value_of<V>(seen[i], k);
        }
    }
}

#define AVERAGE_MAP_PARAMETERS \
    const real *src, real *out, int rows, int channels, int area, int src_pitch, int out_pitch
#define AVERAGE_MAP_ARGUMENTS src, out, rows, channels, area, src_pitch, out_pitch

template <int V> DEVICE void average_map_body(AVERAGE_MAP_PARAMETERS)
{
    const int wide = V == 1 ? 32 : 8;  // packs of a block
    const int columns = wide * V;
    alignas(16) __shared__ float shares[AVERAGE_THREADS / 32 * columns];
    const int chunks = (channels + columns - 1) / columns;
    for (int item = blockIdx.x; item < rows * chunks; item += gridDim.x) {
        const int row = item / chunks;
        const int first = (item - row * chunks) * columns;
        const int channel = first + threadIdx.x % wide * V;
        const int end = channel < channels ? area : 0;
        Pack<V> sum = {};
        add_pixels(sum, src + row * area * src_pitch + channel, src_pitch, threadIdx.x / wide, end,
            AVERAGE_THREADS / wide);
        reduce_over_block<AVERAGE_THREADS>(sum, wide, shares);
        const int own = first + threadIdx.x;
        if (threadIdx.x < columns && own < channels) {
            put(out + row * out_pitch + own, shares[threadIdx.x] / area);
        }
        __syncthreads();  // the next item uses the same memory
    }
}

SCALAR_AND_PACKED(average_map, AVERAGE_MAP)

// A block takes `wide` packs (a power of two) of neighbouring channels of one part; its threads
// share the pixels. It writes sums or, if `squeeze` is given, their dot products with `hidden` rows
// of weights. Nothing is __restrict__: with it the compiler might move reads of the input before
// the wait.
template <int V> DEVICE void average_parts_body(const real* src, float* sums, int rows, int channels,
    int area, int src_pitch, int parts, int wide, const real* squeeze, int squeeze_pitch, int hidden)
{
    alignas(16) __shared__ float shares[AVERAGE_THREADS / 32 * AVERAGE_COLUMNS];
    const int run = (area + parts - 1) / parts;
    const int packs = channels / V;
    const int columns = wide * V;
    const int lanes = AVERAGE_THREADS / wide;
    const int lane = threadIdx.x / wide;
    const int pack_of_block = threadIdx.x % wide;
    for (int row = blockIdx.z; row < rows; row += gridDim.z)
        for (int part = blockIdx.y; part < parts; part += gridDim.y)
            for (int first_pack = blockIdx.x * wide; first_pack < packs; first_pack += gridDim.x * wide) {
                const int pack = first_pack + pack_of_block;
                const int end = pack < packs ? min((part + 1) * run, area) : 0;
                const real* image = src + row * area * src_pitch + pack * V;
                after_previous_kernel();  // returns at once after the first time
                Pack<V> sum = {};
                add_pixels(sum, image, src_pitch, part * run + lane, end, lanes);
                reduce_over_block<AVERAGE_THREADS>(sum, wide, shares);
                const int first = first_pack * V;
                if (squeeze) {
                    const int chunks = (packs + wide - 1) / wide;
                    const int piece = (row * parts + part) * chunks + first_pack / wide;
                    const int own = (min(columns, channels - first) + PACK - 1) / PACK;
                    write_partial_products<AVERAGE_THREADS>(shares, own, squeeze + first, squeeze_pitch,
                        hidden, piece_of(sums, piece, hidden));
                } else {
                    float* to = sums + (row * parts + part) * channels;
                    for (int i = threadIdx.x; i < columns && first + i < channels; i += AVERAGE_THREADS) {
                        to[first + i] = shares[i];
                    }
                }
                __syncthreads();  // the next item uses the same memory
            }
}

extern "C" __global__ void average_parts(const real* src, float* sums, int rows, int channels, int area,
    int src_pitch, int parts, int wide, const real* squeeze, int squeeze_pitch, int hidden)
{
    average_parts_body<1>(
        src, sums, rows, channels, area, src_pitch, parts, wide, squeeze, squeeze_pitch, hidden);
}

extern "C" __global__ void __launch_bounds__(AVERAGE_THREADS, 3)
    average_parts_packed(const real* src, float* sums, int rows, int channels, int area, int src_pitch,
        int parts, int wide, const real* squeeze, int squeeze_pitch, int hidden)
{
    average_parts_body<PACK>(
        src, sums, rows, channels, area, src_pitch, parts, wide, squeeze, squeeze_pitch, hidden);
}

// A block adds the parts of 32 channels of one row; AVERAGE_LANES threads share the parts of a channel.
#define AVERAGE_LANES 8

extern "C" __global__ void average_join(const float* __restrict__ sums, real* __restrict__ out, int rows,
    int channels, int area, int parts, int out_pitch)
{
    after_previous_kernel();
    __shared__ float shared[AVERAGE_LANES][32];
    const int lane = threadIdx.x / 32;
    const int groups = (channels + 31) / 32;
    for (int item = blockIdx.x; item < rows * groups; item += gridDim.x) {
        const int row = item / groups;
        const int channel = (item - row * groups) * 32 + threadIdx.x % 32;
        float sum = 0.f;
        if (channel < channels) {
            for (int part = lane; part < parts; part += AVERAGE_LANES) {
                sum += sums[(row * parts + part) * channels + channel];
            }
        }
        shared[lane][threadIdx.x % 32] = sum;
        __syncthreads();
        if (lane == 0 && channel < channels) {
            for (int i = 1; i < AVERAGE_LANES; ++i) sum += shared[i][threadIdx.x % 32];
            put(out + row * out_pitch + channel, sum / area);
        }
        __syncthreads();
    }
}
