/* Records become rows. One transaction is open at a time; where the database cannot be written any more (disk full,
 * size limit) storing stops for good, what was committed stays, and the records that come are only counted. One thread.
 */
#ifndef ACCT_TRACE_COLLECT_ROWS_H
#define ACCT_TRACE_COLLECT_ROWS_H

#include <stdint.h>
#include <sqlite3.h>
#include <sys/types.h>
#include "trace/collect_activity.h"
#include "trace/collect_life.h"
#include "trace/collect_modules.h"
#include "trace/ring_read.h"

/* What is known of one ring, from its owner's THREAD record on. */
struct rows_ring {
    int64_t thread;       /* thread.id of the owner, 0: not known */
    int64_t last_op;      /* to which a record with ACCT_REC_CONTINUES belongs, 0: none */
    uint64_t last_ns;     /* its start */
    uint64_t lost_told;   /* records: sum of the LOST records */
    uint64_t lost_booked; /* records: in rows of `lost` */
    uint64_t texts_booked;
};

enum rows_stmt {
    ROWS_OP,
    ROWS_ALLOC,
    ROWS_ALLOC_END,
    ROWS_STREAM,
    ROWS_STREAM_END,
    ROWS_THREAD,
    ROWS_API,
    ROWS_DEVICE,
    ROWS_MEMINFO,
    ROWS_PROCESS,
    ROWS_PROCESS_END,
    ROWS_LOST,
    ROWS_META,
    ROWS_PTX,
    ROWS_MODULE,
    ROWS_MODULE_TEXT,
    ROWS_KERNEL,
    ROWS_CORRELATION,
    ROWS_ACTIVITY,
    ROWS_ACTIVITY_NAME,
    ROWS_BEGIN,
    ROWS_COMMIT,
    ROWS_STMTS
};

struct rows {
    sqlite3 *db;
    const char *path; /* the caller's */
    sqlite3_stmt *stmt[ROWS_STMTS], *detail[ACCT_EV_COUNT];
    struct life *allocs, *streams;
    struct modules *modules;
    struct activities *activities;
    pid_t pid; /* of the program as we see it, whose files modules are read from; 0: not known. The caller sets it */
    int64_t next_id;
    int in_transaction;
    uint64_t pending; /* calls in the open transaction */
    uint64_t rows;    /* records handed to the open transaction */
    uint64_t max_bytes;
    uint64_t dropped; /* calls not stored since storing stopped */
    uint64_t dropped_first_ns, dropped_last_ns;
    const char *stopped;              /* reason as in lost.reason: disk | size limit; NULL: storing */
    char reason[160];                 /* what went wrong, in SQLite's words */
    char message[ACCT_MESSAGE_BYTES]; /* the same as a line for the user */
};

/* 0; or -1 with a line in r->message. db and path stay the caller's. */
int rows_open(struct rows *r, sqlite3 *db, const char *path, uint64_t max_bytes);
/* Finalizes the statements; the open transaction is rolled back. */
void rows_close(struct rows *r);

/* Begins a transaction if none is open. 0; or 1: another process has the database locked, try again later. */
int rows_begin(struct rows *r);
/* 0; or 1: locked, the transaction stays open, try again later. */
int rows_commit(struct rows *r);

/* Runs a prepared statement and resets it. 0, or -1: storing has stopped. For the files of this room. */
int rows_step(struct rows *r, sqlite3_stmt *stmt);

void rows_process(struct rows *r, int64_t pid, uint64_t start_ns);
void rows_record(struct rows *r, struct rows_ring *ring, struct ring_record *record);
/* What the ring's header counts as lost beyond the LOST records seen. */
void rows_lost_residue(struct rows *r, struct rows_ring *ring, uint64_t records, uint64_t texts);
/* A row of `lost`; negative: not known. 0, or -1: storing has stopped. */
int rows_lost(struct rows *r, int64_t thread, int64_t records, int64_t texts, uint64_t first_ns, uint64_t last_ns,
              const char *reason);
/* exit_code < 0: not known. */
void rows_process_end(struct rows *r, uint64_t end_ns, const char *reason, int exit_code);

#endif
