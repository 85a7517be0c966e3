/* Every CUDA and cuBLAS call of `train` stands in CHECK() or CALL(): a failure ends the program with one line that
 * names the file, the line and the call. CALL() also counts: see truth.h for which calls have a number. LAUNCH() is
 * CALL() for a kernel: whether a launch was accepted is what cudaGetLastError says. */
#ifndef TRAIN_CHECKED_CALL_H
#define TRAIN_CHECKED_CALL_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "sample_app/truth.h"

enum { EXIT_RUN_TIME = 1, EXIT_USAGE = 2 };

/* Print "train: <message>" on stderr and exit with `code`. */
_Noreturn void die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

void check_cuda(cudaError_t status, const char *file, int line, const char *call);
void check_cublas(cublasStatus_t status, const char *file, int line, const char *call);

#define CHECK(call) \
    _Generic((call), cudaError_t : check_cuda, cublasStatus_t : check_cublas)((call), __FILE__, __LINE__, #call)
#define CALL(call) (truth_count_call(), CHECK(call))
#define LAUNCH(call) (truth_count_call(), (call), check_cuda(cudaGetLastError(), __FILE__, __LINE__, #call))

#endif
