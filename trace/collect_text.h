/* Texts of the traced program as valid UTF-8 and as JSON: what a program is called or given may be any bytes. */
#ifndef ACCT_TRACE_COLLECT_TEXT_H
#define ACCT_TRACE_COLLECT_TEXT_H

#include <stddef.h>
#include <sqlite3.h>

/* Appends the bytes; each byte that is part of no UTF-8 sequence becomes U+FFFD, a NUL too. */
void text_append_utf8(sqlite3_str *out, const char *bytes, size_t length);

/* `bytes` holds strings, each ended by a NUL (the last one's may be missing). Results are sqlite3_malloc'ed; NULL: no
 * memory. text_json_object takes NAME=VALUE strings. */
char *text_json_array(const char *bytes, size_t length);
char *text_json_object(const char *bytes, size_t length);

#endif
