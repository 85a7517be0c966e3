/* What one call of a library costs and touches: FLOPs, bytes, operands with their extents. Rules: ACCOUNTING section 3
 * (LAPACK working note 41). Nothing here reads a database or knows of other ops; pure functions, any thread.
 *
 * "Not known" is COST_UNKNOWN, never 0. Sizes are elements unless a name says bytes. */
#ifndef ACCT_ANALYZER_COST_MODEL_H
#define ACCT_ANALYZER_COST_MODEL_H

#include <stdint.h>
#include "trace/wire.h"

#define COST_UNKNOWN ACCT_NULL_I64
#define COST_MAX_OPERANDS 14 /* of a product with all that cuBLASLt can add */

enum cost_grade { COST_EXACT, COST_SAMPLED, COST_BOUND, COST_UNCOUNTED };
enum cost_role { COST_PRODUCT, COST_KERNEL, COST_COPY }; /* a matrix product; any other computation; a plain copy */

/* How an operand is used. COST_EITHER: read if a scalar that nobody knows is not zero. */
enum cost_mode { COST_R = 1, COST_W = 2, COST_RW = 3, COST_EITHER = 4 };

struct cost_operand {
    const char *slot; /* A B C D bias aux a_scale … amax_aux x y result dst src */
    uint64_t address; /* 0: none */
    int64_t bytes;    /* from the first to the last byte touched */
    enum cost_mode mode;
    int axis; /* of a factor of a product: stored axis (0 rows, 1 columns) that is contracted; else -1 */
};

struct cost {
    int64_t flops;                     /* COST_UNKNOWN: uncounted */
    int64_t integer_ops;               /* COST_UNKNOWN: no integer product */
    int64_t bytes_read, bytes_written; /* the least, each operand once; COST_UNKNOWN */
    enum cost_grade grade;
    enum cost_role role;
    int matmul; /* 1: a matrix product, counts for MFU */
    int operands;
    struct cost_operand operand[COST_MAX_OPERANDS];
};

/* Enums are those of trace/events.def (0: not known). Nullable numbers: ACCT_NULL_I64, ACCT_NULL_I32. */
struct cost_gemm {
    uint32_t trans_a, trans_b;
    int64_t m, n, k, batch;
    uint64_t a, b, c;
    int64_t lda, ldb, ldc;
    int64_t stride_a, stride_b, stride_c;
    uint32_t a_type, b_type, c_type, compute, alpha, beta, pointer_array;
    int32_t math_mode;
    /* Of cuBLASLt; all 0: none. With d, the result is D and C is only read. */
    uint64_t d, bias, aux;
    int64_t ldd, stride_d, bias_length, stride_bias, ldaux, stride_aux;
    uint32_t d_type, epilogue, bias_type, aux_type;
    uint64_t a_scale, b_scale, c_scale, d_scale, aux_scale, d_out_scale, amax_d, amax_aux;
    uint32_t a_scale_mode, b_scale_mode, d_out_scale_mode;
};

struct cost_blas {
    const char *routine; /* without type letter and suffix */
    uint32_t type;
    int64_t m, n, k, kl, ku, batch;
    uint64_t a, b, c;
    int64_t lda, ldb, ldc;
    int64_t stride_a, stride_b, stride_c;
    uint32_t side, uplo, trans_a, trans_b, alpha, beta, pointer_array;
    uint32_t a_type, b_type; /* of transform; 0: as `type` */
};

struct cost_copy {
    uint64_t dst, src;
    int64_t bytes, width_bytes, height, dst_pitch_bytes, src_pitch_bytes;
};

struct cost_memset {
    uint64_t dst;
    int64_t bytes, width_bytes, height, pitch_bytes;
};

/* Communication between devices, as table `collective` tells it. Texts may be NULL. */
struct cost_collective {
    const char *operation, *type;
    int64_t count; /* elements, of one rank's part */
    uint64_t send, receive;
    int64_t ranks, rank, root; /* ACCT_NULL_I64: not known */
};

void cost_of_gemm(const struct cost_gemm *g, struct cost *out);
void cost_of_blas(const struct cost_blas *b, struct cost *out);
void cost_of_copy(const struct cost_copy *c, struct cost *out);
/* Operations of such a call, also where they are beyond int64 (there struct cost has COST_UNKNOWN). 0, or -1: there is
 * no such routine, its band is not known, or they are more than 1e38. */
int cost_gemm_count(const struct cost_gemm *g, __int128 *out);
int cost_blas_count(const struct cost_blas *b, __int128 *out);
/* The sizes that a routine is called with, a letter each: m n k, and l and u for kl and ku of a band. NULL: there is no
 * such routine. */
const char *cost_blas_sizes(const char *routine);
const char *cost_blas_name(int index); /* of all routines; NULL behind the last */
void cost_of_memset(const struct cost_memset *m, struct cost *out);
/* The additions of a reduction count as communication: no FLOPs. */
void cost_of_collective(const struct cost_collective *c, struct cost *out);

/* What decides the unit that a product runs on, beside its types. */
struct cost_machine {
    int tf32_override_off; /* NVIDIA_TF32_OVERRIDE=0 */
    int32_t cc_major;      /* compute capability, ACCT_NULL_I32 if not known */
    int tf32_override_on;  /* NVIDIA_TF32_OVERRIDE=1 */
};

/* Name of the number format in which the product ran (whose peak counts), a constant; NULL if it cannot be told.
 * Complex and integer products have names that no peak has. */
const char *cost_gemm_dtype(const struct cost_gemm *g, const struct cost_machine *machine);

/* As op_cost.grade spells it. */
const char *cost_grade_name(enum cost_grade grade);

/* Name of an element type, as events.def spells it; NULL for 0. */
const char *cost_type_name(uint32_t type);

/* The enums of events.def; one that is missing here does not compile. */
enum cost_enum {
    COST_OF_memory,
    COST_OF_direction,
    COST_OF_dtype,
    COST_OF_compute,
    COST_OF_trans,
    COST_OF_scalar,
    COST_OF_side,
    COST_OF_uplo,
    COST_OF_stream_act,
    COST_OF_event_act,
    COST_OF_sync_scope,
    COST_OF_clock,
    COST_OF_activity,
    COST_OF_epilogue,
    COST_OF_scale_mode,
    COST_OF_meminfo_why
};

/* Value of an enum's text ("fp32" of dtype …); 0 if there is none. */
uint32_t cost_enum_value(enum cost_enum of, const char *text);

/* Shared by the files of this room. */
int64_t cost_type_bits(uint32_t type); /* 0 if not known */
int cost_is_complex(uint32_t type);
int64_t cost_bytes(int64_t elements, uint32_t type); /* COST_UNKNOWN if the type is, or beyond int64 */
int64_t cost_extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride, uint32_t type);
int64_t cost_amount(__int128 flops);           /* COST_UNKNOWN if it does not fit */
int64_t cost_amount_add(int64_t a, int64_t b); /* unknown if one is */
struct cost_operand *cost_operand_add(struct cost *c, const char *slot, uint64_t address, int64_t bytes,
                                      enum cost_mode mode);
/* How a result is used under a factor beta (0: the routine has none, it is overwritten); C's bytes are added to the
 * cost. */
enum cost_mode cost_result_mode(uint32_t beta);
void cost_book(struct cost *c, enum cost_mode mode, int64_t bytes);

#endif
