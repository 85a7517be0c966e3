/* Device memory of a model, one class at a time: a set of tensors in one allocation, or in one each, entered in the
 * account (truth.h). A failure ends the program with a message. */
#ifndef TRAIN_DEVICE_TENSORS_H
#define TRAIN_DEVICE_TENSORS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* `count` tensors of n elements of four bytes. One is called `name`, several `name`1, `name`2, … */
struct tensor_spec {
    const char *name;
    int count;
    size_t n;
};

struct tensors {
    float **at; /* [count], on the device */
    size_t *n;  /* [count] elements */
    int count;
    bool together; /* one allocation: tensor i + 1 follows tensor i */
};

/* The tensors of `specs`, in their order. `class` must live as long as the program; `prefix` comes before each name;
 * what lies together is called by its class. */
struct tensors tensors_create(const char *class, const char *prefix, const struct tensor_spec *specs, int count,
                              bool together);
void tensors_destroy(struct tensors *t);

/* Enqueue the clearing of all, one call for each allocation. */
void tensors_clear(const struct tensors *t, cudaStream_t stream);
/* Write all to `file`, one after another; waits for the stream. 0, or -1 with errno set. */
int tensors_dump(const struct tensors *t, FILE *file, cudaStream_t stream);

/* One allocation by itself. */
void *device_alloc(const char *name, const char *class, size_t bytes);
void device_free(void *p);

#endif
