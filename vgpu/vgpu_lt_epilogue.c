/* What cuBLASLt does between the sums and D: D_temp = epilogue(alpha · sums + beta · C), D = scale · D_temp, a column
 * at a time. Everything is computed in fp32 (fp64 and int8: in fp64) and rounded once, at the store. */
#include "vgpu/vgpu_lt.h"

#include <math.h>

enum { BIAS = CUBLASLT_EPILOGUE_BIAS, RELU = CUBLASLT_EPILOGUE_RELU, GELU = CUBLASLT_EPILOGUE_GELU };
enum { DRELU = 8, BGRAD = 16, DGELU = 64, AUX = 128 }; /* bits of cublasLtEpilogue_t that have no name of their own */

void vgpu_lt_load(bool wide, cudaDataType_t type, const void *p, int64_t first, int64_t step, int64_t n, void *out) {
    if (!wide && step == 1) {
        vgpu_widen(type, (const char *)p + first * (int64_t)vgpu_element_bytes(type), out, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (wide)
            ((double *)out)[i] = vgpu_load(type, p, first + i * step);
        else
            ((float *)out)[i] = (float)vgpu_load(type, p, first + i * step);
}

void vgpu_lt_store(bool wide, cudaDataType_t type, void *p, int64_t first, int64_t step, int64_t n, const void *from) {
    if (!wide && step == 1) {
        vgpu_narrow(type, from, (char *)p + first * (int64_t)vgpu_element_bytes(type), n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        vgpu_store(type, p, first + i * step, wide ? ((const double *)from)[i] : (double)((const float *)from)[i]);
}

/* ReLU's mask: one bit an element, the lowest first. */
static bool bit(const uint8_t *bits, int64_t i) {
    return bits[i / 8] >> i % 8 & 1;
}

static void set_bit(uint8_t *bits, int64_t i, bool on) {
    uint8_t mask = (uint8_t)(1u << i % 8);
    bits[i / 8] = (uint8_t)(on ? bits[i / 8] | mask : bits[i / 8] & ~mask);
}

/* What a matrix's columns share. */
struct state {
    const struct vgpu_lt_epilogue *e;
    void *bias, *alphas, *other; /* m elements each, float or double: what is added; factors; C or aux of a column */
    double *gradients;           /* m: sums of the columns */
    double amax, aux_amax;
};

#define REAL float
#define EXP expf
#define NAME(x) x##_float
#define IS_WIDE false
#include "vgpu/vgpu_lt_column.h"
#undef REAL
#undef EXP
#undef NAME
#undef IS_WIDE

#define REAL double
#define EXP exp
#define NAME(x) x##_double
#define IS_WIDE true
#include "vgpu/vgpu_lt_column.h"

static bool open_state(struct state *s) {
    const struct vgpu_lt_product *p = s->e->product;
    size_t m = (size_t)p->m, line = m * (p->wide ? sizeof(double) : sizeof(float));
    uint32_t kind = p->desc.epilogue;
    s->other = vgpu_scratch_take(line);
    s->bias = kind & BIAS ? vgpu_scratch_take(line) : NULL;
    s->alphas = s->e->alphas ? vgpu_scratch_take(line) : NULL;
    s->gradients = kind & BGRAD ? vgpu_scratch_take(m * sizeof(double)) : NULL;
    if (!s->other || (kind & BIAS && !s->bias) || (s->e->alphas && !s->alphas) || (kind & BGRAD && !s->gradients))
        return false;
    if (s->bias) vgpu_lt_load(p->wide, p->bias_type, s->e->bias, 0, 1, p->m, s->bias);
    if (s->alphas) vgpu_lt_load(p->wide, (cudaDataType_t)p->desc.scale, s->e->alphas, 0, 1, p->m, s->alphas);
    for (int64_t i = 0; s->gradients && i < p->m; i++) s->gradients[i] = 0;
    return true;
}

static void close_state(struct state *s) {
    const struct vgpu_lt_product *p = s->e->product;
    if (s->gradients)
        for (int64_t i = 0; i < p->m; i++) vgpu_store(p->bias_type, s->e->bias, i, s->gradients[i]);
    if (p->desc.amax && s->amax > *p->desc.amax) *p->desc.amax = (float)s->amax;
    if (p->desc.aux_amax && s->aux_amax > *p->desc.aux_amax) *p->desc.aux_amax = (float)s->aux_amax;
}

bool vgpu_lt_epilogue_run(const struct vgpu_lt_epilogue *e) {
    const struct vgpu_lt_product *p = e->product;
    struct state s = {.e = e};
    bool good = open_state(&s);
    for (int64_t j = 0; good && j < p->n; j++)
        if (p->wide)
            column_double(&s, j, (double *)e->sums + j * p->m);
        else
            column_float(&s, j, (float *)e->sums + j * p->m);
    if (good) close_state(&s);
    vgpu_scratch_give(s.other);
    vgpu_scratch_give(s.bias);
    vgpu_scratch_give(s.alphas);
    vgpu_scratch_give(s.gradients);
    return good;
}
