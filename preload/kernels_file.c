/* Which file an address is mapped from: by /proc/self/maps, which names it by its absolute path with the offset. */
#include "preload/kernels.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "preload/sys.h"

/* In memory of its own: much for the stack of some threads. */
struct lines {
    int fd;
    size_t at, end;
    char text[8192]; /* longer than a line: a path has at most 4096 bytes */
};

/* The next line, ended by NUL; NULL: no more. */
static char *next_line(struct lines *l) {
    for (;;) {
        char *start = l->text + l->at;
        char *newline = memchr(start, '\n', l->end - l->at);
        if (newline) {
            *newline = 0;
            l->at = (size_t)(newline + 1 - l->text);
            return start;
        }
        memmove(l->text, start, l->end - l->at);
        l->end -= l->at;
        l->at = 0;
        long n = l->end < sizeof l->text ? sys_read(l->fd, l->text + l->end, sizeof l->text - l->end) : 0;
        if (n <= 0) return NULL;
        l->end += (size_t)n;
    }
}

static uint64_t number(char **at, unsigned base) {
    uint64_t n = 0;
    for (;; ++*at) {
        unsigned c = (unsigned char)**at;
        unsigned digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (digit >= base) return n;
        n = n * base + digit;
    }
}

static void skip_word(char **at) {
    while (**at && **at != ' ') ++*at;
    while (**at == ' ') ++*at;
}

struct mapping {
    uint64_t start, end, offset, inode;
    const char *path;
};

/* "7f00-7f10 r--p 00001000 08:01 123    /usr/lib/x.so" */
static struct mapping parse(char *line) {
    struct mapping m;
    m.start = number(&line, 16);
    line += *line == '-';
    m.end = number(&line, 16);
    skip_word(&line);
    skip_word(&line);
    m.offset = number(&line, 16);
    skip_word(&line);
    skip_word(&line);
    m.inode = number(&line, 10);
    skip_word(&line);
    m.path = line;
    return m;
}

/* Not deleted, nor replaced by another (the device differs on overlay file systems, so it is not looked at); a path
 * with a newline in it is written otherwise in maps. */
static int is_that_file(const struct mapping *m) {
    struct stat st;
    return *m->path == '/' && syscall(SYS_newfstatat, AT_FDCWD, m->path, &st, 0) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_ino == m->inode;
}

static int find(struct lines *l, uint64_t from, uint64_t to, char *path, size_t path_size, uint64_t *offset) {
    for (char *line; (line = next_line(l));) {
        struct mapping m = parse(line);
        if (from < m.start || from >= m.end) continue;
        size_t n = strlen(m.path);
        if (to > m.end || n >= path_size || !is_that_file(&m)) return -1;
        memcpy(path, m.path, n + 1);
        *offset = m.offset + (from - m.start);
        return 0;
    }
    return -1;
}

int kernels_file_of(const void *p, size_t bytes, char *path, size_t path_size, uint64_t *offset) {
    uint64_t from = (uint64_t)(uintptr_t)p;
    struct lines *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc = -1;
    if (l == MAP_FAILED) return -1;
    l->fd = sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (l->fd >= 0) {
        rc = find(l, from, from + bytes, path, path_size, offset);
        sys_close(l->fd);
    }
    munmap(l, sizeof *l);
    return rc;
}
