/* The functions that PTX leaves to the device: ex2, lg2, sin, cos, tanh, on lanes of f32, as polynomials that LLVM
 * vectorises. Relative error of ex2 below 2^-22, of lg2 below 2^-22 (absolute near 1), of tanh below 2^-21; absolute
 * error of sin and cos below 2^-23 for |x| < 2^30: within what NVIDIA states for the .approx forms (2^-22, 2^-22,
 * 2^-11, 2^-20.5). Coefficients are minimax fits. rcp, rsqrt, sqrt and div .approx are the correctly rounded ones. */
#include "vgpu/vgpu_jit_float.h"

static LLVMValueRef number(struct jit_gen *g, double v) {
    return jit_const_float(g, 32, v);
}
static LLVMValueRef mad(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    return jit_call3(g, "llvm.fmuladd", a, b, c);
}
static LLVMValueRef times(struct jit_gen *g, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFMul(g->b, a, b, "");
}

/* c[0] + c[1] x + … */
static LLVMValueRef polynomial(struct jit_gen *g, LLVMValueRef x, const double *c, int n) {
    LLVMValueRef r = number(g, c[n - 1]);
    for (int k = n - 2; k >= 0; k--) r = mad(g, r, x, number(g, c[k]));
    return r;
}

/* 2^n of a small integer n. */
static LLVMValueRef power(struct jit_gen *g, LLVMValueRef n) {
    LLVMValueRef e = LLVMBuildAdd(g->b, n, jit_const(g, 32, 127), "");
    return jit_to_float(g, LLVMBuildShl(g->b, e, jit_const(g, 32, 23), ""));
}

LLVMValueRef jit_ex2(struct jit_gen *g, LLVMValueRef x) {
    static const double c[] = {1,
                               0.6931472057371989,
                               0.24022646890479005,
                               0.05550328777078314,
                               0.009618488973891767,
                               0.001339993118286184,
                               0.00015345807490265914};
    LLVMValueRef low = number(g, -160), high = number(g, 136);
    LLVMValueRef y = jit_select(g, jit_ordered(g, LLVMRealOGT, x, low), x, low);
    y = jit_select(g, jit_ordered(g, LLVMRealOLT, y, high), y, high);
    LLVMValueRef n = jit_call1(g, "llvm.rint", y), f = LLVMBuildFSub(g->b, y, n, "");
    LLVMValueRef k = LLVMBuildFPToSI(g->b, n, jit_int(g, 32), "");
    /* In two factors: one would not reach subnormal and infinite results. */
    LLVMValueRef half = LLVMBuildAShr(g->b, k, jit_const(g, 32, 1), "");
    LLVMValueRef r = times(g, polynomial(g, f, c, 7), power(g, half));
    r = times(g, r, power(g, LLVMBuildSub(g->b, k, half, "")));
    return jit_select(g, jit_ordered(g, LLVMRealUNO, x, x), x, r);
}

/* x = m 2^e with m about 1; log2 m by the series in s = (m - 1) / (m + 1). */
LLVMValueRef jit_lg2(struct jit_gen *g, LLVMValueRef x) {
    static const double c[] = {2.8853900797872325, 0.9617988492106141, 0.5767141945976528, 0.43174123413399346};
    LLVMValueRef one = number(g, 1), zero = number(g, 0), inf = jit_to_float(g, jit_const(g, 32, 0x7f800000));
    LLVMValueRef small = jit_ordered(g, LLVMRealOLT, x, jit_to_float(g, jit_const(g, 32, 0x00800000)));
    LLVMValueRef n = jit_to_int(g, jit_select(g, small, times(g, x, number(g, 0x1p24)), x));
    LLVMValueRef from = jit_const(g, 32, 0x3f3504f3); /* the root of 1/2 */
    LLVMValueRef e = LLVMBuildAShr(g->b, LLVMBuildSub(g->b, n, from, ""), jit_const(g, 32, 23), "");
    LLVMValueRef m = LLVMBuildSub(g->b, n, LLVMBuildShl(g->b, e, jit_const(g, 32, 23), ""), "");
    LLVMValueRef f = LLVMBuildFSub(g->b, jit_to_float(g, m), one, "");
    LLVMValueRef s = LLVMBuildFDiv(g->b, f, LLVMBuildFAdd(g->b, f, number(g, 2), ""), "");
    LLVMValueRef exponent = LLVMBuildSIToFP(g->b, e, jit_float(g, 32), "");
    exponent = LLVMBuildFSub(g->b, exponent, jit_select(g, small, number(g, 24), zero), "");
    LLVMValueRef r = mad(g, polynomial(g, times(g, s, s), c, 4), s, exponent);
    r = jit_select(g, jit_ordered(g, LLVMRealOLT, x, inf), r, x); /* infinity, NaN */
    r = jit_select(g, jit_ordered(g, LLVMRealOEQ, x, zero), number(g, -__builtin_inf()), r);
    return jit_select(g, jit_ordered(g, LLVMRealOLT, x, zero), jit_to_float(g, jit_const(g, 32, 0x7fffffff)), r);
}

/* The argument less a multiple of a quarter turn, in double; *quarter: that multiple modulo 4. */
static LLVMValueRef reduce(struct jit_gen *g, LLVMValueRef x, LLVMValueRef *quarter) {
    LLVMValueRef d = LLVMBuildFPExt(g->b, x, jit_float(g, 64), ""), limit = jit_const_float(g, 64, 0x1p52);
    LLVMValueRef n = jit_call1(g, "llvm.rint", times(g, d, jit_const_float(g, 64, 0.63661977236758134308)));
    n = jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, n), limit), n, jit_const_float(g, 64, 0));
    LLVMValueRef minus = LLVMBuildFNeg(g->b, n, "");
    LLVMValueRef r = mad(g, minus, jit_const_float(g, 64, 1.57079632679489655800), d);
    r = mad(g, minus, jit_const_float(g, 64, 6.12323399573676603587e-17), r);
    LLVMValueRef turns = jit_call1(g, "llvm.floor", times(g, n, jit_const_float(g, 64, 0.25)));
    LLVMValueRef q = mad(g, turns, jit_const_float(g, 64, -4), n);
    *quarter = LLVMBuildFPToSI(g->b, q, jit_int(g, 32), "");
    return LLVMBuildFPTrunc(g->b, r, jit_float(g, 32), "");
}

LLVMValueRef jit_sin(struct jit_gen *g, LLVMValueRef x, bool cosine) {
    static const double s[] = {0.9999999967617941, -0.1666665022423207, 0.008332016452747254, -0.00019501821980203587};
    static const double c[] = {1, -0.49999999571556236, 0.041666613233421884, -0.001388652914577168,
                               2.4372679063557057e-05};
    LLVMValueRef quarter, r = reduce(g, x, &quarter), t = times(g, r, r), one = jit_const(g, 32, 1);
    LLVMValueRef limit = number(g, 1), zero = number(g, 0);
    if (cosine) quarter = LLVMBuildAdd(g->b, quarter, one, "");
    LLVMValueRef sine = times(g, polynomial(g, t, s, 4), r), other = polynomial(g, t, c, 5);
    LLVMValueRef odd = jit_resize(g, quarter, 1, false);
    LLVMValueRef minus = jit_resize(g, LLVMBuildLShr(g->b, quarter, one, ""), 1, false);
    LLVMValueRef v = jit_select(g, odd, other, sine);
    v = jit_select(g, minus, LLVMBuildFNeg(g->b, v, ""), v);
    /* Too far out for a reduction in double: some number of [-1, 1]. Infinity, NaN: NaN. */
    v = jit_select(g, jit_ordered(g, LLVMRealOLE, jit_abs(g, v), limit), v, zero);
    LLVMValueRef inf = jit_to_float(g, jit_const(g, 32, 0x7f800000));
    return jit_select(g, jit_ordered(g, LLVMRealOLT, jit_abs(g, x), inf), v,
                      jit_to_float(g, jit_const(g, 32, 0x7fffffff)));
}

LLVMValueRef jit_tanh(struct jit_gen *g, LLVMValueRef x) {
    static const double c[] = {0.9999999268676336, -0.33332309962767936, 0.13310173497465805, -0.05210147301248921,
                               0.015475417651464792};
    LLVMValueRef a = jit_abs(g, x), one = number(g, 1);
    LLVMValueRef e = jit_ex2(g, times(g, a, number(g, 2.8853900817779268)));
    LLVMValueRef q = LLVMBuildFDiv(g->b, number(g, 2), LLVMBuildFAdd(g->b, e, one, ""), "");
    LLVMValueRef far = jit_call2(g, "llvm.copysign", LLVMBuildFSub(g->b, one, q, ""), x);
    LLVMValueRef near = times(g, polynomial(g, times(g, x, x), c, 5), x);
    LLVMValueRef r = jit_select(g, jit_ordered(g, LLVMRealOLT, a, number(g, 0.6)), near, far);
    return jit_select(g, jit_ordered(g, LLVMRealUNO, x, x), x, r);
}
