/* --dump-gradients: the batch, the parameters and their gradients of one step. */
#ifndef TRAIN_GRADIENT_DUMP_H
#define TRAIN_GRADIENT_DUMP_H

#include "sample_app/model_kind.h"

/* Write a line of text, then raw little-endian numbers: the batch, each parameter and each gradient in its format. With
 * loss scaling the gradients are those of the scaled loss, and the line ends with the scale. `batch` lies on the
 * device. Waits for the stream. 0, or -1 with errno set. */
int gradient_dump(FILE *file, const struct train_options *o, const struct model_kind *kind, const struct model *m,
                  const void *batch, float loss_scale, int64_t step);

#endif
