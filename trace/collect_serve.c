/* The life of one connection: drain, sleep, notice how the program ends. */
#include "trace/collect.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000u
/* Longest sleep. A ring that is a quarter full and an exit wake us before; this bounds how late a kill is noticed. */
#define IDLE_NS (50 * MS)
/* With many short-lived threads, rings must come back fast enough. */
#define CROWDED_NS (2 * MS)
#define MAPS_CHECK_NS (1000 * MS)
#define MAPS_RETRY_NS (20 * MS)

volatile sig_atomic_t collect_stop;

void collect_status(const struct collect_config *config, const char *format, ...) {
    char line[COLLECT_PATH_BYTES + 128];
    va_list args;
    if (config->status_fd < 0) return;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n >= (int)sizeof line) {
        n = sizeof line - 1;
        line[n - 1] = '\n';
    }
    if (write(config->status_fd, line, (size_t)n) < 0)
        return; /* its reader has gone: the trace is finished all the same */
}

/* ---- how it ends ------------------------------------------------------------------------------------------------- */

/* End of file on the socket: an exec closed it (the rings are mapped no more), or the program closed all descriptors
 * (they still are, and it goes on). */
static void check_socket(struct collect *c) {
    char byte;
    if (c->socket < 0) return;
    ssize_t n = recv(c->socket, &byte, sizeof byte, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    close(c->socket);
    c->socket = -1;
    c->maps_check_ns = collect_now_ns();
}

static void check_maps(struct collect *c) {
    if (c->socket >= 0 || collect_now_ns() < c->maps_check_ns) return;
    int mapped = proc_maps(&c->proc, c->memory_device, c->memory_inode);
    if (mapped == 0 && proc_alive(&c->proc)) c->end_reason = "exec";
    /* Without an address space it is dying, which the pidfd will tell; or only its first thread has ended. */
    c->maps_check_ns = collect_now_ns() + (mapped == 1 ? MAPS_CHECK_NS : MAPS_RETRY_NS);
    /* In a namespace that we cannot see into, the end of the socket is all there is to know. */
    if (c->proc.pid <= 0) c->end_reason = "ended";
}

static void check_end(struct collect *c) {
    if (!proc_alive(&c->proc)) c->end_reason = "ended";
    if (!c->end_reason) check_socket(c);
    if (!c->end_reason) check_maps(c);
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

/* Records are let gather: draining each one as it comes would keep a processor busy. */
static int worth_waking(const struct collect *c) {
    struct acct_control *control = ring_map_control(&c->map);
    if (!c->exit_answered && atomic_load(&control->program_state) == ACCT_PROGRAM_EXITING) return 1;
    for (uint32_t i = 0; i < c->map.max_rings; i++)
        if (!c->corrupt[i] && atomic_load_explicit(&control->ring_state[i], memory_order_relaxed) != ACCT_RING_FREE &&
            ring_reader_head(&c->readers[i]) - c->readers[i].tail >= c->map.ring_slots / 4)
            return 1;
    return 0;
}

/* A writer adds to `wake` only if it sees `sleeping`: so `sleeping` is set first, then the rings are looked at once
 * more (see ring_wake). */
static void sleep_until_woken(struct collect *c) {
    struct acct_control *control = ring_map_control(&c->map);
    uint32_t word = atomic_load(&control->wake);
    struct timespec timeout = {0, c->rings_in_use > c->map.max_rings / 4 ? CROWDED_NS : IDLE_NS};
    atomic_exchange(&control->sleeping, 1);
    if (!worth_waking(c)) syscall(SYS_futex, &control->wake, FUTEX_WAIT, word, &timeout, NULL, 0);
    atomic_store(&control->sleeping, 0);
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

static void answer_exit_if_asked(struct collect *c) {
    if (c->exit_answered || atomic_load(&ring_map_control(&c->map)->program_state) != ACCT_PROGRAM_EXITING) return;
    collect_drain(c); /* one pass: what was written before it asked is before the heads that the pass begins with */
    collect_commit(c);
    collect_answer_exit(c);
}

int collect_serve(int socket, const struct collect_config *config) {
    struct collect *c = calloc(1, sizeof *c);
    if (!c) return 1;
    int refused = collect_accept(c, socket, config);
    while (!refused && !c->end_reason && !collect_stop) {
        collect_drain(c);
        answer_exit_if_asked(c);
        collect_commit_if_due(c);
        sleep_until_woken(c);
        check_end(c);
    }
    if (!refused) {
        collect_drain(c);
        collect_finish(c);
        collect_answer_exit(c); /* nobody waits any more, unless we were told to stop */
    }
    collect_delete(c);
    free(c);
    return refused ? 1 : 0;
}
