/* E3: launches over whole blocks. An optimizer that keeps all parameters in one block, and so their gradients and its
 * state, names the beginnings alone. The state's blocks nobody else touches, so nothing cuts them: each pointer of the
 * launch reaches over its block if the block has as many elements as such a one. */
#include "analyzer/attr_model.h"

enum { POINTERS_LEAST = 3 };
#define NOBODY (-1)
#define SEVERAL (-2)

/* Per block: the function that alone works on it, always from its beginning. */
static int32_t *only_users(struct at_trace *t) {
    int32_t *user = POOL_NEW(t->pool, int32_t, t->blocks);
    for (int32_t b = 0; b < t->blocks; b++) user[b] = NOBODY;
    for (int32_t i = 0; i < t->buffers; i++) {
        const struct at_buffer *u = &t->buffer[i];
        const struct at_event *e = &t->event[u->event];
        if (!at_is_work(e)) continue;
        int alone = e->kind == AT_KERNEL && u->offset == 0 && (user[u->block] == NOBODY || user[u->block] == e->name);
        user[u->block] = alone ? e->name : SEVERAL;
    }
    return user;
}

/* Names the beginning of a block and no extent. */
static int is_open(const struct at_buffer *u) {
    return u->bytes < 0 && u->offset == 0;
}

/* An earlier pointer of the launch names the same block. */
static int is_named_before(const struct at_buffer *u, int32_t i) {
    for (int32_t j = 0; j < i; j++)
        if (u[j].block == u[i].block) return 1;
    return 0;
}

static void settle_launch(struct at_trace *t, const struct at_event *e, const int32_t *user) {
    struct at_buffer *u = t->buffer + e->buffer0;
    int64_t elements = 0; /* bytes of a block of its own */
    int32_t n = 0;
    for (int32_t i = 0; i < e->buffers; i++)
        if (is_open(&u[i]) && user[u[i].block] == e->name && t->block[u[i].block].bytes > elements)
            elements = t->block[u[i].block].bytes;
    for (int32_t i = 0; i < e->buffers && elements; i++)
        n += is_open(&u[i]) && at_same_count(t->block[u[i].block].bytes, elements) && !is_named_before(u, i);
    for (int32_t i = 0; i < e->buffers && n >= POINTERS_LEAST; i++)
        if (is_open(&u[i]) && at_same_count(t->block[u[i].block].bytes, elements))
            u[i].bytes = t->block[u[i].block].bytes, u[i].guessed = 1;
}

void at_whole_blocks(struct at_trace *t) {
    int32_t *user = only_users(t);
    for (int32_t e = 0; e < t->events; e++)
        if (t->event[e].kind == AT_KERNEL && t->event[e].buffers <= 12) settle_launch(t, &t->event[e], user);
    pool_give(t->pool, user);
}
