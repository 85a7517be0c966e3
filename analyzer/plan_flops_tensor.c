/* einsum, reduce, rearrange of `acct plan flops`. */
#include "analyzer/plan_flops.h"
#include "plan/plan_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the pattern and its sizes ---- */

static int take_size(const char *name, const char *value, void *pattern, char *err, size_t err_len) {
    return plan_pattern_size(pattern, name, value, err, err_len);
}

static int note_long_name(const char *name, const char *value, void *found, char *err, size_t err_len) {
    (void)value, (void)err, (void)err_len;
    if (strcmp(name, "...") && name[1]) *(int *)found = 1;
    return 0;
}

/* Reads the pattern, sizes and shapes (text[first] …) into f->pattern, allocated. */
static int read_pattern(struct flops *f, enum plan_notation notation, int first, struct plan_pattern *p) {
    char err[512];
    int words = 0, n;
    int64_t shape[PLAN_DIMS];
    const char *sizes = f->args->given[FLOPS_SIZE] ? f->args->value[FLOPS_SIZE] : "";
    if (plan_pairs(sizes, note_long_name, &words, err, sizeof err)) return flops_fail(f, "--size: %s", err);
    if (plan_pattern_parse(f->text[0], notation, words, p, err, sizeof err)) return flops_fail(f, "%s", err);
    if (plan_pairs(sizes, take_size, p, err, sizeof err)) return flops_fail(f, "--size: %s", err);
    for (int i = first; i < f->n; i++) {
        int code = flops_shape(f, f->text[i], shape, &n);
        if (code) return code;
        if (plan_pattern_shape(p, i - first, n, shape, err, sizeof err)) return flops_fail(f, "%s", err);
    }
    if (plan_pattern_bind(p, notation == PLAN_EINSUM, err, sizeof err)) return flops_fail(f, "%s", err);
    f->pattern = p;
    return 0;
}

static void input_pattern(struct flops *f) {
    const struct plan_pattern *p = f->pattern;
    char text[1024] = "";
    size_t n = 0;
    for (int i = 0; i < p->axes && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%lld", i ? "," : "", p->axis[i].name,
                              (long long)p->axis[i].size);
    sheet_input_text(&f->sheet, "pattern", "pattern", f->text[0], "given");
    sheet_input_text(&f->sheet, "sizes", "sizes", text, f->args->given[FLOPS_SIZE] ? "given" : "shapes");
}

/* A tensor of the pattern: its dimensions, but for a diagonal, of which the elements are what counts. */
static int add_term(struct flops *f, const char *name, const struct flops_type *type, const struct plan_term *t,
                    int reads, int writes) {
    const struct plan_pattern *p = f->pattern;
    char shape[1024] = "";
    size_t n = 0;
    __int128 elements;
    int64_t size;
    for (int d = 0; d < t->dims; d++) {
        if (plan_term_dim(p, t, d, &size)) return flops_fail(f, "a dimension of %s is beyond 2^63", name);
        if (n < sizeof shape)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? "," : "", (long long)size);
    }
    if (plan_pattern_product(p, t->axes & ~t->narrow, &elements))
        return flops_fail(f, "%s has more than 1.7e38 elements", name);
    return flops_add_operand_text(f, NULL, name, type, reads, writes, t->dims ? shape : "()", elements);
}

static int add_terms(struct flops *f, int touched) {
    char name[24];
    for (int o = 0; o < f->pattern->operands; o++) {
        snprintf(name, sizeof name, "%d", o + 1);
        int code =
            add_term(f, f->pattern->operands > 1 ? name : "operand", f->type, &f->pattern->operand[o], touched, 0);
        if (code) return code;
    }
    return add_term(f, "result", f->out_type, &f->pattern->result, 0, touched);
}

/* ---- einsum ---- */

static void tensor_text(const struct plan_pattern *p, struct plan_part part, int last, char *out, size_t room) {
    if (last)
        plan_term_text(p, &p->result, out, room);
    else
        plan_set_text(p, part.axes, out, room);
    if (!*out && room > 2) memcpy(out, "()", 3);
}

static plan_set wide_axes(const struct plan_step *s) {
    return (s->from_left.axes & ~s->from_left.narrow) | (s->from_right.axes & ~s->from_right.narrow);
}

/* 1: axes of two tensors are contracted, by multiply-adds. */
static int contracts(const struct plan_pattern *p, const struct plan_step *s) {
    __int128 product;
    return s->right >= 0 && !plan_pattern_product(p, wide_axes(s), &product) && s->flops != product;
}

/* `2 x b s h t = 2 x 2 x 3 x 5 x 4`, `i j = 2 x 3`: of the only step of an order. */
static void step_formula(const struct plan_pattern *p, const struct plan_step *s, char *out, size_t room) {
    char names[400];
    int64_t size[PLAN_AXES];
    int n = 0, twice = contracts(p, s);
    plan_set_text(p, wide_axes(s), names, sizeof names);
    for (plan_set rest = wide_axes(s); rest; rest &= rest - 1) size[n++] = p->axis[plan_set_first(rest)].size;
    snprintf(out, room, "%s%s%s%s", twice ? "2 x " : "", n ? names : "1", n ? " = " : "", twice && n ? "2 x " : "");
    size_t length = strlen(out);
    snprintf(out + length, room - length, "%s", flops_times(n, size));
}

/* The steps of an order as parts: each reads its tensors and writes its result. */
static int add_order(struct flops *f, const struct plan_order *o, const char *name) {
    const struct plan_pattern *p = f->pattern;
    char left[300], right[300], result[300], text[1000];
    for (int i = 0; i < o->n; i++) {
        const struct plan_step *s = &o->step[i];
        __int128 a, b = 0, moved = 0, bytes[3];
        int last = i + 1 == o->n;
        tensor_text(p, s->from_left, 0, left, sizeof left);
        tensor_text(p, s->from_right, 0, right, sizeof right);
        tensor_text(p, s->result, last, result, sizeof result);
        snprintf(text, sizeof text, "%s%s%s -> %s", left,
                 s->right < 0 ? ""
                 : p->letters ? ","
                              : ", ",
                 s->right < 0 ? "" : right, result);
        if (plan_part_elements(p, s->from_left, &a) || (s->right >= 0 && plan_part_elements(p, s->from_right, &b)))
            return flops_fail(f, "a tensor has more than 1.7e38 elements");
        bytes[0] = flops_type_bytes(f->type, a);
        bytes[1] = flops_type_bytes(f->type, b);
        bytes[2] = flops_type_bytes(last ? f->out_type : f->type, s->elements);
        for (int k = 0; k < 3; k++)
            if (bytes[k] < 0 || plan_add(moved, bytes[k], &moved)) return flops_fail(f, "more than 1.7e38 bytes");
        flops_add_part(f, text, contracts(p, s), s->flops, moved);
        f->part[f->n_parts - 1].order = name;
    }
    return 0;
}

static void order_formula(const struct plan_pattern *p, const struct plan_order *o, char *out, size_t room) {
    size_t n = 0;
    *out = 0;
    if (o->n == 1) {
        step_formula(p, &o->step[0], out, room);
        return;
    }
    if (!o->n) snprintf(out, room, "nothing is computed");
    for (int i = 0; i < o->n && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? " + " : "", flops_digits(o->step[i].flops));
}

static void add_largest(struct flops *f, const char *key, const char *label, const struct plan_order *o) {
    __int128 bytes = flops_type_bytes(f->type, o->largest);
    if (bytes >= 0)
        sheet_result_whole(&f->sheet, key, label, SHEET_BYTES, bytes, "%s elements of the largest tensor between",
                           flops_digits(o->largest));
}

static void add_best(struct flops *f, const struct plan_order *given, const struct plan_order *best) {
    struct plan_sheet *s = &f->sheet;
    char formula[3000];
    add_largest(f, "largest_intermediate_bytes", "largest intermediate", given);
    order_formula(f->pattern, best, formula, sizeof formula);
    if (f->type->integer)
        sheet_result_whole(s, "best_integer_ops", "operations, best order", SHEET_OPS, best->flops, "%s", formula);
    else
        sheet_result_whole(s, "best_flops", "FLOPs, best order", SHEET_FLOP, best->flops, "%s", formula);
    add_largest(f, "best_largest_intermediate_bytes", "largest intermediate, best order", best);
    const char *missing = flops_missing_peak(f, "best");
    if (f->has_device && missing)
        sheet_result(s, "best_time", "time at the roof, best order", SHEET_SECONDS, NAN,
                     "peak unknown: %s has no %s figure", f->device.alias, missing);
    else if (f->has_device)
        sheet_result(s, "best_time", "time at the roof, best order", SHEET_SECONDS, flops_time(f, "best"),
                     "sum over the steps of max(operations / peak, bytes / bandwidth)");
    if (!best->searched_all)
        sheet_note(s,
                   "More than %d operands: the best order is a greedy one (the cheapest pair each time); a cheaper one "
                   "may exist.",
                   PLAN_SEARCH_ALL);
    else if (best->flops == given->flops)
        sheet_note(s, "The given order is a best one.");
    sheet_note(
        s, "Bytes are each operand once and the result once; the parts also write and read what lies between them.");
}

static int count_axes(plan_set axes) {
    return __builtin_popcountll((uint64_t)axes) + __builtin_popcountll((uint64_t)(axes >> 64));
}

static int is_diagonal(const struct plan_pattern *p) {
    for (int o = 0; o < p->operands; o++)
        if (p->operand[o].n > count_axes(p->operand[o].axes)) return 1;
    return 0;
}

static int einsum_results(struct flops *f, const struct plan_order *given, const struct plan_order *best) {
    const struct plan_pattern *p = f->pattern;
    char formula[3000];
    int view = !given->n && f->out_type == f->type;
    int code = add_terms(f, !view);
    if (!code && p->operands > 2) code = add_order(f, given, "given");
    if (!code && p->operands > 2) code = add_order(f, best, "best");
    if (!code && p->operands <= 2) code = add_order(f, given, NULL);
    if (!code && !given->n) flops_add_part(f, f->text[0], 0, 0, view ? 0 : -1);
    if (code) return code;
    order_formula(p, given, formula, sizeof formula);
    flops_amounts(f, given->flops, "%s", formula);
    if (p->operands > 2) add_best(f, given, best);
    if (!given->n)
        sheet_note(&f->sheet, view ? "A view: nothing is computed and nothing moved."
                                   : "Nothing is computed; the other format makes it a copy.");
    if (is_diagonal(p)) sheet_note(&f->sheet, "An axis twice in one operand is its diagonal; only that is read.");
    if (given->n > 1 && p->operands == 2) {
        add_largest(f, "largest_intermediate_bytes", "largest intermediate", given);
        sheet_note(&f->sheet,
                   "An axis that one operand alone has and the result lacks is summed first, 1 per element.");
    }
    f->sheet.convention = "einops; a multiply-add is 2; bytes: each operand once";
    return flops_print(f);
}

static int einsum(struct flops *f) {
    struct plan_pattern *p = emit_alloc(NULL, sizeof *p);
    struct plan_order *orders = emit_alloc(NULL, 2 * sizeof *orders);
    int code = read_pattern(f, PLAN_EINSUM, 1, p);
    if (!code && plan_einsum_given(p, &orders[0])) code = flops_fail(f, "more than 1.7e38 FLOPs or elements");
    if (!code && plan_einsum_best(p, &orders[0], &orders[1])) code = flops_fail(f, "no order within 1.7e38 FLOPs");
    if (!code) {
        if (p->operands == 1 && !f->args->given[FLOPS_OUT_DTYPE]) f->out_type = f->type; /* no product */
        input_pattern(f);
        sheet_input_text(&f->sheet, "notation", "read in", p->letters ? "letters" : "words",
                         p->letters ? "each letter is an axis" : "blanks between axes, or a --size of a longer name");
        code = einsum_results(f, &orders[0], &orders[1]);
    }
    free(orders);
    free(p);
    return code;
}

/* ---- reduce ---- */

static int reduce_results(struct flops *f, const char *how) {
    const struct plan_pattern *p = f->pattern;
    __int128 flops = f->operand[0].elements, out = f->operand[1].elements;
    int drops = (p->operand[0].axes & ~p->result.axes) != 0, mean = !strcmp(how, "mean");
    if (!drops) flops = 0;
    if (drops && mean && plan_add(flops, out, &flops)) return flops_fail(f, "more than 1.7e38 FLOPs");
    flops_add_part(f, f->text[0], 0, flops, -1);
    if (!drops) {
        sheet_note(&f->sheet, "No axis is dropped: nothing is computed, as in rearrange.");
        return flops_finish(f, 0, "no axis is dropped");
    }
    if (mean)
        return flops_finish(f, flops, "1 per element + 1 per output = %s + %s", flops_digits(f->operand[0].elements),
                            flops_digits(out));
    return flops_finish(f, flops, "1 per element = %s", flops_digits(flops));
}

static int reduce(struct flops *f) {
    static const char *const hows[] = {"sum", "mean", "max", "min", "prod"};
    struct plan_pattern *p = emit_alloc(NULL, sizeof *p);
    int known = 0;
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) known |= !strcmp(hows[i], f->text[1]);
    int code = known ? read_pattern(f, PLAN_REDUCE, 2, p)
                     : flops_fail(f, "'%.40s' is not known; there are sum, mean, max, min, prod", f->text[1]);
    if (!code) {
        f->out_type = f->args->given[FLOPS_OUT_DTYPE] ? f->out_type : f->type;
        input_pattern(f);
        sheet_input_text(&f->sheet, "reduction", "reduction", f->text[1], "given");
        code = add_terms(f, 1);
        if (!code) code = reduce_results(f, f->text[1]);
    }
    free(p);
    return code;
}

/* ---- rearrange ---- */

/* The operand as memory: its shape by the pattern, contiguous or with the strides of --stride. */
static int operand_view(struct flops *f, struct plan_view *v) {
    const struct plan_term *t = &f->pattern->operand[0];
    int64_t size[PLAN_DIMS], stride[PLAN_DIMS];
    char err[256];
    int n = -1, code = flops_list(f, FLOPS_STRIDE, PLAN_ANY, PLAN_DIMS, stride, &n);
    if (code) return code;
    if (n >= 0 && n != t->dims) return flops_fail(f, "--stride: %d strides, %d dimensions", n, t->dims);
    for (int d = 0; d < t->dims; d++)
        if (plan_term_dim(f->pattern, t, d, &size[d])) return flops_fail(f, "a dimension is beyond 2^63");
    if (plan_view_make(v, t->dims, size, n >= 0 ? stride : NULL, 0, err, sizeof err)) return flops_fail(f, "%s", err);
    return 0;
}

static int rearrange_results(struct flops *f) {
    struct plan_view from, to;
    char why[256], err[256], strides[1024] = "";
    size_t n = 0;
    int code = operand_view(f, &from);
    if (code) return code;
    int copies = plan_view_rearrange(&from, f->pattern, &to, why, sizeof why, err, sizeof err);
    if (copies < 0) return flops_fail(f, "%s", err);
    f->out_type = f->type;
    if ((code = add_terms(f, copies))) return code;
    flops_add_part(f, f->text[0], 0, 0, -1);
    for (int d = 0; d < to.rank && n < sizeof strides; d++)
        n += (size_t)snprintf(strides + n, sizeof strides - n, "%s%lld", d ? "," : "", (long long)to.stride[d]);
    sheet_result_text(&f->sheet, "kind", "view or copy", copies ? "copy" : "view", "%s",
                      copies ? why : "strides over the operand express the result");
    sheet_result_text(&f->sheet, "shape", "shape of the result", f->operand[1].shape, "by the pattern");
    sheet_result_text(&f->sheet, "strides", "strides of the result", strides,
                      copies ? "of the copy" : "over the operand");
    return flops_finish(f, 0, "elements only move");
}

static int rearrange(struct flops *f) {
    struct plan_pattern *p = emit_alloc(NULL, sizeof *p);
    int code = read_pattern(f, PLAN_REARRANGE, 1, p);
    if (!code) {
        input_pattern(f);
        code = rearrange_results(f);
    }
    free(p);
    return code;
}

#define TENSOR (FLOPS_TAKES_ALWAYS | FLOPS_TAKES(FLOPS_SIZE))
const struct flops_op flops_tensor_ops[] = {
    {"einsum", "PATTERN [SHAPE ...]", "any number of operands", TENSOR | FLOPS_TAKES(FLOPS_OUT_DTYPE), 1,
     1 + PLAN_OPERANDS, einsum},
    {"reduce", "PATTERN sum|mean|max|min|prod [SHAPE]", "1 per element; mean 1 per output more",
     TENSOR | FLOPS_TAKES(FLOPS_OUT_DTYPE), 2, 3, reduce},
    {"rearrange", "PATTERN [SHAPE]", "no FLOPs", TENSOR | FLOPS_TAKES_COMPLEX | FLOPS_TAKES(FLOPS_STRIDE), 1, 2,
     rearrange},
    {0},
};
