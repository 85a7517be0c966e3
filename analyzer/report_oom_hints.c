/* What could be done about memory that was wanting. Each sentence is arithmetic on numbers of the trace; what rests on
 * an assumption says which. */
#include "analyzer/report_oom.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAM, GRAD, OPTIMIZER, ACTIVATION, ACTIVATION_GRAD, INPUT, WORKSPACE, TEMPORARY }; /* report_class_names */

void report_oom_hint(struct report_oom *o, const char *format, ...) {
    char *text;
    va_list ap;
    va_start(ap, format);
    if (vasprintf(&text, format, ap) < 0) text = NULL;
    va_end(ap);
    o->hints = report_grow(o->hints, o->n_hints, sizeof *o->hints);
    if (text) o->hints[o->n_hints++] = text;
}

static const char *human(int64_t bytes, char out[64]) {
    emit_human_bytes(out, 64, bytes);
    return out;
}

static int64_t of_batch(const struct report_oom *o) {
    return o->live[ACTIVATION] + o->live[ACTIVATION_GRAD] + o->live[TEMPORARY] + o->live[INPUT];
}

/* Rows of the step that was cut off, else of the last one before it. */
static int64_t rows_of(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].tokens != REPORT_UNKNOWN && r->steps[i].start_ns <= r->oom->call->start_ns)
            return r->steps[i].tokens;
    return REPORT_UNKNOWN;
}

/* Live memory of the batch and the call's own shrink together, all else stays: a line through the origin. */
static void hint_batch(const struct report *r, struct report_oom *o) {
    int64_t batch = of_batch(o), rows = rows_of(r);
    int in_step = o->phase[0] && strcmp(o->phase, "optimizer");
    char a[64], b[64], of_rows[96] = "";
    if (batch <= 0 || o->missing_bytes == REPORT_UNKNOWN || o->missing_bytes <= 0) return;
    double grows = (double)batch + (in_step ? (double)o->call->asked_bytes : 0);
    double most = (grows - (double)o->missing_bytes) / grows;
    if (most <= 0) {
        report_oom_hint(o,
                        "Activations, their gradients, temporaries and inputs: %s. Without any of it the call would "
                        "still have lacked %s.",
                        human(batch, a), human(o->missing_bytes - batch, b));
        return;
    }
    if (rows != REPORT_UNKNOWN)
        snprintf(of_rows, sizeof of_rows, ", %lld of %lld rows (tokens or samples)",
                 (long long)floor(most * (double)rows), (long long)rows);
    report_oom_hint(
        o,
        "Activations, their gradients, temporaries and inputs: %s, %.1f %% of what was live. They grow with "
        "the batch: at most %.1f %% of it%s would have let this call succeed. An estimate: %s taken to be "
        "proportional, and what the step would have asked for later is not in it.",
        human(batch, a), 100.0 * (double)batch / (double)o->live_bytes, floor(1000 * most) / 10, of_rows,
        in_step ? "these and what was asked for are" : "these are");
}

static void hint_recompute(struct report_oom *o) {
    char a[64];
    if (o->live[ACTIVATION] <= 0) return;
    report_oom_hint(
        o,
        "Computing activations again in backward, in place of keeping them, frees up to %s, less the inputs "
        "of the pieces that are recomputed.",
        human(o->live[ACTIVATION], a));
}

static int about(double x, double y) {
    return fabs(x - y) < 0.02 * y;
}

static int has_whole_step(const struct report *r) {
    for (int64_t i = 0; i < r->n_steps; i++)
        if (r->steps[i].complete) return 1;
    return 0;
}

/* Bytes a parameter say which optimizer it is like, once it has been at work. */
static void hint_optimizer(const struct report *r, struct report_oom *o) {
    int64_t bytes = o->live[OPTIMIZER];
    char a[64], b[64], c[64];
    if (bytes <= 0 || r->parameters <= 0 || !has_whole_step(r)) return;
    double each = (double)bytes / (double)r->parameters;
    if (about(each, 8))
        report_oom_hint(o,
                        "Optimizer state: %s, 8 bytes a parameter (two fp32 numbers, as Adam keeps). One number "
                        "(momentum) would free %s; two in 8 bits %s; plain SGD all of it.",
                        human(bytes, a), human(bytes / 2, b), human(bytes / 4 * 3, c));
    else if (about(each, 4))
        report_oom_hint(o,
                        "Optimizer state: %s, 4 bytes a parameter (one fp32 number, as momentum keeps). Plain SGD has "
                        "none.",
                        human(bytes, a));
    else if (about(each, 12))
        report_oom_hint(o,
                        "Optimizer state: %s, 12 bytes a parameter (a master copy and two fp32 numbers). The two in 8 "
                        "bits would free %s.",
                        human(bytes, a), human(bytes / 2, b));
    else
        report_oom_hint(o, "Optimizer state: %s, %.2f bytes a parameter.", human(bytes, a), each);
}

static void hint_gradients(struct report_oom *o) {
    char a[64];
    if (o->live[GRAD] > 0 && !strcmp(o->phase, "forward"))
        report_oom_hint(
            o,
            "Gradients: %s are live in forward, which needs none (nor does it with accumulation in its first "
            "micro-batch): released after the update, they would have been free here.",
            human(o->live[GRAD], a));
}

static void hint_rest(struct report_oom *o) {
    char a[64];
    if (o->slack_bytes != REPORT_UNKNOWN && o->slack_bytes > 0 && o->call->kind == OOM_DEVICE)
        report_oom_hint(o,
                        "The pool of stream-ordered memory holds %s that no allocation has: cudaMemPoolTrimTo, or a "
                        "smaller cudaMemPoolAttrReleaseThreshold, gives it back.",
                        human(o->slack_bytes, a));
    if (o->live[WORKSPACE] > 0 && o->missing_bytes > 0 && o->live[WORKSPACE] >= o->missing_bytes)
        report_oom_hint(o, "Workspaces: %s, more than was missing.", human(o->live[WORKSPACE], a));
    if (o->missing_bytes == 0)
        report_oom_hint(o,
                        "As much was free as was asked for: the device gives whole pieces (2 MiB as a rule), and one "
                        "allocation has to be of one piece of a pool.");
    if (2 * o->live[REPORT_UNKNOWN_CLASS] > o->live_bytes)
        report_oom_hint(o, "Most of what was live has no class: the run ended before its use could be seen.");
}

void report_oom_hints(struct report *r) {
    struct report_oom *o = r->oom;
    if (o->call->kind == OOM_HOST) return;
    hint_batch(r, o);
    hint_recompute(o);
    hint_gradients(o);
    hint_optimizer(r, o);
    hint_rest(o);
}
