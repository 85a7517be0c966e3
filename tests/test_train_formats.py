"""`train` in every number format: gradients against double precision, the losses of the demo, and what fp16 loses without loss
scaling.

How far the gradients of a format may be from double precision is computed, not chosen: reference_gpt.ARITHMETIC has the same
formulas in double precision with the format's rounding wherever a tensor is stored (bf16, fp16) or multiplied (tf32, fp8), and
nowhere else. What that does to a tensor's gradient, norm-wise, is the error that the format makes by itself. The program's own
must be as large: not more than twice as much (sums in fp32, with other roundings here and there), and not less than half (or it
would not have computed in the format at all). Gradients are taken at the parameters that the program had, as it dumped them."""
import os, re
import numpy as np
import pytest
import reference_gpt as ref
from conftest import BUILD, DEVICE, run
from number_formats import BF16, BITS, FP16, FP32, decode, encode

TRAIN = os.path.join(BUILD, 'train')
TEXT = open('/usr/share/common-licenses/GPL-3', 'rb').read()
REAL = {'fp32': FP32, 'tf32': FP32, 'bf16': BF16, 'fp16': FP16, 'fp8': BF16}     # format of parameters
FORMATS = ['tf32', 'bf16', 'fp16', 'fp8']
# L, C, H, T, B; fp8 wants multiples of 16
SHAPES = [(2, 64, 4, 16, 4), (1, 96, 3, 48, 2)]


def train(*options):
    r = run(TRAIN, *options, env=DEVICE)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def losses_of(output):
    return [float(a) for a in re.findall(r'^step \d+ loss (\S+) ', output, re.M)]


def gradients_of(folder, dtype, shape, step=1, *options):
    """Loss scale, tokens, targets, parameters, gradients at the end of a step's backward phase."""
    L, C, H, T, B = shape
    dump = folder / 'dump'
    train('--dtype', dtype, '--layers', L, '--dim', C, '--heads', H, '--seq', T, '--batch', B, '--steps', step, '--seed', 7,
          '--dump-gradients', dump, '--dump-step', step, *options)
    head, raw = dump.read_bytes().split(b'\n', 1)
    sizes = f'gpt {dtype} layers {L} dim {C} heads {H} seq {T} batch {B} vocabulary 256 tied step {step}'
    found = re.fullmatch(sizes + r'(?: scale (\S+))?', head.decode())
    assert found, head
    scale = float(found.group(1) or 1)
    tokens, targets = np.frombuffer(raw[:8 * B * T], '<i4').reshape(2, B, T)
    at, sets = 8 * B * T, []
    for fmt in (REAL[dtype], FP32):
        tensors = {}
        for name, size in ref.shapes(L, C, T, False):
            numbers = np.frombuffer(raw, BITS[fmt], int(np.prod(size)), at)
            tensors[name], at = decode(numbers, fmt).reshape(size), at + numbers.nbytes
        sets.append(tensors)
    assert at == len(raw)
    return scale, tokens, targets, *sets


def distance(a, b):
    """Norm-wise relative difference of one tensor."""
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize('dtype', ['bf16', 'fp16', 'fp8'])
def test_parameters_are_rounded_masters(tmp_path, dtype):
    L, C, H, T, B = SHAPES[0]
    w = gradients_of(tmp_path, dtype, SHAPES[0])[3]
    for name, drawn in ref.draw_parameters(7, L, C, T).items():
        expected = decode(encode(drawn.astype(np.float32), REAL[dtype]), REAL[dtype])
        # The master may differ from numpy's in its last bit (the device's cosine, the deviation as a float), and then, rarely, its rounding.
        assert (w[name] != expected).mean() < 1e-3, name
        assert np.abs(w[name] - expected).max() <= 2.0**-7 * np.abs(expected).max(), name


def pieces(name, g):
    """A tensor's gradient, that of queries, keys and values apart: values have much larger ones. The bias of the keys has none."""
    if not name.startswith('qkv'):
        return {name: g}
    q, k, v = np.split(g, 3)
    return {name + ' q': q, name + ' v': v} if name.startswith('qkvb') else {name + ' q': q, name + ' k': k, name + ' v': v}


def errors(got, exact):
    """Norm-wise relative error of each piece of each tensor."""
    return {piece: distance(a, b) for name in exact
            for (piece, a), b in zip(pieces(name, got[name]).items(), pieces(name, exact[name]).values())}


# Step 20 of training: attention that is not flat, gelu away from 0, gradients of all sizes.
@pytest.mark.parametrize('step', [1, 20])
@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('dtype', FORMATS)
def test_gradients(tmp_path, dtype, shape, step):
    scale, tokens, targets, w, g = gradients_of(tmp_path, dtype, shape, step, '--lr', 0.001)
    H = shape[2]
    assert scale == (65536 if dtype == 'fp16' else 1)
    exact = ref.gradients(w, tokens, targets, H)[1]
    inherent = errors(ref.gradients(w, tokens, targets, H, ref.ARITHMETIC[dtype], scale)[1], exact)
    got = errors({n: x / scale for n, x in g.items()}, exact)
    off = {n: (got[n], inherent[n]) for n in got if not 0.5 * inherent[n] < got[n] < 2 * inherent[n]}
    assert not off
    # All tensors as one, against the format alone: twice the rounding of one number (of fp8: E4M3's).
    together = [np.concatenate([x[n].ravel() for n in exact]) for x in (g, exact)]
    assert distance(together[0] / scale, together[1]) < 2 * {'tf32': 2.0**-11, 'bf16': 2.0**-8, 'fp16': 2.0**-11, 'fp8': 2.0**-4}[dtype]


# ---- fp16 without loss scaling --------------------------------------------------------------------------------------

def test_fp16_without_loss_scaling_loses_gradients(tmp_path):
    """The gradient of a score is about 1 / (N · T) times small factors: over 4096 positions and rows of 256 most of them lie below
    fp16's smallest number, 6e-8, and become 0. What is left of the gradients of queries and keys is wrong by more than half.
    Multiplied by 65536 they lie in fp16's range."""
    shape = L, C, H, T, B = 1, 32, 2, 256, 16
    found = {}
    for asked in (1, 65536):
        scale, tokens, targets, w, g = gradients_of(tmp_path, 'fp16', shape, 1, '--loss-scale', asked)
        assert scale == asked
        exact = ref.gradients(w, tokens, targets, H)[1]
        found[asked] = errors({n: x / scale for n, x in g.items()}, exact)
        inherent = errors(ref.gradients(w, tokens, targets, H, ref.ARITHMETIC['fp16'], scale)[1], exact)
        for name in ('qkvw q', 'qkvw k'):
            assert 0.5 * inherent[name] < found[asked][name] < 2 * inherent[name], (asked, name)
    for name in ('qkvw q', 'qkvw k'):
        assert found[1][name] > 0.5 and found[65536][name] < 2.0**-11, name
    for name in found[1]:
        assert found[65536][name] < 2.0**-10, name
    assert sum(found[1][n] > 3 * found[65536][n] for n in found[1]) > len(found[1]) / 2


# ---- the demo -------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='session')
def demo():
    """The last ten losses of 200 steps of the default model, averaged. (At twice the learning rate the first steps of AdamW overshoot,
    also in double precision, and how soon a run recovers is up to its last bits.)"""
    done = {}

    def mean_loss(dtype):
        if dtype not in done:
            losses = losses_of(train('--dtype', dtype))
            assert len(losses) == 200
            done[dtype] = np.mean(losses[-10:])
        return done[dtype]
    return mean_loss


@pytest.mark.parametrize('dtype,share', [('bf16', 0.05), ('fp16', 0.05), ('fp8', 0.10)])
def test_demo_learns_as_in_fp32(demo, dtype, share):
    fp32 = demo('fp32')
    assert fp32 < 3                                          # of log(256) = 5.5 at the beginning
    assert demo(dtype) == pytest.approx(fp32, rel=share)
