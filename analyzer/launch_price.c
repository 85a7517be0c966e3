#include "analyzer/launch_price.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"
#include "analyzer/launch_kernels.h"
#include "ptx/ptx_cost.h"

/* Instructions evaluated, some 8 million a second: of a launch as long as there are plenty, and of all. When these are
 * spent a launch has LEAST_STEPS, enough for kernels whose threads behave alike; others are then bounds. */
#define MOST_STEPS UINT64_C(4000000)
#define ALL_STEPS UINT64_C(64000000)
#define LEAST_STEPS UINT64_C(20000)
/* Of all launches of kernels that had to be sampled before: they would take the most, for the least. */
#define SAMPLE_STEPS UINT64_C(24000000)

struct entry { /* of the cache */
    const struct launch_kernel *kernel;
    int64_t kernel_id;
    uint32_t grid[3], block[3], dynamic_shared;
    uint32_t hash;
    struct launch_price price;
    int64_t loaded, stored;        /* bytes of global memory, the least; COST_UNKNOWN */
    struct launch_price **variant; /* the same for launches that reach different extents */
    size_t variants;
    size_t arg_bytes;
    unsigned char args[]; /* what the price depends on, else 0 */
};

struct launch_prices {
    struct launch_sets *sets;
    sqlite3 *db;
    sqlite3_stmt *insert, *insert_count;
    struct entry **slot; /* open addressing; a power of two */
    size_t slots, entries;
    uint64_t steps_left, samples_left;
    int64_t hurried;
    int64_t sampled[64]; /* kernels that had to be sampled, the first of them; 0: none */
};

struct launch_prices *launch_prices_open(struct launch_sets *sets, sqlite3 *db) {
    struct launch_prices *p = calloc(1, sizeof *p);
    if (p) *p = (struct launch_prices){.sets = sets, .db = db, .steps_left = ALL_STEPS, .samples_left = SAMPLE_STEPS};
    return p;
}

static void free_entry(struct entry *e) {
    for (size_t i = 0; e && i < e->variants; i++) free(e->variant[i]);
    if (e) free(e->variant);
    free(e);
}

void launch_prices_close(struct launch_prices *p) {
    if (!p) return;
    for (size_t i = 0; i < p->slots; i++) free_entry(p->slot[i]);
    free(p->slot);
    sqlite3_finalize(p->insert);
    sqlite3_finalize(p->insert_count);
    free(p);
}

int64_t launch_prices_hurried(const struct launch_prices *p) {
    return p->hurried;
}

/* ---- amounts ---- */

static int64_t add(int64_t a, int64_t b) {
    int64_t sum;
    return a == COST_UNKNOWN || b == COST_UNKNOWN || __builtin_add_overflow(a, b, &sum) ? COST_UNKNOWN : sum;
}

static void add_counts(const struct ptx_count *c, int n, int64_t *least, int64_t *most) {
    for (int i = 0; i < n; i++) {
        *least = add(*least, c[i].lo);
        *most = add(*most, c[i].hi == INT64_MAX ? COST_UNKNOWN : c[i].hi);
    }
}

/* The type of most FLOPs; those of matrix units decide before others, since they count for MFU. */
static const char *dtype_of(const struct ptx_cost *c) {
    static const char *const names[PTX_COST_TYPES] = {
        [PTX_COST_FP64] = "fp64", [PTX_COST_FP32] = "fp32", [PTX_COST_FP16] = "fp16",
        [PTX_COST_BF16] = "bf16", [PTX_COST_TF32] = "tf32", [PTX_COST_FP8] = "fp8"};
    const struct ptx_count *groups[] = {c->matrix, c->flops};
    for (int g = 0; g < 2; g++) {
        int best = 0;
        for (int i = 1; i < PTX_COST_TYPES; i++)
            if (groups[g][i].lo > groups[g][best].lo ||
                (groups[g][i].lo == groups[g][best].lo && groups[g][i].hi > groups[g][best].hi))
                best = i;
        if (groups[g][best].hi) return names[best];
    }
    return NULL;
}

/* What must come from memory at least: of bytes that are read twice, the second time may be served by a cache, so the
 * extents count where they are less; of extents with gaps the accesses are less. */
static int64_t bytes_of(int64_t accessed, int64_t extent) {
    return accessed != COST_UNKNOWN && extent != LAUNCH_UNKNOWN_BYTES && extent < accessed ? extent : accessed;
}

static void amounts(const struct ptx_cost *c, struct launch_price *out) {
    static const enum cost_grade grades[] = {
        [PTX_COST_EXACT] = COST_EXACT, [PTX_COST_SAMPLED] = COST_SAMPLED, [PTX_COST_BOUND] = COST_BOUND};
    out->grade = grades[c->grade];
    out->matmul_flops = out->matmul_flops_most = 0;
    add_counts(c->matrix, PTX_COST_TYPES, &out->matmul_flops, &out->matmul_flops_most);
    out->flops = out->matmul_flops;
    out->flops_most = out->matmul_flops_most;
    add_counts(c->flops, PTX_COST_TYPES, &out->flops, &out->flops_most);
    out->integer_ops = c->integer_ops.lo;
    out->dtype = dtype_of(c);
    if (out->flops != COST_UNKNOWN) return;
    out->grade = COST_UNCOUNTED; /* beyond int64: damaged sizes */
    out->flops_most = out->matmul_flops = out->matmul_flops_most = COST_UNKNOWN;
}

/* ---- why there is no price ---- */

static void why_no_text(struct launch_prices *p, int64_t kernel, char *why, size_t room) {
    static const char sql[] =
        "SELECT m.hash IS NULL, m.why, m.id FROM kernel k LEFT JOIN module m ON m.id >= k.module AND m.id < k.module + "
        "max(coalesce(k.modules, 1), 1) WHERE k.id = ? ORDER BY m.hash IS NULL, m.id LIMIT 1";
    sqlite3_stmt *st;
    snprintf(why, room, "the kernel is not known");
    if (sqlite3_prepare_v2(p->db, sql, -1, &st, NULL)) return;
    sqlite3_bind_int64(st, 1, kernel);
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *told = (const char *)sqlite3_column_text(st, 1);
        int none = sqlite3_column_int(st, 0), known = sqlite3_column_type(st, 2) != SQLITE_NULL;
        snprintf(why, room, "%s%s",
                 !known  ? "its module is not known"
                 : !none ? "its PTX cannot be read, or does not have it"
                 : told  ? "its PTX could not be had: "
                         : "machine code only, no PTX",
                 known && none && told ? told : "");
    }
    sqlite3_finalize(st);
}

/* ---- one price ---- */

/* Where a kernel stands in `sampled`, or would; -1: there is no room. */
static int sampled_place(const struct launch_prices *p, int64_t kernel) {
    for (int i = 0; i < (int)(sizeof p->sampled / sizeof *p->sampled); i++)
        if (p->sampled[i] == kernel || !p->sampled[i]) return i;
    return -1;
}

static uint64_t effort(const struct launch_prices *p, int64_t kernel) {
    int at = sampled_place(p, kernel);
    uint64_t fair = p->steps_left / 16;
    if (at >= 0 && p->sampled[at] && p->samples_left < MOST_STEPS / 2) return LEAST_STEPS;
    return fair > MOST_STEPS ? MOST_STEPS : fair < LEAST_STEPS ? LEAST_STEPS : fair;
}

static void note_sampled(struct launch_prices *p, int64_t kernel, uint64_t steps) {
    int at = sampled_place(p, kernel);
    if (at >= 0) p->sampled[at] = kernel;
    p->samples_left -= steps < p->samples_left ? steps : p->samples_left;
}

/* 0, or -1: uncounted. */
static int price(struct launch_prices *p, const struct entry *e, const struct launch_call *call, struct ptx_cost *out) {
    const struct ptx_function *f = e->kernel ? e->kernel->function : NULL;
    if (!f) {
        why_no_text(p, e->kernel_id, out->why, sizeof out->why);
        return -1;
    }
    uint64_t steps = effort(p, e->kernel_id);
    const void *params = call->args && call->arg_bytes >= f->param_bytes ? call->args : NULL;
    int r =
        ptx_cost_launch_within(steps, e->kernel->module, f, call->grid, call->block, call->dynamic_shared, params, out);
    p->steps_left -= out->steps < p->steps_left ? out->steps : p->steps_left;
    if (!r && out->grade == PTX_COST_SAMPLED) note_sampled(p, e->kernel_id, out->steps);
    if (!r && out->grade != PTX_COST_EXACT && steps < MOST_STEPS / 2 && out->steps > steps / 32) p->hurried++;
    return r;
}

static int insert_counts(struct launch_prices *p, int64_t id, struct ptx_cost *c, char *err, size_t err_len) {
    for (unsigned k = 0; k < PTX_T_FIELDS; k++) {
        const struct ptx_count *n = ptx_cost_field(c, k);
        if (!n->lo && !n->hi) continue;
        sqlite3_bind_int64(p->insert_count, 1, id);
        sqlite3_bind_text(p->insert_count, 2, ptx_tally_name(k), -1, SQLITE_STATIC);
        sqlite3_bind_int64(p->insert_count, 3, n->lo);
        sql_bind(p->insert_count, 4, n->hi == INT64_MAX ? ACCT_NULL_I64 : n->hi);
        if (sql_insert(p->db, p->insert_count, err, err_len)) return -1;
    }
    return 0;
}

static int insert_price(struct launch_prices *p, const struct entry *e, struct ptx_cost *c, char *err, size_t err_len) {
    int counted = e->price.grade != COST_UNCOUNTED;
    sqlite3_stmt *st = p->insert;
    sqlite3_bind_int64(st, 1, e->price.id);
    sql_bind(st, 2, e->kernel ? e->kernel_id : ACCT_NULL_I64);
    for (int k = 0; k < 3; k++) {
        sqlite3_bind_int64(st, 3 + k, e->grid[k]);
        sqlite3_bind_int64(st, 6 + k, e->block[k]);
    }
    sqlite3_bind_int64(st, 9, e->dynamic_shared);
    sqlite3_bind_text(st, 10, cost_grade_name(e->price.grade), -1, SQLITE_STATIC);
    if (*c->why)
        sqlite3_bind_text(st, 11, c->why, -1, SQLITE_TRANSIENT);
    else
        sqlite3_bind_null(st, 11);
    sql_bind(st, 12, counted ? c->blocks_counted : ACCT_NULL_I64);
    if (sql_insert(p->db, st, err, err_len)) return -1;
    return counted ? insert_counts(p, e->price.id, c, err, err_len) : 0;
}

static int prepare(struct launch_prices *p, char *err, size_t err_len) {
    if (p->insert) return 0;
    return sql_prepare(p->db, &p->insert,
                       "INSERT INTO price(id, kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, "
                       "dynamic_shared_bytes, grade, why, blocks_counted) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                       err, err_len) ||
           sql_prepare(p->db, &p->insert_count, "INSERT INTO price_count(price, count, least, most) VALUES(?, ?, ?, ?)",
                       err, err_len);
}

static int fill(struct launch_prices *p, struct entry *e, const struct launch_call *call, char *err, size_t err_len) {
    struct ptx_cost cost = {.why = ""};
    e->price = (struct launch_price){.id = (int64_t)p->entries + 1,
                                     .grade = COST_UNCOUNTED,
                                     .flops = COST_UNKNOWN,
                                     .flops_most = COST_UNKNOWN,
                                     .matmul_flops = COST_UNKNOWN,
                                     .matmul_flops_most = COST_UNKNOWN,
                                     .integer_ops = COST_UNKNOWN,
                                     .bytes_read = COST_UNKNOWN,
                                     .bytes_written = COST_UNKNOWN,
                                     .cost = -1};
    e->loaded = e->stored = COST_UNKNOWN;
    if (!price(p, e, call, &cost)) {
        amounts(&cost, &e->price);
        e->loaded = cost.loaded[PTX_COST_GLOBAL].lo;
        e->stored = cost.stored[PTX_COST_GLOBAL].lo;
    }
    return prepare(p, err, err_len) || insert_price(p, e, &cost, err, err_len) ? -1 : 0;
}

/* ---- the cache ---- */

static uint32_t hash_of(const void *data, size_t bytes, uint32_t h) {
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 16777619u;
    return h ^ h >> 15;
}

static int is_same(const struct entry *a, const struct entry *b) {
    return a->hash == b->hash && a->kernel_id == b->kernel_id && !memcmp(a->grid, b->grid, sizeof a->grid) &&
           !memcmp(a->block, b->block, sizeof a->block) && a->dynamic_shared == b->dynamic_shared &&
           a->arg_bytes == b->arg_bytes && !memcmp(a->args, b->args, a->arg_bytes);
}

/* What a price does not depend on is 0; of a pointer that is only asked for null, that. Where it is not known what
 * matters, all of it does, but for pointers' values. */
static void mask(const struct launch_kernel *k, const struct launch_call *call, unsigned char *out) {
    if (!k->cost_uses || call->arg_bytes < k->entry->param_bytes) {
        launch_mask_pointers(k, call, out);
        return;
    }
    const unsigned char *args = call->args;
    for (size_t i = 0; i < k->entry->param_bytes; i++) {
        if (k->cost_uses[i] == PTX_COST_BY_VALUE) out[i] = args[i];
        if (k->cost_uses[i] == PTX_COST_BY_NULL && args[i]) out[i / 8 * 8] = 1;
    }
}

static struct entry *key_of(struct launch_prices *p, const struct launch_call *call) {
    size_t bytes = call->args ? call->arg_bytes : 0;
    struct entry *e = calloc(1, sizeof *e + bytes);
    if (!e) return NULL;
    e->kernel = launch_sets_kernel(p->sets, call->kernel);
    e->kernel_id = call->kernel;
    memcpy(e->grid, call->grid, sizeof e->grid);
    memcpy(e->block, call->block, sizeof e->block);
    e->dynamic_shared = call->dynamic_shared;
    e->arg_bytes = bytes;
    if (bytes && e->kernel) mask(e->kernel, call, e->args);
    uint32_t h = hash_of(&e->kernel_id, sizeof e->kernel_id, 2166136261u);
    h = hash_of(e->grid, sizeof e->grid, hash_of(e->block, sizeof e->block, h));
    e->hash = hash_of(e->args, bytes, hash_of(&e->dynamic_shared, sizeof e->dynamic_shared, h));
    return e;
}

static struct entry **place_of(struct entry **slot, size_t slots, const struct entry *key) {
    size_t i = key->hash & (slots - 1);
    while (slot[i] && !is_same(slot[i], key)) i = (i + 1) & (slots - 1);
    return &slot[i];
}

static int make_room(struct launch_prices *p) {
    if (2 * (p->entries + 1) <= p->slots) return 0;
    size_t slots = p->slots ? 2 * p->slots : 256;
    struct entry **slot = calloc(slots, sizeof *slot);
    if (!slot) return -1;
    for (size_t i = 0; i < p->slots; i++)
        if (p->slot[i]) *place_of(slot, slots, p->slot[i]) = p->slot[i];
    free(p->slot);
    p->slot = slot;
    p->slots = slots;
    return 0;
}

/* The price with the bytes of the launch that was last asked for. NULL: no memory. */
static struct launch_price *variant_of(const struct launch_prices *p, struct entry *e) {
    int64_t read, written;
    launch_sets_bytes(p->sets, &read, &written);
    read = bytes_of(e->loaded, read);
    written = bytes_of(e->stored, written);
    for (size_t i = 0; i < e->variants; i++)
        if (e->variant[i]->bytes_read == read && e->variant[i]->bytes_written == written) return e->variant[i];
    struct launch_price **more = realloc(e->variant, (e->variants + 1) * sizeof *more), *v = malloc(sizeof *v);
    if (more) e->variant = more;
    if (!more || !v) {
        free(v);
        return NULL;
    }
    *v = e->price;
    v->bytes_read = read;
    v->bytes_written = written;
    return e->variant[e->variants++] = v;
}

static int no_memory(char *err, size_t err_len) {
    snprintf(err, err_len, "not enough memory for the prices of this trace's launches");
    return -1;
}

/* The entry of a launch, new or old; NULL: an error. */
static struct entry *entry_of(struct launch_prices *p, const struct launch_call *call, char *err, size_t err_len) {
    struct entry *key = make_room(p) ? NULL : key_of(p, call);
    if (!key) {
        no_memory(err, err_len);
        return NULL;
    }
    struct entry **place = place_of(p->slot, p->slots, key);
    if (!*place && !fill(p, key, call, err, err_len)) {
        p->entries++;
        return *place = key;
    }
    free(key);
    return *place;
}

struct launch_price *launch_price_of(struct launch_prices *p, const struct launch_call *call, char *err,
                                     size_t err_len) {
    struct entry *e = entry_of(p, call, err, err_len);
    struct launch_price *v = e ? variant_of(p, e) : NULL;
    if (e && !v) no_memory(err, err_len);
    return v;
}
