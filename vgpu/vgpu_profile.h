/* The device that the virtual GPU stands for: the one of ACCT_VGPU, `PROFILE[:COUNT]`, where PROFILE is "cpu" (this
 * machine: its processors, its memory, measured peaks and times), a device of include/acct/devices.def ("h100-sxm"), or
 * the path of a profile file. All devices of a process are alike. Read once, at first use; constant from then on. If
 * ACCT_VGPU cannot be read, one line says why and every call is refused with cudaErrorInitializationError. */
#ifndef VGPU_PROFILE_H
#define VGPU_PROFILE_H

#include "acct/device_table.h"

#include <stdbool.h>
#include <stdint.h>

/* Number formats as the peaks have them. fp64 twice: on vector and on matrix units. */
enum vgpu_format {
    VGPU_FP64,
    VGPU_FP64_MATRIX,
    VGPU_FP32,
    VGPU_TF32,
    VGPU_BF16,
    VGPU_FP16,
    VGPU_FP16_ACC16,
    VGPU_FP8,
    VGPU_INT8,
    VGPU_FORMATS
};

enum { VGPU_MAX_DEVICES = 16 };

struct vgpu_profile {
    bool cpu;         /* this machine */
    bool dry;         /* ACCT_VGPU_DRY: nothing is executed, kernels and products are only counted */
    bool model;       /* device times come from the roofline model: every profile but cpu, and all that is dry */
    int devices;      /* 1 … VGPU_MAX_DEVICES */
    char alias[64];   /* "cpu", "h100-sxm", or the file's name without folder and suffix */
    char name[128];   /* as the driver spells it */
    char source[192]; /* where the peaks are from */
    unsigned sm;      /* compute capability × 10 */
    double peak[VGPU_FORMATS]; /* FLOP/s (int8: OP/s), dense; NaN: no such unit. Of cpu: measured (vgpu_peak_get) */
    double bytes_per_s;        /* of device memory; NaN: not known */
    uint64_t total_bytes;      /* as cudaMemGetInfo tells it; of cpu three quarters of this machine's memory */
    uint64_t reserved_bytes;   /* of those, taken by context and driver before the program's first allocation; cpu: 0 */
    int sm_count, clock_khz, memory_clock_khz, memory_bus_bits;
    uint64_t l2_bytes;       /* 0: not known, as any of the four above */
    double launch_s;         /* seconds of the device between two kernels of one stream */
    double host_bytes_per_s; /* copies between host (pinned) and device, one way */
    double peer_bytes_per_s; /* copies between devices, one way */
    bool peer_access;        /* a device reaches another's memory */
    struct acct_sm limits;   /* of one multiprocessor and its blocks; of cpu those of sm_90 */
};

const struct vgpu_profile *vgpu_profile(void);

#endif
