"""acct memory and acct peak. Expected values: a plain look at every allocation at every moment, formulas of the books, the sample
app's own account, and what the virtual GPU says of its own memory."""
import csv, io, json, math, os, random, re, sqlite3
import pytest
from conftest import BUILD, run
from report_trace import CLASSES, Trace
from test_report import live, peak, random_allocations

ACCT, TRAIN, CASES = (os.path.join(BUILD, p) for p in ('acct', 'train', 'tests/memory_cases'))
H100 = 'NVIDIA H100 80GB HBM3'
MIB = 1 << 20
LAST = 1300


def show(command, *args, code=0):
    r = run(ACCT, command, *args)
    assert r.returncode == code, r.stderr
    return r.stdout if code == 0 else r.stderr


def load(command, *args):
    return json.loads(show(command, '--format', 'json', *args))


def query(db, sql, *args):
    with sqlite3.connect(f'file:{db}?mode=ro', uri=True) as d:
        return d.execute(sql, args).fetchall()


def random_trace(path, seed):
    rnd = random.Random(seed)
    t = Trace(path)
    t.device(H100)
    rows = random_allocations(t, rnd)
    bounds = sorted(rnd.sample(range(0, LAST), 6))
    for i in range(5):
        t.step(i, bounds[i], bounds[i + 1], [('forward', 'fp32', 10, 1)])
    return t.close(), rows, bounds


def table(text):
    return [{k: v for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]


# ---- over time -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('seed', range(3))
def test_figures_agree_with_a_plain_look(tmp_path, seed):
    """Every change of the time line, ends of steps, the blocks at each peak, what the peak would be without each class."""
    db, rows, bounds = random_trace(tmp_path / 'a.db', seed)
    at = {now: live(rows, now) for now in range(0, LAST + 1)}
    j = load('memory', '--timeline', db)
    assert [s['end_bytes'] for s in j['steps']] == [sum(at[b].values()) for b in bounds[1:]]
    assert [s['at_end'] for s in j['steps']] == [at[b] for b in bounds[1:]]
    times = [m['ns'] for m in j['timeline']]
    assert times == sorted(set(times))
    for m in j['timeline']:
        assert {c: m[c] for c in CLASSES} == at[m['ns']] and m['total_bytes'] == sum(at[m['ns']].values())
    for now in range(1, LAST + 1): # and nothing changes in between
        if at[now] != at[now - 1]:
            assert now in times
    for step in (None, 2):
        first, last = (0, LAST) if step is None else bounds[2:4]
        p = load('peak', *([] if step is None else ['--step', step]), db)
        total, classes = peak(rows, first, last)
        assert p['peak']['peak_bytes'] == total and p['peak']['at_peak'] == classes
        now = p['peak']['ns']
        sums = dict.fromkeys(CLASSES, 0)
        for b in p['blocks']:
            sums[b['class']] += b['bytes']
            assert b['age_ns'] == now - b['alloc_ns'] >= 0 and b['age_steps'] == sum(b['alloc_ns'] <= e < now for e in bounds[1:])
        assert sums == classes and [b['bytes'] for b in p['blocks']] == sorted((b['bytes'] for b in p['blocks']), reverse=True)
        assert p['peak']['live_blocks'] == len({b['id'] for b in p['blocks']}) == sum(1 for r in rows if r[4] in ('device', 'async') and r[0] <= now < r[1])
        for w in p['what_if']['without']:
            assert w['peak_bytes'] == max(sum(at[n].values()) - at[n][w['class']] for n in range(first, last + 1))


def test_csv_is_a_table_with_the_same_figures(tmp_path):
    db, rows, bounds = random_trace(tmp_path / 'a.db', 7)
    wanted = load('memory', '--timeline', db)['timeline']
    got = table(show('memory', '--timeline', '--format', 'csv', db))
    assert [{k: v for k, v in g.items()} for g in got] == [{k: '' if v is None else str(v) for k, v in w.items()} for w in wanted]
    blocks, wanted = table(show('memory', '--blocks', '--format', 'csv', db)), load('memory', '--blocks', db)['blocks']
    assert [(b['id'], b['bytes'], b['class'], b['site']) for b in blocks] == [(str(w['id']), str(w['bytes']), w['class'], w['site']) for w in wanted]
    assert sum(w['bytes'] for w in wanted if w['class_from_ns'] is None and w['class_until_ns'] is None) > 0


@pytest.mark.parametrize('n', [1, 3, 10, 100000])
def test_samples_keep_the_peaks(tmp_path, n):
    """At most n rows; each the highest moment of its nth of the time."""
    db, rows, _ = random_trace(tmp_path / 'a.db', 3)
    every, some = (load('memory', f'--timeline{x}', db)['timeline'] for x in ('', f'={n}'))
    assert len(some) <= n and max(m['total_bytes'] for m in some) == max(m['total_bytes'] for m in every)
    first, last = every[0]['ns'], every[-1]['ns']
    pieces = {}
    for m in every:
        pieces.setdefault(min((m['ns'] - first) * n // (last - first), n - 1), []).append(m['total_bytes'])
    assert [m['total_bytes'] for m in some] == [max(pieces[p]) for p in sorted(pieces)]


def test_the_next_lower_peak_is_another_hill(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(100, 10, 1000, 'param')
    t.alloc(50, 20, 300, 'activation') # 150
    t.alloc(30, 30, 200, 'activation') # 180: the peak, on the same hill
    t.alloc(40, 400, 500, 'grad')      # 140: the next
    t.alloc(20, 600, 700, 'grad')      # 120
    w = load('peak', t.close())['what_if']
    assert (w['next_peak_bytes'], w['next_peak_ns']) == (140, 400)
    t = Trace(tmp_path / 'b.db')
    t.alloc(100, 10, 1000, 'param')
    t.alloc(30, 30, 200, 'activation')
    assert load('peak', t.close())['what_if']['next_peak_bytes'] is None


def test_a_block_of_several_classes_has_a_row_for_each(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(1000, 10, classes=[(0, 300, None, None, 'param'), (300, 200, None, None, 'grad'), (500, 100, None, None, 'param')])
    assert [(b['class'], b['bytes'], b['offset'], b['block_bytes'], b['rule']) for b in load('peak', t.close())['blocks']] == [
        ('param', 400, 0, 1000, 'rule of the test'), ('unknown', 400, 0, 1000, None or 'not classified'), ('grad', 200, 300, 1000, 'rule of the test')]


def test_devices_have_peaks_of_their_own(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.device(H100)
    t.device(H100, ordinal=1)
    a, b = t.alloc(100, 10, 50, 'param'), t.alloc(70, 60, None, 'grad')
    c = t.alloc(30, 20, None, 'activation')
    t.db.execute('UPDATE alloc SET device = 1 WHERE id IN (?, ?)', (b, c))
    j = load('memory', t.close())
    assert j['memory']['peak_bytes'] == 130
    assert [(d['device'], d['peak_bytes'], d['at_peak']['grad'], d['at_peak']['activation']) for d in j['devices']] == [(0, 100, 0, 0), (1, 100, 70, 30)]


def test_sites_come_from_stacks_where_there_are_some(tmp_path):
    t = Trace(tmp_path / 'a.db')
    a, b = t.alloc(100, 10, classes='param'), t.alloc(90, 20, classes='param')
    t.db.execute('INSERT INTO stack VALUES(1, 1, 3, 0)')
    for depth, path, symbol, file, line in ((0, '/x/libacct.so', 'cudaMalloc', None, None), (1, '/usr/lib/libcudart.so.13', None, None, None),
                                            (2, '/home/me/train', 'make_weights(int, float*)', '/home/me/model.cpp', 42)):
        t.db.execute('INSERT INTO frame(stack, depth, address, path, symbol, file, line) VALUES(1, ?, 0, ?, ?, ?, ?)', (depth, path, symbol, file, line))
    t.db.execute('INSERT INTO op_stack VALUES(?, 1)', (a,))
    blocks = load('peak', t.close())['blocks']
    assert [(x['id'], x['site'], x['site_of_stack']) for x in blocks] == [(a, 'make_weights (model.cpp:42)', True), (b, 'cublasGemmEx #2', False)]


def test_traces_of_older_versions_are_readable(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(100, 10, classes='param')
    for table in ('meminfo', 'op_stack', 'frame', 'stack', 'model', 'step_product', 'flops_term', 'collective', 'tag', 'window'):
        t.db.execute(f'DROP TABLE {table}')
    db = t.close()
    assert load('peak', db)['peak']['at_peak']['param'] == 100
    j = load('memory', '--estimate', '--timeline', '--blocks', db)
    assert j['reconciliation'] is None and any('No reconciliation' in n and 'did not ask' in n for n in j['notes'])


def test_an_allocation_of_id_0(tmp_path):
    """Of a damaged trace: it is one like any other, in a trace without steps too."""
    t = Trace(tmp_path / 'a.db')
    t.alloc(50, 10, classes='grad')
    t.db.execute('UPDATE alloc SET id = 0')
    t.db.execute('UPDATE alloc_class SET alloc = 0')
    db = t.close()
    assert [(b['id'], b['bytes'], b['block_bytes'], b['class']) for b in load('peak', db)['blocks']] == [(0, 50, 50, 'grad')]


def test_many_steps(tmp_path):
    """100,000 steps: a look at all of them for each would take half a minute and more."""
    t = Trace(tmp_path / 'a.db')
    t.alloc(100, 1, classes='param')
    for s in range(100000):
        t.step(s, 100 * s, 100 * s + 99, [])
    r = run(os.path.join(BUILD, 'acct'), 'memory', t.close(), timeout=25)
    assert r.returncode == 0 and 'param' in r.stdout


@pytest.mark.parametrize('size', [-2**63, -1, 2**63 - 1, 2**47 + 1, 1e300, 'many'])
def test_sizes_that_no_device_has(tmp_path, size):
    """Of a damaged trace: left out, and said; what is sound keeps its figures."""
    t = Trace(tmp_path / 'a.db')
    t.alloc(100, 10, classes='param')
    for begin in (20, 30):
        t.db.execute('UPDATE alloc SET bytes = ? WHERE id = ?', (size, t.alloc(50, begin, classes='grad')))
    t.db.execute("UPDATE alloc_class SET bytes = ?, offset = ? WHERE class = 'grad'", (size, size))
    db = t.close()
    for command in ('memory', 'peak', 'report'):
        j = load(command, db)
        assert sum('2 row(s) of its table alloc tell sizes that no device has' in n for n in j['notes']) == 1
    j = load('peak', db)
    assert j['peak']['peak_bytes'] == 100 and j['peak']['at_peak']['param'] == 100 and j['peak']['at_peak']['grad'] == 0


@pytest.mark.parametrize('fmt', ['text', 'markdown', 'csv', 'json'])
def test_a_trace_without_memory(tmp_path, fmt):
    db = Trace(tmp_path / 'a.db').close()
    assert show('memory', '--timeline', '--estimate', '--blocks', '--format', fmt, db) and show('peak', '--format', fmt, db)
    if fmt == 'json':
        p = load('peak', db)
        assert p['peak']['peak_bytes'] == 0 and p['peak']['ns'] is None and p['blocks'] == []


def test_bad_command_lines(tmp_path):
    db = Trace(tmp_path / 'a.db').close()
    assert 'no step 3: 0 step(s) were found' in show('peak', '--step', '3', db, code=1)
    assert '--step x' in show('peak', '--step', 'x', db, code=2) and '--timeline' in show('memory', '--timeline=x', db, code=2)
    assert 'no trace given' in show('memory', code=2)


# ---- growth --------------------------------------------------------------------------------------------------------------------
def steps_of(t, n, length=1000):
    for i in range(n):
        t.step(i, i * length, (i + 1) * length, [('forward', 'fp32', 10, 1)])


def access(t, alloc, ns):
    op = t.op('launch', ns, ns + 1)
    t.db.execute("INSERT INTO op_buffer VALUES(?, '0', ?, 0, 8, 'r')", (op, alloc))


def test_what_stays_step_after_step(tmp_path):
    """Six steps: state made in the first, a buffer that each step replaces, activations, and one allocation a step from the second on that stays."""
    t = Trace(tmp_path / 'a.db')
    steps_of(t, 6)
    t.alloc(5000, 100, classes='optimizer')
    leaked = []
    for i in range(6):
        t.alloc(700, i * 1000 + 150, (i + 1) * 1000 + 120, 'activation')
        t.alloc(300, i * 1000 + 200, i * 1000 + 500, 'activation')
        if i:
            leaked.append(t.alloc(64, i * 1000 + 250, None, 'other'))
    access(t, leaked[0], 1300)      # in its step only
    access(t, leaked[1], 4500)      # again in a later one
    g = load('memory', t.close())['growth']
    assert (g['steps'], g['rises'], g['falls'], g['grows']) == (5, 4, 0, True)
    assert (g['first_bytes'], g['last_bytes'], g['bytes_per_step']) == (5000 + 700 + 64, 5000 + 700 + 5 * 64, 64)
    assert {c: b for c, b in g['by_class'].items() if b} == {'other': 4 * 64}
    (s,) = g['sites'] # the leak of the last step has not outlived one yet
    assert (s['blocks'], s['bytes'], s['block_bytes'], s['steps'], s['first_step'], s['last_step'], s['class']) == (4, 256, 64, 4, 1, 4, 'other')
    assert (s['first_id'], s['untouched_blocks'], s['untouched_bytes'], s['never_accessed_blocks']) == (leaked[0], 3, 192, 2)
    r = show('report', tmp_path / 'a.db')
    assert 'Memory stays, step after step: 256 B in allocations of 1 site' in r


def test_steady_memory_does_not_grow(tmp_path):
    t = Trace(tmp_path / 'a.db')
    steps_of(t, 5)
    for i in range(5):
        t.alloc(700, i * 1000 + 150, (i + 1) * 1000 + 120, 'activation')
    g = load('memory', t.close())['growth']
    assert (g['rises'], g['falls'], g['grows'], g['bytes_per_step'], g['sites']) == (0, 0, False, 0, [])


def test_growth_of_too_few_steps_is_not_known(tmp_path):
    t = Trace(tmp_path / 'a.db')
    steps_of(t, 2)
    t.alloc(100, 10, classes='param')
    g = load('memory', t.close())['growth']
    assert g['grows'] is None and g['bytes_per_step'] is None and g['first_bytes'] is None


# ---- the driver's account ------------------------------------------------------------------------------------------------------
def meminfo(t, ns, why, free, total=80 << 30, pool=None, reserved=None, used=None, device=0):
    t.db.execute('INSERT INTO meminfo VALUES(NULL, 1, ?, ?, NULL, ?, ?, ?, ?, ?, ?)', (ns, why, device, free, total, pool, reserved, used))


def taken(sizes):
    """What a device gives for these allocations: pieces of 2 MiB, which those up to 1 MiB share in units of 512 bytes."""
    up = lambda n, to: -(-n // to) * to
    return sum(up(n, 2 * MIB) for n in sizes if n > MIB) + up(sum(up(n, 512) for n in sizes if n <= MIB), 2 * MIB)


def test_the_drivers_account_is_split(tmp_path):
    t, total, context, other = Trace(tmp_path / 'a.db'), 80 << 30, 530 * MIB, 7 * MIB
    sizes, ordered = [5 * MIB + 1, 3 * MIB, 1000, 513], 3000
    meminfo(t, 5, 'first use', total - context)
    for i, n in enumerate(sizes):
        t.alloc(n, 10 + i, classes='param')
    t.alloc(ordered, 20, classes='grad', memory='async')
    t.alloc(777, 21, memory='managed')
    used = context + taken(sizes) + 32 * MIB + other
    meminfo(t, 100, 'release', total - used, pool=9, reserved=32 * MIB, used=ordered)
    m = load('report', t.close())['reconciliation']
    assert (m['device_used_bytes'], m['ours'], m['context'], m['unexplained'], m['managed_bytes']) == (used, sum(sizes) + ordered, context, other, 777)
    assert m['pool_slack'] == 32 * MIB - ordered + taken(sizes) - sum(sizes) and m['rounding_estimate'] == taken(sizes) - sum(sizes)
    assert m['device_used_bytes'] == m['ours'] + m['pool_slack'] + m['context'] + m['tool'] + m['unexplained']
    assert (m['by_class']['param'], m['by_class']['grad']) == (sum(sizes), ordered)


def test_the_question_that_covers_most_is_taken(tmp_path):
    t, total = Trace(tmp_path / 'a.db'), 80 << 30
    t.alloc(4 * MIB, 10, 300, 'param')
    t.alloc(6 * MIB, 20, 200, 'param')
    for ns, used in ((50, 10 * MIB), (250, 4 * MIB), (400, 0)):
        meminfo(t, ns, 'release', total - used)
    m = load('memory', t.close())['reconciliation']
    assert (m['ns'], m['ours'], m['unexplained'], m['context']) == (50, 10 * MIB, 0, None)


@pytest.mark.parametrize('rows, why', [([], 'never asked'), ([(5, 'first use', 70 << 30)], 'only when the device was first used'),
                                       ([(50, 'release', (80 << 30) - 10)], 'less in use than the trace has live')])
def test_no_account_and_why(tmp_path, rows, why):
    t = Trace(tmp_path / 'a.db')
    t.alloc(MIB, 10, classes='param')
    for row in rows:
        meminfo(t, *row)
    j = load('memory', t.close())
    assert j['reconciliation'] is None and any('No reconciliation' in n and why in n for n in j['notes'])


def test_a_pool_that_was_not_asked_is_not_known(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(MIB, 10, classes='param', memory='async')
    meminfo(t, 50, 'release', (80 << 30) - 40 * MIB)
    m = load('memory', t.close())['reconciliation']
    assert m['pool_slack'] is None and m['unexplained'] == 39 * MIB


def test_pools_and_gaps(tmp_path):
    """Gaps between live allocations by their addresses, but none that is larger than what the pool holds unused."""
    t = Trace(tmp_path / 'a.db')
    for address, n in ((0x10000, 0x1000), (0x14000, 0x1000), (0x15000, 0x800)):
        t.alloc(n, 10, memory='async', address=address, classes='param')
    meminfo(t, 50, 'no memory', 1 << 30, pool=9, reserved=0x8000, used=0x2800)
    t.alloc(0x1000, 60, memory='async', address=0x9000000, classes='param')
    meminfo(t, 70, 'no memory', 1 << 30, pool=9, reserved=0x8000, used=0x3800)
    a, b = load('memory', t.close())['pools']
    assert (a['reserved_bytes'], a['used_bytes'], a['unused_bytes'], a['live_bytes'], a['largest_gap_bytes']) == (0x8000, 0x2800, 0x5800, 0x2800, 0x3000)
    assert b['live_bytes'] == 0x3800 and b['largest_gap_bytes'] is None


def test_blocks_that_the_program_cuts_up(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(1000, 10, classes=[(0, 400, 20, 90, 'activation'), (100, 300, 100, 200, 'activation_grad'), (500, 200, 50, 150, 'param'), (400, 100, None, None, 'unknown')])
    t.alloc(50, 110, 130, classes='input') # the run's peak is at 110
    (b,) = load('memory', t.close())['sub_allocators']
    assert (b['bytes'], b['peak_used_bytes'], b['peak_ns'], b['used_bytes'], b['largest_free_bytes']) == (1000, 600, 50, 500, 300)


# ---- copies --------------------------------------------------------------------------------------------------------------------
def test_copies_and_their_rates(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.device(H100)
    pinned = t.alloc(1 << 20, 5, memory='pinned')
    for direction, n, ns, locked, status in (('h2d', 63000, 2000, True, 0), ('h2d', 1000, None, False, 0), ('d2h', 500, 100, False, 0), ('d2d', 10000, 10, None, 0),
                                             ('h2d', 10**9, 1, False, 1)):
        op = t.op('copy', 10, 11, status)
        t.db.execute('INSERT INTO copy(op, bytes, direction) VALUES(?, ?, ?)', (op, n, direction))
        if locked:
            t.db.execute("INSERT INTO op_buffer VALUES(?, 'src', ?, 0, ?, 'r')", (op, pinned, n))
        if ns:
            t.db.execute('INSERT INTO op_time VALUES(?, 0, ?, ?, 1)', (op, ns, ns))
    c = {x['direction']: x for x in load('memory', t.close())['copies']}
    up, down, within = c['h2d'], c['d2h'], c['d2d']
    assert (up['count'], up['bytes'], up['timed_count'], up['time_ns'], up['pageable_count'], up['pageable_bytes']) == (2, 64000, 1, 2000, 1, 1000)
    assert up['bytes_per_s'] == 31.5e9 and up['link_bytes_per_s'] == 63.015e9 and up['link_share'] == 31.5 / 63.015 # PCIe 5.0 x 16, one way: 32 GT/s x 16 x 128/130 / 8
    assert (down['pageable_count'], down['pageable_bytes'], down['bytes_per_s']) == (1, 500, 5e9)
    assert within['pageable_count'] is None and within['link_share'] == pytest.approx(1e12 / (3350e9 / 2))
    assert c['h2h']['count'] == 0 and c['h2h']['time_ns'] is None


def test_pageable_is_not_told_where_calls_were_lost(tmp_path):
    t = Trace(tmp_path / 'a.db')
    op = t.op('copy', 10, 11)
    t.db.execute("INSERT INTO copy(op, bytes, direction) VALUES(?, 100, 'h2d')", (op,))
    t.db.execute("INSERT INTO lost VALUES(NULL, 1, 1, 5, 0, 0, 1, 'ring full')")
    up = load('memory', t.close())['copies'][0]
    assert up['count'] == 1 and up['pageable_count'] is None and up['pageable_bytes'] is None


# ---- estimate ------------------------------------------------------------------------------------------------------------------
RECIPES = { # ACCOUNTING section 5: weights, gradients, master, moments
    ('fp32', 'sgd'): (4, 4, 0, 0), ('fp32', 'adagrad'): (4, 4, 0, 4), ('fp32', 'adamw'): (4, 4, 0, 8), ('bf16', 'adam'): (2, 4, 4, 8), ('fp16', 'momentum'): (2, 4, 4, 4)}


@pytest.mark.parametrize('dtype, optimizer', RECIPES)
def test_estimate_of_the_sample_app(tmp_path, dtype, optimizer):
    """Its recipe is known, its own account has the parameters; the formulas of the books give the lines, and the gaps close the sum."""
    db, truth = tmp_path / 't.db', tmp_path / 't.json'
    L, B, T, C, H = 2, 4, 32, 64, 2
    r = run(ACCT, 'run', '--vgpu', '-o', db, '--', TRAIN, '--model', 'gpt', '--layers', L, '--batch', B, '--seq', T, '--dim', C, '--heads', H, '--steps', 3,
            '--dtype', dtype, '--optimizer', optimizer, '--truth', truth)
    assert r.returncode == 0, r.stderr
    n, e = json.load(open(truth))['parameters'], load('memory', '--estimate', db)['estimate']
    w, g, master, moments = RECIPES[dtype, optimizer]
    assert e['parameters'] == n and [e['recipe'][k] for k in ('weights', 'grads', 'master', 'moments', 'total')] == [w, g, master, moments, w + g + master + moments]
    size = 4 if dtype == 'fp32' else 2
    lines = {x['class']: x for x in e['lines']}
    assert [lines[c]['expected_bytes'] for c in ('param', 'grad', 'optimizer')] == [w * n, g * n, (master + moments) * n]
    assert [lines[c]['lecture_bytes'] for c in ('param', 'grad', 'optimizer')] == [4 * n, 4 * n, moments * n]
    assert lines['activation']['expected_bytes'] == L * (T * B * C * 16 * size + H * T * T * B * size) == e['transformer_bytes']
    truths = json.load(open(truth))['buffers']
    for c in ('param', 'grad', 'optimizer'):
        assert lines[c]['measured_bytes'] == sum(b['bytes'] for b in truths if b['class'] == c)
    parts = [x for x in e['lines'] if x['class'] != 'total']
    assert len(parts) == 10 and all(x['gap_bytes'] == x['measured_bytes'] - x['expected_bytes'] for x in e['lines'])
    for key in ('lecture_bytes', 'expected_bytes', 'measured_bytes', 'gap_bytes'):
        assert lines['total'][key] == sum(x[key] for x in parts)
    memory = load('report', db)['memory']
    assert lines['total']['measured_bytes'] == memory['peak_bytes']
    assert {c: sum(x['bytes'] for x in e['parts'] if x['class'] == c) for c in memory['at_peak']} == memory['at_peak'] # each part has a rule
    assert all(x['rule'] and x['blocks'] > 0 for x in e['parts'])


@pytest.mark.parametrize('optimizer, states', [('sgd', 0), ('rmsprop', 1), ('adam', 2)])
def test_the_lectures_formula_on_its_model(tmp_path, optimizer, states):
    """D x D parameters a layer, B x D activations a layer: 4 bytes x (parameters + activations + gradients + states)."""
    db, L, B, D = tmp_path / 't.db', 3, 16, 32
    r = run(ACCT, 'run', '--vgpu', '-o', db, '--', TRAIN, '--model', 'linear', '--layers', L, '--batch', B, '--dim', D, '--steps', 3, '--optimizer', optimizer)
    assert r.returncode == 0, r.stderr
    e = load('memory', '--estimate', db)['estimate']
    lecture = {x['class']: x['lecture_bytes'] for x in e['lines']}
    p, a = D * D * L, B * D * L
    assert (lecture['param'], lecture['grad'], lecture['optimizer'], lecture['activation']) == (4 * p, 4 * p, 4 * states * p, 4 * a)
    assert lecture['total'] == 4 * (p + a + p + states * p)
    assert e['transformer_bytes'] is None and e['forward_outputs'] == a


# ---- real runs -----------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope='module')
def traces(tmp_path_factory):
    d, made = tmp_path_factory.mktemp('memory'), {}

    def get(name, profile='h100-sxm', env=None):
        if name not in made:
            made[name] = d / f'{name}.db'
            r = run(ACCT, 'run', f'--vgpu={profile}', '-o', made[name], '--', CASES, name, env=env)
            assert r.returncode == 0, r.stderr
        return made[name]
    return get


def test_everything_that_a_device_has_in_use_is_explained(traces):
    """A virtual device's memory is used by its context, the pieces it gives, and nothing else."""
    db = traces('release')
    m = load('memory', db)['reconciliation']
    sizes = [5 * MIB + 1, 1000, 1000, 1000]
    assert m['when'] == 'release' and m['ours'] == sum(sizes) and m['unexplained'] == 0
    assert m['pool_slack'] == taken(sizes) - sum(sizes) and m['context'] == 530 * MIB # devices.def: reserved_mib of h100-sxm
    (first, f), (release, free), (why,) = query(db, 'select why, free_bytes from meminfo order by id') + [('',)]
    assert (first, release) == ('first use', 'release') and f - free == taken(sizes)
    ns, start = query(db, "select m.ns, op.start_ns from meminfo m, op where m.why = 'release' and op.kind = 'free'")[0]
    assert ns < start # before the call, whose own time the question is no part of


def test_a_program_that_gives_nothing_back_is_asked_too(traces):
    """Before its last allocation, or an earlier one 10 ms apart: all but that one are live then."""
    db = traces('keep')
    asked = query(db, "select ns, free_bytes from meminfo where why = 'allocation' order by ns")
    assert 1 <= len(asked) <= 5 and query(db, "select count(*) from meminfo where why = 'release'") == [(0,)]
    m = load('memory', db)['reconciliation']
    n = query(db, 'select count(*) from alloc where alloc_ns < ?', asked[-1][0])[0][0]
    assert (m['when'], m['ns'], m['ours'], m['unexplained'], m['context']) == ('allocation', asked[-1][0], n * 3 * MIB, 0, 530 * MIB) and n >= 1
    assert all(b[0] - a[0] >= 10**7 for a, b in zip(asked, asked[1:]))


def test_releases_are_not_asked_of_too_often(tmp_path):
    db = tmp_path / 't.db'
    r = run(ACCT, 'run', '--vgpu', '-o', db, '--', CASES, 'threads')
    assert r.returncode == 0, r.stderr
    ns = [n for n, in query(db, "select ns from meminfo where why in ('release', 'allocation') order by ns")]
    assert ns and query(db, "select count(*) from op where kind = 'free'") == [(16000,)]
    assert len(ns) <= 2 + 8 + (ns[-1] - ns[0]) // 10**7 # 10 ms apart; threads that come at once may both ask


def test_copies_of_a_program(traces):
    """Page-locked, registered, managed; and memory that is none of these."""
    j = load('memory', traces('copies'))
    c = {x['direction']: (x['count'], x['bytes'], x['pageable_count'], x['pageable_bytes']) for x in j['copies']}
    assert c['h2d'] == (3, 7000 + 5 * 4096 + 3072, 1, 3072) and c['d2h'] == (2, 3000, 1, 1000)
    assert c['d2d'] == (2, 9000 + 4000, None, None) # from managed memory too, which the device reaches as its own
    assert (j['host']['pinned_peak_bytes'], j['host']['registered_peak_bytes'], j['host']['managed_peak_bytes']) == (7000, 5 * 4096, 9000)
    assert 'Pageable copies' in show('memory', traces('copies'))
