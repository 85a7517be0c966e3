"""The acct program: options, help, and `acct run` on small programs. What a program does without acct is what it must do with it."""
import json, os, re, shutil, signal, sqlite3, subprocess, sys, time
import pytest
from conftest import BUILD, MAY_MOUNT, TOP, run

ACCT, LIB, CUDA = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'libacct.so'), os.path.join(BUILD, 'tests', 'cli_cuda')
COMMANDS = re.findall(r'^  ([a-z]+) ', subprocess.run([ACCT, 'help'], stdout=subprocess.PIPE, text=True).stdout, re.M)
# Every command with its words: ['plan', 'train'] is a child of ['plan'].
PARENTS = [c for c in COMMANDS if 'WORD` tells more' in subprocess.run([ACCT, 'help', c], stdout=subprocess.PIPE, text=True).stdout]
CHILDREN = [[p, c] for p in PARENTS for c in re.findall(r'^  ([a-z]+) ', subprocess.run([ACCT, 'help', p], stdout=subprocess.PIPE, text=True).stdout, re.M)]
EVERY = [[c] for c in COMMANDS] + CHILDREN
PAGES = sorted(f[:-2] for f in os.listdir(os.path.join(TOP, 'docs', 'man')) if f.endswith('.1'))


def compile_c(tmp_path, name, code, *flags):
    src = tmp_path / f'{name}.c'
    src.write_text(code)
    subprocess.run(['cc', '-o', tmp_path / name, src, *flags], check=True)
    return tmp_path / name


def acct_run(*args, cwd, **kw):
    return run(ACCT, 'run', *args, cwd=cwd, **kw)


# ---- options and help -------------------------------------------------------------------------------------------------

def test_version_is_the_header_s():
    want = re.search(r'ACCT_VERSION "(.*)"', open(os.path.join(TOP, 'include/acct/version.h')).read()).group(1)
    r = run(ACCT, '--version')
    assert (r.returncode, r.stdout, r.stderr) == (0, f'acct {want}\n', '')


def test_help_names_every_command():
    out = run(ACCT, 'help')
    files = {re.fullmatch(r'cmd_([a-z_]+)\.c', f).group(1) for f in os.listdir(os.path.join(TOP, 'analyzer')) if f.startswith('cmd_')} - {'options'}
    assert {'_'.join(c) for c in EVERY} == files and {'acct-' + c.replace('_', '-') for c in files - {'help'}} == set(PAGES) - {'acct', 'acct-collect'}
    assert out.returncode == 0 and out.stderr == '' and out.stdout == run(ACCT, '--help').stdout
    for c in EVERY:
        assert re.search(rf'^  {c[-1]} ', run(ACCT, 'help', *c[:-1]).stdout, re.M)
        own = run(ACCT, 'help', *c)
        assert own.returncode == 0 and own.stdout == run(ACCT, *c, '--help').stdout and f'usage: acct {" ".join(c)}' in own.stdout
    assert run(ACCT, 'help', 'no-such').returncode == 2


def test_a_command_with_children_names_them():
    for p in PARENTS:
        children = [c[1] for c in CHILDREN if c[0] == p]
        assert len(children) > 1
        for args in ([p], [p, 'no-such'], ['help', p, 'no-such'], [p, '-x'], [p, children[0] + 'x']):
            r = run(ACCT, *args)
            assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1, r
            assert args[0] == 'help' or all(c in r.stderr for c in children), r


def test_a_message_is_one_line_whatever_is_in_it(tmp_path):
    for args in (['plan', 'dtype', '1\n2'], ['report', 'no\nsuch\r\x1b[31m.db'], ['report', '--\n'], ['plan', 'view', '--shape', '\n']):
        r = run(ACCT, *args, cwd=tmp_path)
        assert r.returncode in (1, 2) and r.stdout == '' and r.stderr.count('\n') == 1 and not re.search('[\x00-\x09\x0b-\x1f]', r.stderr), r


def test_nothing_is_printed_of_a_trace_that_cannot_be_read(tmp_path):
    for c in ('report', 'steps', 'flops', 'peak', 'plan compare'):
        for form in ('text', 'json', 'csv', 'markdown'):
            r = run(ACCT, *c.split(), '--format', form, 'no.db', cwd=tmp_path)
            assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1, r


def test_help_env_has_the_whole_registry():
    out = run(ACCT, 'help', 'env').stdout
    rows = re.findall(r'^ENV\((\w+), (\w+), "(.*?)", "(.*)"\)$', open(os.path.join(TOP, 'include/acct/env.def')).read(), re.M)
    assert len(rows) > 10
    for name, kind, default, doc in rows:
        assert f'{name} ({kind}, default {default or "empty"})\n    {doc}\n' in out


@pytest.mark.parametrize('args,code,says', [
    ([], 2, 'no command'), (['frobnicate'], 2, "'frobnicate'"), (['report'], 2, 'no trace'), (['analyze'], 2, 'no trace'), (['query'], 2, 'trace'),
    (['query', 'x.db'], 2, 'SQL'), (['report', '--frob', 'x'], 2, "'--frob'"), (['report', '-Z', 'x'], 2, "'-Z'"), (['report', '-o'], 2, "'-o'"),
    (['report', '--format'], 2, "'--format'"), (['report', '--format', 'xml', 'x'], 2, 'xml'), (['report', '--format=html', 'x'], 2, 'html'),
    (['query', '--format=xml', 'x', 'y'], 2, 'xml'), (['analyze', '--quiet=1', 'x'], 2, "'--quiet'"), (['help', 'a', 'b'], 2, 'one'),
    (['run'], 125, 'no program'), (['run', '--dry=1', 'true'], 125, "'--dry'"), (['run', '--stacks', 'true'], 125, "'--stacks'"),
    (['run', '-o'], 125, "'-o'"), (['run', '-o', '', 'true'], 125, 'empty'), (['run', '--vgpu=h100', 'true'], 125, 'h100-sxm'), (['run', '--'], 125, 'no program')])
def test_a_bad_command_line_is_told_in_one_line(tmp_path, args, code, says):
    r = run(ACCT, *args, cwd=tmp_path)
    assert r.returncode == code and r.stdout == '' and r.stderr.count('\n') == 1 and says in r.stderr and r.stderr.startswith('acct'), r
    assert list(tmp_path.iterdir()) == []


def test_forms_of_options(tmp_path):
    from report_trace import Trace
    t = Trace(tmp_path / '-x.db')
    t.close()
    for args in (['--format', 'json', '--', '-x.db'], ['--format=json', './-x.db'], ['-f', 'json', './-x.db'], ['-fjson', './-x.db'], ['./-x.db', '-f', 'json']):
        r = run(ACCT, 'report', *args, cwd=tmp_path)
        assert r.returncode == 0 and json.loads(r.stdout)['schema'] == 1, (args, r.stderr)


# ---- query -----------------------------------------------------------------------------------------------------------------

@pytest.fixture
def trace(tmp_path):
    from report_trace import Trace
    t = Trace(tmp_path / 'q.db', argv=['a,b "c"', 'é'])
    t.device('NVIDIA H200', peak_fp32=1.5)
    return t.close()


@pytest.mark.parametrize('command', ['report', 'steps', 'flops', 'ops', 'kernels', 'memory', 'peak', 'leaks'])
def test_a_view_does_not_replace_what_it_reads(trace, tmp_path, command):
    """-o onto the trace, by any name, or onto the file of rules."""
    path, rules = tmp_path / 'a.db', tmp_path / 'rules'
    shutil.copy(trace, path)
    rules.write_text('class=param order=1\n')
    os.link(path, tmp_path / 'hard')
    os.symlink('a.db', tmp_path / 'soft')
    for out in ('a.db', './a.db', 'hard', 'soft', 'rules'):
        r = run(ACCT, command, *(['--rules', 'rules'] if out == 'rules' else []), '-o', out, 'a.db', cwd=tmp_path)
        assert r.returncode == 2 and 'which would be lost' in r.stderr and r.stderr.count('\n') == 1, r
    assert path.read_bytes()[:15] == b'SQLite format 3' and rules.read_text() == 'class=param order=1\n' and not os.path.islink(path)
    assert run(ACCT, command, '-o', 'b.txt', 'a.db', cwd=tmp_path).returncode == 0 and (tmp_path / 'b.txt').read_text()


CUT_OFF = '''import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript("PRAGMA cache_size=5; BEGIN; UPDATE meta SET value = 'changed'; CREATE TABLE more(x)")
db.executemany('INSERT INTO more VALUES(?)', ((b'x' * 3000,) for i in range(500)))
os._exit(0)
'''


def cut_off(path):
    """A transaction that ended with its process while pages were written: half of them are in the file, and what they were is in the journal. The header counts pages that are not there yet."""
    subprocess.run([sys.executable, '-c', CUT_OFF, path], check=True)
    assert open(f'{path}-journal', 'rb').read(4) == b'\xd9\xd5\x05\xf9'
    with open(path, 'r+b') as f:
        f.seek(28)
        f.write((os.path.getsize(path) // 4096 + 1000).to_bytes(4, 'big'))


def test_an_analysis_that_was_cut_off_leaves_the_trace_as_it_was(trace, tmp_path):
    before = run(ACCT, 'report', trace).stdout
    cut_off(trace)
    r = run(ACCT, 'report', trace)
    assert (r.returncode, r.stdout, r.stderr) == (0, before, '') and not os.path.exists(f'{trace}-journal')


@pytest.mark.skipif(not MAY_MOUNT, reason='needs root that may mount')
def test_what_was_cut_off_is_not_read_where_it_cannot_be_put_back(trace, tmp_path):
    cut_off(trace)
    disk = tmp_path / 'disk'
    disk.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=20m', 'acct-test', disk], check=True)
    try:
        for end in ('', '-journal'):
            shutil.copy(f'{trace}{end}', disk)
        subprocess.run(['mount', '-o', 'remount,ro', disk], check=True)
        for command in (['report'], ['steps'], ['plan', 'compare']):
            r = run(ACCT, *command, disk / 'q.db')
            assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1 and '-journal' in r.stderr and 'read-only' in r.stderr, r
    finally:
        subprocess.run(['umount', '-l', disk], check=True)


def test_query_formats(trace):
    sql = "SELECT 7 AS n, 0.1 AS x, NULL AS none, 'a,\"b' AS text, x'00ff' AS raw FROM device"
    assert json.loads(run(ACCT, 'query', '--format', 'json', trace, sql).stdout) == [{'n': 7, 'x': 0.1, 'none': None, 'text': 'a,"b', 'raw': "x'00ff'"}]
    assert run(ACCT, 'query', '--format', 'csv', trace, sql).stdout == 'n,x,none,text,raw\n7,0.1,,"a,""b",x\'00ff\'\n'
    table = run(ACCT, 'query', trace, sql).stdout.splitlines()
    assert table[0].split() == ['n', 'x', 'none', 'text', 'raw'] and table[1].split() == ['7', '0.1', 'NULL', 'a,"b', "x'00ff'"]
    big = 9007199254740993
    assert json.loads(run(ACCT, 'query', '--format', 'json', trace, f'SELECT {big} AS n').stdout) == [{'n': big}]


def test_query_of_no_rows(trace):
    none = 'SELECT id, name FROM device WHERE 0'
    assert run(ACCT, 'query', '--format', 'json', trace, none).stdout == '[]\n'
    assert run(ACCT, 'query', '--format', 'csv', trace, none).stdout == 'id,name\n'
    assert run(ACCT, 'query', trace, none).stdout.split() == ['id', 'name']


def test_query_only_reads(trace):
    before = open(trace, 'rb').read()
    folder = os.path.dirname(trace)
    for sql in ('DELETE FROM device', 'DROP TABLE op', 'PRAGMA user_version = 3', "ATTACH 'new.db' AS n", 'CREATE TEMP TABLE t(a)', 'VACUUM', "VACUUM INTO 'v.db'",
                'PRAGMA journal_mode = WAL', 'PRAGMA query_only = 0', 'BEGIN IMMEDIATE'):
        r = run(ACCT, 'query', trace, sql, cwd=folder)
        assert r.returncode == 1 and 'reading' in r.stderr and r.stderr.count('\n') == 1, (sql, r)
    assert open(trace, 'rb').read() == before and os.listdir(folder) == ['q.db']
    assert run(ACCT, 'query', trace, 'PRAGMA table_info(op)').returncode == 0


def test_query_says_where_the_sql_is_wrong(trace):
    r = run(ACCT, 'query', trace, 'SELECT nonsense FROM device')
    assert r.returncode == 1 and 'nonsense' in r.stderr and 'character 8' in r.stderr and r.stderr.count('\n') == 1
    r = run(ACCT, 'query', trace, 'SELECT 1; SELECT 2')
    assert r.returncode == 2 and 'SELECT 2' in r.stderr


# ---- run: what is refused before anything starts ---------------------------------------------------------------------------------

def refused(cwd, *args, env=None):
    """Refused with 125 and one line, nothing left behind; returns the line."""
    before = sorted(os.listdir(cwd))
    r = acct_run(*args, cwd=cwd, env=env)
    assert r.returncode == 125 and r.stdout == '' and r.stderr.count('\n') == 1 and r.stderr.startswith('acct run: '), r
    assert sorted(os.listdir(cwd)) == before
    return r.stderr


def test_programs_that_cannot_be_traced(tmp_path):
    assert 'not found in PATH' in refused(tmp_path, 'no-such-program-anywhere')
    assert './none' in refused(tmp_path, '--', './none')
    (tmp_path / 'plain').write_text('hello')
    assert 'Permission denied' in refused(tmp_path, './plain')
    assert 'folder' in refused(tmp_path, str(tmp_path))
    os.chmod(tmp_path / 'plain', 0o755)
    assert 'neither' in refused(tmp_path, './plain')
    code = 'int main(void) { return 3; }'
    for name, flag in (('fixed', '-static'), ('pie', '-static-pie')):
        compile_c(tmp_path, name, code, flag)
        assert 'statically linked' in refused(tmp_path, f'./{name}')
    (tmp_path / 'script').write_text(f'#!{tmp_path}/fixed\n')
    os.chmod(tmp_path / 'script', 0o755)
    assert 'statically linked' in refused(tmp_path, './script')
    (tmp_path / 'nowhere').write_text('#!/no/such/interpreter\n')
    os.chmod(tmp_path / 'nowhere', 0o755)
    assert '/no/such/interpreter' in refused(tmp_path, './nowhere')
    if os.geteuid() == 0:
        setuid = compile_c(tmp_path, 'setuid', code)
        os.chown(setuid, 65534, 65534)
        os.chmod(setuid, 0o4755)
        assert 'privileges' in refused(tmp_path, './setuid')


def test_places_where_no_trace_can_be(tmp_path):
    (tmp_path / 'old.db').write_text('precious')
    line = refused(tmp_path, '-o', 'old.db', 'true')
    assert 'old.db' in line and '--force' in line
    assert 'old.db' in refused(tmp_path, 'true', env={'ACCT_OUTPUT': 'old.db'})
    assert (tmp_path / 'old.db').read_text() == 'precious'
    assert str(tmp_path) in refused(tmp_path, '-o', str(tmp_path), 'true')
    assert 'no/such' in refused(tmp_path, '-o', 'no/such/x.db', 'true')
    assert 'old.db' in refused(tmp_path, '-o', 'old.db/x.db', 'true')


def test_missing_parts_are_named(tmp_path):
    alone = tmp_path / 'bin'
    alone.mkdir()
    shutil.copy(ACCT, alone)
    for missing in ('libacct.so', 'acct-collect'):
        r = run(alone / 'acct', 'run', 'true')
        assert r.returncode == 125 and missing in r.stderr and r.stderr.count('\n') == 1
        shutil.copy(os.path.join(BUILD, missing), alone)
    assert run(alone / 'acct', 'run', 'true').returncode == 0
    r = run(alone / 'acct', 'run', '--vgpu', 'true')
    assert r.returncode == 125 and 'virtual GPU' in r.stderr


# ---- run: the program is as it would be without --------------------------------------------------------------------------------

@pytest.mark.parametrize('command,code', [
    (['true'], 0), (['sh', '-c', 'exit 42'], 42), (['sh', '-c', 'exit 125'], 125), (['sh', '-c', 'kill -KILL $$'], 137),
    (['sh', '-c', 'kill -SEGV $$'], 139), (['sh', '-c', 'kill -TERM $$'], 143)])
def test_exit_codes(tmp_path, command, code):
    assert acct_run('--', *command, cwd=tmp_path).returncode == code
    assert list(tmp_path.iterdir()) == []                        # no CUDA call, no trace


def test_arguments_and_streams_are_passed_on(tmp_path):
    args = ['a b', '', '--', '-o', '--force', '$x', '*', 'ü']
    r = acct_run('printf', '[%s]', *args, cwd=tmp_path)
    assert r.stdout == ''.join(f'[{a}]' for a in args)
    data = bytes(range(256)) * 1000
    r = subprocess.run([ACCT, 'run', 'cat'], input=data, capture_output=True, cwd=tmp_path)
    assert r.stdout == data


SURROUNDINGS = r'''
import os, json
status = dict(l.rstrip("\n").split(":\t", 1) for l in open("/proc/self/status") if ":\t" in l)
env = {k: v for k, v in os.environ.items()}
print(json.dumps({"fds": sorted(int(f) for f in os.listdir("/proc/self/fd")), "env": env, "sid": os.getsid(0), "pgid": os.getpgid(0) == os.getpgid(os.getppid()),
                  "signals": {k: status[k] for k in ("SigBlk", "SigIgn", "SigCgt")}, "cwd": os.getcwd(), "nice": os.nice(0)}))
'''


@pytest.mark.parametrize('ignored', [[], [signal.SIGHUP], [signal.SIGINT, signal.SIGQUIT], [signal.SIGCHLD]])
def test_surroundings_are_the_same(tmp_path, ignored):
    """Descriptors, signals, session, process group, folder, environment but for what acct must set."""
    def prepare():
        for s in ignored:
            signal.signal(s, signal.SIG_IGN)
    got = []
    for prefix in ([], [ACCT, 'run', '--vgpu', '--']):
        r = subprocess.run([*map(str, prefix), '/usr/bin/python3', '-c', SURROUNDINGS], capture_output=True, text=True, cwd=tmp_path, preexec_fn=prepare,
                           env={'PATH': os.environ['PATH'], 'LD_LIBRARY_PATH': '/opt/lib', 'X': 'y'})
        assert r.returncode == 0, r.stderr
        got.append(json.loads(r.stdout))
    bare, traced = got
    env = traced['env']
    assert env.pop('LD_PRELOAD') == os.path.realpath(LIB) and env.pop('ACCT_SOCKET').startswith('@')
    assert env['LD_LIBRARY_PATH'] == os.path.realpath(os.path.join(BUILD, 'vgpu')) + ':/opt/lib'
    env['LD_LIBRARY_PATH'] = '/opt/lib'
    assert traced == bare


def test_a_summary_without_a_reader_changes_no_exit_code(tmp_path):
    """acct run … 2>&1 | head -1: the pipe has no reader any more when the summary comes."""
    read, write = os.pipe()
    os.close(read)
    r = subprocess.run([str(ACCT), 'run', '--vgpu', '--', 'sh', '-c', 'exit 5'], stderr=write, stdout=write, cwd=tmp_path, timeout=60)
    os.close(write)
    assert r.returncode == 5


def test_a_preload_of_the_user_stays(tmp_path):
    other = compile_c(tmp_path, 'other.so', 'int acct_test_other;', '-shared', '-fPIC')
    r = acct_run('sh', '-c', 'echo $LD_PRELOAD', cwd=tmp_path, env={'LD_PRELOAD': str(other)})
    assert r.stdout == f'{os.path.realpath(LIB)}:{other}\n'


def test_signals_reach_the_program(tmp_path):
    script = 'trap "echo term; exit 5" TERM; echo ready; while :; do sleep 0.05; done'
    p = subprocess.Popen([ACCT, 'run', 'sh', '-c', script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert p.stdout.readline() == 'ready\n'
    p.send_signal(signal.SIGINT)                                 # to acct alone: the terminal would send it to both
    time.sleep(0.2)
    assert p.poll() is None
    p.terminate()
    out, _ = p.communicate(timeout=20)
    assert (out, p.returncode) == ('term\n', 5)


def test_a_pipe_is_not_held_open(tmp_path):
    """The collector keeps none of our descriptors: a pipe from acct's stderr ends with acct."""
    r = run('sh', '-c', f'{ACCT} run --vgpu -o t.db {CUDA} linger 15 2>&1 | cat', cwd=tmp_path, timeout=12)
    assert r.returncode == 0 and 'still running' in r.stdout


# ---- run: the trace -----------------------------------------------------------------------------------------------------------

def one(path, sql):
    with sqlite3.connect(f'file:{path}?mode=ro', uri=True) as db:
        return db.execute(sql).fetchone()


@pytest.mark.parametrize('what,code', [(['exit', '0'], 0), (['exit', '7'], 7), (['kill', str(int(signal.SIGKILL))], 137), (['kill', str(int(signal.SIGSEGV))], 139)])
def test_the_trace_knows_the_exit_code(tmp_path, what, code):
    r = acct_run('--vgpu', '-o', 'x.db', CUDA, *what, cwd=tmp_path)
    assert (r.returncode, r.stdout) == (code, 'allocated\n')
    assert one(tmp_path / 'x.db', 'SELECT exit_code FROM process') == (code,)
    assert one(tmp_path / 'x.db', "SELECT value FROM meta WHERE key = 'state'") == ('complete',)
    assert one(tmp_path / 'x.db', 'SELECT count(*) FROM alloc') == (3,)
    assert os.listdir(tmp_path) == ['x.db']
    assert 'acct report x.db' in r.stderr and 'acct run: truncated' not in r.stderr


def test_names_of_traces(tmp_path):
    r = acct_run('--vgpu', CUDA, cwd=tmp_path)
    name, = os.listdir(tmp_path)
    assert re.fullmatch(r'acct-\d+\.db', name) and name in r.stderr
    os.remove(tmp_path / name)
    assert acct_run('--vgpu', '-o', 'x.db', CUDA, cwd=tmp_path).returncode == 0
    before = (tmp_path / 'x.db').read_bytes()
    assert acct_run('--vgpu', '-o', 'x.db', CUDA, cwd=tmp_path).returncode == 125
    assert (tmp_path / 'x.db').read_bytes() == before
    assert acct_run('--vgpu', '-o', 'x.db', '--force', CUDA, 'exit', '9', cwd=tmp_path).returncode == 9
    assert one(tmp_path / 'x.db', 'SELECT exit_code FROM process') == (9,)
    assert acct_run('--vgpu', '-o', 'p-%p.db', CUDA, cwd=tmp_path).returncode == 0
    assert len([n for n in os.listdir(tmp_path) if re.fullmatch(r'p-\d+\.db', n)]) == 1


def test_a_program_that_calls_exec(tmp_path):
    """The same process id, two traces; the exit code belongs to the last."""
    later = f'sleep 0.5; exec {CUDA} exit 6'                     # time to notice the exec as such
    r = acct_run('--vgpu', '-o', 'x.db', CUDA, 'exec', 'sh', '-c', later, cwd=tmp_path)
    assert (r.returncode, r.stdout) == (6, 'allocated\nallocated\n')
    reasons = {n: one(tmp_path / n, 'SELECT end_reason, exit_code FROM process') for n in os.listdir(tmp_path) if n.endswith('.db')}
    assert sorted(reasons.values(), key=str) == sorted([('exec', None), ('exit', 6)], key=str), reasons


def test_a_shell_that_starts_the_program(tmp_path):
    r = acct_run('--vgpu', '-o', 'x.db', 'sh', '-c', f'{CUDA} exit 4; exit 2', cwd=tmp_path)
    assert r.returncode == 2
    assert one(tmp_path / 'x.db', 'SELECT exit_code FROM process') == (4,)
    assert 'acct report x.db' in r.stderr


def test_a_child_that_outlives_the_program_is_not_waited_for(tmp_path):
    start = time.time()
    r = acct_run('--vgpu', '-o', 'x.db', CUDA, 'linger', '8', cwd=tmp_path)
    assert r.returncode == 0 and time.time() - start < 7 and 'still running' in r.stderr
    end = time.time() + 40
    while one(tmp_path / 'x.db', "SELECT value FROM meta WHERE key = 'state'") == ('running',):
        assert time.time() < end
        time.sleep(0.1)


def test_no_cuda_is_said(tmp_path):
    r = acct_run('true', cwd=tmp_path)
    assert 'no CUDA call' in r.stderr and 'statically' in r.stderr and r.stderr.count('\n') == 1
    r = acct_run('--vgpu', CUDA, cwd=tmp_path, env={'ACCT': 'off'})
    assert 'ACCT=off' in r.stderr and r.stdout == 'allocated\n' and os.listdir(tmp_path) == []


def test_a_collector_that_dies_changes_nothing(tmp_path):
    """The collector and its workers are killed while the program runs."""
    fifo = tmp_path / 'go'
    os.mkfifo(fifo)
    p = subprocess.Popen([ACCT, 'run', '--vgpu', '-o', 'x.db', 'sh', '-c', f'{CUDA} linger 0; read x < go; {CUDA} exit 3; exit 11'], cwd=tmp_path, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    end = time.time() + 20
    collectors = []
    while not collectors and time.time() < end:
        children = open(f'/proc/{p.pid}/task/{p.pid}/children').read().split()
        collectors = [int(c) for c in children if open(f'/proc/{c}/comm').read() == 'acct-collect\n']
        time.sleep(0.02)
    time.sleep(0.5)
    for c in collectors:
        os.kill(c, signal.SIGKILL)
    with open(fifo, 'w') as f:
        f.write('\n')
    out, err = p.communicate(timeout=60)
    assert collectors and p.returncode == 11 and 'allocated' in out, err


def test_installed_layout(tmp_path):
    """PREFIX/bin, PREFIX/lib, PREFIX/lib/acct/vgpu, found by a link in PATH too."""
    for d in ('bin', 'lib/acct', 'elsewhere'):
        (tmp_path / d).mkdir(parents=True)
    for name in ('acct', 'acct-collect'):
        shutil.copy(os.path.join(BUILD, name), tmp_path / 'bin')
    shutil.copy(LIB, tmp_path / 'lib')
    shutil.copytree(os.path.join(BUILD, 'vgpu'), tmp_path / 'lib/acct/vgpu', symlinks=True)
    os.symlink('../bin/acct', tmp_path / 'elsewhere/acct')
    r = run('acct', 'run', '--vgpu', '-o', 'x.db', CUDA, 'exit', '8', cwd=tmp_path, env={'PATH': f'{tmp_path}/elsewhere:' + os.environ['PATH']})
    assert (r.returncode, r.stdout) == (8, 'allocated\n'), r.stderr
    assert one(tmp_path / 'x.db', 'SELECT count(*) FROM alloc') == (3,)


# ---- completion -----------------------------------------------------------------------------------------------------------

def completed(tmp_path, *words):
    """What bash offers for the last word; = is a word of its own, as bash splits."""
    script = tmp_path / 'acct.bash'
    script.write_text(run(ACCT, 'completion', 'bash').stdout)
    code = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _acct; printf "%s\\n" "${COMPREPLY[@]}"'
    r = run('bash', '-c', code, script, *words, cwd=tmp_path)
    assert r.returncode == 0 and r.stderr == '', r
    return r.stdout.split()


def test_completion_in_bash(tmp_path):
    (tmp_path / 'run.db').touch()
    assert completed(tmp_path, 'acct', 're') == ['report']
    assert set(completed(tmp_path, 'acct', '')) == set(COMMANDS) | {'--help', '--version'}
    for c in EVERY:
        options = set(re.findall(r'^ +(?:-\w, +)?(--[a-z-]+)', run(ACCT, *c, '--help').stdout, re.M))
        assert set(completed(tmp_path, 'acct', *c, '--')) == options
    for p in PARENTS:
        assert completed(tmp_path, 'acct', p, '') == completed(tmp_path, 'acct', 'help', p, '') == [c[1] for c in CHILDREN if c[0] == p]
    assert completed(tmp_path, 'acct', 'help', 'report', '') == [] and completed(tmp_path, 'acct', 'plan', 'train', '--device', 'h100-s') == ['h100-sxm']
    assert completed(tmp_path, 'acct', 'report', '--format', '') == ['text', 'json', 'csv', 'markdown']
    assert completed(tmp_path, 'acct', 'report', '--format', '=') == ['text', 'json', 'csv', 'markdown']
    assert completed(tmp_path, 'acct', 'ops', '--sort', '') == ['time', 'flops', 'bytes', 'calls'] and completed(tmp_path, 'acct', 'ops', '--phase', 'b') == ['backward']
    assert completed(tmp_path, 'acct', 'report', '-f', 'js') == ['json'] == completed(tmp_path, 'acct', 'report', '--format', '=', 'js')
    assert completed(tmp_path, 'acct', 'run', '--vgpu', '=', 'h100') == ['h100-pcie', 'h100-sxm', 'h100-nvl']
    assert completed(tmp_path, 'acct', 'report', 'ru') == ['run.db'] == completed(tmp_path, 'acct', 'report', '-o', 'ru')
    assert 'run.db' in completed(tmp_path, 'acct', 'run', '--', 'ru')
    assert completed(tmp_path, 'acct', 'help', 'rep') == ['report'] and completed(tmp_path, 'acct', 'nonsense', '--') == []


@pytest.mark.parametrize('shell', ['bash', 'zsh', 'fish'])
def test_completion_has_every_option(shell):
    out = run(ACCT, 'completion', shell).stdout
    for c in EVERY:
        for option in re.findall(r'--([a-z-]+)', run(ACCT, *c, '--help').stdout.split('options:')[1].split('\n\n')[0]):
            assert re.search(rf'(--|-l ){option}\b', out) or option == 'help', (c, option)
    if shutil.which(shell):
        assert run(shell, '-n', '-c' if shell != 'fish' else '--command', out).returncode == 0
    assert run(ACCT, 'completion', 'tcsh').returncode == 2


# ---- man pages ----------------------------------------------------------------------------------------------------------------

def page(name):
    path = os.path.join(BUILD if name == 'libacct.7' else os.path.join(TOP, 'docs'), 'man', name)
    return open(path).read()


def options_of(text):
    return set(re.findall(r'(?<![-\w])--?[a-z][a-z-]*', text))


@pytest.mark.parametrize('name', [p[5:] for p in PAGES if p != 'acct'])
def test_man_pages_have_the_options_of_help(name):
    """Each option with its argument, in the page's OPTIONS and in its synopsis."""
    out = run(os.path.join(BUILD, 'acct-collect'), '--help') if name == 'collect' else run(ACCT, *name.split('-'), '--help')
    helped = re.findall(r'^ +(?:-(\w), +)?--([a-z-]+)', out.stdout, re.M)
    assert out.returncode == 0 and len(helped) >= 1
    text = page(f'acct-{name}.1').replace('\\-', '-')
    section = text[text.index('.SH OPTIONS'):]
    section = section[:section.index('.SH', 5)]
    heads = re.findall(r'^\.TP\n(.*)', section, re.M)
    want = {f'--{long}' for _, long in helped} | {f'-{letter}' for letter, _ in helped if letter}
    assert set().union(*(options_of(h) for h in heads)) == want
    synopsis = options_of(text[text.index('.SH SYNOPSIS'):text.index('.SH DESCRIPTION')])
    assert synopsis <= want and {o for o in want if o.startswith('--') and o not in ('--help', '--output')} - synopsis == set()


def test_man_pages_agree_with_help_about_the_commands():
    text = page('acct.1').replace('\\-', '-')
    for words in EVERY:
        synopsis, name = run(ACCT, *words, '--help').stdout.splitlines()[1], '-'.join(words)
        over = text if len(words) == 1 else page(f'acct-{words[0]}.1').replace('\\-', '-')
        assert re.search(rf'acct {" ".join(words)}\b', over)
        if name != 'help':
            assert synopsis in over and f'acct-{name} - {synopsis}' in page(f'acct-{name}.1').replace('\\-', '-')


def test_man_page_of_the_environment():
    text = page('libacct.7').replace('\\-', '-')
    for name, kind, default, doc in re.findall(r'^ENV\((\w+), (\w+), "(.*?)", "(.*)"\)$', open(os.path.join(TOP, 'include/acct/env.def')).read(), re.M):
        assert f'.BR {name} " ({kind}, default {default or "empty"})"\n{doc}\n' in text


@pytest.mark.parametrize('name', [p for p in PAGES if p != 'acct-collect'])
def test_examples_of_man_pages_run(tmp_path, name):
    block = re.search(r'^\.EX\n(.*?)^\.EE', page(f'{name}.1'), re.M | re.S).group(1).replace('\\-', '-')
    commands = [l[2:] for l in block.splitlines() if l.startswith('$ ')]
    assert commands and len(commands) == len(block.splitlines())
    os.symlink(os.path.join(BUILD, 'train'), tmp_path / 'train')
    env = {'PATH': BUILD + ':' + os.environ['PATH']}
    if not commands[0].startswith('acct run') and 'run.db' in block:
        commands.insert(0, 'acct run --vgpu -o run.db -- ./train --model linear --steps 4')
    for c in commands:
        r = run('sh', '-c', c, cwd=tmp_path, env=env)
        assert r.returncode == 0 and (r.stdout or ' -o ' in c), (c, r.stderr)


@pytest.mark.skipif(not shutil.which('man'), reason='no man')
def test_man_pages_are_well_formed():
    for p in [os.path.join(TOP, 'docs/man', f) for f in os.listdir(os.path.join(TOP, 'docs/man')) if f.endswith('.1')] + [os.path.join(BUILD, 'man/libacct.7')]:
        r = run('man', '--warnings', '-l', p, env={'LC_ALL': 'C.UTF-8', 'MANPAGER': 'cat'})
        assert r.returncode == 0 and r.stderr == '', (p, r.stderr)


def test_the_example_of_the_howto_compiles(tmp_path):
    code = re.search(r'```c\n(.*?)```', open(os.path.join(TOP, 'docs/HOWTO_ADD_COMMAND.md')).read(), re.S).group(1)
    (tmp_path / 'cmd_devices.c').write_text(code)
    r = run('cc', '-std=c11', '-Wall', '-Wextra', '-Werror', '-Wno-missing-field-initializers', '-D_GNU_SOURCE', f'-I{TOP}', f'-I{TOP}/include', '-c', tmp_path / 'cmd_devices.c',
            '-o', tmp_path / 'x.o')
    assert r.returncode == 0, r.stderr
