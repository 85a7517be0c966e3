/* U7: the cluster of an update run, from its first to its last kernel that works on carried ranges or weights. */
#include "analyzer/attr_model.h"

/* Events [*from, result) of a run. */
static int32_t run_events(const struct at_trace *t, int32_t run, int32_t *from) {
    *from = run ? t->gemm[run - 1] + 1 : 0;
    return run < t->gemms ? t->gemm[run] : t->events;
}

static int writes_updated(const struct at_trace *t, int32_t run, int32_t e) {
    AT_EACH_ACCESS(t, e, a)
    if (at_writes(a->mode) && at_map_has(&t->updated, at_pair(run, a->range))) return 1;
    return 0;
}

static int works_on_state(const struct at_trace *t, int32_t run, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        if (!at_writes(a->mode)) continue;
        if (at_is_carried(t, a->range, e) || at_map_has(&t->updated, at_pair(run, a->range))) return 1;
    }
    return 0;
}

/* Some carried range that this run modifies and the kernel reads has as many elements as `bytes`. */
static int has_source(const struct at_trace *t, int32_t run, int32_t e, int64_t bytes) {
    int32_t last = -1;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode != AT_R || !at_is_carried(t, a->range, e)) continue;
        if (a->buffer == last && t->buffer[a->buffer].bytes >= 0) continue; /* the same buffer, the same size */
        if (!at_map_has(&t->modified, at_pair(run, a->range))) continue;
        last = a->buffer;
        if (at_same_count(at_access_bytes(t, a), bytes)) return 1;
    }
    return 0;
}

/* A copy of the state into parameters: reads nothing else. */
static int copies_state(const struct at_trace *t, int32_t run, int32_t e) {
    AT_EACH_ACCESS(t, e, a)
    if (a->mode == AT_R && !at_is_carried(t, a->range, e)) return 0;
    int32_t last = -1;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode != AT_W || !t->range[a->range].alive) continue;
        if (a->buffer == last && t->buffer[a->buffer].bytes >= 0) continue;
        last = a->buffer;
        if (has_source(t, run, e, at_access_bytes(t, a))) return 1;
    }
    return 0;
}

/* Writes a value that products read: not part of the update. */
static int feeds_products(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        const struct at_range *r = &t->range[a->range];
        if ((a->mode == AT_W || a->mode == AT_RW) && r->gemm_reads && !r->weight && !at_is_carried(t, a->range, e))
            return 1;
    }
    return 0;
}

/* ---- blind: backward kernels may seem to modify carried ranges, so look around the ops that write weights
 * --------------- */
struct around {
    struct at_map names, ranges; /* functions and ranges of the update */
    int32_t first, last;         /* kernels that write weights */
};

static void note_weight_ops(struct at_trace *t, int32_t run, int32_t from, int32_t to, struct around *w) {
    w->first = w->last = -1;
    for (int32_t e = from; e < to; e++) {
        if (t->event[e].kind != AT_KERNEL || !writes_updated(t, run, e)) continue;
        if (w->first < 0) w->first = e;
        w->last = e;
        at_map_put(&w->names, t->pool, (uint32_t)t->event[e].name, NULL);
        AT_EACH_ACCESS(t, e, a) at_map_put(&w->ranges, t->pool, (uint32_t)a->range, NULL);
    }
}

static int touches_state_of(const struct at_trace *t, const struct around *w, int32_t e) {
    AT_EACH_ACCESS(t, e, a)
    if (at_map_has(&w->ranges, (uint32_t)a->range) && at_is_carried(t, a->range, e)) return 1;
    return 0;
}

static int touches_only(const struct at_trace *t, const struct around *w, int32_t e, int now) {
    AT_EACH_ACCESS(t, e, a) {
        int carried = now ? at_is_carried(t, a->range, e) : t->range[a->range].carried;
        if (!carried && !at_map_has(&w->ranges, (uint32_t)a->range)) return 0;
    }
    return 1;
}

static int32_t blind_start(struct at_trace *t, struct around *w, int32_t from) {
    struct at_map names = {0};
    for (int32_t e = from; e <= w->last; e++)
        if (t->event[e].kind == AT_KERNEL &&
            (at_map_has(&w->names, (uint32_t)t->event[e].name) || (e < w->last && touches_state_of(t, w, e))))
            at_map_put(&names, t->pool, (uint32_t)t->event[e].name, NULL);
    int32_t x = w->first;
    for (int32_t e = w->first - 1; e >= from; e--) {
        if (t->event[e].kind != AT_KERNEL) continue;
        int known = at_map_has(&names, (uint32_t)t->event[e].name);
        if (!known && !touches_state_of(t, w, e) && !touches_only(t, w, e, 1)) break;
        x = e;
        if (!known) AT_EACH_ACCESS(t, e, a) at_map_put(&w->ranges, t->pool, (uint32_t)a->range, NULL);
    }
    return x;
}

static int32_t blind_end(const struct at_trace *t, const struct around *w, int32_t to) {
    int32_t y = w->last;
    for (int32_t e = w->last + 1; e < to; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        if (!at_map_has(&w->names, (uint32_t)t->event[e].name) && !touches_only(t, w, e, 0)) break;
        y = e;
    }
    return y;
}

static void blind_cluster(struct at_trace *t, int32_t run, int32_t from, int32_t to, struct at_cluster *c) {
    struct around w = {0}, v = {0};
    note_weight_ops(t, run, from, to, &w);
    if (w.first < 0) return;
    note_weight_ops(t, run, from, to, &v);
    c->first = blind_start(t, &w, from);
    c->last = blind_end(t, &v, to);
}

/* ---- all
 * ------------------------------------------------------------------------------------------------------------------ */
static int find_cluster(struct at_trace *t, int32_t run, struct at_cluster *c) {
    int32_t from, to = run_events(t, run, &from), first_weight = -1, last_weight = -1;
    *c = (struct at_cluster){.first = -1, .last = -1, .run = run, .merged = -1};
    for (int32_t e = from; e < to; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        if (writes_updated(t, run, e)) {
            if (first_weight < 0) first_weight = e;
            last_weight = e;
        }
        if (!works_on_state(t, run, e) && !(c->first >= 0 && copies_state(t, run, e))) continue;
        if (feeds_products(t, e)) continue;
        if (c->first < 0) c->first = e;
        c->last = e;
    }
    if (c->first < 0) {
        c->first = first_weight;
        c->last = last_weight;
    }
    if (c->first >= 0 && t->dark) blind_cluster(t, run, from, to, c);
    return c->first >= 0;
}

/* ---- what lies between the updates of a cluster and is none of it: backward, where weights are updated as soon as
 * they have a gradient ---- */
static int one_format_of(int64_t x, int64_t y) {
    return x == y || x == 2 * y || y == 2 * x;
}

/* The kernel works on no weight or state, and reads what neither the updates read nor kernels of theirs made (beside
 * state, and what the host brought). One that makes the only such value anew, in another format, casts a gradient. */
static int is_foreign(const struct at_trace *t, const struct at_cluster *c, const uint8_t *own, int32_t e) {
    int others = 0, cast = 0;
    if (t->event[e].kind != AT_KERNEL || works_on_state(t, c->run, e)) return 0;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_value *v = &t->value[a->value];
        if (!at_reads(a->mode) || own[a->value] || at_is_carried(t, a->range, e)) continue;
        if (t->range[a->range].weight || v->only_host_writes || v->birth == e) continue;
        others++;
        AT_EACH_ACCESS(t, e, b)
        cast |= b->mode == AT_W && own[b->value] && one_format_of(at_access_bytes(t, a), at_access_bytes(t, b));
    }
    return others > 1 || (others && !cast);
}

/* `own`, per value: what the cluster's updates read, then what its other kernels make. */
static void leave_out_foreign(struct at_trace *t, const struct at_cluster *c, uint8_t *own) {
    for (int32_t e = c->first; e <= c->last; e++)
        if (t->event[e].kind == AT_KERNEL && works_on_state(t, c->run, e)) AT_EACH_ACCESS(t, e, a) own[a->value] = 1;
    for (int32_t e = c->first; e <= c->last; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        if (is_foreign(t, c, own, e)) {
            t->in_cluster[e] = 0;
            continue;
        }
        AT_EACH_ACCESS(t, e, a) own[a->value] |= (uint8_t)at_writes(a->mode);
    }
}

void at_clusters(struct at_trace *t) {
    t->cluster = POOL_NEW(t->pool, struct at_cluster, t->update_runs);
    for (int32_t i = 0; i < t->update_runs; i++)
        if (find_cluster(t, t->update_run[i], &t->cluster[t->clusters])) t->clusters++;
    t->in_cluster = POOL_NEW(t->pool, uint8_t, t->events);
    for (int32_t i = 0; i < t->clusters; i++)
        for (int32_t e = t->cluster[i].first; e <= t->cluster[i].last; e++) t->in_cluster[e] = 1;
    if (!t->dark) {
        uint8_t *own = POOL_NEW(t->pool, uint8_t, t->values);
        for (int32_t i = 0; i < t->clusters; i++) leave_out_foreign(t, &t->cluster[i], own);
        pool_give(t->pool, own);
    }
    for (int32_t r = 0; r < t->ranges; r++) AT_EACH_TOUCH(t, &t->range[r], a)
    if (at_writes(a->mode) && t->in_cluster[a->event]) {
        t->range[r].cluster_writes = 1;
        break;
    }
}

/* Writes carried ranges that updates write, and nothing else. */
static int goes_on_with_state(const struct at_trace *t, int32_t e) {
    int writes = 0;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_writes(a->mode)) continue;
        if (!at_is_carried(t, a->range, e) || !t->range[a->range].cluster_writes) return 0;
        writes = 1;
    }
    return writes;
}

void at_begun_update(struct at_trace *t) {
    if (!t->step_ends || !t->gemms) return;
    int32_t after = t->step_end_last[t->step_ends - 1], last_gemm = t->gemm[t->gemms - 1];
    if (last_gemm < after) return;
    for (int32_t e = last_gemm + 1; e < t->events; e++) {
        if (t->event[e].kind != AT_KERNEL || !goes_on_with_state(t, e)) continue;
        t->in_cluster[e] = 1;
        t->event[e].phase = AT_OPTIMIZER;
    }
}
