/* The notes of kernels inside the traced program: found by host function and by handle, gone when their library goes,
 * also while other threads look up, and in a forked child whose parent held the lock. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "preload/kernels.h"

#define MANY 100000

/* Addresses that are nobody's: kernels are only looked up by them. */
static const void *at(uint64_t n) {
    return (const void *)(uintptr_t)(0x10000000 + 16 * n);
}

static void found_by_function_and_handle(void **state) {
    (void)state;
    kernels_note_binary(at(1), "wrapper");
    kernels_note_function(at(1), at(2), "first");
    kernels_note_function(at(1), at(3), "second");
    kernels_note_handle(at(4), at(3));
    assert_string_equal(kernels_find(at(2))->name, "first");
    assert_ptr_equal(kernels_find(at(4)), kernels_find(at(3)));
    assert_ptr_equal(kernels_find(at(2))->binary->wrapper, "wrapper");
    assert_null(kernels_find(at(1))); /* a binary is no kernel */
    assert_null(kernels_find(at(5)));
    assert_null(kernels_find(NULL));
    kernels_note_handle(at(6), at(7)); /* a function that nobody registered */
    assert_null(kernels_find(at(6)));
    kernels_forget_binary(at(1));
    assert_null(kernels_find(at(2)));
    assert_null(kernels_find(at(3)));
    assert_null(kernels_find(at(4)));
    kernels_forget_binary(at(1));
}

static void an_address_comes_again(void **state) {
    (void)state;
    kernels_note_binary(at(10), "one");
    kernels_note_function(at(10), at(11), "old");
    kernels_note_handle(at(12), at(11));
    kernels_note_binary(at(13), "other");
    kernels_note_function(at(13), at(14), "third");
    kernels_note_handle(at(12), at(14)); /* the runtime gives the number to another */
    assert_string_equal(kernels_find(at(12))->name, "third");
    kernels_forget_binary(at(10)); /* which takes the old owner only */
    assert_string_equal(kernels_find(at(12))->name, "third");
    kernels_note_binary(at(10), "two");
    kernels_note_function(at(10), at(11), "new");
    assert_string_equal(kernels_find(at(11))->name, "new");
    assert_ptr_equal(kernels_find(at(11))->binary->wrapper, "two");
}

static void adopted_once(void **state) {
    (void)state;
    struct kernel *kn = kernels_adopt(at(20));
    assert_ptr_equal(kernels_adopt(at(20)), kn);
    assert_null(kn->name);
    assert_null(kernels_adopt(NULL));
    kernels_forget_handles();
    assert_null(kernels_find(at(20)));
    assert_ptr_not_equal(kernels_adopt(at(20)), kn);
}

static _Atomic int stop;
static void *look_up(void *unused) {
    uint64_t seen = 0, n = 0;
    while (!atomic_load(&stop)) {
        struct kernel *kn = kernels_find(at(1000 + n % MANY));
        if (kn && kn->function != at(1000 + n % MANY)) return "another's";
        seen += kn != NULL;
        n += 7;
    }
    (void)unused;
    return seen ? NULL : "never found";
}

/* The table grows while another thread reads it. */
static void many(void **state) {
    (void)state;
    pthread_t reader;
    void *fault;
    pthread_create(&reader, NULL, look_up, NULL);
    kernels_note_binary(at(30), "large");
    for (uint64_t i = 0; i < MANY; i++) kernels_note_function(at(30), at(1000 + i), "kernel");
    for (uint64_t i = 0; i < MANY; i++) assert_ptr_equal(kernels_find(at(1000 + i))->function, at(1000 + i));
    usleep(20000);
    atomic_store(&stop, 1);
    pthread_join(reader, &fault);
    if (fault) fail_msg("%s", (const char *)fault);
    kernels_forget_binary(at(30));
    for (uint64_t i = 0; i < MANY; i++) assert_null(kernels_find(at(1000 + i)));
}

static void *note_for_ever(void *unused) {
    (void)unused;
    for (uint64_t i = 0; !atomic_load(&stop); i = (i + 1) % 1000)
        kernels_note_function(at(40), at(200000 + i), "again");
    return NULL;
}

/* A child does not wait for a thread that it does not have: of 200 forks, many hit the lock held. */
static void fork_while_noting(void **state) {
    (void)state;
    pthread_t writer;
    int status, bad = 0;
    atomic_store(&stop, 0);
    kernels_note_binary(at(40), "busy");
    pthread_create(&writer, NULL, note_for_ever, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            kernels_note_function(at(40), at(300000), "child's");
            _exit(strcmp(kernels_find(at(300000))->name, "child's") != 0);
        }
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    atomic_store(&stop, 1);
    pthread_join(writer, NULL);
    assert_int_equal(bad, 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/acct-kernels-XXXXXX";

static void *map_file(const char *name, size_t bytes, off_t offset) {
    char content[3 * 4096];
    for (size_t i = 0; i < sizeof content; i++) content[i] = (char)i;
    FILE *f = fopen(name, "w+");
    fwrite(content, 1, sizeof content, f);
    fflush(f);
    void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(f), offset);
    fclose(f);
    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static void the_file_of_an_address(void **state) {
    (void)state;
    char name[256], path[4096], small[8];
    uint64_t offset = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/with a space", folder);
    char *p = map_file(name, 2 * 4096, 4096);
    assert_int_equal(kernels_file_of(p + 100, 5000, path, sizeof path, &offset), 0);
    assert_string_equal(path, name);
    assert_int_equal(offset, 4096 + 100);
    assert_int_equal(kernels_file_of(p + 100, 2 * 4096, path, sizeof path, &offset), -1); /* past its end */
    assert_int_equal(kernels_file_of(p, 10, small, sizeof small, &offset), -1);           /* the path does not fit */
    assert_int_equal(kernels_file_of(path, 10, path, sizeof path, &offset), -1);          /* on the stack */
    assert_int_equal(kernels_file_of((void *)16, 10, path, sizeof path, &offset), -1);
    char *q = map_file(name, 4096, 0); /* the file is the same, its content written anew */
    assert_int_equal(kernels_file_of(q, 4096, path, sizeof path, &offset), 0);
    unlink(name);
    assert_int_equal(kernels_file_of(p, 10, path, sizeof path, &offset), -1); /* deleted */
    FILE *other = fopen(name, "w");
    fclose(other);
    assert_int_equal(kernels_file_of(p, 10, path, sizeof path, &offset), -1); /* another one of that name */
    unlink(name);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_function_and_handle),
        cmocka_unit_test(an_address_comes_again),
        cmocka_unit_test(adopted_once),
        cmocka_unit_test(many),
        cmocka_unit_test(fork_while_noting),
        cmocka_unit_test(the_file_of_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
