/* What a report prints of FLOPs and bytes: sums with their bounds, functions, what was not counted. */
#include "analyzer/launch_sets.h"
#include "analyzer/report_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void null_range(struct emitter *e, const char *key, const char *label) {
    char most[64];
    emit_null(e, key, label);
    snprintf(most, sizeof most, "%s_most", key);
    if (!emit_for_people(e)) emit_null(e, most, NULL);
}

/* For people: what the user's rules priced, in part or in whole, is marked wherever it stands. */
static void print_users_sum(struct emitter *e, const char *label, const struct report_sum *s) {
    char text[96], amount[64];
    emit_human(amount, sizeof amount, UNIT_FLOPS, (double)s->least, 0);
    snprintf(text, sizeof text, "%s (user)", amount);
    emit_text(e, NULL, label, text);
}

void report_print_sum(struct emitter *e, const char *key, const char *label, const struct report_sum *s) {
    enum emit_certainty how = s->sampled && s->unbounded ? EMIT_ABOUT_OR_MORE
                              : s->sampled               ? EMIT_ABOUT
                              : s->unbounded             ? EMIT_AT_LEAST
                              : s->most != s->least      ? EMIT_BETWEEN
                                                         : EMIT_EXACT;
    if (s->uncounted)
        null_range(e, key, label);
    else if (s->user && label && emit_for_people(e))
        print_users_sum(e, label, s);
    else
        emit_range(e, key, label, UNIT_FLOPS, how, s->least, s->most);
}

/* ---- a step ---- */

static void print_other_phases(struct emitter *e, const struct report_flops *f) {
    emit_object(e, "other_by_phase", NULL, LOOK_HIDDEN);
    report_print_sum(e, "forward", NULL, &f->other_phase[PHASE_FORWARD]);
    report_print_sum(e, "backward", NULL, &f->other_phase[PHASE_BACKWARD]);
    report_print_sum(e, "optimizer", NULL, &f->other_phase[PHASE_OPTIMIZER]);
    report_print_sum(e, "recompute", NULL, &f->other_phase[PHASE_RECOMPUTE]);
    emit_end(e);
}

void report_print_flops(struct emitter *e, const struct report *r, const struct report_flops *f) {
    struct report_sum all = f->gemm;
    report_sum_add(&all, &f->other);
    emit_object(e, "flops", NULL, LOOK_FIELDS);
    report_print_sum(e, "total", NULL, &all);
    emit_text(e, "grade", NULL, report_grade_name(report_grade_of(&all)));
    report_print_sum(e, "gemm", "products", &f->gemm);
    report_print_sum(e, "other", "other FLOPs", &f->other);
    emit_int(e, "forward", "forward", UNIT_FLOPS, f->phase[PHASE_FORWARD]);
    emit_int(e, "backward", "backward", UNIT_FLOPS, f->phase[PHASE_BACKWARD]);
    emit_int(e, "optimizer", "optimizer", UNIT_FLOPS, f->phase[PHASE_OPTIMIZER]);
    emit_int(e, "recompute", r->flops.phase[PHASE_RECOMPUTE] ? "recompute" : NULL, UNIT_FLOPS,
             f->phase[PHASE_RECOMPUTE]);
    print_other_phases(e, f);
    emit_end(e);
}

/* ---- lists ---- */

void report_short_name(const char *name, char *out, size_t room) {
    if (!strncmp(name, "void ", 5)) name += 5; /* what a template returns */
    size_t n = launch_name_length(name);
    snprintf(out, room, "%.*s%s", n > 60 ? 57 : (int)n, name, n > 60 ? "..." : "");
}

/* A kernel's arguments are left out where people read. */
static void print_name(struct emitter *e, const char *name) {
    char text[80];
    report_short_name(name ? name : "", text, sizeof text);
    emit_text(e, "name", NULL, name ? name : "");
    emit_text(e, NULL, "function", text);
}

static void time_or_null(struct emitter *e, const struct report *r, int64_t time_ns) {
    if (time_ns == REPORT_UNKNOWN)
        emit_null(e, "time_ns", r->busy_ns ? "time" : NULL);
    else
        emit_int(e, "time_ns", r->busy_ns ? "time" : NULL, UNIT_NS, time_ns);
}

/* How many rows of a list by size are shown: people get the first ones. */
static int64_t shown(const struct emitter *e, int64_t n) {
    return emit_for_people(e) && n > 12 ? 12 : n;
}

static void first_of(char *label, size_t room, const char *what, int64_t n, int64_t all) {
    if (n < all)
        snprintf(label, room, "%s, the first %lld of %lld", what, (long long)n, (long long)all);
    else
        snprintf(label, room, "%s", what);
}

void report_print_coverage(struct emitter *e, const struct report *r) {
    emit_object(e, "coverage", NULL, LOOK_FIELDS);
    emit_real(e, "counted_time_share", NULL, UNIT_SHARE, r->counted_time_share);
    emit_real(e, "exact_time_share", NULL, UNIT_SHARE, r->exact_time_share);
    char label[96];
    int64_t n = shown(e, r->n_uncounted);
    first_of(label, sizeof label, "FLOPs not counted", n, r->n_uncounted);
    emit_list(e, "uncounted", n ? label : NULL, n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < n; i++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        print_name(e, r->uncounted[i].name);
        emit_int(e, "launches", "calls", UNIT_NONE, r->uncounted[i].launches);
        time_or_null(e, r, r->uncounted[i].time_ns);
        emit_real(e, "time_share", r->busy_ns ? "share" : NULL, UNIT_SHARE,
                  r->uncounted[i].time_ns == REPORT_UNKNOWN || !r->busy_ns
                      ? NAN
                      : (double)r->uncounted[i].time_ns / (double)r->busy_ns);
        emit_text(e, "why", "why", r->uncounted[i].why);
        emit_end(e);
    }
    emit_end(e);
    emit_end(e);
}

/* FLOPs a byte; NaN. Of people's three digits. */
static double intensity(const struct emitter *e, const struct report_function *f) {
    __int128 bytes = f->read.least + f->written.least;
    if (f->flops.uncounted || f->read.uncounted || f->written.uncounted || bytes <= 0) return NAN;
    double v = (double)f->flops.least / (double)bytes;
    if (!emit_for_people(e) || v == 0) return v;
    double unit = pow(10, floor(log10(v)) - 2);
    return round(v / unit) * unit;
}

static void bytes_or_null(struct emitter *e, const char *key, const char *label, const struct report_sum *s) {
    if (s->uncounted)
        emit_null(e, key, label);
    else
        emit_int(e, key, label, UNIT_BYTES, s->least);
}

static void print_cost(struct emitter *e, const struct report_function *f) {
    struct report_sum bytes = f->read;
    report_sum_add(&bytes, &f->written);
    report_print_sum(e, "flops", "FLOPs", &f->flops);
    emit_text(e, "grade", "grade", report_grade_name(report_grade_of(&f->flops)));
    bytes_or_null(e, "bytes_read", NULL, &f->read);
    bytes_or_null(e, "bytes_written", NULL, &f->written);
    bytes_or_null(e, NULL, "bytes", &bytes);
    emit_real(e, "intensity", "FLOP/byte", UNIT_NONE, intensity(e, f));
}

/* Where the device's time went; machines have all of a function in this list. */
static void print_times(struct emitter *e, const struct report *r) {
    char label[96];
    int64_t n = shown(e, r->n_functions);
    first_of(label, sizeof label, "Device time by function", n, r->n_functions);
    emit_list(e, "functions", r->busy_ns ? label : NULL, r->busy_ns ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < n; i++) {
        const struct report_function *f = &r->functions[i];
        emit_object(e, "", NULL, LOOK_FIELDS);
        print_name(e, f->name);
        emit_int(e, "calls", "calls", UNIT_NONE, f->calls);
        time_or_null(e, r, f->time_ns);
        emit_int(e, "timed", NULL, UNIT_NONE, f->timed);
        emit_real(e, NULL, "share", UNIT_SHARE,
                  f->time_ns == REPORT_UNKNOWN || !r->busy_ns ? NAN : (double)f->time_ns / (double)r->busy_ns);
        if (!emit_for_people(e)) {
            emit_int(e, "launches", NULL, UNIT_NONE, f->launches);
            print_cost(e, f);
            emit_real(e, "roofline_share", NULL, UNIT_SHARE, f->roofline_share);
        }
        emit_end(e);
    }
    emit_end(e);
}

/* A function none of whose calls is counted stands among those that are not. */
static int has_cost(const struct report_function *f) {
    return f->costed > f->flops.uncounted;
}

/* For people: what functions did, in a table of its own. */
static void print_costs(struct emitter *e, const struct report *r) {
    char label[128];
    int64_t all = 0, left, roofs = 0;
    for (int64_t i = 0; i < r->n_functions; i++) {
        all += has_cost(&r->functions[i]);
        roofs += r->functions[i].costed && !isnan(r->functions[i].roofline_share);
    }
    if (!emit_for_people(e) || !all) return;
    left = shown(e, all);
    first_of(label, sizeof label, "FLOPs and bytes by function (bytes: the least)", left, all);
    emit_list(e, NULL, label, LOOK_TABLE);
    for (int64_t i = 0; i < r->n_functions && left; i++) {
        const struct report_function *f = &r->functions[i];
        if (!has_cost(f)) continue;
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        print_name(e, f->name);
        emit_int(e, NULL, "calls", UNIT_NONE, f->calls);
        print_cost(e, f);
        if (roofs) emit_real(e, NULL, "of roofline", UNIT_SHARE, f->roofline_share);
        emit_end(e);
        left--;
    }
    emit_end(e);
}

void report_print_functions(struct emitter *e, const struct report *r) {
    print_times(e, r);
    print_costs(e, r);
}
