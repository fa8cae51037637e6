// What activations are made of; joined in front of them. An exact division takes some twenty
// instructions and a branch, across which nothing can be moved: two thirds of a swish.
#pragma once
#define DEVICE __device__ __forceinline__

// 1 / x for x >= 1, to the last bit or the one before it.
DEVICE float reciprocal(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.f / x;
#endif
}

// e to the power of x. Where values are stored as halves by two instructions: the error, 6e-8 times
// x, is far below theirs.
DEVICE float exponential(float x)
{
#if defined(__CUDA_ARCH__) && defined(STORE_HALF)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950409f));
    return y;
#else
    return expf(x);
#endif
}

// By one instruction where values are stored as halves: the error, at most 2^-11 of it, is theirs.
DEVICE float hyperbolic_tangent(float x)
{
#if defined(__CUDA_ARCH__) && defined(STORE_HALF)
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return tanhf(x);
#endif
}

// 1 / x for several x from 1 to 2^31, as reciprocal() or a few bits less. The units for powers and
// reciprocals take eight times as long as those for products, and a mish or logistic wants two of
// them: of halves four values share one, since nobody sees the last bits.
template <int N> DEVICE void reciprocals(float (&x)[N])
{
#ifdef STORE_HALF
#pragma unroll
    for (int i = 0; i + 4 <= N; i += 4) {
        const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
        const float of_all = reciprocal(a * b * (c * d));
        const float of_ab = of_all * (c * d), of_cd = of_all * (a * b);
        x[i] = of_ab * b;
        x[i + 1] = of_ab * a;
        x[i + 2] = of_cd * d;
        x[i + 3] = of_cd * c;
    }
    const int alone = N / 4 * 4;
#else
    const int alone = 0;
#endif
#pragma unroll
    for (int i = alone; i < N; ++i) x[i] = reciprocal(x[i]);
}
