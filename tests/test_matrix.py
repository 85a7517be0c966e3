"""Some runs of the matrix (make matrix): `train` under acct over its choices, the books against its own account. What each run
must hold is in matrix_run.py."""
import itertools, os
import pytest
import matrix_run
from matrix_run import AXES, NAMES, allowed, covering, judge, name_of, parts

# Model, optimizer, dtype, alloc, accum, recompute, zero-grad, clip, evaluation, steps, resume.
RUNS = [
    'gpt-1 adamw fp32 tensor 1 none zero 0 no-eval 4 no',
    'gpt-2 momentum bf16 class 2 none zero 0.5 no-eval 4 no',
    'gpt-square adam tf32 step 1 full none 0 no-eval 4 no',
    'gpt-1 rmsprop fp32 pool 2 full zero 0 no-eval 5 no',
    'gpt-1 adagrad fp8 tensor 1 full zero 0 no-eval 4 yes',
    'gpt-square sgd fp16 step 2 none zero 0.5 no-eval 2 no',
    'gpt-1 adam tf32 class 1 none zero 0 sample 4 yes',
    'gpt-1 adamw bf16 tensor 3 none none 0 no-eval 2 no',
    'linear-3 momentum fp32 tensor 1 none zero 0 no-eval 5 no',
    'linear-square adam bf16 class 2 none zero 0.5 no-eval 4 no',
    'linear-7 sgd tf32 pool 1 none zero 0 no-eval 4 no',
    'linear-1 adamw fp16 step 1 none none 0 no-eval 5 yes',
    'gpt-5 adam fp8 step 3 none zero 0.5 sample 1 no',
]


@pytest.mark.parametrize('name', RUNS)
def test_books(tmp_path, name):
    run = tuple('--sample' if v == 'sample' else '' if v == 'no-eval' else v for v in name.split())
    assert allowed(run) and all(v in AXES[k] for k, v in zip(NAMES, run)) and name_of(run) == name
    faults, figures = judge(run, str(tmp_path))
    assert not faults, faults
    assert figures['nearly'] >= 0.99 and figures['unknown'] <= 0.01


def test_the_matrix_covers_all_pairs():
    """Each two values of two choices that go together occur in one run."""
    runs = covering(120)
    assert len(set(runs)) >= 100 and all(allowed(r) for r in runs)
    have = set().union(*(parts(r, 2) for r in runs))
    for i, j in itertools.combinations(range(len(NAMES)), 2):
        for v, w in itertools.product(AXES[NAMES[i]], AXES[NAMES[j]]):
            r = {'dtype': 'fp32', 'recompute': 'none', 'evaluation': '', 'model': 'gpt-1'} | {NAMES[i]: v, NAMES[j]: w}
            if allowed([r.get(n, AXES[n][0]) for n in NAMES]):
                assert ((i, v), (j, w)) in have, (v, w)


def test_a_wrong_book_is_seen(tmp_path, monkeypatch):
    """The judge itself: a class that is changed in the trace, a phase that is moved, are faults."""
    import sqlite3
    run = tuple('' if v == 'no-eval' else v for v in RUNS[0].split())
    monkeypatch.setattr(matrix_run, 'blank', lambda path, out: __import__('shutil').copy(path, out))
    db, truth = matrix_run.record(run, str(tmp_path))
    faults = []
    books = matrix_run.Books(db)
    matrix_run.judge_time(books, truth, faults)
    matrix_run.judge_memory(books, truth, faults)
    assert not faults
    with sqlite3.connect(db) as c:
        c.execute("update alloc_class set class = 'optimizer' where rowid = (select rowid from alloc_class where class = 'activation' order by bytes desc limit 1)")
        c.execute("update phase set first_op = first_op + 1 where name = 'backward' and step = 1")
    books = matrix_run.Books(db)
    matrix_run.judge_time(books, truth, faults)
    matrix_run.judge_memory(books, truth, faults)
    assert any('optimizer' in f for f in faults) and any('phases' in f for f in faults) and any('activations' in f for f in faults)
