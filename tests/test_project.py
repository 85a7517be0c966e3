"""The project around the code: rules of the tree, scripts/deps, the Makefile, installation, the README's promises."""
import os, re, shlex, shutil, subprocess, sys, time, zipfile
import pytest
from conftest import TOP, BUILD, run


def make(*argv, env=None, timeout=300, cwd=TOP):
    """make as a person types it: without what an outer make handed down."""
    e = {'MAKEFLAGS': '', 'MFLAGS': '', 'MAKELEVEL': '0', **(env or {})}
    return run('make', *argv, env=e, timeout=timeout, cwd=cwd)


def deps(*argv, **kw):
    return run(os.path.join(TOP, 'scripts/deps'), *argv, **kw)


def variables(path):
    return dict(re.findall(r'^(\w+) := ?(.*)$', open(path).read(), re.M))


def toolkit():
    """The toolkit of this build, for another one: not unpacked a second time where it came from wheels."""
    return {'CUDA_HOME': variables(os.path.join(BUILD, 'deps.mk'))['CUDA_HOME']}


# ---- rules of the tree -------------------------------------------------------------------------------------------------
def arrows(folder):
    return run(os.path.join(TOP, 'scripts/arrows'), folder)


def test_arrows_hold():
    r = arrows(TOP)
    assert r.returncode == 0, r.stdout


def plant(folder, files):
    for path, text in files.items():
        p = os.path.join(folder, path)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        open(p, 'w').write(text)


CLEAN = {'trace/ring.h': '#include <stdint.h>\n', 'trace/store.h': '#include <sqlite3.h>\n', 'include/acct/acct.h': '\n',
         'preload/a.c': '#include "trace/ring.h"\n', 'sample_app/t.c': '#include <stdio.h>\n#include <cublas_v2.h>\n#include "acct/acct.h"\n'}
BREACHES = {
    'preload includes the store': ({'preload/b.c': '#include "trace/store.h"\n'}, 'preload/b.c:1: preload/ may not include trace/store.h'),
    'sqlite directly': ({'preload/b.c': '#include <sqlite3.h>\n'}, 'reaches sqlite3.h'),
    'sqlite through a header': ({'trace/ring.h': '#include "store.h"\n'}, 'preload/a.c: reaches sqlite3.h through trace/store.h'),
    'llvm in cupti': ({'cupti/c.c': '#include <llvm-c/Core.h>\n'}, 'reaches llvm-c/Core.h'),
    'analyzer includes vgpu': ({'analyzer/x.c': '# include "../vgpu/v.h"\n', 'vgpu/v.h': ''}, 'analyzer/ may not include vgpu/v.h'),
    'sample_app included': ({'analyzer/x.c': '#include "sample_app/m.h"\n', 'sample_app/m.h': ''}, 'analyzer/ may not include sample_app/m.h'),
    'sample_app uses the ring': ({'sample_app/s.c': '#include "trace/ring.h"\n'}, 'sample_app/ may not include trace/ring.h'),
    'sample_app and a library': ({'sample_app/s.c': '#include <zstd.h>\n'}, 'not zstd.h'),
    'public header': ({'include/acct/p.h': '#include "trace/ring.h"\n'}, 'include/ may not include trace/ring.h'),
    'unknown folder': ({'attic/old.c': 'int x;\n'}, 'folder attic is not in the table'),
    'a name twice': ({'vgpu/a.c': ''}, 'the name is taken by preload/a.c'),
    'a long file': ({'ptx/long.c': '\n' * 1001}, '1001 lines'),
    'a path of one machine': ({'docs/x.md': 'see /wor' + 'k/main\n'}, 'path of one machine'),
    'a registry': ({'ptx/r.mk': 'URL = https://pyp' + 'i.org/simple\n'}, 'registry host'),
    'an event twice': ({'trace/events.def': 'EVENT(A, a, OP, "x")\nEVENT(A, b, OP, "y")\n'}, 'event A exists twice'),
    'a field without words': ({'trace/events.def': 'EVENT(A, a, OP, "x")\nFIELD(A, u64, f, "")\n'}, 'A f has no description'),
    'an unknown variable': ({'include/acct/env.def': 'ENV(ACCT_A, int, "1", "a")\n', 'trace/e.c': 'x = geten' 'v("ACCT_B");\n'}, 'ACCT_B is read'),
}


@pytest.mark.parametrize('name', BREACHES)
def test_arrows_finds(name, tmp_path):
    files, expected = BREACHES[name]
    plant(tmp_path, CLEAN)
    assert arrows(tmp_path).stdout == 'arrows: all rules hold\n'
    plant(tmp_path, files)
    r = arrows(tmp_path)
    assert r.returncode == 1 and expected in r.stdout, r.stdout


# ---- scripts/deps ------------------------------------------------------------------------------------------------------
def test_deps_writes_what_is_there(tmp_path):
    r = deps('--output', tmp_path / 'deps.mk', env=toolkit())
    assert r.returncode == 0, r.stderr
    v = variables(tmp_path / 'deps.mk')
    for path in (v['CUDA_INC'] + '/cublas_v2.h', v['CUDA_LIB'] + '/libcudart.so.13', v['NVCC'], v['PYTHON'], v['OPENBLAS_INC'] + '/cblas.h',
                 v['OPENBLAS_LIB'] + '/libopenblas.so'):
        assert os.path.exists(path), path
    assert run(v['PYTHON'], '-c', 'import pytest, numpy').returncode == 0
    assert deps('--check', env=toolkit()).returncode == 0


def test_deps_names_the_command(tmp_path):
    r = deps('--output', tmp_path / 'deps.mk', env={'CC': 'no-such-gcc', 'DEPS_NO_INSTALL': '1'})
    assert r.returncode == 1 and not (tmp_path / 'deps.mk').exists()
    assert re.fullmatch(r'deps: missing packages; type:  (sudo apt-get update && )?sudo apt-get install -y gcc .*\n', r.stderr), r.stderr
    r = deps('--check', env={'CC': 'no-such-gcc'})
    assert r.returncode == 1 and re.search(r'C compiler +missing +gcc', r.stdout)


def test_deps_unknown_option():
    r = deps('--frobnicate')
    assert r.returncode == 2 and r.stderr.count('\n') == 1 and '--frobnicate' in r.stderr


def test_deps_unusable_cuda_home(tmp_path):
    plant(tmp_path, {'include/cuda_runtime_api.h': '#define CUDART_VERSION  12040\n'})
    r = deps('--output', tmp_path / 'deps.mk', env={'CUDA_HOME': str(tmp_path), 'PIP_NO_INDEX': '1', 'PIP_FIND_LINKS': ''})
    assert f'CUDA_HOME={tmp_path} is not usable (version 12, 13 is needed)' in r.stderr


def wheel(folder, name, version, files):
    """A wheel as small as pip accepts."""
    tag, info = name.replace('-', '_'), f'{name.replace("-", "_")}-{version}.dist-info'
    with zipfile.ZipFile(folder / f'{tag}-{version}-py3-none-any.whl', 'w') as z:
        for path, text in files.items():
            entry = zipfile.ZipInfo('nvidia/cu13/' + path)
            entry.external_attr = (0o100755 if path.startswith("bin/") else 0o100644) << 16
            z.writestr(entry, text)
        z.writestr(info + '/METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n')
        z.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        z.writestr(info + '/RECORD', '')


@pytest.mark.parametrize('complete', [True, False])
def test_deps_unpacks_wheels(tmp_path, complete):
    """With wheels laid out as the vendor's are, but small: where no toolkit is, they become one, or the script says why not."""
    shop = tmp_path / 'wheels'
    shop.mkdir()
    for name, version, files in [
            ('nvidia-cuda-runtime', '13.0.1', {'include/cuda_runtime_api.h': '#define CUDART_VERSION  13000\n', 'lib/libcudart.so.13': ''}),
            ('nvidia-cuda-nvcc', '13.0.1', {'bin/nvcc': '#!/bin/sh\n'}), ('nvidia-cuda-crt', '13.0.1', {'include/crt/host_defines.h': ''}),
            ('nvidia-nvvm', '13.0.1', {'nvvm/bin/cicc': ''}), ('nvidia-cuda-cccl', '13.0.1', {'include/nv/target': ''}),
            ('nvidia-cuda-cupti', '13.0.1', {'lib/libcupti.so.13': '', 'include/cupti.h': ''}),
            ('nvidia-cuda-profiler-api', '13.0.1', {'include/cuda_profiler_api.h': ''}),
            ('nvidia-cublas', '13.1.0', {'include/cublas_v2.h': '', 'include/cublasLt.h': '', 'lib/libcublas.so.13': '',
                                         **({'lib/libcublasLt.so.13': ''} if complete else {})})]:
        wheel(shop, name, version, files)
    out = tmp_path / 'b' / 'deps.mk'
    env = {'DEPS_NO_SYSTEM_CUDA': '1', 'PIP_NO_INDEX': '1', 'PIP_FIND_LINKS': str(shop)}
    r = deps('--output', out, env=env)
    if not complete:
        assert r.returncode == 1 and 'incomplete: no libcudart.so.13 with libcublas.so.13 and libcublasLt.so.13' in r.stderr and not out.exists()
        return
    assert r.returncode == 0, r.stderr
    v = variables(out)
    assert v['CUDA_HOME'] == str(tmp_path / 'b/cuda') and os.access(v['NVCC'], os.X_OK)
    assert os.path.exists(v['CUDA_LIB'] + '/libcudart.so') and os.path.exists(v['CUDA_HOME'] + '/lib64/libcublas.so.13')
    shutil.rmtree(shop)
    assert deps('--output', out, env=env).returncode == 0, 'a second run takes what is unpacked'


# ---- Makefile ----------------------------------------------------------------------------------------------------------
def test_make_is_incremental():
    assert make('-q', f'BUILD={BUILD}', 'all', 'test-programs').returncode == 0, make('-n', f'BUILD={BUILD}', 'all', 'test-programs').stdout


def test_help_names_targets():
    r = make('help')
    targets = re.findall(r'^make (\w+)', r.stdout, re.M)
    assert {'demo', 'check', 'bench', 'install', 'clean'} <= set(targets)
    for t in targets:
        assert make('-n', f'BUILD={BUILD}', t).returncode == 0, t


@pytest.fixture(scope='module')
def clang_build(tmp_path_factory):
    """Everything, by the other compiler, in a folder of its own, while the first build stays as it is."""
    folder = tmp_path_factory.mktemp('clang')
    r = make(f'BUILD={folder}', 'CC=clang', 'OPT=-O0', 'all', 'test-programs', env=toolkit()) # its warnings need no optimizer
    assert r.returncode == 0, r.stderr[-3000:]
    return folder


def test_clang_builds_everything(clang_build):
    built = [f for f in os.listdir(BUILD) if os.path.isfile(os.path.join(BUILD, f)) and not f.endswith(('.mk', '.log'))]
    assert {'acct', 'acct-collect', 'libacct.so', 'train'} <= set(built)
    for f in built:
        assert (clang_build / f).exists(), f
    assert b'clang version' in run('readelf', '-p', '.comment', clang_build / 'acct').stdout.encode()
    test_make_is_incremental()


def test_other_flags_rebuild(clang_build):
    same = make('-n', f'BUILD={clang_build}', 'CC=clang', 'OPT=-O0', 'all')
    other = make('-n', f'BUILD={clang_build}', 'CC=clang', 'OPT=-O1 -g', f'{clang_build}/acct')
    assert ' -c ' not in same.stdout and re.search(r'clang .* -O1 -g .* -c ', other.stdout)


def test_install(tmp_path):
    prefix = tmp_path / 'usr'
    r = make(f'BUILD={BUILD}', f'PREFIX={prefix}', 'install')
    assert r.returncode == 0 and 'ldconfig' in r.stdout, r.stderr
    for f in ('bin/acct', 'bin/acct-collect', 'bin/acct-bench', 'lib/libacct.so', 'lib/acct/vgpu/libcudart.so.13', 'lib/acct/vgpu/libcublas.so.13',
              'lib/acct/vgpu/libcublasLt.so.13', 'lib/acct/vgpu/libnccl.so.2', 'include/acct/vgpu.h', 'share/doc/acct/example.profile', 'share/doc/acct/README.md', 'share/doc/acct/FORMAT.md', 'share/man/man1/acct.1', 'share/man/man7/libacct.7'):
        assert (prefix / f).exists(), f
    for header in (prefix / 'include/acct').glob('*.h'): # each stands by itself
        r = run('cc', '-std=c11', '-D_GNU_SOURCE', f'-I{prefix}/include', f'-I{variables(os.path.join(BUILD, "deps.mk"))["CUDA_INC"]}', '-fsyntax-only', '-x', 'c', header)
        assert (r.returncode, r.stderr) == (0, ''), header
    # What is installed is complete: it traces without the build folder's help.
    train = shutil.copy(os.path.join(BUILD, 'train'), tmp_path)
    r = run(prefix / 'bin/acct', 'run', '--vgpu', '-o', 'a.db', '--', train, '--steps', '3', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    env = {'LD_PRELOAD': 'libacct.so', 'ACCT_OUTPUT': 'b.db', 'LD_LIBRARY_PATH': f'{prefix}/lib:{prefix}/lib/acct/vgpu'}
    assert run(train, '--steps', '3', cwd=tmp_path, env=env).returncode == 0
    end = time.time() + 60 # the library does not wait for the analysis
    while os.path.exists(tmp_path / 'b.db-wal') and time.time() < end:
        time.sleep(0.05)
    for db in ('a.db', 'b.db'):
        r = run(prefix / 'bin/acct', 'query', '--format', 'csv', db, 'select count(*) from step where complete', cwd=tmp_path)
        assert r.stdout.split()[-1] == '3', r.stdout + r.stderr
    assert make(f'BUILD={BUILD}', f'PREFIX={prefix}', 'uninstall').returncode == 0
    assert [f for _, _, files in os.walk(prefix) for f in files] == []


def test_install_destdir(tmp_path):
    r = make(f'BUILD={BUILD}', f'DESTDIR={tmp_path}', 'PREFIX=/opt/acct', 'install')
    assert r.returncode == 0 and (tmp_path / 'opt/acct/bin/acct').exists() and 'ldconfig' not in r.stdout, r.stderr


@pytest.mark.parametrize('target,trace,parameters', [('demo', 'demo.db', 834304), ('demo-linear', 'linear.db', 393216)])
def test_demo(target, trace, parameters):
    r = make(f'BUILD={BUILD}', target)
    assert r.returncode == 0, r.stderr
    assert 'step' in r.stdout and 'MFU' in r.stdout
    assert re.search(rf'^  param +[\d.]+ MiB \({4 * parameters}\) ', r.stdout, re.M), r.stdout
    assert os.path.getsize(os.path.join(BUILD, 'demo', trace)) > 0
    if target == 'demo': # what the README shows of it, but for times
        exact = r'^(gpt: .*|fp32 .*, seed \d+|  \w[\w, ]*? +[\d.]+ (?:KiB|MiB|GFLOP) \(\d+\))'
        shown = re.findall(exact, re.search(r'^What `make demo` prints.*?```\n(.*?)```', README, re.M | re.S)[1], re.M)
        assert len(shown) > 11 and set(shown) - set(re.findall(exact, r.stdout, re.M)) == set()


# ---- runners -----------------------------------------------------------------------------------------------------------
def test_closing_line(tmp_path):
    (tmp_path / 'test_three.py').write_text('import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip("here")\n')
    r = run(sys.executable, os.path.join(TOP, 'tests/run'), tmp_path)
    assert r.returncode == 1 and r.stdout.splitlines()[-1] == '1 passed, 1 failed, 1 skipped'
    (tmp_path / 'test_three.py').write_text('def test_a(): pass\n')
    r = run(sys.executable, os.path.join(TOP, 'tests/run'), tmp_path)
    assert r.returncode == 0 and r.stdout.splitlines()[-1] == '1 passed, 0 failed, 0 skipped'
    (tmp_path / 'test_three.py').write_text('def test_a(: pass\n')
    assert run(sys.executable, os.path.join(TOP, 'tests/run'), tmp_path).returncode == 1


def test_unit_tests_are_run():
    """Each case of each C program is a case of pytest."""
    folder = os.path.join(TOP, 'tests/unit')
    written = {(f, name) for f in os.listdir(folder) if f.endswith('.c')
               for name in re.findall(r'cmocka_unit_test\((\w+)\)', open(os.path.join(folder, f)).read())}
    r = run(sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--rootdir', TOP, '--collect-only', folder)
    collected = set(re.findall(r'(test_\w+\.c)::(\w+)', r.stdout))
    assert written and written <= collected, written - collected


def test_bench_runner(tmp_path):
    def program(name, text):
        p = tmp_path / name
        p.write_text('#!/bin/sh\n' + text)
        p.chmod(0o755)
        return p
    good = program('good', 'echo "10 ns"; echo "ratio 0.5 (goal below 0.7)"\n')
    absent = program('absent', 'echo "no LTTng here"; exit 77\n')
    bad = program('bad', 'exit 3\n')
    runner = os.path.join(TOP, 'bench/run')
    r = run(runner, good, absent)
    assert r.returncode == 0 and r.stdout.splitlines()[-2:] == ['good: ratio 0.5 (goal below 0.7)', 'bench: 1 could not run here, see above']
    r = run(runner, bad, good)
    assert r.returncode == 1 and '1 failed' in r.stderr
    assert run(runner).returncode == 2


# ---- README ------------------------------------------------------------------------------------------------------------
README = open(os.path.join(TOP, 'README.md')).read()


def commands():
    """Lines of the README's sh blocks, comments and prompts off."""
    for block in re.findall(r'```sh\n(.*?)```', README, re.S):
        for line in block.splitlines():
            line = re.sub(r'\s+#.*', '', line).strip()
            if line:
                yield line


def test_readme_commands_exist():
    subcommands = run(os.path.join(BUILD, 'acct'), 'help').stdout
    seen = set()
    for line in commands():
        words = [w for w in line.split() if not re.match(r'\w+=', w)]
        if words[0] == 'make':
            goals = [w for w in words[1:] if not w.startswith('-')] or ['all']
            assert make('-n', f'BUILD={BUILD}', *goals).returncode == 0, line
        elif os.path.basename(words[0]) == 'acct':
            assert re.search(rf'^\s*(acct )?{words[1]}\b', subcommands, re.M), line
        seen.add(os.path.basename(words[0]))
    assert {'make', 'acct', 'sqlite3'} <= seen


def test_readme_plans_run():
    plans = [shlex.split(line)[1:] for line in commands() if line.startswith('acct plan') and not line.endswith('.db')]
    assert len(plans) >= 9
    for words in plans:
        r = run(os.path.join(BUILD, 'acct'), *words)
        assert r.returncode == 0 and r.stdout.count('Result') + r.stdout.count('Ridge points') + r.stdout.count('What becomes of') == 1, words


def test_readme_sql_runs():
    """The README's queries, on the demo's trace."""
    queries = [m for line in commands() if line.startswith('sqlite3') for m in re.findall(r'"(.*)"', line)]
    assert queries
    if not os.path.exists(os.path.join(BUILD, 'demo/demo.db')):
        test_demo('demo', 'demo.db', 834304)
    for q in queries:
        r = run(os.path.join(BUILD, 'acct'), 'query', os.path.join(BUILD, 'demo/demo.db'), q)
        assert r.returncode == 0 and r.stdout.strip(), r.stderr


def test_readme_views_run(tmp_path):
    """Each command of the README that shows run.db, on the demo's trace; what it prints has figures."""
    if not os.path.exists(os.path.join(BUILD, 'demo/demo.db')):
        test_demo('demo', 'demo.db', 834304)
    shutil.copy(os.path.join(BUILD, 'demo/demo.db'), tmp_path / 'run.db')
    lines = [line for line in commands() if line.startswith('acct ') and line.endswith(' run.db') and not line.startswith('acct run') and '.profile' not in line]
    assert {line.split()[1] for line in lines} >= {'report', 'steps', 'memory', 'peak', 'leaks', 'flops', 'ops', 'kernels'}
    for line in lines:
        r = run(os.path.join(BUILD, 'acct'), *line.split()[1:], cwd=tmp_path)
        assert r.returncode == 0 and r.stderr == '' and len(r.stdout.splitlines()) > 5, (line, r)


def test_readme_plans_and_measures(tmp_path):
    """The commands of "The napkin and the ruler" in their order, on the demo's trace and the virtual GPU, for a shorter time than there."""
    if not os.path.exists(os.path.join(BUILD, 'demo/demo.db')):
        test_demo('demo', 'demo.db', 834304)
    shutil.copy(os.path.join(BUILD, 'demo/demo.db'), tmp_path / 'run.db')
    os.symlink(os.path.join(BUILD, 'train'), tmp_path / 'train')
    section = re.search(r'^## The napkin and the ruler\n(.*?)^## ', README, re.M | re.S)[1]
    lines = [line.split('  #')[0].strip() for block in re.findall(r'```sh\n(.*?)```', section, re.S) for line in block.splitlines()]
    assert len(lines) >= 11 and {'train', 'memory', 'fit', 'flops', 'view', 'dtype', 'roofline', 'compare'} == {line.split()[2] for line in lines if ' plan ' in line}
    for line in lines:
        r = run('bash', '-c', line.replace('bench --seconds 20', 'bench --vgpu --seconds 3'), cwd=tmp_path, env={'PATH': BUILD + ':' + os.environ['PATH']})
        assert r.returncode == 0 and len(r.stdout.splitlines()) > 5, (line, r)
    assert (tmp_path / 'mine.profile').read_text()


def test_readme_paths_exist():
    linked = re.findall(r'\]\(([\w./]+)\)', README) + re.findall(r'^\| `([\w/]+)/`', README, re.M)
    assert len(linked) > 10
    for path in linked:
        assert os.path.exists(os.path.join(TOP, path)), path


# ---- documents ---------------------------------------------------------------------------------------------------------
def test_glossary_has_the_words_of_the_tables():
    """Every class, phase, grade and kind of memory that a trace can show is explained."""
    schema = open(os.path.join(TOP, 'trace/schema.sql')).read()
    events = open(os.path.join(TOP, 'trace/events.def')).read()
    words = set(re.search(r'class TEXT NOT NULL, +-- (.*)', schema)[1].split())
    words |= set(re.search(r'name TEXT NOT NULL, +-- (.*)', schema)[1].split())
    words |= set(re.search(r'grade TEXT(?: NOT NULL)?, +-- (.*)', schema)[1].split())
    words |= set(re.findall(r'^ENUM\((?:memory|clock), \w+, \d+, "(\w+)"\)', events, re.M))
    assert {'param', 'recompute', 'bound', 'pinned', 'host'} <= words
    glossary = open(os.path.join(TOP, 'docs/GLOSSARY.md')).read()
    assert {w for w in words if not re.search(rf'\b{w}\b', glossary)} == set()


def test_documents_link_to_files_that_exist():
    for folder, name in [('.', 'README.md')] + [('docs', f) for f in os.listdir(os.path.join(TOP, 'docs')) if f.endswith('.md')]:
        for link in re.findall(r'\]\(([\w./]+)\)', open(os.path.join(TOP, folder, name)).read()):
            assert os.path.exists(os.path.join(TOP, folder, link)), f'{folder}/{name}: {link}'
