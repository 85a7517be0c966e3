#include "analyzer/report_sums.h"

int report_has_sums(struct report *r) {
    static const char sql[] =
        "SELECT EXISTS(SELECT 1 FROM main.op_sum) AND EXISTS(SELECT 1 FROM main.step_sum) AND NOT "
        "EXISTS(SELECT 1 FROM sqlite_temp_master WHERE name IN ('op_cost', 'op_time', 'op'))";
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(r->db, sql, -1, &st, NULL)) return 0; /* no such tables */
    int has = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return has;
}
