// How results are stored; OUT_BYTES is chosen at compile time. What is read may be stored otherwise.
#pragma once
#include "common.cuh"

#if OUT_BYTES == 2
typedef __half result;
#else
typedef float result;
#endif
#define OUT_PACK (16 / OUT_BYTES)
#define RAW 2  // of YOLO: 0 where no [yolo] follows, 1 where it is logistic, 2 where it scales alone
