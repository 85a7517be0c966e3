/* K: products that the program's own kernels compute (convolutions, matrix products of a tutorial), where no library is
 * called for them, or only for the smaller part. The other rules ask what products do; so the kernels that read weights
 * are taken for products, and their operands for factors, until the classes are known.
 *
 * What a weight is, is told by its update alone: one launch modifies it in place and reads a gradient of its size, made
 * since the update before, and writes nothing else of another size. Without any update (inference), a weight is a
 * constant that kernels read, together with what they computed, in pass after pass. */
#include "analyzer/attr_model.h"

enum { OPERANDS_MOST = 1024, PARTNERS_MOST = 64, RANGES_MOST = 1024 };
enum { WEIGHT_SHARE = 100 }; /* functions that read less than a 100th of the bytes of weights stay kernels */

struct own {
    struct at_trace *t;
    uint8_t *state;                                 /* per range: modified by updates */
    uint8_t *weight;                                /* per range */
    uint8_t *gradient;                              /* per value: an update reads it, fresh */
    uint8_t *late;                                  /* per value: the later factor of a product that makes a gradient */
    uint8_t *update;                                /* per event */
    int32_t *modified;                              /* per range: event of its last modification in place, + 1 */
    int64_t all;                                    /* bytes of weights */
    int32_t begin;                                  /* event of the first kernel */
    const struct at_access *operand[OPERANDS_MOST]; /* of the event at hand, a buffer each */
    int32_t operands;
    struct at_map argument; /* (function, slot): place in role + 1 */
    struct role {
        int64_t bytes;        /* of different weights read */
        int32_t reads, first; /* of weights; of these, first after their update */
        int32_t late, early;  /* with a late factor beside it; without */
    } * role;
    int32_t roles, role_room;
};

static int is_kernel(const struct at_event *e) {
    return e->kind == AT_KERNEL && e->accesses > 0;
}

static int64_t bytes_of(const struct at_range *r) {
    return r->hi - r->lo;
}

/* The block lives through 0.3 of the part in which kernels run. */
static int lasts(const struct own *o, int32_t range) {
    const struct at_block *b = &o->t->block[o->t->range[range].block];
    int32_t until = b->dead < o->t->events ? b->dead : o->t->events, from = b->born > o->begin ? b->born : o->begin;
    return until - from >= 0.3 * (o->t->events - o->begin);
}

/* The value itself lives through 0.4 of it: what is made anew in each step is no state. */
static int spans(const struct own *o, const struct at_value *v) {
    const struct at_trace *t = o->t;
    int32_t first = t->access[t->touch[v->touch0]].event, last = t->access[t->touch[v->touch0 + v->touches - 1]].event;
    return last - (first > o->begin ? first : o->begin) >= 0.4 * (t->events - o->begin);
}

/* ---- updates
 * -------------------------------------------------------------------------------------------------------------- */
/* The value was made after the event by work or cleared after it, and not by e itself. */
static int is_fresh(const struct at_trace *t, const struct at_access *a, int32_t since) {
    const struct at_value *v = &t->value[a->value];
    if (v->birth < since || v->birth < 0 || v->birth >= a->event) return 0;
    return a->writer >= since && at_is_work(&t->event[a->writer]);
}

/* All that the kernel writes is modified in place, or has the size of what is. */
static int writes_like(const struct own *o, int64_t bytes) {
    for (int32_t i = 0; i < o->operands; i++) {
        const struct at_access *a = o->operand[i];
        if (a->mode == AT_W && !at_same_count(at_access_bytes(o->t, a), bytes)) return 0;
    }
    return 1;
}

/* The first access of each buffer of the event. A launch over whole blocks has many ranges but few buffers. */
static void list_operands(struct own *o, int32_t e) {
    int32_t last = -1;
    o->operands = 0;
    AT_EACH_ACCESS(o->t, e, a) {
        if (a->buffer == last || o->operands == OPERANDS_MOST) continue;
        last = a->buffer;
        o->operand[o->operands++] = a;
    }
}

/* Launches over lists: only the k-th tensors of the lists belong together. */
static int are_partners(const struct at_trace *t, int32_t e, int32_t x, int32_t y) {
    const struct at_event *ev = &t->event[e];
    int32_t n = ev->lists > 1 ? ev->buffers / ev->lists : 0;
    if (n) return (x - y) % n == 0;
    return ev->buffers <= PARTNERS_MOST;
}

static void note_gradient(struct own *o, int32_t e, int32_t buffer) {
    AT_EACH_ACCESS(o->t, e, a) if (a->buffer == buffer) o->gradient[a->value] = 1;
}

/* Does e update the range of access x with a fresh value of its size? */
static int updates(struct own *o, int32_t e, const struct at_access *x) {
    const struct at_trace *t = o->t;
    int32_t before = o->modified[x->range];
    int found = 0;
    if (!at_modifies(x->mode) || t->range[x->range].gemm_writes || !lasts(o, x->range)) return 0;
    if (!spans(o, &t->value[x->value])) return 0;
    if (t->value[x->value].birth >= before && before) return 0; /* made anew since its last modification */
    if (x->mode == AT_MAYBE && !before) return 0;               /* everything looks like an update at first */
    int64_t bytes = at_access_bytes(t, x);
    for (int32_t i = 0; i < o->operands; i++) {
        const struct at_access *a = o->operand[i];
        if (!at_reads(a->mode) || a->buffer == x->buffer || !are_partners(t, e, a->buffer, x->buffer)) continue;
        if (!at_same_count(at_access_bytes(t, a), bytes)) continue;
        found |= o->gradient[a->value];
        if (o->gradient[a->value] || !is_fresh(t, a, before ? before : 1)) continue;
        note_gradient(o, e, a->buffer);
        found = 1;
    }
    return found && writes_like(o, bytes);
}

/* e works on state that is updated, and changes x, of its size, with it: momentum, then the weight. */
static int follows(const struct own *o, int32_t e, const struct at_access *x) {
    const struct at_trace *t = o->t;
    if (x->mode == AT_R || t->range[x->range].gemm_writes || !lasts(o, x->range)) return 0;
    int64_t bytes = at_access_bytes(t, x);
    for (int32_t i = 0; i < o->operands; i++) {
        const struct at_access *a = o->operand[i];
        if (!o->state[a->range] || a->buffer == x->buffer || !are_partners(t, e, a->buffer, x->buffer)) continue;
        if (at_same_count(at_access_bytes(t, a), bytes)) return writes_like(o, bytes);
    }
    return 0;
}

static void note_state(struct own *o, int32_t e, const struct at_access *x) {
    o->state[x->range] = 1;
    o->update[e] = 1;
}

static void find_updates(struct own *o) {
    const struct at_trace *t = o->t;
    for (int32_t e = 0; e < t->events; e++) {
        if (!is_kernel(&t->event[e])) continue;
        list_operands(o, e);
        AT_EACH_ACCESS(t, e, x) if (updates(o, e, x)) note_state(o, e, x);
        AT_EACH_ACCESS(t, e, x) if (at_modifies(x->mode)) o->modified[x->range] = e + 1;
    }
    for (int32_t e = 0; e < t->events; e++) {
        if (!is_kernel(&t->event[e])) continue;
        list_operands(o, e);
        AT_EACH_ACCESS(t, e, x) if (follows(o, e, x)) note_state(o, e, x);
    }
}

/* ---- which kernels are products
 * ------------------------------------------------------------------------------------------- */
/* Reads the range, and another one that is no weight, and makes something. */
static int uses(const struct own *o, int32_t e, const struct at_access *w) {
    const struct at_trace *t = o->t;
    int reads = 0, makes = 0;
    if (w->mode != AT_R || o->update[e] || t->event[e].accesses > RANGES_MOST) return 0;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode == AT_R && !o->state[a->range] && !o->weight[a->range]) {
            if (o->gradient[a->value]) return 0; /* a norm, a ratio of weights and gradients */
            reads |= a->buffer != w->buffer;
        }
        makes |= at_writes(a->mode) && !o->state[a->range];
    }
    return reads && makes;
}

static struct role *role_of(struct own *o, const struct at_event *e, const struct at_access *a, int make) {
    uint64_t key = at_pair(e->name, at_slot_of(o->t, a));
    int64_t *at = make ? at_map_put(&o->argument, o->t->pool, key, NULL) : at_map_get(&o->argument, key);
    if (at && !*at) {
        POOL_ROOM(o->t->pool, o->role, o->roles, o->role_room);
        o->role[o->roles++] = (struct role){0};
        *at = o->roles;
    }
    return at ? &o->role[*at - 1] : NULL;
}

static int has_late_factor(const struct own *o, int32_t e) {
    AT_EACH_ACCESS(o->t, e, a) if (a->mode == AT_R && o->late[a->value]) return 1;
    return 0;
}

static void note_uses(struct own *o, int32_t r) {
    struct at_trace *t = o->t;
    struct at_map seen = {0};
    int first = 1;
    AT_EACH_TOUCH(t, &t->range[r], a) {
        if (o->update[a->event] && at_writes(a->mode)) first = 1;
        if (!is_kernel(&t->event[a->event]) || !uses(o, a->event, a)) continue;
        int fresh;
        struct role *role = role_of(o, &t->event[a->event], a, 1);
        at_map_put(&seen, t->pool, at_pair(t->event[a->event].name, at_slot_of(t, a)), &fresh);
        if (fresh) role->bytes += bytes_of(&t->range[r]);
        role->reads++;
        role->first += first;
        if (has_late_factor(o, a->event))
            role->late++;
        else
            role->early++;
        first = 0;
    }
}

/* Of the two factors of a product that makes a gradient, the one that was made later is the gradient of its result. */
static void note_late_factors(struct own *o) {
    const struct at_trace *t = o->t;
    for (int32_t e = 0; e < t->events; e++) {
        const struct at_access *late = NULL;
        int makes = 0, reads = 0;
        int32_t buffer = -1;
        if (!is_kernel(&t->event[e]) || o->update[e]) continue;
        AT_EACH_ACCESS(t, e, a) {
            makes |= at_writes(a->mode) && o->gradient[a->value];
            if (a->mode != AT_R || o->weight[a->range]) continue;
            reads += a->buffer != buffer;
            buffer = a->buffer;
            if (!late || a->writer > late->writer) late = a;
        }
        if (makes && reads > 1) o->late[late->value] = 1;
    }
}

static int is_product(const struct own *o, int32_t e) {
    AT_EACH_ACCESS(o->t, e, a) {
        const struct role *role = a->mode == AT_R ? role_of((struct own *)o, &o->t->event[e], a, 0) : NULL;
        if (role && role->bytes * WEIGHT_SHARE >= o->all) return 1;
    }
    return 0;
}

/* Makes a gradient from two operands: the weight's product with them. */
static int makes_gradient(const struct own *o, int32_t e) {
    int makes = 0, reads = 0;
    int32_t buffer = -1;
    AT_EACH_ACCESS(o->t, e, a) {
        makes |= at_writes(a->mode) && o->gradient[a->value] && at_access_bytes(o->t, a) * WEIGHT_SHARE >= o->all;
        if (a->mode != AT_R || o->gradient[a->value]) continue;
        reads += a->buffer != buffer;
        buffer = a->buffer;
    }
    return makes && reads > 1;
}

/* Forward: a function that reads weights first after their updates; one that does both is told by its factor. */
static int is_forward(const struct own *o, int32_t e, const struct role *role) {
    if (role->first * 50 <= role->reads) return 0;
    if (!role->late || !role->early) return 1;
    return !has_late_factor(o, e);
}

static int has_role(int slot) {
    return slot < 0 && slot > AT_SLOT_FIRST_FREE;
}

static void promote(struct own *o, int32_t e) {
    struct at_trace *t = o->t;
    struct at_event *ev = &t->event[e];
    ev->own = 1;
    ev->axis_a = 0;
    ev->axis_b = -1;
    AT_EACH_ACCESS(t, e, a) {
        struct at_buffer *u = &t->buffer[a->buffer];
        if (a->mode != AT_R || has_role(u->slot)) continue;
        const struct role *role = role_of(o, ev, a, 0);
        if (!role && !o->weight[a->range]) continue;
        int factor = role && role->bytes * WEIGHT_SHARE >= o->all;
        if (factor) ev->axis_a = (int8_t)!is_forward(o, e, role);
        u->argument = u->slot;
        u->slot = factor ? AT_SLOT_A : AT_SLOT_BIAS;
    }
    for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++) {
        struct at_buffer *u = &t->buffer[i];
        if (has_role(u->slot) || (u->mode != AT_R && u->mode != AT_W)) continue; /* running statistics, sums */
        u->argument = u->slot;
        u->slot = u->mode == AT_R ? AT_SLOT_B : AT_SLOT_C;
    }
}

/* ---- inference
 * ------------------------------------------------------------------------------------------------------------ */
static int is_computed(const struct at_trace *t, const struct at_access *a) {
    return a->writer >= 0 && (at_is_work(&t->event[a->writer]) || t->event[a->writer].kind == AT_H2D);
}

/* Written before it is first read, if at all, and read by kernels again and again, beside what changes. */
static int is_constant_factor(const struct own *o, const struct at_range *r) {
    const struct at_trace *t = o->t;
    int32_t reads = 0, name = -1, again = 0;
    if (!lasts(o, (int32_t)(r - t->range)) || r->values > 1) return 0;
    AT_EACH_TOUCH(t, r, a) {
        if (a->mode != AT_R && reads) return 0;
        if (a->mode != AT_R || !is_kernel(&t->event[a->event])) continue;
        int changing = 0;
        AT_EACH_ACCESS(t, a->event, b)
        changing |= b->mode == AT_R && b->range != a->range && (t->range[b->range].values > 1 || !lasts(o, b->range)) &&
                    is_computed(t, b);
        if (!changing) continue;
        if (!reads++) name = t->event[a->event].name;
        again += t->event[a->event].name == name;
    }
    return again >= 2;
}

/* The program works from host copy to host copy, and reads the same constants each time. */
static void find_constants(struct own *o) {
    const struct at_trace *t = o->t;
    int32_t n = 0;
    for (int32_t r = 0; r < t->ranges; r++) n += o->weight[r] = (uint8_t)is_constant_factor(o, &t->range[r]);
    for (int32_t r = 0; r < t->ranges && n < 2; r++) o->weight[r] = 0;
}

/* A kernel changes in place what the library's products read, after they did: no inference. */
static int trains(const struct own *o) {
    const struct at_trace *t = o->t;
    for (int32_t i = 0; i < t->ranges && t->gemms; i++) {
        const struct at_range *r = &t->range[i];
        if (!r->gemm_reads || r->gemm_writes || !lasts(o, i)) continue;
        AT_EACH_TOUCH(t, r, a)
        if (is_kernel(&t->event[a->event]) && at_modifies(a->mode) && a->event > t->first_gemm) return 1;
    }
    return 0;
}

/* ---- all
 * ------------------------------------------------------------------------------------------------------------------ */
static int64_t count_weights(struct own *o) {
    const struct at_trace *t = o->t;
    int64_t bytes = 0;
    for (int32_t r = 0; r < t->ranges; r++)
        if (o->weight[r]) bytes += bytes_of(&t->range[r]);
    return bytes;
}

static void find_weights(struct own *o) {
    const struct at_trace *t = o->t;
    for (int32_t r = 0; r < t->ranges; r++) {
        if (!o->state[r]) continue;
        AT_EACH_TOUCH(t, &t->range[r], a) {
            if (!is_kernel(&t->event[a->event]) || !uses(o, a->event, a)) continue;
            o->weight[r] = 1;
            break;
        }
    }
}

/* A factor of the library's products that is a weight, by what can be seen of it: content that lives on, or that an
 * update wrote (from a master copy). */
static int is_library_weight(const struct own *o, const struct at_range *r) {
    const struct at_trace *t = o->t;
    if (!r->gemm_reads) return 0;
    for (int32_t i = r->value0; i < r->value0 + r->values; i++) {
        const struct at_value *v = &t->value[i];
        if (!v->gemm_operand || v->gemm_result) continue;
        if (spans(o, v) || (v->birth >= 0 && o->update[v->birth])) return 1;
    }
    return 0;
}

/* Kernels cast what updates change, and the library reads the casts. */
static int is_cast_for_library(const struct own *o, int32_t range) {
    const struct at_trace *t = o->t;
    if (!o->state[range]) return 0;
    AT_EACH_TOUCH(t, &t->range[range], a) {
        if (a->mode != AT_R || !is_kernel(&t->event[a->event]) || t->event[a->event].accesses > RANGES_MOST) continue;
        AT_EACH_ACCESS(t, a->event, b) if (b->mode == AT_W && t->value[b->value].gemm_operand) return 1;
    }
    return 0;
}

static int64_t library_weights(const struct own *o) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < o->t->ranges; i++) {
        const struct at_range *r = &o->t->range[i];
        if ((r->gemm_reads && o->state[i]) || is_library_weight(o, r) || (!o->weight[i] && is_cast_for_library(o, i)))
            bytes += bytes_of(r);
    }
    return bytes;
}

static int32_t promote_all(struct own *o) {
    struct at_trace *t = o->t;
    int32_t n = 0;
    for (int32_t e = 0; e < t->events; e++) {
        if (!is_kernel(&t->event[e]) || o->update[e] || (!is_product(o, e) && !makes_gradient(o, e))) continue;
        promote(o, e);
        n++;
    }
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].own) t->event[e].kind = AT_GEMM;
    return n;
}

void at_own_products(struct at_trace *t) {
    struct own o = {.t = t,
                    .state = POOL_NEW(t->pool, uint8_t, t->ranges),
                    .weight = POOL_NEW(t->pool, uint8_t, t->ranges),
                    .gradient = POOL_NEW(t->pool, uint8_t, t->values),
                    .late = POOL_NEW(t->pool, uint8_t, t->values),
                    .update = POOL_NEW(t->pool, uint8_t, t->events),
                    .modified = POOL_NEW(t->pool, int32_t, t->ranges)};
    while (o.begin < t->events && t->event[o.begin].kind != AT_KERNEL) o.begin++;
    find_updates(&o);
    find_weights(&o);
    int64_t own = count_weights(&o);
    if (!own && !trains(&o)) {
        find_constants(&o);
        own = count_weights(&o);
    }
    int doubtful = t->blind && t->gemms; /* the library's products tell enough */
    if (own && !doubtful && own > library_weights(&o)) {
        o.all = own;
        note_late_factors(&o);
        for (int32_t r = 0; r < t->ranges; r++)
            if (o.weight[r]) note_uses(&o, r);
        if (promote_all(&o)) at_values_again(t);
    }
    pool_give(t->pool, o.state);
    pool_give(t->pool, o.weight);
    pool_give(t->pool, o.gradient);
    pool_give(t->pool, o.late);
    pool_give(t->pool, o.update);
    pool_give(t->pool, o.modified);
}

void at_own_products_forget(struct at_trace *t) {
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        if (!ev->own) continue;
        ev->kind = AT_KERNEL;
        ev->axis_a = ev->axis_b = -1;
        for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++)
            if (has_role(t->buffer[i].slot)) t->buffer[i].slot = t->buffer[i].argument;
    }
}
