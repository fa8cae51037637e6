// The type of results, chosen at compile time by OUT_BYTES. It may differ from the type of the inputs.
#pragma once
#include "common.cuh"

#if OUT_BYTES == 2
typedef __half result;
#else
typedef float result;
#endif
#define OUT_PACK (16 / OUT_BYTES)
#define RAW 2  // a value of YOLO: 0 without [yolo], 1 with logistic, 2 if [yolo] only scales
