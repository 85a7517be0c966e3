"""docs/FORMAT.md says what is: its events are those of trace/events.def, its tables and columns those of a fresh trace.
`python3 tests/test_format.py --write` renews the part on events."""
import os, re, sqlite3, subprocess, sys

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
    names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' OR name = 'op_buffer'")] # a view that was a table
    assert documented_tables(open(PAGE).read()) == {t: columns(t) for t in names if t not in DETAILS}
    fields = {name.lower(): [f for f, _, _ in fs] for name, _, _, fs in events()[0]}
    for t in DETAILS:
        assert columns(t) == (['id', 'op'] if t == 'gemm' else ['op']) + fields[t]
    views = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    assert all(f'`{v}`' in open(PAGE).read() for v in views)


if __name__ == '__main__':
    assert sys.argv[1:] == ['--write'], 'usage: python3 tests/test_format.py --write'
    before, _, after = page_parts()
    text = before + BEGIN + events_part() + END + after  # before the page is emptied
    open(PAGE, 'w').write(text)
