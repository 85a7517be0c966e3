/* Reads ACCT_VGPU, ACCT_VGPU_DRY and ACCT_VGPU_MEMORY. */
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_engine.h"

#include "acct/env.h"
#include "acct/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPU_SM = 90, CPU_UNIT = 512 /* in which its memory is counted */ };
_Static_assert((int)VGPU_MAX_DEVICES == (int)ACCT_PROFILE_DEVICES, "one limit");

static struct vgpu_profile profile;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Bytes of memory that this process may use at most: of the machine, or of its control group. */
static uint64_t machine_bytes(void) {
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        unsigned long long limit;
        FILE *f = fopen(limits[i], "re");
        if (!f) continue;
        if (fscanf(f, "%llu", &limit) == 1 && limit && limit < all) all = limit;
        fclose(f);
    }
    return all;
}

static void cpu_profile(struct vgpu_profile *p) {
    p->cpu = p->peer_access = true;
    p->sm = CPU_SM;
    p->sm_count = vgpu_cores();
    snprintf(p->alias, sizeof p->alias, "cpu");
    snprintf(p->name, sizeof p->name, "acct virtual GPU (cpu)");
    for (int f = 0; f < VGPU_FORMATS; f++) p->peak[f] = NAN;
    p->bytes_per_s = p->host_bytes_per_s = p->peer_bytes_per_s = NAN;
    p->total_bytes = machine_bytes() / 4 * 3 >> 20 << 20; /* a quarter is the host's; whole MiB */
}

static void device_profile(struct vgpu_profile *p, const struct acct_device *d, bool file) {
    static const int formats[VGPU_FORMATS] = {[VGPU_FP64] = ACCT_FP64,
                                              [VGPU_FP64_MATRIX] = ACCT_FP64_MATRIX,
                                              [VGPU_FP32] = ACCT_FP32,
                                              [VGPU_TF32] = ACCT_TF32,
                                              [VGPU_BF16] = ACCT_BF16,
                                              [VGPU_FP16] = ACCT_FP16,
                                              [VGPU_FP16_ACC16] = ACCT_FP16_ACC16,
                                              [VGPU_FP8] = ACCT_FP8,
                                              [VGPU_INT8] = ACCT_INT8};
    snprintf(p->alias, sizeof p->alias, "%s", d->alias);
    snprintf(p->name, sizeof p->name, "%s", d->name);
    snprintf(p->source, sizeof p->source, "%s: %s", file ? "profile file" : "data sheet", d->source);
    p->sm = d->sm;
    for (int f = 0; f < VGPU_FORMATS; f++) p->peak[f] = d->peak[formats[f]];
    p->bytes_per_s = d->bytes_per_s;
    p->host_bytes_per_s = d->host_bytes_per_s;
    p->peer_bytes_per_s = d->peer_bytes_per_s;
    p->peer_access = d->peer;
    p->launch_s = d->launch_s;
    p->total_bytes = d->total_bytes;
    p->reserved_bytes = d->reserved_bytes;
    p->l2_bytes = d->l2_bytes;
    p->sm_count = d->sms;
    p->clock_khz = d->clock_khz;
    p->memory_clock_khz = d->memory_clock_khz;
    p->memory_bus_bits = d->bus_bits;
}

static bool dry(void) {
    uint64_t on;
    if (acct_env_number(ENV_ACCT_VGPU_DRY, &on)) vgpu_say("ACCT_VGPU_DRY is neither off nor on: ignored");
    return on;
}

/* What cannot be read is no other device: everything is refused. The profile is cpu's then, for who asks all the same.
 */
static void read_profile(void) {
    struct acct_profile given;
    char err[1024];
    int wrong = acct_profile_read(acct_env_text(ENV_ACCT_VGPU), &given, err, sizeof err);
    if (wrong) {
        vgpu_say("ACCT_VGPU=%s", err);
        vgpu_refused = cudaErrorInitializationError;
    }
    profile.devices = wrong ? 1 : given.devices;
    profile.dry = dry();
    if (wrong || given.cpu)
        cpu_profile(&profile);
    else
        device_profile(&profile, &given.device, given.file);
    if (profile.cpu) profile.total_bytes = profile.total_bytes / (unsigned)profile.devices >> 20 << 20;
    if (vgpu_env_bytes("ACCT_VGPU_MEMORY", &profile.total_bytes)) profile.reserved_bytes = 0; /* all is the program's */
    if (profile.cpu) profile.total_bytes = profile.total_bytes / CPU_UNIT * CPU_UNIT;
    profile.model = !profile.cpu || profile.dry;
    const struct acct_sm *limits = acct_sm_find(profile.sm);
    if (limits) profile.limits = *limits;
}

const struct vgpu_profile *vgpu_profile(void) {
    pthread_once(&once, read_profile);
    return &profile;
}

/* The engine is loaded at the program's first call: a wrong ACCT_VGPU refuses that one already. */
__attribute__((constructor)) static void begin(void) {
    vgpu_profile();
}
