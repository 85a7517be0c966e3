/* Tokens of PTX text. The lexer never allocates and never reads outside the text; a token points into it. */
#ifndef ACCT_PTX_LEX_H
#define ACCT_PTX_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
    PTX_T_END,
    PTX_T_NAME,   /* identifier, opcode, %register, _ */
    PTX_T_WORD,   /* .directive or .modifier; text without the dot */
    PTX_T_NUMBER, /* as written: 12, 0x1F, 0f3F800000, 9.0 */
    PTX_T_STRING, /* without the quotes */
    PTX_T_PUNCT,  /* one character */
    PTX_T_BAD     /* a character that no token begins with, or an open string or comment */
};

struct ptx_token {
    int kind; /* enum ptx_token_kind */
    const char *text;
    uint32_t length;
    int32_t line, column; /* from 1 */
};

struct ptx_lexer {
    const char *at, *end, *line_start;
    int32_t line;
};

void ptx_lex_begin(struct ptx_lexer *lexer, const char *text, size_t bytes);
struct ptx_token ptx_lex(struct ptx_lexer *lexer);
bool ptx_token_is(const struct ptx_token *token, int kind, const char *text);

enum ptx_literal { PTX_LIT_INT, PTX_LIT_F32, PTX_LIT_F64 };
/* Value of a NUMBER token: 64 bits of an integer, or the IEEE bits of a float. false: not a number of PTX, or over 64
 * bits. */
bool ptx_number(const struct ptx_token *token, uint64_t *bits, enum ptx_literal *literal);

#endif
