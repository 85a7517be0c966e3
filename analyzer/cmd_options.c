/* The one parser of options, by the commands' tables; messages; output files. */
#include "analyzer/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* One line, whatever is in the names and values in it: control characters are shown as ls shows them. */
int cmd_fail(const struct command *command, int code, const char *format, ...) {
    char *text;
    va_list ap;
    va_start(ap, format);
    if (vasprintf(&text, format, ap) < 0) text = NULL;
    va_end(ap);
    for (char *c = text; c && *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    fprintf(stderr, "acct %s: %s\n", command->name, text ? text : "out of memory");
    free(text);
    return code;
}

static int find_long(const struct command *command, const char *name, size_t length) {
    for (int i = 0; command->options[i].name; i++)
        if (strlen(command->options[i].name) == length && !strncmp(command->options[i].name, name, length)) return i;
    return -1;
}

static int find_letter(const struct command *command, char letter) {
    for (int i = 0; command->options[i].name; i++)
        if (command->options[i].letter == letter) return i;
    return -1;
}

static int bad_option(const struct command *command, const char *what, int length, const char *option) {
    return cmd_fail(command, command->usage_exit, "%s '%.*s'; `acct help %s` lists the options", what,
                    length < 60 ? length : 60, option, command->name);
}

/* One long option at argv[*i]; takes a following value. 0 or an exit code. */
static int parse_long(const struct command *command, int argc, char **argv, int *i, struct arguments *out) {
    const char *text = argv[*i], *name = text + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    int o = find_long(command, name, length);
    if (o < 0) return bad_option(command, "unknown option", (int)length + 2, text);
    out->given[o] = 1;
    out->value[o] = NULL;
    if (equals) {
        if (command->options[o].argument == OPTION_FLAG)
            return bad_option(command, "no value is taken by", (int)length + 2, text);
        out->value[o] = equals + 1;
    } else if (command->options[o].argument == OPTION_VALUE) {
        if (*i + 1 >= argc) return bad_option(command, "a value is missing after", (int)length + 2, text);
        out->value[o] = argv[++*i];
    }
    return 0;
}

/* -x, -x VALUE, -xVALUE, and flags together as -xy. */
static int parse_letters(const struct command *command, int argc, char **argv, int *i, struct arguments *out) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        int o = find_letter(command, *p);
        char shown[3] = {'-', *p, 0};
        if (o < 0) return bad_option(command, "unknown option", 2, shown);
        out->given[o] = 1;
        out->value[o] = NULL;
        if (command->options[o].argument != OPTION_VALUE) continue;
        if (p[1])
            out->value[o] = p + 1;
        else if (*i + 1 < argc)
            out->value[o] = argv[++*i];
        else
            return bad_option(command, "a value is missing after", 2, shown);
        break;
    }
    return 0;
}

/* Not -1.5, -inf or an einsum's ->, which are operands. */
static int is_letters(const char *text) {
    return text[0] == '-' && text[1] && !strchr("0123456789.>", text[1]) && strcasecmp(text, "-inf");
}

int cmd_parse(const struct command *command, int argc, char **argv, struct arguments *out) {
    int code = 0, i = 0, n = 0;
    memset(out, 0, sizeof *out);
    out->command = command;
    out->operands = argv;
    for (; i < argc && !code; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strncmp(argv[i], "--", 2)) {
            code = parse_long(command, argc, argv, &i, out);
        } else if (is_letters(argv[i])) {
            code = parse_letters(command, argc, argv, &i, out);
        } else {
            if (command->options_end_at_operand) break;
            argv[n++] = argv[i];
        }
    }
    for (; i < argc && !code; i++) argv[n++] = argv[i];
    if (n < argc) argv[n] = NULL;
    out->n_operands = n;
    return code;
}

int cmd_option(const struct arguments *args, const char *name) {
    int i = find_long(args->command, name, strlen(name));
    return i < 0 ? CMD_MAX_OPTIONS - 1 : i; /* the last place is never used by a table */
}

int output_open(struct output *out, const char *path, char *err, size_t err_len) {
    struct stat st;
    int fd;
    memset(out, 0, sizeof *out);
    if (!path) {
        out->file = stdout;
        return 0;
    }
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode)) {
            snprintf(err, err_len, "%s: is a folder; name a file in it", path);
            return -1;
        }
        snprintf(out->path, sizeof out->path, "%s", path);
        out->file = fopen(path, "w"); /* a pipe or a device: nothing to rename */
    } else {
        snprintf(out->path, sizeof out->path, "%s", path);
        if ((size_t)snprintf(out->temporary, sizeof out->temporary, "%s.XXXXXX", path) >= sizeof out->temporary) {
            snprintf(err, err_len, "%.60s...: the name is too long; choose a shorter one", path);
            return -1;
        }
        fd = mkstemp(out->temporary);
        out->file = fd < 0 ? NULL : fdopen(fd, "w");
        if (fd >= 0) {
            mode_t mask = umask(0);
            umask(mask);
            (void)!fchmod(fd, 0666 & ~mask); /* mkstemp's 0600 is for secrets; a report is none */
        }
    }
    if (out->file) return 0;
    snprintf(err, err_len, "%s: cannot be written: %s; choose another place with -o", path, strerror(errno));
    return -1;
}

int output_close(struct output *out, char *err, size_t err_len) {
    FILE *f = out->file;
    int bad = fflush(f) || ferror(f);
    if (f == stdout) {
        if (bad) snprintf(err, err_len, "cannot write to stdout: %s; the output is incomplete", strerror(errno));
        return bad ? -1 : 0;
    }
    if (!bad && out->temporary[0] && fsync(fileno(f)) && errno != EINVAL && errno != EROFS) bad = 1;
    if (fclose(f)) bad = 1;
    if (!bad && out->temporary[0] && rename(out->temporary, out->path)) bad = 1;
    if (!bad) return 0;
    snprintf(err, err_len, "%s: cannot be written: %s; make room or choose another place with -o", out->path,
             strerror(errno));
    if (out->temporary[0]) unlink(out->temporary);
    return -1;
}

void output_abandon(struct output *out) {
    if (out->file == stdout) return;
    fclose(out->file);
    if (out->temporary[0]) unlink(out->temporary);
}
