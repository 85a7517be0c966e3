// Zoo: atomics, histograms, and what grids do together. Results do not depend on the order.
#include <cstdint>

ZOO histogram_global(const unsigned char *x, unsigned *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&count[x[i] & 31], 1u);
}

ZOO histogram_shared(const unsigned char *x, unsigned *count, int n)
{
    __shared__ unsigned bins[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[x[i] & 63], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        if (bins[i])
            atomicAdd(&count[i], bins[i]);
}

ZOO atomic_cas(const double *x, double *sum, int *highest_bits, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long *p = (unsigned long long *)sum, old = *p, seen;
    do { // doubles that add exactly
        seen = old;
        old = atomicCAS(p, seen, __double_as_longlong(__longlong_as_double(seen) + x[i]));
    } while (old != seen);
    float f = (float)x[i];
    int now = *highest_bits, was;
    do {
        was = now;
        if (__int_as_float(was) >= f)
            break;
        now = atomicCAS(highest_bits, was, __float_as_int(f));
    } while (now != was);
}

ZOO atomic_wrap(unsigned *up, unsigned *down, int n)
{
    if ((int)(blockIdx.x * blockDim.x + threadIdx.x) < n) {
        atomicInc(up, 12);
        atomicDec(down, 9);
    }
}

ZOO atomic_all(const int *x, int *i32, unsigned *u32, long long *i64, unsigned long long *u64)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    atomicMin(&i32[0], v);
    atomicMax(&i32[1], v);
    atomicSub(&i32[2], v);
    atomicMin(&u32[0], (unsigned)v * 2654435761u);
    atomicMax(&u32[1], (unsigned)v * 2654435761u);
    atomicAnd(&u32[2], ~(1u << (v & 31)));
    atomicOr(&u32[3], 1u << (v & 31));
    atomicXor(&u32[4], (unsigned)v * 77u);
    atomicMin(&i64[0], (long long)v << 33);
    atomicMax(&i64[1], (long long)v << 33);
    atomicAdd(&u64[0], (unsigned long long)v << 20);
    atomicOr(&u64[1], 1ull << (v & 63));
    atomicMax(&u64[2], (unsigned long long)v << 40);
    if (i == 0)
        i32[3] = (int)atomicExch(&u32[5], 4711u);
}

// Integers in floats: any order gives the same sum.
ZOO atomic_float(const int *x, float *f, double *d)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(f, (float)x[i]);
    atomicAdd(d, (double)x[i] * 0.5);
    __shared__ float s;
    if (threadIdx.x == 0)
        s = 0;
    __syncthreads();
    atomicAdd(&s, (float)(x[i] & 15));
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(f + 1, s);
}

__device__ unsigned tickets;
ZOO last_block(const int *x, int *parts, int *total, int n)
{
    __shared__ bool last;
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&sum, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int all = 0;
        for (unsigned k = 0; k < gridDim.x; k++)
            all += ((volatile int *)parts)[k];
        *total = all;
    }
}

ZOO grid_stride(const float *x, float *y, float a, long long n)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}

ZOO grid_2d(int *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = x * 1000 + y;
}

ZOO grid_3d(int *out)
{
    int nx = gridDim.x * blockDim.x, ny = gridDim.y * blockDim.y;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
        z = blockIdx.z * blockDim.z + threadIdx.z;
    out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z + 1000000 * (int)threadIdx.z;
}
