#include "preload/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include "preload/say.h"

void *_Atomic real_table[API_COUNT];

struct search {
    const char *prefix; /* "libcudart" */
    char path[1024];
};

static int match_object(struct dl_phdr_info *info, size_t size, void *arg) {
    struct search *s = arg;
    const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    base = base ? base + 1 : info->dlpi_name;
    size_t n = strlen(s->prefix);
    if (!base || strncmp(base, s->prefix, n) || (base[n] != '.' && base[n] != '-') ||
        strlen(info->dlpi_name) >= sizeof s->path)
        return 0;
    memcpy(s->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
    return 1;
}

/* RTLD_NEXT sees only libraries of the global scope. A plug-in opened RTLD_LOCAL (every Python extension) brings its
 * CUDA libraries in privately, yet its calls arrive here: look among all loaded objects. */
static void *find_in_private_library(const char *name, const char *library) {
    struct search s = {"", ""};
    char prefix[32] = "lib";
    say_append(prefix, sizeof prefix, library);
    s.prefix = prefix;
    if (!dl_iterate_phdr(match_object, &s)) return NULL;
    void *handle = dlopen(s.path, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL); /* stays referenced: the pointer is kept */
    return handle ? dlsym(handle, name) : NULL;
}

/* The pointer is kept for good, so its library has to stay, whatever the program closes. */
static void keep_loaded(void *f) {
    Dl_info where;
    if (dladdr(f, &where) && where.dli_fname) dlopen(where.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
}

void *real_find_quietly(const char *name, const char *library) {
    int saved = errno;
    void *f = dlsym(RTLD_NEXT, name);
    if (f)
        keep_loaded(f);
    else
        f = find_in_private_library(name, library);
    errno = saved;
    return f;
}

void *real_find(uint32_t api) {
    void *f = real_find_quietly(real_apis[api].name, real_apis[api].library);
    if (f)
        __atomic_store_n((void **)&real_table[api], f, __ATOMIC_RELAXED);
    else
        say_once("the program calls ", real_apis[api].name, ", which no loaded library has; link it with lib",
                 real_apis[api].library, NULL);
    return f;
}
