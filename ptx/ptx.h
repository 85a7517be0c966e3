/* A PTX module in memory: what the parser makes, and what the interpreter, the access analysis, the cost model and the
 * JIT read. Everything belongs to the module and lives until ptx_free; nothing changes after ptx_parse, so any thread
 * may read it. Input is untrusted: ptx_parse answers with an error or a module all of whose indices are within bounds.
 *
 * Names are those of the PTX ISA manual. A function is a list of instructions; labels are gone, branches hold the index
 * of a basic block. Registers of nested scopes have numbers of their own, so a function has one flat register file. */
#ifndef ACCT_PTX_H
#define ACCT_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types and spaces -------------------------------------------------------------------------------------------- */
/*  TYPE(NAME, "text", bits, kind)   kind: B untyped bits, U unsigned, S signed, F float, X2 two floats packed, P
 * predicate */
/* clang-format off */
#define PTX_TYPES(TYPE)                                                                                              \
    TYPE(NONE, "", 0, NONE)                                                                                          \
    TYPE(PRED, "pred", 1, P)                                                                                         \
    TYPE(B8, "b8", 8, B) TYPE(B16, "b16", 16, B) TYPE(B32, "b32", 32, B) TYPE(B64, "b64", 64, B)                     \
    TYPE(B128, "b128", 128, B)                                                                                       \
    TYPE(U8, "u8", 8, U) TYPE(U16, "u16", 16, U) TYPE(U32, "u32", 32, U) TYPE(U64, "u64", 64, U)                     \
    TYPE(S8, "s8", 8, S) TYPE(S16, "s16", 16, S) TYPE(S32, "s32", 32, S) TYPE(S64, "s64", 64, S)                     \
    TYPE(F16, "f16", 16, F) TYPE(BF16, "bf16", 16, F) TYPE(F32, "f32", 32, F) TYPE(F64, "f64", 64, F)                \
    TYPE(TF32, "tf32", 32, F)                                                                                        \
    TYPE(F16X2, "f16x2", 32, X2) TYPE(BF16X2, "bf16x2", 32, X2) TYPE(F32X2, "f32x2", 64, X2)                         \
    TYPE(U16X2, "u16x2", 32, U) TYPE(S16X2, "s16x2", 32, S) TYPE(E4M3X2, "e4m3x2", 16, X2) TYPE(E5M2X2, "e5m2x2", 16, X2)
/* clang-format on */
#define PTX_TYPE_ENUM(N, text, bits, kind) PTX_##N,
enum ptx_type { PTX_TYPES(PTX_TYPE_ENUM) PTX_TYPE_COUNT };
enum ptx_type_kind { PTX_KIND_NONE, PTX_KIND_P, PTX_KIND_B, PTX_KIND_U, PTX_KIND_S, PTX_KIND_F, PTX_KIND_X2 };

unsigned ptx_type_bits(enum ptx_type t);
unsigned ptx_type_bytes(enum ptx_type t); /* in memory; pred: 1 */
enum ptx_type_kind ptx_type_kind(enum ptx_type t);
const char *ptx_type_text(enum ptx_type t); /* without the dot */

enum ptx_space { PTX_SPACE_NONE, PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_CONST, PTX_PARAM };

/* ---- opcodes ----------------------------------------------------------------------------------------------------- */
enum ptx_property {
    PTX_P_READS = 1,  /* memory */
    PTX_P_WRITES = 2, /* memory */
    PTX_P_ATOMIC = 4,
    PTX_P_BARRIER = 8,  /* waits for threads of the block */
    PTX_P_WARP = 16,    /* exchanges values between the threads of a warp (bar.warp.sync and vote too) */
    PTX_P_CONTROL = 32, /* may leave the straight line */
    PTX_P_HINT = 64,    /* no effect on values: fences, prefetches */
    PTX_P_UNSUPPORTED = 128
};
#define OP(N, text, dsts, srcs, properties, flops, iops) PTX_OP_##N,
enum ptx_op {
#include "ptx/ptx_opcodes.def"
    PTX_OP_COUNT
};
#define PTX_ANY 255
struct ptx_op_info {
    const char *text;
    uint8_t dsts, srcs, properties, flops, iops;
};
extern const struct ptx_op_info ptx_ops[PTX_OP_COUNT];

/* ---- modifiers --------------------------------------------------------------------------------------------------- */
enum ptx_round { /* of a result, and cvt's to integers (I) */
                 PTX_ROUND_NONE,
                 PTX_RN,
                 PTX_RZ,
                 PTX_RM,
                 PTX_RP,
                 PTX_RNI,
                 PTX_RZI,
                 PTX_RMI,
                 PTX_RPI,
                 PTX_RNA,
                 PTX_RS
};
enum ptx_compare {
    PTX_CMP_NONE,
    PTX_EQ,
    PTX_NE,
    PTX_LT,
    PTX_LE,
    PTX_GT,
    PTX_GE,
    PTX_LO,
    PTX_LS,
    PTX_HI_CMP,
    PTX_HS,
    PTX_EQU,
    PTX_NEU,
    PTX_LTU,
    PTX_LEU,
    PTX_GTU,
    PTX_GEU,
    PTX_NUM,
    PTX_NAN
};
/* The operation of atom, red, redux; how setp and set combine with a predicate; the mode of shfl, vote, match, bar,
 * testp, shf, prmt. */
enum ptx_sub {
    PTX_SUB_NONE,
    PTX_SUB_ADD,
    PTX_SUB_MIN,
    PTX_SUB_MAX,
    PTX_SUB_INC,
    PTX_SUB_DEC,
    PTX_SUB_CAS,
    PTX_SUB_EXCH,
    PTX_SUB_AND,
    PTX_SUB_OR,
    PTX_SUB_XOR,
    PTX_SUB_UP,
    PTX_SUB_DOWN,
    PTX_SUB_BFLY,
    PTX_SUB_IDX, /* shfl */
    PTX_SUB_ALL,
    PTX_SUB_ANY,
    PTX_SUB_UNI,
    PTX_SUB_BALLOT, /* vote, match */
    PTX_SUB_BAR_SYNC,
    PTX_SUB_BAR_ARRIVE,
    PTX_SUB_BAR_WARP, /* bar{.cta}.sync, .arrive, bar.warp.sync */
    PTX_SUB_BAR_RED_POPC,
    PTX_SUB_BAR_RED_AND,
    PTX_SUB_BAR_RED_OR, /* bar.red */
    PTX_SUB_FINITE,
    PTX_SUB_INFINITE,
    PTX_SUB_NUMBER,
    PTX_SUB_NOTANUMBER,
    PTX_SUB_NORMAL,
    PTX_SUB_SUBNORMAL, /* testp */
    PTX_SUB_L_CLAMP,
    PTX_SUB_L_WRAP,
    PTX_SUB_R_CLAMP,
    PTX_SUB_R_WRAP, /* shf.l/.r, .clamp/.wrap */
    PTX_SUB_F4E,
    PTX_SUB_B4E,
    PTX_SUB_RC8,
    PTX_SUB_ECL,
    PTX_SUB_ECR,
    PTX_SUB_RC16, /* prmt; none: the general form */
    PTX_SUB_MB_INIT,
    PTX_SUB_MB_INVAL,
    PTX_SUB_MB_ARRIVE,    /* {state,} [barrier], count */
    PTX_SUB_MB_DROP,      /* arrive_drop */
    PTX_SUB_MB_ARRIVE_TX, /* arrive.expect_tx: the last source is bytes */
    PTX_SUB_MB_EXPECT_TX,
    PTX_SUB_MB_COMPLETE_TX,
    PTX_SUB_MB_WAIT,   /* test_wait, try_wait: p, [barrier], state */
    PTX_SUB_MB_PARITY, /* the same by the phase's parity */
    PTX_SUB_MB_PENDING /* pending_count: d, state */
};
enum ptx_modifier {
    PTX_M_FTZ = 1 << 0, /* subnormals to zero, operands and result */
    PTX_M_SAT = 1 << 1, /* floats: into [0, 1]; integers: clamp instead of wrap (add, sub, mad.hi, cvt) */
    PTX_M_APPROX = 1 << 2,
    PTX_M_FULL = 1 << 3, /* div.full */
    PTX_M_HI = 1 << 4,   /* mul.hi, mad.hi */
    PTX_M_LO = 1 << 5,
    PTX_M_WIDE = 1 << 6,
    PTX_M_CC = 1 << 7,  /* writes the carry flag (add.cc …) */
    PTX_M_UNI = 1 << 8, /* bra.uni, call.uni, ret.uni: all active threads go the same way */
    PTX_M_VOLATILE = 1 << 9,
    PTX_M_NAN = 1 << 10, /* min.NaN, max.NaN: NaN if an operand is */
    PTX_M_RELU = 1 << 11,
    PTX_M_XORSIGN = 1 << 12, /* min/max.xorsign.abs */
    PTX_M_ABS = 1 << 13,
    PTX_M_SATFINITE = 1 << 14,
    PTX_M_TO = 1 << 15,       /* cvta.to.SPACE: generic → space; without: space → generic */
    PTX_M_SHIFTAMT = 1 << 16, /* bfind.shiftamt; bmsk, szext .clamp: PTX_M_WRAP not set */
    PTX_M_WRAP = 1 << 17,
    PTX_M_ALIGNED = 1 << 18,
    PTX_M_NC = 1 << 19,    /* ld.global.nc: read-only for the kernel's life */
    PTX_M_NOFTZ = 1 << 20, /* atom.add.noftz */
    PTX_M_POLICY = 1 << 21 /* while parsing: .L2::cache_hint, the last operand is a cache policy */
};

/* ---- operands ---------------------------------------------------------------------------------------------------- */
/* Where the blocks of a cooperative launch meet: a device tells the address in %envreg1 (its upper half) and %envreg2;
 * here it is the same in every launch (vgpu_run_grid.c), so that the two are plain numbers. */
#define PTX_GRID_WORKSPACE UINT64_C(0x100100000000)

enum ptx_sreg { /* special registers; .x .y .z follow each other */
                PTX_TID_X,
                PTX_TID_Y,
                PTX_TID_Z,
                PTX_NTID_X,
                PTX_NTID_Y,
                PTX_NTID_Z,
                PTX_CTAID_X,
                PTX_CTAID_Y,
                PTX_CTAID_Z,
                PTX_NCTAID_X,
                PTX_NCTAID_Y,
                PTX_NCTAID_Z,
                PTX_LANEID,
                PTX_WARPID,
                PTX_NWARPID,
                PTX_SMID,
                PTX_NSMID,
                PTX_GRIDID,
                PTX_LANEMASK_EQ,
                PTX_LANEMASK_LE,
                PTX_LANEMASK_LT,
                PTX_LANEMASK_GE,
                PTX_LANEMASK_GT,
                PTX_CLOCK,
                PTX_CLOCK_HI,
                PTX_CLOCK64,
                PTX_GLOBALTIMER,
                PTX_GLOBALTIMER_LO,
                PTX_GLOBALTIMER_HI,
                PTX_DYNAMIC_SMEM_SIZE,
                PTX_TOTAL_SMEM_SIZE,
                PTX_ZERO_SREG /* those that are 0 here: cluster ranks of a kernel without clusters, %pm…; %nclusterid is
                                 not */
};

enum ptx_operand_kind {
    PTX_REG, /* reg */
    PTX_IMM, /* bits: in the representation of the operand's type (a float's IEEE bits), sign-extended if an integer */
    PTX_SYMBOL,  /* var (its address in its own space) + offset; or func: the address of a function */
    PTX_ADDRESS, /* memory: [reg + offset], [var + offset], [offset] */
    PTX_VECTOR,  /* elements: registers, immediates, or PTX_SINK */
    PTX_SREG_OP, /* sreg */
    PTX_SINK     /* _ : the value is not wanted */
};
struct ptx_operand {
    uint8_t kind;   /* enum ptx_operand_kind */
    bool negated;   /* !p, of a predicate source */
    uint8_t sreg;   /* enum ptx_sreg */
    uint8_t count;  /* of elements */
    int32_t reg;    /* -1: none */
    int32_t var;    /* number of a variable: see ptx_var; -1: none */
    int32_t func;   /* number of a function in the module; -1: none */
    int64_t offset; /* bytes */
    uint64_t bits;  /* PTX_IMM */
    struct ptx_operand *elements;
};

/* ---- matrix units ------------------------------------------------------------------------------------------------ */
/*  MX(NAME, "text", bits, kind)   bits: as a register holds it. kind: F float, I integer */
#define PTX_MATRIX_TYPES(MX)                                                                                           \
    MX(F64, "f64", 64, F)                                                                                              \
    MX(F32, "f32", 32, F)                                                                                              \
    MX(TF32, "tf32", 32, F)                                                                                            \
    MX(F16, "f16", 16, F)                                                                                              \
    MX(BF16, "bf16", 16, F)                                                                                            \
    MX(E4M3, "e4m3", 8, F) MX(E5M2, "e5m2", 8, F) MX(E3M2, "e3m2", 8, F) MX(E2M3, "e2m3", 8, F) MX(E2M1, "e2m1", 8, F) \
        MX(S32, "s32", 32, I) MX(S8, "s8", 8, I) MX(U8, "u8", 8, I) MX(S4, "s4", 4, I) MX(U4, "u4", 4, I)              \
            MX(B1, "b1", 1, I)
#define PTX_MATRIX_ENUM(N, text, bits, kind) PTX_MX_##N,
enum ptx_matrix_type { PTX_MX_NONE, PTX_MATRIX_TYPES(PTX_MATRIX_ENUM) PTX_MX_COUNT };
unsigned ptx_matrix_bits(enum ptx_matrix_type t);
bool ptx_matrix_is_float(enum ptx_matrix_type t);

/* A product of mma, wmma.mma or wgmma: D (m × n) = A (m × k) · B (k × n) + C. */
struct ptx_matrix {
    uint16_t m, n, k;
    uint16_t threads;   /* that do it together: 32, wgmma: 128 */
    uint8_t copies;     /* products done at once: m8n8k4 of f16 is four */
    uint8_t a, b, c, d; /* enum ptx_matrix_type */
    bool wmma;          /* which lane holds what is acct's choice: see ptx_matrix_place */
    bool sparse;        /* half of A's elements are zero and not stored: half the operations */
    bool executable;    /* the interpreter can do it */
    bool conjunction;   /* b1: .and.popc, not .xor.popc */
    bool satfinite;
};
/* Row and column of element e of lane `lane` in A (operand 'a'), B ('b') or C and D ('c'), `count` elements a lane. */
void ptx_matrix_place(const struct ptx_matrix *x, char operand, unsigned count, unsigned lane, unsigned e,
                      unsigned *row, unsigned *column);
/* Operations that one thread's part of it is: an integer, 2 · m · n · k divided by its threads. */
int64_t ptx_matrix_share(const struct ptx_matrix *x);

struct ptx_instr {
    uint8_t op;                  /* enum ptx_op */
    uint8_t type;                /* enum ptx_type: of the operation; of the result if there are two (cvt.TYPE.TYPE2) */
    uint8_t type2;               /* of the sources where another type is written (cvt, set, slct.c, mad.wide: none) */
    uint8_t space;               /* ld, st, atom, red, cvta, isspacep: enum ptx_space; no space written: PTX_GENERIC */
    uint8_t vector;              /* 1, 2, 4, 8: elements of ld and st */
    uint8_t round, compare, sub; /* enums above */
    uint8_t combine;             /* setp, set: enum ptx_sub AND, OR, XOR with the last source; 0 */
    uint8_t lut;                 /* lop3's table, an operand in the text */
    uint8_t dsts, srcs;          /* numbers of operands */
    bool guard_negated;
    /* Part of the instruction before or behind it, which the parser has written as several simpler ones: no instruction
     * of the text, and its integer arithmetic is not the program's. */
    bool helper;
    uint32_t modifiers;   /* enum ptx_modifier */
    int32_t guard;        /* register of @p; -1: none */
    int32_t line, column; /* of the text, from 1 */
    /* call: number of a function in the module (perhaps without body). -1: indirect, and the first source is the
     * register with the function's address. All other operands are PTX_SYMBOLs of .param variables of this function: as
     * many as the callee has parameters and return values, of the same sizes (an indirect callee's are not checked). */
    int32_t callee;
    int32_t target;            /* bra: block; -1 */
    int32_t targets0, targets; /* brx: its blocks, in ptx_function.branch_targets */
    struct ptx_operand *dst, *src;
    const struct ptx_matrix *matrix; /* mma, wgmma: its shape and types; operands are vectors D; A, B, C */
};

/* Type of operand number n (of the destinations, or of the sources): what the parser has checked it against. An address
 * has none. mov of a vector: of the whole; ld, st: of an element. */
enum ptx_type ptx_operand_type(const struct ptx_instr *i, bool dst, unsigned n);
bool ptx_is_address(const struct ptx_instr *i, unsigned n); /* source n is a PTX_ADDRESS */

/* ---- variables, functions, modules ------------------------------------------------------------------------------- */
struct ptx_reloc {     /* an initialiser that is an address */
    uint32_t at;       /* byte of the variable; 8 bytes there */
    int32_t var, func; /* one of them -1 */
    int64_t offset;
    bool generic; /* generic(name): a generic address */
};
/* A variable. Numbers below module->var_count are the module's, with the .shared, .global and .const ones that are
 * declared in functions; a function's own (parameters, local, .param of calls) follow from module->var_count on:
 * ptx_var_of finds both. */
struct ptx_var {
    const char *name;
    uint8_t space, type;
    bool external; /* .extern: for .shared, the dynamic shared memory */
    bool visible, weak;
    uint32_t align;      /* bytes */
    uint64_t bytes;      /* all of it; 0: [] */
    uint64_t offset;     /* parameters: in the parameter buffer. local and call .param: in the thread's local memory */
    const uint8_t *init; /* bytes long; NULL: zero */
    const struct ptx_reloc *relocs;
    uint32_t reloc_count;
    bool is_pointer; /* .ptr on an entry's parameter */
};
struct ptx_reg {
    const char *name;
    uint8_t type;
};
struct ptx_block {
    int32_t first, end;     /* instructions [first, end) */
    int32_t succ[2], succs; /* fall-through (or false) first, then the branch; brx: see branch_targets; exit: none */
    int32_t pred0, preds;   /* in ptx_function.pred */
    int32_t idom, ipdom;    /* immediate (post)dominator; -1: none (entry; leaves the function) */
    int32_t rank;           /* place in reverse post-order; -1: not reachable */
};
struct ptx_shared_use {
    int32_t var;
    uint64_t offset; /* in the block's shared memory; external ones all begin behind the static part */
};
struct ptx_function {
    const char *name; /* mangled, as in the text */
    bool entry;
    bool declared_only; /* no body: vprintf, __assertfail, malloc, or another unit's */
    const char *error;  /* "line 12: unknown opcode 'foo'": cannot be used; NULL: fine */
    int32_t line;
    struct ptx_var *vars; /* parameters, then return values (behind them in the parameter buffer), then the rest */
    int32_t var_count, params, returns;
    uint32_t param_bytes; /* of the parameter buffer */
    struct ptx_reg *regs;
    int32_t reg_count;
    struct ptx_instr *instrs;
    int32_t instr_count;
    struct ptx_block *blocks; /* block 0 is the entry */
    int32_t block_count;
    int32_t *branch_targets, *pred;
    uint32_t local_bytes;  /* of a thread, this function alone; stack frames of callees come on top */
    uint32_t shared_bytes; /* static, with what its callees use */
    struct ptx_shared_use *shared;
    int32_t shared_count;
    uint32_t max_threads[3], required_threads[3]; /* .maxntid, .reqntid; 0: not given */
    uint32_t min_blocks;                          /* .minnctapersm */
    uint32_t properties;                          /* of all instructions, callees too: enum ptx_property, or-ed */
};
struct ptx_module {
    uint32_t version;   /* of the ISA: 10 * major + minor */
    uint32_t sm;        /* .target sm_80: 80 */
    char target_suffix; /* 'a', 'f' or 0 */
    uint32_t address_bits;
    struct ptx_var *vars;
    int32_t var_count;
    struct ptx_function *functions;
    int32_t function_count;
    void *arena;
};

struct ptx_error {
    int32_t line, column; /* from 1; 0: none */
    char text[200];       /* one line, without place */
};

/* Parses `bytes` of text (a NUL at its end is ignored). 0, or -1 with *error set: syntax, or no memory. An unknown or
 * unsupported instruction is no error of the module: it sets the error of its function. The text may be released. */
int ptx_parse(const char *text, size_t bytes, struct ptx_module **out, struct ptx_error *error);
void ptx_free(struct ptx_module *module); /* NULL: nothing */

const struct ptx_function *ptx_function_find(const struct ptx_module *module, const char *name); /* NULL: none */
int32_t ptx_global_find(const struct ptx_module *module, const char *name);                      /* -1: none */
const struct ptx_var *ptx_var_of(const struct ptx_module *module, const struct ptx_function *f, int32_t var);
/* Where a shared variable lies in the block's shared memory of entry `f`; -1: not used by it. */
int64_t ptx_shared_offset(const struct ptx_function *f, int32_t var);
/* The function's control flow graph from its instructions: blocks, dominators. For ptx_parse; -1: no memory. */
int ptx_flow(struct ptx_module *module, struct ptx_function *f);

#endif
