/* What programs that train in many manners share: their options and their account. Include it behind the list
 * `static struct option {const char *key, *value;} options[]`, which main changes by the command line. */
#ifndef TESTS_MOULD_H
#define TESTS_MOULD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 8, MAX_STEPS = 64, MAX_BUFFERS = 4096 };
enum phase { FORWARD, BACKWARD, OPTIMIZER, EVALUATION, PHASES };

static const char *text(const char *key) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(options[i].key, key)) return options[i].value;
    fprintf(stderr, "no option %s\n", key);
    exit(2);
}
static int number(const char *key) {
    return atoi(text(key));
}
static int is(const char *key, const char *value) {
    return !strcmp(text(key), value);
}

/* ---- the account --------------------------------------------------------------------------------------------- */

static struct buffer {
    const char *name, *role; /* role: the class */
    void *at;
    size_t bytes;
} buffers[MAX_BUFFERS];
static int n_buffers, step;
static enum phase phase;
static long long flops[MAX_STEPS][PHASES];
static int micro_batches[MAX_STEPS], rows[MAX_STEPS];

/* The account on stdout, as one JSON object. */
static void tell(void) {
    printf("{\"buffers\": [");
    for (int i = 0; i < n_buffers; i++)
        printf("%s\n {\"name\": \"%s\", \"class\": \"%s\", \"address\": %llu, \"bytes\": %zu}", i ? "," : "",
               buffers[i].name, buffers[i].role, (unsigned long long)(size_t)buffers[i].at, buffers[i].bytes);
    printf("],\n \"steps\": [");
    long long evaluation = 0;
    for (int i = 0; i < MAX_STEPS; i++) evaluation += flops[i][EVALUATION];
    for (int i = 0; i <= step && i < MAX_STEPS; i++)
        if (flops[i][FORWARD])
            printf("%s\n {\"forward\": %lld, \"backward\": %lld, \"micro_batches\": %d, \"rows\": %d}", i ? "," : "",
                   flops[i][FORWARD], flops[i][BACKWARD], micro_batches[i], rows[i]);
    printf("],\n \"evaluation\": %lld}\n", evaluation);
    fflush(stdout);
}

#endif
