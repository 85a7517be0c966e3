/* Integer arithmetic on symbolic values. A register's sum is its value modulo 2^width: additions and multiplications
 * keep that; what looks at the value as a signed or unsigned number first asks whether the sum lies in the type's range
 * (access_as), and has a symbol of that range where it may not. */
#include "ptx/ptx_access_model.h"

static int64_t type_lo(enum ptx_type t) {
    unsigned bits = ptx_type_bits(t);
    if (ptx_type_kind(t) == PTX_KIND_U) return 0;
    return bits >= 64 ? -PTX_INF : -((int64_t)1 << (bits - 1));
}

static int64_t type_hi(enum ptx_type t) {
    unsigned bits = ptx_type_bits(t);
    if (bits >= 64) return PTX_INF;
    return ptx_type_kind(t) == PTX_KIND_U ? ((int64_t)1 << bits) - 1 : ((int64_t)1 << (bits - 1)) - 1;
}

static int32_t fresh(struct analysis *a, const struct ptx_instr *i, int operand, int64_t lo, int64_t hi) {
    return access_symbol(a, 'I', a->frame, (int32_t)(i - a->frames[a->frame]->f->instrs), operand, lo, hi);
}

static bool counts(const struct analysis *a, int32_t sum) {
    const struct ptx_sum *e = ptx_sum(&a->s, sum);
    for (int64_t n = 0; n < e->count; n++)
        if (a->s.symbol[e->term[n].symbol].free && a->s.symbol[e->term[n].symbol].hi == PTX_INF) return true;
    return false;
}

/* Untyped operands (b32) count as signed. */
int32_t access_as(struct analysis *a, int32_t sum, enum ptx_type type, const struct ptx_instr *i, int operand) {
    int64_t lo = type_lo(type), hi = type_hi(type), constant;
    if (ptx_type_bits(type) >= 64) return sum;
    if (ptx_sum_is_constant(&a->s, sum, &constant)) {
        if (constant >= lo && constant <= hi) return sum;
        unsigned bits = ptx_type_bits(type);
        uint64_t u = (uint64_t)constant & (((uint64_t)1 << bits) - 1);
        int64_t wrapped = lo == 0 || u >> (bits - 1) == 0 ? (int64_t)u : (int64_t)(u - ((uint64_t)1 << bits));
        return ptx_sum_constant(&a->s, wrapped);
    }
    if (sum && a->s.work < ACCESS_MAX_WORK && ptx_sum_at_most(&a->s, sum, hi, &a->facts, a->now_facts) &&
        ptx_sum_at_least(&a->s, sum, lo, &a->facts, a->now_facts))
        return sum;
    /* Whether a loop's variable can wrap is known when the loop's end is: the last pass proves or refuses it. */
    if (sum && a->optimistic && counts(a, sum)) return sum;
    return fresh(a, i, 16 + operand, lo, hi);
}

static int64_t floored(int64_t x, int64_t by) {
    if (x == PTX_INF || x == -PTX_INF) return x;
    return x / by - (x % by < 0);
}

/* ⌊m·x / 2^p⌋ as compilers divide by constants: ⌊x / d⌋ where that is exact for the range of x. */
static bool by_magic(struct analysis *a, int32_t *sum, int64_t *by) {
    const struct ptx_sum *e = ptx_sum(&a->s, *sum);
    int64_t m = e->count ? e->term[0].factor : 0;
    if (m < 3 || (*by & (*by - 1)) || m > *by) return false;
    struct ptx_sum x = {.constant = e->constant / m, .count = e->count};
    if (e->constant % m) return false;
    for (int64_t n = 0; n < e->count; n++) {
        if (e->term[n].factor % m) return false;
        x.term[n] = e->term[n];
        x.term[n].factor /= m;
    }
    int64_t d = *by / m + (*by % m != 0);
    __int128 excess = (__int128)d * m - *by;
    int32_t whole = ptx_sum_intern(&a->s, &x);
    int64_t hi = ptx_sum_upper(&a->s, whole, &a->facts, a->now_facts);
    int64_t lo = ptx_sum_lower(&a->s, whole, &a->facts, a->now_facts);
    if (lo < 0 || hi == PTX_INF || excess * hi >= *by) return false;
    *sum = whole;
    *by = d;
    return true;
}

/* ⌊sum / by⌋, by > 0. */
int32_t access_quotient(struct analysis *a, int32_t sum, int64_t by) {
    if (!sum || by <= 0) return 0;
    if (by == 1) return sum;
    const struct ptx_sum *e = ptx_sum(&a->s, sum);
    struct ptx_sum whole = {.constant = floored(e->constant, by)},
                   rest = {.constant = e->constant - whole.constant * by};
    for (int64_t n = 0; n < e->count; n++) { /* ⌊by·x + y⌋ = x + ⌊y / by⌋ */
        if (e->term[n].factor % by) {
            rest.term[rest.count++] = e->term[n];
        } else {
            whole.term[whole.count] = e->term[n];
            whole.term[whole.count++].factor /= by;
        }
    }
    if (whole.count || whole.constant) {
        int32_t part = rest.count ? access_quotient(a, ptx_sum_intern(&a->s, &rest), by) : ptx_sum_constant(&a->s, 0);
        return ptx_sum_add(&a->s, ptx_sum_intern(&a->s, &whole), part, 1);
    }
    if (e->count == 1 && !e->constant && e->term[0].factor == 1) { /* ⌊⌊x / m⌋ / n⌋ = ⌊x / (m·n)⌋ */
        const struct ptx_symbol_info *info = &a->s.symbol[e->term[0].symbol];
        int64_t both;
        if (info->divided && !__builtin_mul_overflow(info->by, by, &both)) {
            sum = info->divided;
            by = both;
        }
    }
    by_magic(a, &sum, &by);
    int64_t lo = floored(ptx_sum_lower(&a->s, sum, NULL, -1), by),
            hi = floored(ptx_sum_upper(&a->s, sum, NULL, -1), by);
    if (lo == hi && lo != PTX_INF) return ptx_sum_constant(&a->s, lo);
    int32_t key = access_memo(a, 'D', sum, (int32_t)(by & 0x7FFFFFFF), (int32_t)(by >> 31));
    int32_t q = access_symbol(a, 'Q', key, 0, 0, lo, hi);
    if (!q) return 0;
    struct ptx_symbol_info *info = &a->s.symbol[ptx_sum(&a->s, q)->term[0].symbol];
    info->divided = sum;
    info->by = by;
    return q;
}

static int32_t remainder_of(struct analysis *a, int32_t sum, int64_t by) {
    return ptx_sum_add(&a->s, sum, access_quotient(a, sum, by), -by);
}

static bool not_negative(struct analysis *a, int32_t sum) {
    return sum && ptx_sum_at_least(&a->s, sum, 0, &a->facts, a->now_facts);
}

static int32_t product(struct analysis *a, int32_t x, int32_t y, const struct ptx_instr *i) {
    int64_t c;
    if (ptx_sum_is_constant(&a->s, y, &c)) return ptx_sum_scale(&a->s, x, c);
    if (ptx_sum_is_constant(&a->s, x, &c)) return ptx_sum_scale(&a->s, y, c);
    if (!x || !y) return 0;
    int64_t b[4] = {ptx_sum_lower(&a->s, x, NULL, -1), ptx_sum_upper(&a->s, x, NULL, -1),
                    ptx_sum_lower(&a->s, y, NULL, -1), ptx_sum_upper(&a->s, y, NULL, -1)};
    int64_t lo = PTX_INF, hi = -PTX_INF, p;
    for (int n = 0; n < 4; n++) {
        int64_t u = b[n & 1], v = b[2 + (n >> 1)];
        if (u == PTX_INF || u == -PTX_INF || v == PTX_INF || v == -PTX_INF || __builtin_mul_overflow(u, v, &p))
            return 0;
        lo = p < lo ? p : lo;
        hi = p > hi ? p : hi;
    }
    return fresh(a, i, 1, lo, hi);
}

/* Operand n as a number of the instruction's type. */
static int32_t typed(struct analysis *a, const struct ptx_instr *i, int n) {
    enum ptx_type type = ptx_operand_type(i, false, (unsigned)n);
    return access_as(a, access_as_number(a, access_operand(a, &i->src[n], type)), type, i, n);
}

static int32_t raw(struct analysis *a, const struct ptx_instr *i, int n) {
    return access_as_number(a, access_operand(a, &i->src[n], ptx_operand_type(i, false, (unsigned)n)));
}

static int32_t multiply(struct analysis *a, const struct ptx_instr *i) {
    if (i->modifiers & PTX_M_WIDE || i->op == PTX_OP_MUL24 || i->op == PTX_OP_MAD24)
        return product(a, typed(a, i, 0), typed(a, i, 1), i);
    if (i->modifiers & PTX_M_HI) {
        unsigned bits = ptx_type_bits((enum ptx_type)i->type);
        return bits > 32 ? 0 : access_quotient(a, product(a, typed(a, i, 0), typed(a, i, 1), i), (int64_t)1 << bits);
    }
    return product(a, raw(a, i, 0), raw(a, i, 1), i);
}

static int32_t divide(struct analysis *a, const struct ptx_instr *i) {
    int64_t by;
    int32_t x = typed(a, i, 0), y = typed(a, i, 1);
    bool zero = ptx_sum_is_constant(&a->s, y, &by) && !by;
    if (zero) return i->op == PTX_OP_REM ? x : 0; /* as devices do */
    if (!ptx_sum_is_constant(&a->s, y, &by) || by <= 0 || !not_negative(a, x)) {
        if (i->op != PTX_OP_REM || !x || !y || !not_negative(a, x) || !not_negative(a, y)) return 0;
        int64_t hi = ptx_sum_upper(&a->s, y, NULL, -1);
        return fresh(a, i, 1, 0, hi == PTX_INF ? hi : hi > 0 ? hi - 1 : 0);
    }
    return i->op == PTX_OP_REM ? remainder_of(a, x, by) : access_quotient(a, x, by);
}

static int32_t shift(struct analysis *a, const struct ptx_instr *i) {
    int64_t by;
    unsigned bits = ptx_type_bits((enum ptx_type)i->type);
    if (!ptx_sum_is_constant(&a->s, raw(a, i, 1), &by) || by < 0) return 0;
    if (i->op == PTX_OP_SHL)
        return by >= bits ? ptx_sum_constant(&a->s, 0)
               : by > 62  ? 0
                          : ptx_sum_scale(&a->s, raw(a, i, 0), (int64_t)1 << by);
    int32_t x = typed(a, i, 0);
    enum ptx_type_kind kind = ptx_type_kind((enum ptx_type)i->type);
    if (kind != PTX_KIND_S && !not_negative(a, x)) {
        if (bits > 32 || kind == PTX_KIND_S) return 0;
        return fresh(a, i, 1, 0, by >= bits ? 0 : (((int64_t)1 << bits) - 1) >> by);
    }
    if (by >= bits) by = bits - 1;
    return by > 62 ? 0 : access_quotient(a, x, (int64_t)1 << by);
}

static int32_t mask(struct analysis *a, const struct ptx_instr *i) {
    int64_t c;
    int32_t x = raw(a, i, 0), y = raw(a, i, 1);
    unsigned bits = ptx_type_bits((enum ptx_type)i->type);
    if (!ptx_sum_is_constant(&a->s, y, &c)) {
        if (!not_negative(a, x) && !not_negative(a, y)) return 0;
        int64_t hi = not_negative(a, x) ? ptx_sum_upper(&a->s, x, NULL, -1) : PTX_INF;
        int64_t other = not_negative(a, y) ? ptx_sum_upper(&a->s, y, NULL, -1) : PTX_INF;
        return fresh(a, i, 1, 0, hi < other ? hi : other);
    }
    if (c >= 0 && (c & (c + 1)) == 0 && c < ((int64_t)1 << 62)) { /* low bits: modulo a power of two, of any sum */
        if (bits < 64 && c >= ((int64_t)1 << bits) - 1) return x;
        return x ? remainder_of(a, x, c + 1) : fresh(a, i, 1, 0, c);
    }
    if (c > 0 && c < ((int64_t)1 << 62) && x) { /* bits k … m - 1: modulo 2^m, less what is modulo 2^k */
        int64_t lowest = c & -c;
        if (((c + lowest) & c) == 0)
            return ptx_sum_add(&a->s, remainder_of(a, x, c + lowest), remainder_of(a, x, lowest), -1);
    }
    int64_t low = -c;
    if (low > 0 && (low & (low - 1)) == 0 && x) { /* all but low bits */
        int32_t q = access_quotient(a, x, low);
        return ptx_sum_scale(&a->s, q, low);
    }
    return c >= 0 ? fresh(a, i, 1, 0, c) : 0;
}

/* or, xor and add agree where no bit is set in both: x·2^k and y < 2^k. */
static int32_t either(struct analysis *a, const struct ptx_instr *i) {
    int32_t x = raw(a, i, 0), y = raw(a, i, 1);
    for (int turn = 0; turn < 2 && x && y; turn++) {
        int64_t hi = ptx_sum_upper(&a->s, y, &a->facts, a->now_facts), unit = 1;
        if (not_negative(a, y) && hi < (int64_t)1 << 40) {
            while (unit <= hi) unit *= 2;
            const struct ptx_sum *e = ptx_sum(&a->s, x);
            bool clear = e->constant % unit == 0;
            for (int64_t n = 0; n < e->count; n++) clear &= e->term[n].factor % unit == 0;
            if (clear) return ptx_sum_add(&a->s, x, y, 1);
        }
        int32_t swap = x;
        x = y;
        y = swap;
    }
    return 0;
}

static int32_t extreme(struct analysis *a, const struct ptx_instr *i) {
    int32_t x = typed(a, i, 0), y = typed(a, i, 1);
    if (!x || !y || i->srcs != 2) return 0;
    int64_t xl = ptx_sum_lower(&a->s, x, NULL, -1), xh = ptx_sum_upper(&a->s, x, NULL, -1);
    int64_t yl = ptx_sum_lower(&a->s, y, NULL, -1), yh = ptx_sum_upper(&a->s, y, NULL, -1);
    bool least = i->op == PTX_OP_MIN;
    if (xh <= yl && xh != PTX_INF) return least ? x : y;
    if (yh <= xl && yh != PTX_INF) return least ? y : x;
    int32_t m = least ? fresh(a, i, 1, xl < yl ? xl : yl, xh < yh ? xh : yh)
                      : fresh(a, i, 1, xl > yl ? xl : yl, xh > yh ? xh : yh);
    if (!m) return 0;
    struct ptx_symbol_info *info = &a->s.symbol[ptx_sum(&a->s, m)->term[0].symbol];
    int32_t *limit = least ? info->at_most : info->at_least;
    if (limit[0] != x || limit[1] != y) a->changed = true;
    limit[0] = x;
    limit[1] = y;
    return m;
}

/* Pointers stay pointers through additions; numbers through all of this file. */
static int32_t add(struct analysis *a, const struct ptx_instr *i, int32_t x, int32_t y, bool minus) {
    struct value u = access_get(a, x), v = access_get(a, y);
    (void)i;
    bool pu = u.base.kind != BASE_NONE, pv = v.base.kind != BASE_NONE;
    if (!pu && !pv) return access_number(a, ptx_sum_add(&a->s, u.sum, v.sum, minus ? -1 : 1));
    bool sure_u = pu && u.base.kind != BASE_UNKNOWN && !(u.base.kind == BASE_PARAM && !u.base.b);
    bool sure_v = pv && v.base.kind != BASE_UNKNOWN && !(v.base.kind == BASE_PARAM && !v.base.b);
    if (u.base.kind == BASE_SET || v.base.kind == BASE_SET) {
        struct value set = u.base.kind == BASE_SET ? u : v;
        if (u.base.kind == BASE_SET && (pv && minus)) return access_number(a, 0);
        if ((pu && pv) || (minus && v.base.kind == BASE_SET)) return access_unknown(a);
        int32_t sum = u.base.kind == BASE_SET ? v.sum : u.sum, joined = 0;
        const int32_t count = access_set(a, set.base.a)->count;
        for (int32_t n = 0; n < count; n++) {
            struct value item = access_set(a, set.base.a)->item[n];
            joined = access_join(a, joined,
                                 access_value(a, item.base, ptx_sum_add(&a->s, item.sum, sum, minus ? -1 : 1)), 0);
        }
        return joined;
    }
    if (minus && pv) { /* a difference of pointers; or a parameter that is a number */
        if (sure_u && sure_v)
            return access_number(
                a, !__builtin_memcmp(&u.base, &v.base, sizeof u.base) ? ptx_sum_add(&a->s, u.sum, v.sum, -1) : 0);
        int32_t n = access_as_number(a, y);
        if (u.base.kind == BASE_UNKNOWN || v.base.kind == BASE_UNKNOWN)
            return sure_u ? access_value(a, u.base, 0) : access_unknown(a);
        if (u.base.kind == BASE_NONE) return access_number(a, ptx_sum_add(&a->s, u.sum, n, -1));
        return access_value(a, u.base, ptx_sum_add(&a->s, u.sum, n, -1));
    }
    if (pu && pv) {
        if (sure_u && sure_v) return access_unknown(a);
        int32_t with_u = access_value(
            a, u.base, v.base.kind == BASE_UNKNOWN ? 0 : ptx_sum_add(&a->s, u.sum, access_as_number(a, y), 1));
        int32_t with_v = access_value(
            a, v.base, u.base.kind == BASE_UNKNOWN ? 0 : ptx_sum_add(&a->s, v.sum, access_as_number(a, x), 1));
        return sure_u ? with_u : sure_v ? with_v : access_join(a, with_u, with_v, 0);
    }
    int32_t sum = ptx_sum_add(&a->s, u.sum, v.sum, minus ? -1 : 1);
    return access_value(a, pu ? u.base : v.base, sum);
}

/* A 64-bit result that bits of a pointer may have gone into. */
static bool from_pointer(struct analysis *a, const struct ptx_instr *i) {
    if (ptx_type_bits((enum ptx_type)i->type) != 64) return false;
    for (int n = 0; n < i->srcs; n++) {
        enum ptx_type type = ptx_operand_type(i, false, (unsigned)n);
        if (ptx_type_bits(type) != 64 || i->src[n].kind == PTX_VECTOR) continue;
        struct value v = access_get(a, access_operand(a, &i->src[n], type));
        if (!v.cond && v.base.kind != BASE_NONE) return true;
    }
    return false;
}

static int32_t bits(struct analysis *a, const struct ptx_instr *i) {
    int64_t c;
    int32_t sum = i->op == PTX_OP_AND ? mask(a, i) : i->op == PTX_OP_OR || i->op == PTX_OP_XOR ? either(a, i) : 0;
    bool small = i->op == PTX_OP_AND && ptx_sum_is_constant(&a->s, raw(a, i, 1), &c) && c >= 0 && c < (int64_t)1 << 32;
    return from_pointer(a, i) && !small ? access_unknown(a) : access_number(a, sum);
}

static int32_t convert(struct analysis *a, const struct ptx_instr *i) {
    enum ptx_type from = (enum ptx_type)i->type2, to = (enum ptx_type)i->type;
    enum ptx_type_kind kf = ptx_type_kind(from), kt = ptx_type_kind(to);
    bool whole = kf != PTX_KIND_F && kf != PTX_KIND_X2 && kt != PTX_KIND_F && kt != PTX_KIND_X2;
    if (!whole || i->srcs != 1) {
        int64_t lo = type_lo(to), hi = type_hi(to);
        return access_number(a, ptx_type_bits(to) < 32 && whole ? fresh(a, i, 1, lo, hi) : 0);
    }
    int32_t x = access_operand(a, &i->src[0], from);
    if (ptx_type_bits(from) == 64 && ptx_type_bits(to) == 64) return x;
    if (access_get(a, x).base.kind == BASE_SHARED) return x; /* a 32-bit address made longer */
    int32_t sum = access_as(a, access_as_number(a, x), from, i, 0);
    if (i->modifiers & PTX_M_SAT) sum = 0;
    if (ptx_type_bits(to) < 32) sum = access_as(a, sum, to, i, 1);
    return access_number(a, sum);
}

static int32_t field(struct analysis *a, const struct ptx_instr *i) { /* bfe.u of constants */
    int64_t at, length;
    int32_t x = typed(a, i, 0);
    if (i->op != PTX_OP_BFE || ptx_type_kind((enum ptx_type)i->type) != PTX_KIND_U || !not_negative(a, x) ||
        !ptx_sum_is_constant(&a->s, raw(a, i, 1), &at) || !ptx_sum_is_constant(&a->s, raw(a, i, 2), &length) ||
        at < 0 || at > 40 || length < 1 || length > 20)
        return 0;
    return remainder_of(a, access_quotient(a, x, (int64_t)1 << at), (int64_t)1 << length);
}

/* bfi of all bits from `at` on: above the second source's lower ones. */
static int32_t insert(struct analysis *a, const struct ptx_instr *i) {
    int64_t at, length;
    int32_t x = raw(a, i, 0), y = raw(a, i, 1);
    if (!x || !y || !ptx_sum_is_constant(&a->s, raw(a, i, 2), &at) ||
        !ptx_sum_is_constant(&a->s, raw(a, i, 3), &length) || at < 1 || at > 31 || at + length < 32 ||
        ptx_type_bits((enum ptx_type)i->type) != 32)
        return 0;
    return ptx_sum_add(&a->s, remainder_of(a, y, (int64_t)1 << at), x, (int64_t)1 << at);
}

static int32_t select(struct analysis *a, const struct ptx_instr *i) {
    enum ptx_type type = (enum ptx_type)i->type;
    int32_t x = access_operand(a, &i->src[0], type), y = access_operand(a, &i->src[1], type);
    int32_t cond = access_get(a, access_operand(a, &i->src[2], PTX_PRED)).cond;
    int known = access_decide(a, cond, a->now_facts);
    if (known) return known > 0 ? x : y;
    struct value u = access_get(a, x), v = access_get(a, y);
    int32_t symbol = 0;
    if (u.sum && v.sum && u.base.kind != BASE_SET && v.base.kind != BASE_SET) {
        int64_t xl = ptx_sum_lower(&a->s, u.sum, NULL, -1), xh = ptx_sum_upper(&a->s, u.sum, NULL, -1);
        int64_t yl = ptx_sum_lower(&a->s, v.sum, NULL, -1), yh = ptx_sum_upper(&a->s, v.sum, NULL, -1);
        symbol = fresh(a, i, 1, xl < yl ? xl : yl, xh > yh ? xh : yh);
    }
    return access_join(a, x, y, symbol);
}

/* Results that lie in a small range whatever the operands. */
static int32_t counted(struct analysis *a, const struct ptx_instr *i) {
    return access_number(a, fresh(a, i, 1, i->op == PTX_OP_BFIND ? -1 : 0, 64));
}

int32_t access_arithmetic(struct analysis *a, const struct ptx_instr *i) {
    enum ptx_type type = (enum ptx_type)i->type;
    enum ptx_type_kind kind = ptx_type_kind(type);
    if (kind == PTX_KIND_F || kind == PTX_KIND_X2)
        if (i->op != PTX_OP_MOV && i->op != PTX_OP_SELP && i->op != PTX_OP_CVT) return access_number(a, 0);
    switch (i->op) {
    case PTX_OP_ADD:
    case PTX_OP_SUB:
        if (i->modifiers & (PTX_M_SAT | PTX_M_CC)) return from_pointer(a, i) ? access_unknown(a) : access_number(a, 0);
        return add(a, i, access_operand(a, &i->src[0], type), access_operand(a, &i->src[1], type), i->op == PTX_OP_SUB);
    case PTX_OP_MUL:
    case PTX_OP_MUL24:
        return access_number(a, multiply(a, i));
    case PTX_OP_MAD:
    case PTX_OP_MAD24: {
        if (i->modifiers & (PTX_M_SAT | PTX_M_CC)) return access_number(a, 0);
        int32_t p = access_number(a, multiply(a, i));
        return add(a, i, p, access_operand(a, &i->src[2], ptx_operand_type(i, false, 2)), false);
    }
    case PTX_OP_NEG:
        return access_number(a, ptx_sum_scale(&a->s, raw(a, i, 0), -1));
    case PTX_OP_NOT:
        return from_pointer(a, i) ? access_unknown(a)
                                  : access_number(a, ptx_sum_add(&a->s, ptx_sum_constant(&a->s, -1), raw(a, i, 0), -1));
    case PTX_OP_DIV:
    case PTX_OP_REM:
        return access_number(a, divide(a, i));
    case PTX_OP_SHL:
    case PTX_OP_SHR:
        return access_number(a, shift(a, i));
    case PTX_OP_AND:
    case PTX_OP_OR:
    case PTX_OP_XOR:
        return bits(a, i);
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        return access_number(a, extreme(a, i));
    case PTX_OP_SELP:
        return select(a, i);
    case PTX_OP_CVT:
        return convert(a, i);
    case PTX_OP_BFE:
        return access_number(a, field(a, i));
    case PTX_OP_BFI:
        return access_number(a, insert(a, i));
    case PTX_OP_POPC:
    case PTX_OP_CLZ:
    case PTX_OP_BFIND:
        return counted(a, i);
    default:
        return from_pointer(a, i) ? access_unknown(a) : access_number(a, 0);
    }
}
