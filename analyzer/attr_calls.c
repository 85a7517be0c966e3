/* Reads op: the calls that touch memory or compute; counts all of them. */
#include "analyzer/attr_rows.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_scan.h"
#include "analyzer/attr_sql.h"

/* -1: a call that moves and computes nothing. */
static int kind_of(const char *text) {
    if (!strcmp(text, "launch") || !strcmp(text, "blas") || !strcmp(text, "collective")) return AT_KERNEL;
    if (!strcmp(text, "gemm")) return AT_GEMM;
    if (!strcmp(text, "copy")) return AT_D2D; /* settled when the addresses are known */
    if (!strcmp(text, "memset")) return AT_MEMSET;
    return strcmp(text, "workspace") ? -1 : AT_HANDED;
}

static int call_of(const char *text) {
    static const char *const names[] = {[AT_CALL_LAUNCH] = "launch",
                                        [AT_CALL_GEMM] = "gemm",
                                        [AT_CALL_BLAS] = "blas",
                                        [AT_CALL_COPY] = "copy",
                                        [AT_CALL_MEMSET] = "memset"};
    for (int i = 0; i < AT_CALL_OTHER; i++)
        if (!strcmp(text, names[i])) return i;
    return AT_CALL_OTHER;
}

enum { KINDS = 32 };
struct calls {
    struct rows *r;
    struct call_kind {
        char text[24];
        int8_t kind, call; /* kind -1: see kind_of */
        int64_t calls, failed;
    } kind[KINDS];
    int kinds, too_many;
    int64_t last; /* op */
    int unordered;
};

static struct call_kind *kind_named(struct calls *c, const char *text) {
    static struct call_kind unknown;
    for (int i = 0; i < c->kinds; i++)
        if (*c->kind[i].text == *text && !strcmp(c->kind[i].text, text)) return &c->kind[i];
    if (c->kinds == KINDS || strlen(text) >= sizeof unknown.text) { /* a damaged table */
        c->too_many = 1;
        unknown.kind = -1;
        return &unknown;
    }
    struct call_kind *k = &c->kind[c->kinds++];
    strcpy(k->text, text);
    k->kind = (int8_t)kind_of(text);
    k->call = (int8_t)call_of(text);
    return k;
}

enum { ID, PROCESS, THREAD, API, KIND, DEVICE, START, END, STATUS };
static const char columns[] = "id, process, thread, api, kind, device, start_ns, end_ns, status";

static void take_call(void *context, sqlite3_value **v) {
    struct calls *c = context;
    struct rows *r = c->r;
    int status = sqlite3_value_int(v[STATUS]);
    const char *text = scan_text(v[KIND]);
    struct call_kind *k = kind_named(c, text ? text : "");
    k->calls++;
    k->failed += status != 0;
    r->no_memory_calls += status == 2 || status == 3;
    if (status || k->kind < 0) return;
    int64_t op = sqlite3_value_int64(v[ID]);
    POOL_ROOM(r->pool, r->row, r->rows, r->row_room);
    r->row[r->rows++] = (struct row){.library = k->kind == AT_GEMM || k->call == AT_CALL_BLAS,
                                     .kind = k->kind,
                                     .call = k->call,
                                     .op = op,
                                     .process = scan_i32(v[PROCESS]),
                                     .thread = scan_i32(v[THREAD]),
                                     .name = sqlite3_value_int(v[API]),
                                     .device = scan_i32(v[DEVICE]),
                                     .start_ns = sqlite3_value_int64(v[START]),
                                     .end_ns = sqlite3_value_int64(v[END]),
                                     .shape = -1};
    c->unordered |= op <= c->last;
    c->last = op;
}

static int by_op(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return (x->op > y->op) - (x->op < y->op);
}

static int write_sums(const struct calls *c, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    if (c->too_many) return 0;
    if (sql_prepare(db, &st, "INSERT INTO call_sum(kind, calls, failed) VALUES(?, ?, ?)", err, err_len)) return -1;
    int rc = 0;
    for (int i = 0; i < c->kinds && !rc; i++) {
        sqlite3_bind_text(st, 1, c->kind[i].text, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 2, c->kind[i].calls);
        sqlite3_bind_int64(st, 3, c->kind[i].failed);
        rc = sql_insert(db, st, err, err_len);
    }
    sqlite3_finalize(st);
    return rc;
}

int rows_read_calls(struct rows *r, sqlite3 *db, char *err, size_t err_len) {
    struct calls c = {.r = r, .last = INT64_MIN};
    if (scan_rows(r->pool, db, columns, "op NOT INDEXED", take_call, &c, err, err_len)) return -1;
    if (c.unordered) qsort(r->row, (size_t)r->rows, sizeof *r->row, by_op);
    return write_sums(&c, db, err, err_len);
}

struct row *row_find(const struct rows *r, int64_t op, int32_t *last) {
    int32_t lo = 0, hi = r->rows;
    for (int32_t i = *last, n = 0; i < r->rows && n < 64; i++, n++)
        if (r->row[i].op == op) return &r->row[*last = i];
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (r->row[mid].op < op)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == r->rows || r->row[lo].op != op) return NULL;
    return &r->row[*last = lo];
}
