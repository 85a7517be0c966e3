"""The kernel zoo on the virtual GPU: compiled and interpreted, from optimised and from debugging PTX. Each case is compared
with its reference in C by the program itself; here, the two ways of running it with each other."""
import os, re
import pytest
from conftest import BUILD, run

# What an instruction leaves to the device within an error (ex2, lg2, sin, cos, rcp, rsqrt, tanh with .approx): the two
# need not agree bit for bit, only with the reference.
APPROXIMATE = {'softmax', 'softmax_causal', 'layernorm', 'gelu', 'rope', 'cross_entropy', 'fast_math', 'fast_tanh', 'libm_float', 'libm_double'}


@pytest.fixture(scope='module')
def ran(tmp_path_factory):
    """(program, how) → (results by case, process, its cache folder); each is run once."""
    done = {}

    def of(program, how):
        if (program, how) not in done:
            d = tmp_path_factory.mktemp('zoo')
            env = {'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu'), 'ACCT_VGPU_EXECUTE': how, 'ACCT_CACHE': str(d)}
            r = run(os.path.join(BUILD, 'tests', program), env=env, timeout=300)
            done[program, how] = dict(re.findall(r'^(\w+) (?:ok|FAILED) (\w{16})$', r.stdout, re.M)), r, d
        return done[program, how]
    return of


@pytest.mark.parametrize('how', ['interpret', 'jit'])
@pytest.mark.parametrize('program', ['zoo', 'zoo_debug'])
def test_every_kernel_gives_what_its_reference_does(ran, program, how):
    results, r, _ = ran(program, how)
    assert re.findall(r'.*FAILED.*|.* is .* not .*', r.stdout) == []
    assert (r.returncode, r.stderr) == (0, '')  # a kernel that the compiler refuses would be named there
    assert len(results) >= 80
    assert 'thread 3 has ' in r.stdout  # a kernel's printf


@pytest.mark.parametrize('program', ['zoo', 'zoo_debug'])
def test_compiled_and_interpreted_agree_bit_for_bit(ran, program):
    (a, _, _), (b, _, _) = ran(program, 'interpret'), ran(program, 'jit')
    assert a.keys() == b.keys() and len(a) >= 80
    assert {k for k in a if a[k] != b[k]} <= APPROXIMATE


@pytest.mark.parametrize('how', ['interpret', 'jit'])
def test_a_second_run_gives_the_same(ran, how):
    """Compiled code comes from the disk cache now; blocks run on several processors, in no order to rely on."""
    results, _, cache = ran('zoo', how)
    r = run(os.path.join(BUILD, 'tests', 'zoo'), env={'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu'), 'ACCT_VGPU_EXECUTE': how,
                                                      'ACCT_CACHE': str(cache)}, timeout=300)
    assert r.returncode == 0
    assert dict(re.findall(r'^(\w+) ok (\w{16})$', r.stdout, re.M)) == results
