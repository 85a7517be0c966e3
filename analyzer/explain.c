/* Prints an explanation: for people lines, for machines the counts and the same sentences. */
#include "analyzer/explain.h"

static void emit_known(struct emitter *e, const char *key, enum emit_unit unit, int64_t value) {
    if (value == REPORT_UNKNOWN)
        emit_null(e, key, NULL);
    else
        emit_int(e, key, NULL, unit, value);
}

static void say(void *to, const char *sentence) {
    emit_text(to, "", "", sentence);
}

static void emit_texts(struct emitter *e, const char *key, char **text, int64_t n) {
    emit_list(e, key, NULL, LOOK_HIDDEN);
    for (int64_t i = 0; i < n; i++) emit_text(e, "", NULL, text[i]);
    emit_end(e);
}

static void emit_op(struct emitter *e, const char *key, const struct explain_op *o) {
    if (!o->op) {
        emit_null(e, key, NULL);
        return;
    }
    emit_object(e, key, NULL, LOOK_HIDDEN);
    emit_int(e, "op", NULL, UNIT_NONE, o->op);
    emit_text(e, "name", NULL, o->name);
    emit_text(e, "operand", NULL, o->slot);
    emit_known(e, "step", UNIT_NONE, o->step);
    emit_text(e, "phase", NULL,
              o->phase < PHASE_NONE || o->phase == PHASE_EVALUATION ? explain_phase_name(o->phase) : NULL);
    emit_end(e);
}

/* A row for each thing done in each phase. */
static void emit_uses(struct emitter *e, const struct explain_range *g) {
    emit_list(e, "use", NULL, LOOK_HIDDEN);
    for (int p = 0; p < EXPLAIN_PHASES; p++)
        for (int a = 0; a < EXPLAIN_ACTS; a++) {
            const struct explain_use *u = &g->use[a][p];
            if (!u->ops) continue;
            emit_object(e, "", NULL, LOOK_HIDDEN);
            emit_text(e, "act", NULL, explain_act_names[a]);
            emit_text(e, "phase", NULL, p == PHASE_NONE || p == EXPLAIN_OUTSIDE ? NULL : explain_phase_name(p));
            emit_int(e, "ops", NULL, UNIT_NONE, u->ops);
            emit_int(e, "steps", NULL, UNIT_NONE, u->steps);
            emit_op(e, "first", &u->first);
            emit_end(e);
        }
    emit_end(e);
}

static void emit_part(struct emitter *e, const struct explained *x, const struct explain_range *g) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_int(e, "offset", NULL, UNIT_BYTES, g->offset);
    emit_int(e, "bytes", NULL, UNIT_BYTES, g->bytes);
    emit_known(e, "from_ns", UNIT_NS, g->from_ns);
    emit_known(e, "until_ns", UNIT_NS, g->until_ns);
    emit_text(e, "class", NULL, g->class);
    emit_real(e, "confidence", NULL, UNIT_NONE, g->confidence);
    emit_text(e, "rule", NULL, g->rule);
    emit_uses(e, g);
    emit_op(e, "first_write", &g->first_write);
    emit_op(e, "first_read", &g->first_read);
    emit_op(e, "last_use", &g->last_use);
    emit_int(e, "overwritten_after_read", NULL, UNIT_NONE, g->overwritten_after_read);
    emit_int(e, "accesses_of_unknown_direction", NULL, UNIT_NONE, explain_count(g, ACT_MAYBE, NULL));
    emit_int(e, "accesses_of_unknown_extent", NULL, UNIT_NONE, g->unknown_extent);
    emit_list(e, "sentences", "Class", LOOK_LINES);
    explain_words(x, g, say, e);
    emit_end(e);
    emit_end(e);
}

static void emit_allocation(struct emitter *e, const struct explained *x) {
    emit_int(e, "id", NULL, UNIT_NONE, x->id);
    emit_int(e, "order", NULL, UNIT_NONE, x->order);
    emit_int(e, "bytes", NULL, UNIT_BYTES, x->bytes);
    emit_text(e, "memory", NULL, x->memory);
    emit_known(e, "device", UNIT_NONE, x->device);
    emit_known(e, "alloc_ns", UNIT_NS, x->alloc_ns);
    emit_known(e, "free_ns", UNIT_NS, x->free_ns);
    emit_known(e, "step", UNIT_NONE, x->step);
    emit_text(e, "api", NULL, x->api);
    emit_texts(e, "stack", x->frame, x->frames);
    emit_texts(e, "ranges", x->inside, x->insides);
    emit_texts(e, "tags", x->tag, x->tags);
    emit_int(e, "parts", NULL, UNIT_NONE, x->all_ranges);
}

int explain_alloc(struct emitter *e, struct report *r, int64_t alloc, char *err, size_t err_len) {
    struct explained x;
    if (explained_load(&x, r, alloc, err, err_len)) {
        explained_free(&x);
        return -1;
    }
    emit_object(e, "explain", NULL, LOOK_FIELDS);
    emit_allocation(e, &x);
    emit_list(e, "place", "Allocation", LOOK_LINES);
    explain_place_words(&x, say, e);
    emit_end(e);
    emit_list(e, "classes", NULL, LOOK_FIELDS);
    for (int64_t i = 0; i < x.ranges; i++) emit_part(e, &x, &x.range[i]);
    emit_end(e);
    emit_end(e);
    explained_free(&x);
    return 0;
}
