#include "analyzer/run_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int failed(char *err, size_t err_len, const char *what) {
    snprintf(err, err_len, "%s: %s; the program was not started", what, strerror(errno));
    return -1;
}

/* A copy of fd out of the way of 0–9, closed on exec: the collector gets its descriptors as 3 and 4. */
static int move_up(int fd) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (fd >= 0) close(fd);
    return high;
}

static int open_listener(struct run_process *r) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned long long nonce = 0;
    size_t n;
    r->listener = move_up(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (r->listener < 0 || getrandom(&nonce, sizeof nonce, 0) < 0) return -1;
    n = (size_t)snprintf(r->socket_name, sizeof r->socket_name, "@acct-%ld-%016llx", (long)getpid(), nonce);
    memcpy(address.sun_path + 1, r->socket_name + 1, n - 1); /* abstract: the first byte is 0 */
    if (bind(r->listener, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)))
        return -1;
    return listen(r->listener,
                  SOMAXCONN); /* a connection that finds no place does not wait: the library starts a collector */
}

int run_prepare(struct run_process *r, char *err, size_t err_len) {
    sigset_t set;
    memset(r, 0, sizeof *r);
    r->listener = r->status = r->signals = -1;
    if (open_listener(r)) return failed(err, err_len, "cannot open a socket for the collector");
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL},
              &r->old_child); /* ignored, it would lose the exit code */
    sigemptyset(&set);
    const int taken[] = {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, &r->old_mask); /* a blocked signal is queued for signalfd even where it is ignored */
    r->signals = move_up(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    return r->signals < 0 ? failed(err, err_len, "cannot open a signal descriptor") : 0;
}

/* ---- environments ---- */

static int same_name(const char *a, const char *b) {
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && !strncmp(a, b, n);
}

/* environ with `set` ("NAME=VALUE"; "NAME" alone: taken out). Both arrays end with NULL; the texts are shared. */
static char **environment_with(const char *const *set) {
    size_t n = 0, k = 0, extra = 0;
    char **copy;
    while (environ[n]) n++;
    while (set[extra]) extra++;
    copy = malloc((n + extra + 1) * sizeof *copy);
    if (!copy) return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t s = 0;
        while (set[s] && !same_name(set[s], environ[i])) s++;
        if (!set[s]) copy[k++] = environ[i];
    }
    for (size_t s = 0; s < extra; s++)
        if (strchr(set[s], '=')) copy[k++] = (char *)(size_t)set[s];
    copy[k] = NULL;
    return copy;
}

/* "NAME=first:what was there". */
static char *prefixed(const char *name, const char *first) {
    const char *old = getenv(name);
    char *text = NULL;
    if (asprintf(&text, "%s=%s%s%s", name, first, old && *old ? ":" : "", old ? old : "") < 0) return NULL;
    return text;
}

/* ---- starting ---- */

/* In a session of its own, without our terminal and descriptors, with default signals: it outlives us where it must. */
static int spawn_collector(struct run_process *r, const char *path, int status, char **envp) {
    char *argv[] = {(char[]){"acct-collect"}, (char[]){"--listen-fd"}, (char[]){"3"},
                    (char[]){"--status-fd"},  (char[]){"4"},           NULL};
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t none, all;
    int rc;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    for (int fd = 0; fd <= 2; fd++) /* stderr too: it would hold `acct run … 2>&1 | tee` open */
        posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&fa, r->listener, 3);
    posix_spawn_file_actions_adddup2(&fa, status, 4);
    posix_spawn_file_actions_addclosefrom_np(&fa, 5);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn(&r->collector, path, &fa, &at, argv, envp);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    return rc;
}

int run_start_collector(struct run_process *r, const struct run_parts *parts, const char *output, int force, char *err,
                        size_t err_len) {
    char output_text[RUN_PATH + 16];
    const char *set[6] = {"LD_PRELOAD", "ACCT_SOCKET"};
    int ends[2], n = 2, rc;
    char **envp;
    if (output) {
        snprintf(output_text, sizeof output_text, "ACCT_OUTPUT=%s", output);
        set[n++] = output_text;
    }
    if (force) set[n++] = "ACCT_FORCE=on";
    envp = environment_with(set);
    if (!envp || pipe2(ends, O_CLOEXEC)) return failed(err, err_len, "cannot make a pipe to the collector");
    r->status = move_up(ends[0]);
    ends[1] = move_up(ends[1]);
    if (r->status < 0 || ends[1] < 0) return failed(err, err_len, "cannot make a pipe to the collector");
    fcntl(r->status, F_SETFL, O_NONBLOCK);
    rc = spawn_collector(r, parts->collector, ends[1], envp);
    close(ends[1]);
    close(r->listener);
    r->listener = -1;
    free(envp);
    if (!rc) return 0;
    snprintf(err, err_len, "%s: cannot be started: %s; the program was not started", parts->collector, strerror(rc));
    return -1;
}

/* Between fork and exec. Signals as acct found them; the error of a failed exec goes through the pipe. */
static void become_program(const struct run_process *r, const char *path, char **argv, char **envp, int report) {
    int error;
    if (r->old_child.sa_handler == SIG_IGN) signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    execve(path, argv, envp);
    error = errno;
    (void)!write(report, &error, sizeof error);
    _exit(CHAR_MAX);
}

int run_start_program(struct run_process *r, const struct run_parts *parts, const char *path, char **argv, char *err,
                      size_t err_len) {
    char socket_text[96], **envp = NULL, *preload = prefixed("LD_PRELOAD", parts->library), *libraries = NULL;
    const char *set[6] = {preload, socket_text};
    int report[2] = {-1, -1}, error = 0, n = 2;
    snprintf(socket_text, sizeof socket_text, "ACCT_SOCKET=%s", r->socket_name);
    if (parts->vgpu[0]) set[n++] = libraries = prefixed("LD_LIBRARY_PATH", parts->vgpu);
    if (parts->profile[0]) set[n++] = parts->profile;
    if (parts->dry) set[n++] = "ACCT_VGPU_DRY=on";
    if (preload && (!parts->vgpu[0] || libraries)) envp = environment_with(set);
    if (!envp || pipe2(report, O_CLOEXEC)) return failed(err, err_len, "cannot start the program");
    report[1] = move_up(report[1]);
    fflush(NULL);
    r->program = fork();
    if (r->program == 0) become_program(r, path, argv, envp, report[1]);
    close(report[1]);
    free(envp), free(preload), free(libraries);
    if (r->program < 0) return failed(err, err_len, "cannot start the program");
    while (read(report[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
    close(report[0]);
    if (!error) return 0;
    waitpid(r->program, NULL, 0);
    snprintf(err, err_len, "%s: cannot be started: %s; check the program", path, strerror(error));
    return -1;
}

/* ---- what the collector tells ---- */

static struct run_trace *add_trace(struct run_process *r) {
    struct run_trace *all = realloc(r->traces, (size_t)(r->n_traces + 1) * sizeof *all);
    if (!all) return NULL;
    r->traces = all;
    memset(&all[r->n_traces], 0, sizeof *all);
    return &all[r->n_traces++];
}

/* The collector tells whole paths; what lies in our folder is easier to read (and to type) without it. */
static void shorten(const char *path, char out[RUN_PATH]) {
    char cwd[RUN_PATH];
    size_t n = getcwd(cwd, sizeof cwd) ? strlen(cwd) : 0;
    int inside = n > 1 && !strncmp(path, cwd, n) && path[n] == '/' && path[n + 1] && path[n + 1] != '-';
    snprintf(out, RUN_PATH, "%s", inside ? path + n + 1 : path);
}

/* `open PID PATH`, `done PID STATE PATH`, `error PID message`. What is none of these is left alone: a newer collector.
 */
static void take_line(struct run_process *r, char *line) {
    char *end, *rest = strchr(line, ' ');
    long pid = rest ? strtol(rest, &end, 10) : 0;
    if (!rest || *end != ' ') return;
    rest = end + 1;
    if (!strncmp(line, "open ", 5)) {
        struct run_trace *t = add_trace(r);
        if (!t) return;
        t->pid = pid;
        shorten(rest, t->path);
    } else if (!strncmp(line, "done ", 5)) {
        char *path = strchr(rest, ' ');
        char shown[RUN_PATH];
        if (!path) return;
        *path++ = 0;
        shorten(path, shown);
        for (int i = 0; i < r->n_traces; i++) {
            struct run_trace *t = &r->traces[i];
            if (t->pid != pid || strcmp(t->path, shown)) continue;
            t->done = 1;
            snprintf(t->state, sizeof t->state, "%s", rest);
        }
    } else if (!strncmp(line, "error ", 6)) {
        snprintf(r->error, sizeof r->error, "%s", rest);
    }
}

static void read_status(struct run_process *r) {
    for (;;) {
        char *end;
        ssize_t n = read(r->status, r->buffer + r->buffered, sizeof r->buffer - 1 - r->buffered);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(r->status);
            r->status = -1;
            return;
        }
        r->buffered += (size_t)n;
        r->buffer[r->buffered] = 0;
        while ((end = strchr(r->buffer, '\n'))) {
            *end = 0;
            take_line(r, r->buffer);
            r->buffered -= (size_t)(end + 1 - r->buffer);
            memmove(r->buffer, end + 1, r->buffered + 1);
        }
        if (r->buffered == sizeof r->buffer - 1) r->buffered = 0; /* no line of the collector is that long */
    }
}

/* ---- waiting ---- */

/* Waits up to `ms` (-1: for ever) for the collector's lines or a signal. Returns a signal that came, or 0. */
static int wait_for_news(struct run_process *r, int ms) {
    struct pollfd fds[2] = {{.fd = r->signals, .events = POLLIN}, {.fd = r->status, .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll(fds, 2, ms) <= 0) return 0;
    if (fds[1].revents) read_status(r);
    if (fds[0].revents && read(r->signals, &info, sizeof info) == sizeof info) return (int)info.ssi_signo;
    return 0;
}

int run_wait_program(struct run_process *r) {
    int status = 0;
    for (;;) {
        pid_t pid = waitpid(r->program, &status, WNOHANG);
        if (pid == r->program || (pid < 0 && errno == ECHILD)) return status;
        int sig = wait_for_news(r, -1);
        if (sig == SIGTERM || sig == SIGHUP)
            kill(r->program, sig); /* the terminal sends SIGINT and SIGQUIT to it by itself */
    }
}

/* A trace that can be expected to finish: its process has ended. */
static int finishing(const struct run_process *r, const struct run_trace *t) {
    return !t->done && (t->pid == r->program || (kill((pid_t)t->pid, 0) && errno == ESRCH));
}

/* A refusal may come a moment after the program, which does not wait for it, has ended. */
static void wait_for_first_news(struct run_process *r) {
    wait_for_news(r, 0);
    for (int i = 0; i < 10 && r->status >= 0 && !r->n_traces && !r->error[0]; i++) wait_for_news(r, 10);
}

void run_wait_traces(struct run_process *r) {
    struct timespec start, now;
    int told = !isatty(STDERR_FILENO);
    clock_gettime(CLOCK_MONOTONIC, &start);
    wait_for_first_news(r);
    while (r->status >= 0) {
        int waiting = 0, sig;
        for (int i = 0; i < r->n_traces; i++) waiting += finishing(r, &r->traces[i]);
        if (!waiting) return;
        sig = wait_for_news(r, 100);
        if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT) {
            r->interrupted = 1;
            return;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!told && now.tv_sec - start.tv_sec >= 2) {
            told = 1;
            fputs("acct run: the program has ended; the trace is being finished (Ctrl-C: do not wait)\n", stderr);
        }
    }
}
