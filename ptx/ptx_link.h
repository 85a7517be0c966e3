/* Links the PTX of several translation units (nvcc -rdc=true) into one text, as the vendor's linker does with their
 * machine code: a declaration finds its definition in another unit, of several weak definitions the first is taken, and
 * names that belong to one unit are kept apart. */
#ifndef ACCT_PTX_LINK_H
#define ACCT_PTX_LINK_H

#include <stddef.h>

/* *out is malloc'ed, NUL-terminated, the caller's; *out_bytes its length without that. Line numbers of the result are
 * its own. 0, or -1 with one line in err: a symbol defined twice, text that is no PTX, no memory. A function or
 * variable that no unit defines stays a declaration. Any thread. */
int ptx_link(const char *const *texts, const size_t *bytes, size_t count, char **out, size_t *out_bytes, char *err,
             size_t err_len);

#endif
