/* Shorthand of the references: buffers and scalars of a case by argument number. */
#ifndef TESTS_ZOO_REFERENCE_H
#define TESTS_ZOO_REFERENCE_H

#include "tests/zoo/zoo.h"

#define F32P(k) ((float *)b[k])
#define F64P(k) ((double *)b[k])
#define I32P(k) ((int32_t *)b[k])
#define U32P(k) ((uint32_t *)b[k])
#define I64P(k) ((int64_t *)b[k])
#define U64P(k) ((uint64_t *)b[k])
#define U16P(k) ((uint16_t *)b[k])
#define U8P(k) ((uint8_t *)b[k])
#define INT(k) ((int)c->arg[k].i)
#define COUNT(k) ((int)c->arg[k].count)
#define REF(name) void zoo_ref_##name(const struct zoo_case *c, void **b)
#define UNUSED_CASE ((void)c)

static inline int zoo_threads(const struct zoo_case *c) {
    return (int)(c->block[0] * c->block[1] * c->block[2]);
}
static inline int zoo_total(const struct zoo_case *c) {
    return zoo_threads(c) * (int)(c->grid[0] * c->grid[1] * c->grid[2]);
}

#endif
