/* S: steps end with clusters; what is between two ends is an interval. */
#include "analyzer/attr_model.h"

/* S1b: touches weights and carried ranges only (decay, clamping). */
static int is_plain(const struct at_trace *t, const struct at_cluster *c) {
    for (int32_t e = c->first; e <= c->last; e++) {
        if (t->event[e].kind != AT_KERNEL) continue;
        AT_EACH_ACCESS(t, e, a)
        if (!t->range[a->range].weight && !t->range[a->range].carried) return 0;
    }
    return 1;
}

/* What the end of a step that is being gathered has seen, by its number + 1. */
struct gathered {
    int32_t *read;    /* per range: a weight read along its forward axis before the first of its clusters */
    int32_t *updated; /* per range: by one of its clusters */
    struct at_map cluster_of_run;
    int32_t *range, *range0; /* weights that cluster k updates: range[range0[k]] … */
};

static void list_updated(struct at_trace *t, struct gathered *g) {
    g->range0 = POOL_NEW(t->pool, int32_t, (size_t)t->clusters + 2);
    g->range = POOL_NEW(t->pool, int32_t, t->updated.count);
    for (int32_t k = 0; k < t->clusters; k++)
        *at_map_put(&g->cluster_of_run, t->pool, (uint32_t)t->cluster[k].run, NULL) = k;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < t->updated.capacity; i++) {
            const int64_t *k = t->updated.used[i] ? at_map_get(&g->cluster_of_run, t->updated.key[i] >> 32) : NULL;
            if (!k || (int32_t)(uint32_t)t->updated.key[i] < 0) continue; /* state alone */
            if (!pass)
                g->range0[*k + 2]++;
            else
                g->range[g->range0[*k + 1]++] = (int32_t)(uint32_t)t->updated.key[i];
        }
        for (int32_t k = 0; k < t->clusters && !pass; k++) g->range0[k + 2] += g->range0[k + 1];
    }
}

static int is_forward_read(const struct at_trace *t, int32_t e) {
    return t->weight_read[e] >= 0 && t->weight_forward[e];
}

/* Reads what the host sent after event `since`. */
static int reads_new_batch(const struct at_trace *t, int32_t e, int32_t since) {
    if (!at_is_work(&t->event[e])) return 0;
    AT_EACH_ACCESS(t, e, a) {
        int32_t birth = t->value[a->value].birth;
        if (at_reads(a->mode) && birth > since && t->event[birth].kind == AT_H2D) return 1;
    }
    return 0;
}

/* Between two clusters a weight is read along its forward axis: the next step's forward, unless weights are updated as
 * soon as backward has their gradients, and the layers below recomputed: then it was read before in this step, is not
 * updated yet, and nothing works on a new batch. */
static int begins_anew(const struct at_trace *t, const struct gathered *g, int32_t from, int32_t to) {
    int32_t now = t->step_ends, first = t->step_end_first[now - 1];
    int forward = 0, batch = 0;
    for (int32_t e = from + 1; e <= to; e++) {
        batch |= reads_new_batch(t, e, first);
        if (!is_forward_read(t, e)) continue;
        int32_t w = t->weight_read[e];
        if (g->updated[w] == now || g->read[w] != now) return 1;
        forward = 1;
    }
    return forward && batch;
}

static void gather(const struct at_trace *t, struct gathered *g, int32_t k, int32_t from) {
    for (int32_t e = from; e < t->cluster[k].first; e++)
        if (is_forward_read(t, e)) g->read[t->weight_read[e]] = t->step_ends;
}

/* S2: clusters are one unless a step begins between them. */
static void merge_clusters(struct at_trace *t) {
    int some_use_grad = 0;
    struct gathered g = {.read = POOL_NEW(t->pool, int32_t, t->ranges),
                         .updated = POOL_NEW(t->pool, int32_t, t->ranges)};
    list_updated(t, &g);
    for (int32_t k = 0; k < t->clusters; k++) some_use_grad |= t->cluster[k].uses_grad;
    t->step_end_first = POOL_NEW(t->pool, int32_t, t->clusters);
    t->step_end_last = POOL_NEW(t->pool, int32_t, t->clusters);
    for (int32_t k = 0; k < t->clusters; k++) {
        struct at_cluster *c = &t->cluster[k];
        int32_t last = t->step_ends ? t->step_end_last[t->step_ends - 1] : -1;
        if (some_use_grad && !c->uses_grad && !t->dark && is_plain(t, c)) continue;
        if (!t->step_ends || begins_anew(t, &g, last, c->first)) {
            t->step_end_first[t->step_ends++] = c->first;
            gather(t, &g, k, last + 1);
        }
        t->step_end_last[t->step_ends - 1] = c->last;
        c->merged = t->step_ends - 1;
        for (int32_t i = g.range0[k]; i < g.range0[k + 1]; i++) g.updated[g.range[i]] = t->step_ends;
    }
    pool_give(t->pool, g.read);
    pool_give(t->pool, g.updated);
    pool_give(t->pool, g.range);
    pool_give(t->pool, g.range0);
}

static void note_cluster_weights(struct at_trace *t) {
    struct at_map merged_of_run = {0};
    for (int32_t k = 0; k < t->clusters; k++)
        *at_map_put(&merged_of_run, t->pool, (uint32_t)t->cluster[k].run, NULL) = t->cluster[k].merged;
    for (size_t i = 0; i < t->updated.capacity; i++) {
        if (!t->updated.used[i]) continue;
        const int64_t *merged = at_map_get(&merged_of_run, t->updated.key[i] >> 32);
        if (merged && *merged >= 0)
            at_map_put(&t->cluster_weight, t->pool, at_pair((int32_t)*merged, (int32_t)(uint32_t)t->updated.key[i]),
                       NULL);
    }
}

void at_intervals(struct at_trace *t) {
    t->interval = POOL_NEW(t->pool, struct at_interval, (size_t)t->clusters + 1);
    if (t->gemms) merge_clusters(t);
    note_cluster_weights(t);
    int32_t from = 0;
    for (int32_t k = 0; k < t->step_ends; k++) {
        t->interval[t->intervals++] = (struct at_interval){.from = from, .to = t->step_end_last[k] + 1, .cluster = k};
        from = t->step_end_last[k] + 1;
    }
    if (from < t->events)
        t->interval[t->intervals++] = (struct at_interval){.from = from, .to = t->events, .cluster = -1};
}
