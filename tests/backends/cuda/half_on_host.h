// The functions of half.cuh in C++.
#pragma once
#include <cmath>
#include <cstdint>

inline float value_of_bits(int bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                             : std::ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

struct HalfValues {
    float of_bits[1 << 16];

    HalfValues()
    {
        for (int bits = 0; bits < 1 << 16; ++bits) of_bits[bits] = value_of_bits(bits);
    }
};
static const HalfValues half_values;

inline float to_float(half h) { return half_values.of_bits[h.bits]; }

// Rounds to nearest, ties to even: std::nearbyint does.
inline half to_half(float x)
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

inline unsigned pack_half2(float low, float high)
{
    return to_half(low).bits | unsigned(to_half(high).bits) << 16;
}

// f(x, y) for the low and for the high values.
template <typename F> unsigned each_half2(unsigned a, unsigned b, F f)
{
    const auto value = [](unsigned word) { return to_float(half{uint16_t(word)}); };
    return pack_half2(f(value(a), value(b)), f(value(a >> 16), value(b >> 16)));
}

inline unsigned add_half2(unsigned a, unsigned b)
{
    return each_half2(a, b, [](float x, float y) { return x + y; });
}
inline unsigned multiply_half2(unsigned a, unsigned b)
{
    return each_half2(a, b, [](float x, float y) { return x * y; });
}
inline unsigned max_half2(unsigned a, unsigned b)
{
    return each_half2(a, b, [](float x, float y) { return std::fmax(x, y); });
}
inline unsigned max_half2_nan(unsigned a, unsigned b)
{
    return each_half2(a, b, [](float x, float y) { return x != x || x > y ? x : y; });
}
