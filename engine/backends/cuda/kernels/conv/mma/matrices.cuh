// Matrices in shared memory whose rows are not those of the slices, and what lies further on in one.
#pragma once

// As matrix_descriptor, of rows of BYTES.
template <int BYTES> DEVICE unsigned long long matrix_of(unsigned address, int apart = 8)
{
    const unsigned long long swizzle = BYTES == 128 ? 1 : BYTES == 64 ? 2 : 3;
    return (unsigned long long)((address & 0x3FFFF) >> 4) | 1ull << 16 |
        (unsigned long long)(apart * BYTES >> 4) << 32 | swizzle << 62;
}

// A matrix that lies so many bytes, whole sixteens, further on.
DEVICE unsigned long long advance_descriptor(unsigned long long matrix, int bytes)
{
    return matrix + (bytes >> 4);
}
