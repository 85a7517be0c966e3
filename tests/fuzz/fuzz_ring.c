/* Fuzzer of what the collector does with shared memory: whatever a program puts there, it must not crash, read outside,
 * or break the database. The input is a list of patches on memory that a real writer filled with a record of every
 * event: offset (2 bytes, in units of 4 bytes from the control page, then from the ring), length 1…8, bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "acct/fatbin.h"
#include "trace/collect_rows.h"
#include "trace/ring.h"
#include "trace/ring_read.h"
#include "trace/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS 128u
#define BLOB 4096u

static unsigned char *memory, *image;
static uint64_t bytes;
static sqlite3 *db;

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_ring: %s\n", what);
    abort();
}

/* A module whose text comes in two pieces. */
static void write_pieces(struct ring_writer *w) {
    static const char text[] = "pieces";
    struct acct_ev_module *m = ring_begin(w, ACCT_EV_MODULE, sizeof *m, 1);
    must(m != NULL, "the ring is too small for a module");
    memset((char *)m + sizeof m->hdr, 0, sizeof *m - sizeof m->hdr);
    m->number = 7;
    m->payload_bytes = 6;
    m->hash = acct_fatbin_hash(text, 6);
    m->path = ring_text(w, NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct acct_ev_module_part *p = ring_begin(w, ACCT_EV_MODULE_PART, sizeof *p, 1);
        must(p != NULL, "the ring is too small for a piece");
        p->module = 7;
        p->offset = 3 * i;
        p->bytes = ring_text(w, text + 3 * i, 3);
    }
}

static void write_image(void) {
    struct acct_control layout;
    struct ring_writer w;
    memset(&layout, 0, sizeof layout);
    must(ring_layout(&layout, 2, SLOTS, BLOB, 1) == 0, "layout");
    bytes = layout.total_bytes;
    /* A mapping of exactly this size, with nothing mapped behind it that a read past the end could hit unnoticed. */
    memory = mmap(NULL, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(memory != MAP_FAILED && mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0, "mmap");
    image = malloc(bytes);
    memcpy(memory, &layout, sizeof layout);
    ring_attach(&w, (struct acct_control *)memory, (unsigned)ring_claim((struct acct_control *)memory));
    for (int e = ACCT_EV_PROCESS; e < ACCT_EV_COUNT; e++) {
        const struct event_info *info = &event_table[e];
        unsigned char *r = ring_begin(&w, (uint16_t)e, info->bytes, 1000u * (unsigned)e);
        must(r != NULL, "the ring is too small for every event");
        memset(r + sizeof(struct acct_rec), 0, info->bytes - sizeof(struct acct_rec));
        for (uint32_t i = 0; i < info->field_count; i++) {
            struct acct_text text = EVENT_T_IN_BLOB(info->fields[i].type) ? ring_text(&w, "A=\xc3\xa4\0\"b", 7)
                                                                          : (struct acct_text){1, 1, 0};
            size_t n = EVENT_T_IN_BLOB(info->fields[i].type) ? sizeof text : 4;
            memcpy(r + info->fields[i].offset, &text, n);
        }
    }
    write_pieces(&w);
    ring_commit(&w);
    memcpy(image, memory, bytes);
}

static void open_database(void) {
    char path[] = "/tmp/acct-fuzz-XXXXXX", err[512];
    must(mkdtemp(path) != NULL, "mkdtemp");
    char file[64];
    snprintf(file, sizeof file, "%s/t.db", path);
    must(store_create(&db, file, 0, err, sizeof err) == 0, err);
    sqlite3_exec(db, "PRAGMA journal_mode=MEMORY", NULL, NULL, NULL);
    unlink(file); /* it lives as long as it is open */
    rmdir(path);
}

static void patch(const uint8_t *data, size_t size) {
    while (size >= 4) {
        size_t offset = 4 * (size_t)(data[0] | data[1] << 8), length = 1 + data[2] % 8;
        if (length > size - 3) length = size - 3;
        if (offset + length <= bytes) memcpy(memory + offset, data + 3, length);
        data += 3 + length;
        size -= 3 + length;
    }
}

/* Records read. */
static int drain(const struct ring_map *map, struct rows *rows) {
    static struct ring_record record;
    int read = 0;
    char *texts = malloc(map->blob_bytes); /* its own block, so that overruns are seen */
    for (uint32_t i = 0; i < map->max_rings; i++) {
        struct ring_reader reader;
        struct rows_ring ring = {0};
        ring_reader_init(&reader, map, i, texts);
        uint64_t head = ring_reader_head(&reader);
        for (int n = 0; n < 1000 && ring_read(&reader, head, &record) == 1; n++)
            rows_record(rows, &ring, &record), read++;
        ring_release(&reader);
        rows_lost_residue(rows, &ring, atomic_load(&reader.ring->lost_records), atomic_load(&reader.ring->lost_blobs));
    }
    free(texts);
    return read;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ring_map map;
    struct rows rows;
    char err[256];
    if (!memory) {
        write_image();
        open_database();
    }
    memcpy(memory, image, bytes);
    patch(data, size);
    if (ring_map_check(&map, memory, bytes, err, sizeof err)) return 0;
    must(rows_open(&rows, db, "fuzz", 0) == 0, "rows_open");
    must(rows_begin(&rows) == 0, "rows_begin");
    int read = drain(&map, &rows);
    must(size >= 4 || read == ACCT_EV_COUNT - 1 + 3, "the image is not read whole"); /* or the fuzzer tests nothing */
    must(!rows.stopped, rows.message); /* no record may make SQLite fail */
    rows_close(&rows);
    return 0;
}
