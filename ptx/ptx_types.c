/* Tables: types, opcodes. */
#include "ptx/ptx.h"

struct type_info {
    const char *text;
    uint8_t bits, kind;
};
#define TYPE_ROW(N, text, bits, kind) [PTX_##N] = {text, bits, PTX_KIND_##kind},
static const struct type_info types[PTX_TYPE_COUNT] = {PTX_TYPES(TYPE_ROW)};

unsigned ptx_type_bits(enum ptx_type t) {
    return types[t].bits;
}
unsigned ptx_type_bytes(enum ptx_type t) {
    return (types[t].bits + 7u) / 8u;
}
enum ptx_type_kind ptx_type_kind(enum ptx_type t) {
    return (enum ptx_type_kind)types[t].kind;
}
const char *ptx_type_text(enum ptx_type t) {
    return types[t].text;
}

struct matrix_type {
    uint8_t bits, kind;
};
#define MATRIX_ROW(N, text, bits, kind) [PTX_MX_##N] = {bits, PTX_MATRIX_KIND_##kind},
enum { PTX_MATRIX_KIND_I, PTX_MATRIX_KIND_F };
static const struct matrix_type matrix_types[PTX_MX_COUNT] = {PTX_MATRIX_TYPES(MATRIX_ROW)};

unsigned ptx_matrix_bits(enum ptx_matrix_type t) {
    return matrix_types[t].bits;
}
bool ptx_matrix_is_float(enum ptx_matrix_type t) {
    return matrix_types[t].kind == PTX_MATRIX_KIND_F;
}

int64_t ptx_matrix_share(const struct ptx_matrix *x) {
    return (int64_t)2 * x->m * x->n * x->k * x->copies / (x->sparse ? 2 : 1) / x->threads;
}

/* wmma: each lane has `count` elements in a row of A, C or D (in a column of B), the next lane those that follow, from
 * the start again where there are more lanes than elements. */
static void own_place(const struct ptx_matrix *x, char operand, unsigned at, unsigned *row, unsigned *column) {
    unsigned length = operand == 'c' ? x->n : x->k, lines = operand == 'b' ? x->n : x->m;
    at %= length * lines;
    *row = operand == 'b' ? at % length : at / length;
    *column = operand == 'b' ? at / length : at % length;
}

/* mma: as the manual has it, the same in all shapes: a group of four lanes has a row (a column of B), registers go on
 * eight rows below, then beside. */
void ptx_matrix_place(const struct ptx_matrix *x, char operand, unsigned count, unsigned lane, unsigned e,
                      unsigned *row, unsigned *column) {
    unsigned group = lane / 4, member = lane % 4;
    if (x->wmma) {
        own_place(x, operand, lane * count + e, row, column);
        return;
    }
    if (operand == 'c') {
        *row = group + e / 2 * 8;
        *column = member * 2 + e % 2;
        return;
    }
    unsigned bits = ptx_matrix_bits((enum ptx_matrix_type)(operand == 'a' ? x->a : x->b)),
             each = bits < 32 ? 32 / bits : 1, reg = e / each, k = member * each + e % each;
    if (operand == 'b') {
        *row = k + reg * 4 * each;
        *column = group;
    } else if (x->m == 8) {
        *row = group;
        *column = k + reg * 4 * each;
    } else {
        *row = group + reg % 2 * 8;
        *column = k + reg / 2 * 4 * each;
    }
}

#define OP(N, text, dsts, srcs, properties, flops, iops) [PTX_OP_##N] = {text, dsts, srcs, properties, flops, iops},
const struct ptx_op_info ptx_ops[PTX_OP_COUNT] = {
#include "ptx/ptx_opcodes.def"
};
