/* printf of kernels: formatted where it is called, kept in a buffer of cudaLimitPrintfFifoSize bytes, and written to
 * the program's stdout where a device writes it: at launches and where the host waits. When the buffer is full the
 * oldest text goes, as on a device. */
#include "vgpu/vgpu_run.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ONE_SPECIFIER = 32, LEAST_BUFFER = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *buffer;
static size_t capacity, used;
static _Atomic bool pending;

struct text {
    char *bytes;
    size_t length, room;
    bool failed;
};

static void append(struct text *t, const char *s, size_t n) {
    if (t->length + n + 1 > t->room) {
        size_t room = (t->length + n + 1) * 2;
        char *more = t->failed ? NULL : realloc(t->bytes, room);
        if (!more) {
            t->failed = true;
            return;
        }
        t->bytes = more;
        t->room = room;
    }
    memcpy(t->bytes + t->length, s, n);
    t->length += n;
}

struct arguments {
    const unsigned char *at; /* each aligned to its own size: the buffer's base is aligned to 8 */
    size_t offset;
    int count;
};

static uint64_t next_word(struct arguments *a, size_t bytes) {
    uint64_t value = 0;
    a->offset = (a->offset + bytes - 1) / bytes * bytes;
    memcpy(&value, a->at + a->offset, bytes);
    a->offset += bytes;
    a->count++;
    return value;
}

/* A converted value, whatever its width. */
static void convert(struct text *t, const char *specifier, const int stars[2], int star_count, char type, uint64_t bits,
                    bool wide) {
    char small[512], *out = small;
    size_t room = sizeof small;
    for (;;) {
        int n;
        double d;
        memcpy(&d, &bits, sizeof d);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#define PRINT(value)                                                               \
    (star_count == 2   ? snprintf(out, room, specifier, stars[0], stars[1], value) \
     : star_count == 1 ? snprintf(out, room, specifier, stars[0], value)           \
                       : snprintf(out, room, specifier, value))
        if (strchr("eEfFgGaA", type))
            n = PRINT(d);
        else if (type == 's')
            n = PRINT(bits ? (const char *)(uintptr_t)bits : "(null)");
        else if (type == 'p')
            n = PRINT((void *)(uintptr_t)bits);
        else if (wide)
            n = PRINT((unsigned long long)bits);
        else
            n = PRINT((int)(uint32_t)bits);
#undef PRINT
#pragma GCC diagnostic pop
        if (n < 0) break;
        if ((size_t)n < room) {
            append(t, out, (size_t)n);
            break;
        }
        char *more = out == small ? malloc((size_t)n + 1) : NULL;
        if (!more) break;
        out = more;
        room = (size_t)n + 1;
    }
    if (out != small) free(out);
}

/* One specifier from its %; answers where the format goes on. %[flags][width][.precision][size]type; a size of 64 bits
 * is l, ll, j, z, t: long is 64 bits on the device. */
static const char *specifier(struct text *t, const char *f, struct arguments *a) {
    char copy[ONE_SPECIFIER + 4];
    size_t n = 0;
    int stars[2], star_count = 0;
    bool wide = false;
    const char *begin = f++;
    copy[n++] = '%';
    for (; *f && strchr("-+ #0123456789.*", *f) && n < ONE_SPECIFIER; f++) {
        if (*f == '*' && star_count < 2) stars[star_count++] = (int)(uint32_t)next_word(a, 4);
        copy[n++] = *f;
    }
    for (; *f && strchr("hlLjzt", *f); f++) {
        wide |= *f != 'h';
        if (*f == 'h' && n < ONE_SPECIFIER) copy[n++] = 'h';
    }
    char type = *f;
    if (!type || !strchr("diouxXcsp"
                         "eEfFgGaA",
                         type)) { /* %n too: nothing is converted */
        append(t, begin, (size_t)(f - begin) + (type != 0));
        return f + (type != 0);
    }
    bool is_integer = strchr("diouxX", type) != NULL, eight = !strchr("diouxXc", type) || (wide && is_integer);
    if (eight && is_integer) memcpy(copy + n, "ll", 2), n += 2;
    copy[n++] = type;
    copy[n] = 0;
    convert(t, copy, stars, star_count, type, next_word(a, eight ? 8 : 4), eight && is_integer);
    return f + 1;
}

/* Under the lock. */
static void keep(const char *text, size_t n) {
    size_t limit = 0;
    cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize);
    if (limit < LEAST_BUFFER) limit = LEAST_BUFFER;
    if (capacity != limit) {
        char *more = realloc(buffer, limit);
        if (!more) return;
        buffer = more;
        capacity = limit;
        if (used > capacity) used = capacity;
    }
    if (n > capacity) {
        text += n - capacity;
        n = capacity;
    }
    if (used + n > capacity) {
        size_t drop = used + n - capacity;
        memmove(buffer, buffer + drop, used - drop);
        used -= drop;
    }
    memcpy(buffer + used, text, n);
    used += n;
    atomic_store_explicit(&pending, true, memory_order_release);
}

int vgpu_print(const char *format, const void *arguments) {
    struct text t = {0};
    struct arguments a = {arguments, 0, 0};
    if (!format) return -1;
    for (const char *f = format; *f;) {
        const char *percent = strchrnul(f, '%');
        append(&t, f, (size_t)(percent - f));
        f = percent;
        if (!*f) break;
        if (f[1] == '%') {
            append(&t, "%", 1);
            f += 2;
        } else {
            f = specifier(&t, f, &a);
        }
    }
    pthread_mutex_lock(&lock);
    if (t.length && !t.failed) keep(t.bytes, t.length);
    pthread_mutex_unlock(&lock);
    free(t.bytes);
    return t.failed ? -2 : a.count;
}

void vgpu_print_flush(void) {
    if (!atomic_load_explicit(&pending, memory_order_acquire)) return;
    pthread_mutex_lock(&lock);
    char *text = buffer;
    size_t n = used;
    buffer = NULL;
    used = capacity = 0;
    atomic_store_explicit(&pending, false, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    if (n) {
        fwrite(text, 1, n, stdout);
    }
    free(text);
}
