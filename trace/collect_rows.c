#include "trace/collect_rows.h"
#include "trace/collect_bind.h"
#include "trace/collect_text.h"
#include "trace/store.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const stmt_sql[ROWS_STMTS] = {
    [ROWS_OP] = "INSERT INTO op VALUES(?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    [ROWS_ALLOC] = "INSERT INTO alloc VALUES(?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL)",
    [ROWS_ALLOC_END] = "UPDATE alloc SET free_ns = ?2, free_op = ?3 WHERE id = ?1",
    [ROWS_STREAM] = "INSERT INTO stream VALUES(?1, 1, ?2, ?3, ?4, ?5, ?6, NULL)",
    [ROWS_STREAM_END] = "UPDATE stream SET destroyed_ns = ?2 WHERE id = ?1",
    [ROWS_THREAD] = "INSERT INTO thread VALUES(NULL, 1, ?1, ?2, ?3)",
    [ROWS_API] = "INSERT OR REPLACE INTO api VALUES(?1, ?2, ?3)",
    [ROWS_DEVICE] =
        "INSERT INTO device SELECT NULL, 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16 "
        "WHERE NOT EXISTS(SELECT 1 FROM device WHERE ordinal = ?1)",
    [ROWS_MEMINFO] = "INSERT INTO meminfo VALUES(NULL, 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [ROWS_PROCESS] = "INSERT INTO process(id, pid, ppid, start_ns, exe, cwd, argv, environment) VALUES(1, ?1, ?2, ?3, "
                     "?4, ?5, ?6, ?7) "
                     "ON CONFLICT(id) DO UPDATE SET pid = ?1, ppid = ?2, start_ns = ?3, exe = ?4, cwd = ?5, argv = ?6, "
                     "environment = ?7",
    [ROWS_PROCESS_END] = "UPDATE process SET end_ns = ?1, end_reason = ?2, exit_code = ?3 WHERE id = 1",
    [ROWS_LOST] = "INSERT INTO lost VALUES(NULL, 1, ?1, ?2, ?3, ?4, ?5, ?6)",
    [ROWS_META] = "INSERT OR REPLACE INTO meta VALUES(?1, ?2)",
    [ROWS_PTX] = "INSERT OR IGNORE INTO ptx VALUES(?1, ?2, ?3, ?4)",
    [ROWS_MODULE] = "INSERT INTO module VALUES(?1, 1, ?2, ?3, NULL, ?4, ?5) ON CONFLICT(id) DO NOTHING",
    [ROWS_MODULE_TEXT] = "UPDATE module SET hash = ?2, why = ?3 WHERE id = ?1 AND hash IS NULL",
    [ROWS_KERNEL] =
        "INSERT INTO kernel VALUES(?1, 1, ?2, ?3, ?4, NULL, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(id) DO UPDATE SET "
        "module = coalesce(?2, module), modules = coalesce(?3, modules), name = coalesce(?4, name), "
        "params = coalesce(?5, params), registers = coalesce(?6, registers), "
        "static_shared_bytes = coalesce(?7, static_shared_bytes), "
        "local_bytes = coalesce(?8, local_bytes), max_threads = coalesce(?9, max_threads)",
    [ROWS_CORRELATION] = "INSERT OR REPLACE INTO correlation VALUES(?1, ?2)",
    [ROWS_ACTIVITY] = "INSERT INTO activity VALUES(NULL, 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, "
                      "?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
    [ROWS_ACTIVITY_NAME] = "UPDATE activity SET name = ?2 WHERE id = ?1",
    [ROWS_BEGIN] = "BEGIN IMMEDIATE",
    [ROWS_COMMIT] = "COMMIT",
};

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static void stop(struct rows *r, const char *reason, const char *message) {
    r->stopped = reason;
    snprintf(r->reason, sizeof r->reason, "%s", message);
    snprintf(r->message, sizeof r->message, "%.280s: %s; recording has stopped, what was committed is kept", r->path,
             r->reason);
    if (sqlite3_get_autocommit(r->db) == 0) sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    r->in_transaction = 0;
    r->dropped += r->pending;
    r->pending = r->rows = 0;
}

int rows_step(struct rows *r, sqlite3_stmt *stmt) {
    if (r->stopped) return -1;
    int rc = sqlite3_step(stmt);
    sqlite3_reset(stmt);
    if (rc == SQLITE_DONE) return 0;
    stop(r, "disk", sqlite3_errstr(rc));
    return -1;
}

/* ---- opening and transactions ------------------------------------------------------------------------------------ */

static int prepare(struct rows *r, const char *sql, sqlite3_stmt **stmt) {
    return sqlite3_prepare_v3(r->db, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL);
}

/* The INSERT of an event's own table: key columns (gemm has two), then its fields. */
static int prepare_detail(struct rows *r, enum acct_event event) {
    sqlite3_str *sql = sqlite3_str_new(r->db);
    uint32_t columns = event_table[event].field_count + (event == ACCT_EV_GEMM ? 2 : 1);
    sqlite3_str_appendf(sql, "INSERT INTO \"%w\" VALUES(?", event_table[event].name);
    for (uint32_t i = 1; i < columns; i++) sqlite3_str_appendall(sql, ",?");
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    int rc = text ? prepare(r, text, &r->detail[event]) : SQLITE_NOMEM;
    sqlite3_free(text);
    return rc;
}

/* birth ids are rows of alloc or stream; death ids are ops. */
static void alloc_changed(void *context, int64_t birth, int64_t death, uint64_t end_ns) {
    struct rows *r = context;
    sqlite3_stmt *s = r->stmt[ROWS_ALLOC_END];
    sqlite3_bind_int64(s, 1, birth);
    bind_id(s, 2, (int64_t)end_ns);
    bind_id(s, 3, death);
    rows_step(r, s);
}

static void stream_changed(void *context, int64_t birth, int64_t death, uint64_t end_ns) {
    struct rows *r = context;
    sqlite3_stmt *s = r->stmt[ROWS_STREAM_END];
    (void)death;
    sqlite3_bind_int64(s, 1, birth);
    bind_id(s, 2, (int64_t)end_ns);
    rows_step(r, s);
}

int rows_open(struct rows *r, sqlite3 *db, const char *path, uint64_t max_bytes) {
    *r = (struct rows){.db = db, .path = path, .next_id = 1, .max_bytes = max_bytes};
    int rc = SQLITE_OK;
    for (int i = 0; i < ROWS_STMTS && rc == SQLITE_OK; i++) rc = prepare(r, stmt_sql[i], &r->stmt[i]);
    for (int e = 0; e < ACCT_EV_COUNT && rc == SQLITE_OK; e++)
        if (event_has_table(e)) rc = prepare_detail(r, e);
    r->allocs = life_new(alloc_changed, r);
    r->streams = life_new(stream_changed, r);
    r->modules = modules_new();
    r->activities = activities_new();
    if (rc == SQLITE_OK && r->allocs && r->streams && r->modules && r->activities) return 0;
    snprintf(r->message, sizeof r->message, "%.300s: %s", path, sqlite3_errstr(rc ? rc : SQLITE_NOMEM));
    return -1;
}

void rows_close(struct rows *r) {
    for (int i = 0; i < ROWS_STMTS; i++) sqlite3_finalize(r->stmt[i]);
    for (int e = 0; e < ACCT_EV_COUNT; e++) sqlite3_finalize(r->detail[e]);
    memset(r->stmt, 0, sizeof r->stmt);
    memset(r->detail, 0, sizeof r->detail);
    if (r->db && sqlite3_get_autocommit(r->db) == 0) sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    life_delete(r->allocs);
    life_delete(r->streams);
    r->allocs = r->streams = NULL;
    modules_delete(r->modules);
    activities_delete(r->activities);
    r->modules = NULL;
    r->activities = NULL;
}

int rows_begin(struct rows *r) {
    if (r->in_transaction || r->stopped) return 0;
    int rc = sqlite3_step(r->stmt[ROWS_BEGIN]);
    sqlite3_reset(r->stmt[ROWS_BEGIN]);
    if (rc == SQLITE_DONE)
        r->in_transaction = 1;
    else if ((rc & 0xff) == SQLITE_BUSY)
        return 1;
    else
        stop(r, "disk", sqlite3_errstr(rc));
    return 0;
}

static uint64_t size_of(const char *path, const char *suffix) {
    char name[4200];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &st) ? 0 : (uint64_t)st.st_size;
}

static void check_size(struct rows *r) {
    char line[160];
    if (!r->max_bytes || size_of(r->path, "") + size_of(r->path, "-wal") < r->max_bytes) return;
    snprintf(line, sizeof line, "the limit of %llu bytes (ACCT_MAX_BYTES) is reached",
             (unsigned long long)r->max_bytes);
    stop(r, "size limit", line);
}

int rows_commit(struct rows *r) {
    if (!r->in_transaction) return 0;
    int rc = sqlite3_step(r->stmt[ROWS_COMMIT]);
    sqlite3_reset(r->stmt[ROWS_COMMIT]);
    if ((rc & 0xff) == SQLITE_BUSY) return 1;
    if (rc != SQLITE_DONE) {
        stop(r, "disk", sqlite3_errstr(rc));
        return 0;
    }
    r->in_transaction = 0;
    r->pending = r->rows = 0;
    check_size(r);
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* op.act, op.bytes and op.object as schema.sql describes them. */
struct summary {
    const char *act;
    int64_t bytes;
    uint64_t object; /* 0: none */
};

#define AS(rec, n) ((const struct acct_ev_##n *)(const void *)(rec)->u.bytes)

static struct summary summarize(const struct ring_record *rec) {
    struct summary s = {NULL, ACCT_NULL_I64, 0};
    switch (rec->u.hdr.event) {
    case ACCT_EV_ALLOC:
        s.bytes = AS(rec, alloc)->bytes;
        s.object = AS(rec, alloc)->address;
        break;
    case ACCT_EV_FREE:
        s.object = AS(rec, free)->address;
        break;
    case ACCT_EV_COPY:
        s.bytes = AS(rec, copy)->bytes;
        s.act = event_enum_text(EVENT_T_e_direction, AS(rec, copy)->direction);
        break;
    case ACCT_EV_MEMSET:
        s.bytes = AS(rec, memset)->bytes;
        break;
    case ACCT_EV_STREAM:
        s.act = event_enum_text(EVENT_T_e_stream_act, AS(rec, stream)->act);
        s.object = AS(rec, stream)->event;
        break;
    case ACCT_EV_EVENT:
        s.act = event_enum_text(EVENT_T_e_event_act, AS(rec, event)->act);
        s.object = AS(rec, event)->event;
        break;
    case ACCT_EV_SYNC:
        s.act = event_enum_text(EVENT_T_e_sync_scope, AS(rec, sync)->scope);
        s.object = AS(rec, sync)->event;
        break;
    case ACCT_EV_WORKSPACE:
        s.bytes = AS(rec, workspace)->bytes;
        s.object = AS(rec, workspace)->address;
        break;
    default:
        break;
    }
    return s;
}

static void insert_op(struct rows *r, const struct rows_ring *ring, const struct ring_record *rec, int64_t id) {
    const struct acct_rec *h = &rec->u.hdr;
    struct summary sum = summarize(rec);
    sqlite3_stmt *s = r->stmt[ROWS_OP];
    sqlite3_bind_int64(s, 1, id);
    bind_id(s, 2, ring->thread);
    sqlite3_bind_int64(s, 3, h->api);
    bind_constant(s, 4, event_table[h->event].name);
    bind_constant(s, 5, sum.act);
    bind_i32(s, 6, h->device);
    if (h->stream == ACCT_NO_STREAM)
        sqlite3_bind_null(s, 7);
    else
        sqlite3_bind_int64(s, 7, (int64_t)h->stream);
    sqlite3_bind_int64(s, 8, (int64_t)h->start_ns);
    sqlite3_bind_int64(s, 9, (int64_t)h->end_ns);
    sqlite3_bind_int(s, 10, h->status);
    bind_i64(s, 11, sum.bytes);
    bind_id(s, 12, (int64_t)sum.object);
    rows_step(r, s);
}

static void insert_detail(struct rows *r, const struct ring_record *rec, int64_t id, int64_t op) {
    sqlite3_stmt *s = r->detail[rec->u.hdr.event];
    int first = 1;
    sqlite3_bind_int64(s, first++, id);
    if (rec->u.hdr.event == ACCT_EV_GEMM) sqlite3_bind_int64(s, first++, op);
    bind_fields(s, first, rec);
    rows_step(r, s);
}

static void add_alloc(struct rows *r, const struct ring_record *rec, int64_t id) {
    const struct acct_ev_alloc *a = AS(rec, alloc);
    if (a->hdr.status || !a->address || a->bytes <= 0) return;
    sqlite3_stmt *s = r->stmt[ROWS_ALLOC];
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_int64(s, 2, (int64_t)a->address);
    sqlite3_bind_int64(s, 3, a->bytes);
    bind_enum(s, 4, EVENT_T_e_memory, a->memory);
    bind_i32(s, 5, a->hdr.device);
    if (a->hdr.stream == ACCT_NO_STREAM)
        sqlite3_bind_null(s, 6);
    else
        sqlite3_bind_int64(s, 6, (int64_t)a->hdr.stream);
    sqlite3_bind_int64(s, 7, (int64_t)a->hdr.end_ns);
    if (rows_step(r, s) == 0) life_birth(r->allocs, a->address, a->hdr.end_ns, id);
}

static void end_alloc(struct rows *r, const struct ring_record *rec, int64_t id) {
    const struct acct_ev_free *f = AS(rec, free);
    if (f->hdr.status == 0 && f->address) life_death(r->allocs, f->address, f->hdr.start_ns, id);
}

static void change_stream(struct rows *r, const struct ring_record *rec, int64_t id) {
    const struct acct_ev_stream *e = AS(rec, stream);
    if (e->hdr.status || e->hdr.stream == ACCT_NO_STREAM) return;
    if (e->act == ACCT_stream_act_DESTROY) life_death(r->streams, e->hdr.stream, e->hdr.start_ns, id);
    if (e->act != ACCT_stream_act_CREATE) return;
    sqlite3_stmt *s = r->stmt[ROWS_STREAM];
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_int64(s, 2, (int64_t)e->hdr.stream);
    bind_i32(s, 3, e->hdr.device);
    sqlite3_bind_int64(s, 4, e->flags);
    bind_i32(s, 5, e->priority);
    sqlite3_bind_int64(s, 6, (int64_t)e->hdr.end_ns);
    if (rows_step(r, s) == 0) life_birth(r->streams, e->hdr.stream, e->hdr.end_ns, id);
}

static void call(struct rows *r, struct rows_ring *ring, const struct ring_record *rec) {
    int64_t id = r->next_id++;
    enum acct_event event = rec->u.hdr.event;
    int continues = (rec->u.hdr.flags & ACCT_REC_CONTINUES) && event == ACCT_EV_GEMM && ring->last_op;
    r->pending++;
    if (!continues) {
        ring->last_op = id;
        ring->last_ns = rec->u.hdr.start_ns;
        insert_op(r, ring, rec, id);
    }
    if (r->detail[event]) insert_detail(r, rec, id, ring->last_op);
    if (event == ACCT_EV_ALLOC) add_alloc(r, rec, id);
    if (event == ACCT_EV_FREE) end_alloc(r, rec, id);
    if (event == ACCT_EV_STREAM) change_stream(r, rec, id);
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

void rows_process(struct rows *r, int64_t pid, uint64_t start_ns) {
    sqlite3_stmt *s = r->stmt[ROWS_PROCESS];
    sqlite3_clear_bindings(s);
    sqlite3_bind_int64(s, 1, pid);
    sqlite3_bind_int64(s, 3, (int64_t)start_ns);
    rows_step(r, s);
}

static void process(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_process *p = AS(rec, process);
    sqlite3_stmt *s = r->stmt[ROWS_PROCESS];
    bind_i64(s, 1, p->pid);
    bind_i64(s, 2, p->ppid);
    sqlite3_bind_int64(s, 3, (int64_t)p->hdr.start_ns);
    bind_text(s, 4, &rec->texts[0]); /* texts in the order of the fields: exe, argv, cwd, environment */
    bind_text(s, 5, &rec->texts[2]);
    bind_json(s, 6, &rec->texts[1], text_json_array);
    bind_json(s, 7, &rec->texts[3], text_json_object);
    if (rows_step(r, s) || !p->utc_ns) return;
    store_meta_set_int(r->db, "start_mono_ns", (int64_t)p->hdr.start_ns);
    store_meta_set_int(r->db, "start_utc_ns", (int64_t)p->utc_ns);
}

static void thread(struct rows *r, struct rows_ring *ring, const struct ring_record *rec) {
    sqlite3_stmt *s = r->stmt[ROWS_THREAD];
    bind_fields(s, 1, rec);
    sqlite3_bind_int64(s, 3, (int64_t)rec->u.hdr.start_ns);
    ring->thread = rows_step(r, s) ? 0 : sqlite3_last_insert_rowid(r->db);
    ring->last_op = 0;
}

/* The call that found no memory is the one before, unless its record was lost. */
static void meminfo(struct rows *r, const struct rows_ring *ring, const struct ring_record *rec) {
    const struct acct_ev_meminfo *m = AS(rec, meminfo);
    sqlite3_stmt *s = r->stmt[ROWS_MEMINFO];
    sqlite3_bind_int64(s, 1, (int64_t)m->hdr.start_ns);
    bind_enum(s, 2, EVENT_T_e_meminfo_why, m->why);
    bind_id(s, 3, m->call_ns && m->call_ns == ring->last_ns ? ring->last_op : 0);
    bind_i32(s, 4, m->device);
    bind_i64(s, 5, m->free_bytes);
    bind_i64(s, 6, m->total_bytes);
    bind_id(s, 7, (int64_t)m->pool);
    bind_i64(s, 8, m->pool_reserved_bytes);
    bind_i64(s, 9, m->pool_used_bytes);
    rows_step(r, s);
}

/* A ring's next owner may tell what was booked from the header when the one before it retired. */
static void lost(struct rows *r, struct rows_ring *ring, const struct ring_record *rec) {
    const struct acct_ev_lost *l = AS(rec, lost);
    if (l->records <= 0) return;
    ring->lost_told += (uint64_t)l->records;
    if (ring->lost_told <= ring->lost_booked) return;
    int64_t more = (int64_t)(ring->lost_told - ring->lost_booked);
    if (rows_lost(r, ring->thread, more, 0, l->first_ns, l->last_ns, "ring full") == 0)
        ring->lost_booked = ring->lost_told;
}

void rows_lost_residue(struct rows *r, struct rows_ring *ring, uint64_t records, uint64_t texts) {
    uint64_t more = records > ring->lost_booked ? records - ring->lost_booked : 0;
    uint64_t more_texts = texts > ring->texts_booked ? texts - ring->texts_booked : 0;
    if (!more && !more_texts) return;
    if (rows_lost(r, ring->thread, (int64_t)more, (int64_t)more_texts, 0, 0, "ring full")) return;
    ring->lost_booked += more;
    ring->texts_booked += more_texts;
}

int rows_lost(struct rows *r, int64_t thread_id, int64_t records, int64_t texts, uint64_t first_ns, uint64_t last_ns,
              const char *reason) {
    sqlite3_stmt *s = r->stmt[ROWS_LOST];
    bind_id(s, 1, thread_id);
    bind_i64(s, 2, records < 0 ? ACCT_NULL_I64 : records);
    bind_i64(s, 3, texts < 0 ? ACCT_NULL_I64 : texts);
    bind_id(s, 4, (int64_t)first_ns);
    bind_id(s, 5, (int64_t)last_ns);
    bind_constant(s, 6, reason);
    return rows_step(r, s);
}

void rows_process_end(struct rows *r, uint64_t end_ns, const char *reason, int exit_code) {
    sqlite3_stmt *s = r->stmt[ROWS_PROCESS_END];
    bind_id(s, 1, (int64_t)end_ns);
    bind_constant(s, 2, reason);
    bind_i32(s, 3, exit_code < 0 ? ACCT_NULL_I32 : exit_code);
    rows_step(r, s);
}

static void fact(struct rows *r, struct rows_ring *ring, const struct ring_record *rec) {
    switch (rec->u.hdr.event) {
    case ACCT_EV_PROCESS:
        process(r, rec);
        break;
    case ACCT_EV_THREAD:
        thread(r, ring, rec);
        break;
    case ACCT_EV_API:
        bind_fields(r->stmt[ROWS_API], 1, rec);
        rows_step(r, r->stmt[ROWS_API]);
        break;
    case ACCT_EV_DEVICE:
        bind_fields(r->stmt[ROWS_DEVICE], 1, rec);
        rows_step(r, r->stmt[ROWS_DEVICE]);
        break;
    case ACCT_EV_MEMINFO:
        meminfo(r, ring, rec);
        break;
    case ACCT_EV_LOST:
        lost(r, ring, rec);
        break;
    case ACCT_EV_MODULE:
    case ACCT_EV_MODULE_PART:
    case ACCT_EV_KERNEL:
        modules_record(r, rec);
        break;
    case ACCT_EV_CUPTI:
    case ACCT_EV_NAME:
    case ACCT_EV_CORRELATION:
    case ACCT_EV_ACTIVITY:
        activities_record(r, rec);
        break;
    default:
        break;
    }
}

void rows_record(struct rows *r, struct rows_ring *ring, struct ring_record *rec) {
    int is_call = event_table[rec->u.hdr.event].class == EVENT_CLASS_OP;
    r->rows++;
    if (r->stopped) {
        if (!is_call) return;
        if (!r->dropped++) r->dropped_first_ns = rec->u.hdr.start_ns;
        r->dropped_last_ns = rec->u.hdr.start_ns;
        return;
    }
    if (is_call)
        call(r, ring, rec);
    else
        fact(r, ring, rec);
}
