// Building blocks of the activations, which follow them in every compilation. An exact division
// would take about twenty instructions and a branch, two thirds of a swish.
#pragma once
#define DEVICE __device__ __forceinline__
#define UNROLL(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)

// 1 / x for x >= 1, to one unit in the last place.
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

// exp(x). In half precision it takes two instructions; the relative error, 6e-8 * x, is far below that of
// a half.
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

// tanh(x). In half precision it is one instruction, whose relative error of up to 2^-11 is that of a
// half.
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

// 1 / x for several x from 1 to 2^31, as exact as reciprocal() or a few bits less. Exponentials and
// reciprocals run at an eighth of the rate of multiplications, and mish and logistic need two of
// them; in half precision four values share one reciprocal.
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
