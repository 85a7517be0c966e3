"""CUDA graphs on the virtual GPU. The program checks values against formulas and double precision, and errors against the vendor's
documentation; here it is run in every way in which kernels can be executed, on a modelled device, and under acct."""
import os
import pytest
from conftest import BUILD, run

CASES = ['training', 'update', 'built', 'copies', 'order', 'told', 'refused', 'threads', 'memory', 'objects']
WAYS = {'jit': {}, 'interpret': {'ACCT_VGPU_EXECUTE': 'interpret'}, 'check': {'ACCT_VGPU_CHECK': '1'}, 'model': {'ACCT_VGPU': 'h100-sxm'}}
ENV = {'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu')}
PROGRAM = os.path.join(BUILD, 'tests', 'graph_cases')


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('case', CASES)
def test_case(case, way, tmp_path):
    r = run(PROGRAM, case, env={**ENV, **WAYS[way], 'ACCT_CACHE': str(tmp_path), 'GRAPH_FOLDER': str(tmp_path)}, timeout=60)
    assert (r.returncode, r.stdout, r.stderr) == (0, f'{case}: ok\n', '')


@pytest.mark.parametrize('case', CASES)
def test_case_under_acct(case, tmp_path):
    r = run(os.path.join(BUILD, 'acct'), 'run', '-o', str(tmp_path / 't.db'), '--vgpu', '--', PROGRAM, case,
            env={'ACCT_CACHE': str(tmp_path), 'GRAPH_FOLDER': str(tmp_path)}, timeout=60)
    assert r.returncode == 0 and f'{case}: ok\n' in r.stdout, r.stderr
