"""The updates of `train`: six rules, master weights, clipping by the global norm and loss scaling, against references in double
precision. By optimizer_cases, which gives sample_app/optimizer.c gradients from a file, and by whole runs. On the virtual GPU."""
import json, os, re
import numpy as np
import pytest
import reference_gpt as ref
from conftest import BUILD, DEVICE, run

TRAIN = os.path.join(BUILD, 'train')
CASES = os.path.join(BUILD, 'tests/optimizer_cases')
RULES = ['sgd', 'momentum', 'rmsprop', 'adagrad', 'adam', 'adamw']
MOMENTS = {'sgd': 0, 'momentum': 1, 'rmsprop': 1, 'adagrad': 1, 'adam': 2, 'adamw': 2}
DTYPES = ['fp32', 'tf32', 'bf16', 'fp16', 'fp8']
ALLOCS = ['tensor', 'class', 'step', 'pool']
# Two matrices and three vectors: more than a block, less than a warp, one element.
SIZES = '70x30,17,3x1,1,600'


def elements(sizes):
    return [int(np.prod([int(n) for n in s.split('x')])) for s in sizes.split(',')]


def is_matrix(sizes):
    return np.repeat(['x' in s for s in sizes.split(',')], elements(sizes))


def draw(steps, sizes=SIZES, seed=1):
    """First values and gradients, all tensors in one row. Some gradients are 0, some are far from the rest."""
    rng = np.random.default_rng(seed)
    n = sum(elements(sizes))
    g = rng.standard_normal((steps, n)) * 10.0 ** rng.uniform(-6, 0, n)
    g[:, rng.random(n) < 0.05] = 0
    return 0.1 * rng.standard_normal(n).astype('f4'), g.astype('f4')


def halves(w, dtype):
    """The bits of w rounded to nearest, ties to even."""
    if dtype == 'fp16':
        with np.errstate(over='ignore'):
            return w.astype('<f2').view('<u2')
    bits = w.view('<u4').astype('u8')
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype('<u2')


class Outcome:
    """What optimizer_cases printed, a dictionary a step, and what it dumped last."""
    def __init__(self, output, raw, rule, dtype, n):
        self.steps = [dict(zip(line.split()[::2], map(float, line.split()[1::2]))) for line in output.splitlines()]
        mixed = dtype in ('bf16', 'fp16', 'fp8')
        size = (2 + 4 if mixed else 4) * n + 4 * MOMENTS[rule] * n
        assert raw and len(raw) % size == 0
        self.dumps = [raw[i:i + size] for i in range(0, len(raw), size)]
        raw = self.dumps[-1]
        self.parameters = np.frombuffer(raw[:2 * n], '<u2') if mixed else None
        self.w, *self.moments = np.frombuffer(raw[2 * n if mixed else 0:], '<f4').reshape(-1, n)


def update(tmp_path, rule, w, g, dtype='fp32', sizes=SIZES, lr=1e-2, momentum=0.9, decay=0.0, clip=0.0, scale=1.0, alloc='tensor', every=None):
    given, dumped = tmp_path / 'given', tmp_path / 'dumped'
    given.write_bytes(w.tobytes() + g.tobytes())
    r = run(CASES, RULES.index(rule), DTYPES.index(dtype), sizes, len(g), lr, momentum, decay, clip, scale, ALLOCS.index(alloc), given, dumped,
            every or len(g), env=DEVICE)
    assert r.returncode == 0 and not r.stderr, r
    return Outcome(r.stdout, dumped.read_bytes(), rule, dtype, len(w))


def reference(rule, w, g, lr=1e-2, momentum=0.9, decay=0.0, factors=None):
    """Parameters and moments in double after all steps; `decay`: a number, or one for each element."""
    w = w.astype(float)
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t, gt in enumerate(g.astype(float) if factors is None else g.astype(float) * np.asarray(factors)[:, None], 1):
        if rule == 'sgd':
            w -= lr * gt
        elif rule == 'momentum':
            first = momentum * first + gt
            w -= lr * first
        elif rule == 'rmsprop':
            first = 0.99 * first + 0.01 * gt ** 2
            w -= lr * gt / (np.sqrt(first) + 1e-8)
        elif rule == 'adagrad':
            first = first + gt ** 2
            w -= lr * gt / (np.sqrt(first) + 1e-10)
        else:
            first = 0.9 * first + 0.1 * gt
            second = 0.95 * second + 0.05 * gt ** 2
            step = (first / (1 - 0.9 ** t)) / (np.sqrt(second / (1 - 0.95 ** t)) + 1e-8)
            w -= lr * (step + (decay * w if rule == 'adamw' else 0))
    return w, [first, second][:MOMENTS[rule]]


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def distances(a, b, sizes):
    """Norm-wise, the worst tensor."""
    ends = np.cumsum(elements(sizes))[:-1]
    return max(distance(x, y) for x, y in zip(np.split(a, ends), np.split(b, ends)) if y.any())


# ---- rules ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('dtype', ['fp32', 'bf16', 'fp16'])
@pytest.mark.parametrize('rule', RULES)
def test_twenty_steps(tmp_path, rule, dtype):
    w, g = draw(20)
    decay = 0.1 * is_matrix(SIZES)
    out = update(tmp_path, rule, w, g, dtype, momentum=0.8, decay=0.1)
    expected, moments = reference(rule, w, g, momentum=0.8, decay=decay)
    assert distance(w, expected) > 1e-3                     # something happened
    assert distances(out.w, expected, SIZES) < 1e-6
    assert len(out.moments) == len(moments)
    # 1 - 0.99 has a relative error of 1e-6 in fp32, 1 - 0.95 and 1 - 0.9 of a quarter of it.
    for got, m in zip(out.moments, moments):
        assert distances(got, m, SIZES) < (2e-6 if rule == 'rmsprop' else 1e-6)
    if dtype != 'fp32':
        assert np.array_equal(out.parameters, halves(out.w, dtype))
    assert out.steps[-1]['updates'] == 20 and np.isnan(out.steps[-1]['norm'])


@pytest.mark.parametrize('rule', ['rmsprop', 'adagrad', 'adam', 'adamw'])
def test_gradients_as_small_as_epsilon(tmp_path, rule):
    w, g = draw(20)
    g[:] = np.logspace(-12, -7, len(w))[::-1]
    out = update(tmp_path, rule, w, g)
    moved, expected = out.w - w.astype(float), reference(rule, w, g)[0] - w
    # A parameter of 0.1 keeps changes to 4e-9 a step.
    assert distance(moved, expected) < 1e-5


@pytest.mark.parametrize('rule', ['adam', 'adamw'])
def test_matrices_alone_decay_and_only_in_adamw(tmp_path, rule):
    w, g = draw(5)
    plain, decayed = (update(tmp_path, rule, w, g, decay=d).w for d in (0, 0.3))
    changed, matrices = plain != decayed, is_matrix(SIZES)
    assert not changed[~matrices].any()
    assert changed[matrices].mean() > 0.99 if rule == 'adamw' else not changed.any()


@pytest.mark.parametrize('dtype', ['bf16', 'fp16', 'fp8'])
def test_parameters_are_their_masters_rounded(tmp_path, dtype):
    """What lies between two neighbours, halfway too, beyond the largest number, below the smallest."""
    w = np.concatenate([np.array([1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -11, 1 + 3 * 2 ** -11, 1e-8, 2 ** -25, 2 ** -24, 3 * 2 ** -25, 65504, 65519, 65520,
                                  7e4, 3.39e38, 3.4e38, 0.0, -0.0, -1e-40], 'f4'), np.logspace(-44, 38, 600).astype('f4')])
    out = update(tmp_path, 'sgd', w, np.zeros((1, len(w)), 'f4'), dtype, sizes=str(len(w)))
    assert np.array_equal(out.w.view('u4'), w.view('u4'))
    expected = halves(w, dtype)
    assert np.array_equal(out.parameters, expected)
    assert (expected[4] == 0) == (dtype == 'fp16') and (dtype != 'fp16' or expected[11] == 0x7c00)


@pytest.mark.parametrize('dtype', ['fp32', 'fp16'])
def test_every_way_to_allocate_gives_the_same(tmp_path, dtype):
    w, g = draw(3)
    outs = [update(tmp_path, 'adamw', w, g, dtype, decay=0.1, clip=1.0, alloc=a) for a in ALLOCS]
    assert all(o.dumps == outs[0].dumps and o.steps == outs[0].steps for o in outs[1:])


# ---- clipping -------------------------------------------------------------------------------------------------------

def global_norms(g):
    return np.linalg.norm(g.astype(float), axis=1)


@pytest.mark.parametrize('dtype', ['fp32', 'bf16', 'fp16'])
@pytest.mark.parametrize('rule', RULES)
def test_clipping(tmp_path, rule, dtype):
    w, g = draw(20)
    g *= np.logspace(-1, 1, 20, dtype='f4')[:, None]
    norms = global_norms(g)
    clip = float(np.median(norms))                          # half of the steps are clipped
    out = update(tmp_path, rule, w, g, dtype, clip=clip, scale=0.0 if dtype == 'fp16' else 1.0)
    assert [s['norm'] for s in out.steps] == pytest.approx(norms, rel=1e-12)
    factors = np.minimum(1, clip / (norms + 1e-6))
    assert (factors == 1).sum() == 10
    expected, moments = reference(rule, w, g, factors=factors)
    assert distances(out.w, expected, SIZES) < 1e-6
    for got, m in zip(out.moments, moments):
        assert distances(got, m, SIZES) < 2e-6
    if rule in ('sgd', 'momentum'):                         # the others hardly look at the size
        assert distances(reference(rule, w, g)[0], expected, SIZES) > 1e-2


@pytest.mark.parametrize('rule', RULES)
def test_clipping_that_does_not_bite_changes_no_bit(tmp_path, rule):
    w, g = draw(3)
    plain, clipped = (update(tmp_path, rule, w, g, decay=0.1, clip=c) for c in (0, 1.001 * global_norms(g).max()))
    assert plain.dumps == clipped.dumps


@pytest.mark.parametrize('size', [1e-30, 1e-10, 1, 1e18, 1e30])
def test_norm_neither_overflows_nor_vanishes(tmp_path, size):
    w, g = draw(2)
    g = (g.astype(float) * size).astype('f4')
    norms = global_norms(g)
    out = update(tmp_path, 'sgd', w, g, lr=0.0, clip=1.0)
    assert [s['norm'] for s in out.steps] == pytest.approx(norms, rel=1e-12)


def test_norm_of_a_large_tensor_and_of_many(tmp_path):
    """More than a thread has in one go; and it repeats bit for bit."""
    sizes = '1500x1000,1,' + ','.join(['33'] * 10)
    w, g = draw(1, sizes)
    a, b = (update(tmp_path, 'sgd', w, g, sizes=sizes, clip=1.0) for _ in range(2))
    norm = global_norms(g)[0]
    assert a.steps[0]['norm'] == pytest.approx(norm, rel=1e-12) and a.steps == b.steps and a.dumps == b.dumps
    assert distance(a.w, reference('sgd', w, g, factors=[1 / (norm + 1e-6)])[0]) < 1e-6


# ---- loss scaling ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('rule', RULES)
def test_a_scale_that_is_a_power_of_two_changes_no_bit(tmp_path, rule):
    w, g = draw(5)
    one, static, dynamic = (update(tmp_path, rule, w, g, 'fp16', decay=0.1, scale=s) for s in (1, 1024, 0))
    assert one.dumps == static.dumps == dynamic.dumps
    assert [s['scale'] for o in (one, static, dynamic) for s in o.steps] == [1] * 5 + [1024] * 5 + [65536] * 5
    assert [s['norm'] for s in dynamic.steps] == pytest.approx(global_norms(g), rel=1e-12)
    assert static.steps[-1]['norm'] == dynamic.steps[-1]['norm'] and np.isnan(one.steps[-1]['norm'])


def test_any_scale_is_taken_out_again(tmp_path):
    w, g = draw(20)
    out = update(tmp_path, 'adamw', w, g, 'fp16', scale=1000.0)
    assert distances(out.w, reference('adamw', w, g)[0], SIZES) < 1e-6
    assert [s['norm'] for s in out.steps] == pytest.approx(global_norms(g), rel=1e-6)


OVERFLOWS = {2: (np.inf, 0), 5: (np.nan, -1), 6: (-np.inf, 2100)}      # step: value, element


@pytest.mark.parametrize('rule', RULES)
def test_overflow_drops_the_step(tmp_path, rule):
    w, g = draw(9)
    for step, (value, i) in OVERFLOWS.items():
        g[step, i] = value
    kept = [step for step in range(9) if step not in OVERFLOWS]
    out = update(tmp_path, rule, w, g, 'fp16', decay=0.1, scale=0, every=1)
    assert [s['updated'] for s in out.steps] == [step in kept for step in range(9)]
    assert [s['scale'] for s in out.steps] == [65536] * 2 + [32768] * 3 + [16384] + [8192] * 3
    assert [s['good'] for s in out.steps] == [1, 2, 0, 1, 2, 0, 0, 1, 2]
    assert out.steps[-1]['updates'] == 6 and out.steps[-1]['skipped'] == 3
    for step in OVERFLOWS:
        assert out.dumps[step] == out.dumps[step - 1]
    for step in kept[1:]:
        assert out.dumps[step] != out.dumps[step - 1]
    # As if the dropped steps had never been; Adam's corrections count updates.
    assert out.dumps[-1] == update(tmp_path, rule, w, g[kept], 'fp16', decay=0.1, scale=0).dumps[-1]
    expected, _ = reference(rule, w, g[kept], decay=0.1 * is_matrix(SIZES))
    assert distances(out.w, expected, SIZES) < 1e-6


@pytest.mark.parametrize('dtype,scale,clip', [('fp16', 1024, 0), ('fp16', 1, 1), ('fp32', 1, 1), ('bf16', 1, 1)])
def test_overflow_with_a_fixed_scale_or_clipping(tmp_path, dtype, scale, clip):
    w, g = draw(3)
    g[1, 7] = np.inf
    out = update(tmp_path, 'adamw', w, g, dtype, scale=scale, clip=clip, every=1)
    assert [(s['updated'], s['scale'], s['skipped']) for s in out.steps] == [(1, scale, 0), (0, scale, 1), (1, scale, 1)]
    assert out.dumps[1] == out.dumps[0] != out.dumps[2] and np.isfinite(out.w).all()


def test_scale_is_never_below_one(tmp_path):
    w, g = draw(20, '3')
    g[:19] = np.inf
    out = update(tmp_path, 'sgd', w, g, 'fp16', sizes='3', scale=0)
    assert [s['scale'] for s in out.steps] == [max(1, 2.0 ** (15 - i)) for i in range(19)] + [1]
    assert out.steps[-1]['updated'] and out.steps[-1]['skipped'] == 19


def test_scale_grows_after_2000_updates(tmp_path):
    """One overflow at step 1000 puts it off; the second time it doubles 2000 updates after the first."""
    w, g = draw(5500, '3')
    g[1000, 1] = np.nan
    scales = [s['scale'] for s in update(tmp_path, 'sgd', w, g, 'fp16', sizes='3', scale=0).steps]
    assert scales == [65536] * 1000 + [32768] * 2000 + [65536] * 2000 + [131072] * 500


def test_scale_is_never_above_2_to_the_24(tmp_path):
    w, g = draw(1, '1')
    out = update(tmp_path, 'sgd', w, np.repeat(1e-3 * g, 18001, 0), 'fp16', sizes='1', scale=0)
    assert out.steps[16000 - 2]['scale'] == 2 ** 23 and {s['scale'] for s in out.steps[16000 - 1:]} == {2 ** 24}


def test_fixed_scale_does_not_grow(tmp_path):
    w, g = draw(2001, '1')
    assert {s['scale'] for s in update(tmp_path, 'sgd', w, g, 'fp16', sizes='1', scale=1024).steps} == {1024}


# ---- whole runs -----------------------------------------------------------------------------------------------------

L, C, H, T, B = 2, 32, 2, 16, 4
GPT = ['--model', 'gpt', '--layers', L, '--dim', C, '--heads', H, '--seq', T, '--batch', B]
LINEAR = ['--model', 'linear', '--layers', 3, '--dim', 32, '--batch', 16]


def train(*options):
    r = run(TRAIN, *options, env=DEVICE)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def losses_of(output):
    return np.array([float(x) for x in re.findall(r'^step \d+ loss (\S+) ', output, re.M)])


def read_dump(path, n):
    """Parameters and gradients (fp32): the last numbers of a dump."""
    return np.frombuffer(open(path, 'rb').read()[-8 * n:], '<f4').reshape(2, n)


def account(tmp_path, *options):
    out = train(*options, '--truth', tmp_path / 'truth')
    return json.load(open(tmp_path / 'truth')), out


@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('model,clip', [(GPT, 0), (GPT, 0.5), (LINEAR, 0), (LINEAR, 0.01)], ids=['gpt', 'gpt-clip', 'linear', 'linear-clip'])
def test_two_updates_of_a_run(tmp_path, rule, model, clip):
    """The parameters of step 3, from those of step 1 and the gradients of steps 1 and 2."""
    shapes = [s for _, s in ref.shapes(L, C, T, False)] if model is GPT else [(32, 32)] * 3
    sizes = [int(np.prod(s)) for s in shapes]
    steps = []
    for step in (1, 2, 3):
        train(*model, '--optimizer', rule, '--lr', 3e-3, '--momentum', 0.7, '--weight-decay', 0.2, '--clip', clip, '--steps', step,
              '--dump-gradients', tmp_path / 'dump', '--dump-step', step)
        steps.append(read_dump(tmp_path / 'dump', sum(sizes)))
    g = np.array([g for _, g in steps[:2]])
    factors = np.minimum(1, clip / (global_norms(g) + 1e-6)) if clip else [1, 1]
    assert not clip or max(factors) < 0.9
    decay = 0.2 * np.repeat([len(s) == 2 for s in shapes], sizes)
    expected, _ = reference(rule, steps[0][0], g, lr=3e-3, momentum=0.7, decay=decay, factors=factors)
    # Each update rounds a parameter once; what is added has the precision of fp32.
    w1, w2, w3 = (w.astype(float) for w, _ in steps)
    assert np.count_nonzero(w3 - w1) > 0.9 * len(w1)
    rounding = 2 * np.spacing(np.maximum(abs(steps[0][0]), abs(steps[2][0])))
    assert (abs(w3 - expected) <= rounding + 1e-5 * (abs(w2 - w1) + abs(w3 - w2))).all()


@pytest.mark.parametrize('dtype', ['fp32', 'bf16', 'fp16'])
@pytest.mark.parametrize('rule,lr', [('sgd', 0.3), ('momentum', 0.03), ('rmsprop', 1e-3), ('adagrad', 1e-2), ('adam', 3e-3), ('adamw', 3e-3)])
def test_runs_learn(tmp_path, rule, lr, dtype):
    truth, out = account(tmp_path, *GPT, '--optimizer', rule, '--lr', lr, '--dtype', dtype, '--steps', 40)
    losses = losses_of(out)
    assert losses[0] == pytest.approx(np.log(256), rel=0.02) and losses[-5:].mean() < losses[:5].mean() - 0.5
    n, bytes_of = truth['parameters'], {}
    for b in truth['buffers']:
        if b['class'] == 'optimizer':
            kind = b['name'].split('.')[0]
            bytes_of[kind] = bytes_of.get(kind, 0) + b['bytes']
    names = {'sgd': '', 'momentum': 'v', 'rmsprop': 's', 'adagrad': 's', 'adam': 'mv', 'adamw': 'mv'}[rule]
    assert bytes_of == {**{name: 4 * n for name in names}, **({} if dtype == 'fp32' else {'master': 4 * n})}


@pytest.mark.parametrize('options,temporary', [([], False), (['--clip', 1], True), (['--dtype', 'fp16'], True),
                                               (['--dtype', 'fp16', '--loss-scale', 1], False)])
def test_the_norm_is_made_where_it_is_needed(tmp_path, options, temporary):
    """One launch a tensor; with the norm another one each, the sum over them, and its copy to the host."""
    truth, _ = account(tmp_path, *GPT, *options, '--steps', 2)
    tensors = len(ref.shapes(L, C, T, False))
    for step in truth['steps']:
        phase = next(p for p in step['phases'] if p['name'] == 'optimizer')
        assert phase['to_call'] - phase['from_call'] + 1 == (2 * tensors + 2 if temporary else tensors)
    # A partial sum for each 1024 elements that a tensor has, begun ones too, and the total; in double.
    partials = sum(-(-int(np.prod(s)) // 1024) for _, s in ref.shapes(L, C, T, False))
    assert [b['bytes'] for b in truth['buffers'] if b['class'] == 'temporary'] == ([8 * partials, 8] if temporary else [])


def test_a_run_whose_gradients_overflow_updates_nothing(tmp_path):
    """A loss scale at which fp16 cannot hold the gradient of the logits."""
    dumps = []
    for step in (1, 3):
        out = train(*GPT, '--dtype', 'fp16', '--loss-scale', 2 ** 24, '--steps', step, '--dump-gradients', tmp_path / 'dump', '--dump-step', step)
        dumps.append(open(tmp_path / 'dump', 'rb').read())
    n = sum(int(np.prod(s)) for _, s in ref.shapes(L, C, T, False))
    (w1, g1), (w3, _) = ((d[-6 * n:-4 * n], np.frombuffer(d[-4 * n:], '<f4')) for d in dumps)
    assert w1 == w3 and not np.isfinite(g1).all()
    assert [line for line in out.splitlines() if 'skipped' in line] == [
        *(f'step {i} skipped: gradients are not finite, loss scale now 16777216' for i in (1, 2, 3)),
        '3 of 3 steps skipped: gradients were not finite']
