/* A libcupti that does what a test tells it: support/fake_cupti.c. The test finds `fake_cupti` and the functions below
 * with dlsym, or sets FAKE_CUPTI="field=value …" in the environment of a whole program. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

struct fake_cupti {
    /* script */
    char fail[64]; /* this function answers `error` */
    int error;
    char hang[64]; /* this function first sleeps `hang_ms` */
    _Atomic int hang_ms;
    unsigned version;
    _Atomic int incomplete; /* records have no end yet: only a forced flush brings them */
    _Atomic int eager;      /* each cuptiActivityPopExternalCorrelationId runs a kernel, `eager` ns long */
    _Atomic int zero_times; /* that kernel's times are 0 */
    _Atomic int longer;     /* that kernel's record is longer by so many bytes, as a newer CUPTI's */
    _Atomic int lose;       /* every so-manieth record is dropped */
    _Atomic int dies;       /* the first marked call registers an exit handler, after which all functions fail */
    _Atomic int
        stray_record; /* cuptiActivityGetNextRecord leads astray: 1 out of the buffer, 2 round and round, 3 over its end
                       */

    /* account */
    char violation[256]; /* the first of the vendor's rules that was broken; "" none */
    _Atomic int subscribed, buffers_asked, buffers_refused, buffers_completed, flushes, forced, pushes, pops;
    _Atomic int calls_enabled, kinds_enabled, unsubscribed, pinned;
    _Atomic uint64_t kernels; /* run by `eager` */
};

/* Writes a record as the library does when something has ended: into the buffer at hand, asking for one if need be, and
 * completing the one that is full, in this thread. */
typedef void fake_emit_fn(const void *record, size_t bytes);
/* What the registered time callback answers. */
typedef uint64_t fake_clock_fn(void);
/* Asks the tool for a buffer, or completes one, as the library would. */
typedef uint8_t *fake_ask_fn(size_t *bytes);
typedef void fake_complete_fn(uint8_t *buffer, size_t bytes, size_t valid);

extern fake_emit_fn fake_emit;
extern fake_clock_fn fake_clock;
extern fake_ask_fn fake_ask;
extern fake_complete_fn fake_complete;

#endif
