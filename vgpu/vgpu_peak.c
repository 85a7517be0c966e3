/* The peaks of this machine: the most FLOP/s that large products reach in each format, with the threads that OpenBLAS
 * will use. Measured and cached; the key holds what changes the figures. A machine that was busy then gets its due
 * later: each start tries some products, and where they are faster than the peak known, it is measured again. */
#include "vgpu/vgpu_blas.h"
#include "vgpu/vgpu_folder.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The formats, in the order in which they are measured and stand in the cache. */
static const struct format {
    const char *name;
    size_t at; /* in struct vgpu_peak */
    cudaDataType_t type, result;
    enum vgpu_rounding rounding;
    int budget_ms;
} formats[] = {
    {"fp32", offsetof(struct vgpu_peak, fp32), CUDA_R_32F, CUDA_R_32F, VGPU_ROUND_NONE, 600},
    {"fp64", offsetof(struct vgpu_peak, fp64), CUDA_R_64F, CUDA_R_64F, VGPU_ROUND_NONE, 200},
    {"tf32", offsetof(struct vgpu_peak, tf32), CUDA_R_32F, CUDA_R_32F, VGPU_ROUND_TF32, 20},
    {"bf16", offsetof(struct vgpu_peak, bf16), CUDA_R_16BF, CUDA_R_16BF, VGPU_ROUND_NONE, 20},
    {"fp16", offsetof(struct vgpu_peak, fp16), CUDA_R_16F, CUDA_R_16F, VGPU_ROUND_NONE, 20},
    {"fp8", offsetof(struct vgpu_peak, fp8), CUDA_R_8F_E4M3, CUDA_R_16BF, VGPU_ROUND_NONE, 20},
};
enum { FORMATS = sizeof formats / sizeof *formats, LARGEST = 1536, N = LARGEST * LARGEST, SAMPLE = 512, TRIAL_MS = 20 };

static struct vgpu_peak peak;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double *peak_of(struct vgpu_peak *p, const struct format *f) {
    return (double *)(void *)((char *)p + f->at);
}

/* Three matrices of n elements, A and B filled. NULL: no memory. */
struct matrices {
    void *memory, *a, *b, *c;
};

static struct matrices matrices(cudaDataType_t type, int64_t n) {
    const size_t room = (size_t)n * sizeof(double);
    char *m = malloc(3 * room);
    for (int64_t i = 0; m && i < n; i++) {
        vgpu_store(type, m, i, (double)(i % 17) - 8);
        vgpu_store(type, m + room, i, (double)(i % 13) - 6);
    }
    return m ? (struct matrices){m, m, m + room, m + 2 * room} : (struct matrices){0};
}

/* One product of n × n matrices in FLOP/s, by the wall clock: what a program can get. (Processor time, tempting on a
 * busy machine, is not to be trusted in a virtual one: a product seemed to run at 1.8 times what the processor can do.)
 */
static double product(const struct format *f, int n, const struct matrices *m) {
    double start = seconds();
    if (f->type == CUDA_R_64F)
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, n, n, 1, m->a, n, m->b, n, 0, m->c, n);
    else
        cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, n, n, 1, m->a, n, m->b, n, 0, m->c, n);
    return 2.0 * n * n * n / (seconds() - start);
}

/* The best of many short products: some of them have the processors to themselves, be the machine ever so busy. */
static double best_product(const struct format *f) {
    static const int sizes[] = {512, 768, 1024, LARGEST};
    struct matrices m = matrices(f->type, N);
    double best = 0, budget = f->budget_ms * 1e-3, end = seconds() + budget;
    double patience = budget / 4; /* for one product: on a slow machine the larger ones are left out */
    if (!m.memory) return NAN;
    for (int round = 0; round < 2 || seconds() < end; round++) {
        int n = sizes[round % 4];
        if (best > 0 && 2.0 * n * n * n > patience * best) n = sizes[0];
        double rate = product(f, n, &m);
        if (round && rate > best) /* the first one wakes threads and touches pages */
            best = rate;
    }
    free(m.memory);
    return best;
}

/* Seconds that it takes to make A and B fp32, and C the result's format, at the best of many tries with a part of them,
 * which is short enough to be left alone on a busy machine. */
static double best_conversion(const struct format *f) {
    struct matrices m = matrices(f->type, SAMPLE * SAMPLE);
    double best = NAN, end = seconds() + f->budget_ms * 1e-3;
    for (int round = 0; m.memory && (round < 3 || seconds() < end); round++) {
        double start = seconds();
        float *a = vgpu_widened(f->type, f->rounding, m.a, SAMPLE, SAMPLE, SAMPLE);
        float *b = vgpu_widened(f->type, f->rounding, m.b, SAMPLE, SAMPLE, SAMPLE);
        if (a && b && f->result != CUDA_R_32F) vgpu_narrowed(f->result, a, m.c, SAMPLE, SAMPLE, SAMPLE);
        double took = a && b ? seconds() - start : NAN;
        vgpu_scratch_give(a);
        vgpu_scratch_give(b);
        if (round) best = fmin(best, took); /* NaN counts for nothing */
    }
    free(m.memory);
    return best * N / (SAMPLE * SAMPLE);
}

/* A product in a small format is one in fp32 with conversions before and behind it (vgpu_blas_gemm.c). The two are
 * measured apart, so that no format seems slower than another only because the machine was busier. */
static double with_conversion(const struct format *f, double fp32) {
    const double flops = 2.0 * LARGEST * LARGEST * LARGEST;
    return flops / (flops / fp32 + best_conversion(f));
}

/* ---- the cache ---- */

static void cpu_text(char *out, size_t bytes) {
    char line[4096];
    size_t n = 0;
    bool model = false, flags = false;
    FILE *f = fopen("/proc/cpuinfo", "re");
    out[0] = 0;
    while (f && n < bytes && !(model && flags) && fgets(line, sizeof line, f)) {
        bool *seen = !strncmp(line, "model name", 10) || !strncmp(line, "CPU part", 8) ? &model
                     : !strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)     ? &flags
                                                                                       : NULL;
        if (seen && !*seen) {
            *seen = true;
            n += (size_t)snprintf(out + n, bytes - n, "%s", line);
        }
    }
    if (f) fclose(f);
}

/* FNV-1a, 64 bit */
static uint64_t hash(const char *text) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static uint64_t cache_key(int threads) {
    static char cpu[6000], all[8192]; /* in find_peak, which runs once: the program's stack may be small */
    const char *type = getenv("OPENBLAS_CORETYPE");
    cpu_text(cpu, sizeof cpu);
    snprintf(all, sizeof all, "3\n%s\n%d cores\n%s\n%s\n%s\n%d threads", cpu, vgpu_cores(), openblas_get_config(),
             openblas_get_corename(), type ? type : "", threads);
    return hash(all);
}

static bool plausible(double v) {
    return v > 1e6 && v < 1e18;
}

static bool all_plausible(struct vgpu_peak *p) {
    for (int i = 0; i < FORMATS; i++)
        if (!plausible(*peak_of(p, &formats[i]))) return false;
    return plausible(p->bytes_per_s);
}

/* One line: acct peak 3 fp32 1.2e+11 fp64 … memory 2e+10 end */
static bool read_cache(const char *path, struct vgpu_peak *p) {
    char name[16] = "";
    int version = 0;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool good = fscanf(f, "acct peak %d", &version) == 1 && version == 3;
    for (int i = 0; good && i < FORMATS; i++)
        good = fscanf(f, "%15s %lf", name, peak_of(p, &formats[i])) == 2 && !strcmp(name, formats[i].name);
    good = good && fscanf(f, "%15s %lf", name, &p->bytes_per_s) == 2 && !strcmp(name, "memory");
    good = good && fscanf(f, "%15s", name) == 1 && !strcmp(name, "end");
    fclose(f);
    good = good && all_plausible(p);
    for (int i = 0; !good && i < FORMATS; i++) *peak_of(p, &formats[i]) = 0;
    return good;
}

/* Written beside and renamed, so that no reader sees half a file. Failure is no matter: it is measured again. */
static void write_cache(const char *path, struct vgpu_peak *p) {
    static char beside[4200];
    char text[256];
    snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
    int n = snprintf(text, sizeof text, "acct peak 3");
    for (int i = 0; i < FORMATS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s %.6e", formats[i].name, *peak_of(p, &formats[i]));
    n += snprintf(text + n, sizeof text - (size_t)n, " memory %.6e end\n", p->bytes_per_s);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    bool good = write(fd, text, (size_t)n) == n;
    if (close(fd) || !good || rename(beside, path)) unlink(beside);
}

static bool given(struct vgpu_peak *p) {
    const char *text = getenv("ACCT_VGPU_PEAK");
    char *end;
    if (!text || !*text) return false;
    double v = strtod(text, &end);
    if (*end || !plausible(v)) {
        vgpu_say("ACCT_VGPU_PEAK=%s is not a peak in FLOP/s: measuring it", text);
        return false;
    }
    for (int i = 0; i < FORMATS; i++) *peak_of(p, &formats[i]) = NAN;
    p->bytes_per_s = NAN;
    p->fp32 = v;
    snprintf(p->source, sizeof p->source, "given by ACCT_VGPU_PEAK");
    return true;
}

/* ---- memory ---- */

enum { COPY_BYTES = 64 << 20, COPY_ROUNDS = 4, MOST_COPIERS = 64 };

struct copier {
    pthread_t thread;
    char *memory; /* what is copied, then as much room */
    size_t bytes;
    bool started;
};

static void *copy_part(void *part) {
    const struct copier *c = part;
    memcpy(c->memory + c->bytes, c->memory, c->bytes);
    return NULL;
}

/* One copy by all at once: seconds. */
static double copy_together(struct copier *c, int n) {
    double start = seconds();
    for (int i = 1; i < n; i++) c[i].started = !pthread_create(&c[i].thread, NULL, copy_part, &c[i]);
    for (int i = 0; i < n; i++)
        if (!c[i].started) copy_part(&c[i]);
    for (int i = 1; i < n; i++)
        if (c[i].started) pthread_join(c[i].thread, NULL);
    return seconds() - start;
}

/* Bytes read and written a second, by all cores at once, in arrays that caches do not hold as a rule; NaN: no memory.
 */
static double memory_rate(void) {
    struct copier c[MOST_COPIERS] = {0};
    int n = vgpu_cores() < MOST_COPIERS ? vgpu_cores() : MOST_COPIERS;
    const size_t part = COPY_BYTES / (size_t)n;
    char *memory = malloc(2 * part * (size_t)n);
    double best = NAN;
    if (memory) memset(memory, 1, 2 * part * (size_t)n); /* makes the pages */
    for (int i = 0; i < n; i++) c[i] = (struct copier){.memory = memory + 2 * part * (size_t)i, .bytes = part};
    for (int round = 0; memory && round < COPY_ROUNDS; round++)
        best = fmax(best, 2. * (double)part * n / copy_together(c, n));
    free(memory);
    return best;
}

/* What is known already stands where it is higher. */
static void measure_all(void) {
    struct vgpu_peak known = peak;
    for (int i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        bool plain = f->type == CUDA_R_64F || (f->type == CUDA_R_32F && f->rounding == VGPU_ROUND_NONE);
        double now = plain ? best_product(f) : with_conversion(f, peak.fp32);
        *peak_of(&peak, f) = fmax(now, *peak_of(&known, f));
    }
    peak.bytes_per_s = fmax(memory_rate(), known.bytes_per_s > 0 ? known.bytes_per_s : NAN);
}

static void *measure(void *unused) {
    vgpu_blas_enter();
    measure_all();
    vgpu_blas_leave();
    return unused;
}

/* *higher: products are faster than the peak known, so all is measured again. */
static void *try_higher(void *higher) {
    vgpu_blas_enter();
    struct matrices m = matrices(CUDA_R_32F, SAMPLE * SAMPLE);
    double end = seconds() + TRIAL_MS * 1e-3;
    for (int round = 0; m.memory && !*(bool *)higher && (round < 3 || seconds() < end); round++)
        *(bool *)higher = product(&formats[0], SAMPLE, &m) > 1.02 * peak.fp32;
    free(m.memory);
    if (*(bool *)higher) measure_all();
    vgpu_blas_leave();
    return NULL;
}

/* In a thread of its own: a product takes tens of KB of stack, more than a thread of the program may have. */
static void run_apart(void *(*run)(void *), void *argument) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        run(argument);
    else
        pthread_join(thread, NULL);
}

static void find_peak(void) {
    static char folder[4096], path[4160];
    int threads = openblas_get_num_threads();
    if (given(&peak)) return;
    bool cache = vgpu_cache_folder(folder, sizeof folder);
    if (cache) snprintf(path, sizeof path, "%.4090s/peak-%016llx", folder, (unsigned long long)cache_key(threads));
    snprintf(peak.source, sizeof peak.source, "best OpenBLAS product on this machine (%s, %d threads)",
             openblas_get_corename(), threads);
    bool known = cache && read_cache(path, &peak), higher = false;
    if (known)
        run_apart(try_higher, &higher);
    else
        run_apart(measure, NULL);
    if (cache && (!known || higher) && all_plausible(&peak)) write_cache(path, &peak);
}

void vgpu_peak_get(struct vgpu_peak *out) {
    pthread_once(&once, find_peak);
    *out = peak;
}
