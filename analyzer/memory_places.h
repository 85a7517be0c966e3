/* Where in a run a moment lies, and where in the program an allocation was made. One thread. Errors: -1 with one line
 * in err. */
#ifndef ACCT_ANALYZER_MEMORY_PLACES_H
#define ACCT_ANALYZER_MEMORY_PLACES_H

#include "analyzer/report_model.h"

#define MEMORY_SITE_ROOM 160

/* Place in r->steps of the step within which ns lies (its end included); -1: before the first, after the last. */
int64_t memory_step_at(const struct report *r, int64_t ns);
/* How many steps ended after `from` and before `to`. */
int64_t memory_steps_between(const struct report *r, int64_t from, int64_t to);
/* The phase of that step (its place in r->steps) that had begun last at ns; NULL: none. */
const char *memory_phase_at(const struct report *r, int64_t step, int64_t ns);
/* `in step 3, backward`, `before the first step`, `after the last step`, `no step was found`. */
void memory_place_words(const struct report *r, int64_t ns, char *out, size_t room);

/* Sites of allocations: the innermost frame of the recorded stack that is none of a CUDA library or of acct; without a
 * stack the function called, and which of the trace's allocations it was (from 1, by id). */
struct memory_sites {
    sqlite3_stmt *frames; /* NULL: the trace has no stacks */
    int64_t *alloc;       /* ids, ascending */
    int64_t n;
};
int memory_sites_open(struct report *r, struct memory_sites *out, char *err, size_t err_len);
void memory_sites_close(struct memory_sites *s);
/* 1: from a stack. */
int memory_site(struct memory_sites *s, int64_t alloc, const char *api, char out[MEMORY_SITE_ROOM]);

/* Has the trace that table? One of an older acct may not. */
int memory_has_table(struct report *r, const char *name);

#endif
