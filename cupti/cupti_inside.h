/* What the parts of the collector of device times share. The helper thread owns all of it but the buffer pool, which
 * any thread may reach through CUPTI's callbacks, and the words of cupti_state, which are atomic. */
#ifndef ACCT_CUPTI_INSIDE_H
#define ACCT_CUPTI_INSIDE_H

#include <cupti.h>
#include <time.h>
#include "cupti/cupti.h"

/* ---- the vendor's library (cupti_open.c) ---- */

/* The functions used: all of them are needed. */
#define CUPTI_FUNCTIONS(X)                    \
    X(cuptiGetVersion)                        \
    X(cuptiSubscribe)                         \
    X(cuptiUnsubscribe)                       \
    X(cuptiActivityRegisterCallbacks)         \
    X(cuptiActivityRegisterTimestampCallback) \
    X(cuptiActivitySetAttribute)              \
    X(cuptiActivityEnable)                    \
    X(cuptiActivityDisable)                   \
    X(cuptiActivityEnableDriverApi)           \
    X(cuptiActivityEnableRuntimeApi)          \
    X(cuptiActivityPushExternalCorrelationId) \
    X(cuptiActivityPopExternalCorrelationId)  \
    X(cuptiActivityFlushAll)                  \
    X(cuptiActivityGetNextRecord)             \
    X(cuptiActivityGetNumDroppedRecords)

struct cupti_api {
#define X(f) __typeof__(f) *f;
    CUPTI_FUNCTIONS(X)
#undef X
};
extern struct cupti_api cupti_api; /* filled before cupti_on() */

#define CUPTI_WHY_BYTES 256
#define CUPTI_OUR_KIND CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2

/* What became of the start. */
struct cupti_outcome {
    int32_t status; /* CUptiResult of the call that failed, 0: none did, ACCT_NULL_I32: none was made */
    uint32_t version;
    char why[CUPTI_WHY_BYTES]; /* "": records are being taken */
};

/* Appends the texts (up to a NULL) to the NUL-terminated text in buf[size], cut off where it is full. */
void cupti_append(char *buf, size_t size, const char *first, ...) __attribute__((sentinel));
/* "FUNCTION: what the error means (error N)" into o->why, and the status. Answers -1. */
int cupti_failed(struct cupti_outcome *o, const char *function, CUptiResult error);

/* Finds and opens libcupti, and fills cupti_api. 0, or -1 with o->why. */
int cupti_open(const struct cupti_host *host, struct cupti_outcome *o);

/* ---- subscribing (cupti_enable.c) ---- */

/* Takes CUPTI's only subscriber: the first call of all. 0, or -1 with o. */
int cupti_subscribe(struct cupti_outcome *o);
/* Sets the attributes, our clock and the buffer callbacks, and enables the records. 0, or -1 with o. */
int cupti_enable(struct cupti_outcome *o);
/* Gives the subscriber back after a failure. */
void cupti_unsubscribe(void);

/* ---- buffers (cupti_buffer.c) ---- */

#define CUPTI_BUFFER_BYTES (128u << 10)
#define CUPTI_MAX_BUFFERS 512u

/* The callbacks that CUPTI makes, in whatever thread. */
void CUPTIAPI cupti_buffer_requested(uint8_t **buffer, size_t *bytes, size_t *max_records);
void CUPTIAPI cupti_buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);

/* A completed buffer that nobody has read yet. */
struct cupti_full {
    uint8_t *data;
    size_t valid;
    uint32_t number; /* for cupti_buffer_give_back */
};
/* The oldest one. 0: none. Helper thread. */
int cupti_buffer_next(struct cupti_full *out);
/* Read: CUPTI may have it again. */
void cupti_buffer_give_back(const struct cupti_full *full);
/* Forgets all buffers: before CUPTI is subscribed to. */
void cupti_buffers_reset(void);

/* ---- records (cupti_record.c, cupti_name.c) ---- */

/* Where the helper writes. */
struct cupti_out {
    struct ring_writer ring;
    uint64_t until_ns; /* no wait for room beyond this; 0: the program runs on, see cupti_room */
    int stuck;         /* the collector reads no more: records are dropped, and counted, at once */
};

/* Waits, in the helper thread, for room for a record of `bytes` and a text. 0: there is none; the record is to be
 * written all the same, so that the ring counts it. */
int cupti_room(struct cupti_out *out, size_t bytes, size_t text_bytes);
/* Writes the events for the records of a completed buffer. */
void cupti_read(struct cupti_out *out, const struct cupti_full *full);
/* Number of the name, told (NAME) at its first use; 0: none, or no memory for it. */
uint32_t cupti_name(struct cupti_out *out, const char *name);
/* Forgets all names: a new trace begins. */
void cupti_names_reset(void);
/* The CUPTI record. why == NULL: there are device times. */
void cupti_tell(struct ring_writer *w, const struct cupti_outcome *o, const char *why, int64_t dropped);

/* ---- state (cupti_life.c) ---- */

enum cupti_step {
    CUPTI_NONE,    /* not started, or a forked child */
    CUPTI_OPENING, /* the helper looks for the library: needs the loader's lock */
    CUPTI_ASKING,  /* the helper calls CUPTI */
    CUPTI_READY,
    CUPTI_REFUSED,
};

/* A page that the kernel wipes in a forked child. */
struct cupti_state {
    struct cupti_page page;       /* first */
    _Atomic uint32_t serving;     /* 1: buffers are given and taken */
    _Atomic uint32_t step;        /* enum cupti_step; futex */
    _Atomic uint32_t left;        /* who started the helper waits no more: it tells the outcome itself */
    _Atomic uint32_t wake;        /* futex: the helper sleeps on it */
    _Atomic uint32_t want_flush;  /* forced flushes asked for … */
    _Atomic uint32_t flushed;     /* … and done; futex */
    _Atomic uint32_t want_end;    /* 1: the helper is to end */
    _Atomic uint32_t ended;       /* futex */
    _Atomic uint32_t exiting;     /* the program has begun to exit */
    _Atomic uint32_t used;        /* a marked call has returned: CUDA is initialised */
    uint32_t pid;                 /* of the process that started it */
    struct cupti_outcome outcome; /* written before step is READY or REFUSED */
};
struct cupti_state *cupti_state(void); /* NULL: none */
void cupti_wake_helper(struct cupti_state *s);
/* The first marked call has returned. In the program's thread. */
void cupti_used(void);

static inline uint64_t cupti_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
