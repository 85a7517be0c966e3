#include "sample_app/checked_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void die(int code, const char *format, ...) {
    va_list args;
    fflush(stdout);
    fputs("train: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(code);
}

static const char *advice(cudaError_t status) {
    if (status == cudaErrorMemoryAllocation) return "; take a smaller --dim, --layers or --batch";
    if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice)
        return "; run it on a machine with an NVIDIA GPU, or with LD_LIBRARY_PATH on a folder of stand-in libraries";
    return "";
}

void check_cuda(cudaError_t status, const char *file, int line, const char *call) {
    if (status == cudaSuccess) return;
    die(EXIT_RUN_TIME, "%s:%d: %s: %s%s", file, line, call, cudaGetErrorString(status), advice(status));
}

void check_cublas(cublasStatus_t status, const char *file, int line, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    die(EXIT_RUN_TIME, "%s:%d: %s: %s", file, line, call, cublasGetStatusString(status));
}
