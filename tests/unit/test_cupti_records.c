/* CUPTI's records become the right events: every field, and nothing of what is not ours. Expected values are the
 * numbers that each case puts into the vendor's structs. */
#include "tests/unit/cupti_testing.h"

static CUpti_ActivityKernel10 a_kernel(uint32_t correlation, const char *name) {
    CUpti_ActivityKernel10 k;
    memset(&k, 0, sizeof k);
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.registersPerThread = 41;
    k.start = 1000000007;
    k.end = 1000000107;
    k.deviceId = 3, k.contextId = 4, k.streamId = 13;
    k.gridX = 100, k.gridY = 101, k.gridZ = 102;
    k.blockX = 16, k.blockY = 8, k.blockZ = 2;
    k.staticSharedMemory = 2048, k.dynamicSharedMemory = 4096, k.localMemoryPerThread = 72;
    k.correlationId = correlation;
    k.name = name;
    k.graphNodeId = 77;
    return k;
}

CASE(a_kernel_arrives_whole) {
    make_world(1024, 65536);
    start();
    CUpti_ActivityKernel10 k = a_kernel(21, "_Z4gemmPf");
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1);
    struct acct_ev_activity *a = &nth(ACCT_EV_ACTIVITY, 0)->u.activity;
    CHECK(a->kind == ACCT_activity_KERNEL && a->correlation == 21);
    CHECK(a->device == 3 && a->context == 4 && a->stream == 13);
    CHECK(a->begin_ns == 1000000007 && a->end_ns == 1000000107);
    CHECK(a->grid_x == 100 && a->grid_y == 101 && a->grid_z == 102);
    CHECK(a->block_x == 16 && a->block_y == 8 && a->block_z == 2);
    CHECK(a->registers == 41 && a->static_shared_bytes == 2048 && a->dynamic_shared_bytes == 4096);
    CHECK(a->local_bytes == 72 && a->graph_node == 77);
    CHECK(a->bytes == ACCT_NULL_I64 && a->copy_kind == ACCT_NULL_I32);
    struct told *name = nth(ACCT_EV_NAME, 0);
    CHECK(name && name < nth(ACCT_EV_ACTIVITY, 0)); /* told before it is used */
    CHECK(name->u.name.number == a->name && a->name == 1 && !strcmp(name->text, "_Z4gemmPf"));
    no_rule_broken();
}

CASE(copies_and_memsets_arrive_whole) {
    make_world(1024, 65536);
    start();
    CUpti_ActivityMemcpy6 c = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                               .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
                               .bytes = (uint64_t)5 << 30,
                               .start = 11,
                               .end = 12,
                               .deviceId = 1,
                               .contextId = 2,
                               .streamId = 3,
                               .correlationId = 4,
                               .graphNodeId = 5};
    CUpti_ActivityMemcpyPtoP4 p = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY2,
                                   .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
                                   .bytes = 99,
                                   .start = 21,
                                   .end = 22,
                                   .deviceId = 6,
                                   .contextId = 7,
                                   .streamId = 8,
                                   .correlationId = 9};
    CUpti_ActivityMemset4 s = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                               .value = 0xff,
                               .bytes = 4097,
                               .start = 31,
                               .end = 32,
                               .deviceId = 10,
                               .contextId = 11,
                               .streamId = 12,
                               .correlationId = 13,
                               .graphNodeId = 14};
    world.emit(&c, sizeof c);
    world.emit(&p, sizeof p);
    world.emit(&s, sizeof s);
    wait_for(ACCT_EV_ACTIVITY, 3);
    struct acct_ev_activity *a = &nth(ACCT_EV_ACTIVITY, 0)->u.activity;
    CHECK(a->kind == ACCT_activity_COPY && a->copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
    CHECK(a->bytes == (int64_t)5 << 30 && a->begin_ns == 11 && a->end_ns == 12 && a->device == 1 && a->context == 2);
    CHECK(a->stream == 3 && a->correlation == 4 && a->graph_node == 5 && a->name == 0 && a->grid_x == 0);
    CHECK(a->registers == ACCT_NULL_I32 && a->local_bytes == ACCT_NULL_I32);
    a = &nth(ACCT_EV_ACTIVITY, 1)->u.activity;
    CHECK(a->kind == ACCT_activity_COPY && a->copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP && a->bytes == 99);
    CHECK(a->begin_ns == 21 && a->end_ns == 22 && a->device == 6 && a->stream == 8 && a->correlation == 9);
    a = &nth(ACCT_EV_ACTIVITY, 2)->u.activity;
    CHECK(a->kind == ACCT_activity_MEMSET && a->copy_kind == ACCT_NULL_I32 && a->bytes == 4097);
    CHECK(a->begin_ns == 31 && a->end_ns == 32 && a->device == 10 && a->correlation == 13 && a->graph_node == 14);
    CHECK(count_of(ACCT_EV_NAME) == 0);
}

CASE(a_time_that_could_not_be_taken_is_null) {
    make_world(1024, 65536);
    start();
    CUpti_ActivityKernel10 k = a_kernel(1, "k");
    k.start = k.end = 0;
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1);
    CHECK(nth(ACCT_EV_ACTIVITY, 0)->u.activity.begin_ns == ACCT_NULL_I64);
    CHECK(nth(ACCT_EV_ACTIVITY, 0)->u.activity.end_ns == ACCT_NULL_I64);
}

CASE(only_our_own_correlations_are_taken) {
    make_world(1024, 65536);
    start();
    CUpti_ActivityExternalCorrelation x = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                           .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC,
                                           .externalId = 1,
                                           .correlationId = 2};
    world.emit(&x, sizeof x);
    x.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0; /* another tool's */
    world.emit(&x, sizeof x);
    x.externalKind = CUPTI_OUR_KIND;
    x.externalId = UINT64_C(0x1234567890abcdef);
    x.correlationId = 55;
    world.emit(&x, sizeof x);
    CUpti_ActivityAPI api = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME, .correlationId = 55};
    world.emit(&api, sizeof api);
    CUpti_ActivityKernel10 k = a_kernel(55, "k");
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1);
    CHECK(count_of(ACCT_EV_CORRELATION) == 1);
    struct acct_ev_correlation *c = &nth(ACCT_EV_CORRELATION, 0)->u.correlation;
    CHECK(c->correlation == 55 && c->external == UINT64_C(0x1234567890abcdef));
    CHECK(count_of(ACCT_EV_ACTIVITY) == 1 && count_of(ACCT_EV_LOST) == 0);
}

CASE(names_go_by_their_text) {
    static char same_place[64] = "first";
    static char other_place[] = "first";
    make_world(1024, 65536);
    start();
    CUpti_ActivityKernel10 k = a_kernel(1, same_place);
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1);
    strcpy(same_place, "second");
    world.emit(&k, sizeof k);
    k.name = other_place;
    world.emit(&k, sizeof k);
    k.name = NULL;
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 4);
    CHECK(count_of(ACCT_EV_NAME) == 2);
    CHECK(!strcmp(nth(ACCT_EV_NAME, 0)->text, "first") && !strcmp(nth(ACCT_EV_NAME, 1)->text, "second"));
    static const uint32_t expected[] = {1, 2, 1, 0};
    for (int i = 0; i < 4; i++) CHECK(nth(ACCT_EV_ACTIVITY, i)->u.activity.name == expected[i]);
}

/* More names than the table begins with, and texts that fill more than one piece of its memory and the blob ring. */
CASE(thousands_of_names) {
    enum { N = 3000 };
    static char name[N][900];
    make_world(1024, 65536);
    start();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N; i++) {
            if (round == 0) {
                memset(name[i], 'x', sizeof name[i] - 1);
                name[i][snprintf(name[i], sizeof name[i], "kernel_%d", i)] = '_';
            }
            CUpti_ActivityKernel10 k = a_kernel((uint32_t)i, name[i]);
            world.emit(&k, sizeof k);
            if (i % 64 == 0) read_rings();
        }
    wait_for(ACCT_EV_ACTIVITY, 2 * N);
    CHECK(count_of(ACCT_EV_NAME) == N && count_of(ACCT_EV_LOST) == 0);
    int seen = 0;
    for (int i = 0; i < world.count; i++) { /* every activity has the number under which its name was told */
        struct told *t = &world.told[i];
        if (t->u.hdr.event == ACCT_EV_NAME) {
            CHECK(t->u.name.number == (uint32_t)++seen && t->text && !strcmp(t->text, name[seen - 1]));
        } else if (t->u.hdr.event == ACCT_EV_ACTIVITY)
            CHECK(t->u.activity.name == t->u.activity.correlation + 1);
    }
}

/* A newer CUPTI's struct has fields behind those known. */
CASE(longer_records_are_read_as_what_they_begin_with) {
    struct {
        CUpti_ActivityKernel10 k;
        char more[200];
    } longer;
    make_world(1024, 65536);
    start();
    memset(&longer, 0xee, sizeof longer);
    for (uint32_t i = 1; i <= 500; i++) {
        longer.k = a_kernel(i, "k");
        world.emit(&longer, sizeof longer);
        read_rings();
    }
    wait_for(ACCT_EV_ACTIVITY, 500);
    for (int i = 0; i < 500; i++) CHECK(nth(ACCT_EV_ACTIVITY, i)->u.activity.correlation == (uint32_t)i + 1);
    CHECK(nth(ACCT_EV_ACTIVITY, 499)->u.activity.graph_node == 77);
}

CASE(records_of_unknown_kinds_are_passed_over) {
    make_world(1024, 65536);
    start();
    uint32_t strange[8] = {0x7ffffffe, 1, 2, 3, 4, 5, 6, 7}, none[2] = {0, 0};
    world.emit(strange, sizeof strange);
    world.emit(none, sizeof none);
    CUpti_ActivityKernel10 k = a_kernel(8, "k");
    world.emit(&k, sizeof k);
    world.emit(&k, 20); /* cut off by the end of the buffer: not read beyond */
    wait_for(ACCT_EV_ACTIVITY, 1);
    usleep(300000);
    read_rings();
    CHECK(count_of(ACCT_EV_ACTIVITY) == 1 && nth(ACCT_EV_ACTIVITY, 0)->u.activity.correlation == 8);
}

static void astray(int how) {
    make_world(1024, 65536);
    start();
    world.fake->stray_record = how;
    CUpti_ActivityKernel10 k = a_kernel(8, "k");
    world.emit(&k, sizeof k);
    for (int i = 0; i < 100 && !world.fake->buffers_completed; i++) usleep(10000);
    CHECK(world.fake->buffers_completed);
    usleep(50000);
    world.fake->stray_record = 0;
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1); /* the next buffer is read */
}
CASE(a_record_outside_its_buffer) {
    astray(1);
}
CASE(records_that_go_round_in_circles) {
    astray(2);
}
CASE(a_record_over_the_end_of_its_buffer) {
    astray(3);
}

static void wait_for_dropped(int64_t n) {
    for (int i = 0; i < 10000 && last_cupti()->u.cupti.dropped < n; i++) {
        usleep(1000);
        read_rings();
    }
    CHECK(last_cupti()->u.cupti.dropped == n);
}

CASE(what_cupti_dropped_is_told) {
    make_world(4096, 65536);
    start();
    world.fake->lose = 10;
    for (uint32_t i = 0; i < 100; i++) {
        CUpti_ActivityKernel10 k = a_kernel(i, "k");
        world.emit(&k, sizeof k);
    }
    wait_for(ACCT_EV_ACTIVITY, 90);
    wait_for_dropped(10);
    struct told *t = last_cupti();
    CHECK(t->u.cupti.status == 0 && !t->text && t->u.cupti.version == 130001);
    for (uint32_t i = 0; i < 20; i++) {
        CUpti_ActivityKernel10 k = a_kernel(i, "k");
        world.emit(&k, sizeof k);
    }
    wait_for_dropped(12); /* so far, not since the last time */
}

/* A ring of 64 slots and 4 KB takes 20 activities at once: the helper waits for the reader. */
CASE(a_burst_waits_for_room) {
    enum { N = 20000 };
    make_world(64, 4096);
    start();
    for (uint32_t i = 0; i < N; i++) {
        CUpti_ActivityKernel10 k = a_kernel(i, i % 2 ? "odd" : "even");
        world.emit(&k, sizeof k);
    }
    for (int i = 0; i < 60000 && count_of(ACCT_EV_ACTIVITY) < N; i++) {
        read_rings();
        usleep(100);
    }
    CHECK(count_of(ACCT_EV_ACTIVITY) == N && count_of(ACCT_EV_LOST) == 0);
    int i = 0;
    for (int k = 0; k < world.count; k++)
        if (world.told[k].u.hdr.event == ACCT_EV_ACTIVITY) CHECK(world.told[k].u.activity.correlation == (uint32_t)i++);
    no_rule_broken();
}

/* Nobody reads: the program's threads go on at full speed, the helper gives up, and what was lost is counted. */
CASE(a_collector_that_reads_no_more) {
    make_world(64, 4096);
    start();
    uint64_t begun = cupti_now();
    for (uint32_t i = 0; i < 2000; i++) {
        CUpti_ActivityKernel10 k = a_kernel(i, "k");
        world.emit(&k, sizeof k);
    }
    CHECK(cupti_now() - begun < 1000000000u);
    struct acct_ring *ring = world.reader[1].ring;
    for (int i = 0; i < 800 && atomic_load(&ring->lost_records) < 1900; i++) usleep(10000);
    CHECK(atomic_load(&ring->lost_records) >= 1900);
    read_rings();
    CUpti_ActivityKernel10 k = a_kernel(1, "k");
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_LOST, 1); /* it comes back as soon as somebody reads again */
    int told = 0;
    for (int i = 0; i < 5000 && told < 2001; i++, usleep(1000)) {
        read_rings();
        told = count_of(ACCT_EV_ACTIVITY) + (int)atomic_load(&ring->lost_records);
    }
    CHECK(told == 2001);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_arrives_whole),
        cmocka_unit_test(copies_and_memsets_arrive_whole),
        cmocka_unit_test(a_time_that_could_not_be_taken_is_null),
        cmocka_unit_test(only_our_own_correlations_are_taken),
        cmocka_unit_test(names_go_by_their_text),
        cmocka_unit_test(thousands_of_names),
        cmocka_unit_test(longer_records_are_read_as_what_they_begin_with),
        cmocka_unit_test(records_of_unknown_kinds_are_passed_over),
        cmocka_unit_test(a_record_outside_its_buffer),
        cmocka_unit_test(records_that_go_round_in_circles),
        cmocka_unit_test(a_record_over_the_end_of_its_buffer),
        cmocka_unit_test(what_cupti_dropped_is_told),
        cmocka_unit_test(a_burst_waits_for_room),
        cmocka_unit_test(a_collector_that_reads_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
