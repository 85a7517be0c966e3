"""The spine end to end: program → ring → collector → database → report, on the lecture's linear model. Every expected
number is the lecture's formula (ACCOUNTING.md) or the program's own account; none comes from what acct printed."""
import contextlib, json, os, random, re, signal, sqlite3, subprocess, threading, time
import pytest
from conftest import BUILD, DEVICE, MAY_MOUNT, ON_GPU, TOP, run

ACCT, TRAIN, LIB = (os.path.join(BUILD, n) for n in ('acct', 'train', 'libacct.so'))
CLASSES = ('param', 'grad', 'optimizer', 'activation', 'activation_grad', 'input', 'workspace', 'temporary', 'other', 'unknown')


def prog(name):
    return os.path.join(BUILD, 'tests', name)


def acct_run(out, *argv, env=None, **kw):
    where = [] if ON_GPU else ['--vgpu']
    return run(ACCT, 'run', *where, '-o', out, '--', *argv, env={**(DEVICE if ON_GPU else {}), **(env or {})}, **kw)


def preload(out, *argv, env=None, **kw):
    return run(*argv, env={**DEVICE, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out), **(env or {})}, **kw)


def report(path):
    r = run(ACCT, 'report', '--format', 'json', path)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def finished(path, timeout=60):
    """Wait until the collector has closed the trace; returns meta as a dict."""
    end = time.time() + timeout
    while True:
        try:
            meta = dict(query(path, 'select key, value from meta'))
            # A reader that may not write, such as the query above, can leave an empty log when the last writer goes meanwhile.
            if meta.get('state') in ('complete', 'truncated') and not (os.path.exists(f'{path}-wal') and os.path.getsize(f'{path}-wal')):
                return meta
        except sqlite3.OperationalError:
            meta = None
        assert time.time() < end, f'{path} was not finished in {timeout} s: {meta}'
        time.sleep(0.05)


def query(path, sql):
    with contextlib.closing(sqlite3.connect(f'file:{path}?mode=ro', uri=True)) as db:
        return db.execute(sql).fetchall()


def losses(stdout):
    """The loss column of train's output, as text: compared bit for bit."""
    return re.findall(r'^step \d+ loss (\S+) ', stdout, flags=re.M)


def expected(D, L, B, optimizer):
    """The lecture's memory and FLOPs: parameters D·D·layers, activations B·D·layers, states 0 or 1 a parameter; two slots of input."""
    n = 4 * D * D * L
    gemm = 2 * B * D * D
    return {'param': n, 'grad': n, 'optimizer': n if optimizer == 'momentum' else 0, 'activation': 4 * B * D * L,
            'input': 2 * 4 * B * D, 'forward': L * gemm, 'backward': (2 * L - 1) * gemm}


# ---- the books ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('alloc', ['class', 'tensor'])
@pytest.mark.parametrize('optimizer', ['momentum', 'sgd'])
@pytest.mark.parametrize('D,L,B', [(256, 6, 32)])
def test_books_of_the_lecture(tmp_path, D, L, B, optimizer, alloc):
    check_books(tmp_path, D, L, B, optimizer, alloc)


def test_the_lecture_says_so():
    """The figures by hand, from the formulas."""
    e = expected(256, 6, 32, 'momentum')
    assert (e['param'], e['grad'], e['optimizer'], e['activation']) == (1572864, 1572864, 1572864, 196608)
    assert (e['forward'], e['forward'] + e['backward']) == (25165824, 71303168)


@pytest.mark.parametrize('D,L,B,optimizer,alloc', [
    (64, 2, 8, 'momentum', 'tensor'), (64, 6, 32, 'sgd', 'class'), (128, 1, 16, 'momentum', 'class'), (128, 3, 128, 'momentum', 'tensor'),
    (512, 12, 64, 'sgd', 'tensor'), (1024, 4, 32, 'momentum', 'class'), (2048, 2, 16, 'momentum', 'tensor'), (2048, 3, 32, 'sgd', 'class')])
def test_books_at_other_sizes(tmp_path, D, L, B, optimizer, alloc):
    check_books(tmp_path, D, L, B, optimizer, alloc, steps=4)


def check_books(tmp_path, D, L, B, optimizer, alloc, steps=6):
    db, truth = tmp_path / 'a.db', tmp_path / 'truth.json'
    r = acct_run(db, TRAIN, '--model', 'linear', '--dim', D, '--layers', L, '--batch', B, '--steps', steps, '--optimizer', optimizer,
                 '--alloc', alloc, '--truth', truth)
    assert r.returncode == 0, r.stderr
    j, t, e = report(db), json.load(open(truth)), expected(D, L, B, optimizer)
    at = j['memory']['at_peak']
    assert sorted(at) == sorted(CLASSES)
    for c in ('param', 'grad', 'optimizer', 'activation', 'input'):
        assert at[c] == e[c], (c, at)
    own = {c: sum(b['bytes'] for b in t['buffers'] if b['class'] == c and b['name'] and 'pinned' not in b['name'] and 'host' not in b['name']) for c in CLASSES}
    assert at['activation_grad'] == own['activation_grad'] > 0
    assert at['unknown'] == 0
    assert sum(at.values()) == j['memory']['peak_bytes']
    assert j['totals']['dropped'] == 0
    assert len(j['steps']) == steps == len(t['steps'])
    for s, own_step in zip(j['steps'], t['steps']):
        assert s['flops']['gemm'] == e['forward'] + e['backward'] == t['flops_per_step']
        assert (s['flops']['forward'], s['flops']['backward'], s['flops']['optimizer'], s['flops']['recompute']) == (e['forward'], e['backward'], 0, 0)
        assert s['flops']['forward'] == own_step['flops']['forward']
        assert s['memory']['at_peak']['param'] == e['param']
        assert s['micro_batches'] == 1 and s['tokens'] == B
        assert [p['name'] for p in s['phases']] == ['forward', 'backward', 'optimizer']
        # The value: test_mfu_is_what_the_books_say. (No upper bound: a peak measured on a busy machine may be too low.)
        assert s['mfu'] > 0
    check_calls_against_truth(db, t)


def check_calls_against_truth(db, t):
    """Steps and phases begin and end at the very calls that the program says, and each buffer has the program's class."""
    calls = [r[0] for r in query(db, "select id from op where status = 0 and kind in ('alloc','free','copy','memset','gemm','blas','launch') "
                                     "order by case kind when 'alloc' then end_ns else start_ns end, id")]
    number = {op: i + 1 for i, op in enumerate(calls)}
    # Stretches of recomputation lie inside backward, of which the program speaks as a whole.
    got = query(db, "select step, name, first_op, last_op from phase where name <> 'recompute' order by step, first_op")
    want = [(i, p['name'], p['from_call'], p['to_call']) for i, s in enumerate(t['steps']) for p in s['phases']]
    assert [(s, n, number[a], number[b]) for s, n, a, b in got] == want
    assert [number[a] for a, in query(db, 'select last_op from step order by id')] == [s['to_call'] for s in t['steps']]
    classes = {}
    for alloc, addr, first, offset, size, cls in query(db, 'select a.id, a.address, a.id, c.offset, c.bytes, c.class from alloc a join alloc_class c on c.alloc = a.id'):
        classes[addr + offset, number[first]] = (size, cls)
    device = {a for a, in query(db, "select address from alloc where memory in ('device', 'async')")}
    spans = [(a, a + n, number[i], number.get(f, 1 << 60)) for i, a, n, f in query(db, "select id, address, bytes, free_op from alloc where memory in ('device','async')")]
    checked = 0
    for b in t['buffers']:
        inside = [s for s in spans if s[0] <= b['address'] and b['address'] + b['bytes'] <= s[1] and s[2] <= b['to_call'] and b['from_call'] <= s[3]]
        if not inside:
            continue                                  # pinned host memory
        (lo, hi, c0, c1), = inside
        covering = [(a, n, c) for (a, call), (n, c) in classes.items() if call == c0 and a < b['address'] + b['bytes'] and b['address'] < a + n]
        assert {c for _, _, c in covering} == {b['class']}, (b, covering)
        checked += b['bytes']
    assert checked > 0 and device


def same_books(a, b):
    """Everything of two reports but times, rates, pids and addresses."""
    keep = lambda j: (j['totals']['ops'], j['totals']['gemms'], j['totals']['allocations'], j['totals']['flops'], j['totals']['dropped'],
                      j['memory'], [(s['flops'], s['tokens'], s['memory'], [p['name'] for p in s['phases']]) for s in j['steps']],
                      sorted((x['bytes'], x['class'], x['rule']) for x in j['blocks']))
    return keep(a) == keep(b)


def test_both_ways_to_start_give_the_same_books(tmp_path):
    args = [TRAIN, '--model', 'linear', '--steps', '5']
    assert acct_run(tmp_path / 'run.db', *args).returncode == 0
    assert preload(tmp_path / 'pre.db', *args).returncode == 0
    assert finished(tmp_path / 'pre.db')['state'] == 'complete'
    assert same_books(report(tmp_path / 'run.db'), report(tmp_path / 'pre.db'))


# ---- the guest's manners -----------------------------------------------------------------------------------------------

def test_losses_and_output_are_the_same_with_and_without(tmp_path):
    args = [TRAIN, '--model', 'linear', '--steps', '8']
    bare = run(*args, env=DEVICE)
    a, b = acct_run(tmp_path / 'a.db', *args), preload(tmp_path / 'b.db', *args)
    assert bare.returncode == a.returncode == b.returncode == 0
    assert len(losses(bare.stdout)) == 8
    assert losses(bare.stdout) == losses(a.stdout) == losses(b.stdout)
    assert b.stderr == bare.stderr
    timeless = lambda s: re.sub(r' ms \S+ samples/s \S+$', '', s, flags=re.M)
    assert timeless(bare.stdout) == timeless(a.stdout) == timeless(b.stdout)


@pytest.mark.parametrize('what', ['close', 'wait', 'fork', 'exec', 'exit'])
def test_a_program_with_habits(tmp_path, what):
    bare = run(prog('spine_guest'), what, env=DEVICE, timeout=60)
    for out, how in ((tmp_path / 'a.db', acct_run), (tmp_path / 'b.db', preload)):
        r = how(out, prog('spine_guest'), what, timeout=60)
        assert (r.returncode, r.stdout) == (bare.returncode, bare.stdout)
        if how is preload:
            assert r.stderr == bare.stderr
        meta = finished(out)
        assert meta['state'] == 'complete', meta
        mallocs = {'close': 101, 'wait': 2, 'fork': 2, 'exec': 1, 'exit': 1}[what]
        assert query(out, "select count(*) from op where kind = 'alloc'") == [(mallocs,)]
        assert query(out, 'select count(*) from alloc where free_ns is null') == [(0,)]


@pytest.mark.parametrize('way', ['run', 'preload'])
def test_a_pipe_ends(tmp_path, way):
    """`train | tee` ends when train ends: nobody of ours holds the pipe."""
    args = [TRAIN, '--model', 'linear', '--steps', '3']
    cmd = [ACCT, 'run', '--vgpu', '-o', tmp_path / 't.db', '--', *args] if way == 'run' else args
    env = {} if way == 'run' else {**DEVICE, 'ACCT_OUTPUT': str(tmp_path / 't.db')}
    line = ' '.join(map(str, cmd)) + f' 2>/dev/null | tee {tmp_path}/out'
    if way == 'preload':
        line = f'LD_PRELOAD={LIB} ' + line
    r = run('sh', '-c', line, env=env, timeout=60)
    assert r.returncode == 0 and len(losses(open(tmp_path / 'out').read())) == 3
    finished(tmp_path / 't.db')


def test_exit_codes_and_signals(tmp_path):
    assert acct_run(tmp_path / '1.db', 'sh', '-c', 'exit 42').returncode == 42
    assert acct_run(tmp_path / '2.db', 'sh', '-c', 'kill -9 $$').returncode == 137
    assert acct_run(tmp_path / '3.db', TRAIN, '--model', 'linear', '--no-such-option').returncode == run(TRAIN, '--model', 'linear', '--no-such-option', env=DEVICE).returncode != 0


# ---- death ---------------------------------------------------------------------------------------------------------------

def start_counter(db, *args, env=None):
    r, w = os.pipe()
    e = {**os.environ, **DEVICE, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(db), **(env or {})}

    def third():
        os.dup2(w, 3)
        os.set_inheritable(3, True)
    p = subprocess.Popen([prog('spine_counter'), *map(str, args)], env=e, preexec_fn=third, close_fds=False, stderr=subprocess.PIPE)
    os.close(w)
    return p, r


def test_killed_at_a_random_moment(tmp_path):
    rnd = random.Random(20)
    counts = []
    for i in range(20):
        db = tmp_path / f'{i}.db'
        p, r = start_counter(db)
        told = [0]

        def reader():
            rest = b''
            while True:
                chunk = os.read(r, 1 << 16)
                if not chunk:
                    break
                rest = (rest + chunk)
                n = len(rest) // 8 * 8
                if n:
                    told[0] = int.from_bytes(rest[n - 8:n], 'little')
                    rest = rest[n:]
        t = threading.Thread(target=reader)
        t.start()
        deadline = time.time() + 20
        while not told[0] and time.time() < deadline:
            time.sleep(0.001)
        time.sleep(rnd.uniform(0, 0.25))
        os.kill(p.pid, signal.SIGKILL)
        assert p.wait() == -signal.SIGKILL
        p.stderr.close()
        t.join()
        os.close(r)
        meta = finished(db)
        assert query(db, 'pragma integrity_check') == [('ok',)]
        recorded, = query(db, 'select count(*) from op')[0]
        lost, = query(db, 'select coalesce(sum(records), 0) from lost')[0]
        assert lost == 0 and told[0] <= recorded <= told[0] + 1, (i, told[0], recorded, lost, meta)
        assert query(db, 'select end_reason from process') == [('ended',)]
        counts.append(told[0])
    assert len(set(counts)) > 10 and min(counts) > 0, counts


def test_collector_killed(tmp_path):
    db = tmp_path / 'c.db'
    p, r = start_counter(db, 70000, env={'ACCT_EXIT_TIMEOUT': '10000'})
    drain = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(r, 1 << 16), b'')])
    drain.start()
    end = time.time() + 30
    while True:
        try:
            pid = query(db, "select value from meta where key = 'collector_pid'")[0][0]
            if query(db, 'select count(*) from op')[0][0] > 0:
                break
        except (sqlite3.OperationalError, IndexError):
            pass
        assert time.time() < end and p.poll() is None, 'no row while the program runs'
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    began = time.time()
    assert p.wait(timeout=60) == 0
    p.stderr.close()
    drain.join()
    assert time.time() - began < 30
    with contextlib.closing(sqlite3.connect(db)) as c:                        # recovers the -wal that was left
        assert c.execute('pragma integrity_check').fetchall() == [('ok',)]
        n, = c.execute('select count(*) from op').fetchone()
        assert 0 < n <= 70000
    r = run(ACCT, 'report', db)
    assert r.returncode == 0 and 'last commit' in r.stdout + r.stderr, r.stdout + r.stderr


# ---- nothing lost unsaid -----------------------------------------------------------------------------------------------

def test_a_tiny_ring_counts_what_it_lost(tmp_path):
    db = tmp_path / 'tiny.db'
    r = preload(db, prog('spine_counter'), 70000, env={'ACCT_RING_SLOTS': '64'}, stdout=subprocess.DEVNULL)
    assert r.returncode == 0
    finished(db)
    recorded, = query(db, 'select count(*) from op')[0]
    lost, = query(db, 'select coalesce(sum(records), 0) from lost')[0]
    assert recorded + lost == 70000 and lost > 0
    assert report(db)['totals']['dropped'] == lost
    text = run(ACCT, 'report', db).stdout
    assert re.search(rf'\b{lost}\b|\b{lost:,}\b', text), text


def test_eight_threads(tmp_path):
    db = tmp_path / 'threads.db'
    n = 2000
    r = acct_run(db, prog('spine_threads'), 8, n)
    assert r.returncode == 0
    assert query(db, 'select coalesce(sum(records), 0) from lost') == [(0,)]
    threads = [t for t, in query(db, "select distinct thread from op where kind = 'alloc'")]
    assert len(threads) == 8
    seen = set()
    for t in threads:
        ops = query(db, f"select kind, bytes, start_ns, end_ns from op where thread = {t} and kind in ('alloc', 'free') order by id")
        assert [k for k, *_ in ops] == ['alloc', 'free'] * n
        sizes = [b for k, b, *_ in ops if k == 'alloc']
        who = sizes[0] // 1000000
        assert sizes == [who * 1000000 + i for i in range(n)]
        times = [x for _, _, s, e in ops for x in (s, e)]
        assert times == sorted(times)
        seen.add(who)
    assert seen == set(range(1, 9))
    assert query(db, 'select count(*), count(free_ns) from alloc') == [(8 * n, 8 * n)]
    overlap = """select count(*) from (select address, alloc_ns, free_ns, lead(alloc_ns) over (partition by address order by alloc_ns) as next from alloc)
                 where next is not null and next < free_ns"""
    assert query(db, overlap) == [(0,)]


# ---- the figures ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('cupti', ['auto', 'off'])
def test_mfu_is_what_the_books_say(tmp_path, cupti):
    """MFU = matmul FLOPs ÷ (step time × peak), from the database's own rows: the device's times, or without CUPTI the host's."""
    db = tmp_path / 'm.db'
    assert acct_run(db, TRAIN, '--model', 'linear', '--steps', '6', env={'ACCT_CUPTI': cupti}).returncode == 0
    j = report(db)
    peak, = query(db, 'select peak_fp32 from device')[0]
    peak = peak or j['device']['peak_flops']['fp32']                       # of a GPU: the data sheet's, which test_report checks
    clock, start, end = ('gpu' if ON_GPU else 'cpu', 'device_start_ns', 'device_end_ns') if cupti == 'auto' else ('host', 'start_ns', 'end_ns')
    assert j['device']['clock'] == clock and j['device']['peak_flops']['fp32'] == pytest.approx(peak)
    for s in j['steps']:
        assert s['mfu'] == pytest.approx(71303168 / ((s[end] - s[start]) * 1e-9 * peak), rel=1e-9)
        assert s['hfu'] == pytest.approx(s['mfu'])
    assert (j['steps'][0]['device_start_ns'] is None) == (cupti == 'off')
    assert any('switched off' in n for n in j['notes']) == (cupti == 'off')
    assert j['totals']['kernels'] == 0 and j['totals']['flops'] >= 6 * 71303168


# ---- bad places and bad input, with a real program --------------------------------------------------------------------

@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, 1 MiB; needs root, as CI is."""
    if not MAY_MOUNT:
        pytest.skip('needs root that may mount')
    mnt = tmp_path / 'disk'
    mnt.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'acct-test', mnt], check=True)
    yield mnt
    subprocess.run(['umount', '-l', mnt], check=True)


@pytest.mark.parametrize('way', ['run', 'preload'])
def test_full_disk_harms_no_program(small_disk, way):
    args = [TRAIN, '--model', 'linear', '--steps', '600']
    bare = run(*args, env=DEVICE)
    roomy, db = small_disk.parent / 'roomy.db', small_disk / 't.db'
    assert acct_run(roomy, *args).returncode == 0
    whole, = query(roomy, 'select (select count(*) from op) + (select coalesce(sum(records), 0) from lost)')[0]
    r = acct_run(db, *args) if way == 'run' else preload(db, *args)
    assert r.returncode == 0 and losses(r.stdout) == losses(bare.stdout)
    said = [l for l in r.stderr.splitlines() if 't.db' in l and 'is full' in l]
    assert len(said) == 1, r.stderr
    if way == 'preload':
        assert r.stderr.splitlines() == said
    time.sleep(1)
    assert [f for f in os.listdir(small_disk) if not f.startswith('t.db')] == []
    with contextlib.closing(sqlite3.connect(db)) as c:
        assert c.execute('pragma integrity_check').fetchall() == [('ok',)]
        stored, = c.execute('select count(*) from op').fetchone()
        lost, = c.execute("select coalesce(sum(records), 0) from lost where reason = 'disk'").fetchone()
        # On a machine that is fast, or was busy, all may have been one transaction, larger than the disk: none stored, all booked.
        assert lost > 0 and stored + lost == whole, (stored, lost)
        meta = dict(c.execute('select key, value from meta'))
    assert meta['state'] == 'truncated' and 'full' in meta['reason'], meta
    text = run(ACCT, 'report', db)
    assert text.returncode == 0 and 'truncated' in text.stdout, text.stdout + text.stderr


def test_read_only_folder(small_disk):
    subprocess.run(['mount', '-o', 'remount,ro', small_disk], check=True)
    r = acct_run(small_disk / 't.db', TRAIN, '--model', 'linear', '--steps', '2')
    assert r.returncode == 125 and r.stdout == '' and len(r.stderr.splitlines()) == 1 and str(small_disk) in r.stderr, r.stderr
    bare = run(TRAIN, '--model', 'linear', '--steps', '2', env=DEVICE)
    r = preload(small_disk / 't.db', TRAIN, '--model', 'linear', '--steps', '2')
    assert r.returncode == 0 and losses(r.stdout) == losses(bare.stdout)
    assert len(r.stderr.splitlines()) == 1 and 't.db' in r.stderr, r.stderr


def test_an_existing_file_is_kept(tmp_path):
    db = tmp_path / 'mine.db'
    db.write_text('something of the user')
    r = acct_run(db, TRAIN, '--model', 'linear', '--steps', '2')
    assert r.returncode == 125 and '--force' in r.stderr and 'mine.db' in r.stderr and r.stdout == ''
    r = preload(db, TRAIN, '--model', 'linear', '--steps', '2')
    assert r.returncode == 0 and 'mine.db' in r.stderr and len(r.stderr.splitlines()) == 1
    assert db.read_text() == 'something of the user'
    assert run(ACCT, 'run', '--vgpu', '-o', db, '--force', '--', TRAIN, '--model', 'linear', '--steps', '2').returncode == 0
    assert len(report(db)['steps']) == 2
    for i in range(3):                                    # a default name finds a free one
        assert run(ACCT, 'run', '--vgpu', '--', prog('spine_counter'), '7', cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 0
    assert len([f for f in os.listdir(tmp_path) if re.fullmatch(r'acct-\d+(-\d+)?\.db', f)]) == 3


@pytest.mark.parametrize('what', ['missing', 'no trace', 'empty', 'truncated', 'newer', 'folder'])
@pytest.mark.parametrize('command', ['report', 'query', 'analyze'])
def test_bad_traces(tmp_path, what, command):
    good = tmp_path / 'good.db'
    assert acct_run(good, TRAIN, '--model', 'linear', '--steps', '2').returncode == 0
    bad = tmp_path / 'bad.db'
    if what == 'no trace':
        bad.write_text('not a database at all\n' * 100)
    elif what == 'empty':
        bad.write_bytes(b'')
    elif what == 'truncated':
        bad.write_bytes(good.read_bytes()[:os.path.getsize(good) // 2 + 100])
    elif what == 'newer':
        bad.write_bytes(good.read_bytes())
        with contextlib.closing(sqlite3.connect(bad)) as c:
            c.execute("update meta set value = 99 where key = 'schema_version'")
            c.commit()
    elif what == 'folder':
        bad.mkdir()
    before = bad.read_bytes() if bad.is_file() else None
    r = run(ACCT, command, bad, *(['select count(*) from op'] if command == 'query' else []))
    assert r.returncode == 1, (r.returncode, r.stdout, r.stderr)
    assert r.stdout == '' and len(r.stderr.splitlines()) == 1 and 'bad.db' in r.stderr, r.stderr
    assert before is None or bad.read_bytes() == before
    assert not [f for f in os.listdir(tmp_path) if f not in ('good.db', 'bad.db')]


def test_programs_that_cannot_be_run(tmp_path):
    static = tmp_path / 'static'
    (tmp_path / 's.c').write_text('int main(void) { return 0; }')
    subprocess.run(['gcc', '-static', '-o', static, tmp_path / 's.c'], check=True)
    (tmp_path / 'plain').write_text('text')
    for p, word in ((tmp_path / 'nowhere', 'nowhere'), (static, 'static'), (tmp_path / 'plain', 'plain'), ('no-such-program-anywhere', 'no-such-program')):
        r = acct_run(tmp_path / 'x.db', p)
        assert r.returncode == 125 and len(r.stderr.splitlines()) == 1 and word in r.stderr, (p, r.stderr)
        assert not (tmp_path / 'x.db').exists()
    r = run(ACCT, 'run', '--no-such-option', '--', TRAIN)
    assert r.returncode == 125 or r.returncode == 2
    assert '--no-such-option' in r.stderr
