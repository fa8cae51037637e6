// Elementwise steps of recurrent and rare layers over (pixels, channels).
//
//   mix     out = gate * yes + (1 - gate) * no
//   clip    out = min(max(src, -limit), limit)
//   repair  out = src where finite, else 1 / flat index (0 for index 0)
//   spread  out = constant, the same for each row
//
// Work item  one value.
#include "common.cuh"

extern "C" __global__ void mix(const real* __restrict__ gate, const real* __restrict__ yes,
    const real* __restrict__ no, real* __restrict__ out, int pixels, int channels, int gate_pitch,
    int yes_pitch, int no_pitch, int out_pitch)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, pixels, c, channels)
    {
        const float g = to_float(gate[pixel * gate_pitch + c]);
        const float a = to_float(yes[pixel * yes_pitch + c]);
        const float b = to_float(no[pixel * no_pitch + c]);
        put(out + pixel * out_pitch + c, g * a + (1.f - g) * b);
    }
}

extern "C" __global__ void clip(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch, float limit)
{
    after_previous_kernel();
    FOR_EACH_PACK(1, pixel, pixels, c, channels)
    {
        const float x = to_float(src[pixel * src_pitch + c]);
        put(out + pixel * out_pitch + c, fminf(fmaxf(x, -limit), limit));
    }
}

extern "C" __global__ void repair(const real* __restrict__ src, real* __restrict__ out, int rows,
    int channels, int area, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(flat, rows * channels * area)
    {
        const float x = to_float(src[nhwc_offset(flat, channels, area, src_pitch)]);
        const bool is_finite = x - x == 0.f;
        const float stand_in = flat == 0 ? 0.f : 1.f / flat;
        put(out + nhwc_offset(flat, channels, area, out_pitch), is_finite ? x : stand_in);
    }
}

extern "C" __global__ void spread(const float* __restrict__ constant, real* __restrict__ out, int rows,
    int channels, int area, int out_pitch)
{
    after_previous_kernel();
    const int size = channels * area;
    GRID_STRIDE(flat, rows * size)
    {
        put(out + nhwc_offset(flat, channels, area, out_pitch), constant[flat % size]);
    }
}
