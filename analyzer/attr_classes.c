/* C1–C3 for ranges, C0: one class for a range or one per value; C4–C8 are in attr_value_class.c, C9 in
 * attr_neighbours.c. */
#include "analyzer/attr_model.h"

#define BIT(x) (1u << (x))
#define MODEL (BIT(AT_FORWARD) | BIT(AT_BACKWARD) | BIT(AT_RECOMPUTE))

/* What C1 and C2 decide about a range. */
struct range_rule {
    int8_t rule;   /* -1: its values decide */
    int32_t since; /* pools: from this event on */
};

/* Classes of the ranges that one argument of one kernel names: param, optimizer, other. */
struct argument_votes {
    int32_t count[3];
    int8_t order[3], orders; /* as first seen: decides ties */
};

struct classes {
    struct at_trace *t;
    struct range_rule *of;  /* per range */
    struct at_map argument; /* (function, slot): place in votes + 1 */
    struct argument_votes *votes;
    int32_t vote_count, vote_room;
    struct at_map initialisers; /* functions, and kinds of copies, that wrote parameters before they were read */
    int32_t verdicts, verdict_room;
    uint8_t released[AT_CLASSES]; /* of pools: memory of this class serves others between two contents, somewhere */
};

/* ---- C1
 * ------------------------------------------------------------------------------------------------------------------ */
struct use_of_range {
    int by_cluster, outside, read; /* written by clusters; written outside; read in forward, backward or recompute */
    int by_forward, backward;      /* kernels write it in forward only; read in backward */
};

static const struct at_access *first_update(const struct at_trace *t, const struct at_range *r) {
    AT_EACH_TOUCH(t, r, a)
    if (at_writes(a->mode) && t->in_cluster[a->event] && t->event[a->event].kind == AT_KERNEL) return a;
    return NULL;
}

/* In a pool, the range is what it is only since the value that the optimizer first works on. */
static int32_t since_when(const struct at_trace *t, int32_t range, const struct at_access *update) {
    const struct at_range *r = &t->range[range];
    if (!update || !at_is_pool(t, range)) return 0;
    int32_t v = update->value, before = at_previous_value(t, update);
    if (update->mode == AT_W && before >= 0) v = before;
    int32_t since = t->access[t->touch[t->value[v].touch0]].event;
    return r->carried && r->carried_from > since ? r->carried_from : since;
}

static struct use_of_range use_since(const struct at_trace *t, const struct at_range *r, int32_t since) {
    struct use_of_range u = {.by_forward = 1};
    int32_t begin = since > t->first_gemm ? since : t->first_gemm;
    AT_EACH_TOUCH(t, r, a) {
        const struct at_event *e = &t->event[a->event];
        if (a->event < since) continue;
        u.by_cluster |= at_writes(a->mode) && t->in_cluster[a->event] && e->kind == AT_KERNEL;
        u.outside |= (a->mode == AT_W || a->mode == AT_RW) && !t->in_cluster[a->event] && a->event > begin &&
                     (at_is_work(e) || e->kind == AT_MEMSET);
        u.read |= at_reads(a->mode) && at_is_work(e) && BIT(e->phase) & MODEL;
        if (e->kind != AT_KERNEL || a->event < begin) continue;
        u.by_forward &= !at_writes(a->mode) || BIT(e->phase) & (BIT(AT_FORWARD) | BIT(AT_EVALUATION));
        u.backward |= a->mode == AT_R && e->phase == AT_BACKWARD;
    }
    return u;
}

/* Written outside clusters only before the first cluster's use: state that is created lazily, then cleared or copied.
 */
static int only_lazily_made(const struct at_trace *t, const struct at_range *r) {
    int used = 0;
    AT_EACH_TOUCH(t, r, a) {
        const struct at_event *e = &t->event[a->event];
        used |= t->in_cluster[a->event];
        if (used && !t->in_cluster[a->event] && (a->mode == AT_W || a->mode == AT_RW) &&
            (at_is_work(e) || e->kind == AT_MEMSET))
            return 0;
    }
    return 1;
}

static void decide(struct classes *c, int32_t range, enum at_rule rule, int32_t since) {
    c->of[range].rule = (int8_t)rule;
    c->of[range].since = since;
}

/* Content that copies bring from the host, and take back when the optimizer has changed it: more than once. */
static int is_offloaded(const struct at_trace *t, const struct at_range *r) {
    int here = 0, times = 0; /* 1 brought, 2 changed */
    AT_EACH_TOUCH(t, r, a) {
        int kind = t->event[a->event].kind;
        if (kind == AT_H2D)
            here = 1;
        else if (kind == AT_KERNEL && t->in_cluster[a->event] && at_modifies(a->mode))
            here = here ? 2 : 0;
        else if (kind == AT_D2H && here == 2)
            here = 0, times++;
    }
    return times > 1;
}

static enum at_rule rule_of_updated(const struct at_trace *t, const struct at_range *r, int read) {
    if (read) return AT_RULE_PARAM;
    if (r->carried) return AT_RULE_STATE;
    return is_offloaded(t, r) ? AT_RULE_OFFLOADED : AT_RULE_SCRATCH;
}

static void persistent_range(struct classes *c, int32_t i) {
    const struct at_trace *t = c->t;
    const struct at_range *r = &t->range[i];
    const struct at_access *update = first_update(t, r);
    int32_t since = since_when(t, i, update);
    struct use_of_range u = use_since(t, r, since);
    int gradient = update && since ? t->value[update->value].grad : r->holds_grad;
    if (u.by_cluster && (!u.outside || only_lazily_made(t, r)) && r->alive && !gradient)
        decide(c, i, rule_of_updated(t, r, u.read), since);
    else if (r->frozen)
        decide(c, i, AT_RULE_FROZEN, 0);
    else if (r->carried && !r->maybe_carried && !u.by_cluster && !(u.by_forward && u.backward))
        /* (What forward makes for backward is carried only for a kernel that reads what it has just written.) */
        decide(c, i, AT_RULE_STATISTICS, at_is_pool(t, i) ? r->carried_from : 0);
}

/* Does one argument of the first update name both ranges? */
static int updated_together(const struct at_trace *t, int32_t x, int32_t y) {
    const struct at_access *a = first_update(t, &t->range[x]), *b = first_update(t, &t->range[y]);
    return a && b && a->buffer == b->buffer;
}

/* The rest of a parameter that forward does not read (a table's further rows) is of the parameter. */
static void rest_of_params(struct classes *c) {
    const struct at_trace *t = c->t;
    for (int step = 1; step >= -1; step -= 2)
        for (int32_t k = 1; k < t->ranges; k++) {
            int32_t i = step > 0 ? k : t->ranges - 1 - k, near = i - step;
            if (t->range[i].block != t->range[near].block || at_is_pool(t, i)) continue;
            if (c->of[i].rule == AT_RULE_STATE && c->of[near].rule == AT_RULE_PARAM && updated_together(t, i, near))
                decide(c, i, AT_RULE_PARAM, c->of[near].since);
        }
}

/* ---- what the parameters found tell about others
 * -------------------------------------------------------------------------- */
static int class_index(int cls) {
    return cls == AT_PARAM ? 0 : cls == AT_OPT_STATE ? 1 : 2;
}

static void vote(struct classes *c, const struct at_access *a, int cls) {
    struct at_trace *t = c->t;
    int64_t *at = at_map_put(&c->argument, t->pool, at_pair(t->event[a->event].name, at_slot_of(t, a)), NULL);
    if (!*at) {
        POOL_ROOM(t->pool, c->votes, c->vote_count, c->vote_room);
        c->votes[c->vote_count++] = (struct argument_votes){0};
        *at = c->vote_count;
    }
    struct argument_votes *v = &c->votes[*at - 1];
    int k = class_index(cls);
    if (!v->count[k]++) v->order[v->orders++] = (int8_t)k;
}

static int votes_param(const struct argument_votes *v) {
    int best = v->order[0];
    for (int i = 1; i < v->orders; i++)
        if (v->count[v->order[i]] > v->count[best]) best = v->order[i];
    return best == 0;
}

static uint64_t initialiser(const struct at_event *e) {
    return e->kind == AT_KERNEL ? (uint32_t)e->name : (uint64_t)1 << 32 | (uint64_t)e->kind;
}

static void learn_from(struct classes *c, int32_t i) {
    struct at_trace *t = c->t;
    int cls = at_class_of_rule(c->of[i].rule), read = 0;
    AT_EACH_TOUCH(t, &t->range[i], a) {
        const struct at_event *e = &t->event[a->event];
        if (e->kind == AT_KERNEL && !t->in_cluster[a->event]) vote(c, a, cls);
        read |= at_reads(a->mode);
        if (cls == AT_PARAM && at_writes(a->mode) && !read) at_map_put(&c->initialisers, t->pool, initialiser(e), NULL);
    }
}

/* ---- C2
 * --------------------------------------------------------------------------------------------------------------------
 */
struct use_of_constant {
    int in_phase, from_host, by_loss, as_param, made_as_param;
};

static struct use_of_constant use_of(const struct classes *c, const struct at_range *r) {
    const struct at_trace *t = c->t;
    struct use_of_constant u = {0};
    AT_EACH_TOUCH(t, r, a) {
        const struct at_event *e = &t->event[a->event];
        u.in_phase |= e->phase != AT_OTHER && e->phase != AT_OPTIMIZER;
        u.by_loss |=
            t->turn[a->event] || at_is_grad_op(t, a->event) || (e->kind == AT_GEMM && t->writes_grad[a->event]);
        if (e->kind == AT_KERNEL) {
            const int64_t *at = at_map_get(&c->argument, at_pair(e->name, at_slot_of(t, a)));
            u.as_param |= at && votes_param(&c->votes[*at - 1]);
        }
        if (a->mode != AT_W && a->mode != AT_RW) continue;
        u.from_host |= e->kind == AT_H2D;
        u.made_as_param |= at_map_has(&c->initialisers, initialiser(e));
    }
    return u;
}

static void constant_range(struct classes *c, int32_t i) {
    struct at_trace *t = c->t;
    const struct at_range *r = &t->range[i];
    if (!r->touches || !r->alive || !at_constant(t, i) || (t->step_ends && !at_lasting(t, i))) return;
    struct use_of_constant u = use_of(c, r);
    if (!u.in_phase) return;
    decide(c, i,
           u.from_host && u.by_loss       ? AT_RULE_HOST_CONSTANT
           : u.as_param                   ? AT_RULE_LIKE_PARAM
           : u.made_as_param              ? AT_RULE_INIT_PARAM
           : u.from_host && !t->step_ends ? AT_RULE_LOADED_PARAM
                                          : AT_RULE_CONSTANT,
           0);
}

/* ---- C0: verdicts
 * ------------------------------------------------------------------------------------------------------------ */
static void say(struct classes *c, struct at_verdict v) {
    struct at_trace *t = c->t;
    POOL_ROOM(t->pool, t->verdict, c->verdicts, c->verdict_room);
    t->verdict[c->verdicts++] = v;
}

static void say_rule(struct classes *c, enum at_rule rule, int32_t from) {
    say(c, (struct at_verdict){from, AT_END, (int8_t)at_class_of_rule(rule), (int8_t)rule});
}

static int32_t first_event(const struct at_trace *t, const struct at_value *v) {
    return t->access[t->touch[v->touch0]].event;
}

/* The event behind the one at which the value is no longer needed: its last access; a gradient's, the end of the update
 * that reads it, as gradients are released together. */
static int32_t end_of_life(const struct at_trace *t, const struct at_value *v, int cls) {
    int32_t last = t->access[t->touch[v->touch0 + v->touches - 1]].event, lo = 0, hi = t->step_ends;
    if (cls != AT_GRAD) return last + 1;
    while (lo < hi) { /* the first step end at or after it */
        int32_t mid = lo + (hi - lo) / 2;
        if (t->step_end_last[mid] < last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->step_ends ? t->step_end_last[lo] + 1 : last + 1;
}

static int is_read(const struct at_trace *t, const struct at_value *v) {
    AT_EACH_TOUCH(t, v, a) if (at_reads(a->mode)) return 1;
    return 0;
}

/* Memory of a pool that is kept between uses, as far as can be seen: the slots that the host fills with batches, and
 * what holds gradients and never anything else. */
static int is_kept(struct at_trace *t, const struct at_range *r) {
    int8_t cls = at_value_class(t, r->value0).cls;
    if (cls == AT_INPUT) return 1;
    for (int32_t v = r->value0; v < r->value0 + r->values; v++)
        if (at_value_class(t, v).cls != AT_GRAD && is_read(t, &t->value[v])) return 0;
    return 1;
}

static int is_slot_class(int cls) {
    return cls == AT_GRAD || cls == AT_INPUT;
}

/* Whether a program releases its gradients (its batches) with each step shows where something else is kept in their
 * memory meanwhile; if nowhere, it keeps them. */
static void note_released(struct classes *c, const struct at_range *r) {
    struct at_trace *t = c->t;
    int last = AT_CLASSES, between = 0; /* the last gradient or batch, and whether another value was read since */
    for (int32_t v = r->value0; v < r->value0 + r->values; v++) {
        int cls = at_value_class(t, v).cls;
        if (cls == AT_GRAD && !t->value[v].grad) continue; /* by its likeness alone */
        if (is_slot_class(cls)) {
            if (cls == last && between) c->released[cls] = 1;
            last = cls;
            between = 0;
        } else {
            between |= is_read(t, &t->value[v]);
        }
    }
}

/* The memory is the same tensor's until the next value: its next content. */
static int goes_on(struct classes *c, int32_t value, int cls) {
    const struct at_range *r = &c->t->range[c->t->value[value].range];
    if (!is_slot_class(cls) || c->released[cls] || value + 1 == r->value0 + r->values) return 0;
    return at_value_class(c->t, value + 1).cls == cls;
}

/* In a pool, between the last use of one value and the birth of the next the memory belongs to nobody. */
static void say_value(struct classes *c, int32_t value, int32_t until, int32_t next, int kept) {
    struct at_verdict x = at_value_class(c->t, value);
    int first = value == c->t->range[c->t->value[value].range].value0;
    kept &= is_slot_class(x.cls);
    x.from = first && kept ? 0 : first_event(c->t, &c->t->value[value]);
    x.until = kept || goes_on(c, value, x.cls) ? next : end_of_life(c->t, &c->t->value[value], x.cls);
    if (x.until >= c->t->events || x.until > next) x.until = next;
    if (x.until > until) x.until = until;
    if (x.from < x.until) say(c, x);
    if (x.until < next && x.until < until)
        say(c, (struct at_verdict){x.until, next < until ? next : until, (int8_t)at_class_of_rule(AT_RULE_POOL_FREE),
                                   AT_RULE_POOL_FREE});
}

static void say_per_value(struct classes *c, const struct at_range *r, const struct range_rule *rule) {
    struct at_trace *t = c->t;
    int32_t end = rule->rule >= 0 ? rule->since : AT_END, first = first_event(t, &t->value[r->value0]);
    int kept = is_kept(t, r);
    if (first > 0 && end > 0 && !kept)
        say(c, (struct at_verdict){0, first < end ? first : end, (int8_t)at_class_of_rule(AT_RULE_POOL_FREE),
                                   AT_RULE_POOL_FREE});
    for (int32_t v = r->value0; v < r->value0 + r->values && first_event(t, &t->value[v]) < end; v++)
        say_value(c, v, end, v + 1 < r->value0 + r->values ? first_event(t, &t->value[v + 1]) : AT_END, kept);
    if (rule->rule >= 0) say_rule(c, rule->rule, end);
}

/* The values that decide for their range: those after the last update have not been read to their end (a program that
 * was killed in mid-step) and count only where no other was ever read. */
static int32_t deciding_values(const struct at_trace *t, const struct at_range *r) {
    int32_t n = r->values, end = t->step_ends ? t->step_end_last[t->step_ends - 1] : AT_END, read = 0;
    while (n > 1 && t->access[t->touch[t->value[r->value0 + n - 1].touch0]].event > end) n--;
    for (int32_t v = r->value0; v < r->value0 + n && !read; v++) read = is_read(t, &t->value[v]);
    return read ? n : r->values;
}

static int made_in(const struct at_trace *t, const struct at_value *v, unsigned phases) {
    return v->birth >= 0 && at_is_work(&t->event[v->birth]) && BIT(t->event[v->birth].phase) & phases;
}

/* Made in evaluation: says little where training makes something there too, or if nobody reads it (the gradient of a
 * loss whose value alone was wanted). */
static int is_idle(const struct at_trace *t, const struct at_value *v, int trained) {
    return made_in(t, v, BIT(AT_EVALUATION)) && (trained || !is_read(t, v));
}

/* One class for the range: the first of a fixed order that any of its values has. */
static void say_once(struct classes *c, const struct at_range *r) {
    static const int8_t order[AT_CLASSES] = {[AT_INPUT] = 1,     [AT_ACTIVATION] = 2,  [AT_ACTIVATION_GRAD] = 3,
                                             [AT_TEMPORARY] = 4, [AT_OTHER_CLASS] = 5, [AT_UNKNOWN] = 6};
    int32_t first = r->value0, end = r->value0 + deciding_values(c->t, r);
    int trained = 0;
    for (int32_t v = first; v < end && !trained; v++) trained = made_in(c->t, &c->t->value[v], MODEL);
    while (first < end - 1 && is_idle(c->t, &c->t->value[first], trained)) first++;
    struct at_verdict best = at_value_class(c->t, first);
    for (int32_t v = first + 1; v < end; v++) {
        if (is_idle(c->t, &c->t->value[v], trained)) continue;
        struct at_verdict x = at_value_class(c->t, v);
        if (order[x.cls] < order[best.cls]) best = x;
    }
    say(c, best);
}

/* What is given to single calls may be used for other things between them (an allocator's memory): then those decide.
 */
static int is_workspace(const struct at_trace *t, const struct at_range *r) {
    if (r->workspace & AT_GIVEN_FOR_GOOD) return 1;
    if (!r->workspace) return 0;
    AT_EACH_TOUCH(t, r, a) if (at_is_work(&t->event[a->event])) return 0;
    return 1;
}

/* O; -1: decided as ever. */
static int rule_of_cut(const struct at_trace *t, int32_t i) {
    static const int8_t rule[] = {[AT_CUT_NONE] = -1,
                                  [AT_CUT_WEIGHT] = AT_RULE_CUT_WEIGHT,
                                  [AT_CUT_PARAM] = AT_RULE_CUT_PARAM,
                                  [AT_CUT_MASTER] = AT_RULE_CUT_MASTER,
                                  [AT_CUT_INPUT] = AT_RULE_CUT_INPUT,
                                  [AT_CUT_GRAD] = AT_RULE_CUT_GRAD,
                                  [AT_CUT_CLEARED] = AT_RULE_CUT_CLEARED};
    return t->cut ? rule[t->cut_is[i]] : -1;
}

static void say_range(struct classes *c, int32_t i) {
    const struct at_trace *t = c->t;
    int cut = rule_of_cut(t, i);
    const struct at_range *r = &t->range[i];
    const struct at_block *b = &t->block[r->block];
    if (b->home == AT_HOST)
        say_rule(c, AT_RULE_HOST, 0);
    else if (b->home == AT_OPAQUE)
        say_rule(c, AT_RULE_OPAQUE, 0);
    else if (cut >= 0)
        say_rule(c, (enum at_rule)cut, 0);
    else if (c->of[i].rule >= 0 && !c->of[i].since)
        say_rule(c, c->of[i].rule, 0);
    else if (b->of_library || is_workspace(t, r))
        say_rule(c, AT_RULE_WORKSPACE, 0);
    else if (!r->touches)
        say_rule(c, AT_RULE_UNTOUCHED, 0);
    else if (b->pool)
        say_per_value(c, r, &c->of[i]);
    else
        say_once(c, r);
}

void at_classes(struct at_trace *t) {
    struct classes c = {.t = t, .of = POOL_NEW(t->pool, struct range_rule, t->ranges)};
    for (int32_t i = 0; i < t->ranges; i++) c.of[i].rule = -1;
    if (t->gemms) {
        at_crossings(t);
        for (int32_t i = 0; i < t->ranges; i++) persistent_range(&c, i);
        if (!t->blind) rest_of_params(&c);
        for (int32_t i = 0; i < t->ranges; i++)
            if (c.of[i].rule >= 0) learn_from(&c, i);
        for (int32_t i = 0; i < t->ranges && t->steps >= 2; i++)
            if (c.of[i].rule < 0) constant_range(&c, i);
    }
    at_value_class_prepare(t);
    for (int32_t i = 0; i < t->ranges; i++)
        if (at_is_pool(t, i) && c.of[i].rule < 0) note_released(&c, &t->range[i]);
    t->verdict0 = POOL_NEW(t->pool, int32_t, (size_t)t->ranges + 1);
    for (int32_t i = 0; i < t->ranges; i++) {
        t->verdict0[i] = c.verdicts;
        say_range(&c, i);
    }
    t->verdict0[t->ranges] = c.verdicts;
    at_neighbours(t);
}
