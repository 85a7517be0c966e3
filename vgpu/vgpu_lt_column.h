/* One column of D. Included by vgpu_lt_epilogue.c once for each type of sums: REAL, EXP, NAME, IS_WIDE. */

/* alpha · sums + beta · C + bias */
static void NAME(combine)(const struct state *s, int64_t j, REAL *v) {
    const struct vgpu_lt_epilogue *e = s->e;
    const struct vgpu_lt_product *p = e->product;
    const struct vgpu_lt_matrix *c = &p->c;
    const REAL alpha = (REAL)(e->column_scales ? e->alpha * (double)e->column_scales[j] : e->alpha);
    const REAL beta = (REAL)e->beta, *restrict alphas = s->alphas, *restrict bias = s->bias;
    REAL *restrict other = s->other;
    if (alpha != 1)
        for (int64_t i = 0; i < p->m; i++) v[i] *= alpha;
    if (alphas)
        for (int64_t i = 0; i < p->m; i++) v[i] *= alphas[i];
    if (e->row_scales)
        for (int64_t i = 0; i < p->m; i++) v[i] *= (REAL)e->row_scales[i];
    if (beta != 0) {
        vgpu_lt_load(IS_WIDE, c->type, e->c, c->row ? j : j * c->ld, c->row ? c->ld : 1, p->m, other);
        for (int64_t i = 0; i < p->m; i++) v[i] += beta * other[i];
    }
    if (bias)
        for (int64_t i = 0; i < p->m; i++) v[i] += bias[i];
}

/* The input of GELU is kept for the backward pass. */
static void NAME(keep_input)(struct state *s, int64_t j, const REAL *v) {
    const struct vgpu_lt_product *p = s->e->product;
    REAL *restrict other = s->other, scale = p->desc.aux_scale ? (REAL)*p->desc.aux_scale : 1;
    for (int64_t i = 0; i < p->m; i++) {
        double size = v[i] < 0 ? -(double)v[i] : (double)v[i];
        s->aux_amax = size > s->aux_amax ? size : s->aux_amax;
        other[i] = v[i] * scale;
    }
    vgpu_lt_store(IS_WIDE, p->aux_type, s->e->aux, j * p->desc.aux_ld, 1, p->m, other);
}

static void NAME(relu)(const struct state *s, int64_t j, REAL *v) {
    const struct vgpu_lt_product *p = s->e->product;
    if (p->desc.epilogue & AUX)
        for (int64_t i = 0; i < p->m; i++) set_bit(s->e->aux, j * p->desc.aux_ld + i, v[i] > 0);
    for (int64_t i = 0; i < p->m; i++) v[i] = v[i] < 0 ? 0 : v[i];
}

/* 1/2 (1 + tanh u) = 1 / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x³) */
static REAL NAME(gate)(REAL x) {
    const REAL a = (REAL)1.5957691216057308, b = (REAL)0.044715; /* a = 2 sqrt(2/pi) */
    return 1 / (1 + EXP(-a * (x + b * x * x * x)));
}

static REAL NAME(gelu_slope)(REAL x) {
    const REAL a = (REAL)1.5957691216057308, b = (REAL)0.134145; /* 3 · 0.044715 */
    REAL g = NAME(gate)(x);
    return g + (g > 0 && g < 1 ? x * g * (1 - g) * a * (1 + b * x * x) : 0);
}

static void NAME(activate)(struct state *s, int64_t j, REAL *v) {
    const struct vgpu_lt_product *p = s->e->product;
    uint32_t kind = p->desc.epilogue;
    REAL *restrict other = s->other;
    if (kind & GELU && kind & AUX) NAME(keep_input)(s, j, v);
    if (kind & RELU) NAME(relu)(s, j, v);
    if (kind & GELU)
        for (int64_t i = 0; i < p->m; i++) v[i] *= NAME(gate)(v[i]);
    if (kind & DRELU)
        for (int64_t i = 0; i < p->m; i++) v[i] = bit(s->e->aux, j * p->desc.aux_ld + i) ? v[i] : 0;
    if (kind & DGELU) {
        vgpu_lt_load(IS_WIDE, p->aux_type, s->e->aux, j * p->desc.aux_ld, 1, p->m, other);
        for (int64_t i = 0; i < p->m; i++) v[i] *= NAME(gelu_slope)(other[i]);
    }
    if (kind & BGRAD)
        for (int64_t i = 0; i < p->m; i++) s->gradients[i] += (double)v[i];
}

static void NAME(column)(struct state *s, int64_t j, REAL *v) {
    const struct vgpu_lt_product *p = s->e->product;
    const struct vgpu_lt_matrix *d = &p->d;
    NAME(combine)(s, j, v);
    if (p->desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) NAME(activate)(s, j, v);
    for (int64_t i = 0; p->desc.amax && i < p->m; i++) {
        double size = v[i] < 0 ? -(double)v[i] : (double)v[i];
        s->amax = size > s->amax ? size : s->amax;
    }
    if (p->desc.d_scale)
        for (int64_t i = 0; i < p->m; i++) v[i] *= (REAL)*p->desc.d_scale;
    vgpu_lt_store(IS_WIDE, d->type, s->e->d, d->row ? j : j * d->ld, d->row ? d->ld : 1, p->m, v);
}
