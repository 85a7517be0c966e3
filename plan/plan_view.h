/* Tensors as views of storage: sizes, strides, offset, all in elements. What a view can be made of, and what needs a
 * copy. Dimensions of size 1 have a stride that means nothing; one of size 0 makes a tensor without elements; a stride
 * of 0 repeats (expand), a negative one counts backwards. Functions return 0, or -1 with one line in err that names the
 * dimension. Pure, any thread. */
#ifndef ACCT_PLAN_VIEW_H
#define ACCT_PLAN_VIEW_H

#include "plan/plan_pattern.h"

struct plan_view {
    int rank;
    int64_t size[PLAN_DIMS], stride[PLAN_DIMS], offset;
};

/* Row by row, without gaps. stride NULL: those of a contiguous tensor. -1 if an element would be beyond 2^63. */
int plan_view_make(struct plan_view *v, int rank, const int64_t *size, const int64_t *stride, int64_t offset, char *err,
                   size_t err_len);

int plan_view_elements(const struct plan_view *v, __int128 *out); /* -1 beyond 128 bit */
int plan_view_contiguous(const struct plan_view *v);
/* First and last element of the storage that the view touches; 0, or -1: it touches none. */
int plan_view_span(const struct plan_view *v, __int128 *first, __int128 *last);
/* 1: two indices may be the same element (a stride of 0 over more than one, or strides that cross). */
int plan_view_repeats(const struct plan_view *v);
/* How many elements of the storage it reaches, each once. 1: exact; 0: at most so many (steps that cross). */
int plan_view_distinct(const struct plan_view *v, __int128 *out);

int plan_view_transpose(struct plan_view *v, int64_t a, int64_t b, char *err, size_t err_len);
int plan_view_permute(struct plan_view *v, int n, const int64_t *order, char *err, size_t err_len);
/* `1:3,:,::2,0`, as numpy writes it: a range or an index (which drops the dimension) for each of the first dimensions.
 * Negative ends count from the end; a negative step goes backwards. */
int plan_view_slice(struct plan_view *v, const char *text, char *err, size_t err_len);
/* To n sizes, aligned at the right: a size of 1 grows with stride 0, -1 keeps; further dimensions come in front. */
int plan_view_expand(struct plan_view *v, int n, const int64_t *size, char *err, size_t err_len);

/* To other sizes (one may be -1) with the elements in the same order. 0: *out is a view; 1: none can be, *out is
 * contiguous, of a copy, and why says which dimensions cannot be merged; -1. */
int plan_view_reshape(const struct plan_view *v, int n, const int64_t *size, struct plan_view *out, char *why,
                      size_t why_len, char *err, size_t err_len);

/* The rearranged tensor of a bound PLAN_REARRANGE pattern whose operand is v. As plan_view_reshape. */
int plan_view_rearrange(const struct plan_view *v, const struct plan_pattern *p, struct plan_view *out, char *why,
                        size_t why_len, char *err, size_t err_len);

/* Where the element of that index is, in elements from the start of the storage. */
int plan_view_index(const struct plan_view *v, int n, const int64_t *index, int64_t *out, char *err, size_t err_len);

#endif
