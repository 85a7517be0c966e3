/* --sample: text that the model writes by itself. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include "sample_app/model_kind.h"

struct generator; /* generate.c */

struct generator *generator_create(const struct train_options *o, const struct text *text);
/* Draw tokens one after another, each from the model's distribution, and print them as one line, quoted, on standard
 * output. The draws depend on --seed and `step` alone. */
void generator_print(struct generator *g, struct model *m, const struct model_kind *kind, int64_t step);
void generator_destroy(struct generator *g);

#endif
