#include "ptx/ptx_symbolic.h"
#include <stdlib.h>
#include <string.h>

/* ---- interning ---- */
static uint32_t hash(const unsigned char *p, uint32_t bytes) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ bytes;
    for (uint32_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_slots(struct ptx_intern *t) {
    uint32_t slots = t->slots ? t->slots * 2 : 256;
    int32_t *slot = calloc(slots, sizeof *slot);
    if (!slot) return false;
    for (int32_t n = 1; n <= t->count; n++) {
        uint32_t at = hash(t->record[n], t->bytes[n]) & (slots - 1);
        while (slot[at]) at = (at + 1) & (slots - 1);
        slot[at] = n;
    }
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    return true;
}

static bool grow_records(struct ptx_intern *t) {
    int32_t room = t->room ? t->room * 2 : 128;
    void *record = realloc(t->record, (size_t)room * sizeof *t->record);
    if (record) t->record = record;
    void *bytes = realloc(t->bytes, (size_t)room * sizeof *t->bytes);
    if (bytes) t->bytes = bytes;
    if (!record || !bytes) return false;
    t->room = room;
    return true;
}

int32_t ptx_intern(struct ptx_intern *t, const void *record, uint32_t bytes, bool *fresh) {
    if (fresh) *fresh = false;
    if ((uint32_t)t->count * 2 >= t->slots && !grow_slots(t)) return -1;
    uint32_t at = hash(record, bytes) & (t->slots - 1);
    for (; t->slot[at]; at = (at + 1) & (t->slots - 1)) {
        int32_t n = t->slot[at];
        if (t->bytes[n] == bytes && !memcmp(t->record[n], record, bytes)) return n;
    }
    if (t->count + 1 >= t->room && !grow_records(t)) return -1;
    unsigned char *copy = malloc(bytes);
    if (!copy) return -1;
    t->record[++t->count] = memcpy(copy, record, bytes);
    t->bytes[t->count] = bytes;
    t->slot[at] = t->count;
    if (fresh) *fresh = true;
    return t->count;
}

void ptx_intern_free(struct ptx_intern *t) {
    for (int32_t n = 1; n <= t->count; n++) free(t->record[n]);
    free(t->record);
    free(t->bytes);
    free(t->slot);
    *t = (struct ptx_intern){0};
}

void ptx_symbolic_free(struct ptx_symbols_of *s) {
    ptx_intern_free(&s->sums);
    free(s->symbol);
    s->symbol = NULL;
}

/* ---- symbols and sums ---- */
int32_t ptx_symbol_new(struct ptx_symbols_of *s, int64_t lo, int64_t hi) {
    if (s->count == s->room) {
        int32_t room = s->room ? s->room * 2 : 64;
        void *grown = realloc(s->symbol, (size_t)room * sizeof *s->symbol);
        if (!grown) {
            s->no_memory = true;
            return 0;
        }
        s->symbol = grown;
        s->room = room;
    }
    s->symbol[s->count] = (struct ptx_symbol_info){.lo = lo, .hi = hi, .frame = -1, .block = -1};
    return s->count++;
}

int32_t ptx_sum_intern(struct ptx_symbols_of *s, const struct ptx_sum *sum) {
    int32_t n = ptx_intern(&s->sums, sum, (uint32_t)(16 + (size_t)sum->count * sizeof sum->term[0]), NULL);
    if (n > 0) return n;
    s->no_memory = true;
    return 0;
}

const struct ptx_sum *ptx_sum(const struct ptx_symbols_of *s, int32_t number) {
    return (const struct ptx_sum *)(const void *)s->sums.record[number];
}

int32_t ptx_sum_constant(struct ptx_symbols_of *s, int64_t c) {
    struct ptx_sum sum = {.constant = c};
    return ptx_sum_intern(s, &sum);
}

int32_t ptx_sum_symbol(struct ptx_symbols_of *s, int32_t symbol) {
    struct ptx_sum sum = {.count = 1, .term = {{.symbol = symbol, .factor = 1}}};
    return ptx_sum_intern(s, &sum);
}

/* out = x·a + y·b; false: it does not fit. */
static bool combine(const struct ptx_sum *a, int64_t x, const struct ptx_sum *b, int64_t y, struct ptx_sum *out) {
    int64_t p, q, i = 0, j = 0;
    out->count = 0;
    if (__builtin_mul_overflow(a->constant, x, &p) || __builtin_mul_overflow(b->constant, y, &q) ||
        __builtin_add_overflow(p, q, &out->constant))
        return false;
    while (i < a->count || j < b->count) {
        bool from_a = j == b->count || (i < a->count && a->term[i].symbol <= b->term[j].symbol);
        bool from_b = i == a->count || (j < b->count && b->term[j].symbol <= a->term[i].symbol);
        struct ptx_term t = {.symbol = from_a ? a->term[i].symbol : b->term[j].symbol};
        p = q = 0;
        if (from_a && __builtin_mul_overflow(a->term[i++].factor, x, &p)) return false;
        if (from_b && __builtin_mul_overflow(b->term[j++].factor, y, &q)) return false;
        if (__builtin_add_overflow(p, q, &t.factor)) return false;
        if (!t.factor) continue;
        if (out->count == PTX_SUM_TERMS) return false;
        out->term[out->count++] = t;
    }
    return true;
}

/* A copy at its full size: interned records are as short as their terms. */
static struct ptx_sum full(const struct ptx_symbols_of *s, int32_t a) {
    struct ptx_sum sum = {0};
    memcpy(&sum, s->sums.record[a], s->sums.bytes[a]);
    return sum;
}

int32_t ptx_sum_add(struct ptx_symbols_of *s, int32_t a, int32_t b, int64_t times_b) {
    if (!a || !b) return 0;
    struct ptx_sum x = full(s, a), y = full(s, b), sum = {0};
    return combine(&x, 1, &y, times_b, &sum) ? ptx_sum_intern(s, &sum) : 0;
}

int32_t ptx_sum_scale(struct ptx_symbols_of *s, int32_t a, int64_t by) {
    if (!a) return 0;
    struct ptx_sum x = full(s, a), zero = {0}, sum = {0};
    return combine(&x, by, &zero, 0, &sum) ? ptx_sum_intern(s, &sum) : 0;
}

bool ptx_sum_is_constant(const struct ptx_symbols_of *s, int32_t a, int64_t *value) {
    if (!a || ptx_sum(s, a)->count) return false;
    *value = ptx_sum(s, a)->constant;
    return true;
}

int64_t ptx_sum_factor(const struct ptx_symbols_of *s, int32_t a, int32_t symbol) {
    const struct ptx_sum *sum = ptx_sum(s, a);
    for (int64_t i = 0; i < sum->count; i++)
        if (sum->term[i].symbol == symbol) return sum->term[i].factor;
    return 0;
}

/* ---- bounds ---- */
enum { MAX_WORK = 3000 };

static int64_t box(const struct ptx_symbols_of *s, const struct ptx_sum *e) {
    int64_t sum = e->constant, part;
    for (int64_t i = 0; i < e->count; i++) {
        const struct ptx_symbol_info *info = &s->symbol[e->term[i].symbol];
        int64_t limit = e->term[i].factor > 0 ? info->hi : info->lo;
        if (limit == PTX_INF || limit == -PTX_INF) return PTX_INF;
        if (s->no_types && info->lo != -PTX_INF && info->hi != PTX_INF && info->hi / 2 - info->lo / 2 >= INT32_MAX)
            return PTX_INF;
        if (__builtin_mul_overflow(e->term[i].factor, limit, &part) || __builtin_add_overflow(sum, part, &sum))
            return PTX_INF;
    }
    return sum;
}

static int64_t floor_div(int64_t a, int64_t b) { /* b > 0 */
    return a / b - (a % b < 0);
}

struct query {
    struct ptx_symbols_of *s;
    const struct ptx_facts *facts;
    int32_t list;
    uint64_t stop;  /* value of s->work */
    int64_t enough; /* a bound that need not be improved */
    int top;        /* depth at which `enough` is said */
};

static int64_t upper(struct query *q, const struct ptx_sum *e, int depth);

/* With fact ≤ 0: upper bounds of e by taking multiples of it away, so that one of e's symbols cancels out. */
static int64_t with_fact(struct query *q, const struct ptx_sum *e, const struct ptx_sum *fact, int depth,
                         int64_t best) {
    for (int64_t i = 0; i < e->count; i++) {
        int64_t a = e->term[i].factor, b = 0;
        for (int64_t j = 0; j < fact->count; j++)
            if (fact->term[j].symbol == e->term[i].symbol) b = fact->term[j].factor;
        if (!b || (a > 0) != (b > 0) || a == INT64_MIN || b == INT64_MIN) continue;
        a = a < 0 ? -a : a;
        b = b < 0 ? -b : b;
        if (a % b == 0) a /= b, b = 1;
        struct ptx_sum rest = {0};
        if (!combine(e, b, fact, -a, &rest)) continue;
        int64_t bound = upper(q, &rest, depth - 1);
        if (bound != PTX_INF && floor_div(bound, b) < best) best = floor_div(bound, b);
    }
    return best;
}

/* What a symbol is by its making: a quotient, a minimum, a maximum. */
static int64_t with_making(struct query *q, const struct ptx_sum *e, int32_t symbol, int depth, int64_t best) {
    struct ptx_symbol_info info = q->s->symbol[symbol];
    struct ptx_sum own = {.count = 1, .term = {{.symbol = symbol, .factor = 1}}}, fact = {0};
    for (int n = 0; n < 2; n++) {
        if (info.at_most[n]) {
            struct ptx_sum limit = full(q->s, info.at_most[n]);
            if (combine(&own, 1, &limit, -1, &fact)) best = with_fact(q, e, &fact, depth, best);
        }
        if (info.at_least[n]) {
            struct ptx_sum limit = full(q->s, info.at_least[n]);
            if (combine(&limit, 1, &own, -1, &fact)) best = with_fact(q, e, &fact, depth, best);
        }
    }
    if (!info.divided) return best;
    struct ptx_sum whole = full(q->s, info.divided); /* by·own ≤ whole ≤ by·own + by - 1 */
    if (combine(&own, info.by, &whole, -1, &fact)) best = with_fact(q, e, &fact, depth, best);
    if (combine(&whole, 1, &own, -info.by, &fact)) {
        fact.constant -= info.by - 1;
        best = with_fact(q, e, &fact, depth, best);
    }
    return best;
}

/* Values of a sum differ by multiples of its factors' common divisor: a bound can be lowered to the next such value. */
static int64_t lowered(const struct ptx_sum *e, int64_t bound) {
    int64_t step = 0, above;
    for (int64_t i = 0; i < e->count; i++) {
        int64_t x = step, y = e->term[i].factor;
        while (y) {
            int64_t r = y == -1 ? 0 : x % y;
            x = y;
            y = r;
        }
        step = x;
    }
    if (step == INT64_MIN) return bound;
    step = step < 0 ? -step : step;
    if (step < 2 || bound == PTX_INF || __builtin_sub_overflow(bound, e->constant, &above)) return bound;
    return bound - (above % step + step) % step;
}

static int64_t improved(struct query *q, const struct ptx_sum *e, int depth, int64_t best);

static int64_t upper(struct query *q, const struct ptx_sum *e, int depth) {
    return lowered(e, improved(q, e, depth, box(q->s, e)));
}

static int64_t improved(struct query *q, const struct ptx_sum *e, int depth, int64_t best) {
    if (depth == 0 || !e->count || ++q->s->work > q->stop) return best;
    bool asked = depth == q->top;
    for (int32_t f = q->list; f >= 0; f = q->facts->fact[f].next) {
        if (asked && best <= q->enough) return best;
        struct ptx_sum fact = full(q->s, q->facts->fact[f].sum);
        best = with_fact(q, e, &fact, depth, best);
    }
    for (int64_t i = 0; i < e->count && !(asked && best <= q->enough); i++)
        best = with_making(q, e, e->term[i].symbol, depth, best);
    return best;
}

int64_t ptx_sum_upper(struct ptx_symbols_of *s, int32_t a, const struct ptx_facts *facts, int32_t list) {
    if (!a) return PTX_INF;
    struct query q = {s, facts, list, s->work + MAX_WORK, INT64_MIN, -1};
    struct ptx_sum e = full(s, a);
    return upper(&q, &e, s->depth);
}

bool ptx_sum_at_most(struct ptx_symbols_of *s, int32_t a, int64_t limit, const struct ptx_facts *facts, int32_t list) {
    if (!a) return false;
    struct ptx_sum e = full(s, a);
    for (int depth = 0; depth <= s->depth; depth++) {
        struct query q = {s, facts, list, s->work + MAX_WORK, limit, depth};
        if (upper(&q, &e, depth) <= limit) return true;
    }
    return false;
}

bool ptx_sum_at_least(struct ptx_symbols_of *s, int32_t a, int64_t limit, const struct ptx_facts *facts, int32_t list) {
    int32_t negative = limit == INT64_MIN ? 0 : ptx_sum_scale(s, a, -1);
    return negative && ptx_sum_at_most(s, negative, -limit, facts, list);
}

int64_t ptx_sum_lower(struct ptx_symbols_of *s, int32_t a, const struct ptx_facts *facts, int32_t list) {
    int32_t negative = ptx_sum_scale(s, a, -1);
    int64_t bound = negative ? ptx_sum_upper(s, negative, facts, list) : PTX_INF;
    return bound == PTX_INF || bound == INT64_MIN ? -PTX_INF : -bound;
}
