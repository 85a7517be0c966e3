/* What is known of registers before code is made: which hold one number for the whole warp (or base + lane * stride),
 * which are constants, which are distances from a pointer. Flow-insensitive, to a fixed point. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_jit_visit.h"

#include <stdlib.h>

static const struct jit_shape SHAPE_TOP = {.kind = JIT_TOP};
static const struct jit_shape SHAPE_VARYING = {.kind = JIT_VARYING, .differs = ~UINT64_C(0)};
static const struct jit_shape SHAPE_UNIFORM = {.kind = JIT_SCALAR};

static struct jit_shape shape_constant(uint64_t v, unsigned bits) {
    if (bits < 64) v &= (UINT64_C(1) << bits) - 1;
    return (struct jit_shape){.kind = JIT_SCALAR,
                              .constant = true,
                              .value = v,
                              .bounded = v <= INT32_MAX,
                              .zeros = v ? (uint8_t)__builtin_ctzll(v) : 63};
}

static struct jit_shape shape_varying(uint64_t differs) {
    if (!differs) return SHAPE_UNIFORM;
    return (struct jit_shape){.kind = JIT_VARYING, .differs = differs};
}

static bool same(const struct jit_shape *a, const struct jit_shape *b) {
    return a->kind == b->kind && a->constant == b->constant && a->bounded == b->bounded && a->maybe == b->maybe &&
           a->stride == b->stride && a->differs == b->differs && a->value == b->value && a->zeros == b->zeros &&
           a->origin == b->origin;
}

static struct jit_shape meet(struct jit_shape a, struct jit_shape b) {
    if (a.kind == JIT_TOP) return b;
    if (b.kind == JIT_TOP) return a;
    if (a.kind == JIT_VARYING || b.kind == JIT_VARYING || a.stride != b.stride) {
        struct jit_shape v = shape_varying(a.differs | b.differs);
        v.kind = JIT_VARYING;
        v.maybe =
            a.stride == b.stride && a.stride && (a.maybe || a.kind == JIT_SCALAR) && (b.maybe || b.kind == JIT_SCALAR);
        v.stride = v.maybe ? a.stride : 0;
        return v;
    }
    struct jit_shape r = a;
    r.constant = a.constant && b.constant && a.value == b.value;
    if (!r.constant) r.value = 0;
    r.bounded = a.bounded && b.bounded;
    r.differs |= b.differs;
    if (b.zeros < r.zeros) r.zeros = b.zeros;
    if (a.origin != b.origin) r.origin = JIT_ORIGIN_NONE;
    return r;
}

/* ---- operands ---- */
static struct jit_shape special_shape(struct jit_gen *g, unsigned s) {
    struct jit_shape lane = {.kind = JIT_SCALAR, .stride = 1, .differs = JIT_LANES - 1, .bounded = true, .zeros = 5};
    struct jit_shape uniform = SHAPE_UNIFORM;
    if (g->u->along_x && s == PTX_TID_X)
        return (struct jit_shape){.kind = JIT_SCALAR, .stride = 1, .differs = ~UINT64_C(0), .bounded = true};
    if (g->u->along_x && (s == PTX_LANEID || s == PTX_WARPID || s >= PTX_LANEMASK_EQ)) return SHAPE_VARYING;
    if (g->u->lanes == 1) return uniform;
    switch (s) {
    case PTX_TID_X:
        if (!g->u->aligned) return SHAPE_VARYING;
        lane.origin = JIT_TID_X;
        return lane;
    case PTX_TID_Y:
    case PTX_TID_Z:
        uniform.bounded = true;
        return g->u->aligned ? uniform : SHAPE_VARYING;
    case PTX_NTID_X:
        uniform.bounded = true;
        if (g->u->aligned) uniform.zeros = 5, uniform.origin = JIT_NTID_X;
        return uniform;
    case PTX_CTAID_X:
        uniform.bounded = true;
        if (g->u->aligned) uniform.origin = JIT_CTAID_X;
        return uniform;
    case PTX_LANEID:
        return lane;
    case PTX_LANEMASK_EQ:
    case PTX_LANEMASK_LE:
    case PTX_LANEMASK_LT:
    case PTX_LANEMASK_GE:
    case PTX_LANEMASK_GT:
        return SHAPE_VARYING;
    default:
        uniform.bounded = s <= PTX_NCTAID_Z || s == PTX_WARPID || s == PTX_NWARPID;
        return uniform;
    }
}

struct jit_shape jit_operand_shape(struct jit_gen *g, const struct ptx_operand *o, unsigned bits) {
    switch (o->kind) {
    case PTX_REG:
        return g->shapes[o->reg];
    case PTX_IMM:
        return shape_constant(o->bits, bits);
    case PTX_SREG_OP:
        return special_shape(g, o->sreg);
    case PTX_SYMBOL:
        return SHAPE_UNIFORM;
    case PTX_ADDRESS:
        return o->reg >= 0 ? g->shapes[o->reg] : SHAPE_UNIFORM;
    default:
        return SHAPE_VARYING;
    }
}

/* ---- results ---- */
static uint64_t low_mask(unsigned bits) {
    return bits >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << bits) - 1;
}

/* From the lowest bit in which operands differ upwards: what a sum may differ in. */
static uint64_t from_lowest(uint64_t differs, unsigned bits) {
    return differs ? ~((differs & (~differs + 1)) - 1) & low_mask(bits) : 0;
}

/* base + lane * stride: no carry out of the base's zero bits if the lanes' part fits into them. */
static uint64_t lane_bits(const struct jit_shape *s, unsigned bits) {
    uint64_t most = (uint64_t)s->stride * (JIT_LANES - 1), all = low_mask(bits);
    if (!s->stride) return 0;
    if (s->stride > 0 && s->stride < INT32_MAX && s->zeros < 63 && most < UINT64_C(1) << s->zeros)
        all = (UINT64_C(2) << (63 - __builtin_clzll(most))) - 1;
    return from_lowest((uint64_t)s->stride, bits) & all;
}

static bool zero(const struct jit_shape *s) {
    return s->constant && !s->value;
}

static struct jit_shape shape_sum(struct jit_shape a, struct jit_shape b, int64_t sign, unsigned bits) {
    if (zero(&b)) return a;
    if (zero(&a) && sign > 0) return b;
    if (a.constant && b.constant) return shape_constant(a.value + (uint64_t)sign * b.value, bits);
    if (a.kind == JIT_SCALAR && b.kind == JIT_SCALAR) {
        struct jit_shape r = {.kind = JIT_SCALAR, .stride = a.stride + sign * b.stride};
        r.zeros = a.zeros < b.zeros ? a.zeros : b.zeros;
        r.differs = lane_bits(&r, bits);
        r.bounded = sign > 0 && ((a.origin == JIT_BLOCK_START && b.origin == JIT_TID_X) ||
                                 (b.origin == JIT_BLOCK_START && a.origin == JIT_TID_X));
        return r;
    }
    struct jit_shape r = shape_varying(from_lowest(a.differs | b.differs, bits));
    r.maybe = (a.kind == JIT_SCALAR || a.maybe) && (b.kind == JIT_SCALAR || b.maybe);
    r.stride = r.maybe ? a.stride + sign * b.stride : 0;
    if (!r.stride) r.maybe = false;
    return r;
}

static struct jit_shape product_of_uniform(struct jit_shape a, struct jit_shape b) {
    struct jit_shape r = SHAPE_UNIFORM;
    r.zeros = a.zeros + b.zeros > 63 ? 63 : (uint8_t)(a.zeros + b.zeros);
    if ((a.origin == JIT_CTAID_X && b.origin == JIT_NTID_X) || (b.origin == JIT_CTAID_X && a.origin == JIT_NTID_X)) {
        r.origin = JIT_BLOCK_START;
        r.bounded = true;
    }
    return r;
}

static struct jit_shape shape_product(struct jit_shape a, struct jit_shape b, unsigned bits) {
    if (a.constant && b.constant) return shape_constant(a.value * b.value, bits);
    if (a.constant) {
        struct jit_shape t = a;
        a = b;
        b = t;
    }
    if (a.kind == JIT_SCALAR && b.kind == JIT_SCALAR && !a.stride && !b.stride) return product_of_uniform(a, b);
    if (!b.constant) return shape_varying(from_lowest(a.differs | b.differs, bits));
    struct jit_shape r = shape_varying(from_lowest(a.differs << (b.zeros & 63), bits));
    if (a.kind != JIT_SCALAR && !a.maybe) return r;
    /* as a signed number: a negative factor of 32 bits makes a negative stride */
    int64_t factor = bits == 32 ? (int32_t)b.value : (int64_t)b.value;
    r.kind = a.kind;
    r.maybe = a.maybe;
    r.stride = (int64_t)((uint64_t)a.stride * (uint64_t)factor);
    r.zeros = a.zeros + b.zeros > 63 ? 63 : (uint8_t)(a.zeros + b.zeros);
    if (!r.stride) return SHAPE_UNIFORM;
    if (r.kind == JIT_SCALAR) r.differs = lane_bits(&r, bits);
    return r;
}

/* A wider register: base + lane * stride stays so if it cannot wrap. That of a signed index cannot: the compilers of
 * CUDA C rely on it as well. */
static struct jit_shape shape_extend(struct jit_shape a, unsigned from, bool is_signed) {
    if (a.kind == JIT_TOP) return a;
    if (a.constant) {
        uint64_t v = a.value & low_mask(from);
        if (is_signed && from < 64 && v >> (from - 1) & 1) v |= ~low_mask(from);
        struct jit_shape c = shape_constant(v, 64);
        return c;
    }
    if (a.kind == JIT_SCALAR && (!a.stride || is_signed || a.bounded)) {
        struct jit_shape r = a;
        if (is_signed && a.differs >> (from - 1)) r.differs |= ~low_mask(from);
        return r;
    }
    struct jit_shape r = shape_varying(a.differs);
    if (is_signed && from < 64 && a.differs >> (from - 1)) r.differs |= ~low_mask(from);
    r.kind = JIT_VARYING;
    r.maybe = a.maybe || a.kind == JIT_SCALAR;
    r.stride = r.maybe ? a.stride : 0;
    if (!r.stride) r.maybe = false;
    return r;
}

static struct jit_shape shape_narrow(struct jit_shape a, unsigned to) {
    a.differs &= low_mask(to);
    a.bounded = false;
    if (a.constant) return shape_constant(a.value, to);
    if (a.kind == JIT_VARYING && !a.differs) return SHAPE_UNIFORM;
    return a;
}

/* Any function of operands that are each one number. */
static struct jit_shape shape_any(struct jit_gen *g, const struct ptx_instr *i) {
    for (int32_t s = 0; s < i->srcs; s++) {
        const struct ptx_operand *o = &i->src[s];
        int32_t n = o->kind == PTX_VECTOR ? o->count : 1;
        for (int32_t e = 0; e < n; e++) {
            struct jit_shape x = jit_operand_shape(g, o->kind == PTX_VECTOR ? &o->elements[e] : o, 64);
            if (x.kind == JIT_TOP) return SHAPE_TOP;
            if (x.kind == JIT_VARYING || x.stride) return SHAPE_VARYING;
        }
    }
    return SHAPE_UNIFORM;
}

static struct jit_shape shape_logic(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    struct jit_shape a = jit_operand_shape(g, &i->src[0], bits);
    if (i->op == PTX_OP_NOT) {
        if (a.kind == JIT_SCALAR && a.stride) return shape_varying(a.differs);
        return a.kind == JIT_SCALAR ? SHAPE_UNIFORM : a.kind == JIT_TOP ? a : shape_varying(a.differs);
    }
    struct jit_shape b = jit_operand_shape(g, &i->src[1], bits);
    if (a.kind == JIT_TOP || b.kind == JIT_TOP) return SHAPE_TOP;
    uint64_t differs = a.differs | b.differs;
    if (i->op == PTX_OP_AND && a.constant) differs &= a.value;
    if (i->op == PTX_OP_AND && b.constant) differs &= b.value;
    struct jit_shape r = shape_varying(differs);
    /* The lane number out of tid.x, or out of a thread's number in the grid: low bits that the base does not have. */
    if (i->op == PTX_OP_AND && b.constant && a.kind == JIT_SCALAR && a.stride && a.zeros < 63 &&
        b.value == (UINT64_C(1) << a.zeros) - 1 && a.differs && !(a.differs & ~b.value))
        r = (struct jit_shape){
            .kind = JIT_SCALAR, .stride = a.stride, .differs = a.differs, .bounded = true, .zeros = a.zeros};
    return r;
}

static struct jit_shape shape_shift(struct jit_gen *g, const struct ptx_instr *i, unsigned bits, bool is_signed) {
    struct jit_shape a = jit_operand_shape(g, &i->src[0], bits), b = jit_operand_shape(g, &i->src[1], 32);
    if (a.kind == JIT_TOP || b.kind == JIT_TOP) return SHAPE_TOP;
    if (!b.constant || b.value >= bits) return shape_any(g, i);
    if (i->op == PTX_OP_SHL) return shape_product(a, shape_constant(UINT64_C(1) << b.value, bits), bits);
    if (is_signed && bits == 32 && b.value == 31 && a.bounded && a.kind == JIT_SCALAR) return shape_constant(0, bits);
    uint64_t differs = a.differs >> b.value;
    if (is_signed && a.differs >> (bits - 1)) differs = low_mask(bits);
    return shape_varying(differs);
}

static struct jit_shape shape_cvt(struct jit_gen *g, const struct ptx_instr *i) {
    unsigned from_kind = ptx_type_kind(i->type2), to_kind = ptx_type_kind(i->type);
    unsigned from = ptx_type_bits(i->type2), to = ptx_type_bits(i->type);
    struct jit_shape a = jit_operand_shape(g, &i->src[0], from);
    if (a.kind == JIT_TOP) return a;
    if (from_kind == PTX_KIND_F || to_kind == PTX_KIND_F || from_kind == PTX_KIND_X2 || to_kind == PTX_KIND_X2 ||
        i->modifiers & PTX_M_SAT)
        return shape_any(g, i);
    if (to > from) return shape_extend(a, from, from_kind == PTX_KIND_S);
    return to < from ? shape_narrow(a, to) : a;
}

static struct jit_shape shape_mad(struct jit_gen *g, const struct ptx_instr *i, unsigned bits) {
    struct jit_shape a = jit_operand_shape(g, &i->src[0], bits), b = jit_operand_shape(g, &i->src[1], bits), r;
    bool is_signed = ptx_type_kind(i->type) == PTX_KIND_S;
    if (a.kind == JIT_TOP || b.kind == JIT_TOP) return SHAPE_TOP;
    if (i->modifiers & (PTX_M_HI | PTX_M_SAT)) return shape_any(g, i);
    unsigned wide = bits;
    if (i->modifiers & PTX_M_WIDE) {
        wide = 2 * bits;
        a = shape_extend(a, bits, is_signed), b = shape_extend(b, bits, is_signed);
    }
    r = shape_product(a, b, wide);
    if (i->op != PTX_OP_MAD) return r;
    struct jit_shape c = jit_operand_shape(g, &i->src[2], wide);
    return c.kind == JIT_TOP ? c : shape_sum(r, c, 1, wide);
}

static struct jit_shape shape_load(struct jit_gen *g, const struct ptx_instr *i) {
    if (i->space == PTX_PARAM && !g->f->entry) return SHAPE_VARYING;
    if (i->space == PTX_PARAM && i->src[0].var >= 0 && i->src[0].var - g->u->module->var_count >= g->f->params)
        return SHAPE_VARYING; /* what a call left */
    if (i->space == PTX_LOCAL) return SHAPE_VARYING;
    return shape_any(g, i);
}

static bool whole_warp(const struct ptx_operand *clamp) {
    return clamp->kind == PTX_IMM && !(clamp->bits >> 8 & 31);
}

struct jit_shape jit_shape_of(struct jit_gen *g, const struct ptx_instr *i, int32_t d) {
    bool is_float = ptx_type_kind(i->type) == PTX_KIND_F || ptx_type_kind(i->type) == PTX_KIND_X2;
    unsigned bits = ptx_type_bits(i->type);
    bool is_signed = ptx_type_kind(i->type) == PTX_KIND_S;
    struct jit_shape a, b, c;
    if (jit_same_in_all(g, i)) return SHAPE_UNIFORM;
    switch (i->op) {
    case PTX_OP_MOV:
        if (i->src[0].kind == PTX_VECTOR || i->dst[0].kind == PTX_VECTOR) return shape_any(g, i);
        return jit_operand_shape(g, &i->src[0], bits);
    case PTX_OP_CVTA:
        if (i->space == PTX_LOCAL) return SHAPE_VARYING;
        a = jit_operand_shape(g, &i->src[0], bits);
        a.constant = false;
        return a;
    case PTX_OP_ADD:
    case PTX_OP_SUB:
        if (is_float || i->modifiers & (PTX_M_SAT | PTX_M_CC) || bits == 128) return shape_any(g, i);
        a = jit_operand_shape(g, &i->src[0], bits), b = jit_operand_shape(g, &i->src[1], bits);
        if (a.kind == JIT_TOP || b.kind == JIT_TOP) return SHAPE_TOP;
        return shape_sum(a, b, i->op == PTX_OP_ADD ? 1 : -1, bits);
    case PTX_OP_MUL:
    case PTX_OP_MAD:
        return is_float || i->modifiers & PTX_M_CC ? shape_any(g, i) : shape_mad(g, i, bits);
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
    case PTX_OP_NOT:
        return bits == 1 ? shape_any(g, i) : shape_logic(g, i, bits);
    case PTX_OP_SHL:
    case PTX_OP_SHR:
        return shape_shift(g, i, bits, is_signed);
    case PTX_OP_CVT:
        return shape_cvt(g, i);
    case PTX_OP_SELP:
        a = jit_operand_shape(g, &i->src[0], bits), b = jit_operand_shape(g, &i->src[1], bits);
        c = jit_operand_shape(g, &i->src[2], 1);
        if (a.kind == JIT_TOP || b.kind == JIT_TOP || c.kind == JIT_TOP) return SHAPE_TOP;
        if (c.kind == JIT_VARYING) return SHAPE_VARYING;
        a = meet(a, b);
        a.constant = false;
        return a;
    case PTX_OP_LD:
    case PTX_OP_LDU:
        return shape_load(g, i);
    case PTX_OP_ATOM:
    case PTX_OP_CALL:
    case PTX_OP_ELECT:
    case PTX_OP_MATCH:
    case PTX_OP_ADDC:
    case PTX_OP_SUBC:
    case PTX_OP_MADC:
        return SHAPE_VARYING;
    case PTX_OP_SHFL:
        if (d) return SHAPE_VARYING;
        a = jit_operand_shape(g, &i->src[0], bits), b = jit_operand_shape(g, &i->src[1], 32);
        if (a.kind == JIT_TOP || b.kind == JIT_TOP) return SHAPE_TOP;
        if (a.kind == JIT_SCALAR && !a.stride) return SHAPE_UNIFORM;
        if (i->sub == PTX_SUB_IDX && i->srcs > 2) {
            c = jit_operand_shape(g, &i->src[2], 32);
            if (c.kind == JIT_TOP) return c;
            if (b.kind == JIT_SCALAR && !b.stride && (whole_warp(&i->src[2]) || (c.constant && !(c.value >> 8 & 31))))
                return SHAPE_UNIFORM;
        }
        return SHAPE_VARYING;
    case PTX_OP_VOTE:
    case PTX_OP_REDUX: /* one value for those whose member mask is one value */
        a = jit_operand_shape(g, &i->src[i->srcs - 1], 32);
        if (a.kind == JIT_TOP) return a;
        return a.kind == JIT_SCALAR && !a.stride ? SHAPE_UNIFORM : SHAPE_VARYING;
    case PTX_OP_ACTIVEMASK:
        return SHAPE_UNIFORM;
    default:
        return shape_any(g, i);
    }
}

bool jit_divergent_guard(struct jit_gen *g, const struct ptx_instr *i) {
    if (g->u->lanes == 1) return false;
    if (i->op == PTX_OP_BRX) {
        struct jit_shape s = jit_operand_shape(g, &i->src[0], 32);
        return s.kind == JIT_VARYING || s.stride;
    }
    return i->guard >= 0 && g->shapes[i->guard].kind == JIT_VARYING;
}

/* ---- the fixed point ---- */
/* Lanes may hold values of different times; most likely they do not. */
static struct jit_shape made_varying(struct jit_shape s) {
    struct jit_shape r = SHAPE_VARYING;
    if (s.kind == JIT_TOP) return s;
    r.maybe = s.stride != 0;
    r.stride = s.stride;
    return r;
}

struct assign {
    struct jit_gen *g;
    const struct ptx_instr *i;
    struct jit_shape s;
    bool guarded, changed;
};
static void assign(void *context, int32_t reg) {
    struct assign *a = context;
    struct jit_shape now = a->s, *old = &a->g->shapes[reg];
    unsigned bits = ptx_type_bits(a->g->f->regs[reg].type);
    if (a->g->u->lanes == 1 && now.kind == JIT_VARYING) now = SHAPE_UNIFORM;
    if (a->g->u->lanes > 1 && (a->guarded || a->g->flow.blend[reg])) now = made_varying(now);
    if (now.constant && bits < 64) now.value &= low_mask(bits);
    if (now.constant && a->i->guard >= 0) now.constant = false, now.value = 0;
    now = meet(*old, now);
    if (same(&now, old)) return;
    *old = now;
    a->changed = true;
}

static bool round_of_shapes(struct jit_gen *g) {
    bool changed = false;
    g->full = jit_full(g);
    for (int32_t k = 0; k < g->flow.count; k++) {
        const struct ptx_block *b = &g->f->blocks[g->block = g->flow.order[k]];
        for (int32_t n = b->first; n < b->end; n++) {
            const struct ptx_instr *i = &g->f->instrs[n];
            bool guarded = i->guard >= 0 && g->shapes[i->guard].kind == JIT_VARYING;
            for (int32_t d = 0; d < i->dsts; d++) {
                struct assign a = {g, i, jit_shape_of(g, i, d), guarded, false};
                if (i->dst[d].kind == PTX_ADDRESS) continue;
                if (i->op == PTX_OP_SETP && a.s.kind != JIT_TOP) a.s = shape_any(g, i);
                jit_visit_operand(&i->dst[d], assign, &a);
                changed |= a.changed;
            }
        }
    }
    return changed;
}

static void meet_all(struct jit_gen *g) {
    for (int32_t r = 0; r < g->f->reg_count; r++)
        if (g->flow.blend[r]) g->shapes[r] = made_varying(g->shapes[r]);
}

/* What nothing assigns may hold anything: nvcc leaves such registers where only other bits of a result matter. Taken
 * for nothing, it would make all that is computed from it nothing, too. */
static bool any_value(struct jit_gen *g) {
    bool changed = false;
    for (int32_t r = 0; r < g->f->reg_count; r++) {
        if (g->shapes[r].kind != JIT_TOP) continue;
        g->shapes[r] = g->u->lanes == 1 ? SHAPE_UNIFORM : SHAPE_VARYING;
        changed = true;
    }
    return changed;
}

int jit_shapes(struct jit_gen *g) {
    g->shapes = calloc((size_t)g->f->reg_count + 1, sizeof *g->shapes);
    if (!g->shapes) return jit_fail(g, "no memory"), -1;
    for (bool changed = true; changed;) {
        while (round_of_shapes(g)) {
        }
        changed = any_value(g);
        if (g->u->lanes == 1) continue;
        int32_t before = 0, after = 0;
        for (int32_t r = 0; r < g->f->reg_count; r++) before += g->flow.blend[r];
        jit_flow_divergence(g);
        if (g->u->failed) return -1;
        for (int32_t r = 0; r < g->f->reg_count; r++) after += g->flow.blend[r];
        meet_all(g);
        changed |= before != after || round_of_shapes(g);
    }
    return 0;
}

/* A result is one number if all its registers are; an instruction without one, if its operands are. */
struct scalar {
    struct jit_gen *g;
    bool yes;
};
static void scalar_reg(void *context, int32_t reg) {
    struct scalar *s = context;
    if (!jit_reg_scalar(s->g, reg)) s->yes = false;
}
bool jit_scalar_result(struct jit_gen *g, const struct ptx_instr *i) {
    struct scalar s = {g, true};
    if (g->u->lanes == 1) return true;
    if (!i->dsts) return false;
    jit_visit_defs(i, scalar_reg, &s);
    return s.yes;
}

/* Not so: bits in which all lanes agree, out of a number in which they do not. Lane 0's then is the result: such a
 * number comes from the thread's place alone. */
bool jit_scalar_sources(struct jit_gen *g, const struct ptx_instr *i) {
    struct scalar s = {g, true};
    for (int32_t k = 0; k < i->srcs; k++) jit_visit_operand(&i->src[k], scalar_reg, &s);
    return s.yes;
}
