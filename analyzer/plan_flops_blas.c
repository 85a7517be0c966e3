/* The routines of BLAS, by name, of `acct plan flops`. Sizes, formulas and operands are cost_model's. */
#include "analyzer/plan_flops.h"

#include <stdio.h>
#include <string.h>

/* Whether an option changes anything of a routine, asked of the model on a small problem. */
static int matters(const char *routine, int option) {
    struct cost_blas b = {.routine = routine,
                          .type = ACCT_dtype_FP32,
                          .m = 2,
                          .n = 3,
                          .k = 2,
                          .kl = 0,
                          .ku = 1,
                          .batch = 2,
                          .a = 16,
                          .b = 32,
                          .c = 48,
                          .lda = ACCT_NULL_I64,
                          .ldb = ACCT_NULL_I64,
                          .ldc = ACCT_NULL_I64,
                          .stride_a = 1,
                          .stride_b = 1,
                          .stride_c = 1,
                          .side = ACCT_side_LEFT,
                          .trans_a = ACCT_trans_N,
                          .trans_b = ACCT_trans_N,
                          .alpha = ACCT_scalar_VALUE,
                          .beta = ACCT_scalar_VALUE};
    struct cost one, other;
    cost_of_blas(&b, &one);
    if (option == FLOPS_BETA) b.beta = ACCT_scalar_ZERO;
    if (option == FLOPS_SIDE) b.side = ACCT_side_RIGHT;
    if (option == FLOPS_TRANS) b.trans_a = ACCT_trans_T;
    if (option == FLOPS_ALPHA) b.alpha = ACCT_scalar_ZERO;
    cost_of_blas(&b, &other);
    return one.flops != other.flops || one.bytes_read != other.bytes_read || one.bytes_written != other.bytes_written;
}

static int read_sizes(const struct flops *f, struct cost_blas *b) {
    static const struct {
        char letter;
        const char *name;
    } all[] = {{'m', "m"}, {'n', "n"}, {'k', "k"}, {'l', "kl"}, {'u', "ku"}};
    int64_t *const to[] = {&b->m, &b->n, &b->k, &b->kl, &b->ku};
    const char *sizes = cost_blas_sizes(f->op->name);
    for (int i = 0; sizes[i]; i++)
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
            if (all[j].letter != sizes[i]) continue;
            int code = flops_count(f, all[j].name, f->text[i], PLAN_NOT_NEGATIVE, to[j]);
            if (code) return code;
        }
    return 0;
}

static void input_blas(struct flops *f, const struct cost_blas *b) {
    struct plan_sheet *s = &f->sheet;
    for (const char *c = cost_blas_sizes(f->op->name); *c; c++) {
        const char *name = *c == 'm' ? "m" : *c == 'n' ? "n" : *c == 'k' ? "k" : *c == 'l' ? "kl" : "ku";
        int64_t value = *c == 'm' ? b->m : *c == 'n' ? b->n : *c == 'k' ? b->k : *c == 'l' ? b->kl : b->ku;
        sheet_input_whole(s, name, name, SHEET_NUMBER, value, "given");
    }
    sheet_input_whole(s, "batch", "batch", SHEET_NUMBER, b->batch, f->args->given[FLOPS_BATCH] ? "given" : "default");
    if (matters(f->op->name, FLOPS_SIDE))
        sheet_input_text(s, "side", "side", b->side == ACCT_side_RIGHT ? "right" : "left",
                         f->args->given[FLOPS_SIDE] ? "given" : "default");
    if (f->op->takes & FLOPS_TAKES(FLOPS_ALPHA)) flops_input_scalar(f, FLOPS_ALPHA, "alpha", "1");
    if (f->op->takes & FLOPS_TAKES(FLOPS_BETA))
        flops_input_scalar(f, FLOPS_BETA, "beta", b->beta == ACCT_scalar_ONE ? "1" : "0");
}

/* The formulas of cost_blas in words, by routine; what is not here is linear in n. */
static const char *formula_of(const struct cost_blas *b) {
    static const struct {
        const char *routines, *text;
    } rows[] = {{" syrk herk syrkx herkx ", "k n (n + 1)"},
                {" syr2k her2k ", "2 k n^2 + n, 0 if k = 0"},
                {" gemv ger geru gerc ", "2 m n"},
                {" symv hemv spmv hpmv ", "2 n^2"},
                {" trmv trsv tpmv tpsv ", "n^2"},
                {" syr her spr hpr ", "n (n + 1)"},
                {" syr2 her2 spr2 hpr2 ", "2 n (n + 1)"},
                {" gbmv sbmv hbmv ", "2 x elements in the band"},
                {" tbmv tbsv ", "2 x elements in the band, less n"},
                {" geam transform dgmm ", "m n"},
                {" axpy dot dotu dotc nrm2 ", "2 n"},
                {" scal asum ", "n"},
                {" rot rotm ", "6 n"},
                {" copy swap amax amin iamax iamin ", "only moves or compares"}};
    char name[32];
    int right = b->side == ACCT_side_RIGHT;
    snprintf(name, sizeof name, " %s ", b->routine);
    if (strstr(" symm hemm ", name)) return right ? "2 m n^2 (right)" : "2 m^2 n (left)";
    if (strstr(" trmm trsm ", name)) return right ? "m n^2 (right)" : "m^2 n (left)";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(rows[i].routines, name)) return rows[i].text;
    return "by the routine";
}

static int blas_results(struct flops *f, const struct cost_blas *b) {
    struct cost c;
    __int128 flops;
    cost_of_blas(b, &c);
    if (cost_blas_count(b, &flops)) return flops_fail(f, "more than 1e38 operations");
    if (c.bytes_read == COST_UNKNOWN || c.bytes_written == COST_UNKNOWN) {
        f->bytes = -1;
        snprintf(f->bytes_formula, sizeof f->bytes_formula,
                 "beyond what is counted: a size above 2^40, or bytes above 2^63");
    } else {
        f->bytes = (__int128)c.bytes_read + c.bytes_written;
        snprintf(f->bytes_formula, sizeof f->bytes_formula, "read %lld + written %lld", (long long)c.bytes_read,
                 (long long)c.bytes_written);
    }
    flops_add_part(f, f->op->name, c.role == COST_PRODUCT, flops, 0);
    f->part[0].bytes = f->bytes;
    if (c.grade == COST_BOUND)
        sheet_note(&f->sheet,
                   "A scalar in device memory is not known to the host: bytes are a bound, as if it were not 0.");
    if (cost_is_complex(b->type)) sheet_note(&f->sheet, "Complex: 4 times the real count; FLOPs are real operations.");
    f->sheet.convention = "LAPACK working note 41: a multiply-add is 2; bytes: each operand once";
    return flops_finish(f, flops, "%s%s%s", formula_of(b), b->batch == 1 ? "" : ", times batch",
                        cost_is_complex(b->type) ? ", times 4: complex" : "");
}

static int blas(struct flops *f) {
    static const char *const sides[] = {"left", "right", NULL};
    uint32_t trans[2];
    int64_t stride[3];
    int side = 0, code = flops_read_trans(f, trans);
    struct cost_blas b = {.routine = f->op->name,
                          .type = f->type->storage,
                          .lda = ACCT_NULL_I64,
                          .ldb = ACCT_NULL_I64,
                          .ldc = ACCT_NULL_I64,
                          .alpha = ACCT_scalar_ONE};
    int adds = !strcmp(f->op->name, "geam") || !strcmp(f->op->name, "transform"); /* beta is B's factor */
    b.beta = adds ? ACCT_scalar_ONE : ACCT_scalar_ZERO;
    if (f->type->integer) return flops_fail(f, "--dtype: BLAS has no %s routines; gemm takes int8", f->type->name);
    if (!code) code = flops_read_scalar(f, FLOPS_ALPHA, &b.alpha);
    if (!code) code = flops_read_scalar(f, FLOPS_BETA, &b.beta);
    if (!code) code = flops_read_batch(f, &b.batch, stride);
    if (!code) code = flops_word(f, FLOPS_SIDE, sides, &side);
    if (!code) code = read_sizes(f, &b);
    if (code) return code;
    b.side = side ? ACCT_side_RIGHT : ACCT_side_LEFT;
    b.trans_a = trans[0], b.trans_b = trans[1];
    b.stride_a = stride[0], b.stride_b = stride[1], b.stride_c = stride[2];
    input_blas(f, &b);
    return blas_results(f, &b);
}

const struct flops_op *flops_blas_op(const char *name) {
    static struct flops_op op;
    static char operands[40];
    size_t n = 0;
    const char *sizes = cost_blas_sizes(name);
    if (!sizes) return NULL;
    for (const char *c = sizes; *c; c++)
        n += (size_t)snprintf(operands + n, sizeof operands - n, "%s%s", n ? " " : "",
                              *c == 'm'   ? "M"
                              : *c == 'n' ? "N"
                              : *c == 'k' ? "K"
                              : *c == 'l' ? "KL"
                                          : "KU");
    op = (struct flops_op){name,
                           operands,
                           "",
                           FLOPS_TAKES_ALWAYS | FLOPS_TAKES_COMPLEX | FLOPS_TAKES(FLOPS_BATCH) |
                               FLOPS_TAKES(FLOPS_BATCH_STRIDE),
                           (int)strlen(sizes),
                           (int)strlen(sizes),
                           blas};
    static const int asked[] = {FLOPS_ALPHA, FLOPS_BETA, FLOPS_SIDE, FLOPS_TRANS};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (matters(name, asked[i])) op.takes |= FLOPS_TAKES(asked[i]);
    return &op;
}
