"""Several virtual devices in one process: kernels, variables, memory of another device, collectives' times, and what the recorder makes of them."""
import json, os, sqlite3
import pytest
from conftest import BUILD, run

WAYS = {'jit': {}, 'interpret': {'ACCT_VGPU_EXECUTE': 'interpret'}, 'check': {'ACCT_VGPU_CHECK': '1'}}
PROGRAM = os.path.join(BUILD, 'tests', 'devices_cases')


def program(case, profile, **env):
    return run(PROGRAM, case, env={'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu'), 'ACCT_VGPU': profile, **env}, timeout=60)


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    return {**WAYS[request.param], 'ACCT_CACHE': str(tmp_path)}


@pytest.mark.parametrize('case', ['variables', 'foreign-stream', 'peer-access'])
def test_case(case, way):
    r = program(case, 'cpu:3', **way)
    assert (r.returncode, r.stderr) == (7, '')


@pytest.mark.parametrize('case', ['no-access', 'pool-access'])
def test_memory_of_another_device_is_out_of_reach(case, way):
    r = program(case, 'cpu:2', **way)
    assert r.returncode == 7, r.stderr
    assert 'kernel _Z3addPfPKfi' in r.stderr and 'cudaErrorIllegalAddress' in r.stderr


def test_on_one_device_there_is_no_other(tmp_path):
    r = program('peer-access', 'cpu', ACCT_CACHE=str(tmp_path))
    assert (r.returncode, r.stderr) == (1, 'tests/programs/devices_cases.cu:%d: cudaSetDevice(device) gave 101\n' % line_of('CHECK(cudaSetDevice(device));'))


def line_of(text):
    lines = open(os.path.join(os.path.dirname(__file__), 'programs', 'devices_cases.cu')).read().splitlines()
    return next(i + 1 for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize('dry', ['0', '1'])
def test_an_all_reduce_takes_what_its_ring_does(dry, tmp_path):
    """h100-sxm: 2 (n-1)/n of the bytes over each rank's link, after the rank that comes last; the memset before it at memory speed."""
    r = program('collective-times', 'h100-sxm:4', ACCT_VGPU_DRY=dry, ACCT_CACHE=str(tmp_path))
    assert (r.returncode, r.stderr) == (7, '')
    memset, *times = (float(line) for line in r.stdout.split())
    size, link, memory = 4 * (64 << 20), 450e9, 3350e9  # NVLink: 900 GB/s both ways
    assert memset == pytest.approx(size / memory * 1e3, rel=0.05)
    ring = 2 * 3 / 4 * size / link * 1e3
    for ms in times:
        assert ms == pytest.approx(memset + ring, rel=0.05)


@pytest.mark.parametrize('extra', [[], ['--dry']])
def test_books_of_two_devices(extra, tmp_path):
    """What the program holds, by its own figures: 3 MiB on device 0, 5 MiB on device 1, all at once; work on both."""
    mib, trace = 1 << 20, str(tmp_path / 't.db')
    r = run(os.path.join(BUILD, 'acct'), 'run', '--vgpu=h100-sxm:2', *extra, '-o', trace, '--', PROGRAM, 'train',
            env={'ACCT_CACHE': str(tmp_path)}, timeout=60)
    assert r.returncode == (1 if extra else 7)  # dry: what comes back is zero, and the program says so
    db = sqlite3.connect(trace)
    assert db.execute("SELECT ordinal, name FROM device ORDER BY 1").fetchall() == [(0, 'NVIDIA H100 80GB HBM3'), (1, 'NVIDIA H100 80GB HBM3')]
    assert db.execute("SELECT device, sum(bytes) FROM alloc GROUP BY 1 ORDER BY 1").fetchall() == [(0, 3 * mib), (1, 5 * mib)]
    assert db.execute("SELECT device, count(*) FROM op WHERE kind = 'launch' GROUP BY 1 ORDER BY 1").fetchall() == [(0, 6), (1, 6)]
    assert db.execute("SELECT device, count(*) FROM activity WHERE kind = 'kernel' GROUP BY 1 ORDER BY 1").fetchall() == [(0, 9), (1, 9)]
    memory = json.loads(run(os.path.join(BUILD, 'acct'), 'report', '--format', 'json', trace).stdout)['memory']
    assert memory['by_device'] == [{'device': 0, 'peak_bytes': 3 * mib}, {'device': 1, 'peak_bytes': 5 * mib}]
    assert memory['peak_bytes'] == 8 * mib
    assert 'memory and FLOPs are sums over them' in run(os.path.join(BUILD, 'acct'), 'report', trace).stdout


def test_stream_ordered_memory_is_booked_where_it_lies(tmp_path):
    trace = str(tmp_path / 't.db')
    r = run(os.path.join(BUILD, 'acct'), 'run', '--vgpu=cpu:2', '-o', trace, '--', PROGRAM, 'pool-stream', env={'ACCT_CACHE': str(tmp_path)}, timeout=60)
    assert r.returncode == 7, r.stderr
    db = sqlite3.connect(trace)
    assert db.execute("SELECT device, bytes FROM alloc WHERE memory = 'async'").fetchall() == [(1, 4096)]
