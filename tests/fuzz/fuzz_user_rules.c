/* Fuzzer of the reader of a user's rules (--rules FILE): whatever the file holds, it is rules that can be applied or
 * one line that tells the place; and its patterns match as a table over all their prefixes says. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "analyzer/user_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_user_rules: %s\n", what);
    abort();
}

static void check_rules(const struct user_rules *u) {
    for (int i = 0; i < u->rules; i++) {
        const struct user_rule *r = &u->rule[i];
        must(r->class && r->conditions > 0 && r->line > 0 && (!i || r->line > r[-1].line),
             "a rule without class, condition or line");
        for (int c = 0; c < r->conditions; c++) {
            const struct rule_condition *x = &r->condition[c];
            must(x->key >= 0 && x->key < RULE_KEYS && (u->keys >> x->key & 1), "a condition of no kind");
            must(x->key < RULE_NUMBERS ? x->least <= x->most || x->key == RULE_ADDRESS : x->pattern && *x->pattern,
                 "an empty condition");
        }
    }
}

/* match[i][k]: the first i of the pattern match the first k of the text. */
static int plain_glob(const char *pattern, const char *text) {
    static char match[66][66];
    size_t n = strlen(pattern), m = strlen(text);
    memset(match, 0, sizeof match);
    match[0][0] = 1;
    for (size_t i = 1; i <= n; i++)
        for (size_t k = 0; k <= m; k++) {
            char p = pattern[i - 1];
            match[i][k] = p == '*' ? match[i - 1][k] || (k && match[i][k - 1])
                                   : k && match[i - 1][k - 1] && (p == '?' || p == text[k - 1]);
        }
    return match[n][m];
}

static void check_glob(const uint8_t *data, size_t size) {
    char pattern[65], text[65];
    static const char letters[] = "*?ab*a";
    size_t n = size < 128 ? size / 2 : 64;
    for (size_t i = 0; i < n; i++) pattern[i] = letters[data[i] % 6], text[i] = "ab"[data[size - 1 - i] & 1];
    pattern[n] = text[n] = 0;
    text[n ? data[0] % (n + 1) : 0] = 0;
    must(user_rules_glob(pattern, text) == plain_glob(pattern, text), "a pattern matches otherwise");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[40], err[1024] = "";
    struct user_rules *u = NULL;
    int fd = memfd_create("rules", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size, "memfd");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = user_rules_read(&u, path, err, sizeof err);
    close(fd);
    must(rc == 0 ? u != NULL : !u && !strncmp(err, path, strlen(path)) && !strpbrk(err, "\n\r\033"),
         "what is said of a bad file");
    if (u) check_rules(u);
    user_rules_free(u);
    check_glob(data, size);
    return 0;
}
