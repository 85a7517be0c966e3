"""Faults that people reported of other tools' FLOP and byte counts, as tests with the right value: the cases of kinds flops/*, bytes/*,
overflow/* and integer/* whose input a program on cuBLAS can have. Numbers are the cases'; a convolution is the product that im2col makes
of it, since convolutions inside cuDNN are not recorded. The cases on recordings of other tools (5, 6 in part, 8's trace) are not here."""
import json, os, re, sqlite3
import pytest
from conftest import BUILD, ON_GPU, run
from trace_maker import Maker

ACCT, TRAIN = (os.path.join(BUILD, p) for p in ('acct', 'train'))
BASE, HOST = 0x7f0000000000, 0x550000000000


class Calls(Maker):
    """Operands get memory by themselves."""

    def __init__(self, path, **kw):
        super().__init__(path, **kw)
        self.next = BASE

    def take(self, n):
        a, self.next = self.next, self.next + (int(n) + 511) // 512 * 512
        self.alloc(a, int(n))
        return a

    def mm(self, m, n, k, size=4, **v):
        """C (m, n) = A (m, k) · B (k, n), each in memory of its own."""
        batch = v.get('batch', 1)
        v = dict(a=self.take(max(1, m * k * batch * size)), b=self.take(max(1, k * n * batch * size)), c=self.take(max(1, m * n * batch * size)), **v)
        return self.gemm(m=m, n=n, k=k, lda=max(1, m), ldb=max(1, k), ldc=max(1, m), **v)


def costs(path, columns='flops'):
    """op_cost of the products in the order of the program; the analysis is acct's."""
    r = run(ACCT, 'analyze', '-q', path)
    assert r.returncode == 0, r.stderr
    db = sqlite3.connect(path)
    rows = db.execute(f"SELECT {columns} FROM op_cost c JOIN op ON op.id = c.op WHERE op.kind IN ('gemm', 'blas') ORDER BY op.id").fetchall()
    db.close()
    return [r[0] for r in rows] if ',' not in columns else rows


def view(path, *args):
    r = run(ACCT, 'flops', '-f', 'json', *args, path)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


# ---- convolutions, as products ----------------------------------------------------------------------------------------------

def test_case_1_500_iterations_are_500_times_one(tmp_path):
    """ConvTranspose2d(192, 384, 2×2, stride 2) of (6, 192, 30, 96): each input position times the whole filter; the sum is no sum of sums."""
    t, one = Calls(tmp_path / 'a.db'), 10192158720
    w, x, y, g = t.take(192 * 384 * 4 * 4), t.take(6 * 192 * 2880 * 4), t.take(6 * 384 * 4 * 2880 * 4), t.take(192 * 384 * 4 * 4)
    m, n, k = 384 * 4, 6 * 30 * 96, 192
    assert 2 * m * n * k == one
    for _ in range(500):
        t.gemm(m=m, n=n, k=k, a=w, b=x, c=y, lda=m, ldb=k, ldc=m)
        t.gemm(trans_a='T', m=k, n=n, k=m, a=w, b=y, c=x, lda=m, ldb=m, ldc=k)
        t.gemm(trans_b='T', m=m, n=k, k=n, a=y, b=x, c=g, lda=m, ldb=k, ldc=m)
    path = t.close()
    f = costs(path)
    assert f == [one] * 1500 and sum(f[0::3]) == 5096079360000 and sum(f[1::3]) + sum(f[2::3]) == 10192158720000
    assert view(path)['totals']['gemm'] == 3 * 5096079360000


def test_case_3_groups_divide_once(tmp_path):
    """Conv2d 64 → 128, 3×3, groups 4, on (1, 64, 56, 56); depthwise 32 channels on 112×112."""
    t = Calls(tmp_path / 'a.db')
    t.mm(32, 56 * 56, 16 * 9, batch=4, stride_a=32 * 144, stride_b=144 * 3136, stride_c=32 * 3136)
    t.mm(1, 112 * 112, 9, batch=32, stride_a=9, stride_b=9 * 12544, stride_c=12544)
    assert costs(t.close()) == [115605504, 7225344]


def test_case_4_output_size_is_output_size(tmp_path):
    """The stem of ResNet: (32, 3, 224, 224), 64 filters 7×7, stride 2, pad 3."""
    t = Calls(tmp_path / 'a.db')
    side = (224 + 2 * 3 - 7) // 2 + 1
    t.mm(64, side * side, 3 * 49, batch=32, stride_a=0, stride_b=147 * side**2, stride_c=64 * side**2)
    assert costs(t.close()) == [7552892928]


# ---- attention ----------------------------------------------------------------------------------------------------------------

def attention(t, sequences, heads, length, size):
    batch = sequences * heads
    for m, n, k in ((length, length, size), (size, length, length)):
        t.mm(m, n, k, batch=batch, stride_a=m * k, stride_b=k * n, stride_c=m * n)


@pytest.mark.parametrize('shape,flops', [((2, 5, 9, 4), 12960), ((1, 12, 64, 64), 12582912), ((16, 16, 559, 64), 20478754816)])
def test_cases_6_7_8_attention(tmp_path, shape, flops):
    """4·B·H·S²·D, all of it: what a causal mask would leave out is a convention's matter. (The third: layout B, S, H, D.)"""
    t = Calls(tmp_path / 'a.db')
    attention(t, *shape)
    assert sum(costs(t.close())) == flops


def test_case_6_a_product_beside_attention(tmp_path):
    t = Calls(tmp_path / 'a.db')
    t.mm(9, 9, 4)
    assert costs(t.close()) == [648]


def test_case_7_attention_that_is_not_known_is_said(tmp_path):
    t = Calls(tmp_path / 'a.db')
    t.launch_kernel(t.kernel('_scaled_dot_product_flash_attention_for_cpu', [[0, 8]]), t.take(64).to_bytes(8, 'little'))
    j = view(t.close())
    assert j['totals']['flops'] is None and [u['name'] for u in j['coverage']['uncounted']] == ['_scaled_dot_product_flash_attention_for_cpu']


class Transformer(Calls):
    """Products of a decoder's training steps, one gated MLP a layer; no softmax, norms, biases: they multiply nothing."""

    def __init__(self, path, L, C, ff, V, H, S, B, steps=3):
        super().__init__(path)
        self.n_rows, self.S, self.H, self.cores = B * S, S, H, B * H
        self.act = {}
        shapes = [(3 * C, C), (C, C), (ff, C), (ff, C), (C, ff)] * L + [(V, C)]
        self.W = [self.take(4 * m * k) for m, k in shapes]
        self.g = [self.take(4 * m * k) for m, k in shapes]
        self.shape, self.L, self.C, self.ff = shapes, L, C, ff
        for w, (m, k) in zip(self.W, shapes):
            self.copy('h2d', w, HOST, 4 * m * k)
        self.x = self.take(4 * C * self.n_rows)
        for _ in range(steps):
            self.step()
        self.path = self.close()

    def at(self, name, n):
        if name not in self.act:
            self.act[name] = self.take(4 * n)
        return self.act[name]

    def linear(self, i, x, name):
        m, k = self.shape[i]
        y = self.at(name, m * self.n_rows)
        self.gemm(m=m, n=self.n_rows, k=k, a=self.W[i], b=x, c=y, lda=m, ldb=k, ldc=m)
        return y

    def linear_backward(self, i, dy, x, name, first=False):
        m, k = self.shape[i]
        self.gemm(trans_b='T', m=m, n=k, k=self.n_rows, a=dy, b=x, c=self.g[i], lda=m, ldb=k, ldc=m)
        if first:
            return None
        dx = self.at('d' + name, k * self.n_rows)
        self.gemm(trans_a='T', m=k, n=self.n_rows, k=m, a=self.W[i], b=dy, c=dx, lda=m, ldb=m, ldc=k)
        return dx

    def core(self, m, n, k, a, b, c, ta='N', tb='N'):
        self.gemm(trans_a=ta, trans_b=tb, m=m, n=n, k=k, a=a, b=b, c=c, lda=m if ta == 'N' else k, ldb=k if tb == 'N' else n, ldc=m, batch=self.cores,
                  stride_a=m * k, stride_b=k * n, stride_c=m * n)

    def step(self):
        S, Q, C, ff, rows, size = self.S, self.C // self.H, self.C, self.ff, self.n_rows, self.C * self.n_rows
        self.copy('h2d', self.x, HOST, 4 * size)
        x, saved = self.x, []
        for l in range(self.L):
            i, n = 5 * l, f'{l}'
            qkv = self.linear(i, x, 'qkv' + n)
            q, k, v = qkv, qkv + 4 * size, qkv + 8 * size
            att, y = self.at('att' + n, self.cores * S * S), self.at('y' + n, size)
            self.core(S, S, Q, k, q, att, 'T')
            self.core(Q, S, S, v, att, y)
            o = self.linear(i + 1, y, 'o' + n)
            a, b = self.linear(i + 2, o, 'gate' + n), self.linear(i + 3, o, 'up' + n)
            h = self.at('h' + n, ff * rows)
            self.launch('multiply', [(a, 'r', 4 * ff * rows), (b, 'r', 4 * ff * rows), (h, 'w', 4 * ff * rows)])
            saved.append((x, qkv, att, y, o, a, b, h))
            x = self.linear(i + 4, h, 'x' + n)
        last = 5 * self.L
        logits = self.linear(last, x, 'logits')
        n = 4 * self.shape[last][0] * rows
        dl = self.at('dlogits', n // 4)
        self.launch('loss', [(logits, 'r', n), (dl, 'w', n)])
        d = self.linear_backward(last, dl, x, 'x')
        for l in reversed(range(self.L)):
            i = 5 * l
            x, qkv, att, y, o, a, b, h = saved[l]
            q, k, v = qkv, qkv + 4 * size, qkv + 8 * size
            dh = self.linear_backward(i + 4, d, h, 'h')
            da, db = self.at('da', ff * rows), self.at('db', ff * rows)
            self.launch('multiply_backward', [(dh, 'r', 4 * ff * rows), (a, 'r', 4 * ff * rows), (b, 'r', 4 * ff * rows), (da, 'w', 4 * ff * rows), (db, 'w', 4 * ff * rows)])
            d1, d2 = self.linear_backward(i + 2, da, o, 'o1'), self.linear_backward(i + 3, db, o, 'o2')
            do = self.at('do', size)
            self.launch('add', [(d1, 'r', 4 * size), (d2, 'r', 4 * size), (do, 'w', 4 * size)])
            dy = self.linear_backward(i + 1, do, y, 'y')
            datt, dqkv = self.at('datt', self.cores * S * S), self.at('dqkv', 3 * size)
            self.core(S, S, Q, v, dy, datt, 'T')
            self.core(Q, S, S, dy, att, dqkv + 8 * size, 'N', 'T')
            self.core(Q, S, S, k, datt, dqkv)
            self.core(Q, S, S, q, datt, dqkv + 4 * size, 'N', 'T')
            d = self.linear_backward(i, dqkv, x, 'first', first=not l)
        for w, g, (m, k) in zip(self.W, self.g, self.shape):
            self.blas('axpy', 'cublasSaxpy_v2', n=m * k, a=g, b=w, lda=1, ldb=1, alpha='value')


@pytest.mark.parametrize('S,weights,full,causal', [(8192, 1299004268740608, 422212465065984, 211106232532992), (129024, None, 104735.08e12, 52367.54e12)])
def test_case_10_full_or_half_attention(tmp_path, S, weights, full, causal):
    """Llama-2 7B, 4 sequences a device: each convention by its name."""
    L, C, ff, V = 32, 4096, 11008, 32000
    n = L * (4 * C * C + 3 * C * ff) + V * C
    assert n == 6607077376
    j = view(Transformer(tmp_path / 'a.db', L, C, ff, V, 32, S, 4).path)
    f = {x['fact']: x['value'] for x in j['model']}
    assert (f['in_products'], f['layers'], f['heads'], f['head_size'], f['context'], f['sequences'], f['tokens']) == (n, L, 32, 128, S, 4, 4 * S)
    w = {x['name']: x['flops'] for x in j['conventions']['ways']}
    if weights:
        assert w['6n-matmul'] == weights and w['6n-matmul+attention'] - weights == full and w['6n-matmul+causal'] - weights == causal
    assert w['6n-matmul+attention'] - w['6n-matmul'] == pytest.approx(full, rel=1e-7) and w['6n-matmul+causal'] - w['6n-matmul'] == pytest.approx(causal, rel=1e-7)
    terms = {x['term']: x['flops'] for x in j['flops_difference']['terms']}
    assert terms == {'6n': 6 * n * 4 * S, 'first input gradient': -2 * 3 * C * C * 4 * S, 'attention forward': 4 * 4 * L * S * S * C, 'attention backward': 8 * 4 * L * S * S * C,
                     'unexplained': 0, 'executed': w['executed']}


@pytest.mark.skipif(ON_GPU, reason='dry runs are of the virtual GPU')
@pytest.mark.parametrize('untied', [False, True])
def test_case_11_the_head_multiplies_the_embedding_does_not(tmp_path, untied):
    """GPT-2 124M with a padded vocabulary. Memory and parameters count a tied table once, FLOPs go by the operation."""
    V, C, T = 50304, 768, 1024
    (tmp_path / 'text').write_bytes(b'ab' * 20000)
    r = run(ACCT, 'run', '--vgpu=h100-sxm', '--dry', '-o', tmp_path / 'a.db', '--', TRAIN, *f'--layers 12 --dim {C} --heads 12 --seq {T} --batch 1 --vocab {V} --steps 2 '
            f'--data {tmp_path}/text'.split(), *(['--untied'] if untied else []))
    assert r.returncode == 0, r.stderr
    j = view(tmp_path / 'a.db')
    f = {x['fact']: x['value'] for x in j['model']}
    assert f['parameters'] == 124475904 + untied * V * C and f['tied'] == V * C * (not untied) and f['lookup'] == V * C * untied
    db = sqlite3.connect(tmp_path / 'a.db')
    head, = db.execute("SELECT DISTINCT c.flops FROM op_cost c JOIN gemm g ON g.id = c.op WHERE g.m = ? AND c.phase = 'forward'", (V,)).fetchall()
    assert head[0] == 77266944 * T
    embed = db.execute("SELECT DISTINCT c.flops, c.matmul_flops FROM op_cost c JOIN launch l ON l.op = c.op JOIN kernel k ON k.id = l.kernel "
                       "WHERE k.demangled LIKE '%embed_kernel%' OR k.demangled LIKE 'void embed%' AND k.demangled NOT LIKE '%backward%'").fetchall()
    assert embed and all(products == 0 for _, products in embed)
    assert {x['part']: x['flops'] for x in j['steps'][1]['products']}['forward'] == 2 * 123568128 * T     # 38633472 of the head, 84934656 of the layers


# ---- products -------------------------------------------------------------------------------------------------------------------

def test_case_12_three_uses_of_a_shared_weight(tmp_path):
    t = Calls(tmp_path / 'a.db')
    w, x, y = t.take(40000), t.take(1200), t.take(1200)
    for i in range(3):
        t.gemm(m=100, n=1, k=100, a=w, b=x + 400 * i, c=y + 400 * i, lda=100, ldb=100, ldc=100)
    assert sum(costs(t.close())) == 60000


def test_case_13_vectors_broadcast_batches_and_bias(tmp_path):
    """MACs 8, 32, 960; a bias is not counted among a product's FLOPs."""
    t = Calls(tmp_path / 'a.db')
    t.blas('dot', 'cublasSdot_v2', n=8, a=t.take(32), b=t.take(32), c=t.take(4), lda=1, ldb=1)
    t.blas('gemv', 'cublasSgemv_v2', m=4, n=8, trans_a='N', a=t.take(128), b=t.take(32), c=t.take(16), lda=4, ldb=1, ldc=1, alpha='one', beta='zero')
    t.mm(5, 4, 8, batch=6, stride_a=0, stride_b=32, stride_c=20)
    t.mm(16, 4, 8, epilogue='bias', bias=t.take(64), bias_length=16, bias_type='fp32')
    assert costs(t.close()) == [2 * 8, 2 * 32, 2 * 960, 1024]


def test_case_14_the_inner_dimension(tmp_path):
    t = Calls(tmp_path / 'a.db')
    t.mm(25, 9, 16)
    assert costs(t.close()) == [7200]


def test_case_15_complex_products(tmp_path):
    """8·m·n·k real FLOPs; neither runs at a real format's peak."""
    t = Calls(tmp_path / 'a.db')
    for ty, compute, size in (('complex64', 'fp32', 8), ('complex128', 'fp64', 16)):
        t.mm(1024, 1024, 1024, size=size, a_type=ty, b_type=ty, c_type=ty, compute=compute)
    assert costs(t.close()) == [8589934592] * 2


def test_case_16_every_group_counts(tmp_path):
    """DeepGEMM's rows by expert; groups without rows add nothing, and are no error."""
    rows = [4, 1026, 1799, 166, 694, 753, 0, 16, 0, 240, 1119, 19, 6, 0, 46, 659, 10, 0, 112, 808, 181, 0, 28, 22, 90, 0, 176, 0, 37, 5, 10, 22]
    t, N, K = Calls(tmp_path / 'a.db'), 4096, 2048
    i = t.gemm(m=rows[0], n=N, k=K, a=BASE, b=BASE, c=BASE, lda=2048, ldb=K, ldc=2048, pointer_array=1)
    first = t.rows['gemm'][-1]
    from trace_maker import FIELDS
    m = 2 + [f for f, _ in FIELDS['gemm']].index('m')
    for j, r in enumerate(rows[1:]):
        row = list(first)
        row[0], row[m] = 10**6 + j, r
        t.rows['gemm'].append(row)
    assert sum(rows) == 8048 and i == 0
    assert costs(t.close()) == [135023034368]


def test_case_17_a_stride_of_0(tmp_path):
    """FLOPs of every product, bytes of the matrix once."""
    t = Calls(tmp_path / 'a.db')
    t.mm(64, 64, 64, batch=100, stride_a=4096, stride_b=0, stride_c=4096)
    (flops, read, written), = costs(t.close(), 'flops, bytes_read, bytes_written')
    assert flops == 52428800 and read + written == 3293184


def test_case_18_nothing_to_multiply(tmp_path):
    t = Calls(tmp_path / 'a.db')
    t.mm(0, 100, 100)
    t.mm(100, 100, 100, batch=0, stride_a=10000, stride_b=10000, stride_c=10000)
    t.mm(100, 100, 0, beta='value')
    t.mm(100, 100, 0, beta='one')
    path = t.close()
    assert costs(path, 'flops, bytes_read, bytes_written') == [(0, 0, 0), (0, 0, 0), (0, 40000, 40000), (0, 0, 0)]
    j = view(path)
    assert (j['totals']['flops'], j['totals']['grade'], j['coverage']['uncounted']) == (0, 'exact', [])      # counted, and none
    for command in ('report', 'ops', 'steps', 'kernels'):
        r = run(ACCT, command, path)
        assert r.returncode == 0 and 'nan' not in r.stdout.lower() and 'inf ' not in r.stdout, r.stdout


@pytest.mark.parametrize('beta,total', [('zero', 3200000), ('one', 5200000), ('value', 5200000)])
def test_case_19_what_beta_reads(tmp_path, beta, total):
    t = Calls(tmp_path / 'a.db')
    t.mm(1000, 500, 200, beta=beta)
    (read, written), = costs(t.close(), 'bytes_read, bytes_written')
    assert read + written == total and written == 2000000


def test_case_19_a_beta_on_the_device_is_not_looked_at(tmp_path):
    """Whether C is read is not known: the bytes are a bound, and their grade says so."""
    t = Calls(tmp_path / 'a.db')
    t.mm(1000, 500, 200, beta='device')
    (read, written, flops, grade), = costs(t.close(), 'bytes_read, bytes_written, flops, grade')
    assert (flops, written) == (2 * 10**8, 2000000) and 3200000 <= read + written <= 5200000 and grade == 'bound'


# ---- sizes ------------------------------------------------------------------------------------------------------------------------

def test_case_20_no_sign_in_large_counts(tmp_path):
    t = Calls(tmp_path / 'a.db')
    t.mm(2304, 4096, 768)
    t.mm(768, 4096, 768)
    assert costs(t.close()) == [2 * 7247757312, 2 * 2415919104]          # the case's MACs with the bias counted once are 2304 and 768 more


def test_case_23_bytes_beyond_2_31_elements(tmp_path):
    t = Calls(tmp_path / 'a.db')
    n = 64 * 4 * 32 * 512 * 512
    m, k = 1 << 16, n >> 16
    t.mm(m, 16, k, size=2, a_type='fp16', b_type='fp16', c_type='fp16')
    path = t.close()
    (flops, read), = costs(path, 'flops, bytes_read')
    assert n == 2147483648 and flops == 2 * 16 * n and read == 4294967296 + 2 * 16 * k
    assert sqlite3.connect(path).execute("SELECT bytes FROM op_buffer WHERE slot = 'A'").fetchall() == [(4294967296,)]


def test_case_23_flops_beyond_64_bits_are_refused(tmp_path):
    """2^67 in one product: no number, and said; 2^63 − something in two is a sum that reports can hold."""
    t = Calls(tmp_path / 'a.db')
    t.mm(1 << 22, 1 << 22, 1 << 22)
    path = t.close()
    assert costs(path) == [None]
    j = view(path)
    assert j['totals']['gemm'] is None and j['totals']['grade'] == 'uncounted'
    u, = j['coverage']['uncounted']
    assert u['launches'] == 1 and '64 bits' in u['why']
    t = Calls(tmp_path / 'b.db')
    for _ in range(3):
        t.mm(1 << 20, 1 << 20, 1 << 21)
    path = t.close()
    assert costs(path) == [2**62] * 3 and view(path)['totals']['flops'] == 3 * 2**62


def test_case_24_integer_products_are_operations(tmp_path):
    t = Calls(tmp_path / 'a.db', device_name='NVIDIA H100 80GB HBM3')
    t.mm(4096, 4096, 4096, size=1, a_type='int8', b_type='int8', c_type='int32', compute='int32')
    path = t.close()
    (flops, ops, dtype), = costs(path, 'flops, integer_ops, dtype')
    assert (flops, ops) == (0, 137438953472) and dtype == 'int8'
    j = view(path)
    assert j['totals']['flops'] == 0 and [r['integer_ops'] for s in j['steps'] for r in s['rows']] == [137438953472]
    text = run(ACCT, 'flops', path).stdout
    assert re.search(r'integer products.*\n.*ops\n.*int8.* 137438953472', text), text
