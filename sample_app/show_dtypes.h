/* `train --show-dtypes`: the number formats, as the device computes them. */
#ifndef TRAIN_SHOW_DTYPES_H
#define TRAIN_SHOW_DTYPES_H

/* Print two tables on stdout: the range and precision of each format, and what becomes of some numbers in it. Needs a
 * device; a failure ends the program with a message. */
void show_dtypes(void);

#endif
