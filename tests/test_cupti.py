"""Device times through CUPTI, in whole programs: on the virtual GPU, whose libcupti obeys the vendor's rules; on a scripted
one (support/fake_cupti.c) that answers what real ones answer on bad days; and on the vendor's own, without a driver.

Expected values are what the programs do: each memset, copy, product and launch has one piece of work on the device."""
import os, re, signal, subprocess, time
import pytest
from conftest import BUILD, run
from test_preload import LIB, Trace, fake, listing # noqa: F401 (fixtures)

VGPU = os.path.join(BUILD, 'vgpu')
FAKE_CUPTI = os.path.join(BUILD, 'tests', 'fake_cupti')
MEMSETS = os.path.join(BUILD, 'tests', 'cupti_memsets')
REAL = next((p for d in re.findall(r'CUDA_(?:LIB|INC) := (.*)', open(os.path.join(BUILD, 'deps.mk')).read())
             for p in (os.path.join(d, 'libcupti.so.13'), os.path.join(d, '../extras/CUPTI/lib64/libcupti.so.13')) if os.path.exists(p)), None)


class Place:
    """Runs cupti_memsets on one choice of libraries."""
    def __init__(self, libraries, tmp_path):
        self.libraries, self.tmp, self.n = libraries, tmp_path, 0
        self.log = tmp_path / 'broken-rules'

    def env(self, script='', **more):
        self.n += 1
        self.out = self.tmp / f't{self.n}.db'
        return {'LD_LIBRARY_PATH': self.libraries, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(self.out), 'FAKE_CUPTI': script,
                'FAKE_CUPTI_LOG': str(self.log), **more}

    def go(self, *args, script='', program=MEMSETS, timeout=60, **env):
        plain = run(program, *args, env={'LD_LIBRARY_PATH': self.libraries, 'FAKE_CUPTI': script, **env}, timeout=timeout)
        got = run(program, *args, env=self.env(script, **env), timeout=timeout)
        assert (got.returncode, got.stdout, got.stderr) == (plain.returncode, plain.stdout, plain.stderr)
        return self.trace()

    def trace(self):
        assert not self.log.exists(), self.log.read_text()
        return Trace(self.out)


@pytest.fixture
def vgpu(tmp_path):
    return Place(VGPU, tmp_path)


@pytest.fixture
def scripted(fake, tmp_path):
    """A runtime that answers everything, and the scripted libcupti: each marked call starts a kernel."""
    return Place(f'{FAKE_CUPTI}:{fake}', tmp_path)


@pytest.fixture(params=['vgpu', 'scripted'])
def place(request):
    return request.getfixturevalue(request.param)


EAGER = 'eager=1000'


def times(t):
    return t.one('select count(*) from activity')


def every_op_has_its_time(t, kinds=('copy', 'memset', 'gemm', 'blas', 'launch')):
    """Each successful call has the work that it started on the device, with its times."""
    some = ','.join(f"'{k}'" for k in kinds)
    assert t.rows(f"""select id, name from op_named where kind in ({some}) and status = 0
                      and id not in (select op from op_time where activities >= 1 and busy_ns > 0)""") == []
    assert t.one('select count(*) from activity where start_ns is null or end_ns is null or end_ns <= start_ns') == 0
    assert t.lost() == 0 and t.meta['cupti'] is None and t.meta['cupti_dropped'] == 0


# ---- the virtual GPU ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('model', [['--model', 'linear', '--steps', '4'],
                                   ['--model', 'gpt', '--steps', '3', '--layers', '2', '--dim', '32', '--seq', '16', '--batch', '2']])
def test_every_piece_of_work_has_its_time(vgpu, model):
    r = run(os.path.join(BUILD, 'train'), *model, env=vgpu.env())
    assert r.returncode == 0, r.stderr
    t = vgpu.trace()
    every_op_has_its_time(t)
    # nothing on the device that no recorded call started
    assert t.one('select count(*) from activity where correlation not in (select id from correlation)') == 0
    # the calls' own accounts of what they moved and launched
    assert t.one("select count(*), sum(bytes) from activity where kind = 'copy'") == t.one("select count(*), sum(bytes) from copy")
    assert t.one("select count(*), sum(bytes) from activity where kind = 'memset'") == t.one("select count(*), sum(bytes) from memset")
    launches = """select k.name, l.grid_x, l.grid_y, l.grid_z, l.block_x, l.block_y, l.block_z, count(*) n from launch l join kernel k on k.id = l.kernel
                  group by 1, 2, 3, 4, 5, 6, 7"""
    activities = launches.replace('k.name', 'l.name').replace('launch l join kernel k on k.id = l.kernel',
                                                              "activity l where kind = 'kernel' and name like '\\_Z%' escape '\\'")
    assert sorted(map(str, t.rows(launches))) == sorted(map(str, t.rows(activities)))
    # one clock: work begins after its call began, and lies within the run
    assert t.one('select count(*) from op_time t join op o on o.id = t.op where t.start_ns < o.start_ns') == 0
    start, end = int(t.meta['start_mono_ns']), int(t.meta['end_mono_ns'])
    assert t.one('select count(*) from activity where start_ns < ? or end_ns > ?', start, end) == 0
    # a stream does one thing at a time
    rows = t.rows('select stream, start_ns, end_ns from activity order by stream, start_ns')
    assert all(a['stream'] != b['stream'] or a['end_ns'] <= b['start_ns'] for a, b in zip(rows, rows[1:]))


def test_a_products_time_is_its_kernels_time(vgpu):
    """The tie is the external id: each GEMM has exactly the kernels that ran between its call and its stream's next work."""
    r = run(os.path.join(BUILD, 'train'), '--model', 'linear', '--steps', '2', env=vgpu.env())
    assert r.returncode == 0, r.stderr
    t = vgpu.trace()
    rows = t.rows("""select g.op, t.busy_ns, t.activities, (select sum(a.end_ns - a.start_ns) from correlation c join activity a on a.correlation = c.id
                     where c.external = g.external) kernels, (select group_concat(distinct a.name) from correlation c join activity a
                     on a.correlation = c.id where c.external = g.external) names from gemm g join op_time t on t.op = g.op""")
    assert rows and all(r['busy_ns'] == r['kernels'] and r['activities'] == 1 and 'gemm' in r['names'] for r in rows)


def test_without_a_libcupti_beside_the_virtual_gpu(tmp_path):
    """Its runtime never gets the vendor's, which would look for a driver."""
    alone = tmp_path / 'alone'
    alone.mkdir()
    for f in os.listdir(VGPU):
        if not f.startswith('libcupti') and '.so' in f:
            os.symlink(os.path.join(VGPU, f), alone / f)
    t = Place(str(alone), tmp_path).go('sets', '20')
    assert t.meta['cupti'] == 'no libcupti.so.13 beside the virtual GPU\'s runtime' and times(t) == 0
    assert t.one("select count(*) from op where kind = 'memset'") == 20 and t.lost() == 0


# ---- anywhere -------------------------------------------------------------------------------------------------------------------
def test_memsets_have_times(place):
    t = place.go('sets', '500', script=EAGER)
    every_op_has_its_time(t)
    assert times(t) == 500


def test_threads(place):
    t = place.go('threads', '700', script=EAGER)
    every_op_has_its_time(t)
    assert times(t) == 4 * 700 + 1


def test_switched_off(place):
    t = place.go('sets', '50', script=EAGER, ACCT_CUPTI='off')
    assert t.meta['cupti'] == 'switched off (ACCT_CUPTI=off)' and times(t) == 0
    assert t.one('select count(*) from thread') == 1
    assert t.one("select count(*) from op where kind = 'memset' and status = 0") == 50
    assert t.one('select count(*) from memset where external is not null and external <> 0') == 0


def test_a_wrong_setting_is_told(vgpu):
    r = run(MEMSETS, 'sets', '5', env=vgpu.env(ACCT_CUPTI='of'))
    assert r.returncode == 0 and r.stderr.startswith('acct: ACCT_CUPTI=of') and r.stderr.count('\n') == 1
    assert times(vgpu.trace()) == 5


def test_another_profiler_was_there_first(place):
    """It keeps its subscriber; ours is refused, and the trace says so."""
    t = place.go('subscribes', '30')
    assert t.meta['cupti'] == 'cuptiSubscribe: another profiler in this process already uses CUPTI (error 39)' and times(t) == 0
    assert t.one("select count(*) from op where kind = 'memset' and status = 0") == 30 and t.lost() == 0


def test_calls_of_exit_handlers(place):
    """They come after the forced flush: fetched once more before the end."""
    t = place.go('late', '40', script=EAGER)
    assert times(t) == 80
    every_op_has_its_time(t)


def test_fork(place):
    """The child flushes nothing, and the parent's times are whole."""
    t = place.go('fork', '60', script=EAGER)
    assert times(t) == 120
    every_op_has_its_time(t)


def test_a_forked_child_that_calls_on(place, tmp_path):
    got = run(MEMSETS, 'fork-cuda', '10', env={**place.env(EAGER), 'ACCT_OUTPUT': str(tmp_path / 'f-%p.db')})
    assert got.returncode == 0 and got.stdout == 'child 7\ndone\n', (got.stdout, got.stderr)
    traces = [Trace(p) for p in tmp_path.glob('f-*.db')]
    parent = next(t for t in traces if t.meta['cupti'] is None)
    assert times(parent) == 20
    for child in (t for t in traces if t is not parent):
        assert child.meta['cupti'] == 'this process was forked from one that used CUPTI' and times(child) == 0
    assert not place.log.exists(), place.log.read_text()


def test_exec(place, tmp_path):
    got = run(MEMSETS, 'exec', '30', env={**place.env(EAGER), 'ACCT_OUTPUT': str(tmp_path / 'x-%p-%n.db')})
    assert (got.returncode, got.stdout, got.stderr) == (0, 'done\n', '')
    traces = [Trace(p) for p in tmp_path.glob('x-*.db')]
    assert sorted(times(t) for t in traces) == [30, 30] # before the exec too: it waits four periods


def test_underscore_exit_keeps_what_was_flushed(place):
    t = place.go('exit', '5000', script=EAGER)
    assert t.meta['cupti'] is None and t.one("select count(*) from op where kind = 'memset'") == 5000


def test_a_first_call_under_the_loaders_lock(place, tmp_path):
    """libcupti cannot be opened before the constructor has returned: its calls go on after a second, without times."""
    (tmp_path / 'plugin.c').write_text("""int cudaMalloc(void **, unsigned long), cudaMemset(void *, int, unsigned long);
        __attribute__((constructor)) static void first(void) { void *p; if (!cudaMalloc(&p, 64)) cudaMemset(p, 0, 64); }""")
    r = run('cc', '-shared', '-fPIC', '-o', tmp_path / 'plugin.so', tmp_path / 'plugin.c')
    assert r.returncode == 0, r.stderr
    t = place.go('plugin', '30', script=EAGER, PLUGIN=str(tmp_path / 'plugin.so'))
    assert times(t) == 30 and t.one("select count(*) from op where kind = 'memset' and status = 0") == 31
    assert t.meta['cupti'] is None and t.lost() == 0


def start(place, *args, **env):
    p = subprocess.Popen([MEMSETS, *args], env={**{k: v for k, v in os.environ.items() if not k.startswith('ACCT')}, **place.env(EAGER, **env)},
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == 'ready\n'
    return p


def test_killed_after_a_while_everything_is_there(place):
    p = start(place, 'wait', '300')
    time.sleep(0.5)
    p.send_signal(signal.SIGKILL)
    p.wait()
    t = place.trace()
    assert times(t) == 300 and t.one('select count(*) from op_time') == 300


def test_killed_in_full_run_only_the_last_moments_are_missing(place):
    """Half-filled buffers are asked for every 100 ms; 400 leave room for a busy machine."""
    p = start(place, 'steady', '1')
    time.sleep(1)
    p.send_signal(signal.SIGKILL)
    p.wait()
    t = place.trace()
    last_call, last_time = t.one('select max(end_ns) from op'), t.one('select max(end_ns) from activity')
    assert 0 <= last_call - last_time < 400e6, f'{(last_call - last_time) / 1e6} ms before the kill'
    assert t.one("""select count(*) from op where kind = 'memset' and end_ns < ? and id not in (select op from op_time)""", last_time - 5_000_000) == 0


# ---- bad days -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('script, why', [
    ('fail=cuptiSubscribe error=39', 'cuptiSubscribe: another profiler in this process already uses CUPTI (error 39)'),
    ('fail=cuptiSubscribe error=999', 'cuptiSubscribe: CUPTI could not start; without a driver it cannot (error 999)'),
    ('fail=cuptiActivityEnable error=35', 'cuptiActivityEnable: no permission to trace the device (error 35)'),
    ('version=140000', "CUPTI's version 140000 is unknown to acct, which reads those of CUDA 12 and 13"),
])
def test_what_is_refused_is_told_and_harms_nothing(scripted, script, why):
    t = scripted.go('sets', '50', script=script)
    assert t.meta['cupti'] == why and times(t) == 0
    assert t.one("select count(*) from op where kind = 'memset' and status = 0") == 50 and t.lost() == 0
    assert t.meta['state'] == 'complete'
    assert t.one('select clock from device') == 'host'


def test_the_clock_of_a_real_device(scripted):
    assert scripted.go('sets', '5', script=EAGER).one('select clock from device') == 'gpu'


def test_times_of_nought_are_unknown(scripted):
    t = scripted.go('sets', '20', script=EAGER + ' zero_times=1')
    assert t.one('select count(*) from activity where start_ns is null and end_ns is null') == 20


def test_longer_records_of_a_newer_cupti(scripted):
    t = scripted.go('sets', '2000', script=EAGER + ' longer=128 version=130300')
    assert times(t) == 2000 and t.meta['cupti_version'] == 130300
    every_op_has_its_time(t)


def test_dropped_records_are_told(scripted):
    """Three records a call, every tenth dropped."""
    t = scripted.go('sets', '1000', script=EAGER + ' lose=10')
    assert t.meta['cupti'] is None and t.meta['cupti_dropped'] == 300
    assert t.one('select count(*) from op where kind = \'memset\'') == 1000


def test_small_rings_are_waited_for(scripted):
    """The helper's bursts are larger than its ring of 256 slots; the program's own calls fit."""
    got = run(MEMSETS, 'sets', '20000', env=scripted.env(EAGER, ACCT_RING_SLOTS='256'))
    assert got.returncode == 0
    t = scripted.trace()
    # The program's thread never waits and may lose; the helper waits, so the times are all there.
    assert t.one("select count(*) from thread where name = 'acct-cupti'") == 1 and times(t) == 20000


def test_what_has_not_ended_comes_at_exit(scripted):
    t = scripted.go('sets', '100', script=EAGER + ' incomplete=1')
    assert times(t) == 100
    every_op_has_its_time(t)


def test_the_rest_comes_before_the_driver_goes(scripted):
    """The driver's own exit handler is registered at the first call, after CUPTI was opened."""
    t = scripted.go('sets', '100', script=EAGER + ' incomplete=1 dies=1')
    assert times(t) == 100
    every_op_has_its_time(t)


def test_a_flush_that_hangs_keeps_no_program(scripted):
    begun = time.time()
    got = run(MEMSETS, 'sets', '10', env=scripted.env('hang=cuptiActivityFlushAll hang_ms=60000', ACCT_EXIT_TIMEOUT='500'))
    assert got.returncode == 0 and got.stdout == 'done\n' and got.stderr == ''
    assert time.time() - begun < 10
    t = scripted.trace()
    assert t.one("select count(*) from op where kind = 'memset'") == 10 and t.meta['state'] == 'complete'


def test_a_subscription_that_hangs_keeps_no_program(scripted):
    got = run(MEMSETS, 'sets', '10', env=scripted.env('hang=cuptiSubscribe hang_ms=60000', ACCT_START_TIMEOUT='500'))
    assert (got.returncode, got.stdout, got.stderr) == (0, 'done\n', '')
    t = scripted.trace()
    assert t.meta['cupti'] == 'CUPTI has not answered in ACCT_START_TIMEOUT'
    assert t.one("select count(*) from op where kind = 'memset'") == 10


# ---- the vendor's own ---------------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not REAL, reason='no libcupti.so.13 in the toolkit')
@pytest.mark.skipif(os.path.exists('/dev/nvidiactl'), reason='there is a driver')
def test_the_vendors_library_without_a_driver(fake, tmp_path):
    only = tmp_path / 'only'
    only.mkdir()
    os.symlink(REAL, only / 'libcupti.so.13')
    t = Place(f'{only}:{fake}', tmp_path).go('threads', '50')
    assert t.meta['cupti'] == 'cuptiSubscribe: CUPTI could not start; without a driver it cannot (error 999)'
    assert int(t.meta['cupti_version']) // 10000 == 13 and times(t) == 0
    assert t.one("select count(*) from op where kind = 'memset' and status = 0") == 201 and t.lost() == 0
    assert t.one('select clock from device') == 'host'


@pytest.mark.parametrize('call, starts', [('cudaSetDevice', True), ('cudaInitDevice', True), ('cudaMemGetInfo', True), ('cublasCreate', True),
                                          ('cudaGetDeviceCount', False), ('cudaGetDevice', False)])
def test_cupti_is_there_before_a_context(tmp_path, call, starts):
    """What makes the device's context starts the trace first: a vendor's CUPTI ties nothing to the calls of a context that was
    there before it. Questions that make none start nothing."""
    r = run(os.path.join(BUILD, 'tests', 'preload_first'), call, env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': os.path.join(BUILD, 'libacct.so'),
                                                                   'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert (r.stdout, r.stderr) == (f'before 0 after {int(starts)} error 0\n', '')
    assert (tmp_path / 't.db').exists() == starts
