/* A: programs one after another in one trace. Where no byte that was written before is read after, what follows owes
 * nothing to what was: another model, trained when the first was freed (in memory that an allocator of the program's
 * hands out again, its end cannot be seen otherwise). The rules look at whole lives of ranges, "read in every step",
 * "modified and never overwritten": each part is analysed as a trace of its own, and the parts are joined.
 *
 * All parts share the events, accesses and ranges of the trace: while one is analysed, the events of those before it
 * are blank. That costs (parts × events), so a trace of very many parts is left whole. */
#include "analyzer/attr_model.h"

#define COST_MOST 10000000 /* parts × (events + ranges) */

struct part {
    int32_t from, to; /* events */
    int trained, steps;
};

struct segments {
    struct at_trace *t;
    void (*rules)(struct at_trace *);
    struct part *part;
    int32_t parts, room;
    struct at_event *before, *after; /* each event as it was; with what its part says of it */
    struct at_range *range;          /* as they were before the rules */
    struct at_verdict **verdict;
    int32_t **verdict0; /* per part */
    uint8_t **touched;  /* per part: bits 1 touched; per range */
};

/* ---- where nothing lives on
 * -------------------------------------------------------------------------------------------------- */
/* live[e]: values that were made before event e and are read at or after it, as differences. */
static int32_t *lives(const struct at_trace *t) {
    int32_t *live = POOL_NEW(t->pool, int32_t, (size_t)t->events + 1);
    for (int32_t v = 0; v < t->values; v++) {
        const struct at_value *x = &t->value[v];
        int32_t last = -1, first = t->access[t->touch[x->touch0]].event;
        if (x->birth < 0) first = t->block[t->range[x->range].block].born; /* nobody saw it written */
        AT_EACH_TOUCH(t, x, a) if (at_reads(a->mode)) last = a->event;
        if (last <= first) continue;
        live[first + 1]++;
        live[last + 1]--;
    }
    return live;
}

static void add_part(struct segments *s, int32_t from, int32_t to) {
    POOL_ROOM(s->t->pool, s->part, s->parts, s->room);
    s->part[s->parts++] = (struct part){.from = from, .to = to};
}

static int has_work(const struct at_trace *t, int32_t from, int32_t to) {
    if (t->gemms) return at_first_gemm_from(t, from) < at_first_gemm_from(t, to);
    for (int32_t e = from; e < to; e++)
        if (at_is_work(&t->event[e])) return 1;
    return 0;
}

/* A part begins at the last event of a stretch over which nothing lives: releases belong to what was before. */
static void find_parts(struct segments *s) {
    const struct at_trace *t = s->t;
    int32_t *live = lives(t), now = 0, from = 0, gap = -1;
    for (int32_t e = 0; e < t->events; e++) {
        now += live[e];
        if (!now) gap = e;
        int begins = gap >= 0 && (now || e == gap) && e + 1 < t->events && now + live[e + 1] > 0;
        if (!begins) continue;
        if (has_work(t, from, gap) && has_work(t, gap, t->events)) {
            add_part(s, from, gap);
            from = gap;
        }
        gap = -1;
    }
    add_part(s, from, t->events);
    pool_give(t->pool, live);
}

/* ---- the rules, part by part
 * ------------------------------------------------------------------------------------------------- */
static void blank(const struct segments *s, const struct part *p) {
    for (int32_t e = p->from; e < p->to; e++) {
        s->t->event[e].kind = AT_HANDED;
        s->t->event[e].accesses = 0;
    }
}

static struct at_trace run_part(const struct segments *s, const struct part *p) {
    const struct at_trace *t = s->t;
    struct at_trace sub = {.pool = t->pool,
                           .sets = t->sets,
                           .prices = t->prices,
                           .event = t->event,
                           .events = p->to,
                           .buffer = t->buffer,
                           .buffers = t->buffers,
                           .block = t->block,
                           .blocks = t->blocks,
                           .cost = t->cost,
                           .costs = t->costs,
                           .ranges = t->ranges,
                           .access = t->access,
                           .accesses = t->accesses,
                           .blind = t->blind,
                           .dark = t->dark,
                           .guessed = t->guessed};
    sub.range = POOL_NEW(t->pool, struct at_range, t->ranges);
    for (int32_t r = 0; r < t->ranges; r++) sub.range[r] = s->range[r];
    at_values(&sub);
    s->rules(&sub);
    return sub;
}

/* Which parts train; what does not is evaluation, or the like, of a part that does. */
static void try_parts(struct segments *s) {
    struct at_trace *t = s->t;
    for (int32_t i = 0; i < s->parts; i++) {
        struct part *p = &s->part[i];
        struct at_trace sub = run_part(s, p);
        p->trained = sub.step_ends > 0;
        p->steps = sub.steps;
        at_own_products_forget(&sub);
        blank(s, p);
        pool_give(t->pool, sub.range);
    }
    for (int32_t e = 0; e < t->events; e++) t->event[e] = s->before[e];
    for (int32_t b = 0; b < t->blocks; b++) t->block[b].pool = 0;
}

static void join_untrained(struct segments *s) {
    int32_t n = 0, some = 0;
    for (int32_t i = 0; i < s->parts; i++) some |= s->part[i].trained;
    for (int32_t i = 0; i < s->parts; i++) {
        struct part *p = &s->part[i], *before = n ? &s->part[n - 1] : NULL;
        int counts = some ? p->trained : p->steps > 0;
        int last_counts = before && (some ? before->trained : before->steps > 0);
        if (before && (!counts || !last_counts)) {
            before->to = p->to;
            before->trained |= p->trained;
            before->steps += p->steps;
        } else {
            s->part[n++] = *p;
        }
    }
    s->parts = n;
}

/* ---- joining
 * ------------------------------------------------------------------------------------------------------------- */
static void keep_events(struct segments *s, const struct at_trace *sub, const struct part *p) {
    struct at_trace *t = s->t;
    for (int32_t e = p->from; e < p->to; e++) {
        s->after[e] = t->event[e];
        if (s->after[e].step >= 0) s->after[e].step += t->steps;
        t->in_cluster[e] = sub->in_cluster ? sub->in_cluster[e] : 0;
        t->writes_grad[e] = sub->writes_grad ? sub->writes_grad[e] : 0;
        t->weight_read[e] = sub->weight_read ? sub->weight_read[e] : -1;
        t->weight_forward[e] = sub->weight_forward ? sub->weight_forward[e] : 0;
    }
}

static void copy_steps(struct at_trace *t, const struct at_trace *sub, int32_t *room) {
    for (int32_t i = 0; i < sub->steps; i++) {
        POOL_ROOM(t->pool, t->step, t->steps, *room);
        t->step[t->steps++] = sub->step[i];
    }
    t->step_ends += sub->step_ends;
}

static void keep_part(struct segments *s, int32_t i, const struct at_trace *sub) {
    struct at_trace *t = s->t;
    s->verdict[i] = sub->verdict;
    s->verdict0[i] = sub->verdict0;
    s->touched[i] = POOL_NEW(t->pool, uint8_t, t->ranges);
    for (int32_t r = 0; r < t->ranges; r++) {
        s->touched[i][r] = sub->range[r].touches > 0;
        if (s->touched[i][r] || !i) t->range[r] = sub->range[r];
    }
}

/* first: place of the range's first verdict. */
static void say(struct at_trace *t, int32_t first, int32_t *n, int32_t *room, struct at_verdict v) {
    struct at_verdict *last = *n > first ? &t->verdict[*n - 1] : NULL;
    if (v.from >= v.until) return;
    if (last && last->cls == v.cls && last->rule == v.rule && last->until == v.from) {
        last->until = v.until;
        return;
    }
    POOL_ROOM(t->pool, t->verdict, *n, *room);
    t->verdict[(*n)++] = v;
}

/* What each part says of the range, from its beginning to the next part that uses it. */
static void join_range(struct segments *s, int32_t r, int32_t *n, int32_t *room) {
    struct at_trace *t = s->t;
    int32_t users = 0, last_user = s->parts - 1;
    for (int32_t i = 0; i < s->parts; i++) users += s->touched[i][r];
    int32_t from = 0;
    for (int32_t i = 0; i < s->parts; i++) {
        if (users ? !s->touched[i][r] : i != last_user) continue;
        int32_t next = i + 1;
        while (next < s->parts && !s->touched[next][r]) next++;
        int32_t until = next < s->parts && users ? s->part[next].from : AT_END;
        for (int32_t v = s->verdict0[i][r]; v < s->verdict0[i][r + 1]; v++) {
            struct at_verdict x = s->verdict[i][v];
            if (x.from < from) x.from = from;
            if (x.until > until) x.until = until;
            say(t, t->verdict0[r], n, room, x);
        }
        from = until;
    }
}

static void join_verdicts(struct segments *s) {
    struct at_trace *t = s->t;
    int32_t n = 0, room = 0;
    t->verdict0 = POOL_NEW(t->pool, int32_t, (size_t)t->ranges + 1);
    for (int32_t r = 0; r < t->ranges; r++) {
        t->verdict0[r] = n;
        join_range(s, r, &n, &room);
    }
    t->verdict0[t->ranges] = n;
}

static void run_parts(struct segments *s) {
    struct at_trace *t = s->t;
    int32_t room = 0;
    s->verdict = POOL_NEW(t->pool, struct at_verdict *, s->parts);
    s->verdict0 = POOL_NEW(t->pool, int32_t *, s->parts);
    s->touched = POOL_NEW(t->pool, uint8_t *, s->parts);
    t->in_cluster = POOL_NEW(t->pool, uint8_t, t->events);
    t->writes_grad = POOL_NEW(t->pool, uint8_t, t->events);
    t->weight_read = POOL_NEW(t->pool, int32_t, t->events);
    t->weight_forward = POOL_NEW(t->pool, uint8_t, t->events);
    for (int32_t i = 0; i < s->parts; i++) {
        struct part *p = &s->part[i];
        struct at_trace sub = run_part(s, p);
        at_classes(&sub);
        keep_events(s, &sub, p);
        copy_steps(t, &sub, &room);
        keep_part(s, i, &sub);
        blank(s, p);
    }
    for (int32_t e = 0; e < t->events; e++) t->event[e] = s->after[e];
    join_verdicts(s);
    at_values_again(t);
}

int at_segments(struct at_trace *t, void (*rules)(struct at_trace *)) {
    struct segments s = {.t = t, .rules = rules};
    find_parts(&s);
    if (s.parts < 2 || (int64_t)s.parts * ((int64_t)t->events + t->ranges) > COST_MOST) return 0;
    s.before = POOL_NEW(t->pool, struct at_event, t->events);
    s.after = POOL_NEW(t->pool, struct at_event, t->events);
    s.range = POOL_NEW(t->pool, struct at_range, t->ranges);
    for (int32_t e = 0; e < t->events; e++) s.before[e] = t->event[e];
    for (int32_t r = 0; r < t->ranges; r++) {
        const struct at_range *x = &t->range[r];
        s.range[r] = (struct at_range){.lo = x->lo, .hi = x->hi, .block = x->block, .constant = -1, .weight_like = -1};
        s.range[r].workspace = x->workspace;
    }
    try_parts(&s);
    join_untrained(&s);
    if (s.parts < 2) {
        at_values_again(t); /* accesses know their values */
        return 0;
    }
    run_parts(&s);
    return 1;
}
