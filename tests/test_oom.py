"""Out of memory: what a program that finds none leaves in its trace, and the report's account of it.

Expected values: what the program itself printed (its own list of blocks, cudaMemGetInfo, its last errors), train's own account, arithmetic."""
import json, os, re, shutil, sqlite3, subprocess
import pytest
from conftest import BUILD, DEVICE, TOP, deps, run

ACCT, LIB, CASES, TRAIN = (os.path.join(BUILD, p) for p in ('acct', 'libacct.so', 'tests/oom_cases', 'train'))
MIB = 1 << 20


def acct_run(db, *argv, memory=None, **kw):
    env = {'ACCT_VGPU_MEMORY': str(memory)} if memory else {}
    return run(ACCT, 'run', '--vgpu', '-o', db, '--', *argv, env=env, **kw)


def oom_of(db):
    r = run(ACCT, 'report', '--format', 'json', db)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)['out_of_memory']


def query(db, sql, *args):
    with sqlite3.connect(f'file:{db}?mode=ro', uri=True) as d:
        return d.execute(sql, args).fetchall()


def said(text, key, which=-1):
    return int(re.findall(rf'\b{key}=(\d+)', text)[which])


# ---- the trace ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('end, code', [('return', 0), ('exit', 1), ('_exit', 1), ('abort', 134), ('kill', 137)])
def test_the_last_state_is_kept(tmp_path, end, code):
    """All blocks, the failed call and what the driver said are in the trace, however the program ends right after it."""
    db = tmp_path / 't.db'
    r = acct_run(db, CASES, 'fill', 3 * MIB, end, memory=50 * MIB)
    assert r.returncode == code and said(r.stdout, 'info') == 0
    n, free, total = said(r.stdout, 'blocks'), said(r.stdout, 'free'), said(r.stdout, 'total')
    assert query(db, 'select count(*), sum(bytes) from alloc') == [(n, n * 3 * MIB)] and n > 0
    assert query(db, 'select status, bytes, device from op where status <> 0') == [(2, 3 * MIB, 0)]
    assert query(db, 'select m.free_bytes, m.total_bytes, m.device, op.bytes, m.pool from meminfo m join op on op.id = m.op where m.why = ?',
                 'no memory') == [(free, total, 0, 3 * MIB, None)]
    assert 'out of memory: cudaMalloc of 3.00 MiB' in r.stderr


def test_an_exception_that_nobody_catches(tmp_path):
    """C++: std::bad_alloc after a failed cudaMalloc, uncaught: SIGABRT by the C++ runtime, whose unwinding acct leaves alone."""
    source, program, db = tmp_path / 'throw.cpp', tmp_path / 'throw', tmp_path / 't.db'
    source.write_text('''#include <cuda_runtime_api.h>
#include <new>
struct noisy { ~noisy() {} };
static void allocate(size_t bytes) {
    noisy guard;
    void *p;
    if (cudaMalloc(&p, bytes) != cudaSuccess) throw std::bad_alloc();
}
int main() {
    for (;;) allocate(size_t(1) << 22);
}
''')
    r = run('g++', '-O1', '-isystem', deps('CUDA_INC'), source, '-o', program, '-L' + deps('CUDA_LIB'), '-l:libcudart.so.13', '-Wl,--allow-shlib-undefined')
    assert r.returncode == 0, r.stderr
    r = acct_run(db, program, memory=64 * MIB)
    assert r.returncode == 134 and 'std::bad_alloc' in r.stderr
    o = oom_of(db)
    assert o['asked_bytes'] == 4 * MIB and not o['survived'] and o['live_bytes'] == query(db, 'select sum(bytes) from alloc')[0][0] > 0


def test_the_program_sees_its_errors_as_without_acct(tmp_path):
    """cudaGetLastError and cudaPeekAtLastError tell the same, call for call."""
    for what in ('errors', 'kinds'):
        alone = run(CASES, what, env=DEVICE)
        traced = run(CASES, what, env={**DEVICE, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / f'{what}.db')})
        assert alone.stdout == traced.stdout and alone.stdout.count('peek=2') >= 3
        assert (alone.returncode, alone.stderr) == (traced.returncode, traced.stderr) == (0, '')


def test_a_question_that_fails_is_taken_back(tmp_path):
    """On a runtime whose cudaMemGetInfo fails and sets the last error: the program finds its own, once; the trace says "not known"."""
    d = tmp_path / 'runtime'
    d.mkdir()
    (d / 'map').write_text('libcudart.so.13 { global: cuda*; local: *; };\n')
    r = run('cc', '-shared', '-fPIC', '-O1', '-Wl,-soname,libcudart.so.13', f'-Wl,--version-script={d}/map', '-o', d / 'libcudart.so.13',
            os.path.join(TOP, 'tests/support/oom_runtime.c'))
    assert r.returncode == 0, r.stderr
    source, program = tmp_path / 'p.c', tmp_path / 'p'
    source.write_text('''#include <stdio.h>
#include <stddef.h>
int cudaMalloc(void **, size_t), cudaPeekAtLastError(void), cudaGetLastError(void), cudaTestQuestions(void);
int main(void) {
    void *p;
    int e = cudaMalloc(&p, 1 << 20);
    int peek = cudaPeekAtLastError(), get = cudaGetLastError(), then = cudaPeekAtLastError();
    printf("error=%d peek=%d get=%d then=%d\\n", e, peek, get, then);
    fprintf(stderr, "questions=%d\\n", cudaTestQuestions());
    return 0;
}
''')
    assert run('cc', source, '-o', program, d / 'libcudart.so.13').returncode == 0
    env = {'LD_LIBRARY_PATH': str(d)}
    alone, traced = run(program, env=env), run(program, env={**env, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert alone.stdout == traced.stdout == 'error=2 peek=2 get=2 then=0\n'
    assert said(alone.stderr, 'questions') == 0 and said(traced.stderr, 'questions') in (3, 4)  # the device's first use, before the call and after it; the failed call, and before it if 10 ms have passed
    run(ACCT, 'report', tmp_path / 't.db')  # waits for the collector
    assert query(tmp_path / 't.db', 'select free_bytes, total_bytes from meminfo') == [(None, None)] * 2
    o = oom_of(tmp_path / 't.db')
    assert (o['asked_bytes'], o['free_bytes'], o['missing_bytes'], o['live_bytes']) == (MIB, None, None, 0)


def test_nothing_is_asked_while_there_is_memory(tmp_path):
    """One question at the device's first use; none after that, but now and then before an allocation or a release."""
    db = tmp_path / 't.db'
    assert acct_run(db, CASES, 'loop', 0).returncode == 0
    assert [w for w, in query(db, "select why from meminfo where why not in ('allocation', 'release')")] == ['first use']
    assert oom_of(db) is None


def test_many_failures_are_counted_and_asked_about_within_bounds(tmp_path):
    db, n = tmp_path / 't.db', 20000
    assert acct_run(db, CASES, 'loop', n).returncode == 0
    assert query(db, 'select count(*) from op where status = 2') == [(n,)]
    asked, = query(db, "select count(*) from meminfo where why = 'no memory'")[0]
    assert 64 <= asked < n / 2  # the calls are as fast as the questions here: a twentieth of the time is far less
    first = query(db, "select id from op where status = 2 order by id limit 64")
    assert query(db, "select op from meminfo where why = 'no memory' order by id limit 64") == first
    o = oom_of(db)
    assert (o['failures'], o['failures_survived'], o['survived']) == (n, n, True)


# ---- the report's figures --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize('size', [3 * MIB, 5 * MIB + 4096, 700 * 1000])
def test_the_figures_are_the_programs(tmp_path, size):
    db = tmp_path / 't.db'
    r = acct_run(db, CASES, 'fill', size, 'exit', memory=64 * MIB)
    n, free, total = said(r.stdout, 'blocks'), said(r.stdout, 'free'), said(r.stdout, 'total')
    before = total - said(r.stdout, 'free', 0)
    o = oom_of(db)
    assert (o['function'], o['device'], o['asked_bytes'], o['survived']) == ('cudaMalloc', 0, size, False)
    assert (o['total_bytes'], o['free_bytes'], o['live_bytes'], o['live_blocks']) == (total, free, n * size, n)
    assert o['largest_bytes'] == free and o['missing_bytes'] == max(0, size - free)
    assert sum(o['live'].values()) == o['live_bytes'] and o['live']['unknown'] == n * size  # nothing shows what they are for
    assert len(o['largest']) == min(10, n) and all(b['bytes'] == size and b['class'] == 'unknown' for b in o['largest'])
    # the device's books: what is used is the program's, its context's, and what the device gives beyond what was asked for
    assert o['context_bytes'] + o['unexplained_bytes'] == (total - free) - n * size and o['context_bytes'] >= before >= 0
    assert o['pool_slack_bytes'] is None


def test_a_pools_memory_counts(tmp_path):
    db = tmp_path / 't.db'
    r = acct_run(db, CASES, 'fill-async', 3 * MIB, 'exit', memory=64 * MIB)
    n, free, reserved, used = (said(r.stdout, k) for k in ('blocks', 'free', 'reserved', 'used'))
    o = oom_of(db)
    assert (o['function'], o['pool_reserved_bytes'], o['pool_used_bytes']) == ('cudaMallocAsync', reserved, used)
    assert o['pool_slack_bytes'] == reserved - used and o['largest_bytes'] == free + reserved - used
    assert o['live_bytes'] == n * 3 * MIB and o['missing_bytes'] == max(0, 3 * MIB - o['largest_bytes'])


@pytest.mark.parametrize('size', [1, 1000, 3 * MIB])
@pytest.mark.parametrize('first', ['malloc', 'async', 'pool', 'pitch', 'array', 'managed', 'stream', 'pending'])
@pytest.mark.parametrize('device', [0, 2])
def test_what_the_first_call_takes_is_not_the_contexts(tmp_path, first, size, device):
    """Whatever the program's first call is, and whatever the device gives beyond what it asks for (a pool's pieces, rounding): the context is what
    a program has that takes nothing. Without acct, the program sees the same."""
    db = tmp_path / 't.db'
    r = run(ACCT, 'run', '--vgpu=t4:3', '--dry', '-o', db, '--', CASES, 'first', first, size, device)
    assert r.returncode == 0, r.stderr
    used, after = (said(r.stdout, 'total', i) - said(r.stdout, 'free', i) for i in (0, -1))
    empty = run(ACCT, 'run', '--vgpu=t4:3', '--dry', '-o', tmp_path / 'e.db', '--', CASES, 'first', 'none', 0, device)
    context = said(empty.stdout, 'total', 0) - said(empty.stdout, 'free', 0)
    o = oom_of(db)
    slack = o['pool_slack_bytes'] or 0
    if first == 'pending':  # an error that the program has not looked at: nothing can be asked
        assert o['context_bytes'] is None and o['unexplained_bytes'] == after - o['live_bytes'] - slack
        return
    assert o['context_bytes'] == context and used >= context
    assert o['unexplained_bytes'] == after - o['live_bytes'] - slack - context >= 0
    assert query(db, "select why, device, pool from meminfo where why = 'first use'") == [('first use', device, None)]
    text = run(ACCT, 'report', db).stdout
    assert 'context at the start' in text and 'rounding and others' in text


def test_what_cannot_be_told_apart_is_one_figure(tmp_path):
    """A trace whose first question came after a pool's piece was taken, without the pool: the context is not known, and no figure is below 0."""
    db = tmp_path / 't.db'
    run(ACCT, 'run', '--vgpu=t4', '--dry', '-o', db, '--', CASES, 'first', 'async', 1000, 0)
    o = oom_of(db)
    both = o['context_bytes'] + o['unexplained_bytes']
    for change in ("ns = (select min(alloc_ns) + 1 from alloc), free_bytes = free_bytes - (32 << 20)",  # as it was asked before
                   "ns = 0, free_bytes = free_bytes - (40 << 20)"):  # other processes took some and gave it back
        with sqlite3.connect(db) as d:
            d.execute(f"update meminfo set {change} where why = 'first use'")
        o = oom_of(db)
        assert (o['context_bytes'], o['unexplained_bytes']) == (None, both)
        assert 'context, rounding, others' in run(ACCT, 'report', db).stdout


@pytest.mark.parametrize('first', ['malloc', 'async', 'pool', 'pitch', 'array', 'managed', 'stream', 'pending', 'capture', 'refused', 'nowhere'])
def test_the_first_call_is_as_without_acct(tmp_path, first):
    """What it returns, the last error after it, whether a capture lives on."""
    env = {**DEVICE, 'ACCT_VGPU': 't4', 'ACCT_VGPU_DRY': '1'}
    alone = run(CASES, 'first', first, 1000, 0, env=env)
    traced = run(CASES, 'first', first, 1000, 0, env={**env, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert (alone.returncode, alone.stdout, alone.stderr) == (traced.returncode, traced.stdout, traced.stderr)
    assert 'error=' in alone.stdout


def test_a_program_that_probes_survives(tmp_path):
    db = tmp_path / 't.db'
    r = acct_run(db, CASES, 'probe', memory=96 * MIB)
    assert r.returncode == 0
    o = oom_of(db)
    assert o['failures'] == o['failures_survived'] == said(r.stdout, 'failures') and o['survived']
    assert len(o['calls']) == o['failures'] and all(c['survived'] for c in o['calls'])
    assert 'the program went on' in r.stderr
    text = run(ACCT, 'report', db).stdout
    assert f"Calls that found no memory: {o['failures']}, of which {o['failures']} were survived" in text


def test_every_kind_of_allocation(tmp_path):
    """The host's memory is no matter of the device's: listed, without figures of the device, and not the one that is described."""
    db = tmp_path / 't.db'
    assert acct_run(db, CASES, 'kinds').returncode == 0
    o = oom_of(db)
    names = ['cudaMalloc', 'cudaMallocAsync', 'cudaMallocFromPoolAsync', 'cudaMallocPitch', 'cudaMalloc3D', 'cudaMallocHost']
    assert [c['function'] for c in o['calls']] == names and all(c['asked_bytes'] == 1 << 50 for c in o['calls'])
    asked = query(db, "select name from meminfo m join op_named op on op.id = m.op where why = 'no memory' order by m.id")
    assert [n for n, in asked] == names[:-1]
    assert o['function'] == 'cudaMalloc'  # the first of those that ended the program's work


def test_every_format_has_the_section(tmp_path):
    db = tmp_path / 't.db'
    acct_run(db, CASES, 'fill', 3 * MIB, 'exit', memory=20 * MIB)
    o = oom_of(db)
    for form, head in (('text', 'Out of memory'), ('markdown', '## Out of memory')):
        out = run(ACCT, 'report', '--format', form, db).stdout
        assert head in out and f"({o['live_bytes']})" in out and f"({o['asked_bytes']})" in out
    csv = run(ACCT, 'report', '--format', 'csv', db).stdout
    assert re.search(rf'^out_of_memory\.free_bytes,{o["free_bytes"]},', csv, re.M)


# ---- train -----------------------------------------------------------------------------------------------------------------
STEP_CALLS = "('alloc', 'free', 'copy', 'memset', 'launch', 'gemm', 'blas')"


def books(db, truth):
    """(report's section, truth's live bytes by class) at the call that failed; train numbers its calls as the trace does."""
    o = oom_of(db)
    number, = query(db, f"select count(*) from op where kind in {STEP_CALLS} and id <= (select id from op where status = 2)")[0]
    live = {}
    for b in truth['buffers']:
        if b['from_call'] < number <= b['to_call']:
            live[b['class']] = live.get(b['class'], 0) + b['bytes']
    return o, live


def passed_off(o, live):
    """Bytes that the report gives a class which train does not."""
    return sum(max(0, n - live.get(c, 0)) for c, n in o['live'].items() if c != 'unknown')


@pytest.fixture(scope='module')
def fitting(tmp_path_factory):
    """fitting(options) → (train's account, peak): of a run that has enough memory."""
    kept = {}

    def get(options):
        if options not in kept:
            d = tmp_path_factory.mktemp('fit')
            r = acct_run(d / 't.db', TRAIN, *options.split(), '--truth', d / 't.json')
            assert r.returncode == 0, r.stderr
            whole = json.loads(run(ACCT, 'report', '--format', 'json', d / 't.db').stdout)
            kept[options] = json.load(open(d / 't.json')), whole['memory']['peak_bytes'], d / 't.db'
        return kept[options]
    return get


# Where it ends, as the name of the tensor that there is no memory for tells; which classes must then be known whole.
CUTS = [('--alloc tensor --steps 2', .25, r'd?\.?\w+', []),                      # the model's construction
        ('--alloc step --steps 2', .3, r'[mv]\.\w+', []),                        # the optimizer's state
        ('--alloc step --steps 2', .8, r'qkv|\w+[1234]', ['param', 'workspace']),             # the first forward
        ('--alloc step --steps 2', .99, r'd\w+', ['param', 'activation', 'workspace']),  # the first backward
        ('--alloc step --zero-grad none --optimizer sgd --steps 2', .97, r'd\.?\w+', ['param', 'activation', 'workspace']),
        ('--alloc step --dtype bf16 --steps 2', .99, r'd\w+', ['param', 'activation', 'optimizer-master']),
        ('--alloc step --accum 2 --recompute full --steps 2', .97, r'd\w+', ['param']),
        ('--model linear --alloc step --dim 256 --layers 6 --batch 512 --steps 2', .8, r'h\d+', ['param', 'input-part'])]


@pytest.mark.parametrize('options, share, tensor, whole', CUTS)
def test_train_without_memory(tmp_path, fitting, options, share, tensor, whole):
    truth, peak, _ = fitting(options)
    db = tmp_path / 't.db'
    r = acct_run(db, TRAIN, *options.split(), memory=int(peak * share))
    name = re.search(r'out of device memory: no (\d+) bytes for (\S+);', r.stderr)
    assert r.returncode == 1 and name and re.fullmatch(tensor, name[2]), r.stderr
    o, live = books(db, truth)
    assert o['asked_bytes'] == int(name[1]) and not o['survived'] and o['failures'] == 1
    assert o['live_bytes'] == sum(live.values()) == sum(o['live'].values())
    assert passed_off(o, live) <= 0.02 * o['live_bytes'], (o['live'], live)
    for c in whole:
        if c == 'optimizer-master':  # 4 of 12 bytes: m and v have not been used
            assert o['live']['optimizer'] == live['optimizer'] / 3
        elif c == 'input-part':  # one of two buffers has been used
            assert o['live']['input'] == live['input'] / 2
        elif c == 'activation':  # what was asked for and not written yet has no class
            assert 0.9 * live[c] <= o['live'][c] <= live[c]
        else:
            assert o['live'][c] == live[c], c
    assert o['phase'] == (None if not whole else 'backward' if tensor.startswith('d') else 'forward')
    assert not any('bytes a parameter' in h for h in o['hints'])  # the optimizer has not been seen at work


def cut_trace(source, db, op):
    """The trace as it would be had the program found no memory in place of op, and ended: everything from op on is taken out."""
    shutil.copy(source, db)
    with sqlite3.connect(db) as d:
        ns, thread, api = d.execute('select op.start_ns, op.thread, (select id from api where name like ?) from op where id = ?', ('cudaMallocAsync%', op)).fetchone()
        for table, key in (('op', 'id'), ('alloc', 'id'), ('copy', 'op'), ('memset', 'op'), ('gemm', 'op'), ('blas', 'op'), ('launch', 'op'), ('workspace', 'op')):
            d.execute(f'delete from "{table}" where {key} >= ?', (op,))
        d.execute('update alloc set free_ns = NULL, free_op = NULL where free_op >= ?', (op,))
        d.execute("delete from activity where start_ns >= ?", (ns,))
        d.execute("insert into op(id, process, thread, api, kind, device, start_ns, end_ns, status, bytes) values(?, 1, ?, ?, 'alloc', 0, ?, ?, 2, 12345)",
                  (op, thread, api, ns, ns + 1))
        d.execute("insert into meminfo values(NULL, 1, ?, 'no memory', ?, 0, 1000, 100000000, NULL, NULL, NULL)", (ns + 2, op))
        d.execute("delete from meta where key = 'analysis_version'")
    assert run(ACCT, 'analyze', db).returncode == 0


@pytest.mark.parametrize('step, part', [(1, .2), (1, .6), (2, .3), (2, .75)])
def test_later_steps_know_their_classes(tmp_path, fitting, step, part):
    """Ended in a later step (of a trace that was cut off there): what earlier steps showed holds."""
    truth, _, whole = fitting('--alloc step --steps 3')
    s = truth['steps'][step]
    number = int(s['from_call'] + part * (s['to_call'] - s['from_call']))
    calls = [i for i, in query(whole, f"select id from op where kind in {STEP_CALLS} order by id")]
    cut_trace(whole, tmp_path / 't.db', calls[number - 1])
    o, live = books(tmp_path / 't.db', truth)
    assert (o['asked_bytes'], o['step'], o['missing_bytes']) == (12345, step, 11345)
    assert o['live_bytes'] == sum(live.values())
    for c in ('param', 'grad', 'optimizer', 'workspace'):
        assert o['live'][c] == live[c], c
    assert passed_off(o, live) <= 0.03 * o['live_bytes'], (o['live'], live)
    assert any('8 bytes a parameter' in h for h in o['hints'])
    batch = next(h for h in o['hints'] if 'at most' in h)
    part_of_batch = sum(o['live'][c] for c in ('activation', 'activation_grad', 'temporary', 'input'))
    most = (part_of_batch + 12345 - 11345) / (part_of_batch + 12345)  # a line through the origin, what is asked for in it
    assert f'at most {int(most * 1000) / 10:.1f} %' in batch and f'{int(most * 512)} of 512 rows' in batch
