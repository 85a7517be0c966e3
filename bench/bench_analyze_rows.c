#include "bench/bench_analyze_rows.h"

#include <stdio.h>
#include <string.h>
#include "trace/event_table.h"
#include "trace/store.h"

enum { API_MALLOC = 1, API_FREE, API_COPY, API_MEMSET, API_GEMM, API_LAUNCH };
enum { CALL_NS = 1500, GAP_NS = 700 };

static const char given[] =
    "INSERT INTO process(id, pid, ppid, start_ns, end_ns, end_reason, exit_code, exe, cwd, argv, environment) "
    "VALUES(1, 100, 1, 0, NULL, 'exit', 0, '/bin/train', '/', '[\"train\"]', '{}');"
    "INSERT INTO thread(id, process, tid, name, start_ns) VALUES(1, 1, 100, 'train', 0);"
    "INSERT INTO device(id, process, ordinal, name, total_bytes, cc_major, cc_minor, clock) "
    "VALUES(1, 1, 0, 'NVIDIA A100-SXM4-80GB', 85520809984, 8, 0, 'host');"
    "INSERT INTO api VALUES(1, 'cudaMalloc', 'cudart'), (2, 'cudaFree', 'cudart'), (3, 'cudaMemcpy', 'cudart'), "
    "(4, 'cudaMemset', 'cudart'), (5, 'cublasSgemmStridedBatched', 'cublas'), (6, 'cudaLaunchKernel', 'cudart');";

static const char *const gemm_fields[BENCH_GEMM_PLACES] = {"trans_a",  "trans_b",  "m",        "n",    "k",   "batch",
                                                           "a",        "b",        "c",        "lda",  "ldb", "ldc",
                                                           "stride_a", "stride_b", "stride_c", "beta", "id",  "op"};

static void prepare(struct bench_rows *r, sqlite3_stmt **st, const char *sql) {
    if (!r->failed && sqlite3_prepare_v2(r->db, sql, -1, st, NULL)) r->failed = 1;
}

/* All columns of the table, as parameters of their names. */
static void prepare_event(struct bench_rows *r, sqlite3_stmt **st, enum acct_event event, const char *keys) {
    const struct event_info *info = &event_table[event];
    sqlite3_str *names = sqlite3_str_new(r->db), *values = sqlite3_str_new(r->db);
    for (uint32_t i = 0; i < info->field_count; i++) {
        sqlite3_str_appendf(names, ", \"%w\"", info->fields[i].name);
        sqlite3_str_appendf(values, ", :%s", info->fields[i].name);
    }
    char *n = sqlite3_str_finish(names), *v = sqlite3_str_finish(values);
    char *sql = sqlite3_mprintf("INSERT INTO \"%w\"(%s%s) VALUES(%s%s)", info->name, keys, n ? n : "",
                                event == ACCT_EV_GEMM ? ":id, :op" : ":op", v ? v : "");
    prepare(r, st, sql ? sql : "");
    /* what is not bound later: addresses 0, all else null */
    for (uint32_t i = 0; i < info->field_count && !r->failed; i++)
        if (info->fields[i].type == EVENT_T_u64 || info->fields[i].type == EVENT_T_u32)
            sqlite3_bind_int64(*st, (int)i + (event == ACCT_EV_GEMM ? 3 : 2), 0);
    sqlite3_free(n), sqlite3_free(v), sqlite3_free(sql);
}

static void step(struct bench_rows *r, sqlite3_stmt *st) {
    if (sqlite3_step(st) != SQLITE_DONE) r->failed = 1;
    sqlite3_reset(st);
}

static int place(sqlite3_stmt *st, const char *name) {
    char text[64];
    snprintf(text, sizeof text, ":%s", name);
    return sqlite3_bind_parameter_index(st, text);
}

static void bind_constants(struct bench_rows *r) {
    static const char *const types[] = {"a_type", "b_type", "c_type", "compute"};
    for (int i = 0; i < 4; i++) sqlite3_bind_text(r->gemm, place(r->gemm, types[i]), "fp32", -1, SQLITE_STATIC);
    sqlite3_bind_text(r->gemm, place(r->gemm, "alpha"), "one", -1, SQLITE_STATIC);
    sqlite3_bind_int(r->gemm, place(r->gemm, "math_mode"), 0);
    for (int i = 0; i < BENCH_GEMM_PLACES; i++) r->gemm_place[i] = place(r->gemm, gemm_fields[i]);
}

int bench_rows_open(struct bench_rows *r, const char *path, char *err, size_t err_len) {
    *r = (struct bench_rows){.now_ns = 1000000};
    if (store_create(&r->db, path, 1, err, err_len)) return -1;
    r->failed = sqlite3_exec(r->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", NULL, NULL, NULL) ||
                sqlite3_exec(r->db, given, NULL, NULL, NULL);
    prepare(r, &r->op,
            "INSERT INTO op(id, process, thread, api, kind, act, device, stream, start_ns, end_ns, status, bytes, "
            "object) VALUES(?, 1, 1, ?, ?, ?, 0, 0, ?, ?, 0, ?, ?)");
    prepare(
        r, &r->alloc,
        "INSERT INTO alloc(id, process, address, bytes, memory, device, alloc_ns) VALUES(?, 1, ?, ?, 'device', 0, ?)");
    prepare(r, &r->freed, "UPDATE alloc SET free_ns = ?2, free_op = ?3 WHERE id = ?1");
    prepare(r, &r->kernel, "INSERT INTO kernel(id, process, module, modules, name, params) VALUES(?, 1, 1, 1, ?, ?)");
    prepare_event(r, &r->copy, ACCT_EV_COPY, "op");
    prepare_event(r, &r->memset, ACCT_EV_MEMSET, "op");
    prepare_event(r, &r->launch, ACCT_EV_LAUNCH, "op");
    prepare_event(r, &r->gemm, ACCT_EV_GEMM, "id, op");
    if (!r->failed) bind_constants(r);
    if (!r->failed) return 0;
    snprintf(err, err_len, "%s: %s", path, sqlite3_errmsg(r->db));
    return -1;
}

int bench_rows_close(struct bench_rows *r, char *err, size_t err_len) {
    sqlite3_stmt *all[] = {r->op, r->alloc, r->freed, r->copy, r->memset, r->gemm, r->launch, r->kernel};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
    char *end = sqlite3_mprintf("UPDATE process SET end_ns = %lld; COMMIT", (long long)r->now_ns);
    if (!r->failed)
        r->failed = store_make_indexes(r->db) || store_meta_set_text(r->db, "state", "complete") ||
                    sqlite3_exec(r->db, end, NULL, NULL, NULL) ||
                    sqlite3_exec(r->db, "PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
    if (r->failed) snprintf(err, err_len, "the trace cannot be written: %s", sqlite3_errmsg(r->db));
    sqlite3_free(end);
    sqlite3_close(r->db);
    return r->failed ? -1 : 0;
}

int bench_rows_module(struct bench_rows *r, const char *text, size_t bytes) {
    sqlite3_stmt *st = NULL;
    prepare(r, &st, "INSERT INTO ptx(hash, flags, uncompressed_bytes, payload) VALUES(1, 0, 0, ?)");
    if (r->failed) return -1;
    sqlite3_bind_blob(st, 1, text, (int)bytes, SQLITE_STATIC);
    step(r, st);
    sqlite3_finalize(st);
    return r->failed |=
           sqlite3_exec(r->db,
                        "INSERT INTO module(id, process, arch, isa, hash, path) VALUES(1, 1, 80, 80, 1, '/bin/train')",
                        NULL, NULL, NULL) != 0;
}

int64_t bench_rows_kernel(struct bench_rows *r, const char *name, const char *params) {
    sqlite3_bind_int64(r->kernel, 1, ++r->kernels);
    sqlite3_bind_text(r->kernel, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(r->kernel, 3, params, -1, SQLITE_STATIC);
    step(r, r->kernel);
    return r->kernels;
}

/* object, bytes: 0 where the call has none. */
static int64_t call(struct bench_rows *r, int api, const char *kind, const char *act, int64_t bytes, uint64_t object) {
    sqlite3_stmt *st = r->op;
    sqlite3_bind_int64(st, 1, ++r->ops);
    sqlite3_bind_int(st, 2, api);
    sqlite3_bind_text(st, 3, kind, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, act, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 5, r->now_ns);
    sqlite3_bind_int64(st, 6, r->now_ns + CALL_NS);
    if (bytes)
        sqlite3_bind_int64(st, 7, bytes);
    else
        sqlite3_bind_null(st, 7);
    if (object)
        sqlite3_bind_int64(st, 8, (int64_t)object);
    else
        sqlite3_bind_null(st, 8);
    step(r, st);
    r->now_ns += CALL_NS + GAP_NS;
    return r->ops;
}

int64_t bench_rows_alloc(struct bench_rows *r, uint64_t address, int64_t bytes) {
    int64_t id = call(r, API_MALLOC, "alloc", NULL, bytes, address);
    sqlite3_bind_int64(r->alloc, 1, id);
    sqlite3_bind_int64(r->alloc, 2, (int64_t)address);
    sqlite3_bind_int64(r->alloc, 3, bytes);
    sqlite3_bind_int64(r->alloc, 4, r->now_ns - GAP_NS);
    step(r, r->alloc);
    return id;
}

void bench_rows_free(struct bench_rows *r, int64_t alloc, uint64_t address) {
    sqlite3_bind_int64(r->freed, 1, alloc);
    sqlite3_bind_int64(r->freed, 2, r->now_ns);
    sqlite3_bind_int64(r->freed, 3, call(r, API_FREE, "free", NULL, 0, address));
    step(r, r->freed);
}

void bench_rows_copy(struct bench_rows *r, const char *direction, uint64_t dst, uint64_t src, int64_t bytes) {
    sqlite3_bind_int64(r->copy, 1, call(r, API_COPY, "copy", direction, bytes, 0));
    sqlite3_bind_int64(r->copy, place(r->copy, "dst"), (int64_t)dst);
    sqlite3_bind_int64(r->copy, place(r->copy, "src"), (int64_t)src);
    sqlite3_bind_int64(r->copy, place(r->copy, "bytes"), bytes);
    sqlite3_bind_text(r->copy, place(r->copy, "direction"), direction, -1, SQLITE_STATIC);
    step(r, r->copy);
}

void bench_rows_memset(struct bench_rows *r, uint64_t address, int64_t bytes) {
    sqlite3_bind_int64(r->memset, 1, call(r, API_MEMSET, "memset", NULL, bytes, 0));
    sqlite3_bind_int64(r->memset, place(r->memset, "dst"), (int64_t)address);
    sqlite3_bind_int64(r->memset, place(r->memset, "bytes"), bytes);
    step(r, r->memset);
}

static void bind_stride(sqlite3_stmt *st, int at, int64_t stride) {
    if (stride < 0)
        sqlite3_bind_null(st, at);
    else
        sqlite3_bind_int64(st, at, stride);
}

void bench_rows_gemm(struct bench_rows *r, const struct bench_gemm *g) {
    const int64_t numbers[] = {g->m,          g->n,          g->k,   g->batch, (int64_t)g->a,
                               (int64_t)g->b, (int64_t)g->c, g->lda, g->ldb,   g->ldc};
    const int *at = r->gemm_place;
    int64_t id = call(r, API_GEMM, "gemm", NULL, 0, 0);
    sqlite3_bind_text(r->gemm, at[0], g->trans_a == 'T' ? "T" : "N", 1, SQLITE_STATIC);
    sqlite3_bind_text(r->gemm, at[1], g->trans_b == 'T' ? "T" : "N", 1, SQLITE_STATIC);
    for (int i = 0; i < 10; i++) sqlite3_bind_int64(r->gemm, at[2 + i], numbers[i]);
    bind_stride(r->gemm, at[12], g->stride_a);
    bind_stride(r->gemm, at[13], g->stride_b);
    bind_stride(r->gemm, at[14], g->stride_c);
    sqlite3_bind_text(r->gemm, at[15], g->beta_one ? "one" : "zero", -1, SQLITE_STATIC);
    sqlite3_bind_int64(r->gemm, at[16], id);
    sqlite3_bind_int64(r->gemm, at[17], id);
    step(r, r->gemm);
}

void bench_rows_launch(struct bench_rows *r, const struct bench_launch *l) {
    const int64_t numbers[] = {l->kernel, l->grid, 1, 1, l->block, 1, 1, 0, 0};
    sqlite3_bind_int64(r->launch, 1, call(r, API_LAUNCH, "launch", NULL, 0, 0));
    for (int i = 0; i < 9; i++) sqlite3_bind_int64(r->launch, 2 + i, numbers[i]);
    sqlite3_bind_blob(r->launch, 11, l->args, (int)l->arg_bytes, SQLITE_STATIC);
    step(r, r->launch);
}
