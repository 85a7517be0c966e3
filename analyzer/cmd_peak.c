/* acct peak [--step N] [--limit N] TRACE…: what is live at the peak, block by block. */
#include "analyzer/memory_print.h"
#include "analyzer/view.h"

#include <inttypes.h>
#include <stdio.h>

enum { OPT_STEP = VIEW_OPTIONS, OPT_LIMIT };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_STEP] = {"step", 0, OPTION_VALUE, "N", "the peak of step N instead of the run's"},
    [OPT_LIMIT] = {"limit", 'n', OPTION_VALUE, "N", "rows, 0: all (default: 20 for people, all for machines)"},
    {0},
};

enum { PEOPLE_SEE = 20 };

static int parse(const struct arguments *args) {
    int64_t n = 0;
    int code = view_number(args, OPT_STEP, INT32_MAX, &n);
    return code ? code : view_number(args, OPT_LIMIT, INT64_MAX, &n);
}

static void print_head(struct emitter *e, const struct report *r, const struct memory_peak *p, int64_t step) {
    char label[96], place[96] = "";
    int live = p->memory.peak_ns != REPORT_UNKNOWN;
    if (step >= 0)
        snprintf(label, sizeof label, "Peak of step %" PRId64, r->steps[step].index);
    else
        snprintf(label, sizeof label, "Peak of the run (device and stream-ordered allocations)");
    emit_object(e, "peak", label, LOOK_FIELDS);
    emit_int(e, "peak_bytes", "live", UNIT_BYTES, p->memory.peak_bytes);
    if (live) memory_place_words(r, p->memory.peak_ns, place, sizeof place);
    emit_text(e, NULL, "first reached", live ? place : "nothing was ever allocated");
    report_print_int(e, "ns", NULL, UNIT_NS, p->memory.peak_ns);
    memory_print_step(e, "step", NULL, r, live ? memory_step_at(r, p->memory.peak_ns) : -1);
    emit_int(e, "live_blocks", "blocks", UNIT_NONE, p->blocks);
    memory_print_classes(e, "at_peak", NULL, LOOK_BARS, p->memory.at_peak);
    emit_end(e);
}

static void print_blocks(struct emitter *e, const struct report *r, const struct memory_peak *p,
                         const struct arguments *args) {
    char label[96];
    int64_t limit = emit_for_people(e) ? PEOPLE_SEE : 0;
    view_number(args, OPT_LIMIT, INT64_MAX, &limit);
    if (!limit || limit > p->n) limit = p->n;
    snprintf(label, sizeof label,
             limit < p->n ? "The %" PRId64 " largest of %" PRId64 " pieces (a block's bytes of one class)"
                          : "What is live (a block's bytes of one class)",
             limit, p->n);
    emit_list(e, "blocks", p->n ? label : NULL, p->n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < limit; i++) memory_print_piece(e, r, &p->piece[i], p->memory.peak_ns);
    emit_end(e);
}

static void print_what_if(struct emitter *e, const struct report *r, const struct memory_peak *p) {
    char place[96];
    emit_object(e, "what_if", NULL, LOOK_FIELDS);
    report_print_int(e, "next_peak_bytes", NULL, UNIT_BYTES, p->next_bytes);
    report_print_int(e, "next_peak_ns", NULL, UNIT_NS, p->next_ns);
    emit_list(e, "without", p->n ? "Had there been nothing of a class, the peak would be" : NULL,
              p->n ? LOOK_TABLE : LOOK_HIDDEN);
    for (int c = 0; c < REPORT_CLASSES; c++) {
        if (p->without[c] == p->memory.peak_bytes && emit_for_people(e)) continue;
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "class", "class", report_class_names[c]);
        emit_int(e, "peak_bytes", "peak", UNIT_BYTES, p->without[c]);
        emit_int(e, "less_bytes", "less by", UNIT_BYTES, p->memory.peak_bytes - p->without[c]);
        emit_real(e, "share_of_peak", "share of the peak", UNIT_SHARE,
                  p->memory.peak_bytes ? (double)p->memory.at_peak[c] / (double)p->memory.peak_bytes : 0);
        emit_end(e);
    }
    emit_end(e);
    emit_end(e);
    if (p->next_bytes == REPORT_UNKNOWN || !emit_for_people(e)) return;
    memory_place_words(r, p->next_ns, place, sizeof place);
    emit_object(e, NULL, "The next lower peak", LOOK_FIELDS);
    emit_int(e, NULL, "live", UNIT_BYTES, p->next_bytes);
    emit_text(e, NULL, "reached", place);
    emit_end(e);
}

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct memory_peak p;
    int64_t step = view_step(r, args, OPT_STEP, MEMORY_WHOLE_RUN, err, err_len);
    if (step == VIEW_STEP_NONE) return -1;
    int rc = memory_peak_load(r, step, &p, err, err_len);
    if (!rc) {
        view_open(e, r);
        print_head(e, r, &p, step);
        print_blocks(e, r, &p, args);
        print_what_if(e, r, &p);
        view_notes(e, r);
        emit_end(e);
    }
    memory_peak_free(&p);
    return rc;
}

static int peak(const struct arguments *args) {
    static const struct view view = {.parse = parse, .print = print, .without_rates = 1};
    return view_run(args, &view);
}

const struct command cmd_peak = {
    .name = "peak",
    .synopsis = "what is live at the peak of memory: blocks, class, size, age, site",
    .usage = "[--step N] [--limit N] " VIEW_USAGE " TRACE...",
    .details =
        "Lists the allocations that are live when the program's device memory is at its highest, the largest first: "
        "class with rule and\n"
        "confidence, age, where it was allocated. An allocation that holds several classes has a row for each. Then "
        "the next lower peak,\n"
        "and what the peak would be without each class.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = peak,
};
