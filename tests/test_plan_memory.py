"""`acct plan memory` and `plan fit`: recipes, ZeRO, tensor and pipeline parallel, a transformer's activations, inference, the largest
model. Expected values are the figures of the books (bytes a parameter by recipe; 40e9 parameters on 8 x 80 GB; s·b·h·(34 + 5·a·s/h)
and its parts by Korthikanti et al. 2022) or are computed here from the shapes, in whole numbers."""
import itertools, json, os, random, re
from fractions import Fraction
import pytest
from conftest import BUILD, TOP, run

ACCT = os.path.join(BUILD, 'acct')
PARTS = ('weights', 'gradients', 'master', 'moments')


def plan(*args, command='memory'):
    r = run(ACCT, 'plan', command, *args, '--format', 'json')
    assert r.returncode == 0 and not r.stderr, (args, r)
    return json.loads(r.stdout)


def results(*args, **kw):
    return {k: v['value'] for k, v in plan(*args, **kw)['results'].items()}


def up(a, b):
    return -(-a // b)


# ---- recipes ------------------------------------------------------------------------------------------------------------------
# The books' table: weights, gradients, master, moments; in all.
RECIPES = {'fp32-sgd': (4, 4, 0, 0, 8), 'fp32-adagrad': (4, 4, 0, 4, 12), 'fp32-momentum': (4, 4, 0, 4, 12), 'adamw-fp32': (4, 4, 0, 8, 16),
           'adamw-bf16-master': (2, 2, 4, 8, 16), 'megatron': (2, 4, 4, 8, 18), 'fp32-rmsprop': (4, 4, 0, 4, 12), 'fp32-lion': (4, 4, 0, 4, 12),
           'mixed-sgd': (2, 4, 4, 0, 10), 'mixed-momentum': (2, 4, 4, 4, 14), 'adamw-bf16': (2, 2, 0, 4, 8), 'adamw-8bit': (4, 4, 0, 2, 10),
           'adamw-8bit-bf16': (2, 2, 0, 2, 6), 'adamw-autocast': (4, 4, 0, 8, 16)}
INFERENCE = {'inference-fp32': 4, 'inference-fp16': 2, 'inference-bf16': 2, 'inference-fp8': 1, 'inference-int8': 1, 'inference-int4': Fraction(1, 2)}


@pytest.mark.parametrize('recipe', RECIPES)
def test_bytes_of_a_parameter(recipe):
    *parts, total = RECIPES[recipe]
    r = results('--params', '70B', '--recipe', recipe)
    assert [r[p] for p in PARTS] == [70 * 10**9 * b for b in parts] and r['total'] == 70 * 10**9 * total
    assert r['bytes_per_parameter'] == total and r['params'] == 70 * 10**9


@pytest.mark.parametrize('recipe', INFERENCE)
def test_weights_of_inference(recipe):
    r = results('--params', 70 * 10**9 + 1, '--recipe', recipe)
    assert r['weights'] == r['total'] == up((70 * 10**9 + 1) * INFERENCE[recipe], 1) and 'gradients' not in r


@pytest.mark.parametrize('d', [1, 2, 8, 64, 1024])
def test_megatron_s_distributed_optimizer(d):
    """6 + 12/d."""
    n = 1024 * 10**6
    r = results('--params', n, '--recipe', 'megatron-distributed', '--gpus', d)
    assert r['total'] == 6 * n + 12 * n // d and r['bytes_per_parameter'] == 6 + 12 / d


def test_every_recipe_is_tested_and_in_the_man_page():
    names = set(re.search(r'there are (.*)', run(ACCT, 'plan', 'memory', '--params', 1, '--recipe', 'x').stderr).group(1).split(', '))
    assert names == {*RECIPES, *INFERENCE, 'megatron-distributed'}
    page = open(os.path.join(TOP, 'docs/man/acct-plan-memory.1')).read().replace('\\-', '-')
    assert all(re.search(rf'(?<![-\w]){n}(?![-\w])', page) for n in names)


def test_tensors_of_the_books():
    """4x8 in fp32: 128 bytes. GPT-3's feed-forward matrix (4·12288 x 12288) in fp32: 2,415,919,104 bytes, 2.25 GiB."""
    assert results('--params', 4 * 8, '--recipe', 'inference-fp32')['weights'] == 128
    ff = plan('--params', 12288 * 4 * 12288, '--recipe', 'inference-fp32')
    assert ff['results']['weights']['value'] == 2415919104
    assert '2.25 GiB (2415919104)' in run(ACCT, 'plan', 'memory', '--params', 12288 * 4 * 12288, '--recipe', 'inference-fp32').stdout


# ---- ZeRO, tensor, pipeline --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('zero', range(4))
@pytest.mark.parametrize('recipe', ['adamw-fp32', 'megatron', 'adamw-bf16-master'])
def test_zero_stages(recipe, zero):
    """Stage 1 divides optimizer states, 2 gradients too, 3 weights too; a shard is rounded up to whole parameters."""
    n, d = 7 * 10**9 + 3, 16
    r = results('--params', n, '--recipe', recipe, '--gpus', d, '--zero', zero)
    w, g, master, moments, _ = RECIPES[recipe]
    by = [d if zero >= 3 else 1, d if zero >= 2 else 1, d if zero >= 1 else 1, d if zero >= 1 else 1]
    assert [r[p] for p in PARTS] == [b * up(n, k) for b, k in zip((w, g, master, moments), by)]


@pytest.mark.parametrize('gpus,tp,pp', [(8, 8, 1), (8, 1, 8), (64, 8, 4), (6, 3, 1)])
def test_parameters_alone_are_divided_evenly(gpus, tp, pp):
    n = 10**9 + 7
    r = plan('--params', n, '--recipe', 'megatron', '--gpus', gpus, '--tp', tp, '--pp', pp, '--zero', 1)
    rank, d = up(n, tp * pp), gpus // (tp * pp)
    assert r['results']['params_of_gpu']['value'] == rank and r['inputs']['data_parallel']['value'] == d
    assert r['results']['total']['value'] == 6 * rank + 12 * up(rank, d)


def weights(L, C, H, T, V, tied=True, ff=None, kv=None, gated=False, bias=True, rms=False, learned=True, Q=None):
    """(name, count, elements, elements on a GPU as a function of tp) of a GPT."""
    ff, kv, Q = ff or 4 * C, kv or H, Q or C // H
    rows, columns = lambda r, c: lambda t: up(r, t) * c, lambda r, c: lambda t: r * up(c, t)
    qkv = lambda c: lambda t: (H // t + 2 * up(kv, t)) * Q * c # heads are whole; keys and values are copied where GPUs outnumber them
    same = lambda n: lambda t: n
    out = [('wte', 'first' if not tied else 'both', rows(V, C))]
    if learned:
        out += [('wpe', 'first', same(T * C))]
    norm = [same(C)] * (1 if rms or not bias else 2)
    layer = [*norm, qkv(C), columns(C, H * Q), *norm, *([rows(ff, C)] if gated else []), rows(ff, C), columns(C, ff)]
    if bias:
        layer += [qkv(1), same(C), *([rows(ff, 1)] if gated else []), rows(ff, 1), same(C)]
    out += [('norm', 'last', w) for w in norm]
    if not tied:
        out += [('head', 'last', rows(V, C))]
    return out, lambda t: sum(w(t) for w in layer)


def rank_parameters(L, tp, pp, **shape):
    ends, layer = weights(L, **shape)
    of = lambda stage: up(L, pp) * layer(tp) + sum(w(tp) for _, where, w in ends if pp == 1 or where in (stage, 'both'))
    return of('first'), of('last')


SHAPES = {'gpt2': (dict(L=12, C=768, H=12, T=1024, V=50257), ''),
          'llama': (dict(L=32, C=4096, H=32, T=8192, V=128256, tied=False, ff=14336, kv=8, gated=True, bias=False, rms=True, learned=False),
                    ',tied=no,ff=14336,kv_heads=8,gated=yes,bias=no,norm=rms,position=rotary'),
          'untied': (dict(L=6, C=512, H=8, T=256, V=32000, tied=False), ',tied=no')}


def spec(name, batch=None):
    s, more = SHAPES[name]
    return f'layers={s["L"]},dim={s["C"]},heads={s["H"]},seq={s["T"]},vocab={s["V"]}{more}' + (f',batch={batch}' if batch else '')


@pytest.mark.parametrize('name,all_of_them', [('gpt2', 124439808), ('llama', 8030261248), ('untied', None)])
def test_parameters_of_a_model(name, all_of_them):
    s = SHAPES[name][0]
    first, last = rank_parameters(tp=1, pp=1, **s)
    r = results('--model', spec(name), '--recipe', 'megatron')
    assert first == last == r['params'] == r['params_of_gpu'] and all_of_them in (None, first)
    assert r['total'] == 18 * first and 'activations' not in r
    for tp, pp in itertools.product((1, 2, 4), (1, 2, 3)):
        r = results('--model', spec(name), '--recipe', 'megatron', '--gpus', tp * pp, '--tp', tp, '--pp', pp)
        assert r['params'] == first and r['params_of_gpu'] == max(rank_parameters(tp=tp, pp=pp, **s)), (tp, pp)


def test_tensors_that_do_not_divide():
    """proj and out are divided by their inputs, fc by its outputs: the same share of the width. Keys and values of 2 heads on 8 GPUs: one
    head each."""
    shape = dict(C=100, H=32, Q=2, T=64, V=256, ff=77, kv=2)
    args = ['--recipe', 'megatron', '--model', 'layers=5,dim=100,heads=32,head=2,seq=64,vocab=256,ff=77,kv_heads=2,batch=3']
    r = results(*args, '--gpus', 8, '--tp', 8, '--no-dropout')
    layer = 4 * 100 + (32 // 8 + 2) * 2 * 101 + 100 * 8 + 100 + 10 * 101 + 100 * 10 + 100
    assert r['params_of_gpu'] == 5 * layer + 32 * 100 + 64 * 100 + 2 * 100 == rank_parameters(5, 8, 1, **shape)[0]
    assert r['activations'] == 5 * 64 * 3 * 2 * (4 * 100 + 2 * 8 + 2 * 2 + 2 * 10 + 32 // 8 * 64)


# ---- activations -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('s,b,h,a,L', [(1024, 8, 768, 12, 12), (2048, 1, 12288, 96, 96), (64, 8, 128, 4, 4)])
def test_activations_of_a_transformer(s, b, h, a, L):
    """The books': s·b·h·(34 + 5·a·s/h) a layer; selective 34·s·b·h; full 2·s·b·h."""
    model = ['--recipe', 'megatron', '--model', f'layers={L},dim={h},heads={a},seq={s},batch={b},vocab=50257']
    of = {how: results(*model, '--recompute', how) for how in ('none', 'selective', 'full')}
    layer = s * b * h * 34 + 5 * a * s * s * b
    assert of['none']['activations'] == L * layer == results(*model)['activations']
    assert (of['selective']['activations'], of['selective']['recomputed_layer']) == (L * 34 * s * b * h, 5 * a * s * s * b)
    assert (of['full']['activations'], of['full']['recomputed_layer']) == (L * 2 * s * b * h, layer)
    for r in of.values():
        assert r['logits'] == 4 * s * b * 50257 and r['ends'] == s * b * h * (1 + 2 + 2)
        assert r['total'] == 18 * r['params'] + r['activations'] + r.get('recomputed_layer', 0) + r['logits'] + r['ends']


@pytest.mark.parametrize('recipe,e', [('adamw-fp32', 4), ('megatron', 2), ('adamw-autocast', 2)])
def test_activations_by_format_and_dropout(recipe, e):
    """16 values and 2 masks of a byte for each of s·b·h; for each score its softmax and, with dropout, mask and output."""
    s, b, h, a, L = 128, 4, 256, 8, 3
    model = ['--recipe', recipe, '--model', f'layers={L},dim={h},heads={a},seq={s},batch={b},vocab=1000']
    assert results(*model)['activations'] == L * (s * b * h * (16 * e + 2) + a * s * s * b * (2 * e + 1))
    r = results(*model, '--no-dropout')
    assert r['activations'] == L * (s * b * h * 16 * e + a * s * s * b * e) and r['ends'] == s * b * h * 2 * e


def test_activations_of_grouped_queries_and_gates():
    """Norm, q, k, v and feed-forward inputs, q, k and v, the core's output; gate, up and their product: by their own widths."""
    s, b = 8192, 2
    r = results('--recipe', 'megatron', '--model', spec('llama', b), '--no-dropout', '--recompute', 'selective')
    width = 2 * 4096 + 4096 + (4096 + 2 * 8 * 128) + 4096 + 4096 + 3 * 14336
    assert r['activations'] == 32 * s * b * 2 * width and r['recomputed_layer'] == 32 * s * s * b * 2


@pytest.mark.parametrize('tp', [1, 2, 8])
@pytest.mark.parametrize('sequence', [False, True])
@pytest.mark.parametrize('how', ['none', 'selective', 'full'])
def test_tensor_parallel_activations(tp, sequence, how):
    """Korthikanti et al.: s·b·h·(10 + 24/t + 5·a·s/(h·t)); with sequence parallelism all of it by t."""
    if sequence and tp == 1:
        return
    s, b, h, a, L, v = 2048, 1, 12288, 96, 96, 51200
    r = results('--recipe', 'megatron', '--model', f'layers={L},dim={h},heads={a},seq={s},batch={b},vocab={v}', '--gpus', tp, '--tp', tp,
                '--recompute', how, *(['--sequence-parallel'] if sequence else []))
    core = 5 * a * s * s * b // tp
    layer = 34 * s * b * h // tp if sequence else 10 * s * b * h + 24 * s * b * h // tp
    want = {'none': layer + core, 'selective': layer, 'full': 2 * s * b * h // (tp if sequence else 1)}[how]
    assert r['activations'] == L * want and r.get('recomputed_layer', 0) == {'none': 0, 'selective': core, 'full': layer + core}[how]
    assert r['logits'] == 4 * s * b * v // tp


def test_pipeline_activations():
    """One forward, one backward: the first stage keeps those of as many micro-batches as there are stages, so of as many layers as
    without a pipeline; the last stage has the logits."""
    s, b, h, a = 512, 4, 1024, 16
    for L, pp, v in ((24, 1, 32000), (24, 4, 32000), (24, 24, 32000), (10, 4, 32000), (2, 2, 500000)): # the last: its head, tied as it is, and logits
        d = plan('--recipe', 'megatron', '--model', f'layers={L},dim={h},heads={a},seq={s},batch={b},vocab={v}', '--gpus', pp, '--pp', pp)
        r = {k: x['value'] for k, x in d['results'].items()}
        layer, first = 34 * s * b * h + 5 * a * s * s * b, rank_parameters(L, 1, pp, C=h, H=a, T=s, V=v)
        of_first = 18 * first[0] + pp * up(L, pp) * layer + pp * s * b * h + (0 if pp > 1 else s * b * (4 * h + 4 * v))
        of_last = 18 * first[1] + up(L, pp) * layer + (s * b * h if pp == 1 else 0) + s * b * (4 * h + 4 * v)
        assert r['total'] == max(of_first, of_last), (L, pp)
        assert pp == 1 or any(f'the {"first" if of_first >= of_last else "last"} stage, which' in n for n in d['notes'])


@pytest.mark.parametrize('recipe,e,states', [('fp32-sgd', 4, 0), ('fp32-momentum', 4, 1), ('adamw-fp32', 4, 2)])
def test_the_lectures_deep_linear_model(recipe, e, states):
    """4 bytes x (D·D·layers x (2 + states) + B·D·layers)."""
    D, B, L = 256, 32, 6
    r = results('--recipe', recipe, '--model', f'kind=linear,layers={L},dim={D},batch={B}')
    assert (r['params'], r['activations']) == (D * D * L, 4 * B * D * L)
    assert r['total'] == 4 * (D * D * L * (2 + states) + B * D * L)


# ---- inference -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('cache,b', [(None, 2), ('fp8', 1), ('fp32', 4), ('int8', 1), ('bf16', 2)])
@pytest.mark.parametrize('tp', [1, 4])
def test_cache_of_keys_and_values(cache, b, tp):
    """2 x layers x key heads x head size x context x batch x bytes; key heads are divided over tensor-parallel GPUs."""
    r = results('--recipe', 'inference-int4', '--model', spec('llama'), '--context', 4096, '--batch', 16, '--gpus', tp, '--tp', tp,
                *(['--kv-dtype', cache] if cache else []))
    assert r['kv_cache'] == 2 * 32 * 8 // tp * 128 * 4096 * 16 * b
    assert r['weights'] == up(r['params_of_gpu'], 2) and r['total'] == r['weights'] + r['kv_cache']
    assert tp > 1 or r['params'] == 8030261248


@pytest.mark.parametrize('pp', [2, 3])
def test_stages_hold_their_layers_alone(pp):
    """The cache of a stage's layers; of the linear model's, outputs of as many micro-batches as there are stages, on the first."""
    r = results('--recipe', 'inference-fp16', '--model', spec('llama'), '--context', 4096, '--batch', 16, '--gpus', pp, '--pp', pp)
    assert r['kv_cache'] == 2 * up(32, pp) * 8 * 128 * 4096 * 16 * 2
    r = results('--recipe', 'adamw-fp32', '--model', 'kind=linear,layers=7,dim=64,batch=3', '--gpus', pp, '--pp', pp)
    assert (r['params_of_gpu'], r['activations']) == (64 * 64 * up(7, pp), 4 * pp * up(7, pp) * 3 * 64)


# ---- what papers and users report --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('zero,gigabytes', [(0, '120.0'), (1, '31.4'), (2, '16.6'), (3, '1.9')])
def test_zero_s_own_table(zero, gigabytes):
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 GPUs, mixed precision with Adam."""
    assert f"{results('--params', '7.5e9', '--recipe', 'adamw-bf16-master', '--gpus', 64, '--zero', zero)['total'] / 1e9:.1f}" == gigabytes


@pytest.mark.parametrize('h,a,share', [(12288, 96, 70), (20480, 128, 65)])
def test_what_selective_recomputation_saves(h, a, share):
    """Korthikanti et al., section 5: 5as/h is 80 for GPT-3 and 64 for MT-NLG, so 70 % and 65 % of the activations go."""
    model = ['--recipe', 'megatron', '--model', f'layers=1,dim={h},heads={a},seq=2048,batch=1,vocab=51200', '--recompute']
    assert round(100 * (1 - results(*model, 'selective')['activations'] / results(*model, 'none')['activations'])) == share


@pytest.mark.parametrize('model,a_token', [('layers=40,dim=5120,heads=40', 800 * 1024), ('layers=80,dim=8192,heads=64,kv_heads=8,ff=28672', 320 * 1024)])
def test_cache_of_a_token(model, a_token):
    """OPT-13B: 800 KB a token (Kwon et al. 2023); Llama 2 70B: 320 KiB."""
    assert results('--recipe', 'inference-fp16', '--model', model + ',seq=2048,vocab=32000,batch=1', '--context', 1)['kv_cache'] == a_token


def test_autocast_keeps_fp32():
    """GPT-2 XL with autocast, a user's question why the states are twice the gradients and not six times: weights stay fp32."""
    r = results('--recipe', 'adamw-autocast', '--model', 'layers=48,dim=1600,heads=25,seq=1024,vocab=50257')
    assert (r['params'], r['gradients'], r['moments']) == (1557611200, 6230444800, 12460889600)


@pytest.mark.parametrize('n,recipe,what', [(3406809600, 'adamw-fp32', {'weights': 13627238400, 'gradients': 13627238400, 'moments': 27254476800}),
                                           (423183360, 'adamw-fp32', {'gradients': 1692733440}), (25557032, 'fp32-momentum', {'moments': 102228128})])
def test_snapshots_of_real_runs(n, recipe, what):
    """What memory snapshots of a first step, of a model of 423e6 parameters and of ResNet-50 show."""
    r = results('--params', n, '--recipe', recipe)
    assert {k: r[k] for k in what} == what


# ---- fit -------------------------------------------------------------------------------------------------------------------------
def fit(*args):
    return plan(*args, command='fit')


def test_the_largest_model_of_the_books():
    """8 x 80e9 bytes, AdamW in fp32: 640e9 / 16 = 40e9 parameters. Beside it what an H100 reports, less 530 MiB."""
    r = fit('--gpus', 8, '--device', 'h100-sxm', '--recipe', 'adamw-fp32')
    assert r['results']['at_nominal']['value'] == 40 * 10**9 and r['inputs']['nominal_bytes']['value'] == 80 * 10**9
    assert r['inputs']['total_bytes']['value'] == 85520809984 and r['inputs']['total_bytes']['from'] == 'reported by a device'
    assert r['results']['at_device']['value'] == 8 * ((85520809984 - 530 * 2**20) // 16)
    assert '40000000000' in run(ACCT, 'plan', 'fit', '--gpus', 8, '--device', 'h100-sxm', '--recipe', 'adamw-fp32').stdout
    estimated = fit('--device', 'a10', '--recipe', 'fp32-sgd')
    assert 'estimated' in estimated['inputs']['total_bytes']['from'] and estimated['results']['at_nominal']['value'] == 3 * 10**9


@pytest.mark.parametrize('args,count', [(('--memory', '80GB', '--recipe', 'adamw-fp32', '--zero', 0, '--gpus', 8), 5 * 10**9),
                                        (('--memory', '80GiB', '--recipe', 'adamw-bf16-master'), 5 * 2**30),
                                        (('--memory', '18GB', '--recipe', 'megatron', '--gpus', 4, '--tp', 2, '--pp', 2), 4 * 10**9),
                                        (('--memory', '75GB', '--recipe', 'megatron-distributed', '--gpus', 8, '--zero', 0), 10**10),
                                        (('--memory', '80GB', '--recipe', 'inference-int4', '--gpus', 2), 32 * 10**10),
                                        (('--memory', 15, '--recipe', 'adamw-fp32'), 0)])
def test_parameters_that_fit(args, count):
    r = fit(*args)
    assert r['results']['at_memory']['value'] == count and r['inputs']['unknown']['value'] == 'parameters'
    assert 'at_nominal' not in r['results']


@pytest.mark.parametrize('unknown', ['layers', 'batch', 'seq'])
@pytest.mark.parametrize('more', [['--recipe', 'megatron'], ['--recipe', 'adamw-fp32', '--recompute', 'full', '--zero', '1', '--gpus', '8'],
                                  ['--recipe', 'megatron', '--gpus', '16', '--tp', '4', '--pp', '2'], ['--recipe', 'inference-fp16']])
def test_what_a_model_leaves_out(unknown, more):
    """The largest that fits: it does, and one more does not, by plan memory."""
    words = dict(layers=24, dim=2048, heads=16, seq=2048, batch=2, vocab=50304)
    del words[unknown]
    model = ','.join(f'{k}={v}' for k, v in words.items())
    r = fit('--device', 'a100-80', *more, '--model', model)
    for at, capacity in (('at_nominal', 80 * 10**9), ('at_device', 81920 * 2**20 - 1300 * 2**20)):
        n = r['results'][at]['value']
        spread = [] if '--gpus' in more else ['--gpus', 1]
        zero = [] if '--zero' in more or 'inference-fp16' in more else ['--zero', 3]
        total = lambda k: results(*more, *spread, *zero, '--model', f'{model},{unknown}={k}')['total']
        assert n > 0 and total(n) <= capacity < total(n + 1), (at, n)
        terms = {t['term']: t[at[3:] + '_bytes'] for t in r['terms']}
        assert terms['total'] == total(n) == sum(v for k, v in terms.items() if k != 'total')


def test_everything_given_fits_or_not():
    for batch, fits in ((1, 'yes'), (1000, 'no')):
        r = fit('--device', 'a100-40', '--recipe', 'megatron', '--model', spec('gpt2', batch))['results']
        assert r['fits']['value'] == fits and r['room_nominal']['value'] == 40 * 10**9 - r['total']['value']
        assert r['room_device']['value'] == 42297524224 - 430 * 2**20 - r['total']['value'] and (r['room_device']['value'] >= 0) == (fits == 'yes')
        assert results('--device', 'a100-40', '--recipe', 'megatron', '--model', spec('gpt2', batch), '--zero', 3)['fits'] == fits


def test_a_profile_is_neither_reported_nor_estimated():
    r = fit('--device', os.path.join(TOP, 'docs/example.profile'), '--recipe', 'adamw-fp32')
    assert (r['inputs']['total_bytes']['value'], r['inputs']['reserved_bytes']['value']) == (64 * 2**30, 600 * 2**20)
    assert all('profile' in r['inputs'][k]['from'] for k in ('total_bytes', 'reserved_bytes')) and r['results']['at_nominal']['value'] is None
    assert r['results']['at_device']['value'] == (64 * 2**30 - 600 * 2**20) // 16
    room = plan('--device', os.path.join(TOP, 'docs/example.profile'), '--recipe', 'adamw-fp32', '--params', 1)['results']['room_device']
    assert room['value'] == 64 * 2**30 - 600 * 2**20 - 16 and 'estimated' not in room['formula']


def test_what_just_fits_fits():
    model = ['--recipe', 'megatron', '--model', spec('gpt2', 2), '--zero', 0]
    total = results(*model)['total']
    for memory, fits in ((total, 'yes'), (total - 1, 'no')):
        r = fit(*model, '--memory', memory)['results']
        assert (r['fits']['value'], r['room']['value']) == (fits, memory - total)
    n = (81920 - 1300) * 2**20 // 8 # an A100's bytes less what the context takes, 8 a parameter
    assert [results('--params', k, '--recipe', 'fp32-sgd', '--device', 'a100-80')['fits'] for k in (n, n + 1)] == ['yes', 'no']


# ---- properties ------------------------------------------------------------------------------------------------------------------
def test_more_of_anything_takes_no_less():
    rng, words = random.Random(5), ('layers', 'batch', 'seq', 'vocab')
    for _ in range(12):
        heads, head = rng.choice([4, 8, 16]), rng.choice([32, 64, 128])
        m = dict(layers=rng.randint(4, 40), dim=heads * head, heads=heads, seq=rng.randint(1, 4096), batch=rng.randint(1, 32), vocab=rng.randint(2, 100000))
        how = ['--recipe', rng.choice(list(RECIPES)), '--recompute', rng.choice(['none', 'selective', 'full'])] + rng.choice([[], ['--gpus', '8', '--tp', '4', '--pp', '2']])
        total = lambda m: results(*how, '--model', ','.join(f'{k}={v}' for k, v in m.items()))['total']
        before = total(m)
        for w in rng.sample(words, 2):
            assert total({**m, w: m[w] + rng.randint(1, 1000)}) >= before, (m, w)
    totals = [results('--params', '7e9', '--recipe', 'megatron', '--gpus', 8, '--zero', z)['total'] for z in range(4)]
    assert totals == sorted(totals, reverse=True) and len(set(totals)) == 4
    fits = [fit('--gpus', g, '--memory', '80GB', '--recipe', 'megatron')['results']['at_memory']['value'] for g in (1, 2, 3, 8, 1000)]
    assert fits == sorted(fits) and len(set(fits)) == 5


@pytest.mark.parametrize('a,b', [('70e9', '70B'), ('70B', '70000000000'), ('0.07T', '70_000_000_000'), ('70e9', '70000M')])
def test_units_say_the_same(a, b):
    assert results('--params', a, '--recipe', 'megatron') == results('--params', b, '--recipe', 'megatron')
    for x, y in (('80GB', '80e9'), ('80GiB', str(80 * 2**30)), ('0.08TB', '80000MB')):
        assert fit('--memory', x, '--recipe', 'megatron')['results'] == fit('--memory', y, '--recipe', 'megatron')['results']


def test_every_unit_of_bytes():
    for i, prefix in enumerate('kMGTP', 1):
        for unit, power in ((prefix + 'B', 1000**i), (prefix.upper() + 'iB', 1024**i)):
            assert fit('--memory', '12.5' + unit, '--recipe', 'fp32-sgd')['inputs']['memory']['value'] == 12.5 * power, unit
    for unit, power in (('B', 1), ('KB', 1000), ('EB', 1000**6), ('EiB', 1024**6)):
        assert fit('--memory', '4' + unit, '--recipe', 'fp32-sgd')['inputs']['memory']['value'] == 4 * power, unit
    for unit, power in (('B', 1), ('kB', 10**3), ('MB', 10**6), ('GB', 10**9), ('TB', 10**12)):
        assert plan('--device', 't4', '--bandwidth', f'125{unit}/s', command='roofline')['inputs']['bandwidth']['value'] == 125 * power, unit


def test_nothing_wraps():
    """The largest counts there are: exact, or refused in a line."""
    n = 2**63 - 1
    assert results('--params', n, '--recipe', 'megatron')['total'] == 18 * n
    big = run(ACCT, 'plan', 'memory', '--recipe', 'megatron', '--model', 'layers=1e12,dim=1e12,heads=1,seq=1e12,batch=1e12,vocab=1')
    assert big.returncode == 2 and big.stdout == '' and '9.2e18' in big.stderr and big.stderr.count('\n') == 1
    r = results('--recipe', 'megatron', '--model', 'layers=1e6,dim=1e5,heads=1,seq=1e9,batch=1e6,vocab=1')
    assert r['activations'] == 10**6 * (34 * 10**9 * 10**6 * 10**5 + 5 * 10**18 * 10**6) and r['total'] > 5e30


# ---- bad command lines -------------------------------------------------------------------------------------------------------------
GPT = 'layers=2,dim=64,heads=4,seq=16,vocab=256'
BAD = [(['memory'], 'recipe'), (['memory', '--recipe', 'megatron'], '--params'), (['memory', '--recipe', 'adamw-fp23', '--params', '1'], "'adamw-fp23'"),
       (['memory', '--params', '-1', '--recipe', 'megatron'], 'negative'), (['memory', '--params', '0', '--recipe', 'megatron'], 'zero'),
       (['memory', '--params', '1e30', '--recipe', 'megatron'], 'too large'), (['memory', '--params', '1.5', '--recipe', 'megatron'], 'whole'),
       (['memory', '--params', '7X', '--recipe', 'megatron'], "'7X'"), (['memory', '--recipe', 'megatron', '--model', 'layers=2'], 'dim='),
       (['memory', '--recipe', 'megatron', '--model', 'depth=2'], "'depth'"), (['memory', '--recipe', 'megatron', '--model', GPT + ',batch=0'], 'batch='),
       (['memory', '--params', '1', '--recipe', 'megatron', '--gpus', '8', '--tp', '3'], 'divide'),
       (['memory', '--recipe', 'megatron', '--model', GPT, '--gpus', '8', '--tp', '8'], 'heads='),
       (['memory', '--recipe', 'megatron', '--model', GPT, '--gpus', '4', '--pp', '4'], 'stages'),
       (['memory', '--params', '1', '--recipe', 'megatron', '--zero', '4'], 'at most 3'), (['memory', '--params', '1', '--recipe', 'megatron', '--zero', 'x'], "'x'"),
       (['memory', '--recipe', 'megatron', '--model', GPT, '--sequence-parallel'], 'sequence'),
       (['memory', '--recipe', 'megatron', '--model', GPT, '--recompute', 'some'], "'some'"),
       (['memory', '--recipe', 'inference-fp16', '--model', GPT, '--recompute', 'full'], '--recompute'),
       (['memory', '--recipe', 'megatron', '--model', GPT, '--context', '3'], '--context'),
       (['memory', '--recipe', 'inference-fp16', '--params', '1', '--context', '3'], '--context'),
       (['memory', '--recipe', 'inference-fp16', '--model', GPT, '--kv-dtype', 'fp4'], "'fp4'"),
       (['memory', '--recipe', 'megatron', '--params', '1', '--device', 'h100'], 'h100'), (['memory', '--recipe', 'megatron', '--params', '1', 'x'], "'x'"),
       (['memory', '--recipe', 'megatron', '--params', '1', '--frob'], '--frob'), (['memory', '--recipe', 'megatron', '--params', '1', '--format', 'xml'], 'xml'),
       (['memory', '--recipe', 'megatron', '--model', 'kind=linear,layers=2,dim=8,batch=1', '--recompute', 'full'], '--recompute'),
       (['fit', '--recipe', 'megatron'], '--device'), (['fit', '--recipe', 'megatron', '--device', 'h100-sxm', '--memory', '80GB'], '--memory'),
       (['fit', '--memory', '80GB'], 'recipe'), (['fit', '--recipe', 'megatron', '--memory', '0'], 'zero'), (['fit', '--recipe', 'megatron', '--memory', '80Gx'], "'80Gx'"),
       (['fit', '--recipe', 'megatron', '--memory', '80GB', '--model', 'dim=64,heads=4,seq=16,vocab=256'], 'layers and batch'),
       (['fit', '--recipe', 'megatron', '--memory', '80GB', '--params', '1'], '--params'),
       (['fit', '--recipe', 'megatron', '--device', 'cpu'], 'cpu'), (['compare'], 'trace'), (['compare', '--recipe', 'x', 't.db'], "'x'"),
       (['compare', '--recipe', 'inference-fp16', 't.db'], 'inference'), (['compare', '--recompute', 'full', 't.db'], '--model'),
       (['compare', '--params', '-3', 't.db'], 'negative')]


@pytest.mark.parametrize('args,says', BAD, ids=lambda a: ' '.join(a)[:60] if isinstance(a, list) else '')
def test_a_bad_command_line_is_told_in_one_line(args, says):
    r = run(ACCT, 'plan', *args)
    assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1 and says in r.stderr and r.stderr.startswith('acct plan ' + args[0]), r


def test_formats_have_the_same_figures():
    args = ['plan', 'memory', '--recipe', 'megatron', '--model', spec('gpt2', 8)]
    values = [str(v['value']) for v in plan(*args[2:])['results'].values()]
    for form in ('text', 'markdown', 'csv'):
        out = run(ACCT, *args, '--format', form)
        assert out.returncode == 0 and all(v.removesuffix('.0') in out.stdout for v in values), form


def test_keys_are_documented():
    """docs/JSON.md has the keys that plan memory and plan fit print, and no others."""
    import test_format
    page, model = test_format.documented_keys(), spec('gpt2', 2)
    sheets = {'memory': [plan('--params', 1, '--recipe', 'fp32-sgd'), plan('--recipe', 'megatron', '--model', model, '--recompute', 'full', '--device', 'a10'),
                         plan('--recipe', 'inference-int8', '--model', model)],
              'fit': [fit('--memory', '80GB', '--recipe', 'megatron'), fit('--device', 'a10', '--recipe', 'megatron', '--model', spec('gpt2')),
                      fit('--device', 'a10', '--recipe', 'inference-fp16', '--model', spec('gpt2')), fit('--memory', '80GB', '--recipe', 'megatron', '--model', model)]}
    results_of_memory = {k for k in page['acct plan memory'] if k.startswith('results.')}
    for command, documents in sheets.items():
        printed = set()
        for d in documents:
            assert d['schema'] == 1 and d['command'] == f'plan {command}'
            for part, says in (('inputs', 'from'), ('results', 'formula')):
                assert all(set(v) == {'value', 'unit', says} and v[says] for v in d[part].values())
                printed |= {f'{part}.{k}' for k in d[part]}
            printed |= {f'terms[].{k}' for t in d.get('terms', []) for k in t}
        known = page[f'acct plan {command}'] - {'convention'}
        assert (printed - results_of_memory if command == 'fit' else printed) == known, command


def test_people_see_every_digit():
    """Beyond 2^53 and 2^63 the exact count beside the rounded one is exact too, in sheets and in tables."""
    n = 2**53 + 1
    out = run(ACCT, 'plan', 'memory', '--params', n, '--recipe', 'adamw-fp32').stdout
    assert f'32.00 PiB ({4 * n})' in out and f'128.00 PiB ({16 * n})' in out
    assert f'({18 * 9 * 10**18})' in run(ACCT, 'plan', 'memory', '--params', '9e18', '--recipe', 'megatron').stdout
    for form in ('text', 'markdown'):
        out = run(ACCT, 'plan', 'flops', 'matmul', '9e18', 1, 1, '--format', form).stdout
        assert out.count(f'31.23 EiB ({36 * 10**18})') == 2 and f'({72 * 10**18 + 4})' in out, form


def test_formulas_make_their_values():
    """The numbers of each term's formula, and no others, give its bytes."""
    model = 'layers=8,dim=512,heads=8,seq=256,batch=4,vocab=1024'
    spread = ['--gpus', '16', '--tp', '2', '--pp', '2']
    asked = [['--params', '13B', '--recipe', 'megatron', '--gpus', '8', '--zero', '2'], ['--params', '7B', '--recipe', 'inference-int4'],
             ['--model', 'kind=linear,layers=6,dim=256,batch=32', '--recipe', 'fp32-momentum'],
             ['--model', model + ',kv_heads=4', '--recipe', 'inference-fp8', '--kv-dtype', 'fp16', '--gpus', '2', '--tp', '2']]
    asked += [['--model', model + more, '--recipe', 'megatron', '--recompute', how, *parallel] for how in ('none', 'selective', 'full') for more in ('', ',ff=1536,gated=yes,kv_heads=4')
              for parallel in ([], ['--no-dropout'], spread, [*spread, '--sequence-parallel', '--zero', '1'])]
    for words in asked:
        terms = {k: v for k, v in plan(*words)['results'].items() if v['unit'] == 'bytes' and k != 'total' and v['formula'] != 'the recipe has none'}
        assert len(terms) >= 1
        for k, v in terms.items():
            numbers = re.sub(r'\b(?!x\b)[A-Za-z][A-Za-z-]*', '', v['formula'].split(':')[0].replace('(ZeRO)', ''))
            assert eval(numbers.replace('x', '*')) == v['value'], (words, k, v)
