"""The analysis: steps, phases, classes and FLOPs, on the lecture's model call by call, on cases at the edges, and on the oracle's
simulated programs with known truth."""
import json, os, shutil, sqlite3
import pytest
import oracle_adapter
from lecture_model import Linear, HOST, BASE
from trace_maker import Maker


def analyzed(path):
    oracle_adapter.analyze(path)
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    return db


def by_class(db):
    return dict(db.execute("SELECT class, sum(c.bytes) FROM alloc_class c JOIN alloc a ON a.id = c.alloc "
                           "WHERE a.memory = 'device' GROUP BY class"))


def steps(db):
    return db.execute('SELECT * FROM step ORDER BY id').fetchall()


def matmul_flops(db, where='1', *args):
    return db.execute(f'SELECT coalesce(sum(flops), 0) FROM op_cost WHERE matmul AND {where}', args).fetchone()[0]


def check_cover(db):
    """Every byte of every allocation has one class at each time (whole lives here)."""
    for alloc, n in db.execute('SELECT id, bytes FROM alloc'):
        end = 0
        for off, b, a, z in db.execute('SELECT offset, bytes, from_ns, until_ns FROM alloc_class WHERE alloc = ? ORDER BY offset', (alloc,)):
            assert (off, a, z) == (end, None, None)
            end += b
        assert end == n


def check_linear(db, model, steps_expected, complete=True):
    assert by_class(db) == model.expected_bytes()
    check_cover(db)
    s = steps(db)
    assert len(s) == steps_expected
    forward, backward = model.expected_flops()
    for r in s:
        if not r['complete']:
            continue
        assert matmul_flops(db, 'step = ?', r['id']) == forward + backward
        assert matmul_flops(db, "step = ? AND phase = 'forward'", r['id']) == forward
        assert matmul_flops(db, "step = ? AND phase = 'backward'", r['id']) == backward
        assert r['tokens'] == model.B and r['micro_batches'] == 1
        names = [x[0] for x in db.execute('SELECT name FROM phase WHERE step = ? ORDER BY start_ns', (r['id'],))]
        assert names == ['forward', 'backward', 'optimizer']
        last = db.execute("SELECT last_op FROM phase WHERE step = ? AND name = 'forward'", (r['id'],)).fetchone()[0]
        assert last == model.turn[r['id']]      # the loss is forward, its sum for the host included
    assert all(r['complete'] for r in s) == complete
    for a, b in zip(s, s[1:]):
        assert b['start_ns'] == a['end_ns']


def test_lecture_figures(tmp_path):
    """The figures of the lecture, as numbers."""
    db = analyzed(Linear(str(tmp_path / 't.db')).t.path)
    assert by_class(db) == dict(param=1572864, grad=1572864, optimizer=1572864, activation=196608, input=32768, activation_grad=65536)
    for r in steps(db):
        assert matmul_flops(db, 'step = ?', r['id']) == 71303168
        assert matmul_flops(db, "step = ? AND phase = 'forward'", r['id']) == 25165824
    assert len(steps(db)) == 4
    assert {r[0] for r in db.execute('SELECT DISTINCT dtype FROM op_cost WHERE matmul')} == {'fp32'}
    assert db.execute("SELECT value FROM meta WHERE key = 'analysis_version'").fetchone()[0] == 6


@pytest.mark.parametrize('alloc', ['class', 'tensor'])
@pytest.mark.parametrize('optimizer', ['momentum', 'sgd'])
@pytest.mark.parametrize('dx_first', [True, False])
@pytest.mark.parametrize('layers', [1, 2, 6, 12])
def test_linear(tmp_path, alloc, optimizer, dx_first, layers):
    m = Linear(str(tmp_path / 't.db'), alloc=alloc, optimizer=optimizer, dx_first=dx_first, layers=layers)
    if layers == 1:                      # the second gradient buffer is never touched
        db = analyzed(m.t.path)
        e = m.expected_bytes()
        if alloc == 'tensor':
            e.update(activation_grad=32768, unknown=32768)
        assert by_class(db) == e
        assert len(steps(db)) == 4
    else:
        check_linear(analyzed(m.t.path), m, 4)


@pytest.mark.parametrize('D', [64, 128, 512, 1024, 2048])
@pytest.mark.parametrize('alloc', ['class', 'tensor'])
def test_linear_sizes(tmp_path, D, alloc):
    m = Linear(str(tmp_path / 't.db'), D=D, alloc=alloc)
    check_linear(analyzed(m.t.path), m, 4)


@pytest.mark.parametrize('every', [1, 2])
def test_linear_evaluation(tmp_path, every):
    m = Linear(str(tmp_path / 't.db'), eval_every=every, steps=6)
    db = analyzed(m.t.path)
    check_linear(db, m, 6)
    assert matmul_flops(db, "phase = 'evaluation' AND step IS NULL") == m.expected_flops()[0] * len(range(0, 6, every))


@pytest.mark.parametrize('cut', ['forward', 'backward', 'optimizer'])
@pytest.mark.parametrize('alloc', ['class', 'tensor'])
def test_linear_cut_off(tmp_path, cut, alloc):
    m = Linear(str(tmp_path / 't.db'), cut=cut, steps=5, alloc=alloc)
    db = analyzed(m.t.path)
    check_linear(db, m, 5, complete=False)
    assert [r['complete'] for r in steps(db)] == [1, 1, 1, 1, 0]
    assert matmul_flops(db, "step = 4 AND phase = 'forward'") == m.expected_flops()[0]


@pytest.mark.parametrize('optimizer', ['momentum', 'sgd'])
@pytest.mark.parametrize('alloc', ['class', 'tensor'])
def test_killed_at_any_call_of_the_third_step(tmp_path, alloc, optimizer):
    """The classes are those of the whole run, wherever it ends."""
    m = Linear(str(tmp_path / 't.db'), D=64, layers=3, B=8, steps=3, alloc=alloc, optimizer=optimizer)
    for last in range(m.end[1], m.end[2] + 1):
        path = str(tmp_path / f'{last}.db')
        shutil.copy(m.t.path, path)
        db = sqlite3.connect(path)
        assert db.execute('SELECT max(id), count(*) FROM op').fetchone() == (m.t.n,) * 2
        db.execute('DELETE FROM op WHERE id > ?', (last,))
        for table in ('gemm', 'blas', 'copy', 'memset'):
            db.execute(f'DELETE FROM {table} WHERE op > ?', (last,))
        db.commit()
        db.close()
        assert by_class(analyzed(path)) == m.expected_bytes(), (last - m.end[1], m.end[2] - m.end[1])


@pytest.mark.parametrize('optimizer', ['momentum', 'sgd'])
@pytest.mark.parametrize('alloc', ['class', 'tensor'])
def test_linear_one_step(tmp_path, optimizer, alloc):
    m = Linear(str(tmp_path / 't.db'), steps=1, optimizer=optimizer, alloc=alloc)
    db = analyzed(m.t.path)
    check_linear(db, m, 1)
    assert db.execute('SELECT max(confidence) FROM alloc_class').fetchone()[0] <= 0.7


def test_loss_on_the_device(tmp_path):
    m = Linear(str(tmp_path / 't.db'), device_loss=True)
    got = by_class(analyzed(m.t.path))
    loss = {k: got[k] - m.expected_bytes().get(k, 0) for k in got if got[k] != m.expected_bytes().get(k, 0)}
    assert sum(loss.values()) == 4 and set(loss) <= {'activation', 'activation_grad', 'temporary', 'other'}


def test_again_is_the_same(tmp_path):
    path = Linear(str(tmp_path / 't.db'), eval_every=2).t.path
    tables = ('op_buffer', 'step', 'phase', 'alloc_class', 'op_cost')
    dump = lambda db: [[tuple(r) for r in db.execute(f'SELECT * FROM {t}')] for t in tables]
    a = dump(analyzed(path))
    assert a == dump(analyzed(path)) and all(a)


def test_operands(tmp_path):
    """What ops read and write, by the conventions of the call."""
    m = Linear(str(tmp_path / 't.db'), steps=1, layers=2)
    db = analyzed(m.t.path)
    H, W = m.D * m.B * 4, m.D * m.D * 4
    rows = lambda kind: [[(r['slot'], r['mode'], r['bytes']) for r in db.execute('SELECT * FROM op_buffer WHERE op = ? ORDER BY slot', (op,))]
                         for op, in db.execute("SELECT op.id FROM op JOIN api ON api.id = op.api WHERE api.name = ? ORDER BY op.id", (kind,))]
    assert rows('cublasSgemm_v2')[0] == [('A', 'r', W), ('B', 'r', H), ('C', 'w', H)]
    assert rows('cublasSgeam') == [[('A', 'r', H), ('B', 'r', H), ('C', 'w', H)]]
    assert rows('cublasSaxpy_v2')[0] == [('x', 'r', W), ('y', 'rw', W)]
    assert rows('cublasSscal_v2')[0] == [('x', 'rw', W)]
    # the copy's other side is the host's: an address, no allocation
    assert [r['alloc'] is None for r in db.execute("SELECT alloc FROM op_buffer WHERE slot = 'src'")] == [True] * 3


def test_failed_calls_cost_nothing(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    for i in range(3):
        t.alloc(BASE + i * 4096, 4096)
    v = dict(m=32, n=32, k=32, a=BASE, b=BASE + 4096, c=BASE + 8192, lda=32, ldb=32, ldc=32)
    t.gemm(status=13, **v)
    ok = t.gemm(**v)
    db = analyzed(t.close())
    assert [tuple(r) for r in db.execute('SELECT op, flops, bytes_read, bytes_written, grade FROM op_cost')] == [
        (ok + 1, 2 * 32 ** 3, 8192, 4096, 'exact')]
    assert {r[0] for r in db.execute('SELECT op FROM op_buffer')} == {ok + 1}


def test_unknown_is_null(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    t.alloc(BASE, 4096)
    lu = t.blas('getrfBatched', 'cublasSgetrfBatched', n=16, a=BASE, lda=16, pointer_array=1)
    k = t.launch('my_kernel', [])
    db = analyzed(t.close())
    for op in (lu, k):
        r = db.execute('SELECT * FROM op_cost WHERE op = ?', (op + 1,)).fetchone()
        assert (r['flops'], r['bytes_read'], r['grade']) == (None, None, 'uncounted')


def test_tf32(tmp_path):
    def dtype(math_mode, environment='{}', **v):
        t = Maker(str(tmp_path / 't.db'), environment=environment)
        t.alloc(BASE, 1 << 20)
        t.gemm(m=8, n=8, k=8, a=BASE, b=BASE, c=BASE + 4096, lda=8, ldb=8, ldc=8, math_mode=math_mode, **v)
        return analyzed(t.close()).execute('SELECT dtype FROM op_cost').fetchone()[0]
    assert dtype(0) == 'fp32'
    assert dtype(3) == 'tf32'
    assert dtype(3, json.dumps({'NVIDIA_TF32_OVERRIDE': '0'})) == 'fp32'
    assert dtype(0, compute='fp32_fast_tf32') == 'tf32'
    assert dtype(3, a_type='bf16', b_type='bf16', c_type='bf16') == 'bf16'
    assert dtype(None) is None


def test_no_training(tmp_path):
    """Products on buffers that nothing updates: no step, no invented classes."""
    t = Maker(str(tmp_path / 't.db'))
    for i in range(3):
        t.alloc(BASE + i * 4096, 4096)
    t.memset(BASE + 8192, 4096)
    db = analyzed(t.close())
    assert steps(db) == [] and by_class(db) == {'unknown': 12288}
    check_cover(db)


def two_layers(t, update, offload=False, steps=4):
    """Two layers of 32 x 32, 16 rows: y = relu(x w0) w1, with an update of its own manner (a function of step, weights and gradients,
    that tells the weights of the next step). The classes by address, what is no weight."""
    n, size = 16 * 32 * 4, 32 * 32 * 4
    at = {}
    for name in ('w0', 'w1', 'v0', 'v1', 'dw0', 'dw1'):
        at[name] = BASE + len(at) * 0x10000
        t.alloc(at[name], size)
    for name in ('x', 'goal', 'h', 'y', 'dy', 'dh', 'back'):
        at[name] = BASE + len(at) * 0x10000
        t.alloc(at[name], n)
    w = [at['w0'], at['w1']]
    product = lambda c, a, b, m, k, ta, tb: t.gemm(m=m, n=32, k=k, a=a, b=b, c=c, trans_a=ta, trans_b=tb, lda=32, ldb=32, ldc=32)
    for i in (0, 1):
        t.copy('h2d', w[i], HOST, size)
    for step in range(steps):
        t.copy('h2d', at['x'], HOST, n)
        t.copy('h2d', at['goal'], HOST, n)
        t.gemm(m=32, n=16, k=32, a=w[0], b=at['x'], c=at['h'], trans_a='T', lda=32, ldb=32, ldc=32)
        t.launch('relu', [(at['h'], 'rw', n)])
        if offload:
            t.copy('d2h', HOST, at['h'], n)
        t.gemm(m=32, n=16, k=32, a=w[1], b=at['h'], c=at['y'], trans_a='T', lda=32, ldb=32, ldc=32)
        t.launch('loss', [(at['dy'], 'w', n), (at['y'], 'r', n), (at['goal'], 'r', n)])
        if offload:
            t.copy('h2d', at['back'], HOST, n)
        h = at['back'] if offload else at['h']
        t.gemm(m=32, n=32, k=16, a=h, b=at['dy'], c=at['dw1'], trans_b='T', lda=32, ldb=32, ldc=32)
        t.gemm(m=32, n=16, k=32, a=w[1], b=at['dy'], c=at['dh'], lda=32, ldb=32, ldc=32)
        t.launch('relu_backward', [(at['dh'], 'rw', n), (h, 'r', n)])
        t.gemm(m=32, n=32, k=16, a=at['x'], b=at['dh'], c=at['dw0'], trans_b='T', lda=32, ldb=32, ldc=32)
        w = update(step, w, at)
    return at


def class_at(db, address):
    return db.execute('SELECT class FROM alloc_class c JOIN alloc a ON a.id = c.alloc WHERE address = ?', (address,)).fetchone()[0]


def test_weights_that_change_places(tmp_path):
    """Each update writes the weights elsewhere, and the next step reads them there: nothing is changed in place, so the rules find
    no update. Steps are what comes again, all FLOPs are in them, and no class is sure."""
    t = Maker(str(tmp_path / 't.db'))
    size = 32 * 32 * 4

    def update(step, w, at):
        to = [at['v0'], at['v1']] if w[0] == at['w0'] else [at['w0'], at['w1']]
        for i in (0, 1):
            t.launch('step_to', [(to[i], 'w', size), (w[i], 'r', size), (at[f'dw{i}'], 'r', size)])
        return to
    two_layers(t, update)
    db = analyzed(t.close())
    check_cover(db)
    s = steps(db)
    assert [(r['found_by'], r['complete'], r['micro_batches']) for r in s] == [('repeats', 1, 1)] * 4
    for r in s:
        assert matmul_flops(db, 'step = ?', r['id']) == 5 * 2 * 16 * 32 * 32
    assert db.execute("SELECT max(confidence) FROM alloc_class WHERE class <> 'unknown'").fetchone()[0] < 0.35


def test_updates_without_gradients(tmp_path):
    """Weights are disturbed by noise before each pass, and nothing is differentiated: passes over weights that are parameters."""
    t = Maker(str(tmp_path / 't.db'))
    size, n = 32 * 32 * 4, 16 * 32 * 4
    w, v, noise, x, h, y = (BASE + i * 0x10000 for i in range(6))
    for i in range(6):
        t.alloc(BASE + i * 0x10000, size if i < 3 else n)
    for at in (w, v):
        t.copy('h2d', at, HOST, size)
    for _ in range(4):
        t.copy('h2d', x, HOST, n)
        t.copy('h2d', noise, HOST, size)
        for at in (w, v):
            t.launch('disturb', [(at, 'rw', size), (noise, 'r', size)])
        t.gemm(m=32, n=16, k=32, a=w, b=x, c=h, trans_a='T', lda=32, ldb=32, ldc=32)
        t.launch('relu', [(h, 'rw', n)])
        t.gemm(m=32, n=16, k=32, a=v, b=h, c=y, trans_a='T', lda=32, ldb=32, ldc=32)
        t.launch('loss', [(y, 'rw', n)])
    db = analyzed(t.close())
    assert class_at(db, w) == class_at(db, v) == 'param'
    assert sum(matmul_flops(db, 'step = ?', r['id']) for r in steps(db)) == 4 * 2 * 2 * 16 * 32 * 32


def test_gradients_that_nobody_uses(tmp_path):
    """Forward and backward, and no update ever (each step's gradients overflow): a step is a pass over the weights there and back."""
    t = Maker(str(tmp_path / 't.db'))
    two_layers(t, lambda step, w, at: w)
    db = analyzed(t.close())
    s = steps(db)
    assert [(r['found_by'], r['micro_batches'], r['tokens']) for r in s] == [('passes', 1, 16)] * 4
    for r in s:
        assert matmul_flops(db, 'step = ?', r['id']) == 5 * 2 * 16 * 32 * 32


def test_a_batch_made_worse_by_its_gradient(tmp_path):
    """The input's gradient is taken along the weights' way back, and added to the input before the pass that trains: nothing tells
    that first way back from forward, and what follows from phases is no more than likely."""
    size, n = 32 * 32 * 4, 16 * 32 * 4

    def confidences(path, worse):
        t = Maker(str(tmp_path / path))
        w, dw, x, y, dy, dx, bad = (BASE + i * 0x10000 for i in range(7))
        for i in range(7):
            t.alloc(BASE + i * 0x10000, size if i < 2 else n)
        t.copy('h2d', w, HOST, size)
        for step in range(4):
            t.copy('h2d', x, HOST, n)
            for k in (0, 1) if worse else (1,):
                batch = bad if worse and k else x
                t.gemm(m=32, n=16, k=32, a=w, b=batch, c=y, trans_a='T', lda=32, ldb=32, ldc=32)
                t.launch('loss', [(dy, 'w', n), (y, 'r', n)])
                if not k:
                    t.gemm(m=32, n=16, k=32, a=w, b=dy, c=dx, lda=32, ldb=32, ldc=32)
                    t.launch('worse', [(bad, 'w', n), (x, 'r', n), (dx, 'r', n)])
            t.gemm(m=32, n=32, k=16, a=batch, b=dy, c=dw, trans_b='T', lda=32, ldb=32, ldc=32)
            t.launch('sgd', [(w, 'rw', size), (dw, 'r', size)])
        db = analyzed(t.close())
        assert len(steps(db)) == 4 and class_at(db, w) == 'param' and class_at(db, dw) == 'grad'
        return dict(db.execute('SELECT class, max(confidence) FROM alloc_class GROUP BY class'))
    sure, likely = confidences('a.db', False), confidences('b.db', True)
    assert sure['activation'] > 0.9 and likely['activation'] <= 0.6 and likely['param'] == sure['param'] > 0.9


def test_activations_that_wait_on_the_host(tmp_path):
    """Activations go to the host in forward and come back for backward: the copy that brings one back is later than the gradient that
    the loss made, which is where backward begins all the same."""
    t = Maker(str(tmp_path / 't.db'))
    size = 32 * 32 * 4

    def update(step, w, at):
        for i in (0, 1):
            t.launch('sgd', [(w[i], 'rw', size), (at[f'dw{i}'], 'r', size)])
        return w
    at = two_layers(t, update, offload=True)
    db = analyzed(t.close())
    assert class_at(db, at['dy']) == 'activation_grad' and class_at(db, at['dh']) == 'activation_grad'
    assert class_at(db, at['dw0']) == 'grad' and class_at(db, at['w1']) == 'param' and class_at(db, at['h']) == 'activation'
    s = steps(db)
    assert [(r['found_by'], r['micro_batches']) for r in s] == [('update', 1)] * 4
    for r in s:
        assert matmul_flops(db, "step = ? AND phase = 'forward'", r['id']) == 2 * 2 * 16 * 32 * 32
        assert matmul_flops(db, "step = ? AND phase = 'backward'", r['id']) == 3 * 2 * 16 * 32 * 32


def test_empty_trace(tmp_path):
    db = analyzed(Maker(str(tmp_path / 't.db')).close())
    assert steps(db) == [] and by_class(db) == {}
    assert db.execute("SELECT value FROM meta WHERE key = 'analysis_version'").fetchone()


def test_host_memory_is_no_device_memory(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    t.alloc(HOST, 1 << 20, memory='pinned')
    t.alloc(BASE, 1 << 20)
    up = t.copy('default', BASE, HOST, 4096)
    down = t.copy('default', HOST, BASE, 4096)
    db = analyzed(t.close())
    r = db.execute("SELECT class, rule FROM alloc_class WHERE alloc = 1").fetchall()
    assert [tuple(x) for x in r] == [('other', 'page-locked memory of the host')]
    assert [tuple(x) for x in db.execute("SELECT op, slot, alloc FROM op_buffer ORDER BY op, slot")] == [
        (up + 1, 'dst', 2), (up + 1, 'src', 1), (down + 1, 'dst', 1), (down + 1, 'src', 2)]


def test_addresses_come_again(tmp_path):
    """An address that is freed and allocated again names the new allocation, whatever its size."""
    t = Maker(str(tmp_path / 't.db'))
    first = t.alloc(BASE, 4096)
    t.memset(BASE, 4096)
    t.free(BASE)
    second = t.alloc(BASE, 65536)
    t.memset(BASE + 8192, 4096)
    t.free(BASE)
    t.memset(BASE, 16)
    db = analyzed(t.close())
    assert [r[0] for r in db.execute('SELECT alloc FROM op_buffer ORDER BY op')] == [first + 1, second + 1, None]


def test_two_processes_with_equal_addresses(tmp_path):
    path = Linear(str(tmp_path / 't.db'), steps=2).t.path
    db = sqlite3.connect(path)
    db.execute("INSERT INTO process(id, pid, start_ns) VALUES(2, 101, 0)")
    db.execute("INSERT INTO thread(id, process, tid, start_ns) VALUES(2, 2, 101, 0)")
    last = db.execute('SELECT max(id) FROM op').fetchone()[0]
    db.execute("INSERT INTO op SELECT ?, 2, 2, api, kind, act, device, stream, 1600, 1700, 0, 64, ? FROM op WHERE id = 1", (last + 1, BASE))
    db.execute("INSERT INTO alloc VALUES(?, 2, ?, 64, 'device', 0, NULL, 1700, NULL, NULL)", (last + 1, BASE))
    db.commit()
    db.close()
    db = analyzed(path)
    assert db.execute('SELECT count(*) FROM op_buffer WHERE alloc = ?', (last + 1,)).fetchone()[0] == 0
    assert db.execute('SELECT class FROM alloc_class WHERE alloc = ?', (last + 1,)).fetchone()[0] == 'unknown'


def test_running_trace(tmp_path):
    """A program that was killed: the state is still `running`, the last records are missing."""
    path = Linear(str(tmp_path / 't.db'), steps=3).t.path
    db = sqlite3.connect(path)
    last = db.execute('SELECT max(id) FROM op').fetchone()[0]
    db.execute('UPDATE meta SET value = "running" WHERE key = "state"'.replace('"', "'"))
    for table, col in (('op', 'id'), ('gemm', 'op'), ('blas', 'op')):
        db.execute(f'DELETE FROM {table} WHERE {col} > ?', (last - 4,))
    db.commit()
    db.close()
    assert len(steps(analyzed(path))) == 3


def test_wrong_database_is_an_error(tmp_path):
    import subprocess
    path = str(tmp_path / 'x.db')
    db = sqlite3.connect(path)
    db.execute('CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY) WITHOUT ROWID')
    db.commit()
    r = subprocess.run(oracle_adapter.analyzer() + [path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert r.returncode and 'x.db' in r.stdout and len(r.stdout.strip().splitlines()) == 1


HOSTILE = [0, -1, 1, 2 ** 63 - 1, -2 ** 63, 2 ** 62, 2 ** 31, None, 'x', '', 1.5]


def damage(db, rng):
    """One cell of a recorded table gets a value that the collector would never write, or a row disappears."""
    table = rng.choice(['op', 'alloc', 'gemm', 'blas', 'copy', 'memset', 'process', 'device'])
    column = rng.choice([r[1] for r in db.execute(f'PRAGMA table_info({table})')])
    rows = [r[0] for r in db.execute(f'SELECT rowid FROM {table}')]
    if not rows:
        return
    value = rng.choice(HOSTILE) if rng.random() < .6 else rng.randrange(1 << rng.randrange(1, 62))
    try:
        db.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, rng.choice(rows)))
        if rng.random() < .1:
            db.execute(f'DELETE FROM {table} WHERE rowid = ?', (rng.choice(rows),))
    except sqlite3.Error:
        pass                                # a constraint of the schema refuses it


@pytest.mark.parametrize('seed', range(8))
def test_damaged_traces_crash_nothing(tmp_path, seed):
    """Ends with an analysis or with one line, whatever the numbers in the file are."""
    import random, shutil, subprocess
    rng, good = random.Random(seed), Linear(str(tmp_path / 'good.db'), layers=2, steps=3).t.path
    for n in range(5):
        path = str(tmp_path / f'{n}.db')
        shutil.copy(good, path)
        db = sqlite3.connect(path)
        for _ in range(rng.choice([1, 3, 20, 100])):
            damage(db, rng)
        db.commit()
        db.close()
        r = subprocess.run(oracle_adapter.analyzer() + [path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert r.returncode >= 0 and r.returncode < 100 and 'runtime error' not in r.stdout, r.stdout
        assert r.returncode == 0 or len(r.stdout.strip().splitlines()) == 1


# ---- the oracle -----------------------------------------------------------------------------------------------------------------
# Programs that the reference implementation of the rules itself does not pass: an optimizer made of GEMMs in released buffers, two
# forward branches under one loss, a cache most of which is never touched, traces attached in the middle of a run.
NOT_PASSED_BY_THE_RULES = {'adv2/muon-dyn', 'adv2/siamese-class', 'adv2/siamese-tensor', 'adv2/siamese-giant', 'adv2/kvcache-giant',
                           'adv2/late-tensor', 'adv2/late-dyn', 'adv2/late-K2-class', 'adv2/late-K2-tensor', 'adv2/late-K2-giant',
                           'adv2/late-K2-dyn'}


def oracle_matrix(choose):
    if not os.path.isdir(oracle_adapter.ORACLE):
        pytest.skip(f'no oracle at {oracle_adapter.ORACLE}: simulated programs with truth lie beside the repository')
    import matrix
    return {k: v for k, v in matrix.programs().items() if choose(k, v)}


def test_oracle_known_sets(capsys):
    programs = oracle_matrix(lambda k, v: oracle_adapter.visible(v))
    res = oracle_adapter.run_matrix(programs)
    failed = {k for k, v in res.items() if not v['pass']}
    with capsys.disabled():
        print(f'\noracle, known sets: {len(res) - len(failed)} of {len(res)} programs pass')
    errors = [v['error'] for v in res.values() if 'error' in v]
    assert not errors, errors[0]
    assert failed <= NOT_PASSED_BY_THE_RULES, sorted(failed - NOT_PASSED_BY_THE_RULES)
    assert not [k for k in failed if '/linear' in k]


@pytest.mark.parametrize('name,choose,every,floor', [
    ('directions or extents not known', lambda v: v.get('alloc') != 'pool' and v.get('rw', 'full') != 'full', 4, 48),
    ('hidden pool, sets known', lambda v: v.get('alloc') == 'pool' and v.get('rw', 'full') == 'full', 4, 23)])
def test_oracle_degraded(capsys, name, choose, every, floor):
    """Every fourth program; `python3 tests/oracle_adapter.py '' blind` (or pool) runs all: 190 of 200, 95 of 124."""
    programs = list(oracle_matrix(lambda k, v: choose(v)).items())[::every]
    res = oracle_adapter.run_matrix(dict(programs))
    passed = sum(v['pass'] for v in res.values())
    with capsys.disabled():
        print(f'\noracle, {name}: {passed} of {len(res)} programs pass (a quarter of them)')
    assert not [v['error'] for v in res.values() if 'error' in v]
    assert passed >= floor
