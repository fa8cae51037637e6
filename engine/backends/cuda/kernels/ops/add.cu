// add_two: out = f(a + b) for feature maps of the same height and width; b may have fewer channels.
// add_flat: adds one term of a sum whose sources are read flat, in (channel, y, x) order: a shorter source
//           adds to the first values only, a longer one is cut off.
// add_quarters_packed: adds both terms if b has four times the area: one channel of b is four
//           neighbouring channels of the sum, as where residual networks halve their maps.
//
// Work item  add_two, add_quarters: one pack of channels; add_flat: one output value.
// Memory     add_two coalesces; in add_quarters neighbouring threads read neighbouring channels of the same
//            four pixels; add_flat gathers value by value.
#include "common.cuh"

#define ADD_TWO_PARAMETERS                                                                      \
    const real *__restrict__ a, const real *__restrict__ b, real *__restrict__ out, int pixels, \
        int channels, int b_channels, int a_pitch, int b_pitch, int out_pitch, int kind
#define ADD_TWO_ARGUMENTS a, b, out, pixels, channels, b_channels, a_pitch, b_pitch, out_pitch, kind

template <int V> DEVICE void add_two_body(ADD_TWO_PARAMETERS)
{
    FOR_EACH_PACK(V, pixel, pixels, channel, channels)
    {
        Pack<V> x = load<V>(a + pixel * a_pitch + channel);
        if (channel < b_channels) {
            const Pack<V> y = load<V>(b + pixel * b_pitch + channel);
            UNROLL(i, V) x.v[i] += y.v[i];
        }
        activate_all(kind, x.v);
        store<V>(out + pixel * out_pitch + channel, x);
    }
}

SCALAR_AND_PACKED(add_two, ADD_TWO)

extern "C" __global__ void add_quarters_packed(const real* __restrict__ a, const real* __restrict__ b,
    real* __restrict__ out, int pixels, int channels, int area, int b_channels, int a_pitch, int b_pitch,
    int out_pitch, int kind)
{
    after_previous_kernel();
    const int share = PACK / 4;  // channels of b in a pack
    FOR_EACH_PACK(PACK, pixel, pixels, channel, channels)
    {
        Pack<PACK> x = load<PACK>(a + pixel * a_pitch + channel);
        if (channel / 4 < b_channels) {
            const int row = pixel / area;
            // pixel - row * area in the first quarter of the row's 4 * area pixels of b
            const real* from = b + (size_t)(pixel + row * 3 * area) * b_pitch + channel / 4;
            UNROLL(quarter, 4) {
                const Pack<share> y = load<share>(from + (size_t)quarter * area * b_pitch);
                UNROLL(i, share) x.v[i * 4 + quarter] += y.v[i];
            }
        }
        activate_all(kind, x.v);
        store<PACK>(out + pixel * out_pitch + channel, x);
    }
}

// `weights` is one factor, or one per channel if weight_step is 1; null means 1. The first term overwrites
// `out`; the last one applies the activation.
extern "C" __global__ void add_flat(const real* __restrict__ src, const float* __restrict__ weights,
    real* out, int rows, int out_channels, int out_area, int channels, int area, int src_pitch, int out_pitch,
    int weight_step, int is_first, int is_last, int kind)
{
    after_previous_kernel();
    const int size = out_channels * out_area;
    const int src_size = channels * area;
    GRID_STRIDE(item, rows * size)
    {
        const int row = item / size;
        const int pixel = (item - row * size) / out_channels;
        const int channel = item - row * size - pixel * out_channels;
        const int flat = channel * out_area + pixel;
        real* o = out + (row * out_area + pixel) * out_pitch + channel;
        float sum = is_first ? 0.f : to_float(*o);
        if (flat < src_size) {
            const int from = nhwc_offset(row * src_size + flat, channels, area, src_pitch);
            sum += to_float(src[from]) * (weights ? weights[channel * weight_step] : 1.f);
        }
        put(o, is_last ? activate(kind, sum) : sum);
    }
}
