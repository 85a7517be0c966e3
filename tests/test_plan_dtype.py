"""`acct plan dtype`: the table of formats and what they make of values. References: numpy's float16 and float32, the sample app's reference
of the formats (number_formats.py), and for E2M1 and tf32 the list of their numbers by definition. The functions of plan/plan_formats.c
are also called directly (ctypes): every pattern of fp16, bf16 and fp8, the middle between neighbours, and what lies beside it."""
import ctypes, os, random, re, subprocess
from decimal import Decimal, getcontext
from fractions import Fraction
import numpy as np
import pytest
import number_formats as reference
from conftest import TOP
from plan_words import ACCT, plan, refused

NAMES = ('fp64', 'fp32', 'tf32', 'fp16', 'bf16', 'e4m3', 'e5m2', 'int8', 'e2m1')
# bytes, bits of exponent and mantissa, largest as the books print it
BOOKS = {'fp64': (8, 11, 52, '1.80e+308'), 'fp32': (4, 8, 23, '3.40e+38'), 'tf32': (4, 8, 10, '3.40e+38'), 'fp16': (2, 5, 10, 65504), 'bf16': (2, 8, 7, '3.39e+38'),
         'e4m3': (1, 4, 3, 448), 'e5m2': (1, 5, 2, 57344), 'int8': (1, 0, 0, 127), 'e2m1': (0.5, 2, 1, 6)}


def made(text):
    """What becomes of a value: {format: row}."""
    value, = plan('dtype', text)['values']
    assert value['given'] == str(text) and tuple(r['format'] for r in value['formats']) == NAMES
    return {r['format']: r for r in value['formats']}


def test_the_table():
    s = plan('dtype')
    rows = {r['name']: r for r in s['formats']}
    assert tuple(rows) == NAMES and s['values'] == []
    for name, (size, exponent, mantissa, largest) in BOOKS.items():
        r = rows[name]
        assert (r['bytes'], r['exponent_bits'], r['mantissa_bits']) == (size, exponent, mantissa)
        assert r['max'] == largest if not isinstance(largest, str) else f"{r['max']:.2e}" == largest
        if name != 'int8':
            assert r['epsilon'] == 2.0**-mantissa and r['bits'] == 1 + exponent + mantissa
    for name, info in (('fp16', np.finfo(np.float16)), ('fp32', np.finfo(np.float32)), ('fp64', np.finfo(np.float64))):
        assert (rows[name]['max'], rows[name]['smallest_normal'], rows[name]['epsilon']) == (float(info.max), float(info.tiny), float(info.eps))
        assert rows[name]['smallest'] == {'fp16': 2.0**-24, 'fp32': 2.0**-149, 'fp64': 2.0**-1074}[name]
    for name, code in (('bf16', reference.BF16), ('e4m3', reference.E4M3), ('e5m2', reference.E5M2)):
        assert rows[name]['smallest'] == reference.SMALLEST[code] and rows[name]['max'] == reference.LARGEST.get(code, rows[name]['max'])
    assert (rows['e2m1']['smallest_normal'], rows['e2m1']['smallest'], rows['tf32']['max']) == (1, 0.5, (2 - 2.0**-10) * 2.0**127)
    assert [r['name'] for r in s['formats'] if not r['infinity']] == ['e4m3', 'int8', 'e2m1']


def test_a_small_gradient():
    """1e-8 underflows in fp16 and survives in bf16."""
    r = made('1e-8')
    assert r['fp16']['value'] == 0 and r['fp16']['outcome'] == 'underflow to 0' and r['bf16']['outcome'] == 'rounded' and r['bf16']['value'] == 1.0011717677116394e-8
    assert 'loss scaling by 2^13' in ' '.join(plan('dtype', '1e-8')['notes'])                # 1e-8 x 2^13 is normal: 8.2e-5 of 6.1e-5
    assert np.float16(1e-8 * 2**13) > 2.0**-14 > 1e-8 * 2**12


def test_where_formats_end():
    rows = {t: made(t) for t in ('65504', '65519.99', '65520', '448', '464', '464.01', '57344', '61440', '61439.9', '-128', '127.5', '128', '6', '7', '1e39', '3.4028235677973366e38', '3.4028235677973367e38')}
    look = lambda t, f: (rows[t][f]['text'], rows[t][f]['outcome'], rows[t][f]['without_saturation'])
    assert look('65504', 'fp16') == ('65504', 'exact', None) and look('65519.99', 'fp16') == ('65504', 'rounded', None)
    assert look('65520', 'fp16') == ('infinity', 'overflow to infinity', None) and rows['65520']['fp16']['value'] is None and rows['65520']['fp16']['error'] is None
    assert look('448', 'e4m3') == ('448', 'exact', None) and look('464', 'e4m3') == ('448', 'rounded', None) and look('464.01', 'e4m3') == ('448', 'saturated', 'overflow to NaN')
    assert look('57344', 'e5m2') == ('57344', 'exact', None) and look('61439.9', 'e5m2') == ('57344', 'rounded', None)
    assert look('61440', 'e5m2') == ('57344', 'saturated', 'overflow to infinity')
    assert look('-128', 'int8') == ('-128', 'exact', None) and look('127.5', 'int8')[:2] == ('127', 'saturated') and look('128', 'int8') == ('127', 'saturated', None)
    assert look('6', 'e2m1') == ('6', 'exact', None) and look('7', 'e2m1') == ('6', 'saturated', None)
    assert look('1e39', 'fp32')[1] == look('1e39', 'bf16')[1] == look('3.4028235677973367e38', 'fp32')[1] == 'overflow to infinity' and look('3.4028235677973366e38', 'fp32')[1] == 'rounded' and rows['1e39']['fp64']['outcome'] == 'rounded'


def test_decimals_are_rounded_once():
    """Just beside the middle between two numbers, by less than a double tells: 65520 and 1 + 2^-11 are such middles of fp16."""
    getcontext().prec = 80
    for middle, below, above, f in ((Decimal(65520), 65504, np.inf, 'fp16'), (Decimal(1) + Decimal(2) ** -11, 1.0, 1 + 2.0**-10, 'fp16'), (Decimal(1) + Decimal(2) ** -8, 1.0, 1 + 2.0**-7, 'bf16'),
                                    (Decimal(1) + Decimal(2) ** -24, 1.0, 1 + 2.0**-23, 'fp32'), (Decimal(464), 448, None, 'e4m3')):
        for shift, want in ((Decimal('-1e-30'), below), (Decimal('1e-30'), above)):
            r = made(f'{middle + shift:.40f}')[f]
            assert (r['text'] == 'infinity' if want == np.inf else r['outcome'] == 'saturated' if want is None else r['value'] == want), (middle, shift, r)
    assert made('0.1')['fp64']['outcome'] == made('0.3')['fp64']['outcome'] == 'rounded' and made('0.5')['fp64']['outcome'] == 'exact'


def test_what_is_no_number_and_what_has_no_end():
    r = made('nan')
    assert all(r[f]['text'] == 'NaN' for f in NAMES if f not in ('int8', 'e2m1')) and (r['int8']['value'], r['e2m1']['value']) == (0, 6)
    bits = {'fp64': 0x7ff8 << 48, 'fp32': 0x7fc00000, 'tf32': 0x7fc00000, 'fp16': 0x7e00, 'bf16': 0x7fc0, 'e4m3': 0x7f, 'e5m2': 0x7e} # quiet: the mantissa's first bit
    assert {f: int(r[f]['bits'], 16) for f in bits} == bits
    r = made('-inf') # an operand as -1 is
    assert r['fp16']['text'] == '-infinity' and r['fp16']['bits'] == '0xfc00' and r['int8']['value'] == -128
    r = made('inf')
    assert r['fp16']['text'] == 'infinity' and r['fp16']['outcome'] == 'exact' and r['e4m3']['value'] == 448 and r['e4m3']['without_saturation'] == 'overflow to NaN' and r['int8']['value'] == 127
    assert made('-0')['fp16']['bits'] == '0x8000' and made('0')['fp32']['outcome'] == 'exact' and made('1e-400')['fp64']['outcome'] == 'underflow to 0'
    assert made('1e400')['fp64']['outcome'] == 'overflow to infinity'
    assert made('4e-324')['fp64']['outcome'] == 'subnormal' and made('1e-40')['fp32']['outcome'] == 'subnormal' and made('5e-8')['fp16']['outcome'] == 'subnormal'


def test_random_values_in_every_format():
    """Against numpy and the sample app's reference; errors in fractions of the decimal."""
    rng = random.Random(11)
    texts = [f'{rng.choice("+-")}{rng.uniform(1, 10):.{rng.randrange(1, 9)}f}e{rng.randrange(-12, 13)}'.lstrip('+') for _ in range(400)]
    for value in plan('dtype', *texts)['values']:
        x = Fraction(value['given'])
        rows = {r['format']: r for r in value['formats']}
        with np.errstate(over='ignore'):
            want = {'fp64': float(x), 'fp32': float(np.float32(float(x))), 'fp16': float(np.float16(float(x)))}
        single = np.array([float(x)])
        want['e4m3'] = float(reference.decode(reference.encode(single, reference.E4M3), reference.E4M3)[0])
        want['e5m2'] = float(reference.decode(reference.encode(single, reference.E5M2), reference.E5M2)[0])
        for f, v in want.items():
            r = rows[f]
            assert (r['value'] if r['value'] is not None else float(r['text'].replace('infinity', 'inf'))) == v, (value['given'], f, r, v)
            if np.isfinite(v):
                error, off = Fraction(v) - x, Fraction(1, 50 if f == 'fp64' else 10**6)      # of fp64 by numbers of 64 bits
                if f == 'fp64' and r['error'] is None:
                    assert 0 < abs(error / x) < 1e-18
                    continue
                assert abs(Fraction(r['error']) - error) <= abs(error) * off + abs(x) * Fraction(1, 10**19), (value['given'], f)
                assert abs(Fraction(r['relative_error']) - error / x) <= abs(error / x) * off + Fraction(1, 10**19)
        assert rows['fp32']['bits'] == f"0x{np.float32(float(x)).view(np.uint32):08x}" and rows['fp16']['bits'] == f"0x{np.float16(want['fp16']).view(np.uint16):04x}"


# ---- all patterns -------------------------------------------------------------------------------------------------------------------

class Format(ctypes.Structure):
    _fields_ = [(n, ctypes.c_char_p) for n in ('name', 'title', 'use')] + [(n, ctypes.c_int) for n in ('bits', 'bits_used', 'exponent', 'mantissa', 'beyond')] + \
        [(n, ctypes.c_double) for n in ('max', 'smallest_normal', 'smallest', 'epsilon')]


class Value(ctypes.Structure):
    _fields_ = [('nearest', ctypes.c_double), ('odd', ctypes.c_double), ('inexact', ctypes.c_int)]


@pytest.fixture(scope='module')
def formats(tmp_path_factory):
    """round(format, doubles, saturate) → (numbers, bits), by the C functions in a loop of C."""
    folder = tmp_path_factory.mktemp('formats')
    (folder / 'loop.c').write_text('''#include "plan/plan_formats.h"
void loop(int format, int saturate, long n, const double *in, double *out, uint64_t *bits) {
    struct plan_format f;
    plan_format_get(format, &f);
    for (long i = 0; i < n; i++) {
        struct plan_value v = {in[i], in[i], 0};
        plan_format_round(&f, &v, saturate, &out[i]);
        bits[i] = plan_format_bits(&f, out[i]);
    }
}
''')
    subprocess.run(['cc', '-O1', '-shared', '-fPIC', '-I', TOP, '-o', folder / 'loop.so', folder / 'loop.c', os.path.join(TOP, 'plan/plan_formats.c'), '-lm'], check=True)
    library = ctypes.CDLL(str(folder / 'loop.so'))

    def round_all(name, x, saturate=1):
        x = np.ascontiguousarray(x, np.float64)
        out, bits = np.empty_like(x), np.empty(x.shape, np.uint64)
        library.loop(NAMES.index(name), saturate, ctypes.c_long(x.size), *(a.ctypes.data_as(ctypes.c_void_p) for a in (x, out, bits)))
        return out, bits
    return round_all


def beside(numbers):
    """Neighbours' middles, and the doubles next to each on both sides; with both signs."""
    numbers = np.unique(np.abs(numbers[np.isfinite(numbers)]))
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    all_of = np.concatenate([middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf), [beyond, np.nextafter(beyond, 0), np.nextafter(beyond, np.inf), numbers[-1] * 4]])
    return np.concatenate([all_of, -all_of])


def same(a, b):
    return np.array_equal(np.where(np.isnan(a), 1e300, a), np.where(np.isnan(b), 1e300, b)) and np.array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


@pytest.mark.parametrize('name,code', [('fp16', reference.FP16), ('bf16', reference.BF16), ('e4m3', reference.E4M3), ('e5m2', reference.E5M2)])
def test_every_pattern_and_every_middle(formats, name, code):
    kind = reference.BITS[code]
    patterns = np.arange(2 ** (8 * kind(0).itemsize)).astype(kind)
    with np.errstate(invalid='ignore'):
        numbers = reference.decode(patterns, code)
    finite = np.isfinite(numbers)
    out, bits = formats(name, numbers[finite])
    assert same(out, numbers[finite]) and np.array_equal(bits, patterns[finite])
    out, _ = formats(name, numbers[~finite], 0)
    assert np.isnan(out[np.isnan(numbers[~finite])]).all() and len(out) == (~finite).sum()
    x = beside(numbers)
    if name == 'bf16':                                       # the reference takes floats: the middles are, the doubles beside are not
        with np.errstate(over='ignore'):
            x = x[x == x.astype(np.float32)]
        assert x.size > 65000
    out, bits = formats(name, x)
    want = reference.encode(x, code)
    assert np.array_equal(bits, want) and same(out, reference.decode(want, code))


def test_beside_the_middles_of_bf16(formats):
    """Doubles that are no floats, by neighbours: the nearer of the two numbers."""
    numbers = reference.decode(np.arange(0x7f80).astype(np.uint16), reference.BF16)
    middles = (numbers[1:] + numbers[:-1]) / 2
    for x, want in ((np.nextafter(middles, 0), numbers[:-1]), (np.nextafter(middles, np.inf), numbers[1:])):
        out, _ = formats('bf16', x)
        assert np.array_equal(out, want)


def test_without_saturation(formats):
    for name, largest, middle, beyond in (('e4m3', 448.0, 464.0, np.nan), ('e5m2', 57344.0, 61440.0, np.inf)):
        x = np.array([largest, np.nextafter(middle, 0), np.nextafter(middle, np.inf), 1e9, np.inf, -np.nextafter(middle, np.inf)])
        out, _ = formats(name, x, 0)
        assert same(out, np.array([largest, largest, beyond, beyond, beyond, -beyond]))
        assert np.array_equal(formats(name, x, 1)[0], [largest] * 5 + [-largest])


def test_e2m1_tf32_and_int8_by_definition(formats):
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7])                       # to the even code; 7 and more stop at 6
    out, bits = formats('e2m1', np.concatenate([e2m1, ties, -ties]))
    assert np.array_equal(out, [*e2m1, 0, 1, 1, 2, 2, 4, 4, 6, -0.0, -1, -1, -2, -2, -4, -4, -6]) and np.array_equal(bits[:8], range(8))
    x = np.random.default_rng(1).standard_normal(100000) * np.exp2(np.random.default_rng(2).integers(-140, 120, 100000))
    bits32 = x.astype(np.float32).view(np.uint32)
    x = bits32.view(np.float32).astype(np.float64)
    want = ((bits32 + 0xfff + (bits32 >> 13 & 1)) & 0xffffe000).astype(np.uint32)
    out, bits = formats('tf32', x)
    assert np.array_equal(bits, want) and np.array_equal(out, want.view(np.float32).astype(np.float64))
    x = np.linspace(-140, 140, 2801)
    assert np.array_equal(formats('int8', x)[0], np.clip(np.rint(x), -128, 127))


def test_rounding_never_goes_backwards(formats):
    x = np.sort(np.concatenate([s * np.exp2(np.linspace(-160, 140, 20001)) for s in (-1, 1)]))
    for name in NAMES[1:]:
        out, _ = formats(name, x)
        assert (np.diff(out[np.isfinite(out)]) >= 0).all() and np.array_equal(formats(name, out)[0], out)


@pytest.mark.parametrize('words,says', [(['1e'], "'1e'"), (['x'], "'x'"), ([''], "''"), ([' 1'], "' 1'"), (['1,5'], "'1,5'"), (['1', '2.5.1'], "'2.5.1'"), (['--frob'], '--frob'), (['1', '--format', 'xml'], 'xml')])
def test_bad_command_lines(words, says):
    line = refused('dtype', *words)
    assert says in line and line.startswith('acct plan dtype: '), line


def test_people_are_told_the_same():
    out = subprocess.run([ACCT, 'plan', 'dtype', '1e-8', '-464.01', '65520'], capture_output=True, text=True)
    assert out.returncode == 0 and re.search(r'fp16 +0 +0x0000 +-100 % +underflow to 0', out.stdout) and re.search(r'e4m3 .*saturated at -448 \(satfinite\), else overflow to NaN', out.stdout)
    assert re.search(r'fp16 +infinity +0x7c00 .*overflow to infinity', out.stdout) and out.stdout.count('What becomes of') == 3
