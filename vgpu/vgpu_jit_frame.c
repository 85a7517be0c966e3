/* What a function knows of its place: the frame's fields, its pointer parameters, local memory, its thread. */
#include "vgpu/vgpu_jit.h"

/* ---- the frame ---- */
static LLVMValueRef frame_at(struct jit_gen *g, size_t offset, LLVMTypeRef t) {
    LLVMTypeRef i8 = jit_int1(g, 8);
    LLVMValueRef at = jit_scalar(g, 64, offset);
    LLVMValueRef p = LLVMBuildGEP2(g->b, i8, g->frame, &at, 1, "");
    return jit_load(g, t, LLVMBuildBitCast(g->b, p, jit_pointer(g, t), ""));
}

LLVMValueRef jit_field(struct jit_gen *g, unsigned field, unsigned index) {
    if (field == JIT_F_GRID || field == JIT_F_BLOCK || field == JIT_F_CTAID)
        return LLVMBuildExtractValue(g->b, g->field[field], index, "");
    return g->field[field];
}

void jit_load_fields(struct jit_gen *g) {
    LLVMTypeRef i32 = jit_int1(g, 32), i64 = jit_int1(g, 64), p = jit_pointer(g, jit_int1(g, 8));
    LLVMTypeRef three = LLVMArrayType(i32, 3);
    static const struct {
        uint8_t field, kind; /* 3: u32[3], 4: u32, 8: u64, 0: pointer */
        size_t offset;
    } fields[] = {
        {JIT_F_PARAMS, 0, offsetof(struct vgpu_frame, params)},
        {JIT_F_SHARED, 0, offsetof(struct vgpu_frame, shared)},
        {JIT_F_LOCAL, 0, offsetof(struct vgpu_frame, local)},
        {JIT_F_LOCAL_STRIDE, 8, offsetof(struct vgpu_frame, local_stride)},
        {JIT_F_SYMBOLS, 0, offsetof(struct vgpu_frame, symbols)},
        {JIT_F_HOST, 0, offsetof(struct vgpu_frame, host)},
        {JIT_F_GRID, 3, offsetof(struct vgpu_frame, grid)},
        {JIT_F_BLOCK, 3, offsetof(struct vgpu_frame, block)},
        {JIT_F_CTAID, 3, offsetof(struct vgpu_frame, ctaid)},
        {JIT_F_SHARED_BYTES, 4, offsetof(struct vgpu_frame, shared_bytes)},
        {JIT_F_DYNAMIC_SHARED, 4, offsetof(struct vgpu_frame, dynamic_shared)},
        {JIT_F_THREADS, 4, offsetof(struct vgpu_frame, threads)},
        {JIT_F_WARPS, 4, offsetof(struct vgpu_frame, warps)},
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        unsigned kind = fields[k].kind;
        g->field[fields[k].field] = frame_at(g, fields[k].offset,
                                             kind == 3   ? three
                                             : kind == 4 ? i32
                                             : kind == 8 ? i64
                                                         : p);
    }
}

void jit_load_roots(struct jit_gen *g) {
    LLVMTypeRef i8 = jit_int1(g, 8), p = jit_pointer(g, i8);
    for (int32_t r = 0; r < g->root_count; r++) {
        const struct jit_root *root = &g->root[r];
        bool param = root->param >= 0;
        LLVMValueRef at = jit_scalar(g, 64, param ? (uint64_t)root->param : (uint64_t)root->var * sizeof(void *));
        LLVMValueRef from = LLVMBuildGEP2(g->b, i8, g->field[param ? JIT_F_PARAMS : JIT_F_SYMBOLS], &at, 1, "");
        g->root[r].pointer = jit_load(g, p, LLVMBuildBitCast(g->b, from, jit_pointer(g, p), ""));
    }
}

/* ---- local memory ---- */
enum { LOCAL_DEPTH = 64 }; /* calls deep, of recursive functions */

static uint32_t deepest(const struct ptx_module *m, const struct ptx_function *f, unsigned depth, bool *recursive) {
    uint32_t below = 0;
    if (depth > LOCAL_DEPTH) {
        *recursive = true;
        return 0;
    }
    for (int32_t i = 0; i < f->instr_count; i++) {
        if (f->instrs[i].op != PTX_OP_CALL) continue;
        if (f->instrs[i].callee < 0) *recursive = true; /* through a pointer: to whatever depth */
        if (*recursive) break;
        uint32_t b = deepest(m, &m->functions[f->instrs[i].callee], depth + 1, recursive);
        if (b > below) below = b;
    }
    return ((f->local_bytes + 15) & ~15u) + below;
}

static uint32_t largest_frame(const struct ptx_module *m) {
    uint32_t most = 0;
    for (int32_t k = 0; k < m->function_count; k++)
        if (m->functions[k].local_bytes > most) most = m->functions[k].local_bytes;
    return (most + 15) & ~15u;
}

uint32_t jit_local_bytes(const struct ptx_module *module, const struct ptx_function *f, bool *recursive) {
    *recursive = false;
    uint32_t bytes = deepest(module, f, 0, recursive);
    if (*recursive) bytes = LOCAL_DEPTH * largest_frame(module);
    return (bytes + 15) & ~15u;
}

/* ---- threads ---- */
void jit_warp_threads(struct jit_gen *g) {
    LLVMValueRef bx = jit_field(g, JIT_F_BLOCK, 0), by = jit_field(g, JIT_F_BLOCK, 1);
    LLVMValueRef t = LLVMBuildMul(g->b, g->warp, jit_scalar(g, 32, JIT_LANES), "");
    g->thread = t;
    if (!g->u->aligned) {
        t = LLVMBuildAdd(g->b, jit_splat(g, t), jit_iota(g, 32, 1), "");
        bx = jit_splat(g, bx), by = jit_splat(g, by);
    }
    LLVMValueRef rows = LLVMBuildUDiv(g->b, t, bx, "");
    g->tid[0] = LLVMBuildURem(g->b, t, bx, "");
    g->tid[1] = LLVMBuildURem(g->b, rows, by, "");
    g->tid[2] = LLVMBuildUDiv(g->b, rows, by, "");
}

LLVMValueRef jit_linear_thread(struct jit_gen *g) {
    if (g->u->lanes == 1 || g->width == 1) return g->thread;
    return LLVMBuildAdd(g->b, jit_splat(g, g->thread), jit_iota(g, 32, 1), "");
}

static LLVMValueRef tid(struct jit_gen *g, unsigned axis) {
    LLVMValueRef v = g->tid[axis];
    if (g->width == 1) return v;
    if (!g->u->aligned) return v;
    v = jit_splat(g, v);
    return axis ? v : LLVMBuildAdd(g->b, v, jit_iota(g, 32, 1), "");
}

static LLVMValueRef lane_number(struct jit_gen *g) {
    if (g->u->lanes == 1) return LLVMBuildAnd(g->b, g->thread, jit_scalar(g, 32, JIT_LANES - 1), "");
    return g->width == 1 ? jit_scalar(g, 32, 0) : jit_iota(g, 32, 1);
}

static LLVMValueRef lane_mask(struct jit_gen *g, unsigned s) {
    LLVMValueRef one = LLVMBuildShl(g->b, jit_const(g, 32, 1), lane_number(g), "");
    LLVMValueRef below = LLVMBuildSub(g->b, one, jit_const(g, 32, 1), "");
    switch (s) {
    case PTX_LANEMASK_EQ:
        return one;
    case PTX_LANEMASK_LT:
        return below;
    case PTX_LANEMASK_LE:
        return LLVMBuildOr(g->b, below, one, "");
    case PTX_LANEMASK_GE:
        return LLVMBuildNot(g->b, below, "");
    default:
        return LLVMBuildNot(g->b, LLVMBuildOr(g->b, below, one, ""), "");
    }
}

static LLVMValueRef clock_now(struct jit_gen *g) {
    LLVMTypeRef p = jit_pointer(g, jit_int1(g, 8)), t = LLVMFunctionType(jit_int1(g, 64), &p, 1, false);
    LLVMValueRef at = jit_scalar(g, 64, offsetof(struct vgpu_host, clock));
    LLVMValueRef slot = LLVMBuildGEP2(g->b, jit_int1(g, 8), g->field[JIT_F_HOST], &at, 1, "");
    LLVMTypeRef fp = jit_pointer(g, t);
    LLVMValueRef f = jit_load(g, fp, LLVMBuildBitCast(g->b, slot, jit_pointer(g, fp), ""));
    return LLVMBuildCall2(g->b, t, f, &g->frame, 1, "");
}

LLVMValueRef jit_special(struct jit_gen *g, unsigned s) {
    LLVMValueRef v;
    if (s <= PTX_TID_Z) return tid(g, s - PTX_TID_X);
    if (s <= PTX_NTID_Z) return jit_spread(g, jit_field(g, JIT_F_BLOCK, s - PTX_NTID_X));
    if (s <= PTX_CTAID_Z) return jit_spread(g, jit_field(g, JIT_F_CTAID, s - PTX_CTAID_X));
    if (s <= PTX_NCTAID_Z) return jit_spread(g, jit_field(g, JIT_F_GRID, s - PTX_NCTAID_X));
    switch (s) {
    case PTX_LANEID:
        return lane_number(g);
    case PTX_WARPID:
        v = g->u->lanes > 1 ? g->warp : LLVMBuildLShr(g->b, g->thread, jit_scalar(g, 32, 5), "");
        return jit_spread(g, v);
    case PTX_NWARPID:
        return jit_spread(g, jit_field(g, JIT_F_WARPS, 0));
    case PTX_NSMID:
        return jit_const(g, 32, 1);
    case PTX_LANEMASK_EQ:
    case PTX_LANEMASK_LE:
    case PTX_LANEMASK_LT:
    case PTX_LANEMASK_GE:
    case PTX_LANEMASK_GT:
        return lane_mask(g, s);
    case PTX_CLOCK:
    case PTX_GLOBALTIMER_LO:
        return jit_spread(g, jit_resize(g, clock_now(g), 32, false));
    case PTX_CLOCK_HI:
    case PTX_GLOBALTIMER_HI:
        v = LLVMBuildLShr(g->b, clock_now(g), jit_scalar(g, 64, 32), "");
        return jit_spread(g, jit_resize(g, v, 32, false));
    case PTX_CLOCK64:
    case PTX_GLOBALTIMER:
        return jit_spread(g, clock_now(g));
    case PTX_DYNAMIC_SMEM_SIZE:
        return jit_spread(g, jit_field(g, JIT_F_DYNAMIC_SHARED, 0));
    case PTX_TOTAL_SMEM_SIZE:
        return jit_spread(g, jit_field(g, JIT_F_SHARED_BYTES, 0));
    default:
        return jit_const(g, 32, 0); /* smid, gridid, and what is 0 here */
    }
}
