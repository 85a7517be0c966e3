/* One sequence of calls prints a document as text, Markdown, JSON or CSV, so that the formats cannot drift apart.
 *
 * A value has a key (for JSON and CSV; NULL: not for machines) and a label (for text and Markdown; NULL: not for
 * people). Elements of a list take the key "". What is not known is emitted as such: null, an empty CSV field, the word
 * "unknown". Not thread safe. Write errors are left in the FILE (ferror). Memory exhausted ends the process with one
 * line. */
#ifndef ACCT_ANALYZER_EMITTER_H
#define ACCT_ANALYZER_EMITTER_H

#include <stdio.h>

#define EMIT_DEPTH 12

enum emit_format { EMIT_TEXT, EMIT_MARKDOWN, EMIT_JSON, EMIT_CSV };

/* What a number is; people see it scaled. */
enum emit_unit {
    UNIT_NONE,
    UNIT_BYTES,
    UNIT_NS,
    UNIT_FLOPS,
    UNIT_FLOPS_PER_S,
    UNIT_BYTES_PER_S, /* by powers of 1000, as vendors give bandwidths */
    UNIT_SHARE        /* of 1, shown in percent */
};

/* How people see an object or a list; machines see its content whatever the look. */
enum emit_look {
    LOOK_FIELDS, /* a heading if it has a label, then a line a value */
    LOOK_TABLE,  /* list of objects: a row each; columns are the labels of the first */
    LOOK_BARS,   /* object of amounts: a line with a bar each; those of 0 are left out but for the last */
    LOOK_INLINE, /* object: one line, unknown values left out */
    LOOK_LINES,  /* list of texts: a line each */
    LOOK_HIDDEN, /* not for people */
};

struct emit_level {
    enum emit_look look;
    int list, machine; /* machine: seen by JSON and CSV */
    long count;        /* of values already in it, for machines */
    size_t path;       /* length of the CSV path before it */
};

struct emit_cells {
    char **text;
    char *right; /* 1: a number */
    double *amount;
    size_t n, room;
};

struct emitter {
    FILE *file;
    enum emit_format format;
    const char *null_word; /* what people see where a value is not known */
    long table_limit;      /* most rows of a text table; the middle is left out; 0: no limit */
    int depth;
    struct emit_level level[EMIT_DEPTH];
    char path[512];
    /* people: a table, bars or a line under construction */
    struct emit_cells head, cells;
    size_t columns;
    int fields_open, collecting, head_done, sections;
    char inline_label[64];
};

void emit_begin(struct emitter *e, FILE *file, enum emit_format format);
int emit_for_people(const struct emitter *e); /* text or Markdown: no values without a label, long tables cut */
/* Frees what is left; closes the document. */
void emit_finish(struct emitter *e);

void emit_object(struct emitter *e, const char *key, const char *label, enum emit_look look);
void emit_list(struct emitter *e, const char *key, const char *label, enum emit_look look);
void emit_end(struct emitter *e);

void emit_int(struct emitter *e, const char *key, const char *label, enum emit_unit unit, __int128 value);
/* An amount of which two bounds are known, or an estimate; machines have `key` (the least) and `key`_most. */
enum emit_certainty {
    EMIT_EXACT,
    EMIT_ABOUT,
    EMIT_BETWEEN,
    EMIT_AT_LEAST,     /* no upper bound: `key`_most is null, here … */
    EMIT_ABOUT_OR_MORE /* … and here */
};
void emit_range(struct emitter *e, const char *key, const char *label, enum emit_unit unit, enum emit_certainty how,
                __int128 least, __int128 most);
void emit_real(struct emitter *e, const char *key, const char *label, enum emit_unit unit,
               double value);                                                             /* NaN: not known */
void emit_text(struct emitter *e, const char *key, const char *label, const char *value); /* NULL: not known */
void emit_bool(struct emitter *e, const char *key, const char *label, int value);
void emit_null(struct emitter *e, const char *key, const char *label);

/* Columns of the table just opened, for one that may have no row. In CSV only where the document is that table. */
void emit_columns(struct emitter *e, int n, const char *const *labels);

/* The exact decimal digits of value, at most 40 characters and a NUL. */
void emit_digits(char out[41], __int128 value);
/* A number as people read it: `1.50 GiB (1610612736)`, `3.21 ms`, `71.3 MFLOP`, `24.1 %`. exact: digits beside a scaled
 * amount, where the double has them. */
void emit_human(char *out, size_t out_len, enum emit_unit unit, double value, int exact);
void emit_human_bytes(char *out, size_t out_len, __int128 bytes);

/* Shared by the two halves of the emitter; not for others. */
void emit_people_open(struct emitter *e, const char *label, enum emit_look look, int list);
void emit_people_close(struct emitter *e, const struct emit_level *closed);
void emit_people_value(struct emitter *e, const char *label, const char *text, int known, int right, double amount);
void emit_cells_clear(struct emit_cells *c);
void emit_cells_add(struct emit_cells *c, const char *text, int right, double amount);
void *emit_alloc(void *old, size_t bytes);

#endif
