/* From the rings into the open transaction. */
#include "trace/collect.h"

#include <linux/futex.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Longest run of one ring before its slots are given back and the clock is looked at. */
#define RUN_RECORDS 1024
/* A transaction is committed at this size even before its time: the log beside the database stays small, and a disk
 * that runs full takes no more than this. */
#define TRANSACTION_ROWS 4096u
#define BUSY_WAIT_NS 5000000

uint64_t collect_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_for_lock(void) {
    nanosleep(&(struct timespec){0, BUSY_WAIT_NS}, NULL);
}

/* The rings wait while somebody else has the database locked; what does not fit into them is counted by the program. */
static int begin(struct collect *c) {
    if (c->rows.in_transaction || c->rows.stopped) return 0;
    while (rows_begin(&c->rows)) {
        if (collect_stop) return -1;
        pause_for_lock();
    }
    c->transaction_ns = collect_now_ns();
    return 0;
}

/* Once, when storing has stopped: goes back to what is in the database, makes room for the last words, and says so. */
static void note_stopped(struct collect *c) {
    if (c->stop_told) return;
    c->stop_told = 1;
    memcpy(c->rings, c->committed, c->map.max_rings * sizeof *c->rings);
    if (c->ballast >= 0) close(c->ballast);
    c->ballast = -1;
    collect_status(c->config, "error %llu %s\n", (unsigned long long)c->shown_pid, c->rows.message);
}

static int try_commit(struct collect *c) {
    int locked = rows_commit(&c->rows);
    if (c->rows.stopped)
        note_stopped(c);
    else if (!locked)
        memcpy(c->committed, c->rings, c->map.max_rings * sizeof *c->rings);
    return locked;
}

void collect_commit(struct collect *c) {
    while (try_commit(c) && !collect_stop) pause_for_lock();
}

/* Where a reader has the database locked (only without a write-ahead log), the transaction grows until the next time:
 * the rings must not wait. */
void collect_commit_if_due(struct collect *c) {
    if (!c->rows.in_transaction && !c->rows.stopped) return;
    uint64_t now = collect_now_ns();
    int due = c->rows.stopped || c->rows.rows >= TRANSACTION_ROWS || now - c->transaction_ns >= c->config->commit_ns;
    if (!due || !try_commit(c)) return;
    c->rows.rows = 0;
    c->transaction_ns = now;
}

/* What it still holds cannot be known, and nothing that it says is believed any more. */
static void abandon(struct collect *c, uint32_t i) {
    c->corrupt[i] = 1;
    c->corrupt_rings++;
    rows_lost(&c->rows, c->rings[i].thread, -1, -1, 0, 0, "ring corrupt");
}

/* Reads the ring as long as its records are not younger than until_ns, at least one. Records read. */
static uint64_t drain_run(struct collect *c, uint32_t i, uint64_t until_ns) {
    struct ring_reader *r = &c->readers[i];
    uint64_t n = 0;
    int rc;
    do {
        rc = ring_read(r, c->limits[i], &c->record);
        if (rc < 1) break;
        rows_record(&c->rows, &c->rings[i], &c->record);
        n++;
    } while (n < RUN_RECORDS && r->tail != c->limits[i] && ring_reader_next_ns(r) <= until_ns);
    if (rc < 0)
        abandon(c, i);
    else
        ring_release(r);
    return n;
}

/* If the owner has gone and everything is read, the next thread may have the ring. */
static void recycle(struct collect *c, uint32_t i) {
    struct acct_ring *ring = c->readers[i].ring;
    _Atomic uint32_t *state = &ring_map_control(&c->map)->ring_state[i];
    uint32_t retired = ACCT_RING_RETIRED;
    if (atomic_load_explicit(state, memory_order_acquire) != retired) return;
    if (ring_reader_head(&c->readers[i]) != c->readers[i].tail || begin(c)) return;
    rows_lost_residue(&c->rows, &c->rings[i], atomic_load(&ring->lost_records), atomic_load(&ring->lost_blobs));
    c->rings[i].thread = c->rings[i].last_op = 0;
    atomic_compare_exchange_strong(state, &retired, ACCT_RING_FREE);
}

/* Which rings have something, and how far: the heads are read once, before the pass. */
static uint32_t look(struct collect *c, uint32_t *with_records) {
    struct acct_control *control = ring_map_control(&c->map);
    uint32_t count = 0;
    c->rings_in_use = 0;
    for (uint32_t i = 0; i < c->map.max_rings; i++) {
        uint32_t state = atomic_load_explicit(&control->ring_state[i], memory_order_relaxed);
        if (state == ACCT_RING_FREE || c->corrupt[i]) continue;
        c->rings_in_use++;
        c->limits[i] = ring_reader_head(&c->readers[i]);
        if (c->limits[i] != c->readers[i].tail)
            with_records[count++] = i;
        else
            recycle(c, i);
    }
    return count;
}

/* The rings by the time of their next record, the oldest on top: a binary heap. */
struct next {
    uint64_t ns;
    uint32_t ring;
};

static void sift_down(struct next *heap, uint32_t count, uint32_t at) {
    for (;;) {
        uint32_t least = at, left = 2 * at + 1, right = left + 1;
        if (left < count && heap[left].ns < heap[least].ns) least = left;
        if (right < count && heap[right].ns < heap[least].ns) least = right;
        if (least == at) return;
        struct next moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static uint64_t second_oldest(const struct next *heap, uint32_t count) {
    uint64_t left = count > 1 ? heap[1].ns : UINT64_MAX, right = count > 2 ? heap[2].ns : UINT64_MAX;
    return left < right ? left : right;
}

/* The rings are merged by time: the oldest record is in the ring that is fullest, as a rule, and releases then mostly
 * come after their allocations. */
static uint64_t merge(struct collect *c, struct next *heap, uint32_t count) {
    uint64_t read = 0, since_check = 0;
    for (uint32_t k = count; k-- > 0;) sift_down(heap, count, k);
    while (count && begin(c) == 0) {
        uint32_t i = heap[0].ring;
        since_check += drain_run(c, i, second_oldest(heap, count));
        if (c->corrupt[i] || c->readers[i].tail == c->limits[i])
            heap[0] = heap[--count];
        else
            heap[0].ns = ring_reader_next_ns(&c->readers[i]);
        sift_down(heap, count, 0);
        if (since_check < RUN_RECORDS && count) continue;
        read += since_check;
        since_check = 0;
        collect_commit_if_due(c);
    }
    return read;
}

/* One pass: up to where the heads were at its beginning. */
uint64_t collect_drain(struct collect *c) {
    uint32_t active[ACCT_MAX_RINGS], count = look(c, active);
    struct next heap[ACCT_MAX_RINGS];
    if (!count) return 0;
    life_next_pass(c->rows.allocs);
    life_next_pass(c->rows.streams);
    for (uint32_t k = 0; k < count; k++)
        heap[k] = (struct next){ring_reader_next_ns(&c->readers[active[k]]), active[k]};
    uint64_t read = merge(c, heap, count);
    for (uint32_t k = 0; k < count; k++)
        if (!c->corrupt[active[k]]) recycle(c, active[k]);
    return read;
}

void collect_answer_exit(struct collect *c) {
    struct acct_control *control = ring_map_control(&c->map);
    int lost = c->rows.stopped != NULL;
    if (lost) snprintf(control->message, sizeof control->message, "%s", c->rows.message);
    atomic_store(&control->committed, lost ? 2 : 1);
    syscall(SYS_futex, &control->committed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    c->exit_answered = 1;
}
