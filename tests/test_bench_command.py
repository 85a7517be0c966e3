"""acct bench: what is measured is consistent, comes in time, and the peak of this machine is found again; profiles are whole or not there at all.
Figures with known values come from a stand-in for acct-bench that prints lines of a device whose data sheet is known."""
import json, os, pty, re, shutil, signal, stat, subprocess, time
import numpy as np
import pytest
import number_formats as nf
from conftest import BUILD, DEVICE as ENV, ON_GPU, run
from test_format import undocumented

ACCT = os.path.join(BUILD, 'acct')
FORMATS = ['fp64', 'fp32', 'tf32', 'bf16', 'fp16', 'fp16_acc16', 'fp8', 'int8']
DEVICE = [] if ON_GPU else ['--vgpu']


def bench(*args, env=None, **kw):
    return run(ACCT, 'bench', *args, env={**(ENV if ON_GPU else {}), **(env or {})}, **kw)


def measured(*args, **kw):
    r = bench(*DEVICE, '--format', 'json', *args, **kw)
    assert r.returncode == 0 and r.stderr == '', r
    return json.loads(r.stdout)


# ---- the command line -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('args,says', [
    (['--seconds', '0'], 'above 0'), (['--seconds', '-3'], '-3'), (['--seconds', '0.5'], '1 to 3600'), (['--seconds', '2h'], '1 to 3600'), (['--seconds', 'soon'], 'soon'),
    (['--only', 'gem'], "'gem'"), (['--only', 'gemm,'], "''"), (['--dtype', 'fp33'], "'fp33'"), (['--dtype', ''], "''"), (['--format', 'xml'], 'xml'), (['run.db'], 'run.db'),
    (['--save', 'x'], '.profile'), (['--save', 'a:b.profile'], 'colon'), (['--save', 'no/such/x.profile'], 'no/such'), (['--save', 'there.profile'], '--force'),
    (['--save', 'x.profile', '--only', 'gemm'], '--only'), (['--save', 'x.profile', '--dtype', 'fp32'], '--dtype'), (['--save', 'x.profile', '-o', 'x.profile'], '--output'),
    (['--save', 'x.profile', '-o', './x.profile'], '--output'), (['--save', 'a\nb'], 'a?b'),
    (['--force'], '--save'), (['--vgpu=h100-sxm'], 'nothing to measure'), (['--vgpu=h100'], 'no such device'), (['--vgpu=there.profile'], 'there.profile'), (['--nonsense'], '--nonsense')])
def test_a_bad_command_line_is_one_line(tmp_path, args, says):
    (tmp_path / 'there.profile').write_text('base = t4\n')
    r = bench(*args, cwd=tmp_path)
    assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1 and says in r.stderr, r
    assert os.listdir(tmp_path) == ['there.profile'] and (tmp_path / 'there.profile').read_text() == 'base = t4\n'


@pytest.mark.skipif(ON_GPU, reason='there is a GPU')
def test_without_a_gpu_it_says_what_to_do(tmp_path):
    r = bench('--seconds', '2', '--save', 'x.profile', cwd=tmp_path)
    assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and 'acct bench --vgpu' in r.stderr and os.listdir(tmp_path) == []


@pytest.mark.parametrize('env', [{'ACCT_VGPU_DRY': 'on'}, {'ACCT_VGPU': 't4', 'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu')}])
def test_a_model_s_times_are_refused(tmp_path, env):
    """However it came about that they are a model's."""
    r = bench(*([] if 'ACCT_VGPU' in env else ['--vgpu']), '--seconds', '2', cwd=tmp_path, env=env)
    assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and 'model' in r.stderr, r


# ---- a whole run ----------------------------------------------------------------------------------------------------------

SECONDS = 6


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp('bench')
    env = {'OPENBLAS_NUM_THREADS': '1'}  # on a busy machine threads wait for one another
    measured('--only', 'launch', '--seconds', '3', env=env)  # so that this machine's peaks are known before
    start = time.time()
    document = measured('--seconds', SECONDS, '--save', folder / 'mine.profile', env=env)
    document['wall'], document['folder'] = time.time() - start, folder
    return document


def test_it_takes_the_time_that_it_is_given(whole):
    assert 0.8 * SECONDS <= whole['wall'] <= 1.2 * SECONDS, whole['wall']
    assert whole['seconds'] <= whole['wall']


def test_every_key_is_documented(whole):
    assert undocumented({k: v for k, v in whole.items() if k not in ('wall', 'folder')}, 'bench') == set()


def test_figures_are_consistent(whole):
    rows = [(kind, x) for kind in ('gemm', 'copy', 'launch', 'alloc') for x in whole[kind] if not x['skipped']]
    assert len(rows) > 30
    for kind, x in rows:
        assert 0 < x['min_s'] <= x['q1_s'] <= x['median_s'] <= x['q3_s'] <= x['max_s'] < SECONDS and x['times'] >= 3, x
        if kind == 'gemm':
            integer = x['dtype'] == 'int8'
            assert x['flops_per_s' if integer else 'ops_per_s'] is None
            assert x['ops_per_s' if integer else 'flops_per_s'] == pytest.approx(2 * x['m'] * x['n'] * x['k'] / x['median_s'], rel=1e-6)
        if kind == 'copy':
            assert x['bytes_per_s'] == pytest.approx(x['bytes'] * (2 if x['way'] == 'd2d' else 1) / x['median_s'], rel=1e-6)
        if kind in ('gemm', 'copy') and x['promised']:
            assert x['share'] == pytest.approx((x.get('flops_per_s') or x.get('ops_per_s') or x.get('bytes_per_s')) / x['promised'], rel=1e-6)


def test_all_kinds_are_measured(whole):
    left = whole['left_out']
    assert left < 20  # the last ones of a busy machine
    assert {x['way'] + '.' + x['how'] for x in whole['copy']} >= {'h2d.pageable', 'h2d.pinned', 'd2h.pageable', 'd2h.pinned', 'd2d.memcpy', 'd2d.kernel'}
    assert {x['launch'] for x in whole['launch']} == {'back-to-back', 'call', 'latency'}
    assert {x['call'] for x in whole['alloc']} == {'cudaMalloc', 'cudaFree', 'cudaMallocAsync', 'cudaFreeAsync'}
    shapes = {x['shape'] for x in whole['gemm'] if x['dtype'] == 'fp32'}
    assert shapes == {'square'} | {f'{layer}.{way}' for layer in ('qkv', 'up', 'down') for way in ('forward', 'input-gradient', 'weight-gradient')}
    assert left or {x['dtype'] for x in whole['gemm']} == set(FORMATS)


def test_training_shapes_are_a_layer_s(whole):
    """In column-major terms of Y (tokens, out) = X (tokens, in) Wᵀ: forward makes out x tokens over in, the input gradient in x tokens over out, the weight gradient in x out over tokens."""
    at = {x['shape']: (x['m'], x['n'], x['k']) for x in whole['gemm'] if x['dtype'] == 'fp32' and x['shape'] != 'square'}
    width, tokens = at['qkv.forward'][2], at['qkv.forward'][1]
    for layer, ins, outs in (('qkv', 1, 3), ('up', 1, 4), ('down', 4, 1)):
        i, o = ins * width, outs * width
        assert (at[f'{layer}.forward'], at[f'{layer}.input-gradient'], at[f'{layer}.weight-gradient']) == ((o, tokens, i), (i, tokens, o), (i, o, tokens))


def profile_of(path):
    return dict(re.findall(r'^(\w+) *= *([^#\n]*?) *(?:#.*)?$', open(path).read(), re.M))


def test_the_saved_profile_reads_as_it_was_measured(whole, tmp_path):
    saved, path = whole['saved'], whole['folder'] / 'mine.profile'
    text = profile_of(path)
    assert os.listdir(whole['folder']) == ['mine.profile'] and text['source'] == saved['source'] and text['source'].startswith('measured by acct bench, 20')
    for x in whole['peaks']:  # the fastest product of each format, to six digits
        key = 'fp64_tensor' if x['dtype'] == 'fp64' and saved['peaks']['fp64_tensor'] else x['dtype']
        assert saved['peaks'][key] == pytest.approx(x['rate'], rel=1e-5)
        fastest = max(2 * y['m'] * y['n'] * y['k'] / y['min_s'] for y in whole['gemm'] if y['dtype'] == x['dtype'] and not y['skipped'])
        assert x['rate'] == pytest.approx(fastest, rel=1e-6)
    large = [x['bytes_per_s'] for x in whole['copy'] if x['way'] == 'd2d' and x['bytes'] > 1 << 20]
    assert saved['bandwidth'] == pytest.approx(max(large), rel=1e-5)
    assert saved['launch_s'] == pytest.approx(next(x['median_s'] for x in whole['launch'] if x['launch'] == 'back-to-back'), rel=1e-5)
    assert (saved['total_bytes'], saved['reserved_bytes']) == (whole['device']['total_bytes'], whole['device']['total_bytes'] - whole['device']['free_bytes'])
    # as the virtual GPU reads it
    r = run(os.path.join(BUILD, 'tests', 'vgpu_cases'), 'describe', env={'ACCT_VGPU': str(path), 'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu')})
    seen = json.loads(r.stdout.replace(':nan', ':null'))
    assert {f: seen[f] for f in ('fp32', 'tf32', 'bf16', 'fp16')} == {f: saved['peaks'][f] for f in ('fp32', 'tf32', 'bf16', 'fp16')}
    assert (seen['profile'], seen['name'], seen['total']) == ('mine', whole['device']['name'], saved['total_bytes'])


@pytest.fixture(scope='module')
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp('peaks') / 'run.db'
    r = run(ACCT, 'run', '--vgpu', '-o', path, '--', os.path.join(BUILD, 'train'), '--model', 'linear', '--steps', '4')
    assert r.returncode == 0, r.stderr
    return path


def report(trace, *args):
    r = run(ACCT, 'report', '--format', 'json', *args, trace)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_a_report_takes_peaks_of_a_profile(whole, trace):
    path, saved = whole['folder'] / 'mine.profile', whole['saved']
    d = report(trace, '--peaks', path)['device']
    shown = d['peak_flops']
    assert {f: shown[f] for f in ('fp32', 'tf32', 'bf16', 'fp16', 'fp8')} == {f: saved['peaks'][f] for f in ('fp32', 'tf32', 'bf16', 'fp16', 'fp8')}
    assert d['bytes_per_s'] == saved['bandwidth'] and d['peak_source'] == f'given with --peaks {path}: {saved["source"]}'


def test_mfu_goes_by_those_peaks(trace, tmp_path):
    """FLOPs by time by peak; --peak-tflops beats the profile, for the formats that it names."""
    (tmp_path / 'p.profile').write_text('base = t4\nfp32 = 2TFLOP/s\nbandwidth = 123GB/s\n')
    for args, fp32 in ((['--peaks', tmp_path / 'p.profile'], 2e12), (['--peaks', 't4'], 8.1e12), (['--peaks', 'T4', '--peak-tflops', 'fp32=3'], 3e12)):
        d = report(trace, *args)
        assert d['device']['peak_flops']['fp32'] == fp32 and d['device']['peak_flops']['fp16'] == 65e12 and d['device']['peak_flops']['bf16'] is None
        assert any(n.startswith(f'Peaks and bandwidth are {args[1]}') for n in d['notes'])
        for i, s in enumerate(d['steps'][1:], 1):  # from the end of the step before to the end of this one
            seconds = (s['device_end_ns'] - d['steps'][i - 1]['device_end_ns']) / 1e9
            assert s['mfu'] == pytest.approx(s['flops']['gemm'] / seconds / fp32, rel=1e-6)
    assert report(trace, '--peaks', tmp_path / 'p.profile')['device']['bytes_per_s'] == 123e9


@pytest.mark.parametrize('value,says', [('cpu', 'acct bench'), ('h100', 'no such device'), ('none.profile', 'none.profile'), ('t4:2', 'without a count'), ('bad.profile', 'bad.profile:1')])
@pytest.mark.parametrize('command', ['report', 'steps', 'memory', 'flops', 'ops', 'kernels', 'peak', 'leaks'])
def test_peaks_that_are_none(trace, tmp_path, command, value, says):
    (tmp_path / 'bad.profile').write_text('nonsense = 1\n')
    r = run(ACCT, command, '--peaks', value, trace, cwd=tmp_path)
    assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1 and says in r.stderr, r


def test_a_view_does_not_replace_the_profile(trace, tmp_path):
    (tmp_path / 'p.profile').write_text('base = t4\n')
    r = run(ACCT, 'report', '--peaks', 'p.profile', '-o', './p.profile', trace, cwd=tmp_path)
    assert r.returncode == 2 and 'which would be lost' in r.stderr and (tmp_path / 'p.profile').read_text() == 'base = t4\n'


@pytest.mark.skipif(ON_GPU, reason='of the virtual GPU')
@pytest.mark.parametrize('memory', ['64K', '4M', '64M'])
def test_a_small_device(memory):
    """What has no room is said, each once; nothing stands twice."""
    d = measured('--only', 'copy,alloc', '--seconds', '2', env={'ACCT_VGPU_MEMORY': memory})
    copies = [(c['way'], c['how'], c['bytes']) for c in d['copy']]
    assert len(copies) == len(set(copies)) >= 6 and len(d['notes']) == len(set(d['notes']))
    for c in d['copy']:
        assert (c['bytes_per_s'] is None) == any(f"{c['way']} {c['how']} {c['bytes']} bytes: out of memory" in n for n in d['notes'])
    assert (memory == '64K') == any(c['bytes_per_s'] is None for c in d['copy'])


# ---- the peak of this machine ------------------------------------------------------------------------------------------------

@pytest.mark.skipif(ON_GPU, reason='of the virtual GPU')
def test_the_cached_peak_is_found_again(tmp_path):
    """Within 10 %. The machine's speed changes while others use it, and the peak is measured at another moment than the products: one thread, whose short products have a processor to themselves
    sometimes, and several tries with a cache each. Both come to what the machine can do; a wrong peak or rate never does."""
    rates, peaks = [], []
    for i in range(5):
        cache = tmp_path / str(i)
        p, = measured('--only', 'gemm', '--dtype', 'fp32', '--seconds', '4', env={'ACCT_CACHE': str(cache), 'OPENBLAS_NUM_THREADS': '1'})['peaks']
        file, = cache.glob('peak-*')
        peaks.append(float(re.search(r' fp32 (\S+)', file.read_text())[1]))
        rates.append(p['rate'])
        assert p['promised'] == pytest.approx(peaks[-1], rel=1e-6) and p['share'] == pytest.approx(p['rate'] / peaks[-1], rel=1e-6)
        if 0.9 <= max(rates) / max(peaks) <= 1.1:
            return
    assert not (rates, peaks)


# ---- ended half-way ----------------------------------------------------------------------------------------------------------

def children(pid):
    return [int(c) for c in open(f'/proc/{pid}/task/{pid}/children').read().split()]


def ended(pid):
    try:
        return open(f'/proc/{pid}/stat').read().split(') ')[1][0] == 'Z'
    except FileNotFoundError:
        return True


def wait_for(condition, seconds=5):
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.skipif(ON_GPU, reason='so many at a time are for the virtual GPU')
def test_a_run_that_is_killed_leaves_no_half_profile(tmp_path):
    """acct and acct-bench, by several signals, at several moments: an older file stays, nothing new is there, and the other process ends too."""
    runs = []
    for who in ('acct', 'acct-bench'):
        for sig in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            for at in (0.02, 0.3, 1.1):
                folder = tmp_path / f'{who}-{int(sig)}-{at}'
                folder.mkdir()
                (folder / 'old.profile').write_text('old')
                p = subprocess.Popen([ACCT, 'bench', '--vgpu', '--seconds', '4', '--save', 'old.profile', '--force'], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                runs.append((time.time() + at, who, sig, folder, p))
    for at, who, sig, folder, p in sorted(runs, key=lambda r: r[0]):
        assert wait_for(lambda: children(p.pid))
        child, = children(p.pid)
        time.sleep(max(0, at - time.time()))
        os.kill(p.pid if who == 'acct' else child, sig)
        out, err = p.communicate(timeout=20)
        assert out == '' and os.listdir(folder) == ['old.profile'] and (folder / 'old.profile').read_text() == 'old', (who, sig, folder)
        assert wait_for(lambda: ended(child)), (who, sig)
        if who == 'acct':
            assert p.returncode == (-9 if sig == signal.SIGKILL else 128 + sig) and (sig == signal.SIGKILL or ('interrupted' in err and err.count('\n') == 1))
        else:
            assert p.returncode == 1 and err.count('\n') == 1 and f'signal {int(sig)}' in err, err


def test_a_run_that_is_killed_at_its_end_leaves_a_whole_profile_or_none(fake, trace):
    """While it is written and renamed: SIGKILL at once, at moments around the end of acct-bench, never."""
    env, whole, moments = {**os.environ, 'FAKE_SLEEP': '0'}, 0, [0] + [0.004 + 0.0007 * i for i in range(25)] + [None]
    for i, moment in enumerate(moments):
        folder = fake.folder / f'run{i}'
        folder.mkdir()
        p = subprocess.Popen([fake.acct, 'bench', '--save', 'x.profile'], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        if moment is not None:
            time.sleep(moment)
            p.kill()
        p.wait()
        if os.path.exists(folder / 'x.profile'):
            assert run(ACCT, 'report', '--peaks', folder / 'x.profile', trace).returncode == 0
            whole += 1
    assert 0 < whole < len(moments)


# ---- known figures -----------------------------------------------------------------------------------------------------------

H100 = '''device name NVIDIA H100 80GB HBM3
device sm 90
device multiprocessors 132
device total_bytes 85520809984
device free_bytes 85000000000
device devices 2
device peer_access 1
device runtime 13000
gemm fp64 square m=1000 n=1000 k=1000 median_s=4e-5 q1_s=3.5e-5 q3_s=5e-5 min_s=3.2e-5 max_s=9e-5 times=7
gemm fp32 square m=1000 n=1000 k=1000 median_s=5e-5 q1_s=4e-5 q3_s=6e-5 min_s=4e-5 max_s=9e-5 times=7
gemm bf16 square m=10000 n=10000 k=10000 median_s=4e-3 q1_s=3e-3 q3_s=5e-3 min_s=2.5e-3 max_s=9e-3 times=9
gemm bf16 up.forward m=100 n=100 k=100 median_s=1e-6 q1_s=1e-6 q3_s=1e-6 min_s=1e-6 max_s=1e-6 times=3
gemm fp8 all skipped=not supported: made up
gemm int8 square m=1000 n=1000 k=1000 median_s=2e-6 q1_s=2e-6 q3_s=2e-6 min_s=2e-6 max_s=2e-6 times=3
gemm fp16 square m=16384 n=16384 k=16384 skipped=out of memory
copy h2d pageable bytes=67108864 median_s=0.01 q1_s=0.01 q3_s=0.01 min_s=0.01 max_s=0.01 times=3
copy h2d pinned bytes=1048576 median_s=1e-7 q1_s=1e-7 q3_s=1e-7 min_s=1e-7 max_s=1e-7 times=3
copy h2d pinned bytes=50000000 median_s=1e-3 q1_s=1e-3 q3_s=1e-3 min_s=1e-3 max_s=1e-3 times=3
copy d2h pinned bytes=50000000 median_s=2e-3 q1_s=2e-3 q3_s=2e-3 min_s=2e-3 max_s=2e-3 times=3
copy d2d memcpy bytes=1048576 median_s=1e-7 q1_s=1e-7 q3_s=1e-7 min_s=1e-7 max_s=1e-7 times=3
copy d2d kernel bytes=1000000000 median_s=1e-3 q1_s=1e-3 q3_s=1e-3 min_s=1e-3 max_s=1e-3 times=3
copy d2d memcpy bytes=1000000000 median_s=8e-4 q1_s=8e-4 q3_s=8e-4 min_s=8e-4 max_s=8e-4 times=3
copy peer memcpy bytes=1000000000 median_s=4e-3 q1_s=4e-3 q3_s=4e-3 min_s=4e-3 max_s=4e-3 times=3
launch back-to-back empty-kernel median_s=2.5e-6 q1_s=2e-6 q3_s=3e-6 min_s=1e-6 max_s=1e-5 times=5
'''
END = 'end seconds=3.5 left=2\n'


class Fake:
    """acct beside a script in place of acct-bench, which prints a file."""
    def __init__(self, folder):
        self.folder, self.acct, self.script = folder, folder / 'acct', folder / 'acct-bench'
        shutil.copy(ACCT, self.acct)
        self.prints(H100 + END)

    def prints(self, text, then=''):
        (self.folder / 'lines').write_text(text)
        self.script.write_text(f'#!/bin/sh\ncat {self.folder}/lines\n{then}\n')
        self.script.chmod(self.script.stat().st_mode | stat.S_IXUSR)

    def run(self, *args, **kw):
        return run(self.acct, 'bench', *args, **kw)


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path)


def test_a_profile_that_cannot_be_saved_costs_no_figures(fake):
    """What was measured is shown: a figure is missing; a file of that name came meanwhile, which stays."""
    kept = fake.folder / 'x.profile'
    no_fp32 = re.sub('gemm fp32.*\n', '', H100.replace('H100 80GB HBM3', 'H100 64GB'))
    for text, then, says, left in ((no_fp32, '', 'x.profile: fp32 is missing', []), (H100, f'echo kept >{kept}', 'exists already', ['x.profile'])):
        fake.prints(text + END, then)
        r = fake.run('--save', 'x.profile', '--format', 'json', cwd=fake.folder)
        d = json.loads(r.stdout)
        assert r.returncode == 1 and r.stderr.count('\n') == 1 and says in r.stderr and d['saved'] is None and len(d['copy']) == 8, r
        assert [f for f in os.listdir(fake.folder) if f.startswith('x.')] == left
    assert kept.read_text() == 'kept\n'


@pytest.mark.parametrize('name,says', [('H100 80GB', "the data sheet's stand for them"), ('H100 64GB', 'unknown')])
def test_a_profile_says_what_it_lacks(fake, name, says):
    """fp8 is not supported, which is no lack."""
    fake.prints(H100.replace('H100 80GB', name) + END)
    notes = json.loads(fake.run('--save', 'x.profile', '--format', 'json', cwd=fake.folder).stdout)['notes']
    lacks, = [n for n in notes if 'no figure of' in n]
    assert 'no figure of tf32, fp16, fp16_acc16, not measured' in lacks and says in lacks
    assert not any('no figure of' in n for n in json.loads(fake.run('--format', 'json').stdout)['notes'])


def test_a_name_that_cannot_be_written_is_refused_before_measuring(fake):
    fake.prints(H100 + END, f'touch {fake.folder}/measured')
    for out in ('no/such', '.', ''):
        r = fake.run('-o', out, cwd=fake.folder)
        assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and '--output' in r.stderr and not os.path.exists(fake.folder / 'measured'), r


def test_an_ignored_signal_stays_ignored(fake):
    """As nohup has it."""
    fake.prints(H100, f'sleep 1; echo "{END.strip()}"')
    p = subprocess.Popen(['sh', '-c', 'trap "" HUP; exec "$0" bench --format json', fake.acct], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: children(p.pid))
    p.send_signal(signal.SIGHUP)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 0 and json.loads(out)['complete'], err


def test_known_figures_beside_the_data_sheet(fake):
    """Promised: ACCOUNTING section 9; PCIe 5 x16 63.015 GB/s and NVLink 450 GB/s one way (devices.def)."""
    r = fake.run('--format', 'json')
    assert r.returncode == 0, r.stderr
    d = json.loads(r.stdout)
    assert undocumented(d, 'bench') == set() and d['device']['data_sheet'] == 'h100-sxm' and d['device']['clock'] == 'gpu' and d['left_out'] == 2 and d['saved'] is None
    best = {x['dtype']: (x['rate'], x['median_rate'], x['promised'], x['share']) for x in d['peaks']}
    assert best == {'fp64': pytest.approx((2e9 / 3.2e-5, 2e9 / 4e-5, 66.9e12, 62.5 / 66.9)), 'fp32': pytest.approx((50e12, 40e12, 66.9e12, 50 / 66.9)),
                    'bf16': pytest.approx((800e12, 500e12, 989.4e12, 800 / 989.4)), 'int8': pytest.approx((1e15, 1e15, 1978.9e12, 1000 / 1978.9))}
    copies = [(x['way'], x['bytes_per_s'], x['promised']) for x in d['copy']]
    assert copies == [('h2d', pytest.approx(6710886400), 63.015e9), ('h2d', pytest.approx(1048576e7), 63.015e9), ('h2d', pytest.approx(50e9), 63.015e9), ('d2h', pytest.approx(25e9), 63.015e9),
                      ('d2d', pytest.approx(2 * 1048576e7), 3350e9), ('d2d', pytest.approx(2e12), 3350e9), ('d2d', pytest.approx(2.5e12), 3350e9), ('peer', pytest.approx(250e9), 450e9)]
    skipped = {x['dtype']: (x['skipped'], x['median_s'], x['flops_per_s'], x['times']) for x in d['gemm'] if x['skipped']}
    assert skipped == {'fp8': ('not supported: made up', None, None, None), 'fp16': ('out of memory', None, None, None)}
    text = fake.run().stdout
    for words in ('800.0 TFLOP/s', '989.4 TFLOP/s', '80.9 %', 'gemm fp8: not supported: made up', 'fp16 square 16384 x 16384 x 16384: out of memory', '2 measurement(s) were left out', '1000 TOP/s'):
        assert words in text, words


def test_a_profile_of_a_known_device(fake):
    """Measured where measured, the data sheet's for the rest; no unit is `none`, what failed is the base's."""
    r = fake.run('--save', 'x.profile', '--format', 'json', cwd=fake.folder)
    assert r.returncode == 0, r.stderr
    text, saved = profile_of(fake.folder / 'x.profile'), json.loads(r.stdout)['saved']
    assert {k: text.get(k) for k in ('base', 'name', 'sm', 'multiprocessors', 'total', 'reserved', 'fp64_tensor', 'fp64', 'fp32', 'bf16', 'fp16', 'fp8', 'int8', 'bandwidth', 'host_link', 'peer_link',
                                     'peer_access', 'launch')} == {
        'base': 'h100-sxm', 'name': 'NVIDIA H100 80GB HBM3', 'sm': '90', 'multiprocessors': '132', 'total': '85520809984B', 'reserved': '520809984B', 'fp64_tensor': '62.5TFLOP/s', 'fp64': None,
        'fp32': '50TFLOP/s', 'bf16': '800TFLOP/s', 'fp16': None, 'fp8': 'none', 'int8': '1POP/s', 'bandwidth': '2500GB/s', 'host_link': '50GB/s', 'peer_link': '250GB/s', 'peer_access': 'yes', 'launch': '2.5us'}
    assert saved['peaks'] == {'fp64': 33.5e12, 'fp64_tensor': 62.5e12, 'fp32': 50e12, 'tf32': 494.7e12, 'bf16': 800e12, 'fp16': 989.4e12, 'fp16_acc16': 989.4e12, 'fp8': None, 'int8': 1e15}
    assert (saved['bandwidth'], saved['host_link'], saved['peer_link'], saved['launch_s'], saved['reserved_bytes']) == (2.5e12, 50e9, 250e9, pytest.approx(2.5e-6), 520809984)
    assert sorted(os.listdir(fake.folder)) == ['acct', 'acct-bench', 'lines', 'x.profile']


def test_a_device_that_is_not_in_the_table(fake):
    fake.prints(H100.replace('H100 80GB HBM3', 'H100 64GB') + END)
    d = json.loads(fake.run('--format', 'json').stdout)
    assert d['device']['data_sheet'] is None and all(x['promised'] is None and x['share'] is None for x in d['peaks'] + d['gemm'] + d['copy'])
    assert any('not in the table' in n for n in d['notes'])
    assert fake.run('--save', 'x.profile', cwd=fake.folder).returncode == 0 and 'base' not in profile_of(fake.folder / 'x.profile')
    fake.prints(re.sub('gemm fp32.*\n', '', H100.replace('H100 80GB HBM3', 'H100 64GB')) + END)  # no figure that a profile needs, no base
    r = fake.run('--save', 'y.profile', cwd=fake.folder)
    assert r.returncode == 1 and 'fp32 is missing' in r.stderr and r.stderr.count('\n') == 1 and not [f for f in os.listdir(fake.folder) if f.startswith('y')]


@pytest.mark.parametrize('text,then,says', [(H100, 'exit 0', 'code 0'), (H100, 'kill -SEGV $$', 'signal 11'), (H100 + 'end seconds=3', 'exit 0', 'code 0'), ('', 'exit 3', 'before anything was measured'),
                                            (H100 + END.rstrip('\n'), 'exit 0', 'code 0'), ('x' * 100000 + '\n', 'exit 1', 'code 1')])
def test_what_did_not_come_to_its_end_is_not_shown(fake, text, then, says):
    fake.prints(text, then)
    r = fake.run('--save', 'x.profile', cwd=fake.folder)
    assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and says in r.stderr and not os.path.exists(fake.folder / 'x.profile'), r


def test_what_hangs_is_ended_in_time(fake):
    fake.prints(H100, 'trap "" INT TERM ALRM; while :; do sleep 0.1; done')
    for args in ([], ['--save', 'x.profile']):
        start = time.time()
        r = fake.run('--seconds', '1', '--format', 'json', *args, cwd=fake.folder)
        d = json.loads(r.stdout)
        assert r.returncode == 1 and r.stderr.count('\n') == 1 and 'cut off' in r.stderr and time.time() - start < 2.5
        assert not d['complete'] and d['left_out'] is None and d['seconds'] is None and len(d['copy']) == 8 and not os.path.exists(fake.folder / 'x.profile')


def test_progress_is_for_terminals(fake):
    fake.prints(H100, f'sleep 0.3; echo "{END.strip()}"')
    us, its = pty.openpty()
    p = subprocess.Popen([fake.acct, 'bench', '--seconds', '2'], stdout=subprocess.PIPE, stderr=its, text=True)
    os.close(its)
    seen = b''
    try:
        while data := os.read(us, 4096):
            seen += data
    except OSError:
        pass
    out, _ = p.communicate()
    os.close(us)
    assert p.returncode == 0 and b'16 measured' in seen and seen.endswith(b'\r\x1b[K') and b'\n' not in seen and 'h100' not in out.lower().split('device')[0]
    assert fake.run('--seconds', '2').stderr == ''


# ---- acct-bench itself -------------------------------------------------------------------------------------------------------

def test_matrices_hold_random_numbers():
    """About normal, without repetition, rounded to nearest; the copying kernel copies."""
    r = subprocess.run([os.path.join(BUILD, 'tests', 'measure_fill')], capture_output=True, env={**os.environ, **ENV}, timeout=60)
    assert r.returncode == 0, r.stderr
    n, at = 4096, 0
    out = []
    for dtype in (np.float64, np.float32, np.uint16, np.uint16, np.uint8, np.int8, np.int8):
        out.append(np.frombuffer(r.stdout, dtype, n, at))
        at += out[-1].nbytes
    fp64, fp32, bf16, fp16, fp8, int8, copy = out
    assert at == len(r.stdout)
    assert abs(fp32.mean()) < 4 / n ** 0.5 and abs(fp32.std() - 1) < 0.05 and np.abs(fp32).max() < 6.1 and len(np.unique(fp32)) > 0.99 * n
    assert 0.66 < (np.abs(fp32) < 1).mean() < 0.71 and 0.94 < (np.abs(fp32) < 2).mean() < 0.97  # 68.3 % and 95.4 % of a normal one
    assert abs(np.corrcoef(fp32[1:], fp32[:-1])[0, 1]) < 4 / n ** 0.5
    assert (fp64 == fp32).all() and (copy == int8).all() and (int8 == np.rint(fp32.astype(np.float64) * 16)).all()
    for bits, fmt in ((bf16, nf.BF16), (fp16, nf.FP16), (fp8, nf.E4M3)):
        assert (bits == nf.encode(fp32, fmt)).all(), fmt


def library(tmp_path, code):
    (tmp_path / 'lib').mkdir()
    (tmp_path / 'x.c').write_text(code)
    subprocess.run(['cc', '-shared', '-fPIC', '-o', tmp_path / 'lib/libcudart.so.13', tmp_path / 'x.c'], check=True)
    return {'LD_LIBRARY_PATH': str(tmp_path / 'lib')}


def test_a_library_that_hangs_or_is_old(tmp_path):
    """acct-bench ends itself when its time is over, whatever it waits for; a runtime that lacks a function is named."""
    env = library(tmp_path, '#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }')
    start = time.time()
    r = bench('--seconds', '1', env=env)
    assert r.returncode == 1 and r.stderr.count('\n') == 1 and 'before anything was measured' in r.stderr and time.time() - start < 2
    shutil.rmtree(tmp_path / 'lib')
    r = bench('--seconds', '1', env=library(tmp_path, 'int cudaGetErrorString;'))
    assert r.returncode == 1 and r.stderr.count('\n') == 1 and 'libcudart has no cuda' in r.stderr


@pytest.mark.parametrize('args', [['--seconds', '0'], ['--seconds'], ['--only', 'x'], ['--dtype', 'fp32,'], ['--what', '1'], ['x']])
def test_its_own_command_line(args):
    r = run(os.path.join(BUILD, 'acct-bench'), *args)
    assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1
