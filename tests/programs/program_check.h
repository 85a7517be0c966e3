/* What the CUDA programs of the tests share. */
#ifndef TESTS_PROGRAM_CHECK_H
#define TESTS_PROGRAM_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* A call that must succeed (cudaError_t, cublasStatus_t): else one line and exit code 1. */
#define CHECK(call)                                                               \
    do {                                                                          \
        int e = (int)(call);                                                      \
        if (e) {                                                                  \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, e); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

#endif
