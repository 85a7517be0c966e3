#include "analyzer/memory_estimate.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_sweep.h"
#include "plan/plan_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int line_class[ESTIMATE_LINES] = {0, 1, 2, 3}; /* places in report_class_names */

static int is_known(int64_t x) {
    return x != REPORT_UNKNOWN;
}

/* ---- the recipe ---- */

/* A whole number of bytes a parameter, within 2 %: tensors are padded, and a few may have no state. REPORT_UNKNOWN: it
 * is none. */
static int64_t bytes_each(int64_t bytes, int64_t parameters) {
    double each = (double)bytes / (double)parameters, whole = round(each);
    return fabs(each - whole) <= 0.02 * (whole > 1 ? whole : 1) ? (int64_t)whole : REPORT_UNKNOWN;
}

static void find_recipe(struct report *r, struct memory_estimate *m) {
    int64_t n = r->parameters;
    m->parameters = n > 0 ? n : REPORT_UNKNOWN;
    if (n <= 0) {
        snprintf(m->why_not, sizeof m->why_not,
                 "how many parameters there are is not known: no product tells the size of their elements");
        return;
    }
    int64_t w = bytes_each(m->most[0], n), g = bytes_each(m->most[1], n), s = bytes_each(m->most[2], n);
    if (is_known(w) && is_known(g) && is_known(s)) m->recipe = plan_recipe_of(w, g, s);
    if (m->recipe.known) return;
    snprintf(m->why_not, sizeof m->why_not,
             "no recipe has %.2f bytes of weights, %.2f of gradients and %.2f of optimizer states a parameter%s",
             (double)m->most[0] / (double)n, (double)m->most[1] / (double)n, (double)m->most[2] / (double)n,
             m->most[1] && m->most[1] < m->most[0] / 2 ? " (not every parameter has a gradient)" : "");
}

/* ---- activations ---- */

static const struct report_step *last_complete(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].complete) return &r->steps[i];
    return NULL;
}

/* Elements that the forward products of a micro-batch write. Products of the program's own kernels are not among the
 * calls: then it is not known. */
static int load_outputs(struct report *r, struct memory_estimate *m, char *err, size_t err_len) {
    const struct report_step *s = last_complete(r);
    sqlite3_stmt *st;
    int rc;
    m->outputs = m->element_bytes = REPORT_UNKNOWN;
    if (!s) return 0;
    st = report_prepare(
        r,
        "SELECT sum(g.m * g.n * max(g.batch, 1)), count(*), min(coalesce(nullif(g.d_type, ''), g.c_type)), "
        "max(coalesce(nullif(g.d_type, ''), g.c_type)), (SELECT count(*) FROM op CROSS JOIN op_cost k ON k.op = op.id "
        "WHERE " REPORT_NEAR_STEP(
            "?1") " AND k.step = ?1 AND k.matmul AND op.kind = 'launch') FROM op CROSS JOIN "
                  "op_cost c ON c.op = op.id CROSS JOIN gemm g ON g.op = op.id WHERE " REPORT_NEAR_STEP(
                      "?1") " AND c.step = ?1 "
                            "AND c.phase = 'forward' AND c.micro_batch = 0",
        err, err_len);
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, s->index);
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *least = (const char *)sqlite3_column_text(st, 2), *most = (const char *)sqlite3_column_text(st, 3);
        if (sqlite3_column_int64(st, 1) && !sqlite3_column_int64(st, 4)) m->outputs = report_column(st, 0);
        if (least && most && !strcmp(least, most))
            m->element_bytes = !strcmp(least, "fp32")                             ? 4
                               : !strcmp(least, "bf16") || !strcmp(least, "fp16") ? 2
                                                                                  : REPORT_UNKNOWN;
        rc = sqlite3_step(st);
    }
    m->recomputes = s->flops.phase[PHASE_RECOMPUTE] > 0;
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_shape(struct report *r, struct memory_estimate *m, char *err, size_t err_len) {
    struct {
        const char *fact;
        int64_t *value;
        int64_t found;
    } facts[] = {{"layers", &m->layers, 0},
                 {"heads", &m->heads, 0},
                 {"head_size", &m->hidden, 0},
                 {"context", &m->context, 0},
                 {"sequences", &m->sequences, 0}};
    enum { FACTS = sizeof facts / sizeof *facts };
    int rc, all = 1;
    for (int i = 0; i < FACTS; i++) *facts[i].value = REPORT_UNKNOWN;
    m->transformer_bytes = REPORT_UNKNOWN;
    if (!memory_has_table(r, "model")) return 0;
    sqlite3_stmt *st = report_prepare(r, "SELECT fact, value FROM model", err, err_len);
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        for (int i = 0; i < FACTS; i++)
            if (name && !strcmp(name, facts[i].fact)) *facts[i].value = report_column(st, 1);
    }
    for (int i = 0; i < FACTS; i++) all &= is_known(*facts[i].value) && *facts[i].value > 0;
    if (is_known(m->hidden)) m->hidden = is_known(m->heads) ? m->hidden * m->heads : REPORT_UNKNOWN;
    if (all && is_known(m->element_bytes)) {
        int64_t bytes =
            plan_transformer_bytes(m->layers, m->context, m->sequences, m->hidden, m->heads, m->element_bytes, 0);
        if (bytes >= 0) m->transformer_bytes = bytes;
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- lines ---- */

/* The most that is live of each class, at whatever moment. */
static int load_most(struct report *r, struct memory_estimate *m, char *err, size_t err_len) {
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    int64_t live[REPORT_CLASSES] = {0}, j = 0;
    if (!s) return -1;
    for (int64_t i = 0; i < s->moments; i++) {
        for (; j < s->end[i]; j++) live[s->change[j].class] += s->change[j].classed;
        for (int c = 0; c < REPORT_CLASSES; c++)
            if (live[c] > m->most[c]) m->most[c] = live[c];
    }
    return 0;
}

static int by_class(const void *a, const void *b) {
    const struct memory_part *x = a, *y = b;
    if (x->class != y->class) return x->class - y->class;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int load_parts(struct report *r, struct memory_estimate *m, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT c.class, c.rule, count(DISTINCT a.id), sum(c.bytes) FROM alloc a JOIN alloc_class c ON c.alloc = a.id "
        "AND "
        "(c.from_ns IS NULL OR c.from_ns <= ?1) AND (c.until_ns IS NULL OR c.until_ns > ?1) WHERE a.memory IN "
        "(" MEMORY_OF_DEVICE ") AND a.alloc_ns <= ?1 AND (a.free_ns IS NULL OR a.free_ns > ?1) GROUP BY 1, 2",
        err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, r->memory.peak_ns);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        m->part = report_grow(m->part, m->n_parts, sizeof *m->part);
        m->part[m->n_parts++] = (struct memory_part){.class = report_class_of((const char *)sqlite3_column_text(st, 0)),
                                                     .rule = report_column_text(st, 1),
                                                     .blocks = sqlite3_column_int64(st, 2),
                                                     .bytes = sqlite3_column_int64(st, 3)};
    }
    if (m->n_parts) qsort(m->part, (size_t)m->n_parts, sizeof *m->part, by_class);
    return report_rows_end(r, st, rc, err, err_len);
}

static void fill_lines(struct memory_estimate *m) {
    int64_t n = m->parameters;
    for (int i = 0; i < ESTIMATE_LINES; i++) m->lecture[i] = m->expected[i] = REPORT_UNKNOWN;
    if (is_known(m->outputs)) m->lecture[ESTIMATE_ACTIVATION] = 4 * m->outputs;
    if (is_known(m->transformer_bytes))
        m->expected[ESTIMATE_ACTIVATION] = m->transformer_bytes;
    else if (is_known(m->outputs) && is_known(m->element_bytes))
        m->expected[ESTIMATE_ACTIVATION] = m->outputs * m->element_bytes;
    if (!is_known(n)) return;
    m->lecture[ESTIMATE_PARAM] = m->lecture[ESTIMATE_GRAD] = 4 * n;
    if (!m->recipe.known) return;
    m->lecture[ESTIMATE_OPTIMIZER] = m->recipe.moments * n; /* it knows no master copy */
    m->expected[ESTIMATE_PARAM] = m->recipe.weights * n;
    m->expected[ESTIMATE_GRAD] = m->recipe.grads * n;
    m->expected[ESTIMATE_OPTIMIZER] = (m->recipe.master + m->recipe.moments) * n;
}

int memory_estimate_load(struct report *r, struct memory_estimate *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    if (load_most(r, out, err, err_len) || load_outputs(r, out, err, err_len) || load_shape(r, out, err, err_len) ||
        load_parts(r, out, err, err_len))
        return -1;
    find_recipe(r, out);
    fill_lines(out);
    return 0;
}

void memory_estimate_free(struct memory_estimate *m) {
    for (int64_t i = 0; i < m->n_parts; i++) free(m->part[i].rule);
    free(m->part);
    memset(m, 0, sizeof *m);
}

/* ---- print ---- */

static int64_t sum_of(const int64_t *lines) {
    int64_t sum = 0;
    for (int i = 0; i < ESTIMATE_LINES; i++) {
        if (!is_known(lines[i])) return REPORT_UNKNOWN;
        sum += lines[i];
    }
    return sum;
}

static int64_t gap(int64_t measured, int64_t expected) {
    return is_known(expected) ? measured - expected : REPORT_UNKNOWN;
}

/* For people: signed. */
static void print_gap(struct emitter *e, int64_t bytes) {
    char text[96] = "+";
    report_print_int(e, "gap_bytes", NULL, UNIT_BYTES, bytes);
    if (is_known(bytes)) emit_human_bytes(text + (bytes > 0), sizeof text - 1, bytes);
    emit_text(e, NULL, "gap", is_known(bytes) ? text : NULL);
}

static void print_line(struct emitter *e, const char *name, int64_t lecture, int64_t expected, int64_t measured,
                       const char *what) {
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "class", "class", name);
    report_print_int(e, "lecture_bytes", "4 bytes x all", UNIT_BYTES, lecture);
    report_print_int(e, "expected_bytes", "expected", UNIT_BYTES, expected);
    emit_int(e, "measured_bytes", "measured", UNIT_BYTES, measured);
    print_gap(e, gap(measured, expected));
    if (emit_for_people(e) || *what)
        emit_text(e, "note", "note", what);
    else
        emit_null(e, "note", NULL);
    emit_end(e);
}

/* What the formulas leave out is a gap of its own, named. */
const char *memory_estimate_left_out(int class) {
    static const struct {
        const char *class, *what;
    } words[] = {{"activation_grad", "gradients of activations: in no formula"},
                 {"input", "batches and targets: in no formula"},
                 {"workspace", "of libraries: in no formula"},
                 {"temporary", "within one phase: in no formula"},
                 {"other", "statistics, tables, buffers: in no formula"},
                 {"unknown", "of no known class"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(report_class_names[class], words[i].class)) return words[i].what;
    return "";
}

const char *memory_estimate_note(const struct memory_estimate *m, int line, char *out, size_t room) {
    if (line != ESTIMATE_ACTIVATION) {
        int64_t most = m->most[line_class[line]], expected = m->expected[line];
        snprintf(out, room, "%s",
                 !is_known(expected) ? ""
                 : most != expected  ? "padding, tensors with or without their own"
                                     : "");
        return out;
    }
    snprintf(out, room, "%s%s",
             is_known(m->transformer_bytes) ? "transformer formula, without dropout"
                                            : "outputs of the forward products, each kept",
             m->recomputes ? "; the program recomputes, so it keeps less" : "");
    return is_known(m->expected[line]) ? out : "no formula applies";
}

static void print_lines(struct emitter *e, const struct report *r, const struct memory_estimate *m, int show) {
    char note[128];
    emit_list(e, "lines", show ? "Estimate against measured, at the run's peak" : NULL,
              show ? LOOK_TABLE : LOOK_HIDDEN);
    for (int i = 0; i < ESTIMATE_LINES; i++)
        print_line(e, report_class_names[line_class[i]], m->lecture[i], m->expected[i],
                   r->memory.at_peak[line_class[i]], memory_estimate_note(m, i, note, sizeof note));
    for (int c = ESTIMATE_LINES; c < REPORT_CLASSES; c++)
        if (r->memory.at_peak[c] || !emit_for_people(e))
            print_line(e, report_class_names[c], 0, 0, r->memory.at_peak[c], memory_estimate_left_out(c));
    print_line(e, "total", sum_of(m->lecture), sum_of(m->expected), r->memory.peak_bytes, "");
    emit_end(e);
}

/* What the measured bytes are made of: names the gaps further than by class. */
void memory_estimate_print_parts(struct emitter *e, const struct memory_estimate *m, int show) {
    emit_list(e, "parts", show && m->n_parts ? "What the measured bytes are" : NULL,
              show && m->n_parts ? LOOK_TABLE : LOOK_HIDDEN);
    for (int64_t i = 0; i < m->n_parts; i++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_text(e, "class", "class", report_class_names[m->part[i].class]);
        emit_int(e, "bytes", "bytes", UNIT_BYTES, m->part[i].bytes);
        emit_int(e, "blocks", "blocks", UNIT_NONE, m->part[i].blocks);
        emit_text(e, "rule", "rule", m->part[i].rule);
        emit_end(e);
    }
    emit_end(e);
}

static void print_recipe(struct emitter *e, const struct memory_estimate *m) {
    const struct plan_recipe_seen *k = &m->recipe;
    char text[192];
    emit_object(e, "recipe", NULL, LOOK_HIDDEN);
    emit_text(e, "name", NULL, k->known ? k->name : NULL);
    report_print_int(e, "weights", NULL, UNIT_BYTES, k->known ? k->weights : REPORT_UNKNOWN);
    report_print_int(e, "grads", NULL, UNIT_BYTES, k->known ? k->grads : REPORT_UNKNOWN);
    report_print_int(e, "master", NULL, UNIT_BYTES, k->known ? k->master : REPORT_UNKNOWN);
    report_print_int(e, "moments", NULL, UNIT_BYTES, k->known ? k->moments : REPORT_UNKNOWN);
    report_print_int(e, "total", NULL, UNIT_BYTES,
                     k->known ? k->weights + k->grads + k->master + k->moments : REPORT_UNKNOWN);
    emit_end(e);
    snprintf(text, sizeof text,
             "%s: weights %lld + gradients %lld + master %lld + moments %lld = %lld bytes a parameter",
             k->name ? k->name : "none of the table", (long long)k->weights, (long long)k->grads, (long long)k->master,
             (long long)k->moments, (long long)(k->weights + k->grads + k->master + k->moments));
    emit_text(e, NULL, "recipe", k->known ? text : NULL);
    emit_text(e, "why_not", *m->why_not ? "why not" : NULL, *m->why_not ? m->why_not : NULL);
}

static void print_shape(struct emitter *e, const struct memory_estimate *m) {
    char text[160];
    report_print_int(e, "forward_outputs", NULL, UNIT_NONE, m->outputs);
    report_print_int(e, "element_bytes", NULL, UNIT_BYTES, m->element_bytes);
    report_print_int(e, "layers", NULL, UNIT_NONE, m->layers);
    report_print_int(e, "hidden", NULL, UNIT_NONE, m->hidden);
    report_print_int(e, "heads", NULL, UNIT_NONE, m->heads);
    report_print_int(e, "context", NULL, UNIT_NONE, m->context);
    report_print_int(e, "sequences", NULL, UNIT_NONE, m->sequences);
    report_print_int(e, "transformer_bytes", NULL, UNIT_BYTES, m->transformer_bytes);
    emit_bool(e, "recomputes", NULL, m->recomputes);
    if (!is_known(m->transformer_bytes)) return;
    snprintf(text, sizeof text, "%lld layers, h %lld, a %lld, s %lld, b %lld, %lld bytes an element",
             (long long)m->layers, (long long)m->hidden, (long long)m->heads, (long long)m->context,
             (long long)m->sequences, (long long)m->element_bytes);
    emit_text(e, NULL, "transformer", text);
}

void memory_estimate_print(struct emitter *e, const struct report *r, const struct memory_estimate *m, int brief) {
    emit_object(e, "estimate", brief ? NULL : "Estimate (formulas, nothing measured)", LOOK_FIELDS);
    report_print_int(e, "parameters", brief ? NULL : "parameters", UNIT_NONE, m->parameters);
    if (!brief || !emit_for_people(e)) {
        print_recipe(e, m);
        print_shape(e, m);
    }
    print_lines(e, r, m, !brief || m->recipe.known);
    memory_estimate_print_parts(e, m, !brief);
    emit_end(e);
}
