/* Times by the roofline model. */
#include "vgpu/vgpu_model.h"
#include "vgpu/vgpu_engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a launch's cost, what remains between two nodes of a graph; an estimate (docs/INTERNALS.md). */
static const double GRAPH_LAUNCH = 0.5;

static __thread int64_t released; /* the calling thread has waited for what ended then */
static int64_t beginning;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void) {
    beginning = vgpu_now();
}

int64_t vgpu_model_begin(void) {
    pthread_once(&once, begin);
    return beginning;
}

void vgpu_model_released(int64_t ns) {
    if (ns > released) released = ns;
}

int64_t vgpu_model_host(void) {
    int64_t first = vgpu_model_begin();
    return released > first ? released : first;
}

/* Where a device has no unit for a format, its numbers are converted to the next wider one; each row ends with
 * VGPU_FORMATS. */
static const uint8_t wider[VGPU_FORMATS][5] = {
    [VGPU_FP64] = {VGPU_FORMATS},
    [VGPU_FP64_MATRIX] = {VGPU_FP64, VGPU_FORMATS},
    [VGPU_FP32] = {VGPU_FORMATS},
    [VGPU_TF32] = {VGPU_FP32, VGPU_FORMATS},
    [VGPU_BF16] = {VGPU_TF32, VGPU_FP32, VGPU_FORMATS}, /* fp16 has not its range */
    [VGPU_FP16] = {VGPU_TF32, VGPU_FP32, VGPU_FORMATS},
    [VGPU_FP16_ACC16] = {VGPU_FP16, VGPU_TF32, VGPU_FP32, VGPU_FORMATS},
    [VGPU_FP8] = {VGPU_FP16, VGPU_BF16, VGPU_FP32, VGPU_FORMATS},
    [VGPU_INT8] = {VGPU_FP16, VGPU_FP32, VGPU_FORMATS},
};

static bool has(const struct vgpu_profile *p, int format) {
    return p->peak[format] > 0; /* not NaN */
}

static double peak(const struct vgpu_profile *p, int format) {
    if (has(p, format)) return p->peak[format];
    for (const uint8_t *w = wider[format]; *w != VGPU_FORMATS; w++)
        if (has(p, *w)) return p->peak[*w];
    return NAN;
}

/* amount / rate; nothing where the rate is not known. */
static double quotient(double amount, double rate) {
    return amount > 0 && rate > 0 ? amount / rate : 0;
}

double vgpu_model_seconds(const struct vgpu_profile *p, const struct vgpu_amount *a) {
    double compute = 0;
    for (int f = 0; f < VGPU_FORMATS; f++)
        if (a->flops[f] > 0) compute += quotient(a->flops[f], peak(p, f));
    double longest = fmax(compute, quotient(a->bytes, p->bytes_per_s));
    longest = fmax(longest, quotient(a->host_bytes, p->host_bytes_per_s));
    return fmax(longest, quotient(a->peer_bytes, p->peer_bytes_per_s));
}

/* ---- a dry run for this machine: its peaks as they are measured ---- */

static struct vgpu_profile machine;

static void measure_machine(void) {
    struct vgpu_peak p;
    vgpu_peak_get(&p);
    machine = *vgpu_profile();
    machine.peak[VGPU_FP64] = machine.peak[VGPU_FP64_MATRIX] = p.fp64;
    machine.peak[VGPU_FP32] = p.fp32;
    machine.peak[VGPU_TF32] = p.tf32;
    machine.peak[VGPU_BF16] = p.bf16;
    machine.peak[VGPU_FP16] = machine.peak[VGPU_FP16_ACC16] = p.fp16;
    machine.peak[VGPU_FP8] = p.fp8;
    machine.bytes_per_s = machine.host_bytes_per_s = machine.peer_bytes_per_s = p.bytes_per_s;
}

static const struct vgpu_profile *modelled(void) {
    static pthread_once_t measured = PTHREAD_ONCE_INIT;
    if (!vgpu_profile()->cpu) return vgpu_profile();
    pthread_once(&measured, measure_machine);
    return &machine;
}

/* ---- the time line ---- */

void vgpu_model_times(const struct vgpu_amount *amount, int64_t ready, int64_t *start, int64_t *end) {
    const struct vgpu_profile *p = modelled();
    int64_t ns = llround(vgpu_model_seconds(p, amount) * 1e9);
    *start = ready + llround(p->launch_s * (amount->in_graph ? GRAPH_LAUNCH : 1) * 1e9);
    *end = *start + (ns > 0 ? ns : 1);
}

/* The client's clock, if it is another than CLOCK_MONOTONIC, is read once beside it. */
uint64_t vgpu_model_stamp(int64_t ns) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool asked;
    static uint32_t known;
    static int64_t ahead;
    const int64_t alike = 1000000; /* CLOCK_MONOTONIC itself */
    uint32_t generation;
    uint64_t now = vgpu_activity_clock(&generation);
    pthread_mutex_lock(&lock);
    if (!asked || generation != known) {
        ahead = (int64_t)now - vgpu_now();
        if (llabs(ahead) < alike) ahead = 0;
    }
    asked = true;
    known = generation;
    int64_t at = ns + ahead;
    pthread_mutex_unlock(&lock);
    return (uint64_t)at;
}
