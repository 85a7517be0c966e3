/* What calls that are alike have in common: operands, costs, sizes. Made once for the calls of all steps. */
#include "analyzer/attr_rows.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"

/* ---- slots ------------------------------------------------------------------------------------------------------ */
static const char *const fixed_slots[] = {"A", "B", "C", "bias", "D", "aux", "workspace"};

const char *rows_slot_text(const struct rows *r, int16_t slot, char buf[16]) {
    if (slot >= 0) {
        sqlite3_snprintf(16, buf, "%d", slot);
        return buf;
    }
    if (slot > AT_SLOT_FIRST_FREE) return fixed_slots[-1 - slot];
    return r->slot_name[AT_SLOT_FIRST_FREE - slot];
}

static int16_t slot_named(struct rows *r, const char *text) {
    for (int i = 0; i < -1 - AT_SLOT_FIRST_FREE; i++)
        if (!strcmp(text, fixed_slots[i])) return (int16_t)(-1 - i);
    for (int i = 0; i < r->slot_names; i++)
        if (!strcmp(text, r->slot_name[i])) return (int16_t)(AT_SLOT_FIRST_FREE - i);
    if (r->slot_names > 1000) return AT_SLOT_FIRST_FREE; /* a damaged table */
    POOL_ROOM(r->pool, r->slot_name, r->slot_names, r->slot_room);
    char *copy = POOL_NEW(r->pool, char, strlen(text) + 1);
    strcpy(copy, text);
    r->slot_name[r->slot_names] = copy;
    return (int16_t)(AT_SLOT_FIRST_FREE - r->slot_names++);
}

int16_t rows_slot(struct rows *r, const char *text) {
    if (!text) text = "";
    return text[0] && !text[strspn(text, "0123456789")] ? (int16_t)(atoi(text) & 0x7fff) : slot_named(r, text);
}

/* ---- one shape --------------------------------------------------------------------------------------------------- */
struct row_shape *shape_begin(struct rows *r) {
    POOL_ROOM(r->pool, r->shape, r->shapes, r->shape_room);
    r->shape[r->shapes] =
        (struct row_shape){.operand0 = r->operands, .cost = -1, .kind = -1, .axis_a = -1, .axis_b = -1};
    return &r->shape[r->shapes++];
}

void shape_add_operand(struct rows *r, struct row_operand o) {
    POOL_ROOM(r->pool, r->operand, r->operands, r->operand_room);
    r->operand[r->operands++] = o;
    r->shape[r->shapes - 1].operands++;
}

static int mode_of(enum cost_mode m) {
    return m == COST_EITHER ? AT_MAYBE : (int)m;
}

static int64_t matmul_flops(const struct cost *c) {
    return c->matmul || c->flops == COST_UNKNOWN ? c->flops : 0;
}

static int32_t new_cost(struct rows *r, struct at_cost c) {
    POOL_ROOM(r->pool, r->cost, r->costs, r->cost_room);
    r->cost[r->costs] = c;
    return r->costs++;
}

void shape_add_call(struct rows *r, const struct cost *c, const char *dtype) {
    struct row_shape *s = &r->shape[r->shapes - 1];
    s->cost = new_cost(r, (struct at_cost){.flops = c->flops,
                                           .flops_most = c->flops,
                                           .matmul_flops = matmul_flops(c),
                                           .matmul_flops_most = matmul_flops(c),
                                           .integer_ops = c->integer_ops,
                                           .bytes_read = c->bytes_read,
                                           .bytes_written = c->bytes_written,
                                           .price = COST_UNKNOWN,
                                           .dtype = dtype,
                                           .grade = (int8_t)c->grade,
                                           .matmul = (int8_t)c->matmul});
    for (int i = 0; i < c->operands; i++) {
        const struct cost_operand *o = &c->operand[i];
        shape_add_operand(r, (struct row_operand){.address = o->address,
                                                  .slot = rows_slot(r, o->slot),
                                                  .bytes = o->bytes == COST_UNKNOWN ? AT_UNKNOWN_BYTES : o->bytes,
                                                  .mode = (int8_t)mode_of(o->mode)});
        if (!strcmp(o->slot, "A")) s->axis_a = (int8_t)o->axis;
        if (!strcmp(o->slot, "B")) s->axis_b = (int8_t)o->axis;
    }
}

void shape_add_workspace(struct rows *r, uint64_t address, int64_t bytes) {
    if (address && bytes > 0)
        shape_add_operand(
            r, (struct row_operand){
                   .address = address, .bytes = bytes, .slot = AT_SLOT_WORKSPACE, .mode = AT_W, .kept = ROW_NOT_SHOWN});
}

/* ---- shapes of rows ---------------------------------------------------------------------------------------------- */
/* The next group of a grouped product adds to the first one's cost. */
static int32_t joined_cost(struct rows *r, int32_t first, int32_t next) {
    if (first < 0 || next < 0) return first < 0 ? next : first;
    struct at_cost sum = r->cost[first], more = r->cost[next];
    sum.flops = sum.flops_most = cost_amount_add(sum.flops, more.flops);
    sum.matmul_flops = sum.matmul_flops_most = cost_amount_add(sum.matmul_flops, more.matmul_flops);
    sum.integer_ops = cost_amount_add(sum.integer_ops, more.integer_ops);
    sum.bytes_read = cost_amount_add(sum.bytes_read, more.bytes_read);
    sum.bytes_written = cost_amount_add(sum.bytes_written, more.bytes_written);
    if (more.grade > sum.grade) sum.grade = more.grade;
    return new_cost(r, sum);
}

/* A new shape with the operands of both; else as the first, but for what that does not know. */
static int32_t joined(struct rows *r, int32_t first, int32_t next) {
    struct row_shape a = r->shape[first], b = r->shape[next];
    if (a.cost < 0) {
        int32_t operand0 = a.operand0, operands = a.operands;
        a = b;
        a.operand0 = operand0;
        a.operands = operands;
    }
    int32_t cost = joined_cost(r, r->shape[first].cost, b.cost);
    struct row_shape *s = shape_begin(r);
    int32_t operand0 = s->operand0;
    *s = a;
    s->operand0 = operand0;
    s->operands = 0;
    s->cost = cost;
    if (b.axis_a >= 0) s->axis_a = b.axis_a;
    if (b.axis_b >= 0) s->axis_b = b.axis_b;
    for (int32_t i = 0; i < a.operands; i++) shape_add_operand(r, r->operand[a.operand0 + i]);
    for (int32_t i = 0; i < b.operands; i++) shape_add_operand(r, r->operand[b.operand0 + i]);
    return r->shapes - 1;
}

void shape_give_again(struct rows *r, struct row *row, int32_t shape) {
    row->shape = row->shape < 0 ? shape : joined(r, row->shape, shape);
    if (r->shape[row->shape].kind >= 0) row->kind = r->shape[row->shape].kind;
}

void shape_give(struct rows *r, struct row *row) {
    shape_give_again(r, row, r->shapes - 1);
}

/* ---- the shapes known -------------------------------------------------------------------------------------------- */
enum { CACHE_SLOTS = 1 << 16 }; /* more than a step has different calls; the newer of two at one place stays */

struct row_cache {
    struct cached {
        uint64_t hash;
        void *key;
        size_t bytes;
        int32_t shape;
    } slot[CACHE_SLOTS];
    struct cached asked; /* key: the caller's, copied by shape_keep */
    unsigned char *text;
    size_t room;
};

int shape_give_known(struct rows *r, struct row *row, const void *key, size_t bytes) {
    if (!r->cache) r->cache = POOL_NEW(r->pool, struct row_cache, 1);
    struct row_cache *c = r->cache;
    uint64_t hash = at_hash_bytes(key, bytes);
    const struct cached *s = &c->slot[hash % CACHE_SLOTS];
    if (s->key && s->hash == hash && s->bytes == bytes && !memcmp(s->key, key, bytes)) {
        shape_give_again(r, row, s->shape);
        return 1;
    }
    if (bytes > c->room) c->text = pool_grow(r->pool, c->text, c->room = 2 * bytes, 1);
    memcpy(c->text, key, bytes);
    c->asked = (struct cached){hash, NULL, bytes, -1};
    return 0;
}

void shape_keep(struct rows *r) {
    struct row_cache *c = r->cache;
    struct cached *s = &c->slot[c->asked.hash % CACHE_SLOTS];
    pool_give(r->pool, s->key);
    *s = c->asked;
    s->key = POOL_NEW(r->pool, char, s->bytes);
    memcpy(s->key, c->text, s->bytes);
    s->shape = r->shapes - 1;
}
