"""A transformer with kernels of its own, end to end: the classes of its memory at each step's peak, its steps, phases, FLOPs and
device times. Expected values: the program's own account (--truth) and the formulas of the model; none comes from what acct printed."""
import json, os, sqlite3
import pytest
from conftest import BUILD, DEVICE, ON_GPU, run
from test_spine import CLASSES, TRAIN, acct_run, check_calls_against_truth, losses, preload, query, report, finished

SIZES = ['--layers 1 --dim 32 --heads 2 --seq 16 --batch 2', '--layers 2 --dim 48 --heads 3 --seq 40 --batch 1', '--layers 3 --dim 64 --heads 4 --seq 24 --batch 4',
         '--layers 4 --dim 128 --heads 4 --seq 64 --batch 8', '--layers 2 --dim 256 --heads 8 --seq 32 --batch 2']
STEPS = 4


def number(options, name):
    words = options.split()
    return int(words[words.index('--' + name) + 1])


def products(options, untied=False):
    """FLOPs of a step's matrix products, 2·m·n·k each: (forward, backward). The tied head is the token table once more."""
    L, C, T, B = (number(options, n) for n in ('layers', 'dim', 'seq', 'batch'))
    V, rows = 256, B * T
    weights = L * (C * 3 * C + C * C + C * 4 * C + 4 * C * C) + V * C
    attention = L * 2 * B * T * T * C                       # q·kT and att·v, all heads, nothing skipped: multiply-adds
    forward = 2 * (rows * weights + attention)
    return forward, 2 * forward


def train(tmp_path, options, **kw):
    db, truth = tmp_path / 'a.db', tmp_path / 'truth.json'
    r = acct_run(db, TRAIN, '--model', 'gpt', *options.split(), '--steps', STEPS, '--truth', truth, **kw)
    assert r.returncode == 0, r.stderr
    return r, db, json.load(open(truth))


def by_class(truth, call):
    """Bytes of the program's device buffers that are live at one of its calls."""
    out = dict.fromkeys(CLASSES, 0)
    for b in truth['buffers']:
        if b['class'] in out and b['from_call'] <= call <= b['to_call']:
            out[b['class']] += b['bytes']
    return out


def check(tmp_path, options):
    r, db, truth = train(tmp_path, options)
    j = report(db)
    forward, backward = products(options)
    assert j['totals']['dropped'] == 0 and len(j['steps']) == STEPS
    assert truth['flops_per_step'] == forward + backward
    for s, own in zip(j['steps'], truth['steps']):
        assert s['flops']['gemm'] == forward + backward
        assert (s['flops']['forward'], s['flops']['backward'], s['flops']['optimizer'], s['flops']['recompute']) == (forward, backward, 0, 0)
        assert (own['flops']['forward'], own['flops']['backward']) == (forward, backward)
        assert s['memory']['at_peak'] == by_class(truth, own['to_call'])
        assert s['memory']['at_peak']['unknown'] == 0
        assert [p['name'] for p in s['phases']] == ['forward', 'backward', 'optimizer']
        assert s['tokens'] == number(options, 'batch') * number(options, 'seq') and s['micro_batches'] == 1
    check_calls_against_truth(db, truth)
    check_times(db, j)


def check_times(db, j):
    """Consistent: every op has the device's time, a product's is its kernels', ops of a stream do not overlap, none takes no time."""
    assert j['device']['clock'] == ('gpu' if ON_GPU else 'cpu')
    untimed = query(db, "select op.id, op.kind from op left join op_time t on t.op = op.id "
                        "where op.status = 0 and op.kind in ('launch', 'gemm', 'copy', 'memset') and t.op is null")
    assert untimed == []
    assert query(db, 'select count(*) from activity where start_ns is null or end_ns <= start_ns') == [(0,)]
    rows = query(db, 'select stream, start_ns, end_ns from activity order by stream, start_ns')
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(rows, rows[1:]))
    for table, kinds in (('gemm', ('kernel', 'memset')), ('launch', ('kernel',))):   # a GPU's cuBLAS may clear what it adds to
        own = query(db, f'select t.busy_ns, t.activities, (select sum(a.end_ns - a.start_ns) from activity a join correlation c on c.id = a.correlation '
                        f"where c.external = x.external and a.kind in {str(kinds).replace(',)', ')')}) from {table} x join op_time t on t.op = x.op")
        assert own and all(busy == total and n >= 1 for busy, n, total in own)
    total = sum(f['time_ns'] for f in j['functions'] if f['time_ns'] is not None)
    assert total == query(db, 'select sum(end_ns - start_ns) from activity')[0][0]
    steps = [s['device_end_ns'] - s['device_start_ns'] for s in j['steps']]
    busy = query(db, 'select c.step, sum(t.busy_ns) from op_cost c join op_time t on t.op = c.op where c.step is not null group by 1 order by 1')
    assert [i for i, _ in busy] == list(range(STEPS)) and all(0 < b <= ns for (_, b), ns in zip(busy, steps))
    assert all(a['device_end_ns'] == b['device_start_ns'] for a, b in zip(j['steps'], j['steps'][1:]))


@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('optimizer', ['adamw', 'sgd'])
@pytest.mark.parametrize('size', SIZES)
def test_books(tmp_path, size, optimizer, alloc):
    check(tmp_path, f'{size} --optimizer {optimizer} --alloc {alloc}')


@pytest.mark.parametrize('options', ['--optimizer momentum --alloc class', '--untied --alloc class', '--untied --optimizer sgd', '--optimizer momentum --untied --init unscaled'])
def test_books_of_other_choices(tmp_path, options):
    check(tmp_path, f'{SIZES[2]} {options}')


@pytest.mark.parametrize('alloc', ['tensor', 'class'])
@pytest.mark.parametrize('dtype', ['tf32', 'bf16', 'fp16', 'fp8'])
def test_books_of_number_formats(tmp_path, dtype, alloc):
    """Master weights are optimizer, casts to fp8 activation; 6n-matmul has the parameters that products read through a cast."""
    options = f'{SIZES[3]} --dtype {dtype} --alloc {alloc}'
    check(tmp_path, options)
    s = report(tmp_path / 'a.db')['steps'][1]
    L, C = number(options, 'layers'), number(options, 'dim')
    n = json.load(open(tmp_path / 'truth.json'))['parameters']
    assert s['mfu_by_convention']['6n-matmul'] / s['mfu_by_convention']['6n'] == pytest.approx((12 * C * C * L + 256 * C) / n)
    dtypes = {d for d, in query(tmp_path / 'a.db', 'select distinct dtype from op_cost where matmul')}
    assert dtypes == ({'fp8', 'bf16'} if dtype == 'fp8' else {dtype})


@pytest.mark.parametrize('options', ['--accum 3', '--recompute full', '--accum 2 --recompute full --dtype bf16', '--accum 2 --dtype fp8', '--clip 0.5 --optimizer rmsprop',
                                     '--dtype fp16 --optimizer adagrad --alloc class --recompute full', '--zero-grad none --dtype bf16', '--zero-grad none --accum 2'])
def test_books_of_the_lectures_choices(tmp_path, options):
    """Micro-batches, recomputation, gradients that come and go: classes at each step's last update, phases, FLOPs apart."""
    r, db, truth = train(tmp_path, f'{SIZES[2]} {options}')
    j, k = report(db), number(f'{options} --accum 1', 'accum')
    forward, backward = products(SIZES[2])
    assert j['totals']['dropped'] == 0 and len(j['steps']) == STEPS
    for s, own in zip(j['steps'], truth['steps']):
        assert (s['flops']['forward'], s['flops']['backward'], s['flops']['optimizer']) == (k * forward, k * backward, 0)
        assert s['flops']['recompute'] == own['flops']['recompute'] and (own['flops']['recompute'] > 0) == ('recompute' in options)
        assert s['memory']['at_peak'] == by_class(truth, own['to_call'])
        assert s['micro_batches'] == k and [(p['name'], p['micro_batch']) for p in s['phases']] == [(p['name'], p['micro_batch']) for p in own['phases']]
    check_calls_against_truth(db, truth)
    check_times(db, j)


@pytest.mark.parametrize('evaluation', ['--eval-every 1 --eval-batches 1', '--eval-every 2', '--eval-every 2 --eval-batches 3 --dtype bf16 --alloc class'])
def test_books_with_evaluation_between_steps(tmp_path, evaluation):
    """The last evaluation is no step that was cut off, be it a single batch."""
    check(tmp_path, f'{SIZES[2]} {evaluation}')


@pytest.mark.parametrize('size', SIZES[1:4])
def test_books_of_a_short_run_with_samples(tmp_path, size):
    """Most of what the program does is writing text: what training kept is known all the same."""
    r, db, truth = train(tmp_path, f'{size} --sample')
    j, (forward, backward) = report(db), products(size)
    assert len(j['steps']) == STEPS
    for s, own in zip(j['steps'], truth['steps']):
        assert (s['flops']['forward'], s['flops']['backward'], s['flops']['recompute'], s['micro_batches']) == (forward, backward, 0, 1)
        want = by_class(truth, own['to_call'])
        assert {c: b for c, b in s['memory']['at_peak'].items() if c not in ('input', 'temporary')} == {
            c: b for c, b in want.items() if c not in ('input', 'temporary')}    # the text's own buffer is in doubt: read by no step


@pytest.mark.parametrize('rows', ['--seq 1 --batch 1', '--seq 1 --batch 2', '--seq 2 --batch 2'])
def test_books_of_few_rows(tmp_path, rows):
    """Activations of the size of the layernorms' weights."""
    check(tmp_path, f'--layers 1 --dim 32 --heads 1 {rows}')


def test_adamw_by_hand(tmp_path):
    """Parameters counted from the model; gradients as many, two states each."""
    L, C, T, V = 3, 64, 24, 256
    n = V * C + T * C + L * (2 * C + C * 3 * C + 3 * C + C * C + C + 2 * C + C * 4 * C + 4 * C + 4 * C * C + C) + 2 * C
    r, db, truth = train(tmp_path, SIZES[2])
    at = report(db)['memory']['at_peak']
    assert truth['parameters'] == n
    assert (at['param'], at['grad'], at['optimizer']) == (4 * n, 4 * n, 8 * n)


def test_the_program_does_not_notice(tmp_path):
    """Losses bit for bit the same alone, under acct run, and by LD_PRELOAD alone."""
    options = ['--model', 'gpt', *SIZES[1].split(), '--steps', 5]
    alone = run(TRAIN, *options, env=DEVICE)
    traced = acct_run(tmp_path / 'a.db', TRAIN, *options)
    loaded = preload(tmp_path / 'b.db', TRAIN, *options)
    finished(tmp_path / 'b.db')
    assert losses(alone.stdout) == losses(traced.stdout) == losses(loaded.stdout) and len(losses(alone.stdout)) == 5
    for sql in ('select kind, count(*) from op group by 1', "select kernel.demangled, count(*) from launch join kernel on kernel.id = launch.kernel group by 1"):
        assert query(tmp_path / 'a.db', sql) == query(tmp_path / 'b.db', sql)


def test_every_launch_has_its_kernel_and_arguments(tmp_path):
    r, db, truth = train(tmp_path, SIZES[0])
    (launches, known, args), = query(db, 'select count(*), count(kernel.name), count(args) from launch left join kernel on kernel.id = launch.kernel')
    assert launches == known == args > 0 and report(db)['totals']['kernels'] == launches
    assert query(db, 'select count(*) from ptx') == [(2,)]                       # two modules: the model's kernels, the optimizer's; each kept once
    assert query(db, "select count(*) from op_buffer b join op on op.id = b.op where op.kind = 'launch' and b.mode = '?'") == [(0,)]
    names = {n for n, in query(db, 'select demangled from kernel')}
    assert any(n.startswith('void adamw_kernel<>(') for n in names) and not any(n.startswith('_Z') for n in names)
