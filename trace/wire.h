/* The shared memory between a traced program and its collector, and the records in it.
 *
 * One memfd a process: a control page, then ACCT_MAX_RINGS areas, used one by one as threads appear. An area is a ring
 * header, `ring_slots` slots of 64 bytes, and `blob_bytes` of blob ring. Offsets and sizes are in the control block, as
 * the program laid it out; the collector checks each before it believes it. There are no pointers in shared memory.
 *
 * Writer: the thread that owns the ring (single producer). Reader: the collector (single consumer). `head` and `tail`
 * count slots for ever (not modulo): the writer publishes records with a release store of head, the reader frees slots
 * with a release store of tail. The same for the blob ring, in bytes.
 */
#ifndef ACCT_TRACE_WIRE_H
#define ACCT_TRACE_WIRE_H

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>

#define ACCT_WIRE_MAGIC 0x74636361u /* "acct" */
#define ACCT_WIRE_VERSION 4u
#define ACCT_SLOT_BYTES 64u
#define ACCT_MAX_RINGS 512u
#define ACCT_MAX_SLOTS 255u /* of one record */
#define ACCT_MESSAGE_BYTES 512u

#define ACCT_NULL_I64 INT64_MIN
#define ACCT_NULL_I32 INT32_MIN
#define ACCT_NO_STREAM UINT64_MAX /* hdr.stream of a call that names none */
#define ACCT_TEXT_NULL 1u         /* acct_text.flags: the text is not known */
#define ACCT_TEXT_LOST 2u         /* the blob ring was full */

/* hdr.flags */
#define ACCT_REC_CONTINUES 1u /* belongs to the op before it in this ring (the next group of a grouped GEMM) */

/* A text or byte string in the owner's blob ring. */
struct acct_text {
    uint64_t position; /* counts bytes for ever, like head and tail; contiguous: never wraps inside */
    uint32_t bytes;
    uint32_t flags; /* ACCT_TEXT_* */
};

/* Head of every record. Times: CLOCK_MONOTONIC, ns. For INFO events only event, slots and start_ns mean something. */
struct acct_rec {
    uint16_t event; /* enum acct_event */
    uint8_t slots;  /* of this record, 1… */
    uint8_t flags;  /* ACCT_REC_* */
    uint32_t api;   /* function that was called: number of an API event */
    int32_t status; /* what it returned: cudaError_t, cublasStatus_t, … of that API's library; 0 success */
    int32_t device; /* ordinal, ACCT_NULL_I32 if not known */
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t stream; /* handle; 0 the legacy default stream; ACCT_NO_STREAM */
};

/* Enums: ACCT_MEMORY_DEVICE = 1, … */
#define ENUM(e, N, v, text) ACCT_##e##_##N = v,
enum acct_enum_values {
#include "trace/events.def"
    acct_enum_values_end
};

/* Event numbers: ACCT_EV_PAD = 0, … */
#define EVENT(N, n, c, doc) ACCT_EV_##N,
enum acct_event {
#include "trace/events.def"
    ACCT_EV_COUNT
};

/* Records: struct acct_ev_alloc { struct acct_rec hdr; uint64_t address; … } */
typedef uint64_t acct_t_u64;
typedef int64_t acct_t_i64;
typedef uint32_t acct_t_u32;
typedef int32_t acct_t_i32;
typedef double acct_t_f64;
typedef struct acct_text acct_t_text, acct_t_bytes;
typedef uint32_t acct_t_e_memory, acct_t_e_direction, acct_t_e_dtype, acct_t_e_compute, acct_t_e_trans, acct_t_e_scalar,
    acct_t_e_side, acct_t_e_uplo, acct_t_e_stream_act, acct_t_e_event_act, acct_t_e_sync_scope, acct_t_e_clock,
    acct_t_e_activity, acct_t_e_epilogue, acct_t_e_scale_mode, acct_t_e_meminfo_why;

#define EVENT(N, n, c, doc) \
    struct acct_ev_##n {    \
        struct acct_rec hdr;
#define FIELD(N, t, f, doc) acct_t_##t f;
#define END(N) \
    }          \
    ;
#include "trace/events.def"

/* Life of the traced program as it tells it itself (acct_control.program_state). */
enum acct_program_state {
    ACCT_PROGRAM_RUNNING = 1,
    ACCT_PROGRAM_EXITING = 2, /* exit() or return from main: the library waits for `committed` */
};

/* Ring area states (acct_control.ring_state[i]). FREE → OWNED by the claiming thread (compare and swap); OWNED →
 * RETIRED by that thread when it ends; RETIRED → FREE by the collector once drained, or RETIRED → OWNED by another
 * thread that goes on behind the records in it, its THREAD record first (so both compare and swap). A FREE ring keeps
 * head and tail. */
enum acct_ring_state { ACCT_RING_FREE = 0, ACCT_RING_OWNED = 1, ACCT_RING_RETIRED = 2 };

/* First page(s) of the memfd. The program writes the first block once, before the descriptor is sent. */
struct acct_control {
    uint32_t magic;
    uint32_t version;
    uint32_t max_rings;  /* ≤ ACCT_MAX_RINGS */
    uint32_t ring_slots; /* a power of two */
    uint32_t blob_bytes; /* a power of two */
    uint32_t pid;
    uint64_t rings_offset; /* of ring area 0 from the start of the memfd, page aligned */
    uint64_t ring_stride;  /* from one area to the next, page aligned */
    uint64_t total_bytes;  /* of the memfd */

    /* Futex words. The collector sleeps on `wake` with `sleeping` = 1; a writer whose ring is a quarter full (or that
     * exits) adds one to `wake` and wakes it. */
    _Alignas(64) _Atomic uint32_t wake;
    _Atomic uint32_t sleeping;
    _Atomic uint32_t program_state; /* enum acct_program_state */
    _Atomic uint32_t exit_known;    /* 1: exit_status below is what was given to exit() */
    _Atomic int32_t exit_status;

    _Alignas(64) _Atomic uint32_t committed; /* futex; the collector sets 1 after its last commit, 2 when it gave up */
    _Atomic uint32_t collector_pid;
    char message[ACCT_MESSAGE_BYTES]; /* if committed == 2: why, one line, written before the store to `committed` */

    _Alignas(64) _Atomic uint64_t lost_no_ring;  /* records of threads for which no ring was free */
    _Atomic uint32_t ring_state[ACCT_MAX_RINGS]; /* enum acct_ring_state */
};

/* Head of a ring area; the slots follow at ACCT_RING_HEADER_BYTES, the blob bytes after them. */
struct acct_ring {
    _Alignas(64) _Atomic uint64_t head; /* slots written; the writer's line */
    _Atomic uint64_t blob_head;         /* bytes written */
    _Atomic uint64_t lost_records;      /* ever; more than the sum of the LOST records if the program died meanwhile */
    _Atomic uint64_t lost_blobs;        /* texts ever dropped */
    _Atomic uint64_t lost_first_ns, lost_last_ns; /* of those not yet told by a LOST record */
    _Alignas(64) _Atomic uint64_t tail;           /* slots read; the reader's line */
    _Atomic uint64_t blob_tail;                   /* bytes read */
};
#define ACCT_RING_HEADER_BYTES 4096u

/* Rendezvous, over a SOCK_SEQPACKET unix socket: the program sends acct_hello with the memfd attached
 * (SCM_RIGHTS), and waits for acct_reply. Only then it publishes records. */
struct acct_hello {
    uint32_t magic;
    uint32_t version;
    uint64_t total_bytes; /* of the memfd */
};
struct acct_reply {
    uint32_t magic;
    int32_t error;                    /* 0: go; else the message says why not */
    char message[ACCT_MESSAGE_BYTES]; /* NUL-terminated line */
};

#endif
