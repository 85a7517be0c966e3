"""acct ops and acct kernels: what each kind of call took and did, and the roof above it. Expected values by formula from what was put in;
of real runs by plain SQL over the trace, and from the library's account of the kernels that it launches."""
import collections, csv, io, json, os, sqlite3
import pytest
from conftest import BUILD, run
from device_trace import BASE, DeviceTrace

ACCT = os.path.join(BUILD, 'acct')
BF16, FP32, BANDWIDTH = 989.4e12, 66.9e12, 3350e9 # H100 SXM, ACCOUNTING section 9


def view(command, *args, code=0):
    r = run(ACCT, command, '--format', 'json', *args)
    assert r.returncode == code, r.stderr
    return json.loads(r.stdout) if not code else r.stderr


def ops(*args):
    return view('ops', *args)['ops']


def made(path):
    t = DeviceTrace(path)
    for step in (0, 1):
        at = 100_000 * step
        flops = 2 * 512 * 128 * 64
        t.call('gemm', (at, at + 1), [(at, at + 10_000)], step=step, gemm=('TN', 512, 128, 64, 1), flops=flops, dtype='bf16', bytes=1000)
        t.call('gemm', (at, at + 1), [(at + 10_000, at + 15_000), (at + 16_000, at + 21_000)], step=step, phase='backward', gemm=('TN', 512, 128, 64, 1),
               flops=flops, dtype='bf16', bytes=1000)
        t.call('gemm', (at, at + 1), [(at + 21_000, at + 22_000)], step=step, phase='backward', gemm=('TN', 512, 128, 64, 8), flops=8 * flops, dtype='bf16', bytes=8000)
        t.call('launch', (at, at + 1), [(at + 30_000, at + 34_000)], step=step, phase='optimizer', kernel='add(float *)', shape=(16, 1, 1, 128, 2, 1, 1024), flops=6000,
               dtype='fp32', bytes=24_000)
        t.call('launch', (at, at + 1), [(at + 34_000, at + 37_000)], step=step, phase='optimizer', kernel='add(float *)', shape=(8, 1, 1, 128, 2, 1, 1024), flops=3000,
               dtype='fp32', bytes=12_000, grade='sampled')
        t.call('launch', (at, at + 1), [(at + 37_000, at + 38_000)], step=step, phase='optimizer', kernel='closed', flops=None, bytes=None)
        t.call('copy', (at, at + 1), [(at + 40_000, at + 50_000)], step=step, phase=None, act='h2d', moved=4096, bytes=4096)
        t.call('memset', (at, at + 1), [], step=step, phase=None, moved=512, bytes=512)
    t.steps(100_000, 200_000)
    return t.close()


def test_rows_by_function_and_shape(tmp_path):
    rows = ops(made(tmp_path / 't.db'))
    got = {(o['name'], o['shape']): o for o in rows}
    assert set(got) == {('cublasGemmEx', 'TN 512x128x64'), ('cublasGemmEx', 'TN 512x128x64 x8'), ('add(float *)', '(16,1,1)x(128,2,1)'),
                        ('add(float *)', '(8,1,1)x(128,2,1)'), ('closed', '(1,1,1)x(256,1,1)'), ('cudaMemcpyAsync', 'h2d 4096'), ('cudaMemsetAsync', '512')}
    assert [o['time_ns'] or 0 for o in rows] == sorted((o['time_ns'] or 0 for o in rows), reverse=True)
    p = got['cublasGemmEx', 'TN 512x128x64']
    flops = 2 * 512 * 128 * 64
    assert (p['calls'], p['timed'], p['time_ns'], p['flops'], p['bytes'], p['grade'], p['phases'], p['dtype']) == (
        4, 4, 40_000, 4 * flops, 4000, 'exact', ['forward', 'backward'], 'bf16')
    assert p['intensity'] == pytest.approx(flops / 1000) and p['flops_per_s'] == pytest.approx(4 * flops / 40e-6)
    assert p['bound'] == 'compute' and p['roof_flops_per_s'] == BF16 and p['roof_share'] == pytest.approx(4 * flops / BF16 / 40e-6)
    a = got['add(float *)', '(16,1,1)x(128,2,1)']
    assert a['bound'] == 'memory' and a['roof_flops_per_s'] == pytest.approx(BANDWIDTH * 6000 / 24_000)
    assert a['roof_share'] == pytest.approx(24_000 / BANDWIDTH / 4e-6)
    assert got['add(float *)', '(8,1,1)x(128,2,1)']['grade'] == 'sampled'
    c = got['closed', '(1,1,1)x(256,1,1)']
    assert (c['flops'], c['bytes'], c['intensity'], c['bound'], c['roof_share'], c['grade']) == (None, None, None, None, None, 'uncounted') and c['time_ns'] == 2000
    h = got['cudaMemcpyAsync', 'h2d 4096']
    assert (h['calls'], h['time_ns'], h['bytes'], h['bound'], h['roof_share']) == (2, 20_000, 8192, None, None)
    m = got['cudaMemsetAsync', '512']
    assert (m['timed'], m['time_ns'], m['flops_per_s'], m['bytes']) == (0, None, None, 1024)


def test_filters_orders_and_limits(tmp_path):
    path = made(tmp_path / 't.db')
    assert {o['name'] for o in ops('--phase', 'optimizer', path)} == {'add(float *)', 'closed'}
    assert all(o['calls'] == 2 for o in ops('--step', '1', path) if o['shape'] == 'TN 512x128x64')
    assert ops('--phase', 'evaluation', path) == [] and 'No such ops' in run(ACCT, 'ops', '--phase', 'evaluation', path).stdout
    for what, key in (('flops', 'flops'), ('bytes', 'bytes'), ('calls', 'calls')):
        values = [o[key] or 0 for o in ops('--sort', what, path)]
        assert values == sorted(values, reverse=True)
    assert len(ops('--limit', '2', path)) == 2 and len(ops('--limit', '0', path)) == 7 and view('ops', '--limit', '2', path)['rows'] == 7
    assert 'fast' in view('ops', '--sort', 'fast', path, code=2) and 'idle' in view('ops', '--phase', 'idle', path, code=2)


def test_above_the_roof_is_said(tmp_path):
    """Ten times the bandwidth: the bytes came from a cache."""
    notes = {}
    for clock in ('gpu', 'model'):
        t = DeviceTrace(tmp_path / f'{clock}.db', clock=clock)
        t.call('launch', (0, 1), [(0, 10_000)], kernel='cached', flops=1, dtype='fp32', bytes=int(BANDWIDTH * 100e-6))
        t.steps(10_000)
        d = view('ops', t.close())
        assert d['ops'][0]['roof_share'] == pytest.approx(10, rel=1e-6)
        notes[clock] = any('1 row(s) took less time than their roof allows' in n for n in d['notes'])
    assert notes == {'gpu': True, 'model': False}
    assert not any('than their roof' in n for n in view('ops', made(tmp_path / 't.db'))['notes'])


def test_a_row_for_each_op(tmp_path):
    path = made(tmp_path / 't.db')
    rows = ops('--all', path)
    assert len(rows) == 16 and [o['op'] for o in rows] == sorted(o['op'] for o in rows) == list(range(1, 17))
    assert [o['step'] for o in rows] == [0] * 8 + [1] * 8 and all(o['calls'] == 1 for o in rows)
    pieces = rows[1]
    assert (pieces['time_ns'], pieces['start_ns'], pieces['phases']) == (10_000, BASE + 10_000, ['backward'])
    longest = ops('--all', '--sort', 'time', '--limit', '1', path)
    assert longest[0]['time_ns'] == 10_000


def test_kernels_by_hand(tmp_path):
    path = made(tmp_path / 't.db')
    con = sqlite3.connect(path)
    con.execute("UPDATE kernel SET registers = 32, static_shared_bytes = 2048, local_bytes = 0 WHERE name LIKE 'add%'")
    # prices: the larger launch's and the smaller's, one FLOP count with bounds
    con.executemany('INSERT INTO price(id, kernel, grade, why) VALUES(?, 1, ?, ?)', [(1, 'exact', None), (2, 'sampled', 'counted on 8 of 2048 threads')])
    con.executemany('INSERT INTO price_count VALUES(?, ?, ?, ?)', [(1, 'fp32', 6000, 6000), (1, 'loaded.global', 16_000, 16_000), (1, 'stored.global', 8000, 8000),
                                                                    (2, 'fp32', 3000, None), (2, 'loaded.global', 8000, 9000), (2, 'atomics', 5, 5)])
    con.execute('UPDATE op_cost SET price = 1 WHERE flops = 6000')
    con.execute('UPDATE op_cost SET price = 2 WHERE flops = 3000')
    con.commit()
    con.close()
    rows = {k['name']: k for k in view('kernels', path)['kernels']}
    assert set(rows) == {'add(float *)', 'closed'}
    k = rows['add(float *)']
    assert (k['launches'], k['timed'], k['time_ns'], k['min_ns'], k['max_ns'], k['mean_ns']) == (4, 4, 14_000, 3000, 4000, 3500)
    assert [(s['grid'], s['block'], s['dynamic_shared_bytes'], s['launches'], s['time_ns']) for s in k['shapes']] == [([16, 1, 1], [128, 2, 1], 1024, 2, 8000), ([8, 1, 1], [128, 2, 1], 1024, 2, 6000)]
    # 256 threads, 32 registers, 2048 + 1024 + 1024 bytes: 8 blocks of 8 warps by threads, 8 by registers, 57 by shared memory, of 64 warps
    assert k['occupancy'] == 1 and rows['closed']['occupancy'] is None and rows['closed']['registers'] is None
    assert (k['flops'], k['grade'], k['why'], k['bytes'], k['bound']) == (18_000, 'sampled', 'counted on 8 of 2048 threads', 72_000, 'memory')
    assert k['flops_by_type'] == {'fp32': 18_000, 'fp32_most': None}
    assert k['bytes_by_space'] == {'loaded.global': 48_000, 'loaded.global_most': 50_000, 'stored.global': 16_000, 'stored.global_most': 16_000}
    assert k['counts'] == {'atomics': 10, 'atomics_most': 10}
    assert rows['closed']['flops'] is None and rows['closed']['grade'] == 'uncounted'
    text = run(ACCT, 'kernels', path).stdout
    assert '(16,1,1)x(128,2,1) and 1 more' in text and 'counted on 8 of 2048 threads' in text


# ---- real runs -------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def real(tmp_path_factory):
    out = {}
    for profile in ('cpu', 'h100-sxm'):
        db = tmp_path_factory.mktemp('ops') / f'{profile}.db'
        r = run(ACCT, 'run', '-o', db, f'--vgpu={profile}', '--', os.path.join(BUILD, 'train'), '--model', 'gpt', '--steps', '3', '--layers', '2', '--dim', '32', '--seq', '16',
                '--batch', '2', '--dtype', 'bf16')
        assert r.returncode == 0, r.stderr
        out[profile] = db
    return out


@pytest.mark.parametrize('profile', ['cpu', 'h100-sxm'])
def test_ops_of_a_real_run_are_all_of_it(real, profile):
    con = sqlite3.connect(real[profile])
    rows = ops(real[profile])
    work = "op.status = 0 AND op.kind IN ('launch', 'gemm', 'blas', 'copy', 'memset')"
    calls, time, flops, size = con.execute(f'''SELECT count(*), sum(t.busy_ns), sum(c.flops), sum(c.bytes_read + c.bytes_written) FROM op LEFT JOIN op_time t ON t.op = op.id
                                               LEFT JOIN op_cost c ON c.op = op.id WHERE {work}''').fetchone()
    assert sum(o['calls'] for o in rows) == calls and sum(o['time_ns'] or 0 for o in rows) == time
    assert sum(o['flops'] or 0 for o in rows) == flops and sum(o['bytes'] or 0 for o in rows) == size
    shapes = collections.Counter(con.execute('SELECT trans_a || trans_b, m, n, k, batch FROM gemm JOIN op ON op.id = gemm.op WHERE op.status = 0').fetchall())
    got = collections.Counter()
    for o in rows:
        if o['kind'] == 'gemm':
            form, dims, *batch = o['shape'].split()
            got[(form, *map(int, dims.split('x')), int(batch[0][1:]) if batch else 1)] += o['calls']
    assert got == shapes
    assert len(ops('--all', real[profile])) == calls


def test_a_models_ops_are_at_their_roofs(real):
    """The model of the virtual GPU takes the roof for each op's time: an account of its own, in whole ns."""
    at = [o for o in ops(real['h100-sxm']) if o['kind'] == 'gemm' and o['bound'] == 'memory']
    assert len(at) > 5
    for o in at: # rounded to whole ns, at least 1
        assert abs(o['time_ns'] / o['calls'] - o['bytes'] / o['calls'] / BANDWIDTH * 1e9) <= 1, o


@pytest.mark.parametrize('profile', ['cpu', 'h100-sxm'])
def test_kernels_of_a_real_run(real, profile):
    con = sqlite3.connect(real[profile])
    rows = view('kernels', real[profile])['kernels']
    want = con.execute('''SELECT coalesce(k.demangled, k.name), count(*), count(DISTINCT l.grid_x || ',' || l.grid_y || ',' || l.grid_z || ',' || l.block_x || ',' || l.block_y || ',' ||
                          l.block_z || ',' || l.dynamic_shared_bytes), sum(t.busy_ns), min(t.busy_ns), max(t.busy_ns), k.registers, sum(c.flops) FROM launch l
                          JOIN op ON op.id = l.op AND op.status = 0 JOIN kernel k ON k.id = l.kernel JOIN op_time t ON t.op = l.op JOIN op_cost c ON c.op = l.op GROUP BY l.kernel''').fetchall()
    got = [(k['name'], k['launches'], len(k['shapes']), k['time_ns'], k['min_ns'], k['max_ns'], k['registers'], k['flops']) for k in rows if not k['library']]
    assert sorted(got) == sorted(want) and len(want) > 10
    for k in rows:
        if not k['library'] and k['grade'] == 'exact':
            assert sum(v for n, v in k['flops_by_type'].items() if not n.endswith('_most')) == k['flops'], k
    # a library's kernels: one for each product here
    assert sum(k['launches'] for k in rows if k['library']) == con.execute("SELECT count(*) FROM op WHERE kind = 'gemm' AND status = 0").fetchone()[0]
    assert all(k['flops'] is None and k['grade'] is None for k in rows if k['library'])


def test_csv_and_markdown(real):
    rows = list(csv.reader(io.StringIO(run(ACCT, 'ops', '--format', 'csv', '--limit', '2', real['cpu']).stdout)))
    want = ops('--limit', '2', real['cpu'])
    got = {r[0]: r[1] for r in rows}
    assert all(len(r) == 3 for r in rows)
    for i, o in enumerate(want):
        for key in ('name', 'calls', 'time_ns', 'flops'):
            assert got[f'ops[{i}].{key}'] == str(o[key]), (key, got)
    for command in ('ops', 'kernels', 'steps'):
        out = run(ACCT, command, '--format', 'markdown', real['cpu'])
        assert out.returncode == 0 and '| ' in out.stdout and '---' in out.stdout
