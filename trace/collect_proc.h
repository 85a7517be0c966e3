/* What the kernel tells about the traced process. */
#ifndef ACCT_TRACE_COLLECT_PROC_H
#define ACCT_TRACE_COLLECT_PROC_H

#include <stdint.h>
#include <sys/types.h>

struct proc {
    pid_t pid; /* as we see it; 0: it lives in a pid namespace that we cannot see into */
    int pidfd; /* -1: the kernel has none; then the start time tells whether the pid is still the same process */
    uint64_t start_time; /* clock ticks after boot */
};

void proc_open(struct proc *p, pid_t pid);
void proc_close(struct proc *p);

/* 1 until the last thread is gone. Always 1 where pid is 0. */
int proc_alive(const struct proc *p);

/* Is the file (device, inode) mapped? 1 yes; 0 no; -1 cannot be told: no address space any more, or not permitted. */
int proc_maps(const struct proc *p, dev_t device, ino_t inode);

/* The process' rank in its job, from the launcher's variables; 0 where there is none. */
long proc_rank(pid_t pid);

#endif
