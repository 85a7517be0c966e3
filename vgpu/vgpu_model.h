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
};

/* Seconds; without the launch. */
double vgpu_model_seconds(const struct vgpu_profile *profile, const struct vgpu_amount *amount);

#endif
