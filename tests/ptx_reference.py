"""What single PTX instructions must give: integers by Python's, floats by fractions, rounded once. Nothing here is shared
with the interpreter or the compiler."""
from fractions import Fraction as Q
from math import isqrt

FORMATS = {'f16': (10, 5), 'bf16': (7, 8), 'f32': (23, 8), 'f64': (52, 11)}
NAN = 'nan'


class Format:
    def __init__(self, name):
        self.name = name
        self.m, self.e = FORMATS[name]
        self.bits = 1 + self.m + self.e
        self.bias = (1 << (self.e - 1)) - 1
        self.low = 1 - self.bias
        self.top = (1 << self.e) - 1
        self.inf = self.top << self.m
        self.sign = 1 << (self.bits - 1)

    def decode(self, b):
        """(negative, value): value a fraction ≥ 0, 'inf' or 'nan'."""
        neg, e, m = bool(b & self.sign), b >> self.m & self.top, b & ((1 << self.m) - 1)
        if e == self.top:
            return neg, NAN if m else 'inf'
        if e == 0:
            return neg, Q(m) * Q(2) ** (self.low - self.m)
        return neg, Q((1 << self.m) + m) * Q(2) ** (e - self.bias - self.m)

    def is_nan(self, b):
        return self.decode(b)[1] == NAN

    def flush(self, b):
        return b & self.sign if not b & self.inf else b

    def special(self, neg, what):
        return NAN if what == NAN else (self.sign if neg else 0) | (self.inf if what == 'inf' else 0)

    def round(self, v, mode='rn', neg=None):
        """Bits of the fraction v (its sign neg where it is 0)."""
        neg = v < 0 if v else bool(neg)
        sign, a = self.sign if neg else 0, abs(v)
        if not a:
            return sign
        e = a.numerator.bit_length() - a.denominator.bit_length()
        e -= a < Q(2) ** e
        quantum = Q(2) ** (max(e, self.low) - self.m)
        n, rest = divmod(a, quantum)
        n = int(n)
        if mode == 'rn':
            n += rest * 2 > quantum or (rest * 2 == quantum and n % 2)
        elif mode == 'rna':
            n += rest * 2 >= quantum
        elif rest and ((mode == 'rp' and not neg) or (mode == 'rm' and neg)):
            n += 1
        a = n * quantum
        if a >= Q(2) ** (self.bias + 1):
            finite = mode == 'rz' or (mode == 'rm' and not neg) or (mode == 'rp' and neg)
            return sign | (self.inf - 1 if finite else self.inf)
        if a < Q(2) ** self.low:
            return sign | n
        e = a.numerator.bit_length() - a.denominator.bit_length()
        e -= a < Q(2) ** e
        return sign | (e + self.bias) << self.m | int(a / Q(2) ** (e - self.m)) - (1 << self.m)


F = {name: Format(name) for name in FORMATS}


def product(x, y):
    """Of decoded numbers."""
    (xn, xv), (yn, yv) = x, y
    if NAN in (xv, yv) or ('inf' in (xv, yv) and 0 in (xv, yv)):
        return False, NAN
    return xn != yn, 'inf' if 'inf' in (xv, yv) else xv * yv


def quotient(x, y):
    (xn, xv), (yn, yv) = x, y
    if NAN in (xv, yv) or (xv == yv and xv in (0, 'inf')):
        return False, NAN
    if xv == 'inf' or yv == 0:
        return xn != yn, 'inf'
    return xn != yn, Q(0) if yv == 'inf' else xv / yv


def total(x, y, mode):
    (xn, xv), (yn, yv) = x, y
    if NAN in (xv, yv) or (xv == yv == 'inf' and xn != yn):
        return False, NAN
    if 'inf' in (xv, yv):
        return (xn if xv == 'inf' else yn), 'inf'
    s = (-xv if xn else xv) + (-yv if yn else yv)
    return (s < 0 if s else xn if xn == yn else mode == 'rm'), abs(s)


def root(x):
    neg, v = x
    if v == NAN or (neg and v):
        return False, NAN
    if v in (0, 'inf'):
        return x
    k = 1200  # bits behind the point
    n = v.numerator * 4 ** k // v.denominator
    s = isqrt(n)
    exact = s * s == n and Q(n, 4 ** k) == v
    return False, Q(2 * s + (not exact), 2 ** (k + 1))


def finish(f, r, mode, ftz=False, sat=False, relu=False):
    neg, v = r
    if v == NAN:
        return 0 if sat else NAN
    b = f.special(neg, v) if v == 'inf' else f.round(-v if neg else v, mode, neg)
    if (sat or relu) and b & f.sign:
        return 0
    if sat and b > f.round(Q(1)):
        return f.round(Q(1))
    return f.flush(b) if ftz else b


def arithmetic(op, kind, mode='rn', ftz=False, sat=False, relu=False):
    """A function of operand bits for add, sub, mul, fma, div, rcp, sqrt in a format."""
    f = F[kind]

    def of(*bits):
        x = [f.decode(f.flush(b) if ftz else b) for b in bits]
        if op == 'add':
            r = total(x[0], x[1], mode)
        elif op == 'sub':
            r = total(x[0], (not x[1][0], x[1][1]), mode)
        elif op == 'mul':
            r = product(x[0], x[1])
        elif op == 'fma':
            r = total(product(x[0], x[1]), x[2], mode)
        elif op == 'div':
            r = quotient(x[0], x[1])
        elif op == 'rcp':
            r = quotient((False, Q(1)), x[0])
        else:
            r = root(x[0])
        return finish(f, r, mode, ftz, sat, relu)
    return of


def packed(kind, function):
    """The same on both halves."""
    n = F[kind].bits

    def of(*bits):
        r = [function(*(b >> k & ((1 << n) - 1) for b in bits)) for k in (0, n)]
        return tuple(r)
    return of


def minmax(kind, is_max, nan=False, ftz=False, xorsign=False):
    f = F[kind]

    def of(a, b):
        if ftz:
            a, b = f.flush(a), f.flush(b)
        sign = (a ^ b) & f.sign
        if xorsign:
            a, b = a & ~f.sign, b & ~f.sign
        if f.is_nan(a) or f.is_nan(b):
            if nan or (f.is_nan(a) and f.is_nan(b)):
                return NAN
            r = b if f.is_nan(a) else a
        else:
            def key(v):
                neg, x = f.decode(v)
                x = Q(2) ** 2000 if x == 'inf' else x
                return (-x if neg else x, not neg)
            r = max(a, b, key=key) if is_max else min(a, b, key=key)
        return (r & ~f.sign) | sign if xorsign else r
    return of


# ---- integers ----
def signed(v, bits):
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def integer(t, v):
    """The number that bits v are in type t (u32, s16, …)."""
    bits = int(t[1:])
    return signed(v, bits) if t[0] == 's' else v & ((1 << bits) - 1)


def limits(t):
    bits = int(t[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == 's' else (0, (1 << bits) - 1)


def clamp(t, v):
    low, high = limits(t)
    return max(low, min(high, v))


def truncated(a, b):
    """Quotient towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def to_integer(v, mode):
    """A fraction rounded to an integer."""
    low = v.numerator // v.denominator
    rest = v - low
    if mode == 'rni':
        return low + (rest * 2 > 1 or (rest * 2 == 1 and low % 2))
    return low + {'rmi': 0, 'rpi': rest > 0, 'rzi': rest > 0 and v < 0}[mode]


def float_to_int(kind, t, mode, ftz=False):
    f = F[kind]

    def of(a):
        neg, v = f.decode(f.flush(a) if ftz else a)
        if v == NAN:
            return 0 if kind != 'f64' and int(t[1:]) < 64 else 1 << (int(t[1:]) - 1)
        if v == 'inf':
            return limits(t)[0 if neg else 1]
        return clamp(t, to_integer(-v if neg else v, mode))
    return of


def float_to_float(kind, to, mode='rn', ftz=False, sat=False, relu=False, integral=None):
    f, g = F[kind], F[to]

    def of(a):
        neg, v = f.decode(f.flush(a) if ftz and kind == 'f32' else a)
        if integral and v not in (NAN, 'inf'):
            v = abs(to_integer(-v if neg else v, integral))
            v = Q(v)
        return finish(g, (neg, v), mode, ftz and to == 'f32', sat, relu)
    return of
