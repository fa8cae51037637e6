// frames: NV12, as a video decoder leaves it -> bytes (height, width, 3). Launched by runtime/card_videos.py.
//
// Bit for bit the same as swscale's 4:2:0 converter on x86: vision/yuv.py has its factors.
//
// Work item  four pixels of a line, which are three words.   Memory  reads hit the cache, writes coalesce.
#include "common.cuh"

// The upper half of a product of 16-bit numbers.
DEVICE int upper_half(int value, int factor)
{
    return (value * factor) >> 16;
}

DEVICE unsigned to_byte(int value)
{
    return (unsigned)min(max(value, 0), 255);
}

extern "C" __global__ void frame_to_rgb(const unsigned char* __restrict__ luma,
    const unsigned char* __restrict__ chroma, unsigned* __restrict__ out, int packs, int width, int luma_step,
    int chroma_step, int y_factor, int y_offset, int red_v, int green_u, int green_v, int blue_u)
{
    after_previous_kernel();
    const int across = (width + 3) / 4;
    GRID_STRIDE(pack, packs)
    {
        const int line = pack / across;
        const int left = (pack - line * across) * 4;
        const unsigned char* brightness = luma + (ptrdiff_t)line * luma_step;
        const unsigned char* colours = chroma + (ptrdiff_t)(line / 2) * chroma_step;
        unsigned words[3] = {0, 0, 0};
        for (int i = 0; i < 4; ++i) {
            const int x = min(left + i, width - 1);  // a line is padded to whole packs
            const int y = upper_half(brightness[x] * 8 - y_offset, y_factor);
            const int u = colours[x / 2 * 2] * 8 - 1024;
            const int v = colours[x / 2 * 2 + 1] * 8 - 1024;
            const unsigned bytes[3] = {to_byte(y + upper_half(v, red_v)),
                to_byte(y + upper_half(u, green_u) + upper_half(v, green_v)), to_byte(y + upper_half(u, blue_u))};
            for (int k = 0; k < 3; ++k) words[(3 * i + k) / 4] |= bytes[k] << (3 * i + k) % 4 * 8;
        }
        for (int k = 0; k < 3; ++k) out[pack * 3 + k] = words[k];
    }
}
