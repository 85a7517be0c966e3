/* Reading the user's prices. */
#include "analyzer/report_flops_rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONSTANTS = 32, MAX_FIELDS = 48, MAX_LINE = 4096, MAX_RULES = 10000 };

struct line {
    const char *path;
    int number;
    char *key[MAX_FIELDS], *value[MAX_FIELDS]; /* value NULL: a bare word */
    int fields;
    char *err;
    size_t err_len;
};

__attribute__((format(printf, 2, 3))) static int bad(const struct line *l, const char *format, ...) {
    char what[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    snprintf(l->err, l->err_len, "%s:%d: %s", l->path, l->number, what);
    for (char *p = l->err; *p; p++) /* what a damaged file has is not the terminal's business */
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    return -1;
}

/* Splits the text, in place, at blanks; a value may stand in double quotes. */
static int split(struct line *l, char *at) {
    for (;;) {
        while (isspace((unsigned char)*at)) at++;
        if (!*at || *at == '#') return 0;
        if (l->fields == MAX_FIELDS) return bad(l, "more than %d fields", MAX_FIELDS);
        char *key = at, *value = NULL;
        while (*at && *at != '=' && !isspace((unsigned char)*at)) at++;
        if (*at == '=') {
            *at++ = 0;
            value = at;
            if (*at == '"') {
                value = ++at;
                while (*at && *at != '"') at++;
                if (!*at) return bad(l, "a quotation mark is missing after %s=", key);
            } else {
                while (*at && !isspace((unsigned char)*at)) at++;
            }
        }
        if (*at) *at++ = 0;
        if (!*key) return bad(l, "a field without a name");
        l->key[l->fields] = key;
        l->value[l->fields++] = value;
    }
}

static const char *const keys[] = {"name",   "flops", "flops_per_launch", "flops_per_thread",
                                   "matmul", "dtype", "override"};
enum { KEYS = sizeof keys / sizeof *keys };

static int is_key(const char *name) {
    for (int i = 0; i < KEYS; i++)
        if (!strcmp(keys[i], name)) return 1;
    return 0;
}

static int is_variable(const char *name) {
    for (int i = 0; i < EXPRESSION_VARIABLES; i++)
        if (!strcmp(expression_variable_names[i], name)) return 1;
    return 0;
}

/* A constant may be an expression of those before it. */
static int read_constants(struct line *l, struct expression_constant *out, int *n) {
    static const int64_t none[EXPRESSION_VARIABLES] = {EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN,
                                                       EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN,
                                                       EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN,
                                                       EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN, EXPRESSION_UNKNOWN};
    char err[200];
    for (int i = 0; i < l->fields; i++) {
        const char *name = l->key[i];
        struct expression e;
        if (is_key(name)) continue;
        if (!l->value[i]) return bad(l, "'%s': neither NAME=VALUE nor override", name);
        if (strlen(name) >= sizeof out[0].name || !isalpha((unsigned char)*name) ||
            name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
            return bad(l, "'%.40s' cannot be the name of a constant", name);
        if (is_variable(name)) return bad(l, "%s is what a call tells: choose another name for a constant", name);
        for (int j = 0; j < *n; j++)
            if (!strcmp(out[j].name, name)) return bad(l, "%s has two values", name);
        if (*n == MAX_CONSTANTS) return bad(l, "more than %d constants", MAX_CONSTANTS);
        if (expression_parse(&e, l->value[i], out, *n, err, sizeof err) ||
            expression_value(&e, none, &out[*n].value, err, sizeof err))
            return bad(l, "%s=%s: %s", name, l->value[i], err);
        snprintf(out[(*n)++].name, sizeof out[0].name, "%s", name);
    }
    return 0;
}

static int read_number_format(const struct line *l, const char *name, struct flops_rule *r) {
    int format = devices_format_of(name);
    if (format < 0) return bad(l, "dtype=%s: no such number format (fp64 fp32 tf32 bf16 fp16 fp8 fp4)", name);
    r->dtype = devices_format_name(format);
    return 0;
}

static int read_fields(struct line *l, struct flops_rule *r) {
    struct expression_constant constants[MAX_CONSTANTS];
    const char *flops = NULL;
    char err[200];
    int n = 0;
    if (read_constants(l, constants, &n)) return -1;
    for (int i = 0; i < l->fields; i++) {
        const char *key = l->key[i], *value = l->value[i];
        if (!strcmp(key, "override") && !value) r->override = 1;
        if (!is_key(key) || (!strcmp(key, "override") && !value)) continue;
        if (!value || !*value) return bad(l, "%s= has no value", key);
        if (!strcmp(key, "name")) {
            if (r->pattern) return bad(l, "two names");
            if (!(r->pattern = strdup(value))) return bad(l, "not enough memory");
        } else if (!strncmp(key, "flops", 5)) {
            if (flops) return bad(l, "two prices");
            flops = value;
            r->per_thread = !strcmp(key, "flops_per_thread");
        } else if (!strcmp(key, "matmul")) {
            if (strcmp(value, "0") && strcmp(value, "1")) return bad(l, "matmul=%s: 0 or 1", value);
            r->matmul = *value == '1';
        } else if (!strcmp(key, "dtype")) {
            if (read_number_format(l, value, r)) return -1;
        } else {
            return bad(l, "override takes no value");
        }
    }
    if (!r->pattern) return bad(l, "no name=PATTERN");
    if (!flops) return bad(l, "no price: flops=, flops_per_launch= or flops_per_thread=");
    if (r->matmul && !r->dtype) return bad(l, "matmul=1 needs dtype=, whose peak counts");
    if (expression_parse(&r->flops, flops, constants, n, err, sizeof err)) return bad(l, "%s", err);
    return 0;
}

static int read_line(struct flops_rules *rules, int number, char *text, char *err, size_t err_len) {
    struct line l = {.path = rules->path, .number = number, .err = err, .err_len = err_len};
    if (split(&l, text)) return -1;
    if (!l.fields) return 0;
    if (rules->n == MAX_RULES) return bad(&l, "more than %d rules", MAX_RULES);
    rules->rule = report_grow(rules->rule, rules->n, sizeof *rules->rule);
    struct flops_rule *r = &rules->rule[rules->n++];
    memset(r, 0, sizeof *r);
    r->line = number;
    return read_fields(&l, r);
}

static int read_file(struct flops_rules *rules, FILE *f, char *err, size_t err_len) {
    char text[MAX_LINE + 1];
    int c = 0, rc = 0;
    for (int number = 1; !rc && c != EOF; number++) {
        struct line l = {.path = rules->path, .number = number, .err = err, .err_len = err_len};
        size_t n = 0;
        while ((c = getc(f)) != EOF && c != '\n') {
            if (!c) return bad(&l, "a NUL byte: this is no text");
            if (n == MAX_LINE) return bad(&l, "the line has more than %d bytes", MAX_LINE);
            text[n++] = (char)c;
        }
        text[n] = 0;
        rc = read_line(rules, number, number == 1 && !strncmp(text, "\xef\xbb\xbf", 3) ? text + 3 : text, err, err_len);
    }
    if (rc || !ferror(f)) return rc;
    snprintf(err, err_len, "%s: cannot be read: %s", rules->path, strerror(errno));
    return -1;
}

struct flops_rules *flops_rules_read(const char *path, char *err, size_t err_len) {
    struct flops_rules *rules = calloc(1, sizeof *rules);
    FILE *f = fopen(path, "re");
    int rc = rules && (rules->path = strdup(path)) ? 0 : -1;
    if (!f)
        snprintf(err, err_len, "%s: cannot be read: %s", path, strerror(errno));
    else if (rc)
        snprintf(err, err_len, "%s: not enough memory", path);
    else
        rc = read_file(rules, f, err, err_len);
    if (f) fclose(f);
    if (f && !rc) return rules;
    flops_rules_free(rules);
    return NULL;
}

void flops_rules_free(struct flops_rules *rules) {
    if (!rules) return;
    for (int i = 0; i < rules->n; i++) free(rules->rule[i].pattern);
    free(rules->rule);
    free(rules->path);
    free(rules);
}
