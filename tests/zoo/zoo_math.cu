// Zoo: arithmetic. What is exact is written as bits; the approximate functions have kernels of their own.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

ZOO int64_arith(const long long *a, const long long *b, long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    long long x = a[i], y = b[i];
    unsigned long long u = (unsigned long long)x, v = (unsigned long long)y;
    out[8 * i + 0] = x + y;
    out[8 * i + 1] = x * y;
    out[8 * i + 2] = __mul64hi(x, y);
    out[8 * i + 3] = (long long)__umul64hi(u, v);
    out[8 * i + 4] = (x << (y & 63)) ^ (x >> (y & 31));
    out[8 * i + 5] = (long long)(u >> (v & 63));
    out[8 * i + 6] = x < y ? x & y : x | y;
    out[8 * i + 7] = llabs(x) + (u < v) + 2 * (x <= 0);
}

ZOO divisions(const int *a, const int *b, long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = a[i], y = b[i];
    unsigned u = (unsigned)x, v = (unsigned)y;
    long long p = (long long)x * 1000003, q = (long long)y * 7919;
    unsigned long long r = (unsigned long long)u * 4000000007ull, s = (unsigned long long)v * 31 + 1;
    out[8 * i + 0] = x / y;
    out[8 * i + 1] = x % y;
    out[8 * i + 2] = u / v;
    out[8 * i + 3] = u % v;
    out[8 * i + 4] = p / q;
    out[8 * i + 5] = p % q;
    out[8 * i + 6] = (long long)(r / s);
    out[8 * i + 7] = (long long)(r % s);
}

ZOO double_arith(const double *a, const double *b, double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i], y = b[i];
    out[8 * i + 0] = __dadd_rn(x, y);
    out[8 * i + 1] = __dmul_rn(x, y);
    out[8 * i + 2] = x / y;
    out[8 * i + 3] = sqrt(fabs(x));
    out[8 * i + 4] = fma(x, y, x);
    out[8 * i + 5] = fmin(x, y) + fmax(x, -y) * 2.0;
    out[8 * i + 6] = floor(x) + ceil(y) + rint(x * 3) + trunc(y * 5);
    out[8 * i + 7] = x > y ? (double)(float)x : copysign(y, x);
}

ZOO double_rounding(const double *a, const double *b, double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i], y = b[i];
    out[8 * i + 0] = __dadd_rz(x, y);
    out[8 * i + 1] = __dmul_ru(x, y);
    out[8 * i + 2] = __ddiv_rd(x, y);
    out[8 * i + 3] = __dsqrt_ru(fabs(x));
    out[8 * i + 4] = __fma_rd(x, y, x);
    out[8 * i + 5] = __drcp_rz(y);
    out[8 * i + 6] = __dsub_ru(x, y);
    out[8 * i + 7] = __dadd_rd(x, -x);
}

ZOO float_rounding(const float *a, const float *b, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = a[i], y = b[i], *o = out + 16 * i;
    o[0] = __fadd_rn(x, y);
    o[1] = __fadd_rz(x, y);
    o[2] = __fadd_rd(x, y);
    o[3] = __fadd_ru(x, y);
    o[4] = __fmul_rz(x, y);
    o[5] = __fmul_ru(x, y);
    o[6] = __fdiv_rn(x, y);
    o[7] = __fdiv_rd(x, y);
    o[8] = __fsqrt_rn(fabsf(x));
    o[9] = __fsqrt_rz(fabsf(x));
    o[10] = __fmaf_rn(x, y, x);
    o[11] = __fmaf_rd(x, y, -x);
    o[12] = __frcp_rn(y);
    o[13] = __frcp_ru(y);
    o[14] = fminf(x, y);
    o[15] = fmaxf(x, y);
}

ZOO bit_tricks(const unsigned *a, const unsigned *b, unsigned *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = a[i], y = b[i], *o = out + 16 * i;
    unsigned long long w = (unsigned long long)x << 32 | y;
    o[0] = __popc(x) + 100 * __popcll(w);
    o[1] = __clz(x & 0xffff) + 100 * __clzll(y & 7);
    o[2] = __brev(x);
    o[3] = (unsigned)(__brevll(w) >> 16);
    o[4] = __ffs(x & 0xf0) + 100 * __ffsll(w);
    o[5] = __funnelshift_l(x, y, i);
    o[6] = __funnelshift_rc(x, y, i);
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(o[7]) : "r"(x), "r"(y), "r"(0x3715 + i));
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(o[8]) : "r"(x), "r"(i & 31), "r"(y & 31));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(o[9]) : "r"(x), "r"(i & 31), "r"(y & 31));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(o[10]) : "r"(x), "r"(y), "r"(i & 31), "r"(7));
    asm("lop3.b32 %0, %1, %2, %3, 0xd4;" : "=r"(o[11]) : "r"(x), "r"(y), "r"(~x >> 3));
    o[12] = __umulhi(x, y) ^ (unsigned)__mulhi((int)x, (int)y);
    o[13] = __usad(x, y, 7) ^ __mul24((int)x, (int)y) ^ __umul24(x, y);
    o[14] = (unsigned)__dp4a((int)x, (int)y, 5) ^ __dp4a(x, y, 9u);
    o[15] = __uhadd(x, y) ^ (unsigned)__hadd((int)x, (int)y);
}

// 128-bit sums and products by the carry flag.
ZOO carries(const unsigned *a, const unsigned *b, unsigned *out)
{
    int i = threadIdx.x;
    const unsigned *x = a + 4 * i, *y = b + 4 * i;
    unsigned *o = out + 8 * i;
    asm volatile("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
        : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]));
    unsigned lo, hi, lo2, hi2;
    asm volatile("mad.lo.cc.u32 %0, %4, %5, %6;\n\tmadc.hi.u32 %1, %4, %5, %7;\n\tsub.cc.u32 %2, %6, %4;\n\tsubc.u32 %3, %7, %5;"
        : "=&r"(lo), "=&r"(hi), "=&r"(lo2), "=&r"(hi2)
        : "r"(x[0]), "r"(y[0]), "r"(x[1]), "r"(y[1]));
    o[4] = lo;
    o[5] = hi;
    o[6] = lo2;
    o[7] = hi2;
}

ZOO conversions(const float *x, const double *d, const long long *k, unsigned *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    unsigned *o = out + 16 * i;
    o[0] = (unsigned)__float2int_rn(v) ^ (unsigned)__float2int_rz(v) * 3;
    o[1] = (unsigned)__float2int_rd(v) ^ (unsigned)__float2int_ru(v) * 3;
    o[2] = __float2uint_rn(v) ^ __float2uint_rz(v) * 3;
    o[3] = (unsigned)(__float2ll_rn(v) >> 8);
    o[4] = (unsigned)(__double2ll_rd(d[i]) >> 16) ^ (unsigned)__double2int_ru(d[i]);
    o[5] = (unsigned)(__double2ull_rz(d[i]) >> 16);
    o[6] = __float_as_uint(__double2float_rn(d[i]));
    o[7] = __float_as_uint(__double2float_rd(d[i])) ^ __float_as_uint(__double2float_ru(d[i])) * 3;
    o[8] = __float_as_uint(__ll2float_rn(k[i])) ^ __float_as_uint(__ll2float_rz(k[i])) * 3;
    o[9] = __float_as_uint(__ull2float_ru((unsigned long long)k[i]));
    o[10] = (unsigned)__double2hiint(__ll2double_rd(k[i])) ^ (unsigned)__double2loint(__ll2double_rd(k[i]));
    o[11] = __float_as_uint(__int2float_rn((int)k[i])) ^ __float_as_uint(__uint2float_rd((unsigned)k[i]));
    unsigned a, b, c, e;
    asm("{ .reg .s8 t; .reg .s16 u; cvt.sat.s8.s32 t, %1; cvt.s32.s8 %0, t; }" : "=r"(a) : "r"((int)(k[i] >> 40)));
    asm("{ .reg .u16 u; cvt.sat.u16.s32 u, %1; cvt.u32.u16 %0, u; }" : "=r"(b) : "r"((int)(k[i] >> 42)));
    asm("cvt.sat.u32.s64 %0, %1;" : "=r"(c) : "l"(k[i] >> 28));
    asm("cvt.sat.f32.f32 %0, %1;" : "=r"(e) : "f"(v));
    o[12] = a;
    o[13] = b;
    o[14] = c;
    o[15] = e;
}

ZOO half_conversions(const float *x, unsigned short *out, float *back, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    unsigned short *o = out + 8 * i;
    o[0] = __half_as_ushort(__float2half_rn(v));
    o[1] = __half_as_ushort(__float2half_rz(v));
    o[2] = __half_as_ushort(__float2half_rd(v));
    o[3] = __half_as_ushort(__float2half_ru(v));
    o[4] = __bfloat16_as_ushort(__float2bfloat16_rn(v));
    o[5] = __bfloat16_as_ushort(__float2bfloat16_rz(v));
    o[6] = __bfloat16_as_ushort(__float2bfloat16_rd(v));
    o[7] = __bfloat16_as_ushort(__float2bfloat16_ru(v));
    back[2 * i] = __half2float(__ushort_as_half(o[0]));
    back[2 * i + 1] = __bfloat162float(__ushort_as_bfloat16(o[4]));
}

ZOO half_ints(const int *x, unsigned short *out, int *back, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = x[i];
    out[4 * i] = __half_as_ushort(__int2half_rn(v));
    out[4 * i + 1] = __half_as_ushort(__uint2half_rz((unsigned)v));
    out[4 * i + 2] = __half_as_ushort(__ll2half_ru((long long)v * 3));
    out[4 * i + 3] = __half_as_ushort(__short2half_rd((short)v));
    half h = __int2half_rn(v / 64);
    back[2 * i] = __half2int_rn(h) * 3 + __half2int_rz(h);
    back[2 * i + 1] = (int)__half2uint_ru(h) + __half2short_rd(h);
}

ZOO half2_arith(const half2 *a, const half2 *b, half2 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    half2 x = a[i], y = b[i], *o = out + 12 * i;
    o[0] = __hadd2(x, y);
    o[1] = __hsub2(x, y);
    o[2] = __hmul2(x, y);
    o[3] = __hfma2(x, y, x);
    o[4] = __hmin2(x, y);
    o[5] = __hmax2(x, y);
    o[6] = __hneg2(__habs2(x));
    o[7] = __hadd2_sat(x, y);
    o[8] = __hfma2_relu(x, y, y);
    o[9] = __hlt2(x, y);
    o[10] = __lowhigh2highlow(x);
    o[11] = __hbge2(x, y) ? __low2half2(x) : __high2half2(y);
}

ZOO bf162_arith(const __nv_bfloat162 *a, const __nv_bfloat162 *b, __nv_bfloat162 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __nv_bfloat162 x = a[i], y = b[i], *o = out + 8 * i;
    o[0] = __hadd2(x, y);
    o[1] = __hmul2(x, y);
    o[2] = __hfma2(x, y, x);
    o[3] = __hmin2(x, y);
    o[4] = __hmax2_nan(x, y);
    o[5] = __hneg2(x);
    o[6] = __floats2bfloat162_rn(__low2float(x) * 3.0f, __high2float(y));
    o[7] = __hfma2_relu(x, y, y);
}

ZOO half_scalar(const half *a, const half *b, half *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    half x = a[i], y = b[i], *o = out + 8 * i;
    o[0] = x + y;
    o[1] = x * y;
    o[2] = __hfma(x, y, x);
    o[3] = __hmax(x, y);
    o[4] = x < y ? x : y - x;
    o[5] = __float2half(__half2float(x) * 0.3f);
    o[6] = __hadd_sat(x, y);
    o[7] = hrint(x) + hfloor(y);
}

// ---- within an error ----
ZOO fast_math(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], p = fabsf(v) + 0.01f, *o = out + 8 * i;
    o[0] = __expf(v);
    o[1] = __logf(p);
    o[2] = __sinf(v);
    o[3] = __cosf(v);
    o[4] = __fdividef(v, p + 1.0f);
    o[5] = rsqrtf(p);
    o[6] = __powf(p, 0.7f);
    o[7] = exp2f(v);
}

// The device's own tanh is good to 2^-11 only.
ZOO fast_tanh(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        asm("tanh.approx.f32 %0, %1;" : "=f"(out[i]) : "f"(x[i]));
}

ZOO libm_float(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], p = fabsf(v) + 0.01f, *o = out + 12 * i;
    o[0] = expf(v);
    o[1] = logf(p);
    o[2] = sinf(v * 1000.0f); // the slow path too: local memory
    o[3] = cosf(v * 1e6f);
    o[4] = powf(p, 1.7f);
    o[5] = tanhf(v);
    o[6] = erff(v);
    o[7] = cbrtf(v);
    o[8] = fmodf(v, 0.37f);
    o[9] = log1pf(p);
    o[10] = atan2f(v, p);
    o[11] = exp2f(v) + log2f(p) + log10f(p);
}

ZOO libm_double(const double *x, double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double v = x[i], p = fabs(v) + 0.01, *o = out + 8 * i;
    o[0] = exp(v);
    o[1] = log(p);
    o[2] = sin(v * 1000);
    o[3] = pow(p, 1.7);
    o[4] = tanh(v);
    o[5] = erf(v);
    o[6] = rsqrt(p);
    o[7] = atan(v);
}
