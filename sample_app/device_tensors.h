/* Device memory of a model, one class at a time: sets of tensors, entered in the account (truth.h). How they are
 * allocated is --alloc: `tensor` one cudaMalloc each; `class` one for the set; `step` as `tensor`, but what a step
 * makes and drops (transient sets) comes from cudaMallocAsync within the step; `pool` all of them pieces of one
 * block, cut by an allocator of ours (memory_pool.c). A failure ends the program with a message. */
#ifndef TRAIN_DEVICE_TENSORS_H
#define TRAIN_DEVICE_TENSORS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sample_app/number_format.h"

/* `count` tensors of n elements. One is called `name`, several `name`1, `name`2, … */
struct tensor_spec {
    const char *name;
    int count;
    size_t n;
    enum number_format format;
};

struct tensors {
    void **at;                  /* [count], on the device; NULL while a transient tensor is not there */
    size_t *n;                  /* [count] elements */
    enum number_format *format; /* [count] */
    char (*name)[32];           /* [count] */
    int count;
    const char *class;
    int64_t alloc;  /* of enum alloc_choice */
    bool transient; /* comes and goes by tensors_take and tensors_drop */
    bool *in_use;   /* [count]: taken and not yet dropped */
    int used;       /* so many are */
};

/* The tensors of `specs`, in their order. `class` must live as long as the program; `prefix` comes before each name;
 * what lies together is called by its class. A transient set has no memory yet. */
struct tensors tensors_create(const char *class, const char *prefix, const struct tensor_spec *specs, int count,
                              int64_t alloc, bool transient);
void tensors_destroy(struct tensors *t);

/* Tensors first … first + count - 1 of a transient set get memory, or give it back, in the stream's order; those that
 * have some, or have none, are left as they are, and so is a set that is not transient. A set that lies together
 * (--alloc class) comes as a whole with the first of them and goes when all are given back. */
void tensors_take(struct tensors *t, int first, int count, cudaStream_t stream);
/* Takes them for something of another class in the account, until they are dropped. */
void tensors_take_as(struct tensors *t, const char *class, int first, int count, cudaStream_t stream);
/* Takes them, and enqueues the clearing of those that were not there. */
void tensors_take_cleared(struct tensors *t, int first, int count, cudaStream_t stream);
void tensors_drop(struct tensors *t, int first, int count, cudaStream_t stream);

/* Bytes of tensor i, and of all. */
size_t tensor_bytes(const struct tensors *t, int i);
size_t tensors_bytes(const struct tensors *t);

/* Enqueue the clearing of all that is there, one call for each allocation. */
void tensors_clear(const struct tensors *t, cudaStream_t stream);
/* Write all to `file`, one after another, each in its own format; waits for the stream. 0, or -1 with errno set. */
int tensors_dump(const struct tensors *t, FILE *file, cudaStream_t stream);

/* --alloc pool: how large must the block be? Between plan and create, sets are created, taken, dropped and destroyed as
 * they will be later, at addresses that mean nothing; no call is made and nothing is entered. create allocates the
 * block for the most that was in use at a time, and destroy releases it when all pieces are given back. In the account
 * the pieces stand, not the block: each lives from the next call after it was taken to the last before it was given
 * back. */
void tensors_pool_plan(void);
void tensors_pool_create(void);
void tensors_pool_destroy(void);

/* One allocation by itself, by cudaMalloc whatever --alloc says. */
void *device_alloc(const char *name, const char *class, size_t bytes);
void device_free(void *p);

/* In debug builds (NDEBUG not defined) EXPECT_ELEMENTS(p, count) ends the program, with file and line, unless p is the
 * beginning of a tensor of at least `count` elements. */
#ifdef NDEBUG
#define EXPECT_ELEMENTS(p, count) ((void)0)
#else
#define EXPECT_ELEMENTS(p, count) tensor_expect((p), (size_t)(count), #p, __FILE__, __LINE__)
#endif
void tensor_expect(const void *p, size_t count, const char *what, const char *file, int line);

#endif
