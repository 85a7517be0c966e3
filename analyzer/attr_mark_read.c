/* Reads the markers that say something, and settles where those end that have no end of their own. */
#include "analyzer/attr_marks.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"

/* The number of a general name in s->text. */
static int32_t text_of(struct mark_set *s, struct pool *pool, const char *name) {
    char general[64];
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    mark_general_name(name, general, sizeof general);
    for (const char *p = general; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    int64_t *at = at_map_put(&s->index, pool, h, NULL);
    if (*at) return (int32_t)*at - 1;
    POOL_ROOM(pool, s->text, s->texts, s->text_room);
    memcpy(s->text[s->texts], general, sizeof general);
    *at = ++s->texts;
    return s->texts - 1;
}

static int order(const void *a, const void *b) {
    const struct mark *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return x->text - y->text;
}

/* A moment (acct.h) begins something that lasts to the next of its kind in its thread, a phase to the next step too;
 * and so does a range that never ended. From the last to the first: next[0] a thread's next step, next[1] next phase.
 */
static void find_ends(struct mark_set *s, struct pool *pool) {
    struct at_map next[2] = {{0}, {0}};
    for (int32_t i = s->marks - 1; i >= 0; i--) {
        struct mark *m = &s->mark[i];
        int phase = m->named != NAMED_STEP;
        int64_t *own = at_map_put(&next[phase], pool, (uint64_t)m->thread, NULL);
        const int64_t *step = at_map_get(&next[0], (uint64_t)m->thread);
        if (m->end_ns == INT64_MAX) {
            if (*own) m->end_ns = s->mark[*own - 1].start_ns;
            if (phase && step && *step && s->mark[*step - 1].start_ns < m->end_ns)
                m->end_ns = s->mark[*step - 1].start_ns;
        }
        *own = i + 1;
    }
}

int marks_read(struct mark_set *s, struct pool *pool, sqlite3 *db, char *err, size_t err_len) {
    sqlite3_stmt *st;
    int rc;
    if (!sql_has_table(db, "range")) return 0;
    if (sql_prepare(db, &st,
                    "SELECT name, thread, source, kind, start_ns, end_ns FROM range WHERE name IS NOT NULL AND "
                    "start_ns IS NOT NULL",
                    err, err_len))
        return -1;
    while ((rc = sql_row(db, st, err, err_len)) > 0) {
        const char *name = (const char *)sqlite3_column_text(st, 0), *source, *kind;
        int plain = 0;
        enum named named = mark_named(name, &plain);
        if (named == NAMED_NOTHING) continue;
        source = (const char *)sqlite3_column_text(st, 2), kind = (const char *)sqlite3_column_text(st, 3);
        int acct_h = source && !strcmp(source, "acct.h"), moment = kind && !strcmp(kind, "mark");
        if (moment && !acct_h) continue; /* NVTX says of a moment only that it was */
        int64_t end = sql_i64(st, 5), start = sqlite3_column_int64(st, 4);
        struct mark m = {.start_ns = start,
                         .end_ns = moment || end == ACCT_NULL_I64 ? INT64_MAX : end,
                         .thread = sqlite3_column_type(st, 1) == SQLITE_NULL ? -1 : sqlite3_column_int64(st, 1),
                         .named = (int8_t)named,
                         .by = acct_h ? AT_BY_ACCT_H : AT_BY_NVTX,
                         .open = !moment && end == ACCT_NULL_I64,
                         .plain = (uint8_t)plain};
        if (m.end_ns < m.start_ns) continue; /* a damaged row */
        m.text = text_of(s, pool, name);
        s->never_ended += m.open;
        POOL_ROOM(pool, s->mark, s->marks, s->room);
        s->mark[s->marks++] = m;
    }
    sqlite3_finalize(st);
    if (rc) return -1;
    if (s->marks) qsort(s->mark, (size_t)s->marks, sizeof *s->mark, order);
    find_ends(s, pool);
    return 0;
}
