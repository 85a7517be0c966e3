/* Instructions with shapes of their own: what ptx_parse_special*.c share. Many of them are written as simpler
 * instructions (a lane's loads of wmma.load, the exchange of addresses of ldmatrix): whoever reads the module then
 * needs to know nothing of them. The first that does something stands for the instruction of the text; the rest are
 * helpers. */
#ifndef ACCT_PTX_PARSE_SPECIAL_H
#define ACCT_PTX_PARSE_SPECIAL_H

#include "ptx/ptx_parse.h"

enum { PTX_MAX_MODIFIERS = 24 };

struct ptx_special {
    struct ptx_parser *p;
    struct ptx_token at;
    enum ptx_op op;
    const struct ptx_operand *guard; /* NULL: none */
    bool counted;                    /* an instruction stands for it */
    struct ptx_token word[PTX_MAX_MODIFIERS];
    unsigned words;
};

/* ---- modifiers ---- */
bool ptx_has_word(const struct ptx_special *s, const char *text);
bool ptx_among(const struct ptx_token *word, const char *allowed); /* separated by blanks */
/* The words from number `from` on must be among these. */
void ptx_only_words(const struct ptx_special *s, unsigned from, const char *allowed);
bool ptx_shape(const struct ptx_special *s, unsigned *m, unsigned *n, unsigned *k); /* .m16n8k16 */
enum ptx_matrix_type ptx_matrix_word(const struct ptx_special *s, unsigned which);  /* the which-th type; NONE */
enum ptx_space ptx_space_word(const struct ptx_special *s);                         /* none: PTX_GENERIC */
_Noreturn void ptx_not_supported(const struct ptx_special *s);                      /* with all its modifiers */

/* ---- operands ---- */
struct ptx_operand ptx_next_operand(struct ptx_special *s, bool first); /* behind a comma, unless the first */
void ptx_want_registers(const struct ptx_special *s, const struct ptx_operand *o, unsigned bits);
void ptx_want_number(const struct ptx_special *s, const struct ptx_operand *o,
                     unsigned bits); /* register or constant */
unsigned ptx_register_count(const struct ptx_operand *o);

/* ---- instructions ---- */
/* One more, guarded as the instruction of the text is. */
struct ptx_instr *ptx_emit(struct ptx_special *s, enum ptx_op op, enum ptx_type type, const struct ptx_operand *dst,
                           unsigned dsts, const struct ptx_operand *src, unsigned srcs);
/* Arithmetic into a register of its own, a helper without guard. b NULL: one source. */
struct ptx_operand ptx_temporary(struct ptx_special *s, enum ptx_type type);
struct ptx_operand ptx_compute(struct ptx_special *s, enum ptx_op op, enum ptx_type type, uint32_t modifiers,
                               const struct ptx_operand *a, const struct ptx_operand *b);
static inline struct ptx_operand ptx_immediate(uint64_t bits) {
    return (struct ptx_operand){.kind = PTX_IMM, .sreg = PTX_LIT_INT, .reg = -1, .var = -1, .func = -1, .bits = bits};
}

void ptx_special_matrix(struct ptx_special *s);   /* mma, wmma.mma, wgmma */
void ptx_special_fragment(struct ptx_special *s); /* wmma.load, wmma.store */
void ptx_special_rows(struct ptx_special *s);     /* ldmatrix, stmatrix, movmatrix */
void ptx_special_copy(struct ptx_special *s);     /* cp.async … */
void ptx_special_mbarrier(struct ptx_special *s);

#endif
