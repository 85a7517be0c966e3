/* Which release ended which allocation. Allocations and releases of one address come from several rings, which are
 * drained one after the other, so they arrive in any order; the answer depends on their times only: taken in order of
 * time, a release ends the latest allocation of that address that is still unmatched.
 *
 * Memory stays bounded: a pair is forgotten once a whole pass over all rings has begun and ended after it was complete.
 * An event that belongs between the two happened before the release, so its record was published before that pass
 * began. One thread. */
#ifndef ACCT_TRACE_COLLECT_LIFE_H
#define ACCT_TRACE_COLLECT_LIFE_H

#include <stdint.h>

struct life;

/* Called whenever the end of a birth changes; death_id 0: it has none (any more). */
typedef void life_change(void *context, int64_t birth_id, int64_t death_id, uint64_t death_ns);

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
