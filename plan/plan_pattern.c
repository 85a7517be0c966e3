/* Reading of the notation. Sizes are in plan_pattern_bind.c. */
#include "plan/plan_pattern.h"

#include "plan/plan_number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct plan_pattern *p;
    enum plan_notation notation;
    char *err;
    size_t err_len;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reader *r, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->err, r->err_len, format, ap);
    va_end(ap);
    return -1;
}

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_name(char c) {
    return is_letter(c) || c == '_' || (c >= '0' && c <= '9');
}

/* ---- axes ---- */

static int find_axis(const struct plan_pattern *p, const char *name, size_t length) {
    for (int i = 0; i < p->axes; i++)
        if (strlen(p->axis[i].name) == length && !strncmp(p->axis[i].name, name, length)) return i;
    return -1;
}

static int take_axis(const struct reader *r, int of_result, const char *name, size_t length) {
    struct plan_pattern *p = r->p;
    int i = find_axis(p, name, length);
    if (i >= 0) return i;
    if (of_result)
        return refuse(r, "axis '%.*s' is in the result, but in no operand", (int)(length < 40 ? length : 40), name);
    if (length >= PLAN_NAME) return refuse(r, "axis '%.20s...': at most %d characters", name, PLAN_NAME - 1);
    if (p->axes == PLAN_AXES) return refuse(r, "more than %d axes", PLAN_AXES);
    memcpy(p->axis[p->axes].name, name, length);
    p->axis[p->axes].name[length] = 0;
    p->axis[p->axes].size = -1;
    return p->axes++;
}

/* ---- one term ---- */

/* An axis may stand twice only in an operand of an einsum. */
static int add_item(const struct reader *r, struct plan_term *t, int of_result, int axis) {
    for (int i = 0; i < t->n; i++) {
        if (t->item[i].axis != axis) continue;
        if (axis == PLAN_ELLIPSIS) return refuse(r, "'...' stands twice in one term");
        if (of_result || r->notation != PLAN_EINSUM)
            return refuse(r, "axis '%s' stands twice in %s", r->p->axis[axis].name,
                          of_result ? "the result" : "the operand");
    }
    if (t->n == PLAN_DIMS || t->dims == PLAN_DIMS) return refuse(r, "more than %d dimensions", PLAN_DIMS);
    t->item[t->n].axis = axis;
    t->item[t->n++].dim = t->dims;
    return 0;
}

static int add_bracket(const struct reader *r, struct plan_term *t, char bracket, int *open) {
    if (r->notation == PLAN_EINSUM) return refuse(r, "( ) is for rearrange and reduce, not for einsum");
    if ((bracket == '(') == *open) return refuse(r, *open ? "( within ( )" : ") without (");
    if (t->dims == PLAN_DIMS) return refuse(r, "more than %d dimensions", PLAN_DIMS);
    *open = bracket == '(';
    t->dims += bracket == ')';
    return 0;
}

/* The axis, `...` or 1 at *at; *at moves behind it. */
static int read_item(const struct reader *r, struct plan_term *t, int of_result, int open, const char **at,
                     const char *end) {
    const char *p = *at;
    size_t length = 1;
    int axis = PLAN_ELLIPSIS;
    if (*p == '.') {
        if (end - p < 3 || strncmp(p, "...", 3))
            return refuse(r, "'%.*s': three dots stand for any axes", (int)(end - p), p);
        length = 3;
    } else if (!is_name(*p)) {
        return refuse(r, "'%c' is no part of a pattern", *p);
    } else {
        while (!r->p->letters && p + length < end && is_name(p[length])) length++;
        *at = p + length;
        if (length == 1 && *p == '1') {
            if (r->notation == PLAN_EINSUM)
                return refuse(r, "1 is for rearrange and reduce; in einsum give the axis a name");
            if (t->dims == PLAN_DIMS) return refuse(r, "more than %d dimensions", PLAN_DIMS);
            t->dims += !open;
            return 0;
        }
        if (*p >= '0' && *p <= '9') return refuse(r, "'%.*s' is no axis: names begin with a letter", (int)length, p);
        if ((axis = take_axis(r, of_result, p, length)) < 0) return -1;
    }
    *at = p + length;
    if (add_item(r, t, of_result, axis)) return -1;
    if (axis == PLAN_ELLIPSIS) t->ellipsis = open ? 2 : 1;
    t->dims += !open;
    return 0;
}

static int read_term(const struct reader *r, struct plan_term *t, int of_result, const char *p, const char *end) {
    int open = 0;
    memset(t, 0, sizeof *t);
    t->rank = -1;
    while (p < end) {
        if (*p == ' ' || *p == '\t') {
            p++;
        } else if (*p == '(' || *p == ')') {
            if (add_bracket(r, t, *p++, &open)) return -1;
        } else if (read_item(r, t, of_result, open, &p, end)) {
            return -1;
        }
    }
    return open ? refuse(r, "( without )") : 0;
}

/* ---- the whole ---- */

/* Nothing but letters and dots in each term, with blanks only round it. */
static int looks_like_letters(const char *text) {
    int seen = 0, blank = 0;
    for (const char *p = text; *p; p++) {
        if (*p == ',' || !strncmp(p, "->", 2)) {
            seen = blank = 0;
            p += *p == '-';
        } else if (*p == ' ' || *p == '\t') {
            blank = seen;
        } else if ((!is_letter(*p) && *p != '.') || blank) {
            return 0;
        } else {
            seen = 1;
        }
    }
    return 1;
}

/* numpy's rule for an einsum without ->: `...`, then the letters that stand once, in alphabetical order. */
static int add_implied_result(const struct reader *r) {
    struct plan_pattern *p = r->p;
    int count[128] = {0}, dots = 0;
    memset(&p->result, 0, sizeof p->result);
    p->result.rank = -1;
    for (int o = 0; o < p->operands; o++) {
        dots |= p->operand[o].ellipsis != 0;
        for (int i = 0; i < p->operand[o].n; i++)
            if (p->operand[o].item[i].axis >= 0) count[(int)p->axis[p->operand[o].item[i].axis].name[0]]++;
    }
    if (dots && add_item(r, &p->result, 1, PLAN_ELLIPSIS)) return -1;
    p->result.ellipsis = dots;
    p->result.dims += dots;
    for (int c = 'A'; c <= 'z'; c++) {
        char name[2] = {(char)c, 0};
        if (count[c] != 1) continue;
        if (add_item(r, &p->result, 1, find_axis(p, name, 1))) return -1;
        p->result.dims++;
    }
    return 0;
}

static int has_axis(const struct plan_term *t, int axis) {
    for (int i = 0; i < t->n; i++)
        if (t->item[i].axis == axis) return 1;
    return 0;
}

static int check_result(const struct reader *r) {
    const struct plan_pattern *p = r->p;
    const struct plan_term *from = &p->operand[0], *to = &p->result;
    int dots = 0;
    for (int o = 0; o < p->operands; o++) dots |= p->operand[o].ellipsis != 0;
    if (to->ellipsis && !dots) return refuse(r, "'...' is in the result, but in no operand");
    for (int i = 0; i < from->n && r->notation == PLAN_REARRANGE; i++) {
        int axis = from->item[i].axis;
        if (!has_axis(to, axis))
            return refuse(r, "axis '%s' is not in the result; rearrange keeps all axes, reduce drops some",
                          axis == PLAN_ELLIPSIS ? "..." : p->axis[axis].name);
    }
    return 0;
}

int plan_pattern_parse(const char *text, enum plan_notation notation, int words, struct plan_pattern *out, char *err,
                       size_t err_len) {
    struct reader r = {out, notation, err, err_len};
    const char *arrow = strstr(text, "->"), *end = arrow ? arrow : text + strlen(text);
    memset(out, 0, sizeof *out);
    out->hidden = out->hidden_n = -1;
    out->letters = notation == PLAN_EINSUM && !words && looks_like_letters(text);
    if (arrow && strstr(arrow + 2, "->")) return refuse(&r, "'%.60s': more than one ->", text);
    if (!arrow && !out->letters)
        return refuse(&r, "'%.60s': no -> to the result%s", text,
                      *text && text[strlen(text) - 1] == '-' ? "; quote the pattern, the shell takes >" : "");
    if (arrow && strchr(arrow, ',')) return refuse(&r, "'%.60s': more than one result", text);
    for (const char *p = text;;) {
        size_t length = strcspn(p, ",");
        const char *stop = p + length < end ? p + length : end;
        if (out->operands == PLAN_OPERANDS) return refuse(&r, "more than %d operands", PLAN_OPERANDS);
        if (read_term(&r, &out->operand[out->operands++], 0, p, stop)) return -1;
        if (stop == end) break;
        p = stop + 1;
    }
    if (notation != PLAN_EINSUM && out->operands != 1) return refuse(&r, "'%.60s': one operand, without a comma", text);
    if (arrow ? read_term(&r, &out->result, 1, end + 2, text + strlen(text)) : add_implied_result(&r)) return -1;
    return check_result(&r);
}

/* ---- back to text ---- */

static void put(char *out, size_t room, const char *text) {
    size_t n = strlen(out);
    snprintf(out + n, room - n, "%s", text);
}

static void put_axis(const struct plan_pattern *p, int axis, char *out, size_t room) {
    if (*out && !p->letters && out[strlen(out) - 1] != '(') put(out, room, " ");
    put(out, room, axis == PLAN_ELLIPSIS ? "..." : p->axis[axis].name);
}

void plan_set_text(const struct plan_pattern *p, plan_set axes, char *out, size_t room) {
    *out = 0;
    for (; axes; axes &= axes - 1) put_axis(p, plan_set_first(axes), out, room);
}

void plan_term_text(const struct plan_pattern *p, const struct plan_term *t, char *out, size_t room) {
    *out = 0;
    for (int d = 0; d < t->dims; d++) {
        int n = plan_term_items(t, d);
        if (!n) put(out, room, *out ? " 1" : "1");
        if (n > 1) put(out, room, *out ? " (" : "(");
        for (int i = 0; i < t->n; i++)
            if (t->item[i].dim == d) put_axis(p, t->item[i].axis, out, room);
        if (n > 1) put(out, room, ")");
    }
}
