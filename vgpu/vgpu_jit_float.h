/* Float operations on values, for the files that build on them: one operation on lanes of f32 or f64. */
#ifndef VGPU_JIT_FLOAT_H
#define VGPU_JIT_FLOAT_H

#include "vgpu/vgpu_jit.h"

/* The instruction's operation with its modifiers; NULL: none of these files' operations. */
LLVMValueRef jit_float_op(struct jit_gen *g, const struct ptx_instr *i, unsigned bits, LLVMValueRef v[3]);
/* a + b with the last bit set where inexact: rounding it once more to a shorter format is right in any mode. */
LLVMValueRef jit_add_odd(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef jit_abs(struct jit_gen *g, LLVMValueRef v);
LLVMValueRef jit_ordered(struct jit_gen *g, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef jit_add_in_mode(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, unsigned round); /* f64 */
/* The neighbour of t in the direction of the mode, where `low` (t is below the exact value) or `high` is set. */
LLVMValueRef jit_step(struct jit_gen *g, LLVMValueRef t, unsigned round, LLVMValueRef low, LLVMValueRef high);

#endif
