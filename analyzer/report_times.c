/* Times by the device: which clock the report goes by, where the time went, what share of it is counted. */
#include "analyzer/report_busy.h"
#include "analyzer/report_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/store.h"

static int load_clock(struct report *r, char *err, size_t err_len) {
    sqlite3_stmt *st =
        report_prepare(r,
                       "SELECT clock, (SELECT count(*) FROM op_time), json_extract(e.text, '$.ACCT_VGPU'), "
                       "json_extract(e.text, '$.ACCT_VGPU_DRY') IN ('on', '1') FROM device d LEFT JOIN "
                       "(SELECT id, CASE WHEN json_valid(environment) THEN environment END AS text FROM process) e "
                       "ON e.id = d.process ORDER BY d.process, d.ordinal LIMIT 1",
                       err, err_len);
    int rc;
    if (!st) return -1;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (sqlite3_column_int64(st, 1)) r->device_clock = report_column_text(st, 0);
        const char *clock = (const char *)sqlite3_column_text(st, 0);
        r->modelled = clock && !strcmp(clock, "model");
        r->profile = r->modelled ? report_column_text(st, 2) : NULL;
        r->dry = r->modelled && sqlite3_column_int(st, 3);
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

/* One clock for all steps: the device's if every complete one has its time. The host's tells nothing of a model. */
static void choose_clock(struct report *r) {
    int64_t complete = 0, timed = 0;
    for (int64_t i = 0; i < r->n_steps; i++) {
        const struct report_step *s = &r->steps[i];
        complete += s->complete != 0;
        timed += s->complete && s->device_start_ns != REPORT_UNKNOWN && s->device_end_ns != REPORT_UNKNOWN;
    }
    r->on_device =
        r->device_clock && strcmp(r->device_clock, "host") && (complete ? timed == complete : r->busy_ns > 0);
    for (int64_t i = 0; i < r->n_steps; i++) {
        struct report_step *s = &r->steps[i];
        int64_t from = r->on_device ? s->device_start_ns : s->start_ns,
                to = r->on_device ? s->device_end_ns : s->end_ns;
        int known = from != REPORT_UNKNOWN && to != REPORT_UNKNOWN && (r->on_device || !r->modelled);
        s->ns = known ? to - from : REPORT_UNKNOWN;
    }
}

/* Of the device's time, that of ops with known FLOPs. Copies and memsets have 0, which is known. */
static int load_share(struct report *r, char *err, size_t err_len) {
    static const char ops[] = "SELECT coalesce(sum(t.busy_ns), 0), coalesce(sum(CASE WHEN c.grade = 'exact' THEN "
                              "t.busy_ns END), 0) FROM op_time t JOIN op_cost c ON c.op = t.op "
                              "WHERE c.flops IS NOT NULL OR c.integer_ops IS NOT NULL";
    static const char sums[] = "SELECT coalesce(sum(busy_ns), 0), coalesce(sum(CASE WHEN grade = 'exact' THEN busy_ns "
                               "END), 0) FROM op_sum WHERE flops IS NOT NULL OR integer_ops IS NOT NULL";
    sqlite3_stmt *st = report_prepare(r, report_has_sums(r) ? sums : ops, err, err_len);
    int rc;
    if (!st) return -1;
    r->counted_time_share = r->exact_time_share = NAN;
    if ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (r->busy_ns > 0) r->counted_time_share = (double)sqlite3_column_int64(st, 0) / (double)r->busy_ns;
        if (r->busy_ns > 0) r->exact_time_share = (double)sqlite3_column_int64(st, 1) / (double)r->busy_ns;
        rc = sqlite3_step(st);
    }
    return report_rows_end(r, st, rc, err, err_len);
}

static void note_times(struct report *r) {
    char *why = store_meta_text(r->db, "cupti");
    sqlite3_int64 dropped = 0;
    if (!store_meta_int(r->db, "cupti_dropped", &dropped) && dropped > 0) {
        r->times_dropped = dropped;
        report_note(r, "CUPTI dropped %lld activity records: times of some calls are missing.", (long long)dropped);
    }
    if (!r->busy_ns)
        report_note(r, "CUPTI: %s; there are no device times: times of single ops are unknown%s.",
                    why ? why : "no record of it in this trace",
                    r->modelled ? "" : ", step times, rates and MFU follow the host's clock");
    else if (why)
        report_note(r, "CUPTI: %s.", why);
    if (r->busy_ns && r->launches_untimed)
        report_note(r,
                    "%lld kernel launch(es) have no device time (dropped, faulted, or the program ended before their "
                    "records came): "
                    "times by function are lower bounds.",
                    (long long)r->launches_untimed);
    free(why);
}

/* A program on a model of a device: what its figures mean, and what they do not. */
static void note_model(struct report *r) {
    if (!r->modelled) return;
    if (r->on_device)
        report_note(r,
                    "Times are a model's (roofline): each op takes the larger of FLOPs / peak and bytes / bandwidth, "
                    "plus its launch; the host is always ahead. Real steps take longer: rates and MFU are upper "
                    "limits, what this program could reach at best.");
    else
        report_note(r,
                    "The device is a model, and some ops have no time of it: the host's clock tells nothing about that "
                    "device, so there are no rates and no MFU.");
    if (r->dry)
        report_note(r,
                    "Dry run: nothing was executed, and what the program read back was zeros. Allocations, calls and "
                    "FLOPs are the program's, as far as it does not decide by values.");
}

int report_load_times(struct report *r, char *err, size_t err_len) {
    if (load_clock(r, err, err_len) || report_load_busy(r, err, err_len) || report_load_functions(r, err, err_len) ||
        load_share(r, err, err_len))
        return -1;
    choose_clock(r);
    note_times(r);
    note_model(r);
    return 0;
}
