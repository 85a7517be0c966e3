/* Opcodes of the interpreter on bits: fields, counts, permutes, shifts, logic. The formulas are the PTX manual's. */
#include "ptx/ptx_machine.h"

static uint64_t field(enum ptx_type type, uint64_t a, unsigned pos, unsigned len) {
    unsigned msb = ptx_type_bits(type) - 1, last = pos + len - 1 < msb ? pos + len - 1 : msb;
    bool sign = ptx_type_kind(type) == PTX_KIND_S && len && a >> last & 1;
    uint64_t r = 0;
    for (unsigned k = 0; k <= msb; k++) {
        uint64_t bit = k < len && pos + k <= msb ? a >> (pos + k) & 1 : sign;
        r |= bit << k;
    }
    return r;
}

static uint64_t insert(enum ptx_type type, uint64_t a, uint64_t b, unsigned pos, unsigned len) {
    unsigned msb = ptx_type_bits(type) - 1;
    for (unsigned k = 0; k < len && pos + k <= msb; k++)
        b = (b & ~(UINT64_C(1) << (pos + k))) | (a >> k & 1) << (pos + k);
    return b;
}

static uint32_t find_highest(const struct ptx_instr *i, uint64_t a) {
    unsigned bits = ptx_type_bits(i->type);
    if (ptx_type_kind(i->type) == PTX_KIND_S && a >> (bits - 1) & 1) a = ptx_bits(~a, bits);
    if (!a) return UINT32_MAX;
    uint32_t place = 63 - (uint32_t)__builtin_clzll(a);
    return i->modifiers & PTX_M_SHIFTAMT ? bits - 1 - place : place;
}

static uint32_t mask_of(const struct ptx_instr *i, uint32_t a, uint32_t b) {
    bool clamp = !(i->modifiers & PTX_M_WRAP);
    uint32_t first = a & 31, width = b & 31, below = UINT32_MAX << first, above;
    if (clamp && a >= 32) return 0;
    if (first + width >= 32 || (clamp && b >= 32))
        above = 0;
    else
        above = UINT32_MAX << (first + width);
    return width || (clamp && b >= 32) ? below & ~above : 0;
}

static uint32_t extend(const struct ptx_instr *i, uint32_t a, uint32_t b) {
    uint32_t width = b & 31;
    if (b >= 32 && !(i->modifiers & PTX_M_WRAP)) return a;
    if (!width) return 0;
    uint32_t high = UINT32_MAX << width;
    bool sign = ptx_type_kind(i->type) == PTX_KIND_S && a >> (width - 1) & 1;
    return sign ? a | high : a & ~high;
}

static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset) {
    if (!offset) return base < 32 && mask >> base & 1 ? base : UINT32_MAX;
    int64_t count = (offset > 0 ? offset : -(int64_t)offset) - 1;
    for (int64_t pos = base; pos >= 0 && pos<32; pos += offset> 0 ? 1 : -1)
        if (mask >> pos & 1 && !count--) return (uint32_t)pos;
    return UINT32_MAX;
}

static uint64_t reversed(uint64_t a, unsigned bits) {
    uint64_t r = 0;
    for (unsigned k = 0; k < bits; k++) r |= (a >> k & 1) << (bits - 1 - k);
    return r;
}

enum ptx_step ptx_x_bits(struct ptx_thread *t, const struct ptx_instr *i) {
    enum ptx_type type = i->type;
    unsigned bits = ptx_type_bits(type);
    bool counts = i->op == PTX_OP_FNS;
    uint64_t a = ptx_get(t, &i->src[0], counts ? PTX_B32 : type), b = 0, c = 0, d = 0, r = 0;
    if (i->srcs > 1) b = ptx_get(t, &i->src[1], i->op == PTX_OP_BFI ? type : PTX_B32);
    if (i->srcs > 2) c = ptx_get(t, &i->src[2], PTX_B32);
    if (i->srcs > 3) d = ptx_get(t, &i->src[3], PTX_B32);
    switch (i->op) {
    case PTX_OP_POPC:
        r = (uint64_t)__builtin_popcountll(a), type = PTX_U32;
        break;
    case PTX_OP_CLZ:
        r = a ? (uint64_t)__builtin_clzll(a) - (64 - bits) : bits, type = PTX_U32;
        break;
    case PTX_OP_BREV:
        r = reversed(a, bits);
        break;
    case PTX_OP_BFE:
        r = field(type, a, b & 0xff, c & 0xff);
        break;
    case PTX_OP_BFI:
        r = insert(type, a, b, c & 0xff, d & 0xff);
        break;
    case PTX_OP_BFIND:
        r = find_highest(i, a), type = PTX_U32;
        break;
    case PTX_OP_BMSK:
        r = mask_of(i, (uint32_t)a, (uint32_t)b);
        break;
    case PTX_OP_SZEXT:
        r = extend(i, (uint32_t)a, (uint32_t)b);
        break;
    case PTX_OP_FNS:
        r = nth_set((uint32_t)a, (uint32_t)b, (int32_t)(uint32_t)c);
        break;
    case PTX_OP_CNOT:
        r = !a;
        break;
    default:
        return ptx_fail_here(t, i);
    }
    ptx_put(t, &i->dst[0], type, r);
    return PTX_STEP_NEXT;
}

/* ---- prmt ---- */
/* The special modes: for each value of c's low two bits, the selectors of bytes 3 2 1 0. */
static const uint16_t selectors[][4] = {
    [PTX_SUB_F4E - PTX_SUB_F4E] = {0x3210, 0x4321, 0x5432, 0x6543},
    [PTX_SUB_B4E - PTX_SUB_F4E] = {0x5670, 0x6701, 0x7012, 0x0123},
    [PTX_SUB_RC8 - PTX_SUB_F4E] = {0x0000, 0x1111, 0x2222, 0x3333},
    [PTX_SUB_ECL - PTX_SUB_F4E] = {0x3210, 0x3211, 0x3222, 0x3333},
    [PTX_SUB_ECR - PTX_SUB_F4E] = {0x0000, 0x1110, 0x2210, 0x3210},
    [PTX_SUB_RC16 - PTX_SUB_F4E] = {0x1010, 0x3232, 0x1010, 0x3232},
};

enum ptx_step ptx_x_prmt(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t a = ptx_get(t, &i->src[0], PTX_B32), b = ptx_get(t, &i->src[1], PTX_B32);
    uint32_t c = (uint32_t)ptx_get(t, &i->src[2], PTX_B32), r = 0;
    uint64_t bytes = a | b << 32;
    if (i->sub) c = selectors[i->sub - PTX_SUB_F4E][c & 3];
    for (unsigned k = 0; k < 4; k++) {
        unsigned s = c >> 4 * k & 0xf;
        uint32_t byte = (uint32_t)(bytes >> 8 * (s & 7)) & 0xff;
        if (s & 8) /* its sign, eight times */
            byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * k;
    }
    ptx_put(t, &i->dst[0], PTX_B32, r);
    return PTX_STEP_NEXT;
}

/* ---- shifts and logic ---- */
static uint64_t funnel(const struct ptx_instr *i, uint64_t a, uint64_t b, uint32_t c) {
    uint64_t both = b << 32 | a;
    bool clamp = i->sub == PTX_SUB_L_CLAMP || i->sub == PTX_SUB_R_CLAMP;
    uint32_t n = clamp ? (c < 32 ? c : 32) : c & 31;
    if (i->sub == PTX_SUB_L_CLAMP || i->sub == PTX_SUB_L_WRAP) return both << n >> 32;
    return both >> n;
}

enum ptx_step ptx_x_shift(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned bits = ptx_type_bits(i->type);
    if (i->op == PTX_OP_SHF) {
        uint64_t a = ptx_get(t, &i->src[0], PTX_B32), b = ptx_get(t, &i->src[1], PTX_B32);
        ptx_put(t, &i->dst[0], PTX_B32, funnel(i, a, b, (uint32_t)ptx_get(t, &i->src[2], PTX_B32)));
        return PTX_STEP_NEXT;
    }
    uint64_t a = ptx_get_int(t, &i->src[0], i->type), n = ptx_get(t, &i->src[1], PTX_U32), r;
    if (i->op == PTX_OP_SHL)
        r = n < bits ? a << n : 0;
    else if (ptx_type_kind(i->type) == PTX_KIND_S)
        r = (uint64_t)((int64_t)a >> (n < bits ? n : 63));
    else
        r = n < bits ? a >> n : 0;
    ptx_put(t, &i->dst[0], i->type, r);
    return PTX_STEP_NEXT;
}

enum ptx_step ptx_x_logic(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t a, b = 0, r;
    if (i->type == PTX_PRED) {
        a = ptx_get_pred(t, &i->src[0]);
        b = i->srcs > 1 && ptx_get_pred(t, &i->src[1]);
    } else {
        a = ptx_get(t, &i->src[0], i->type);
        b = i->srcs > 1 ? ptx_get(t, &i->src[1], i->type) : 0;
    }
    switch (i->op) {
    case PTX_OP_AND:
        r = a & b;
        break;
    case PTX_OP_OR:
        r = a | b;
        break;
    case PTX_OP_XOR:
        r = a ^ b;
        break;
    default:
        r = ~a;
    }
    ptx_put(t, &i->dst[0], i->type, r);
    return PTX_STEP_NEXT;
}

/* lop3: any function of three bits, by its table. With a predicate: d | p = (d != 0) op q. */
enum ptx_step ptx_x_lop3(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t a = ptx_get(t, &i->src[0], PTX_B32), b = ptx_get(t, &i->src[1], PTX_B32),
             c = ptx_get(t, &i->src[2], PTX_B32), r = 0;
    for (unsigned k = 0; k < 32; k++) {
        unsigned row = (unsigned)((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1));
        r |= (uint64_t)(i->lut >> row & 1) << k;
    }
    ptx_put(t, &i->dst[0], PTX_B32, r);
    if (i->dsts > 1) {
        bool q = i->srcs > 3 && ptx_get_pred(t, &i->src[3]);
        ptx_put(t, &i->dst[1], PTX_PRED, i->combine == PTX_SUB_AND ? r && q : r || q);
    }
    return PTX_STEP_NEXT;
}
