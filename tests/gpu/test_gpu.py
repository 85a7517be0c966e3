"""On a GPU only (tests/gpu/run): what the device computes is what the references of the kernel zoo say, and what CUPTI tells is
what the program did."""
import os, re
import pytest
from conftest import BUILD, DEVICE, run
from test_spine import TRAIN, acct_run, query, report


@pytest.mark.parametrize('program', ['zoo', 'zoo_debug'])
def test_the_zoo_on_the_device(program, tmp_path):
    r = run(os.path.join(BUILD, 'tests', program), env=DEVICE, timeout=300)
    with open(os.path.join(os.environ.get('OUT', tmp_path), f'{program}.txt'), 'w') as f:
        f.write(r.stdout + r.stderr)
    assert re.findall(r'.*FAILED.*|.* is .* not .*', r.stdout) == [] and r.returncode == 0, r.stderr
    assert len(re.findall(r'^\w+ ok \w{16}$', r.stdout, re.M)) >= 80


def test_the_device_and_its_clock(tmp_path):
    assert acct_run(tmp_path / 'a.db', TRAIN, '--steps', '5').returncode == 0
    j = report(tmp_path / 'a.db')
    assert j['device']['clock'] == 'gpu' and not any(n.startswith('CUPTI') for n in j['notes'])
    assert j['totals']['dropped'] == 0 and query(tmp_path / 'a.db', "select value from meta where key = 'cupti_dropped'") in ([], [(0,)])
    # The device cannot begin before the call, but for the error with which the two clocks are tied together.
    early = query(tmp_path / 'a.db', 'select min(t.start_ns - op.start_ns) from op_time t join op on op.id = t.op')[0][0]
    assert early > -100_000
    kernels = dict(query(tmp_path / 'a.db', "select op.kind, min(t.activities) from op_time t join op on op.id = t.op group by 1"))
    assert kernels['launch'] == 1 and kernels['gemm'] >= 1 and kernels['memset'] == 1


def test_without_cupti_the_host_is_the_clock(tmp_path):
    assert acct_run(tmp_path / 'a.db', TRAIN, '--steps', '5', env={'ACCT_CUPTI': 'off'}).returncode == 0
    j = report(tmp_path / 'a.db')
    assert j['device']['clock'] == 'host' and any('switched off' in n for n in j['notes'])
    assert query(tmp_path / 'a.db', 'select count(*) from activity') == [(0,)]
