/* The trace file: a SQLite database with the tables of trace/schema.sql. Shared by the collector (writes the recorded
 * tables) and the analyzer (reads them, writes the analysed ones). Errors: a negative code and one line in `err` that
 * names the file, what is wrong and what to do. */
#ifndef ACCT_TRACE_STORE_H
#define ACCT_TRACE_STORE_H

#include <stddef.h>
#include <sqlite3.h>

#define STORE_SCHEMA_VERSION 1

enum store_error {
    STORE_EIO = -1,      /* cannot be opened, read or written (missing, permissions, full disk) */
    STORE_ENOTRACE = -2, /* no trace: not SQLite, or none of ours, or truncated so that SQLite cannot read it */
    STORE_ENEWER = -3,   /* written by a newer acct: schema_version above STORE_SCHEMA_VERSION */
    STORE_EEXISTS = -4,  /* store_create: the file exists */
};

/* Creates the file (never replaces one unless `force`), with all tables, state = running. WAL where the file system
 * allows it, else a rollback journal. */
int store_create(sqlite3 **db, const char *path, int force, char *err, size_t err_len);

/* Makes the indexes that are missing: when recording ends, since keeping them up to date would slow it. A trace without
 * them (its collector was killed) reads right, but slower. */
int store_make_indexes(sqlite3 *db);

/* Opens an existing trace and checks what it is. write != 0: for analysed tables and meta. A trace whose writer died
 * (state still running, a -wal beside it) is recovered by opening it for writing where the folder allows that. The
 * connection has no mutex: one thread at a time. */
int store_open(sqlite3 **db, const char *path, int write, char *err, size_t err_len);

/* Brings the tables and views of an older trace up to this version's: what is missing is added, empty or NULL; rows
 * stay as they are. Before an analysis, in the caller's transaction. */
int store_upgrade(sqlite3 *db);

/* meta, by key. store_meta_text returns a malloc'ed copy or NULL where the key is absent. */
int store_meta_set_text(sqlite3 *db, const char *key, const char *value);
int store_meta_set_int(sqlite3 *db, const char *key, sqlite3_int64 value);
char *store_meta_text(sqlite3 *db, const char *key);
int store_meta_int(sqlite3 *db, const char *key, sqlite3_int64 *value); /* 0 found, 1 absent, < 0 error */

#endif
