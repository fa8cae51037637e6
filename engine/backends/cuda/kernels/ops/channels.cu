// Normalizations across the channels of one pixel.
//
//   normalise_channels  x / (1e-4 + sum): x is max(v,0) (0), exp(v) (1) or exp(v - max) (2)
//   l2_norm             v / sqrt(sum of v^2)
//   local_norm          v * norm^-beta, with norm as a sliding sum over channels as in darknet (LRN)
//
// Work item  one pixel with all its channels: rare layers of old networks.
#include "common.cuh"

extern "C" __global__ void normalise_channels(const real* __restrict__ src, real* __restrict__ out,
    int pixels, int channels, int src_pitch, int out_pitch, int kind)
{
    after_previous_kernel();
    GRID_STRIDE(pixel, pixels)
    {
        const real* x = src + pixel * src_pitch;
        real* y = out + pixel * out_pitch;
        float top = 0.f;
        if (kind == 2) {
            top = to_float(x[0]);
            for (int c = 1; c < channels; ++c) top = fmaxf(top, to_float(x[c]));
        }
        float sum = 1e-4f;
        for (int c = 0; c < channels; ++c) {
            const float v = to_float(x[c]);
            sum += kind == 0 ? fmaxf(v, 0.f) : expf(v - top);
        }
        for (int c = 0; c < channels; ++c) {
            const float v = to_float(x[c]);
            put(y + c, (kind == 0 ? fmaxf(v, 0.f) : expf(v - top)) / sum);
        }
    }
}

extern "C" __global__ void l2_norm(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(pixel, pixels)
    {
        const real* x = src + pixel * src_pitch;
        real* y = out + pixel * out_pitch;
        float sum = 0.f;
        for (int c = 0; c < channels; ++c) sum += to_float(x[c]) * to_float(x[c]);
        const float length = sqrtf(sum);
        for (int c = 0; c < channels; ++c) put(y + c, to_float(x[c]) / length);
    }
}

extern "C" __global__ void local_norm(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch, int size, float alpha, float beta, float kappa)
{
    after_previous_kernel();
    GRID_STRIDE(pixel, pixels)
    {
        const real* x = src + pixel * src_pitch;
        real* y = out + pixel * out_pitch;
        float norm = kappa;
        // darknet omits channel size / 2 from the first window
        for (int c = 0; c < size / 2 && c < channels; ++c) {
            norm += alpha * to_float(x[c]) * to_float(x[c]);
        }
        for (int c = 0; c < channels; ++c) {
            if (c > 0) {
                const int leaves = c - (size - 1) / 2 - 1;
                const int enters = c + size / 2;
                if (leaves >= 0) norm -= alpha * to_float(x[leaves]) * to_float(x[leaves]);
                if (enters < channels) norm += alpha * to_float(x[enters]) * to_float(x[enters]);
            }
            put(y + c, to_float(x[c]) * powf(norm, -beta));
        }
    }
}
