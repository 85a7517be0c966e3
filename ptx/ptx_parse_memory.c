/* Memory of a parse: the module's arena, growing arrays, symbol tables. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_parse.h"

struct chunk {
    struct chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};
struct ptx_arena {
    struct chunk *chunks;
};

static struct chunk *new_chunk(size_t bytes) {
    size_t room = bytes > 1 << 16 ? bytes : 1 << 16;
    struct chunk *c = calloc(1, sizeof *c + room);
    if (c) c->room = room;
    return c;
}

void *ptx_arena_try(struct ptx_arena *arena, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    struct chunk *c = arena->chunks;
    if (!c || bytes > c->room - c->used) {
        struct chunk *fresh = new_chunk(bytes);
        if (!fresh) return NULL;
        /* A big one goes behind the one in use, which still has room for small ones. */
        bool behind = c && bytes > 1 << 14;
        fresh->next = behind ? c->next : c;
        *(behind ? &c->next : &arena->chunks) = fresh;
        c = fresh;
    }
    void *at = c->bytes + c->used;
    c->used += bytes;
    return at;
}

void *ptx_arena_bytes(struct ptx_parser *p, size_t bytes) {
    if (!p->arena && !(p->arena = calloc(1, sizeof *p->arena))) ptx_no_memory(p);
    void *at = ptx_arena_try(p->arena, bytes);
    if (!at) ptx_no_memory(p);
    return at;
}

char *ptx_arena_text(struct ptx_parser *p, const char *text, size_t length) {
    char *copy = ptx_arena_bytes(p, length + 1);
    memcpy(copy, text, length);
    return copy;
}

void ptx_arena_free(struct ptx_arena *arena) {
    if (!arena) return;
    for (struct chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

void *ptx_list_add(struct ptx_parser *p, struct ptx_list *list, size_t item_bytes) {
    if (list->count == list->room) {
        int32_t room = list->room ? list->room * 2 : 16;
        void *items = room > 1 << 28 ? NULL : realloc(list->items, (size_t)room * item_bytes);
        if (!items) ptx_no_memory(p);
        list->items = items;
        list->room = room;
    }
    return memset((char *)list->items + (size_t)list->count++ * item_bytes, 0, item_bytes);
}

void *ptx_list_keep(struct ptx_parser *p, struct ptx_list *list, size_t item_bytes) {
    if (!list->count) return NULL;
    void *kept = ptx_arena_bytes(p, (size_t)list->count * item_bytes);
    memcpy(kept, list->items, (size_t)list->count * item_bytes);
    list->count = 0;
    return kept;
}

static uint32_t hash(int32_t scope, const char *name, uint32_t length) {
    uint32_t h = 2166136261u ^ (uint32_t)scope * 0x9E3779B1u;
    for (uint32_t i = 0; i < length; i++) h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h ^ h >> 15;
}

static struct ptx_symbol *place(struct ptx_symbols *s, int32_t scope, const char *name, uint32_t length) {
    for (uint32_t i = hash(scope, name, length) & (s->room - 1);; i = (i + 1) & (s->room - 1)) {
        struct ptx_symbol *e = &s->slot[i];
        if (!e->kind || (e->scope == scope && e->length == length && !memcmp(e->name, name, length))) return e;
    }
}

struct ptx_symbol *ptx_symbol_find(struct ptx_symbols *s, int32_t scope, const char *name, uint32_t length) {
    if (!s->count) return NULL;
    struct ptx_symbol *e = place(s, scope, name, length);
    return e->kind ? e : NULL;
}

static void grow(struct ptx_parser *p, struct ptx_symbols *s) {
    struct ptx_symbols larger = {.room = s->room ? s->room * 2 : 64, .count = s->count};
    larger.slot = calloc(larger.room, sizeof *larger.slot);
    if (!larger.slot) ptx_no_memory(p);
    for (uint32_t i = 0; i < s->room; i++)
        if (s->slot[i].kind) *place(&larger, s->slot[i].scope, s->slot[i].name, s->slot[i].length) = s->slot[i];
    free(s->slot);
    *s = larger;
}

struct ptx_symbol *ptx_symbol_add(struct ptx_parser *p, struct ptx_symbols *s, const struct ptx_token *name,
                                  int32_t scope, enum ptx_symbol_kind kind, int32_t index) {
    if (s->count * 2 >= s->room) grow(p, s);
    struct ptx_symbol *e = place(s, scope, name->text, name->length);
    if (e->kind) ptx_fault(p, name, "'%.*s' is declared twice", (int)name->length, name->text);
    *e = (struct ptx_symbol){name->text, name->length, scope, (int32_t)kind, index};
    s->count++;
    return e;
}
