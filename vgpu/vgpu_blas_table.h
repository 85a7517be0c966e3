/* The table of cuBLAS's routines: what their operands are, how these are used, what the routine costs. */
#ifndef VGPU_BLAS_TABLE_H
#define VGPU_BLAS_TABLE_H

#include "vgpu/vgpu_blas_call.h"

enum vgpu_access { VGPU_UNUSED, VGPU_READ, VGPU_WRITTEN, VGPU_UPDATED };

/* What the operands are. */
enum vgpu_shape {
    VGPU_S_VECTOR,        /* x */
    VGPU_S_VECTORS,       /* x, y */
    VGPU_S_MATRIX_VECTOR, /* A m×n, x, y */
    VGPU_S_SQUARE_VECTOR, /* A n×n, x, y */
    VGPU_S_IN_PLACE,      /* A n×n, x */
    VGPU_S_RANK_ONE,      /* A m×n, x of m, y of n */
    VGPU_S_RANK_X,        /* A n×n, x */
    VGPU_S_RANK_XY,       /* A n×n, x, y */
    VGPU_S_PRODUCT,       /* op(A) m×k, op(B) k×n, C m×n */
    VGPU_S_SIDED,         /* A square, on one side of B m×n; C m×n */
    VGPU_S_SOLVED,        /* … without C */
    VGPU_S_RANK_K,        /* op(A) n×k, C n×n */
    VGPU_S_RANK_2K,       /* op(A), op(B) n×k, C n×n */
    VGPU_S_SUM,           /* op(A), op(B), C m×n */
    VGPU_S_DIAGONAL,      /* A m×n, x, C m×n */
    VGPU_S_UNPACK,        /* packed A, full C */
    VGPU_S_PACK,
    VGPU_S_FACTOR,  /* A n×n or m×n */
    VGPU_S_INVERSE, /* A n×n, C n×n */
    VGPU_S_SOLUTION /* A m×n, right sides B of k columns */
};

/* Of a square A, or of a rank-k result, what counts. */
enum vgpu_form { VGPU_S_FULL, VGPU_S_TRIANGLE, VGPU_S_PACKED, VGPU_S_BAND };

struct vgpu_routine_row {
    double (*flops)(const struct vgpu_call *c); /* of one real problem */
    enum vgpu_shape shape;
    enum vgpu_form form;
    enum vgpu_access access[VGPU_OPERANDS];
    bool alpha, beta;
    bool result; /* one number beside the vectors */
    bool matrix_unit;
};

extern const struct vgpu_routine_row vgpu_routines[VGPU_ROUTINES];

/* How one operand lies in memory. */
struct vgpu_extent {
    int64_t rows, columns; /* a vector: 1 and its length */
    int64_t ld;            /* a vector: the size of its stride */
    double elements;       /* that count */
    bool vector, triangle; /* triangle: of the result, the half that is written */
};

struct vgpu_extent vgpu_extent_of(const struct vgpu_call *c, int operand);
/* The factors of a product count for nothing: alpha is 0, or they are empty. */
bool vgpu_only_scales(const struct vgpu_call *c, bool alpha_zero);
/* Of a reduction: one number, or a place. */
size_t vgpu_result_bytes(const struct vgpu_call *c);

#endif
