/* U1: ranges that are carried from step to step, modified in place and never overwritten. U1a: which of them are
 * weights. U6: copies of weights that products read in their place. */
#include "analyzer/attr_model.h"

/* ---- U1
 * ------------------------------------------------------------------------------------------------------------------ */
struct history {
    int32_t modified, overwritten, copied_over, from_host; /* counts; the latter three since the first modification */
    int32_t runs;                                          /* in which it is modified */
    int32_t first_modified, last_overwritten;
    int32_t modified_since; /* the last overwriting */
    int32_t last_run;
    int gemm_last; /* products write it, last, or copies of their results do */
    int unsure;    /* modified by accesses of unknown direction */
    int filled;    /* by a copy, and no product has read it since */
    int worked_on; /* modified since the copy, or since the last overwriting */
    int kept;      /* modified otherwise than in one run between a copy and the first product that reads it */
};

static void note_modified(const struct at_trace *t, struct history *h, const struct at_access *a) {
    int32_t run = t->run[a->event];
    h->modified++;
    h->modified_since++;
    h->kept |= !h->filled || (h->worked_on && run != h->last_run);
    h->worked_on = 1;
    if (run != h->last_run) h->runs++;
    h->last_run = run;
    if (h->first_modified < 0) h->first_modified = a->event;
    h->unsure |= a->mode == AT_MAYBE;
}

static int is_copy(int kind) {
    return kind == AT_H2D || kind == AT_D2D;
}

/* Does a kernel modify the range after the copy that is its touch number `touch`, before a product reads it? */
static int worked_on_first(const struct at_trace *t, int32_t touch) {
    const struct at_access *copy = &t->access[t->touch[touch]];
    const struct at_range *r = &t->range[copy->range];
    for (int32_t i = touch + 1; i < r->touch0 + r->touches; i++) {
        const struct at_access *a = &t->access[t->touch[i]];
        int kind = t->event[a->event].kind;
        if (kind == AT_GEMM || (is_copy(kind) && at_writes(a->mode))) return 0;
        if (kind == AT_KERNEL && at_modifies(a->mode)) return 1;
    }
    return 0;
}

/* What the copy reads on the device; NULL: it comes from the host. */
static const struct at_value *source_of(const struct at_trace *t, int32_t copy) {
    AT_EACH_ACCESS(t, copy, a) if (a->mode == AT_R) return &t->value[a->value];
    return NULL;
}

static int copies_product(const struct at_trace *t, int32_t e) {
    const struct at_value *v = t->event[e].kind == AT_D2D ? source_of(t, e) : NULL;
    return v && v->gemm_result;
}

/* A copy restores (weights swapped for their average and back, a checkpoint), or it brings new content: the result of a
 * product; or a batch, an activation on which kernels work before a product reads it. What comes from a range that is
 * itself modified in place, or was copied there, restores. */
static int begins_anew(const struct at_trace *t, int32_t touch) {
    int32_t copy = t->access[t->touch[touch]].event;
    const struct at_value *v = source_of(t, copy);
    if (v && v->gemm_result) return 1;
    if (v && (v->kernel_modifies || (v->birth >= 0 && t->event[v->birth].kind == AT_D2D))) return 0;
    return worked_on_first(t, touch);
}

static void note_written(const struct at_trace *t, struct history *h, int32_t touch) {
    const struct at_access *a = &t->access[t->touch[touch]];
    int kind = t->event[a->event].kind;
    if (a->mode == AT_W) h->worked_on = 0;
    h->gemm_last = kind == AT_GEMM || copies_product(t, a->event) || (h->gemm_last && a->mode != AT_W);
    if (h->first_modified >= 0 && is_copy(kind) && !begins_anew(t, touch)) {
        h->copied_over++;
        h->from_host += kind == AT_H2D;
    } else if (kind != AT_GEMM || a->mode == AT_W) {
        h->overwritten += h->first_modified >= 0;
        h->last_overwritten = a->event;
        h->modified_since = 0;
    }
}

static struct history history_of(const struct at_trace *t, const struct at_range *r) {
    struct history h = {.first_modified = -1, .last_run = -1};
    for (int32_t i = r->touch0; i < r->touch0 + r->touches; i++) {
        const struct at_access *a = &t->access[t->touch[i]];
        if (at_is_own_kernel(&t->event[a->event]) && at_modifies(a->mode) && a->event > t->first_gemm)
            note_modified(t, &h, a);
        else if (a->mode == AT_W || a->mode == AT_RW)
            note_written(t, &h, i);
        int kind = t->event[a->event].kind;
        if (kind == AT_GEMM)
            h.filled = 0;
        else if (is_copy(kind) && at_writes(a->mode))
            h.filled = 1;
    }
    return h;
}

/* The event lies in the run of the last change in place: an update, if there is any. */
static int changed_last(const struct at_trace *t, int32_t event) {
    return t->run[event] == t->run[t->training_end - 1];
}

static int is_carried(const struct at_trace *t, const struct at_range *r, const struct history *h) {
    if (!h->modified || h->copied_over >= h->modified) return 0;
    if (r->gemm_reads && !h->kept) return 0; /* batches that are scaled in place */
    if (h->unsure && h->from_host >= 0.8 * h->runs) return 0;
    int32_t last_touch = t->access[t->touch[r->touch0 + r->touches - 1]].event;
    int32_t begin = h->first_modified > t->first_gemm ? h->first_modified : t->first_gemm;
    double training = t->training_end - t->first_gemm;
    /* (A run that found no memory after its only update has had no time to come back to it; nor has the last update.)
     */
    if (!t->died && t->gemm[t->gemms - 1] > last_touch && last_touch - begin < 0.25 * training &&
        !(changed_last(t, last_touch) && t->block[r->block].dead > t->gemm[t->gemms - 1]))
        return 0;               /* modified in a short time only, then left alone: nothing that lives on */
    if (h->gemm_last) return 0; /* not what an optimizer keeps */
    if (h->overwritten && !(h->modified_since > 1 && t->training_end - h->last_overwritten >= 0.6 * training)) return 0;
    return 1;
}

/* More than 40% of the first 20 products read values that nobody wrote: attached while the program was training. */
static int is_late(const struct at_trace *t) {
    int some = t->gemms < 20 ? t->gemms : 20, unwritten = 0;
    for (int i = 0; i < some; i++) {
        int hit = 0;
        AT_EACH_ACCESS(t, t->gemm[i], a) {
            const struct at_value *v = &t->value[a->value];
            hit |= at_is_factor(at_slot_of(t, a)) && t->access[t->touch[v->touch0]].mode != AT_W;
        }
        unwritten += hit;
    }
    return unwritten > 0.4 * some;
}

void at_carried(struct at_trace *t) {
    t->first_weight_read = AT_END;
    if (!t->gemms) return;
    t->late = is_late(t);
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_range *r = &t->range[i];
        if (!r->alive || !r->touches) continue;
        struct history h = history_of(t, r);
        if (!is_carried(t, r, &h)) continue;
        r->carried = 1;
        r->carried_from = h.last_overwritten;
        r->maybe_carried = (uint8_t)h.unsure;
        AT_EACH_TOUCH(t, r, a)
        if (at_is_own_kernel(&t->event[a->event]) && at_modifies(a->mode) && a->event > t->first_gemm)
            at_map_put(&t->modified, t->pool, at_pair(t->run[a->event], i), NULL);
    }
}

/* ---- U6
 * ------------------------------------------------------------------------------------------------------------------ */
struct copy_found {
    int32_t event, source, value; /* value: the copy */
};

struct copy_search {
    struct copy_found *found;
    int32_t n, room;
    struct at_map total, inside; /* function: copies made; those made where the source is modified too */
};

/* A value that products read, and that neither they nor a kernel changes. */
static int is_weight_value(const struct at_value *v) {
    return v->gemm_operand && !v->gemm_result && !v->kernel_modifies;
}

/* A carried range, or a constant that was there before the first product: in a trace of one step everything that is
 * written once looks constant, activations too. */
static int may_be_weight(struct at_trace *t, int32_t range, int32_t event) {
    const struct at_range *r = &t->range[range];
    if (at_is_carried(t, range, event)) return 1;
    if (r->gemm_writes || !at_constant(t, range)) return 0;
    AT_EACH_TOUCH(t, r, a)
    if (at_writes(a->mode) && a->event > t->first_gemm) return 0;
    return 1;
}

/* The kernel reads nothing but carried or constant ranges, and writes nothing but values that products read. */
static int copies_weights(struct at_trace *t, int32_t e) {
    const struct at_event *ev = &t->event[e];
    int sources = 0, results = 0;
    if (ev->kind != AT_KERNEL || ev->buffers > 4) return 0;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode == AT_R)
            sources++;
        else if (a->mode == AT_W)
            results++;
        else
            return 0;
    }
    if (!sources || !results) return 0;
    int64_t share;
    int gathers = at_shares(t, ev, &share) == 1; /* with padding, perhaps */
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (a->mode == AT_W && !is_weight_value(v) && !(gathers && !v->gemm_any && !v->kernel_modifies)) return 0;
        if (a->mode == AT_R && !may_be_weight(t, a->range, e)) return 0;
    }
    return 1;
}

static const struct at_access *next_of_mode(const struct at_trace *t, const struct at_event *ev, int32_t *i, int mode) {
    for (; *i < ev->accesses; ++*i) {
        const struct at_access *a = &t->access[ev->access0 + *i];
        if (a->mode == mode) return ++*i, a;
    }
    return NULL;
}

/* The first source goes with the first result, and so on. */
static void pair_up(struct at_trace *t, int32_t e, struct copy_search *c) {
    const struct at_event *ev = &t->event[e];
    int32_t i = 0, j = 0;
    int64_t share; /* of a weight that is gathered from all processes */
    for (;;) {
        const struct at_access *s = next_of_mode(t, ev, &i, AT_R), *d = next_of_mode(t, ev, &j, AT_W);
        if (!s || !d) return;
        if (!at_same_count(at_access_bytes(t, s), at_access_bytes(t, d)) && at_shares(t, ev, &share) != 1) continue;
        if (!is_weight_value(&t->value[d->value])) continue; /* padding */
        POOL_ROOM(t->pool, c->found, c->n, c->room);
        c->found[c->n++] = (struct copy_found){e, s->range, d->value};
        ++*at_map_put(&c->total, t->pool, (uint32_t)ev->name, NULL);
        if (at_map_has(&t->modified, at_pair(t->run[e], s->range)))
            ++*at_map_put(&c->inside, t->pool, (uint32_t)ev->name, NULL);
    }
}

void at_copies(struct at_trace *t) {
    struct copy_search c = {0};
    for (int32_t e = 0; e < t->events; e++)
        if (copies_weights(t, e)) pair_up(t, e, &c);
    for (int32_t i = 0; i < c.n; i++) {
        uint64_t name = (uint32_t)t->event[c.found[i].event].name;
        const int64_t *inside = at_map_get(&c.inside, name);
        if (inside && (double)*inside > 0.6 * (double)*at_map_get(&c.total, name))
            continue; /* the optimizer, writing parameters from its master copies: U2b */
        t->value[c.found[i].value].copy_of = c.found[i].source;
        t->range[c.found[i].source].copied = 1;
    }
}
