/* Memory as the cost model sees it: which space an access is in, the kernel's parameters, and the thread's local
 * memory, whose pieces are followed where their place is a constant. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_model.h"

/* ---- local memory ---- */
static void log_write(struct cost_run *x, int64_t at, int64_t bytes) {
    if (!x->logging) return;
    for (int32_t n = 0; n < x->writes; n++)
        if (x->written[n].bytes < 0 || (x->written[n].at == at && x->written[n].bytes == bytes)) return;
    if (x->writes == x->write_room) {
        int32_t room = 2 * x->write_room + 32;
        struct written *grown = realloc(x->written, (size_t)room * sizeof *grown);
        if (!grown) {
            x->failed = true;
            return;
        }
        x->written = grown;
        x->write_room = room;
    }
    x->written[x->writes++] = (struct written){at, bytes};
}

static bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

void cost_forget(struct cost_run *x, struct state *s, int64_t at, int64_t bytes) {
    log_write(x, at, bytes);
    int32_t kept = 0;
    for (int32_t n = 0; n < s->cells; n++) {
        if (bytes < 0 || overlap(s->cell[n].at, s->cell[n].bytes, at, bytes)) continue;
        if (kept != n) s->cell[kept] = s->cell[n];
        kept++;
    }
    s->cells = kept;
}

void cost_store(struct cost_run *x, struct state *s, int64_t at, int32_t bytes, const struct val *v) {
    for (int32_t n = 0; n < s->cells; n++) {
        if (s->cell[n].at != at || s->cell[n].bytes != bytes) continue;
        log_write(x, at, bytes);
        s->cell[n].v = *v; /* cells never overlap */
        return;
    }
    cost_forget(x, s, at, bytes);
    if (v->kind == VAL_DATA && v->base == BASE_ANY) return; /* what is not there is this */
    if (s->cells == COST_MAX_CELLS) return;
    if (s->cells == s->cell_room) {
        int32_t room = 2 * s->cell_room + 16;
        struct cell *grown = realloc(s->cell, (size_t)room * sizeof *grown);
        if (!grown) {
            x->failed = true;
            return;
        }
        s->cell = grown;
        s->cell_room = room;
    }
    s->cell[s->cells++] = (struct cell){at, bytes, *v};
}

struct val cost_cell(struct state *s, int64_t at, int32_t bytes) {
    for (int32_t n = 0; n < s->cells; n++)
        if (s->cell[n].at == at && s->cell[n].bytes == bytes) return s->cell[n].v;
    return cost_data(BASE_ANY);
}

/* ---- the kernel's parameters ---- */
struct val cost_load_param(struct cost_run *x, const struct val *at, unsigned bytes) {
    if (!x->params || at->kind == VAL_DATA) return cost_data(BASE_ANY);
    if (at->kind != VAL_NUM) return *at;
    if (at->dims) return cost_late(x, cost_halve(x, at->dims), BASE_ANY);
    if (at->c < 0 || at->c + bytes > x->entry->param_bytes || bytes > 8) return cost_data(BASE_ANY);
    return cost_number((int64_t)ptx_load(x->params + at->c, bytes));
}

/* ---- addresses ---- */
struct val cost_address(struct cost_run *x, struct state *s, const struct ptx_instr *i, enum ptx_space *space) {
    static const uint8_t of_base[] = {[BASE_NUMBER] = PTX_GLOBAL, [BASE_LOCAL] = PTX_LOCAL, [BASE_SHARED] = PTX_SHARED,
                                      [BASE_VAR] = PTX_GLOBAL,    [BASE_PARAM] = PTX_PARAM, [BASE_ANY] = PTX_GENERIC};
    const struct ptx_operand *o = &i->src[0];
    struct val a;
    *space = i->space;
    if (o->var >= 0) {
        struct ptx_operand symbol = *o;
        symbol.kind = PTX_SYMBOL;
        *space = ptx_var_of(x->module, cost_top(s)->info->f, o->var)->space;
        return cost_operand(x, s, &symbol);
    }
    if (o->kind == PTX_IMM) {
        a = cost_number((int64_t)o->bits);
    } else if (o->reg < 0) {
        a = cost_number(o->offset);
    } else {
        struct ptx_operand reg = {.kind = PTX_REG, .reg = o->reg, .var = -1, .func = -1};
        a = cost_operand(x, s, &reg);
        if (a.kind == VAL_NUM) a.c = (int64_t)((uint64_t)a.c + (uint64_t)o->offset);
    }
    if (*space == PTX_GENERIC || *space == PTX_SPACE_NONE) *space = of_base[a.base];
    if (*space == PTX_PARAM && a.kind == VAL_NUM && a.base == BASE_NUMBER) a.base = BASE_PARAM;
    return a;
}

/* ---- accesses ---- */
static const struct ptx_operand *element(const struct ptx_operand *o, unsigned k) {
    return o->kind == PTX_VECTOR ? &o->elements[k] : o;
}

static struct val from_memory(const struct ptx_instr *i) {
    enum ptx_type_kind kind = ptx_type_kind(i->type);
    bool pointer = ptx_type_bits(i->type) >= 64 && kind != PTX_KIND_F && kind != PTX_KIND_X2;
    return cost_data(pointer ? BASE_ANY : BASE_NUMBER);
}

static void load(struct cost_run *x, struct state *s, const struct ptx_instr *i, struct val a) {
    unsigned n = i->vector ? i->vector : 1, each = ptx_type_bytes(i->type);
    for (unsigned k = 0; k < n; k++, a.c = (int64_t)((uint64_t)a.c + each)) {
        struct val v = from_memory(i);
        if (a.kind == VAL_POISON)
            v = a;
        else if (a.base == BASE_PARAM)
            v = cost_load_param(x, &a, each);
        else if (a.base == BASE_LOCAL && a.kind == VAL_NUM)
            v = a.dims ? cost_late(x, cost_halve(x, a.dims), BASE_ANY) : cost_cell(s, a.c, (int32_t)each);
        else if (a.kind == VAL_LATE && (a.base == BASE_LOCAL || a.base == BASE_ANY))
            v = cost_late(x, a.wish, BASE_ANY);
        if (v.kind == VAL_DATA && v.base == BASE_ANY) v = from_memory(i);
        cost_put(x, s, element(&i->dst[0], k), i->type, v);
    }
}

/* The place of a store into local memory matters, if what it stores is known: the box is split until it is one. */
static enum walk store_local(struct cost_run *x, struct state *s, const struct ptx_instr *i, struct val a,
                             bool surely) {
    unsigned n = i->vector ? i->vector : 1, each = ptx_type_bytes(i->type);
    for (unsigned k = 0; k < n; k++, a.c = (int64_t)((uint64_t)a.c + each)) {
        struct val v = cost_operand(x, s, element(&i->src[1], k));
        if (v.base == BASE_LOCAL && (a.kind != VAL_NUM || a.dims)) s->escaped = true;
        if (a.kind == VAL_NUM && !a.dims) {
            struct val before = cost_cell(s, a.c, (int32_t)each);
            if (v.kind == VAL_NUM && v.base == BASE_NUMBER && each < 8 && v.dims) {
                struct sum e;
                struct wish w;
                v = cost_as(x, &v, false, 8 * each, &e, &w) ? cost_from_sum(&e) : cost_late(x, w, BASE_NUMBER);
            } else if (cost_is_constant(&v)) {
                v.c = (int64_t)ptx_bits((uint64_t)v.c, 8 * each);
            }
            if (!surely && !cost_same(&before, &v)) v = cost_data(BASE_ANY);
            cost_store(x, s, a.c, (int32_t)each, &v);
        } else if (a.kind == VAL_NUM && v.kind == VAL_DATA) {
            struct sum e = cost_sum(&a);
            wide lo, hi;
            cost_range(x, &e, &lo, &hi);
            if (hi - lo > 1 << 20)
                cost_forget(x, s, 0, -1);
            else
                cost_forget(x, s, (int64_t)lo, (int64_t)(hi - lo) + each);
        } else if (a.kind == VAL_NUM || a.kind == VAL_LATE) {
            x->split = a.kind == VAL_LATE ? a.wish : cost_halve(x, a.dims);
            return WALK_SPLIT;
        } else if (a.kind == VAL_POISON) {
            return WALK_POISON;
        } else {
            cost_forget(x, s, 0, -1);
        }
    }
    return WALK_AT;
}

static enum walk store(struct cost_run *x, struct state *s, const struct ptx_instr *i, const struct val *a,
                       bool surely) {
    if (a->base == BASE_LOCAL && i->op == PTX_OP_ST) return store_local(x, s, i, *a, surely);
    unsigned n = i->vector ? i->vector : 1;
    for (unsigned k = 0; k < n && i->srcs > 1; k++) {
        const struct ptx_operand *o = element(&i->src[1], k);
        bool local = cost_operand(x, s, o).base == BASE_LOCAL;
        s->escaped |= local;
    }
    if (a->base == BASE_LOCAL || (a->base == BASE_ANY && s->escaped)) cost_forget(x, s, 0, -1);
    return WALK_AT;
}

/* cp.async with a number of bytes to read. */
static enum walk load_some(struct cost_run *x, struct state *s, const struct ptx_instr *i, struct val a, bool surely) {
    struct ptx_tally t = {{0}};
    struct val v = cost_operand(x, s, &i->src[1]);
    int64_t most = (int64_t)ptx_type_bytes(i->type) * i->vector, bytes = most;
    if (v.kind == VAL_POISON) return WALK_POISON;
    if (v.kind == VAL_LATE || (v.kind == VAL_NUM && v.dims)) {
        x->split = v.kind == VAL_LATE ? v.wish : cost_halve(x, v.dims);
        return WALK_SPLIT;
    }
    if (v.kind == VAL_NUM && (v.c & UINT32_MAX) < most) bytes = v.c & UINT32_MAX;
    if (v.kind == VAL_DATA) cost_because(x, i, "how much is copied depends on data");
    t.n[PTX_T_LOADED + PTX_COST_GLOBAL] = bytes;
    ptx_cost_book(s, &t, surely && v.kind == VAL_NUM);
    if (surely) load(x, s, i, a);
    return WALK_AT;
}

/* Counts the bytes, and does what stores do to local memory, and loads to registers if they are surely executed. */
enum walk cost_access(struct cost_run *x, struct state *s, const struct ptx_instr *i, bool surely) {
    struct ptx_tally t = {{0}};
    enum ptx_space space;
    struct val a = cost_address(x, s, i, &space);
    if (space == PTX_GENERIC && a.kind == VAL_LATE) {
        x->split = a.wish;
        return WALK_SPLIT;
    }
    if (space == PTX_GENERIC && a.kind == VAL_POISON) return WALK_POISON;
    if (i->op == PTX_OP_LDZ) return load_some(x, s, i, a, surely);
    ptx_tally_access(&t, i, ptx_cost_space_of(space));
    ptx_cost_book(s, &t, surely);
    unsigned properties = ptx_ops[i->op].properties;
    if (properties & PTX_P_WRITES) {
        enum walk r = store(x, s, i, &a, surely);
        if (r != WALK_AT) return r;
    }
    if (!surely) return WALK_AT; /* destinations: the caller's */
    if (properties & PTX_P_ATOMIC && i->dsts) {
        unsigned n = i->vector ? i->vector : 1;
        for (unsigned k = 0; k < n; k++) cost_put(x, s, element(&i->dst[0], k), i->type, from_memory(i));
    } else if (!(properties & PTX_P_WRITES)) {
        load(x, s, i, a);
    }
    return WALK_AT;
}
