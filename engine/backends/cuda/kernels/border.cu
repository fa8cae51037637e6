// border: between the host's float (rows, channels, height, width) and the network's own layout.
//
//   enter  host values -> an NHWC tensor        leave  an NHWC tensor -> host values
//
// Where the host's values are is read when `enter` runs: every run brings them in another place.
//
// Work item  one value, in the order in which it is written.   Memory  writes coalesce.
#include "common.cuh"

extern "C" __global__ void enter(const float* const* src_pointer, real* __restrict__ out,
                                 int pixels, int channels, int area, int out_pitch)
{
    after_previous_kernel();
    const float* __restrict__ src = *src_pointer;
    GRID_STRIDE(item, pixels * channels)
    {
        const int pixel = item / channels;
        const int channel = item - pixel * channels;
        const int row = pixel / area;
        put(out + pixel * out_pitch + channel,
            src[(row * channels + channel) * area + pixel - row * area]);
    }
}

extern "C" __global__ void leave(const real* __restrict__ src, float* __restrict__ out, int pixels,
                                 int channels, int area, int src_pitch, unsigned* flag)
{
    after_previous_kernel();
    GRID_STRIDE(flat, pixels * channels)
    {
        out[flat] = to_float(src[place(flat, channels, area, src_pitch)]);
        note_strange(flag, out[flat]);
    }
}
