"""Faults that other tools had with utilisation and times: what was seen there, and the right value here. The figures are those of the
reports; peaks are the data sheets' dense ones."""
import json, os, sqlite3, statistics
import pytest
from conftest import BUILD, run
from device_trace import BASE, DeviceTrace
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')


def view(command, *args):
    r = run(ACCT, command, '--format', 'json', *args)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def one_step(path, device, products, seconds, *args, tokens=None, micro_batches=1):
    """A step of that time with these products [(dtype, FLOPs) or (dtype, FLOPs, phase)]; its row in the report."""
    t, ns = DeviceTrace(path, name=device), int(seconds * 1e9)
    for i, (dtype, flops, *phase) in enumerate(products):
        pieces = max(1, -(-flops // 2**62)) # an op's FLOPs are 64 bits
        for j in range(pieces):
            a, b = ns * (i * pieces + j) // (len(products) * pieces), ns * (i * pieces + j + 1) // (len(products) * pieces)
            t.call('gemm', (a - 1000, a - 500), [(a, b)], flops=flops // pieces, dtype=dtype, bytes=1, phase=phase[0] if phase else 'forward')
    t.steps(ns, tokens=tokens, micro_batches=micro_batches)
    return view('report', *args, t.close())


# ---- mfu/sparsity peak: 1979 TFLOP/s is with 2:4 sparsity (25) ----
@pytest.mark.parametrize('device,achieved,mfu', [('NVIDIA H200', 420e12, 0.424), ('NVIDIA H100 80GB HBM3', 480e12, 0.485)])
def test_the_dense_peak(tmp_path, device, achieved, mfu):
    s = one_step(tmp_path / 't.db', device, [('bf16', int(achieved))], 1)['steps'][0]
    assert round(s['mfu'], 3) == pytest.approx(mfu, abs=0.0011) and s['mfu'] == pytest.approx(achieved / 989.4e12)


# ---- mfu/sparsity peak RTX 5090: 39.0 % printed, 78.1 % real (26) ----
def test_the_peak_with_fp32_accumulation(tmp_path):
    n, layers, width, context, tokens, seconds = 124475904, 12, 768, 1024, 524288, 2.57563
    flops = (6 * n + 6 * layers * width * context) * tokens
    assert flops == 421254150488064
    d = one_step(tmp_path / 't.db', 'NVIDIA GeForce RTX 5090', [('bf16', flops)], seconds)
    assert d['steps'][0]['mfu'] == pytest.approx(0.7807, abs=1e-4) and d['run']['flops_per_s']['median'] == pytest.approx(163.55e12, rel=1e-4)


# ---- mfu/TF32 vs BF16 peak: the peak of the format that the products ran in (29) ----
@pytest.mark.parametrize('dtype,mfu', [('bf16', 0.4043), ('tf32', 0.8086), ('fp32', 5.979)])
def test_the_peak_is_of_the_products_format(tmp_path, dtype, mfu):
    d = one_step(tmp_path / 't.db', 'NVIDIA H100 80GB HBM3', [(dtype, 400 * 10**12)], 1)
    assert d['steps'][0]['mfu'] == pytest.approx(mfu, abs=1e-3)
    assert any(n.startswith('Warning: a step reached 597.9 % of the peak') for n in d['notes']) == (dtype == 'fp32')


# ---- mfu/FP8 and mixed: two peaks in one step (30) ----
def test_time_at_the_peaks(tmp_path):
    path = tmp_path / 't.db'
    d = one_step(path, 'NVIDIA H100 80GB HBM3', [('fp8', 6 * 10**15, 'forward'), ('bf16', 2 * 10**15, 'backward')], 10)
    assert d['steps'][0]['mfu'] == pytest.approx(0.5053, abs=1e-4) # not 0.8085, which is by bf16's peak alone
    s = view('steps', path)['steps'][0]
    assert s['peak_ns'] == pytest.approx((6e15 / 1978.9e12 + 2e15 / 989.4e12) * 1e9)
    phases = {p['name']: p for p in s['phases']}
    assert phases['forward']['hfu'] == pytest.approx(6e15 / 1978.9e12 / 5) and phases['backward']['hfu'] == pytest.approx(2e15 / 989.4e12 / 5)
    assert {a['format'] for a in view('steps', '--why', path)['time_split']['at_peak']} == {'fp8', 'bf16'}


# ---- mfu/unknown GPU: no silent fallback, no likeness of names (31) ----
def test_an_unknown_device_has_no_peak(tmp_path):
    d = one_step(tmp_path / 't.db', 'NVIDIA RTX A2000 12GB', [('bf16', 10**13)], 1)
    s = d['steps'][0]
    assert s['mfu'] is None and s['hfu'] is None and set(d['device']['peak_flops'].values()) == {None}
    assert d['run']['flops_per_s']['median'] == pytest.approx(1e13) # the rate is known
    assert any('peak unknown' in n and '--peak-tflops' in n for n in d['notes'])
    given = view('report', '--peak-tflops', 'bf16=63.9', tmp_path / 't.db')
    assert given['steps'][0]['mfu'] == pytest.approx(10 / 63.9)


def test_an_a10_is_no_a100(tmp_path):
    a10 = one_step(tmp_path / 'a.db', 'NVIDIA A10', [('bf16', 10**13)], 1)['steps'][0]['mfu']
    a100 = one_step(tmp_path / 'b.db', 'NVIDIA A100-SXM4-80GB', [('bf16', 10**13)], 1)['steps'][0]['mfu']
    assert (a10, a100) == (pytest.approx(10 / 125), pytest.approx(10 / 312))
    assert one_step(tmp_path / 'c.db', 'NVIDIA A100', [('bf16', 10**13)], 1)['steps'][0]['mfu'] is None


# ---- mfu/recompute: MFU leaves recomputation out, HFU has it (32; the amounts of the recording) ----
def test_recomputation(tmp_path):
    forward, recomputed, backward = 36271226880, 33910947840, 106484121600 - 36271226880
    d = one_step(tmp_path / 't.db', 'NVIDIA H100 80GB HBM3', [('bf16', forward, 'forward'), ('bf16', recomputed, 'recompute'), ('bf16', backward, 'backward')], 1e-3)
    s = d['steps'][0]
    assert s['flops']['gemm'] == 140395069440 and s['flops']['gemm'] - s['flops']['recompute'] == 106484121600
    assert s['hfu'] / s['mfu'] == pytest.approx(1.3185, abs=1e-4) and s['mfu'] == pytest.approx(106484121600 / 989.4e12 / 1e-3)


# ---- mfu/gradient accumulation: all micro-batches are in the step (33) ----
def test_tokens_of_all_micro_batches(tmp_path):
    path = tmp_path / 't.db'
    tokens = 32 * 2048 * 4 # of one of the 8 devices
    d = one_step(path, 'NVIDIA H100 80GB HBM3', [('bf16', 10**15, 'forward')] * 4, 2.0, tokens=tokens, micro_batches=4)
    s = view('steps', path)['steps'][0]
    assert s['tokens'] == tokens and s['micro_batches'] == 4 and s['tokens_per_s'] == 1048576 / 8 # not a quarter of it
    assert d['steps'][0]['flops']['gemm'] == 4 * 10**15


# ---- mfu/EMA in logs: rates are the step's own (34) ----
def test_rates_are_not_smoothed(tmp_path):
    t, ends, now = DeviceTrace(tmp_path / 't.db'), [], 0
    for ms in (3000.0, 2600.0, 2590.0, 2494.63):
        t.call('gemm', (now, now + 1), [(now + 2, now + int(ms * 1e6))], step=len(ends), flops=10**15, dtype='bf16', bytes=1)
        now += int(ms * 1e6)
        ends.append(now)
    t.steps(*ends, tokens=524288)
    d = view('steps', t.close())
    assert round(d['steps'][3]['tokens_per_s']) == 210167 and [s['time_ns'] for s in d['steps']] == [3 * 10**9, 26 * 10**8, 259 * 10**7, 2494630000]
    assert d['run']['step_ns']['median'] == statistics.median([2600e6, 2590e6, 2494.63e6])


# ---- mfu/Megatron throughput (35): the formula, and what a device's share of it makes ----
def test_megatrons_throughput(tmp_path):
    layers, h, ff, vocabulary, s, batch, devices, ms = 24, 2048, 8192, 50304, 4096, 1008, 252, 1457.9
    flops = 12 * batch * s * layers * h * h * ((1 + 1 + s / h) + 1.5 * ff / h + vocabulary / (2 * layers * h))
    assert int(flops) == 52425985722679296
    d = one_step(tmp_path / 't.db', 'NVIDIA H100 80GB HBM3', [('bf16', int(flops) // devices)], ms / 1e3)
    assert d['run']['flops_per_s']['median'] == pytest.approx(142.698e12, rel=1e-4)
    assert d['steps'][0]['mfu'] == pytest.approx(0.14423, abs=1e-4)


# ---- time/overlap: the sum over streams is no busy time (36) ----
def test_overlap_counts_once(tmp_path):
    """Span 2008.6 ms, sum 2260.3 ms, idle 30.3 ms."""
    t, us = DeviceTrace(tmp_path / 't.db'), 1000
    t.call('gemm', (0, 1), [(0, 978_300 * us)], flops=10**12, dtype='bf16', bytes=1)
    t.call('gemm', (1, 2), [(1_008_600 * us, 2_008_600 * us)], flops=10**12, dtype='bf16', bytes=1)
    t.call('gemm', (2, 3), [(500_000 * us, 782_000 * us)], flops=10**12, dtype='bf16', bytes=1) # beside the first
    t.steps(2_008_600 * us)
    d = view('report', t.close())
    x = d['device_time']
    assert (x['span_ns'], x['sum_ns'], x['idle_ns']) == (2_008_600_000, 2_260_300_000, 30_300_000)
    assert round(x['busy_share'], 3) == 0.985 and x['busy_ns'] == 1_978_300_000
    row = view('steps', tmp_path / 't.db')['steps'][0]
    assert (row['busy_ns'], row['sum_ns']) == (1_978_300_000, 2_260_300_000) and round(row['busy_share'], 3) == 0.985
    text = run(ACCT, 'report', tmp_path / 't.db').stdout
    assert 'sum over streams' in text and '112.5' not in text


# ---- traces whose times the analysis ties to calls --------------------------------------------------------------------------------

def tied(m, i, external, correlation, start, end, **kw):
    m.correlation(correlation, external)
    m.activity(correlation, start, end, **kw)


def products(path, n=4, at=BASE):
    """n products, each with an activity of 1000 ns at `at` + 2000 i."""
    m = Maker(path, device_name='NVIDIA H100 80GB HBM3')
    m.alloc(0x10000, 4096)
    for i in range(n):
        g = m.gemm(m=8, n=8, k=8, a=0x10000, b=0x10100, c=0x10200 + 256 * i, lda=8, ldb=8, ldc=8, external=i + 1)
        tied(m, g, i + 1, i + 1, at + 2000 * i, at + 2000 * i + 1000)
    return m


def finish(m):
    m.db.execute("UPDATE device SET clock = 'gpu'")
    return m.close()


# ---- time/ts 0 and negative duration (39) ----
def test_records_without_a_time_are_left_out(tmp_path):
    m = products(tmp_path / 't.db', 2)
    m.correlation(50, 1) # more records of the first call: not collected, and an end that was never written
    m.correlation(51, 2)
    m.activity(50, 0, 0)
    m.activity(51, BASE + 9000, 0)
    m.activity(51, BASE + 9000, BASE + 8000)
    m.activity(51, None, None)
    d = view('report', finish(m))
    x = d['device_time']
    assert (x['unusable'], x['activities'], x['span_ns'], x['busy_ns'], x['sum_ns']) == (4, 2, 3000, 2000, 2000) # no 51 years
    assert d['functions'][0]['time_ns'] == 2000 and d['functions'][0]['timed'] == 2
    assert any('4 activity records tell no time' in n for n in d['notes'])
    assert sqlite3.connect(tmp_path / 't.db').execute('SELECT start_ns, busy_ns, activities FROM op_time ORDER BY op').fetchall() == [(BASE, 1000, 1), (BASE + 2000, 1000, 1)]


# ---- time/ns precision: 2^53 ns is no limit (40) ----
def test_nanoseconds_since_1970_keep_all_digits(tmp_path):
    at = 1623142623460172001 # a double would make it …172032
    m = products(tmp_path / 't.db', 3, at)
    assert float(at) != at
    d = view('report', finish(m))
    assert (d['device_time']['span_ns'], d['device_time']['busy_ns']) == (5000, 3000)
    rows = view('ops', '--all', tmp_path / 't.db')['ops']
    assert [o['start_ns'] for o in rows] == [at, at + 2000, at + 4000] and [o['time_ns'] for o in rows] == [1000] * 3
    csv = run(ACCT, 'ops', '--all', '--format', 'csv', tmp_path / 't.db').stdout
    assert str(at + 4000) in csv


def test_steps_since_1970_keep_all_digits(tmp_path):
    at = 1623142623460172001 - BASE
    t = DeviceTrace(tmp_path / 't.db')
    t.call('gemm', (at - 9, at - 8), [(at + 1, at + 592_000_001)], flops=10**12, dtype='bf16', bytes=1)
    t.db.execute("INSERT INTO step(id, start_ns, end_ns, micro_batches, complete, device_start_ns, device_end_ns) VALUES(0, ?1, ?2, 1, 1, ?1, ?2)", (BASE + at, BASE + at + 592_000_001))
    s = view('steps', '--why', t.close())
    assert s['steps'][0]['time_ns'] == 592_000_001 == sum(s['steps'][0]['parts_ns'].values()) and s['steps'][0]['busy_ns'] == 592_000_000


# ---- time/dropped kernels: what has no launch record is of no step, and said (41) ----
def test_kernels_without_a_launch_record(tmp_path):
    m = products(tmp_path / 't.db', 3)
    m.activity(900, BASE - 6000, BASE - 5500) # before the window began
    m.activity(901, BASE - 5000, BASE - 4500)
    d = view('report', finish(m))
    x = d['device_time']
    assert (x['activities'], x['unattributed'], x['unattributed_ns'], x['sum_ns']) == (5, 2, 1000, 4000)
    assert any(n.startswith('2 of 5 kernels, copies and memsets, 25.0 % of the device') for n in d['notes'])
    assert sum(f['time_ns'] or 0 for f in d['functions']) == 3000 # by launch, not by time
    assert d['totals']['counted_time_share'] == 0.75


# ---- time/nsys join: correlation ids are a process' own (42) ----
def test_correlations_are_a_process_own(tmp_path):
    m = products(tmp_path / 't.db', 3)
    m.db.execute("INSERT INTO process(id, pid, start_ns, exe, argv, environment) VALUES(2, 101, 0, '/bin/other', '[]', '{}')")
    for i in range(3): # the other process' kernels have the same ids
        m.activity(i + 1, BASE + 2000 * i + 100, BASE + 2000 * i + 800)
        m.rows['activity'][-1] = (None, 2) + m.rows['activity'][-1][2:]
    d = view('report', finish(m))
    assert d['functions'][0]['time_ns'] == 3000 and d['functions'][0]['calls'] == 3
    assert (d['device_time']['activities'], d['device_time']['unattributed'], d['device_time']['unattributed_ns']) == (6, 3, 2100)
    db = sqlite3.connect(tmp_path / 't.db')
    assert db.execute('SELECT count(*), sum(activities) FROM op_time').fetchone() == (3, 3)
    assert db.execute('SELECT count(*) FROM op_piece WHERE op IS NULL').fetchone() == (3,)
