"""How analysis and report grow with a trace's length, on synthetic traces of bench_analyze, which knows what must be found; and
what makes them fast: operands in sets that ops share, sums written with op_cost. Each is compared with the plain way."""
import os, resource, shutil, sqlite3, subprocess
import pytest
from conftest import BUILD
from trace_maker import Maker

ACCT, BENCH = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'bench', 'bench_analyze')
OP_BUFFER_TABLE = """CREATE TABLE op_buffer(op INTEGER NOT NULL REFERENCES op(id), slot TEXT NOT NULL, alloc INTEGER REFERENCES alloc(id),
  address INTEGER, bytes INTEGER, mode TEXT NOT NULL, PRIMARY KEY(op, slot)) WITHOUT ROWID"""


def made(path, calls, per_step):
    subprocess.run([BENCH, '--make', path, str(calls), str(per_step)], check=True)
    return path


def cost(*argv):
    """CPU seconds, and peak memory in bytes."""
    with open(os.devnull, 'w') as null:
        p = subprocess.Popen(argv, stdout=null)
        _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0, argv
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def rows(path, table):
    with sqlite3.connect(path) as db:
        return sorted(db.execute(f'SELECT * FROM {table}').fetchall(), key=repr)


@pytest.mark.parametrize('per_step', (0, 13)) # all activations live for ever; all are allocated in each step
def test_what_is_found_is_right(per_step):
    r = subprocess.run([BENCH, '8000', str(per_step)], stdout=subprocess.PIPE, text=True)
    assert r.returncode == 0 and 'wrong' not in r.stdout, r.stdout


def test_growth_is_linear(tmp_path):
    """Ten times the calls take no more than 2.2 times ten times the time of a call (other programs disturb), and bounded memory."""
    small, large = (made(str(tmp_path / f'{n}.db'), n, 5) for n in (15000, 150000))
    few, few_bytes = cost(ACCT, 'report', small)
    many, many_bytes = cost(ACCT, 'report', large)
    assert many < 22 * few, f'{few:.2f} s of 15,000 calls, {many:.2f} s of 150,000'
    assert (many_bytes - few_bytes) / 135000 < 700, f'{(many_bytes - few_bytes) / 135000:.0f} bytes a call'
    again, _ = cost(ACCT, 'report', large) # analysed by now
    assert again < 0.7 * many, f'{again:.2f} s for the report alone, {many:.2f} s with the analysis'


def test_reports_by_sums_and_by_ops_agree(tmp_path):
    path = made(str(tmp_path / 'a.db'), 4000, 5)
    report = lambda: [subprocess.run([ACCT, 'report', *f, path], stdout=subprocess.PIPE, text=True, check=True).stdout
                      for f in ((), ('--format=json',))]
    by_sums = report()
    with sqlite3.connect(path) as db:
        ops, kinds = db.execute('SELECT sum(ops), count(*) FROM op_sum').fetchone()
        assert ops == db.execute('SELECT count(*) FROM op_cost').fetchone()[0] and kinds < ops / 10
        flops = 'SELECT step, phase, dtype, {} FROM {} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3'
        assert db.execute(flops.format('sum(matmul_flops), sum(flops - matmul_flops)', 'op_cost')).fetchall() == \
            db.execute(flops.format('sum(matmul_flops), sum(other_flops)', 'step_sum')).fetchall()
        db.executescript('DELETE FROM op_sum; DELETE FROM step_sum')
    assert report() == by_sums


def test_a_change_by_hand_ends_the_sums(tmp_path):
    path = made(str(tmp_path / 'a.db'), 1000, 0)
    cost(ACCT, 'analyze', path)
    with sqlite3.connect(path) as db:
        assert db.execute('SELECT count(*) > 0 FROM op_sum').fetchone() == (1,)
        db.execute('UPDATE op_cost SET flops = 0 WHERE op = (SELECT max(op) FROM op_cost)')
        assert db.execute('SELECT (SELECT count(*) FROM op_sum) + (SELECT count(*) FROM step_sum)').fetchone() == (0,)


def test_ops_share_sets(tmp_path):
    """In each step there are other allocations at the same addresses: op_buffer names them, its sets are those of a step."""
    path = made(str(tmp_path / 'a.db'), 8000, 13)
    cost(ACCT, 'analyze', path)
    with sqlite3.connect(path) as db:
        sets, ops = db.execute('SELECT count(DISTINCT buffers), count(*) FROM op_set').fetchone()
        steps, = db.execute('SELECT count(*) FROM step').fetchone()
        assert sets < 2 * ops / steps + 200
        wrong, shown = db.execute('''SELECT sum(NOT (a.alloc_ns <= o.start_ns AND (a.free_ns IS NULL OR a.free_ns >= o.start_ns)
            AND b.address >= a.address AND b.address + b.bytes <= a.address + a.bytes)), count(*)
            FROM op_buffer b JOIN op o ON o.id = b.op JOIN alloc a ON a.id = b.alloc''').fetchone()
        assert wrong == 0 and shown > 2 * ops
        # products: as their events tell it
        assert db.execute('''SELECT count(*) FROM gemm g JOIN op_buffer b ON b.op = g.op AND b.slot = 'A' WHERE b.address <> g.a
            OR b.mode <> 'r' ''').fetchone() == (0,)


def program(path):
    """Two launches that the trace's writer tells itself, and two equal products, one of them with a bias told so."""
    t = Maker(path)
    for k in range(3):
        t.alloc(0x10000 + 0x10000 * k, 4096)
    t.launch('f', [(0x10000, 'w', 4096), (0x20000, '?', None)])
    t.launch('f', [(0x10000, 'w', 4096), (0x20000, '?', None)])
    for _ in range(2):
        i = t.gemm(m=32, n=32, k=32, a=0x10000, b=0x20000, c=0x30000, lda=32, ldb=32, ldc=32)
    t.buffer(i, 'bias', 0x20000, 128, 'r')
    return t.close(), i + 1


def test_rows_told_by_the_writer_stay(tmp_path):
    path, op = program(str(tmp_path / 'a.db'))
    cost(ACCT, 'analyze', path)
    first = rows(path, 'op_buffer')
    assert [r for r in first if r[0] == op] == [(op, 'A', 1, 0x10000, 4096, 'r'), (op, 'B', 2, 0x20000, 4096, 'r'),
                                                (op, 'C', 3, 0x30000, 4096, 'w'), (op, 'bias', None, 0x20000, 128, 'r')]
    assert [r for r in first if r[0] == 4] == [(4, '0', None, 0x10000, 4096, 'w'), (4, '1', None, 0x20000, None, '?')]
    cost(ACCT, 'analyze', path)
    assert rows(path, 'op_buffer') == first


def test_a_row_that_is_added_is_of_that_op_alone(tmp_path):
    path, op = program(str(tmp_path / 'a.db'))
    cost(ACCT, 'analyze', path)
    before = rows(path, 'op_buffer')
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO op_buffer VALUES(?, 'bias', NULL, 5, 6, 'r')", (op - 1,))
    assert rows(path, 'op_buffer') == sorted(before + [(op - 1, 'bias', None, 5, 6, 'r')], key=repr)


def test_an_older_trace_has_a_table(tmp_path):
    new, _ = program(str(tmp_path / 'new.db'))
    old = shutil.copy(new, tmp_path / 'old.db')
    with sqlite3.connect(old) as db:
        told = db.execute('SELECT * FROM op_buffer').fetchall()
        db.executescript(f'DROP VIEW op_buffer; DROP TABLE op_set; DROP TABLE buffer_set; DROP TABLE op_sum; DROP TABLE step_sum; {OP_BUFFER_TABLE}')
        db.executemany('INSERT INTO op_buffer VALUES(?, ?, ?, ?, ?, ?)', told)
    for path in (new, old):
        cost(ACCT, 'analyze', path)
    for table in ('op_buffer', 'op_cost', 'alloc_class', 'op_sum', 'step_sum'):
        assert rows(old, table) == rows(new, table), table
