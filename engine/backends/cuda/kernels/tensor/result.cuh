// How results are stored; OUT_BYTES is chosen at compile time. What is read may be stored otherwise.
#pragma once
#include "common.cuh"

#if OUT_BYTES == 2
typedef __half result;
#else
typedef float result;
#endif
#define OUT_PACK (16 / OUT_BYTES)
