/* C0, second sign of a pool: two extents that one pass over the model writes as a whole cross. Views of a tensor lie
 * inside it, tensors of a static program beside one another (those of a pass over shorter sequences may lie elsewhere);
 * only memory that is handed out again begins one tensor in the middle of what was another, and ends it beyond. */
#include "analyzer/attr_model.h"

#include <stdlib.h>

struct extent {
    int32_t block;
    int64_t lo, hi;
};

/* Of extents that begin together the longest first. */
static int extent_order(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return x->hi == y->hi ? 0 : x->hi > y->hi ? -1 : 1;
}

/* Forward or backward of the step's first micro-batch. */
static int is_of_pass(const struct at_event *e, int32_t step) {
    int pass = e->phase == AT_FORWARD || e->phase == AT_BACKWARD || e->phase == AT_RECOMPUTE;
    return pass && e->step == step && !e->micro_batch && at_is_work(e);
}

/* Each once: what the pass writes, whole and without reading it. */
static struct extent *written_extents(struct at_trace *t, int32_t step, int32_t *count) {
    struct at_map seen = {0};
    struct extent *e = NULL;
    int32_t n = 0, room = 0;
    for (int32_t i = 0; i < t->buffers; i++) {
        const struct at_buffer *b = &t->buffer[i];
        int fresh;
        if (b->mode != AT_W || b->partial || b->guessed || b->bytes <= 0 || b->block < 0) continue;
        if (!is_of_pass(&t->event[b->event], step) || t->block[b->block].ranges < 2) continue;
        at_map_put(&seen, t->pool,
                   at_mix(at_mix((uint64_t)b->block) ^ (uint64_t)b->offset) ^ at_mix((uint64_t)b->bytes) * 3, &fresh);
        if (!fresh) continue;
        POOL_ROOM(t->pool, e, n, room);
        e[n++] = (struct extent){b->block, b->offset, b->offset + b->bytes};
    }
    if (n) qsort(e, (size_t)n, sizeof *e, extent_order);
    *count = n;
    return e;
}

/* A static program may have a buffer whose halves serve two tensors that overlap; a pool has more than one such pair,
 * and more than one in twenty of its extents. Extents that contain the next one are nested: a stack of their ends. */
enum { SHARE = 20 };

static void judge(struct at_block *b, int32_t extents, int32_t crossings) {
    if (crossings > extents / SHARE) b->pool = 1;
}

void at_crossings(struct at_trace *t) {
    int32_t n, depth = 0, first = 0, crossings = 0;
    struct extent *e = written_extents(t, t->steps > 1, &n); /* of the second step, if there is one */
    int64_t *end = POOL_NEW(t->pool, int64_t, n);
    for (int32_t i = 0; i < n; i++) {
        while (depth && end[depth - 1] <= e[i].lo) depth--;
        crossings += depth && end[depth - 1] < e[i].hi;
        end[depth++] = e[i].hi;
        if (i + 1 < n && e[i + 1].block == e[i].block) continue;
        judge(&t->block[e[i].block], i + 1 - first, crossings);
        first = i + 1;
        depth = crossings = 0;
    }
    pool_give(t->pool, end);
    pool_give(t->pool, e);
}
