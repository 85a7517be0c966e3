/* Compiled kernels on disk: one file each in the folder of ACCT_CACHE, its name the key. A file is written beside and
 * renamed, so no reader sees half of one; a reader checks length and sum. When the folder's kernels take over 256 MB
 * the oldest go. Failure is no matter: the kernel is compiled. Any thread. */
#include "vgpu/vgpu_jit.h"
#include "vgpu/vgpu_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MB = 256, MOST_BYTES = 64 << 20 };
static const char PREFIX[] = "kernel-";

struct head {
    char magic[8];
    uint64_t version, bytes, sum[2];
};

/* Two FNV-1a of 64 bits with different multipliers: a key of 128 bits that is no secret. */
void jit_hash_add(struct jit_hash *h, const void *bytes, size_t count) {
    const unsigned char *p = bytes;
    uint64_t a = h->word[0] ? h->word[0] : UINT64_C(0xcbf29ce484222325),
             b = h->word[1] ? h->word[1] : UINT64_C(0x84222325cbf29ce4);
    for (size_t k = 0; k < count; k++) {
        a = (a ^ p[k]) * UINT64_C(0x100000001b3);
        b = (b ^ p[k]) * UINT64_C(0x9e3779b97f4a7c15);
        b ^= b >> 29;
    }
    h->word[0] = a, h->word[1] = b;
}

static bool path_of(const struct jit_hash *key, char *path, size_t bytes) {
    char folder[3000];
    if (!vgpu_cache_folder(folder, sizeof folder)) return false;
    return snprintf(path, bytes, "%s/%s%016llx%016llx.o", folder, PREFIX, (unsigned long long)key->word[0],
                    (unsigned long long)key->word[1]) < (int)bytes;
}

static void fill_head(struct head *h, const void *object, size_t bytes) {
    struct jit_hash sum = {{0}};
    jit_hash_add(&sum, object, bytes);
    *h = (struct head){
        .magic = "acctjit", .version = VGPU_JIT_VERSION, .bytes = bytes, .sum = {sum.word[0], sum.word[1]}};
}

static bool read_all(int fd, void *to, size_t bytes) {
    char *p = to;
    while (bytes) {
        ssize_t n = read(fd, p, bytes);
        if (n <= 0) return false;
        p += n, bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t bytes) {
    const char *p = from;
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n <= 0) return false;
        p += n, bytes -= (size_t)n;
    }
    return true;
}

int jit_cache_read(const struct jit_hash *key, void **object, size_t *bytes) {
    char path[4096];
    struct head h, want;
    void *p = NULL;
    if (!path_of(key, path, sizeof path)) return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait */
    if (fd < 0) return -1;
    bool good = read_all(fd, &h, sizeof h) && !memcmp(h.magic, "acctjit", 8) && h.bytes && h.bytes <= MOST_BYTES;
    good = good && (p = malloc(h.bytes)) && read_all(fd, p, h.bytes);
    if (good) {
        fill_head(&want, p, h.bytes);
        good = !memcmp(&want, &h, sizeof h);
    }
    if (good) futimens(fd, NULL); /* of late use: the last to be taken away */
    close(fd);
    if (!good) {
        free(p);
        return -1;
    }
    *object = p;
    *bytes = h.bytes;
    return 0;
}

struct entry {
    char name[64];
    struct timespec when;
    off_t bytes;
};

static int by_age(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->when.tv_sec != y->when.tv_sec) return x->when.tv_sec < y->when.tv_sec ? -1 : 1;
    return (x->when.tv_nsec > y->when.tv_nsec) - (x->when.tv_nsec < y->when.tv_nsec);
}

/* Down to three quarters of the limit. */
static void remove_oldest(const char *folder) {
    enum { MOST = 20000 };
    DIR *d = opendir(folder);
    struct entry *all = d ? malloc(MOST * sizeof *all) : NULL;
    size_t n = 0;
    off_t total = 0, limit = (off_t)LIMIT_MB << 20;
    for (struct dirent *e; all && n < MOST && (e = readdir(d));) {
        struct stat s;
        if (strncmp(e->d_name, PREFIX, sizeof PREFIX - 1) || strlen(e->d_name) >= sizeof all->name) continue;
        if (fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW)) continue;
        memcpy(all[n].name, e->d_name, strlen(e->d_name) + 1);
        all[n].when = s.st_mtim;
        total += all[n++].bytes = s.st_size;
    }
    if (all && total > limit) {
        qsort(all, n, sizeof *all, by_age);
        for (size_t k = 0; k < n && total > limit / 4 * 3; k++) {
            unlinkat(dirfd(d), all[k].name, 0);
            total -= all[k].bytes;
        }
    }
    free(all);
    if (d) closedir(d);
}

void jit_cache_write(const struct jit_hash *key, const void *object, size_t bytes) {
    static _Atomic unsigned count;
    char path[4096], beside[4160], folder[3000];
    struct head h;
    if (bytes > MOST_BYTES || !path_of(key, path, sizeof path)) return;
    unsigned n = count++;
    snprintf(beside, sizeof beside, "%s.%d.%u", path, (int)getpid(), n);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    fill_head(&h, object, bytes);
    bool good = write_all(fd, &h, sizeof h) && write_all(fd, object, bytes);
    if (close(fd) || !good || rename(beside, path)) unlink(beside);
    if (n % 64 == 0 && vgpu_cache_folder(folder, sizeof folder)) remove_oldest(folder);
}
