/* The half of the emitter that people read: text for a terminal, Markdown. */
#include "analyzer/emitter.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 30
#define LABEL_WIDTH 20

/* ---- numbers ---- */

void emit_human_bytes(char *out, size_t out_len, __int128 bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char digits[41];
    double v = (double)bytes;
    int u = 0;
    while (fabs(v) >= 1024 && u < 6) v /= 1024, u++;
    emit_digits(digits, bytes);
    if (u)
        snprintf(out, out_len, fabs(v) < 1e6 ? "%.2f %s (%s)" : "%.3g %s (%s)", v, units[u], digits);
    else
        snprintf(out, out_len, "%s B", digits);
}

/* Three to four significant digits with a prefix of powers of 1000. */
static void human_si(char *out, size_t out_len, double v, const char *unit) {
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
    int u = 0;
    while (fabs(v) >= 999.95 && u < 8) v /= 1000, u++;
    if (!u && v == floor(v))
        snprintf(out, out_len, "%.0f %s", v, unit);
    else
        snprintf(out, out_len, "%.*f %s%s", fabs(v) < 10 ? 2 : 1, v, prefix[u], unit);
}

static void human_ns(char *out, size_t out_len, double ns) {
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    int u = 0;
    while (u < 3 && fabs(ns) < units[u].ns) u++;
    snprintf(out, out_len, "%.*f %s", u == 3 ? 0 : 3, ns / units[u].ns, units[u].name);
}

void emit_human(char *out, size_t out_len, enum emit_unit unit, double value, int exact) {
    char digits[41];
    if (!isfinite(value)) {
        snprintf(out, out_len, "unknown");
        return;
    }
    switch (unit) {
    case UNIT_BYTES:
        emit_human_bytes(out, out_len, (__int128)value);
        return;
    case UNIT_NS:
        human_ns(out, out_len, value);
        return;
    case UNIT_FLOPS:
        human_si(out, out_len, value, "FLOP");
        break;
    case UNIT_FLOPS_PER_S:
        human_si(out, out_len, value, "FLOP/s");
        return;
    case UNIT_BYTES_PER_S:
        human_si(out, out_len, value, "B/s");
        return;
    case UNIT_SHARE:
        if (fabs(value) < 0.000005 && value != 0) /* not 0.000 % */
            snprintf(out, out_len, "%.2g %%", value * 100);
        else
            snprintf(out, out_len, "%.*f %%", fabs(value) < 0.01 && value != 0 ? 3 : 1, value * 100);
        return;
    case UNIT_NONE:
        snprintf(out, out_len, "%.6g", value);
        return;
    }
    if (exact && fabs(value) < 9007199254740992.0) { /* 2^53: beyond it a double has no exact digits */
        size_t n = strlen(out);
        emit_digits(digits, (__int128)value);
        snprintf(out + n, out_len - n, " (%s)", digits);
    }
}

/* ---- cells ---- */

void emit_cells_clear(struct emit_cells *c) {
    for (size_t i = 0; i < c->n; i++) free(c->text[i]);
    c->n = 0;
}

void emit_cells_add(struct emit_cells *c, const char *text, int right, double amount) {
    size_t bytes = strlen(text) + 1;
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        c->text = emit_alloc(c->text, c->room * sizeof *c->text);
        c->right = emit_alloc(c->right, c->room);
        c->amount = emit_alloc(c->amount, c->room * sizeof *c->amount);
    }
    c->text[c->n] = memcpy(emit_alloc(NULL, bytes), text, bytes);
    c->right[c->n] = (char)right;
    c->amount[c->n++] = amount;
}

/* Columns on a terminal: every byte that does not continue a UTF-8 sequence. */
static int width(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Text without control characters, which would break lines and terminals; Markdown's bar escaped. */
static void put_clean(const struct emitter *e, const char *s) {
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            fputs(*s == '\n' ? "\\n" : *s == '\t' ? "\\t" : "?", e->file);
        else if (*s == '|' && e->format == EMIT_MARKDOWN)
            fputs("\\|", e->file);
        else
            fputc(*s, e->file);
    }
}

static void put_padded(const struct emitter *e, const char *s, int columns, int right, int last) {
    int gap = columns - width(s);
    if (right && gap > 0) fprintf(e->file, "%*s", gap, "");
    put_clean(e, s);
    if (!right && gap > 0 && !last) fprintf(e->file, "%*s", gap, "");
}

/* ---- tables ---- */

static void put_row(const struct emitter *e, char **text, const int *widths, const char *right) {
    for (size_t c = 0; c < e->columns; c++) {
        if (e->format == EMIT_MARKDOWN) {
            fputs("| ", e->file);
            put_clean(e, text[c]);
            fputc(' ', e->file);
        } else {
            fputs("  ", e->file);
            put_padded(e, text[c], widths[c], right[c], c + 1 == e->columns);
        }
    }
    fputs(e->format == EMIT_MARKDOWN ? "|\n" : "\n", e->file);
}

/* A column is set right if it holds numbers (or nothing known) in all rows and at least one. */
static void measure(const struct emitter *e, size_t rows, int *widths, char *right) {
    for (size_t c = 0; c < e->columns; c++) {
        widths[c] = width(e->head.text[c]);
        right[c] = rows > 0;
        for (size_t r = 0; r < rows; r++) {
            size_t i = r * e->columns + c;
            int w = width(e->cells.text[i]);
            if (w > widths[c]) widths[c] = w;
            if (!e->cells.right[i]) right[c] = 0;
        }
    }
}

/* Markdown is UTF-8; a terminal is what the locale says. */
static int may_use_unicode(const struct emitter *e) {
    return e->format == EMIT_MARKDOWN || !strcmp(nl_langinfo(CODESET), "UTF-8");
}

static void put_table(struct emitter *e) {
    size_t rows = e->columns ? e->cells.n / e->columns : 0, limit = (size_t)e->table_limit;
    int *widths = emit_alloc(NULL, (e->columns + 1) * sizeof *widths);
    char *right = emit_alloc(NULL, e->columns + 1);
    measure(e, rows, widths, right);
    if (e->columns) put_row(e, e->head.text, widths, right);
    if (e->format == EMIT_MARKDOWN && e->columns) {
        for (size_t c = 0; c < e->columns; c++) fputs(right[c] ? "| ---: " : "| --- ", e->file);
        fputs("|\n", e->file);
    }
    for (size_t r = 0; r < rows; r++) {
        if (limit && rows > limit && r == limit / 2) {
            size_t left_out = rows - limit;
            if (e->format == EMIT_MARKDOWN)
                fprintf(e->file, "| … %zu more |\n", left_out);
            else
                fprintf(e->file, "  %s %zu more\n", may_use_unicode(e) ? "…" : "...", left_out);
            r += left_out;
        }
        put_row(e, e->cells.text + r * e->columns, widths, right);
    }
    free(widths);
    free(right);
}

/* ---- bars, lines, fields ---- */

static void put_bar(const struct emitter *e, double share) {
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)lround(share * BAR_WIDTH * 8);
    if (!may_use_unicode(e)) {
        for (; eighths >= 4; eighths -= 8) fputc('#', e->file);
        return;
    }
    for (; eighths >= 8; eighths -= 8) fputs("█", e->file);
    fputs(part[eighths > 0 ? eighths : 0], e->file);
}

static void put_bars(struct emitter *e) {
    double sum = 0;
    int wide = 0;
    for (size_t i = 0; i < e->cells.n; i++) {
        sum += e->cells.amount[i];
        if (width(e->cells.text[i]) > wide) wide = width(e->cells.text[i]);
    }
    if (e->format == EMIT_MARKDOWN) fputs("| class | amount | share | |\n| --- | ---: | ---: | --- |\n", e->file);
    for (size_t i = 0; i < e->cells.n; i++) {
        double share = sum > 0 ? e->cells.amount[i] / sum : 0;
        char percent[32] = "";
        if (e->cells.amount[i] == 0 && i + 1 < e->cells.n) continue;
        if (sum > 0) snprintf(percent, sizeof percent, "%.1f %%", share * 100);
        if (e->format == EMIT_MARKDOWN) {
            fprintf(e->file, "| %s | %s | %s | ", e->head.text[i], e->cells.text[i], percent);
            put_bar(e, share);
            fputs(" |\n", e->file);
        } else {
            fprintf(e->file, "  %-*s ", LABEL_WIDTH, e->head.text[i]);
            put_padded(e, e->cells.text[i], wide, 1, 0);
            fprintf(e->file, "  %7s%s", percent, share > 0 ? "  " : "");
            put_bar(e, share);
            fputc('\n', e->file);
        }
    }
}

static void put_field(struct emitter *e, const char *label, const char *text) {
    if (e->format == EMIT_MARKDOWN) {
        if (!e->fields_open) fputs("| | |\n| --- | --- |\n", e->file);
        e->fields_open = 1;
        fprintf(e->file, "| %s | ", label);
        put_clean(e, text);
        fputs(" |\n", e->file);
        return;
    }
    fprintf(e->file, "  %s%*s ", label, LABEL_WIDTH - width(label) > 0 ? LABEL_WIDTH - width(label) : 0, "");
    put_clean(e, text);
    fputc('\n', e->file);
}

static void put_inline(struct emitter *e) {
    char line[1024];
    size_t n = 0;
    for (size_t i = 0; i < e->cells.n && n < sizeof line; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s %s", i ? ", " : "", e->head.text[i], e->cells.text[i]);
    if (!e->cells.n) snprintf(line, sizeof line, "unknown");
    emit_cells_clear(&e->head);
    emit_cells_clear(&e->cells);
    put_field(e, e->inline_label, line);
}

/* ---- what emitter.c calls ---- */

static int hidden(const struct emitter *e) {
    for (int i = 0; i < e->depth; i++)
        if (e->level[i].look == LOOK_HIDDEN) return 1;
    return 0;
}

static void heading(struct emitter *e, const char *label) {
    if (e->sections++ || e->fields_open) fputc('\n', e->file); /* fields above the first heading */
    e->fields_open = 0;
    fputs(e->format == EMIT_MARKDOWN ? "## " : "", e->file);
    put_clean(e, label);
    fputs(e->format == EMIT_MARKDOWN ? "\n\n" : "\n", e->file);
}

void emit_people_open(struct emitter *e, const char *label, enum emit_look look, int list) {
    (void)list;
    if (look == LOOK_HIDDEN || hidden(e) || e->collecting) return;
    if (look == LOOK_INLINE) {
        snprintf(e->inline_label, sizeof e->inline_label, "%s", label ? label : "");
    } else if (label) {
        heading(e, label);
    }
    if (look == LOOK_TABLE || look == LOOK_BARS || look == LOOK_INLINE) {
        e->collecting = 1;
        e->columns = 0;
        e->head_done = 0;
        emit_cells_clear(&e->head);
        emit_cells_clear(&e->cells);
    }
}

void emit_people_close(struct emitter *e, const struct emit_level *closed) {
    enum emit_look look = closed->look;
    if (e->collecting && e->depth && e->level[e->depth - 1].look == LOOK_TABLE && !e->head_done) {
        e->head_done = 1; /* the first row is complete: its labels are the columns */
        e->columns = e->head.n;
    }
    if (hidden(e) || look == LOOK_HIDDEN || look == LOOK_FIELDS || look == LOOK_LINES) return;
    for (int i = 0; i < e->depth; i++) /* inside a table's row */
        if (e->level[i].look == LOOK_TABLE) return;
    e->collecting = 0;
    if (e->format == EMIT_MARKDOWN && e->fields_open && look != LOOK_INLINE)
        fputc('\n', e->file); /* ends the table above */
    if (look == LOOK_TABLE) put_table(e);
    if (look == LOOK_BARS) put_bars(e);
    if (look == LOOK_INLINE) put_inline(e);
    if (e->format == EMIT_MARKDOWN && look != LOOK_INLINE) fputc('\n', e->file);
    if (look != LOOK_INLINE) e->fields_open = 0;
    emit_cells_clear(&e->head);
    emit_cells_clear(&e->cells);
}

void emit_people_value(struct emitter *e, const char *label, const char *text, int known, int right, double amount) {
    enum emit_look look = e->depth ? e->level[e->depth - 1].look : LOOK_FIELDS;
    if (hidden(e) || !label) return;
    if (look == LOOK_LINES) {
        fputs(e->format == EMIT_MARKDOWN ? "- " : "  ", e->file);
        put_clean(e, text);
        fputc('\n', e->file);
    } else if (!e->collecting) {
        put_field(e, label, text);
    } else if (look == LOOK_BARS || look == LOOK_INLINE) {
        if (look == LOOK_INLINE && !known) return;
        emit_cells_add(&e->head, label, 0, 0);
        emit_cells_add(&e->cells, text, right, amount);
    } else {
        if (!e->head_done) emit_cells_add(&e->head, label, 0, 0);
        emit_cells_add(&e->cells, text, right, amount);
    }
}
