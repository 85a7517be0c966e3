/* The program's own account of its calls, device buffers, steps and FLOPs: what --truth writes, and what a tool that
 * watches the program from outside can be tested against.
 *
 * A call is each allocation, release, copy, memset, launch or cuBLAS computation that the program makes, numbered from
 * 1 in host order; page-locked host memory counts as well. Creating handles, streams and events, queries and
 * synchronisation are no calls. Ranges of calls are inclusive on both ends.
 *
 * There is one account per process and one thread that keeps it. A failure (no memory) ends the program. */
#ifndef TRAIN_TRUTH_H
#define TRAIN_TRUTH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct train_options;

enum truth_phase { TRUTH_FORWARD, TRUTH_BACKWARD, TRUTH_OPTIMIZER, TRUTH_PHASES };

void truth_count_call(void);
/* Before the first step, where no account is to be written: what is over is not kept, so that memory does not grow with
 * the steps. */
void truth_forget(void);

/* The call just counted allocated `bytes` of device memory. `name` is copied; `class` must live as long as the program.
 */
void truth_allocated(const char *name, const char *class, const void *address, size_t bytes);
/* So many bytes of a block that the program divides itself are in use from the next call on. */
void truth_piece_taken(const char *name, const char *class, const void *address, size_t bytes);
/* The call just counted releases the buffer at `address`. */
void truth_released(const void *address);
/* The call just counted was the last that could use the piece at `address`. */
void truth_piece_given(const void *address);

/* A step begins with the next call and ends with the last one counted. Its loss may come later, when another step has
 * begun: losses come in the order of the steps. `skipped`: its gradients were not finite, and nothing was updated. */
void truth_step_begin(void);
void truth_step_end(int skipped);
void truth_loss(float loss);

/* Phases begin with the next call and end with the last one counted, but for allocations and releases at either end:
 * forward and backward in each micro-batch of a step, then one of the optimizer. */
void truth_phase_begin(enum truth_phase phase);
void truth_phase_end(void);
/* Inside backward: what forward had computed is computed again. */
void truth_recompute_begin(void);
void truth_recompute_end(void);

/* Forward passes between steps, of which no step is made: --eval-every and --sample. */
void truth_evaluation_begin(void);
void truth_evaluation_end(void);

/* The call just counted is a matrix product of so many floating-point operations (a multiply-add is two). */
void truth_flops(int64_t flops);

/* The whole account as one JSON object. `first_step`: the number of the first step listed. 0, or -1 with errno set if
 * it could not be written; `file` stays open. */
int truth_write(FILE *file, const struct train_options *o, int64_t parameters, int64_t flops_per_step,
                int64_t first_step);

#endif
