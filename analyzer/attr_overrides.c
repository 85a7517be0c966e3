/* Puts settled classes over the rows of alloc_class: an allocation is cut into atoms at every begin and end of a row or
 * override; within an atom only time counts. */
#include "analyzer/attr_overrides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/attr_sql.h"

/* One class over a stretch of time. Texts belong to the row or override. */
struct piece {
    int64_t from_ns, until_ns;
    const char *class, *rule;
    double confidence;
};

struct covering { /* a row or an override, with the bytes that it covers */
    int64_t offset, end;
    struct piece piece;
};

struct covers {
    struct covering *item;
    size_t n, room;
};

struct pieces {
    struct piece *item;
    size_t n, room;
};

struct overlay {
    sqlite3 *db;
    sqlite3_stmt *read, *insert, *clear, *settle;
    struct covers rows;
    int64_t *cut;
    size_t cut_room;
    struct pieces now, next, last; /* of an atom; while it is made; of the atom before */
    int64_t last_from, last_to;
    char *err;
    size_t err_len;
};

static int no_memory(struct overlay *v) {
    snprintf(v->err, v->err_len, "not enough memory for the classes that tags or rules settle");
    return -1;
}

/* Room for one more; 0, or -1. */
static int grow(void *array, size_t n, size_t *room, size_t size) {
    void **at = array;
    if (n < *room) return 0;
    size_t want = *room ? 2 * *room : 16;
    void *p = realloc(*at, want * size);
    if (!p) return -1;
    *at = p;
    *room = want;
    return 0;
}

static int add_piece(struct overlay *v, struct pieces *to, struct piece p) {
    if (p.from_ns >= p.until_ns) return 0;
    if (grow(&to->item, to->n, &to->room, sizeof *to->item)) return no_memory(v);
    to->item[to->n++] = p;
    return 0;
}

/* Replaces what `now` says of p's time by p; the order stays that of time. */
static int put_over(struct overlay *v, struct piece p) {
    int done = 0;
    v->next.n = 0;
    for (size_t i = 0; i < v->now.n; i++) {
        struct piece x = v->now.item[i], before = x, after = x;
        if (x.until_ns <= p.from_ns) {
            if (add_piece(v, &v->next, x)) return -1;
            continue;
        }
        if (before.until_ns > p.from_ns) before.until_ns = p.from_ns;
        if (after.from_ns < p.until_ns) after.from_ns = p.until_ns;
        if (x.from_ns < p.from_ns && add_piece(v, &v->next, before)) return -1;
        if (!done && add_piece(v, &v->next, p)) return -1;
        done = 1;
        if (add_piece(v, &v->next, after)) return -1;
    }
    if (!done && add_piece(v, &v->next, p)) return -1;
    struct pieces swap = v->now;
    v->now = v->next;
    v->next = swap;
    return 0;
}

static int same_pieces(const struct pieces *a, const struct pieces *b) {
    if (a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct piece *x = &a->item[i], *y = &b->item[i];
        if (x->from_ns != y->from_ns || x->until_ns != y->until_ns || x->confidence != y->confidence ||
            strcmp(x->class, y->class) || strcmp(x->rule, y->rule))
            return 0;
    }
    return 1;
}

/* Writes the atoms that were alike. */
static int write_last(struct overlay *v, int64_t alloc) {
    for (size_t i = 0; i < v->last.n; i++) {
        const struct piece *p = &v->last.item[i];
        sqlite3_bind_int64(v->insert, 1, alloc);
        sqlite3_bind_int64(v->insert, 2, v->last_from);
        sqlite3_bind_int64(v->insert, 3, v->last_to - v->last_from);
        sql_bind(v->insert, 4, p->from_ns == INT64_MIN ? ACCT_NULL_I64 : p->from_ns);
        sql_bind(v->insert, 5, p->until_ns == INT64_MAX ? ACCT_NULL_I64 : p->until_ns);
        sqlite3_bind_text(v->insert, 6, p->class, -1, SQLITE_STATIC);
        sqlite3_bind_double(v->insert, 7, p->confidence);
        sqlite3_bind_text(v->insert, 8, p->rule, -1, SQLITE_STATIC);
        if (sql_insert(v->db, v->insert, v->err, v->err_len)) return -1;
    }
    v->last.n = 0;
    return 0;
}

static int end_atom(struct overlay *v, int64_t alloc, int64_t from, int64_t to) {
    if (v->last.n && v->last_to == from && same_pieces(&v->last, &v->now)) {
        v->last_to = to;
        return 0;
    }
    if (write_last(v, alloc)) return -1;
    struct pieces swap = v->last;
    v->last = v->now;
    v->now = swap;
    v->last_from = from;
    v->last_to = to;
    return 0;
}

static int add_cover(struct overlay *v, struct covering c) {
    if (grow(&v->rows.item, v->rows.n, &v->rows.room, sizeof *v->rows.item)) return no_memory(v);
    v->rows.item[v->rows.n++] = c;
    return 0;
}

static void free_rows(struct overlay *v, size_t n) { /* the first n own their texts */
    for (size_t i = 0; i < n; i++) {
        free((char *)v->rows.item[i].piece.class);
        free((char *)v->rows.item[i].piece.rule);
    }
    v->rows.n = 0;
}

static int read_rows(struct overlay *v, int64_t alloc) {
    int rc;
    sqlite3_bind_int64(v->read, 1, alloc);
    while ((rc = sql_row(v->db, v->read, v->err, v->err_len)) > 0) {
        const char *class = (const char *)sqlite3_column_text(v->read, 4);
        const char *rule = (const char *)sqlite3_column_text(v->read, 6);
        int64_t offset = sqlite3_column_int64(v->read, 0), bytes = sqlite3_column_int64(v->read, 1);
        int64_t from = sql_i64(v->read, 2), until = sql_i64(v->read, 3);
        if (bytes <= 0 || offset < 0 || offset > INT64_MAX - bytes) continue; /* a damaged row */
        struct covering c = {offset,
                             offset + bytes,
                             {from == ACCT_NULL_I64 ? INT64_MIN : from, until == ACCT_NULL_I64 ? INT64_MAX : until,
                              strdup(class ? class : "unknown"), strdup(rule ? rule : ""),
                              sqlite3_column_double(v->read, 5)}};
        if (add_cover(v, c)) return -1;
        if (!c.piece.class || !c.piece.rule) return no_memory(v);
    }
    sqlite3_reset(v->read);
    return rc;
}

static int number_order(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Begins and ends of all that covers, each once, in order; their number, or -1. */
static int64_t make_cuts(struct overlay *v) {
    size_t n = 0, distinct = 0;
    for (size_t i = 0; i < 2 * v->rows.n; i++) {
        const struct covering *c = &v->rows.item[i / 2];
        if (grow(&v->cut, n, &v->cut_room, sizeof *v->cut)) return no_memory(v);
        v->cut[n++] = i % 2 ? c->end : c->offset;
    }
    if (n) qsort(v->cut, n, sizeof *v->cut, number_order);
    for (size_t i = 0; i < n; i++)
        if (!distinct || v->cut[distinct - 1] != v->cut[i]) v->cut[distinct++] = v->cut[i];
    return (int64_t)distinct;
}

struct in_atom {
    size_t atom, item;
};

static int atom_order(const void *a, const void *b) {
    const struct in_atom *x = a, *y = b;
    if (x->atom != y->atom) return x->atom < y->atom ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

static size_t atom_at(const struct overlay *v, size_t cuts, int64_t offset) {
    return (size_t)((int64_t *)bsearch(&offset, v->cut, cuts, sizeof *v->cut, number_order) - v->cut);
}

/* Every covering in each of its atoms; the later ones of the list win. */
static int write_atoms(struct overlay *v, int64_t alloc, size_t cuts) {
    struct in_atom *list = NULL;
    size_t n = 0, room = 0;
    int rc = 0;
    for (size_t i = 0; i < v->rows.n && !rc; i++)
        for (size_t a = atom_at(v, cuts, v->rows.item[i].offset); v->cut[a] < v->rows.item[i].end && !rc; a++) {
            if (grow(&list, n, &room, sizeof *list)) rc = no_memory(v);
            if (!rc) list[n++] = (struct in_atom){a, i};
        }
    if (n) qsort(list, n, sizeof *list, atom_order);
    for (size_t i = 0; i < n && !rc;) {
        size_t a = list[i].atom;
        v->now.n = 0;
        for (; i < n && list[i].atom == a && !rc; i++) rc = put_over(v, v->rows.item[list[i].item].piece);
        if (!rc) rc = end_atom(v, alloc, v->cut[a], v->cut[a + 1]);
    }
    free(list);
    return rc ? -1 : write_last(v, alloc);
}

/* All overrides of one allocation. */
static int settle(struct overlay *v, const struct class_override *o, size_t n) {
    int rc = read_rows(v, o->alloc);
    size_t owned = v->rows.n;
    for (size_t i = 0; i < n && !rc; i++)
        if (o[i].bytes > 0)
            rc = add_cover(v, (struct covering){o[i].offset,
                                                o[i].offset + o[i].bytes,
                                                {o[i].from_ns, o[i].until_ns, o[i].class, o[i].rule, 1}});
    int64_t cuts = rc ? -1 : make_cuts(v);
    if (cuts < 0) rc = -1;
    sqlite3_stmt *first = v->settle ? v->settle : v->clear;
    if (!rc) {
        sqlite3_bind_int64(first, 1, o->alloc);
        rc = sql_insert(v->db, first, v->err, v->err_len);
    }
    if (!rc) rc = write_atoms(v, o->alloc, (size_t)cuts);
    free_rows(v, owned);
    return rc;
}

struct numbered {
    struct class_override o;
    size_t place;
};

static int override_order(const void *a, const void *b) {
    const struct numbered *x = a, *y = b;
    if (x->o.alloc != y->o.alloc) return x->o.alloc < y->o.alloc ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static int sort(struct class_override *o, size_t n) {
    struct numbered *x = malloc((n ? n : 1) * sizeof *x);
    if (!x) return -1;
    for (size_t i = 0; i < n; i++) x[i] = (struct numbered){o[i], i};
    qsort(x, n, sizeof *x, override_order);
    for (size_t i = 0; i < n; i++) o[i] = x[i].o;
    free(x);
    return 0;
}

static int prepare(struct overlay *v, const char *into, const char *settled) {
    char sql[256];
    if (sql_prepare(
            v->db, &v->read,
            "SELECT offset, bytes, from_ns, until_ns, class, confidence, rule FROM main.alloc_class WHERE alloc "
            "= ? ORDER BY rowid",
            v->err, v->err_len))
        return -1;
    snprintf(
        sql, sizeof sql,
        "INSERT INTO %s(alloc, offset, bytes, from_ns, until_ns, class, confidence, rule) VALUES(?, ?, ?, ?, ?, ?, "
        "?, ?)",
        into);
    if (sql_prepare(v->db, &v->insert, sql, v->err, v->err_len)) return -1;
    if (!settled)
        return sql_prepare(v->db, &v->clear, "DELETE FROM main.alloc_class WHERE alloc = ?", v->err, v->err_len);
    snprintf(sql, sizeof sql, "INSERT INTO %s(alloc) VALUES(?)", settled);
    return sql_prepare(v->db, &v->settle, sql, v->err, v->err_len);
}

int overrides_apply(sqlite3 *db, struct class_override *o, size_t n, const char *into, const char *settled, char *err,
                    size_t err_len) {
    struct overlay v = {.db = db, .err = err, .err_len = err_len};
    int rc = n ? sort(o, n) ? no_memory(&v) : prepare(&v, into, settled) : 0;
    for (size_t i = 0, end; i < n && !rc; i = end) {
        for (end = i + 1; end < n && o[end].alloc == o[i].alloc;) end++;
        rc = settle(&v, o + i, end - i);
    }
    sqlite3_finalize(v.read), sqlite3_finalize(v.insert), sqlite3_finalize(v.clear), sqlite3_finalize(v.settle);
    free(v.rows.item), free(v.cut), free(v.now.item), free(v.next.item), free(v.last.item);
    return rc;
}

const char *override_class(const char *name) {
    static const char *const names[] = {"param", "grad",      "optimizer", "activation", "activation_grad",
                                        "input", "workspace", "temporary", "other",      "unknown"};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return names[i];
    return NULL;
}
