"""Kinds of programs that the oracle does not draw (sim_kinds: what is expected stands there): products by the program's own kernels,
sharded optimizers, experts, offloaded state, models one after another; and lists of tensors in a hidden pool."""
import os
import pytest
import oracle_adapter
if not os.path.isdir(oracle_adapter.ORACLE):
    pytest.skip(f'no oracle at {oracle_adapter.ORACLE}: its simulator lies beside the repository', allow_module_level=True)
import matrix, sim_kinds

PROGRAMS = sim_kinds.programs()
# One function for forward and backward, in a model that learns nothing of its own weights then: nothing tells the two apart. Cut off
# right after the loss. The head's GEMM recomputed first.
NOT_TOLD = {f'one/gan-{st}' for st in ('class', 'tensor', 'giant', 'dyn')} | {f'one/linear-cut-{st}' for st in ('tensor', 'giant', 'dyn')} | {
    'by-kind/linear-cut-dyn', 'mixed/linear-cut-dyn', 'by-kind/gpt-rc-dyn', 'one/gpt-rc-dyn'} | {
    f'by-kind/gpt-sgd-eval-{st}' for st in ('class', 'tensor', 'giant')}


def check(names):
    res = sim_kinds.run_all({k: PROGRAMS[k] for k in names})
    errors = [v['error'] for v in res.values() if 'error' in v]
    assert not errors, errors[0]
    failed = {k: v['bad'].most_common(3) for k, v in res.items() if not v['pass'] and k not in NOT_TOLD}
    assert not failed, failed
    return res


@pytest.mark.parametrize('group', ['shard', 'moe', 'offload', 'sequence'])
def test_kinds(group):
    res = check([k for k in PROGRAMS if k.startswith(group + '/')])
    assert len(res) >= 4
    for v in res.values():
        assert v['steps'] == v['steps_true'] and v['phase_flops'] > 0.9999


@pytest.mark.parametrize('own', ['by-kind', 'one', 'mixed'])
def test_own_products(own):
    """No library call at all, or one for the last layer alone: every fourth program here, all of them in oracle_full."""
    names = sorted(k for k in PROGRAMS if k.startswith(own + '/') and k not in NOT_TOLD)
    check(names[::4])


FOREACH = ['torch/gpt-pool-foreach-momentum', 'torch/gpt-pool-foreach-adam', 'torch/gpt-pool-foreach-K3', 'torch/gpt-pool-foreach-clip']


@pytest.mark.parametrize('name', FOREACH)
def test_lists_of_tensors_in_a_hidden_pool(name, tmp_path):
    """Launches over lists, of which pointers alone are known: how far each reaches follows from its partners in the other lists."""
    got = oracle_adapter.run_program(matrix.programs()[name], str(tmp_path / 't.db'))
    assert got['pass'], got['bad'].most_common(4)


def test_models_one_after_another_in_a_hidden_pool(tmp_path):
    """The second lies where the first did. (The truth goes on counting what was released: 1.9 % of the bytes.)"""
    got = oracle_adapter.run_program(matrix.programs()['adv2/sequence-pool'], str(tmp_path / 't.db'))
    assert got['steps'] == got['steps_true'] == 10 and got['step_flops'] == got['phase_flops'] == 1 and got['mb_flops'] == 1
    assert got['bytes'] > 0.98
