/* Products of `acct plan flops`: matmul (gemm), grouped products; what they share with plan_flops_blas.c. What they
 * cost is decided in cost_model; here are sizes beyond what a recorded call can have, and words. */
#include "analyzer/plan_flops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options that they share ---- */

int flops_read_scalar(const struct flops *f, int o, uint32_t *out) {
    char err[256];
    double value;
    if (!f->args->given[o]) return 0;
    if (!strcmp(f->args->value[o], "device")) {
        *out = ACCT_scalar_DEVICE;
        return 0;
    }
    if (plan_real(f->args->value[o], PLAN_COUNT, PLAN_ANY, &value, err, sizeof err))
        return flops_fail(f, "--%s: %s, or device", f->args->command->options[o].name, err);
    *out = value == 0 ? ACCT_scalar_ZERO : value == 1 ? ACCT_scalar_ONE : ACCT_scalar_VALUE;
    return 0;
}

void flops_input_scalar(struct flops *f, int o, const char *key, const char *otherwise) {
    sheet_input_text(&f->sheet, key, key, f->args->given[o] ? f->args->value[o] : otherwise,
                     f->args->given[o] ? "given" : "default");
}

int flops_read_trans(const struct flops *f, uint32_t out[2]) {
    const char *text = f->args->value[FLOPS_TRANS];
    out[0] = out[1] = ACCT_trans_N;
    if (!f->args->given[FLOPS_TRANS]) return 0;
    for (int i = 0; i < 2 && *text; i++) {
        char one[2] = {*text, 0};
        out[i] = cost_enum_value(COST_OF_trans, one);
        if (!out[i] || (text[1] && (text[1] != ',' || i || !text[2]))) break;
        text += text[1] ? 2 : 1;
    }
    return *text || !out[0] || !out[1]
               ? flops_fail(f, "--trans: '%.40s'; write N, T or C for A, and for B behind a comma",
                            f->args->value[FLOPS_TRANS])
               : 0;
}

/* Batch, and batch strides of A, B, C: 1 where none is given (what they are does not matter unless it is 0). */
int flops_read_batch(const struct flops *f, int64_t *batch, int64_t stride[3]) {
    int n = 0, code = 0;
    *batch = 1;
    stride[0] = stride[1] = stride[2] = 1;
    if (f->args->given[FLOPS_BATCH])
        code = flops_count(f, "--batch", f->args->value[FLOPS_BATCH], PLAN_NOT_NEGATIVE, batch);
    if (!code) code = flops_list(f, FLOPS_BATCH_STRIDE, PLAN_ANY, 3, stride, &n);
    if (!code && n && *batch > 1 && n == 3 && !stride[2])
        return flops_fail(f, "--batch-stride: the results would overwrite each other");
    return code;
}

/* ---- gemm ---- */

/* One product and what it is called with; sizes as the command line has them. */
struct product {
    struct cost_gemm g;
    int64_t a_batch, b_batch, c_batch; /* how many matrices each operand is */
};

static int read_gemm(const struct flops *f, struct product *p) {
    uint32_t trans[2];
    int64_t stride[3];
    struct cost_gemm *g = &p->g;
    int code = flops_read_trans(f, trans);
    g->alpha = ACCT_scalar_ONE;
    g->beta = ACCT_scalar_ZERO;
    if (!code) code = flops_read_scalar(f, FLOPS_ALPHA, &g->alpha);
    if (!code) code = flops_read_scalar(f, FLOPS_BETA, &g->beta);
    if (!code) code = flops_read_batch(f, &g->batch, stride);
    if (code) return code;
    g->trans_a = trans[0];
    g->trans_b = trans[1];
    g->stride_a = stride[0];
    g->stride_b = stride[1];
    g->stride_c = stride[2];
    g->a = 16, g->b = 32, g->c = 48; /* somewhere: which operands are there is asked of the model */
    g->a_type = g->b_type = f->type->storage;
    g->c_type = f->out_type->storage;
    g->compute = f->type->integer ? ACCT_compute_INT32 : ACCT_compute_FP32;
    p->a_batch = stride[0] ? g->batch : 1;
    p->b_batch = stride[1] ? g->batch : 1;
    p->c_batch = stride[2] ? g->batch : 1;
    return 0;
}

/* Columns-first storage: a leading dimension is at least the rows that are stored. */
static int check_ld(const struct flops *f, const struct cost_gemm *g) {
    static const char *const names[] = {"A", "B", "C"};
    int64_t ld[3], rows[3] = {g->trans_a == ACCT_trans_N ? g->m : g->k, g->trans_b == ACCT_trans_N ? g->k : g->n, g->m};
    int n = 0, code = flops_list(f, FLOPS_LD, PLAN_POSITIVE, 3, ld, &n);
    for (int i = 0; i < n && !code; i++)
        if (ld[i] < rows[i])
            code = flops_fail(f, "--ld: %s has %lld rows in memory, its leading dimension is %lld", names[i],
                              (long long)rows[i], (long long)ld[i]);
    return code;
}

/* How the model says that an operand of such a call is used, whatever its size: 0, read, written or both. */
static int gemm_use(const struct cost_gemm *g, const char *slot) {
    struct cost_gemm small = *g;
    struct cost c;
    small.m = g->m > 0 ? 2 : 0;
    small.n = g->n > 0 ? 2 : 0;
    small.k = g->k > 0 ? 2 : 0;
    small.batch = g->batch > 0;
    cost_of_gemm(&small, &c);
    for (int i = 0; i < c.operands; i++)
        if (!strcmp(c.operand[i].slot, slot))
            return c.operand[i].mode == COST_EITHER ? COST_RW : (int)c.operand[i].mode;
    return 0;
}

static int add_matrix(struct flops *f, const struct product *p, const char *part, const char *slot, int64_t rows,
                      int64_t columns, int64_t batch) {
    int use = gemm_use(&p->g, slot), n = 0;
    int64_t shape[3];
    if (batch != 1) shape[n++] = batch;
    shape[n++] = rows;
    shape[n++] = columns;
    return flops_add_operand(f, part, slot, *slot == 'C' ? f->out_type : f->type, (use & COST_R) != 0,
                             (use & COST_W) != 0, n, shape);
}

static int add_product(struct flops *f, const struct product *p, const char *part, __int128 *flops) {
    const struct cost_gemm *g = &p->g;
    if (cost_gemm_count(g, flops)) return flops_fail(f, "more than 1.7e38 operations");
    int code = add_matrix(f, p, part, "A", g->m, g->k, p->a_batch);
    if (!code) code = add_matrix(f, p, part, "B", g->k, g->n, p->b_batch);
    return code ? code : add_matrix(f, p, part, "C", g->m, g->n, p->c_batch);
}

static void gemm_notes(struct flops *f, const struct cost_gemm *g) {
    if (g->beta == ACCT_scalar_DEVICE || g->alpha == ACCT_scalar_DEVICE)
        sheet_note(&f->sheet, "%s in device memory is not known to the host: bytes are a bound, as if it were not 0.",
                   g->beta == ACCT_scalar_DEVICE ? (g->alpha == ACCT_scalar_DEVICE ? "alpha and beta" : "beta")
                                                 : "alpha");
    if (cost_is_complex(g->a_type))
        sheet_note(&f->sheet, "Complex: 4 times the real count; FLOPs are real operations.");
    if (f->type->storage == ACCT_dtype_FP4_E2M1) sheet_note(&f->sheet, "Block scale factors are not among the bytes.");
}

static int finish_gemm(struct flops *f, const struct cost_gemm *g) {
    __int128 flops;
    const int64_t factors[] = {2, g->m, g->n, g->k, g->batch}, complex[] = {8, g->m, g->n, g->k, g->batch};
    int n = g->batch == 1 ? 4 : 5, is_complex = cost_is_complex(g->a_type);
    if (cost_gemm_count(g, &flops)) return flops_fail(f, "more than 1.7e38 operations");
    flops_add_part(f, "product", 1, flops, -1);
    gemm_notes(f, g);
    f->sheet.convention = "LAPACK working note 41: a multiply-add is 2; bytes: each operand once";
    return flops_finish(f, flops, "%d m n k%s = %s", is_complex ? 8 : 2, n == 5 ? " batch" : "",
                        flops_times(n, is_complex ? complex : factors));
}

static void input_gemm(struct flops *f, const struct cost_gemm *g) {
    struct plan_sheet *s = &f->sheet;
    sheet_input_whole(s, "m", "m", SHEET_NUMBER, g->m, "given");
    sheet_input_whole(s, "n", "n", SHEET_NUMBER, g->n, "given");
    sheet_input_whole(s, "k", "k", SHEET_NUMBER, g->k, "given");
    sheet_input_whole(s, "batch", "batch", SHEET_NUMBER, g->batch,
                      f->args->given[FLOPS_BATCH] ? "given"
                      : f->n == 2                 ? "shapes"
                                                  : "default");
    sheet_input_text(s, "out_dtype", "dtype of the result", f->out_type->name,
                     f->args->given[FLOPS_OUT_DTYPE] ? "given" : "default");
    flops_input_scalar(f, FLOPS_ALPHA, "alpha", "1");
    flops_input_scalar(f, FLOPS_BETA, "beta", "0");
}

/* Shapes as multiplied, the dimensions before the last two broadcast; a vector is a row on the left, a column on the
 * right. */
static int read_shapes(struct flops *f, struct product *p, int64_t shape[2][PLAN_DIMS], int rank[2]) {
    struct cost_gemm *g = &p->g;
    __int128 batch = 1;
    for (int i = 0; i < 2; i++) {
        int code = flops_shape(f, f->text[i], shape[i], &rank[i]);
        if (code) return code;
        if (!rank[i]) return flops_fail(f, "a number has no rows and columns");
    }
    int64_t k[2] = {shape[0][rank[0] - 1], rank[1] == 1 ? shape[1][0] : shape[1][rank[1] - 2]};
    if (k[0] != k[1]) return flops_fail(f, "the inner sizes differ: %lld and %lld", (long long)k[0], (long long)k[1]);
    for (int d = 3; d <= rank[0] || d <= rank[1]; d++) {
        int64_t x = d <= rank[0] ? shape[0][rank[0] - d] : 1, y = d <= rank[1] ? shape[1][rank[1] - d] : 1;
        if (x != y && x != 1 && y != 1)
            return flops_fail(f, "sizes %lld and %lld of the batch do not go together", (long long)x, (long long)y);
        if (plan_multiply(batch, x == 1 ? y : x, &batch) || batch > INT64_MAX)
            return flops_fail(f, "the batch is beyond 2^63");
    }
    g->m = rank[0] == 1 ? 1 : shape[0][rank[0] - 2];
    g->n = rank[1] == 1 ? 1 : shape[1][rank[1] - 1];
    g->k = k[0];
    g->batch = (int64_t)batch;
    return 0;
}

static int result_shape(const int64_t shape[2][PLAN_DIMS], const int rank[2], const struct cost_gemm *g, int64_t *out) {
    int n = 0, most = rank[0] > rank[1] ? rank[0] : rank[1];
    for (int d = most; d >= 3; d--) {
        int64_t x = d <= rank[0] ? shape[0][rank[0] - d] : 1, y = d <= rank[1] ? shape[1][rank[1] - d] : 1;
        out[n++] = x == 1 ? y : x;
    }
    if (rank[0] > 1) out[n++] = g->m;
    if (rank[1] > 1) out[n++] = g->n;
    return n;
}

static int matmul_shapes(struct flops *f, struct product *p) {
    int64_t shape[2][PLAN_DIMS], result[2 * PLAN_DIMS];
    int rank[2], use[3], code;
    static const int barred[] = {FLOPS_BATCH, FLOPS_BATCH_STRIDE, FLOPS_LD, FLOPS_TRANS};
    for (size_t i = 0; i < sizeof barred / sizeof *barred; i++)
        if (f->args->given[barred[i]])
            return flops_fail(f, "--%s is not for shapes; give M N K", f->args->command->options[barred[i]].name);
    if ((code = read_shapes(f, p, shape, rank))) return code;
    input_gemm(f, &p->g);
    for (int i = 0; i < 3; i++) use[i] = gemm_use(&p->g, i == 0 ? "A" : i == 1 ? "B" : "C");
    code = flops_add_operand(f, NULL, "A", f->type, use[0] & 1, 0, rank[0], shape[0]);
    if (!code) code = flops_add_operand(f, NULL, "B", f->type, use[1] & 1, 0, rank[1], shape[1]);
    int n = result_shape((const int64_t(*)[PLAN_DIMS])shape, rank, &p->g, result);
    if (!code)
        code = flops_add_operand(f, NULL, "C", f->out_type, (use[2] & COST_R) != 0, (use[2] & COST_W) != 0, n, result);
    return code ? code : finish_gemm(f, &p->g);
}

static int matmul(struct flops *f) {
    struct product p;
    __int128 flops;
    memset(&p, 0, sizeof p);
    int code = read_gemm(f, &p);
    if (code) return code;
    if (f->n == 2) return matmul_shapes(f, &p);
    code = flops_count(f, "M", f->text[0], PLAN_NOT_NEGATIVE, &p.g.m);
    if (!code) code = flops_count(f, "N", f->text[1], PLAN_NOT_NEGATIVE, &p.g.n);
    if (!code) code = flops_count(f, "K", f->text[2], PLAN_NOT_NEGATIVE, &p.g.k);
    if (!code) code = check_ld(f, &p.g);
    if (code) return code;
    input_gemm(f, &p.g);
    code = add_product(f, &p, NULL, &flops);
    return code ? code : finish_gemm(f, &p.g);
}

/* ---- grouped: a sum over products of different sizes ---- */

static int add_group(struct flops *f, struct product *p, int index, __int128 *sum) {
    int64_t v[PLAN_DIMS];
    int n, code = flops_shape(f, f->text[index], v, &n);
    char name[64];
    __int128 flops, before = f->bytes;
    if (code) return code;
    if (n != 3 && n != 4) return flops_fail(f, "'%.60s': write M,N,K or M,N,K,COUNT", f->text[index]);
    p->g.m = v[0], p->g.n = v[1], p->g.k = v[2];
    p->g.batch = p->a_batch = p->b_batch = p->c_batch = n == 4 ? v[3] : 1;
    snprintf(name, sizeof name, "%d: %.50s", index + 1, f->text[index]);
    code = add_product(f, p, NULL, &flops);
    if (!code && plan_add(*sum, flops, sum)) code = flops_fail(f, "more than 1.7e38 operations");
    return code ? code : flops_add_part(f, name, 1, flops, f->bytes - before);
}

static int grouped(struct flops *f) {
    struct product p;
    __int128 sum = 0;
    memset(&p, 0, sizeof p);
    int code = read_gemm(f, &p);
    for (int i = 0; i < f->n && !code; i++) code = add_group(f, &p, i, &sum);
    if (code) return code;
    flops_input_scalar(f, FLOPS_ALPHA, "alpha", "1");
    flops_input_scalar(f, FLOPS_BETA, "beta", "0");
    gemm_notes(f, &p.g);
    f->sheet.convention = "LAPACK working note 41: a multiply-add is 2; bytes: each operand once";
    return flops_finish(f, sum, "sum of %d m n k count over %d groups", cost_is_complex(p.g.a_type) ? 8 : 2, f->n);
}

#define GEMM_OPTIONS \
    (FLOPS_TAKES_BLAS | FLOPS_TAKES(FLOPS_OUT_DTYPE) | FLOPS_TAKES(FLOPS_LD) | FLOPS_TAKES(FLOPS_TRANS))

const struct flops_op flops_product_ops[] = {
    {"matmul", "M N K, or two shapes", "2 m n k", GEMM_OPTIONS, 2, 3, matmul},
    {"gemm", "M N K", "2 m n k", GEMM_OPTIONS, 3, 3, matmul},
    {"grouped", "M,N,K[,COUNT] ...", "the sum over groups",
     FLOPS_TAKES_ALWAYS | FLOPS_TAKES_COMPLEX | FLOPS_TAKES(FLOPS_ALPHA) | FLOPS_TAKES(FLOPS_BETA) |
         FLOPS_TAKES(FLOPS_OUT_DTYPE),
     1, 10000, grouped},
    {0},
};
