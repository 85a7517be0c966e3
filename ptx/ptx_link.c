#include "ptx/ptx_link.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum linkage { LOCAL, EXTERN, WEAK, STRONG };

struct slice {
    const char *begin, *end;
};

/* A declaration or definition at the level of the module. */
struct statement {
    struct slice text, name;
    struct slice word; /* .extern, in the text */
    size_t unit, order;
    enum linkage linkage;
    bool function, defines; /* a body, or a variable that is not external */
    bool dropped, renamed;
};

struct link {
    struct statement *all;
    size_t count, room;
    struct slice version, target; /* operands of the first unit's directives */
    struct statement **by_name;
    char *out;
    size_t length, out_room;
    bool no_memory;
    char *err;
    size_t err_len;
};

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* The next token from `at`, spaces and comments skipped: a word (directives and numbers too), a string, or one
 * character. Empty at the end. */
static struct slice token(const char *at, const char *end) {
    for (;;) {
        while (at < end && isspace((unsigned char)*at)) at++;
        if (end - at >= 2 && at[0] == '/' && at[1] == '/') {
            while (at < end && *at != '\n') at++;
        } else if (end - at >= 2 && at[0] == '/' && at[1] == '*') {
            for (at += 2; at < end && !(at[0] == '*' && at + 1 < end && at[1] == '/'); at++) {
            }
            at = end - at >= 2 ? at + 2 : end;
        } else {
            break;
        }
    }
    struct slice t = {at, at};
    if (at == end) return t;
    t.end++;
    if (*at == '"') {
        while (t.end < end && *t.end != '"') t.end += *t.end == '\\' && t.end + 1 < end ? 2 : 1;
        if (t.end < end) t.end++;
    } else if (is_word(*at)) {
        while (t.end < end && is_word(*t.end)) t.end++;
    }
    return t;
}

static bool is(struct slice t, const char *text) {
    size_t n = strlen(text);
    return (size_t)(t.end - t.begin) == n && !memcmp(t.begin, text, n);
}

static int compare(struct slice a, struct slice b) {
    size_t n = (size_t)(a.end - a.begin), m = (size_t)(b.end - b.begin);
    int c = memcmp(a.begin, b.begin, n < m ? n : m);
    return c ? c : (n > m) - (n < m);
}

static int fail(struct link *l, const char *what, struct slice name, size_t unit) {
    snprintf(l->err, l->err_len, "%s '%.*s' (translation unit %zu)", what,
             name.end - name.begin > 200 ? 200 : (int)(name.end - name.begin), name.begin, unit + 1);
    return -1;
}

static struct statement *add(struct link *l) {
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 256;
        struct statement *more = realloc(l->all, room * sizeof *more);
        if (!more) return NULL;
        l->all = more;
        l->room = room;
    }
    return &l->all[l->count++];
}

/* Directives that end with their line. *at moves behind it. */
static bool line_directive(struct link *l, struct slice first, const char **at, const char *end) {
    if (!is(first, ".version") && !is(first, ".target") && !is(first, ".address_size") && !is(first, ".file"))
        return false;
    const char *stop = memchr(first.end, '\n', (size_t)(end - first.end));
    struct slice rest = {first.end, stop ? stop : end};
    if (is(first, ".version") && !l->version.begin) l->version = rest;
    if (is(first, ".target") && !l->target.begin) l->target = rest;
    *at = rest.end;
    return true;
}

static void note_word(struct statement *s, struct slice t, int parens) {
    if (is(t, ".extern")) s->linkage = EXTERN, s->word = t;
    if (is(t, ".visible")) s->linkage = STRONG;
    if (is(t, ".weak") || is(t, ".common")) s->linkage = WEAK;
    if (is(t, ".func") || is(t, ".entry")) s->function = true;
    if (!s->name.begin && !parens && *t.begin != '.' && is_word(*t.begin) && !isdigit((unsigned char)*t.begin))
        s->name = t;
}

/* From `at` to the ';' or the '}' of a body that ends a statement. -1: the text ends first. */
static int read_statement(struct statement *s, const char **at, const char *end) {
    int parens = 0, braces = 0;
    bool initial = false;
    for (struct slice t = token(*at, end);; t = token(t.end, end)) {
        if (t.begin == end) return -1;
        if (!s->text.begin) s->text.begin = t.begin;
        s->text.end = *at = t.end;
        if (*t.begin == '(') parens++;
        if (*t.begin == ')') parens--;
        if (*t.begin == '=') initial = true;
        if (*t.begin == '{') braces++;
        if (*t.begin == '}' && --braces <= 0 && !initial) {
            s->defines = true;
            return braces < 0 ? -1 : 0;
        }
        if (*t.begin == ';' && !braces) break;
        if (!braces && !initial) note_word(s, t, parens);
    }
    s->defines = !s->function && s->linkage != EXTERN;
    return 0;
}

static int read_unit(struct link *l, const char *text, size_t bytes, size_t unit) {
    const char *at = text, *end = text + strnlen(text, bytes);
    for (;;) {
        struct slice first = token(at, end);
        if (first.begin == end) return 0;
        if (line_directive(l, first, &at, end)) continue;
        struct statement s = {.unit = unit, .order = l->count};
        if (read_statement(&s, &at, end)) return fail(l, "unfinished statement at", first, unit);
        if (!s.name.begin) continue; /* .section, .pragma: nothing that code refers to */
        struct statement *kept = add(l);
        if (!kept) return fail(l, "no memory for", s.name, unit);
        *kept = s;
    }
}

static int by_name(const void *a, const void *b) {
    const struct statement *x = *(struct statement *const *)a, *y = *(struct statement *const *)b;
    int c = compare(x->name, y->name);
    return c ? c : (x->order > y->order) - (x->order < y->order);
}

/* All statements of one name. */
static int settle(struct link *l, struct statement **group, size_t n) {
    struct statement *definition = NULL, *declaration = NULL, *first_local = NULL;
    bool shared = false;
    for (size_t i = 0; i < n; i++) {
        struct statement *s = group[i];
        if (s->linkage == LOCAL) continue;
        shared = true;
        if (!s->defines) continue;
        if (definition && definition->linkage == STRONG && s->linkage == STRONG)
            return fail(l, "defined twice:", s->name, s->unit);
        if (!definition || (definition->linkage == WEAK && s->linkage == STRONG)) definition = s;
    }
    for (size_t i = 0; i < n; i++) {
        struct statement *s = group[i];
        if (s->linkage == LOCAL) {
            if (!first_local) first_local = s;
            s->renamed = shared || s->unit != first_local->unit;
        } else if (s->defines) {
            s->dropped = s != definition;
        } else {
            s->dropped = declaration || (definition && !s->function);
            if (!s->dropped) declaration = s;
        }
    }
    return 0;
}

static int settle_all(struct link *l) {
    l->by_name = malloc((l->count + 1) * sizeof *l->by_name);
    if (!l->by_name) return -1;
    for (size_t i = 0; i < l->count; i++) l->by_name[i] = &l->all[i];
    qsort(l->by_name, l->count, sizeof *l->by_name, by_name);
    for (size_t i = 0, n; i < l->count; i += n) {
        for (n = 1; i + n < l->count && !compare(l->by_name[i]->name, l->by_name[i + n]->name); n++) {
        }
        if (settle(l, &l->by_name[i], n)) return -1;
    }
    return 0;
}

/* Is `name` one that belongs to `unit` alone and is renamed there? */
static bool renamed(const struct link *l, struct slice name, size_t unit) {
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (compare(l->by_name[mid]->name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < l->count && !compare(l->by_name[low]->name, name); low++)
        if (l->by_name[low]->unit == unit && l->by_name[low]->renamed) return true;
    return false;
}

static void put(struct link *l, const char *s, size_t n) {
    if (l->length + n + 1 > l->out_room) {
        size_t room = (l->length + n + 1) * 2;
        char *more = l->no_memory ? NULL : realloc(l->out, room);
        if (!more) {
            l->no_memory = true;
            return;
        }
        l->out = more;
        l->out_room = room;
    }
    memcpy(l->out + l->length, s, n);
    l->length += n;
    l->out[l->length] = 0;
}

/* A declaration of what another unit defines is no longer .extern. */
static bool defined_here(const struct link *l, const struct statement *s) {
    for (size_t i = 0; i < l->count; i++)
        if (l->all[i].defines && !l->all[i].dropped && l->all[i].linkage != LOCAL && !compare(l->all[i].name, s->name))
            return true;
    return false;
}

static void put_statement(struct link *l, const struct statement *s) {
    char suffix[32];
    int n = snprintf(suffix, sizeof suffix, "$unit%zu", s->unit + 1);
    bool visible = s->linkage == EXTERN && s->function && defined_here(l, s);
    const char *copied = s->text.begin;
    for (struct slice t = token(s->text.begin, s->text.end); t.begin < s->text.end; t = token(t.end, s->text.end)) {
        bool word = is_word(*t.begin) && *t.begin != '.' && !isdigit((unsigned char)*t.begin);
        if (visible && t.begin == s->word.begin) {
            put(l, copied, (size_t)(t.begin - copied));
            put(l, ".visible", 8);
            copied = t.end;
        } else if (word && renamed(l, t, s->unit)) {
            put(l, copied, (size_t)(t.end - copied));
            put(l, suffix, (size_t)n);
            copied = t.end;
        }
    }
    put(l, copied, (size_t)(s->text.end - copied));
    put(l, "\n", 1);
}

/* What is used comes before its use: declarations of functions, variables, bodies. */
static void put_all(struct link *l) {
    put(l, ".version", 8);
    put(l, l->version.begin, (size_t)(l->version.end - l->version.begin));
    put(l, "\n.target", 8);
    put(l, l->target.begin, (size_t)(l->target.end - l->target.begin));
    put(l, "\n.address_size 64\n", 18);
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < l->count; i++) {
            const struct statement *s = &l->all[i];
            int place = !s->function ? 1 : s->defines ? 2 : 0;
            if (!s->dropped && place == pass) put_statement(l, s);
        }
}

int ptx_link(const char *const *texts, const size_t *bytes, size_t count, char **out, size_t *out_bytes, char *err,
             size_t err_len) {
    struct link l = {.err = err, .err_len = err_len};
    int rc = 0;
    snprintf(err, err_len, "no memory");
    for (size_t i = 0; !rc && i < count; i++) rc = read_unit(&l, texts[i], bytes[i], i);
    if (!rc && (!l.version.begin || !l.target.begin)) {
        snprintf(err, err_len, "no .version or no .target");
        rc = -1;
    }
    if (!rc) rc = settle_all(&l);
    if (!rc) put_all(&l);
    if (l.no_memory) rc = -1;
    if (rc)
        free(l.out);
    else
        *out = l.out, *out_bytes = l.length;
    free(l.by_name);
    free(l.all);
    return rc;
}
