/* Gathers ops that are alike. */
#include "analyzer/ops_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of groups ---- */

/* FNV-1a over the key, eight bytes at a time. */
static uint64_t hash_of(const struct ops_key *k) {
    uint64_t words[sizeof *k / 8], h = 14695981039346656037u;
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof *k / 8; i++) {
        h = (h ^ words[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}
_Static_assert(sizeof(struct ops_key) == 88, "a key is whole words, with nothing between its members");

static void widen(struct ops_groups *g) {
    int64_t slots = g->slots ? 2 * g->slots : 256;
    free(g->slot);
    g->slot = report_grow(NULL, 0, (size_t)slots * sizeof *g->slot);
    memset(g->slot, 0, (size_t)slots * sizeof *g->slot);
    g->slots = slots;
    for (int64_t i = 0; i < g->n; i++) {
        uint64_t h = hash_of(&g->group[i].key);
        while (g->slot[h & (uint64_t)(slots - 1)]) h++;
        g->slot[h & (uint64_t)(slots - 1)] = i + 1;
    }
}

static struct ops_group *group_of(struct ops_groups *g, const struct ops_key *k) {
    if (4 * (g->n + 1) > 3 * g->slots) widen(g);
    uint64_t h = hash_of(k), mask = (uint64_t)(g->slots - 1);
    for (; g->slot[h & mask]; h++) {
        struct ops_group *o = &g->group[g->slot[h & mask] - 1];
        if (!memcmp(&o->key, k, sizeof *k)) return o;
    }
    g->group = report_grow(g->group, g->n, sizeof *g->group);
    struct ops_group *o = &g->group[g->n++];
    memset(o, 0, sizeof *o);
    o->key = *k;
    o->peak = NAN;
    o->min_ns = INT64_MAX;
    o->price = REPORT_UNKNOWN;
    g->slot[h & mask] = g->n;
    return o;
}

static int16_t dtype_of(struct ops_groups *g, const char *text) {
    int i = 0;
    if (!text) return -1;
    while (i < g->dtypes && strcmp(g->dtype[i], text)) i++;
    if (i == (int)(sizeof g->dtype / sizeof *g->dtype)) return -1;
    if (i == g->dtypes) {
        g->dtype[g->dtypes] = report_grow(NULL, 0, strlen(text) + 1);
        strcpy(g->dtype[g->dtypes++], text);
    }
    return (int16_t)i;
}

/* ---- rows ---- */

enum {
    C_OP,
    C_NAME,
    C_FORM_A,
    C_FORM_B,
    C_DIM, /* seven */
    C_TIME = C_DIM + 7,
    C_BEGAN,
    C_STEP,
    C_PHASE,
    C_MATMUL,
    C_DTYPE,
    C_FLOPS,
    C_FLOPS_MOST,
    C_MATMUL_FLOPS,
    C_BYTES,
    C_INTEGER,
    C_GRADE,
    C_PRICE
};

#define COST_COLUMNS                                                                                            \
    "t.busy_ns, coalesce(t.start_ns, op.start_ns), c.step, c.phase, c.matmul, c.dtype, c.flops, c.flops_most, " \
    "c.matmul_flops, c.bytes_read + c.bytes_written, c.integer_ops, c.grade, c.price "
#define COST_JOIN "LEFT JOIN op_cost c ON c.op = op.id LEFT JOIN op_time t ON t.op = op.id "
#define WHERE "WHERE op.status = 0 AND op.kind = ?1 AND (?2 < 0 OR c.step = ?2) AND (?3 IS NULL OR c.phase = ?3)"

static const struct {
    const char *kind, *sql;
} queries[OPS_KINDS] = {
    [OPS_LAUNCH] = {"launch",
                    "SELECT op.id, coalesce(nullif(l.kernel, 0), -op.api), NULL, NULL, l.grid_x, l.grid_y, l.grid_z, "
                    "l.block_x, l.block_y, l.block_z, l.dynamic_shared_bytes, " COST_COLUMNS
                    "FROM op LEFT JOIN launch l ON l.op = op.id " COST_JOIN WHERE},
    [OPS_GEMM] = {"gemm", "SELECT op.id, op.api, g.trans_a, g.trans_b, g.m, g.n, g.k, g.batch, 0, 0, 0, " COST_COLUMNS
                          "FROM op LEFT JOIN gemm g ON g.id = op.id " COST_JOIN WHERE},
    [OPS_BLAS] = {"blas", "SELECT op.id, op.api, NULL, NULL, b.m, b.n, b.k, b.batch, 0, 0, 0, " COST_COLUMNS
                          "FROM op LEFT JOIN blas b ON b.op = op.id " COST_JOIN WHERE},
    [OPS_COPY] = {"copy", "SELECT op.id, op.api, op.act, NULL, op.bytes, 0, 0, 0, 0, 0, 0, " COST_COLUMNS
                          "FROM op " COST_JOIN WHERE},
    [OPS_MEMSET] = {"memset", "SELECT op.id, op.api, NULL, NULL, op.bytes, 0, 0, 0, 0, 0, 0, " COST_COLUMNS
                              "FROM op " COST_JOIN WHERE},
    [OPS_COLLECTIVE] = {"collective", "SELECT op.id, op.api, NULL, NULL, op.bytes, 0, 0, 0, 0, 0, 0, " COST_COLUMNS
                                      "FROM op " COST_JOIN WHERE},
};

static int known(sqlite3_stmt *st, int column) {
    return sqlite3_column_type(st, column) != SQLITE_NULL;
}

static double real_or_nan(sqlite3_stmt *st, int column) {
    return known(st, column) ? sqlite3_column_double(st, column) : NAN;
}

static struct ops_key key_of(struct ops_groups *g, sqlite3_stmt *st, enum ops_kind kind, int each) {
    struct ops_key k;
    const char *a = (const char *)sqlite3_column_text(st, C_FORM_A),
               *b = (const char *)sqlite3_column_text(st, C_FORM_B);
    memset(&k, 0, sizeof k);
    k.op = each ? sqlite3_column_int64(st, C_OP) : 0;
    k.name = sqlite3_column_int64(st, C_NAME);
    for (int i = 0; i < 7; i++) k.dim[i] = known(st, C_DIM + i) ? sqlite3_column_int64(st, C_DIM + i) : -1;
    k.kind = (int32_t)kind;
    k.dtype = dtype_of(g, (const char *)sqlite3_column_text(st, C_DTYPE));
    snprintf(k.form, sizeof k.form, "%s%s", a ? a : "", b ? b : "");
    return k;
}

/* What no run could last, 2^47 ns being 39 hours, is damaged: no time is known. */
static int time_known(sqlite3_stmt *st) {
    int64_t ns = sqlite3_column_int64(st, C_TIME);
    return known(st, C_TIME) && ns >= 0 && ns <= (int64_t)1 << 47;
}

static void add_flops(struct ops_group *o, sqlite3_stmt *st) {
    const char *grade = (const char *)sqlite3_column_text(st, C_GRADE);
    int counted = known(st, C_FLOPS);
    o->flops.least += sqlite3_column_int64(st, C_FLOPS);
    o->flops.most += sqlite3_column_int64(st, C_FLOPS_MOST);
    o->flops.unbounded += counted && !known(st, C_FLOPS_MOST);
    o->flops.sampled += grade && !strcmp(grade, "sampled");
    o->flops.user += grade && !strcmp(grade, "user");
    o->flops.uncounted += !counted && !known(st, C_INTEGER);
    o->integer_ops += sqlite3_column_int64(st, C_INTEGER);
}

/* Copies that leave the device's memory go by another bandwidth, which is not known here. */
static int has_roof(const struct ops_group *o) {
    return o->key.kind <= OPS_BLAS || o->key.kind == OPS_MEMSET ||
           (o->key.kind == OPS_COPY && !strcmp(o->key.form, "d2d"));
}

static void add_roof(struct ops_group *o, sqlite3_stmt *st, const struct report *r) {
    struct roof_work w = {.dtype = (const char *)sqlite3_column_text(st, C_DTYPE),
                          .matmul = sqlite3_column_int(st, C_MATMUL),
                          .matmul_flops = real_or_nan(st, C_MATMUL_FLOPS),
                          .flops = real_or_nan(st, C_FLOPS),
                          .bytes = real_or_nan(st, C_BYTES)};
    if (isnan(w.bytes))
        o->unpriced_bytes++;
    else
        o->bytes += w.bytes;
    if (!has_roof(o)) return;
    struct roof roof = roof_of(r, &w);
    o->peak = roof_peak(r, &w);
    o->by_compute += roof.bound == ROOF_COMPUTE;
    o->by_memory += roof.bound == ROOF_MEMORY;
    if (roof.bound == ROOF_UNKNOWN || !time_known(st)) return;
    o->roof_ns += roof.ns;
    o->roofed++;
    o->roofed_ns += sqlite3_column_int64(st, C_TIME);
}

static void add_time(struct ops_group *o, int64_t ns) {
    o->timed++;
    o->time_ns += ns;
    if (ns < o->min_ns) o->min_ns = ns;
    if (ns > o->max_ns) o->max_ns = ns;
}

static void add_row(struct ops_groups *g, const struct report *r, sqlite3_stmt *st, enum ops_kind kind, int each) {
    struct ops_key k = key_of(g, st, kind, each);
    struct ops_group *o = group_of(g, &k);
    if (!o->calls++) {
        o->first_op = sqlite3_column_int64(st, C_OP);
        o->step = report_column(st, C_STEP);
        o->start_ns = report_column(st, C_BEGAN);
    }
    o->phases |= 1u << report_phase_of((const char *)sqlite3_column_text(st, C_PHASE));
    if (time_known(st)) add_time(o, sqlite3_column_int64(st, C_TIME));
    if (kind <= OPS_BLAS) add_flops(o, st);
    add_roof(o, st, r);
    int64_t price = report_column(st, C_PRICE);
    o->price = price;
    if (price >= 0 && price < g->prices) g->launches_of_price[price]++;
}

static int load_kind(struct ops_groups *g, struct report *r, const struct ops_filter *f, enum ops_kind kind, char *err,
                     size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, queries[kind].sql, err, err_len);
    int rc;
    if (!st) return -1;
    sqlite3_bind_text(st, 1, queries[kind].kind, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, f->step);
    if (f->phase >= 0) sqlite3_bind_text(st, 3, report_phase_names[f->phase], -1, SQLITE_STATIC);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) add_row(g, r, st, kind, f->each);
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- names ---- */

/* Texts by id, dense from 1 on; ids beyond what their number allows are left out. */
static int load_names(struct report *r, const char *sql, char ***out, int64_t *n, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    int rc;
    *n = 0;
    *out = NULL;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);
        if (id < *n || id > 4 * *n + 1000000) continue;
        while (*n <= id) {
            *out = report_grow(*out, *n, sizeof **out);
            (*out)[(*n)++] = NULL;
        }
        (*out)[id] = report_column_text(st, 1);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int load_prices(struct ops_groups *g, struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, "SELECT coalesce(max(id), 0) + 1, count(*) FROM price", err, err_len);
    int rc;
    if (!st) return -1;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t n = sqlite3_column_int64(st, 0);
        g->prices = n > 0 && n <= 4 * sqlite3_column_int64(st, 1) + 1000000 ? n : 0;
        rc = sqlite3_step(st);
    }
    g->launches_of_price = report_grow(NULL, 0, (size_t)(g->prices + 1) * sizeof *g->launches_of_price);
    memset(g->launches_of_price, 0, (size_t)(g->prices + 1) * sizeof *g->launches_of_price);
    return report_rows_end(r, st, rc, err, err_len);
}

int ops_load(struct ops_groups *g, struct report *r, const struct ops_filter *f, char *err, size_t err_len) {
    memset(g, 0, sizeof *g);
    if (load_names(r, "SELECT id, coalesce(demangled, name) FROM kernel ORDER BY id", &g->kernel, &g->kernels, err,
                   err_len) ||
        load_names(r, "SELECT id, name FROM api ORDER BY id", &g->api, &g->apis, err, err_len) ||
        load_prices(g, r, err, err_len))
        return -1;
    for (int k = 0; k < OPS_KINDS; k++)
        if (f->kinds >> k & 1 && load_kind(g, r, f, (enum ops_kind)k, err, err_len)) return -1;
    return 0;
}

void ops_free(struct ops_groups *g) {
    for (int64_t i = 0; i < g->kernels; i++) free(g->kernel[i]);
    for (int64_t i = 0; i < g->apis; i++) free(g->api[i]);
    for (int i = 0; i < g->dtypes; i++) free(g->dtype[i]);
    free(g->kernel), free(g->api), free(g->group), free(g->slot), free(g->launches_of_price);
    memset(g, 0, sizeof *g);
}

/* ---- order ---- */

static enum ops_order sort_by;

static double amount(const struct ops_group *o) {
    return sort_by == OPS_BY_TIME    ? (double)o->time_ns
           : sort_by == OPS_BY_FLOPS ? (double)o->flops.least
           : sort_by == OPS_BY_BYTES ? o->bytes
           : sort_by == OPS_BY_CALLS ? (double)o->calls
                                     : 0;
}

static int order(const void *a, const void *b) {
    const struct ops_group *x = a, *y = b;
    double p = amount(x), q = amount(y);
    if (p != q) return p > q ? -1 : 1;
    return (x->first_op > y->first_op) - (x->first_op < y->first_op);
}

void ops_sort(struct ops_groups *g, enum ops_order by) {
    sort_by = by;
    if (g->n) qsort(g->group, (size_t)g->n, sizeof *g->group, order);
}

/* ---- words ---- */

const char *ops_name(const struct ops_groups *g, const struct ops_group *o) {
    int64_t id = o->key.name;
    if (o->key.kind == OPS_LAUNCH && id > 0) return id < g->kernels && g->kernel[id] ? g->kernel[id] : "unknown kernel";
    if (id < 0 && id >= -g->apis) id = -id; /* a launch of an unknown kernel: the function called */
    return id > 0 && id < g->apis && g->api[id] ? g->api[id] : "unknown";
}

static void matrix_shape(const struct ops_group *o, char *out, size_t room) {
    const int64_t *d = o->key.dim;
    char batch[32] = "", k[32] = "";
    if (d[3] > 1) snprintf(batch, sizeof batch, " x%lld", (long long)d[3]);
    if (d[2] >= 0) snprintf(k, sizeof k, "x%lld", (long long)d[2]);
    if (d[0] >= 0)
        snprintf(out, room, "%s%s%lldx%lld%s%s", o->key.form, *o->key.form ? " " : "", (long long)d[0], (long long)d[1],
                 k, batch);
    else
        snprintf(out, room, "%lld%s%s", (long long)d[1], k, batch);
}

void ops_shape(const struct ops_group *o, char *out, size_t room) {
    const int64_t *d = o->key.dim;
    *out = 0;
    switch (o->key.kind) {
    case OPS_LAUNCH:
        if (d[0] >= 0)
            snprintf(out, room, "(%lld,%lld,%lld)x(%lld,%lld,%lld)", (long long)d[0], (long long)d[1], (long long)d[2],
                     (long long)d[3], (long long)d[4], (long long)d[5]);
        return;
    case OPS_GEMM:
    case OPS_BLAS:
        if (d[1] >= 0) matrix_shape(o, out, room);
        return;
    default:
        if (d[0] >= 0) snprintf(out, room, "%s%s%lld", o->key.form, *o->key.form ? " " : "", (long long)d[0]);
    }
}

double ops_intensity(const struct ops_group *o) {
    if (o->flops.uncounted || o->unpriced_bytes || !(o->bytes > 0)) return NAN;
    return (double)o->flops.least / o->bytes;
}

enum roof_bound ops_bound(const struct ops_group *o) {
    return o->by_compute == o->calls ? ROOF_COMPUTE : o->by_memory == o->calls ? ROOF_MEMORY : ROOF_UNKNOWN;
}

const char *ops_grade(const struct ops_group *o) {
    return report_grade_name(report_grade_of(&o->flops));
}
