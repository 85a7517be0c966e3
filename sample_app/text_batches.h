/* Training data: windows of a file of tokens at random offsets, in the form that a model takes.
 *
 * The file is mapped, never read as a whole, and may be larger than memory: a byte for each token, or two
 * (little-endian) where the vocabulary has more than 256. Batches are staged in two page-locked slots and copied to two
 * slots on the device, on a stream of their own: while the device works on one batch the next is on its way. */
#ifndef TRAIN_TEXT_BATCHES_H
#define TRAIN_TEXT_BATCHES_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sample_app/device_tensors.h"

struct text {
    const unsigned char *bytes; /* the mapping */
    size_t size;                /* tokens in the file */
    int vocabulary, token_bytes;
    const char *path;
};

/* How a model wants its batches: B windows of so many tokens each, in a slot of slot_bytes. */
struct batch_form {
    int B, window;
    size_t slot_bytes;
    /* Put window i of the batch, from token `at` of the text on, into the slot. */
    void (*encode)(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at);
};

/* Training windows are drawn from the whole file but its last tenth, those of evaluation from that, if there is to be
 * any evaluation (else training has all). */
enum batch_purpose { BATCH_TRAINING, BATCH_EVALUATION };

struct text_batches; /* text_batches.c */

/* Map a file that has at least `window` tokens; ends the program with a message where there is none, which advises a
 * smaller `option`. */
struct text text_open(const char *path, int vocabulary, size_t window, const char *option);
/* Token i; ends the program with file and offset if it is not below the vocabulary. */
int text_token(const struct text *text, uint64_t i);
/* Tokens of the training windows' part: the whole, or what is before the last tenth. */
uint64_t text_training_tokens(const struct text *text, bool evaluation);
void text_close(struct text *text);

/* The slots on the device (class "input"), as text_batches_create makes them. `alloc`: of enum alloc_choice. */
struct tensors text_batches_slots(struct batch_form form, int64_t alloc);
struct text_batches *text_batches_create(const struct text *text, struct batch_form form, uint64_t seed,
                                         bool evaluation, int64_t alloc);
/* Fill the next slot with batch `index` (0, 1, …) and enqueue its copy; waits until the slot is free. Two batches at
 * most are staged and not yet taken. */
void text_batches_stage(struct text_batches *b, enum batch_purpose purpose, int64_t index);
/* The slot, on the device, of the batch staged first; `stream` waits for its copy. */
const void *text_batches_take(struct text_batches *b, cudaStream_t stream);
/* The work that reads the slot taken last has been enqueued on the stream: the slot may be filled again after it. */
void text_batches_used(struct text_batches *b, cudaStream_t stream);
void text_batches_destroy(struct text_batches *b);

#endif
