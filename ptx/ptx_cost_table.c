/* What one instruction of one thread counts. The cost model and the interpreter both count by this. */
#include "ptx/ptx_cost.h"

static const char *const names[PTX_T_FIELDS] = {
    "fp64",         "fp32",         "fp16",           "bf16",          "other",         "tf32",
    "fp8",          "matrix.fp64",  "matrix.fp32",    "matrix.fp16",   "matrix.bf16",   "matrix.other",
    "matrix.tf32",  "matrix.fp8",   "integer",        "loaded.global", "loaded.shared", "loaded.local",
    "loaded.const", "loaded.param", "loaded.generic", "stored.global", "stored.shared", "stored.local",
    "stored.const", "stored.param", "stored.generic", "atomics",       "instructions",
};

const char *ptx_tally_name(unsigned field) {
    return field < PTX_T_FIELDS ? names[field] : "";
}

struct ptx_count *ptx_cost_field(struct ptx_cost *c, unsigned field) {
    if (field < PTX_T_MATRIX) return &c->flops[field];
    if (field < PTX_T_INTEGER) return &c->matrix[field - PTX_T_MATRIX];
    if (field == PTX_T_INTEGER) return &c->integer_ops;
    if (field < PTX_T_STORED) return &c->loaded[field - PTX_T_LOADED];
    if (field < PTX_T_ATOMICS) return &c->stored[field - PTX_T_STORED];
    return field == PTX_T_ATOMICS ? &c->atomics : &c->instructions;
}

enum ptx_cost_space ptx_cost_space_of(enum ptx_space space) {
    switch (space) {
    case PTX_GLOBAL:
        return PTX_COST_GLOBAL;
    case PTX_SHARED:
        return PTX_COST_SHARED;
    case PTX_LOCAL:
        return PTX_COST_LOCAL;
    case PTX_CONST:
        return PTX_COST_CONST;
    case PTX_PARAM:
        return PTX_COST_PARAM;
    default:
        return PTX_COST_GENERIC;
    }
}

static enum ptx_cost_type class_of(enum ptx_type type) {
    switch (type) {
    case PTX_F64:
        return PTX_COST_FP64;
    case PTX_F32:
    case PTX_F32X2:
        return PTX_COST_FP32;
    case PTX_F16:
    case PTX_F16X2:
        return PTX_COST_FP16;
    case PTX_BF16:
    case PTX_BF16X2:
        return PTX_COST_BF16;
    default:
        return PTX_COST_OTHER;
    }
}

static unsigned elements(const struct ptx_instr *i) {
    return i->vector ? i->vector : 1;
}

/* How often the table's count is done by one instruction. */
static int64_t times(const struct ptx_instr *i) {
    int64_t n = 1;
    bool packed = i->type == PTX_U16X2 || i->type == PTX_S16X2;
    if (packed || ptx_type_kind(i->type) == PTX_KIND_X2) n = 2;
    if (ptx_ops[i->op].properties & PTX_P_ATOMIC) {
        if (i->sub == PTX_SUB_CAS || i->sub == PTX_SUB_EXCH) return 0;
        n *= elements(i);
    }
    if ((i->op == PTX_OP_MIN || i->op == PTX_OP_MAX) && i->srcs == 3) n *= 2;
    return n;
}

static enum ptx_cost_type class_of_factor(enum ptx_matrix_type type) {
    switch (type) {
    case PTX_MX_F64:
        return PTX_COST_FP64;
    case PTX_MX_TF32:
        return PTX_COST_TF32;
    case PTX_MX_F16:
        return PTX_COST_FP16;
    case PTX_MX_BF16:
        return PTX_COST_BF16;
    case PTX_MX_E4M3:
    case PTX_MX_E5M2:
        return PTX_COST_FP8;
    default:
        return PTX_COST_OTHER;
    }
}

/* A product is of the warp: each of its lanes counts its share, and all of them take part. */
static void tally_matrix(struct ptx_tally *t, const struct ptx_matrix *x) {
    if (ptx_matrix_is_float(x->a))
        t->n[PTX_T_MATRIX + class_of_factor(x->a)] += ptx_matrix_share(x);
    else
        t->n[PTX_T_INTEGER] += ptx_matrix_share(x);
}

void ptx_tally_instr(struct ptx_tally *t, const struct ptx_instr *i) {
    const struct ptx_op_info *info = &ptx_ops[i->op];
    enum ptx_type_kind kind = ptx_type_kind(i->type);
    t->n[PTX_T_INSTRUCTIONS] += !i->helper;
    if (info->properties & PTX_P_ATOMIC) t->n[PTX_T_ATOMICS] += !i->helper;
    if (i->matrix) tally_matrix(t, i->matrix);
    if (!info->flops && !info->iops) return;
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2)
        t->n[PTX_T_FLOPS + class_of(i->type)] += info->flops * times(i);
    else if (kind != PTX_KIND_P && !i->helper)
        t->n[PTX_T_INTEGER] += info->iops * times(i);
}

void ptx_tally_access(struct ptx_tally *t, const struct ptx_instr *i, enum ptx_cost_space space) {
    unsigned properties = ptx_ops[i->op].properties;
    int64_t bytes = (int64_t)elements(i) * ptx_type_bytes(i->type);
    if (properties & PTX_P_READS && i->op != PTX_OP_RED) t->n[PTX_T_LOADED + space] += bytes;
    if (properties & PTX_P_WRITES) t->n[PTX_T_STORED + space] += bytes;
}
