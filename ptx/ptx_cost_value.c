/* Affine values over a box: arithmetic, quotients rounded down, signs; and how to split where they are not decided. */
#include <string.h>
#include "ptx/ptx_cost_model.h"

enum { MANY_PARTS = 4096, MOST_CUTS = 8, MOST_PERIOD = 256 }; /* cuts of a coordinate at multiples of something */

#define EACH_DIM(mask, k) \
    for (uint32_t m_##k = (mask), k; m_##k && (k = (uint32_t)__builtin_ctz(m_##k), 1); m_##k &= m_##k - 1)

struct val cost_number(int64_t c) {
    return (struct val){.c = c};
}

struct val cost_data(enum val_base base) {
    return (struct val){.kind = VAL_DATA, .base = (uint8_t)base};
}

struct val cost_late(struct cost_run *x, struct wish w, enum val_base base) {
    if (w.dim < 0) return cost_data(base);
    struct val v = {.kind = VAL_LATE, .base = (uint8_t)base, .var = ++x->serial};
    v.wish = w;
    return v;
}

bool cost_is_constant(const struct val *v) {
    return v->kind == VAL_NUM && !v->dims && v->base == BASE_NUMBER;
}

bool cost_same(const struct val *a, const struct val *b) {
    if (a->kind != b->kind || a->base != b->base || a->var != b->var) return false;
    if (a->kind != VAL_NUM) return true;
    if (a->c != b->c || a->dims != b->dims) return false;
    EACH_DIM(a->dims, k) if (a->f[k] != b->f[k]) return false;
    return true;
}

static int64_t times(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
static int64_t plus(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void set(struct val *v, uint32_t k, int64_t f) {
    v->f[k] = f;
    v->dims = (uint16_t)(f ? v->dims | 1u << k : v->dims & ~(1u << k));
}

/* Of numbers; the base is a's, or b's if a has none. */
struct val ptx_cost_add(const struct cost_run *x, const struct val *a, const struct val *b, int64_t times_b) {
    (void)x;
    struct val v = *a;
    if (a->base == BASE_NUMBER && b->base != BASE_NUMBER) {
        v.base = b->base;
        v.var = b->var;
    }
    v.c = plus(v.c, times(b->c, times_b));
    EACH_DIM(b->dims, k) set(&v, k, plus(a->dims >> k & 1 ? a->f[k] : 0, times(b->f[k], times_b)));
    return v;
}

struct val cost_scale(const struct cost_run *x, const struct val *a, int64_t by) {
    struct val zero = {0};
    return ptx_cost_add(x, &zero, a, by);
}

struct sum cost_sum(const struct val *v) {
    struct sum s = {.c = v->c, .dims = v->dims};
    EACH_DIM(v->dims, k) s.f[k] = v->f[k];
    return s;
}

struct sum cost_sum_add(const struct sum *a, const struct sum *b, wide times_b) {
    struct sum s = *a;
    s.c += b->c * times_b;
    EACH_DIM(b->dims, k) {
        s.f[k] = (a->dims >> k & 1 ? a->f[k] : 0) + b->f[k] * times_b;
        s.dims = (uint16_t)(s.f[k] ? s.dims | 1u << k : s.dims & ~(1u << k));
    }
    return s;
}

struct val cost_from_sum(const struct sum *s) {
    struct val v = {.c = (int64_t)(uint64_t)s->c};
    EACH_DIM(s->dims, k) set(&v, k, (int64_t)(uint64_t)s->f[k]);
    return v;
}

static void range(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi) {
    *lo = *hi = s->c;
    EACH_DIM(s->dims, k) * (s->f[k] < 0 ? lo : hi) += s->f[k] * (x->n[k] - 1);
    if (x->limits) cost_limit_range(x, s, lo, hi);
}

void cost_range(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi) {
    if (!(s->dims & x->varying)) return range(x, s, lo, hi);
    wide unused, f = s->f[__builtin_ctz(x->varying)];
    struct sum first = *s, last;
    first.dims &= (uint16_t)~x->varying;
    last = cost_sum_add(&first, &x->last, f);
    range(x, f < 0 ? &last : &first, lo, &unused);
    range(x, f < 0 ? &first : &last, &unused, hi);
}

struct wish cost_halve(const struct cost_run *x, uint16_t dims) {
    struct wish w = {.dim = -1, .opaque = true, .at = 1};
    uint16_t counters = dims & x->counters; /* no use in halving those */
    if (counters) w.dim = (int8_t)__builtin_ctz(counters);
    if (counters) return w;
    EACH_DIM(dims, k) if (w.dim < 0 || x->n[k] < x->n[w.dim]) w.dim = (int8_t)k;
    if (w.dim >= 0) w.at = x->n[w.dim] / 2;
    return w;
}

/* ---- quotients ---- */
static wide gcd(wide a, wide b) {
    while (b) {
        wide r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static wide floor_div(wide a, wide b) { /* b > 0 */
    wide q = a / b;
    return q - (a % b < 0);
}

static wide magnitude(wide a) {
    return a < 0 ? -a : a;
}

/* Takes what is a multiple of d out of r, into q; factors are left between -d/2 and d/2, so that r spans little. */
static void take_multiples(struct sum *r, wide d, struct sum *q) {
    wide many = floor_div(r->c, d);
    q->c += many;
    r->c -= many * d;
    EACH_DIM(r->dims, k) {
        many = floor_div(r->f[k] + d / 2, d);
        wide f = (q->dims >> k & 1 ? q->f[k] : 0) + many;
        q->f[k] = f;
        q->dims = (uint16_t)(f ? q->dims | 1u << k : q->dims & ~(1u << k));
        r->f[k] -= many * d;
        if (!r->f[k]) r->dims = (uint16_t)(r->dims & ~(1u << k));
    }
}

/* ⌊(G·a + b) / d⌋ = ⌊(a + ⌊b/G⌋) / (d/G)⌋ if G divides d: small terms b whose ⌊b/G⌋ is constant go. */
static bool drop_small(const struct cost_run *x, struct sum *r, wide *d) {
    uint8_t order[COST_DIMS];
    int count = 0;
    EACH_DIM(r->dims, k) {
        int at = count++;
        for (; at && magnitude(r->f[order[at - 1]]) < magnitude(r->f[k]); at--) order[at] = order[at - 1];
        order[at] = (uint8_t)k;
    }
    for (int large = count; large; large--) {
        wide g = *d, lo, hi;
        struct sum small = *r;
        for (int n = 0; n < large; n++) {
            g = gcd(g, magnitude(r->f[order[n]]));
            small.dims = (uint16_t)(small.dims & ~(1u << order[n]));
        }
        cost_range(x, &small, &lo, &hi);
        wide c = floor_div(lo, g);
        if (g == 1 || c != floor_div(hi, g)) continue;
        r->dims = (uint16_t)(r->dims & ~small.dims);
        for (int n = 0; n < large; n++) r->f[order[n]] /= g;
        r->c = c;
        *d /= g;
        return true;
    }
    return false;
}

/* A division by a constant that the compiler wrote as a product and a shift: ⌊g·v / d⌋ = ⌊v / e⌋ where e = ⌈d/g⌉ and
 * (g·e − d) · max v < d, for v ≥ 0. */
static bool undo_reciprocal(const struct cost_run *x, struct sum *r, wide *d) {
    wide g = r->c, lo, hi;
    EACH_DIM(r->dims, k) g = gcd(g, magnitude(r->f[k]));
    cost_range(x, r, &lo, &hi);
    if (g < 2 || lo < 0) return false;
    wide e = (*d + g - 1) / g, over = g * e - *d;
    if (over && hi / g >= (*d + over - 1) / over) return false;
    r->c /= g;
    EACH_DIM(r->dims, k) r->f[k] /= g;
    *d = e;
    return true;
}

static wide symmetric(wide a, wide d) { /* a modulo d, between -d/2 and d/2 */
    return a - floor_div(a + d / 2, d) * d;
}

/* A small p for which p · f is nearly a multiple of d, so that with x = p·q + r little is left of the factor of q: as
 * of the inverse of 3 modulo 2^32, by which a compiler tests for multiples. From the continued fraction of f / d. 0:
 * none. */
static int64_t near_period(wide f, wide d, int64_t n) {
    wide a = magnitude(f), b = d, before = 0, p = 1;
    while (a) { /* p: denominators of the convergents */
        wide q = b / a, next = q * p + before, rest = b % a;
        b = a;
        a = rest;
        before = p;
        p = next;
        if (p > MOST_PERIOD || p > n / 2) return 0;
        if (p > 1 && magnitude(symmetric(p * f, d)) * (n / p) < d / 16) return (int64_t)p;
    }
    return 0;
}

/* Along the coordinate that moves e most, the comparison is decided only before `first` and from `second` on. Where
 * most lies between, as in a triangle, cuts would give a part for each row: rather two parts with a border between. */
static struct wish bordered(const struct cost_run *x, struct wish w, const struct sum *e, wide first, wide second) {
    int64_t n = x->n[w.dim], rows = 1;
    if (first < 0) first = 0;
    if (second > n) second = n;
    if (second - first < 4 || second - first < n / 2 || e->dims & (x->counters | ~x->used)) return w;
    EACH_DIM(e->dims, k) if ((int)k != w.dim && rows < 4) rows *= x->n[k];
    if (rows < 4 || x->limits == COST_LIMITS) return w;
    x->borders->sum[x->borders->next] = *e;
    w.limit = (uint8_t)(1 + x->borders->next);
    x->borders->next = (uint8_t)((x->borders->next + 1) % COST_ENDS);
    return w;
}

static struct wish how_to_split(const struct cost_run *x, const struct sum *r, wide d) {
    int dim = -1;
    wide most = 0;
    EACH_DIM(r->dims, k) if (dim < 0 || magnitude(r->f[k]) * (x->n[k] - 1) > most) {
        dim = (int)k;
        most = magnitude(r->f[k]) * (x->n[k] - 1);
    }
    wide f = r->f[dim], period = d / gcd(magnitude(f), d);
    wide at = f > 0 ? (d - r->c + f - 1) / f : r->c / -f + 1; /* where it leaves [0, d) */
    int64_t n = x->n[dim];
    bool room = x->used != (1u << COST_DIMS) - 1;
    if (room && period < n && period > 1 && !(x->counters >> dim & 1)) {
        if (n % (int64_t)period)
            return (struct wish){.dim = (int8_t)dim, .radix = false, .at = n - n % (int64_t)period};
        return (struct wish){.dim = (int8_t)dim, .radix = true, .at = (int64_t)period};
    }
    int64_t near = room && most / d > MOST_CUTS && !(x->counters >> dim & 1) ? near_period(f, d, n) : 0;
    if (near) return (struct wish){.dim = (int8_t)dim, .radix = n % near == 0, .at = n % near ? n - n % near : near};
    if (at < 1 || at >= n) at = n / 2;
    struct wish w = {.dim = (int8_t)dim, .opaque = most / d > MANY_PARTS, .at = (int64_t)at};
    wide lo, hi;
    cost_range(x, r, &lo, &hi);
    if (hi - lo >= 2 * d) return w;
    struct sum below = *r; /* the last multiple of d that it reaches */
    below.c -= floor_div(hi, d) * d - 1;
    return bordered(x, w, &below, 0, n);
}

bool cost_floor(const struct cost_run *x, const struct sum *e, wide d, struct sum *q, struct wish *w) {
    struct sum r = *e;
    memset(q, 0, sizeof *q);
    for (;;) {
        wide lo, hi;
        take_multiples(&r, d, q);
        cost_range(x, &r, &lo, &hi);
        wide c = floor_div(lo, d);
        if (c == floor_div(hi, d)) {
            q->c += c;
            return true;
        }
        if (!drop_small(x, &r, &d) && !undo_reciprocal(x, &r, &d)) break;
    }
    *w = how_to_split(x, &r, d);
    return false;
}

bool cost_as(const struct cost_run *x, const struct val *v, bool is_signed, unsigned bits, struct sum *out,
             struct wish *w) {
    wide size = (wide)1 << bits, least = is_signed ? -(size / 2) : 0, lo, hi;
    *out = cost_sum(v);
    cost_range(x, out, &lo, &hi);
    if (lo >= least && hi < least + size) return true;
    struct sum shifted = *out, q;
    shifted.c -= least;
    if (!cost_floor(x, &shifted, size, &q, w)) return false;
    *out = cost_sum_add(out, &q, -size);
    return true;
}

/* ---- signs ---- */
/* The coordinate that moves e most, and where e without it lies. */
static int strongest(const struct cost_run *x, const struct sum *e, wide *lo, wide *hi) {
    int dim = -1;
    wide most = -1;
    EACH_DIM(e->dims, k) {
        wide move = (e->f[k] < 0 ? -e->f[k] : e->f[k]) * (x->n[k] - 1);
        if (move > most) {
            most = move;
            dim = (int)k;
        }
    }
    struct sum rest = *e;
    rest.dims = (uint16_t)(rest.dims & ~(1u << dim));
    cost_range(x, &rest, lo, hi);
    return dim;
}

static struct wish cut_at(const struct cost_run *x, int dim, wide first, wide second) {
    int64_t n = x->n[dim];
    wide at = first > 0 && first < n ? first : second > 0 && second < n ? second : n / 2;
    return (struct wish){.dim = (int8_t)dim, .radix = false, .at = (int64_t)at};
}

/* Notes the sum that is ≤ 0 until iterations end: e, or what is ≤ 0 where e is not. */
static struct wish noted(struct cost_run *x, struct wish w, const struct sum *e, bool opposite) {
    if (!(x->counters >> w.dim & 1)) return w;
    struct sum one = {.c = 1};
    x->ends[x->next_end] = opposite ? cost_sum_add(&one, e, -1) : *e;
    w.end = (uint8_t)(1 + x->next_end);
    x->next_end = (uint8_t)((x->next_end + 1) % COST_ENDS);
    return w;
}

int cost_at_most_zero(struct cost_run *x, const struct sum *e, struct wish *w) {
    wide lo, hi;
    cost_range(x, e, &lo, &hi);
    if (hi <= 0) return 1;
    if (lo > 0) return 0;
    int dim = strongest(x, e, &lo, &hi);
    wide f = e->f[dim];
    wide first, second;
    if (f > 0) /* surely true below the first, surely false from the second on */
        first = floor_div(-hi, f) + 1, second = floor_div(-lo, f) + 1;
    else /* surely false below the first, surely true from the second on */
        first = floor_div(lo - 1, -f) + 1, second = -floor_div(-hi, -f);
    *w = bordered(x, cut_at(x, dim, first, second), e, first, second);
    *w = noted(x, *w, e, f < 0);
    return -1;
}

int cost_is_zero(struct cost_run *x, const struct sum *e, struct wish *w) {
    wide lo, hi, g = 0;
    cost_range(x, e, &lo, &hi);
    if (lo > 0 || hi < 0) return 0;
    if (!e->dims) return 1;
    EACH_DIM(e->dims, k) g = gcd(g, e->f[k] < 0 ? -e->f[k] : e->f[k]);
    if (e->c % g) return 0;
    int dim = strongest(x, e, &lo, &hi);
    wide f = e->f[dim], first, last;
    if (f < 0) {
        wide t = lo;
        lo = -hi;
        hi = -t;
        f = -f;
    }
    first = -floor_div(hi, f); /* ⌈-hi / f⌉ */
    last = floor_div(-lo, f);
    *w = cut_at(x, dim, first, last + 1);
    struct sum before = *e;
    before.c += e->f[dim] > 0; /* e < 0 at first, or e > 0 */
    *w = noted(x, *w, &before, e->f[dim] < 0);
    return -1;
}

/* ---- splits ---- */
/* x = from + y, 0 ≤ y < left. */
void cost_cut(struct val *v, int dim, int64_t from, int64_t left) {
    if (!(v->dims >> dim & 1)) return;
    v->c = plus(v->c, times(v->f[dim], from));
    if (left == 1) set(v, (uint32_t)dim, 0);
}

void cost_radix(struct val *v, int dim, int quotient, int64_t at) {
    if (!(v->dims >> dim & 1)) return;
    set(v, (uint32_t)quotient, times(v->f[dim], at));
    if (at == 1) set(v, (uint32_t)dim, 0);
}
