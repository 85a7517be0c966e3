#include "trace/store.h"
#include "trace/event_table.h"
#include "store_schema.h" /* made from schema.sql: store_schema_sql, store_index_sql */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 2000
#define PATH_BYTES 4096

static int fail(char *err, size_t err_len, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err, err_len, format, args);
    va_end(args);
    return code;
}

static int exec_sql(sqlite3 *db, const char *sql) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

static const char *column_type(enum event_type type) {
    if (type == EVENT_T_text || type >= EVENT_T_FIRST_ENUM) return "TEXT";
    if (type == EVENT_T_bytes) return "BLOB";
    return type == EVENT_T_f64 ? "REAL" : "INTEGER";
}

/* The table of an event's fields. A grouped GEMM is one op and several rows, so gemm has an id of its own. */
static int create_detail_table(sqlite3 *db, enum acct_event event) {
    const struct event_info *info = &event_table[event];
    const char *key = event == ACCT_EV_GEMM ? "id INTEGER PRIMARY KEY, op INTEGER REFERENCES op(id)"
                                            : "op INTEGER PRIMARY KEY REFERENCES op(id)";
    sqlite3_str *sql = sqlite3_str_new(db);
    sqlite3_str_appendf(sql, "CREATE TABLE \"%w\"(%s", info->name, key);
    for (uint32_t i = 0; i < info->field_count; i++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", info->fields[i].name, column_type(info->fields[i].type));
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    int rc = text ? exec_sql(db, text) : SQLITE_NOMEM;
    sqlite3_free(text);
    return rc;
}

static int create_tables(sqlite3 *db) {
    int rc = exec_sql(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK) rc = exec_sql(db, store_schema_sql);
    for (int event = 0; event < ACCT_EV_COUNT && rc == SQLITE_OK; event++)
        if (event_has_table(event)) rc = create_detail_table(db, event);
    if (rc == SQLITE_OK && store_meta_set_int(db, "schema_version", STORE_SCHEMA_VERSION)) rc = SQLITE_ERROR;
    if (rc == SQLITE_OK && store_meta_set_text(db, "state", "running")) rc = SQLITE_ERROR;
    if (rc == SQLITE_OK) rc = exec_sql(db, "COMMIT");
    return rc;
}

int store_make_indexes(sqlite3 *db) {
    int rc = exec_sql(db, store_index_sql);
    if (rc == SQLITE_OK)
        rc = exec_sql(db, "CREATE INDEX IF NOT EXISTS gemm_op ON gemm(op)"); /* no table of schema.sql */
    return rc == SQLITE_OK ? 0 : STORE_EIO;
}

/* WAL needs memory shared between the processes that have the file open, which network file systems do not give. */
static int wal_possible(const char *path) {
    struct statfs fs;
    if (statfs(path, &fs)) return 0;
    switch ((unsigned)fs.f_type) {
    case 0x6969:     /* NFS */
    case 0x517b:     /* SMB */
    case 0xff534d42: /* CIFS */
    case 0xfe534d42: /* SMB2 */
    case 0x01021997: /* 9p */
    case 0x65735546: /* FUSE: sshfs and the like */
    case 0x0bd00bd0: /* Lustre */
    case 0x47504653: /* GPFS */
    case 0x19830326: /* BeeGFS */
    case 0x00c36400: /* Ceph */
    case 0x5346414f: /* AFS */
    case 0x786f4256: /* VirtualBox shared folders */
        return 0;
    default:
        return 1;
    }
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static void remove_with_suffix(const char *path, const char *suffix) {
    char name[PATH_BYTES + 16];
    int n = snprintf(name, sizeof name, "%s%s", path, suffix);
    if (n > 0 && (size_t)n < sizeof name) unlink(name);
}

/* What an earlier database left behind would be taken for the new one's. */
static void remove_side_files(const char *path) {
    remove_with_suffix(path, "-wal");
    remove_with_suffix(path, "-shm");
    remove_with_suffix(path, "-journal");
}

static int cannot_create(const char *path, char *err, size_t err_len) {
    int e = errno;
    if (e == EEXIST)
        return fail(err, err_len, STORE_EEXISTS,
                    "%s exists: choose another name (-o FILE or ACCT_OUTPUT), or replace it (--force or ACCT_FORCE=on)",
                    path);
    const char *hint = e == EACCES || e == EROFS || e == EPERM
                           ? "choose a folder that you may write to (-o FILE or ACCT_OUTPUT)"
                       : e == ENOENT                ? "create the folder first"
                       : e == ENOSPC || e == EDQUOT ? "make room, or choose another folder (-o FILE or ACCT_OUTPUT)"
                                                    : "choose another name (-o FILE or ACCT_OUTPUT)";
    return fail(err, err_len, STORE_EIO, "%s cannot be created (%s): %s", path, strerror(e), hint);
}

/* The file, empty and new: O_EXCL, so that nobody else's is ever taken over. */
static int create_file(const char *path, int force, char *err, size_t err_len) {
    struct stat st;
    if (strlen(path) >= PATH_BYTES)
        return fail(err, err_len, STORE_EIO,
                    "%.64s…: the name is too long: choose a shorter one (-o FILE or ACCT_OUTPUT)", path);
    if (force && lstat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return fail(
                err, err_len, STORE_EEXISTS,
                "%s is not a regular file and will not be replaced: choose another name (-o FILE or ACCT_OUTPUT)",
                path);
        if (unlink(path)) return cannot_create(path, err, err_len);
    }
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return cannot_create(path, err, err_len);
    close(fd);
    remove_side_files(path);
    return 0;
}

static int configure(sqlite3 *db, const char *path) {
    sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
    int rc = exec_sql(db, wal_possible(path) ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE");
    if (rc == SQLITE_OK)
        rc = exec_sql(db, "PRAGMA synchronous=NORMAL; PRAGMA cache_size=-32768; PRAGMA temp_store=MEMORY");
    return rc;
}

int store_create(sqlite3 **db, const char *path, int force, char *err, size_t err_len) {
    *db = NULL;
    int rc = create_file(path, force, err, err_len);
    if (rc) return rc;
    rc = sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE, NULL);
    if (rc == SQLITE_OK) rc = configure(*db, path);
    if (rc == SQLITE_OK) rc = create_tables(*db);
    if (rc == SQLITE_OK) return 0;
    fail(err, err_len, STORE_EIO, "%s cannot be written (%s): %s", path, sqlite3_errstr(rc),
         (rc & 0xff) == SQLITE_FULL ? "make room, or choose another folder (-o FILE or ACCT_OUTPUT)"
                                    : "choose another folder (-o FILE or ACCT_OUTPUT)");
    sqlite3_close(*db);
    *db = NULL;
    unlink(path); /* ours, created a moment ago */
    remove_side_files(path);
    return STORE_EIO;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int has_wal(const char *path) {
    char name[PATH_BYTES + 16];
    struct stat st;
    snprintf(name, sizeof name, "%s-wal", path);
    return stat(name, &st) == 0 && st.st_size > 0;
}

/* What a transaction that was cut off had changed: the file is whole only once SQLite has put it back from there. */
static int has_journal(const char *path) {
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    unsigned char head[8];
    char name[PATH_BYTES + 16];
    snprintf(name, sizeof name, "%s-journal", path);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, head, sizeof head);
    close(fd);
    return n == sizeof head && !memcmp(head, magic, sizeof magic);
}

static uint32_t big_endian(const unsigned char *p, int bytes) {
    uint32_t v = 0;
    while (bytes--) v = v << 8 | *p++;
    return v;
}

/* Looks at the 100 bytes that head every SQLite file, before SQLite does: it gives the better reasons. */
static int check_file(const char *path, char *err, size_t err_len) {
    unsigned char head[100];
    struct stat st;
    if (strlen(path) >= PATH_BYTES) return fail(err, err_len, STORE_EIO, "%.64s…: the name is too long", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(err, err_len, STORE_EIO, "%s cannot be opened (%s): check the name and its permissions", path,
                    strerror(errno));
    int stat_failed = fstat(fd, &st);
    if (!stat_failed && S_ISDIR(st.st_mode)) {
        close(fd);
        return fail(err, err_len, STORE_ENOTRACE, "%s is a folder: name a trace in it (acct-PID.db)", path);
    }
    ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    if (n < 0 || stat_failed) return fail(err, err_len, STORE_EIO, "%s cannot be read (%s)", path, strerror(errno));
    if (n == 0) return fail(err, err_len, STORE_ENOTRACE, "%s is empty, not a trace: record one with acct run", path);
    if (n < (ssize_t)sizeof head || memcmp(head, "SQLite format 3", 16))
        return fail(err, err_len, STORE_ENOTRACE, "%s is not a trace (no SQLite database): record one with acct run",
                    path);
    int64_t page = big_endian(head + 16, 2);
    int64_t expected = (page == 1 ? 65536 : page) * (int64_t)big_endian(head + 28, 4);
    if (st.st_size < expected && !has_wal(path) && !has_journal(path))
        return fail(err, err_len, STORE_ENOTRACE,
                    "%s is truncated (%lld of %lld bytes): copy it again, or record a new one", path,
                    (long long)st.st_size, (long long)expected);
    return 0;
}

/* A URI, for ?immutable=1: what may not stand in one is escaped. */
static void immutable_uri(const char *path, char *uri, size_t len) {
    size_t n = (size_t)snprintf(uri, len, "file:");
    for (; *path && n + 16 < len; path++) {
        if (strchr("?#%", *path))
            n += (size_t)snprintf(uri + n, len - n, "%%%02X", (unsigned char)*path);
        else
            uri[n++] = *path;
    }
    snprintf(uri + n, len - n, "?immutable=1");
}

/* Opens, and reads something, since SQLite opens lazily. A connection is one thread's at a time: without SQLite's mutex
 * each column of each row costs a tenth less. */
static int try_open(sqlite3 **db, const char *name, int flags) {
    int rc = sqlite3_open_v2(name, db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(*db, BUSY_TIMEOUT_MS);
        rc = exec_sql(*db, "PRAGMA cache_size=-32768; SELECT count(*) FROM sqlite_master");
    }
    if (rc != SQLITE_OK) {
        sqlite3_close(*db);
        *db = NULL;
    }
    return rc;
}

/* Reading a database in WAL mode writes too (the -shm file, recovery): in turn as reader, as writer, and, where the
 * folder is read-only and no -wal holds rows, as a file that nobody changes. */
static int open_reading(sqlite3 **db, const char *path, char *err, size_t err_len) {
    char uri[3 * PATH_BYTES + 32];
    int rc = try_open(db, path, SQLITE_OPEN_READONLY);
    if (rc == SQLITE_OK) return 0;
    if ((rc & 0xff) == SQLITE_NOTADB)
        return fail(err, err_len, STORE_ENOTRACE, "%s is not a trace (no SQLite database): record one with acct run",
                    path);
    if (try_open(db, path, SQLITE_OPEN_READWRITE) == SQLITE_OK) return 0;
    if (has_wal(path) || has_journal(path))
        return fail(
            err, err_len, STORE_EIO,
            "%s has a -%s file beside it, and its folder is read-only: copy both to a folder that you may write to",
            path, has_wal(path) ? "wal" : "journal");
    immutable_uri(path, uri, sizeof uri);
    if (try_open(db, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI) == SQLITE_OK) return 0;
    return fail(err, err_len, (rc & 0xff) == SQLITE_CORRUPT ? STORE_ENOTRACE : STORE_EIO,
                "%s cannot be read (%s): record a new one", path, sqlite3_errstr(rc));
}

static int open_writing(sqlite3 **db, const char *path, char *err, size_t err_len) {
    int rc = try_open(db, path, SQLITE_OPEN_READWRITE);
    if (rc == SQLITE_OK && sqlite3_db_readonly(*db, "main") == 1) {
        sqlite3_close(*db);
        *db = NULL;
        rc = SQLITE_READONLY;
    }
    if (rc == SQLITE_OK) return exec_sql(*db, "PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY") ? STORE_EIO : 0;
    int kind = rc & 0xff;
    if (kind == SQLITE_NOTADB || kind == SQLITE_CORRUPT)
        return fail(err, err_len, STORE_ENOTRACE, "%s is damaged or no trace (%s): record a new one", path,
                    sqlite3_errstr(rc));
    return fail(err, err_len, STORE_EIO,
                "%s cannot be opened for writing (%s): copy it to a folder that you may write to", path,
                sqlite3_errstr(rc));
}

static int check_version(sqlite3 *db, const char *path, char *err, size_t err_len) {
    sqlite3_int64 version;
    int rc = store_meta_int(db, "schema_version", &version);
    if (rc)
        return fail(err, err_len, STORE_ENOTRACE,
                    "%s is not a trace of acct (a SQLite database without meta.schema_version)", path);
    if (version > STORE_SCHEMA_VERSION)
        return fail(err, err_len, STORE_ENEWER,
                    "%s was written by a newer acct (schema %lld, this one reads up to %d): update acct", path,
                    (long long)version, STORE_SCHEMA_VERSION);
    return 0;
}

int store_open(sqlite3 **db, const char *path, int write, char *err, size_t err_len) {
    *db = NULL;
    int rc = check_file(path, err, err_len);
    if (!rc) rc = write ? open_writing(db, path, err, err_len) : open_reading(db, path, err, err_len);
    if (!rc) rc = check_version(*db, path, err, err_len);
    if (rc) {
        sqlite3_close(*db);
        *db = NULL;
    }
    return rc;
}

/* ---- upgrading --------------------------------------------------------------------------------------------------- */

static int exec_format(sqlite3 *db, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    int rc = sql ? exec_sql(db, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

/* Has `db` that table (column NULL) or that column of it? */
static int has(sqlite3 *db, const char *table, const char *column) {
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(db, "SELECT 1 FROM pragma_table_info(?1) WHERE ?2 IS NULL OR name = ?2", -1, &stmt, NULL))
        return 0;
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, column, -1, SQLITE_STATIC);
    int found = sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    return found;
}

static int add_columns(sqlite3 *db, sqlite3 *fresh, const char *table) {
    sqlite3_stmt *stmt;
    int rc = sqlite3_prepare_v2(fresh, "SELECT name, type FROM pragma_table_info(?)", -1, &stmt, NULL);
    if (rc) return rc;
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        if (!has(db, table, name))
            rc = exec_format(db, "ALTER TABLE \"%w\" ADD COLUMN \"%w\" %s", table, name,
                             (const char *)sqlite3_column_text(stmt, 1));
    }
    sqlite3_finalize(stmt);
    return rc;
}

static int upgrade_one(sqlite3 *db, sqlite3 *fresh, const char *type, const char *name, const char *sql) {
    if (!strcmp(type, "table")) return has(db, name, NULL) ? add_columns(db, fresh, name) : exec_sql(db, sql);
    int rc = exec_format(db, "DROP %s IF EXISTS \"%w\"", type, name);
    return rc == SQLITE_OK ? exec_sql(db, sql) : rc;
}

static int is_table(sqlite3 *db, const char *name) {
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", -1, &stmt, NULL))
        return 0;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    int found = sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    return found;
}

/* op_buffer and op_cost were tables once. The former's rows become sets of the ops' own; the latter's are the
 * analysis', which comes now. */
static int upgrade_tables(sqlite3 *db) {
    int rc = SQLITE_OK;
    /* no RENAME: that reads all views and triggers, which may name what is not there yet */
    if (is_table(db, "op_buffer"))
        rc = exec_sql(db, "CREATE TABLE op_buffer_old AS SELECT * FROM op_buffer; DROP TABLE op_buffer");
    return rc == SQLITE_OK && is_table(db, "op_cost") ? exec_sql(db, "DROP TABLE op_cost") : rc;
}

static int take_over_buffers(sqlite3 *db) {
    if (!has(db, "op_buffer_old", NULL)) return SQLITE_OK;
    return exec_sql(db, "INSERT INTO op_buffer(op, slot, alloc, address, bytes, mode) SELECT op, slot, alloc, address, "
                        "bytes, mode FROM op_buffer_old; DROP TABLE op_buffer_old");
}

/* Compares with a trace made afresh, so that the schema stays said once. */
int store_upgrade(sqlite3 *db) {
    sqlite3 *fresh = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_open(":memory:", &fresh);
    if (rc == SQLITE_OK) rc = create_tables(fresh);
    if (rc == SQLITE_OK) rc = upgrade_tables(db);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(
            fresh,
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view', 'trigger') ORDER BY rowid", -1,
            &stmt, NULL);
    while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
        rc = upgrade_one(db, fresh, (const char *)sqlite3_column_text(stmt, 0),
                         (const char *)sqlite3_column_text(stmt, 1), (const char *)sqlite3_column_text(stmt, 2));
    sqlite3_finalize(stmt);
    sqlite3_close(fresh);
    if (rc == SQLITE_OK) rc = take_over_buffers(db);
    return rc == SQLITE_OK ? 0 : STORE_EIO;
}

/* ---- meta -------------------------------------------------------------------------------------------------------- */

static int meta_set(sqlite3 *db, const char *key, const char *text, sqlite3_int64 integer) {
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", -1, &stmt, NULL))
        return STORE_EIO;
    sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
    if (text)
        sqlite3_bind_text(stmt, 2, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_int64(stmt, 2, integer);
    int rc = sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? 0 : STORE_EIO;
}

int store_meta_set_text(sqlite3 *db, const char *key, const char *value) {
    return meta_set(db, key, value, 0);
}

int store_meta_set_int(sqlite3 *db, const char *key, sqlite3_int64 value) {
    return meta_set(db, key, NULL, value);
}

/* SQLITE_ROW with *stmt on the value, SQLITE_DONE if the key is absent. The caller finalizes *stmt. */
static int meta_find(sqlite3 *db, const char *key, sqlite3_stmt **stmt) {
    int rc = sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = ?", -1, stmt, NULL);
    if (rc) return rc;
    sqlite3_bind_text(*stmt, 1, key, -1, SQLITE_STATIC);
    return sqlite3_step(*stmt);
}

char *store_meta_text(sqlite3 *db, const char *key) {
    sqlite3_stmt *stmt = NULL;
    char *copy = NULL;
    if (meta_find(db, key, &stmt) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        copy = text ? strdup(text) : NULL;
    }
    sqlite3_finalize(stmt);
    return copy;
}

int store_meta_int(sqlite3 *db, const char *key, sqlite3_int64 *value) {
    sqlite3_stmt *stmt = NULL;
    int rc = meta_find(db, key, &stmt);
    if (rc == SQLITE_ROW) *value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? 1 : STORE_EIO;
}
