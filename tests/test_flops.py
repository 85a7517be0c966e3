"""acct flops, and what the analysis tells of N, T and the model's shape: on dry runs of the sample app against formulas and the
program's own account, and on synthetic traces. ACCOUNTING section 4 has the conventions."""
import csv, io, json, os, re, sqlite3
import pytest, report_trace
from conftest import BUILD, DEVICE, ON_GPU, run
from trace_maker import Maker

ACCT, TRAIN = (os.path.join(BUILD, p) for p in ('acct', 'train'))
L, C, H, T, B, V = 3, 64, 4, 24, 4, 256
GPT = f'--model gpt --layers {L} --dim {C} --heads {H} --seq {T} --batch {B} --steps 3'


def view(command, *args, code=0):
    r = run(ACCT, command, '--format', 'json', *args)
    assert r.returncode == code, r.stderr
    return json.loads(r.stdout) if not code else r.stderr


def dry(tmp_path, options):
    """A run on a model of an H100 that executes nothing; the program's own account of it."""
    db, truth = tmp_path / 'a.db', tmp_path / 'truth.json'
    r = run(ACCT, 'run', '--vgpu=h100-sxm', '--dry', '-o', db, '--', TRAIN, *options.split(), '--truth', truth)
    assert r.returncode == 0, r.stderr
    return db, json.load(open(truth))


def facts(j):
    return {f['fact']: f['value'] for f in j['model']}


def terms(j):
    return {t['term']: t['flops'] for t in j['flops_difference']['terms']}


def ways(j):
    return {w['name']: w['flops'] for w in j['conventions']['ways']}


def expected(untied=False, recompute=False, k=1):
    """Facts and terms of the sample app's GPT, by its formulas."""
    tokens, attention = k * B * T, 4 * k * B * T * T * C * L                        # 2 products a layer, 2·T·T·C a sequence
    layer, norms = 12 * C * C, L * 13 * C + 2 * C                                   # biases 9C, two layernorms 4C; the last one
    n = V * C + T * C + L * layer + norms + untied * V * C
    f = {'6n': 6 * n * tokens, 'lookup tables': -6 * V * C * tokens * untied, 'position table': -6 * T * C * tokens,
         'parameters in no product': -6 * norms * tokens, 'attention forward': attention, 'attention backward': 2 * attention,
         'recompute': recompute * (2 * (layer - 4 * C * C) * L * tokens), 'recompute attention': recompute * attention}
    f['executed'] = sum(f.values())
    f = {t: v for t, v in f.items() if v}
    return dict(parameters=n, in_products=V * C + L * layer, lookup=V * C * untied, position=T * C, other=norms, tied=V * C * (not untied), frozen=0,
                tokens=tokens, attention=1, layers=L, heads=H, head_size=C // H, context=T, sequences=B), {**f, 'unexplained': 0}


# ---- the sample app ------------------------------------------------------------------------------------------------------

@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
@pytest.mark.parametrize('options', ['', '--untied', '--recompute full', '--accum 3', '--accum 2 --recompute full --untied --dtype bf16', '--dtype fp8 --alloc pool',
                                     '--dtype fp16 --alloc class --untied', '--alloc step --zero-grad none --accum 2', '--eval-every 1 --clip 1'])
def test_every_term_of_the_gpt(tmp_path, options):
    db, truth = dry(tmp_path, f'{GPT} {options}')
    k = int(re.search(r'--accum (\d)|$', options).group(1) or 1)
    want, sum_ = expected('--untied' in options, '--recompute' in options, k)
    j = view('flops', db)
    assert facts(j) == want and want['parameters'] == truth['parameters']
    assert terms(j) == sum_
    assert list(terms(j))[0] == '6n' and list(terms(j))[-2:] == ['unexplained', 'executed']
    own = truth['steps'][-1]['flops']
    assert sum_['executed'] == own['forward'] + own['backward'] + own['recompute']
    assert sum_['executed'] - own['recompute'] == truth['flops_per_step']
    for s in j['steps']:
        parts = {p['part']: p['flops'] for p in s['products']}
        assert sum(parts.values()) == s['flops']['gemm'] == sum_['executed']
        assert parts['forward'] == parts['input gradient'] == parts['weight gradient'] == 2 * want['in_products'] * want['tokens']
    if 'eval' in options:
        assert j['totals']['evaluation'] > 0 and {'evaluation'} <= {r['phase'] for r in j['outside']}
    r = view('report', db)
    assert (r['conventions'], r['flops_difference']) == (j['conventions'], j['flops_difference'])


@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
def test_conventions_of_gpt_2(tmp_path):
    """ACCOUNTING's table, MFLOP a token at T = 1024 and V = 50257."""
    (tmp_path / 'text').write_bytes(b'ab' * 20000)
    db, truth = dry(tmp_path, f'--model gpt --layers 12 --dim 768 --heads 12 --seq 1024 --batch 1 --vocab 50257 --steps 2 --data {tmp_path}/text')
    j = view('flops', db)
    table = {'6n': 746.6, '6n-matmul': 741.2, '6n-matmul+causal': 797.8, 'causal': 803.3, '6n-matmul+attention': 854.4, 'palm-position': 855.2, 'palm': 859.9}
    got = {w['name']: w for w in j['conventions']['ways']}
    assert {n: round(got[n]['flops_per_token'] / 1e6, 1) for n in table} == table
    n, tokens, attention = 124439808, 1024, 12 * 12 * 64 * 1024 * 1024
    assert got['palm']['formula'] == '6 x 124439808 x 1024 + 12 x 12 x 12 x 64 x 1024 x 1024'
    assert got['palm']['flops'] == 6 * n * tokens + 12 * attention and got['causal']['flops'] == 6 * n * tokens + 6 * attention
    assert got['executed']['flops'] == truth['flops_per_step'] == got['6n-matmul+attention']['flops']
    assert terms(j)['unexplained'] == 0
    s = j['conventions']
    r = view('report', db)['steps'][s['step']]
    assert got['palm']['mfu'] == pytest.approx(r['mfu'] * got['palm']['flops'] / truth['flops_per_step'])
    assert r['mfu_by_convention'] == {n: pytest.approx(got[n]['mfu']) for n in ('6n', '6n-matmul', 'palm', 'causal')}


@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
@pytest.mark.parametrize('steps', [1, 3])
def test_the_lectures_linear_model(tmp_path, steps):
    """No attention is possible: palm and causal are 6n. The first layer's input needs no gradient."""
    D, layers, rows = 48, 5, 20
    db, truth = dry(tmp_path, f'--model linear --layers {layers} --dim {D} --batch {rows} --steps {steps}')
    j, n = view('flops', db), D * D * layers
    assert terms(j) == {'6n': 6 * n * rows, 'first input gradient': -2 * D * D * rows, 'unexplained': 0, 'executed': truth['flops_per_step']}
    assert facts(j)['attention'] == 0 and facts(j)['parameters'] == n and facts(j)['tokens'] == rows
    got = ways(j)
    assert {got[w] for w in got if w != 'executed'} == {6 * n * rows} and got['executed'] == truth['flops_per_step']


@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
def test_formats_agree(tmp_path):
    db, _ = dry(tmp_path, GPT)
    j = view('flops', db)
    rows = {r[0]: r[1] for r in csv.reader(io.StringIO(run(ACCT, 'flops', '-f', 'csv', db).stdout))}
    assert int(rows['flops_difference.terms[0].flops']) == terms(j)['6n'] and int(rows['totals.gemm']) == j['totals']['gemm']
    text = run(ACCT, 'flops', db, env={'LC_ALL': 'C.UTF-8'}).stdout
    for words in ('6n against what ran (step 2)', 'FLOPs of a step by convention (step 2, 96 tokens or samples)', 'Step 2: matrix products by what they are for',
                  'The model, as the trace tells it', 'L, layers'):
        assert words in text
    one = view('flops', '--step', '1', db)
    assert [s['index'] for s in one['steps']] == [1] and [s['index'] for s in j['steps']] == [0, 1, 2]
    assert 'no step 7' in view('flops', '--step', '7', db, code=1)


@pytest.mark.parametrize('program,options', [('train_moulds', 'tied=1 layers=2 accum=3 zero=memset'), ('train_moulds', 'frozen=1 update=momentum'), ('train_moulds', 'checkpoint=1 eval=1'),
                                             ('train_lt', 'update=momentum'), ('train_own_products', 'accum=3'), ('train_own_products', 'layers=4 dim=48 rows=24')])
def test_programs_of_other_moulds(tmp_path, program, options):
    """Nothing is left unexplained, and what ran is what the program says (its own kernels' forward products are no matrix products)."""
    db = tmp_path / 'a.db'
    r = run(ACCT, 'run', '--vgpu', '-o', db, '--', os.path.join(BUILD, 'tests', program), *options.split())
    assert r.returncode == 0, r.stderr
    own, j = json.loads(r.stdout)['steps'], view('flops', db)
    got, s = terms(j), own[j['flops_difference']['step']]
    assert got['unexplained'] == 0 and sum(v for t, v in got.items() if t != 'executed') == got['executed']
    assert got['executed'] == s['backward'] + s['forward'] * (program != 'train_own_products')
    assert ('own kernels' in got) == (program == 'train_own_products') and got.get('own kernels', -s['forward']) == -s['forward']


@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
def test_the_users_products_are_a_term_of_their_own(tmp_path):
    db, truth = dry(tmp_path, GPT)
    (tmp_path / 'prices').write_text('name=gelu_kernel* flops=1000 matmul=1 dtype=bf16 override\n')
    j, plain = view('flops', '--flops-rules', tmp_path / 'prices', db), view('flops', db)
    assert terms(j) == {**terms(plain), "user's rules": 1000 * L, 'executed': truth['flops_per_step'] + 1000 * L}
    assert {n: f for n, f in ways(j).items() if n != 'executed'} == {n: f for n, f in ways(plain).items() if n != 'executed'}
    r, own = view('report', '--flops-rules', tmp_path / 'prices', db)['steps'][1], view('report', db)['steps'][1]
    assert r['flops']['gemm'] - own['flops']['gemm'] == 1000 * L and r['flops']['grade'] == 'user' and own['flops']['grade'] == 'bound'
    assert r['mfu'] > own['mfu']
    assert any('include what the user' in n for n in j['notes'])


# ---- synthetic programs --------------------------------------------------------------------------------------------------

BASE, HOST, SIZE = 0x7f0000000000, 0x550000000000, {'fp32': 4, 'bf16': 2}


def each(w):
    return list(w) if isinstance(w, tuple) else [w]


class Program:
    """A chain of linear layers D × D on B rows, trained by SGD: `use` is the weight of each layer in turn, so that a weight may be
    used several times; frozen ones have no gradient. turns: another chain for every second step. last_type: of the last weight, and
    of what it multiplies. bias: one of the last layer. Several weights in the place of one share the rows: experts."""

    def __init__(self, path, use, frozen=(), turns=None, last_type='fp32', bias=False, D=64, B=16, steps=6):
        self.t, self.D, self.B, self.next = Maker(path), D, B, BASE
        self.types = ['fp32'] * max(sum(map(each, use + (turns or [])), [])) + [last_type]
        self.layer = [self.types[each(w)[0]] for w in use] + [last_type]                  # type of what layer i takes
        self.W, self.g = ([self.take(D * D * SIZE[ty]) for ty in self.types] for _ in range(2))
        self.h = [self.take(D * B * SIZE[ty]) for ty in self.layer]              # the first is the batch
        self.d = [self.take(D * B * SIZE[ty]) for ty in self.layer]              # gradients of h
        self.bias = [self.take(4 * D) for _ in range(2)] if bias else None       # parameter, gradient
        if bias:
            self.t.memset(self.bias[0], 4 * D)
        for w, ty in zip(self.W, self.types):
            self.t.copy('h2d', w, HOST, D * D * SIZE[ty])
        for i in range(steps):
            self.step(turns if turns and i % 2 else use, frozen)
        self.path = self.t.close()

    def take(self, n):
        a, self.next = self.next, self.next + (n + 511) // 256 * 256
        self.t.alloc(a, n)
        return a

    def product(self, a, b, c, m, n, k, ta='N', tb='N', ty='fp32', to=None, beta='zero'):
        self.t.gemm(trans_a=ta, trans_b=tb, m=m, n=n, k=k, a=a, b=b, c=c, lda=m if ta == 'N' else k, ldb=k if tb == 'N' else n, ldc=m,
                    a_type=ty, b_type=ty, c_type=to or ty, beta=beta)

    def parts(self, i, w, addresses):
        """The weights of layer i, and for each the addresses of its rows."""
        n = self.D * (self.B // len(each(w))) * SIZE[self.layer[i]]
        return [(x, *(a + j * n for a in addresses)) for j, x in enumerate(each(w))]

    def step(self, use, frozen):
        D, B, h, d, ty = self.D, self.B, self.h, self.d, self.layer
        self.t.copy('h2d', h[0], HOST, D * B * SIZE[ty[0]])
        for i, w in enumerate(use):
            for x, at, to in self.parts(i, w, (h[i], h[i + 1])):
                self.product(self.W[x], at, to, D, B // len(each(w)), D, ty=ty[i], to=ty[i + 1])
        last = D * B * SIZE[ty[-1]]
        if self.bias:
            self.t.launch('add_bias', [(self.bias[0], 'r', 4 * D), (h[-1], 'rw', last)])
        self.t.launch('loss', [(h[-1], 'r', last), (h[0], 'r', D * B * SIZE[ty[0]]), (d[-1], 'w', last)])
        if self.bias:
            self.t.launch('sum_rows', [(d[-1], 'r', last), (self.bias[1], 'w', 4 * D)])
        seen = set()
        for i in reversed(range(len(use))):
            for w, dout, dx, at in self.parts(i, use[i], (d[i + 1], d[i], h[i])):
                rows = B // len(each(use[i]))
                if i and set(sum(map(each, use[:i]), [])) - set(frozen):
                    self.product(self.W[w], dout, dx, D, rows, D, 'T', ty=ty[i])
                if w not in frozen:
                    self.product(dout, at, self.g[w], D, D, rows, 'N', 'T', ty=ty[i], beta='one' if w in seen else 'zero')
                seen.add(w)
        if self.bias:
            self.t.launch('update', [(self.bias[1], 'r', 4 * D), (self.bias[0], 'rw', 4 * D)])
        for w in sorted(set(sum(map(each, use), [])) - set(frozen)):
            n = D * D * SIZE[self.types[w]]
            self.t.launch('update', [(self.g[w], 'r', n), (self.W[w], 'rw', n)])


def test_a_frozen_upper_layer(tmp_path):
    """Its input's gradient is needed, its own is not."""
    D, rows = 64, 16
    j = view('flops', Program(tmp_path / 'a.db', [0, 1, 2], frozen=[1]).path)
    one = 2 * D * D * rows
    assert terms(j) == {'6n': 9 * one, 'first input gradient': -one, 'frozen weights': -one, 'unexplained': 0, 'executed': (3 + 2 + 2) * one}
    assert facts(j)['frozen'] == D * D and facts(j)['parameters'] == 3 * D * D


def test_frozen_lower_layers(tmp_path):
    """Nothing below the first trained layer needs a gradient of its input."""
    one = 2 * 64 * 64 * 16
    j = view('flops', Program(tmp_path / 'a.db', [0, 1, 2, 3], frozen=[0, 1]).path)
    assert terms(j) == {'6n': 12 * one, 'input gradients': -3 * one, 'frozen weights': -2 * one, 'unexplained': 0, 'executed': (4 + 1 + 2) * one}


def test_a_weight_that_is_used_three_times(tmp_path):
    """Counted once in N, three times in what ran."""
    one = 2 * 64 * 64 * 16
    j = view('flops', Program(tmp_path / 'a.db', [0, 1, 1, 1, 2]).path)
    assert facts(j)['parameters'] == 3 * 64 * 64
    assert terms(j) == {'6n': 9 * one, 'first input gradient': -one, 'other rows': 6 * one, 'unexplained': 0, 'executed': (5 + 5 + 4) * one}


def test_experts_share_the_tokens(tmp_path):
    """6n counts each for all of them: two experts do the work of one layer."""
    one = 2 * 64 * 64 * 16
    j = view('flops', Program(tmp_path / 'a.db', [0, (1, 2), 3]).path)
    assert facts(j)['parameters'] == 4 * 64 * 64 and facts(j)['tokens'] == 16
    assert terms(j) == {'6n': 12 * one, 'first input gradient': -one, 'other rows': -3 * one, 'unexplained': 0, 'executed': 8 * one}


def test_elements_of_two_sizes(tmp_path):
    """Each weight's number of elements is that of the products which read it. Of parameters in no product nothing is known then."""
    one = 2 * 64 * 64 * 16
    j = view('flops', Program(tmp_path / 'a.db', [0, 1, 2], last_type='bf16').path)
    assert facts(j)['parameters'] == facts(j)['in_products'] == 3 * 64 * 64 and ways(j)['6n'] == 9 * one
    j = view('flops', Program(tmp_path / 'b.db', [0, 1, 2], last_type='bf16', bias=True).path)
    assert facts(j)['parameters'] is None and facts(j)['in_products'] == 3 * 64 * 64
    assert terms(j) == {'6n-matmul': 9 * one, 'first input gradient': -one, 'unexplained': 0, 'executed': 8 * one}
    lacks = {w['name']: w['lacks'] for w in j['conventions']['ways']}
    assert lacks['6n'] == 'parameters' and lacks['6n-matmul'] is None and any(n.startswith('6n is not known') for n in j['notes'])
    j = view('flops', Program(tmp_path / 'c.db', [0, 1, 2], bias=True).path)
    assert facts(j)['other'] == 64 and terms(j)['parameters in no product'] == -6 * 64 * 16


def test_an_inference_has_no_6n(tmp_path):
    t = Maker(tmp_path / 'a.db')
    for i in range(4):
        t.alloc(BASE + i * 65536, 16384)
    for i in range(2):
        t.copy('h2d', BASE + i * 65536, HOST, 16384)
    for _ in range(6):
        t.copy('h2d', BASE + 2 * 65536, HOST, 16384)
        for i, (a, b) in enumerate(((2, 3), (3, 2))):
            t.gemm(m=64, n=64, k=64, a=BASE + i * 65536, b=BASE + a * 65536, c=BASE + b * 65536, lda=64, ldb=64, ldc=64)
    j = view('flops', t.close())
    assert j['totals']['gemm'] == 12 * 2 * 64**3 and j['flops_difference']['terms'] == [] and j['conventions']['ways'] == []


def test_models_that_take_turns_have_no_n(tmp_path):
    """A step reads only one of them."""
    j = view('flops', Program(tmp_path / 'a.db', [2, 3], turns=[0, 1]).path)
    assert len(j['steps']) == 6 and facts(j)['parameters'] is None and j['flops_difference']['terms'] == []
    assert any('take turns' in n for n in j['notes'])


def test_many_steps_are_one_pass(tmp_path):
    """20,000 steps: a look at all ops for each of them would take minutes."""
    t = report_trace.Trace(tmp_path / 'a.db')
    for s in range(20000):
        t.step(s, 100 * s, 100 * s + 99, [('forward', 'fp32', 10 + s, 1), ('backward', 'fp32', 20, 1)])
    r = run(ACCT, 'flops', '-f', 'json', t.close(), timeout=30)
    steps = json.loads(r.stdout)['steps']
    assert [s['index'] for s in steps] == list(range(20000))
    assert all([(x['phase'], x['gemm']) for x in s['rows']] == [('forward', 10 + s['index']), ('backward', 20)] for s in steps)
