/* Why the device had nothing to do: what the host did before it handed over the work that ended the gap. */
#include "analyzer/report_split.h"

#include "acct/device_table.h"

static void book(struct split_step *s, const struct split_item *next, int detail, int64_t ns) {
    if (ns <= 0) return;
    s->detail[detail].ns += ns;
    s->detail[detail].count++;
    s->phase_ns[next ? next->phase : PHASE_NONE] += ns;
}

/* The first call of the thread that ends after ns; a thread's calls follow one another. */
static int64_t first_after(const struct split_load *l, int32_t thread, int64_t ns) {
    int64_t lo = 0, hi = l->n_calls;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct split_call *c = l->call + mid;
        if (c->thread < thread || (c->thread == thread && c->end_ns <= ns))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct split_call *call_at(const struct split_load *l, int64_t i, int32_t thread) {
    return i >= 0 && i < l->n_calls && l->call[i].thread == thread ? l->call + i : NULL;
}

static int detail_of_call(enum split_host host) {
    static const int of[SPLIT_HOSTS] = {
        [HOST_LAUNCHING] = SPLIT_CALLS, [HOST_COPYING] = SPLIT_STAGING, [HOST_ALLOCATING] = SPLIT_ALLOCATION,
        [HOST_WAITING] = SPLIT_WAITING, [HOST_OTHER] = SPLIT_HOST,      [HOST_OUTSIDE] = SPLIT_HOST};
    return of[host];
}

/* [from, to) by the calls of the thread, and what lies between them. */
static void book_host(struct split_step *s, const struct split_load *l, int64_t from, int64_t to,
                      const struct split_item *next) {
    int32_t thread = next->thread;
    int64_t i = first_after(l, thread, from), now = from;
    while (now < to) {
        const struct split_call *c = call_at(l, i, thread), *before = call_at(l, i - 1, thread);
        if (!c || c->start_ns > now) { /* between two calls */
            int64_t until = c && c->start_ns < to ? c->start_ns : to;
            int shortly = c && before && c->start_ns - before->end_ns <= SPLIT_BETWEEN_NS;
            book(s, next, shortly ? SPLIT_BETWEEN : SPLIT_HOST, until - now);
            now = until;
        }
        if (!c || now >= to) return;
        int64_t until = c->end_ns < to ? c->end_ns : to;
        book(s, next, detail_of_call(c->host), until - now);
        if (until > now) now = until;
        i++;
    }
}

/* In a model the host is always ahead: a launch's cost stands between two ops of a stream, nothing else is known. */
static void book_model(struct split_step *s, const struct split_item *next, int64_t ns) {
    int64_t launch = (int64_t)(ACCT_LAUNCH_S * 1e9 + 0.5);
    if (ns < launch) launch = ns;
    book(s, next, SPLIT_LATENCY, launch);
    book(s, next, SPLIT_GAP, ns - launch);
}

void split_gap(struct split_step *s, const struct report *r, const struct split_load *l, int64_t from_ns, int64_t to_ns,
               const struct split_item *next) {
    if (r->modelled) {
        book_model(s, next, to_ns - from_ns);
        return;
    }
    if (!next || next->host_end_ns == REPORT_UNKNOWN) {
        book(s, next, SPLIT_GAP, to_ns - from_ns);
        return;
    }
    int64_t given = next->host_end_ns < to_ns ? next->host_end_ns : to_ns; /* when the work was with the device */
    if (given > from_ns)
        book_host(s, l, from_ns, given, next);
    else
        given = from_ns;
    book(s, next, to_ns - given <= SPLIT_LATENCY_NS ? SPLIT_LATENCY : SPLIT_QUEUED, to_ns - given);
}
