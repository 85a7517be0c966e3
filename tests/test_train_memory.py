"""When the memory of `train` is there, by its own account (--truth): what comes and goes within a step with --alloc step and pool, gradients
that are released, one set of activations with --recompute full. Expected values are the rules of sample_app/README.md. Runs on the virtual GPU."""
import json, os, re
import pytest
from conftest import BUILD, DEVICE, run

TRAIN = os.path.join(BUILD, 'train')
L, C, H, T, B, V = 3, 32, 2, 16, 2, 256
MODELS = {'gpt': ['--layers', L, '--dim', C, '--heads', H, '--seq', T, '--batch', B], 'linear': ['--layers', L, '--dim', C, '--batch', B]}
WITHIN = ('activation', 'activation_grad')


def account(tmp_path, model, *options):
    path = tmp_path / 'truth.json'
    r = run(TRAIN, '--model', model, *MODELS[model], *options, '--truth', path, env=DEVICE)
    assert r.returncode == 0 and not r.stderr, r
    return json.load(open(path))


def live(truth, call):
    return [b for b in truth['buffers'] if b['from_call'] <= call <= b['to_call']]


def check_apart(truth):
    """No two buffers have a byte in common at any call."""
    events = sorted([(b['from_call'], 1, i) for i, b in enumerate(truth['buffers'])] + [(b['to_call'], 2, i) for i, b in enumerate(truth['buffers'])])
    there = {}
    for _, kind, i in events:
        b = truth['buffers'][i]
        lo, hi = b['address'], b['address'] + b['bytes']
        if kind == 1:
            assert all(hi <= a or e <= lo for a, e in there.values()), b
            there[i] = lo, hi
        else:
            del there[i]


@pytest.mark.parametrize('zero_grad', ['zero', 'none'])
@pytest.mark.parametrize('options', [[], ['--recompute', 'full'], ['--accum', 3, '--dtype', 'bf16'], ['--eval-every', 1, '--sample']])
@pytest.mark.parametrize('alloc', ['tensor', 'class', 'step', 'pool'])
@pytest.mark.parametrize('model', ['gpt', 'linear'])
def test_lives(tmp_path, model, alloc, zero_grad, options):
    if model == 'linear':
        options = [o for o in options if o not in ('--recompute', 'full', '--sample')]
    truth = account(tmp_path, model, '--alloc', alloc, '--zero-grad', zero_grad, '--steps', 3, *options)
    check_apart(truth)
    comes_and_goes = alloc in ('step', 'pool')
    for step in truth['steps']:
        first, forward, last = step['from_call'], step['phases'][0]['from_call'], step['to_call']
        classes = lambda call: {b['class'] for b in live(truth, call)}
        assert not comes_and_goes or not {c for c in classes(first) if c in WITHIN}, 'nothing of a step is there when it begins'
        assert not comes_and_goes or not {b['name'] for b in live(truth, last) if b['class'] in WITHIN and not b['name'].startswith('fp8')}
        assert ('grad' in classes(first)) == (zero_grad == 'zero') and 'grad' in classes(last)
        assert comes_and_goes or set(WITHIN) <= classes(first)
        backward = [p for p in step['phases'] if p['name'] == 'backward']
        assert set(WITHIN) <= classes(backward[0]['from_call']) | classes(backward[0]['from_call'] + 3)
    if alloc == 'pool':
        assert len({b['address'] for b in truth['buffers'] if b['class'] in WITHIN}) < len([b for b in truth['buffers'] if b['class'] in WITHIN])
        assert all(b['address'] % 256 == truth['buffers'][0]['address'] % 256 for b in truth['buffers'] if b['class'] in ('param', *WITHIN))


@pytest.mark.parametrize('alloc', ['step', 'pool'])
@pytest.mark.parametrize('recompute', ['none', 'full'])
def test_a_layers_activations_are_there_from_its_forward_to_its_backward(tmp_path, alloc, recompute):
    """Of the last layer first: at most two sets with recomputation, all of them without."""
    truth = account(tmp_path, 'gpt', '--alloc', alloc, '--recompute', recompute, '--steps', 1)
    step = truth['steps'][0]
    for name, n in (('fc', 4 * C), ('q', C), ('att', H * T)):
        lives = sorted((b['from_call'], b['to_call'], b['bytes']) for b in truth['buffers'] if b['name'].rstrip('0123456789') == name)
        assert {b for _, _, b in lives} == {4 * B * T * n}
        if recompute == 'none':                                     # nested: the first to come is the last to go
            assert len(lives) == L and all(a[1] > b[1] for a, b in zip(lives, lives[1:]))
        else:                                                       # one after another, in forward and again in backward
            assert len(lives) == 2 * L and all(a[1] <= b[0] for a, b in zip(lives, lives[1:]))
        forward, backward, _ = step['phases']
        assert sum(forward['from_call'] <= a <= forward['to_call'] for a, _, _ in lives) == L
        assert sum(backward['from_call'] <= b <= backward['to_call'] for _, b, _ in lives) == L


def test_gradients_come_layer_by_layer(tmp_path):
    """With --zero-grad none a gradient is allocated in the backward phase, those of later layers first, and released after the update."""
    truth = account(tmp_path, 'gpt', '--alloc', 'step', '--zero-grad', 'none', '--steps', 2)
    for step in truth['steps']:
        forward, backward, optimizer = step['phases']
        grads = {b['name']: b for b in truth['buffers'] if b['class'] == 'grad' and forward['to_call'] < b['from_call'] <= backward['to_call']}
        assert len(grads) == 12 * L + 4
        assert all(b['to_call'] > optimizer['to_call'] for b in grads.values())
        for l in range(1, L):
            assert max(grads[f'd.{n}{l + 1}']['from_call'] for n in ('outw', 'qkvw', 'ln1b')) < min(grads[f'd.{n}{l}']['from_call'] for n in ('outw', 'qkvw', 'ln1b'))


def test_evaluations_are_in_no_step(tmp_path):
    """Three batches of evaluation, then a sample of T − T/2 + 1 tokens, each a forward pass over one sequence."""
    truth = account(tmp_path, 'gpt', '--steps', 4, '--eval-every', 2, '--eval-batches', 3, '--sample')
    forward = 2 * B * T * (L * 12 * C * C + V * C) + 4 * B * T * T * C * L
    assert [e['flops'] for e in truth['evaluations']] == [3 * forward, (T // 2 + 1) * forward // B] * 2
    spans = sorted([(s['from_call'], s['to_call']) for s in truth['steps']] + [(e['from_call'], e['to_call']) for e in truth['evaluations']])
    assert all(a[1] < b[0] for a, b in zip(spans, spans[1:])) and len(spans) == 8
    assert all(s['flops']['forward'] == forward for s in truth['steps'])


def test_a_skipped_step_has_no_update(tmp_path):
    """fp16 with a rate that makes the loss overflow: from then on no step is updated."""
    truth = account(tmp_path, 'gpt', '--dtype', 'fp16', '--optimizer', 'sgd', '--lr', 1e4, '--steps', 4)
    skipped = [s['skipped'] for s in truth['steps']]
    assert skipped[0] is False and skipped[-1] is True
    tensors = 12 * L + 4
    calls = [s['phases'][-1]['to_call'] - s['phases'][-1]['from_call'] + 1 for s in truth['steps']]
    assert calls == [tensors + 2 + (0 if s else tensors) for s in skipped]  # a sum of squares a tensor, their sum, its copy; the updates


def test_the_options_are_in_the_account(tmp_path):
    truth = account(tmp_path, 'linear', '--steps', 1, '--optimizer', 'rmsprop', '--clip', 0.5, '--alloc', 'step')
    o = truth['options']
    assert (o['model'], o['optimizer'], o['clip'], o['alloc'], o['dim'], o['save'], o['show-activations']) == ('linear', 'rmsprop', 0.5, 'step', C, None, False)
    assert 'heads' not in o and truth['first_step'] == 1


# ---- sets of tensors ------------------------------------------------------------------------------------------------

def tensor_sets(what):
    return run(os.path.join(BUILD, 'tests', 'tensor_sets'), what, env=DEVICE)


def test_tensors_that_lie_together_have_no_gaps_and_are_aligned():
    tensors = [tuple(map(int, line.split())) for line in tensor_sets('class').stdout.splitlines()]
    sizes = [4, 6, 6, 2048, 2048, 5, 48, 48, 48, 154, 1332]
    assert [n for n, _ in tensors] == sizes
    end = 0
    for n, offset in sorted(tensors, key=lambda t: t[1]):
        assert offset == end and offset % min(n & -n, 256) == 0
        end += n
    assert end == sum(sizes)


@pytest.mark.parametrize('what,code,says', [('enough', 0, ''), ('short', 1, 'w has 8 elements, 9 are needed'),
                                            ('inside', 1, r'w \+ 1 is not the beginning of a tensor'), ('gone', 1, 'w is not the beginning of a tensor')])
def test_debug_builds_check_operands(what, code, says):
    r = tensor_sets(what)
    assert r.returncode == code and (r.stdout == 'right\n') == (code == 0)
    assert re.fullmatch(rf'(train: tests/programs/tensor_sets\.c:\d+: {says}\n)?', r.stderr) and bool(r.stderr) == bool(code), r.stderr
