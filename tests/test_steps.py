"""acct steps: where a step's time goes. Expected values are worked out by hand from the times put in, or by a plain look at each
nanosecond; on a real run of the virtual GPU the parts must sum to the step's time."""
import json, os, random, sqlite3
import pytest
from conftest import BUILD, DEVICE, run
from device_trace import BASE, DeviceTrace

ACCT = os.path.join(BUILD, 'acct')
BF16, FP32, BANDWIDTH = 989.4e12, 66.9e12, 3350e9 # H100 SXM, ACCOUNTING section 9


def steps(*args, code=0):
    r = run(ACCT, 'steps', '--format', 'json', *args)
    assert r.returncode == code, r.stderr
    return json.loads(r.stdout) if not code else r.stderr


def details(split):
    return {d['name']: d for p in split['parts'] for d in p['details']}


def part(split, name):
    return next(p for p in split['parts'] if p['name'] == name)


def by_hand(path):
    """One step of 1 ms with every kind of time in it; see test_each_part_by_hand for who gets what."""
    t = DeviceTrace(path)
    k = 1000
    t.call('gemm', (-50 * k, -40 * k), [(0, 200 * k)], flops=int(BF16 * 100e-6), dtype='bf16', bytes=1000)
    t.call('launch', (-40 * k, -30 * k), [(200 * k, 300 * k)], flops=5, dtype='fp32', bytes=int(BANDWIDTH * 50e-6), kernel='elementwise')
    t.call('launch', (250 * k, 305 * k), [(310 * k, 311 * k)], flops=5, dtype='fp32', bytes=1000, kernel='tiny', phase='backward')
    t.call('copy', (401 * k, 409 * k), [(411 * k, 511 * k)], moved=2_500_000, act='h2d', phase=None)
    t.call('gemm', (410 * k, 412 * k), [(461 * k, 561 * k)], flops=int(FP32 * 50e-6), dtype='fp32', bytes=1000, phase='backward')
    t.call('sync', (560 * k, 590 * k))
    t.call('launch', (591 * k, 599 * k), [(601 * k, 651 * k)], flops=0, bytes=1000, kernel='_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE', phase='backward')
    t.call('launch', (600 * k, 605 * k), [(631 * k, 651 * k)], flops=0, dtype='fp32', bytes=int(BANDWIDTH * 10e-6), kernel='copying', phase='optimizer')
    t.call('alloc', (652 * k, 670 * k))
    t.call('copy', (671 * k, 680 * k), [(681 * k, 700 * k)], moved=1900, act='d2h', phase=None)
    t.call('launch', (685 * k, 690 * k), [(750 * k, 800 * k)], flops=None, bytes=None, kernel='closed')
    t.stray(800 * k, 850 * k)
    t.call('gemm', (691 * k, 692 * k), [(850 * k, 900 * k)], flops=10**6, dtype='bf16', bytes=10, phase='evaluation')
    t.call('memset', (692 * k, 693 * k), [(900 * k, 950 * k)], moved=int(BANDWIDTH * 25e-6), phase=None)
    t.call('gemm', (693 * k, 694 * k), [(950 * k, 970 * k), (980 * k, 1000 * k)], flops=int(FP32 * 30e-6), dtype='fp32', bytes=10, phase='backward')
    t.steps(1000 * k, tokens=512)
    return t.close()


def test_each_part_by_hand(tmp_path):
    d = steps('--why', by_hand(tmp_path / 't.db'))
    s, k = d['time_split'], 1000
    assert (s['step'], s['clock'], s['time_ns']) == (0, 'gpu', 1000 * k)
    assert {p['name']: p['ns'] // k for p in s['parts']} == {
        'compute': 200 + 100 + 40,
        'memory': 100 + 20,                       # 20 beside the collective, which gets less
        'launch': 13 + 20 + 3 + 1,                # in calls, latency, between calls, a tiny kernel: as below
        'copies': 50 + 19 + 50 + 8 + 9,           # 50 of the first copy lie beside a product; 17 in calls that copy
        'communication': 30, 'outside': 50, 'unknown': 50 + 50, 'idle': 90 + 29 + 18 + 50}
    assert sum(p['ns'] for p in s['parts']) == 1000 * k == sum(d['steps'][0]['parts_ns'].values())
    x = details(s)
    assert sum(v['ns'] for v in x.values()) == 1000 * k
    assert {n: v['ns'] // k for n, v in x.items()} == {
        'products_bf16': 200, 'products_fp32': 140, 'kernels_by_memory': 120, 'tiny_kernels': 1,
        'launch_calls': 5 + 8,                  # 300..305, 591..599
        'launch_latency': 5 + 2 + 2 + 1 + 10,   # 305..310, 409..411, 599..601, 680..681, between the pieces of one call
        'between_calls': 1 + 1 + 1,             # 590..591, 651..652, 670..671
        'copy_calls': 8 + 9,                    # 401..409, 671..680
        'host_elsewhere': 90, 'waiting_calls': 29, 'allocation_calls': 18, 'work_queued': 50,
        'h2d': 50, 'd2h': 19, 'memset': 50, 'collectives': 30, 'outside_of_steps': 50, 'uncounted_kernels': 50, 'kernels_of_no_call': 50}


def test_the_roof_of_each_part_by_hand(tmp_path):
    s = steps('--why', by_hand(tmp_path / 't.db'))['time_split']
    x = details(s)
    assert x['products_bf16']['roof_ns'] == pytest.approx(100e3, rel=1e-6) and x['products_bf16']['device_ns'] == 200e3
    assert x['products_fp32']['roof_ns'] == pytest.approx(80e3, rel=1e-6) and x['products_fp32']['count'] == 2
    assert x['kernels_by_memory']['roof_ns'] == pytest.approx(60e3, rel=1e-6) and x['kernels_by_memory']['device_ns'] == 120e3
    assert x['memset']['roof_ns'] == pytest.approx(25e3, rel=1e-6)
    assert x['h2d']['device_ns'] == 100e3 and x['h2d']['bytes'] == 2_500_000 and '25 GB/s' in x['h2d']['words']
    assert x['uncounted_kernels']['roof_ns'] is None and x['collectives']['roof_ns'] is None
    compute, memory = part(s, 'compute'), part(s, 'memory')
    assert compute['roof_ns'] == pytest.approx(180e3, abs=2) and compute['roof_ns'] + compute['excess_ns'] == compute['ns'] == 340e3
    assert memory['roof_ns'] == pytest.approx(60e3, abs=2) and memory['excess_ns'] == 120e3 - memory['roof_ns']
    assert 'roof_ns' not in part(s, 'idle')


def test_phases_and_busy_time_by_hand(tmp_path):
    d = steps('--why', by_hand(tmp_path / 't.db'))
    row, k = d['steps'][0], 1000
    # busy: all but the gaps 300..310, 311..411, 561..601, 651..681, 700..750, 970..980
    assert row['busy_ns'] == 1000 * k - (10 + 100 + 40 + 30 + 50 + 10) * k
    assert row['sum_ns'] == row['busy_ns'] + 50 * k + 20 * k # what ran beside other work
    phases = {p['name']: p['ns'] // k for p in d['time_split']['phases']}
    # a gap is of what ended it: 10 and the tiny kernel, 561..601 and the collective, the pieces: backward; the kernel that was queued: forward
    assert phases == {'forward': 300 + 50 + 50, 'backward': 10 + 1 + 100 + 40 + 30 + 40 + 10, 'optimizer': 20,
                      'evaluation': 50, 'none': 100 + 50 + 30 + 19 + 50 + 50}
    assert sum(phases.values()) == 1000
    forward = next(p for p in row['phases'] if p['name'] == 'forward')
    assert forward['gemm_flops'] == int(BF16 * 100e-6) and forward['peak_ns'] == pytest.approx(100e3, rel=1e-6) and forward['hfu'] == pytest.approx(0.25, rel=1e-6)
    backward = next(p for p in row['phases'] if p['name'] == 'backward')
    assert backward['peak_ns'] == pytest.approx(80e3, rel=1e-6) and backward['hfu'] == pytest.approx(80 / 231, rel=1e-6)
    # two formats: time at the peaks by the step's
    assert row['mfu'] == pytest.approx(0.18, rel=1e-6) and row['peak_ns'] == pytest.approx(180e3, rel=1e-6)
    assert d['time_split']['peak_ns'] == pytest.approx(180e3, rel=1e-6)
    assert {a['format']: a['flops'] for a in d['time_split']['at_peak']} == {'bf16': int(BF16 * 100e-6), 'fp32': int(FP32 * 50e-6) + int(FP32 * 30e-6)}
    assert row['tokens_per_s'] == pytest.approx(512 / 1e-3) and row['found_by'] == 'update' and row['complete'] is True


def test_advice_names_what_dominates(tmp_path):
    a = steps('--why', by_hand(tmp_path / 't.db'))['time_split']['advice']
    assert len(a) == 1 and a[0].startswith('34 % of the time is bound by compute, at 53 % of the peak') and '14.8 times' not in a[0]
    t = DeviceTrace(tmp_path / 'idle.db')
    t.call('gemm', (0, 1000), [(0, 10_000)], flops=10**6, dtype='fp32', bytes=10)
    t.call('gemm', (900_000, 901_000), [(902_000, 1_000_000)], flops=int(FP32 * 80e-6), dtype='fp32', bytes=10)
    t.steps(1_000_000)
    a = steps('--why', t.close())['time_split']['advice']
    assert len(a) == 1 and a[0].startswith('89 % of the time the device has nothing to do')
    t = DeviceTrace(tmp_path / 'above.db')
    t.call('gemm', (0, 1000), [(0, 100_000)], flops=int(FP32 * 300e-6), dtype='fp32', bytes=10)
    t.steps(100_000)
    a = steps('--why', t.close())['time_split']['advice']
    assert len(a) == 1 and a[0].startswith('100 % of the time is bound by compute, at 300 % of the peak: that peak is too low')


def test_text_shows_the_same(tmp_path):
    r = run(ACCT, 'steps', '--why', by_hand(tmp_path / 't.db'))
    assert r.returncode == 0, r.stderr
    for line in ('compute 34.0 %', 'products at the peak', '98.9 GFLOP / 989.4 TFLOP/s = 100.0', 'idle 18.7 %', 'unknown 10.0 %', 'took 100.000 us, 50.000 us of it beside other work: 25 GB/s'):
        assert line in r.stdout, (line, r.stdout)
    report = run(ACCT, 'report', tmp_path / 't.db').stdout
    assert 'compute 34.0 %' in report and 'Advice' in report


# ---- a plain look at each nanosecond --------------------------------------------------------------------------------------------

ORDER = ['products_bf16', 'kernels_by_memory', 'uncounted_kernels', 'outside_of_steps', 'h2d', 'd2h', 'memset'] # who wins where they overlap


def random_trace(path, rnd):
    t, items, calls, now = DeviceTrace(path, clock='cpu'), [], {1: [], 2: []}, {1: 0, 2: 0}
    for _ in range(40):
        thread = rnd.choice((1, 1, 2))
        host = now[thread] + rnd.randrange(0, 120), 0
        host = host[0], host[0] + rnd.randrange(1, 40)
        now[thread] = host[1]
        kind = rnd.choice(['product', 'product', 'memory', 'closed', 'evaluation', 'h2d', 'd2h', 'memset', 'sync', 'alloc'])
        start = host[0] + rnd.randrange(1, 80)
        device = [(start, start + rnd.randrange(1, 60))]
        if kind in ('sync', 'alloc'):
            t.call(kind, host, thread=thread)
            calls[thread].append((*host, kind))
            continue
        if kind == 'product' and rnd.random() < 0.4:
            device.append((device[0][1] + rnd.randrange(0, 50), device[0][1] + 50 + rnd.randrange(1, 50)))
        phase = rnd.choice(['forward', 'backward'])
        common = dict(thread=thread, phase='evaluation' if kind == 'evaluation' else phase)
        if kind in ('product', 'evaluation'):
            t.call('gemm', host, device, flops=10**9, dtype='bf16', bytes=1, **common)
        elif kind in ('memory', 'closed'):
            t.call('launch', host, device, flops=None if kind == 'closed' else 1, dtype='fp32', bytes=10**6, kernel=kind, **common)
        elif kind == 'memset':
            t.call('memset', host, device, moved=10, **common)
        else:
            t.call('copy', host, device, moved=10, act=kind, **common)
        name = {'product': 'products_bf16', 'memory': 'kernels_by_memory', 'closed': 'uncounted_kernels', 'evaluation': 'outside_of_steps'}.get(kind, kind)
        calls[thread].append((*host, 'copy' if kind in ('h2d', 'd2h') else 'launch'))
        items += [(s, e, name, common['phase'], thread, host) for s, e in device]
    return t, items, calls


def gap_detail(ns, nxt, gap, calls):
    """Who has a nanosecond in which the device did nothing."""
    _, _, _, _, thread, host = nxt
    given = min(host[1], gap[1])
    if ns >= max(given, gap[0]):
        return 'launch_latency' # here no gap is longer than a launch may take
    for i, (a, b, kind) in enumerate(calls[thread]):
        if a <= ns < b:
            return {'copy': 'copy_calls', 'launch': 'launch_calls', 'sync': 'waiting_calls', 'alloc': 'allocation_calls'}[kind]
    before = [c for c in calls[thread] if c[1] <= ns]
    after = [c for c in calls[thread] if c[0] > ns]
    return 'between_calls' if before and after and after[0][0] - before[-1][1] <= 50_000 else 'host_elsewhere'


def plain(items, calls, start, end):
    detail, phases, busy = {}, {}, 0
    moments = [None] * (end - start)
    for ns in range(start, end):
        running = [i for i in items if i[0] <= ns < i[1]]
        if running:
            moments[ns - start] = min(running, key=lambda i: (ORDER.index(i[2]), i[0]))
    for ns in range(start, end):
        who = moments[ns - start]
        if who:
            busy += 1
            name, phase = who[2], who[3]
        else:
            later = [i for i in items if i[0] > ns]
            nxt = min(later, key=lambda i: i[0], default=None)
            if nxt is None:
                name, phase = 'unexplained_gaps', 'none'
            else:
                a = max([start] + [i[1] for i in items if i[1] <= ns])
                name, phase = gap_detail(ns, nxt, (a, min(nxt[0], end)), calls), nxt[3]
        detail[name] = detail.get(name, 0) + 1
        phases[phase] = phases.get(phase, 0) + 1
    return detail, phases, busy


@pytest.mark.parametrize('seed', range(6))
def test_agrees_with_a_look_at_each_nanosecond(tmp_path, seed):
    rnd = random.Random(seed)
    t, items, calls = random_trace(tmp_path / 't.db', rnd)
    last = max(e for _, e, *_ in items)
    ends = (last // 3, last // 2, last)
    t.steps(*ends)
    d = steps(t.close())
    for row, start, end in zip(d['steps'], (0,) + ends, ends):
        want, phases, busy = plain(items, calls, start, end)
        s = steps('--step', row['index'], tmp_path / 't.db')['time_split']
        got = {n: v['ns'] for n, v in details(s).items() if v['ns']}
        assert sum(got.values()) == end - start == row['time_ns'] == sum(row['parts_ns'].values())
        assert row['busy_ns'] == busy
        assert got == want, (seed, row['index'])
        assert {p['name']: p['ns'] for p in s['phases'] if p['ns']} == phases


# ---- other clocks ----------------------------------------------------------------------------------------------------------------

def test_a_models_gaps_are_launches(tmp_path):
    t = DeviceTrace(tmp_path / 't.db', clock='model')
    t.call('gemm', (0, 1), [(2000, 3000)], flops=int(FP32 * 1e-6), dtype='fp32', bytes=1)
    t.call('gemm', (1, 2), [(10_000, 11_000)], flops=int(FP32 * 1e-6), dtype='fp32', bytes=1)
    t.steps(11_000)
    s = steps('--why', t.close())['time_split']
    x = details(s)
    assert s['clock'] == 'model' and x['launch_latency']['ns'] == 2000 + 2000 and x['unexplained_gaps']['ns'] == 5000 and x['products_fp32']['ns'] == 2000
    assert x['products_fp32']['roof_ns'] == pytest.approx(2000, rel=1e-3)


def test_without_device_times_the_host_is_split(tmp_path):
    t = DeviceTrace(tmp_path / 't.db')
    for kind, host in (('launch', (0, 100)), ('copy', (150, 250)), ('alloc', (240, 300)), ('sync', (400, 900)), ('gemm', (880, 950))):
        t.call(kind, host, flops=10**6 if kind == 'gemm' else 0, dtype='fp32', thread=2 if kind == 'alloc' else 1)
    t.steps(1000, device=False)
    d = steps('--why', t.close())
    s = d['time_split']
    # of two threads' calls at a time the first in the list counts
    assert {h['name']: h['ns'] for h in s['host']} == {'launching': 100 + 70, 'copying': 100, 'allocating': 50, 'waiting': 480, 'other': 0, 'outside': 50 + 100 + 50}
    assert sum(h['ns'] for h in s['host']) == s['time_ns'] == 1000 and s['clock'] == 'host' and s['parts'] == [] and s['busy_ns'] is None
    row = d['steps'][0]
    assert row['busy_ns'] is None and row['busy_share'] is None and set(row['parts_ns'].values()) == {None} and row['time_ns'] == 1000
    assert row['mfu'] == pytest.approx(10**6 / FP32 / 1e-6)
    text = run(ACCT, 'steps', '--why', tmp_path / 't.db').stdout
    assert 'nobody knows what the device did' in text


def test_a_device_without_bandwidth(tmp_path):
    """What bounds a product cannot be told; its time at the peak can."""
    t = DeviceTrace(tmp_path / 't.db', name='none of ours')
    t.call('gemm', (0, 1), [(0, 10_000)], flops=10**9, dtype='fp32', bytes=10)
    t.call('launch', (1, 2), [(10_000, 20_000)], flops=10**6, dtype='fp32', bytes=10, kernel='k')
    t.steps(20_000)
    s = steps('--why', '--peak-tflops', '200', t.close())['time_split']
    x = details(s)
    assert x['products_without_roof']['ns'] == 10_000 and x['products_without_roof']['roof_ns'] == pytest.approx(5000)
    assert x['kernels_without_roof']['roof_ns'] is None and part(s, 'unknown')['ns'] == 20_000
    s = steps('--why', tmp_path / 't.db')
    assert details(s['time_split'])['products_without_roof']['roof_ns'] is None and s['steps'][0]['mfu'] is None
    assert any('peak unknown' in n for n in s['notes'])


@pytest.mark.parametrize('name', ['_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE', '_Z32ncclKernel_AllReduce_RING_LL_Sum_f', 'ncclDevKernel_Broadcast', 'vgpu_nccl_all_reduce'])
def test_collectives_of_no_recorded_call(tmp_path, name):
    t = DeviceTrace(tmp_path / 't.db')
    t.call('gemm', (0, 1), [(0, 10_000)], flops=10**9, dtype='bf16', bytes=10)
    t.stray(5000, 20_000, name=name) # 5 beside the product
    t.steps(20_000)
    s = steps('--why', t.close())['time_split']
    assert part(s, 'communication')['ns'] == 10_000 and part(s, 'unknown')['ns'] == 0 and details(s)['collectives']['device_ns'] == 15_000


def test_peer_copies_and_graphs_of_no_recorded_call(tmp_path):
    t = DeviceTrace(tmp_path / 't.db')
    t.call('gemm', (0, 1), [(0, 10_000)], flops=10**9, dtype='bf16', bytes=10)
    t.stray(10_000, 13_000, kind='copy', copy_kind=10) # peer to peer
    t.stray(13_000, 15_000, kind='copy', copy_kind=1)
    t.stray(15_000, 20_000, graph=77)
    for i, device in enumerate((1, 0, None)): # to another device, within this one, no peer copy
        op = t.call('copy', (0, 1), [(20_000 + 1000 * i, 21_000 + 1000 * i)], moved=10, act='d2d')
        t.db.execute('INSERT INTO copy(op, dst_device, src_device) VALUES(?, ?, ?)', (op, device, None if device is None else 0))
    t.steps(23_000)
    x = details(steps('--why', t.close())['time_split'])
    assert (x['peer_copies']['ns'], x['h2d']['ns'], x['graph_kernels']['ns'], x['d2d']['ns']) == (4000, 2000, 5000, 2000)


def test_no_steps_and_no_such_step(tmp_path):
    t = DeviceTrace(tmp_path / 'none.db')
    d = steps('--why', t.close())
    assert d['steps'] == [] and d['time_split'] is None
    assert 'no step 7: 1 step(s) were found' in steps('--step', '7', by_hand(tmp_path / 't.db'), code=1)
    assert '--step x' in steps('--step', 'x', tmp_path / 't.db', code=2)


# ---- a real run ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('profile', ['cpu', 'h100-sxm', 'off'])
def test_parts_of_a_real_run_sum_to_its_steps(tmp_path, profile):
    db = tmp_path / 't.db'
    env = {'ACCT_CUPTI': 'off'} if profile == 'off' else {}
    r = run(ACCT, 'run', '-o', db, '--vgpu' + ('' if profile == 'off' else f'={profile}'), '--', os.path.join(BUILD, 'train'), '--model', 'gpt', '--steps', '4', '--layers', '1',
            '--dim', '32', '--seq', '16', '--batch', '2', '--accum', '2', '--recompute', 'full', env=env)
    assert r.returncode == 0, r.stderr
    d = steps('--why', db)
    column = 'device_end_ns - device_start_ns' if profile != 'off' else 'end_ns - start_ns'
    con = sqlite3.connect(db)
    times = [r[0] for r in con.execute(f'SELECT {column} FROM step ORDER BY id')]
    assert [s['time_ns'] for s in d['steps']] == times and len(times) == 4
    split = d['time_split']
    if profile == 'off':
        assert sum(h['ns'] for h in split['host']) == split['time_ns']
        return
    for s in d['steps']:
        assert sum(s['parts_ns'].values()) == s['time_ns']
        # busy time and the sum over streams by SQL: no two activities of this program overlap but memsets
        a, b = con.execute('SELECT device_start_ns, device_end_ns FROM step WHERE id = ?', (s['index'],)).fetchone()
        want = con.execute('SELECT sum(min(end_ns, ?2) - max(start_ns, ?1)) FROM activity WHERE end_ns > ?1 AND start_ns < ?2', (a, b)).fetchone()[0]
        assert s['busy_ns'] <= want and s['busy_ns'] <= s['time_ns']
        assert sum(p['gemm_flops'] for p in s['phases']) == s['gemm_flops']
    assert sum(p['ns'] for p in split['phases']) == split['time_ns']
    assert {p['name'] for p in split['phases']} >= {'forward', 'backward', 'recompute', 'optimizer'}
