/* G1–G3: which values are gradients, and which are derived from them. */
#include "analyzer/attr_model.h"

/* In steps without an update: a value that looks like one, or in a range that holds gradients in other steps. */
int at_grad_like(const struct at_trace *t, int32_t value) {
    const struct at_value *v = &t->value[value];
    return v->grad_like || (t->range[v->range].holds_grad && !at_is_pool(t, v->range));
}

/* Carried, and no weight nor the source of one. */
static int is_state(const struct at_trace *t, int32_t range, int32_t event) {
    const struct at_range *r = &t->range[range];
    return at_is_carried(t, range, event) && !r->gemm_reads && !r->copied && !r->weight;
}

static int written_by(const struct at_trace *t, int32_t e, int32_t value) {
    AT_EACH_ACCESS(t, e, a) if (a->value == value && at_writes(a->mode)) return 1;
    return 0;
}

/* ---- derived from optimizer state, alone or with what state is made of (Nesterov's momentum): no gradient
 * ---------------------------------------------------------------------- */
/* Per value: an update of state that is no weight reads it. */
static uint8_t *made_into_state(struct at_trace *t) {
    uint8_t *made = POOL_NEW(t->pool, uint8_t, t->values);
    for (int32_t e = 0; e < t->events; e++) {
        int state = 0;
        if (!t->in_cluster[e] || t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a) state |= at_writes(a->mode) && is_state(t, a->range, e);
        AT_EACH_ACCESS(t, e, a) made[a->value] |= (uint8_t)(state && a->mode == AT_R && !t->dark);
    }
    return made;
}

static int derives_from_state(const struct at_trace *t, int32_t e, const uint8_t *made) {
    int reads = 0, state = 0, updated = 0, others = 0, derived = 0;
    int32_t last = -1; /* a kernel that is handed one range twice reads one */
    AT_EACH_ACCESS(t, e, a) {
        if (!at_reads(a->mode)) continue;
        int is = is_state(t, a->range, e), own = written_by(t, e, a->value);
        if (!t->value[a->value].derived && !is && !own && !made[a->value]) return 0;
        reads += a->range != last;
        last = a->range;
        derived |= t->value[a->value].derived;
        state |= is;
        updated |= is && t->range[a->range].cluster_writes && t->event[e].kind == AT_KERNEL;
        others |= !is && made[a->value];
    }
    if (others && !state && !derived) return 0; /* gradients alone: no state to derive from */
    return derived || (updated && (reads == 1 || others));
}

static void find_derived_from_state(struct at_trace *t) {
    uint8_t *made = made_into_state(t);
    for (int32_t e = 0; e < t->events; e++) {
        if (!at_is_work(&t->event[e]) || t->in_cluster[e] || !derives_from_state(t, e, made)) continue;
        AT_EACH_ACCESS(t, e, a)
        if (at_writes(a->mode) && !at_is_carried(t, a->range, e)) t->value[a->value].derived = 1;
    }
    pool_give(t->pool, made);
}

/* ---- G1
 * --------------------------------------------------------------------------------------------------------------------
 */
static int reads_updated(const struct at_trace *t, int32_t gemm) {
    AT_EACH_ACCESS(t, gemm, a)
    if (at_is_factor(at_slot_of(t, a)) && (t->range[a->range].weight || t->value[a->value].copy_of >= 0)) return 1;
    return 0;
}

/* A kernel or product, none of an update, wrote the value after event `from` and before event `to`. */
static int written_between(const struct at_trace *t, const struct at_value *v, int32_t from, int32_t to) {
    int32_t end = v->touch0 + v->touches;
    for (int32_t i = at_touch_from(t, v->touch0, v->touches, from + 1); i < end; i++) {
        const struct at_access *a = &t->access[t->touch[i]];
        if (a->event >= to) return 0;
        if (at_writes(a->mode) && at_is_work(&t->event[a->event]) && !t->in_cluster[a->event]) return 1;
    }
    return 0;
}

static int counts_match(const struct at_trace *t, int32_t e, int64_t bytes) {
    int32_t last = -1;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_is_carried(t, a->range, e) && !t->range[a->range].weight) continue;
        if (a->buffer == last && t->buffer[a->buffer].bytes >= 0) continue;
        last = a->buffer;
        if (at_same_count(at_access_bytes(t, a), bytes)) return 1;
    }
    return 0;
}

static int touches_state(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) if (at_is_carried(t, a->range, e) || t->range[a->range].weight) return 1;
    return 0;
}

static void gradients_of_op(struct at_trace *t, struct at_cluster *c, int32_t e, int32_t since) {
    int32_t last = -1, matches = 0; /* of the buffer last seen */
    if (!touches_state(t, e)) return;
    AT_EACH_ACCESS(t, e, a) {
        struct at_value *v = &t->value[a->value];
        if (!at_reads(a->mode) || t->range[a->range].weight || at_is_carried(t, a->range, e) || v->derived) continue;
        if (!written_between(t, v, since, t->dark ? c->first : e)) continue;
        int known = t->buffer[a->buffer].bytes >= 0;
        if (known || !t->blind) {
            if (a->buffer != last || !known) matches = counts_match(t, e, at_access_bytes(t, a));
            last = a->buffer;
            if (!matches) continue;
        }
        v->grad = 1;
        t->range[a->range].holds_grad = 1;
        c->uses_grad = 1;
    }
}

/* What was only cleared, of memory that holds a gradient elsewhere and is read through the same argument: rows of a
 * table that no token named. */
static void rest_of_gradients(struct at_trace *t, int32_t e) {
    const struct at_event *ev = &t->event[e];
    for (int32_t i = ev->access0, end = i + ev->accesses, j; i < end; i = j) {
        int gradient = 0;
        for (j = i; j < end && t->access[j].buffer == t->access[i].buffer; j++)
            gradient |= t->value[t->access[j].value].grad;
        for (int32_t k = i; k < j && gradient; k++) {
            struct at_value *v = &t->value[t->access[k].value];
            if (v->grad || v->birth < 0 || t->event[v->birth].kind != AT_MEMSET) continue;
            v->grad = 1;
            t->range[v->range].holds_grad = 1;
        }
    }
}

static int updated_read_between(const struct at_trace *t, int32_t from, int32_t to) {
    for (int32_t i = at_first_gemm_from(t, from + 1); i < t->gemms && t->gemm[i] <= to; i++)
        if (reads_updated(t, t->gemm[i])) return 1;
    return 0;
}

static void find_gradients(struct at_trace *t) {
    int32_t since = t->first_gemm;
    for (int32_t i = 0; i < t->gemms; i++) {
        if (!reads_updated(t, t->gemm[i])) continue;
        since = t->gemm[i];
        break;
    }
    for (int32_t k = 0; k < t->clusters; k++) {
        struct at_cluster *c = &t->cluster[k];
        if (k && updated_read_between(t, c[-1].last, c->first)) since = c[-1].last;
        for (int32_t e = c->first; e <= c->last; e++)
            if (t->event[e].kind == AT_KERNEL && t->in_cluster[e]) {
                gradients_of_op(t, c, e, since);
                if (!t->blind) rest_of_gradients(t, e);
            }
    }
}

/* ---- G3: what writes gradients in other steps
 * ------------------------------------------------------------------------------ */
static uint64_t signature(const struct at_trace *t, const struct at_access *a) {
    const struct at_event *e = &t->event[a->event];
    if (e->own && at_slot_of(t, a) == AT_SLOT_C) return at_pair(e->name, t->buffer[a->buffer].argument);
    if (e->kind != AT_GEMM || e->own) return at_pair(e->name, at_slot_of(t, a));
    uint64_t key = at_mix((uint64_t)e->m + 11) ^ at_mix((uint64_t)e->n + 12) * 3 ^ at_mix((uint64_t)e->batch + 13) * 5;
    if (at_slot_of(t, a) == AT_SLOT_BIAS) key += 7; /* its gradient comes with that of the activations */
    return at_mix(key + (uint64_t)(e->axis_a + 2) * 8 + (uint64_t)(e->axis_b + 2));
}

struct votes {
    struct at_map yes, no;
};

static int is_candidate(const struct at_trace *t, const struct at_access *a) {
    return !t->value[a->value].grad && !at_is_carried(t, a->range, a->event) && !t->range[a->range].weight;
}

static int votes_gradient(const struct votes *v, uint64_t key) {
    const int64_t *yes = at_map_get(&v->yes, key), *no = at_map_get(&v->no, key);
    return yes && 2 * *yes >= (no ? *no : 0);
}

/* An op makes from the value something of its size that is no gradient, or a gradient of another size: it is the
 * gradient of an activation, on its way back. (Functions that cast or add work on both kinds.) */
static int goes_on(const struct at_trace *t, const struct votes *v, int32_t value) {
    AT_EACH_TOUCH(t, &t->value[value], a) {
        int copied = t->event[a->event].kind == AT_D2D; /* (into what holds gradients: a bucket of them) */
        if (a->mode != AT_R || !(copied || at_is_work(&t->event[a->event])) || t->in_cluster[a->event]) continue;
        if (t->event[a->event].buffers > 12) continue; /* lists of tensors */
        AT_EACH_ACCESS(t, a->event, b) {
            const struct at_value *made = &t->value[b->value];
            if (!at_writes(b->mode) || b->value == value) continue;
            int gradient = made->grad || (copied ? t->range[b->range].holds_grad : votes_gradient(v, signature(t, b)));
            int same = at_same_count(at_access_bytes(t, a), at_access_bytes(t, b));
            if (same ? !gradient && b->mode == AT_W && !made->derived && is_candidate(t, b) : gradient) return 1;
        }
    }
    return 0;
}

static void mark_grad_like(struct at_trace *t) {
    struct votes v = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t e = 0; e < t->events; e++) {
            if (!at_is_work(&t->event[e]) || t->in_cluster[e]) continue;
            AT_EACH_ACCESS(t, e, a) {
                if (!at_writes(a->mode)) continue;
                struct at_value *w = &t->value[a->value];
                if (!w->grad && !is_candidate(t, a)) continue;
                uint64_t key = signature(t, a);
                if (!pass) {
                    ++*at_map_put(w->grad ? &v.yes : &v.no, t->pool, key, NULL);
                } else if (!w->grad && !w->gemm_operand && !w->derived) {
                    if (votes_gradient(&v, key) && !goes_on(t, &v, a->value)) w->grad_like = 1;
                }
            }
        }
    }
}

/* The range of a gradient that the op adds into: -1 none, -2 several. */
static int32_t added_into(const struct at_trace *t, int32_t e) {
    int32_t found = -1;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (!at_modifies(a->mode) || (!v->grad && !v->grad_like)) continue;
        if (found >= 0 && found != a->range) return -2;
        found = a->range;
    }
    return found;
}

/* What is added into another gradient is an addend, no gradient. */
static void drop_addends(struct at_trace *t) {
    uint8_t *addend = POOL_NEW(t->pool, uint8_t, t->values);
    for (int32_t e = 0; e < t->events; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        int candidates = 0;
        AT_EACH_ACCESS(t, e, a) candidates |= t->value[a->value].grad_like;
        if (!candidates) continue;
        int32_t into = added_into(t, e);
        if (into == -1) continue;
        AT_EACH_ACCESS(t, e, a)
        if (a->range != into && (a->mode == AT_R || (a->mode == AT_MAYBE && t->event[e].buffers == 2)))
            addend[a->value] = 1;
    }
    for (int32_t v = 0; v < t->values; v++) t->value[v].grad_like &= !addend[v];
    pool_give(t->pool, addend);
}

/* ---- G2: computed from gradients, state, cleared memory and host scalars alone
 * ------------------------------------------------ */
/* The op itself or memsets only have written the value so far, and the op writes it. */
static int begins_here(const struct at_trace *t, int32_t e, int32_t value) {
    if (!written_by(t, e, value)) return 0;
    AT_EACH_TOUCH(t, &t->value[value], a) {
        if (a->event > e) break;
        if (at_writes(a->mode) && a->event != e && t->event[a->event].kind != AT_MEMSET) return 0;
    }
    return 1;
}

static int derives_from_gradients(const struct at_trace *t, int32_t e) {
    int gradients = 0;
    AT_EACH_ACCESS(t, e, a)
    if (at_reads(a->mode)) gradients |= t->value[a->value].grad || at_grad_like(t, a->value);
    if (!gradients) return 0;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_reads(a->mode)) continue;
        const struct at_value *v = &t->value[a->value];
        if (v->grad || v->derived || at_grad_like(t, a->value) || v->only_host_writes) continue;
        if (!begins_here(t, e, a->value)) return 0;
    }
    return 1;
}

static void find_derived(struct at_trace *t) {
    for (int32_t e = 0; e < t->events; e++) {
        if (t->event[e].kind != AT_KERNEL || t->in_cluster[e] || !derives_from_gradients(t, e)) continue;
        AT_EACH_ACCESS(t, e, a)
        if (at_writes(a->mode) && !t->value[a->value].grad) t->value[a->value].derived = 1;
    }
}

/* ---- C0: pools
 * ------------------------------------------------------------------------------------------------------------- */
enum { HOLDS_GRAD = 1, HOLDS_CARRIED = 2, HOLDS_INPUT = 4, HOLDS_ACTIVATION = 8 };

/* Some op that reads the value writes something that is no gradient. */
static int read_for_other(const struct at_trace *t, const struct at_value *v, const uint8_t *writes_other) {
    AT_EACH_TOUCH(t, v, a)
    if (a->mode == AT_R && at_is_work(&t->event[a->event]) && writes_other[a->event]) return 1;
    return 0;
}

static int value_kind(const struct at_trace *t, const struct at_value *v, const uint8_t *writes_other) {
    const struct at_range *r = &t->range[v->range];
    int birth = v->birth < 0 ? -1 : t->event[v->birth].kind, kinds = 0;
    if (v->grad) return HOLDS_GRAD;
    if (r->carried && t->access[t->touch[v->touch0 + v->touches - 1]].event >= r->carried_from) return HOLDS_CARRIED;
    if (birth == AT_H2D && v->birth > t->first_gemm) return HOLDS_INPUT;
    if ((v->gemm_result || (v->gemm_any && (birth == AT_KERNEL || birth == AT_GEMM))) &&
        (!r->holds_grad || v->gemm_operand))
        kinds = HOLDS_ACTIVATION;
    if (r->holds_grad && !v->grad_like && !v->derived && birth == AT_KERNEL && v->birth > t->first_gemm &&
        read_for_other(t, v, writes_other))
        kinds = HOLDS_ACTIVATION;
    return kinds;
}

static int crosses(const struct at_trace *t, const struct at_range *r, const uint8_t *writes_other) {
    int kinds = 0;
    for (int32_t v = r->value0; v < r->value0 + r->values; v++) kinds |= value_kind(t, &t->value[v], writes_other);
    if (!(kinds & HOLDS_ACTIVATION) || kinds == HOLDS_ACTIVATION) return 0;
    return !(kinds == (HOLDS_ACTIVATION | HOLDS_CARRIED) && (r->weight || r->gemm_reads) && !r->gemm_writes);
}

static void find_pools(struct at_trace *t) {
    uint8_t *writes_other = POOL_NEW(t->pool, uint8_t, t->events);
    for (int32_t e = 0; e < t->events; e++)
        AT_EACH_ACCESS(t, e, a) writes_other[e] |= at_writes(a->mode) && !t->value[a->value].grad;
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_block *b = &t->block[t->range[i].block];
        if (!b->pool && b->ranges > 1 && crosses(t, &t->range[i], writes_other)) b->pool = 1;
    }
    pool_give(t->pool, writes_other);
}

void at_gradients(struct at_trace *t) {
    if (!t->gemms) return;
    if (t->clusters) find_derived_from_state(t);
    find_gradients(t);
    mark_grad_like(t);
    drop_addends(t);
    find_derived(t);
    find_pools(t);
}
