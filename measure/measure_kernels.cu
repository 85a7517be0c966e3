/* The kernels of acct-bench. Built to PTX for compute_75, which any device from there on compiles; no instruction is used
 * that came later (bf16 and fp8 are rounded by hand). */
#include <cuda_fp16.h>

/* The numbers are those of measure_cuda.h. */
enum { FILL_FP64, FILL_FP32, FILL_BF16, FILL_FP16, FILL_FP8_E4M3, FILL_INT8 };

/* 64 bits that depend on all bits of x (the finalizer of splitmix64). */
__device__ static unsigned long long mix(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* About normal, mean 0, variance 1: the sum of twelve uniform numbers of five bits, centred. Bounded (+-6), so it
 * overflows in no format. */
__device__ static float normal(unsigned long long x) {
    unsigned long long bits = mix(x);
    int sum = 0;
    for (int i = 0; i < 12; i++) sum += (int)(bits >> (5 * i)) & 31;
    /* a second draw behind the first's steps of 1/32: mantissas are full of random bits */
    float fine = (float)(unsigned)(mix(~x) >> 40) * (1.f / 16777216);
    return ((float)sum + fine - 186.5f) * (1.f / 32);
}

__device__ static unsigned short bf16(float v) {
    unsigned u = __float_as_uint(v);
    return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* Round to nearest even; |v| < 448, so nothing saturates. Below 2^-6 the steps are 2^-9. */
__device__ static unsigned char fp8_e4m3(float v) {
    unsigned u = __float_as_uint(v), sign = (u >> 24) & 0x80;
    int exponent = (int)((u >> 23) & 255) - 127;
    if (exponent < -6) return (unsigned char)(sign | (unsigned)__float2int_rn(fabsf(v) * 512));
    u = (u & 0x7fffffff) + 0x7ffff + ((u >> 20) & 1);
    return (unsigned char)(sign | ((u >> 20) - (120u << 3)));
}

/* n random numbers of `format`. */
extern "C" __global__ void acct_fill(void *out, unsigned long long n, int format, unsigned long long seed) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float v = normal(seed + i);
        if (format == FILL_FP64) ((double *)out)[i] = v;
        if (format == FILL_FP32) ((float *)out)[i] = v;
        if (format == FILL_BF16) ((unsigned short *)out)[i] = bf16(v);
        if (format == FILL_FP16) ((__half *)out)[i] = __float2half_rn(v);
        if (format == FILL_FP8_E4M3) ((unsigned char *)out)[i] = fp8_e4m3(v);
        if (format == FILL_INT8) ((signed char *)out)[i] = (signed char)__float2int_rn(v * 16);
    }
}

/* n elements of 16 bytes. */
extern "C" __global__ void acct_copy(uint4 *to, const uint4 *from, unsigned long long n) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

extern "C" __global__ void acct_nothing(void) {
}
