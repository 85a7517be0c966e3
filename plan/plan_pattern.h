/* Notation of tensor algebra: `b s h, b t h -> b s t` (einops: axes are words with blanks between) and, for einsum,
 * `ij,jk->ik` (numpy: each letter is an axis). `...` stands for any axes, ( ) is one dimension made of several axes, 1
 * a dimension of size 1.
 *
 * Letters or words: an einsum is read in letters if every one of its terms is nothing but letters (and dots), without a
 * blank inside, and no size was announced for a name of several letters; anything else is words.
 *
 * Sizes come by name and by shape. In an einsum a dimension of size 1 goes with any size of its axis (broadcast).
 * Functions return 0, or -1 with one line in err that names what is wrong. Pure, any thread; the structs own nothing.
 */
#ifndef ACCT_PLAN_PATTERN_H
#define ACCT_PLAN_PATTERN_H

#include <stddef.h>
#include <stdint.h>

enum { PLAN_AXES = 128, PLAN_DIMS = 64, PLAN_OPERANDS = 128, PLAN_NAME = 32 };
enum { PLAN_ELLIPSIS = -1 };

typedef unsigned __int128 plan_set; /* of axes, a bit each */

struct plan_axis {
    char name[PLAN_NAME];
    int64_t size; /* -1: not known */
    int fixed;    /* given by name */
};

/* A tensor: its items in order; those with the same `dim` make one dimension together. */
struct plan_term {
    int n, dims;
    struct {
        int axis; /* or PLAN_ELLIPSIS, until the pattern is bound */
        int dim;
    } item[PLAN_DIMS];
    int ellipsis; /* 1: has one, 2: within ( ) */
    int rank;     /* of the shape that was given; -1: none */
    int64_t shape[PLAN_DIMS];
    plan_set axes, narrow; /* bound: which axes it has; those of size 1 here and larger elsewhere */
};

struct plan_pattern {
    int letters; /* notation */
    int axes, operands;
    int hidden, hidden_n; /* axes that `...` stands for: the first, how many; -1: not known */
    struct plan_axis axis[PLAN_AXES];
    struct plan_term operand[PLAN_OPERANDS], result;
};

enum plan_notation {
    PLAN_EINSUM,   /* any number of operands; an axis twice in one is its diagonal */
    PLAN_REDUCE,   /* one operand; the result lacks axes */
    PLAN_REARRANGE /* one operand; the result has all of its axes, and no other */
};

/* words: einsum is to be read in words whatever it looks like. */
int plan_pattern_parse(const char *text, enum plan_notation notation, int words, struct plan_pattern *out, char *err,
                       size_t err_len);

/* Size of an axis; of `...` the sizes with an x between: 2x3. */
int plan_pattern_size(struct plan_pattern *p, const char *name, const char *value, char *err, size_t err_len);

/* Shape of the operand-th tensor (from 0). */
int plan_pattern_shape(struct plan_pattern *p, int operand, int rank, const int64_t *sizes, char *err, size_t err_len);

/* Puts sizes and shapes together; every axis has its size afterwards, and `...` is gone. broadcast: size 1 goes with
 * any. */
int plan_pattern_bind(struct plan_pattern *p, int broadcast, char *err, size_t err_len);

static inline plan_set plan_set_of(int axis) {
    return (plan_set)1 << axis;
}

/* The lowest axis of a set that is not empty. */
static inline int plan_set_first(plan_set s) {
    return (uint64_t)s ? __builtin_ctzll((uint64_t)s) : 64 + __builtin_ctzll((uint64_t)(s >> 64));
}

/* Product of the sizes of axes; 0, or -1 beyond 128 bit. */
int plan_pattern_product(const struct plan_pattern *p, plan_set axes, __int128 *out);

/* A term, or the axes of a set in order of appearance, as the notation writes it: `b (h w)`, `ij`. Cut at room. */
void plan_term_text(const struct plan_pattern *p, const struct plan_term *t, char *out, size_t room);
void plan_set_text(const struct plan_pattern *p, plan_set axes, char *out, size_t room);

int plan_term_items(const struct plan_term *t, int dim); /* how many axes make that dimension */

/* Size of a term's dimension, once bound (of a narrow axis 1); 0, or -1 beyond 64 bit. */
int plan_term_dim(const struct plan_pattern *p, const struct plan_term *t, int dim, int64_t *out);

#endif
