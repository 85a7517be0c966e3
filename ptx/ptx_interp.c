/* The interpreter's driver: a launch block by block, a block until all its threads have exited. Each thread runs alone
 * until it waits, exits or has had its share; then the next of its warp. When a warp can go no further its lanes meet;
 * when no warp can, the barriers; when those cannot either, the block is dead. */
#include "ptx/ptx_machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread that spins for another one must let it run. */
enum { SHARE = 10000 };

/* ---- faults ---- */
enum ptx_step ptx_fail(struct ptx_thread *t, const struct ptx_instr *i, int kind, const char *format, ...) {
    struct ptx_fault *f = t->m->fault;
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->line = i ? i->line : 0;
    memcpy(f->ctaid, t->m->ctaid, sizeof f->ctaid);
    memcpy(f->tid, t->tid, sizeof f->tid);
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return PTX_STEP_FAULT;
}

enum ptx_step ptx_fail_here(struct ptx_thread *t, const struct ptx_instr *i) {
    return ptx_fail(t, i, PTX_FAULT_UNSUPPORTED, "line %d: %s.%s%s%s is not implemented", i->line, ptx_ops[i->op].text,
                    ptx_type_text(i->type), i->type2 ? "." : "", i->type2 ? ptx_type_text(i->type2) : "");
}

/* ---- instructions ---- */
static enum ptx_step nothing(struct ptx_thread *t, const struct ptx_instr *i) {
    (void)t, (void)i;
    return PTX_STEP_NEXT;
}

/* NULL: not implemented. */
static ptx_exec *const opcode[PTX_OP_COUNT] = {
    [PTX_OP_ABS] = ptx_x_arith,
    [PTX_OP_ADD] = ptx_x_arith,
    [PTX_OP_ADDC] = ptx_x_carry,
    [PTX_OP_BFE] = ptx_x_bits,
    [PTX_OP_BFI] = ptx_x_bits,
    [PTX_OP_BFIND] = ptx_x_bits,
    [PTX_OP_BMSK] = ptx_x_bits,
    [PTX_OP_BREV] = ptx_x_bits,
    [PTX_OP_CLZ] = ptx_x_bits,
    [PTX_OP_COPYSIGN] = ptx_x_copysign,
    [PTX_OP_COS] = ptx_x_arith,
    [PTX_OP_DIV] = ptx_x_arith,
    [PTX_OP_DP2A] = ptx_x_dot,
    [PTX_OP_DP4A] = ptx_x_dot,
    [PTX_OP_EX2] = ptx_x_arith,
    [PTX_OP_FMA] = ptx_x_arith,
    [PTX_OP_FNS] = ptx_x_bits,
    [PTX_OP_LG2] = ptx_x_arith,
    [PTX_OP_MAD] = ptx_x_arith,
    [PTX_OP_MAD24] = ptx_x_arith,
    [PTX_OP_MADC] = ptx_x_carry,
    [PTX_OP_MAX] = ptx_x_arith,
    [PTX_OP_MIN] = ptx_x_arith,
    [PTX_OP_MUL] = ptx_x_arith,
    [PTX_OP_MUL24] = ptx_x_arith,
    [PTX_OP_NEG] = ptx_x_arith,
    [PTX_OP_POPC] = ptx_x_bits,
    [PTX_OP_RCP] = ptx_x_arith,
    [PTX_OP_REM] = ptx_x_arith,
    [PTX_OP_RSQRT] = ptx_x_arith,
    [PTX_OP_SAD] = ptx_x_arith,
    [PTX_OP_SIN] = ptx_x_arith,
    [PTX_OP_SQRT] = ptx_x_arith,
    [PTX_OP_SUB] = ptx_x_arith,
    [PTX_OP_SUBC] = ptx_x_carry,
    [PTX_OP_SZEXT] = ptx_x_bits,
    [PTX_OP_TANH] = ptx_x_arith,
    [PTX_OP_TESTP] = ptx_x_testp,
    [PTX_OP_SELP] = ptx_x_selp,
    [PTX_OP_SET] = ptx_x_set,
    [PTX_OP_SETP] = ptx_x_setp,
    [PTX_OP_SLCT] = ptx_x_slct,
    [PTX_OP_AND] = ptx_x_logic,
    [PTX_OP_CNOT] = ptx_x_bits,
    [PTX_OP_LOP3] = ptx_x_lop3,
    [PTX_OP_NOT] = ptx_x_logic,
    [PTX_OP_OR] = ptx_x_logic,
    [PTX_OP_PRMT] = ptx_x_prmt,
    [PTX_OP_SHF] = ptx_x_shift,
    [PTX_OP_SHL] = ptx_x_shift,
    [PTX_OP_SHR] = ptx_x_shift,
    [PTX_OP_XOR] = ptx_x_logic,
    [PTX_OP_CVT] = ptx_x_cvt,
    [PTX_OP_CVTA] = ptx_x_cvta,
    [PTX_OP_ISSPACEP] = ptx_x_isspacep,
    [PTX_OP_LD] = ptx_x_ld,
    [PTX_OP_LDU] = ptx_x_ld,
    [PTX_OP_LDZ] = ptx_x_ldz,
    [PTX_OP_MMA] = ptx_x_mma,
    [PTX_OP_MBARRIER] = ptx_x_mbarrier,
    [PTX_OP_GROUP] = nothing,
    [PTX_OP_APPLYPRIORITY] = nothing,
    [PTX_OP_DISCARD] = nothing,
    [PTX_OP_SETMAXNREG] = nothing,
    [PTX_OP_MOV] = ptx_x_mov,
    [PTX_OP_PREFETCH] = nothing,
    [PTX_OP_PREFETCHU] = nothing,
    [PTX_OP_ST] = ptx_x_st,
    [PTX_OP_ACTIVEMASK] = ptx_x_warp,
    [PTX_OP_ATOM] = ptx_x_atom,
    [PTX_OP_BAR] = ptx_x_bar,
    [PTX_OP_BARRIER] = ptx_x_bar,
    [PTX_OP_ELECT] = ptx_x_warp,
    [PTX_OP_FENCE] = nothing,
    [PTX_OP_MATCH] = ptx_x_warp,
    [PTX_OP_MEMBAR] = nothing,
    [PTX_OP_NANOSLEEP] = nothing,
    [PTX_OP_RED] = ptx_x_atom,
    [PTX_OP_REDUX] = ptx_x_warp,
    [PTX_OP_SHFL] = ptx_x_warp,
    [PTX_OP_VOTE] = ptx_x_warp,
    [PTX_OP_BRA] = ptx_x_bra,
    [PTX_OP_BRKPT] = ptx_x_trap,
    [PTX_OP_BRX] = ptx_x_brx,
    [PTX_OP_CALL] = ptx_x_call,
    [PTX_OP_EXIT] = ptx_x_exit,
    [PTX_OP_RET] = ptx_x_ret,
    [PTX_OP_TRAP] = ptx_x_trap,
    [PTX_OP_GRIDDEPCONTROL] = nothing,
    [PTX_OP_PMEVENT] = nothing,
};

ptx_exec *ptx_exec_of(enum ptx_op op) {
    return opcode[op];
}

static bool guarded_off(struct ptx_thread *t, const struct ptx_instr *i) {
    return i->guard >= 0 && (*ptx_reg_at(t, i->guard) & 1) == i->guard_negated;
}

/* Runs t until it waits, exits or has had its share. 0, or -1: fault. */
static int advance(struct ptx_thread *t) {
    struct ptx_run *run = t->m->run;
    for (unsigned n = 0; n < SHARE; n++) {
        struct ptx_frame *frame = ptx_top(t);
        enum ptx_step step = PTX_STEP_NEXT;
        if (frame->pc >= frame->f->instr_count) { /* the end of the text is a return */
            step = ptx_x_ret(t, NULL);
        } else {
            const struct ptx_instr *i = &frame->f->instrs[frame->pc];
            if (run->max_instructions && run->executed >= run->max_instructions) {
                ptx_fail(t, i, PTX_FAULT_LIMIT, "%llu instructions executed", (unsigned long long)run->executed);
                return -1;
            }
            run->executed++;
            bool off = guarded_off(t, i);
            if (!off && run->counts) ptx_tally_instr(run->counts, i);
            if (!off) step = opcode[i->op] && i->type != PTX_B128 ? opcode[i->op](t, i) : ptx_fail_here(t, i);
        }
        if (step == PTX_STEP_FAULT) return -1;
        if (step == PTX_STEP_WAIT) return 0;
        if (step == PTX_STEP_EXIT) {
            t->state = PTX_EXITED;
            t->m->left--;
            return 0;
        }
        if (step == PTX_STEP_NEXT) ptx_top(t)->pc++;
    }
    return 0;
}

/* ---- blocks ---- */
/* Each ready thread of the warp has its turn. 1: some are ready still, 0: none; -1: fault. */
static int run_warp(struct ptx_machine *m, uint32_t warp) {
    uint32_t first = warp * PTX_WARP_LANES,
             end = first + PTX_WARP_LANES < m->threads ? first + PTX_WARP_LANES : m->threads;
    int ready = 0;
    for (uint32_t n = first; n < end; n++) {
        struct ptx_thread *t = &m->thread[n];
        if (t->state == PTX_READY && advance(t)) return -1;
        ready |= t->state == PTX_READY;
    }
    return ready || ptx_warp_meet(m, warp);
}

static int deadlock(struct ptx_machine *m) {
    for (uint32_t n = 0; n < m->threads; n++) {
        struct ptx_thread *t = &m->thread[n];
        if (t->state == PTX_EXITED) continue;
        const struct ptx_instr *i = &ptx_top(t)->f->instrs[ptx_top(t)->pc];
        ptx_fail(t, i, PTX_FAULT_DEADLOCK, "%s at line %d, which not all threads reach", ptx_ops[i->op].text, i->line);
        break;
    }
    return -1;
}

static int begin_block(struct ptx_machine *m, uint64_t number) {
    struct ptx_run *run = m->run;
    m->ctaid[0] = (uint32_t)(number % run->grid[0]);
    m->ctaid[1] = (uint32_t)(number / run->grid[0] % run->grid[1]);
    m->ctaid[2] = (uint32_t)(number / run->grid[0] / run->grid[1]);
    m->left = m->threads;
    memset(m->barrier, 0, sizeof m->barrier);
    for (uint32_t n = 0; n < m->threads; n++) {
        struct ptx_thread *t = &m->thread[n];
        t->depth = 0;
        t->local_top = 0;
        t->state = PTX_READY;
        t->carry = false;
        if (ptx_enter(t, NULL, run->entry) == PTX_STEP_FAULT) return -1;
    }
    return 0;
}

static int run_block(struct ptx_machine *m, uint64_t number) {
    if (begin_block(m, number)) return -1;
    while (m->left) {
        bool any = false;
        for (uint32_t w = 0; w < m->warps; w++) {
            int r = run_warp(m, w);
            if (r < 0) return -1;
            any |= r > 0;
        }
        if (m->left && !any && !ptx_barriers_meet(m)) return deadlock(m);
    }
    return 0;
}

/* ---- launches ---- */
static uint64_t shared_size(const struct ptx_run *run) {
    uint64_t bytes = run->entry->shared_bytes;
    for (int32_t k = 0; k < run->entry->shared_count; k++) {
        const struct ptx_var *v = ptx_var_of(run->module, run->entry, run->entry->shared[k].var);
        uint64_t end = run->entry->shared[k].offset + v->bytes;
        bytes = end > bytes ? end : bytes;
    }
    return bytes + run->dynamic_shared;
}

/* Of a thread. Calls may nest as deep as the program likes; on a device the default stack is 1 KiB. */
static uint64_t local_size(const struct ptx_function *f) {
    bool calls = false;
    for (int32_t k = 0; k < f->instr_count; k++) calls |= f->instrs[k].op == PTX_OP_CALL;
    return (((uint64_t)f->local_bytes + 15) & ~UINT64_C(15)) + (calls ? 256 << 10 : 0);
}

static void machine_free(struct ptx_machine *m) {
    for (uint32_t n = 0; m->thread && n < m->threads; n++) {
        free(m->thread[n].regs);
        free(m->thread[n].frames);
    }
    free(m->thread);
    free(m->shared);
    free(m->local);
}

static int no_memory(struct ptx_machine *m) {
    memset(m->fault, 0, sizeof *m->fault);
    m->fault->kind = PTX_FAULT_MEMORY;
    snprintf(m->fault->text, sizeof m->fault->text, "no memory for a block of %u threads", m->threads);
    return -1;
}

static int machine_start(struct ptx_machine *m) {
    struct ptx_run *run = m->run;
    m->threads = run->block[0] * run->block[1] * run->block[2];
    m->warps = (m->threads + PTX_WARP_LANES - 1) / PTX_WARP_LANES;
    m->shared_bytes = shared_size(run);
    m->local_bytes = local_size(run->entry);
    m->thread = calloc(m->threads, sizeof *m->thread);
    /* Aligned as on a device; shared memory begins undefined: a pattern shows who reads it before it is written. */
    m->shared = aligned_alloc(1024, (m->shared_bytes + 1024) & ~UINT64_C(1023));
    m->local = calloc(m->threads, m->local_bytes ? m->local_bytes : 1);
    if (!m->thread || !m->shared || !m->local) return no_memory(m);
    memset(m->shared, 0xa5, m->shared_bytes);
    for (uint32_t n = 0; n < m->threads; n++) {
        struct ptx_thread *t = &m->thread[n];
        t->m = m;
        t->linear = n;
        t->tid[0] = n % run->block[0];
        t->tid[1] = n / run->block[0] % run->block[1];
        t->tid[2] = n / run->block[0] / run->block[1];
        t->local = m->local + n * m->local_bytes;
    }
    return 0;
}

static int refuse_launch(struct ptx_fault *fault, const struct ptx_function *f) {
    memset(fault, 0, sizeof *fault);
    fault->kind = PTX_FAULT_UNSUPPORTED;
    snprintf(fault->text, sizeof fault->text, "%.60s: %.180s", f->name,
             f->error           ? f->error
             : f->declared_only ? "no body"
                                : "no entry, or a block of 0 or over 1,024 threads");
    return -1;
}

int ptx_interpret(struct ptx_run *run, struct ptx_fault *fault) {
    struct ptx_machine m = {.run = run, .fault = fault};
    uint64_t threads = (uint64_t)run->block[0] * run->block[1] * run->block[2],
             blocks = (uint64_t)run->grid[0] * run->grid[1] * run->grid[2], end = blocks;
    run->executed = 0;
    if (run->entry->error || run->entry->declared_only || !run->entry->entry || !threads || threads > 1024)
        return refuse_launch(fault, run->entry);
    if (run->blocks && (uint64_t)run->first_block + run->blocks < end) end = (uint64_t)run->first_block + run->blocks;
    int r = machine_start(&m);
    for (uint64_t n = run->first_block; !r && n < end; n++) r = run_block(&m, n);
    machine_free(&m);
    return r;
}
