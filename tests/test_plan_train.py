"""`acct plan train`: FLOPs, time, GPUs and money. Expected values are the figures of the books (6.3e24 FLOPs and 143.9 days; the list of
GPT-2 by convention) or are computed here with fractions from FLOPs = 6 N T = gpus x peak x MFU x time; parameters of a GPT from the list of
shapes of the sample app's reference in numpy."""
import json, math, random, re, subprocess
from fractions import Fraction
import pytest
from plan_words import ACCT, plan, refused

DAY = 86400
GPT2 = 'layers=12,dim=768,heads=12,seq=1024,vocab=50257'
RUN = ['--params', '70e9', '--tokens', '15e12', '--gpus', '1024', '--mfu', '0.5']


def near(a, b, share=1e-12):
    return abs(Fraction(a) - Fraction(b)) <= abs(Fraction(b)) * Fraction(share)


def train(*words):
    return plan('train', *words)


# ---- the napkin of the books ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('peak,words', [(Fraction('989.4e12'), ['--device', 'h100-sxm', '--dtype', 'bf16']), (Fraction('989.5e12'), ['--peak-tflops', '989.5'])])
def test_seventy_billion_parameters(peak, words):
    """Of 989.4 (the device's row) and of 989.5 (the lecture's) both: 4.377e22 a day, 143.9 days."""
    s = train(*RUN, *words)
    assert s.value('flops') == 6_300_000_000_000_000_000_000_000 and s.value('forward_flops') * 3 == s.value('flops') and s.value('backward_flops') == 2 * s.value('forward_flops')
    a_day = 1024 * peak / 2 * DAY
    assert near(s.value('flops_per_day'), a_day) and near(s.value('days'), 63 * 10**23 / a_day) and near(s.value('time'), s.value('days') * DAY)
    assert f"{s.value('flops_per_day'):.3e}" == '4.377e+22' and f"{s.value('days'):.1f}" == '143.9' and s['convention'] == '6n' and s.value('solved_for') == 'time'
    assert near(s.value('peak_time') * 2, s.value('time')) and near(s.value('gpu_hours'), 1024 * s.value('days') * 24) and near(s.value('tokens_per_s'), 15 * 10**12 / s.value('time'))
    assert near(s.value('tokens_per_day'), 15 * 10**12 / s.value('days')) and near(s.value('flops_per_s'), a_day / DAY) and near(s.value('flops_per_s_per_gpu'), peak / 2)
    text = subprocess.run([ACCT, 'plan', 'train', *RUN, *words], capture_output=True, text=True).stdout
    assert '143.9 days' in text and '6.3e24' in text and '4.377e22' in text and 'FLOPs / (gpus x peak x MFU) = 6.3e24 / (1024 x ' in text


@pytest.mark.parametrize('words', ['--params 70e9 --tokens 15e12 --gpus 1024 --mfu 0.5 --device h100-sxm', '--params 70B --tokens 15T --time 30d --mfu 0.5 --device h100-sxm --price-per-gpu-hour 2.5',
    '--params 70B --budget 1M --price-per-gpu-hour 2.5 --mfu 0.5 --device h100-sxm --gpus 100', f'--model {GPT2} --batch-tokens 0.5M --gpus 8 --step-time 300ms --recompute full --device a100-80',
    f'--model {GPT2} --batch-tokens 0.5M --gpus 8 --step-time 300ms --recompute selective --convention palm --device a100-80 --tokens 1B', '--tokens 1T --gpus 100 --days 10 --device a100-80 --mfu 0.4',
    '--flops 1e18 --device t4 --dtype fp16', '--params 7B --tokens-per-second 198400 --gpus 64 --device a100-80 --tokens 2T', '--params 7B --tokens 2T --gpus 64 --time 100d --mfu 0.4'])
def test_formulas_make_their_values(words):
    """The numbers behind the words give the value, to the six digits with which they are written."""
    seen = 0
    for key, r in train(*words.split())['results'].items():
        if ' = ' not in r['formula'] or r['value'] is None:
            continue
        numbers = r['formula'].split(' = ')[1].split(',')[0]                       # of counts the exact one and the rounding stand behind
        numbers = re.sub(r'([\d.]+(e[+-]?\d+)?)', r"Fraction('\1')", numbers).replace('x', '*')
        assert near(eval(numbers), r['value'], 1e-2 if key in ('gpus', 'steps') else 1e-5), (key, r)
        seen += 1
    assert seen


def test_tokens_a_second_of_one_gpu():
    """As runs are reported: 3,100 tokens/s of each A100; MFU is 6 x 7e9 x 3100 / 312e12."""
    each, all64 = (train('--params', '7B', '--device', 'a100-80', '--gpus', str(n), '--tokens-per-second', str(3100 * n)) for n in (1, 64))
    for s in (each, all64):
        assert near(s.value('mfu'), Fraction(6 * 7 * 10**9 * 3100, 312 * 10**12)) and near(s.value('tokens_per_s_per_gpu'), 3100)
    assert all64.formula('tokens_per_s_per_gpu') == 'tokens/s / gpus = 198400 / 64'
    run = train('--params', '7B', '--device', 'a100-80', '--gpus', '64', '--tokens', '2T', '--mfu', '0.45')
    assert near(run.value('tokens_per_s_per_gpu') * 64, run.value('tokens_per_s'))


def test_formulas_have_their_numbers():
    assert train(*RUN, '--peak-tflops', '989.5', '--recompute', 'full').formula('hfu') == 'MFU x executed/model = 0.5 x 1.33333'
    s = train(*RUN, '--peak-tflops', '989.5')
    assert s.formula('time') == 'FLOPs / (gpus x peak x MFU) = 6.3e24 / (1024 x 9.895e14 x 0.5)'
    assert s.formula('flops_per_token') == '6 N = 6 x 7e10' and s['inputs']['peak'] == {'value': 989.5e12, 'unit': 'FLOP/s', 'from': 'given'}
    assert all(r['formula'] and r['unit'] is not None for r in s['results'].values()) and all(i['from'] for i in s['inputs'].values())


def test_gpt3_and_what_does_not_fit_in_64_bits():
    """175e9 parameters and 300e9 tokens: 3.15e23, about the 3.14e23 of the paper; int64 ends at 9.2e18."""
    s = train('--params', '174.6e9', '--tokens', '300e9')
    assert s.value('flops') == 6 * 174_600_000_000 * 300_000_000_000 and f"{s.value('flops'):.2e}" == '3.14e+23'
    assert s.value('time') is None and 'peak unknown' in s.formula('time') and 'solved_for' not in s['results']


# ---- any one from the others ------------------------------------------------------------------------------------------------------

def cases(n=12, seed=5):
    rng = random.Random(seed)
    for _ in range(n):
        N, T, G = rng.randrange(10**6, 10**12), rng.randrange(10**8, 10**14), rng.randrange(1, 50000)
        peak, mfu = rng.randrange(1, 90000), rng.randrange(1, 1000)         # of 0.1 TFLOP/s, of 1/1000
        yield N, T, G, Fraction(peak, 10), Fraction(mfu, 1000)


@pytest.mark.parametrize('N,T,G,tflops,mfu', cases())
def test_any_one_is_solved_for(N, T, G, tflops, mfu):
    """From time = 6 N T / (G peak MFU), in fractions, each of the others again."""
    seconds = Fraction(6 * N * T) / (G * tflops * 10**12 * mfu)
    given = {'params': N, 'tokens': T, 'gpus': G, 'peak-tflops': float(tflops), 'mfu': float(mfu), 'time': repr(float(seconds))}
    words = lambda *left: [w for k, v in given.items() if k not in left for w in (f'--{k}', v)]
    s = train(*words('time'))
    assert s.value('solved_for') == 'time' and near(s.value('time'), seconds) and s.value('flops') == 6 * N * T
    s = train(*words('gpus'))
    assert s.value('solved_for') == 'gpus' and near(s.value('gpus_exact'), G) and s.value('gpus') == G
    s = train(*words('mfu'))
    assert s.value('solved_for') == 'MFU' and near(s.value('mfu'), mfu)
    s = train(*words('tokens'))
    assert s.value('solved_for') == 'tokens' and abs(s.value('tokens') - T) <= max(1, T * 1e-14)
    s = train(*words('params'))
    assert s.value('solved_for') == 'params' and abs(s.value('params') - N) <= 1
    s = train(*words('peak-tflops'))
    assert s.value('solved_for') == 'peak' and near(s.value('peak'), tflops * 10**12)
    s = train(*words('params', 'tokens'))
    assert s.value('solved_for') == 'FLOPs' and near(s.value('flops'), 6 * N * T) and s['convention'] is None
    rate = Fraction(T) / seconds
    s = train(*words('mfu', 'time', 'tokens'), '--tokens-per-second', repr(float(rate)))
    assert near(s.value('mfu'), mfu) and near(s.value('flops_per_s'), 6 * N * rate) and near(s.value('flops_per_s_per_gpu') * G, 6 * N * rate)


def test_gpus_are_rounded_up():
    """30 days for 70e9 x 15e12 at half of 989.4e12."""
    exact = Fraction(63 * 10**23) / (Fraction('989.4e12') / 2 * 30 * DAY)
    s = train('--params', '70B', '--tokens', '15T', '--days', '30', '--device', 'h100-sxm', '--mfu', '50%')
    assert s.value('gpus') == math.ceil(exact) == 4914 and near(s.value('gpus_exact'), exact) and near(s.value('time_with_gpus'), 30 * DAY * exact / 4914)


def test_money():
    """GPU hours x price, both ways."""
    s = train(*RUN, '--device', 'h100-sxm', '--price-per-gpu-hour', '2.5')
    hours = Fraction(63 * 10**23) / (Fraction('989.4e12') / 2) / 3600
    assert near(s.value('gpu_hours'), hours) and near(s.value('cost'), hours * Fraction(5, 2)) and s['results']['cost']['unit'] == 'price'
    s = train('--params', '70B', '--budget', '1M', '--price-per-gpu-hour', '2.5', '--device', 'h100-sxm', '--mfu', '0.5')
    tokens = 400_000 * 3600 * Fraction('989.4e12') / 2 / (6 * 70 * 10**9)
    assert s.value('tokens') == math.floor(tokens) and near(s.value('gpu_hours'), 400_000) and s.value('solved_for') == 'tokens' and 'time' not in s['results']
    s = train('--params', '70B', '--budget', '1M', '--price-per-gpu-hour', '2.5', '--device', 'h100-sxm', '--mfu', '0.5', '--gpus', '100')
    assert s.value('tokens') == math.floor(tokens) and near(s.value('time'), 4000 * 3600)
    s = train('--params', '70B', '--tokens', '1e12', '--device', 'h100-sxm', '--mfu', '0.5', '--price-per-gpu-hour', '2')
    assert near(s.value('cost'), Fraction(6 * 70 * 10**21) / (Fraction('989.4e12') / 2) / 3600 * 2)


def test_an_op_and_a_step():
    s = train('--flops', '1e15', '--device', 'h100-sxm')
    assert near(s.value('peak_time'), 10**15 / Fraction('989.4e12')) and s.value('time') is None and 'MFU' in s.formula('time') and s['convention'] is None
    assert s['inputs']['gpus'] == {'value': 1, 'unit': '', 'from': 'default'} and 'forward_flops' not in s['results'] and 'lower bound' in s['notes'][0]
    s = train('--flops', '1PFLOP', '--device', 'h100-sxm', '--mfu', '0.4', '--gpus', '8')
    assert near(s.value('time'), 10**15 / (8 * Fraction('989.4e12') * Fraction(2, 5)))
    s = train('--params', '7e9', '--batch-tokens', '4e6', '--gpus', '64', '--device', 'a100-80', '--mfu', '0.45', '--tokens', '1e12')
    flops = 6 * 7 * 10**9 * 4 * 10**6
    assert s.value('step_flops') == flops == s.value('step_forward_flops') + s.value('step_backward_flops') and s.value('steps') == 250_000
    assert near(s.value('step_time'), Fraction(flops) / (64 * 312 * 10**12 * Fraction(9, 20))) and near(s.value('step_peak_time'), Fraction(flops) / (64 * 312 * 10**12))
    s = train('--params', '7e9', '--batch-tokens', '3e6', '--tokens', '1e12')
    assert s.value('steps') == 333_334 and near(s.value('steps_exact'), Fraction(10**12, 3 * 10**6))
    s = train('--model', GPT2 + ',batch=512', '--device', 'a100-40')                       # nothing but a step, at peak
    assert s['inputs']['step_tokens']['value'] == 524288 and s.value('step_flops') == 6 * 124439808 * 524288


def test_a_step_as_measured():
    """524288 tokens in 2.5 s, on 8 GPUs; with the tokens of a run its time too."""
    words = ['--params', '124e6', '--batch-tokens', '524288', '--step-time', '2500ms', '--gpus', '8', '--device', 'a100-40']
    s = train(*words)
    assert near(s.value('mfu'), Fraction(6 * 124 * 10**6 * 524288 * 2, 5) / (8 * 312 * 10**12)) and s.value('solved_for') == 'MFU' and near(s.value('tokens_per_s'), Fraction(524288 * 2, 5))
    s = train(*words, '--tokens', '10e9')
    assert s.value('steps') == math.ceil(10**10 / 524288) and near(s.value('time'), Fraction(10**10, 524288) * Fraction(5, 2))
    s = train(*words[:6])
    assert s.value('mfu') is None and near(s.value('tokens_per_s'), Fraction(524288 * 2, 5)) and near(s.value('flops_per_s'), Fraction(6 * 124 * 10**6 * 524288 * 2, 5))


def test_measured_without_a_peak():
    """FLOP/s are known, the MFU is not, and the line says what to give."""
    s = train('--params', '124475904', '--tokens', '524288', '--time', '2.5s')
    assert near(s.value('flops_per_s'), Fraction(6 * 124475904 * 524288) / Fraction(5, 2)) and s.value('mfu') is None
    assert s.formula('mfu') == 'peak unknown: give --device or --peak-tflops'
    s = train('--params', '1e9', '--tokens-per-second', '1e4')
    assert near(s.value('flops_per_s'), 6 * 10**13) and s.value('mfu') is None


def test_recomputation():
    """Full: 8 N T run for 6 N T. Selective: attention's forward once more, of which a causal mask leaves half."""
    s = train(*RUN, '--device', 'h100-sxm', '--recompute', 'full')
    assert near(s.value('hfu'), Fraction(2, 3)) and near(s.value('executed_flops'), 8 * 70 * 10**9 * 15 * 10**12) and near(s.value('executed_over_model'), Fraction(4, 3))
    s = train(*RUN, '--device', 'h100-sxm', '--recompute', 'none')
    assert s.value('hfu') == 0.5
    s = train('--model', GPT2, '--convention', 'palm', '--tokens', '1e9', '--time', '1h', '--gpus', '1', '--device', 'a100-40', '--recompute', 'selective')
    attention = 4 * 12 * 12 * 64 * 1024
    assert near(s.value('executed_flops'), (s.value('flops_per_token') + attention) * 10**9)
    assert near(s.value('hfu'), s.value('mfu') * (1 + Fraction(attention, s.value('flops_per_token'))))
    assert s.formula('executed_over_model') == '1 + recomputed / model FLOPs of a token = 1 + 37748736 / 859885056'
    s = train('--model', GPT2, '--convention', 'causal', '--tokens', '1e9', '--recompute', 'selective')     # the mask leaves half, here too
    assert near(s.value('executed_flops'), (s.value('flops_per_token') + attention // 2) * 10**9)


# ---- models and conventions --------------------------------------------------------------------------------------------------------

BOOKS = {'6n': 746.6, '6n-matmul': 741.2, '6n-matmul+causal': 797.8, 'causal': 803.3, '6n-matmul+attention': 854.4, 'palm-position': 855.2, 'palm': 859.9,
         'executed-flash': 873.3}


def ways_of(s):
    return {c['name']: c['flops_per_token'] for c in s['conventions']}


def test_gpt2_by_every_convention():
    s = train('--model', GPT2)
    assert {k: round(v / 1e6, 1) for k, v in ways_of(s).items()} == BOOKS and s['inputs']['params']['value'] == 124439808
    assert sum(w['params'] for w in s['weights']) == 124439808 and {'name': 'wpe', 'tensors': 1, 'rows': 1024, 'columns': 768, 'params': 786432, 'use': 'looked up by position'} in s['weights']
    padded = ways_of(train('--model', GPT2.replace('50257', '50304')))
    assert round(padded['causal'] / 1e6, 1) == 803.5
    for name in BOOKS:
        if name != 'executed-flash':
            s = train('--model', GPT2, '--tokens', '1e9', '--convention', name)
            assert s['convention'] == name and s.value('flops') == ways_of(s)[name] * 10**9 and s.value('forward_flops') * 3 == s.value('flops')
    assert 'executed-flash' in refused('train', '--model', GPT2, '--convention', 'executed-flash')


@pytest.mark.parametrize('L,C,H,T,tied', [(1, 32, 2, 16, True), (3, 96, 4, 50, False), (2, 128, 8, 1, True), (5, 60, 3, 7, False)])
def test_parameters_of_the_sample_app(L, C, H, T, tied):
    """Each weight, by the list of shapes of its reference in numpy."""
    import reference_gpt as reference
    shapes = reference.shapes(L, C, T, not tied)
    s = train('--model', f'layers={L},dim={C},heads={H},seq={T},vocab={reference.V},tied={"yes" if tied else "no"}')
    size = {}
    for name, shape in shapes:
        name = name if name in ('wte', 'wpe', 'lnfw', 'lnfb', 'head') else next(w for w in ('ln1w', 'ln1b', 'qkvw', 'qkvb', 'projw', 'projb', 'ln2w', 'ln2b', 'fcw', 'fcb', 'outw', 'outb') if name.startswith(w))
        size[name] = size.get(name, 0) + math.prod(shape)
    assert {w['name']: w['params'] for w in s['weights']} == size
    matrices = sum(math.prod(shape) for name, shape in shapes if len(shape) == 2 and name != 'wpe' and (tied or name != 'wte'))
    A, N = 4 * L * C * T, sum(size.values())
    assert ways_of(s) == {'6n': 6 * N, '6n-matmul': 6 * matrices, '6n-matmul+causal': 6 * matrices + 3 * A // 2, 'causal': 6 * N + 6 * L * C * T,
                          '6n-matmul+attention': 6 * matrices + 12 * L * C * T, 'palm-position': 6 * (N - T * C) + 3 * A, 'palm': 6 * N + 12 * L * C * T,
                          'executed-flash': 6 * matrices + A + 5 * A // 2}


def test_the_lecture_s_two_layers():
    """x (B, D) · W1 (D, D) · W2 (D, D): forward 2BDD + 2BDD; backward dW2, dh1, dW1 of 2BDD each, and dx where it is needed."""
    B, D = 32, 64
    s = train('--model', f'kind=linear,layers=2,dim={D},batch={B}')
    one = 2 * B * D * D
    assert s.value('step_forward_flops') == 2 * one and s.value('step_backward_flops') == 4 * one and s['inputs']['params']['value'] == 2 * D * D
    assert ways_of(s) == {'6n': 6 * one // B, '6n-matmul': 6 * one // B, 'executed': 5 * one // B}


def test_mfu_by_convention():
    s = train('--model', GPT2, '--tokens-per-second', '180e3', '--gpus', '1', '--device', 'a100-80')
    for c in s['conventions']:
        if c['name'] == 'executed-flash':
            assert c['mfu'] is None
        else:
            assert near(c['mfu'], Fraction(c['flops_per_token'] * 180_000) / (312 * 10**12))
    assert near(s.value('mfu'), Fraction(6 * 124439808 * 180_000) / (312 * 10**12))


# ---- properties ----------------------------------------------------------------------------------------------------------------------

def test_more_of_one_is_more_or_less_of_another():
    """The time grows with parameters and tokens, falls with GPUs, peak and MFU; FLOPs of a model grow with each of its sizes."""
    base = {'params': 70e9, 'tokens': 15e12, 'gpus': 1024, 'peak-tflops': 989.5, 'mfu': 0.3}
    for name, sign in (('params', 1), ('tokens', 1), ('gpus', -1), ('peak-tflops', -1), ('mfu', -1)):
        times = []
        for factor in (1, 1.5, 2, 3):
            given = {**base, name: base[name] * factor}
            times.append(train(*(w for k, v in given.items() for w in (f'--{k}', int(v) if k in ('params', 'tokens', 'gpus') else v))).value('time'))
        assert times == sorted(times, reverse=sign < 0) and len(set(times)) == 4
    for name in ('layers', 'dim', 'seq', 'vocab'):
        sizes = {'layers': 2, 'dim': 64, 'heads': 4, 'seq': 32, 'vocab': 256}
        spec = lambda n: ','.join(f'{k}={v * (n if k == name else 1)}' for k, v in sizes.items())
        all_ways = [ways_of(train('--model', spec(n))) for n in (1, 2, 3)]
        for way in BOOKS:
            v = [w[way] for w in all_ways]
            assert v == sorted(v) and (len(set(v)) == 3 or (name, way[:9]) == ('seq', '6n-matmul'))


@pytest.mark.parametrize('words', [['70e9', '15e12'], ['70B', '15T'], ['70000M', '15000B'], ['0.07T', '1.5e13'], ['70_000_000_000', '15000000M']])
def test_units_round_trip(words):
    s = train('--params', words[0], '--tokens', words[1], '--gpus', '1k', '--device', 'h100-sxm', '--mfu', '50%')
    assert s.value('flops') == 63 * 10**23 and near(s.value('time'), Fraction(63 * 10**23) / (1000 * Fraction('989.4e12') / 2))
    times = [train('--params', words[0], '--gpus', '1k', '--mfu', '0.5', '--device', 'h100-sxm', *t).value('tokens') for t in (['--time', '30d'], ['--days', '30'], ['--time', '720h'], ['--time', '2592000'])]
    assert len(set(times)) == 1


@pytest.mark.parametrize('option,result,powers', [
    ('--time', 'time', {'ns': '1e-9', 'us': '1e-6', 'ms': '1e-3', 's': 1, '': 1, 'min': 60, 'h': 3600, 'd': 86400, 'day': 86400, 'days': 86400, 'week': 604800, 'weeks': 604800,
                        'year': 365 * 86400, 'years': 365 * 86400}),
    ('--flops', 'flops', {'': 1, 'FLOP': 1, 'kFLOP': '1e3', 'MFLOP': '1e6', 'GFLOP': '1e9', 'TFLOP': '1e12', 'PFLOP': '1e15', 'EFLOP': '1e18', 'ZFLOP': '1e21', 'YFLOP': '1e24'}),
    ('--budget', 'budget', {'': 1, 'k': '1e3', 'K': '1e3', 'M': '1e6', 'B': '1e9'})])
def test_every_unit(option, result, powers):
    more = {'--time': ['--flops', '1e15'], '--flops': [], '--budget': ['--flops', '1e15', '--device', 't4', '--mfu', '0.5']}[option]
    for unit, power in powers.items():
        s = train(option, f'12.5{unit}', *more)
        given = s['inputs'].get(result) or s['results'][result]
        assert near(given['value'], Fraction('12.5') * Fraction(power), 1e-14), unit


@pytest.mark.parametrize('given,printed', [('30d', '30 days'), ('47h', '47 h'), ('5400', '90 min'), ('119', '119 s'), ('1.5', '1.5 s'), ('250ms', '250 ms'), ('2.5us', '2.5 us'), ('3ns', '3 ns'),
                                           ('0.5ns', '0.5 ns')])
def test_times_as_people_read_them(given, printed):
    out = subprocess.run([ACCT, 'plan', 'train', '--flops', '1e15', '--time', given], capture_output=True, text=True).stdout
    assert re.search(rf'^  time +{re.escape(printed)} +given$', out, re.M), out


def test_nothing_overflows_up_to_1e30():
    """Exact integers to 1.7e38; beyond, one line."""
    for n in (10**10, 10**14, 10**15, 9 * 10**18):
        s = train('--params', n, '--tokens', 10**15, '--gpus', '1e9', '--peak-tflops', '1e6', '--mfu', '0.5')
        assert s.value('flops') == 6 * n * 10**15 and near(s.value('time'), Fraction(6 * n * 10**15) / (5 * 10**26))
    assert train('--flops', '1e30', '--device', 'h100-sxm').value('flops') == 1e30
    assert 'beyond' in refused('train', '--params', '9e18', '--tokens', '9e18')


def test_a_whole_answer_stays_whole():
    """What was rounded on the way neither takes one GPU more nor one token less."""
    for g in list(range(1, 200)) + [1024, 4999, 10**6]:
        if g % 7 and g < 200:
            continue
        seconds = Fraction(63 * 10**23) / (g * Fraction('989.5e12') * Fraction(37, 100))
        s = train('--params', '70e9', '--tokens', '15e12', '--time', repr(float(seconds)), '--peak-tflops', '989.5', '--mfu', '0.37')
        assert s.value('gpus') == g


# ---- what is refused ------------------------------------------------------------------------------------------------------------------

BAD = [
    (['--params', '1e9', '--batch-tokens', '5', '--time', '1h', '--gpus', '1', '--device', 'a10'], 'two unknowns (tokens, MFU)'), (['--params', '1e9', '--step-time', '0'], '--step-time'),
    (['--params', '1e9', '--batch-tokens', '5', '--step-time', '1s', '--tokens-per-second', '7', '--gpus', '1', '--device', 'a10'], 'contradiction'),
    ([], 'params'), (['--params', '70e9', '--gpus', '1024', '--device', 'h100-sxm', '--mfu', '0.5'], 'two unknowns (tokens, time)'),
    (['--params', '70e9', '--tokens', '15e12', '--device', 'h100-sxm', '--mfu', '0.5'], 'two unknowns (gpus, time)'),
    (['--params', '70e9', '--tokens', '15e12', '--gpus', '8', '--device', 'h100-sxm'], 'two unknowns (MFU, time)'),
    (['--gpus', '8', '--device', 'h100-sxm', '--mfu', '0.5', '--tokens', '3'], 'two unknowns (params, time)'),
    (['--params', '70e9', '--budget', '1M', '--device', 'h100-sxm', '--mfu', '0.5'], 'two unknowns (tokens, price)'),
    (['--params', '70e9', '--days', '3'], 'unknowns'), ([*RUN, '--device', 'h100-sxm', '--days', '100'], 'contradiction'),
    ([*RUN, '--peak-tflops', '989.5', '--flops', '1e20'], 'contradiction'),
    (['--params', '1e9', '--tokens', '1e9', '--tokens-per-second', '1e3', '--time', '3h'], 'contradiction'),
    (['--params', '0'], '--params'), (['--params', '-3'], '--params'), (['--params', '1.5'], 'whole'), (['--params', '1e30'], 'too large'),
    (['--params', '70Q'], "'70Q'"), (['--params', ''], '--params'), (['--tokens', '0', '--params', '1'], '--tokens'), ([*RUN, '--peak-tflops', '0'], '--peak-tflops'),
    ([*RUN, '--peak-tflops', '1e400'], 'too large'), ([*RUN, '--device', 'h101'], 'h101'), ([*RUN, '--device', 'cpu'], 'cpu'), ([*RUN, '--device', 'NVIDIA RTX A2000 12GB'], 'A2000'),
    ([*RUN, '--device', 'h100-sxm:8'], '--gpus'), ([*RUN, '--device', 'a100-80', '--dtype', 'fp8'], 'fp8'), ([*RUN, '--device', 'v100-16', '--dtype', 'bf16'], 'bf16'),
    ([*RUN, '--device', 'h100-sxm', '--dtype', 'fp17'], 'fp17'), ([*RUN, '--device', 'h100-sxm', '--dtype', 'int8'], 'int8'), ([*RUN, '--dtype', 'bf16'], '--dtype'),
    (['--params', '1', '--model', GPT2], '--model'), (['--model', 'layers=12'], 'dim='), (['--model', GPT2 + ',depth=3'], 'depth'), (['--model', GPT2.replace('768', '770')], 'heads='),
    (['--params', '1', '--convention', 'palm'], '--model'), (['--model', GPT2, '--convention', 'chinchilla'], 'chinchilla'), (['--params', '1', '--recompute', 'half'], 'half'),
    (['--params', '1', '--recompute', 'selective'], '--model'), (['--params', '1', '--recompute', '1e9'], '--flops'),
    ([*RUN[:-2], '--mfu', '0'], '--mfu'), ([*RUN[:-2], '--mfu', '1.2', '--device', 'h100-sxm'], '--mfu'), ([*RUN[:-2], '--mfu', '-0.1'], 'negative'),
    ([*RUN, '--device', 'h100-sxm', '--time', '3', '--days', '3'], '--days'), ([*RUN, '--device', 'h100-sxm', '--time', '3 moons'], 'moons'), ([*RUN, '--days', '0'], '--days'),
    (['--flops', '1e15', '--tokens', '0'], '--tokens'), (['--flops', 'bf16=1e15,fp99=2'], 'fp99'), (['--flops', 'bf16=0'], 'zero'), (['--flops', 'bf16=1', '--dtype', 'bf16'], '--dtype'),
    (['--flops', 'fp8=1,bf16=1', '--peak-tflops', '900'], 'each format'), (['--flops', 'fp8=1,bf16=1', '--peak-tflops', 'fp8=900'], 'bf16'),
    (['--flops', 'fp8=1,bf16=1', '--device', 'a100-80'], 'fp8'), (['--frob', '1'], '--frob'), (['70e9'], '70e9'), (['--params', '1', '--format', 'xml'], 'xml'), (['--params'], '--params')]


@pytest.mark.parametrize('words,says', BAD, ids=lambda w: ' '.join(w)[:70] if isinstance(w, list) else '')
def test_bad_command_lines(words, says):
    line = refused('train', *words)
    assert says in line and line.startswith('acct plan train: '), line


def test_rounded_figures_do_not_contradict():
    """143.9 days for what takes 143.94: all given, all consistent."""
    s = train(*RUN, '--device', 'h100-sxm', '--days', '143.9')
    assert s.value('time') == 143.9 * DAY and 'solved_for' not in s['results']
    for days in (143, 145): # 0.7 % is no rounding
        assert 'contradiction' in refused('train', *RUN, '--device', 'h100-sxm', '--days', days)


def test_formats_have_the_same_figures():
    days = '143.9'
    for form in ('text', 'markdown', 'csv'):
        out = subprocess.run([ACCT, 'plan', 'train', *RUN, '--device', 'h100-sxm', '--format', form], capture_output=True, text=True)
        assert out.returncode == 0 and '6300000000000000000000000' in out.stdout and days in out.stdout


def test_a_small_share_is_not_printed_as_none():
    words = ['plan', 'train', '--params', '2163340000', '--tokens', '1e6', '--gpus', '1024', '--device', 'b200', '--days', '82']
    out = subprocess.run([ACCT, *words], capture_output=True, text=True).stdout
    assert re.search(r'MFU +8e-08 %', out), out


def test_keys_are_documented(tmp_path):
    """docs/JSON.md has the keys that the three words print, and no others."""
    import test_format
    page = test_format.documented_keys()
    mix = ','.join(f'{f}=1e15' for f in ('fp64', 'fp64_tensor', 'fp32', 'tf32', 'bf16', 'fp16', 'fp16_acc16', 'fp8', 'fp4'))
    peaks = mix.replace('1e15', '100')
    sheets = {'train': [train(*RUN, '--device', 'h100-sxm', '--dtype', 'bf16', '--price-per-gpu-hour', '2', '--recompute', 'full', '--batch-tokens', '1e6'),
                        train('--model', GPT2, '--tokens', '1e9', '--time', '1h', '--gpus', '1', '--device', 'a10'), train('--flops', mix, '--peak-tflops', peaks, '--time', '1h'),
                        train('--params', '1e9', '--tokens', '1e12', '--days', '3', '--device', 'a10', '--mfu', '0.5'), train('--flops', '1e15', '--device', 'a10'),
                        train('--params', '1e9', '--budget', '1e3', '--price-per-gpu-hour', '1', '--device', 'a10', '--mfu', '0.5'),
                        train('--tokens', '1e9', '--days', '30', '--gpus', '8', '--device', 'a10', '--mfu', '0.5'), train('--params', '1e9', '--tokens-per-second', '1e3', '--gpus', '1', '--device', 'a10'), train('--params', '1', '--batch-tokens', '9', '--step-time', '1s'),
                        train('--params', '1e9', '--tokens', '1e9', '--days', '1', '--gpus', '8', '--device', 'a10', '--budget', '9')],
              'dtype': [plan('dtype'), plan('dtype', '1e-8', '1e9')],
              'roofline': [plan('roofline', '--device', 'b200', '--gemm', '3,4,5', '--intensity', '7'), plan('roofline', '--device', 'a10', '--gemm', '3,4,5', '--dtype', 'int8')]}
    for word, documents in sheets.items():
        printed = set()
        for d in documents:
            for part, says in (('inputs', 'from'), ('results', 'formula')):
                assert all(set(v) == {'value', 'unit', says} and v[says] for v in d[part].values()), d[part]
                printed |= {f'{part}.{k}' for k in d[part]} or {part}
            rest = {k: v for k, v in d.items() if k not in ('inputs', 'results', 'schema', 'command', 'notes')}
            printed |= test_format.paths(json.loads(json.dumps(rest)))
        known = page[f'acct plan {word}']
        assert printed - known - {'inputs', 'results'} == set() and known - printed == set(), word


def test_any_command_line_is_answered_or_refused():
    """Random choices of options: a sheet in which all is finite, or one line and exit code 2."""
    rng, seen = random.Random(29), {0: 0, 2: 0}
    values = {'params': ['70e9', '7B', '1', '9e18', '0'], 'tokens': ['15T', '1e9', '1', '9e18'], 'flops': ['1e15', '1e30', '1e300', 'fp8=1e15,bf16=3', '1e-300'], 'gpus': ['1', '1024', '1e12'],
              'device': ['h100-sxm', 'v100-16', 'b200'], 'dtype': ['bf16', 'fp8', 'fp64', 'tf32'], 'peak-tflops': ['989.5', '1e-290', '1e290'], 'mfu': ['0.5', '1', '1e-9', '200%'],
              'time': ['30d', '1ns', '1e300', '5'], 'step-time': ['2s', '1e-300'], 'days': ['30', '0.001'], 'tokens-per-second': ['1e5', '1e-300'], 'price-per-gpu-hour': ['2', '1e300'], 'budget': ['1M', '1e-5'],
              'batch-tokens': ['4M', '1'], 'recompute': ['full', 'selective', '1e9'], 'convention': ['6n', 'palm', 'causal'],
              'model': [GPT2, 'kind=linear,layers=3,dim=64,batch=8', 'layers=1e12,dim=1e9,heads=1,seq=1e12,vocab=1e12', GPT2 + ',batch=1e12']}
    for _ in range(600):
        words = [w for k in rng.sample(sorted(values), rng.randrange(1, 8)) for w in (f'--{k}', rng.choice(values[k]))]
        r = subprocess.run([ACCT, 'plan', 'train', *words, '--format', 'json'], capture_output=True, text=True)
        assert r.returncode in (0, 2), (words, r)
        seen[r.returncode] += 1
        if r.returncode == 2:
            assert r.stdout == '' and r.stderr.count('\n') == 1 and not re.search(r'\bnan\b', r.stderr) and len(r.stderr) < 700, (words, r)
        else:
            s = json.loads(r.stdout)
            assert r.stderr == '' and s['results'] and not re.search(r'\b(nan|inf)\b', r.stdout), words
            assert all(v['value'] is None or isinstance(v['value'], str) or v['value'] > 0 or 'rounded down' in v['formula'] for v in s['results'].values()), (words, s['results'])
    assert seen[0] > 30 and seen[2] > 60
