"""Programs of the oracle's simulator, with its truth, of kinds that its lists do not draw: products that warm a library up before the
model is there, averages that only an evaluation at the end uses, a batch sent ahead of a step that does not come, weights updated as
soon as backward has their gradients while the layers below are recomputed, and a body that is frozen for some steps."""
import os
import pytest
import oracle_adapter
if not os.path.isdir(oracle_adapter.ORACLE):
    pytest.skip(f'no oracle at {oracle_adapter.ORACLE}: its simulator lies beside the repository', allow_module_level=True)
import score, sim, sim_kinds

STYLES = {'class': dict(alloc='class'), 'tensor': dict(alloc='tensor'), 'dyn': dict(style='torch', alloc='step', zero='none'),
          'pool': dict(style='torch', alloc='pool', zero='none')}
# Warm-up products reach memory that weights get later (pool), or come before the weights; casts of weights that never change.
WARM = dict(warmup=True, model='lora', recompute='full', dtype='bf16', autocast=True, K=2)
# Averages are made by a copy, worked on after each update, and read by products after the last one only.
AVERAGES = dict(model='linear', ema=True, ema_eval=True, final_eval=True, opt='momentum')
AHEAD = dict(model='linear', dbuf=True, steps=4)
IN_BACKWARD = dict(opt_in_bwd=True, recompute='full')
PROGRAMS = {
    **{f'warm-{st}': {**WARM, **kw} for st, kw in STYLES.items()},
    **{f'averages-{st}': {**AVERAGES, **kw} for st, kw in STYLES.items() if st != 'pool'},
    **{f'ahead-{st}': {**AHEAD, **kw} for st, kw in STYLES.items()},
    **{f'in-backward-{opt}-{st}': {**IN_BACKWARD, 'model': 'linear', 'opt': opt, **kw} for opt in ('adam', 'sgd') for st, kw in STYLES.items()},
    'in-backward-evaluation': {**IN_BACKWARD, 'model': 'linear', 'eval_every': 2, 'alloc': 'tensor'},
    'in-backward-ahead': {**IN_BACKWARD, 'model': 'linear', 'dbuf': True, 'alloc': 'tensor'},
}
# Launches without known directions: an evaluation calls the loss without a gradient first; a shorter sequence in the same buffers; products
# that are added to gradients; one update over all tensors, in one block with all else.
BLIND = {
    'one-update': dict(model='gan', alloc='giant', opt='adam', fused='fused', rw='none'),
    'loss-without-gradient': dict(model='linear', inplace_relu=True, eval_every=3, rw='none'),
    'shorter': dict(sample=True, recompute='full', K=2, rw='none'),
    'addends': dict(model='bn', style='torch', alloc='step', zero='zero_start', K=4, recompute='full', rw='none'),
}


@pytest.mark.parametrize('name', sorted(PROGRAMS | BLIND))
def test_program(name, tmp_path):
    got = oracle_adapter.run_program((PROGRAMS | BLIND)[name], str(tmp_path / 't.db'))
    assert got['steps'] == got['steps_true'] and got['step_flops'] == 1 and got['recompute'] == got['recompute_true']
    assert got['pass'], got['bad'].most_common(4)


def thawing(s):
    """All layers but the last are frozen in the first o.thaw steps: backward stops there, and only the last is updated."""
    o = s.o
    n = sim.MLP(s)
    body = [n.wname(l) for l in range(n.L - 1)]
    for st in range(o.steps):
        s.step, s.phase, s.mb = st, 'other', 0
        o.frozen = n.L - 1 if st < o.thaw else 0
        n.m.no_grad = frozenset(body if st < o.thaw else ())
        n.m.start_step()
        loss, x, y = sim_kinds.one_step(s, n, lambda: n.m.update([n.wname(n.L - 1)] if st < o.thaw else None))
        n.m.end_step()
        s.phase = 'other'
        s.d2h(loss)
        for t in (loss, x, y) if o.style == 'torch' else ():
            s.drop(t)


@pytest.mark.parametrize('style', ['class', 'tensor', 'dyn'])
@pytest.mark.parametrize('thaw', [1, 3])
def test_a_body_frozen_for_some_steps(monkeypatch, tmp_path, style, thaw):
    monkeypatch.setattr(sim, 'train', thawing)
    s = sim.build(model='linear', thaw=thaw, steps=6, **STYLES[style])
    path = str(tmp_path / 't.db')
    ids = oracle_adapter.write_trace(s.ev, path)
    oracle_adapter.analyze(path)
    got = score.score(s, oracle_adapter.read_result(s.ev, ids, path))
    assert got['pass'], (got['steps'], got['step_flops'], got['phase_flops'], got['bad'].most_common(4))
