/* acct-collect: options, and the listener that gives each traced program a worker of its own. */
#include "trace/collect.h"
#include "acct/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 500
#define ACCEPT_RETRY_MS 20
#define MOST_WORKERS 4096
#define HELLO_MS 5000

static const char usage[] =
    "usage: acct-collect --fd N | --listen-fd N [--status-fd M]\n"
    "\n"
    "Drains the rings of programs traced by libacct.so into SQLite traces. Started by libacct.so and by acct run.\n"
    "\n"
    "  --fd N          serve the program at the other end of the connected socket N, then end\n"
    "  --listen-fd N   serve every program that connects to the listening socket N (SOCK_SEQPACKET, AF_UNIX)\n"
    "  --status-fd M   with --listen-fd: tell what happens on M, a line each: open PID PATH, done PID STATE PATH,\n"
    "                  error PID MESSAGE; accepting ends when the reader of M has gone\n"
    "  --help          this text\n"
    "\n"
    "Environment: ACCT_OUTPUT, ACCT_FORCE, ACCT_MAX_BYTES, ACCT_COMMIT_INTERVAL (acct help env).\n";

static void on_signal(int number) {
    (void)number;
    collect_stop = 1;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

struct options {
    int fd, listen_fd, status_fd;
};

static int bad(const char *what, const char *value) {
    fprintf(stderr, "acct-collect: %s '%s': see acct-collect --help\n", what, value);
    return 2;
}

static int parse_fd(const char *option, const char *text, int *fd) {
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (!text) return bad("a descriptor number is missing after", option);
    if (end == text || *end || n < 0 || n > INT_MAX || fcntl((int)n, F_GETFD) < 0)
        return bad("not an open descriptor:", text);
    fcntl((int)n, F_SETFD, FD_CLOEXEC); /* the analysis has no business with it */
    *fd = (int)n;
    return 0;
}

/* 0, an exit code, or -1: --help was given. */
static int parse(int argc, char **argv, struct options *o) {
    static const char *const names[] = {"--fd", "--listen-fd", "--status-fd"};
    int *const targets[] = {&o->fd, &o->listen_fd, &o->status_fd};
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        if (!strcmp(argv[i], "--help")) return -1;
        while (k < 3 && strcmp(argv[i], names[k])) k++;
        if (k == 3) return bad("unknown option", argv[i]);
        int rc = parse_fd(argv[i], argv[i + 1], targets[k]);
        if (rc) return rc;
    }
    if ((o->fd < 0) == (o->listen_fd < 0)) return bad("exactly one is needed of", "--fd, --listen-fd");
    return 0;
}

/* A malformed number falls back to its default: the library tells the user. */
static void configure(struct collect_config *c, int status_fd) {
    uint64_t number;
    const char *given = getenv("ACCT_OUTPUT");
    *c = (struct collect_config){
        .output = acct_env_text(ENV_ACCT_OUTPUT), .output_given = given && *given, .status_fd = status_fd};
    acct_env_number(ENV_ACCT_FORCE, &number);
    c->force = number != 0;
    acct_env_number(ENV_ACCT_MAX_BYTES, &c->max_bytes);
    acct_env_number(ENV_ACCT_COMMIT_INTERVAL, &number);
    c->commit_ns = number > 3600000 ? 3600000000000u : number * 1000000u;
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

struct workers {
    pid_t pids[MOST_WORKERS];
    int count;
};

static void reap(struct workers *w, int options) {
    pid_t pid = waitpid(-1, NULL, options);
    for (int i = 0; pid > 0 && i < w->count; i++)
        if (w->pids[i] == pid) w->pids[i--] = w->pids[--w->count];
    if (pid < 0 && errno == ECHILD) w->count = 0;
}

static int same_user(int fd) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

/* After the hello: an answer to a question not asked yet might not be read. */
static int refuse_user(int connection) {
    struct pollfd hello = {.fd = connection, .events = POLLIN};
    char byte;
    if (poll(&hello, 1, HELLO_MS) > 0 && recv(connection, &byte, sizeof byte, MSG_DONTWAIT) >= 0)
        collect_reply(connection, 1, "the program runs as another user than acct run; start acct run as that user");
    return 1;
}

static void start_worker(struct workers *w, int listen_fd, int connection, struct collect_config *config) {
    pid_t pid = w->count < MOST_WORKERS ? fork() : -1;
    int known = same_user(connection);
    if (pid == 0) {
        close(listen_fd);
        _exit(known ? collect_serve(connection, config) : refuse_user(connection));
    }
    close(connection);
    if (pid < 0) return;
    w->pids[w->count++] = pid;
    config->later |= known;
}

/* Until the one who listens to our status has gone, or a signal. */
static void accept_loop(struct workers *w, int listen_fd, struct collect_config *config) {
    struct pollfd wait[2] = {{.fd = listen_fd, .events = POLLIN}, {.fd = config->status_fd, .events = 0}};
    while (!collect_stop) {
        int n = poll(wait, 2, POLL_MS);
        reap(w, WNOHANG);
        if (n > 0 && wait[0].revents & POLLIN) {
            int connection = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
            if (connection >= 0)
                start_worker(w, listen_fd, connection, config);
            else
                poll(NULL, 0, ACCEPT_RETRY_MS); /* out of descriptors, perhaps: not in a tight loop */
        } else if (n > 0 && wait[0].revents)
            break;
        if (n > 0 && wait[1].revents & (POLLERR | POLLHUP | POLLNVAL) && config->status_fd >= 0) break;
    }
}

static int serve_listener(int listen_fd, struct collect_config *config) {
    static struct workers w;
    int told = 0;
    accept_loop(&w, listen_fd, config);
    close(listen_fd);
    while (w.count) {
        for (int i = 0; collect_stop && !told && i < w.count; i++) kill(w.pids[i], SIGTERM);
        told = collect_stop;
        reap(&w, 0);
    }
    return 0;
}

int main(int argc, char **argv) {
    struct options o = {-1, -1, -1};
    struct collect_config config;
    struct sigaction stop = {.sa_handler = on_signal};
    int rc = parse(argc, argv, &o);
    if (rc < 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (rc) return rc;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the program's limit on file sizes is ours too: a write fails, as on a full disk */
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD); /* we have no threads: saves a tenth of the time of an insert */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    configure(&config, o.status_fd);
    return o.fd >= 0 ? collect_serve(o.fd, &config) : serve_listener(o.listen_fd, &config);
}
