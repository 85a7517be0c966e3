/* One instruction: opcode, modifiers, operands; calls and branches have shapes of their own. */
#include <string.h>
#include "ptx/ptx_parse.h"

enum { MAX_OPERANDS = 8, MAX_ARGUMENTS = 250 };

const struct ptx_var *ptx_parsed_var(struct ptx_parser *p, int32_t var) {
    return var >= PTX_LOCAL_VAR ? PTX_AT(p->f_vars, struct ptx_var, var - PTX_LOCAL_VAR)
                                : PTX_AT(p->vars, struct ptx_var, var);
}

static enum ptx_op opcode(struct ptx_parser *p, const struct ptx_token *name) {
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        if (!ptx_token_is(name, PTX_T_NAME, ptx_ops[op].text)) continue;
        if (ptx_ops[op].properties & PTX_P_UNSUPPORTED)
            ptx_refuse(p, name, "opcode '%s' is not supported", ptx_ops[op].text);
        return (enum ptx_op)op;
    }
    ptx_refuse(p, name, "unknown opcode '%.*s'", name->length > 60 ? 60 : (int)name->length, name->text);
}

struct ptx_operand *ptx_keep_operands(struct ptx_parser *p, const struct ptx_operand *o, unsigned count) {
    if (!count) return NULL;
    struct ptx_operand *kept = ptx_arena_bytes(p, count * sizeof *o);
    memcpy(kept, o, count * sizeof *o);
    return kept;
}

/* ---- branches ---- */
static void branch(struct ptx_parser *p) {
    struct ptx_fixup *fix = ptx_list_add(p, &p->fixups, sizeof *fix);
    fix->instr = p->instrs.count;
    fix->scope = p->scope;
    fix->label = ptx_expect_name(p);
}

static void indexed_branch(struct ptx_parser *p, struct ptx_instr *i) {
    struct ptx_operand index;
    ptx_parse_operand(p, &index);
    i->src = ptx_keep_operands(p, &index, 1);
    i->srcs = 1;
    ptx_expect(p, ',');
    branch(p);
}

/* ---- calls ---- */
static void arguments(struct ptx_parser *p, struct ptx_operand *o, unsigned *count) {
    ptx_expect(p, '(');
    if (ptx_accept(p, ')')) return;
    do {
        struct ptx_token at = p->token;
        if (*count == MAX_ARGUMENTS) ptx_refuse(p, &at, "a call with over %d arguments", MAX_ARGUMENTS);
        ptx_parse_operand(p, &o[*count]);
        if (o[*count].kind != PTX_SYMBOL || o[*count].var < PTX_LOCAL_VAR || o[*count].offset || o[*count].negated ||
            ptx_parsed_var(p, o[*count].var)->space != PTX_PARAM)
            ptx_refuse(p, &at, "a call's arguments must be .param variables");
        ++*count;
    } while (ptx_accept(p, ','));
    ptx_expect(p, ')');
}

static void check_signature(struct ptx_parser *p, const struct ptx_instr *i, const struct ptx_token *at) {
    const struct ptx_function *callee = PTX_AT(p->functions, struct ptx_function, i->callee);
    if (callee->entry) ptx_refuse(p, at, "a call of kernel %s", callee->name);
    if (i->srcs != callee->params || i->dsts != callee->returns)
        ptx_refuse(p, at, "a call of %s with another number of arguments", callee->name);
    for (int n = 0; n < i->srcs + i->dsts; n++) {
        const struct ptx_operand *o = n < i->srcs ? &i->src[n] : &i->dst[n - i->srcs];
        /* of the function under way itself the variables are not in the module yet */
        const struct ptx_var *formal = callee == p->f ? PTX_AT(p->f_vars, struct ptx_var, n) : &callee->vars[n];
        if (formal->bytes && formal->bytes != ptx_parsed_var(p, o->var)->bytes)
            ptx_refuse(p, at, "a call of %s with an argument of another size", callee->name);
    }
}

static void call(struct ptx_parser *p, struct ptx_instr *i) {
    struct ptx_operand dst[MAX_ARGUMENTS], src[MAX_ARGUMENTS + 1], *target = src;
    unsigned dsts = 0, srcs = 0;
    if (ptx_is(p, '(')) {
        arguments(p, dst, &dsts);
        ptx_expect(p, ',');
    }
    struct ptx_token at = p->token;
    ptx_parse_operand(p, target);
    if (target->kind == PTX_SYMBOL && target->func >= 0 && !target->offset)
        i->callee = target->func;
    else if (target->kind != PTX_REG || target->negated)
        ptx_refuse(p, &at, "a call of something that is no function");
    bool indirect = i->callee < 0;
    if (ptx_accept(p, ',') && ptx_is(p, '(')) {
        arguments(p, src + 1, &srcs);
        if (ptx_accept(p, ',')) ptx_expect_name(p); /* the prototype */
    } else if (!ptx_is(p, ';')) {
        ptx_expect_name(p);
    }
    i->dsts = (uint8_t)dsts;
    i->srcs = (uint8_t)(srcs + indirect);
    i->dst = ptx_keep_operands(p, dst, dsts);
    i->src = ptx_keep_operands(p, indirect ? src : src + 1, i->srcs);
    if (!indirect) check_signature(p, i, &at);
    if (indirect && ptx_type_bits((enum ptx_type)PTX_AT(p->regs, struct ptx_reg, target->reg)->type) != 64)
        ptx_refuse(p, &at, "an indirect call takes a 64-bit register");
}

/* ---- everything else ---- */
static bool has_result(const struct ptx_instr *i) {
    if (ptx_ops[i->op].dsts != PTX_ANY) return ptx_ops[i->op].dsts > 0;
    return i->op != PTX_OP_BAR && i->op != PTX_OP_BARRIER ? true : i->sub >= PTX_SUB_BAR_RED_POPC;
}

static bool may_pair(const struct ptx_instr *i) {
    return i->op == PTX_OP_SETP || i->op == PTX_OP_LOP3 || i->op == PTX_OP_SHFL || i->op == PTX_OP_MATCH ||
           i->op == PTX_OP_ELECT;
}

static void operands(struct ptx_parser *p, struct ptx_instr *i, const struct ptx_token *at) {
    struct ptx_operand o[MAX_OPERANDS];
    unsigned count = 0;
    bool pair = false;
    if (!ptx_is(p, ';')) do {
            if (count == MAX_OPERANDS) ptx_refuse(p, at, "%s: too many operands", ptx_ops[i->op].text);
            ptx_parse_operand(p, &o[count++]);
            if (count == 1 && may_pair(i)) pair = ptx_accept(p, '|');
            if (pair && count == 1) ptx_parse_operand(p, &o[count++]);
        } while (ptx_accept(p, ','));
    if (i->modifiers & PTX_M_POLICY) { /* says nothing about values */
        if (!count || o[count - 1].kind != PTX_REG) ptx_refuse(p, at, "%s: no cache policy", ptx_ops[i->op].text);
        i->modifiers &= ~(uint32_t)PTX_M_POLICY;
        count--;
    }
    i->dsts = (uint8_t)(pair ? 2 : has_result(i));
    if (count < i->dsts || (i->op == PTX_OP_ELECT && !pair))
        ptx_refuse(p, at, "%s: another number of operands is wanted", ptx_ops[i->op].text);
    if (i->op == PTX_OP_LOP3 && count >= i->dsts + 4u) {
        unsigned last = i->dsts + 3u;
        if (o[last].kind != PTX_IMM || o[last].bits > 255) ptx_refuse(p, at, "lop3: a table of 8 bits is wanted");
        i->lut = (uint8_t)o[last].bits;
        memmove(&o[last], &o[last + 1], (--count - last) * sizeof *o);
    } else if (i->op == PTX_OP_LOP3) {
        ptx_refuse(p, at, "lop3: another number of operands is wanted");
    }
    i->srcs = (uint8_t)(count - i->dsts);
    i->dst = ptx_keep_operands(p, o, i->dsts);
    i->src = ptx_keep_operands(p, o + i->dsts, i->srcs);
}

void ptx_parse_instr(struct ptx_parser *p, const struct ptx_token *name, const struct ptx_operand *guard) {
    struct ptx_instr i = {.guard = -1, .callee = -1, .target = -1, .line = name->line, .column = name->column};
    i.op = (uint8_t)opcode(p, name);
    if (ptx_parse_special(p, (enum ptx_op)i.op, name, guard)) return;
    if (guard) {
        i.guard = guard->reg;
        i.guard_negated = guard->negated;
    }
    ptx_parse_modifiers(p, &i);
    if (i.op == PTX_OP_BRA)
        branch(p);
    else if (i.op == PTX_OP_BRX)
        indexed_branch(p, &i);
    else if (i.op == PTX_OP_CALL)
        call(p, &i);
    else
        operands(p, &i, name);
    if (i.op != PTX_OP_CALL && ptx_ops[i.op].properties != PTX_P_HINT) ptx_check_instr(p, &i, name);
    ptx_expect(p, ';');
    if (i.op != PTX_OP_LD && i.op != PTX_OP_LDU && i.op != PTX_OP_ST && i.vector > 1 && i.srcs == 2)
        ptx_parse_elements(p, &i, name);
    else
        *(struct ptx_instr *)ptx_list_add(p, &p->instrs, sizeof i) = i;
}
