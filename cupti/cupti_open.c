/* Finding and opening the vendor's libcupti, in the helper thread.
 *
 * Never linked: a program without CUPTI runs on. In this order: the virtual GPU's own, and no other, where the program
 * runs on that; one that is loaded already; by its bare name, and in the places where toolkits and wheels put it
 * relative to their runtime, the major version of the program's runtime first. */
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>
#include "cupti/cupti_inside.h"

struct cupti_api cupti_api;

/* ---- texts ---- */

void cupti_append(char *buf, size_t size, const char *first, ...) {
    size_t at = strnlen(buf, size - 1);
    va_list list;
    va_start(list, first);
    for (const char *s = first; s; s = va_arg(list, const char *))
        while (*s && at + 1 < size) buf[at++] = *s++;
    va_end(list);
    buf[at] = 0;
}

static const char *meaning(CUptiResult error) {
    switch ((int)error) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return "another profiler in this process already uses CUPTI";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return "no permission to trace the device";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
        return "CUPTI does not support this kind of device";
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
    case CUPTI_ERROR_NOT_COMPATIBLE:
        return "another profiling interface is in use";
    case CUPTI_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case CUPTI_ERROR_UNKNOWN:
        return "CUPTI could not start; without a driver it cannot";
    default:
        return "refused";
    }
}

static const char *decimal(char buf[12], uint32_t n) {
    char *p = buf + 11;
    *p = 0;
    do *--p = (char)('0' + n % 10);
    while (n /= 10);
    return p;
}

int cupti_failed(struct cupti_outcome *o, const char *function, CUptiResult error) {
    char number[12];
    o->status = (int32_t)error;
    o->why[0] = 0;
    cupti_append(o->why, sizeof o->why, function, ": ", meaning(error), " (error ", decimal(number, (uint32_t)error),
                 ")", NULL);
    return -1;
}

/* ---- places ---- */

#define PATH_BYTES 1024

/* Paths of what is loaded, "" where it is not. */
struct loaded {
    char cupti[PATH_BYTES], cudart[PATH_BYTES], cuda[PATH_BYTES];
};

/* "libcudart.so.13" and a wheel's "libcudart-abc.so.13" are `name` "libcudart"; "libcudadevrt.a" is not "libcuda". */
static int is_library(const char *base, const char *name) {
    size_t n = strlen(name);
    return !strncmp(base, name, n) && (base[n] == '.' || base[n] == '-');
}

static int note_loaded(struct dl_phdr_info *info, size_t size, void *arg) {
    struct loaded *l = arg;
    const char *path = info->dlpi_name, *base = path ? strrchr(path, '/') : NULL;
    (void)size;
    if (!base || strlen(path) >= PATH_BYTES) return 0;
    char *to = is_library(base + 1, "libcupti")    ? l->cupti
               : is_library(base + 1, "libcudart") ? l->cudart
               : is_library(base + 1, "libcuda")   ? l->cuda
                                                   : NULL;
    if (to && !*to) memcpy(to, path, strlen(path) + 1);
    return 0;
}

/* Only the directory of `path` is looked at. */
static void *open_beside(const char *path, const char *below, const char *name) {
    char full[PATH_BYTES + 64] = "";
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= PATH_BYTES) return NULL;
    memcpy(full, path, (size_t)(slash - path));
    full[slash - path] = 0;
    cupti_append(full, sizeof full, below, name, NULL);
    return dlopen(full, RTLD_NOW | RTLD_LOCAL);
}

static void *open_around(const char *library, const char *name) {
    static const char *const places[] = {
        "/",
        "/../extras/CUPTI/lib64/",       /* toolkit/lib64 */
        "/../../extras/CUPTI/lib64/",    /* a link to the next one */
        "/../../../extras/CUPTI/lib64/", /* toolkit/targets/x86_64-linux/lib */
        "/../../cuda_cupti/lib/",        /* wheels: nvidia/cuda_runtime/lib */
    };
    void *handle = NULL;
    for (size_t i = 0; *library && !handle && i < sizeof places / sizeof *places; i++)
        handle = open_beside(library, places[i], name);
    return handle;
}

static void *open_major(const struct loaded *l, const char *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) handle = open_around(l->cudart, name);
    if (!handle) handle = open_around(l->cuda, name);
    if (!handle) handle = open_beside("/usr/local/cuda/lib64/", "/", name);
    if (!handle) handle = open_beside("/usr/local/cuda/extras/CUPTI/lib64/", "/", name);
    return handle;
}

static void *find_library(const struct cupti_host *host, struct cupti_outcome *o) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
    struct loaded l = {"", "", ""};
    Dl_info where;
    void *handle = NULL, *virtual = host->find("acctVgpuDevice", "cudart");
    if (virtual) {
        if (dladdr(virtual, &where) && where.dli_fname) handle = open_beside(where.dli_fname, "/", names[0]);
        if (!handle) cupti_append(o->why, sizeof o->why, "no ", names[0], " beside the virtual GPU's runtime", NULL);
        return handle;
    }
    dl_iterate_phdr(note_loaded, &l);
    if (*l.cupti) handle = dlopen(l.cupti, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    int first = strstr(l.cudart, ".so.12") != NULL;
    if (!handle) handle = open_major(&l, names[first]);
    if (!handle) handle = open_major(&l, names[!first]);
    if (!handle)
        cupti_append(o->why, sizeof o->why, "libcupti was not found; name its folder in LD_LIBRARY_PATH", NULL);
    return handle;
}

/* ---- functions ---- */

static int fill_api(void *handle, struct cupti_outcome *o) {
#define X(f)                                                                                       \
    *(void **)&cupti_api.f = dlsym(handle, #f);                                                    \
    if (!cupti_api.f) {                                                                            \
        cupti_append(o->why, sizeof o->why, "the libcupti found is too old: it lacks ", #f, NULL); \
        return -1;                                                                                 \
    }
    CUPTI_FUNCTIONS(X)
#undef X
    return 0;
}

/* Numbers of CUDA 12.0 to 12.9 are 18 and a little more; from 13.0 on they are 10000 * major and more. */
static int check_version(struct cupti_outcome *o) {
    char number[12];
    CUptiResult error = cupti_api.cuptiGetVersion(&o->version);
    if (error) return cupti_failed(o, "cuptiGetVersion", error);
    if ((o->version >= 18 && o->version < 100) || o->version / 10000 == 13) return 0;
    cupti_append(o->why, sizeof o->why, "CUPTI's version ", decimal(number, o->version),
                 " is unknown to acct, which reads those of CUDA 12 and 13", NULL);
    return -1;
}

int cupti_open(const struct cupti_host *host, struct cupti_outcome *o) {
    void *handle = find_library(host, o);
    return !handle || fill_api(handle, o) || check_version(o) ? -1 : 0; /* stays open: its threads may run */
}
