#include "analyzer/attr_sets.h"

#include <string.h>
#include "analyzer/attr_sql.h"

enum { KNOWN = 1 << 16 }; /* more than a step has different ops; the newer of two at one place stays */

/* A row as it is stored. Zeroed before it is filled: rows are compared as bytes. */
struct stored {
    int64_t alloc, before, address, bytes;
    int32_t slot, mode;
};

struct sets {
    struct pool *pool;
    const struct rows *rows;
    sqlite3 *db;
    sqlite3_stmt *row;
    char *err;
    size_t err_len;
    struct sets_row *added;
    int32_t n, room;
    struct stored *stored; /* of `added`; as much room */
    int32_t stored_room;
    int32_t last; /* number of the last set */
    struct known {
        uint64_t hash;
        struct stored *row;
        int32_t rows, buffers;
    } known[KNOWN];
};

int sets_open(struct sets **out, struct pool *pool, const struct rows *rows, sqlite3 *db, char *err, size_t err_len) {
    struct sets *s = *out = POOL_NEW(pool, struct sets, 1);
    s->pool = pool;
    s->rows = rows;
    s->db = db;
    s->err = err;
    s->err_len = err_len;
    return sql_prepare(db, &s->row,
                       "INSERT INTO buffer_set(buffers, slot, alloc, before, address, bytes, mode) "
                       "VALUES(?, ?, ?, ?, ?, ?, ?)",
                       err, err_len);
}

void sets_close(struct sets *s) {
    sqlite3_finalize(s->row);
    for (int i = 0; i < KNOWN; i++) pool_give(s->pool, s->known[i].row);
    pool_give(s->pool, s->added);
    pool_give(s->pool, s->stored);
    pool_give(s->pool, s);
}

void sets_add(struct sets *s, const struct sets_row *row) {
    POOL_ROOM(s->pool, s->added, s->n, s->room);
    s->added[s->n++] = *row;
}

/* An allocation that ends is named by its distance, which is the same in each step if the program does the same. */
static void store(struct sets *s, int64_t op) {
    if (s->stored_room < s->room)
        s->stored = pool_grow(s->pool, s->stored, (size_t)(s->stored_room = s->room), sizeof *s->stored);
    memset(s->stored, 0, (size_t)s->n * sizeof *s->stored);
    for (int32_t i = 0; i < s->n; i++) {
        const struct sets_row *a = &s->added[i];
        int far = a->alloc == ACCT_NULL_I64 || !a->released;
        s->stored[i].alloc = far ? a->alloc : ACCT_NULL_I64;
        s->stored[i].before = far ? ACCT_NULL_I64 : op - a->alloc;
        s->stored[i].address = a->address;
        s->stored[i].bytes = a->bytes;
        s->stored[i].slot = a->slot;
        s->stored[i].mode = a->mode;
    }
}

static int write_rows(struct sets *s, int64_t buffers) {
    static const char *const modes[] = {[AT_R] = "r", [AT_W] = "w", [AT_RW] = "rw", [AT_MAYBE] = "?"};
    char number[16];
    for (int32_t i = 0; i < s->n; i++) {
        const struct stored *r = &s->stored[i];
        sqlite3_bind_int64(s->row, 1, buffers);
        sqlite3_bind_text(s->row, 2, rows_slot_text(s->rows, (int16_t)r->slot, number), -1, SQLITE_TRANSIENT);
        sql_bind(s->row, 3, r->alloc);
        sql_bind(s->row, 4, r->before);
        sql_bind(s->row, 5, r->address);
        sql_bind(s->row, 6, r->bytes);
        sqlite3_bind_text(s->row, 7, modes[r->mode], -1, SQLITE_STATIC);
        if (sql_insert(s->db, s->row, s->err, s->err_len)) return -1;
    }
    return 0;
}

static uint64_t hash_of(const struct stored *row, int32_t n) {
    uint64_t h = (uint64_t)n;
    for (int32_t i = 0; i < n; i++) {
        const struct stored *r = &row[i];
        h = (h ^ (uint64_t)r->alloc ^ (uint64_t)r->before << 20) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 29 ^ (uint64_t)r->address) * 0xbf58476d1ce4e5b9u;
        h = (h ^ h >> 32 ^ (uint64_t)r->bytes << 16 ^ (uint64_t)(uint32_t)r->slot << 4 ^ (uint64_t)r->mode) *
            0x94d049bb133111ebu;
    }
    return h ^ h >> 31;
}

/* The number of the set with these rows; a new one is written. Negative: an error. */
static int32_t number_of(struct sets *s) {
    uint64_t hash = hash_of(s->stored, s->n);
    struct known *k = &s->known[hash % KNOWN];
    size_t bytes = (size_t)s->n * sizeof *s->stored;
    if (k->row && k->hash == hash && k->rows == s->n && !memcmp(k->row, s->stored, bytes)) return k->buffers;
    if (write_rows(s, ++s->last)) return -1;
    pool_give(s->pool, k->row);
    *k = (struct known){hash, POOL_NEW(s->pool, struct stored, s->n), s->n, s->last};
    memcpy(k->row, s->stored, bytes);
    return s->last;
}

/* A set of an op's own has the number -op. */
int sets_end(struct sets *s, int64_t op, int with_told, int32_t *set) {
    *set = with_told ? AT_OWN_SET : 0;
    if (!s->n) return 0;
    store(s, op);
    int rc = with_told ? write_rows(s, -op) : (*set = number_of(s)) < 0;
    s->n = 0;
    return rc ? -1 : 0;
}
