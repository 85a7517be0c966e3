/* For the tests of cupti/: rings in this process' memory, read with the collector's reader, and the scripted libcupti
 * (support/fake_cupti.c). The collector of device times is once a process, so each case runs in a forked child. */
#ifndef CUPTI_TESTING_H
#define CUPTI_TESTING_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cupti/cupti_inside.h"
#include "tests/support/fake_cupti.h"
#include "trace/ring_read.h"

#define CHECK(x)                                                    \
    do {                                                            \
        if (!(x)) {                                                 \
            printf("%s:%d: %s is false\n", __FILE__, __LINE__, #x); \
            fflush(stdout);                                         \
            _exit(1);                                               \
        }                                                           \
    } while (0)

enum { RINGS = 2, MOST_EVENTS = 1 << 18 };

struct told {
    union {
        struct acct_rec hdr;
        struct acct_ev_cupti cupti;
        struct acct_ev_name name;
        struct acct_ev_correlation correlation;
        struct acct_ev_activity activity;
        struct acct_ev_lost lost;
    } u;
    char *text; /* the event's text; NULL: none */
};

static struct {
    struct acct_control *control;
    struct ring_writer program; /* ring 0: the thread that makes the first call; the helper gets ring 1 */
    struct ring_reader reader[RINGS];
    char *texts;
    struct told *told; /* of all rings, in the order in which they were read */
    int count;
    struct fake_cupti *fake;
    fake_emit_fn *emit;
    fake_clock_fn *clock;
    fake_ask_fn *ask;
    fake_complete_fn *complete;
    int rings_free, tool_threads;
} world;

static int take_ring(struct ring_writer *w) {
    if (!world.rings_free) return -1;
    int i = ring_claim(world.control);
    ring_attach(w, world.control, (unsigned)i);
    return i;
}

static void tool_thread(void) {
    __atomic_add_fetch(&world.tool_threads, 1, __ATOMIC_SEQ_CST);
}

/* The scripted library is found as the virtual GPU's is: beside the runtime that has this function. */
static void *find(const char *name, const char *library) {
    (void)library;
    return strcmp(name, "acctVgpuDevice") ? NULL : (void *)world.emit;
}

static const struct cupti_host host = {take_ring, tool_thread, find};

static void open_fake(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    CHECK(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/fake_cupti/libcupti.so.13");
    void *handle = dlopen(path, RTLD_NOW);
    CHECK(handle);
    world.fake = dlsym(handle, "fake_cupti");
    *(void **)&world.emit = dlsym(handle, "fake_emit");
    *(void **)&world.clock = dlsym(handle, "fake_clock");
    *(void **)&world.ask = dlsym(handle, "fake_ask");
    *(void **)&world.complete = dlsym(handle, "fake_complete");
    CHECK(world.fake && world.emit && world.clock && world.ask && world.complete);
}

static void make_world(uint32_t slots, uint32_t blob) {
    struct acct_control geometry;
    struct ring_map map;
    char err[256];
    memset(&geometry, 0, sizeof geometry);
    CHECK(ring_layout(&geometry, RINGS, slots, blob, 1) == 0);
    world.control = mmap(NULL, geometry.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(world.control != MAP_FAILED);
    CHECK(ring_layout(world.control, RINGS, slots, blob, 1) == 0);
    CHECK(ring_map_check(&map, world.control, geometry.total_bytes, err, sizeof err) == 0);
    world.texts = malloc(blob);
    world.told = calloc(MOST_EVENTS, sizeof *world.told);
    CHECK(world.texts && world.told);
    for (uint32_t i = 0; i < RINGS; i++) ring_reader_init(&world.reader[i], &map, i, world.texts);
    world.rings_free = 1;
    ring_attach(&world.program, world.control, (unsigned)ring_claim(world.control));
    open_fake();
}

static inline void forget_world(void) {
    for (int i = 0; i < world.count; i++) free(world.told[i].text);
    free(world.told);
    free(world.texts);
    world.count = 0;
}

/* Reads what is new in all rings. */
static void read_rings(void) {
    struct ring_record r;
    for (int i = 0; i < RINGS; i++) {
        struct ring_reader *from = &world.reader[i];
        int got;
        while ((got = ring_read(from, ring_reader_head(from), &r)) > 0) {
            CHECK(world.count < MOST_EVENTS);
            struct told *t = &world.told[world.count++];
            memcpy(&t->u, &r.u, sizeof t->u);
            if ((r.u.hdr.event == ACCT_EV_CUPTI || r.u.hdr.event == ACCT_EV_NAME) && r.texts[0].bytes)
                t->text = strndup(r.texts[0].bytes, r.texts[0].length);
        }
        CHECK(got == 0);
        ring_release(from);
    }
}

static int count_of(int event) {
    int n = 0;
    for (int i = 0; i < world.count; i++) n += world.told[i].u.hdr.event == event;
    return n;
}

/* The n-th (from 0) of these events; NULL: there are fewer. */
static struct told *nth(int event, int n) {
    for (int i = 0; i < world.count; i++)
        if (world.told[i].u.hdr.event == event && !n--) return &world.told[i];
    return NULL;
}

/* Reads until there are `n` of these events; 10 s are far more than any flush takes. */
static void wait_for(int event, int n) {
    for (int i = 0; i < 10000 && count_of(event) < n; i++) {
        read_rings();
        usleep(1000);
    }
    CHECK(count_of(event) >= n);
}

static struct told *last_cupti(void) {
    struct told *t = NULL;
    for (int i = 0; i < world.count; i++)
        if (world.told[i].u.hdr.event == ACCT_EV_CUPTI) t = &world.told[i];
    return t;
}

static void no_rule_broken(void) {
    if (world.fake->violation[0]) printf("broken: %s\n", world.fake->violation);
    CHECK(!world.fake->violation[0]);
}

static void start(void) {
    cupti_start(&host, &world.program);
    read_rings();
}

/* Runs body in a child. It passes if the child ends with 0. */
static void in_child(void (*body)(void)) {
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        for (int i = 1; i < 32; i++) signal(i, SIG_DFL); /* cmocka's handlers would go on with the next case in here */
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define CASE(name)                   \
    static void name##_body(void);   \
    static void name(void **state) { \
        (void)state;                 \
        in_child(name##_body);       \
    }                                \
    static void name##_body(void)

#endif
