/* Compiled kernels on one core against the same work as a C loop, compiled with gcc -O3 -march=native -ffast-math;
 * the time to compile each; the interpreter's rate. Loop mode: one call a block of 256 threads. Warp mode: 8 fibers a
 * block, which change at barriers only. Times are of this thread's processor, the best of several rounds: other
 * processes only ever add to them. Goals: saxpy, residual, adamw, gelu below 2 times the loop, layernorm and softmax
 * below 8 times. */
#include "bench/bench_jit_loops.h"
#include "ptx/ptx_interp.h"
#include "vgpu/vgpu_kernel.h"
#include "vgpu/vgpu_run_fiber.h"

#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 256, WARPS = THREADS / VGPU_WARP, COLUMNS = 768, STACK = 256 << 10, BUFFERS = 4 };
static int elements = 1 << 20, rounds = 15;
static float *device[BUFFERS], *host[BUFFERS];
static struct ptx_module *module;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a block's warps: round and round, since all of these kernels' warps come to every barrier ---- */
static struct {
    void *saved[WARPS + 1]; /* the last: of the thread */
    char *stack[WARPS];
    vgpu_warp_fn *fn;
    struct vgpu_frame *frame;
    int left;
} fibers;

static void pass_on(int from) {
    vgpu_fiber_switch(&fibers.saved[from], fibers.saved[from + 1 < WARPS ? from + 1 : 0]);
}

static void barrier(struct vgpu_frame *f, uint32_t warp, uint32_t id, uint32_t threads, uint32_t mask) {
    (void)f, (void)id, (void)threads, (void)mask;
    pass_on((int)warp);
}

/* Warps end in order, each in its turn. */
static void fiber(void *context) {
    int warp = (int)(intptr_t)context;
    for (;;) {
        fibers.fn(fibers.frame, (uint32_t)warp);
        vgpu_fiber_switch(&fibers.saved[warp], fibers.saved[--fibers.left ? warp + 1 : WARPS]);
    }
}

static void run_block(struct vgpu_frame *frame, const struct vgpu_code *code) {
    if (code->block) {
        code->block(frame);
        return;
    }
    fibers.fn = code->warp, fibers.frame = frame, fibers.left = WARPS;
    for (int w = 0; w < WARPS; w++)
        if (!fibers.saved[w]) {
            fibers.stack[w] = aligned_alloc(64, STACK);
            fibers.saved[w] = vgpu_fiber_make(fibers.stack[w], STACK, fiber, (void *)(intptr_t)w);
        }
    vgpu_fiber_switch(&fibers.saved[WARPS], fibers.saved[0]);
}

/* ---- the kernels ---- */
static const struct vgpu_host calls = {.barrier = barrier};

struct arguments {
    unsigned char bytes[128];
    size_t used;
};
static void put(struct arguments *a, const void *v, size_t bytes) {
    a->used = (a->used + bytes - 1) / bytes * bytes;
    memcpy(a->bytes + a->used, v, bytes);
    a->used += bytes;
}

static const float adamw_numbers[7] = {1e-3f, 0.9f, 0.99f, 0.5f, 0.6f, 1e-8f, 0.1f};

static void loops(int kernel, float **b) {
    int rows = elements / COLUMNS;
    switch (kernel) {
    case 0:
        loop_saxpy(b[0], b[1], 1e-3f, elements);
        break;
    case 1:
        loop_residual(b[0], b[1], b[2], elements);
        break;
    case 2:
        loop_adamw(b[0], b[1], b[2], b[3], adamw_numbers, elements);
        break;
    case 3:
        loop_gelu(b[0], b[1], elements);
        break;
    case 4:
        loop_layernorm(b[0], b[1], b[2], b[3], rows, COLUMNS);
        break;
    default:
        loop_softmax(b[0], b[1], rows, COLUMNS);
    }
}

static const struct kernel {
    const char *name;
    int buffers, numbers;
    bool rows;
    double goal;
} kernels[] = {{"saxpy", 2, 1, false, 2}, {"residual", 3, 0, false, 2}, {"adamw", 4, 7, false, 2},
               {"gelu", 2, 0, false, 2},  {"layernorm", 4, 0, true, 8}, {"softmax", 2, 0, true, 8}};

enum { KERNELS = sizeof kernels / sizeof *kernels };

static void pack(struct arguments *a, const struct kernel *k, float **b) {
    static const float factor = 1e-3f;
    int last = k->rows ? COLUMNS : elements;
    a->used = 0;
    for (int n = 0; n < k->buffers; n++) put(a, &b[n], sizeof b[n]);
    for (int n = 0; n < k->numbers; n++) put(a, k->numbers == 7 ? &adamw_numbers[n] : &factor, sizeof(float));
    put(a, &last, sizeof last);
}

static void fill(float **b) {
    srand(1);
    for (int k = 0; k < BUFFERS; k++)
        for (int i = 0; i < elements; i++) {
            float v = (float)rand() / (float)RAND_MAX;
            b[k][i] = k == 2 ? v : 4 * v - 2; /* adamw's v is not negative */
        }
}

static double worst_difference(int count) {
    double worst = 0;
    for (int i = 0; i < count; i++) {
        double d = fabs((double)device[0][i] - (double)host[0][i]) / (1 + fabs((double)host[0][i]));
        worst = d > worst || d != d ? d : worst;
    }
    return worst;
}

static int compare(int number, double *ns, double *loop_ns, double *ms) {
    const struct kernel *k = &kernels[number];
    const struct ptx_function *f = ptx_function_find(module, k->name);
    struct vgpu_code code;
    char err[256];
    if (!f || vgpu_jit(module, f, &code, err, sizeof err)) {
        printf("%s: %s\n", k->name, f ? err : "not in the PTX");
        return 1;
    }
    struct arguments a;
    static _Alignas(64) unsigned char shared[4096];
    struct vgpu_frame frame = {
        .shared = shared, .host = &calls, .block = {THREADS, 1, 1}, .threads = THREADS, .warps = WARPS};
    uint32_t blocks = (uint32_t)(k->rows ? elements / COLUMNS : (elements + THREADS - 1) / THREADS);
    frame.grid[0] = blocks, frame.grid[1] = frame.grid[2] = 1;
    frame.params = a.bytes;
    pack(&a, k, device);
    fill(device), fill(host);
    *ns = *loop_ns = INFINITY;
    int work = k->rows ? (int)blocks * COLUMNS : elements;
    for (int r = 0; r < rounds; r++) {
        double start = seconds();
        for (uint32_t b = 0; b < blocks; b++) frame.ctaid[0] = b, run_block(&frame, &code);
        double mid = seconds();
        loops(number, host);
        double end = seconds();
        *ns = fmin(*ns, (mid - start) * 1e9 / work);
        *loop_ns = fmin(*loop_ns, (end - mid) * 1e9 / work);
    }
    *ms = code.compile_ms;
    double d = worst_difference(work);
    if (d > 1e-4) printf("%s: differs from the loop by %g\n", k->name, d);
    return d > 1e-4;
}

static void interpreter(void) {
    const struct kernel *k = &kernels[3];
    struct arguments a;
    struct ptx_fault fault;
    fill(device);
    pack(&a, k, device);
    double best = INFINITY;
    for (int r = 0; r < 3; r++) {
        struct ptx_run run = {.module = module,
                              .entry = ptx_function_find(module, k->name),
                              .grid = {64, 1, 1},
                              .block = {THREADS, 1, 1},
                              .params = a.bytes};
        double start = seconds();
        if (ptx_interpret(&run, &fault)) return;
        best = fmin(best, (seconds() - start) * 1e9 / (double)run.executed);
    }
    printf("interpreter: %.1f ns a PTX instruction (gelu)\n", best);
}

static int open_module(const char *self) {
    char path[PATH_MAX + 32], beside[PATH_MAX];
    struct ptx_error e;
    snprintf(beside, sizeof beside, "%s", self);
    snprintf(path, sizeof path, "%s/bench_jit.ptx", dirname(beside));
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 20);
    size_t n = f && text ? fread(text, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    int rc = n ? ptx_parse(text, n, &module, &e) : -1;
    if (rc) printf("%s: %s\n", path, n ? e.text : "cannot be read");
    free(text);
    return rc;
}

int main(int argc, char **argv) {
    (void)argc;
    char cache[] = "/tmp/bench-jit-XXXXXX", command[64];
    double ratio[KERNELS] = {0};
    int bad = 0;
    if (getenv("BENCH_SHORT")) elements = 1 << 17, rounds = 7;
    if (open_module(argv[0]) || !mkdtemp(cache)) return 1;
    setenv("ACCT_CACHE", cache, 1); /* an empty one, so that compiling is measured */
    for (int k = 0; k < BUFFERS; k++) {
        device[k] = aligned_alloc(256, sizeof(float) * (size_t)elements);
        host[k] = aligned_alloc(256, sizeof(float) * (size_t)elements);
    }
    printf("%d elements, ns each, one core\n%-10s %8s %8s %7s %6s %11s\n", elements, "kernel", "compiled", "C loop",
           "ratio", "goal", "compile, ms");
    for (int k = 0; k < KERNELS; k++) {
        double ns, loop_ns, ms;
        if (compare(k, &ns, &loop_ns, &ms)) {
            bad = 1;
            continue;
        }
        printf("%-10s %8.3f %8.3f %7.2f %6.0f %11.1f\n", kernels[k].name, ns, loop_ns, ns / loop_ns, kernels[k].goal,
               ms);
        ratio[k] = ns / loop_ns;
    }
    for (int k = 0; k < KERNELS; k++)
        if (ratio[k] > 0)
            printf("%s, compiled to C loop: ratio %.2f, goal below %.0f%s\n", kernels[k].name, ratio[k],
                   kernels[k].goal, ratio[k] < kernels[k].goal ? "" : ": MISSED");
    interpreter();
    snprintf(command, sizeof command, "rm -rf %s", cache);
    return bad | (system(command) != 0);
}
