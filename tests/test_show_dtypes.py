"""`train --show-dtypes`: every number that it prints, against the bit layouts of the formats in exact arithmetic (fractions),
and against numpy where numpy has the format. Compiled and interpreted by the virtual GPU."""
import os
from fractions import Fraction
import numpy as np
import pytest
from conftest import BUILD, DEVICE, ON_GPU, run

TRAIN = os.path.join(BUILD, 'train')
# bytes in memory, bits of exponent and mantissa; IEEE: the highest exponent means infinity and NaN. E4M3 has no infinity and one NaN.
LAYOUTS = {'fp64': (8, 11, 52), 'fp32': (4, 8, 23), 'tf32': (4, 8, 10), 'fp16': (2, 5, 10), 'bf16': (2, 8, 7), 'fp8 E4M3': (1, 4, 3), 'fp8 E5M2': (1, 5, 2)}
EXAMPLES = [1e-8, 0.1, 3.14159265358979, 448, 449, 480, 57344, 61440, 65504, 70000]


def two(n):
    return Fraction(2) ** n


def largest(name):
    _, e, m = LAYOUTS[name]
    bias = 2 ** (e - 1) - 1
    if name == 'fp8 E4M3':              # pattern 1111.110
        return (2 - 2 * two(-m)) * two(2 ** e - 1 - bias)
    return (2 - two(-m)) * two(2 ** e - 2 - bias)


def rounded(name, x, saturated):
    """x (positive) to the nearest number of the format, as if exponents had no end; then the end. Ties to even; tf32's away from zero (rna)."""
    _, e, m = LAYOUTS[name]
    x = Fraction(x)
    exponent = 2 - 2 ** (e - 1)
    while x >= two(exponent + 1):
        exponent += 1
    ulp = two(exponent - m)
    n, rest = divmod(x, ulp)
    n += rest > ulp / 2 or (rest == ulp / 2 and (n % 2 == 1 or name == 'tf32'))
    if n * ulp <= largest(name):
        return float(n * ulp)
    return float(largest(name)) if saturated else float('nan') if name == 'fp8 E4M3' else float('inf')


@pytest.fixture(scope='module', params=[pytest.param(None, id='gpu')] if ON_GPU else ['jit', 'interpret'])
def tables(request):
    """The lines of the two tables."""
    how = {'ACCT_VGPU_EXECUTE': 'interpret'} if request.param == 'interpret' else {}
    r = run(TRAIN, '--show-dtypes', env={**DEVICE, **how})
    assert r.returncode == 0 and not r.stderr, r
    first, second = r.stdout.split('\n\n')
    title, *second = second.splitlines()
    assert title == 'stored, and read again:'
    return first.splitlines(), second


def close(cell, exact):
    """To the ten digits that are printed. Not by way of float: fp64's largest number, rounded to ten digits, is none."""
    return abs(Fraction(cell) - exact) <= exact * Fraction(1, 10**9)


def name_of(line):
    return next(n for n in LAYOUTS if line.startswith(n + ' '))


def test_range_and_precision(tables):
    head, *rows = tables[0]
    assert head.split() == ['format', 'bytes', 'exponent', 'mantissa', 'largest', 'smallest', 'normal', 'subnormal', 'epsilon']
    assert [name_of(r) for r in rows] == list(LAYOUTS)
    for row in rows:
        name = name_of(row)
        cells = row[len(name):].split()
        size, e, m = LAYOUTS[name]
        assert [int(c) for c in cells[:3]] == [size, e, m]
        normal = two(2 - 2 ** (e - 1))
        for cell, exact in zip(cells[3:], (largest(name), normal, normal * two(-m), two(-m)), strict=True):
            assert close(cell, exact), (name, cell)


@pytest.mark.parametrize('name,largest_number,smallest,epsilon', [('fp16', 65504, 2.0**-24, 2.0**-10), ('fp8 E4M3', 448, 2.0**-9, 0.125), ('fp8 E5M2', 57344, 2.0**-16, 0.25)])
def test_known_numbers(tables, name, largest_number, smallest, epsilon):
    """By hand, so that the formulas above cannot be wrong together with the program."""
    cells = next(r for r in tables[0] if r.startswith(name + ' '))[len(name):].split()
    assert [float(c) for c in (cells[3], cells[5], cells[6])] == [largest_number, pytest.approx(smallest), epsilon]


def test_numpy_agrees_on_ranges(tables):
    for name, kind in (('fp64', np.float64), ('fp32', np.float32), ('fp16', np.float16)):
        info = np.finfo(kind)
        cells = next(r for r in tables[0] if r.startswith(name + ' '))[len(name):].split()
        subnormal = np.nextafter(kind(0), kind(1))
        for cell, v in zip(cells[3:], (info.max, info.tiny, subnormal, info.eps), strict=True):
            assert close(cell, Fraction(float(v))), (name, cell)
        assert cells[1:3] == [str(info.nexp), str(info.nmant)]


def rounded_rows(tables):
    """(format, saturated): its cells."""
    out = {}
    for row in tables[1][1:]:
        name = name_of(row)
        rest = row[len(name):].split()
        saturated = rest[0] == 'saturated'
        out[name, saturated] = [float(c) for c in rest[saturated:]]
    return out


def test_what_becomes_of_numbers(tables):
    head = tables[1][0].split()
    assert [float(c) for c in head[1:]] == pytest.approx(EXAMPLES, rel=1e-8)
    rows = rounded_rows(tables)
    assert list(rows) == [key for n in LAYOUTS for key in ([(n, False), (n, True)] if n.startswith('fp8') else [(n, False)])]
    for (name, saturated), cells in rows.items():
        for cell, x in zip(cells, EXAMPLES, strict=True):
            exact = rounded(name, x if name == 'fp64' else float(np.float32(x)), saturated)
            assert cell == pytest.approx(exact, rel=1e-8, abs=0, nan_ok=True), (name, x)


def test_numpy_agrees_on_rounding(tables):
    rows = rounded_rows(tables)
    with np.errstate(over='ignore'):
        for name, kind in (('fp32', np.float32), ('fp16', np.float16)):
            assert rows[name, False] == pytest.approx([float(kind(x)) for x in EXAMPLES], rel=1e-8, abs=0)


def test_the_lecture(tables):
    rows = rounded_rows(tables)
    tiny, large, e4m3, e5m2 = (EXAMPLES.index(x) for x in (1e-8, 70000, 480, 61440))
    assert rows['fp16', False][tiny] == 0 and rows['bf16', False][tiny] > 0
    assert rows['fp16', False][large] == float('inf') and rows['bf16', False][large] == 70144      # 137 · 512
    assert np.isnan(rows['fp8 E4M3', False][e4m3]) and rows['fp8 E4M3', True][e4m3] == 448
    assert rows['fp8 E5M2', False][e5m2] == float('inf') and rows['fp8 E5M2', True][e5m2] == 57344
