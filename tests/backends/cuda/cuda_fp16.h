// As much of CUDA's header of this name as the kernels use: conversions, and the sum of pairs.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

struct __half {
    uint16_t bits;
};

inline float value_of_bits(int bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                             : std::ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

inline float __half2float(__half h)
{
    static const std::vector<float> values = [] {
        std::vector<float> all(1 << 16);
        for (int bits = 0; bits < 1 << 16; ++bits) all[bits] = value_of_bits(bits);
        return all;
    }();
    return values[h.bits];
}

// Rounds to nearest, ties to even: std::nearbyint does.
inline __half __float2half_rn(float x)
{
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const float size = std::fabs(x);
    if (std::isnan(x)) return {uint16_t(sign | 0x7e00)};
    if (size >= 65520.f) return {uint16_t(sign | 0x7c00)};
    if (size < 0x1p-14f) return {uint16_t(sign | int(std::nearbyint(std::ldexp(size, 24))))};
    int exponent;
    std::frexp(size, &exponent);  // size = 0.1... * 2^exponent
    const int places = int(std::nearbyint(std::ldexp(size, 11 - exponent)));
    // A fraction that rounds up to 2048 carries into the exponent by itself.
    return {uint16_t(sign | (((exponent + 13) << 10) + places))};
}

struct __half2 {
    __half x, y;
};
inline __half2 __hmax2_nan(__half2 a, __half2 b)
{
    const auto most = [](__half x, __half y) {
        const float f = __half2float(x), g = __half2float(y);
        return f != f || f > g ? x : y;
    };
    return {most(a.x, b.x), most(a.y, b.y)};
}
inline __half2 __hadd2(__half2 a, __half2 b)
{
    return {__float2half_rn(__half2float(a.x) + __half2float(b.x)),
            __float2half_rn(__half2float(a.y) + __half2float(b.y))};
}
