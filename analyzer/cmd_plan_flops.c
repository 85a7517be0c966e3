/* acct plan flops OP …: FLOPs, bytes, intensity and time at the roof of one op. The ops are rows in plan_flops_*.c;
 * each says which options it takes, and the others are refused. */
#include "analyzer/plan_flops.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option_spec options[] = {
    SHEET_OPTION_ROWS,
    [FLOPS_DTYPE] = {"dtype", 0, OPTION_VALUE, "FORMAT",
                     "of the operands: fp32 (default), tf32, bf16, int8, complex64 ..."},
    [FLOPS_OUT_DTYPE] = {"out-dtype", 0, OPTION_VALUE, "FORMAT",
                         "of the result (as the operands; int8: int32, fp8: bf16)"},
    [FLOPS_DEVICE] = {"device", 'd', OPTION_VALUE, "DEVICE", "whose roof: h100-sxm, a100-80 ..., or a profile file"},
    [FLOPS_SIZE] = {"size", 0, OPTION_VALUE, "AXIS=N,...", "einsum, reduce, rearrange: sizes of axes; ...=2x3"},
    [FLOPS_ALPHA] = {"alpha", 0, OPTION_VALUE, "X", "BLAS: a number (1), or device: not known to the host"},
    [FLOPS_BETA] = {"beta", 0, OPTION_VALUE, "X", "BLAS: a number (0), or device; 0: C is not read"},
    [FLOPS_BATCH] = {"batch", 0, OPTION_VALUE, "N", "BLAS: how many problems (1)"},
    [FLOPS_BATCH_STRIDE] = {"batch-stride", 0, OPTION_VALUE, "A,B,C", "BLAS: 0: one matrix for all of the batch"},
    [FLOPS_LD] = {"ld", 0, OPTION_VALUE, "A,B,C", "gemm: leading dimensions (column-major); they add no bytes"},
    [FLOPS_TRANS] = {"trans", 0, OPTION_VALUE, "A[,B]", "BLAS: N (default), T or C"},
    [FLOPS_SIDE] = {"side", 0, OPTION_VALUE, "SIDE", "BLAS: left (default) or right"},
    [FLOPS_INPUT] = {"input", 0, OPTION_VALUE, "N,C,H,W", "convolution: input, with 1 to 3 spatial dimensions"},
    [FLOPS_KERNEL] = {"kernel", 0, OPTION_VALUE, "H,W", "convolution: one number stands for all dimensions"},
    [FLOPS_OUT_CHANNELS] = {"out-channels", 0, OPTION_VALUE, "N", "convolution"},
    [FLOPS_STRIDE] = {"stride", 0, OPTION_VALUE, "H,W", "convolution (1); rearrange: strides of the operand"},
    [FLOPS_PADDING] = {"padding", 0, OPTION_VALUE, "H,W", "convolution (0)"},
    [FLOPS_OUTPUT_PADDING] = {"output-padding", 0, OPTION_VALUE, "H,W", "transposed convolution (0)"},
    [FLOPS_DILATION] = {"dilation", 0, OPTION_VALUE, "H,W", "convolution (1)"},
    [FLOPS_GROUPS] = {"groups", 0, OPTION_VALUE, "N", "convolution (1)"},
    [FLOPS_PASS] = {"pass", 0, OPTION_VALUE, "PASS", "layers: forward (default), backward, both"},
    [FLOPS_GRADS] = {"grads", 0, OPTION_VALUE, "WHICH", "layers: input,weight (default) or one of them"},
    [FLOPS_BIAS] = {"bias", 0, OPTION_FLAG, NULL, "linear: its additions, told apart"},
    [FLOPS_KV_HEADS] = {"kv-heads", 0, OPTION_VALUE, "N", "attention: key and value heads (as many as query heads)"},
    [FLOPS_CAUSAL] = {"causal", 0, OPTION_VALUE, "HOW", "attention: full (default), skipped or half"},
    [FLOPS_LAYOUT] = {"layout", 0, OPTION_VALUE, "LAYOUT", "attention by shapes: bhsd (default) or bshd"},
    {0},
};

/* ---- reading ---- */

int flops_fail(const struct flops *f, const char *format, ...) {
    char text[1200];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return cmd_fail(f->args->command, CMD_EXIT_USAGE, "%s%s%s", f->op ? f->op->name : "", f->op ? ": " : "", text);
}

int flops_count(const struct flops *f, const char *what, const char *text, enum plan_sign sign, int64_t *out) {
    char err[256];
    if (!plan_whole(text, PLAN_COUNT, sign, INT64_MAX, out, err, sizeof err)) return 0;
    return flops_fail(f, "%s: %s", what, err);
}

int flops_list(const struct flops *f, int o, enum plan_sign sign, int room, int64_t *out, int *n) {
    char err[256];
    if (!f->args->given[o]) return 0;
    int got = plan_list(f->args->value[o], sign, INT64_MAX, room, out, err, sizeof err);
    if (got < 0) return flops_fail(f, "--%s: %s", f->args->command->options[o].name, err);
    if (!got) return flops_fail(f, "--%s: empty", f->args->command->options[o].name);
    *n = got;
    return 0;
}

int flops_shape(const struct flops *f, const char *text, int64_t out[PLAN_DIMS], int *n) {
    char err[256];
    *n = plan_list(text, PLAN_NOT_NEGATIVE, INT64_MAX, PLAN_DIMS, out, err, sizeof err);
    return *n < 0 ? flops_fail(f, "shape '%.60s': %s", text, err) : 0;
}

int flops_word(const struct flops *f, int o, const char *const *words, int *out) {
    char all[160] = "";
    size_t n = 0;
    if (!f->args->given[o]) return 0;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], f->args->value[o])) {
            *out = i;
            return 0;
        }
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", words[i]);
    }
    return flops_fail(f, "--%s: '%.40s' is not known; there are %s", f->args->command->options[o].name,
                      f->args->value[o], all);
}

/* ---- adding ---- */

const char *flops_digits(__int128 value) {
    static _Thread_local char buffers[16][41];
    static _Thread_local unsigned turn;
    char *out = buffers[turn++ % 16];
    emit_digits(out, value);
    return out;
}

const char *flops_times(int n, const int64_t *factors) {
    static _Thread_local char buffers[4][1024];
    static _Thread_local unsigned turn;
    char *out = buffers[turn++ % 4];
    size_t length = 0;
    *out = 0;
    for (int i = 0; i < n && length < sizeof *buffers; i++)
        length +=
            (size_t)snprintf(out + length, sizeof *buffers - length, "%s%lld", i ? " x " : "", (long long)factors[i]);
    return out;
}

static void shape_text(char *out, size_t room, int rank, const int64_t *shape) {
    size_t n = (size_t)snprintf(out, room, "%s", rank ? "" : "()");
    for (int i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%lld", i ? "," : "", (long long)shape[i]);
}

int flops_add_operand_text(struct flops *f, const char *part, const char *name, const struct flops_type *type,
                           int reads, int writes, const char *shape, __int128 elements) {
    f->operand = emit_alloc(f->operand, (size_t)(f->n_operands + 1) * sizeof *f->operand);
    struct flops_operand *o = &f->operand[f->n_operands++];
    memset(o, 0, sizeof *o);
    snprintf(o->name, sizeof o->name, "%s", name);
    snprintf(o->shape, sizeof o->shape, "%s", shape);
    snprintf(o->part, sizeof o->part, "%s", part ? part : "");
    o->type = cost_type_name(type->storage);
    o->elements = elements;
    o->bytes = flops_type_bytes(type, elements);
    o->reads = reads;
    o->writes = writes;
    size_t n = strlen(f->bytes_formula);
    for (int i = 0; i < reads + writes; i++) {
        if (o->bytes < 0 || plan_add(f->bytes, o->bytes, &f->bytes))
            return flops_fail(f, "%s has more than 1.7e38 bytes", name);
        if (n + 60 < sizeof f->bytes_formula)
            n += (size_t)snprintf(f->bytes_formula + n, sizeof f->bytes_formula - n, "%s%s", n ? " + " : "",
                                  flops_digits(o->bytes));
        else if (strcmp(f->bytes_formula + n - 3, "..."))
            n += (size_t)snprintf(f->bytes_formula + n, sizeof f->bytes_formula - n, " + ...");
    }
    return 0;
}

int flops_add_operand(struct flops *f, const char *part, const char *name, const struct flops_type *type, int reads,
                      int writes, int rank, const int64_t *shape) {
    char text[1024];
    __int128 elements = 1;
    for (int i = 0; i < rank; i++)
        if (!shape[i]) elements = 0;
    for (int i = 0; i < rank && elements; i++)
        if (plan_multiply(elements, shape[i], &elements))
            return flops_fail(f, "%s has more than 1.7e38 elements", name);
    shape_text(text, sizeof text, rank, shape);
    return flops_add_operand_text(f, part, name, type, reads, writes, text, elements);
}

int flops_add_part(struct flops *f, const char *name, int matrix, __int128 flops, __int128 bytes) {
    f->part = emit_alloc(f->part, (size_t)(f->n_parts + 1) * sizeof *f->part);
    struct flops_part *p = &f->part[f->n_parts++];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->matrix = matrix;
    p->flops = flops;
    p->bytes = bytes < 0 ? 0 : bytes;
    for (int i = 0; i < f->n_operands && bytes < 0; i++) {
        const struct flops_operand *o = &f->operand[i];
        if (!*o->part || !strcmp(o->part, name))
            p->bytes += (o->reads + o->writes) * o->bytes; /* fits: f->bytes does */
    }
    return 0;
}

/* ---- dispatch ---- */

static const struct flops_op *const tables[] = {flops_product_ops, flops_tensor_ops, flops_layer_ops};

static const struct flops_op *find_op(const char *name) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct flops_op *op = tables[t]; op->name; op++)
            if (!strcmp(op->name, name)) return op;
    return flops_blas_op(name);
}

static int unknown_op(const struct flops *f, const char *name) {
    char all[400] = "";
    size_t n = 0;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct flops_op *op = tables[t]; op->name; op++)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", op->name);
    return flops_fail(f, "'%.40s' is no op; there are %s, and the BLAS routines without type letter (syrk, gemv ...)",
                      name, all);
}

static int check_op(const struct flops *f) {
    for (int o = 0; f->args->command->options[o].name; o++)
        if (f->args->given[o] && !(f->op->takes >> o & 1))
            return flops_fail(f, "--%s is not for this op", f->args->command->options[o].name);
    if (f->n >= f->op->least && f->n <= f->op->most) return 0;
    return flops_fail(f, "%d operand%s; type: acct plan flops %s %s", f->n, f->n == 1 ? "" : "s", f->op->name,
                      f->op->operands);
}

static int plan_flops(const struct arguments *args) {
    struct flops f = {.args = args, .n = args->n_operands - 1, .text = args->operands + 1};
    int code = sheet_check(args);
    if (code) return code;
    if (f.n < 0) return flops_fail(&f, "which op? Type: acct plan flops matmul 4096 1024 512, or acct help plan flops");
    if (!(f.op = find_op(args->operands[0]))) return unknown_op(&f, args->operands[0]);
    sheet_begin(&f.sheet, args);
    code = check_op(&f);
    if (!code) code = sheet_device(args, FLOPS_DEVICE, &f.device);
    f.has_device = args->given[FLOPS_DEVICE];
    if (!code) code = flops_read_types(&f);
    if (!code && cost_is_complex(f.type->storage) && !(f.op->takes & FLOPS_TAKES_COMPLEX))
        code = flops_fail(&f, "--dtype %s: no count is agreed on; matmul, grouped and the routines of BLAS have one",
                          f.type->name);
    if (!code) {
        sheet_input_text(&f.sheet, "op", "op", f.op->name, "given");
        sheet_input_text(&f.sheet, "dtype", "dtype", f.type->name, args->given[FLOPS_DTYPE] ? "given" : "default");
        code = f.op->function(&f);
    }
    sheet_free(&f.sheet);
    free(f.operand);
    free(f.part);
    return code;
}

const struct command cmd_plan_flops = {
    .name = "plan flops",
    .synopsis = "FLOPs, bytes, intensity and time at the roof of one op: product, einsum, convolution, attention ...",
    .usage = "OP [OPERAND ...] [--pass forward|backward|both] [--causal full|skipped|half] [--layout bhsd|bshd] "
             "[--side left|right] [OPTION ...] " SHEET_USAGE,
    .details =
        "products\n"
        "  matmul M N K            2 M N K (gemm likewise); or two shapes, as broadcast: matmul 2,1,4,8 3,8,5\n"
        "  grouped M,N,K[,COUNT] ...   products of different sizes in one call\n"
        "  syrk N K, gemv M N ...  any routine of BLAS, without type letter: acct plan flops syrk says its sizes\n"
        "tensors\n"
        "  einsum PATTERN [SHAPE ...]  \"b s h, b t h -> b s t\" --size b=2,s=3,t=4,h=5; ij,jk->ik likewise\n"
        "  reduce PATTERN HOW [SHAPE]  \"... h -> ...\" sum|mean|max|min|prod 2,3,4\n"
        "  rearrange PATTERN [SHAPE]   \"b (h w) -> b h w\" 2,12 --size h=3\n"
        "layers\n"
        "  linear ROWS IN OUT [OUT ...]    a chain of layers; passes by --pass\n"
        "  conv --input N,C,H,W --out-channels N --kernel H,W ...; convtranspose likewise\n"
        "  attention B H T D, or B H TQ TK DQK DV, or shapes of q [k [v]]\n"
        "  embedding ROWS VOCABULARY DIM   a lookup\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = plan_flops,
};
