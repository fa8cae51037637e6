// Division by a number that the host knows, as a multiplication and a shift. An integer division takes
// about thirty dependent instructions, which a block that computes only one tile cannot hide.
#pragma once

// Valid for dividends below 2^31.
struct Divisor {
    unsigned factor;
    int shift;
};

DEVICE int divide(int n, Divisor by)
{
    return (int)((unsigned long long)(unsigned)n * by.factor >> by.shift);
}
