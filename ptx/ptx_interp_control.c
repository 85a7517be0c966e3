/* Control flow of the interpreter: branches, calls of device functions, the functions that the CUDA runtime provides
 * (vprintf, __assertfail), exit and trap. */
#include "ptx/ptx_machine.h"
#include <stdlib.h>
#include <string.h>

static enum ptx_step jump(struct ptx_thread *t, int32_t block) {
    struct ptx_frame *frame = ptx_top(t);
    frame->pc = frame->f->blocks[block].first;
    return PTX_STEP_JUMP;
}

enum ptx_step ptx_x_bra(struct ptx_thread *t, const struct ptx_instr *i) {
    return jump(t, i->target);
}

enum ptx_step ptx_x_brx(struct ptx_thread *t, const struct ptx_instr *i) {
    uint64_t n = ptx_get(t, &i->src[0], PTX_U32);
    if (n >= (uint64_t)i->targets)
        return ptx_fail(t, i, PTX_FAULT_TRAP, "brx.idx to target %llu of %d", (unsigned long long)n, i->targets);
    return jump(t, ptx_top(t)->f->branch_targets[i->targets0 + (int32_t)n]);
}

/* ---- arguments of a call ---- */
/* Copies an argument into `to` (its bytes of it are set): a .param variable of the caller, or a register or number. */
static void pass(struct ptx_thread *t, const struct ptx_operand *o, const struct ptx_var *as, unsigned char *to,
                 uint64_t bytes) {
    if (o->kind == PTX_SYMBOL && o->var >= 0) {
        const struct ptx_var *v = ptx_var_of(t->m->run->module, ptx_top(t)->f, o->var);
        if (v->space == PTX_PARAM) {
            memmove(to, ptx_param_bytes(t, o->var), v->bytes < bytes ? v->bytes : bytes);
            return;
        }
    }
    ptx_store(to, (unsigned)bytes, ptx_get(t, o, as->type ? (enum ptx_type)as->type : PTX_B64));
}

static uint64_t argument(struct ptx_thread *t, const struct ptx_operand *o, unsigned bytes) {
    static const struct ptx_var word = {.type = PTX_B64};
    unsigned char v[8] = {0};
    pass(t, o, &word, v, bytes);
    return ptx_load(v, bytes);
}

/* `o`: a .param variable of the call, or a register. */
static void answer(struct ptx_thread *t, const struct ptx_operand *o, enum ptx_type type, const unsigned char *from,
                   uint64_t bytes) {
    if (o->kind == PTX_SYMBOL && o->var >= 0) {
        const struct ptx_var *v = ptx_var_of(t->m->run->module, ptx_top(t)->f, o->var);
        if (ptx_param_may_change(t, o->var))
            memmove(ptx_param_bytes(t, o->var), from, v->bytes < bytes ? v->bytes : bytes);
    } else {
        ptx_put(t, o, type, ptx_load(from, (unsigned)bytes));
    }
}

/* ---- frames ---- */
static int more_frames(struct ptx_thread *t, uint32_t regs) {
    if (t->depth == t->frames_room) {
        uint32_t room = t->frames_room ? 2 * t->frames_room : 4;
        struct ptx_frame *frames = realloc(t->frames, room * sizeof *frames);
        if (!frames) return -1;
        t->frames = frames;
        t->frames_room = room;
    }
    if (regs > t->regs_room) {
        uint64_t *larger = realloc(t->regs, 2 * (size_t)regs * sizeof *larger);
        if (!larger) return -1;
        t->regs = larger;
        t->regs_room = 2 * regs;
    }
    return 0;
}

/* Enters f: registers zeroed, its variables and, of a device function, its arguments on top of the local memory. */
enum ptx_step ptx_enter(struct ptx_thread *t, const struct ptx_instr *i, const struct ptx_function *f) {
    uint32_t base = 0, local = (t->local_top + 15) & ~15u;
    if (t->depth) base = ptx_top(t)->regs + (uint32_t)ptx_top(t)->f->reg_count;
    uint64_t args = local + (((uint64_t)f->local_bytes + 15) & ~UINT64_C(15)),
             top = args + (f->entry ? 0 : ptx_arg_offset(f, -1));
    if (t->depth >= PTX_MAX_DEPTH || top > t->m->local_bytes)
        return ptx_fail(t, i, PTX_FAULT_LIMIT, "stack overflow: call %u deep, %llu bytes of local memory", t->depth,
                        (unsigned long long)top);
    if (more_frames(t, base + (uint32_t)f->reg_count))
        return ptx_fail(t, i, PTX_FAULT_MEMORY, "no memory for the registers of %s", f->name);
    if (f->reg_count) memset(t->regs + base, 0, (size_t)f->reg_count * sizeof *t->regs);
    t->frames[t->depth++] = (struct ptx_frame){.f = f, .regs = base, .local = local, .args = (uint32_t)args};
    t->local_top = (uint32_t)top;
    return PTX_STEP_JUMP;
}

/* ---- functions of the CUDA runtime ---- */
/* A text in global or const memory: every byte up to its end, or the first `room`, may be read. */
static const char *text_at(struct ptx_thread *t, const struct ptx_instr *i, uint64_t address, uint32_t room) {
    struct ptx_run *run = t->m->run;
    struct ptx_touch touch = {.space = PTX_GLOBAL, .properties = PTX_P_READS, .bytes = 1, .instr = i};
    const char *text = (const char *)(uintptr_t)address;
    memcpy(touch.ctaid, t->m->ctaid, sizeof touch.ctaid);
    memcpy(touch.tid, t->tid, sizeof touch.tid);
    for (uint32_t k = 0; k < room; k++) {
        touch.address = address + k;
        if (address < 4096 || (run->touch && run->touch(run->context, &touch))) return NULL;
        if (!text[k]) break;
    }
    return text;
}

static enum ptx_step print(struct ptx_thread *t, const struct ptx_instr *i) {
    if (i->srcs < 2) return ptx_fail_here(t, i);
    struct ptx_run *run = t->m->run;
    const char *format = text_at(t, i, argument(t, &i->src[0], 8), 1 << 20);
    uint64_t arguments = argument(t, &i->src[1], 8);
    if (!format) return ptx_fail(t, i, PTX_FAULT_ADDRESS, "printf with a format that may not be read");
    int n = run->print ? run->print(run->context, format, (const void *)(uintptr_t)arguments) : 0;
    unsigned char r[4];
    ptx_store(r, 4, (uint32_t)n);
    if (i->dsts) answer(t, &i->dst[0], PTX_S32, r, 4);
    return PTX_STEP_NEXT;
}

/* __assertfail(message, file, line, function, bytes of a char) */
static enum ptx_step assert_failed(struct ptx_thread *t, const struct ptx_instr *i) {
    if (i->srcs < 4) return ptx_fail_here(t, i);
    const char *message = text_at(t, i, argument(t, &i->src[0], 8), 300),
               *file = text_at(t, i, argument(t, &i->src[1], 8), 300),
               *function = text_at(t, i, argument(t, &i->src[3], 8), 300);
    return ptx_fail(t, i, PTX_FAULT_ASSERT, "%.300s:%u: %.300s: Assertion `%.300s` failed.", file ? file : "?",
                    (unsigned)argument(t, &i->src[2], 4), function ? function : "?", message ? message : "?");
}

static enum ptx_step allocate(struct ptx_thread *t, const struct ptx_instr *i) {
    struct ptx_run *run = t->m->run;
    unsigned char r[8];
    if (i->srcs < 1) return ptx_fail_here(t, i);
    ptx_store(r, 8, run->allocate(run->context, argument(t, &i->src[0], 8)));
    if (i->dsts) answer(t, &i->dst[0], PTX_B64, r, 8);
    return PTX_STEP_NEXT;
}

static enum ptx_step release(struct ptx_thread *t, const struct ptx_instr *i) {
    if (i->srcs < 1) return ptx_fail_here(t, i);
    t->m->run->release(t->m->run->context, argument(t, &i->src[0], 8));
    return PTX_STEP_NEXT;
}

static enum ptx_step call_provided(struct ptx_thread *t, const struct ptx_instr *i, const struct ptx_function *f) {
    if (!strcmp(f->name, "vprintf")) return print(t, i);
    if (!strcmp(f->name, "__assertfail")) return assert_failed(t, i);
    if (!strcmp(f->name, "malloc") && t->m->run->allocate) return allocate(t, i);
    if (!strcmp(f->name, "free") && t->m->run->release) return release(t, i);
    return ptx_fail(t, i, PTX_FAULT_UNSUPPORTED, "call of %s, which has no body", f->name);
}

/* ---- call and return ---- */
enum ptx_step ptx_x_call(struct ptx_thread *t, const struct ptx_instr *i) {
    const struct ptx_module *module = t->m->run->module;
    int32_t number = i->callee, first = 0;
    if (number < 0) {
        uint64_t v = ptx_get(t, &i->src[0], PTX_B64);
        if (!v || v > (uint64_t)module->function_count)
            return ptx_fail(t, i, PTX_FAULT_ADDRESS, "call of 0x%llx, which is no function", (unsigned long long)v);
        number = (int32_t)v - 1;
        first = 1;
    }
    const struct ptx_function *f = &module->functions[number];
    if (f->declared_only) return call_provided(t, i, f);
    if (f->error || i->srcs - first != f->params)
        return ptx_fail(t, i, PTX_FAULT_UNSUPPORTED, "call of %s: %s", f->name,
                        f->error ? f->error : "another number of arguments");
    /* The arguments are read in the caller's frame and land where the callee's will be. */
    uint32_t args = ((t->local_top + 15) & ~15u) + ((f->local_bytes + 15) & ~15u);
    if ((uint64_t)args + ptx_arg_offset(f, -1) <= t->m->local_bytes)
        for (int32_t k = 0; k < f->params; k++)
            pass(t, &i->src[first + k], &f->vars[k], t->local + args + ptx_arg_offset(f, k), f->vars[k].bytes);
    return ptx_enter(t, i, f);
}

enum ptx_step ptx_x_ret(struct ptx_thread *t, const struct ptx_instr *i) {
    (void)i;
    if (t->depth == 1) return PTX_STEP_EXIT;
    struct ptx_frame from = *ptx_top(t);
    t->depth--;
    struct ptx_frame *frame = ptx_top(t);
    const struct ptx_instr *call = &frame->f->instrs[frame->pc];
    for (int32_t k = 0; k < from.f->returns && k < call->dsts; k++) {
        const struct ptx_var *v = &from.f->vars[from.f->params + k];
        const unsigned char *at = t->local + from.args + ptx_arg_offset(from.f, from.f->params + k);
        answer(t, &call->dst[k], v->type, at, v->bytes);
    }
    t->local_top = from.local;
    frame->pc++;
    return PTX_STEP_JUMP;
}

enum ptx_step ptx_x_exit(struct ptx_thread *t, const struct ptx_instr *i) {
    (void)t, (void)i;
    return PTX_STEP_EXIT;
}

enum ptx_step ptx_x_trap(struct ptx_thread *t, const struct ptx_instr *i) {
    return ptx_fail(t, i, PTX_FAULT_TRAP, "%s", ptx_ops[i->op].text);
}
