/* P2: where backward begins, found by following the operand that was written last back from the first gradient write.
 */
#include "analyzer/attr_model.h"

#define FOLLOW_OPS 200
#define FOLLOW_REPEATS 8
#define FOLLOW_EVENTS 4096

/* The op that made what the access reads: through plain copies, to what they copied. */
static int32_t maker_of(const struct at_trace *t, const struct at_access *a) {
    int32_t e = a->writer;
    for (int i = 0; i < FOLLOW_REPEATS && e >= 0 && t->event[e].kind == AT_D2D; i++) {
        int32_t from = -1;
        AT_EACH_ACCESS(t, e, s) {
            if (s->mode != AT_R || t->range[s->range].any_weight || at_is_carried(t, s->range, e)) continue;
            if (s->writer > from && s->writer < e) from = s->writer;
        }
        e = from;
    }
    return e;
}

/* Latest op that wrote an operand of e which is no weight and not carried; -1. */
static int32_t latest_source(const struct at_trace *t, int32_t e) {
    int32_t best = -1;
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode == AT_W || t->range[a->range].any_weight || at_is_carried(t, a->range, e)) continue;
        int32_t maker = maker_of(t, a);
        if (maker > best && at_is_work(&t->event[maker])) best = maker;
    }
    return best;
}

/* Reads what a copy from the host brought: the kernel of the loss does, for its targets. */
static int reads_host(const struct at_trace *t, int32_t e) {
    AT_EACH_ACCESS(t, e, a) {
        int32_t birth = t->value[a->value].birth;
        if (a->mode != AT_R || birth < 0 || t->range[a->range].any_weight || at_is_carried(t, a->range, e)) continue;
        if (t->event[birth].kind == AT_H2D) return 1;
    }
    return 0;
}

/* The kernel reads what the loss made just before the product `gemm`. */
static int reads_loss(const struct at_trace *t, int32_t e, int32_t gemm) {
    AT_EACH_ACCESS(t, e, a) {
        if (a->mode == AT_W || at_is_carried(t, a->range, e)) continue;
        if (a->writer < 0 || a->writer > gemm || t->run[a->writer] != t->run[gemm]) continue;
        if (t->event[a->writer].kind == AT_KERNEL && reads_host(t, a->writer)) return 1;
    }
    return 0;
}

/* A recomputed value: its chain of kernels starts at a forward product of operand values that were multiplied before in
 * this interval, and none of them works on the gradient of the loss with it. */
static int is_repeated(const struct at_trace *t, int32_t e, int32_t lo) {
    int32_t chain[FOLLOW_REPEATS];
    for (int i = 0; i < FOLLOW_REPEATS && e >= 0; i++) {
        if (t->event[e].kind == AT_GEMM) {
            for (int j = 0; j < i; j++)
                if (reads_loss(t, chain[j], e)) return 0;
            return t->weight_read[e] >= 0 && t->weight_forward[e] && t->gemm_before[e] >= lo && t->gemm_before[e] >= 0;
        }
        chain[i] = e;
        e = latest_source(t, e);
    }
    return 0;
}

/* A kernel that works on what the host filled alone (a batch that is scaled, a target that is negated); a fill, which
 * reads nothing, is none. budget: of kernels to look at. */
static int is_host_side(const struct at_trace *t, int32_t e, int *budget) {
    int reads = 0;
    int32_t last = -1;
    if (t->event[e].kind != AT_KERNEL || --*budget < 0) return 0;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_reads(a->mode)) continue;
        reads = 1;
        if (t->range[a->range].any_weight || at_is_carried(t, a->range, e)) return 0;
        if (a->writer == last) continue; /* another range of the same */
        last = a->writer;
        int32_t maker = maker_of(t, a);
        if (maker >= 0 && at_is_work(&t->event[maker]) && !is_host_side(t, maker, budget)) return 0;
    }
    return reads;
}

/* A factor of a product that came from the host, later than all else that the product reads: the gradient of a loss
 * that the host computes. (A batch comes before the products of forward.) If another factor was made after the last
 * product of forward, that is the gradient, and this an activation that had been moved to the host. */
static int is_upload(const struct at_trace *t, int32_t e, int32_t maker) {
    int32_t other = -1;
    if (t->event[e].kind != AT_GEMM || t->event[maker].kind != AT_H2D) return 0;
    AT_EACH_ACCESS(t, e, a) {
        if (!at_is_factor(at_slot_of(t, a)) || t->range[a->range].any_weight) continue;
        int32_t from = maker_of(t, a);
        if (from > other && from < maker && at_is_work(&t->event[from])) other = from;
    }
    for (int32_t i = other; other >= 0 && i < maker && i < other + FOLLOW_EVENTS; i++)
        if (t->weight_read[i] >= 0 && t->weight_forward[i]) return 1;
    return other < 0 || maker - other >= FOLLOW_EVENTS;
}

/* The op that wrote the operand to follow; one that is a recomputation, or the host's side, only if there is no other.
 */
static int32_t step_back(const struct at_trace *t, int32_t e, int32_t lo) {
    int32_t best = -1, repeated = -1, last = -1;
    AT_EACH_ACCESS(t, e, a) {
        const struct at_range *r = &t->range[a->range];
        if (a->mode == AT_W || r->any_weight || (at_is_carried(t, a->range, e) && !r->maybe_carried)) continue;
        if (t->value[a->value].grad || at_grad_like(t, a->value)) continue;
        if (a->writer == last) continue; /* another range of the same */
        last = a->writer;
        int budget = FOLLOW_REPEATS;
        int32_t maker = maker_of(t, a);
        if (maker < 0 || maker <= best || !(at_is_work(&t->event[maker]) || is_upload(t, e, maker))) continue;
        if ((maker >= lo && is_repeated(t, maker, lo)) || is_host_side(t, maker, &budget))
            repeated = maker;
        else
            best = maker;
    }
    return best >= 0 ? best : repeated;
}

/* Blind: no gradient is the plain product of a forward GEMM, so the last kernel that touched it turned it into one. */
static int32_t forced_turn(struct at_trace *t, int32_t grad_op, int32_t gemm) {
    int32_t turn = -1;
    AT_EACH_ACCESS(t, grad_op, a) {
        if (a->mode != AT_R || a->writer != gemm) continue;
        AT_EACH_TOUCH(t, &t->value[a->value], b) {
            if (t->event[b->event].kind != AT_KERNEL || b->event <= gemm || b->event >= grad_op) continue;
            turn = b->event;
            t->value[a->value].forced = 1;
        }
    }
    return turn;
}

/* e works in place on what `maker` wrote. */
static int goes_on(const struct at_trace *t, int32_t e, int32_t maker) {
    if (t->event[e].kind != AT_KERNEL) return 0;
    AT_EACH_ACCESS(t, e, a) if (at_modifies(a->mode) && a->writer == maker) return 1;
    return 0;
}

void at_backward_start(struct at_trace *t, int32_t first_grad_op, int32_t lo, int32_t updated_by, struct at_span *out) {
    int32_t at = first_grad_op, turn = -1, last = -1; /* last: of the ops that work in place on what `at` wrote */
    int by_targets = 0;                               /* the turn is a kernel that reads what came from the host */
    out->first = first_grad_op;
    out->turn = -1;
    for (int i = 0; i < FOLLOW_OPS; i++) {
        int32_t back = step_back(t, at, lo);
        if (back < lo) { /* the chain leaves the interval, or begins at an op that reads nothing */
            int found = back >= 0 && turn >= 0;
            out->first = found ? turn + 1 : at;
            out->turn = found ? turn : -1;
            return;
        }
        if (t->event[back].kind == AT_H2D) {
            out->first = back + 1;
            out->turn = back;
            return;
        }
        int32_t w = t->weight_read[back];
        int updated =
            w >= 0 && (updated_by >= 0 ? at_map_has(&t->cluster_weight, at_pair(updated_by, w)) : t->range[w].weight);
        if (w >= 0 && (t->weight_forward[back] || updated)) {
            if (turn < 0 && t->dark) turn = forced_turn(t, first_grad_op, back);
            out->first = turn >= 0 ? turn + 1 : first_grad_op;
            out->turn = turn;
            return;
        }
        int targets = !by_targets && t->event[back].kind == AT_KERNEL && reads_host(t, back);
        if (last < 0 || !goes_on(t, at, back)) last = back;
        if (turn < 0 || targets) turn = last; /* between two products: the loss, else the last kernel */
        by_targets |= targets;
        if (t->event[back].kind == AT_GEMM) {
            turn = -1;
            by_targets = 0;
        }
        at = back;
    }
}
