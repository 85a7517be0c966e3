#include "plan/plan_memory_recipes.h"

#include <stdio.h>
#include <string.h>

#define SCALES "the scales of blocks are left out: 2 to 4 bytes for each block of 32 to 2048 values"

/* Bits of weights, gradients, master copy, moments. plan_recipe_of takes the first with its bytes. */
static const struct plan_recipe table[] = {
    {"fp32-sgd", "fp32 SGD", {32, 32, 0, 0}, 4, 0, 0, NULL},
    {"fp32-momentum", "fp32 with one moment (momentum, RMSProp, AdaGrad)", {32, 32, 0, 32}, 4, 0, 0, NULL},
    {"fp32-adagrad", "fp32 AdaGrad", {32, 32, 0, 32}, 4, 0, 0, NULL},
    {"fp32-rmsprop", "fp32 RMSProp", {32, 32, 0, 32}, 4, 0, 0, NULL},
    {"fp32-lion", "fp32 Lion", {32, 32, 0, 32}, 4, 0, 0, NULL},
    {"adamw-fp32", "fp32 Adam(W)", {32, 32, 0, 64}, 4, 0, 0, NULL},
    {"adamw-autocast",
     "fp32 Adam(W), products in 16 bits",
     {32, 32, 0, 64},
     2,
     0,
     0,
     "the copies of weights in 16 bits, which autocast keeps from their first use to the step's end, are left out: up "
     "to "
     "2 bytes a parameter"},
    {"adamw-bf16-master", "16 bits + fp32 master, 16-bit gradients, Adam(W)", {16, 16, 32, 64}, 2, 0, 0, NULL},
    {"megatron", "16 bits + fp32 master, fp32 gradients, Adam(W) (Megatron)", {16, 32, 32, 64}, 2, 0, 0, NULL},
    {"megatron-distributed",
     "16 bits, fp32 gradients; master and moments over the data-parallel ranks (Megatron distributed optimizer)",
     {16, 32, 32, 64},
     2,
     0,
     1,
     NULL},
    {"mixed-sgd", "16 bits + fp32 master, fp32 gradients, SGD", {16, 32, 32, 0}, 2, 0, 0, NULL},
    {"mixed-momentum",
     "16 bits + fp32 master, fp32 gradients, one moment (momentum, RMSProp, AdaGrad)",
     {16, 32, 32, 32},
     2,
     0,
     0,
     NULL},
    {"adamw-bf16", "bf16 throughout, moments too, Adam(W)", {16, 16, 0, 32}, 2, 0, 0, NULL},
    {"adamw-8bit", "fp32, moments in 8 bits, Adam(W)", {32, 32, 0, 16}, 4, 0, 0, SCALES},
    {"adamw-8bit-bf16", "bf16, moments in 8 bits, Adam(W)", {16, 16, 0, 16}, 2, 0, 0, SCALES},
    {"inference-fp32", "weights in fp32", {32, 0, 0, 0}, 4, 1, 0, NULL},
    {"inference-fp16", "weights in fp16", {16, 0, 0, 0}, 2, 1, 0, NULL},
    {"inference-bf16", "weights in bf16", {16, 0, 0, 0}, 2, 1, 0, NULL},
    {"inference-fp8", "weights in fp8", {8, 0, 0, 0}, 2, 1, 0, SCALES},
    {"inference-int8", "weights in int8", {8, 0, 0, 0}, 2, 1, 0, SCALES},
    {"inference-int4", "weights in int4", {4, 0, 0, 0}, 2, 1, 0, SCALES},
};
enum { RECIPES = sizeof table / sizeof *table };

const struct plan_recipe *plan_recipe_at(int i) {
    return i >= 0 && i < RECIPES ? &table[i] : NULL;
}

const struct plan_recipe *plan_recipe_find(const char *name, char *err, size_t err_len) {
    size_t n;
    for (int i = 0; i < RECIPES; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    n = (size_t)snprintf(err, err_len, "'%.40s' is no recipe; there are", name);
    for (int i = 0; i < RECIPES && n < err_len; i++)
        n += (size_t)snprintf(err + n, err_len - n, "%s %s", i ? "," : "", table[i].name);
    return NULL;
}

static int has(const struct plan_recipe *t, const struct plan_recipe_seen *s) {
    return !t->inference && t->bits[PLAN_WEIGHTS] == 8 * s->weights && t->bits[PLAN_GRADS] == 8 * s->grads &&
           t->bits[PLAN_MASTER] == 8 * s->master && t->bits[PLAN_MOMENTS] == 8 * s->moments;
}

struct plan_recipe_seen plan_recipe_of(int64_t weights, int64_t grads, int64_t states) {
    struct plan_recipe_seen s = {.weights = weights, .grads = grads, .master = weights < 4 && states >= 4 ? 4 : 0};
    s.moments = states - s.master;
    s.known = (weights == 2 || weights == 4) && (grads == 2 || grads == 4) && s.moments >= 0 && s.moments % 4 == 0;
    for (int i = RECIPES - 1; s.known && i >= 0; i--)
        if (has(&table[i], &s)) s.name = table[i].words;
    return s;
}
