// depthwise: every channel has its own small kernel.
//
//   weight  (kernel_y, kernel_x, channels)
//
// Work item  a pack of neighbouring channels of DEPTHWISE_RUN neighbouring output pixels of a line:
//            weights and, at stride 1, input columns are loaded once for the run.
// Memory     coalesced along channels; bias, activation and residual are applied on the way out.
#include "common.cuh"

#define DEPTHWISE_RUN 4

template <int V>
__device__ __forceinline__ void depthwise_body(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int kernel_y,
    int kernel_x, int stride_y, int stride_x, int top, int left, int dilation_y, int dilation_x,
    int kind, int last)
{
    const int packs = channels / V;
    const int runs = (out_w + DEPTHWISE_RUN - 1) / DEPTHWISE_RUN;
    GRID_STRIDE(item, rows * out_h * runs * packs)
    {
        const int channel = item % packs * V;
        const int run = item / packs % runs;
        const int line = item / packs / runs;
        const int y = line % out_h;
        const int row = line / out_h;
        const int first_x = run * DEPTHWISE_RUN;
        const real* image = src + row * height * width * src_pitch + channel;
        Pack<V> sum[DEPTHWISE_RUN];
#pragma unroll
        for (int r = 0; r < DEPTHWISE_RUN; ++r) {
#pragma unroll
            for (int k = 0; k < V; ++k) sum[r].v[k] = bias ? bias[channel + k] : 0.f;
        }
        for (int i = 0; i < kernel_y; ++i) {
            const int from_y = y * stride_y - top + i * dilation_y;
            if (from_y < 0 || from_y >= height) continue;
            for (int j = 0; j < kernel_x; ++j) {
                const float* w = weight + (i * kernel_x + j) * channels + channel;
                float factor[V];
#pragma unroll
                for (int k = 0; k < V; ++k) factor[k] = w[k];
#pragma unroll
                for (int r = 0; r < DEPTHWISE_RUN; ++r) {
                    const int from_x = (first_x + r) * stride_x - left + j * dilation_x;
                    if (from_x < 0 || from_x >= width) continue;
                    const Pack<V> v = load<V>(image + (from_y * width + from_x) * src_pitch);
#pragma unroll
                    for (int k = 0; k < V; ++k) sum[r].v[k] += v.v[k] * factor[k];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < DEPTHWISE_RUN; ++r) {
            if (first_x + r >= out_w) break;
            const int pixel = line * out_w + first_x + r;
            activate_all(kind, sum[r].v);
            if (residual) {
                const Pack<V> v = load<V>(residual + pixel * residual_pitch + channel);
#pragma unroll
                for (int k = 0; k < V; ++k) sum[r].v[k] += v.v[k];
            }
            activate_all(last, sum[r].v);
            store<V>(out + pixel * out_pitch + channel, sum[r]);
        }
    }
}

// The same for a square kernel of K cells at stride S, both known: the columns that a run of R
// outputs reads in one line are all asked for before the first is used.
template <int V, int K, int S, int R>
__device__ __forceinline__ void depthwise_fixed(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int top,
    int left, int kind, int last)
{
    const int columns = (R - 1) * S + K;
    const int packs = channels / V;
    const int runs = (out_w + R - 1) / R;
    GRID_STRIDE(item, rows * out_h * runs * packs)
    {
        const int channel = item % packs * V;
        const int run = item / packs % runs;
        const int line = item / packs / runs;
        const int row = line / out_h;
        const int first_y = (line - row * out_h) * S - top;
        const int first_x = run * R * S - left;
        const real* image = src + row * height * width * src_pitch + channel;
        Pack<V> sum[R];
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const float start = bias ? bias[channel + k] : 0.f;
#pragma unroll
            for (int r = 0; r < R; ++r) sum[r].v[k] = start;
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
            const int y = first_y + i;
            if (y < 0 || y >= height) continue;
            Raw<V> seen[columns];
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                const int x = first_x + j;
                const bool is_inside = 0 <= x && x < width;
                const real* from = image + (y * width + x) * src_pitch;
                if (is_inside) seen[j] = *reinterpret_cast<const Raw<V>*>(from);
                if (!is_inside) {
#pragma unroll
                    for (int k = 0; k < V; ++k) put(&seen[j].v[k], 0.f);
                }
            }
#pragma unroll
            for (int j = 0; j < K; ++j) {
                float factor[V];
#pragma unroll
                for (int k = 0; k < V; ++k) factor[k] = weight[(i * K + j) * channels + channel + k];
#pragma unroll
                for (int r = 0; r < R; ++r) {
#pragma unroll
                    for (int k = 0; k < V; ++k) {
                        sum[r].v[k] += to_float(seen[r * S + j].v[k]) * factor[k];
                    }
                }
            }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (run * R + r >= out_w) break;
            const int pixel = line * out_w + run * R + r;
            activate_all(kind, sum[r].v);
            if (residual) {
                const Pack<V> v = load<V>(residual + pixel * residual_pitch + channel);
#pragma unroll
                for (int k = 0; k < V; ++k) sum[r].v[k] += v.v[k];
            }
            activate_all(last, sum[r].v);
            store<V>(out + pixel * out_pitch + channel, sum[r]);
        }
    }
}

extern "C" __global__ void depthwise(const real* __restrict__ src, const float* __restrict__ weight,
                                     const float* __restrict__ bias,
                                     const real* __restrict__ residual, real* __restrict__ out,
                                     int rows, int channels, int height, int width, int out_h,
                                     int out_w, int src_pitch, int residual_pitch, int out_pitch,
                                     int kernel_y, int kernel_x, int stride_y, int stride_x,
                                     int top, int left, int dilation_y, int dilation_x, int kind,
                                     int last)
{
    after_previous_kernel();
    depthwise_body<1>(src, weight, bias, residual, out, rows, channels, height, width, out_h, out_w,
                      src_pitch, residual_pitch, out_pitch, kernel_y, kernel_x, stride_y, stride_x,
                      top, left, dilation_y, dilation_x, kind, last);
}

extern "C" __global__ void depthwise_packed(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int kernel_y,
    int kernel_x, int stride_y, int stride_x, int top, int left, int dilation_y, int dilation_x,
    int kind, int last)
{
    after_previous_kernel();
    depthwise_body<PACK>(src, weight, bias, residual, out, rows, channels, height, width, out_h,
                         out_w, src_pitch, residual_pitch, out_pitch, kernel_y, kernel_x, stride_y,
                         stride_x, top, left, dilation_y, dilation_x, kind, last);
}

extern "C" __global__ void depthwise_3_1(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int top,
    int left, int kind, int last)
{
    after_previous_kernel();
    depthwise_fixed<PACK, 3, 1, 4>(src, weight, bias, residual, out, rows, channels, height,
                                    width, out_h, out_w, src_pitch, residual_pitch, out_pitch, top,
                                    left, kind, last);
}

extern "C" __global__ void depthwise_3_2(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int top,
    int left, int kind, int last)
{
    after_previous_kernel();
    depthwise_fixed<PACK, 3, 2, 2>(src, weight, bias, residual, out, rows, channels, height,
                                    width, out_h, out_w, src_pitch, residual_pitch, out_pitch, top,
                                    left, kind, last);
}

extern "C" __global__ void depthwise_5_1(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int top,
    int left, int kind, int last)
{
    after_previous_kernel();
    depthwise_fixed<PACK, 5, 1, 4>(src, weight, bias, residual, out, rows, channels, height,
                                    width, out_h, out_w, src_pitch, residual_pitch, out_pitch, top,
                                    left, kind, last);
}

extern "C" __global__ void depthwise_5_2(
    const real* __restrict__ src, const float* __restrict__ weight, const float* __restrict__ bias,
    const real* __restrict__ residual, real* __restrict__ out, int rows, int channels, int height,
    int width, int out_h, int out_w, int src_pitch, int residual_pitch, int out_pitch, int top,
    int left, int kind, int last)
{
    after_previous_kernel();
    depthwise_fixed<PACK, 5, 2, 2>(src, weight, bias, residual, out, rows, channels, height,
                                    width, out_h, out_w, src_pitch, residual_pitch, out_pitch, top,
                                    left, kind, last);
}
