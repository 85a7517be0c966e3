/* Times of work by the roofline model, for devices that are not this machine, and for dry runs.
 *
 * An operation takes launch + max(Σ FLOPs_f / peak_f, bytes / bandwidth); a copy bytes / rate of its way. It starts
 * when the operations that it must wait for have ended, on a time line of the device alone: the host is taken to be
 * always ahead (docs/INTERNALS.md has the formula and its reasons). */
#ifndef VGPU_MODEL_H
#define VGPU_MODEL_H

#include "vgpu/vgpu_profile.h"

#include <stdint.h>

/* What an operation does, as far as its time depends on it. */
struct vgpu_amount {
    double flops[VGPU_FORMATS];    /* by the unit that does them */
    double bytes;                  /* of device memory, read and written, each byte that the caches cannot save */
    double host_bytes, peer_bytes; /* over the link to the host, to another device */
    bool in_graph;                 /* launched with the node before it, which shortens the launch */
};

/* Seconds; without the launch. A format that the device has no unit for runs on the next wider unit that it has. */
double vgpu_model_seconds(const struct vgpu_profile *profile, const struct vgpu_amount *amount);

/* ---- the time line: ns, CLOCK_MONOTONIC at its beginning ---- */

int64_t vgpu_model_begin(void); /* of the time line: when it was first asked for */
/* The calling thread has waited for what ended then: what it issues from now on starts no earlier. 0: nothing. */
void vgpu_model_released(int64_t ns);
int64_t vgpu_model_host(void); /* the earliest start of what the calling thread issues now */
/* An operation that may start at `ready`: when it starts and ends; at least 1 ns. */
void vgpu_model_times(const struct vgpu_amount *amount, int64_t ready, int64_t *start, int64_t *end);
/* A time of the time line by the clock of CUPTI's records. */
uint64_t vgpu_model_stamp(int64_t ns);

#endif
