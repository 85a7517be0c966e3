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

/* Windows of recording (table window), and attachment to a running program: steps at their edges that were not recorded
 * as a whole become incomplete. Called by at_marks, adds to its notes. */
int at_windows(struct at_trace *t, sqlite3 *db, sqlite3_str *notes, char *err, size_t err_len);

/* Tags that name a class settle it (table alloc_class, after at_write). 0, or -1 with one line in err. */
int at_tags(struct at_trace *t, sqlite3 *db, char *err, size_t err_len);

#endif
