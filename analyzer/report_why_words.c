/* What a step's time consists of, in words: the arithmetic of each detail, and advice for what takes most. */
#include "analyzer/report_why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* One number as people read it; four of them can be in use at a time. */
static const char *human(enum emit_unit unit, double value) {
    static char text[4][64];
    static int next;
    char *to = text[next++ % 4];
    emit_human(to, sizeof text[0], unit, value, 0);
    return to;
}

static const char *rate(double bytes_per_s) {
    static char text[2][32];
    static int next;
    char *to = text[next++ % 2];
    snprintf(to, sizeof text[0], bytes_per_s >= 1e12 ? "%.4g TB/s" : "%.4g GB/s",
             bytes_per_s / (bytes_per_s >= 1e12 ? 1e12 : 1e9));
    return to;
}

/* What the device took, and how much of that stands elsewhere since something else had the moment. */
static void took(char *out, size_t room, const struct split_detail *d) {
    int64_t beside = d->device_ns - d->ns;
    if (beside > 0)
        snprintf(out, room, "took %s, %s of it beside other work", human(UNIT_NS, (double)d->device_ns),
                 human(UNIT_NS, (double)beside));
    else
        snprintf(out, room, "took %s", human(UNIT_NS, (double)d->device_ns));
}

/* `1 copy to the device`, `2 copies to the device`: noun is "copy|copies", after what follows it. */
static const char *counted(int64_t n, const char *noun, const char *after) {
    static char text[96];
    const char *bar = strchr(noun, '|');
    if (n == 1)
        snprintf(text, sizeof text, "1 %.*s%s", (int)(bar - noun), noun, after);
    else
        snprintf(text, sizeof text, "%lld %s%s", LL(n), bar + 1, after);
    return text;
}

static void roof_words(char *out, size_t room, const struct split_detail *d, const char *what, const char *amount,
                       const char *limit, const char *of) {
    char time[160];
    took(time, sizeof time, d);
    snprintf(out, room, "%s: %s / %s = %s; %s: %.1f %% of the %s", counted(d->count, what, ""), amount, limit,
             human(UNIT_NS, d->roof_ns), time, d->device_ns ? 100 * d->roof_ns / (double)d->device_ns : 0.0, of);
}

static void copy_words(char *out, size_t room, const struct split_detail *d, const char *noun, const char *where) {
    char time[160];
    took(time, sizeof time, d);
    snprintf(out, room, "%s: %s, %s: %s", counted(d->count, noun, where), human(UNIT_BYTES, d->bytes), time,
             d->device_ns > 0 ? rate(1e9 * d->bytes / (double)d->device_ns) : "no time");
}

/* Products of a device of which a peak or the bandwidth is not known. */
static void half_roof_words(char *out, size_t room, const struct report *r, const struct split_detail *d) {
    char time[160];
    took(time, sizeof time, d);
    if (isnan(d->roof_ns))
        snprintf(out, room, "%s, %s; %s: of some no peak is known", counted(d->count, "product|products", ""),
                 human(UNIT_FLOPS, d->flops), time);
    else
        snprintf(out, room, "%s: %s at the peak = %s; %s%s", counted(d->count, "product|products", ""),
                 human(UNIT_FLOPS, d->flops), human(UNIT_NS, d->roof_ns), time,
                 r->bytes_per_s > 0 ? ": the bytes of some are not known" : ": the memory's bandwidth is not known");
}

static void kernel_words(char *out, size_t room, const struct report *r, const struct split_detail *d, int detail) {
    const char *bandwidth = r->bytes_per_s > 0 ? rate(r->bytes_per_s) : "?";
    if (detail < SPLIT_VECTOR)
        roof_words(out, room, d, "product|products", human(UNIT_FLOPS, d->flops),
                   human(UNIT_FLOPS_PER_S, r->peak[detail - SPLIT_PRODUCTS]), "peak");
    else if (detail == SPLIT_VECTOR)
        roof_words(out, room, d, "kernel|kernels", human(UNIT_FLOPS, d->flops), "their peaks", "peak");
    else
        roof_words(out, room, d, detail == SPLIT_MEMORY_PRODUCTS ? "product|products" : "kernel|kernels",
                   human(UNIT_BYTES, d->bytes), bandwidth, "bandwidth");
}

/* What is counted (singular|plural), and what there is to say. */
static const struct {
    const char *noun, *after;
} sentences[SPLIT_DETAILS] = {
    [SPLIT_NO_ROOF] = {"kernel|kernels", ": a peak or the bandwidth of this device is not known"},
    [SPLIT_UNCOUNTED] = {"kernel|kernels", " whose FLOPs or bytes are not known"},
    [SPLIT_UNATTRIBUTED] = {"kernel|kernels", " of no recorded call"},
    [SPLIT_GRAPH] = {"kernel|kernels", " launched by CUDA graphs, of no recorded call"},
    [SPLIT_TINY] = {"kernel|kernels", " shorter than 2 us, which is what a launch takes"},
    [SPLIT_OTHER_STEPS] = {"call|calls", " of evaluation or of no step, within this step's time"},
    [SPLIT_COLLECTIVE] = {"kernel|kernels", " of collectives, as far as nothing ran beside them"},
    [SPLIT_LATENCY] = {"gap|gaps", " of up to 20 us from the launch to the kernel's begin"},
    [SPLIT_CALLS] = {"stretch|stretches", " with nothing queued, in calls that launch"},
    [SPLIT_BETWEEN] = {"stretch|stretches", " with nothing queued, of up to 50 us between two calls"},
    [SPLIT_STAGING] = {"stretch|stretches",
                       " in calls that copy, before the device began (the host stages pageable memory)"},
    [SPLIT_ALLOCATION] = {"stretch|stretches", " in calls that allocate or release"},
    [SPLIT_WAITING] = {"stretch|stretches", " in which the host waited for a device that had nothing to do"},
    [SPLIT_QUEUED] = {"gap|gaps", " of more than 20 us though work was handed over: why is not recorded"},
    [SPLIT_HOST] = {"stretch|stretches", " in which the host was in no CUDA call"},
    [SPLIT_GAP] = {"gap|gaps", " of which the host's calls tell nothing"},
};

void why_detail_words(char *out, size_t room, const struct report *r, const struct split_step *s, int detail) {
    const struct split_detail *d = &s->detail[detail];
    if (detail < SPLIT_NO_ROOF_PRODUCTS) {
        kernel_words(out, room, r, d, detail);
        return;
    }
    switch (detail) {
    case SPLIT_NO_ROOF_PRODUCTS:
        half_roof_words(out, room, r, d);
        return;
    case SPLIT_H2D:
        copy_words(out, room, d, "copy|copies", " to the device");
        return;
    case SPLIT_D2H:
        copy_words(out, room, d, "copy|copies", " to the host");
        return;
    case SPLIT_D2D:
        copy_words(out, room, d, "copy|copies", " within the device");
        return;
    case SPLIT_PEER:
        copy_words(out, room, d, "copy|copies", " between devices");
        return;
    case SPLIT_OTHER_COPY:
        copy_words(out, room, d, "copy|copies", "");
        return;
    case SPLIT_MEMSET:
        copy_words(out, room, d, "memset|memsets", "");
        return;
    case SPLIT_LATENCY:
        if (r->modelled) {
            snprintf(out, room, "%s of up to 2 us, as the model has it", counted(d->count, "launch|launches", ""));
            return;
        }
    }
    snprintf(out, room, "%s%s", counted(d->count, sentences[detail].noun, ""), sentences[detail].after);
}

/* ---- advice ---- */

/* The format in which most of the time at the peaks of products went; -1. */
static int main_format(const struct split_step *s) {
    int best = -1;
    for (int f = 0; f < PEAK_FORMATS; f++)
        if (s->detail[SPLIT_PRODUCTS + f].ns > 0 &&
            (best < 0 || s->detail[SPLIT_PRODUCTS + f].ns > s->detail[SPLIT_PRODUCTS + best].ns))
            best = f;
    return best;
}

/* A format with a wider peak that the same products could take; -1. */
static int faster_format(const struct report *r, int format) {
    static const int wider[PEAK_FORMATS] = {
        [PEAK_FP64] = -1,       [PEAK_FP32] = PEAK_TF32,      [PEAK_TF32] = PEAK_BF16, [PEAK_BF16] = PEAK_FP8,
        [PEAK_FP16] = PEAK_FP8, [PEAK_FP16_ACC16] = PEAK_FP8, [PEAK_FP8] = -1,         [PEAK_FP4] = -1};
    int to = format < 0 ? -1 : wider[format];
    return to >= 0 && r->peak[to] > 1.5 * r->peak[format] ? to : -1;
}

static void compute_advice(char *out, size_t room, const struct report *r, const struct split_step *s, double share) {
    double booked = 0, ns = 0, roof = 0, device = 0;
    char faster[128] = "";
    for (int d = SPLIT_PRODUCTS; d <= SPLIT_VECTOR; d++) {
        booked += s->detail[d].booked_ns;
        ns += (double)s->detail[d].ns;
        roof += isnan(s->detail[d].roof_ns) ? 0 : s->detail[d].roof_ns;
        device += (double)s->detail[d].device_ns;
    }
    int format = main_format(s), to = faster_format(r, format);
    if (to >= 0)
        snprintf(faster, sizeof faster, " In %s instead of %s the peak is %.3g times as high.", devices_format_name(to),
                 devices_format_name(format), r->peak[to] / r->peak[format]);
    if (roof > 1.05 * device)
        snprintf(
            out, room,
            "%.0f %% of the time is bound by compute, at %.0f %% of the peak: that peak is too low, so what is left "
            "to win is not known.",
            100 * share, 100 * roof / device);
    else if (booked >= 0.6 * ns)
        snprintf(out, room,
                 "%.0f %% of the time is bound by compute and runs at %.0f %% of the peak: what is left is to compute "
                 "less.%s",
                 100 * share, 100 * booked / ns, faster);
    else
        snprintf(out, room,
                 "%.0f %% of the time is bound by compute, at %.0f %% of the peak: larger matrices (batch, sequence) "
                 "and dimensions that are multiples of 8 or more bring products nearer to it.%s",
                 100 * share, 100 * booked / ns, faster);
}

static const char *const advice[SPLIT_PARTS] = {
    [SPLIT_MEMORY] = "%.0f %% of the time is bound by the memory's bandwidth: fuse kernels that pass on what they "
                     "write (elementwise ones, norms, the optimizer), or store in a narrower format.",
    [SPLIT_LAUNCH] = "%.0f %% of the time the device waits for launches: give each launch more work (a larger batch, "
                     "fused kernels), or launch fewer times (CUDA graphs).",
    [SPLIT_COPIES] = "%.0f %% of the time goes into copies and memsets that nothing runs beside: copy from pinned "
                     "memory on a stream of its own, one step ahead, or keep the data on the device.",
    [SPLIT_COMMUNICATION] = "%.0f %% of the time is communication that nothing runs beside: begin it while backward "
                            "still computes (buckets on a stream of their own), or send less.",
    [SPLIT_OUTSIDE] = "%.0f %% of the time is work of evaluation or of no step: it counts in the step's time, not in "
                      "its FLOPs.",
    [SPLIT_IDLE] = "%.0f %% of the time the device has nothing to do while the host is elsewhere: load and prepare "
                   "data ahead, read results back less often, keep allocations.",
};

static void unknown_advice(char *out, size_t room, const struct report *r, const struct split_step *s, double share) {
    int64_t no_roof = s->detail[SPLIT_NO_ROOF].ns + s->detail[SPLIT_NO_ROOF_PRODUCTS].ns;
    if (2 * no_roof > split_part_ns(s, SPLIT_UNKNOWN))
        snprintf(
            out, room,
            "%.0f %% of the time is in kernels that cannot be placed under a roof: %s of this device is not known.",
            100 * share, r->bytes_per_s > 0 ? "a peak" : "the memory's bandwidth");
    else
        snprintf(out, room, "%.0f %% of the time is in kernels of which it is not known what they do.", 100 * share);
}

static void one_advice(char *out, size_t room, const struct report *r, const struct split_step *s, int part,
                       double share) {
    if (part == SPLIT_COMPUTE)
        compute_advice(out, room, r, s, share);
    else if (part == SPLIT_UNKNOWN)
        unknown_advice(out, room, r, s, share);
    else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(out, room, advice[part], 100 * share);
#pragma GCC diagnostic pop
    }
}

static const double DOMINATES = 0.2; /* a part that takes less is not worth a sentence */

int why_advice(const struct report *r, const struct split_step *s, char (*out)[400], int most) {
    int done[SPLIT_PARTS] = {0}, n = 0;
    if (!s->on_device || s->ns <= 0) return 0;
    for (; n < most; n++) {
        int best = -1;
        for (int p = 0; p < SPLIT_PARTS; p++)
            if (!done[p] &&
                (best < 0 || split_part_ns(s, (enum split_part)p) > split_part_ns(s, (enum split_part)best)))
                best = p;
        if (best < 0) break;
        double share = (double)split_part_ns(s, (enum split_part)best) / (double)s->ns;
        if (share < DOMINATES) break;
        done[best] = 1;
        one_advice(out[n], sizeof out[n], r, s, best, share);
    }
    return n;
}
