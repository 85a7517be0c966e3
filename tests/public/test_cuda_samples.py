"""NVIDIA's CUDA samples, which nobody here wrote, on the virtual GPU: CUDA_SAMPLES names their checkout, of which nothing is kept
here. Each checks its own results; those below are linked to nothing but the runtime and cuBLAS, and end in a minute.

    make public CUDA_SAMPLES=/path/to/cuda-samples"""
import glob, json, os, sqlite3, subprocess
import pytest
from conftest import BUILD, deps, run

SAMPLES = os.environ['CUDA_SAMPLES']
ACCT = os.path.join(BUILD, 'acct')
# name, what a right run says, devices
NAMES = """asyncAPI|PASSED|1
batchCUBLAS|0 error(s)|1
binaryPartitionCG||1
fp16ScalarProduct|PASSED|1
graphMemoryNodes|Cleanup complete|1
inlinePTX|Test Successful|1
jacobiCudaGraphs|PASSED|1
matrixMulCUBLAS|PASS|1
mergeSort||1
newdelete|3/3|1
reduction|Test passed|1
scalarProd|Test passed|1
shfl_scan|expect|1
simpleAtomicIntrinsics|returned OK|1
simpleCUBLAS|test passed|1
simpleCallback|Success|1
simpleCooperativeGroups||1
simpleCudaGraphs|final reduced sum|1
simpleMultiCopy||1
simpleMultiGPU||2
simpleOccupancy||1
simpleP2P|Test passed|2
simpleTemplates|0 Failures|1
simpleVoteIntrinsics||1
simpleZeroCopy||1
streamOrderedAllocation|PASSED|1
streamOrderedAllocationP2P|PASSED|2
systemWideAtomics|returned OK|1
threadFenceReduction||1
vectorAdd|Test PASSED|1
warpAggregatedAtomicsCG|PASSED|1"""


@pytest.mark.parametrize('line', NAMES.split('\n'))
def test_sample(line, tmp_path):
    name, says, devices = line.split('|')
    (folder,) = glob.glob(os.path.join(SAMPLES, 'Samples', '*', name))
    program, db = tmp_path / name, tmp_path / 'a.db'
    sources = sorted(glob.glob(folder + '/*.cu') + glob.glob(folder + '/*.cpp'))
    subprocess.run([deps('NVCC'), '-O1', '-std=c++17', '-w', '-cudart', 'shared', '-gencode', 'arch=compute_90,code=compute_90', '-I' + SAMPLES + '/Common', *sources,
                    '-o', program, '-L' + deps('CUDA_LIB'), '-l:libcublas.so.13', '-Xlinker', '--allow-shlib-undefined'], check=True)
    r = run(ACCT, 'run', '--vgpu=cpu:' + devices, '-o', db, '--', program, cwd=folder, timeout=300, stdin=subprocess.DEVNULL)
    assert r.returncode == 0, (r.stdout + r.stderr)[-2000:]
    assert says in r.stdout
    j = json.loads(run(ACCT, 'report', '--format', 'json', db, timeout=120).stdout)
    launches, priced = sqlite3.connect(db).execute("SELECT count(*), sum(c.flops IS NOT NULL) FROM op o JOIN op_cost c ON c.op = o.id WHERE o.kind = 'launch'").fetchone()
    assert launches == (priced or 0) and j['totals']['dropped'] == 0
