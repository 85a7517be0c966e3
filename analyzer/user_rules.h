/* A user's rules for classes: `--rules FILE`, one rule a line (acct-rules(5)). They settle the class of the allocations
 * that they match, in place of the analysis: in temporary tables that shadow the file's, or in the file itself. Memory
 * and texts belong to the struct. One thread. */
#ifndef ACCT_ANALYZER_USER_RULES_H
#define ACCT_ANALYZER_USER_RULES_H

#include <stddef.h>
#include <stdint.h>
#include <sqlite3.h>

/* What a condition looks at. Numbers first: they are compared; the others are patterns with * and ?. */
enum rule_key {
    RULE_ORDER,   /* the how-manieth allocation it was, from 1 */
    RULE_BYTES,   /* its size */
    RULE_ADDRESS, /* its first byte */
    RULE_DEVICE,  /* ordinal */
    RULE_NUMBERS,
    RULE_STACK = RULE_NUMBERS, /* a function on the call stack of the allocation */
    RULE_LIBRARY, /* the file of the innermost frame, without its folder, or the library whose function allocated */
    RULE_API,     /* the function called */
    RULE_RANGE,   /* a named range open in the thread when it allocated */
    RULE_TAG,     /* a tag on some of its bytes: the rule holds for those */
    RULE_MEMORY,  /* alloc.memory */
    RULE_WAS,     /* the class that the analysis gave: the rule holds for those bytes and times */
    RULE_KEYS
};

struct rule_condition {
    int8_t key;    /* enum rule_key */
    int8_t negate; /* patterns: != */
    int64_t least, most;
    char *pattern;
};

struct user_rule {
    int line;
    const char *class;
    struct rule_condition *condition;
    int conditions;
    char text[40];   /* as alloc_class.rule has it */
    int64_t matches; /* allocations, by the last user_rules_apply */
};

struct user_rules {
    char *path;
    struct user_rule *rule;
    int rules;
    unsigned keys; /* bit set of enum rule_key: what any rule looks at */
};

#define USER_RULES_MOST 10000
#define USER_RULES_LINE 4096

/* 0 with *out to free, or -1 with one line `FILE:LINE: what` in err. A file without a rule is one. */
int user_rules_read(struct user_rules **out, const char *path, char *err, size_t err_len);
void user_rules_free(struct user_rules *u); /* NULL: nothing */

/* The first rule that matches wins. keep 0: temp tables over db's; 1: table alloc_class of the file, in a transaction,
 * and meta.user_rules. 0, or -1 with one line in err. */
int user_rules_apply(struct user_rules *u, sqlite3 *db, int keep, char *err, size_t err_len);

/* A pattern with * (any text) and ? (one character); the whole text must match. */
int user_rules_glob(const char *pattern, const char *text);

#endif
