"""What the tests share: where the build is, running programs with a time limit, and running C unit-test programs.

A C unit test is a cmocka program in tests/unit/test_*.c; each of its cases becomes a pytest case of its own."""
import os, re, signal, subprocess
import pytest

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get('BUILD', os.path.join(TOP, 'build')))
SHARED = os.path.join(os.path.dirname(TOP), 'shared')


def deps(name):
    """A variable of the build's deps.mk."""
    with open(os.path.join(BUILD, 'deps.mk')) as f:
        return re.search(rf'^{name} := *(.*)$', f.read(), re.M).group(1)


# tests/gpu/run runs some of the tests on a GPU, by ACCT_TEST_DEVICE=gpu; all others run on the virtual one.
ON_GPU = os.environ.get('ACCT_TEST_DEVICE') == 'gpu'
DEVICE = {'LD_LIBRARY_PATH': deps('CUDA_LIB') + ':' + os.environ.get('LD_LIBRARY_PATH', '') if ON_GPU else os.path.join(BUILD, 'vgpu')}
# A shell starts what runs in the background with these ignored, and programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# Root in a container may not, as a rule.
MAY_MOUNT = os.geteuid() == 0 and not subprocess.run(['unshare', '-m', 'mount', '-t', 'tmpfs', 'none', '/mnt'], stderr=subprocess.DEVNULL).returncode

# Programs that others wrote, of which nothing is kept here, are tested where a checkout is named (make public).
collect_ignore = ([] if ON_GPU else ['gpu']) + [f'public/{test}' for test, checkout in (('test_llmc.py', 'LLMC'), ('test_cuda_samples.py', 'CUDA_SAMPLES'), ('test_sgemm.py', 'SGEMM'))
                                                if not os.environ.get(checkout)]


def run(*argv, env=None, timeout=120, **kw):
    """Run a program to its end; text output, never raises for an exit code. env adds to the environment."""
    e = dict(os.environ)
    for k in [k for k in e if k.startswith('ACCT') or k == 'LD_PRELOAD']:
        del e[k]
    e.update(env or {})
    kw.setdefault('stdout', subprocess.PIPE)
    kw.setdefault('stderr', subprocess.PIPE)
    return subprocess.run([str(a) for a in argv], env=e, text=True, timeout=timeout, **kw)


@pytest.fixture
def build():
    return BUILD


def unit_file(name, parent, **kw):
    p = str(name)
    if os.path.basename(os.path.dirname(p)) == 'unit' and re.fullmatch(r'test_\w+\.c', os.path.basename(p)):
        return UnitFile.from_parent(parent, **kw)


# Arguments of a hook go by name, and one with a default is never given: two functions for the two generations of pytest.
if int(pytest.__version__.split('.')[0]) >= 7:
    def pytest_collect_file(file_path, parent):
        return unit_file(file_path, parent, path=file_path)
else:
    def pytest_collect_file(path, parent):
        return unit_file(path, parent, fspath=path)


class UnitFile(pytest.File):
    def collect(self):
        src = str(self.path if hasattr(self, 'path') else self.fspath)
        prog = os.path.join(BUILD, 'tests', os.path.basename(src)[:-2])
        names = re.findall(r'cmocka_unit_test(?:_\w+)?\((\w+)', open(src).read())
        assert names, f'{src} names no case with cmocka_unit_test(…)'
        for name in names:
            yield UnitCase.from_parent(self, name=name, prog=prog)


class UnitCase(pytest.Item):
    def __init__(self, name, parent, prog):
        super().__init__(name, parent)
        self.prog = prog

    def runtest(self):
        # cmocka has no choice of cases from outside: the program runs once for all of its cases.
        if not hasattr(self.parent, 'ran'):
            self.parent.ran = subprocess.run([self.prog], env={**os.environ, 'CMOCKA_MESSAGE_OUTPUT': 'STDOUT'}, stdout=subprocess.PIPE,
                                             stderr=subprocess.STDOUT, text=True, errors='replace', timeout=300)
        r = self.parent.ran
        if re.search(r'\[\s+SKIPPED \] ' + self.name + r'\b', r.stdout):
            pytest.skip('by the program itself')
        passed = re.search(r'\[\s+OK\s+\] ' + self.name + r'\b', r.stdout)
        # Another case's failure is that one's; an exit code that no case explains is everybody's.
        if not passed or (r.returncode and not re.search(r'\[\s+FAILED\s+\] \w', r.stdout)):
            raise AssertionError(f'{self.prog}: {self.name} (exit code {r.returncode})\n{r.stdout}')

    def repr_failure(self, excinfo):
        return str(excinfo.value)

    def reportinfo(self):
        return self.path if hasattr(self, 'path') else self.fspath, 0, self.name
