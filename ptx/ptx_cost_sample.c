/* Samples. Of threads, each a box of one point, out of boxes that are too much to be taken apart: what is known to
 * differ (rows, warps, a tail) is in boxes of its own, the rest is as good as random. Of whole blocks, where it was not
 * even known of what boxes a launch consists. Both are the same on every machine: numbers of a fixed sequence choose.
 */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_cost_box.h"

enum { MOST_BLOCKS = 512, LEAST_THREADS = 128, TRIES = 8, MORE_TRIES = 32, MOST_MISSES = 4096, RARE_THREADS = 1024 };

/* ---- whole blocks ---- */
struct samples { /* of the blocks between the first and the last */
    int64_t count;
    double lo[PTX_T_FIELDS], hi[PTX_T_FIELDS], squares[PTX_T_FIELDS]; /* squares of lo + hi */
};

static void add_sample(struct samples *to, const struct totals *t) {
    to->count++;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double lo = (double)t->lo[k], hi = (double)t->hi[k];
        to->lo[k] += lo;
        to->hi[k] += hi;
        to->squares[k] += (lo + hi) * (lo + hi);
    }
}

/* Three standard errors of the mean are within `share` of it, in every count. At 0.5 % blocks are so alike that more of
 * them would not tell more; beyond 1 % they tell nothing that could be called an estimate. */
static bool is_within(const struct samples *s, double share) {
    if (s->count < COST_LEAST_BLOCKS - 2) return false;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double n = (double)s->count, mean = (s->lo[k] + s->hi[k]) / n, variance = s->squares[k] / n - mean * mean;
        if (9 * variance / (n - 1) > share * share * mean * mean + 1e-9) return false;
    }
    return true;
}

static void add_up(const struct samples *ends, const struct samples *inner, struct totals *t) {
    for (int k = 0; k < PTX_T_FIELDS; k++) t->lo[k] = (wide)(ends->lo[k] + inner->lo[k]);
}

/* The n-th block of a sample: the first, the last, and the others in steps of the golden section, each once. */
static int64_t sampled_block(int64_t n, int64_t blocks) {
    int64_t inner = blocks - 2, step, a, b;
    if (n < 2 || inner < 1) return n == 0 ? 0 : blocks - 1;
    for (step = (int64_t)((double)inner * 0.6180339887498949) | 1;; step += 2) {
        for (a = inner, b = step; b;) {
            int64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1) break;
    }
    return 1 + (int64_t)((wide)(n - 2) * step % inner);
}

static void scale_up(const struct samples *ends, const struct samples *inner, int64_t blocks, struct totals *t) {
    double by = inner->count ? (double)(blocks - ends->count) / (double)inner->count : 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        t->lo[k] = (wide)(ends->lo[k] + by * inner->lo[k] + 0.5);
        t->hi[k] = (wide)(ends->hi[k] + by * inner->hi[k] + 0.5);
    }
}

int cost_sample_blocks(struct cost_run *x, struct totals *t, int64_t *counted) {
    int64_t blocks = cost_blocks(x), want = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    struct samples ends = {0}, inner = {0};
    uint64_t limit = x->steps + x->most / 5, hurry = x->steps + x->most / 100;
    memset(t, 0, sizeof *t);
    for (*counted = 0; *counted < want; ++*counted) {
        int64_t number = sampled_block(*counted, blocks);
        uint32_t ctaid[3] = {(uint32_t)(number % x->grid[0]), (uint32_t)(number / x->grid[0] % x->grid[1]),
                             (uint32_t)(number / x->grid[0] / x->grid[1])};
        struct box box = cost_box(x, ctaid);
        struct totals one = {.endless = 0};
        struct boxes b = {0};
        if (*counted >= COST_LEAST_BLOCKS && (x->steps > limit || (x->steps > hurry && is_within(&inner, 0.005))))
            break;
        int r = cost_push(&b, &box) ? -1 : cost_walk_boxes(x, &b, x->most / 5 / COST_LEAST_BLOCKS, &one);
        if (r) add_up(&ends, &inner, t);
        if (r) return r;
        add_sample(*counted < 2 ? &ends : &inner, &one);
        t->endless |= one.endless;
        t->never_ends |= one.never_ends;
    }
    if (*counted < blocks && !is_within(&inner, 0.01)) {
        add_up(&ends, &inner, t);
        return 1;
    }
    scale_up(&ends, &inner, blocks, t);
    return 0;
}

/* ---- whether boxes can be taken apart ---- */
static uint64_t mix(uint64_t n) {
    uint64_t z = (n + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static double volume(const struct box *box) {
    double v = 1;
    for (int k = 0; k < COST_DIMS; k++) v *= box->used >> k & 1 ? (double)box->n[k] : 1;
    return v;
}

/* One of the boxes, the larger the more likely; *weight: how many there would be if all were like it. */
static struct box any_of(const struct boxes *b, uint64_t chance, double *weight) {
    double all = 0, at;
    int32_t k = 0;
    for (int32_t n = 0; n < b->count; n++) all += volume(&b->box[n]);
    at = all * (double)(chance >> 11) * 0x1p-53;
    while (k < b->count - 1 && at >= volume(&b->box[k])) at -= volume(&b->box[k++]);
    *weight *= all / volume(&b->box[k]);
    return b->box[k];
}

/* A way down the tree of parts, at each split into one of them by chance: the steps of which a taking apart has only so
 * many, each as often as there would be parts if all ways were like this one, are right on average. */
static double way_down(struct cost_run *x, uint64_t chance, double most) {
    struct totals t = {.endless = 0};
    struct boxes b = {0};
    struct box box = cost_box(x, NULL);
    double sum = 0, weight = 1;
    int r = cost_push(&b, &box) ? 1 : 0;
    for (uint64_t n = chance; !r && b.count && sum <= most; n++) {
        double before = b.opaque;
        box = any_of(&b, mix(n), &weight);
        b.count = 0;
        r = cost_walk_box(x, &b, &box, &t);
        sum += weight * (b.opaque - before);
    }
    free(b.box);
    return r ? most : sum;
}

bool cost_is_hopeless(struct cost_run *x) {
    double each = 1.1 * (double)x->most / 16, most = TRIES * each, sum = 0;
    bool data = x->data;
    char why[sizeof x->why];
    memcpy(why, x->why, sizeof why);
    x->limit = x->steps + x->most / 16;
    for (int n = 0; n < MORE_TRIES && sum < most; n++) {
        if (n == TRIES) most = MORE_TRIES * each; /* near the border, or far below it */
        if (n == TRIES && sum < most / 16) break;
        sum += way_down(x, (uint64_t)n << 32, most);
    }
    x->data = data;
    memcpy(x->why, why, sizeof why);
    return sum >= most;
}

/* ---- threads ---- */
/* One point of a box, within its limits. False: there is hardly any. */
static bool point_of(const struct box *box, uint64_t *chance, struct box *p) {
    for (int n = 0; n < MOST_MISSES; n++) {
        bool inside = true;
        *p = *box;
        p->used = 0;
        for (int k = 0; k < COST_DIMS; k++) {
            if (!(box->used >> k & 1)) continue;
            int64_t at = (int64_t)((unsigned __int128)mix((*chance)++) * (uint64_t)box->n[k] >> 64);
            p->n[k] = 1;
            for (int s = 0; s < 6; s++) cost_cut(&p->sreg[s], k, at, 1);
            for (int32_t l = 0; l < box->limits; l++) cost_cut(&p->bound[l], k, at, 1);
        }
        for (int32_t l = 0; l < box->limits; l++) inside &= p->bound[l].c <= 0;
        if (inside) return true;
    }
    return false;
}

static wide points_of(struct cost_run *x, const struct box *box) {
    memcpy(x->n, box->n, sizeof x->n);
    x->used = box->used;
    x->counters = x->varying = 0;
    x->limits = box->limits;
    for (int32_t k = 0; k < box->limits; k++) x->bound[k] = cost_sum(&box->bound[k]);
    return cost_points(x, NULL, NULL);
}

/* How many points it takes until three standard errors are within 0.5 % of each total. */
static double needed(const struct samples *s, const struct totals *others, double points) {
    double most = 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double n = (double)s->count, mean = (s->lo[k] + s->hi[k]) / n, variance = s->squares[k] / n - mean * mean,
               total = mean + (double)(others->lo[k] + others->hi[k]) / points;
        double need = 9 * variance * n / (n - 1) / (25e-6 * total * total + 1e-9);
        if (need > most) most = need;
    }
    return most;
}

/* Where the points of each box end, all in a row; NULL: too many, or no memory. */
static int64_t *ends_of(struct cost_run *x, const struct boxes *wait) {
    int64_t *end = malloc((size_t)wait->count * sizeof *end);
    wide sum = 0;
    for (int32_t k = 0; end && k < wait->count; k++) {
        sum += points_of(x, &wait->box[k]);
        end[k] = (int64_t)sum;
        if (sum <= (wide)1 << 62) continue;
        free(end);
        end = NULL;
    }
    return end;
}

static bool draw(const struct boxes *wait, const int64_t *end, uint64_t *chance, struct box *point) {
    int64_t at = (int64_t)((unsigned __int128)mix((*chance)++) * (uint64_t)end[wait->count - 1] >> 64);
    int32_t lo = 0, hi = wait->count - 1;
    while (lo < hi) {
        int32_t middle = lo + (hi - lo) / 2;
        if (end[middle] > at)
            hi = middle;
        else
            lo = middle + 1;
    }
    return point_of(&wait->box[lo], chance, point);
}

/* What a thread can do at most by the kernel's text alone, loops aside (`endless`). */
struct worst {
    struct ptx_tally hi;
    uint32_t endless;
};

/* How many draws it takes until what none of them met can hardly matter: of n threads that do not do a thing, at most
 * three in n do (with 95 % confidence), so 3 / n of the most that a thread can do is to be within 1 % of the mean. */
static double needed_for_rare(const struct samples *s, const struct totals *others, double points,
                              const struct worst *w, int k) {
    double mean = (s->lo[k] + s->hi[k]) / 2 / (double)s->count + (double)others->lo[k] / points;
    if (w->endless >> k & 1 || mean <= 0) return w->hi.n[k] ? 1e18 : 0;
    return 300 * ((double)w->hi.n[k] - mean) / mean;
}

/* The draws that make all counts sure which so many, a fair effort, can make sure. */
static double needed_for_all(const struct samples *s, const struct totals *others, double points,
                             const struct worst *w) {
    double most = 0;
    for (int k = 0; k < PTX_T_FIELDS; k++) {
        double need = needed_for_rare(s, others, points, w, k);
        if (need > most && need <= RARE_THREADS) most = need;
    }
    return most;
}

/* 0, 1: see cost_sample_threads; -1. */
static int draw_all(struct cost_run *x, const struct boxes *wait, const int64_t *end, const struct totals *others,
                    const struct worst *w, struct samples *s, struct totals *marks) {
    double points = (double)end[wait->count - 1];
    uint64_t limit = x->steps + x->most / 5, last = x->steps + x->most, chance = 0;
    for (;;) {
        if (s->count >= LEAST_THREADS && s->count % 32 == 0) {
            double need = needed(s, others, points), rare = needed_for_all(s, others, points, w);
            if (need <= (double)s->count && rare <= (double)s->count) return 0;
            if (x->steps > limit && need <= 4 * (double)s->count) return 0; /* within 1 % */
            if (x->steps > last) return 1;
            if (need > points && cost_blocks(x) <= MOST_BLOCKS) return 1;
        }
        struct box point;
        if (!draw(wait, end, &chance, &point)) return 1;
        struct totals one = {.endless = 0};
        struct boxes b = {0};
        x->limit = x->steps + x->most / 5 / COST_LEAST_BLOCKS;
        int r = cost_walk_box(x, &b, &point, &one);
        free(b.box);
        if (r) return r;
        add_sample(s, &one);
        marks->endless |= one.endless;
        marks->never_ends |= one.never_ends;
    }
}

int cost_sample_threads(struct cost_run *x, const struct boxes *wait, struct totals *t, int64_t *threads) {
    struct samples s = {0};
    struct totals marks = {.endless = 0};
    int64_t *end = ends_of(x, wait);
    if (!end || !end[wait->count - 1]) {
        free(end);
        return 1;
    }
    struct worst w = {.endless = 0};
    cost_worst(x, x->entry, &w.hi, &w.endless);
    int r = draw_all(x, wait, end, t, &w, &s, &marks);
    for (int k = 0; !r && k < PTX_T_FIELDS; k++) /* what no draw met may be more: no upper bound */
        if (needed_for_rare(&s, t, (double)end[wait->count - 1], &w, k) > (double)s.count) marks.endless |= 1u << k;
    double by = s.count ? (double)end[wait->count - 1] / (double)s.count : 0;
    for (int k = 0; !r && k < PTX_T_FIELDS; k++) {
        t->lo[k] += (wide)(by * s.lo[k] + 0.5);
        t->hi[k] += (wide)(by * s.hi[k] + 0.5);
    }
    if (!r) t->endless |= marks.endless;
    if (!r) t->never_ends |= marks.never_ends;
    free(end);
    *threads = s.count;
    return r;
}
