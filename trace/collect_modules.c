#include "trace/collect_modules.h"
#include "trace/collect_bind.h"
#include "trace/collect_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "acct/fatbin.h"

#define MOST_TEXT_BYTES (256u << 20) /* of one text; PTX of the largest libraries has a tenth of it */
#define MOST_OPEN_BYTES (256u << 20) /* of all texts that are being put together */
#define MOST_OPEN 64                 /* such texts */
#define PATH_BYTES 4096

/* A text of which pieces have come. */
struct open_text {
    uint32_t module; /* 0: the place is free */
    uint64_t hash, flags;
    int64_t uncompressed_bytes;
    size_t bytes, received, capacity;
    unsigned char *text;
};

struct modules {
    struct open_text open[MOST_OPEN];
    size_t open_bytes;
};

struct modules *modules_new(void) {
    return calloc(1, sizeof(struct modules));
}

void modules_delete(struct modules *m) {
    for (int i = 0; m && i < MOST_OPEN; i++) free(m->open[i].text);
    free(m);
}

#define AS(rec, n) ((const struct acct_ev_##n *)(const void *)(rec)->u.bytes)

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Each text once, whoever has it. */
static int insert_text(struct rows *r, uint64_t hash, uint64_t flags, int64_t uncompressed, const void *text,
                       size_t bytes) {
    sqlite3_stmt *s = r->stmt[ROWS_PTX];
    sqlite3_bind_int64(s, 1, (int64_t)hash);
    sqlite3_bind_int64(s, 2, (int64_t)flags);
    sqlite3_bind_int64(s, 3, uncompressed);
    sqlite3_bind_blob64(s, 4, text, bytes, SQLITE_STATIC);
    int rc = rows_step(r, s);
    sqlite3_bind_null(s, 4);
    return rc;
}

/* What became of a module's text: its hash, or why there is none. */
static void set_text(struct rows *r, uint32_t module, const uint64_t *hash, const char *why) {
    sqlite3_stmt *s = r->stmt[ROWS_MODULE_TEXT];
    sqlite3_bind_int64(s, 1, module);
    if (hash)
        sqlite3_bind_int64(s, 2, (int64_t)*hash);
    else
        sqlite3_bind_null(s, 2);
    bind_constant(s, 3, why);
    rows_step(r, s);
}

/* ---- from a file ------------------------------------------------------------------------------------------------- */

/* As the program sees it: it may have another root. Never waits, as for a pipe. */
static int open_file(const struct rows *r, const char *path) {
    char name[PATH_BYTES + 32];
    int fd = -1;
    if (r->pid > 0) {
        snprintf(name, sizeof name, "/proc/%d/root%s", (int)r->pid, path);
        fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    }
    return fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

/* NULL: all `bytes` at `offset` are in `to`; else why not. */
static const char *read_part(int fd, uint64_t offset, unsigned char *to, size_t bytes) {
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) return "its file is no regular file any more";
    if ((uint64_t)st.st_size < bytes || offset > (uint64_t)st.st_size - bytes) return "its file has been replaced";
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, to + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return "its file cannot be read";
        at += (size_t)n;
    }
    return NULL;
}

static const char *read_file(const struct rows *r, const char *path, uint64_t offset, unsigned char *to, size_t bytes) {
    int fd = open_file(r, path);
    if (fd < 0) return errno == ENOENT ? "its file is gone" : "its file cannot be opened";
    const char *why = read_part(fd, offset, to, bytes);
    close(fd);
    return why;
}

/* The text named by a MODULE record, into `ptx`. NULL, or why not. */
static const char *text_from_file(struct rows *r, const struct acct_ev_module *m, const struct ring_text *path) {
    char name[PATH_BYTES];
    size_t bytes = (size_t)m->payload_bytes;
    if (path->length >= sizeof name || !path->length || *path->bytes != '/' || memchr(path->bytes, 0, path->length))
        return "its file has no usable name";
    memcpy(name, path->bytes, path->length);
    name[path->length] = 0;
    unsigned char *text = malloc(bytes);
    if (!text) return "no memory for its text";
    const char *why = read_file(r, name, m->file_offset, text, bytes);
    if (!why && acct_fatbin_hash(text, bytes) != m->hash) why = "its file has been replaced";
    if (!why) insert_text(r, m->hash, m->flags, m->uncompressed_bytes, text, bytes);
    free(text);
    return why;
}

/* ---- from pieces ------------------------------------------------------------------------------------------------- */

static struct open_text *find_open(struct modules *all, uint32_t module) {
    for (int i = 0; i < MOST_OPEN; i++)
        if (all->open[i].module == module) return &all->open[i];
    return NULL;
}

static void close_text(struct modules *all, struct open_text *o) {
    all->open_bytes -= o->capacity;
    free(o->text);
    *o = (struct open_text){0};
}

static void await_pieces(struct modules *all, const struct acct_ev_module *m) {
    struct open_text *o = m->number && !find_open(all, m->number) ? find_open(all, 0) : NULL;
    if (!o) return;
    *o = (struct open_text){.module = m->number,
                            .hash = m->hash,
                            .flags = m->flags,
                            .uncompressed_bytes = m->uncompressed_bytes,
                            .bytes = (size_t)m->payload_bytes};
}

/* Grows as pieces come: the size that was told is only believed piece by piece. */
static int make_room(struct modules *all, struct open_text *o, size_t bytes) {
    size_t capacity = o->capacity ? o->capacity : 1 << 16;
    while (capacity < bytes) capacity *= 2;
    if (capacity == o->capacity) return 1;
    if (all->open_bytes - o->capacity + capacity > MOST_OPEN_BYTES) return 0;
    unsigned char *text = realloc(o->text, capacity);
    if (!text) return 0;
    all->open_bytes += capacity - o->capacity;
    o->text = text;
    o->capacity = capacity;
    return 1;
}

static void finish_text(struct rows *r, struct open_text *o) {
    if (acct_fatbin_hash(o->text, o->bytes) != o->hash)
        set_text(r, o->module, NULL, "its text did not arrive as it was told");
    else if (insert_text(r, o->hash, o->flags, o->uncompressed_bytes, o->text, o->bytes) == 0)
        set_text(r, o->module, &o->hash, NULL);
}

static void piece(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_module_part *p = AS(rec, module_part);
    const struct ring_text *t = &rec->texts[0];
    struct open_text *o = p->module ? find_open(r->modules, p->module) : NULL;
    if (!o || !t->bytes || !t->length || p->offset < 0) return;
    if (p->offset == 0) o->received = 0; /* told once more: pieces may have been lost */
    if ((uint64_t)p->offset != o->received) return;
    if (t->length > o->bytes - o->received || !make_room(r->modules, o, o->received + t->length)) {
        close_text(r->modules, o);
        return;
    }
    memcpy(o->text + o->received, t->bytes, t->length);
    o->received += t->length;
    if (o->received < o->bytes) return;
    finish_text(r, o);
    close_text(r->modules, o);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static const char *text_of_module(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_module *m = AS(rec, module);
    if (m->payload_bytes <= 0) return "no PTX for this device: machine code only, or PTX for newer devices";
    if (m->payload_bytes > MOST_TEXT_BYTES) return "its text is too long";
    if (rec->texts[0].bytes) return text_from_file(r, m, &rec->texts[0]);
    await_pieces(r->modules, m);
    return "its text did not arrive";
}

/* A module that is told again keeps the text that it has. */
static void module(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_module *m = AS(rec, module);
    sqlite3_stmt *s = r->stmt[ROWS_MODULE];
    const char *why = text_of_module(r, rec);
    sqlite3_bind_int64(s, 1, m->number);
    sqlite3_bind_int64(s, 2, m->arch);
    sqlite3_bind_int64(s, 3, m->isa);
    bind_text(s, 4, &rec->texts[0]);
    bind_constant(s, 5, why);
    if (rows_step(r, s) == 0 && !why) set_text(r, m->number, &m->hash, NULL);
}

/* [[offset, bytes], …]; NULL: not known. sqlite3_malloc'ed. */
static char *params_json(const struct ring_text *t) {
    if (!t->bytes || t->length % 8) return NULL;
    sqlite3_str *out = sqlite3_str_new(NULL);
    sqlite3_str_appendchar(out, 1, '[');
    for (uint32_t i = 0; i < t->length; i += 8) {
        uint32_t pair[2];
        memcpy(pair, t->bytes + i, sizeof pair);
        sqlite3_str_appendf(out, "%s[%u,%u]", i ? "," : "", pair[0], pair[1]);
    }
    sqlite3_str_appendchar(out, 1, ']');
    return sqlite3_str_finish(out);
}

static void kernel(struct rows *r, const struct ring_record *rec) {
    const struct acct_ev_kernel *k = AS(rec, kernel);
    sqlite3_stmt *s = r->stmt[ROWS_KERNEL];
    sqlite3_bind_int64(s, 1, k->number);
    bind_id(s, 2, k->module);
    bind_id(s, 3, k->module ? k->modules : 0);
    bind_text(s, 4, &rec->texts[0]);
    sqlite3_bind_text(s, 5, params_json(&rec->texts[1]), -1, sqlite3_free);
    bind_i32(s, 6, k->registers);
    bind_i64(s, 7, k->static_shared_bytes);
    bind_i64(s, 8, k->local_bytes);
    bind_i32(s, 9, k->max_threads);
    rows_step(r, s);
}

void modules_record(struct rows *r, const struct ring_record *rec) {
    switch (rec->u.hdr.event) {
    case ACCT_EV_MODULE:
        module(r, rec);
        break;
    case ACCT_EV_MODULE_PART:
        piece(r, rec);
        break;
    default:
        kernel(r, rec);
    }
}
