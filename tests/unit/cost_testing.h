/* What the tests of costs share. Include cmocka.h first. */
#ifndef TESTS_COST_TESTING_H
#define TESTS_COST_TESTING_H

#include <string.h>

#include "analyzer/cost_model.h"

static inline void check(struct cost c, int64_t flops, int64_t read, int64_t written) {
    assert_int_equal(c.flops, flops);
    assert_int_equal(c.bytes_read, read);
    assert_int_equal(c.bytes_written, written);
}

/* NULL: there is none. */
static inline const struct cost_operand *operand(const struct cost *c, const char *slot) {
    for (int i = 0; i < c->operands; i++)
        if (!strcmp(c->operand[i].slot, slot)) return &c->operand[i];
    return NULL;
}

static inline void check_operand(const struct cost *c, const char *slot, uint64_t address, int64_t bytes,
                                 enum cost_mode mode) {
    const struct cost_operand *o = operand(c, slot);
    assert_non_null(o);
    assert_int_equal(o->address, address);
    assert_int_equal(o->bytes, bytes);
    assert_int_equal(o->mode, mode);
}

#endif
