"""The sample program `train --model linear`: numerics against a double-precision reference, its account (--truth)
against formulas, and its behaviour on bad input. Runs on the virtual GPU."""
import json, os, re, subprocess
import numpy as np
import pytest
import reference_linear as ref
from conftest import BUILD, DEVICE, run

TRAIN = os.path.join(BUILD, 'train')
TEXT_FILE = '/usr/share/common-licenses/GPL-3'
TEXT = open(TEXT_FILE, 'rb').read()


def train(*options, **kw):
    r = run(TRAIN, '--model', 'linear', *options, env=DEVICE, **kw)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def losses_of(output):
    return re.findall(r'^step \d+ loss (\S+) ms [\d.]+ samples/s [\d.]+$', output, re.M)


def strict_json(path):
    def refuse(constant):
        raise ValueError(f'{constant} is not JSON')
    return json.load(open(path), parse_constant=refuse)


def read_dump(path, layers, dim, batch, step):
    head, raw = open(path, 'rb').read().split(b'\n', 1)
    assert head.decode() == f'linear fp32 layers {layers} dim {dim} batch {batch} step {step}'
    numbers = np.frombuffer(raw, '<f4').astype(float)
    assert len(numbers) == batch * dim + 2 * layers * dim * dim
    x = numbers[:batch * dim].reshape(batch, dim)
    W, dW = numbers[batch * dim:].reshape(2, layers, dim, dim)
    return x, list(W), list(dW)


def distance(a, b):
    """Norm-wise relative difference of one tensor."""
    return np.linalg.norm(a - b) / np.linalg.norm(b)


# ---- numerics -------------------------------------------------------------------------------------------------------

def test_reference_gradient_is_the_slope_of_the_loss():
    rng = np.random.default_rng(3)
    x, W = rng.standard_normal((4, 5)), list(rng.standard_normal((3, 5, 5)) / 5 ** 0.5)
    g = ref.gradients(x, W)
    for l, i, j in np.ndindex(3, 5, 5):
        up, down = [w.copy() for w in W], [w.copy() for w in W]
        up[l][i, j] += 1e-5
        down[l][i, j] -= 1e-5
        assert (ref.loss(x, up) - ref.loss(x, down)) / 2e-5 == pytest.approx(g[l][i, j], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize('layers,dim,batch,alloc', [(1, 64, 8, 'tensor'), (2, 64, 1, 'class'), (3, 17, 5, 'class'),
                                                    (3, 96, 40, 'tensor'), (6, 256, 32, 'tensor'), (6, 256, 32, 'class')])
def test_first_gradients(tmp_path, layers, dim, batch, alloc):
    dump = tmp_path / 'dump'
    out = train('--layers', layers, '--dim', dim, '--batch', batch, '--alloc', alloc, '--steps', 1, '--seed', 7,
                '--dump-gradients', dump)
    x, W, dW = read_dump(dump, layers, dim, batch, 1)
    assert np.abs(x - ref.draw_batch(7, 1, batch, dim, TEXT)).max() < 1e-7
    for w, expected in zip(W, ref.draw_weights(7, layers, dim, dim ** -0.5)):
        assert np.abs(w - expected).max() < 1e-7
    assert float(losses_of(out)[0]) == pytest.approx(ref.loss(x, W), rel=1e-5)
    for l, expected in enumerate(ref.gradients(x, W)):
        assert distance(dW[l], expected) < 1e-5, f'dW{l + 1}'


@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('momentum', [None, 0.9, 0.5])
def test_twenty_steps(tmp_path, momentum, alloc):
    layers, dim, batch, steps, lr, dump = 3, 64, 16, 20, 0.25, tmp_path / 'dump'
    optimizer = ['--optimizer', 'sgd'] if momentum is None else ['--optimizer', 'momentum', '--momentum', momentum]
    out = train('--layers', layers, '--dim', dim, '--batch', batch, '--steps', steps, '--lr', lr, '--seed', 11,
                '--alloc', alloc, '--dump-gradients', dump, '--dump-step', steps, *optimizer)
    losses, x, W, g = ref.train(11, layers, dim, batch, steps, TEXT, lr, momentum)
    assert [float(a) for a in losses_of(out)] == pytest.approx(losses, rel=1e-4)
    got_x, got_W, got_g = read_dump(dump, layers, dim, batch, steps)
    assert np.abs(got_x - x).max() < 1e-7
    W0 = ref.draw_weights(11, layers, dim, dim ** -0.5)
    for l in range(layers):
        assert distance(got_W[l] - W0[l], W[l] - W0[l]) < 1e-4, f'the updates of W{l + 1}'
        assert distance(got_g[l], g[l]) < 1e-4, f'dW{l + 1}'


# ---- number formats, accumulation -----------------------------------------------------------------------------------

HALF = {'bf16': (2.0 ** -8, 'bf16'), 'fp16': (2.0 ** -11, 'fp16')}  # half a unit in the last place, relative


def halves(raw, dtype):
    bits = np.frombuffer(raw, '<u2')
    return (bits.astype('<u4') << 16).view('<f4').astype(float) if dtype == 'bf16' else bits.view('<f2').astype(float)


def rounded(x, dtype):
    """x (double) to the nearest number of the format; normal numbers and multiples of fp16's smallest."""
    digits = {'bf16': 8, 'fp16': 11}[dtype]
    m, e = np.frexp(np.asarray(x, np.float32).astype(float))
    y = np.ldexp(np.rint(np.ldexp(m, digits)), e - digits)
    return np.where(np.abs(x) < 2.0 ** -14, np.rint(x * 2.0 ** 24) / 2.0 ** 24, y) if dtype == 'fp16' else y


@pytest.mark.parametrize('dtype', ['bf16', 'fp16'])
@pytest.mark.parametrize('layers,dim,batch,alloc', [(1, 64, 8, 'pool'), (3, 96, 40, 'tensor'), (2, 17, 5, 'class'), (4, 128, 16, 'step')])
def test_first_gradients_in_half(tmp_path, dtype, layers, dim, batch, alloc):
    """x and W are the numbers drawn, rounded; gradients are off by a few roundings of activations and their gradients."""
    dump, scale = tmp_path / 'dump', 1 if dtype == 'bf16' else 1024
    out = train('--layers', layers, '--dim', dim, '--batch', batch, '--alloc', alloc, '--steps', 1, '--seed', 7, '--dtype', dtype,
                '--loss-scale', scale, '--dump-gradients', dump)
    head, raw = open(dump, 'rb').read().split(b'\n', 1)
    assert head.decode() == f'linear {dtype} layers {layers} dim {dim} batch {batch} step 1' + (' scale 1024' if scale > 1 else '')
    n, w = batch * dim, layers * dim * dim
    assert len(raw) == 2 * n + 2 * w + 4 * w
    x, W = halves(raw[:2 * n], dtype).reshape(batch, dim), list(halves(raw[2 * n:2 * n + 2 * w], dtype).reshape(layers, dim, dim))
    dW = np.frombuffer(raw[2 * n + 2 * w:], '<f4').astype(float).reshape(layers, dim, dim) / scale
    assert np.array_equal(x, rounded(ref.draw_batch(7, 1, batch, dim, TEXT), dtype))
    for got, drawn in zip(W, ref.draw_weights(7, layers, dim, dim ** -0.5)):
        assert np.array_equal(got, rounded(drawn, dtype))
    unit = HALF[dtype][0]
    assert float(losses_of(out)[0]) == pytest.approx(ref.loss(x, W), rel=8 * unit)
    for l, expected in enumerate(ref.gradients(x, W)):
        assert distance(dW[l], expected) < (layers + 2) * unit, f'dW{l + 1}'


def test_tf32_rounds_what_is_multiplied(tmp_path):
    """Ten bits of mantissa: further from the exact gradient than fp32, and no further than 2^-11 a factor."""
    far = {}
    for dtype in ('fp32', 'tf32'):
        dump = tmp_path / dtype
        train('--layers', 3, '--dim', 96, '--batch', 40, '--steps', 1, '--dtype', dtype, '--dump-gradients', dump)
        raw = open(dump, 'rb').read().split(b'\n', 1)[1]
        numbers = np.frombuffer(raw, '<f4').astype(float)
        x, (W, dW) = numbers[:40 * 96].reshape(40, 96), numbers[40 * 96:].reshape(2, 3, 96, 96)
        far[dtype] = max(distance(a, b) for a, b in zip(dW, ref.gradients(x, list(W))))
    assert far['fp32'] < 1e-6 and 1e-5 < far['tf32'] < 8 * 2.0 ** -11


@pytest.mark.parametrize('alloc,zero_grad', [('tensor', 'zero'), ('class', 'none'), ('step', 'none'), ('pool', 'none'), ('pool', 'zero')])
def test_accumulation_is_one_large_batch(tmp_path, alloc, zero_grad):
    """K micro-batches of B have the windows, the loss and the gradient of one batch of K·B; twice, so that the second step counts from zero."""
    grads, losses = [], []
    for batch, accum in ((24, 1), (6, 4)):
        dump = tmp_path / f'dump{accum}'
        out = train('--layers', 3, '--dim', 64, '--batch', batch, '--accum', accum, '--steps', 2, '--alloc', alloc, '--zero-grad', zero_grad,
                    '--dump-gradients', dump, '--dump-step', 2)
        grads.append(np.frombuffer(open(dump, 'rb').read()[-4 * 3 * 64 * 64:], '<f4').astype(float).reshape(3, 64, 64))
        losses.append([float(a) for a in losses_of(out)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert all(distance(a, b) < 1e-5 for a, b in zip(*grads))


def test_demo_loss_halves():
    losses = [float(a) for a in losses_of(train())]
    assert len(losses) == 100 and losses[-1] <= losses[0] / 2


def test_seed_decides_all():
    a, b, c = (losses_of(train('--steps', 30, '--seed', s)) for s in (5, 5, 6))
    assert len(a) == 30 and a == b
    assert a[0] != c[0]


# Each unscaled layer multiplies the rms by the weights' standard deviation times sqrt(D); the cut at 3 leaves 0.98658 of
# the deviation. The geometric mean of 18 layers scatters by about 2 %.
def test_unscaled_init_explodes_with_depth():
    growth = []
    for seed in (1, 2, 3):
        out = train('--dim', 64, '--layers', 6, '--batch', 64, '--steps', 1, '--init', 'unscaled', '--show-activations',
                    '--seed', seed)
        rms = [float(a) for a in re.findall(r'^activation h\d rms (\S+)$', out, re.M)]
        assert len(rms) == 7
        growth += [b / a for a, b in zip(rms, rms[1:])]
    assert np.exp(np.mean(np.log(growth))) == pytest.approx(0.98658 * 64 ** 0.5, rel=0.08)
    assert min(growth) > 4


def test_scaled_init_stays_of_order_one():
    out = train('--dim', 64, '--layers', 12, '--batch', 64, '--steps', 1, '--show-activations')
    rms = [float(a) for a in re.findall(r'^activation h\d+ rms (\S+)$', out, re.M)]
    assert len(rms) == 13 and all(0.1 < a < 1.5 for a in rms)


def test_activations_are_shown_once_and_right(tmp_path):
    dump = tmp_path / 'dump'
    out = train('--dim', 64, '--layers', 2, '--steps', 2, '--show-activations', '--dump-gradients', dump)
    x, W, _ = read_dump(dump, 2, 64, 32, 1)
    rms = [float(a) for a in re.findall(r'^activation h\d rms (\S+)$', out, re.M)]
    assert rms == pytest.approx([np.sqrt(np.mean(ref.product(W[:l], x) ** 2)) for l in range(3)], rel=1e-5)


# ---- the account ----------------------------------------------------------------------------------------------------

def expected_bytes(layers, dim, batch, optimizer):
    weights, rows = 4 * layers * dim * dim, 4 * batch * dim
    sizes = {'param': weights, 'grad': weights, 'input': 2 * rows,     # two slots
             'activation': layers * rows,
             'activation_grad': min(layers, 2) * rows}
    return {**sizes, 'optimizer': weights} if optimizer == 'momentum' else sizes


def check_buffers(truth, layers, dim, batch, optimizer, alloc, calls):
    buffers, sizes = truth['buffers'], {}
    for b in buffers:
        sizes[b['class']] = sizes.get(b['class'], 0) + b['bytes']
        assert 1 <= b['from_call'] < b['to_call'] <= calls
    assert sizes == expected_bytes(layers, dim, batch, optimizer)
    tensors = (3 if optimizer == 'momentum' else 2) * layers + layers + min(layers, 2) + 2
    assert len(buffers) == (len(sizes) if alloc == 'class' else tensors)
    assert len({b['name'] for b in buffers}) == len(buffers)
    events = [b[k] for b in buffers for k in ('from_call', 'to_call')]
    assert len(set(events)) == len(events)
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            apart = a['address'] + a['bytes'] <= b['address'] or b['address'] + b['bytes'] <= a['address']
            assert apart or a['to_call'] < b['from_call'] or b['to_call'] < a['from_call'], (a, b)


def check_steps(truth, layers, dim, batch, update_calls, first):
    product = 2 * batch * dim * dim
    for s in truth['steps']:
        forward, backward, optimizer = s['phases']
        assert [p['name'] for p in s['phases']] == ['forward', 'backward', 'optimizer']
        assert s['micro_batches'] == 1 and {p['micro_batch'] for p in s['phases']} == {0}
        assert s['from_call'] == first                              # the copy of x
        assert forward['from_call'] == first + 1                    # L products, geam, dot
        assert forward['to_call'] == forward['from_call'] + layers + 2 - 1
        assert backward['from_call'] == forward['to_call'] + 1      # L products for W, L - 1 for h
        assert backward['to_call'] == backward['from_call'] + 2 * layers - 1 - 1
        assert optimizer['from_call'] == backward['to_call'] + 1
        assert optimizer['to_call'] == optimizer['from_call'] + update_calls - 1 == s['to_call']
        assert s['flops'] == {'forward': layers * product, 'backward': (2 * layers - 1) * product, 'optimizer': 0,
                              'recompute': 0}
        first = s['to_call'] + 1
    return first


@pytest.mark.parametrize('optimizer', ['sgd', 'momentum'])
@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('layers,dim,batch', [(6, 256, 32), (1, 64, 32), (2, 64, 3), (12, 128, 16), (4, 333, 7), (3, 512, 64),
                                              (2, 1024, 8), (1, 2048, 8)])
def test_truth(tmp_path, layers, dim, batch, alloc, optimizer):
    file, steps = tmp_path / 'truth.json', 3
    out = train('--layers', layers, '--dim', dim, '--batch', batch, '--alloc', alloc, '--optimizer', optimizer,
                '--steps', steps, '--truth', file)
    truth = strict_json(file)
    assert truth['parameters'] == layers * dim * dim
    assert truth['flops_per_step'] == (3 * layers - 1) * 2 * batch * dim * dim
    assert [np.float32(a) for a in truth['losses']] == [np.float32(a) for a in losses_of(out)]
    assert len(truth['steps']) == steps
    momentum, together = optimizer == 'momentum', alloc == 'class'
    allocations = len(truth['buffers'])
    pieces = 1 if together else layers
    # Allocations, uploads of the weights, clearing of the velocity, the page-locked staging memory; then the steps.
    first = allocations + layers + (pieces if momentum else 0) + 1 + 1
    last = check_steps(truth, layers, dim, batch, (3 if momentum else 1) * pieces, first) - 1
    check_buffers(truth, layers, dim, batch, optimizer, alloc, calls=last + 1 + allocations)


def test_truth_of_the_demo(tmp_path):
    file = tmp_path / 'truth.json'
    train('--steps', 2, '--truth', file)
    truth = strict_json(file)
    sizes = {}
    for b in truth['buffers']:
        sizes[b['class']] = sizes.get(b['class'], 0) + b['bytes']
    assert sizes == {'param': 1572864, 'grad': 1572864, 'optimizer': 1572864, 'activation': 196608,
                     'activation_grad': 65536, 'input': 65536}
    assert truth['flops_per_step'] == 71303168
    assert truth['steps'][0]['flops'] == {'forward': 25165824, 'backward': 71303168 - 25165824, 'optimizer': 0, 'recompute': 0}


def test_truth_has_null_for_a_loss_that_is_no_number(tmp_path):
    file = tmp_path / 'truth.json'
    train('--steps', 4, '--init', 'unscaled', '--truth', file)
    losses = strict_json(file)['losses']
    assert losses[0] > 1e12 and losses[-1] is None


# ---- the command line -----------------------------------------------------------------------------------------------

FOREVER = ('--steps', '1000000000')  # an error must come before the work


@pytest.mark.parametrize('options,code,says', [
    (['--no-such'], 2, 'unknown option --no-such'),
    (['--heads', '4'], 2, '--heads has no meaning with --model linear'),
    (['--untied'], 2, '--untied has no meaning with --model linear'),
    (['--dtype=fp8'], 2, '--dtype fp8 is for --model gpt alone'),
    (['--recompute', 'full'], 2, '--recompute has no meaning with --model linear'),
    (['--sample'], 2, '--sample has no meaning with --model linear'),
    (['--loss-scale', '8'], 2, '--loss-scale is for --dtype fp16 alone'),
    (['--loss-scale', '0', '--dtype', 'bf16'], 2, '--loss-scale is for --dtype fp16 alone'),
    (['--loss-scale', '-1', '--dtype', 'fp16'], 2, "--loss-scale: '-1'"),
    (['--accum', '0'], 2, "--accum: '0'"),
    (['--clip', '-1'], 2, "--clip: '-1'"),
    (['--save-every', '5'], 2, '--save-every needs --save'),
    (['--zero-grad', 'yes'], 2, "'yes' is none of zero|none"),
    (['--dtype=int8'], 2, "--dtype: 'int8' is none of fp32|"),
    (['-h'], 2, "unexpected argument '-h'"),
    (['text'], 2, "unexpected argument 'text'"),
    ([''], 2, "unexpected argument ''"),
    (['--dim'], 2, '--dim needs a value'),
    (['--dim', '0'], 2, "--dim: '0' is not a whole number from 1"),
    (['--dim', '-4'], 2, "--dim: '-4'"),
    (['--dim', '12x'], 2, "--dim: '12x'"),
    (['--dim='], 2, "--dim: ''"),
    (['--steps', '99999999999999999999999'], 2, '--steps'),
    (['--steps', '1.5'], 2, '--steps'),
    (['--lr', 'fast'], 2, "--lr: 'fast' is not a number"),
    (['--lr', 'nan'], 2, '--lr'),
    (['--lr', 'inf'], 2, '--lr'),
    (['--lr', '-1'], 2, '--lr'),
    (['--momentum', '2'], 2, '--momentum'),
    (['--seed', '-1'], 2, '--seed'),
    (['--alloc', 'heap'], 2, "'heap' is none of tensor|class|step|pool"),
    (['--alloc', ''], 2, "'' is none of"),
    (['--init', 'scale'], 2, "'scale' is none of"),
    (['--model', 'gtp'], 2, "'gtp' is none of gpt|linear"),
    (['--optimizer', 'lion'], 2, "'lion' is none of sgd|momentum|rmsprop|adagrad|adam|adamw"),
    (['--show-activations=1'], 2, 'takes no value'),
    (['--data', ''], 2, '--data: the file name is empty'),
    (['--layers', '1000', '--dim', '32768'], 2, 'take smaller ones'),
    (['--batch', '65536', '--dim', '32768'], 2, 'take smaller ones'),
    (['--steps', '3', '--dump-gradients', '/dev/null', '--dump-step', '4'], 2, '--dump-step 4'),
    (['--data', '/no/such/text'], 1, 'cannot read the text /no/such/text: No such file or directory'),
    (['--data', '/dev/null'], 1, '/dev/null is not a regular file'),
    (['--data', '/'], 1, '/ is not a regular file'),
    (['--truth', '/no/such/folder/t.json'], 1, 'cannot write /no/such/folder/t.json: No such file or directory'),
    (['--truth', '/'], 1, 'cannot write /: Is a directory'),
    (['--dump-gradients', '/no/such/folder/d'], 1, 'cannot write /no/such/folder/d'),
])
def test_refuses(options, code, says):
    steps = [] if '--steps' in options else FOREVER
    r = run(TRAIN, '--model', 'linear', *steps, *options, env=DEVICE, timeout=20)
    assert (r.returncode, r.stdout) == (code, '')
    assert re.fullmatch(r'train: .+\n', r.stderr) and says in r.stderr, r.stderr


@pytest.mark.parametrize('size', [0, 255])
def test_refuses_a_text_that_is_too_short(tmp_path, size):
    text = tmp_path / 'short'
    text.write_bytes(b'a' * size)
    r = run(TRAIN, '--model', 'linear', *FOREVER, '--data', text, env=DEVICE, timeout=20)
    assert (r.returncode, r.stdout) == (1, '')
    assert re.fullmatch(rf'train: the text {text} has {size} bytes, a window needs 256; .+\n', r.stderr)


def test_a_text_of_one_window_is_enough(tmp_path):
    text, dump = tmp_path / 'text', tmp_path / 'dump'
    text.write_bytes(bytes(range(256)))
    train('--data', text, '--steps', 1, '--layers', 1, '--batch', 3, '--dump-gradients', dump)
    x, _, _ = read_dump(dump, 1, 256, 3, 1)
    assert np.abs(x - (np.arange(256) / 127.5 - 1)).max() < 1e-7
    assert x.min() == -1 and x.max() == 1


@pytest.mark.parametrize('option', ['--truth', '--dump-gradients'])
def test_full_disk_is_an_error(option):
    r = run(TRAIN, '--model', 'linear', '--steps', 1, option, '/dev/full', env=DEVICE)
    assert r.returncode == 1 and r.stderr == 'train: cannot write /dev/full: No space left on device\n'


def test_full_disk_on_standard_output_is_an_error():
    with open('/dev/full', 'w') as full:
        r = run(TRAIN, '--model', 'linear', '--steps', 1, env=DEVICE, stdout=full)
    assert r.returncode == 1 and r.stderr == 'train: cannot write to standard output: No space left on device\n'


def test_out_of_device_memory_says_what_to_do():
    r = run(TRAIN, '--model', 'linear', '--dim', 1024, env={**DEVICE, 'ACCT_VGPU_MEMORY': str(32 << 20)}, timeout=20)
    assert (r.returncode, r.stdout) == (1, '')
    assert re.fullmatch(r'train: out of device memory: no \d+ bytes for [\w. ]+; take a smaller .*\n', r.stderr), r


@pytest.mark.skipif(os.path.exists('/dev/nvidiactl'), reason='this machine has a GPU')
def test_no_device_says_what_to_do():
    cuda = re.search(r'^CUDA_LIB := (.*)$', open(os.path.join(BUILD, 'deps.mk')).read(), re.M).group(1)
    r = run(TRAIN, env={'LD_LIBRARY_PATH': cuda}, timeout=60)
    assert (r.returncode, r.stdout) == (1, '')
    assert re.fullmatch(r'train: .*LD_LIBRARY_PATH.*\n', r.stderr), r


def test_help_names_every_option_with_its_default():
    out = train('--help')
    readme = open(os.path.join(os.path.dirname(__file__), '..', 'sample_app', 'README.md')).read()
    options = re.findall(r'^  (--\S+)', out, re.M)
    assert len(options) > 10 and len(set(options)) == len(options)
    assert [o for o in options if f'`{o}' not in readme] == []
    for default in ('[linear]', '[256]', '[32]', '[momentum]', '[0.9]', '[tensor]', '[scaled]', f'[{TEXT_FILE}]'):
        assert default in out


def test_print_every_leaves_steps_out():
    out = train('--steps', 25, '--print-every', 10)
    assert re.findall(r'^step (\d+) ', out, re.M) == ['1', '10', '20', '25']


def test_has_no_run_path_and_needs_the_shared_libraries():
    dynamic = subprocess.run(['readelf', '-d', TRAIN], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert 'RPATH' not in dynamic and 'RUNPATH' not in dynamic
    needed = set(re.findall(r'NEEDED.*\[(.*?)\]', dynamic))
    cuda = {'libcudart.so.13', 'libcublas.so.13', 'libcublasLt.so.13'}
    assert cuda <= needed <= cuda | {'libm.so.6', 'libc.so.6'}
