/* Threads that run blocks. A stream's thread works on its own launch; up to one thread a further processor helps
 * whoever has blocks left. The pool grows to that at the first launch worth it, and its threads sleep in between. */
#include "vgpu/vgpu_run.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct job {
    struct job *next;
    vgpu_blocks_fn *run;
    const void *context;
    uint64_t blocks, piece;
    _Atomic uint64_t taken;
    int helpers; /* at work on it; under the lock */
};

enum { PIECES_A_THREAD = 8 };
/* Address space on both sides of a buffer: an index that is wrong by less than this faults. */
static const size_t GUARD = (size_t)64 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static struct job *jobs; /* with blocks left to take, perhaps */
static int threads;      /* started; -1: cannot be */
static __thread struct vgpu_worker *own;

static void work_on(struct job *j, struct vgpu_worker *w) {
    for (;;) {
        uint64_t first = atomic_fetch_add_explicit(&j->taken, j->piece, memory_order_relaxed);
        if (first >= j->blocks) return;
        uint64_t left = j->blocks - first;
        j->run(w, j->context, first, left < j->piece ? left : j->piece);
    }
}

static struct job *job_with_work(void) {
    for (struct job *j = jobs; j; j = j->next)
        if (atomic_load_explicit(&j->taken, memory_order_relaxed) < j->blocks) return j;
    return NULL;
}

static void *helper(void *arg) {
    struct vgpu_worker *w = arg;
    vgpu_fault_prepare();
    vgpu_fault_worker(w);
    pthread_mutex_lock(&lock);
    for (;;) {
        struct job *j = job_with_work();
        if (!j) {
            pthread_cond_wait(&work, &lock);
            continue;
        }
        j->helpers++;
        pthread_mutex_unlock(&lock);
        work_on(j, w);
        pthread_mutex_lock(&lock);
        if (!--j->helpers) pthread_cond_broadcast(&done);
    }
    return NULL;
}

static bool start_one(void) {
    struct vgpu_worker *w = calloc(1, sizeof *w);
    sigset_t all, old;
    pthread_t thread;
    if (!w) return false;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int failed = pthread_create(&thread, NULL, helper, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        free(w);
        return false;
    }
    pthread_setname_np(thread, "acct-vgpu-core");
    pthread_detach(thread);
    return true;
}

/* Under the lock. */
static int start_threads(void) {
    int wanted = vgpu_cores() - 1;
    while (threads >= 0 && threads < wanted) {
        if (!start_one()) break;
        threads++;
    }
    return threads;
}

/* The calling thread's worker; a stream's thread that ends leaves it to nobody, so it is kept small: buffers come with
 * the first kernel that needs them. NULL: no memory. */
static struct vgpu_worker *own_worker(void) {
    if (!own) own = calloc(1, sizeof *own);
    return own;
}

void vgpu_buffer_free(struct vgpu_buffer *b) {
    if (b->map) munmap(b->map, b->map_bytes);
}

void vgpu_pool_end(void) {
    vgpu_fault_end();
    if (!own) return;
    vgpu_buffer_free(&own->shared);
    vgpu_buffer_free(&own->local);
    vgpu_fibers_free(own->fibers);
    free(own);
    own = NULL;
}

void vgpu_pool_run(vgpu_blocks_fn *run, const void *context, uint64_t blocks, bool spread) {
    struct vgpu_worker *w = own_worker();
    if (!w) {
        vgpu_fail(cudaErrorMemoryAllocation, "no memory to run a kernel");
        return;
    }
    vgpu_fault_prepare();
    vgpu_fault_worker(w);
    if (!spread || blocks < 2) {
        run(w, context, 0, blocks);
        return;
    }
    struct job j = {.run = run, .context = context, .blocks = blocks};
    pthread_mutex_lock(&lock);
    uint64_t pieces = (uint64_t)(start_threads() + 1) * PIECES_A_THREAD;
    j.piece = blocks / pieces ? blocks / pieces : 1;
    j.next = jobs;
    jobs = &j;
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock);
    work_on(&j, w);
    pthread_mutex_lock(&lock);
    struct job **at = &jobs;
    while (*at != &j) at = &(*at)->next;
    *at = j.next;
    while (j.helpers) pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
}

unsigned char *vgpu_buffer_get(struct vgpu_buffer *b, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), need = (bytes + 15) / 16 * 16;
    if (b->map && need <= b->room) return b->base + b->room - need;
    size_t room = (need + page - 1) / page * page;
    if (!room) room = page;
    unsigned char *map = mmap(NULL, room + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    madvise(map, room + 2 * GUARD, MADV_DONTFORK);
    if (mprotect(map + GUARD, room, PROT_READ | PROT_WRITE)) {
        munmap(map, room + 2 * GUARD);
        return NULL;
    }
    if (b->map) munmap(b->map, b->map_bytes);
    *b = (struct vgpu_buffer){map, map + GUARD, room + 2 * GUARD, room};
    return b->base + b->room - need;
}
