/* Is every byte of an extent touched? An access is base + c + Σ fᵢ·xᵢ for all xᵢ in their ranges for which the facts of
 * its place hold. Its values are an arithmetic progression without gaps if, taking the terms by rising factor, each
 * factor is at most the length so far ("mixed radix"); a fact that bounds just such a partial sum cuts the progression.
 * Anything else (values from memory, facts of other shapes) gives no answer, which is "not dense". */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_cover.h"

enum { MAX_PIECES = 256 };

int32_t access_place_of(struct cover *c, int32_t symbol) {
    for (int32_t n = 0; n < c->symbols; n++)
        if (c->symbol[n] == symbol) return n;
    if (c->symbols == MAX_ITEMS) return -1;
    c->symbol[c->symbols] = symbol;
    return c->symbols++;
}

static bool saturate(int64_t a, int64_t b, int64_t *out) { /* a·b, without end where it is too large */
    if (a == PTX_INF || b == PTX_INF || __builtin_mul_overflow(a, b, out)) *out = PTX_INF;
    return true;
}

static int by_factor(const void *x, const void *y) {
    const struct item *a = x, *b = y;
    int64_t p = a->factor < 0 ? -a->factor : a->factor, q = b->factor < 0 ? -b->factor : b->factor;
    return p < q ? -1 : p > q;
}

bool access_progress(const struct item *terms, int32_t count, struct progression *out) {
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
bool access_use_fact(struct cover *c, const struct ptx_sum *fact) {
    struct item parts[MAX_ITEMS], kept[MAX_ITEMS], whole = {0};
    int32_t part_count = 0, kept_count = 0;
    int64_t weight[MAX_ITEMS] = {0};
    uint32_t members = 0;
    for (int64_t n = 0; n < fact->count; n++) {
        int32_t p = access_place_of(c, fact->term[n].symbol);
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
    if (!part_count || !access_progress(parts, part_count, &g)) return false;
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
    int32_t p = access_place_of(c, symbol);
    for (int32_t n = 0; n < c->items; n++)
        if (p >= 0 && c->item[n].members >> p & 1) return c->item[n].factor = factor, true;
    if (p < 0 || c->items == MAX_ITEMS || !info->free || info->lo == -PTX_INF) return false;
    struct item it = {.factor = factor, .lo = info->lo, .members = 1u << p};
    it.count = info->hi == PTX_INF ? PTX_INF : info->hi - info->lo + 1;
    it.weight[p] = 1;
    c->item[c->items++] = it;
    return true;
}

bool access_find_splits(struct cover *c, const struct ptx_sum *e, struct split *splits, int32_t *count, bool others) {
    for (int64_t n = 0; n < e->count; n++) {
        const struct ptx_symbol_info *info = &c->a->s.symbol[e->term[n].symbol];
        if (!info->divided) continue;
        const struct ptx_sum *of = ptx_sum(&c->a->s, info->divided);
        const struct ptx_symbol_info *whole = of->count == 1 ? &c->a->s.symbol[of->term[0].symbol] : NULL;
        if (!whole || of->constant || of->term[0].factor != 1 || !whole->free || whole->lo || whole->hi == PTX_INF ||
            (whole->hi + 1) % info->by) {
            if (!others || !access_find_splits(c, of, splits, count, true)) return false;
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
bool access_split_sum(struct cover *c, const struct ptx_sum *e, const struct split *splits, int32_t count,
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
            int32_t p = access_place_of(c, part ? splits[k].quotient : splits[k].symbol);
            struct item it = {.members = p < 0 ? 0 : 1u << p};
            it.count = part ? (whole->hi + 1) / splits[k].by : splits[k].by;
            if (p >= 0) it.weight[p] = 1;
            if (p >= 0) c->item[c->items++] = it;
        }
    }
}

/* ---- one access ---- */
bool access_collect(struct analysis *a, int32_t list, struct ptx_sum *facts, int32_t *count) {
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
    if (!r->sum || !access_collect(a, r->when, facts, &fact_count)) return false;
    memcpy(&e, ptx_sum(&a->s, r->sum), 16 + (size_t)ptx_sum(&a->s, r->sum)->count * sizeof *e.term);
    if (!access_find_splits(&c, &e, splits, &split_count, false)) return false;
    for (int32_t n = 0; n < fact_count; n++)
        if (!access_find_splits(&c, &facts[n], splits, &split_count, false)) return false;
    if (!access_split_sum(&c, &e, splits, split_count, &split)) return false;
    e = split;
    add_splits(&c, splits, split_count);
    for (int64_t n = 0; n < e.count; n++)
        if (!add_symbol(&c, e.term[n].symbol, e.term[n].factor)) return false;
    for (int32_t n = 0; n < fact_count; n++) {
        if (!access_split_sum(&c, &facts[n], splits, split_count, &split)) return false;
        facts[n] = split;
        for (int64_t t = 0; t < split.count; t++) { /* symbols that only facts name are in the sum with factor 0 */
            int32_t p = access_place_of(&c, split.term[t].symbol);
            bool known = false;
            for (int32_t k = 0; k < c.items && p >= 0; k++) known |= c.item[k].members >> p & 1;
            if (!known && !add_symbol(&c, split.term[t].symbol, 0)) return false;
        }
    }
    qsort(facts, (size_t)fact_count, sizeof *facts, by_terms);
    for (int32_t n = 0; n < fact_count; n++)
        if (!access_use_fact(&c, &facts[n])) return false;
    struct item terms[MAX_ITEMS];
    int32_t count = 0;
    for (int32_t n = 0; n < c.items; n++)
        if (c.item[n].factor) terms[count++] = c.item[n];
    if (!access_progress(terms, count, out) || out->count == PTX_INF) return false;
    return !__builtin_add_overflow(out->lo, e.constant, &out->lo);
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
    return at >= hi || (count && access_tried_end(a, records, count, lo) >= hi);
}
