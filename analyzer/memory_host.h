/* The host's side: memory that is not the device's, and copies by direction. Bytes, ns, bytes/s. One thread. Errors: -1
 * with one line in err. */
#ifndef ACCT_ANALYZER_MEMORY_HOST_H
#define ACCT_ANALYZER_MEMORY_HOST_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

enum memory_direction { COPY_H2D, COPY_D2H, COPY_D2D, COPY_H2H, COPY_UNKNOWN, COPY_DIRECTIONS };

struct memory_copies {
    int64_t count, bytes;
    int64_t timed, timed_bytes, ns;   /* of those with a device time: sum of the times of their activities */
    int64_t pageable, pageable_bytes; /* host side in memory that was neither page-locked nor managed */
    int64_t unsure, unsure_bytes;     /* releases or allocations were lost: whether it was cannot be told */
    double link_bytes_per_s;          /* of the link the bytes take, one way; NaN: not known */
};

struct memory_host {
    int64_t pinned_peak_bytes, registered_peak_bytes, managed_peak_bytes, array_peak_bytes;
    struct memory_copies copies[COPY_DIRECTIONS];
};

int memory_host_load(struct report *r, struct memory_host *out, char *err, size_t err_len);
void memory_host_print(struct emitter *e, const struct memory_host *h);

#endif
