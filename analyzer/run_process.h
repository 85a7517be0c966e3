/* The two processes of `acct run`: the collector, which tells through a pipe which traces it opened and finished, and
 * the program. One thread; signals are taken by signalfd, so that the program starts with the dispositions and the mask
 * that acct itself was given. */
#ifndef ACCT_ANALYZER_RUN_PROCESS_H
#define ACCT_ANALYZER_RUN_PROCESS_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include "analyzer/run_parts.h"

struct run_trace {
    long pid; /* of the traced process */
    int done;
    char state[16]; /* complete | truncated, once done */
    char path[RUN_PATH];
};

struct run_process {
    pid_t collector, program;
    int listener, status, signals; /* descriptors, -1: closed */
    sigset_t old_mask;
    struct sigaction old_child;
    char socket_name[64]; /* as in ACCT_SOCKET, with the @ */
    struct run_trace *traces;
    int n_traces;
    char error[600]; /* the collector's last error line */
    char buffer[RUN_PATH + 128];
    size_t buffered;
    int interrupted; /* a signal cut the waiting for the collector short */
};

/* Each returns 0, or -1 with one line in err. */
int run_prepare(struct run_process *r, char *err, size_t err_len); /* socket, signals */
int run_start_collector(struct run_process *r, const struct run_parts *parts, const char *output, int force, char *err,
                        size_t err_len);
int run_start_program(struct run_process *r, const struct run_parts *parts, const char *path, char **argv, char *err,
                      size_t err_len);

/* Waits for the program's end; forwards SIGTERM and SIGHUP to it. Its wait status. */
int run_wait_program(struct run_process *r);

/* Waits until the traces of all processes that have ended are finished. */
void run_wait_traces(struct run_process *r);

#endif
