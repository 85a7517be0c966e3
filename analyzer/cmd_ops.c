/* acct ops [--sort S] [--limit N] [--step N] [--phase P] [--all] TRACE…: what each kind of call took and did, and the
 * roof above it. */
#include "analyzer/ops_groups.h"
#include "analyzer/report_print.h"
#include "analyzer/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPT_SORT = VIEW_OPTIONS, OPT_LIMIT, OPT_STEP, OPT_PHASE, OPT_ALL, OPT_FLOPS_RULES };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_SORT] = {"sort", 's', OPTION_VALUE, "WHAT", "time (default), flops, bytes or calls: the largest first"},
    [OPT_LIMIT] = {"limit", 'n', OPTION_VALUE, "N", "rows, 0: all (default: 30 for people, all for machines)"},
    [OPT_STEP] = {"step", 0, OPTION_VALUE, "N", "ops of step N alone"},
    [OPT_PHASE] = {"phase", 'p', OPTION_VALUE, "P", "forward, backward, optimizer, recompute or evaluation alone"},
    [OPT_ALL] = {"all", 'a', OPTION_FLAG, NULL, "a row for each op, in their order, instead of one for each shape"},
    [OPT_FLOPS_RULES] = VIEW_FLOPS_RULES_ROW,
    {0},
};

static struct {
    int sort, phase, sorted;
    int64_t limit, step;
} wanted;

static int parse(const struct arguments *args) {
    static const char *const orders[] = {"time", "flops", "bytes", "calls", NULL};
    static const char *const phases[] = {"forward", "backward", "optimizer", "recompute", "evaluation", NULL};
    int code, phase = -1;
    wanted.sort = OPS_BY_TIME;
    wanted.limit = wanted.step = -1;
    if ((code = view_choice(args, OPT_SORT, orders, &wanted.sort)) ||
        (code = view_choice(args, OPT_PHASE, phases, &phase)) ||
        (code = view_number(args, OPT_LIMIT, INT64_MAX, &wanted.limit)) ||
        (code = view_number(args, OPT_STEP, INT32_MAX, &wanted.step)))
        return code;
    wanted.phase = phase < 0 ? -1 : (int)report_phase_of(phases[phase]);
    wanted.sorted = args->given[OPT_SORT];
    return 0;
}

static double three_digits(const struct emitter *e, double v) {
    if (!emit_for_people(e) || !(v > 0)) return v;
    double unit = pow(10, floor(log10(v)) - 2);
    return round(v / unit) * unit;
}

static void print_phases(struct emitter *e, const struct ops_group *o) {
    char text[96] = "";
    size_t n = 0;
    emit_list(e, "phases", NULL, LOOK_HIDDEN);
    for (int p = 0; p < REPORT_PHASES; p++) {
        const char *name = report_phase_names[p];
        if (p == PHASE_NONE || !(o->phases >> p & 1)) continue;
        emit_text(e, "", NULL, name);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", name);
    }
    emit_end(e);
    emit_text(e, NULL, "phase", text);
}

static void time_or_null(struct emitter *e, const char *key, const char *label, const struct ops_group *o, int64_t ns) {
    if (o->timed)
        emit_int(e, key, label, UNIT_NS, ns);
    else
        emit_null(e, key, label);
}

static void print_name(struct emitter *e, const struct ops_groups *g, const struct ops_group *o) {
    char text[128];
    const char *name = ops_name(g, o);
    emit_text(e, "name", NULL, name);
    report_short_name(name, text, sizeof text);
    emit_text(e, NULL, "function", text);
    emit_text(e, "kind", NULL,
              (const char *const[]){"launch", "gemm", "blas", "copy", "memset", "collective"}[o->key.kind]);
    ops_shape(o, text, sizeof text);
    emit_text(e, "shape", "shape", text);
    emit_text(e, "dtype", NULL, o->key.dtype >= 0 ? g->dtype[o->key.dtype] : NULL);
    emit_text(e, NULL, "format", o->key.dtype >= 0 ? g->dtype[o->key.dtype] : "");
}

static void print_bytes(struct emitter *e, const struct ops_group *o) {
    if (o->unpriced_bytes)
        emit_null(e, "bytes", "bytes");
    else
        emit_int(e, "bytes", "bytes", UNIT_BYTES, (__int128)o->bytes);
}

/* FLOP/s under the roof: the peak, or what the bandwidth lets through at this intensity. */
static double roof_rate(const struct report *r, const struct ops_group *o) {
    enum roof_bound bound = ops_bound(o);
    return bound == ROOF_COMPUTE ? o->peak : bound == ROOF_MEMORY ? ops_intensity(o) * r->bytes_per_s : NAN;
}

static void print_roof(struct emitter *e, const struct report *r, const struct ops_group *o) {
    static const char *const names[] = {NULL, "compute", "memory"};
    int timed = o->timed > 0 && o->time_ns > 0;
    enum roof_bound bound = ops_bound(o);
    emit_real(e, "intensity", "FLOP/byte", UNIT_NONE, three_digits(e, ops_intensity(o)));
    emit_real(e, "flops_per_s", "FLOP/s", UNIT_FLOPS_PER_S,
              timed && o->timed == o->calls && !o->flops.uncounted ? 1e9 * (double)o->flops.least / (double)o->time_ns
                                                                   : NAN);
    emit_text(e, "bound", "bound by", names[bound]);
    emit_real(e, "roof_flops_per_s", "roof", UNIT_FLOPS_PER_S, roof_rate(r, o));
    emit_real(e, "roof_share", "of roof", UNIT_SHARE,
              o->roofed && o->roofed == o->timed && o->roofed_ns > 0 ? o->roof_ns / (double)o->roofed_ns : NAN);
}

static void print_group(struct emitter *e, const struct report *r, const struct ops_groups *g,
                        const struct ops_group *o, int each) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    if (each) {
        emit_int(e, "op", "op", UNIT_NONE, o->first_op);
        if (o->step == REPORT_UNKNOWN)
            emit_null(e, "step", "step");
        else
            emit_int(e, "step", "step", UNIT_NONE, o->step);
        emit_int(e, "start_ns", NULL, UNIT_NS, o->start_ns);
    }
    print_name(e, g, o);
    print_phases(e, o);
    emit_int(e, "calls", each ? NULL : "calls", UNIT_NONE, o->calls);
    emit_int(e, "timed", NULL, UNIT_NONE, o->timed);
    time_or_null(e, "time_ns", "time", o, o->time_ns);
    report_print_sum(e, "flops", "FLOPs", &o->flops);
    emit_text(e, "grade", "grade", o->key.kind <= OPS_BLAS ? ops_grade(o) : "exact");
    print_bytes(e, o);
    print_roof(e, r, o);
    emit_end(e);
}

static void print_groups(struct emitter *e, const struct report *r, const struct ops_groups *g, int each,
                         enum ops_order order) {
    static const char *const words[] = {"by time on the device", "by FLOPs", "by bytes", "by calls", "in their order"};
    int64_t limit = wanted.limit >= 0    ? wanted.limit
                    : emit_for_people(e) ? 30
                                         : 0,
            n = limit && limit < g->n ? limit : g->n;
    char label[128], part[64] = "";
    if (n < g->n) snprintf(part, sizeof part, ", %lld of %lld", (long long)n, (long long)g->n);
    snprintf(label, sizeof label, "Ops%s, %s%s", each ? "" : " by function and shape", words[order], part);
    emit_int(e, "rows", NULL, UNIT_NONE, g->n);
    emit_list(e, "ops", n ? label : "No such ops", n ? LOOK_TABLE : LOOK_LINES);
    for (int64_t i = 0; i < n; i++) print_group(e, r, g, &g->group[i], each);
    emit_end(e);
}

/* Bytes that a cache still holds do not come from the device's memory. */
static void note_above_roof(struct report *r, const struct ops_groups *g) {
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++) n += g->group[i].roof_ns > 1.05 * (double)g->group[i].roofed_ns;
    if (n && !r->modelled)
        report_note(
            r,
            "%lld row(s) took less time than their roof allows: caches held what counts as the memory's bytes, or a "
            "peak or the bandwidth is too low.",
            (long long)n);
}

/* Without device times the longest cannot be told: by FLOPs then. */
static enum ops_order order_of(const struct report *r, int each) {
    if (each && !wanted.sorted) return OPS_BY_ID;
    return wanted.sort == OPS_BY_TIME && !r->busy_ns ? OPS_BY_FLOPS : (enum ops_order)wanted.sort;
}

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct ops_groups g;
    int each = args->given[OPT_ALL];
    if (view_step(r, args, OPT_STEP, -1, err, err_len) == VIEW_STEP_NONE) return -1;
    struct ops_filter f = {.step = wanted.step, .phase = wanted.phase, .each = each, .kinds = (1u << OPS_KINDS) - 1};
    int rc = ops_load(&g, r, &f, err, err_len);
    if (!rc) {
        enum ops_order order = order_of(r, each);
        ops_sort(&g, order);
        note_above_roof(r, &g);
        view_open(e, r);
        print_groups(e, r, &g, each, order);
        view_notes(e, r);
        emit_end(e);
    }
    ops_free(&g);
    return rc;
}

static int ops(const struct arguments *args) {
    return view_run(args, &(struct view){.parse = parse, .print = print});
}

const struct command cmd_ops = {
    .name = "ops",
    .synopsis = "time, FLOPs, bytes and roofline of each kind of call",
    .usage =
        VIEW_USAGE " [--sort time|flops|bytes|calls] [--limit N] [--step N] "
                   "[--phase forward|backward|optimizer|recompute|evaluation] [--all] [--flops-rules FILE] TRACE...",
    .details = "Calls of one function with one shape are one row. FLOP/byte is the intensity, bytes the least that the "
               "op must "
               "move; the roof\n"
               "is the peak of its format, or what the memory's bandwidth lets through at that intensity.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = ops,
};
