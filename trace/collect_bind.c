#include "trace/collect_bind.h"
#include "trace/collect_text.h"

void bind_id(sqlite3_stmt *s, int i, int64_t id) {
    if (id)
        sqlite3_bind_int64(s, i, id);
    else
        sqlite3_bind_null(s, i);
}

void bind_i64(sqlite3_stmt *s, int i, int64_t v) {
    if (v == ACCT_NULL_I64)
        sqlite3_bind_null(s, i);
    else
        sqlite3_bind_int64(s, i, v);
}

void bind_i32(sqlite3_stmt *s, int i, int32_t v) {
    if (v == ACCT_NULL_I32)
        sqlite3_bind_null(s, i);
    else
        sqlite3_bind_int(s, i, v);
}

void bind_constant(sqlite3_stmt *s, int i, const char *text) {
    sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
}

void bind_enum(sqlite3_stmt *s, int i, enum event_type type, uint32_t v) {
    bind_constant(s, i, event_enum_text(type, v)); /* a NULL text binds NULL */
}

void bind_text(sqlite3_stmt *s, int i, const struct ring_text *t) {
    uint32_t ascii = 0;
    if (!t->bytes) {
        sqlite3_bind_null(s, i);
        return;
    }
    while (ascii < t->length && t->bytes[ascii] > 0) ascii++;
    if (ascii == t->length) {
        sqlite3_bind_text(s, i, t->bytes, (int)t->length, SQLITE_STATIC);
        return;
    }
    sqlite3_str *out = sqlite3_str_new(NULL);
    text_append_utf8(out, t->bytes, t->length);
    sqlite3_bind_text(s, i, sqlite3_str_finish(out), -1, sqlite3_free);
}

void bind_blob(sqlite3_stmt *s, int i, const struct ring_text *t) {
    if (t->bytes)
        sqlite3_bind_blob(s, i, t->bytes, (int)t->length, SQLITE_STATIC);
    else
        sqlite3_bind_null(s, i);
}

static void bind_field(sqlite3_stmt *s, int i, const struct event_field *f, const struct ring_record *rec,
                       const struct ring_text *text) {
    const unsigned char *p = rec->u.bytes + f->offset;
    switch (f->type) {
    case EVENT_T_u64:
        sqlite3_bind_int64(s, i, *(const int64_t *)(const void *)p);
        break;
    case EVENT_T_i64:
        bind_i64(s, i, *(const int64_t *)(const void *)p);
        break;
    case EVENT_T_u32:
        sqlite3_bind_int64(s, i, *(const uint32_t *)(const void *)p);
        break;
    case EVENT_T_i32:
        bind_i32(s, i, *(const int32_t *)(const void *)p);
        break;
    case EVENT_T_f64:
        sqlite3_bind_double(s, i, *(const double *)(const void *)p);
        break; /* NaN becomes NULL */
    case EVENT_T_text:
        bind_text(s, i, text);
        break;
    case EVENT_T_bytes:
        bind_blob(s, i, text);
        break;
    default:
        bind_enum(s, i, f->type, *(const uint32_t *)(const void *)p);
    }
}

void bind_fields(sqlite3_stmt *s, int first, const struct ring_record *rec) {
    const struct event_info *info = &event_table[rec->u.hdr.event];
    const struct ring_text *text = rec->texts;
    for (uint32_t i = 0; i < info->field_count; i++) {
        bind_field(s, first + (int)i, &info->fields[i], rec, text);
        text += EVENT_T_IN_BLOB(info->fields[i].type);
    }
}

void bind_json(sqlite3_stmt *s, int i, const struct ring_text *t, char *(*json)(const char *, size_t)) {
    if (t->bytes)
        sqlite3_bind_text(s, i, json(t->bytes, t->length), -1, sqlite3_free);
    else
        sqlite3_bind_null(s, i);
}
