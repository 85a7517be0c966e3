/* What each matrix product of a step is for, and what that says of the model: inside the analysis only. FLOPs,
 * elements, rows. One thread; memory belongs to the trace's pool. */
#ifndef ACCT_ANALYZER_ATTR_PRODUCTS_H
#define ACCT_ANALYZER_ATTR_PRODUCTS_H

#include "analyzer/attr_model.h"
#include "analyzer/cost_model.h"

/* Of a product in a step. "Attention": both factors are activations, or gradients of activations. */
enum product_part {
    PART_FORWARD,            /* an activation times a weight */
    PART_INPUT_GRADIENT,     /* backward: a weight along its other axis */
    PART_WEIGHT_GRADIENT,    /* writes a gradient, or what is added to one */
    PART_ATTENTION_FORWARD,  /* scores and values */
    PART_ATTENTION_BACKWARD, /* the gradients of their factors */
    PART_RECOMPUTE,          /* of PART_FORWARD */
    PART_RECOMPUTE_ATTENTION,
    PART_OPTIMIZER, /* inside the update */
    PART_KERNELS,   /* matrix instructions of launches: what they multiply is not known */
    PART_OTHER,     /* a product whose phase is not known */
    PRODUCT_PARTS
};

/* What products do with a weight; by range. */
struct weight_use {
    int64_t elements;     /* 0: no product reads it */
    int64_t rows_forward; /* in the step at hand: rows of the other factor, summed over products */
    int64_t rows_dx;
    int32_t step;         /* at hand; -1 */
    uint8_t irregular;    /* products disagree on its elements */
    uint8_t rows_unknown; /* a product's size is no multiple of them, as with gaps between columns */
    uint8_t by_kernels;   /* forward multiplies by it in kernels of the program's own */
    uint8_t lookup;       /* rows of it are picked by what the host wrote */
    uint8_t param;        /* has that class at some time */
};

/* Facts of the model; AT_UNKNOWN_FACT. Of the step `step`, the last complete one. */
#define AT_UNKNOWN_FACT (-1)
enum attention { ATTENTION_UNKNOWN = -1, ATTENTION_NONE, ATTENTION_FOUND };
struct model_shape {
    int32_t step;                    /* -1: no complete step */
    int32_t first_product;           /* event: the step's first product with a weight in forward; -1 */
    int64_t parameters, in_products; /* elements */
    int64_t lookup, position, other; /* of those in no product */
    int64_t tied;                    /* of in_products: also a lookup table */
    int64_t frozen;                  /* of in_products: not trained */
    int turns;                       /* the step reads only some of the weights that products read in others */
    int irregular;                   /* products disagree on the elements of a weight */
    int unsized; /* some parameters are in no product, and those that are have elements of several sizes */
    enum attention attention;
    int64_t layers, heads, head_size, value_size, context, queries, sequences;
};

/* Of the rows of the table step. */
struct step_row {
    int64_t tokens; /* ACCT_NULL_I64 */
    int32_t micro_batches;
    int complete;
};

struct products {
    struct at_trace *t;
    struct step_row *step;  /* by number; t->steps */
    struct weight_use *use; /* by range */
    int32_t *weight;        /* ranges that are parameters and factors of products */
    int32_t weights, weight_room;
    int32_t *touched; /* ranges with use.step = the step at hand */
    int32_t touches, touch_room;
    __int128 flops[PRODUCT_PARTS]; /* of the step at hand */
    int64_t count[PRODUCT_PARTS];
    int uncounted; /* products without a count, beyond 64 bits */
    struct model_shape shape;
};

/* The part of an event; -1: it multiplies nothing, or belongs to no step. */
int at_product_part(const struct products *p, int32_t e);

/* The weight that an access reads as a factor, directly or through a copy; -1. Needs use[].param. */
int32_t at_weight_of(const struct products *p, const struct at_access *a);

/* Updates write it. */
int at_is_trained(const struct at_range *r);

/* Adds a step's events [from, to) up: flops, count, use. */
void at_products_of_step(struct products *p, int32_t step, int32_t from, int32_t to);

/* The events [*from, *to) between which all of the step's lie; *from as the step before left *to. */
void at_step_extent(const struct at_trace *t, int32_t step, int32_t *from, int32_t *to);

void at_find_shape(struct products *p);                               /* attr_shape.c */
void at_find_attention(struct products *p, int32_t from, int32_t to); /* attr_attention.c */

/* Writes step_product, flops_term and model. 0, or negative with one line in err. */
int at_write_products(struct at_trace *t, sqlite3 *db, char *err, size_t err_len);

#endif
