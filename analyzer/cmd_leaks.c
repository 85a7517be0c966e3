/* acct leaks [--pattern leak|unused|redundant|early|late|idle|vacant|dead-write] [--limit N] … TRACE…: memory held to
 * no use. */
#include "analyzer/growth.h"
#include "analyzer/patterns.h"
#include "analyzer/view.h"

#include <math.h>
#include <stdlib.h>

enum { OPT_PATTERN = VIEW_OPTIONS, OPT_LIMIT, OPT_SHARE, OPT_GAP, OPT_LINK };
static const struct option_spec options[] = {
    VIEW_OPTION_ROWS,
    [OPT_PATTERN] = {"pattern", 'p', OPTION_VALUE, "P",
                     "only leak, unused, redundant, early, late, idle, vacant or dead-write"},
    [OPT_LIMIT] = {"limit", 'n', OPTION_VALUE, "N",
                   "findings, the most wasteful first; 0: all (default: 20 for people, all for machines)"},
    [OPT_SHARE] = {"min-share", 0, OPTION_VALUE, "X",
                   "leave out what wastes less than X percent of all bytes x time (default 0.1)"},
    [OPT_GAP] = {"min-gap-ms", 0, OPTION_VALUE, "X", "idle and vacant: gaps count from X ms on (default 1)"},
    [OPT_LINK] = {"link-gbs", 0, OPTION_VALUE, "X",
                  "idle: GB/s to the host and back; shorter gaps do not count (default 25)"},
    {0},
};

/* In the order of enum pattern_kind. */
static const char *const pattern_options[] = {"leak", "unused", "redundant",  "early", "late",
                                              "idle", "vacant", "dead-write", NULL};

static int parse_real(const struct arguments *args, int o, double least, double *out) {
    if (!args->given[o]) return 0;
    char *end;
    double value = strtod(args->value[o], &end);
    if (end == args->value[o] || *end || !isfinite(value) || value < least || value > 1e12)
        return cmd_fail(args->command, CMD_EXIT_USAGE, "--%s %s: not a number from %g to 1e12", options[o].name,
                        args->value[o], least);
    *out = value;
    return 0;
}

struct choice {
    struct pattern_options o;
    int kind;
    int64_t limit; /* 0: all; -1: not given */
};

static int choose(const struct arguments *args, struct choice *c) {
    double share = 0.1, gap = 1, link = 25;
    int code;
    *c = (struct choice){.o = pattern_defaults(), .kind = PATTERNS, .limit = -1};
    if ((code = view_choice(args, OPT_PATTERN, pattern_options, &c->kind)) ||
        (code = view_number(args, OPT_LIMIT, INT64_MAX, &c->limit)) ||
        (code = parse_real(args, OPT_SHARE, 0, &share)) || (code = parse_real(args, OPT_GAP, 0, &gap)) ||
        (code = parse_real(args, OPT_LINK, 1e-6, &link)))
        return code;
    c->o.min_share = share / 100;
    c->o.min_gap_ns = (int64_t)(gap * 1e6);
    c->o.link_bytes_per_s = link * 1e9;
    return 0;
}

static int parse(const struct arguments *args) {
    struct choice c;
    return choose(args, &c);
}

static int print(struct emitter *e, struct report *r, const struct arguments *args, char *err, size_t err_len) {
    struct choice c;
    struct patterns p = {0};
    struct growth g;
    if (choose(args, &c)) return -1; /* was parsed before */
    if (c.limit < 0) c.limit = emit_for_people(e) ? 20 : 0;
    int rc = growth_load(r, &g, err, err_len);
    if (!rc) rc = patterns_find(r, &c.o, &p, err, err_len);
    if (!rc) {
        view_open(e, r);
        growth_print(e, r, &g);
        rc = patterns_print(e, r, &p, &c.o, (enum pattern_kind)c.kind, c.limit, err, err_len);
        view_notes(e, r);
        emit_end(e);
    }
    patterns_free(&p);
    growth_free(&g);
    return rc;
}

static int leaks(const struct arguments *args) {
    static const struct view view = {.parse = parse, .print = print, .without_rates = 1};
    return view_run(args, &view);
}

const struct command cmd_leaks = {
    .name = "leaks",
    .synopsis = "memory that was held to no use: leaks, unused, early, late, idle, dead writes",
    .usage = VIEW_USAGE " [--pattern leak|unused|redundant|early|late|idle|vacant|dead-write] [--limit N] [--min-share "
                        "X] [--min-gap-ms X] [--link-gbs X] TRACE...",
    .details = "Ranked by waste: bytes x time held to no use. Patterns overlap. Findings say \"perhaps\" where an op "
               "in between may use the\nmemory unseen. acct-leaks(1) defines each pattern.\n",
    .options = options,
    .usage_exit = CMD_EXIT_USAGE,
    .function = leaks,
};
