/* What the commands that show traces (report, steps, memory, flops …) share: the options of every view, and the way
 * from the command line to a document: open each trace (analysing it where needed), load the report's figures, print. A
 * view's option table begins with VIEW_OPTION_ROWS; its own options have the numbers from VIEW_OPTIONS on. One thread.
 */
#ifndef ACCT_ANALYZER_VIEW_H
#define ACCT_ANALYZER_VIEW_H

#include "analyzer/command.h"
#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

enum { VIEW_FORMAT, VIEW_OUTPUT, VIEW_PEAK, VIEW_PEAKS, VIEW_RULES, VIEW_OPTIONS };

#define VIEW_OPTION_ROWS                                                                                         \
    [VIEW_FORMAT] = {"format", 'f', OPTION_VALUE, "FORMAT", "text (default), json, csv or markdown"},            \
    [VIEW_OUTPUT] = {"output", 'o', OPTION_VALUE, "OUT", "write to OUT, which is replaced when all is written"}, \
    [VIEW_PEAK] = {"peak-tflops", 0, OPTION_VALUE, "X",                                                          \
                   "the device's peak in TFLOP/s: X for all formats, or fp32=X,bf16=Y,..."},                     \
    [VIEW_PEAKS] = {"peaks", 0, OPTION_VALUE, "PROFILE",                                                         \
                    "peaks and bandwidth of a profile file (acct bench --save) or of a device by its alias"},    \
    [VIEW_RULES] = {"rules", 0, OPTION_VALUE, "FILE", "classes of memory by rules of your own: see acct-rules(5)"}

/* Of the views that show FLOPs: view_run reads the file. */
#define VIEW_FLOPS_RULES_ROW \
    { "flops-rules", 0, OPTION_VALUE, "FILE", "prices for kernels that have none, by name pattern: see acct-flops(1)" }

#define VIEW_USAGE "[--format text|json|csv|markdown] [-o OUT] [--peak-tflops X] [--peaks PROFILE] [--rules FILE]"

enum { VIEW_STEP_NONE = -2 };

struct view {
    /* Called before a trace is opened, to parse the view's own options; NULL: none are parsed. 0, or the exit code,
     * after cmd_fail. */
    int (*parse)(const struct arguments *args);
    /* Prints one trace as one object: opens it and closes it (view_open, emit_end). r is loaded. 0, or -1 with one line
     * in err. */
    int (*print)(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len);
    int without_rates; /* shows neither MFU nor roofs: notes on the peak are left out */
    long table_limit;  /* rows of a text table; 0: no limit */
};

/* The whole command: returns the exit code. */
int view_run(const struct arguments *args, const struct view *view);

/* Opens the object of one trace with what every view's has: JSON keys schema, trace. */
void view_open(struct emitter *e, const struct report *r);

/* Notes of the report, as the last section; key `notes`. */
void view_notes(struct emitter *e, const struct report *r);

/* A whole number of 0 or more for option `o` of the table, at most `most`. 0, or the exit code after cmd_fail. Not
 * given: *out stays. */
int view_number(const struct arguments *args, int o, int64_t most, int64_t *out);

/* Place in r->steps of the step that option `o` names; not given: `otherwise`. VIEW_STEP_NONE with one line in err:
 * there is no such step. Asked before anything is printed. */
int64_t view_step(const struct report *r, const struct arguments *args, int o, int64_t otherwise, char *err,
                  size_t err_len);

/* Index of the option's value in `names` (NULL-terminated); not given: *out stays. 0, or the exit code after cmd_fail,
 * which lists them. */
int view_choice(const struct arguments *args, int o, const char *const *names, int *out);

/* The format that option o names, text where it is not given: of every command that prints through the emitter. 0, or
 * the exit code after cmd_fail. */
int view_format(const struct arguments *args, int o, enum emit_format *out);

#endif
