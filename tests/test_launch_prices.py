"""FLOPs and bytes of kernel launches in op_cost and in reports. Expected values are counted by hand from the kernels' source
(sample_app/gpt_kernels.cu, optimizer_kernels.cu, the kernels below); a multiply-add is 2; bytes are each operand once."""
import json, os, sqlite3, struct
import pytest
from conftest import BUILD, ON_GPU, run
from report_trace import Trace
from test_gpt_books import number, products, train
from test_launches import A, B, C, SAXPY, SAXPY_PARAMS, analysed, maker, nvcc                # noqa: F401 (a fixture)
from test_spine import TRAIN, acct_run, query, report

ACCT = os.path.join(BUILD, 'acct')


def cost(db, i):
    db.row_factory = sqlite3.Row
    return dict(db.execute('SELECT c.*, p.why FROM op_cost c LEFT JOIN price p ON p.id = c.price WHERE op = ?', (i + 1,)).fetchone())


def saxpy(t, k, n, *, a=2.0, grid=4, x=A, y=B):
    return t.launch_kernel(k, struct.pack('<ifQQ', n, a, x, y), (grid, 1, 1), (256, 1, 1))


# ---- single launches ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('options', [[], ['-G']])
def test_saxpy(tmp_path, nvcc, options):
    t = maker(tmp_path)
    k = t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY, *options))
    sizes = {saxpy(t, k, n): min(n, 1024) for n in (0, 1, 255, 256, 1000, 10**6)}
    db = analysed(t)
    for i, n in sizes.items():
        c = cost(db, i)
        assert (c['flops'], c['flops_most'], c['matmul_flops'], c['matmul']) == (2 * n, 2 * n, 0, 0)
        assert (c['bytes_read'], c['bytes_written'], c['grade'], c['why']) == (8 * n, 4 * n, 'exact', None)
        assert c['dtype'] == ('fp32' if n else None)


def test_launches_share_what_does_not_decide_their_price(tmp_path, nvcc):
    """A factor and addresses decide nothing; the length and the grid do."""
    t = maker(tmp_path)
    k = t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY))
    same = [saxpy(t, k, 1000), saxpy(t, k, 1000, a=3.0), saxpy(t, k, 1000, x=C, y=A)]
    other = [saxpy(t, k, 999), saxpy(t, k, 1000, grid=3)]
    db = analysed(t)
    prices = [cost(db, i)['price'] for i in same + other]
    assert len(set(prices[:3])) == 1 and len(set(prices)) == 3
    assert db.execute('SELECT count(*) FROM price').fetchone()[0] == 3
    assert [cost(db, i)['flops'] for i in other] == [2 * 999, 2 * 768]


def test_a_null_pointer_may_decide(tmp_path, nvcc):
    t = maker(tmp_path)
    source = 'extern "C" __global__ void f(float *out, const float *bias) { float v = out[threadIdx.x]; if (bias) v = v * bias[threadIdx.x] + 1; out[threadIdx.x] = v + 2; }'
    k = t.kernel('f', [[0, 8], [8, 8]], nvcc(source))
    launches = [t.launch_kernel(k, struct.pack('<QQ', A, bias)) for bias in (B, 0, C)]
    db = analysed(t)
    costs = [cost(db, i) for i in launches]
    assert [c['flops'] for c in costs] == [3 * 32, 32, 3 * 32] and costs[0]['price'] == costs[2]['price'] != costs[1]['price']
    assert [c['bytes_read'] for c in costs] == [256, 128, 256]


def test_a_pointer_that_ends_a_loop_decides_by_its_value(tmp_path, nvcc):
    t = maker(tmp_path)
    source = 'extern "C" __global__ void f(float *p, const float *end) { float s = *p, *out = p; for (; p != end; p++) s = 1.5f * s + 1; *out = s; }'
    k = t.kernel('f', [[0, 8], [8, 8]], nvcc(source))
    launches = {t.launch_kernel(k, struct.pack('<QQ', A, A + 4 * n), (1, 1, 1), (1, 1, 1)): n for n in (3, 8, 100)}
    db = analysed(t)
    for i, n in launches.items():
        assert cost(db, i)['flops'] == 2 * n


def test_the_end_of_a_range_that_is_read_too(tmp_path, nvcc):
    """What launches read goes by how far the end is from the beginning, also where the kernel reads through both."""
    t = maker(tmp_path)
    source = 'extern "C" __global__ void f(const float *p, const float *end, float *out) { float s = end[-1]; for (p += threadIdx.x; p < end; p += blockDim.x) s += *p; out[threadIdx.x] = s; }'
    k = t.kernel('f', [[0, 8], [8, 8], [16, 8]], nvcc(source))
    launches = {t.launch_kernel(k, struct.pack('<QQQ', A, A + 4 * n, B), (1, 1, 1), (32, 1, 1)): n for n in (32, 96, 64)}
    db = analysed(t)
    for i, n in launches.items():
        c = cost(db, i)
        assert (c['flops'], c['bytes_read'], c['bytes_written']) == (n, 4 * n + 4, 128)


def test_what_is_read_twice_counts_once_and_gaps_do_not_count(tmp_path, nvcc):
    """Bytes: the accesses, or the extents where they are less; the accesses themselves are in price_count."""
    t = maker(tmp_path)
    source = '''extern "C" __global__ void twice(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] * x[31 - threadIdx.x] + x[threadIdx.x]; }
    extern "C" __global__ void strided(float *out, const float *x) { out[8 * threadIdx.x] = x[8 * threadIdx.x]; }'''
    ptx = nvcc(source)
    i, j = (t.launch_kernel(t.kernel(name, [[0, 8], [8, 8]], ptx), struct.pack('<QQ', A, B)) for name in ('twice', 'strided'))
    db = analysed(t)
    twice, strided = cost(db, i), cost(db, j)
    assert (twice['bytes_read'], twice['bytes_written'], twice['flops']) == (128, 128, 64)
    assert (strided['bytes_read'], strided['bytes_written'], strided['flops']) == (128, 128, 0)
    assert dict(db.execute('SELECT count, least FROM price_count WHERE price = ? AND least = most', (twice['price'],)))['loaded.global'] == 2 * 128


def test_types_and_integers_apart(tmp_path, nvcc):
    t = maker(tmp_path)
    source = '''#include <cuda_bf16.h>
    extern "C" __global__ void f(double *d, float *s, __nv_bfloat162 *h) { int i = threadIdx.x; d[i] = d[i] * d[i] + 1; s[i] = s[i] + 1; h[i] = __hfma2(h[i], h[i], h[i]); h[i] = __hfma2(h[i], h[i], h[i]); }'''
    i = t.launch_kernel(t.kernel('f', [[0, 8], [8, 8], [16, 8]], nvcc(source)), struct.pack('<QQQ', A, B, C))
    db = analysed(t)
    c = cost(db, i)
    counts = {name: (least, most) for name, least, most in db.execute('SELECT count, least, most FROM price_count WHERE price = ?', (c['price'],))}
    assert (counts['fp64'], counts['fp32'], counts['bf16']) == ((64, 64), (32, 32), (256, 256)) and 'fp16' not in counts
    assert (c['flops'], c['dtype'], c['matmul']) == (64 + 32 + 256, 'bf16', 0)
    assert c['integer_ops'] == counts['integer'][0] > 0


def test_matrix_instructions_count_as_products(tmp_path, nvcc):
    """mma.m16n8k16: 2·16·8·16 FLOPs a warp, in bf16; the scaling of its result is in fp32 and no product."""
    t = maker(tmp_path)
    source = '''extern "C" __global__ void f(float *out, const unsigned *in) { unsigned l = threadIdx.x; float d[4];
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(in[l]), "r"(in[l + 32]), "r"(in[l + 64]), "r"(in[l + 96]), "r"(in[l + 128]), "r"(in[l + 160]), "f"(0.0f));
        for (int k = 0; k < 4; k++) out[4 * l + k] = d[k] * 0.5f; }'''
    i = t.launch_kernel(t.kernel('f', [[0, 8], [8, 8]], nvcc(source)), struct.pack('<QQ', A, B), (5, 1, 1), (32, 1, 1))
    c = cost(analysed(t), i)
    assert (c['matmul'], c['matmul_flops'], c['dtype'], c['grade']) == (1, 5 * 2 * 16 * 8 * 16, 'bf16', 'exact')
    assert c['flops'] == c['flops_most'] == 5 * (2 * 16 * 8 * 16 + 32 * 4)
    f = report(t.path)
    assert (f['totals']['flops'], f['totals']['flops_grade']) == (c['flops'], 'exact')


# ---- grades ------------------------------------------------------------------------------------------------------------

DATA = '''extern "C" __global__ void some(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && x[i] > 0) x[i] = x[i] * x[i] + 1; }
extern "C" __global__ void until(float *x) { while (x[threadIdx.x] > 1) x[threadIdx.x] *= 0.5f; }'''


def test_a_branch_on_data_is_a_bound_and_never_passed_off_as_exact(tmp_path, nvcc):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('some', [[0, 8], [8, 4]], nvcc(DATA)), struct.pack('<Qi', A, 1000), (4, 1, 1), (256, 1, 1))
    c = cost(analysed(t), i)
    assert (c['flops'], c['flops_most'], c['grade']) == (0, 2000, 'bound') and c['why'].startswith('line ')
    j = report(t.path)
    assert (j['totals']['flops'], j['totals']['flops_most'], j['totals']['flops_grade']) == (0, 2000, 'bound')
    f = j['functions'][0]
    assert (f['flops'], f['flops_most'], f['grade']) == (0, 2000, 'bound')
    text = run(ACCT, 'report', t.path).stdout
    assert 'at least 0 FLOP (0), at most 2.00 kFLOP (2000)' in text and '0 FLOP to 2.00 kFLOP' in text


def test_a_loop_on_data_has_no_upper_bound(tmp_path, nvcc):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('until', [[0, 8]], nvcc(DATA)), struct.pack('<Q', A))
    c = cost(analysed(t), i)
    assert (c['flops'], c['flops_most'], c['grade']) == (0, None, 'bound')
    j = report(t.path)
    assert (j['totals']['flops'], j['totals']['flops_most'], j['totals']['flops_grade']) == (0, None, 'bound')
    assert 'at least 0 FLOP' in run(ACCT, 'report', t.path).stdout


def test_what_is_sampled_is_called_an_estimate(tmp_path, nvcc):
    """A hash of the thread's number decides how often the loop runs: no box of threads behaves alike."""
    t = maker(tmp_path)
    source = '''extern "C" __global__ void f(float *x) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = i * 2654435761u; h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
        float v = 0; for (unsigned k = 0; k < 64 + h % 8; k++) v = v * 1.5f + 1; x[i & 1023] = v; }'''
    i = t.launch_kernel(t.kernel('f', [[0, 8]], nvcc(source)), struct.pack('<Q', A), (20000, 1, 1), (256, 1, 1))
    def times(n):
        h = n * 2654435761 % 2**32
        h ^= h >> 15
        h = h * 2246822519 % 2**32
        return 64 + (h ^ h >> 13) % 8
    truth = sum(2 * times(n) for n in range(0, 20000 * 256, 97)) * 97                        # every 97th of five million
    db = analysed(t)
    c = cost(db, i)
    assert c['grade'] == 'sampled' and abs(c['flops'] - truth) < 0.01 * truth
    assert 0 < db.execute('SELECT blocks_counted FROM price').fetchone()[0] < 20000
    j = report(t.path)
    assert j['totals']['flops_grade'] == 'sampled' and 'FLOPs                about ' in run(ACCT, 'report', t.path).stdout


def test_what_few_blocks_do_is_not_passed_over(tmp_path, nvcc):
    """One block of a thousand goes round a loop, and a hash decides which: no sample need meet it, so there is no upper bound."""
    t = maker(tmp_path)
    source = '''extern "C" __global__ void f(float *x, unsigned mod) { unsigned h = blockIdx.x * 2654435761u; h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
        float v = x[threadIdx.x];
        if (h % mod == 7) for (int k = 0; k < (int)blockDim.x * 31 + 8; k++) v = v * v + 1.f;
        x[threadIdx.x] = v + 1.f; }'''
    i = t.launch_kernel(t.kernel('f', [[0, 8], [8, 4]], nvcc(source)), struct.pack('<QI', A, 1000), (20000, 1, 1), (32, 1, 1))
    def heavy(n):
        h = n * 2654435761 % 2**32
        h = (h ^ h >> 15) * 2246822519 % 2**32
        return (h ^ h >> 13) % 1000 == 7
    truth = 32 * (20000 + 2 * 1000 * sum(heavy(n) for n in range(20000)))
    assert truth > 2 * 32 * 20000
    c = cost(analysed(t), i)
    assert c['grade'] != 'exact' and c['flops'] <= truth and (c['flops_most'] is None or c['flops_most'] >= truth)
    assert ('or more' if c['flops_most'] is None else 'at most') in run(ACCT, 'report', t.path).stdout


def test_machine_code_alone_is_uncounted_by_name(tmp_path, nvcc):
    t = maker(tmp_path)
    i = saxpy(t, t.kernel('_Z5saxpyifPKfPf', SAXPY_PARAMS, [None]), 1000)
    k = saxpy(t, t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY)), 1000)
    n = saxpy(t, t.kernel('saxpy', SAXPY_PARAMS, '.version 8.0\nthis is no PTX'), 1000)
    db = analysed(t)
    for x in (i, n):
        c = cost(db, x)
        assert (c['flops'], c['flops_most'], c['matmul_flops'], c['bytes_read'], c['grade']) == (None, None, None, None, 'uncounted')
    assert cost(db, i)['why'] == 'machine code only, no PTX' and 'cannot be read' in cost(db, n)['why']
    j = report(t.path)
    assert j['totals']['flops'] is None and j['totals']['flops_most'] is None and j['totals']['flops_grade'] == 'uncounted'
    assert {u['name']: (u['launches'], u['why']) for u in j['coverage']['uncounted']}['saxpy(int, float, float const*, float*)'] == (1, 'machine code only, no PTX')
    assert any('have no FLOP count' in note for note in j['notes'])
    assert cost(db, k)['flops'] == 2000


def test_arguments_that_were_not_recorded_make_bounds(tmp_path, nvcc):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY)), None, (4, 1, 1), (256, 1, 1))
    c = cost(analysed(t), i)
    assert (c['flops'], c['flops_most'], c['grade']) == (0, 2048, 'bound')


def test_an_analysis_has_an_end(tmp_path, nvcc):
    """Thousands of distinct launches that each would take long: the effort of all is bounded, and the report says so."""
    t = maker(tmp_path)
    source = 'extern "C" __global__ void f(float *x, unsigned s) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = (i + s) * 2654435761u; h ^= h >> 15; h *= 2246822519u; ' \
             'float v = 0; for (unsigned k = 0; k < h % 1000; k++) v = v * 1.5f + 1; x[i & 1023] = v; }'
    k = t.kernel('f', [[0, 8], [8, 4]], nvcc(source))
    for s in range(300):
        t.launch_kernel(k, struct.pack('<QI', A, s), (10000, 1, 1), (256, 1, 1))
    j = report(t.close())
    assert any('priced less exactly than they could be' in n for n in j['notes'])
    assert j['totals']['flops_grade'] in ('sampled', 'bound')


# ---- programs ----------------------------------------------------------------------------------------------------------

def expected(options):
    """Name of a kernel → (FLOPs, bytes) of all its launches in a step of the GPT; fp32."""
    L, D, H, T, R = (number(options, n) for n in ('layers', 'dim', 'heads', 'seq', 'batch'))
    N, V, norms = R * T, 256, 2 * L + 1
    rows, triangle = R * H * T, R * H * T * (T + 1) // 2
    widths = L * (3 * D + D + 4 * D + D)                      # of the four biases of each layer
    columns = L * sum(-(-w // 32) for w in (3 * D, D, 4 * D, D))
    parameters = V * D + T * D + L * (12 * D * D + 13 * D) + 2 * D
    f = {}
    f['embed_kernel'] = N * D, None                           # which rows of the table are read depends on the tokens
    f['residual_kernel'] = 2 * L * N * D, 2 * L * 12 * N * D
    f['add_bias_kernel'] = N * widths, 8 * N * widths + 4 * widths
    # a lane: two sums over the warp of 5 steps, two divisions, epsilon, a root; an element: 1, 1 + 2, 1 + 1 + 2
    f['layernorm_kernel'] = norms * (8 * N * D + 14 * 32 * N), norms * (8 * N * D + 8 * D + 8 * N)
    f['layernorm_backward_kernel'] = norms * (14 * N * D + 12 * 32 * N), norms * (16 * N * D + 4 * D + 8 * N)
    # five for each row and column, the 16 slices of two sums, what is added to
    f['layernorm_weights_backward_kernel'] = norms * (5 * N * D + 2 * 16 * 32 * -(-D // 32) + 2 * D), norms * (8 * N * D + 8 * N + 16 * D)
    f['bias_backward_kernel'] = N * widths + 16 * 32 * columns + widths, 4 * N * widths + 8 * widths
    f['split_heads_kernel'] = f['split_heads_backward_kernel'] = 0, L * 24 * N * D
    f['join_heads_kernel'] = f['join_heads_backward_kernel'] = 0, L * 8 * N * D
    # an exponential is 12 operations by nvcc (4 multiply-adds, two sums, ex2, a product); each score: one maximum, then twice
    # the difference, the factor, the exponential, and once a sum, once a product. A lane: two reductions of 5, a division
    f['causal_softmax_kernel'] = L * (31 * triangle + 11 * 32 * rows), None
    f['causal_softmax_backward_kernel'] = L * (5 * triangle + 5 * 32 * rows), None
    f['embed_positions_backward_kernel'] = R * T * D + T * D, 4 * R * T * D + 8 * T * D
    f['adamw_kernel'] = 19 * parameters, 28 * parameters
    return f, parameters


@pytest.mark.parametrize('options', ['--layers 2 --dim 64 --heads 2 --seq 24 --batch 2', '--layers 1 --dim 48 --heads 3 --seq 40 --batch 1'])
def test_every_kernel_of_a_gpt_by_formula(tmp_path, options):
    r, db, truth = train(tmp_path, options)
    want, parameters = expected(options)
    assert truth['parameters'] == parameters
    found = {name.split('<')[0].removeprefix('void ').split('(')[0]: (flops, size, grade) for name, flops, size, grade in query(
        db, 'select k.demangled, sum(c.flops), sum(c.bytes_read + c.bytes_written), group_concat(distinct c.grade) from op_cost c '
            'join launch l on l.op = c.op join kernel k on k.id = l.kernel where c.step = 2 group by 1')}
    for name, (flops, size) in want.items():
        assert found[name][0] == flops and found[name][2] == 'exact', name
        assert size is None or found[name][1] == size, name
    j = report(db)
    s = j['steps'][2]
    f = s['flops']
    forward, backward = products(options)
    assert f['gemm'] == f['gemm_most'] == forward + backward
    rest = sum(flops for name, (flops, _, _) in found.items() if name not in want)           # gelu's tanh is the vendor's, the loss depends on its targets
    assert f['other'] == rest + sum(flops for flops, _ in want.values()) and f['total'] == f['gemm'] + f['other']
    assert f['other_by_phase']['optimizer'] == f['other_by_phase']['optimizer_most'] == 19 * parameters
    assert f['grade'] == 'bound' and j['totals']['flops'] is not None                        # which rows of the table get a gradient is data
    by_phase = [f['other_by_phase'][p] for p in ('forward', 'backward', 'optimizer', 'recompute')]
    assert sum(by_phase) == f['other']
    if not ON_GPU:
        assert j['coverage']['counted_time_share'] == 1 and j['coverage']['exact_time_share'] < 1
    assert all(u['flops'] is not None for u in j['functions'])


def test_a_step_of_the_linear_model(tmp_path):
    """cuBLAS's products, its level 1 and the optimizer: all is counted, all exactly."""
    layers, D = 2, 64
    r = acct_run(tmp_path / 'a.db', TRAIN, '--model', 'linear', '--layers', layers, '--dim', D, '--batch', 32, '--steps', 3, '--optimizer', 'adamw')
    assert r.returncode == 0, r.stderr
    j = report(tmp_path / 'a.db')
    f = j['steps'][1]['flops']
    assert f['other_by_phase']['optimizer'] == 19 * layers * D * D and f['grade'] == 'exact'
    assert f['total'] == f['total_most'] == f['gemm'] + f['other'] and j['totals']['flops_grade'] == 'exact'
    assert 'no FLOP count' not in r.stderr


# ---- reports -----------------------------------------------------------------------------------------------------------

def test_place_under_the_roofline(tmp_path):
    """The least time by the device's peaks and memory, by the time that it took: 1e9 FLOPs in bf16 and 1e6 bytes on an H100."""
    t = Trace(tmp_path / 'a.db')
    t.device('NVIDIA H100 80GB HBM3')
    ids = t.step(0, 0, 10**9, [('forward', 'bf16', 10**9, 1), ('forward', 'fp32', 10**6, 0)])
    t.db.execute('UPDATE op SET api = 7 WHERE id = ?', (ids[1],))
    t.db.execute("INSERT INTO api VALUES(7, 'cublasSaxpy', 'cublas')")
    t.db.execute('UPDATE op_cost SET bytes_read = 600000, bytes_written = 400000')
    for op in ids:
        t.db.execute('INSERT INTO op_time VALUES(?, 0, 4000, 4000, 1)', (op,))
        t.db.execute("INSERT INTO activity(kind, start_ns, end_ns) VALUES('kernel', 0, 4000)")
    t.db.execute("UPDATE device SET clock = 'gpu'")
    f = {x['name']: x for x in report(t.close())['functions']}
    product, axpy = f['cublasGemmEx'], f['cublasSaxpy']
    assert product['roofline_share'] == pytest.approx(1e9 / 989.4e12 / 4e-6)
    assert axpy['roofline_share'] == pytest.approx(1e6 / 3.35e12 / 4e-6)
    assert (product['intensity'], axpy['intensity'], axpy['bytes_read'], axpy['bytes_written']) == (1000, 1, 600000, 400000)
