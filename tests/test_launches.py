"""Launches in a trace made by hand: what they read and write by their PTX, by their signature, by nothing; device times of ops.
Expected sets are written from the source of each kernel."""
import os, sqlite3, struct, subprocess
import pytest
from conftest import BUILD, run
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')
A, B, C = 0x7F0000000000, 0x7F0000100000, 0x7F0000200000          # three allocations of 64 KiB


def analysed(t):
    r = run(ACCT, 'analyze', t.close())
    assert r.returncode == 0, r.stderr
    return sqlite3.connect(t.path)


def maker(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    for address in (A, B, C):
        t.alloc(address, 65536)
    return t


def buffers(db, i):
    return {slot: (address, size, mode) for slot, address, size, mode in
            db.execute('SELECT slot, address, bytes, mode FROM op_buffer WHERE op = ?', (i + 1,))}


@pytest.fixture(scope='module')
def nvcc(tmp_path_factory):
    """Compiles kernels to PTX."""
    tool = [line.split(':=')[1].strip() for line in open(os.path.join(BUILD, 'deps.mk')) if line.startswith('NVCC')][0]
    folder = tmp_path_factory.mktemp('ptx')

    def compile(source, *options):
        (folder / 'k.cu').write_text(source)
        subprocess.run([tool, '-ptx', '-arch=compute_80', *options, '-o', folder / 'k.ptx', folder / 'k.cu'], check=True)
        return (folder / 'k.ptx').read_text()
    return compile


SAXPY = 'extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }'
SAXPY_PARAMS = [[0, 4], [4, 4], [8, 8], [16, 8]]


@pytest.mark.parametrize('options', [[], ['-G']])
def test_sets_from_ptx_with_their_extents(tmp_path, nvcc, options):
    t = maker(tmp_path)
    k = t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY, *options))
    i = t.launch_kernel(k, struct.pack('<ifQQ', 1000, 2.0, A + 64, B), (4, 1, 1), (256, 1, 1))
    j = t.launch_kernel(k, struct.pack('<ifQQ', 10**6, 2.0, A, B), (4, 1, 1), (256, 1, 1))     # the grid ends before n
    db = analysed(t)
    assert buffers(db, i) == {'2': (A + 64, 4000, 'r'), '3': (B, 4000, 'rw')}
    assert buffers(db, j) == {'2': (A, 4096, 'r'), '3': (B, 4096, 'rw')}


def test_a_null_pointer_is_no_buffer(tmp_path, nvcc):
    t = maker(tmp_path)
    k = t.kernel('f', [[0, 8], [8, 8]], nvcc('extern "C" __global__ void f(float *out, const float *bias) { float v = 1; if (bias) v += bias[threadIdx.x]; out[threadIdx.x] = v; }'))
    with_bias = t.launch_kernel(k, struct.pack('<QQ', A, B))
    without = t.launch_kernel(k, struct.pack('<QQ', A, 0))
    db = analysed(t)
    assert buffers(db, with_bias) == {'0': (A, 128, 'w'), '1': (B, 128, 'r')}
    assert buffers(db, without) == {'0': (A, 128, 'w')}


def test_pointers_inside_a_struct(tmp_path, nvcc):
    t = maker(tmp_path)
    source = 'struct S { int n; float *out; const float *in; }; extern "C" __global__ void f(S s) { if (threadIdx.x < s.n) s.out[threadIdx.x] = s.in[threadIdx.x]; }'
    i = t.launch_kernel(t.kernel('f', [[0, 24]], nvcc(source)), struct.pack('<ixxxxQQ', 7, A, B))
    assert buffers(analysed(t), i) == {'0+8': (A, 28, 'w'), '0+16': (B, 28, 'r')}


def test_one_buffer_read_in_front_and_written_behind(tmp_path, nvcc):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('f', [[0, 8]], nvcc('extern "C" __global__ void f(float *p) { p[1024 + threadIdx.x] = p[threadIdx.x]; }')), struct.pack('<Q', A))
    found = buffers(analysed(t), i)
    assert set(found.values()) == {(A, 128, 'r'), (A + 4096, 128, 'w')} and '0' in found


def test_the_unit_that_has_the_kernel_is_found(tmp_path, nvcc):
    t = maker(tmp_path)
    other = nvcc('extern "C" __global__ void g(int *p) { *p = 1; }')
    i = t.launch_kernel(t.kernel('saxpy', SAXPY_PARAMS, [other, None, nvcc(SAXPY)]), struct.pack('<ifQQ', 32, 1.0, A, B))
    assert buffers(analysed(t), i) == {'2': (A, 128, 'r'), '3': (B, 128, 'rw')}


def test_without_ptx_const_says_what_is_read(tmp_path):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('_Z5saxpyifPKfPf', SAXPY_PARAMS), struct.pack('<ifQQ', 32, 1.0, A, B))
    stray = t.launch_kernel(t.kernel('_Z1gyPf', [[0, 8], [8, 8]]), struct.pack('<QQ', 12345, C))    # a number is no pointer
    db = analysed(t)
    assert buffers(db, i) == {'2': (A, None, 'r'), '3': (B, None, '?')}
    assert buffers(db, stray) == {'1': (C, None, '?')}
    assert [r[0] for r in db.execute('SELECT demangled FROM kernel ORDER BY id')] == \
        ['saxpy(int, float, float const*, float*)', 'g(unsigned long long, float*)']


def test_ptx_that_cannot_be_read_is_as_none(tmp_path):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('saxpy', SAXPY_PARAMS, '.version 8.0\nthis is no PTX'), struct.pack('<ifQQ', 32, 1.0, A, B))
    assert {m for _, _, m in buffers(analysed(t), i).values()} == {'?'}


def test_arguments_that_were_lost(tmp_path, nvcc):
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel('saxpy', SAXPY_PARAMS, nvcc(SAXPY)), None)
    short = t.launch_kernel(1, struct.pack('<if', 32, 1.0))
    db = analysed(t)
    assert buffers(db, i) == {} and buffers(db, short) == {}


def test_times_find_their_op_by_correlation(tmp_path):
    t = maker(tmp_path)
    k = t.kernel('saxpy', SAXPY_PARAMS)
    i = t.launch_kernel(k, struct.pack('<ifQQ', 32, 1.0, A, B), external=(1 << 40) + 1)
    j = t.launch_kernel(k, struct.pack('<ifQQ', 32, 1.0, A, B), external=(1 << 40) + 2)
    n = t.launch_kernel(k, struct.pack('<ifQQ', 32, 1.0, A, B))
    for correlation, external in ((11, (1 << 40) + 1), (12, (1 << 40) + 2), (13, (1 << 40) + 2), (14, 99)):
        t.correlation(correlation, external)
    t.activity(11, 5000, 5400)
    t.activity(13, 6500, 6700)
    t.activity(12, 6000, 6300)
    t.activity(12, None, None)                                          # CUPTI had no time
    t.activity(14, 7000, 7100)                                          # nobody's
    db = analysed(t)
    rows = db.execute('SELECT op, start_ns, end_ns, busy_ns, activities FROM op_time ORDER BY op').fetchall()
    assert rows == [(i + 1, 5000, 5400, 400, 1), (j + 1, 6000, 6700, 500, 2)]
    assert n + 1 not in [r[0] for r in rows]
