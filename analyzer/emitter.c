/* The emitter: the calls, JSON and CSV. Text and Markdown are in emitter_people.c. */
#include "analyzer/emitter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int emit_for_people(const struct emitter *e) {
    return e->format == EMIT_TEXT || e->format == EMIT_MARKDOWN;
}

void *emit_alloc(void *old, size_t bytes) {
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) {
        fputs("acct: out of memory while printing\n", stderr);
        exit(1);
    }
    return p;
}

void emit_digits(char out[41], __int128 value) {
    char reversed[41];
    int n = 0, k = 0;
    unsigned __int128 u = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    do reversed[n++] = (char)('0' + (int)(u % 10));
    while ((u /= 10) != 0);
    if (value < 0) out[k++] = '-';
    while (n) out[k++] = reversed[--n];
    out[k] = 0;
}

/* Length of the valid UTF-8 sequence at p (shortest form, no surrogates), 0 if there is none. */
static int utf8_length(const unsigned char *p) {
    unsigned long c;
    int n = p[0] < 0x80                   ? 1
            : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
            : (p[0] & 0xf0) == 0xe0       ? 3
            : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                          : 0;
    if (n < 2) return n;
    c = p[0] & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) || (n == 4 && (c < 0x10000 || c > 0x10ffff))) return 0;
    return n;
}

static void json_string(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = utf8_length(p);
        if (!n) {
            fputs("\\ufffd", f);
            p++;
        } else if (n == 1 && (*p < 0x20 || *p == 0x7f)) {
            fprintf(f, "\\u%04x", *p++);
        } else {
            if (*p == '"' || *p == '\\') fputc('\\', f);
            fwrite(p, 1, (size_t)n, f);
            p += n;
        }
    }
    fputc('"', f);
}

static void csv_field(FILE *f, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static int csv_is_table(const struct emitter *e) {
    return e->level[0].list && e->level[0].look == LOOK_TABLE;
}

/* Seen by machines at this place? */
static int machine_here(const struct emitter *e, const char *key) {
    return key && (e->depth == 0 || e->level[e->depth - 1].machine);
}

/* Levels whose values get lines of their own in JSON: the sections of a report, the rows of a table. */
static int json_lines(const struct emitter *e) {
    if (!e->level[0].list) return 2;
    return e->level[0].look == LOOK_TABLE ? 1 : 3;
}

/* Comma, line break, key: what stands before a JSON value or container. */
static void json_before(struct emitter *e, const char *key) {
    struct emit_level *up;
    if (!e->depth) return;
    up = &e->level[e->depth - 1];
    if (up->count) fputc(',', e->file);
    if (e->depth <= json_lines(e))
        fprintf(e->file, "\n%*s", e->depth, "");
    else if (up->count)
        fputc(' ', e->file);
    up->count++;
    if (!up->list) {
        json_string(e->file, key);
        fputs(": ", e->file);
    }
}

/* Appends a step to the CSV path; returns the length before it. */
static size_t csv_push(struct emitter *e, const char *key) {
    size_t n = strlen(e->path);
    struct emit_level *up = e->depth ? &e->level[e->depth - 1] : NULL;
    if (!up) return n;
    if (up->list)
        snprintf(e->path + n, sizeof e->path - n, "[%ld]", up->count);
    else
        snprintf(e->path + n, sizeof e->path - n, "%s%s", n ? "." : "", key);
    up->count++;
    return n;
}

static const char *unit_name(enum emit_unit unit) {
    static const char *const names[] = {"", "bytes", "ns", "FLOPs", "FLOP/s", "bytes/s", "share"};
    return names[unit];
}

static void csv_value(struct emitter *e, const char *key, const char *text, enum emit_unit unit) {
    if (csv_is_table(e)) {
        struct emit_level *up = &e->level[e->depth - 1];
        if (up->count++) fputc(',', e->file);
        csv_field(e->file, text);
        return;
    }
    size_t n = csv_push(e, key);
    csv_field(e->file, e->path);
    fputc(',', e->file);
    csv_field(e->file, text);
    fprintf(e->file, ",%s\n", unit_name(unit));
    e->path[n] = 0;
}

static void open_level(struct emitter *e, const char *key, const char *label, enum emit_look look, int list) {
    struct emit_level l = {.look = look, .list = list, .machine = machine_here(e, key), .path = strlen(e->path)};
    if (e->depth >= EMIT_DEPTH) abort(); /* the documents have a fixed, small depth */
    if (e->format == EMIT_JSON && l.machine) {
        json_before(e, key);
        fputc(list ? '[' : '{', e->file);
    } else if (e->format == EMIT_CSV && l.machine && !csv_is_table(e)) {
        l.path = csv_push(e, key);
    }
    if (emit_for_people(e)) emit_people_open(e, label, look, list);
    e->level[e->depth++] = l;
}

void emit_begin(struct emitter *e, FILE *file, enum emit_format format) {
    memset(e, 0, sizeof *e);
    e->file = file;
    e->format = format;
    e->null_word = "unknown";
}

void emit_finish(struct emitter *e) {
    while (e->depth) emit_end(e);
    if (e->format == EMIT_JSON && e->level[0].machine) fputc('\n', e->file); /* a document was begun */
    emit_cells_clear(&e->head);
    emit_cells_clear(&e->cells);
    free(e->head.text), free(e->head.right), free(e->head.amount);
    free(e->cells.text), free(e->cells.right), free(e->cells.amount);
}

void emit_object(struct emitter *e, const char *key, const char *label, enum emit_look look) {
    int first = e->depth == 0;
    open_level(e, key, label, look, 0);
    if (first && e->format == EMIT_CSV) fputs("path,value,unit\n", e->file);
}

void emit_list(struct emitter *e, const char *key, const char *label, enum emit_look look) {
    int first = e->depth == 0;
    open_level(e, key, label, look, 1);
    if (first && e->format == EMIT_CSV && look != LOOK_TABLE) fputs("path,value,unit\n", e->file);
}

void emit_end(struct emitter *e) {
    struct emit_level l = e->level[--e->depth];
    if (e->format == EMIT_JSON && l.machine) {
        if (l.count && e->depth < json_lines(e)) fprintf(e->file, "\n%*s", e->depth, "");
        fputc(l.list ? ']' : '}', e->file);
    } else if (e->format == EMIT_CSV && l.machine) {
        if (!csv_is_table(e))
            e->path[l.path] = 0;
        else if (e->depth == 1)
            fputc('\n', e->file);
    }
    if (emit_for_people(e)) emit_people_close(e, &l);
}

/* raw: as JSON has it; text: its plain form. */
static void machine_value(struct emitter *e, const char *key, const char *text, int quoted, int known,
                          enum emit_unit unit) {
    if (!machine_here(e, key)) return;
    if (e->format == EMIT_CSV) {
        csv_value(e, key, known ? text : "", unit);
        return;
    }
    json_before(e, key);
    if (!known)
        fputs("null", e->file);
    else if (quoted)
        json_string(e->file, text);
    else
        fputs(text, e->file);
}

void emit_int(struct emitter *e, const char *key, const char *label, enum emit_unit unit, __int128 value) {
    char digits[41], human[96];
    emit_digits(digits, value);
    if (!emit_for_people(e)) {
        machine_value(e, key, digits, 0, 1, unit);
        return;
    }
    if (unit == UNIT_NONE)
        snprintf(human, sizeof human, "%s", digits);
    else if (unit == UNIT_BYTES)
        emit_human_bytes(human, sizeof human, value);
    else
        emit_human(human, sizeof human, unit, (double)value, 0);
    if (unit == UNIT_FLOPS && !e->collecting) {
        size_t n = strlen(human);
        snprintf(human + n, sizeof human - n, " (%s)", digits);
    }
    emit_people_value(e, label, human, 1, 1, (double)value);
}

/* Bounds that people would read as the same number are one: all of its digits are known. */
static void range_words(const struct emitter *e, char *out, size_t room, enum emit_unit unit, enum emit_certainty how,
                        __int128 least, __int128 most) {
    char low[96], high[96];
    int exact = !e->collecting;
    if (unit == UNIT_BYTES) {
        emit_human_bytes(low, sizeof low, least);
        emit_human_bytes(high, sizeof high, most);
    } else {
        emit_human(low, sizeof low, unit, (double)least, exact);
        emit_human(high, sizeof high, unit, (double)most, exact);
    }
    if (how == EMIT_ABOUT)
        snprintf(out, room, "about %s", low);
    else if (how == EMIT_ABOUT_OR_MORE)
        snprintf(out, room, "about %s or more", low);
    else if (how == EMIT_AT_LEAST)
        snprintf(out, room, "at least %s", low);
    else if (how == EMIT_BETWEEN && strcmp(low, high))
        snprintf(out, room, exact ? "at least %s, at most %s" : "%s to %s", low, high);
    else
        snprintf(out, room, "%s", low);
}

void emit_range(struct emitter *e, const char *key, const char *label, enum emit_unit unit, enum emit_certainty how,
                __int128 least, __int128 most) {
    char text[256];
    if (how == EMIT_EXACT) {
        emit_int(e, key, label, unit, least);
    } else if (emit_for_people(e)) {
        range_words(e, text, sizeof text, unit, how, least, most);
        emit_people_value(e, label, text, 1, 1, (double)least);
    } else {
        emit_int(e, key, NULL, unit, least);
    }
    if (emit_for_people(e) || !key) return;
    snprintf(text, sizeof text, "%s_most", key);
    if (how == EMIT_AT_LEAST || how == EMIT_ABOUT_OR_MORE)
        emit_null(e, text, NULL);
    else
        emit_int(e, text, NULL, unit, how == EMIT_EXACT ? least : most);
}

void emit_real(struct emitter *e, const char *key, const char *label, enum emit_unit unit, double value) {
    char text[96];
    if (!isfinite(value)) {
        emit_null(e, key, label);
    } else if (!emit_for_people(e)) {
        for (int digits = 15; digits <= 17; digits++) { /* the shortest that reads back as the same number */
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        machine_value(e, key, text, 0, 1, unit);
    } else {
        emit_human(text, sizeof text, unit, value, 0);
        emit_people_value(e, label, text, 1, 1, value);
    }
}

void emit_text(struct emitter *e, const char *key, const char *label, const char *value) {
    if (!value)
        emit_null(e, key, label);
    else if (emit_for_people(e))
        emit_people_value(e, label, value, 1, 0, 0);
    else
        machine_value(e, key, value, 1, 1, UNIT_NONE);
}

void emit_bool(struct emitter *e, const char *key, const char *label, int value) {
    if (emit_for_people(e))
        emit_people_value(e, label, value ? "yes" : "no", 1, 0, 0);
    else
        machine_value(e, key, value ? "true" : "false", 0, 1, UNIT_NONE);
}

void emit_null(struct emitter *e, const char *key, const char *label) {
    if (emit_for_people(e))
        emit_people_value(e, label, e->null_word, 0, 1, 0);
    else
        machine_value(e, key, "", 0, 0, UNIT_NONE);
}

void emit_columns(struct emitter *e, int n, const char *const *labels) {
    for (int i = 0; i < n; i++) {
        if (emit_for_people(e)) {
            emit_cells_add(&e->head, labels[i], 0, 0);
        } else if (e->format == EMIT_CSV && csv_is_table(e)) {
            if (i) fputc(',', e->file);
            csv_field(e->file, labels[i]);
        }
    }
    e->columns = (size_t)n;
    e->head_done = 1;
    if (e->format == EMIT_CSV && csv_is_table(e)) fputc('\n', e->file);
}
