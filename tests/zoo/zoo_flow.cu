// Zoo: control flow, barriers, shared and local memory, functions, pointers.
#include <cassert>
#include <cstdint>
#include <cstdio>

// ---- control flow ----
ZOO collatz(const unsigned *x, int *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long v = x[i] % 100000 + 1;
    int k = 0;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v / 2;
        k++;
    }
    steps[i] = k;
}

ZOO early_exit(const int *x, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (x[i] < 30)
        return;
    if (x[i] % 3 == 0) {
        out[i] = -1;
        return;
    }
    for (int k = 0; k < 100; k++) {
        if (k * k > x[i]) {
            out[i] = k;
            return;
        }
    }
}

ZOO nested(const int *x, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = x[i], r = 0;
    if (v & 1) {
        if (v & 2) {
            r = v * 3;
            if (v & 4)
                r += 7;
            else
                r -= 5;
        } else {
            for (int k = 0; k < (v & 7); k++)
                r += k & 1 ? k : -k;
        }
    } else if (v & 8) {
        r = v % 7 == 0 ? 100 : v % 5 == 0 ? 200 : 300;
    } else {
        r = v >> 1;
    }
    out[i] = r + (v & 16 ? 1 : 2);
}

ZOO switches(const int *x, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = x[i], r = v;
    switch (v % 11) {
    case 0: r = v * 31 + 1; break;
    case 1: r = v ^ 0x55; break;
    case 2: r = v - 1000; // falls through
    case 3: r += 17; break;
    case 4: r = -v; break;
    case 5: r = v << 3; break;
    case 6: r = v / 3; break;
    case 7: r = v * v; break;
    case 8: for (int k = 0; k < v % 5; k++) r += k * v; break;
    case 9: r = ~v; break;
    default: r = 77; break;
    }
    out[i] = r;
}

// Loops with several ways out, and a turn that is skipped.
ZOO loops(const int *x, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int sum = 0;
    for (int a = 0; a < 20; a++) {
        if ((x[i] + a) % 3 == 0)
            continue;
        int b = 0;
        do {
            sum += a * b;
            if (sum > 500 + x[i])
                goto done;
            if (b * a > 40)
                break;
        } while (++b < x[i] % 9);
        sum ^= a;
    }
done:
    out[i] = sum;
}

// ---- barriers and shared memory ----
ZOO stencil(const float *x, float *out, int rounds)
{
    __shared__ float cell[130];
    int t = threadIdx.x;
    cell[t + 1] = x[blockIdx.x * 128 + t];
    if (t == 0)
        cell[0] = cell[129] = 0;
    __syncthreads();
    for (int k = 0; k < rounds; k++) {
        float v = 0.25f * cell[t] + 0.5f * cell[t + 1] + 0.25f * cell[t + 2];
        __syncthreads();
        cell[t + 1] = v;
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = cell[t + 1];
}

ZOO bitonic_sort(const int *x, int *sorted)
{
    __shared__ int v[256];
    int t = threadIdx.x;
    v[t] = x[blockIdx.x * 256 + t];
    for (int size = 2; size <= 256; size *= 2) {
        for (int d = size / 2; d > 0; d /= 2) {
            __syncthreads();
            int other = t ^ d;
            if (other > t) {
                bool up = (t & size) == 0;
                int a = v[t], b = v[other];
                if ((a > b) == up) {
                    v[t] = b;
                    v[other] = a;
                }
            }
        }
    }
    __syncthreads();
    sorted[blockIdx.x * 256 + t] = v[t];
}

// Two warps give, two take, by named barriers of 128 threads.
ZOO producer_consumer(const int *x, int *out, int rounds)
{
    __shared__ int slot[64];
    int t = threadIdx.x;
    if (t < 64) {
        for (int k = 0; k < rounds; k++) {
            asm volatile("bar.sync 1, 128;" ::: "memory"); // empty
            slot[t] = x[k * 64 + t] * 2 + 1;
            asm volatile("bar.arrive 2, 128;" ::: "memory"); // full
        }
        asm volatile("bar.sync 1, 128;" ::: "memory");
    } else {
        asm volatile("bar.arrive 1, 128;" ::: "memory");
        for (int k = 0; k < rounds; k++) {
            asm volatile("bar.sync 2, 128;" ::: "memory");
            out[k * 64 + t - 64] = slot[t - 64];
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        }
    }
}

// Warps that have left do not hold up the others.
ZOO leave_early(const int *x, int *out)
{
    __shared__ int v[128];
    int t = threadIdx.x;
    if (t >= 64)
        return;
    v[t] = x[t];
    __syncthreads();
    out[t] = v[63 - t];
}

// One block of dynamic shared memory, seen as three arrays.
ZOO dynamic_views(const float *x, const int *k, float *out, int n)
{
    extern __shared__ double dynamic[];
    float *f = (float *)dynamic;
    int *i = (int *)(f + n);
    unsigned char *b = (unsigned char *)(i + n);
    int t = threadIdx.x;
    f[t] = x[t];
    i[t] = k[t];
    b[t] = (unsigned char)(k[t] * 3);
    __syncthreads();
    out[t] = f[n - 1 - t] + (float)i[(t + 1) % n] + (float)b[(t + 2) % n];
}

ZOO vector_shared(const float4 *x, float4 *out)
{
    __shared__ float4 v[64];
    v[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float4 a = v[63 - threadIdx.x];
    const float *flat = (const float *)v;
    a.x += flat[threadIdx.x];
    out[threadIdx.x] = a;
}

// ---- local memory ----
ZOO local_index(const int *x, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int seen[16];
    for (int k = 0; k < 16; k++)
        seen[k] = 0;
    for (int k = 0; k < 32; k++)
        seen[(x[i] * (k + 1) + k) & 15] += k;
    int r = 0;
    for (int k = 0; k < 16; k++)
        r = r * 3 + seen[(k * 5) & 15];
    out[i] = r;
}

__device__ __noinline__ void swap_any(int *a, int *b) // pointers into any space
{
    int v = *a;
    *a = *b;
    *b = v;
}

ZOO generic_pointers(int *x, int *out)
{
    __shared__ int s[64];
    int local[4] = {1, 2, 3, 4}, t = threadIdx.x;
    s[t] = t * 10;
    __syncthreads();
    swap_any(&s[t], &x[t]);
    swap_any(&local[t & 3], &s[t]);
    swap_any(&local[(t + 1) & 3], &local[2]);
    __syncthreads();
    out[t] = s[t ^ 1] + local[0] * 100 + local[1] * 1000 + local[2] * 10000 + local[3] * 100000;
    out[t] += __isShared(&s[t]) + 2 * __isLocal(&local[0]) + 4 * __isGlobal(x) + 8 * __isShared(x);
}

// ---- functions ----
struct pair {
    long long sum;
    float product;
    short tag;
};
__device__ __noinline__ pair combine(pair a, float b, char c)
{
    pair r = {a.sum + c, a.product * b, (short)(a.tag ^ c)};
    return r;
}
ZOO noinline_calls(const int *x, long long *sums, float *products, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    pair p = {x[i], 1.0f, 3};
    for (int k = 0; k < 4; k++)
        p = combine(p, (float)(x[i] % 7), (char)(k - 2));
    sums[i] = p.sum * 100 + p.tag;
    products[i] = p.product;
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
ZOO recursion(int *out)
{
    out[threadIdx.x] = fibonacci(threadIdx.x % 12);
}

__device__ __noinline__ int op_add(int a, int b) { return a + b; }
__device__ __noinline__ int op_sub(int a, int b) { return a - b; }
__device__ __noinline__ int op_mul(int a, int b) { return a * b; }
ZOO indirect_calls(const int *x, int *out)
{
    int (*op)(int, int) = threadIdx.x % 3 == 0 ? op_add : threadIdx.x % 3 == 1 ? op_sub : op_mul;
    out[threadIdx.x] = op(x[threadIdx.x], 5);
}

// ---- pointers ----
struct views {
    const float *a;
    float scale;
    int n;
    float *out;
    const int *index;
};
ZOO struct_by_value(views v, float add)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < v.n)
        v.out[i] = v.a[v.index[i]] * v.scale + add;
}

ZOO selected_pointer(float *a, float *b, const float *c, int which, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float *to = which ? a : b;
    if (i < n)
        to[i] = c[i] + 1.0f;
}

ZOO offset_pointer(float *x, int half)
{
    float *second = x + half;
    int i = threadIdx.x;
    second[i] = x[i] * 2.0f;
}

// ---- variables of the module ----
__constant__ int primes[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
__constant__ struct {
    double a;
    float b[3];
} mixed = {2.5, {1.0f, -1.0f, 0.5f}};
__device__ int table[8] = {1, 1, 2, 3, 5, 8, 13, 21};
__device__ int *alias = table + 2;
__device__ int result[64];
ZOO constant_table(const int *x, int *out)
{
    int t = threadIdx.x;
    out[t] = primes[x[t] & 15] * primes[t & 15] + (int)(mixed.a * 2) + (int)(mixed.b[t % 3] * 4.0f);
}
ZOO device_globals(const int *x, int *out)
{
    int t = threadIdx.x;
    result[t] = x[t] + alias[t % 4] * 10;
    out[t] = result[t] + table[t % 8] * 1000;
}

// ---- inline assembly: registers in nested scopes, a label, a predicate ----
ZOO inline_asm(const int *x, int *out)
{
    int v = x[threadIdx.x], r;
    asm("{\n\t.reg .b32 t;\n\t.reg .pred p;\n\tadd.s32 t, %1, 5;\n\tsetp.gt.s32 p, t, 40;\n\t"
        "{\n\t.reg .b32 t;\n\tmov.b32 t, 3;\n\t@p mul.lo.s32 %0, %1, t;\n\t@!p sub.s32 %0, %1, t;\n\t}\n\t"
        "add.s32 %0, %0, t;\n\t}"
        : "=&r"(r)
        : "r"(v));
    asm("{\n\t.reg .pred q;\n\t.reg .b32 k;\n\tmov.b32 k, 0;\nagain%=:\n\tadd.s32 k, k, 1;\n\tadd.s32 %0, %0, k;\n\t"
        "setp.lt.s32 q, k, %1;\n\t@q bra again%=;\n\t}"
        : "+r"(r)
        : "r"(v & 7));
    out[threadIdx.x] = r;
}

ZOO prints(const int *x, int *out)
{
    int t = threadIdx.x;
    if (t == 3)
        printf("thread %d has %d and %g of %s\n", t, x[t], 0.5 * x[t], "the zoo");
    assert(x[t] >= 0);
    out[t] = x[t] + 1;
}
