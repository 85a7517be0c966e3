#include "analyzer/memory_print.h"

#include <math.h>
#include <stdio.h>

void memory_print_step(struct emitter *e, const char *key, const char *label, const struct report *r, int64_t step) {
    report_print_int(e, key, label, UNIT_NONE, step < 0 ? REPORT_UNKNOWN : r->steps[step].index);
}

void memory_print_classes(struct emitter *e, const char *key, const char *label, enum emit_look look,
                          const int64_t *classes) {
    emit_object(e, key, label, look);
    for (int c = 0; c < REPORT_CLASSES; c++)
        emit_int(e, report_class_names[c], report_class_names[c], UNIT_BYTES, classes[c]);
    emit_end(e);
}

/* `step 3`, or where it is in no step. */
static void born_words(const struct report *r, const struct memory_piece *p, char *out, size_t room) {
    if (p->step >= 0)
        snprintf(out, room, "step %lld", (long long)r->steps[p->step].index);
    else
        memory_place_words(r, p->alloc_ns, out, room);
}

void memory_print_piece(struct emitter *e, const struct report *r, const struct memory_piece *p, int64_t at_ns) {
    char born[64];
    const char *phase = p->step < 0 ? NULL : memory_phase_at(r, p->step, p->alloc_ns);
    born_words(r, p, born, sizeof born);
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "id", "id", UNIT_NONE, p->alloc);
    emit_int(e, "bytes", "bytes", UNIT_BYTES, p->bytes);
    emit_text(e, "class", "class", report_class_names[p->class]);
    emit_int(e, "block_bytes", NULL, UNIT_BYTES, p->block_bytes);
    emit_int(e, "offset", NULL, UNIT_BYTES, p->offset);
    report_print_int(e, "device", r->devices > 1 ? "device" : NULL, UNIT_NONE, p->device);
    emit_text(e, NULL, "allocated", born);
    memory_print_step(e, "step", NULL, r, p->step);
    emit_text(e, "phase", NULL, phase);
    emit_int(e, "age_steps", r->n_steps ? "age in steps" : NULL, UNIT_NONE, p->age_steps);
    emit_int(e, "age_ns", "age", UNIT_NS, at_ns - p->alloc_ns);
    emit_int(e, "alloc_ns", NULL, UNIT_NS, p->alloc_ns);
    report_print_int(e, "free_ns", NULL, UNIT_NS, p->free_ns);
    emit_text(e, "site", "site", p->site);
    emit_bool(e, "site_of_stack", NULL, p->from_stack);
    emit_real(e, "confidence", "confidence", UNIT_NONE, p->confidence);
    emit_text(e, "rule", "rule", p->rule ? p->rule : "not classified");
    emit_end(e);
}
