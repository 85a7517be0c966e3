/* Pools' memory over long random series: against a heap whose releases need no waiting, and against a map of who may
 * use which 512-byte unit when. */
#include "vgpu/vgpu_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STREAMS = 3, LIVE = 300, STEPS = 60000 };
static const uint64_t RANGE = 64 << 20, LIMIT = (16 << 20) + (1 << 16), UNIT = 1 << 16, GRAIN = 1 << 20;

static uint64_t done[STREAMS]; /* how far each stream has got */

static bool reached(void *stream, uint64_t sequence) {
    return *(uint64_t *)stream >= sequence;
}

static void open_heap(struct vgpu_arena *a, struct vgpu_heap *h) {
    assert_int_equal(vgpu_arena_create(a, RANGE, LIMIT, UNIT), 0);
    a->untouched = true;
    *h = (struct vgpu_heap){.arena = a, .grain = GRAIN};
}

static struct vgpu_block *take(struct vgpu_heap *h, uint64_t bytes, void *stream) {
    struct vgpu_block *b = vgpu_heap_take(h, bytes, stream);
    if (!b && !vgpu_heap_grow(h, bytes)) b = vgpu_heap_take(h, bytes, stream);
    return b;
}

static uint64_t some_bytes(void) {
    return 1 + (uint64_t)(rand() % (rand() % 6 ? 20000 : 1500000));
}

/* For one stream it makes no difference whether it is already where it has released something. */
static void one_stream_need_not_wait(void **state) {
    (void)state;
    struct vgpu_arena arena[2];
    struct vgpu_heap heap[2];
    struct vgpu_block *live[LIVE][2];
    uint64_t issued = 0;
    int n = 0, failures = 0;
    srand(5);
    done[0] = 0;
    for (int i = 0; i < 2; i++) open_heap(&arena[i], &heap[i]);
    for (int step = 0; step < STEPS; step++) {
        if (n == LIVE || (n && rand() % 100 < 50)) {
            int i = rand() % n;
            vgpu_heap_give(&heap[0], live[i][0], &done[0], ++issued);
            vgpu_heap_give(&heap[1], live[i][1], NULL, 0);
            memcpy(live[i], live[--n], sizeof live[i]);
        } else {
            uint64_t bytes = some_bytes();
            struct vgpu_block *a = take(&heap[0], bytes, &done[0]), *b = take(&heap[1], bytes, NULL);
            assert_int_equal(a != NULL, b != NULL);
            failures += !a;
            if (!a) continue;
            assert_int_equal(a->address - arena[0].base, b->address - arena[1].base);
            live[n][0] = a;
            live[n++][1] = b;
        }
        if (rand() % 50 == 0) done[0] += (issued - done[0]) / 2;
        if (rand() % 70 == 0) vgpu_heap_collect(&heap[0], reached);
        assert_int_equal(heap[0].used, heap[1].used);
        assert_int_equal(heap[0].reserved, heap[1].reserved);
    }
    assert_in_range(failures, 1, STEPS / 3); /* the limit was met */
    for (int i = 0; i < 2; i++) {
        vgpu_heap_clear(&heap[i]);
        assert_int_equal(arena[i].in_use, 0);
        vgpu_arena_destroy(&arena[i]);
    }
}

struct unit {
    bool live;
    int stream; /* that released it last; -1: none */
    uint64_t sequence;
};

static struct unit *units;

static void check_taken(const struct vgpu_arena *a, const struct vgpu_block *b, int stream) {
    for (uint64_t at = b->address - a->base; at < b->address - a->base + b->bytes; at += VGPU_ALIGN) {
        struct unit *u = &units[at / VGPU_ALIGN];
        assert_false(u->live);
        assert_true(u->stream < 0 || u->stream == stream || u->sequence <= done[u->stream]);
        u->live = true;
    }
}

static void note_given(const struct vgpu_arena *a, const struct vgpu_block *b, int stream, uint64_t sequence) {
    for (uint64_t at = b->address - a->base; at < b->address - a->base + b->bytes; at += VGPU_ALIGN)
        units[at / VGPU_ALIGN] = (struct unit){false, stream, sequence};
}

/* What one stream has released is not given to another before the first is there; trimming takes idle chunks only. */
static void several_streams(void **state) {
    (void)state;
    struct vgpu_arena a;
    struct vgpu_heap h;
    struct vgpu_block *live[LIVE];
    uint64_t issued[STREAMS] = {0}, used = 0;
    int n = 0;
    units = calloc(RANGE / VGPU_ALIGN, sizeof *units);
    assert_non_null(units);
    for (uint64_t i = 0; i < RANGE / VGPU_ALIGN; i++) units[i].stream = -1;
    memset(done, 0, sizeof done);
    srand(6);
    open_heap(&a, &h);
    for (int step = 0; step < STEPS; step++) {
        int s = rand() % STREAMS;
        if (n == LIVE || (n && rand() % 100 < 50)) {
            int i = rand() % n;
            note_given(&a, live[i], s, ++issued[s]);
            used -= live[i]->bytes;
            vgpu_heap_give(&h, live[i], &done[s], issued[s]);
            live[i] = live[--n];
        } else {
            struct vgpu_block *b = take(&h, some_bytes(), &done[s]);
            if (!b) continue;
            check_taken(&a, b, s);
            used += b->bytes;
            live[n++] = b;
        }
        if (rand() % 20 == 0) done[s] += (issued[s] - done[s] + 1) / 2;
        if (rand() % 10 == 0) vgpu_heap_collect(&h, reached);
        if (rand() % 100 == 0) vgpu_heap_trim(&h, rand() % 2 ? 0 : 4 * GRAIN);
        assert_int_equal(h.used, used);
        assert_int_equal(a.in_use, h.reserved);
        assert_true(h.used <= h.reserved && h.reserved <= LIMIT);
        if (n) {
            struct vgpu_block *b = live[rand() % n];
            uint64_t inside = b->address + (uint64_t)rand() % b->bytes;
            assert_ptr_equal(vgpu_heap_find(vgpu_arena_find(&a, inside), inside), b);
        }
    }
    while (n) vgpu_heap_give(&h, live[--n], NULL, 0);
    for (int s = 0; s < STREAMS; s++) done[s] = issued[s];
    vgpu_heap_collect(&h, reached);
    assert_int_equal(h.idle, h.reserved); /* all joined again */
    vgpu_heap_trim(&h, 0);
    assert_int_equal(a.in_use, 0);
    vgpu_heap_clear(&h);
    vgpu_arena_destroy(&a);
    free(units);
}

/* Grows by its grain; where there is not that much, by the arena's unit; never beyond its own limit. */
static void growth(void **state) {
    (void)state;
    struct vgpu_arena a;
    struct vgpu_heap h;
    open_heap(&a, &h);
    assert_non_null(take(&h, 1, NULL));
    assert_int_equal(h.reserved, GRAIN);
    assert_non_null(take(&h, LIMIT - GRAIN - 2 * UNIT, NULL));
    assert_int_equal(h.reserved, LIMIT - UNIT);
    assert_null(take(&h, GRAIN, NULL));
    assert_non_null(take(&h, GRAIN - 512, NULL)); /* the first chunk's rest */
    assert_non_null(take(&h, UNIT, NULL));        /* the second's */
    assert_non_null(take(&h, UNIT, NULL));
    assert_int_equal(h.reserved, LIMIT);
    assert_null(take(&h, 1, NULL));
    vgpu_heap_clear(&h);
    h.most = 2 * GRAIN;
    assert_non_null(take(&h, GRAIN + 1, NULL));
    assert_null(take(&h, GRAIN, NULL));
    vgpu_heap_clear(&h);
    assert_non_null(take(&h, 2 * GRAIN, NULL));
    assert_null(take(&h, 1, NULL));
    vgpu_heap_clear(&h);
    vgpu_arena_destroy(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stream_need_not_wait),
        cmocka_unit_test(several_streams),
        cmocka_unit_test(growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
