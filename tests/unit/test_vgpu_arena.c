/* The allocator of device memory against a map of who owns which 512-byte unit, over a long random series. */
#include "vgpu/vgpu_arena.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNITS = 2048 };
static const uint64_t MB = 1 << 20;

static void exact_capacity(void **state) {
    (void)state;
    struct vgpu_arena a;
    assert_int_equal(vgpu_arena_create(&a, 10 * 512 + 511, 10 * 512, 512), 0);
    assert_int_equal(a.range, 10 * 512);
    struct vgpu_block *b[10];
    for (int i = 0; i < 10; i++) {
        b[i] = vgpu_arena_take(&a, 1 + (uint64_t)i * 51);
        assert_non_null(b[i]);
        assert_int_equal(b[i]->address % VGPU_ALIGN, 0);
        assert_int_equal(a.in_use, 512 * (i + 1));
    }
    assert_null(vgpu_arena_take(&a, 1));
    vgpu_arena_give(&a, b[3]);
    assert_null(vgpu_arena_take(&a, 513)); /* two units: only one is free */
    vgpu_arena_give(&a, b[4]);
    assert_non_null(vgpu_arena_take(&a, 1024)); /* joined */
    assert_null(vgpu_arena_take(&a, 1));
    assert_null(vgpu_arena_take(&a, UINT64_MAX));
    assert_int_equal(a.in_use_high, 5120);
    vgpu_arena_destroy(&a);
}

static void best_fit(void **state) {
    (void)state;
    struct vgpu_arena a;
    assert_int_equal(vgpu_arena_create(&a, MB, MB, 512), 0);
    struct vgpu_block *large = vgpu_arena_take(&a, 64 * 512), *p = vgpu_arena_take(&a, 512),
                      *small = vgpu_arena_take(&a, 8 * 512);
    assert_non_null(vgpu_arena_take(&a, 512));
    uint64_t at_small = small->address, at_large = large->address;
    assert_non_null(p);
    vgpu_arena_give(&a, large);
    vgpu_arena_give(&a, small);
    assert_int_equal(vgpu_arena_take(&a, 8 * 512)->address, at_small); /* the smallest gap that fits */
    assert_int_equal(vgpu_arena_take(&a, 9 * 512)->address, at_large);
    vgpu_arena_destroy(&a);
}

/* The arena must take exactly when some gap is large enough, and from the smallest such gap. */
static uint64_t smallest_gap(const unsigned char *map, uint64_t units) {
    uint64_t best = UINT64_MAX, run = 0;
    for (int i = 0; i <= UNITS; i++) {
        if (i < UNITS && !map[i]) {
            run++;
        } else {
            if (run >= units && run < best) best = run;
            run = 0;
        }
    }
    return best;
}

static void random_series(void **state) {
    (void)state;
    static unsigned char map[UNITS];
    struct vgpu_arena a;
    struct vgpu_block *live[UNITS];
    int n = 0;
    uint64_t used = 0;
    srand(3);
    assert_int_equal(vgpu_arena_create(&a, UNITS * 512, UNITS * 512, 512), 0);
    for (int step = 0; step < 40000; step++) {
        if (n && rand() % 100 < 48) {
            int i = rand() % n;
            struct vgpu_block *b = live[i];
            assert_int_equal(*(unsigned char *)(uintptr_t)b->address,
                             (unsigned char)b->address >> 1 | 1); /* nobody wrote over it */
            memset(map + (b->address - a.base) / 512, 0, b->bytes / 512);
            used -= b->bytes;
            vgpu_arena_give(&a, b);
            live[i] = live[--n];
        } else {
            uint64_t bytes = 1 + (uint64_t)(rand() % (rand() % 8 ? 4000 : 200000)), units = (bytes + 511) / 512;
            uint64_t gap = smallest_gap(map, units);
            struct vgpu_block *b = vgpu_arena_take(&a, bytes);
            assert_int_equal(b != NULL, gap != UINT64_MAX);
            if (!b) continue;
            uint64_t first = (b->address - a.base) / 512, from = first, to = first;
            while (from && !map[from - 1]) from--;
            for (; to < UNITS && !map[to]; to++)
                ;
            assert_int_equal(to - from, gap);
            memset(map + first, 1, units);
            used += units * 512;
            memset((void *)(uintptr_t)b->address, (unsigned char)b->address >> 1 | 1, bytes);
            live[n++] = b;
        }
        assert_int_equal(a.in_use, used);
        if (n) {
            struct vgpu_block *b = live[rand() % n];
            assert_ptr_equal(vgpu_arena_find(&a, b->address + (uint64_t)rand() % b->bytes), b);
        }
    }
    while (n) vgpu_arena_give(&a, live[--n]);
    assert_int_equal(a.in_use, 0);
    assert_non_null(vgpu_arena_take(&a, UNITS * 512)); /* all joined to one */
    vgpu_arena_destroy(&a);
}

static bool faults(const volatile char *p) {
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        (void)*p;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/* A child has no copy of the memory, so ask the kernel instead: a write from an inaccessible page fails with EFAULT. */
static bool readable(uint64_t address) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    bool good = write(fd[1], (void *)(uintptr_t)address, 1) == 1;
    close(fd[0]);
    close(fd[1]);
    return good;
}

static void released_pages_are_closed(void **state) {
    (void)state;
    struct vgpu_arena a;
    assert_int_equal(vgpu_arena_create(&a, 16 * MB, 16 * MB, 512), 0);
    struct vgpu_block *b = vgpu_arena_take(&a, MB), *c = vgpu_arena_take(&a, 512), *d = vgpu_arena_take(&a, MB);
    uint64_t at = b->address, shared = c->address;
    memset((void *)(uintptr_t)at, 7, MB);
    assert_true(readable(at) && readable(at + MB - 1) && readable(shared));
    assert_false(readable(a.base + 3 * MB));
    vgpu_arena_give(&a, b);
    assert_false(readable(at) || readable(at + MB - 1));
    assert_true(readable(shared));
    b = vgpu_arena_take(&a, MB);
    assert_int_equal(b->address, at);
    assert_int_equal(*(unsigned char *)(uintptr_t)at, 0); /* the pages went back to the machine */
    vgpu_arena_give(&a, c);
    assert_true(readable(d->address)); /* on the page of c */
    vgpu_arena_give(&a, d);
    vgpu_arena_give(&a, b);
    assert_false(readable(shared));
    assert_true(faults((char *)(uintptr_t)at));
    vgpu_arena_destroy(&a);
}

static void poisoned(void **state) {
    (void)state;
    struct vgpu_arena a;
    assert_int_equal(vgpu_arena_create(&a, MB, MB, 512), 0);
    a.poison = true;
    float f;
    memcpy(&f, (void *)(uintptr_t)vgpu_arena_take(&a, 4)->address, 4);
    assert_true(f != f);
    vgpu_arena_destroy(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_capacity), cmocka_unit_test(best_fit),
        cmocka_unit_test(random_series),  cmocka_unit_test(released_pages_are_closed),
        cmocka_unit_test(poisoned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
