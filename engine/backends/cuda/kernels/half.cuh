// The float16 instructions that the kernels need. CUDA's own header has thousands of lines, which
// NVRTC would read in every compilation, and needs one more package.
#pragma once

struct half {
    unsigned short bits;
};

#ifdef __CUDACC__
DEVICE float to_float(half x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

DEVICE half to_half(float x)
{
    half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

DEVICE half __ldcg(const half* p) { return {__ldcg(&p->bits)}; }

// Two halves in a word.
DEVICE unsigned pack_half2(float low, float high)
{
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return to_half(low).bits | (unsigned)to_half(high).bits << 16;
#endif
}

DEVICE float low_of(unsigned pair) { return to_float(half{(unsigned short)pair}); }
DEVICE float high_of(unsigned pair) { return to_float(half{(unsigned short)(pair >> 16)}); }

// Defines a function of two pairs that compiles to one instruction.
#define HALF2(name, instruction)                                       \
    DEVICE unsigned name(unsigned a, unsigned b)                       \
    {                                                                  \
        unsigned both;                                                 \
        asm(instruction " %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b)); \
        return both;                                                   \
    }
HALF2(add_half2, "add.f16x2")
HALF2(multiply_half2, "mul.f16x2")

// Both return the larger values. If one is NaN, the first returns the number, the second NaN.
#if __CUDA_ARCH__ >= 800
HALF2(max_half2, "max.f16x2")
HALF2(max_half2_nan, "max.NaN.f16x2")
#else
DEVICE unsigned max_half2(unsigned a, unsigned b)
{
    return pack_half2(fmaxf(low_of(a), low_of(b)), fmaxf(high_of(a), high_of(b)));
}
#endif
#undef HALF2
#else
#include <half_on_host.h>  // the same functions in C++, for tests that run kernels on the host
#endif
