/* --save and --resume: everything that a run needs to go on bit for bit as if it had never stopped. Gradients are no
 * part of it: a checkpoint lies between two steps. README.md has the form of the file. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "sample_app/optimizer.h"
#include "sample_app/text_batches.h"

/* Before the work begins: ends the program with a message if `path` is something that a checkpoint cannot replace, or
 * its folder takes none. */
void checkpoint_check(const char *path);

/* Write the file at one stroke: beside it under another name, synced, then renamed; a kill at any moment leaves the old
 * file or the new one. Waits for the stream. Ends the program with a message if it cannot be written. `step`: steps
 * done. */
void checkpoint_save(const char *path, const struct train_options *o, const struct text *text, const struct trained *t,
                     const struct optimizer_progress *progress, int64_t step, cudaStream_t stream);

/* Read what checkpoint_save wrote, into tensors that are allocated already: the steps done. A file that is damaged, of
 * another program, or of a run with other choices or another text is refused with its reason, before anything is
 * changed. */
int64_t checkpoint_load(const char *path, const struct train_options *o, const struct text *text,
                        const struct trained *t, struct optimizer_progress *progress, cudaStream_t stream);

#endif
