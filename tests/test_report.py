"""acct report on traces with known contents. Expected values are computed here, by formula or by brute force."""
import csv, io, json, math, os, random, re, shutil, sqlite3, statistics, subprocess, time
import pytest
from conftest import BUILD, SHARED, TOP, run
from report_trace import CLASSES, Trace, create

ACCT = os.path.join(BUILD, 'acct')
H100 = 'NVIDIA H100 80GB HBM3'
PEAK = {'fp64': 66.9e12, 'fp32': 66.9e12, 'tf32': 494.7e12, 'bf16': 989.4e12}          # ACCOUNTING section 9


def report(*args):
    r = run(ACCT, 'report', '--format', 'json', *args)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def text(*args, locale='C.UTF-8'):
    r = run(ACCT, 'report', *args, env={'LC_ALL': locale})
    assert r.returncode == 0, r.stderr
    return r.stdout


def simple(path, **kw):
    t = Trace(path, **kw)
    t.device(H100)
    t.alloc(4 << 20, 10, classes='param')
    return t


# ---- memory ------------------------------------------------------------------------------------------------------------

def random_allocations(t, rnd):
    """Some 60 allocations, in part with classes that change; returns them for the brute force."""
    rows = []
    for _ in range(60):
        begin = rnd.randrange(10, 900)
        end = rnd.choice([None, begin + rnd.randrange(1, 300)])
        size, cut = rnd.randrange(1, 5000), None
        classes = rnd.choice([None, 'whole', 'split', 'changes'])
        a, b = rnd.choice(CLASSES), rnd.choice(CLASSES)
        if classes == 'whole':
            classes = [(0, size, None, None, a)]
        elif classes == 'split':
            cut = rnd.randrange(0, size)
            classes = [(0, cut, None, None, a), (cut, size - cut, None, None, b)]
        elif classes == 'changes':
            moment = begin + rnd.randrange(0, 200)
            classes = [(0, size, None, moment, a), (0, size, moment, None, b)]
        memory = rnd.choice(['device', 'device', 'async', 'managed', 'pinned'])
        t.alloc(size, begin, end, classes, memory)
        rows.append((begin, end if end is not None else math.inf, size, classes or [], memory))
    return rows


def live(rows, now, kinds=('device', 'async')):
    """Bytes by class at a time: a plain look at every allocation."""
    at = dict.fromkeys(CLASSES, 0)
    for begin, end, size, classes, memory in rows:
        if memory in kinds and begin <= now < end:
            known = 0
            for _, n, since, until, cls in classes:
                if (since is None or since <= now) and (until is None or now < until):
                    at[cls] += n
                    known += n
            at['unknown'] += size - known
    return at


def peak(rows, start, end, kinds=('device', 'async')):
    """The greatest total, and its classes where most of it holds something: the first such moment of several."""
    at = {now: live(rows, now, kinds) for now in range(start, end + 1)}
    total = {now: sum(a.values()) for now, a in at.items()}
    best = max(at, key=lambda now: (total[now], total[now] - at[now]['temporary'] - at[now]['unknown'], -now))
    return total[best], at[best]


@pytest.mark.parametrize('seed', range(8))
def test_peaks_agree_with_brute_force(tmp_path, seed):
    rnd = random.Random(seed)
    t = Trace(tmp_path / 'a.db')
    rows = random_allocations(t, rnd)
    bounds = sorted(rnd.sample(range(0, 1300), 6))
    for i in range(5):
        t.step(i, bounds[i], bounds[i + 1], [('forward', 'fp32', 10, 1)])
    j = report(t.close())
    assert (j['memory']['peak_bytes'], j['memory']['at_peak']) == peak(rows, 0, 1300)
    assert j['memory']['managed_peak_bytes'] == peak(rows, 0, 1300, ('managed',))[0]
    assert j['memory']['pinned_peak_bytes'] == peak(rows, 0, 1300, ('pinned',))[0]
    for i, s in enumerate(j['steps']):
        total, at = peak(rows, bounds[i], bounds[i + 1])
        assert s['memory']['peak_bytes'] == total == sum(s['memory']['at_peak'].values())
        assert s['memory']['at_peak'] == at
    assert j['totals']['peak_bytes'] == j['memory']['peak_bytes'] and j['totals']['allocations'] == 60


def test_reuse_of_an_address_at_one_moment(tmp_path):
    """A block that ends when the next begins is never counted beside it."""
    t = Trace(tmp_path / 'a.db')
    for i in range(10):
        t.alloc(1000, 10 * i + 1, 10 * i + 11, 'activation')
    assert report(t.close())['memory']['peak_bytes'] == 1000


def test_bytes_are_printed_as_the_books_say(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(3 << 29, 10, classes='activation')
    out = text(t.close())
    assert '1.50 GiB (1610612736)' in out
    assert re.search(r'^  unknown +0 B', out, re.M)                  # always shown
    assert not re.search(r'^  grad ', out, re.M)


def test_bytes_without_a_class_are_unknown(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.alloc(1000, 10, classes=[(0, 600, None, None, 'grad')])
    t.alloc(500, 11)
    j = report(t.close())
    assert j['memory']['at_peak']['grad'] == 600 and j['memory']['at_peak']['unknown'] == 900
    assert [(b['bytes'], b['class']) for b in j['blocks']] == [(600, 'grad'), (500, 'unknown')]


# ---- FLOPs and rates -----------------------------------------------------------------------------------------------------

def mixed(t):
    """A step that mixes number formats and recomputes."""
    ms = 1000000
    for i in range(4):
        t.step(i, i * 10 * ms, (i + 1) * 10 * ms + i * ms, [
            ('forward', 'bf16', 10**12, 1), ('forward', 'fp32', 2 * 10**9, 1), ('recompute', 'bf16', 5 * 10**11, 1),
            ('backward', 'bf16', 2 * 10**12, 1), ('optimizer', 'fp32', 7 * 10**6, 0)])
    return t


def test_mfu_of_mixed_formats(tmp_path):
    j = report(mixed(simple(tmp_path / 'a.db')).close())
    for i, s in enumerate(j['steps']):
        f = s['flops']
        assert (f['forward'], f['backward'], f['recompute'], f['optimizer']) == (10**12 + 2 * 10**9, 2 * 10**12, 5 * 10**11, 0)
        assert f['gemm'] == 35 * 10**11 + 2 * 10**9 and f['other'] == 7 * 10**6 and f['total'] == f['gemm'] + f['other']
        seconds = (10e-3 + i * 1e-3)
        assert s['mfu'] == pytest.approx((3e12 / PEAK['bf16'] + 2e9 / PEAK['fp32']) / seconds, rel=1e-12)
        assert s['hfu'] == pytest.approx((3.5e12 / PEAK['bf16'] + 2e9 / PEAK['fp32']) / seconds, rel=1e-12)
        assert s['mfu_by_convention'] == {'6n': None, '6n-matmul': None, 'palm': None, 'causal': None}
        assert [p['name'] for p in s['phases']] == ['forward', 'backward', 'optimizer']
    assert j['totals']['flops'] == 4 * (35 * 10**11 + 2 * 10**9 + 7 * 10**6)


def test_median_and_spread_leave_the_first_step_out(tmp_path):
    t = simple(tmp_path / 'a.db')
    times, now = [90, 11, 14, 12, 19], 0
    for i, ms in enumerate(times):
        t.step(i, now, now + ms * 10**6, [('forward', 'tf32', 10**12, 1)])
        now += ms * 10**6
    t.step(5, now, now + 500 * 10**6, [('forward', 'tf32', 10**10, 1)], complete=0)
    j = report(t.close())
    run_ = j['run']
    assert run_['step_ns'] == {'median': statistics.median(times[1:]) * 1e6, 'min': 11e6, 'max': 19e6}
    assert run_['mfu']['median'] == pytest.approx(statistics.median([1e12 / (ms * 1e-3) / PEAK['tf32'] for ms in times[1:]]), rel=1e-12)
    assert len(j['steps']) == 6 and not j['steps'][5]['complete'] and any('cut off' in n for n in j['notes'])


def test_a_run_of_more_flops_than_64_bits_hold(tmp_path):
    t = simple(tmp_path / 'a.db')
    big = 9 * 10**18
    t.step(0, 0, 10**9, [('forward', 'bf16', big, 1)] * 3)
    path = t.close()
    j = report(path)
    assert j['totals']['flops'] == j['steps'][0]['flops']['gemm'] == 3 * big > 2**63
    assert '27.0 EFLOP (27000000000000000000)' in text(path)


def test_op_summary_of_a_long_run(tmp_path):
    """Exact while 64 bits hold the sum, a double beyond; not known where nothing is."""
    t = simple(tmp_path / 'a.db')
    for flops, wanted in ([2**53 + 1, 3], 2**53 + 4), ([None], None), ([6 * 10**18] * 3, 18e18):
        t.db.execute('DELETE FROM op')
        t.db.execute('DELETE FROM op_cost')
        for n in flops:
            t.cost(t.op(), 0, 'forward', 'fp32', n, 1)
        assert t.db.execute('SELECT calls, flops FROM op_summary').fetchall() == [(len(flops), wanted)]


def test_digits_are_exact_or_absent(tmp_path):
    """2^53 + 1 has no double of its own."""
    t = simple(tmp_path / 'a.db')
    odd = 2**53 + 1
    t.step(0, 0, 10**9, [('forward', 'bf16', odd, 1)])
    path = t.close()
    assert f'({odd})' in text(path) and str(2**53) not in text(path).replace(str(odd), '')
    assert report(path)['totals']['flops'] == odd


def test_what_is_not_counted_is_null(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.db.execute("INSERT INTO api VALUES(2, 'cublasSgetrfBatched', 'cublas')")
    ids = t.step(0, 0, 10**6, [('forward', 'fp32', 10**6, 1), ('forward', None, None, 0), ('forward', None, None, 0)])
    t.db.execute('UPDATE op SET api = 2 WHERE id IN (?, ?)', ids[1:])
    t.step(1, 10**6, 2 * 10**6, [('forward', 'fp32', 10**6, 1), ('forward', 'fp32', 5, 0)])
    j = report(t.close())
    f = j['steps'][0]['flops']
    assert f['total'] is None and f['total_most'] is None and f['other'] is None and f['gemm'] == f['gemm_most'] == 10**6 and f['grade'] == 'uncounted'
    assert j['steps'][1]['flops']['total'] == j['steps'][1]['flops']['total_most'] == 10**6 + 5 and j['steps'][1]['flops']['grade'] == 'exact'
    assert j['totals']['flops'] is None and j['totals']['kernels'] == 0 and j['totals']['counted_time_share'] is None
    assert j['coverage'] == {'counted_time_share': None, 'exact_time_share': None,
                             'uncounted': [{'name': 'cublasSgetrfBatched', 'launches': 2, 'time_ns': None, 'time_share': None, 'why': 'no formula for this routine, or a size is not known'}]}


def test_evaluation_is_in_no_step(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.step(0, 0, 10**6, [('forward', 'fp32', 10**6, 1)])
    for flops, matmul in ((3 * 10**6, 1), (40, 0)):
        t.cost(t.op(), None, 'evaluation', 'fp32', flops, matmul)
    j = report(t.close())
    assert j['totals']['flops_evaluation'] == 3 * 10**6 + 40 and j['totals']['flops'] == 4 * 10**6 + 40
    assert j['steps'][0]['flops']['total'] == 10**6


def test_evaluation_by_kernels_that_are_not_counted_is_not_known(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.step(0, 0, 10**6, [('forward', 'fp32', 10**6, 1)])
    t.cost(t.op(), None, 'evaluation', 'fp32', 3 * 10**6, 1)
    t.cost(t.op(), None, 'evaluation', None, None, 0)
    j = report(t.close())
    assert j['totals']['flops_evaluation'] is None and j['totals']['flops'] is None
    assert j['steps'][0]['flops']['total'] == 10**6


# ---- conventions -----------------------------------------------------------------------------------------------------------

def linear(path, D=256, L=6, B=32, seconds=1e-3, biases=0):
    """The lecture's deep linear model, no gradient of the input, as the analysis tells it; and parameters that no product reads."""
    t = Trace(path)
    t.device('some virtual device', peak_fp32=1e11, source='made up')
    n, gemm = D * D * L, 2 * B * D * D
    t.alloc(4 * (n + biases), 10, classes='param')
    for i in range(3):
        products = [('forward', 'fp32', gemm, 1)] * L + [('backward', 'fp32', gemm, 1)] * (2 * L - 1)
        t.step(i, round(i * seconds * 1e9), round((i + 1) * seconds * 1e9), products, tokens=B)
        terms = [('6n', 6 * B * (n + biases)), ('parameters in no product', -6 * B * biases), ('first input gradient', -gemm), ('unexplained', 0), ('executed', gemm * (3 * L - 1))]
        t.db.executemany('INSERT INTO flops_term VALUES(?, ?, ?, ?)', [(i, place, *term) for place, term in enumerate(terms) if term[1] or term[0] == 'unexplained'])
    facts = dict(parameters=n + biases, in_products=n, lookup=0, position=0, other=biases, tied=0, frozen=0, tokens=B, attention=0)
    t.db.executemany("INSERT INTO model VALUES(?, ?, 'by the test')", facts.items())
    return t


def test_measured_peak_of_each_format(tmp_path):
    """A step's MFU is by the peak of the format that its products ran in."""
    t = Trace(tmp_path / 'a.db')
    t.device('some virtual device', peak_fp32=1e11, peak_bf16=4e10, source='made up')
    for i in range(3):
        t.step(i, i * 10**6, (i + 1) * 10**6, [('forward', 'bf16', 10**7, 1)])
    j = report(t.close())
    assert j['steps'][1]['mfu'] == pytest.approx(10**7 / 1e-3 / 4e10)


def test_6n_of_the_lecture(tmp_path):
    D, L, B = 256, 6, 32
    path = linear(tmp_path / 'a.db', D, L, B).close()
    j, out = report(path), text(path)
    n, executed = D * D * L, 2 * B * D * D * (3 * L - 1)
    assert executed == 71303168
    for s in j['steps']:
        assert s['flops']['gemm'] == executed and s['flops']['forward'] == 25165824
        assert s['mfu'] == pytest.approx(executed / 1e-3 / 1e11, rel=1e-9)
        assert s['mfu_by_convention']['6n'] == pytest.approx(6 * n * B / 1e-3 / 1e11, rel=1e-9)
        assert s['mfu_by_convention']['6n-matmul'] == pytest.approx(6 * n * B / 1e-3 / 1e11, rel=1e-9)
    assert str(6 * n * B) in out                                     # 75497472
    assert re.search(rf'-4\.19 MFLOP +-{2 * B * D * D} +the gradient of the first layer', out)                        # the difference, and why
    terms = {t['term']: t['flops'] for t in j['flops_difference']['terms']}
    assert terms == {'6n': 6 * n * B, 'first input gradient': -2 * B * D * D, 'unexplained': 0, 'executed': executed}


def test_6n_is_told_of_a_step_whose_tokens_are_known(tmp_path):
    """The first step and one that was cut off may have none."""
    t = linear(tmp_path / 'a.db')
    t.db.execute('UPDATE step SET tokens = NULL WHERE id = 0')
    t.step(3, 3 * 10**6, 4 * 10**6, [('forward', 'fp32', 10, 1)], complete=0)
    line = re.search(r'6n counts.*', text(t.close())).group(0)
    assert line.split() == f'6n counts 6 x {256 * 256 * 6} parameters x 32 tokens or samples = 75.5 MFLOP ({6 * 256 * 256 * 6 * 32}) a step'.split()


def test_6n_counts_only_what_products_read_in_6n_matmul(tmp_path):
    j = report(linear(tmp_path / 'a.db', biases=1000).close())
    s, n = j['steps'][0], 256 * 256 * 6
    assert s['mfu_by_convention']['6n'] == pytest.approx(6 * (n + 1000) * 32 / 1e-3 / 1e11, rel=1e-9)
    assert s['mfu_by_convention']['6n-matmul'] == pytest.approx(6 * n * 32 / 1e-3 / 1e11, rel=1e-9)


def test_6n_that_is_not_known_is_said(tmp_path):
    t = linear(tmp_path / 'a.db')
    t.db.execute("UPDATE model SET value = NULL, how = 'a reason of the test' WHERE fact = 'parameters'")
    t.db.execute("UPDATE model SET value = NULL WHERE fact = 'in_products'")
    j = report(t.close())
    assert all(v is None for s in j['steps'] for v in s['mfu_by_convention'].values())
    assert j['run']['mfu_6n']['median'] is None and '6n is not known: a reason of the test.' in j['notes']


# ---- devices ---------------------------------------------------------------------------------------------------------------

def accounting_devices():
    """Rows of ACCOUNTING section 9: name as the driver has it → fp64 of matrix products, fp32, tf32, bf16, fp16, fp8, fp4."""
    path = os.path.join(SHARED, 'ACCOUNTING.md')
    if not os.path.exists(path):
        pytest.skip('no ../shared/ACCOUNTING.md beside this checkout')
    rows = {}
    for line in open(path):
        cells = [c.strip() for c in line.strip().strip('|').split('|')]
        if len(cells) != 13 or not cells[2].isdigit():
            continue
        number = lambda s: None if s == '–' else float(re.search(r'\d[\d.]*', s.split(':')[-1]).group())
        fp64 = re.search(r'\(([\d.]+)\)', cells[3])
        only16 = cells[6].startswith('fp16 only')
        value = {'fp64': float(fp64.group(1)) if fp64 else number(cells[3]), 'fp32': number(cells[4]), 'tf32': number(cells[5]),
                 'bf16': None if only16 else number(cells[6]), 'fp16': number(cells[6]), 'fp8': number(cells[8]), 'fp4': number(cells[10])}
        name = re.sub(r' \(.*', '', cells[0])
        first, *others = name.split(' / ')
        rows[first] = value
        for other in others:
            rows[first.rsplit('-', 1)[0] + '-' + other] = value
    assert len(rows) >= 20
    return rows


def test_every_device_of_the_table(tmp_path):
    for i, (name, want) in enumerate(accounting_devices().items()):
        t = Trace(tmp_path / f'{i}.db')
        t.device(name)
        got = report(t.close())['device']['peak_flops']
        assert got == {k: None if v is None else pytest.approx(v * 1e12, rel=1e-12) for k, v in want.items()}, name


def test_a_device_is_matched_exactly_or_not_at_all(tmp_path):
    t = Trace(tmp_path / 'a.db')
    t.device(H100 + ' MIG 1g.10gb')
    t.step(0, 0, 10**6, [('forward', 'fp32', 10**6, 1)])
    path = t.close()
    j = report(path)
    assert set(j['device']['peak_flops'].values()) == {None} and j['steps'][0]['mfu'] is None
    assert 'peak unknown' in text(path) and '--peak-tflops' in text(path)
    assert report('--peak-tflops', '0.002', path)['steps'][0]['mfu'] == pytest.approx(1e6 / 1e-3 / 2e9)
    assert report('--peak-tflops', 'fp32=0.004,bf16=1', path)['steps'][0]['mfu'] == pytest.approx(1e6 / 1e-3 / 4e9)
    assert report('--peak-tflops', 'bf16=1', path)['steps'][0]['mfu'] is None
    assert 'MFU unknown: products ran in fp32, of which no peak is known' in text('--peak-tflops', 'bf16=1', path)
    assert 'of which no peak' not in text('--peak-tflops', 'fp32=1', path)
    for bad in ('0', '-1', 'x', 'fp32', 'fp33=1', 'fp32=1,', '1e999', 'nan'):
        r = run(ACCT, 'report', '--peak-tflops', bad, path)
        assert r.returncode == 2 and r.stderr.count('\n') == 1, bad


def test_over_the_peak_is_printed_with_a_warning(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.step(0, 0, 1000, [('forward', 'fp32', 10**12, 1)])
    path = t.close()
    assert report(path)['steps'][0]['mfu'] == pytest.approx(1e12 / 1e-6 / PEAK['fp32'])
    warning = r'Warning: a step reached [\d.]+ % of the peak \(step 0, products executed\)'
    assert re.search(warning, text(path))
    for command, shows in (('steps', 1), ('flops', 1), ('ops', 1), ('memory', 0), ('peak', 0), ('leaks', 0)): # of memory, "the peak" is another
        assert bool(re.search(warning, run(ACCT, command, path).stdout)) == shows, command


def test_several_devices_are_said(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.device(H100, ordinal=1)
    assert any('2 devices' in n for n in report(t.close())['notes'])


# ---- formats ---------------------------------------------------------------------------------------------------------------

SCHEMA = {'schema': 0, 'program': {'argv', 'pid', 'exit_code'}, 'device': {'name', 'clock', 'peak_flops'},
          'totals': {'ops', 'gemms', 'kernels', 'allocations', 'dropped', 'flops', 'flops_evaluation', 'peak_bytes', 'counted_time_share'},
          'memory': {'peak_bytes', 'at_peak'}, 'steps': 0, 'coverage': {'counted_time_share', 'uncounted'}, 'reconciliation': 0, 'notes': 0, 'blocks': 0}


def test_keys_of_schema_1(tmp_path):
    j = report(mixed(simple(tmp_path / 'a.db')).close())
    assert j['schema'] == 1 and set(SCHEMA) <= set(j)
    for key, inner in SCHEMA.items():
        if inner:
            assert inner <= set(j[key]), key
    assert set(j['memory']['at_peak']) == set(CLASSES)
    for s in j['steps']:
        assert {'index', 'start_ns', 'end_ns', 'tokens', 'micro_batches', 'phases', 'flops', 'mfu', 'hfu', 'mfu_by_convention', 'memory'} <= set(s)
        assert {'total', 'gemm', 'other', 'forward', 'backward', 'optimizer', 'recompute'} < set(s['flops'])
        assert set(s['mfu_by_convention']) == {'6n', '6n-matmul', 'palm', 'causal'}
        assert set(s['memory']) == {'peak_bytes', 'at_peak'} and set(s['memory']['at_peak']) == set(CLASSES)
        assert all(set(p) == {'name', 'micro_batch', 'start_ns', 'end_ns'} for p in s['phases'])
    assert all({'id', 'bytes', 'class', 'confidence', 'rule', 'alloc_ns', 'free_ns'} <= set(b) for b in j['blocks'])
    assert j['device']['clock'] in ('gpu', 'cpu', 'model', 'host') and j['reconciliation'] is None


def flatten(value, path=''):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from flatten(v, f'{path}.{k}' if path else k)
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from flatten(v, f'{path}[{i}]')
    else:
        yield path, value


def test_csv_says_what_json_says(tmp_path):
    path = mixed(simple(tmp_path / 'a.db', argv=['a,b', 'say "x"', 'line\nbreak'])).close()
    r = run(ACCT, 'report', '--format', 'csv', path)
    rows = list(csv.reader(io.StringIO(r.stdout, newline='')))
    assert rows[0] == ['path', 'value', 'unit']
    plain = lambda v: '' if v is None else str(v).lower() if isinstance(v, bool) else v if isinstance(v, str) else v
    want = list(flatten(report(path)))
    assert [k for k, *_ in rows[1:]] == [k for k, _ in want]
    for (k, v, unit), (_, w) in zip(rows[1:], want):
        assert (float(v) == w if isinstance(w, float) else int(v) == w if isinstance(w, int) and not isinstance(w, bool) else v == plain(w)), k
        assert v == '' or not k.endswith('_ns') or unit == 'ns'


def test_markdown_is_the_text_in_tables(tmp_path):
    path = mixed(simple(tmp_path / 'a.db', argv=['a|b'])).close()
    md = run(ACCT, 'report', '--format', 'markdown', path).stdout
    blocks = re.findall(r'(?:^\|.*\|\n)+', md, re.M)
    assert len(blocks) >= 5
    for block in blocks:
        rows = [re.sub(r'\\\|', '', l) for l in block.splitlines()]
        assert len({l.count('|') for l in rows}) == 1, block
        assert re.fullmatch(r'(\| -+:? )+\|', rows[1]), block
    for number in re.findall(r'\((\d{4,})\)', text(path)):
        assert number in md


def test_long_runs_are_shortened_for_people_only(tmp_path):
    t = simple(tmp_path / 'a.db')
    for i in range(100):
        t.step(i, i * 1000, (i + 1) * 1000, [('forward', 'fp32', 10, 1)])
    path = t.close()
    assert len(report(path)['steps']) == 100
    out = text(path)
    assert '… 60 more' in out and re.search(r'^ +99 ', out, re.M) and not re.search(r'^ +50 ', out, re.M)
    plain = text(path, locale='C')
    assert plain.isascii() and '... 60 more' in plain


def test_a_terminal_without_unicode_gets_bars_of_ascii(tmp_path):
    t = simple(tmp_path / 'a.db')
    path = t.close()
    fancy, plain = text(path), text(path, locale='C')
    assert '█' in fancy and plain.isascii()
    bar = lambda out, fill: [len(m.group(1)) for m in re.finditer(rf'%  ({fill}+)[▏▎▍▌▋▊▉]?$', out, re.M)]
    assert bar(plain, '#') and all(abs(a - b) <= 1 for a, b in zip(bar(plain, '#'), bar(fancy, '█')))


def test_any_text_makes_valid_json(tmp_path):
    t = Trace(tmp_path / 'a.db', argv=['quote"', 'back\\slash', 'tab\t', 'ünï €', '\x01'])
    t.db.execute('INSERT INTO device(process, ordinal, name) VALUES(1, 0, CAST(? AS TEXT))', (b'bad \xff\xc0\xaf utf-8',))
    j = report(t.close())
    assert j['program']['argv'] == ['quote"', 'back\\slash', 'tab\t', 'ünï €', '\x01']
    assert j['device']['name'] == 'bad \ufffd\ufffd\ufffd utf-8'


def test_several_traces_make_a_list(tmp_path):
    a, b = (simple(tmp_path / f'{n}.db', pid=n).close() for n in (1, 2))
    assert [j['program']['pid'] for j in report(a, b)] == [1, 2]
    assert text(a, b).count('process id') == 2


def test_an_empty_trace(tmp_path):
    path = tmp_path / 'a.db'
    db = create(path)
    db.commit()
    db.close()
    j = report(path)
    assert j['steps'] == [] and j['program'] == {'argv': [], 'pid': None, 'exit_code': None} and j['memory']['peak_bytes'] == 0
    assert 'unknown' in text(path)


# ---- state -------------------------------------------------------------------------------------------------------------------

def test_truncated_and_lost_are_said(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.meta(state='truncated', reason='disk full')
    t.db.execute("INSERT INTO lost(process, thread, records, texts, reason) VALUES(1, 1, 17, 2, 'ring full'), (1, 2, 4, NULL, 'no ring')")
    path = t.close()
    assert report(path)['totals']['dropped'] == 21
    out = text(path)
    assert 'truncated: disk full' in out and re.search(r'\b21\b calls', out)


def test_a_collector_that_died(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.meta(state='running', collector_pid=2**22 + 1)
    assert 'valid up to its last commit' in text(t.close())


def test_a_program_that_still_runs(tmp_path):
    """Its collector is alive: the report does not touch the file and says what it covers."""
    fake = tmp_path / 'acct-collect'
    shutil.copy(shutil.which('sleep'), fake)
    p = subprocess.Popen([fake, '60'])
    try:
        t = simple(tmp_path / 'a.db', pid=os.getpid())
        t.db.execute('UPDATE process SET end_ns = NULL')
        t.meta(state='running', collector_pid=p.pid)
        path = t.close()
        before = open(path, 'rb').read()
        assert 'still running' in text(path)
        assert open(path, 'rb').read() == before
    finally:
        p.kill()
        p.wait()


def test_an_older_analysis_is_renewed_in_the_file(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.db.execute("DELETE FROM meta WHERE key = 'analysis_version'")
    path = t.close()
    report(path)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT value FROM meta WHERE key = 'analysis_version'").fetchone() is not None


def test_a_trace_of_the_first_version(tmp_path):
    """Without the tables of kernels and device times: they are added, empty, and nothing is said that its writer did not know."""
    t = simple(tmp_path / 'a.db')
    t.alloc(100, 20, 30)
    t.db.execute("DELETE FROM meta WHERE key = 'analysis_version'")
    for view in ('roofline', 'step_flops'):
        t.db.execute(f'DROP VIEW {view}')
    for table in ('ptx', 'module', 'kernel', 'launch', 'correlation', 'activity', 'op_time', 'step', 'price', 'price_count', 'cost_set'):
        t.db.execute(f'DROP TABLE {table}')
    t.db.execute('DROP VIEW op_cost')
    t.db.execute('CREATE TABLE op_cost(op INTEGER PRIMARY KEY, step INTEGER, phase TEXT, micro_batch INTEGER, dtype TEXT, flops INTEGER, integer_ops INTEGER, '
                 'matmul INTEGER NOT NULL, bytes_read INTEGER, bytes_written INTEGER, grade TEXT NOT NULL)')
    t.db.execute('CREATE TABLE step(id INTEGER PRIMARY KEY, start_ns INTEGER, end_ns INTEGER, first_op INTEGER, last_op INTEGER, '
                 'micro_batches INTEGER, tokens INTEGER, complete INTEGER NOT NULL)')
    for table in ('copy', 'memset', 'gemm', 'blas'):
        t.db.execute(f'ALTER TABLE "{table}" DROP COLUMN external')
    path = t.close()
    j = report(path)
    assert j['totals']['kernels'] is None and j['totals']['allocations'] == 2 and j['device']['clock'] == 'host'
    assert any('not recorded by the version that wrote this trace' in n for n in j['notes'])
    with sqlite3.connect(path) as db:
        assert db.execute('SELECT count(device_start_ns) FROM step').fetchone()[0] == 0
        assert db.execute('SELECT count(external) FROM gemm').fetchone()[0] == 0
        assert db.execute('SELECT count(*) FROM price, roofline').fetchone()[0] == 0
        assert {'flops_most', 'matmul_flops', 'price'} < {c for _, c, *_ in db.execute('PRAGMA table_info(op_cost)')}
        assert db.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'


# ---- device times --------------------------------------------------------------------------------------------------------

def timed(path, spans, clock='gpu'):
    """Steps of one GEMM of 10^6 FLOPs each, with the device's begin and end (or None) beside the host's 1000 ns."""
    t = Trace(path)
    t.device(H100)
    t.db.execute('UPDATE device SET clock = ?', (clock,))
    for i, span in enumerate(spans):
        t.step(i, i * 1000, (i + 1) * 1000, [('forward', 'fp32', 10**6, 1), ('forward', None, None, 0)])
        if span:
            first, last = t.op_id - 1, t.op_id
            t.db.execute('UPDATE step SET device_start_ns = ?, device_end_ns = ? WHERE id = ?', (*span, i))
            middle = span[0] + (span[1] - span[0]) // 4
            for op, a, b in ((first, span[0], middle), (last, middle, span[1])):
                t.db.execute('INSERT INTO op_time VALUES(?, ?, ?, ?, 1)', (op, a, b, b - a))
                t.db.execute("INSERT INTO activity(kind, start_ns, end_ns) VALUES('kernel', ?, ?)", (a, b))
    return t


def test_steps_by_the_clock_of_the_device(tmp_path):
    spans = [(100, 500), (500, 4500), (4500, 6500), (6500, 7300)]
    j = report(timed(tmp_path / 'a.db', spans).close())
    assert j['device']['clock'] == 'gpu'
    times = [b - a for a, b in spans]
    assert [s['device_end_ns'] - s['device_start_ns'] for s in j['steps']] == times
    assert j['run']['step_ns']['median'] == statistics.median(times[1:])
    for s, ns in zip(j['steps'], times):
        assert s['mfu'] == pytest.approx(10**6 / (ns * 1e-9) / PEAK['fp32'])
        assert s['end_ns'] - s['start_ns'] == 1000
    assert j['totals']['counted_time_share'] == pytest.approx(0.25)           # the other three quarters have no FLOPs
    assert j['coverage']['uncounted'][0]['time_ns'] == sum(times) * 3 // 4
    assert {f['name']: f['time_ns'] for f in j['functions']} == {'cublasGemmEx': sum(times)}


def test_a_step_without_device_times_puts_all_on_the_host_clock(tmp_path):
    j = report(timed(tmp_path / 'a.db', [(100, 500), None, (600, 700)]).close())
    assert j['device']['clock'] == 'host' and j['run']['step_ns']['median'] == 1000
    assert j['steps'][1]['device_start_ns'] is None


def test_why_there_are_no_device_times(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.meta(cupti='error 39: another client has subscribed')
    assert any(n.startswith('CUPTI: error 39: another client has subscribed; there are no device times') for n in report(t.close())['notes'])


def test_dropped_activity_records_are_said(tmp_path):
    t = timed(tmp_path / 'a.db', [(100, 500), (500, 900)])
    t.meta(cupti_dropped=7)
    assert any('dropped 7 activity records' in n for n in report(t.close())['notes'])


def as_nobody(*argv):
    """Runs as a user who may not write; root may always."""
    if os.geteuid():
        return run(*argv)
    return run('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', *argv)


def test_a_trace_that_cannot_be_written_is_analysed_in_a_copy(tmp_path):
    t = simple(tmp_path / 'a.db')
    t.db.execute("DELETE FROM meta WHERE key = 'analysis_version'")
    path = t.close()
    before = open(path, 'rb').read()
    os.chmod(path, 0o444)
    for d in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(d, 0o755)
    os.chmod(tmp_path, 0o555)
    if as_nobody('test', '-r', path).returncode or as_nobody(ACCT, '--version').returncode:
        pytest.skip('another user cannot reach the build folder or the temporary folder')
    r = as_nobody(ACCT, 'report', '--format', 'json', path)
    os.chmod(tmp_path, 0o755)
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)['totals']['allocations'] == 1
    assert open(path, 'rb').read() == before


# ---- output and bad input ------------------------------------------------------------------------------------------------------

def test_out_is_replaced_only_by_a_whole_report(tmp_path):
    good, out = simple(tmp_path / 'a.db').close(), tmp_path / 'out.json'
    r = run(ACCT, 'report', '--format', 'json', '-o', out, good)
    assert (r.returncode, r.stdout) == (0, '')
    first = out.read_text()
    assert json.loads(first)['schema'] == 1
    assert run(ACCT, 'report', '-o', out, good, tmp_path / 'none.db').returncode == 1
    assert out.read_text() == first and sorted(p.name for p in tmp_path.iterdir()) == ['a.db', 'out.json']
    assert run(ACCT, 'report', '-o', out, good).returncode == 0
    assert out.read_text() == text(good)


def bad_files(tmp_path):
    whole = simple(tmp_path / 'whole.db').close()
    data = open(whole, 'rb').read()
    cases = {'missing': None, 'empty': b'', 'text': b'hello\n' * 100, 'truncated': data[:len(data) // 2], 'head': data[:50]}
    for name, content in cases.items():
        p = tmp_path / name
        if content is not None:
            p.write_bytes(content)
        yield p
    newer = tmp_path / 'newer'
    t = Trace(newer)
    t.meta(schema_version=99)
    t.close()
    yield newer
    other = tmp_path / 'other'
    db = sqlite3.connect(other)
    db.execute('CREATE TABLE x(a)')
    db.commit()
    db.close()
    yield other
    yield tmp_path
    garbled = tmp_path / 'garbled'
    garbled.write_bytes(data[:4096] + bytes(random.Random(1).randrange(256) for _ in range(len(data) - 4096)))
    yield garbled


@pytest.mark.parametrize('command', ['report', 'analyze', 'query'])
def test_bad_files_are_told_in_one_line(tmp_path, command):
    for path in bad_files(tmp_path):
        r = run(ACCT, command, path, *(['SELECT count(*) FROM op, alloc, step'] if command == 'query' else []))
        assert r.returncode == 1, (path, r)
        assert r.stdout == '' and r.stderr.count('\n') == 1 and r.stderr.startswith(f'acct {command}: ') and str(path) in r.stderr, (path, r)


def test_a_trace_that_may_not_be_read(tmp_path):
    path = simple(tmp_path / 'a.db').close()
    os.chmod(path, 0)
    for d in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(d, 0o755)
    if as_nobody(ACCT, '--version').returncode:
        pytest.skip('another user cannot reach the build folder')
    r = as_nobody(ACCT, 'report', path)
    assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and 'ermission' in r.stderr, r


def test_out_that_cannot_be_written(tmp_path):
    good = simple(tmp_path / 'a.db').close()
    for out in (tmp_path, tmp_path / 'no' / 'x', '/proc/x'):
        r = run(ACCT, 'report', '-o', out, good)
        assert r.returncode == 1 and r.stderr.count('\n') == 1 and str(out) in r.stderr, r
    with open('/dev/full', 'w') as full:
        r = run(ACCT, 'report', good, stdout=full)
    assert r.returncode == 1 and r.stderr.count('\n') == 1 and 'stdout' in r.stderr
