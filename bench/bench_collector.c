/* What a row costs the collector, from a record in a ring to a row in the trace, against a bare prepared SQLite INSERT
 * of the very same rows into the same tables in the same run. Both write through store_create's database, both commit
 * every TRANSACTION rows; the peer gets its values ready-made and inserts table by table. Goal: ratio below 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "trace/collect_rows.h"
#include "trace/ring.h"
#include "trace/ring_read.h"
#include "trace/store.h"

#define TRANSACTION 50000
#define ROUNDS 5 /* the best of so many: other processes only ever add time */
#define ADDRESSES 64

static void die(const char *what) {
    fprintf(stderr, "bench_collector: %s\n", what);
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- records: the mix of a training step ------------------------------------------------------------------------- */

static void *record(struct ring_writer *w, enum acct_event event, size_t bytes, uint64_t *clock) {
    struct acct_rec *r = ring_begin(w, event, bytes, *clock += 3000);
    if (!r) die("the ring is too small");
    memset((char *)r + sizeof *r, 0, bytes - sizeof *r);
    r->api = (uint32_t)event;
    r->status = 0;
    r->device = 0;
    r->stream = 0;
    r->end_ns = *clock + 2000;
    return r;
}

/* A launch, and what CUPTI tells of it. */
static void launch(struct ring_writer *w, uint64_t *clock) {
    static const char args[64];
    uint64_t number = *clock / 3000;
    struct acct_ev_launch *l = record(w, ACCT_EV_LAUNCH, sizeof *l, clock);
    l->kernel = 1 + (uint32_t)number % 40;
    l->grid_x = l->grid_y = l->grid_z = l->block_y = l->block_z = 1;
    l->block_x = 256;
    l->args = ring_text(w, args, sizeof args);
    l->external = number;
    struct acct_ev_correlation *c = record(w, ACCT_EV_CORRELATION, sizeof *c, clock);
    c->correlation = (uint32_t)number;
    c->external = number;
    struct acct_ev_activity *a = record(w, ACCT_EV_ACTIVITY, sizeof *a, clock);
    a->kind = ACCT_activity_KERNEL;
    a->correlation = (uint32_t)number;
    a->context = 1;
    a->stream = 7;
    a->begin_ns = (int64_t)*clock;
    a->end_ns = (int64_t)*clock + 5000;
    a->name = 1;
    a->grid_x = a->grid_y = a->grid_z = a->block_y = a->block_z = 1;
    a->block_x = 256;
    a->registers = 32;
    a->bytes = ACCT_NULL_I64;
    a->copy_kind = ACCT_NULL_I32;
}

static void name(struct ring_writer *w, uint64_t *clock) {
    static const char mangled[] = "_Z24layernorm_forward_kernelPfS_S_PKfS1_S1_ii";
    struct acct_ev_name *n = record(w, ACCT_EV_NAME, sizeof *n, clock);
    n->number = 1;
    n->name = ring_text(w, mangled, sizeof mangled - 1);
}

static void step(struct ring_writer *w, uint64_t *clock) {
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t address = 0x7f0000000000u + (*clock / 3000 % ADDRESSES) * (1 << 20);
        struct acct_ev_alloc *a = record(w, ACCT_EV_ALLOC, sizeof *a, clock);
        a->address = address;
        a->bytes = 1 << 20;
        a->memory = ACCT_memory_DEVICE;
        struct acct_ev_gemm *g = record(w, ACCT_EV_GEMM, sizeof *g, clock);
        g->m = g->n = g->k = g->lda = g->ldb = g->ldc = 256;
        g->batch = 1;
        g->a = g->b = g->c = address;
        g->stride_a = g->stride_b = g->stride_c = ACCT_NULL_I64;
        g->trans_a = g->trans_b = ACCT_trans_N;
        g->a_type = g->b_type = g->c_type = ACCT_dtype_FP32;
        g->compute = ACCT_compute_FP32;
        g->alpha = ACCT_scalar_ONE;
        g->beta = ACCT_scalar_ZERO;
        g->math_mode = g->algo = ACCT_NULL_I32;
        struct acct_ev_blas *b = record(w, ACCT_EV_BLAS, sizeof *b, clock);
        b->routine = ring_text(w, "axpy", 4);
        b->type = ACCT_dtype_FP32;
        b->n = 65536;
        b->m = b->k = b->kl = b->ku = b->stride_a = b->stride_b = b->stride_c = ACCT_NULL_I64;
        struct acct_ev_free *f = record(w, ACCT_EV_FREE, sizeof *f, clock);
        f->address = address;
        f->memory = ACCT_memory_DEVICE;
        launch(w, clock);
    }
    struct acct_ev_copy *c = record(w, ACCT_EV_COPY, sizeof *c, clock);
    c->bytes = 4096;
    c->direction = ACCT_direction_H2D;
    c->width_bytes = c->height = c->dst_pitch_bytes = c->src_pitch_bytes = ACCT_NULL_I64;
    c->dst_device = c->src_device = ACCT_NULL_I32;
}

/* ---- the collector's way ----------------------------------------------------------------------------------------- */

static double collector(struct ring_map *map, const char *path) {
    static struct ring_record rec;
    char err[512];
    sqlite3 *db;
    struct rows rows;
    struct rows_ring ring = {0};
    struct ring_reader reader;
    char *texts = malloc(map->blob_bytes);
    if (store_create(&db, path, 1, err, sizeof err)) die(err);
    ring_reader_init(&reader, map, 0, texts);
    if (rows_open(&rows, db, path, 0)) die(rows.message);
    uint64_t head = ring_reader_head(&reader);
    double start = seconds();
    rows_begin(&rows);
    while (ring_read(&reader, head, &rec) == 1) {
        rows_record(&rows, &ring, &rec);
        if (rows.rows < TRANSACTION) continue;
        rows_commit(&rows);
        rows_begin(&rows);
    }
    rows_commit(&rows);
    double took = seconds() - start;
    if (rows.stopped || reader.fault) die("the collector failed");
    rows_close(&rows);
    sqlite3_close(db);
    free(texts);
    return took;
}

/* ---- the bare way ------------------------------------------------------------------------------------------------ */

static const char *const tables[] = {"op", "alloc", "gemm", "blas", "copy", "launch", "correlation", "activity"};
#define TABLES 8

struct table {
    int columns;
    long rows;
    sqlite3_value **values;
};

static void load(sqlite3 *db, const char *name, struct table *t) {
    char sql[64];
    sqlite3_stmt *s;
    size_t n = 0, capacity = 0;
    snprintf(sql, sizeof sql, "SELECT * FROM \"%s\"", name);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL)) die(sqlite3_errmsg(db));
    *t = (struct table){.columns = sqlite3_column_count(s)};
    for (; sqlite3_step(s) == SQLITE_ROW; t->rows++)
        for (int i = 0; i < t->columns; i++) {
            if (n == capacity) t->values = realloc(t->values, (capacity = 2 * capacity + 1024) * sizeof *t->values);
            t->values[n++] = sqlite3_value_dup(sqlite3_column_value(s, i));
        }
    sqlite3_finalize(s);
}

static sqlite3_stmt *prepare_insert(sqlite3 *db, const char *name, int columns) {
    char sql[256];
    sqlite3_stmt *s;
    int n = snprintf(sql, sizeof sql, "INSERT INTO \"%s\" VALUES(?", name);
    for (int i = 1; i < columns; i++) n += snprintf(sql + n, sizeof sql - (size_t)n, ",?");
    snprintf(sql + n, sizeof sql - (size_t)n, ")");
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL)) die(sqlite3_errmsg(db));
    return s;
}

static double bare(const struct table *data, const char *path) {
    char err[512];
    sqlite3 *db;
    long in_transaction = 0;
    if (store_create(&db, path, 1, err, sizeof err)) die(err);
    double start = seconds();
    sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (int k = 0; k < TABLES; k++) {
        sqlite3_stmt *s = prepare_insert(db, tables[k], data[k].columns);
        sqlite3_value **v = data[k].values;
        for (long row = 0; row < data[k].rows; row++) {
            for (int i = 0; i < data[k].columns; i++) sqlite3_bind_value(s, i + 1, *v++);
            if (sqlite3_step(s) != SQLITE_DONE) die(sqlite3_errmsg(db));
            sqlite3_reset(s);
            if (++in_transaction % TRANSACTION == 0) sqlite3_exec(db, "COMMIT; BEGIN IMMEDIATE", NULL, NULL, NULL);
        }
        sqlite3_finalize(s);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    double took = seconds() - start;
    sqlite3_close(db);
    return took;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

static long fill(struct ring_map *map, uint32_t slots, long steps) {
    struct acct_control layout = {0};
    struct ring_writer w;
    uint64_t clock = 1000000;
    char err[256];
    if (ring_layout(&layout, 1, slots, 1 << 24, 1)) die("layout");
    void *memory = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    memcpy(memory, &layout, sizeof layout);
    ring_attach(&w, memory, (unsigned)ring_claim(memory));
    name(&w, &clock);
    for (long i = 0; i < steps; i++) step(&w, &clock);
    ring_commit(&w);
    if (ring_map_check(map, memory, layout.total_bytes, err, sizeof err)) die(err);
    return steps * 29 + 1;
}

int main(void) {
    int shortened = getenv("BENCH_SHORT") != NULL;
    char folder[] = "/tmp/acct-bench-XXXXXX", ours[64], theirs[64];
    if (!mkdtemp(folder)) die("mkdtemp");
    snprintf(ours, sizeof ours, "%s/collector.db", folder);
    snprintf(theirs, sizeof theirs, "%s/bare.db", folder);
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD); /* as acct-collect does */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    struct ring_map map;
    struct table data[TABLES];
    long records = fill(&map, 1 << 20, shortened ? 2000 : 10000), rows = 0;
    double best = collector(&map, ours), best_bare = 1e9;
    sqlite3 *db;
    if (sqlite3_open(ours, &db)) die("open");
    for (int k = 0; k < TABLES; k++) {
        load(db, tables[k], &data[k]);
        rows += data[k].rows;
    }
    sqlite3_close(db);
    for (int i = 0; i < (shortened ? 2 : ROUNDS); i++) {
        double a = collector(&map, ours), b = bare(data, theirs);
        best = a < best ? a : best;
        best_bare = b < best_bare ? b : best_bare;
    }
    printf("collector: %.0f ns a record (%.2f M records/s), %.0f ns a row; bare prepared insert of the same %ld rows: "
           "%.0f ns a row; "
           "ratio %.2f (goal < 2)\n",
           1e9 * best / (double)records, (double)records / best / 1e6, 1e9 * best / (double)rows, rows,
           1e9 * best_bare / (double)rows, best / best_bare);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}
