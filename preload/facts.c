#include "preload/facts.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "acct/vgpu.h"
#include "cupti/cupti.h"
#include "preload/hook.h"
#include "preload/real.h"
#include "preload/sys.h"

extern char **environ;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define SCRATCH_BYTES (1u << 20)

/* For what would be much on a stack: the thread may have a small one. NULL: no memory. */
static void *map_scratch(void) {
    void *p = mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- process ------------------------------------------------------------------------------------------------- */

/* Variables that change what CUDA computes or allocates. A name that ends in * is a prefix. */
static const char *const told_variables[] = {
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULATE*",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "XLA_PYTHON_CLIENT_*",
    "XLA_FLAGS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "ACCT_VGPU*",
};

static int is_told(const char *variable) {
    for (size_t i = 0; i < sizeof told_variables / sizeof *told_variables; i++) {
        size_t n = strlen(told_variables[i]);
        int prefix = told_variables[i][n - 1] == '*';
        if (!strncmp(variable, told_variables[i], n - (size_t)prefix) && (prefix || variable[n] == '=')) return 1;
    }
    return 0;
}

static struct acct_text tell_environment(struct ring_writer *w, char *scratch) {
    size_t at = 0;
    for (char **e = environ; e && *e; e++) {
        size_t n = strlen(*e) + 1;
        if (!is_told(*e) || at + n > SCRATCH_BYTES) continue;
        memcpy(scratch + at, *e, n);
        at += n;
    }
    return ring_text(w, scratch, at);
}

static struct acct_text tell_argv(struct ring_writer *w, char *scratch) {
    int fd = sys_open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    for (long n = 1; fd >= 0 && n > 0 && at<SCRATCH_BYTES; at += n> 0 ? (size_t)n : 0)
        n = sys_read(fd, scratch + at, SCRATCH_BYTES - at);
    if (fd >= 0) sys_close(fd);
    return ring_text(w, fd >= 0 && at < SCRATCH_BYTES ? scratch : NULL, at);
}

static struct acct_text tell_path(struct ring_writer *w, char *scratch, long bytes) {
    return ring_text(w, bytes > 0 ? scratch : NULL, bytes > 0 ? (size_t)bytes : 0);
}

void facts_tell_process(struct ring_writer *w) {
    struct timespec utc;
    char *scratch = map_scratch();
    struct acct_ev_process *r = scratch ? ring_begin(w, ACCT_EV_PROCESS, sizeof *r, hook_now()) : NULL;
    if (r) {
        clock_gettime(CLOCK_REALTIME, &utc);
        r->utc_ns = (uint64_t)utc.tv_sec * 1000000000u + (uint64_t)utc.tv_nsec;
        r->pid = sys_getpid();
        r->ppid = (int64_t)syscall(SYS_getppid);
        r->exe = tell_path(w, scratch, syscall(SYS_readlink, "/proc/self/exe", scratch, (size_t)4096));
        long n = syscall(SYS_getcwd, scratch, (size_t)4096); /* counts the NUL */
        r->cwd = tell_path(w, scratch, n - 1);
        r->argv = tell_argv(w, scratch);
        r->environment = tell_environment(w, scratch);
        ring_commit(w);
    }
    if (scratch) munmap(scratch, SCRATCH_BYTES);
}

/* ---- device -------------------------------------------------------------------------------------------------- */

typedef int get_int_fn(int *);
typedef int attribute_fn(int *, int, int);
typedef int properties_fn(void *, int);

/* cudaDeviceAttr values; the same in every version. */
enum { ATTR_CLOCK_RATE = 13, ATTR_SM_COUNT = 16, ATTR_CC_MAJOR = 75, ATTR_CC_MINOR = 76 };
/* What all versions of cudaDeviceProp begin with; used in room for any of them. */
struct properties {
    char name[256];
    char uuid[16], luid[8];
    unsigned int luid_node_mask;
    size_t total_bytes;
};

int facts_current_device(void) {
    static get_int_fn *_Atomic get_device;
    get_int_fn *f = atomic_load_explicit(&get_device, memory_order_relaxed);
    int ordinal = -1;
    if (!f) {
        f = (get_int_fn *)real_find_quietly("cudaGetDevice", "cudart");
        if (!f) return -1;
        atomic_store_explicit(&get_device, f, memory_order_relaxed);
    }
    return f(&ordinal) == 0 ? ordinal : -1;
}

int facts_device_of(const void *address) {
    typedef int fn(void *, const void *);
    static fn *_Atomic get_attributes;
    struct { /* what all versions of cudaPointerAttributes begin with, in room for any of them */
        int type, device;
        char rest[248];
    } a = {0, -1, ""};
    struct facts_question q;
    fn *f = atomic_load_explicit(&get_attributes, memory_order_relaxed);
    if (!f) {
        f = (fn *)real_find_quietly("cudaPointerGetAttributes", "cudart");
        if (!f) return -1;
        atomic_store_explicit(&get_attributes, f, memory_order_relaxed);
    }
    if (!facts_question_begin(&q)) return -1;
    int error = f(&a, address);
    facts_question_end(&q);
    return error ? -1 : a.device;
}

static int32_t attribute(attribute_fn *f, int which, int ordinal) {
    int value;
    return f && f(&value, which, ordinal) == 0 ? value : ACCT_NULL_I32;
}

/* A virtual GPU of before does not fill these in. */
static double measured(double peak) {
    return peak > 0 ? peak : (double)NAN;
}

static void tell_virtual(struct ring_writer *w, struct acct_ev_device *r) {
    typedef int fn(int, struct acct_vgpu_device *);
    fn *ask = (fn *)real_find_quietly("acctVgpuDevice", "cudart");
    struct acct_vgpu_device v;
    memset(&v, 0, sizeof v);
    v.struct_bytes = sizeof v;
    if (!ask || ask(r->ordinal, &v) != 0) return;
    v.peak_source[sizeof v.peak_source - 1] = 0;
    r->clock = v.clock;
    r->peak_fp32 = v.peak_fp32;
    r->peak_fp64 = v.peak_fp64;
    r->peak_tf32 = measured(v.peak_tf32);
    r->peak_bf16 = measured(v.peak_bf16);
    r->peak_fp16 = measured(v.peak_fp16);
    r->peak_fp8 = measured(v.peak_fp8);
    r->bytes_per_s = measured(v.bytes_per_s);
    r->peak_source = ring_text(w, *v.peak_source ? v.peak_source : NULL, strlen(v.peak_source));
}

/* p: NULL where the properties are not to be had. */
static void describe(struct ring_writer *w, struct acct_ev_device *r, int ordinal, const struct properties *p) {
    attribute_fn *ask = (attribute_fn *)real_find_quietly("cudaDeviceGetAttribute", "cudart");
    r->ordinal = ordinal;
    r->name = ring_text(w, p ? p->name : NULL, p ? strnlen(p->name, sizeof p->name) : 0);
    r->total_bytes = p ? (int64_t)p->total_bytes : ACCT_NULL_I64;
    r->cc_major = attribute(ask, ATTR_CC_MAJOR, ordinal);
    r->cc_minor = attribute(ask, ATTR_CC_MINOR, ordinal);
    r->sm_count = attribute(ask, ATTR_SM_COUNT, ordinal);
    r->clock_khz = attribute(ask, ATTR_CLOCK_RATE, ordinal);
    r->clock = cupti_on() ? ACCT_clock_GPU : ACCT_clock_HOST; /* a virtual GPU says itself what its times are */
    r->peak_fp32 = r->peak_fp64 = r->peak_tf32 = r->peak_bf16 = r->peak_fp16 = r->peak_fp8 = r->bytes_per_s = NAN;
    r->peak_source = ring_text(w, NULL, 0);
    tell_virtual(w, r);
}

void facts_tell_device(struct ring_writer *w, int ordinal) {
    struct facts_question q;
    properties_fn *properties = (properties_fn *)real_find_quietly("cudaGetDeviceProperties_v2", "cudart");
    if (!properties) properties = (properties_fn *)real_find_quietly("cudaGetDeviceProperties", "cudart");
    struct properties *p = map_scratch();
    facts_question_begin(&q);
    int known = p && properties && properties(p, ordinal) == 0;
    struct acct_ev_device *r = ring_begin(w, ACCT_EV_DEVICE, sizeof *r, hook_now());
    if (r) {
        describe(w, r, ordinal, known ? p : NULL);
        ring_commit(w);
    }
    facts_question_end(&q);
    if (p) munmap(p, SCRATCH_BYTES);
}

/* ---- ring pages ---------------------------------------------------------------------------------------------- */

/* Kernels before 5.14 have no MADV_POPULATE_WRITE. A copy of one byte of each page onto itself, made by the kernel, has
 * the same effect, and fails where a touch would be SIGBUS. The bytes are either unused or written by this thread only.
 */
static int touch_pages(unsigned char *p, size_t bytes) {
    enum { PAGES = 512, PAGE = 4096 };
    struct iovec v[PAGES];
    for (size_t at = 0; at < bytes;) {
        unsigned n = 0;
        for (; n < PAGES && at < bytes; n++, at += PAGE) v[n] = (struct iovec){p + at, 1};
        if (syscall(SYS_process_vm_readv, sys_getpid(), v, n, v, n, 0) != (long)n) return 0;
    }
    return 1;
}

int facts_make_present(void *start, size_t bytes) {
    int saved = errno;
    int ok = madvise(start, bytes, MADV_POPULATE_WRITE) == 0 || (errno == EINVAL && touch_pages(start, bytes));
    errno = saved;
    return ok;
}

int facts_claim_ring(struct acct_control *c) {
    int ring = ring_claim(c);
    if (ring < 0 ||
        facts_make_present((unsigned char *)c + ring_area_offset(c, (unsigned)ring), ACCT_RING_HEADER_BYTES))
        return ring;
    /* Back as it was for whoever reads it: one whose page is missing was never written to. */
    atomic_store_explicit(&c->ring_state[ring], ACCT_RING_RETIRED, memory_order_release);
    return -1;
}
