/* acct plan view: what of a tensor can be had by sizes, strides and offset alone, and what needs a copy. */
#include "analyzer/plan_flops.h"
#include "plan/plan_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    OPT_SHAPE = SHEET_OPTIONS,
    OPT_STRIDE,
    OPT_OFFSET,
    OPT_DTYPE,
    OPT_SLICE,
    OPT_TRANSPOSE,
    OPT_PERMUTE,
    OPT_EXPAND,
    OPT_TO,
    OPT_INDEX
};

static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    [OPT_SHAPE] = {"shape", 0, OPTION_VALUE, "N,...", "sizes of the tensor; '' is a single number"},
    [OPT_STRIDE] = {"stride", 0, OPTION_VALUE, "N,...", "strides in elements (default: contiguous)"},
    [OPT_OFFSET] = {"offset", 0, OPTION_VALUE, "N", "first element in the storage (0)"},
    [OPT_DTYPE] = {"dtype", 0, OPTION_VALUE, "FORMAT", "of the elements (fp32)"},
    [OPT_SLICE] = {"slice", 0, OPTION_VALUE, "RANGE,...",
                   "1: ranges as numpy writes them, 0:2,:,::2; an index drops its dimension"},
    [OPT_TRANSPOSE] = {"transpose", 0, OPTION_VALUE, "A,B", "2: swap two dimensions (from 0; -1 is the last)"},
    [OPT_PERMUTE] = {"permute", 0, OPTION_VALUE, "D,...", "3: all dimensions in another order"},
    [OPT_EXPAND] = {"expand", 0, OPTION_VALUE, "N,...", "4: repeat dimensions of size 1; -1 keeps one"},
    [OPT_TO] = {"to", 0, OPTION_VALUE, "N,...", "5: another shape; -1 is what is left"},
    [OPT_INDEX] = {"index", 0, OPTION_VALUE, "I,...", "where this element of the result is"},
    {0},
};

enum { MAX_STEPS = 8 };
struct step {
    char what[300];
    struct plan_view view;
    int copied;
};
struct view_sheet {
    struct plan_sheet sheet;
    const struct arguments *args;
    struct plan_view view; /* as it is now */
    struct step step[MAX_STEPS];
    int n, copied; /* 1: the view is of a copy */
    char why[300];
    const struct flops_type *type;
};

static int fail(const struct view_sheet *v, int o, const char *err) {
    return cmd_fail(v->args->command, CMD_EXIT_USAGE, "--%s: %s", v->args->command->options[o].name, err);
}

static int read_list(const struct view_sheet *v, int o, enum plan_sign sign, int64_t *out, int *n) {
    char err[256];
    *n = plan_list(v->args->value[o], sign, INT64_MAX, PLAN_DIMS, out, err, sizeof err);
    return *n < 0 ? fail(v, o, err) : 0;
}

static void list_text(char *out, size_t room, int n, const int64_t *values) {
    size_t length = (size_t)snprintf(out, room, "%s", n ? "" : "()");
    for (int i = 0; i < n && length < room; i++)
        length += (size_t)snprintf(out + length, room - length, "%s%lld", i ? "," : "", (long long)values[i]);
}

/* ---- reading ---- */

static int read_tensor(struct view_sheet *v) {
    const struct arguments *args = v->args;
    int64_t size[PLAN_DIMS], stride[PLAN_DIMS], offset = 0;
    char err[256];
    int n, m = 0, given = args->given[OPT_STRIDE];
    if (!args->given[OPT_SHAPE])
        return cmd_fail(args->command, CMD_EXIT_USAGE,
                        "which shape? Type: acct plan view --shape 2,3,4 --transpose 1,2 --to 2,12");
    int code = read_list(v, OPT_SHAPE, PLAN_NOT_NEGATIVE, size, &n);
    if (!code && given) code = read_list(v, OPT_STRIDE, PLAN_ANY, stride, &m);
    if (!code) code = sheet_whole(args, OPT_OFFSET, PLAN_COUNT, PLAN_NOT_NEGATIVE, INT64_MAX / 4, &offset);
    if (code) return code;
    if (given && m != n) {
        snprintf(err, sizeof err, "%d strides, the shape has %d dimensions", m, n);
        return fail(v, OPT_STRIDE, err);
    }
    if (plan_view_make(&v->view, n, size, given ? stride : NULL, offset, err, sizeof err))
        return fail(v, given ? OPT_STRIDE : OPT_SHAPE, err);
    v->type = flops_type_find(args->given[OPT_DTYPE] ? args->value[OPT_DTYPE] : "fp32");
    return v->type ? 0
                   : fail(v, OPT_DTYPE,
                          "no number format; there are fp64, fp32, fp16, bf16, fp8, fp4, int8, int32, complex64, "
                          "complex128");
}

static void note_step(struct view_sheet *v, const char *name, const char *value) {
    struct step *s = &v->step[v->n++];
    snprintf(s->what, sizeof s->what, "%s%s%s", name, value ? " " : "", value ? value : "");
    s->view = v->view;
    s->copied = v->copied;
}

static int apply_to(struct view_sheet *v, int n, const int64_t *size, char *err, size_t err_len) {
    struct plan_view out;
    int rc = plan_view_reshape(&v->view, n, size, &out, v->why, sizeof v->why, err, err_len);
    if (rc < 0) return -1;
    v->view = out;
    v->copied = rc;
    return 0;
}

static int apply(struct view_sheet *v, int o) {
    int64_t list[PLAN_DIMS];
    char err[256];
    int n = 0, rc = 0, code = 0;
    if (!v->args->given[o]) return 0;
    if (o != OPT_SLICE) code = read_list(v, o, PLAN_ANY, list, &n);
    if (code) return code;
    if (o == OPT_TRANSPOSE && n != 2) return fail(v, o, "two dimensions, such as 1,2");
    if (o == OPT_SLICE) rc = plan_view_slice(&v->view, v->args->value[o], err, sizeof err);
    if (o == OPT_TRANSPOSE) rc = plan_view_transpose(&v->view, list[0], list[1], err, sizeof err);
    if (o == OPT_PERMUTE) rc = plan_view_permute(&v->view, n, list, err, sizeof err);
    if (o == OPT_EXPAND) rc = plan_view_expand(&v->view, n, list, err, sizeof err);
    if (o == OPT_TO) rc = apply_to(v, n, list, err, sizeof err);
    if (rc) return fail(v, o, err);
    note_step(v, v->args->command->options[o].name, v->args->value[o]);
    return 0;
}

/* ---- printing ---- */

static void print_list(struct emitter *e, const char *key, int n, const int64_t *values) {
    emit_list(e, key, NULL, LOOK_HIDDEN);
    for (int i = 0; i < n; i++) emit_int(e, "", NULL, UNIT_NONE, values[i]);
    emit_end(e);
}

static void print_view(struct emitter *e, const struct plan_view *v) {
    print_list(e, "shape", v->rank, v->size);
    print_list(e, "strides", v->rank, v->stride);
    emit_int(e, "offset", NULL, UNIT_NONE, v->offset);
    emit_bool(e, "contiguous", NULL, plan_view_contiguous(v));
}

static void print_people(struct emitter *e, const struct step *s) {
    char text[1024];
    emit_object(e, NULL, NULL, LOOK_FIELDS);
    emit_text(e, NULL, "step", s->what);
    list_text(text, sizeof text, s->view.rank, s->view.size);
    emit_text(e, NULL, "shape", text);
    list_text(text, sizeof text, s->view.rank, s->view.stride);
    emit_text(e, NULL, "strides", text);
    emit_int(e, NULL, "offset", UNIT_NONE, s->view.offset);
    emit_text(e, NULL, "contiguous", plan_view_contiguous(&s->view) ? "yes" : "no");
    emit_text(e, NULL, "of", s->copied ? "a copy" : "the storage");
    emit_end(e);
}

static void print_tables(struct emitter *e, const void *context) {
    const struct view_sheet *v = context;
    emit_list(e, "steps", NULL, LOOK_HIDDEN);
    for (int i = 0; i < v->n; i++) {
        emit_object(e, "", NULL, LOOK_HIDDEN);
        emit_text(e, "step", NULL, v->step[i].what);
        print_view(e, &v->step[i].view);
        emit_text(e, "kind", NULL, v->step[i].copied ? "copy" : "view");
        emit_end(e);
    }
    emit_end(e);
    if (!emit_for_people(e)) return;
    emit_list(e, NULL, "Steps", LOOK_TABLE);
    for (int i = 0; i < v->n; i++) print_people(e, &v->step[i]);
    emit_end(e);
}

/* ---- results ---- */

/* An element that several indices reach is shared once. */
static void add_shared(struct view_sheet *v, __int128 elements) {
    __int128 distinct;
    int exact = plan_view_distinct(&v->view, &distinct);
    const char *key = "shared_bytes", *label = "shared with the storage";
    if (v->copied)
        sheet_result_whole(&v->sheet, key, label, SHEET_BYTES, 0, "a copy shares nothing");
    else if (distinct == elements)
        sheet_result_whole(&v->sheet, key, label, SHEET_BYTES, flops_type_bytes(v->type, distinct),
                           "a view shares its storage");
    else
        sheet_result_whole(&v->sheet, key, label, SHEET_BYTES, flops_type_bytes(v->type, distinct),
                           "%s%s elements of the storage, each once", exact ? "" : "at most ", flops_digits(distinct));
}

static int add_bytes(struct view_sheet *v) {
    struct plan_sheet *s = &v->sheet;
    __int128 elements, bytes;
    int contiguous = plan_view_contiguous(&v->view);
    if (plan_view_elements(&v->view, &elements) || (bytes = flops_type_bytes(v->type, elements)) < 0)
        return cmd_fail(v->args->command, CMD_EXIT_USAGE, "more than 1.7e38 bytes");
    sheet_result_whole(s, "elements", "elements", SHEET_NUMBER, elements, "product of the sizes");
    sheet_result_whole(s, "bytes", "bytes of the tensor", SHEET_BYTES, bytes, "%s elements of %s",
                       flops_digits(elements), v->type->name);
    add_shared(v, elements);
    sheet_result_whole(s, "added_bytes", "added memory", SHEET_BYTES, v->copied ? bytes : 0, "%s",
                       v->copied ? "the whole tensor is copied" : "a view adds none");
    sheet_result_whole(s, "contiguous_bytes", "contiguous() would add", SHEET_BYTES, contiguous ? 0 : bytes, "%s",
                       contiguous ? "it is contiguous" : "the whole tensor");
    return 0;
}

static void add_span(struct view_sheet *v) {
    struct plan_sheet *s = &v->sheet;
    __int128 first, last;
    if (plan_view_span(&v->view, &first, &last)) {
        sheet_result_text(s, "span", "elements of the storage that it reaches", NULL, "it has no elements");
        return;
    }
    char text[100];
    snprintf(text, sizeof text, "%s to %s", flops_digits(first), flops_digits(last));
    sheet_result_text(s, "span", "elements of the storage that it reaches", text,
                      "offset + the sum of (size - 1) x stride");
    if (plan_view_repeats(&v->view))
        sheet_note(s, "Several indices may be the same element: writing to one writes to others.");
}

static int add_index(struct view_sheet *v) {
    int64_t index[PLAN_DIMS], at;
    char err[256], formula[1024];
    int n;
    if (!v->args->given[OPT_INDEX]) return 0;
    int code = read_list(v, OPT_INDEX, PLAN_ANY, index, &n);
    if (code) return code;
    if (plan_view_index(&v->view, n, index, &at, err, sizeof err)) return fail(v, OPT_INDEX, err);
    size_t length = (size_t)snprintf(formula, sizeof formula, "%lld", (long long)v->view.offset);
    for (int d = 0; d < n && length < sizeof formula; d++)
        length += (size_t)snprintf(formula + length, sizeof formula - length, " + %lld x %lld",
                                   (long long)(index[d] < 0 ? index[d] + v->view.size[d] : index[d]),
                                   (long long)v->view.stride[d]);
    sheet_result_whole(&v->sheet, "element", v->copied ? "element of the copy" : "element of the storage", SHEET_NUMBER,
                       at, "offset + sum of index x stride = %s", formula);
    if (cost_type_bits(v->type->storage) >= 8)
        sheet_result_whole(&v->sheet, "element_byte", "its first byte", SHEET_BYTES,
                           (__int128)at * (cost_type_bits(v->type->storage) / 8), "%lld x %lld", (long long)at,
                           (long long)cost_type_bits(v->type->storage) / 8);
    return 0;
}

static int add_results(struct view_sheet *v) {
    struct plan_sheet *s = &v->sheet;
    char text[1024];
    sheet_result_text(s, "kind", "view or copy", v->copied ? "copy" : "view", "%s",
                      v->copied ? v->why : "sizes, strides and an offset over the same storage express it");
    list_text(text, sizeof text, v->view.rank, v->view.size);
    sheet_result_text(s, "shape", "shape", text, "after all steps");
    list_text(text, sizeof text, v->view.rank, v->view.stride);
    sheet_result_text(s, "strides", "strides", text, "in elements");
    sheet_result_whole(s, "offset", "offset", SHEET_NUMBER, v->view.offset, "in elements");
    sheet_result_text(s, "contiguous", "contiguous", plan_view_contiguous(&v->view) ? "yes" : "no",
                      "stride[i] = stride[i+1] x size[i+1], the last 1, sizes of 1 left out");
    int code = add_bytes(v);
    if (!code) add_span(v);
    return code ? code : add_index(v);
}

static int view(const struct arguments *args) {
    static const int order[] = {OPT_SLICE, OPT_TRANSPOSE, OPT_PERMUTE, OPT_EXPAND, OPT_TO};
    struct view_sheet v;
    memset(&v, 0, sizeof v);
    v.args = args;
    int code = sheet_check(args);
    if (!code && args->n_operands)
        code =
            cmd_fail(args->command, CMD_EXIT_USAGE, "'%.40s': options only, such as --shape 2,3,4", args->operands[0]);
    if (!code) code = read_tensor(&v);
    if (code) return code;
    sheet_begin(&v.sheet, args);
    char text[1024];
    list_text(text, sizeof text, v.view.rank, v.view.size);
    sheet_input_text(&v.sheet, "shape", "shape", text, "given");
    list_text(text, sizeof text, v.view.rank, v.view.stride);
    sheet_input_text(&v.sheet, "strides", "strides", text, args->given[OPT_STRIDE] ? "given" : "contiguous");
    sheet_input_text(&v.sheet, "dtype", "dtype", v.type->name, args->given[OPT_DTYPE] ? "given" : "default");
    note_step(&v, "tensor", NULL);
    for (size_t i = 0; i < sizeof order / sizeof *order && !code; i++) code = apply(&v, order[i]);
    if (!code) code = add_results(&v);
    v.sheet.tables = print_tables;
    v.sheet.context = &v;
    if (!code) return sheet_print(&v.sheet);
    sheet_free(&v.sheet);
    return code;
}

const struct command cmd_plan_view = {
    .name = "plan view",
    .synopsis = "view or copy, and why: shapes, strides and offsets of a tensor",
    .usage = "--shape N,... [--stride N,...] [--slice ...] [--transpose A,B] [--permute ...] [--expand ...] [--to "
             "...] " SHEET_USAGE,
    .details = "The options numbered 1 to 5 are applied in that order, whatever their order on the command line.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = view,
};
