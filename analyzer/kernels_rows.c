/* Rows of `acct kernels`. */
#include "analyzer/kernels_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the program's kernels ---- */

static struct kernel_row *new_row(struct kernels *k) {
    k->row = report_grow(k->row, k->n, sizeof *k->row);
    struct kernel_row *row = &k->row[k->n++];
    memset(row, 0, sizeof *row);
    row->registers = row->static_shared_bytes = row->local_bytes = REPORT_UNKNOWN;
    row->min_ns = INT64_MAX;
    row->roof_share = NAN;
    return row;
}

static void add_shape(struct kernel_row *row, const struct kernel_shape *s) {
    row->shape = report_grow(row->shape, row->n_shapes, sizeof *row->shape);
    row->shape[row->n_shapes++] = *s;
    row->launches += s->launches;
    row->timed += s->timed;
    row->time_ns += s->time_ns;
}

static int by_kernel(const void *a, const void *b) {
    const struct ops_group *x = a, *y = b;
    if (x->key.name != y->key.name) return x->key.name < y->key.name ? -1 : 1;
    if (x->calls != y->calls) return x->calls > y->calls ? -1 : 1;
    return (x->first_op > y->first_op) - (x->first_op < y->first_op);
}

/* Groups [from, to) are one kernel's. */
static void add_program_kernel(struct kernels *k, int64_t from, int64_t to) {
    struct kernel_row *row = new_row(k);
    double roof = 0;
    int64_t roofed = 0, roofed_ns = 0, by_compute = 0, by_memory = 0, unpriced = 0;
    row->name = ops_name(&k->ops, &k->ops.group[from]);
    for (int64_t i = from; i < to; i++) {
        const struct ops_group *o = &k->ops.group[i];
        struct kernel_shape s = {.launches = o->calls, .timed = o->timed, .time_ns = o->time_ns};
        memcpy(s.dim, o->key.dim, sizeof s.dim);
        add_shape(row, &s);
        if (o->timed && o->min_ns < row->min_ns) row->min_ns = o->min_ns;
        if (o->max_ns > row->max_ns) row->max_ns = o->max_ns;
        report_sum_add(&row->flops, &o->flops);
        row->bytes += o->bytes;
        unpriced += o->unpriced_bytes;
        roof += o->roof_ns;
        roofed += o->roofed;
        roofed_ns += o->roofed_ns;
        by_compute += o->by_compute;
        by_memory += o->by_memory;
    }
    if (unpriced) row->bytes = NAN;
    if (roofed && roofed == row->timed && roofed_ns > 0) row->roof_share = roof / (double)roofed_ns;
    row->bound = by_compute == row->launches ? ROOF_COMPUTE : by_memory == row->launches ? ROOF_MEMORY : ROOF_UNKNOWN;
}

/* place[id] of kernel.id: its row + 1; 0: never launched. */
static int64_t *add_program(struct kernels *k) {
    int64_t *place = report_grow(NULL, 0, (size_t)(k->ops.kernels + 1) * sizeof *place);
    memset(place, 0, (size_t)(k->ops.kernels + 1) * sizeof *place);
    if (k->ops.n) qsort(k->ops.group, (size_t)k->ops.n, sizeof *k->ops.group, by_kernel);
    for (int64_t i = 0, end; i < k->ops.n; i = end) {
        int64_t id = k->ops.group[i].key.name;
        for (end = i; end < k->ops.n && k->ops.group[end].key.name == id;) end++;
        add_program_kernel(k, i, end);
        if (id > 0 && id < k->ops.kernels) place[id] = k->n;
    }
    return place;
}

static struct kernel_row *row_of(const struct kernels *k, const int64_t *place, int64_t id) {
    return id > 0 && id < k->ops.kernels && place[id] ? &k->row[place[id] - 1] : NULL;
}

static int load_attributes(struct kernels *k, const int64_t *place, struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT k.id, k.registers, k.static_shared_bytes, k.local_bytes, (SELECT "
                                      "min(p.why) FROM price p WHERE p.kernel "
                                      "= k.id) FROM kernel k",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct kernel_row *row = row_of(k, place, sqlite3_column_int64(st, 0));
        if (!row) continue;
        row->registers = report_column(st, 1);
        row->static_shared_bytes = report_column(st, 2);
        row->local_bytes = report_column(st, 3);
        free(row->why);
        row->why = report_column_text(st, 4);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static int count_of(struct kernels *k, const char *name) {
    int i = 0;
    while (i < k->counts && strcmp(k->count[i], name)) i++;
    if (i == KERNEL_COUNTS) return -1;
    if (i == k->counts) {
        k->count[i] = report_grow(NULL, 0, strlen(name) + 1);
        strcpy(k->count[k->counts++], name);
    }
    return i;
}

static int load_counts(struct kernels *k, const int64_t *place, struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r,
                                      "SELECT p.kernel, p.id, c.count, c.least, c.most FROM price_count c JOIN price p "
                                      "ON p.id = c.price",
                                      err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct kernel_row *row = row_of(k, place, sqlite3_column_int64(st, 0));
        int64_t price = sqlite3_column_int64(st, 1);
        const char *name = (const char *)sqlite3_column_text(st, 2);
        int c = name ? count_of(k, name) : -1;
        if (!row || c < 0 || price < 0 || price >= k->ops.prices) continue;
        int64_t n = k->ops.launches_of_price[price];
        row->has_counts = 1;
        row->least[c] += (__int128)n * sqlite3_column_int64(st, 3);
        row->most[c] += (__int128)n * sqlite3_column_int64(st, 4);
        row->unbounded[c] |= n && sqlite3_column_type(st, 4) == SQLITE_NULL;
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* ---- kernels of libraries: only the device's records name them. A stand-in of a library tells no grid, and then no
 * registers either ---- */

static const char library_kernels[] =
    "SELECT name, nullif(grid_x, 0), nullif(grid_y, 0), nullif(grid_z, 0), nullif(block_x, 0), nullif(block_y, 0), "
    "nullif(block_z, 0), dynamic_shared_bytes, count(*), "
    "sum(start_ns > 0 AND end_ns >= start_ns), sum(iif(start_ns > 0 AND end_ns >= start_ns, end_ns - start_ns, 0)), "
    "min(iif(start_ns > 0 AND end_ns >= start_ns, end_ns - start_ns, NULL)), "
    "max(iif(start_ns > 0 AND end_ns >= start_ns, end_ns - start_ns, NULL)), max(nullif(registers, 0)), "
    "max(static_shared_bytes), max(local_bytes) FROM activity WHERE kind = 'kernel' AND name IS NOT NULL AND name NOT "
    "IN (SELECT name FROM kernel WHERE name IS NOT NULL) GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 9 DESC";

static void add_library_shape(struct kernel_row *row, sqlite3_stmt *st) {
    struct kernel_shape s = {.launches = sqlite3_column_int64(st, 8),
                             .timed = sqlite3_column_int64(st, 9),
                             .time_ns = sqlite3_column_int64(st, 10)};
    for (int i = 0; i < 7; i++)
        s.dim[i] = sqlite3_column_type(st, 1 + i) == SQLITE_NULL ? -1 : sqlite3_column_int64(st, 1 + i);
    add_shape(row, &s);
    if (s.timed && sqlite3_column_int64(st, 11) < row->min_ns) row->min_ns = sqlite3_column_int64(st, 11);
    if (s.timed && sqlite3_column_int64(st, 12) > row->max_ns) row->max_ns = sqlite3_column_int64(st, 12);
    row->registers = report_column(st, 13);
    row->static_shared_bytes = report_column(st, 14);
    row->local_bytes = report_column(st, 15);
}

static int add_libraries(struct kernels *k, struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st = report_prepare(r, library_kernels, err, err_len);
    struct kernel_row *row = NULL;
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        if (!row || strcmp(k->name[k->names - 1], name)) {
            k->name = report_grow(k->name, k->names, sizeof *k->name);
            k->name[k->names++] = report_column_text(st, 0);
            row = new_row(k);
            row->library = 1;
            row->bytes = NAN;
            row->name = k->name[k->names - 1];
        }
        add_library_shape(row, st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

int kernels_load(struct kernels *k, struct report *r, char *err, size_t err_len) {
    struct ops_filter f = {.step = -1, .phase = -1, .kinds = 1u << OPS_LAUNCH};
    memset(k, 0, sizeof *k);
    if (ops_load(&k->ops, r, &f, err, err_len)) return -1;
    int64_t *place = add_program(k);
    int rc = load_attributes(k, place, r, err, err_len) || load_counts(k, place, r, err, err_len) ||
             add_libraries(k, r, err, err_len);
    free(place);
    return rc ? -1 : 0;
}

void kernels_free(struct kernels *k) {
    for (int64_t i = 0; i < k->n; i++) free(k->row[i].shape), free(k->row[i].why);
    for (int64_t i = 0; i < k->names; i++) free(k->name[i]);
    for (int i = 0; i < k->counts; i++) free(k->count[i]);
    free(k->row), free(k->name);
    ops_free(&k->ops);
}

/* ---- order ---- */

static enum ops_order sort_by;

static double amount(const struct kernel_row *row) {
    return sort_by == OPS_BY_TIME    ? (double)row->time_ns
           : sort_by == OPS_BY_FLOPS ? (double)row->flops.least
           : sort_by == OPS_BY_BYTES ? (isnan(row->bytes) ? -1 : row->bytes)
                                     : (double)row->launches;
}

static int order(const void *a, const void *b) {
    const struct kernel_row *x = a, *y = b;
    double p = amount(x), q = amount(y);
    if (p != q) return p > q ? -1 : 1;
    if (x->launches != y->launches) return x->launches > y->launches ? -1 : 1;
    return strcmp(x->name, y->name);
}

void kernels_sort(struct kernels *k, enum ops_order by) {
    sort_by = by;
    if (k->n) qsort(k->row, (size_t)k->n, sizeof *k->row, order);
}
