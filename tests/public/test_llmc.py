"""karpathy/llm.c, which nobody here wrote, under acct on the virtual GPU: LLMC names its checkout, of which nothing is kept here.
The programs are built as they are, but for one line that CUDA 13 wants otherwise (cudaMemAdvise), no NVML, and, in the copy that
is compared with the CPU program, that program's constants (no clipping, beta2).

    make public LLMC=/path/to/llm.c"""
import json, os, re, signal, sqlite3, subprocess
import pytest
from conftest import BUILD, deps, run
from llmc_files import write_model, write_tokens

LLMC = os.environ['LLMC']
B, T, STEPS = 4, 64, 8
# The classifier's blocks of 1024 threads take 8 logits each: a smaller vocabulary would never leave its first loop, on a GPU neither.
CONFIG = {'max_t': T, 'vocabulary': 8211, 'padded': 8320, 'layers': 4, 'heads': 4, 'channels': 256}
ACCT = os.path.join(BUILD, 'acct')
FIXES = {'cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId': 'cudaMemAdviseSetPreferredLocation, (cudaMemLocation{cudaMemLocationTypeHost, 0})'}
AS_ON_CPU = {'float grad_clip = 1.0f;': 'float grad_clip = 1e30f;', '0.9f, 0.95f, 1e-8f': '0.9f, 0.999f, 1e-8f'}


@pytest.fixture(scope='session')
def folder(tmp_path_factory):
    d = tmp_path_factory.mktemp('llmc')
    data = d / 'dev/data/tinyshakespeare'
    data.mkdir(parents=True)
    write_tokens(data / 'tiny_shakespeare_train.bin', 20000, CONFIG['vocabulary'], 1)
    write_tokens(data / 'tiny_shakespeare_val.bin', B * T * 5 + 1, CONFIG['vocabulary'], 2)
    count = write_model(d / 'gpt2_124M.bin', CONFIG, False)
    assert write_model(d / 'gpt2_124M_bf16.bin', CONFIG, True) == count
    (d / 'parameters').write_text(str(count))
    return d


def built(folder, name, source, changes, *options):
    """Builds a patched copy of the checkout's source."""
    tree = folder / ('source-' + name)
    tree.mkdir()
    subprocess.run(['cp', '-r', os.path.join(LLMC, 'llmc'), os.path.join(LLMC, source), tree], check=True)
    found = set()
    for path in [tree / source, *(tree / 'llmc').iterdir()]:
        text = path.read_text()
        for old, new in changes.items():
            if old in text:
                found.add(old)
                text = text.replace(old, new)
        path.write_text(text)
    assert found == set(changes), 'not the source that these changes were written for'
    if source.endswith('.c'):
        subprocess.run(['gcc', '-O3', '-ffast-math', '-fopenmp', '-w', '-o', folder / name, tree / source, '-lm'], check=True)
    else:
        subprocess.run([deps('NVCC'), '-O2', '-std=c++17', '-w', '-cudart', 'shared', '-gencode', 'arch=compute_80,code=compute_80', *options, '-o', folder / name,
                        tree / source, '-L' + deps('CUDA_LIB'), '-l:libcublas.so.13', '-l:libcublasLt.so.13'], check=True)
    return folder / name


@pytest.fixture(scope='session')
def losses(folder):
    """Of the project's own CPU program, which knows no end before step 40: it is ended when it has said enough."""
    program = built(folder, 'cpu', 'train_gpt2.c', {})
    p = subprocess.Popen([program], cwd=folder, stdout=subprocess.PIPE, text=True)
    out = []
    for line in p.stdout:
        m = re.match(r'step \d+: train loss ([\d.]+)', line)
        out += [float(m[1])] if m else []
        if len(out) == STEPS:
            break
    p.send_signal(signal.SIGKILL)
    p.wait()
    return out


def traced(folder, program, *args):
    db = folder / (os.path.basename(str(program)) + '.db')
    r = run(ACCT, 'run', '-o', db, '--force', '--vgpu', '--', program, *args, cwd=folder, timeout=900)
    assert r.returncode == 0, r.stdout[-2000:] + r.stderr[-2000:]
    j = json.loads(run(ACCT, 'report', '--format', 'json', db, timeout=300).stdout)
    assert j['program']['exit_code'] == 0 and j['totals']['dropped'] == 0
    return r.stdout, j, sqlite3.connect(db)


def losses_of(text):
    return [float(x) for x in re.findall(r'step +\d+/\d+.*?loss ([\d.]+)', text)]


COMMON = ['-b', B, '-t', T, '-l', '1e-4', '-s', '1000', '-g', '1', '-v', '1000']
RUNS = {'fp32': ('train_gpt2_fp32.cu', {}, [], []),
        'main-fp32': ('train_gpt2.cu', {**FIXES, **AS_ON_CPU}, ['-DENABLE_FP32'], ['-e', 'gpt2_124M.bin', '-d', B * T, '-x', STEPS]),
        'main-bf16': ('train_gpt2.cu', {**FIXES, **AS_ON_CPU}, ['-DENABLE_BF16'], ['-e', 'gpt2_124M_bf16.bin', '-d', B * T, '-x', STEPS])}


@pytest.fixture(scope='session', params=RUNS)
def trained(request, folder):
    source, changes, options, args = RUNS[request.param]
    return request.param, *traced(folder, built(folder, request.param, source, changes, *options), *COMMON, *args)


def test_losses_are_those_of_the_cpu_program(trained, losses):
    name, out, *_ = trained
    assert losses_of(out)[:STEPS] == pytest.approx(losses, abs=0.05 if name == 'main-bf16' else 1e-3)


def test_classes_are_the_sizes_that_the_program_prints(trained, folder):
    name, out, j, db = trained
    n = int((folder / 'parameters').read_text())
    assert re.search(rf'num_parameters +\| {n} ', out)
    real = 2 if name == 'main-bf16' else 4
    states = 2 if name == 'fp32' else 3                             # m, v, and in train_gpt2.cu a master copy, fp32
    at = j['memory']['at_peak']
    assert (at['param'], at['grad'], at['optimizer'], at['unknown']) == (n * real, n * real, states * n * 4, 0)
    printed = int(re.search(r'allocat\w+ (\d+) MiB for activations', out)[1])
    acts = at['activation'] + at['activation_grad'] + (at['temporary'] if name != 'fp32' else 0)
    if name == 'fp32':                                              # gradients of activations have a block of their own there
        grads = int(re.search(r'allocat\w+ (\d+) MiB for activation gradients', out)[1])
        assert at['activation'] >> 20 == printed and at['activation_grad'] >> 20 == grads
    else:
        assert acts >> 20 == printed


def test_flops_are_what_the_formula_says(trained, folder):
    """6N a token for the matrices, attention's 6·L·C·T where only half of the square is kept; here the whole square is multiplied,
    12·L·C·T, in cuBLAS. N: all parameters in matrix products, the padded vocabulary once."""
    name, out, j, db = trained
    c, layers, vp = CONFIG['channels'], CONFIG['layers'], CONFIG['padded']
    matrices = 12 * layers * c * c + vp * c
    expected = (6 * matrices + 12 * layers * c * T) * B * T
    step = j['steps'][2]
    if name == 'fp32':                                              # forward multiplies by a kernel of its own, counted from its PTX
        own, = db.execute("""SELECT sum(c.flops), min(c.grade), max(c.grade) FROM op_cost c JOIN launch l ON l.op = c.op JOIN kernel k ON k.id = l.kernel
                             WHERE c.step = 2 AND k.name LIKE '%matmul_forward%'""").fetchall()
        assert own[1:] == ('exact', 'exact') and own[0] == 2 * matrices * B * T
        assert step['flops']['gemm'] == expected - own[0]
    else:
        assert step['flops']['gemm'] == expected
    assert j['totals']['flops'] is not None


def test_phases(trained):
    name, out, j, db = trained
    for step in j['steps']:
        assert [p['name'] for p in step['phases'] if p['name'] != 'recompute'] == ['forward', 'backward', 'optimizer']
