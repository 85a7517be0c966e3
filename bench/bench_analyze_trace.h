/* Synthetic traces of any length: a GPT trained for as many steps as fit into so many calls, recorded as the collector
 * would, with what an analysis of it must find. Nothing is computed, and no kernel runs. */
#ifndef ACCT_BENCH_ANALYZE_TRACE_H
#define ACCT_BENCH_ANALYZE_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct bench_trace_options {
    int64_t ops;     /* calls, about; a whole number of steps, at least 2 */
    int per_step;    /* of each layer's 13 activations, how many are allocated and freed in every step */
    int layers;      /* 0: 6 */
    const char *ptx; /* file with the PTX of bench_analyze_kernels.cu */
};

struct bench_trace_truth {
    int64_t ops, allocations, steps;
    int64_t gemm_flops;                    /* of one step */
    int64_t param, grad, optimizer, input; /* bytes, over the whole run */
    int64_t activation, activation_grad;   /* of the buffers that live for ever, and of all in the trace */
};

/* Replaces the file. 0, or -1 with one line in err. */
int bench_trace_make(const char *path, const struct bench_trace_options *options, struct bench_trace_truth *truth,
                     char *err, size_t err_len);

#endif
