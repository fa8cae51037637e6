// max_pool: the largest value of each window; cells outside never win, an empty window is -max.
// max_pool_down: the same for windows that lie a line apart. Each thread takes WINDOWS_PER_THREAD of them,
// one below the other, and the largest of a line once for all that it is part of. max_pool_depth: out[g] =
// max over src channels g, g + out channels, ...
//
// Work item  one output pixel and a pack of channels; four cells of its window are asked for at once.
// Memory     coalesced along channels.
#include "common.cuh"

template <int V> DEVICE void max_pool_body(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_y, int stride_x, int top, int left)
{
    const int packs = channels / V;
    GRID_STRIDE(item, rows * out_h * out_w * packs)
    {
        const int pixel = item / packs;
        const int channel = (item - pixel * packs) * V;
        const int x = pixel % out_w;
        const int y = pixel / out_w % out_h;
        const int row = pixel / out_w / out_h;
        const int first_y = y * stride_y - top;
        const int first_x = x * stride_x - left;
        Pack<V> best;
#pragma unroll
        for (int i = 0; i < V; ++i) best.v[i] = -3.402823466e38f;
        const real* image = src + row * height * width * src_pitch + channel;
        const int end_y = min(first_y + size_y, height);
        const int end_x = min(first_x + size_x, width);
        for (int i = max(first_y, 0); i < end_y; i += 2) {
            for (int j = max(first_x, 0); j < end_x; j += 2) {
                Bits<V * sizeof(real)> seen[4];  // at the end the last ones twice
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int cell = min(i + k / 2, end_y - 1) * width + min(j + k % 2, end_x - 1);
                    seen[k] = load_bits<V>(image + cell * src_pitch);
                }
#pragma unroll
                for (int k = 0; k < 4 * V; ++k) {
                    best.v[k % V] = fmaxf(best.v[k % V], value_of<V>(seen[k / V], k % V));
                }
            }
        }
        store<V>(out + pixel * out_pitch + channel, best);
    }
}

#define WINDOWS_PER_THREAD 4

typedef Bits<16> PackBits;

DEVICE PackBits elementwise_max(const PackBits& a, const PackBits& b)
{
    PackBits most;
#if defined(STORE_HALF) && defined(__CUDA_ARCH__)
    const __half2 *x = reinterpret_cast<const __half2*>(&a), *y = reinterpret_cast<const __half2*>(&b);
#pragma unroll
    for (int i = 0; i < 4; ++i) reinterpret_cast<__half2*>(&most)[i] = __hmax2(x[i], y[i]);
#else
#pragma unroll
    for (int i = 0; i < PACK; ++i) {
        put(&reinterpret_cast<Raw<PACK>&>(most).v[i], fmaxf(value_of<PACK>(a, i), value_of<PACK>(b, i)));
    }
#endif
    return most;
}

extern "C" __global__ void max_pool_down(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_x, int top, int left)
{
    after_previous_kernel();
    const int packs = channels / PACK;
    const int groups = (out_h + WINDOWS_PER_THREAD - 1) / WINDOWS_PER_THREAD;
    GRID_STRIDE(item, rows * groups * out_w * packs)
    {
        const int place = item / packs;
        const int channel = (item - place * packs) * PACK;
        const int x = place % out_w;
        const int first = place / out_w % groups * WINDOWS_PER_THREAD;
        const int row = place / out_w / groups;
        const int begin_x = max(x * stride_x - left, 0);
        const int end_x = min(x * stride_x - left + size_x, width);
        PackBits least;
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
            put(&reinterpret_cast<Raw<PACK>&>(least).v[i], -3.402823466e38f);
        }
        PackBits best[WINDOWS_PER_THREAD];
#pragma unroll
        for (int k = 0; k < WINDOWS_PER_THREAD; ++k) best[k] = least;
        const real* image = src + row * height * width * src_pitch + channel;
        for (int line = max(0, top - first); line < size_y + WINDOWS_PER_THREAD - 1; ++line) {
            const int y = first - top + line;
            if (y >= height) break;
            PackBits most = least;
            for (int j = begin_x; j < end_x; j += 5) {
                PackBits seen[5];  // at the end the last one again
#pragma unroll
                for (int k = 0; k < 5; ++k) {
                    seen[k] = load_bits<PACK>(image + (y * width + min(j + k, end_x - 1)) * src_pitch);
                }
#pragma unroll
                for (int k = 0; k < 5; ++k) most = elementwise_max(most, seen[k]);
            }
#pragma unroll
            for (int k = 0; k < WINDOWS_PER_THREAD; ++k) {
                if (line >= k && line < size_y + k) best[k] = elementwise_max(best[k], most);
            }
        }
#pragma unroll
        for (int k = 0; k < WINDOWS_PER_THREAD; ++k) {
            if (first + k >= out_h) break;
            const int pixel = (row * out_h + first + k) * out_w + x;
            *reinterpret_cast<PackBits*>(out + pixel * out_pitch + channel) = best[k];
        }
    }
}

extern "C" __global__ void max_pool(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_y, int stride_x, int top, int left)
{
    after_previous_kernel();
    max_pool_body<1>(src, out, rows, channels, height, width, out_h, out_w, src_pitch, out_pitch, size_y,
        size_x, stride_y, stride_x, top, left);
}

extern "C" __global__ void max_pool_packed(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_y, int stride_x, int top, int left)
{
    after_previous_kernel();
    max_pool_body<PACK>(src, out, rows, channels, height, width, out_h, out_w, src_pitch, out_pitch, size_y,
        size_x, stride_y, stride_x, top, left);
}

extern "C" __global__ void max_pool_depth(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(item, pixels * channels)
    {
        const int pixel = item / channels;
        const int c = item - pixel * channels;
        float best = -3.402823466e38f;
        for (int k = c; k < src_channels; k += channels) {
            best = fmaxf(best, to_float(src[pixel * src_pitch + k]));
        }
        put(out + pixel * out_pitch + c, best);
    }
}
