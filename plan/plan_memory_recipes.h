/* Recipes of training and inference: how many bits each parameter takes, by what they are for. The only place where
 * they stand: `acct plan` and the reports take them from here. Pure functions, any thread; what is returned is
 * constant. Sources: ZeRO (Rajbhandari et al. 2020), Megatron-LM's documentation of its distributed optimizer, 8-bit
 * optimizers (Dettmers et al. 2022). */
#ifndef ACCT_PLAN_MEMORY_RECIPES_H
#define ACCT_PLAN_MEMORY_RECIPES_H

#include <stddef.h>
#include <stdint.h>

enum plan_part { PLAN_WEIGHTS, PLAN_GRADS, PLAN_MASTER, PLAN_MOMENTS, PLAN_PARTS };

struct plan_recipe {
    const char *name, *words;
    int bits[PLAN_PARTS]; /* of a parameter */
    int value_bytes;      /* of an element of activations, or of the cache of keys and values */
    int inference;        /* weights and the cache alone */
    int distributed;      /* master copy and moments are always divided over the data-parallel ranks */
    const char *note;     /* what the figures leave out; NULL: nothing */
};

const struct plan_recipe *plan_recipe_at(int i); /* NULL behind the last */

/* By its name. NULL with one line in err, which lists all. */
const struct plan_recipe *plan_recipe_find(const char *name, char *err, size_t err_len);

/* What a program was seen to have: bytes of weights, gradients and optimizer states a parameter. The optimizer's are a
 * master copy in fp32 (4, where weights are smaller) and moments of 4. */
struct plan_recipe_seen {
    const char *name; /* the words of the first recipe of training with these; NULL: none has them */
    int known;        /* 0: no combination of master copy and moments gives the states */
    int64_t weights, grads, master, moments; /* bytes; moments: together */
};
struct plan_recipe_seen plan_recipe_of(int64_t weights, int64_t grads, int64_t states);

#endif
