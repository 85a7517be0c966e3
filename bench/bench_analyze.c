/* How long `acct report` takes for a trace that has not been analysed, by the number of its calls; and whether what it
 * finds is right, so that it cannot be fast by being wrong. Goals: a million calls with 100,000 allocations in 3 s and
 * 1 GB, ten million in 40 s, and growth in proportion. Peer, in the same run: SQLite reading every recorded row once
 * and writing a row of integers for every call.
 *   bench_analyze                 100,000 and 1,000,000 calls; BENCH_SHORT=1: 100,000 and 300,000; BENCH_LONG=1:
 * 10,000,000 too bench_analyze CALLS [PER_STEP]  one size; of each layer's 13 activations PER_STEP (4) are allocated in
 * every step bench_analyze --make FILE CALLS [PER_STEP]  the trace alone Exit codes: 0, 1 (wrong figures, or it
 * failed). */
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench_analyze_trace.h"
#include "trace/store.h"

enum { PER_STEP = 4 };
static char folder[PATH_MAX];

struct cost {
    double wall_s, cpu_s;
    int64_t peak_kb;
    int status;
};

static double wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void run_acct(const char *trace) {
    char acct[PATH_MAX + 32];
    snprintf(acct, sizeof acct, "%s/../acct", folder);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDOUT_FILENO);
    execl(acct, "acct", "report", trace, (char *)NULL);
    fprintf(stderr, "bench_analyze: %s cannot be run\n", acct);
    _exit(127);
}

/* Each row of the recorded tables once, then five integers a call: what no analysis in this format can do without. */
static void run_peer(const char *trace) {
    static const char *const tables[] = {"op", "alloc", "gemm", "launch", "copy", "memset"};
    char err[256], sql[128];
    sqlite3 *db, *out;
    sqlite3_stmt *st;
    if (store_open(&db, trace, 0, err, sizeof err)) _exit(1);
    int64_t sum = 0, calls = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        snprintf(sql, sizeof sql, "SELECT * FROM \"%s\"", tables[i]);
        if (sqlite3_prepare_v2(db, sql, -1, &st, NULL)) _exit(1);
        int columns = sqlite3_column_count(st);
        for (; sqlite3_step(st) == SQLITE_ROW; calls += i == 0)
            for (int c = 0; c < columns; c++)
                sum += sqlite3_column_type(st, c) == SQLITE_INTEGER ? sqlite3_column_int64(st, c) : 1;
        sqlite3_finalize(st);
    }
    snprintf(sql, sizeof sql, "%s.peer", trace);
    unlink(sql);
    if (sqlite3_open(sql, &out) ||
        sqlite3_exec(out, "BEGIN; CREATE TABLE t(op INTEGER PRIMARY KEY, a, b, c, d)", NULL, NULL, NULL) ||
        sqlite3_prepare_v2(out, "INSERT INTO t VALUES(?, ?, ?, ?, ?)", -1, &st, NULL))
        _exit(1);
    for (int64_t i = 1; i <= calls; i++) {
        for (int c = 1; c <= 5; c++) sqlite3_bind_int64(st, c, c == 1 ? i : (i + sum) & 0xffff);
        sqlite3_step(st);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    int rc = sqlite3_exec(out, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(out);
    unlink(sql);
    _exit(rc != 0);
}

static struct cost measure(void (*what)(const char *), const char *trace) {
    struct rusage used;
    struct cost c = {.status = -1};
    double start = wall();
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        what(trace);
        _exit(1);
    }
    if (pid < 0 || wait4(pid, &c.status, 0, &used) != pid) return c;
    c.wall_s = wall() - start;
    c.cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
    c.peak_kb = used.ru_maxrss;
    return c;
}

/* ---- is it right? ------------------------------------------------------------------------------------------------ */

static int64_t number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int expect(sqlite3 *db, const char *what, const char *sql, int64_t want) {
    int64_t found = number(db, sql);
    if (found == want) return 0;
    printf("wrong: %s: %" PRId64 " instead of %" PRId64 "\n", what, found, want);
    return 1;
}

#define BYTES(class) "SELECT sum(bytes) FROM alloc_class WHERE class = '" class "'"
static int check(const char *trace, const struct bench_trace_truth *t) {
    char err[256];
    sqlite3 *db;
    int wrong = 0;
    if (store_open(&db, trace, 0, err, sizeof err)) return printf("wrong: %s\n", err), 1;
    wrong += expect(db, "steps", "SELECT count(*) FROM step WHERE complete", t->steps);
    wrong += expect(db, "FLOPs of all products, by step",
                    "SELECT sum(flops) / (SELECT count(*) FROM step) FROM op_cost WHERE matmul AND step IS NOT NULL",
                    t->gemm_flops);
    wrong += expect(
        db, "FLOPs of the last step's backward",
        "SELECT sum(flops) FROM op_cost WHERE matmul AND phase = 'backward' AND step = (SELECT max(id) FROM step)",
        t->gemm_flops / 3 * 2);
    wrong += expect(db, "launches without a price", "SELECT count(*) FROM op_cost WHERE flops IS NULL", 0);
    wrong += expect(db, "bytes of parameters", BYTES("param"), t->param);
    wrong += expect(db, "bytes of gradients", BYTES("grad"), t->grad);
    wrong += expect(db, "bytes of optimizer state", BYTES("optimizer"), t->optimizer);
    wrong += expect(db, "bytes of inputs", BYTES("input"), t->input);
    wrong += expect(db, "bytes of activations", BYTES("activation"), t->activation);
    wrong += expect(db, "bytes of activations' gradients", BYTES("activation_grad"), t->activation_grad);
    wrong += expect(db, "bytes unknown", "SELECT count(*) FROM alloc_class WHERE class = 'unknown'", 0);
    wrong += expect(db, "operands without their allocation",
                    "SELECT count(*) FROM op_buffer WHERE alloc IS NULL AND address < 0x7f0000000000", 0);
    sqlite3_close(db);
    return wrong;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

static int make(const char *path, int64_t calls, int per_step, struct bench_trace_truth *truth) {
    char ptx[PATH_MAX + 64], err[512] = "";
    snprintf(ptx, sizeof ptx, "%s/bench_analyze_kernels.ptx", folder);
    struct bench_trace_options o = {.ops = calls, .per_step = per_step, .ptx = ptx};
    if (!bench_trace_make(path, &o, truth, err, sizeof err)) return 0;
    printf("wrong: %s\n", err);
    return -1;
}

/* CPU seconds a call of the analysis and report; negative: wrong. */
static double one_size(int64_t calls, int per_step) {
    char path[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    struct bench_trace_truth t;
    snprintf(path, sizeof path, "%s/bench_analyze-%d.db", tmp && *tmp ? tmp : "/tmp", (int)getpid());
    double start = wall();
    if (make(path, calls, per_step, &t)) return -1;
    double made = wall() - start;
    struct cost peer = measure(run_peer, path), first = measure(run_acct, path), again = measure(run_acct, path);
    int wrong = check(path, &t);
    unlink(path);
    printf("%" PRId64 " calls, %" PRId64 " allocations, %" PRId64 " steps (made in %.1f s)\n", t.ops, t.allocations,
           t.steps, made);
    printf("  acct report, analysis included: %.2f s, of CPU %.2f s, %.0f MB, %.2f million calls a second, %.0f bytes "
           "a call\n",
           first.wall_s, first.cpu_s, (double)first.peak_kb / 1024, (double)t.ops / first.cpu_s / 1e6,
           1024.0 * (double)first.peak_kb / (double)t.ops);
    printf("  acct report of the analysed trace: %.2f s, of CPU %.2f s, %.0f MB\n", again.wall_s, again.cpu_s,
           (double)again.peak_kb / 1024);
    printf("  SQLite alone, reading all and writing a row a call: CPU %.2f s; ratio acct report / SQLite alone: %.2f\n",
           peer.cpu_s, first.cpu_s / peer.cpu_s);
    if (wrong || first.status || again.status || peer.status)
        return printf("wrong: exit codes %d, %d, %d\n", first.status, again.status, peer.status), -1;
    return first.cpu_s / (double)t.ops;
}

static int all_sizes(void) {
    const char *is_short = getenv("BENCH_SHORT"), *is_long = getenv("BENCH_LONG");
    int64_t size[3] = {100000, is_short && *is_short ? 300000 : 1000000, is_long && *is_long ? 10000000 : 0};
    double per_call[3];
    for (int i = 0; i < 3 && size[i]; i++) {
        if ((per_call[i] = one_size(size[i], PER_STEP)) < 0) return 1;
        if (i)
            printf("ratio of the time a call takes at %" PRId64 " and at %" PRId64 " calls (1: linear): %.2f\n",
                   size[i], size[i - 1], per_call[i] / per_call[i - 1]);
    }
    return 0;
}

int main(int argc, char **argv) {
    char self[PATH_MAX] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    snprintf(folder, sizeof folder, "%s", dirname(self));
    if (argc < 2) return all_sizes();
    int only_make = !strcmp(argv[1], "--make"), at = only_make ? 3 : 1;
    int64_t calls = argc > at ? atoll(argv[at]) : 0;
    int per_step = argc > at + 1 ? atoi(argv[at + 1]) : PER_STEP;
    struct bench_trace_truth t;
    if (calls <= 0) return fprintf(stderr, "usage: bench_analyze [[--make FILE] CALLS [PER_STEP]]\n"), 2;
    return only_make ? make(argv[2], calls, per_step, &t) != 0 : one_size(calls, per_step) < 0;
}
