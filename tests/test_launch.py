"""Kernels on the virtual GPU as a program sees them: how they are launched, what they are given, how they fail.

Values are checked by the programs themselves against formulas; here are exit codes, what is printed, and what is said."""
import os, re
import pytest
from conftest import BUILD, run

WAYS = {'jit': {}, 'interpret': {'ACCT_VGPU_EXECUTE': 'interpret'}, 'check': {'ACCT_VGPU_CHECK': '1'}}


def program(name, *args, env=None, **kw):
    return run(os.path.join(BUILD, 'tests', name), *args, env={'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu'), **(env or {})}, timeout=60, **kw)


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    return {**WAYS[request.param], 'ACCT_CACHE': str(tmp_path)}


@pytest.mark.parametrize('case', ['routes', 'features', 'geometry', 'shared', 'limits', 'symbols', 'attributes', 'occupancy', 'streams', 'threads', 'host-unused', 'waiting', 'order'])
def test_case(case, way):
    r = program('launch_cases', case, env=way)
    assert (r.returncode, r.stderr) == (7, '')


@pytest.mark.parametrize('case', ['routes', 'shared', 'symbols'])
@pytest.mark.parametrize('name', ['launch_legacy', 'launch_per_thread'])
def test_other_ways_to_compile_a_program(name, case, tmp_path):
    r = program(name, case, env={'ACCT_CACHE': str(tmp_path)})
    assert (r.returncode, r.stderr) == (7, '')


def test_translation_units_are_linked(way):
    r = program('launch_units', env=way)
    assert (r.returncode, r.stdout, r.stderr) == (7, 'unit a\nunit b\nunit a\n', '')


def test_results_do_not_depend_on_the_number_of_processors(way):
    for cores in (1, len(os.sched_getaffinity(0))):
        pinned = lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        if way.get('ACCT_VGPU_CHECK'):
            continue  # minutes
        r = program('launch_cases', 'spread', env=way, preexec_fn=pinned)
        assert (r.returncode, r.stderr) == (7, '')


def test_machine_code_alone_cannot_run(tmp_path):
    r = program('launch_machine', 'routes', env={'ACCT_CACHE': str(tmp_path)})
    assert r.returncode == 1
    assert 'acct virtual GPU: kernel _Z4fillPiii has machine code only, no PTX for sm_90 or below: it cannot run here' in r.stderr.splitlines()
    assert 'cudaGetLastError() gave 209\n' in r.stderr  # cudaErrorNoKernelImageForDevice


def test_what_is_not_implemented_is_named(way):
    r = program('launch_cases', 'refused', env=way)
    assert r.returncode == 7
    interpreted = 'ACCT_VGPU_EXECUTE' in way or 'ACCT_VGPU_CHECK' in way
    assert r.stderr.splitlines() == [
        'acct virtual GPU: cudaLaunchKernelExC: cudaLaunchAttributeClusterDimension above 1 (4) is not implemented'] + interpreted * [
        'acct virtual GPU: kernel _Z5countPjPf: a cooperative launch whose blocks may wait for each other is not implemented by the interpreter']


def test_printf_comes_at_synchronisation(way):
    r = program('launch_cases', 'print', env=way)
    assert (r.returncode, r.stderr) == (7, '')
    # What C's printf makes of the same arguments.
    assert r.stdout.splitlines() == [
        'host before',
        'values: %d %5.2f %c %x %d %d %e %%' % (-17, 2.5, 'q', 255, -5000000000, 1 << 63, 1.5),
        '[%6d][%-6d][%06.2f][%*d][%.3s][(null)]' % (42, 42, 3.14159, 5, 7, 'abcdef'),
        'host after',
        '1 two']


FAULTS = {  # case → (error, what the line must say)
    'fault-far': ('cudaErrorIllegalAddress', r'kernel _Z5storePix.*0x[0-9a-f]+'),
    'fault-freed': ('cudaErrorIllegalAddress', r'kernel _Z5storePix.*0x[0-9a-f]+'),
    'fault-null': ('cudaErrorIllegalAddress', r'kernel _Z5storePix.*(0x4\b|0x0*4\b)'),
    'fault-host': ('cudaErrorIllegalAddress', r'kernel _Z5storePix, block \[2,0,0\], thread \[5,0,0\].* write of 4 bytes at 0x[0-9a-f]+'),
    'fault-shared': ('cudaErrorIllegalAddress', r'kernel _Z14last_of_sharedPii.*shared memory'),
    'fault-misaligned': ('cudaErrorMisalignedAddress', r'kernel _Z10misalignedPc.*aligned'),
    'trap': ('cudaErrorLaunchFailure', r'kernel _Z5trapsv.*trap'),
    'deadlock': ('cudaErrorLaunchFailure', r'kernel _Z17barrier_in_branchPi.*barrier'),
}


# Compiled code does not look at alignment, and the processor does not mind.
@pytest.mark.parametrize('case,name', [(c, w) for c in FAULTS for w in WAYS if (c, w) != ('fault-misaligned', 'jit')])
def test_fault_is_an_error_with_one_line(case, name, tmp_path):
    """The program sees the error at its next synchronisation, and again and again until the device is reset."""
    way = {**WAYS[name], 'ACCT_CACHE': str(tmp_path)}
    r = program('launch_cases', case, env=way)
    error, text = FAULTS[case]
    assert r.returncode == 7, r.stderr
    assert re.fullmatch(rf'acct virtual GPU: {text}.* \({error}; all further calls fail\)\n', r.stderr)


def test_checking_finds_what_is_past_the_end():
    """A block's last page reaches further than the program asked for; a device does not see that, the checker does."""
    assert program('launch_cases', 'no-fault-past').returncode == 7
    r = program('launch_cases', 'fault-past', env=WAYS['check'])
    assert r.returncode == 7
    assert re.search(r'kernel _Z5storePix, block \[2,0,0\], thread \[5,0,0\], .* write of 4 bytes', r.stderr)


def test_assertion_is_told_as_by_a_device(way):
    r = program('launch_cases', 'assertion', env=way)
    assert r.returncode == 7, r.stderr
    said, error = r.stderr.splitlines()[0], r.stderr.splitlines()[-1]
    assert re.fullmatch(r'tests/programs/launch_cases\.cu:\d+: void asserts\(int\): block: \[0,[01],0\], thread: \[31,0,0\] '
                        r'Assertion `threadIdx\.x \+ n < 40` failed\.', said)
    assert error == 'acct virtual GPU: kernel _Z7assertsi: an assertion failed (cudaErrorAssert; all further calls fail)'


def test_faults_of_the_program_stay_its_own(tmp_path):
    env = {'ACCT_CACHE': str(tmp_path)}
    assert program('launch_cases', 'own-fault', env=env).returncode == 9  # its handler's exit code
    assert program('launch_cases', 'own-fault-chained', env=env).returncode == 9
    assert program('launch_cases', 'own-fault-plain', env=env).returncode == -11


@pytest.mark.parametrize('case', ['exit-amid-kernels', 'exit-amid-endless', 'fork-amid-kernels'])
def test_ends_of_a_program(case, tmp_path):
    r = program('launch_cases', case, env={'ACCT_CACHE': str(tmp_path)})
    assert (r.returncode, r.stderr) == (7, '')


def test_library_that_is_closed_takes_its_kernels_along(tmp_path):
    r = program('launch_cases', 'plugin', env={'ACCT_CACHE': str(tmp_path), 'LAUNCH_PLUGIN': os.path.join(BUILD, 'tests', 'launch_plugin')})
    assert (r.returncode, r.stderr) == (7, '')


@pytest.mark.parametrize('name,text', [('ACCT_VGPU_EXECUTE', 'slowly'), ('ACCT_VGPU_CHECK', 'perhaps')])
def test_wrong_settings_are_told(name, text):
    r = program('launch_cases', 'routes', env={name: text})
    assert r.returncode == 7 and re.match(rf'acct virtual GPU: {name}.*ignored\n', r.stderr)
