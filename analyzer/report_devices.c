/* Of a program with several devices: how much of its memory was live on each at most. */
#include "analyzer/report_print.h"

#include <stdio.h>

/* Live bytes after all changes of a moment; an allocation without a size or a device is in no sum. */
static const char peaks[] =
    "WITH c(device, ns, bytes) AS ("
    " SELECT device, alloc_ns, bytes FROM alloc WHERE memory IN ('device', 'async')"
    " UNION ALL"
    " SELECT device, free_ns, -bytes FROM alloc WHERE memory IN ('device', 'async') AND free_ns IS NOT NULL)"
    " SELECT device, max(live) FROM"
    " (SELECT device, sum(bytes) OVER (PARTITION BY device ORDER BY ns) AS live FROM c WHERE device IS NOT NULL)"
    " GROUP BY device ORDER BY device";

int report_load_device_peaks(struct report *r, char *err, size_t err_len) {
    if (r->devices < 2) return 0;
    sqlite3_stmt *st = report_prepare(r, peaks, err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        r->device_peaks = report_grow(r->device_peaks, r->n_device_peaks, sizeof *r->device_peaks);
        r->device_peaks[r->n_device_peaks++] =
            (struct report_device_peak){sqlite3_column_int64(st, 0), report_column(st, 1)};
    }
    return report_rows_end(r, st, rc, err, err_len);
}

void report_note_devices(struct report *r) {
    char text[512] = "", bytes[64];
    size_t n = 0;
    if (r->devices < 2) return;
    for (int64_t i = 0; i < r->n_device_peaks && n < sizeof text; i++) {
        emit_human_bytes(bytes, sizeof bytes, r->device_peaks[i].peak_bytes);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s device %lld %s",
                              i ? "," : ", each at its own time:", (long long)r->device_peaks[i].device, bytes);
    }
    report_note(
        r,
        "The program used %lld devices: memory and FLOPs are sums over them, name and peak are the first one's. "
        "Memory at most%s.",
        (long long)r->devices, n ? text : ": not known");
}

void report_print_device_peaks(struct emitter *e, const struct report *r) {
    if (r->devices < 2) return;
    emit_list(e, "by_device", NULL, LOOK_HIDDEN);
    for (int64_t i = 0; i < r->n_device_peaks; i++) {
        emit_object(e, "", NULL, LOOK_FIELDS);
        emit_int(e, "device", NULL, UNIT_NONE, r->device_peaks[i].device);
        emit_int(e, "peak_bytes", NULL, UNIT_BYTES, r->device_peaks[i].peak_bytes);
        emit_end(e);
    }
    emit_end(e);
}
