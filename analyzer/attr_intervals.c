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

static int forward_between(const struct at_trace *t, int32_t from, int32_t to) {
    for (int32_t e = from + 1; e <= to; e++)
        if (t->weight_read[e] >= 0 && t->weight_forward[e]) return 1;
    return 0;
}

/* S2: clusters are one unless a weight is read along its forward axis between them. */
static void merge_clusters(struct at_trace *t) {
    int some_use_grad = 0;
    for (int32_t k = 0; k < t->clusters; k++) some_use_grad |= t->cluster[k].uses_grad;
    t->step_end_first = POOL_NEW(t->pool, int32_t, t->clusters);
    t->step_end_last = POOL_NEW(t->pool, int32_t, t->clusters);
    for (int32_t k = 0; k < t->clusters; k++) {
        struct at_cluster *c = &t->cluster[k];
        if (some_use_grad && !c->uses_grad && !t->blind && is_plain(t, c)) continue;
        if (!t->step_ends || forward_between(t, t->step_end_last[t->step_ends - 1], c->first))
            t->step_end_first[t->step_ends++] = c->first;
        t->step_end_last[t->step_ends - 1] = c->last;
        c->merged = t->step_ends - 1;
    }
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
