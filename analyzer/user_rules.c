/* Reads a file of rules. */
#include "analyzer/user_rules.h"

#include "analyzer/attr_overrides.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const key_names[RULE_KEYS] = {
    [RULE_ORDER] = "order", [RULE_BYTES] = "bytes", [RULE_ADDRESS] = "address", [RULE_DEVICE] = "device",
    [RULE_STACK] = "stack", [RULE_API] = "api",     [RULE_LIBRARY] = "library", [RULE_RANGE] = "range",
    [RULE_TAG] = "tag",     [RULE_WAS] = "was",     [RULE_MEMORY] = "memory"};

struct reader {
    struct user_rules *rules;
    int line, conditions_room;
    char *err;
    size_t err_len;
};

static int bad(const struct reader *r, const char *format, ...) {
    va_list ap;
    int n = snprintf(r->err, r->err_len, "%s:%d: ", r->rules->path, r->line);
    va_start(ap, format);
    if (n > 0 && (size_t)n < r->err_len) vsnprintf(r->err + n, r->err_len - (size_t)n, format, ap);
    va_end(ap);
    for (char *p = r->err; *p; p++) /* what a damaged file has is not the terminal's business */
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    return -1;
}

static int no_memory(const struct reader *r) {
    return bad(r, "not enough memory for the rules");
}

/* ---- numbers ---- */

/* What stands behind a number: 1 for none or B; 0: not known. */
static int64_t unit_of(const char *text, size_t n) {
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1000},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"KiB", 1024},
                 {"MiB", 1 << 20},
                 {"GiB", 1 << 30},
                 {"TiB", (int64_t)1 << 40}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].name) == n && !strncmp(units[i].name, text, n)) return units[i].bytes;
    return 0;
}

/* Digits, with a fraction where a unit makes it whole: 1.5MiB. */
static int parse_bytes(const char *text, size_t n, int64_t *out) {
    size_t digits = strspn(text, "0123456789"), fraction = 0;
    if (!digits || digits > 19) return -1;
    size_t at = digits;
    if (at < n && text[at] == '.') {
        fraction = strspn(text + at + 1, "0123456789");
        if (!fraction || fraction > 9) return -1;
        at += 1 + fraction;
    }
    if (at > n) return -1;
    int64_t unit = unit_of(text + at, n - at), scale = 1;
    __int128 value = 0;
    if (!unit) return -1;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '.') continue;
        value = value * 10 + (text[i] - '0');
        if (i > digits) scale *= 10;
    }
    value *= unit;
    if (value % scale || value / scale > INT64_MAX) return -1;
    *out = (int64_t)(value / scale);
    return 0;
}

/* Addresses may be beyond INT64_MAX, and are then negative as in the table. */
static int parse_address(const char *text, size_t n, int64_t *out) {
    char copy[24], *end;
    if (n < 1 || n >= sizeof copy || strspn(text, "0123456789abcdefABCDEFxX") < n) return -1;
    memcpy(copy, text, n);
    copy[n] = 0;
    errno = 0;
    *out = (int64_t)strtoull(copy, &end, 0);
    return *end || errno ? -1 : 0;
}

static int parse_number(int key, const char *text, size_t n, int64_t *out) {
    if (key == RULE_ADDRESS) return parse_address(text, n, out);
    if (key == RULE_BYTES) return parse_bytes(text, n, out);
    size_t digits = strspn(text, "0123456789");
    if (digits != n) return -1;
    return parse_bytes(text, n, out);
}

/* N, or N-M behind =; N behind the others. */
static int parse_interval(const struct reader *r, struct rule_condition *c, const char *op, const char *value) {
    const char *name = key_names[c->key], *dash = strchr(value, '-');
    int64_t x, y;
    size_t n = dash ? (size_t)(dash - value) : strlen(value);
    const char *what = c->key == RULE_BYTES     ? "a size such as 4096, 1.5MiB or 1MB-2MB"
                       : c->key == RULE_ADDRESS ? "an address such as 0x7f0000000000"
                                                : "a number, or two as 10-20";
    if (parse_number(c->key, value, n, &x)) return bad(r, "%s%s%.60s: not %s", name, op, value, what);
    y = x;
    if (dash && (strcmp(op, "=") || parse_number(c->key, dash + 1, strlen(dash + 1), &y)))
        return bad(r, "%s%s%.60s: not %s", name, op, value, what);
    if (y < x) return bad(r, "%s%s%.60s: the second number is less than the first", name, op, value);
    c->least = INT64_MIN;
    c->most = INT64_MAX;
    if (op[0] == '=') c->least = x, c->most = y;
    if (op[0] == '>') c->least = op[1] ? x : x == INT64_MAX ? x : x + 1;
    if (op[0] == '<') c->most = op[1] ? x : x == INT64_MIN ? x : x - 1;
    if (!op[1] && ((op[0] == '>' && x == INT64_MAX) || (op[0] == '<' && x == INT64_MIN)))
        return bad(r, "%s%s%.60s: no number is", name, op, value);
    return 0;
}

/* ---- words ---- */

/* The next word of a line, with quotes and their backslashes taken away; NULL: no more. *bad_quote: it does not end. */
static char *next_word(char **at, int *bad_quote) {
    char *p = *at, *out, *word;
    int quoted = 0;
    while (*p == ' ' || *p == '\t') p++;
    if (!*p || *p == '#') return NULL;
    for (word = out = p; *p && (quoted || (*p != ' ' && *p != '\t')); p++) {
        if (*p == '"') {
            quoted = !quoted;
            continue;
        }
        if (quoted && *p == '\\' && (p[1] == '"' || p[1] == '\\')) p++;
        *out++ = *p;
    }
    *bad_quote = quoted;
    *at = *p ? p + 1 : p;
    *out = 0;
    return word;
}

static int key_of(const char *word, size_t n) {
    for (int k = 0; k < RULE_KEYS; k++)
        if (strlen(key_names[k]) == n && !strncmp(key_names[k], word, n)) return k;
    return -1;
}

static int set_class(const struct reader *r, struct user_rule *rule, const char *op, const char *value) {
    if (strcmp(op, "=")) return bad(r, "class%s: a rule gives a class with class=NAME", op);
    if (rule->class) return bad(r, "class= stands twice");
    rule->class = override_class(value);
    if (rule->class) return 0;
    return bad(r,
               "class=%.60s: no such class; there are param, grad, optimizer, activation, activation_grad, input, "
               "workspace, temporary, other, unknown",
               value);
}

static int add_condition(struct reader *r, struct user_rule *rule, int key, const char *op, const char *value) {
    struct rule_condition c = {.key = (int8_t)key, .negate = op[0] == '!'};
    int pattern = key >= RULE_NUMBERS;
    if (!*value) return bad(r, "%s%s: a value is missing", key_names[key], op);
    if (pattern && (op[0] == '<' || op[0] == '>'))
        return bad(r, "%s%s: only order, bytes, address and device are compared; write %s= or %s!=", key_names[key], op,
                   key_names[key], key_names[key]);
    if (!pattern && c.negate) return bad(r, "%s!=: numbers take = < <= > >=", key_names[key]);
    if (c.negate && (key == RULE_TAG || key == RULE_WAS))
        return bad(r, "%s!=: write %s= with what it is", key_names[key], key_names[key]);
    if (key == RULE_WAS && !override_class(value)) return bad(r, "was=%.60s: no such class", value);
    if (!pattern && parse_interval(r, &c, op, value)) return -1;
    if (rule->conditions == r->conditions_room) {
        int room = r->conditions_room ? 2 * r->conditions_room : 4;
        void *p = realloc(rule->condition, (size_t)room * sizeof *rule->condition);
        if (!p) return no_memory(r);
        rule->condition = p;
        r->conditions_room = room;
    }
    if (pattern && !(c.pattern = strdup(value))) return no_memory(r);
    rule->condition[rule->conditions++] = c;
    r->rules->keys |= 1u << key;
    return 0;
}

static int parse_word(struct reader *r, struct user_rule *rule, char *word) {
    size_t n = strcspn(word, "=<>!");
    const char *value = word + n;
    char op[3] = {value[0], 0, 0};
    if (!*value || !n) return bad(r, "'%.60s': not understood; write NAME=VALUE, such as bytes>=1MiB", word);
    value++;
    if (op[0] != '=' && *value == '=') op[1] = *value++;
    if (op[0] == '!' && !op[1]) return bad(r, "'%.60s': not understood; write NAME=VALUE, such as bytes>=1MiB", word);
    if (n == 5 && !strncmp(word, "class", n)) return set_class(r, rule, op, value);
    int key = key_of(word, n);
    if (key >= 0) return add_condition(r, rule, key, op, value);
    return bad(r,
               "%.*s: no such condition; there are order, bytes, address, device, stack, library, api, range, tag, "
               "memory, was",
               (int)(n > 60 ? 60 : n), word);
}

static int parse_line(struct reader *r, char *line) {
    struct user_rules *u = r->rules;
    int bad_quote = 0;
    char *at = line, *word = next_word(&at, &bad_quote);
    if (!word) return 0;
    if (u->rules == USER_RULES_MOST) return bad(r, "more than %d rules", USER_RULES_MOST);
    if (!(u->rules & (u->rules - 1))) {
        void *p = realloc(u->rule, (size_t)(u->rules ? 2 * u->rules : 1) * sizeof *u->rule);
        if (!p) return no_memory(r);
        u->rule = p;
    }
    struct user_rule *rule = &u->rule[u->rules++];
    *rule = (struct user_rule){.line = r->line};
    r->conditions_room = 0;
    snprintf(rule->text, sizeof rule->text, "by the user's rules, line %d", r->line);
    for (; word; word = next_word(&at, &bad_quote)) {
        if (bad_quote) return bad(r, "a quote does not end");
        if (parse_word(r, rule, word)) return -1;
    }
    if (!rule->class) return bad(r, "no class; a rule gives one with class=NAME");
    if (!rule->conditions) return bad(r, "no condition; order>=1 stands for all allocations");
    return 0;
}

static int parse_file(struct reader *r, FILE *f) {
    char line[USER_RULES_LINE + 2];
    for (r->line = 1;; r->line++) {
        size_t n = 0;
        int c;
        while ((c = getc(f)) != EOF && c != '\n') {
            if (!c) return bad(r, "a NUL byte: this is no text");
            if (n > USER_RULES_LINE) return bad(r, "the line has more than %d bytes", USER_RULES_LINE);
            line[n++] = (char)c;
        }
        if (n && line[n - 1] == '\r') n--;
        line[n] = 0;
        char *text = r->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3) ? line + 3 : line;
        if (parse_line(r, text)) return -1;
        if (c == EOF) break;
    }
    return ferror(f) ? bad(r, "cannot be read: %s", strerror(errno)) : 0;
}

int user_rules_read(struct user_rules **out, const char *path, char *err, size_t err_len) {
    struct reader r = {.rules = calloc(1, sizeof *r.rules), .err = err, .err_len = err_len};
    FILE *f = fopen(path, "re");
    *out = NULL;
    if (!f) {
        snprintf(err, err_len, "%s: cannot be read: %s", path, strerror(errno));
        free(r.rules);
        return -1;
    }
    int rc = r.rules && (r.rules->path = strdup(path)) ? parse_file(&r, f) : -1;
    if (!r.rules || !r.rules->path) snprintf(err, err_len, "%s: not enough memory for the rules", path);
    fclose(f);
    if (rc)
        user_rules_free(r.rules);
    else
        *out = r.rules;
    return rc;
}

void user_rules_free(struct user_rules *u) {
    if (!u) return;
    for (int i = 0; i < u->rules; i++) {
        for (int c = 0; c < u->rule[i].conditions; c++) free(u->rule[i].condition[c].pattern);
        free(u->rule[i].condition);
    }
    free(u->rule);
    free(u->path);
    free(u);
}

int user_rules_glob(const char *pattern, const char *text) {
    const char *star = NULL, *mark = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            mark = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++, text++;
        } else if (star) {
            pattern = star + 1;
            text = ++mark;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}
