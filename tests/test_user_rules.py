"""--rules FILE: what a line means, which allocations it matches, what is said of a bad one. Expected values: the fields of the allocations
that the test itself made, matched by plain Python."""
import fnmatch, json, os, random, sqlite3, subprocess
import pytest
import oracle_adapter
from conftest import BUILD
from lecture_model import Linear
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')


def run(*args):
    return subprocess.run([ACCT, *map(str, args)], capture_output=True, text=True, timeout=60)


def blocks(path, rules=None):
    p = run('report', '--format', 'json', *(['--rules', rules] if rules else []), path)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


@pytest.fixture(scope='module')
def trace(tmp_path_factory):
    """Eight allocations that differ in all that a rule may look at; the n-th is made by the n-th call."""
    t = Maker(str(tmp_path_factory.mktemp('rules') / 't.db'))
    inner = ('malloc_it', '/opt/lib/libfoo.so.1')
    s1 = t.stack(inner, ('adam_init<float>', '/bin/train'), ('main', '/bin/train'))
    s2 = t.stack(('make_layer', '/bin/train'), ('main', '/bin/train'))
    s3 = t.stack((None, '/usr/lib/libbar.so'), (None, None))
    for i in range(8):
        a = 0x10000 * (i + 1)
        with t.range(('init weights', 'init state', 'loop', 'loop')[i // 2]):
            n = t.alloc(a, 1000 * (i + 1), memory='managed' if i == 7 else 'device')
        if i < 6:
            t.called_from(n, (s1, s2, s3)[i % 3])
    t.tag(0x20000, 500, 'my buffer')
    t.tag(0x30000, 3000, 'param')
    t.launch('k', [(0x10000, 'rw', 1000)])
    path = t.close()
    oracle_adapter.analyze(path)
    return path


def classes(path, text, tmp_path):
    """{number of the allocation: [(offset, bytes, class, rule)]} of what the rules settled."""
    f = tmp_path / 'rules'
    f.write_text(text)
    out = {}
    for b in blocks(path, f)['blocks']:
        if b['rule'].startswith('by the user'):
            assert b['confidence'] == 1
            out.setdefault(b['id'], []).append((b['offset'], b['bytes'], b['class'], b['rule']))
    return out


WHOLE = [ # condition, allocations that it matches
    ('order=1', [1]), ('order=2-4', [2, 3, 4]), ('order>=7', [7, 8]), ('order>7', [8]), ('order<2', [1]), ('order<=2', [1, 2]),
    ('bytes=3000', [3]), ('bytes=3kB', [3]), ('bytes=2500-4000', [3, 4]), ('bytes>=7kB', [7, 8]), ('bytes<1KiB', [1]), ('bytes=0.5kB-1.5kB', [1]),
    ('address=0x20000', [2]), ('address>=0x70000', [7, 8]), ('address=0x20000-0x3ffff', [2, 3]), ('device=0', range(1, 9)),
    ('stack=adam*', [1, 4]), ('stack=main', [1, 2, 4, 5]), ('stack=adam', []), ('stack=*init*', [1, 4]), ('stack!=main', [3, 6, 7, 8]), ('stack=ma??', [1, 2, 4, 5]),
    ('library=libfoo*', [1, 4]), ('library=libbar.so', [3, 6]), ('library=cudart', range(1, 9)), ('library=train', [2, 5]),
    ('api=cudaMalloc', range(1, 9)), ('api=cublas*', []), ('range="init *"', [1, 2, 3, 4]), ('range="init state"', [3, 4]), ('range=loop', [5, 6, 7, 8]),
    ('range!=loop', [1, 2, 3, 4]), ('memory=managed', [8]), ('memory!=managed', range(1, 8)), ('tag=nothing*', []),
    ('order>=3 bytes<=5000', [3, 4, 5]), ('stack=main range=loop', [5]),
]


@pytest.mark.parametrize('condition,expected', WHOLE, ids=lambda x: x if isinstance(x, str) else '')
def test_conditions(trace, tmp_path, condition, expected):
    got = classes(trace, f'# a comment\n\nclass=optimizer {condition}\n', tmp_path)
    assert got == {i: [(0, 1000 * i, 'optimizer', "by the user's rules, line 3")] for i in expected}


def test_tags_and_former_classes_match_their_bytes(trace, tmp_path):
    rules = 'class=grad tag="my *"\nclass=input tag=param order=3\nclass=other was=unknown order<=2\n'
    got = classes(trace, rules, tmp_path)
    assert sorted(got[2]) == [(0, 500, 'grad', "by the user's rules, line 1"), (500, 1500, 'other', "by the user's rules, line 3")]
    assert got[3] == [(0, 3000, 'input', "by the user's rules, line 2")]
    assert set(got) <= {1, 2, 3}


def test_first_match_wins(trace, tmp_path):
    got = classes(trace, 'class=input order=2 # only this\nclass=grad order<=3\n  class=param order<=4\n', tmp_path)
    assert {i: r[0][2] for i, r in got.items()} == {1: 'grad', 2: 'input', 3: 'grad', 4: 'param'}


def test_a_rule_without_a_match_is_said(trace, tmp_path):
    f = tmp_path / 'rules'
    f.write_text('class=param order=1\nclass=param stack=nowhere\n')
    assert f'{f}:2: the rule matches no allocation.' in blocks(trace, f)['notes']
    assert not any(':1:' in n for n in blocks(trace, f)['notes'])


def test_figures_follow(tmp_path):
    """The classes at the peak, and parameters, go by the rules."""
    m = Linear(str(tmp_path / 't.db'))
    oracle_adapter.analyze(m.t.path)
    f = tmp_path / 'rules'
    f.write_text('class=other was=grad\n')
    before, after = blocks(m.t.path)['memory']['at_peak'], blocks(m.t.path, f)['memory']['at_peak']
    assert before['grad'] and after['grad'] == 0 and after['other'] == before['other'] + before['grad']
    assert {k: v for k, v in before.items() if k not in ('grad', 'other')} == {k: v for k, v in after.items() if k not in ('grad', 'other')}


def test_the_file_stays_as_it_was(trace, tmp_path):
    before = open(trace, 'rb').read()
    classes(trace, 'class=param order>=1\n', tmp_path)
    assert open(trace, 'rb').read() == before


def test_analyze_stores_the_classes(tmp_path):
    m = Linear(str(tmp_path / 't.db'))
    f = tmp_path / 'rules'
    f.write_text('class=temporary order=1\nclass=grad order=77\n')
    p = run('analyze', '--rules', f, m.t.path)
    assert p.returncode == 0 and f'{f}:2: the rule matches no allocation' in p.stdout
    db = sqlite3.connect(m.t.path)
    rows = lambda: db.execute('SELECT class, confidence, rule FROM alloc_class JOIN (SELECT min(id) AS first FROM alloc) ON alloc = first').fetchall()
    assert rows() == [('temporary', 1.0, "by the user's rules, line 1")]
    assert f'The trace was analysed with the rules of {f}.' in blocks(m.t.path)['notes']
    assert run('analyze', '-q', m.t.path).returncode == 0            # anew, without rules
    assert rows()[0][0] == 'param' and not any('rules of' in n for n in blocks(m.t.path)['notes'])


BAD = [ # text, line, what is said
    ('class=param\n', 1, 'no condition'), ('order=1\n', 1, 'no class'), ('\n\nclass=parameter order=1', 3, 'no such class'), ('class=param class=grad order=1', 1, 'twice'),
    ('class=param bytes>=1M', 1, 'bytes>=1M: not a size'), ('class=param bytes>=', 1, 'a value is missing'), ('class=param bytes=2-1', 1, 'less than the first'),
    ('class=param order=0x10', 1, 'not a number'), ('class=param order=-1', 1, 'not a number'), ('class=param bytes>=9999999TiB', 1, 'not a size'),
    ('class=param bytes=0.3', 1, 'not a size'), ('class=param order<5-9', 1, 'not a number'), ('class=param size=1', 1, 'no such condition'),
    ('class=param stack>=x', 1, 'are compared'), ('class=param bytes!=1', 1, 'numbers take'), ('class=param stack', 1, "'stack': not understood"), ('param order=1', 1, 'not understood'),
    ('class>param order=1', 1, 'class>'), ('class=param stack="a b', 1, 'quote does not end'), ('class=param was=weights', 1, 'no such class'), ('class=param tag!=x', 1, 'tag!='),
    ('class=param address=zz', 1, 'not an address'), ('class=param order=1\nclass=x' + 'y' * 5000, 2, 'more than 4096'), ('class=param order=\x001', 1, 'NUL'),
    ('class=param order=99999999999999999999', 1, 'not a number'), ('class=param order>=1 =x', 1, 'not understood'),
]


@pytest.mark.parametrize('text,line,says', BAD)
@pytest.mark.parametrize('command', ['report', 'analyze'])
def test_a_bad_line_is_told_and_nothing_written(trace, tmp_path, command, text, line, says):
    f, out = tmp_path / 'rules', tmp_path / 'out'
    f.write_text(text)
    before = open(trace, 'rb').read()
    p = run(command, '--rules', f, *(['-o', out] if command == 'report' else []), trace)
    assert p.returncode == 2 and p.stdout == '' and not out.exists()
    assert p.stderr.startswith(f'acct {command}: {f}:{line}: ') and says in p.stderr and p.stderr.count('\n') == 1
    assert open(trace, 'rb').read() == before


def test_a_file_that_is_not_there(trace, tmp_path):
    p = run('report', '--rules', tmp_path / 'none', trace)
    assert p.returncode == 2 and 'cannot be read' in p.stderr
    assert run('report', '--rules', tmp_path, trace).returncode == 2       # a folder


def test_random_rules_against_python(trace, tmp_path):
    """First match of random rules, as Python finds it."""
    rnd = random.Random(7)
    symbols = {1: ['malloc_it', 'adam_init<float>', 'main'], 2: ['make_layer', 'main'], 0: []}
    allocs = [dict(n=i, order=i, bytes=1000 * i, range=('init weights', 'init state', 'loop', 'loop')[(i - 1) // 2], stack=symbols[i % 3] if i <= 6 else [])
              for i in range(1, 9)]
    rules, tests = [], []
    for _ in range(40):
        cond, words = [], []
        for key in rnd.sample(['order', 'bytes', 'range', 'stack'], rnd.randrange(1, 4)):
            if key in ('order', 'bytes'):
                a, b = sorted(rnd.randrange(0, 9) * (1000 if key == 'bytes' else 1) for _ in range(2))
                words.append(f'{key}={a}-{b}')
                cond.append(lambda x, k=key, a=a, b=b: a <= x[k] <= b)
            else:
                g = rnd.choice(['*', 'l*', '*a*', 'init*', '?ain', 'm*_*'])
                words.append(f'{key}={g}')
                cond.append(lambda x, k=key, g=g: any(fnmatch.fnmatchcase(s, g) for s in ([x[k]] if k == 'range' else x[k])))
        c = rnd.choice(['param', 'grad', 'optimizer', 'input'])
        rules.append(' '.join(rnd.sample(words + [f'class={c}'], len(words) + 1)))
        tests.append((c, cond))
    got = classes(trace, '\n'.join(rules), tmp_path)
    for x in allocs:
        want = next(((c, i) for i, (c, cond) in enumerate(tests) if all(f(x) for f in cond)), None)
        assert [r[2:] for r in got.get(x['n'], [])] == ([(want[0], f"by the user's rules, line {want[1] + 1}")] if want else [])


def test_hostile_files(trace, tmp_path):
    """Random bytes and damaged rules: exit 0 or 2, at most one line, no crash."""
    rnd = random.Random(3)
    seed = b'class=optimizer bytes>=1MiB order=10-20 stack=adam* library="lib foo*" range=init* tag=x was=grad # c\n'
    for i in range(60):
        b = bytearray(rnd.randbytes(rnd.randrange(200)) if i % 3 == 0 else seed * rnd.randrange(1, 4))
        for _ in range(rnd.randrange(4)):
            if b:
                b[rnd.randrange(len(b))] = rnd.randrange(256)
        f = tmp_path / 'rules'
        f.write_bytes(bytes(b))
        p = subprocess.run([ACCT, 'report', '--rules', f, '-o', tmp_path / 'out', trace], capture_output=True, timeout=60)
        assert p.returncode in (0, 2) and p.stderr.count(b'\n') == (p.returncode == 2), (b, p.stderr)


def test_many_rules_and_stars(trace, tmp_path):
    f = tmp_path / 'rules'
    f.write_text('class=param stack=' + '*a' * 1000 + '*b\n' + 'class=param order=99\n' * 9000 + 'class=grad order=5\n')
    got = classes(trace, f.read_text(), tmp_path)
    assert got == {5: [(0, 5000, 'grad', "by the user's rules, line 9002")]}
    f.write_text('class=param order=99\n' * 10001)
    assert 'more than 10000 rules' in run('report', '--rules', f, trace).stderr
