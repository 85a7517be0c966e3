/* The report's peaks of memory: of the run, of each step, and of what is not the device's. */
#include "analyzer/memory_sweep.h"

#include <stdlib.h>

static void device_peaks(struct report *r, const struct memory_sweep *s) {
    struct memory_request *requests = NULL;
    int64_t n = 0;
    if (!s->moments) return; /* nothing was ever allocated: zeros, and known to be */
    requests = report_grow(requests, n, sizeof *requests);
    requests[n++] = (struct memory_request){memory_sweep_greatest(s, 0, s->moments - 1), &r->memory};
    for (int64_t i = 0; i < r->n_steps; i++) {
        int64_t moment = memory_sweep_step_peak(s, &r->steps[i]);
        if (moment < 0) continue;
        requests = report_grow(requests, n, sizeof *requests);
        requests[n++] = (struct memory_request){moment, &r->steps[i].memory};
    }
    memory_sweep_answer(s, requests, n);
    free(requests);
}

int report_load_memory(struct report *r, char *err, size_t err_len) {
    const struct memory_sweep *s = memory_sweep_of(r, err, err_len);
    if (!s) return -1;
    device_peaks(r, s);
    int rc = memory_sweep_highest(r, "'managed'", &r->managed_peak_bytes, err, err_len);
    if (!rc) rc = memory_sweep_highest(r, "'pinned', 'registered'", &r->pinned_peak_bytes, err, err_len);
    if (!rc) rc = memory_sweep_highest(r, "'array'", &r->array_peak_bytes, err, err_len);
    return rc;
}
