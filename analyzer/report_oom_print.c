/* The section "Out of memory". */
#include "analyzer/report_oom.h"
#include "analyzer/report_print.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_CALLS 8 /* to people; machines get all */

/* "in forward of step 1", "before the first step". */
static void describe_place(const struct report *r, char *out, size_t room) {
    const struct report_oom *o = r->oom;
    if (o->step != REPORT_UNKNOWN && o->phase[0])
        snprintf(out, room, "%s of step %lld", o->phase, (long long)o->step);
    else if (o->step != REPORT_UNKNOWN)
        snprintf(out, room, "step %lld", (long long)o->step);
    else if (!r->n_steps)
        snprintf(out, room, "in no step: none was found");
    else
        snprintf(out, room, "%s", o->call->start_ns < r->steps[0].start_ns ? "before the first step" : "between steps");
}

static void print_head(struct emitter *e, const struct report *r) {
    const struct report_oom *o = r->oom;
    char place[64];
    emit_text(e, "function", "call", o->call->function);
    report_print_int(e, "device", r->devices > 1 ? "device" : NULL, UNIT_NONE, o->call->device);
    report_print_int(e, "asked_bytes", "asked for", UNIT_BYTES, o->call->asked_bytes);
    emit_bool(e, "survived", NULL, o->call->survived);
    emit_text(e, NULL, "afterwards",
              o->call->survived ? "the program went on: it got memory or started work later"
                                : "the program did no more work on the device");
    report_print_int(e, "ns", NULL, UNIT_NS, o->call->end_ns);
    report_print_int(e, "step", NULL, UNIT_NONE, o->step);
    emit_text(e, "phase", NULL, o->phase[0] ? o->phase : NULL);
    describe_place(r, place, sizeof place);
    emit_text(e, NULL, "where", place);
}

/* What the device's memory was taken by, line by line; the lines add up to total. */
static void print_books(struct emitter *e, const struct report_oom *o) {
    int pool = o->slack_bytes != REPORT_UNKNOWN, apart = o->context_bytes != REPORT_UNKNOWN;
    report_print_int(e, "total_bytes", "device has", UNIT_BYTES, o->total_bytes);
    report_print_int(e, "free_bytes", "free, by the driver", UNIT_BYTES, o->free_bytes);
    emit_int(e, "live_bytes", "the program's", UNIT_BYTES, o->live_bytes);
    emit_int(e, "managed_bytes", o->managed_bytes ? "managed, where unknown" : NULL, UNIT_BYTES, o->managed_bytes);
    report_print_int(e, "pool_reserved_bytes", NULL, UNIT_BYTES, o->pool_reserved_bytes);
    report_print_int(e, "pool_used_bytes", NULL, UNIT_BYTES, o->pool_used_bytes);
    report_print_int(e, "pool_slack_bytes", pool ? "pool, not used" : NULL, UNIT_BYTES, o->slack_bytes);
    report_print_int(e, "context_bytes", apart ? "context at the start" : NULL, UNIT_BYTES, o->context_bytes);
    report_print_int(e, "unexplained_bytes", apart ? "rounding and others" : "context, rounding, others", UNIT_BYTES,
                     o->unexplained_bytes);
    report_print_int(e, "largest_bytes", "could be had at most", UNIT_BYTES, o->largest_bytes);
    report_print_int(e, "missing_bytes", "missing", UNIT_BYTES, o->missing_bytes);
    emit_text(e, "shrink_first", "largest class", report_class_names[o->shrink_first]);
}

static void print_live(struct emitter *e, const struct report_oom *o) {
    emit_object(e, "live", o->live_bytes ? "Live when the call failed" : NULL, o->live_bytes ? LOOK_BARS : LOOK_HIDDEN);
    for (int c = 0; c < REPORT_CLASSES; c++)
        emit_int(e, report_class_names[c], report_class_names[c], UNIT_BYTES, o->live[c]);
    emit_end(e);
}

static void print_block(struct emitter *e, const struct report *r, const struct oom_block *b) {
    char class[64];
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "id", "id", UNIT_NONE, b->alloc);
    emit_int(e, "bytes", "bytes", UNIT_BYTES, b->bytes);
    emit_text(e, "class", NULL, report_class_names[b->class]);
    emit_int(e, "class_bytes", NULL, UNIT_BYTES, b->class_bytes);
    if (b->class_bytes && b->class_bytes < b->bytes)
        snprintf(class, sizeof class, "%s (%.0f %% of it)", report_class_names[b->class],
                 100.0 * (double)b->class_bytes / (double)b->bytes);
    else
        snprintf(class, sizeof class, "%s", report_class_names[b->class]);
    emit_text(e, NULL, "class", class);
    emit_real(e, "confidence", "confidence", UNIT_NONE, b->confidence);
    emit_text(e, "rule", "rule", b->rule ? b->rule : "not classified");
    emit_int(e, "alloc_ns", NULL, UNIT_NS, b->alloc_ns);
    report_print_int(e, NULL, "age then", UNIT_NS, r->oom->call->end_ns - b->alloc_ns);
    report_print_int(e, "step", NULL, UNIT_NONE, b->step);
    emit_end(e);
}

static void print_largest(struct emitter *e, const struct report *r) {
    const struct report_oom *o = r->oom;
    char label[96];
    snprintf(label, sizeof label,
             o->n_largest < o->live_blocks ? "Largest of the %lld blocks live then" : "Blocks live then",
             (long long)o->live_blocks);
    emit_int(e, "live_blocks", NULL, UNIT_NONE, o->live_blocks);
    emit_list(e, "largest", o->n_largest ? label : NULL, o->n_largest ? LOOK_TABLE : LOOK_HIDDEN);
    for (int i = 0; i < o->n_largest; i++) print_block(e, r, &o->largest[i]);
    emit_end(e);
}

/* All of them, where there are several. */
static void print_calls(struct emitter *e, const struct report_oom *o) {
    int people = emit_for_people(e), table = o->n_calls > 1;
    int64_t first = people && o->n_calls > SHOWN_CALLS ? o->n_calls - SHOWN_CALLS : 0;
    char label[96];
    snprintf(label, sizeof label, "Calls that found no memory: %lld, of which %lld were survived%s",
             (long long)o->n_calls, (long long)o->survived, first ? "; the last ones" : "");
    emit_int(e, "failures", NULL, UNIT_NONE, o->n_calls);
    emit_int(e, "failures_survived", NULL, UNIT_NONE, o->survived);
    emit_list(e, "calls", table ? label : NULL, table ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = first; i < o->n_calls; i++) {
        const struct oom_call *c = &o->calls[i];
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_int(e, "op", "op", UNIT_NONE, c->op);
        emit_text(e, "function", "call", c->function);
        report_print_int(e, "device", NULL, UNIT_NONE, c->device);
        report_print_int(e, "asked_bytes", "asked for", UNIT_BYTES, c->asked_bytes);
        emit_bool(e, "survived", "survived", c->survived);
        report_print_int(e, "ns", NULL, UNIT_NS, c->end_ns);
        emit_end(e);
    }
    emit_end(e);
}

void report_print_oom(struct emitter *e, const struct report *r) {
    const struct report_oom *o = r->oom;
    if (!o) {
        emit_null(e, "out_of_memory", NULL);
        return;
    }
    emit_object(e, "out_of_memory", "Out of memory", LOOK_FIELDS);
    print_head(e, r);
    print_books(e, o);
    print_live(e, o);
    print_largest(e, r);
    print_calls(e, o);
    emit_list(e, "hints", o->n_hints ? "What would help" : NULL, o->n_hints ? LOOK_LINES : LOOK_HIDDEN);
    for (int i = 0; i < o->n_hints; i++) emit_text(e, "", "", o->hints[i]);
    emit_end(e);
    emit_end(e);
}

void report_oom_line(const struct report *r, char *out, size_t room) {
    const struct report_oom *o = r->oom;
    char asked[64] = "an unknown amount", left[80] = "", live[64];
    if (o->call->asked_bytes != REPORT_UNKNOWN) emit_human_bytes(asked, sizeof asked, o->call->asked_bytes);
    if (o->free_bytes != REPORT_UNKNOWN && o->call->kind != OOM_HOST) {
        size_t n = (size_t)snprintf(left, sizeof left, ", free ");
        emit_human_bytes(left + n, sizeof left - n, o->largest_bytes);
    }
    emit_human_bytes(live, sizeof live, o->live_bytes);
    snprintf(out, room, "out of memory: %s of %s%s, live %s, most of it %s%s", o->call->function, asked, left, live,
             report_class_names[o->shrink_first], o->call->survived ? "; the program went on" : "");
}
