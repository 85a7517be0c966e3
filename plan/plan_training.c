#include "plan/plan_training.h"

#include "plan/plan_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGREE 1e-3

static const char *const names[PLAN_QUANTITIES] = {
    [PLAN_PARAMETERS] = "params",
    [PLAN_COEFFICIENT] = "FLOPs per parameter and token",
    [PLAN_FLOPS_PER_TOKEN] = "FLOPs per token",
    [PLAN_TOKENS] = "tokens",
    [PLAN_TOTAL] = "FLOPs",
    [PLAN_GPUS] = "gpus",
    [PLAN_PEAK] = "peak",
    [PLAN_MFU] = "MFU",
    [PLAN_TIME] = "time",
    [PLAN_GPU_HOURS] = "GPU hours",
    [PLAN_PRICE] = "price",
    [PLAN_COST] = "budget",
    [PLAN_TOKEN_RATE] = "tokens/s",
    [PLAN_STEP_TOKENS] = "tokens of a step",
    [PLAN_STEPS] = "steps",
    [PLAN_STEP_FLOPS] = "FLOPs of a step",
    [PLAN_STEP_TIME] = "time of a step",
    [PLAN_PER_DAY] = "FLOPs a day",
    [PLAN_RATE_EACH] = "tokens/s of a GPU",
    [PLAN_TOKENS_A_DAY] = "tokens a day",
    [PLAN_ACHIEVED] = "FLOP/s",
    [PLAN_ACHIEVED_EACH] = "FLOP/s of a GPU",
    [PLAN_PEAK_TIME] = "time at peak",
    [PLAN_STEP_PEAK_TIME] = "time of a step at peak",
    [PLAN_OVERHEAD] = "executed/model",
    [PLAN_EXECUTED] = "FLOPs executed",
    [PLAN_HFU] = "HFU",
};

/* left = number · the product of right. The first that gives a quantity is the one that people are shown. */
enum { FACTORS = 4 };
#define NONE PLAN_QUANTITIES
static const struct equation {
    enum plan_quantity left[2], right[FACTORS];
    double number;
} equations[] = {
    {{PLAN_FLOPS_PER_TOKEN, NONE}, {PLAN_COEFFICIENT, PLAN_PARAMETERS, NONE, NONE}, 1},
    {{PLAN_TOTAL, NONE}, {PLAN_FLOPS_PER_TOKEN, PLAN_TOKENS, NONE, NONE}, 1},
    {{PLAN_TOTAL, NONE}, {PLAN_GPUS, PLAN_PEAK, PLAN_MFU, PLAN_TIME}, 1},
    {{PLAN_TOKENS, NONE}, {PLAN_TOKEN_RATE, PLAN_TIME, NONE, NONE}, 1},
    {{PLAN_FLOPS_PER_TOKEN, PLAN_TOKEN_RATE}, {PLAN_GPUS, PLAN_PEAK, PLAN_MFU, NONE}, 1},
    {{PLAN_GPUS, PLAN_TIME}, {PLAN_GPU_HOURS, NONE, NONE, NONE}, 3600},
    {{PLAN_COST, NONE}, {PLAN_GPU_HOURS, PLAN_PRICE, NONE, NONE}, 1},
    {{PLAN_TOTAL, NONE}, {PLAN_GPU_HOURS, PLAN_PEAK, PLAN_MFU, NONE}, 3600},
    {{PLAN_STEP_FLOPS, NONE}, {PLAN_FLOPS_PER_TOKEN, PLAN_STEP_TOKENS, NONE, NONE}, 1},
    {{PLAN_TOKENS, NONE}, {PLAN_STEPS, PLAN_STEP_TOKENS, NONE, NONE}, 1},
    {{PLAN_STEP_FLOPS, NONE}, {PLAN_GPUS, PLAN_PEAK, PLAN_MFU, PLAN_STEP_TIME}, 1},
    {{PLAN_STEP_TOKENS, NONE}, {PLAN_TOKEN_RATE, PLAN_STEP_TIME, NONE, NONE}, 1},
    {{PLAN_TOTAL, NONE}, {PLAN_ACHIEVED, PLAN_TIME, NONE, NONE}, 1},
    {{PLAN_ACHIEVED, NONE}, {PLAN_FLOPS_PER_TOKEN, PLAN_TOKEN_RATE, NONE, NONE}, 1},
    {{PLAN_ACHIEVED, NONE}, {PLAN_GPUS, PLAN_ACHIEVED_EACH, NONE, NONE}, 1},
    {{PLAN_ACHIEVED_EACH, NONE}, {PLAN_PEAK, PLAN_MFU, NONE, NONE}, 1},
    {{PLAN_PER_DAY, NONE}, {PLAN_GPUS, PLAN_PEAK, PLAN_MFU, NONE}, 86400},
    {{PLAN_TOKEN_RATE, NONE}, {PLAN_GPUS, PLAN_RATE_EACH, NONE, NONE}, 1},
    {{PLAN_TOKENS_A_DAY, NONE}, {PLAN_TOKEN_RATE, NONE, NONE, NONE}, 86400},
    {{PLAN_TOTAL, NONE}, {PLAN_GPUS, PLAN_PEAK, PLAN_PEAK_TIME, NONE}, 1},
    {{PLAN_STEP_FLOPS, NONE}, {PLAN_GPUS, PLAN_PEAK, PLAN_STEP_PEAK_TIME, NONE}, 1},
    {{PLAN_EXECUTED, NONE}, {PLAN_TOTAL, PLAN_OVERHEAD, NONE, NONE}, 1},
    {{PLAN_HFU, NONE}, {PLAN_MFU, PLAN_OVERHEAD, NONE, NONE}, 1},
};
enum { EQUATIONS = sizeof equations / sizeof *equations };

void plan_training_begin(struct plan_training *t) {
    for (int q = 0; q < PLAN_QUANTITIES; q++) {
        t->value[q] = NAN;
        t->by[q] = PLAN_OPEN;
    }
    plan_training_give(t, PLAN_COEFFICIENT, 6);
}

void plan_training_give(struct plan_training *t, enum plan_quantity q, double value) {
    t->value[q] = value;
    t->by[q] = isnan(value) ? PLAN_OPEN : PLAN_GIVEN;
}

const char *plan_quantity_name(enum plan_quantity q) {
    return names[q];
}

/* The i-th quantity of an equation and the side on which it stands; NONE behind the last. */
static enum plan_quantity member(const struct equation *e, int i, int *on_left) {
    *on_left = i < 2;
    return i < 2 ? e->left[i] : e->right[i - 2];
}

/* What the equation makes of q, from the others. */
static double value_of(const struct plan_training *t, const struct equation *e, enum plan_quantity q) {
    double left = 1, right = e->number;
    int q_left = 0, on_left;
    for (int i = 0; i < 2 + FACTORS; i++) {
        enum plan_quantity other = member(e, i, &on_left);
        if (other == q)
            q_left = on_left;
        else if (other != NONE)
            *(on_left ? &left : &right) *= t->value[other];
    }
    return q_left ? right / left : left / right;
}

/* How many of an equation's quantities are not known; *which: one of them. */
static int open_in(const struct plan_training *t, const struct equation *e, enum plan_quantity *which) {
    int n = 0, on_left;
    for (int i = 0; i < 2 + FACTORS; i++) {
        enum plan_quantity q = member(e, i, &on_left);
        if (q == NONE || t->by[q] != PLAN_OPEN) continue;
        *which = q;
        n++;
    }
    return n;
}

static void write_side(const struct plan_training *t, const struct equation *e, enum plan_quantity q, int lower,
                       int numbers, char *out, size_t room) {
    int q_left = 0, on_left, n = 0;
    size_t at = 0;
    char number[40];
    room -= 2; /* for parentheses */
    for (int i = 0; i < 2; i++) q_left |= e->left[i] == q;
    *out = 0;
    /* The upper side is the one across from q's; the number stands on the right. */
    if (e->number != 1 && lower == !q_left) {
        plan_show(number, sizeof number, e->number);
        at = (size_t)snprintf(out, room, "%s", number);
        n = 1;
    }
    for (int i = 0; i < 2 + FACTORS && at < room; i++) {
        enum plan_quantity other = member(e, i, &on_left);
        if (other == NONE || other == q || (on_left == q_left) != lower) continue;
        if (t->by[other] == PLAN_GIVEN && other != PLAN_OVERHEAD && fabs(t->value[other]) < 1e15)
            plan_show(number, sizeof number, t->value[other]);
        else
            plan_show_short(number, sizeof number, t->value[other]);
        at += (size_t)snprintf(out + at, room - at, "%s%s", n++ ? " x " : "", numbers ? number : names[other]);
    }
    if (!n) snprintf(out, room, "1");
    if (n > 1 && lower) {
        memmove(out + 1, out, strlen(out) + 1); /* room was kept */
        *out = '(';
        strcat(out, ")");
    }
}

static void write_equation(const struct plan_training *t, const struct equation *e, enum plan_quantity q, int numbers,
                           char *out, size_t room) {
    char upper[256], lower[256];
    write_side(t, e, q, 0, numbers, upper, sizeof upper);
    write_side(t, e, q, 1, numbers, lower, sizeof lower);
    if (!strcmp(lower, "1"))
        snprintf(out, room, "%s", upper);
    else
        snprintf(out, room, "%s / %s", upper, lower);
}

void plan_training_formula(const struct plan_training *t, enum plan_quantity q, char *out, size_t room) {
    char words[520], numbers[520];
    *out = 0;
    if (t->by[q] < 0) return;
    write_equation(t, &equations[t->by[q]], q, 0, words, sizeof words);
    write_equation(t, &equations[t->by[q]], q, 1, numbers, sizeof numbers);
    snprintf(out, room, "%s = %s", words, numbers);
}

/* An equation of which all is known otherwise. */
static int check(const struct plan_training *t, int i, char *err, size_t err_len) {
    const struct equation *e = &equations[i];
    char is[40], would[40], words[520];
    enum plan_quantity shown = e->left[0];
    int on_left;
    for (int m = 0; m < 2 + FACTORS; m++) {
        enum plan_quantity q = member(e, m, &on_left);
        if (q == NONE) continue;
        if (t->by[q] == i) return 0;
        if (t->by[q] == PLAN_GIVEN && q != PLAN_COEFFICIENT) shown = q;
    }
    double v = value_of(t, e, shown);
    if (fabs(v / t->value[shown] - 1) <= AGREE) return 0;
    write_equation(t, e, shown, 0, words, sizeof words);
    plan_show_short(is, sizeof is, t->value[shown]);
    plan_show_short(would, sizeof would, v);
    snprintf(err, err_len, "contradiction: %s is %s%s, but %s is %s%s; leave one of them out", names[shown], is,
             shown == PLAN_TIME ? " s" : "", words, would, shown == PLAN_TIME ? " s" : "");
    return -1;
}

int plan_training_solve(struct plan_training *t, char *err, size_t err_len) {
    enum plan_quantity q = NONE;
    for (int i = 0, again = 0; i < EQUATIONS || again; i++) {
        if (i == EQUATIONS) i = again = 0;
        if (open_in(t, &equations[i], &q) != 1) continue;
        t->value[q] = value_of(t, &equations[i], q);
        t->by[q] = i;
        again = 1;
        if (isnormal(t->value[q])) continue;
        snprintf(err, err_len, "%s is beyond what can be computed (2.2e-308 to 1.8e308)", names[q]);
        return -1;
    }
    for (int i = 0; i < EQUATIONS; i++)
        if (!open_in(t, &equations[i], &q) && check(t, i, err, err_len)) return -1;
    return 0;
}

double plan_mixed_peak(int n, const double *flops, const double *peak) {
    double all = 0, seconds = 0;
    for (int i = 0; i < n; i++) {
        all += flops[i];
        seconds += flops[i] / peak[i];
    }
    return all / seconds;
}
