/* Preloaded into acct-collect: every file system says that it is NFS, so that no write-ahead log is used. */
#include <string.h>
#include <sys/vfs.h>

int statfs(const char *path, struct statfs *out) {
    (void)path;
    memset(out, 0, sizeof *out);
    out->f_type = 0x6969;
    return 0;
}
