"""`acct leaks`: each pattern of memory held to no use, on traces made by hand, with wastes worked out from the trace's clock: call
number i starts at (i + 1) us, takes 0.5 us, and an allocation exists from its call's end to the release's start."""
import json, os, sqlite3
import pytest
from conftest import BUILD, run
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')
BASE, HOST, M = 0x700000000000, 0x10000, 1 << 20
start, end = lambda i: (i + 1) * 1000, lambda i: (i + 1) * 1000 + 500


def leaks(path, *options):
    r = run(ACCT, 'leaks', '--format', 'json', '--min-share', '0', '--limit', '1000', *options, path)
    assert r.returncode == 0 and not r.stderr, r
    return json.loads(r.stdout)


def found(path, pattern, *options):
    return [f for f in leaks(path, *options)['patterns'] if f['pattern'] == pattern]


@pytest.fixture
def t(tmp_path):
    return Maker(str(tmp_path / 't.db'))


def test_unused(t):
    a = t.alloc(BASE, M)
    b = t.alloc(BASE + M, 2 * M)
    t.memset(BASE + M, 2 * M)
    t.free(BASE + M)
    f = t.free(BASE)
    (u,) = found(t.close(), 'unused allocation')
    assert (u['alloc'], u['bytes'], u['objects'], u['waste_byte_ns'], u['sure']) == (a + 1, M, 1, M * (start(f) - end(a)), True)


def test_early_and_late(t):
    a = t.alloc(BASE, M)
    t.alloc(BASE + M, 4096)
    for _ in range(3):
        t.memset(BASE + M, 4096)
    first = t.memset(BASE, M)
    last = t.copy('d2h', HOST, BASE, M)
    for _ in range(5):
        t.memset(BASE + M, 4096)
    f = t.free(BASE)
    path = t.close()
    (e,) = [x for x in found(path, 'early allocation') if x['bytes'] == M]
    assert e['waste_byte_ns'] == M * (start(first) - end(a)) and e['after_op'] == first + 1 and e['before_op'] is None
    (l,) = found(path, 'late release')
    assert l['waste_byte_ns'] == M * (start(f) - end(last)) and l['before_op'] == last + 1
    assert l['longest_ns'] == start(f) - end(last)
    total = leaks(path)['known']['allocated_byte_ns']
    assert l['share'] == pytest.approx(l['waste_byte_ns'] / total, rel=1e-9)


def test_shares_are_of_all_allocations(t):
    """A library's workspace, in which no pattern is looked for, was allocated like the rest."""
    a, b = t.alloc(BASE, M), t.alloc(BASE + M, 3 * M)
    t.workspace(BASE + M, 3 * M)
    f, g = t.free(BASE), t.free(BASE + M)
    path = t.close()
    (u,) = found(path, 'unused allocation')
    total = M * (start(f) - end(a)) + 3 * M * (start(g) - end(b))
    assert leaks(path)['known']['allocated_byte_ns'] == total and u['share'] == pytest.approx(u['waste_byte_ns'] / total, rel=1e-9)


def test_never_released(t):
    a = t.alloc(BASE, M)
    t.memset(BASE, M)
    last = t.copy('d2h', HOST, BASE, M)
    t.alloc(BASE + M, 4096)
    final = t.memset(BASE + M, 4096)
    path = t.close()
    (l,) = [x for x in found(path, 'never released') if x['bytes'] == M]
    assert l['waste_byte_ns'] == M * (end(final) - end(last)) and l['alloc'] == a + 1
    assert not found(path, 'late release')
    assert {f['pattern'] for f in leaks(path, '--pattern', 'leak')['patterns']} == {'never released'}


def test_redundant(t):
    """The second could have had the first one's memory from its first use on; the third is too small by more than a tenth."""
    t.alloc(BASE, M)
    t.memset(BASE, M)
    last = t.copy('d2h', HOST, BASE, M)
    b = t.alloc(BASE + 2 * M, M - 4096)
    first = t.memset(BASE + 2 * M, M - 4096)
    t.alloc(BASE + 4 * M, M // 2)
    t.memset(BASE + 4 * M, M // 2)
    t.copy('d2h', HOST, BASE + 2 * M, M - 4096)
    f = t.free(BASE)
    t.free(BASE + 2 * M)
    t.free(BASE + 4 * M)
    (r,) = found(t.close(), 'redundant allocation')
    assert (r['alloc'], r['other_alloc'], r['before_op'], r['after_op']) == (b + 1, 1, last + 1, first + 1)
    assert r['waste_byte_ns'] == (M - 4096) * (start(f) - start(first))


def test_not_redundant_when_released_or_in_use(t):
    for k in range(3):              # one after another at the same address, then two that are used at the same time
        t.alloc(BASE, M)
        t.memset(BASE, M)
        t.free(BASE)
    t.alloc(BASE, M)
    t.alloc(BASE + M, M)
    t.memset(BASE, M)
    t.memset(BASE + M, M)
    t.copy('d2h', HOST, BASE, M)
    t.copy('d2h', HOST, BASE + M, M)
    assert not found(t.close(), 'redundant allocation')


def test_idle_and_vacant(t):
    t.alloc(BASE, M)
    t.alloc(BASE + M, 4096)
    w = t.memset(BASE, M)
    for _ in range(20):
        t.memset(BASE + M, 4096)
    r = t.copy('d2h', HOST, BASE, M)        # its content was needed
    for _ in range(10):
        t.memset(BASE + M, 4096)
    again = t.memset(BASE, M)               # its content was not
    path = t.close()
    gaps = '--min-gap-ms', '0.001', '--link-gbs'
    (i,) = [f for f in found(path, 'temporary idleness', *gaps, '1e6') if f['bytes'] == M]
    assert (i['times'], i['waste_byte_ns'], i['before_op'], i['after_op']) == (1, M * (start(r) - end(w)), w + 1, r + 1)
    (v,) = [f for f in found(path, 'vacant between uses', *gaps, '1e6') if f['bytes'] == M]
    assert (v['times'], v['waste_byte_ns'], v['before_op'], v['after_op']) == (1, M * (start(again) - end(r)), r + 1, again + 1)
    # to the host and back: 2 MiB at 100 GB/s take 21 us, more than the gap of 20.5 us
    assert not [f for f in found(path, 'temporary idleness', *gaps, '100') if f['bytes'] == M]
    assert not [f for f in found(path, 'temporary idleness', '--min-gap-ms', '1') if f['bytes'] == M]


def test_dead_writes(t):
    t.alloc(BASE, M)
    w1 = t.memset(BASE, M)                  # overwritten unread
    w2 = t.memset(BASE, M)                  # read
    t.copy('d2h', HOST, BASE, 16)
    w3 = t.memset(BASE + 4096, 4096)        # released unread
    f = t.free(BASE)
    (d,) = found(t.close(), 'dead write')
    assert d['times'] == 2
    assert d['waste_byte_ns'] == M * (start(w2) - end(w1)) + 4096 * (start(f) - end(w3))


def test_what_is_read_in_part_is_no_dead_write(t):
    t.alloc(BASE, M)
    t.memset(BASE, M)
    t.copy('d2h', HOST, BASE + 8192, 16)
    t.memset(BASE, M)
    t.memset(BASE, M // 2)                  # covers a part only of what was written
    t.copy('d2h', HOST, BASE, M)
    t.free(BASE)
    assert not found(t.close(), 'dead write')


def test_an_op_reads_before_it_writes(t):
    t.alloc(BASE, M)
    t.memset(BASE, M)
    t.copy('d2d', BASE, BASE, M)            # reads what it writes
    t.copy('d2h', HOST, BASE, M)
    t.free(BASE)
    assert not found(t.close(), 'dead write')


def test_unseen_uses(t):
    """A launch of which nothing is known may use anything: no claim without a `perhaps`, and no dead write across it."""
    t.alloc(BASE, M)
    t.alloc(BASE + M, 4096)
    t.memset(BASE, M)
    t.launch('unknown_kernel', [])
    t.memset(BASE, M)
    t.copy('d2h', HOST, BASE, M)
    t.launch('unknown_kernel', [])
    t.free(BASE)
    path = t.close()
    (l,) = found(path, 'late release')
    (u,) = found(path, 'unused allocation')
    assert not l['sure'] and not u['sure'] and 'perhaps' in l['detail'] and 'perhaps' in u['detail']
    assert not found(path, 'dead write')
    assert leaks(path)['known']['unseen_ops'] == 2


def test_unknown_direction_is_a_use(t):
    t.alloc(BASE, M)
    t.memset(BASE, M)
    k = t.launch('k', [])
    t.rows['op_buffer'].append((k + 1, '0', 1, BASE, None, '?'))
    t.memset(BASE, M)
    t.copy('d2h', HOST, BASE, M)
    path = t.close()
    assert not found(path, 'dead write')
    known = leaks(path)['known']
    assert known['unknown_direction'] == known['unknown_extent'] == 1 and known['accesses'] == 4


def test_alike_findings_are_joined_and_ranked(t):
    wastes = []
    for n in (1, 3, 2):
        a = t.alloc(BASE, 4096)
        for _ in range(n):
            t.alloc(BASE + M, 512)
            t.free(BASE + M)
        f = t.free(BASE)
        wastes.append(4096 * (start(f) - end(a)))
    path = t.close()
    first, second = leaks(path)['patterns']
    assert (first['objects'], first['bytes'], first['waste_byte_ns']) == (3, 4096, sum(wastes))
    assert first['alloc'] == 5 and first['longest_ns'] == max(wastes) // 4096
    assert (second['objects'], second['bytes']) == (6, 512) and second['waste_byte_ns'] == 6 * 512 * 500
    shares = [f['share'] for f in (first, second)]
    assert sum(shares) == pytest.approx(1, rel=1e-9)        # nothing was used, ever
    assert len(leaks(path, '--limit', '1')['patterns']) == 1 and leaks(path, '--limit', '1')['patterns_found'] == 2
    assert len(leaks(path, '--min-share', '50')['patterns']) == 1


@pytest.mark.parametrize('size,shown', [(1 << 36, '1.00 GiB s'), (3 << 32, '192 MiB s'), (3 << 20, '48.0 KiB s'), (640, '10 B s')])
def test_waste_is_readable(t, size, shown):
    """Held for 1/64 s by nobody."""
    t.alloc(BASE, size)
    t.op('sync', 'cudaDeviceSynchronize')
    path = t.close()
    with sqlite3.connect(path) as db:
        db.execute('UPDATE alloc SET free_ns = alloc_ns + 15625000')
        db.execute('UPDATE op SET end_ns = (SELECT alloc_ns FROM alloc) + 15625000 WHERE kind = ?', ('sync',))
    assert f' {shown} ' in run(ACCT, 'leaks', '--min-share', '0', path).stdout


@pytest.mark.parametrize('options,says', [(['--pattern', 'x'], 'dead-write'), (['--limit', '-1'], '--limit'), (['--min-share', 'nan'], '--min-share'),
                                          (['--link-gbs', '0'], '--link-gbs'), (['--min-gap-ms', '1x'], '--min-gap-ms')])
def test_bad_options(t, options, says):
    r = run(ACCT, 'leaks', *options, t.close())
    assert r.returncode == 2 and says in r.stderr and len(r.stderr.splitlines()) == 1 and not r.stdout


def test_sites(t):
    """Alike, but made in two places: two findings, each with the frame that is the program's own."""
    stack = {n: t.stack(('cudaMalloc', '/usr/lib/libcudart.so.13'), (n, '/home/me/train'), ('main', '/home/me/train')) for n in ('cache', 'mask')}
    for k, name in enumerate(['cache', 'mask', 'cache']):
        t.called_from(t.alloc(BASE + k * M, M), stack[name])
    t.op('sync', 'cudaDeviceSynchronize')
    assert {(f['objects'], f['site'].split()[0]) for f in found(t.close(), 'unused allocation')} == {(2, 'cache'), (1, 'mask')}


def test_growth_is_in_the_document(t):
    t.alloc(BASE, M)
    assert set(leaks(t.close())) >= {'schema', 'trace', 'growth', 'patterns', 'known', 'limits', 'notes'}
