/* Training data: windows of a text file at random offsets, bytes scaled to [-1, 1].
 *
 * The file is mapped, never read as a whole. Batches are staged in page-locked memory with two slots: while the device
 * works on one step the host fills the other slot for the next. */
#ifndef TRAIN_TEXT_BATCHES_H
#define TRAIN_TEXT_BATCHES_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    const unsigned char *bytes; /* the mapping */
    size_t size;                /* bytes in the file */
};

struct text_batches {
    struct text text;
    int B, D;              /* windows in a batch, bytes in a window */
    uint64_t key;          /* of the offsets */
    float *staging;        /* (2, B, D), page-locked */
    cudaEvent_t copied[2]; /* the last copy out of a slot is done */
};

/* Map a file that has at least `window` bytes; ends the program with a message where there is none. */
struct text text_open(const char *path, size_t window);

void text_batches_create(struct text_batches *b, struct text text, int B, int D, uint64_t seed);
/* Fill the slot of batch `index` (0, 1, …) from the text; waits until the slot's last copy is done. */
void text_batches_stage(struct text_batches *b, int64_t index);
/* Enqueue the copy of the staged batch `index` to x (B, D) on the device. */
void text_batches_copy(struct text_batches *b, int64_t index, float *x, cudaStream_t stream);
void text_batches_destroy(struct text_batches *b); /* unmaps the text too */

#endif
