#include "analyzer/report_flops_expression.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const expression_variable_names[EXPRESSION_VARIABLES] = {"gx",     "gy",      "gz", "bx", "by", "bz",
                                                                     "blocks", "threads", "m",  "n",  "k",  "batch"};

enum { MAX_DEPTH = 24 };

struct parser {
    struct expression *out;
    const char *at;
    const struct expression_constant *constants;
    int n_constants, depth;
    char *err;
    size_t err_len;
};

static int emit(struct parser *p, char what, int64_t value) {
    if (p->out->n == EXPRESSION_CODES) {
        snprintf(p->err, p->err_len, "the expression is too long");
        return -1;
    }
    p->out->code[p->out->n++] = (struct expression_code){what, value};
    return 0;
}

static void skip_blanks(struct parser *p) {
    while (*p->at == ' ' || *p->at == '\t') p->at++;
}

static int parse_sum(struct parser *p);

static int parse_number(struct parser *p) {
    char *end;
    errno = 0;
    long long value = strtoll(p->at, &end, 10);
    if (errno || isalnum((unsigned char)*end) || *end == '_' || *end == '.') {
        snprintf(p->err, p->err_len, "'%.24s' is no whole number of 64 bits", p->at);
        return -1;
    }
    p->at = end;
    return emit(p, 'n', value);
}

static int parse_name(struct parser *p) {
    size_t n = 0;
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') n++;
    const char *name = p->at;
    p->at += n;
    for (int i = 0; i < p->n_constants; i++)
        if (strlen(p->constants[i].name) == n && !strncmp(p->constants[i].name, name, n))
            return emit(p, 'n', p->constants[i].value);
    for (int i = 0; i < EXPRESSION_VARIABLES; i++)
        if (strlen(expression_variable_names[i]) == n && !strncmp(expression_variable_names[i], name, n))
            return emit(p, 'v', i);
    snprintf(p->err, p->err_len, "'%.*s' is not known: give it a value, as %.*s=8", (int)n, name, (int)n, name);
    return -1;
}

static int parse_factor(struct parser *p) {
    int rc;
    skip_blanks(p);
    if (*p->at == '-') {
        p->at++;
        if (++p->depth > MAX_DEPTH) goto deep;
        rc = parse_factor(p);
        p->depth--;
        return rc ? rc : emit(p, '~', 0);
    }
    if (*p->at == '(') {
        p->at++;
        if (++p->depth > MAX_DEPTH) goto deep;
        if (parse_sum(p)) return -1;
        p->depth--;
        skip_blanks(p);
        if (*p->at != ')') {
            snprintf(p->err, p->err_len, "a ) is missing");
            return -1;
        }
        p->at++;
        return 0;
    }
    if (isdigit((unsigned char)*p->at)) return parse_number(p);
    if (isalpha((unsigned char)*p->at) || *p->at == '_') return parse_name(p);
    snprintf(p->err, p->err_len, *p->at ? "'%.1s' is not expected here" : "the expression ends too early%.0s", p->at);
    return -1;
deep:
    snprintf(p->err, p->err_len, "the expression is nested too deeply");
    return -1;
}

static int parse_product(struct parser *p) {
    if (parse_factor(p)) return -1;
    for (skip_blanks(p); *p->at == '*' || *p->at == '/'; skip_blanks(p)) {
        char what = *p->at++;
        if (parse_factor(p) || emit(p, what, 0)) return -1;
    }
    return 0;
}

static int parse_sum(struct parser *p) {
    if (parse_product(p)) return -1;
    for (skip_blanks(p); *p->at == '+' || *p->at == '-'; skip_blanks(p)) {
        char what = *p->at++;
        if (parse_product(p) || emit(p, what, 0)) return -1;
    }
    return 0;
}

int expression_parse(struct expression *e, const char *text, const struct expression_constant *constants,
                     int n_constants, char *err, size_t err_len) {
    struct parser p = {.out = e, .at = text, .constants = constants, .n_constants = n_constants};
    p.err = err;
    p.err_len = err_len;
    e->n = 0;
    if (parse_sum(&p)) return -1;
    skip_blanks(&p);
    if (!*p.at) return 0;
    snprintf(err, err_len, "'%.24s' is not expected here", p.at);
    return -1;
}

/* ---- values ---- */

static int64_t floor_quotient(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* a op b; 0, or -1 with the reason. */
static int apply(char what, int64_t a, int64_t b, int64_t *out, const char **why) {
    int beyond = 0;
    *why = "does not fit in 64 bits";
    switch (what) {
    case '+':
        beyond = __builtin_add_overflow(a, b, out);
        break;
    case '-':
        beyond = __builtin_sub_overflow(a, b, out);
        break;
    case '*':
        beyond = __builtin_mul_overflow(a, b, out);
        break;
    default:
        if (!b) *why = "divides by 0";
        if (!b || (a == INT64_MIN && b == -1)) return -1;
        *out = floor_quotient(a, b);
    }
    return beyond ? -1 : 0;
}

int expression_value(const struct expression *e, const int64_t *variables, int64_t *out, char *err, size_t err_len) {
    int64_t stack[EXPRESSION_CODES];
    const char *why;
    int n = 0;
    for (int i = 0; i < e->n; i++) {
        const struct expression_code *c = &e->code[i];
        if (c->what == 'n') {
            stack[n++] = c->value;
        } else if (c->what == 'v') {
            if (variables[c->value] == EXPRESSION_UNKNOWN) {
                snprintf(err, err_len, "this call has no %s", expression_variable_names[c->value]);
                return -1;
            }
            stack[n++] = variables[c->value];
        } else if (c->what == '~') {
            if (apply('-', 0, stack[n - 1], &stack[n - 1], &why)) goto bad;
        } else {
            n--;
            if (apply(c->what, stack[n - 1], stack[n], &stack[n - 1], &why)) goto bad;
        }
    }
    *out = stack[0];
    return 0;
bad:
    snprintf(err, err_len, "%s", why);
    return -1;
}
