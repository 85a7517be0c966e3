"""What the virtual GPU stands for: every device of the table by its figures, limits and refusals; profile files; what a report says of a model.

The table is read from its text here, and its figures are held against each other: a peak follows from multiprocessors and clock, a bandwidth from bus and memory
clock. Limits are those of the CUDA C++ Programming Guide 13.0 (Technical Specifications per Compute Capability), written down here once more."""
import json, math, os, re
import pytest
from conftest import BUILD, TOP, run
from report_trace import Trace

ACCT, VGPU = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'vgpu')
# compute_75, 80, 90a, 80 and 90a
OLD, NEW, ALONE, TWO = (os.path.join(BUILD, 'tests', p) for p in ('profile_device_75', 'profile_device', 'profile_device_90a', 'profile_device_two'))
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

NAMES = 'alias name sm fp64 fp64_tensor fp32 tf32 bf16 fp16 fp16_acc16 fp8 int8 fp4 gb_s gb total source'.split()
BOARD = 'alias sms mhz memory_mhz bus l2 reserved host peer direct'.split()
TEXT = open(os.path.join(TOP, 'include/acct/devices.def')).read()
CONSTANTS = {**{k: float(v) for k, v in re.findall(r'^#define (PCIE\d_X16|NVLINK_C2C) ([\d.]+)', TEXT, re.M)}, 'NO': None, 'MIB': MIB,
             'PEER_LINK': 2, 'PEER_BUS': 1, 'PEER_HOST': 0, 'MEASURED': int, 'ESTIMATED': lambda gb: gb * GIB // 100 * 99}


def rows(macro, names):
    for line in re.findall(rf'^{macro}\((.*)\)$', TEXT, re.M):
        yield dict(zip(names, eval(f'({re.sub(r"(?<=[0-9])LL", "", line)},)', {}, CONSTANTS)))


DEVICES = {d['alias']: d for d in rows('DEVICE', NAMES)}
for board in rows('BOARD', BOARD):
    DEVICES[board['alias']].update(board)
# threads, blocks, shared KiB of a multiprocessor; shared KiB of a block that opts in; FP32 lanes of a multiprocessor
GUIDE = {70: (2048, 32, 96, 96, 64), 75: (1024, 16, 64, 64, 64), 80: (2048, 32, 164, 163, 64), 86: (1536, 16, 100, 99, 128), 89: (1536, 24, 100, 99, 128),
         90: (2048, 32, 228, 227, 128), 100: (2048, 32, 228, 227, 128), 120: (1536, 24, 100, 99, 128)}


def on(profile, *argv, **env):
    return run(*argv, env={'LD_LIBRARY_PATH': VGPU, 'ACCT_VGPU': str(profile), **env}, timeout=60)


def report(path):
    r = run(ACCT, 'report', '--format', 'json', path)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def text(path):
    r = run(ACCT, 'report', path)
    assert r.returncode == 0, r.stderr
    return r.stdout


def answer(profile, what, program=OLD, **env):
    r = on(profile, program, what, **env)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


# ---- the table ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('alias', DEVICES)
def test_figures_of_the_table_agree_with_each_other(alias):
    d = DEVICES[alias]
    assert d['fp32'] == pytest.approx(d['sms'] * GUIDE[d['sm']][4] * 2 * d['mhz'] * 1e-6, rel=0.01)
    assert d['gb_s'] == pytest.approx(2 * d['memory_mhz'] * 1e6 * d['bus'] / 8 / 1e9, rel=0.05)
    assert d['gb'] * 1e9 * 0.97 < d['total'] <= d['gb'] * GIB and d['reserved'] * MIB < 0.05 * d['total']
    assert d['host'] in (15.754, 31.508, 63.015, 450) and (d['direct'] == 2) == (d['peer'] > 100)


@pytest.mark.parametrize('alias', DEVICES)
def test_a_program_is_told_of_the_device_what_the_table_says(alias):
    d, said = DEVICES[alias], answer(alias, 'properties')
    p = said['devices'][0]
    threads, blocks, shared, optin, _ = GUIDE[d['sm']]
    assert said['count'] == 1 and said['beyond'] == ['cudaErrorInvalidDevice'] * 4
    assert (p['name'], p['total'], p['sm'], p['sms']) == (d['name'], d['total'], d['sm'], d['sms'])
    assert (p['threads_sm'], p['blocks_sm'], p['shared_sm'], p['shared_optin']) == (threads, blocks, shared * KIB, optin * KIB)
    assert (p['shared_block'], p['registers_block'], p['registers_sm']) == (48 * KIB, 65536, 65536)
    assert p['shared_reserved'] == (KIB if d['sm'] >= 80 else 0)
    assert (p['bus_bits'], p['l2'], p['a_clock'], p['a_memory_clock']) == (d['bus'], d['l2'] * MIB, d['mhz'] * 1000, d['memory_mhz'] * 1000)
    assert p['a_major'] * 10 + p['a_minor'] == d['sm'] and p['a_ratio'] == round(d['fp32'] / d['fp64'])
    for a, b in (('a_sms', 'sms'), ('a_bus_bits', 'bus_bits'), ('a_shared_optin', 'shared_optin'), ('a_threads_sm', 'threads_sm'), ('a_blocks_sm', 'blocks_sm'), ('a_l2', 'l2')):
        assert p[a] == p[b], a


def test_help_lists_every_device():
    lines = {line.split()[0]: line for line in run(ACCT, 'help', 'devices').stdout.splitlines() if line.strip()}
    for d in DEVICES.values():
        line = lines[d['alias']]
        figures = [float(x) if x != '-' else None for x in line[line.index(d['name']) + len(d['name']):].replace('~', '').split()]
        assert figures[0] == d['sm'] / 10 and figures[1] == pytest.approx(d['total'] / GIB, abs=0.06) and figures[2] == pytest.approx(d['gb_s'] / 1e3)
        assert figures[3:] == [d[f] for f in ('fp64', 'fp32', 'tf32', 'bf16', 'fp16', 'fp8', 'int8')]
    assert 'cpu' in lines


def test_several_devices_are_alike_and_told_apart():
    said = answer('H100-SXM:16', 'properties')  # letters of either case
    assert said['count'] == 16 and said['beyond'] == ['cudaErrorInvalidDevice'] * 4
    assert [d['by_bus'] for d in said['devices']] == list(range(16))
    assert all(len({d[k] for d in said['devices']}) == 16 for k in ('bus', 'uuid'))
    assert {d['name'] for d in said['devices']} == {'NVIDIA H100 80GB HBM3'}


def test_given_memory_is_the_capacity():
    assert answer('h100-sxm', 'properties', ACCT_VGPU_MEMORY='40G')['devices'][0]['total'] == 40 * GIB


# ---- limits and refusals -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize('alias', ['t4', 'a100-80', 'a10', 'l4', 'h100-sxm', 'b200', 'rtx5090'])
def test_occupancy_is_the_vendors_calculators(alias):
    r = answer(alias, 'occupancy')
    assert r['compared'] > 5000 and r['wrong'] == 0 and r['none'] < r['compared'] / 2


@pytest.mark.parametrize('alias', ['t4', 'a100-80', 'l4', 'h100-sxm'])
def test_a_block_may_have_what_the_device_allows_and_no_more(alias):
    wrong, fine = 'cudaErrorInvalidValue', 'cudaSuccess'
    assert answer(alias, 'limits') == {'not_opted': wrong, 'set': fine, 'set_more': wrong, 'most': fine, 'more': wrong, 'threads': fine, 'more_threads': wrong}


def test_ptx_newer_than_the_device_is_refused():
    r = on('t4', NEW, 'launch')
    assert json.loads(r.stdout) == {'launch': 'cudaErrorNoKernelImageForDevice'}
    assert re.fullmatch(r'acct virtual GPU: kernel \S*plain\S*: its PTX is for compute_80, newer than Tesla T4 \(sm_75\): it cannot run on that device; build it with .*compute_75\n', r.stderr)
    assert answer('t4', 'launch')['launch'] == 'cudaSuccess' and answer('a100-40', 'launch', NEW)['launch'] == 'cudaSuccess'
    assert answer('v100-32', 'launch')['launch'] == 'cudaErrorNoKernelImageForDevice'


def test_ptx_of_one_architecture_alone():
    """sm_90a has instructions that no other device has, newer ones included."""
    assert answer('h100-sxm', 'launch', ALONE)['launch'] == 'cudaSuccess'
    for newer in ('b200', 'rtx5090'):
        r = on(newer, ALONE, 'launch')
        assert json.loads(r.stdout) == {'launch': 'cudaErrorNoKernelImageForDevice'}
        assert re.fullmatch(r'acct virtual GPU: PTX of the program is for sm_90a alone, not for NVIDIA .*\n', r.stderr)
    for alias in ('a100-40', 'h100-sxm', 'b200'):  # the older PTX is there for the others
        assert answer(alias, 'launch', TWO)['launch'] == 'cudaSuccess'
    assert on('t4', TWO, 'launch').stderr.count('compute_80, newer than Tesla T4') == 1


# ---- what cannot be read -----------------------------------------------------------------------------------------------

WRONG = [('h100', 'h100: no such device; there are: cpu, v100-16,'), ('h100-sxm:0', 'number of devices, 1 to 16'), ('h100-sxm:17', 'number of devices'), ('cpu:', 'number of devices'),
         ('cpu:2x', 'number of devices'), ('./not-there.profile', 'not-there.profile: No such file'), ('/', 'cannot be read')]


@pytest.mark.parametrize('profile,why', WRONG)
def test_an_unknown_profile_is_no_other_device(profile, why, tmp_path):
    r = run(ACCT, 'run', f'--vgpu={profile}', '--', 'touch', tmp_path / 'started', cwd=tmp_path)
    assert r.returncode == 125 and not os.listdir(tmp_path)
    assert r.stderr.count('\n') == 1 and r.stderr.startswith(f'acct run: --vgpu={profile}'[:25]) and why in r.stderr
    r = on(profile, OLD, 'launch')
    assert r.returncode == 3 and r.stdout == '' and r.stderr.splitlines()[1].endswith('cudaErrorInitializationError')
    assert r.stderr.startswith('acct virtual GPU: ACCT_VGPU=') and why in r.stderr.splitlines()[0] and len(r.stderr.splitlines()) == 2


def test_setting_of_the_environment_is_checked_too(tmp_path):
    r = run(ACCT, 'run', '--vgpu', 'true', env={'ACCT_VGPU': 'h100'}, cwd=tmp_path)
    assert r.returncode == 125 and r.stderr.startswith('acct run: ACCT_VGPU=h100: no such device')


@pytest.mark.parametrize('options,setting,dry', [(['--vgpu'], None, None), (['--vgpu=t4'], 't4', None), (['--dry'], None, 'on'), (['--vgpu=a100-80:4', '--dry'], 'a100-80:4', 'on')])
def test_options_become_the_programs_environment_alone(options, setting, dry, tmp_path):
    r = run(ACCT, 'run', *options, '--', 'sh', '-c', 'echo "$ACCT_VGPU/$ACCT_VGPU_DRY/$LD_LIBRARY_PATH"', cwd=tmp_path, env={'LD_LIBRARY_PATH': '/opt/lib'})
    assert r.returncode == 0 and r.stdout == f'{setting or ""}/{dry or ""}/{os.path.realpath(VGPU)}:/opt/lib\n'


def test_a_wrong_setting_of_dry_is_told():
    r = on('cpu', OLD, 'launch', ACCT_VGPU_DRY='perhaps')
    assert r.returncode == 0 and r.stderr == 'acct virtual GPU: ACCT_VGPU_DRY is neither off nor on: ignored\n'


# ---- profile files -----------------------------------------------------------------------------------------------------

WHOLE = 'name = Mine\nsm = 86\nmultiprocessors = 10\ntotal = 2GiB\nreserved = 0.25GiB\nbandwidth = 100GB/s\nhost_link = 10 GB/s\nfp32 = 5 TFLOP/s\n'


def test_example_of_the_documentation():
    d = answer(os.path.join(TOP, 'docs/example.profile:2'), 'properties')['devices']
    assert len(d) == 2 and d[0]['name'] == 'H100 64GB, an example' and d[0]['total'] == 64 * GIB
    assert (d[0]['sm'], d[0]['sms'], d[0]['shared_optin'], d[0]['a_clock']) == (90, 132, 227 * KIB, 1980000)  # the base's


def test_file_without_a_base(tmp_path):
    (tmp_path / 'mine.profile').write_text(WHOLE + 'clock = 1.5 GHz  # told\nl2 = 512KiB\nmemory_bus_bits = 128\nfp64=none\n')
    d = answer(tmp_path / 'mine.profile', 'properties')['devices'][0]
    assert (d['name'], d['sm'], d['sms'], d['total'], d['l2'], d['bus_bits']) == ('Mine', 86, 10, 2 * GIB, 512 * KIB, 128)
    assert (d['a_clock'], d['a_memory_clock'], d['a_ratio'], d['threads_sm']) == (1500000, 0, 0, 1536)


@pytest.mark.parametrize('text,why', [
    ('base = h100\n', ':1: base = h100: no such device'), ('name = x\nbase = t4\n', ':2: base must be the first key'), ('base = t4\nbase = t4\n', ':2: base must be the first key'),
    ('base = t4\n\ntotal 3GiB\n', ':3: not `key = value`: total 3GiB'), ('base = t4\nvram = 3GiB\n', ":2: unknown key 'vram'"), ('base = t4\ntotal = 3\n', ':2: total = 3: must be a size'),
    ('base = t4\ntotal = 3 Gib\n', 'must be a size'), ('base = t4\ntotal = -3GiB\n', 'must be a size'), ('base = t4\nfp32 = 9TB/s\n', ':2: fp32 = 9TB/s: must be a peak'),
    ('base = t4\nfp32 = nanTFLOP/s\n', 'must be a peak'), ('base = t4\nfp32 = 0x9TFLOP/s\n', 'must be a peak'), ('base = t4\nlaunch = 3\n', 'must be a time'), ('base = t4\nsms = 3\n', 'unknown key'),
    ('base = t4\nmultiprocessors = 2.5\n', 'must be a whole number'), ('base = t4\npeer_access = 1\n', 'must be yes or no'), ('base = t4\nname =\n', 'must be a text'),
    ('base = t4\ntotal = 3GiB\ntotal = 4GiB\n', ':3: total is there twice'), ('base = t4\nsm = 87\n', 'sm = 87: its limits are not known'), ('base = t4\nreserved = 16GiB\n', 'nothing is left'),
    ('base = t4\nbandwidth = 0GB/s\n', 'must be a rate'), ('base = t4\nhost_link = 1e-300GB/s\n', 'must be a rate'), ('base = t4\nbf16 = 0TFLOP/s\n', 'must be a peak'),
    ('base = t4\nlaunch = 1e9s\n', 'must be a time'), ('base = t4\nname = \x1b[31m\n', 'must be a text'),
    ('base = t4\ntotal = 99999999999TiB\n', 'must be a size'), ('base = t4\nclock = 99999999GHz\n', 'must be a frequency'),
    (WHOLE.replace('total = 2GiB\n', ''), 'total is missing, and there is no base'), ('', 'name is missing'), ('base = t4\nname = ' + 'x' * 600 + '\n', ':2: the line is too long'),
])
def test_a_wrong_file_is_refused_by_line(text, why, tmp_path):
    (tmp_path / 'a.profile').write_text(text)
    r = run(ACCT, 'run', '--vgpu=a.profile', 'true', cwd=tmp_path)
    assert r.returncode == 125 and r.stderr.startswith('acct run: --vgpu=a.profile:') and why in r.stderr and r.stderr.count('\n') == 1
    r = on(tmp_path / 'a.profile', OLD, 'launch')
    assert r.returncode == 3 and why in r.stderr.splitlines()[0]


def test_a_program_that_changes_its_folder_finds_the_file(tmp_path):
    (tmp_path / 'my.profile').write_text(WHOLE.replace('= 86', '= 75'))
    (tmp_path / 'else').mkdir()
    r = run(ACCT, 'run', '--vgpu=my.profile:2', '--', 'sh', '-c', f'cd else; {OLD} properties', cwd=tmp_path)
    assert r.returncode == 0 and [d['name'] for d in json.loads(r.stdout)['devices']] == ['Mine'] * 2


# ---- reports -----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def traces(tmp_path_factory):
    """Three runs of the same program: dry on the table's device, dry on a file's, executed on this machine."""
    d = tmp_path_factory.mktemp('traces')
    (d / 'mine.profile').write_text('base = h100-sxm\nbf16 = 700TFLOP/s\nfp8 = none\n')
    for name, options in (('table', ['--vgpu=h100-sxm', '--dry']), ('file', ['--vgpu=mine.profile', '--dry']), ('model', ['--vgpu=h100-sxm']), ('cpu', ['--vgpu']), ('dry', ['--dry'])):
        r = run(ACCT, 'run', *options, '-o', f'{name}.db', '--', OLD, 'launch', cwd=d)
        assert r.returncode == 0 and r.stdout == '{"launch": "cudaSuccess"}\n', r.stderr
    return d


def peaks(alias):
    d = DEVICES[alias]
    return {k: v and pytest.approx(v * 1e12) for k, v in {'fp64': d['fp64_tensor'] or d['fp64'], **{f: d[f] for f in ('fp32', 'tf32', 'bf16', 'fp16', 'fp8', 'fp4')}}.items()}


def test_report_names_device_profile_and_model(traces):
    j = report(traces / 'table.db')['device']
    assert (j['name'], j['clock'], j['profile'], j['dry']) == ('NVIDIA H100 80GB HBM3', 'model', 'h100-sxm', True)
    assert j['peak_flops'] == peaks('h100-sxm')
    out = text(traces / 'table.db')
    assert re.search(r'virtual GPU +h100-sxm, dry run: nothing was executed\n', out) and re.search(r'clock of the steps +model', out)
    assert re.search(r'peak from +H100 white paper', out) and re.search(r'\bat best\b', out)
    executed = report(traces / 'model.db')
    assert executed['device']['clock'] == 'model' and not executed['device']['dry'] and any('roofline' in n for n in executed['notes'])
    assert not any('Dry run' in n for n in executed['notes'])


def test_report_on_a_profile_file_has_its_peaks(traces):
    j, out = report(traces / 'file.db')['device'], text(traces / 'file.db')
    want = peaks('h100-sxm')
    assert j['profile'] == str(traces / 'mine.profile') and j['peak_flops'] == {**want, 'bf16': 7e14, 'fp8': None}
    assert re.search(r'peak from +profile file: mine.profile, from h100-sxm\n', out)


def test_report_on_this_machine_is_no_model(traces):
    j = report(traces / 'cpu.db')['device']
    assert (j['clock'], j['profile'], j['dry']) == ('cpu', None, False) and 'at best' not in text(traces / 'cpu.db')
    j = report(traces / 'dry.db')['device']
    assert (j['clock'], j['profile'], j['dry']) == ('model', None, True) and j['peak_flops']['fp32'] > 0


def test_hosts_clock_tells_nothing_of_a_model(tmp_path):
    """An op without a device time: no rate by this machine's clock against that device's peak."""
    t = Trace(tmp_path / 'a.db')
    t.device('NVIDIA H100 80GB HBM3')
    for i in range(3):
        t.step(i, i * 10**6, (i + 1) * 10**6, [('forward', 'bf16', 10**9, 1)])
    t.db.commit()
    assert report(tmp_path / 'a.db')['steps'][1]['mfu'] == pytest.approx(10**9 / 1e-3 / 989.4e12)
    t.db.execute("UPDATE device SET clock = 'model'")
    j, out = report(t.close()), text(tmp_path / 'a.db')
    assert all(s['mfu'] is None and s['hfu'] is None for s in j['steps']) and j['run']['flops_per_s']['median'] is None and j['run']['step_ns']['median'] is None
    assert j['steps'][1]['flops']['gemm'] == 10**9 and "the host's clock tells nothing about that device" in ' '.join(out.split())
