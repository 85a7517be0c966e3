/* Records of kernel launches. */
#include "preload/fill.h"
#include "preload/kernels.h"

/* The bytes of one argument; most are a pointer or a number. */
static void copy_argument(unsigned char *to, const void *from, uint32_t bytes) {
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, bytes);
}

/* Each at its offset, gaps zero. The program's array holds the address of each. */
static struct acct_text pack_arguments(struct ring_writer *w, const struct kernel_layout *l, void *const *args) {
    void *room;
    if (!l || l->params < 0 || (l->params && !args)) return ring_text(w, NULL, 0);
    struct acct_text t = ring_reserve(w, l->args_bytes, &room);
    uint32_t end = 0;
    for (int32_t i = 0; room && i < l->params; i++) {
        unsigned char *to = room;
        memset(to + end, 0, l->param[i].offset - end);
        copy_argument(to + l->param[i].offset, args[i], l->param[i].bytes);
        end = l->param[i].offset + l->param[i].bytes;
    }
    return t;
}

void fill_launch(struct hook_call *k, const void *function, dim3 grid, dim3 block, void *const *args, size_t shared,
                 uint64_t stream, uint32_t cooperative) {
    int whole = k->status == 0;
    /* A function that was never registered may be anything, until the runtime has taken it. */
    struct kernel *kn = whole ? kernels_adopt(function) : kernels_find(function);
    if (kn && !kernels_is_told(kn, k->generation, whole)) kernels_tell(k, kn);
    struct acct_ev_launch *r = hook_record(k, ACCT_EV_LAUNCH, sizeof *r, stream);
    if (!r) return;
    r->kernel = kn ? atomic_load_explicit(&kn->number, memory_order_relaxed) : 0;
    r->grid_x = grid.x, r->grid_y = grid.y, r->grid_z = grid.z;
    r->block_x = block.x, r->block_y = block.y, r->block_z = block.z;
    r->dynamic_shared_bytes = shared > INT64_MAX ? ACCT_NULL_I64 : (int64_t)shared;
    r->cooperative = cooperative;
    r->args = pack_arguments(&k->thread->writer,
                             whole && kn ? atomic_load_explicit(&kn->layout, memory_order_acquire) : NULL, args);
    r->external = k->external;
    hook_commit(k);
}

static uint32_t is_cooperative(const cudaLaunchConfig_t *c) {
    for (unsigned i = 0; i < c->numAttrs && c->attrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeCooperative) return c->attrs[i].val.cooperative != 0;
    return 0;
}

void fill_launch_config(struct hook_call *k, const cudaLaunchConfig_t *c, const void *function, void *const *args,
                        uint64_t null_stream) {
    dim3 unknown = {0, 0, 0};
    if (k->status || !c) { /* what c points to may be the reason */
        fill_launch(k, function, unknown, unknown, NULL, SIZE_MAX, null_stream, 0);
        return;
    }
    fill_launch(k, function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes,
                c->stream ? ADDRESS(c->stream) : null_stream, is_cooperative(c));
}
