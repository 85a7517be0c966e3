/* Which release ended which allocation. Allocations and releases of one address come from several rings, which are
 * drained one after the other, so they arrive in any order; the answer depends on their times only. An address is never
 * handed out twice at a time, so an allocation lasts until the next event of its address: a release, or, where that was
 * not recorded, the next allocation. A release that follows a release ends nothing.
 *
 * Memory stays bounded: what is followed by a later event is forgotten once a whole pass over all rings has begun and
 * ended after both arrived. An event that belongs between the two happened before the later one, so its record was
 * published before that pass began. One thread. */
#ifndef ACCT_TRACE_COLLECT_LIFE_H
#define ACCT_TRACE_COLLECT_LIFE_H

#include <stdint.h>

struct life;

/* Called whenever the end of a birth changes. death_id 0: its release was not recorded; end_ns 0 as well: it has no end
 * (any more). */
typedef void life_change(void *context, int64_t birth_id, int64_t death_id, uint64_t end_ns);

/* NULL: no memory. */
struct life *life_new(life_change *change, void *context);
void life_delete(struct life *l);

/* A new pass over the rings begins. */
void life_next_pass(struct life *l);

/* ids > 0. 0, or -1: no memory (the event is not matched). */
int life_birth(struct life *l, uint64_t key, uint64_t ns, int64_t id);
int life_death(struct life *l, uint64_t key, uint64_t ns, int64_t id);

/* Events held, for tests of the bound. */
uint64_t life_held(const struct life *l);

#endif
