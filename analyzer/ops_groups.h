/* Ops that are alike, gathered in one pass over a trace: calls of one function with one shape (dimensions and formats
 * of a product, kernel, grid and block of a launch, bytes of a copy), or every op by itself. What each took and did.
 * ns, bytes, FLOPs. One thread. */
#ifndef ACCT_ANALYZER_OPS_GROUPS_H
#define ACCT_ANALYZER_OPS_GROUPS_H

#include "analyzer/report_roof.h"

enum ops_kind { OPS_LAUNCH, OPS_GEMM, OPS_BLAS, OPS_COPY, OPS_MEMSET, OPS_COLLECTIVE, OPS_KINDS };

/* What makes two ops alike; all bytes of it count. */
struct ops_key {
    int64_t op;     /* its id where every op is a group of its own, else 0 */
    int64_t name;   /* kernel.id of a launch, api.id of all else; 0: not known */
    int64_t dim[7]; /* launch: grid, block, dynamic shared bytes; gemm, blas: m n k batch; else bytes moved */
    int32_t kind;   /* enum ops_kind */
    int16_t dtype;  /* place in ops_groups.dtype; -1: none */
    char form[10];  /* op(A), op(B); direction of a copy */
};

struct ops_group {
    struct ops_key key;
    int64_t calls, timed;            /* of calls, those with a device time */
    int64_t time_ns, min_ns, max_ns; /* of those */
    struct report_sum flops;         /* as everywhere: the least, and bounds */
    int64_t unpriced_bytes;          /* calls whose bytes are not known */
    double bytes;                    /* of the others */
    __int128 integer_ops;
    double roof_ns;                   /* of the timed calls under a known roof */
    int64_t roofed;                   /* how many those are */
    int64_t roofed_ns;                /* and their time */
    int64_t by_compute, by_memory;    /* calls that each bounds */
    double peak;                      /* FLOP/s of the last call's format; NaN */
    unsigned phases;                  /* 1 << enum report_phase */
    int64_t first_op, step, start_ns; /* of the first call; step REPORT_UNKNOWN: none; device start, else the host's */
    int64_t price;                    /* of a launch: the last one's; REPORT_UNKNOWN */
};

struct ops_groups {
    struct ops_group *group; /* in the order of first calls, until they are sorted */
    int64_t n, room;
    int64_t *slot; /* hash table of places + 1 */
    int64_t slots; /* a power of two */
    char *dtype[64];
    int dtypes;
    char **kernel, **api; /* names by id, up to kernels and apis (exclusive); NULL: not known */
    int64_t kernels, apis;
    int64_t *launches_of_price; /* by price.id, up to prices (exclusive) */
    int64_t prices;
};

struct ops_filter {
    int64_t step;   /* -1: all */
    int phase;      /* enum report_phase; -1: all */
    int each;       /* 1: every op by itself */
    unsigned kinds; /* 1 << enum ops_kind */
};

/* Successful calls only. 0, or -1 with one line in err; ops_free in both cases. */
int ops_load(struct ops_groups *g, struct report *r, const struct ops_filter *f, char *err, size_t err_len);
void ops_free(struct ops_groups *g);

enum ops_order { OPS_BY_TIME, OPS_BY_FLOPS, OPS_BY_BYTES, OPS_BY_CALLS, OPS_BY_ID };
/* Largest first, ties in the order of first calls; OPS_BY_ID: that order. */
void ops_sort(struct ops_groups *g, enum ops_order order);

const char *ops_name(const struct ops_groups *g, const struct ops_group *o); /* never NULL */
/* `NT 512x128x64 x8`, `(64,1,1)x(256,1,1)`, `h2d 1048576`. */
void ops_shape(const struct ops_group *o, char *out, size_t room);

/* FLOPs a byte; NaN: not known. */
double ops_intensity(const struct ops_group *o);
/* What bounds all calls that have a roof; ROOF_UNKNOWN: nothing known, or not the same for all. */
enum roof_bound ops_bound(const struct ops_group *o);
const char *ops_grade(const struct ops_group *o);

#endif
