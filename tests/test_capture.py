"""Kernels and their launches in the trace: names, modules with their PTX, parameters, argument bytes.

The first part runs programs/preload_launch.c, which makes its fat binaries by hand and launches what they hold by every
route, on a stand-in that answers as the program says: the expected values are the numbers in the program's source."""
import json, os, re, struct, sys
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
    r = run(os.path.join(BUILD, 'tests', 'preload_launch'), 'every-route', env={'LD_LIBRARY_PATH': fake, 'LD_PRELOAD': LIB, 'ACCT_OUTPUT': str(out)})
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
    rows = [tuple(r.values())[2:] for r in t.rows('SELECT * FROM kernel ORDER BY id')]
    attributes = (33, 1000, 16, 512)
    assert rows == [
        (1, 1, '_Z3addPfS_if', None, '[[0,8],[8,8],[16,2],[20,4]]', *attributes), (1, 1, '_Z5emptyv', None, '[]', *attributes),
        (2, 2, '_Z6linkedPv', None, '[[0,8]]', *attributes), (4, 1, '_Z7no_textv', None, '[]', *attributes),
        (4, 1, '_Z8unasked5', None, None, *attributes), (None, None, '_Z6loadedv', None, '[]', *attributes)]


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
