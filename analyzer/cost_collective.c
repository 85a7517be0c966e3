/* What a collective reads and writes in this device's memory (as the NCCL documentation describes its operations). */
#include "analyzer/cost_model.h"

#include <string.h>

enum part { NONE, ONE, ALL }; /* of a buffer: one rank's part, those of all ranks */

static const struct operation {
    const char *name;
    enum part send, receive;
    int send_at_root, receive_at_root; /* 1: that buffer is used on the root only */
} operations[] = {
    {"all_reduce", ONE, ONE, 0, 0},     {"reduce", ONE, ONE, 0, 1},     {"broadcast", ONE, ONE, 1, 0},
    {"all_gather", ONE, ALL, 0, 0},     {"gather", ONE, ALL, 0, 1},     {"scatter", ALL, ONE, 1, 0},
    {"reduce_scatter", ALL, ONE, 0, 0}, {"all_to_all", ALL, ALL, 0, 0}, {"send", ONE, NONE, 0, 0},
    {"receive", NONE, ONE, 0, 0},
};

static const struct operation *find(const char *name) {
    for (size_t i = 0; name && i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, name)) return &operations[i];
    return NULL;
}

static int64_t bytes_of(const struct cost_collective *c, enum part part, int64_t one) {
    if (part != ALL) return one;
    return one == COST_UNKNOWN || c->ranks <= 0 ? COST_UNKNOWN : cost_amount((__int128)one * c->ranks);
}

/* 1: this rank is the root, 0: it is not, -1: nobody knows. */
static int is_root(const struct cost_collective *c) {
    return c->rank == ACCT_NULL_I64 || c->root == ACCT_NULL_I64 ? -1 : c->rank == c->root;
}

static void use(struct cost *out, const char *slot, uint64_t address, int64_t bytes, enum cost_mode mode) {
    if (!address || bytes == 0) return;
    cost_book(out, mode, bytes);
    cost_operand_add(out, slot, address, bytes, mode);
}

/* In place, one of the buffers is this rank's part of the other: that part is read (all_gather leaves it as it is) or
 * modified (reduce_scatter), the parts of the others are written, or read. */
static void use_parts(struct cost *out, const struct cost_collective *c, int64_t one, int gathers) {
    uint64_t all = gathers ? c->receive : c->send, own = gathers ? c->send : c->receive;
    int64_t below = one * c->rank, above = one * (c->ranks - c->rank - 1);
    enum cost_mode rest = gathers ? COST_W : COST_R;
    use(out, gathers ? "send" : "receive", own, one, gathers ? COST_R : COST_RW);
    use(out, gathers ? "receive" : "send", all, below, rest);
    use(out, gathers ? "receive+" : "send+", own + (uint64_t)one, above, rest);
}

static int lies_within(const struct cost_collective *c, uint64_t part, uint64_t all, int64_t one) {
    return one > 0 && c->rank >= 0 && c->ranks > c->rank && one <= INT64_MAX / c->ranks &&
           part == all + (uint64_t)one * (uint64_t)c->rank;
}

void cost_of_collective(const struct cost_collective *c, struct cost *out) {
    const struct operation *o = find(c->operation);
    uint32_t type = cost_enum_value(COST_OF_dtype, c->type);
    int64_t one = c->count < 0 ? COST_UNKNOWN : cost_bytes(c->count, type);
    *out = (struct cost){.role = COST_COPY, .grade = COST_EXACT, .integer_ops = COST_UNKNOWN};
    if (!o) { /* one that is not known here may do both */
        use(out, "send", c->send, COST_UNKNOWN, COST_R);
        use(out, "receive", c->receive, COST_UNKNOWN, COST_EITHER);
        return;
    }
    int root = is_root(c), sends = !o->send_at_root || root != 0, receives = !o->receive_at_root || root != 0;
    if (o->send == ONE && o->receive == ALL && receives && lies_within(c, c->send, c->receive, one)) {
        use_parts(out, c, one, 1);
    } else if (o->send == ALL && o->receive == ONE && sends && !o->send_at_root &&
               lies_within(c, c->receive, c->send, one)) {
        use_parts(out, c, one, 0);
    } else if (o->send == o->receive && c->send == c->receive && sends && receives) {
        if (o->send_at_root && root == 1) /* the root of a broadcast in place keeps what it has */
            use(out, "send", c->send, bytes_of(c, o->send, one), COST_R);
        else
            use(out, "receive", c->receive, bytes_of(c, o->receive, one), o->send_at_root ? COST_EITHER : COST_RW);
    } else {
        if (o->send != NONE && sends) use(out, "send", c->send, bytes_of(c, o->send, one), COST_R);
        if (o->receive != NONE && receives)
            use(out, "receive", c->receive, bytes_of(c, o->receive, one),
                o->receive_at_root && root < 0 ? COST_EITHER : COST_W);
    }
}
