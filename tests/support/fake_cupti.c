/* The scripted libcupti. It holds the tool to the vendor's rules (subscribe first, attributes before records, buffers
 * left alone while CUPTI has them, nothing in a forked child), and notes the first one broken; FAKE_CUPTI_LOG names a
 * file to which a program under test so reports.
 *
 * Records lie in a buffer each behind a length of 8 bytes: the vendor's layout is the vendor's, tools walk with
 * cuptiActivityGetNextRecord. */
#include "fake_cupti.h"
#include <cupti.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_cupti fake_cupti = {.version = 130001};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc requested;
static CUpti_BuffersCallbackCompleteFunc completed;
static CUpti_TimestampCallbackFunc timestamp;
static pid_t owner;
static uint8_t *buffer, *shadow; /* the one at hand, and what was written to it */
static size_t buffer_bytes, used, dropped, emitted;
static uint32_t correlation;
static __thread struct {
    uint32_t kind;
    uint64_t id;
} stack[16];
static __thread int depth;

static void violation(const char *what) {
    const char *log = getenv("FAKE_CUPTI_LOG");
    if (!fake_cupti.violation[0]) snprintf(fake_cupti.violation, sizeof fake_cupti.violation, "%s", what);
    int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    dprintf(fd, "%s\n", what);
    close(fd);
}

/* FAKE_CUPTI="fail=cuptiSubscribe error=39" */
__attribute__((constructor)) static void read_script(void) {
    const char *script = getenv("FAKE_CUPTI");
    char key[32], value[64];
    for (int n; script && sscanf(script, " %31[^=]=%63s%n", key, value, &n) == 2; script += n) {
#define TEXT(f) \
    if (!strcmp(key, #f)) snprintf(fake_cupti.f, sizeof fake_cupti.f, "%s", value)
#define NUMBER(f) \
    if (!strcmp(key, #f)) fake_cupti.f = atoi(value)
        TEXT(fail);
        TEXT(hang);
        NUMBER(error);
        NUMBER(hang_ms);
        NUMBER(version);
        NUMBER(incomplete);
        NUMBER(eager);
        NUMBER(zero_times);
        NUMBER(longer);
        NUMBER(lose);
        NUMBER(stray_record);
        NUMBER(dies);
    }
}

static _Atomic int dead;
static void die(void) {
    dead = 1;
}

static CUptiResult enter(const char *function) {
    if (!strcmp(fake_cupti.hang, function)) usleep((useconds_t)fake_cupti.hang_ms * 1000);
    if (owner && owner != getpid()) violation("called in a forked child");
    if (dead) return CUPTI_ERROR_NOT_INITIALIZED;
    return strcmp(fake_cupti.fail, function) ? CUPTI_SUCCESS : (CUptiResult)fake_cupti.error;
}
#define ENTER                                \
    do {                                     \
        CUptiResult error = enter(__func__); \
        if (error) return error;             \
    } while (0)

static void need_subscriber(void) {
    if (!fake_cupti.subscribed) violation("an activity call before cuptiSubscribe");
}

/* ---- buffers ---- */

EXPORT uint8_t *fake_ask(size_t *bytes) {
    uint8_t *p = NULL;
    size_t most = 99;
    *bytes = 0;
    if (owner != getpid()) violation("a buffer asked for in a forked child");
    requested(&p, bytes, &most);
    if (p)
        fake_cupti.buffers_asked++;
    else
        fake_cupti.buffers_refused++;
    if (p && ((uintptr_t)p % 8 || *bytes < 4096 || most)) violation("a buffer that is small, unaligned or limited");
    return p;
}

EXPORT void fake_complete(uint8_t *p, size_t bytes, size_t valid) {
    fake_cupti.buffers_completed++;
    completed(NULL, 0, p, bytes, valid);
}

static void give_buffer_back(void) {
    if (!buffer) return;
    if (memcmp(buffer, shadow, used)) violation("a buffer was changed while CUPTI had it");
    fake_complete(buffer, buffer_bytes, used);
    buffer = NULL;
}

static void emit(const void *record, size_t bytes) {
    uint64_t length = (bytes + 7) / 8 * 8;
    if (fake_cupti.lose && ++emitted % (size_t)fake_cupti.lose == 0) {
        dropped++;
        return;
    }
    if (buffer && used + 8 + length > buffer_bytes) give_buffer_back();
    if (!buffer) {
        buffer = fake_ask(&buffer_bytes);
        used = 0;
        if (buffer && !(shadow = realloc(shadow, buffer_bytes))) abort();
    }
    if (!buffer) {
        dropped++;
        return;
    }
    memcpy(shadow + used, &length, 8);
    memset(shadow + used + 8, 0, length);
    memcpy(shadow + used + 8, record, bytes);
    memcpy(buffer + used, shadow + used, 8 + length);
    used += 8 + length;
}

EXPORT void fake_emit(const void *record, size_t bytes) {
    pthread_mutex_lock(&lock);
    emit(record, bytes);
    pthread_mutex_unlock(&lock);
}

EXPORT uint64_t fake_clock(void) {
    return timestamp();
}

/* A kernel that the marked call started: correlation, API record, kernel. */
static void run_kernel(uint32_t kind, uint64_t id) {
    union {
        CUpti_ActivityKernel10 k;
        char room[1024];
    } r;
    CUpti_ActivityAPI api = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME};
    CUpti_ActivityExternalCorrelation x = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                           .externalKind = (CUpti_ExternalCorrelationKind)kind,
                                           .externalId = id};
    memset(&r, 0, sizeof r);
    pthread_mutex_lock(&lock);
    api.correlationId = x.correlationId = r.k.correlationId = ++correlation;
    emit(&x, sizeof x);
    emit(&api, sizeof api);
    r.k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    r.k.name = "_Z4fakev";
    r.k.gridX = r.k.gridY = r.k.gridZ = r.k.blockX = r.k.blockY = r.k.blockZ = 1;
    r.k.streamId = 7;
    r.k.end = fake_cupti.zero_times ? 0 : timestamp();
    r.k.start = fake_cupti.zero_times ? 0 : r.k.end - (uint64_t)fake_cupti.eager;
    emit(&r, sizeof r.k + (size_t)fake_cupti.longer);
    fake_cupti.kernels++;
    pthread_mutex_unlock(&lock);
}

/* ---- the vendor's functions ---- */

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version) {
    ENTER;
    *version = fake_cupti.version;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *s, CUpti_CallbackFunc callback, void *data) {
    ENTER;
    (void)data;
    if (!callback) violation("cuptiSubscribe without a callback");
    if (fake_cupti.subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    fake_cupti.subscribed = 1;
    owner = getpid();
    *s = (CUpti_SubscriberHandle)&fake_cupti;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle s) {
    ENTER;
    if (s != (CUpti_SubscriberHandle)&fake_cupti) violation("cuptiUnsubscribe of another");
    fake_cupti.subscribed = 0;
    fake_cupti.unsubscribed++;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                           CUpti_BuffersCallbackCompleteFunc complete) {
    need_subscriber();
    ENTER;
    requested = request;
    completed = complete;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f) {
    need_subscriber();
    ENTER;
    if (fake_cupti.kinds_enabled) violation("the clock was changed after records were enabled");
    timestamp = f;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *bytes, void *value) {
    need_subscriber();
    ENTER;
    if (fake_cupti.kinds_enabled) violation("an attribute was set after records were enabled");
    if (attribute == CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED) {
        if (*bytes != 1) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
        fake_cupti.pinned = *(uint8_t *)value;
    } else if (*bytes != sizeof(size_t))
        violation("an attribute of a wrong size");
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
    need_subscriber();
    ENTER;
    if (!requested || !timestamp) violation("records enabled before the callbacks were registered");
    if (kind == CUPTI_ACTIVITY_KIND_KERNEL) violation("KIND_KERNEL serialises the program's kernels");
    fake_cupti.kinds_enabled++;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
    (void)kind;
    need_subscriber();
    ENTER;
    if (fake_cupti.kinds_enabled) fake_cupti.kinds_enabled--;
    return CUPTI_SUCCESS;
}

static CUptiResult enable_call(uint8_t *on, CUpti_CallbackId id, CUpti_CallbackId size, uint8_t enable) {
    need_subscriber();
    if (id >= size) return CUPTI_ERROR_INVALID_PARAMETER;
    fake_cupti.calls_enabled += !!enable - on[id];
    on[id] = !!enable;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
    static uint8_t on[CUPTI_DRIVER_TRACE_CBID_SIZE];
    ENTER;
    return enable_call(on, id, CUPTI_DRIVER_TRACE_CBID_SIZE, enable);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
    static uint8_t on[CUPTI_RUNTIME_TRACE_CBID_SIZE];
    ENTER;
    return enable_call(on, id, CUPTI_RUNTIME_TRACE_CBID_SIZE, enable);
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    ENTER;
    if (fake_cupti.dies == 1 && ++fake_cupti.dies == 2) atexit(die);
    if (depth == 16) return CUPTI_ERROR_OUT_OF_MEMORY;
    stack[depth].kind = kind;
    stack[depth++].id = id;
    fake_cupti.pushes++;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *id) {
    ENTER;
    if (!depth || stack[depth - 1].kind != kind) {
        violation("pop without push");
        return CUPTI_ERROR_QUEUE_EMPTY;
    }
    *id = stack[--depth].id;
    fake_cupti.pops++;
    if (fake_cupti.eager) run_kernel(kind, *id);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
    need_subscriber();
    ENTER;
    pthread_mutex_lock(&lock);
    fake_cupti.flushes++;
    fake_cupti.forced += flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED;
    if (flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED || !fake_cupti.incomplete) give_buffer_back();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n) {
    (void)context, (void)stream;
    ENTER;
    pthread_mutex_lock(&lock);
    *n = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *p, size_t valid, CUpti_Activity **record) {
    uint64_t length;
    ENTER;
    uint8_t *at = *record ? (uint8_t *)*record : NULL;
    if (at) {
        memcpy(&length, at - 8, 8);
        at += length + 8;
    } else
        at = p + 8;
    if (fake_cupti.stray_record == 1) at = p + valid + 4096;
    if (fake_cupti.stray_record == 2) at = p + 8;
    if (fake_cupti.stray_record == 3) at = p + valid - 4;
    if (!fake_cupti.stray_record && at >= p + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)at;
    return CUPTI_SUCCESS;
}
