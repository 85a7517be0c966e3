"""The sample program `train --model gpt`: loss, gradients and updates against a double-precision reference, its account
(--truth) against formulas worked out here, and its behaviour on bad input. Runs on the virtual GPU."""
import json, os, re, struct
import numpy as np
import pytest
import reference_gpt as ref
from conftest import BUILD, DEVICE, run

TRAIN = os.path.join(BUILD, 'train')
TEXT = open('/usr/share/common-licenses/GPL-3', 'rb').read()
V = 256
# L, C, H, T, B: one layer and one head; a width that no warp divides; a sequence longer than a warp; B·T = C (all the same size).
SHAPES = [(1, 16, 1, 8, 2), (2, 64, 4, 16, 2), (3, 42, 3, 33, 3), (2, 40, 5, 70, 1), (1, 64, 2, 16, 4)]


def train(*options, **kw):
    r = run(TRAIN, '--model', 'gpt', *options, env=DEVICE, **kw)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def shape_options(L, C, H, T, B):
    return ['--layers', L, '--dim', C, '--heads', H, '--seq', T, '--batch', B]


def losses_of(output):
    return re.findall(r'^step \d+ loss (\S+) ms [\d.]+ tokens/s [\d.]+$', output, re.M)


def read_dump(path, shape, untied, step):
    """tokens, targets, parameters and gradients by name."""
    L, C, H, T, B = shape
    head, raw = open(path, 'rb').read().split(b'\n', 1)
    assert head.decode() == (f'gpt fp32 layers {L} dim {C} heads {H} seq {T} batch {B} vocabulary 256 {"untied" if untied else "tied"} step {step}')
    tokens, targets = np.frombuffer(raw[:8 * B * T], '<i4').reshape(2, B, T)
    numbers, at, sets = np.frombuffer(raw[8 * B * T:], '<f4').astype(float), 0, []
    for _ in range(2):
        tensors = {}
        for name, size in ref.shapes(L, C, T, untied):
            n = int(np.prod(size))
            tensors[name], at = numbers[at:at + n].reshape(size), at + n
        sets.append(tensors)
    assert at == len(numbers)
    return tokens, targets, *sets


def distance(a, b):
    """Norm-wise relative difference of one tensor."""
    return np.linalg.norm(a - b) / np.linalg.norm(b)


# ---- numerics -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('untied', [False, True])
def test_reference_gradients_are_the_slopes_of_the_loss(untied):
    L, C, H, T, B = 2, 6, 2, 5, 2
    rng = np.random.default_rng(3)
    p = {n: 0.3 * rng.standard_normal(s) + (n.startswith('ln') and 'w' in n) for n, s in ref.shapes(L, C, T, untied)}
    tokens, targets = ref.draw_batch(4, 1, B, T, TEXT)
    value, g = ref.gradients(p, tokens, targets, H)
    assert value == ref.loss(p, tokens, targets, H)
    for name in p:
        for i in range(6):                     # slopes in random directions, and along one token that occurs
            way = rng.standard_normal(p[name].shape)
            up, down = ({**p, name: p[name] + e * way} for e in (1e-5, -1e-5))
            slope = (ref.loss(up, tokens, targets, H) - ref.loss(down, tokens, targets, H)) / 2e-5
            assert slope == pytest.approx((g[name] * way).sum(), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('untied', [False, True])
@pytest.mark.parametrize('shape', SHAPES)
def test_first_gradients(tmp_path, shape, untied, alloc):
    L, C, H, T, B = shape
    dump = tmp_path / 'dump'
    out = train(*shape_options(*shape), *(['--untied'] if untied else []), '--alloc', alloc, '--steps', 1, '--seed', 7,
                '--dump-gradients', dump)
    tokens, targets, w, dw = read_dump(dump, shape, untied, 1)
    for got, expected in zip((tokens, targets), ref.draw_batch(7, 1, B, T, TEXT)):
        assert np.array_equal(got, expected)
    for name, expected in ref.draw_parameters(7, L, C, T, untied).items():
        assert np.abs(w[name] - expected).max() < 1e-7, name
    value, expected = ref.gradients(w, tokens, targets, H)
    assert float(losses_of(out)[0]) == pytest.approx(value, rel=1e-6)
    for name in expected:
        assert distance(dw[name], expected[name]) < 1e-5, name


def test_unscaled_init(tmp_path):
    shape = L, C, H, T, B = 2, 64, 4, 16, 2
    dump = tmp_path / 'dump'
    train(*shape_options(*shape), '--init', 'unscaled', '--steps', 1, '--dump-gradients', dump)
    w = read_dump(dump, shape, False, 1)[2]
    for name, expected in ref.draw_parameters(1, L, C, T, scaled=False).items():
        assert np.abs(w[name] - expected).max() < 1e-7, name


# Later steps see weights that have grown: attention that is not flat, gelu away from 0.
@pytest.mark.parametrize('optimizer,lr', [('sgd', 0.5), ('momentum', 0.1), ('adamw', 0.003)])
@pytest.mark.parametrize('untied,alloc', [(False, 'class'), (True, 'tensor')])
def test_updates(tmp_path, optimizer, lr, untied, alloc):
    shape, steps, dump = (2, 64, 4, 16, 4), 8, tmp_path / 'dump'
    L, C, H, T, B = shape
    out = train(*shape_options(*shape), *(['--untied'] if untied else []), '--alloc', alloc, '--steps', steps, '--seed', 11,
                '--optimizer', optimizer, '--lr', lr, '--dump-gradients', dump, '--dump-step', steps)
    _, _, w, dw = read_dump(dump, shape, untied, steps)
    first = ref.draw_parameters(11, L, C, T, untied)
    batches = [ref.draw_batch(11, step, B, T, TEXT) for step in range(1, steps + 1)]
    expected = list(ref.train(first, batches, H, optimizer, lr))
    assert [float(a) for a in losses_of(out)] == pytest.approx([e[0] for e in expected], rel=1e-4)
    for name in first:
        if optimizer == 'adamw' and 'qkvb' in name:
            continue        # the gradient of k's bias is 0: AdamW scales its rounding errors up to whole steps
        assert distance(w[name] - first[name], expected[-1][1][name] - first[name]) < 1e-3, f'the updates of {name}'
        assert distance(dw[name], expected[-1][2][name]) < 2e-3, name


def test_weight_decay_shrinks_matrices_alone(tmp_path):
    shape, dumps = (1, 32, 2, 8, 2), {}
    for decay in (0, 0.5):
        dump = tmp_path / f'dump{decay}'
        train(*shape_options(*shape), '--steps', 2, '--lr', 0.01, '--weight-decay', decay, '--dump-gradients', dump, '--dump-step', 2)
        dumps[decay] = read_dump(dump, shape, False, 2)[2]
    first = ref.draw_parameters(1, 1, 32, 8)
    for name in first:
        expected = 0.01 * 0.5 * first[name] if first[name].ndim == 2 else 0 * first[name]
        assert np.abs(dumps[0][name] - dumps[0.5][name] - expected).max() < 1e-7, name


def test_k_bias_has_no_gradient(tmp_path):
    """softmax(q·(k + b)) does not depend on b: known without any reference."""
    shape, dump = (2, 64, 4, 16, 2), tmp_path / 'dump'
    train(*shape_options(*shape), '--steps', 1, '--dump-gradients', dump)
    dw = read_dump(dump, shape, False, 1)[3]
    for l in (1, 2):
        q, k, v = np.split(dw[f'qkvb{l}'], 3)
        assert np.linalg.norm(k) < 1e-5 * np.linalg.norm(v)


def test_seed_decides_all():
    options = ['--steps', 12, '--layers', 2, '--dim', 64]
    a, b, c, other = (losses_of(train(*options, *more)) for more in (['--seed', 5], ['--seed', 5], ['--seed', 5, '--alloc', 'class'], ['--seed', 6]))
    assert len(a) == 12 and a == b == c
    assert a[0] != other[0]


def test_demo_learns():
    losses = [float(a) for a in losses_of(train())]
    assert len(losses) == 200
    assert losses[0] == pytest.approx(np.log(256), abs=0.1)
    assert np.mean(losses[-10:]) < 3.0 and losses[-1] < 3.0


# ---- the account ----------------------------------------------------------------------------------------------------

def expected_bytes(shape, untied, optimizer):
    """By ACCOUNTING's formulas: 4 bytes a number."""
    L, C, H, T, B = shape
    layer = 12 * C * C + 13 * C                  # 3CC + CC + 4CC + 4CC; 3C + C + 4C + C of biases, 4C of layernorms
    parameters = V * C + T * C + L * layer + 2 * C + (V * C if untied else 0)
    N, scores = B * T, B * H * T * T
    kept = L * (N * (7 * C + 8 * C + 4) + scores)     # ln1, q, k, v, joined, middle, ln2 and residual are 8; fc, gelu 8C; 4 statistics
    kept += L * N * C
    kept += N * C + N * 3 * C + 2 * N * C + N * C + 2 * N + N * V + N + 1  # encoded; qkv; y, branch; lnf, its statistics; logits, losses, mean
    passing = N * V + 6 * N * C + N * 4 * C + scores + N * 3 * C           # dlogits; dresidual, dbranch, dy, dq, dk, dv; dfc; datt; dqkv
    sizes = {'param': 4 * parameters, 'grad': 4 * parameters, 'input': 2 * 8 * N, 'activation': 4 * kept, 'activation_grad': 4 * passing,
             'workspace': 4 << 20}
    states = {'sgd': 0, 'momentum': 1, 'adamw': 2}[optimizer]
    return {**sizes, 'optimizer': 4 * states * parameters} if states else sizes


def expected_flops(shape):
    """Forward and backward: 2·N·T and 4·N·T for the matrices, 2·B·H·T·T·(Q + Q) and twice that for attention."""
    L, C, H, T, B = shape
    Q = C // H
    forward = 2 * (L * 12 * C * C + V * C) * B * T + L * 2 * B * H * T * T * (Q + Q)
    return forward, 2 * forward


def check_buffers(truth, shape, untied, optimizer, alloc, calls):
    buffers, sizes = truth['buffers'], {}
    for b in buffers:
        sizes[b['class']] = sizes.get(b['class'], 0) + b['bytes']
        assert 1 <= b['from_call'] < b['to_call'] <= calls
    assert sizes == expected_bytes(shape, untied, optimizer)
    L = shape[0]
    parameters = 12 * L + 4 + (1 if untied else 0)
    tensors = (2 + {'sgd': 0, 'momentum': 1, 'adamw': 2}[optimizer]) * parameters + 2 + (15 * L + 10) + 10 + 1   # 2 slots of input
    assert len(buffers) == (len(sizes) if alloc == 'class' else tensors)
    assert len({b['name'] for b in buffers}) == len(buffers)
    at = sorted((b['address'], b['address'] + b['bytes']) for b in buffers)     # all live to the end
    assert all(end <= start for (_, end), (start, _) in zip(at, at[1:]))


def check_steps(truth, shape, untied, alloc, first):
    """The calls of each phase, counted from the formulas of the model; returns the call after the last step."""
    L, parameters = shape[0], 12 * shape[0] + 4 + (1 if untied else 0)
    forward_flops, backward_flops = expected_flops(shape)
    for s in truth['steps']:
        forward, backward, optimizer = s['phases']
        assert [p['name'] for p in s['phases']] == ['forward', 'backward', 'optimizer']
        assert s['micro_batches'] == 1 and {p['micro_batch'] for p in s['phases']} == {0}
        assert s['from_call'] == first                                          # the copy, then the clearing of the gradients
        assert forward['from_call'] == first + 1 + (1 if alloc == 'class' else parameters)
        # A layer: 2 layernorms, 4 products with their biases, 5 calls of attention, gelu, 2 additions. Around: embedding; layernorm,
        # head, loss, mean, copy.
        assert forward['to_call'] - forward['from_call'] + 1 == L * (2 + 8 + 5 + 1 + 2) + 1 + 5
        assert backward['from_call'] == forward['to_call'] + 1
        # A layer: 2 layernorms of 2, 4 products of 3, 7 calls of attention, gelu. Around: head 2, clearing, layernorm 2; embedding 2.
        assert backward['to_call'] - backward['from_call'] + 1 == L * (4 + 12 + 7 + 1) + 5 + 2
        assert optimizer['from_call'] == backward['to_call'] + 1
        assert optimizer['to_call'] - optimizer['from_call'] + 1 == parameters
        assert optimizer['to_call'] == s['to_call']
        assert s['flops'] == {'forward': forward_flops, 'backward': backward_flops, 'optimizer': 0, 'recompute': 0}
        first = s['to_call'] + 1
    return first


@pytest.mark.parametrize('optimizer', ['sgd', 'momentum', 'adamw'])
@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('shape,untied', [((1, 16, 1, 8, 2), False), ((2, 64, 4, 16, 2), True), ((3, 42, 3, 33, 3), False)])
def test_truth(tmp_path, shape, untied, alloc, optimizer):
    file, steps = tmp_path / 'truth.json', 2
    out = train(*shape_options(*shape), *(['--untied'] if untied else []), '--alloc', alloc, '--optimizer', optimizer,
                '--steps', steps, '--truth', file)
    truth = json.load(open(file))
    sizes = expected_bytes(shape, untied, optimizer)
    assert truth['parameters'] == sizes['param'] // 4
    assert truth['flops_per_step'] == sum(expected_flops(shape))
    assert [np.float32(a) for a in truth['losses']] == [np.float32(a) for a in losses_of(out)]
    assert len(truth['steps']) == steps
    allocations, parameters = len(truth['buffers']), 12 * shape[0] + 4 + (1 if untied else 0)
    clears = {'sgd': 0, 'momentum': 1, 'adamw': 2}[optimizer] * parameters
    if alloc == 'class':
        clears = min(clears, 1)
    # Allocations, the page-locked loss, the weights, clearing of the state, the page-locked batches; then the steps.
    first = allocations + 1 + parameters + clears + 1 + 1
    last = check_steps(truth, shape, untied, alloc, first) - 1
    check_buffers(truth, shape, untied, optimizer, alloc, calls=last + 2 + allocations)


def test_truth_of_the_demo(tmp_path):
    """The default model by hand: L = 4, C = 128, H = 4, T = 64, B = 8, AdamW."""
    file = tmp_path / 'truth.json'
    train('--steps', 1, '--truth', file)
    truth, sizes = json.load(open(file)), {}
    for b in truth['buffers']:
        sizes[b['class']] = sizes.get(b['class'], 0) + b['bytes']
    # 256·128 + 64·128 + 4·(12·128² + 13·128) + 2·128 = 834304 parameters.
    assert truth['parameters'] == 834304
    assert (sizes['param'], sizes['grad'], sizes['optimizer'], sizes['input']) == (3337216, 3337216, 6674432, 8192)
    # 2·512·(4·12·128² + 256·128) + 4·4·8·64²·128 = 905969664 forward.
    assert truth['steps'][0]['flops'] == {'forward': 905969664, 'backward': 1811939328, 'optimizer': 0, 'recompute': 0}
    assert truth['flops_per_step'] == 2717908992


# ---- the command line -----------------------------------------------------------------------------------------------

FOREVER = ('--steps', '1000000000')  # an error must come before the work


@pytest.mark.parametrize('options,code,says', [
    (['--dtype', 'fp8', '--dim', '40'], 2, '--dtype fp8 needs a --dim that 16 divides, not 40'),
    (['--dtype', 'fp8', '--seq', '3', '--batch', '5'], 2, '--dtype fp8 needs --batch times --seq to be a multiple of 16, not 5 times 3'),
    (['--dtype', 'fp8', '--seq', '8', '--batch', '2', '--sample'], 2, '--sample with --dtype fp8 needs a --seq that 16 divides, not 8'),
    (['--loss-scale', '1024'], 2, '--loss-scale is for --dtype fp16 alone'),
    (['--vocab', '1'], 2, "--vocab: '1'"),
    (['--vocab', '65537'], 2, "--vocab: '65537'"),
    (['--vocab', '65536', '--dim', '32768'], 2, 'take a smaller one'),
    (['--save-every', '2'], 2, '--save-every needs --save'),
    (['--recompute', 'some'], 2, "'some' is none of none|full"),
    (['--dtype', 'int4'], 2, "'int4' is none of fp32|tf32|bf16|fp16|fp8"),
    (['--optimizer', 'lion'], 2, "'lion' is none of sgd|momentum|rmsprop|adagrad|adam|adamw"),
    (['--alloc', 'heap'], 2, "'heap' is none of tensor|class|step|pool"),
    (['--heads', '3'], 2, '--heads 3 does not divide --dim 128'),
    (['--heads', '0'], 2, "--heads: '0' is not a whole number"),
    (['--seq', '0'], 2, "--seq: '0' is not a whole number"),
    (['--untied=1'], 2, '--untied takes no value'),
    (['--show-activations'], 2, '--show-activations has no meaning with --model gpt'),
    (['--dim', '32768'], 2, 'take a smaller one'),
    (['--batch', '65536', '--seq', '65536'], 2, 'take smaller ones'),
    (['--batch', '64', '--seq', '4096'], 2, 'take smaller ones'),
    (['--weight-decay', '-1'], 2, '--weight-decay'),
    (['--steps', '3', '--dump-gradients', '/dev/null', '--dump-step', '4'], 2, '--dump-step 4'),
    (['--data', '/dev/null'], 1, '/dev/null is not a regular file'),
])
def test_refuses(options, code, says):
    steps = [] if '--steps' in options else FOREVER
    r = run(TRAIN, *steps, *options, env=DEVICE, timeout=20)
    assert (r.returncode, r.stdout) == (code, '')
    assert re.fullmatch(r'train: .+\n', r.stderr) and says in r.stderr, r.stderr


def test_refuses_a_text_that_is_too_short(tmp_path):
    text = tmp_path / 'short'
    text.write_bytes(b'a' * 64)
    r = run(TRAIN, *FOREVER, '--data', text, env=DEVICE, timeout=20)
    assert (r.returncode, r.stdout) == (1, '')
    assert re.fullmatch(rf'train: the text {text} has 64 bytes, a window needs 65; .+ --seq\n', r.stderr)


def test_the_page_lists_every_kernel():
    folder = os.path.join(os.path.dirname(__file__), '..', 'sample_app')
    sources = [open(os.path.join(folder, f)).read() for f in os.listdir(folder) if f.endswith('.cu')]
    kernels = [k for s in sources for k in re.findall(r'\b__global__ void (\w+)\(', s)]
    listed = re.findall(r'`(\w+_kernel)`', open(os.path.join(folder, 'README.md')).read())
    assert sorted(set(listed)) == sorted(kernels) and len(kernels) > 30


def test_out_of_device_memory_says_what_to_do():
    r = run(TRAIN, env={**DEVICE, 'ACCT_VGPU_MEMORY': str(16 << 20)}, timeout=20)
    assert (r.returncode, r.stdout) == (1, '')
    assert re.fullmatch(r'train: out of device memory: no \d+ bytes for [\w. ]+; take a smaller .*\n', r.stderr), r


def test_the_model_may_come_last():
    out = train('--layers', 1, '--steps', 1, '--model', 'linear')
    assert out.startswith('linear: layers 1, dim 256')


def test_help_names_every_option_with_its_default():
    out = run(TRAIN, '--help', env=DEVICE).stdout
    readme = open(os.path.join(os.path.dirname(__file__), '..', 'sample_app', 'README.md')).read()
    options = re.findall(r'^  (--\S+)', out, re.M)
    assert len(options) > 15 and len(set(options)) == len(options)
    assert [o for o in options if f'`{o}' not in readme] == []
    for default in ('[gpt]', '[4]', '[128]', '[64]', '[8]', '[200]', '[fp32]', '[adamw]', '[tensor]', '[scaled]'):
        assert default in out


def fat_binary(path):
    """(PTX or ELF, architecture) of each entry of the program's fat binaries."""
    raw, entries = open(path, 'rb').read(), []
    for m in re.finditer(struct.pack('<IHH', 0xBA55ED50, 1, 16), raw):
        size, = struct.unpack_from('<Q', raw, m.start() + 8)
        at = m.start() + 16
        while at < m.start() + 16 + size:
            kind, _, header, payload = struct.unpack_from('<HHIQ', raw, at)
            arch, = struct.unpack_from('<I', raw, at + 0x1c)
            entries.append(({1: 'PTX', 2: 'ELF'}[kind], arch))
            at += header + payload
    return entries


def test_kernels_have_ptx_and_machine_code():
    sources = [f for f in os.listdir(os.path.join(os.path.dirname(__file__), '..', 'sample_app')) if f.endswith('.cu')]
    usual, fp8 = [('ELF', 80), ('ELF', 90), ('PTX', 80)], [('ELF', 89), ('ELF', 90), ('PTX', 89)]  # fp8 casts are instructions from 8.9 on
    assert sorted(fat_binary(TRAIN)) == sorted(usual * (len(sources) - 1) + fp8)
