"""`acct plan roofline`: ridge points against the figures of the vendors' data sheets, written down here once more; products by their
shapes, in fractions."""
import random, re, subprocess
from fractions import Fraction
import pytest
from plan_words import ACCT, plan, refused

FORMATS = ('fp64', 'fp64_tensor', 'fp32', 'tf32', 'bf16', 'fp16', 'fp16_acc16', 'fp8', 'int8', 'fp4')
# TFLOP/s dense (int8 TOP/s); -: no such unit. The last: GB/s.
SHEETS = '''
v100-16       7.8  -    15.7  -     -     125   125   -      -      -    900
v100-32       7.8  -    15.7  -     -     125   125   -      -      -    900
t4            0.25 -    8.1   -     -     65    65    -      130    -    320
a100-40       9.7  19.5 19.5  156   312   312   312   -      624    -    1555
a100-80       9.7  19.5 19.5  156   312   312   312   -      624    -    2039
a100-80-pcie  9.7  19.5 19.5  156   312   312   312   -      624    -    1935
a30           5.2  10.3 10.3  82    165   165   165   -      330    -    933
a10           0.49 -    31.2  62.5  125   125   125   -      250    -    600
a40           0.58 -    37.4  74.8  149.7 149.7 149.7 -      299.3  -    696
a6000         0.60 -    38.7  77.4  154.8 154.8 154.8 -      309.7  -    768
rtx3090       0.56 -    35.6  35.6  71    71    142   -      284    -    936
l4            0.47 -    30.3  60    121   121   121   242.5  242.5  -    300
l40s          1.43 -    91.6  183   362   362   362   733    733    -    864
rtx4090       1.29 -    82.6  82.6  165.2 165.2 330.3 330.3  660.6  -    1008
h100-pcie     25.6 51.2 51.2  378   756.5 756.5 756.5 1513   1513   -    2000
h100-sxm      33.5 66.9 66.9  494.7 989.4 989.4 989.4 1978.9 1978.9 -    3350
h100-nvl      30   60   60    417.5 835.5 835.5 835.5 1670.5 1670.5 -    3938
h200          33.5 66.9 66.9  494.7 989.4 989.4 989.4 1978.9 1978.9 -    4800
gh200         33.5 66.9 66.9  494.7 989.4 989.4 989.4 1978.9 1978.9 -    4000
b200          37   -    75    1125  2250  2250  2250  4500   4500   9000 8000
rtx5090       1.64 -    104.8 104.8 209.5 209.5 419   419    838    1676 1792
'''
DEVICES = {r.split()[0]: [None if v == '-' else Fraction(v) for v in r.split()[1:]] for r in SHEETS.strip().splitlines()}
# Bits of an element of A and B, of C.
BITS = {'fp64': (64, 64), 'fp64_tensor': (64, 64), 'fp32': (32, 32), 'tf32': (32, 32), 'bf16': (16, 16), 'fp16': (16, 16), 'fp16_acc16': (16, 16), 'fp8': (8, 16), 'int8': (8, 32), 'fp4': (4, 16)}


def roofline(*words):
    return plan('roofline', *words)


def near(a, b):
    return abs(Fraction(a) - b) <= abs(b) * Fraction(1, 10**13)


@pytest.mark.parametrize('device', DEVICES)
def test_ridge_points(device):
    *peaks, bandwidth = DEVICES[device]
    s = roofline('--device', device)
    rows = {r['format']: r for r in s['formats']}
    assert tuple(rows) == FORMATS and s['inputs']['bandwidth']['value'] == bandwidth * 10**9
    for f, peak in zip(FORMATS, peaks):
        assert rows[f]['unit'] == ('OP' if f == 'int8' else 'FLOP')
        if peak is None:
            assert rows[f]['peak_per_s'] is rows[f]['ridge'] is s.value(f'ridge_{f}') is None and rows[f]['from'] == s.formula(f'ridge_{f}') == 'no such unit'
            assert 'no peak' in refused('roofline', '--device', device, '--dtype', f)
        else:
            assert rows[f]['peak_per_s'] == peak * 10**12 and near(rows[f]['ridge'], peak * 1000 / bandwidth) and s.value(f'ridge_{f}') == rows[f]['ridge']
    text = subprocess.run([ACCT, 'plan', 'roofline', '--device', device], capture_output=True, text=True).stdout
    assert [l.split()[0] for l in text.splitlines() if 'peak / bandwidth = ' in l] == [f for f, p in zip(FORMATS, peaks) if p is not None]


def test_every_device_of_the_table_is_here():
    """The line of error has the aliases; the program's table has no more and no fewer than the list above."""
    line = refused('roofline', '--device', 'no-such')
    assert set(re.search(r'there are: cpu, (.*?);', line).group(1).split(', ')) == set(DEVICES)


def products(n=8):
    rng = random.Random(3)
    yield 1, 1, 1
    yield 1, 4096, 4096
    yield 4096, 4096, 4096
    for _ in range(n):
        yield tuple(int(2 ** rng.uniform(0, 17)) for _ in range(3))


@pytest.mark.parametrize('m,n,k', products())
def test_a_product_against_the_roof(m, n, k):
    for device in ('h100-sxm', 'b200'):
        *peaks, bandwidth = DEVICES[device]
        s = roofline('--device', device, '--gemm', f'{m},{n},{k}')
        assert s.value('flops') == 2 * m * n * k
        for row, peak in zip(s['formats'], peaks):
            a, c = BITS[row['format']]
            moved = -(-((m * k + k * n) * a + m * n * c) // 8)
            g, ops = row['gemm'], 'ops' if row['format'] == 'int8' else 'flops'
            assert g[ops] == 2 * m * n * k and g['bytes'] == moved and near(g['intensity'], Fraction(2 * m * n * k, moved))
            if peak is None:
                assert g['bound'] is g['time_s'] is g['roof_per_s'] is None
                continue
            compute, memory = Fraction(2 * m * n * k) / (peak * 10**12), Fraction(moved) / (bandwidth * 10**9)
            assert near(g['time_s'], max(compute, memory)) and g['bound'] == ('compute' if compute >= memory else 'memory')
            assert near(g['roof_per_s'], min(peak * 10**12, Fraction(2 * m * n * k, moved) * bandwidth * 10**9))


def test_plan_flops_says_the_same():
    """One product, two commands: least bytes, intensity, time at the roof."""
    for f in set(FORMATS) - {'fp64_tensor'}: # the device has one peak of fp64
        g = roofline('--device', 'b200', '--gemm', '300,500,700', '--dtype', f)['formats'][0]['gemm']
        s = plan('flops', 'matmul', '300', '500', '700', '--dtype', f, '--device', 'b200')
        assert g['bytes'] == s.value('bytes') and near(g['intensity'], Fraction(s.value('intensity'))) and near(g['time_s'], Fraction(s.value('time'))), f


def test_figures_of_the_user():
    s = roofline('--peak-tflops', 'bf16=700,int8=1400', '--bandwidth', '2.8TB/s', '--intensity', '100')
    rows = {r['format']: r for r in s['formats']}
    assert rows['bf16']['ridge'] == 250 and rows['int8']['ridge'] == 500 and rows['fp32']['ridge'] is None and rows['fp32']['from'] == 'not given' and rows['bf16']['from'] == 'given'
    assert rows['bf16']['roof_per_s'] == 2.8e14 and rows['bf16']['bound'] == 'memory' and rows['fp32']['bound'] is None
    one, = roofline('--device', 'a100-80', '--dtype', 'bf16', '--peak-tflops', '203.9', '--intensity', '1e6')['formats']
    assert one['ridge'] == 100 and one['bound'] == 'compute' and one['roof_per_s'] == 203.9e12
    assert roofline('--device', 'a100-80', '--bandwidth', '1e12').value('ridge_bf16') == 312


def test_people_see_large_sizes_as_machines_do():
    """Beyond 2^63 bytes too."""
    words = ['plan', 'roofline', '--device', 'h100-sxm', '--dtype', 'bf16', '--gemm', '1e12,1e9,1e6']
    n = 2 * (10 ** 18 + 10 ** 15 + 10 ** 21)
    for form in ('text', 'markdown'):
        r = subprocess.run([ACCT, *words, '--format', form], capture_output=True, text=True)
        assert f'{n / 2 ** 60:.2f} EiB ({n})' in r.stdout, r


def test_the_roof_never_falls():
    """With the intensity, up to the ridge and then flat."""
    roofs = [roofline('--device', 'h200', '--dtype', 'fp8', '--intensity', i)['formats'][0]['roof_per_s'] for i in (0.001, 1, 10, 100, 412, 413, 1000, 1e12)]
    assert roofs == sorted(roofs) and roofs[0] == 4.8e9 and roofs[-1] == roofs[-2] == 1978.9e12


BAD = [([], '--device'), (['--device', 'h101'], 'h101'), (['--device', 'cpu'], 'cpu'), (['--device', 'h100-sxm', '--dtype', 'fp7'], 'fp7'), (['--peak-tflops', 'bf16=1'], '--bandwidth'),
       (['--device', 't4', '--peak-tflops', '9'], '--dtype'), (['--device', 't4', '--peak-tflops', 'fp99=9'], 'fp99'), (['--device', 't4', '--peak-tflops', 'bf16=0'], 'zero'),
       (['--device', 't4', '--gemm', '3,4'], 'three'), (['--device', 't4', '--gemm', '3,4,0'], 'zero'), (['--device', 't4', '--gemm', '3,4,5,6'], '3'), (['--device', 't4', '--gemm', 'a,b,c'], "'a'"),
       (['--device', 't4', '--gemm', '9e18,9e18,9e18'], 'beyond'), (['--device', 't4', '--intensity', '-1'], 'negative'), (['--device', 't4', '--bandwidth', '0'], 'zero'), (['t4'], 't4'),
       (['--device', 't4', '--format', 'xml'], 'xml'), (['--device', 't4', '--frob'], '--frob'), (['--bandwidth', '1TB/s'], '--device'),
       (['--device', 't4', '--bandwidth', '1e-300'], 'beyond'), (['--device', 't4', '--dtype', 'fp32', '--peak-tflops', '1e300'], 'too large'), (['--device', 't4', '--peak-tflops', 'fp32=1,fp32=2'], 'twice'),
       (['--device', 't4', '--dtype', 'fp32', '--peak-tflops', '1e-300', '--gemm', '1e12,1e12,1e12'], 'beyond')]


@pytest.mark.parametrize('words,says', BAD, ids=lambda w: ' '.join(w) if isinstance(w, list) else '')
def test_bad_command_lines(words, says):
    line = refused('roofline', *words)
    assert says in line and line.startswith('acct plan roofline: '), line
