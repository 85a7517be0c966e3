"""--flops-rules: prices that the user gives, on synthetic traces of kernels that have no PTX. Expected values: the rules' arithmetic."""
import json, os, resource, shutil, sqlite3, subprocess
import pytest
from conftest import BUILD, run
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')
BASE = 0x7f0000000000
ELEMENTWISE = '''.version 8.0
.target sm_80
.address_size 64
.visible .entry known(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [p];
    ld.global.f32 %f1, [%rd1];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd1], %f2;
    ret;
}
'''


@pytest.fixture(scope='module')
def trace(tmp_path_factory):
    """Three launches of a kernel without PTX, one of another, two of one that is priced (a FLOP a thread), a library's call."""
    t = Maker(tmp_path_factory.mktemp('rules') / 'a.db', device_name='NVIDIA H100 80GB HBM3')
    t.alloc(BASE, 1 << 20)
    flash, other, known = t.kernel('_Z9flash_fwdPfS_i', [[0, 8], [8, 8], [16, 4]]), t.kernel('opaque', [[0, 8]]), t.kernel('known', [[0, 8]], ELEMENTWISE)
    args = BASE.to_bytes(8, 'little')
    for _ in range(3):
        t.launch_kernel(flash, args * 2 + bytes(4), grid=(8, 12, 2), block=(128, 1, 1))
    t.launch_kernel(other, args, grid=(5, 1, 1), block=(32, 2, 1))
    for _ in range(2):
        t.launch_kernel(known, args, grid=(1, 1, 1), block=(32, 1, 1))
    t.blas('getrfBatched', 'cublasSgetrfBatched', n=30, batch=4, lda=30)
    return t.close()


def flops(trace, rules, tmp_path, code=0, command='flops'):
    path = tmp_path / 'prices.txt'
    path.write_text(rules)
    r = run(ACCT, command, '-f', 'json', '--flops-rules', path, trace)
    assert r.returncode == code, (r.returncode, r.stderr)
    return json.loads(r.stdout) if not code else r.stderr


def functions(trace, rules, tmp_path):
    return {f['name'].split('(')[0]: f for f in flops(trace, rules, tmp_path, command='report')['functions']}


def test_what_is_not_priced_is_unknown(trace):
    j = json.loads(run(ACCT, 'flops', '-f', 'json', trace).stdout)
    assert j['totals']['flops'] is None and j['totals']['grade'] == 'uncounted'
    assert {u['name'].split('(')[0]: u['launches'] for u in j['coverage']['uncounted']} == {'flash_fwd': 3, 'opaque': 1, 'cublasSgetrfBatched': 1}
    assert all(u['why'] for u in j['coverage']['uncounted'] if u['name'] != 'cublasSgetrfBatched')


def test_prices_by_the_rules(trace, tmp_path):
    rules = '''# attention, 4·b·h·t²·d
name=flash_fwd* flops=4*b*h*t*t*d b=2 h=12 t=1024 d=64 matmul=1 dtype=bf16

name="opa?ue"   flops_per_thread=3+gx*by   # gx 5, by 2
name=cublas*getrf* flops=2*n*n*n/3*batch
'''
    flash, opaque, lu = 4 * 2 * 12 * 1024 * 1024 * 64, (3 + 5 * 2) * (5 * 64), 2 * 30**3 // 3 * 4
    j = flops(trace, rules, tmp_path)
    assert j['totals']['gemm'] == 3 * flash and j['totals']['other'] == opaque + lu + 2 * 32
    assert j['totals']['grade'] == 'user' and j['coverage']['uncounted'] == []
    assert [(u['line'], u['calls'], u['flops'], u['matmul'], u['dtype']) for u in j['flops_rules']] == [
        (2, 3, 3 * flash, True, 'bf16'), (4, 1, opaque, False, None), (5, 1, lu, False, None)]
    f = functions(trace, rules, tmp_path)
    assert {n: (x['flops'], x['grade']) for n, x in f.items() if x['flops'] is not None and n != 'cudaMalloc'} == {
        'flash_fwd': (3 * flash, 'user'), 'opaque': (opaque, 'user'), 'known': (64, 'exact'), 'cublasSgetrfBatched': (lu, 'user')}
    assert any(str(tmp_path / 'prices.txt') + ':2 priced 3 call(s)' in n for n in j['notes'])


def test_the_first_rule_that_matches_counts(trace, tmp_path):
    f = functions(trace, 'name=flash* flops=7\nname=* flops=1\n', tmp_path)
    assert (f['flash_fwd']['flops'], f['opaque']['flops'], f['known']['flops'], f['known']['grade']) == (21, 1, 64, 'exact')


def test_prices_of_their_own_stay_but_for_override(trace, tmp_path):
    j = flops(trace, 'name=known flops=1000\n', tmp_path)
    assert (j['flops_rules'][0]['calls'], j['flops_rules'][0]['left']) == (0, 2) and any('price of their own' in n for n in j['notes'])
    f = functions(trace, 'name=known flops=1000 override\n', tmp_path)
    assert (f['known']['flops'], f['known']['grade']) == (2000, 'user')


def test_a_name_matches_mangled_too(trace, tmp_path):
    assert functions(trace, 'name=_Z9flash_fwd* flops_per_launch=11\n', tmp_path)['flash_fwd']['flops'] == 33


def test_a_rule_that_matches_nothing_is_said(trace, tmp_path):
    j = flops(trace, '\nname=nothing* flops=1\n', tmp_path)
    assert any("prices.txt:2: no call matches 'nothing*'" in n for n in j['notes'])


def test_people_see_that_a_figure_is_the_users(trace, tmp_path):
    path = tmp_path / 'prices.txt'
    path.write_text('name=* flops=1000\n')
    out = run(ACCT, 'flops', '--flops-rules', path, trace).stdout
    assert 'all else' in out and '5.06 kFLOP' in out.split('all else')[1].splitlines()[0] and '(user)' in out.split('all else')[1].splitlines()[0]


def test_the_trace_stays_as_it_was(trace, tmp_path):
    run(ACCT, 'report', trace)                                       # analysed
    before = open(trace, 'rb').read()
    flops(trace, 'name=* flops=1\n', tmp_path)
    assert open(trace, 'rb').read() == before
    assert json.loads(run(ACCT, 'flops', '-f', 'json', trace).stdout)['totals']['flops'] is None
    copy = shutil.copy(trace, tmp_path / 'b.db')
    j = run(ACCT, 'flops', '-f', 'json', '--flops-rules', tmp_path / 'prices.txt', trace, copy)
    a, b = json.loads(j.stdout)
    assert a['totals'] == b['totals'] and a['totals']['flops'] == 5 + 64


@pytest.mark.parametrize('line,says', [
    ('flops=1', 'no name=PATTERN'), ('name=x', 'no price'), ('name=x flops=', 'has no value'), ('name=x flops=1 flops_per_thread=2', 'two prices'),
    ('name=x name=y flops=1', 'two names'), ('name=x flops=2*', 'ends too early'), ('name=x flops=(2', ') is missing'), ('name=x flops=2)', "')' is not expected"),
    ('name=x flops=q', "'q' is not known"), ('name=x flops=1.5', 'no whole number'), ('name=x flops=99999999999999999999', 'no whole number'),
    ('name=x flops=1 matmul=2', '0 or 1'), ('name=x flops=1 matmul=1', 'needs dtype'), ('name=x flops=1 dtype=fp12', 'no such number format'),
    ('name=x flops=1 n=3', 'choose another name'), ('name=x flops=1 t=2 t=3', 'two values'), ('name=x flops=1 frob', 'neither NAME=VALUE'),
    ('name=x flops=1 override=1', 'no value'), ('name="x flops=1', 'quotation mark'), ('name=x flops=t t=gx', 'has no gx'), ('name=x flops=' + '(' * 40, 'too deeply'),
    ('name=x flops=1' + '+1' * 60, 'too long'), ('name=x flops=1 =3', 'without a name'), ('name=x flops=1 a-b=3', 'cannot be the name')])
def test_a_bad_line_is_told_with_its_place(trace, tmp_path, line, says):
    err = flops(trace, '# a comment\n' + line + '\n', tmp_path, code=2)
    assert err.count('\n') == 1 and f'prices.txt:2: ' in err and says in err, err


@pytest.mark.parametrize('price,says', [('gx*9223372036854775807', 'does not fit in 64 bits'), ('4611686018427387904+4611686018427387904', 'does not fit'), ('gx-9', 'less than 0'),
                                        ('1/(gx-8)', 'divides by 0'), ('m', 'has no m'), ('-9223372036854775807-2', 'does not fit')])
def test_a_price_that_cannot_be_is_an_error(trace, tmp_path, price, says):
    err = flops(trace, f'name=flash* flops={price}\n', tmp_path, code=1)
    assert err.count('\n') == 1 and 'prices.txt:1' in err and says in err and 'flash*' in err, err


def test_per_thread_is_checked_too(trace, tmp_path):
    assert 'does not fit' in flops(trace, 'name=opaque flops_per_thread=9000000000000000000\n', tmp_path, code=1)


def test_a_file_that_is_not_there(trace, tmp_path):
    r = run(ACCT, 'flops', '--flops-rules', tmp_path / 'no', trace)
    assert r.returncode == 2 and r.stderr.count('\n') == 1 and 'cannot be read' in r.stderr


@pytest.mark.parametrize('command', ['steps', 'ops', 'kernels'])
def test_the_other_views_take_them(trace, tmp_path, command):
    path = tmp_path / 'prices.txt'
    path.write_text('name=flash* flops=123456\n')
    r = run(ACCT, command, '-f', 'json', '--flops-rules', path, trace)
    assert r.returncode == 0, r.stderr
    assert any('grade user' in n for n in json.loads(r.stdout)['notes'])


@pytest.mark.parametrize('rules, what', [
    (b'name=x flops=gx \x1b[31mred\n', "1: '?[31mred'"), (b'name=x \x1b]0;t\x07=1 flops=gx\n', '1: '),
    (b'name=x flops=1\0 override\n', '1: a NUL byte'), (b'#\nname=x flops=1 #' + b'y' * 5000, '2: the line has more than 4096 bytes'),
    (b'name=x flops=1\n' * 10001, '10001: more than 10000 rules')], ids=['escape', 'title', 'nul', 'long', 'many'])
def test_damaged_files_of_rules(trace, tmp_path, rules, what):
    """One line that says where, without what moves a terminal's cursor; nothing of the file is left out unsaid."""
    path = tmp_path / 'prices.txt'
    path.write_bytes(rules)
    r = run(ACCT, 'flops', '--flops-rules', path, trace)
    assert r.returncode and f'{path}:{what}' in r.stderr and r.stderr.rstrip('\n').isprintable(), r.stderr


def test_no_end_of_a_file(trace):
    r = run(ACCT, 'flops', '--flops-rules', '/dev/zero', trace)
    assert r.returncode and '/dev/zero:1: a NUL byte' in r.stderr


def test_byte_order_mark(trace, tmp_path):
    assert flops(trace, '\ufeffname=opaque flops=5\n', tmp_path)['flops_rules'][0]['calls'] == 1


def test_ids_far_apart(trace, tmp_path):
    """Of a damaged trace: they take no memory."""
    path, rules = tmp_path / 'a.db', tmp_path / 'prices.txt'
    shutil.copy(trace, path)
    run(ACCT, 'analyze', path)
    rules.write_text('name=opaque flops=5\n')
    db = sqlite3.connect(path)
    for table in ('kernel', 'api', 'price'):
        db.execute(f'UPDATE {table} SET id = 2147483646 WHERE id = (SELECT max(id) FROM {table})')
    db.commit()
    for command in ('flops', 'ops', 'kernels'):
        r = subprocess.run([ACCT, command, '--flops-rules', rules, path], capture_output=True, text=True,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
        assert r.returncode == 0, (command, r.stderr)
