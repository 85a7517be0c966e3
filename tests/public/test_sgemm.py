"""siboehm/SGEMM_CUDA, which nobody here wrote: twelve products C = alpha·A·B + beta·C by hand, from the naive one to tiles of warps,
all counted from their PTX. Dry, on a device that nobody here has: the program multiplies matrices of up to 4096, 50 times over.
SGEMM names its checkout, of which nothing is kept here.

    make public SGEMM=/path/to/SGEMM_CUDA"""
import os, sqlite3, subprocess
import pytest
from conftest import BUILD, deps, run

SGEMM = os.environ['SGEMM']
ACCT = os.path.join(BUILD, 'acct')
SIZES = (128, 256, 512, 1024, 2048, 4096)


@pytest.fixture(scope='session')
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp('sgemm') / 'sgemm'
    subprocess.run([deps('NVCC'), '-O2', '-std=c++17', '-w', '-cudart', 'shared', '-gencode', 'arch=compute_80,code=compute_80', '-I' + SGEMM + '/src',
                    SGEMM + '/sgemm.cu', SGEMM + '/src/runner.cu', '-o', out, '-L' + deps('CUDA_LIB'), '-l:libcublas.so.13', '-Xlinker', '--allow-shlib-undefined'], check=True)
    return out


@pytest.mark.parametrize('kernel', range(1, 13))
def test_flops_of_a_product_by_hand(program, kernel, tmp_path):
    db = tmp_path / 'a.db'
    r = run(ACCT, 'run', '--vgpu=h100-sxm', '--dry', '-o', db, '--', program, kernel, cwd=tmp_path, timeout=300)
    assert r.returncode == 0, (r.stdout + r.stderr)[-2000:]
    found = dict(sqlite3.connect(db).execute("SELECT c.flops, min(c.grade) FROM op o JOIN op_cost c ON c.op = o.id WHERE o.kind = 'launch' GROUP BY c.flops"))
    # 2·n³ of the product; alpha times the sum, beta times C, and their sum: 3·n². Tiles of the eleventh are 256 wide: of a matrix of
    # 128 it multiplies twice as much.
    assert found == {(2 * n**3 + 3 * n**2) * (2 if kernel == 11 and n == 128 else 1): 'exact' for n in SIZES}
