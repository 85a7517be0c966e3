/* Reading rings: what the writer wrote comes out; what no writer would write is refused without being believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "trace/ring.h"
#include "trace/ring_read.h"

#define SLOTS 64u
#define BLOB 4096u

static struct acct_control *control;
static struct ring_map map;
static struct ring_writer writer;
static struct ring_reader reader;
static struct ring_record record;
static char texts[BLOB], err[256];

static int setup(void **state) {
    struct acct_control layout;
    (void)state;
    memset(&layout, 0, sizeof layout);
    if (ring_layout(&layout, 2, SLOTS, BLOB, 1)) return -1;
    control = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memcpy(control, &layout, sizeof layout);
    if (ring_map_check(&map, control, layout.total_bytes, err, sizeof err)) return -1;
    ring_attach(&writer, control, (unsigned)ring_claim(control));
    ring_reader_init(&reader, &map, 0, texts);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return munmap(control, map.total_bytes);
}

static struct acct_ev_blas *write_blas(const char *routine, uint64_t now) {
    struct acct_ev_blas *b = ring_begin(&writer, ACCT_EV_BLAS, sizeof *b, now);
    if (!b) return NULL;
    memset((char *)b + sizeof b->hdr, 0, sizeof *b - sizeof b->hdr);
    b->routine = ring_text(&writer, routine, routine ? strlen(routine) : 0);
    return b;
}

static int read_one(void) {
    return ring_read(&reader, ring_reader_head(&reader), &record);
}

/* Records of several lengths and texts, many times round both rings. */
static void everything_comes_out_in_order(void **state) {
    (void)state;
    char name[100];
    for (uint64_t i = 1; i < 5000; i++) {
        int length = snprintf(name, sizeof name, "%0*llu", (int)(1 + i % 90), (unsigned long long)i);
        if (i % 3)
            assert_non_null(write_blas(name, i));
        else {
            struct acct_ev_free *f = ring_begin(&writer, ACCT_EV_FREE, sizeof *f, i);
            assert_non_null(f);
            f->address = i;
            f->memory = 0;
        }
        ring_commit(&writer);
        assert_int_equal(read_one(), 1);
        assert_int_equal(record.u.hdr.start_ns, i);
        if (i % 3) {
            assert_int_equal(record.texts[0].length, length);
            assert_memory_equal(record.texts[0].bytes, name, length);
        } else
            assert_int_equal(((struct acct_ev_free *)(void *)record.u.bytes)->address, i);
        assert_int_equal(read_one(), 0);
        ring_release(&reader);
    }
    assert_int_equal(atomic_load(&writer.ring->lost_records), 0);
    assert_int_equal(atomic_load(&writer.ring->lost_blobs), 0);
}

static void full_ring_tells_what_it_lost(void **state) {
    (void)state;
    uint64_t written = 0, lost = 0, seen = 0;
    for (uint64_t i = 1; i <= 100; i++) written += write_blas("x", i) != NULL;
    ring_commit(&writer);
    while (read_one() == 1) seen++;
    ring_release(&reader);
    assert_int_equal(seen, written);
    assert_non_null(write_blas("y", 200));
    ring_commit(&writer);
    assert_int_equal(read_one(), 1);
    assert_int_equal(record.u.hdr.event, ACCT_EV_LOST);
    lost = (uint64_t)((struct acct_ev_lost *)(void *)record.u.bytes)->records;
    assert_int_equal(written + lost, 100);
    assert_int_equal(read_one(), 1);
    assert_memory_equal(record.texts[0].bytes, "y", 1);
}

static void unknown_text_is_not_an_empty_one(void **state) {
    (void)state;
    write_blas(NULL, 1);
    write_blas("", 2);
    ring_commit(&writer);
    assert_int_equal(read_one(), 1);
    assert_null(record.texts[0].bytes);
    assert_int_equal(read_one(), 1);
    assert_non_null(record.texts[0].bytes);
    assert_int_equal(record.texts[0].length, 0);
}

static void limit_is_kept(void **state) {
    (void)state;
    write_blas("a", 1);
    ring_commit(&writer);
    uint64_t limit = ring_reader_head(&reader);
    write_blas("b", 2);
    ring_commit(&writer);
    assert_int_equal(ring_read(&reader, limit, &record), 1);
    assert_int_equal(ring_read(&reader, limit, &record), 0);
}

/* ---- corrupt records: one valid record, one field of it spoilt ----------------------------------------------------
 */

static void refused(const char *fault) {
    ring_commit(&writer);
    assert_int_equal(read_one(), -1);
    assert_string_equal(reader.fault, fault);
}

static void record_of_no_slots(void **state) {
    (void)state;
    write_blas("x", 1)->hdr.slots = 0;
    refused("record of no slots");
}

static void record_past_head(void **state) {
    (void)state;
    write_blas("x", 1)->hdr.slots = 200;
    refused("record past the end");
}

static void record_past_the_rings_end(void **state) {
    (void)state;
    for (uint64_t i = 0; i < SLOTS - 4; i++) {
        ring_begin(&writer, ACCT_EV_PAD, 1, i + 1);
        ring_commit(&writer);
    }
    assert_int_equal(read_one(), 0);
    ring_release(&reader);
    struct acct_ev_blas *b = write_blas("x", 1); /* takes exactly the last four slots or begins anew */
    b->hdr.slots = 5;
    writer.head += 60;
    ring_commit(&writer);
    assert_int_equal(read_one(), -1);
}

static void unknown_event(void **state) {
    (void)state;
    write_blas("x", 1)->hdr.event = ACCT_EV_COUNT;
    refused("event number");
}

static void record_too_short(void **state) {
    (void)state;
    struct acct_ev_blas *b = write_blas("x", 1);
    b->hdr.slots = 1;
    refused("record too short");
}

static void unknown_enum_value(void **state) {
    (void)state;
    write_blas("x", 1)->type = 77;
    refused("enum value");
}

static void text_not_yet_written(void **state) {
    (void)state;
    write_blas("x", 1)->routine.position = 100;
    refused("text position");
}

static void text_already_given_back(void **state) {
    (void)state;
    write_blas("hello", 1);
    ring_commit(&writer);
    assert_int_equal(read_one(), 1);
    write_blas("world", 2)->routine.position = 0;
    refused("text position");
}

static void text_longer_than_written(void **state) {
    (void)state;
    write_blas("x", 1)->routine.bytes = UINT32_MAX;
    refused("text position");
}

static void blob_head_from_nowhere(void **state) {
    (void)state;
    write_blas("x", 1);
    writer.blob_head += 1u << 20;
    refused("blob position");
}

static void head_from_nowhere(void **state) {
    (void)state;
    write_blas("x", 1);
    writer.head += 1u << 20;
    refused("head");
}

static void head_that_goes_back(void **state) {
    (void)state;
    write_blas("x", 1);
    ring_commit(&writer);
    assert_int_equal(read_one(), 1);
    writer.head = 1;
    refused("head");
}

/* ---- the control page -------------------------------------------------------------------------------------------- */

static void bad_geometry_is_refused(void **state) {
    (void)state;
    struct acct_control good = *control;
    struct ring_map m;
#define SPOIL(field, value)                                                                   \
    do {                                                                                      \
        *control = good;                                                                      \
        control->field = value;                                                               \
        assert_int_equal(ring_map_check(&m, control, good.total_bytes, err, sizeof err), -1); \
    } while (0)
    SPOIL(magic, 1);
    SPOIL(version, 99);
    SPOIL(max_rings, 0);
    SPOIL(max_rings, 3);
    SPOIL(max_rings, ACCT_MAX_RINGS + 1);
    SPOIL(ring_slots, 0);
    SPOIL(ring_slots, 96);
    SPOIL(ring_slots, 1u << 31);
    SPOIL(blob_bytes, 5000);
    SPOIL(blob_bytes, 1u << 31);
    SPOIL(rings_offset, 64);
    SPOIL(rings_offset, 4097);
    SPOIL(rings_offset, UINT64_MAX - 4095);
    SPOIL(ring_stride, 4096);
    SPOIL(ring_stride, UINT64_MAX - 4095);
    SPOIL(total_bytes, good.total_bytes + 4096);
    *control = good;
    assert_int_equal(ring_map_check(&m, control, 100, err, sizeof err), -1);
    assert_int_equal(ring_map_check(&m, control, good.total_bytes - 4096, err, sizeof err), -1);
    assert_int_equal(ring_map_check(&m, control, good.total_bytes, err, sizeof err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_comes_out_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(full_ring_tells_what_it_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_text_is_not_an_empty_one, setup, teardown),
        cmocka_unit_test_setup_teardown(limit_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(record_of_no_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(record_past_head, setup, teardown),
        cmocka_unit_test_setup_teardown(record_past_the_rings_end, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_event, setup, teardown),
        cmocka_unit_test_setup_teardown(record_too_short, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_enum_value, setup, teardown),
        cmocka_unit_test_setup_teardown(text_not_yet_written, setup, teardown),
        cmocka_unit_test_setup_teardown(text_already_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(text_longer_than_written, setup, teardown),
        cmocka_unit_test_setup_teardown(blob_head_from_nowhere, setup, teardown),
        cmocka_unit_test_setup_teardown(head_from_nowhere, setup, teardown),
        cmocka_unit_test_setup_teardown(head_that_goes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_geometry_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
