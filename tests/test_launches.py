"""Launches in a trace made by hand: what they read and write by their PTX, by their signature, by nothing; device times of ops.
Expected sets are written from the source of each kernel."""
import os, re, sqlite3, struct, subprocess
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


@pytest.mark.parametrize('name', ['_ZN12_GLOBAL__N_15saxpyEifPKfPf', '_ZN2at12_GLOBAL__N_15saxpyEifPKfPf', '_ZN1SclEifPKfPf',
                                  '_Z5saxpyIZ4mainEUlvE_EvifPKfPf'])
def test_the_arguments_of_a_signature_are_the_last_parentheses(tmp_path, name):
    """(anonymous namespace)::saxpy, at::(anonymous namespace)::saxpy, S::operator(), saxpy<main::{lambda()#1}>: parentheses before them are no arguments."""
    t = maker(tmp_path)
    i = t.launch_kernel(t.kernel(name, SAXPY_PARAMS), struct.pack('<ifQQ', 32, 1.0, A, B))
    db = analysed(t)
    assert db.execute('SELECT demangled FROM kernel').fetchone()[0].endswith('(int, float, float const*, float*)')
    assert buffers(db, i) == {'2': (A, None, 'r'), '3': (B, None, '?')}


def test_instances_of_a_template_are_told_apart_by_type(tmp_path):
    """`void` in front, which a template's name has, and the arguments are left out where people read."""
    t = maker(tmp_path)
    for element in ('f', '6__half', '13__nv_bfloat16'):
        t.launch_kernel(t.kernel(f'_Z33layernorm_weights_backward_kernelI{element}EvPfPKT_', [[0, 8], [8, 8]]), struct.pack('<QQ', A, B))
    r = run(ACCT, 'report', t.close())
    assert r.returncode == 0, r.stderr
    shown = re.findall(r'^ *(.*layernorm_weights\S*)', r.stdout, re.M)
    assert sorted(shown) == [f'layernorm_weights_backward_kernel<{e}>' for e in ('__half', '__nv_bfloat16', 'float')]


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


LISTS = 'extern "C" __global__ void add_to_all(float **list, int n, int count) { for (int k = 0; k < count; k++) if (threadIdx.x < n) list[k][threadIdx.x] += 1; }'


def test_memory_behind_pointers_in_memory_is_said_to_be_unknown(tmp_path, nvcc):
    t = maker(tmp_path)
    k = t.kernel('add_to_all', [[0, 8], [8, 4], [12, 4]], nvcc(LISTS))
    i = t.launch_kernel(k, struct.pack('<Qii', A, 20, 2))
    db = analysed(t)
    assert buffers(db, i) == {'0': (A, 16, 'r'), '*': (None, None, '?')}        # the list itself; what it lists
    said = run(ACCT, 'report', t.path)
    assert '1 launch(es) (add_to_all) write to memory that cannot be told' in said.stdout, said.stderr


TRAINING = """
extern "C" __global__ void relu(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = fmaxf(x[i], 0.0f); }
extern "C" __global__ void relu_backward(float *dx, const float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && !(y[i] > 0)) dx[i] = 0; }
extern "C" __global__ void square_loss(float *dy, const float *y, const float *target, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) dy[i] = 2 * (y[i] - target[i]) / n; }
extern "C" __global__ void sgd(float *w, const float *g, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) w[i] -= 0.1f * g[i]; }
extern "C" __global__ void add_to_all(float **list, int n, int count) { for (int k = 0; k < count; k++) if (threadIdx.x < n) list[k][threadIdx.x] += 1; }
"""


def two_layers(tmp_path, nvcc, lists=False):
    """h = relu(x·W1), in place; y = h·W2; the square loss; relu's gradient in place. Row-major (B, D) as cuBLAS sees it: (D, B).
    The trace, and the class of each buffer as the program knows it."""
    B, D, H, steps = 32, 48, 64, 4
    sizes = {'w1': D * H, 'w2': H * D, 'g1': D * H, 'g2': H * D, 'x': B * D, 'target': B * D, 'h': B * H, 'y': B * D, 'dy': B * D, 'dh': B * H}
    classes = dict(w1='param', w2='param', g1='grad', g2='grad', x='input', target='input', h='activation', y='activation',
                   dy='activation_grad', dh='activation_grad')
    t = Maker(str(tmp_path / 't.db'))
    at = {name: 0x7F0000000000 + (n << 20) for n, name in enumerate(sizes)}
    for name, n in sizes.items():
        t.alloc(at[name], 4 * n)
    ptx = nvcc(TRAINING)
    three = t.kernel('square_loss', [[0, 8], [8, 8], [16, 8], [24, 4]], ptx)
    relu = t.kernel('relu', [[0, 8], [8, 4]], ptx)
    back = t.kernel('relu_backward', [[0, 8], [8, 8], [16, 4]], ptx)
    sgd = t.kernel('sgd', [[0, 8], [8, 8], [16, 4]], ptx)
    every = t.kernel('add_to_all', [[0, 8], [8, 4], [12, 4]], ptx)
    grid = lambda n: ((n + 255) // 256, 1, 1)
    launch = lambda k, n, *names: t.launch_kernel(k, struct.pack(f'<{len(names)}Qi', *(at[x] for x in names), n), grid(n), (256, 1, 1))
    for name in ('w1', 'w2'):
        t.copy('h2d', at[name], 0, 4 * sizes[name])
    for _ in range(steps):
        for name in ('x', 'target'):
            t.copy('h2d', at[name], 0, 4 * sizes[name])
        t.gemm(m=H, n=B, k=D, a=at['w1'], b=at['x'], c=at['h'], lda=H, ldb=D, ldc=H)
        launch(relu, B * H, 'h')
        t.gemm(m=D, n=B, k=H, a=at['w2'], b=at['h'], c=at['y'], lda=D, ldb=H, ldc=D)
        launch(three, B * D, 'dy', 'y', 'target')
        t.gemm(m=H, n=B, k=D, a=at['w2'], b=at['dy'], c=at['dh'], lda=D, ldb=D, ldc=H, trans_a='T')
        t.gemm(m=D, n=H, k=B, a=at['dy'], b=at['h'], c=at['g2'], lda=D, ldb=H, ldc=D, trans_b='T')
        launch(back, B * H, 'dh', 'h')
        t.gemm(m=H, n=D, k=B, a=at['dh'], b=at['x'], c=at['g1'], lda=H, ldb=D, ldc=H, trans_b='T')
        launch(sgd, D * H, 'w1', 'g1')
        launch(sgd, D * H, 'w2', 'g2')
        if lists:
            t.launch_kernel(every, struct.pack('<Qii', at['x'], 1, 1))
    return t, [classes[name] for name in sizes]


def test_a_kernel_that_writes_where_data_says_works_on_what_is_there(tmp_path, nvcc):
    """relu's gradient in place: only where the input was not positive. The rest stays, so the product before is not in vain."""
    t, classes = two_layers(tmp_path, nvcc)
    db = analysed(t)
    assert [c for c, in db.execute('SELECT class FROM alloc_class ORDER BY alloc')] == classes
    assert [r[0] for r in db.execute('SELECT name FROM phase ORDER BY step, first_op')] == ['forward', 'backward', 'optimizer'] * 4


def test_classes_are_less_sure_where_kernels_write_nobody_knows_where(tmp_path, nvcc):
    (tmp_path / 'a').mkdir(), (tmp_path / 'b').mkdir()
    sure, unsure = (analysed(two_layers(tmp_path / f, nvcc, lists)[0]).execute('SELECT min(confidence), max(confidence) FROM alloc_class').fetchone()
                    for f, lists in (('a', False), ('b', True)))
    assert sure[0] >= 0.9 and unsure[1] <= 0.4


def test_launches_without_a_time_are_counted(tmp_path):
    t = maker(tmp_path)
    k = t.kernel('saxpy', SAXPY_PARAMS)
    t.launch_kernel(k, struct.pack('<ifQQ', 32, 1.0, A, B), external=1 << 40)
    t.launch_kernel(k, struct.pack('<ifQQ', 32, 1.0, A, B), external=(1 << 40) + 1)
    t.correlation(11, 1 << 40)
    t.activity(11, 5000, 5400)
    analysed(t)
    assert '1 kernel launch(es) have no device time' in run(ACCT, 'report', t.path).stdout


def test_what_launches_of_graphs_did_is_said_to_be_missing(tmp_path):
    t = maker(tmp_path)
    t.activity(11, 5000, 5400)
    t.rows['activity'].append(t.rows['activity'][-1][:7] + (6000, 6400) + t.rows['activity'][-1][9:-1] + (7,))
    analysed(t)
    text = ' '.join(run(ACCT, 'report', t.path).stdout.split())
    assert '1 kernels, copies and memsets were done by launches of CUDA graphs' in text and "50 % of the device's time is of no call" in text


def test_a_function_of_another_unit_is_followed(tmp_path, nvcc):
    t = maker(tmp_path)
    caller = nvcc('extern __device__ float helper(float *, int); extern "C" __global__ void f(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = helper(x, threadIdx.x); }', '-rdc=true')
    helper = nvcc('__device__ float helper(float *x, int i) { x[i + 100] = 1; return x[i + 200]; }', '-rdc=true')
    i = t.launch_kernel(t.kernel('f', [[0, 8], [8, 4]], [caller, helper]), struct.pack('<Qi', A, 20))
    alone = t.launch_kernel(t.kernel('f', [[0, 8], [8, 4]], [caller, None]), struct.pack('<Qi', A, 20))
    db = analysed(t)
    assert set(buffers(db, i).values()) == {(A, 480, 'w'), (A + 800, 80, 'r')}
    assert buffers(db, alone)['*'] == (None, None, '?')


EMBEDDING = """
extern "C" __global__ void embed(float *out, const float *table, const int *token, int n) { for (int c = threadIdx.x; c < n; c += blockDim.x) out[blockIdx.x * n + c] = table[token[blockIdx.x] * n + c]; }
extern "C" __global__ void scatter(float *table, const float *in, const int *token, int n) { for (int c = threadIdx.x; c < n; c += blockDim.x) atomicAdd(&table[token[blockIdx.x] * n + c], in[blockIdx.x * n + c]); }
extern "C" __global__ void square_loss(float *dy, const float *y, const float *target, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) dy[i] = 2 * (y[i] - target[i]) / n; }
extern "C" __global__ void sgd(float *w, const float *g, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) w[i] -= 0.1f * g[i]; }
"""


def test_what_is_scattered_into_a_gradient_of_its_size_is_no_gradient(tmp_path, nvcc):
    """As many tokens as rows in the table: the gradient of the embedding's result has the size of the table's."""
    B, D, F, steps = 64, 32, 48, 4
    buffers = {'table': (B * D, 'param'), 'w': (D * F, 'param'), 'dtable': (B * D, 'grad'), 'dw': (D * F, 'grad'), 'token': (B, 'input'),
               'target': (B * F, 'input'), 'e': (B * D, 'activation'), 'y': (B * F, 'activation'), 'dy': (B * F, 'activation_grad'), 'de': (B * D, 'activation_grad')}
    t = Maker(str(tmp_path / 't.db'))
    at = {name: 0x7F0000000000 + (n << 20) for n, name in enumerate(buffers)}
    for name, (n, _) in buffers.items():
        t.alloc(at[name], 4 * n)
    ptx = nvcc(EMBEDDING)
    three, two = [[0, 8], [8, 8], [16, 8], [24, 4]], [[0, 8], [8, 8], [16, 4]]
    embed, scatter, loss, sgd = t.kernel('embed', three, ptx), t.kernel('scatter', three, ptx), t.kernel('square_loss', three, ptx), t.kernel('sgd', two, ptx)
    launch = lambda k, n, blocks, *names: t.launch_kernel(k, struct.pack(f'<{len(names)}Qi', *(at[x] for x in names), n), (blocks, 1, 1), (256, 1, 1))
    upload = lambda *names: [t.copy('h2d', at[x], 0, 4 * buffers[x][0]) for x in names]
    upload('table', 'w')
    for _ in range(steps):
        upload('token', 'target')
        launch(embed, D, B, 'e', 'table', 'token')
        t.gemm(m=F, n=B, k=D, a=at['w'], b=at['e'], c=at['y'], lda=F, ldb=D, ldc=F)
        launch(loss, B * F, B * F // 256, 'dy', 'y', 'target')
        t.gemm(m=D, n=B, k=F, a=at['w'], b=at['dy'], c=at['de'], lda=F, ldb=F, ldc=D, trans_a='T')
        t.gemm(m=F, n=D, k=B, a=at['dy'], b=at['e'], c=at['dw'], lda=F, ldb=D, ldc=F, trans_b='T')
        t.memset(at['dtable'], 4 * B * D)
        launch(scatter, D, B, 'dtable', 'de', 'token')
        launch(sgd, B * D, B * D // 256, 'table', 'dtable')
        launch(sgd, D * F, D * F // 256, 'w', 'dw')
    db = analysed(t)
    assert [c for c, in db.execute('SELECT class FROM alloc_class ORDER BY alloc')] == [c for _, c in buffers.values()]


LAYERS = """
extern "C" __global__ void relu(float *y, const float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.0f); }
extern "C" __global__ void relu_backward(float *dx, const float *dy, const float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) dx[i] = x[i] > 0 ? dy[i] : 0; }
extern "C" __global__ void square_loss(float *dy, float *loss, const float *y, const float *target, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { float d = y[i] - target[i]; dy[i] = 2 * d / n; loss[i] = d * d / n; } }
extern "C" __global__ void momentum(float *w, float *v, const float *g, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { v[i] = 0.9f * v[i] + g[i]; w[i] -= 0.01f * v[i]; } }
"""


@pytest.mark.parametrize('evaluate', [False, True])
@pytest.mark.parametrize('recompute', [False, True])
def test_an_activation_between_the_last_product_and_the_loss(tmp_path, nvcc, recompute, evaluate):
    """y = relu(x·W) layer after layer, the loss on the last y: its gradient passes through relu before any product. The gradient of
    every y has one buffer in common, which evaluation writes in vain. recompute: x·W again before relu's gradient."""
    L, B, D, steps = 3, 32, 48, 4
    size = {'x': B * D, 'target': B * D, 'loss': B * D, 'dy': B * D, 'dz': B * D}
    classes = {'x': 'input', 'target': 'input', 'loss': 'activation', 'dy': 'activation_grad', 'dz': 'activation_grad'}
    for l in range(L):
        for name, n, cls in (('w', D * D, 'param'), ('g', D * D, 'grad'), ('v', D * D, 'optimizer'), ('z', B * D, 'activation'), ('y', B * D, 'activation')):
            size[f'{name}{l}'], classes[f'{name}{l}'] = n, cls
    t = Maker(str(tmp_path / 't.db'))
    at = {name: 0x7F0000000000 + (n << 20) for n, name in enumerate(size)}
    for name, n in size.items():
        t.alloc(at[name], 4 * n)
    ptx, params = nvcc(LAYERS), lambda pointers: [[8 * i, 8] for i in range(pointers)] + [[8 * pointers, 4]]
    kernels = {name: t.kernel(name, params(n), ptx) for name, n in (('relu', 2), ('relu_backward', 3), ('square_loss', 4), ('momentum', 3))}
    launch = lambda k, *names: t.launch_kernel(kernels[k], struct.pack(f'<{len(names)}Qi', *(at[x] for x in names), size[names[0]]), (size[names[0]] // 256, 1, 1), (256, 1, 1))
    below = lambda l: at[f'y{l - 1}' if l else 'x']
    product = lambda l: t.gemm(m=D, n=B, k=D, a=at[f'w{l}'], b=below(l), c=at[f'z{l}'], lda=D, ldb=D, ldc=D)

    def forward():
        for name in ('x', 'target'):
            t.copy('h2d', at[name], 0, 4 * size[name])
        for l in range(L):
            product(l)
            launch('relu', f'y{l}', f'z{l}')
        launch('square_loss', 'dy', 'loss', f'y{L - 1}', 'target')

    for l in range(L):
        t.copy('h2d', at[f'w{l}'], 0, 4 * D * D)
        t.memset(at[f'v{l}'], 4 * D * D)
    for step in range(steps):
        if evaluate and step:
            forward()
        forward()
        for l in reversed(range(L)):
            if recompute:
                product(l)
            launch('relu_backward', 'dz', 'dy', f'z{l}')
            t.gemm(m=D, n=D, k=B, a=at['dz'], b=below(l), c=at[f'g{l}'], lda=D, ldb=D, ldc=D, trans_b='T')
            if l:
                t.gemm(m=D, n=B, k=D, a=at[f'w{l}'], b=at['dz'], c=at['dy'], lda=D, ldb=D, ldc=D, trans_a='T')
        for l in range(L):
            launch('momentum', f'w{l}', f'v{l}', f'g{l}')
    db = analysed(t)
    assert [c for c, in db.execute('SELECT class FROM alloc_class ORDER BY alloc')] == list(classes.values())
    flops = dict(db.execute('SELECT phase, sum(flops) / ? FROM op_cost WHERE matmul GROUP BY phase', (2 * B * D * D,)))
    assert flops == {'forward': L * steps, 'backward': (2 * L - 1) * steps, **({'recompute': L * steps} if recompute else {}),
                     **({'evaluation': L * (steps - 1)} if evaluate else {})}


@pytest.mark.parametrize('mangled,shown', [
    ('_Z4copyIfEvPT_PKS0_i', 'copy<float>'),
    ('_ZN12_GLOBAL__N_15scaleEPfi', '(anonymous namespace)::scale'),
    ('_ZN2at6native12_GLOBAL__N_15scaleIfEEvPT_i', 'at::native::(anonymous namespace)::scale<float>'),
    ('plain', 'plain')])
def test_names_of_kernels_in_the_report(tmp_path, mangled, shown):
    t = maker(tmp_path)
    t.launch_kernel(t.kernel(mangled, [[0, 8]]), struct.pack('<Q', A), external=1 << 40)
    t.correlation(11, 1 << 40)
    t.activity(11, 5000, 5400)
    analysed(t)
    lines = run(ACCT, 'report', t.path).stdout.splitlines()
    first = lines.index('Device time by function') + 2
    assert lines[first].split('  ')[1].strip() == shown, lines[first]
