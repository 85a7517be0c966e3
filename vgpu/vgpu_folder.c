#include "vgpu/vgpu_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool vgpu_cache_folder(char *path, size_t bytes) {
    const char *own = getenv("ACCT_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (own && *own)
        n = snprintf(path, bytes, "%s", own);
    else if (xdg && *xdg)
        n = snprintf(path, bytes, "%s/acct", xdg);
    else if (home && *home)
        n = snprintf(path, bytes, "%s/.cache/acct", home);
    else
        return false;
    if (n >= (int)bytes) return false;
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    return !mkdir(path, 0777) || errno == EEXIST;
}
