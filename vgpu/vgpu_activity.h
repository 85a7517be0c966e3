/* What the virtual GPU did, when: the source of CUPTI's activity records. A work item carries one of these; the
 * stream's thread calls vgpu_activity_done when it has run. Nobody listening costs one relaxed load. */
#ifndef VGPU_ACTIVITY_H
#define VGPU_ACTIVITY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_activity_kind { VGPU_ACTIVITY_NONE, VGPU_ACTIVITY_KERNEL, VGPU_ACTIVITY_COPY, VGPU_ACTIVITY_MEMSET };

struct vgpu_activity {
    uint8_t kind;               /* enum vgpu_activity_kind */
    uint8_t copy_kind;          /* CUpti_ActivityMemcpyKind */
    uint8_t src_kind, dst_kind; /* CUpti_ActivityMemoryKind */
    uint32_t correlation;       /* of the API call: vgpu_api_correlation(); 0: nobody listened */
    uint32_t grid[3], block[3];
    uint32_t static_shared, dynamic_shared, local_bytes; /* local: of a thread */
    uint32_t value;                                      /* memset */
    int64_t bytes;                                       /* copy, memset */
    const char *
        name; /* kernels: lives as long as the process. A product by the virtual cuBLAS has a name like vgpu_sgemm_nt */
};

/* 1: some client wants records or callbacks. */
extern _Atomic int vgpu_activity_wanted;

/* On the stream's thread, after the work. Times are CLOCK_MONOTONIC ns. */
void vgpu_activity_done(const struct vgpu_activity *activity, uint32_t stream_id, uint64_t start_ns, uint64_t end_ns);

/* Round a call of the API that submits work or that CUPTI names otherwise: enter gives it a correlation id, calls the
 * client's callback, and remembers the id for the thread; leave ends it and writes the API record. cbid:
 * CUpti_runtime_api_trace_cbid or, driver = 1, CUpti_driver_api_trace_cbid: cuBLAS launches through the driver, inside
 * the program's cuBLAS call. */
struct vgpu_api_call {
    uint32_t correlation, cbid;
    uint8_t driver;
    uint64_t start_ns;
    const char *name;
    const void *params;
};
void vgpu_api_enter(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params);
void vgpu_api_leave(struct vgpu_api_call *call, int result);
uint32_t vgpu_api_correlation(void); /* of the call under way on this thread; 0: none */

#endif
