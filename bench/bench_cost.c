/* The cost model: launches priced a second, cold (nothing kept from one to the next) and as the analyzer finds them
 * again, for the sample app's kernels at
 * the sizes of GPT-2, and for sizes that grow: what a launch costs to price should not depend on how many threads it
 * has. */
#include "bench/bench_cost_cached.h"
#include "ptx/ptx_cost.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct launch {
    const char *kernel; /* a part of its mangled name */
    uint32_t grid[2], block[2];
    const char *args; /* p pointer, 0 null, f float, a number: an integer */
};
#define ROWS 8192   /* B·T */
enum { GPT2 = 21 }; /* launches of a step at that size */
static const struct launch launches[] = {
    {"init_normal_kernelIf", {153601, 1}, {256, 1}, "p 39321601 f 7"},
    {"fill_kernelIf", {153601, 1}, {256, 1}, "p 39321601 f"},
    {"embed_kernelIf", {ROWS, 1}, {256, 1}, "p p p p 1024 768"},
    {"embed_positions_backward_kernelIf", {3072, 1}, {256, 1}, "p p 8 786432"},
    {"embed_tokens_backward_kernelIf", {50257, 3}, {256, 1}, "p p p 8192 768"},
    {"16layernorm_kernelIf", {ROWS / 8, 1}, {256, 1}, "p p p p p p 8192 768"},
    {"layernorm_backward_kernelIf", {ROWS / 8, 1}, {256, 1}, "p p p p p p 8192 768"},
    {"layernorm_weights_backward_kernelIf", {24, 1}, {32, 16}, "p p p p p p 8192 768"},
    {"bias_backward_kernelIf", {72, 1}, {32, 16}, "p p 8192 2304"},
    {"18split_heads_kernelIf", {ROWS, 1}, {256, 1}, "p p p p 1024 12 64"},
    {"split_heads_backward_kernelIf", {ROWS, 1}, {256, 1}, "p p p p 1024 12 64"},
    {"17join_heads_kernelIf", {ROWS, 1}, {256, 1}, "p p 1024 12 64"},
    {"join_heads_backward_kernelIf", {ROWS, 1}, {256, 1}, "p p 1024 12 64"},
    {"21causal_softmax_kernelIf", {12 * ROWS / 8, 1}, {256, 1}, "p 98304 1024 f"},
    {"causal_softmax_backward_kernelIf", {12 * ROWS / 8, 1}, {256, 1}, "p p 98304 1024 f"},
    {"add_bias_kernelIf", {ROWS, 1}, {256, 1}, "p p 3072"},
    {"residual_kernelIf", {24576, 1}, {256, 1}, "p p p 6291456"},
    {"11gelu_kernelIf", {98304, 1}, {256, 1}, "p p 25165824"},
    {"gelu_backward_kernelIf", {98304, 1}, {256, 1}, "p p 25165824"},
    {"cross_entropy_kernelIf", {ROWS, 1}, {256, 1}, "p p p p 50257 f"},
    {"mean_kernel", {1, 1}, {256, 1}, "p p 8192"},
    /* GPT-2 XL: 1,600 wide, 25 heads, one sequence of 1,024 */
    {"init_normal_kernelIf", {314107, 1}, {256, 1}, "p 80411200 f 7"},
    {"embed_kernelIf", {1024, 1}, {256, 1}, "p p p p 1024 1600"},
    {"embed_tokens_backward_kernelIf", {50257, 7}, {256, 1}, "p p p 1024 1600"},
    {"16layernorm_kernelIf", {128, 1}, {256, 1}, "p p p p p p 1024 1600"},
    {"layernorm_backward_kernelIf", {128, 1}, {256, 1}, "p p p p p p 1024 1600"},
    {"layernorm_weights_backward_kernelIf", {50, 1}, {32, 16}, "p p p p p p 1024 1600"},
    {"bias_backward_kernelIf", {150, 1}, {32, 16}, "p p 1024 4800"},
    {"18split_heads_kernelIf", {1024, 1}, {256, 1}, "p p p p 1024 25 64"},
    {"split_heads_backward_kernelIf", {1024, 1}, {256, 1}, "p p p p 1024 25 64"},
    {"join_heads_backward_kernelIf", {1024, 1}, {256, 1}, "p p 1024 25 64"},
    {"21causal_softmax_kernelIf", {3200, 1}, {256, 1}, "p 25600 1024 f"},
    {"causal_softmax_backward_kernelIf", {3200, 1}, {256, 1}, "p p 25600 1024 f"},
    {"add_bias_kernelIf", {1024, 1}, {256, 1}, "p p 6400"},
    {"11gelu_kernelIf", {25600, 1}, {256, 1}, "p p 6553600"},
    {"cross_entropy_kernelIf", {1024, 1}, {256, 1}, "p p p p 50257 f"},
    /* the same, a thousand times as large */
    {"residual_kernelIf", {4000000, 1}, {256, 1}, "p p p 1023999900"},
    {"11gelu_kernelIf", {4000000, 1}, {256, 1}, "p p 1023999999"},
    {"16layernorm_kernelIf", {1250000, 1}, {256, 1}, "p p p p p p 9999999 1600"},
    {"21causal_softmax_kernelIf", {25 * ROWS / 8, 8}, {256, 1}, "p 204800 8192 f"},
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *module_text;
static size_t module_bytes;

static struct ptx_module *open_ptx(void) {
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return NULL;
    snprintf(path, sizeof path, "%s/../tests/cost/gpt_kernels.ptx", dirname(self));
    FILE *f = fopen(path, "rb");
    module_text = malloc(16 << 20);
    struct ptx_module *m = NULL;
    struct ptx_error e = {.text = "cannot be read"};
    if (f && module_text) module_bytes = fread(module_text, 1, 16 << 20, f);
    if (!f || !module_text || ptx_parse(module_text, module_bytes, &m, &e)) fprintf(stderr, "%s: %s\n", path, e.text);
    if (f) fclose(f);
    return m;
}

static const struct ptx_function *find(const struct ptx_module *m, const char *part) {
    for (int32_t k = 0; k < m->function_count; k++)
        if (m->functions[k].entry && strstr(m->functions[k].name, part)) return &m->functions[k];
    fprintf(stderr, "bench_cost: no kernel %s\n", part);
    exit(1);
}

static void pack(const struct ptx_function *f, const char *args, unsigned char *params) {
    char text[128];
    int k = 0;
    snprintf(text, sizeof text, "%s", args);
    for (char *save = NULL, *a = strtok_r(text, " ", &save); a && k < f->params; a = strtok_r(NULL, " ", &save), k++) {
        float half = 0.5f;
        uint64_t v = *a == 'p' ? UINT64_C(0x7f0000000000) + ((uint64_t)k << 36) : strtoull(a, NULL, 10);
        if (*a == 'f') memcpy(&v, &half, sizeof half);
        memcpy(params + f->vars[k].offset, &v, f->vars[k].bytes < 8 ? f->vars[k].bytes : 8);
    }
}

static int by_time(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The same launches, priced before. */
static int cached(const struct ptx_module *m, int rounds) {
    enum { CALLS = sizeof launches / sizeof *launches };
    static struct bench_call call[CALLS];
    for (size_t n = 0; n < CALLS; n++) {
        const struct launch *l = &launches[n];
        call[n] = (struct bench_call){
            .f = find(m, l->kernel), .grid = {l->grid[0], l->grid[1], 1}, .block = {l->block[0], l->block[1], 1}};
        pack(call[n].f, l->args, call[n].params);
    }
    double rate = bench_cached_prices(module_text, module_bytes, call, CALLS, 1000 * rounds);
    if (rate > 0) printf("cached: %.0f launches a second, as the analyzer prices them\n", rate);
    return rate <= 0;
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : NULL;
    static const char *const grades[] = {"exact", "sampled", "bound"};
    struct ptx_module *m = open_ptx();
    if (!m) return 1;
    double total = 0, each[sizeof launches / sizeof *launches] = {0};
    double small = 1, large = 1;
    int count = 0, rounds = getenv("BENCH_SHORT") ? 1 : 10;
    printf("%-38s %12s %9s  %s\n", "kernel", "threads", "us", "grade");
    for (size_t n = 0; n < sizeof launches / sizeof *launches; n++) {
        const struct launch *l = &launches[n];
        if (only && !strstr(l->kernel, only)) continue;
        const struct ptx_function *f = find(m, l->kernel);
        uint32_t grid[3] = {l->grid[0], l->grid[1], 1}, block[3] = {l->block[0], l->block[1], 1};
        unsigned char params[256] = {0};
        struct ptx_cost cost;
        pack(f, l->args, params);
        double best = 1e9;
        for (int k = 0; k < rounds; k++) {
            double t = seconds();
            if (ptx_cost_launch(m, f, grid, block, 0, params, &cost)) {
                fprintf(stderr, "bench_cost: %s: %s\n", l->kernel, cost.why);
                return 1;
            }
            t = seconds() - t;
            if (t < best) best = t;
        }
        if (!strcmp(l->kernel, "residual_kernelIf")) *(n < GPT2 ? &small : &large) = best;
        double threads = (double)grid[0] * grid[1] * block[0] * block[1];
        printf("%-38s %12.0f %9.1f  %s %s\n", l->kernel, threads, 1e6 * best, grades[cost.grade], cost.why);
        if (n >= GPT2) continue;
        total += best;
        each[count++] = best;
    }
    if (count == GPT2) {
        qsort(each, (size_t)count, sizeof *each, by_time);
        printf("cold: %.0f launches of GPT-2 a second, half of them in less than %.0f us\n", count / total,
               1e6 * each[count / 2]);
        printf("ratio of a price of 1e9 threads to one of 6e6 (residual, goal below 3): %.2f\n", large / small);
    }
    int failed = only ? 0 : cached(m, rounds);
    ptx_free(m);
    free(module_text);
    return failed;
}
