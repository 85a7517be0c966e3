/* The rows of the trace as they are read, before they are put in order. */
#ifndef ACCT_ANALYZER_ATTR_ROWS_H
#define ACCT_ANALYZER_ATTR_ROWS_H

#include <sqlite3.h>
#include "analyzer/attr_model.h"
#include "analyzer/cost_model.h"
#include "analyzer/launch_price.h"

/* Numbers of kernels, in row.name, begin here: those below are of api. */
#define ROW_KERNEL_NAME (1 << 30)

/* One call that touches memory or is handed some. */
struct row {
    int64_t op, start_ns, end_ns;
    int32_t process, thread; /* ACCT_NULL_I32 */
    int32_t name, device;
    int32_t shape;   /* in rows.shape; -1: nothing is known of it */
    int8_t kind;     /* enum at_kind */
    int8_t call;     /* enum at_call */
    uint8_t library; /* a BLAS call */
};

/* What calls that are alike have in common: all but when. Most calls of a training run come again in each step. */
struct row_shape {
    int64_t m, n, k, batch;
    int32_t operand0, operands; /* in rows.operand */
    int32_t cost;
    int8_t kind; /* enum at_kind where the call's table says more than its kind; -1 */
    int8_t axis_a, axis_b;
    int8_t bits_a, bits_b; /* of an element of a factor; 0: not known */
    uint8_t direction;     /* copies: as stated */
    uint8_t idle;          /* does nothing that the rules could use */
};

struct row_operand {
    uint64_t address;
    uint64_t pointer; /* the argument that names the block, where that is not `address`; 0 */
    int64_t bytes;    /* AT_UNKNOWN_BYTES */
    int16_t slot;
    int8_t mode;
    uint8_t partial; /* a write that may leave bytes as they were */
    uint8_t kept;    /* enum row_kept */
    uint8_t maybe;   /* an operand only if it lies in a block */
};

enum row_kept { ROW_WRITTEN /* to op_buffer */, ROW_NOT_SHOWN, ROW_TOLD /* is in op_buffer already */ };

struct row_alloc {
    int64_t id, process, address, bytes, alloc_ns, free_ns, free_op, thread, start_ns;
    int8_t home, of_library;
};

struct rows {
    struct pool *pool;
    struct row *row;
    int32_t rows, row_room; /* by op id */
    struct row_shape *shape;
    int32_t shapes, shape_room;
    struct row_operand *operand;
    int32_t operands, operand_room;
    struct row_cache *cache; /* of shapes, by what makes them */
    int32_t no_memory_calls; /* calls that returned 2 or 3, as those do that found no memory */
    struct at_cost *cost;
    int32_t costs, cost_room;
    struct row_alloc *alloc;
    int32_t allocs, alloc_room;
    const char **slot_name;
    int32_t slot_names, slot_room; /* slot AT_SLOT_FIRST_FREE - i */
    struct launch_sets *sets;      /* the caller's, as the next */
    struct launch_prices *prices;
    char *err; /* the caller's: what a launch's price could not be written for */
    size_t err_len;
    int failed;
};

/* 0, or negative with one line in err. */
struct gemms;
int rows_read(struct rows *r, sqlite3 *db, struct gemms *gemms, char *err, size_t err_len);
int rows_read_calls(struct rows *r, sqlite3 *db, char *err, size_t err_len); /* a part of it; writes call_sum */
int rows_read_details(struct rows *r, sqlite3 *db, struct gemms *gemms, char *err, size_t err_len); /* the next */
/* Rows of the tables of details come in the same order: the row is the one behind the last found, or near it. */
struct row *row_find(const struct rows *r, int64_t op, int32_t *last);
/* attr_shapes.c. A shape under construction is the last one: operands and costs are added to it. */
int16_t rows_slot(struct rows *r, const char *text);
struct row_shape *shape_begin(struct rows *r);
void shape_add_operand(struct rows *r, struct row_operand o);
void shape_add_call(struct rows *r, const struct cost *c, const char *dtype);
void shape_add_workspace(struct rows *r, uint64_t address, int64_t bytes);
/* Gives the row the last shape; a row that has one already (a grouped product) gets both as one. */
void shape_give(struct rows *r, struct row *row);
void shape_give_again(struct rows *r, struct row *row, int32_t shape);
/* Gives the row the shape that was kept for these bytes: 1, or 0 where there is none. Then one may be made, which
 * shape_keep keeps for them. Bounded: the latest ones are kept. */
int shape_give_known(struct rows *r, struct row *row, const void *key, size_t bytes);
void shape_keep(struct rows *r);

/* The text of a slot; number slots are written into buf. */
const char *rows_slot_text(const struct rows *r, int16_t slot, char buf[16]);

#endif
