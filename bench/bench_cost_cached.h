/* Prices that the analyzer has already: bench_cost_cached.c. */
#ifndef ACCT_BENCH_COST_CACHED_H
#define ACCT_BENCH_COST_CACHED_H

#include "ptx/ptx.h"

#include <stddef.h>

struct bench_call {
    const struct ptx_function *f;
    uint32_t grid[3], block[3];
    unsigned char params[256];
};

/* Launches a second whose price the analyzer finds where it has put it, `rounds` times all of them; < 0: it failed
 * (said on stderr). `text`: of the module whose functions they are. */
double bench_cached_prices(const char *text, size_t bytes, const struct bench_call *call, size_t calls, int rounds);

#endif
