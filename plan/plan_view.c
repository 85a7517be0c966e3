/* Views: what stays one by strides alone. Reshape and rearrange are in plan_view_reshape.c. */
#include "plan/plan_view.h"

#include "plan/plan_number.h"
#include "plan/plan_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(...) (snprintf(err, err_len, __VA_ARGS__), -1)

static const __int128 far =
    (__int128)1 << 61; /* offsets stay below: size times stride of two elements and more fits in 64 bit */

int plan_view_elements(const struct plan_view *v, __int128 *out) {
    return plan_product(v->rank, v->size, out);
}

int plan_view_span(const struct plan_view *v, __int128 *first, __int128 *last) {
    *first = *last = v->offset;
    for (int d = 0; d < v->rank; d++) {
        if (!v->size[d]) return -1;
        __int128 reach = ((__int128)v->size[d] - 1) * v->stride[d];
        *(reach < 0 ? first : last) += reach;
    }
    return 0;
}

/* Storage begins at element 0 and no element is beyond what 64 bits address. */
static int check_span(const struct plan_view *v, char *err, size_t err_len) {
    __int128 first, last;
    for (int d = 0; d < v->rank; d++) /* before the sum: at most 64 × 2^125 could not be added up */
        if (v->size[d] &&
            (((__int128)v->size[d] - 1) * v->stride[d] > far || ((__int128)v->size[d] - 1) * v->stride[d] < -far))
            return REFUSE("dimension %d, %lld elements with stride %lld, reaches beyond 2^61", d, (long long)v->size[d],
                          (long long)v->stride[d]);
    if (plan_view_span(v, &first, &last)) return 0;
    if (last > far) return REFUSE("the last element is beyond 2^61");
    if (first < 0) return REFUSE("strides and offset reach before the start of the storage");
    return 0;
}

int plan_view_make(struct plan_view *v, int rank, const int64_t *size, const int64_t *stride, int64_t offset, char *err,
                   size_t err_len) {
    __int128 step = 1;
    v->rank = rank;
    v->offset = offset;
    memmove(v->size, size, (size_t)rank * sizeof *size); /* may be its own */
    for (int d = rank - 1; d >= 0; d--) {
        if (stride) {
            v->stride[d] = stride[d];
            continue;
        }
        v->stride[d] = (int64_t)step;
        step *= v->size[d] > 0 ? v->size[d] : 1;
        if (step > far) return REFUSE("the shape has more than 2^61 elements");
    }
    return check_span(v, err, err_len);
}

int plan_view_contiguous(const struct plan_view *v) {
    __int128 step = 1;
    for (int d = 0; d < v->rank; d++)
        if (!v->size[d]) return 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->size[d] == 1) continue;
        if (v->stride[d] != step) return 0;
        step *= v->size[d];
    }
    return 1;
}

/* The dimensions that step, the shortest step first; returns how many, or -1: the tensor has no elements. */
static int by_stride(const struct plan_view *v, int order[PLAN_DIMS]) {
    int n = 0;
    for (int d = 0; d < v->rank; d++) {
        if (!v->size[d]) return -1;
        if (v->size[d] == 1) continue;
        int i = n++;
        for (; i && llabs(v->stride[order[i - 1]]) > llabs(v->stride[d]); i--) order[i] = order[i - 1];
        order[i] = d;
    }
    return n;
}

/* Each dimension must step over all that the smaller ones reach. */
int plan_view_repeats(const struct plan_view *v) {
    int order[PLAN_DIMS], n = by_stride(v, order);
    __int128 reach = 0;
    for (int i = 0; i < n; i++) {
        int d = order[i];
        if (llabs(v->stride[d]) <= reach) return 1;
        reach += ((__int128)v->size[d] - 1) * llabs(v->stride[d]);
    }
    return 0;
}

/* Runs of equal steps, each over all that the smaller ones reach: a dimension lengthens the last run where it goes on
 * in that run's steps, as windows that overlap do, or begins another. */
int plan_view_distinct(const struct plan_view *v, __int128 *out) {
    int order[PLAN_DIMS], n = by_stride(v, order), exact = 1;
    __int128 before = 1, step = 0, count = 1, reach = 0; /* elements of the runs before the last; the last one; all */
    *out = n >= 0;
    for (int i = 0; i < n; i++) {
        __int128 stride = llabs(v->stride[order[i]]), more = v->size[order[i]] - 1;
        if (!stride) continue;
        if (stride > reach)
            before *= count, step = stride, count = more + 1;
        else if (stride % step == 0 && stride / step <= count)
            count += more * (stride / step);
        else
            exact = 0;
        reach += more * stride;
    }
    if (n < 0) return 1;
    __int128 elements = 1;
    if (!exact && plan_view_elements(v, &elements)) elements = reach + 1;
    *out = exact ? before * count : elements < reach + 1 ? elements : reach + 1;
    return exact;
}

/* ---- transpose, permute ---- */

/* -1 is the last dimension. */
static int find_dim(const struct plan_view *v, int64_t dim, int *out, char *err, size_t err_len) {
    if (dim < -v->rank || dim >= v->rank)
        return REFUSE("there is no dimension %lld; there are %d, from 0", (long long)dim, v->rank);
    *out = (int)(dim < 0 ? dim + v->rank : dim);
    return 0;
}

static void swap(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

int plan_view_transpose(struct plan_view *v, int64_t a, int64_t b, char *err, size_t err_len) {
    int i, j;
    if (find_dim(v, a, &i, err, err_len) || find_dim(v, b, &j, err, err_len)) return -1;
    swap(&v->size[i], &v->size[j]);
    swap(&v->stride[i], &v->stride[j]);
    return 0;
}

int plan_view_permute(struct plan_view *v, int n, const int64_t *order, char *err, size_t err_len) {
    struct plan_view from = *v;
    int used[PLAN_DIMS] = {0}, d;
    if (n != v->rank) return REFUSE("%d dimensions in the order, the tensor has %d", n, v->rank);
    for (int i = 0; i < n; i++) {
        if (find_dim(v, order[i], &d, err, err_len)) return -1;
        if (used[d]++) return REFUSE("dimension %d is there twice", d);
        v->size[i] = from.size[d];
        v->stride[i] = from.stride[d];
    }
    return 0;
}

/* ---- slice ---- */

struct range {
    int64_t value[3]; /* start, stop, step */
    int given[3], colons;
};

static int read_range(const char *text, size_t length, struct range *r, char *err, size_t err_len) {
    const char *p = text, *end = text + length;
    memset(r, 0, sizeof *r);
    for (;;) {
        char *stop;
        while (p < end && *p == ' ') p++;
        if (p < end && *p != ':') {
            long long n = strtoll(p, &stop, 10);
            if (stop == p || stop > end || n > (1LL << 62) || n < -(1LL << 62)) break;
            r->value[r->colons] = n;
            r->given[r->colons] = 1;
            p = stop;
        }
        while (p < end && *p == ' ') p++;
        if (p == end) return r->colons || r->given[0] ? 0 : REFUSE("an empty range; write : for a whole dimension");
        if (*p++ != ':' || ++r->colons == 3) break;
    }
    return REFUSE("'%.*s' is no range; write START:STOP:STEP, each of which may be left out, or an index",
                  (int)(length < 60 ? length : 60), text);
}

/* A position within 0 … size, or -1 … size - 1 going backwards; as numpy clips it. */
static int64_t clip(int64_t at, int64_t size, int backwards) {
    if (at < 0) at += size;
    if (at < 0) return backwards ? -1 : 0;
    return at >= size ? (backwards ? size - 1 : size) : at;
}

static int64_t slice_range(struct plan_view *v, int d, const struct range *r) {
    int64_t size = v->size[d], step = r->given[2] ? r->value[2] : 1;
    int back = step < 0;
    int64_t start = r->given[0] ? clip(r->value[0], size, back) : back ? size - 1 : 0;
    int64_t stop = r->given[1] ? clip(r->value[1], size, back) : back ? -1 : size;
    int64_t way = back ? start - stop : stop - start, stride = back ? -step : step;
    v->size[d] = way > 0 ? (way - 1) / stride + 1 : 0;
    return start;
}

static void drop_dim(struct plan_view *v, int d) {
    size_t rest = (size_t)(v->rank - d - 1) * sizeof *v->size;
    memmove(&v->size[d], &v->size[d + 1], rest);
    memmove(&v->stride[d], &v->stride[d + 1], rest);
    v->rank--;
}

static int slice_one(struct plan_view *v, int *d, const struct range *r, char *err, size_t err_len) {
    int64_t size = v->size[*d], start;
    if (r->colons) {
        if (r->given[2] && !r->value[2]) return REFUSE("a step of 0");
        start = slice_range(v, *d, r);
        if (v->size[*d]) v->offset += start * v->stride[*d];
        __int128 stride = (__int128)v->stride[*d] * (r->given[2] ? r->value[2] : 1);
        if (stride > far || stride < -far) stride = v->stride[*d]; /* one element at most: never used */
        v->stride[*d] = (int64_t)stride;
        ++*d;
        return 0;
    }
    start = r->value[0] < 0 ? r->value[0] + size : r->value[0];
    if (start < 0 || start >= size)
        return REFUSE("index %lld is not in dimension %d of size %lld", (long long)r->value[0], *d, (long long)size);
    v->offset += start * v->stride[*d];
    drop_dim(v, *d);
    return 0;
}

int plan_view_slice(struct plan_view *v, const char *text, char *err, size_t err_len) {
    int d = 0, rank = v->rank, n = 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        struct range r;
        if (n++ == rank) return REFUSE("more ranges than the %d dimensions", rank);
        if (read_range(text, length, &r, err, err_len) || slice_one(v, &d, &r, err, err_len)) return -1;
        text += length;
        if (!*text) return check_span(v, err, err_len);
    }
}

/* ---- expand, index ---- */

int plan_view_expand(struct plan_view *v, int n, const int64_t *size, char *err, size_t err_len) {
    struct plan_view from = *v;
    int front = n - from.rank;
    if (front < 0) return REFUSE("%d sizes are fewer than the %d dimensions", n, from.rank);
    v->rank = n;
    for (int d = 0; d < n; d++) {
        int64_t old = d < front ? 1 : from.size[d - front], want = size[d];
        if (want == -1 && d < front) return REFUSE("-1 keeps a size; dimension %d is new", d);
        if (want < -1) return REFUSE("size %lld is negative", (long long)want);
        if (want == -1) want = old;
        if (want != old && old != 1)
            return REFUSE("dimension %d has size %lld: only a size of 1 can be expanded, not to %lld", d,
                          (long long)old, (long long)want);
        v->size[d] = want;
        v->stride[d] = d < front || want != old ? 0 : from.stride[d - front];
    }
    return check_span(v, err, err_len);
}

int plan_view_index(const struct plan_view *v, int n, const int64_t *index, int64_t *out, char *err, size_t err_len) {
    *out = v->offset;
    if (n != v->rank) return REFUSE("%d indices, the tensor has %d dimension%s", n, v->rank, v->rank == 1 ? "" : "s");
    for (int d = 0; d < n; d++) {
        int64_t i = index[d] < 0 ? index[d] + v->size[d] : index[d];
        if (i < 0 || i >= v->size[d])
            return REFUSE("index %lld is not in dimension %d of size %lld", (long long)index[d], d,
                          (long long)v->size[d]);
        *out += i * v->stride[d];
    }
    return 0;
}
