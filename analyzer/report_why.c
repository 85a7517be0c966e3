/* Where a step's time goes, through the emitter. */
#include "analyzer/report_why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *detail_label(int detail, char *room, size_t size) {
    static const char *const labels[SPLIT_DETAILS] = {
        [SPLIT_VECTOR] = "other kernels",
        [SPLIT_MEMORY_PRODUCTS] = "products",
        [SPLIT_MEMORY_KERNELS] = "other kernels",
        [SPLIT_NO_ROOF_PRODUCTS] = "products",
        [SPLIT_NO_ROOF] = "other kernels",
        [SPLIT_UNCOUNTED] = "uncounted",
        [SPLIT_UNATTRIBUTED] = "no call",
        [SPLIT_GRAPH] = "graphs",
        [SPLIT_TINY] = "tiny kernels",
        [SPLIT_OTHER_STEPS] = "evaluation",
        [SPLIT_COLLECTIVE] = "collectives",
        [SPLIT_PEER] = "peer copies",
        [SPLIT_H2D] = "to the device",
        [SPLIT_D2H] = "to the host",
        [SPLIT_D2D] = "on the device",
        [SPLIT_OTHER_COPY] = "other copies",
        [SPLIT_MEMSET] = "memsets",
        [SPLIT_LATENCY] = "latency",
        [SPLIT_CALLS] = "launch calls",
        [SPLIT_BETWEEN] = "between calls",
        [SPLIT_STAGING] = "copy calls",
        [SPLIT_ALLOCATION] = "allocations",
        [SPLIT_WAITING] = "waiting",
        [SPLIT_QUEUED] = "queued",
        [SPLIT_HOST] = "host elsewhere",
        [SPLIT_GAP] = "unexplained",
    };
    if (labels[detail]) return labels[detail];
    snprintf(room, size, "%s products", devices_format_name(detail - SPLIT_PRODUCTS));
    return room;
}

static double share_of(const struct split_step *s, int64_t ns) {
    return s->ns > 0 ? (double)ns / (double)s->ns : NAN;
}

/* ---- for people: a row a detail ---- */

static void people_detail(struct emitter *e, const struct report *r, const struct split_step *s, int detail,
                          int first) {
    char part[64] = "", room[64], words[400];
    enum split_part p = split_part_of(detail);
    if (first) snprintf(part, sizeof part, "%s %.1f %%", split_part_name(p), 100 * share_of(s, split_part_ns(s, p)));
    why_detail_words(words, sizeof words, r, s, detail);
    emit_object(e, NULL, NULL, LOOK_FIELDS);
    emit_text(e, NULL, "part", part);
    emit_text(e, NULL, "of it", detail_label(detail, room, sizeof room));
    emit_int(e, NULL, "time", UNIT_NS, s->detail[detail].ns);
    emit_text(e, NULL, "arithmetic", words);
    emit_end(e);
}

static void people_device(struct emitter *e, const struct report *r, const struct split_step *s) {
    emit_list(e, NULL, NULL, LOOK_TABLE);
    for (int p = 0; p < SPLIT_PARTS; p++) {
        int first = 1;
        for (int d = 0; d < SPLIT_DETAILS; d++) {
            if (split_part_of(d) != (enum split_part)p || !s->detail[d].ns) continue;
            people_detail(e, r, s, d, first);
            first = 0;
        }
    }
    emit_end(e);
}

static void people_host(struct emitter *e, const struct split_step *s) {
    static const char *const words[SPLIT_HOSTS] = {
        "calls that launch",      "calls that copy", "calls that allocate or release",
        "waiting for the device", "other calls",     "no CUDA call"};
    emit_list(e, NULL, NULL, LOOK_TABLE);
    for (int h = 0; h < SPLIT_HOSTS; h++) {
        if (!s->host_ns[h]) continue;
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        emit_text(e, NULL, "the host was in", words[h]);
        if (h == HOST_OUTSIDE)
            emit_text(e, NULL, "calls", "");
        else
            emit_int(e, NULL, "calls", UNIT_NONE, s->host_calls[h]);
        emit_int(e, NULL, "time", UNIT_NS, s->host_ns[h]);
        emit_real(e, NULL, "share", UNIT_SHARE, share_of(s, s->host_ns[h]));
        emit_end(e);
    }
    emit_end(e);
}

/* ---- for machines ---- */

static void ns_or_null(struct emitter *e, const char *key, double ns) {
    emit_real(e, key, NULL, UNIT_NS, ns);
}

static void machine_detail(struct emitter *e, const struct report *r, const struct split_step *s, int detail) {
    const struct split_detail *d = &s->detail[detail];
    char words[400];
    why_detail_words(words, sizeof words, r, s, detail);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", NULL, split_detail_name(detail));
    emit_int(e, "ns", NULL, UNIT_NS, d->ns);
    emit_int(e, "count", NULL, UNIT_NONE, d->count);
    emit_int(e, "device_ns", NULL, UNIT_NS, d->device_ns);
    emit_real(e, "flops", NULL, UNIT_FLOPS, d->flops);
    emit_real(e, "bytes", NULL, UNIT_BYTES, d->bytes);
    ns_or_null(e, "roof_ns", d->device_ns ? d->roof_ns : NAN);
    emit_text(e, "words", NULL, words);
    emit_end(e);
}

/* Of a part's time, what its roofs allow; NaN where that is not known. */
static double part_roof(const struct split_step *s, enum split_part part) {
    double ns = 0;
    for (int d = 0; d < SPLIT_DETAILS; d++)
        if (split_part_of(d) == part && s->detail[d].ns) ns += s->detail[d].booked_ns;
    return ns;
}

static void machine_part(struct emitter *e, const struct report *r, const struct split_step *s, enum split_part part) {
    int64_t ns = split_part_ns(s, part);
    int has_roof = part == SPLIT_COMPUTE || part == SPLIT_MEMORY;
    double roof = part_roof(s, part);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", NULL, split_part_name(part));
    emit_int(e, "ns", NULL, UNIT_NS, ns);
    emit_real(e, "share", NULL, UNIT_SHARE, share_of(s, ns));
    if (has_roof) {
        emit_int(e, "roof_ns", NULL, UNIT_NS, llround(roof));
        emit_int(e, "excess_ns", NULL, UNIT_NS, ns - llround(roof));
    }
    emit_list(e, "details", NULL, LOOK_HIDDEN);
    for (int d = 0; d < SPLIT_DETAILS; d++)
        if (split_part_of(d) == part && (s->detail[d].ns || s->detail[d].count)) machine_detail(e, r, s, d);
    emit_end(e);
    emit_end(e);
}

static void machine_parts(struct emitter *e, const struct report *r, const struct split_step *s) {
    emit_list(e, "parts", NULL, LOOK_HIDDEN);
    for (int p = 0; p < SPLIT_PARTS && s->on_device; p++) machine_part(e, r, s, (enum split_part)p);
    emit_end(e);
    emit_list(e, "host", NULL, LOOK_HIDDEN);
    for (int h = 0; h < SPLIT_HOSTS && !s->on_device; h++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "name", NULL, split_host_name((enum split_host)h));
        emit_int(e, "ns", NULL, UNIT_NS, s->host_ns[h]);
        emit_int(e, "calls", NULL, UNIT_NONE, s->host_calls[h]);
        emit_end(e);
    }
    emit_end(e);
}

/* ---- time at the peak ---- */

/* `6.00 PFLOP / 1978.9 TFLOP/s (fp8) + …`, or what is missing; FLOPs with recomputation. */
static void peak_words(const struct report *r, const double *flops, char *out, size_t room) {
    size_t n = 0;
    *out = 0;
    for (int f = 0; f <= PEAK_FORMATS && n < room; f++) {
        char amount[64], rate[64] = "an unknown peak";
        if (flops[f] == 0) continue;
        emit_human(amount, sizeof amount, UNIT_FLOPS, flops[f], 0);
        if (f < PEAK_FORMATS && r->peak[f] > 0) emit_human(rate, sizeof rate, UNIT_FLOPS_PER_S, r->peak[f], 0);
        n += (size_t)snprintf(out + n, room - n, "%s%s / %s (%s)", n ? " + " : "", amount, rate,
                              f < PEAK_FORMATS ? devices_format_name(f) : "other formats");
    }
}

/* What the step's products, recomputation included, take at the peaks of their formats: the numerator of HFU. */
static void print_at_peak(struct emitter *e, const struct report *r, const struct report_step *step) {
    double flops[PEAK_FORMATS + 1];
    char words[400], ns[64], whole[600];
    for (int f = 0; f <= PEAK_FORMATS; f++) flops[f] = step->flops.by_format[f] + step->flops.recompute_by_format[f];
    double at_peak = 1e9 * report_peak_seconds(r, flops);
    emit_real(e, "peak_ns", NULL, UNIT_NS, step->flops.gemm.uncounted ? NAN : at_peak);
    emit_list(e, "at_peak", NULL, LOOK_HIDDEN);
    for (int f = 0; f <= PEAK_FORMATS; f++) {
        if (flops[f] == 0) continue;
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "format", NULL, f < PEAK_FORMATS ? devices_format_name(f) : NULL);
        emit_real(e, "flops", NULL, UNIT_FLOPS, flops[f]);
        emit_real(e, "peak_flops", NULL, UNIT_FLOPS_PER_S, f < PEAK_FORMATS ? r->peak[f] : NAN);
        emit_end(e);
    }
    emit_end(e);
    if (!emit_for_people(e) || !(at_peak > 0)) return;
    peak_words(r, flops, words, sizeof words);
    emit_human(ns, sizeof ns, UNIT_NS, at_peak, 0);
    snprintf(whole, sizeof whole, "%s = %s: %.3g %% of the time", words, ns,
             step->ns > 0 ? 100 * at_peak / (double)step->ns : NAN);
    emit_text(e, NULL, "products at the peak", whole);
}

/* ---- phases ---- */

static void print_phase(struct emitter *e, const struct report *r, const struct split_step *s, enum report_phase p) {
    const struct report_flops *f = &r->steps[s->index].flops;
    double seconds = (double)s->phase_ns[p] * 1e-9, peak = report_peak_seconds(r, f->phase_by_format[p]);
    int counts = p < PHASE_NONE && seconds > 0 && !f->gemm.uncounted;
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "name", NULL, report_phase_names[p]);
    emit_text(e, NULL, "phase", p == PHASE_NONE ? "in no phase" : report_phase_names[p]);
    emit_int(e, "ns", "time", UNIT_NS, s->phase_ns[p]);
    emit_real(e, "share", "share", UNIT_SHARE, share_of(s, s->phase_ns[p]));
    if (p < PHASE_NONE)
        emit_int(e, "gemm_flops", "products", UNIT_FLOPS, f->phase[p]);
    else
        emit_null(e, "gemm_flops", "products"); /* they are no step's */
    emit_real(e, "peak_ns", "at the peak", UNIT_NS, p < PHASE_NONE ? 1e9 * peak : NAN);
    emit_real(e, "hfu", "of the peak", UNIT_SHARE, counts ? peak / seconds : NAN);
    emit_end(e);
}

void why_print_phases(struct emitter *e, const struct report *r, const struct split_step *s, const char *label) {
    emit_list(e, "phases", label, label ? LOOK_TABLE : LOOK_HIDDEN);
    for (int p = 0; p < REPORT_PHASES && s->on_device; p++)
        if (s->phase_ns[p] || (p < PHASE_NONE && r->steps[s->index].flops.phase[p]))
            print_phase(e, r, s, (enum report_phase)p);
    emit_end(e);
}

void why_print_parts(struct emitter *e, const struct split_step *s) {
    int known = s->on_device && s->ns != REPORT_UNKNOWN;
    emit_object(e, "parts_ns", NULL, LOOK_HIDDEN);
    for (int p = 0; p < SPLIT_PARTS; p++) {
        const char *name = split_part_name((enum split_part)p);
        if (known)
            emit_int(e, name, NULL, UNIT_NS, split_part_ns(s, (enum split_part)p));
        else
            emit_null(e, name, NULL);
    }
    emit_end(e);
}

/* ---- the section ---- */

static void heading(char *out, size_t room, const struct report *r, const struct split_step *s) {
    char time[64];
    emit_human(time, sizeof time, UNIT_NS, (double)s->ns, 0);
    snprintf(out, room, "Why: where the time of step %lld goes (%s, %s)", (long long)r->steps[s->index].index, time,
             s->on_device ? "each moment once"
                          : "by the host's calls: without device times nobody knows what the device did");
}

void why_print(struct emitter *e, const struct report *r, const struct split_step *s) {
    char label[192], lines[2][400];
    if (!s || s->ns == REPORT_UNKNOWN) {
        emit_null(e, "time_split", NULL);
        return;
    }
    heading(label, sizeof label, r, s);
    emit_object(e, "time_split", label, LOOK_FIELDS);
    emit_int(e, "step", NULL, UNIT_NONE, r->steps[s->index].index);
    emit_text(e, "clock", NULL, s->on_device ? r->device_clock : "host");
    emit_int(e, "time_ns", NULL, UNIT_NS, s->ns);
    if (s->on_device) {
        emit_int(e, "busy_ns", NULL, UNIT_NS, s->busy_ns);
        emit_int(e, "sum_ns", NULL, UNIT_NS, s->sum_ns);
    } else {
        emit_null(e, "busy_ns", NULL);
        emit_null(e, "sum_ns", NULL);
    }
    print_at_peak(e, r, &r->steps[s->index]);
    if (emit_for_people(e))
        s->on_device ? people_device(e, r, s) : people_host(e, s);
    else
        machine_parts(e, r, s);
    why_print_phases(e, r, s, NULL);
    int n = why_advice(r, s, lines, 2);
    emit_list(e, "advice", n ? "Advice" : NULL, LOOK_LINES);
    for (int i = 0; i < n; i++) emit_text(e, "", "", lines[i]);
    emit_end(e);
    emit_end(e);
}

int64_t why_median_step(const struct report *r) {
    int64_t best = -1, seen = 0;
    for (int64_t i = 0; i < r->n_steps; i++) {
        const struct report_step *s = &r->steps[i];
        if (!s->complete || (seen++ == 0 && r->first_left_out) || s->ns == REPORT_UNKNOWN) continue;
        if (best < 0 || fabs((double)s->ns - r->step_ns.median) < fabs((double)r->steps[best].ns - r->step_ns.median))
            best = i;
    }
    return best;
}

int why_print_median(struct emitter *e, struct report *r, char *err, size_t err_len) {
    struct split_step *s = NULL;
    int64_t median = why_median_step(r);
    if (median >= 0 && split_steps(r, median, 1, &s, err, err_len)) return -1;
    why_print(e, r, s);
    free(s);
    return 0;
}
