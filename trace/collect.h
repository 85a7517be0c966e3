/* acct-collect: the process that drains the rings of traced programs into traces. One worker process serves one
 * program. */
#ifndef ACCT_TRACE_COLLECT_H
#define ACCT_TRACE_COLLECT_H

#include <signal.h>
#include <stdint.h>
#include <sqlite3.h>
#include "trace/collect_proc.h"
#include "trace/collect_rows.h"
#include "trace/ring_read.h"

#define COLLECT_PATH_BYTES 4096

struct collect_config {
    const char *output; /* pattern */
    int output_given;   /* by ACCT_OUTPUT: an existing file is refused, not stepped aside for */
    int force;          /* ACCT_FORCE: an existing file may be replaced */
    int later;          /* under acct run: not the first process, so a name that is taken is our own doing */
    uint64_t max_bytes; /* 0: no limit */
    uint64_t commit_ns; /* commit at least this often */
    int status_fd;      /* -1: nobody listens */
};

/* One traced program. */
struct collect {
    const struct collect_config *config;
    int socket; /* -1: closed by the program, or exec */
    struct proc proc;
    uint64_t shown_pid;  /* in names and messages: as the program knows itself where we cannot see it */
    dev_t memory_device; /* of the memfd, to find it in the program's maps */
    ino_t memory_inode;
    struct ring_map map;
    sqlite3 *db;
    char path[COLLECT_PATH_BYTES];
    int ballast; /* an unlinked file that is given up to finish on a full disk; -1 none */
    struct rows rows;
    struct ring_reader *readers;         /* map.max_rings of them */
    struct rows_ring *rings, *committed; /* now, and as of the last commit */
    uint64_t *limits;                    /* heads at the start of a pass */
    unsigned char *corrupt;              /* rings that are not read any more */
    int corrupt_rings;
    uint32_t rings_in_use;
    char *text_copy;
    struct ring_record record;
    uint64_t transaction_ns; /* when the open transaction began */
    uint64_t maps_check_ns;  /* when to look at the program's maps, once its socket is closed */
    int stop_told;           /* that storing has stopped (rows.stopped) */
    const char *stop_reason; /* at the end: rows.stopped as it was */
    int exit_answered;       /* `committed` is set */
    const char *end_reason;  /* process.end_reason, NULL: it runs */
};

/* Set by SIGTERM and SIGINT: finish what is there and end. */
extern volatile sig_atomic_t collect_stop;

uint64_t collect_now_ns(void);
/* One line to the status descriptor, if there is one: `VERB PID rest`. */
void collect_status(const struct collect_config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Takes the hello from `socket`, maps the rings, creates the trace and answers. 0; or -1: refused, and all is told. */
int collect_accept(struct collect *c, int socket, const struct collect_config *config);
/* The answer to a program's hello: error 0, or why there will be no trace. */
void collect_reply(int socket, int error, const char *message);
/* Drains what is in the rings at its beginning: what is written meanwhile may wait for the next pass. Records read. */
uint64_t collect_drain(struct collect *c);
/* Commits; waits for another process' lock on the database, unless told to stop. */
void collect_commit(struct collect *c);
/* Commits if it is time to; does not wait for a lock. */
void collect_commit_if_due(struct collect *c);
/* Sets control->committed, so that a program that waits in exit() goes on. */
void collect_answer_exit(struct collect *c);
/* Last rows, state, analysis; leaves one file. */
void collect_finish(struct collect *c);
void collect_delete(struct collect *c);

/* The whole life of one connection. Exit code of the worker. */
int collect_serve(int socket, const struct collect_config *config);

#endif
