/* The analysis of a trace: reads the recorded tables, writes the analysed ones (schema.sql) and kernel.demangled in one
 * transaction, and sets meta.analysis_version. Rules: DESIGN section 7 and ATTRIBUTION.md. */
#ifndef ACCT_ANALYZER_ANALYZE_H
#define ACCT_ANALYZER_ANALYZE_H

#include <stddef.h>
#include <sqlite3.h>

#define ANALYSIS_VERSION 6

/* db is open for writing. 0, or negative with one line in err; then nothing was changed. */
int analyze_trace(sqlite3 *db, char *err, size_t err_len);

#endif
