/* Loads and stores. Local memory is followed by cells: a load finds what was stored at the same place with the same
 * size, which is all that compilers' spills (and unoptimised code, which keeps every variable there) need. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_model.h"

static const struct frame *here(const struct analysis *a) {
    return a->frames[a->frame];
}

/* ---- cells ---- */
static bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) {
    return a < b_end && b < a_end;
}

static bool is_wild(const struct analysis *a, const struct cell *c) {
    for (int32_t n = 0; n < a->wild_count; n++) {
        const struct wild *w = &a->wilds[n];
        if (w->frame == c->frame && w->var == c->var && overlap(w->lo, w->hi, c->at, c->at + c->bytes)) return true;
    }
    return false;
}

static void refresh_mixed(struct analysis *a, struct cell *c) {
    if (c->mixed || !is_wild(a, c)) return;
    c->mixed = 1;
    a->changed = true;
}

static void add_wild(struct analysis *a, int32_t frame, int32_t var, int64_t lo, int64_t hi) {
    for (int32_t n = 0; n < a->wild_count; n++) {
        struct wild *w = &a->wilds[n];
        if (w->frame == frame && w->var == var && w->lo <= lo && w->hi >= hi) return;
    }
    void *grown = realloc(a->wilds, (size_t)(a->wild_count + 1) * sizeof *a->wilds);
    if (!grown || a->wild_count > 1000) {
        if (grown) a->wilds = grown;
        a->failed = true;
        return;
    }
    a->wilds = grown;
    a->wilds[a->wild_count++] = (struct wild){frame, var, lo, hi};
    a->changed = true;
    for (int32_t n = 0; n < a->cell_count; n++) refresh_mixed(a, &a->cells[n]);
}

static void mix_overlapping(struct analysis *a, struct cell *c) {
    for (int32_t n = 0; n < a->cell_count; n++) {
        struct cell *o = &a->cells[n];
        if (o == c || o->frame != c->frame || o->var != c->var) continue;
        if (overlap(o->at, o->at + o->bytes, c->at, c->at + c->bytes)) o->mixed = c->mixed = 1;
    }
}

int32_t access_cell(struct analysis *a, int32_t frame, int32_t var, int64_t at, int32_t bytes) {
    struct cell c = {frame, var, at, bytes, 0};
    bool fresh;
    int32_t n = ptx_intern(&a->cell_names, &c, sizeof c, &fresh) - 1;
    if (n < 0 || !fresh) return n < a->cell_count ? n : -1;
    if (n >= a->cell_room) {
        int32_t room = a->cell_room * 2 + 64;
        void *grown = room > 20000 ? NULL : realloc(a->cells, (size_t)room * sizeof *a->cells);
        if (!grown) {
            a->failed = true;
            return -1;
        }
        a->cells = grown;
        a->cell_room = room;
    }
    a->cells[n] = c;
    a->cell_count = n + 1;
    mix_overlapping(a, &a->cells[n]);
    refresh_mixed(a, &a->cells[n]);
    a->changed = true;
    return n;
}

static int32_t get_cell(const struct analysis *a, int32_t n) {
    return n < a->now.cell_count ? a->now.cells[n] : 0;
}

static void set_cell(struct analysis *a, int32_t n, int32_t value) {
    if (n >= a->now.cell_count) {
        int32_t *grown = realloc(a->now.cells, (size_t)(n + 16) * sizeof *grown);
        if (!grown) {
            a->s.no_memory = true;
            return;
        }
        memset(grown + a->now.cell_count, 0, (size_t)(n + 16 - a->now.cell_count) * sizeof *grown);
        a->now.cells = grown;
        a->now.cell_count = n + 16;
    }
    a->now.cells[n] = value;
}

/* ---- addresses ---- */
/* A function's parameter is its caller's argument. */
static void to_caller(const struct analysis *a, int32_t *frame, int32_t *var) {
    for (const struct frame *f = a->frames[*frame]; f->parent >= 0; f = a->frames[*frame]) {
        int32_t n = *var - a->module->var_count;
        if (n >= f->f->params + f->f->returns) return;
        *var = n < f->f->params ? f->call->src[n].var : f->call->dst[n - f->f->params].var;
        *frame = f->parent;
    }
}

static struct value address_of(struct analysis *a, const struct ptx_operand *o) {
    struct value v = {.base = {BASE_NONE, 0, 0}, .sum = ptx_sum_constant(&a->s, o->offset)};
    if (o->var >= 0) {
        const struct ptx_var *var = ptx_var_of(a->module, here(a)->f, o->var);
        if (var->space == PTX_SHARED)
            v.base.kind = BASE_SHARED;
        else
            v.base = o->var < a->module->var_count ? (struct base){BASE_VAR, o->var, 0}
                                                   : (struct base){BASE_LOCAL, a->frame, o->var};
    } else if (o->reg >= 0) {
        int32_t r = access_reg(a, o->reg);
        struct value at = access_get(a, r);
        at.sum = r ? ptx_sum_add(&a->s, at.sum, v.sum, 1) : 0;
        at.cond = 0;
        v = at;
    }
    if (v.base.kind == BASE_LOCAL) to_caller(a, &v.base.a, &v.base.b);
    return v;
}

/* ---- loads ---- */
struct transfer {
    const struct ptx_instr *i;
    enum ptx_type type;
    int32_t element_bytes;
    bool exact;
};

static const struct ptx_operand *element(const struct ptx_operand *o, int n) {
    return o->kind == PTX_VECTOR ? &o->elements[n] : o;
}

static void give(struct analysis *a, const struct transfer *t, int n, int32_t value) {
    const struct ptx_operand *d = element(&t->i->dst[0], n);
    if (d->kind == PTX_REG) access_set_reg(a, d->reg, value);
}

static int32_t something(struct analysis *a, const struct transfer *t, int n) {
    int32_t instr = (int32_t)(t->i - here(a)->f->instrs);
    const struct ptx_operand *d = element(&t->i->dst[0], n);
    unsigned own = d->kind == PTX_REG ? ptx_type_bits((enum ptx_type)here(a)->f->regs[d->reg].type) : 32;
    enum ptx_type_kind kind = ptx_type_kind(t->type);
    if (t->element_bytes >= 8) return access_unknown(a);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2) return access_number(a, 0);
    int bits = 8 * t->element_bytes;
    bool sign = kind == PTX_KIND_S || (bits == 32 && own == 32);
    int64_t lo = sign ? -((int64_t)1 << (bits - 1)) : 0, hi = ((int64_t)1 << (sign ? bits - 1 : bits)) - 1;
    return access_number(a, access_symbol(a, 'L', a->frame, instr, n, lo, hi));
}

static int32_t param_constant(struct analysis *a, const struct transfer *t, int64_t at, int n) {
    uint64_t bits = 0;
    memcpy(&bits, a->params + at, (size_t)t->element_bytes);
    const struct ptx_operand *d = element(&t->i->dst[0], n);
    unsigned own = d->kind == PTX_REG ? ptx_type_bits((enum ptx_type)here(a)->f->regs[d->reg].type) : 32;
    int width = 8 * t->element_bytes;
    bool sign = ptx_type_kind(t->type) == PTX_KIND_S || own == (unsigned)width;
    int64_t v = (int64_t)bits;
    if (sign && width < 64 && bits >> (width - 1) & 1) v -= (int64_t)1 << width;
    return access_number(a, ptx_sum_constant(&a->s, v));
}

/* Parameter of the entry at byte `at` of the parameter buffer. */
static int32_t parameter(struct analysis *a, const struct transfer *t, const struct ptx_var *var, int64_t at, int n) {
    if (at < 0 || at + t->element_bytes > (int64_t)a->entry->param_bytes) return something(a, t, n);
    if (t->element_bytes == 8)
        return access_value(a, (struct base){BASE_PARAM, (int32_t)at, var->is_pointer}, ptx_sum_constant(&a->s, 0));
    if (t->element_bytes > 8) return something(a, t, n);
    if (ptx_type_kind(t->type) == PTX_KIND_F) return something(a, t, n); /* ptx_access_uses relies on it */
    if (a->params) return param_constant(a, t, at, n);
    bool sign = ptx_type_kind(t->type) != PTX_KIND_U || t->element_bytes == 4;
    int bits = 8 * t->element_bytes;
    int64_t lo = sign ? -((int64_t)1 << (bits - 1)) : 0, hi = ((int64_t)1 << (sign ? bits - 1 : bits)) - 1;
    return access_number(a, access_symbol(a, 'P', (int32_t)at, t->element_bytes, sign, lo, hi));
}

static int64_t common_divisor(int64_t x, int64_t y) {
    while (y) {
        int64_t r = x % y;
        x = y;
        y = r;
    }
    return x < 0 ? -x : x;
}

/* A field of a parameter chosen by an index: one of those that the index can reach. */
static int32_t indexed_parameter(struct analysis *a, const struct transfer *t, const struct ptx_var *var, int32_t sum,
                                 int n) {
    if (t->element_bytes != 8 || !sum) return something(a, t, n);
    int64_t lo = ptx_sum_lower(&a->s, sum, &a->facts, a->now_facts),
            hi = ptx_sum_upper(&a->s, sum, &a->facts, a->now_facts);
    int64_t step = 0, origin = ptx_sum(&a->s, sum)->constant;
    for (int64_t k = 0; k < ptx_sum(&a->s, sum)->count; k++)
        step = common_divisor(step, ptx_sum(&a->s, sum)->term[k].factor);
    if (step <= 0 || step % 8) return something(a, t, n);
    if (lo < 0) lo = 0;
    if (hi > (int64_t)var->bytes - 8) hi = (int64_t)var->bytes - 8;
    int32_t joined = 0;
    int64_t first = lo + ((origin - lo) % step + step) % step;
    for (int64_t at = first; at <= hi; at += step)
        joined = access_join(a, joined, parameter(a, t, var, (int64_t)var->offset + at, n), 0);
    return joined ? joined : something(a, t, n);
}

/* A pointer from a local array by an index: one of those that were stored. */
static int32_t indexed_cells(struct analysis *a, const struct transfer *t, int32_t frame, int32_t var, int32_t sum,
                             int n) {
    int64_t lo = sum ? ptx_sum_lower(&a->s, sum, &a->facts, a->now_facts) : -PTX_INF;
    int64_t hi = sum ? ptx_sum_upper(&a->s, sum, &a->facts, a->now_facts) : PTX_INF;
    int32_t joined = 0;
    for (int32_t c = 0; c < a->cell_count && t->element_bytes == 8; c++) {
        const struct cell *own = &a->cells[c];
        if (own->frame != frame || own->var != var || own->at + own->bytes <= lo || own->at > hi) continue;
        if (own->mixed) return something(a, t, n);
        if (own->bytes != 8) continue; /* no element of an array of pointers */
        joined = access_join(a, joined, get_cell(a, c), 0);
    }
    return joined ? joined : something(a, t, n);
}

static int32_t load_cell(struct analysis *a, const struct transfer *t, const struct value *at, int n) {
    int64_t offset;
    int32_t var = at->base.b, frame = at->base.a;
    int32_t sum = ptx_sum_add(&a->s, at->sum, ptx_sum_constant(&a->s, (int64_t)n * t->element_bytes), 1);
    bool constant = ptx_sum_is_constant(&a->s, sum, &offset);
    const struct ptx_function *f = a->frames[frame]->f;
    if (frame == 0 && var - a->module->var_count < f->params) {
        const struct ptx_var *p = &f->vars[var - a->module->var_count];
        return constant ? parameter(a, t, p, (int64_t)p->offset + offset, n) : indexed_parameter(a, t, p, sum, n);
    }
    if (!constant) return indexed_cells(a, t, frame, var, sum, n);
    int32_t c = access_cell(a, frame, var, offset, t->element_bytes);
    int32_t v = c < 0 || a->cells[c].mixed ? 0 : get_cell(a, c);
    if (!v) return something(a, t, n);
    struct value stored = access_get(a, v);
    if (t->element_bytes == 8 || stored.base.kind != BASE_NONE) return v;
    const struct ptx_operand *d = element(&t->i->dst[0], n);
    unsigned own = d->kind == PTX_REG ? ptx_type_bits((enum ptx_type)here(a)->f->regs[d->reg].type) : 32;
    if (own == 8u * (unsigned)t->element_bytes && !stored.cond) return v;
    enum ptx_type_kind kind = ptx_type_kind(t->type);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2 || stored.cond) return something(a, t, n);
    return access_number(a, access_as(a, stored.sum, t->type, t->i, 40 + n));
}

/* ---- stores ---- */
static void escape(struct analysis *a, int32_t value) {
    struct value v = access_get(a, value);
    if (!value || v.cond) return;
    if (v.base.kind == BASE_SET) {
        const int32_t count = access_set(a, v.base.a)->count;
        for (int32_t n = 0; n < count; n++) {
            struct value item = access_set(a, v.base.a)->item[n];
            escape(a, access_value(a, item.base, item.sum));
        }
    } else if (v.base.kind == BASE_LOCAL) {
        int64_t at = 0;
        bool known = ptx_sum_is_constant(&a->s, v.sum, &at);
        to_caller(a, &v.base.a, &v.base.b);
        add_wild(a, v.base.a, v.base.b, known ? at : -PTX_INF, PTX_INF);
    }
}

static int32_t stored_value(struct analysis *a, const struct transfer *t, int n) {
    return access_operand(a, element(&t->i->src[1], n), t->type);
}

static void store_cell(struct analysis *a, const struct transfer *t, const struct value *at, int n, bool weak) {
    int64_t offset;
    int32_t sum = ptx_sum_add(&a->s, at->sum, ptx_sum_constant(&a->s, (int64_t)n * t->element_bytes), 1);
    int32_t v = stored_value(a, t, n);
    if (!ptx_sum_is_constant(&a->s, sum, &offset)) {
        escape(a, v);
        /* An index runs upwards from the constant part of its address, unless its range says more. */
        int64_t lo = sum ? ptx_sum_lower(&a->s, sum, &a->facts, a->now_facts) : -PTX_INF;
        int64_t hi = sum ? ptx_sum_upper(&a->s, sum, &a->facts, a->now_facts) : PTX_INF;
        if (sum && lo < ptx_sum(&a->s, sum)->constant) lo = ptx_sum(&a->s, sum)->constant;
        if (hi < PTX_INF - 16) hi += t->element_bytes;
        add_wild(a, at->base.a, at->base.b, lo, hi);
        return;
    }
    int32_t c = access_cell(a, at->base.a, at->base.b, offset, t->element_bytes);
    if (c < 0) return;
    if (a->cells[c].mixed) {
        escape(a, v);
        return;
    }
    int32_t old = weak ? get_cell(a, c) : 0;
    set_cell(a, c, old && old != v ? access_join(a, v, old, 0) : v);
}

/* ---- global memory ---- */
static void record(struct analysis *a, const struct transfer *t, const struct value *at, bool may_be) {
    if (!a->recording) return;
    if (a->record_count == a->record_room) {
        int32_t room = a->record_room ? a->record_room * 2 : 64;
        void *grown = room > 1 << 20 ? NULL : realloc(a->records, (size_t)room * sizeof *a->records);
        if (!grown) {
            a->failed = true;
            return;
        }
        a->records = grown;
        a->record_room = room;
    }
    unsigned properties = ptx_ops[t->i->op].properties;
    a->records[a->record_count++] = (struct record){
        .base = at->base,
        .sum = at->sum,
        .facts = a->now_facts,
        .when = a->now_when,
        .bytes = (uint32_t)t->element_bytes * t->i->vector,
        .mode = (properties & PTX_P_READS ? PTX_ACCESS_R : 0) | (properties & PTX_P_WRITES ? PTX_ACCESS_W : 0),
        .atomic = !!(properties & PTX_P_ATOMIC),
        .may_be = may_be,
        .exact = t->exact && !may_be && access_bounded(a) && access_counters_known(a, at->sum, a->now_when),
        .line = t->i->line};
}

static void touch(struct analysis *a, const struct transfer *t, struct value at, bool one_of) {
    const struct ptx_instr *i = t->i;
    bool load = i->op == PTX_OP_LD || i->op == PTX_OP_LDU, write = ptx_ops[i->op].properties & PTX_P_WRITES;
    int64_t null;
    switch (at.base.kind) {
    case BASE_SHARED:
        return;
    case BASE_PARAM:
        record(a, t, &at, one_of);
        return;
    case BASE_VAR:
        if (a->module->vars[at.base.a].space == PTX_GLOBAL) record(a, t, &at, one_of);
        return;
    case BASE_LOCAL:
        to_caller(a, &at.base.a, &at.base.b);
        if (i->op == PTX_OP_ST)
            for (int n = 0; n < i->vector; n++) store_cell(a, t, &at, n, one_of || i->guard >= 0);
        else if (!load)
            add_wild(a, at.base.a, at.base.b, -PTX_INF, PTX_INF);
        return;
    case BASE_NONE:
        if (i->space == PTX_SHARED) return;
        if (one_of && ptx_sum_is_constant(&a->s, at.sum, &null) && !null) return; /* a null pointer, not followed */
        access_fail(a, i->line, write, "an address that is a number");
        return;
    default:
        access_fail(a, i->line, write, "a pointer of unknown origin (loaded from memory, or computed)");
    }
}

static int32_t loaded(struct analysis *a, const struct transfer *t, const struct value *at, int n) {
    if (at->base.kind == BASE_LOCAL) {
        struct value own = *at;
        to_caller(a, &own.base.a, &own.base.b);
        return load_cell(a, t, &own, n);
    }
    return something(a, t, n);
}

static void transfer_at(struct analysis *a, const struct transfer *t, struct value at) {
    const struct ptx_instr *i = t->i;
    bool load = i->op == PTX_OP_LD || i->op == PTX_OP_LDU, set = at.base.kind == BASE_SET;
    int32_t count = set ? access_set(a, at.base.a)->count : 1;
    int32_t joined[8] = {0};
    for (int32_t k = 0; k < count; k++) {
        struct value one = set ? access_set(a, at.base.a)->item[k] : at;
        if (set) { /* the offset of the address is in each */
            int64_t offset = t->i->src[0].offset;
            one.sum = ptx_sum_add(&a->s, one.sum, ptx_sum_constant(&a->s, offset), 1);
        }
        touch(a, t, one, set);
        for (int n = 0; load && n < i->vector; n++) joined[n] = access_join(a, joined[n], loaded(a, t, &one, n), 0);
    }
    for (int n = 0; load && n < i->vector; n++) give(a, t, n, joined[n]);
}

/* cp.async with a number of bytes to read: at most all of them. False: none. */
static bool load_some(struct analysis *a, const struct ptx_instr *i, struct transfer *t) {
    int64_t bytes = -1, all = (int64_t)t->element_bytes * i->vector;
    struct value v = access_get(a, access_operand(a, &i->src[1], PTX_U32));
    for (int n = 0; n < i->vector; n++) give(a, t, n, something(a, t, n));
    if (!v.sum || v.base.kind != BASE_NONE || !ptx_sum_is_constant(&a->s, v.sum, &bytes)) bytes = -1;
    if (bytes != all) t->exact = false;
    return bytes != 0;
}

void access_memory(struct analysis *a, const struct ptx_instr *i, bool exact) {
    struct transfer t = {.i = i, .type = (enum ptx_type)i->type, .exact = exact};
    t.element_bytes = (int32_t)ptx_type_bytes(t.type);
    struct value at = address_of(a, &i->src[0]);
    if (i->space == PTX_SHARED || i->space == PTX_CONST) at.base = (struct base){BASE_SHARED, 0, 0};
    if (i->space == PTX_LOCAL && at.base.kind != BASE_LOCAL && at.base.kind != BASE_SET) {
        for (int32_t v = 0; i->op != PTX_OP_LD && v < here(a)->f->var_count; v++)
            if (here(a)->f->vars[v].space == PTX_LOCAL)
                add_wild(a, a->frame, a->module->var_count + v, -PTX_INF, PTX_INF);
        at.base = (struct base){BASE_SHARED, 0, 0};
    }
    bool away = at.base.kind != BASE_LOCAL && at.base.kind != BASE_SET;
    if (i->op == PTX_OP_ST && away)
        for (int n = 0; n < i->vector; n++) escape(a, stored_value(a, &t, n));
    if (i->op == PTX_OP_ATOM && i->dst[0].kind == PTX_REG) {
        if (i->sub == PTX_SUB_EXCH || i->sub == PTX_SUB_CAS) escape(a, access_operand(a, &i->src[i->srcs - 1], t.type));
        give(a, &t, 0, something(a, &t, 0));
    }
    if (i->op == PTX_OP_LDZ && !load_some(a, i, &t)) return;
    transfer_at(a, &t, at);
}

/* ---- calls ---- */
static void clear_results(struct analysis *a, const struct ptx_instr *i) {
    for (int n = 0; n < i->dsts; n++)
        for (int32_t c = 0; c < a->cell_count && c < a->now.cell_count; c++)
            if (a->cells[c].frame == a->frame && a->cells[c].var == i->dst[n].var) a->now.cells[c] = 0;
}

static void opaque_call(struct analysis *a, const struct ptx_instr *i, const char *why) {
    for (int n = i->callee < 0; n < i->srcs; n++)
        for (int32_t c = 0; c < a->cell_count && c < a->now.cell_count; c++)
            if (a->cells[c].frame == a->frame && a->cells[c].var == i->src[n].var) escape(a, a->now.cells[c]);
    access_fail(a, i->line, true, why);
    clear_results(a, i);
}

/* Functions of the system that touch no memory of the program's. */
static bool harmless(const char *name) {
    static const char *const names[] = {"vprintf", "__assertfail", "malloc", "free", "__nv_aligned_device_malloc"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (!strcmp(name, names[n])) return true;
    return false;
}

static void library_call(struct analysis *a, const struct ptx_instr *i, const struct ptx_function *callee) {
    clear_results(a, i);
    if (!strstr(callee->name, "malloc") || i->dsts != 1) return;
    int32_t c = access_cell(a, a->frame, i->dst[0].var, 0, 8); /* the device's heap: no allocation of the program's */
    if (c >= 0) set_cell(a, c, access_value(a, (struct base){BASE_SHARED, 0, 0}, 0));
}

void access_call(struct analysis *a, const struct ptx_instr *i) {
    if (i->callee < 0) {
        opaque_call(a, i, "a call through a pointer");
        return;
    }
    const struct ptx_function *callee = &a->module->functions[i->callee];
    if (callee->declared_only && harmless(callee->name)) {
        library_call(a, i, callee);
        return;
    }
    if (callee->declared_only || callee->error || !callee->instr_count) {
        opaque_call(a, i, "a call of a function whose code is not here");
        return;
    }
    for (int32_t f = a->frame; f >= 0; f = a->frames[f]->parent)
        if (a->frames[f]->f == callee) {
            opaque_call(a, i, "a recursive call");
            return;
        }
    int32_t child = access_frame(a, callee, a->frame, i);
    if (child < 0) {
        opaque_call(a, i, "calls nested too deeply");
        return;
    }
    struct state before = {.cell_count = a->now.cell_count};
    if (i->guard >= 0) {
        before.cells = malloc((size_t)before.cell_count * sizeof *before.cells + 1);
        if (!before.cells)
            a->s.no_memory = true;
        else if (before.cell_count)
            memcpy(before.cells, a->now.cells, (size_t)before.cell_count * sizeof *before.cells);
    }
    access_run_frame(a, child);
    for (int32_t c = 0; before.cells && c < before.cell_count; c++)
        if (before.cells[c] && before.cells[c] != get_cell(a, c))
            set_cell(a, c, access_join(a, get_cell(a, c), before.cells[c], 0));
    free(before.cells);
}
