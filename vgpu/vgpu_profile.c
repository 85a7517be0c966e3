/* Reads ACCT_VGPU and ACCT_VGPU_DRY. */
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO NAN
#define DEVICE(a, n, cc, fp64, fp64t, fp32, tf32, bf16, fp16, fp16a, fp8, int8, fp4, gbs, gb, total, src) \
    {.alias = a,                                                                                          \
     .name = n,                                                                                           \
     .source = src,                                                                                       \
     .sm = cc,                                                                                            \
     .peak = {[VGPU_FP64] = fp64,                                                                         \
              [VGPU_FP64_MATRIX] = fp64t,                                                                 \
              [VGPU_FP32] = fp32,                                                                         \
              [VGPU_TF32] = tf32,                                                                         \
              [VGPU_BF16] = bf16,                                                                         \
              [VGPU_FP16] = fp16,                                                                         \
              [VGPU_FP16_ACC16] = fp16a,                                                                  \
              [VGPU_FP8] = fp8,                                                                           \
              [VGPU_INT8] = int8},                                                                        \
     .gb_s = gbs,                                                                                         \
     .bytes = total},

static const struct row {
    const char *alias, *name, *source;
    unsigned sm;
    double peak[VGPU_FORMATS], gb_s;
    long long bytes;
} rows[] = {
#include "acct/devices.def"
};

static struct vgpu_profile profile;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool on(const char *name) {
    const char *v = getenv(name);
    return v && (!strcmp(v, "1") || !strcmp(v, "on"));
}

static void cpu_profile(struct vgpu_profile *p) {
    p->cpu = true;
    p->sm = 90;
    p->sm_count = vgpu_cores();
    snprintf(p->alias, sizeof p->alias, "cpu");
    snprintf(p->name, sizeof p->name, "acct virtual GPU (cpu)");
    for (int f = 0; f < VGPU_FORMATS; f++) p->peak[f] = NAN;
    p->bytes_per_s = p->host_bytes_per_s = p->peer_bytes_per_s = NAN;
}

static void table_profile(struct vgpu_profile *p, const struct row *r) {
    p->sm = r->sm;
    snprintf(p->alias, sizeof p->alias, "%s", r->alias);
    snprintf(p->name, sizeof p->name, "%s", r->name);
    snprintf(p->source, sizeof p->source, "data sheet: %s", r->source);
    for (int f = 0; f < VGPU_FORMATS; f++) p->peak[f] = round(r->peak[f] * 1e12);
    p->bytes_per_s = r->gb_s * 1e9;
    p->total_bytes = (uint64_t)llabs(r->bytes);
    p->reserved_bytes = 512 << 20;
    p->sm_count = 1;
    p->launch_s = 2e-6;
    p->host_bytes_per_s = 25e9;
    p->peer_bytes_per_s = 25e9;
}

static void read_profile(void) {
    const char *text = getenv("ACCT_VGPU");
    char alias[64] = "cpu";
    if (text && *text) snprintf(alias, sizeof alias, "%.*s", (int)strcspn(text, ":"), text);
    const char *colon = text ? strchr(text, ':') : NULL;
    int n = colon ? atoi(colon + 1) : 1;
    profile.devices = n < 1 ? 1 : n > VGPU_MAX_DEVICES ? VGPU_MAX_DEVICES : n;
    profile.dry = on("ACCT_VGPU_DRY");
    const struct row *found = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !found; i++)
        if (!strcmp(rows[i].alias, alias)) found = &rows[i];
    if (found)
        table_profile(&profile, found);
    else
        cpu_profile(&profile);
    profile.model = !profile.cpu || profile.dry;
}

const struct vgpu_profile *vgpu_profile(void) {
    pthread_once(&once, read_profile);
    return &profile;
}
