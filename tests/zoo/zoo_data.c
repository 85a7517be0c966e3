/* Data of the zoo: what buffers begin with, how parameters are laid out, how results are compared; halves. */
#include "tests/zoo/zoo.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const unsigned bytes_of[] = {[ZOO_F32] = 4, [ZOO_F64] = 8, [ZOO_F16] = 2, [ZOO_BF16] = 2, [ZOO_I32] = 4,
                                    [ZOO_U32] = 4, [ZOO_I64] = 8, [ZOO_U64] = 8, [ZOO_U16] = 2,  [ZOO_U8] = 1};

unsigned zoo_bytes(const struct zoo_arg *a) {
    return a->count * bytes_of[a->type];
}

/* ---- halves ---- */
/* (-1)^sign × (1 + m / 2^bits) × 2^(e - bias), or m / 2^bits × 2^(1 - bias). */
double zoo_half(enum zoo_type type, uint16_t v) {
    int bits = type == ZOO_F16 ? 10 : 7, bias = type == ZOO_F16 ? 15 : 127, top = type == ZOO_F16 ? 31 : 255;
    int e = (v & 0x7fff) >> bits, m = v & ((1 << bits) - 1);
    double d = e == top ? (m ? NAN : INFINITY) : e ? ldexp(1 + ldexp(m, -bits), e - bias) : ldexp(m, 1 - bias - bits);
    return v & 0x8000 ? -d : d;
}

/* The two neighbours in the ordered list of all positive values; beyond the last comes what would follow it. */
uint16_t zoo_to_half(enum zoo_type type, double v, enum zoo_round mode) {
    uint16_t infinity = type == ZOO_F16 ? 0x7c00 : 0x7f80, sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v)) return 0x7fff;
    if (isinf(v)) return sign | infinity;
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (zoo_half(type, middle) <= a)
            low = middle;
        else
            high = middle;
    }
    double below = zoo_half(type, low),
           above = high == infinity ? ldexp(1, type == ZOO_F16 ? 16 : 128) : zoo_half(type, high);
    if (a == below) return sign | low;
    bool up;
    if (mode == ZOO_RN)
        up = a - below > above - a || (a - below == above - a && (low & 1));
    else
        up = (mode == ZOO_RU && !sign) || (mode == ZOO_RD && sign);
    if (a > above) /* far beyond the last */
        up = mode == ZOO_RN || up;
    return sign | (up ? high : low);
}

/* ---- data ---- */
uint32_t zoo_hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static uint32_t random_at(const struct zoo_case *c, int arg, uint32_t i) {
    uint32_t seed = 2166136261u;
    for (const char *s = c->name; *s; s++) seed = (seed ^ (unsigned char)*s) * 16777619u;
    return zoo_hash(zoo_hash(seed + (uint32_t)arg * 7919) + i);
}

static double number(const struct zoo_case *c, int arg, uint32_t i) {
    const struct zoo_arg *a = &c->arg[arg];
    uint32_t r = random_at(c, arg, i);
    switch (a->init) {
    case ZOO_UNIFORM:
        return ldexp((int32_t)r, -31);
    case ZOO_WIDE: {
        int range = a->type == ZOO_F16 ? 12 : a->type == ZOO_F64 ? 25 : 20;
        double m = 1 + ldexp(r >> 8 & 0xfff, -12); /* 13 bits: many ties of an 11-bit significand */
        if (r & 1 && a->type != ZOO_F16 && a->type != ZOO_BF16)
            m += ldexp(zoo_hash(r) >> 8, -36 + (a->type == ZOO_F32 ? 12 : 0));
        return ldexp(r & 2 ? -m : m, (int)(zoo_hash(r + 1) % (2 * (uint32_t)range)) - range);
    }
    case ZOO_SMALL:
        return r % 100;
    case ZOO_INTS:
        return (double)(r % 100) - 50;
    case ZOO_NONZERO:
        return r % 2 ? 1 + r % 50 : -1.0 - r % 50;
    case ZOO_PERMUTED: /* 7 has no common divisor with the counts used */
        return (i * 7 + 3) % a->count;
    case ZOO_STARTS:
        return i == 0 ? 0 : i == a->count - 1 ? (double)a->i : floor((double)a->i * i / a->count) - r % 4;
    default:
        return 0;
    }
}

static void put(const struct zoo_case *c, int arg, uint32_t i, void *to) {
    const struct zoo_arg *a = &c->arg[arg];
    double d = number(c, arg, i);
    int64_t k = (int64_t)d;
    if (a->init == ZOO_UNIFORM && a->type >= ZOO_I32)
        k = (int64_t)((uint64_t)random_at(c, arg, i) << 32 | zoo_hash(random_at(c, arg, i)));
    switch (a->type) {
    case ZOO_F32:
        ((float *)to)[i] = (float)d;
        break;
    case ZOO_F64:
        ((double *)to)[i] = d;
        break;
    case ZOO_F16:
    case ZOO_BF16:
        ((uint16_t *)to)[i] = zoo_to_half(a->type, d, ZOO_RN);
        break;
    default:
        memcpy((char *)to + i * bytes_of[a->type], &k, bytes_of[a->type]);
    }
}

/* What is only written begins with a pattern, so that a write too many shows. */
void zoo_fill(const struct zoo_case *c, int arg, void *to) {
    const struct zoo_arg *a = &c->arg[arg];
    if (a->out && a->init == ZOO_ZERO && zoo_bytes(a) > 32) {
        memset(to, 0x5a, zoo_bytes(a));
        return;
    }
    for (uint32_t i = 0; i < a->count; i++) put(c, arg, i, to);
}

/* ---- parameters ---- */
static size_t scalar(const struct zoo_arg *a, unsigned char *to) {
    double d = a->f;
    switch (a->kind) {
    case 'f':
        memcpy(to, &a->f, 4);
        return 4;
    case 'd':
        memcpy(to, &d, 8);
        return 8;
    case 'l':
        memcpy(to, &a->i, 8);
        return 8;
    default:
        memcpy(to, &a->i, 4);
        return 4;
    }
}

size_t zoo_pack(const struct zoo_case *c, const uint64_t *addresses, unsigned char *to, size_t *offset) {
    size_t at = 0;
    for (int k = 0; k < c->args; k++) {
        const struct zoo_arg *a = &c->arg[k];
        unsigned char v[8];
        size_t bytes = a->kind == 'b' ? 8 : scalar(a, v);
        if (a->kind == 'b') memcpy(v, &addresses[k], 8);
        at = (at + bytes - 1) / bytes * bytes;
        offset[k] = at;
        memcpy(to + at, v, bytes);
        at += bytes;
    }
    return at;
}

/* ---- comparison ---- */
static double value(enum zoo_type type, const void *p, uint32_t i) {
    switch (type) {
    case ZOO_F32:
        return ((const float *)p)[i];
    case ZOO_F64:
        return ((const double *)p)[i];
    case ZOO_F16:
    case ZOO_BF16:
        return zoo_half(type, ((const uint16_t *)p)[i]);
    default:
        return 0;
    }
}

static bool same(const struct zoo_arg *a, const void *got, const void *want, uint32_t i) {
    unsigned n = bytes_of[a->type];
    if (!memcmp((const char *)got + i * n, (const char *)want + i * n, n)) return true;
    if (a->type > ZOO_BF16) return false;
    double g = value(a->type, got, i), w = value(a->type, want, i);
    return (isnan(g) && isnan(w)) || (a->tolerance > 0 && fabs(g - w) <= a->tolerance * fmax(1, fabs(w)));
}

bool zoo_equal(const struct zoo_case *c, int arg, const void *got, const void *want, char *err, size_t err_len) {
    const struct zoo_arg *a = &c->arg[arg];
    unsigned n = bytes_of[a->type];
    for (uint32_t i = 0; i < a->count; i++) {
        if (same(a, got, want, i)) continue;
        uint64_t g = 0, w = 0;
        memcpy(&g, (const char *)got + i * n, n);
        memcpy(&w, (const char *)want + i * n, n);
        snprintf(err, err_len, "%s: argument %d, element %u is %.17g (0x%llx), not %.17g (0x%llx)", c->name, arg, i,
                 value(a->type, got, i), (unsigned long long)g, value(a->type, want, i), (unsigned long long)w);
        return false;
    }
    return true;
}
