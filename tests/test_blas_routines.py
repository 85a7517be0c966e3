"""Every routine of cuBLAS on the virtual GPU: what it computes, against numpy; and what acct books for it, against the
formulas of the accounts."""
import json, os, sqlite3
import pytest
from conftest import BUILD, DEVICE, TOP, run

PROGRAM = os.path.join(TOP, 'tests/blas_routines.py')
PYTHON = '/usr/bin/python3'


@pytest.mark.parametrize('mode', ['host', 'device', '64'])
def test_results(mode):
    """Scalars on the host, on the device, and 64-bit sizes."""
    r = run(PYTHON, PROGRAM, mode, env=DEVICE)
    assert r.returncode == 0 and ' 0 wrong' in r.stdout, r.stdout[-3000:] + r.stderr


@pytest.mark.parametrize('mode', ['host', 'device'])
def test_flops(mode, tmp_path):
    """op_cost has each call's FLOPs by its formula, in order; what has no formula is not counted, never 0."""
    said, trace = tmp_path / 'calls.json', tmp_path / 't.db'
    r = run(os.path.join(BUILD, 'acct'), 'run', '--vgpu', '-o', trace, '--', PYTHON, PROGRAM, mode, said)
    assert ' 0 wrong' in r.stdout, r.stdout[-3000:] + r.stderr
    db = sqlite3.connect(trace)
    booked = [f for f, in db.execute("select flops from op left join op_cost on op = id where kind in ('gemm', 'blas') order by id")]
    calls = json.load(open(said))
    assert len(calls) == len(booked) > 2000
    wrong = {(name, want, got) for (name, want), got in zip(calls, booked) if want != got}
    assert not wrong
