/* One run of acct-bench: the device, its time, and the groups of measurements. A group plans its items; each is given a
 * share of what time is left and prints its lines, whatever fails. One thread. */
#ifndef ACCT_MEASURE_BENCH_H
#define ACCT_MEASURE_BENCH_H

#include "measure/measure_cuda.h"
#include "measure/measure_times.h"

enum { BENCH_GEMM, BENCH_COPY, BENCH_LAUNCH, BENCH_ALLOC, BENCH_GROUPS };

/* In the order in which they are measured: what is asked for most comes first. */
enum bench_format {
    BENCH_FP32,
    BENCH_BF16,
    BENCH_TF32,
    BENCH_FP16,
    BENCH_FP8,
    BENCH_FP64,
    BENCH_FP16_ACC16,
    BENCH_INT8,
    BENCH_FORMATS
};

struct bench {
    struct cuda cuda;
    struct cuda_kernels kernels;
    cublasHandle_t blas;
    cublasLtHandle_t lt; /* NULL: none */
    cudaStream_t stream;
    cudaEvent_t start, stop;
    int sm, devices, peer; /* peer: device 0 reaches device 1 */
    int64_t free_bytes;    /* of device memory, before the first allocation */
    unsigned groups;       /* a bit each */
    unsigned formats;      /* likewise: of products */
    int chosen;            /* formats were named: the training-shaped products of all of them are measured */
    struct times times;    /* of the measurement under way */
};

/* One planned measurement. */
struct item {
    void (*run)(struct bench *b, const struct item *item, double until); /* until: its share of the time ends */
    double weight;
    int a, b; /* the group's own: which */
};

/* Each appends its items to a list with room for ITEMS_MOST, and returns how many there are then. */
enum { ITEMS_MOST = 256 };
int gemm_plan(const struct bench *b, struct item *items, int n);
int copy_plan(const struct bench *b, struct item *items, int n);
int launch_plan(const struct bench *b, struct item *items, int n);
int alloc_plan(const struct bench *b, struct item *items, int n);

const char *gemm_format_name(int format); /* NULL behind the last */

/* Device memory with n random numbers of that format. Seconds between two points of the stream. */
cudaError_t bench_fill(const struct bench *b, void *at, uint64_t n, enum fill_format format);
cudaError_t bench_launch(const struct bench *b, cudaKernel_t kernel, unsigned blocks, unsigned threads, void **args);
cudaError_t bench_elapsed(const struct bench *b, double *seconds); /* waits for b->stop */
const char *bench_error(const struct bench *b, cudaError_t rc);    /* its text; clears the runtime's last error */

/* Opens device 0, tells of it. 0; -1: it could not be, a `device refused` or `device no-device` line says why. */
int device_open(struct bench *b);

#endif
