#include "sample_app/device_tensors.h"

#include <stdlib.h>

#include "sample_app/checked_call.h"

enum { ELEMENT = sizeof(float) };

void *device_alloc(const char *name, const char *class, size_t bytes) {
    void *p;
    CALL(cudaMalloc(&p, bytes));
    truth_allocated(name, class, p, bytes);
    return p;
}

void device_free(void *p) {
    CALL(cudaFree(p));
    truth_released(p);
}

static void *host_array(int count, size_t element_bytes) {
    void *array = calloc(count ? count : 1, element_bytes);
    if (!array) die(EXIT_RUN_TIME, "out of host memory");
    return array;
}

static int allocations(const struct tensors *t) {
    return t->together && t->count ? 1 : t->count;
}

/* Elements in allocation i. */
static size_t allocated(const struct tensors *t, int i) {
    size_t n = t->n[i];
    for (int j = 1; t->together && j < t->count; j++) n += t->n[j];
    return n;
}

/* The room for the tensors: their sizes, not yet their memory. */
static struct tensors measure(const struct tensor_spec *specs, int count, bool together) {
    struct tensors t = {.together = together};
    for (int s = 0; s < count; s++) t.count += specs[s].count;
    t.at = host_array(t.count, sizeof *t.at);
    t.n = host_array(t.count, sizeof *t.n);
    for (int s = 0, i = 0; s < count; s++)
        for (int k = 0; k < specs[s].count; k++) t.n[i++] = specs[s].n;
    return t;
}

struct tensors tensors_create(const char *class, const char *prefix, const struct tensor_spec *specs, int count,
                              bool together) {
    struct tensors t = measure(specs, count, together);
    if (together && t.count) t.at[0] = device_alloc(class, class, allocated(&t, 0) * ELEMENT);
    for (int s = 0, i = 0; s < count; s++) {
        for (int k = 0; k < specs[s].count; k++, i++) {
            char name[32];
            snprintf(name, sizeof name, specs[s].count > 1 ? "%s%s%d" : "%s%s", prefix, specs[s].name, k + 1);
            if (!together)
                t.at[i] = device_alloc(name, class, t.n[i] * ELEMENT);
            else if (i)
                t.at[i] = t.at[i - 1] + t.n[i - 1];
        }
    }
    return t;
}

void tensors_destroy(struct tensors *t) {
    for (int i = 0; i < allocations(t); i++) device_free(t->at[i]);
    free(t->at);
    free(t->n);
    *t = (struct tensors){0};
}

void tensors_clear(const struct tensors *t, cudaStream_t stream) {
    for (int i = 0; i < allocations(t); i++) CALL(cudaMemsetAsync(t->at[i], 0, allocated(t, i) * ELEMENT, stream));
}

int tensors_dump(const struct tensors *t, FILE *file, cudaStream_t stream) {
    for (int i = 0; i < t->count; i++) {
        float *host = host_array(1, t->n[i] * ELEMENT);
        CALL(cudaMemcpyAsync(host, t->at[i], t->n[i] * ELEMENT, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        fwrite(host, ELEMENT, t->n[i], file);
        free(host);
    }
    return ferror(file) ? -1 : 0;
}
