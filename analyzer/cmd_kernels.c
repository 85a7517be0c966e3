/* acct kernels [--sort S] [--limit N] TRACE…: each kernel's launches, shapes, occupancy, times, and what it does. */
#include "analyzer/kernels_rows.h"
#include "analyzer/report_print.h"
#include "analyzer/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPT_SORT = VIEW_OPTIONS, OPT_LIMIT, OPT_FLOPS_RULES };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_SORT] = {"sort", 's', OPTION_VALUE, "WHAT", "time (default), flops, bytes or calls: the largest first"},
    [OPT_LIMIT] = {"limit", 'n', OPTION_VALUE, "N", "kernels, 0: all (default: 30 for people, all for machines)"},
    [OPT_FLOPS_RULES] = VIEW_FLOPS_RULES_ROW,
    {0},
};

static int wanted_sort;
static int64_t wanted_limit;

static int parse(const struct arguments *args) {
    static const char *const orders[] = {"time", "flops", "bytes", "calls", NULL};
    wanted_sort = OPS_BY_TIME;
    wanted_limit = -1;
    int code = view_choice(args, OPT_SORT, orders, &wanted_sort);
    return code ? code : view_number(args, OPT_LIMIT, INT64_MAX, &wanted_limit);
}

static double occupancy(const struct report *r, const struct kernel_row *k, const struct kernel_shape *s) {
    int64_t capability =
        r->cc_major == REPORT_UNKNOWN || r->cc_minor == REPORT_UNKNOWN ? -1 : 10 * r->cc_major + r->cc_minor;
    for (int i = 3; i < 6; i++)
        if (s->dim[i] < 0 || s->dim[i] > 1024) return NAN;
    return kernels_occupancy(capability, s->dim[3] * s->dim[4] * s->dim[5],
                             k->registers == REPORT_UNKNOWN ? -1 : k->registers,
                             k->static_shared_bytes == REPORT_UNKNOWN ? -1 : k->static_shared_bytes, s->dim[6]);
}

static void print_name(struct emitter *e, const struct kernel_row *k) {
    char text[80];
    emit_text(e, "name", NULL, k->name);
    report_short_name(k->name, text, sizeof text);
    emit_text(e, NULL, "kernel", text);
}

/* ---- times and shapes ---- */

static void print_triple(struct emitter *e, const char *key, const int64_t *dim) {
    emit_list(e, key, NULL, LOOK_HIDDEN);
    for (int i = 0; i < 3 && dim[0] >= 0; i++) emit_int(e, "", NULL, UNIT_NONE, dim[i]);
    emit_end(e);
}

static void print_shapes(struct emitter *e, const struct report *r, const struct kernel_row *k) {
    char text[160] = "";
    const struct kernel_shape *s = k->shape;
    if (s->dim[0] >= 0)
        snprintf(text, sizeof text, "(%lld,%lld,%lld)x(%lld,%lld,%lld)", (long long)s->dim[0], (long long)s->dim[1],
                 (long long)s->dim[2], (long long)s->dim[3], (long long)s->dim[4], (long long)s->dim[5]);
    if (k->n_shapes > 1)
        snprintf(text + strlen(text), sizeof text - strlen(text), " and %lld more", (long long)k->n_shapes - 1);
    emit_text(e, NULL, "grid x block", text);
    emit_list(e, "shapes", NULL, LOOK_HIDDEN);
    for (int64_t i = 0; i < k->n_shapes; i++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        print_triple(e, "grid", k->shape[i].dim);
        print_triple(e, "block", k->shape[i].dim + 3);
        report_print_int(e, "dynamic_shared_bytes", NULL, UNIT_BYTES,
                         k->shape[i].dim[6] < 0 ? REPORT_UNKNOWN : k->shape[i].dim[6]);
        emit_int(e, "launches", NULL, UNIT_NONE, k->shape[i].launches);
        report_print_int(e, "time_ns", NULL, UNIT_NS, k->shape[i].timed ? k->shape[i].time_ns : REPORT_UNKNOWN);
        emit_real(e, "occupancy", NULL, UNIT_SHARE, occupancy(r, k, &k->shape[i]));
        emit_end(e);
    }
    emit_end(e);
}

static void print_times(struct emitter *e, const struct kernel_row *k) {
    int timed = k->timed > 0;
    emit_int(e, "timed", NULL, UNIT_NONE, k->timed);
    report_print_int(e, "time_ns", "time", UNIT_NS, timed ? k->time_ns : REPORT_UNKNOWN);
    emit_real(e, "mean_ns", "mean", UNIT_NS, timed ? (double)k->time_ns / (double)k->timed : NAN);
    report_print_int(e, "min_ns", "least", UNIT_NS, timed ? k->min_ns : REPORT_UNKNOWN);
    report_print_int(e, "max_ns", "most", UNIT_NS, timed ? k->max_ns : REPORT_UNKNOWN);
}

/* ---- what it does ---- */

enum count_kind { COUNT_FLOPS, COUNT_BYTES, COUNT_OTHER };

static enum count_kind kind_of(const char *count) {
    if (!strncmp(count, "loaded.", 7) || !strncmp(count, "stored.", 7)) return COUNT_BYTES;
    return !strcmp(count, "integer") || !strcmp(count, "atomics") || !strcmp(count, "instructions") ? COUNT_OTHER
                                                                                                    : COUNT_FLOPS;
}

/* Names of a count with a most of its own where the least is not all. */
static void print_counts(struct emitter *e, const struct kernels *all, const struct kernel_row *k, const char *key,
                         enum count_kind kind) {
    emit_object(e, key, NULL, LOOK_HIDDEN);
    for (int c = 0; c < all->counts && k->has_counts; c++) {
        if (kind_of(all->count[c]) != kind || (!k->least[c] && !k->most[c] && !k->unbounded[c])) continue;
        emit_range(e, all->count[c], NULL, kind == COUNT_BYTES ? UNIT_BYTES : UNIT_NONE,
                   k->unbounded[c]             ? EMIT_AT_LEAST
                   : k->most[c] != k->least[c] ? EMIT_BETWEEN
                                               : EMIT_EXACT,
                   k->least[c], k->most[c]);
    }
    emit_end(e);
}

/* `fp32, matrix.bf16`: the formats it computes in, the most first left to machines. */
static void formats(const struct kernels *all, const struct kernel_row *k, char *out, size_t room) {
    size_t n = 0;
    *out = 0;
    for (int c = 0; c < all->counts && k->has_counts && n < room; c++)
        if (kind_of(all->count[c]) == COUNT_FLOPS && k->least[c])
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", all->count[c]);
}

static __int128 space(const struct kernels *all, const struct kernel_row *k, const char *count) {
    for (int c = 0; c < all->counts; c++)
        if (!strcmp(all->count[c], count)) return k->least[c];
    return 0;
}

static void print_machine_counts(struct emitter *e, const struct kernels *all, const struct kernel_row *k) {
    print_counts(e, all, k, "flops_by_type", COUNT_FLOPS);
    print_counts(e, all, k, "bytes_by_space", COUNT_BYTES);
    print_counts(e, all, k, "counts", COUNT_OTHER);
}

static const char *grade(const struct kernel_row *k) {
    return k->library ? NULL : report_grade_name(report_grade_of(&k->flops));
}

static void print_flops(struct emitter *e, const struct kernel_row *k) {
    struct report_sum unknown = {.uncounted = 1};
    report_print_sum(e, "flops", "FLOPs", k->library ? &unknown : &k->flops);
}

static void print_bytes(struct emitter *e, const struct kernel_row *k) {
    if (isnan(k->bytes))
        emit_null(e, "bytes", NULL);
    else
        emit_int(e, "bytes", NULL, UNIT_BYTES, (__int128)k->bytes);
}

static void print_row(struct emitter *e, const struct report *r, const struct kernels *all,
                      const struct kernel_row *k) {
    static const char *const bounds[] = {NULL, "compute", "memory"};
    emit_object(e, "", NULL, LOOK_FIELDS);
    print_name(e, k);
    emit_bool(e, "library", NULL, k->library);
    emit_int(e, "launches", "launches", UNIT_NONE, k->launches);
    print_shapes(e, r, k);
    report_print_int(e, "registers", "registers", UNIT_NONE, k->registers);
    report_print_int(e, "static_shared_bytes", "shared", UNIT_BYTES, k->static_shared_bytes);
    report_print_int(e, "local_bytes", NULL, UNIT_BYTES, k->local_bytes);
    emit_real(e, "occupancy", "occupancy", UNIT_SHARE, occupancy(r, k, k->shape));
    print_times(e, k);
    if (!emit_for_people(e)) {
        print_flops(e, k);
        emit_text(e, "grade", NULL, grade(k));
        emit_text(e, "why", NULL, k->why);
        print_bytes(e, k);
        print_machine_counts(e, all, k);
    }
    emit_text(e, "bound", "bound by", bounds[k->bound]);
    emit_real(e, "roof_share", "of roof", UNIT_SHARE, k->roof_share);
    emit_end(e);
}

/* For people: what kernels do, in a table of its own. */
static void print_work(struct emitter *e, const struct kernels *all, int64_t n) {
    char text[96];
    int64_t some = 0;
    for (int64_t i = 0; i < n; i++) some += !all->row[i].library;
    if (!emit_for_people(e) || !some) return;
    emit_list(e, NULL, "What they do, all launches together", LOOK_TABLE);
    for (int64_t i = 0; i < n; i++) {
        const struct kernel_row *k = &all->row[i];
        if (k->library) continue;
        emit_object(e, NULL, NULL, LOOK_FIELDS);
        print_name(e, k);
        print_flops(e, k);
        formats(all, k, text, sizeof text);
        emit_text(e, NULL, "in", text);
        if (k->has_counts) {
            emit_int(e, NULL, "loaded", UNIT_BYTES, space(all, k, "loaded.global"));
            emit_int(e, NULL, "stored", UNIT_BYTES, space(all, k, "stored.global"));
        } else {
            emit_null(e, NULL, "loaded");
            emit_null(e, NULL, "stored");
        }
        emit_text(e, NULL, "grade", grade(k));
        emit_text(e, NULL, "why", k->why ? k->why : "");
        emit_end(e);
    }
    emit_end(e);
}

static void print_all(struct emitter *e, const struct report *r, struct kernels *k) {
    enum ops_order order = wanted_sort == OPS_BY_TIME && !r->busy_ns ? OPS_BY_CALLS : (enum ops_order)wanted_sort;
    static const char *const words[] = {"by time on the device", "by FLOPs", "by bytes", "by launches"};
    int64_t limit = wanted_limit >= 0    ? wanted_limit
                    : emit_for_people(e) ? 30
                                         : 0,
            n = limit && limit < k->n ? limit : k->n;
    char label[128], part[64] = "";
    kernels_sort(k, order);
    if (n < k->n) snprintf(part, sizeof part, ", %lld of %lld", (long long)n, (long long)k->n);
    snprintf(label, sizeof label, "Kernels, %s%s", words[order], part);
    emit_list(e, "kernels", n ? label : "No kernel was launched", n ? LOOK_TABLE : LOOK_LINES);
    for (int64_t i = 0; i < n; i++) print_row(e, r, k, &k->row[i]);
    emit_end(e);
    print_work(e, k, n);
}

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct kernels k;
    (void)args;
    int rc = kernels_load(&k, r, err, err_len);
    if (!rc) {
        view_open(e, r);
        print_all(e, r, &k);
        view_notes(e, r);
        emit_end(e);
    }
    kernels_free(&k);
    return rc;
}

static int kernels(const struct arguments *args) {
    return view_run(args, &(struct view){.parse = parse, .print = print});
}

const struct command cmd_kernels = {
    .name = "kernels",
    .synopsis = "launches, shapes, occupancy, times and cost of each kernel",
    .usage = VIEW_USAGE " [--sort time|flops|bytes|calls] [--limit N] [--flops-rules FILE] TRACE...",
    .details =
        "Occupancy is theoretical: warps of the most launched shape that a multiprocessor holds at once, by its "
        "limits. "
        "What a library\n"
        "launches inside its calls is known by the device's records alone; its FLOPs are with the calls (acct ops).\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = kernels,
};
