/* Writes the rows of a synthetic trace as the collector would: into store_create's tables, with prepared inserts whose
 * columns come from trace/events.def. One thread; the first error stays in `failed`. */
#ifndef ACCT_BENCH_ANALYZE_ROWS_H
#define ACCT_BENCH_ANALYZE_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

enum { BENCH_GEMM_PLACES = 18, BENCH_ARGS = 96 };

struct bench_rows {
    sqlite3 *db;
    sqlite3_stmt *op, *alloc, *freed, *copy, *memset, *gemm, *launch, *kernel;
    int gemm_place[BENCH_GEMM_PLACES];
    int64_t ops, kernels; /* ids given so far */
    int64_t now_ns;
    int failed;
};

struct bench_gemm {
    char trans_a, trans_b;
    int64_t m, n, k, batch;
    uint64_t a, b, c;
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c; /* strides -1: none */
    int beta_one;
};

struct bench_launch {
    int64_t kernel;
    uint32_t grid, block;
    unsigned char args[BENCH_ARGS];
    uint32_t arg_bytes;
};

/* 0, or -1 with one line in err. */
int bench_rows_open(struct bench_rows *r, const char *path, char *err, size_t err_len);
/* Makes the indexes, ends the transaction, closes. */
int bench_rows_close(struct bench_rows *r, char *err, size_t err_len);

int bench_rows_module(struct bench_rows *r, const char *text, size_t bytes);
/* params: JSON. The kernel's id. */
int64_t bench_rows_kernel(struct bench_rows *r, const char *name, const char *params);
int64_t bench_rows_alloc(struct bench_rows *r, uint64_t address, int64_t bytes); /* the allocation's id */
void bench_rows_free(struct bench_rows *r, int64_t alloc, uint64_t address);
void bench_rows_copy(struct bench_rows *r, const char *direction, uint64_t dst, uint64_t src, int64_t bytes);
void bench_rows_memset(struct bench_rows *r, uint64_t address, int64_t bytes);
void bench_rows_gemm(struct bench_rows *r, const struct bench_gemm *g);
void bench_rows_launch(struct bench_rows *r, const struct bench_launch *l);

#endif
