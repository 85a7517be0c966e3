/* Blocks of host memory that products work in, a few kept for the next one. */
#include "vgpu/vgpu_blas.h"

#include <stdlib.h>

enum { KEPT = 8, ALIGNMENT = 64 };
static const size_t most = (size_t)256 << 20; /* bytes kept in all */

/* In front of each block. */
struct head {
    size_t bytes;
    char fill[ALIGNMENT - sizeof(size_t)];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *kept[KEPT];
static size_t kept_bytes;

/* One that is large enough and not four times too large. */
static struct head *take_kept(size_t bytes) {
    struct head *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        if (kept[i] && kept[i]->bytes >= bytes && kept[i]->bytes / 4 <= bytes) {
            found = kept[i];
            kept[i] = NULL;
            kept_bytes -= found->bytes;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

void *vgpu_scratch_take(size_t bytes) {
    struct head *h = take_kept(bytes);
    void *memory = NULL;
    if (h) return h + 1;
    if (bytes > SIZE_MAX - sizeof *h || posix_memalign(&memory, ALIGNMENT, bytes + sizeof *h)) return NULL;
    h = memory;
    h->bytes = bytes;
    return h + 1;
}

/* Where all places are taken, the smallest block goes. */
static struct head *keep(struct head *h) {
    int at = 0;
    for (int i = 0; i < KEPT; i++)
        if (!kept[i] || (kept[at] && kept[i]->bytes < kept[at]->bytes)) at = i;
    struct head *out = kept[at];
    if (out && out->bytes >= h->bytes) return h;
    if (kept_bytes - (out ? out->bytes : 0) + h->bytes > most) return h;
    kept_bytes += h->bytes - (out ? out->bytes : 0);
    kept[at] = h;
    return out;
}

void vgpu_scratch_give(void *scratch) {
    if (!scratch) return;
    pthread_mutex_lock(&lock);
    struct head *h = keep((struct head *)scratch - 1);
    pthread_mutex_unlock(&lock);
    free(h);
}
