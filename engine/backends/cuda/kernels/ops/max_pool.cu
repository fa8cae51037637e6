// max_pool: the largest value of each window; cells outside the map are ignored, an empty window is -FLT_MAX.
// max_pool_down: the same for windows one line apart. A thread takes WINDOWS_PER_THREAD windows of a column
//                and computes the maximum of each line once for all windows that contain it.
// max_pool_depth: out[g] = max over src channels g, g + out channels, ...
//
// Work item  one output pixel and a pack of channels; four cells of its window are loaded at once.
// Memory     coalesced along channels.
#include "common.cuh"

#define MAX_POOL_PARAMETERS                                                                              \
    const real *__restrict__ src, real *__restrict__ out, int rows, int channels, int height, int width, \
        int out_h, int out_w, int src_pitch, int out_pitch, int size_y, int size_x, int stride_y,        \
        int stride_x, int top, int left
#define MAX_POOL_ARGUMENTS                                                                                 \
    src, out, rows, channels, height, width, out_h, out_w, src_pitch, out_pitch, size_y, size_x, stride_y, \
        stride_x, top, left

typedef Bits<16> PackBits;

DEVICE PackBits elementwise_max(const PackBits& a, const PackBits& b)
{
    PackBits most;
#if defined(STORE_INT8) && defined(__CUDA_ARCH__)
    UNROLL(i, 4) most.word[i] = __vmaxs4(a.word[i], b.word[i]);
#elif defined(STORE_HALF)
    UNROLL(i, 4) most.word[i] = max_half2(a.word[i], b.word[i]);
#else
    UNROLL(i, PACK) {
        put(&reinterpret_cast<Raw<PACK>&>(most).v[i], fmaxf(value_of<PACK>(a, i), value_of<PACK>(b, i)));
    }
#endif
    return most;
}

template <int V> DEVICE void max_pool_body(MAX_POOL_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, rows * out_h * out_w, channel, channels)
    {
        const Position at = position_of(pixel, out_h, out_w);
        const int first_y = at.y * stride_y - top;
        const int first_x = at.x * stride_x - left;
        Pack<V> best;
        UNROLL(i, V) best.v[i] = -3.402823466e38f;
        PackBits most = {{0x80808080, 0x80808080, 0x80808080, 0x80808080}};  // of bytes
        const real* image = src + at.row * height * width * src_pitch + channel;
        const int end_y = min(first_y + size_y, height);
        const int end_x = min(first_x + size_x, width);
        for (int i = max(first_y, 0); i < end_y; i += 2) {
            for (int j = max(first_x, 0); j < end_x; j += 2) {
                Bits<V * sizeof(real)> seen[4];  // past the end, the last ones again
                UNROLL(k, 4) {
                    const int cell = min(i + k / 2, end_y - 1) * width + min(j + k % 2, end_x - 1);
                    seen[k] = load_bits<V>(image + cell * src_pitch);
                }
                if constexpr (sizeof(real) == 1 && V == PACK) {  // conversions would bound it
                    UNROLL(k, 4) most = elementwise_max(most, seen[k]);
                } else {
                    UNROLL(k, 4 * V) {
                        best.v[k % V] = fmaxf(best.v[k % V], value_of<V>(seen[k / V], k % V));
                    }
                }
            }
        }
        real* to = out + pixel * out_pitch + channel;
        if constexpr (sizeof(real) == 1 && V == PACK) {
            *reinterpret_cast<PackBits*>(to) = most;
        } else {
            store<V>(to, best);
        }
    }
}

SCALAR_AND_PACKED(max_pool, MAX_POOL)

#define WINDOWS_PER_THREAD 4

extern "C" __global__ void max_pool_down(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int height, int width, int out_h, int out_w, int src_pitch, int out_pitch, int size_y,
    int size_x, int stride_x, int top, int left)
{
    after_previous_kernel();
    const int groups = (out_h + WINDOWS_PER_THREAD - 1) / WINDOWS_PER_THREAD;
    FOR_EACH_PACK(PACK, column, rows * groups * out_w, channel, channels)
    {
        const int x = column % out_w;
        const int first = column / out_w % groups * WINDOWS_PER_THREAD;
        const int row = column / out_w / groups;
        const int begin_x = max(x * stride_x - left, 0);
        const int end_x = min(x * stride_x - left + size_x, width);
        PackBits least;
        UNROLL(i, PACK) {
            put(&reinterpret_cast<Raw<PACK>&>(least).v[i], -3.402823466e38f);
        }
        PackBits best[WINDOWS_PER_THREAD];
        UNROLL(k, WINDOWS_PER_THREAD) best[k] = least;
        const real* image = src + row * height * width * src_pitch + channel;
        for (int line = max(0, top - first); line < size_y + WINDOWS_PER_THREAD - 1; ++line) {
            const int y = first - top + line;
            if (y >= height) break;
            PackBits most = least;
            for (int j = begin_x; j < end_x; j += 5) {
                PackBits seen[5];  // past the end, the last one again
                UNROLL(k, 5) {
                    seen[k] = load_bits<PACK>(image + (y * width + min(j + k, end_x - 1)) * src_pitch);
                }
                UNROLL(k, 5) most = elementwise_max(most, seen[k]);
            }
            UNROLL(k, WINDOWS_PER_THREAD) {
                if (line >= k && line < size_y + k) best[k] = elementwise_max(best[k], most);
            }
        }
        UNROLL(k, WINDOWS_PER_THREAD) {
            if (first + k >= out_h) break;
            const int pixel = (row * out_h + first + k) * out_w + x;
            *reinterpret_cast<PackBits*>(out + pixel * out_pitch + channel) = best[k];
        }
    }
}

extern "C" __global__ void max_pool_depth(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int out_channels, int channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, pixels, c, out_channels)
    {
        float best = -3.402823466e38f;
        for (int k = c; k < channels; k += out_channels) {
            best = fmaxf(best, to_float(src[pixel * src_pitch + k]));
        }
        put(out + pixel * out_pitch + c, best);
    }
}
