/* How blocks run: warps as fibers, barriers, faults, the pool, printf's buffer. Kernels are written by hand in C, in
 * place of what the compiler makes, and launches do not come from a program; the rest is the engine. */
#include "vgpu/vgpu_run.h"

#include <stdio.h>
#include <unistd.h>
#include "tests/unit/vgpu_testing.h"

enum { WARPS = 32, ROUNDS = 50 };

static struct ptx_function function = {.name = "test"};

/* A launch of hand-written code over `blocks` blocks of `threads` threads; `argument` is its one parameter. */
static void launch(vgpu_block_fn *block, vgpu_warp_fn *warp, uint32_t blocks, uint32_t threads, uint32_t shared,
                   void *argument) {
    struct vgpu_kernel kernel = {
        .name = "test", .f = &function, .compiled = true, .code = {block, warp, 64, 0}, .work = 1000};
    struct vgpu_launch *l = aligned_alloc(16, sizeof *l + 16);
    assert_non_null(l);
    *l = (struct vgpu_launch){.kernel = &kernel,
                              .grid = {blocks, 1, 1},
                              .block = {threads, 1, 1},
                              .dynamic_shared = shared,
                              .way = VGPU_COMPILED};
    memcpy(l->params, &argument, sizeof argument);
    vgpu_execute(l);
    free(l);
}

static void *argument_of(const struct vgpu_frame *f) {
    void *p;
    memcpy(&p, f->params, sizeof p);
    return p;
}

static int after(void **state) {
    (void)state;
    vgpu_refused = 0;
    return 0;
}

static int standard_error;
static FILE *said;

/* What is said on stderr until `heard`. */
static void listen(void) {
    standard_error = dup(2);
    said = tmpfile();
    assert_non_null(said);
    dup2(fileno(said), 2);
}

static const char *heard(void) {
    static char text[2000];
    fflush(stderr);
    dup2(standard_error, 2);
    close(standard_error);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    return text;
}

/* ---- barriers ---- */

/* In each round every warp writes, and after the barrier reads what all the others wrote. */
static void rounds(struct vgpu_frame *f, uint32_t warp) {
    uint32_t *slot = (uint32_t *)(void *)f->shared, *wrong = argument_of(f);
    for (uint32_t r = 1; r <= ROUNDS; r++) {
        slot[warp] = r * 100 + f->ctaid[0];
        f->host->barrier(f, warp, 0, 0, ~0u);
        for (uint32_t w = 0; w < f->warps; w++)
            if (slot[w] != r * 100 + f->ctaid[0]) __atomic_fetch_add(wrong, 1, __ATOMIC_RELAXED);
        f->host->barrier(f, warp, 0, 0, ~0u);
    }
}

static void all_warps_meet(void **state) {
    (void)state;
    uint32_t wrong = 0;
    for (uint32_t warps = 1; warps <= WARPS; warps++) launch(NULL, rounds, 20, warps * 32, WARPS * 4, &wrong);
    launch(NULL, rounds, 3, 33, WARPS * 4, &wrong); /* a warp of one thread */
    assert_int_equal(wrong, 0);
    assert_int_equal(vgpu_refused, 0);
}

/* Warps 0 and 1 hand a value over at barrier 1, warps 2 and 3 at barrier 2: they do not wait for each other. */
static void pairs(struct vgpu_frame *f, uint32_t warp) {
    uint32_t *slot = (uint32_t *)(void *)f->shared, *sum = argument_of(f), pair = warp / 2;
    for (uint32_t r = 0; r < ROUNDS * (pair + 1); r++) {
        if (warp % 2 == 0) slot[pair] = r;
        f->host->barrier(f, warp, 1 + pair, 64, ~0u);
        if (warp % 2) __atomic_fetch_add(sum, slot[pair], __ATOMIC_RELAXED);
        f->host->barrier(f, warp, 1 + pair, 64, ~0u);
    }
}

static void named_barriers_are_apart(void **state) {
    (void)state;
    uint32_t sum = 0;
    launch(NULL, pairs, 1, 128, 64, &sum);
    assert_int_equal(sum, ROUNDS * (ROUNDS - 1) / 2 + 2 * ROUNDS * (2 * ROUNDS - 1) / 2);
    assert_int_equal(vgpu_refused, 0);
}

/* A producer waits for its slot to be empty and says that it is full; it never waits for that to be seen. */
static void hands_over(struct vgpu_frame *f, uint32_t warp) {
    uint32_t *slot = (uint32_t *)(void *)f->shared, *sum = argument_of(f);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        if (!warp) {
            f->host->barrier(f, warp, 2, 64, ~0u); /* empty */
            *slot = r;
            f->host->arrive(f, warp, 1, 64, ~0u); /* full */
        } else {
            f->host->arrive(f, warp, 2, 64, ~0u);
            f->host->barrier(f, warp, 1, 64, ~0u);
            *sum += *slot;
        }
    }
}

static void arriving_does_not_wait(void **state) {
    (void)state;
    uint32_t sum = 0;
    launch(NULL, hands_over, 1, 64, 64, &sum);
    assert_int_equal(sum, ROUNDS * (ROUNDS - 1) / 2);
    assert_int_equal(vgpu_refused, 0);
}

/* Odd warps end at once, and warp 0 after its first barrier: the others go on without them. */
static void leaves(struct vgpu_frame *f, uint32_t warp) {
    uint32_t *passed = argument_of(f);
    if (warp % 2) return;
    for (uint32_t r = 0; r < 3; r++) {
        f->host->barrier(f, warp, 0, 0, ~0u);
        __atomic_fetch_add(passed, 1, __ATOMIC_RELAXED);
        if (!warp) return;
    }
}

static void warps_that_ended_are_not_waited_for(void **state) {
    (void)state;
    uint32_t passed = 0;
    launch(NULL, leaves, 5, 256, 0, &passed);
    assert_int_equal(passed, 5 * (1 + 3 * 3)); /* four even warps, the first once */
    assert_int_equal(vgpu_refused, 0);
}

static void counts(struct vgpu_frame *f, uint32_t warp) {
    uint32_t *wrong = argument_of(f);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint32_t n = f->host->barrier_count(f, warp, 0, 0, ~0u, warp == r % f->warps ? 0xffff : 1);
        if (n != 16 + f->warps - 1) __atomic_fetch_add(wrong, 1, __ATOMIC_RELAXED);
    }
}

static void barrier_counts_predicates(void **state) {
    (void)state;
    uint32_t wrong = 0;
    for (uint32_t warps = 1; warps <= 7; warps++) launch(NULL, counts, 3, warps * 32, 0, &wrong);
    assert_int_equal(wrong, 0);
}

/* Of whichever block came to it first: there are several cores. */
static void assert_told_of_a_block(unsigned blocks, const char *what) {
    const char *told = strstr(heard(), "kernel test, block [");
    unsigned block = blocks;
    int n = 0;
    assert_non_null(told);
    assert_int_equal(sscanf(told, "kernel test, block [%u,0,0]: %n", &block, &n), 1);
    assert_true(block < blocks);
    assert_memory_equal(told + n, what, strlen(what));
}

static void half_waits(struct vgpu_frame *f, uint32_t warp) {
    f->host->barrier(f, warp, warp < 2 ? 0 : 1, 128, ~0u);
}

static void deadlock_is_an_error(void **state) {
    (void)state;
    uint32_t wrong = 0;
    listen();
    launch(NULL, half_waits, 4, 128, 0, NULL);
    assert_told_of_a_block(4, "warp 0 waits at a barrier");
    assert_int_equal(vgpu_refused, cudaErrorLaunchFailure);
    vgpu_refused = 0;
    launch(NULL, rounds, 4, 128, WARPS * 4, &wrong); /* the fibers begin anew */
    assert_int_equal(wrong, 0);
}

/* ---- faults ---- */

/* ThreadSanitizer knows neither a jump out of a signal's handler nor one from a fiber. */
#if defined(__SANITIZE_THREAD__)
#define NOT_UNDER_TSAN() skip()
#else
#define NOT_UNDER_TSAN() (void)0
#endif

static void writes_to(struct vgpu_frame *f, uint32_t warp) {
    f->host->barrier(f, warp, 0, 0, ~0u);
    if (warp == 3) *(volatile int *)argument_of(f) = 1;
    f->host->barrier(f, warp, 0, 0, ~0u);
}

static void bad_address_in_a_fiber(void **state) {
    (void)state;
    NOT_UNDER_TSAN();
    uint32_t wrong = 0;
    for (int i = 0; i < 3; i++) {
        listen();
        launch(NULL, writes_to, 8, 160, 0, (void *)(uintptr_t)0x123450);
        assert_told_of_a_block(8, "the device cannot reach address 0x123450");
        assert_int_equal(vgpu_refused, cudaErrorIllegalAddress);
        vgpu_refused = 0;
        launch(NULL, rounds, 4, 160, WARPS * 4, &wrong);
    }
    assert_int_equal(wrong, 0);
}

static void past_shared(struct vgpu_frame *f) {
    f->shared[*(uint32_t *)argument_of(f)] = 1;
}

static void past_local(struct vgpu_frame *f) {
    f->local[f->local_stride * f->threads] = 1;
}

static void ends_of_buffers(void **state) {
    (void)state;
    NOT_UNDER_TSAN();
    uint32_t at = 1023;
    launch(past_shared, NULL, 1, 32, 1024, &at);
    assert_int_equal(vgpu_refused, 0);
    at = 1024;
    listen();
    launch(past_shared, NULL, 1, 32, 1024, &at);
    assert_non_null(strstr(heard(), "access at offset 1024 of 1024 bytes of shared memory"));
    assert_int_equal(vgpu_refused, cudaErrorIllegalAddress);
    vgpu_refused = 0;
    listen();
    launch(past_local, NULL, 1, 32, 0, NULL);
    assert_non_null(strstr(heard(), "access outside local memory"));
}

static int deeper(volatile char *above, int n) {
    volatile char here[4096];
    here[0] = above ? above[0] : 1;
    return n ? deeper(here, n - 1) + here[0] : here[0];
}

static void uses_stack(struct vgpu_frame *f, uint32_t warp) {
    (void)warp;
    *(int *)argument_of(f) = deeper(NULL, 100000);
}

static void stack_used_up(void **state) {
    (void)state;
    NOT_UNDER_TSAN();
    int result = 0;
    listen();
    launch(NULL, uses_stack, 1, 64, 0, &result);
    assert_non_null(strstr(heard(), "the stack of a warp is used up"));
    assert_int_equal(vgpu_refused, cudaErrorLaunchFailure);
}

static void asserts(struct vgpu_frame *f, uint32_t warp) {
    f->host->barrier(f, warp, 0, 0, ~0u);
    if (warp == 1) (f->host->fail)(f, 37, (uintptr_t) "a < b", (uintptr_t) "file.cu", 12, (uintptr_t) "void k(int)", 1);
    f->host->barrier(f, warp, 0, 0, ~0u);
}

static void assertion_is_said_as_by_a_device(void **state) {
    (void)state;
    NOT_UNDER_TSAN();
    listen();
    launch(NULL, asserts, 1, 64, 0, NULL);
    assert_string_equal(heard(), "file.cu:12: void k(int): block: [0,0,0], thread: [37,0,0] Assertion `a < b` failed.\n"
                                 "acct virtual GPU: kernel test: an assertion failed (cudaErrorAssert; all further "
                                 "calls fail)\n");
    assert_int_equal(vgpu_refused, cudaErrorAssert);
}

/* ---- the pool ---- */

static void mark(struct vgpu_frame *f) {
    unsigned char *seen = argument_of(f);
    __atomic_fetch_add(&seen[f->ctaid[0]], 1, __ATOMIC_RELAXED);
}

static void every_block_runs_once(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 7, 8, 9, 16, 17, 1000, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *seen = test_calloc(sizes[i], 1);
        launch(mark, NULL, sizes[i], 256, 0, seen);
        for (uint32_t b = 0; b < sizes[i]; b++) assert_int_equal(seen[b], 1);
        test_free(seen);
    }
}

static void *launches(void *wrong) {
    for (int i = 0; i < 30; i++) launch(NULL, rounds, 40, 128, WARPS * 4, wrong);
    vgpu_pool_end();
    return NULL;
}

static void launches_side_by_side(void **state) {
    (void)state;
    pthread_t t[3];
    uint32_t wrong = 0;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, launches, &wrong), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_int_equal(wrong, 0);
}

/* ---- printf ---- */

/* What comes on stdout when the buffer is flushed. */
static const char *printed(void) {
    static char text[1 << 16];
    fflush(stdout);
    int out = dup(1);
    FILE *f = tmpfile();
    assert_non_null(f);
    dup2(fileno(f), 1);
    vgpu_print_flush();
    fflush(stdout);
    dup2(out, 1);
    close(out);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

struct packed { /* as CUDA packs them: each aligned to its size */
    int32_t i;
    double d;
    const char *s;
    uint32_t u;
    int64_t l;
    int32_t width, precision;
    double e;
    int32_t c;
    void *p;
};

static void printf_as_in_c(void **state) {
    (void)state;
    struct packed a = {-5, 3.25, "text", 4000000000u, -1234567890123, 9, 3, 2.0 / 3, 'x', (void *)0x1234};
    char expected[400];
    const char *format = "%d|%8.3f|%-8s|%u|%lld|%*.*g|%c|%p|100%%\n";
    snprintf(expected, sizeof expected, format, a.i, a.d, a.s, a.u, (long long)a.l, a.width, a.precision, a.e, a.c,
             a.p);
    assert_int_equal(vgpu_print(format, &a), 10);
    assert_string_equal(printed(), expected);
    assert_int_equal(vgpu_print("nothing", NULL), 0);
    assert_string_equal(printed(), "nothing");
    assert_int_equal(vgpu_print(NULL, NULL), -1);
    const struct {
        const char *pointer;
        int64_t z;
    } b = {NULL, INT64_MIN};
    assert_int_equal(vgpu_print("%s %ld %", &b), 2);
    assert_string_equal(printed(), "(null) -9223372036854775808 %");
    assert_string_equal(printed(), "");
}

static void oldest_output_goes(void **state) {
    (void)state;
    size_t before;
    OK(cudaDeviceGetLimit(&before, cudaLimitPrintfFifoSize));
    OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2000));
    for (int32_t i = 0; i < 1000; i++) vgpu_print("line %d\n", &i);
    const char *text = printed();
    assert_in_range(strlen(text), 1900, 2000);
    assert_string_equal(text + strlen(text) - 18, "line 998\nline 999\n");
    OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, before));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(all_warps_meet, after),
        cmocka_unit_test_teardown(named_barriers_are_apart, after),
        cmocka_unit_test_teardown(arriving_does_not_wait, after),
        cmocka_unit_test_teardown(warps_that_ended_are_not_waited_for, after),
        cmocka_unit_test_teardown(barrier_counts_predicates, after),
        cmocka_unit_test_teardown(deadlock_is_an_error, after),
        cmocka_unit_test_teardown(bad_address_in_a_fiber, after),
        cmocka_unit_test_teardown(ends_of_buffers, after),
        cmocka_unit_test_teardown(stack_used_up, after),
        cmocka_unit_test_teardown(assertion_is_said_as_by_a_device, after),
        cmocka_unit_test_teardown(every_block_runs_once, after),
        cmocka_unit_test_teardown(launches_side_by_side, after),
        cmocka_unit_test_teardown(printf_as_in_c, after),
        cmocka_unit_test_teardown(oldest_output_goes, after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
