/* Addresses that a device could not reach but this process can: pageable host memory, and memory of another device that
 * has not been made accessible. A launch that is given such an
 * address runs in the interpreter, which asks before each access. With ACCT_VGPU_CHECK all launches do, and blocks of
 * device memory end where the program asked for them to end. */
#include "vgpu/vgpu_run.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Below it nothing is ever mapped; most numbers are. */
static const uint64_t LEAST_ADDRESS = 65536;

static bool is_mapped(uint64_t address) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char present;
    return !mincore((void *)(uintptr_t)(address / page * page), 1, &present);
}

static bool is_out_of_reach(uint64_t address) {
    const void *p = (const void *)(uintptr_t)address;
    if (address < LEAST_ADDRESS) return false;
    if (!vgpu_peer_reaches(vgpu_current(), p)) return true;
    return vgpu_side_of(p, 1) == VGPU_PAGEABLE && is_mapped(address);
}

enum vgpu_way vgpu_launch_way(const struct vgpu_launch *l) {
    const struct vgpu_kernel *k = l->kernel;
    if (vgpu_execute_way() == VGPU_CHECKED) return VGPU_CHECKED;
    for (uint32_t i = 0; i < k->pointer_count; i++) {
        uint64_t value;
        memcpy(&value, l->params + k->pointers[i], sizeof value);
        if (is_out_of_reach(value)) return VGPU_CHECKED;
    }
    return k->compiled ? VGPU_COMPILED : VGPU_INTERPRETED;
}

int vgpu_check_touch(void *context, const struct ptx_touch *touch) {
    struct vgpu_check *c = context;
    if (touch->address - c->first < c->bytes && touch->bytes <= c->bytes - (touch->address - c->first)) return 0;
    return vgpu_device_range((const void *)(uintptr_t)touch->address, touch->bytes, c->exact, &c->first, &c->bytes)
               ? 0
               : -1;
}
