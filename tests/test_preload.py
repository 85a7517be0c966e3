"""libacct.so inside a program: every call recorded with the right values, and the program none the wiser.

The programs run on a stand-in that answers every function of the CUDA headers (support/fake_cuda.c and a `return 0` for the
rest), so that calls are covered which nothing here can compute. Expected values are the numbers in the programs' sources."""
import glob, json, os, re, resource, signal, sqlite3, subprocess, sys, time
import pytest
from conftest import BUILD, MAY_MOUNT, TOP, run

LIB, COLLECT = os.path.join(BUILD, 'libacct.so'), os.path.join(BUILD, 'acct-collect')
GENERATOR = os.path.join(TOP, 'preload', 'gen_wrappers.py')
CLANG, INCLUDE = 'clang', None
for line in open(os.path.join(BUILD, 'deps.mk')):
    m = re.match(r'(CLANG|CUDA_INC) := (.*)', line)
    CLANG, INCLUDE = (m[2], INCLUDE) if m and m[1] == 'CLANG' else (CLANG, m[2]) if m else (CLANG, INCLUDE)


@pytest.fixture(scope='session')
def listing():
    """[(library, function, action)] for every function of the vendor's headers."""
    r = run(sys.executable, GENERATOR, '--clang', CLANG, '--include', INCLUDE, '--table', os.path.join(TOP, 'preload', 'api.table'), '--list')
    assert r.returncode == 0, r.stderr
    return [l.split(None, 2) for l in r.stdout.splitlines()]


@pytest.fixture(scope='session')
def fake(tmp_path_factory, listing):
    """Folder with libcudart.so.13 and libcublas.so.13 that answer everything."""
    d = tmp_path_factory.mktemp('fake')
    per_thread = re.findall(r'#\s*define\s+(cuda\w+)\s+__CUDART_API_(PTSZ|PTDS)\(', open(os.path.join(INCLUDE, 'cuda_runtime_api.h')).read())
    names = {'cudart': [n for l, n, _ in listing if l == 'cudart'] + [f'{n}_{s.lower()}' for n, s in per_thread] + ['cudaLaunchKernel_ptsz'],
             'cublas': [n for l, n, _ in listing if l == 'cublas']}
    for lib, wanted in names.items():
        so = f'lib{lib}.so.13'
        prefix = 'cuda' if lib == 'cudart' else 'cublas'
        sources = [os.path.join(TOP, 'tests', 'support', f) for f in ('fake_cuda.c', 'fake_kernels.c')]
        src = ''.join(open(s).read() for s in sources)
        mine = [n for n in re.findall(r'^(?:int |void \*\*)(\w+)\(', src, re.M) if n.lstrip('_').startswith(prefix)]
        (d / 'rest.c').write_text(''.join(f'int {n}() {{ return 0; }}\n' for n in sorted(set(wanted) - set(mine))))
        (d / 'map').write_text(f'{so} {{ global: {prefix}*; __{prefix}*; local: *; }};\n')
        r = run('cc', '-shared', '-fPIC', '-w', '-O1', '-D_GNU_SOURCE', f'-Wl,-soname,{so}', f'-Wl,--version-script={d}/map', '-o', d / so,
                *sources, d / 'rest.c')
        assert r.returncode == 0, r.stderr
    return str(d)


class Trace:
    """A finished trace."""
    def __init__(self, path):
        self.path = str(path)
        end = time.time() + 60
        while True:
            # Not opened before the collector has closed it: a reader at that moment would keep it from making one file of it.
            if os.path.exists(self.path) and not os.path.exists(self.path + '-wal'):
                self.db = sqlite3.connect(f'file:{self.path}?mode=ro', uri=True)
                try:
                    self.meta = dict(self.db.execute('select key, value from meta'))
                except sqlite3.OperationalError:
                    self.meta = {}
                if self.meta.get('state') in ('complete', 'truncated'):
                    break
                self.db.close()
            assert time.time() < end, f'{path} was not finished'
            time.sleep(0.02)
        self.db.row_factory = sqlite3.Row

    def rows(self, sql, *args):
        return [dict(r) for r in self.db.execute(sql, args)]

    def one(self, sql, *args):
        r = self.db.execute(sql, args).fetchone()
        return r[0] if r is not None and len(r) == 1 else r

    def lost(self):
        return self.one('select coalesce(sum(records), 0) from lost')


@pytest.fixture
def traced(fake, tmp_path):
    """traced(program, *args, **env) → (process result, trace path)."""
    def go(program, *args, env=None, trace='t.db', **kw):
        out = tmp_path / trace
        r = run(os.path.join(BUILD, 'tests', program), *args, cwd=tmp_path,
                env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out), **(env or {})}, **kw)
        return r, out
    return go


def plain(fake, program, *args, **kw):
    return run(os.path.join(BUILD, 'tests', program), *args, env={'LD_LIBRARY_PATH': fake}, **kw)


# ---- values -----------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope='module')
def events(fake, tmp_path_factory):
    out = tmp_path_factory.mktemp('events') / 't.db'
    r = run(os.path.join(BUILD, 'tests', 'preload_events'), env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out)})
    assert r.returncode == 0 and r.stderr == ''
    return Trace(out), {k: int(v) for k, v in (l.split('=') for l in r.stdout.splitlines())}


def test_every_call_is_one_op_in_order(events):
    t, _ = events
    source = open(os.path.join(TOP, 'tests', 'programs', 'preload_events.c')).read()
    recorded = [r['name'] for r in t.rows('select name from op_named order by id')]
    body = lambda f: re.search(rf'\b{f}\(.*?\n}}', source, re.S)[0]
    made = [n for f in ('cudaStream_t order', 'void memory', 'void copies', 'int main') for n in re.findall(r'\b(cuda[A-Z]\w+)\(', body(f))]
    assert recorded == [n for n in made if n != 'cudaSetDevice']
    assert t.lost() == 0 and t.meta['state'] == 'complete'


def test_allocations(events):
    t, at = events
    got = {r['address']: (r['bytes'], r['memory'], r['free_ns'] is not None) for r in t.rows('select * from alloc')}
    by_op = [(r['bytes'], r['memory']) for r in t.rows('select * from alloc order by id')]
    # sizes as asked for; pitch is the stand-in's next multiple of 512; an array of 8 bytes an element
    assert by_op == [(1001, 'device'), (1002, 'managed'), (1003, 'pinned'), (1004, 'pinned'), (1005, 'async'), (1006, 'async'),
                     (1024 * 11, 'device'), (1024 * 5 * 7, 'device'), (64 * 4 * 8, 'array'), (8 * 8, 'array'), (65536, 'registered'),
                     (1007, 'device')]
    assert got[at['leak']] == (1007, 'device', False)
    assert sum(1 for r in t.rows('select * from alloc where free_ns is null')) == 1
    assert got[at['host']] == (65536, 'registered', True)


def test_a_failed_allocation_is_recorded_as_such(events):
    """Case 63: 0 bytes booked, one failed call of 2^50 bytes, the pointer not looked at."""
    t, _ = events
    [r] = t.rows("select * from op where kind = 'alloc' and status <> 0")
    assert (r['status'], r['bytes'], r['object'], r['device']) == (2, 1 << 50, None, 0)  # the device is asked for: it is the one that had none
    assert t.one('select count(*) from alloc where bytes = ?', 1 << 50) == 0


def test_nothing_allocated_and_nothing_released(events):
    """Case 65: cudaMalloc(0), cudaFree(NULL) are calls, no blocks."""
    t, _ = events
    assert t.one("select count(*) from op where kind = 'alloc' and bytes = 0 and status = 0") == 1
    assert t.one("select count(*) from op where kind = 'free' and object is null and status = 0") == 2
    assert t.one('select count(*) from alloc where address = 0') == 0


def test_copies_and_memsets(events):
    t, at = events
    got = [tuple(r)[1:] for r in t.db.execute('select c.op, c.dst, c.src, c.bytes, c.direction, c.width_bytes, c.height, c.dst_pitch_bytes, '
                                              'c.src_pitch_bytes, c.dst_device, c.src_device from copy c order by op')]
    a, b, sym, n = at['a'], at['b'], at['symbol'] + 0x100000, None
    flat = (n, n, n, n)
    assert got == [
        (a, b, 101, 'h2d', *flat, n, n), (a, b, 102, 'd2h', *flat, n, n), (a, b, 103, 'default', *flat, n, n),
        (a, b, 300, 'd2d', 100, 3, 256, 128, n, n), (a, b, 360, 'h2h', 90, 4, 512, 128, n, n),
        # 3D, from (x 1, y 2, z 1) at pitch 64 with 8 rows a slice: 1 + (1 * 8 + 2) * 64 bytes on
        (b, a + 641, 48 * 6 * 2, 'd2d', 48, 12, 128, 64, n, n),
        (a, b, 104, 'd2d', *flat, 1, 0), (a, b, 105, 'd2d', *flat, 0, 1),
        (sym + 4, b, 30, 'h2d', *flat, n, n), (a, sym + 8, 20, 'd2h', *flat, n, n)]
    sets = [tuple(r)[1:] for r in t.db.execute('select op, dst, bytes, value, element_bytes, width_bytes, height, pitch_bytes from memset order by op')]
    assert sets == [(a, 106, 7, 1, n, n, n), (a, 107, 255, 1, n, n, n), (a, 99 * 5, 3, 1, 99, 5, 256), (a, 40 * 8 * 2, 4, 1, 40, 16, 64)]


def test_streams_events_and_synchronisation(events):
    t, at = events
    got = [(r['kind'], r['act'], r['stream'], r['object']) for r in
           t.rows("select * from op where kind in ('stream', 'event', 'sync') order by id")]
    s, st, u, e, f = (at[x] for x in 'stuef')
    assert got == [('stream', 'create', s, None), ('stream', 'create', st, None), ('stream', 'create', u, None),
                   ('event', 'create', None, e), ('event', 'create', None, f), ('event', 'record', s, e), ('stream', 'wait_event', st, e),
                   ('stream', 'host_func', s, None), ('sync', 'device', None, None), ('sync', 'stream', st, None), ('sync', 'event', None, e),
                   ('event', 'destroy', None, f), ('stream', 'destroy', u, None), ('sync', 'device', None, None)]
    rows = {r['handle']: r for r in t.rows('select * from stream')}
    assert (rows[st]['flags'], rows[u]['flags'], rows[u]['priority'], rows[s]['priority']) == (1, 1, -3, None)
    assert rows[u]['destroyed_ns'] and not rows[s]['destroyed_ns']
    streams = [r['stream'] for r in t.rows("select stream from op where kind = 'copy' order by id")]
    assert streams[:3] == [None, s, 0]  # names none, names one, names the default stream


def test_devices_and_process(events):
    t, _ = events
    assert [(r['ordinal'], r['name'], r['total_bytes'], r['cc_major'], r['cc_minor'], r['sm_count'], r['clock_khz'], r['clock'], r['peak_fp32'])
            for r in t.rows('select * from device order by ordinal')] == [(0, 'Fake device 0', 1 << 30, 9, 0, 100, 1500000, 'host', None),
                                                                         (2, 'Fake device 2', 3 << 30, 9, 0, 102, 1500000, 'host', None)]
    assert [r['device'] for r in t.rows('select device from op order by id desc limit 2')] == [2, 0]
    [p] = t.rows('select * from process')
    exe = os.path.join(BUILD, 'tests', 'preload_events')
    assert p['exe'] == exe and json.loads(p['argv']) == [exe] and p['cwd'] == os.getcwd()
    assert (p['end_reason'], p['exit_code']) == ('exit', 0)
    times = t.rows('select start_ns, end_ns from op order by id')
    assert all(a['start_ns'] <= a['end_ns'] <= b['start_ns'] for a, b in zip(times, times[1:]))


@pytest.fixture(scope='module')
def blas(fake, tmp_path_factory):
    out = tmp_path_factory.mktemp('blas') / 't.db'
    r = run(os.path.join(BUILD, 'tests', 'preload_blas'), env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out)})
    assert r.returncode == 0 and r.stderr == ''
    return Trace(out)


A, B, C, N = 0x1000, 0x2000, 0x3000, None


def gemm_rows(t):
    return t.rows('select g.*, o.stream, name from gemm g join op o on o.id = g.op join api on api.id = o.api order by g.op, g.id')


def test_gemms(blas):
    f = ('trans_a', 'trans_b', 'm', 'n', 'k', 'batch', 'lda', 'ldb', 'ldc', 'stride_a', 'stride_b', 'stride_c', 'a_type', 'b_type', 'c_type',
         'compute', 'alpha', 'beta', 'pointer_array', 'algo')
    got = [(r['name'].removeprefix('cublas'), *(r[k] for k in f)) for r in gemm_rows(blas)]
    x, big = (N, N, N), 1 << 33
    expect = [
        ('Sgemm_v2', 'N', 'T', 2, 3, 4, 1, 5, 6, 7, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'one', 'zero', 0, N),
        ('Dgemm_v2', 'T', 'N', 12, 13, 14, 1, 15, 16, 17, *x, 'fp64', 'fp64', 'fp64', 'fp64', 'one', 'one', 0, N),
        ('Cgemm_v2', 'C', 'N', 2, 3, 4, 1, 5, 6, 7, *x, *['complex64'] * 3, 'fp32', 'value', 'one', 0, N),
        ('Zgemm3m', 'N', 'N', 2, 3, 4, 1, 5, 6, 7, *x, *['complex128'] * 3, 'fp64', 'one', 'zero', 0, N),
        ('Sgemm_v2_64', 'N', 'N', big, 3, 4, 1, big, 6, big, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'value', 'zero', 0, N),
        ('GemmEx', 'N', 'N', 2, 3, 4, 1, 5, 6, 7, *x, 'bf16', 'fp16', 'fp32', 'fp32_fast_tf32', 'one', 'zero', 0, 99),
        ('GemmEx', 'N', 'N', 2, 3, 4, 1, 5, 6, 7, *x, 'fp16', 'fp16', 'fp16', 'fp16', 'one', 'zero', 0, -1),
        ('GemmEx', 'N', 'N', 2, 3, 4, 1, 5, 6, 7, *x, 'int8', 'int8', 'int32', 'int32', 'one', 'zero', 0, -1),
        ('SgemmStridedBatched', 'N', 'N', 2, 3, 4, 9, 5, 6, 7, 100, 0, 300, 'fp32', 'fp32', 'fp32', 'fp32', 'one', 'one', 0, N),
        ('GemmStridedBatchedEx', 'N', 'N', 2, 3, 4, 8, 5, 6, 7, 100, 200, 300, 'fp64', 'fp64', 'fp64', 'fp64', 'one', 'zero', 0, -1),
        ('DgemmBatched', 'N', 'N', 2, 3, 4, 10, 5, 6, 7, *x, 'fp64', 'fp64', 'fp64', 'fp64', 'one', 'zero', 1, N),
        ('GemmBatchedEx', 'N', 'N', 2, 3, 4, 11, 5, 6, 7, *x, 'fp8_e4m3', 'fp8_e5m2', 'bf16', 'fp32', 'one', 'zero', 1, -1),
        ('SgemmGroupedBatched', 'N', 'T', 2, 5, 8, 3, 11, 14, 17, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'one', 'zero', 1, N),
        ('SgemmGroupedBatched', 'T', 'N', 3, 6, 9, 1, 12, 15, 18, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'zero', 'one', 1, N),
        ('SgemmGroupedBatched', 'N', 'N', 4, 7, 10, 2, 13, 16, 19, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'value', 'value', 1, N),
        ('Sgemm_v2', 'N', 'N', 1, 1, 1, 1, 1, 1, 1, *x, 'fp32', 'fp32', 'fp32', 'fp32', 'device', 'device', 0, N)]
    assert got == expect
    rows = gemm_rows(blas)
    assert {r['math_mode'] for r in rows} == {3} and {r['stream'] for r in rows} == {0x55}
    groups = [r for r in rows if 'Grouped' in r['name']]
    assert len({r['op'] for r in groups}) == 1 and groups[0]['id'] == groups[0]['op']
    assert [(r['a'], r['b'], r['c']) for r in groups] == [(A + o, B + o, C + o) for o in (0, 3 * 8, 4 * 8)]
    assert all((r['a'], r['b'], r['c']) == (A, B, C) for r in rows if r not in groups)


def test_other_blas_routines(blas):
    f = ('routine', 'type', 'm', 'n', 'k', 'batch', 'a', 'b', 'c', 'lda', 'ldb', 'ldc', 'side', 'uplo', 'trans_a', 'trans_b', 'alpha', 'beta', 'pointer_array')
    rows = blas.rows('select * from blas order by op')
    got = [tuple(r[k] for k in f) for r in rows]
    none = (N, N, N, N)
    host = got[2][8]
    expect = [
        ('axpy', 'fp32', N, 100, N, 1, A, B, 0, 2, 3, N, *none, 'value', N, 0),
        ('axpy', 'fp16', N, 101, N, 1, A, B, 0, 1, 1, N, *none, 'one', N, 0),
        ('dot', 'fp32', N, 102, N, 1, A, B, host, 1, 2, N, *none, N, N, 0),
        ('dot', 'complex64', N, 103, N, 1, A, B, C, 1, 1, N, *none, N, N, 0),
        ('scal', 'fp32', N, 104, N, 1, A, 0, 0, 1, N, N, *none, 'zero', N, 0),
        ('scal', 'complex64', N, 105, N, 1, A, 0, 0, 1, N, N, *none, 'one', N, 0),
        ('nrm2', 'fp64', N, 106, N, 1, A, 0, C, 1, N, N, *none, N, N, 0),
        ('asum', 'complex64', N, 107, N, 1, A, 0, C, 1, N, N, *none, N, N, 0),
        ('rot', 'fp32', N, 108, N, 1, A, B, 0, 1, 1, N, *none, N, N, 0),
        ('copy', 'fp32', N, 109, N, 1, A, B, 0, 4, 5, N, *none, N, N, 0),
        ('swap', 'fp64', N, 110, N, 1, A, B, 0, 1, 1, N, *none, N, N, 0),
        ('iamax', 'fp32', N, 111, N, 1, A, 0, C, 1, N, N, *none, N, N, 0),
        ('copy', 'fp32', N, 1 << 34, N, 1, A, B, 0, 1, 1, N, *none, N, N, 0),
        ('gemv', 'fp32', 20, 21, N, 1, A, B, C, 22, 1, 2, N, N, 'T', N, 'one', 'zero', 0),
        ('gemv', 'fp32', 20, 21, N, 6, A, B, C, 22, 1, 2, N, N, 'N', N, 'one', 'one', 0),
        ('gemv', 'fp64', 20, 21, N, 7, A, B, C, 22, 1, 2, N, N, 'N', N, 'one', 'zero', 1),
        ('gbmv', 'fp32', 20, 21, N, 1, A, B, C, 22, 1, 2, N, N, 'N', N, 'one', 'zero', 0),
        ('symv', 'fp32', N, 23, N, 1, A, B, C, 24, 1, 1, N, 'lower', N, N, 'one', 'zero', 0),
        ('trmv', 'fp32', N, 25, N, 1, A, B, 0, 26, 1, N, N, 'upper', 'T', N, N, N, 0),
        ('trsv', 'fp32', N, 25, N, 1, A, B, 0, 26, 1, N, N, 'upper', 'N', N, N, N, 0),
        ('ger', 'fp32', 27, 28, N, 1, A, B, C, 29, 1, 2, N, N, N, N, 'value', N, 0),
        ('syr', 'fp32', N, 30, N, 1, A, B, 0, 31, 1, N, N, 'lower', N, N, 'value', N, 0),
        ('her2', 'complex64', N, 32, N, 1, A, B, C, 33, 1, 2, N, 'lower', N, N, 'one', N, 0),
        ('symm', 'fp32', 40, 41, N, 1, A, B, C, 42, 43, 44, 'left', 'lower', N, N, 'one', 'zero', 0),
        ('herk', 'complex64', N, 45, 46, 1, A, 0, C, 47, N, 48, N, 'upper', 'C', N, 'one', 'zero', 0),
        ('syr2k', 'fp64', N, 45, 46, 1, A, B, C, 47, 48, 49, N, 'upper', 'N', N, 'one', 'zero', 0),
        ('syrkx', 'fp32', N, 45, 46, 1, A, B, C, 47, 48, 49, N, 'upper', 'N', N, 'one', 'zero', 0),
        ('trmm', 'fp32', 50, 51, N, 1, A, B, C, 52, 53, 54, 'right', 'lower', 'N', N, 'one', N, 0),
        ('trsm', 'fp32', 50, 51, N, 1, A, B, 0, 52, 53, N, 'left', 'lower', 'N', N, 'one', N, 0),
        ('trsm', 'fp32', 50, 51, N, 4, A, B, 0, 52, 53, N, 'left', 'lower', 'N', N, 'one', N, 1),
        ('geam', 'fp32', 55, 56, N, 1, A, B, C, 57, 58, 59, N, N, 'N', 'T', 'one', 'zero', 0),
        ('dgmm', 'fp32', 55, 56, N, 1, A, B, C, 57, 1, 59, 'left', N, N, N, N, N, 0),
        ('getrf', 'fp32', N, 60, N, 5, A, 0, 0, 61, N, N, *none, N, N, 1),
        ('geqrf', 'fp64', 62, 63, N, 6, A, 0, C, 64, N, N, *none, N, N, 1)]
    assert got == expect
    assert host > 0xffff  # where the program wanted the result
    assert (rows[16]['kl'], rows[16]['ku']) == (2, 3)
    assert [rows[14][k] for k in ('stride_a', 'stride_b', 'stride_c')] == [1000, 2000, 3000]


def test_workspace_and_matrix_copies(blas):
    [w] = blas.rows('select * from workspace')
    assert (w['address'], w['bytes']) == (0x9000, 12345)
    got = [tuple(r) for r in blas.db.execute('select dst, src, bytes, direction, width_bytes, height, dst_pitch_bytes, src_pitch_bytes from copy')]
    assert got == [(B, A, 40, 'h2d', N, N, N, N), (B, A, 44 * 12, 'd2h', 44, 12, 120, 80)]
    assert blas.one("select count(*) from op where kind = 'alloc'") == 0  # what cublasCreate allocates is the library's own


def test_a_failed_blas_call_is_not_looked_into(traced):
    r, out = traced('preload_blas', env={'FAKE_FAIL': 'cublasDgemm_v2'})
    t = Trace(out)
    [g] = t.rows("select g.*, o.status, o.stream, o.device from gemm g join op o on o.id = g.op where o.status <> 0")
    assert (g['status'], g['m'], g['alpha'], g['beta'], g['math_mode'], g['stream'], g['device']) == (14, 12, N, N, N, N, N)
    assert r.returncode == 0
    r, out = traced('preload_blas', env={'FAKE_FAIL': 'cublasSgemmGroupedBatched'}, trace='g.db')
    [g] = Trace(out).rows("select g.*, o.status from gemm g join op o on o.id = g.op where o.status <> 0")
    assert (g['m'], g['batch'], g['a'], g['pointer_array']) == (N, N, A, 1)


def test_functions_that_the_headers_give_to_cplusplus_only(fake, tmp_path):
    """cublasHgemm: half scalars; cublasHSSgemvStridedBatched: half in, float out and float scalars. Called by ctypes."""
    code = f"""
import ctypes as c
runtime, blas = c.CDLL({fake!r} + '/libcudart.so.13', c.RTLD_GLOBAL), c.CDLL({fake!r} + '/libcublas.so.13', c.RTLD_GLOBAL)
here, h = c.CDLL(None), c.c_void_p()
blas.cublasCreate_v2(c.byref(h))
one, zero, half = c.c_ushort(0x3c00), c.c_ushort(0), c.c_float(0.5)
p = c.c_void_p
here.cublasHgemm(h, 0, 1, 2, 3, 4, c.byref(one), p(0x1000), 5, p(0x2000), 6, c.byref(zero), p(0x3000), 7)
here.cublasHSSgemvStridedBatched(h, 1, 8, 9, c.byref(half), p(0x1000), 10, c.c_longlong(11), p(0x2000), 1, c.c_longlong(12), c.byref(half),
                                 p(0x3000), 1, c.c_longlong(13), 14)
"""
    r = run('/usr/bin/python3', '-c', code, env={'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert (r.returncode, r.stderr) == (0, '')
    t = Trace(tmp_path / 't.db')
    [g] = t.rows('select * from gemm')
    assert (g['trans_a'], g['trans_b'], g['m'], g['ldc'], g['a_type'], g['c_type'], g['compute'], g['alpha'], g['beta']) == \
        ('N', 'T', 2, 7, 'fp16', 'fp16', 'fp16', 'one', 'zero')
    [b] = t.rows('select * from blas')
    assert (b['routine'], b['type'], b['m'], b['n'], b['batch'], b['trans_a'], b['alpha'], b['beta'], b['stride_a'], b['stride_b'], b['stride_c']) == \
        ('gemv', 'fp32', 8, 9, 14, 'T', 'value', 'value', 11, 12, 13)


# ---- threads and loss -------------------------------------------------------------------------------------------------------
def test_eight_threads_lose_nothing_and_keep_their_order(traced):
    """Case 72."""
    rounds = 10000
    r, out = traced('spine_threads', '8', str(rounds), env={'ACCT_RING_SLOTS': '65536', 'ACCT_EXIT_TIMEOUT': '60000'})
    assert r.returncode == 0 and r.stderr == ''
    t = Trace(out)
    assert t.lost() == 0
    assert t.one("select count(*) from op where kind = 'alloc'") == t.one("select count(*) from op where kind = 'free'") == 8 * rounds
    assert t.one('select count(*) from alloc where free_ns is null') == 0
    seen = set()
    for th in t.rows('select id from thread'):
        sizes = [b for b, in t.db.execute("select bytes from op where thread = ? and kind = 'alloc' order by id", (th['id'],))]
        if sizes:
            assert sizes == list(range(sizes[0], sizes[0] + rounds))
            seen.add(sizes[0])
    assert seen == {i * 1000000 for i in range(1, 9)}


def test_a_tiny_ring_counts_what_it_loses(traced):
    rounds, threads = 30000, 4
    r, out = traced('spine_threads', str(threads), str(rounds), env={'ACCT_RING_SLOTS': '64', 'ACCT_EXIT_TIMEOUT': '60000'})
    assert r.returncode == 0
    t = Trace(out)
    lost = t.lost()
    assert lost > 0
    assert t.one('select count(*) from op') + lost == 2 * rounds * threads
    assert t.one("select count(*) from lost where reason = 'ring full' and first_ns <= last_ns and first_ns > 0") > 0


def test_many_short_threads_share_rings(traced):
    r, out = traced('preload_life', 'turns', '1000')
    assert r.returncode == 0 and r.stderr == ''
    t = Trace(out)
    lost = t.lost()
    assert t.one('select count(*) from op') + lost == 6000 and lost == 0
    assert t.one('select count(*) from thread') == 1000  # the main thread calls nothing
    assert t.one("select count(*) from (select thread from op group by thread having count(*) = 6 and min(coalesce(bytes, 0)) >= 0)") == 1000


def limited(which, soft):
    """For preexec_fn: a soft limit, as ulimit -S sets it."""
    return lambda: resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))


def test_threads_without_a_ring_are_counted(traced):
    """A file size limit of 256 KB leaves room for 3 rings of 72 KB; 8 threads call at once."""
    r, out = traced('spine_threads', '8', '2000', env={'ACCT_RING_SLOTS': '1024', 'ACCT_BLOB_BYTES': '4K', 'ACCT_EXIT_TIMEOUT': '60000'},
                    preexec_fn=limited(resource.RLIMIT_FSIZE, 256 << 10))
    assert r.returncode == 0 and r.stderr == ''
    t = Trace(out)
    assert t.one("select coalesce(sum(records), 0) from lost where reason = 'no ring'") > 0
    assert t.one('select count(*) from op') + t.lost() == 2 * 8 * 2000


@pytest.mark.parametrize('which,soft', [(resource.RLIMIT_AS, 256 << 20), (resource.RLIMIT_FSIZE, 2 << 20), (resource.RLIMIT_NOFILE, 12), (resource.RLIMIT_CORE, 0)])
def test_under_limits(traced, which, soft):
    r, out = traced('preload_life', 'pairs', '100', preexec_fn=limited(which, soft))
    assert (r.returncode, r.stderr) == (0, '')
    t = Trace(out)
    assert t.one('select count(*) from op') == 200 and t.lost() == 0


def test_no_room_at_all_is_said(traced):
    r, out = traced('preload_life', 'pairs', '100', preexec_fn=limited(resource.RLIMIT_FSIZE, 64 << 10))
    assert r.returncode == 0 and re.fullmatch(r'acct: no trace: [^\n]*ulimit[^\n]*\n', r.stderr) and not out.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason='locking memory takes root here')
def test_locked_memory_does_not_make_all_rings_present(fake, traced):
    """mlockall(MCL_FUTURE): 512 rings of 8 MB would be in memory at once."""
    bare = int(plain(fake, 'preload_life', 'locked').stdout)
    r, out = traced('preload_life', 'locked')
    assert (r.returncode, r.stderr) == (0, '') and int(r.stdout) < bare + 8192  # KB
    assert Trace(out).one('select count(*) from op') == 2


def test_the_first_call_takes_little_stack(fake, traced):
    """Less than 8 KB: threads and signal handlers may have stacks of 16 KB."""
    bare = [int(n) for n in plain(fake, 'preload_life', 'stack').stdout.split()]
    r, out = traced('preload_life', 'stack')
    with_ = [int(n) for n in r.stdout.split()]
    assert r.stderr == '' and with_[0] - bare[0] < 8192 and with_[1] - bare[1] < 2048, (bare, with_)
    assert Trace(out).one('select count(*) from op') == 4


def test_a_large_environment_and_command_line(traced):
    many = {f'ACCT_VGPU_TEST_{i}': 'x' * 100 for i in range(500)}
    r, out = traced('preload_life', 'pairs', '1', *(['y' * 1000] * 100), env={'CUDA_MODULE_LOADING': 'LAZY', **many})
    assert (r.returncode, r.stderr) == (0, '')
    t = Trace(out)
    assert len(json.loads(t.one('select argv from process'))) == 103
    env = json.loads(t.one('select environment from process'))
    assert env['CUDA_MODULE_LOADING'] == 'LAZY' and sum(k.startswith('ACCT_VGPU_TEST') for k in env) == 500 and 'PATH' not in env
    r, out = traced('preload_life', 'pairs', '1', 'y' * 5000, env={'ACCT_BLOB_BYTES': '4K'}, trace='small.db')
    assert r.returncode == 0
    t = Trace(out)
    assert t.one('select argv from process') is None and t.one('select count(*) from op') == 2
    assert t.one('select sum(texts) from lost') == 1  # counted, not cut short


def test_calls_at_exit_are_recorded(traced):
    r, out = traced('preload_life', 'at-exit')
    assert r.returncode == 12
    t = Trace(out)
    assert [b['bytes'] for b in t.rows("select bytes from op where kind = 'alloc' order by id")] == [600, 700, 800]
    assert (t.one('select end_reason from process'), t.one('select exit_code from process')) == ('exit', 12)


# ---- the guest's manners ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('program,args,calls', [
    ('preload_life', ['vfork'], 4), ('preload_life', ['close-range'], 12), ('preload_life', ['no-standard-files'], 2),
    ('preload_life', ['descriptors'], 2), ('preload_life', ['errno'], 2), ('preload_life', ['signals'], 2),
    ('preload_life', ['pthread-exit'], 6), ('spine_guest', ['close'], 303), ('spine_guest', ['wait'], 6),
    ('spine_guest', ['fork'], 6), ('spine_guest', ['exec'], 3), ('spine_guest', ['exit'], 3)])
def test_the_program_is_the_same_with_and_without(fake, traced, program, args, calls):
    bare = plain(fake, program, *args)
    r, out = traced(program, *args)
    assert (r.returncode, r.stdout, r.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert bare.returncode not in (96, 97, 98, 99)
    t = Trace(out)
    assert t.one('select count(*) from op') == calls and t.lost() == 0
    assert t.one('pragma integrity_check') == 'ok'


def test_a_child_with_calls_has_a_trace_of_its_own(fake, traced, tmp_path):
    """Case 71."""
    r, _ = traced('preload_life', 'fork-calls', env={'ACCT_OUTPUT': str(tmp_path / '%p.db')})
    assert (r.returncode, r.stdout, r.stderr) == (3, 'child 4\n', '')
    traces = [Trace(p) for p in sorted(glob.glob(str(tmp_path / '*.db')))]
    by_code = {t.one('select exit_code from process'): t for t in traces}
    sizes = {c: [b['bytes'] for b in t.rows("select bytes from op where kind = 'alloc' order by id")] for c, t in by_code.items()}
    assert sizes == {3: [100, 300], 4: [200, 200]}
    assert by_code[4].one('select ppid from process') == by_code[3].one('select pid from process')


def test_forks_among_busy_threads(traced, tmp_path):
    r, _ = traced('preload_life', 'fork-threads', env={'ACCT_OUTPUT': str(tmp_path / '%p.db')})
    assert (r.returncode, r.stdout, r.stderr) == (0, 'children 20\n', '')
    traces = [Trace(p) for p in glob.glob(str(tmp_path / '*.db'))]
    assert len(traces) == 11  # the program and the ten children that called
    assert sum(t.one('select count(*) from op where bytes = 60') for t in traces) == 10


def test_forks_while_the_recorder_starts(traced, tmp_path):
    """A child that is forked while CUPTI is being opened or initialised does without."""
    r, _ = traced('preload_life', 'fork-at-start', '40', env={'ACCT_OUTPUT': str(tmp_path / '%p.db')}, timeout=100)
    assert (r.returncode, r.stdout, r.stderr) == (0, 'children 40\n', '')
    traces = [Trace(p) for p in glob.glob(str(tmp_path / '*.db'))]
    assert len(traces) == 41 and sum(t.one('select count(*) from op where bytes = 60') for t in traces) == 40


def test_a_pipe_ends_with_the_program(fake, tmp_path):
    t = time.time()
    r = run('sh', '-c', f'LD_PRELOAD={LIB} {BUILD}/tests/spine_guest exec | tee {tmp_path}/out',
            env={'LD_LIBRARY_PATH': fake, 'ACCT_OUTPUT': str(tmp_path / 't.db')}, timeout=20)
    assert r.returncode == 0 and r.stdout == 'executed\n' and time.time() - t < 10


def test_programs_without_cuda_start_nothing(tmp_path):
    for argv in (['bash', '-c', 'echo $((6*7)); exit 3'], ['ls', '/'], ['/usr/bin/python3', '-c', 'print(6*7)']):
        bare, r = run(*argv, cwd=tmp_path), run(*argv, cwd=tmp_path, env={'LD_PRELOAD': LIB})
        assert (r.returncode, r.stdout, r.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert os.listdir(tmp_path) == []


def test_off_passes_everything_through(traced, tmp_path):
    r, out = traced('preload_life', 'pairs', '10', env={'ACCT': 'off'})
    assert (r.returncode, r.stderr) == (0, '') and not out.exists()


@pytest.mark.parametrize('env,says', [
    ({'ACCT_COLLECTOR': '/no such/acct-collect'}, 'ACCT_COLLECTOR'), ({'ACCT_COLLECTOR': '/bin/true'}, 'acct-collect'),
    ({'ACCT_COLLECTOR': '/etc/passwd'}, 'ACCT_COLLECTOR'),
    ({'ACCT_OUTPUT': 'no-such-folder/t.db'}, 'no-such-folder')])
def test_no_recorder_no_harm_one_line(fake, traced, env, says):
    r, _ = traced('preload_life', 'pairs', '1000', env=env)
    assert r.returncode == 0 and r.stdout == ''
    assert re.fullmatch(r'acct: [^\n]+\n', r.stderr) and says in r.stderr


@pytest.mark.parametrize('env', [{'ACCT_RING_SLOTS': '100'}, {'ACCT_BLOB_BYTES': '2G'}, {'ACCT': 'maybe'}, {'ACCT_START_TIMEOUT': 'soon'},
                                 {'ACCT_EXIT_TIMEOUT': '-1'}, {'ACCT_MAX_BYTES': '1T'}, {'ACCT_COMMIT_INTERVAL': '1x', 'ACCT_FORCE': 'please'}])
def test_a_wrong_setting_is_told_and_the_default_used(traced, env):
    r, out = traced('preload_life', 'pairs', '10', env=env)
    assert r.returncode == 0 and re.fullmatch(r'acct: [^\n]+ the default is used[^\n]*\n', r.stderr)
    assert all(f'{k}={v}' in r.stderr for k, v in env.items())
    t = Trace(out)
    assert t.one('select count(*) from op') == 20 and t.meta['state'] == 'complete'


@pytest.mark.parametrize('name', ['ACCT_START_TIMEOUT', 'ACCT_EXIT_TIMEOUT'])
def test_a_timeout_beyond_all_time_does_not_wrap(traced, name):
    for value in (2**64 // 10**6 + 1, 2**63 // 10**6 * 2, 2**64 - 1):
        r, out = traced('preload_life', 'pairs', '10', env={name: str(value)}, trace=f'{value}.db')
        assert (r.returncode, r.stderr) == (0, '') and Trace(out).one('select count(*) from op') == 20


@pytest.mark.skipif(not MAY_MOUNT, reason='needs root that may mount')
def test_without_dev_null_the_trace_is_made_and_analysed(fake, tmp_path):
    program = f'LD_LIBRARY_PATH={fake} LD_PRELOAD={LIB} ACCT_OUTPUT={tmp_path}/t.db {BUILD}/tests/preload_life pairs 10'
    r = run('unshare', '-m', 'sh', '-c', f'mount -t tmpfs none /dev && {program} | cat')
    assert (r.returncode, r.stdout, r.stderr) == (0, '', '')
    t = Trace(tmp_path / 't.db')
    assert t.one('select count(*) from op') == 20
    assert t.meta.get('analysis') is None  # it ran


def test_a_kernel_that_cannot_wipe_on_fork_is_told(fake, tmp_path):
    (tmp_path / 'm.c').write_text('#include <errno.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n'
                                  'int madvise(void *p, unsigned long n, int a) { if (a == 18) { errno = EINVAL; return -1; } '
                                  'return (int)syscall(SYS_madvise, p, n, a); }\n')
    assert run('cc', '-shared', '-fPIC', '-o', tmp_path / 'm.so', tmp_path / 'm.c').returncode == 0
    r = run(os.path.join(BUILD, 'tests', 'preload_life'), 'pairs', '10', cwd=tmp_path,
            env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': f'{LIB}:{tmp_path}/m.so'})
    assert r.returncode == 0 and re.fullmatch(r'acct: no trace: [^\n]*\n', r.stderr) and not list(tmp_path.glob('*.db'))


def test_a_collector_out_of_reach_is_told(traced):
    r, out = traced('preload_life', 'pairs', '10', env={'ACCT_SOCKET': '@nobody-listens-here'})
    assert r.returncode == 0 and re.fullmatch(r'acct: [^\n]*acct run[^\n]*\n', r.stderr)
    assert Trace(out).one('select count(*) from op') == 20


def test_a_collector_that_hangs_is_not_waited_for_for_ever(traced, tmp_path):
    silent = tmp_path / 'silent'
    silent.write_text('#!/bin/sh\nexec sleep 20\n')
    silent.chmod(0o755)
    t = time.time()
    r, _ = traced('preload_life', 'pairs', '100', env={'ACCT_COLLECTOR': str(silent), 'ACCT_START_TIMEOUT': '300'})
    assert r.returncode == 0 and 0.3 <= time.time() - t < 5
    assert 'ACCT_START_TIMEOUT' in r.stderr and r.stderr.count('\n') == 1


@pytest.mark.parametrize('pipe', ['without a reader', 'full'])
def test_a_complaint_costs_the_program_nothing(traced, pipe):
    read, write = os.pipe()
    if pipe == 'full':
        os.set_blocking(write, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(write, b'x' * 4096)
        os.set_blocking(write, True)
    else:
        os.close(read)
    r, _ = traced('preload_life', 'pairs', '10', env={'ACCT_COLLECTOR': '/no such'}, stderr=write, timeout=20)
    os.close(write)
    assert r.returncode == 0


def test_a_complaint_never_lands_in_a_file(traced, tmp_path):
    data = tmp_path / 'data'
    r, _ = traced('preload_life', 'other-stderr', str(data), env={'ACCT_COLLECTOR': '/no such'})
    assert r.returncode == 0 and r.stderr == '' and data.read_text() == ''


def test_a_killed_program_leaves_its_calls(fake, tmp_path):
    out = tmp_path / 't.db'
    p = subprocess.Popen([os.path.join(BUILD, 'tests', 'preload_life'), 'pairs', '100000000'],
                         env={**os.environ, 'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out)})
    time.sleep(0.5)
    p.send_signal(signal.SIGKILL)
    p.wait()
    t = Trace(out)
    assert t.one('select count(*) from op') > 1000 and t.one('pragma integrity_check') == 'ok'
    assert t.one('select end_reason from process') == 'ended'


def test_a_plugin_with_a_private_runtime(fake, tmp_path):
    """A Python extension brings libcudart in RTLD_LOCAL: its calls arrive here, the real functions are not in the global scope."""
    (tmp_path / 'p.c').write_text('int cudaMalloc(void **, unsigned long); int cudaFree(void *);\n'
                                  'int work(void) { void *p; return cudaMalloc(&p, 4321) || cudaFree(p); }\n')
    so = tmp_path / 'plugin.so'
    r = run('cc', '-shared', '-fPIC', '-o', so, tmp_path / 'p.c', '-Wl,--no-as-needed', f'-L{fake}', '-l:libcudart.so.13')
    assert r.returncode == 0, r.stderr
    r = run('/usr/bin/python3', '-c', f'import ctypes; print(ctypes.CDLL({str(so)!r}).work())',
            env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert (r.returncode, r.stdout, r.stderr) == (0, '0\n', '')
    t = Trace(tmp_path / 't.db')
    assert [(x['name'], x['status'], x['bytes']) for x in t.rows('select * from op_named order by id')] == [('cudaMalloc', 0, 4321), ('cudaFree', 0, None)]


def test_a_daemon_left_behind_does_not_keep_the_trace_open(traced):
    """fork, the parent ends, the child without CUDA calls lives on (with every descriptor of its parent)."""
    start = time.time()
    r, out = traced('preload_life', 'daemon', stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert r.returncode == 8
    assert Trace(out).one('select exit_code from process') == 8 and time.time() - start < 8


# ---- the library itself -----------------------------------------------------------------------------------------------------
def test_every_function_of_the_headers_is_decided_on(listing):
    undecided = [n for _, n, a in listing if a == 'None']
    assert not undecided, f'add a row to preload/api.table for {undecided}'
    reasons = [a for _, _, a in listing if a.split()[0] in ('pass', 'missing')]
    assert all(len(a.split()) > 2 for a in reasons)
    # What is missing says so; it is all of these kinds and no other.
    missing = {n for _, n, a in listing if a.startswith('missing')}
    assert all(re.match(r'cuda(Graph|Stream(Begin|End)Capture|Graphics|Ipc|Memcpy(3D)?BatchAsync|DeviceReset|MemPoolImport|ExternalMemory)', n)
               for n in missing), missing


def test_what_allocates_copies_or_computes_is_not_passed_silently(listing):
    """The table's catch-all rows must not swallow a function of the classes that are covered."""
    covered = re.compile(r'cuda(Malloc(?!.*Node)|Free|Memcpy|Memset|HostAlloc|HostRegister|HostUnregister|EventRecord|EventCreate|EventDestroy|'
                         r'StreamCreate|StreamDestroy|StreamWaitEvent|\w*Synchronize$)|'
                         r'cublas(Lt(Create|Destroy|Matmul|MatrixTransform)|Create|Destroy|SetWorkspace|[SDCZHI][a-z]\w*|Gemm\w*|\w*Ex(_64)?)$')
    passed = [n for _, n, a in listing if covered.match(n) and a.startswith('pass')]
    # rotg, rotmg: scalars only; Set/Get/Logger names begin like a type letter
    assert all(re.search(r'[Rr]otm?g|^cublas(Set|Get|Logger|Xerbla)', n) for n in passed), passed


def exports(path):
    r = run('nm', '-D', '--defined-only', path)
    return {l.split()[2].split('@')[0] for l in r.stdout.splitlines()}


def test_only_wrappers_are_exported():
    names = exports(LIB)
    assert {'cudaMalloc', 'cudaMallocAsync_ptsz', 'cublasSgemm_v2', 'cublasHgemm', 'cublasGemmEx_64', 'cublasLtMatmul'} <= names
    assert all(re.match(r'(__cuda|cuda|cublas)[A-Z]', n) for n in names), names


def test_undefined_symbols_are_on_the_list():
    allowed = {l.split()[0] for l in open(os.path.join(TOP, 'preload', 'undefined.allow')) if l.strip() and not l.startswith('#')}
    r = run('nm', '-D', '--undefined-only', LIB)
    used = {l.split()[-1].split('@')[0] for l in r.stdout.splitlines()}
    assert used <= allowed, f'libacct.so now needs {used - allowed}: may a guest call that inside the program?'
    assert not allowed & {'malloc', 'calloc', 'realloc', 'free', 'exit', '_exit', 'abort', 'printf', 'fprintf', 'snprintf', 'fopen', 'fwrite', 'sigaction',
                          'signal', '__assert_fail', '__stack_chk_fail'}


def test_needs_nothing_but_libc():
    r = run('readelf', '-d', LIB)
    assert set(re.findall(r'NEEDED.*\[(.*)\]', r.stdout)) <= {'libc.so.6', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}
    assert re.search(r'NODELETE', r.stdout)
    assert 'TEXTREL' not in r.stdout


def test_a_function_of_tomorrow_is_not_swallowed(listing):
    """The rows for the rest are narrow: a name that a later toolkit may bring is undecided, so that the test above fails."""
    sys.path.insert(0, os.path.dirname(GENERATOR))
    import gen_wrappers
    rows = gen_wrappers.read_table(os.path.join(TOP, 'preload', 'api.table'))
    for name in ('cudaMallocTomorrow', 'cudaFreeTomorrow', 'cudaMemcpyTomorrow', 'cudaMemsetTomorrow', 'cudaHostTomorrow', 'cudaEventTomorrow'):
        assert gen_wrappers.action_of(rows, 'cudart', name) is None, name
    assert gen_wrappers.action_of(rows, 'cublas', 'cublasStomorrow') is None
    assert gen_wrappers.action_of(rows, 'cublasLt', 'cublasLtMatmulTomorrow') is None
