#include "sample_app/output_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample_app/checked_call.h"

static _Noreturn void failed(const char *path) {
    die(EXIT_RUN_TIME, "cannot write %s: %s", path, strerror(errno));
}

FILE *output_file_open(const char *path) {
    if (!path) return NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) failed(path);
    return file;
}

FILE *output_file_begin(FILE *file, const char *path) {
    struct stat st;
    if (fstat(fileno(file), &st) || (S_ISREG(st.st_mode) && ftruncate(fileno(file), 0))) failed(path);
    return file;
}

void output_file_close(FILE *file, int result, const char *path) {
    if (result || fclose(file)) failed(path);
}

static bool one_file(const char *a, const char *b) {
    struct stat sa, sb;
    if (!a || !b || stat(a, &sa) || stat(b, &sb)) return false;
    return S_ISREG(sa.st_mode) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

void output_files_apart(const struct train_options *o) {
    enum { DATA, RESUME, SAVE, TRUTH, GRADIENTS, FILES };
    const char *const option[FILES] = {"--data", "--resume", "--save", "--truth", "--dump-gradients"};
    const char *const path[FILES] = {o->data, o->resume, o->save, o->truth, o->dump_gradients};
    for (int i = SAVE; i < FILES; i++)
        for (int k = DATA; k < i; k++)
            if (!(i == SAVE && k == RESUME) && one_file(path[i], path[k]))
                die(EXIT_USAGE, "%s and %s are one file, %s", option[k], option[i], path[i]);
}
