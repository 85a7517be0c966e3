/* Cuts each block into atomic ranges at every known begin and end of an access, and lists who touches which range. */
#include "analyzer/attr_model.h"

#include <stdio.h>
#include <stdlib.h>

#define SHARES_MOST 65536 /* processes of a collective */

static int offset_order(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Room for the cuts of each block: its two ends and two for every buffer. place[b] … place[b + 1]. */
static int64_t *cut_places(struct at_trace *t) {
    int64_t *place = POOL_NEW(t->pool, int64_t, (size_t)t->blocks + 1);
    for (int32_t i = 0; i < t->buffers; i++) place[t->buffer[i].block + 1] += 2;
    for (int32_t b = 0; b < t->blocks; b++) place[b + 1] += place[b] + 2;
    return place;
}

/* Ops of each step cut a block at the same places: one of the places last cut needs no further one. */
static void add_cut(int64_t *cut, int64_t *used, int64_t at) {
    for (int64_t i = *used - 1; i >= 0 && i >= *used - 8; i--)
        if (cut[i] == at) return;
    cut[(*used)++] = at;
}

static int64_t *collect_cuts(struct at_trace *t, const int64_t *place, int64_t *used) {
    int64_t *cut = POOL_NEW(t->pool, int64_t, place[t->blocks]);
    for (int32_t b = 0; b < t->blocks; b++) {
        cut[place[b]] = 0;
        cut[place[b] + 1] = t->block[b].bytes;
        used[b] = 2;
    }
    for (int32_t i = 0; i < t->buffers; i++) {
        const struct at_buffer *u = &t->buffer[i];
        add_cut(cut + place[u->block], &used[u->block], u->offset);
        if (u->bytes >= 0) add_cut(cut + place[u->block], &used[u->block], u->offset + u->bytes);
    }
    return cut;
}

static int make_ranges(struct at_trace *t, char *err, size_t err_len) {
    int64_t *place = cut_places(t);
    int64_t *used = POOL_NEW(t->pool, int64_t, t->blocks);
    int64_t *cut = collect_cuts(t, place, used);
    int32_t room = 0;
    for (int32_t b = 0; b < t->blocks; b++) {
        int64_t *c = cut + place[b];
        qsort(c, (size_t)used[b], sizeof *c, offset_order);
        t->block[b].range0 = t->ranges;
        for (int64_t i = 0; i + 1 < used[b]; i++) {
            if (c[i] == c[i + 1]) continue;
            if (t->ranges == INT32_MAX - 1) {
                snprintf(err, err_len, "the trace has more than 2^31 ranges of memory; analyse a window of it");
                return -1;
            }
            POOL_ROOM(t->pool, t->range, t->ranges, room);
            t->range[t->ranges++] =
                (struct at_range){.lo = c[i], .hi = c[i + 1], .block = b, .constant = -1, .weight_like = -1};
        }
        t->block[b].ranges = t->ranges - t->block[b].range0;
    }
    pool_give(t->pool, cut);
    pool_give(t->pool, used);
    pool_give(t->pool, place);
    return 0;
}

/* First range of the block that begins at or after the offset. */
static int32_t range_from(const struct at_trace *t, const struct at_block *b, int64_t offset) {
    int32_t lo = b->range0, hi = b->range0 + b->ranges;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->range[mid].lo < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Ranges [*first, result) of a buffer; one whose extent is not known names the range at its start. */
static int32_t ranges_of(const struct at_trace *t, const struct at_buffer *u, int32_t *first) {
    const struct at_block *b = &t->block[u->block];
    *first = range_from(t, b, u->offset);
    if (u->bytes >= 0) return range_from(t, b, u->offset + u->bytes);
    return *first < b->range0 + b->ranges ? *first + 1 : *first;
}

/* A kernel that reads through one operand what it writes through another (geam with C = A, dgmm in place) modifies it.
 */
static void join_in_place(const struct at_trace *t, const struct at_event *ev, struct at_access *access) {
    if (ev->buffers > 8) return; /* lists of tensors */
    for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++) {
        const struct at_buffer *w = &t->buffer[i];
        if (w->mode != AT_W || w->bytes < 0) continue;
        for (int32_t j = ev->buffer0; j < ev->buffer0 + ev->buffers; j++) {
            const struct at_buffer *u = &t->buffer[j];
            if (u->mode != AT_R || u->block != w->block || u->offset != w->offset || u->bytes != w->bytes) continue;
            for (int32_t k = ev->access0; k < ev->access0 + ev->accesses; k++)
                if (access[k].buffer == i) access[k].mode = AT_RW;
        }
    }
}

/* A collective in place: each process's share of the data is a part of the whole (all-gather, reduce-scatter). What is
 * read and written is modified. */
static void join_share(const struct at_trace *t, const struct at_event *ev, struct at_access *access) {
    int64_t share;
    if (!at_shares(t, ev, &share)) return;
    const struct at_buffer *r = &t->buffer[ev->buffer0], *w = r + 1;
    if (r->mode != AT_R) {
        w = r;
        r = w + 1;
    }
    if (r->block != w->block) return;
    for (int32_t k = ev->access0; k < ev->access0 + ev->accesses; k++) {
        const struct at_range *x = &t->range[access[k].range];
        if (access[k].buffer == w - t->buffer && x->lo >= r->offset && x->hi <= r->offset + r->bytes)
            access[k].mode = AT_RW;
    }
}

/* Counts accesses, or (access != NULL) writes them. */
static int64_t expand(struct at_trace *t, struct at_access *access) {
    int64_t n = 0;
    for (int32_t e = 0; e < t->events; e++) {
        struct at_event *ev = &t->event[e];
        if (access) ev->access0 = (int32_t)n;
        for (int32_t i = ev->buffer0; i < ev->buffer0 + ev->buffers; i++) {
            int32_t first, end = ranges_of(t, &t->buffer[i], &first);
            int given = ev->kind == AT_HANDED                    ? AT_GIVEN_FOR_GOOD
                        : t->buffer[i].slot == AT_SLOT_WORKSPACE ? AT_GIVEN_TO_CALLS
                                                                 : 0;
            if (given) { /* no access: memory that a library may use from here on, or for this call */
                for (int32_t r = first; r < end; r++) t->range[r].workspace |= (uint8_t)given;
                continue;
            }
            if (!access) {
                n += end - first;
                continue;
            }
            for (int32_t r = first; r < end; r++)
                access[n++] = (struct at_access){
                    .event = e, .range = r, .value = -1, .buffer = i, .writer = -1, .mode = t->buffer[i].mode};
        }
        if (!access) continue;
        ev->accesses = (int32_t)n - ev->access0;
        if (ev->kind != AT_KERNEL) continue;
        join_in_place(t, ev, access);
        join_share(t, ev, access);
    }
    return n;
}

int at_shares(const struct at_trace *t, const struct at_event *ev, int64_t *share) {
    const struct at_buffer *u = &t->buffer[ev->buffer0];
    if (ev->kind != AT_KERNEL || ev->buffers != 2 || u[0].bytes <= 0 || u[1].bytes <= 0) return 0;
    if ((u[0].mode == AT_R) == (u[1].mode == AT_R) || u[0].mode == AT_MAYBE || u[1].mode == AT_MAYBE) return 0;
    const struct at_buffer *r = u[0].mode == AT_R ? &u[0] : &u[1], *w = r == u ? u + 1 : u;
    int64_t large = r->bytes > w->bytes ? r->bytes : w->bytes, small = r->bytes + w->bytes - large;
    *share = small;
    if (large % small || large / small < 2 || large / small > SHARES_MOST) return 0;
    return w->bytes == large ? 1 : -1;
}

int at_ranges(struct at_trace *t, char *err, size_t err_len) {
    if (make_ranges(t, err, err_len)) return -1;
    int64_t n = expand(t, NULL);
    if (n > INT32_MAX - 1) {
        snprintf(err, err_len, "the trace touches more than 2^31 ranges of memory; analyse a window of it");
        return -1;
    }
    t->access = POOL_NEW(t->pool, struct at_access, n);
    t->accesses = (int32_t)n;
    expand(t, t->access);
    return 0;
}
