/* The writer's side of the rings of trace/wire.h. One writer per ring (the thread that claimed it); no locks, no
 * allocation, no system call but the wake-up of a sleeping collector when a ring or its blob ring is a quarter full
 * (and, after ring_wait_by, those of waiting).
 *
 * A record is written in place:
 *     struct acct_ev_free *r = ring_begin(w, ACCT_EV_FREE, sizeof *r, now);
 *     if (r) { r->hdr.api = …; r->address = …; ring_commit(w); }
 * ring_begin answers NULL where the ring is full; the record is then counted as lost already, and as soon as there is
 * room again a LOST record goes before the next one. errno may change in ring_commit and ring_wake. */
#ifndef ACCT_TRACE_RING_H
#define ACCT_TRACE_RING_H

#include <stddef.h>
#include <string.h>
#include "trace/wire.h"

#define RING_MIN_SLOTS 64u
#define RING_MAX_SLOTS (1u << 24)
#define RING_MIN_BLOB 4096u
#define RING_MAX_BLOB (1u << 30)

/* Private to the thread that owns the ring. The geometry is copied, so that nothing written to the shared page later
 * can lead the writer astray. Positions count slots (blob_*: bytes) for ever. */
struct ring_writer {
    struct acct_control *control;
    struct acct_ring *ring;
    unsigned char *slots, *blob;
    uint32_t slot_count, blob_bytes;
    uint64_t head, blob_head; /* next to be written; published by ring_commit */
    uint64_t tail, blob_tail; /* the reader's, as last seen */
    uint64_t limit;           /* head may reach this without a look at the reader's progress or at the pages */
    uint64_t wake_at;         /* head from which the fill level is looked at */
    uint64_t blob_wake_at;    /* likewise blob_head */
    uint64_t lost;            /* records dropped since the last LOST record */
    uint64_t lost_first_ns, lost_last_ns;
    int (*make_present)(void *start, size_t bytes);
    uint64_t present, blob_present; /* head, blob_head up to which the pages are there */
    uint64_t wait_ns;               /* for room; 0: records are dropped at once */
};

/* Lays a new memfd out: writes the first block of *c (geometry, magic, version, pid) for rings of `ring_slots` slots
 * and `blob_bytes` of blob (powers of two, within RING_MIN/MAX). 0, or -1 if a size is not allowed. */
int ring_layout(struct acct_control *c, uint32_t max_rings, uint32_t ring_slots, uint32_t blob_bytes, uint32_t pid);

/* Start and length in bytes of ring area `i`, counted from the control page. */
static inline uint64_t ring_area_offset(const struct acct_control *c, unsigned i) {
    return c->rings_offset + i * c->ring_stride;
}

/* Takes a ring for the calling thread: a free one, or one that a thread gave back when it ended, whether it has been
 * read or not (the records go on behind those). Its number, or -1 if all are taken. Any thread. */
int ring_claim(struct acct_control *c);

/* Prepares *w to write to claimed ring `i`; *c is the start of the mapping of the whole memfd. */
void ring_attach(struct ring_writer *w, struct acct_control *c, unsigned i);

/* Makes the pages of the ring present piece by piece, each before it is first written: make_present answers 0 where
 * memory is short, and then records are dropped (where a touch would be SIGBUS). Right after ring_attach; without it
 * all pages are taken to be there. The header's page has to be there already. */
void ring_present_by(struct ring_writer *w, int (*make_present)(void *start, size_t bytes));

/* A full ring is waited for, up to ns without any progress of the reader; when that has passed, never again. Without it
 * the writer does not wait. errno is kept. */
void ring_wait_by(struct ring_writer *w, uint64_t ns);

/* 1: a record of `bytes` would find room, with padding and a LOST record before it. Nothing is counted as lost. */
int ring_has_room(struct ring_writer *w, size_t bytes);

/* Gives the ring back to the collector to drain. `w` is not to be used afterwards. */
void ring_retire(struct ring_writer *w, unsigned i);

/* Wakes the collector if it sleeps. Any thread. */
void ring_wake(struct acct_control *c);

/* Puts `bytes` of `s` into the blob ring, for the record between its ring_begin and ring_commit. s == NULL: not known.
 * A full blob ring gives a text marked ACCT_TEXT_LOST. */
struct acct_text ring_text(struct ring_writer *w, const void *s, size_t bytes);

/* The same without the copy: the caller fills the `bytes` at *room before ring_commit; NULL: the blob ring is full. */
struct acct_text ring_reserve(struct ring_writer *w, size_t bytes, void **room);

/* 1: a text of `bytes` would find room. Nothing is counted as lost. */
int ring_has_blob_room(struct ring_writer *w, size_t bytes);

/* The slow parts of ring_begin and ring_commit. */
void *ring_begin_slow(struct ring_writer *w, uint16_t event, uint32_t slots, uint64_t now_ns);
void ring_check_fill(struct ring_writer *w);

/* Room for one record of `bytes` (a struct acct_ev_*, at most 255 slots), its event, slots, flags = 0 and
 * start_ns = now_ns set, the rest to be filled by the caller. NULL: full, counted. */
static inline void *ring_begin(struct ring_writer *w, uint16_t event, size_t bytes, uint64_t now_ns) {
    uint32_t slots = (uint32_t)((bytes + ACCT_SLOT_BYTES - 1) / ACCT_SLOT_BYTES);
    uint32_t at = (uint32_t)w->head & (w->slot_count - 1);
    if (w->lost || at + slots > w->slot_count || w->head + slots > w->limit)
        return ring_begin_slow(w, event, slots, now_ns);
    struct acct_rec *r = (struct acct_rec *)(w->slots + (size_t)at * ACCT_SLOT_BYTES);
    r->event = event;
    r->slots = (uint8_t)slots;
    r->flags = 0;
    r->start_ns = now_ns;
    w->head += slots;
    return r;
}

/* Publishes everything begun so far. */
static inline void ring_commit(struct ring_writer *w) {
    atomic_store_explicit(&w->ring->blob_head, w->blob_head, memory_order_relaxed); /* ordered by head's release */
    atomic_store_explicit(&w->ring->head, w->head, memory_order_release);
    if (w->head >= w->wake_at) ring_check_fill(w);
}

#endif
