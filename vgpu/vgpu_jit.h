/* Inside the compiler of kernels (vgpu_jit_*.c): PTX functions to LLVM IR to machine code.
 *
 * One generator for both modes. A value has `width` lanes: 1 in loop mode and for what all lanes of a warp share, 32
 * else. Registers are allocas until LLVM's own passes make them SSA. In warp mode a register whose 32 values are
 * base + lane * stride, with a stride known here, is kept as one number: its base.
 *
 * Errors: jit_fail notes the first one and the instruction's line; generation goes on with undefined values to its end,
 * and the function is thrown away. One compilation belongs to one thread. */
#ifndef VGPU_JIT_H
#define VGPU_JIT_H

#include "vgpu/vgpu_kernel.h"

#include <llvm-c/Core.h>

enum { JIT_LANES = VGPU_WARP };

/* ---- what is known of a register before code is made ---- */
enum jit_kind {
    JIT_TOP,     /* nothing assigned yet */
    JIT_SCALAR,  /* base + lane * stride */
    JIT_VARYING, /* 32 values */
};
enum jit_origin { JIT_ORIGIN_NONE, JIT_CTAID_X, JIT_NTID_X, JIT_TID_X, JIT_BLOCK_START /* ctaid.x * ntid.x */ };
struct jit_shape {
    uint8_t kind;     /* enum jit_kind */
    bool constant;    /* `value`, everywhere */
    bool bounded;     /* base + lane * stride does not wrap, and is not negative as a number of 32 bits with a sign */
    bool maybe;       /* varying, but most likely base + lane * stride */
    uint8_t zeros;    /* low bits of the base that are 0 */
    uint8_t origin;   /* enum jit_origin */
    int64_t stride;   /* wraps with the register's width */
    uint64_t differs; /* bits in which lanes may differ */
    uint64_t value;
};
enum { JIT_ROOT_TOP = -1, JIT_ROOT_NONE = -2 }; /* else: see jit_root */
/* What a pointer register counts from: an 8-byte parameter of the entry, or a variable. Its register then holds the
 * distance from there, so that LLVM sees an address of one object. */
struct jit_root {
    int32_t param; /* byte in the parameter buffer; -1: a variable */
    int32_t var;
    LLVMValueRef pointer;
};
struct jit_loop {
    int32_t header, parent, last; /* last: place in the order of its last block */
    bool masked;                  /* a back edge leaves from a block under a partial mask */
};
/* Control flow as needed for masks; see vgpu_jit_flow.c. */
struct jit_flow {
    int32_t *order, *place; /* blocks, loops contiguous; inverse (-1: not reachable) */
    int32_t count;
    int32_t *loop_of, *ipdom;
    struct jit_loop *loops;
    int32_t loop_count;
    uint64_t *live_in; /* block × register */
    size_t live_words;
    bool *trivial;   /* block: leaves the function, nothing else */
    bool *partial;   /* block: may run while other lanes wait elsewhere */
    bool *divergent; /* block: its branch separates lanes */
    bool *blend;     /* register: a definition under a partial mask must keep the other lanes' values */
};

/* "if (i >= n) return;" as a kernel's first block, where i grows by 1 from thread to thread along x. */
struct jit_limit {
    const struct ptx_operand *index, *end;
    unsigned bits;
    bool is_signed, inclusive; /* threads with i < end, or i <= end, go on… */
    int32_t stay;              /* …with this block */
};

/* ---- one function being made ---- */
struct jit_unit {
    const struct ptx_module *module;
    const struct ptx_function *entry;
    LLVMContextRef context;
    LLVMModuleRef llvm;
    LLVMBuilderRef builder;
    LLVMValueRef access_group, loop_id; /* metadata of parallel loops */
    LLVMValueRef *callees;              /* device functions, by number in the module */
    unsigned lanes;
    bool aligned;   /* warp mode: ntid.x is a multiple of 32, and the grid has fewer than 2^31 threads along x */
    bool recursive; /* functions may call themselves: local memory may not suffice */
    bool along_x;   /* shapes are looked for along the threads of a row, not the lanes of a warp */
    LLVMValueRef kernel, slot; /* its function; where it finds the variant for other blocks: NULL: there is none */
    char symbol[48], slot_symbol[64];
    struct jit_other *other; /* vgpu_jit_compile.c: that variant */
    bool failed;
    char *error;
    size_t error_len;
};
enum jit_field {
    JIT_F_PARAMS,
    JIT_F_SHARED,
    JIT_F_LOCAL,
    JIT_F_LOCAL_STRIDE,
    JIT_F_SYMBOLS,
    JIT_F_HOST,
    JIT_F_GRID,
    JIT_F_BLOCK,
    JIT_F_CTAID,
    JIT_F_SHARED_BYTES,
    JIT_F_DYNAMIC_SHARED,
    JIT_F_THREADS,
    JIT_F_WARPS,
    JIT_F_COUNT
};
struct jit_gen {
    struct jit_unit *u;
    const struct ptx_function *f;
    LLVMValueRef fn, frame;
    LLVMBuilderRef b;
    LLVMBasicBlockRef entry_block, setup; /* allocas; what is read once */
    unsigned width;                       /* lanes of the instruction being made */
    bool raw;                             /* pointer registers are read as distances from their root */
    const struct ptx_instr *instr;
    int32_t block;
    struct jit_flow flow;
    struct jit_shape *shapes; /* by register */
    int32_t *roots;           /* by register */
    struct jit_root *root;
    int32_t root_count;
    LLVMValueRef *regs; /* allocas */
    LLVMValueRef carry; /* the carry flag: i1 (or 32 of them) */
    LLVMValueRef field[JIT_F_COUNT];
    LLVMValueRef tid[3], warp, thread; /* thread: linear number; warp mode: of lane 0, or NULL where tid is 3 vectors */
    LLVMValueRef local_base;           /* of this function's frame in the thread's local memory: i64 */
    LLVMValueRef mask, mask_bits;      /* of the instruction: <32 x i1>, i32; NULL: not made yet */
    LLVMValueRef current;              /* alloca: mask of the block that runs */
    LLVMValueRef *pending;             /* alloca by block: lanes that wait to enter it */
    LLVMBasicBlockRef *dispatch, *body;
    LLVMBasicBlockRef done;
    bool full;                     /* warp mode: all lanes are there, and stay to the end */
    const struct jit_limit *limit; /* loop mode; NULL: none */
    LLVMValueRef *calls;           /* alloca by own variable: .param of calls and parameters of device functions */
    unsigned unrolled;             /* accesses made lane by lane without a loop */
    LLVMValueRef guard_value;      /* of the instruction: i1 or <32 x i1>; NULL: none */
};

/* ---- vgpu_jit_value.c: types, constants, operands ---- */
void jit_fail(struct jit_gen *g, const char *what);
LLVMTypeRef jit_int1(struct jit_gen *g, unsigned bits);          /* one lane */
LLVMTypeRef jit_wide(struct jit_gen *g, LLVMTypeRef t);          /* `width` lanes of t */
LLVMTypeRef jit_int(struct jit_gen *g, unsigned bits);           /* `width` lanes */
LLVMTypeRef jit_float(struct jit_gen *g, unsigned bits);         /* 32 or 64, `width` lanes */
LLVMTypeRef jit_pointer(struct jit_gen *g, LLVMTypeRef pointee); /* one */
LLVMValueRef jit_const(struct jit_gen *g, unsigned bits, uint64_t v);
LLVMValueRef jit_const_float(struct jit_gen *g, unsigned bits, double v);
LLVMValueRef jit_scalar(struct jit_gen *g, unsigned bits, uint64_t v);
LLVMValueRef jit_splat(struct jit_gen *g, LLVMValueRef one);  /* 32 lanes, always */
LLVMValueRef jit_spread(struct jit_gen *g, LLVMValueRef one); /* `width` lanes */
LLVMValueRef jit_iota(struct jit_gen *g, unsigned bits, int64_t stride);
LLVMValueRef jit_intrinsic(struct jit_gen *g, const char *name, LLVMTypeRef *overload, unsigned overloads,
                           LLVMValueRef *args, unsigned n);
LLVMValueRef jit_call1(struct jit_gen *g, const char *name, LLVMValueRef a);
LLVMValueRef jit_call2(struct jit_gen *g, const char *name, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef jit_call3(struct jit_gen *g, const char *name, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef jit_select(struct jit_gen *g, LLVMValueRef c, LLVMValueRef t, LLVMValueRef f);
LLVMValueRef jit_to_int(struct jit_gen *g, LLVMValueRef v);   /* same bits, integer lanes */
LLVMValueRef jit_to_float(struct jit_gen *g, LLVMValueRef v); /* of 32 or 64 bits */
LLVMValueRef jit_resize(struct jit_gen *g, LLVMValueRef v, unsigned bits, bool is_signed);
unsigned jit_bits(LLVMValueRef v); /* of a lane */
LLVMValueRef jit_alloca(struct jit_gen *g, LLVMTypeRef t, const char *name);
LLVMValueRef jit_load(struct jit_gen *g, LLVMTypeRef t, LLVMValueRef p);
LLVMBasicBlockRef jit_block(struct jit_gen *g, const char *name);

unsigned jit_reg_bits(struct jit_gen *g, int32_t reg);
bool jit_reg_scalar(struct jit_gen *g, int32_t reg);
LLVMTypeRef jit_reg_type(struct jit_gen *g, int32_t reg); /* of its alloca */
LLVMValueRef jit_read_reg(struct jit_gen *g, int32_t reg);
LLVMValueRef jit_read_int(struct jit_gen *g, const struct ptx_operand *o, unsigned bits);
LLVMValueRef jit_read_signed(struct jit_gen *g, const struct ptx_operand *o, unsigned bits);
LLVMValueRef jit_read_float(struct jit_gen *g, const struct ptx_operand *o, unsigned bits);
LLVMValueRef jit_read_pred(struct jit_gen *g, const struct ptx_operand *o);
void jit_write(struct jit_gen *g, const struct ptx_operand *o, LLVMValueRef v);
void jit_write_ext(struct jit_gen *g, const struct ptx_operand *o, LLVMValueRef v, bool is_signed);
LLVMValueRef jit_special(struct jit_gen *g, unsigned sreg);
LLVMValueRef jit_symbol(struct jit_gen *g, const struct ptx_operand *o); /* its address in its own space: i64 lanes */
LLVMValueRef jit_mask(struct jit_gen *g);                                /* <32 x i1> */
LLVMValueRef jit_mask_bits(struct jit_gen *g);                           /* i32 */
LLVMValueRef jit_linear_thread(struct jit_gen *g);                       /* `width` lanes, i32 */

/* ---- what makes code of an instruction ---- */
void jit_instr(struct jit_gen *g, const struct ptx_instr *i);         /* vgpu_jit_instr.c: any but control */
bool jit_instr_integer(struct jit_gen *g, const struct ptx_instr *i); /* each: false: not mine */
bool jit_instr_bits(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_float(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_half(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_compare(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_address(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_memory(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_atomic(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_warp(struct jit_gen *g, const struct ptx_instr *i);
bool jit_instr_call(struct jit_gen *g, const struct ptx_instr *i);
void jit_cvt(struct jit_gen *g, const struct ptx_instr *i);

/* vgpu_jit_float.c, vgpu_jit_half.c, vgpu_jit_approx.c */
LLVMValueRef jit_flush(struct jit_gen *g, LLVMValueRef v);                              /* f32: subnormals to ±0 */
LLVMValueRef jit_nan(struct jit_gen *g, LLVMValueRef v);                                /* a NaN to the device's */
LLVMValueRef jit_narrow(struct jit_gen *g, LLVMValueRef v, unsigned round);             /* f64 → f32 */
LLVMValueRef jit_narrow_odd(struct jit_gen *g, LLVMValueRef v);                         /* f64 → f32, to odd */
LLVMValueRef jit_from_half(struct jit_gen *g, LLVMValueRef v, bool bf16);               /* i16 → f32 */
LLVMValueRef jit_to_half(struct jit_gen *g, LLVMValueRef v, bool bf16, unsigned round); /* f32 → i16 */
LLVMValueRef jit_float_compare(struct jit_gen *g, unsigned compare, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef jit_saturate(struct jit_gen *g, LLVMValueRef v); /* into [0, 1]; NaN → 0 */
LLVMValueRef jit_min_max(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef jit_ex2(struct jit_gen *g, LLVMValueRef x);
LLVMValueRef jit_lg2(struct jit_gen *g, LLVMValueRef x);
LLVMValueRef jit_sin(struct jit_gen *g, LLVMValueRef x, bool cosine);
LLVMValueRef jit_tanh(struct jit_gen *g, LLVMValueRef x);

/* ---- analysis: vgpu_jit_flow.c, vgpu_jit_shape.c ---- */
int jit_flow_make(struct jit_gen *g); /* 0, or -1 (jit_fail) */
void jit_flow_divergence(struct jit_gen *g);
void jit_flow_free(struct jit_gen *g);
int jit_shapes(struct jit_gen *g);
int jit_roots(struct jit_gen *g);
int32_t jit_variable_root(struct jit_gen *g, const struct ptx_operand *o); /* of the variable it names */
struct jit_shape jit_shape_of(struct jit_gen *g, const struct ptx_instr *i, int32_t dst);
struct jit_shape jit_operand_shape(struct jit_gen *g, const struct ptx_operand *o, unsigned bits);
bool jit_divergent_guard(struct jit_gen *g, const struct ptx_instr *i);
bool jit_scalar_result(struct jit_gen *g, const struct ptx_instr *i); /* its destinations are kept as one number */
bool jit_scalar_sources(struct jit_gen *g, const struct ptx_instr *i);

/* vgpu_jit_address.c */
struct jit_address {
    LLVMValueRef base;   /* i8 *: one; NULL: the offset is the whole address */
    LLVMValueRef offset; /* i64: one, or 32 if not scalar */
    bool scalar;         /* lane l's is at base + offset + l * stride */
    bool maybe;          /* not scalar, but most likely at that of lane 0 + l * stride */
    bool own;            /* the function's own buffers, or parameters: no other thread's business */
    bool block;          /* the block's shared memory, for sure */
    int64_t stride;
};
struct jit_address jit_address(struct jit_gen *g, const struct ptx_operand *o, unsigned space);
LLVMValueRef jit_field(struct jit_gen *g, unsigned field, unsigned index);
LLVMValueRef jit_pointer_to(struct jit_gen *g, const struct jit_address *a, uint64_t at, LLVMTypeRef t); /* scalar */
LLVMValueRef jit_addresses(struct jit_gen *g, const struct jit_address *a);                              /* 32 × i64 */
void jit_mark_parallel(struct jit_gen *g, LLVMValueRef access);

/* Code for each lane of the mask in turn. Vectors are spilled before, lanes taken and put in between. */
struct jit_each {
    LLVMBasicBlockRef head, end;
    LLVMValueRef left; /* alloca: lanes to come */
    LLVMValueRef lane; /* i32 */
};
void jit_each_begin(struct jit_gen *g, struct jit_each *e);
void jit_each_end(struct jit_gen *g, struct jit_each *e);
LLVMValueRef jit_spill(struct jit_gen *g, LLVMValueRef v);  /* 32 lanes → a place in memory */
LLVMValueRef jit_room(struct jit_gen *g, LLVMTypeRef lane); /* for 32 */
LLVMValueRef jit_lane_place(struct jit_gen *g, LLVMTypeRef lane_type, LLVMValueRef place, LLVMValueRef lane);

/* vgpu_jit_loop.c: loop mode */
bool jit_find_limit(struct jit_gen *g, struct jit_limit *limit);
void jit_thread_loops(struct jit_gen *g);

/* vgpu_jit_frame.c */
void jit_load_fields(struct jit_gen *g);
void jit_load_roots(struct jit_gen *g);
void jit_warp_threads(struct jit_gen *g);

/* vgpu_jit_branch.c */
bool jit_ends_block(const struct ptx_instr *i);
void jit_terminator(struct jit_gen *g, const struct ptx_block *block);
LLVMBasicBlockRef jit_next_of(struct jit_gen *g, int32_t k); /* what runs after partial block k of the order */
LLVMValueRef jit_guard(struct jit_gen *g, const struct ptx_instr *i, unsigned width);

/* vgpu_jit_idiom.c */
bool jit_full(struct jit_gen *g); /* by what is known of branches so far */
bool jit_same_in_all(struct jit_gen *g,
                     const struct ptx_instr *i); /* its result is one number, by exchange; of g->block */
LLVMValueRef jit_fma_down(struct jit_gen *g, const struct ptx_instr *i, LLVMValueRef v[3]); /* NULL: no such case */

/* vgpu_jit_wait.c: only other threads can end the loop with this header */
bool jit_waits(const struct jit_gen *g, int32_t header);

/* vgpu_jit_function.c */
void jit_instruction(struct jit_gen *g, const struct ptx_instr *i); /* with its guard */
void jit_forget_registers(struct jit_gen *g);
LLVMValueRef jit_callee(struct jit_gen *g, int32_t number);
LLVMValueRef jit_host_call(struct jit_gen *g, size_t offset, LLVMTypeRef result, LLVMValueRef *args, unsigned n);
void jit_drop_lanes(struct jit_gen *g, LLVMValueRef gone); /* behind a call: lanes whose thread has ended */
int jit_make_function(struct jit_unit *u, const struct ptx_function *f, LLVMValueRef fn);
uint32_t jit_local_bytes(const struct ptx_module *module, const struct ptx_function *f, bool *recursive);

/* ---- vgpu_jit_llvm.c: passes, machine code; vgpu_jit_cache.c: kept on disk ---- */
int jit_llvm_init(char *err, size_t err_len);
const char *jit_llvm_target(void); /* version, processor and features: a part of the cache's key */
void jit_llvm_prepare(LLVMModuleRef m);
int jit_llvm_compile(LLVMModuleRef m, void **object, size_t *bytes, char *err, size_t err_len);
/* Loads an object and finds n symbols of it. */
int jit_llvm_load(const void *object, size_t bytes, const char *const *symbols, void **addresses, unsigned n, char *err,
                  size_t err_len);

struct jit_hash {
    uint64_t word[2];
};
void jit_hash_add(struct jit_hash *h, const void *bytes, size_t count);
int jit_cache_read(const struct jit_hash *key, void **object, size_t *bytes); /* 0: found; free it */
void jit_cache_write(const struct jit_hash *key, const void *object, size_t bytes);

#endif
