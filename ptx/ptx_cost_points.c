/* Boxes with limits: of the threads of a box those for which some sums are ≤ 0. They are counted row by row. */
#include "ptx/ptx_cost_model.h"

enum { MOST_ROWS = 1 << 14 };
#define EACH(mask, k) \
    for (uint32_t left_ = (mask), k = 0; left_ && (k = (uint32_t)__builtin_ctz(left_), 1); left_ &= left_ - 1)

static wide floor_of(wide a, wide b) { /* b > 0 */
    wide q = a / b;
    return q - (a % b < 0);
}

static uint16_t limited(const struct cost_run *x, const struct sum *more) {
    uint32_t dims = more ? more->dims : 0;
    for (int32_t n = 0; n < x->limits; n++) dims |= x->bound[n].dims;
    return (uint16_t)dims;
}

/* The coordinate along which rows lie: the longest. */
static int along(const struct cost_run *x, uint16_t dims) {
    int z = -1;
    EACH(dims, k) if (z < 0 || x->n[k] > x->n[z]) z = (int)k;
    return z;
}

bool cost_may_limit(const struct cost_run *x, const struct sum *more) {
    uint16_t dims = limited(x, more);
    int z = along(x, dims);
    wide rows = 1;
    EACH(dims, k) if ((int)k != z && rows <= MOST_ROWS) rows *= x->n[k];
    return rows <= MOST_ROWS;
}

/* The points of one row that are within the limits: from *first on, so many. */
static int64_t row(const struct cost_run *x, const int64_t *at, uint16_t others, int z, int64_t *first) {
    wide lo = 0, hi = x->n[z] - 1;
    for (int32_t n = 0; n < x->limits; n++) {
        const struct sum *e = &x->bound[n];
        wide c = e->c, f = e->dims >> z & 1 ? e->f[z] : 0, bound;
        EACH(e->dims & others, k) c += e->f[k] * at[k];
        if (!f && c > 0) return 0;
        if (!f) continue;
        bound = f > 0 ? floor_of(-c, f) : -floor_of(-c, -f);
        if (f > 0 && bound < hi) hi = bound;
        if (f < 0 && bound > lo) lo = bound;
    }
    *first = (int64_t)lo;
    return hi < lo ? 0 : (int64_t)(hi - lo + 1);
}

static bool next_row(const struct cost_run *x, int64_t *at, uint16_t others) {
    EACH(others, k) {
        if (++at[k] < x->n[k]) return true;
        at[k] = 0;
    }
    return false;
}

static wide in_rows(const struct cost_run *x, const struct sum *s, uint16_t dims, wide *twice) {
    int64_t at[COST_DIMS] = {0}, first = 0;
    int z = along(x, dims);
    uint16_t others = (uint16_t)(dims & ~(1u << z));
    wide count = 0;
    do {
        int64_t n = row(x, at, others, z, &first);
        wide c = s->c;
        EACH(s->dims & others, k) c += s->f[k] * at[k];
        count += n;
        *twice += 2 * n * c;
        if (s->dims >> z & 1) *twice += s->f[z] * n * (2 * (wide)first + n - 1);
    } while (next_row(x, at, others));
    return count;
}

wide cost_points(const struct cost_run *x, const struct sum *s, wide *twice) {
    struct sum zero = {0};
    uint16_t dims = limited(x, NULL), free = (uint16_t)(x->used & ~x->counters & ~dims);
    wide total = 0, count = 1, times = 1, others = 0;
    if (!s) s = &zero;
    for (int32_t n = 0; n < x->limits; n++)
        if (!x->bound[n].dims && x->bound[n].c > 0) times = 0;
    if (dims)
        count = in_rows(x, s, dims, &total);
    else
        total = 2 * s->c;
    EACH(free, k) {
        times *= x->n[k];
        if (s->dims >> k & 1) others += s->f[k] * (x->n[k] - 1);
    }
    if (twice) *twice = (total + count * others) * times;
    return count * times;
}

static void spread(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi) {
    EACH(s->dims, k) * (s->f[k] < 0 ? lo : hi) += s->f[k] * (x->n[k] - 1);
}

/* s = (s - λ·limit) + λ·limit, and the limit is ≤ 0: what cancels a coordinate may say more. */
void cost_limit_range(const struct cost_run *x, const struct sum *s, wide *lo, wide *hi) {
    for (int32_t n = 0; n < x->limits; n++) {
        const struct sum *e = &x->bound[n];
        EACH(s->dims & e->dims, k) {
            if (s->f[k] % e->f[k]) continue;
            wide by = s->f[k] / e->f[k], least, most;
            struct sum rest = cost_sum_add(s, e, -by);
            least = most = rest.c;
            spread(x, &rest, &least, &most);
            if (by > 0 && most < *hi) *hi = most;
            if (by < 0 && least > *lo) *lo = least;
        }
    }
}
