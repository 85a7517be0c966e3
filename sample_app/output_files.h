/* The files that train writes beside its checkpoints. They are opened before the work begins, as a wrong path must not
 * cost a training run; what a file had stays until there is something to write, as what is refused changes nothing. A
 * failure ends the program. `path` is named in messages. */
#ifndef TRAIN_OUTPUT_FILES_H
#define TRAIN_OUTPUT_FILES_H

#include <stdio.h>

#include "sample_app/train_options.h"

/* NULL if path is NULL. */
FILE *output_file_open(const char *path);
/* What the file had is gone. Returns it. */
FILE *output_file_begin(FILE *file, const char *path);
/* `result`: not 0 if writing failed, with errno set. */
void output_file_close(FILE *file, int result, const char *path);

/* Once all are open: no output may be a file that is read, or another output; but --save may be the checkpoint of
 * --resume. Ends the program with a message where it is so. */
void output_files_apart(const struct train_options *o);

#endif
