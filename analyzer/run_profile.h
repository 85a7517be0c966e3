/* What the virtual GPU of `acct run` is to stand for, checked before the program starts. */
#ifndef ACCT_ANALYZER_RUN_PROFILE_H
#define ACCT_ANALYZER_RUN_PROFILE_H

#include "analyzer/run_parts.h"

#include <stddef.h>

/* given: the option's value, NULL: what ACCT_VGPU says, or cpu. setting: `ACCT_VGPU=…` for the program's environment, a
 * profile file by its whole path, since the program may change its folder; empty where the environment has it already.
 * 0, or -1 with one line in err (what is wrong and what there is). */
int run_check_profile(const char *given, char setting[RUN_PATH + 64], char *err, size_t err_len);

#endif
