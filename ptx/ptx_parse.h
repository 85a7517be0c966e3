/* What the parser's files share; nobody else includes it. A parse is one struct ptx_parser; a fault leaves it by
 * longjmp: to the module's handler (syntax, memory), or, for what only its function suffers from, to the function's. */
#ifndef ACCT_PTX_PARSE_H
#define ACCT_PTX_PARSE_H

#include <setjmp.h>
#include "ptx/ptx.h"
#include "ptx/ptx_lex.h"

/* Limits on what a text may ask for; real programs are far below. */
enum {
    PTX_MAX_SCOPES = 64, /* nested */
    PTX_MAX_REGS = 1 << 20,
    PTX_MAX_INIT_BYTES = 256 << 20, /* of all initialisers */
    PTX_MAX_LOCAL_BYTES = 1 << 24,  /* of one function */
    PTX_MAX_PARAM_BYTES = 1 << 20,
    PTX_MAX_ELEMENTS = 128 /* of wgmma */
};
#define PTX_LOCAL_VAR (1 << 30) /* while parsing: the function's variable number n is PTX_LOCAL_VAR + n */

/* ---- memory: an arena for what the module keeps, growing arrays for what does not ---- */
struct ptx_parser;
struct ptx_arena;
void *ptx_arena_bytes(struct ptx_parser *p, size_t bytes);  /* zeroed, aligned to 16; leaves the parse when none */
void *ptx_arena_try(struct ptx_arena *arena, size_t bytes); /* NULL when none */
char *ptx_arena_text(struct ptx_parser *p, const char *text, size_t length);
void ptx_arena_free(struct ptx_arena *arena);

struct ptx_list {
    void *items;
    int32_t count, room;
};
void *ptx_list_add(struct ptx_parser *p, struct ptx_list *list, size_t item_bytes);  /* zeroed */
void *ptx_list_keep(struct ptx_parser *p, struct ptx_list *list, size_t item_bytes); /* into the arena; list emptied */
#define PTX_AT(list, type, i) (&((type *)(list).items)[i])

/* ---- symbols ---- */
enum ptx_symbol_kind { PTX_S_NONE, PTX_S_REG, PTX_S_VAR, PTX_S_FUNC, PTX_S_LABEL, PTX_S_TARGETS };
struct ptx_symbol {
    const char *name;
    uint32_t length;
    int32_t scope;
    int32_t kind;  /* enum ptx_symbol_kind */
    int32_t index; /* of the register, variable, function; first instruction of a label; place in target_lists */
};
struct ptx_symbols { /* open addressing; names point into the text */
    struct ptx_symbol *slot;
    uint32_t room, count;
};
struct ptx_symbol *ptx_symbol_find(struct ptx_symbols *s, int32_t scope, const char *name, uint32_t length);
struct ptx_symbol *ptx_symbol_add(struct ptx_parser *p, struct ptx_symbols *s, const struct ptx_token *name,
                                  int32_t scope, enum ptx_symbol_kind kind, int32_t index); /* fails on a double */

struct ptx_range { /* .reg .b32 %r<9> */
    const char *name;
    uint32_t length, count;
    int32_t scope;
    uint8_t type;
};
struct ptx_scope {
    int32_t parent;
    uint32_t param_top; /* of call parameters when it began */
};
struct ptx_fixup { /* a branch to a label */
    struct ptx_token label;
    int32_t scope, instr;
};
struct ptx_targets {             /* name: .branchtargets A, B; */
    int32_t first, count, scope; /* in target_labels */
};

struct ptx_parser {
    struct ptx_lexer lexer, body_lexer; /* body_…: where the function's body begins */
    struct ptx_token token, next, body_token, body_next;
    struct ptx_module *module;
    struct ptx_arena *arena;
    struct ptx_error *error;
    jmp_buf module_fault, function_fault;
    bool in_body;
    size_t init_bytes;
    struct ptx_list vars, functions; /* of the module */
    struct ptx_list params, returns; /* struct ptx_declaration, of the function under way */
    struct ptx_list relocs;          /* of the initialiser under way */
    struct ptx_symbols symbols;
    /* The function under way. */
    struct ptx_function *f;
    struct ptx_list f_vars, regs, ranges, scopes, instrs, fixups, target_lists, target_labels, branch_targets;
    struct ptx_symbols f_symbols;
    int32_t scope, last_label;
    uint32_t param_top, param_max, local_top;
};

/* ---- faults and tokens ---- */
/* Syntax: ends the parse. */
_Noreturn void ptx_fault(struct ptx_parser *p, const struct ptx_token *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the function (within a body; else the parse). */
_Noreturn void ptx_refuse(struct ptx_parser *p, const struct ptx_token *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void ptx_no_memory(struct ptx_parser *p);
struct ptx_token ptx_take(struct ptx_parser *p); /* the token at which the parser is; on to the next */
bool ptx_is(struct ptx_parser *p, char punctuation);
bool ptx_is_word(struct ptx_parser *p, const char *word);
bool ptx_accept(struct ptx_parser *p, char punctuation);
bool ptx_accept_word(struct ptx_parser *p, const char *word);
void ptx_expect(struct ptx_parser *p, char punctuation);
struct ptx_token ptx_expect_name(struct ptx_parser *p);
uint64_t ptx_expect_integer(struct ptx_parser *p);        /* with a sign: two's complement */
void ptx_skip_line(struct ptx_parser *p);                 /* what follows on the line of the last token taken */
void ptx_skip_to(struct ptx_parser *p, char punctuation); /* and past it */
void ptx_skip_braces(struct ptx_parser *p);               /* from an open brace past its partner */

/* ---- the grammar's parts, one file each ---- */
struct ptx_declaration { /* .space .align 4 .v4 .type name[…] */
    struct ptx_var var;
    struct ptx_token name;
    bool is_array;
};
enum ptx_space ptx_accept_space(struct ptx_parser *p); /* a declaration's: NONE if there is none */
enum ptx_type ptx_type_of_word(const struct ptx_token *word);
void ptx_parse_variables(struct ptx_parser *p, enum ptx_space space, const struct ptx_var *linkage);
void ptx_parse_params(struct ptx_parser *p, struct ptx_list *params, bool entry); /* ( … ) */
int32_t ptx_add_module_var(struct ptx_parser *p, const struct ptx_declaration *d, int32_t scope);
void ptx_parse_body(struct ptx_parser *p);
int32_t ptx_find_reg(struct ptx_parser *p, const struct ptx_token *name); /* -1: none */
struct ptx_symbol *ptx_find_local(struct ptx_parser *p, const struct ptx_token *name);
struct ptx_symbol *ptx_find_symbol(struct ptx_parser *p, const struct ptx_token *name); /* local, then module */
const struct ptx_var *ptx_parsed_var(struct ptx_parser *p, int32_t var); /* by the number it has while parsing */
bool ptx_is_end(const struct ptx_instr *i);                              /* nothing of this thread comes behind it */
void ptx_parse_instr(struct ptx_parser *p, const struct ptx_token *opcode, const struct ptx_operand *guard);
/* Instructions with shapes of their own (mma, wmma, cp.async …): modifiers, operands, and what they become. False: it
 * is none of them. */
bool ptx_parse_special(struct ptx_parser *p, enum ptx_op op, const struct ptx_token *opcode,
                       const struct ptx_operand *guard);
/* An atomic of a vector is as many atomics. */
void ptx_parse_elements(struct ptx_parser *p, const struct ptx_instr *i, const struct ptx_token *at);
struct ptx_operand *ptx_keep_operands(struct ptx_parser *p, const struct ptx_operand *o, unsigned count);
void ptx_parse_modifiers(struct ptx_parser *p, struct ptx_instr *i);
void ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *out);
/* A literal as the bits of a type: integers sign-extended from its width, floats rounded to it. */
uint64_t ptx_literal_bits(enum ptx_type type, uint64_t bits, enum ptx_literal literal, bool negative);
void ptx_check_instr(struct ptx_parser *p, struct ptx_instr *i, const struct ptx_token *at);
void ptx_parse_finish(struct ptx_parser *p); /* after all functions: layouts, properties, errors of callees */

#endif
