"""Programs that train with cuBLASLt, run for real under acct: biases, activation functions and their gradients are in the epilogues
of the products. tests/programs/train_lt.c tells its own account, and the analysis has to find the same without it."""
import json, os, sqlite3
import pytest
from conftest import BUILD, run
from test_moulds import ACCT, check, trace

PROGRAM, TRAIN = os.path.join(BUILD, 'tests', 'train_lt'), os.path.join(BUILD, 'train')

MOULDS = """
update=sgd
bgrad=bgrada
update=momentum
accum=3
accum=3 bgrad=bgrada
act=relu
act=relu update=momentum accum=2
order=row
order=row residual=1 layers=4
residual=1 layers=4
alloc=step
alloc=step accum=2 update=momentum
workspace=none
workspace=shared
eval=1
eval=2 alloc=step
format=bf16
format=bf16 update=momentum
format=bf16 accum=2
format=bf16 bgrad=bgrada residual=1 layers=5 update=momentum eval=2
layers=1
steps=1
steps=2
dim=32 batch=32
"""


@pytest.mark.parametrize('options', MOULDS.strip().splitlines())
def test_mould(tmp_path, options):
    check(tmp_path, options, PROGRAM)


def test_what_a_product_touches(tmp_path):
    """Operands with their extents and directions, bytes and FLOPs of each product of a step, from the shapes in the program."""
    _, db = trace(tmp_path, 'layers=2 dim=96 batch=32 steps=1 residual=0', PROGRAM)
    W, h, b = 96 * 96 * 4, 96 * 32 * 4, 96 * 4
    # epilogue, operands, bytes read, bytes written; beta is 0 everywhere
    expected = [('GELU_AUX_BIAS', {'A': ('r', W), 'B': ('r', h), 'C': ('w', h), 'bias': ('r', b), 'aux': ('w', h)}, W + h + b, 2 * h),
                ('BIAS', {'A': ('r', W), 'B': ('r', h), 'C': ('w', h), 'bias': ('r', b)}, W + h + b, h),
                ('BGRADA', {'A': ('r', h), 'B': ('r', h), 'C': ('w', W), 'bias': ('w', b)}, 2 * h, W + b),
                ('DGELU_BGRAD', {'A': ('r', W), 'B': ('r', h), 'C': ('w', h), 'bias': ('w', b), 'aux': ('r', h)}, W + 2 * h, h + b),
                (None, {'A': ('r', h), 'B': ('r', h), 'C': ('w', W)}, 2 * h, W)]
    got = []
    for op, epilogue, flops, read, written, grade in db.execute(
            'SELECT g.op, g.epilogue, c.flops, c.bytes_read, c.bytes_written, c.grade FROM gemm g JOIN op_cost c ON c.op = g.op ORDER BY g.op'):
        assert (flops, grade) == (2 * 96 * 96 * 32, 'exact')
        got.append((epilogue, {s: (m, n) for s, m, n in db.execute('SELECT slot, mode, bytes FROM op_buffer WHERE op = ?', (op,))}, read, written))
    assert got == expected
    assert db.execute('SELECT count(*) FROM op_buffer JOIN gemm USING (op) WHERE alloc IS NULL').fetchone() == (0,)


def test_a_second_analysis_says_the_same(tmp_path):
    """A bias of cuBLASLt is a field of the event: its row in op_buffer is made anew, not kept beside a second one."""
    _, db = trace(tmp_path, 'steps=2', PROGRAM)
    tables = ('op_buffer', 'op_cost', 'alloc_class', 'step', 'phase')
    before = {t: db.execute(f'SELECT * FROM {t} ORDER BY 1, 2').fetchall() for t in tables}
    db.close()
    r = run(ACCT, 'analyze', tmp_path / 't.db')
    assert r.returncode == 0, r.stderr
    db = sqlite3.connect(tmp_path / 't.db')
    assert {t: db.execute(f'SELECT * FROM {t} ORDER BY 1, 2').fetchall() for t in tables} == before
    assert any(slot == 'bias' for _, slot, *_ in before['op_buffer'])


def test_device_time_of_a_product(tmp_path):
    """Tied by the external id pushed around the call, as for cuBLAS; the report names the function."""
    _, db = trace(tmp_path, 'update=momentum', PROGRAM)
    rows = db.execute("SELECT t.busy_ns, t.activities, (SELECT sum(a.end_ns - a.start_ns) FROM correlation c JOIN activity a ON a.correlation = c.id "
                      'WHERE c.external = x.external) FROM (SELECT op, external FROM gemm UNION ALL SELECT op, external FROM blas) x '
                      'LEFT JOIN op_time t ON t.op = x.op').fetchall()
    assert len(rows) == 4 * (8 + 13)       # a step: 3 products forward, 5 backward; the loss and 2 transformations for each of 6 parameters
    assert all(busy == total and busy > 0 and n >= 1 for busy, n, total in rows)
    j = json.loads(run(ACCT, 'report', '--format', 'json', tmp_path / 't.db').stdout)
    products = {f['name']: (f['calls'], f['timed']) for f in j['functions'] if f['name'].startswith('cublasLt')}
    assert products == {'cublasLtMatmul': (32, 32), 'cublasLtMatrixTransform': (52, 52)}
    assert j['totals']['gemms'] == 32 and j['coverage']['counted_time_share'] > 0


def test_products_of_two_formats_are_measured_each_by_its_peak(tmp_path):
    """The linear layers in fp8, the head and attention in bf16: MFU is the time at the peaks, Σ flops / peak, by the step's time."""
    path = tmp_path / 't.db'
    r = run(ACCT, 'run', '--vgpu', '-o', path, '--', TRAIN, *'--layers 1 --dim 32 --heads 2 --seq 16 --batch 2 --steps 3 --dtype fp8'.split(), timeout=300)
    assert r.returncode == 0, r.stderr
    L, C, T, B, V = 1, 32, 16, 2, 256
    linear, other = 3 * 2 * B * T * L * 12 * C * C, 3 * (2 * B * T * V * C + 2 * L * 2 * B * T * T * C)
    j = json.loads(run(ACCT, 'report', '--format', 'json', path).stdout)
    db = sqlite3.connect(path)
    for i, s in enumerate(j['steps']):
        flops = dict(db.execute('SELECT dtype, sum(flops) FROM op_cost WHERE matmul AND step = ? GROUP BY dtype', (i,)))
        assert flops == {'fp8': linear, 'bf16': other}
        peak = j['device']['peak_flops']
        at_peak = linear / peak['fp8'] + other / peak['bf16']
        assert s['mfu'] == pytest.approx(at_peak / ((s['device_end_ns'] - s['device_start_ns']) * 1e-9), rel=1e-6)


def test_one_step_in_fp8(tmp_path):
    """Every operand of the linear layers goes through the same few buffers, cast anew each time: none of them is a weight, and a trace
    of a single step, in which much looks carried, has that one step."""
    path, truth = tmp_path / 't.db', tmp_path / 'truth.json'
    r = run(ACCT, 'run', '--vgpu', '-o', path, '--', TRAIN, *'--layers 2 --dim 64 --heads 4 --seq 32 --batch 2 --steps 1 --dtype fp8'.split(),
            '--truth', truth, timeout=300)
    assert r.returncode == 0, r.stderr
    L, C, T, B, V = 2, 64, 32, 2, 256
    forward = 2 * B * T * (L * 12 * C * C + V * C) + 2 * L * 2 * B * T * T * C
    [s] = json.loads(run(ACCT, 'report', '--format', 'json', path).stdout)['steps']
    assert (s['flops']['forward'], s['flops']['backward'], s['flops']['recompute']) == (forward, 2 * forward, 0)
    own = {}
    for b in json.load(open(truth))['buffers']:
        own[b['class']] = own.get(b['class'], 0) + b['bytes']
    for name in ('param', 'grad', 'optimizer', 'activation', 'activation_grad', 'workspace'):
        assert s['memory']['at_peak'][name] == own[name], name
