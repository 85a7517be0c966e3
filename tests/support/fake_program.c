/* A traced program without CUDA: it speaks to acct-collect as libacct.so does (trace/wire.h), and does what its
 * arguments say, in turn. The tests of the collector know from the arguments what has to be in the trace.
 *
 *   fake_program COLLECTOR|@SOCKET ACTION…       COLLECTOR: started by us with --fd; @SOCKET: abstract socket to
 * connect to
 *
 * Call number i (from 1, counted over all actions) starts at time 1000 i and ends at 1000 i + 500. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "trace/ring.h"

static struct acct_control *control;
static struct ring_writer writer[8];
static int ring_number[8], now_ring, connection = -1, counter_fd = -1;
static uint64_t calls;

static void die(const char *what) {
    fprintf(stderr, "fake_program: %s: %s\n", what, strerror(errno));
    exit(99);
}

/* ---- rendezvous -------------------------------------------------------------------------------------------------- */

static int start_collector(const char *path) {
    int ends[2];
    char number[16];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) die("socketpair");
    snprintf(number, sizeof number, "%d", ends[1]);
    if (fork() == 0) {
        int null = open("/dev/null", O_RDWR);
        setsid();
        for (int fd = 0; fd < 3 && !getenv("FAKE_STDERR"); fd++) dup2(null, fd);
        close(ends[0]);
        execl(path, "acct-collect", "--fd", number, NULL);
        _exit(127);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    return ends[0];
}

static int connect_to(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name + 1, strlen(name + 1));
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))))
        die("connect");
    return fd;
}

static void send_hello(int memory, uint64_t bytes) {
    struct acct_hello hello = {ACCT_WIRE_MAGIC, ACCT_WIRE_VERSION, bytes};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } u;
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = u.bytes, .msg_controllen = sizeof u.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memory, sizeof memory);
    if (sendmsg(connection, &message, 0) < 0) die("sendmsg");
}

static unsigned number_from(const char *name, unsigned fallback) {
    const char *s = getenv(name);
    return s ? (unsigned)atoi(s) : fallback;
}

static void rendezvous(const char *collector) {
    struct acct_control layout;
    struct acct_reply reply;
    memset(&layout, 0, sizeof layout);
    connection = *collector == '@' ? connect_to(collector) : start_collector(collector);
    if (ring_layout(&layout, 16, number_from("FAKE_SLOTS", 32768), number_from("FAKE_BLOB", 65536), (uint32_t)getpid()))
        die("layout");
    int memory = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(memory, (off_t)layout.total_bytes)) die("ftruncate");
    control = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    memcpy(control, &layout, offsetof(struct acct_control, wake));
    send_hello(memory, layout.total_bytes);
    close(memory);
    if (recv(connection, &reply, sizeof reply, 0) != sizeof reply) die("no reply");
    if (reply.error) {
        printf("refused: %s\n", reply.message);
        exit(3);
    }
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static struct ring_writer *ring(void) {
    struct ring_writer *w = &writer[now_ring];
    if (w->ring) return w;
    ring_number[now_ring] = ring_claim(control);
    ring_attach(w, control, (unsigned)ring_number[now_ring]);
    struct acct_ev_thread *t = ring_begin(w, ACCT_EV_THREAD, sizeof *t, 1);
    t->tid = 100 + now_ring;
    t->name = ring_text(w, "fake", 4);
    ring_commit(w);
    return w;
}

/* A call of the next number. NULL: the ring is full. */
static void *begin(enum acct_event event, size_t bytes) {
    uint64_t start = ++calls * 1000;
    struct acct_rec *r = ring_begin(ring(), event, bytes, start);
    if (!r) return NULL;
    memset((char *)r + sizeof *r, 0, bytes - sizeof *r);
    r->api = 7;
    r->status = 0;
    r->device = 0;
    r->end_ns = start + 500;
    r->stream = 0;
    return r;
}

static void commit(void) {
    ring_commit(&writer[now_ring]);
    char number[32];
    int n = snprintf(number, sizeof number, "%llu\n", (unsigned long long)calls);
    if (counter_fd >= 0 && write(counter_fd, number, (size_t)n) < 0) die("counter");
}

static void alloc(uint64_t address, int64_t bytes) {
    struct acct_ev_alloc *a = begin(ACCT_EV_ALLOC, sizeof *a);
    if (a) {
        a->address = address;
        a->bytes = bytes;
        a->memory = ACCT_memory_DEVICE;
    }
    commit();
}

static void release(uint64_t address) {
    struct acct_ev_free *f = begin(ACCT_EV_FREE, sizeof *f);
    if (f) {
        f->address = address;
        f->memory = ACCT_memory_DEVICE;
    }
    commit();
}

static void copy(int64_t bytes) {
    struct acct_ev_copy *c = begin(ACCT_EV_COPY, sizeof *c);
    if (c) {
        c->dst = 0x1000;
        c->src = 0xffff800000000000u;
        c->bytes = bytes;
        c->direction = ACCT_direction_H2D;
        c->width_bytes = c->height = c->dst_pitch_bytes = c->src_pitch_bytes = ACCT_NULL_I64;
        c->dst_device = c->src_device = ACCT_NULL_I32;
    }
    commit();
}

static void gemm(int64_t m, uint8_t flags) {
    struct acct_ev_gemm *g = begin(ACCT_EV_GEMM, sizeof *g);
    if (g) {
        g->hdr.flags = flags;
        g->trans_a = ACCT_trans_N;
        g->trans_b = ACCT_trans_T;
        g->m = m;
        g->n = 2 * m;
        g->k = 3 * m;
        g->batch = 1;
        g->stride_a = g->stride_b = g->stride_c = ACCT_NULL_I64;
        g->a_type = g->b_type = g->c_type = ACCT_dtype_FP32;
        g->compute = ACCT_compute_FP32;
        g->alpha = ACCT_scalar_ONE;
        g->math_mode = g->algo = ACCT_NULL_I32;
    }
    commit();
}

static void blas(const char *routine, size_t length) {
    struct acct_ev_blas *b = begin(ACCT_EV_BLAS, sizeof *b);
    if (b) {
        b->routine = ring_text(&writer[now_ring], routine, length);
        b->type = ACCT_dtype_FP64;
        b->n = 10;
        b->m = b->k = ACCT_NULL_I64;
    }
    commit();
}

/* What is no ASCII, no UTF-8 or special in JSON, on purpose. */
static void facts(void) {
    struct ring_writer *w = ring();
    struct acct_ev_process *p = ring_begin(w, ACCT_EV_PROCESS, sizeof *p, 5);
    p->pid = 4242;
    p->ppid = 4241;
    p->utc_ns = 1700000000000000000u;
    p->exe = ring_text(w, "/bin/f\xc3\xa4ke", 10);
    p->argv = ring_text(w, "f\"\\\n\0\xff\xc3\xa4\0", 9);
    p->cwd = ring_text(w, "/tm\xffp", 5);
    p->environment = ring_text(w, "A=1=2\0B=\0", 9);
    struct acct_ev_api *a = ring_begin(w, ACCT_EV_API, sizeof *a, 6);
    a->number = 7;
    a->name = ring_text(w, "cudaMalloc", 10);
    a->library = ring_text(w, "cudart", 6);
    for (int twice = 0; twice < 2; twice++) {
        struct acct_ev_device *d = ring_begin(w, ACCT_EV_DEVICE, sizeof *d, 7);
        d->ordinal = 0;
        d->name = ring_text(w, "Fake GPU", 8);
        d->total_bytes = 1 << 30;
        d->cc_major = 9;
        d->cc_minor = 0;
        d->sm_count = ACCT_NULL_I32;
        d->clock_khz = 1000;
        d->clock = ACCT_clock_CPU;
        d->peak_fp32 = 1.5e12;
        d->peak_fp64 = (double)NAN;
        d->peak_source = ring_text(w, NULL, 0);
        d->peak_tf32 = d->peak_bf16 = d->peak_fp16 = d->peak_fp8 = (double)NAN;
        d->bytes_per_s = 2.5e11;
    }
    ring_commit(w);
}

static void streams(void) {
    static const uint32_t acts[] = {ACCT_stream_act_CREATE, ACCT_stream_act_WAIT_EVENT, ACCT_stream_act_DESTROY};
    for (int i = 0; i < 3; i++) {
        struct acct_ev_stream *s = begin(ACCT_EV_STREAM, sizeof *s);
        s->hdr.stream = 0x5eed;
        s->act = acts[i];
        s->priority = ACCT_NULL_I32;
        s->event = acts[i] == ACCT_stream_act_WAIT_EVENT ? 0xe : 0;
        commit();
    }
    struct acct_ev_sync *y = begin(ACCT_EV_SYNC, sizeof *y);
    y->scope = ACCT_sync_scope_DEVICE;
    y->hdr.stream = ACCT_NO_STREAM;
    y->hdr.device = ACCT_NULL_I32;
    commit();
}

/* ---- kernels and device times ------------------------------------------------------------------------------------ */

static uint32_t modules, kernels;

static uint64_t fnv1a(const unsigned char *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    while (n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

/* Not above 1 MiB. */
static size_t content(const char *path, unsigned char *to) {
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    size_t n = f ? fread(to, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return n;
}

/* The next module: `bytes` at `offset` of a file, in that file, or in pieces of `piece` bytes. hash_xor: a lie. */
static void module(const char *path, size_t offset, size_t bytes, size_t piece, uint64_t hash_xor) {
    static unsigned char text[1 << 20];
    struct ring_writer *w = ring();
    size_t n = content(path, text);
    struct acct_ev_module *m = ring_begin(w, ACCT_EV_MODULE, sizeof *m, 5);
    m->number = ++modules;
    m->arch = bytes ? 80 : 0;
    m->isa = 90;
    m->flags = 0x8000;
    m->hash = offset + bytes <= n ? fnv1a(text + offset, bytes) ^ hash_xor : 1;
    m->payload_bytes = (int64_t)bytes;
    m->uncompressed_bytes = 1000;
    m->path = piece ? ring_text(w, NULL, 0) : ring_text(w, path, strlen(path));
    m->file_offset = offset;
    ring_commit(w);
    for (size_t at = 0; piece && at < bytes; at += piece) {
        struct acct_ev_module_part *p = ring_begin(w, ACCT_EV_MODULE_PART, sizeof *p, 6);
        p->module = m->number;
        p->offset = (int64_t)at;
        p->bytes = ring_text(w, text + offset + at, at + piece > bytes ? bytes - at : piece);
        ring_commit(w);
    }
}

static void kernel(const char *name) {
    static const uint32_t params[4] = {0, 8, 8, 4};
    struct ring_writer *w = ring();
    struct acct_ev_kernel *k = ring_begin(w, ACCT_EV_KERNEL, sizeof *k, 6);
    k->number = ++kernels;
    k->module = modules;
    k->modules = 1;
    k->name = ring_text(w, name, strlen(name));
    k->params = ring_text(w, strcmp(name, "bare") ? params : NULL, sizeof params);
    k->registers = 32;
    k->static_shared_bytes = 4096;
    k->local_bytes = ACCT_NULL_I64;
    k->max_threads = 1024;
    ring_commit(w);
}

static void launch(uint32_t number) {
    struct acct_ev_launch *l = begin(ACCT_EV_LAUNCH, sizeof *l);
    l->kernel = number;
    l->grid_x = 1, l->grid_y = 2, l->grid_z = 3;
    l->block_x = 4, l->block_y = 5, l->block_z = 6;
    l->dynamic_shared_bytes = 77;
    l->args = ring_text(&writer[now_ring], "\0\xff\0A\0\0\0\0\1\2\3\4", 12);
    l->external = ((uint64_t)1 << 40) + calls;
    commit();
}

static void name(uint32_t number, const char *text) {
    struct ring_writer *w = ring();
    struct acct_ev_name *n = ring_begin(w, ACCT_EV_NAME, sizeof *n, 8);
    n->number = number;
    n->name = ring_text(w, text, strlen(text));
    ring_commit(w);
}

/* Of kind `kind`, made by the call before it. */
static void activity(uint32_t kind, uint32_t name_number) {
    struct ring_writer *w = ring();
    struct acct_ev_correlation *c = ring_begin(w, ACCT_EV_CORRELATION, sizeof *c, 8);
    c->correlation = (uint32_t)(500 + calls);
    c->external = ((uint64_t)1 << 40) + calls;
    struct acct_ev_activity *a = ring_begin(w, ACCT_EV_ACTIVITY, sizeof *a, 9);
    memset((char *)a + sizeof a->hdr, 0, sizeof *a - sizeof a->hdr);
    a->kind = kind;
    a->correlation = c->correlation;
    a->context = 1;
    a->stream = 7;
    a->begin_ns = (int64_t)(calls * 1000 + 100);
    a->end_ns = kind ? (int64_t)(calls * 1000 + 200) : 0;
    a->name = name_number;
    a->grid_x = a->grid_y = a->grid_z = 2;
    a->block_x = a->block_y = a->block_z = 3;
    a->registers = a->static_shared_bytes = a->dynamic_shared_bytes = a->local_bytes = a->copy_kind = ACCT_NULL_I32;
    a->bytes = kind == ACCT_activity_KERNEL ? ACCT_NULL_I64 : 4096;
    ring_commit(w);
}

static void cupti(const char *why) {
    struct ring_writer *w = ring();
    struct acct_ev_cupti *c = ring_begin(w, ACCT_EV_CUPTI, sizeof *c, 8);
    c->status = *why ? 39 : 0;
    c->why = ring_text(w, *why ? why : NULL, strlen(why));
    c->version = 130001;
    c->dropped = *why ? ACCT_NULL_I64 : 12;
    ring_commit(w);
}

/* ---- endings ----------------------------------------------------------------------------------------------------- */

static void finish(int status, int ms) {
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    atomic_store(&control->exit_status, status);
    atomic_store(&control->exit_known, 1);
    atomic_store(&control->program_state, ACCT_PROGRAM_EXITING);
    atomic_fetch_add(&control->wake, 1);
    syscall(SYS_futex, &control->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
    while (!atomic_load(&control->committed))
        if (syscall(SYS_futex, &control->committed, FUTEX_WAIT, 0, &wait, NULL, 0) && errno == ETIMEDOUT) {
            printf("not committed\n");
            break;
        }
    if (atomic_load(&control->committed) == 2) printf("gave up: %s\n", control->message);
    fflush(stdout);
}

static void corrupt(const char *how) {
    struct ring_writer *w = ring();
    struct acct_ev_alloc *a = ring_begin(w, ACCT_EV_ALLOC, sizeof *a, 1);
    if (!strcmp(how, "slots")) a->hdr.slots = 0;
    if (!strcmp(how, "event")) a->hdr.event = 999;
    if (!strcmp(how, "enum")) a->memory = 77;
    if (!strcmp(how, "text")) {
        struct acct_ev_blas *b = ring_begin(w, ACCT_EV_BLAS, sizeof *b, 1);
        a->memory = ACCT_memory_DEVICE;
        memset((char *)b + sizeof b->hdr, 0, sizeof *b - sizeof b->hdr);
        b->routine = (struct acct_text){1u << 30, 20, 0};
    }
    ring_commit(w);
    if (!strcmp(how, "head")) atomic_store(&w->ring->head, UINT64_MAX / 2);
}

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* One action; its number of arguments. */
static int act(char **a) {
    const char *verb = a[0], *one = a[1] ? a[1] : "0";
    int n = atoi(one);
    if (!strcmp(verb, "ring"))
        now_ring = n;
    else if (!strcmp(verb, "retire")) {
        ring_retire(&writer[n], (unsigned)ring_number[n]);
    } else if (!strcmp(verb, "alloc"))
        for (int i = 1; i <= n; i++) alloc(0x7f0000000000u + (uint64_t)i * 4096, i);
    else if (!strcmp(verb, "free"))
        for (int i = 1; i <= n; i++) release(0x7f0000000000u + (uint64_t)i * 4096);
    else if (!strcmp(verb, "pairs"))
        for (int i = 1; i <= n; i++) {
            alloc(0x6f0000000000u, i);
            release(0x6f0000000000u);
        }
    else if (!strcmp(verb, "paced"))
        for (int i = 1; i <= n; i++) {
            alloc(0x5f0000000000u, i);
            release(0x5f0000000000u);
            if (i % 64 == 0) sleep_ms(1);
        }
    else if (!strcmp(verb, "copy"))
        copy(n);
    else if (!strcmp(verb, "gemm"))
        gemm(n, 0);
    else if (!strcmp(verb, "group"))
        gemm(n, ACCT_REC_CONTINUES);
    else if (!strcmp(verb, "blas"))
        blas(one, strlen(one));
    else if (!strcmp(verb, "module")) { /* FILE OFFSET BYTES */
        module(one, (size_t)atoi(a[2]), (size_t)atoi(a[3]), 0, 0);
        return 4;
    } else if (!strcmp(verb, "pieces")) { /* FILE BYTES PIECE */
        module(one, 0, (size_t)atoi(a[2]), (size_t)atoi(a[3]), 0);
        return 4;
    } else if (!strcmp(verb, "lie")) /* FILE */
        module(one, 0, 10, 0, 1);
    else if (!strcmp(verb, "lie-pieces"))
        module(one, 0, 10, 4, 1);
    else if (!strcmp(verb, "again"))
        modules = (uint32_t)n - 1;
    else if (!strcmp(verb, "kernel"))
        kernel(one);
    else if (!strcmp(verb, "launch"))
        launch((uint32_t)n);
    else if (!strcmp(verb, "name")) { /* NUMBER NAME */
        name((uint32_t)n, a[2]);
        return 3;
    } else if (!strcmp(verb, "activity")) { /* KIND NAME-NUMBER */
        activity((uint32_t)n, (uint32_t)atoi(a[2]));
        return 3;
    } else if (!strcmp(verb, "cupti"))
        cupti(one);
    else if (!strcmp(verb, "sleep"))
        sleep_ms(n);
    else if (!strcmp(verb, "counter"))
        counter_fd = n;
    else if (!strcmp(verb, "corrupt"))
        corrupt(one);
    else if (!strcmp(verb, "exit")) {
        finish(n, 10000);
        exit(n);
    } else if (!strcmp(verb, "exec")) {
        execl("/bin/sleep", "sleep", one, NULL);
        die("exec");
    } else if (!strcmp(verb, "facts")) {
        facts();
        return 1;
    } else if (!strcmp(verb, "streams")) {
        streams();
        return 1;
    } else if (!strcmp(verb, "closeall")) {
        close_range(3, ~0u, 0);
        return 1;
    } else if (!strcmp(verb, "_exit"))
        _exit(n);
    else if (!strcmp(verb, "kill")) {
        kill(getpid(), 9);
        return 1;
    } else
        die(verb);
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 2) die("usage: fake_program COLLECTOR|@SOCKET ACTION…");
    rendezvous(argv[1]);
    for (char **a = argv + 2; a < argv + argc;) a += act(a);
    return 0;
}
