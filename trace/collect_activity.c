#include "trace/collect_activity.h"
#include "trace/collect_bind.h"
#include "trace/collect_rows.h"
#include "trace/collect_text.h"
#include "trace/store.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NAMES (1u << 20)
#define MOST_NAME_BYTES (64u << 20) /* of all names */
#define MOST_WAITING 65536u         /* rows whose name has not come: more keep none */

struct waiting {
    int64_t row;
    uint32_t name;
};

struct activities {
    char **names; /* by number; NULL: has not come */
    uint32_t capacity;
    uint64_t name_bytes;
    struct waiting *waiting;
    uint32_t waiting_count;
};

struct activities *activities_new(void) {
    return calloc(1, sizeof(struct activities));
}

void activities_delete(struct activities *a) {
    if (!a) return;
    for (uint32_t i = 0; i < a->capacity; i++) sqlite3_free(a->names[i]);
    free(a->names);
    free(a->waiting);
    free(a);
}

#define AS(rec, n) ((const struct acct_ev_##n *)(const void *)(rec)->u.bytes)

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char *name_of(const struct activities *a, uint32_t number) {
    return number < a->capacity ? a->names[number] : NULL;
}

/* Makes a place for `number`. 0: too many. */
static int make_place(struct activities *a, uint32_t number) {
    uint32_t capacity = a->capacity ? a->capacity : 256;
    if (number >= MOST_NAMES) return 0;
    while (capacity <= number) capacity *= 2;
    if (capacity == a->capacity) return 1;
    char **names = realloc(a->names, capacity * sizeof *names);
    if (!names) return 0;
    memset(names + a->capacity, 0, (capacity - a->capacity) * sizeof *names);
    a->names = names;
    a->capacity = capacity;
    return 1;
}

static void give_name(struct rows *r, int64_t row, const char *name) {
    sqlite3_stmt *s = r->stmt[ROWS_ACTIVITY_NAME];
    sqlite3_bind_int64(s, 1, row);
    sqlite3_bind_text(s, 2, name, -1, SQLITE_STATIC);
    rows_step(r, s);
}

static void give_name_to_waiting(struct rows *r, uint32_t number, const char *name) {
    struct activities *a = r->activities;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->waiting_count; i++) {
        if (a->waiting[i].name == number)
            give_name(r, a->waiting[i].row, name);
        else
            a->waiting[kept++] = a->waiting[i];
    }
    a->waiting_count = kept;
}

static void name(struct rows *r, const struct ring_record *rec) {
    struct activities *a = r->activities;
    uint32_t number = AS(rec, name)->number;
    const struct ring_text *t = &rec->texts[0];
    if (!number || !t->bytes || a->name_bytes + t->length > MOST_NAME_BYTES || !make_place(a, number)) return;
    if (a->names[number]) return; /* told twice */
    sqlite3_str *text = sqlite3_str_new(NULL);
    text_append_utf8(text, t->bytes, t->length);
    a->name_bytes += t->length;
    a->names[number] = sqlite3_str_finish(text);
    if (a->names[number] && a->waiting_count) give_name_to_waiting(r, number, a->names[number]);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The name is a constant of the process' life. */
static void bind_activity(sqlite3_stmt *s, const struct acct_ev_activity *e, const char *kernel) {
    bind_enum(s, 1, EVENT_T_e_activity, e->kind);
    bind_id(s, 2, e->correlation);
    bind_i32(s, 3, e->device);
    sqlite3_bind_int64(s, 4, e->context);
    sqlite3_bind_int64(s, 5, e->stream);
    bind_i64(s, 6, e->begin_ns);
    bind_i64(s, 7, e->end_ns);
    bind_constant(s, 8, kernel);
    const uint32_t shape[6] = {e->grid_x, e->grid_y, e->grid_z, e->block_x, e->block_y, e->block_z};
    for (int i = 0; i < 6; i++) {
        if (e->kind == ACCT_activity_KERNEL)
            sqlite3_bind_int64(s, 9 + i, shape[i]);
        else
            sqlite3_bind_null(s, 9 + i);
    }
    bind_i32(s, 15, e->registers);
    bind_i32(s, 16, e->static_shared_bytes);
    bind_i32(s, 17, e->dynamic_shared_bytes);
    bind_i32(s, 18, e->local_bytes);
    bind_i64(s, 19, e->bytes);
    bind_i32(s, 20, e->copy_kind);
    bind_id(s, 21, (int64_t)e->graph_node);
}

static void await_name(struct activities *a, int64_t row, uint32_t number) {
    if (!a->waiting) a->waiting = malloc(MOST_WAITING * sizeof *a->waiting);
    if (a->waiting && a->waiting_count < MOST_WAITING) a->waiting[a->waiting_count++] = (struct waiting){row, number};
}

static void activity(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_activity *e = AS(rec, activity);
    struct activities *a = r->activities;
    if (!e->kind) return; /* no kind, no fact */
    const char *kernel = name_of(a, e->name);
    sqlite3_stmt *s = r->stmt[ROWS_ACTIVITY];
    bind_activity(s, e, kernel);
    if (rows_step(r, s) == 0 && !kernel && e->name) await_name(a, sqlite3_last_insert_rowid(r->db), e->name);
}

static void correlation(struct rows *r, const struct ring_record *rec) {
    sqlite3_stmt *s = r->stmt[ROWS_CORRELATION];
    sqlite3_bind_int64(s, 1, AS(rec, correlation)->correlation);
    bind_id(s, 2, (int64_t)AS(rec, correlation)->external);
    rows_step(r, s);
}

static void set_meta(struct rows *r, const char *key) {
    sqlite3_stmt *s = r->stmt[ROWS_META];
    sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
    rows_step(r, s);
}

/* The last one holds: one that says there are device times takes back what an earlier one said. */
static void cupti(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_cupti *c = AS(rec, cupti);
    sqlite3_stmt *s = r->stmt[ROWS_META];
    bind_text(s, 2, &rec->texts[0]);
    set_meta(r, "cupti");
    bind_i64(s, 2, c->dropped);
    set_meta(r, "cupti_dropped");
    bind_id(s, 2, c->version);
    set_meta(r, "cupti_version");
}

void activities_record(struct rows *r, const struct ring_record *rec) {
    switch (rec->u.hdr.event) {
    case ACCT_EV_CUPTI:
        cupti(r, rec);
        break;
    case ACCT_EV_NAME:
        name(r, rec);
        break;
    case ACCT_EV_CORRELATION:
        correlation(r, rec);
        break;
    default:
        activity(r, rec);
    }
}
