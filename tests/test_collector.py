"""acct-collect, driven by tests/support/fake_program.c, which speaks the library's protocol without CUDA: what was written
comes out as rows, however the program, the collector or the disk come to their end."""
import json, os, random, re, resource, signal, socket, sqlite3, subprocess, time
import pytest
from conftest import BUILD, MAY_MOUNT, TOP

COLLECT = os.path.join(BUILD, 'acct-collect')
FAKE = os.path.join(BUILD, 'tests', 'fake_program')
ROOT = os.geteuid() == 0


def clean_env(**extra):
    e = {k: v for k, v in os.environ.items() if not k.startswith('ACCT') and k != 'LD_PRELOAD'}
    e.update(extra)
    return e


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own, with a collector that has no acct beside it, so that nothing analyses the trace."""
    bin_ = tmp_path / 'bin'
    bin_.mkdir()
    os.link(COLLECT, bin_ / 'acct-collect') if os.stat(COLLECT).st_dev == os.stat(bin_).st_dev else \
        subprocess.check_call(['cp', COLLECT, str(bin_)])
    work = tmp_path / 'work'
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def collector(here):
    return str(here.parent / 'bin' / 'acct-collect')


def fake(here, *actions, env=None, **kw):
    return subprocess.run([FAKE, collector(here), *map(str, actions)], env=clean_env(**(env or {})), cwd=here, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)


def wait_for(condition, what, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        try:
            got = condition()
        except sqlite3.Error:  # being created, or locked
            got = None
        if got:
            return got
        time.sleep(0.01)
    raise AssertionError('waited in vain for ' + what)


def sql(path, query, *args):
    db = sqlite3.connect(path, timeout=10)
    try:
        return db.execute(query, args).fetchall()
    finally:
        db.close()


def meta(path):
    return dict(sql(path, 'SELECT key, value FROM meta'))


def finished(path):
    """Waits for the collector's end: one file, state no longer running."""
    def done():
        if os.path.exists(str(path) + '-wal') or not os.path.exists(path):
            return False
        return meta(path).get('state') not in (None, 'running')
    wait_for(done, f'{path} to be finished')
    pid = meta(path)['collector_pid']
    wait_for(lambda: not os.path.exists(f'/proc/{pid}') or 'Z' in open(f'/proc/{pid}/stat').read().split(')')[1][:3],
             'the collector to end')
    assert sql(path, 'PRAGMA integrity_check') == [('ok',)]
    return str(path)


def only_trace(here):
    return finished(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])


# ---- rows ---------------------------------------------------------------------------------------------------------------

def test_every_kind_of_record(here):
    r = fake(here, 'facts', 'alloc', 5, 'free', 3, 'copy', 100, 'gemm', 4, 'gemm', 5, 'group', 6, 'blas', 'axpy', 'streams', 'exit', 7)
    assert r.returncode == 7
    db = only_trace(here)
    assert os.listdir(here) == [os.path.basename(db)]
    m = meta(db)
    assert m['state'] == 'complete' and m['schema_version'] == 1 and 'reason' not in m
    assert (m['start_mono_ns'], m['start_utc_ns']) == (5, 1700000000000000000)
    pid, ppid, start, reason, code, exe, cwd, argv, env = sql(db, 'SELECT pid, ppid, start_ns, end_reason, exit_code, exe, cwd, argv, environment FROM process')[0]
    assert (pid, ppid, start, reason, code) == (4242, 4241, 5, 'exit', 7)
    assert exe == '/bin/fäke' and cwd == '/tm\ufffdp'
    assert json.loads(argv) == ['f"\\\n', '\ufffdä'] and json.loads(env) == {'A': '1=2', 'B': ''}
    assert sql(db, 'SELECT * FROM api') == [(7, 'cudaMalloc', 'cudart')]
    assert sql(db, 'SELECT * FROM thread') == [(1, 1, 100, 'fake', 1)]
    assert sql(db, 'SELECT * FROM device') == [(1, 1, 0, 'Fake GPU', 1 << 30, 9, 0, None, 1000, 'cpu', 1.5e12, *(None,) * 6, 2.5e11)]
    # calls are numbered 1…17 by the program; call 12 is the second group of GEMM 11 and no op of its own
    ops = sql(db, 'SELECT id, kind, act, device, stream, start_ns, end_ns, status, bytes, object FROM op ORDER BY id')
    assert [o[0] for o in ops] == [i for i in range(1, 18) if i != 12]
    assert all((o[5], o[6], o[7]) == (1000 * o[0], 1000 * o[0] + 500, 0) for o in ops)
    kinds = ['alloc'] * 5 + ['free'] * 3 + ['copy', 'gemm', 'gemm', 'blas', 'stream', 'stream', 'stream', 'sync']
    assert [o[1] for o in ops] == kinds
    by_id = {o[0]: o for o in ops}
    assert by_id[1][8:] == (1, 0x7f0000001000) and by_id[6][8:] == (None, 0x7f0000001000)
    assert by_id[9][2] == 'h2d' and by_id[9][8] == 100
    assert [by_id[i][2] for i in (14, 15, 16, 17)] == ['create', 'wait_event', 'destroy', 'device']
    assert by_id[15][9] == 0xe and by_id[17][3:5] == (None, None) and by_id[14][4] == 0x5eed
    assert sql(db, 'SELECT id, op, m, n, k, trans_a, trans_b, alpha, beta, a_type, compute, stride_a FROM gemm') == [
        (i, op, m, 2 * m, 3 * m, 'N', 'T', 'one', None, 'fp32', 'fp32', None) for i, op, m in ((10, 10, 4), (11, 11, 5), (12, 11, 6))]
    assert sql(db, 'SELECT op, routine, type, m, n, side FROM blas') == [(13, 'axpy', 'fp64', None, 10, None)]
    assert sql(db, 'SELECT op, dst, src, bytes, direction, height, dst_device FROM copy') == [
        (9, 0x1000, 0xffff800000000000 - (1 << 64), 100, 'h2d', None, None)]
    assert sql(db, 'SELECT handle, created_ns, destroyed_ns FROM stream') == [(0x5eed, 14500, 16000)]
    assert sql(db, 'SELECT id, address, bytes, memory, device, alloc_ns, free_ns, free_op FROM alloc') == [
        (i, 0x7f0000000000 + 4096 * i, i, 'device', 0, 1000 * i + 500, 1000 * (5 + i) if i <= 3 else None, 5 + i if i <= 3 else None)
        for i in range(1, 6)]
    assert sql(db, 'SELECT * FROM lost') == []
    assert {'op_start', 'alloc_address', 'gemm_op'} <= {r[0] for r in sql(db, "SELECT name FROM sqlite_master WHERE type = 'index'")}


def test_text_that_is_no_utf8(here):
    fake(here, 'blas', b'caf\xe9'.decode('utf-8', 'surrogateescape'), 'exit', 0)
    assert sql(only_trace(here), 'SELECT routine FROM blas') == [('caf\ufffd',)]


def test_release_in_another_ring(here):
    """Ring 0 is drained before ring 1; here ring 0 has the releases, ring 1 the allocations."""
    fake(here, 'ring', 0, 'copy', 1, 'ring', 1, 'alloc', 100, 'ring', 0, 'free', 100, 'exit', 0)
    rows = sql(only_trace(here), 'SELECT free_ns - alloc_ns FROM alloc')
    assert rows == [(100 * 1000 - 500,)] * 100


def test_reused_address_pairs_up(here):
    fake(here, 'pairs', 3000, 'exit', 0, env={'FAKE_SLOTS': '65536'})
    assert sql(only_trace(here), 'SELECT count(*), sum(free_ns = alloc_ns + 500), sum(free_op = id + 1) FROM alloc') == [(3000, 3000, 3000)]


def test_release_that_was_lost(here):
    """The same addresses again, with no release between: the first allocations ended by then at the latest."""
    fake(here, 'alloc', 2, 'alloc', 2, 'free', 1, 'free', 1, 'exit', 0)
    assert sql(only_trace(here), 'SELECT id, free_ns, free_op FROM alloc') == [(1, 3500, None), (2, 4500, None), (3, 5000, 5), (4, None, None)]


def test_retired_ring_is_recycled_and_loss_is_booked(here):
    """A tiny ring overflows; its owner leaves; the next owner (the same slot) writes on. Nothing is lost without a row."""
    r = fake(here, 'pairs', 500, 'retire', 0, 'sleep', 300, 'alloc', 3, 'exit', 0, env={'FAKE_SLOTS': '64'})
    assert r.returncode == 0
    db = only_trace(here)
    (ops,), (lost,) = sql(db, 'SELECT count(*) FROM op')[0], sql(db, 'SELECT coalesce(sum(records), 0) FROM lost')[0]
    assert lost > 0 and ops + lost == 1003
    assert sql(db, 'SELECT DISTINCT reason FROM lost') == [('ring full',)]
    assert sql(db, 'SELECT count(*) FROM thread') == [(2,)]
    assert meta(db)['state'] == 'complete'


def test_readable_while_running(here):
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '10', 'sleep', '3000', 'exit', '0'], env=clean_env(), cwd=here)
    db = str(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])
    wait_for(lambda: sql(db, 'SELECT count(*) FROM op') == [(10,)], 'rows of the running program', 2)
    assert meta(db)['state'] == 'running'
    assert p.wait() == 0
    finished(db)


# ---- kernels and device times -------------------------------------------------------------------------------------------

def fnv1a(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 % (1 << 64)
    return h - (1 << 64) if h >> 63 else h


def test_kernels_and_their_launches(here, tmp_path):
    """A module in a file at an offset, two kernels of it, launches: arguments are bytes, parameters JSON."""
    text = bytes(range(256)) * 4
    (tmp_path / 'prog').write_bytes(b'xxxx' + text)
    fake(here, 'module', tmp_path / 'prog', 4, 1024, 'kernel', '_Z3addPfi', 'kernel', 'bare', 'launch', 1, 'launch', 2, 'launch', 0, 'exit', 0)
    db = only_trace(here)
    assert sql(db, 'SELECT * FROM ptx') == [(fnv1a(text), 0x8000, 1000, text)]
    assert sql(db, 'SELECT * FROM module') == [(1, 1, 80, 90, fnv1a(text), str(tmp_path / 'prog'), None)]
    assert sql(db, 'SELECT * FROM kernel') == [(1, 1, 1, 1, '_Z3addPfi', None, '[[0,8],[8,4]]', 32, 4096, None, 1024),
                                               (2, 1, 1, 1, 'bare', None, None, 32, 4096, None, 1024)]
    args = b'\0\xff\0A\0\0\0\0\1\2\3\4'
    assert sql(db, 'SELECT * FROM launch') == [(i, k, 1, 2, 3, 4, 5, 6, 77, 0, args, (1 << 40) + i) for i, k in ((1, 1), (2, 2), (3, 0))]
    assert sql(db, 'SELECT id, kind, act, bytes, object FROM op') == [(i, 'launch', None, None, None) for i in (1, 2, 3)]
    assert sql(db, "SELECT typeof(args) FROM launch") == [('blob',)] * 3


def test_a_text_in_pieces(here, tmp_path):
    """Pieces of any size give the payload; the same text from another module is kept once; a copy told again changes nothing."""
    text = os.urandom(100001)
    (tmp_path / 'a').write_bytes(text)
    fake(here, 'pieces', tmp_path / 'a', 100001, 4096, 'module', tmp_path / 'a', 0, 100001, 'again', 1, 'pieces', tmp_path / 'a', 100001, 50000,
         'exit', 0, env={'FAKE_BLOB': '524288'})
    db = only_trace(here)
    assert sql(db, 'SELECT hash, payload FROM ptx') == [(fnv1a(text), text)]
    assert sql(db, 'SELECT id, hash, path, why FROM module') == [(1, fnv1a(text), None, None), (2, fnv1a(text), str(tmp_path / 'a'), None)]


def test_texts_that_cannot_be_had_say_why(here, tmp_path):
    f, fifo, gone = tmp_path / 'f', tmp_path / 'fifo', tmp_path / 'gone'
    f.write_bytes(b'0123456789')
    os.mkfifo(fifo)
    fake(here, 'module', gone, 0, 5, 'module', f, 6, 5, 'module', fifo, 0, 5, 'lie', f, 'lie-pieces', f, 'module', 'f', 0, 5, 'module', f, 0, 0,
         'pieces', f, 10, 4, 'exit', 0, env={'FAKE_BLOB': '4096'})
    db = only_trace(here)
    assert sql(db, 'SELECT id, why FROM module WHERE hash IS NULL') == [
        (1, 'its file is gone'), (2, 'its file has been replaced'), (3, 'its file is no regular file any more'), (4, 'its file has been replaced'),
        (5, 'its text did not arrive as it was told'), (6, 'its file has no usable name'),
        (7, 'no PTX for this device: machine code only, or PTX for newer devices')]
    assert sql(db, 'SELECT payload FROM ptx') == [(b'0123456789',)]
    assert meta(db)['state'] == 'complete'


def test_a_text_that_misses_a_piece(here, tmp_path):
    """The first piece is larger than the blob ring, whenever the collector looks; the second one arrives."""
    text = os.urandom(9000)
    (tmp_path / 'f').write_bytes(text)
    fake(here, 'pieces', tmp_path / 'f', 9000, 6000, 'exit', 0, env={'FAKE_BLOB': '4096'})
    db = only_trace(here)
    assert sql(db, 'SELECT hash, why FROM module') == [(None, 'its text did not arrive')]
    assert sql(db, 'SELECT sum(texts) FROM lost')[0][0] > 0


def test_device_times(here):
    """Names are texts in the rows, also where the name came later or from another ring; what has no kind is no row."""
    fake(here, 'name', 1, '_Z3addPfi', 'launch', 1, 'activity', 1, 1, 'copy', 8, 'activity', 2, 0, 'launch', 2, 'activity', 1, 2, 'activity', 0, 0,
         'activity', 1, 9, 'ring', 1, 'name', 2, 'mul', 'name', 2, 'other', 'cupti', '', 'exit', 0)
    db = only_trace(here)
    assert sql(db, 'SELECT * FROM correlation') == [(500 + i, (1 << 40) + i) for i in (1, 2, 3)]
    kernel = lambda i, call, name: (i, 1, 'kernel', 500 + call, 0, 1, 7, call * 1000 + 100, call * 1000 + 200, name, 2, 2, 2, 3, 3, 3) + (None,) * 7
    assert sql(db, 'SELECT * FROM activity') == [
        kernel(1, 1, '_Z3addPfi'), (2, 1, 'copy', 502, 0, 1, 7, 2100, 2200) + (None,) * 11 + (4096, None, None), kernel(3, 3, 'mul'), kernel(4, 3, None)]
    assert sql(db, 'SELECT l.op, a.id FROM launch l JOIN correlation c USING (external) JOIN activity a ON a.correlation = c.id ORDER BY a.id') == [
        (1, 1), (3, 3), (3, 4)]
    m = meta(db)
    assert (m['cupti'], m['cupti_dropped'], m['cupti_version']) == (None, 12, 130001)


def test_no_device_times(here):
    fake(here, 'cupti', '', 'cupti', 'another client', 'exit', 0)
    m = meta(only_trace(here))
    assert (m['cupti'], m['cupti_dropped']) == ('another client', None)


# ---- how programs end ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('ending, reason, code', [(('exit', 3), 'exit', 3), (('exit', 300), 'exit', 44), (('_exit', 5), 'ended', None), (('kill',), 'ended', None)])
def test_end_of_the_program(here, ending, reason, code):
    fake(here, 'alloc', 1000, *ending)
    db = only_trace(here)
    assert sql(db, 'SELECT end_reason, exit_code, end_ns IS NOT NULL FROM process') == [(reason, code, 1)]
    assert sql(db, 'SELECT count(*) FROM op') == [(1000,)]
    assert meta(db)['state'] == 'complete'


def test_exit_waits_for_the_commit(here):
    """When the program has ended, everything is in the database already: what happens later is not needed to read it."""
    r = fake(here, 'alloc', 20000, 'exit', 0, env={'ACCT_COMMIT_INTERVAL': '3600000'})
    assert 'not committed' not in r.stdout
    db = str(next(here.glob('*.db')))
    assert sql(db, 'SELECT count(*) FROM op') == [(20000,)]
    finished(db)


def test_closed_descriptors_end_nothing(here):
    fake(here, 'alloc', 5, 'closeall', 'sleep', 1500, 'alloc', 5, 'exit', 4)
    db = only_trace(here)
    assert sql(db, 'SELECT count(*), max(start_ns) FROM op') == [(10, 10000)]
    assert sql(db, 'SELECT end_reason, exit_code FROM process') == [('exit', 4)]


def test_exec_ends_the_trace(here):
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '5', 'exec', '20'], env=clean_env(), cwd=here)
    try:
        db = only_trace(here)
        assert p.poll() is None
        assert sql(db, 'SELECT end_reason, exit_code FROM process') == [('exec', None)]
        assert sql(db, 'SELECT count(*) FROM op') == [(5,)]
        assert meta(db)['state'] == 'complete'
    finally:
        p.kill()
        p.wait()


def test_kill_at_random_loses_nothing(here):
    """The program writes its call's number to a pipe after each call: what was counted is in the trace."""
    rng = random.Random(7)
    for i in range(10):
        folder = here / str(i)
        folder.mkdir()
        r, w = os.pipe()
        p = subprocess.Popen([FAKE, collector(here), 'counter', str(w), 'paced', '1000000'], env=clean_env(), cwd=folder, pass_fds=[w],
                             stdout=subprocess.DEVNULL)
        os.close(w)
        time.sleep(rng.uniform(0.01, 0.4))
        p.kill()
        p.wait()
        counted = b''.join(iter(lambda: os.read(r, 1 << 20), b''))
        os.close(r)
        last = int(counted.split(b'\n')[-2]) if b'\n' in counted else 0
        if not list(folder.glob('*.db')) and not last:
            continue  # killed before it had a trace
        db = only_trace(folder)
        ops, lost = sql(db, 'SELECT (SELECT count(*) FROM op), (SELECT coalesce(sum(records), 0) FROM lost)')[0]
        assert lost == 0 and ops in (last, last + 1)
        assert sql(db, 'SELECT end_reason FROM process') == [('ended',)]


def test_collector_killed(here):
    """The program goes on; the database is valid up to the last commit."""
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '1000', 'sleep', '1200', 'pairs', '1000', 'sleep', '800', '_exit', '6'],
                         env=clean_env(), cwd=here)
    db = str(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])
    wait_for(lambda: sql(db, 'SELECT count(*) FROM op') == [(1000,)], 'the first commit')
    os.kill(meta(db)['collector_pid'], signal.SIGKILL)
    assert p.wait() == 6
    assert sql(db, 'PRAGMA integrity_check') == [('ok',)]
    assert sql(db, 'SELECT count(*) FROM op') == [(1000,)]
    assert meta(db)['state'] == 'running'


def test_sigterm_finishes(here):
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '1000', 'sleep', '2000', '_exit', '0'], env=clean_env(), cwd=here)
    db = str(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])
    wait_for(lambda: sql(db, 'SELECT count(*) FROM op') == [(1000,)], 'the first commit')
    os.kill(meta(db)['collector_pid'], signal.SIGTERM)
    finished(db)
    assert p.poll() is None
    m = meta(db)
    assert m['state'] == 'truncated' and 'signal' in m['reason']
    assert sql(db, 'SELECT end_ns, end_reason FROM process') == [(None, None)]
    assert p.wait() == 0


# ---- hostile programs ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('how', ['slots', 'event', 'enum', 'text', 'head'])
def test_corrupt_ring_is_abandoned_alone(here, how):
    fake(here, 'ring', 1, 'alloc', 3, 'sleep', 200, 'corrupt', how, 'sleep', 200, 'ring', 0, 'alloc', 4, 'exit', 0)
    db = only_trace(here)
    ops = sql(db, 'SELECT thread.tid, count(*) FROM op JOIN thread ON thread.id = op.thread WHERE op.start_ns >= 1000 GROUP BY 1')
    assert ops == [(100, 4), (101, 3)]
    assert sql(db, "SELECT records, texts FROM lost WHERE reason = 'ring corrupt'") == [(None, None)]
    m = meta(db)
    assert m['state'] == 'truncated' and 'corrupt' in m['reason']


def test_nonsense_instead_of_a_hello(here):
    for message in (b'', b'x', b'\0' * 16, b'acct' + b'\xff' * 12):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        p = subprocess.Popen([collector(here), '--fd', str(b.fileno())], pass_fds=[b.fileno()], env=clean_env(), cwd=here)
        b.close()
        a.send(message) if message else a.shutdown(socket.SHUT_WR)
        reply = a.recv(1024)
        assert p.wait(20) == 1
        assert int.from_bytes(reply[4:8], 'little') == 1 and reply[8:].split(b'\0')[0]
    assert os.listdir(here) == []


# ---- names --------------------------------------------------------------------------------------------------------------

def test_default_name_steps_aside(here):
    script = f'exec {FAKE} {collector(here)} alloc 1 exit 0'
    p = subprocess.Popen(['sh', '-c', f'touch acct-$$.db acct-$$-1.db; {script}'], cwd=here, env=clean_env())
    p.wait()
    db = finished(here / f'acct-{p.pid}-2.db')
    assert sql(db, 'SELECT count(*) FROM op') == [(1,)]
    assert os.path.getsize(here / f'acct-{p.pid}.db') == 0


def test_given_name_is_refused_or_forced(here):
    (here / 'x.db').write_text('precious')
    r = fake(here, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 'x.db'})
    assert r.returncode == 3 and 'x.db exists' in r.stdout and 'ACCT_FORCE' in r.stdout
    assert (here / 'x.db').read_text() == 'precious'
    assert fake(here, 'alloc', 2, 'exit', 0, env={'ACCT_OUTPUT': 'x.db', 'ACCT_FORCE': 'on'}).returncode == 0
    assert sql(finished(here / 'x.db'), 'SELECT count(*) FROM op') == [(2,)]


@pytest.mark.parametrize('force', ['on', 'off'])
def test_trace_that_is_being_written_is_spared(here, force):
    """A program started by LD_PRELOAD forks: parent and child have a collector each, and one ACCT_OUTPUT."""
    env = {'ACCT_OUTPUT': 'x.db', 'ACCT_FORCE': force}
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '1', 'sleep', '1500', 'exit', '0'], env=clean_env(**env), cwd=here)
    wait_for(lambda: os.path.exists('x.db') and sql('x.db', 'SELECT count(*) FROM op') == [(1,)], 'the first trace')
    fake(here, 'alloc', 2, 'exit', 0, env=env)
    assert sql(finished(here / 'x-1.db'), 'SELECT count(*) FROM op') == [(2,)]
    assert p.wait() == 0
    assert sql(finished(here / 'x.db'), 'SELECT count(*) FROM op') == [(1,)]


@pytest.mark.parametrize('force', ['off', 'on'])
def test_programs_that_start_together_do_not_refuse_each_other(here, force):
    """Ranks of one job with one ACCT_OUTPUT: a trace is one that is being written from the moment that its file is there."""
    if force == 'on':
        fake(here, 'alloc', 1, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 'x.db'})
        finished(here / 'x.db')
    env = clean_env(ACCT_OUTPUT='x.db', ACCT_FORCE=force)
    all_ = [subprocess.Popen([FAKE, collector(here), 'alloc', '1', 'sleep', '4000', 'exit', '0'], env=env, cwd=here) for _ in range(16)]
    assert [p.wait(30) for p in all_] == [0] * 16
    names = ['x.db'] + [f'x-{i}.db' for i in range(1, 16)]
    assert sorted(names) == sorted(f.name for f in here.glob('*.db'))
    assert [sql(finished(here / n), 'SELECT count(*) FROM op') for n in names] == [[(1,)]] * 16


@pytest.mark.parametrize('content', ['', 'no database'])
def test_a_new_file_of_somebody_else_is_refused_in_time(here, content):
    (here / 'x.db').write_text(content)
    start = time.time()
    assert 'x.db exists' in fake(here, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 'x.db'}).stdout
    assert time.time() - start < 4 and (here / 'x.db').read_text() == content


def test_pattern(here):
    fake(here, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 't-%h-%r-%n%%.db', 'OMPI_COMM_WORLD_RANK': '3'})
    finished(here / f't-{socket.gethostname()}-3-0%.db')
    fake(here, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 't-%h-%r-%n%%.db', 'OMPI_COMM_WORLD_RANK': '3'})
    finished(here / f't-{socket.gethostname()}-3-1%.db')
    r = fake(here, 'alloc', 1, 'exit', 0, env={'ACCT_OUTPUT': 't-%z.db'})
    assert r.returncode == 3 and '%z' in r.stdout


# ---- disks --------------------------------------------------------------------------------------------------------------

def refused(r, *words):
    line = r.stdout.splitlines()
    assert r.returncode == 3 and len(line) == 1, r.stdout
    for w in words:
        assert w in line[0]


def test_folder_that_does_not_exist(here):
    refused(fake(here, 'exit', 0, env={'ACCT_OUTPUT': 'no/such/x.db'}), 'no/such/x.db', 'create the folder')


@pytest.mark.skipif(not MAY_MOUNT, reason='needs root that may mount')
def test_read_only_folder(here):
    ro = here / 'ro'
    ro.mkdir()
    subprocess.check_call(['mount', '-t', 'tmpfs', '-o', 'ro', 'none', str(ro)])
    try:
        refused(fake(here, 'exit', 0, env={'ACCT_OUTPUT': 'ro/x.db'}), 'ro/x.db', 'Read-only', 'choose')
    finally:
        subprocess.check_call(['umount', str(ro)])


@pytest.mark.skipif(not ROOT, reason='needs root to become nobody')
def test_folder_of_another_user(here):
    bin_ = subprocess.check_output(['mktemp', '-d', '/tmp/acct-nobody-XXXXXX'], text=True).strip()
    try:
        subprocess.check_call(['cp', COLLECT, FAKE, bin_])
        subprocess.check_call(['chmod', '-R', 'a+rX', bin_])
        def nobody():
            os.setgid(65534)
            os.setuid(65534)
        r = subprocess.run([bin_ + '/fake_program', bin_ + '/acct-collect', 'exit', '0'], env=clean_env(), cwd=bin_, preexec_fn=nobody,
                           stdout=subprocess.PIPE, text=True, timeout=60)
        refused(r, 'Permission denied', 'choose')
        assert sorted(os.listdir(bin_)) == ['acct-collect', 'fake_program']
    finally:
        subprocess.check_call(['rm', '-r', bin_])


@pytest.fixture
def small_disk(here):
    disk = here / 'small'
    disk.mkdir()
    subprocess.check_call(['mount', '-t', 'tmpfs', '-o', 'size=2M', 'none', str(disk)])
    yield disk
    subprocess.check_call(['umount', str(disk)])


@pytest.mark.skipif(not MAY_MOUNT, reason='needs root that may mount')
@pytest.mark.parametrize('interval', [5, 50, 200, 3600000])  # the last: a transaction ends by its size alone
def test_full_disk(here, small_disk, interval):
    r = fake(here, 'paced', 20000, 'exit', 9, env={'ACCT_OUTPUT': 'small/x.db', 'ACCT_COMMIT_INTERVAL': str(interval)})
    assert r.returncode == 9
    assert re.search(r'^gave up: .*small/x.db: .*full', r.stdout, re.M), r.stdout
    db = str(small_disk / 'x.db')
    pid = meta(db)['collector_pid']
    wait_for(lambda: not os.path.exists(f'/proc/{pid}'), 'the last words')
    assert {'x.db'} <= set(os.listdir(small_disk)) <= {'x.db', 'x.db-wal', 'x.db-shm'}  # the log may find no room in the file
    assert sql(db, 'PRAGMA integrity_check') == [('ok',)]
    m = meta(db)
    assert m['state'] == 'truncated' and 'full' in m['reason']
    (ops,), lost = sql(db, 'SELECT count(*) FROM op')[0], dict(sql(db, 'SELECT reason, sum(records) FROM lost GROUP BY reason'))
    assert ops > 0 and lost['disk'] > 0
    assert ops + sum(lost.values()) == 40000
    assert sql(db, 'SELECT end_reason, exit_code FROM process') == [('exit', 9)]


def test_limit_on_file_sizes(here):
    """RLIMIT_FSIZE of the program holds for its collector: as a full disk, and no signal."""
    r = fake(here, 'paced', 20000, 'exit', 9, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
             env={'FAKE_SLOTS': '256', 'FAKE_BLOB': '4096'})  # its memfd is below the limit
    assert r.returncode == 9 and 'gave up' in r.stdout
    assert meta(only_trace(here))['state'] == 'truncated'


@pytest.mark.skipif(not MAY_MOUNT, reason='needs root that may mount')
def test_disk_full_from_the_start(here, small_disk):
    try:
        with open(small_disk / 'fill', 'wb') as f:
            while True:
                f.write(b'x' * 4096)
                f.flush()
    except OSError:
        pass
    refused(fake(here, 'exit', 0, env={'ACCT_OUTPUT': 'small/x.db'}), 'small/x.db', 'full', 'make room')
    assert os.listdir(small_disk) == ['fill']


def test_size_limit(here):
    r = fake(here, 'paced', 20000, 'exit', 0, env={'ACCT_MAX_BYTES': '1M', 'ACCT_COMMIT_INTERVAL': '20'})
    assert 'ACCT_MAX_BYTES' in r.stdout
    db = only_trace(here)
    m = meta(db)
    assert m['state'] == 'truncated' and 'ACCT_MAX_BYTES' in m['reason']
    (ops,), lost = sql(db, 'SELECT count(*) FROM op')[0], dict(sql(db, 'SELECT reason, sum(records) FROM lost GROUP BY reason'))
    assert ops + lost['size limit'] + lost.get('ring full', 0) == 40000
    assert (1 << 19) < os.path.getsize(db) < 3 << 20


def test_network_file_system(here):
    """No write-ahead log there. Readers lock writers out for a while then, which costs nothing but patience."""
    env = {'LD_PRELOAD': os.path.join(BUILD, 'tests', 'nfs_shim.so'), 'ACCT_COMMIT_INTERVAL': '20',
           'ASAN_OPTIONS': 'verify_asan_link_order=0'}  # for a build with SANITIZE
    p = subprocess.Popen([FAKE, collector(here), 'paced', '20000', 'exit', '0'], env=clean_env(**env), cwd=here)
    path = wait_for(lambda: list(here.glob('*.db')), 'a trace')[0]
    wait_for(lambda: sql(path, 'SELECT count(*) FROM op')[0][0] > 0, 'rows')
    assert sql(path, 'PRAGMA journal_mode') == [('delete',)] and not os.path.exists(f'{path}-wal')
    reader = sqlite3.connect(path, isolation_level=None)
    for _ in range(3):
        reader.execute('BEGIN')
        reader.execute('SELECT count(*) FROM op').fetchone()
        time.sleep(0.1)
        reader.execute('COMMIT')
    reader.close()
    assert p.wait(60) == 0
    db = only_trace(here)
    assert sql(db, 'SELECT count(*) FROM op') == [(40000,)] and sql(db, 'SELECT * FROM lost') == []
    assert meta(db)['state'] == 'complete'


# ---- listening ----------------------------------------------------------------------------------------------------------

class Listener:
    """acct-collect as acct run starts it."""
    def __init__(self, here, **env):
        self.name = f'acct-test-{os.getpid()}-{random.random()}'
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind('\0' + self.name)
        listening.listen(8)
        r, w = os.pipe()
        self.p = subprocess.Popen([collector(here), '--listen-fd', str(listening.fileno()), '--status-fd', str(w)],
                                  pass_fds=[listening.fileno(), w], env=clean_env(**env), cwd=here)
        listening.close()
        os.close(w)
        self.status = os.fdopen(r)
        self.here = here

    def start(self, *actions):
        return subprocess.Popen([FAKE, '@' + self.name, *map(str, actions)], env=clean_env(), cwd=self.here, stdout=subprocess.PIPE, text=True)

    def lines(self, n):
        return [self.status.readline().rstrip('\n') for _ in range(n)]

    def close(self):
        self.status.close()
        return self.p.wait(20)


def test_listener_serves_several_programs(here):
    l = Listener(here, ACCT_OUTPUT='run.db')
    first = l.start('alloc', 1, 'sleep', 500, 'exit', 0)
    assert l.lines(1) == [f'open {first.pid} {here}/run.db']
    second = l.start('alloc', 2, 'exit', 0)
    assert sorted(l.lines(3)) == sorted([f'open {second.pid} {here}/run-1.db', f'done {second.pid} complete {here}/run-1.db',
                                         f'done {first.pid} complete {here}/run.db'])
    assert l.close() == 0
    assert [sql(finished(here / f), 'SELECT count(*) FROM op') for f in ('run.db', 'run-1.db')] == [[(1,)], [(2,)]]
    assert first.wait() == second.wait() == 0


@pytest.mark.skipif(not ROOT, reason='becoming another user takes root')
def test_listener_says_that_it_serves_its_own_user_only(here):
    l = Listener(here)
    os.chmod(here, 0o755)
    r = subprocess.run(['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', FAKE, '@' + l.name, 'alloc', '1', 'exit', '0'],
                       env=clean_env(), stdout=subprocess.PIPE, text=True, timeout=30)
    assert 'another user' in r.stdout and not list(here.glob('*.db'))
    assert subprocess.run([FAKE, '@' + l.name, 'alloc', '1', 'exit', '0'], env=clean_env(), timeout=30).returncode == 0
    finished(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])


def test_listener_refuses_an_existing_file(here):
    (here / 'run.db').write_text('precious')
    l = Listener(here, ACCT_OUTPUT='run.db')
    p = l.start('alloc', 1, 'exit', 0)
    line, = l.lines(1)
    assert line.startswith(f'error {p.pid} run.db exists')
    assert p.wait() == 3
    assert l.close() == 0


def test_worker_outlives_the_listener_and_its_reader(here):
    """acct is killed: the reader of the status has gone, the listener is killed too; the program is still served."""
    l = Listener(here, ACCT_OUTPUT='run.db')
    p = l.start('alloc', 1, 'sleep', 1000, 'alloc', 2, 'exit', 0)
    l.lines(1)
    l.p.kill()
    l.close()
    assert p.wait() == 0
    assert sql(finished(here / 'run.db'), 'SELECT count(*) FROM op') == [(3,)]


def test_listener_ends_with_its_reader(here):
    l = Listener(here)
    assert l.close() == 0


def test_idle_costs_next_to_nothing(here):
    p = subprocess.Popen([FAKE, collector(here), 'alloc', '1', 'sleep', '3000', 'exit', '0'], env=clean_env(), cwd=here)
    db = str(wait_for(lambda: list(here.glob('*.db')), 'a trace')[0])
    pid = wait_for(lambda: sql(db, 'SELECT count(*) FROM op') == [(1,)], 'the row') and meta(db)['collector_pid']
    used = lambda: sum(map(int, open(f'/proc/{pid}/stat').read().rsplit(')')[1].split()[11:13]))
    time.sleep(0.3)
    before = used()
    time.sleep(2)
    assert used() - before <= 0.02 * 2 * os.sysconf('SC_CLK_TCK') + 1
    p.wait()
    finished(db)


# ---- command line -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('argv, word', [([], '--fd'), (['--fd'], '--fd'), (['--fd', 'x'], 'x'), (['--fd', '99'], '99'), (['--nothing'], '--nothing'),
                                        (['--fd', '0', '--listen-fd', '0'], '--listen-fd'), (['stray'], 'stray')])
def test_bad_options(argv, word):
    r = subprocess.run([COLLECT, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
    assert r.returncode == 2 and r.stdout == ''
    assert len(r.stderr.splitlines()) == 1 and word in r.stderr and '--help' in r.stderr


def test_help():
    r = subprocess.run([COLLECT, '--help'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
    assert r.returncode == 0 and r.stderr == ''
    for option in ('--fd N', '--listen-fd N', '--status-fd M', '--help'):
        assert option in r.stdout


def test_fuzz_ring_briefly(tmp_path):
    """`make fuzz` runs it longer. A crash leaves the input in the folder and its report on stderr."""
    r = subprocess.run([os.path.join(BUILD, 'fuzz', 'fuzz_ring'), '-max_total_time=4', '-verbosity=0', '-seed=1'], cwd=tmp_path, timeout=120,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert r.returncode == 0, r.stdout[-4000:]
