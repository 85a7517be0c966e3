"""Dry runs and the model of times: the same program executed on this machine and dry on a device that nobody here has must have the same
books; its times lie where the roofline says. Peaks are those of ACCOUNTING's table (data sheets), FLOPs the lecture's formulas."""
import os, re, sqlite3, subprocess, sys
import pytest
from conftest import BUILD, ON_GPU, run
from test_spine import ACCT, TRAIN, losses, query, report

pytestmark = pytest.mark.skipif(ON_GPU, reason='of the virtual GPU')
H100 = {'fp32': 66.9e12, 'tf32': 494.7e12, 'bf16': 989.4e12, 'fp16': 989.4e12}
LAUNCH = 2e-6


def dry(out, *argv, device='h100-sxm', env=None, **kw):
    r = run(ACCT, 'run', f'--vgpu={device}', '--dry', '-o', out, '--', *argv, env=env, **kw)
    assert r.returncode == 0, r.stderr
    return r


def executed(out, *argv, device='cpu', **kw):
    r = run(ACCT, 'run', f'--vgpu={device}', '-o', out, '--', *argv, **kw)
    assert r.returncode == 0, r.stderr
    return r


# ---- the same books ----------------------------------------------------------------------------------------------------

# All that is no address, no time, and no number that the recorder gave in order of events.
POINTERS = ('a b c d bias aux a_scale b_scale c_scale d_scale aux_scale d_out_scale amax_d amax_aux workspace').split()


def columns(db, table, without):
    return [c for _, c, *_ in db.execute(f'pragma table_info({table})') if c not in without]


def books(path):
    """What a run did, by table, in the program's order; addresses as places in allocations."""
    with sqlite3.connect(f'file:{path}?mode=ro', uri=True) as db:
        number = {op: n for n, (op,) in enumerate(db.execute('select id from op order by id'))}
        out = {'op': db.execute('select a.name, kind, act, o.device, stream = 0, status, bytes from op o join api a on a.id = o.api order by o.id').fetchall()}
        out['alloc'] = [(number[i], *rest, number.get(f)) for i, *rest, f in db.execute(
            'select id, bytes, memory, device, stream = 0, free_ns is null, free_op from alloc order by id')]
        gemm = columns(db, 'gemm', POINTERS + ['id', 'op', 'external', 'algo'])
        out['gemm'] = [(number[op], *rest) for op, *rest in db.execute(
            f'select op, {", ".join(gemm)}, {", ".join(p + " is null" for p in POINTERS)} from gemm order by id')]
        out['launch'] = [(number[op], *rest) for op, *rest in db.execute(
            'select op, k.name, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared_bytes from launch l join kernel k on k.id = l.kernel order by op')]
        cost = columns(db, 'op_cost', ['op', 'price'])
        out['op_cost'] = [(number[op], *rest) for op, *rest in db.execute(f'select op, {", ".join(cost)} from op_cost order by op')]
        out['op_buffer'] = [(number[op], slot, number.get(a), *rest) for op, slot, a, *rest in db.execute(
            'select op, slot, b.alloc, b.address - a.address, b.bytes, mode from op_buffer b left join alloc a on a.id = b.alloc order by op, slot')]
        out['alloc_class'] = [(number[a], c) for a, c in db.execute('select alloc, class from alloc_class order by alloc')]
    return out


@pytest.mark.parametrize('options', [
    '--model linear --dim 128 --layers 3 --batch 32', '--model linear --dim 96 --layers 2 --batch 16 --optimizer momentum --alloc class --dtype bf16',
    '--model gpt --layers 2 --dim 48 --heads 3 --seq 40 --batch 2', '--model gpt --layers 2 --dim 64 --heads 2 --seq 32 --batch 2 --dtype bf16 --accum 2 --recompute full',
    '--model gpt --layers 1 --dim 32 --heads 2 --seq 16 --batch 2 --alloc pool --zero-grad none --optimizer sgd --clip 1'])
def test_dry_and_executed_have_the_same_books(tmp_path, options):
    argv = (TRAIN, *options.split(), '--steps', 3)
    steps = lambda p: [(s['flops'], s['memory'], [x['name'] for x in s['phases']]) for s in report(p)['steps']]
    executed(tmp_path / 'e.db', *argv)
    e = books(tmp_path / 'e.db')
    for device in 'h100-sxm', 'a100-40':
        path = tmp_path / f'{device}.db'
        dry(path, *argv, device=device)
        d = books(path)
        for table in e:
            assert len(e[table]) > 0 or (table == 'launch' and 'linear' in options), table  # linear is cuBLAS alone
            assert e[table] == d[table], (device, table)
        assert steps(tmp_path / 'e.db') == steps(path)


def test_copies_to_the_host_are_zero(tmp_path):
    r = dry(tmp_path / 'a.db', TRAIN, '--model', 'linear', '--dim', 64, '--layers', 2, '--batch', 8, '--steps', 3)
    assert losses(r.stdout) == ['0', '0', '0']


def test_what_executes_on_a_profile_computes_as_on_the_cpu(tmp_path):
    argv = (TRAIN, '--model', 'gpt', '--layers', 1, '--dim', 32, '--heads', 2, '--seq', 16, '--batch', 2, '--steps', 3)
    a = executed(tmp_path / 'a.db', *argv)
    b = executed(tmp_path / 'b.db', *argv, device='h100-sxm')
    assert losses(a.stdout) == losses(b.stdout) and len(losses(a.stdout)) == 3
    assert query(tmp_path / 'a.db', 'select clock from device') == [('cpu',)]
    assert query(tmp_path / 'b.db', 'select clock from device') == [('model',)]
    dry(tmp_path / 'd.db', *argv)  # executed or not: the model's times are the same
    times = 'select kind, stream, name, bytes, start_ns - (select min(start_ns) from activity), end_ns - start_ns from activity order by start_ns, stream'
    assert query(tmp_path / 'b.db', times) == query(tmp_path / 'd.db', times)


# ---- times -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('dtype,B', [('fp32', 4096), ('tf32', 16384), ('bf16', 16384)])
def test_time_of_a_step_by_its_products(tmp_path, dtype, B):
    """Bound by products: not below the floor of the roofline, and at most 1.3 times it."""
    L, D = 2, 4096
    dry(tmp_path / 'a.db', TRAIN, '--model', 'linear', '--layers', L, '--dim', D, '--batch', B, '--steps', 2, '--dtype', dtype)
    flops = L * 2 * B * D * D + (2 * L - 1) * 2 * B * D * D  # forward; dW of all layers and dx of all but the first
    floor = flops / H100[dtype]
    j = report(tmp_path / 'a.db')
    assert j['device']['clock'] == 'model' and j['totals']['dropped'] == 0
    assert j['coverage']['counted_time_share'] == 1
    for s in j['steps'][1:]:
        seconds = (s['device_end_ns'] - s['device_start_ns']) * 1e-9
        assert s['flops']['gemm'] == flops
        assert floor <= seconds <= 1.3 * floor, (seconds, floor)
        assert s['mfu'] == pytest.approx(floor / seconds, rel=0.02)
        assert 1 / 1.3 <= s['mfu'] <= 1


def test_each_product_takes_its_roofline(tmp_path):
    L, D, B = 2, 1024, 16
    dry(tmp_path / 'a.db', TRAIN, '--model', 'linear', '--layers', L, '--dim', D, '--batch', B, '--steps', 2)
    rows = query(tmp_path / 'a.db', 'select g.m, g.n, g.k, t.end_ns - t.start_ns, g.beta from gemm g join op_time t on t.op = g.op')
    assert len(rows) == 2 * (3 * L - 1)
    for m, n, k, ns, beta in rows:
        assert beta in ('0', 'zero'), beta  # C is only written
        expect = max(2 * m * n * k / 66.9e12, 4 * (m * k + k * n + m * n) / 3350e9)
        assert abs(ns - expect * 1e9) <= 1


def test_elementwise_kernels_take_their_bytes(tmp_path):
    """momentum: weights and velocity read and written, gradient read: 5 numbers a parameter."""
    L, C = 2, 256
    dry(tmp_path / 'a.db', TRAIN, '--model', 'gpt', '--layers', L, '--dim', C, '--seq', 16, '--batch', 1, '--steps', 2, '--optimizer', 'momentum')
    sizes = {256 * C, 16 * C, 3 * C * C, C * C, 4 * C * C, 3 * C, C, 4 * C}  # elements of a parameter
    rows = query(tmp_path / 'a.db', "select t.end_ns - t.start_ns from launch l join kernel k on k.id = l.kernel join op_time t on t.op = l.op "
                                    "where k.name like '%momentum%'")
    assert len(rows) == 2 * (2 + 12 * L + 2)
    times = {max(1, round(5 * 4 * n / 3350e9 * 1e9)) for n in sizes}
    assert {ns for ns, in rows} == times


def test_kernels_of_a_stream_do_not_overlap_and_have_the_launch_between_them(tmp_path):
    dry(tmp_path / 'a.db', TRAIN, '--model', 'gpt', '--layers', 2, '--dim', 64, '--heads', 2, '--seq', 32, '--batch', 2, '--steps', 2)
    last = {}
    rows = query(tmp_path / 'a.db', 'select stream, start_ns, end_ns from activity order by stream, start_ns')
    assert len(rows) > 100
    for stream, start, end in rows:
        assert end > start
        if stream in last:
            assert start - last[stream] >= LAUNCH * 1e9
        last[stream] = end


# ---- size and speed ----------------------------------------------------------------------------------------------------

XL = '--model gpt --layers 48 --dim 1600 --heads 25 --seq 1024 --batch 1 --optimizer adamw --steps 2'


def test_gpt2_xl_in_seconds(tmp_path):
    """1.48e9 parameters, 34 GB on the device; memory of program and analysis, each by itself."""
    measure = 'import resource, subprocess, sys; r = subprocess.run(sys.argv[1:]).returncode; u = resource.getrusage(resource.RUSAGE_CHILDREN); ' \
              'print("used", u.ru_maxrss * 1024, u.ru_utime + u.ru_stime); sys.exit(r)'
    program = [ACCT, 'run', '--vgpu=h100-sxm', '--dry', '-o', tmp_path / 'a.db', '--', TRAIN, *XL.split()]
    total = 0
    for argv in program, [ACCT, 'analyze', tmp_path / 'a.db']:  # the collector runs the analysis too, but is nobody's child
        r = run(sys.executable, '-c', measure, *argv)
        assert r.returncode == 0, r.stderr
        most_bytes, seconds = (float(x) for x in re.search(r'^used (\d+) ([\d.]+)$', r.stdout, re.M).groups())
        assert most_bytes < 1 << 30
        total += seconds
    assert total < 15, total  # of one processor: what else the machine does is not in it; alone on two it is under 10 s by the clock
    L, C, V, T = 48, 1600, 256, 1024
    parameters = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    j = report(tmp_path / 'a.db')
    peak = j['memory']['at_peak']
    assert (peak['param'], peak['grad'], peak['optimizer']) == (4 * parameters, 4 * parameters, 8 * parameters)
    assert peak['unknown'] == 0 and j['totals']['dropped'] == 0 and len(j['steps']) == 2


def test_no_call_is_lost_however_fast(tmp_path):
    """A ring of 1024 slots: a dry run waits for the collector, whatever comes."""
    argv = (TRAIN, '--model', 'gpt', '--layers', 2, '--dim', 32, '--heads', 2, '--seq', 16, '--batch', 1, '--steps', 60)
    dry(tmp_path / 'a.db', *argv, env={'ACCT_RING_SLOTS': '1024', 'ACCT_BLOB_BYTES': '64K'})
    j = report(tmp_path / 'a.db')
    assert j['totals']['dropped'] == 0 and len(j['steps']) == 60
    assert query(tmp_path / 'a.db', 'select count(*) from lost') == [(0,)]


RANGES = """#include <cuda_runtime.h>
__global__ void total(const float *p, const float *end, float *out) { float s = end[-1]; for (p += threadIdx.x; p < end; p += blockDim.x) s += *p; out[threadIdx.x] = s; }
int main() { float *x; cudaMalloc(&x, 1 << 28); for (long n = 1 << 10; n <= 1 << 26; n <<= 8) total<<<1, 128>>>(x, x + n, x); return cudaDeviceSynchronize(); }
"""


def test_a_range_takes_what_its_end_says(tmp_path):
    """The end of a range is a pointer like any other, but its value decides."""
    nvcc = [line.split(':=')[1].strip() for line in open(os.path.join(BUILD, 'deps.mk')) if line.startswith('NVCC')][0]
    (tmp_path / 'r.cu').write_text(RANGES)
    subprocess.run([nvcc, '-cudart', 'shared', '-gencode', 'arch=compute_80,code=compute_80', '-o', tmp_path / 'r', tmp_path / 'r.cu'], check=True)
    dry(tmp_path / 'r.db', tmp_path / 'r')
    with sqlite3.connect(tmp_path / 'r.db') as db:
        times = [t for t, in db.execute("select busy_ns from op_time t join op on op.id = t.op where op.kind = 'launch' order by op.id")]
    assert times == pytest.approx([4 * n / 3350e9 * 1e9 for n in (1 << 10, 1 << 18, 1 << 26)], abs=1)
