/* Table gemm, read by a thread of its own while the caller reads others. One user; the database's transaction is the
 * caller's, and he changes no row of gemm from begin to give. */
#ifndef ACCT_ANALYZER_ATTR_GEMMS_H
#define ACCT_ANALYZER_ATTR_GEMMS_H

#include "analyzer/attr_machines.h"
#include "analyzer/attr_rows.h"

struct gemms;
struct gemms *gemms_begin(sqlite3 *db); /* NULL: no memory */
/* Waits for the thread, and gives the rows of products their shapes. 0, or negative with one line in err. */
int gemms_give(struct gemms *s, struct rows *r, sqlite3 *db, struct machines *m, char *err, size_t err_len);
void gemms_free(struct gemms *s); /* waits for the thread; NULL: nothing */

#endif
