/* CUPTI's records → events in the helper's ring.
 *
 * Compiled against one version of the vendor's structs. Newer libraries append fields, and a buffer is walked with the
 * library's own function, so the head of a longer record is read as what it is. */
#include <string.h>
#include "cupti/cupti_inside.h"
#include "preload/sys.h"

#define PATIENCE_NS 2000000000u /* without any progress of the collector */

/* ---- room ---- */

static int has_room(struct ring_writer *w, size_t bytes, size_t text_bytes) {
    if (!ring_has_room(w, bytes)) return 0;
    /* A text never wraps: at worst the rest of the blob ring is skipped for it. One that never fits is not waited for.
     */
    uint64_t used = w->blob_head - atomic_load_explicit(&w->ring->blob_tail, memory_order_acquire);
    return text_bytes > w->blob_bytes / 2 || used + 2 * text_bytes <= w->blob_bytes;
}

int cupti_room(struct cupti_out *out, size_t bytes, size_t text_bytes) {
    struct ring_writer *w = &out->ring;
    uint64_t since = 0, seen = 0;
    for (;;) {
        uint64_t now, tail = atomic_load_explicit(&w->ring->tail, memory_order_relaxed);
        if (has_room(w, bytes, text_bytes)) {
            out->stuck = 0;
            return 1;
        }
        if (out->stuck) return 0;
        now = cupti_now();
        if (!since || tail != seen) since = now, seen = tail;
        if (now - since > PATIENCE_NS || (out->until_ns && now > out->until_ns)) {
            out->stuck = 1;
            return 0;
        }
        ring_wake(w->control);
        struct timespec ms = {0, 1000000};
        syscall(SYS_nanosleep, &ms, NULL);
    }
}

static void *begin(struct cupti_out *out, uint16_t event, size_t bytes) {
    cupti_room(out, bytes, 0);
    return ring_begin(&out->ring, event, bytes, cupti_now());
}

/* ---- events ---- */

void cupti_tell(struct ring_writer *w, const struct cupti_outcome *o, const char *why, int64_t dropped) {
    struct acct_ev_cupti *r = ring_begin(w, ACCT_EV_CUPTI, sizeof *r, cupti_now());
    if (!r) return;
    r->status = o->status;
    r->version = o->version;
    r->why = ring_text(w, why, why ? strlen(why) : 0);
    r->dropped = dropped;
    ring_commit(w);
}

/* CUPTI writes 0 where it could take no time. */
static int64_t time_of(uint64_t ns) {
    return ns ? (int64_t)ns : ACCT_NULL_I64;
}

/* An ACTIVITY with what all kinds have; the rest "not known". */
static struct acct_ev_activity *begin_activity(struct cupti_out *out, uint32_t kind) {
    struct acct_ev_activity *r = begin(out, ACCT_EV_ACTIVITY, sizeof *r);
    if (!r) return NULL;
    memset((char *)r + sizeof r->hdr, 0, sizeof *r - sizeof r->hdr);
    r->kind = kind;
    r->registers = r->static_shared_bytes = r->dynamic_shared_bytes = r->local_bytes = ACCT_NULL_I32;
    r->copy_kind = ACCT_NULL_I32;
    r->bytes = ACCT_NULL_I64;
    return r;
}

#define COMMON(r, a)                                                                                             \
    ((r)->correlation = (a)->correlationId, (r)->device = (int32_t)(a)->deviceId, (r)->context = (a)->contextId, \
     (r)->stream = (a)->streamId, (r)->begin_ns = time_of((a)->start), (r)->end_ns = time_of((a)->end),          \
     (r)->graph_node = (a)->graphNodeId)

static void kernel(struct cupti_out *out, const CUpti_ActivityKernel10 *a) {
    uint32_t name = cupti_name(out, a->name);
    struct acct_ev_activity *r = begin_activity(out, ACCT_activity_KERNEL);
    if (!r) return;
    COMMON(r, a);
    r->name = name;
    r->grid_x = (uint32_t)a->gridX, r->grid_y = (uint32_t)a->gridY, r->grid_z = (uint32_t)a->gridZ;
    r->block_x = (uint32_t)a->blockX, r->block_y = (uint32_t)a->blockY, r->block_z = (uint32_t)a->blockZ;
    r->registers = a->registersPerThread;
    r->static_shared_bytes = a->staticSharedMemory;
    r->dynamic_shared_bytes = a->dynamicSharedMemory;
    r->local_bytes = (int32_t)a->localMemoryPerThread;
    ring_commit(&out->ring);
}

static void copy(struct cupti_out *out, const CUpti_ActivityMemcpy6 *a) {
    struct acct_ev_activity *r = begin_activity(out, ACCT_activity_COPY);
    if (!r) return;
    COMMON(r, a);
    r->bytes = (int64_t)a->bytes;
    r->copy_kind = a->copyKind;
    ring_commit(&out->ring);
}

static void peer_copy(struct cupti_out *out, const CUpti_ActivityMemcpyPtoP4 *a) {
    struct acct_ev_activity *r = begin_activity(out, ACCT_activity_COPY);
    if (!r) return;
    COMMON(r, a);
    r->bytes = (int64_t)a->bytes;
    r->copy_kind = a->copyKind;
    ring_commit(&out->ring);
}

static void set(struct cupti_out *out, const CUpti_ActivityMemset4 *a) {
    struct acct_ev_activity *r = begin_activity(out, ACCT_activity_MEMSET);
    if (!r) return;
    COMMON(r, a);
    r->bytes = (int64_t)a->bytes;
    ring_commit(&out->ring);
}

static void correlation(struct cupti_out *out, const CUpti_ActivityExternalCorrelation *a) {
    if (a->externalKind != CUPTI_OUR_KIND) return;
    struct acct_ev_correlation *r = begin(out, ACCT_EV_CORRELATION, sizeof *r);
    if (!r) return;
    r->correlation = a->correlationId;
    r->external = a->externalId;
    ring_commit(&out->ring);
}

/* CUDA 12's records begin like those compiled against, as far as they are read. */
#define SAME(old, now, field) _Static_assert(offsetof(old, field) == offsetof(now, field), "CUDA 12's " #old " differs")
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, registersPerThread);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, start);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, deviceId);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, gridX);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, localMemoryPerThread);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, correlationId);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, name);
SAME(CUpti_ActivityKernel9, CUpti_ActivityKernel10, graphNodeId);
SAME(CUpti_ActivityMemcpy5, CUpti_ActivityMemcpy6, correlationId);
SAME(CUpti_ActivityMemcpy5, CUpti_ActivityMemcpy6, graphNodeId);

/* ---- buffers ---- */

/* Bytes of a record that are read: the last field read, and all before it. */
#define UP_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

static void one(struct cupti_out *out, const CUpti_Activity *a, size_t room) {
    switch ((int)a->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        if (room >= UP_TO(CUpti_ActivityKernel10, graphNodeId)) kernel(out, (const CUpti_ActivityKernel10 *)a);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        if (room >= UP_TO(CUpti_ActivityMemcpy6, graphNodeId)) copy(out, (const CUpti_ActivityMemcpy6 *)a);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        if (room >= UP_TO(CUpti_ActivityMemcpyPtoP4, graphNodeId)) peer_copy(out, (const CUpti_ActivityMemcpyPtoP4 *)a);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        if (room >= UP_TO(CUpti_ActivityMemset4, graphNodeId)) set(out, (const CUpti_ActivityMemset4 *)a);
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        if (room >= UP_TO(CUpti_ActivityExternalCorrelation, correlationId))
            correlation(out, (const CUpti_ActivityExternalCorrelation *)a);
        break;
    default: /* API records bring the correlations; of no further use */
        break;
    }
}

void cupti_read(struct cupti_out *out, const struct cupti_full *full) {
    CUpti_Activity *a = NULL;
    uint8_t *last = NULL;
    while (cupti_api.cuptiActivityGetNextRecord(full->data, full->valid, &a) == CUPTI_SUCCESS && a) {
        uint8_t *p = (uint8_t *)a;
        if (p < full->data || (last && p <= last) || p + sizeof *a > full->data + full->valid) return;
        one(out, a, (size_t)(full->data + full->valid - p));
        last = p;
    }
}
