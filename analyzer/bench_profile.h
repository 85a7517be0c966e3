/* A profile file (docs/PROFILES.md) of what acct-bench measured. One thread. */
#ifndef ACCT_ANALYZER_BENCH_PROFILE_H
#define ACCT_ANALYZER_BENCH_PROFILE_H

#include "analyzer/bench_results.h"

/* Whether a file can be written there, as far as that is known before anything is measured. option: its name, for the
 * line in err. 0, or -1 with that line. */
int bench_file_check(const char *option, const char *path, char *err, size_t err_len);

/* Whether both are names of one file, which need not be there. */
int bench_same_file(const char *a, const char *b);

/* Whether --save may write there: before anything is measured. 0, or -1 with one line in err. */
int bench_profile_check(const char *path, int force, char *err, size_t err_len);

/* Writes it under another name, reads it back, and renames it. *out: as it was read back. 0, or -1 with one line in
 * err, and whatever was at `path` is as it was. date: for `source`, "2026-01-31". */
int bench_profile_save(const char *path, const struct bench_results *r, const char *date, struct acct_device *out,
                       char *err, size_t err_len);

#endif
