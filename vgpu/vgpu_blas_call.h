/* A cuBLAS routine as data: what all of them do with their arguments (checks, reach, beta, batches, the amount of work
 * for the model of times) stands once, in vgpu_blas_call.c; a routine brings its arguments and what one problem
 * computes. */
#ifndef VGPU_BLAS_CALL_H
#define VGPU_BLAS_CALL_H

#include "vgpu/vgpu_blas.h"
#include "vgpu/vgpu_blas_half.h"
#include "vgpu/vgpu_model.h"

#include <cblas.h>

/* What the operands are, and how many FLOPs it takes: a row of the table in vgpu_blas_call.c each. */
enum vgpu_routine {
    VGPU_ASUM,
    VGPU_AXPY,
    VGPU_COPY,
    VGPU_DOT,
    VGPU_IAMAX,
    VGPU_NRM2,
    VGPU_ROT,
    VGPU_SCAL,
    VGPU_SWAP,
    VGPU_GEMV,
    VGPU_GBMV,
    VGPU_SYMV,
    VGPU_SPMV,
    VGPU_SBMV,
    VGPU_TRMV,
    VGPU_TPMV,
    VGPU_TBMV,
    VGPU_GER,
    VGPU_SYR,
    VGPU_SPR,
    VGPU_SYR2,
    VGPU_SPR2,
    VGPU_GEMM,
    VGPU_SYMM,
    VGPU_TRMM,
    VGPU_TRSM,
    VGPU_SYRK,
    VGPU_SYRKX,
    VGPU_SYR2K,
    VGPU_GEAM,
    VGPU_DGMM,
    VGPU_TPTTR,
    VGPU_TRTTP,
    VGPU_GETRF,
    VGPU_GETRI,
    VGPU_GETRS,
    VGPU_GEQRF,
    VGPU_GELS,
    VGPU_ROUTINES
};

/* A scalar's value in every form that OpenBLAS takes it in. */
struct vgpu_value {
    double d, z[2];
    float s, c[2];
};

/* Operands by the order of cuBLAS's documentation of routines: matrix, vectors; or A, B, C; or x, y and the result,
 * which is one number (or an index) and on the host where pointer mode says so. */
enum { VGPU_OPERANDS = 3 };

/* A type that differs from the call's own; CUDA_R_32F is 0. */
#define VGPU_AS(type) ((int)(type) + 1)

struct vgpu_call {
    const char *call; /* cublasSgemv: of messages, and of the kernel's name */
    const char *kernel,
        *variant; /* of the kernel's name where it differs: "cublasHgemm", "_batched_nt"; NULL: call, "" */
    enum vgpu_routine routine;
    /* One problem. p: its operands, in reach. */
    void (*run)(const struct vgpu_call *c, void *const *p, const struct vgpu_value *alpha,
                const struct vgpu_value *beta);
    cudaDataType_t type;         /* of elements */
    int a_type, b_type, c_type;  /* of the operands: VGPU_AS(…); 0: type */
    int alpha_type, beta_type;   /* alpha 0: type; beta 0: alpha's */
    enum vgpu_rounding rounding; /* gemm: of A and B in fp32 */
    enum vgpu_format format;     /* gemm: the unit that multiplies; else by type */
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t ta, tb;
    cublasDiagType_t diag;
    int64_t m, n, k, kl, ku;
    int64_t batch;             /* 0, in a call without `batched`: 1 */
    bool batched, array;       /* array: operands are arrays of pointers, on the device */
    bool hermitian;            /* the result's diagonal is real */
    bool magnitude_least;      /* iamin */
    bool conjugated;           /* dotc, gerc */
    bool result_waits;         /* set at submission: the result is the host's, the call waits */
    int index_bytes;           /* iamax: 4 or 8 */
    void *p[VGPU_OPERANDS];    /* NULL: none */
    int64_t ld[VGPU_OPERANDS]; /* of a vector its stride, which may be negative */
    int64_t stride[VGPU_OPERANDS];
    struct vgpu_scalar alpha, beta; /* set at submission */
    double numbers[5];              /* rotm: its parameters */
    const void *device_numbers;     /* … on the device; NULL: they are in numbers */
    int *pivots, *info;             /* batched factorisations: on the device */
    int64_t problem;                /* while running: which one of the batch */
};

/* Checks the call, and queues it on the handle's stream. alpha, beta: host or device pointers by the handle's mode,
 * NULL where the routine has none; a routine that has and gets NULL is INVALID_VALUE. */
cublasStatus_t vgpu_call(cublasHandle_t handle, struct vgpu_call *call, const void *alpha, const void *beta);
/* The parts of it. check: arguments; *nothing: there is nothing to do. ready: scalars of the caller's. */
cublasStatus_t vgpu_call_check(struct vgpu_call *call, const void *alpha, const void *beta, bool *nothing);
void vgpu_call_run(void *call); /* a struct vgpu_call, on the stream's thread */
/* Adds its work to *amount. */
void vgpu_call_amount(const struct vgpu_call *call, struct vgpu_amount *amount);

static inline bool vgpu_is_complex(cudaDataType_t t) {
    return t == CUDA_C_32F || t == CUDA_C_64F;
}

cudaDataType_t vgpu_call_type(const struct vgpu_call *c, int operand);
cudaDataType_t vgpu_alpha_type(const struct vgpu_call *c);
struct vgpu_value vgpu_value(double real, double imaginary);
void vgpu_make_real(cudaDataType_t type, void *p, int64_t i); /* element i of a complex array */

/* ---- as OpenBLAS names it ---- */

static inline CBLAS_TRANSPOSE vgpu_trans(const struct vgpu_call *c, cublasOperation_t op) {
    return op == CUBLAS_OP_N                               ? CblasNoTrans
           : op == CUBLAS_OP_C && vgpu_is_complex(c->type) ? CblasConjTrans
                                                           : CblasTrans;
}

static inline CBLAS_UPLO vgpu_uplo(const struct vgpu_call *c) {
    return c->uplo == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper;
}

static inline CBLAS_SIDE vgpu_side(const struct vgpu_call *c) {
    return c->side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight;
}

static inline CBLAS_DIAG vgpu_diag(const struct vgpu_call *c) {
    return c->diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit;
}

/* Place of element i of a vector by the rules of BLAS: a negative stride begins at the far end. */
static inline int64_t vgpu_place(int64_t i, int64_t n, int64_t inc) {
    return inc < 0 ? (i - n + 1) * inc : i * inc;
}

/* X(letter, alpha, beta) for the call's type; scalars as OpenBLAS takes them: by value, complex ones by pointer. */
#define VGPU_FOR_REAL(c, X)          \
    do {                             \
        if ((c)->type == CUDA_R_32F) \
            X(s, alpha->s, beta->s); \
        else                         \
            X(d, alpha->d, beta->d); \
    } while (0)
#define VGPU_FOR_COMPLEX(c, X)       \
    do {                             \
        if ((c)->type == CUDA_C_32F) \
            X(c, alpha->c, beta->c); \
        else                         \
            X(z, alpha->z, beta->z); \
    } while (0)
#define VGPU_FOR_ALL(c, X)              \
    do {                                \
        if (vgpu_is_complex((c)->type)) \
            VGPU_FOR_COMPLEX(c, X);     \
        else                            \
            VGPU_FOR_REAL(c, X);        \
    } while (0)
/* X(T) where T is the C type of the call's elements. */
#define VGPU_FOR_TYPES(c, X)  \
    switch ((int)(c)->type) { \
    case CUDA_R_32F:          \
        X(float);             \
        break;                \
    case CUDA_R_64F:          \
        X(double);            \
        break;                \
    case CUDA_C_32F:          \
        X(cfloat);            \
        break;                \
    default:                  \
        X(cdouble);           \
    }
typedef float _Complex cfloat;
typedef double _Complex cdouble;

#endif
