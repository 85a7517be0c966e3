#include "trace/collect_text.h"

#include <string.h>

/* Length of the UTF-8 sequence at p, 0 if there is none: no overlong forms, no surrogates, nothing past U+10FFFF. */
static size_t sequence(const unsigned char *p, size_t left) {
    unsigned c = p[0], low = 0x80, high = 0xbf;
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (n == 0 || n > left || c == 0) return 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    for (size_t i = 1; i < n; i++, low = 0x80, high = 0xbf)
        if (p[i] < low || p[i] > high) return 0;
    return n;
}

#define REPLACEMENT "\xef\xbf\xbd"

void text_append_utf8(sqlite3_str *out, const char *bytes, size_t length) {
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < length;) {
        size_t n = sequence(p + i, length - i);
        if (n)
            sqlite3_str_append(out, bytes + i, (int)n);
        else
            sqlite3_str_appendall(out, REPLACEMENT);
        i += n ? n : 1;
    }
}

static void append_json_string(sqlite3_str *out, const char *bytes, size_t length) {
    const unsigned char *p = (const unsigned char *)bytes;
    sqlite3_str_appendchar(out, 1, '"');
    for (size_t i = 0; i < length;) {
        size_t n = sequence(p + i, length - i);
        if (p[i] < 0x20 || p[i] == 0x7f)
            sqlite3_str_appendf(out, "\\u%04x", p[i]);
        else if (p[i] == '"' || p[i] == '\\')
            sqlite3_str_appendf(out, "\\%c", p[i]);
        else if (n)
            sqlite3_str_append(out, bytes + i, (int)n);
        else
            sqlite3_str_appendall(out, REPLACEMENT);
        i += n ? n : 1;
    }
    sqlite3_str_appendchar(out, 1, '"');
}

static void append_member(sqlite3_str *out, const char *bytes, size_t length) {
    const char *equals = memchr(bytes, '=', length);
    size_t name = equals ? (size_t)(equals - bytes) : length;
    append_json_string(out, bytes, name);
    sqlite3_str_appendchar(out, 1, ':');
    if (equals)
        append_json_string(out, equals + 1, length - name - 1);
    else
        sqlite3_str_appendall(out, "null");
}

static char *join(const char *bytes, size_t length, char open, char close,
                  void (*append)(sqlite3_str *, const char *, size_t)) {
    sqlite3_str *out = sqlite3_str_new(NULL);
    sqlite3_str_appendchar(out, 1, open);
    for (size_t i = 0; i < length;) {
        const char *end = memchr(bytes + i, 0, length - i);
        size_t n = end ? (size_t)(end - bytes) - i : length - i;
        if (i) sqlite3_str_appendchar(out, 1, ',');
        append(out, bytes + i, n);
        i += n + 1;
    }
    sqlite3_str_appendchar(out, 1, close);
    return sqlite3_str_finish(out);
}

char *text_json_array(const char *bytes, size_t length) {
    return join(bytes, length, '[', ']', append_json_string);
}

char *text_json_object(const char *bytes, size_t length) {
    return join(bytes, length, '{', '}', append_member);
}
