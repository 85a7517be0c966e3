/* Start, refusal, exit, fork and the buffers of the collector of device times, against the scripted libcupti. */
#include "tests/unit/cupti_testing.h"

static CUpti_ActivityKernel10 a_kernel(uint32_t correlation) {
    CUpti_ActivityKernel10 k;
    memset(&k, 0, sizeof k);
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.correlationId = correlation;
    k.name = "k";
    return k;
}

/* ---- start ---- */

CASE(subscribes_first_and_says_so) {
    make_world(1024, 65536);
    CHECK(!cupti_on() && cupti_push(1) == 0);
    start();
    CHECK(cupti_on() && world.tool_threads == 1);
    CHECK(world.fake->subscribed && world.fake->pinned == 1 && world.fake->kinds_enabled == 5);
    CHECK(world.fake->calls_enabled > 100); /* of runtime and driver, the variants per thread too */
    CHECK(count_of(ACCT_EV_CUPTI) == 1);
    struct told *t = last_cupti();
    CHECK(t->u.cupti.status == 0 && !t->text && t->u.cupti.version == 130001 && t->u.cupti.dropped == 0);
    no_rule_broken();
}

CASE(its_clock_is_ours) {
    make_world(1024, 65536);
    start();
    uint64_t before = cupti_now(), told = world.clock(), after = cupti_now();
    CHECK(before <= told && told <= after);
}

CASE(marks_nest) {
    make_world(1024, 65536);
    start();
    world.fake->eager = 1000;
    CHECK(cupti_push(71) == 1);
    CHECK(cupti_push(72) == 1);
    cupti_pop();
    cupti_pop();
    wait_for(ACCT_EV_ACTIVITY, 2);
    CHECK(world.fake->pushes == 2 && world.fake->pops == 2 && count_of(ACCT_EV_CORRELATION) == 2);
    for (int i = 0; i < 2; i++) {
        struct acct_ev_correlation *c = &nth(ACCT_EV_CORRELATION, i)->u.correlation;
        struct acct_ev_activity *a = &nth(ACCT_EV_ACTIVITY, i)->u.activity;
        CHECK(c->external == (uint64_t)72 - (uint64_t)i && c->correlation == a->correlation);
        CHECK(a->end_ns - a->begin_ns == 1000);
    }
    no_rule_broken();
}

/* ---- refusals: a reason, nothing on, nothing left behind ---- */

static void refused(const char *expected, int status) {
    start();
    CHECK(!cupti_on() && cupti_push(1) == 0);
    struct told *t = last_cupti();
    CHECK(t && t->text && count_of(ACCT_EV_CUPTI) == 1);
    if (!strstr(t->text, expected)) printf("told: %s\n", t->text);
    CHECK(strstr(t->text, expected) && t->u.cupti.status == status);
    CHECK(!world.fake->subscribed && world.fake->kinds_enabled == 0 && world.fake->calls_enabled == 0);
    cupti_stop();
    no_rule_broken();
}

static void fails(const char *function, int error, const char *expected) {
    make_world(1024, 65536);
    strcpy(world.fake->fail, function);
    world.fake->error = error;
    refused(expected, error);
}
CASE(another_subscriber) {
    fails("cuptiSubscribe", 39, "another profiler in this process already uses CUPTI (error 39)");
}
CASE(no_driver) {
    fails("cuptiSubscribe", 999, "cuptiSubscribe: CUPTI could not start; without a driver it cannot (error 999)");
}
CASE(no_permission) {
    fails("cuptiActivityEnable", 35, "cuptiActivityEnable: no permission to trace the device (error 35)");
}
CASE(no_clock) {
    fails("cuptiActivityRegisterTimestampCallback", 7, "cuptiActivityRegisterTimestampCallback: refused (error 7)");
}
CASE(no_callbacks) {
    fails("cuptiActivityRegisterCallbacks", 1, "cuptiActivityRegisterCallbacks");
}
CASE(no_call_can_be_enabled) {
    make_world(1024, 65536);
    strcpy(world.fake->fail, "cuptiActivityEnableRuntimeApi");
    world.fake->error = 7;
    start();
    CHECK(cupti_on()); /* those of the driver can */
}
CASE(no_version) {
    fails("cuptiGetVersion", 15, "cuptiGetVersion");
}

static void version(unsigned v, int known) {
    make_world(1024, 65536);
    world.fake->version = v;
    if (!known) {
        refused("is unknown to acct", ACCT_NULL_I32);
        CHECK(last_cupti()->u.cupti.version == v);
        return;
    }
    start();
    CHECK(cupti_on() && last_cupti()->u.cupti.version == v);
}
CASE(version_of_cuda_12_9) {
    version(28, 1);
}
CASE(version_of_cuda_13_3) {
    version(130300, 1);
}
CASE(version_of_cuda_11) {
    version(17, 0);
}
CASE(version_of_cuda_14) {
    version(140000, 0);
}

CASE(no_ring) {
    make_world(1024, 65536);
    world.rings_free = 0;
    refused("no ring is free", ACCT_NULL_I32);
}

CASE(switched_off) {
    make_world(1024, 65536);
    setenv("ACCT_CUPTI", "off", 1);
    refused("switched off", ACCT_NULL_I32);
    CHECK(world.tool_threads == 0);
}

static void *no_find(const char *name, const char *library) {
    (void)library;
    return strcmp(name, "acctVgpuDevice") ? NULL
                                          : (void *)cupti_append; /* in the test program: no libcupti beside it */
}

CASE(no_library_beside_the_virtual_gpu) {
    static const struct cupti_host elsewhere = {take_ring, tool_thread, no_find};
    make_world(1024, 65536);
    cupti_start(&elsewhere, &world.program);
    read_rings();
    CHECK(!cupti_on() && strstr(last_cupti()->text, "beside the virtual GPU"));
}

/* The first call goes on after ACCT_START_TIMEOUT; what becomes of it later is told later. */
CASE(a_start_that_takes_long) {
    make_world(1024, 65536);
    setenv("ACCT_START_TIMEOUT", "200", 1);
    strcpy(world.fake->hang, "cuptiSubscribe");
    world.fake->hang_ms = 1000;
    uint64_t begun = cupti_now();
    start();
    CHECK(cupti_now() - begun < 900000000u);
    CHECK(!cupti_on() && strstr(last_cupti()->text, "ACCT_START_TIMEOUT"));
    wait_for(ACCT_EV_CUPTI, 2);
    CHECK(cupti_on() && !last_cupti()->text && last_cupti()->u.cupti.status == 0);
}

static void *small_thread(void *arg) {
    (void)arg;
    start();
    return NULL;
}

/* libcupti is not opened on the program's stack. */
CASE(a_first_call_on_a_small_stack) {
    pthread_attr_t attr;
    pthread_t t;
    make_world(1024, 65536);
    pthread_attr_init(&attr);
    CHECK(pthread_attr_setstacksize(&attr, 64 << 10) == 0); /* start() itself has a record of 16 KB */
    CHECK(pthread_create(&t, &attr, small_thread, NULL) == 0);
    pthread_join(t, NULL);
    CHECK(cupti_on());
}

/* setuid() waits for every thread to answer a signal of glibc's own. */
CASE(glibc_still_reaches_the_helper) {
    make_world(1024, 65536);
    start();
    CHECK(setuid(getuid()) == 0); /* or the alarm ends this */
}

/* ---- exit ---- */

static void at_the_end(int status, void *unused) {
    (void)unused;
    cupti_stop();
    read_rings();
    CHECK(!cupti_on() && status == 0);
    CHECK(count_of(ACCT_EV_ACTIVITY) == 3 && world.fake->forced == 1);
    CHECK(atomic_load(&world.control->ring_state[1]) == ACCT_RING_RETIRED);
    no_rule_broken();
    _exit(0);
}

/* What has not ended keeps its buffer from an ordinary flush; at exit it is forced, before cupti_stop. */
CASE(the_rest_is_fetched_at_exit) {
    make_world(1024, 65536);
    on_exit(at_the_end, NULL); /* registered first, runs last, as the library's own does */
    start();
    world.fake->incomplete = 1;
    for (uint32_t i = 0; i < 3; i++) {
        CUpti_ActivityKernel10 k = a_kernel(i);
        world.emit(&k, sizeof k);
    }
    usleep(250000);
    read_rings();
    CHECK(count_of(ACCT_EV_ACTIVITY) == 0 && world.fake->flushes > 0 && world.fake->forced == 0);
    exit(0);
}

static uint64_t exit_begun;
static void bounded(int status, void *unused) {
    (void)status, (void)unused;
    cupti_stop();
    CHECK(cupti_now() - exit_begun < 2000000000u);
    _exit(0);
}

CASE(a_flush_that_hangs_does_not_keep_the_program) {
    make_world(1024, 65536);
    setenv("ACCT_EXIT_TIMEOUT", "300", 1);
    on_exit(bounded, NULL);
    world.fake->hang_ms = 20000;
    strcpy(world.fake->hang, "cuptiActivityFlushAll");
    start();
    exit_begun = cupti_now();
    exit(0);
}

CASE(stop_ends_the_helper) {
    make_world(1024, 65536);
    start();
    cupti_stop();
    CHECK(!cupti_on() && atomic_load(&world.control->ring_state[1]) == ACCT_RING_RETIRED);
    int flushes = world.fake->flushes;
    usleep(250000);
    CHECK(world.fake->flushes == flushes);
    size_t bytes;
    CHECK(world.ask(&bytes) == NULL && bytes == 0);
    cupti_stop();
}

/* ---- fork ---- */

CASE(a_forked_child_touches_nothing) {
    make_world(1024, 65536);
    start();
    CUpti_ActivityKernel10 k = a_kernel(1);
    world.emit(&k, sizeof k);
    wait_for(ACCT_EV_ACTIVITY, 1);
    world.emit(&k, sizeof k); /* a buffer is half full at the fork */
    int status, pushes = world.fake->pushes;
    pid_t pid = fork();
    if (!pid) {
        size_t bytes = 1;
        uint8_t any[64];
        CHECK(!cupti_on() && cupti_push(5) == 0 && world.fake->pushes == pushes);
        cupti_pop();
        world.complete(any, sizeof any, sizeof any);
        CHECK(!world.ask(&bytes) && bytes == 0);
        strcpy(world.fake->violation, ""); /* that was this test's own doing */
        cupti_stop();
        /* its first recorded call */
        forget_world();
        make_world(1024, 65536);
        start();
        CHECK(!cupti_on() && strstr(last_cupti()->text, "forked") && world.tool_threads == 1);
        CHECK(ring_reader_head(&world.reader[1]) == 0);
        no_rule_broken();
        exit(0); /* runs the inherited exit handler */
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    wait_for(ACCT_EV_ACTIVITY, 2); /* the parent's goes on */
    no_rule_broken();
}

CASE(a_child_of_a_process_without_cupti_may_try) {
    make_world(1024, 65536);
    strcpy(world.fake->fail, "cuptiSubscribe");
    world.fake->error = 39;
    start();
    int status;
    usleep(100000); /* the helper has ended */
    pid_t pid = fork();
    if (!pid) {
        world.fake->fail[0] = 0;
        start();
        CHECK(cupti_on());
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* ---- buffers ---- */

CASE(every_buffer_is_its_own_and_then_there_are_none) {
    static uint8_t *had[CUPTI_MAX_BUFFERS];
    size_t bytes;
    make_world(1024, 65536);
    start();
    for (uint32_t i = 0; i < CUPTI_MAX_BUFFERS; i++) {
        CHECK((had[i] = world.ask(&bytes)) && bytes == CUPTI_BUFFER_BYTES);
        memset(had[i], (int)i, bytes);
    }
    CHECK(!world.ask(&bytes) && bytes == 0 && world.fake->buffers_refused == 1);
    usleep(250000); /* the helper's rounds leave them alone */
    for (uint32_t i = 0; i < CUPTI_MAX_BUFFERS; i++)
        for (size_t at = 0; at < CUPTI_BUFFER_BYTES; at += 4093) CHECK(had[i][at] == (uint8_t)i);
    world.complete(had[7], CUPTI_BUFFER_BYTES, 0);
    uint8_t *again = NULL;
    for (int i = 0; i < 1000 && !(again = world.ask(&bytes)); i++) usleep(1000);
    CHECK(again == had[7]);
    no_rule_broken();
}

CASE(what_is_no_buffer_of_ours_is_left_alone) {
    uint8_t strange[64];
    size_t bytes;
    make_world(1024, 65536);
    start();
    uint8_t *p = world.ask(&bytes);
    world.complete(strange, sizeof strange, sizeof strange);
    world.complete(p + 8, bytes - 8, 8);
    world.complete(NULL, 0, 0);
    world.complete(p, bytes, 0);
    world.complete(p, bytes, 0); /* twice */
    usleep(250000);
    uint8_t *a = world.ask(&bytes), *b = world.ask(&bytes);
    CHECK(a && b && a != b);
}

enum { THREADS = 6, ROUNDS = 4000 };

/* Each thread fills what it gets with its own number, and must find it so. */
static void *churn(void *arg) {
    uint8_t mine = (uint8_t)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes;
        uint8_t *p[3];
        for (int k = 0; k < 3; k++)
            if ((p[k] = world.ask(&bytes))) memset(p[k], mine, 512);
        for (int k = 0; k < 3; k++) {
            for (int b = 0; p[k] && b < 512; b += 7) CHECK(p[k][b] == mine);
            if (p[k]) world.complete(p[k], bytes, 0);
        }
    }
    return NULL;
}

CASE(threads_never_share_a_buffer) {
    pthread_t t[THREADS];
    make_world(1024, 65536);
    start();
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    usleep(200000);
    int had = 0;
    size_t bytes;
    while (world.ask(&bytes)) had++;
    CHECK(had == (int)CUPTI_MAX_BUFFERS); /* none went astray */
}

static void *emit_many(void *arg) {
    uint32_t base = (uint32_t)(uintptr_t)arg * 10000;
    for (uint32_t i = 0; i < 5000; i++) {
        CUpti_ActivityKernel10 k = a_kernel(base + i);
        world.emit(&k, sizeof k);
    }
    return NULL;
}

/* Full buffers are completed on the threads that fill them. */
CASE(records_of_many_threads_all_arrive) {
    pthread_t t[4];
    make_world(1 << 16, 65536);
    start();
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&t[i], NULL, emit_many, (void *)i) == 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    wait_for(ACCT_EV_ACTIVITY, 20000);
    static char seen[40000];
    for (int i = 0; i < world.count; i++)
        if (world.told[i].u.hdr.event == ACCT_EV_ACTIVITY) CHECK(!seen[world.told[i].u.activity.correlation]++);
    CHECK(count_of(ACCT_EV_ACTIVITY) == 20000 && world.fake->buffers_completed > 20);
    no_rule_broken();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribes_first_and_says_so),
        cmocka_unit_test(its_clock_is_ours),
        cmocka_unit_test(marks_nest),
        cmocka_unit_test(another_subscriber),
        cmocka_unit_test(no_driver),
        cmocka_unit_test(no_permission),
        cmocka_unit_test(no_clock),
        cmocka_unit_test(no_callbacks),
        cmocka_unit_test(no_call_can_be_enabled),
        cmocka_unit_test(no_version),
        cmocka_unit_test(version_of_cuda_12_9),
        cmocka_unit_test(version_of_cuda_13_3),
        cmocka_unit_test(version_of_cuda_11),
        cmocka_unit_test(version_of_cuda_14),
        cmocka_unit_test(no_ring),
        cmocka_unit_test(switched_off),
        cmocka_unit_test(no_library_beside_the_virtual_gpu),
        cmocka_unit_test(a_start_that_takes_long),
        cmocka_unit_test(a_first_call_on_a_small_stack),
        cmocka_unit_test(glibc_still_reaches_the_helper),
        cmocka_unit_test(the_rest_is_fetched_at_exit),
        cmocka_unit_test(a_flush_that_hangs_does_not_keep_the_program),
        cmocka_unit_test(stop_ends_the_helper),
        cmocka_unit_test(a_forked_child_touches_nothing),
        cmocka_unit_test(a_child_of_a_process_without_cupti_may_try),
        cmocka_unit_test(every_buffer_is_its_own_and_then_there_are_none),
        cmocka_unit_test(what_is_no_buffer_of_ours_is_left_alone),
        cmocka_unit_test(threads_never_share_a_buffer),
        cmocka_unit_test(records_of_many_threads_all_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
