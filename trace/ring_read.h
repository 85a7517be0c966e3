/* The reader's side of the rings of trace/wire.h. The traced program may be broken or hostile: everything is copied out
 * of shared memory before it is checked, nothing in shared memory is read twice, and positions that the reader needs
 * again are kept here. One thread. */
#ifndef ACCT_TRACE_RING_READ_H
#define ACCT_TRACE_RING_READ_H

#include <stddef.h>
#include "trace/event_table.h"
#include "trace/wire.h"

#define RING_TEXTS 8 /* the most text fields that an event has (checked at compile time) */

/* The geometry, checked and copied once. */
struct ring_map {
    unsigned char *base; /* the mapping; the control page is at its start */
    uint32_t max_rings, ring_slots, blob_bytes;
    uint64_t rings_offset, ring_stride, total_bytes;
};

static inline struct acct_control *ring_map_control(const struct ring_map *map) {
    return (struct acct_control *)map->base;
}

/* Checks the control page of a mapping of `bytes` bytes. 0; or -1 with one line in err. Owns nothing. */
int ring_map_check(struct ring_map *map, void *base, uint64_t bytes, char *err, size_t err_len);

/* A text of a record, in the reader's own memory. */
struct ring_text {
    const char *bytes; /* not ended by NUL; NULL: not known */
    uint32_t length;
};

/* A record, in the reader's own memory, valid until the next ring_read. */
struct ring_record {
    union {
        struct acct_rec hdr;
        unsigned char bytes[ACCT_MAX_SLOTS * ACCT_SLOT_BYTES];
    } u;
    struct ring_text texts[RING_TEXTS]; /* in the order of the event's text fields */
};

struct ring_reader {
    struct acct_ring *ring;
    const unsigned char *slots, *blob;
    uint32_t slot_count, blob_bytes;
    uint64_t tail, blob_tail; /* read so far; published by ring_release */
    char *text_copy;          /* blob_bytes, the caller's: where texts are copied to */
    const char *fault;        /* after -1: what was wrong */
};

/* Begins to read ring area `i` from its start. text_copy: map->blob_bytes of the caller's, shared between readers if
 * only one record is looked at at a time. */
void ring_reader_init(struct ring_reader *r, const struct ring_map *map, uint32_t i, char *text_copy);

/* Slots written so far. What happened before the last of them is visible in every ring afterwards. */
uint64_t ring_reader_head(const struct ring_reader *r);

/* start_ns of the next record, which must have been published. Unchecked: good for choosing which ring is read next. */
uint64_t ring_reader_next_ns(const struct ring_reader *r);

/* The next record before slot `limit` (an earlier ring_reader_head). 1 a record; 0 none; -1 the ring is corrupt
 * (r->fault): it must not be read on. PAD records are skipped. */
int ring_read(struct ring_reader *r, uint64_t limit, struct ring_record *out);

/* Gives what was read back to the writer. */
void ring_release(struct ring_reader *r);

#endif
