/* Items that keep their address for ever: handles of streams, events, kernels. */
#include "vgpu/vgpu_engine.h"

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

void *vgpu_slab_take(struct vgpu_slab *s) {
    struct vgpu_item *item;
    if (!s->base) {
        void *p = mmap(NULL, s->item_bytes * s->capacity, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return NULL;
#ifdef __SANITIZE_ADDRESS__
        __lsan_register_root_region(p, s->item_bytes * s->capacity); /* items may hold the only pointers to memory */
#endif
        s->base = p;
    }
    if (s->first_free) {
        item = (struct vgpu_item *)(s->base + (s->first_free - 1) * s->item_bytes);
        s->first_free = item->next_free;
    } else if (s->count < s->capacity) {
        item = (struct vgpu_item *)(s->base + s->count++ * s->item_bytes);
    } else {
        return NULL;
    }
    item->live = 1;
    return item;
}

void vgpu_slab_give(struct vgpu_slab *s, void *item) {
    struct vgpu_item *i = item;
    i->live = 0;
    i->next_free = s->first_free;
    s->first_free = (uint32_t)(((char *)item - s->base) / (ptrdiff_t)s->item_bytes) + 1;
}

bool vgpu_slab_has(const struct vgpu_slab *s, const void *item) {
    uintptr_t at = (uintptr_t)item, base = (uintptr_t)s->base;
    if (!base || at < base || at >= base + s->count * s->item_bytes || (at - base) % s->item_bytes) return false;
    return ((const struct vgpu_item *)item)->live;
}
