#include "ptx/ptx_lex.h"
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool is_word(char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

void ptx_lex_begin(struct ptx_lexer *lexer, const char *text, size_t bytes) {
    *lexer = (struct ptx_lexer){.at = text, .end = text + bytes, .line_start = text, .line = 1};
}

static void newline(struct ptx_lexer *l) {
    l->line++;
    l->line_start = l->at + 1;
}

/* Past a block comment; false: it has no end. */
static bool skip_comment(struct ptx_lexer *l) {
    for (l->at += 2; l->end - l->at >= 2; l->at++) {
        if (l->at[0] == '*' && l->at[1] == '/') {
            l->at += 2;
            return true;
        }
        if (*l->at == '\n') newline(l);
    }
    return false;
}

/* false: an open comment, at which the lexer stays. */
static bool skip_blank(struct ptx_lexer *l) {
    while (l->at < l->end) {
        char c = *l->at, next = l->end - l->at > 1 ? l->at[1] : 0;
        if (c == '/' && next == '/') {
            while (l->at < l->end && *l->at != '\n') l->at++;
        } else if (c == '/' && next == '*') {
            struct ptx_lexer at_comment = *l;
            if (!skip_comment(l)) {
                *l = at_comment;
                return false;
            }
        } else if (c == '\n') {
            newline(l);
            l->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            l->at++;
        } else {
            return true;
        }
    }
    return true;
}

/* End of a modifier's text: letters, digits, and the double colon of .shared::cta. */
static const char *word_end(const struct ptx_lexer *l, const char *p) {
    while (p < l->end) {
        if (is_word(*p))
            p++;
        else if (l->end - p > 2 && p[0] == ':' && p[1] == ':' && is_word(p[2]))
            p += 2;
        else
            break;
    }
    return p;
}

static const char *number_end(const struct ptx_lexer *l, const char *p) {
    bool hex = l->end - p > 1 && p[0] == '0' && is_letter(p[1]);
    for (p++; p < l->end; p++) {
        bool exponent_sign = (*p == '+' || *p == '-') && !hex && (p[-1] == 'e' || p[-1] == 'E');
        if (!is_word(*p) && *p != '.' && !exponent_sign) break;
    }
    return p;
}

struct ptx_token ptx_lex(struct ptx_lexer *l) {
    bool closed = skip_blank(l);
    struct ptx_token t = {.text = l->at, .line = l->line, .column = (int32_t)(l->at - l->line_start) + 1};
    const char *p = l->at;
    if (p == l->end) return t;
    if (!closed || *p == 0) {
        t.kind = PTX_T_BAD;
    } else if (is_letter(*p) || *p == '_' || *p == '$' || *p == '%') {
        t.kind = PTX_T_NAME;
        for (p++; p < l->end && is_word(*p); p++) {
        }
    } else if (is_digit(*p)) {
        t.kind = PTX_T_NUMBER;
        p = number_end(l, p);
    } else if (*p == '.') {
        t.kind = PTX_T_WORD;
        t.text = p + 1;
        p = word_end(l, p + 1);
        if (p == t.text) t.kind = PTX_T_BAD;
    } else if (*p == '"') {
        const char *close = memchr(p + 1, '"', (size_t)(l->end - p - 1));
        t.kind = close && !memchr(p, '\n', (size_t)(close - p)) ? PTX_T_STRING : PTX_T_BAD;
        t.text = p + 1;
        p = t.kind == PTX_T_STRING ? close : p + 1;
    } else {
        t.kind = strchr("{}()[]<>,;:=+-*/!@|~&^?", *p) ? PTX_T_PUNCT : PTX_T_BAD;
        p++;
    }
    if (t.kind == PTX_T_BAD) t.text = l->at;
    t.length = (uint32_t)(p - t.text);
    if (t.kind == PTX_T_STRING) p++;
    if (t.kind != PTX_T_BAD) l->at = p; /* a bad one stays: the parser must not get past it */
    return t;
}

bool ptx_token_is(const struct ptx_token *token, int kind, const char *text) {
    return token->kind == kind && strlen(text) == token->length && memcmp(token->text, text, token->length) == 0;
}

static int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

static bool integer(const char *p, const char *end, unsigned base, uint64_t *bits) {
    if (p == end) return false;
    for (*bits = 0; p < end; p++) {
        unsigned digit = (unsigned)digit_value(*p);
        if (digit >= base || *bits > (UINT64_MAX - digit) / base) return false;
        *bits = *bits * base + digit;
    }
    return true;
}

static bool decimal_float(const struct ptx_token *t, uint64_t *bits) {
    char text[64], *end;
    if (t->length >= sizeof text || memchr(t->text, '_', t->length) || memchr(t->text, '$', t->length)) return false;
    memcpy(text, t->text, t->length);
    text[t->length] = 0;
    double value = strtod(text, &end);
    memcpy(bits, &value, sizeof value);
    return *end == 0;
}

bool ptx_number(const struct ptx_token *t, uint64_t *bits, enum ptx_literal *literal) {
    const char *p = t->text, *end = p + t->length;
    *literal = PTX_LIT_INT;
    char kind = end - p > 2 && p[0] == '0' ? (char)(p[1] | 32) : 0;
    if (kind == 'f' || kind == 'd') {
        *literal = kind == 'f' ? PTX_LIT_F32 : PTX_LIT_F64;
        return end - p == (kind == 'f' ? 10 : 18) && integer(p + 2, end, 16, bits);
    }
    if (memchr(p, '.', t->length) || (kind != 'x' && (memchr(p, 'e', t->length) || memchr(p, 'E', t->length)))) {
        *literal = PTX_LIT_F64;
        return decimal_float(t, bits);
    }
    if (end - p > 1 && end[-1] == 'U') end--;
    if (kind == 'x') return integer(p + 2, end, 16, bits);
    if (kind == 'b') return integer(p + 2, end, 2, bits);
    if (end - p > 1 && p[0] == '0') return integer(p + 1, end, 8, bits);
    return integer(p, end, 10, bits);
}
