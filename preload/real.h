/* The vendor's functions behind the wrappers. */
#ifndef ACCT_PRELOAD_REAL_H
#define ACCT_PRELOAD_REAL_H

#include <stdint.h>
#include "api.h" /* generated: API_* numbers, API_COUNT, real_api[] */

struct real_api {
    const char *name, *library;
};
extern const struct real_api real_apis[API_COUNT];

/* Finds function `api`: first in the search order after this library, then in any loaded copy of its library that a
 * plug-in brought along privately. NULL and one line on standard error if there is none. Any thread. */
void *real_find(uint32_t api);

/* The same by name, without the line. */
void *real_find_quietly(const char *name, const char *library);

extern void *_Atomic real_table[API_COUNT];

static inline void *real_get(uint32_t api) {
    void *f = __atomic_load_n((void **)&real_table[api], __ATOMIC_RELAXED);
    return f ? f : real_find(api);
}

#endif
