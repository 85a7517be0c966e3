#include "analyzer/memory_books.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void note_growth(struct report *r, const struct growth *g) {
    char bytes[64];
    int64_t stays = 0;
    for (int64_t i = 0; i < g->n; i++) stays += g->site[i].bytes;
    if (stays) {
        emit_human_bytes(bytes, sizeof bytes, stays);
        report_note(r,
                    "Memory stays, step after step: %s in allocations of %" PRId64
                    " site(s) that outlived the step after theirs; see acct memory, acct leaks.",
                    bytes, g->n);
    } else if (g->grows) {
        emit_human_bytes(bytes, sizeof bytes, g->last_bytes - g->first_bytes);
        report_note(r, "Memory grows: by %s over the ends of %" PRId64 " steps; see acct memory.", bytes, g->steps);
    }
}

int memory_books_load(struct report *r, char *err, size_t err_len) {
    struct memory_books *b = calloc(1, sizeof *b);
    if (!(r->memory_books = b)) {
        snprintf(err, err_len, "%s: not enough memory for its report", r->path);
        return -1;
    }
    if (memory_reconcile(r, &b->reconciliation, err, err_len) || memory_estimate_load(r, &b->estimate, err, err_len) ||
        growth_load_quick(r, &b->growth, err, err_len))
        return -1;
    note_growth(r, &b->growth);
    if (!b->reconciliation.known)
        report_note(r, "No reconciliation with the device's used memory: %s.", b->reconciliation.why_not);
    return 0;
}

void memory_books_free(struct report *r) {
    if (!r->memory_books) return;
    growth_free(&r->memory_books->growth);
    memory_estimate_free(&r->memory_books->estimate);
    free(r->memory_books);
    r->memory_books = NULL;
}

void memory_books_print(struct emitter *e, const struct report *r) {
    const struct memory_books *b = r->memory_books;
    memory_estimate_print(e, r, &b->estimate, 1);
    memory_print_reconciliation(e, &b->reconciliation);
}
