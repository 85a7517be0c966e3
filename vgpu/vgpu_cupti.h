/* CUPTI inside the engine: what its parts share. The functions of libcupti are defined in vgpu_cupti_*.c under the
 * vendor's names; the engine tells them what happens through vgpu_activity.h. The client's functions (callbacks, buffer
 * requests, its clock) are always called with no lock held; a call of CUDA from inside one of them is not reported. */
#ifndef VGPU_CUPTI_H
#define VGPU_CUPTI_H

#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_profile.h"

#include <cupti.h>

/* A set of callback numbers. Any thread; changes are seen soon. */
enum { VGPU_CUPTI_WORDS = 16 };
struct vgpu_cupti_set {
    _Atomic uint64_t word[VGPU_CUPTI_WORDS];
};

static inline bool vgpu_cupti_has(const struct vgpu_cupti_set *s, uint32_t n) {
    return n < 64 * VGPU_CUPTI_WORDS && atomic_load_explicit(&s->word[n / 64], memory_order_relaxed) >> n % 64 & 1;
}
void vgpu_cupti_put(struct vgpu_cupti_set *set, uint32_t number, bool on);
void vgpu_cupti_put_all(struct vgpu_cupti_set *set, uint32_t count, bool on); /* numbers 1 … count - 1 */
bool vgpu_cupti_any(const struct vgpu_cupti_set *set);
uint32_t vgpu_cupti_domain_size(CUpti_CallbackDomain domain); /* callback numbers are less; 0: no such domain */
const char *vgpu_cupti_callback_name(CUpti_CallbackDomain domain, uint32_t cbid); /* NULL: none */

/* What is wanted (vgpu_cupti_activity.c). Changes go through vgpu_cupti_listen, which sets vgpu_activity_wanted. */
bool vgpu_cupti_wants(CUpti_ActivityKind kind);
extern _Atomic bool vgpu_cupti_latency; /* the times at which kernels are queued, too */
bool vgpu_cupti_wants_call(const struct vgpu_api_call *call);
void vgpu_cupti_listen(void);
bool vgpu_cupti_has_callbacks(void); /* some callback is on (vgpu_cupti_callback.c) */

/* The client's callback at the beginning (result NULL) or the end of a call. */
void vgpu_cupti_call_back(struct vgpu_api_call *call, int *result);
void vgpu_cupti_unsubscribe(void);
bool vgpu_cupti_wants_resource(CUpti_CallbackIdResource cbid);
void vgpu_cupti_call_back_resource(CUpti_CallbackIdResource cbid, void *descriptor); /* CUpti_GraphData */

/* The API record, and in front of it this thread's external ids, if they are wanted. */
void vgpu_cupti_record_call(const struct vgpu_api_call *call, uint64_t end_ns, int result);

/* Records for the client's buffers (vgpu_cupti_buffer.c). They stay together if one buffer has room for them all. */
struct vgpu_cupti_piece {
    const void *record;
    size_t bytes;
};
void vgpu_cupti_write(const struct vgpu_cupti_piece *pieces, size_t count);
void vgpu_cupti_forget_client(void);       /* buffers, their functions: none from now on */
bool vgpu_cupti_zeroes_buffers(void);      /* attribute ZEROED_OUT_ACTIVITY_BUFFER is off */
extern __thread int vgpu_cupti_in_client;  /* inside one of the client's functions */
extern __thread uint64_t vgpu_cupti_calls; /* of them, callbacks */
uint64_t vgpu_cupti_now(void);             /* vgpu_activity_clock */
uint32_t vgpu_cupti_thread(void);          /* by cuptiSetThreadIdType */
size_t vgpu_cupti_external(CUpti_ActivityExternalCorrelation out[], uint32_t correlation); /* tops; returns how many */

/* Each device has one context: its id, and its handle, that only CUPTI's functions know. */
extern const char vgpu_cupti_contexts[VGPU_MAX_DEVICES];
static inline uint32_t vgpu_cupti_context_id(int device) {
    return (uint32_t)device + 1;
}
static inline CUcontext vgpu_cupti_context(int device) {
    return (CUcontext)(uintptr_t)&vgpu_cupti_contexts[device];
}
int vgpu_cupti_device(CUcontext context); /* -1: no such context; NULL: the current device's */

#endif
