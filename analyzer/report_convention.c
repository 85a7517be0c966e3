/* The conventions by which people count the FLOPs of a training step (ACCOUNTING section 4), each with its formula
 * filled in. Attention's FLOPs are measured (A: its forward products), so that they hold for steps of any shape: the
 * formulas' 12·L·H·Q·context a token are 3·A, causal halves that. */
#include "analyzer/report_convention.h"

#include "plan/plan_convention.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const report_convention_names[REPORT_CONVENTIONS] = {[CONVENTION_6N] = "6n",
                                                                 [CONVENTION_6N_MATMUL] = "6n-matmul",
                                                                 [CONVENTION_PALM] = "palm",
                                                                 [CONVENTION_CAUSAL] = "causal"};
_Static_assert((int)WAY_6N == PLAN_6N && (int)WAY_6N_MATMUL == PLAN_6N_MATMUL &&
                   (int)WAY_6N_MATMUL_CAUSAL == PLAN_6N_MATMUL_CAUSAL && (int)WAY_CAUSAL == PLAN_CAUSAL &&
                   (int)WAY_6N_MATMUL_ATTENTION == PLAN_6N_MATMUL_ATTENTION &&
                   (int)WAY_PALM_LESS_POSITION == PLAN_PALM_LESS_POSITION && (int)WAY_PALM == PLAN_PALM &&
                   (int)WAY_EXECUTED == PLAN_CONVENTIONS,
               "the ways are plan's conventions, and one more");

#define MOST ((int64_t)1 << 56) /* of parameters or tokens: more is a damaged trace's */

/* The parameters that a way counts. */
static int64_t parameters_of(const struct report_conventions *c, enum way way) {
    int64_t n = c->fact[FACT_PARAMETERS], position = c->fact[FACT_POSITION];
    switch (plan_convention_row((enum plan_convention)way)->counted) {
    case PLAN_IN_PRODUCTS:
        return c->fact[FACT_IN_PRODUCTS];
    case PLAN_LESS_POSITION:
        return n == REPORT_UNKNOWN || position == REPORT_UNKNOWN ? REPORT_UNKNOWN : n - position;
    default:
        return n;
    }
}

/* L·H·Q·context, if the step's attention has the shape that the facts tell. */
static int shape_fits(const struct report_conventions *c, int64_t tokens, int64_t a) {
    static const enum model_fact factors[] = {FACT_LAYERS, FACT_HEADS, FACT_HEAD_SIZE, FACT_CONTEXT};
    __int128 flops = 4 * (__int128)tokens;
    for (int i = 0; i < 4; i++) {
        if (c->fact[factors[i]] <= 0 || flops > INT64_MAX) return 0;
        flops *= c->fact[factors[i]];
    }
    return flops == a;
}

static void write_formula(const struct report_conventions *c, int64_t n, int64_t tokens, int halves, int64_t a,
                          struct report_way *out) {
    int at = snprintf(out->formula, sizeof out->formula, "6 x %" PRId64 " x %" PRId64, n, tokens);
    char *rest = out->formula + at;
    size_t room = sizeof out->formula - (size_t)at;
    if (!halves || c->fact[FACT_ATTENTION] == 0) return;
    if (shape_fits(c, tokens, a))
        snprintf(rest, room, " + %d x %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64, 2 * halves,
                 c->fact[FACT_LAYERS], c->fact[FACT_HEADS], c->fact[FACT_HEAD_SIZE], c->fact[FACT_CONTEXT], tokens);
    else
        snprintf(rest, room, " + %s x %" PRId64, halves == 6 ? "3" : "1.5", a);
}

void report_way_of(const struct report *r, int64_t place, enum way way, struct report_way *out) {
    const struct report_conventions *c = r->conventions;
    const struct report_step *s = &r->steps[place];
    if (way == WAY_EXECUTED) {
        *out = (struct report_way){.name = "executed", .seen_in = "what ran, recomputation in"};
        out->flops = s->flops.gemm.least;
        if (s->flops.gemm.uncounted) out->lacks = "some products are not counted";
        return;
    }
    const struct plan_convention_row *row = plan_convention_row((enum plan_convention)way);
    int64_t n = parameters_of(c, way), a = c->attention[place];
    int halves = row->halves;
    *out = (struct report_way){.name = row->name, .seen_in = row->seen_in};
    if (!s->complete || s->flops.phase[PHASE_BACKWARD] <= 0)
        out->lacks = "no whole training step";
    else if (s->tokens == REPORT_UNKNOWN)
        out->lacks = "tokens";
    else if (n == REPORT_UNKNOWN || n <= 0)
        out->lacks = "parameters";
    else if (halves && (c->fact[FACT_ATTENTION] == REPORT_UNKNOWN || a == REPORT_UNKNOWN))
        out->lacks = "attention's shape";
    else if (n > MOST || s->tokens > MOST)
        out->lacks = "figures that can be";
    if (out->lacks) return;
    plan_convention_flops((enum plan_convention)way, n, s->tokens, a, &out->flops); /* far below int128's end */
    write_formula(c, n, s->tokens, halves, a, out);
}

const char *report_term_words(const char *term) {
    static const struct {
        const char *term, *words;
    } all[] = {
        {"6n", "6 x all parameters x tokens"},
        {"6n-matmul", "6 x parameters in matrix products x tokens (all parameters: not known)"},
        {"lookup tables", "rows are looked up, not multiplied"},
        {"position table", "rows are looked up by position"},
        {"parameters in no product", "biases, norms"},
        {"first input gradient", "the gradient of the first layer's input is not needed"},
        {"input gradients", "gradients of layers' inputs that nothing needs"},
        {"frozen weights", "no gradients of weights that are not trained"},
        {"own kernels", "forward multiplies in kernels of the program's own, counted among other FLOPs"},
        {"other rows", "weights used more often than once a token, or less"},
        {"attention forward", "scores and values: no parameters"},
        {"attention backward", "gradients of both factors of each"},
        {"recompute", "forward products done again in backward"},
        {"recompute attention", "likewise, of attention"},
        {"optimizer", "products inside the update"},
        {"kernels", "matrix instructions of kernels"},
        {"user's rules", "priced with --flops-rules"},
        {"unexplained", "what no term accounts for"},
        {"executed", "matrix products that ran"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].term, term)) return all[i].words;
    return NULL;
}
