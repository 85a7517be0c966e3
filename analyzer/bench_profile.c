/* What can be measured is measured; the rest is what the driver tells, or the data sheet's, as `base`. */
#include "analyzer/bench_profile.h"

#include "analyzer/command.h"
#include "analyzer/emitter.h"

#include "acct/profile.h"

#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that a path is in; room for it in copy. */
static const char *folder_of(const char *path, char copy[PATH_MAX]) {
    snprintf(copy, PATH_MAX, "%s", path);
    return dirname(copy);
}

int bench_file_check(const char *option, const char *path, char *err, size_t err_len) {
    char copy[PATH_MAX];
    struct stat st;
    const char *dir = folder_of(path, copy);
    if (!*path || (!stat(path, &st) && S_ISDIR(st.st_mode)))
        return acct_profile_refuse(err, err_len, "--%s %s: is not the name of a file", option, path);
    if (!access(path, W_OK) || !access(dir, W_OK | X_OK)) return 0; /* a device or a pipe is written where it is */
    return acct_profile_refuse(err, err_len, "--%s %s: %s cannot be written: %s", option, path, dir, strerror(errno));
}

int bench_same_file(const char *a, const char *b) {
    char in_a[PATH_MAX], in_b[PATH_MAX];
    struct stat x, y;
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    if (strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b)) return 0;
    return !stat(folder_of(a, in_a), &x) && !stat(folder_of(b, in_b), &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

int bench_profile_check(const char *path, int force, char *err, size_t err_len) {
    struct stat st;
    size_t n = strlen(path);
    if (n <= 8 || strcmp(path + n - 8, ".profile") || strchr(path, ':') || n >= PATH_MAX)
        return acct_profile_refuse(
            err, err_len, "--save %.200s: the name must end in .profile, as in mine.profile, and have no colon", path);
    if (!stat(path, &st)) {
        if (!S_ISREG(st.st_mode)) return acct_profile_refuse(err, err_len, "--save %s: is not a file", path);
        if (!force)
            return acct_profile_refuse(err, err_len, "--save %s: exists already; give --force to replace it", path);
    }
    return bench_file_check("save", path, err, err_len);
}

/* ---- values ---- */

static void line(FILE *f, const char *key, const char *value, const char *comment) {
    fprintf(f, "%s = %s%s%s\n", key, value, comment ? "   # " : "", comment ? comment : "");
}

/* Six digits, in the largest unit of that kind in which the number is 1 or more, else in the smallest. */
static void line_scaled(FILE *f, const char *key, const struct acct_profile_unit *units, int n, double value,
                        const char *comment) {
    char text[64];
    int u = 0;
    while (u + 1 < n && value < units[u].factor) u++;
    snprintf(text, sizeof text, "%.6g%s", value / units[u].factor, units[u].name);
    line(f, key, text, comment);
}

static void line_peak(FILE *f, const char *key, int integer, double value, const char *comment) {
    static const struct acct_profile_unit flops[] = {{"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}},
                                          ops[] = {{"POP/s", 1e15}, {"TOP/s", 1e12}};
    line_scaled(f, key, integer ? ops : flops, integer ? 2 : 3, value, comment);
}

static void line_rate(FILE *f, const char *key, double value, const char *comment) {
    static const struct acct_profile_unit rates[] = {{"GB/s", 1e9}, {"MB/s", 1e6}};
    if (value > 0) line_scaled(f, key, rates, 2, value, comment);
}

static void line_bytes(FILE *f, const char *key, int64_t bytes) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64 "B", bytes);
    line(f, key, text, NULL);
}

static void line_whole(FILE *f, const char *key, int64_t n) {
    if (n > 0) fprintf(f, "%s = %" PRId64 "\n", key, n);
}

static void line_khz(FILE *f, const char *key, int khz) {
    if (khz > 0) fprintf(f, "%s = %dkHz\n", key, khz);
}

/* ---- the file ---- */

/* The fastest product of each format. fp64's stands for the matrix units where the data sheet knows such. */
static void print_peaks(FILE *f, const struct bench_results *r) {
    const struct bench_device *d = &r->device;
    for (int format = 0; format < ACCT_FORMATS; format++) {
        const char *key = bench_format_name(format);
        struct bench_best best = bench_best_product(r, format);
        char comment[160];
        if (!key) continue;
        if (format == ACCT_FP64 && d->in_table && !isnan(d->sheet.peak[ACCT_FP64_MATRIX]))
            key = acct_format_name(ACCT_FP64_MATRIX);
        if (best.fastest) {
            snprintf(comment, sizeof comment, "%" PRId64 " x %" PRId64 " x %" PRId64 "; highest median %.4g T%s/s",
                     best.fastest->m, best.fastest->n, best.fastest->k, best.median_rate / 1e12,
                     format == ACCT_INT8 ? "OP" : "FLOP");
            line_peak(f, key, format == ACCT_INT8, best.rate, comment);
        } else if (bench_not_supported(r, format)) {
            line(f, key, "none", NULL);
        } else {
            fprintf(f, "# %s: not measured%s\n", key, d->in_table ? "; the base's" : "");
        }
    }
}

static void print_device(FILE *f, const struct bench_results *r) {
    const struct bench_device *d = &r->device;
    line(f, "name", d->name, NULL);
    line_whole(f, "sm", d->sm);
    line_whole(f, "multiprocessors", d->sms);
    line_bytes(f, "total", d->total_bytes);
    line_bytes(f, "reserved", d->total_bytes - d->free_bytes);
    if (d->l2_bytes > 0) line_bytes(f, "l2", d->l2_bytes);
    line_khz(f, "clock", d->clock_khz);
    line_khz(f, "memory_clock", d->memory_clock_khz);
    line_whole(f, "memory_bus_bits", d->bus_bits);
}

static void print_copies(FILE *f, const struct bench_results *r) {
    const struct bench_device *d = &r->device;
    static const struct acct_profile_unit times[] = {{"us", 1e-6}, {"ns", 1e-9}};
    double launch = bench_launch_seconds(r, "back-to-back");
    line_rate(f, "bandwidth", bench_best_copy(r, "d2d", NULL), "read and written, the highest median");
    line_rate(f, "host_link", fmax(bench_best_copy(r, "h2d", "pinned"), bench_best_copy(r, "d2h", "pinned")),
              "pinned, the faster way");
    line_rate(f, "peer_link", bench_best_copy(r, "peer", NULL), NULL);
    if (d->devices > 1) line(f, "peer_access", d->peer ? "yes" : "no", NULL);
    if (launch > 0) line_scaled(f, "launch", times, 2, launch, "back to back");
}

static void print_profile(FILE *f, const struct bench_results *r, const char *date) {
    const struct bench_device *d = &r->device;
    fprintf(f, "# A profile for acct run --vgpu=FILE and acct report --peaks FILE.\n"
               "# Measured with random numbers. Peaks are the fastest product of each format.\n");
    if (d->in_table) line(f, "base", d->sheet.alias, "what is not given below");
    print_device(f, r);
    fprintf(f, "source = measured by acct bench, %s\n", date);
    print_peaks(f, r);
    print_copies(f, r);
}

int bench_profile_save(const char *path, const struct bench_results *r, const char *date, struct acct_device *out,
                       char *err, size_t err_len) {
    struct output o;
    char why[5000] = "";
    sigset_t all, before;
    int rc;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* a Ctrl-C now would leave the other name behind */
    rc = output_open(&o, path, why, sizeof why);
    if (!rc) {
        print_profile(o.file, r, date);
        rc = fflush(o.file) ? -1 : acct_profile_file(o.temporary, out, why, sizeof why);
        if (rc)
            output_abandon(&o);
        else
            rc = output_close(&o, why, sizeof why);
    }
    if (!rc) rc = acct_profile_file(path, out, why, sizeof why); /* its alias is that of the name it has now */
    sigprocmask(SIG_SETMASK, &before, NULL);
    size_t other = strlen(o.temporary); /* a reason that begins with the other name */
    const char *told = other && !strncmp(why, o.temporary, other) ? why + other : why;
    if (rc)
        snprintf(err, err_len, "--save: the profile cannot be made: %s%s%.900s", told == why && *why ? "" : path,
                 *why ? "" : ": ", *why ? told : strerror(errno));
    return rc;
}
