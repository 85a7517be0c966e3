#include "trace/ring_read.h"
#include "trace/ring.h"

#include <stdio.h>
#include <string.h>

#define PAGE 4096u

/* What was copied must not be read again from where it came from: the compiler would be free to. */
#define COPIED() __asm__ volatile("" ::: "memory")

static int power_of_two(uint32_t n) {
    return n && !(n & (n - 1));
}

static const char *geometry_fault(const struct ring_map *m, uint64_t claimed_bytes) {
    uint64_t area = ACCT_RING_HEADER_BYTES + (uint64_t)m->ring_slots * ACCT_SLOT_BYTES + m->blob_bytes;
    if (claimed_bytes != m->total_bytes) return "its size is not what it says";
    if (m->max_rings < 1 || m->max_rings > ACCT_MAX_RINGS) return "bad number of rings";
    if (!power_of_two(m->ring_slots) || m->ring_slots < RING_MIN_SLOTS || m->ring_slots > RING_MAX_SLOTS)
        return "bad ring size";
    if (!power_of_two(m->blob_bytes) || m->blob_bytes < RING_MIN_BLOB || m->blob_bytes > RING_MAX_BLOB)
        return "bad blob size";
    if (m->rings_offset < sizeof(struct acct_control) || m->rings_offset % PAGE) return "bad offset of the rings";
    if (m->ring_stride < area || m->ring_stride % PAGE) return "bad distance of the rings";
    if (m->rings_offset > m->total_bytes || m->ring_stride > (m->total_bytes - m->rings_offset) / m->max_rings)
        return "its rings do not fit in it";
    return NULL;
}

int ring_map_check(struct ring_map *map, void *base, uint64_t bytes, char *err, size_t err_len) {
    const struct acct_control *c = base;
    *map = (struct ring_map){.base = base, .total_bytes = bytes};
    if (bytes < sizeof *c) {
        snprintf(err, err_len, "shared memory of %llu bytes is too small", (unsigned long long)bytes);
        return -1;
    }
    uint32_t magic = c->magic, version = c->version;
    uint64_t claimed = c->total_bytes;
    map->max_rings = c->max_rings;
    map->ring_slots = c->ring_slots;
    map->blob_bytes = c->blob_bytes;
    map->rings_offset = c->rings_offset;
    map->ring_stride = c->ring_stride;
    COPIED();
    if (magic != ACCT_WIRE_MAGIC || version != ACCT_WIRE_VERSION) {
        snprintf(err, err_len, "libacct.so and acct-collect are of different versions: install both from one build");
        return -1;
    }
    const char *fault = geometry_fault(map, claimed);
    if (fault) snprintf(err, err_len, "shared memory of the traced program is corrupt: %s", fault);
    return fault ? -1 : 0;
}

void ring_reader_init(struct ring_reader *r, const struct ring_map *map, uint32_t i, char *text_copy) {
    unsigned char *area = map->base + map->rings_offset + i * map->ring_stride;
    *r = (struct ring_reader){
        .ring = (struct acct_ring *)area, .slot_count = map->ring_slots, .blob_bytes = map->blob_bytes};
    r->slots = area + ACCT_RING_HEADER_BYTES;
    r->blob = r->slots + (size_t)map->ring_slots * ACCT_SLOT_BYTES;
    r->text_copy = text_copy;
}

uint64_t ring_reader_head(const struct ring_reader *r) {
    return atomic_load_explicit(&r->ring->head, memory_order_acquire);
}

uint64_t ring_reader_next_ns(const struct ring_reader *r) {
    const unsigned char *next = r->slots + (r->tail & (r->slot_count - 1)) * ACCT_SLOT_BYTES;
    uint64_t ns;
    memcpy(&ns, next + offsetof(struct acct_rec, start_ns), sizeof ns);
    return ns;
}

void ring_release(struct ring_reader *r) {
    atomic_store_explicit(&r->ring->blob_tail, r->blob_tail, memory_order_release);
    atomic_store_explicit(&r->ring->tail, r->tail, memory_order_release);
}

static int corrupt(struct ring_reader *r, const char *fault) {
    r->fault = fault;
    return -1;
}

/* Where the text fields and the enum fields of each event are, so that the check of a record is short. */
struct checks {
    uint8_t text_count, enum_count;
    uint16_t texts[RING_TEXTS]; /* offsets in the record */
    uint16_t enums[24];
    uint8_t enum_types[24];
};
static struct checks checks[ACCT_EV_COUNT];
static int checks_made;

static void make_checks(void) {
    for (int e = 0; e < ACCT_EV_COUNT; e++) {
        const struct event_info *info = &event_table[e];
        struct checks *c = &checks[e];
        for (uint32_t i = 0; i < info->field_count; i++) {
            const struct event_field *f = &info->fields[i];
            if (EVENT_T_IN_BLOB(f->type))
                c->texts[c->text_count++] = (uint16_t)f->offset;
            else if (f->type >= EVENT_T_FIRST_ENUM) {
                c->enum_types[c->enum_count] = (uint8_t)f->type;
                c->enums[c->enum_count++] = (uint16_t)f->offset;
            }
        }
    }
    checks_made = 1;
}

/* make_checks stays within its arrays: counted at compile time. */
#define EVENT(N, n, c, doc) _Static_assert(0
#define FIELD(N, t, f, doc) +EVENT_T_IN_BLOB(EVENT_T_##t)
#define END(N) <= RING_TEXTS, "RING_TEXTS is too small for " #N);
#include "trace/events.def"
#define EVENT(N, n, c, doc) _Static_assert(0
#define FIELD(N, t, f, doc) +(EVENT_T_##t >= EVENT_T_FIRST_ENUM)
#define END(N) <= 24, "struct checks is too small for " #N);
#include "trace/events.def"

/* Copies the texts of a record out of the blob ring. `head` of the blob ring was read after the record was published.
 */
static int read_texts(struct ring_reader *r, const struct checks *c, struct ring_record *out) {
    uint64_t head = atomic_load_explicit(&r->ring->blob_head, memory_order_acquire);
    uint64_t from = r->blob_tail, end = from;
    uint32_t copied = 0;
    if (head - from > r->blob_bytes) return corrupt(r, "blob position");
    for (int i = 0; i < c->text_count; i++) {
        struct acct_text t;
        memcpy(&t, out->u.bytes + c->texts[i], sizeof t);
        out->texts[i] = (struct ring_text){NULL, 0};
        if (t.flags & (ACCT_TEXT_NULL | ACCT_TEXT_LOST)) continue;
        out->texts[i] = (struct ring_text){r->text_copy + copied, t.bytes};
        if (!t.bytes) continue;
        uint64_t at = t.position - from, offset = t.position & (r->blob_bytes - 1);
        if (at > head - from || t.bytes > head - from - at) return corrupt(r, "text position");
        if (offset + t.bytes > r->blob_bytes || t.bytes > r->blob_bytes - copied) return corrupt(r, "text length");
        memcpy(r->text_copy + copied, r->blob + offset, t.bytes);
        copied += t.bytes;
        if (t.position + t.bytes - from > end - from) end = t.position + t.bytes;
    }
    r->blob_tail = end;
    return 0;
}

static int check_record(struct ring_reader *r, struct ring_record *out) {
    const struct checks *c = &checks[out->u.hdr.event];
    for (int i = 0; i < c->enum_count; i++) {
        uint32_t value;
        memcpy(&value, out->u.bytes + c->enums[i], sizeof value);
        if (!event_enum_known((enum event_type)c->enum_types[i], value)) return corrupt(r, "enum value");
    }
    return c->text_count ? read_texts(r, c, out) : 0;
}

/* Copies the record at tail: its head first, since that says how long it is. */
static int copy_record(struct ring_reader *r, uint64_t available, struct ring_record *out) {
    uint64_t at = r->tail & (r->slot_count - 1);
    const unsigned char *from = r->slots + at * ACCT_SLOT_BYTES;
    memcpy(out->u.bytes, from, ACCT_SLOT_BYTES);
    COPIED();
    uint32_t slots = out->u.hdr.slots, event = out->u.hdr.event;
    if (slots == 0) return corrupt(r, "record of no slots");
    if (slots > available || slots > r->slot_count - at) return corrupt(r, "record past the end");
    if (event >= ACCT_EV_COUNT) return corrupt(r, "event number");
    if (slots * ACCT_SLOT_BYTES < event_table[event].bytes) return corrupt(r, "record too short");
    if (event == ACCT_EV_PAD) return (int)slots;
    if (slots > 1)
        memcpy(out->u.bytes + ACCT_SLOT_BYTES, from + ACCT_SLOT_BYTES, (slots - 1) * (size_t)ACCT_SLOT_BYTES);
    COPIED();
    return (int)slots;
}

int ring_read(struct ring_reader *r, uint64_t limit, struct ring_record *out) {
    if (!checks_made) make_checks();
    for (;;) {
        uint64_t available = limit - r->tail;
        if (available == 0) return 0;
        if (available > r->slot_count) return corrupt(r, "head");
        int slots = copy_record(r, available, out);
        if (slots < 0) return -1;
        if (out->u.hdr.event != ACCT_EV_PAD && check_record(r, out)) return -1;
        r->tail += (uint64_t)slots;
        if (out->u.hdr.event != ACCT_EV_PAD) return 1;
    }
}
