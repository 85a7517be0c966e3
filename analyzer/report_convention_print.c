/* Conventions side by side, and 6·N·T against what ran, through the emitter. */
#include "analyzer/report_convention.h"
#include "analyzer/report_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The step that stands for all: the last whole one that trains, with its tokens known. */
static int64_t chosen(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--) {
        const struct report_step *s = &r->steps[i];
        if (s->complete && s->tokens != REPORT_UNKNOWN && s->flops.phase[PHASE_BACKWARD] > 0) return i;
    }
    return -1;
}

/* MFU if the step's FLOPs were the way's: the same time at peak a FLOP as those that ran. HFU of what ran. */
static double way_mfu(const struct report_step *s, enum way way, const struct report_way *w) {
    double model = (double)(s->flops.gemm.least - s->flops.phase[PHASE_RECOMPUTE]);
    if (way == WAY_EXECUTED) return s->hfu;
    return w->lacks || !(model > 0) ? NAN : s->mfu * (double)w->flops / model;
}

static void print_way(struct emitter *e, const struct report_step *s, enum way way, const struct report_way *w) {
    double mfu = way_mfu(s, way, w);
    int tokens = s->tokens != REPORT_UNKNOWN && s->tokens > 0;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", "convention", w->name);
    emit_text(e, "formula", NULL, w->formula[0] ? w->formula : NULL);
    if (w->lacks)
        emit_null(e, "flops", "FLOPs");
    else
        emit_int(e, "flops", "FLOPs", UNIT_FLOPS, w->flops);
    emit_real(e, "flops_per_token", "a token", UNIT_FLOPS,
              w->lacks || !tokens ? NAN : (double)w->flops / (double)s->tokens);
    emit_real(e, "mfu", isnan(s->mfu) ? NULL : "MFU", UNIT_SHARE, mfu);
    emit_text(e, NULL, "formula", w->formula[0] ? w->formula : w->lacks ? w->lacks : "");
    emit_text(e, "seen_in", "seen in", w->seen_in);
    emit_text(e, "lacks", NULL, w->lacks);
    emit_end(e);
}

/* People are spared a way that counts the same as one before it, or that lacks something. */
static int is_worth_a_row(const struct report *r, int64_t place, enum way way, const struct report_way *w) {
    if (way == WAY_EXECUTED || way == WAY_6N) return 1;
    if (w->lacks) return 0;
    for (int i = 0; i < (int)way; i++) {
        struct report_way other;
        report_way_of(r, place, (enum way)i, &other);
        if (!other.lacks && other.flops == w->flops) return 0;
    }
    return 1;
}

void report_print_conventions(struct emitter *e, const struct report *r) {
    int64_t place = chosen(r);
    char label[128] = "";
    const struct report_step *s = place < 0 ? NULL : &r->steps[place];
    if (s)
        snprintf(label, sizeof label, "FLOPs of a step by convention (step %lld, %lld tokens or samples)",
                 (long long)s->index, (long long)s->tokens);
    emit_object(e, "conventions", NULL, s ? LOOK_FIELDS : LOOK_HIDDEN);
    report_print_int(e, "step", NULL, UNIT_NONE, s ? s->index : REPORT_UNKNOWN);
    report_print_int(e, "tokens", NULL, UNIT_NONE, s ? s->tokens : REPORT_UNKNOWN);
    emit_list(e, "ways", s ? label : NULL, s ? LOOK_TABLE : LOOK_HIDDEN);
    for (int way = 0; s && way < REPORT_WAYS; way++) {
        struct report_way w;
        report_way_of(r, place, (enum way)way, &w);
        if (!emit_for_people(e) || is_worth_a_row(r, place, (enum way)way, &w)) print_way(e, s, (enum way)way, &w);
    }
    emit_end(e);
    emit_end(e);
}

static void print_term(struct emitter *e, const char *name, __int128 flops) {
    char digits[41];
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "term", "term", name);
    emit_digits(digits, flops);
    emit_int(e, "flops", "FLOPs", UNIT_FLOPS, flops);
    emit_text(e, NULL, "exactly", digits);
    emit_text(e, "words", "what", report_term_words(name));
    emit_end(e);
}

void report_print_difference(struct emitter *e, const struct report *r) {
    const struct report_conventions *c = r->conventions;
    const struct report_step *s = c->step < 0 ? NULL : &r->steps[c->step];
    char label[96] = "";
    int64_t n = s ? c->n_terms : 0;
    if (s) snprintf(label, sizeof label, "6n against what ran (step %lld)", (long long)s->index);
    emit_object(e, "flops_difference", NULL, n ? LOOK_FIELDS : LOOK_HIDDEN);
    report_print_int(e, "step", NULL, UNIT_NONE, s ? s->index : REPORT_UNKNOWN);
    emit_list(e, "terms", n ? label : NULL, n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < n; i++) {
        const struct report_term *t = &c->terms[i];
        __int128 flops = t->flops;
        if (!strcmp(t->name, "executed") && !s->flops.gemm.uncounted) {
            if (s->flops.gemm.least != flops) print_term(e, "user's rules", s->flops.gemm.least - flops);
            flops = s->flops.gemm.least;
        }
        print_term(e, t->name, flops);
    }
    emit_end(e);
    emit_end(e);
}

void report_print_model(struct emitter *e, const struct report *r) {
    static const char *const labels[MODEL_FACTS] = {[FACT_PARAMETERS] = "N, parameters",
                                                    [FACT_IN_PRODUCTS] = "in products",
                                                    [FACT_LOOKUP] = "lookup tables",
                                                    [FACT_POSITION] = "position table",
                                                    [FACT_OTHER] = "biases, norms",
                                                    [FACT_TIED] = "tied",
                                                    [FACT_FROZEN] = "frozen",
                                                    [FACT_TOKENS] = "T, tokens",
                                                    [FACT_ATTENTION] = "attention",
                                                    [FACT_LAYERS] = "L, layers",
                                                    [FACT_HEADS] = "H, heads",
                                                    [FACT_HEAD_SIZE] = "Q, head size",
                                                    [FACT_CONTEXT] = "context",
                                                    [FACT_SEQUENCES] = "sequences"};
    const struct report_conventions *c = r->conventions;
    int any = 0;
    for (int f = 0; f < MODEL_FACTS; f++) any |= c->how[f] != NULL;
    emit_list(e, "model", any ? "The model, as the trace tells it" : NULL, any ? LOOK_TABLE : LOOK_HIDDEN);
    for (int f = 0; f < MODEL_FACTS; f++) {
        if (!c->how[f] || (emit_for_people(e) && !c->fact[f])) continue;
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "fact", NULL, report_fact_names[f]);
        emit_text(e, NULL, "fact", labels[f]);
        report_print_int(e, "value", "value", UNIT_NONE, c->fact[f]);
        emit_text(e, "how", "how it is known", c->how[f]);
        emit_end(e);
    }
    emit_end(e);
}
