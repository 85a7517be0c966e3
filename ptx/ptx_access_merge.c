/* Values where control paths meet, and from one iteration of a loop to the next. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_flow.h"

/* ---- merging ---- */
static struct value get(const struct analysis *a, int32_t v) {
    return access_get(a, v);
}

static int64_t width_limit(const struct analysis *a, int32_t var) {
    const struct frame *f = a->frames[a->frame];
    unsigned bits = 64;
    if (var >= CELL) {
        bits = 8u * (unsigned)a->cells[var - CELL].bytes;
    } else {
        for (int32_t r = 0; r < f->f->reg_count; r++)
            if (f->multi[r] == var) bits = ptx_type_bits((enum ptx_type)f->f->regs[r].type);
    }
    return bits >= 64 || bits < 8 ? PTX_INF : (int64_t)1 << (bits - 1);
}

/* A sum without the counters of loops that are over, where their last value is known: k = x from k - x ≤ 0 and
 * x - k ≤ 0. */
static int32_t without_counters(struct analysis *a, int32_t block, int32_t sum, int32_t facts) {
    const struct frame *f = a->frames[a->frame];
    for (int32_t n = facts; n >= 0 && sum; n = a->facts.fact[n].next) {
        struct ptx_sum e = {0};
        memcpy(&e, ptx_sum(&a->s, sum),
               sizeof e.constant + sizeof e.count + (size_t)ptx_sum(&a->s, sum)->count * sizeof *e.term);
        for (int64_t t = 0; t < e.count; t++) {
            const struct ptx_symbol_info *info = &a->s.symbol[e.term[t].symbol];
            if (!info->free || info->frame != a->frame || in_body(&f->block[info->block], block)) continue;
            int32_t fact = a->facts.fact[n].sum, opposite = ptx_sum_scale(&a->s, fact, -1);
            int64_t factor = ptx_sum_factor(&a->s, fact, e.term[t].symbol);
            if (factor != 1 && factor != -1) continue;
            bool equal = false;
            for (int32_t m = facts; m >= 0; m = a->facts.fact[m].next) equal |= a->facts.fact[m].sum == opposite;
            if (!equal) continue;
            sum = ptx_sum_add(&a->s, sum, fact, -e.term[t].factor * factor);
            break;
        }
    }
    return sum;
}

static bool equal_under(struct analysis *a, int32_t x, int32_t y, int32_t facts) {
    int32_t d = ptx_sum_add(&a->s, x, y, -1);
    return d && ptx_sum_at_most(&a->s, d, 0, &a->facts, facts) && ptx_sum_at_least(&a->s, d, 0, &a->facts, facts);
}

/* Values that look different may be one: what a loop leaves, and what there is where it is left out. */
static int32_t one_value(struct analysis *a, const struct merge *m, int32_t var) {
    struct value first = get(a, variable_of(m->in[0].state, var));
    for (int32_t n = 0; n < m->forward && n < 4; n++) {
        struct value x = get(a, variable_of(m->in[n].state, var));
        int32_t sum =
            x.sum && x.base.kind != BASE_SET && !x.cond ? without_counters(a, m->block, x.sum, m->in[n].facts) : 0;
        bool all = sum != 0;
        for (int32_t k = 0; k < m->forward && all; k++) {
            struct value y = get(a, variable_of(m->in[k].state, var));
            all = y.sum && !y.cond && !memcmp(&y.base, &first.base, sizeof y.base) &&
                  equal_under(a, y.sum, sum, m->in[k].facts);
        }
        if (all) return access_value(a, first.base, sum);
    }
    return 0;
}

static int32_t merge_forward(struct analysis *a, const struct merge *m, int32_t var) {
    int32_t joined = 0;
    bool differ = false, known = true;
    for (int32_t n = 0; n < m->forward; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        if (!v) continue;
        if (joined && v != joined) differ = true;
        if (!joined) joined = v;
    }
    if (!differ) return joined;
    int32_t one = a->launch ? one_value(a, m, var) : 0;
    if (one) return one;
    int64_t lo = PTX_INF, hi = -PTX_INF;
    for (int32_t n = 0; n < m->forward; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        struct value x = get(a, v);
        if (!v) continue;
        known &= x.sum && x.base.kind != BASE_SET && !x.cond;
        if (!known) break;
        int64_t l = ptx_sum_lower(&a->s, x.sum, &a->facts, m->in[n].facts),
                h = ptx_sum_upper(&a->s, x.sum, &a->facts, m->in[n].facts);
        lo = l < lo ? l : lo;
        hi = h > hi ? h : hi;
    }
    int32_t symbol = known ? access_symbol(a, 'M', a->frame, m->block, var, lo, hi) : 0;
    for (int32_t n = 0; n < m->forward; n++) joined = access_join(a, joined, variable_of(m->in[n].state, var), symbol);
    return joined;
}

static struct phi *phi_of(struct analysis *a, int32_t block, int32_t var) {
    int32_t n = access_memo(a, 'H', a->frame, block, var);
    if (n >= a->phi_room) {
        int32_t room = n * 2 + 64;
        struct phi *grown = realloc(a->phi, (size_t)room * sizeof *grown);
        if (!grown) {
            a->s.no_memory = true;
            return NULL;
        }
        memset(grown + a->phi_room, 0, (size_t)(room - a->phi_room) * sizeof *grown);
        a->phi = grown;
        a->phi_room = room;
    }
    return &a->phi[n];
}

static void set_phi(struct analysis *a, struct phi *phi, enum phi_state state) {
    phi->state = state;
    phi->since = a->pass;
    a->changed = true;
}

/* base + symbol of its own, for a value that is not followed further. */
static int32_t own_symbol(struct analysis *a, const struct merge *m, int32_t var) {
    int64_t limit = width_limit(a, var);
    return access_symbol(a, 'O', a->frame, m->block, var, limit == PTX_INF ? -PTX_INF : -limit,
                         limit == PTX_INF ? PTX_INF : limit - 1);
}

static int32_t opaque(struct analysis *a, const struct merge *m, int32_t var, struct phi *phi, int32_t init) {
    int32_t symbol = own_symbol(a, m, var), joined = phi->joined;
    for (int32_t n = m->forward - 1; n < m->count; n++) {
        int32_t v = n < m->forward ? init : variable_of(m->in[n].state, var);
        struct value x = get(a, v);
        if (!v) continue;
        if (!x.cond && x.base.kind != BASE_SET && x.base.kind != BASE_UNKNOWN) v = access_value(a, x.base, symbol);
        if (x.cond) v = access_condition(a, access_cond(a, COND_ANY, 0, 0));
        joined = access_join(a, joined, v, symbol);
    }
    if (joined != phi->joined) a->changed = true;
    return phi->joined = joined;
}

static bool may_step(const struct analysis *a, int32_t v) {
    struct value x = get(a, v);
    return v && x.sum && !x.cond && x.base.kind != BASE_SET && x.base.kind != BASE_UNKNOWN;
}

/* Do all edges back bring `value`? Those that bring nothing do not count. */
static bool all_back(const struct merge *m, int32_t var, int32_t value) {
    for (int32_t n = m->forward; n < m->count; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        if (v && v != value) return false;
    }
    return true;
}

/* The constant that all edges back add to `value`; false: there is none. */
static bool common_step(struct analysis *a, const struct merge *m, int32_t var, int32_t value, int64_t *step) {
    struct value x = get(a, value);
    bool any = false;
    for (int32_t n = m->forward; n < m->count; n++) {
        int32_t v = variable_of(m->in[n].state, var);
        struct value y = get(a, v);
        int64_t d;
        if (!v) continue;
        if (!may_step(a, v) || memcmp(&x.base, &y.base, sizeof x.base) ||
            !ptx_sum_is_constant(&a->s, ptx_sum_add(&a->s, y.sum, x.sum, -1), &d) || (any && d != *step))
            return false;
        *step = d;
        any = true;
    }
    return any && *step;
}

static int32_t merge_loop(struct analysis *a, const struct merge *m, int32_t var, int32_t init) {
    struct phi *phi = phi_of(a, m->block, var);
    int32_t counter;
    if (!phi || m->count == m->forward) return init;
    struct value x = get(a, init);
    if (phi->state == PHI_SAME) {
        if (all_back(m, var, init)) return init;
        set_phi(a, phi, may_step(a, init) && phi->tries < 4 ? PHI_PROBE : PHI_OPAQUE);
    }
    if (phi->state != PHI_OPAQUE && !may_step(a, init)) set_phi(a, phi, PHI_OPAQUE);
    if (phi->state == PHI_PROBE) {
        int32_t probe = access_value(a, x.base, own_symbol(a, m, var));
        int64_t step = 0;
        if (phi->since == a->pass) return probe;
        if (common_step(a, m, var, probe, &step)) {
            phi->step = step;
            set_phi(a, phi, PHI_STEP);
        } else if (all_back(m, var, probe)) {
            phi->tries++;
            set_phi(a, phi, PHI_SAME);
            return init;
        } else if (++phi->tries > 3) {
            set_phi(a, phi, PHI_OPAQUE);
        } else {
            a->changed = true;
            return probe;
        }
    }
    if (phi->state == PHI_STEP && access_counter(a, m->block, &counter) >= 0) {
        int32_t sum = ptx_sum_add(&a->s, x.sum, counter, phi->step);
        int32_t v = access_value(a, x.base, sum);
        int32_t next = access_value(a, x.base, ptx_sum_add(&a->s, sum, ptx_sum_constant(&a->s, phi->step), 1));
        if (sum && (phi->since == a->pass || all_back(m, var, next))) return v;
        set_phi(a, phi, ++phi->tries > 6 || !sum ? PHI_OPAQUE : PHI_PROBE);
        if (phi->state == PHI_PROBE) return access_value(a, x.base, own_symbol(a, m, var));
    }
    return opaque(a, m, var, phi, init);
}

void access_merge(struct analysis *a, const struct merge *m, int32_t var, int32_t *out) {
    int32_t v = merge_forward(a, m, var);
    *out = m->count > m->forward ? merge_loop(a, m, var, v) : v;
}
