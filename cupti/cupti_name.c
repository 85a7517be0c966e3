/* Names of kernels → numbers. By their text: CUPTI's pointers may come again with another text. Helper thread only.
 * Memory is mapped, not allocated: pages for the texts, and a table that doubles. */
#include <string.h>
#include <sys/mman.h>
#include "cupti/cupti_inside.h"

#define TEXT_BYTES (1u << 20) /* a piece of text memory */
#define FIRST_SLOTS 1024u
#define MAX_SLOTS (1u << 20)

struct slot {
    uint64_t hash;
    const char *text;
    uint32_t number; /* 0: empty */
};

static struct {
    struct slot *slots;
    uint32_t slot_count, used;
    char *text; /* of the newest piece */
    size_t text_used, text_bytes;
} names;

void cupti_names_reset(void) {
    memset(&names, 0, sizeof names);
}

static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* FNV-1a */
static uint64_t hash_of(const char *s, size_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* The slot of the text, or the empty one where it belongs. */
static struct slot *look_up(struct slot *slots, uint32_t count, uint64_t hash, const char *text) {
    for (uint32_t i = (uint32_t)hash & (count - 1);; i = (i + 1) & (count - 1)) {
        struct slot *s = &slots[i];
        if (!s->number || (s->hash == hash && !strcmp(s->text, text))) return s;
    }
}

/* Room for one more. 0: none. */
static int grow(void) {
    uint32_t count = names.slot_count ? names.slot_count * 2 : FIRST_SLOTS;
    if (names.used < names.slot_count / 2) return 1;
    struct slot *slots = count <= MAX_SLOTS ? map(count * sizeof *slots) : NULL;
    if (!slots) return 0;
    for (uint32_t i = 0; i < names.slot_count; i++)
        if (names.slots[i].number) *look_up(slots, count, names.slots[i].hash, names.slots[i].text) = names.slots[i];
    if (names.slots) munmap(names.slots, names.slot_count * sizeof *slots);
    names.slots = slots;
    names.slot_count = count;
    return 1;
}

static const char *keep(const char *text, size_t n) {
    if (names.text_bytes - names.text_used < n + 1) {
        size_t bytes = n + 1 > TEXT_BYTES ? n + 1 : TEXT_BYTES;
        char *p = map(bytes);
        if (!p) return NULL;
        names.text = p;
        names.text_bytes = bytes;
        names.text_used = 0;
    }
    char *kept = names.text + names.text_used;
    memcpy(kept, text, n + 1);
    names.text_used += n + 1;
    return kept;
}

static int tell(struct cupti_out *out, uint32_t number, const char *text, size_t n) {
    if (!cupti_room(out, sizeof(struct acct_ev_name), n)) return 0;
    struct acct_ev_name *r = ring_begin(&out->ring, ACCT_EV_NAME, sizeof *r, cupti_now());
    if (!r) return 0;
    r->number = number;
    r->name = ring_text(&out->ring, text, n);
    ring_commit(&out->ring);
    return 1;
}

uint32_t cupti_name(struct cupti_out *out, const char *name) {
    if (!name || !grow()) return 0;
    size_t n = strlen(name);
    uint64_t hash = hash_of(name, n);
    struct slot *s = look_up(names.slots, names.slot_count, hash, name);
    if (s->number) return s->number;
    const char *kept = keep(name, n);
    if (!kept || !tell(out, names.used + 1, kept, n)) return 0;
    *s = (struct slot){hash, kept, ++names.used};
    return s->number;
}
