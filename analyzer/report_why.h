/* Prints where the time of a step goes, with the arithmetic, and what to do about it. */
#ifndef ACCT_ANALYZER_REPORT_WHY_H
#define ACCT_ANALYZER_REPORT_WHY_H

#include "analyzer/emitter.h"
#include "analyzer/report_split.h"

/* A section; key time_split. s NULL: there is no step (null for machines, nothing for people). */
void why_print(struct emitter *e, const struct report *r, const struct split_step *s);

/* For machines: ns by part, key parts_ns; all null where the step's time is not known or not the device's. */
void why_print_parts(struct emitter *e, const struct split_step *s);

/* `phases` of one step: time by the device's clock, FLOPs, MFU. */
void why_print_phases(struct emitter *e, const struct report *r, const struct split_step *s, const char *label);

/* Of the steps that count, the one whose time is the median (the lower of two): its place; -1: none. */
int64_t why_median_step(const struct report *r);

/* The report's section: the median step. 0, or -1 with one line in err. */
int why_print_median(struct emitter *e, struct report *r, char *err, size_t err_len);

/* One line on what a detail's time consists of. */
void why_detail_words(char *out, size_t room, const struct report *r, const struct split_step *s, int detail);

/* Lines for the parts that take most; n are written, at most `most`. */
int why_advice(const struct report *r, const struct split_step *s, char (*out)[400], int most);

#endif
