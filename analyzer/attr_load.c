/* Puts the rows in host issue order and finds the block behind every operand. */
#include "analyzer/attr_model.h"

#include <stdio.h>
#include <stdlib.h>
#include "analyzer/attr_live.h"
#include "analyzer/attr_rows.h"
#include "analyzer/attr_sets.h"
#include "analyzer/attr_sql.h"

struct item { /* what becomes an event */
    int64_t key_ns, op;
    int32_t index; /* row, or alloc */
    int8_t what;   /* 0 row, 1 alloc, 2 free */
};

static int item_order(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->key_ns != y->key_ns) return x->key_ns < y->key_ns ? -1 : 1;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    return x->what - y->what;
}

static void sort_items(struct item *item, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        if (item_order(&item[i - 1], &item[i]) <= 0) continue;
        qsort(item, (size_t)n, sizeof *item, item_order);
        return;
    }
}

static struct item *merged(struct at_trace *t, struct item *a, int32_t na, struct item *b, int32_t nb) {
    struct item *out = POOL_NEW(t->pool, struct item, (size_t)na + (size_t)nb), *to = out;
    const struct item *x = a, *y = b;
    while (x < a + na && y < b + nb) *to++ = item_order(x, y) <= 0 ? *x++ : *y++;
    while (x < a + na) *to++ = *x++;
    while (y < b + nb) *to++ = *y++;
    pool_give(t->pool, a);
    pool_give(t->pool, b);
    return out;
}

/* Allocations take part from the end of their call, all else from its start: an address is never used before it exists.
 * Each list is in order already but where threads take turns. */
static struct item *in_order(struct at_trace *t, const struct rows *r, int32_t *count) {
    struct item *call = POOL_NEW(t->pool, struct item, r->rows), *born = POOL_NEW(t->pool, struct item, r->allocs),
                *dead = POOL_NEW(t->pool, struct item, r->allocs);
    int32_t deaths = 0;
    for (int32_t i = 0; i < r->rows; i++) call[i] = (struct item){r->row[i].start_ns, r->row[i].op, i, 0};
    for (int32_t i = 0; i < r->allocs; i++) {
        const struct row_alloc *a = &r->alloc[i];
        born[i] = (struct item){a->alloc_ns, a->id, i, 1};
        if (a->free_ns != ACCT_NULL_I64)
            dead[deaths++] = (struct item){a->free_ns, a->free_op == ACCT_NULL_I64 ? a->id : a->free_op, i, 2};
    }
    sort_items(call, r->rows);
    sort_items(born, r->allocs);
    sort_items(dead, deaths);
    *count = r->rows + r->allocs + deaths;
    return merged(t, call, r->rows, merged(t, born, r->allocs, dead, deaths), r->allocs + deaths);
}

/* A size that no device has, or less than nothing: a damaged record, in which no byte can be placed. */
static int64_t sane_bytes(int64_t bytes) {
    return bytes < 0 || bytes > (int64_t)1 << 56 ? 0 : bytes;
}

static void make_blocks(struct at_trace *t, const struct rows *r) {
    t->blocks = r->allocs;
    t->block = POOL_NEW(t->pool, struct at_block, r->allocs);
    for (int32_t i = 0; i < r->allocs; i++) {
        const struct row_alloc *a = &r->alloc[i];
        t->block[i] = (struct at_block){.alloc = a->id,
                                        .address = a->address,
                                        .bytes = sane_bytes(a->bytes),
                                        .dead = AT_END,
                                        .of_library = a->of_library,
                                        .home = a->home};
    }
}

static struct at_event event_of_row(const struct rows *r, const struct row *w, int64_t key_ns) {
    static const struct row_shape nothing = {.cost = -1, .axis_a = -1, .axis_b = -1};
    const struct row_shape *s = w->shape < 0 ? &nothing : &r->shape[w->shape];
    return (struct at_event){.op = w->op,
                             .key_ns = key_ns,
                             .start_ns = w->start_ns,
                             .end_ns = w->end_ns,
                             .m = s->m,
                             .n = s->n,
                             .k = s->k,
                             .batch = s->batch,
                             .name = w->name,
                             .step = -1,
                             .cost = s->cost,
                             .block = -1,
                             .kind = s->idle ? AT_KERNEL : w->kind,
                             .call = w->call,
                             .axis_a = s->axis_a,
                             .axis_b = s->axis_b,
                             .bits_a = s->bits_a,
                             .bits_b = s->bits_b};
}

static void make_events(struct at_trace *t, const struct rows *r, const struct item *item, int32_t n) {
    t->events = n;
    t->event = POOL_NEW(t->pool, struct at_event, (size_t)n + 1); /* one more: attr_cut.c */
    for (int32_t i = 0; i < n; i++) {
        if (item[i].what == 0) {
            t->event[i] = event_of_row(r, &r->row[item[i].index], item[i].key_ns);
            continue;
        }
        struct at_block *b = &t->block[item[i].index];
        t->event[i] = (struct at_event){.op = item[i].op,
                                        .key_ns = item[i].key_ns,
                                        .start_ns = item[i].key_ns,
                                        .end_ns = item[i].key_ns,
                                        .step = -1,
                                        .cost = -1,
                                        .block = item[i].index,
                                        .kind = item[i].what == 1 ? AT_ALLOC : AT_FREE};
        if (item[i].what == 1)
            b->born = i;
        else
            b->dead = i;
    }
}

struct loader {
    struct at_trace *t;
    const struct rows *r;
    struct live live;
    struct sets *sets;
    int32_t buffer_room;
};

static void open_live(struct loader *l) {
    struct live_place *place = POOL_NEW(l->t->pool, struct live_place, l->r->allocs);
    for (int32_t i = 0; i < l->r->allocs; i++)
        place[i] = (struct live_place){l->r->alloc[i].process, l->r->alloc[i].address};
    live_start(&l->live, l->t->pool, place, l->r->allocs);
}

/* The block in which an address lies now; -1. */
static int32_t block_at(const struct loader *l, int64_t process, uint64_t address) {
    int32_t b = live_find(&l->live, process, (int64_t)address);
    if (b < 0) return -1;
    return address - (uint64_t)l->t->block[b].address < (uint64_t)l->t->block[b].bytes ? b : -1;
}

static int is_device(const struct loader *l, int32_t block) {
    return block >= 0 && l->t->block[block].home == AT_DEVICE;
}

/* A copy's direction: as stated, or (default) by what the two addresses are. A copy that no device memory takes part in
 * concerns no rule. */
static void settle_copy(struct loader *l, struct at_event *e, const struct row *w, const struct row_shape *s) {
    int from = 0, to = 0;
    for (int32_t i = 0; i < s->operands; i++) {
        const struct row_operand *o = &l->r->operand[s->operand0 + i];
        int here = is_device(l, block_at(l, w->process, o->address));
        if (o->mode == AT_R)
            from = here;
        else
            to = here;
    }
    switch (s->direction) {
    case ACCT_direction_H2D:
        e->kind = AT_H2D;
        break;
    case ACCT_direction_D2H:
        e->kind = AT_D2H;
        break;
    case ACCT_direction_D2D:
        e->kind = AT_D2D;
        break;
    default:
        e->kind = from && to ? AT_D2D : to ? AT_H2D : AT_D2H;
    }
}

static void show_operand(struct loader *l, const struct row_operand *o, int32_t block) {
    const struct at_block *b = block < 0 ? NULL : &l->t->block[block];
    sets_add(l->sets, &(struct sets_row){.alloc = b ? b->alloc : ACCT_NULL_I64,
                                         .released = b && b->dead != AT_END,
                                         .address = o->address ? (int64_t)o->address : ACCT_NULL_I64,
                                         .bytes = o->bytes < 0 ? ACCT_NULL_I64 : o->bytes,
                                         .slot = o->slot,
                                         .mode = o->mode});
}

/* An extent that leaves the block is no more than a bound (an index from memory may be anything): not known then. */
static void clip(const struct at_block *b, struct row_operand *o) {
    int64_t from = (int64_t)(o->address - (uint64_t)b->address);
    if (o->bytes < 0) {
        if (from < 0 || from >= b->bytes) o->address = o->pointer;
        return;
    }
    if (from >= 0 && from <= b->bytes && o->bytes <= b->bytes - from) return;
    o->address = o->pointer;
    o->bytes = AT_UNKNOWN_BYTES;
}

static void take_operand(struct loader *l, int32_t event, const struct row *w, const struct row_operand *o) {
    struct at_trace *t = l->t;
    int32_t b = block_at(l, w->process, o->pointer ? o->pointer : o->address);
    if (b < 0 && o->maybe) return;
    if (b < 0) b = block_at(l, w->process, o->address);
    struct row_operand inside = *o;
    if (b >= 0 && o->pointer) {
        clip(&t->block[b], &inside);
        if (!inside.bytes) return;
        o = &inside;
    }
    if (o->kept == ROW_WRITTEN) show_operand(l, o, b);
    if (!o->address && o->mode == AT_MAYBE) t->event[event].beyond = 1;
    if (!is_device(l, b)) return;
    const struct at_event *e = &t->event[event];
    if ((e->kind == AT_H2D && o->mode == AT_R) || (e->kind == AT_D2H && o->mode == AT_W)) return; /* the host's side */
    POOL_ROOM(t->pool, t->buffer, t->buffers, l->buffer_room);
    int64_t offset = (int64_t)(o->address - (uint64_t)t->block[b].address), bytes = o->bytes;
    if (bytes > t->block[b].bytes - offset) bytes = t->block[b].bytes - offset;
    t->buffer[t->buffers++] = (struct at_buffer){.offset = offset,
                                                 .bytes = bytes,
                                                 .block = b,
                                                 .event = event,
                                                 .slot = o->slot,
                                                 .mode = o->mode,
                                                 .partial = o->partial};
    return;
}

static int take_row(struct loader *l, int32_t event, const struct row *w) {
    struct at_event *e = &l->t->event[event];
    const struct row_shape *s = w->shape < 0 ? NULL : &l->r->shape[w->shape];
    if (!s) return 0;
    int told = 0;
    if (e->kind == AT_D2D && s->direction) settle_copy(l, e, w, s);
    for (int32_t i = 0; i < s->operands; i++) told |= l->r->operand[s->operand0 + i].kept == ROW_TOLD;
    for (int32_t i = 0; i < s->operands; i++) take_operand(l, event, w, &l->r->operand[s->operand0 + i]);
    return sets_end(l->sets, w->op, told, &l->t->event[event].set);
}

static int resolve(struct loader *l, const struct item *item) {
    struct at_trace *t = l->t;
    for (int32_t i = 0; i < t->events; i++) {
        struct at_event *e = &t->event[i];
        e->buffer0 = t->buffers;
        const struct row_alloc *a = item[i].what ? &l->r->alloc[item[i].index] : NULL;
        if (!a) {
            if (take_row(l, i, &l->r->row[item[i].index])) return -1;
        } else if (item[i].what == 2) {
            live_dies(&l->live, a->process, a->address, item[i].index);
        } else if (a->home != AT_OPAQUE && t->block[item[i].index].bytes > 0) {
            int32_t old = live_born(&l->live, a->process, a->address, item[i].index);
            if (old >= 0 && t->block[old].dead > i) t->block[old].dead = i; /* its release was lost */
        }
        e->buffers = t->buffers - e->buffer0;
    }
    return 0;
}

int at_load(struct at_trace *t, sqlite3 *db, struct gemms *gemms, char *err, size_t err_len) {
    struct rows r = {.pool = t->pool, .sets = t->sets, .prices = t->prices};
    if (rows_read(&r, db, gemms, err, err_len)) return -1;
    if ((int64_t)r.rows + 2 * (int64_t)r.allocs > INT32_MAX - 1) {
        snprintf(err, err_len, "the trace has more than 2^31 calls; analyse a window of it");
        return -1;
    }
    int32_t n;
    struct item *item = in_order(t, &r, &n);
    make_blocks(t, &r);
    make_events(t, &r, item, n);
    t->cost = r.cost;
    t->costs = r.costs;
    t->no_memory = r.no_memory_calls > 0;
    struct loader l = {.t = t, .r = &r};
    open_live(&l);
    if (sets_open(&l.sets, t->pool, &r, db, err, err_len)) return -1;
    int rc = resolve(&l, item);
    sets_close(l.sets);
    pool_give(t->pool, item);
    pool_give(t->pool, r.row);
    pool_give(t->pool, r.shape);
    pool_give(t->pool, r.operand);
    pool_give(t->pool, r.alloc);
    return rc;
}
