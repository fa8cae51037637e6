// pictures: bytes (height, width, channels) of any size -> rows of the network's NHWC input. Launched by
// ops/border.py.
//
// Bit for bit the same as vision/resize.py: the `_rn` intrinsics keep the compiler from contracting
// a multiplication and an addition into an FMA.
//
// Work item  one pixel of the network's input.   Memory  reads hit the cache, writes coalesce.
#include "common.cuh"
#include "placed_picture.cuh"

// Two neighbours along one axis and their weights.
struct Neighbours {
    int low, high;
    float low_share, high_share;
};

DEVICE Neighbours neighbours_of(int position, int extent, int scaled, float scale, bool darkens)
{
    const int last = scaled - 1;
    const int output = min(max(position, 0), last);
    const float exact = __fmul_rn((float)output, scale);
    int low = (int)exact;
    float share = __fsub_rn(exact, (float)low);
    float rest = __fsub_rn(1.f, share);
    if (output == last) {
        if (darkens && last > 0) {
            share = 0.f;
        } else {
            low = extent - 1;
            rest = 1.f;
            share = 0.f;
        }
    }
    low = min(low, extent - 1);
    // A neighbour without a share is not read: most pictures of the input's size have none.
    return {low, share > 0.f ? min(low + 1, extent - 1) : low, rest, share};
}

// byte / 255, rounded as a division: the product with 1/255, corrected by its remainder.
DEVICE float byte_to_unit(unsigned char byte)
{
    const float x = (float)byte, inverse = 1.f / 255.f;
    const float quotient = __fmul_rn(x, inverse);
    return fmaf(fmaf(-quotient, 255.f, x), inverse, quotient);
}

DEVICE float lerp(float a, float b, float a_share, float b_share)
{
    return __fadd_rn(__fmul_rn(a_share, a), __fmul_rn(b_share, b));
}

extern "C" __global__ void enter_pictures(const PlacedPicture* __restrict__ pictures, real* __restrict__ out,
    int pixels, int height, int width, int channels, int out_pitch)
{
    after_previous_kernel();
    GRID_STRIDE(pixel, pixels)
    {
        const int line = pixel / width;
        const int row = line / height;
        const PlacedPicture& p = pictures[row];
        const int x = pixel - line * width - p.left;
        const int y = line - row * height - p.top;
        const bool is_margin =
            p.is_letterbox && (x < 0 || y < 0 || x >= p.inner_width || y >= p.inner_height);
        const Neighbours across = neighbours_of(x, p.width, p.inner_width, p.scale_x, false);
        const Neighbours down = neighbours_of(y, p.height, p.inner_height, p.scale_y, p.darkens != 0);
        const unsigned char* above = p.pixels + (ptrdiff_t)down.low * p.row_step;
        const unsigned char* below = p.pixels + (ptrdiff_t)down.high * p.row_step;
        const ptrdiff_t low = (ptrdiff_t)across.low * p.column_step;
        const ptrdiff_t high = (ptrdiff_t)across.high * p.column_step;
        auto value = [&](int channel) {
            if (is_margin) return 0.5f;
            const float upper = lerp(byte_to_unit(above[low + channel]), byte_to_unit(above[high + channel]),
                across.low_share, across.high_share);
            const float lower = lerp(byte_to_unit(below[low + channel]), byte_to_unit(below[high + channel]),
                across.low_share, across.high_share);
            return lerp(upper, lower, down.low_share, down.high_share);
        };
        real* target = out + pixel * out_pitch;
        if (channels == 3 && out_pitch == 4) {
            const Pack<4> colours = {{value(0), value(1), value(2), 0.f}};
            store<4>(target, colours);
            continue;
        }
        for (int channel = 0; channel < channels; ++channel) put(target + channel, value(channel));
    }
}
