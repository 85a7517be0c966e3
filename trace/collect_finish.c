/* The end of a trace: last rows, its state, the analysis, one file. */
#include "trace/collect.h"
#include "trace/store.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define LAST_LOCK_WAIT_MS 2000 /* nothing else to do any more */

/* ---- last rows --------------------------------------------------------------------------------------------------- */

static void book_losses(struct collect *c) {
    uint64_t no_ring = atomic_load(&ring_map_control(&c->map)->lost_no_ring);
    for (uint32_t i = 0; i < c->map.max_rings; i++) {
        struct acct_ring *ring = c->readers[i].ring;
        if (!c->corrupt[i] && c->readers[i].tail)
            rows_lost_residue(&c->rows, &c->rings[i], atomic_load(&ring->lost_records), atomic_load(&ring->lost_blobs));
    }
    if (no_ring) rows_lost(&c->rows, 0, (int64_t)no_ring, -1, 0, 0, "no ring");
    if (c->rows.dropped)
        rows_lost(&c->rows, 0, (int64_t)c->rows.dropped, -1, c->rows.dropped_first_ns, c->rows.dropped_last_ns,
                  c->stop_reason);
}

static const char *truncation(const struct collect *c) {
    if (c->stop_reason) return c->rows.message;
    if (c->corrupt_rings) return "a ring of the traced program was corrupt and is missing from where on it was";
    if (!c->end_reason) return "the collector was ended (signal) while the program ran on";
    return NULL;
}

static void write_end(struct collect *c) {
    struct acct_control *control = ring_map_control(&c->map);
    struct timespec utc;
    int exit_code = -1;
    const char *why = truncation(c), *end = c->end_reason;
    uint64_t now = collect_now_ns();
    clock_gettime(CLOCK_REALTIME, &utc);
    if (end && !strcmp(end, "ended") && atomic_load(&control->exit_known)) {
        end = "exit";
        exit_code = atomic_load(&control->exit_status) & 0xff;
    }
    book_losses(c);
    rows_process_end(&c->rows, end ? now : 0, end, exit_code);
    store_meta_set_int(c->db, "end_mono_ns", (int64_t)now);
    store_meta_set_int(c->db, "end_utc_ns", (int64_t)utc.tv_sec * 1000000000 + utc.tv_nsec);
    if (why) store_meta_set_text(c->db, "reason", why);
    store_meta_set_text(c->db, "state", why ? "truncated" : "complete");
}

/* Where storing had stopped, tries once more: few rows, in the room that the rolled back transaction and the ballast
 * left. */
static void last_transaction(struct collect *c) {
    if (c->rows.stopped) c->stop_reason = c->rows.stopped;
    c->rows.stopped = NULL;
    c->rows.max_bytes = 0; /* these few rows are worth it */
    for (int tries = 0; rows_begin(&c->rows) && tries < 3; tries++) {
    }
    if (c->rows.in_transaction) {
        write_end(c);
        for (int tries = 0; rows_commit(&c->rows) && tries < 3; tries++) {
        }
    }
}

/* ---- analysis ---------------------------------------------------------------------------------------------------- */

/* The acct of the same installation: beside us, or in ../bin. */
static int find_acct(char *out, size_t len) {
    char self[COLLECT_PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return -1;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return -1;
    *slash = 0;
    if (snprintf(out, len, "%s/acct", self) < (int)len && access(out, X_OK) == 0) return 0;
    if (snprintf(out, len, "%s/../bin/acct", self) < (int)len && access(out, X_OK) == 0) return 0;
    return -1;
}

/* Runs argv without input (a descriptor that cannot be read) and keeps the first line of what it says. Its exit code;
 * -1: it could not be run.
 */
static int run_quietly(char *const argv[], char *line, size_t len) {
    int ends[2], status = -1;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    size_t used = 0;
    ssize_t n;
    line[0] = 0;
    if (pipe2(ends, O_CLOEXEC)) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    int rc = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char rest[512];
    while (rc == 0 && ((n = read(ends[0], used + 1 < len ? line + used : rest,
                                 used + 1 < len ? len - 1 - used : sizeof rest)) > 0 ||
                       (n < 0 && errno == EINTR)))
        if (n > 0 && used + 1 < len) used += (size_t)n;
    close(ends[0]);
    line[used] = 0;
    line[strcspn(line, "\n")] = 0;
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return rc || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static void analyse(struct collect *c) {
    char acct[COLLECT_PATH_BYTES], line[400], note[COLLECT_PATH_BYTES + 80];
    if (c->stop_reason && !strcmp(c->stop_reason, "disk"))
        return; /* no room for its tables; acct report makes its own */
    if (find_acct(acct, sizeof acct)) {
        store_meta_set_text(c->db, "analysis", "not run: there is no acct beside acct-collect; acct report will do it");
        return;
    }
    char *argv[] = {acct, "analyze", c->path, NULL};
    int rc = run_quietly(argv, line, sizeof line);
    if (rc == 0) return;
    if (rc < 0)
        snprintf(note, sizeof note, "not finished: %s could not be run or was killed; acct report will do it", acct);
    else
        snprintf(note, sizeof note, "failed (exit code %d): %s", rc, line);
    store_meta_set_text(c->db, "analysis", note);
}

static int journal_is_delete(sqlite3 *db) {
    sqlite3_stmt *q;
    int is = 0;
    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode=DELETE", -1, &q, NULL)) return 0;
    if (sqlite3_step(q) == SQLITE_ROW) is = !sqlite3_stricmp((const char *)sqlite3_column_text(q, 0), "delete");
    sqlite3_finalize(q);
    return is;
}

/* Only while nobody else has the file open can the journal mode change: a reader that looks in now and then is waited
 * out; with one that stays, the log remains beside the file, checkpointed, and the next writer takes it away. */
static void one_file(struct collect *c) {
    const struct timespec pause = {0, 20 * 1000000};
    int most =
        c->stop_reason ? 1 : 250; /* on a full disk the log's rows may have no room in the file: no use waiting */
    sqlite3_exec(c->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    sqlite3_busy_timeout(c->db, 0);
    for (int tries = 0; tries < most && !journal_is_delete(c->db); tries++) nanosleep(&pause, NULL);
}

void collect_finish(struct collect *c) {
    sqlite3_busy_timeout(c->db, LAST_LOCK_WAIT_MS);
    collect_commit(c);
    last_transaction(c);
    if (c->rows.stopped) { /* full (again): the ballast, if that is still there, and what the log may give back. Not
                              before, for moving the log's rows into the file takes room, too */
        collect_commit(c);
        sqlite3_exec(c->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
        last_transaction(c);
    }
    rows_close(&c->rows);
    int complete = !truncation(c);
    if (!c->stop_reason || strcmp(c->stop_reason, "disk"))
        store_make_indexes(c->db); /* without them it is only slower */
    analyse(c);
    one_file(c);
    sqlite3_close(c->db);
    c->db = c->rows.db = NULL;
    collect_status(c->config, "done %llu %s %s\n", (unsigned long long)c->shown_pid,
                   complete ? "complete" : "truncated", c->path);
}
