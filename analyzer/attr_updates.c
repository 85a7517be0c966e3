/* U2–U5: the runs that update weights. A run is the ops between two consecutive products. */
#include "analyzer/attr_model.h"

#include <stdlib.h>

static void update(struct at_trace *t, int32_t run, int32_t range) {
    at_map_put(&t->updated, t->pool, at_pair(run, range), NULL);
}

/* ---- U1a
 * ------------------------------------------------------------------------------------------------------------------ */
static int is_weight_like(const struct at_trace *t, const struct at_range *r) {
    int read = 0, cleared = 0;
    AT_EACH_TOUCH(t, r, a) {
        if (a->event < r->carried_from) continue;
        int kind = t->event[a->event].kind;
        if (kind == AT_GEMM) {
            if (at_writes(a->mode)) return 0;
            read |= at_is_factor(at_slot_of(t, a));
        } else if (kind == AT_MEMSET) {
            cleared = 1;
        } else if (kind == AT_KERNEL && a->mode == AT_RW && a->event > t->first_gemm && !read && !t->late && cleared) {
            return 0;
        }
    }
    return read;
}

/* ---- U2: a carried range that products read is modified
 * ----------------------------------------------------------------- */
static void find_direct_updates(struct at_trace *t) {
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_range *r = &t->range[i];
        if (!r->carried) continue;
        int weight = r->copied || (r->gemm_reads && is_weight_like(t, r));
        if (!weight) continue;
        AT_EACH_TOUCH(t, r, a)
        if (t->event[a->event].kind == AT_KERNEL && at_modifies(a->mode) && a->event > t->first_gemm)
            update(t, t->run[a->event], i);
    }
}

/* ---- U2b: a value that only products read is overwritten from a master copy
 * ---------------------------------------------- */
static int is_weight_value(const struct at_value *v) {
    return v->gemm_operand && !v->gemm_result && !v->kernel_modifies;
}

static int overwrites_weight(const struct at_trace *t, const struct at_access *a) {
    const struct at_range *r = &t->range[a->range];
    if (a->mode != AT_W || !r->gemm_reads || r->carried || !r->alive) return 0;
    const struct at_value *v = &t->value[a->value];
    if (v->copy_of >= 0) return 0;
    if (is_weight_value(v)) return 1;
    int32_t before = at_previous_value(t, a);
    return a->value == r->value0 + r->values - 1 && before >= 0 && is_weight_value(&t->value[before]);
}

/* Sizes, each once in a row: a launch over a whole block has many ranges but few buffers. */
struct sizes {
    int64_t *size;
    int32_t n, room;
};

static void sizes_add(struct pool *p, struct sizes *s, int64_t size) {
    if (s->n && s->size[s->n - 1] == size) return;
    POOL_ROOM(p, s->size, s->n, s->room);
    s->size[s->n++] = size;
}

static int sizes_match(const struct sizes *s, int64_t size) {
    for (int32_t i = 0; i < s->n; i++)
        if (at_same_count(s->size[i], size)) return 1;
    return 0;
}

/* An overwriting of what only products read, from a master of its size. */
struct overwriting {
    int32_t event, range;
};

struct overwritings {
    struct overwriting *found;
    int32_t n, room;
    int32_t *per_range; /* how many of them there are */
};

static void find_overwritten(struct at_trace *t, int32_t e, const struct sizes *masters, struct overwritings *o) {
    int64_t share; /* of a master that is gathered from all processes */
    if (!masters->n) return;
    AT_EACH_ACCESS(t, e, a) {
        if (!overwrites_weight(t, a)) continue;
        const struct at_range *r = &t->range[a->range];
        int begins = t->buffer[a->buffer].offset == r->lo || t->block[r->block].ranges == 1;
        if (t->buffer[a->buffer].bytes < 0 && !begins) continue; /* where the kernel begins, its tensor does */
        if (!sizes_match(masters, at_access_bytes(t, a)) && at_shares(t, &t->event[e], &share) != 1) continue;
        POOL_ROOM(t->pool, o->found, o->n, o->room);
        o->found[o->n++] = (struct overwriting){e, a->range};
        o->per_range[a->range]++;
    }
}

/* Memory that kernels mostly fill with other things (what products are handed in a narrow format) is no weight. */
static int is_scratch(const struct at_trace *t, int32_t range, int32_t from_masters) {
    int32_t filled = 0;
    AT_EACH_TOUCH(t, &t->range[range], a)
    filled += a->mode == AT_W && t->event[a->event].kind == AT_KERNEL && a->event > t->first_gemm;
    return filled > 2 * from_masters;
}

/* The kernel reads `master`, and with it a value of its size that was made after the last update of the master: that is
 * the next forward pass at work (a layernorm over one row), not the update. */
static int works_on_newer(const struct at_trace *t, const struct at_access *master) {
    if (master->mode != AT_R) return 0;
    AT_EACH_ACCESS(t, master->event, a) {
        if (a->mode != AT_R || at_is_carried(t, a->range, a->event)) continue;
        int32_t birth = t->value[a->value].birth;
        if (birth > master->writer && at_same_count(at_access_bytes(t, a), at_access_bytes(t, master))) return 1;
    }
    return 0;
}

/* The kernel reads rows of `master` that a list from the host names: an embedding at work. */
static int gathers(const struct at_trace *t, const struct at_access *master) {
    if (master->mode != AT_R || t->buffer[master->buffer].bytes >= 0) return 0;
    AT_EACH_ACCESS(t, master->event, a)
    if (a->mode == AT_R && t->value[a->value].only_host_writes && at_access_bytes(t, a) > 8) return 1;
    return 0;
}

/* A plain copy of a master into its weights (Scopy, cudaMemcpy) is a kernel of the optimizer for all rules that follow.
 */
static void find_master_updates(struct at_trace *t) {
    struct sizes masters = {0};
    struct overwritings o = {.per_range = POOL_NEW(t->pool, int32_t, t->ranges)};
    for (int32_t e = t->first_gemm; e < t->events; e++) {
        const struct at_event *ev = &t->event[e];
        if (ev->kind != AT_KERNEL && ev->kind != AT_D2D) continue;
        masters.n = 0;
        AT_EACH_ACCESS(t, e, a)
        if (at_is_carried(t, a->range, e) && at_map_has(&t->modified, at_pair(t->run[e], a->range)) &&
            !works_on_newer(t, a) && !gathers(t, a))
            sizes_add(t->pool, &masters, at_access_bytes(t, a));
        if (masters.n) find_overwritten(t, e, &masters, &o);
    }
    for (int32_t i = 0; i < t->ranges; i++)
        if (o.per_range[i] && is_scratch(t, i, o.per_range[i])) o.per_range[i] = 0;
    for (int32_t i = 0; i < o.n; i++) {
        const struct overwriting *f = &o.found[i];
        if (!o.per_range[f->range]) continue;
        update(t, t->run[f->event], f->range);
        t->event[f->event].kind = AT_KERNEL;
    }
    pool_give(t->pool, masters.size);
    pool_give(t->pool, o.per_range);
}

/* ---- the list of runs
 * ---------------------------------------------------------------------------------------------------- */
static int i32_order(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void list_update_runs(struct at_trace *t) {
    struct at_map seen = {0};
    t->update_runs = 0;
    t->update_run = POOL_NEW(t->pool, int32_t, t->updated.count);
    for (size_t i = 0; i < t->updated.capacity; i++) {
        int fresh;
        if (!t->updated.used[i]) continue;
        int32_t run = (int32_t)(t->updated.key[i] >> 32);
        ++*at_map_put(&seen, t->pool, (uint32_t)run, &fresh);
        if (fresh) t->update_run[t->update_runs++] = run;
    }
    if (t->update_runs) qsort(t->update_run, (size_t)t->update_runs, sizeof(int32_t), i32_order);
}

/* U3, blind: only runs that touch at least half of what the largest one touches count. */
static void keep_large_runs(struct at_trace *t) {
    struct at_map touched = {0}, kept = {0};
    int64_t most = 0;
    for (size_t i = 0; i < t->updated.capacity; i++) {
        if (!t->updated.used[i]) continue;
        int64_t n = ++*at_map_put(&touched, t->pool, t->updated.key[i] >> 32, NULL);
        if (n > most) most = n;
    }
    for (size_t i = 0; i < t->updated.capacity; i++)
        if (t->updated.used[i] && 2 * *at_map_get(&touched, t->updated.key[i] >> 32) >= most)
            at_map_put(&kept, t->pool, t->updated.key[i], NULL);
    t->updated = kept;
}

/* ---- U5: momentum that is updated apart from its weights (Muon)
 * ------------------------------------------------------------ */
struct state_search {
    struct at_map sizes;   /* of updated weights, their halves and doubles */
    int64_t distinct;      /* sizes of updated weights */
    struct at_map state;   /* (run, range): candidate */
    struct at_map refused; /* runs in which a kernel that works on a candidate also writes something else */
};

static void note_weight_sizes(struct at_trace *t, struct state_search *s) {
    struct at_map sizes = {0};
    for (int32_t i = 0; i < t->ranges; i++) {
        const struct at_range *r = &t->range[i];
        if (!r->any_weight) continue;
        const struct at_block *b = &t->block[r->block];
        int64_t size = b->ranges == 1 ? b->bytes : r->hi - r->lo;
        at_map_put(&sizes, t->pool, (uint64_t)size, NULL);
        at_map_put(&s->sizes, t->pool, (uint64_t)size, NULL);
        at_map_put(&s->sizes, t->pool, (uint64_t)(size / 2), NULL);
        at_map_put(&s->sizes, t->pool, (uint64_t)(size * 2), NULL);
    }
    s->distinct = (int64_t)sizes.count;
}

static int is_state_candidate(const struct at_trace *t, const struct state_search *s, int32_t range) {
    const struct at_range *r = &t->range[range];
    int64_t size = r->hi - r->lo;
    if (r->maybe_carried && t->dark) return 0;
    return !r->gemm_reads && !r->copied && at_map_has(&s->sizes, (uint64_t)size) && (size > 4096 || s->distinct < 3);
}

static void refuse_runs(struct at_trace *t, struct state_search *s) {
    for (int32_t e = 0; e < t->events; e++) {
        int works = 0, writes = 0;
        if (t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a) {
            works |= at_writes(a->mode) && at_map_has(&s->state, at_pair(t->run[e], a->range));
            writes |= a->mode == AT_W;
        }
        if (works && writes) at_map_put(&s->refused, t->pool, (uint32_t)t->run[e], NULL);
    }
}

/* Adds runs without weights of their own: at_pair(run, -1). */
static void find_state_updates(struct at_trace *t) {
    struct state_search s = {0};
    struct at_map have = {0};
    for (int32_t i = 0; i < t->update_runs; i++) at_map_put(&have, t->pool, (uint32_t)t->update_run[i], NULL);
    note_weight_sizes(t, &s);
    for (size_t i = 0; i < t->modified.capacity; i++) {
        if (!t->modified.used[i]) continue;
        uint64_t key = t->modified.key[i];
        if (!at_map_has(&have, key >> 32) && is_state_candidate(t, &s, (int32_t)(uint32_t)key))
            at_map_put(&s.state, t->pool, key, NULL);
    }
    refuse_runs(t, &s);
    for (size_t i = 0; i < s.state.capacity; i++)
        if (s.state.used[i] && !at_map_has(&s.refused, s.state.key[i] >> 32))
            update(t, (int32_t)(s.state.key[i] >> 32), -1);
}

/* ---- U4: a single update run shows nothing carried
 * ------------------------------------------------------------------------- State is what the updating functions write,
 * less what they only read. One function may do both (an axpy adds a gradient to a momentum, then the momentum to a
 * weight): what it writes in the update run itself stays. */
static void single_update(struct at_trace *t) {
    enum { KEEP = 1, DROP = 2, WRITTEN_HERE = 4 };
    int32_t run = t->update_run[0];
    struct at_map updates = {0};
    uint8_t *fate = POOL_NEW(t->pool, uint8_t, t->ranges);
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].kind == AT_KERNEL) AT_EACH_ACCESS(t, e, a)
    if (at_writes(a->mode) && at_map_has(&t->updated, at_pair(run, a->range)))
        at_map_put(&updates, t->pool, (uint32_t)t->event[e].name, NULL);
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].kind == AT_KERNEL && at_map_has(&updates, (uint32_t)t->event[e].name)) AT_EACH_ACCESS(t, e, a)
    fate[a->range] |= a->mode == AT_R ? DROP : t->run[e] == run ? KEEP | WRITTEN_HERE : KEEP;
    struct at_map left = {0};
    for (int32_t i = 0; i < t->ranges; i++) {
        int weight = at_map_has(&t->updated, at_pair(run, i));
        struct at_range *r = &t->range[i];
        r->carried &= weight || fate[i] == KEEP || fate[i] & WRITTEN_HERE;
        if (r->carried && at_map_has(&t->modified, at_pair(run, i))) at_map_put(&left, t->pool, at_pair(run, i), NULL);
    }
    t->modified = left; /* of this run; there is no other that the rules ask for */
    pool_give(t->pool, fate);
}

/* Update runs before the run. */
static int32_t updates_before(const struct at_trace *t, int32_t run) {
    int32_t lo = 0, hi = t->update_runs;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->update_run[mid] < run)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* All that is known of the range lies between two updates. */
static int lives_through_none(const struct at_trace *t, const struct at_range *r) {
    int32_t first = -1, last = -1;
    AT_EACH_TOUCH(t, r, a) {
        if (a->event < r->carried_from) continue;
        if (first < 0) first = t->run[a->event];
        last = t->run[a->event];
    }
    return first >= 0 && updates_before(t, first) == updates_before(t, last);
}

/* U1b: what is carried lives through an update. A gradient that is added up in memory of its own, and released after
 * the update, does not. */
static void drop_short_lived(struct at_trace *t) {
    struct at_map left = {0};
    int dropped = 0;
    if (t->update_runs < 2) return;
    for (int32_t i = 0; i < t->ranges; i++) {
        struct at_range *r = &t->range[i];
        if (!r->carried || r->weight || r->copied || r->gemm_reads || !lives_through_none(t, r)) continue;
        r->carried = 0;
        dropped = 1;
    }
    if (!dropped) return;
    for (size_t i = 0; i < t->modified.capacity; i++)
        if (t->modified.used[i] && t->range[(uint32_t)t->modified.key[i]].carried)
            at_map_put(&left, t->pool, t->modified.key[i], NULL);
    t->modified = left;
}

void at_updates(struct at_trace *t) {
    if (!t->gemms) return;
    find_direct_updates(t);
    find_master_updates(t);
    if (t->blind) keep_large_runs(t);
    for (size_t i = 0; i < t->updated.capacity; i++)
        if (t->updated.used[i]) t->range[(uint32_t)t->updated.key[i]].weight = 1;
    for (int32_t i = 0; i < t->ranges; i++) t->range[i].any_weight = t->range[i].weight;
    list_update_runs(t);
    drop_short_lived(t);
    if (t->update_runs == 1 && !t->dark) single_update(t); /* first: what is carried decides which runs U5 adds */
    if (t->update_runs) {
        find_state_updates(t);
        list_update_runs(t);
    }
    at_clusters(t);
}
