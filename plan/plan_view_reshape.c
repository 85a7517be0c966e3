/* Reshape: dimensions are merged and split. Those of size 1 are left out: they are everywhere and their strides mean
 * nothing. What is left of both shapes is walked in parallel: the smallest runs of dimensions with equally many
 * elements belong together; the old ones of a run must merge into one, stride[i] = stride[i+1] × size[i+1]. */
#include "plan/plan_view.h"

#include "plan/plan_number.h"
#include "plan/plan_ops.h"

#include <stdio.h>
#include <string.h>

#define REFUSE(...) (snprintf(err, err_len, __VA_ARGS__), -1)

/* Dimensions of more than one element, and their numbers. */
struct core {
    int n, dim[PLAN_DIMS];
};

static void find_core(int rank, const int64_t *size, struct core *c) {
    c->n = 0;
    for (int d = 0; d < rank; d++)
        if (size[d] != 1) c->dim[c->n++] = d;
}

static int merges(const struct plan_view *v, int a, int b) {
    return v->stride[a] == (__int128)v->stride[b] * v->size[b];
}

/* The old dimensions from..to of a core as one. */
static int run_merges(const struct plan_view *v, const struct core *c, int from, int to, char *why, size_t why_len) {
    for (int i = from; i < to; i++) {
        int a = c->dim[i], b = c->dim[i + 1];
        if (merges(v, a, b)) continue;
        snprintf(why, why_len,
                 "dimensions %d and %d cannot be merged: stride[%d] = %lld is not stride[%d] x size[%d] = %lld x %lld",
                 a, b, a, (long long)v->stride[a], b, b, (long long)v->stride[b], (long long)v->size[b]);
        return 0;
    }
    return 1;
}

/* Strides of the new dimensions from..to of a core, of a run whose last stride is `step`. */
static void split(struct plan_view *out, const struct core *c, int from, int to, int64_t step) {
    for (int i = to; i >= from; i--) {
        out->stride[c->dim[i]] = step;
        if (i > from) step *= out->size[c->dim[i]];
    }
}

static int walk(const struct plan_view *v, struct plan_view *out, char *why, size_t why_len) {
    struct core old, new;
    find_core(v->rank, v->size, &old);
    find_core(out->rank, out->size, &new);
    for (int i = 0, j = 0; i < old.n && j < new.n;) {
        int i0 = i, j0 = j;
        __int128 a = v->size[old.dim[i]], b = out->size[new.dim[j]];
        while (a != b)
            if (a < b)
                a *= v->size[old.dim[++i]];
            else
                b *= out->size[new.dim[++j]];
        if (!run_merges(v, &old, i0, i, why, why_len)) return 1;
        split(out, &new, j0, j, v->stride[old.dim[i]]);
        i++;
        j++;
    }
    return 0;
}

/* A dimension of size 1 gets the stride that a contiguous tensor's would have. */
static void fill_ones(struct plan_view *v) {
    for (int d = v->rank - 1; d >= 0; d--)
        if (v->size[d] == 1) v->stride[d] = d + 1 < v->rank ? v->stride[d + 1] * v->size[d + 1] : 1;
}

/* Puts the size that -1 stands for. */
static int infer(struct plan_view *out, __int128 elements, char *err, size_t err_len) {
    int open = -1;
    __int128 product = 1;
    for (int d = 0; d < out->rank; d++) {
        if (out->size[d] == -1 && open >= 0) return REFUSE("-1 stands twice");
        if (out->size[d] == -1) {
            open = d;
            continue;
        }
        if (out->size[d] < 0) return REFUSE("size %lld is negative", (long long)out->size[d]);
        if (plan_multiply(product, out->size[d], &product)) return REFUSE("the sizes multiply to more than 1.7e38");
    }
    if (open < 0 && product == elements) return 0;
    if (open >= 0 && !product) return REFUSE("-1 could be anything: the other sizes make 0");
    if (open >= 0 && elements % product == 0) {
        out->size[open] = (int64_t)(elements / product);
        return 0;
    }
    return REFUSE("%lld elements are not %s%lld", (long long)elements, open >= 0 ? "a multiple of " : "",
                  (long long)(product > INT64_MAX ? INT64_MAX : product));
}

int plan_view_reshape(const struct plan_view *v, int n, const int64_t *size, struct plan_view *out, char *why,
                      size_t why_len, char *err, size_t err_len) {
    __int128 elements;
    memset(out, 0, sizeof *out);
    out->rank = n;
    memcpy(out->size, size, (size_t)n * sizeof *size);
    if (plan_view_elements(v, &elements) || elements > INT64_MAX) return REFUSE("more than 2^63 elements");
    if (infer(out, elements, err, err_len)) return -1;
    *why = 0;
    if (elements && walk(v, out, why, why_len))
        return plan_view_make(out, n, out->size, NULL, 0, err, err_len) ? -1 : 1;
    if (!elements) return plan_view_make(out, n, out->size, NULL, v->offset, err, err_len);
    out->offset = v->offset;
    fill_ones(out);
    return 0;
}

/* ---- rearrange ---- */

/* Where an axis is in the operand's memory. */
static void find_strides(const struct plan_view *v, const struct plan_pattern *p, int64_t *stride) {
    const struct plan_term *t = &p->operand[0];
    for (int i = t->n; i--;) {
        int64_t step = v->stride[t->item[i].dim];
        if (i + 1 < t->n && t->item[i + 1].dim == t->item[i].dim)
            step = stride[t->item[i + 1].axis] * p->axis[t->item[i + 1].axis].size;
        stride[t->item[i].axis] = step;
    }
}

/* Axes of one dimension of the result become one stride, where those of more than one element merge. */
static int merge_axes(const struct plan_pattern *p, const int64_t *stride, int dim, int64_t *out, char *why,
                      size_t why_len) {
    int next = -1;
    *out = 1;
    for (int i = p->result.n; i--;) {
        int axis = p->result.item[i].axis;
        if (p->result.item[i].dim != dim || p->axis[axis].size == 1) continue;
        if (next >= 0 && stride[axis] != (__int128)stride[next] * p->axis[next].size) {
            snprintf(why, why_len,
                     "axes %s and %s cannot be merged: stride of %s = %lld is not stride x size of %s = %lld x %lld",
                     p->axis[axis].name, p->axis[next].name, p->axis[axis].name, (long long)stride[axis],
                     p->axis[next].name, (long long)stride[next], (long long)p->axis[next].size);
            return 1;
        }
        if (next < 0) *out = stride[axis];
        next = axis;
    }
    return 0;
}

int plan_view_rearrange(const struct plan_view *v, const struct plan_pattern *p, struct plan_view *out, char *why,
                        size_t why_len, char *err, size_t err_len) {
    int64_t stride[PLAN_AXES] = {0};
    __int128 elements;
    int copies = 0;
    memset(out, 0, sizeof *out);
    *why = 0;
    out->rank = p->result.dims;
    out->offset = v->offset;
    find_strides(v, p, stride);
    if (plan_view_elements(v, &elements) || elements > INT64_MAX) return REFUSE("more than 2^63 elements");
    for (int d = 0; d < out->rank; d++) {
        if (plan_term_dim(p, &p->result, d, &out->size[d])) return REFUSE("a dimension is beyond 2^63");
        copies |= elements && merge_axes(p, stride, d, &out->stride[d], why, why_len);
        if (copies) break;
    }
    if (!copies && elements) return 0;
    for (int d = 0; d < out->rank; d++)
        if (plan_term_dim(p, &p->result, d, &out->size[d])) return REFUSE("a dimension is beyond 2^63");
    return plan_view_make(out, out->rank, out->size, NULL, 0, err, err_len) ? -1 : copies;
}
