#include "preload/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "acct/env.h"
#include "preload/hook.h"
#include "preload/say.h"
#include "preload/spawn.h"
#include "preload/sys.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int fail(char *why, size_t len, const char *what, const char *advice) {
    say_append(why, len, what);
    say_append(why, len, advice);
    return -1;
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Most bytes that the mapping may reserve. Only pages of rings in use are ever present, but a limited address space is
 * the program's to use, and a file beyond RLIMIT_FSIZE is SIGXFSZ. */
static uint64_t byte_budget(void) {
    struct rlimit lim;
    uint64_t budget = UINT64_MAX;
    if (getrlimit(RLIMIT_AS, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY) budget = lim.rlim_cur / 32;
    if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur < budget) budget = lim.rlim_cur;
    return budget;
}

/* A size of the rings; the default where the environment has none that is allowed. */
static uint32_t ring_size(enum acct_env_name v, uint32_t min, uint32_t max) {
    uint64_t n;
    int wrong = acct_env_number(v, &n);
    if (!wrong && n >= min && n <= max && !(n & (n - 1))) return (uint32_t)n;
    acct_env_parse_number(acct_env_entry(v)->fallback, 1, &n);
    return (uint32_t)n;
}

static uint32_t ring_slots(void) {
    return ring_size(ENV_ACCT_RING_SLOTS, RING_MIN_SLOTS, RING_MAX_SLOTS);
}

static uint32_t blob_bytes(void) {
    return ring_size(ENV_ACCT_BLOB_BYTES, RING_MIN_BLOB, RING_MAX_BLOB);
}

static int is_wrong(enum acct_env_name v) {
    uint64_t n = 0;
    if (!strncmp(acct_env_entry(v)->name, "ACCT_VGPU", 9)) return 0; /* the virtual GPU says that itself */
    if (acct_env_is_wrong(v)) return 1;
    if (v != ENV_ACCT_RING_SLOTS && v != ENV_ACCT_BLOB_BYTES) return 0;
    acct_env_number(v, &n);
    return n != (v == ENV_ACCT_RING_SLOTS ? ring_slots() : blob_bytes());
}

/* What is set wrongly in the environment is told in one line, and the default goes. */
static void tell_wrong_settings(void) {
    char names[512] = "";
    for (enum acct_env_name v = 0; v < ENV_COUNT; v++) {
        if (!is_wrong(v)) continue;
        say_append(names, sizeof names, *names ? ", " : "");
        say_append(names, sizeof names, acct_env_entry(v)->name);
        say_append(names, sizeof names, "=");
        say_append(names, sizeof names, acct_env_text(v));
    }
    if (*names) say_warning(names, ": not a value it can have, the default is used; see acct help env", NULL);
}

/* A dry run issues calls faster than any collector takes them, and there is no device's time to disturb. */
static uint64_t ring_wait_ns(void) {
    static const uint64_t dry_ns = UINT64_C(10000000000);
    uint64_t dry = 0;
    acct_env_number(ENV_ACCT_VGPU_DRY, &dry);
    int given = acct_env_text(ENV_ACCT_RING_WAIT) != acct_env_entry(ENV_ACCT_RING_WAIT)->fallback;
    return dry && !given ? dry_ns : acct_env_ns(ENV_ACCT_RING_WAIT);
}

/* Geometry by the environment. Under limits the rings get smaller until some threads have one each, and then fewer.
 * -1: not even one fits. */
static int choose_layout(struct acct_control *c, char *why, size_t len) {
    enum { SOME_RINGS = 16, SMALL_RING_SLOTS = 4096, SMALL_RING_BLOB = 16384 };
    uint32_t slots = ring_slots(), blob = blob_bytes(), pid = (uint32_t)sys_getpid();
    uint64_t budget = byte_budget();
    for (ring_layout(c, SOME_RINGS, slots, blob, pid); budget < c->total_bytes && slots > SMALL_RING_SLOTS;
         ring_layout(c, SOME_RINGS, slots, blob, pid)) {
        slots /= 2;
        if (blob > SMALL_RING_BLOB) blob /= 2;
    }
    ring_layout(c, 1, slots, blob, pid);
    if (budget < c->total_bytes)
        return fail(why, len, "no room for the recorder under the limits set",
                    "; raise ulimit -v or -f, or lower ACCT_RING_SLOTS");
    uint64_t rings = (budget - c->rings_offset) / c->ring_stride;
    ring_layout(c, rings < ACCT_MAX_RINGS ? (uint32_t)rings : ACCT_MAX_RINGS, slots, blob, pid);
    return 0;
}

static int make_memfd(uint64_t bytes) {
    int fd = (int)syscall(SYS_memfd_create, "acct", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0) /* before Linux 6.3 */
        fd = (int)syscall(SYS_memfd_create, "acct", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    fd = spawn_high_fd(fd);
    if (fd < 0) return -1;
    /* Sealed against shrinking: nobody who holds it can turn the program's stores into SIGBUS. */
    if (syscall(SYS_ftruncate, fd, bytes) == 0 && sys_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    sys_close(fd);
    return -1;
}

/* Where the program locks its memory (mlockall), each page of a new mapping would be made at once, those of all rings:
 * so it is mapped without access first, and unlocked. */
static void *map_unlocked(int fd, uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) return p;
    syscall(SYS_munlock, p, bytes);
    if (syscall(SYS_mprotect, p, bytes, PROT_READ | PROT_WRITE) == 0) return p;
    munmap(p, bytes);
    return MAP_FAILED;
}

/* Memfd of the layout in *want, mapped with its control page filled. -1: error. */
static int map_control(const struct acct_control *want, struct acct_control **out) {
    int fd = make_memfd(want->total_bytes);
    if (fd < 0) return -1;
    /* The control page is made present by fallocate, ring areas when they are claimed: where memory is short that fails
     * here, instead of by SIGBUS in the program. */
    void *p = MAP_FAILED;
    if (syscall(SYS_fallocate, fd, 0, 0L, want->rings_offset) == 0) p = map_unlocked(fd, want->total_bytes);
    if (p == MAP_FAILED) {
        sys_close(fd);
        return -1;
    }
    madvise(p, want->total_bytes, MADV_DONTFORK);
    madvise(p, want->total_bytes, MADV_DONTDUMP);
    *out = p;
    ring_layout(*out, want->max_rings, want->ring_slots, want->blob_bytes, want->pid);
    atomic_store_explicit(&(*out)->program_state, ACCT_PROGRAM_RUNNING, memory_order_relaxed);
    return fd;
}

/* ---- collector ----------------------------------------------------------------------------------------------- */

/* The socket of `acct run`, an abstract name written with an @. -1: none, or nobody listens. */
static int connect_given(void) {
    const char *name = acct_env_text(ENV_ACCT_SOCKET);
    struct sockaddr_un a;
    size_t n = strlen(name);
    memset(&a, 0, sizeof a);
    if (n < 2 || name[0] != '@' || n > sizeof a.sun_path) return -1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    fd = spawn_high_fd(fd);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path + 1, name + 1, n - 1);
    if (fd >= 0 && syscall(SYS_connect, fd, &a, offsetof(struct sockaddr_un, sun_path) + n) == 0) return fd;
    if (fd >= 0) sys_close(fd);
    return -1;
}

static int send_hello(int sock, int memfd, const struct acct_control *c) {
    struct acct_hello hello = {ACCT_WIRE_MAGIC, ACCT_WIRE_VERSION, c->total_bytes};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec io = {&hello, sizeof hello};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    memset(&control, 0, sizeof control);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &memfd, sizeof memfd);
    return syscall(SYS_sendmsg, sock, &m, MSG_NOSIGNAL) == (long)sizeof hello ? 0 : -1;
}

/* Waits for something to read; 0, or -1 when `deadline` (hook_now) has passed. */
static int wait_readable(int sock, uint64_t deadline) {
    for (;;) {
        struct pollfd p = {sock, POLLIN, 0};
        uint64_t now = hook_now();
        struct timespec left = {0, 0};
        if (now < deadline) {
            left.tv_sec = (time_t)((deadline - now) / 1000000000u);
            left.tv_nsec = (long)((deadline - now) % 1000000000u);
        }
        long n = syscall(SYS_ppoll, &p, 1, &left, NULL, 8);
        if (n > 0) return 0;
        if (n == 0 || errno != EINTR) return -1;
    }
}

static int agree(int sock, int memfd, const struct acct_control *c, char *why, size_t len) {
    struct acct_reply reply;
    memset(&reply, 0, sizeof reply);
    if (send_hello(sock, memfd, c) != 0)
        return fail(why, len, "the collector does not answer", "; look whether acct-collect can run here");
    if (wait_readable(sock, hook_now() + acct_env_ns(ENV_ACCT_START_TIMEOUT)) != 0)
        return fail(why, len, "the collector did not answer in time", "; raise ACCT_START_TIMEOUT");
    long n = syscall(SYS_recvfrom, sock, &reply, sizeof reply, 0, NULL, NULL);
    if (n != (long)sizeof reply || reply.magic != ACCT_WIRE_MAGIC)
        return fail(why, len, "the collector ended at once",
                    "; look whether acct-collect can run here, and is of this version");
    reply.message[sizeof reply.message - 1] = 0;
    if (reply.error == 0) return 0;
    return fail(why, len, *reply.message ? reply.message : "the collector refused", "");
}

int rendezvous(struct life_trace *t, char *why, size_t len) {
    static struct acct_control want; /* one thread of a process starts; it may have a small stack */
    memset(&want, 0, sizeof want);
    tell_wrong_settings();
    t->ring_wait_ns = ring_wait_ns();
    if (choose_layout(&want, why, len)) return -1;
    int memfd = map_control(&want, &t->control);
    if (memfd < 0)
        return fail(why, len, "no shared memory for the recorder", "; look at the limits on memory and descriptors");
    t->socket = connect_given();
    if (t->socket < 0) {
        if (*acct_env_text(ENV_ACCT_SOCKET))
            say_warning(
                "the collector of acct run is not to be reached from here; this process writes a trace by itself",
                NULL);
        t->socket = spawn_collector(why, len);
    }
    int bad = t->socket < 0 || agree(t->socket, memfd, t->control, why, len) != 0;
    sys_close(memfd);
    if (bad) {
        if (t->socket >= 0) sys_close(t->socket);
        munmap(t->control, want.total_bytes);
        t->control = NULL;
        return -1;
    }
    struct stat st;
    if (fstat(t->socket, &st) == 0) {
        t->socket_dev = st.st_dev;
        t->socket_ino = st.st_ino;
    }
    return 0;
}
