/* Sizes of a pattern's axes: from names, from shapes, from what is left of a dimension made of several axes. */
#include "plan/plan_number.h"
#include "plan/plan_pattern.h"

#include <stdio.h>
#include <string.h>

#define REFUSE(...) (snprintf(err, err_len, __VA_ARGS__), -1)

/* ---- what is given ---- */

static int give(struct plan_axis *a, int64_t size, char *err, size_t err_len) {
    if (a->fixed && a->size != size)
        return REFUSE("axis '%s' has two sizes, %lld and %lld", a->name, (long long)a->size, (long long)size);
    a->size = size;
    a->fixed = 1;
    return 0;
}

/* Axes in place of `...`; they are aligned at the right where tensors have fewer. */
static int add_hidden(struct plan_pattern *p, int n, char *err, size_t err_len) {
    if (p->axes + n > PLAN_AXES) return REFUSE("more than %d axes", PLAN_AXES);
    p->hidden = p->axes;
    p->hidden_n = n;
    for (int i = 0; i < n; i++) {
        struct plan_axis *a = &p->axis[p->axes++];
        memset(a, 0, sizeof *a);
        snprintf(a->name, sizeof a->name, "...%d", i);
        a->size = -1;
    }
    return 0;
}

static int give_hidden(struct plan_pattern *p, const char *value, char *err, size_t err_len) {
    char text[256];
    int64_t sizes[PLAN_DIMS];
    int dots = 0;
    for (int o = 0; o < p->operands; o++) dots |= p->operand[o].ellipsis;
    if (!dots) return REFUSE("no operand has '...'");
    if (p->hidden >= 0) return REFUSE("'...' has sizes already");
    if ((size_t)snprintf(text, sizeof text, "%s", value) >= sizeof text) return REFUSE("...=%.40s: too long", value);
    for (char *c = text; *c; c++)
        if (*c == 'x') *c = ',';
    int n = plan_list(text, PLAN_NOT_NEGATIVE, INT64_MAX, PLAN_DIMS, sizes, err, err_len);
    if (n < 0 || add_hidden(p, n, err, err_len)) return -1;
    for (int i = 0; i < n; i++)
        if (give(&p->axis[p->hidden + i], sizes[i], err, err_len)) return -1;
    return 0;
}

int plan_pattern_size(struct plan_pattern *p, const char *name, const char *value, char *err, size_t err_len) {
    char all[200] = "", why[160];
    int64_t size;
    if (!strcmp(name, "...")) return give_hidden(p, value, err, err_len);
    for (int i = 0; i < p->axes; i++) {
        if (strcmp(p->axis[i].name, name)) continue;
        if (plan_whole(value, PLAN_COUNT, PLAN_NOT_NEGATIVE, INT64_MAX, &size, why, sizeof why))
            return REFUSE("axis '%s': %s", name, why);
        return give(&p->axis[i], size, err, err_len);
    }
    plan_set_text(p, p->axes >= PLAN_AXES ? ~(plan_set)0 : plan_set_of(p->axes) - 1, all, sizeof all);
    return REFUSE("there is no axis '%s'; the axes are %s", name, all);
}

int plan_pattern_shape(struct plan_pattern *p, int operand, int rank, const int64_t *sizes, char *err, size_t err_len) {
    if (operand >= p->operands)
        return REFUSE("a shape too many: there %s", p->operands == 1 ? "is 1 operand" : "are fewer operands");
    struct plan_term *t = &p->operand[operand];
    int need = t->dims - (t->ellipsis != 0);
    if (t->ellipsis == 2) return REFUSE("'...' within ( ) of an operand: how many axes it is cannot be told");
    if (rank > PLAN_DIMS) return REFUSE("more than %d dimensions", PLAN_DIMS);
    if (t->ellipsis ? rank < need : rank != need) {
        char text[120];
        plan_term_text(p, t, text, sizeof text);
        return REFUSE("operand %d, '%s', has %s%d dimension%s, its shape %d", operand + 1, text,
                      t->ellipsis ? "at least " : "", need, need == 1 ? "" : "s", rank);
    }
    t->rank = rank;
    memcpy(t->shape, sizes, (size_t)rank * sizeof *sizes);
    return 0;
}

int plan_term_items(const struct plan_term *t, int dim) {
    int n = 0;
    for (int i = 0; i < t->n; i++) n += t->item[i].dim == dim;
    return n;
}

/* ---- `...` ---- */

/* How many axes `...` has in this operand. */
static int dots_of(const struct plan_pattern *p, const struct plan_term *t) {
    return t->rank >= 0 ? t->rank - (t->dims - 1) : p->hidden_n;
}

static int find_hidden(struct plan_pattern *p, char *err, size_t err_len) {
    int most = -1, open = 0;
    for (int o = 0; o < p->operands; o++) {
        const struct plan_term *t = &p->operand[o];
        if (!t->ellipsis) continue;
        if (t->rank < 0) open = 1;
        if (t->rank >= 0 && dots_of(p, t) > most) most = dots_of(p, t);
    }
    if (p->hidden >= 0) {
        if (most > p->hidden_n) return REFUSE("'...' has %d sizes, but %d axes of a shape", p->hidden_n, most);
        return 0;
    }
    if (open) return REFUSE("the sizes of '...' are not known; give shapes, or --size ...=2x3");
    return most < 0 ? 0 : add_hidden(p, most, err, err_len);
}

/* Puts the hidden axes in place of `...`: the last n of them. In ( ) they stay one dimension. */
static int expand(struct plan_pattern *p, struct plan_term *t, int n, char *err, size_t err_len) {
    struct plan_term out = *t;
    int shift = 0;
    if (!t->ellipsis) return 0;
    out.n = out.ellipsis = 0;
    if (t->n - 1 + n > PLAN_DIMS || t->dims - 1 + n > PLAN_DIMS) return REFUSE("more than %d dimensions", PLAN_DIMS);
    for (int i = 0; i < t->n; i++) {
        int dim = t->item[i].dim + shift;
        if (t->item[i].axis != PLAN_ELLIPSIS) {
            out.item[out.n].axis = t->item[i].axis;
            out.item[out.n++].dim = dim;
            continue;
        }
        int grouped = t->ellipsis == 2;
        for (int k = 0; k < n; k++) {
            out.item[out.n].axis = p->hidden + p->hidden_n - n + k;
            out.item[out.n++].dim = grouped ? dim : dim + k;
        }
        if (!grouped) shift = n - 1;
    }
    out.dims = t->dims + shift;
    *t = out;
    return 0;
}

/* ---- sizes ---- */

/* One axis by one dimension of a shape. */
static int meet(struct plan_axis *a, int64_t size, int broadcast, char *err, size_t err_len) {
    if (a->size == size || (broadcast && size == 1 && a->size >= 0)) return 0;
    if (a->size < 0 || (broadcast && a->size == 1 && !a->fixed)) {
        a->size = size;
        return 0;
    }
    return REFUSE("axis '%s' has two sizes, %lld and %lld", a->name, (long long)a->size, (long long)size);
}

/* A dimension of several axes: the one that is not known is what the others leave. */
static int meet_group(struct plan_pattern *p, const struct plan_term *t, int dim, char *err, size_t err_len) {
    __int128 known = 1;
    int open = -1;
    for (int i = 0; i < t->n; i++) {
        struct plan_axis *a = t->item[i].dim == dim ? &p->axis[t->item[i].axis] : NULL;
        if (!a) continue;
        if (a->size < 0) {
            if (open >= 0)
                return REFUSE("axes '%s' and '%s' share a dimension of %lld; give the size of one", p->axis[open].name,
                              a->name, (long long)t->shape[dim]);
            open = t->item[i].axis;
        } else if (plan_multiply(known, a->size, &known)) {
            return REFUSE("the sizes of a dimension multiply to more than 1.7e38");
        }
    }
    if (open < 0 ? known == t->shape[dim] : known > 0 && t->shape[dim] % known == 0) {
        if (open >= 0) p->axis[open].size = (int64_t)(t->shape[dim] / known);
        return 0;
    }
    if (known <= INT64_MAX)
        return REFUSE("a dimension of %lld is not %s%lld, as its axes have it", (long long)t->shape[dim],
                      open < 0 ? "" : "a multiple of ", (long long)known);
    return REFUSE("a dimension of %lld is less than its axes have", (long long)t->shape[dim]);
}

static int meet_shape(struct plan_pattern *p, const struct plan_term *t, int groups, int broadcast, char *err,
                      size_t err_len) {
    for (int d = 0; d < t->dims && t->rank >= 0; d++) {
        int n = plan_term_items(t, d);
        if (!groups && !n && t->shape[d] != 1)
            return REFUSE("the dimension written 1 has size %lld", (long long)t->shape[d]);
        for (int i = 0; i < t->n && n == 1 && !groups; i++)
            if (t->item[i].dim == d && meet(&p->axis[t->item[i].axis], t->shape[d], broadcast, err, err_len)) return -1;
        if (groups && n > 1 && meet_group(p, t, d, err, err_len)) return -1;
    }
    return 0;
}

static void find_axes(const struct plan_pattern *p, struct plan_term *t) {
    t->axes = t->narrow = 0;
    for (int i = 0; i < t->n; i++) {
        int axis = t->item[i].axis;
        t->axes |= plan_set_of(axis);
        if (t->rank >= 0 && t->shape[t->item[i].dim] == 1 && p->axis[axis].size != 1) t->narrow |= plan_set_of(axis);
    }
}

int plan_pattern_bind(struct plan_pattern *p, int broadcast, char *err, size_t err_len) {
    if (find_hidden(p, err, err_len)) return -1;
    for (int o = 0; o < p->operands; o++)
        if (expand(p, &p->operand[o], dots_of(p, &p->operand[o]), err, err_len)) return -1;
    if (expand(p, &p->result, p->hidden_n, err, err_len)) return -1;
    for (int groups = 0; groups < 2; groups++)
        for (int o = 0; o < p->operands; o++)
            if (meet_shape(p, &p->operand[o], groups, broadcast, err, err_len)) return -1;
    for (int i = 0; i < p->axes; i++)
        if (p->axis[i].size < 0)
            return REFUSE("the size of axis '%s' is not known; give --size %s=N, or shapes", p->axis[i].name,
                          p->axis[i].name);
    for (int o = 0; o < p->operands; o++) find_axes(p, &p->operand[o]);
    find_axes(p, &p->result);
    return 0;
}

int plan_pattern_product(const struct plan_pattern *p, plan_set axes, __int128 *out) {
    __int128 product = 1;
    int over = 0;
    for (; axes; axes &= axes - 1) {
        int64_t size = p->axis[plan_set_first(axes)].size;
        if (!size) {
            *out = 0;
            return 0;
        }
        over |= !over && plan_multiply(product, size, &product);
    }
    *out = product;
    return over ? -1 : 0;
}

int plan_term_dim(const struct plan_pattern *p, const struct plan_term *t, int dim, int64_t *out) {
    __int128 product = 1;
    plan_set axes = 0;
    for (int i = 0; i < t->n; i++)
        if (t->item[i].dim == dim) axes |= plan_set_of(t->item[i].axis);
    if (plan_pattern_product(p, axes & ~t->narrow, &product) || product > INT64_MAX) return -1;
    *out = (int64_t)product;
    return 0;
}
