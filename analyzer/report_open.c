/* Opening a trace for a report: is it finished, is it analysed, and what to do where it is not. */
#include "analyzer/report_model.h"

#include "analyzer/analyze.h"
#include "trace/store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 30000
#define BUSY_MS 10000

struct status {
    int running;   /* meta.state */
    int analysed;  /* by this version or a newer one */
    int collector; /* 1: alive */
    int program;   /* 1: alive */
    long program_pid;
};

/* Is `pid` alive, and its name `comm` (NULL: any)? A pid that another user's process took by now does not count. */
static int alive(long pid, const char *comm) {
    char path[64], name[32] = "";
    FILE *f;
    if (pid <= 0 || (kill((pid_t)pid, 0) && errno == ESRCH)) return 0;
    if (!comm) return 1;
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    f = fopen(path, "re");
    if (!f) return 0;
    if (!fgets(name, sizeof name, f)) name[0] = 0;
    fclose(f);
    name[strcspn(name, "\n")] = 0;
    return !strcmp(name, comm);
}

static sqlite3_int64 program_pid(sqlite3 *db) {
    sqlite3_stmt *st;
    sqlite3_int64 pid = 0;
    if (sqlite3_prepare_v2(db, "SELECT pid FROM process WHERE end_ns IS NULL ORDER BY id LIMIT 1", -1, &st, NULL) ==
            SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        pid = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return pid;
}

static void look(sqlite3 *db, struct status *s) {
    char *state = store_meta_text(db, "state");
    sqlite3_int64 version = 0, collector = 0;
    memset(s, 0, sizeof *s);
    s->running = state && !strcmp(state, "running");
    s->analysed = !store_meta_int(db, "analysis_version", &version) && version >= ANALYSIS_VERSION;
    if (store_meta_int(db, "collector_pid", &collector)) collector = 0;
    s->collector = alive((long)collector, "acct-collect");
    s->program_pid = (long)program_pid(db);
    s->program = s->running && s->collector && alive(s->program_pid, NULL);
    free(state);
}

/* While a collector brings a trace of an ended program to its end: wait. The file is closed between two looks, for the
 * collector can only leave one file behind (without -wal) when nobody else has it open. */
static int open_when_finished(struct report *r, struct status *s, char *err, size_t err_len) {
    int told = 0, ready_ms = 0;
    for (int ms = 0;; ms += 50) {
        if (store_open(&r->db, r->path, 0, err, err_len) < 0) return -1;
        sqlite3_busy_timeout(r->db, BUSY_MS);
        look(r->db, s);
        if (!s->running && s->analysed)
            ready_ms += 50; /* all is there: only the collector's last housekeeping is left */
        if (!s->collector || s->program || ready_ms > 1000 || ms >= WAIT_MS) return 0;
        sqlite3_close(r->db);
        r->db = NULL;
        if (ms >= 1000 && !told && isatty(STDERR_FILENO)) {
            fprintf(stderr, "acct: waiting for the collector to finish %s\n", r->path);
            told = 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

/* Analyses in the file. 0, or -1 if it could not be written. */
static int analyze_in_place(const char *path, char *err, size_t err_len) {
    sqlite3 *db;
    int rc;
    if (store_open(&db, path, 1, err, err_len) < 0) return -1;
    sqlite3_busy_timeout(db, BUSY_MS);
    rc = analyze_trace(db, err, err_len);
    sqlite3_close(db);
    return rc < 0 ? -1 : 0;
}

/* Replaces r->db by an analysed copy in a temporary database (in memory, on disk if large). */
static int analyze_copy(struct report *r, char *err, size_t err_len) {
    sqlite3 *copy = NULL;
    sqlite3_backup *backup;
    char why[512] = "";
    int rc = sqlite3_open("", &copy);
    if (rc == SQLITE_OK) {
        backup = sqlite3_backup_init(copy, "main", r->db, "main");
        rc = backup ? sqlite3_backup_step(backup, -1) : sqlite3_errcode(copy);
        if (backup) sqlite3_backup_finish(backup);
    }
    if (rc == SQLITE_DONE && analyze_trace(copy, why, sizeof why) == 0) {
        sqlite3_close(r->db);
        r->db = copy;
        return 0;
    }
    snprintf(err, err_len, "%s: cannot be analysed: %s; record it anew", r->path, why[0] ? why : sqlite3_errstr(rc));
    sqlite3_close(copy);
    return -1;
}

static int ensure_analysis(struct report *r, const struct status *s, char *err, size_t err_len) {
    char why[1024] = "";
    if (s->program || (s->running && s->collector))
        return analyze_copy(r, err, err_len); /* the collector has the file */
    if (s->analysed) return 0;
    sqlite3_close(r->db); /* a reader would hold the writer up */
    r->db = NULL;
    int written = analyze_in_place(r->path, why, sizeof why) == 0;
    if (store_open(&r->db, r->path, 0, err, err_len) < 0) return -1;
    sqlite3_busy_timeout(r->db, BUSY_MS);
    return written ? 0 : analyze_copy(r, err, err_len);
}

static void tell_state(struct report *r, const struct status *s) {
    if (s->program)
        report_note(r, "The program (pid %ld) is still running: this report covers what was recorded up to now.",
                    s->program_pid);
    else if (s->running && s->collector)
        report_note(r, "The collector has not finished this trace yet: more may follow.");
    else if (s->running)
        report_note(
            r,
            "The trace was cut off: its collector ended before the program did, so it is valid up to its last commit.");
}

/* What no device has, of a damaged trace, is hidden from all that reads it: sums of it would not fit in 64 bits. */
static int hide_damaged_sizes(struct report *r, char *err, size_t err_len) {
#define SIZE(column) "coalesce(" column ", 0) BETWEEN 0 AND 140737488355328" /* 2^47 */
    static const struct {
        const char *table, *sound;
    } tables[] = {{"alloc", SIZE("bytes")},
                  {"alloc_class", SIZE("bytes") " AND " SIZE("offset")},
                  {"meminfo", SIZE("free_bytes") " AND " SIZE("total_bytes") " AND " SIZE(
                                  "pool_reserved_bytes") " AND " SIZE("pool_used_bytes")}};
#undef SIZE
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char sql[512];
        sqlite3_stmt *st = NULL;
        int64_t damaged = 0;
        snprintf(sql, sizeof sql, "SELECT count(*) FROM \"%s\" WHERE NOT (%s)", tables[i].table, tables[i].sound);
        if (sqlite3_prepare_v2(r->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
            damaged = sqlite3_column_int64(st, 0);
        sqlite3_finalize(st); /* a trace of an older version has not all tables: whoever needs them tells */
        if (!damaged) continue;
        snprintf(sql, sizeof sql, "CREATE TEMP VIEW \"%s\" AS SELECT * FROM main.\"%s\" WHERE %s", tables[i].table,
                 tables[i].table, tables[i].sound);
        if (sqlite3_exec(r->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
            snprintf(err, err_len, "%s: %s", r->path, sqlite3_errmsg(r->db));
            return -1;
        }
        report_note(
            r, "The trace is damaged: %lld row(s) of its table %s tell sizes that no device has, and are left out.",
            (long long)damaged, tables[i].table);
    }
    return 0;
}

int report_open(struct report *r, const char *path, char *err, size_t err_len) {
    struct status s;
    memset(r, 0, sizeof *r);
    r->path = path;
    if (open_when_finished(r, &s, err, err_len)) return -1;
    if (ensure_analysis(r, &s, err, err_len) || hide_damaged_sizes(r, err, err_len)) {
        report_close(r);
        return -1;
    }
    r->state = store_meta_text(r->db, "state");
    r->reason = store_meta_text(r->db, "reason");
    tell_state(r, &s);
    return 0;
}
