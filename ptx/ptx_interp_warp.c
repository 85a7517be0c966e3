/* Where threads meet: exchanges between the lanes of a warp, and barriers of the block.
 *
 * A thread runs alone until it reaches one of these, and waits there. A warp operation with a member mask takes place
 * when all lanes of the mask that have not exited wait at the same kind of operation with the same mask; they need not
 * be at the same instruction (both arms of a branch may have it). activemask, which has no mask, takes place when no
 * lane of the warp can go on otherwise: among those at that instruction, which is as converged as a warp can be. */
#include "ptx/ptx_machine.h"
#include <string.h>

static const struct ptx_instr *instr_of(struct ptx_thread *t) {
    return &ptx_top(t)->f->instrs[ptx_top(t)->pc];
}

static void go_on(struct ptx_thread *t) {
    ptx_top(t)->pc++;
    t->state = PTX_READY;
}

/* ---- arriving ---- */
static bool has_mask(const struct ptx_instr *i) {
    return i->op != PTX_OP_ACTIVEMASK;
}

/* The member mask is the last source; forms without .sync (of old PTX) mean the whole warp. */
static uint32_t member_mask(struct ptx_thread *t, const struct ptx_instr *i) {
    static const uint8_t with_mask[PTX_OP_COUNT] = {
        [PTX_OP_SHFL] = 4,  [PTX_OP_VOTE] = 2, [PTX_OP_MATCH] = 2,  [PTX_OP_REDUX] = 2,
        [PTX_OP_ELECT] = 1, [PTX_OP_BAR] = 1,  [PTX_OP_BARRIER] = 1};
    if (!has_mask(i) || !with_mask[i->op] || i->srcs < with_mask[i->op]) return UINT32_MAX;
    return (uint32_t)ptx_get(t, &i->src[i->srcs - 1], PTX_B32);
}

enum ptx_step ptx_x_warp(struct ptx_thread *t, const struct ptx_instr *i) {
    t->mask = member_mask(t, i);
    if (!(t->mask >> t->linear % PTX_WARP_LANES & 1))
        return ptx_fail(t, i, PTX_FAULT_TRAP, "%s by a lane that is not in its mask 0x%x", ptx_ops[i->op].text,
                        t->mask);
    t->state = PTX_AT_WARP;
    return PTX_STEP_WAIT;
}

/* ---- what a group does: lane[k] waits at the operation, or is NULL ---- */
struct group {
    struct ptx_thread *lane[PTX_WARP_LANES];
    uint32_t mask; /* of those */
};

static uint64_t source(struct group *g, unsigned k, int n, enum ptx_type type) {
    return ptx_get(g->lane[k], &instr_of(g->lane[k])->src[n], type);
}

static void put(struct group *g, unsigned k, int n, enum ptx_type type, uint64_t v) {
    const struct ptx_instr *i = instr_of(g->lane[k]);
    if (n < i->dsts) ptx_put(g->lane[k], &i->dst[n], type, v);
}

/* The lane to read from, as the manual computes it. *valid: it is within the segment. */
static unsigned shuffle_source(const struct ptx_instr *i, unsigned lane, uint32_t b, uint32_t c, bool *valid) {
    int bval = (int)(b & 31), cval = (int)(c & 31), segment = (int)(c >> 8 & 31), at = (int)lane, j;
    int highest = (at & segment) | (cval & ~segment & 31), lowest = at & segment;
    switch (i->sub) {
    case PTX_SUB_UP:
        j = at - bval;
        *valid = j >= highest;
        break;
    case PTX_SUB_DOWN:
        j = at + bval;
        *valid = j <= highest;
        break;
    case PTX_SUB_BFLY:
        j = at ^ bval;
        *valid = j <= highest;
        break;
    default: /* PTX_SUB_IDX */
        j = lowest | (bval & ~segment & 31);
        *valid = j <= highest;
    }
    return *valid ? (unsigned)j : lane;
}

/* A lane that takes no part has no value to give: the reader keeps its own. */
static void shuffle(struct group *g) {
    uint64_t value[PTX_WARP_LANES] = {0};
    unsigned from[PTX_WARP_LANES] = {0};
    bool valid[PTX_WARP_LANES] = {false};
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        value[k] = source(g, k, 0, PTX_B32);
        from[k] = shuffle_source(instr_of(g->lane[k]), k, (uint32_t)source(g, k, 1, PTX_B32),
                                 (uint32_t)source(g, k, 2, PTX_B32), &valid[k]);
    }
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        put(g, k, 0, PTX_B32, value[g->lane[from[k]] ? from[k] : k]);
        put(g, k, 1, PTX_PRED, valid[k]);
    }
}

static void vote(struct group *g) {
    uint32_t votes = 0;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        if (g->lane[k] && source(g, k, 0, PTX_PRED)) votes |= UINT32_C(1) << k;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        switch (instr_of(g->lane[k])->sub) {
        case PTX_SUB_BALLOT:
            put(g, k, 0, PTX_B32, votes);
            break;
        case PTX_SUB_ALL:
            put(g, k, 0, PTX_PRED, votes == g->mask);
            break;
        case PTX_SUB_ANY:
            put(g, k, 0, PTX_PRED, votes != 0);
            break;
        default: /* PTX_SUB_UNI */
            put(g, k, 0, PTX_PRED, votes == g->mask || !votes);
        }
    }
}

static void match(struct group *g) {
    uint64_t value[PTX_WARP_LANES] = {0};
    uint32_t same[PTX_WARP_LANES] = {0};
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        if (g->lane[k]) value[k] = source(g, k, 0, instr_of(g->lane[k])->type);
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        for (unsigned n = 0; n < PTX_WARP_LANES; n++)
            if (g->lane[k] && g->lane[n] && value[k] == value[n]) same[k] |= UINT32_C(1) << n;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        bool all = same[k] == g->mask;
        if (instr_of(g->lane[k])->sub == PTX_SUB_ALL) {
            put(g, k, 0, PTX_B32, all ? g->mask : 0);
            put(g, k, 1, PTX_PRED, all);
        } else {
            put(g, k, 0, PTX_B32, same[k]);
        }
    }
}

static uint32_t reduce(const struct ptx_instr *i, uint32_t a, uint32_t b) {
    bool s = i->type == PTX_S32, less = s ? (int32_t)a < (int32_t)b : a < b;
    switch (i->sub) {
    case PTX_SUB_ADD:
        return a + b;
    case PTX_SUB_MIN:
        return less ? a : b;
    case PTX_SUB_MAX:
        return less ? b : a;
    case PTX_SUB_AND:
        return a & b;
    case PTX_SUB_OR:
        return a | b;
    default: /* PTX_SUB_XOR */
        return a ^ b;
    }
}

static uint64_t reduce_any(const struct ptx_instr *i, uint64_t a, uint64_t b) {
    if (i->type != PTX_F32) return reduce(i, (uint32_t)a, (uint32_t)b);
    return ptx_float_minmax(i->sub == PTX_SUB_MAX, PTX_F32, i->modifiers, a, b);
}

static void redux(struct group *g) {
    uint64_t r = 0;
    bool first = true;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        uint64_t v = source(g, k, 0, PTX_B32);
        r = first ? v : reduce_any(instr_of(g->lane[k]), r, v);
        first = false;
    }
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        if (g->lane[k]) put(g, k, 0, PTX_B32, r);
}

static void elect(struct group *g) {
    unsigned leader = (unsigned)__builtin_ctz(g->mask);
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        if (!g->lane[k]) continue;
        put(g, k, 0, PTX_B32, leader);
        put(g, k, 1, PTX_PRED, k == leader);
    }
}

static void perform(struct group *g, enum ptx_op op) {
    switch (op) {
    case PTX_OP_SHFL:
        shuffle(g);
        break;
    case PTX_OP_VOTE:
        vote(g);
        break;
    case PTX_OP_MATCH:
        match(g);
        break;
    case PTX_OP_REDUX:
        redux(g);
        break;
    case PTX_OP_ELECT:
        elect(g);
        break;
    case PTX_OP_MMA:
        ptx_matrix_product(g->lane, instr_of(g->lane[__builtin_ctz(g->mask)]));
        break;
    case PTX_OP_ACTIVEMASK:
        for (unsigned k = 0; k < PTX_WARP_LANES; k++)
            if (g->lane[k]) put(g, k, 0, PTX_B32, g->mask);
        break;
    default: /* bar.warp.sync */
        break;
    }
    for (unsigned k = 0; k < PTX_WARP_LANES; k++)
        if (g->lane[k]) go_on(g->lane[k]);
}

/* ---- who meets whom ---- */
static struct ptx_thread *lane_of(struct ptx_machine *m, uint32_t warp, unsigned k) {
    uint32_t n = warp * PTX_WARP_LANES + k;
    return n < m->threads ? &m->thread[n] : NULL;
}

static bool same_operation(struct ptx_thread *a, struct ptx_thread *b) {
    const struct ptx_instr *i = instr_of(a), *j = instr_of(b);
    if (!has_mask(i) || !has_mask(j)) /* the same activemask, as often called from the same places */
        return i == j && a->depth == b->depth;
    if (i->op == PTX_OP_MMA) return i == j;
    return i->op == j->op && i->sub == j->sub && a->mask == b->mask;
}

/* The group of `first`. False: some lane of its mask is still on its way (or waits elsewhere). */
static bool gather(struct ptx_machine *m, uint32_t warp, struct ptx_thread *first, struct group *g) {
    memset(g, 0, sizeof *g);
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        struct ptx_thread *t = lane_of(m, warp, k);
        if (!t || t->state == PTX_EXITED || !(first->mask >> k & 1)) continue;
        bool here = t->state == PTX_AT_WARP && same_operation(first, t);
        if (!here && has_mask(instr_of(first))) return false;
        if (!here) continue;
        g->lane[k] = t;
        g->mask |= UINT32_C(1) << k;
    }
    return true;
}

static int meet_by_mask(struct ptx_machine *m, uint32_t warp) {
    int met = 0;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        struct ptx_thread *t = lane_of(m, warp, k);
        struct group g;
        if (!t || t->state != PTX_AT_WARP || !has_mask(instr_of(t)) || !gather(m, warp, t, &g)) continue;
        perform(&g, instr_of(t)->op);
        met = 1;
    }
    return met;
}

/* Of several places with an activemask, the one that is furthest behind (innermost call, then first in the text): its
 * lanes may catch up with the others. */
static int meet_as_they_are(struct ptx_machine *m, uint32_t warp) {
    struct ptx_thread *behind = NULL;
    for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
        struct ptx_thread *t = lane_of(m, warp, k);
        if (!t || t->state != PTX_AT_WARP || has_mask(instr_of(t))) continue;
        if (!behind || t->depth > behind->depth || (t->depth == behind->depth && ptx_top(t)->pc < ptx_top(behind)->pc))
            behind = t;
    }
    struct group g;
    if (!behind || !gather(m, warp, behind, &g)) return 0;
    perform(&g, PTX_OP_ACTIVEMASK);
    return 1;
}

int ptx_warp_meet(struct ptx_machine *m, uint32_t warp) {
    return meet_by_mask(m, warp) || meet_as_they_are(m, warp);
}

/* ---- barriers ---- */
/* Threads that have exited count as arrived; with a number of threads given, those of warps that came. */
static bool complete(struct ptx_machine *m, struct ptx_barrier *b) {
    uint32_t arrived = 0;
    for (uint32_t w = 0; w < m->warps; w++) {
        uint32_t lanes = 0;
        for (unsigned k = 0; k < PTX_WARP_LANES; k++) {
            struct ptx_thread *t = lane_of(m, w, k);
            bool gone = b->wanted ? !t || t->state == PTX_EXITED : t && t->state == PTX_EXITED;
            lanes += gone || (b->lanes[w] >> k & 1);
        }
        if (b->lanes[w] || !b->wanted) arrived += lanes;
    }
    return arrived >= (b->wanted ? b->wanted : m->threads);
}

static void release(struct ptx_machine *m, uint32_t number) {
    struct ptx_barrier *b = &m->barrier[number];
    for (uint32_t k = 0; k < m->threads; k++) {
        struct ptx_thread *t = &m->thread[k];
        if (t->state != PTX_AT_BARRIER || t->barrier != number) continue;
        const struct ptx_instr *i = instr_of(t);
        if (i->sub == PTX_SUB_BAR_RED_POPC)
            ptx_put(t, &i->dst[0], PTX_U32, b->popc);
        else if (i->sub == PTX_SUB_BAR_RED_AND)
            ptx_put(t, &i->dst[0], PTX_PRED, b->popc == b->came);
        else if (i->sub == PTX_SUB_BAR_RED_OR)
            ptx_put(t, &i->dst[0], PTX_PRED, b->popc != 0);
        go_on(t);
    }
    memset(b, 0, sizeof *b);
}

/* bar.sync a{, b}; bar.arrive a, b; bar.red.op d, a{, b}, p */
enum ptx_step ptx_x_bar(struct ptx_thread *t, const struct ptx_instr *i) {
    if (i->sub == PTX_SUB_BAR_WARP) return ptx_x_warp(t, i);
    bool red = i->sub >= PTX_SUB_BAR_RED_POPC && i->sub <= PTX_SUB_BAR_RED_OR;
    uint32_t number = i->srcs ? (uint32_t)ptx_get(t, &i->src[0], PTX_B32) : 0;
    uint32_t wanted = i->srcs - red > 1 ? (uint32_t)ptx_get(t, &i->src[1], PTX_B32) : 0;
    if (number >= PTX_BARRIERS) return ptx_fail(t, i, PTX_FAULT_TRAP, "barrier %u: there are %d", number, PTX_BARRIERS);
    struct ptx_barrier *b = &t->m->barrier[number];
    if (b->busy && b->wanted != wanted)
        return ptx_fail(t, i, PTX_FAULT_TRAP, "barrier %u for %u threads, and for %u", number, b->wanted, wanted);
    b->busy = true;
    b->wanted = wanted;
    b->lanes[t->linear / PTX_WARP_LANES] |= UINT32_C(1) << t->linear % PTX_WARP_LANES;
    if (i->sub == PTX_SUB_BAR_ARRIVE) return PTX_STEP_NEXT;
    if (red) {
        bool p = ptx_get_pred(t, &i->src[i->srcs - 1]);
        b->popc += p;
        b->came++;
    }
    t->barrier = number;
    t->state = PTX_AT_BARRIER;
    return PTX_STEP_WAIT;
}

int ptx_barriers_meet(struct ptx_machine *m) {
    int met = 0;
    for (uint32_t n = 0; n < PTX_BARRIERS; n++) {
        if (m->barrier[n].busy && complete(m, &m->barrier[n])) {
            release(m, n);
            met = 1;
        }
    }
    return met;
}
