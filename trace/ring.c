#include "trace/ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define PRESENT_SLOTS 1024u /* a piece: 64 KB */
#define PRESENT_BLOB 16384u
#define SLOTS_OF(type) ((uint32_t)((sizeof(type) + ACCT_SLOT_BYTES - 1) / ACCT_SLOT_BYTES))

static uint64_t page_up(uint64_t n) {
    return (n + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

static int power_of_two_within(uint32_t n, uint32_t min, uint32_t max) {
    return n >= min && n <= max && !(n & (n - 1));
}

int ring_layout(struct acct_control *c, uint32_t max_rings, uint32_t ring_slots, uint32_t blob_bytes, uint32_t pid) {
    if (!max_rings || max_rings > ACCT_MAX_RINGS || !power_of_two_within(ring_slots, RING_MIN_SLOTS, RING_MAX_SLOTS) ||
        !power_of_two_within(blob_bytes, RING_MIN_BLOB, RING_MAX_BLOB))
        return -1;
    c->magic = ACCT_WIRE_MAGIC;
    c->version = ACCT_WIRE_VERSION;
    c->max_rings = max_rings;
    c->ring_slots = ring_slots;
    c->blob_bytes = blob_bytes;
    c->pid = pid;
    c->rings_offset = page_up(sizeof *c);
    c->ring_stride = page_up(ACCT_RING_HEADER_BYTES + (uint64_t)ring_slots * ACCT_SLOT_BYTES + blob_bytes);
    c->total_bytes = c->rings_offset + max_rings * c->ring_stride;
    return 0;
}

/* Less than half of the ring waits to be read. */
static int has_space(struct acct_control *c, unsigned i) {
    struct acct_ring *r = (struct acct_ring *)((unsigned char *)c + ring_area_offset(c, i));
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    return head - atomic_load_explicit(&r->tail, memory_order_relaxed) < c->ring_slots / 2;
}

/* acquire: what its last user stored to it before it set the state */
static int take(struct acct_control *c, unsigned i, uint32_t state) {
    return atomic_compare_exchange_strong_explicit(&c->ring_state[i], &state, ACCT_RING_OWNED, memory_order_acquire,
                                                   memory_order_relaxed);
}

int ring_claim(struct acct_control *c) {
    for (unsigned i = 0; i < c->max_rings; i++) {
        uint32_t state = atomic_load_explicit(&c->ring_state[i], memory_order_acquire);
        if ((state == ACCT_RING_FREE || (state == ACCT_RING_RETIRED && has_space(c, i))) && take(c, i, state))
            return (int)i;
    }
    for (unsigned i = 0; i < c->max_rings; i++)
        if (atomic_load_explicit(&c->ring_state[i], memory_order_acquire) == ACCT_RING_RETIRED &&
            take(c, i, ACCT_RING_RETIRED))
            return (int)i;
    return -1;
}

static void set_limit(struct ring_writer *w) {
    uint64_t free_until = w->tail + w->slot_count;
    w->limit = free_until < w->present ? free_until : w->present;
}

void ring_attach(struct ring_writer *w, struct acct_control *c, unsigned i) {
    unsigned char *area = (unsigned char *)c + ring_area_offset(c, i);
    memset(w, 0, sizeof *w);
    w->control = c;
    w->ring = (struct acct_ring *)area;
    w->slots = area + ACCT_RING_HEADER_BYTES;
    w->slot_count = c->ring_slots;
    w->blob_bytes = c->blob_bytes;
    w->blob = w->slots + (size_t)w->slot_count * ACCT_SLOT_BYTES;
    w->head = atomic_load_explicit(&w->ring->head, memory_order_relaxed);
    w->blob_head = atomic_load_explicit(&w->ring->blob_head, memory_order_relaxed);
    w->tail = atomic_load_explicit(&w->ring->tail, memory_order_acquire);
    w->blob_tail = atomic_load_explicit(&w->ring->blob_tail, memory_order_acquire);
    w->wake_at = w->head + w->slot_count / 4;
    w->blob_wake_at = w->blob_head + w->blob_bytes / 4;
    w->present = w->blob_present = UINT64_MAX;
    set_limit(w);
}

/* What an earlier owner of the ring has written to is there: all up to head, and once it has been round, everything. */
static uint64_t present_from(uint64_t head, uint64_t size, uint64_t piece) {
    return head >= size ? UINT64_MAX : (head + piece - 1) / piece * piece;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void ring_present_by(struct ring_writer *w, int (*make_present)(void *start, size_t bytes)) {
    w->make_present = make_present;
    w->present = present_from(w->head, w->slot_count, smaller(PRESENT_SLOTS, w->slot_count));
    w->blob_present = present_from(w->blob_head, w->blob_bytes, smaller(PRESENT_BLOB, w->blob_bytes));
    set_limit(w);
}

/* Moves *present up to `end` in an area of `size` units of `unit` bytes. 0: no memory. */
static int extend(struct ring_writer *w, uint64_t *present, uint64_t end, unsigned char *area, uint64_t piece,
                  uint64_t size, uint64_t unit) {
    piece = smaller(piece, size);
    while (*present < end) {
        if (*present >= size) {
            *present = UINT64_MAX;
        } else {
            if (!w->make_present(area + *present * unit, piece * unit)) return 0;
            *present += piece;
        }
    }
    return 1;
}

void ring_wait_by(struct ring_writer *w, uint64_t ns) {
    w->wait_ns = ns;
}

/* Waits until the reader's *tail lets the writer go up to `end`, and a quarter of the ring further while the reader is
 * at it: waking up for every record would cost more than it. */
static void wait_for_reader(struct ring_writer *w, _Atomic uint64_t *tail, uint64_t end, uint64_t size) {
    const struct timespec pause = {0, 100000};
    uint64_t seen = atomic_load_explicit(tail, memory_order_acquire), waited = 0;
    int saved = errno;
    while (end + size / 4 - seen > size) {
        ring_wake(w->control);
        syscall(SYS_nanosleep, &pause, NULL);
        uint64_t now = atomic_load_explicit(tail, memory_order_acquire);
        waited = now == seen ? waited + (uint64_t)pause.tv_nsec : 0;
        seen = now;
        if (waited && end - seen <= size) break;
        if (waited >= w->wait_ns) {
            w->wait_ns = 0;
            break;
        }
    }
    errno = saved;
}

/* 1: the slots before `end` are free, and their pages are there. */
static int room_until(struct ring_writer *w, uint64_t end) {
    if (end - w->tail > w->slot_count) w->tail = atomic_load_explicit(&w->ring->tail, memory_order_acquire);
    int room = end - w->tail <= w->slot_count &&
               extend(w, &w->present, end, w->slots, PRESENT_SLOTS, w->slot_count, ACCT_SLOT_BYTES);
    if (room) set_limit(w);
    return room;
}

/* Where a record of `slots` goes that may not cross the end of the ring. */
static uint64_t place(const struct ring_writer *w, uint64_t at, uint32_t slots) {
    uint32_t to_end = w->slot_count - ((uint32_t)at & (w->slot_count - 1));
    return slots <= to_end ? at : at + to_end;
}

static struct acct_rec *record_at(struct ring_writer *w, uint64_t at, uint16_t event, uint32_t slots, uint64_t ns) {
    struct acct_rec *r = (struct acct_rec *)(w->slots + (at & (w->slot_count - 1)) * ACCT_SLOT_BYTES);
    memset(r, 0, sizeof *r);
    r->event = event;
    r->slots = (uint8_t)slots;
    r->device = ACCT_NULL_I32;
    r->start_ns = r->end_ns = ns;
    r->stream = ACCT_NO_STREAM;
    return r;
}

/* Moves head up to `at`, which is head itself or the beginning of the ring. */
static void pad_to(struct ring_writer *w, uint64_t at, uint64_t ns) {
    if (at != w->head) record_at(w, w->head, ACCT_EV_PAD, (uint32_t)(at - w->head), ns);
    w->head = at;
}

static void tell_lost(struct ring_writer *w, uint64_t at, uint64_t now_ns) {
    pad_to(w, at, now_ns);
    struct acct_ev_lost *l =
        (struct acct_ev_lost *)record_at(w, at, ACCT_EV_LOST, SLOTS_OF(struct acct_ev_lost), now_ns);
    l->records = (int64_t)w->lost;
    l->first_ns = w->lost_first_ns;
    l->last_ns = w->lost_last_ns;
    w->head = at + SLOTS_OF(struct acct_ev_lost);
    w->lost = 0;
}

/* Records dropped at the very end of a thread would have no later record to go before. */
static void tell_last_lost(struct ring_writer *w) {
    uint64_t at = place(w, w->head, SLOTS_OF(struct acct_ev_lost));
    if (!room_until(w, at + SLOTS_OF(struct acct_ev_lost))) return; /* the reader finds them in lost_records */
    tell_lost(w, at, w->lost_last_ns);
    ring_commit(w);
}

void ring_retire(struct ring_writer *w, unsigned i) {
    if (w->lost) tell_last_lost(w);
    atomic_store_explicit(&w->control->ring_state[i], ACCT_RING_RETIRED, memory_order_release);
    w->ring = NULL;
}

void ring_wake(struct acct_control *c) {
    /* A read-modify-write here and in the collector, which sets `sleeping` before its last look at the rings: the later
     * of the two sees what was done before the earlier, so that not both can miss the other. */
    if (!atomic_fetch_or(&c->sleeping, 0)) return;
    atomic_fetch_add(&c->wake, 1);
    syscall(SYS_futex, &c->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ring_check_fill(struct ring_writer *w) {
    uint32_t quarter = w->slot_count / 4, blob_quarter = w->blob_bytes / 4;
    w->tail = atomic_load_explicit(&w->ring->tail, memory_order_acquire);
    w->blob_tail = atomic_load_explicit(&w->ring->blob_tail, memory_order_acquire);
    set_limit(w);
    if (w->head - w->tail < quarter && w->blob_head - w->blob_tail < blob_quarter) {
        w->wake_at = w->tail + quarter;
        w->blob_wake_at = w->blob_tail + blob_quarter;
        return;
    }
    /* Asked again a little later: a wake-up that crossed with the collector's falling asleep is so made good. */
    w->wake_at = w->head + w->slot_count / 16;
    w->blob_wake_at = w->blob_head + w->blob_bytes / 16;
    ring_wake(w->control);
}

static void drop(struct ring_writer *w, uint64_t now_ns) {
    struct acct_ring *r = w->ring;
    if (!w->lost++) {
        w->lost_first_ns = now_ns;
        atomic_store_explicit(&r->lost_first_ns, now_ns, memory_order_relaxed);
    }
    w->lost_last_ns = now_ns;
    atomic_store_explicit(&r->lost_last_ns, now_ns, memory_order_relaxed);
    uint64_t ever = atomic_load_explicit(&r->lost_records, memory_order_relaxed); /* only this thread writes it */
    atomic_store_explicit(&r->lost_records, ever + 1, memory_order_release);
    if (w->lost == 1) ring_wake(w->control);
}

/* Where a record of `slots` goes, after the LOST record that may have to precede it; *lost_at is that one's place. */
static uint64_t place_both(const struct ring_writer *w, uint32_t slots, uint64_t *lost_at) {
    *lost_at = place(w, w->head, SLOTS_OF(struct acct_ev_lost));
    return place(w, w->lost ? *lost_at + SLOTS_OF(struct acct_ev_lost) : w->head, slots);
}

int ring_has_room(struct ring_writer *w, size_t bytes) {
    uint32_t slots = (uint32_t)((bytes + ACCT_SLOT_BYTES - 1) / ACCT_SLOT_BYTES);
    uint64_t lost_at, at = place_both(w, slots, &lost_at);
    return room_until(w, at + slots);
}

void *ring_begin_slow(struct ring_writer *w, uint16_t event, uint32_t slots, uint64_t now_ns) {
    uint64_t lost_at, at = place_both(w, slots, &lost_at);
    if (w->wait_ns && slots <= ACCT_MAX_SLOTS && !room_until(w, at + slots))
        wait_for_reader(w, &w->ring->tail, at + slots, w->slot_count);
    if (slots > ACCT_MAX_SLOTS || !room_until(w, at + slots)) {
        drop(w, now_ns);
        return NULL;
    }
    if (w->lost) tell_lost(w, lost_at, now_ns);
    pad_to(w, at, now_ns);
    struct acct_rec *r = record_at(w, at, event, slots, now_ns);
    w->head = at + slots;
    return r;
}

/* Where `bytes` that may not cross the end of the blob ring begin. */
static uint64_t blob_place(const struct ring_writer *w, size_t bytes) {
    uint32_t to_end = w->blob_bytes - ((uint32_t)w->blob_head & (w->blob_bytes - 1));
    return bytes > to_end ? w->blob_head + to_end : w->blob_head;
}

static int blob_room_until(struct ring_writer *w, uint64_t end) {
    if (end - w->blob_tail > w->blob_bytes)
        w->blob_tail = atomic_load_explicit(&w->ring->blob_tail, memory_order_acquire);
    return end - w->blob_tail <= w->blob_bytes &&
           extend(w, &w->blob_present, end, w->blob, PRESENT_BLOB, w->blob_bytes, 1);
}

int ring_has_blob_room(struct ring_writer *w, size_t bytes) {
    return bytes <= w->blob_bytes && blob_room_until(w, blob_place(w, bytes) + bytes);
}

struct acct_text ring_reserve(struct ring_writer *w, size_t bytes, void **room) {
    uint64_t at = blob_place(w, bytes);
    *room = NULL;
    if (w->wait_ns && bytes <= w->blob_bytes && !blob_room_until(w, at + bytes))
        wait_for_reader(w, &w->ring->blob_tail, at + bytes, w->blob_bytes);
    if (bytes > w->blob_bytes || !blob_room_until(w, at + bytes)) {
        uint64_t ever = atomic_load_explicit(&w->ring->lost_blobs, memory_order_relaxed);
        atomic_store_explicit(&w->ring->lost_blobs, ever + 1, memory_order_relaxed);
        w->wake_at = 0;
        return (struct acct_text){0, 0, ACCT_TEXT_LOST};
    }
    *room = w->blob + (at & (w->blob_bytes - 1));
    w->blob_head = at + bytes;
    if (w->blob_head >= w->blob_wake_at) w->wake_at = 0; /* the next ring_commit looks at the fill level */
    return (struct acct_text){at, (uint32_t)bytes, 0};
}

struct acct_text ring_text(struct ring_writer *w, const void *s, size_t bytes) {
    void *room;
    if (!s) return (struct acct_text){0, 0, ACCT_TEXT_NULL};
    struct acct_text t = ring_reserve(w, bytes, &room);
    if (room) memcpy(room, s, bytes);
    return t;
}
