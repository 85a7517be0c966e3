/* A copy's host side is looked up among the page-locked and managed allocations of the trace, as the analysis did when
 * it found the block behind each address (op_buffer); no block there means pageable memory: the driver stages such a
 * copy through buffers of its own, and an asynchronous one waits. */
#include "analyzer/memory_host.h"
#include "analyzer/memory_print.h"
#include "analyzer/memory_sweep.h"

#include "acct/device_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const directions[COPY_DIRECTIONS] = {"h2d", "d2h", "d2d", "h2h", "unknown"};

/* ---- copies ---- */

/* Where an address of a copy lies. */
enum side { SIDE_PAGEABLE, SIDE_DEVICE, SIDE_LOCKED, SIDE_NONE };

static enum side side_of(const char *memory) {
    if (!memory) return SIDE_PAGEABLE;
    if (!strcmp(memory, "pinned") || !strcmp(memory, "registered")) return SIDE_LOCKED;
    return SIDE_DEVICE; /* managed too: the device reaches it as its own */
}

static enum memory_direction direction_of(const char *stated, enum side dst, enum side src) {
    for (int d = 0; stated && d < COPY_UNKNOWN; d++)
        if (!strcmp(stated, directions[d])) return (enum memory_direction)d;
    if (!stated || strcmp(stated, "default")) return COPY_UNKNOWN;
    if (dst == SIDE_DEVICE) return src == SIDE_DEVICE ? COPY_D2D : COPY_H2D;
    return src == SIDE_DEVICE ? COPY_D2H : COPY_H2H;
}

static void add_copy(struct memory_host *h, sqlite3_stmt *st, int sure) {
    enum side dst = side_of((const char *)sqlite3_column_text(st, 1));
    enum side src = side_of((const char *)sqlite3_column_text(st, 2));
    enum memory_direction d = direction_of((const char *)sqlite3_column_text(st, 0), dst, src);
    struct memory_copies *c = &h->copies[d];
    int64_t n = sqlite3_column_int64(st, 3), bytes = sqlite3_column_int64(st, 4);
    enum side host = d == COPY_H2D ? src : d == COPY_D2H ? dst : SIDE_NONE;
    c->count += n;
    c->bytes += bytes;
    c->timed += sqlite3_column_int64(st, 5);
    c->timed_bytes += sqlite3_column_int64(st, 6);
    c->ns += sqlite3_column_int64(st, 7);
    if (host != SIDE_PAGEABLE) return;
    *(sure ? &c->pageable : &c->unsure) += n;
    *(sure ? &c->pageable_bytes : &c->unsure_bytes) += bytes;
}

/* The allocation behind an address of a copy. Sets are written out: a view on the right of a LEFT JOIN would be
 * computed for all ops. An analysis without sets has op_buffer as a table. */
#define SIDE_OF_SETS(slot, x)                                                                                     \
    " LEFT JOIN op_set " x "o ON " x "o.op = c.op LEFT JOIN buffer_set " x "b ON " x "b.buffers = " x "o.buffers" \
    " AND " x "b.slot = '" slot "' LEFT JOIN alloc " x "a ON " x "a.id = coalesce(" x "b.alloc, c.op - " x "b.before)"
#define SIDE_OF_TABLE(slot, x)                                                                                  \
    " LEFT JOIN op_buffer " x "b ON " x "b.op = c.op AND " x "b.slot = '" slot "' LEFT JOIN alloc " x "a ON " x \
    "a.id = " x "b.alloc"
#define COPIES(side)                                                                                \
    "SELECT c.direction, da.memory, sa.memory, count(*), sum(c.bytes), sum(t.busy_ns IS NOT NULL)," \
    " sum(CASE WHEN t.busy_ns IS NOT NULL THEN c.bytes ELSE 0 END), coalesce(sum(t.busy_ns), 0)"    \
    " FROM copy c CROSS JOIN op ON op.id = c.op AND op.status = 0" side("dst", "d")                 \
        side("src", "s") " LEFT JOIN op_time t ON t.op = c.op WHERE c.bytes > 0 GROUP BY 1, 2, 3"

static int load_copies(struct report *r, struct memory_host *h, char *err, size_t err_len) {
    const char *sql = memory_has_table(r, "op_set") ? COPIES(SIDE_OF_SETS) : COPIES(SIDE_OF_TABLE);
    sqlite3_stmt *st = report_prepare(r, sql, err, err_len);
    int rc;
    if (!st) return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) add_copy(h, st, !r->dropped);
    return report_rows_end(r, st, rc, err, err_len);
}

/* The links of the data sheet, by the device's name; between devices and within one, of its memory, each byte of which
 * is read and written. */
static void find_links(const struct report *r, struct memory_host *h) {
    struct acct_device d;
    for (int i = 0; i < COPY_DIRECTIONS; i++) h->copies[i].link_bytes_per_s = NAN;
    for (int i = 0; r->device_name && !acct_device_get(i, &d); i++) {
        if (strcmp(d.name, r->device_name)) continue;
        if (d.host_bytes_per_s > 0)
            h->copies[COPY_H2D].link_bytes_per_s = h->copies[COPY_D2H].link_bytes_per_s = d.host_bytes_per_s;
        if (r->devices == 1 && d.bytes_per_s > 0) h->copies[COPY_D2D].link_bytes_per_s = d.bytes_per_s / 2;
        return;
    }
}

int memory_host_load(struct report *r, struct memory_host *out, char *err, size_t err_len) {
    memset(out, 0, sizeof *out);
    find_links(r, out);
    if (memory_sweep_highest(r, "'pinned'", &out->pinned_peak_bytes, err, err_len) ||
        memory_sweep_highest(r, "'registered'", &out->registered_peak_bytes, err, err_len) ||
        memory_sweep_highest(r, "'managed'", &out->managed_peak_bytes, err, err_len) ||
        memory_sweep_highest(r, "'array'", &out->array_peak_bytes, err, err_len))
        return -1;
    return load_copies(r, out, err, err_len);
}

/* ---- print ---- */

static void print_copies(struct emitter *e, const struct memory_host *h, int d) {
    static const char *const words[COPY_DIRECTIONS] = {"host to device", "device to host", "device to device",
                                                       "host to host", "not told"};
    const struct memory_copies *c = &h->copies[d];
    double rate = c->ns > 0 ? 1e9 * (double)c->timed_bytes / (double)c->ns : NAN;
    char text[96], number[64];
    emit_object(e, "", NULL, LOOK_FIELDS);
    emit_text(e, "direction", NULL, directions[d]);
    emit_text(e, NULL, "copies", words[d]);
    emit_int(e, "count", "count", UNIT_NONE, c->count);
    emit_int(e, "bytes", "bytes", UNIT_BYTES, c->bytes);
    report_print_int(e, "time_ns", "device time", UNIT_NS, c->timed ? c->ns : REPORT_UNKNOWN);
    emit_int(e, "timed_count", NULL, UNIT_NONE, c->timed);
    emit_real(e, "bytes_per_s", NULL, UNIT_NONE, rate);
    snprintf(text, sizeof text, "%.3g GB/s", rate / 1e9);
    emit_text(e, NULL, "rate", isnan(rate) ? NULL : text);
    emit_real(e, "link_bytes_per_s", NULL, UNIT_NONE, c->link_bytes_per_s);
    emit_real(e, "link_share", "of the link", UNIT_SHARE, rate / c->link_bytes_per_s);
    if (d == COPY_D2D || d == COPY_H2H || d == COPY_UNKNOWN) {
        emit_null(e, "pageable_count", NULL), emit_null(e, "pageable_bytes", NULL);
        emit_text(e, NULL, "pageable", "-");
    } else {
        report_print_int(e, "pageable_count", NULL, UNIT_NONE, c->unsure ? REPORT_UNKNOWN : c->pageable);
        report_print_int(e, "pageable_bytes", NULL, UNIT_BYTES, c->unsure ? REPORT_UNKNOWN : c->pageable_bytes);
        emit_human_bytes(number, sizeof number, c->pageable_bytes);
        snprintf(text, sizeof text, "%lld: %s", (long long)c->pageable, number);
        emit_text(e, NULL, "pageable", c->unsure ? NULL : c->pageable ? text : "0");
    }
    emit_end(e);
}

void memory_host_print(struct emitter *e, const struct memory_host *h) {
    int64_t copies = 0, pageable = 0;
    emit_object(e, "host", "Host side, apart (each at its own peak)", LOOK_FIELDS);
    emit_int(e, "pinned_peak_bytes", "pinned", UNIT_BYTES, h->pinned_peak_bytes);
    emit_int(e, "registered_peak_bytes", h->registered_peak_bytes ? "registered" : NULL, UNIT_BYTES,
             h->registered_peak_bytes);
    emit_int(e, "managed_peak_bytes", h->managed_peak_bytes ? "managed" : NULL, UNIT_BYTES, h->managed_peak_bytes);
    emit_int(e, "array_peak_bytes", h->array_peak_bytes ? "arrays" : NULL, UNIT_BYTES, h->array_peak_bytes);
    emit_end(e);
    for (int d = 0; d < COPY_DIRECTIONS; d++) copies += h->copies[d].count, pageable += h->copies[d].pageable;
    emit_list(e, "copies", copies ? "Copies" : NULL, copies ? LOOK_TABLE : LOOK_HIDDEN);
    for (int d = 0; d < COPY_DIRECTIONS; d++)
        if (h->copies[d].count || (d < COPY_UNKNOWN && !emit_for_people(e))) print_copies(e, h, d);
    emit_end(e);
    if (!pageable || !emit_for_people(e)) return;
    emit_list(e, NULL, "Pageable copies", LOOK_LINES);
    emit_text(
        e, NULL, "",
        "Their host side is in no page-locked or managed allocation: they go through buffers of the driver, and an "
        "asynchronous one is not; cudaMallocHost or cudaHostRegister avoid it.");
    emit_end(e);
}
