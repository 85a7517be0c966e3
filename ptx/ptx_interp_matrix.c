/* Products of matrix units, by all lanes of a warp together, and mbarrier.
 *
 * The manual leaves order and precision of the sums open. Here factors are exact, sums of products of up to 32 bits are
 * in double and rounded once to the result's type; fp64 is a chain of fused multiply-adds; integers wrap, or are
 * clamped (.satfinite). A lane that is not there has zeros. */
#include <math.h>
#include <string.h>
#include "ptx/ptx_machine.h"

enum { MAX_SIDE = 256 };

/* ---- elements ---- */
static double small_float(uint64_t bits, unsigned exponent, unsigned mantissa) {
    int bias = (1 << (exponent - 1)) - 1;
    unsigned e = (unsigned)(bits >> mantissa) & ((1u << exponent) - 1);
    double m = (double)(bits & ((1u << mantissa) - 1)) / (1u << mantissa);
    double v = e ? ldexp(1 + m, (int)e - bias) : ldexp(m, 1 - bias);
    return bits >> (exponent + mantissa) & 1 ? -v : v;
}

static double float_of(enum ptx_matrix_type type, uint64_t bits) {
    switch (type) {
    case PTX_MX_F64:
        return ptx_to_double(PTX_F64, bits);
    case PTX_MX_TF32: /* the unit does not look at the lower bits */
        return ptx_to_double(PTX_F32, bits & ~UINT64_C(0x1fff));
    case PTX_MX_F16:
        return ptx_to_double(PTX_F16, bits);
    case PTX_MX_BF16:
        return ptx_to_double(PTX_BF16, bits);
    case PTX_MX_E5M2:
        return ptx_to_double(PTX_F16, bits << 8);
    case PTX_MX_E4M3:
        return (bits & 0x7f) == 0x7f ? NAN : small_float(bits, 4, 3);
    default:
        return ptx_to_double(PTX_F32, bits);
    }
}

static int64_t integer_of(enum ptx_matrix_type type, uint64_t bits) {
    unsigned n = ptx_matrix_bits(type);
    return type == PTX_MX_U8 || type == PTX_MX_U4 || type == PTX_MX_B1 ? (int64_t)bits : (int64_t)ptx_sign(bits, n);
}

static uint64_t float_bits(enum ptx_matrix_type type, double v) {
    enum ptx_type to = type == PTX_MX_F64 ? PTX_F64 : type == PTX_MX_F16 ? PTX_F16 : PTX_F32;
    return ptx_from_double(to, v, PTX_RN);
}

/* ---- the warp's operands ---- */
union number {
    double f;
    int64_t i;
};
struct sides {
    union number a[32][MAX_SIDE], b[MAX_SIDE][32], c[32][32];
};

static unsigned elements_of(const struct ptx_operand *o, unsigned bits) {
    return (o->kind == PTX_VECTOR ? o->count : 1u) * (bits < 32 ? 32 / bits : 1);
}

/* Where element e of the operand lies: its register, and its first bit there. */
static const struct ptx_operand *holder(const struct ptx_operand *o, unsigned bits, unsigned e, unsigned *shift) {
    unsigned each = bits < 32 ? 32 / bits : 1;
    *shift = e % each * bits;
    return o->kind == PTX_VECTOR ? &o->elements[e / each] : o;
}

static void take(struct ptx_thread *t, unsigned lane, const struct ptx_matrix *x, char which,
                 const struct ptx_operand *o, struct sides *to) {
    enum ptx_matrix_type type = (enum ptx_matrix_type)(which == 'a' ? x->a : which == 'b' ? x->b : x->c);
    unsigned bits = ptx_matrix_bits(type), count = elements_of(o, bits);
    for (unsigned e = 0; e < count; e++) {
        unsigned row, column, shift;
        const struct ptx_operand *reg = holder(o, bits, e, &shift);
        uint64_t v = ptx_bits(ptx_get(t, reg, bits == 64 ? PTX_B64 : PTX_B32) >> shift, bits);
        ptx_matrix_place(x, which, count, lane, e, &row, &column);
        union number *n = which == 'a' ? &to->a[row][column] : which == 'b' ? &to->b[row][column] : &to->c[row][column];
        if (ptx_matrix_is_float(type))
            n->f = float_of(type, v);
        else
            n->i = integer_of(type, v);
    }
}

static double float_sum(const struct ptx_matrix *x, const struct sides *v, unsigned row, unsigned column) {
    double sum = x->d == PTX_MX_F64 ? v->c[row][column].f : 0;
    for (unsigned k = 0; k < x->k; k++) {
        double a = v->a[row][k].f, b = v->b[k][column].f;
        sum = x->d == PTX_MX_F64 ? fma(a, b, sum) : sum + a * b;
    }
    return x->d == PTX_MX_F64 ? sum : sum + v->c[row][column].f;
}

static uint64_t integer_sum(const struct ptx_matrix *x, const struct sides *v, unsigned row, unsigned column) {
    int64_t sum = v->c[row][column].i;
    for (unsigned k = 0; k < x->k; k++) {
        int64_t a = v->a[row][k].i, b = v->b[k][column].i;
        sum += x->a == PTX_MX_B1 ? (x->conjunction ? a & b : a ^ b) : a * b;
    }
    if (x->satfinite) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    return (uint64_t)sum;
}

static void give(struct ptx_thread *t, unsigned lane, const struct ptx_matrix *x, const struct ptx_operand *d,
                 const struct sides *v) {
    enum ptx_matrix_type type = (enum ptx_matrix_type)x->d;
    unsigned bits = ptx_matrix_bits(type), count = elements_of(d, bits);
    uint64_t word = 0;
    for (unsigned e = 0; e < count; e++) {
        unsigned row, column, shift;
        const struct ptx_operand *reg = holder(d, bits, e, &shift);
        ptx_matrix_place(x, 'c', count, lane, e, &row, &column);
        uint64_t r =
            ptx_matrix_is_float(type) ? float_bits(type, float_sum(x, v, row, column)) : integer_sum(x, v, row, column);
        word = (shift ? word : 0) | ptx_bits(r, bits) << shift;
        if (shift + bits >= 32) ptx_put(t, reg, bits == 64 ? PTX_B64 : PTX_B32, word);
    }
}

void ptx_matrix_product(struct ptx_thread *const lane[PTX_WARP_LANES], const struct ptx_instr *i) {
    struct sides v;
    memset(&v, 0, sizeof v);
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        for (unsigned n = 0; lane[k] && n < 3; n++) take(lane[k], k, i->matrix, "abc"[n], &i -> src[n], &v);
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        if (lane[k]) give(lane[k], k, i->matrix, &i->dst[0], &v);
}

enum ptx_step ptx_x_mma(struct ptx_thread *t, const struct ptx_instr *i) {
    return i->matrix->executable ? ptx_x_warp(t, i) : ptx_fail_here(t, i);
}

/* ---- mbarrier: what its 64 bits are is nobody's business ---- */
struct mbarrier {
    uint32_t pending, expected; /* arrivals, of 20 bits */
    int32_t bytes;              /* of copies still to come, of 22 bits and a sign */
    uint32_t phase;
};

static struct mbarrier unpacked(uint64_t w) {
    return (struct mbarrier){.pending = w & 0xfffff,
                             .expected = w >> 20 & 0xfffff,
                             .bytes = (int32_t)(int64_t)ptx_sign(w >> 40 & 0x7fffff, 23),
                             .phase = (uint32_t)(w >> 63)};
}

static uint64_t packed(const struct mbarrier *b) {
    return (uint64_t)(b->pending & 0xfffff) | (uint64_t)(b->expected & 0xfffff) << 20 |
           ((uint64_t)(uint32_t)b->bytes & 0x7fffff) << 40 | (uint64_t)b->phase << 63;
}

static void change(struct mbarrier *b, unsigned sub, uint32_t count) {
    switch (sub) {
    case PTX_SUB_MB_INIT:
        *b = (struct mbarrier){.pending = count, .expected = count};
        return;
    case PTX_SUB_MB_INVAL:
        return;
    case PTX_SUB_MB_DROP:
        b->expected -= count;
        b->pending -= count;
        break;
    case PTX_SUB_MB_ARRIVE:
        b->pending -= count;
        break;
    case PTX_SUB_MB_ARRIVE_TX:
        b->bytes += (int32_t)count;
        b->pending--;
        break;
    case PTX_SUB_MB_EXPECT_TX:
        b->bytes += (int32_t)count;
        break;
    default: /* PTX_SUB_MB_COMPLETE_TX */
        b->bytes -= (int32_t)count;
    }
    if (b->pending || b->bytes) return;
    b->phase ^= 1;
    b->pending = b->expected;
}

enum ptx_step ptx_x_mbarrier(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned char *place;
    if (i->sub == PTX_SUB_MB_PENDING) {
        struct mbarrier b = unpacked(ptx_get(t, &i->src[0], PTX_B64));
        ptx_put(t, &i->dst[0], PTX_B32, b.pending);
        return PTX_STEP_NEXT;
    }
    if (ptx_place(t, i, &i->src[0], i->space, 8, 8, PTX_P_READS | PTX_P_WRITES, &place)) return PTX_STEP_FAULT;
    struct mbarrier b = unpacked(ptx_load(place, 8));
    if (i->sub == PTX_SUB_MB_WAIT || i->sub == PTX_SUB_MB_PARITY) {
        bool parity = i->sub == PTX_SUB_MB_PARITY;
        uint64_t of = ptx_get(t, &i->src[1], parity ? PTX_B32 : PTX_B64);
        ptx_put(t, &i->dst[0], PTX_PRED, (parity ? of & 1 : of >> 63) != b.phase);
        return PTX_STEP_NEXT;
    }
    if (i->dsts) ptx_put(t, &i->dst[0], PTX_B64, packed(&b));
    change(&b, i->sub, (uint32_t)ptx_get(t, &i->src[1], PTX_B32));
    ptx_store(place, 8, packed(&b));
    return PTX_STEP_NEXT;
}
