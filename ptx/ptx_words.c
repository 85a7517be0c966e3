/* The modifiers of instructions: one sorted table of words, and which of their classes an opcode takes. A word that
 * means different things by opcode (lo, and, sync …) has a row for each. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_parse.h"

enum word_class {
    C_FLOAT = 1 << 0, /* rounding, .ftz, .sat, .approx */
    C_CVT = 1 << 1,
    C_COMPARE = 1 << 2, /* set, setp */
    C_MEMORY = 1 << 3,
    C_ATOMIC = 1 << 4,
    C_HALVES = 1 << 5, /* .hi .lo .wide */
    C_CARRY = 1 << 6,
    C_SHFL = 1 << 7,
    C_VOTE = 1 << 8,
    C_SYNC = 1 << 9, /* .sync where it says nothing */
    C_BARRIER = 1 << 10,
    C_FUNNEL = 1 << 11,
    C_PRMT = 1 << 12,
    C_TESTP = 1 << 13,
    C_UNIFORM = 1 << 14,
    C_MINMAX = 1 << 15,
    C_CVTA = 1 << 16,
    C_BFIND = 1 << 17,
    C_CLAMP = 1 << 18,
    C_LOGIC = 1 << 19, /* lop3.or … */
    C_SPACE = 1 << 20,
    C_BRX = 1 << 21,
    C_ANYTHING = 1 << 22 /* hints: all words are accepted */
};
enum word_field { F_NONE, F_ROUND, F_COMPARE, F_COMBINE, F_SUB, F_SUB_PLUS, F_SUB_ELSE, F_MODIFIER, F_SPACE, F_VECTOR };

struct word {
    const char *text;
    uint32_t classes;
    uint8_t field;
    uint32_t value;
};
/* Sorted by text (ASCII). */
static const struct word words[] = {
    {"L2::cache_hint", C_MEMORY, F_MODIFIER, PTX_M_POLICY},
    {"NAN", C_MINMAX, F_MODIFIER, PTX_M_NAN},
    {"NaN", C_MINMAX, F_MODIFIER, PTX_M_NAN},
    {"abs", C_MINMAX, F_MODIFIER, PTX_M_ABS},
    {"acq_rel", C_MEMORY, F_NONE, 0},
    {"acquire", C_MEMORY, F_NONE, 0},
    {"add", C_ATOMIC, F_SUB, PTX_SUB_ADD},
    {"aligned", C_BARRIER | C_SYNC, F_MODIFIER, PTX_M_ALIGNED},
    {"all", C_VOTE, F_SUB, PTX_SUB_ALL},
    {"and", C_ATOMIC, F_SUB, PTX_SUB_AND},
    {"and", C_COMPARE | C_LOGIC, F_COMBINE, PTX_SUB_AND},
    {"and", C_BARRIER, F_SUB, PTX_SUB_BAR_RED_AND},
    {"any", C_VOTE, F_SUB, PTX_SUB_ANY},
    {"approx", C_FLOAT, F_MODIFIER, PTX_M_APPROX},
    {"arrive", C_BARRIER, F_SUB, PTX_SUB_BAR_ARRIVE},
    {"b4e", C_PRMT, F_SUB, PTX_SUB_B4E},
    {"ballot", C_VOTE, F_SUB, PTX_SUB_BALLOT},
    {"bfly", C_SHFL, F_SUB, PTX_SUB_BFLY},
    {"ca", C_MEMORY, F_NONE, 0},
    {"cas", C_ATOMIC, F_SUB, PTX_SUB_CAS},
    {"cc", C_CARRY, F_MODIFIER, PTX_M_CC},
    {"cg", C_MEMORY, F_NONE, 0},
    {"clamp", C_FUNNEL, F_SUB_PLUS, 0},
    {"clamp", C_CLAMP, F_NONE, 0},
    {"cluster", C_MEMORY, F_NONE, 0},
    {"const", C_SPACE, F_SPACE, PTX_CONST},
    {"cs", C_MEMORY, F_NONE, 0},
    {"cta", C_MEMORY | C_BARRIER, F_NONE, 0},
    {"cv", C_MEMORY, F_NONE, 0},
    {"dec", C_ATOMIC, F_SUB, PTX_SUB_DEC},
    {"down", C_SHFL, F_SUB, PTX_SUB_DOWN},
    {"ecl", C_PRMT, F_SUB, PTX_SUB_ECL},
    {"ecr", C_PRMT, F_SUB, PTX_SUB_ECR},
    {"eq", C_COMPARE, F_COMPARE, PTX_EQ},
    {"equ", C_COMPARE, F_COMPARE, PTX_EQU},
    {"exch", C_ATOMIC, F_SUB, PTX_SUB_EXCH},
    {"f4e", C_PRMT, F_SUB, PTX_SUB_F4E},
    {"finite", C_TESTP, F_SUB, PTX_SUB_FINITE},
    {"ftz", C_FLOAT | C_CVT | C_COMPARE | C_MINMAX, F_MODIFIER, PTX_M_FTZ},
    {"full", C_FLOAT, F_MODIFIER, PTX_M_FULL},
    {"ge", C_COMPARE, F_COMPARE, PTX_GE},
    {"geu", C_COMPARE, F_COMPARE, PTX_GEU},
    {"global", C_SPACE, F_SPACE, PTX_GLOBAL},
    {"gpu", C_MEMORY, F_NONE, 0},
    {"gt", C_COMPARE, F_COMPARE, PTX_GT},
    {"gtu", C_COMPARE, F_COMPARE, PTX_GTU},
    {"hi", C_COMPARE, F_COMPARE, PTX_HI_CMP},
    {"hi", C_HALVES, F_MODIFIER, PTX_M_HI},
    {"hs", C_COMPARE, F_COMPARE, PTX_HS},
    {"idx", C_SHFL, F_SUB, PTX_SUB_IDX},
    {"idx", C_BRX, F_NONE, 0},
    {"inc", C_ATOMIC, F_SUB, PTX_SUB_INC},
    {"infinite", C_TESTP, F_SUB, PTX_SUB_INFINITE},
    {"l", C_FUNNEL, F_SUB, PTX_SUB_L_CLAMP},
    {"le", C_COMPARE, F_COMPARE, PTX_LE},
    {"leu", C_COMPARE, F_COMPARE, PTX_LEU},
    {"lo", C_COMPARE, F_COMPARE, PTX_LO},
    {"lo", C_HALVES, F_MODIFIER, PTX_M_LO},
    {"local", C_SPACE, F_SPACE, PTX_LOCAL},
    {"ls", C_COMPARE, F_COMPARE, PTX_LS},
    {"lt", C_COMPARE, F_COMPARE, PTX_LT},
    {"ltu", C_COMPARE, F_COMPARE, PTX_LTU},
    {"lu", C_MEMORY, F_NONE, 0},
    {"max", C_ATOMIC, F_SUB, PTX_SUB_MAX},
    {"min", C_ATOMIC, F_SUB, PTX_SUB_MIN},
    {"mmio", C_MEMORY, F_NONE, 0},
    {"nan", C_COMPARE, F_COMPARE, PTX_NAN},
    {"nc", C_MEMORY, F_MODIFIER, PTX_M_NC},
    {"ne", C_COMPARE, F_COMPARE, PTX_NE},
    {"neu", C_COMPARE, F_COMPARE, PTX_NEU},
    {"noftz", C_ATOMIC, F_MODIFIER, PTX_M_NOFTZ},
    {"normal", C_TESTP, F_SUB, PTX_SUB_NORMAL},
    {"notanumber", C_TESTP, F_SUB, PTX_SUB_NOTANUMBER},
    {"num", C_COMPARE, F_COMPARE, PTX_NUM},
    {"number", C_TESTP, F_SUB, PTX_SUB_NUMBER},
    {"or", C_ATOMIC, F_SUB, PTX_SUB_OR},
    {"or", C_COMPARE | C_LOGIC, F_COMBINE, PTX_SUB_OR},
    {"or", C_BARRIER, F_SUB, PTX_SUB_BAR_RED_OR},
    {"param", C_SPACE, F_SPACE, PTX_PARAM},
    {"param::entry", C_SPACE, F_SPACE, PTX_PARAM},
    {"param::func", C_SPACE, F_SPACE, PTX_PARAM},
    {"popc", C_BARRIER, F_SUB, PTX_SUB_BAR_RED_POPC},
    {"r", C_FUNNEL, F_SUB, PTX_SUB_R_CLAMP},
    {"rc16", C_PRMT, F_SUB, PTX_SUB_RC16},
    {"rc8", C_PRMT, F_SUB, PTX_SUB_RC8},
    {"red", C_BARRIER, F_NONE, 0},
    {"relaxed", C_MEMORY, F_NONE, 0},
    {"release", C_MEMORY, F_NONE, 0},
    {"relu", C_FLOAT | C_CVT, F_MODIFIER, PTX_M_RELU},
    {"rm", C_FLOAT | C_CVT, F_ROUND, PTX_RM},
    {"rmi", C_CVT, F_ROUND, PTX_RMI},
    {"rn", C_FLOAT | C_CVT, F_ROUND, PTX_RN},
    {"rna", C_CVT, F_ROUND, PTX_RNA},
    {"rni", C_CVT, F_ROUND, PTX_RNI},
    {"rp", C_FLOAT | C_CVT, F_ROUND, PTX_RP},
    {"rpi", C_CVT, F_ROUND, PTX_RPI},
    {"rs", C_CVT, F_ROUND, PTX_RS},
    {"rz", C_FLOAT | C_CVT, F_ROUND, PTX_RZ},
    {"rzi", C_CVT, F_ROUND, PTX_RZI},
    {"sat", C_FLOAT | C_CVT, F_MODIFIER, PTX_M_SAT},
    {"satfinite", C_CVT, F_MODIFIER, PTX_M_SATFINITE},
    {"shared", C_SPACE, F_SPACE, PTX_SHARED},
    {"shared::cluster", C_SPACE, F_SPACE, PTX_SHARED}, /* of this block, the only one of its cluster */
    {"shared::cta", C_SPACE, F_SPACE, PTX_SHARED},
    {"shiftamt", C_BFIND, F_MODIFIER, PTX_M_SHIFTAMT},
    {"subnormal", C_TESTP, F_SUB, PTX_SUB_SUBNORMAL},
    {"sync", C_SHFL | C_VOTE | C_SYNC, F_NONE, 0},
    {"sync", C_BARRIER, F_SUB_ELSE, PTX_SUB_BAR_SYNC},
    {"sys", C_MEMORY, F_NONE, 0},
    {"to", C_CVTA, F_MODIFIER, PTX_M_TO},
    {"uni", C_VOTE, F_SUB, PTX_SUB_UNI},
    {"uni", C_UNIFORM, F_MODIFIER, PTX_M_UNI},
    {"unified", C_MEMORY, F_NONE, 0},
    {"up", C_SHFL, F_SUB, PTX_SUB_UP},
    {"v2", C_MEMORY, F_VECTOR, 2},
    {"v4", C_MEMORY, F_VECTOR, 4},
    {"v8", C_MEMORY, F_VECTOR, 8},
    {"volatile", C_MEMORY, F_MODIFIER, PTX_M_VOLATILE},
    {"warp", C_BARRIER, F_SUB, PTX_SUB_BAR_WARP},
    {"wb", C_MEMORY, F_NONE, 0},
    {"weak", C_MEMORY, F_NONE, 0},
    {"wide", C_HALVES, F_MODIFIER, PTX_M_WIDE},
    {"wrap", C_FUNNEL, F_SUB_PLUS, 1},
    {"wrap", C_CLAMP, F_MODIFIER, PTX_M_WRAP},
    {"wt", C_MEMORY, F_NONE, 0},
    {"xor", C_ATOMIC, F_SUB, PTX_SUB_XOR},
    {"xor", C_COMPARE | C_LOGIC, F_COMBINE, PTX_SUB_XOR},
    {"xorsign", C_MINMAX, F_MODIFIER, PTX_M_XORSIGN},
};

static uint32_t classes_of(enum ptx_op op) {
    switch (op) {
    case PTX_OP_ADD:
    case PTX_OP_SUB:
        return C_FLOAT | C_CARRY;
    case PTX_OP_ADDC:
    case PTX_OP_SUBC:
        return C_CARRY;
    case PTX_OP_MUL:
        return C_FLOAT | C_HALVES;
    case PTX_OP_MAD:
    case PTX_OP_MADC:
        return C_FLOAT | C_HALVES | C_CARRY;
    case PTX_OP_MUL24:
    case PTX_OP_MAD24:
        return C_FLOAT | C_HALVES;
    case PTX_OP_FMA:
    case PTX_OP_DIV:
    case PTX_OP_RCP:
    case PTX_OP_SQRT:
    case PTX_OP_RSQRT:
    case PTX_OP_SIN:
    case PTX_OP_COS:
    case PTX_OP_LG2:
    case PTX_OP_EX2:
    case PTX_OP_TANH:
    case PTX_OP_ABS:
    case PTX_OP_NEG:
        return C_FLOAT;
    case PTX_OP_DP2A:
        return C_HALVES;
    case PTX_OP_MIN:
    case PTX_OP_MAX:
        return C_MINMAX | C_FLOAT;
    case PTX_OP_SET:
    case PTX_OP_SETP:
        return C_COMPARE;
    case PTX_OP_SLCT:
        return C_FLOAT;
    case PTX_OP_TESTP:
        return C_TESTP;
    case PTX_OP_LOP3:
        return C_LOGIC;
    case PTX_OP_PRMT:
        return C_PRMT;
    case PTX_OP_SHF:
        return C_FUNNEL;
    case PTX_OP_CVT:
        return C_CVT;
    case PTX_OP_CVTA:
        return C_CVTA | C_SPACE;
    case PTX_OP_ISSPACEP:
        return C_SPACE;
    case PTX_OP_LD:
    case PTX_OP_LDU:
    case PTX_OP_ST:
        return C_MEMORY | C_SPACE;
    case PTX_OP_ATOM:
    case PTX_OP_RED:
        return C_MEMORY | C_SPACE | C_ATOMIC;
    case PTX_OP_REDUX:
        return C_ATOMIC | C_SYNC | C_MINMAX;
    case PTX_OP_SHFL:
        return C_SHFL;
    case PTX_OP_VOTE:
    case PTX_OP_MATCH:
        return C_VOTE;
    case PTX_OP_ELECT:
        return C_SYNC;
    case PTX_OP_BAR:
    case PTX_OP_BARRIER:
        return C_BARRIER;
    case PTX_OP_BRA:
    case PTX_OP_CALL:
    case PTX_OP_RET:
        return C_UNIFORM;
    case PTX_OP_BRX:
        return C_BRX | C_UNIFORM;
    case PTX_OP_BFIND:
        return C_BFIND;
    case PTX_OP_BMSK:
    case PTX_OP_SZEXT:
        return C_CLAMP;
    case PTX_OP_FENCE:
    case PTX_OP_MEMBAR:
    case PTX_OP_PREFETCH:
    case PTX_OP_PREFETCHU:
    case PTX_OP_GRIDDEPCONTROL:
    case PTX_OP_PMEVENT:
    case PTX_OP_APPLYPRIORITY:
    case PTX_OP_DISCARD:
    case PTX_OP_SETMAXNREG:
        return C_ANYTHING;
    default:
        return 0;
    }
}

static int compare_word(const void *key, const void *row) {
    const struct ptx_token *t = key;
    const struct word *w = row;
    int c = strncmp(t->text, w->text, t->length);
    return c ? c : -(int)(w->text[t->length] != 0);
}

static const struct word *find(const struct ptx_token *t, uint32_t classes) {
    const struct word *end = words + sizeof words / sizeof *words;
    const struct word *w = bsearch(t, words, sizeof words / sizeof *words, sizeof *words, compare_word);
    if (!w) return NULL;
    while (w > words && !compare_word(t, w - 1)) w--;
    for (; w < end && !compare_word(t, w); w++)
        if (w->classes & classes) return w;
    return NULL;
}

static void apply(struct ptx_parser *p, struct ptx_instr *i, const struct word *w, const struct ptx_token *t) {
    uint8_t *field = w->field == F_ROUND     ? &i->round
                     : w->field == F_COMPARE ? &i->compare
                     : w->field == F_COMBINE ? &i->combine
                     : w->field == F_SUB     ? &i->sub
                     : w->field == F_SPACE   ? &i->space
                                             : NULL;
    if (field) {
        if (*field) ptx_refuse(p, t, "'.%.*s' contradicts an earlier modifier", (int)t->length, t->text);
        *field = (uint8_t)w->value;
    } else if (w->field == F_SUB_PLUS) {
        i->sub = (uint8_t)(i->sub + w->value);
    } else if (w->field == F_SUB_ELSE) {
        if (!i->sub) i->sub = (uint8_t)w->value;
    } else if (w->field == F_MODIFIER) {
        i->modifiers |= w->value;
    } else if (w->field == F_VECTOR) {
        i->vector = (uint8_t)w->value;
    }
}

/* .L1::evict_last and the like say nothing about values; a cache policy is one more operand. */
static bool is_cache_hint(const struct ptx_token *t) {
    return t->length > 4 && (!memcmp(t->text, "L1::", 4) || !memcmp(t->text, "L2::", 4)) &&
           !ptx_token_is(t, PTX_T_WORD, "L2::cache_hint");
}

static bool takes_two_types(enum ptx_op op) {
    return op == PTX_OP_CVT || op == PTX_OP_SET || op == PTX_OP_SLCT || op == PTX_OP_DP4A || op == PTX_OP_DP2A;
}

void ptx_parse_modifiers(struct ptx_parser *p, struct ptx_instr *i) {
    uint32_t classes = classes_of((enum ptx_op)i->op);
    i->vector = 1;
    while (p->token.kind == PTX_T_WORD) {
        struct ptx_token t = ptx_take(p);
        enum ptx_type type = ptx_type_of_word(&t);
        const struct word *w = NULL;
        if (classes & C_ANYTHING) continue;
        if (type && !i->type)
            i->type = (uint8_t)type;
        else if (type && !i->type2 && takes_two_types((enum ptx_op)i->op))
            i->type2 = (uint8_t)type;
        else if (!type && (w = find(&t, classes)))
            apply(p, i, w, &t);
        else if (!(classes & C_MEMORY) || !is_cache_hint(&t))
            ptx_refuse(p, &t, "unknown modifier '.%.*s' of %s", (int)t.length, t.text, ptx_ops[i->op].text);
    }
    if ((classes & C_SPACE) && !i->space) i->space = PTX_GENERIC;
}
