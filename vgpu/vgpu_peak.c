/* The peak of this machine: the most FLOP/s that OpenBLAS reached in large products, with the threads it will use.
 * Measured once a machine and cached; the key holds what changes the figure. */
#include "vgpu/vgpu_engine.h"
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

enum { BUDGET_MS = 800 }; /* for each of the two types */

static struct vgpu_peak peak;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One product of n × n matrices in FLOP/s, by the wall clock: what a program can get. (Processor time, tempting on a
 * busy machine, is not to be trusted in a virtual one: a product seemed to run at 1.8 times what the processor can do.)
 */
static double product(bool doubles, int n, const void *a, const void *b, void *c) {
    double start = seconds();
    if (doubles)
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a, n, b, n, 0, c, n);
    else
        cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a, n, b, n, 0, c, n);
    return 2.0 * n * n * n / (seconds() - start);
}

/* The best of many short products: some of them have the processors to themselves, be the machine ever so busy. */
static double best_of(bool doubles) {
    static const int sizes[] = {512, 768, 1024, 1536};
    const double patience = 0.2; /* seconds for one product: on a slow machine the larger ones are left out */
    enum { LARGEST = 1536, N = LARGEST * LARGEST };
    size_t element = doubles ? sizeof(double) : sizeof(float);
    char *memory = malloc(3 * N * element);
    double best = 0, end = seconds() + BUDGET_MS * 1e-3;
    if (!memory) return NAN;
    for (size_t i = 0; i < 2 * N; i++)
        if (doubles)
            ((double *)(void *)memory)[i] = (double)(i % 17) - 8;
        else
            ((float *)(void *)memory)[i] = (float)(i % 17) - 8;
    for (int round = 0; round < 2 || seconds() < end; round++) {
        int n = sizes[round % 4];
        if (best > 0 && 2.0 * n * n * n > patience * best) n = sizes[0];
        double rate = product(doubles, n, memory, memory + N * element, memory + 2 * N * element);
        if (round && rate > best) /* the first one wakes threads and touches pages */
            best = rate;
    }
    free(memory);
    return best;
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
    snprintf(all, sizeof all, "2\n%s\n%d cores\n%s\n%s\n%s\n%d threads", cpu, vgpu_cores(), openblas_get_config(),
             openblas_get_corename(), type ? type : "", threads);
    return hash(all);
}

static bool plausible(double v) {
    return v > 1e6 && v < 1e18;
}

static bool read_cache(const char *path, struct vgpu_peak *p) {
    char end[8] = "";
    FILE *f = fopen(path, "re");
    if (!f) return false;
    int n = fscanf(f, "acct peak 1 fp32 %lf fp64 %lf %7s", &p->fp32, &p->fp64, end);
    fclose(f);
    return n == 3 && !strcmp(end, "end") && plausible(p->fp32) && plausible(p->fp64);
}

/* Written beside and renamed, so that no reader sees half a file. Failure is no matter: it is measured again. */
static void write_cache(const char *path, const struct vgpu_peak *p) {
    static char beside[4200];
    char text[128];
    snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
    int n = snprintf(text, sizeof text, "acct peak 1 fp32 %.6e fp64 %.6e end\n", p->fp32, p->fp64);
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
    p->fp32 = v;
    p->fp64 = NAN;
    snprintf(p->source, sizeof p->source, "given by ACCT_VGPU_PEAK");
    return true;
}

static void *measure(void *unused) {
    vgpu_blas_enter();
    peak.fp32 = best_of(false);
    peak.fp64 = best_of(true);
    vgpu_blas_leave();
    return unused;
}

/* In a thread of its own: a product takes tens of KB of stack, more than a thread of the program may have. */
static void measure_apart(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, measure, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        measure(NULL);
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
    if (cache && read_cache(path, &peak)) return;
    measure_apart();
    if (cache && plausible(peak.fp32) && plausible(peak.fp64)) write_cache(path, &peak);
}

void vgpu_peak_get(struct vgpu_peak *out) {
    pthread_once(&once, find_peak);
    *out = peak;
}
