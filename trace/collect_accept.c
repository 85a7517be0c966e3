/* The rendezvous: hello and memfd in, trace created, reply out. */
#include "trace/collect.h"
#include "trace/collect_name.h"
#include "trace/store.h"
#include "acct/version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define HELLO_TIMEOUT_MS 10000
#define MOST_NAMES 100000u
#define MOST_BALLAST_BYTES (8 << 20) /* the log that has to go back into the file, as a rule */
#define BIRTH_SECONDS 3              /* by the file's time: longer than the tables of a trace take to make */
#define BIRTH_TRIES 100
#define BIRTH_PAUSE_NS 10000000
#define LOCK_WAIT_MS 10 /* in one call of SQLite; the rings want to be drained meanwhile */

static int refuse(char *err, size_t err_len, const char *what) {
    snprintf(err, err_len, "%s%s%s", what, errno ? ": " : "", errno ? strerror(errno) : "");
    return -1;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */

/* The one descriptor of a message; further ones are closed. */
static int take_descriptor(struct msghdr *message) {
    int kept = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (kept < 0)
                kept = fd;
            else
                close(fd);
        }
    }
    return kept;
}

static int receive_hello(int socket, struct acct_hello *hello, char *err, size_t err_len) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = hello, .iov_len = sizeof *hello};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    errno = 0;
    if (poll(&wait, 1, HELLO_TIMEOUT_MS) <= 0) return refuse(err, err_len, "the program said nothing");
    ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    int fd = n < 0 ? -1 : take_descriptor(&message);
    if (n == sizeof *hello && hello->magic == ACCT_WIRE_MAGIC && hello->version == ACCT_WIRE_VERSION && fd >= 0)
        return fd;
    int versions =
        n >= (ssize_t)(2 * sizeof(uint32_t)) && hello->magic == ACCT_WIRE_MAGIC && hello->version != ACCT_WIRE_VERSION;
    if (fd >= 0) close(fd);
    errno = n < 0 ? errno : 0;
    return refuse(err, err_len,
                  versions ? "libacct.so and acct-collect are of different versions: install both from one build"
                           : "the program's first message is none of libacct.so");
}

/* Maps the rings for good: a peer that could shrink the file could make us fault. */
static int map_memory(struct collect *c, int fd, uint64_t bytes, char *err, size_t err_len) {
    struct stat st;
    errno = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes || bytes > SIZE_MAX / 2)
        return refuse(err, err_len, "shared memory of the traced program has not the size it says");
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return refuse(err, err_len, "shared memory of the traced program cannot be sealed");
    errno = 0;
    void *base = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) return refuse(err, err_len, "shared memory of the traced program cannot be mapped");
    c->memory_device = st.st_dev;
    c->memory_inode = st.st_ino;
    if (ring_map_check(&c->map, base, bytes, err, err_len) == 0) return 0;
    munmap(base, bytes);
    c->map.base = NULL;
    return -1;
}

static int take_memory(struct collect *c, char *err, size_t err_len) {
    struct acct_hello hello = {0};
    int fd = receive_hello(c->socket, &hello, err, err_len);
    if (fd < 0) return -1;
    int rc = map_memory(c, fd, hello.total_bytes, err, err_len);
    close(fd);
    return rc;
}

static int make_readers(struct collect *c, char *err, size_t err_len) {
    uint32_t n = c->map.max_rings;
    c->readers = calloc(n, sizeof *c->readers);
    c->rings = calloc(n, sizeof *c->rings);
    c->committed = calloc(n, sizeof *c->committed);
    c->limits = calloc(n, sizeof *c->limits);
    c->corrupt = calloc(n, 1);
    c->text_copy = malloc(c->map.blob_bytes);
    if (!c->readers || !c->rings || !c->committed || !c->limits || !c->corrupt || !c->text_copy) {
        errno = ENOMEM;
        return refuse(err, err_len, "acct-collect");
    }
    for (uint32_t i = 0; i < n; i++) ring_reader_init(&c->readers[i], &c->map, i, c->text_copy);
    return 0;
}

/* ---- the trace --------------------------------------------------------------------------------------------------- */

enum owner { OWNER_NONE, OWNER_ALIVE, OWNER_NOT_YET };

/* Who writes the trace, by what it says. NOT_YET: what there is does not say so far, as in a file just begun. */
static enum owner owner_of(const char *path) {
    char err[256];
    sqlite3 *db;
    sqlite3_int64 pid = 0;
    if (store_open(&db, path, 0, err, sizeof err)) return OWNER_NOT_YET;
    char *state = store_meta_text(db, "state");
    int running = state && !strcmp(state, "running"), known = store_meta_int(db, "collector_pid", &pid) == 0 && pid > 0;
    free(state);
    sqlite3_close(db);
    if (!running) return OWNER_NONE;
    if (!known) return OWNER_NOT_YET;
    return kill((pid_t)pid, 0) == 0 || errno == EPERM ? OWNER_ALIVE : OWNER_NONE;
}

static int is_fresh(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && time(NULL) - st.st_mtime <= BIRTH_SECONDS;
}

/* Another collector is writing this trace right now: that of the process that forked the program, or of another rank
 * that was started together with it. It is never replaced, force or not, and no reason to refuse. A file that was begun
 * a moment ago is given the time to say whose it is. */
static int being_written(const char *path) {
    enum owner owner = OWNER_NOT_YET;
    for (int n = 0; n < BIRTH_TRIES && owner == OWNER_NOT_YET; n++) {
        if (n) nanosleep(&(struct timespec){0, BIRTH_PAUSE_NS}, NULL);
        if (access(path, F_OK)) return 0;
        owner = owner_of(path);
        if (!is_fresh(path)) break;
    }
    return owner == OWNER_ALIVE;
}

static void folder_of(const char *path, char folder[COLLECT_PATH_BYTES]) {
    snprintf(folder, COLLECT_PATH_BYTES, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    else
        snprintf(folder, COLLECT_PATH_BYTES, ".");
}

static void absolute(const char *name, char *out, size_t len) {
    char cwd[COLLECT_PATH_BYTES];
    if (*name == '/' || !getcwd(cwd, sizeof cwd))
        snprintf(out, len, "%s", name);
    else if (snprintf(out, len, "%s/%s", cwd, name) >= (int)len)
        snprintf(out, len, "%s", name);
}

/* One collector at a time looks and replaces: what another has just put in its place is not taken for the old file. */
static int replace(struct collect *c, const char *name, char *err, size_t err_len) {
    char folder[COLLECT_PATH_BYTES];
    folder_of(name, folder);
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0) flock(lock, LOCK_EX); /* where that is not to be had, it was worth the try */
    int rc = being_written(name) ? STORE_EEXISTS : store_create(&c->db, name, 1, err, err_len);
    if (lock >= 0) close(lock);
    return rc;
}

/* The trace under the name of attempt `n`. 0; 1: the name is taken, and the next one will do; -1: refused. */
static int create_named(struct collect *c, const char *name, unsigned n, int counter, char *err, size_t err_len) {
    const struct collect_config *cfg = c->config;
    int first = cfg->output_given && !counter && !cfg->later && n == 0; /* the name that was asked for */
    int rc = store_create(&c->db, name, 0, err, err_len);
    if (rc == STORE_EEXISTS && n == 0 && !cfg->later && cfg->force)
        rc = replace(c, name, err, err_len);
    else if (rc == STORE_EEXISTS && first && !being_written(name))
        return -1;
    return rc == STORE_EEXISTS ? 1 : rc ? -1 : 0;
}

static int create_trace(struct collect *c, char *err, size_t err_len) {
    const struct collect_config *cfg = c->config;
    char host[256] = "", name[COLLECT_PATH_BYTES], numbered[COLLECT_PATH_BYTES];
    gethostname(host, sizeof host - 1);
    struct name_values v = {.pid = (long)c->shown_pid, .rank = proc_rank(c->proc.pid), .host = host};
    int counter = name_has_counter(cfg->output);
    for (unsigned n = 0; n < MOST_NAMES; n++) {
        v.counter = n;
        if (name_expand(cfg->output, &v, name, sizeof name, err, err_len)) return -1;
        if (name_number(name, counter ? 0 : n, numbered, sizeof numbered))
            return refuse(err, err_len, "ACCT_OUTPUT: the name is too long");
        int rc = create_named(c, numbered, n, counter, err, err_len);
        if (rc == 0) absolute(numbered, c->path, sizeof c->path);
        if (rc <= 0) return rc;
    }
    return refuse(err, err_len, "ACCT_OUTPUT: every name is taken: choose another folder");
}

/* Room that is given back when the disk is full, so that the last words can be written. It has no name: nothing is left
 * behind, however we end. Not taken where it would matter. */
static int make_ballast(const char *path) {
    char folder[COLLECT_PATH_BYTES];
    struct statvfs disk;
    folder_of(path, folder);
    if (statvfs(folder, &disk)) return -1;
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize / 8;
    uint64_t bytes = room < MOST_BALLAST_BYTES ? room : MOST_BALLAST_BYTES;
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int write_start(struct collect *c, char *err, size_t err_len) {
    struct timespec utc;
    clock_gettime(CLOCK_REALTIME, &utc);
    uint64_t now = collect_now_ns();
    if (rows_open(&c->rows, c->db, c->path, c->config->max_bytes) || rows_begin(&c->rows)) {
        snprintf(err, err_len, "%s", c->rows.message[0] ? c->rows.message : "the trace is locked by another process");
        return -1;
    }
    c->rows.pid = c->proc.pid;
    rows_process(&c->rows, (int64_t)c->shown_pid, now);
    int rc = store_meta_set_text(c->db, "acct_version", ACCT_VERSION) |
             store_meta_set_int(c->db, "collector_pid", getpid()) |
             store_meta_set_int(c->db, "start_mono_ns", (int64_t)now) |
             store_meta_set_int(c->db, "start_utc_ns", (int64_t)utc.tv_sec * 1000000000 + utc.tv_nsec);
    if (rc == 0 && rows_commit(&c->rows) == 0 && !c->rows.stopped) {
        sqlite3_busy_timeout(c->db, LOCK_WAIT_MS);
        return 0;
    }
    snprintf(err, err_len,
             "%.300s cannot be written (%.80s): make room, or choose another folder (-o FILE or ACCT_OUTPUT)", c->path,
             c->rows.stopped ? c->rows.reason : sqlite3_errmsg(c->db));
    return -1;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

void collect_reply(int socket, int error, const char *message) {
    struct acct_reply reply = {.magic = ACCT_WIRE_MAGIC, .error = error};
    snprintf(reply.message, sizeof reply.message, "%s", message);
    if (send(socket, &reply, sizeof reply, MSG_NOSIGNAL) < 0)
        return; /* the program is gone: its end is noticed as such */
}

/* Ours, and nothing in it. */
static void discard_trace(struct collect *c) {
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char name[COLLECT_PATH_BYTES + 16];
    rows_close(&c->rows);
    c->rows.db = NULL;
    sqlite3_close(c->db);
    c->db = NULL;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", c->path, suffixes[i]);
        unlink(name);
    }
}

static int accept_all(struct collect *c, char *err, size_t err_len) {
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    if (getsockopt(c->socket, SOL_SOCKET, SO_PEERCRED, &peer, &length))
        return refuse(err, err_len, "the program's process id is not to be had");
    proc_open(&c->proc, peer.pid);
    c->shown_pid = (uint64_t)peer.pid;
    if (take_memory(c, err, err_len)) return -1;
    if (!c->shown_pid) c->shown_pid = ring_map_control(&c->map)->pid;
    if (make_readers(c, err, err_len) || create_trace(c, err, err_len)) return -1;
    c->ballast = make_ballast(c->path);
    if (write_start(c, err, err_len) == 0) return 0;
    discard_trace(c);
    return -1;
}

int collect_accept(struct collect *c, int socket, const struct collect_config *config) {
    char err[ACCT_MESSAGE_BYTES] = "";
    *c = (struct collect){.config = config, .socket = socket, .ballast = -1, .proc = {.pidfd = -1}};
    if (accept_all(c, err, sizeof err)) {
        collect_reply(socket, 1, err);
        collect_status(config, "error %llu %s\n", (unsigned long long)c->shown_pid, err);
        return -1;
    }
    atomic_store(&ring_map_control(&c->map)->collector_pid, (uint32_t)getpid());
    collect_status(config, "open %llu %s\n", (unsigned long long)c->shown_pid, c->path);
    collect_reply(socket, 0, "");
    return 0;
}

void collect_delete(struct collect *c) {
    rows_close(&c->rows);
    sqlite3_close(c->db);
    proc_close(&c->proc);
    if (c->ballast >= 0) close(c->ballast);
    if (c->socket >= 0) close(c->socket);
    if (c->map.base) munmap(c->map.base, c->map.total_bytes);
    free(c->readers);
    free(c->rings);
    free(c->committed);
    free(c->limits);
    free(c->corrupt);
    free(c->text_copy);
}
