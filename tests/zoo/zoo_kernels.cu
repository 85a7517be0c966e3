// The kernel zoo: one unit, so that its PTX and the program that launches it are the same text.
#define ZOO extern "C" __global__ void
#include "zoo_reduce.cu"
#include "zoo_flow.cu"
#include "zoo_atomic.cu"
#include "zoo_model.cu"
#include "zoo_math.cu"
