/* Times by the roofline model. */
#include "vgpu/vgpu_model.h"
#include "vgpu/vgpu_engine.h"

#include <math.h>

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

void vgpu_model_times(const struct vgpu_amount *amount, int64_t ready, int64_t *start, int64_t *end) {
    const struct vgpu_profile *p = vgpu_profile();
    int64_t ns = llround(vgpu_model_seconds(p, amount) * 1e9);
    *start = ready + llround(p->launch_s * (amount->in_graph ? GRAPH_LAUNCH : 1) * 1e9);
    *end = *start + (ns > 0 ? ns : 1);
}

/* The client's clock, if it is another than CLOCK_MONOTONIC, is read once beside it. */
uint64_t vgpu_model_stamp(int64_t ns) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint32_t known;
    static int64_t ahead;
    uint32_t generation;
    uint64_t now = vgpu_activity_clock(&generation);
    pthread_mutex_lock(&lock);
    if (!ahead || generation != known) ahead = (int64_t)now - vgpu_now();
    known = generation;
    int64_t at = ns + ahead;
    pthread_mutex_unlock(&lock);
    return (uint64_t)at;
}
