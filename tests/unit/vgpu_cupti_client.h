/* A client of CUPTI for the tests, written against the vendor's headers: buffers, and every record that came, copied in
 * the order of their coming. */
#ifndef VGPU_CUPTI_CLIENT_H
#define VGPU_CUPTI_CLIENT_H

#include "tests/unit/vgpu_testing.h"

#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { CLIENT_RECORDS = 20000, CLIENT_BUFFER = 64 << 10 };

union record {
    CUpti_Activity base;
    CUpti_ActivityAPI api;
    CUpti_ActivityKernel10 kernel;
    CUpti_ActivityMemcpy6 copy;
    CUpti_ActivityMemset4 fill;
    CUpti_ActivityExternalCorrelation external;
};

static struct client {
    pthread_mutex_t lock;
    union record records[CLIENT_RECORDS];
    size_t n, buffers_out, buffers_back, bytes, limit; /* bytes, limit: of the next buffers */
    size_t first[CLIENT_RECORDS];                      /* of each buffer that came back: its first record */
    bool refuse;                                       /* gives no buffer */
    bool untouched; /* the end of the last buffer that came back is as it was given */
    bool flush;     /* flushes when a buffer comes back */
    pthread_t gave_back_on;
} client = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes = CLIENT_BUFFER};

static inline size_t record_size(CUpti_ActivityKind kind) {
    switch ((int)kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    default:
        return sizeof(CUpti_ActivityAPI);
    }
}

static inline void CUPTIAPI client_request(uint8_t **buffer, size_t *size, size_t *limit) {
    pthread_mutex_lock(&client.lock);
    *buffer = client.refuse ? NULL : malloc(client.bytes);
    if (*buffer) memset(*buffer, 0xaa, client.bytes);
    *size = client.refuse ? 0 : client.bytes;
    *limit = client.limit;
    client.buffers_out += !client.refuse;
    pthread_mutex_unlock(&client.lock);
}

static inline void CUPTIAPI client_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                            size_t valid) {
    CUpti_Activity *r = NULL;
    pthread_mutex_lock(&client.lock);
    client.gave_back_on = pthread_self();
    client.first[client.buffers_back++] = client.n;
    if (context || stream || valid > size) abort();
    client.untouched = valid < size && buffer[size - 1] == 0xaa;
    while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        if (client.n < CLIENT_RECORDS) memcpy(&client.records[client.n++], r, record_size(r->kind));
    free(buffer);
    bool flush = client.flush;
    pthread_mutex_unlock(&client.lock);
    if (flush && cuptiActivityFlushAll(0)) abort();
}

static inline uint64_t CUPTIAPI client_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* All work done, all records here. */
static inline void client_collect(void) {
    OK(cudaDeviceSynchronize());
    OK(cuptiActivityFlushAll(0));
}

static inline size_t client_count(int kind) {
    size_t n = 0;
    for (size_t i = 0; i < client.n; i++) n += (int)client.records[i].base.kind == kind;
    return n;
}

/* Waits until so many records came, without a flush; false: they did not come in 10 s. */
static inline bool client_waits(size_t records) {
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&client.lock);
        bool here = client.n >= records;
        pthread_mutex_unlock(&client.lock);
        if (here) return true;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return false;
}

/* The i-th record of a kind; the test fails if there is none. */
static inline const union record *client_record(int kind, size_t i) {
    for (size_t k = 0; k < client.n; k++)
        if ((int)client.records[k].base.kind == kind && !i--) return &client.records[k];
    fail_msg("there are only %zu records of kind %d", client_count(kind), kind);
    return NULL;
}

/* Before each test: nothing enabled, nothing kept. */
static inline int client_reset(void **state) {
    (void)state;
    size_t dropped;
    for (int kind = 1; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++) cuptiActivityDisable((CUpti_ActivityKind)kind);
    pthread_mutex_lock(&client.lock);
    client.refuse = client.flush = false, client.bytes = CLIENT_BUFFER, client.limit = 0;
    pthread_mutex_unlock(&client.lock);
    OK(cuptiActivityRegisterCallbacks(client_request, client_complete));
    client_collect();
    cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
    client.n = client.buffers_out = client.buffers_back = 0;
    return 0;
}

#endif
