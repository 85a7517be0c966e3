/* Density by trying. Loops that a compiler has unrolled have counts that are quotients of the thread's number. Where
 * those are few, all threads are tried: `inner` symbols are those that counters and quotients depend on, the rest
 * (`outer`: rows, blocks) repeats what the inner ones touch. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_cover.h"

enum { MAX_TRIED = 4096, MAX_BYTES = 1 << 20, MAX_TRIALS = 1 << 18, MAX_SYMBOLS = 24 };

struct trial {
    struct cover c;
    struct split splits[4];
    int32_t split_count;
    int32_t symbol[MAX_SYMBOLS], symbols; /* all that occur */
    bool inner[MAX_SYMBOLS];
    int64_t value[MAX_SYMBOLS];
    int64_t lo[MAX_SYMBOLS], hi[MAX_SYMBOLS]; /* of the free ones, after splitting */
    unsigned char *touched;
    int64_t origin, most; /* byte of touched[0]; end of what was touched */
    int64_t trials;
};
struct sample { /* one record */
    struct ptx_sum sum, fact[16];
    int32_t facts;
    uint32_t bytes;
};

static int32_t index_of(struct trial *t, int32_t symbol) {
    for (int32_t n = 0; n < t->symbols; n++)
        if (t->symbol[n] == symbol) return n;
    if (t->symbols == MAX_SYMBOLS) return -1;
    t->symbol[t->symbols] = symbol;
    return t->symbols++;
}

static const struct ptx_symbol_info *info_of(const struct trial *t, int32_t n) {
    return &t->c.a->s.symbol[t->symbol[n]];
}

static bool is_split(const struct trial *t, int32_t symbol) {
    for (int32_t k = 0; k < t->split_count; k++)
        if (t->splits[k].quotient == symbol) return true;
    return false;
}

/* Not free and no split: a quotient of other symbols. */
static bool is_quotient(const struct trial *t, int32_t n) {
    return info_of(t, n)->divided && !is_split(t, t->symbol[n]);
}

static bool note_symbols(struct trial *t, const struct ptx_sum *e, bool inner) {
    for (int64_t n = 0; n < e->count; n++) {
        int32_t k = index_of(t, e->term[n].symbol);
        if (k < 0) return false;
        t->inner[k] |= inner;
        if (is_quotient(t, k)) {
            struct ptx_sum of, split;
            memset(&of, 0, sizeof of);
            const struct ptx_sum *divided = ptx_sum(&t->c.a->s, info_of(t, k)->divided);
            memcpy(&of, divided, 16 + (size_t)divided->count * sizeof *of.term);
            t->inner[k] = true;
            if (!access_split_sum(&t->c, &of, t->splits, t->split_count, &split) || !note_symbols(t, &split, true))
                return false;
        } else if (!info_of(t, k)->free && !is_split(t, t->symbol[k])) {
            return false; /* a value from memory */
        } else if (info_of(t, k)->hi == PTX_INF) {
            t->inner[k] = true;
        }
    }
    return true;
}

static bool has_inner(struct trial *t, const struct ptx_sum *e) {
    for (int64_t n = 0; n < e->count; n++)
        if (t->inner[index_of(t, e->term[n].symbol)]) return true;
    return false;
}

/* Symbols that a fact ties to inner ones are inner too. */
static void spread(struct trial *t, const struct sample *s, int32_t count) {
    for (bool more = true; more;) {
        more = false;
        for (int32_t n = 0; n < count; n++)
            for (int32_t f = 0; f < s[n].facts; f++) {
                if (!has_inner(t, &s[n].fact[f])) continue;
                for (int64_t k = 0; k < s[n].fact[f].count; k++) {
                    bool *inner = &t->inner[index_of(t, s[n].fact[f].term[k].symbol)];
                    more |= !*inner;
                    *inner = true;
                }
            }
    }
}

static bool evaluate(struct trial *t, const struct ptx_sum *e, int32_t but, int64_t *out);

static bool quotient_value(struct trial *t, int32_t n) {
    const struct ptx_symbol_info *info = info_of(t, n);
    struct ptx_sum of, split;
    int64_t v;
    memset(&of, 0, sizeof of);
    memcpy(&of, ptx_sum(&t->c.a->s, info->divided),
           16 + (size_t)ptx_sum(&t->c.a->s, info->divided)->count * sizeof *of.term);
    if (!access_split_sum(&t->c, &of, t->splits, t->split_count, &split) || !evaluate(t, &split, -1, &v)) return false;
    t->value[n] = v / info->by - (v % info->by < 0);
    return true;
}

/* The sum's value over the inner symbols, without symbol `but`. */
static bool evaluate(struct trial *t, const struct ptx_sum *e, int32_t but, int64_t *out) {
    *out = e->constant;
    for (int64_t n = 0; n < e->count; n++) {
        int32_t k = index_of(t, e->term[n].symbol);
        int64_t part;
        if (k < 0) return false;
        if (k == but || !t->inner[k]) continue;
        if (is_quotient(t, k) && !quotient_value(t, k)) return false;
        if (__builtin_mul_overflow(e->term[n].factor, t->value[k], &part) || __builtin_add_overflow(*out, part, out))
            return false;
    }
    return true;
}

static int64_t factor_in(const struct ptx_sum *e, int32_t symbol) {
    for (int64_t n = 0; n < e->count; n++)
        if (e->term[n].symbol == symbol) return e->term[n].factor;
    return 0;
}

static bool touch_bytes(struct trial *t, int64_t at, uint32_t bytes) {
    at -= t->origin;
    if (at < 0 || at + (int64_t)bytes > MAX_BYTES || ++t->trials > MAX_TRIALS) return false;
    memset(t->touched + at, 1, bytes);
    if (at + (int64_t)bytes > t->most) t->most = at + (int64_t)bytes;
    return true;
}

/* What one record touches for the present values of the free symbols: its counter, if it has one, goes from its least
 * to its greatest value under the facts. */
static bool try_record(struct trial *t, const struct sample *s) {
    int32_t counter = -1;
    int64_t lo = 0, hi = 0, base, rest, f;
    for (int32_t n = 0; n < t->symbols; n++) {
        bool here = info_of(t, n)->free && info_of(t, n)->hi == PTX_INF && factor_in(&s->sum, t->symbol[n]);
        for (int32_t k = 0; k < s->facts; k++)
            here |= info_of(t, n)->free && info_of(t, n)->hi == PTX_INF && factor_in(&s->fact[k], t->symbol[n]);
        if (!here) continue;
        if (counter >= 0) return false;
        counter = n;
        hi = PTX_INF;
    }
    for (int32_t k = 0; k < s->facts; k++) {
        if (!has_inner(t, &s->fact[k])) continue;
        if (!evaluate(t, &s->fact[k], counter, &rest)) return false;
        f = counter >= 0 ? factor_in(&s->fact[k], t->symbol[counter]) : 0;
        if (!f && rest > 0) return true; /* this thread does not come here */
        if (rest == INT64_MIN) return false;
        if (f > 0) {
            int64_t most = -rest / f - (-rest % f < 0);
            if (most < hi) hi = most;
        } else if (f < 0) {
            int64_t least = rest / -f + (rest % -f > 0);
            if (least > lo) lo = least;
        }
    }
    if (hi == PTX_INF || !evaluate(t, &s->sum, counter, &base)) return false;
    f = counter >= 0 ? factor_in(&s->sum, t->symbol[counter]) : 0;
    if (counter >= 0 && !f && lo <= hi) hi = lo;
    for (int64_t k = lo; k <= hi; k++) {
        int64_t step;
        if (__builtin_mul_overflow(f, k, &step) || __builtin_add_overflow(base, step, &step) ||
            !touch_bytes(t, step, s->bytes))
            return false;
    }
    return true;
}

static bool try_all(struct trial *t, const struct sample *s, int32_t count) {
    int64_t threads = 1;
    int32_t own[MAX_SYMBOLS], owns = 0;
    for (int32_t n = 0; n < t->symbols; n++) {
        if (!t->inner[n] || is_quotient(t, n) || info_of(t, n)->hi == PTX_INF) continue;
        own[owns++] = n;
        if (t->hi[n] < t->lo[n] || t->hi[n] - t->lo[n] >= MAX_TRIED) return false;
        threads *= t->hi[n] - t->lo[n] + 1;
        if (threads > MAX_TRIED) return false;
    }
    for (int64_t i = 0; i < threads; i++) {
        int64_t left = i;
        for (int32_t n = 0; n < owns; n++) {
            int64_t size = t->hi[own[n]] - t->lo[own[n]] + 1;
            t->value[own[n]] = t->lo[own[n]] + left % size;
            left /= size;
        }
        for (int32_t n = 0; n < count; n++)
            if (!try_record(t, &s[n])) return false;
    }
    return true;
}

static bool read_sample(struct trial *t, const struct record *r, struct sample *s) {
    struct analysis *a = t->c.a;
    memset(s, 0, sizeof *s);
    s->bytes = r->bytes;
    if (!r->sum || !access_collect(a, r->when, s->fact, &s->facts)) return false;
    memcpy(&s->sum, ptx_sum(&a->s, r->sum), 16 + (size_t)ptx_sum(&a->s, r->sum)->count * sizeof *s->sum.term);
    if (!access_find_splits(&t->c, &s->sum, t->splits, &t->split_count, true)) return false;
    for (int32_t n = 0; n < s->facts; n++)
        if (!access_find_splits(&t->c, &s->fact[n], t->splits, &t->split_count, true)) return false;
    return true;
}

static bool split_sample(struct trial *t, struct sample *s) {
    struct ptx_sum out;
    if (!access_split_sum(&t->c, &s->sum, t->splits, t->split_count, &out)) return false;
    s->sum = out;
    for (int32_t n = 0; n < s->facts; n++) {
        if (!access_split_sum(&t->c, &s->fact[n], t->splits, t->split_count, &out)) return false;
        s->fact[n] = out;
    }
    bool ok = note_symbols(t, &s->sum, false);
    for (int32_t n = 0; n < s->facts && ok; n++) ok = note_symbols(t, &s->fact[n], false);
    return ok;
}

static void find_ranges(struct trial *t) {
    for (int32_t n = 0; n < t->symbols; n++) {
        t->lo[n] = info_of(t, n)->lo;
        t->hi[n] = info_of(t, n)->hi;
        for (int32_t k = 0; k < t->split_count; k++) {
            const struct ptx_symbol_info *whole = &t->c.a->s.symbol[t->splits[k].symbol];
            if (t->splits[k].symbol == t->symbol[n]) t->hi[n] = t->splits[k].by - 1;
            if (t->splits[k].quotient == t->symbol[n]) t->lo[n] = 0, t->hi[n] = (whole->hi + 1) / t->splits[k].by - 1;
        }
    }
}

/* The outer part: terms and facts without inner symbols, which must be the same in all samples. */
static bool outer_values(struct trial *t, const struct sample *s, int32_t count, struct progression *out) {
    struct cover c = {.a = t->c.a};
    struct item terms[MAX_ITEMS];
    for (int32_t n = 0; n < t->symbols; n++) {
        if (t->inner[n]) continue;
        int64_t factor = factor_in(&s[0].sum, t->symbol[n]);
        for (int32_t k = 1; k < count; k++)
            if (factor_in(&s[k].sum, t->symbol[n]) != factor) return false;
        int32_t p = access_place_of(&c, t->symbol[n]);
        if (p < 0 || t->lo[n] == -PTX_INF || t->hi[n] == PTX_INF) return false;
        struct item it = {.factor = factor, .lo = t->lo[n], .count = t->hi[n] - t->lo[n] + 1, .members = 1u << p};
        it.weight[p] = 1;
        c.item[c.items++] = it;
    }
    int32_t outer = 0;
    for (int32_t k = 0; k < count; k++) {
        int32_t own = 0;
        for (int32_t f = 0; f < s[k].facts; f++) {
            if (has_inner(t, &s[k].fact[f])) continue;
            bool known = k == 0;
            for (int32_t g = 0; g < s[0].facts && !known; g++)
                known = !memcmp(&s[0].fact[g], &s[k].fact[f], sizeof s[k].fact[f]);
            if (!known || (k == 0 && !access_use_fact(&c, &s[0].fact[f]))) return false;
            own++;
        }
        if (k && own != outer) return false;
        outer = own;
    }
    int32_t n = 0;
    for (int32_t k = 0; k < c.items; k++)
        if (c.item[k].factor) terms[n++] = c.item[k];
    return access_progress(terms, n, out) && out->count != PTX_INF;
}

/* [*lo, *hi) and how it repeats, if trying the records of `s` fills it without a gap. */
static bool by_trying(struct trial *t, struct sample *s, int32_t count, int64_t *lo, int64_t *width,
                      struct progression *repeat) {
    for (int32_t n = 0; n < count; n++)
        if (!split_sample(t, &s[n])) return false;
    spread(t, s, count);
    find_ranges(t);
    if (!outer_values(t, s, count, repeat)) return false;
    t->origin = *lo - repeat->lo;
    t->touched = calloc(MAX_BYTES, 1);
    bool ok = t->touched && try_all(t, s, count) && t->most > 0 && !memchr(t->touched, 0, (size_t)t->most);
    free(t->touched);
    *width = t->most;
    return ok;
}

/* One region of the extent that begins at lo; its end, or lo. */
int64_t access_tried_end(struct analysis *a, const struct record *const *records, int32_t count, int64_t lo) {
    enum { MAX_SAMPLES = 24 };
    struct trial *t = calloc(1, sizeof *t);
    struct sample *s = calloc(MAX_SAMPLES, sizeof *s);
    int64_t end = lo, width = 0, last;
    struct progression repeat;
    int32_t samples = 0;
    if (t && s) {
        t->c.a = a;
        for (int32_t n = 0; n < count && samples < MAX_SAMPLES; n++)
            if (read_sample(t, records[n], &s[samples])) samples++;
        int64_t from = lo;
        if (samples && by_trying(t, s, samples, &from, &width, &repeat) &&
            (repeat.count == 1 || width >= repeat.unit) &&
            !__builtin_mul_overflow(repeat.unit, repeat.count - 1, &last))
            end = lo + last + width;
    }
    free(t);
    free(s);
    return end;
}
