/* The sheet of paper that every `acct plan` command prints: what was put in, what comes out, each with its unit, its
 * formula filled in and the convention that it follows, then tables of the command's own, then notes. A command fills
 * it and hands it to sheet_print, which knows formats and files. JSON:
 *
 *   {"schema":1, "command":"plan train", "convention":"…"|null,
 *    "inputs":{KEY:{"value":…, "unit":"…", "from":"given"|"default"|SOURCE}},
 *    "results":{KEY:{"value":…|null, "unit":"…", "formula":"…"}}, …tables…, "notes":["…"]}
 *
 * One thread. Memory exhausted ends the process with one line, as in the emitter. */
#ifndef ACCT_ANALYZER_PLAN_SHEET_H
#define ACCT_ANALYZER_PLAN_SHEET_H

#include "analyzer/command.h"
#include "analyzer/emitter.h"

#include <stdint.h>

/* A plan command's option table begins with SHEET_OPTION_ROWS; its own options have the numbers from SHEET_OPTIONS on.
 */
enum { SHEET_FORMAT, SHEET_OUTPUT, SHEET_OPTIONS };
#define SHEET_OPTION_ROWS                                                                              \
    [SHEET_FORMAT] = {"format", 'f', OPTION_VALUE, "FORMAT", "text (default), json, csv or markdown"}, \
    [SHEET_OUTPUT] = {"output", 'o', OPTION_VALUE, "OUT", "write to OUT, which is replaced when all is written"}
#define SHEET_USAGE "[--format text|json|csv|markdown] [-o OUT]"

enum sheet_unit {
    SHEET_NUMBER, /* unit "" */
    SHEET_BYTES,
    SHEET_FLOP,
    SHEET_OPS, /* integer operations */
    SHEET_FLOP_PER_S,
    SHEET_OP_PER_S,
    SHEET_BYTES_PER_S,
    SHEET_SECONDS, /* people see days from two days on */
    SHEET_DAYS,
    SHEET_SHARE,         /* of 1; people see percent */
    SHEET_FLOP_PER_BYTE, /* intensity */
    SHEET_MONEY,         /* in the price's currency */
    SHEET_TOKENS_PER_S,
    SHEET_TOKENS,
    SHEET_GPU_HOURS,
    SHEET_BYTES_PER_PARAMETER
};

struct sheet_line;
struct plan_sheet {
    const struct arguments *args;
    const char *convention; /* name of ACCOUNTING section 4 or the like; NULL: none applies */
    struct sheet_line *inputs, *results;
    int n_inputs, n_results, n_notes;
    char **notes;
    /* Tables of the command's own, between results and notes; NULL: none. Emits keyed lists or objects. */
    void (*tables)(struct emitter *e, const void *context);
    const void *context;
};

void sheet_begin(struct plan_sheet *s, const struct arguments *args);
void sheet_free(struct plan_sheet *s);

/* key: JSON's, unique among inputs or results; label: people's (of a result NULL: for machines
 * alone). Both constants. from: "given", "default", or the
 * source. */
void sheet_input(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, double value,
                 const char *from);
void sheet_input_whole(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, __int128 value,
                       const char *from);
void sheet_input_text(struct plan_sheet *s, const char *key, const char *label, const char *value, const char *from);

/* format …: the formula with its numbers, as `6 N T = 6 x 7e10 x 1.5e13`. NaN: not known; the formula says why. */
void sheet_result(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, double value,
                  const char *format, ...) __attribute__((format(printf, 6, 7)));
void sheet_result_whole(struct plan_sheet *s, const char *key, const char *label, enum sheet_unit unit, __int128 value,
                        const char *format, ...) __attribute__((format(printf, 6, 7)));
void sheet_result_text(struct plan_sheet *s, const char *key, const char *label, const char *value, const char *format,
                       ...) __attribute__((format(printf, 5, 6)));
void sheet_note(struct plan_sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `3.2 us`, `143.9 days`: as people see seconds. */
void sheet_human_seconds(char *out, size_t room, double seconds);

/* Prints in the format and to the file that the options say; returns the exit code. Frees the sheet. A bad --format is
 * refused here: call sheet_check before work that takes long. */
int sheet_print(struct plan_sheet *s);
int sheet_check(const struct arguments *args); /* 0, or the exit code after cmd_fail */

/* Options that plan commands share: `o` is the option's place in the table. Each returns 0, or the exit code after one
 * line that names option and text. Not given: *out stays. */
#include "plan/plan_number.h"
int sheet_real(const struct arguments *args, int o, enum plan_kind kind, enum plan_sign sign, double *out);
int sheet_whole(const struct arguments *args, int o, enum plan_kind kind, enum plan_sign sign, int64_t most,
                int64_t *out);

/* The device that option o names: an alias of devices.def, the driver's name or a profile file. Not given, or in error
 * (exit code after a line that lists the aliases): *out stays. */
struct acct_device;
int sheet_device(const struct arguments *args, int o, struct acct_device *out);

/* Index of a number format as acct_device.peak has it (enum acct_format …) that option o names: fp32, tf32, bf16 …. */
int sheet_format(const struct arguments *args, int o, int *out);
int sheet_format_of(const struct arguments *args, int o, const char *name, int *out); /* of a text in o's value */

#endif
