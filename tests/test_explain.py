"""acct memory --explain ID: the counts and sentences follow from the model's own loops (layers, steps), the places from what the test
recorded."""
import json, os, sqlite3, subprocess
import pytest
import oracle_adapter
from conftest import BUILD
from lecture_model import Linear
from trace_maker import Maker

ACCT = os.path.join(BUILD, 'acct')
L, STEPS = 3, 4


def explain(path, alloc, fmt='json', *more):
    p = subprocess.run([ACCT, 'memory', '--explain', str(alloc), '--format', fmt, *map(str, more), path], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)['explain'] if fmt == 'json' else p.stdout


@pytest.fixture(scope='module')
def linear(tmp_path_factory):
    """A block a class: parameters 1, gradients 2, momentum 3, activations 4, input 5, gradients of activations 6."""
    m = Linear(str(tmp_path_factory.mktemp('explain') / 't.db'), D=64, layers=L, B=8, steps=STEPS)
    oracle_adapter.analyze(m.t.path)
    return m


def uses(c):
    return {(u['act'], u['phase']): (u['ops'], u['steps']) for u in c['use']}


EXPECTED = { # allocation: class, {(act, phase): (ops, steps)}
    1: ('param', {('from_host', None): (L, 0), ('factor', 'forward'): (L * STEPS, STEPS), ('factor', 'backward'): ((L - 1) * STEPS, STEPS),
                  ('modify', 'optimizer'): (L * STEPS, STEPS)}),
    2: ('grad', {('result', 'backward'): (L * STEPS, STEPS), ('read', 'optimizer'): (L * STEPS, STEPS)}),
    3: ('optimizer', {('clear', None): (L, 0), ('modify', 'optimizer'): (2 * L * STEPS, STEPS), ('read', 'optimizer'): (L * STEPS, STEPS)}),
    5: ('input', {('from_host', None): (STEPS, STEPS), ('factor', 'forward'): (STEPS, STEPS), ('read', 'forward'): (STEPS, STEPS),
                  ('factor', 'backward'): (STEPS, STEPS)}),
}


@pytest.mark.parametrize('alloc', EXPECTED)
def test_counts(linear, alloc):
    x = explain(linear.t.path, alloc)
    name, expected = EXPECTED[alloc]
    assert x['id'] == x['order'] == alloc and x['api'] == 'cudaMalloc' and x['step'] is None and len(x['classes']) == x['parts'] == 1
    c = x['classes'][0]
    assert c['class'] == name and c['confidence'] == 0.99 and uses(c) == expected
    assert (c['offset'], c['bytes'], c['from_ns'], c['until_ns']) == (0, x['bytes'], None, None)


def test_firsts_and_lasts(linear):
    """Of the parameters: calls in the order of the program."""
    db = sqlite3.connect(linear.t.path)
    one = lambda sql: db.execute(sql).fetchone()[0]
    c = explain(linear.t.path, 1)['classes'][0]
    assert c['first_write'] == {'op': one('SELECT min(op) FROM copy'), 'name': 'cudaMemcpyAsync', 'operand': 'dst', 'step': None, 'phase': None}
    assert c['first_read'] == {'op': one('SELECT min(op) FROM gemm'), 'name': 'cublasSgemm_v2', 'operand': 'A', 'step': 0, 'phase': 'forward'}
    assert c['last_use'] == {'op': one('SELECT max(id) FROM op'), 'name': 'cublasSaxpy_v2', 'operand': 'y', 'step': STEPS - 1, 'phase': 'optimizer'}
    assert c['overwritten_after_read'] == c['accesses_of_unknown_direction'] == c['accesses_of_unknown_extent'] == 0


def test_sentences(linear):
    s = explain(linear.t.path, 1)['classes'][0]['sentences']
    gemm = sqlite3.connect(linear.t.path).execute('SELECT min(op) FROM gemm').fetchone()[0]
    assert s[0] == 'The whole allocation: param, confidence 0.99, by the rule "written only by the optimizer, read in forward".'
    assert f'Read as a factor by {L * STEPS} products in forward of {STEPS} steps (first: op {gemm}, cublasSgemm_v2, step 0, forward; operand A).' in s
    assert 'Once read it is never overwritten.' in s
    assert 'So it is param: what forward reads and nothing but the optimizer changes is a parameter.' in s
    assert f'Not optimizer state: forward reads it {L * STEPS} times.' in s
    s = explain(linear.t.path, 3)['classes'][0]['sentences']
    assert 'Not a parameter: no forward reads it.' in s
    s = explain(linear.t.path, 2)['classes'][0]['sentences']
    assert f'Not the gradient of an activation: the optimizer uses it {L * STEPS} times.' in s


def test_parts_have_their_own_evidence(linear):
    x = explain(linear.t.path, 4)                       # the last activation is read by no backward
    H = 64 * 8 * 4
    assert [(c['offset'], c['bytes'], c['class']) for c in x['classes']] == [(0, (L - 1) * H, 'activation'), ((L - 1) * H, H, 'activation')]
    assert uses(x['classes'][0])[('factor', 'backward')] == ((L - 1) * STEPS, STEPS)
    assert not any(p == 'backward' for _, p in uses(x['classes'][1]))
    assert any('Backward does not read it' in s for s in x['classes'][1]['sentences'])


@pytest.mark.parametrize('fmt', ['text', 'markdown', 'csv'])
def test_formats_say_the_same(linear, fmt):
    text = explain(linear.t.path, 1, fmt)
    for s in explain(linear.t.path, 1)['classes'][0]['sentences'] + explain(linear.t.path, 1)['place']:
        assert (s if fmt != 'csv' else s.replace('"', '""')) in text


def test_places(tmp_path):
    t = Maker(str(tmp_path / 't.db'))
    stack = t.stack(('cudaMalloc', '/lib/libcudart.so'), ('load_model', '/bin/train', 'model.cu', 42), (None, '/bin/train'))
    with t.range('setup'), t.range('load model'):
        n = t.alloc(0x10000, 4096)
    other = t.alloc(0x20000, 4096)
    t.called_from(n, stack)
    t.tag(0x10000 + 96, 4000, 'optimizer')
    t.tag(0x10000, 96, 'header')
    path = t.close()
    oracle_adapter.analyze(path)
    x = explain(path, n + 1)
    assert x['stack'] == ['cudaMalloc in /lib/libcudart.so', 'load_model at model.cu:42', '0x400002 in /bin/train']
    assert x['ranges'] == ['setup', 'load model']
    assert x['tags'] == ["'optimizer' on bytes 96 to 4095", "'header' on bytes 0 to 95"]
    assert "It was made in the range 'load model', within others." in x['place'] and 'Called from cudaMalloc in /lib/libcudart.so' in x['place']
    c = x['classes'][1]
    assert (c['class'], c['confidence']) == ('optimizer', 1) and 'So it is optimizer: the program said so (acct_tag), whatever the ops say.' in c['sentences']
    assert 'No op that was recorded touches it.' in x['place']
    y = explain(path, other + 1)
    assert (y['stack'], y['ranges'], y['tags']) == ([], [], []) and 'Its call stack was not recorded.' in y['place']


def test_rules_of_the_user(linear, tmp_path):
    f = tmp_path / 'rules'
    f.write_text('class=other order=1\n')
    c = explain(linear.t.path, 1, 'json', '--rules', f)['classes'][0]
    assert (c['class'], c['rule'], c['confidence']) == ('other', "by the user's rules, line 1", 1)
    assert "So it is other by the user's own rule, whatever the ops say." in c['sentences']
    assert uses(c) == EXPECTED[1][1]                    # the evidence stays what it is


def test_doubts(tmp_path):
    """A kernel of which nobody knows what it does, and how far it reaches."""
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, 4096)
    for _ in range(3):
        t.launch('mystery', [(0x10000, '?', None)])
    path = t.close()
    oracle_adapter.analyze(path)
    c = explain(path, a + 1)['classes'][0]
    assert c['accesses_of_unknown_direction'] + sum(u['ops'] for u in c['use'] if u['act'] != 'maybe_write') == 3
    assert any('No step was found' in s for s in c['sentences'])


def test_moving_classes(tmp_path):
    """An allocation whose class changes with time: each part counts what happens in its time."""
    t = Maker(str(tmp_path / 't.db'))
    a = t.alloc(0x10000, 256)
    t.tag(0x10000, 256, 'activation')
    t.launch('early', [(0x10000, 'w', 256)])
    t.launch('early', [(0x10000, 'r', 256)])
    t.tag(0x10000, 256, 'grad')
    t.launch('late', [(0x10000, 'rw', 256)])
    path = t.close()
    oracle_adapter.analyze(path)
    c = explain(path, a + 1)['classes']
    assert [(x['class'], uses(x)) for x in c] == [('activation', {('write', None): (1, 0), ('read', None): (1, 0)}), ('grad', {('modify', None): (1, 0)})]
    assert c[0]['until_ns'] == c[1]['from_ns'] and c[0]['from_ns'] is None


@pytest.mark.parametrize('given,code,says', [('99', 1, 'no allocation has the id 99'), ('x', 2, 'not a whole number'), ('-1', 2, 'not a whole number'),
                                             ('20', 1, 'no allocation has the id 20'), ('99999999999999999999', 2, 'not a whole number')])
def test_no_such_allocation(linear, tmp_path, given, code, says):
    out = tmp_path / 'out'
    p = subprocess.run([ACCT, 'memory', f'--explain={given}', '-o', out, linear.t.path], capture_output=True, text=True, timeout=60)
    assert p.returncode == code and says in p.stderr and p.stderr.count('\n') == 1 and not out.exists()


def test_an_older_trace(linear, tmp_path):
    """Without the tables of stacks, ranges and tags."""
    path = str(tmp_path / 't.db')
    db = sqlite3.connect(path)
    sqlite3.connect(linear.t.path).backup(db)
    for t in ('range', 'tag', 'stack', 'frame', 'op_stack', 'window', 'collective'):
        db.execute(f'DROP TABLE "{t}"')
    db.commit()
    db.close()
    assert uses(explain(path, 1)['classes'][0]) == EXPECTED[1][1]
