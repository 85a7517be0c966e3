/* A trace in memory with one module and its kernels: launches are priced as the analyzer does it, first by the cost
 * model, then by looking them up. The time includes what the analyzer does for each launch besides, the extents. */
#include "bench/bench_cost_cached.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/launch_price.h"
#include "trace/store.h"

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int insert_module(sqlite3 *db, const char *text, size_t bytes) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, "INSERT INTO ptx(hash, flags, uncompressed_bytes, payload) VALUES(1, 0, 0, ?)", -1, &st,
                           NULL))
        return -1;
    sqlite3_bind_blob64(st, 1, text, bytes, SQLITE_STATIC);
    int r = sqlite3_step(st);
    sqlite3_finalize(st);
    if (r != SQLITE_DONE) return -1;
    return sqlite3_exec(db, "INSERT INTO module(id, hash) VALUES(1, 1)", NULL, NULL, NULL) ? -1 : 0;
}

static int insert_kernels(sqlite3 *db, const struct bench_call *call, size_t calls) {
    sqlite3_stmt *st;
    int r = SQLITE_DONE;
    if (sqlite3_prepare_v2(db, "INSERT INTO kernel(id, module, modules, name) VALUES(?, 1, 1, ?)", -1, &st, NULL))
        return -1;
    for (size_t n = 0; n < calls && r == SQLITE_DONE; n++) {
        sqlite3_bind_int64(st, 1, (int64_t)n + 1);
        sqlite3_bind_text(st, 2, call[n].f->name, -1, SQLITE_STATIC);
        r = sqlite3_step(st);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return r == SQLITE_DONE ? 0 : -1;
}

static int price_all(struct launch_sets *sets, struct launch_prices *prices, const struct bench_call *call,
                     size_t calls) {
    char err[256] = "";
    for (size_t n = 0; n < calls; n++) {
        struct launch_call l = {.kernel = (int64_t)n + 1, .args = call[n].params, .arg_bytes = call[n].f->param_bytes};
        const struct launch_buffer *buffers;
        int count;
        for (int k = 0; k < 3; k++) l.grid[k] = call[n].grid[k], l.block[k] = call[n].block[k];
        struct launch_price *p =
            launch_sets_of(sets, &l, &buffers, &count) ? NULL : launch_price_of(prices, &l, err, sizeof err);
        if (p && p->grade != COST_UNCOUNTED) continue;
        fprintf(stderr, "bench_cost: %s: no price: %s\n", call[n].f->name, err);
        return -1;
    }
    return 0;
}

double bench_cached_prices(const char *text, size_t bytes, const struct bench_call *call, size_t calls, int rounds) {
    sqlite3 *db = NULL;
    char err[256] = "cannot fill the trace", path[] = "/tmp/bench_cost.XXXXXX";
    double result = -1;
    struct launch_sets *sets = NULL;
    struct launch_prices *prices = NULL;
    int fd = mkstemp(path);
    if (fd < 0 || store_create(&db, path, 1, err, sizeof err) || insert_module(db, text, bytes) ||
        insert_kernels(db, call, calls)) {
        fprintf(stderr, "bench_cost: %s\n", err);
        goto out;
    }
    sets = launch_sets_open(db);
    prices = launch_prices_open(sets, db);
    if (!sets || !prices || price_all(sets, prices, call, calls)) goto out;
    double t = seconds();
    for (int k = 0; k < rounds; k++)
        if (price_all(sets, prices, call, calls)) goto out;
    result = (double)calls * rounds / (seconds() - t);
out:
    launch_prices_close(prices);
    if (sets) launch_sets_close(sets);
    sqlite3_close(db);
    if (fd >= 0) close(fd), unlink(path);
    return result;
}
