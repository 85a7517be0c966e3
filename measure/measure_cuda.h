/* The CUDA libraries of acct-bench, opened by name: whatever the loader finds first (LD_LIBRARY_PATH, so the virtual
 * GPU's folder too), then the usual place of a toolkit. Prototypes are the vendor's. All functions are filled in after
 * cuda_open, those of cuBLASLt only where there is one (lt). One thread. */
#ifndef ACCT_MEASURE_CUDA_H
#define ACCT_MEASURE_CUDA_H

#include <cublas_v2.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct cuda {
#define RUNTIME(f) __typeof__(&f) f;
#define BLAS(f) __typeof__(&f) f;
#define LT(f) __typeof__(&f) f;
#include "measure/measure_functions.def"
    /* Its struct is not the same in all versions; the name comes first in each. */
    int (*cudaGetDeviceProperties)(void *properties, int device);
    int (*acctVgpuDevice)(int ordinal, void *out); /* of the virtual GPU; NULL: a genuine runtime */
    int lt;
};

/* 0, or -1 with one line in err: which library is missing or too old, and what to do. */
int cuda_open(struct cuda *c, char *err, size_t err_len);

/* The kernels (measure_kernels.cu), loaded on the current device. */
struct cuda_kernels {
    cudaKernel_t fill, copy, nothing;
};
cudaError_t cuda_load_kernels(const struct cuda *c, struct cuda_kernels *k);

/* Of acct_fill: measure_kernels.cu has the same. */
enum fill_format { FILL_FP64, FILL_FP32, FILL_BF16, FILL_FP16, FILL_FP8_E4M3, FILL_INT8 };

/* PTX text, with its NUL (measure_ptx.c). */
extern const char measure_ptx[];

#endif
