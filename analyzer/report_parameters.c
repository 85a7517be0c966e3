/* N of the conventions: how many parameters there are, and how many of them take part in matrix products. Their number
 * is bytes ÷ element size; the element size is that of the operands as which matrix products read them, and not known
 * where these disagree or there are none. */
#include "analyzer/report_model.h"

#include <stdlib.h>
#include <string.h>

struct span {
    int64_t alloc, from, to; /* bytes inside the allocation */
};

struct spans {
    struct span *span;
    int64_t n;
};

static void push(struct spans *s, int64_t alloc, int64_t from, int64_t bytes) {
    s->span = report_grow(s->span, s->n, sizeof *s->span);
    s->span[s->n++] = (struct span){alloc, from, from + bytes};
}

static int by_place(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->alloc != y->alloc) return x->alloc < y->alloc ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* Sorted, without overlaps. */
static void normalize(struct spans *s) {
    int64_t n = 0;
    if (s->n) qsort(s->span, (size_t)s->n, sizeof *s->span, by_place);
    for (int64_t i = 0; i < s->n; i++) {
        struct span *last = n ? &s->span[n - 1] : NULL;
        if (last && last->alloc == s->span[i].alloc && s->span[i].from <= last->to) {
            if (s->span[i].to > last->to) last->to = s->span[i].to;
        } else {
            s->span[n++] = s->span[i];
        }
    }
    s->n = n;
}

static int64_t size_of(const struct spans *s) {
    int64_t sum = 0;
    for (int64_t i = 0; i < s->n; i++) sum += s->span[i].to - s->span[i].from;
    return sum;
}

/* Bytes in both; both normalized. */
static int64_t size_of_both(const struct spans *a, const struct spans *b) {
    int64_t sum = 0, i = 0, j = 0;
    while (i < a->n && j < b->n) {
        const struct span *x = &a->span[i], *y = &b->span[j];
        if (x->alloc == y->alloc) {
            int64_t from = x->from > y->from ? x->from : y->from, to = x->to < y->to ? x->to : y->to;
            if (to > from) sum += to - from;
        }
        if (x->alloc < y->alloc || (x->alloc == y->alloc && x->to < y->to))
            i++;
        else
            j++;
    }
    return sum;
}

static int64_t element_bits(const char *type) {
    static const struct {
        const char *type;
        int bits;
    } sizes[] = {{"fp64", 64},    {"fp32", 32},    {"fp16", 16},    {"bf16", 16},
                 {"fp8_e4m3", 8}, {"fp8_e5m2", 8}, {"fp4_e2m1", 4}, {"int8", 8}};
    for (size_t i = 0; type && i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(type, sizes[i].type)) return sizes[i].bits;
    return 0;
}

static int load_parameters(struct report *r, struct spans *out, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(r,
                       "SELECT DISTINCT c.alloc, c.offset, c.bytes FROM alloc_class c JOIN alloc a ON a.id = c.alloc"
                       " WHERE c.class = 'param' AND a.memory IN ('device', 'async')",
                       err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        push(out, sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 2));
    normalize(out);
    return report_rows_end(r, st, rc, err, err_len);
}

/* Of all calls, or of one step (its index; -1: all). *bits: of the operands that lie in parameters; 0: they differ, or
 * none. */
static int load_operands(struct report *r, int64_t step, const struct spans *parameters, struct spans *out,
                         int64_t *bits, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT DISTINCT b.alloc, b.address - a.address, b.bytes, CASE b.slot WHEN 'A' THEN g.a_type ELSE g.b_type END"
        " FROM op_buffer b JOIN gemm g ON g.id = b.op JOIN alloc a ON a.id = b.alloc WHERE b.slot IN ('A', 'B')"
        " AND b.bytes > 0 AND b.alloc IN (SELECT alloc FROM alloc_class WHERE class = 'param')"
        " AND (?1 < 0 OR b.op IN (SELECT op FROM op_cost WHERE step = ?1))",
        err, err_len);
    int rc, differ = 0;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, step);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct span one = {sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1), 0};
        int64_t size = element_bits((const char *)sqlite3_column_text(st, 3));
        one.to = one.from + sqlite3_column_int64(st, 2);
        if (!size_of_both(parameters, &(struct spans){&one, 1})) continue; /* other bytes of the same allocation */
        if (!size || (*bits && *bits != size)) differ = 1;
        *bits = size;
        push(out, one.alloc, one.from, one.to - one.from);
    }
    if (differ) *bits = 0;
    normalize(out);
    return report_rows_end(r, st, rc, err, err_len);
}

/* A buffer that a launch filled from one parameter: a cast, as products in a smaller format need one. */
struct copy {
    int64_t address, alloc, from, bytes; /* the copy; the parameter: allocation, offset, bytes */
};

struct copies {
    struct copy *copy;
    int64_t n;
};

static struct copy *find_copy(const struct copies *c, int64_t address) {
    for (int64_t i = 0; i < c->n; i++)
        if (c->copy[i].address == address) return &c->copy[i];
    return NULL;
}

/* An op wrote `address`, having read `source` (alloc 0: no parameter, or several). */
static void note_write(struct copies *c, int64_t address, const struct copy *source) {
    struct copy *found = find_copy(c, address);
    if (!found && !source->alloc) return;
    if (!found) {
        c->copy = report_grow(c->copy, c->n, sizeof *c->copy);
        found = &c->copy[c->n++];
    }
    *found = *source;
    found->address = address;
}

enum { ROW_OP, ROW_MODE, ROW_ADDRESS, ROW_BYTES, ROW_PARAMETER, ROW_OFFSET, ROW_ELEMENTS };

/* One row of an op's buffers: what it reads of parameters is collected in *source, what it writes is noted, and a
 * factor of a product that is a copy is pushed. Reads come before writes. */
static void follow_row(sqlite3_stmt *st, int64_t bits, struct copies *c, struct copy *source, struct spans *out) {
    const char *mode = (const char *)sqlite3_column_text(st, ROW_MODE);
    int64_t address = sqlite3_column_int64(st, ROW_ADDRESS), parameter = sqlite3_column_int64(st, ROW_PARAMETER);
    int64_t elements = sqlite3_column_int64(st, ROW_ELEMENTS);
    if (strcmp(mode, "r")) {
        note_write(c, address, source);
    } else if (elements) {
        const struct copy *copy = find_copy(c, address);
        if (copy && copy->alloc && copy->bytes * 8 / bits == elements) push(out, copy->alloc, copy->from, copy->bytes);
    } else if (parameter) {
        int64_t bytes = sqlite3_column_int64(st, ROW_BYTES);
        *source = (struct copy){0, source->bytes ? 0 : parameter, sqlite3_column_int64(st, ROW_OFFSET), bytes};
    }
}

/* The parameters that products of a step read through copies. */
static int load_copied(struct report *r, int64_t step, int64_t bits, struct spans *out, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(
        r,
        "SELECT b.op, b.mode, b.address, b.bytes,"
        " CASE WHEN b.alloc IN (SELECT alloc FROM alloc_class WHERE class = 'param') THEN b.alloc END,"
        " b.address - a.address, CASE b.slot WHEN 'A' THEN g.m * g.k WHEN 'B' THEN g.k * g.n END"
        " FROM op_cost c JOIN op_buffer b ON b.op = c.op JOIN alloc a ON a.id = b.alloc LEFT JOIN gemm g ON g.id = b.op"
        " WHERE c.step = ? AND b.bytes > 0 ORDER BY b.op, b.mode <> 'r'",
        err, err_len);
    struct copies copies = {0};
    struct copy source = {0};
    int64_t op = -1;
    int rc;
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, step);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (sqlite3_column_int64(st, ROW_OP) != op) source = (struct copy){0};
        op = sqlite3_column_int64(st, ROW_OP);
        follow_row(st, bits, &copies, &source, out);
    }
    free(copies.copy);
    return report_rows_end(r, st, rc, err, err_len);
}

static const struct report_step *last_complete(const struct report *r) {
    for (int64_t i = r->n_steps - 1; i >= 0; i--)
        if (r->steps[i].complete) return &r->steps[i];
    return NULL;
}

static void push_all(struct spans *s, const struct spans *more) {
    for (int64_t i = 0; i < more->n; i++)
        push(s, more->span[i].alloc, more->span[i].from, more->span[i].to - more->span[i].from);
    normalize(s);
}

/* Are all parameters that products read anywhere read in the last step too, as they are or through the copies? Where
 * models take turns, or came one after another, none of them has the parameters of all. */
static int check_one_model(struct report *r, const struct spans *parameters, const struct spans *copied, char *err,
                           size_t err_len) {
    const struct report_step *s = last_complete(r);
    struct spans read = {0};
    int64_t bits = 0, matmul = r->matmul_parameters;
    if (!s) return 0;
    int rc = load_operands(r, s->index, parameters, &read, &bits, err, err_len);
    push_all(&read, copied);
    if (!rc && bits && size_of_both(parameters, &read) * 8 / bits < matmul) {
        r->parameters = r->matmul_parameters = REPORT_UNKNOWN;
        report_note(
            r, "6n is not known: a step reads only some of the parameters in its products (models that take turns?).");
    }
    free(read.span);
    return rc;
}

/* Does 6n-matmul differ from what ran by exactly the input gradients of the steps' first products? Then that is the
 * reason. */
static int explain_difference(struct report *r, char *err, size_t err_len) {
    const struct report_step *s = last_complete(r);
    sqlite3_stmt *st;
    int rc;
    if (!s || s->tokens == REPORT_UNKNOWN || r->matmul_parameters <= 0 || s->flops.gemm.uncounted) return 0;
    __int128 missing =
        (__int128)6 * r->matmul_parameters * s->tokens - (s->flops.gemm.least - s->flops.phase[PHASE_RECOMPUTE]);
    st = report_prepare(r,
                        "SELECT flops FROM op_cost WHERE step = ? AND phase = 'forward' AND matmul AND flops > 0 ORDER "
                        "BY micro_batch, op LIMIT 1",
                        err, err_len);
    if (!st) return -1;
    sqlite3_bind_int64(st, 1, s->index);
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        __int128 first = (__int128)sqlite3_column_int64(st, 0) * (s->micro_batches > 0 ? s->micro_batches : 1);
        if (missing == first) r->first_input_gradient = (int64_t)first;
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int report_load_parameters(struct report *r, char *err, size_t err_len) {
    struct spans parameters = {0}, operands = {0}, copied = {0};
    int64_t bits = 0;
    int rc = load_parameters(r, &parameters, err, err_len);
    r->parameters = r->matmul_parameters = REPORT_UNKNOWN;
    if (!rc && parameters.n) rc = load_operands(r, -1, &parameters, &operands, &bits, err, err_len);
    if (!rc && bits && last_complete(r)) rc = load_copied(r, last_complete(r)->index, bits, &copied, err, err_len);
    push_all(&operands, &copied);
    if (!rc && bits) {
        r->parameters = size_of(&parameters) * 8 / bits;
        r->matmul_parameters = size_of_both(&parameters, &operands) * 8 / bits;
        rc = check_one_model(r, &parameters, &copied, err, err_len);
        if (!rc) rc = explain_difference(r, err, err_len);
    }
    free(parameters.span);
    free(operands.span);
    free(copied.span);
    return rc;
}
