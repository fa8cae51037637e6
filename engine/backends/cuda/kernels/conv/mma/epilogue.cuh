// Epilogue of the mma convolutions: bias, activation, residual, second activation, [yolo] values, and
// wide stores.
#pragma once
#include "output_type.cuh"

#define BIAS_FLOATS (MODE == 4 ? 2 : 1)
#define STAGING_PADDING 8  // floats between rows, so that fragments do not share a bank

// If a 2 x 2 pool follows, rows of sums come in groups of four, the cells of one window. The
// maximum is taken before the bias and the activation; activations that are not monotonic are
// refused.
#define CELL_SIDE (CELLS == 4 ? 2 : 1)

// The first input pixel of the window of row m, before padding is subtracted.
struct WindowOrigin {
    int row, y, x;
};

DEVICE WindowOrigin window_origin(int m, int out_h, int out_w, int stride_y, int stride_x)
{
    const unsigned pixel = (unsigned)m / CELLS;
    const int cell = m % CELLS;
    const unsigned line = pixel / out_w;
    const unsigned row = line / out_h;
    WindowOrigin staging;
    staging.row = (int)row;
    staging.y = ((int)(line - row * out_h) * CELL_SIDE + cell / CELL_SIDE) * stride_y;
    staging.x = ((int)(pixel - line * out_w) * CELL_SIDE + cell % CELL_SIDE) * stride_x;
    return staging;
}

struct Output {
    const float* bias;  // BIAS_FLOATS for each line of weights, padding lines included
    const result* residual;
    result* out;
    int pixels, out_pitch, residual_pitch;  // pixels of `out`
    int kind, last;
    int is_aligned;    // vectors of `out` and `residual` are aligned to 16 bytes
    int entries, box;  // of an anchor, if the output of [yolo] is computed
    float scale_x_y;
    float residual_scale, out_factor;  // of int8
    unsigned* flag;
};

// Adds the bias to a sum; an integer sum is scaled first.
DEVICE float with_bias(float sum, const float* bias)
{
    return MODE == 4 ? fmaf(sum, bias[0], bias[1]) : sum + bias[0];
}

// Kernels for int8 are rare enough to support every activation.
template <int N> DEVICE void activate_known(int kind, float (&x)[N])
{
    if constexpr (MODE == 4)
        activate_all(kind, x);
    else
        activate_common(kind, x);
}

// A warp's finished sums lie in its own staging area of shared memory, ROWS x (COLUMNS + STAGING_PADDING)
// floats. From there residuals are read and results written 16 bytes at a time, neighbouring lanes next
// to each other, because a sector of the L2 that is written in two parts costs twice.
//   m0       first pixel of `out`
//   channel  first channel in `out`, of which `count` exist
//   line     index of the first bias, a multiple of 8
// Several residuals are in flight before the first is used.
template <int ROWS, int COLUMNS> DEVICE void epilogue_vectorized(
    const float* staging, const Output& o, int m0, int channel, int count, int line)
{
    const int lane = threadIdx.x % 32;
    const int pitch = COLUMNS + STAGING_PADDING;
    const int across = COLUMNS / OUT_PACK;
    const int packs = ROWS / CELLS * across;
    const int items = (packs + 31) / 32;  // per lane
    const int most = 32 / OUT_PACK;
    const int at_once = items < most ? items : most;
    static_assert(items % at_once == 0, "packs come in whole rounds");
#pragma unroll 1
    for (int first = 0; first < items; first += at_once) {
        Raw<OUT_PACK, result> residual[at_once];
        float x[at_once * OUT_PACK];
        UNROLL(i, at_once) {
            const int item = lane + (first + i) * 32;
            const int m = m0 + item / across;
            const int n = item % across * OUT_PACK;
            if (o.residual && m < o.pixels && n + OUT_PACK <= count) {
                const result* from = o.residual + (size_t)m * o.residual_pitch + channel + n;
                residual[i] = *reinterpret_cast<const Raw<OUT_PACK, result>*>(from);
            }
        }
        UNROLL(i, at_once) {
            const int item = lane + (first + i) * 32;
            const int n = item % across * OUT_PACK;
            const int row = item / across * CELLS;
            const float* from = staging + (row < ROWS ? row : 0) * pitch + n;
#pragma unroll
            for (int c = 0; c < OUT_PACK; c += 4) {
                const float* bias = o.bias + (line + n + c) * BIAS_FLOATS;
                float4 v = *reinterpret_cast<const float4*>(from + c);
#pragma unroll
                for (int cell = 1; cell < CELLS; ++cell) {
                    const float4 w = *reinterpret_cast<const float4*>(from + cell * pitch + c);
                    v = make_float4(fmaxf(v.x, w.x), fmaxf(v.y, w.y), fmaxf(v.z, w.z), fmaxf(v.w, w.w));
                }
                x[i * OUT_PACK + c] = with_bias(v.x, bias);
                x[i * OUT_PACK + c + 1] = with_bias(v.y, bias + BIAS_FLOATS);
                x[i * OUT_PACK + c + 2] = with_bias(v.z, bias + 2 * BIAS_FLOATS);
                x[i * OUT_PACK + c + 3] = with_bias(v.w, bias + 3 * BIAS_FLOATS);
            }
        }
        activate_known(o.kind, x);
        if (o.residual) {
            UNROLL(i, at_once) {
                const int item = lane + (first + i) * 32;
                const int m = m0 + item / across;
                const int n = item % across * OUT_PACK;
                const result* from = o.residual + (size_t)m * o.residual_pitch + channel + n;
                const bool is_wide = n + OUT_PACK <= count;
                UNROLL(c, OUT_PACK) {
                    if (m < o.pixels && n + c < count) {
                        const result more = is_wide ? residual[i].v[c] : from[c];
                        x[i * OUT_PACK + c] += residual_of(more, o.residual_scale);
                    }
                }
            }
        }
        activate_known(o.last, x);
        UNROLL(i, at_once) {
            const int item = lane + (first + i) * 32;
            const int m = m0 + item / across;
            const int n = item % across * OUT_PACK;
            if (m >= o.pixels || item >= packs) continue;
            result* to = o.out + (size_t)m * o.out_pitch + channel + n;
            if (n + OUT_PACK <= count) {
                Pack<OUT_PACK> pack;
                UNROLL(k, OUT_PACK) pack.v[k] = x[i * OUT_PACK + k];
                store_result<OUT_PACK>(to, pack, o.out_factor);
            } else {
                UNROLL(c, OUT_PACK) {
                    if (n + c < count) put_result(to + c, x[i * OUT_PACK + c], o.out_factor);
                }
            }
        }
    }
}

// Does the same one value at a time, for outputs that are not aligned to 16 bytes. Neighbouring
// lanes write neighbouring values. Each lane keeps its channel, with its bias and mask, from row to
// row.
template <int ROWS, int COLUMNS>
DEVICE void epilogue_scalar(const float* staging, const Output& o, int m0, int channel, int count, int line)
{
    const int lane = threadIdx.x % 32;
    const int pitch = COLUMNS + STAGING_PADDING;
    const int across = COLUMNS < 32 ? COLUMNS : 32;
    const int down = 32 / across;  // rows per iteration of a warp
    const int items = ROWS / CELLS / down;
    const int at_once = items < 8 ? items : 8;
    static_assert(items % at_once == 0, "rows come in whole rounds");
#pragma unroll 1
    for (int n = lane % across; n < COLUMNS && n < count; n += across) {
        const float* bias = o.bias + (line + n) * BIAS_FLOATS;
#if YOLO
        const unsigned bits = yolo_mask<1>((channel + n) % o.entries, o.entries, o.box);
#endif
#pragma unroll 1
        for (int first = 0; first < items; first += at_once) {
            float x[at_once];
            UNROLL(i, at_once) {
                const int row = ((first + i) * down + lane / across) * CELLS;
                const float* from = staging + row * pitch + n;
                x[i] = from[0];
#pragma unroll
                for (int cell = 1; cell < CELLS; ++cell) x[i] = fmaxf(x[i], from[cell * pitch]);
                x[i] = with_bias(x[i], bias);
            }
            activate_known(o.kind, x);
            const int m = m0 + first * down + lane / across;
            if (o.residual) {
                const result* from = o.residual + (size_t)m * o.residual_pitch + channel + n;
                UNROLL(i, at_once) {
                    if (m + i * down >= o.pixels) continue;
                    x[i] += residual_of(from[i * down * o.residual_pitch], o.residual_scale);
                }
            }
            activate_known(o.last, x);
#if YOLO
            UNROLL(i, at_once) {
                if (m + i * down < o.pixels) flag_non_finite(o.flag, x[i]);
            }
            apply_yolo<false>(x, bits, YOLO == RAW, o.scale_x_y);
#endif
            result* to = o.out + (size_t)m * o.out_pitch + channel + n;
            UNROLL(i, at_once) {
                if (m + i * down < o.pixels) put_result(to + i * down * o.out_pitch, x[i], o.out_factor);
            }
        }
    }
}

// Writes a warp's sums to its staging area and runs the epilogue from there.
template <int ROWS, int COLUMNS> DEVICE void run_epilogue(const Sum (&sum)[ROWS / 16][COLUMNS / 8][4],
    float* staging, const Output& o, int m0, int channel, int count, int line)
{
    const int lane = threadIdx.x % 32;
    const int pitch = COLUMNS + STAGING_PADDING;
    UNROLL(i, ROWS / 16) {
        UNROLL(j, COLUMNS / 8) {
            float* to = staging + (i * 16 + lane / 4) * pitch + j * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(sum[i][j][0], sum[i][j][1]);
            *reinterpret_cast<float2*>(to + 8 * pitch) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
    __syncwarp();
    if (!YOLO && o.is_aligned) {
        epilogue_vectorized<ROWS, COLUMNS>(staging, o, m0, channel, count, line);
    } else {
        epilogue_scalar<ROWS, COLUMNS>(staging, o, m0, channel, count, line);
    }
    __syncwarp();
}
