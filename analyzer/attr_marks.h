/* Markers: ranges of time that the program named (NVTX, acct.h). Where they tell steps or phases they win over the
 * rules; where there are none the rules do the rest. Times are ns of CLOCK_MONOTONIC. Memory is the analysis' pool; out
 * of memory leaves by longjmp. One thread. */
#ifndef ACCT_ANALYZER_ATTR_MARKS_H
#define ACCT_ANALYZER_ATTR_MARKS_H

#include "analyzer/attr_model.h"

/* What a name says. */
enum named {
    NAMED_NOTHING,
    NAMED_STEP,
    NAMED_FORWARD,
    NAMED_BACKWARD,
    NAMED_OPTIMIZER,
    NAMED_EVALUATION,
    NAMED_RECOMPUTE,
    NAMED_KINDS
};

/* By the name's words, whatever their case, punctuation and numbers: `ProfilerStep#12`, `iteration 3`, `fwd`,
 * `optimizer.step`, `Optimizer.step#AdamW.step`. `plain` (may be NULL): the name's only word is "step", as DeepSpeed
 * calls its optimizer. A name that only contains such a word (`layer3.forward`, `Optimizer.zero_grad`) says nothing. */
enum named mark_named(const char *name, int *plain);

/* The name without its numbers, as a note shows it: `ProfilerStep#N`. */
void mark_general_name(const char *name, char *out, size_t room);

struct mark {
    int64_t start_ns, end_ns; /* of one that never ended: what it was taken to */
    int64_t thread;           /* -1: none is known */
    int32_t text;             /* in mark_set.text */
    int8_t named;             /* enum named */
    int8_t by;                /* enum at_found_by */
    uint8_t open;             /* it never ended */
    uint8_t plain;
};

struct mark_set {
    struct mark *mark;
    int32_t marks, room; /* by start; of two that start together the longer first */
    char (*text)[64];    /* general names, each once */
    int32_t texts, text_room;
    int32_t never_ended, overlapping, of_other_threads; /* for the notes */
    int8_t step_is_optimizer;
    struct at_map index; /* hash of a general name: its number in `text`, + 1 */
};

/* Reads those that say something. 0 (also where the table is not there), or -1 with one line in err. */
int marks_read(struct mark_set *s, struct pool *pool, sqlite3 *db, char *err, size_t err_len);

/* Lets markers win: steps, phases and micro-batches of `t` after the rules have found theirs, before classes. Writes
 * meta.mark_notes. 0, or -1 with one line in err. */
int at_marks(struct at_trace *t, sqlite3 *db, char *err, size_t err_len);

/* ---- parts of at_marks, in their own files ---- */

/* A step as it will be: of a marker, or one that the rules found. */
struct item {
    int32_t first, last; /* events: of a marker, ops in it; of a rules' step, ops with a phase; first -1: none */
    int32_t mark;        /* in marks.mark; -1: the rules' */
    int32_t number;      /* the step's number in the end; -1: it is none */
};

struct marks {
    struct at_trace *t;
    struct mark_set set;
    int64_t *thread;       /* per event; -1 */
    struct at_map dropped; /* threads whose own steps do not count, since another's overlap them: the number dropped */
    int32_t *step;         /* marks that are steps, by time, none overlaps another */
    int32_t steps;
    int32_t *in;       /* per event: item (marker), -1 */
    struct item *item; /* markers' first, then the rules' */
    int32_t items;
    sqlite3_str *notes;
    int64_t outside;    /* ops that the rules would have in a step, and markers do not */
    int64_t relabelled; /* ops whose phase the rules saw otherwise */
    int32_t rules_steps;
    int recompute_is_marked;
};

void marks_choose_steps(struct marks *m);         /* m->step: of one thread where several mark steps at the same time */
void marks_steps_of_phases(struct marks *m);      /* where no marker is a step, and the rules found no training */
void marks_phases(struct marks *m);               /* the phases of ops, over the rules'; after m->in is known */
void marks_say(struct marks *m, int phases_only); /* what is to be known of it, a line each */

static inline int mark_bears_phase(const struct at_event *e) {
    return at_is_op(e) && e->phase != AT_OTHER && e->phase != AT_EVALUATION;
}

/* Windows of recording (table window), and attachment to a running program: steps at their edges that were not recorded
 * as a whole become incomplete. Called by at_marks, adds to its notes. */
int at_windows(struct at_trace *t, sqlite3 *db, sqlite3_str *notes, char *err, size_t err_len);

/* Tags that name a class settle it (table alloc_class, after at_write). 0, or -1 with one line in err. */
int at_tags(struct at_trace *t, sqlite3 *db, char *err, size_t err_len);

#endif
