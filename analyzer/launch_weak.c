#include <string.h>
#include "ptx/ptx_access.h"
#define WEAK __attribute__((weak))
WEAK int ptx_access_static(const struct ptx_module *m, const struct ptx_function *f, struct ptx_accesses *o) {
    (void)m;
    (void)f;
    memset(o, 0, sizeof *o);
    return -1;
}
WEAK int ptx_access_launch(const struct ptx_module *m, const struct ptx_function *e, const uint32_t g[3],
                           const uint32_t b[3], const void *p, struct ptx_accesses *o) {
    (void)m;
    (void)e;
    (void)g;
    (void)b;
    (void)p;
    memset(o, 0, sizeof *o);
    return -1;
}
WEAK void ptx_access_free(struct ptx_accesses *a) {
    (void)a;
}
