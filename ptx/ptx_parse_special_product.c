/* mma, wmma.mma, wgmma: shape, types, and whether the interpreter can do it. */
#include "ptx/ptx_parse_special.h"

static unsigned elements(const struct ptx_operand *o, unsigned type) {
    unsigned bits = ptx_matrix_bits((enum ptx_matrix_type)type);
    return ptx_register_count(o) * (bits < 32 ? 32 / bits : 1);
}

/* As many elements as the shape has, or, in wmma, a multiple. */
static bool fits(const struct ptx_matrix *x, unsigned lanes_have, unsigned lines, unsigned length) {
    return x->wmma ? lanes_have && lanes_have <= length && length % lanes_have == 0 &&
                         lanes_have * 32 % (lines * length) == 0
                   : lanes_have * 32 == lines * length;
}

static bool is_executable(const struct ptx_matrix *x, const struct ptx_operand *d, const struct ptx_operand *src) {
    bool stored_apart = x->a >= PTX_MX_E3M2 && x->a <= PTX_MX_E2M1, other = x->b >= PTX_MX_E3M2 && x->b <= PTX_MX_E2M1;
    bool shape = x->wmma ? x->m <= 32 && x->n <= 32 : (x->m == 8 || x->m == 16) && x->n == 8;
    return !x->sparse && x->copies == 1 && !stored_apart && !other && shape &&
           fits(x, elements(&src[0], x->a), x->m, x->k) && fits(x, elements(&src[1], x->b), x->n, x->k) &&
           fits(x, elements(&src[2], x->c), x->m, x->n) && fits(x, elements(d, x->d), x->m, x->n);
}

static void types(struct ptx_special *s, struct ptx_matrix *x) {
    enum ptx_matrix_type t[4];
    for (unsigned k = 0; k < 4; k++) t[k] = ptx_matrix_word(s, k);
    if (t[3])
        x->d = (uint8_t)t[0], x->a = (uint8_t)t[1], x->b = (uint8_t)t[2], x->c = (uint8_t)t[3];
    else if (t[2])
        x->d = x->c = (uint8_t)t[0], x->a = (uint8_t)t[1], x->b = (uint8_t)t[2];
    else if (t[1]) /* wmma of halves says the results' types only */
        x->d = (uint8_t)t[0], x->c = (uint8_t)t[1], x->a = x->b = PTX_MX_F16;
    else
        ptx_not_supported(s);
}

static struct ptx_matrix read_shape(struct ptx_special *s) {
    unsigned m, n, k;
    if (!ptx_shape(s, &m, &n, &k) || m > 256 || n > 256 || k > 256 || m * n * k % 64) ptx_not_supported(s);
    struct ptx_matrix x = {.m = (uint16_t)m, .n = (uint16_t)n, .k = (uint16_t)k, .copies = 1};
    types(s, &x);
    x.threads = s->op == PTX_OP_WGMMA ? 128 : 32;
    x.wmma = s->op == PTX_OP_WMMA;
    x.sparse = ptx_has_word(s, "sp") || ptx_has_word(s, "sp::ordered_metadata");
    x.conjunction = ptx_has_word(s, "and");
    x.satfinite = ptx_has_word(s, "satfinite");
    if (s->op == PTX_OP_MMA && m == 8 && n == 8 && k == 4 && x.a == PTX_MX_F16) x.copies = 4; /* one in each 8 lanes */
    return x;
}

static unsigned register_bits(unsigned type) {
    return type == PTX_MX_F64 ? 64 : 32;
}

static void skip_operands(struct ptx_special *s) {
    while (ptx_accept(s->p, ',')) ptx_parse_operand(s->p, &(struct ptx_operand){0});
}

static const char known[] =
    "mma sync aligned rn rz rm rp row col xor and popc sp sp::ordered_metadata satfinite block_scale kind::f8f6f4 "
    "kind::mxf4 "
    "kind::mxf8f6f4 kind::mxf4nvf4 scale_vec::1X scale_vec::2X scale_vec::4X ue8m0 ue4m3 mma_async fence commit_group "
    "wait_group";

static bool is_shape(const struct ptx_token *t) {
    return t->text[0] == 'm' && t->length > 5 && t->text[1] >= '0' && t->text[1] <= '9';
}

static void check_words(const struct ptx_special *s) {
    struct ptx_special one = *s;
    one.words = 1;
    for (unsigned n = 0; n < s->words; n++) {
        one.word[0] = s->word[n];
        if (!is_shape(&s->word[n]) && !ptx_matrix_word(&one, 0) && !ptx_among(&s->word[n], known)) ptx_not_supported(s);
    }
}

static bool asynchronous(struct ptx_special *s) {
    if (s->op != PTX_OP_WGMMA) return false;
    if (ptx_has_word(s, "mma_async")) {
        struct ptx_matrix x = read_shape(s);
        struct ptx_operand d = ptx_next_operand(s, true);
        ptx_want_registers(s, &d, 32);
        skip_operands(s); /* of shared memory, by descriptors */
        struct ptx_matrix *kept = ptx_arena_bytes(s->p, sizeof *kept);
        *kept = x;
        ptx_emit(s, PTX_OP_WGMMA, PTX_B32, &d, 1, NULL, 0)->matrix = kept;
        return true;
    }
    if (!ptx_has_word(s, "fence") && !ptx_has_word(s, "commit_group") && !ptx_has_word(s, "wait_group"))
        ptx_not_supported(s);
    if (!ptx_is(s->p, ';')) ptx_next_operand(s, true);
    ptx_emit(s, PTX_OP_GROUP, PTX_NONE, NULL, 0, NULL, 0);
    return true;
}

void ptx_special_matrix(struct ptx_special *s) {
    check_words(s);
    if (asynchronous(s)) return;
    struct ptx_matrix x = read_shape(s);
    struct ptx_operand d = ptx_next_operand(s, true), src[3];
    for (int k = 0; k < 3; k++) src[k] = ptx_next_operand(s, false);
    ptx_want_registers(s, &d, register_bits(x.d));
    ptx_want_registers(s, &src[0], register_bits(x.a));
    ptx_want_registers(s, &src[1], register_bits(x.b));
    ptx_want_registers(s, &src[2], register_bits(x.c));
    x.executable = is_executable(&x, &d, src) && !ptx_is(s->p, ',');
    skip_operands(s); /* metadata of a sparse A, scales of blocks */
    struct ptx_matrix *kept = ptx_arena_bytes(s->p, sizeof *kept);
    *kept = x;
    ptx_emit(s, PTX_OP_MMA, x.d == PTX_MX_F64 ? PTX_B64 : PTX_B32, &d, 1, src, 3)->matrix = kept;
}
