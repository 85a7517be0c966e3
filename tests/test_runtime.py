"""Less common parts of the runtime on the virtual GPU: device code loaded at run time, attributes, batches, cooperative launches.
Values are checked by the program against formulas."""
import os, subprocess
import pytest
from conftest import BUILD, run

ENV = {'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu')}
PROGRAM = os.path.join(BUILD, 'tests', 'runtime_cases')
SCALE = 'extern "C" __global__ void scale(unsigned *out, unsigned factor) { out[threadIdx.x] = threadIdx.x * factor; }'


def program(tmp_path, *args, **env):
    return run(PROGRAM, *args, env={**ENV, 'ACCT_CACHE': str(tmp_path), **env}, timeout=60)


@pytest.fixture(params=['ptx', 'fatbin'])
def code(request, tmp_path):
    nvcc = [line.split(':=')[1].strip() for line in open(os.path.join(BUILD, 'deps.mk')) if line.startswith('NVCC')][0]
    (tmp_path / 'k.cu').write_text(SCALE)
    subprocess.run([nvcc, '-' + request.param, '-arch=compute_80', '-o', tmp_path / 'k', tmp_path / 'k.cu'], check=True)
    return str(tmp_path / 'k')


@pytest.mark.parametrize('way', [{}, {'ACCT_VGPU_EXECUTE': 'interpret'}])
def test_a_library_of_kernels(code, way, tmp_path):
    r = program(tmp_path, 'library', code, **way)
    assert (r.returncode, r.stdout, r.stderr) == (0, 'library: ok\n', '')


def test_code_that_cannot_be_loaded_is_said(tmp_path):
    r = program(tmp_path, 'bad-code')
    assert r.returncode == 0, r.stderr
    said = r.stderr.splitlines()
    assert len(said) == 2 and 'PTX of the program, line 4' in said[0]
    assert said[1] == 'acct virtual GPU: cudaLibraryLoadData: machine code cannot be loaded here'


@pytest.mark.parametrize('case', ['attributes', 'batch', 'cooperative'])
@pytest.mark.parametrize('way', [{}, {'ACCT_VGPU': 'h100-sxm'}])
def test_case(case, way, tmp_path):
    r = program(tmp_path, case, **way)
    assert (r.returncode, r.stdout, r.stderr) == (0, f'{case}: ok\n', '')
