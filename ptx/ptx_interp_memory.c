/* Memory of the interpreter: where an address lies, the checks of an access, ld, st, atom, red, cvta, isspacep.
 *
 * Parameters: an entry's are the launch's buffer, a parameter-space address is an offset in it. A device function's,
 * and the .param variables of a call, lie in the thread's local memory; their addresses carry PARAM_LOCAL. */
#include "ptx/ptx_machine.h"
#include <math.h>
#include <string.h>

#define PARAM_LOCAL (UINT64_C(1) << 40)

uint64_t ptx_load(const unsigned char *p, unsigned bytes) {
    uint64_t v = 0;
    memcpy(&v, p, bytes < 8 ? bytes : 8);
    return v;
}

void ptx_store(unsigned char *p, unsigned bytes, uint64_t value) {
    memcpy(p, &value, bytes < 8 ? bytes : 8);
}

/* ---- addresses ---- */
uint32_t ptx_arg_offset(const struct ptx_function *f, int32_t k) {
    uint64_t at = 0;
    for (int32_t n = 0;; n++) {
        if (n >= f->params + f->returns) return (uint32_t)(at + 15) & ~15u;
        const struct ptx_var *v = &f->vars[n];
        uint32_t align = v->align ? v->align : 1;
        at = (at + align - 1) / align * align;
        if (n == k) return (uint32_t)at;
        at += v->bytes;
    }
}

/* The address of a .param variable in the parameter space. */
static uint64_t param_address(struct ptx_thread *t, int32_t var) {
    const struct ptx_frame *frame = ptx_top(t);
    const struct ptx_function *f = frame->f;
    const struct ptx_var *v = ptx_var_of(t->m->run->module, f, var);
    int32_t k = (int32_t)(v - f->vars);
    if (k >= f->params + f->returns) return PARAM_LOCAL + frame->local + v->offset;
    return f->entry ? v->offset : PARAM_LOCAL + frame->args + ptx_arg_offset(f, k);
}

unsigned char *ptx_param_bytes(struct ptx_thread *t, int32_t var) {
    uint64_t a = param_address(t, var);
    return a & PARAM_LOCAL ? t->local + (a - PARAM_LOCAL) : (unsigned char *)(uintptr_t)t->m->run->params + a;
}

bool ptx_param_may_change(struct ptx_thread *t, int32_t var) {
    const struct ptx_var *v = ptx_var_of(t->m->run->module, ptx_top(t)->f, var);
    return v->space == PTX_PARAM && param_address(t, var) & PARAM_LOCAL;
}

static uint64_t var_address(struct ptx_thread *t, int32_t var, const struct ptx_var *v) {
    switch (v->space) {
    case PTX_SHARED:
        return (uint64_t)ptx_shared_offset(t->m->run->entry, var);
    case PTX_LOCAL:
        return ptx_top(t)->local + v->offset;
    case PTX_PARAM:
        return param_address(t, var);
    default:
        return (uint64_t)(uintptr_t)t->m->run->symbols[var];
    }
}

/* A function's address is its number in the module, plus one. */
uint64_t ptx_symbol(struct ptx_thread *t, const struct ptx_operand *o) {
    if (o->func >= 0) return (uint64_t)o->func + 1;
    const struct ptx_var *v = ptx_var_of(t->m->run->module, ptx_top(t)->f, o->var);
    return var_address(t, o->var, v) + (uint64_t)o->offset;
}

static uint64_t address_of(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_space *space) {
    if (o->var >= 0) {
        const struct ptx_var *v = ptx_var_of(t->m->run->module, ptx_top(t)->f, o->var);
        *space = v->space;
        return var_address(t, o->var, v) + (uint64_t)o->offset;
    }
    if (o->kind == PTX_IMM) return o->bits;
    if (o->reg < 0) return (uint64_t)o->offset;
    uint64_t a = *ptx_reg_at(t, o->reg) + (uint64_t)o->offset;
    return ptx_bits(a, ptx_type_bits(ptx_top(t)->f->regs[o->reg].type));
}

static bool within(uint64_t a, uint64_t bytes, uint64_t base, uint64_t size) {
    return a - base < size && bytes <= size - (a - base);
}
static uint64_t host(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

/* The space a generic address belongs to, and its address there. */
static enum ptx_space window(struct ptx_thread *t, uint64_t *a) {
    const struct ptx_machine *m = t->m;
    if (m->shared_bytes && within(*a, 1, host(m->shared), m->shared_bytes)) {
        *a -= host(m->shared);
        return PTX_SHARED;
    }
    if (m->local_bytes && within(*a, 1, host(t->local), m->local_bytes)) {
        *a -= host(t->local);
        return PTX_LOCAL;
    }
    if (m->run->entry->param_bytes && within(*a, 1, host(m->run->params), m->run->entry->param_bytes)) {
        *a -= host(m->run->params);
        return PTX_PARAM;
    }
    return PTX_GLOBAL;
}

/* ---- one access ---- */
static int refuse(struct ptx_thread *t, const struct ptx_instr *i, int kind, uint64_t a, uint32_t bytes,
                  unsigned properties, const char *what) {
    ptx_fail(t, i, kind, "%s of %u bytes at 0x%llx, %s", properties & PTX_P_WRITES ? "write" : "read", bytes,
             (unsigned long long)a, what);
    t->m->fault->address = a;
    t->m->fault->bytes = bytes;
    t->m->fault->properties = properties;
    return -1;
}

static int place_global(struct ptx_thread *t, const struct ptx_instr *i, enum ptx_space space, uint64_t a,
                        uint32_t bytes, unsigned properties, unsigned char **place) {
    struct ptx_run *run = t->m->run;
    struct ptx_touch touch = {
        .space = (uint8_t)space, .properties = (uint8_t)properties, .bytes = bytes, .address = a, .instr = i};
    memcpy(touch.ctaid, t->m->ctaid, sizeof touch.ctaid);
    memcpy(touch.tid, t->tid, sizeof touch.tid);
    if (a < 4096 || (run->touch && run->touch(run->context, &touch)))
        return refuse(t, i, PTX_FAULT_ADDRESS, a, bytes, properties, "which may not be accessed");
    *place = (unsigned char *)(uintptr_t)a;
    return 0;
}

static int place_param(struct ptx_thread *t, const struct ptx_instr *i, uint64_t a, uint32_t bytes, unsigned properties,
                       unsigned char **place) {
    struct ptx_run *run = t->m->run;
    if (a & PARAM_LOCAL) {
        a -= PARAM_LOCAL;
        *place = t->local + a;
        return within(a, bytes, 0, t->local_top)
                   ? 0
                   : refuse(t, i, PTX_FAULT_ADDRESS, a, bytes, properties, "outside the parameters of a call");
    }
    *place = (unsigned char *)(uintptr_t)run->params + a;
    return within(a, bytes, 0, run->entry->param_bytes) && !(properties & PTX_P_WRITES)
               ? 0
               : refuse(t, i, PTX_FAULT_ADDRESS, a, bytes, properties, "outside the kernel's parameters");
}

int ptx_place(struct ptx_thread *t, const struct ptx_instr *i, const struct ptx_operand *o, enum ptx_space space,
              uint32_t bytes, uint32_t align, unsigned properties, unsigned char **place) {
    uint64_t a = address_of(t, o, &space);
    if (a % align) return refuse(t, i, PTX_FAULT_MISALIGNED, a, bytes, properties, "which is not aligned");
    if (space == PTX_GENERIC || space == PTX_SPACE_NONE) space = window(t, &a);
    if (t->m->run->counts) ptx_tally_access(t->m->run->counts, i, ptx_cost_space_of(space));
    switch (space) {
    case PTX_SHARED:
        *place = t->m->shared + a;
        return within(a, bytes, 0, t->m->shared_bytes)
                   ? 0
                   : refuse(t, i, PTX_FAULT_ADDRESS, a, bytes, properties, "outside the block's shared memory");
    case PTX_LOCAL:
        *place = t->local + a;
        return within(a, bytes, 0, t->local_top)
                   ? 0
                   : refuse(t, i, PTX_FAULT_ADDRESS, a, bytes, properties, "outside the thread's local memory");
    case PTX_PARAM:
        return place_param(t, i, a, bytes, properties, place);
    default:
        return place_global(t, i, space, a, bytes, properties, place);
    }
}

/* ---- ld, st ---- */
static const struct ptx_operand *element(const struct ptx_operand *o, unsigned k) {
    return o->kind == PTX_VECTOR ? &o->elements[k] : o;
}

static unsigned elements(const struct ptx_instr *i) {
    return i->vector ? i->vector : 1;
}

enum ptx_step ptx_x_ld(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned n = elements(i), each = ptx_type_bytes(i->type);
    unsigned char *p;
    if (each > 8) return ptx_fail_here(t, i);
    if (ptx_place(t, i, &i->src[0], i->space, n * each, n * each, PTX_P_READS, &p)) return PTX_STEP_FAULT;
    for (unsigned k = 0; k < n; k++) ptx_put(t, element(&i->dst[0], k), i->type, ptx_load(p + k * each, each));
    return PTX_STEP_NEXT;
}

enum ptx_step ptx_x_st(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned n = elements(i), each = ptx_type_bytes(i->type);
    unsigned char *p;
    if (each > 8) return ptx_fail_here(t, i);
    if (ptx_place(t, i, &i->src[0], i->space, n * each, n * each, PTX_P_WRITES, &p)) return PTX_STEP_FAULT;
    for (unsigned k = 0; k < n; k++) ptx_store(p + k * each, each, ptx_get(t, element(&i->src[1], k), i->type));
    return PTX_STEP_NEXT;
}

/* As many of its bytes as the second source says are read, the rest are zeros. */
enum ptx_step ptx_x_ldz(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned n = elements(i), each = ptx_type_bytes(i->type);
    uint64_t bytes = ptx_get(t, &i->src[1], PTX_B32);
    unsigned char data[16] = {0}, *p;
    if (bytes > n * each) bytes = n * each;
    if (bytes) {
        struct ptx_tally *counts = t->m->run->counts;
        t->m->run->counts = NULL;
        int r = ptx_place(t, i, &i->src[0], i->space, (uint32_t)bytes, n * each, PTX_P_READS, &p);
        t->m->run->counts = counts;
        if (r) return PTX_STEP_FAULT;
        if (counts) counts->n[PTX_T_LOADED + PTX_COST_GLOBAL] += (int64_t)bytes;
        memcpy(data, p, bytes);
    }
    for (unsigned k = 0; k < n; k++) ptx_put(t, element(&i->dst[0], k), i->type, ptx_load(data + k * each, each));
    return PTX_STEP_NEXT;
}

/* ---- atomics: the host thread is alone, so each is a read and a write ---- */
static uint64_t add(enum ptx_type type, uint64_t a, uint64_t b) {
    if (type == PTX_F64) return ptx_from_double(type, ptx_to_double(type, a) + ptx_to_double(type, b), PTX_RN);
    if (ptx_type_kind(type) == PTX_KIND_F)
        return ptx_from_double(type, ptx_add_odd(ptx_to_double(type, a), ptx_to_double(type, b), PTX_RN), PTX_RN);
    return a + b;
}

static uint64_t extreme(bool max, enum ptx_type type, uint64_t a, uint64_t b) {
    if (ptx_type_kind(type) == PTX_KIND_F) return ptx_float_minmax(max, type, 0, a, b);
    unsigned bits = ptx_type_bits(type);
    bool s = ptx_type_kind(type) == PTX_KIND_S;
    bool less = s ? (int64_t)ptx_sign(a, bits) < (int64_t)ptx_sign(b, bits) : a < b;
    return less != max ? a : b;
}

static uint64_t combine(const struct ptx_instr *i, enum ptx_type type, uint64_t old, uint64_t b, uint64_t c) {
    switch (i->sub) {
    case PTX_SUB_ADD:
        return add(type, old, b);
    case PTX_SUB_MIN:
    case PTX_SUB_MAX:
        return extreme(i->sub == PTX_SUB_MAX, type, old, b);
    case PTX_SUB_INC:
        return old >= b ? 0 : old + 1;
    case PTX_SUB_DEC:
        return !old || old > b ? b : old - 1;
    case PTX_SUB_CAS:
        return old == b ? c : old;
    case PTX_SUB_EXCH:
        return b;
    case PTX_SUB_AND:
        return old & b;
    case PTX_SUB_OR:
        return old | b;
    default: /* PTX_SUB_XOR */
        return old ^ b;
    }
}

static uint64_t combine_any(const struct ptx_instr *i, uint64_t old, uint64_t b, uint64_t c) {
    enum ptx_type half = ptx_half_type(i->type);
    if (half == PTX_NONE) return combine(i, i->type, old, b, c);
    unsigned bits = ptx_type_bits(half);
    uint64_t low = combine(i, half, ptx_bits(old, bits), ptx_bits(b, bits), 0);
    return ptx_bits(low, bits) | combine(i, half, old >> bits, b >> bits, 0) << bits;
}

enum ptx_step ptx_x_atom(struct ptx_thread *t, const struct ptx_instr *i) {
    unsigned n = elements(i), each = ptx_type_bytes(i->type);
    unsigned char *p;
    if (each > 8 || (ptx_type_kind(i->type) == PTX_KIND_F && !ptx_format_of(i->type))) return ptx_fail_here(t, i);
    if (ptx_place(t, i, &i->src[0], i->space, n * each, n * each, PTX_P_READS | PTX_P_WRITES | PTX_P_ATOMIC, &p))
        return PTX_STEP_FAULT;
    for (unsigned k = 0; k < n; k++) {
        uint64_t b = ptx_get(t, element(&i->src[1], k), i->type);
        uint64_t c = i->sub == PTX_SUB_CAS ? ptx_get(t, &i->src[2], i->type) : 0;
        uint64_t old = ptx_load(p + k * each, each);
        ptx_store(p + k * each, each, combine_any(i, old, b, c));
        if (i->dsts) ptx_put(t, element(&i->dst[0], k), i->type, old);
    }
    return PTX_STEP_NEXT;
}

/* ---- address spaces ---- */
static uint64_t to_generic(struct ptx_thread *t, enum ptx_space space, uint64_t a) {
    switch (space) {
    case PTX_SHARED:
        return host(t->m->shared) + a;
    case PTX_LOCAL:
        return host(t->local) + a;
    case PTX_PARAM:
        return a & PARAM_LOCAL ? host(t->local) + (a - PARAM_LOCAL) : host(t->m->run->params) + a;
    default:
        return a;
    }
}

static uint64_t from_generic(struct ptx_thread *t, enum ptx_space space, uint64_t a) {
    return a - to_generic(t, space, 0);
}

enum ptx_step ptx_x_cvta(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t a = ptx_get(t, &i->src[0], PTX_B64);
    a = i->modifiers & PTX_M_TO ? from_generic(t, i->space, a) : to_generic(t, i->space, a);
    ptx_put(t, &i->dst[0], PTX_B64, a);
    return PTX_STEP_NEXT;
}

enum ptx_step ptx_x_isspacep(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t a = ptx_get(t, &i->src[0], PTX_B64);
    enum ptx_space space = window(t, &a);
    if (i->space == PTX_CONST) { /* const variables are global memory here: by their addresses */
        const struct ptx_module *module = t->m->run->module;
        bool in = false;
        for (int32_t k = 0; k < module->var_count; k++)
            in |=
                module->vars[k].space == PTX_CONST && within(a, 1, host(t->m->run->symbols[k]), module->vars[k].bytes);
        ptx_put(t, &i->dst[0], PTX_PRED, in);
        return PTX_STEP_NEXT;
    }
    ptx_put(t, &i->dst[0], PTX_PRED, space == i->space);
    return PTX_STEP_NEXT;
}
