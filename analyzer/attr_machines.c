#include "analyzer/attr_machines.h"

#include "analyzer/attr_sql.h"

int machines_open(struct machines *m, struct pool *pool, sqlite3 *db, char *err, size_t err_len) {
    *m = (struct machines){.pool = pool};
    return sql_prepare(
        db, &m->st,
        "SELECT CASE WHEN json_valid(p.environment) THEN "
        "CAST(json_extract(p.environment, '$.NVIDIA_TF32_OVERRIDE') AS TEXT) = '0' ELSE 0 END, d.cc_major, "
        "CASE WHEN json_valid(p.environment) THEN "
        "CAST(json_extract(p.environment, '$.NVIDIA_TF32_OVERRIDE') AS TEXT) = '1' ELSE 0 END "
        "FROM process p LEFT JOIN device d ON d.process = p.id AND d.ordinal = ?2 WHERE p.id = ?1",
        err, err_len);
}

static struct cost_machine look_up(const struct machines *m, int32_t process, int32_t device) {
    struct cost_machine found = {.cc_major = ACCT_NULL_I32};
    sqlite3_bind_int(m->st, 1, process);
    sqlite3_bind_int(m->st, 2, device);
    if (sqlite3_step(m->st) == SQLITE_ROW) {
        found.tf32_override_off = sqlite3_column_int(m->st, 0);
        found.cc_major = sql_i32(m->st, 1);
        found.tf32_override_on = sqlite3_column_int(m->st, 2);
    }
    sqlite3_reset(m->st);
    return found;
}

/* A trace has one process and a few devices. */
int32_t machine_of(struct machines *m, int32_t process, int32_t device) {
    for (int32_t n = 0; n < m->count && n < 64; n++) {
        int32_t i = (m->last + n) % m->count;
        if (m->known[i].process == process && m->known[i].device == device) return m->last = i;
    }
    POOL_ROOM(m->pool, m->known, m->count, m->room);
    m->known[m->count] = (struct machine){process, device, look_up(m, process, device)};
    return m->last = m->count++;
}

const struct cost_machine *machine_at(const struct machines *m, int32_t number) {
    return &m->known[number].machine;
}

void machines_close(struct machines *m) {
    sqlite3_finalize(m->st);
    m->st = NULL;
}
