"""The sample app's matrix products in every number format, and its casts to fp8, against double precision."""
import json, os, struct, subprocess
import numpy as np
import pytest
from conftest import BUILD, DEVICE, ON_GPU
from number_formats import (BF16, BITS, DTYPES, E4M3, E5M2, FP16, FP32, LARGEST, SMALLEST, UNIT_ROUNDOFF, decode, encode)

REAL = {'fp32': FP32, 'tf32': FP32, 'bf16': BF16, 'fp16': FP16, 'fp8': BF16}  # format of the run
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, PLAIN, BATCHED, CAST, CAST_TRANSPOSED = range(7)
SHAPES = [(1, 1, 1), (3, 5, 7), (17, 33, 65), (64, 1, 128), (40, 96, 24), (128, 64, 256)]


def request(op, a, b, c, M, N, K, format, ta=0, tb=0, batch=1, beta=0.0):
    head = struct.pack('<8i3qfi', op, ta, tb, M, N, K, batch, format, a.nbytes, b.nbytes, c.nbytes, beta, 0)
    return head + a.tobytes() + b.tobytes() + c.tobytes()


def start(dtype, requests, account, workspace=1 << 20, reserve=(1024, 1024, 1024 * 1024), env=None):
    argv = [os.path.join(BUILD, 'tests', 'products_cases'), DTYPES.index(dtype), workspace, *reserve, account]
    return subprocess.run([str(a) for a in argv], input=b''.join(requests), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=120, env={**os.environ, **DEVICE, **(env or {})})


def program(dtype, requests, tmp_path, **kw):
    """What the requests gave, one after another, and the account's steps. Nothing is said beside."""
    r = start(dtype, requests, tmp_path / 'account.json', **kw)
    assert (r.returncode, r.stderr) == (0, b'')
    return r.stdout, json.loads((tmp_path / 'account.json').read_text())['steps']


def split(output, arrays):
    """Arrays like these, one after another."""
    at, got = 0, []
    for a in arrays:
        got.append(np.frombuffer(output, a.dtype, a.size, at).reshape(a.shape))
        at += a.nbytes
    assert at == len(output)
    return got


def draw(rng, shape, fmt, scale=1.0):
    """Normal numbers in the format: bits, and what they are."""
    bits = encode((rng.standard_normal(shape) * scale).astype(np.float32), fmt)
    return bits, decode(bits, fmt)


# The matrix units of a GPU cut off where the virtual one rounds: the factors of tf32 (one bit more), and, in fp8, sums of
# some 32 products, which have 13 bits and more.
TF32 = UNIT_ROUNDOFF['tf32'] * (2 if ON_GPU else 1)
FP8_SUMS = 2.0**-13 if ON_GPU else 0


def bound(dtype, out, A, B, result, K, already=0.0):
    """How far a product may be from double precision: K fp32 products and sums, in any order, cut off or rounded; tf32's
    rounding of the factors; one rounding of the result."""
    size = np.abs(A) @ np.abs(B)
    factors = {'tf32': 2 * TF32 * (1 + TF32), 'fp8': FP8_SUMS}.get(dtype, 0) * size
    sums = (K + 2) * 2.0**-23 * (size + np.abs(already))
    return factors + sums + UNIT_ROUNDOFF[out] * (np.abs(result) + factors + sums) + SMALLEST[out]


class Case:
    """One product: what goes in, what must come out, how far it may be off."""

    def __init__(self, dtype, op, A, B, ta, tb, beta, c_format, before):
        a_bits, a = A
        b_bits, b = B
        op_a, op_b = (np.swapaxes(a, -1, -2) if ta else a), (np.swapaxes(b, -1, -2) if tb else b)
        M, K, N = op_a.shape[-2], op_a.shape[-1], op_b.shape[-1]
        batch = 1 if a.ndim == 2 else a.shape[0]
        held = decode(before, c_format)
        already = beta * held if beta else np.zeros_like(held)
        self.exact = op_a @ op_b + already
        self.bound = bound(dtype, c_format, op_a, op_b, self.exact, K, already)
        self.format, self.before, self.flops = c_format, before, 2 * M * N * K * batch
        self.request = request(op, a_bits, b_bits, before, M, N, K, c_format, ta, tb, batch, beta)

    def check(self, bits):
        got = decode(bits, self.format)
        worst = np.abs(got - self.exact) / self.bound
        assert np.isfinite(got).all() and worst.max() <= 1, worst.max()


def nothing(shape, fmt):
    """What must never be read: NaNs."""
    return np.full(shape, encode(np.nan, fmt), BITS[fmt])


def linear_layers(dtype, rng, shapes):
    """The three products of a layer for each (N, OC, IC)."""
    real = REAL[dtype]
    for N, OC, IC in shapes:
        x, w, dout = draw(rng, (N, IC), real), draw(rng, (OC, IC), real, 0.1), draw(rng, (N, OC), real, 1e-3)
        dw = draw(rng, (OC, IC), FP32, 1e-2)
        yield Case(dtype, FORWARD, x, w, 0, 1, 0, real, nothing((N, OC), real))
        yield Case(dtype, INPUT_GRADIENT, dout, w, 0, 0, 0, real, nothing((N, IC), real))
        yield Case(dtype, WEIGHT_GRADIENT, dout, x, 1, 0, 1, FP32, dw[0])


def plain(dtype, rng, shapes):
    """Every transposition, beta and format of the result, alone and in batches."""
    real = REAL[dtype]
    for M, N, K in shapes:
        for ta in (0, 1):
            for tb in (0, 1):
                a, b = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))
                A, B = draw(rng, a, real), draw(rng, b, real)
                for fmt in {real, FP32}:
                    yield Case(dtype, PLAIN, A, B, ta, tb, 0, fmt, nothing((M, N), fmt))
                    yield Case(dtype, PLAIN, A, B, ta, tb, 1, fmt, draw(rng, (M, N), fmt)[0])
                    yield Case(dtype, PLAIN, A, B, ta, tb, -0.5, fmt, draw(rng, (M, N), fmt)[0])
                A, B = draw(rng, (3,) + a, real), draw(rng, (3,) + b, real)
                yield Case(dtype, BATCHED, A, B, ta, tb, 0, real, nothing((3, M, N), real))


def check_all(dtype, cases, tmp_path, calls=1, **kw):
    output, steps = program(dtype, [c.request for c in cases], tmp_path, **kw)
    results = split(output, [c.before for c in cases])
    assert len(steps) == len(cases)
    for case, bits, step in zip(cases, results, steps):
        case.check(bits)
        assert step['flops']['forward'] == case.flops
        assert step['to_call'] - step['from_call'] + 1 == calls
    return results


@pytest.mark.parametrize('dtype', ['fp32', 'tf32', 'bf16', 'fp16'])
def test_products(dtype, tmp_path):
    rng = np.random.default_rng(1)
    check_all(dtype, [*linear_layers(dtype, rng, SHAPES), *plain(dtype, rng, SHAPES)], tmp_path)


@pytest.mark.parametrize('dtype', ['fp32', 'bf16'])
def test_products_without_a_workspace(dtype, tmp_path):
    check_all(dtype, [*linear_layers(dtype, np.random.default_rng(2), SHAPES)], tmp_path, workspace=0)


def test_tf32_rounds_its_factors(tmp_path):
    """Else it would be fp32 under another name."""
    rng = np.random.default_rng(3)
    cases = [*linear_layers('tf32', rng, [(128, 64, 256)])]
    for case, bits in zip(cases, check_all('tf32', cases, tmp_path)):
        off = np.abs(decode(bits, case.format) - case.exact)
        assert off.mean() > 2.0**-14 * np.abs(case.exact).mean()


def test_fp16_products_overflow_and_bf16_ones_do_not(tmp_path):
    """65504 is the largest number of fp16: 300 · 300 is beyond it."""
    for dtype, fmt, infinite in (('fp16', FP16, True), ('bf16', BF16, False)):
        a = encode(np.full((4, 8), 300.0), fmt)
        c = nothing((4, 4), fmt)
        output, _ = program(dtype, [request(PLAIN, a, a, c, 4, 4, 8, fmt, tb=1)], tmp_path)
        got = decode(split(output, [c])[0], fmt)
        assert np.isinf(got).all() == infinite
        assert infinite or (abs(got - 8 * 90000) <= 8 * 90000 * UNIT_ROUNDOFF[BF16]).all()


# ---- casts to fp8 ----

def reference_scale(x, fmt):
    """Of the numbers x, NaNs aside: as floats, which divide as IEEE says."""
    finite = np.abs(x[~np.isnan(x)])
    amax = np.float32(finite.max() if finite.size else 0)
    with np.errstate(over='ignore', divide='ignore'):
        scale = min(np.float32(LARGEST[fmt]) / amax, np.float32(2.0**126)) if amax > 0 else np.float32(1)
        return np.float32(scale), np.float32(1) / np.float32(scale)


def reference_cast(x, fmt):
    scale, inverse = reference_scale(x, fmt)
    with np.errstate(invalid='ignore'):
        return encode((x.astype(np.float32) * scale), fmt), scale, inverse


def awkward(rng, R, C):
    """Ties, neighbours of ties, subnormals, zeros of both signs, over the whole range of fp8. The largest is 7, which
    makes the scale a power of two (448 and 57344 are 7 times one): scaled numbers keep their 8 bits."""
    bits = rng.integers(0, 1 << 16, (R, C)).astype(np.uint16)
    exponents = rng.integers(127 - 40, 127 + 2, (R, C))
    bits = (bits & 0x807f) | (exponents << 7).astype(np.uint16)
    bits[0, :4] = 0, 0x8000, 1, 0x8001
    bits[1, 0] = encode(-7.0, BF16)
    return bits


TENSORS = {
    'normal': lambda rng, R, C: draw(rng, (R, C), BF16)[0],
    'awkward': awkward,
    'zeros': lambda rng, R, C: np.zeros((R, C), np.uint16),
    'tiny': lambda rng, R, C: draw(rng, (R, C), BF16, 1e-38)[0],
    'subnormal': lambda rng, R, C: rng.integers(0, 128, (R, C)).astype(np.uint16),
    'huge': lambda rng, R, C: draw(rng, (R, C), BF16, 5e37)[0],
}


def check_casts(tensors, shapes, tmp_path, env=None):
    rng = np.random.default_rng(4)
    requests, wanted = [], []
    for make in tensors:
        for R, C in shapes:
            bits = make(rng, R, C)
            for fmt in (E4M3, E5M2):
                q, *scale = reference_cast(decode(bits, BF16), fmt)
                for op, out in ((CAST, q), (CAST_TRANSPOSED, np.ascontiguousarray(q.T))):
                    requests.append(request(op, bits, bits[:0], nothing(out.shape, E4M3), R, 0, C, fmt))
                    wanted += [np.array(scale, np.float32), out]
    output, _ = program('bf16', requests, tmp_path, env=env)
    for got, want in zip(split(output, wanted), wanted):
        if want.dtype == np.float32:
            assert got.tolist() == want.tolist()
        else:
            nan = (want & 0x7f) == 0x7f
            np.testing.assert_array_equal(np.where(nan, 0x7f, want), np.where(nan & (got & 0x7f == 0x7f), 0x7f, got))


@pytest.mark.parametrize('tensor', TENSORS)
def test_casts_are_exact(tensor, tmp_path):
    check_casts([TENSORS[tensor]], [(16, 16), (16, 48), (80, 32), (112, 208)], tmp_path)


def test_casts_of_more_rows_than_a_grid_has_blocks_in_y(tmp_path):
    check_casts([TENSORS['normal']], [(65535 * 32 + 16, 2)], tmp_path)


def test_casts_in_the_interpreter(tmp_path):
    check_casts([TENSORS['awkward']], [(48, 32)], tmp_path, env={'ACCT_VGPU_CHECK': '1'})


def with_largest(at):
    """At this place the largest number, of either sign."""
    def make(rng, R, C):
        bits = draw(rng, (R, C), BF16)[0]
        bits.flat[at] = encode(-100.0 if at % 3 else 100.0, BF16)
        return bits
    return make


def test_largest_magnitude_is_found_wherever_it_is(tmp_path):
    """In a tensor of 38 slices, and at the end of one that has all 256."""
    n = 304 * 512
    check_casts([with_largest(at) for at in (0, 1, 511, 512, 38 * 512 - 1, 38 * 512, n - 2, n - 1)], [(304, 512)], tmp_path)
    check_casts([with_largest(1040 * 1024 - 1)], [(1040, 1024)], tmp_path)


def test_what_is_not_finite_stays_so(tmp_path):
    """A NaN is cast to NaN and does not change the scale; an infinity takes the scale to 0 and its inverse to infinity,
    and becomes NaN itself: what it is multiplied with is NaN, never a plausible number."""
    def nans(rng, R, C):
        bits = draw(rng, (R, C), BF16)[0]
        bits[3, 5], bits[7, 0] = 0x7fc0, 0xffff
        return bits

    def infinity(rng, R, C):
        bits = draw(rng, (R, C), BF16)[0]
        bits[3, 5] = 0xff80
        return bits
    check_casts([nans, infinity], [(32, 48)], tmp_path)


# ---- products in fp8 ----

class Fp8Case(Case):
    """A product of casts: close to the exact product of what the casts gave, and as close to that of the numbers
    themselves as fp8 allows, half a unit in the last place of each factor."""

    def __init__(self, op, A, a_format, B, b_format, ta, tb, beta, c_format, before):
        super().__init__('fp8', op, A, B, ta, tb, beta, c_format, before)
        (q, q_error), (r, r_error) = self.cast(A[1], a_format, ta), self.cast(B[1], b_format, tb)
        a, b = np.abs(A[1].T if ta else A[1]), np.abs(B[1].T if tb else B[1])
        held = beta * decode(before, c_format) if beta else 0
        self.unrounded, self.exact = self.exact, q @ r + held
        # 4: the scales are applied in fp32
        self.bound = bound('fp8', c_format, q, r, self.exact, q.shape[1] + 4, held)
        self.unrounded_bound = q_error @ b + a @ r_error + q_error @ r_error + self.bound * (1 + UNIT_ROUNDOFF[E5M2])

    @staticmethod
    def cast(x, fmt, transposed):
        """x after the cast and back, and how far that may be from x."""
        bits, scale, inverse = reference_cast(x, fmt)
        error = UNIT_ROUNDOFF[fmt] * np.abs(x) + SMALLEST[fmt] / 2 / scale + 2.0**-22 * np.abs(x)
        there = decode(bits, fmt) * np.float64(inverse)
        return (there.T, error.T) if transposed else (there, error)

    def check(self, bits):
        super().check(bits)
        off = np.abs(decode(bits, self.format) - self.unrounded)
        assert (off <= self.unrounded_bound).all()


def fp8_layers(rng, shapes):
    for N, OC, IC in shapes:
        x, w, dout = draw(rng, (N, IC), BF16), draw(rng, (OC, IC), BF16, 0.02), draw(rng, (N, OC), BF16, 1e-5)
        yield Fp8Case(FORWARD, x, E4M3, w, E4M3, 0, 1, 0, BF16, nothing((N, OC), BF16))
        yield Fp8Case(INPUT_GRADIENT, dout, E5M2, w, E4M3, 0, 0, 0, BF16, nothing((N, IC), BF16))
        yield Fp8Case(WEIGHT_GRADIENT, dout, E5M2, x, E4M3, 1, 0, 1, FP32, draw(rng, (OC, IC), FP32, 1e-4)[0])


@pytest.mark.parametrize('workspace', [0, 1 << 20])
def test_fp8_products(workspace, tmp_path):
    """Twice each: what the second finds ready may not change it."""
    shapes = [(16, 16, 16), (16, 48, 32), (80, 16, 208), (128, 256, 64), (16, 48, 32), (128, 256, 64)]
    # 7 calls: largest magnitude, scale and cast of each factor, and the product
    check_all('fp8', [*fp8_layers(np.random.default_rng(5), shapes)], tmp_path, calls=7, workspace=workspace)


def test_fp8_leaves_other_products_in_bf16(tmp_path):
    check_all('fp8', [*plain('fp8', np.random.default_rng(6), SHAPES)], tmp_path)


def test_fp8_says_what_it_cannot_do(tmp_path):
    def refused(code, message, requests=(), **kw):
        r = start('fp8', requests, tmp_path / 'account.json', **kw)
        assert (r.returncode, r.stdout, r.stderr.decode()) == (code, b'', f'train: --dtype fp8 needs {message}\n')

    refused(2, 'matrices whose sizes are multiples of 16; the widest layer has 24 x 64', reserve=(24, 64, 64 * 64))
    refused(2, 'matrices whose sizes are multiples of 16; the largest weight has 64 x 8', reserve=(32, 64, 64 * 8))
    x, w = draw(np.random.default_rng(7), (16, 40), BF16), draw(np.random.default_rng(7), (16, 40), BF16)
    refused(2, 'matrices whose sizes are multiples of 16; this one has 16 x 40',
            [Case('fp8', FORWARD, x, w, 0, 1, 0, BF16, nothing((16, 16), BF16)).request])
    refused(1, 'compute capability 8.9; this device, NVIDIA A100-SXM4-80GB, has 8.0',
            env={'LD_PRELOAD': os.path.join(BUILD, 'tests', 'device_shim.so')})
