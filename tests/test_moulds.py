"""Training programs of many moulds, run for real under acct: tests/programs/train_moulds.c tells its own account (classes of its
buffers, FLOPs of its steps), and the analysis has to find the same without it."""
import json, os, signal, sqlite3
import pytest
from conftest import BUILD, run

ACCT, PROGRAM = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'tests', 'train_moulds')


def trace(tmp_path, options, program=PROGRAM):
    """Runs the program under acct; its account, and the trace."""
    path = str(tmp_path / 't.db')
    r = run(ACCT, 'run', '--vgpu', '-o', path, '--', program, *options.split())
    cut = 'cut=' in options
    assert r.returncode == (128 + signal.SIGINT if cut else 0), r.stderr
    return json.loads(r.stdout), sqlite3.connect(path)


def wrong_classes(truth, db):
    """[(buffer, its class, class found, confidence, rule)]; the allocations are the program's, in their order."""
    allocs = db.execute("SELECT id, address, bytes FROM alloc WHERE memory IN ('device', 'async') ORDER BY id").fetchall()
    assert [a[1:] for a in allocs] == [(b['address'], b['bytes']) for b in truth['buffers']]
    wrong = []
    for (alloc, _, size), b in zip(allocs, truth['buffers']):
        rows = db.execute('SELECT bytes, class, confidence, rule FROM alloc_class WHERE alloc = ?', (alloc,)).fetchall()
        assert sum(r[0] for r in rows) == size
        wrong += [(b['name'], b['class'], *r[1:]) for r in rows if r[1] not in b['class'].split('|')]
    return wrong


def steps(db):
    flops = lambda step, phase: db.execute('SELECT coalesce(sum(flops), 0) FROM op_cost WHERE matmul AND step = ? AND phase = ?',
                                           (step, phase)).fetchone()[0]
    return [dict(forward=flops(i, 'forward'), backward=flops(i, 'backward'), micro_batches=m, rows=rows)
            for i, m, rows in db.execute('SELECT id, micro_batches, tokens FROM step ORDER BY id')]


def check(tmp_path, options, program=PROGRAM):
    truth, db = trace(tmp_path, options, program)
    assert wrong_classes(truth, db) == []
    assert steps(db) == truth['steps']
    by_phase = dict(db.execute('SELECT phase, sum(flops) FROM op_cost WHERE matmul GROUP BY phase'))
    assert by_phase.get('evaluation', 0) == truth['evaluation']
    assert sum(by_phase.values()) == truth['evaluation'] + sum(s['forward'] + s['backward'] for s in truth['steps'])
    return truth, db


MOULDS = """
update=sgd
accum=4
accum=4 zero=memset
accum=2 zero=scal
accum=2 zero=geam bias=1
accum=4 add=1
eval=2
eval=1 accum=2
cut=forward
cut=backward
cut=forward accum=2
cut=forward tied=1 layers=2
cut=forward tied=1 layers=2 models=2
update=decay
update=adam
update=momentum
update=geam
update=ema
update=clip
update=master
update=master accum=2 eval=1
models=2 update=momentum
tied=1 layers=2
tied=1 layers=2 dx=last accum=3 zero=memset
frozen=0
frozen=1 update=momentum
data=fixed
data=double accum=2
data=double prepare=1 models=2 steps=2
prepare=1
last=8
train=0
grads=block update=momentum
alloc=step accum=3
alloc=async
alloc=step eval=2 update=adam
bias=1 accum=2 update=momentum
checkpoint=1 eval=1
skip=1
skip=2 accum=2
dim=32 batch=32 accum=2 zero=memset
layers=1
layers=5 update=momentum zero=memset
steps=1
steps=1 update=adam
steps=2 update=momentum
dx=last
loss=axpy
loss=axpy accum=4 add=1
loss=axpy tied=1 layers=2 update=momentum
loss=axpy steps=1
loss=axpy prepare=1 alloc=step
loss=target
loss=target alloc=async accum=2
loss=geam update=momentum
loss=host
loss=host update=momentum
loss=host layers=1 data=fixed
loss=host tied=1 layers=2 dx=last accum=2
"""


@pytest.mark.parametrize('options', MOULDS.strip().splitlines())
def test_mould(tmp_path, options):
    check(tmp_path, options)


@pytest.mark.parametrize('options', ['train=0 data=fixed', 'frozen=0 data=fixed'])
def test_what_cannot_be_told_has_no_high_confidence(tmp_path, options):
    """A batch that is never renewed, times a weight that is never updated: nothing tells one from the other."""
    truth, db = trace(tmp_path, options)
    assert all(w[0] == 'x' and w[3] <= 0.6 for w in wrong_classes(truth, db))


OWN = os.path.join(BUILD, 'tests', 'train_own_products')


@pytest.mark.parametrize('options', ['', 'layers=4 dim=48 rows=24', 'accum=3', 'eval=2', 'layers=5 dim=128 rows=64 accum=2 eval=1'])
def test_forward_by_kernels_of_the_programs_own(tmp_path, options):
    """Which way round cuBLAS reads a weight says nothing there of forward: backward alone reads it so."""
    truth, db = trace(tmp_path, options, OWN)
    assert wrong_classes(truth, db) == []
    found = steps(db)
    assert [s['backward'] for s in found] == [s['backward'] for s in truth['steps']]
    assert [(s['micro_batches'], s['rows']) for s in found] == [(s['micro_batches'], s['rows']) for s in truth['steps']]
    of_kernel = """SELECT step, sum(c.flops), min(grade), max(grade) FROM op_cost c JOIN launch l ON l.op = c.op JOIN kernel k ON k.id = l.kernel
                   WHERE k.name LIKE '%linear_kernel%' AND phase = 'forward' GROUP BY step ORDER BY step"""
    assert db.execute(of_kernel).fetchall() == [(i, s['forward'], 'exact', 'exact') for i, s in enumerate(truth['steps'])]
