"""Every choice of `train` in its account (--truth): bytes by the recipes of mixed precision and of the optimizers, over a covering
set of runs; accumulation, recomputation and released gradients against the plain run; executed FLOPs against 6·N·T. Expected
values are formulas worked out here. Runs on the virtual GPU."""
import itertools, json, os, re
import numpy as np
import pytest
from conftest import BUILD, DEVICE, run

TRAIN = os.path.join(BUILD, 'train')
MOMENTS = {'sgd': 0, 'momentum': 1, 'rmsprop': 1, 'adagrad': 1, 'adam': 2, 'adamw': 2}
FORMATS = {'fp32': 4, 'tf32': 4, 'bf16': 2, 'fp16': 2, 'fp8': 2}     # bytes of a parameter
CHOICES = [list(MOMENTS), list(FORMATS), ['none', 'full'], ['none', 'zero'], ['tensor', 'class', 'step', 'pool']]
OPTIONS = ['--optimizer', '--dtype', '--recompute', '--zero-grad', '--alloc']
L, C, H, T, B, V = 2, 32, 2, 16, 2, 256
SIZE = ['--layers', L, '--dim', C, '--heads', H, '--seq', T, '--batch', B]


def covering(least):
    """Runs in which every pair of two choices' values occurs, and as many triples as fit: greedy, always the same."""
    runs, left = [], {t for i in itertools.combinations(range(5), 3) for t in itertools.product(*[[(k, v) for v in CHOICES[k]] for k in i])}
    everything = list(itertools.product(*CHOICES))
    while len(runs) < least:
        best = max(everything, key=lambda r: len(left & set(itertools.combinations(enumerate(r), 3))))
        left -= set(itertools.combinations(enumerate(best), 3))
        runs.append(best)
    return runs


RUNS = covering(64)


def train(*options, **kw):
    r = run(TRAIN, *options, env=DEVICE, **kw)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def account(tmp_path, *options, model='gpt', size=SIZE):
    path = tmp_path / f'truth{len(os.listdir(tmp_path))}.json'
    out = train('--model', model, *size, *options, '--truth', path)
    return json.load(open(path)), out


def live(truth, call, class_, name=''):
    """Bytes of a class that are live at a call, of the buffers whose name begins so."""
    return sum(b['bytes'] for b in truth['buffers'] if b['class'] == class_ and b['from_call'] <= call <= b['to_call'] and b['name'].startswith(name))


def parameters(L=L, C=C, T=T, V=V):
    return V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C


def optimizer_calls(step):
    return next((p['from_call'], p['to_call']) for p in step['phases'] if p['name'] == 'optimizer')


def test_the_runs_cover_all_pairs():
    assert len(set(RUNS)) >= 60
    for i, j in itertools.combinations(range(5), 2):
        assert {(r[i], r[j]) for r in RUNS} == set(itertools.product(CHOICES[i], CHOICES[j]))


@pytest.mark.parametrize('choice', RUNS, ids=lambda c: '-'.join(c))
def test_recipe(tmp_path, choice):
    optimizer, dtype, recompute, zero_grad, alloc = choice
    truth, _ = account(tmp_path, *itertools.chain(*zip(OPTIONS, choice)), '--steps', 2)
    assert {k: truth['options'][k[2:]] for k in OPTIONS} == dict(zip(OPTIONS, choice))
    n, width, mixed = parameters(), FORMATS[dtype], dtype in ('bf16', 'fp16', 'fp8')
    assert truth['parameters'] == n and len(truth['steps']) == 2
    for step in truth['steps']:
        first, last = optimizer_calls(step)
        for call in (first, last):
            assert live(truth, call, 'param') == width * n
            assert live(truth, call, 'grad') == 4 * n
            assert live(truth, call, 'optimizer') == 4 * n * (MOMENTS[optimizer] + mixed)
            if alloc != 'class':                     # there they lie together, and have one name
                assert live(truth, call, 'optimizer', 'master') == 4 * n * mixed
        # Between a step's begin and its backward pass released gradients take nothing.
        assert live(truth, step['from_call'], 'grad') == (0 if zero_grad == 'none' else 4 * n)
        forward, backward = step['flops']['forward'], step['flops']['backward']
        products = 2 * B * T * (L * 12 * C * C + V * C) + 4 * B * T * T * C * L
        assert (forward, backward) == (products, 2 * products)
        # A layer's last product leads to no activation that backward reads: not computed again.
        layer = 2 * B * T * 12 * C * C + 4 * B * T * T * C
        again = L * (layer - 2 * B * T * 4 * C * C)
        assert step['flops']['recompute'] == (again if recompute == 'full' else 0)
    total = dict(zip(('weights', 'grads', 'master', 'states'), (width, 4, 4 * mixed, 4 * MOMENTS[optimizer])))
    assert (live(truth, last, 'param') + live(truth, last, 'grad') + live(truth, last, 'optimizer')) == n * sum(total.values())


@pytest.mark.parametrize('recipe,bytes_', [(('fp32', 'sgd'), 8), (('fp32', 'adagrad'), 12), (('fp32', 'adam'), 16), (('fp32', 'adamw'), 16), (('bf16', 'adamw'), 18)])
def test_bytes_per_parameter(tmp_path, recipe, bytes_):
    """The table of recipes: weights, gradients, master weights and states together."""
    truth, _ = account(tmp_path, '--dtype', recipe[0], '--optimizer', recipe[1], '--steps', 1)
    at = truth['steps'][0]['to_call']
    assert sum(live(truth, at, c) for c in ('param', 'grad', 'optimizer')) == bytes_ * parameters()


# ---- what must not change the numbers -------------------------------------------------------------------------------------

def dump(tmp_path, *options, size=SIZE, step=1, model='gpt'):
    """The gradients of a step as bytes, and all numbers of the dump after the batch."""
    path = tmp_path / f'dump{len(os.listdir(tmp_path))}'
    out = train('--model', model, *size, *options, '--dump-gradients', path, '--dump-step', step, '--steps', step)
    return open(path, 'rb').read().split(b'\n', 1)[1], out


def losses(out):
    return re.findall(r'^step \d+ loss (\S+)', out, re.M)


@pytest.mark.parametrize('dtype', list(FORMATS))
def test_recomputed_gradients_are_the_same_bits(tmp_path, dtype):
    plain, recomputed = (dump(tmp_path, '--dtype', dtype, '--recompute', r, step=3) for r in ('none', 'full'))
    assert plain[0] == recomputed[0] and losses(plain[1]) == losses(recomputed[1]) and len(plain[0]) == 8 * B * T + (FORMATS[dtype] + 4) * parameters()


@pytest.mark.parametrize('option,values', [('--zero-grad', ['none', 'zero']), ('--alloc', ['tensor', 'class', 'step', 'pool'])])
@pytest.mark.parametrize('dtype', ['fp32', 'fp16', 'fp8'])
def test_memory_choices_change_no_bit(tmp_path, option, values, dtype):
    runs = [dump(tmp_path, '--dtype', dtype, option, v, '--clip', 1, step=3) for v in values]
    assert len({r[0] for r in runs}) == 1 and len({tuple(losses(r[1])) for r in runs}) == 1


@pytest.mark.parametrize('dtype', ['fp32', 'bf16'])
@pytest.mark.parametrize('heads,seq,batch', [(2, 16, 2), (4, 24, 3)])
def test_recompute_saves_the_predicted_bytes(tmp_path, dtype, heads, seq, batch):
    """All of a layer's activations but its input, for every layer but one. With e bytes an element, n = B·T rows: layernorms' outputs
    2·n·C, q, k, v 3·n·C, joined n·C, middle n·C, fc and gelu 8·n·C elements, attention B·H·T·T; means and 1/deviations 4·n floats."""
    size = ['--layers', 5, '--dim', C, '--heads', heads, '--seq', seq, '--batch', batch]
    e, n = FORMATS[dtype], batch * seq
    layer = e * (15 * n * C + batch * heads * seq * seq) + 4 * 4 * n
    kept = []
    for recompute in ('none', 'full'):
        truth, _ = account(tmp_path, '--dtype', dtype, '--recompute', recompute, '--steps', 1, size=size)
        kept.append(live(truth, truth['steps'][0]['to_call'], 'activation'))
    assert kept[0] - kept[1] == 4 * layer


def norms(raw, n):
    return np.frombuffer(raw[-4 * n:], '<f4').astype(float)


@pytest.mark.parametrize('k,b', [(2, 2), (4, 1), (3, 2)])
def test_accumulation_is_one_large_batch(tmp_path, k, b):
    size = [*SIZE[:-1], b]
    n = parameters()
    parts, out = dump(tmp_path, '--accum', k, size=size)
    whole, expected = dump(tmp_path, size=[*SIZE[:-1], k * b])
    for at in range(0, n, n // 8):                  # piece by piece, so that small tensors count too
        a, w = norms(parts, n)[at:at + n // 8], norms(whole, n)[at:at + n // 8]
        assert np.linalg.norm(a - w) < 1e-5 * np.linalg.norm(w)
    assert float(losses(out)[0]) == pytest.approx(float(losses(expected)[0]), rel=1e-6)


@pytest.mark.parametrize('options', [[], ['--recompute', 'full'], ['--zero-grad', 'none', '--alloc', 'step'], ['--dtype', 'fp16']])
def test_micro_batches_in_the_account(tmp_path, options):
    k = 3
    truth, _ = account(tmp_path, '--accum', k, '--steps', 2, *options)
    products = 2 * B * T * (L * 12 * C * C + V * C) + 4 * B * T * T * C * L
    for step in truth['steps']:
        assert step['micro_batches'] == k
        assert [(p['name'], p['micro_batch']) for p in step['phases']] == [
            *((name, i) for i in range(k) for name in ('forward', 'backward')), ('optimizer', step['phases'][-1]['micro_batch'])]
        assert all(a['to_call'] < b['from_call'] for a, b in zip(step['phases'], step['phases'][1:]))
        assert (step['flops']['forward'], step['flops']['backward']) == (k * products, 2 * k * products)


# ---- 6·N·T ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('seq', [8, 16, 32, 64, 128])
@pytest.mark.parametrize('untied', [False, True])
def test_attention_explains_the_difference_from_6nt(tmp_path, seq, untied):
    """N: parameters that take part in products (a tied table once, as head); executed − 6·N·tokens = 12·L·T·C·tokens, to the FLOP."""
    size = ['--layers', L, '--dim', C, '--heads', H, '--seq', seq, '--batch', B]
    truth, _ = account(tmp_path, '--steps', 1, *(['--untied'] if untied else []), size=size)
    tokens, n = B * seq, 12 * C * C * L + V * C
    executed = sum(truth['steps'][0]['flops'][p] for p in ('forward', 'backward', 'optimizer'))
    assert executed - 6 * n * tokens == 12 * L * seq * C * tokens
    assert executed == truth['flops_per_step']


def test_the_lectures_two_layers(tmp_path):
    """forward 2·N·B, backward 4·N·B less the first layer's input gradient 2·B·D·D."""
    D, rows = 48, 20
    truth, _ = account(tmp_path, '--steps', 1, model='linear', size=['--layers', 2, '--dim', D, '--batch', rows])
    flops = truth['steps'][0]['flops']
    assert flops['forward'] == 2 * (2 * D * D) * rows
    assert flops['backward'] == 4 * (2 * D * D) * rows - 2 * rows * D * D


@pytest.mark.parametrize('dtype', ['fp32', 'tf32', 'bf16', 'fp16'])
@pytest.mark.parametrize('optimizer', list(MOMENTS))
def test_the_lectures_memory(tmp_path, optimizer, dtype):
    """Deep linear model: D·D·layers parameters, B·D·layers activations, gradients as many as parameters, states by the optimizer."""
    D, layers, rows = 32, 3, 8
    truth, _ = account(tmp_path, '--steps', 2, '--optimizer', optimizer, '--dtype', dtype, model='linear',
                       size=['--layers', layers, '--dim', D, '--batch', rows])
    n, mixed = D * D * layers, dtype in ('bf16', 'fp16')
    at = truth['steps'][-1]['to_call']
    assert truth['parameters'] == n
    assert [live(truth, at, c, n) for c, n in (('param', ''), ('grad', ''), ('optimizer', ''), ('activation', 'h'))] == [
        FORMATS[dtype] * n, 4 * n, 4 * n * (MOMENTS[optimizer] + mixed), FORMATS[dtype] * rows * D * layers]
