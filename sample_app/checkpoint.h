/* --save and --resume: everything that a run needs to go on bit for bit as if it had never stopped. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "sample_app/optimizer.h"

/* Write the file at one stroke: beside it under another name, synced, then renamed; a kill at any moment leaves the old
 * file or the new one. Waits for the stream. Ends the program with a message if it cannot be written. `step`: steps
 * done. */
void checkpoint_save(const char *path, const struct train_options *o, const struct trained *t,
                     const struct optimizer_progress *progress, int64_t step, cudaStream_t stream);

/* Read what checkpoint_save wrote, into tensors that are allocated already: the steps done. A file that is damaged, of
 * another program, or of a run with other choices is refused with its reason, before anything is changed. */
int64_t checkpoint_load(const char *path, const struct train_options *o, const struct trained *t,
                        struct optimizer_progress *progress, cudaStream_t stream);

#endif
