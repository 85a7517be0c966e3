/* What the virtual GPU did, when: the source of CUPTI's activity records and callbacks (vgpu_cupti_*.c). A work item
 * carries a vgpu_activity; the stream's thread calls vgpu_activity_done when it has run. Nobody listening costs one
 * relaxed load. */
#ifndef VGPU_ACTIVITY_H
#define VGPU_ACTIVITY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_activity_kind { VGPU_ACTIVITY_NONE, VGPU_ACTIVITY_KERNEL, VGPU_ACTIVITY_COPY, VGPU_ACTIVITY_MEMSET };

struct vgpu_activity {
    uint8_t kind;               /* enum vgpu_activity_kind */
    uint8_t copy_kind;          /* CUpti_ActivityMemcpyKind */
    uint8_t src_kind, dst_kind; /* CUpti_ActivityMemoryKind; a memset has dst_kind */
    uint8_t asynchronous;       /* copy, memset: by a function whose name says so */
    uint8_t driver;             /* set with `correlation`: that call is one of the driver's */
    uint8_t device;             /* of the stream; set when the work is queued */
    uint16_t registers;         /* kernels: of a thread; 0: not known */
    uint32_t correlation;       /* of the API call, set when the work is submitted; 0: nobody listened */
    uint32_t grid[3], block[3]; /* 0: there is none, as for the virtual cuBLAS */
    uint32_t static_shared, dynamic_shared, local_bytes; /* local: of a thread */
    uint32_t value;                                      /* memset */
    int64_t bytes;                                       /* copy, memset */
    uint64_t queued_ns;                                  /* kernels: by the records' clock; 0: not asked for */
    uint32_t graph;                                      /* 0: not launched by one */
    uint64_t graph_node;                                 /* CUPTI's ids of the executable graph and its node */
    const char *
        name; /* kernels: lives as long as the process. A product by the virtual cuBLAS has a name like vgpu_sgemm_nt */
};

/* 1: some client wants records or callbacks. */
extern _Atomic int vgpu_activity_wanted;

/* The clock of the records, ns: the client's if it registered one, else CLOCK_REALTIME. *generation changes with the
 * clock. */
uint64_t vgpu_activity_clock(uint32_t *generation);

/* On the stream's thread, after the work. Times by vgpu_activity_clock. */
void vgpu_activity_done(const struct vgpu_activity *activity, uint32_t stream_id, uint64_t start_ns, uint64_t end_ns);

/* Round a call of the API that submits work or that CUPTI names otherwise: enter gives it a correlation id, calls the
 * client's callback, and remembers the id for the thread; leave ends it and writes the API record. cbid:
 * CUpti_runtime_api_trace_cbid or, driver = 1, CUpti_driver_api_trace_cbid: cuBLAS launches through the driver, inside
 * the program's cuBLAS call. Calls nest; the innermost one is what work belongs to. */
struct vgpu_api_call {
    struct vgpu_api_call *outer;
    uint32_t correlation, cbid; /* correlation 0: made inside one of the client's own functions, and not reported */
    uint8_t driver, called_back;
    uint64_t start_ns; /* 0: no record was wanted */
    uint64_t data;     /* the client's, from the callback at the beginning to that at the end */
    const char *name, *symbol;
    const void *params;
};
void vgpu_api_enter(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params);
/* The same for a kernel launch whose kernel is not among the parameters. */
void vgpu_api_enter_launch(struct vgpu_api_call *call, int driver, uint32_t cbid, const char *name, const void *params,
                           const char *symbol);
void vgpu_api_leave(struct vgpu_api_call *call, int result);
uint32_t vgpu_api_correlation(void); /* of the call under way on this thread; 0: none */
/* Notes in an activity which call submits it. */
void vgpu_activity_submitted(struct vgpu_activity *activity);

#endif
