/* What the virtual GPU tells the recorder about itself. The stand-in for libcudart exports acctVgpuDevice; a genuine
 * libcudart does not, and that is how the two are told apart. */
#ifndef ACCT_VGPU_H
#define ACCT_VGPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct acct_vgpu_device {
    uint32_t struct_bytes; /* set by the caller: sizeof the struct it knows; the callee fills no more than that */
    uint32_t clock;        /* ACCT_clock_* of trace/events.def: 2 cpu, 3 model */
    double peak_fp32;      /* FLOP/s, measured on this machine or NaN */
    double peak_fp64;      /* FLOP/s, measured on this machine or NaN */
    char profile[64];      /* "cpu", "h100-sxm", … */
    char peak_source[192]; /* how the peaks were had, one line; "" unknown */
    double peak_tf32;      /* of products in these formats, likewise; fp32 sums */
    double peak_bf16;
    double peak_fp16;
    double peak_fp8;
    double bytes_per_s; /* of the device's memory, measured on this machine or the profile's, or NaN */
};

/* Fills *out for device `ordinal`. 0, or -1 if there is no such device. Any thread. May take a second when the peak of
 * this machine was never measured. */
int acctVgpuDevice(int ordinal, struct acct_vgpu_device *out);

#ifdef __cplusplus
}
#endif
#endif
