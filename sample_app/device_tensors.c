#include "sample_app/device_tensors.h"

#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/memory_pool.h"
#include "sample_app/train_options.h"

static void *host_array(size_t count, size_t element_bytes) {
    void *array = calloc(count ? count : 1, element_bytes);
    if (!array) die(EXIT_RUN_TIME, "out of host memory");
    return array;
}

/* ---- one allocation -------------------------------------------------------------------------------------- */

static void check_room(cudaError_t status, const char *name, size_t bytes) {
    if (status == cudaErrorMemoryAllocation)
        die(EXIT_RUN_TIME,
            "out of device memory: no %zu bytes for %s; take a smaller --dim, --layers or --batch, or --recompute full",
            bytes, name);
    CHECK(status);
}

void *device_alloc(const char *name, const char *class, size_t bytes) {
    void *p;
    truth_count_call();
    check_room(cudaMalloc(&p, bytes), name, bytes);
    truth_allocated(name, class, p, bytes);
    return p;
}

void device_free(void *p) {
    CALL(cudaFree(p));
    truth_released(p);
}

static void *stream_alloc(const char *name, const char *class, size_t bytes, cudaStream_t stream) {
    void *p;
    truth_count_call();
    check_room(cudaMallocAsync(&p, bytes, stream), name, bytes);
    truth_allocated(name, class, p, bytes);
    return p;
}

static void stream_free(void *p, cudaStream_t stream) {
    CALL(cudaFreeAsync(p, stream));
    truth_released(p);
}

/* ---- the pool -------------------------------------------------------------------------------------------- */

static struct {
    struct memory_pool pieces;
    char *block; /* while planning: an address that is nobody's */
    bool planning;
} pool;

void tensors_pool_plan(void) {
    pool.pieces = memory_pool_create((size_t)1 << 60);
    pool.block = (char *)(uintptr_t)POOL_ALIGNMENT;
    pool.planning = true;
}

void tensors_pool_create(void) {
    size_t most = pool.pieces.most;
    memory_pool_destroy(&pool.pieces);
    pool.pieces = memory_pool_create(most);
    pool.planning = false;
    truth_count_call();
    check_room(cudaMalloc((void **)&pool.block, most), "the pool", most);
}

void tensors_pool_destroy(void) {
    memory_pool_destroy(&pool.pieces);
    CALL(cudaFree(pool.block));
}

static void *pool_alloc(const char *name, const char *class, size_t bytes) {
    size_t at = memory_pool_take(&pool.pieces, bytes);
    if (at == SIZE_MAX) die(EXIT_RUN_TIME, "the pool of %zu bytes has no room for %s", pool.pieces.bytes, name);
    if (!pool.planning) truth_piece_taken(name, class, pool.block + at, bytes);
    return pool.block + at;
}

static void pool_free(void *p) {
    memory_pool_give(&pool.pieces, (size_t)((char *)p - pool.block));
    if (!pool.planning) truth_piece_given(p);
}

/* ---- where tensors begin, for EXPECT_ELEMENTS ------------------------------------------------------------ */

#ifndef NDEBUG
static struct known {
    const void *at;
    size_t n;
} * known;
static size_t known_count, known_capacity;

static void know(const void *at, size_t n) {
    if (known_count == known_capacity) {
        known_capacity = known_capacity ? 2 * known_capacity : 256;
        known = realloc(known, known_capacity * sizeof *known);
        if (!known) die(EXIT_RUN_TIME, "out of host memory");
    }
    known[known_count++] = (struct known){at, n};
}

static struct known *find_known(const void *at) { /* NULL: no tensor begins there */
    size_t i = known_count;
    while (i > 0 && known[i - 1].at != at) i--;
    return i ? &known[i - 1] : NULL;
}

static void forget(const void *at) {
    struct known *k = find_known(at);
    if (k) *k = known[--known_count];
}

void tensor_expect(const void *p, size_t count, const char *what, const char *file, int line) {
    const struct known *k = find_known(p);
    if (!k) die(EXIT_RUN_TIME, "%s:%d: %s is not the beginning of a tensor", file, line, what);
    if (k->n < count) die(EXIT_RUN_TIME, "%s:%d: %s has %zu elements, %zu are needed", file, line, what, k->n, count);
}
#else
static void know(const void *at, size_t n) {
    (void)at, (void)n;
}
static void forget(const void *at) {
    (void)at;
}
void tensor_expect(const void *p, size_t count, const char *what, const char *file, int line) {
    (void)p, (void)count, (void)what, (void)file, (void)line;
}
#endif

/* ---- sets ------------------------------------------------------------------------------------------------ */

static bool together(const struct tensors *t) {
    return t->alloc == ALLOC_CLASS;
}

size_t tensor_bytes(const struct tensors *t, int i) {
    return t->n[i] * format_bytes(t->format[i]);
}

size_t tensors_bytes(const struct tensors *t) {
    size_t bytes = 0;
    for (int i = 0; i < t->count; i++) bytes += tensor_bytes(t, i);
    return bytes;
}

static void *allocate(const struct tensors *t, const char *name, const char *class, size_t bytes, cudaStream_t stream) {
    if (t->alloc == ALLOC_POOL) return pool_alloc(name, class, bytes);
    if (t->alloc == ALLOC_STEP && t->transient) return stream_alloc(name, class, bytes, stream);
    return device_alloc(name, class, bytes);
}

static void release(const struct tensors *t, void *p, cudaStream_t stream) {
    if (t->alloc == ALLOC_POOL)
        pool_free(p);
    else if (t->alloc == ALLOC_STEP && t->transient)
        stream_free(p, stream);
    else
        device_free(p);
}

/* The largest power of two that divides the size of a tensor, up to that of an allocation. */
static size_t alignment(const struct tensors *t, int i) {
    size_t bytes = tensor_bytes(t, i);
    size_t power = bytes & -bytes;
    return power < 256 ? power : 256;
}

/* Tensors that lie together have no gaps between them, and yet each is aligned as its size allows: those of sizes that
 * larger powers of two divide come first, otherwise in their order. */
static void place_together(struct tensors *t, char *block) {
    for (size_t a = 256; a; a /= 2)
        for (int i = 0; i < t->count; i++)
            if (alignment(t, i) == a) t->at[i] = block, block += tensor_bytes(t, i);
}

static char *block_of(const struct tensors *t) { /* where what lies together begins */
    char *block = t->at[0];
    for (int i = 1; i < t->count; i++)
        if ((char *)t->at[i] < block) block = t->at[i];
    return block;
}

static void take(struct tensors *t, const char *class, int i, cudaStream_t stream) {
    if (t->at[i]) return;
    if (!together(t)) {
        t->at[i] = allocate(t, t->name[i], class, tensor_bytes(t, i), stream);
        know(t->at[i], t->n[i]);
        return;
    }
    place_together(t, allocate(t, t->class, class, tensors_bytes(t), stream));
    for (int k = 0; k < t->count; k++) know(t->at[k], t->n[k]);
}

static void drop_one(struct tensors *t, int i, cudaStream_t stream) {
    if (!t->at[i]) return;
    forget(t->at[i]);
    release(t, t->at[i], stream);
    t->at[i] = NULL;
}

static void drop_together(struct tensors *t, cudaStream_t stream) {
    char *block = block_of(t);
    for (int i = 0; i < t->count; i++) {
        forget(t->at[i]);
        t->at[i] = NULL;
    }
    release(t, block, stream);
}

void tensors_take_as(struct tensors *t, const char *class, int first, int count, cudaStream_t stream) {
    if (!t->transient) return;
    for (int i = first; i < first + count; i++) {
        take(t, class, i, stream);
        t->used += !t->in_use[i];
        t->in_use[i] = true;
    }
}

void tensors_take(struct tensors *t, int first, int count, cudaStream_t stream) {
    tensors_take_as(t, t->class, first, count, stream);
}

void tensors_take_cleared(struct tensors *t, int first, int count, cudaStream_t stream) {
    for (int i = first; i < first + count && t->transient; i++) {
        bool there = t->at[i];
        tensors_take(t, i, 1, stream);
        if (there || pool.planning) continue;
        if (together(t))
            tensors_clear(t, stream);
        else
            CALL(cudaMemsetAsync(t->at[i], 0, tensor_bytes(t, i), stream));
    }
}

void tensors_drop(struct tensors *t, int first, int count, cudaStream_t stream) {
    if (!t->transient) return;
    for (int i = first; i < first + count; i++) {
        if (!t->in_use[i]) continue;
        t->in_use[i] = false;
        t->used--;
        if (!together(t))
            drop_one(t, i, stream);
        else if (!t->used)
            drop_together(t, stream);
    }
}

/* The room for the tensors: their names and sizes, not yet their memory. */
static struct tensors measure(const char *class, const char *prefix, const struct tensor_spec *specs, int count) {
    struct tensors t = {.class = class};
    for (int s = 0; s < count; s++) t.count += specs[s].count;
    t.at = host_array((size_t)t.count, sizeof *t.at);
    t.n = host_array((size_t)t.count, sizeof *t.n);
    t.format = host_array((size_t)t.count, sizeof *t.format);
    t.name = host_array((size_t)t.count, sizeof *t.name);
    t.in_use = host_array((size_t)t.count, sizeof *t.in_use);
    for (int s = 0, i = 0; s < count; s++) {
        for (int k = 0; k < specs[s].count; k++, i++) {
            t.n[i] = specs[s].n;
            t.format[i] = specs[s].format;
            snprintf(t.name[i], sizeof t.name[i], specs[s].count > 1 ? "%s%s%d" : "%s%s", prefix, specs[s].name, k + 1);
        }
    }
    return t;
}

struct tensors tensors_create(const char *class, const char *prefix, const struct tensor_spec *specs, int count,
                              int64_t alloc, bool transient) {
    struct tensors t = measure(class, prefix, specs, count);
    t.alloc = alloc;
    t.transient = transient;
    for (int i = 0; !transient && i < t.count; i++) take(&t, class, i, NULL);
    return t;
}

void tensors_destroy(struct tensors *t) {
    if (together(t) && t->count && t->at[0]) drop_together(t, NULL);
    for (int i = 0; i < t->count; i++) drop_one(t, i, NULL);
    free(t->at);
    free(t->n);
    free(t->format);
    free(t->name);
    free(t->in_use);
    *t = (struct tensors){0};
}

void tensors_clear(const struct tensors *t, cudaStream_t stream) {
    if (together(t) && t->count && t->at[0]) {
        CALL(cudaMemsetAsync(block_of(t), 0, tensors_bytes(t), stream));
        return;
    }
    for (int i = 0; i < t->count; i++)
        if (t->at[i]) CALL(cudaMemsetAsync(t->at[i], 0, tensor_bytes(t, i), stream));
}

int tensors_dump(const struct tensors *t, FILE *file, cudaStream_t stream) {
    for (int i = 0; i < t->count; i++) {
        size_t bytes = tensor_bytes(t, i);
        void *host = host_array(1, bytes);
        CALL(cudaMemcpyAsync(host, t->at[i], bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        fwrite(host, 1, bytes, file);
        free(host);
    }
    return ferror(file) ? -1 : 0;
}
