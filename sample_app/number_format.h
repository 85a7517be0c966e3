/* The number formats of tensors. */
#ifndef TRAIN_NUMBER_FORMAT_H
#define TRAIN_NUMBER_FORMAT_H

#include <stddef.h>

/* E4M3 and E5M2: the two of fp8. BYTE: what has a form of its own, as a batch. */
enum number_format { FORMAT_FP32, FORMAT_BF16, FORMAT_FP16, FORMAT_E4M3, FORMAT_E5M2, FORMAT_INT32, FORMAT_BYTE };

/* Elements in the format of the run, which --dtype chooses: parameters, activations and the gradients of activations
 * are such. fp32 (fp32, tf32), bf16 (bf16, fp8), fp16. Statistics, losses, gradients of parameters, master weights and
 * the state of the optimizer are always float. */
typedef void real;

static inline size_t format_bytes(enum number_format format) {
    return format == FORMAT_FP32 || format == FORMAT_INT32 ? 4 : format == FORMAT_BF16 || format == FORMAT_FP16 ? 2 : 1;
}

#endif
