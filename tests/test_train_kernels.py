"""The GPT's kernels in bf16 and fp16: arithmetic in float, one rounding at the store. So on the same numbers each must leave
exactly what it leaves in fp32, rounded; what it stores as float must be the same bit for bit. (The fp32 kernels themselves are
held against double precision by the gradients of whole models, test_train_gpt.py.)"""
import os, re, subprocess
import numpy as np
import pytest
from conftest import BUILD, DEVICE, ON_GPU
from number_formats import BF16, BITS, FP16, FP32, decode, encode

PROGRAM = os.path.join(BUILD, 'tests', 'kernel_formats')
SOURCE = os.path.join(os.path.dirname(__file__), '..', 'sample_app', 'gpt_kernels.cu')


def run_kernels(fmt, env):
    """name: (whether in the format, bits)."""
    r = subprocess.run([PROGRAM, str(fmt)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, env={**os.environ, **DEVICE, **env})
    assert (r.returncode, r.stderr) == (0, b''), r.stderr
    raw, out = r.stdout, {}
    while raw:
        head, raw = raw.split(b'\n', 1)
        name, kind, n = head.decode().split()
        dtype = BITS[fmt] if kind == 'real' else np.uint32
        size = int(n) * np.dtype(dtype).itemsize
        assert name not in out
        out[name], raw = (kind == 'real', np.frombuffer(raw[:size], dtype)), raw[size:]
    return out


@pytest.fixture(scope='module', params=[pytest.param(None, id='gpu')] if ON_GPU else ['jit', 'interpret'])
def outputs(request):
    env = {'ACCT_VGPU_EXECUTE': request.param} if request.param else {}
    return {fmt: run_kernels(fmt, env) for fmt in (FP32, BF16, FP16)}


# On a device the assembler may fuse multiplications and additions of one instance and not of another: then the last bit may differ.
@pytest.mark.skipif(ON_GPU, reason='bit for bit where the PTX is executed as it is written')
@pytest.mark.parametrize('fmt', [BF16, FP16])
def test_one_rounding_at_the_store(outputs, fmt):
    assert list(outputs[fmt]) == list(outputs[FP32])
    for name, (is_real, bits) in outputs[fmt].items():
        exact = outputs[FP32][name][1]
        expected = encode(decode(exact, FP32), fmt) if is_real else exact
        assert np.array_equal(bits, expected), (name, np.flatnonzero(bits != expected)[:5])


@pytest.mark.parametrize('fmt', [BF16, FP16])
def test_close_to_fp32(outputs, fmt):
    roundoff = {BF16: 2.0**-8, FP16: 2.0**-11}[fmt]
    for name, (is_real, bits) in outputs[fmt].items():
        exact = decode(outputs[FP32][name][1], FP32)
        got = decode(bits, fmt if is_real else FP32)
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert error <= (roundoff if is_real else 1e-6), (name, error)


def test_values_differ_where_rounding_matters(outputs):
    """Many results in fp32 are no numbers of the format: otherwise the tests above would say nothing."""
    moved = {'q', 'k', 'v', 'joined', 'dqkv', 'djoined', 'logits'}                 # copies, and an input
    for name, (is_real, bits) in outputs[BF16].items():
        if is_real and name not in moved:
            assert (decode(bits, BF16) != decode(outputs[FP32][name][1], FP32)).mean() > 0.1, name


def test_loss_without_gradient(outputs):
    for fmt in outputs:
        assert np.array_equal(outputs[fmt]['evaluated'][1], outputs[fmt]['losses'][1])


def test_loss_and_gradient_by_formula(outputs):
    """dlogits = scale · (softmax − one-hot): each row sums to 0, and is lower than softmax by `scale` at one place, the target."""
    logits = decode(outputs[FP32]['logits'][1], FP32).reshape(-1, 300)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    target = softmax - decode(outputs[FP32]['dlogits'][1], FP32).reshape(-1, 300) / 3
    assert np.abs(np.sort(target, -1) - np.eye(300)[-1]).max() < 1e-6
    losses = -np.log(np.take_along_axis(softmax, target.argmax(-1)[:, None], -1))[:, 0]
    assert decode(outputs[FP32]['losses'][1], FP32) == pytest.approx(losses, rel=1e-5)
    assert decode(outputs[FP32]['mean_loss'][1], FP32) == pytest.approx(losses.mean(), rel=1e-5)


def test_all_kernels_are_here():
    program = open(os.path.join(os.path.dirname(__file__), 'programs', 'kernel_formats.c')).read()
    functions = re.findall(r'^void (gpt_\w+)\(', open(SOURCE).read(), re.M)
    assert len(functions) > 20 and [f for f in functions if f + '(' not in program] == []
