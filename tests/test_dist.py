"""`make dist`: the folder runs on a machine that has nothing but libc, wherever it lies, and prints what the build prints."""
import os, re, shutil, stat, subprocess
import pytest
from conftest import BUILD, TOP, run

ACCT, CHROOT = os.path.join(BUILD, 'acct'), shutil.which('chroot', path=os.environ['PATH'] + ':/usr/sbin:/sbin')


@pytest.fixture(scope='module')
def dist(tmp_path_factory):
    """The archive, unpacked elsewhere: (folder, the line that make prints)."""
    where = tmp_path_factory.mktemp('folder')
    r = run('make', '-s', '-C', TOP, f'BUILD={BUILD}', 'dist', env={'MAKEFLAGS': '', 'MFLAGS': '', 'MAKELEVEL': '0'}, timeout=600)
    assert r.returncode == 0, r.stderr
    archive = re.search(r'(\S+\.tar\.gz): glibc ([\d.]+) or newer', r.stdout)
    subprocess.run(['tar', '-xzf', os.path.join(TOP, archive[1]), '-C', where], check=True)
    folder, = where.iterdir()
    assert folder.name == os.path.basename(archive[1])[:-7]
    return folder, archive[2]


def programs(folder):
    return [*(folder / 'bin').iterdir(), folder / 'lib/libacct.so']


def test_needs_libc_alone_and_says_how_old(dist):
    folder, floor = dist
    newest = (0,)
    for f in programs(folder):
        needed = set(re.findall(r'NEEDED.*\[(.*)\]', run('readelf', '-d', f).stdout))
        assert needed <= {'libc.so.6', 'libm.so.6', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}, (f, needed)
        assert 'RPATH' not in run('readelf', '-d', f).stdout and 'RUNPATH' not in run('readelf', '-d', f).stdout
        newest = max(newest, *(tuple(map(int, v.split('.'))) for v in re.findall(r'GLIBC_([\d.]+)', run('objdump', '-T', f).stdout)))
    assert '.'.join(map(str, newest)) == floor and f'glibc {floor} or newer' in (folder / 'README').read_text()


def test_holds_no_path_of_the_build(dist):
    for f in [*programs(dist[0]), dist[0] / 'README']:
        assert os.path.abspath(BUILD).encode() not in f.read_bytes() and TOP.encode() not in f.read_bytes(), f


def libraries(program):
    return re.findall(r'(?:=> )?(/\S+) \(0x', run('ldd', program).stdout)


@pytest.mark.skipif(os.getuid() != 0 or not CHROOT, reason='chroot is root\'s')
def test_in_a_root_with_nothing_but_libc(dist, tmp_path):
    root = tmp_path / 'root'
    shutil.copytree(dist[0], root / 'opt/acct', symlinks=True)
    for d in ('dev', 'proc', 'tmp', 'data'):
        (root / d).mkdir()
    os.mknod(root / 'dev/null', 0o666 | stat.S_IFCHR, os.makedev(1, 3)) # every container has one
    (root / 'data/hello.c').write_text('#include <stdio.h>\nint main(void) { return puts("hello") < 0 ? 1 : 7; }\n')
    subprocess.run(['cc', '-o', root / 'data/hello', root / 'data/hello.c'], check=True)
    for library in {l for f in [*programs(dist[0]), root / 'data/hello'] for l in libraries(f)}:
        to = root / library[1:]
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, to)
    train = os.path.join(BUILD, 'train')
    assert run(ACCT, 'run', '--vgpu', '-o', root / 'data/run.db', '--', train, '--steps', '3', cwd=tmp_path).returncode == 0

    def inside(*args):
        return subprocess.run(['unshare', '--mount', 'sh', '-c', 'mount -t proc proc "$1/proc" && shift && exec "$@"', 'sh', root, CHROOT, root, '/opt/acct/bin/acct', *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, env={'PATH': '/data:/usr/bin:/bin'})
    assert inside('--version').stdout == run(ACCT, '--version').stdout
    for args in (['plan', 'dtype', '1e-8'], ['plan', 'flops', 'einsum', 'ij,jk->ik', '2,3', '3,4']):
        r = inside(*args)
        assert (r.returncode, r.stdout, r.stderr) == (0, run(ACCT, *args).stdout, ''), args
    # Analysed there anew, with the kernels' PTX read from its compressed form.
    assert inside('analyze', '--quiet', '/data/run.db').returncode == 0
    for command in ('report', 'flops', 'memory'):
        here, there = (run(ACCT, command, '--format', 'csv', root / 'data/run.db'), inside(command, '--format', 'csv', '/data/run.db'))
        assert there.returncode == here.returncode == 0 and there.stderr == '' and len(there.stdout.splitlines()) > 20
        assert [l for l in there.stdout.splitlines() if '/run.db' not in l] == [l for l in here.stdout.splitlines() if '/run.db' not in l]
    # A program without CUDA runs as it would alone; its exit code is its own.
    r = inside('run', '--', 'hello')
    assert r.returncode == 7 and r.stdout == 'hello\n', r
    assert not list(root.rglob('acct-*.db'))
    r = inside('run', '--vgpu', '--', 'hello')
    assert r.returncode == 125 and r.stderr.count('\n') == 1 and 'virtual GPU' in r.stderr
    r = inside('bench')
    assert r.returncode == 1 and r.stdout == '' and r.stderr.count('\n') == 1, r


def test_traces_from_where_it_was_moved(dist, tmp_path):
    """The program finds CUDA by itself, here the virtual GPU's; acct finds its own parts beside itself."""
    moved = shutil.copytree(dist[0], tmp_path / 'moved')
    train, env = os.path.join(BUILD, 'train'), {'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu')}
    r = run(moved / 'bin/acct', 'run', '-o', 'a.db', '--', train, '--steps', '3', cwd=tmp_path, env=env)
    assert r.returncode == 0, r.stderr
    alone = {'LD_PRELOAD': 'libacct.so', 'LD_LIBRARY_PATH': f'{moved}/lib:{env["LD_LIBRARY_PATH"]}', 'ACCT_OUTPUT': 'b.db'}
    assert run(train, '--steps', '3', cwd=tmp_path, env=alone).returncode == 0
    for db in ('a.db', 'b.db'): # the second's analysis may not be done when the program ends
        assert run(moved / 'bin/acct', 'report', db, cwd=tmp_path).returncode == 0
        r = run(moved / 'bin/acct', 'query', '--format', 'csv', db, "select class, bytes from memory_by_class where class = 'param'", cwd=tmp_path)
        assert r.stdout.split() == ['class,bytes', 'param,3337216'], r
