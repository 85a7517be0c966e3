/* Is every byte of an extent touched? An access is base + c + Σ fᵢ·xᵢ for all xᵢ in their ranges for which the facts of
 * its place hold. Its values are an arithmetic progression without gaps if, taking the terms by rising factor, each
 * factor is at most the length so far ("mixed radix"); a fact that bounds just such a partial sum cuts the progression.
 * Anything else (values from memory, facts of other shapes) gives no answer, which is "not dense". */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_model.h"

enum { MAX_ITEMS = 12, MAX_PIECES = 256 };

/* A variable of the sum: a symbol, or a sum of symbols that a fact bounds. Its values are 0, 1, … count - 1. */
struct item {
    int64_t factor;            /* in the access; 0: it is not in it */
    int64_t lo, count;         /* the least value; PTX_INF: without end */
    uint32_t members;          /* bits: symbols in it, by their place in `symbol` */
    int64_t weight[MAX_ITEMS]; /* of each member */
};
struct cover {
    struct analysis *a;
    int32_t symbol[MAX_ITEMS], symbols;
    struct item item[MAX_ITEMS];
    int32_t items;
};

static int32_t place_of(struct cover *c, int32_t symbol) {
    for (int32_t n = 0; n < c->symbols; n++)
        if (c->symbol[n] == symbol) return n;
    if (c->symbols == MAX_ITEMS) return -1;
    c->symbol[c->symbols] = symbol;
    return c->symbols++;
}

/* Σ over terms as one progression {lo, unit, count}, in rising order of |factor|. false: it has gaps. */
struct progression {
    int64_t lo, unit, count;
};

static bool saturate(int64_t a, int64_t b, int64_t *out) { /* a·b, without end where it is too large */
    if (a == PTX_INF || b == PTX_INF || __builtin_mul_overflow(a, b, out)) *out = PTX_INF;
    return true;
}

static int by_factor(const void *x, const void *y) {
    const struct item *a = x, *b = y;
    int64_t p = a->factor < 0 ? -a->factor : a->factor, q = b->factor < 0 ? -b->factor : b->factor;
    return p < q ? -1 : p > q;
}

static bool progress(const struct item *terms, int32_t count, struct progression *out) {
    struct item sorted[MAX_ITEMS];
    memcpy(sorted, terms, (size_t)count * sizeof *terms);
    qsort(sorted, (size_t)count, sizeof *sorted, by_factor);
    *out = (struct progression){0, 0, 1};
    for (int32_t n = 0; n < count; n++) {
        int64_t f = sorted[n].factor, size = f < 0 ? -f : f, part;
        if (__builtin_mul_overflow(f, sorted[n].lo, &part) || __builtin_add_overflow(out->lo, part, &out->lo))
            return false;
        if (sorted[n].count == 1) continue;
        if (f < 0) { /* from its greatest value downwards */
            if (sorted[n].count == PTX_INF || __builtin_mul_overflow(f, sorted[n].count - 1, &part) ||
                __builtin_add_overflow(out->lo, part, &out->lo))
                return false;
        }
        if (!out->unit) out->unit = size;
        if (size % out->unit || size / out->unit > out->count) return false;
        saturate(size / out->unit, sorted[n].count == PTX_INF ? PTX_INF : sorted[n].count - 1, &part);
        if (part == PTX_INF || __builtin_add_overflow(out->count, part, &out->count)) out->count = PTX_INF;
    }
    if (!out->unit) out->unit = 1;
    return true;
}

/* ---- facts ---- */
/* Items whose members are all of the fact's symbols, in the fact's proportions, become one that the fact bounds. */
static bool use_fact(struct cover *c, const struct ptx_sum *fact) {
    struct item parts[MAX_ITEMS], kept[MAX_ITEMS], whole = {0};
    int32_t part_count = 0, kept_count = 0;
    int64_t weight[MAX_ITEMS] = {0};
    uint32_t members = 0;
    for (int64_t n = 0; n < fact->count; n++) {
        int32_t p = place_of(c, fact->term[n].symbol);
        if (p < 0) return false;
        weight[p] = fact->term[n].factor;
        members |= 1u << p;
    }
    for (int32_t n = 0; n < c->items; n++) {
        struct item *it = &c->item[n];
        if (!(it->members & members)) {
            kept[kept_count++] = *it;
            continue;
        }
        if (it->members & ~members) return false; /* only some of its symbols */
        int64_t ratio = 0;
        for (int32_t p = 0; p < c->symbols; p++) {
            if (!(it->members >> p & 1)) continue;
            if (weight[p] % it->weight[p] || (ratio && weight[p] / it->weight[p] != ratio)) return false;
            ratio = weight[p] / it->weight[p];
        }
        parts[part_count] = *it;
        parts[part_count++].factor = ratio;
    }
    /* In the access the parts must stand in the fact's proportions: factor = m · ratio, m the same for all. */
    int64_t m = 0;
    for (int32_t n = 0, k = 0; n < c->items; n++) {
        if (!(c->item[n].members & members)) continue;
        int64_t ratio = parts[k++].factor;
        if (c->item[n].factor % ratio || (k > 1 && c->item[n].factor / ratio != m)) return false;
        m = c->item[n].factor / ratio;
    }
    struct progression g;
    if (!part_count || !progress(parts, part_count, &g)) return false;
    int64_t limit = -fact->constant; /* g ≤ limit */
    if (limit < g.lo) return false;
    int64_t most = (limit - g.lo) / g.unit + 1;
    if (g.count < most) most = g.count;
    whole.lo = 0;
    whole.count = most;
    whole.members = members;
    whole.factor = m;
    /* In units: value = lo + unit · x. The constant part goes into an item of its own, which does not vary. */
    if (__builtin_mul_overflow(m, g.unit, &whole.factor)) return false;
    memcpy(whole.weight, weight, sizeof weight);
    if (g.unit != 1)
        for (int32_t p = 0; p < c->symbols; p++) {
            if (whole.weight[p] % g.unit) return false;
            whole.weight[p] /= g.unit;
        }
    if (g.lo % g.unit) return false;
    whole.lo = g.lo / g.unit;
    kept[kept_count++] = whole;
    memcpy(c->item, kept, (size_t)kept_count * sizeof *kept);
    c->items = kept_count;
    return true;
}

static bool add_symbol(struct cover *c, int32_t symbol, int64_t factor) {
    const struct ptx_symbol_info *info = &c->a->s.symbol[symbol];
    int32_t p = place_of(c, symbol);
    for (int32_t n = 0; n < c->items; n++)
        if (p >= 0 && c->item[n].members >> p & 1) return c->item[n].factor = factor, true;
    if (p < 0 || c->items == MAX_ITEMS || !info->free || info->lo == -PTX_INF) return false;
    struct item it = {.factor = factor, .lo = info->lo, .members = 1u << p};
    it.count = info->hi == PTX_INF ? PTX_INF : info->hi - info->lo + 1;
    it.weight[p] = 1;
    c->item[c->items++] = it;
    return true;
}

/* tid / 32 and tid % 32, where 32 divides the number of threads, are independent: tid's range becomes that of the rest,
 * and the quotient is a symbol of its own. The sum in those; false: a quotient of another kind. */
struct split {
    int32_t symbol, quotient;
    int64_t by;
};

static bool find_splits(struct cover *c, const struct ptx_sum *e, struct split *splits, int32_t *count, bool others) {
    for (int64_t n = 0; n < e->count; n++) {
        const struct ptx_symbol_info *info = &c->a->s.symbol[e->term[n].symbol];
        if (!info->divided) continue;
        const struct ptx_sum *of = ptx_sum(&c->a->s, info->divided);
        const struct ptx_symbol_info *whole = of->count == 1 ? &c->a->s.symbol[of->term[0].symbol] : NULL;
        if (!whole || of->constant || of->term[0].factor != 1 || !whole->free || whole->lo || whole->hi == PTX_INF ||
            (whole->hi + 1) % info->by) {
            if (!others || !find_splits(c, of, splits, count, true)) return false;
            continue;
        }
        for (int32_t k = 0; k < *count; k++)
            if (splits[k].symbol == of->term[0].symbol && splits[k].quotient != e->term[n].symbol) return false;
        bool known = false;
        for (int32_t k = 0; k < *count; k++) known |= splits[k].quotient == e->term[n].symbol;
        if (!known && *count == 4) return false;
        if (!known) splits[(*count)++] = (struct split){of->term[0].symbol, e->term[n].symbol, info->by};
    }
    return true;
}

/* e with symbol = by · quotient + rest; the rest keeps the symbol's number. */
static bool split_sum(struct cover *c, const struct ptx_sum *e, const struct split *splits, int32_t count,
                      struct ptx_sum *out) {
    int32_t number = ptx_sum_intern(&c->a->s, e);
    for (int32_t k = 0; k < count && number; k++) {
        int64_t f = ptx_sum_factor(&c->a->s, number, splits[k].symbol), more;
        if (!f) continue;
        if (__builtin_mul_overflow(f, splits[k].by, &more)) return false;
        number = ptx_sum_add(&c->a->s, number, ptx_sum_symbol(&c->a->s, splits[k].quotient), more);
    }
    if (!number) return false;
    memset(out, 0, sizeof *out);
    memcpy(out, ptx_sum(&c->a->s, number), 16 + (size_t)ptx_sum(&c->a->s, number)->count * sizeof *out->term);
    return true;
}

static void add_splits(struct cover *c, const struct split *splits, int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        const struct ptx_symbol_info *whole = &c->a->s.symbol[splits[k].symbol];
        for (int part = 0; part < 2 && c->items < MAX_ITEMS; part++) {
            int32_t p = place_of(c, part ? splits[k].quotient : splits[k].symbol);
            struct item it = {.members = p < 0 ? 0 : 1u << p};
            it.count = part ? (whole->hi + 1) / splits[k].by : splits[k].by;
            if (p >= 0) it.weight[p] = 1;
            if (p >= 0) c->item[c->items++] = it;
        }
    }
}

/* ---- one access ---- */
static bool collect(struct analysis *a, int32_t list, struct ptx_sum *facts, int32_t *count) {
    for (int32_t f = list; f >= 0; f = a->facts.fact[f].next) {
        int32_t sum = a->facts.fact[f].sum;
        if (ptx_sum_at_most(&a->s, sum, 0, NULL, -1)) continue; /* always so */
        if (*count == 16) return false;
        memset(&facts[*count], 0, sizeof *facts);
        memcpy(&facts[*count], ptx_sum(&a->s, sum), 16 + (size_t)ptx_sum(&a->s, sum)->count * sizeof(struct ptx_term));
        ++*count;
    }
    return true;
}

static int by_terms(const void *x, const void *y) {
    const struct ptx_sum *a = x, *b = y;
    return (a->count > b->count) - (a->count < b->count);
}

/* Offsets at which the access touches its bytes. */
static bool values_of(struct analysis *a, const struct record *r, struct progression *out) {
    struct cover c = {.a = a};
    struct ptx_sum facts[16], e = {0}, split;
    struct split splits[4];
    int32_t fact_count = 0, split_count = 0;
    if (!r->sum || !collect(a, r->when, facts, &fact_count)) return false;
    memcpy(&e, ptx_sum(&a->s, r->sum), 16 + (size_t)ptx_sum(&a->s, r->sum)->count * sizeof *e.term);
    if (!find_splits(&c, &e, splits, &split_count, false)) return false;
    for (int32_t n = 0; n < fact_count; n++)
        if (!find_splits(&c, &facts[n], splits, &split_count, false)) return false;
    if (!split_sum(&c, &e, splits, split_count, &split)) return false;
    e = split;
    add_splits(&c, splits, split_count);
    for (int64_t n = 0; n < e.count; n++)
        if (!add_symbol(&c, e.term[n].symbol, e.term[n].factor)) return false;
    for (int32_t n = 0; n < fact_count; n++) {
        if (!split_sum(&c, &facts[n], splits, split_count, &split)) return false;
        facts[n] = split;
        for (int64_t t = 0; t < split.count; t++) { /* symbols that only facts name are in the sum with factor 0 */
            int32_t p = place_of(&c, split.term[t].symbol);
            bool known = false;
            for (int32_t k = 0; k < c.items && p >= 0; k++) known |= c.item[k].members >> p & 1;
            if (!known && !add_symbol(&c, split.term[t].symbol, 0)) return false;
        }
    }
    qsort(facts, (size_t)fact_count, sizeof *facts, by_terms);
    for (int32_t n = 0; n < fact_count; n++)
        if (!use_fact(&c, &facts[n])) return false;
    struct item terms[MAX_ITEMS];
    int32_t count = 0;
    for (int32_t n = 0; n < c.items; n++)
        if (c.item[n].factor) terms[count++] = c.item[n];
    if (!progress(terms, count, out) || out->count == PTX_INF) return false;
    return !__builtin_add_overflow(out->lo, e.constant, &out->lo);
}

/* ---- by trying ----
 * Loops that a compiler has unrolled have counts that are quotients of the thread's number. Where those are few, all
 * threads are tried: `inner` symbols are those that counters and quotients depend on, the rest (`outer`: rows, blocks)
 * repeats what the inner ones touch. */
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
            if (!split_sum(&t->c, &of, t->splits, t->split_count, &split) || !note_symbols(t, &split, true))
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
    if (!split_sum(&t->c, &of, t->splits, t->split_count, &split) || !evaluate(t, &split, -1, &v)) return false;
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
    if (!r->sum || !collect(a, r->when, s->fact, &s->facts)) return false;
    memcpy(&s->sum, ptx_sum(&a->s, r->sum), 16 + (size_t)ptx_sum(&a->s, r->sum)->count * sizeof *s->sum.term);
    if (!find_splits(&t->c, &s->sum, t->splits, &t->split_count, true)) return false;
    for (int32_t n = 0; n < s->facts; n++)
        if (!find_splits(&t->c, &s->fact[n], t->splits, &t->split_count, true)) return false;
    return true;
}

static bool split_sample(struct trial *t, struct sample *s) {
    struct ptx_sum out;
    if (!split_sum(&t->c, &s->sum, t->splits, t->split_count, &out)) return false;
    s->sum = out;
    for (int32_t n = 0; n < s->facts; n++) {
        if (!split_sum(&t->c, &s->fact[n], t->splits, t->split_count, &out)) return false;
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
        int32_t p = place_of(&c, t->symbol[n]);
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
            if (!known || (k == 0 && !use_fact(&c, &s[0].fact[f]))) return false;
            own++;
        }
        if (k && own != outer) return false;
        outer = own;
    }
    int32_t n = 0;
    for (int32_t k = 0; k < c.items; k++)
        if (c.item[k].factor) terms[n++] = c.item[k];
    return progress(terms, n, out) && out->count != PTX_INF;
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
static int64_t tried_end(struct analysis *a, const struct record *const *records, int32_t count, int64_t lo) {
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

/* ---- together ---- */
struct piece {
    int64_t lo, unit, count, width;
};

static int by_place(const void *x, const void *y) {
    const struct piece *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Fields of records that lie side by side: progressions of one unit whose widths add up. */
static void join_fields(struct piece *p, int32_t count) {
    for (int32_t n = 0; n < count; n++)
        for (int32_t k = n + 1; k < count && p[k].lo <= p[n].lo + p[n].width && p[n].width < p[n].unit; k++)
            if (p[k].unit == p[n].unit && p[k].count == p[n].count && p[k].lo + p[k].width > p[n].lo + p[n].width)
                p[n].width = p[k].lo + p[k].width - p[n].lo;
}

bool access_dense(struct analysis *a, const struct record *const *records, int32_t count, int64_t lo, int64_t hi) {
    struct piece piece[MAX_PIECES];
    int32_t pieces = 0;
    for (int32_t n = 0; n < count && pieces < MAX_PIECES; n++) {
        struct progression g;
        if (values_of(a, records[n], &g)) piece[pieces++] = (struct piece){g.lo, g.unit, g.count, records[n]->bytes};
    }
    qsort(piece, (size_t)pieces, sizeof *piece, by_place);
    join_fields(piece, pieces);
    int64_t at = lo;
    for (int32_t n = 0; n < pieces; n++) {
        if (piece[n].lo > at || (piece[n].count > 1 && piece[n].width < piece[n].unit)) continue;
        int64_t last;
        if (__builtin_mul_overflow(piece[n].unit, piece[n].count - 1, &last)) return false;
        if (piece[n].lo + last + piece[n].width > at) at = piece[n].lo + last + piece[n].width;
    }
    return at >= hi || (count && tried_end(a, records, count, lo) >= hi);
}
