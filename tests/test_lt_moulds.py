"""Programs that train with cuBLASLt, run for real under acct: biases, activation functions and their gradients are in the epilogues
of the products. tests/programs/train_lt.c tells its own account, and the analysis has to find the same without it."""
import os
import pytest
from conftest import BUILD
from test_moulds import check, trace

PROGRAM = os.path.join(BUILD, 'tests', 'train_lt')

MOULDS = """
update=sgd
bgrad=bgrada
update=momentum
accum=3
accum=3 bgrad=bgrada
act=relu
act=relu update=momentum accum=2
order=row
order=row residual=1 layers=4
residual=1 layers=4
alloc=step
alloc=step accum=2 update=momentum
workspace=none
workspace=shared
eval=1
eval=2 alloc=step
format=bf16
format=bf16 update=momentum
format=bf16 accum=2
format=bf16 bgrad=bgrada residual=1 layers=5 update=momentum eval=2
layers=1
steps=1
steps=2
dim=32 batch=32
"""


@pytest.mark.parametrize('options', MOULDS.strip().splitlines())
def test_mould(tmp_path, options):
    check(tmp_path, options, PROGRAM)
