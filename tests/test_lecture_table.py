"""`make lecture` (tests/lecture_run.py): the plan's bytes, the program's own and acct's are the same, the activations' difference to the
formula is explained by terms that sum to it. A few of its runs; and a difference is seen."""
import copy
import pytest
import lecture_run
from lecture_run import check, explain, grid, name_of, some, three

RUNS = some(list(grid()), 12)


@pytest.fixture(scope='module')
def results():
    return lecture_run.run_all(RUNS)


def test_the_grid_has_every_choice():
    runs = list(grid())
    assert len(runs) == 6 * 5 * 2 * 2 + 2 * 2 * 2 * 5 + 3 * 6 * 4 + 3 * (5 + 4) == len({name_of(c) for c in runs})
    assert {c['model'] for c in RUNS} == {'gpt', 'linear'} and {c['dtype'] for c in RUNS} == set(lecture_run.DTYPES) and {c['recompute'] for c in RUNS} == {'none', 'full'}
    assert all({c[k] for c in some(runs, 40)} == {c[k] for c in runs} for k in ('model', 'tied', 'recompute', 'optimizer', 'dtype', 'alloc')) # what CI runs
    assert len({name_of(c) for c in some(runs, len(runs))}) == len(runs) # no run is left out of the whole


@pytest.mark.parametrize('i', range(len(RUNS)), ids=[name_of(c).replace(' ', '-') for c in RUNS])
def test_plan_program_and_measurement_agree(results, i):
    assert check(results[i]) == []
    assert not lecture_run.is_explained(RUNS[i]) or explain(results[i])[3] == []


def test_a_difference_is_seen(results):
    gpt = next(r for r in results if lecture_run.is_explained(r['choice']))
    for what in ('plan', 'truth', 'measured'):
        for k in lecture_run.CLASSES:
            wrong = copy.deepcopy(gpt)
            wrong[what][k] += 4
            assert [f.split(':')[0] for f in check(wrong)] == [k]
    assert check({**gpt, 'parameters': (1, 2)}) == ['parameters: plan 1, program 2']
    for b in (b for b in gpt['buffers'] if b['class'] == 'activation'):
        wrong = copy.deepcopy(gpt)
        next(x for x in wrong['buffers'] if x['name'] == b['name'])['bytes'] += 4
        wrong['truth']['activation'] += 4
        assert len(explain(wrong)[3]) == 3, b['name'] # the term or the formula's own, the sum, the measurement


def test_the_short_form_ends_well(capsys, monkeypatch):
    monkeypatch.setattr('sys.argv', ['lecture_run.py', '--runs', '2'])
    with pytest.raises(SystemExit) as end:
        lecture_run.main()
    out = capsys.readouterr().out
    assert end.value.code == 0 and '2 runs: bytes agree in 2, activations are explained in all but 0' in out
