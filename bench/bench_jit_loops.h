/* The same six as C loops, compiled with -O3 -march=native -ffast-math: bench_jit's peer. */
#ifndef BENCH_JIT_LOOPS_H
#define BENCH_JIT_LOOPS_H

void loop_saxpy(float *y, const float *x, float a, int n);
void loop_residual(float *out, const float *a, const float *b, int n);
void loop_adamw(float *w, float *m, float *v, const float *g, const float p[7], int n); /* lr b1 b2 c1 c2 eps decay */
void loop_gelu(float *out, const float *x, int n);
void loop_layernorm(float *out, const float *in, const float *weight, const float *bias, int rows, int C);
void loop_softmax(float *out, const float *in, int rows, int C);

#endif
