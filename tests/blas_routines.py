#!/usr/bin/env python3
"""Every routine of cuBLAS once in each type, called as a program does, against numpy in double precision.

    blas_routines.py host|device|64 [OUT.json]
host, device: where scalars are; 64: the functions with 64-bit sizes. What is not part of an operand (the other triangle,
the gaps that leading dimensions and strides leave, C under beta = 0) is NaN, and must be so afterwards. Writes one line
for each wrong result and exits 1; OUT: of each call that is recorded its name and the FLOPs that ACCOUNTING's formulas
give (None: not counted), in order."""
import ctypes as ct, json, sys
import numpy as np

MODE = sys.argv[1] if len(sys.argv) > 1 else 'host'
for library in ('libcudart.so.13', 'libcublas.so.13'):
    ct.CDLL(library, ct.RTLD_GLOBAL)
rt = blas = ct.CDLL(None)  # not the libraries: a preloaded one comes first
TYPES = {'S': np.float32, 'D': np.float64, 'C': np.complex64, 'Z': np.complex128}
CODE = {np.float32: 0, np.float64: 1, np.float16: 2, np.int8: 3, np.complex64: 4, np.complex128: 5, np.int32: 10}
N, T, H = 0, 1, 2
LOWER, UPPER = 0, 1
rng = np.random.default_rng(7)
wrong, recorded = [], []
handle = ct.c_void_p()
assert blas.cublasCreate_v2(ct.byref(handle)) == 0
assert blas.cublasSetPointerMode_v2(handle, 1 if MODE == 'device' else 0) == 0


class Size(int):
    """An argument that is 64 bits wide in the _64 functions."""


class Stride(int):
    """A long long in all functions."""


def upload(a):
    p = ct.c_void_p()
    assert rt.cudaMalloc(ct.byref(p), ct.c_size_t(a.nbytes or 1)) == 0
    assert rt.cudaMemcpy(p, a.ctypes.data_as(ct.c_void_p), ct.c_size_t(a.nbytes), 1) == 0
    return p


def download(p, like):
    out = np.empty_like(like)
    assert rt.cudaMemcpy(out.ctypes.data_as(ct.c_void_p), p, ct.c_size_t(out.nbytes), 2) == 0
    return out


class Scalar:
    """A number by pointer: on the host, or on the device."""
    def __init__(self, value, dtype):
        self.a = np.array([value], dtype)
        self.p = upload(self.a) if MODE == 'device' else self.a.ctypes.data_as(ct.c_void_p)

    def get(self):
        return download(self.p, self.a)[0] if MODE == 'device' else self.a[0]


class Array:
    """Storage on the device; want: what it must hold afterwards (None: what it holds)."""
    def __init__(self, a, want=None):
        self.a, self.want, self.p = np.ascontiguousarray(a), want, upload(np.ascontiguousarray(a))


class Pointers:
    """An array of pointers on the device."""
    def __init__(self, arrays):
        self.arrays = arrays
        self.p = upload(np.array([x.p.value for x in arrays], np.uint64))


def function(name):
    for suffix in ('_v2', ''):
        f = getattr(blas, name + suffix + ('_64' if MODE == '64' else ''), None)
        if f:
            return f
    return None


def call(name, args, flops, terms=16, status=0, record=True):
    """Calls it, and compares all arrays among the arguments with what they are to hold."""
    f = function(name)
    if f is None:  # no form with 64-bit sizes
        f = getattr(blas, name + '_v2', None) or getattr(blas, name)
    wide = MODE == '64' and f.__name__.endswith('_64')
    given = []
    for a in args:
        if isinstance(a, Stride):
            given.append(ct.c_longlong(a))
        elif isinstance(a, Size):
            given.append((ct.c_int64 if wide else ct.c_int)(a))
        elif isinstance(a, int):
            given.append(ct.c_int(a))
        elif isinstance(a, np.ndarray):
            given.append(a.astype(np.int64 if wide and a.dtype == np.int32 else a.dtype).ctypes.data_as(ct.c_void_p))
        elif a is None:
            given.append(None)
        else:
            given.append(a.p)
    got = f(handle, *given)
    if got != status:
        wrong.append(f'{name}: status {got}, not {status}')
        return
    if status:
        return
    if record:
        recorded.append([name, flops])
    for a in args:
        for x in a.arrays if isinstance(a, Pointers) else [a]:
            if isinstance(x, Array):
                check(name, x, terms)


def check(name, x, terms):
    got, want = download(x.p, x.a), x.a if x.want is None else x.want
    eps = np.finfo(got.dtype).eps if got.dtype.kind in 'fc' else 0
    gap = np.isnan(want) if want.dtype.kind in 'fc' else np.zeros(want.shape, bool)
    with np.errstate(invalid='ignore'):
        bad = np.where(gap, ~np.isnan(got), ~(np.abs(got.astype(want.dtype) - want) <= 8 * (terms + 8) * eps))
    if bad.any():
        at = np.argmax(bad.ravel())
        wrong.append(f'{name}: element {at} is {got.ravel()[at]}, not {want.ravel()[at]}')


# ---- operands: values in double (or complex of it), and how they lie in memory ----

def real(*shape):
    return (rng.random(shape) * 2 - 1).astype(np.float32).astype(np.float64)


def values(t, *shape):
    return real(*shape) + (1j * real(*shape) if t in 'CZ' else 0)


def empty(t, n):
    return np.full(n, complex(np.nan, np.nan) if t in 'CZ' else np.nan, TYPES[t])


def full(t, a, ld):
    s = empty(t, ld * a.shape[1]).reshape(a.shape[1], ld)
    s[:, :a.shape[0]] = a.T
    return s.ravel()


def half(t, a, ld, uplo):
    n = len(a)
    m = np.tril(np.ones((n, n), bool)) if uplo == LOWER else np.triu(np.ones((n, n), bool))
    return full(t, np.where(m, a, empty(t, 1)[0]), ld)


def packed(t, a, uplo):
    n = len(a)
    return np.concatenate([a[j:, j] if uplo == LOWER else a[:j + 1, j] for j in range(n)]).astype(TYPES[t])


def banded(t, a, kl, ku, ld):
    """Column j has rows j - ku … j + kl; row ku of the storage is the diagonal."""
    s = empty(t, ld * a.shape[1]).reshape(a.shape[1], ld)
    for j in range(a.shape[1]):
        for i in range(max(0, j - ku), min(a.shape[0], j + kl + 1)):
            s[j, ku + i - j] = a[i, j]
    return s.ravel()


def strided(t, x, inc):
    s = empty(t, len(x) * abs(inc))
    for i, v in enumerate(x):
        s[(i - len(x) + 1) * inc if inc < 0 else i * inc] = v
    return s


def op(a, trans):
    return a if trans == N else a.T if trans == T else a.conj().T


def symmetric(t, n):
    a = values(t, n, n)
    return np.tril(a) + np.tril(a, -1).T


def hermitian(t, n):
    a = values(t, n, n)
    return np.tril(a, -1) + np.tril(a, -1).conj().T + np.diag(np.diag(a).real)


def triangle(t, n, uplo, unit):
    """Well conditioned. The diagonal of a unit one is not looked at."""
    a = values(t, n, n) / (2 * n) + np.diag(2 + real(n) / 2)
    a = np.tril(a) if uplo == LOWER else np.triu(a)
    stored = np.where(np.eye(n, dtype=bool), np.nan, a) if unit else a
    return np.where(np.eye(n, dtype=bool), 1, a) if unit else a, stored


def cut(a, kl, ku):
    i, j = np.indices(a.shape)
    return np.where((i - j <= kl) & (j - i <= ku), a, 0)


def in_band(m, n, kl, ku):
    return sum(1 for i in range(m) for j in range(n) if i - j <= kl and j - i <= ku)


def factor(t):
    return 4 if t in 'CZ' else 1


def pick(t, real_one):
    """A scalar of the type."""
    return real_one + (0.25j if t in 'CZ' else 0)


# ---- level 1 ----

def level1(t):
    n, k, dt = 37, factor(t), TYPES[t]
    rt_ = {'S': np.float32, 'D': np.float64, 'C': np.float32, 'Z': np.float64}[t]
    lead = {'S': 'S', 'D': 'D', 'C': 'Sc', 'Z': 'Dz'}[t]
    code, rcode = CODE[dt], CODE[rt_]
    for ix, iy in ((1, 1), (2, -3)):
        x, y = values(t, n), values(t, n)
        X, Y = lambda want=None: Array(strided(t, x, ix), want), lambda want=None: Array(strided(t, y, iy), want)
        al = pick(t, 0.5)
        out = lambda v, inc: strided(t, v, inc)
        call(t + 'axpy', [Size(n), Scalar(al, dt), X(), Size(ix), Y(out(al * x + y, iy)), Size(iy)], 2 * n * k)
        call('AxpyEx', [Size(n), Scalar(al, dt), code, X(), code, Size(ix), Y(out(al * x + y, iy)), code, Size(iy), code], 2 * n * k)
        call(t + 'copy', [Size(n), X(), Size(ix), Y(out(x, iy)), Size(iy)], 0)
        call('CopyEx', [Size(n), X(), code, Size(ix), Y(out(x, iy)), code, Size(iy)], 0)
        call(t + 'swap', [Size(n), X(out(y, ix)), Size(ix), Y(out(x, iy)), Size(iy)], 0)
        call('SwapEx', [Size(n), X(out(y, ix)), code, Size(ix), Y(out(x, iy)), code, Size(iy)], 0)
        c, s = 0.6, 0.8
        call({'C': 'Csrot', 'Z': 'Zdrot'}.get(t, t + 'rot'),
             [Size(n), X(out(c * x + s * y, ix)), Size(ix), Y(out(c * y - s * x, iy)), Size(iy), Scalar(c, rt_), Scalar(s, rt_)], 6 * n * k)
        call('RotEx', [Size(n), X(out(c * x + s * y, ix)), code, Size(ix), Y(out(c * y - s * x, iy)), code, Size(iy),
                       Scalar(c, rt_), Scalar(s, rt_), rcode, code], 6 * n * k)
        if t in 'CZ':
            z = 0.5 - 0.25j
            call(t + 'rot', [Size(n), X(out(c * x + z * y, ix)), Size(ix), Y(out(c * y - np.conj(z) * x, iy)), Size(iy),
                             Scalar(c, rt_), Scalar(z, dt)], 6 * n * k)
        for name, a in ((t + 'dot', x), (t + 'dotu', x), (t + 'dotc', x.conj())):
            if (name[1:] == 'dot') == (t in 'SD'):
                reduce(name, [Size(n), X(), Size(ix), Y(), Size(iy)], dt, np.sum(a * y), 2 * n * k)
        for name, a in (('DotEx', x), ('DotcEx', x.conj())):
            reduce(name, [Size(n), X(), code, Size(ix), Y(), code, Size(iy)], dt, np.sum(a * y), 2 * n * k, [code, code])
    for inc in (1, 3):
        X = lambda want=None: Array(strided(t, x, inc), want)
        parts = np.abs(x.real) + np.abs(x.imag)
        reduce(lead + 'asum', [Size(n), X(), Size(inc)], rt_, parts.sum(), n * k)
        reduce('AsumEx', [Size(n), X(), code, Size(inc)], rt_, parts.sum(), n * k, [rcode, rcode])
        reduce(lead + 'nrm2', [Size(n), X(), Size(inc)], rt_, np.sqrt(np.sum(np.abs(x) ** 2)), 2 * n * k)
        reduce('Nrm2Ex', [Size(n), X(), code, Size(inc)], rt_, np.sqrt(np.sum(np.abs(x) ** 2)), 2 * n * k, [rcode, rcode])
        index = np.int64 if MODE == '64' else np.int32
        for name, least in (('amax', False), ('amin', True)):
            want = (np.argmin(parts) if least else np.argmax(parts)) + 1
            reduce('I' + t.lower() + name, [Size(n), X(), Size(inc)], index, want, 0)
            reduce('Ia' + name[1:] + 'Ex', [Size(n), X(), code, Size(inc)], index, want, 0)
        al = pick(t, -1.5)
        call(t + 'scal', [Size(n), Scalar(al, dt), X(strided(t, al * x, inc)), Size(inc)], n * k)
        call('ScalEx', [Size(n), Scalar(al, dt), code, X(strided(t, al * x, inc)), code, Size(inc), code], n * k)
        if t in 'CZ':
            call({'C': 'Csscal', 'Z': 'Zdscal'}[t], [Size(n), Scalar(-1.5, rt_), X(strided(t, -1.5 * x, inc)), Size(inc)], n * k)


def reduce(name, args, dt, want, flops, more=()):
    r = Scalar(0, dt)
    call('cublas' + name if not name.startswith('cublas') else name, [*args, r, *more], flops)
    got = r.get()
    if not abs(got - want) <= (64 * 45 * np.finfo(dt).eps if np.dtype(dt).kind in 'fc' else 0):
        wrong.append(f'{name}: {got}, not {want}')


def modified_rotation(t):
    dt, n = TYPES[t], 19
    x, y = values(t, n), values(t, n)
    for flag, h in ((-1, [[2, 3], [4, 5]]), (0, [[1, 3], [4, 1]]), (1, [[2, 1], [-1, 5]]), (-2, [[1, 0], [0, 1]])):
        p = np.array([flag, 2, 4, 3, 5], dt)  # flag, h11, h21, h12, h22
        a, b = h[0][0] * x + h[0][1] * y, h[1][0] * x + h[1][1] * y
        for name, types in ((t + 'rotm', ()), ('RotmEx', (CODE[dt],))):
            q = Array(p) if MODE == 'device' else p
            call(name, [Size(n), Array(strided(t, x, 1), strided(t, a, 1)), *types, Size(1), Array(strided(t, y, 2), strided(t, b, 2)),
                        *types, Size(2), q, *(types * 2)], 6 * n)


def rotation_numbers(t):
    """c, s turn (a, b) to (r, 0)."""
    dt, rt_ = TYPES[t], {'C': np.float32, 'Z': np.float64}.get(t, TYPES[t])
    a, b = pick(t, 0.75), pick(t, -0.5) * (1j if t in 'CZ' else 1)
    A, B, c, s = Scalar(a, dt), Scalar(b, dt), Scalar(0, rt_), Scalar(0, dt)
    call(t + 'rotg', [A, B, c, s], 0, record=False)
    c, s, r = c.get(), s.get(), A.get()
    for got, want in ((c * a + s * b, r), (c * b - np.conj(s) * a, 0), (c * c + abs(s) ** 2, 1), (abs(r), np.hypot(abs(a), abs(b)))):
        if not abs(got - want) < 64 * np.finfo(dt).eps:
            wrong.append(f'{t}rotg: {got}, not {want}')
    if t in 'CZ':
        return
    d1, d2, x1, y1 = 0.5, 2.0, 0.75, 0.25
    S = [Scalar(v, dt) for v in (d1, d2, x1, y1)]
    p = Array(np.zeros(5, dt)) if MODE == 'device' else np.zeros(5, dt)
    f = getattr(blas, f'cublas{t}rotmg_v2')
    assert f(handle, *[v.p for v in S], p.p if MODE == 'device' else p.ctypes.data_as(ct.c_void_p)) == 0
    p = download(p.p, p.a) if MODE == 'device' else p
    h = {-1: [[p[1], p[3]], [p[2], p[4]]], 0: [[1, p[3]], [p[2], 1]], 1: [[p[1], 1], [-1, p[4]]]}[int(p[0])]
    (u, v), e1, e2 = np.array(h) @ [x1, y1], S[0].get(), S[1].get()
    # the second component is gone, the weighted norm is kept
    for got, want in ((v, 0), (e1 * u * u, d1 * x1 * x1 + d2 * y1 * y1), (u, S[2].get())):
        if not abs(got - want) < 64 * np.finfo(dt).eps:
            wrong.append(f'{t}rotmg: {got}, not {want}')


# ---- level 2 ----

def level2(t):
    m, n, dt, k = 17, 13, TYPES[t], factor(t)
    for trans in (N, T, H):
        for ix, iy, be in ((1, 1, 0), (2, -3, pick(t, -0.25))):
            a = values(t, m, n)
            x, y = values(t, m if trans else n), values(t, n if trans else m)
            al = pick(t, 1.5)
            out = lambda v: Array(strided(t, y if be else np.full(len(y), np.nan), iy), strided(t, v, iy))
            A, X, S = Array(full(t, a, m + 2)), Array(strided(t, x, ix)), [Scalar(al, dt), Scalar(be, dt)]
            want = al * (op(a, trans) @ x) + (be * y if be else 0)
            call(t + 'gemv', [trans, Size(m), Size(n), S[0], A, Size(m + 2), X, Size(ix), S[1], out(want), Size(iy)], 2 * m * n * k)
            kl, ku = 3, 2
            b = cut(a, kl, ku)
            want = al * (op(b, trans) @ x) + (be * y if be else 0)
            call(t + 'gbmv', [trans, Size(m), Size(n), Size(kl), Size(ku), S[0], Array(banded(t, b, kl, ku, kl + ku + 2)), Size(kl + ku + 2), X,
                              Size(ix), S[1], out(want), Size(iy)], 2 * in_band(m, n, kl, ku) * k)
        batched_vectors(t, trans)
    for uplo in (LOWER, UPPER):
        for ix, iy, be in ((1, 1, 0), (-2, 3, pick(t, -0.25))):
            squares(t, n, uplo, ix, iy, be)
        for trans in (N, T, H):
            for unit in (0, 1):
                triangles(t, n, uplo, trans, unit)


def batched_vectors(t, trans):
    m, n, dt, k, batch = 9, 6, TYPES[t], factor(t), 3
    a, x = [values(t, m, n) for _ in range(batch)], [values(t, m if trans else n) for _ in range(batch)]
    y = [values(t, n if trans else m) for _ in range(batch)]
    al, be = pick(t, 0.5), pick(t, 2.0)
    want = [al * (op(p, trans) @ q) + be * r for p, q, r in zip(a, x, y)]
    S = [Scalar(al, dt), Scalar(be, dt)]
    call(t + 'gemvBatched', [trans, Size(m), Size(n), S[0], Pointers([Array(full(t, p, m + 1)) for p in a]), Size(m + 1),
                             Pointers([Array(strided(t, q, 2)) for q in x]), Size(2), S[1],
                             Pointers([Array(strided(t, r, -1), strided(t, w, -1)) for r, w in zip(y, want)]), Size(-1), Size(batch)],
         2 * m * n * k * batch)
    cat = np.concatenate
    call(t + 'gemvStridedBatched',
         [trans, Size(m), Size(n), S[0], Array(cat([full(t, p, m + 1) for p in a])), Size(m + 1), Stride((m + 1) * n),
          Array(cat([strided(t, q, 1) for q in x])), Size(1), Stride(len(x[0])), S[1],
          Array(cat([strided(t, r, 1) for r in y]), cat([strided(t, w, 1) for w in want])), Size(1), Stride(len(y[0])), Size(batch)],
         2 * m * n * k * batch)


def squares(t, n, uplo, ix, iy, be):
    dt, k, kd = TYPES[t], factor(t), 3
    al, x, y = pick(t, 0.75), values(t, n), values(t, n)
    X, S = Array(strided(t, x, ix)), [Scalar(al, dt), Scalar(be, dt)]
    kinds = [('sy', symmetric(t, n))] + ([('he', hermitian(t, n))] if t in 'CZ' else [])
    for kind, a in kinds:
        out = lambda m: Array(strided(t, y if be else np.full(n, np.nan), iy), strided(t, al * (m @ x) + (be * y if be else 0), iy))
        call(f'{t}{kind}mv', [uplo, Size(n), S[0], Array(half(t, a, n + 2, uplo)), Size(n + 2), X, Size(ix), S[1], out(a), Size(iy)], 2 * n * n * k)
        if kind == 'he' or t in 'SD':
            b, band = cut(a, kd, kd), {'sy': 'sb', 'he': 'hb'}[kind]
            stored = banded(t, b, kd if uplo == LOWER else 0, 0 if uplo == LOWER else kd, kd + 2)
            call(f'{t}{band}mv', [uplo, Size(n), Size(kd), S[0], Array(stored), Size(kd + 2), X, Size(ix), S[1], out(b), Size(iy)],
                 2 * in_band(n, n, kd, kd) * k)
            call(f'{t}{ {"sy": "sp", "he": "hp"}[kind]}mv', [uplo, Size(n), S[0], Array(packed(t, a, uplo)), X, Size(ix), S[1], out(a), Size(iy)],
                 2 * n * n * k)
        conj = np.conj if kind == 'he' else lambda v: v
        ral = al.real if kind == 'he' else al
        one = Scalar(ral, {'C': np.float32, 'Z': np.float64}[t] if kind == 'he' else dt)
        r1, r2 = a + ral * np.outer(x, conj(x)), a + al * np.outer(x, conj(y)) + (conj(al) if kind == 'he' else al) * np.outer(y, conj(x))
        Y = Array(strided(t, y, iy))
        call(f'{t}{kind}r', [uplo, Size(n), one, X, Size(ix), Array(half(t, a, n + 1, uplo), half(t, r1, n + 1, uplo)), Size(n + 1)], n * (n + 1) * k)
        call(f'{t}{kind}r2', [uplo, Size(n), S[0], X, Size(ix), Y, Size(iy), Array(half(t, a, n + 1, uplo), half(t, r2, n + 1, uplo)), Size(n + 1)],
             2 * n * (n + 1) * k)
        if kind == 'he' or t in 'SD':
            p = {'sy': 'sp', 'he': 'hp'}[kind]
            call(f'{t}{p}r', [uplo, Size(n), one, X, Size(ix), Array(packed(t, a, uplo), packed(t, r1, uplo))], n * (n + 1) * k)
            call(f'{t}{p}r2', [uplo, Size(n), S[0], X, Size(ix), Y, Size(iy), Array(packed(t, a, uplo), packed(t, r2, uplo))], 2 * n * (n + 1) * k)
    g = values(t, n, 7)
    v = values(t, 7)
    for name, w in ((t + 'ger', v), (t + 'geru', v), (t + 'gerc', v.conj())):
        if (name[1:] == 'ger') == (t in 'SD'):
            call(name, [Size(n), Size(7), S[0], X, Size(ix), Array(strided(t, v, iy)), Size(iy),
                        Array(full(t, g, n + 1), full(t, g + al * np.outer(x, w), n + 1)), Size(n + 1)], 2 * n * 7 * k)


def triangles(t, n, uplo, trans, unit):
    k, kd, inc = factor(t), 3, -2
    a, stored = triangle(t, n, uplo, unit)
    x = values(t, n)
    kl, ku = (kd, 0) if uplo == LOWER else (0, kd)
    b, bs = cut(a, kl, ku), cut(stored, kl, ku)
    X = lambda w: Array(strided(t, x, inc), strided(t, w, inc))
    head = [uplo, trans, unit]
    product, solution = op(a, trans) @ x, np.linalg.solve(op(a, trans), x)
    call(t + 'trmv', [*head, Size(n), Array(half(t, stored, n + 2, uplo)), Size(n + 2), X(product), Size(inc)], n * n * k)
    call(t + 'trsv', [*head, Size(n), Array(half(t, stored, n + 2, uplo)), Size(n + 2), X(solution), Size(inc)], n * n * k)
    call(t + 'tpmv', [*head, Size(n), Array(packed(t, stored, uplo)), X(product), Size(inc)], n * n * k)
    call(t + 'tpsv', [*head, Size(n), Array(packed(t, stored, uplo)), X(solution), Size(inc)], n * n * k)
    band, flops = Array(banded(t, bs, kl, ku, kd + 2)), (2 * in_band(n, n, kd, 0) - n) * k
    call(t + 'tbmv', [*head, Size(n), Size(kd), band, Size(kd + 2), X(op(b, trans) @ x), Size(inc)], flops)
    call(t + 'tbsv', [*head, Size(n), Size(kd), band, Size(kd + 2), X(np.linalg.solve(op(b, trans), x)), Size(inc)], flops)


# ---- level 3 ----

def gemms(t):
    m, n, dt, f = 11, 7, TYPES[t], factor(t)
    for ta in (N, T, H):
        for tb in (N, T, H):
            for k, al, be in ((13, pick(t, 0.5), 0), (13, 0, pick(t, 2.0)), (0, 1, pick(t, 2.0)), (5, 1, 1)):
                a, b, c = values(t, *((k, m) if ta else (m, k))), values(t, *((n, k) if tb else (k, n))), values(t, m, n)
                want = al * (op(a, ta) @ op(b, tb)) + (be * c if be else 0)
                if not al and k:
                    a, b = a * np.nan, b * np.nan  # not read
                lda, ldb, ldc = len(a) + 1, len(b) + 2, m + 1
                c0 = c if be else c * np.nan
                args = lambda: [ta, tb, Size(m), Size(n), Size(k), Scalar(al, dt), Array(full(t, a, lda)), Size(lda), Array(full(t, b, ldb)),
                                Size(ldb), Scalar(be, dt), Array(full(t, c0, ldc), full(t, want, ldc)), Size(ldc)]
                flops = 2 * m * n * k * f
                call(t + 'gemm', args(), flops)
                if t in 'CZ':
                    call(t + 'gemm3m', args(), flops)
                typed(t, args(), flops, lda, ldb)
            batches(t, ta, tb)


def typed(t, args, flops, lda, ldb):
    """GemmEx and its kin: a type behind each matrix."""
    code = CODE[TYPES[t]]
    head, (a, la, b, lb, be, c, lc) = args[:6], args[6:]
    e = [*head, a, code, la, b, code, lb, be, c, code, lc]
    call('GemmEx', [*e, 70 if t in 'DZ' else 68, -1], flops)
    if t in 'SC':
        c.p = upload(c.a)
        call(t + 'gemmEx', e, flops)
    if t == 'C':
        c.p = upload(c.a)
        call('Cgemm3mEx', e, flops)


def batches(t, ta, tb):
    m, n, k, batch, dt = 5, 6, 4, 3, TYPES[t]
    a, b = ([values(t, *s) for _ in range(batch)] for s in ((k, m) if ta else (m, k), (n, k) if tb else (k, n)))
    c, al, be = [values(t, m, n) for _ in range(batch)], pick(t, 0.5), pick(t, -1)
    want = [al * (op(p, ta) @ op(q, tb)) + be * r for p, q, r in zip(a, b, c)]
    la, lb, lc, flops, code = len(a[0]) + 1, len(b[0]), m + 2, 2 * m * n * k * batch * factor(t), CODE[dt]
    head = [ta, tb, Size(m), Size(n), Size(k), Scalar(al, dt)]
    A, B = Pointers([Array(full(t, p, la)) for p in a]), Pointers([Array(full(t, p, lb)) for p in b])
    C = lambda: Pointers([Array(full(t, p, lc), full(t, w, lc)) for p, w in zip(c, want)])
    for name in [t + 'gemmBatched'] + ([t + 'gemm3mBatched'] if t == 'C' else []):
        call(name, [*head, A, Size(la), B, Size(lb), Scalar(be, dt), C(), Size(lc), Size(batch)], flops)
    call('GemmBatchedEx', [*head, A, code, Size(la), B, code, Size(lb), Scalar(be, dt), C(), code, Size(lc), Size(batch),
                           70 if t in 'DZ' else 68, -1], flops)
    cat = np.concatenate
    SA, SB = Array(cat([full(t, p, la) for p in a])), Array(full(t, b[0], lb))  # B is one for all
    want = [al * (op(p, ta) @ op(b[0], tb)) + be * r for p, r in zip(a, c)]
    C = lambda: Array(cat([full(t, p, lc) for p in c]), cat([full(t, p, lc) for p in want]))
    sa, sc = Stride(la * a[0].shape[1]), Stride(lc * n)
    for name in [t + 'gemmStridedBatched'] + ([t + 'gemm3mStridedBatched'] if t == 'C' else []):
        call(name, [*head, SA, Size(la), sa, SB, Size(lb), Stride(0), Scalar(be, dt), C(), Size(lc), sc, Size(batch)], flops)
    call('GemmStridedBatchedEx', [*head, SA, code, Size(la), sa, SB, code, Size(lb), Stride(0), Scalar(be, dt), C(), code, Size(lc), sc,
                                  Size(batch), 70 if t in 'DZ' else 68, -1], flops)


def groups(t):
    dt, code = TYPES[t], CODE[TYPES[t]]
    sizes = [(5, 4, 3, 2), (0, 4, 3, 1), (2, 7, 6, 3), (3, 3, 0, 1)]  # m, n, k, problems
    al, be = np.array([0.5, 1, -1, 1], dt), np.array([0, 1, 2, 0.5], dt)
    for typed_ in (0, 1):
        A, B, C, total = [], [], [], 0
        for g, (m, n, k, count) in enumerate(sizes):
            total += 2 * m * n * k * count
            for _ in range(count):
                a, b, c = values(t, k, m), values(t, k, n), values(t, m, n)
                want = al[g] * (a.T @ b) + (be[g] * c if be[g] else 0)
                A.append(Array(full(t, a, max(k, 1))))
                B.append(Array(full(t, b, max(k, 1))))
                C.append(Array(full(t, c if be[g] else c * np.nan, m + 1), full(t, want, m + 1)))
        i32 = lambda v: np.array(v, np.int32)
        m, n, k, count = (i32([s[i] for s in sizes]) for i in range(4))
        flag = lambda v: np.array(v, np.uint32)
        la, lc, types = np.maximum(k, 1).astype(np.int32), i32(m + 1), (code,) if typed_ else ()
        args = [flag([T] * 4), flag([N] * 4), m, n, k, al, Pointers(A), *types, la, Pointers(B), *types, la, be, Pointers(C), *types, lc,
                Size(4), count, *((70 if t == 'D' else 68,) if typed_ else ())]
        name = 'GemmGroupedBatchedEx' if typed_ else t + 'gemmGroupedBatched'
        if MODE == 'device':
            call(name, args, 0, status=15, record=False)
        else:
            call(name, args, total)


def level3(t):
    m, n, dt, f = 12, 70, TYPES[t], factor(t)
    for uplo in (LOWER, UPPER):
        for side in (0, 1):
            order = n if side else m
            al, b = pick(t, 0.5), values(t, m, n)
            for be in (0, pick(t, -1)):
                for kind, a in [('sy', symmetric(t, order))] + ([('he', hermitian(t, order))] if t in 'CZ' else []):
                    c = values(t, m, n)
                    want = al * (b @ a if side else a @ b) + (be * c if be else 0)
                    call(f'{t}{kind}mm', [side, uplo, Size(m), Size(n), Scalar(al, dt), Array(half(t, a, order + 1, uplo)), Size(order + 1),
                                          Array(full(t, b, m + 2)), Size(m + 2), Scalar(be, dt),
                                          Array(full(t, c if be else c * np.nan, m + 1), full(t, want, m + 1)), Size(m + 1)],
                         2 * m * n * order * f, terms=order)
            for trans in (N, T, H):
                for unit in (0, 1):
                    sided_triangle(t, m, n, uplo, side, trans, unit)
        for k, al, be in ((9, pick(t, 0.5), 0), (9, pick(t, 0.5), pick(t, -1)), (0, 1, pick(t, 2.0)), (9, 0, 0)):
            rank_k(t, n, k, uplo, al, be)


def sided_triangle(t, m, n, uplo, side, trans, unit):
    order, dt, f = n if side else m, TYPES[t], factor(t)
    a, stored = triangle(t, order, uplo, unit)
    al, b, o = pick(t, 0.5), values(t, m, n), op(a, trans)
    A, s, flops = Array(half(t, stored, order + 1, uplo)), Scalar(al, dt), m * n * order * f
    head = [side, uplo, trans, unit, Size(m), Size(n), s, A, Size(order + 1)]
    call(t + 'trmm', [*head, Array(full(t, b, m + 1)), Size(m + 1), Array(full(t, b * np.nan, m), full(t, al * (b @ o if side else o @ b), m)), Size(m)],
         flops, terms=order)
    solution = al * (np.linalg.solve(o.T, b.T).T if side else np.linalg.solve(o, b))
    call(t + 'trsm', [*head, Array(full(t, b, m + 1), full(t, solution, m + 1)), Size(m + 1)], flops, terms=order)
    two = [Array(full(t, b, m + 1), full(t, solution, m + 1)) for _ in range(2)]
    call(t + 'trsmBatched', [*head[:-2], Pointers([A, A]), Size(order + 1), Pointers(two), Size(m + 1), Size(2)], 2 * flops, terms=order)


def rank_k(t, n, k, uplo, al, be):
    dt, f = TYPES[t], factor(t)
    for kind, other in [('sy', T)] + ([('he', H)] if t in 'CZ' else []):
        herm = kind == 'he'
        for trans in (N, other):
            a, b = values(t, *((k, n) if trans else (n, k))), values(t, *((k, n) if trans else (n, k)))
            c = hermitian(t, n) if herm else symmetric(t, n)
            A, B = Array(full(t, a, len(a) + 1)), Array(full(t, b, len(b) + 1))
            oa, ob = op(a, trans), op(b, trans)
            ct_ = lambda v: v.conj().T if herm else v.T
            rbe = np.real(be) if herm else be
            ral = np.real(al) if herm else al
            sdt = {'C': np.float32, 'Z': np.float64}[t] if herm else dt
            old = rbe * c if rbe else 0 * c
            out = lambda v: Array(half(t, c if rbe else c * np.nan, n + 1, uplo), half(t, v, n + 1, uplo))
            head, flops = [uplo, trans, Size(n), Size(k)], k * n * (n + 1) * f
            args = lambda s, x: [*head, s, x, Size(len(a) + 1)]
            want = ral * (oa @ ct_(oa)) + old
            call(f'{t}{kind}rk', [*args(Scalar(ral, sdt), A), Scalar(rbe, sdt), out(want), Size(n + 1)], flops, terms=k)
            if t == 'C':
                for name in (f'C{kind}rkEx', f'C{kind}rk3mEx'):
                    call(name, [*head, Scalar(ral, sdt), A, 4, Size(len(a) + 1), Scalar(rbe, sdt), out(want), 4, Size(n + 1)], flops, terms=k)
            want2 = al * (oa @ ct_(ob)) + (np.conj(al) if herm else al) * (ob @ ct_(oa)) + old
            call(f'{t}{kind}r2k', [*args(Scalar(al, dt), A), B, Size(len(b) + 1), Scalar(rbe, sdt), out(want2), Size(n + 1)],
                 (2 * k * n * n + n) * f if k else 0, terms=2 * k)
            x = ob if not herm else oa  # herkx: only a Hermitian result is defined
            X = B if not herm else A
            xal = al if not herm else ral
            call(f'{t}{kind}rkx', [*args(Scalar(xal, dt), A), X, Size(len(b) + 1), Scalar(rbe, sdt), out(xal * (oa @ ct_(x)) + old), Size(n + 1)],
                 flops, terms=k)


def sums(t):
    m, n, dt, f = 9, 35, TYPES[t], factor(t)
    for ta in (N, T, H):
        for tb in (N, T, H):
            for al, be in ((1, 0), (pick(t, 0.5), pick(t, -1)), (0, 1)):
                a, b = values(t, *((n, m) if ta else (m, n))), values(t, *((n, m) if tb else (m, n)))
                want = al * op(a, ta) + be * op(b, tb)
                a, b = a if al else a * np.nan, b if be else b * np.nan
                call(t + 'geam', [ta, tb, Size(m), Size(n), Scalar(al, dt), Array(full(t, a, len(a) + 1)), Size(len(a) + 1), Scalar(be, dt),
                                  Array(full(t, b, len(b))), Size(len(b)), Array(full(t, want * np.nan, m + 1), full(t, want, m + 1)), Size(m + 1)],
                     m * n * f)
    for side in (0, 1):
        a, x = values(t, m, n), values(t, n if side else m)
        for inc in (1, -2):
            want = a * x[None, :] if side else a * x[:, None]
            call(t + 'dgmm', [side, Size(m), Size(n), Array(full(t, a, m)), Size(m), Array(strided(t, x, inc)), Size(inc),
                              Array(full(t, a * np.nan, m + 1), full(t, want, m + 1)), Size(m + 1)], m * n * f)
    for uplo in (LOWER, UPPER):
        a = values(t, n, n)
        call(t + 'tpttr', [uplo, n, Array(packed(t, a, uplo)), Array(full(t, a * np.nan, n + 1), half(t, a, n + 1, uplo)), n + 1], None)
        call(t + 'trttp', [uplo, n, Array(half(t, a, n + 1, uplo)), n + 1, Array(np.zeros(n * (n + 1) // 2, dt), packed(t, a, uplo))], None)


# ---- small formats ----

def bf16(v):
    u = np.asarray(v, np.float32).view(np.uint32)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def small():
    """16-bit operands; what they hold is exact in double, the results are compared after rounding."""
    m, n, k = 9, 8, 7
    h = lambda v: np.asarray(v, np.float16)
    a, b, c = real(m, k).astype(np.float16), real(k, n).astype(np.float16), real(m, n).astype(np.float16)
    want = h(0.5 * (a.astype(float) @ b.astype(float)) - c)
    F = lambda v: np.ascontiguousarray(v.T).ravel()
    args = [N, N, Size(m), Size(n), Size(k), Scalar(0.5, np.float16), Array(F(a)), Size(m), Array(F(b)), Size(k), Scalar(-1, np.float16)]
    call('Hgemm', [*args, Array(F(c), F(want)), Size(m)], 2 * m * n * k, terms=0)
    call('HgemmBatched', [*args[:6], Pointers([args[6]] * 2), Size(m), Pointers([args[8]] * 2), Size(k), args[10],
                          Pointers([Array(F(c), F(want)) for _ in range(2)]), Size(m), Size(2)], 4 * m * n * k, terms=0)
    call('HgemmStridedBatched', [*args[:8], Stride(0), args[8], Size(k), Stride(0), args[10], Array(np.tile(F(c), 2), np.tile(F(want), 2)), Size(m),
                                 Stride(m * n), Size(2)], 4 * m * n * k, terms=0)
    i, j = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    s = rng.integers(-1000, 1000, (m, n)).astype(np.int32)
    exact = (3 * (i.astype(np.int64) @ j.astype(np.int64)) - 2 * s).astype(np.int32)
    call('GemmEx', [N, N, Size(m), Size(n), Size(k), Scalar(3, np.int32), Array(F(i)), 3, Size(m), Array(F(j)), 3, Size(k), Scalar(-2, np.int32),
                    Array(F(s), F(exact)), 10, Size(m), 72, -1], 0)  # integer operations are no FLOPs
    x, y = real(n).astype(np.float16), real(m).astype(np.float16)
    A = real(m, n).astype(np.float16)
    full_want = 0.5 * (A.astype(float) @ x.astype(float)) + 2 * y.astype(float)
    to16 = {'H': h, 'T': bf16}
    for p in 'HT':
        conv = to16[p]
        back = (lambda v: v.astype(float)) if p == 'H' else (lambda v: (v.astype(np.uint32) << 16).view(np.float32).astype(float))
        Ax, xx, yy = conv(A), conv(x), conv(y)
        exact = 0.5 * (back(Ax) @ back(xx))
        for out in (p, 'S'):
            y0, w = (yy, conv(exact + 2 * back(yy))) if out == p else (y.astype(np.float32), (exact + 2 * y.astype(float)).astype(np.float32))
            args = [N, Size(m), Size(n), Scalar(0.5, np.float32)]
            Y = lambda: Array(y0, w)
            call(f'{p}S{out}gemvStridedBatched', [*args, Array(F(Ax)), Size(m), Stride(m * n), Array(xx), Size(1), Stride(n), Scalar(2, np.float32), Y(),
                                                  Size(1), Stride(m), Size(1)], 2 * m * n)
            call(f'{p}S{out}gemvBatched', [*args, Pointers([Array(F(Ax))]), Size(m), Pointers([Array(xx)]), Size(1), Scalar(2, np.float32),
                                           Pointers([Y()]), Size(1), Size(1)], 2 * m * n)


# ---- edges ----

def edges(t):
    """Nothing to do is success, whatever the pointers are; wrong sizes are CUBLAS_STATUS_INVALID_VALUE (7)."""
    dt = TYPES[t]
    one, a = Scalar(1, dt), Array(full(t, values(t, 4, 4), 4))
    none = dict(flops=0)
    v = [None, Size(1)]
    call(t + 'gemv', [N, Size(0), Size(4), one, None, Size(1), *v, one, *v], **none)
    call(t + 'gemv', [N, Size(4), Size(4), one, a, Size(3), *v, one, *v], status=7, **none)
    call(t + 'gemv', [N, Size(4), Size(4), one, a, Size(4), a, Size(0), one, a, Size(1)], status=7, **none)
    call(t + 'gemv', [3, Size(4), Size(4), one, a, Size(4), a, Size(1), one, a, Size(1)], status=7, **none)
    call(t + 'gbmv', [N, Size(4), Size(4), Size(1), Size(2), one, a, Size(3), *v, one, *v], status=7, **none)
    call(t + 'trsv', [LOWER, N, 0, Size(0), None, Size(1), *v], **none)
    call(t + 'syr', [2, Size(4), one, a, Size(1), a, Size(4)], status=7, **none)
    call(t + 'gemm', [N, N, Size(0), Size(4), Size(4), one, None, Size(1), None, Size(4), one, None, Size(1)], **none)
    call(t + 'gemm', [N, N, Size(4), Size(4), Size(4), one, None, Size(4), None, Size(4), one, a, Size(4)], status=7, **none)
    call(t + 'gemm', [N, N, Size(4), Size(-1), Size(4), one, a, Size(4), a, Size(4), one, a, Size(4)], status=7, **none)
    call(t + 'gemmStridedBatched', [N, N, Size(4), Size(4), Size(4), one, a, Size(4), Stride(0), a, Size(4), Stride(0), one, None, Size(4), Stride(0),
                                    Size(0)], **none)
    call(t + 'trsm', [0, LOWER, N, 0, Size(4), Size(0), one, None, Size(4), None, Size(4)], **none)
    call(t + 'trsm', [0, LOWER, N, 0, Size(4), Size(4), one, a, Size(4), a, Size(3)], status=7, **none)
    call(t + 'syrk', [LOWER, N, Size(4), Size(4), None, a, Size(4), one, a, Size(4)], status=7, **none)
    if t in 'CZ':
        call(t + 'syrk', [LOWER, H, Size(4), Size(4), one, a, Size(4), one, a, Size(4)], status=7, **none)
        call(t + 'herk', [LOWER, T, Size(4), Size(4), one, a, Size(4), one, a, Size(4)], status=7, **none)


# ---- batches of factorisations ----

def lapack(t):
    n, batch, dt = 10, 3, TYPES[t]
    a = [values(t, n, n) + (np.diag([3.0] * n) if i == 2 else 0) for i in range(batch)]
    cond, rhs = [max(1, np.linalg.cond(x)) for x in a], values(t, n, 2)
    for pivoted in (1, 0):
        use = a if pivoted else [x + np.diag([6.0] * n) for x in a]
        A = Pointers([Array(full(t, x, n + 1)) for x in use])
        P, info = Array(np.zeros(n * batch, np.int32)) if pivoted else None, Array(np.full(batch, 9, np.int32))
        run(t + 'getrfBatched', [n, A, n + 1, P, info, batch])
        expect(t + 'getrf info', download(info.p, info.a), 0, 0)
        for i, x in enumerate(use):
            lu = download(A.arrays[i].p, A.arrays[i].a).reshape(n, n + 1)[:, :n].T.astype(complex)
            rows = list(range(n))
            if pivoted:
                for j, q in enumerate(download(P.p, P.a)[i * n:i * n + n] - 1):
                    rows[j], rows[q] = rows[q], rows[j]
            expect(t + 'getrf', (np.tril(lu, -1) + np.eye(n)) @ np.triu(lu), x[rows], 64 * np.finfo(dt).eps * n * 8)
        C = Pointers([Array(full(t, x * np.nan, n + 2)) for x in use])
        run(t + 'getriBatched', [n, A, n + 1, P, C, n + 2, info, batch])
        for trans in (N, T, H):
            B, host = Pointers([Array(full(t, rhs, n + 1)) for _ in use]), ct.c_int(9)
            run(t + 'getrsBatched', [trans, n, 2, A, n + 1, P, B, n + 1, ct.byref(host), batch])
            expect(t + 'getrs info', host.value, 0, 0)
            for i, x in enumerate(use):
                got = download(B.arrays[i].p, B.arrays[i].a).reshape(2, n + 1)[:, :n].T
                expect(t + 'getrs', got, np.linalg.solve(op(x, trans), rhs), 512 * np.finfo(dt).eps * cond[i] ** 2)
        for i, x in enumerate(use):
            got = download(C.arrays[i].p, C.arrays[i].a).reshape(n, n + 2)[:, :n].T
            expect(t + 'getri', got, np.linalg.inv(x), 512 * np.finfo(dt).eps * cond[i] ** 2)
    inverses(t, a, cond)
    least_squares(t)


def inverses(t, a, cond):
    n, dt = len(a[0]), TYPES[t]
    singular = np.ones((n, n))
    A, C = Pointers([Array(full(t, x, n)) for x in a + [singular]]), Pointers([Array(full(t, x * np.nan, n)) for x in a + [singular]])
    info = Array(np.full(len(a) + 1, 9, np.int32))
    run(t + 'matinvBatched', [n, A, n, C, n, info, len(a) + 1])
    expect(t + 'matinv info', download(info.p, info.a), [0] * len(a) + [2], 0)  # the second pivot is 0
    for i, x in enumerate(a):
        got = download(C.arrays[i].p, C.arrays[i].a).reshape(n, n).T
        expect(t + 'matinv', got, np.linalg.inv(x), 512 * np.finfo(dt).eps * cond[i] ** 2)


def least_squares(t):
    m, n, dt, batch = 9, 5, TYPES[t], 2
    a, b = [values(t, m, n) for _ in range(batch)], [values(t, m, 2) for _ in range(batch)]
    A, tau, host = Pointers([Array(full(t, x, m)) for x in a]), Pointers([Array(np.zeros(n, dt)) for _ in a]), ct.c_int(9)
    run(t + 'geqrfBatched', [m, n, A, m, tau, ct.byref(host), batch])
    expect(t + 'geqrf info', host.value, 0, 0)
    for i, x in enumerate(a):  # R'R = A'A, and R is triangular
        r = np.triu(download(A.arrays[i].p, A.arrays[i].a).reshape(n, m).T[:n].astype(complex))
        expect(t + 'geqrf', r.conj().T @ r, x.conj().T @ x, 512 * np.finfo(dt).eps)
    A, B = Pointers([Array(full(t, x, m)) for x in a]), Pointers([Array(full(t, x, m)) for x in b])
    info = Array(np.full(batch, 9, np.int32))
    run(t + 'gelsBatched', [N, m, n, 2, A, m, B, m, ct.byref(host), info, batch])
    expect(t + 'gels info', download(info.p, info.a), 0, 0)
    for i, x in enumerate(a):
        got = download(B.arrays[i].p, B.arrays[i].a).reshape(2, m)[:, :n].T
        expect(t + 'gels', got, np.linalg.lstsq(x, b[i], rcond=None)[0], 4096 * np.finfo(dt).eps)


def run(name, args):
    f = getattr(blas, 'cublas' + name)
    status = f(handle, *[ct.c_int(a) if isinstance(a, int) else a if a is None or not hasattr(a, 'p') else a.p for a in args])
    if status:
        wrong.append(f'{name}: status {status}')
    recorded.append([name, None])


def expect(name, got, want, bound):
    if not np.all(np.abs(np.asarray(got) - np.asarray(want)) <= bound):
        wrong.append(f'{name}: {np.asarray(got).ravel()[:3]}…, not {np.asarray(want).ravel()[:3]}…')


_call = call


def call(name, *a, **kw):
    _call(name if name.startswith('cublas') else 'cublas' + name, *a, **kw)


if __name__ == '__main__':
    for t in 'SDCZ':
        level1(t)
        rotation_numbers(t)
        level2(t)
        gemms(t)
        level3(t)
        sums(t)
        edges(t)
        lapack(t)
        if t in 'SD':
            modified_rotation(t)
            groups(t)
    small()
    assert rt.cudaDeviceSynchronize() == 0
    if len(sys.argv) > 2:
        with open(sys.argv[2], 'w') as f:
            json.dump(recorded, f)
    print('\n'.join(sorted(set(wrong))))
    print(f'{len(recorded)} calls, {len(wrong)} wrong')
    sys.exit(bool(wrong))
