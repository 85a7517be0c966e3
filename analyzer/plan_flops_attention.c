/* Attention of `acct plan flops`: the two products of the core, forward and backward. */
#include "analyzer/plan_flops.h"
#include "plan/plan_ops.h"

#include <stdio.h>
#include <string.h>

static int attention_numbers(struct flops *f, struct plan_attention *a) {
    int64_t v[6];
    static const char *const names[] = {"B", "H", "TQ", "TK", "DQK", "DV"}, *const few[] = {"B", "H", "T", "D"};
    for (int i = 0; i < f->n; i++) {
        int code = flops_count(f, f->n == 4 ? few[i] : names[i], f->text[i], i == 1 ? PLAN_POSITIVE : PLAN_NOT_NEGATIVE,
                               &v[i]);
        if (code) return code;
    }
    a->batch = v[0];
    a->heads = a->kv_heads = v[1];
    a->queries = v[2];
    a->keys = f->n == 4 ? v[2] : v[3];
    a->d_qk = f->n == 4 ? v[3] : v[4];
    a->d_v = f->n == 4 ? v[3] : v[5];
    return 0;
}

/* Shapes of q, k, v; k is as q where it is not given, v as k. */
static int attention_shapes(struct flops *f, struct plan_attention *a, int bshd) {
    static const char *const names[] = {"q", "k", "v"};
    int64_t s[3][PLAN_DIMS];
    int n, head = bshd ? 2 : 1, time = bshd ? 1 : 2;
    for (int i = 0; i < 3; i++) {
        int from = i < f->n ? i : f->n - 1, code = flops_shape(f, f->text[from], s[i], &n);
        if (code) return code;
        if (n != 4) return flops_fail(f, "%s has %d dimensions; write %s", names[i], n, bshd ? "B,S,H,D" : "B,H,S,D");
    }
    if (s[0][0] != s[1][0] || s[0][0] != s[2][0]) return flops_fail(f, "the batches of q, k and v differ");
    if (s[0][3] != s[1][3]) return flops_fail(f, "q has depth %lld, k %lld", (long long)s[0][3], (long long)s[1][3]);
    if (s[1][time] != s[2][time] || s[1][head] != s[2][head]) return flops_fail(f, "k and v differ in heads or length");
    if (!s[0][head] || !s[1][head]) return flops_fail(f, "0 heads");
    *a = (struct plan_attention){s[0][0],    s[0][head], s[1][head], s[0][time],
                                 s[1][time], s[0][3],    s[2][3],    PLAN_CAUSAL_FULL};
    return 0;
}

static int read_attention(struct flops *f, struct plan_attention *a) {
    static const char *const layouts[] = {"bhsd", "bshd", NULL}, *const hows[] = {"full", "skipped", "half", NULL};
    int layout = 0, how = 0, code = flops_word(f, FLOPS_LAYOUT, layouts, &layout);
    if (!code) code = flops_word(f, FLOPS_CAUSAL, hows, &how);
    if (code) return code;
    if (f->n == 5) return flops_fail(f, "5 operands; type B H T D, or B H TQ TK DQK DV, or shapes of q, k, v");
    if (f->n > 3 && f->args->given[FLOPS_LAYOUT]) return flops_fail(f, "--layout is for shapes");
    if ((code = f->n > 3 ? attention_numbers(f, a) : attention_shapes(f, a, layout))) return code;
    if (f->n > 1 && f->n <= 3 && f->args->given[FLOPS_KV_HEADS]) return flops_fail(f, "--kv-heads: k's shape says it");
    a->causal = (enum plan_causal)how;
    return sheet_whole(f->args, FLOPS_KV_HEADS, PLAN_COUNT, PLAN_POSITIVE, INT64_MAX, &a->kv_heads);
}

static int add_attention_operands(struct flops *f, const char *pass, const struct plan_attention *a, int backward) {
    const int64_t q[] = {a->batch, a->heads, a->queries, a->d_qk}, k[] = {a->batch, a->kv_heads, a->keys, a->d_qk};
    const int64_t v[] = {a->batch, a->kv_heads, a->keys, a->d_v}, o[] = {a->batch, a->heads, a->queries, a->d_v};
    int code = flops_add_operand(f, pass, "q", f->type, 1, 0, 4, q);
    if (!code) code = flops_add_operand(f, pass, "k", f->type, 1, 0, 4, k);
    if (!code) code = flops_add_operand(f, pass, "v", f->type, 1, 0, 4, v);
    if (!code) code = flops_add_operand(f, pass, "o", f->type, backward, !backward, 4, o);
    if (!backward) return code;
    if (!code) code = flops_add_operand(f, pass, "do", f->type, 1, 0, 4, o);
    if (!code) code = flops_add_operand(f, pass, "dq", f->type, 0, 1, 4, q);
    if (!code) code = flops_add_operand(f, pass, "dk", f->type, 0, 1, 4, k);
    if (!code) code = flops_add_operand(f, pass, "dv", f->type, 0, 1, 4, v);
    return code;
}

static int add_attention_parts(struct flops *f, const struct plan_attention *a, const struct plan_attention_cost *c,
                               const struct flops_passes *p) {
    __int128 before = f->bytes;
    int code = 0;
    if (p->forward) {
        code = add_attention_operands(f, "forward", a, 0);
        if (!code) flops_add_part(f, "forward", 1, c->forward, f->bytes - before);
    }
    before = f->bytes;
    if (!code && p->input_grad) {
        code = add_attention_operands(f, "backward", a, 1);
        if (!code) flops_add_part(f, "backward", 1, c->backward_model, f->bytes - before);
    }
    return code;
}

static void add_backward(struct flops *f, const struct plan_attention_cost *c) {
    struct plan_sheet *s = &f->sheet;
    sheet_result_whole(s, "backward_flops", "backward, model", SHEET_FLOP, c->backward_model, "2 x forward");
    if (c->backward_executed_twice % 2)
        sheet_result(s, "backward_executed_flops", "backward, executed", SHEET_FLOP,
                     (double)c->backward_executed_twice / 2, "2.5 x forward: a flash kernel computes the scores again");
    else
        sheet_result_whole(s, "backward_executed_flops", "backward, executed", SHEET_FLOP,
                           c->backward_executed_twice / 2, "2.5 x forward: a flash kernel computes the scores again");
}

static void attention_formula(const struct plan_attention *a, char *out, size_t room) {
    static const char *const words[] = {"TQ TK", "pairs that the mask leaves", "TQ TK / 2"};
    char pairs[64];
    if (a->causal == PLAN_CAUSAL_SKIPPED && a->queries == a->keys)
        snprintf(pairs, sizeof pairs, "%lld x %lld / 2", (long long)a->queries, (long long)a->queries + 1);
    else if (a->causal == PLAN_CAUSAL_SKIPPED)
        snprintf(pairs, sizeof pairs, "sum over queries");
    else
        snprintf(pairs, sizeof pairs, "%lld x %lld%s", (long long)a->queries, (long long)a->keys,
                 a->causal == PLAN_CAUSAL_HALF ? " / 2" : "");
    snprintf(out, room, "2 B H (%s) (DQK + DV) = 2 x %lld x %lld x %s x (%lld + %lld)", words[a->causal],
             (long long)a->batch, (long long)a->heads, pairs, (long long)a->d_qk, (long long)a->d_v);
}

static void input_attention(struct flops *f, const struct plan_attention *a) {
    static const char *const hows[] = {"full", "skipped", "half"};
    const struct {
        const char *key, *label;
        int64_t value;
    } rows[] = {{"batch", "batch", a->batch},
                {"heads", "query heads", a->heads},
                {"kv_heads", "key and value heads", a->kv_heads},
                {"queries", "queries", a->queries},
                {"keys", "keys", a->keys},
                {"depth_qk", "depth of q and k", a->d_qk},
                {"depth_v", "depth of v", a->d_v}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        sheet_input_whole(&f->sheet, rows[i].key, rows[i].label, SHEET_NUMBER, rows[i].value,
                          i == 2 && !f->args->given[FLOPS_KV_HEADS] && f->n > 3 ? "default" : "given");
    sheet_input_text(&f->sheet, "causal", "causal", hows[a->causal],
                     f->args->given[FLOPS_CAUSAL] ? "given" : "default");
}

int flops_attention(struct flops *f) {
    static const char *const conventions[] = {"model FLOPs, all pairs (causal or not)",
                                              "as skipped by a causal mask: T (T + 1) / 2", "causal halved: T T / 2"};
    struct plan_attention a;
    struct plan_attention_cost c;
    struct flops_passes p;
    char err[256], formula[300];
    memset(&a, 0, sizeof a);
    int code = read_attention(f, &a);
    if (code) return code;
    if (plan_attention(&a, &c, err, sizeof err)) return flops_fail(f, "%s", err);
    input_attention(f, &a);
    if ((code = flops_read_passes(f, &p)) || (code = add_attention_parts(f, &a, &c, &p))) return code;
    attention_formula(&a, formula, sizeof formula);
    flops_pass_result(f, "forward_flops", "forward", p.forward, c.forward, formula);
    if (p.input_grad) add_backward(f, &c);
    sheet_note(&f->sheet, "The two products of the core; softmax, scaling and projections are not among them.");
    if (a.causal == PLAN_CAUSAL_SKIPPED)
        sheet_note(&f->sheet, "Only if the kernel skips masked tiles; the last query sees all keys.");
    f->sheet.convention = conventions[a.causal];
    __int128 sum = 0;
    if (plan_add(p.forward ? c.forward : 0, p.input_grad ? c.backward_model : 0, &sum))
        return flops_fail(f, "more than 1.7e38 FLOPs");
    return flops_finish(f, sum, "%s",
                        !p.input_grad ? formula
                        : p.forward   ? "3 x forward, model"
                                      : "2 x forward, model");
}
