#include "analyzer/bench_child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct child {
    pid_t pid;
    int lines, signals; /* descriptors */
    sigset_t old_mask;
    char buffer[8 * MEASURED_LINE];
    size_t buffered;
    double start;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- starting ---- */

/* Between fork and exec of a process with one thread. SIGKILL, since nothing is lost: it writes no file. */
static void become_bench(const struct child *c, const struct run_parts *parts, const struct bench_wanted *wanted,
                         pid_t parent, int out) {
    char seconds[32], libraries[2 * RUN_PATH];
    const char *old = getenv("LD_LIBRARY_PATH");
    const char *argv[8] = {"acct-bench", "--seconds", seconds};
    int n = 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(CHAR_MAX);
    sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    snprintf(seconds, sizeof seconds, "%.3f", wanted->seconds);
    if (wanted->only) argv[n++] = "--only", argv[n++] = wanted->only;
    if (wanted->dtype) argv[n++] = "--dtype", argv[n++] = wanted->dtype;
    if (parts->vgpu[0]) {
        snprintf(libraries, sizeof libraries, "%s%s%s", parts->vgpu, old && *old ? ":" : "", old ? old : "");
        setenv("LD_LIBRARY_PATH", libraries, 1);
    }
    if (parts->profile[0]) setenv("ACCT_VGPU", parts->profile + strlen("ACCT_VGPU="), 1);
    if (dup2(out, STDOUT_FILENO) < 0) _exit(CHAR_MAX);
    execv(parts->bench, (char *const *)argv);
    _exit(CHAR_MAX);
}

static int start(struct child *c, const struct run_parts *parts, const struct bench_wanted *wanted, char *err,
                 size_t err_len) {
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    pid_t parent = getpid();
    sigset_t set;
    int ends[2];
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) { /* what is ignored, as by nohup, stays so */
        struct sigaction was;
        if (!sigaction(taken[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(&set, taken[i]);
    }
    if (pipe2(ends, O_CLOEXEC)) {
        snprintf(err, err_len, "cannot make a pipe: %s", strerror(errno));
        return -1;
    }
    sigprocmask(SIG_BLOCK, &set, &c->old_mask);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    fflush(NULL);
    c->start = now();
    c->pid = c->signals < 0 ? -1 : fork();
    if (c->pid == 0) become_bench(c, parts, wanted, parent, ends[1]);
    close(ends[1]);
    c->lines = ends[0];
    if (c->pid > 0) return 0;
    snprintf(err, err_len, "%s: cannot be started: %s", parts->bench, strerror(errno));
    close(c->lines);
    if (c->signals >= 0) close(c->signals);
    sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
    return -1;
}

/* ---- reading ---- */

static void show_progress(const struct child *c, const struct bench_wanted *wanted, const struct bench_results *r) {
    const struct measured *x = r->n ? &r->rows[r->n - 1] : NULL;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kacct bench: %.0f of %.0f s, %d measured%s%s%s%s%s", now() - c->start, wanted->seconds,
            r->n, x ? "; " : "", x ? x->kind : "", x ? " " : "", x ? x->what : "", "");
    fflush(stderr);
}

static void hide_progress(void) {
    if (!isatty(STDERR_FILENO)) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

/* 0: there may be more; 1: the child closed its end. */
static int read_lines(struct child *c, struct bench_results *r) {
    char *end;
    ssize_t n = read(c->lines, c->buffer + c->buffered, sizeof c->buffer - 1 - c->buffered);
    if (n < 0) return errno != EINTR && errno != EAGAIN;
    if (n == 0) return 1;
    c->buffered += (size_t)n;
    c->buffer[c->buffered] = 0;
    while ((end = strchr(c->buffer, '\n'))) {
        char next = end[1];
        end[1] = 0;
        bench_take_line(r, c->buffer);
        end[1] = next;
        c->buffered -= (size_t)(end + 1 - c->buffer);
        memmove(c->buffer, end + 1, c->buffered + 1);
    }
    if (c->buffered == sizeof c->buffer - 1) c->buffered = 0; /* no line is that long */
    return 0;
}

/* A signal that came, or 0. */
static int taken_signal(const struct child *c) {
    struct signalfd_siginfo info;
    return read(c->signals, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

/* Until the child is done (0), a signal comes (its number) or the time is over (-1). A Ctrl-C ends the child too, so
 * that its end may be seen first. */
static int read_all(struct child *c, const struct bench_wanted *wanted, struct bench_results *r) {
    const double deadline = c->start + 1.15 * wanted->seconds + 0.4; /* acct-bench ends itself before */
    for (;;) {
        struct pollfd fds[2] = {{.fd = c->lines, .events = POLLIN}, {.fd = c->signals, .events = POLLIN}};
        int sig;
        if (now() >= deadline) return -1;
        poll(fds, 2, 200);
        if (fds[1].revents && (sig = taken_signal(c))) return sig;
        if (fds[0].revents && read_lines(c, r)) return taken_signal(c);
        show_progress(c, wanted, r);
    }
}

enum { EXIT_LATE = 3 /* of acct-bench: its time was over before the end */ };

static int how_it_ended(struct bench_results *r, int cut_off, int status, char *err, size_t err_len) {
    if (r->ended || *r->refused || *r->no_device) return 0;
    r->late = r->n && (cut_off || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LATE));
    if (r->late) return 0;
    if (cut_off || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LATE))
        snprintf(err, err_len, "the time was over before anything was measured; give more --seconds");
    else if (WIFSIGNALED(status))
        snprintf(err, err_len,
                 "acct-bench was ended by signal %d (%s) before all was measured; nothing is shown or saved",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(err, err_len, "acct-bench ended with code %d before all was measured; nothing is shown or saved",
                 WEXITSTATUS(status));
    return -1;
}

int bench_run(const struct run_parts *parts, const struct bench_wanted *wanted, struct bench_results *r, char *err,
              size_t err_len) {
    static struct child c;
    int status = 0;
    if (start(&c, parts, wanted, err, err_len)) return -1;
    int why = read_all(&c, wanted, r);
    if (why) kill(c.pid, SIGKILL);
    while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {
    }
    hide_progress();
    close(c.lines);
    close(c.signals);
    sigprocmask(SIG_SETMASK, &c.old_mask, NULL);
    if (why > 0) return why;
    return how_it_ended(r, why < 0, status, err, err_len);
}
