"""Each PTX instruction alone, on random and on awkward operands, by the interpreter and by the compiler of the virtual GPU,
against ptx_reference.py. Approximate functions: the interpreter within one unit in the last place, the compiler within the
error that the PTX manual gives a device."""
import math, os, random, re, struct
import pytest
from conftest import BUILD, run
from ptx_reference import *

N = 96
INTS, WIDTHS = ('u16', 's16', 'u32', 's32', 'u64', 's64'), ('b16', 'b32', 'b64')
MODES = ('rn', 'rz', 'rm', 'rp')
CMP = {'eq': lambda a, b: a == b, 'ne': lambda a, b: a != b, 'lt': lambda a, b: a < b, 'le': lambda a, b: a <= b,
       'gt': lambda a, b: a > b, 'ge': lambda a, b: a >= b}


# ---- operands ----
def kind_bits(kind):
    return {'f16': 16, 'bf16': 16, 'f32': 32, 'f64': 64, 'f16x2': 32, 'bf16x2': 32, 'e4m3x2': 16, 'e5m2x2': 16, 'pred': 16, 'sel': 32,
            'amount': 32, 'tf32': 32, 'u16x2': 32, 's16x2': 32}.get(kind) or int(kind[1:])


def awkward(f):
    one = f.round(Q(1))
    return [0, f.sign, 1, f.sign | 1, (1 << f.m) - 1, 1 << f.m, f.inf, f.sign | f.inf, f.inf | 1 << (f.m - 1), f.inf - 1, one, one | f.sign,
            one + 1, one - 1, f.round(Q(1, 2)), f.round(Q(3, 2)), f.round(Q(5, 2)), f.sign | f.round(Q(7, 2))]


def float_operand(r, f):
    how = r.randrange(8)
    if how == 0:
        return r.choice(awkward(f))
    if how == 1:
        return r.getrandbits(f.bits)
    if how == 2:  # subnormal, or close to it
        return r.getrandbits(1) << (f.bits - 1) | r.getrandbits(f.m + 1)
    if how == 3:  # a tie of a format with 11 bits, or of 8
        return f.round(Q(r.choice((-1, 1)) * (2 * r.randrange(1024, 4096) + 1)) * Q(2) ** r.randrange(-20, 4))
    return f.round(Q(r.choice((-1, 1)) * r.randrange(1, 1 << 24)) * Q(2) ** r.randrange(-34, -14))


def operand(r, kind):
    if kind in F:
        return float_operand(r, F[kind])
    if kind in ('f16x2', 'bf16x2'):
        f = F[kind[:-2]]
        return float_operand(r, f) | float_operand(r, f) << 16
    if kind == 'pred':
        return r.getrandbits(1)
    if kind == 'amount':
        return r.choice((0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, r.randrange(256), r.getrandbits(32)))
    if kind[0] == 'n':  # no zero: a divisor
        return operand(r, kind[1:]) or 3
    bits = kind_bits(kind)
    return r.choice((0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, r.randrange(100), -r.randrange(100),
                     r.getrandbits(bits), r.getrandbits(bits), r.getrandbits(bits) >> r.randrange(bits))) & ((1 << bits) - 1)


# ---- the instructions ----
OPS = []


def op(text, dst, srcs, reference, ulps=None, setup=''):
    """text: the instruction; $d the result, $a $b $c $e the operands, $p a predicate, $m where $a is in memory. ulps: reference gives a real number;
    a pair (relative, absolute) is what the manual allows a device."""
    OPS.append((text, dst, srcs, reference, ulps))


def wrap(t, function):
    return lambda *v: function(*(integer(t, x) for x in v))


def integers():
    for t in INTS:
        n, wide = int(t[1:]), f'{t[0]}{2 * int(t[1:])}'
        op(f'add.{t} $d, $a, $b;', t, (t, t), lambda a, b: a + b)
        op(f'sub.{t} $d, $a, $b;', t, (t, t), lambda a, b: a - b)
        op(f'mul.lo.{t} $d, $a, $b;', t, (t, t), lambda a, b: a * b)
        op(f'mul.hi.{t} $d, $a, $b;', t, (t, t), wrap(t, lambda a, b, n=n: a * b >> n))
        op(f'mad.lo.{t} $d, $a, $b, $c;', t, (t, t, t), lambda a, b, c: a * b + c)
        op(f'mad.hi.{t} $d, $a, $b, $c;', t, (t, t, t), wrap(t, lambda a, b, c, n=n: (a * b >> n) + c))
        if n < 64:
            op(f'mul.wide.{t} $d, $a, $b;', wide, (t, t), wrap(t, lambda a, b: a * b))
            op(f'mad.wide.{t} $d, $a, $b, $c;', wide, (t, t, wide), lambda a, b, c, t=t: integer(t, a) * integer(t, b) + c)
        op(f'div.{t} $d, $a, $b;', t, (t, 'n' + t), wrap(t, truncated))
        op(f'rem.{t} $d, $a, $b;', t, (t, 'n' + t), wrap(t, lambda a, b: a - b * truncated(a, b)))
        op(f'min.{t} $d, $a, $b;', t, (t, t), wrap(t, min))
        op(f'max.{t} $d, $a, $b;', t, (t, t), wrap(t, max))
        op(f'sad.{t} $d, $a, $b, $c;', t, (t, t, t), wrap(t, lambda a, b, c: c + abs(a - b)))
        op(f'shr.{t} $d, $a, $b;', t, (t, 'amount'), lambda a, b, t=t: integer(t, a) >> b)
        for c, f in CMP.items():
            op(f'setp.{c}.{t} $p, $a, $b;', 'pred', (t, t), wrap(t, f))
        if t[0] == 's':
            op(f'abs.{t} $d, $a;', t, (t,), wrap(t, abs))
            op(f'neg.{t} $d, $a;', t, (t,), lambda a: -a)
    op('add.sat.s32 $d, $a, $b;', 's32', ('s32', 's32'), wrap('s32', lambda a, b: clamp('s32', a + b)))
    op('sub.sat.s32 $d, $a, $b;', 's32', ('s32', 's32'), wrap('s32', lambda a, b: clamp('s32', a - b)))
    op('mad.hi.sat.s32 $d, $a, $b, $c;', 's32', ('s32',) * 3, wrap('s32', lambda a, b, c: clamp('s32', (a * b >> 32) + c)))
    for t in ('u32', 's32'):
        low = lambda v, t=t: integer(t[0] + '24', v)
        op(f'mul24.lo.{t} $d, $a, $b;', t, (t, t), lambda a, b, low=low: low(a) * low(b))
        op(f'mul24.hi.{t} $d, $a, $b;', t, (t, t), lambda a, b, low=low: low(a) * low(b) >> 16)
        op(f'mad24.lo.{t} $d, $a, $b, $c;', t, (t,) * 3, lambda a, b, c, low=low: low(a) * low(b) + c)
        op(f'setp.lt.and.{t} $p, $a, $b, $q;', 'pred', (t, t, 'pred'), lambda a, b, c, t=t: integer(t, a) < integer(t, b) and c)
        op(f'setp.gt.xor.{t} $p, $a, $b, !$q;', 'pred', (t, t, 'pred'), lambda a, b, c, t=t: (integer(t, a) > integer(t, b)) != (not c))
        op(f'set.le.u32.{t} $d, $a, $b;', 'u32', (t, t), lambda a, b, t=t: -(integer(t, a) <= integer(t, b)))
        op(f'set.ne.f32.{t} $d, $a, $b;', 'b32', (t, t), lambda a, b: 0x3f800000 if a != b else 0)
    for t in ('u16', 'u32', 'u64'):
        for c, f in (('lo', 'lt'), ('ls', 'le'), ('hi', 'gt'), ('hs', 'ge')):
            op(f'setp.{c}.{t} $p, $a, $b;', 'pred', (t, t), CMP[f])


def highest(v, n, shift):
    return -1 if v == 0 else n - v.bit_length() if shift else v.bit_length() - 1


def field(t, a, pos, length):
    n, pos, length = int(t[1:]), pos & 255, length & 255
    bits = [a >> k & 1 for k in range(n)]
    sign = bits[min(pos + length - 1, n - 1)] if t[0] == 's' and length else 0
    return sum((bits[pos + k] if k < length and pos + k < n else sign) << k for k in range(n))


def insert(n, a, b, pos, length):
    pos, length = pos & 255, length & 255
    mask = (((1 << length) - 1) << pos) & ((1 << n) - 1)
    return (b & ~mask) | ((a << pos) & mask)


def prmt(mode):
    table = {'f4e': (0x3210, 0x4321, 0x5432, 0x6543), 'b4e': (0x5670, 0x6701, 0x7012, 0x0123), 'rc8': (0, 0x1111, 0x2222, 0x3333),
             'ecl': (0x3210, 0x3211, 0x3222, 0x3333), 'ecr': (0, 0x1110, 0x2210, 0x3210), 'rc16': (0x1010, 0x3232, 0x1010, 0x3232)}

    def of(a, b, c):
        c = table[mode][c & 3] if mode else c
        both = (a | b << 32).to_bytes(8, 'little')
        r = 0
        for k in range(4):
            s = c >> 4 * k & 15
            r |= (both[s] if s < 8 else 255 * (both[s - 8] >> 7)) << 8 * k
        return r
    return of


def bmsk(a, b, clamped):
    if clamped:
        a, b = min(a, 32), min(b, 32)
    else:
        a, b = a & 31, b & 31
    return sum(1 << k for k in range(a, min(a + b, 32)))


def szext(t, a, b, clamped):
    b = min(b, 32) if clamped else b & 31
    return integer(t[0] + str(b), a) if b else 0


def nth(mask, base, offset):
    base = base if base < 32 else 99
    if not offset:
        return base if base < 32 and mask >> base & 1 else -1
    places = [k for k in (range(base, 32) if offset > 0 else range(min(base, 99), -1, -1)) if base < 32 and mask >> k & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else -1


def bits():
    for t in WIDTHS:
        n = int(t[1:])
        op(f'and.{t} $d, $a, $b;', t, (t, t), lambda a, b: a & b)
        op(f'or.{t} $d, $a, $b;', t, (t, t), lambda a, b: a | b)
        op(f'xor.{t} $d, $a, $b;', t, (t, t), lambda a, b: a ^ b)
        op(f'not.{t} $d, $a;', t, (t,), lambda a: ~a)
        op(f'cnot.{t} $d, $a;', t, (t,), lambda a: a == 0)
        op(f'shl.{t} $d, $a, $b;', t, (t, 'amount'), lambda a, b: a << min(b, 64))
        op(f'selp.{t} $d, $a, $b, $q;', t, (t, t, 'pred'), lambda a, b, c: a if c else b)
        op(f'slct.{t}.s32 $d, $a, $b, $c;', t, (t, t, 's32'), lambda a, b, c: a if integer('s32', c) >= 0 else b)
        if n == 16:
            continue
        op(f'popc.{t} $d, $a;', 'b32', (t,), lambda a: bin(a).count('1'))
        op(f'clz.{t} $d, $a;', 'b32', (t,), lambda a, n=n: n - a.bit_length())
        op(f'brev.{t} $d, $a;', t, (t,), lambda a, n=n: int(format(a, f'0{n}b')[::-1], 2))
        op(f'bfi.{t} $d, $a, $b, $c, $e;', t, (t, t, 'amount', 'amount'), lambda a, b, c, e, n=n: insert(n, a, b, c, e))
    for t in ('u32', 's32', 'u64', 's64'):
        n = int(t[1:])
        op(f'bfe.{t} $d, $a, $b, $c;', t, (t, 'amount', 'amount'), lambda a, b, c, t=t: field(t, a, b, c))
        for shift in ('', '.shiftamt'):
            op(f'bfind{shift}.{t} $d, $a;', 'u32', (t,),
               lambda a, t=t, n=n, s=shift: highest(a if integer(t, a) >= 0 else ~integer(t, a), n, s))
    for mode in ('clamp', 'wrap'):
        op(f'bmsk.{mode}.b32 $d, $a, $b;', 'b32', ('amount', 'amount'), lambda a, b, c=mode == 'clamp': bmsk(a, b, c))
        for t in ('u32', 's32'):
            op(f'szext.{mode}.{t} $d, $a, $b;', t, (t, 'amount'), lambda a, b, t=t, c=mode == 'clamp': szext(t, a, b, c))
        for way in 'lr':
            def funnel(a, b, c, way=way, mode=mode):
                c = min(c, 32) if mode == 'clamp' else c & 31
                return ((b << 32 | a) << c) >> 32 if way == 'l' else (b << 32 | a) >> c
            op(f'shf.{way}.{mode}.b32 $d, $a, $b, $c;', 'b32', ('b32', 'b32', 'amount'), funnel)
    op('fns.b32 $d, $a, $b, $c;', 'b32', ('b32', 'amount', 's32'), lambda a, b, c: nth(a, b, integer('s32', c)))
    for mode in ('', '.f4e', '.b4e', '.rc8', '.ecl', '.ecr', '.rc16'):
        op(f'prmt.b32{mode} $d, $a, $b, $c;', 'b32', ('b32',) * 3, prmt(mode[1:]))
    for lut in (0x00, 0xe8, 0x96, 0xd4, 0x1b, 0xff):
        op(f'lop3.b32 $d, $a, $b, $c, {lut};', 'b32', ('b32',) * 3,
           lambda a, b, c, lut=lut: sum((lut >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k for k in range(32)))
    for s in 'us':
        for z in 'us':
            def dot4(a, b, c, s=s, z=z):
                return c + sum(integer(s + '8', a >> k) * integer(z + '8', b >> k) for k in (0, 8, 16, 24))
            op(f'dp4a.{s}32.{z}32 $d, $a, $b, $c;', 'b32', ('b32',) * 3, dot4)
            for half, first in (('lo', 0), ('hi', 16)):
                def dot2(a, b, c, s=s, z=z, first=first):
                    return c + sum(integer(s + '16', a >> 2 * k) * integer(z + '8', b >> (first + k)) for k in (0, 8))
                op(f'dp2a.{half}.{s}32.{z}32 $d, $a, $b, $c;', 'b32', ('b32',) * 3, dot2)


# ---- floats ----
def class_of(f, what):
    def of(a):
        v = f.decode(a)[1]
        subnormal = not a & f.inf and bool(a & ~f.sign)
        return {'finite': v not in (NAN, 'inf'), 'infinite': v == 'inf', 'number': v != NAN, 'notanumber': v == NAN, 'subnormal': subnormal,
                'normal': v not in (NAN, 'inf', 0) and not subnormal}[what]
    return of


def float_compare(kind, name, ftz=False):
    f = F[kind]

    def of(a, b):
        if ftz:
            a, b = f.flush(a), f.flush(b)
        x, y = (-math.inf if n and v == 'inf' else math.inf if v == 'inf' else v if v == NAN else -v if n else v
                for n, v in (f.decode(a), f.decode(b)))
        nan = NAN in (x, y)
        if name in ('num', 'nan'):
            return nan == (name == 'nan')
        if nan:
            return name.endswith('u') and len(name) == 3
        return CMP[name[:2]](x, y)
    return of


def floats():
    for kind in ('f32', 'f64'):
        f, flags = F[kind], ('', '.ftz', '.sat', '.ftz.sat') if kind == 'f32' else ('',)
        for mode in MODES:
            for flag in flags:
                opts = dict(mode=mode, ftz='.ftz' in flag, sat='.sat' in flag)
                for name, n in (('add', 2), ('sub', 2), ('mul', 2), ('fma', 3)):
                    names = ', '.join(('$a', '$b', '$c')[:n])
                    op(f'{name}.{mode}{flag}.{kind} $d, {names};', kind, (kind,) * n, arithmetic(name, kind, **opts))
                if '.sat' in flag:
                    continue
                op(f'div.{mode}{flag}.{kind} $d, $a, $b;', kind, (kind, kind), arithmetic('div', kind, **opts))
                op(f'rcp.{mode}{flag}.{kind} $d, $a;', kind, (kind,), arithmetic('rcp', kind, **opts))
                op(f'sqrt.{mode}{flag}.{kind} $d, $a;', kind, (kind,), arithmetic('sqrt', kind, **opts))
        op(f'copysign.{kind} $d, $a, $b;', kind, (kind, kind), lambda a, b, f=f: (a & f.sign) | (b & ~f.sign))
        for what in ('finite', 'infinite', 'number', 'notanumber', 'normal', 'subnormal'):
            op(f'testp.{what}.{kind} $p, $a;', 'pred', (kind,), class_of(f, what))
    for kind in ('f16', 'bf16', 'f32', 'f64'):
        f = F[kind]
        nan_safe = lambda g, f=f: lambda a: NAN if f.is_nan(a) else g(a)
        op(f'neg.{kind} $d, $a;', kind, (kind,), nan_safe(lambda a, f=f: a ^ f.sign))
        op(f'abs.{kind} $d, $a;', kind, (kind,), nan_safe(lambda a, f=f: a & ~f.sign))
        for m in ('min', 'max'):
            op(f'{m}.{kind} $d, $a, $b;', kind, (kind, kind), minmax(kind, m == 'max'))
            if kind != 'f64':
                op(f'{m}.NaN.{kind} $d, $a, $b;', kind, (kind, kind), minmax(kind, m == 'max', nan=True))
                op(f'{m}.xorsign.abs.{kind} $d, $a, $b;', kind, (kind, kind), minmax(kind, m == 'max', xorsign=True))
        for c in ('eq', 'ne', 'lt', 'le', 'gt', 'ge', 'equ', 'neu', 'ltu', 'leu', 'gtu', 'geu', 'num', 'nan'):
            op(f'setp.{c}.{kind} $p, $a, $b;', 'pred', (kind, kind), float_compare(kind, c))
    op('min.ftz.f32 $d, $a, $b;', 'f32', ('f32', 'f32'), minmax('f32', False, ftz=True))
    op('setp.lt.ftz.f32 $p, $a, $b;', 'pred', ('f32', 'f32'), float_compare('f32', 'lt', ftz=True))
    op('set.gtu.u32.f32 $d, $a, $b;', 'u32', ('f32', 'f32'), lambda a, b: -float_compare('f32', 'gtu')(a, b))
    op('slct.b32.f32 $d, $a, $b, $c;', 'b32', ('b32', 'b32', 'f32'), lambda a, b, c: a if float_compare('f32', 'ge')(c, 0) else b)


def halves():
    for kind in ('f16', 'bf16'):
        for flag in ('', '.ftz', '.sat', '.ftz.sat') if kind == 'f16' else ('',):
            opts = dict(ftz='.ftz' in flag, sat='.sat' in flag)
            for name, n in (('add', 2), ('sub', 2), ('mul', 2), ('fma', 3)):
                names, each = ', '.join(('$a', '$b', '$c')[:n]), arithmetic(name, kind, **opts)
                op(f'{name}.rn{flag}.{kind} $d, {names};', kind, (kind,) * n, each)
                op(f'{name}.rn{flag}.{kind}x2 $d, {names};', kind + 'x2', (kind + 'x2',) * n, packed(kind, each))
        op(f'fma.rn.relu.{kind} $d, $a, $b, $c;', kind, (kind,) * 3, arithmetic('fma', kind, relu=True))
        for m in ('min', 'max'):
            op(f'{m}.{kind}x2 $d, $a, $b;', kind + 'x2', (kind + 'x2',) * 2, packed(kind, minmax(kind, m == 'max')))
        op(f'neg.{kind}x2 $d, $a;', kind + 'x2', (kind + 'x2',), packed(kind, lambda a, f=F[kind]: NAN if f.is_nan(a) else a ^ f.sign))
        op(f'setp.lt.{kind}x2 $p|$r, $a, $b;', 'pred2', (kind + 'x2',) * 2, packed(kind, float_compare(kind, 'lt')))
    op('set.ge.f16x2.f16x2 $d, $a, $b;', 'b32', ('f16x2',) * 2,
       lambda a, b: sum(0x3c00 * float_compare('f16', 'ge')(a >> k & 65535, b >> k & 65535) << k for k in (0, 16)))
    for t in ('u16', 's16'):
        for name, f in (('add', lambda a, b: a + b), ('min', min), ('max', max)):
            def pair(a, b, t=t, f=f):
                return sum((f(integer(t, a >> k), integer(t, b >> k)) & 65535) << k for k in (0, 16))
            op(f'{name}.{t}x2 $d, $a, $b;', 'b32', ('b32', 'b32'), pair)


def conversions():
    small = ('u8', 's8') + INTS
    for a in small:
        for b in small:
            if a != b:
                op(f'cvt.{a}.{b} $d, $a;', a, (b,), lambda v, b=b: integer(b, v))
            if limits(a)[0] > limits(b)[0] or limits(a)[1] < limits(b)[1]:
                op(f'cvt.sat.{a}.{b} $d, $a;', a, (b,), lambda v, a=a, b=b: clamp(a, integer(b, v)))
    for kind in ('f16', 'f32', 'f64'):
        for t in small:
            for mode in MODES:
                op(f'cvt.{mode}.{kind}.{t} $d, $a;', kind, (t,), lambda v, t=t, m=mode, f=F[kind]: f.round(Q(integer(t, v)), m))
                op(f'cvt.{mode}i.{t}.{kind} $d, $a;', t, (kind,), float_to_int(kind, t, mode + 'i'))
    for a, b, modes in (('f16', 'f32', ('rn', 'rz')), ('bf16', 'f32', ('rn', 'rz')), ('f32', 'f64', MODES), ('f16', 'f64', MODES)):
        for mode in modes:
            op(f'cvt.{mode}.{a}.{b} $d, $a;', a, (b,), float_to_float(b, a, mode))
    for mode in ('rn', 'rz'):
        for a in ('f16', 'bf16'):
            op(f'cvt.{mode}.relu.{a}.f32 $d, $a;', a, ('f32',), float_to_float('f32', a, mode, relu=True))
            for relu in ('', '.relu'):
                one = float_to_float('f32', a, mode, relu=bool(relu))
                op(f'cvt.{mode}{relu}.{a}x2.f32 $d, $a, $b;', a + 'x2', ('f32', 'f32'), lambda x, y, one=one: (one(y), one(x)))
    op('cvt.f32.f16 $d, $a;', 'f32', ('f16',), float_to_float('f16', 'f32'))
    op('cvt.f32.bf16 $d, $a;', 'f32', ('bf16',), float_to_float('bf16', 'f32'))
    op('cvt.f64.f32 $d, $a;', 'f64', ('f32',), float_to_float('f32', 'f64'))
    op('cvt.f64.f16 $d, $a;', 'f64', ('f16',), float_to_float('f16', 'f64'))
    op('cvt.rn.ftz.f16.f32 $d, $a;', 'f16', ('f32',), float_to_float('f32', 'f16', ftz=True))
    op('cvt.ftz.sat.f32.f32 $d, $a;', 'f32', ('f32',), float_to_float('f32', 'f32', ftz=True, sat=True))
    op('cvt.rn.sat.f32.f64 $d, $a;', 'f32', ('f64',), float_to_float('f64', 'f32', sat=True))
    op('cvt.rzi.ftz.s32.f32 $d, $a;', 's32', ('f32',), float_to_int('f32', 's32', 'rzi', ftz=True))
    for kind in ('f16', 'f32', 'f64'):
        for mode in ('rni', 'rzi', 'rmi', 'rpi'):
            op(f'cvt.{mode}.{kind}.{kind} $d, $a;', kind, (kind,), float_to_float(kind, kind, integral=mode))
    for mode in ('rna', 'rn', 'rz'):
        def tf32(a, mode=mode, f=F['f32']):
            v = f.decode(a)[1]
            if v in (NAN, 'inf'):
                return NAN if v == NAN else a
            low, rest = a & ~0x1fff, a & 0x1fff  # the significand's last 13 bits go
            if mode == 'rna':
                return low + (rest >= 0x1000) * 0x2000
            return low + (rest > 0x1000 or (rest == 0x1000 and bool(a & 0x2000))) * 0x2000 if mode == 'rn' else low
        op(f'cvt.{mode}.tf32.f32 $d, $a;', 'f32', ('f32',), tf32)
    fp8()


def loads():
    for t in ('u8', 's8', 'u16', 's16', 'u32', 's32', 'b8', 'b16', 'b32'):
        for to in ('b32', 'b64'):
            number = 'u' + t[1:] if t[0] == 'b' else t
            op(f'ld.global.{t} $d, [$m];', to, ('b64',), lambda a, n=number: integer(n, a))
            if to == 'b64':
                op(f'ld.{t} $d, [$m+1];' if t[1:] == '8' else f'ld.volatile.{t} $d, [$m+4];', to, ('b64',),
                   lambda a, n=number, shift=8 if t[1:] == '8' else 32: integer(n, a >> shift))
    op('{ .reg .b16 %x, %y, %z, %u; mov.b64 {%x, %y, %z, %u}, $a; mov.b64 $d, {%u, %y, %x, %z}; }', 'b64', ('b64',),
       lambda a: sum((a >> 16 * k & 65535) << 16 * n for n, k in enumerate((3, 1, 0, 2))))
    op('{ .reg .b32 %x; mov.b64 {_, %x}, $a; mov.b64 $d, {%x, %x}; }', 'b64', ('b64',), lambda a: (a >> 32) * (1 + (1 << 32)))


def fp8():
    def value(kind, v):  # e4m3: no infinity, one NaN a sign
        e, m = (v >> 3 & 15, v & 7) if kind == 'e4m3' else (v >> 2 & 31, v & 3)
        bits, bias, special = (3, 7, v & 127 == 127) if kind == 'e4m3' else (2, 15, e == 31)
        if special:
            return 'inf' if kind == 'e5m2' and not m else NAN
        return Q((1 << bits) + m, 1 << bits) * Q(2) ** (e - bias) if e else Q(m, 1 << bits) * Q(2) ** (1 - bias)
    for kind in ('e4m3', 'e5m2'):
        table = [(value(kind, v), v) for v in range(128) if value(kind, v) not in (NAN, 'inf')]

        def narrow(a, kind=kind, table=table, relu=False):
            neg, v = F['f32'].decode(a)
            if v == NAN:
                return 0x7f
            if relu and neg:
                return 0
            best = min(table, key=lambda p: (abs(p[0] - v) if v != 'inf' else -p[0], p[1] & 1))
            return best[1] | 128 * neg
        for relu in ('', '.relu'):
            one = lambda a, g=narrow, r=bool(relu): g(a, relu=r)
            op(f'cvt.rn.satfinite{relu}.{kind}x2.f32 $d, $a, $b;', 'b16', ('f32', 'f32'), lambda x, y, one=one: one(x) << 8 | one(y))

        def widen(a, kind=kind):
            r = []
            for v in (a & 255, a >> 8):
                x = value(kind, v & 127)
                r.append(NAN if x == NAN else F['f16'].special(v & 128, x) if x == 'inf' else F['f16'].round(-x if v & 128 else x, neg=v & 128))
            return tuple(r)
        op(f'cvt.rn.f16x2.{kind}x2 $d, $a;', 'f16x2', ('b16',), widen)


def real(function, ftz=False):
    """Of a float operand as a Python float."""
    def of(*bits):
        f = F['f32']
        x = [struct.unpack('<f', struct.pack('<I', f.flush(b) if ftz else b))[0] for b in bits]
        try:
            r = function(*x)
            return 0 * r if ftz and r is not None and abs(r) < 2 ** -126 else r
        except (OverflowError, ZeroDivisionError, ValueError):
            return None  # left to the exact tests
    return of


def approximations():
    op('rcp.approx.f32 $d, $a;', 'f32', ('f32',), real(lambda a: 1 / a), (2 ** -23, 2 ** -149))
    op('rcp.approx.ftz.f32 $d, $a;', 'f32', ('f32',), real(lambda a: 1 / a, True), (2 ** -23, 2 ** -126))
    op('sqrt.approx.f32 $d, $a;', 'f32', ('f32',), real(math.sqrt), (2 ** -22, 0))
    op('rsqrt.approx.f32 $d, $a;', 'f32', ('f32',), real(lambda a: 1 / math.sqrt(a)), (2 ** -22, 0))
    op('rsqrt.approx.f64 $d, $a;', 'f64', ('f64',), lambda a: None if a >> 63 or a >> 52 == 2047 or not a else
       1 / math.sqrt(struct.unpack('<d', struct.pack('<Q', a))[0]), (2 ** -50, 0))
    op('ex2.approx.f32 $d, $a;', 'f32', ('f32',), real(lambda a: 2.0 ** a), (2 ** -22, 2 ** -149))
    op('ex2.approx.ftz.f32 $d, $a;', 'f32', ('f32',), real(lambda a: 2.0 ** a, True), (2 ** -22, 2 ** -126))
    op('lg2.approx.f32 $d, $a;', 'f32', ('f32',), real(math.log2), (2 ** -22, 2 ** -22))
    op('sin.approx.f32 $d, $a;', 'f32', ('f32',), real(lambda a: math.sin(a) if abs(a) <= math.pi else None), (0, 2 ** -20.5))
    op('cos.approx.f32 $d, $a;', 'f32', ('f32',), real(lambda a: math.cos(a) if abs(a) <= math.pi else None), (0, 2 ** -20.5))
    op('tanh.approx.f32 $d, $a;', 'f32', ('f32',), real(math.tanh), (2 ** -10.987, 2 ** -149))
    inside = lambda a, b: a / b if 2 ** -126 <= abs(b) <= 2 ** 126 and abs(a) < math.inf else None
    op('div.approx.f32 $d, $a, $b;', 'f32', ('f32', 'f32'), real(inside), (2 ** -22, 2 ** -148))
    op('div.full.f32 $d, $a, $b;', 'f32', ('f32', 'f32'), real(inside), (2 ** -22, 2 ** -148))
    half = lambda g: lambda a: None if F['f16'].decode(a)[1] in (NAN, 'inf') else real(g)(F['f32'].round(
        *(lambda d: (-d[1] if d[0] else d[1], 'rn', d[0]))(F['f16'].decode(a))))
    op('tanh.approx.f16 $d, $a;', 'f16', ('f16',), half(math.tanh), (2 ** -10, 2 ** -24))
    op('ex2.approx.f16 $d, $a;', 'f16', ('f16',), half(lambda a: 2.0 ** a), (2 ** -9.9, 2 ** -24))


for part in (integers, bits, floats, halves, conversions, loads, approximations):
    part()


# ---- the text ----
REG = {16: ('%h', 'b16'), 32: ('%w', 'b32'), 64: ('%d', 'b64')}


def width(kind):
    return max(16, kind_bits(kind.lstrip('n')))


def one(k, text, dst, srcs):
    """In a scope of its own: %d10 is where the thread's operands of this instruction are, %d11 where its result goes."""
    lines = ['.reg .pred %p<4>;', '.reg .b16 %h<8>;', '.reg .b32 %w<9>;', '.reg .b64 %d<8>;']
    text = re.sub(r'\[\$m(?:\+(\d+))?\]', lambda m: f'[%d10+{32 * N * k + int(m[1] or 0)}]', text)
    for n, kind in enumerate(srcs):
        name, b = REG[width(kind)]
        lines.append(f'ld.global.{b} {name}{n}, [%d10+{32 * N * k + 8 * n}];')
        if kind == 'pred':
            lines.append(f'setp.ne.s16 %p3, {name}{n}, 0;')
            text = text.replace('$q', '%p3')
        text = text.replace('$' + 'abce'[n], f'{name}{n}')
    if dst in ('pred', 'pred2'):
        lines += [text.replace('$p', '%p0').replace('$r', '%p1'), 'selp.b32 %w7, 1, 0, %p0;']
        if dst == 'pred2':
            lines += ['selp.b32 %w8, 2, 0, %p1;', 'or.b32 %w7, %w7, %w8;']
        lines.append(f'st.global.b32 [%d11+{8 * N * k}], %w7;')
    else:
        name, b = REG[width(dst)]
        lines += [text.replace('$d', name + '7'), f'st.global.{b} [%d11+{8 * N * k}], {name}7;']
    return '{\n' + '\n'.join('\t' + x for x in lines) + '\n}\n'


WARP = range(3, len(OPS), 8)  # those that warp mode is tried on; it compiles slowly


def entries(chosen, warp=False, each=20):
    """Some instructions to a kernel: a compiler has less to begin with."""
    text = '.version 8.1\n.target sm_90\n.address_size 64\n'
    for first in range(0, len(chosen), each):
        text += f"""
.visible .entry ops_{first}(.param .u64 in, .param .u64 out)
{{
\t.reg .b32 %w9;
\t.reg .b64 %d10, %d11, %d12, %d13;
\tmov.u32 %w9, %tid.x;
\t{'bar.warp.sync -1;' if warp else ''}
\tld.param.u64 %d12, [in];
\tld.param.u64 %d13, [out];
\tcvta.to.global.u64 %d12, %d12;
\tcvta.to.global.u64 %d13, %d13;
\tmad.wide.u32 %d10, %w9, 32, %d12;
\tmad.wide.u32 %d11, %w9, 8, %d13;
"""
        text += ''.join(one(k, *OPS[k][:3]) for k in chosen[first:first + each]) + '\tret;\n}\n'
    return text


@pytest.fixture(scope='module')
def work(tmp_path_factory):
    """The PTX, the operands, and what the results must be."""
    d = tmp_path_factory.mktemp('ops')
    (d / 'ops.ptx').write_text(entries(range(len(OPS))))
    (d / 'warp.ptx').write_text(entries(WARP, warp=True))
    r = random.Random(20)
    data, operands = bytearray(), []
    for text, dst, srcs, _, _ in OPS:
        rows = [[operand(r, s) for s in srcs] for _ in range(N)]
        operands.append(rows)
        for row in rows:
            data += struct.pack('<4Q', *(row + [0] * (4 - len(row))))
    (d / 'in').write_bytes(data)
    return d, operands, [[o[3](*row) for row in rows] for o, rows in zip(OPS, operands)]


def half_formats(dst):
    return F[dst[:-2]] if dst in ('f16x2', 'bf16x2') else None


def agrees(dst, got, want):
    if isinstance(want, tuple):
        if dst == 'pred2':
            return got == want[0] + 2 * want[1]
        f = half_formats(dst)
        return all(f.is_nan(g) if w == NAN else g == w for g, w in zip((got & 65535, got >> 16), want))
    if want == NAN:
        return F[dst].is_nan(got)
    return got == int(want) & ((1 << (1 if dst == 'pred' else kind_bits(dst))) - 1)


def near(dst, got, want, error):
    """error: (relative, absolute); None: within one unit in the last place."""
    neg, v = F[dst].decode(got)
    if math.isnan(want):
        return v == NAN
    if math.isinf(want):
        return v == 'inf' and neg == (want < 0)
    if v in (NAN, 'inf'):
        return v == 'inf' and F[dst].decode(F[dst].round(Q(want)))[1] == 'inf'
    v = float(-v if neg else v)
    if error is None:
        scale = max(abs(want), 2.0 ** F[dst].low)
        return abs(v - want) <= 1.0001 * 2.0 ** (math.frexp(scale)[1] - 1 - F[dst].m)
    return abs(v - want) <= abs(want) * error[0] + error[1]


def check(work, program, device, text='ops.ptx', chosen=range(len(OPS))):
    d, operands, wanted = work
    r = run(os.path.join(BUILD, 'tests', program), d / text, d / 'in', d / program, N)
    assert r.returncode == 0, r.stderr
    results = struct.unpack(f'<{len(OPS) * N}Q', (d / program).read_bytes()[:len(OPS) * N * 8])
    bad = []
    for k in chosen:
        text, dst, _, _, error = OPS[k]
        for n, row in enumerate(operands[k]):
            got, want = results[k * N + n], wanted[k][n]
            if error is None:
                got &= (1 << (2 if dst == 'pred2' else max(kind_bits(dst), 1))) - 1 if dst != 'pred2' else 3
            if want is None or (near(dst, got, want, error if device else None) if error else agrees(dst, got, want)):
                continue
            bad.append(f'{text} of {[hex(x) for x in row]}: {got:#x}, not {want if isinstance(want, (tuple, str, float)) else hex(int(want))}')
            break
    assert not bad, f'{len(bad)} of {len(chosen)} instructions:\n' + '\n'.join(bad[:40])


def test_the_text_is_ptx(work):
    """The vendor's assembler takes what the test is made of."""
    from shutil import which
    ptxas = which('ptxas') or '/usr/local/cuda/bin/ptxas'
    if not os.path.exists(ptxas):
        pytest.skip('no ptxas')
    r = run(ptxas, '-arch=sm_90', '-O0', work[0] / 'ops.ptx', '-o', '/dev/null', timeout=600)
    assert r.returncode == 0, r.stderr[:2000]


def test_interpreter(work):
    check(work, 'ptx_exec', False)


@pytest.mark.parametrize('text,chosen', [('ops.ptx', range(len(OPS))), ('warp.ptx', WARP)], ids=['loop', 'warp'])
def test_compiler(work, monkeypatch, text, chosen):
    """In loop mode, and in warp mode."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(work[0] / 'cache'))
    check(work, 'ptx_exec_jit', True, text, chosen)
