// Quotients by numbers that the host knows: a division takes some thirty instructions, each of which waits
// for the one before it, and where a block finishes one tile it waits for all of them first.
#pragma once

// Divides what is below 2^31.
struct Divisor {
    unsigned factor;
    int shift;
};

DEVICE int divide(int n, Divisor by)
{
    return (int)((unsigned long long)(unsigned)n * by.factor >> by.shift);
}
