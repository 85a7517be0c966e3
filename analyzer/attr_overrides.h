/* Classes that the program (tags) or the user (rules) settles, in place of those that the analysis found: rectangles of
 * bytes and time over the rows of alloc_class. n log n in rows and overrides. One thread. */
#ifndef ACCT_ANALYZER_ATTR_OVERRIDES_H
#define ACCT_ANALYZER_ATTR_OVERRIDES_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

struct class_override {
    int64_t alloc, offset, bytes;
    int64_t from_ns, until_ns; /* INT64_MIN, INT64_MAX: the ends of the allocation's life */
    const char *class;         /* the caller's, as the next */
    const char *rule;
};

/* Sorts `o` by allocation; of two that overlap the later one in the array wins. The rows of those allocations, with the
 * overrides in them (confidence 1), are put into `into` ("main.alloc_class": in place of the old ones; another table:
 * beside them, and their allocations into table `settled`). 0, or -1 with one line in err. */
int overrides_apply(sqlite3 *db, struct class_override *o, size_t n, const char *into, const char *settled, char *err,
                    size_t err_len);

/* The text of a class that alloc_class knows, which lasts; NULL: it is none. */
const char *override_class(const char *name);

#endif
