"""docs/FORMAT.md says what is: its events are those of trace/events.def, its tables and columns those of a fresh trace; docs/JSON.md has the keys that the commands print.
`python3 tests/test_format.py --write` renews the part on events."""
import json, os, re, sqlite3, subprocess, sys
import pytest
from conftest import BUILD

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(TOP, 'docs', 'FORMAT.md')
BEGIN, END = '<!-- events: written by tests/test_format.py --write -->\n', '<!-- end of events -->\n'
DETAILS = ('copy', 'memset', 'gemm', 'blas', 'workspace', 'launch')


def events():
    """[(NAME, class, doc, [(field, type, doc)])] and {enum: [text]} of events.def."""
    found, enums = [], {}
    text = open(os.path.join(TOP, 'trace', 'events.def')).read()
    text = text[text.index('/* ---- enums'):]
    for m in re.finditer(r'^(ENUM|EVENT|FIELD)\((.*)\)', text, re.M):
        if m[1] == 'ENUM':
            enum, _, value, name = [a.strip() for a in m[2].split(',')]
            enums.setdefault(enum, []).append((int(value), name.strip('"')))
            continue
        first, second, third, doc = [a.strip() for a in m[2].split(',', 3)]
        if m[1] == 'EVENT':
            found.append((first, third, doc[1:-1], []))
        else:
            assert first == found[-1][0]
            found[-1][3].append((third, second, doc[1:-1]))
    return found, enums


def events_part():
    found, enums = events()
    out = []
    for number, (name, kind, doc, fields) in enumerate(found):
        out.append(f'#### {number} {name} ({kind})\n{doc}\n')
        if fields:
            out.append('| field | type | meaning |\n| --- | --- | --- |\n' + ''.join(f'| {f} | {t} | {d} |\n' for f, t, d in fields))
    out.append('#### Enums\n| enum | values |\n| --- | --- |\n' +
               ''.join(f'| {e} | {", ".join(f"{v} {t}" for v, t in values)} |\n' for e, values in enums.items()))
    return '\n'.join(out)


def page_parts():
    text = open(PAGE).read()
    before, rest = text.split(BEGIN)
    part, after = rest.split(END)
    return before, part, after


def documented_tables(page):
    tables, name = {}, None
    for line in page[:page.index('## 2. The wire')].splitlines():
        if line.startswith('#'):
            name = line[5:] if line.startswith('#### ') else None
        elif name and line.startswith('| ') and not line.startswith(('| column', '| ---')):
            tables.setdefault(name, []).append(line.split('|')[1].strip())
    return tables


def test_events_are_documented():
    assert page_parts()[1] == events_part(), 'run python3 tests/test_format.py --write'


def test_tables_are_documented(tmp_path, build):
    """Compared with what acct-collect creates."""
    fake = os.path.join(build, 'tests', 'fake_program')
    subprocess.run([fake, os.path.join(build, 'acct-collect'), 'exit', '0'], env={'ACCT_OUTPUT': str(tmp_path / 'x.db')}, check=True, timeout=60)
    db = sqlite3.connect(tmp_path / 'x.db', timeout=20)
    columns = lambda t: [r[1] for r in db.execute(f'PRAGMA table_info("{t}")')]
    names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' OR name IN ('op_buffer', 'op_cost')")] # views that were tables
    assert documented_tables(open(PAGE).read()) == {t: columns(t) for t in names if t not in DETAILS}
    fields = {name.lower(): [f for f, _, _ in fs] for name, _, _, fs in events()[0]}
    for t in DETAILS:
        assert columns(t) == (['id', 'op'] if t == 'gemm' else ['op']) + fields[t]
    views = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    assert all(f'`{v}`' in open(PAGE).read() for v in views)


# ---- the JSON of the commands -------------------------------------------------------------------------------------------------

def documented_keys():
    """{heading: keys} of docs/JSON.md."""
    found = {}
    for line in open(os.path.join(TOP, 'docs', 'JSON.md')):
        if line.startswith('### '):
            keys = found.setdefault(line[4:].strip(), set())
        elif line.startswith('| `'):
            keys.update(re.findall(r'`([^`]+)`', line.split(' | ')[0]))
    return found


def paths(o, at=''):
    if isinstance(o, list):
        return set().union(*(paths(v, at + '[]') for v in o)) if o else {at}
    if isinstance(o, dict) and o:
        return set().union(*(paths(v, f'{at}.{k}' if at else k) for k, v in o.items()))
    return {at}


CLASSES = ('param', 'grad', 'optimizer', 'activation', 'activation_grad', 'input', 'workspace', 'temporary', 'other', 'unknown')
# What is documented as a whole: bytes by class, amounts by name, an op.
WHOLE = ('at_peak', 'at_end', 'live', 'by_class', 'peak_flops', 'flops_by_type', 'bytes_by_space', 'counts', 'first', 'first_write', 'first_read', 'last_use')


def undocumented(document, command):
    """Keys of a command's document that the page does not have."""
    page, missing = documented_keys(), set()
    shared = {h for h in page if not h.startswith(('acct', 'every'))}
    for path in paths(document):
        words, heading = [w.removesuffix('_most') for w in path.removesuffix('[]').split('.')], f'acct {command}'
        at = next((i for i, w in enumerate(words[:-1]) if w in shared), None)
        known = page[heading] | page['every command']
        if at is not None:
            heading, words = words[at], words[at + 1:]
            known = page[heading]
        whole = [i + 1 for i, w in enumerate(words) if w in WHOLE or heading == 'run'][:1]
        key = '.'.join(words[:whole[0]] if whole else words)
        empty = any(k.startswith(key + '[]') for k in known) # a list without elements
        if key not in known and not empty and not (words[0] == 'timeline[]' and words[1] in CLASSES):
            missing.add((heading, '.'.join(words)))
    return missing


@pytest.fixture(scope='module')
def traces(tmp_path_factory):
    """One with all a trace can show but a call that found no memory, which the other has."""
    folder, acct, train = tmp_path_factory.mktemp('format'), os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'train')
    gpt = '--model gpt --layers 1 --dim 32 --heads 2 --seq 16 --batch 2 --steps 4 --alloc step'.split()
    for name, env in (('run', {}), ('oom', {'ACCT_VGPU_MEMORY': '4500KiB'})):
        subprocess.run([acct, 'run', '--vgpu', '-o', folder / f'{name}.db', '--', train, *gpt], env={**os.environ, **env}, capture_output=True, timeout=120)
    return folder


COMMANDS = [('report',), ('steps', '--why'), ('memory', '--estimate', '--timeline=9', '--blocks'), ('memory', '--explain', '{first}'), ('flops',),
            ('ops', '--all'), ('ops',), ('kernels',), ('peak',), ('leaks', '--min-share', '0')]


@pytest.mark.parametrize('trace', ['run', 'oom'])
@pytest.mark.parametrize('args', COMMANDS, ids=' '.join)
def test_json_is_documented(traces, trace, args):
    rules = []
    if args[0] == 'flops':
        (traces / 'rules').write_text('name=* flops=1\n')
        rules = ['--flops-rules', traces / 'rules']
    first = sqlite3.connect(traces / f'{trace}.db').execute('SELECT min(alloc) FROM alloc_class').fetchone()[0]
    r = subprocess.run([os.path.join(BUILD, 'acct'), *(a.format(first=first) for a in args), *rules, '--format', 'json', traces / f'{trace}.db'], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    document = json.loads(r.stdout)
    assert document['schema'] == 1 and (trace == 'run' or args[0] != 'report' or document['out_of_memory'])
    assert undocumented(document, ' '.join(args[:1] + (('--explain',) if '--explain' in args else ()))) == set()
    assert undocumented({'steps': [{'new_key': 1}]}, args[0]) == {(f'acct {args[0]}', 'steps[].new_key')} # it would be seen


if __name__ == '__main__':
    assert sys.argv[1:] == ['--write'], 'usage: python3 tests/test_format.py --write'
    before, _, after = page_parts()
    text = before + BEGIN + events_part() + END + after  # before the page is emptied
    open(PAGE, 'w').write(text)
