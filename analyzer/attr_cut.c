/* O: a program that ran out of memory before any update. What would have come next is supposed: an update that reads
 * what looks like gradients and changes what looks like parameters. Rules U, G, W and with them P then hold as if the
 * trace went on; the supposed event is taken back before steps and classes are decided. */
#include "analyzer/attr_model.h"

#include <string.h>

#define SCALE_BYTES 64
#define SUPPOSED_NAME INT32_MAX /* of the function: like no other */

/* What a range's writes before the first work on it say. */
enum origin { FROM_HOST = 1, BY_KERNEL = 2, CLEARED = 4, READ = 8, LATER = 16 /* written after a read: no constant */ };

struct cut {
    struct at_trace *t;
    uint8_t *origin;   /* per range, bits */
    int32_t *made;     /* per range: last write before its first read; -1 */
    uint8_t *is;       /* per range: enum at_cut_kind */
    int casts_in_pass; /* products read casts that are made in the pass */
    int32_t made_last; /* of the weights */
    int32_t first_weight_grad;
    struct at_map sibling; /* sizes of blocks that were cleared as a whole and not used since */
    struct at_map size;    /* of blocks with parameters */
    struct at_map small;   /* of those that products do not read (biases, scales): kernels make their gradients */
    struct at_map role;    /* (function, argument) that was a parameter */
    struct at_map maker;   /* functions, and kinds of copies, that made what is read as a parameter */
};

/* ---- constants ---- */

static int makes_from_nothing(const struct at_trace *t, const struct at_access *w) {
    AT_EACH_ACCESS(t, w->event, a) if (at_reads(a->mode) && a->range != w->range) return 0;
    return 1;
}

static unsigned origin_of_write(const struct at_trace *t, const struct at_access *a) {
    switch (t->event[a->event].kind) {
    case AT_H2D:
        return FROM_HOST;
    case AT_MEMSET:
        return CLEARED;
    case AT_D2D:
        return BY_KERNEL;
    case AT_KERNEL:
        return makes_from_nothing(t, a) ? BY_KERNEL : LATER;
    default:
        return LATER;
    }
}

static void note_origin(struct cut *c, int32_t i) {
    const struct at_trace *t = c->t;
    unsigned bits = 0;
    c->made[i] = -1;
    AT_EACH_TOUCH(t, &t->range[i], a) {
        int work = at_is_work(&t->event[a->event]), early = a->event < t->first_gemm && at_writes(a->mode);
        if (at_writes(a->mode)) {
            bits |= bits & READ ? LATER : origin_of_write(t, a);
            if (!(bits & READ)) c->made[i] = a->event;
        }
        if (at_reads(a->mode) && work && !early) bits |= READ;
    }
    c->origin[i] = (uint8_t)bits;
}

static int is_constant(const struct cut *c, int32_t i) {
    return c->origin[i] && !(c->origin[i] & LATER) && c->made[i] >= 0;
}

/* The constant of which a product's factor is a cast; NULL: it is none. Scales and the like do not count. */
static const struct at_access *cast_of(const struct cut *c, const struct at_access *factor) {
    const struct at_trace *t = c->t;
    const struct at_access *source = NULL;
    int32_t e = t->value[factor->value].birth;
    if (e < 0 || t->event[e].kind != AT_KERNEL) return NULL;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode == AT_W || at_access_bytes(t, a) <= SCALE_BYTES) continue;
        if (!is_constant(c, a->range) || !at_same_count(at_access_bytes(t, a), at_access_bytes(t, factor))) return NULL;
        source = a;
    }
    return source;
}

/* A cast that was made once, before the first product, and is only read: the weight itself. */
static int is_kept_cast(const struct cut *c, const struct at_access *factor) {
    const struct at_trace *t = c->t;
    const struct at_range *r = &t->range[factor->range];
    return !c->casts_in_pass && r->values == 1 && t->value[factor->value].birth < t->first_gemm &&
           !t->value[factor->value].kernel_modifies && cast_of(c, factor);
}

static void note_casts(struct cut *c) {
    const struct at_trace *t = c->t;
    for (int32_t i = 0; i < t->gemms; i++) AT_EACH_ACCESS(t, t->gemm[i], a)
    if (at_is_factor(at_slot_of(t, a)) && cast_of(c, a) && t->value[a->value].birth > t->first_gemm)
        c->casts_in_pass = 1;
}

/* ---- weights ---- */

struct factor {
    int constant, from_host;
    int32_t made;
};

/* The range that is constant; -1: the factor is computed. */
static int32_t weight_behind(const struct cut *c, const struct at_access *factor) {
    if (is_constant(c, factor->range) || is_kept_cast(c, factor)) return factor->range;
    const struct at_access *source = cast_of(c, factor);
    return source ? source->range : -1;
}

static struct factor factor_of(const struct cut *c, int32_t gemm, int slot) {
    const struct at_trace *t = c->t;
    struct factor f = {.constant = 0, .made = -1};
    int n = 0, constant = 0;
    AT_EACH_ACCESS(t, gemm, a) {
        if (at_slot_of(t, a) != slot) continue;
        n++;
        int32_t i = weight_behind(c, a);
        if (i < 0) continue;
        constant++;
        f.from_host |= c->origin[i] & FROM_HOST;
        if (c->made[i] > f.made) f.made = c->made[i];
    }
    f.constant = n && constant == n;
    return f;
}

static void take_factor(struct cut *c, int32_t gemm, int slot, enum at_cut_kind kind) {
    const struct at_trace *t = c->t;
    AT_EACH_ACCESS(t, gemm, a) {
        int32_t i = at_slot_of(t, a) == slot ? weight_behind(c, a) : -1;
        if (i < 0 || (kind == AT_CUT_INPUT && (c->is[i] || !(c->origin[i] & FROM_HOST)))) continue;
        c->is[i] = (uint8_t)kind;
        if (kind == AT_CUT_WEIGHT && c->made[i] > c->made_last) c->made_last = c->made[i];
    }
}

/* The constant factor of a product whose other factor is none. Of two constants one is the batch: what came from the
 * host, or came later. */
static void find_weights(struct cut *c) {
    const struct at_trace *t = c->t;
    for (int32_t i = 0; i < t->gemms; i++) {
        struct factor a = factor_of(c, t->gemm[i], AT_SLOT_A), b = factor_of(c, t->gemm[i], AT_SLOT_B);
        if (!a.constant && !b.constant) continue;
        int a_is_weight = a.constant;
        if (a.constant && b.constant) {
            if (a.made == b.made && a.from_host == b.from_host) continue;
            a_is_weight = a.from_host == b.from_host ? a.made < b.made : !a.from_host;
            take_factor(c, t->gemm[i], a_is_weight ? AT_SLOT_B : AT_SLOT_A, AT_CUT_INPUT);
        }
        take_factor(c, t->gemm[i], a_is_weight ? AT_SLOT_A : AT_SLOT_B, AT_CUT_WEIGHT);
    }
}

/* A weight that products read twice in one way: several passes, which no step that was cut off has. */
static int has_passes(const struct cut *c) {
    const struct at_trace *t = c->t;
    struct at_map seen = {0};
    for (int32_t i = 0; i < t->gemms; i++) {
        const struct at_event *e = &t->event[t->gemm[i]];
        AT_EACH_ACCESS(t, t->gemm[i], a) {
            int slot = at_slot_of(t, a);
            int32_t w = at_is_factor(slot) ? weight_behind(c, a) : -1;
            if (w < 0 || c->is[w] != AT_CUT_WEIGHT) continue;
            int axis = slot == AT_SLOT_A ? e->axis_a : e->axis_b;
            if (++*at_map_put(&seen, c->t->pool, at_pair(w, axis), NULL) > 1) return 1;
        }
    }
    return 0;
}

/* ---- weights in a narrower format, and their masters ---- */

static int is_by(const struct cut *c, const struct at_map *functions, const struct at_access *a) {
    return c->t->event[a->event].kind == AT_KERNEL && at_map_has(functions, (uint32_t)c->t->event[a->event].name);
}

/* Read by nobody else. */
static int is_master(const struct cut *c, const struct at_map *casts, int32_t i) {
    AT_EACH_TOUCH(c->t, &c->t->range[i], a)
    if (at_reads(a->mode) && at_is_work(&c->t->event[a->event]) && !is_by(c, casts, a)) return 0;
    return 1;
}

/* Functions that made weights of constants made all parameters; what they read is master copies. */
static void find_masters(struct cut *c) {
    const struct at_trace *t = c->t;
    struct at_map casts = {0};
    for (int32_t i = 0; i < t->ranges; i++)
        if (c->is[i] == AT_CUT_WEIGHT && !is_constant(c, i))
            at_map_put(&casts, t->pool, (uint32_t)t->event[t->access[t->touch[t->range[i].touch0]].event].name, NULL);
    for (int32_t e = 0; e < t->first_gemm && casts.count; e++) {
        if (t->event[e].kind != AT_KERNEL || !at_map_has(&casts, (uint32_t)t->event[e].name)) continue;
        AT_EACH_ACCESS(t, e, a) {
            if (c->is[a->range]) continue;
            if (a->mode == AT_W)
                c->is[a->range] = AT_CUT_PARAM;
            else if (is_constant(c, a->range) && is_master(c, &casts, a->range))
                c->is[a->range] = AT_CUT_MASTER;
        }
    }
}

/* ---- what else is a parameter ---- */

static int is_whole(const struct at_trace *t, int32_t i) {
    return t->block[t->range[i].block].ranges == 1;
}

static uint64_t block_size(const struct at_trace *t, int32_t i) {
    return (uint64_t)t->block[t->range[i].block].bytes;
}

static int is_cleared_unused(const struct cut *c, int32_t i) {
    return (c->origin[i] & (CLEARED | FROM_HOST | READ | LATER)) == CLEARED;
}

static void note_siblings(struct cut *c) {
    for (int32_t i = 0; i < c->t->ranges; i++)
        if (is_cleared_unused(c, i) && is_whole(c->t, i))
            at_map_put(&c->sibling, c->t->pool, block_size(c->t, i), NULL);
}

static void note_roles(struct cut *c) {
    const struct at_trace *t = c->t;
    for (int32_t e = 0; e < t->events; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a)
        if (a->mode == AT_R && c->is[a->range])
            at_map_put(&c->role, t->pool, at_pair(t->event[e].name, at_slot_of(t, a)), NULL);
    }
}

static int has_role(const struct cut *c, int32_t i) {
    const struct at_trace *t = c->t;
    AT_EACH_TOUCH(t, &t->range[i], a)
    if (a->mode == AT_R && t->event[a->event].kind == AT_KERNEL &&
        at_map_has(&c->role, at_pair(t->event[a->event].name, at_slot_of(t, a))))
        return 1;
    return 0;
}

static uint64_t maker_of(const struct cut *c, int32_t i) {
    const struct at_event *e = &c->t->event[c->made[i]];
    return e->kind == AT_KERNEL ? (uint32_t)e->name : (uint64_t)1 << 32 | (uint64_t)e->kind;
}

/* Made among the weights, or of a size that something cleared has too: its gradient, its optimizer state. */
static int is_made_as_parameter(const struct cut *c, int32_t i) {
    return c->made[i] <= c->made_last || at_map_has(&c->sibling, block_size(c->t, i));
}

static void find_read_parameters(struct cut *c) {
    const struct at_trace *t = c->t;
    for (int32_t i = 0; i < t->ranges; i++)
        if (!c->is[i] && is_constant(c, i) && c->origin[i] & READ && is_made_as_parameter(c, i))
            c->is[i] = AT_CUT_PARAM;
    note_roles(c);
    for (int32_t i = 0; i < t->ranges; i++) {
        if (c->is[i] || !is_constant(c, i) || !(c->origin[i] & READ)) continue;
        c->is[i] = has_role(c, i) ? AT_CUT_PARAM : c->origin[i] & FROM_HOST ? AT_CUT_INPUT : AT_CUT_NONE;
    }
    for (int32_t i = 0; i < t->ranges; i++) {
        if (c->is[i] != AT_CUT_WEIGHT && c->is[i] != AT_CUT_PARAM) continue;
        if (c->made[i] >= 0) at_map_put(&c->maker, t->pool, maker_of(c, i), NULL);
        at_map_put(&c->size, t->pool, block_size(t, i), NULL);
        if (c->is[i] == AT_CUT_PARAM) at_map_put(&c->small, t->pool, block_size(t, i), NULL);
    }
}

/* Not read yet: of later layers, if made by the function that made what was read; else what the optimizer will work on,
 * in a wider format. (A copy from the host may be a batch that is not used yet.) */
static int kind_of_unread(const struct cut *c, int32_t i) {
    uint64_t size = block_size(c->t, i);
    int made_alike = at_map_has(&c->maker, maker_of(c, i)), by_kernel = c->origin[i] & BY_KERNEL;
    if (made_alike && (by_kernel || is_made_as_parameter(c, i))) return AT_CUT_PARAM;
    if (by_kernel && size % 2 == 0 && at_map_has(&c->size, size / 2)) return AT_CUT_MASTER;
    return AT_CUT_NONE;
}

static void find_parameters(struct cut *c) {
    note_siblings(c);
    find_read_parameters(c);
    for (int32_t i = 0; i < c->t->ranges; i++)
        if (!c->is[i] && is_constant(c, i) && !(c->origin[i] & READ) && !is_cleared_unused(c, i))
            c->is[i] = (uint8_t)kind_of_unread(c, i);
    for (int32_t i = 0; i < c->t->ranges; i++)
        if (c->is[i] == AT_CUT_PARAM || c->is[i] == AT_CUT_MASTER)
            at_map_put(&c->size, c->t->pool, block_size(c->t, i), NULL);
}

static int has_size_of_parameter(const struct cut *c, int32_t i) {
    uint64_t n = block_size(c->t, i);
    return at_map_has(&c->size, n) || (n % 2 == 0 && at_map_has(&c->size, n / 2)) || at_map_has(&c->size, 2 * n);
}

static void find_cleared(struct cut *c) {
    for (int32_t i = 0; i < c->t->ranges; i++)
        if (!c->is[i] && is_cleared_unused(c, i) && has_size_of_parameter(c, i)) c->is[i] = AT_CUT_CLEARED;
}

/* ---- gradients ---- */

static int64_t bytes_of_result(const struct at_trace *t, int32_t gemm) {
    AT_EACH_ACCESS(t, gemm, a) if (at_is_result(t, a)) return at_access_bytes(t, a);
    return 0;
}

static const struct at_access *weight_of(const struct cut *c, int32_t gemm) {
    AT_EACH_ACCESS(c->t, gemm, a) {
        int32_t w = at_is_factor(at_slot_of(c->t, a)) ? weight_behind(c, a) : -1;
        if (w >= 0 && c->is[w] == AT_CUT_WEIGHT) return a;
    }
    return NULL;
}

/* dW = x'·dy: it has a factor that an earlier product multiplied with a weight, and the weight's size. */
static int makes_weight_gradient(const struct cut *c, int32_t gemm) {
    const struct at_trace *t = c->t;
    int64_t bytes = bytes_of_result(t, gemm);
    if (weight_of(c, gemm)) return 0;
    AT_EACH_ACCESS(t, gemm, a) {
        if (!at_is_factor(at_slot_of(t, a))) continue;
        AT_EACH_TOUCH(t, &t->value[a->value], b) {
            if (b->event >= gemm) break;
            if (t->event[b->event].kind != AT_GEMM || !at_is_factor(at_slot_of(t, b))) continue;
            const struct at_access *w = weight_of(c, b->event);
            if (w && at_same_count(bytes, at_access_bytes(t, w))) return 1;
        }
    }
    return 0;
}

static int is_read_later(const struct at_trace *t, int32_t i) {
    AT_EACH_TOUCH(t, &t->range[i], a)
    if (a->mode == AT_R && at_is_work(&t->event[a->event])) return 1;
    return 0;
}

static void find_weight_gradients(struct cut *c) {
    const struct at_trace *t = c->t;
    c->first_weight_grad = AT_END;
    for (int32_t i = 0; i < t->gemms; i++) {
        if (!makes_weight_gradient(c, t->gemm[i])) continue;
        AT_EACH_ACCESS(t, t->gemm[i], a) {
            if (!at_is_result(t, a) || c->is[a->range]) continue;
            c->is[a->range] = AT_CUT_GRAD;
            if (t->gemm[i] < c->first_weight_grad) c->first_weight_grad = t->gemm[i];
        }
    }
}

/* Kernels make the others: of a parameter's size, read by nobody; added to memory that was cleared before the first
 * pass, or, of those that no product makes, written in backward. */
static int is_kernels_gradient(const struct cut *c, int32_t i) {
    const struct at_trace *t = c->t;
    int cleared = 0, small = at_map_has(&c->small, block_size(t, i));
    if (!at_map_has(&c->size, block_size(t, i)) || is_read_later(t, i)) return 0;
    AT_EACH_TOUCH(t, &t->range[i], a) {
        const struct at_event *e = &t->event[a->event];
        cleared |= e->kind == AT_MEMSET && a->event < t->first_gemm;
        if (!at_is_work(e) || !at_writes(a->mode)) continue;
        if ((cleared && a->mode != AT_W) || (small && a->event > c->first_weight_grad)) return 1;
    }
    return 0;
}

/* In a block as large as one of parameters that holds a gradient, all are. */
static void find_blocks_of_gradients(struct cut *c) {
    const struct at_trace *t = c->t;
    for (int32_t b = 0; b < t->blocks; b++) {
        const struct at_block *k = &t->block[b];
        int holds = 0;
        if (k->ranges < 2 || !at_map_has(&c->size, (uint64_t)k->bytes)) continue;
        for (int32_t i = k->range0; i < k->range0 + k->ranges; i++) holds |= c->is[i] == AT_CUT_GRAD;
        for (int32_t i = k->range0; i < k->range0 + k->ranges && holds; i++)
            if (!c->is[i] || c->is[i] == AT_CUT_CLEARED) c->is[i] = AT_CUT_GRAD;
    }
}

static void find_gradients(struct cut *c) {
    find_weight_gradients(c);
    if (c->first_weight_grad == AT_END) return;
    for (int32_t i = 0; i < c->t->ranges; i++)
        if (!c->is[i] && is_kernels_gradient(c, i)) c->is[i] = AT_CUT_GRAD;
    find_blocks_of_gradients(c);
}

/* ---- the supposed update ---- */

static int mode_in_update(const struct cut *c, int32_t i) {
    if (!c->t->range[i].touches) return 0;
    return c->is[i] == AT_CUT_WEIGHT || c->is[i] == AT_CUT_PARAM ? AT_RW : c->is[i] == AT_CUT_GRAD ? AT_R : 0;
}

static void append_update(struct cut *c) {
    struct at_trace *t = c->t;
    int32_t n = 0, e = t->events++;
    for (int32_t i = 0; i < t->ranges; i++) n += mode_in_update(c, i) != 0;
    struct at_buffer *buffer = POOL_NEW(t->pool, struct at_buffer, (size_t)t->buffers + (size_t)n);
    struct at_access *access = POOL_NEW(t->pool, struct at_access, (size_t)t->accesses + (size_t)n);
    if (t->buffers) memcpy(buffer, t->buffer, (size_t)t->buffers * sizeof *buffer);
    if (t->accesses) memcpy(access, t->access, (size_t)t->accesses * sizeof *access);
    t->buffer = buffer;
    t->access = access;
    t->event[e] = (struct at_event){.op = t->event[e - 1].op,
                                    .key_ns = t->event[e - 1].key_ns,
                                    .name = SUPPOSED_NAME,
                                    .buffer0 = t->buffers,
                                    .buffers = n,
                                    .access0 = t->accesses,
                                    .accesses = n,
                                    .step = -1,
                                    .cost = -1,
                                    .block = -1,
                                    .kind = AT_KERNEL};
    for (int32_t i = 0; i < t->ranges; i++) {
        int mode = mode_in_update(c, i);
        const struct at_range *r = &t->range[i];
        if (!mode) continue;
        t->buffer[t->buffers] = (struct at_buffer){.offset = r->lo,
                                                   .bytes = r->hi - r->lo,
                                                   .block = r->block,
                                                   .event = e,
                                                   .slot = (int16_t)((t->accesses - t->event[e].access0) & 0x3fff),
                                                   .mode = (int8_t)mode};
        t->access[t->accesses++] = (struct at_access){
            .event = e, .range = i, .value = -1, .buffer = t->buffers++, .writer = -1, .mode = (int8_t)mode};
    }
}

/* What the rules up to the updates found is found again. */
static void start_anew(struct at_trace *t) {
    for (int32_t i = 0; i < t->ranges; i++) {
        const struct at_range r = t->range[i];
        t->range[i] = (struct at_range){
            .lo = r.lo, .hi = r.hi, .block = r.block, .workspace = r.workspace, .constant = -1, .weight_like = -1};
    }
    t->values = t->gemms = t->update_runs = t->clusters = 0;
    t->value = NULL;
    t->modified = t->updated = (struct at_map){0};
    at_values(t);
    at_carried(t);
    at_copies(t);
    at_updates(t);
}

void at_cut(struct at_trace *t) {
    struct cut c = {.t = t, .made_last = -1};
    if (!t->died || !t->gemms || t->clusters || t->blind) return;
    c.origin = POOL_NEW(t->pool, uint8_t, t->ranges);
    c.made = POOL_NEW(t->pool, int32_t, t->ranges);
    c.is = POOL_NEW(t->pool, uint8_t, t->ranges);
    for (int32_t i = 0; i < t->ranges; i++) note_origin(&c, i);
    note_casts(&c);
    find_weights(&c);
    if (c.made_last < 0) return;
    find_masters(&c);
    find_parameters(&c);
    find_cleared(&c);
    find_gradients(&c);
    int backward = c.first_weight_grad != AT_END;
    if (!backward && has_passes(&c)) return; /* inference */
    t->cut = backward ? AT_CUT_IN_BACKWARD : AT_CUT_IN_FORWARD;
    t->cut_is = c.is;
    if (backward) {
        append_update(&c);
        start_anew(t);
        return;
    }
    for (int32_t i = 0; i < t->ranges; i++) t->range[i].weight = t->range[i].any_weight |= c.is[i] == AT_CUT_WEIGHT;
}

void at_cut_forget(struct at_trace *t) {
    if (t->cut != AT_CUT_IN_BACKWARD) return;
    AT_EACH_ACCESS(t, t->events - 1, a) {
        t->range[a->range].touches--;
        t->value[a->value].touches--;
    }
    t->events--;
    t->accesses = t->event[t->events].access0;
    t->clusters = 0;
}

/* A pass that was cut off: forward, from the first op that works on parameters or the batch. */
void at_cut_forward(struct at_trace *t) {
    int32_t from = t->first_gemm;
    for (int32_t e = t->first_gemm - 1; e >= 0; e--) {
        int reads = 0;
        if (t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a) reads |= a->mode == AT_R && t->cut_is[a->range];
        if (reads) from = e;
    }
    for (int32_t e = 0; e < t->events; e++) {
        if (!at_is_op(&t->event[e])) continue;
        t->event[e].step = 0;
        if (e >= from && at_is_work(&t->event[e])) t->event[e].phase = AT_FORWARD;
    }
    t->step = POOL_NEW(t->pool, struct at_step, 1);
    t->step[0].by = AT_BY_ONE;
    t->steps = 1;
}
