"""Kernels and their launches in the trace: names, modules with their PTX, parameters, argument bytes.

The first part runs programs/preload_launch.c, which makes its fat binaries by hand and launches what they hold by every
route, on a stand-in that answers as the program says: the expected values are the numbers in the program's source."""
import json, os, shutil, struct, subprocess, sys
import pytest
from conftest import BUILD, TOP, run
from test_preload import LIB, Trace, fake, listing, plain, traced  # noqa: F401 (fixtures)


def fnv1a(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 % (1 << 64)
    return h - (1 << 64) if h >> 63 else h


def payload(text):
    """As preload_launch.c pads it."""
    return text.encode().ljust(64, b'\0')


LAUNCHES = '''SELECT o.id, o.stream, o.status, a.name AS api, k.name, l.grid_x, l.grid_y, l.grid_z, l.block_x, l.block_y, l.block_z,
              l.dynamic_shared_bytes, l.cooperative, l.args, l.external FROM launch l JOIN op o ON o.id = l.op JOIN api a ON a.id = o.api
              LEFT JOIN kernel k ON k.id = l.kernel ORDER BY o.id'''


@pytest.fixture(scope='module')
def routes(fake, tmp_path_factory):
    out = tmp_path_factory.mktemp('routes') / 't.db'
    r = run(os.path.join(BUILD, 'tests', 'preload_launch'), 'every-route', env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out), 'ACCT_CUPTI': 'off'})
    assert r.returncode == 0 and r.stderr == ''
    return Trace(out), dict(l.split('=') for l in r.stdout.splitlines())


def test_every_route_is_recorded(routes):
    t, printed = routes
    rows = [tuple(r.values())[1:] for r in t.rows(LAUNCHES)]
    add = struct.pack('<QQhxxf', 0x1111, 0x2222, 77, 1.5)
    p = struct.pack('<Q', 0x3333)
    per_thread = 2  # cudaStreamPerThread
    assert rows == [
        (int(printed['stream']), 0, '__cudaLaunchKernel', '_Z3addPfS_if', 2, 3, 4, 5, 6, 7, 1000, 0, add, 0),
        # an int and a float that the program gave the address of a pointer for: the first bytes of it
        (0, 0, 'cudaLaunchKernel', '_Z3addPfS_if', 1, 1, 1, 1, 1, 1, 0, 0, p + p + p[:2] + b'\0\0' + p[:4], 0),
        (0, 0, '__cudaLaunchKernel', '_Z5emptyv', 1, 1, 1, 2, 1, 1, 0, 0, b'', 0),
        (per_thread, 0, '__cudaLaunchKernel_ptsz', '_Z6linkedPv', 1, 1, 1, 3, 1, 1, 0, 0, p, 0),
        (0, 0, 'cudaLaunchKernelExC', '_Z6linkedPv', 8, 1, 1, 32, 1, 1, 64, 1, p, 0),
        (0, 0, 'cudaLaunchCooperativeKernel', '_Z7no_textv', 1, 1, 1, 4, 1, 1, 0, 1, b'', 0),
        (0, 0, 'cudaLaunchKernel', '_Z8unasked5', 1, 1, 1, 5, 1, 1, 0, 0, None, 0),
        (0, 0, 'cudaLaunchKernel', '_Z6loadedv', 1, 1, 1, 6, 1, 1, 0, 0, b'', 0)]
    assert printed['error'] == '0'  # the runtime's answers to our questions are not the program's errors
    assert t.lost() == 0 and t.meta['state'] == 'complete'


def test_kernels_are_described_once(routes):
    t, _ = routes
    rows = [tuple(r.values())[2:] for r in t.rows('SELECT id, process, module, modules, name, params, registers, static_shared_bytes, local_bytes, max_threads FROM kernel ORDER BY id')]
    attributes = (33, 1000, 16, 512)
    assert rows == [
        (1, 1, '_Z3addPfS_if', '[[0,8],[8,8],[16,2],[20,4]]', *attributes), (1, 1, '_Z5emptyv', '[]', *attributes),
        (2, 2, '_Z6linkedPv', '[[0,8]]', *attributes), (4, 1, '_Z7no_textv', '[]', *attributes),
        (4, 1, '_Z8unasked5', None, *attributes), (None, None, '_Z6loadedv', '[]', *attributes)]


def test_texts_of_modules(routes):
    """The PTX for the highest architecture that an sm_90 can run, from the program's file or from its memory."""
    t, _ = routes
    program = os.path.realpath(os.path.join(BUILD, 'tests', 'preload_launch'))
    hashes = [fnv1a(payload(x)) for x in ('text for 80', 'first unit', 'second unit')]
    no_text = 'no PTX for this device: machine code only, or PTX for newer devices'
    assert [tuple(r.values()) for r in t.rows('SELECT * FROM module')] == [
        (1, 1, 80, 83, hashes[0], program, None), (2, 1, 80, 83, hashes[1], None, None), (3, 1, 90, 83, hashes[2], None, None),
        (4, 1, 0, 0, None, None, no_text)]
    assert {r['hash']: (r['flags'], r['uncompressed_bytes'], r['payload']) for r in t.rows('SELECT * FROM ptx')} == {
        h: (1, 0, payload(x)) for h, x in zip(hashes, ('text for 80', 'first unit', 'second unit'))}


def test_a_program_that_only_registers_leaves_no_trace(fake, tmp_path):
    r = run(os.path.join(BUILD, 'tests', 'preload_launch'), cwd=tmp_path, env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB})
    assert r.returncode == 0 and r.stderr == '' and os.listdir(tmp_path) == []


def test_refused_launches(traced):
    """Recorded with their status, by the name that is known, arguments not looked at; described in full when one succeeds."""
    r, out = traced('preload_launch', 'refused', env={'FAKE_FAIL': '__cudaLaunchKernel'})
    assert r.returncode == 0
    t = Trace(out)
    got = [(x['api'], x['status'], x['name'], x['grid_x'], x['dynamic_shared_bytes'], x['args'] is None) for x in t.rows(LAUNCHES)]
    assert got == [('__cudaLaunchKernel', 999, '_Z3addPfS_if', 2, 1000, True), ('cudaLaunchKernelExC', 1, '_Z6linkedPv', 0, None, True),
                   ('cudaLaunchKernel', 999, None, 9, 0, True), ('__cudaLaunchKernel', 0, '_Z3addPfS_if', 2, 1000, False)]
    assert t.rows('SELECT name, params, module FROM kernel WHERE id = (SELECT kernel FROM launch ORDER BY op LIMIT 1)') == [
        {'name': '_Z3addPfS_if', 'params': '[[0,8],[8,8],[16,2],[20,4]]', 'module': 1}]


def test_a_library_that_took_the_place_of_another(traced):
    r, out = traced('preload_launch', 'reload')
    assert r.returncode == 0
    got = [(x['name'], x['status']) for x in Trace(out).rows(LAUNCHES)]
    assert got == [('_Z5firstv', 0), ('_Z6secondv', 0), (None, 98)]


def test_a_launch_on_a_small_stack(traced):
    r, out = traced('preload_launch', 'small-stack')
    assert r.returncode == 0
    t = Trace(out)
    assert t.one('SELECT count(args) FROM launch') == 1 and t.one('SELECT count(*) FROM ptx') == 1


@pytest.mark.parametrize('bytes, blob', [(10000, '4K'), (6 << 20, '4M')])
def test_a_text_larger_than_the_blob_ring(traced, bytes, blob):
    """In pieces, for which the first launch waits a little."""
    r, out = traced('preload_launch', 'large', bytes, env={'ACCT_BLOB_BYTES': blob})
    assert r.returncode == 0
    t = Trace(out)
    text = b''.join((i * i >> 8 & 255).to_bytes(1, 'little') for i in range(bytes))
    assert t.rows('SELECT why, payload FROM module LEFT JOIN ptx USING (hash)') == [{'why': None, 'payload': text}]


def test_a_forked_child_has_kernels_of_its_own(traced, tmp_path):
    r, out = traced('preload_launch', 'fork', trace='t-%p.db')
    assert r.returncode == 0
    traces = sorted((Trace(p) for p in tmp_path.glob('t-*.db')), key=lambda t: t.one('SELECT pid FROM process'))
    args = [[struct.unpack('<QQhxxf', x['args'])[2] if len(x['args']) == 24 else None for x in t.rows(LAUNCHES)] for t in traces]
    names = [[r['name'] for r in t.rows('SELECT name FROM kernel ORDER BY id')] for t in traces]
    assert sorted(args, key=str) == [[1, 3], [2, None]]
    assert sorted(names) == [['_Z3addPfS_if'], ['_Z3addPfS_if', '_Z6linkedPv']]
    for t in traces:
        assert t.one('SELECT count(*) FROM module WHERE hash IS NOT NULL') == t.one('SELECT count(*) FROM module') > 0
        assert t.one('SELECT count(*) FROM launch l JOIN kernel k ON k.id = l.kernel') == 2


def test_many_threads(traced):
    """Every launch of every thread, one kernel between them, numbered once."""
    r, out = traced('preload_launch', 'threads', 16, 2000, env={'ACCT_EXIT_TIMEOUT': '60000'})
    assert r.returncode == 0
    t = Trace(out)
    assert t.one('SELECT count(*) FROM launch') + t.lost() == 32000
    assert t.rows('SELECT id, name FROM kernel') == [{'id': t.one('SELECT min(kernel) FROM launch'), 'name': '_Z3addPfS_if'}]
    assert t.one('SELECT count(DISTINCT kernel) FROM launch') == 1
    if t.lost() == 0 and t.one('SELECT count(*) FROM lost') == 0:
        seen = {}
        for a, in t.db.execute('SELECT args FROM launch'):
            n = struct.unpack('<QQhxxf', a)[2]
            seen[n] = seen.get(n, 0) + 1
        assert seen == {n: 16 for n in range(2000)}


# ---- as nvcc makes them, on the virtual GPU ---------------------------------------------------------------------------------

VGPU = os.path.join(BUILD, 'vgpu')


@pytest.fixture
def nvcc_program(tmp_path):
    """nvcc_program(name, *args) → (trace, NAME=VALUE lines)."""
    def go(name, *args, env=None, trace='t.db'):
        r = run(os.path.join(BUILD, 'tests', name), *args, env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / trace),
                                                               'ACCT_EXIT_TIMEOUT': '60000', **(env or {})})
        assert r.returncode == 0, r.stdout + r.stderr
        return Trace(next(tmp_path.glob('t*.db'))), dict(l.split('=') for l in r.stdout.splitlines() if '=' in l)
    return go


def text_of(row, tmp_path):
    """The PTX, by the compressors' own tools where they are there."""
    tool = 'zstd' if row['flags'] & 0x8000 else None
    if tool and shutil.which(tool):
        r = subprocess.run([tool, '-dc'], input=row['payload'], capture_output=True)
        assert r.returncode == 0 and len(r.stdout) == row['uncompressed_bytes'], r.stderr
        return r.stdout.decode()
    return None if row['flags'] & 0xa000 else row['payload'].rstrip(b'\0').decode()


FLAGS = {'capture_kernels': 0x8000, 'capture_plain': 0, 'capture_lz4': 0x2000, 'capture_linked': 0x8000}


@pytest.mark.parametrize('program', FLAGS)
def test_kernels_by_nvcc(nvcc_program, tmp_path, program):
    """Arguments at the offsets that C gives them, names as nvcc mangles them, the PTX that has them."""
    t, printed = nvcc_program(program, 'values')
    x, wide = int(printed['x']), int(printed['wide'])
    rows = [(r['name'], (r['grid_x'], r['block_x']), r['dynamic_shared_bytes'], r['args']) for r in t.rows(LAUNCHES)]
    linked = [rows.pop()] if program == 'capture_linked' else []
    assert rows == [
        ('_Z4fillIfEvPT_S0_', (1, 64), 1000, struct.pack('<Qf', x, 2.0)), ('_Z4fillIdEvPT_S0_', (1, 32), 0, struct.pack('<Qd', wide, 3.0)),
        ('_Z5scalePffi', (2, 32), 0, struct.pack('<Qfi', x, 1.5, 64)), ('_Z8add_pair4pairi', (1, 64), 0, rows[3][3]),
        ('_Z5scalePffi', (1, 32), 0, struct.pack('<Qfi', x, 2.0, 10))]
    a, step, by, n = struct.unpack('<Qh6xdi', rows[3][3])  # the gap holds what the caller's struct has there
    assert (a, step, by, n) == (x, 2, 0.25, 64)
    params = {r['name']: json.loads(r['params']) for r in t.rows('SELECT name, params FROM kernel')}
    assert params['_Z5scalePffi'] == [[0, 8], [8, 4], [12, 4]] and params['_Z8add_pair4pairi'] == [[0, 24], [24, 4]]
    assert [r[0] for r in linked] == (['_Z13of_the_pluginPii'] if linked else [])
    modules = t.rows('SELECT m.id, m.arch, m.path, m.why, p.* FROM module m JOIN ptx p USING (hash) ORDER BY m.id')
    assert t.one('SELECT count(*) FROM module') == len(modules) == (2 if linked else 1)
    for m in modules:
        assert m['arch'] == 80 and m['path'] == os.path.realpath(os.path.join(BUILD, 'tests', program)) and m['why'] is None
        assert m['flags'] & 0xa000 == FLAGS[program] and fnv1a(m['payload']) == m['hash']
    texts = [text_of(m, tmp_path) for m in modules]
    for k in t.rows('SELECT name, module, modules FROM kernel'):
        assert (k['module'], k['modules']) == (modules[0]['id'], len(modules))
        assert sum(f'.entry {k["name"]}(' in x for x in texts if x) == 1 or None in texts
    assert t.lost() == 0 and t.meta['state'] == 'complete'


def test_a_library_that_registers_before_ours_is_loaded(nvcc_program):
    """Constructors of libraries that the program needs run before those of a preloaded one."""
    t, _ = nvcc_program('capture_needed', 'values')
    plugin = os.path.realpath(os.path.join(BUILD, 'tests', 'capture_plugin.so'))
    assert t.rows("""SELECT k.name, k.modules, m.path, m.why, l.args IS NULL AS unknown FROM launch l JOIN kernel k ON k.id = l.kernel
                     LEFT JOIN module m ON m.id = k.module WHERE k.name LIKE '%plugin%'""") == [
        {'name': '_Z13of_the_pluginPii', 'modules': 1, 'path': plugin, 'why': None, 'unknown': 0}]
    assert t.one('SELECT count(*) FROM launch') == 6 and t.one('SELECT count(*) FROM ptx') == 2


def test_a_private_library_in_python(tmp_path):
    """The interpreter knows no CUDA; ctypes opens the library, and its runtime with it, RTLD_LOCAL. Registration comes in its constructor."""
    plugin = os.path.join(BUILD, 'tests', 'capture_plugin.so')
    r = run(sys.executable, '-c', f'import ctypes; print(ctypes.CDLL("{plugin}").plugin_launch(5))',
            env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert (r.returncode, r.stdout) == (0, '0\n')
    t = Trace(tmp_path / 't.db')
    assert t.rows('SELECT k.name, count(l.args) AS n FROM launch l JOIN kernel k ON k.id = l.kernel') == [{'name': '_Z13of_the_pluginPii', 'n': 5}]
    assert t.rows('SELECT path, why FROM module') == [{'path': os.path.realpath(plugin), 'why': None}]


@pytest.mark.parametrize('args', [('values',), ('loop', 1000), ('threads', 4, 200)])
def test_the_program_with_kernels_is_the_same_with_and_without(tmp_path, args):
    program, env = os.path.join(BUILD, 'tests', 'capture_kernels'), {'LD_LIBRARY_PATH': VGPU}
    runs = [run(program, *args, cwd=tmp_path, env={**env, **more}) for more in ({}, {'LD_PRELOAD': LIB}, {'LD_PRELOAD': LIB, 'ACCT': 'off'})]
    assert [(r.returncode, len(r.stdout.splitlines())) for r in runs] == [(0, 2 if args[0] == 'values' else 0)] * 3
    assert not any('acct: ' in r.stderr for r in runs)  # libacct.so has nothing to say
    assert len(list(tmp_path.glob('*.db'))) == 1


def test_machine_code_only(tmp_path):
    r = run(os.path.join(BUILD, 'tests', 'capture_no_ptx'), 'values',
            env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    t = Trace(tmp_path / 't.db')
    assert r.returncode == 1 and t.one('SELECT count(*) FROM launch l JOIN op o ON o.id = l.op WHERE o.status = 0') == 0
    assert t.one("SELECT count(*) FROM launch l JOIN kernel k ON k.id = l.kernel WHERE k.name LIKE '_Z4fill%'") == 2
    assert t.one('SELECT count(*) FROM ptx') == 0


def test_a_plugin_that_is_opened_and_closed(nvcc_program):
    """Each round's kernel is registered anew; every launch has a kernel, and the PTX is there once."""
    t, _ = nvcc_program('capture_kernels', 'plugin', os.path.join(BUILD, 'tests', 'capture_plugin.so'), 100)
    assert t.rows('SELECT k.name, count(*) AS n FROM launch l JOIN kernel k ON k.id = l.kernel GROUP BY l.kernel') == [
        {'name': '_Z13of_the_pluginPii', 'n': 100}] * 3
    assert t.one('SELECT count(*) FROM ptx') == 1
    assert t.rows('SELECT DISTINCT path, why FROM module') == [{'path': os.path.join(BUILD, 'tests', 'capture_plugin.so'), 'why': None}]


def test_threads_by_nvcc(nvcc_program):
    t, _ = nvcc_program('capture_kernels', 'threads', 8, 2000)
    launches = t.one('SELECT count(*) FROM launch')
    assert launches + t.lost() == 16000
    assert t.one('SELECT count(*) FROM kernel') == t.one('SELECT count(*) FROM module WHERE hash IS NOT NULL') == 1
    if t.one('SELECT count(*) FROM lost') == 0:
        by_thread = {}
        for thread, args in t.db.execute('SELECT thread, args FROM launch l JOIN op o ON o.id = l.op ORDER BY o.id'):
            n, m = struct.unpack('<32xqq16x', args)
            by_thread.setdefault((thread, m), []).append(n)
        assert len(by_thread) == 8 and all(v == list(range(2000)) for v in by_thread.values())


def test_fork_by_nvcc(nvcc_program, tmp_path):
    nvcc_program('capture_kernels', 'fork', trace='t-%p.db')
    counts = sorted(Trace(p).one('SELECT count(*) FROM launch l LEFT JOIN kernel k ON k.id = l.kernel WHERE k.name LIKE \'_Z5eight%\'')
                    for p in tmp_path.glob('t-*.db'))
    assert counts == [1, 2]


def test_a_program_that_was_replaced_meanwhile(nvcc_program, tmp_path):
    """Its file is another one by the time of the first launch: the text comes from memory, in pieces."""
    program = tmp_path / 'program'
    shutil.copy(os.path.join(BUILD, 'tests', 'capture_plain'), program)
    r = run('sh', '-c', f'exec {program} delete {program}', env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db')})
    assert r.returncode == 0, r.stdout + r.stderr
    t = Trace(tmp_path / 't.db')
    [m] = t.rows('SELECT m.path, m.why, p.payload FROM module m JOIN ptx p USING (hash)')
    assert m['path'] is None and m['why'] is None and b'.entry _Z5scalePffi' in m['payload'] and not program.exists()


def test_what_the_device_did_is_tied_to_the_call(nvcc_program):
    """By external id and correlation: one kernel a launch, of the same name and shape, after its call began; ids occur once."""
    t, _ = nvcc_program('capture_kernels', 'values')
    assert t.meta['cupti'] is None and t.meta['cupti_dropped'] == 0
    rows = t.rows("""SELECT l.external, k.name = a.name AS named, l.grid_x = a.grid_x AND l.block_x = a.block_x AND l.dynamic_shared_bytes =
                     a.dynamic_shared_bytes AS shaped, a.start_ns >= o.start_ns AS later, a.end_ns > a.start_ns AS lasts
                     FROM launch l JOIN op o ON o.id = l.op JOIN kernel k ON k.id = l.kernel JOIN correlation c ON c.external = l.external
                     JOIN activity a ON a.correlation = c.id AND a.kind = 'kernel'""")
    assert len(rows) == 5 and len({r.pop('external') for r in rows}) == 5
    assert all(r == {'named': 1, 'shaped': 1, 'later': 1, 'lasts': 1} for r in rows)
    assert t.one("SELECT count(*) FROM copy p JOIN correlation c USING (external) JOIN activity a ON a.correlation = c.id WHERE a.bytes = p.bytes") == 1
    externals = [r[0] for r in t.db.execute('SELECT external FROM launch UNION ALL SELECT external FROM copy UNION ALL SELECT external FROM memset')]
    assert len(externals) == len(set(externals)) and 0 not in externals


def test_external_ids_differ_between_threads(nvcc_program):
    t, _ = nvcc_program('capture_kernels', 'threads', 4, 500)
    assert t.one('SELECT count(DISTINCT external) FROM launch') == t.one('SELECT count(*) FROM launch') == 2000 - t.lost()
    assert t.one('SELECT count(DISTINCT external >> 40) FROM launch') == 4


def test_the_gpt_call_by_call(tmp_path):
    """As many calls as train counts itself (the last one releases a buffer); every one that works on the device has its device time."""
    truth = tmp_path / 'truth.json'
    r = run(os.path.join(BUILD, 'train'), '--model', 'gpt', '--steps', 2, '--layers', 1, '--dim', 32, '--heads', 2, '--seq', 16, '--batch', 2, '--truth',
            truth, env={'LD_LIBRARY_PATH': VGPU, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(tmp_path / 't.db'), 'ACCT_EXIT_TIMEOUT': '60000'})
    assert r.returncode == 0, r.stdout + r.stderr
    t, told = Trace(tmp_path / 't.db'), json.loads(truth.read_text())
    kinds = "('alloc', 'free', 'copy', 'memset', 'launch', 'gemm', 'blas')"
    assert t.one(f'SELECT count(*) FROM op WHERE kind IN {kinds}') == max(b['to_call'] for b in told['buffers'])
    assert t.lost() == 0 and t.meta['cupti'] is None
    tied = '''SELECT o.id, count(a.id) AS n FROM op o JOIN (SELECT op, external FROM launch UNION ALL SELECT op, external FROM copy UNION ALL
              SELECT op, external FROM memset UNION ALL SELECT op, external FROM gemm) e ON e.op = o.id
              LEFT JOIN correlation c USING (external) LEFT JOIN activity a ON a.correlation = c.id GROUP BY o.id'''
    assert t.one(f'SELECT count(*) FROM ({tied})') > 100 and t.one(f'SELECT count(*) FROM ({tied}) WHERE n <> 1') == 0
    assert t.one('SELECT count(*) FROM launch WHERE args IS NULL OR kernel = 0') == 0
    assert t.one('SELECT count(*) FROM kernel WHERE params IS NULL OR module IS NULL') == 0
