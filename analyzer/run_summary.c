/* What `acct run` says at the end, on stderr: the program's stdout is its own. */
#include "analyzer/run_summary.h"

#include "acct/env.h"
#include "analyzer/report_oom.h"
#include "analyzer/report_print.h"
#include "trace/store.h"

#include <math.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SUMMARIES 4

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list ap;
    fputs("acct run: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* Only the parent knows how a killed process ended. */
static void store_exit_code(const char *path, long pid, int exit_code) {
    char err[1024] = "";
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    int rc = SQLITE_ERROR;
    if (store_open(&db, path, 1, err, sizeof err) < 0) {
        say("%s", err);
        return;
    }
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_prepare_v2(db, "UPDATE process SET exit_code = ?1 WHERE pid = ?2", -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_int(st, 1, exit_code);
        sqlite3_bind_int64(st, 2, pid);
        rc = sqlite3_step(st);
    }
    if (rc != SQLITE_DONE) say("%s: the exit code could not be noted in it: %s", path, sqlite3_errmsg(db));
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static void print_figures(struct report *r) {
    struct emitter e;
    emit_begin(&e, stderr, EMIT_TEXT);
    report_print_run(&e, r);
    if (r->allocations) {
        char label[128], peak[64];
        emit_human_bytes(peak, sizeof peak, r->memory.peak_bytes);
        snprintf(label, sizeof label, "Device memory at its peak: %s", peak);
        report_print_memory(&e, &r->memory, "", label, LOOK_BARS);
    }
    emit_finish(&e);
}

/* What a reader must know before believing the figures; the rest is in the report. */
static void print_warnings(const struct report *r) {
    int64_t calls = 0;
    char line[320];
    if (r->oom) {
        report_oom_line(r, line, sizeof line);
        say("%s", line);
    }
    for (int64_t i = 0; i < r->n_uncounted; i++) calls += r->uncounted[i].launches;
    if (calls > r->launches)
        say("%lld calls of %lld functions have no FLOP count, the first is %s", (long long)calls,
            (long long)r->n_uncounted, r->uncounted[0].name);
    else if (calls)
        say("%lld kernel launches have no FLOP count, the first of %s%s%s", (long long)calls, r->uncounted[0].name,
            r->uncounted[0].why ? ": " : "", r->uncounted[0].why ? r->uncounted[0].why : "");
    if (r->dropped)
        say("%lld calls were lost: the figures are lower bounds%s", (long long)r->dropped,
            r->dropped_ring ? "; a larger ACCT_RING_SLOTS avoids it" : "");
    if (r->state && !strcmp(r->state, "truncated")) say("truncated: %s", r->reason ? r->reason : "no reason was given");
    if (report_over_peak(r, line, sizeof line)) say("warning: %s: the report names usual causes", line);
    if (r->n_steps && isnan(r->mfu.median) && (r->on_device || !r->modelled))
        say("no MFU: no peak is known for '%s' in the number format used; acct report --peak-tflops X %s",
            r->device_name ? r->device_name : "no device", r->path);
}

static void summarize(const struct run_trace *t) {
    struct report_options options = {0};
    struct report r;
    char err[1024] = "";
    for (int f = 0; f < PEAK_FORMATS; f++) options.peak[f] = NAN;
    fputc('\n', stderr);
    if (report_open(&r, t->path, err, sizeof err)) {
        say("%s", err);
        return;
    }
    if (report_load(&r, &options, err, sizeof err)) {
        say("%s", err);
    } else {
        print_figures(&r);
        print_warnings(&r);
        say("trace: %s; more with: acct report %s", t->path, t->path);
    }
    report_close(&r);
}

static void tell_none(const struct run_process *r) {
    uint64_t on = 1;
    if (r->error[0]) return;
    acct_env_number(ENV_ACCT, &on);
    if (!on)
        say("nothing was recorded, as ACCT=off asks");
    else
        say("there is no trace: if libacct.so has not said why above, no CUDA call was seen: the program does not use "
            "CUDA, ended before it did,"
            " or has the CUDA runtime linked statically (nvcc's default; build with -cudart shared)");
}

static void tell_unfinished(const struct run_process *r, const struct run_trace *t, int collector_alive) {
    if (r->interrupted)
        say("not waited for: the collector is still finishing %s", t->path);
    else if (!collector_alive)
        say("the collector ended before it had finished %s: the trace is valid up to its last commit", t->path);
    else
        say("process %ld, which the program started, is still running: not waited for; its trace is %s", t->pid,
            t->path);
}

/* The trace of the program itself: its last one, where it called exec. */
static int main_trace(const struct run_process *r) {
    for (int i = r->n_traces - 1; i >= 0; i--)
        if (r->traces[i].pid == r->program) return i;
    return -1;
}

void run_summary(struct run_process *r, int exit_code) {
    int own = main_trace(r), shown = 0;
    int told = own >= 0 && !strcmp(r->traces[own].state, "truncated"); /* by the summary, with its reason */
    if (r->error[0] && !told) say("%s", r->error);
    if (!r->n_traces) {
        tell_none(r);
        return;
    }
    if (own >= 0 && r->traces[own].done) store_exit_code(r->traces[own].path, r->program, exit_code);
    for (int i = 0; i < r->n_traces; i++) {
        const struct run_trace *t = &r->traces[i];
        if (!t->done)
            tell_unfinished(r, t, r->status >= 0);
        else if (i == own || (own < 0 && shown++ < MAX_SUMMARIES))
            summarize(t);
        else
            say("trace of process %ld: %s", t->pid, t->path);
    }
}
