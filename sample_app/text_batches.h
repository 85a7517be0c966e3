/* Training data: windows of a text file at random offsets, in the form that a model takes.
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

/* How a model wants its batches: B windows of so many bytes each, in a slot of slot_bytes. */
struct batch_form {
    int B, window;
    size_t slot_bytes;
    /* Put window i of the batch, `from` on, into the slot. */
    void (*encode)(void *slot, const struct batch_form *form, int i, const unsigned char *from);
};

struct text_batches {
    struct text text;
    struct batch_form form;
    uint64_t key;           /* of the offsets */
    unsigned char *staging; /* two slots, page-locked */
    cudaEvent_t copied[2];  /* the last copy out of a slot is done */
};

/* Map a file that has at least `window` bytes; ends the program with a message where there is none, which advises a
 * smaller `option`. */
struct text text_open(const char *path, size_t window, const char *option);

void text_batches_create(struct text_batches *b, struct text text, struct batch_form form, uint64_t seed);
/* Fill the slot of batch `index` (0, 1, …) from the text; waits until the slot's last copy is done. */
void text_batches_stage(struct text_batches *b, int64_t index);
const void *text_batches_slot(const struct text_batches *b, int64_t index);
/* The copies out of the slot have been enqueued on the stream. */
void text_batches_copied(struct text_batches *b, int64_t index, cudaStream_t stream);
void text_batches_destroy(struct text_batches *b); /* unmaps the text too */

#endif
