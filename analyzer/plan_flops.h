/* Shared by the files of `acct plan flops`: one op on a sheet. An op registers its operands and its parts (passes,
 * steps, layers: what runs as one kernel), and flops_finish prints amounts, intensity and time at a device's roof.
 * One thread. Functions return 0, or the exit code after one line on stderr. */
#ifndef ACCT_ANALYZER_PLAN_FLOPS_H
#define ACCT_ANALYZER_PLAN_FLOPS_H

#include "analyzer/cost_model.h"
#include "analyzer/plan_sheet.h"
#include "plan/plan_einsum.h"
#include "acct/device_table.h"

enum {
    FLOPS_DTYPE = SHEET_OPTIONS,
    FLOPS_OUT_DTYPE,
    FLOPS_DEVICE,
    FLOPS_SIZE,
    FLOPS_ALPHA,
    FLOPS_BETA,
    FLOPS_BATCH,
    FLOPS_BATCH_STRIDE,
    FLOPS_LD,
    FLOPS_TRANS,
    FLOPS_SIDE,
    FLOPS_INPUT,
    FLOPS_KERNEL,
    FLOPS_OUT_CHANNELS,
    FLOPS_STRIDE,
    FLOPS_PADDING,
    FLOPS_OUTPUT_PADDING,
    FLOPS_DILATION,
    FLOPS_GROUPS,
    FLOPS_PASS,
    FLOPS_GRADS,
    FLOPS_BIAS,
    FLOPS_KV_HEADS,
    FLOPS_CAUSAL,
    FLOPS_LAYOUT,
    FLOPS_OPTIONS
};

#define FLOPS_TAKES(o) (UINT64_C(1) << (o))
#define FLOPS_TAKES_COMPLEX (UINT64_C(1) << 63) /* complex numbers have a count */
#define FLOPS_TAKES_ALWAYS \
    (FLOPS_TAKES(SHEET_FORMAT) | FLOPS_TAKES(SHEET_OUTPUT) | FLOPS_TAKES(FLOPS_DTYPE) | FLOPS_TAKES(FLOPS_DEVICE))
#define FLOPS_TAKES_BLAS                                                                             \
    (FLOPS_TAKES_ALWAYS | FLOPS_TAKES_COMPLEX | FLOPS_TAKES(FLOPS_ALPHA) | FLOPS_TAKES(FLOPS_BETA) | \
     FLOPS_TAKES(FLOPS_BATCH) | FLOPS_TAKES(FLOPS_BATCH_STRIDE))
#define FLOPS_TAKES_PASS (FLOPS_TAKES(FLOPS_PASS) | FLOPS_TAKES(FLOPS_GRADS))

struct flops_operand {
    char name[24], shape[1024];
    char part[64]; /* of ops with several parts; "": of all */
    const char *type;
    __int128 elements, bytes;
    int reads, writes; /* how often, 0 or 1 */
};

struct flops_part {
    char name[1024];
    const char *order;     /* of an einsum: given, best; NULL */
    int matrix;            /* runs on matrix units */
    __int128 flops, bytes; /* bytes -1: not known */
};

/* A number format: how it lies in memory, and which peaks it has. */
struct flops_type {
    const char *name;
    uint32_t storage;             /* dtype of events.def */
    int matrix_peak, vector_peak; /* enum acct_format; -1: none in the table */
    int integer;
};

struct flops_op;
struct flops {
    struct plan_sheet sheet;
    const struct arguments *args;
    const struct flops_op *op;
    int n; /* operands of the command line behind the op's name */
    char **text;
    const struct flops_type *type, *out_type;
    struct acct_device device;
    int has_device;
    struct flops_operand *operand;
    struct flops_part *part;
    int n_operands, n_parts;
    __int128 bytes; /* of all operands; -1: not known */
    char bytes_formula[2048];
    const struct plan_pattern *pattern; /* of an einsum: for its tables */
};

struct flops_op {
    const char *name, *operands, *doc; /* operands: as help shows them */
    uint64_t takes;                    /* options */
    int least, most;                   /* operands */
    int (*function)(struct flops *f);
};

/* NULL-terminated by name. BLAS routines have one row each in cost_model. */
extern const struct flops_op flops_tensor_ops[], flops_layer_ops[], flops_product_ops[];
/* A routine of BLAS, or NULL. */
const struct flops_op *flops_blas_op(const char *name);

/* ---- reading ---- */

int flops_fail(const struct flops *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
int flops_count(const struct flops *f, const char *what, const char *text, enum plan_sign sign, int64_t *out);
/* A list option; as many as `room` at most. *n stays where it is not given. */
int flops_list(const struct flops *f, int o, enum plan_sign sign, int room, int64_t *out, int *n);
/* `64,128` → the shape; n: its rank. */
int flops_shape(const struct flops *f, const char *text, int64_t out[PLAN_DIMS], int *n);
/* One of the words (NULL-terminated) that option o may be; its index. Not given: *out stays. */
int flops_word(const struct flops *f, int o, const char *const *words, int *out);
int flops_read_types(struct flops *f);

/* Of BLAS: alpha or beta as cost_model has it, and as an input; transpositions of A and B; batch and batch strides. */
int flops_read_scalar(const struct flops *f, int o, uint32_t *out);
void flops_input_scalar(struct flops *f, int o, const char *key, const char *otherwise);
int flops_read_trans(const struct flops *f, uint32_t out[2]);
int flops_read_batch(const struct flops *f, int64_t *batch, int64_t stride[3]);

/* Of layers: which passes are asked for. */
struct flops_passes {
    int forward, input_grad, weight_grad;
};
int flops_read_passes(struct flops *f, struct flops_passes *p);
void flops_pass_result(struct flops *f, const char *key, const char *label, int asked, __int128 flops,
                       const char *formula);

int flops_attention(struct flops *f);

/* ---- adding ---- */

/* -1 (a line was printed): the elements or bytes are beyond 128 bit. */
int flops_add_operand(struct flops *f, const char *part, const char *name, const struct flops_type *type, int reads,
                      int writes, int rank, const int64_t *shape);
int flops_add_operand_text(struct flops *f, const char *part, const char *name, const struct flops_type *type,
                           int reads, int writes, const char *shape, __int128 elements);
/* bytes -1: those of the operands of that part. */
int flops_add_part(struct flops *f, const char *name, int matrix, __int128 flops, __int128 bytes);

__int128 flops_type_bytes(const struct flops_type *type, __int128 elements); /* -1 beyond 128 bit */
const struct flops_type *flops_type_find(const char *name);

/* Digits of an amount, in one of 16 buffers that take turns. */
const char *flops_digits(__int128 value);
/* `2 x 3 x 4`, likewise. */
const char *flops_times(int n, const int64_t *factors);

/* ---- the end ---- */

/* Puts amounts, intensity and time on the sheet; flops: of the op, by its formula. */
void flops_amounts(struct flops *f, __int128 flops, const char *format, ...) __attribute__((format(printf, 3, 4)));
int flops_print(struct flops *f);
#define flops_finish(f, ...) (flops_amounts(f, __VA_ARGS__), flops_print(f))

/* Seconds that a device's roof allows for the parts of an order (NULL: all); NaN where it is not known. */
double flops_time(const struct flops *f, const char *order);
/* The name of a peak that a part of the order needs and the device has not; NULL: none. */
const char *flops_missing_peak(const struct flops *f, const char *order);

#endif
