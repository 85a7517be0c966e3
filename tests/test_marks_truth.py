"""Simulated programs of the oracle, with ranges where their truth has steps and phases: what the rules cannot see (a hidden pool, kernels of
which nothing is known) the markers tell, and where the rules are right markers that agree change nothing."""
import os, sqlite3
import pytest
import oracle_adapter

pytestmark = pytest.mark.skipif(not os.path.isdir(oracle_adapter.ORACLE), reason='the oracle lies beside the repository')
PHASES = ('forward', 'backward', 'optimizer', 'recompute', 'eval')


def runs(s, key):
    """(key, first event, last event) of the stretches of events with one key; None: not marked."""
    out = []
    for i, x in enumerate(s.truth):
        k = key(x)
        if out and out[-1][0] == k:
            out[-1][2] = i
        else:
            out.append([k, i, i])
    return [r for r in out if r[0] is not None]


def mark(path, s, ids):
    """As a program would: step N; forward, backward, optimizer, eval; the forward of a recomputation within backward."""
    def phase(x):
        if x[1] not in PHASES or (x[0] is None and x[1] != 'eval'):
            return None
        return {'recompute': 'backward'}.get(x[1], x[1]), x[0], x[2]
    found = [(f'step {k}', a, z) for k, a, z in runs(s, lambda x: x[0])]
    found += [(k[0], a, z) for k, a, z in runs(s, phase)]
    found += [(k, a, z) for k, a, z in runs(s, lambda x: 'forward' if x[1] == 'recompute' else None)]
    db = sqlite3.connect(path)
    time = {i: (a, z) for i, a, z in db.execute('SELECT id, start_ns, end_ns FROM op')}
    db.executemany("INSERT INTO range(process, thread, source, kind, name, start_ns, end_ns) VALUES(1, 1, 'nvtx', 'push', ?, ?, ?)",
                   [(n, time[ids[a]][0] - 1, time[ids[z]][1] + 1) for n, a, z in found])
    db.commit()
    db.close()


def scores(name, path, marked):
    import matrix, score, sim
    s = sim.build(**matrix.programs()[name])
    ids = oracle_adapter.write_trace(s.ev, path)
    if marked:
        mark(path, s, ids)
    oracle_adapter.analyze(path)
    return score.score(s, oracle_adapter.read_result(s.ev, ids, path))


@pytest.mark.parametrize('name', ['half/adv-eval-sgd-pool', 'none/adv-ckpt-pool', 'none/adv-main-grad-pool', 'none/gpt-pool-zero_start-K2-rc_full',
                                  'torch/gpt-step-foreach-rc', 'adv/gan-class', 'adv/everything-class', 'core/gpt-class-adam'])
def test_markers_of_the_truth(tmp_path, name):
    x = scores(name, str(tmp_path / 't.db'), True)
    assert x['steps'] == x['steps_true']
    assert x['step_flops'] == x['phase_flops'] == x['mb_flops'] == 1
    # a few kernels of which nothing is known stay recomputation by the rules: no range tells it
    assert x['phase_ops'] > 0.98 and x['recompute'] == x['recompute_true']
    rules = scores(name, str(tmp_path / 'u.db'), False)
    assert x['bytes'] >= rules['bytes'] - 1e-9 and x['pass'] >= rules['pass']
