/* The sweep over a step's time: who has each moment. */
#include "analyzer/report_split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum split_part part;
} details[SPLIT_DETAILS] = {
    [SPLIT_PRODUCTS + PEAK_FP64] = {"products_fp64", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_FP32] = {"products_fp32", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_TF32] = {"products_tf32", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_BF16] = {"products_bf16", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_FP16] = {"products_fp16", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_FP16_ACC16] = {"products_fp16_acc16", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_FP8] = {"products_fp8", SPLIT_COMPUTE},
    [SPLIT_PRODUCTS + PEAK_FP4] = {"products_fp4", SPLIT_COMPUTE},
    [SPLIT_VECTOR] = {"other_kernels", SPLIT_COMPUTE},
    [SPLIT_MEMORY_PRODUCTS] = {"products_by_memory", SPLIT_MEMORY},
    [SPLIT_MEMORY_KERNELS] = {"kernels_by_memory", SPLIT_MEMORY},
    [SPLIT_NO_ROOF_PRODUCTS] = {"products_without_roof", SPLIT_UNKNOWN},
    [SPLIT_NO_ROOF] = {"kernels_without_roof", SPLIT_UNKNOWN},
    [SPLIT_UNCOUNTED] = {"uncounted_kernels", SPLIT_UNKNOWN},
    [SPLIT_UNATTRIBUTED] = {"kernels_of_no_call", SPLIT_UNKNOWN},
    [SPLIT_GRAPH] = {"graph_kernels", SPLIT_UNKNOWN},
    [SPLIT_TINY] = {"tiny_kernels", SPLIT_LAUNCH},
    [SPLIT_OTHER_STEPS] = {"outside_of_steps", SPLIT_OUTSIDE},
    [SPLIT_COLLECTIVE] = {"collectives", SPLIT_COMMUNICATION},
    [SPLIT_PEER] = {"peer_copies", SPLIT_COMMUNICATION},
    [SPLIT_H2D] = {"h2d", SPLIT_COPIES},
    [SPLIT_D2H] = {"d2h", SPLIT_COPIES},
    [SPLIT_D2D] = {"d2d", SPLIT_COPIES},
    [SPLIT_OTHER_COPY] = {"other_copies", SPLIT_COPIES},
    [SPLIT_MEMSET] = {"memset", SPLIT_COPIES},
    [SPLIT_LATENCY] = {"launch_latency", SPLIT_LAUNCH},
    [SPLIT_CALLS] = {"launch_calls", SPLIT_LAUNCH},
    [SPLIT_BETWEEN] = {"between_calls", SPLIT_LAUNCH},
    [SPLIT_STAGING] = {"copy_calls", SPLIT_COPIES},
    [SPLIT_ALLOCATION] = {"allocation_calls", SPLIT_IDLE},
    [SPLIT_WAITING] = {"waiting_calls", SPLIT_IDLE},
    [SPLIT_QUEUED] = {"work_queued", SPLIT_IDLE},
    [SPLIT_HOST] = {"host_elsewhere", SPLIT_IDLE},
    [SPLIT_GAP] = {"unexplained_gaps", SPLIT_IDLE},
};

enum split_part split_part_of(int detail) {
    return details[detail].part;
}

const char *split_detail_name(int detail) {
    return details[detail].name;
}

const char *split_part_name(enum split_part part) {
    static const char *const names[SPLIT_PARTS] = {"compute",       "memory",  "launch",  "copies",
                                                   "communication", "outside", "unknown", "idle"};
    return names[part];
}

const char *split_host_name(enum split_host what) {
    static const char *const names[SPLIT_HOSTS] = {"launching", "copying", "allocating", "waiting", "other", "outside"};
    return names[what];
}

int64_t split_part_ns(const struct split_step *s, enum split_part part) {
    int64_t ns = 0;
    for (int d = 0; d < SPLIT_DETAILS; d++)
        if (details[d].part == part) ns += s->detail[d].ns;
    return ns;
}

/* ---- items that are running, the one that has the moment on top ---- */

struct heap {
    const struct split_item *item;
    int64_t *index;
    int64_t n;
};

/* Details are in the order in which they win; of one detail the one that began first does. */
static int before(const struct heap *h, int64_t a, int64_t b) {
    const struct split_item *x = h->item + h->index[a], *y = h->item + h->index[b];
    return x->detail != y->detail ? x->detail < y->detail : h->index[a] < h->index[b];
}

static void swap(struct heap *h, int64_t a, int64_t b) {
    int64_t keep = h->index[a];
    h->index[a] = h->index[b];
    h->index[b] = keep;
}

static void push(struct heap *h, int64_t item) {
    int64_t i = h->n++;
    h->index[i] = item;
    for (; i && before(h, i, (i - 1) / 2); i = (i - 1) / 2) swap(h, i, (i - 1) / 2);
}

static void pop(struct heap *h) {
    h->index[0] = h->index[--h->n];
    for (int64_t i = 0;;) {
        int64_t best = i;
        for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < h->n; child++)
            if (before(h, child, best)) best = child;
        if (best == i) return;
        swap(h, i, best);
        i = best;
    }
}

/* ---- booking ---- */

static void book(struct split_step *s, const struct split_item *it, int64_t ns) {
    struct split_detail *d = &s->detail[it->detail];
    int64_t whole = it->end_ns - it->start_ns;
    d->ns += ns;
    d->booked_ns += (double)ns * fmin(1, it->roof_ns / (double)whole); /* over the roof: a peak is wrong; NaN stays */
    s->phase_ns[it->phase] += ns;
    s->busy_ns += ns;
}

/* What begins within the step counts there, with all that it does. */
static void count(struct split_step *s, const struct split_item *it) {
    struct split_detail *d = &s->detail[it->detail];
    d->count += it->first;
    d->device_ns += it->end_ns - it->start_ns;
    s->sum_ns += it->end_ns - it->start_ns;
    d->flops += it->flops;
    d->bytes += it->bytes;
    d->roof_ns += it->roof_ns;
}

static void book_host(struct split_step *s, const struct split_item *it, int64_t ns) {
    s->host_ns[it->detail] += ns;
}

struct sweep {
    struct report *r;
    const struct split_load *load;
    struct heap running;
    int64_t next; /* item */
};

/* What is left open by steps before, and what begins up to `now`, is running. */
static void take(struct sweep *w, struct split_step *s, int64_t from, int64_t now) {
    for (; w->next < w->load->n_items && w->load->item[w->next].start_ns <= now; w->next++) {
        const struct split_item *it = &w->load->item[w->next];
        if (s->on_device && it->start_ns >= from) count(s, it);
        if (!s->on_device && it->start_ns >= from) s->host_calls[it->detail]++;
        if (it->end_ns > now) push(&w->running, w->next);
    }
    while (w->running.n && w->load->item[w->running.index[0]].end_ns <= now) pop(&w->running);
}

static void sweep_step(struct sweep *w, struct split_step *s, int64_t from, int64_t to) {
    const struct split_load *l = w->load;
    for (int64_t now = from; now < to;) {
        take(w, s, from, now);
        const struct split_item *next = w->next < l->n_items ? l->item + w->next : NULL;
        const struct split_item *top = w->running.n ? l->item + w->running.index[0] : NULL;
        int64_t until = next && next->start_ns < to ? next->start_ns : to;
        if (top && top->end_ns < until) until = top->end_ns;
        if (top && s->on_device)
            book(s, top, until - now);
        else if (top)
            book_host(s, top, until - now);
        else if (s->on_device)
            split_gap(s, w->r, l, now, until, next);
        else
            s->host_ns[HOST_OUTSIDE] += until - now;
        now = until;
    }
}

/* ---- steps ---- */

/* 0 where its time is not known. */
static int times_of(const struct report *r, int64_t i, int64_t *from, int64_t *to) {
    const struct report_step *s = &r->steps[i];
    *from = r->on_device ? s->device_start_ns : s->start_ns;
    *to = r->on_device ? s->device_end_ns : s->end_ns;
    return s->ns != REPORT_UNKNOWN && split_usable(*from, *to);
}

/* The times that all of the steps lie in; 0 where none has any. */
static int range_of(const struct report *r, int64_t first, int64_t n, int64_t *from, int64_t *to) {
    int any = 0;
    for (int64_t i = first; i < first + n; i++) {
        int64_t a, b;
        if (!times_of(r, i, &a, &b)) continue;
        if (!any || a < *from) *from = a;
        if (!any || b > *to) *to = b;
        any = 1;
    }
    return any;
}

static struct split_step begin(const struct report *r, int64_t i) {
    int64_t from, to;
    return (struct split_step){
        .index = i, .ns = times_of(r, i, &from, &to) ? to - from : REPORT_UNKNOWN, .on_device = r->on_device};
}

int split_steps(struct report *r, int64_t first, int64_t n, struct split_step **out, char *err, size_t err_len) {
    struct split_load load = {0};
    int64_t from = 0, to = 0;
    int any = range_of(r, first, n, &from, &to);
    *out = report_grow(NULL, 0, (size_t)(n ? n : 1) * sizeof **out);
    for (int64_t i = 0; i < n; i++) (*out)[i] = begin(r, first + i);
    if (!any) return 0;
    int rc = r->on_device ? split_load_device(r, from, to, &load, err, err_len)
                          : split_load_host(r, from, to, &load, err, err_len);
    struct sweep w = {.r = r, .load = &load, .running = {.item = load.item}};
    if (!rc) w.running.index = report_grow(NULL, 0, (size_t)(load.n_items + 1) * sizeof *w.running.index);
    for (int64_t i = 0; i < n && !rc; i++) {
        if (times_of(r, first + i, &from, &to)) sweep_step(&w, *out + i, from, to);
    }
    free(w.running.index);
    split_free(&load);
    if (!rc) return 0;
    free(*out);
    *out = NULL;
    return -1;
}
