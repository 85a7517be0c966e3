/* What each kernel launch costs, from the PTX of its module: FLOPs, integer operations, bytes. Launches that differ in
 * nothing that their price depends on share one, which is computed once and written to the tables price and
 * price_count.
 *
 * One per analysis, one thread. The effort of a whole analysis is bounded in instructions evaluated, not in seconds, so
 * that a trace has the same prices on every machine. */
#ifndef ACCT_ANALYZER_LAUNCH_PRICE_H
#define ACCT_ANALYZER_LAUNCH_PRICE_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>
#include "analyzer/cost_model.h"
#include "analyzer/launch_sets.h"

/* Of a whole launch. What is not known is COST_UNKNOWN. */
struct launch_price {
    int64_t id; /* price.id */
    enum cost_grade grade;
    int64_t flops, flops_most;               /* all types, matrix instructions too; most: no upper bound is known */
    int64_t matmul_flops, matmul_flops_most; /* of these, those of matrix instructions */
    int64_t integer_ops;                     /* the least */
    int64_t bytes_read, bytes_written;       /* accesses of global memory, or extents, whichever is less */
    const char *dtype;                       /* a constant; NULL: no FLOPs, or of a type without a name here */
    int32_t cost;                            /* the caller's; -1 to begin with */
};

struct launch_prices;

/* NULL: no memory. `sets` must outlive it. */
struct launch_prices *launch_prices_open(struct launch_sets *sets, sqlite3 *db);
void launch_prices_close(struct launch_prices *p);

/* The price of the launch that launch_sets_of was last asked for. Valid as long as p. NULL: no memory, or the tables
 * cannot be written (one line in err). Launches that share a price may reach different extents: `id` is then the same,
 * the bytes differ. */
struct launch_price *launch_price_of(struct launch_prices *p, const struct launch_call *call, char *err,
                                     size_t err_len);

/* Launches whose price is less exact than it could be, since the analysis' effort was spent. */
int64_t launch_prices_hurried(const struct launch_prices *p);

#endif
