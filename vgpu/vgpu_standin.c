/* Compiled into both stand-ins. Needs libc only, so that the program sees no symbol of OpenBLAS. */
#include "vgpu/vgpu_standin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct vgpu_engine *engine;

static void say(const char *text) {
    char line[1024];
    int n = snprintf(line, sizeof line, "acct virtual GPU: %s\n", text);
    if (n > (int)sizeof line - 1) n = sizeof line - 1;
    if (write(2, line, (size_t)n) < 0) return; /* stderr is closed: nothing else to tell it with */
}

static void engine_path(char *path, size_t bytes) {
    Dl_info self;
    const char *slash = 0;
    if (dladdr((void *)&once, &self) && self.dli_fname) slash = strrchr(self.dli_fname, '/');
    if (slash)
        snprintf(path, bytes, "%.*slibacct-vgpu.so", (int)(slash + 1 - self.dli_fname), self.dli_fname);
    else
        snprintf(path, bytes, "libacct-vgpu.so");
}

/* OpenBLAS starts its threads while it is loaded: they must not take the program's signals. */
static void load(void) {
    char path[4096];
    sigset_t all, old;
    engine_path(path, sizeof path);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    if (!handle) {
        say(dlerror());
        return;
    }
    const struct vgpu_engine *e = dlsym(handle, "vgpu_engine");
    if (e && e->version == VGPU_LINK_VERSION) {
        if (vgpu_standin_opened) vgpu_standin_opened(e);
        engine = e;
    } else
        say("libacct-vgpu.so is of another build than the library that opened it: install both together");
}

const struct vgpu_engine *vgpu_engine_get(void) {
    pthread_once(&once, load);
    return engine;
}

int vgpu_missing(int *said, const char *name, int error) {
    if (!__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) {
        char text[256];
        snprintf(text, sizeof text, "%s is not implemented", name);
        say(text);
    }
    const struct vgpu_engine *e = vgpu_engine_get();
    if (e && !strncmp(name + strspn(name, "_"), "cuda", 4)) e->note(error);
    if (e && !strncmp(name, "cupti", 5)) e->note_cupti(error);
    return error;
}

int vgpu_removed(void) {
    enum { LEGACY_PROFILER_NOT_SUPPORTED = 38 }; /* CUPTI_ERROR_…: this file knows no header of the vendor's */
    const struct vgpu_engine *e = vgpu_engine_get();
    if (e) e->note_cupti(LEGACY_PROFILER_NOT_SUPPORTED);
    return LEGACY_PROFILER_NOT_SUPPORTED;
}
