/* V: the values that each range holds one after another, and the questions about accesses that many rules ask. */
#include "analyzer/attr_model.h"

#include <math.h>
#include <string.h>

/* ---- touches: the accesses of each range in issue order
 * ---------------------------------------------------------------- */
/* Of an event that is part of what is analysed (attr_segments.c blanks others). */
static int is_shown(const struct at_trace *t, const struct at_access *a) {
    return a->event < t->events && t->event[a->event].accesses;
}

static void list_touches(struct at_trace *t) {
    for (int32_t i = 0; i < t->accesses; i++) t->range[t->access[i].range].touches += is_shown(t, &t->access[i]);
    int32_t n = 0;
    for (int32_t r = 0; r < t->ranges; r++) {
        t->range[r].touch0 = n;
        n += t->range[r].touches;
        t->range[r].touches = 0;
    }
    t->touch = POOL_NEW(t->pool, int32_t, n + AT_TOUCH_AHEAD + 1);
    for (int32_t i = 0; i < t->accesses; i++) {
        if (!is_shown(t, &t->access[i])) continue;
        struct at_range *r = &t->range[t->access[i].range];
        t->touch[r->touch0 + r->touches++] = i;
    }
}

/* ---- values
 * -------------------------------------------------------------------------------------------------------------- */
static void note_use(const struct at_trace *t, struct at_value *v, const struct at_access *a) {
    int kind = t->event[a->event].kind;
    if (kind == AT_KERNEL && a->mode == AT_RW) v->kernel_modifies = 1;
    if (at_writes(a->mode) && kind != AT_H2D) v->only_host_writes = 0;
    if (kind != AT_GEMM) return;
    int slot = at_slot_of(t, a);
    v->gemm_any = 1;
    v->gemm_operand |= at_is_factor(slot);
    v->gemm_result |= at_is_result(t, a);
}

/* Two tensors in a pool may share bytes, one after the other: the extents of the same one are mostly the same. */
static int same_tensor(const struct at_buffer *x, const struct at_buffer *y) {
    if (x->bytes < 0 || y->bytes < 0) return 1; /* nothing says otherwise */
    int64_t from = x->offset > y->offset ? x->offset : y->offset;
    int64_t x_end = x->offset + x->bytes, y_end = y->offset + y->bytes, to = x_end < y_end ? x_end : y_end;
    return 2 * (to - from) >= (x->bytes > y->bytes ? x->bytes : y->bytes);
}

/* The last write before an event. */
struct last_write {
    int32_t event, buffer; /* -1: none */
    int unread;
};

/* A kernel that may leave some bytes as they were, in a value that nobody has read since another function made it,
 * works on that value: nothing is written in vain. A pass that comes again without a reader (evaluation) is no such
 * case, nor is another tensor in its place. */
static int works_on(const struct at_trace *t, const struct at_access *a, const struct last_write *w) {
    if (a->mode != AT_W || !w->unread || w->event < 0 || !t->buffer[a->buffer].partial) return 0;
    const struct at_event *e = &t->event[a->event], *by = &t->event[w->event];
    return by->kind != AT_MEMSET && by->name != e->name && same_tensor(&t->buffer[a->buffer], &t->buffer[w->buffer]);
}

/* A pure write begins a value, unless the same op has just touched the range in another role. */
static void values_of_range(struct at_trace *t, int32_t r, int32_t *room) {
    struct at_range *range = &t->range[r];
    int32_t last_event = -1, before = -1;
    struct last_write last = {-1, -1, 0};
    range->value0 = t->values;
    for (int32_t i = range->touch0; i < range->touch0 + range->touches; i++) {
        struct at_access *a = (struct at_access *)at_touch(t, i);
        if (a->event != last_event) before = last.event;
        if (a->event != last_event && works_on(t, a, &last)) a->mode = AT_RW;
        if (i == range->touch0 || (a->mode == AT_W && a->event != last_event)) {
            POOL_ROOM(t->pool, t->value, t->values, *room);
            t->value[t->values++] = (struct at_value){.range = r,
                                                      .touch0 = i,
                                                      .birth = at_writes(a->mode) ? a->event : -1,
                                                      .copy_of = -1,
                                                      .tainted_in = -1,
                                                      .needed_in = -1,
                                                      .only_host_writes = 1};
        }
        struct at_value *v = &t->value[t->values - 1];
        v->touches++;
        a->value = t->values - 1;
        a->writer = before;
        note_use(t, v, a);
        last.unread = at_writes(a->mode) || (last.unread && a->event == last.event);
        if (at_writes(a->mode)) {
            last.event = a->event;
            last.buffer = a->buffer;
        }
        last_event = a->event;
    }
    range->values = t->values - range->value0;
}

/* ---- products
 * ------------------------------------------------------------------------------------------------------------ */
static void list_gemms(struct at_trace *t) {
    t->run = POOL_NEW(t->pool, int32_t, t->events);
    t->gemm = POOL_NEW(t->pool, int32_t, t->events);
    for (int32_t e = 0; e < t->events; e++) {
        t->run[e] = t->gemms;
        if (t->event[e].kind == AT_GEMM) t->gemm[t->gemms++] = e;
    }
}

/* Another op reads what the product makes. */
static int is_used(const struct at_trace *t, int32_t gemm) {
    AT_EACH_ACCESS(t, gemm, a) {
        if (!at_is_result(t, a)) continue;
        AT_EACH_TOUCH(t, &t->value[a->value], b) if (b->event > gemm && at_reads(b->mode)) return 1;
    }
    return 0;
}

/* Products that warm a library up come before all else, and nobody reads what they make: the program begins behind
 * them. */
static int32_t first_gemm(const struct at_trace *t) {
    for (int32_t i = 0; i < t->gemms; i++)
        if (is_used(t, t->gemm[i])) return t->gemm[i];
    return t->gemms ? t->gemm[0] : 0;
}

static void note_gemms(struct at_trace *t) {
    for (int32_t i = 0; i < t->gemms; i++) {
        AT_EACH_ACCESS(t, t->gemm[i], a) {
            int slot = at_slot_of(t, a);
            if (at_is_factor(slot)) t->range[a->range].gemm_reads = 1;
            if (at_writes(a->mode)) t->range[a->range].gemm_writes = 1;
        }
    }
}

/* A number that two products share if they multiply the same values in the same shape. */
static uint64_t product_key(const struct at_trace *t, int32_t e) {
    const struct at_event *ev = &t->event[e];
    uint64_t key = at_mix((uint64_t)(ev->own ? ev->name : ev->m)) ^ at_mix((uint64_t)ev->n + 1) * 3 ^
                   at_mix((uint64_t)ev->k + 2) * 5;
    key ^= at_mix((uint64_t)ev->batch + 3) * 7;
    AT_EACH_ACCESS(t, e, a) if (at_is_factor(at_slot_of(t, a))) key += at_mix((uint64_t)a->value + 0x1000);
    return key;
}

static void link_repeated_gemms(struct at_trace *t) {
    struct at_map latest = {0};
    t->gemm_before = POOL_NEW(t->pool, int32_t, t->events);
    for (int32_t i = 0; i < t->gemms; i++) {
        int fresh;
        int64_t *at = at_map_put(&latest, t->pool, product_key(t, t->gemm[i]), &fresh);
        t->gemm_before[t->gemm[i]] = fresh ? -1 : (int32_t)*at;
        *at = t->gemm[i];
    }
}

/* Where training ends: behind the last kernel that changes in place what products never write, as updates do. A long
 * evaluation or the writing of samples may follow, which does not count. */
static int32_t training_end(const struct at_trace *t) {
    int32_t end = 0;
    for (int32_t r = 0; r < t->ranges; r++) {
        if (t->range[r].gemm_writes) continue;
        AT_EACH_TOUCH(t, &t->range[r], a)
        if (t->event[a->event].kind == AT_KERNEL && at_modifies(a->mode) && a->event > end) end = a->event;
    }
    return end > t->first_gemm ? end + 1 : t->events;
}

/* The block lives through at least 0.3 of the training part, or was made after the last product and kept. */
static void mark_alive(struct at_trace *t) {
    if (!t->gemms) return;
    int32_t last = t->gemm[t->gemms - 1];
    for (int32_t r = 0; r < t->ranges; r++) {
        const struct at_block *b = &t->block[t->range[r].block];
        int32_t until = b->dead < t->events ? b->dead : t->events,
                from = b->born > t->first_gemm ? b->born : t->first_gemm;
        t->range[r].alive =
            until - from >= 0.3 * (t->training_end - t->first_gemm) || (b->dead == AT_END && b->born > last);
    }
}

void at_values(struct at_trace *t) {
    int32_t room = 0;
    list_touches(t);
    for (int32_t r = 0; r < t->ranges; r++) values_of_range(t, r, &room);
    list_gemms(t);
    note_gemms(t);
    t->first_gemm = first_gemm(t);
    link_repeated_gemms(t);
    t->training_end = training_end(t);
    mark_alive(t);
}

void at_values_again(struct at_trace *t) {
    for (int32_t r = 0; r < t->ranges; r++) t->range[r].touches = 0;
    pool_give(t->pool, t->touch);
    pool_give(t->pool, t->value);
    pool_give(t->pool, t->run);
    pool_give(t->pool, t->gemm);
    pool_give(t->pool, t->gemm_before);
    t->value = NULL;
    t->values = t->gemms = 0;
    at_values(t);
}

/* ---- questions
 * ----------------------------------------------------------------------------------------------------------- */
int at_same_count(int64_t x, int64_t y) {
    static const double ratios[] = {0.25, 0.5, 1, 2, 4};
    double q = (double)x / (double)(y > 1 ? y : 1);
    for (int i = 0; i < 5; i++)
        if (fabs(q / ratios[i] - 1) < 0.1) return 1;
    return 0;
}

int64_t at_access_bytes(const struct at_trace *t, const struct at_access *a) {
    int64_t n = t->buffer[a->buffer].bytes;
    return n >= 0 ? n : t->range[a->range].hi - t->range[a->range].lo;
}

int at_is_carried(const struct at_trace *t, int32_t range, int32_t event) {
    return t->range[range].carried && event >= t->range[range].carried_from;
}

int at_is_pool(const struct at_trace *t, int32_t range) {
    return t->block[t->range[range].block].pool;
}

/* The value that a pure write of this access ended; -1. */
int32_t at_previous_value(const struct at_trace *t, const struct at_access *a) {
    const struct at_value *v = &t->value[a->value];
    int begins = t->access[t->touch[v->touch0]].event == a->event;
    return begins && a->value > t->range[a->range].value0 ? a->value - 1 : -1;
}

int32_t at_first_gemm_from(const struct at_trace *t, int32_t event) {
    return event < t->events ? t->run[event > 0 ? event : 0] : t->gemms;
}

/* Position in touch[] of the first touch at or after the event. */
int32_t at_touch_from(const struct at_trace *t, int32_t touch0, int32_t touches, int32_t event) {
    int32_t lo = touch0, hi = touch0 + touches;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->access[t->touch[mid]].event < event)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* A product before the program proper. */
int at_warms_up(const struct at_trace *t, int32_t event) {
    return event < t->first_gemm && t->event[event].kind == AT_GEMM;
}

/* Written before its first read, and only read since. */
static int is_constant(const struct at_trace *t, const struct at_range *r) {
    if (!r->alive) return 0;
    int32_t first_read = 0;
    AT_EACH_TOUCH(t, r, a) {
        if (at_reads(a->mode) && at_is_work(&t->event[a->event]) && !at_warms_up(t, a->event)) {
            first_read = a->event;
            break;
        }
    }
    int32_t until = first_read < t->first_weight_read ? first_read : t->first_weight_read;
    AT_EACH_TOUCH(t, r, a) {
        if (a->mode == AT_R || (a->mode == AT_MAYBE && t->dark)) continue;
        if (a->event >= until) return 0;
    }
    return 1;
}

int at_constant(struct at_trace *t, int32_t range) {
    struct at_range *r = &t->range[range];
    if (r->constant < 0) r->constant = (int8_t)is_constant(t, r);
    return r->constant;
}

/* A constant that steps after the first still read. */
int at_lasting(struct at_trace *t, int32_t range) {
    const struct at_range *r = &t->range[range];
    if (!t->step_ends || !r->touches || !at_constant(t, range)) return 0;
    int32_t first = t->access[t->touch[r->touch0]].event, last = t->access[t->touch[r->touch0 + r->touches - 1]].event;
    return first < t->step_end_first[0] && last > t->step_end_last[0];
}
