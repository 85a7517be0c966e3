/* Patterns of memory use that waste it, found from when each allocation is made, used and released (the object-level
 * patterns of DrGPUM, ASPLOS 2023, with times instead of counts of calls). The unit is an object: a range of a device
 * allocation with a class of its own (alloc_class), or a whole allocation.
 *
 * The waste of a finding is bytes * ns: how much was held for how long to no use. Patterns overlap (an allocation can
 * be made too early and be what another one could have used), so wastes are ranked, never added over patterns.
 *
 * Times: of the device where it is a real one that tells them, else of the host around the calls. What an op does where
 * nobody can tell (pointers in lists, machine code) may be a use of anything: findings with such an op in between are
 * `unsure`. Linear in ops; one thread. */
#ifndef ACCT_ANALYZER_PATTERNS_H
#define ACCT_ANALYZER_PATTERNS_H

#include "analyzer/emitter.h"
#include "analyzer/report_model.h"

enum pattern_kind {
    PATTERN_LEAK,       /* never released; from its last use to the end of the run */
    PATTERN_UNUSED,     /* no op accesses it; its whole life */
    PATTERN_REDUNDANT,  /* when first used, an allocation of its size was still held and never used again: from there on
                         */
    PATTERN_EARLY,      /* from the allocation to the first use */
    PATTERN_LATE,       /* from the last use to the release */
    PATTERN_IDLE,       /* between two uses, its content needed: could be on the host meanwhile */
    PATTERN_VACANT,     /* between two uses, overwritten by the second: its memory could serve others meanwhile */
    PATTERN_DEAD_WRITE, /* written, and overwritten or released before anybody reads it; from the write to then */
    PATTERNS
};

struct pattern_options {
    double min_share;        /* of all bytes * ns allocated; findings below are left out */
    int64_t min_gap_ns;      /* IDLE and VACANT count gaps from this on */
    double link_bytes_per_s; /* IDLE: a gap must be longer than the way to the host and back */
};

/* All findings of one pattern that are alike: equal size, class, call and stack. */
struct pattern_finding {
    enum pattern_kind kind;
    int64_t objects;  /* how many */
    int64_t times;    /* gaps (IDLE, VACANT) or writes (DEAD_WRITE), of all objects */
    int64_t bytes;    /* of one object */
    __int128 byte_ns; /* of all */
    int64_t alloc;    /* alloc.id of the one with the greatest waste */
    int64_t offset;   /* of the object in it */
    int64_t longest_ns, before_op,
        after_op;  /* its longest span, between these ops (0: its allocation; its release or the end) */
    int64_t other; /* REDUNDANT: alloc.id of the one whose memory it could have had */
    int unsure;    /* 1: for each of the objects some op in between may use it unseen */
    char class_name[20];
    int64_t api, stack; /* of the allocating call; stack 0: none recorded */
};

struct patterns {
    struct pattern_finding *finding; /* by waste, the greatest first */
    int64_t findings;
    __int128 allocated_byte_ns; /* bytes * life of all device allocations */
    int64_t accesses;
    int64_t unknown_direction, unknown_extent; /* of accesses */
    int64_t unseen_ops;                        /* ops that may use memory where nobody can tell */
    int device_times;                          /* 1: times are the device's */
};

struct pattern_options pattern_defaults(void);
const char *pattern_name(enum pattern_kind kind); /* `dead write` */

/* 0, or -1 with one line in err. patterns_free after either. */
int patterns_find(struct report *r, const struct pattern_options *o, struct patterns *out, char *err, size_t err_len);
void patterns_free(struct patterns *p);

/* Sections of a document: the findings (at most `limit`, 0: all; kind PATTERNS: all), and what cannot be known. */
int patterns_print(struct emitter *e, struct report *r, const struct patterns *p, const struct pattern_options *o,
                   enum pattern_kind kind, int64_t limit, char *err, size_t err_len);

/* ---- between patterns_objects.c, which reads a trace into objects, and patterns.c, which judges them ---- */

/* Content that was written and not read yet. */
struct pattern_pending {
    int64_t lo, hi, ns, op;
};

struct pattern_gaps {
    int64_t n, total_ns, longest_ns, before_op, after_op;
    int sure; /* some gap without an unseen op in it */
};

struct pattern_object {
    int64_t alloc, offset, bytes;
    int64_t born_ns, gone_ns; /* gone: released, or the end of the run */
    int64_t first_ns, last_ns, first_op, last_op;
    int64_t accesses, api, stack;
    struct pattern_gaps idle, vacant;
    struct pattern_pending *pending;
    int32_t pendings;
    int64_t dead_writes, dead_bytes, dead_longest_ns, dead_before, dead_after;
    __int128 dead_byte_ns;
    char class_name[20];
    uint8_t released, whole; /* whole: all of its allocation */
};

struct pattern_objects {
    struct pattern_object *object; /* by alloc, offset */
    int64_t objects;
    int64_t *unseen; /* times of ops that may use anything, ascending */
    int64_t unseen_n;
    int64_t end_ns; /* of the run */
};

int pattern_objects_load(struct report *r, const struct pattern_options *o, struct patterns *p,
                         struct pattern_objects *out, char *err, size_t err_len);
void pattern_objects_free(struct pattern_objects *s);
/* First place in ascending numbers whose number is not below `least`; n: there is none. */
int64_t pattern_first_from(const int64_t *number, int64_t n, int64_t least);
int pattern_unseen_between(const struct pattern_objects *s, int64_t from_ns, int64_t to_ns);

#endif
