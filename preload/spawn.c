#include "preload/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "acct/env.h"
#include "preload/say.h"
#include "preload/sys.h"

extern char **environ;

#define PATH_BYTES 4096
#define STACK_BYTES (64u << 10)
#define CHILD_SOCKET 3

static char candidates[3][PATH_BYTES]; /* absolute, "" none */

static void set_candidate(char *out, const char *cwd, const char *dir, size_t dir_len, const char *tail) {
    char part[PATH_BYTES] = "";
    out[0] = 0;
    if (dir_len + 1 >= sizeof part) return;
    memcpy(part, dir, dir_len);
    part[dir_len] = 0;
    if (part[0] != '/') {
        say_append(out, PATH_BYTES, cwd);
        say_append(out, PATH_BYTES, "/");
    }
    say_append(out, PATH_BYTES, part);
    say_append(out, PATH_BYTES, tail);
}

void spawn_remember_paths(void) {
    char cwd[PATH_BYTES] = "";
    Dl_info self;
    const char *given = acct_env_text(ENV_ACCT_COLLECTOR);
    if (syscall(SYS_getcwd, cwd, sizeof cwd) < 0) cwd[0] = 0;
    if (*given) { /* asked for by name: no other will do */
        set_candidate(candidates[0], cwd, given, strlen(given), "");
        return;
    }
    const char *slash = dladdr(candidates, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    if (!slash) return;
    size_t n = (size_t)(slash - self.dli_fname) + 1;
    set_candidate(candidates[0], cwd, self.dli_fname, n, "acct-collect");
    set_candidate(candidates[1], cwd, self.dli_fname, n, "../bin/acct-collect");
    set_candidate(candidates[2], cwd, self.dli_fname, n, "../../bin/acct-collect"); /* lib/x86_64-linux-gnu */
}

static const char *find_collector(void) {
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (candidates[i][0] && sys_access(candidates[i], X_OK) == 0) return candidates[i];
    return NULL;
}

int spawn_high_fd(int fd) {
    struct rlimit lim = {1024, 1024};
    getrlimit(RLIMIT_NOFILE, &lim);
    unsigned long from = lim.rlim_cur > 1024 ? 1000 : lim.rlim_cur > 48 ? lim.rlim_cur - 24 : 3;
    int high = sys_fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (high < 0) high = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
    sys_close(fd);
    return high;
}

/* Passed to the two children, which run in the program's memory on stacks of their own. */
struct plan {
    const char *path;
    char *const *argv;
    char **env;
    unsigned char *stacks; /* 2 * STACK_BYTES */
    int socket;            /* the collector's end */
    int error;             /* errno of what failed; 0 none */
};

/* What libc's sigaction would not touch either: all 64, by the kernel's own layout (handler, flags, restorer, mask). */
static void default_signals(void) {
    unsigned long action[4] = {0}, none = 0;
    for (int s = 1; s <= 64; s++) syscall(SYS_rt_sigaction, s, action, NULL, sizeof none);
    syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &none, NULL, sizeof none);
}

static void close_others(void) {
    struct rlimit lim = {1024, 1024};
    if (syscall(SYS_close_range, CHILD_SOCKET + 1, ~0u, 0) == 0) return;
    getrlimit(RLIMIT_NOFILE, &lim); /* before Linux 5.9 */
    for (unsigned fd = CHILD_SOCKET + 1; fd < lim.rlim_cur && fd < 1u << 20; fd++) sys_close((int)fd);
}

/* The program's own limits and processor binding are no business of the collector. */
static void lift_limits(void) {
    static const int which[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_STACK};
    unsigned long all[16];
    struct rlimit lim;
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        if (getrlimit((__rlimit_resource_t)which[i], &lim) == 0) {
            lim.rlim_cur = lim.rlim_max;
            syscall(SYS_prlimit64, 0, which[i], &lim, NULL);
        }
    memset(all, 0xff, sizeof all);
    syscall(SYS_sched_setaffinity, 0, sizeof all, all);
}

static int become_collector(void *arg) {
    struct plan *p = arg;
    int null = sys_open("/dev/null", O_RDWR);
    if (null < 0) null = (int)syscall(SYS_memfd_create, "null", 0); /* no /dev here: a sink all the same */
    syscall(SYS_setsid);
    default_signals();
    for (int fd = 0; fd <= 2; fd++) syscall(SYS_dup3, null, fd, 0); /* the same number already: refused, and right */
    if (p->socket != CHILD_SOCKET) syscall(SYS_dup3, p->socket, CHILD_SOCKET, 0);
    sys_fcntl(CHILD_SOCKET, F_SETFD, 0);
    close_others();
    lift_limits();
    syscall(SYS_execve, p->path, p->argv, p->env);
    p->error = errno;
    syscall(SYS_exit_group, 127);
    return 0;
}

/* Between the program and the collector, so that the collector is nobody's child once this has ended. */
static int start_and_leave(void *arg) {
    struct plan *p = arg;
    if (clone(become_collector, p->stacks + 2 * STACK_BYTES, CLONE_VM | CLONE_VFORK, p) < 0) p->error = errno;
    syscall(SYS_exit_group, 0);
    return 0;
}

static int drops_variable(const char *e) {
    static const char *const names[] = {
        "LD_PRELOAD=", "LD_LIBRARY_PATH=", "LD_AUDIT=", "CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(e, names[i], strlen(names[i]))) return 1;
    return 0;
}

static void fill_environment(char **out, size_t room) {
    size_t n = 0;
    for (char **e = environ; e && *e && n + 1 < room; e++)
        if (!drops_variable(*e)) out[n++] = *e;
    out[n] = NULL;
}

static int run(struct plan *p) {
    size_t count = 0;
    char number[24], *argv[] = {(char *)p->path, "--fd", (char *)say_number(number, CHILD_SOCKET), NULL};
    while (environ && environ[count]) count++;
    size_t env_bytes = (count + 64) * sizeof(char *); /* another thread may add some meanwhile */
    size_t bytes = 2 * STACK_BYTES + env_bytes;
    p->stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->stacks == MAP_FAILED) return errno;
    p->argv = argv;
    p->env = (char **)(p->stacks + 2 * STACK_BYTES);
    fill_environment(p->env, count + 64);
    int pid = clone(start_and_leave, p->stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, p), status;
    int error = pid < 0 ? errno : 0;
    if (pid > 0)
        while (syscall(SYS_wait4, pid, &status, __WALL, NULL) < 0 && errno == EINTR)
            ;
    munmap(p->stacks, bytes);
    return error ? error : p->error;
}

int spawn_collector(char *why, size_t why_len) {
    int pair[2];
    char number[24];
    struct plan p;
    memset(&p, 0, sizeof p);
    p.path = find_collector();
    if (!p.path) {
        const char *asked = acct_env_text(ENV_ACCT_COLLECTOR);
        say_append(why, why_len, *asked ? asked : "acct-collect");
        say_append(why, why_len,
                   *asked ? " cannot be run; correct ACCT_COLLECTOR"
                          : " is not beside libacct.so; set ACCT_COLLECTOR to its path");
        return -1;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        say_append(why, why_len, "no descriptor left for the collector's socket; raise ulimit -n");
        return -1;
    }
    int ours = spawn_high_fd(pair[0]);
    p.socket = spawn_high_fd(pair[1]);
    int error = ours < 0 || p.socket < 0 ? EMFILE : run(&p);
    if (p.socket >= 0) sys_close(p.socket);
    if (!error) return ours;
    if (ours >= 0) sys_close(ours);
    say_append(why, why_len, p.path);
    say_append(why, why_len, " cannot be started (error ");
    say_append(why, why_len, say_number(number, error));
    say_append(why, why_len, "); start the program with acct run");
    return -1;
}
