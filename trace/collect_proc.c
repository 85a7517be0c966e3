#include "trace/collect_proc.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* the same number on every architecture */
#endif

static FILE *open_proc(pid_t pid, const char *what) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    return pid > 0 ? fopen(path, "re") : NULL;
}

/* Field 22 of /proc/PID/stat, and the state in *state. The name in field 2 may contain anything, so counting begins
 * after the last ')'. 0: no such process. */
static uint64_t start_time(pid_t pid, char *state) {
    char line[1024];
    FILE *f = open_proc(pid, "stat");
    if (!f) return 0;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    char *p = strrchr(line, ')');
    unsigned long long ticks = 0;
    if (!p || sscanf(p + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", state,
                     &ticks) != 2)
        return 0;
    return ticks;
}

void proc_open(struct proc *p, pid_t pid) {
    char state;
    *p = (struct proc){.pid = pid, .pidfd = -1};
    if (pid <= 0) return;
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    p->start_time = start_time(pid, &state);
}

void proc_close(struct proc *p) {
    if (p->pidfd >= 0) close(p->pidfd);
    p->pidfd = -1;
}

int proc_alive(const struct proc *p) {
    char state = 0;
    if (p->pid <= 0) return 1;
    if (p->pidfd >= 0) {
        struct pollfd poll_fd = {.fd = p->pidfd, .events = POLLIN};
        return poll(&poll_fd, 1, 0) <= 0;
    }
    uint64_t now = start_time(p->pid, &state);
    return now != 0 && now == p->start_time && state != 'Z' && state != 'X';
}

int proc_maps(const struct proc *p, dev_t device, ino_t inode) {
    char *line = NULL;
    size_t capacity = 0;
    int lines = 0, found = 0;
    FILE *f = open_proc(p->pid, "maps");
    if (!f) return -1;
    while (!found && getline(&line, &capacity, f) > 0) {
        unsigned major_, minor_;
        unsigned long long inode_;
        lines++;
        if (sscanf(line, "%*s %*s %*s %x:%x %llu", &major_, &minor_, &inode_) != 3) continue;
        found = inode_ == inode && major_ == major(device) && minor_ == minor(device);
    }
    free(line);
    fclose(f);
    return found ? 1 : lines ? 0 : -1;
}

long proc_rank(pid_t pid) {
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    long rank[4] = {-1, -1, -1, -1};
    char *entry = NULL;
    size_t capacity = 0;
    FILE *f = open_proc(pid, "environ");
    if (!f) return 0;
    while (getdelim(&entry, &capacity, 0, f) > 0)
        for (int i = 0; i < 4; i++) {
            size_t n = strlen(names[i]);
            char *end;
            if (strncmp(entry, names[i], n) || entry[n] != '=') continue;
            long value = strtol(entry + n + 1, &end, 10);
            if (end != entry + n + 1 && !*end && value >= 0) rank[i] = value;
        }
    free(entry);
    fclose(f);
    for (int i = 0; i < 4; i++)
        if (rank[i] >= 0) return rank[i];
    return 0;
}
