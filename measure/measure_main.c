/* acct-bench --seconds S [--only GROUP,…] [--dtype FORMAT,…]: measures device 0 for S seconds and writes a line for
 * each measurement (include/acct/measured.h). Started by `acct bench`. Exit code 0: all lines are there, `end` is the
 * last; 1: the device cannot be used (a `device` line says why); 2: the command line; 3: the time was over before the
 * end. */
#include "measure/measure_bench.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { EXIT_DEVICE = 1, EXIT_USAGE = 2, EXIT_LATE = 3 };

static const struct {
    const char *name;
    double share; /* of the time, where all are measured */
    int (*plan)(const struct bench *b, struct item *items, int n);
} groups[BENCH_GROUPS] = {[BENCH_GEMM] = {"gemm", 0.62, gemm_plan},
                          [BENCH_COPY] = {"copy", 0.20, copy_plan},
                          [BENCH_LAUNCH] = {"launch", 0.06, launch_plan},
                          [BENCH_ALLOC] = {"alloc", 0.12, alloc_plan}};

static const char *group_name(int i) {
    return i < BENCH_GROUPS ? groups[i].name : NULL;
}

/* A bit for each name of a list with commas; 0: one is unknown. */
static unsigned names_to_bits(const char *text, const char *(*name)(int)) {
    unsigned bits = 0;
    for (;; text++) {
        size_t n = strcspn(text, ",");
        int i = 0;
        while (name(i) && (strlen(name(i)) != n || strncmp(name(i), text, n))) i++;
        if (!name(i)) return 0;
        bits |= 1u << i;
        text += n;
        if (!*text) return bits;
    }
}

static int parse(struct bench *b, int argc, char **argv, double *seconds) {
    b->groups = (1u << BENCH_GROUPS) - 1;
    b->formats = (1u << BENCH_FORMATS) - 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seconds"))
            *seconds = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--only"))
            b->groups = names_to_bits(argv[i + 1], group_name);
        else if (!strcmp(argv[i], "--dtype"))
            b->chosen = 1, b->formats = names_to_bits(argv[i + 1], gemm_format_name);
        else
            return -1;
    }
    return argc % 2 && *seconds > 0 && b->groups && b->formats ? 0 : -1;
}

/* ---- time ---- */

static void late(int unused) {
    (void)unused;
    _exit(EXIT_LATE);
}

/* Whatever hangs, the process ends a tenth behind its time. */
static void bound(double seconds) {
    double most = 1.1 * seconds + 0.2;
    struct itimerval t = {.it_value = {.tv_sec = (time_t)most, .tv_usec = (suseconds_t)(1e6 * (most - floor(most)))}};
    struct sigaction act = {.sa_handler = late};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &t, NULL);
}

/* ---- measurements ---- */

/* A group's items share what it has by their weights. Products come last: they can use what others leave. */
static int plan(const struct bench *b, struct item *items) {
    static const int order[BENCH_GROUPS] = {BENCH_LAUNCH, BENCH_ALLOC, BENCH_COPY, BENCH_GEMM};
    int n = 0;
    for (int o = 0; o < BENCH_GROUPS; o++) {
        int g = order[o], first = n;
        double sum = 0;
        if (!(b->groups >> g & 1)) continue;
        n = groups[g].plan(b, items, n);
        for (int i = first; i < n; i++) sum += items[i].weight;
        for (int i = first; i < n; i++) items[i].weight *= groups[g].share / sum;
    }
    return n;
}

/* What one leaves over, or takes too much, is the others'. Returns how many found no time left. */
static int run_all(struct bench *b, double end) {
    static struct item items[ITEMS_MOST];
    int n = plan(b, items);
    double weight = 0, now;
    for (int i = 0; i < n; i++) weight += items[i].weight;
    for (int i = 0; i < n; i++) {
        if ((now = times_now()) >= end) return n - i;
        items[i].run(b, &items[i], now + (end - now) * items[i].weight / weight);
        weight -= items[i].weight;
    }
    return 0;
}

/* Settings that would make products other than what their line says. */
static void plain_environment(void) {
    static const char *const names[] = {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                                        "CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

int main(int argc, char **argv) {
    static struct bench b;
    double start = times_now(), seconds = 20;
    char err[300];
    if (parse(&b, argc, argv, &seconds)) {
        fprintf(stderr, "usage: acct-bench --seconds S [--only gemm,copy,launch,alloc] [--dtype fp32,bf16,...]\n");
        return EXIT_USAGE;
    }
    bound(seconds);
    plain_environment();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cuda_open(&b.cuda, err, sizeof err)) {
        printf("device " MEASURED_NO_DEVICE " %s\n", err);
        return EXIT_DEVICE;
    }
    if (device_open(&b)) return EXIT_DEVICE;
    int left = run_all(&b, start + 0.97 * seconds);
    printf("end seconds=%.3f left=%d\n", times_now() - start, left);
    fflush(stdout);
    _exit(0); /* no destructors: a driver's may hang */
}
