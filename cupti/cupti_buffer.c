/* Buffers that CUPTI fills. They come from mappings of our own, in pieces of 16, and are never unmapped: CUPTI may hold
 * any of them for as long as it likes. A buffer is free, given (CUPTI's), or completed (waits for the helper).
 *
 * Both callbacks may come in any thread, a thread of the program included, at any time: two stacks without locks, no
 * system call but the mapping of the next piece and the waking of the helper. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "cupti/cupti_inside.h"

#define PIECE_BUFFERS 16u
#define PIECES (CUPTI_MAX_BUFFERS / PIECE_BUFFERS)

enum { FREE, GIVEN, COMPLETED };

static struct {
    _Atomic(uint8_t *) piece[PIECES];
    _Atomic uint64_t free;      /* stack: number + 1 below, above it a count that tells a returned top from the old */
    _Atomic uint32_t completed; /* stack: number + 1; emptied as a whole */
    struct {
        _Atomic uint32_t next, is;
        size_t valid;
    } buffer[CUPTI_MAX_BUFFERS];
    uint32_t queue; /* the helper's: completed ones, oldest first */
} pool;

void cupti_buffers_reset(void) {
    memset(&pool, 0, sizeof pool);
}

static uint8_t *data_of(uint32_t i) {
    uint8_t *piece = atomic_load_explicit(&pool.piece[i / PIECE_BUFFERS], memory_order_acquire);
    return piece + (size_t)(i % PIECE_BUFFERS) * CUPTI_BUFFER_BYTES;
}

static void push_free(uint32_t i) {
    uint64_t top = atomic_load_explicit(&pool.free, memory_order_relaxed);
    atomic_store_explicit(&pool.buffer[i].is, FREE, memory_order_relaxed);
    do atomic_store_explicit(&pool.buffer[i].next, (uint32_t)top, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&pool.free, &top, ((top >> 32) + 1) << 32 | (i + 1),
                                                  memory_order_release, memory_order_relaxed));
}

/* Number of a free buffer, or -1. */
static int pop_free(void) {
    uint64_t top = atomic_load_explicit(&pool.free, memory_order_acquire);
    for (;;) {
        uint32_t i = (uint32_t)top;
        if (!i) return -1;
        uint64_t below = atomic_load_explicit(&pool.buffer[i - 1].next, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&pool.free, &top, ((top >> 32) + 1) << 32 | below,
                                                  memory_order_acquire, memory_order_acquire))
            return (int)i - 1;
    }
}

/* Maps the next piece; answers one of its buffers, or -1. */
static int map_piece(void) {
    size_t bytes = (size_t)PIECE_BUFFERS * CUPTI_BUFFER_BYTES;
    if (atomic_load_explicit(&pool.piece[PIECES - 1], memory_order_relaxed)) return -1;
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return -1;
    for (uint32_t c = 0; c < PIECES; c++) {
        uint8_t *none = NULL;
        if (!atomic_compare_exchange_strong_explicit(&pool.piece[c], &none, p, memory_order_release,
                                                     memory_order_relaxed))
            continue;
        for (uint32_t k = PIECE_BUFFERS - 1; k > 0; k--) push_free(c * PIECE_BUFFERS + k);
        return (int)(c * PIECE_BUFFERS);
    }
    munmap(p, bytes);
    return -1;
}

void CUPTIAPI cupti_buffer_requested(uint8_t **buffer, size_t *bytes, size_t *max_records) {
    struct cupti_state *s = cupti_state();
    int saved = errno, i = -1;
    if (s && atomic_load_explicit(&s->serving, memory_order_acquire)) {
        i = pop_free();
        if (i < 0) i = map_piece();
    }
    *buffer = NULL; /* CUPTI drops what it has no buffer for, and counts that */
    *bytes = 0;
    *max_records = 0;
    if (i >= 0) {
        atomic_store_explicit(&pool.buffer[i].is, GIVEN, memory_order_relaxed);
        *buffer = data_of((uint32_t)i);
        *bytes = CUPTI_BUFFER_BYTES;
    }
    errno = saved;
}

/* Number of the buffer that begins at `p`, or -1. */
static int number_of(const uint8_t *p) {
    for (uint32_t c = 0; c < PIECES; c++) {
        const uint8_t *piece = atomic_load_explicit(&pool.piece[c], memory_order_acquire);
        if (!piece) return -1;
        size_t at = (size_t)(p - piece);
        if (p >= piece && at < (size_t)PIECE_BUFFERS * CUPTI_BUFFER_BYTES)
            return at % CUPTI_BUFFER_BYTES ? -1 : (int)(c * PIECE_BUFFERS + at / CUPTI_BUFFER_BYTES);
    }
    return -1;
}

/* In a forked child nothing is looked at. */
void CUPTIAPI cupti_buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
    struct cupti_state *s = cupti_state();
    uint32_t was = GIVEN;
    (void)context, (void)stream, (void)bytes;
    if (!s || !atomic_load_explicit(&s->serving, memory_order_acquire) || !buffer) return;
    int i = number_of(buffer);
    if (i < 0 || !atomic_compare_exchange_strong(&pool.buffer[i].is, &was, COMPLETED)) return;
    pool.buffer[i].valid = valid < CUPTI_BUFFER_BYTES ? valid : CUPTI_BUFFER_BYTES;
    uint32_t top = atomic_load_explicit(&pool.completed, memory_order_relaxed);
    do atomic_store_explicit(&pool.buffer[i].next, top, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&pool.completed, &top, (uint32_t)i + 1, memory_order_release,
                                                  memory_order_relaxed));
    int saved = errno;
    cupti_wake_helper(s);
    errno = saved;
}

/* The stack has the newest on top. */
static void refill_queue(void) {
    uint32_t i = atomic_exchange_explicit(&pool.completed, 0, memory_order_acquire);
    while (i) {
        uint32_t next = atomic_load_explicit(&pool.buffer[i - 1].next, memory_order_relaxed);
        atomic_store_explicit(&pool.buffer[i - 1].next, pool.queue, memory_order_relaxed);
        pool.queue = i;
        i = next;
    }
}

int cupti_buffer_next(struct cupti_full *out) {
    if (!pool.queue) refill_queue();
    if (!pool.queue) return 0;
    uint32_t i = pool.queue - 1;
    pool.queue = atomic_load_explicit(&pool.buffer[i].next, memory_order_relaxed);
    *out = (struct cupti_full){data_of(i), pool.buffer[i].valid, i};
    return 1;
}

void cupti_buffer_give_back(const struct cupti_full *full) {
    push_free(full->number);
}
