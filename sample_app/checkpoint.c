/* The file: lines of text, so that `head` shows what it is, then the tensors' bytes, then the checksum of all that
 * comes before it. Everything that could forbid going on is checked before the first byte goes to the device. */
#include "sample_app/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample_app/checked_call.h"
#include "sample_app/crc64.h"

#define MAGIC "train checkpoint "
#define END "\nend\n"

enum { VERSION = 1, CHECKSUM_BYTES = 8, TEXT_ENDS = 64 << 10, VALUE_BYTES = 64 };

static const char *const format_names[] = {
    [FORMAT_FP32] = "fp32", [FORMAT_BF16] = "bf16",   [FORMAT_FP16] = "fp16", [FORMAT_E4M3] = "e4m3",
    [FORMAT_E5M2] = "e5m2", [FORMAT_INT32] = "int32", [FORMAT_BYTE] = "byte",
};

/* What is kept, in the order of the file. */
enum { SETS = 3 };
static const struct tensors *set_of(const struct trained *t, int set) {
    return set == 0 ? &t->parameters : set == 1 ? &t->master : &t->state;
}

/* ---- the lines ------------------------------------------------------------------------------------------- */

/* What the text is known by: its size, and a checksum of its first and last 64 KiB, as it may be larger than memory. */
static void print_text(FILE *to, const struct text *text) {
    size_t bytes = text->size * (size_t)text->token_bytes, end = bytes < TEXT_ENDS ? bytes : TEXT_ENDS;
    uint64_t crc = crc64(crc64(0, text->bytes, end), text->bytes + bytes - end, end);
    fprintf(to, "text %zu bytes, checksum %016" PRIx64 "\n", bytes, crc);
}

/* What another run must have alike to go on: a line each, "name value". Whether a tenth of the text is set apart for
 * evaluation decides the windows; how often it is used does not. */
static void print_choices(FILE *to, const struct train_options *o, const struct text *text) {
    char value[VALUE_BYTES];
    const char *name;
    bool decides;
    for (int i = 0; (name = train_options_text(o, i, value, sizeof value, &decides)); i++)
        if (decides && *value) fprintf(to, "%s %s\n", name, value);
    fprintf(to, "evaluation %s\n", o->eval_every ? "on" : "off");
    print_text(to, text);
}

static void print_progress(FILE *to, const struct optimizer_progress *p, int64_t step) {
    fprintf(to, "step %" PRId64 "\nupdates %" PRId64 "\nskipped %" PRId64 "\ngood %" PRId64 "\n", step, p->updates,
            p->skipped, p->good);
    fprintf(to, "loss-scale %.9g\n", p->loss_scale);
}

static void print_tensors(FILE *to, const struct trained *t) {
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < set_of(t, set)->count; i++)
            fprintf(to, "tensor %s %s %zu\n", set_of(t, set)->name[i], format_names[set_of(t, set)->format[i]],
                    set_of(t, set)->n[i]);
}

struct lines {
    char *text;
    size_t bytes;
};

static FILE *lines_open(struct lines *l) {
    FILE *to = open_memstream(&l->text, &l->bytes);
    if (!to) die(EXIT_RUN_TIME, "out of host memory");
    return to;
}

static void lines_close(FILE *to) {
    if (fclose(to)) die(EXIT_RUN_TIME, "out of host memory");
}

/* The value in the line "name value" of text that ends with END, cut to VALUE_BYTES; "" if there is no such line. */
static const char *value_in(const char *text, const char *name, char *value) {
    size_t length = strlen(name);
    *value = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, length) || line[length] != ' ') continue;
        snprintf(value, VALUE_BYTES, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
        break;
    }
    return value;
}

/* ---- saving ---------------------------------------------------------------------------------------------- */

/* The folder of `path`, in `folder` of PATH_MAX bytes. */
static void folder_of(const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 1;
    if (snprintf(folder, PATH_MAX, "%.*s", length, slash ? path : ".") >= PATH_MAX)
        die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", path, strerror(ENAMETOOLONG));
}

/* What is written before it becomes `path`: in `temporary` of PATH_MAX bytes. */
static void temporary_of(const char *path, char *temporary) {
    if (snprintf(temporary, PATH_MAX, "%s.saving", path) >= PATH_MAX)
        die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", path, strerror(ENAMETOOLONG));
}

void checkpoint_check(const char *path) {
    struct stat st;
    char folder[PATH_MAX], temporary[PATH_MAX];
    folder_of(path, folder);
    temporary_of(path, temporary);
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        die(EXIT_RUN_TIME, "cannot write the checkpoint %s: it is not a regular file", path);
    if (access(folder, W_OK | X_OK)) die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", path, strerror(errno));
    bool there = !lstat(temporary, &st);
    if (there && !S_ISREG(st.st_mode))
        die(EXIT_RUN_TIME, "cannot write the checkpoint %s: it is not a regular file", temporary);
    if (there ? access(temporary, W_OK) : errno != ENOENT)
        die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", temporary, strerror(errno));
}

struct output {
    const char *path, *temporary;
    FILE *file;
    uint64_t crc;
};

static _Noreturn void output_failed(const struct output *out) {
    int error = errno;
    unlink(out->temporary);
    die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", out->path, strerror(error));
}

static void put(struct output *out, const void *data, size_t bytes) {
    if (fwrite(data, 1, bytes, out->file) != bytes) output_failed(out);
    out->crc = crc64(out->crc, data, bytes);
}

/* The temporary file has one name, so that what a killed run left is taken over and does not pile up. A lock keeps two
 * runs that save to the same path apart; the file that was locked may have been renamed by the other meanwhile. */
static void output_open(struct output *out) {
    struct stat locked, there;
    for (;;) {
        int fd = open(out->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", out->temporary, strerror(errno));
        (void)flock(fd, LOCK_EX); /* there are file systems without locks */
        if (!fstat(fd, &locked) && !stat(out->temporary, &there) && locked.st_ino == there.st_ino &&
            locked.st_dev == there.st_dev) {
            if (ftruncate(fd, 0) || !(out->file = fdopen(fd, "w"))) output_failed(out);
            return;
        }
        close(fd);
    }
}

/* The data must be on the disk before the name is, and the name before the program says that it has saved. */
static void output_finish(struct output *out) {
    char folder[PATH_MAX];
    folder_of(out->path, folder);
    if (fflush(out->file) || fsync(fileno(out->file)) || rename(out->temporary, out->path)) output_failed(out);
    if (fclose(out->file)) die(EXIT_RUN_TIME, "cannot write the checkpoint %s: %s", out->path, strerror(errno));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL)) /* EINVAL: this file system syncs no folders */
        die(EXIT_RUN_TIME, "cannot sync the folder of the checkpoint %s: %s", out->path, strerror(errno));
    close(fd);
}

/* The first two lines are of fixed length: form of the file, and all its bytes. */
static struct lines describe(const struct train_options *o, const struct text *text, const struct trained *t,
                             const struct optimizer_progress *progress, int64_t step) {
    struct lines l;
    size_t data = 0;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < set_of(t, set)->count; i++) data += tensor_bytes(set_of(t, set), i);
    FILE *to = lines_open(&l);
    fprintf(to, MAGIC "%d\nbytes %020d\n", VERSION, 0);
    print_choices(to, o, text);
    print_progress(to, progress, step);
    print_tensors(to, t);
    fputs(&END[1], to);
    lines_close(to);
    char *bytes = strchr(l.text, '\n') + 1 + strlen("bytes ");
    snprintf(bytes, 21, "%020zu", l.bytes + data + CHECKSUM_BYTES);
    bytes[20] = '\n';
    return l;
}

static void put_tensor(struct output *out, const struct tensors *t, int i, cudaStream_t stream) {
    size_t bytes = tensor_bytes(t, i);
    void *host = malloc(bytes ? bytes : 1);
    if (!host) die(EXIT_RUN_TIME, "out of host memory for a tensor of the checkpoint");
    CALL(cudaMemcpyAsync(host, t->at[i], bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    put(out, host, bytes);
    free(host);
}

void checkpoint_save(const char *path, const struct train_options *o, const struct text *text, const struct trained *t,
                     const struct optimizer_progress *progress, int64_t step, cudaStream_t stream) {
    char temporary[PATH_MAX];
    temporary_of(path, temporary);
    struct output out = {.path = path, .temporary = temporary};
    output_open(&out);

    struct lines l = describe(o, text, t, progress, step);
    put(&out, l.text, l.bytes);
    free(l.text);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < set_of(t, set)->count; i++) put_tensor(&out, set_of(t, set), i, stream);

    unsigned char checksum[CHECKSUM_BYTES];
    for (int i = 0; i < CHECKSUM_BYTES; i++) checksum[i] = (unsigned char)(out.crc >> 8 * i);
    put(&out, checksum, sizeof checksum);
    output_finish(&out);
}

/* ---- loading --------------------------------------------------------------------------------------------- */

struct input {
    const char *path;
    const char *at; /* the mapping */
    size_t bytes;
    char *lines; /* a copy of those up to and with END */
};

static void input_open(struct input *in) {
    struct stat st;
    int fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused below, not waited for */
    if (fd < 0 || fstat(fd, &st)) die(EXIT_RUN_TIME, "cannot read the checkpoint %s: %s", in->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) die(EXIT_RUN_TIME, "the checkpoint %s is not a regular file", in->path);
    in->bytes = (size_t)st.st_size;
    if (in->bytes) in->at = mmap(NULL, in->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (in->at == MAP_FAILED) die(EXIT_RUN_TIME, "cannot map the checkpoint %s: %s", in->path, strerror(errno));
    close(fd);
}

/* The number of the first or second line: "<before><number>\n"; -1 if that is not what is there. */
static int64_t number_after(const char *text, size_t bytes, const char *before) {
    size_t length = strlen(before), i = length;
    int64_t number = 0;
    if (bytes < length || memcmp(text, before, length)) return -1;
    for (; i < bytes && i < length + 20 && text[i] >= '0' && text[i] <= '9'; i++) {
        if (number > (INT64_MAX - 9) / 10) return -1;
        number = 10 * number + (text[i] - '0');
    }
    return i > length && i < bytes && text[i] == '\n' ? number : -1;
}

/* From the outside in: is it such a file, in a form that is known, whole, and unharmed? */
static void check_whole(struct input *in) {
    int64_t version = number_after(in->at, in->bytes, MAGIC);
    if (version < 0) die(EXIT_RUN_TIME, "%s is not a checkpoint of train", in->path);
    if (version != VERSION)
        die(EXIT_RUN_TIME, "the checkpoint %s is of form %" PRId64 "; this train reads form %d", in->path, version,
            VERSION);

    const char *second = memchr(in->at, '\n', in->bytes);
    size_t skipped = (size_t)(second + 1 - in->at);
    int64_t told = number_after(second + 1, in->bytes - skipped, "bytes ");
    if (told < 0 || (size_t)told != in->bytes)
        die(EXIT_RUN_TIME, "the checkpoint %s is damaged: it has %zu bytes, not as many as when it was saved", in->path,
            in->bytes);

    uint64_t checksum = 0;
    for (int i = 0; i < CHECKSUM_BYTES; i++)
        checksum |= (uint64_t)(unsigned char)in->at[in->bytes - CHECKSUM_BYTES + i] << 8 * i;
    if (crc64(0, in->at, in->bytes - CHECKSUM_BYTES) != checksum)
        die(EXIT_RUN_TIME, "the checkpoint %s is damaged: its checksum is not that of its contents", in->path);

    const char *end = memmem(in->at, in->bytes, END, strlen(END));
    for (const char *c = in->at; end && c < end; c++)
        if (*c != '\n' && (*c < ' ' || *c > '~')) end = NULL;
    if (!end) die(EXIT_RUN_TIME, "the checkpoint %s is damaged: its description is no text with an end", in->path);
    in->lines = strndup(in->at, (size_t)(end - in->at) + strlen(END));
    if (!in->lines) die(EXIT_RUN_TIME, "out of host memory");
}

static const char *shown(const char *value) {
    return *value ? value : "not given";
}

static _Noreturn void refuse(const struct input *in, const char *name, const char *theirs, const char *ours) {
    if (!strcmp(name, "text"))
        die(EXIT_RUN_TIME, "the checkpoint %s is of a run on another text: %s; here %s", in->path, theirs, ours);
    if (!strcmp(name, "evaluation")) name = "--eval-every";
    die(EXIT_RUN_TIME, "%s is %s in the checkpoint %s, %s here", name, shown(theirs), in->path, shown(ours));
}

/* The choices of both sides, each line of either: an option may be given on one side alone. */
static void check_choices(const struct input *in, const struct train_options *o, const struct text *text) {
    struct lines own;
    FILE *to = lines_open(&own);
    print_choices(to, o, text);
    lines_close(to);
    const char *sides[] = {own.text, in->lines};
    for (int side = 0; side < 2; side++) {
        for (const char *line = sides[side]; *line; line = strchr(line, '\n') + 1) {
            char name[VALUE_BYTES], theirs[VALUE_BYTES], ours[VALUE_BYTES];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " \n"), line);
            if (side && strncmp(name, "--", 2)) continue; /* what else the file tells is no choice */
            value_in(in->lines, name, theirs);
            value_in(own.text, name, ours);
            if (strcmp(theirs, ours)) refuse(in, name, theirs, ours);
        }
    }
    free(own.text);
}

/* The same choices make the same tensors, in the same order; anything else is a file of another program. */
static void check_tensors(const struct input *in, const struct trained *t) {
    struct lines own;
    size_t data = strlen(in->lines) + CHECKSUM_BYTES;
    FILE *to = lines_open(&own);
    print_tensors(to, t);
    fputs(&END[1], to);
    lines_close(to);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < set_of(t, set)->count; i++) data += tensor_bytes(set_of(t, set), i);
    const char *theirs = strstr(in->lines, "\ntensor ");
    if (!theirs || strcmp(theirs + 1, own.text) || data != in->bytes)
        die(EXIT_RUN_TIME, "the checkpoint %s does not have the tensors of this model", in->path);
    free(own.text);
}

static const char *required(const struct input *in, const char *name, char *value) {
    if (!*value_in(in->lines, name, value))
        die(EXIT_RUN_TIME, "the checkpoint %s is damaged: it does not tell its %s", in->path, name);
    return value;
}

static _Noreturn void no_number(const struct input *in, const char *name, const char *value) {
    die(EXIT_RUN_TIME, "the checkpoint %s is damaged: its %s is %s", in->path, name, value);
}

static int64_t integer_in(const struct input *in, const char *name) {
    char value[VALUE_BYTES], *end;
    long long number = strtoll(required(in, name, value), &end, 10);
    if (*end || number < 0 || number == LLONG_MAX) no_number(in, name, value);
    return number;
}

static float real_in(const struct input *in, const char *name) {
    char value[VALUE_BYTES], *end;
    float number = strtof(required(in, name, value), &end);
    if (*end || !isfinite(number) || number <= 0) no_number(in, name, value);
    return number;
}

static void upload(const struct input *in, const struct trained *t, cudaStream_t stream) {
    const char *from = in->at + strlen(in->lines);
    for (int set = 0; set < SETS; set++) {
        const struct tensors *s = set_of(t, set);
        for (int i = 0; i < s->count; from += tensor_bytes(s, i), i++)
            CALL(cudaMemcpyAsync(s->at[i], from, tensor_bytes(s, i), cudaMemcpyHostToDevice, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
}

int64_t checkpoint_load(const char *path, const struct train_options *o, const struct text *text,
                        const struct trained *t, struct optimizer_progress *progress, cudaStream_t stream) {
    struct input in = {.path = path};
    input_open(&in);
    check_whole(&in);
    check_choices(&in, o, text);
    check_tensors(&in, t);
    int64_t step = integer_in(&in, "step");
    *progress = (struct optimizer_progress){.updates = integer_in(&in, "updates"),
                                            .skipped = integer_in(&in, "skipped"),
                                            .good = integer_in(&in, "good"),
                                            .loss_scale = real_in(&in, "loss-scale")};
    upload(&in, t, stream);
    free(in.lines);
    munmap((void *)in.at, in.bytes);
    return step;
}
