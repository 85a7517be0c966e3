"""Faults that other tools had with memory: each with the input that was reported, and the right value. The numbers are those of the
reports and of arithmetic on them (parameters x bytes), not this program's."""
import json, os, sqlite3
import pytest
from conftest import BUILD, run
from report_trace import Trace
from trace_maker import Maker

ACCT, CASES = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'tests', 'memory_cases')
MIB, GIB = 1 << 20, 1 << 30


def load(command, *args):
    r = run(ACCT, command, '--format', 'json', *args)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def query(db, sql, *args):
    with sqlite3.connect(f'file:{db}?mode=ro', uri=True) as d:
        return d.execute(sql, args).fetchall()


def meminfo(t, ns, why, used, total=12 * GIB, pool=None, reserved=None, pool_used=None):
    t.db.execute('INSERT INTO meminfo VALUES(NULL, 1, ?, ?, NULL, 0, ?, ?, ?, ?, ?)', (ns, why, total - used, total, pool, reserved, pool_used))


def case(name, tmp_path, device='h100-sxm'):
    db = tmp_path / 't.db'
    r = run(ACCT, 'run', f'--vgpu={device}', '-o', db, '--', CASES, name)
    assert r.returncode == 0, r.stderr
    return db


def parameters(t, n):
    """What the analysis tells of the model: how many elements its weights have."""
    t.db.execute("INSERT INTO model VALUES('parameters', ?, 'told by the test')", (n,))


# ---- 45 ------------------------------------------------------------------------------------------------------------------------
def test_45_the_first_products_workspace_is_no_leak(tmp_path):
    """Linear(1, 1) with CUBLAS_WORKSPACE_CONFIG :4096:2:16:8 = 2 x 4096 KiB + 8 x 16 KiB: workspace, whatever else has gone."""
    workspace = 2 * 4096 * 1024 + 8 * 16 * 1024
    m = Maker(str(tmp_path / 'a.db'))
    x, w, y, ws = 0x10000000, 0x20000000, 0x30000000, 0x40000000
    for address in (x, w):
        m.alloc(address, 512)
        m.copy('h2d', address, 0x7000, 4)
    m.alloc(y, 512)
    m.alloc(ws, workspace)
    m.workspace(ws, workspace)
    m.gemm(m=1, n=1, k=1, a=w, b=x, c=y, lda=1, ldb=1, ldc=1)
    m.copy('d2h', 0x7000, y, 4)
    for address in (x, w, y):
        m.free(address)
    db = m.close()
    (block,) = [b for b in load('memory', '--blocks', db)['blocks'] if b['block_bytes'] == workspace]
    assert workspace == 8519680 and (block['class'], block['free_ns']) == ('workspace', None)
    j = load('memory', db)
    assert j['memory']['at_peak']['workspace'] == 8519680 and j['memory']['at_peak']['activation'] <= 512 and j['growth']['sites'] == []


# ---- 46 ------------------------------------------------------------------------------------------------------------------------
def test_46_the_context_is_outside_every_allocator(tmp_path):
    """One tensor of 24 bytes: the allocator's piece is 2 MiB, all else that the device has in use is the context."""
    t, context = Trace(tmp_path / 'a.db'), 1005 * 10**6
    meminfo(t, 5, 'first use', context)
    t.alloc(24, 10, classes='param')
    meminfo(t, 20, 'release', context + 2 * MIB)
    m = load('memory', t.close())['reconciliation']
    assert (m['ours'], m['ours'] + m['pool_slack'], m['context'], m['unexplained']) == (24, 2 * MIB, context, 0)


def test_46_what_is_not_known_is_unexplained(tmp_path):
    """A log of llm.c: the parts sum up to 3225.4 MiB, the device has 3511 MiB in use, and nobody asked before: 285.6 MiB."""
    t, parts, used = Trace(tmp_path / 'a.db'), int(3225.4 * MIB), 3511 * MIB
    t.alloc(parts, 10, classes='activation')
    meminfo(t, 20, 'release', used)
    m = load('memory', t.close())['reconciliation']
    assert m['context'] is None and m['rounding_estimate'] == -parts % (2 * MIB)
    assert m['unexplained'] + m['rounding_estimate'] == used - parts == pytest.approx(285.6 * MIB, abs=1)


# ---- 48 ------------------------------------------------------------------------------------------------------------------------
def test_48_a_release_of_what_was_never_allocated(tmp_path):
    """The trace begins late: 438 releases of unknown blocks take nothing from what is known, and make no ghosts."""
    m = Maker(str(tmp_path / 'a.db'))
    m.alloc(0x10000000, 7000)
    for i in range(438):
        m.op('free', 'cudaFree', object=0x70000000 + 4096 * i)
    m.alloc(0x20000000, 500)
    m.free(0x10000000)
    db = m.close()
    j = load('memory', '--timeline', db)
    assert [(x['total_bytes']) for x in j['timeline']] == [7000, 7500, 500] and j['memory']['peak_bytes'] == 7500
    assert load('peak', db)['peak']['live_blocks'] == 2


# ---- 49, 50, 51, 53 --------------------------------------------------------------------------------------------------------------
def test_49_adams_state_appears_in_the_first_step(tmp_path):
    """2.7 B fp32: 13,628,553,216 bytes before the first step, 54,597,857,284 after it."""
    n, workspace, t = 3406809600, 33554432, Trace(tmp_path / 'a.db')
    before, after = 13628553216, 54597857284
    t.alloc(4 * n, 10, classes='param')
    rest = t.alloc(before - 4 * n, 11, classes='other')
    t.step(0, 100, 200, [('forward', 'fp32', 10, 1)])
    parameters(t, n)
    t.alloc(4 * n, 130, classes='grad')
    t.alloc(workspace, 131, classes='workspace')
    t.alloc(8 * n, 140, classes='optimizer')
    t.alloc(55349252 - (before - 4 * n), 150, classes='other')
    j = load('memory', '--timeline', '--estimate', t.close())
    (step,), e = j['steps'], j['estimate']
    assert [x['total_bytes'] for x in j['timeline'] if x['ns'] < 100][-1] == before and step['end_bytes'] == after and rest
    assert {c: b for c, b in step['at_end'].items() if b} == {'param': 13627238400, 'grad': 13627238400, 'optimizer': 27254476800, 'workspace': workspace, 'other': 55349252}
    assert (e['parameters'], e['recipe']['name'], e['recipe']['total']) == (n, 'fp32 Adam(W)', 16)
    assert all(x['gap_bytes'] == 0 for x in e['lines'] if x['class'] in ('param', 'grad', 'optimizer'))
    assert j['growth']['sites'] == [] # lazily made state is no leak


@pytest.mark.parametrize('to_none', [True, False])
def test_50_gradients_between_steps(tmp_path, to_none):
    """zero_grad(set_to_none): none at the start of a step, 1,692,733,440 bytes at its end; otherwise the same block lives on."""
    n, t = 423183360, Trace(tmp_path / 'a.db')
    t.alloc(12 * n, 10, classes=[(0, 4 * n, None, None, 'param'), (4 * n, 8 * n, None, None, 'optimizer')])
    if not to_none:
        t.alloc(4 * n, 20, classes='grad')
    for i in range(3):
        t.step(i, 100 * i + 100, 100 * i + 200, [('forward', 'fp32', 10, 1)])
        if to_none:
            t.alloc(4 * n, 100 * i + 150, 100 * i + 210, 'grad')
    j = load('memory', '--timeline', t.close())
    assert [s['at_end']['grad'] for s in j['steps']] == [1692733440] * 3
    starts = [x for x in j['timeline'] if x['ns'] in (210, 310)]
    assert [x['grad'] for x in starts] == ([0, 0] if to_none else [])
    assert {b['id'] for b in load('peak', '--step', 0, t.path)['blocks']} == {b['id'] for b in load('peak', '--step', 2, t.path)['blocks']} or to_none
    assert j['growth']['sites'] == [] and j['growth']['grows'] is None


def test_51_states_are_twice_the_gradients_where_weights_stay_fp32(tmp_path):
    """GPT-2 XL under autocast: gradients 6,230,444,800 bytes, states 12,460,889,600: the ratio 2 is right, 6 would need 16-bit gradients."""
    n, t = 1557611200, Trace(tmp_path / 'a.db')
    t.alloc(4 * n, 10, classes='param')
    t.alloc(6230444800, 20, classes='grad')
    t.alloc(12460889600, 30, classes='optimizer')
    parameters(t, n)
    e = load('memory', '--estimate', t.close())['estimate']
    assert (e['parameters'], e['recipe']['weights'], e['recipe']['grads'], e['recipe']['master'], e['recipe']['moments']) == (n, 4, 4, 0, 8)
    # and with 16-bit weights and gradients, and a master copy, the states are six times the gradients
    t = Trace(tmp_path / 'b.db')
    t.alloc(2 * n, 10, classes='param')
    t.alloc(2 * n, 20, classes='grad')
    t.alloc(12 * n, 30, classes='optimizer')
    parameters(t, n)
    k = load('memory', '--estimate', t.close())['estimate']['recipe']
    assert (k['weights'], k['grads'], k['master'], k['moments'], k['total']) == (2, 2, 4, 8, 16)


def test_53_gradients_are_not_one_a_parameter(tmp_path):
    """LoRA: gradients of 2,252,800 parameters only, and 8,192,000 bytes of gradient of the embeddings, which is an activation's. No recipe has that."""
    adapters = 22 * ((2048 * 16 + 16 * 2048) + (2048 * 16 + 16 * 256))
    base, t = 1100048384, Trace(tmp_path / 'a.db')
    t.alloc(4 * (base + adapters), 10, classes='param')
    t.alloc(4 * adapters, 20, classes='grad')
    t.alloc(1000 * 2048 * 4, 21, classes='activation_grad')
    t.alloc(8 * adapters, 30, classes='optimizer')
    parameters(t, base + adapters)
    db = t.close()
    at, e = load('peak', db)['peak']['at_peak'], load('memory', '--estimate', db)['estimate']
    assert adapters == 2252800 and (at['grad'], at['activation_grad']) == (9011200, 8192000) and at['grad'] + at['activation_grad'] == 17203200
    assert e['recipe']['name'] is None and e['recipe']['total'] is None and 'not every parameter has a gradient' in e['why_not']
    assert all(x['expected_bytes'] is None for x in e['lines'] if x['class'] in ('param', 'grad', 'optimizer', 'total'))


# ---- 57 ------------------------------------------------------------------------------------------------------------------------
def test_57_what_a_pool_holds_is_not_what_is_used(tmp_path):
    """1 GiB taken and given back: used 0, held 1 GiB, which the device lacks; then 512 MiB of it: used 512 MiB, held 1 GiB."""
    t, context = Trace(tmp_path / 'a.db'), 300 * MIB
    meminfo(t, 5, 'first use', context)
    t.alloc(GIB, 10, 20, 'activation', memory='async')
    meminfo(t, 30, 'release', context + GIB, pool=7, reserved=GIB, pool_used=0)
    t.alloc(512 * MIB, 40, classes='activation', memory='async')
    meminfo(t, 50, 'release', context + GIB, pool=7, reserved=GIB, pool_used=512 * MIB)
    j = load('memory', t.close())
    assert [(p['used_bytes'], p['reserved_bytes'], p['unused_bytes'], p['live_bytes']) for p in j['pools']] == [
        (0, GIB, GIB, 0), (512 * MIB, GIB, 512 * MIB, 512 * MIB)]
    m = j['reconciliation']
    assert (m['ours'], m['pool_slack'], m['context'], m['unexplained']) == (512 * MIB, 512 * MIB, context, 0)
    assert j['stream_ordered']['peak_bytes'] == GIB


# ---- 58, 62, 63, 65, 71, 72: on the virtual GPU ---------------------------------------------------------------------------------
def test_58_an_allocation_is_booked_once(tmp_path):
    db = case('once', tmp_path)
    assert query(db, 'select count(*), sum(bytes) from alloc') == [(1, 1048576)] and load('memory', db)['memory']['peak_bytes'] == 1048576


def test_62_a_release_is_booked_where_the_memory_was(tmp_path):
    db = case('wrong_device', tmp_path, 'h100-sxm:2')
    assert query(db, 'select device, bytes, free_ns is not null from alloc') == [(0, 100 * MIB, 1)]
    j = load('memory', '--timeline', db)
    assert [(d['device'], d['peak_bytes']) for d in j['devices']] == [(0, 100 * MIB)] and [x['total_bytes'] for x in j['timeline']] == [100 * MIB, 0]


def test_63_a_failed_call_books_nothing(tmp_path):
    db = case('failed', tmp_path)
    assert query(db, "select status, bytes from op where kind = 'alloc'") == [(2, 1 << 50)] and query(db, 'select count(*) from alloc') == [(0,)]
    j = load('report', db)
    assert j['memory']['peak_bytes'] == 0 and j['out_of_memory']['asked_bytes'] == 1 << 50


def test_65_nothing_allocated_nothing_released(tmp_path):
    db = case('zero', tmp_path)
    assert query(db, "select count(*) from op where kind in ('alloc', 'free')") == [(5,)] and query(db, 'select count(*) from alloc') == [(0,)]
    j = load('memory', db)
    assert j['memory']['peak_bytes'] == 0 and not any('free' in n or 'lost' in n for n in j['notes'])


def test_71_a_child_takes_nothing_of_its_parents(tmp_path):
    db = case('forks', tmp_path)
    assert query(db, 'select bytes, free_ns is not null from alloc') == [(MIB, 1)] and load('memory', db)['memory']['peak_bytes'] == MIB
    assert query(db, 'pragma integrity_check') == [('ok',)] and [f for f in os.listdir(tmp_path) if f.endswith('.db')] == ['t.db']


def test_72_no_update_is_lost_between_threads(tmp_path):
    """Eight threads, each 512 bytes taken and given back over and over: a release is booked before it happens, an allocation after."""
    db = case('threads', tmp_path)
    n = 8 * 2000
    assert query(db, "select sum(kind = 'alloc'), sum(kind = 'free') from op") == [(n, n)]
    assert query(db, 'select count(*), count(free_ns) from alloc') == [(n, n)]
    assert 512 <= load('memory', db)['memory']['peak_bytes'] <= 8 * 512
    lives = query(db, 'select address, alloc_ns, free_ns from alloc order by address, alloc_ns')
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(lives, lives[1:]))


# ---- 68 ------------------------------------------------------------------------------------------------------------------------
def test_68_managed_memory_is_apart(tmp_path):
    """49152 bytes x 1,048,576, on a device of 12 GiB: virtual; how much of it lies there nobody knows."""
    t = Trace(tmp_path / 'a.db')
    t.alloc(1000, 5, classes='param')
    t.alloc(49152 * 1048576, 10, memory='managed')
    meminfo(t, 20, 'release', 2 * MIB)
    j = load('memory', t.close())
    assert j['host']['managed_peak_bytes'] == 51539607552 and j['memory']['peak_bytes'] == 1000
    assert (j['reconciliation']['ours'], j['reconciliation']['managed_bytes'], j['reconciliation']['unexplained']) == (1000, 51539607552, 0)
