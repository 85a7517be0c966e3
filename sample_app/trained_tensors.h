/* The tensors that training changes, whatever the model: parameters in the format of the run, gradients, master weights
 * and the state of the optimizer in fp32. A failure ends the program. */
#ifndef TRAIN_TRAINED_TENSORS_H
#define TRAIN_TRAINED_TENSORS_H

#include "sample_app/optimizer.h"

/* The format of `real` for a --dtype. */
enum number_format real_format(int64_t dtype);

/* `parameters`: names and sizes. Gradients are called "d.NAME", master weights "master.NAME", moments "m.NAME", …; with
 * --zero-grad none gradients come and go (a transient set). `decays` must live as long as these. */
struct trained trained_create(const struct train_options *o, const struct tensor_spec *parameters, int count,
                              const bool *decays);
void trained_destroy(struct trained *t);

#endif
