/* Matches rules with the allocations of a trace, and puts the classes that they give over the analysis'. */
#include "analyzer/user_rules.h"

#include "analyzer/attr_overrides.h"
#include "analyzer/attr_sql.h"
#include "trace/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A named range that some rule asks for; sorted by start. */
struct named_range {
    int64_t start_ns, end_ns, thread; /* thread -1: of all */
    char *name;
};

struct allocation {
    int64_t id, order, bytes, address, device, ns, free_ns, thread, stack;
    const char *memory, *api, *library; /* the statement's; NULL not known */
};

/* Bytes and times of an allocation for which a rule holds. */
struct stretch {
    int64_t offset, bytes, from_ns, until_ns;
};

struct matcher {
    struct user_rules *u;
    sqlite3 *db;
    sqlite3_stmt *frames, *tags, *classes;
    struct named_range *range;
    size_t ranges, range_room, next_range;
    size_t *open, opens, open_room; /* begun, and not known to have ended */
    struct class_override *o;
    size_t n, room;
    struct stretch *part; /* of the rule looked at */
    size_t parts, part_room;
    char *err;
    size_t err_len;
};

static int no_memory(struct matcher *m) {
    snprintf(m->err, m->err_len, "not enough memory to match the rules of %s", m->u->path);
    return -1;
}

static int grow(void *array, size_t n, size_t *room, size_t size) {
    void **at = array;
    if (n < *room) return 0;
    size_t want = *room ? 2 * *room : 64;
    void *p = realloc(*at, want * size);
    if (!p) return -1;
    *at = p;
    *room = want;
    return 0;
}

static int asks(const struct matcher *m, enum rule_key key) {
    return (m->u->keys >> key) & 1;
}

/* ---- ranges ---- */

static int some_rule_names(const struct user_rules *u, const char *name) {
    for (int i = 0; i < u->rules; i++)
        for (int c = 0; c < u->rule[i].conditions; c++)
            if (u->rule[i].condition[c].key == RULE_RANGE && user_rules_glob(u->rule[i].condition[c].pattern, name))
                return 1;
    return 0;
}

static int read_ranges(struct matcher *m) {
    sqlite3_stmt *st;
    int rc;
    if (!asks(m, RULE_RANGE) || !sql_has_table(m->db, "range")) return 0;
    if (sql_prepare(
            m->db, &st,
            "SELECT start_ns, end_ns, CASE WHEN kind = 'start' THEN NULL ELSE thread END, name FROM range WHERE "
            "name IS NOT NULL AND start_ns IS NOT NULL AND kind <> 'mark' ORDER BY start_ns, id",
            m->err, m->err_len))
        return -1;
    while ((rc = sql_row(m->db, st, m->err, m->err_len)) > 0) {
        const char *name = (const char *)sqlite3_column_text(st, 3);
        int64_t end = sql_i64(st, 1), thread = sql_i64(st, 2);
        if (!some_rule_names(m->u, name)) continue;
        if (grow(&m->range, m->ranges, &m->range_room, sizeof *m->range)) rc = no_memory(m);
        if (rc < 0) break;
        m->range[m->ranges] = (struct named_range){sqlite3_column_int64(st, 0), end == ACCT_NULL_I64 ? INT64_MAX : end,
                                                   thread == ACCT_NULL_I64 ? -1 : thread, strdup(name)};
        if (!m->range[m->ranges++].name) rc = no_memory(m);
        if (rc < 0) break;
    }
    sqlite3_finalize(st);
    return rc;
}

/* Brings the open ranges up to a time; times must not go back. */
static int open_ranges(struct matcher *m, int64_t ns) {
    size_t kept = 0;
    for (; m->next_range < m->ranges && m->range[m->next_range].start_ns <= ns; m->next_range++) {
        if (grow(&m->open, m->opens, &m->open_room, sizeof *m->open)) return no_memory(m);
        m->open[m->opens++] = m->next_range;
    }
    for (size_t i = 0; i < m->opens; i++)
        if (m->range[m->open[i]].end_ns > ns) m->open[kept++] = m->open[i];
    m->opens = kept;
    return 0;
}

/* ---- conditions ---- */

static int is_true(const struct rule_condition *c, int matches) {
    return matches != c->negate;
}

static int text_matches(const struct rule_condition *c, const char *text) {
    return text && user_rules_glob(c->pattern, text);
}

static const char *base_of(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

/* 1, 0, or -1 after an error. A stack that was not recorded matches nothing. */
static int frame_matches(struct matcher *m, const struct rule_condition *c, const struct allocation *a) {
    int found = 0, rc = 0;
    if (!m->frames || a->stack == ACCT_NULL_I64) return 0;
    sqlite3_bind_int64(m->frames, 1, a->stack);
    while (!found && (rc = sql_row(m->db, m->frames, m->err, m->err_len)) > 0) {
        if (c->key == RULE_STACK) {
            found = text_matches(c, (const char *)sqlite3_column_text(m->frames, 0));
            continue;
        }
        found = text_matches(c, base_of((const char *)sqlite3_column_text(m->frames, 1)));
        break; /* the innermost frame only */
    }
    sqlite3_reset(m->frames);
    return rc < 0 ? -1 : found;
}

static int range_matches(const struct matcher *m, const struct rule_condition *c, const struct allocation *a) {
    for (size_t i = 0; i < m->opens; i++) {
        const struct named_range *r = &m->range[m->open[i]];
        if ((r->thread < 0 || r->thread == a->thread) && text_matches(c, r->name)) return 1;
    }
    return 0;
}

static int number_matches(const struct rule_condition *c, const struct allocation *a) {
    int64_t x = c->key == RULE_ORDER    ? a->order
                : c->key == RULE_BYTES  ? a->bytes
                : c->key == RULE_DEVICE ? a->device
                                        : 0;
    if (c->key == RULE_ADDRESS) { /* unsigned */
        uint64_t y = (uint64_t)a->address;
        return (c->least == INT64_MIN || y >= (uint64_t)c->least) && (c->most == INT64_MAX || y <= (uint64_t)c->most);
    }
    return x != ACCT_NULL_I64 && c->least <= x && x <= c->most;
}

/* A condition on the allocation as a whole. 1, 0, or -1 after an error. */
static int holds(struct matcher *m, const struct rule_condition *c, const struct allocation *a) {
    int matches;
    switch (c->key) {
    case RULE_STACK:
        matches = frame_matches(m, c, a);
        return matches < 0 ? -1 : is_true(c, matches);
    case RULE_LIBRARY:
        matches = text_matches(c, a->library) || text_matches(c, base_of(a->library)) ? 1 : frame_matches(m, c, a);
        return matches < 0 ? -1 : is_true(c, matches);
    case RULE_API:
        return is_true(c, text_matches(c, a->api));
    case RULE_RANGE:
        return is_true(c, range_matches(m, c, a));
    case RULE_MEMORY:
        return is_true(c, text_matches(c, a->memory));
    case RULE_TAG:
    case RULE_WAS:
        return 1; /* of parts */
    default:
        return number_matches(c, a);
    }
}

/* ---- parts ---- */

static int add_part(struct matcher *m, struct stretch s) {
    if (s.bytes <= 0) return 0;
    if (grow(&m->part, m->parts, &m->part_room, sizeof *m->part)) return no_memory(m);
    m->part[m->parts++] = s;
    return 0;
}

static int add_tags(struct matcher *m, const struct rule_condition *c, const struct allocation *a) {
    int rc;
    if (!m->tags) return 0;
    sqlite3_bind_int64(m->tags, 1, a->address);
    sqlite3_bind_int64(m->tags, 2, a->address + a->bytes);
    sqlite3_bind_int64(m->tags, 3, a->ns);
    sql_bind(m->tags, 4, a->free_ns);
    while ((rc = sql_row(m->db, m->tags, m->err, m->err_len)) > 0) {
        int64_t offset = sqlite3_column_int64(m->tags, 0) - a->address, bytes = sqlite3_column_int64(m->tags, 1);
        if (!text_matches(c, (const char *)sqlite3_column_text(m->tags, 2))) continue;
        if (bytes > a->bytes - offset) bytes = a->bytes - offset;
        if (add_part(m, (struct stretch){offset, bytes, INT64_MIN, INT64_MAX})) rc = -1;
        if (rc < 0) break;
    }
    sqlite3_reset(m->tags);
    return rc;
}

static int add_classes(struct matcher *m, const struct rule_condition *c, const struct allocation *a) {
    int rc;
    sqlite3_bind_int64(m->classes, 1, a->id);
    while ((rc = sql_row(m->db, m->classes, m->err, m->err_len)) > 0) {
        int64_t from = sql_i64(m->classes, 2), until = sql_i64(m->classes, 3);
        if (!text_matches(c, (const char *)sqlite3_column_text(m->classes, 4))) continue;
        struct stretch s = {sqlite3_column_int64(m->classes, 0), sqlite3_column_int64(m->classes, 1),
                            from == ACCT_NULL_I64 ? INT64_MIN : from, until == ACCT_NULL_I64 ? INT64_MAX : until};
        if (add_part(m, s)) rc = -1;
        if (rc < 0) break;
    }
    sqlite3_reset(m->classes);
    return rc;
}

/* What two conditions on parts have in common. */
static int meet(struct matcher *m, size_t first) {
    size_t end = m->parts;
    for (size_t i = 0; i < first; i++)
        for (size_t k = first; k < end; k++) {
            struct stretch x = m->part[i], y = m->part[k];
            int64_t from = x.offset > y.offset ? x.offset : y.offset;
            int64_t xe = x.offset + x.bytes, ye = y.offset + y.bytes, to = xe < ye ? xe : ye;
            struct stretch s = {from, to - from, x.from_ns > y.from_ns ? x.from_ns : y.from_ns,
                                x.until_ns < y.until_ns ? x.until_ns : y.until_ns};
            if (s.from_ns < s.until_ns && add_part(m, s)) return -1;
        }
    memmove(m->part, m->part + end, (m->parts - end) * sizeof *m->part);
    m->parts -= end;
    return 0;
}

/* The parts of an allocation for which all conditions of a rule hold; none: m->parts is 0. *whole: all of it. */
static int parts_of(struct matcher *m, const struct user_rule *rule, const struct allocation *a, int *whole) {
    m->parts = 0;
    *whole = 0;
    for (int i = 0; i < rule->conditions; i++) {
        int yes = holds(m, &rule->condition[i], a);
        if (yes <= 0) return yes;
    }
    *whole = 1;
    for (int i = 0; i < rule->conditions; i++) {
        const struct rule_condition *c = &rule->condition[i];
        if (c->key != RULE_TAG && c->key != RULE_WAS) continue;
        size_t first = m->parts;
        if (c->key == RULE_TAG ? add_tags(m, c, a) : add_classes(m, c, a)) return -1;
        if (!*whole && meet(m, first)) return -1;
        *whole = 0;
    }
    return *whole ? add_part(m, (struct stretch){0, a->bytes, INT64_MIN, INT64_MAX}) : 0;
}

/* All rules on one allocation, up to the first that settles all of it. Overrides are wanted the other way round: what
 * comes last wins. */
static int match(struct matcher *m, const struct allocation *a) {
    size_t first = m->n;
    int whole = 0;
    for (int i = 0; i < m->u->rules && !whole; i++) {
        struct user_rule *rule = &m->u->rule[i];
        if (parts_of(m, rule, a, &whole)) return -1;
        rule->matches += m->parts > 0;
        for (size_t p = 0; p < m->parts; p++) {
            if (grow(&m->o, m->n, &m->room, sizeof *m->o)) return no_memory(m);
            m->o[m->n++] = (struct class_override){.alloc = a->id,
                                                   .offset = m->part[p].offset,
                                                   .bytes = m->part[p].bytes,
                                                   .from_ns = m->part[p].from_ns,
                                                   .until_ns = m->part[p].until_ns,
                                                   .class = rule->class,
                                                   .rule = rule->text};
        }
    }
    for (size_t i = first, k = m->n; i + 1 < k; i++) {
        struct class_override swap = m->o[i];
        m->o[i] = m->o[--k];
        m->o[k] = swap;
    }
    return 0;
}

static int match_all(struct matcher *m) {
    sqlite3_stmt *st;
    char sql[512];
    int rc;
    int stacks = (asks(m, RULE_STACK) || asks(m, RULE_LIBRARY)) && sql_has_table(m->db, "op_stack");
    snprintf(sql, sizeof sql,
             "SELECT a.id, a.bytes, a.address, a.device, a.alloc_ns, a.free_ns, op.thread, a.memory, api.name, "
             "api.library, %s FROM alloc a LEFT JOIN op ON op.id = a.id LEFT JOIN api ON api.id = op.api %s ORDER BY "
             "a.alloc_ns, a.id",
             stacks ? "s.stack" : "NULL", stacks ? "LEFT JOIN op_stack s ON s.op = a.id" : "");
    if (sql_prepare(m->db, &st, sql, m->err, m->err_len)) return -1;
    for (int64_t order = 1; (rc = sql_row(m->db, st, m->err, m->err_len)) > 0; order++) {
        struct allocation a = {.id = sqlite3_column_int64(st, 0),
                               .order = order,
                               .bytes = sqlite3_column_int64(st, 1),
                               .address = sqlite3_column_int64(st, 2),
                               .device = sql_i64(st, 3),
                               .ns = sqlite3_column_int64(st, 4),
                               .free_ns = sql_i64(st, 5),
                               .thread = sql_i64(st, 6),
                               .memory = (const char *)sqlite3_column_text(st, 7),
                               .api = (const char *)sqlite3_column_text(st, 8),
                               .library = (const char *)sqlite3_column_text(st, 9),
                               .stack = sql_i64(st, 10)};
        int64_t end;
        if (a.bytes <= 0 || a.bytes > INT64_MAX / 2 || __builtin_add_overflow(a.address, a.bytes, &end)) continue;
        if (open_ranges(m, a.ns) || match(m, &a)) {
            rc = -1;
            break;
        }
    }
    sqlite3_finalize(st);
    return rc;
}

static int prepare(struct matcher *m) {
    if ((asks(m, RULE_STACK) || asks(m, RULE_LIBRARY)) && sql_has_table(m->db, "frame") &&
        sql_prepare(m->db, &m->frames, "SELECT symbol, path FROM frame WHERE stack = ? ORDER BY depth", m->err,
                    m->err_len))
        return -1;
    if (asks(m, RULE_TAG) && sql_has_table(m->db, "tag")) {
        if (sql_run(m->db,
                    "DROP TABLE IF EXISTS temp.rule_tag; CREATE TEMP TABLE rule_tag AS SELECT address, bytes, text, ns "
                    "FROM main.tag WHERE text IS NOT NULL AND bytes > 0; CREATE INDEX temp.rule_tag_address ON "
                    "rule_tag(address)",
                    m->err, m->err_len) ||
            sql_prepare(m->db, &m->tags,
                        "SELECT address, bytes, text FROM temp.rule_tag WHERE address >= ?1 AND address < ?2 AND ns >= "
                        "?3 AND (?4 IS NULL OR ns < ?4)",
                        m->err, m->err_len))
            return -1;
    }
    if (asks(m, RULE_WAS) &&
        sql_prepare(m->db, &m->classes,
                    "SELECT offset, bytes, from_ns, until_ns, class FROM main.alloc_class WHERE alloc = ?", m->err,
                    m->err_len))
        return -1;
    return read_ranges(m);
}

/* ---- where they go ---- */

static const char shadow[] =
    "DROP VIEW IF EXISTS temp.alloc_class; DROP TABLE IF EXISTS temp.class_by_rules; DROP TABLE IF EXISTS "
    "temp.class_settled;"
    "CREATE TEMP TABLE class_by_rules(alloc INTEGER, offset INTEGER, bytes INTEGER, from_ns INTEGER, until_ns INTEGER,"
    " class TEXT, confidence REAL, rule TEXT);"
    "CREATE TEMP TABLE class_settled(alloc INTEGER PRIMARY KEY);";
static const char shadow_view[] =
    "CREATE INDEX temp.class_by_rules_alloc ON class_by_rules(alloc);"
    "CREATE TEMP VIEW alloc_class AS SELECT alloc, offset, bytes, from_ns, until_ns, class, confidence, rule FROM"
    " main.alloc_class WHERE alloc NOT IN (SELECT alloc FROM temp.class_settled) UNION ALL SELECT alloc, offset, bytes,"
    " from_ns, until_ns, class, confidence, rule FROM temp.class_by_rules;";

static int put(struct matcher *m, int keep) {
    if (keep) {
        if (overrides_apply(m->db, m->o, m->n, "main.alloc_class", NULL, m->err, m->err_len)) return -1;
        if (!store_meta_set_text(m->db, "user_rules", m->u->path)) return 0;
        snprintf(m->err, m->err_len, "%s", sqlite3_errmsg(m->db));
        return -1;
    }
    return sql_run(m->db, shadow, m->err, m->err_len) ||
                   overrides_apply(m->db, m->o, m->n, "temp.class_by_rules", "temp.class_settled", m->err, m->err_len)
               ? -1
               : sql_run(m->db, shadow_view, m->err, m->err_len);
}

int user_rules_apply(struct user_rules *u, sqlite3 *db, int keep, char *err, size_t err_len) {
    struct matcher m = {.u = u, .db = db, .err = err, .err_len = err_len};
    for (int i = 0; i < u->rules; i++) u->rule[i].matches = 0;
    if (sql_run(db, keep ? "BEGIN IMMEDIATE" : "BEGIN", err, err_len)) return -1;
    int rc = prepare(&m) || match_all(&m) || put(&m, keep) ? -1 : 0;
    sqlite3_finalize(m.frames), sqlite3_finalize(m.tags), sqlite3_finalize(m.classes);
    if (!rc) rc = sql_run(db, "COMMIT", err, err_len);
    if (rc) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    for (size_t i = 0; i < m.ranges; i++) free(m.range[i].name);
    free(m.range), free(m.open), free(m.o), free(m.part);
    return rc;
}
