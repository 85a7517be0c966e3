/* The arithmetic of collectives. Sums are taken over ranks in order, floats in double and rounded once, integers modulo
 * their width: a device, which rounds at each step and in the order of its ring, is less precise. */
#include "vgpu/vgpu_nccl_inside.h"
#include "vgpu/vgpu_number.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 2048 }; /* elements at a time */

union number { /* of a float, or of an integer, sign extended */
    double f;
    int64_t i;
    uint64_t u;
};

static bool is_float(ncclDataType_t type) {
    return type >= ncclFloat16;
}

static bool is_signed(ncclDataType_t type) {
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

size_t vgpu_nccl_bytes(ncclDataType_t type) {
    static const uint8_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

size_t vgpu_nccl_send_bytes(const struct vgpu_nccl_call *c, int ranks) {
    size_t bytes = c->count * vgpu_nccl_bytes(c->type);
    switch (c->kind) {
    case VGPU_NCCL_REDUCE_SCATTER:
        return bytes * (size_t)ranks;
    case VGPU_NCCL_BROADCAST:
        return c->comm->rank == c->root ? bytes : 0;
    case VGPU_NCCL_RECV:
        return 0;
    default:
        return bytes;
    }
}

size_t vgpu_nccl_recv_bytes(const struct vgpu_nccl_call *c, int ranks) {
    size_t bytes = c->count * vgpu_nccl_bytes(c->type);
    switch (c->kind) {
    case VGPU_NCCL_ALL_GATHER:
        return bytes * (size_t)ranks;
    case VGPU_NCCL_REDUCE:
        return c->comm->rank == c->root ? bytes : 0;
    case VGPU_NCCL_SEND:
        return 0;
    default:
        return bytes;
    }
}

/* ---- elements ---- */

#define EACH(type, field, value)                                                       \
    do {                                                                               \
        const type *x = from;                                                          \
        for (size_t i = 0; i < n; i++) to[i].field = (__typeof__(to[i].field))(value); \
    } while (0)

static void load(ncclDataType_t type, const void *from, union number *to, size_t n) {
    switch (type) {
    case ncclInt8:
        EACH(int8_t, i, x[i]);
        break;
    case ncclUint8:
        EACH(uint8_t, u, x[i]);
        break;
    case ncclInt32:
        EACH(int32_t, i, x[i]);
        break;
    case ncclUint32:
        EACH(uint32_t, u, x[i]);
        break;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        memcpy(to, from, n * sizeof *to);
        break;
    case ncclFloat16:
        EACH(uint16_t, f, vgpu_half_to_float(x[i]));
        break;
    case ncclFloat32:
        EACH(float, f, x[i]);
        break;
    case ncclBfloat16:
        EACH(uint16_t, f, vgpu_bf16_to_float(x[i]));
        break;
    case ncclFloat8e4m3:
        EACH(uint8_t, f, vgpu_e4m3_to_float(x[i]));
        break;
    case ncclFloat8e5m2:
        EACH(uint8_t, f, vgpu_e5m2_to_float(x[i]));
        break;
    default:
        break;
    }
}
#undef EACH

/* A double to fp32 on the way to a smaller format: to odd, so that what follows rounds as if it were the first. */
static float narrowed(double d) {
    float f = (float)d;
    if ((double)f == d || f != f || f - f != 0) return f;
    uint32_t u = vgpu_bits_of(f);
    if (u & 1) return f;
    return vgpu_float_of(fabs((double)f) > fabs(d) ? u - 1 : u + 1);
}

#define EACH(type, value)                                    \
    do {                                                     \
        type *x = to;                                        \
        for (size_t i = 0; i < n; i++) x[i] = (type)(value); \
    } while (0)

static void store(ncclDataType_t type, const union number *from, void *to, size_t n) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        EACH(uint8_t, from[i].u);
        break;
    case ncclInt32:
    case ncclUint32:
        EACH(uint32_t, from[i].u);
        break;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        memcpy(to, from, n * sizeof *from);
        break;
    case ncclFloat16:
        EACH(uint16_t, vgpu_float_to_half(narrowed(from[i].f)));
        break;
    case ncclFloat32:
        EACH(float, from[i].f);
        break;
    case ncclBfloat16:
        EACH(uint16_t, vgpu_float_to_bf16(narrowed(from[i].f)));
        break;
    case ncclFloat8e4m3:
        EACH(uint8_t, vgpu_float_to_e4m3(narrowed(from[i].f)));
        break;
    case ncclFloat8e5m2:
        EACH(uint8_t, vgpu_float_to_e5m2(narrowed(from[i].f)));
        break;
    default:
        break;
    }
}
#undef EACH

/* ---- reductions ---- */

#define ALL(expression)                            \
    do {                                           \
        for (size_t i = 0; i < n; i++) expression; \
    } while (0)

static void combine_floats(ncclRedOp_t op, union number *a, const union number *b, size_t n) {
    if (op == ncclProd)
        ALL(a[i].f *= b[i].f);
    else if (op == ncclMax)
        ALL(a[i].f = b[i].f > a[i].f ? b[i].f : a[i].f);
    else if (op == ncclMin)
        ALL(a[i].f = b[i].f < a[i].f ? b[i].f : a[i].f);
    else
        ALL(a[i].f += b[i].f);
}

static void combine_integers(ncclRedOp_t op, bool with_sign, union number *a, const union number *b, size_t n) {
    if (op == ncclProd)
        ALL(a[i].u *= b[i].u);
    else if (op == ncclMax && with_sign)
        ALL(a[i].i = b[i].i > a[i].i ? b[i].i : a[i].i);
    else if (op == ncclMax)
        ALL(a[i].u = b[i].u > a[i].u ? b[i].u : a[i].u);
    else if (op == ncclMin && with_sign)
        ALL(a[i].i = b[i].i < a[i].i ? b[i].i : a[i].i);
    else if (op == ncclMin)
        ALL(a[i].u = b[i].u < a[i].u ? b[i].u : a[i].u);
    else
        ALL(a[i].u += b[i].u);
}

static void divide(ncclDataType_t type, union number *a, int by, size_t n) {
    if (is_float(type))
        ALL(a[i].f /= by);
    else if (is_signed(type))
        ALL(a[i].i /= by);
    else
        ALL(a[i].u /= (unsigned)by);
}
#undef ALL

/* Elements [first, first + n) of all ranks' send buffers, into *sum. */
static void reduce(const struct vgpu_meeting *m, size_t first, size_t n, union number *sum) {
    const struct vgpu_nccl_call *c = &m->part[0];
    size_t element = vgpu_nccl_bytes(c->type);
    union number one[CHUNK];
    for (int r = 0; r < m->parts; r++) {
        load(c->type, (const char *)m->part[r].send + first * element, r ? one : sum, n);
        if (r && is_float(c->type)) combine_floats(c->op, sum, one, n);
        if (r && !is_float(c->type)) combine_integers(c->op, is_signed(c->type), sum, one, n);
    }
    if (c->op == ncclAvg) divide(c->type, sum, m->parts, n);
}

/* The results of elements [first, first + count) go to rank `to`, or to all (-1), `at` elements from the beginning. */
static void reduce_to(const struct vgpu_meeting *m, size_t first, size_t count, int to, size_t at) {
    const struct vgpu_nccl_call *c = &m->part[0];
    size_t element = vgpu_nccl_bytes(c->type);
    union number sum[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        reduce(m, first + i, n, sum);
        for (int r = 0; r < m->parts; r++)
            if (to < 0 || r == to) store(c->type, sum, (char *)m->part[r].recv + (at + i) * element, n);
    }
}

static void gather(const struct vgpu_meeting *m, size_t bytes) {
    for (int from = 0; from < m->parts; from++)
        for (int to = 0; to < m->parts; to++)
            memmove((char *)m->part[to].recv + (size_t)from * bytes, m->part[from].send, bytes);
}

void vgpu_nccl_hold(const struct vgpu_meeting *m) {
    const struct vgpu_nccl_call *c = &m->part[0];
    size_t bytes = c->count * vgpu_nccl_bytes(c->type);
    switch (c->kind) {
    case VGPU_NCCL_ALL_REDUCE:
        reduce_to(m, 0, c->count, -1, 0);
        break;
    case VGPU_NCCL_REDUCE:
        reduce_to(m, 0, c->count, c->root, 0);
        break;
    case VGPU_NCCL_REDUCE_SCATTER:
        for (int r = 0; r < m->parts; r++) reduce_to(m, (size_t)r * c->count, c->count, r, 0);
        break;
    case VGPU_NCCL_BROADCAST:
        for (int r = 0; r < m->parts; r++) memmove(m->part[r].recv, m->part[c->root].send, bytes);
        break;
    case VGPU_NCCL_ALL_GATHER:
        gather(m, bytes);
        break;
    case VGPU_NCCL_SEND:
    case VGPU_NCCL_RECV:
        memmove(m->part[1].recv, m->part[0].send, bytes);
        break;
    }
}
