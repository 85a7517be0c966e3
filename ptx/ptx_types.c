/* Tables: types, opcodes. */
#include "ptx/ptx.h"

struct type_info {
    const char *text;
    uint8_t bits, kind;
};
#define TYPE_ROW(N, text, bits, kind) [PTX_##N] = {text, bits, PTX_KIND_##kind},
static const struct type_info types[PTX_TYPE_COUNT] = {PTX_TYPES(TYPE_ROW)};

unsigned ptx_type_bits(enum ptx_type t) {
    return types[t].bits;
}
unsigned ptx_type_bytes(enum ptx_type t) {
    return (types[t].bits + 7u) / 8u;
}
enum ptx_type_kind ptx_type_kind(enum ptx_type t) {
    return (enum ptx_type_kind)types[t].kind;
}
const char *ptx_type_text(enum ptx_type t) {
    return types[t].text;
}

#define OP(N, text, dsts, srcs, properties, flops, iops) [PTX_OP_##N] = {text, dsts, srcs, properties, flops, iops},
const struct ptx_op_info ptx_ops[PTX_OP_COUNT] = {
#include "ptx/ptx_opcodes.def"
};
