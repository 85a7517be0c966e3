/* The ring writer against a reader of its own, written from the text of wire.h. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include "trace/ring.h"

struct fixture {
    struct acct_control *c;
    struct ring_writer w;
};

static struct acct_control *map_rings(uint32_t max_rings, uint32_t slots, uint32_t blob) {
    struct acct_control geometry;
    memset(&geometry, 0, sizeof geometry);
    assert_int_equal(ring_layout(&geometry, max_rings, slots, blob, 1), 0);
    void *p = mmap(NULL, geometry.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(ring_layout(p, max_rings, slots, blob, 1), 0);
    return p;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->c = map_rings(4, 64, 4096);
    ring_attach(&f->w, f->c, (unsigned)ring_claim(f->c));
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    munmap(f->c, f->c->total_bytes);
    free(f);
    return 0;
}

/* Takes the next record that is no PAD into `out` (a whole record); 0: none. Frees its slots. */
static int take(struct acct_control *c, unsigned ring, void *out) {
    unsigned char *area = (unsigned char *)c + c->rings_offset + ring * c->ring_stride;
    struct acct_ring *r = (struct acct_ring *)area;
    for (;;) {
        uint64_t tail = r->tail, head = atomic_load_explicit(&r->head, memory_order_acquire);
        if (tail == head) return 0;
        uint64_t index = tail % c->ring_slots;
        struct acct_rec *rec = (struct acct_rec *)(area + ACCT_RING_HEADER_BYTES + index * ACCT_SLOT_BYTES);
        assert_in_range(rec->slots, 1, ACCT_MAX_SLOTS);
        assert_true(tail + rec->slots <= head && index + rec->slots <= c->ring_slots);
        int pad = rec->event == ACCT_EV_PAD;
        if (!pad) memcpy(out, rec, (size_t)rec->slots * ACCT_SLOT_BYTES);
        atomic_store_explicit(&r->tail, tail + rec->slots, memory_order_release);
        if (!pad) return 1;
    }
}

union any {
    struct acct_rec hdr;
    struct acct_ev_alloc alloc;
    struct acct_ev_gemm gemm;
    struct acct_ev_lost lost;
    struct acct_ev_thread thread;
    unsigned char bytes[ACCT_MAX_SLOTS * ACCT_SLOT_BYTES];
};

static int put_alloc(struct ring_writer *w, uint64_t address, uint64_t ns) {
    struct acct_ev_alloc *a = ring_begin(w, ACCT_EV_ALLOC, sizeof *a, ns);
    if (!a) return 0;
    a->address = address;
    ring_commit(w);
    return 1;
}

static void test_layout_refuses_bad_sizes(void **state) {
    struct acct_control c;
    (void)state;
    assert_int_equal(ring_layout(&c, 512, 100, 4096, 1), -1); /* no power of two */
    assert_int_equal(ring_layout(&c, 512, 32, 4096, 1), -1);
    assert_int_equal(ring_layout(&c, 512, 64, 2048, 1), -1);
    assert_int_equal(ring_layout(&c, 513, 64, 4096, 1), -1);
    assert_int_equal(ring_layout(&c, 512, 64, 4096, 7), 0);
    assert_true(c.rings_offset >= sizeof c && c.rings_offset % 4096 == 0 && c.ring_stride % 4096 == 0);
    assert_true(c.ring_stride >= 4096 + 64 * 64 + 4096);
    assert_true(c.total_bytes == c.rings_offset + 512 * c.ring_stride);
}

static void test_records_come_back_over_many_wraps(void **state) {
    struct fixture *f = *state;
    union any got;
    for (uint64_t i = 1; i <= 1000;
         i++) { /* records of 2 and 4 slots in turn: the end of the ring is met at all offsets */
        assert_true(put_alloc(&f->w, i, i * 10));
        struct acct_ev_gemm *g = ring_begin(&f->w, ACCT_EV_GEMM, sizeof *g, i * 10 + 1);
        assert_non_null(g);
        assert_true(((uintptr_t)g & 63) == 0);
        g->m = (int64_t)i;
        ring_commit(&f->w);
        assert_true(take(f->c, 0, &got));
        assert_int_equal(got.hdr.event, ACCT_EV_ALLOC);
        assert_int_equal(got.alloc.address, i);
        assert_int_equal(got.hdr.start_ns, i * 10);
        assert_int_equal(got.hdr.flags, 0);
        assert_true(take(f->c, 0, &got));
        assert_int_equal(got.hdr.event, ACCT_EV_GEMM);
        assert_int_equal(got.gemm.m, i);
        assert_false(take(f->c, 0, &got));
    }
}

static void test_nothing_is_visible_before_commit(void **state) {
    struct fixture *f = *state;
    union any got;
    struct acct_ev_alloc *a = ring_begin(&f->w, ACCT_EV_ALLOC, sizeof *a, 1);
    assert_non_null(a);
    assert_false(take(f->c, 0, &got));
    ring_commit(&f->w);
    assert_true(take(f->c, 0, &got));
}

static void test_a_full_ring_drops_counts_and_tells(void **state) {
    struct fixture *f = *state;
    struct acct_ring *r = (struct acct_ring *)((char *)f->c + f->c->rings_offset);
    union any got;
    uint64_t kept = 0, calls = 100, ns = 1000;
    for (uint64_t i = 0; i < calls; i++) kept += (uint64_t)put_alloc(&f->w, i + 1, ns + i);
    uint64_t slots = (sizeof(struct acct_ev_alloc) + 63) / 64;
    assert_int_equal(kept, 64 / slots);
    assert_int_equal(r->lost_records, calls - kept);
    assert_int_equal(r->lost_first_ns, ns + kept);
    assert_int_equal(r->lost_last_ns, ns + calls - 1);
    for (uint64_t i = 0; i < kept; i++) {
        assert_true(take(f->c, 0, &got));
        assert_int_equal(got.alloc.address, i + 1);
    }
    assert_false(take(f->c, 0, &got));
    assert_true(put_alloc(&f->w, 777, 5000));
    assert_true(take(f->c, 0, &got));
    assert_int_equal(got.hdr.event, ACCT_EV_LOST);
    assert_int_equal(got.lost.records, calls - kept);
    assert_int_equal(got.lost.first_ns, ns + kept);
    assert_int_equal(got.lost.last_ns, ns + calls - 1);
    assert_true(take(f->c, 0, &got));
    assert_int_equal(got.alloc.address, 777);
    assert_true(put_alloc(&f->w, 778, 5001)); /* told once only */
    assert_true(take(f->c, 0, &got));
    assert_int_equal(got.hdr.event, ACCT_EV_ALLOC);
}

static void test_loss_at_the_end_of_a_thread_is_told(void **state) {
    struct fixture *f = *state;
    union any got;
    uint64_t kept = 0, told = 0;
    for (uint64_t i = 0; i < 90; i++) kept += (uint64_t)put_alloc(&f->w, 1, i);
    for (uint64_t i = 0; i < 3; i++) assert_true(take(f->c, 0, &got));
    ring_retire(&f->w, 0);
    assert_int_equal(f->c->ring_state[0], ACCT_RING_RETIRED);
    while (take(f->c, 0, &got)) told += got.hdr.event == ACCT_EV_LOST ? (uint64_t)got.lost.records : 0;
    assert_int_equal(told, 90 - kept);
}

static void test_texts_are_whole_and_never_wrap(void **state) {
    struct fixture *f = *state;
    struct acct_ring *r = (struct acct_ring *)((char *)f->c + f->c->rings_offset);
    const char *blob = (char *)r + ACCT_RING_HEADER_BYTES + 64 * ACCT_SLOT_BYTES;
    char text[1500];
    union any got;
    for (unsigned i = 0; i < 200; i++) {
        size_t n = 1 + i * 7 % sizeof text;
        memset(text, (int)i, n);
        struct acct_ev_thread *t = ring_begin(&f->w, ACCT_EV_THREAD, sizeof *t, i);
        t->name = ring_text(&f->w, text, n);
        ring_commit(&f->w);
        assert_true(take(f->c, 0, &got));
        struct acct_text *x = &got.thread.name;
        assert_int_equal(x->flags, 0);
        assert_int_equal(x->bytes, n);
        assert_true(x->position % 4096 + n <= 4096 && x->position + n <= r->blob_head);
        assert_memory_equal(blob + x->position % 4096, text, n);
        r->blob_tail = x->position + n;
    }
}

static void test_a_text_too_many_is_marked_lost(void **state) {
    struct fixture *f = *state;
    struct acct_ring *r = (struct acct_ring *)((char *)f->c + f->c->rings_offset);
    static char big[5000];
    assert_int_equal(ring_text(&f->w, big, 4000).flags, 0);
    assert_int_equal(ring_text(&f->w, big, 200).flags, ACCT_TEXT_LOST);
    assert_int_equal(ring_text(&f->w, big, sizeof big).flags, ACCT_TEXT_LOST);
    assert_int_equal(ring_text(&f->w, NULL, 0).flags, ACCT_TEXT_NULL);
    assert_int_equal(r->lost_blobs, 2);
}

static void test_rings_are_claimed_once_and_handed_on(void **state) {
    struct fixture *f = *state;
    union any got;
    assert_int_equal(ring_claim(f->c), 1);
    assert_int_equal(ring_claim(f->c), 2);
    assert_int_equal(ring_claim(f->c), 3);
    assert_int_equal(ring_claim(f->c), -1);
    put_alloc(&f->w, 5, 1);
    ring_retire(&f->w, 0);
    assert_int_equal(ring_claim(f->c), 0); /* not read yet: the next thread goes on behind */
    ring_attach(&f->w, f->c, 0);
    put_alloc(&f->w, 6, 2);
    assert_true(take(f->c, 0, &got));
    assert_int_equal(got.alloc.address, 5);
    assert_true(take(f->c, 0, &got));
    assert_int_equal(got.alloc.address, 6);
    ring_retire(&f->w, 0);
    f->c->ring_state[0] = ACCT_RING_FREE; /* read, and set free by the reader */
    assert_int_equal(ring_claim(f->c), 0);
    assert_int_equal(ring_claim(f->c), -1);
}

/* A fresh ring is taken before one that is more than half full, and that before none. */
static void test_a_full_ring_is_handed_on_last(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 40; i++) put_alloc(&f->w, 1, 1);
    ring_retire(&f->w, 0);
    assert_int_equal(ring_claim(f->c), 1);
    assert_int_equal(ring_claim(f->c), 2);
    assert_int_equal(ring_claim(f->c), 3);
    assert_int_equal(ring_claim(f->c), 0);
    assert_int_equal(ring_claim(f->c), -1);
}

static void test_a_quarter_full_ring_wakes_a_sleeper_only(void **state) {
    struct fixture *f = *state;
    unsigned n = 64 / 4 / ((sizeof(struct acct_ev_alloc) + 63) / 64);
    for (unsigned i = 0; i < n; i++) put_alloc(&f->w, 1, 1);
    assert_int_equal(f->c->wake, 0); /* nobody slept */
    f->c->sleeping = 1;
    for (unsigned i = 0; i < n; i++) put_alloc(&f->w, 1, 1);
    assert_true(f->c->wake > 0);
}

/* Names and argument bytes may fill their ring long before the records fill theirs. */
static void test_a_quarter_full_blob_ring_wakes_too(void **state) {
    struct fixture *f = *state;
    static const char text[512];
    f->c->sleeping = 1;
    for (unsigned i = 0; i < 2; i++) { /* 1020 of 4096 bytes, in records of 2 slots of 64 */
        struct acct_ev_thread *r = ring_begin(&f->w, ACCT_EV_THREAD, sizeof *r, 1);
        r->name = ring_text(&f->w, text, 510);
        ring_commit(&f->w);
    }
    assert_int_equal(f->c->wake, 0);
    struct acct_ev_thread *r = ring_begin(&f->w, ACCT_EV_THREAD, sizeof *r, 1);
    r->name = ring_text(&f->w, text, 510);
    ring_commit(&f->w);
    assert_int_equal(f->c->wake, 1);
}

/* What ring_has_blob_room says holds for the text that follows, at every place of the ring. */
static void test_blob_room_is_told_as_it_is(void **state) {
    struct fixture *f = *state;
    struct acct_ring *r = (struct acct_ring *)((char *)f->c + f->c->rings_offset);
    void *room;
    assert_int_equal(ring_has_blob_room(&f->w, 4096), 1);
    assert_int_equal(ring_has_blob_room(&f->w, 4097), 0);
    for (unsigned i = 0; i < 2000; i++) {
        size_t bytes = i * 37 % 900;
        uint64_t lost = r->lost_blobs;
        int told = ring_has_blob_room(&f->w, bytes);
        assert_int_equal(r->lost_blobs, lost);
        struct acct_text t = ring_reserve(&f->w, bytes, &room);
        assert_int_equal(t.flags == 0, told);
        assert_int_equal(room != NULL, told);
        if (room) memset(room, 1, bytes);
        if (i % 5 == 4) r->blob_tail = f->w.blob_head;
    }
    assert_true(r->lost_blobs > 0);
}

static unsigned char *present_base;
static size_t present_to; /* bytes from present_base that were asked for, without a gap */
static size_t present_most;
static int present_in_order(void *start, size_t bytes) {
    assert_ptr_equal(start, present_base + present_to);
    assert_true(((uintptr_t)start & 4095) == 0 && bytes % 4096 == 0);
    if (present_to + bytes > present_most) return 0;
    present_to += bytes;
    return 1;
}

/* Pages are asked for in order, each before it is written, none twice; where that fails records are dropped and
 * counted. */
static void test_pages_are_made_present_before_use(void **state) {
    struct acct_control *c = map_rings(1, 4096, 4096); /* 256 KB of slots */
    struct ring_writer w;
    union any got;
    uint64_t kept = 0;
    (void)state;
    present_base = (unsigned char *)c + c->rings_offset + ACCT_RING_HEADER_BYTES;
    present_to = 0;
    present_most = 128 << 10;
    ring_attach(&w, c, (unsigned)ring_claim(c));
    ring_present_by(&w, present_in_order);
    for (uint64_t i = 1; i <= 3000; i++) {
        kept += (uint64_t)put_alloc(&w, i, i);
        assert_true(w.head * 64 <= present_to);
    }
    assert_int_equal(kept, (128 << 10) / 64);
    assert_int_equal(((struct acct_ring *)(present_base - ACCT_RING_HEADER_BYTES))->lost_records, 3000 - kept);
    present_most = 256 << 10; /* memory is there again */
    for (uint64_t i = 1; i <= 10000; i++) {
        assert_true(put_alloc(&w, i, i));
        while (take(c, 0, &got)) {
        }
    }
    assert_int_equal(present_to, 256 << 10);
    assert_true(w.head > 2 * 4096);
    munmap(c, c->total_bytes);
}

struct stress {
    struct acct_control *c;
    _Atomic uint64_t done, kept;
    uint64_t wait_ns;
};
enum { STRESS = 300000 };

static void *stress_writer(void *arg) {
    struct stress *s = arg;
    struct ring_writer w;
    uint64_t kept = 0;
    ring_attach(&w, s->c, (unsigned)ring_claim(s->c));
    ring_wait_by(&w, s->wait_ns);
    for (uint64_t i = 1; i <= STRESS; i++) {
        kept += (uint64_t)put_alloc(&w, i, i);
        if (i % 4096 == 0) sched_yield();
    }
    s->kept = kept;
    ring_retire(&w, 0);
    s->done = 1;
    return NULL;
}

/* Two threads: what arrives is in order and untorn, and what does not is told in place. */
static void write_and_read_at_once(uint64_t wait_ns) {
    struct stress s = {map_rings(1, 256, 4096), 0, 0, wait_ns};
    pthread_t t;
    union any got;
    uint64_t expect = 1, kept = 0;
    assert_int_equal(pthread_create(&t, NULL, stress_writer, &s), 0);
    for (int last = 0;;) {
        int n = take(s.c, 0, &got);
        if (!n && last) break;
        last = !n && s.done;
        if (!n) continue;
        if (got.hdr.event == ACCT_EV_LOST) {
            expect += (uint64_t)got.lost.records;
            continue;
        }
        assert_int_equal(got.alloc.address, expect);
        assert_int_equal(got.hdr.start_ns, expect);
        expect++;
        kept++;
    }
    pthread_join(t, NULL);
    assert_int_equal(kept, s.kept);
    struct acct_ring *r = (struct acct_ring *)((char *)s.c + s.c->rings_offset);
    assert_int_equal(kept + r->lost_records, STRESS);
    if (wait_ns) assert_int_equal(kept, STRESS);
    munmap(s.c, s.c->total_bytes);
}

static void test_writer_and_reader_at_once(void **state) {
    (void)state;
    write_and_read_at_once(0);
}

static void test_a_writer_that_waits_loses_nothing(void **state) {
    (void)state;
    write_and_read_at_once(UINT64_C(60000000000));
}

/* Nobody reads: once it has waited its time, it drops as others do, and waits no more. */
static void test_a_writer_does_not_wait_for_ever(void **state) {
    struct fixture *f = *state;
    ring_wait_by(&f->w, 20000000);
    for (uint64_t i = 1; i <= 64; i++) assert_true(put_alloc(&f->w, i, i));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (uint64_t i = 1; i <= 1000; i++) assert_false(put_alloc(&f->w, i, i));
    clock_gettime(CLOCK_MONOTONIC, &b);
    double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    assert_true(s >= 0.02 && s < 10); /* a thousand times 20 ms would be 20 s */
    assert_int_equal(f->w.ring->lost_records, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_refuses_bad_sizes),
        cmocka_unit_test_setup_teardown(test_records_come_back_over_many_wraps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_visible_before_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_ring_drops_counts_and_tells, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loss_at_the_end_of_a_thread_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts_are_whole_and_never_wrap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_text_too_many_is_marked_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rings_are_claimed_once_and_handed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_ring_is_handed_on_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_quarter_full_ring_wakes_a_sleeper_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_quarter_full_blob_ring_wakes_too, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blob_room_is_told_as_it_is, setup, teardown),
        cmocka_unit_test(test_pages_are_made_present_before_use),
        cmocka_unit_test(test_writer_and_reader_at_once),
        cmocka_unit_test(test_a_writer_that_waits_loses_nothing),
        cmocka_unit_test_setup_teardown(test_a_writer_does_not_wait_for_ever, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
