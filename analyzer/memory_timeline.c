#include "analyzer/memory_timeline.h"
#include "analyzer/memory_places.h"
#include "analyzer/memory_print.h"

#include <stdio.h>

/* The last moment of the piece of time, of `samples`, in which the moment `from` lies. */
static int64_t piece_end(const struct memory_sweep *s, int64_t from, int64_t samples) {
    int64_t first = s->ns[0], all = s->ns[s->moments - 1] - first;
    if (all <= 0) return s->moments - 1;
    __int128 piece = (__int128)(s->ns[from] - first) * samples / all;
    if (piece >= samples - 1) return s->moments - 1;
    /* the first ns of the next piece: (ns - first) * samples / all >= piece + 1 */
    int64_t next = first + (int64_t)(((piece + 1) * all + samples - 1) / samples);
    return memory_sweep_at(s, next - 1);
}

static void print_moment(struct emitter *e, const struct report *r, const struct memory_sweep *s, int64_t moment,
                         const int64_t *classes) {
    char place[96];
    int64_t classed = 0, step = memory_step_at(r, s->ns[moment]);
    const char *phase = step < 0 ? NULL : memory_phase_at(r, step, s->ns[moment]);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "ns", NULL, UNIT_NS, s->ns[moment]);
    emit_int(e, NULL, "after", UNIT_NS, s->ns[moment] - s->ns[0]);
    memory_print_step(e, "step", NULL, r, step);
    emit_text(e, "phase", NULL, phase);
    memory_place_words(r, s->ns[moment], place, sizeof place);
    emit_text(e, NULL, "when", place);
    emit_int(e, "total_bytes", "live", UNIT_BYTES, s->total[moment]);
    for (int c = 0; c < REPORT_CLASSES; c++) {
        int64_t bytes = classes[c];
        classed += classes[c];
        if (c == REPORT_UNKNOWN_CLASS) bytes += s->total[moment] - classed;
        emit_int(e, report_class_names[c], NULL, UNIT_BYTES, bytes);
    }
    if (emit_for_people(e)) {
        int most = 0;
        for (int c = 1; c < REPORT_CLASSES; c++)
            if (classes[c] > classes[most]) most = c;
        emit_text(e, NULL, "most of it", s->total[moment] ? report_class_names[most] : "-");
    }
    emit_end(e);
}

static void print_columns(struct emitter *e) {
    const char *names[4 + REPORT_CLASSES] = {"ns", "step", "phase", "total_bytes"};
    if (e->format != EMIT_CSV) return;
    for (int c = 0; c < REPORT_CLASSES; c++) names[4 + c] = report_class_names[c];
    emit_columns(e, 4 + REPORT_CLASSES, names);
}

void memory_timeline_print(struct emitter *e, const struct report *r, const struct memory_sweep *s, int64_t samples) {
    int64_t classes[REPORT_CLASSES] = {0}, i = 0;
    int table = e->format == EMIT_CSV && !e->depth;
    emit_list(e, "timeline", s->moments ? "Live bytes over time" : NULL,
              table || s->moments ? LOOK_TABLE : LOOK_HIDDEN);
    if (table) print_columns(e);
    for (int64_t m = 0, to; m < s->moments; m = to + 1) {
        to = samples ? piece_end(s, m, samples) : m;
        if (to < m) to = m;
        int64_t shown = memory_sweep_greatest(s, m, to);
        for (; i < s->end[shown]; i++) classes[s->change[i].class] += s->change[i].classed;
        print_moment(e, r, s, shown, classes);
    }
    emit_end(e);
}
