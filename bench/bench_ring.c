/* What writing an alloc event to the ring costs, with the two clock reads that a wrapper makes, against an LTTng-UST
 * tracepoint with the same fields in the same run. LTTng takes its own one time stamp; start and end are handed to it
 * ready-made, so the comparison leans its way. Neither side has a reader that competes for the processor: the ring is
 * emptied by moving its tail every half ring, LTTng writes to a snapshot session, whose buffers overwrite themselves.
 * Goal: ratio below 0.7.
 *
 * Starts its own lttng-sessiond if none runs, and ends it again. Exit code 77 where LTTng is not installed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "trace/ring.h"

#if defined(__has_include)
#if __has_include(<lttng/tracepoint.h>)
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "bench/bench_ring_lttng.h"
#define HAVE_LTTNG 1
#endif
#endif

#define SLOTS 131072u /* the defaults of ACCT_RING_SLOTS and ACCT_BLOB_BYTES */
#define BLOB 262144u
#define ROUNDS 7 /* the best of so many: other processes only ever add time */

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long events(void) {
    return getenv("BENCH_SHORT") ? 200000 : 2000000;
}

static double best(double (*round)(long)) {
    double least = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double ns = round(events());
        least = ns < least ? ns : least;
    }
    return least;
}

static struct ring_writer writer;

static void open_ring(void) {
    struct acct_control c;
    memset(&c, 0, sizeof c);
    if (ring_layout(&c, 1, SLOTS, BLOB, 1)) exit(1);
    void *p = mmap(NULL, c.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED || ring_layout(p, 1, SLOTS, BLOB, 1)) exit(1);
    ring_attach(&writer, p, (unsigned)ring_claim(p));
}

static double ring_round(long n) {
    uint64_t begun = now(), half = SLOTS / 2;
    for (long i = 0; i < n; i++) {
        uint64_t start = now(), end = now();
        struct acct_ev_alloc *r = ring_begin(&writer, ACCT_EV_ALLOC, sizeof *r, start);
        if (!r) exit(1);
        r->hdr.api = 21;
        r->hdr.status = 0;
        r->hdr.device = 0;
        r->hdr.end_ns = end;
        r->hdr.stream = ACCT_NO_STREAM;
        r->address = (uint64_t)i << 8;
        r->bytes = i;
        r->memory = ACCT_memory_DEVICE;
        ring_commit(&writer);
        if (writer.head - writer.tail > half) { /* as if it had been read */
            atomic_store_explicit(&writer.ring->tail, writer.head, memory_order_release);
            writer.tail = writer.head;
            writer.wake_at = writer.head + SLOTS;
        }
    }
    return (double)(now() - begun) / (double)n;
}

static double clock_round(long n) {
    uint64_t begun = now(), sum = 0;
    for (long i = 0; i < n; i++) sum += now();
    __asm__ volatile("" : : "r"(sum));
    return (double)(now() - begun) / (double)n;
}

#ifdef HAVE_LTTNG
static double lttng_round(long n) {
    uint64_t begun = now();
    for (long i = 0; i < n; i++)
        lttng_ust_tracepoint(acct_bench, alloc, 21, 0, 0, begun, begun, ACCT_NO_STREAM, (uint64_t)i << 8, i,
                             ACCT_memory_DEVICE);
    return (double)(now() - begun) / (double)n;
}

static int measure(void) {
    for (int i = 0; i < 500 && !lttng_ust_tracepoint_enabled(acct_bench, alloc); i++) usleep(10000);
    if (!lttng_ust_tracepoint_enabled(acct_bench, alloc)) {
        printf("LTTng did not enable the tracepoint\n");
        return 77;
    }
    open_ring();
    double ring = best(ring_round), lttng = best(lttng_round), clock = best(clock_round);
    printf("ring, alloc event with two clock reads: %.1f ns (a clock read alone: %.1f ns)\n", ring, clock);
    printf("LTTng-UST tracepoint, same fields:      %.1f ns\n", lttng);
    printf("ring write / LTTng-UST tracepoint: ratio %.2f (goal below 0.7)\n", ring / lttng);
    return 0;
}

/* Runs a command line with its output hidden; its exit code. */
static int quietly(const char *command) {
    char line[512];
    snprintf(line, sizeof line, "%s >/dev/null 2>&1", command);
    return system(line);
}

static void end_session(const char *pid_file) {
    int pid = 0;
    quietly("lttng --no-sessiond destroy acct-bench");
    FILE *f = *pid_file ? fopen(pid_file, "r") : NULL;
    if (f && fscanf(f, "%d", &pid) == 1 && pid > 0) kill(pid, SIGTERM);
    if (f) fclose(f);
}

static int open_session(char *pid_file) {
    char command[256];
    if (quietly("lttng --no-sessiond list")) { /* none runs */
        snprintf(pid_file, 64, "/tmp/acct-bench-%d.pid", (int)getpid());
        snprintf(command, sizeof command, "lttng-sessiond --background --no-kernel --pidfile=%s", pid_file);
        if (quietly(command)) return 0;
    }
    quietly("lttng --no-sessiond destroy acct-bench");
    return !quietly("lttng --no-sessiond create acct-bench --snapshot") &&
           !quietly("lttng --no-sessiond enable-event --session=acct-bench --userspace 'acct_bench:*'") &&
           !quietly("lttng --no-sessiond start acct-bench");
}

int main(int argc, char **argv) {
    char pid_file[64] = "";
    int status = 0;
    if (argc > 1 && !strcmp(argv[1], "measure")) return measure();
    if (!open_session(pid_file)) {
        printf("no LTTng session could be opened; install lttng-tools\n");
        end_session(pid_file);
        return 77;
    }
    fflush(stdout);
    pid_t pid = fork(); /* LTTng registers a program when it starts: the session has to be there before */
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], "measure", (char *)NULL);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    end_session(pid_file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
#else
int main(void) {
    printf("built without LTTng-UST; install liblttng-ust-dev and lttng-tools\n");
    open_ring();
    printf("ring, alloc event with two clock reads: %.1f ns (a clock read alone: %.1f ns)\n", best(ring_round),
           best(clock_round));
    return 77;
}
#endif
