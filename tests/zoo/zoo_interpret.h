/* Runs cases of the zoo in the interpreter, from a PTX file, and keeps what each launch touched. */
#ifndef TESTS_ZOO_INTERPRET_H
#define TESTS_ZOO_INTERPRET_H

#include "ptx/ptx_interp.h"
#include "tests/zoo/zoo.h"

struct zoo_touched {    /* of one argument's buffer, or one variable of the module; bytes */
    unsigned char *how; /* a byte each: PTX_P_READS, _WRITES, _ATOMIC */
    size_t bytes;
};
struct zoo_module {
    struct ptx_module *ptx;
    void **symbols;
    struct zoo_touched *variable; /* by number */
    struct ptx_tally *counts;     /* of what launches execute; NULL */
};
struct zoo_launch {
    void *buffer[ZOO_ARGS], *want[ZOO_ARGS];
    struct zoo_touched touched[ZOO_ARGS];
    unsigned char params[512];
    size_t offset[ZOO_ARGS]; /* of each argument in params */
    struct ptx_fault fault;
    uint64_t executed;
    char printed[256];
};

/* Reads and parses PATH; its variables get memory and their initial values. 0, or -1 with a line in err. */
int zoo_open(struct zoo_module *m, const char *path, char *err, size_t err_len);
void zoo_close(struct zoo_module *m);
/* Interprets case c. 0, or -1 with a line in err: it does not parse or run. Results are in buffer, what they must be in
 * want. */
int zoo_interpret(struct zoo_module *m, const struct zoo_case *c, struct zoo_launch *l, char *err, size_t err_len);
void zoo_release(const struct zoo_case *c, struct zoo_launch *l);

#endif
