/* The lines that the library may write to the program's standard error, and the text helpers for it. */
#ifndef ACCT_PRELOAD_SAY_H
#define ACCT_PRELOAD_SAY_H

#include <stddef.h>
#include <stdint.h>

/* Remembers what descriptor 2 is; in the constructor. */
void say_remember_stderr(void);

/* Writes "acct: " and the parts (up to a NULL) as one line, if this process has said nothing yet and descriptor 2 is
 * still the file that it was when the library was loaded. Any thread. */
void say_once(const char *first, ...) __attribute__((sentinel));

/* The same for a setting that is wrong, which keeps nothing else from being said. One thread calls it, once. */
void say_warning(const char *first, ...) __attribute__((sentinel));

/* Appends `s` to the NUL-terminated text in buf[size], cut off where it is full. */
void say_append(char *buf, size_t size, const char *s);
/* `n` in decimal, in buf (at least 24 bytes); answers buf. */
const char *say_number(char *buf, int64_t n);

#endif
