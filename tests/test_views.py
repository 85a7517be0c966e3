"""What the commands that show a trace have in common: options of one name mean one thing, and each format is whole."""
import csv, io, json, os
import pytest
from conftest import BUILD, run
from device_trace import BASE, DeviceTrace

ACCT = os.path.join(BUILD, 'acct')
VIEWS = ['report', 'steps', 'memory', 'flops', 'ops', 'kernels', 'peak', 'leaks']
ROWS = {'ops': 'ops', 'kernels': 'kernels', 'peak': 'blocks', 'leaks': 'patterns'}
MANY = 40 # more than people are shown


@pytest.fixture(scope='module')
def trace(tmp_path_factory):
    """A step with many kernels of their own; as many allocations, of different sizes, that nothing uses."""
    t = DeviceTrace(tmp_path_factory.mktemp('views') / 't.db')
    for i in range(MANY):
        t.call('launch', (10 * i, 10 * i + 1), [(1000 * i, 1000 * i + 500)], phase='forward', kernel=f'kernel_{i}(float *)', shape=(1, 1, 1, 32, 1, 1, 0), flops=64, dtype='fp32',
               bytes=256)
        t.alloc(4096 * (i + 1), BASE + i, classes='other')
    t.steps(1000 * MANY)
    return t.close()


def show(trace, command, *args, code=0):
    r = run(ACCT, command, *args, trace)
    assert r.returncode == code, r.stderr
    return r.stdout if not code else r


@pytest.mark.parametrize('command', VIEWS)
def test_csv_has_a_value_a_line(trace, command):
    """As many lines as JSON has values, three columns each, no path twice."""
    def values(o):
        return sum(map(values, o.values() if isinstance(o, dict) else o)) if isinstance(o, (dict, list)) else 1

    rows = list(csv.reader(io.StringIO(show(trace, command, '--format', 'csv'))))
    assert rows[0] == ['path', 'value', 'unit'] and {len(r) for r in rows} == {3}
    assert len({r[0] for r in rows}) == len(rows) == 1 + values(json.loads(show(trace, command, '--format', 'json')))


@pytest.mark.parametrize('command', ['steps', 'flops', 'ops', 'peak'])
def test_a_step_that_is_not_there(trace, command):
    """Told before anything is printed, by all in the same words."""
    assert show(trace, command, '--step', '0')
    r = show(trace, command, '--step', '7', code=1)
    assert r.stderr == f'acct {command}: {trace}: no step 7: 1 step(s) were found, counted from 0\n' and r.stdout == ''


@pytest.mark.parametrize('command', ROWS)
def test_limit(trace, command):
    """Machines get all unless told; 0 is all, for people too."""
    extra = ['--min-share', '0'] if command == 'leaks' else []
    rows = lambda *args: len(json.loads(show(trace, command, '--format', 'json', *extra, *args))[ROWS[command]])
    text = lambda *args: len(show(trace, command, *extra, *args).splitlines())
    assert rows() == rows('--limit', '0') >= MANY and rows('-n', '3') == 3
    assert text('--limit', '3') < text() < text('--limit', '0')
