/* What `acct run` looks at before it starts anything: its own parts, the program, the place of the trace.
 * All return 0, or -1 with one line in err (what, which file, what to do). */
#ifndef ACCT_ANALYZER_RUN_PARTS_H
#define ACCT_ANALYZER_RUN_PARTS_H

#include <stddef.h>

#define RUN_PATH 4096

struct run_parts {
    char library[RUN_PATH];      /* libacct.so */
    char collector[RUN_PATH];    /* acct-collect */
    char vgpu[RUN_PATH];         /* folder of the virtual GPU's libraries; empty unless asked for */
    char profile[RUN_PATH + 64]; /* ACCT_VGPU=…, for the program; empty: as its environment has it */
    int dry;                     /* ACCT_VGPU_DRY=on for the program */
    char bench[RUN_PATH];        /* acct-bench; run_find_bench alone */
};

/* Beside this executable (build folder) or in ../lib and ../bin of it (installed). */
int run_find_parts(struct run_parts *parts, int vgpu, char *err, size_t err_len);

/* Of `acct bench`: likewise acct-bench, and the virtual GPU where it is asked for; no other part. */
int run_find_bench(struct run_parts *parts, int vgpu, char *err, size_t err_len);

/* `name` as execvp would take it: with a slash a path, else the first executable of PATH. Refuses what cannot be
 * traced: statically linked, set-user-ID, another architecture. */
int run_find_program(const char *name, char path[RUN_PATH], char *err, size_t err_len);

/* Could the collector create the trace? name: as given with -o, in ACCT_OUTPUT, or NULL for the default. */
int run_check_output(const char *name, int force, char *err, size_t err_len);

#endif
