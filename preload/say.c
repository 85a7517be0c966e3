#include "preload/say.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include "preload/life.h"
#include "preload/sys.h"

static struct stat stderr_at_load;
static int stderr_known;

void say_remember_stderr(void) {
    stderr_known = fstat(2, &stderr_at_load) == 0;
}

/* The program may have closed 2 and opened something else there: a data file is no place for a complaint. */
static int stderr_is_the_same(void) {
    struct stat now;
    return stderr_known && fstat(2, &now) == 0 && now.st_dev == stderr_at_load.st_dev &&
           now.st_ino == stderr_at_load.st_ino && now.st_rdev == stderr_at_load.st_rdev;
}

void say_append(char *buf, size_t size, const char *s) {
    size_t at = strlen(buf);
    while (*s && at + 1 < size) buf[at++] = *s++;
    buf[at] = 0;
}

const char *say_number(char *buf, int64_t n) {
    char *p = buf + 23;
    uint64_t u = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    *p = 0;
    do *--p = (char)('0' + u % 10);
    while (u /= 10);
    if (n < 0) *--p = '-';
    return memmove(buf, p, (size_t)(buf + 24 - p));
}

/* The program must not wait for who reads its standard error, nor get the signals of a write that fails (a pipe without
 * a reader, a limit on file sizes): those that were not pending before are taken back. */
static void write_line(const char *line, size_t n) {
    struct pollfd out = {2, POLLOUT, 0};
    struct timespec no_time = {0, 0};
    unsigned long mask, before = 0, ours = 1ul << (SIGPIPE - 1) | 1ul << (SIGXFSZ - 1);
    int saved = errno;
    sys_signals_block(&mask);
    syscall(SYS_rt_sigpending, &before, sizeof before);
    ours &= ~before;
    if (syscall(SYS_ppoll, &out, 1, &no_time, NULL, 8) == 1 && (out.revents & POLLOUT) && sys_write(2, line, n) < 0 &&
        ours)
        syscall(SYS_rt_sigtimedwait, &ours, NULL, &no_time, sizeof ours);
    sys_signals_restore(&mask);
    errno = saved;
}

static void say(const char *first, va_list parts) {
    char line[1024] = "acct: ";
    for (const char *s = first; s; s = va_arg(parts, const char *)) say_append(line, sizeof line - 1, s);
    size_t n = strlen(line);
    line[n++] = '\n';
    write_line(line, n);
}

void say_once(const char *first, ...) {
    va_list parts;
    if (!life_first_complaint() || !stderr_is_the_same()) return;
    va_start(parts, first);
    say(first, parts);
    va_end(parts);
}

void say_warning(const char *first, ...) {
    va_list parts;
    if (!stderr_is_the_same()) return;
    va_start(parts, first);
    say(first, parts);
    va_end(parts);
}
