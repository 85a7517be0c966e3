/* What a report has of memory beside its peaks: reconciliation with the driver, growth, estimate against measured. One
 * thread. Errors: -1 with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_BOOKS_H
#define ACCT_ANALYZER_MEMORY_BOOKS_H

#include "analyzer/growth.h"
#include "analyzer/memory_estimate.h"
#include "analyzer/memory_reconcile.h"

struct memory_books {
    struct memory_reconciliation reconciliation;
    struct memory_estimate estimate;
    struct growth growth; /* without accesses */
};

/* Into r->memory_books, with its notes. After steps, classes, FLOPs and parameters. */
int memory_books_load(struct report *r, char *err, size_t err_len);
void memory_books_free(struct report *r);
/* The keys `estimate` and `reconciliation` of a report. */
void memory_books_print(struct emitter *e, const struct report *r);

#endif
