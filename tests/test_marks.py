"""Markers (NVTX ranges, acct.h), tags, windows and collectives, on synthetic traces of the lecture's model. What is expected follows
from where the markers were put, and from the model's formulas."""
import contextlib, json, os, random, re, sqlite3, subprocess
import pytest
import oracle_adapter
from conftest import BUILD, TOP
from lecture_model import Linear, HOST
from trace_maker import Maker


def analyzed(path):
    oracle_adapter.analyze(path)
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    return db


def steps(db):
    return db.execute('SELECT * FROM step ORDER BY id').fetchall()


def notes(db):
    row = db.execute("SELECT value FROM meta WHERE key = 'mark_notes'").fetchone()
    return row[0].splitlines() if row else []


def flops(db, where='1', *args):
    return db.execute(f'SELECT coalesce(sum(flops), 0) FROM op_cost WHERE matmul AND {where}', args).fetchone()[0]


def by_class(db):
    return dict(db.execute("SELECT class, sum(c.bytes) FROM alloc_class c JOIN alloc a ON a.id = c.alloc GROUP BY class"))


class Marked(Linear):
    """`step`: name of the range around a step (a function of its number), `group` steps in one; `phases`: the names of forward,
    backward, optimizer; only steps in `only` are marked."""

    def __init__(self, path, step=None, group=1, phases=None, only=None, copies=0, end_last=True, source='nvtx', backward_thread=False,
                 **how):
        self.step_name, self.group, self.phases, self.only, self.copies = step, group, phases, only, copies
        self.end_last, self.source, self.backward_thread = end_last, source, backward_thread
        self.number, self.ranges, self.phase, self.other_thread, self.total = 0, [], None, None, how.get('steps', 4)
        super().__init__(path, **how)

    def marked(self):
        return self.only is None or self.number in self.only

    def begin_phase(self, i):
        if self.phase is not None:
            self.t.end(self.phase)
        self.phase = self.t.begin(self.phases[i], source=self.source) if i is not None and self.phases[i] else None

    def step(self):
        t = self.t
        if self.step_name and self.marked() and self.number % self.group == 0:
            name = self.step_name(self.number)
            self.ranges.append(t.begin(name, source=self.source))
            self.more = [t.begin(name, thread=0 if c % 2 else None) for c in range(self.copies)]
        if self.phases and self.marked():
            self.begin_phase(0)
        super().step()
        t.thread = 1
        if self.phase is not None:
            self.begin_phase(None)
        last = self.number == self.total - 1
        if self.step_name and self.marked() and (self.number + 1) % self.group == 0:
            for r in self.more:
                t.end(r)
            if not last or self.end_last:
                t.end(self.ranges[-1])
        self.number += 1

    def point(self, name):
        if name == 'forward':
            if self.phases and self.marked():
                self.begin_phase(1)
            if self.backward_thread:
                self.other_thread = self.other_thread or self.t.new_thread()
                self.t.thread = self.other_thread
        if name == 'optimizer':
            self.t.thread = 1
            if self.phases and self.marked():
                self.begin_phase(2)
        super().point(name)


NAMES = ['step 12', 'TrainStep 4', 'ProfilerStep#9'] # more names: tests/unit/test_mark_names.c


@pytest.mark.parametrize('name', NAMES)
def test_step_names(tmp_path, name):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: name, steps=3)
    db = analyzed(m.t.path)
    s = steps(db)
    assert [r['found_by'] for r in s] == ['nvtx'] * 3
    assert [(r['start_ns'], r['end_ns']) for r in s] == [(r[9], r[10]) for r in m.ranges]
    assert by_class(db) == m.expected_bytes()
    for r in s:
        assert flops(db, 'step = ?', r['id']) == sum(m.expected_flops()) and r['complete'] and r['micro_batches'] == 1


@pytest.mark.parametrize('name', ['stepper', 'x' * 5000])
def test_names_that_say_nothing(tmp_path, name):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: name, group=2)
    db = analyzed(m.t.path)
    assert [r['found_by'] for r in steps(db)] == ['update'] * 4 and notes(db) == []


def test_numbers_differ(tmp_path):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: f'ProfilerStep#{i}')
    db = analyzed(m.t.path)
    assert len(steps(db)) == 4
    assert notes(db) == ["4 step(s) are those of NVTX ranges 'ProfilerStep#N'."]


def test_markers_win_over_updates(tmp_path):
    """Two updates in one marked iteration: one step, with the work of both."""
    m = Marked(str(tmp_path / 't.db'), step=lambda i: f'iteration {i}', group=2, steps=6)
    db = analyzed(m.t.path)
    s = steps(db)
    assert len(s) == 3 and [r['micro_batches'] for r in s] == [2] * 3
    assert [flops(db, 'step = ?', r['id']) for r in s] == [2 * sum(m.expected_flops())] * 3
    assert notes(db) == ["3 step(s) are those of NVTX ranges 'iteration N'; by the rules there would be 6."]
    assert by_class(db) == m.expected_bytes()


def test_rules_do_the_rest(tmp_path):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: 'step', only=[2, 3], steps=6)
    db = analyzed(m.t.path)
    s = steps(db)
    assert [r['found_by'] for r in s] == ['update', 'update', 'nvtx', 'nvtx', 'update', 'update']
    assert [flops(db, 'step = ?', r['id']) for r in s] == [sum(m.expected_flops())] * 6
    assert s[4]['start_ns'] == s[3]['end_ns'] == m.ranges[-1][10]
    assert notes(db) == ["2 step(s) are those of NVTX ranges 'step', the other 4 the rules'."]


PHASES = [('forward', 'backward', 'optimizer'), ('Forward pass', 'loss.backward', 'Optimizer.step#SGD.step')]


@pytest.mark.parametrize('step', [None, lambda i: 'step'])
@pytest.mark.parametrize('names', PHASES)
def test_phases(tmp_path, names, step):
    """The loss lies in the range `backward`: the rules call it forward, the marker wins."""
    m = Marked(str(tmp_path / 't.db'), step=step, phases=names)
    db = analyzed(m.t.path)
    s = steps(db)
    assert [r['found_by'] for r in s] == ['nvtx' if step else 'update'] * 4
    for r in s:
        p = db.execute('SELECT name, found_by, first_op, micro_batch FROM phase WHERE step = ? ORDER BY start_ns', (r['id'],)).fetchall()
        assert [(x['name'], x['found_by'], x['micro_batch']) for x in p] == [(n, 'nvtx', 0) for n in ('forward', 'backward', 'optimizer')]
        loss = db.execute("SELECT min(op) FROM blas WHERE routine = 'geam' AND op >= ? AND op <= ?", (r['first_op'], r['last_op'])).fetchone()[0]
        assert p[1]['first_op'] == loss
    assert flops(db, "phase = 'forward'") == 4 * m.expected_flops()[0]
    assert any("the rules see 8 op(s) otherwise" in n for n in notes(db))       # geam and dot of each step
    assert by_class(db)['param'] == m.expected_bytes()['param']


def test_part_of_the_phases(tmp_path):
    m = Marked(str(tmp_path / 't.db'), phases=(None, None, 'optimizer'))
    db = analyzed(m.t.path)
    assert {(r[0], r[1]) for r in db.execute('SELECT name, found_by FROM phase')} == {('forward', 'rules'), ('backward', 'rules'), ('optimizer', 'nvtx')}


def test_copies_do_not_double(tmp_path):
    """Ranges of the same name nested in themselves, and copies without a thread (a device's time line)."""
    m = Marked(str(tmp_path / 't.db'), step=lambda i: f'ProfilerStep#{i}', copies=3)
    db = analyzed(m.t.path)
    assert len(steps(db)) == 4 and [flops(db, 'step = ?', i) for i in range(4)] == [sum(m.expected_flops())] * 4
    assert notes(db) == ["4 step(s) are those of NVTX ranges 'ProfilerStep#N'."]


def test_never_ended(tmp_path):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: 'step', end_last=False)
    db = analyzed(m.t.path)
    s = steps(db)
    assert [r['complete'] for r in s] == [1, 1, 1, 0]
    assert flops(db, 'step = 3') == sum(m.expected_flops())
    assert '1 marked step(s) or phase(s) never ended: they are taken to last until the next.' in notes(db)


def test_backward_in_a_thread_of_its_own(tmp_path):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: 'step', phases=PHASES[0], backward_thread=True)
    db = analyzed(m.t.path)
    assert db.execute("SELECT count(DISTINCT thread) FROM op JOIN op_cost ON op.id = op WHERE phase = 'backward'").fetchone()[0] == 1
    assert [flops(db, "step = ? AND phase = 'backward'", i) for i in range(4)] == [m.expected_flops()[1]] * 4


def test_step_that_is_the_optimizer(tmp_path):
    """DeepSpeed's ranges: forward, backward, step."""
    m = Marked(str(tmp_path / 't.db'), phases=('forward', 'backward', 'step'))
    db = analyzed(m.t.path)
    assert [r['found_by'] for r in steps(db)] == ['update'] * 4
    assert {r[0] for r in db.execute("SELECT found_by FROM phase WHERE name = 'optimizer'")} == {'nvtx'}
    assert any("'step' are taken for the optimizer's" in n for n in notes(db))


def test_contradicting_threads(tmp_path):
    """Two threads train models of their own at the same time, in ranges of their own: those of the busier count, and it is said."""
    t = Maker(str(tmp_path / 't.db'))
    other = t.new_thread()
    for a in range(6):
        t.alloc(0x10000 * (a + 1), 64 * 64 * 4)
    k = lambda i: 0x10000 * (i + 1)
    for s in range(3):
        mine = t.begin('step')
        theirs = t.begin('step', thread=other)
        for g in range(3):
            t.gemm(m=64, n=64, k=64, a=k(0), b=k(1), c=k(2), lda=64, ldb=64, ldc=64)
        t.thread = other
        t.gemm(m=64, n=64, k=64, a=k(3), b=k(4), c=k(5), lda=64, ldb=64, ldc=64)
        t.thread = 1
        t.end(mine), t.end(theirs)
    db = analyzed(t.close())
    assert [flops(db, 'step = ?', i) for i in range(3)] == [3 * 2 * 64 ** 3] * 3 and len(steps(db)) == 3
    assert any('3 marked step(s) overlap' in n for n in notes(db))


def test_overlapping_steps(tmp_path):
    m = Marked(str(tmp_path / 't.db'))
    db = sqlite3.connect(m.t.path)
    first = [m.end[i] for i in range(4)]        # calls up to the end of each step
    at = lambda call: (call + 1) * 1000 - 300
    for i, (a, z) in enumerate([(0, first[0] + 1), (first[0], first[1]), (first[1], first[2]), (first[2], first[3])]):
        db.execute("INSERT INTO range VALUES(?, 1, 1, 'nvtx', 'start', NULL, 'step', NULL, NULL, ?, ?)", (i + 1, at(a), at(z)))
    db.commit()
    db.close()
    db = analyzed(m.t.path)
    assert len(steps(db)) == 4
    assert any('1 marked step(s) begin before the one before has ended' in n for n in notes(db))
    s = steps(db)
    assert s[1]['start_ns'] == s[0]['end_ns']


def test_evaluation_is_in_no_step(tmp_path):
    """A forward pass, marked as evaluation, within the marked step."""
    class Evaluating(Marked):
        def point(self, name):
            super().point(name)
            if name == 'optimizer':
                with self.t.range('validation'), self.t.range('forward'):
                    self.forward()
    m = Evaluating(str(tmp_path / 't.db'), step=lambda i: 'step')
    db = analyzed(m.t.path)
    assert flops(db, "phase = 'evaluation' AND step IS NULL") == 4 * m.expected_flops()[0]
    assert [flops(db, 'step = ?', i) for i in range(4)] == [sum(m.expected_flops())] * 4


def test_forward_within_backward_is_recompute(tmp_path):
    class Recomputing(Marked):
        def point(self, name):
            super().point(name)
            if name == 'backward':
                with self.t.range('forward'):
                    self.product(self.W[1], self.h[0], self.h[1], self.D, self.B, self.D)
    m = Recomputing(str(tmp_path / 't.db'), step=lambda i: 'step', phases=('forward', 'backward', 'optimizer'))
    db = analyzed(m.t.path)
    assert [flops(db, "step = ? AND phase = 'recompute'", i) for i in range(4)] == [2 * m.D * m.D * m.B] * 4
    assert [r['micro_batches'] for r in steps(db)] == [1] * 4


def test_micro_batches(tmp_path):
    """Two forward-backward rounds, then one update, all marked."""
    class Accumulating(Marked):
        def point(self, name):
            super().point(name)
            if name == 'optimizer' and not self.again:
                self.again = True
                self.begin_phase(0)
                self.forward()
                self.begin_phase(1)
                for i in reversed(range(self.L)):
                    self.t.gemm(trans_a='N', trans_b='T', m=self.D, n=self.D, k=self.B, a=self.d[0], b=self.x, c=self.g[i], lda=self.D,
                                ldb=self.D, ldc=self.D, beta='one')
                self.begin_phase(2)

        def step(self):
            self.again = False
            super().step()
    m = Accumulating(str(tmp_path / 't.db'), phases=PHASES[0], step=lambda i: 'step')
    db = analyzed(m.t.path)
    assert [r['micro_batches'] for r in steps(db)] == [2] * 4
    one, dw = m.expected_flops()[0], 2 * m.D * m.D * m.B * m.L
    assert [flops(db, 'step = 1 AND micro_batch = ? AND phase = ?', i, p) for i in (0, 1) for p in ('forward', 'backward')] == \
        [one, m.expected_flops()[1], one, dw]


def kernels_only(path, marks=True):
    """A program without matrix products: kernels of which nobody knows what they do; two steps of two micro-batches."""
    t = Maker(path)
    for a in (0x1000, 0x2000, 0x3000):
        t.alloc(a, 256)
    with contextlib.ExitStack() if not marks else t.range('whole'):
        for s in range(2):
            for mb in range(2):
                with t.range('forward'):
                    t.launch('conv', [(0x1000, 'r', 256), (0x2000, 'w', 256)])
                with t.range('backward'):
                    t.launch('conv_grad', [(0x2000, 'r', 256), (0x3000, 'w', 256)])
            with t.range('optimizer'):
                t.launch('sgd', [(0x3000, 'r', 256), (0x1000, 'rw', 256)])
        with t.range('forward'):
            t.launch('conv', [(0x1000, 'r', 256), (0x2000, 'w', 256)])
    return t.close()


def test_steps_by_marked_phases(tmp_path):
    db = analyzed(kernels_only(str(tmp_path / 't.db')))
    s = steps(db)
    assert [(r['micro_batches'], r['complete'], r['found_by']) for r in s] == [(2, 1, 'nvtx'), (2, 1, 'nvtx'), (1, 0, 'nvtx')]
    assert [r[0] for r in db.execute('SELECT count(*) FROM op_cost GROUP BY step ORDER BY step')] == [5, 5, 1]
    assert [tuple(r) for r in db.execute("SELECT step, name, micro_batch FROM phase WHERE step = 0 ORDER BY start_ns")] == \
        [(0, 'forward', 0), (0, 'backward', 0), (0, 'forward', 1), (0, 'backward', 1), (0, 'optimizer', 0)]


def test_inference_by_markers(tmp_path):
    """No update anywhere; the marked steps hold two passes each."""
    t = Maker(str(tmp_path / 't.db'))
    W, x, y, n = 0x100000, 0x200000, 0x300000, 64 * 64 * 4
    for a in (W, x, y):
        t.alloc(a, n)
    t.copy('h2d', W, HOST, n)
    for s in range(3):
        with t.range(f'step {s}'):
            for p in range(2):
                t.copy('h2d', x, HOST, n)
                t.gemm(m=64, n=64, k=64, a=W, b=x, c=y, lda=64, ldb=64, ldc=64)
    db = analyzed(t.close())
    assert [(r['found_by'], r['complete']) for r in steps(db)] == [('nvtx', 1)] * 3
    assert [flops(db, "step = ? AND phase = 'forward'", i) for i in range(3)] == [2 * 2 * 64 ** 3] * 3


def test_moments_of_acct_h(tmp_path):
    """acct_step() and acct_phase() set moments: a step lasts to the next."""
    class Moments(Linear):
        def step(self):
            self.t.mark('step', source='acct.h')
            self.t.mark('forward', source='acct.h')
            super().step()

        def point(self, name):
            if name in ('forward', 'optimizer'):
                self.t.mark('backward' if name == 'forward' else name, source='acct.h')
            super().point(name)
    m = Moments(str(tmp_path / 't.db'))
    db = analyzed(m.t.path)
    s = steps(db)
    assert [(r['found_by'], r['complete']) for r in s] == [('acct.h', 1)] * 4
    assert [flops(db, 'step = ?', i) for i in range(4)] == [sum(m.expected_flops())] * 4
    assert {r[0] for r in db.execute('SELECT found_by FROM phase')} == {'acct.h'}
    assert all(a['end_ns'] == b['start_ns'] for a, b in zip(s, s[1:]))


def test_device_time_of_marked_steps(tmp_path):
    """A step's device time does not hold what runs between marked steps; steps that follow each other directly leave no gap."""
    t = Maker(str(tmp_path / 't.db'))
    kernel = t.kernel('k', [], None)
    starts = []
    for name in ('step', None, 'step', 'step'):
        with t.range(name) if name else contextlib.nullcontext():
            for _ in range(2):
                i = t.launch_kernel(kernel, b'', external=t.n + 1)
                t.correlation(i + 1, i + 1)
                t.activity(i + 1, (i + 1) * 1000 + 700, (i + 1) * 1000 + 900)
        starts.append((i * 1000 + 700, (i + 1) * 1000 + 900))
    got = [(r['device_start_ns'], r['device_end_ns']) for r in steps(analyzed(t.close()))]
    assert got == [starts[0], starts[2], (starts[2][1], starts[3][1])]


def test_old_trace_without_the_tables(tmp_path):
    m = Linear(str(tmp_path / 't.db'))
    db = sqlite3.connect(m.t.path)
    for t in ('range', 'tag', 'stack', 'frame', 'op_stack', 'window', 'collective'):
        db.execute(f'DROP TABLE "{t}"')
    db.execute('ALTER TABLE step DROP COLUMN found_by')
    db.commit()
    db.close()
    db = analyzed(m.t.path)
    assert by_class(db) == m.expected_bytes() and [r['found_by'] for r in steps(db)] == ['update'] * 4


def test_report_says_it(tmp_path):
    m = Marked(str(tmp_path / 't.db'), step=lambda i: f'step {i}')
    run = lambda f: subprocess.run([os.path.join(BUILD, 'acct'), 'report', '--format', f, m.t.path], capture_output=True, text=True, check=True, timeout=60).stdout
    report = json.loads(run('json'))
    assert [s['found_by'] for s in report['steps']] == ['nvtx'] * 4
    assert "4 step(s) are those of NVTX ranges 'step N'." in report['notes']
    assert "4 step(s) are those of NVTX ranges 'step N'." in run('text')


# ---- tags ---------------------------------------------------------------------------------------------------------------------

def rows(db, alloc):
    return [tuple(r) for r in db.execute('SELECT offset, bytes, from_ns, until_ns, class, confidence, rule FROM alloc_class WHERE alloc = ? '
                                         'ORDER BY offset, coalesce(from_ns, 0)', (alloc,))]


def test_tag_settles_a_class(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, 1000) + 1
    b = t.alloc(0x20000, 1000) + 1
    t.tag(0x10000, 1000, 'param')
    t.tag(0x20000 + 100, 50, ' Optimizer ')
    t.tag(0x20000 + 500, 9999, 'grad')         # leaves its block
    t.tag(0x20000 + 10, 10, 'my_buffer')       # a name, no class
    t.tag(0x90000, 10, 'param')                # nothing lies there
    t.launch('k', [(0x10000, 'rw', 1000)])
    db = analyzed(t.close())
    assert rows(db, a) == [(0, 1000, None, None, 'param', 1.0, 'tagged by the program')]
    untouched = float(re.search(r'RULE\(UNTOUCHED, AT_UNKNOWN, "never accessed", ([\d.]+)', open(os.path.join(TOP, 'analyzer/attr_rules.h')).read())[1])
    assert [(r[0], r[1], r[4], r[5]) for r in rows(db, b)] == [(0, 100, 'unknown', untouched), (100, 50, 'optimizer', 1.0),
                                                              (150, 350, 'unknown', untouched), (500, 500, 'grad', 1.0)]


def test_later_tag_holds_from_then_on(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, 1000) + 1
    t.tag(0x10000, 600, 'activation')
    t.launch('k', [(0x10000, 'rw', 1000)])
    t.tag(0x10000 + 400, 400, 'grad')
    t.launch('k', [(0x10000, 'rw', 1000)])
    path = t.close()
    second = sqlite3.connect(path).execute('SELECT max(ns) FROM tag').fetchone()[0]
    got = [r[:5] for r in rows(analyzed(path), a)]
    assert got[:4] == [(0, 400, None, None, 'activation'), (400, 200, None, second, 'activation'), (400, 200, second, None, 'grad'),
                       (600, 200, None, None, 'grad')]
    assert sum(b for o, b, f, u, c in got if u is None) == 1000


def test_address_used_again(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, 64) + 1
    t.tag(0x10000, 64, 'param')
    t.free(0x10000)
    b = t.alloc(0x10000, 64) + 1
    t.tag(0x10000, 64, 'workspace')
    db = analyzed(t.close())
    assert [rows(db, i)[0][4] for i in (a, b)] == ['param', 'workspace']


def test_random_tags_against_a_picture(tmp_path):
    """Many overlapping tags over one block; every byte at every moment against a plain table."""
    rnd, n, classes = random.Random(5), 60, ['param', 'grad', 'input', 'temporary', 'other']
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, n) + 1
    said = []
    for i in range(40):
        off = rnd.randrange(n)
        b = rnd.randrange(1, n - off + 1)
        c = rnd.choice(classes)
        t.tag(0x10000 + off, b, c)
        said.append((t.rows['tag'][-1][3], off, b, c))
        if rnd.random() < 0.3:
            t.memset(0x10000 + rnd.randrange(n), 1)
    db = analyzed(t.close())
    got = rows(db, a)
    moments = [0] + [s[0] for s in said] + [10 ** 9]
    for ns in moments:
        for byte in range(n):
            covering = [s for s in said if s[1] <= byte < s[1] + s[2]]
            then = [s for s in covering if s[0] <= ns] or covering[:1]
            have = [r[4] for r in got if r[0] <= byte < r[0] + r[1] and (r[2] is None or r[2] <= ns) and (r[3] is None or ns < r[3])]
            assert len(have) == 1
            if then:
                assert have[0] == then[-1][3], (ns, byte)


# ---- windows -----------------------------------------------------------------------------------------------------------------

def cut_to_window(path, first, last, why='cudaProfilerStart'):
    """Removes the calls before `first` and after `last` but for allocations and copies into weights, as a window leaves them out."""
    db = sqlite3.connect(path)
    ids = f"(SELECT id FROM op WHERE (id <= {first} OR id > {last}) AND kind NOT IN ('alloc', 'free'))"
    for t in ('gemm', 'blas', 'copy', 'memset', 'launch'):
        db.execute(f'DELETE FROM {t} WHERE op IN {ids}')
    db.execute(f'DELETE FROM op WHERE id IN {ids}')
    db.execute("INSERT INTO window VALUES(1, 1, ?, ?, ?)", ((first + 1) * 1000 - 500, (last + 1) * 1000 - 500, why))
    db.commit()
    db.close()


def test_window_that_begins_in_mid_step(tmp_path):
    m = Linear(str(tmp_path / 't.db'), steps=6)
    middle = m.end[0] + 9                       # a forward of 6 products and its input, then the loss: backward has begun
    cut_to_window(m.t.path, middle + 3, m.end[4])
    db = analyzed(m.t.path)
    assert [r['complete'] for r in steps(db)] == [0, 1, 1, 1]
    assert [flops(db, 'step = ?', i) for i in range(1, 4)] == [sum(m.expected_flops())] * 3
    assert any('begins in the middle of a step: 1 step(s)' in n for n in notes(db))
    assert any('Only a part of the run was recorded: 1 window(s), cudaProfilerStart.' == n for n in notes(db))


def test_window_of_whole_steps(tmp_path):
    m = Linear(str(tmp_path / 't.db'), steps=6)
    cut_to_window(m.t.path, m.end[0], m.end[3], 'steps:2-4')
    db = analyzed(m.t.path)
    assert [r['complete'] for r in steps(db)] == [1, 1, 1]
    assert notes(db) == ['Only a part of the run was recorded: 1 window(s), steps:N-N.']


# ---- collectives --------------------------------------------------------------------------------------------------------------

class DataParallel(Linear):
    """Each weight's gradient is summed over the ranks, in place, when backward is done."""
    def point(self, name):
        if name == 'optimizer':
            for g in self.g:
                self.t.collective('all_reduce', self.D * self.D, g, g, reduction='sum')
        super().point(name)


def test_data_parallel(tmp_path):
    m = DataParallel(str(tmp_path / 't.db'))
    db = analyzed(m.t.path)
    assert by_class(db) == m.expected_bytes()
    assert len(steps(db)) == 4
    n = m.D * m.D * 4
    got = db.execute("SELECT b.slot, b.mode, b.bytes, c.phase, c.flops, c.bytes_read, c.bytes_written FROM op JOIN op_buffer b ON b.op = op.id "
                     "JOIN op_cost c ON c.op = op.id WHERE op.kind = 'collective'").fetchall()
    assert len(got) == 4 * m.L
    assert {tuple(r) for r in got} <= {('receive', 'rw', n, p, 0, n, n) for p in ('backward', 'optimizer')}


CALLS = [ # operation, send, receive (offsets), rank, root: (slot, offset, elements, mode)
    ('all_reduce', 0, 1000, 1, None, {('send', 0, 8, 'r'), ('receive', 1000, 8, 'w')}),
    ('all_reduce', 0, 0, 1, None, {('receive', 0, 8, 'rw')}),
    ('all_gather', 0, 1000, 1, None, {('send', 0, 8, 'r'), ('receive', 1000, 32, 'w')}),
    ('all_gather', 1000 + 32, 1000, 1, None, {('send', 1032, 8, 'r'), ('receive', 1000, 8, 'w'), ('receive+', 1064, 16, 'w')}),
    ('reduce_scatter', 0, 1000, 2, None, {('send', 0, 32, 'r'), ('receive', 1000, 8, 'w')}),
    ('reduce_scatter', 0, 64, 2, None, {('receive', 64, 8, 'rw'), ('send', 0, 16, 'r'), ('send+', 96, 8, 'r')}),
    ('broadcast', 0, 0, 0, 0, {('send', 0, 8, 'r')}),
    ('broadcast', 0, 0, 1, 0, {('receive', 0, 8, 'w')}),
    ('broadcast', 0, 0, None, 0, {('receive', 0, 8, '?')}),
    ('reduce', 0, 1000, 1, 0, {('send', 0, 8, 'r')}),
    ('reduce', 0, 1000, 0, 0, {('send', 0, 8, 'r'), ('receive', 1000, 8, 'w')}),
    ('all_to_all', 0, 1000, 1, None, {('send', 0, 32, 'r'), ('receive', 1000, 32, 'w')}),
    ('send', 0, 0, 1, 2, {('send', 0, 8, 'r')}),
    ('receive', 0, 1000, 1, 2, {('receive', 1000, 8, 'w')}),
    ('something_new', 0, 1000, 1, None, {('send', 0, None, 'r'), ('receive', 1000, None, '?')}),
]


def test_what_a_collective_touches(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    for i, (operation, send, receive, rank, root, _) in enumerate(CALLS):
        base = 0x10000 * (i + 1)
        t.alloc(base, 4096)
        t.collective(operation, 8, base + send, base + receive, ranks=4, rank=rank, root=root)
    db = analyzed(t.close())
    for i, call in enumerate(CALLS):
        base = 0x10000 * (i + 1)
        got = {(r[0], r[1] - base, r[2] // 4 if r[2] is not None else None, r[3])
               for r in db.execute('SELECT slot, address, bytes, mode FROM op_buffer WHERE op = ?', (2 * i + 2,))}
        assert got == call[5], call


# ---- hostile ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('seed', range(6))
def test_hostile_rows(tmp_path, seed):
    """Whatever the tables hold: the analysis ends, each step's ops are in order, and every byte keeps one class."""
    rnd = random.Random(seed)
    m = Linear(str(tmp_path / 't.db'), D=32, layers=2, B=4)
    names = ['step', 'forward', 'backward', 'optimizer', 'validation', 'recompute', None, 'x', b'\xff\xfe step', 'step ' * 40]
    big = [None, 0, -1, 2 ** 63 - 1, -2 ** 63]
    ns = lambda: rnd.choice(big) if rnd.random() < 0.15 else rnd.randrange(0, m.t.n * 1000 + 3000)
    db = sqlite3.connect(m.t.path)
    for i in range(60):
        db.execute('INSERT INTO range VALUES(NULL, 1, ?, ?, ?, NULL, ?, NULL, NULL, ?, ?)',
                   (rnd.choice([1, 2, None, 77]), rnd.choice(['nvtx', 'acct.h', '']), rnd.choice(['push', 'start', 'mark']), rnd.choice(names), ns(), ns()))
        db.execute('INSERT INTO tag VALUES(NULL, 1, 1, ?, ?, ?, ?)', (ns(), m.W[0] + rnd.choice([0, 5, 2 ** 40, -9]), rnd.choice([1, 0, -4, 100, 2 ** 62]),
                                                                   rnd.choice(['param', 'grad', None, 'q'])))
        db.execute('INSERT INTO window VALUES(NULL, 1, ?, ?, ?)', (ns(), ns(), rnd.choice(['steps:1-2', None])))
    db.commit()
    db.close()
    db = analyzed(m.t.path)
    last = -1
    for r in steps(db):
        assert r['id'] > last and r['first_op'] <= r['last_op']
        last = r['id']
    for alloc, n, in db.execute('SELECT id, bytes FROM alloc'):
        assert sum(r[1] for r in rows(db, alloc) if r[3] is None) == n
