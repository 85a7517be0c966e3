/* Element types, sizes and extents; the number format of a product. */
#include "analyzer/cost_model.h"

#include <string.h>

static const struct enum_row {
    enum cost_enum of;
    uint32_t value;
    const char *text;
} enum_rows[] = {
#define ENUM(e, N, v, t) {COST_OF_##e, v, t},
#include "trace/events.def"
};
#define ENUM_ROWS (sizeof enum_rows / sizeof *enum_rows)

uint32_t cost_enum_value(enum cost_enum of, const char *text) {
    for (size_t i = 0; text && i < ENUM_ROWS; i++)
        if (enum_rows[i].of == of && !strcmp(enum_rows[i].text, text)) return enum_rows[i].value;
    return 0;
}

const char *cost_grade_name(enum cost_grade grade) {
    static const char *const names[] = {
        [COST_EXACT] = "exact", [COST_SAMPLED] = "sampled", [COST_BOUND] = "bound", [COST_UNCOUNTED] = "uncounted"};
    return names[grade];
}

const char *cost_type_name(uint32_t type) {
    for (size_t i = 0; i < ENUM_ROWS; i++)
        if (enum_rows[i].of == COST_OF_dtype && enum_rows[i].value == type) return enum_rows[i].text;
    return NULL;
}

int64_t cost_type_bits(uint32_t type) {
    switch (type) {
    case ACCT_dtype_FP64:
    case ACCT_dtype_COMPLEX64:
        return 64;
    case ACCT_dtype_FP32:
    case ACCT_dtype_INT32:
    case ACCT_dtype_COMPLEX32:
        return 32;
    case ACCT_dtype_FP16:
    case ACCT_dtype_BF16:
        return 16;
    case ACCT_dtype_FP8_E4M3:
    case ACCT_dtype_FP8_E5M2:
    case ACCT_dtype_INT8:
    case ACCT_dtype_UINT8:
        return 8;
    case ACCT_dtype_FP4_E2M1:
        return 4;
    case ACCT_dtype_COMPLEX128:
        return 128;
    default:
        return 0;
    }
}

int cost_is_complex(uint32_t type) {
    return type == ACCT_dtype_COMPLEX32 || type == ACCT_dtype_COMPLEX64 || type == ACCT_dtype_COMPLEX128;
}

int64_t cost_amount(__int128 flops) {
    return flops < 0 || flops > INT64_MAX ? COST_UNKNOWN : (int64_t)flops;
}

int64_t cost_amount_add(int64_t a, int64_t b) {
    if (a == COST_UNKNOWN || b == COST_UNKNOWN) return COST_UNKNOWN;
    return cost_amount((__int128)a + b);
}

int64_t cost_bytes(int64_t elements, uint32_t type) {
    int64_t bits = cost_type_bits(type);
    if (!bits || elements == COST_UNKNOWN) return COST_UNKNOWN;
    return cost_amount(((__int128)elements * bits + 7) / 8);
}

/* Bytes from the first element to the end of the last one of `batch` column-major matrices. A negative increment of a
 * vector (ld) counts backwards through the same memory. */
int64_t cost_extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride, uint32_t type) {
    if (rows <= 0 || columns <= 0 || batch <= 0) return 0;
    if (ld == ACCT_NULL_I64) ld = rows;
    if (batch > 1 && stride == ACCT_NULL_I64) return COST_UNKNOWN;
    __int128 column_step = ld < 0 ? -(__int128)ld : ld, matrix_step = stride < 0 ? -(__int128)stride : stride;
    int64_t elements = cost_amount_add(cost_amount((columns - 1) * column_step), rows);
    if (batch > 1) elements = cost_amount_add(elements, cost_amount((batch - 1) * matrix_step));
    return cost_bytes(elements, type);
}

struct cost_operand *cost_operand_add(struct cost *c, const char *slot, uint64_t address, int64_t bytes,
                                      enum cost_mode mode) {
    if (!address || c->operands == COST_MAX_OPERANDS) return NULL;
    struct cost_operand *o = &c->operand[c->operands++];
    *o = (struct cost_operand){slot, address, bytes, mode, -1};
    return o;
}

enum cost_mode cost_result_mode(uint32_t beta) {
    if (beta == 0 || beta == ACCT_scalar_ZERO) return COST_W;
    return beta == ACCT_scalar_DEVICE ? COST_EITHER : COST_RW;
}

void cost_book(struct cost *c, enum cost_mode mode, int64_t bytes) {
    if (mode != COST_W) c->bytes_read = cost_amount_add(c->bytes_read, bytes);
    if (mode != COST_R) c->bytes_written = cost_amount_add(c->bytes_written, bytes);
    if (mode == COST_EITHER && c->grade == COST_EXACT) c->grade = COST_BOUND;
}

static int no_tensor_unit(const struct cost_machine *machine) {
    return machine->cc_major != ACCT_NULL_I32 && machine->cc_major < 7;
}

/* A product of fp32 matrices: the compute type may force a format, else the handle's math mode may allow tf32, or (the
 * deprecated CUBLAS_TENSOR_OP_MATH, which stands for CUBLAS_COMPUTE_32F_FAST_16F) fp16. NVIDIA_TF32_OVERRIDE=1 makes
 * tf32 the default, =0 forbids it. */
static const char *fp32_product(const struct cost_gemm *g, const struct cost_machine *machine) {
    const int32_t tensor_op = 1, tf32 = 3, emulated_bf16x9 = 4, disallow_reduced = 16; /* cublasMath_t */
    switch (g->compute) {
    case ACCT_compute_FP32_FAST_FP16:
        return "fp16";
    case ACCT_compute_FP32_FAST_BF16:
        return "bf16";
    case ACCT_compute_FP32_EMULATED_BF16X9:
        return "fp32_emulated";
    case ACCT_compute_FP32_PEDANTIC:
        return "fp32";
    case ACCT_compute_FP32:
    case ACCT_compute_FP32_FAST_TF32:
        break;
    default:
        return NULL;
    }
    int no_unit = machine->tf32_override_off || (machine->cc_major != ACCT_NULL_I32 && machine->cc_major < 8);
    if (g->compute == ACCT_compute_FP32 && g->math_mode == ACCT_NULL_I32) return no_unit ? "fp32" : NULL;
    int32_t mode = g->math_mode & ~disallow_reduced;
    if (g->compute == ACCT_compute_FP32 && mode == emulated_bf16x9) return "fp32_emulated";
    if (g->compute == ACCT_compute_FP32 && mode == tensor_op) return no_tensor_unit(machine) ? "fp32" : "fp16";
    int wanted = g->compute == ACCT_compute_FP32_FAST_TF32 || mode == tf32 || (mode == 0 && machine->tf32_override_on);
    return wanted && !no_unit ? "tf32" : "fp32";
}

const char *cost_gemm_dtype(const struct cost_gemm *g, const struct cost_machine *machine) {
    if (g->a_type == ACCT_dtype_COMPLEX64) {
        const char *real = fp32_product(g, machine);
        return real && !strcmp(real, "tf32") ? "complex64_tf32" : real && !strcmp(real, "fp32") ? "complex64" : NULL;
    }
    if (cost_is_complex(g->a_type)) return cost_type_name(g->a_type);
    switch (g->a_type) {
    case ACCT_dtype_FP32:
        return fp32_product(g, machine);
    case ACCT_dtype_FP64: {
        int allowed = g->math_mode != ACCT_NULL_I32 && (g->math_mode & 8); /* CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH */
        return allowed || g->compute == ACCT_compute_FP64_EMULATED_FIXEDPOINT ? "fp64_emulated" : "fp64";
    }
    case ACCT_dtype_FP16:
        return g->compute == ACCT_compute_FP16 || g->compute == ACCT_compute_FP16_PEDANTIC ? "fp16_acc16" : "fp16";
    case ACCT_dtype_BF16:
        return "bf16";
    case ACCT_dtype_FP8_E4M3:
    case ACCT_dtype_FP8_E5M2:
        return "fp8";
    case ACCT_dtype_FP4_E2M1:
        return "fp4";
    case ACCT_dtype_INT8:
    case ACCT_dtype_UINT8: {
        int integer = g->compute == ACCT_compute_INT32 || g->compute == ACCT_compute_INT32_PEDANTIC;
        return integer ? "int8" : "fp32";
    }
    default:
        return NULL;
    }
}
