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
    booked = [f for f, in db.execute("""select flops from op left join op_cost on op = id
        where kind in ('gemm', 'blas') and status = 0 order by id""")]
    calls = json.load(open(said))
    assert len(calls) == len(booked) > 2000
    wrong = {(name, want, got) for (name, want), got in zip(calls, booked) if want != got}
    assert not wrong, wrong


PEAKS = ('fp32', 'fp64', 'fp64_tensor', 'tf32', 'bf16', 'fp16', 'fp16_acc16')


@pytest.mark.parametrize('limit', ['flops', 'bytes'])
def test_times_of_the_model(limit, tmp_path):
    """On a device where only FLOPs, or only bytes, take time, each call's time is what op_cost has of them: what the
    virtual GPU takes a call to do, and what the analyzer books for it, are counted apart and agree."""
    peak, bandwidth = ('1GFLOP/s', '1000000TB/s') if limit == 'flops' else ('1000000PFLOP/s', '1GB/s')  # 1 a nanosecond
    board, trace = tmp_path / 'b.profile', tmp_path / 't.db'
    board.write_text(f'base = h100-sxm\nbandwidth = {bandwidth}\n' + ''.join(f'{p} = {peak}\n' for p in PEAKS))
    run(os.path.join(BUILD, 'acct'), 'run', f'--vgpu={board}', '--dry', '-o', trace, '--', PYTHON, PROGRAM)
    amount = 'flops' if limit == 'flops' else 'bytes_read + bytes_written'
    rows = sqlite3.connect(trace).execute(f"""select coalesce(routine, 'gemm'), {amount}, busy_ns from op join op_cost c on c.op = id
        join op_time t on t.op = id left join blas b on b.op = id where kind in ('gemm', 'blas') and integer_ops is null and grade = 'exact'""")
    rows = [r for r in rows if r[1] is not None]
    assert len(rows) > 2000
    wrong = {(name, want, got) for name, want, got in rows if abs(max(want, 1) - got) > 1}
    assert not wrong, wrong
