/* A function that is followed: its blocks' order, its loops, its registers. */
#include <stdlib.h>
#include <string.h>
#include "ptx/ptx_access_flow.h"

/* ---- frames ---- */
static void order_blocks(struct frame *f) {
    for (int32_t b = 0; b < f->f->block_count; b++) {
        if (f->f->blocks[b].rank < 0) continue;
        f->order[f->f->blocks[b].rank] = b;
        f->reached_blocks++;
    }
}

/* Numbers blocks so that what a block dominates is an interval. */
static void number_tree(struct frame *f) {
    for (int32_t n = f->reached_blocks - 1; n >= 0; n--) {
        int32_t b = f->order[n], d = f->f->blocks[b].idom;
        f->block[b].tree_end++; /* sizes first */
        if (d >= 0) f->block[d].tree_end += f->block[b].tree_end;
    }
    int32_t *next = f->single; /* not in use yet; as long as registers, so a buffer of its own where blocks are more */
    int32_t *own = f->f->block_count > f->f->reg_count ? malloc((size_t)f->f->block_count * sizeof *own) : NULL;
    if (f->f->block_count > f->f->reg_count && !own) {
        f->reducible = false;
        return;
    }
    if (own) next = own;
    for (int32_t n = 0; n < f->reached_blocks; n++) {
        int32_t b = f->order[n], d = f->f->blocks[b].idom, size = f->block[b].tree_end;
        f->block[b].tree_first = d >= 0 ? next[d] : 0;
        if (d >= 0) next[d] += size;
        next[b] = f->block[b].tree_first + 1;
        f->block[b].tree_end = f->block[b].tree_first + size;
    }
    free(own);
    memset(f->single, 0, (size_t)f->f->reg_count * sizeof *f->single);
}

static bool find_body(struct frame *f, int32_t h, int32_t *stack) {
    struct block_info *header = &f->block[h];
    int32_t depth = 0;
    header->body = calloc((size_t)f->f->block_count / 64 + 1, sizeof *header->body);
    if (!header->body) return false;
    header->body[h / 64] |= 1ull << h % 64;
    const struct ptx_block *blocks = f->f->blocks;
    for (int32_t n = -1; n < depth; n++) {
        int32_t b = n < 0 ? h : stack[n];
        for (int32_t k = 0; k < blocks[b].preds; k++) {
            int32_t p = f->f->pred[blocks[b].pred0 + k];
            if (blocks[p].rank < 0 || in_body(header, p) || (n < 0 && !is_back(f, p, h))) continue;
            header->body[p / 64] |= 1ull << p % 64;
            stack[depth++] = p;
        }
    }
    return true;
}

static bool find_headers(struct frame *f) {
    int32_t *stack = malloc(((size_t)f->f->block_count + 1) * sizeof *stack);
    bool ok = stack != NULL;
    int headers = 0;
    for (int32_t n = 0; ok && n < f->reached_blocks; n++) {
        int32_t b = f->order[n];
        for (int32_t k = 0; k < f->f->blocks[b].preds; k++) {
            int32_t p = f->f->pred[f->f->blocks[b].pred0 + k];
            if (f->f->blocks[p].rank < 0 || !is_back(f, p, b)) continue;
            f->block[b].header = true;
            if (!dominates(f, b, p)) f->reducible = false;
        }
        if (f->block[b].header) ok = ++headers < 2000 && find_body(f, b, stack);
    }
    free(stack);
    return ok;
}

struct definition {
    int32_t block, instr, count;
};

static void define(const struct frame *f, struct definition *d, const struct ptx_operand *o, int32_t block,
                   int32_t instr, bool guarded) {
    for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++)
        define(f, d, &o->elements[e], block, instr, guarded);
    if (o->kind != PTX_REG) return;
    d[o->reg].count += guarded ? 2 : 1;
    d[o->reg].block = block;
    d[o->reg].instr = instr;
}

static void use(const struct frame *f, struct definition *d, const struct ptx_operand *o, int32_t block,
                int32_t instr) {
    for (unsigned e = 0; o->kind == PTX_VECTOR && e < o->count; e++) use(f, d, &o->elements[e], block, instr);
    if ((o->kind != PTX_REG && o->kind != PTX_ADDRESS) || o->reg < 0 || d[o->reg].count != 1) return;
    struct definition *own = &d[o->reg];
    if (own->block == block ? own->instr >= instr : !dominates(f, own->block, block)) own->count = 2;
}

/* Registers with one definition that all uses come behind need no state of their own. */
static bool sort_registers(struct frame *f) {
    const struct ptx_function *fn = f->f;
    struct definition *d = calloc((size_t)fn->reg_count + 1, sizeof *d);
    if (!d) return false;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t n = 0; n < f->reached_blocks; n++) {
            int32_t b = f->order[n];
            for (int32_t k = fn->blocks[b].first; k < fn->blocks[b].end; k++) {
                const struct ptx_instr *i = &fn->instrs[k];
                struct ptx_operand guard = {.kind = PTX_REG, .reg = i->guard};
                for (unsigned o = 0; pass == 0 && o < i->dsts; o++) define(f, d, &i->dst[o], b, k, i->guard >= 0);
                for (unsigned o = 0; pass == 1 && o < i->srcs; o++) use(f, d, &i->src[o], b, k);
                if (pass == 1) use(f, d, &guard, b, k);
            }
        }
    for (int32_t r = 0; r < fn->reg_count; r++) f->multi[r] = d[r].count > 1 ? f->multi_count++ : -1;
    free(d);
    return true;
}

int32_t access_frame(struct analysis *a, const struct ptx_function *fn, int32_t parent, const struct ptx_instr *call) {
    for (int32_t n = 0; n < a->frame_count; n++)
        if (a->frames[n]->parent == parent && a->frames[n]->call == call) return n;
    int32_t depth = parent < 0 ? 0 : a->frames[parent]->depth + 1;
    if (a->frame_count == ACCESS_MAX_FRAMES || depth > ACCESS_MAX_DEPTH) return -1;
    struct frame *f = calloc(1, sizeof *f);
    if (!f) return -1;
    *f = (struct frame){.f = fn, .parent = parent, .depth = depth, .call = call, .reducible = true};
    f->order = calloc((size_t)fn->block_count + 1, sizeof *f->order);
    f->block = calloc((size_t)fn->block_count + 1, sizeof *f->block);
    f->single = calloc((size_t)fn->reg_count + 1, sizeof *f->single);
    f->multi = calloc((size_t)fn->reg_count + 1, sizeof *f->multi);
    a->frames[a->frame_count++] = f;
    if (!f->order || !f->block || !f->single || !f->multi) {
        a->s.no_memory = true;
        return -1;
    }
    order_blocks(f);
    number_tree(f);
    if (!find_headers(f) || !sort_registers(f)) a->failed = true;
    for (int32_t n = 0; n < fn->instr_count; n++)
        if (fn->instrs[n].op == PTX_OP_EXIT || fn->instrs[n].op == PTX_OP_TRAP) f->stops = true;
    a->changed = true;
    return a->frame_count - 1;
}
