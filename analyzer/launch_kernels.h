/* The kernels and modules of a trace, read when first asked for. Owner: struct launch_sets. */
#ifndef ACCT_ANALYZER_LAUNCH_KERNELS_H
#define ACCT_ANALYZER_LAUNCH_KERNELS_H

#include <sqlite3.h>
#include <stdint.h>
#include "ptx/ptx.h"
#include "ptx/ptx_access.h"

struct launch_param {
    uint32_t offset, bytes; /* in the argument bytes */
};

struct launch_kernel {
    int64_t id;
    char *name;                      /* mangled */
    const struct ptx_module *module; /* NULL: no PTX, or none that can be read */
    const struct ptx_function *entry;
    struct launch_param *params;
    int param_count; /* -1: not known */
    char *is_const;  /* without PTX: 'c' pointer to const, 'p' other pointer, '-' no pointer, '?' unknown; a letter each
                        param */
    struct ptx_accesses fixed;           /* modes of any launch, with the pointers' offsets; only if entry */
    const struct ptx_function *function; /* as entry, also where its accesses cannot be analysed, or it has an error */
    unsigned char *matters; /* of entry: 0xff for each argument byte on which its accesses or its price depend, else 0;
                               NULL: not known */
    unsigned char *cost_uses; /* of function: on which argument bytes a price depends (ptx_cost.h); NULL: not known */
};

struct launch_module {
    uint64_t key;           /* of the texts' hashes */
    size_t units;           /* linked together */
    struct ptx_module *ptx; /* NULL: cannot be read */
};

struct launch_kernels {
    sqlite3 *db;
    struct launch_kernel **kernel;
    struct launch_kernel *recent[1024]; /* by id, the latest of those with the same rest */
    int kernels, kernel_room;
    struct launch_module *module;
    int modules, module_room;
};

/* The kernel with that id, NULL if the trace has none or there is no memory (*failed). */
const struct launch_kernel *launch_kernels_get(struct launch_kernels *k, int64_t id, int *failed);
void launch_kernels_free(struct launch_kernels *k);

/* The letters of is_const for `count` parameters of a demangled signature; malloc'ed. */
char *launch_signature(const char *demangled, int count);

#endif
