#ifndef ACCT_ANALYZER_RUN_SUMMARY_H
#define ACCT_ANALYZER_RUN_SUMMARY_H

#include "analyzer/run_process.h"

/* After the program's end: completes its trace with the exit code and prints the summary on stderr. Changes no exit
 * code. */
void run_summary(struct run_process *r, int exit_code);

#endif
