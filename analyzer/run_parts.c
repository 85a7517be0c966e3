#include "analyzer/run_parts.h"

#include "acct/env.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int refuse(char *err, size_t err_len, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    vsnprintf(err, err_len, format, ap);
    va_end(ap);
    return -1;
}

/* ---- our own parts ---- */

/* The first of dir/a and dir/b that is there. */
static int first_of(char out[RUN_PATH], const char *dir, const char *a, const char *b) {
    const char *const names[] = {a, b};
    for (int i = 0; i < 2; i++) {
        char joined[2 * RUN_PATH], *real;
        snprintf(joined, sizeof joined, "%s/%s", dir, names[i]);
        real = realpath(joined, NULL);
        if (!real) continue;
        snprintf(out, RUN_PATH, "%s", real);
        free(real);
        return 0;
    }
    return -1;
}

/* The folder of this executable. */
static int own_folder(char dir[RUN_PATH], char *err, size_t err_len) {
    char self[RUN_PATH];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return refuse(err, err_len, "/proc/self/exe cannot be read: %s; mount /proc", strerror(errno));
    self[n] = 0;
    snprintf(dir, RUN_PATH, "%s", dirname(self));
    return 0;
}

static int find_vgpu(struct run_parts *parts, const char *dir, char *err, size_t err_len) {
    char library[RUN_PATH];
    if (first_of(library, dir, "vgpu/libcudart.so.13", "../lib/acct/vgpu/libcudart.so.13"))
        return refuse(err, err_len,
                      "the virtual GPU (vgpu/libcudart.so.13) is not beside %s; build it with make, or reinstall", dir);
    snprintf(parts->vgpu, sizeof parts->vgpu, "%s", dirname(library));
    if (strpbrk(parts->vgpu, ":;"))
        return refuse(err, err_len,
                      "%s: a path with a colon cannot stand in LD_LIBRARY_PATH; move acct to another folder",
                      parts->vgpu);
    return 0;
}

int run_find_bench(struct run_parts *parts, int vgpu, char *err, size_t err_len) {
    char dir[RUN_PATH];
    parts->vgpu[0] = 0;
    if (own_folder(dir, err, err_len)) return -1;
    if (first_of(parts->bench, dir, "acct-bench", "../bin/acct-bench"))
        return refuse(err, err_len, "acct-bench is not in %s; build it with make, or reinstall", dir);
    if (access(parts->bench, X_OK))
        return refuse(err, err_len, "%s: cannot be executed: %s; reinstall", parts->bench, strerror(errno));
    return vgpu ? find_vgpu(parts, dir, err, err_len) : 0;
}

int run_find_parts(struct run_parts *parts, int vgpu, char *err, size_t err_len) {
    char dir[RUN_PATH];
    const char *collector = acct_env_text(ENV_ACCT_COLLECTOR);
    parts->vgpu[0] = 0;
    if (own_folder(dir, err, err_len)) return -1;
    if (first_of(parts->library, dir, "libacct.so", "../lib/libacct.so"))
        return refuse(err, err_len, "libacct.so is neither in %s nor in %s/../lib; build it with make, or reinstall",
                      dir, dir);
    if (*collector)
        snprintf(parts->collector, sizeof parts->collector, "%s", collector);
    else if (first_of(parts->collector, dir, "acct-collect", "../bin/acct-collect"))
        return refuse(err, err_len, "acct-collect is not in %s; build it with make, or reinstall", dir);
    if (access(parts->collector, X_OK))
        return refuse(err, err_len, "%s: cannot be executed: %s; check ACCT_COLLECTOR or reinstall", parts->collector,
                      strerror(errno));
    if (vgpu && find_vgpu(parts, dir, err, err_len)) return -1;
    if (strpbrk(parts->library, ": \t\n"))
        return refuse(err, err_len, "%s: a path with a space or colon cannot be preloaded; move acct to another folder",
                      parts->library);
    return 0;
}

/* ---- the program ---- */

static int check_file(const char *path, int depth, char *err, size_t err_len);

/* A script runs its interpreter: that is what must be traceable. */
static int check_script(const char *path, char *head, int depth, char *err, size_t err_len) {
    char *interpreter = head + 2 + strspn(head + 2, " \t");
    interpreter[strcspn(interpreter, " \t\r\n")] = 0;
    if (!*interpreter || depth > 4)
        return refuse(err, err_len, "%s: its #! line names no interpreter; correct the first line", path);
    if (access(interpreter, X_OK))
        return refuse(err, err_len, "%s: its interpreter %s cannot be executed: %s; correct the first line", path,
                      interpreter, strerror(errno));
    return check_file(interpreter, depth + 1, err, err_len);
}

static int has_interpreter(int fd, const Elf64_Ehdr *h) {
    for (int i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr p;
        if (h->e_phentsize < sizeof p ||
            pread(fd, &p, sizeof p, (off_t)(h->e_phoff + (Elf64_Off)i * h->e_phentsize)) != sizeof p)
            return 0;
        if (p.p_type == PT_INTERP) return 1;
    }
    return 0;
}

#if defined __x86_64__
#define OWN_MACHINE EM_X86_64
#elif defined __aarch64__
#define OWN_MACHINE EM_AARCH64
#endif

static int check_elf(const char *path, int fd, const Elf64_Ehdr *h, char *err, size_t err_len) {
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_machine != OWN_MACHINE)
        return refuse(err, err_len, "%s: is for another architecture than this acct; run it on its own machine", path);
    if (!has_interpreter(fd, h))
        return refuse(err, err_len,
                      "%s: cannot be traced: statically linked, so that nothing can be preloaded; link it dynamically",
                      path);
    return 0;
}

/* With these the dynamic loader ignores LD_PRELOAD (AT_SECURE). */
static int check_privileged(const char *path, const struct stat *st, char *err, size_t err_len) {
    int set_id =
        ((st->st_mode & S_ISUID) && st->st_uid != geteuid()) || ((st->st_mode & S_ISGID) && st->st_gid != getegid());
    int capable = geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
    if (!set_id && !capable) return 0;
    return refuse(err, err_len,
                  "%s: cannot be traced: it gains privileges when it starts (%s), and then the loader ignores "
                  "LD_PRELOAD; run it as %s",
                  path, set_id ? "set-user-ID" : "file capabilities", set_id ? "its owner" : "root");
}

static int check_file(const char *path, int depth, char *err, size_t err_len) {
    union {
        Elf64_Ehdr elf;
        char text[257];
    } head = {0};
    struct stat st;
    ssize_t n;
    int result, fd;
    if (stat(path, &st) || access(path, X_OK))
        return refuse(err, err_len, "%s: cannot be executed: %s; check the name and its permissions", path,
                      strerror(errno));
    if (S_ISDIR(st.st_mode)) return refuse(err, err_len, "%s: is a folder; name a program", path);
    if (check_privileged(path, &st, err, err_len)) return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0; /* executable but not readable: exec will tell */
    n = pread(fd, &head, sizeof head - 1, 0);
    if (n >= 2 && !strncmp(head.text, "#!", 2))
        result = check_script(path, head.text, depth, err, err_len);
    else if (n >= (ssize_t)sizeof head.elf && !memcmp(head.text, ELFMAG, SELFMAG))
        result = check_elf(path, fd, &head.elf, err, err_len);
    else
        result = refuse(
            err, err_len,
            "%s: is neither an ELF program nor a script with a #! line; name the interpreter, as in: acct run -- sh %s",
            path, path);
    close(fd);
    return result;
}

static int search_path(const char *name, char path[RUN_PATH]) {
    const char *p = getenv("PATH");
    if (!p) p = "/usr/local/bin:/usr/bin:/bin";
    for (;; p++) {
        size_t n = strcspn(p, ":");
        struct stat st;
        snprintf(path, RUN_PATH, "%.*s%s%s", (int)n, p, n ? "/" : "./", name);
        if (!access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode)) return 0;
        p += n;
        if (!*p) return -1;
    }
}

int run_find_program(const char *name, char path[RUN_PATH], char *err, size_t err_len) {
    if (!*name || strlen(name) >= RUN_PATH)
        return refuse(err, err_len, "the program's name is empty or too long; give a name or a path");
    if (strchr(name, '/')) {
        snprintf(path, RUN_PATH, "%s", name);
        if (access(path, F_OK)) return refuse(err, err_len, "%s: %s; check the program's path", path, strerror(errno));
    } else if (search_path(name, path)) {
        return refuse(err, err_len, "%s: not found in PATH; give its path, as in: acct run -- ./%s", name, name);
    }
    return check_file(path, 0, err, err_len);
}

/* ---- the place of the trace ---- */

int run_check_output(const char *name, int force, char *err, size_t err_len) {
    char copy[RUN_PATH];
    const char *dir = ".", *pattern = name && *name ? name : acct_env_entry(ENV_ACCT_OUTPUT)->fallback;
    struct stat st;
    int given = name && *name;
    if (strlen(pattern) >= sizeof copy)
        return refuse(err, err_len, "%.60s...: the name is too long; choose a shorter one with -o", pattern);
    if (given && !strchr(name, '%') && !stat(name, &st)) {
        if (S_ISDIR(st.st_mode)) return refuse(err, err_len, "%s: is a folder; name a file in it with -o", name);
        if (!force)
            return refuse(err, err_len,
                          "%s: exists already; choose another name with -o, or give --force to replace it", name);
    }
    if (strchr(pattern, '/')) {
        snprintf(copy, sizeof copy, "%s", pattern);
        dir = dirname(copy);
        if (strchr(dir, '%')) return 0; /* known only when the pattern is filled in */
    }
    if (stat(dir, &st))
        return refuse(err, err_len, "%s: %s; create the folder or choose another with -o", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return refuse(err, err_len, "%s: is not a folder; choose another place with -o", dir);
    if (access(dir, W_OK | X_OK))
        return refuse(err, err_len, "%s: the trace cannot be written there: %s; choose another folder with -o", dir,
                      strerror(errno));
    return 0;
}
