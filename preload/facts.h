/* The INFO records: what the process and its devices are; and rings made safe to touch. Called with the hook's depth
 * raised. */
#ifndef ACCT_PRELOAD_FACTS_H
#define ACCT_PRELOAD_FACTS_H

#include "trace/ring.h"

/* Writes PROCESS, the first record of a trace. */
void facts_tell_process(struct ring_writer *w);

/* The runtime's current device, or -1. */
int facts_current_device(void);
/* On which device an address is, or -1. */
int facts_device_of(const void *address);
/* Asks the runtime about the device, and writes what it knows. */
void facts_tell_device(struct ring_writer *w, int ordinal);

/* facts_memory.c: the device's memory as the driver tells it. */
struct facts_memory {
    uint32_t why;     /* ACCT_meminfo_why_* */
    int ordinal;      /* -1: not known */
    uint64_t call_ns; /* start of the call that found no memory; 0: none */
    uint64_t pool;    /* to be asked of too; 0: the current one, if the program has used stream-ordered memory */
    int only_answers; /* where there is no answer, nothing is written */
};
/* Asks, and writes what it was told. The program finds its last error as it was. 1: written. */
int facts_tell_memory(struct ring_writer *w, const struct facts_memory *m);
/* Programs look for the largest batch by failing: 1 for the first failures of a trace (by its generation), and then as
 * long as questions have taken less than a twentieth of the time. */
int facts_may_ask_memory(uint32_t generation);
/* Before a call that takes or releases memory: 1 for the first release of a trace, and 10 ms after the last question or
 * later, so that they take less than a hundredth of the time; now: by hook_now. asked: one that began at begin_ns is
 * over. */
int facts_may_ask_again(uint32_t generation, int release, uint64_t now);
void facts_asked(uint64_t begin_ns);
/* The program has stream-ordered memory, so that a pool may hold some of the device's. */
void facts_note_pool(void);

/* Questions to the runtime between begin and end leave the program's last error as it was: an error of theirs is taken
 * back. begin: 0 where that could not be done, if they failed. */
struct facts_question {
    int error; /* the program's */
};
int facts_question_begin(struct facts_question *q);
void facts_question_end(const struct facts_question *q);

/* Makes pages present, so that a machine out of memory is an error here and no SIGBUS later. 0: out of memory. */
int facts_make_present(void *start, size_t bytes);

/* ring_claim, with the page of the ring's header present. Ring number, or -1. */
int facts_claim_ring(struct acct_control *c);

#endif
