"""`acct plan compare`: the plan beside what a trace measured. Runs of `train` on the virtual GPU: the plan's figures are the books' formulas
written out here, the measured ones those of acct report and of the program's own account; gaps are their differences and sum up."""
import json, os
import pytest
import test_format
from conftest import BUILD, run

ACCT, TRAIN = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'train')
L, C, H, T, B, V = 2, 48, 3, 16, 5, 256
N = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
MODEL = f'layers={L},dim={C},heads={H},seq={T},vocab={V},batch={B}'
PEAK = 989.4e12


@pytest.fixture(scope='module')
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp('compare')
    for name, options in (('bf16', ['--dtype', 'bf16']), ('full', ['--dtype', 'bf16', '--recompute', 'full']), ('sgd', ['--optimizer', 'sgd'])):
        r = run(ACCT, 'run', '--vgpu=h100-sxm', '-o', folder / f'{name}.db', '--', TRAIN, '--model', 'gpt', '--layers', L, '--dim', C, '--heads', H, '--seq', T,
                '--batch', B, '--steps', 4, *options, '--truth', folder / f'{name}.json')
        assert r.returncode == 0, r.stderr
    return folder


def document(*args):
    r = run(ACCT, *args, '--format', 'json')
    assert r.returncode == 0 and not r.stderr, r
    return json.loads(r.stdout)


def by(rows, key):
    return {r[key]: r for r in rows}


def check_sums(d, db):
    """The measured bytes are the report's; gaps are differences, and those of the classes sum to the total's."""
    memory, report = by(d['memory'], 'class'), document('report', db)['memory']
    total = memory.pop('total')
    assert {k: m['measured'] for k, m in memory.items()} == report['at_peak'] and total['measured'] == report['peak_bytes']
    for m in [*memory.values(), total]:
        assert m['gap'] == (None if m['plan'] is None else m['measured'] - m['plan'])
    if total['plan'] is not None:
        assert total['gap'] == sum(m['gap'] for m in memory.values()) and total['plan'] == sum(m['plan'] for m in memory.values())
    assert all(m['why'] for m in memory.values() if m['gap'])


def test_by_what_the_trace_shows(traces):
    d = document('plan', 'compare', traces / 'bf16.db')
    truth = json.load(open(traces / 'bf16.json'))
    memory = by(d['memory'], 'class')
    check_sums(d, traces / 'bf16.db')
    assert d['parameters'] == {'plan': N, 'measured': N, 'gap': 0, 'by': 'as measured'} and truth['parameters'] == N
    assert [memory[c]['plan'] for c in ('param', 'grad', 'optimizer')] == [2 * N, 4 * N, 12 * N] and 'Megatron' in d['recipe']
    for c in ('param', 'grad', 'optimizer'):
        assert memory[c]['measured'] == sum(b['bytes'] for b in truth['buffers'] if b['class'] == c) and memory[c]['gap'] == 0
    assert memory['activation']['plan'] == L * (B * T * C * 16 * 2 + H * T * T * B * 2)
    assert memory['activation']['plan'] == document('plan', 'memory', '--recipe', 'megatron', '--model', MODEL, '--no-dropout')['results']['activations']['value']


def test_by_a_plan_of_the_user_s(traces):
    """AdamW in fp32 was planned, with dropout; it became bf16 with a master copy, without."""
    d = document('plan', 'compare', '--recipe', 'adamw-fp32', '--model', MODEL, traces / 'bf16.db')
    memory = by(d['memory'], 'class')
    check_sums(d, traces / 'bf16.db')
    assert [memory[c]['gap'] for c in ('param', 'grad', 'optimizer')] == [-2 * N, 0, 4 * N] and d['recipe'] == 'fp32 Adam(W)'
    layers, ends, logits = L * (B * T * C * 66 + H * T * T * B * 9), B * T * C * 9, 4 * B * T * V
    assert memory['activation']['plan'] == layers + ends + logits
    d = document('plan', 'compare', '--recipe', 'megatron', '--model', MODEL, '--no-dropout', '--recompute', 'full', traces / 'bf16.db')
    again, ends = B * T * C * 32 + H * T * T * B * 2, B * T * C * 4
    assert by(d['memory'], 'class')['activation']['plan'] == L * 2 * B * T * C + again + ends + logits
    d = document('plan', 'compare', '--params', '1e6', traces / 'bf16.db')
    assert d['parameters'] == {'plan': 10**6, 'measured': N, 'gap': N - 10**6, 'by': '--params'}
    assert by(d['memory'], 'class')['grad']['plan'] == 4 * 10**6 and by(d['flops'], 'convention')['6n of the plan']['plan'] == 6 * 10**6 * B * T


@pytest.mark.parametrize('name', ['bf16', 'full', 'sgd'])
def test_flops_and_their_terms(traces, name):
    d = document('plan', 'compare', traces / f'{name}.db')
    step = json.load(open(traces / f'{name}.json'))['steps'][-1]['flops']
    ways, tokens, attention = by(d['flops'], 'convention'), B * T, 12 * L * C * T
    products = L * 12 * C * C + V * C
    for way, a_token in {'6n': 6 * N, '6n-matmul': 6 * products, 'causal': 6 * N + attention // 2, 'palm': 6 * N + attention}.items():
        assert ways[way]['plan'] == a_token * tokens, way
    for w in ways.values():
        assert w['measured'] == sum(step.values()) and w['gap'] == w['measured'] - w['plan']
        assert w['gap_share'] == pytest.approx(w['gap'] / w['plan'])
    terms = {t['term']: t['flops'] for t in d['flops_difference']['terms']}
    assert terms.pop('executed') == sum(step.values()) == sum(terms.values())


@pytest.mark.parametrize('name', ['bf16', 'full'])
def test_time(traces, name):
    """Products at 989.4 TFLOP/s, recomputation apart; the parts sum to the step's time."""
    d = document('plan', 'compare', traces / f'{name}.db')
    step = json.load(open(traces / f'{name}.json'))['steps'][-1]['flops']
    parts = by(d['time'], 'part')
    assert parts['at_peak']['ns'] == pytest.approx((step['forward'] + step['backward']) / PEAK * 1e9)
    assert parts['recompute']['ns'] == pytest.approx(step['recompute'] / PEAK * 1e9)
    assert sum(p['ns'] for k, p in parts.items() if k != 'measured') == pytest.approx(parts['measured']['ns'])
    steps = document('report', traces / f'{name}.db')['steps']
    assert parts['at_peak']['share'] == pytest.approx(steps[-1]['mfu'], rel=1e-6)
    assert parts['measured']['ns'] == steps[-1]['device_end_ns'] - steps[-2]['device_end_ns']
    twice = by(document('plan', 'compare', '--peak-tflops', '494.7', traces / f'{name}.db')['time'], 'part')
    assert twice['at_peak']['ns'] == pytest.approx(2 * parts['at_peak']['ns'])


def test_what_is_not_known_is_null(tmp_path):
    """A trace without steps and device: no plan, no gap, and it is said."""
    from report_trace import Trace
    t = Trace(tmp_path / 'none.db', argv=['a'])
    t.close()
    d = document('plan', 'compare', tmp_path / 'none.db')
    assert d['recipe'] is None and d['parameters']['plan'] is None and d['flops'] == [] == d['time']
    memory = by(d['memory'], 'class')
    assert all(memory[c]['plan'] is None and memory[c]['gap'] is None for c in ('param', 'grad', 'optimizer', 'activation', 'total'))
    d = document('plan', 'compare', '--params', 100, '--recipe', 'fp32-sgd', tmp_path / 'none.db')
    assert by(d['memory'], 'class')['param']['plan'] == 400 and d['parameters']['gap'] is None


def test_without_the_device_s_times(traces, tmp_path):
    """On the host's clock the gap is one line."""
    for profile, known in (('cpu', True), ('h100-sxm', False)): # the host's clock tells nothing of a device that is a model
        r = run(ACCT, 'run', f'--vgpu={profile}', '-o', tmp_path / f'{profile}.db', '--', TRAIN, '--model', 'linear', '--steps', 4, env={'ACCT_CUPTI': 'off'})
        assert r.returncode == 0
        parts = by(document('plan', 'compare', '--peak-tflops', '0.1', tmp_path / f'{profile}.db')['time'], 'part')
        assert set(parts) == {'at_peak', 'gap', 'measured'}
        assert parts['at_peak']['ns'] == pytest.approx(6 * 393216 * 32 / 0.1e12 * 1e9 * 17 / 18) # no gradient of the first layer's input
        if known:
            assert 'no device times' in parts['gap']['what'] and 'host' in parts['measured']['what']
            assert parts['gap']['ns'] == pytest.approx(parts['measured']['ns'] - parts['at_peak']['ns'])
        else:
            assert parts['gap']['ns'] is None is parts['measured']['ns'] and 'not known' in parts['measured']['what']


def test_formats(traces):
    for form in ('text', 'markdown', 'csv'):
        r = run(ACCT, 'plan', 'compare', traces / 'bf16.db', '--format', form)
        assert r.returncode == 0 and str(2 * N) in r.stdout and '6 x' in r.stdout, form
    assert test_format.undocumented(document('plan', 'compare', '--params', '1', traces / 'bf16.db'), 'plan compare') == set()
