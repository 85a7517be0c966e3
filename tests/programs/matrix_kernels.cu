/* Kernels of matrix units, one warp each: what test_ptx_matrix.c knows the results of. wmma kernels are called TYPE_M_N_AB,
 * AB being the layouts of A and B (r row, c column); D = 2 · (A · B + C). The mma kernels place elements as the manual of
 * PTX does: A row-major, B column-major, C and D row-major, without gaps; D = A · B + C. */
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

/* ---- wmma ---- */
template <typename T, typename C, int M, int N, int K, typename LA, typename LB>
__device__ void product(const T *a, const T *b, C *c, C *d, int lda, int ldb, int ldc, wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, C> fc;
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(fc, c, ldc, layout);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
    wmma::store_matrix_sync(d, fc, ldc, layout);
}
#define ONE(NAME, T, C, M, N, K, LA, LB, LC)                                                                 \
    extern "C" __global__ void NAME(const T *a, const T *b, C *c, C *d, int lda, int ldb, int ldc) {         \
        product<T, C, M, N, K, wmma::LA##_major, wmma::LB##_major>(a, b, c, d, lda, ldb, ldc, wmma::mem_##LC##_major); \
    }
#define FOUR(NAME, T, C, M, N, K)                     \
    ONE(NAME##_rr, T, C, M, N, K, row, row, row)      \
    ONE(NAME##_rc, T, C, M, N, K, row, col, col)      \
    ONE(NAME##_cr, T, C, M, N, K, col, row, col)      \
    ONE(NAME##_cc, T, C, M, N, K, col, col, row)
#define SHAPES(NAME, T, C)                \
    FOUR(NAME##_16_16, T, C, 16, 16, 16)  \
    FOUR(NAME##_32_8, T, C, 32, 8, 16)    \
    FOUR(NAME##_8_32, T, C, 8, 32, 16)
SHAPES(f16, __half, float)
SHAPES(half, __half, __half)
SHAPES(bf16, __nv_bfloat16, float)
SHAPES(s8, signed char, int)
SHAPES(u8, unsigned char, int)
FOUR(f64_8_8, double, double, 8, 8, 4)

template <typename LA, typename LB>
__device__ void tf32(const float *a, const float *b, float *c, float *d, int lda, int ldb, int ldc, wmma::layout_t l) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, LA> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, LB> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(fc, c, ldc, l);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] += fc.x[i];
    wmma::store_matrix_sync(d, fc, ldc, l);
}
#define TF32(NAME, LA, LB, LC)                                                                                    \
    extern "C" __global__ void NAME(const float *a, const float *b, float *c, float *d, int x, int y, int z) {    \
        tf32<wmma::LA##_major, wmma::LB##_major>(a, b, c, d, x, y, z, wmma::mem_##LC##_major);                    \
    }
TF32(tf32_16_16_rr, row, row, row)
TF32(tf32_16_16_rc, row, col, col)
TF32(tf32_16_16_cr, col, row, col)
TF32(tf32_16_16_cc, col, col, row)

/* C (M × N) = A (M × K) · B (K × N), all row-major, through shared memory; blocks of 64 × 64, 128 threads. */
extern "C" __global__ void gemm_shared(const __half *a, const __half *b, float *c, int n, int k) {
    __shared__ __half sa[64][24], sb[16][72];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4];
    for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[j], 0.f);
    for (int p = 0; p < k; p += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += blockDim.x) sa[i / 16][i % 16] = a[(row + i / 16) * k + p + i % 16];
        for (int i = threadIdx.x; i < 16 * 64; i += blockDim.x) sb[i / 64][i % 64] = b[(p + i / 64) * n + column + i % 64];
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::load_matrix_sync(fa, &sa[warp * 16][0], 24);
        for (int j = 0; j < 4; j++) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
            wmma::load_matrix_sync(fb, &sb[0][j * 16], 72);
            wmma::mma_sync(sum[j], fa, fb, sum[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        wmma::store_matrix_sync(c + (row + warp * 16) * n + column + j * 16, sum[j], n, wmma::mem_row_major);
}

/* ---- mma ---- */
#define LANES int g = threadIdx.x / 4, t = threadIdx.x % 4
__device__ uint32_t word(const void *p, int byte) { return *(const uint32_t *)((const char *)p + byte); }

/* Two halves of a row of A (16 × 16) and of a column of B (16 × 8) in each register. */
#define HALVES(NAME, T, AB)                                                                                          \
    extern "C" __global__ void NAME(const T *a, const T *b, const float *c, float *d) {                              \
        LANES;                                                                                                       \
        uint32_t a0 = word(a, 2 * (g * 16 + 2 * t)), a1 = word(a, 2 * ((g + 8) * 16 + 2 * t)),                       \
                 a2 = word(a, 2 * (g * 16 + 2 * t + 8)), a3 = word(a, 2 * ((g + 8) * 16 + 2 * t + 8));               \
        uint32_t b0 = word(b, 2 * (g * 16 + 2 * t)), b1 = word(b, 2 * (g * 16 + 2 * t + 8));                         \
        float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1], d2 = c[(g + 8) * 8 + 2 * t],                         \
              d3 = c[(g + 8) * 8 + 2 * t + 1];                                                                       \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." AB "." AB ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
                     "{%0,%1,%2,%3};"                                                                                \
                     : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)                                                        \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                        \
        d[g * 8 + 2 * t] = d0, d[g * 8 + 2 * t + 1] = d1, d[(g + 8) * 8 + 2 * t] = d2, d[(g + 8) * 8 + 2 * t + 1] = d3; \
    }
HALVES(mma_f16_16_8_16, __half, "f16")
HALVES(mma_bf16_16_8_16, __nv_bfloat16, "bf16")

/* The same product, operands by ldmatrix: A's four quarters, B's two halves stored by rows and transposed. */
extern "C" __global__ void ldmatrix_f16_16_8_16(const __half *a, const __half *b, const float *c, float *d) {
    __shared__ __align__(16) __half sa[16 * 16], sb[16 * 8];
    LANES;
    for (int i = threadIdx.x; i < 256; i += 32) sa[i] = a[i];
    for (int i = threadIdx.x; i < 128; i += 32) sb[i % 16 * 8 + i / 16] = b[i];
    __syncwarp();
    int l = threadIdx.x;
    uint32_t pa = (uint32_t)__cvta_generic_to_shared(sa + (l % 16) * 16 + l / 16 * 8),
             pb = (uint32_t)__cvta_generic_to_shared(sb + (l % 16) * 8), a0, a1, a2, a3, b0, b1;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(pb));
    float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1], d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    d[g * 8 + 2 * t] = d0, d[g * 8 + 2 * t + 1] = d1, d[(g + 8) * 8 + 2 * t] = d2, d[(g + 8) * 8 + 2 * t + 1] = d3;
}

/* 16 × 8 of halves into the results: stmatrix, transposed or not, and movmatrix, against plain reads. b = a of 8 × 8. */
extern "C" __global__ void rows_f16(const uint16_t *a, uint16_t *out) {
    __shared__ __align__(16) uint16_t s[64], r[64];
    LANES;
    int l = threadIdx.x;
    s[l] = a[l], s[l + 32] = a[l + 32];
    __syncwarp();
    uint32_t p = (uint32_t)__cvta_generic_to_shared(s + l % 8 * 8), q = (uint32_t)__cvta_generic_to_shared(r + l % 8 * 8), v, w;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(p));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(w) : "r"(v));
    out[g * 8 + 2 * t] = w & 0xffff, out[g * 8 + 2 * t + 1] = w >> 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(q), "r"(v) : "memory");
    __syncwarp();
    out[64 + l] = r[l], out[96 + l] = r[l + 32];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(q), "r"(w) : "memory");
    __syncwarp();
    out[128 + l] = r[l], out[160 + l] = r[l + 32];
}

extern "C" __global__ void mma_tf32_16_8_8(const float *a, const float *b, const float *c, float *d) {
    LANES;
    float d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1], d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(word(a, 4 * (g * 8 + t))), "r"(word(a, 4 * ((g + 8) * 8 + t))), "r"(word(a, 4 * (g * 8 + t + 4))),
                   "r"(word(a, 4 * ((g + 8) * 8 + t + 4))), "r"(word(b, 4 * (g * 8 + t))), "r"(word(b, 4 * (g * 8 + t + 4))));
    d[g * 8 + 2 * t] = d0, d[g * 8 + 2 * t + 1] = d1, d[(g + 8) * 8 + 2 * t] = d2, d[(g + 8) * 8 + 2 * t + 1] = d3;
}

/* Four bytes of a row of A (16 × 32), of a column of B (32 × 8), in each register. */
#define BYTES(NAME, C, R, TYPES)                                                                                        \
    extern "C" __global__ void NAME(const char *a, const char *b, const C *c, C *d) {                                   \
        LANES;                                                                                                          \
        C d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1], d2 = c[(g + 8) * 8 + 2 * t], d3 = c[(g + 8) * 8 + 2 * t + 1]; \
        asm volatile("mma.sync.aligned.m16n8k32.row.col." TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                     : "+" R(d0), "+" R(d1), "+" R(d2), "+" R(d3)                                                       \
                     : "r"(word(a, g * 32 + 4 * t)), "r"(word(a, (g + 8) * 32 + 4 * t)), "r"(word(a, g * 32 + 4 * t + 16)), \
                       "r"(word(a, (g + 8) * 32 + 4 * t + 16)), "r"(word(b, g * 32 + 4 * t)),                           \
                       "r"(word(b, g * 32 + 4 * t + 16)));                                                              \
        d[g * 8 + 2 * t] = d0, d[g * 8 + 2 * t + 1] = d1, d[(g + 8) * 8 + 2 * t] = d2, d[(g + 8) * 8 + 2 * t + 1] = d3; \
    }
BYTES(mma_s8_16_8_32, int, "r", "s32.s8.s8.s32")
BYTES(mma_u8_16_8_32, int, "r", "s32.u8.u8.s32")
BYTES(mma_e4m3_16_8_32, float, "f", "f32.e4m3.e4m3.f32")
BYTES(mma_e5m2_16_8_32, float, "f", "f32.e5m2.e5m2.f32")

extern "C" __global__ void mma_f64_8_8_4(const double *a, const double *b, const double *c, double *d) {
    LANES;
    double d0 = c[g * 8 + 2 * t], d1 = c[g * 8 + 2 * t + 1];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d0), "+d"(d1) : "d"(a[g * 4 + t]), "d"(b[g * 4 + t]));
    d[g * 8 + 2 * t] = d0, d[g * 8 + 2 * t + 1] = d1;
}
