"""Simulated programs of kinds that the oracle does not draw, in its manner: its primitives (read from shared/oracle, never copied),
truth by construction, the same score.

*Own kernels*: the oracle's programs without a library: each product is a kernel of the program (of one function per transposition,
or of one for all; or only the last layer is the library's).

`python3 tests/sim_kinds.py [PATTERN] [N]` runs them and prints those that do not pass."""
import os, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle_adapter
import core, matrix, score, sim

PRODUCT = 'product'                      # kernels whose names begin so are the program's products


class KindSim(sim.Sim):
    """own: 'by-kind' (a function for each transposition), 'one' (a function for all), 'mixed' (the last layer is the library's),
    'conv' (the names of convolutions, with a bias)."""

    def gemm(s, m, n, k, A, ax, B, bx, C, beta0=True, batch=1, bias=None):
        own = getattr(s.o, 'own', None)
        last = f'w.{s.o.L - 1}'
        if not own or own == 'mixed' and any(getattr(t, 'name', '').endswith(last) for t in (A, B, C)):
            return super().gemm(m, n, k, A, ax, B, bx, C, beta0, batch, bias)
        name = PRODUCT if own == 'one' else f'{PRODUCT}_{ax}{bx}'
        s.kernel(name, **{'w' if beta0 else 'rw': [C]}, r=[B, A] + ([bias] if bias else []), flops=2 * m * n * k * batch)


def build(**options):
    plain, sim.Sim = sim.Sim, KindSim
    try:
        if options.get('own') and options['own'] != 'mixed':
            options = {'ws': None, **options}           # a workspace belongs to a library
        return sim.build(**options)
    finally:
        sim.Sim = plain


def read_result(s, ids, path):
    """The score counts FLOPs of products: of the program's own too."""
    r = oracle_adapter.read_result(s.ev, ids, path)
    for op in r.trace.ops:
        if op.kind == 'kernel' and op.name.startswith(PRODUCT):
            op.kind, op.flops = 'gemm', s.truth[op.i][3]
    return r


def run_program(options, path):
    s = build(**options)
    ids = oracle_adapter.write_trace(s.ev, path)
    oracle_adapter.analyze(path)
    return score.score(s, read_result(s, ids, path))


def programs():
    P = {}
    styles = {'class': dict(alloc='class'), 'tensor': dict(alloc='tensor'), 'giant': dict(alloc='giant'),
              'dyn': dict(style='torch', alloc='step', zero='none')}
    models = {
        'linear': dict(model='linear'), 'linear-sgd': dict(model='linear', opt='sgd'), 'linear-momentum': dict(model='linear', opt='momentum'),
        'linear-K3': dict(model='linear', K=3), 'linear-eval': dict(model='linear', eval_every=2), 'linear-rc': dict(model='linear', recompute='full'),
        'linear-beta0': dict(model='linear', zero='beta0'), 'linear-cut': dict(model='linear', cut=True), 'linear-two-steps': dict(model='linear', steps=2),
        'linear-inference': dict(model='linear', inference=True), 'bn': dict(model='bn'), 'bn-eval-sgd': dict(model='bn', eval_every=2, opt='sgd'),
        'gpt': dict(), 'gpt-K2': dict(K=2), 'gpt-sgd-eval': dict(opt='sgd', eval_every=2), 'gpt-master': dict(dtype='bf16', master=True),
        'gpt-rc': dict(recompute='full', K=2), 'gan': dict(model='gan'), 'pair': dict(model='pair'), 'frozen': dict(model='linear', frozen=1),
        'skip': dict(model='linear', skip=(2,), loss_scale=True), 'ema-clip': dict(model='linear', ema=True, clip=True),
        'gpt-inference': dict(inference=True),
    }
    for own in ('by-kind', 'one', 'mixed'):
        for m, kw in models.items():
            if own == 'mixed' and kw.get('model') not in ('linear', 'bn'):
                continue
            for st, skw in styles.items():
                P[f'{own}/{m}-{st}'] = {**skw, **kw, 'own': own}
    return P


def _one(a):
    name, options, folder = a
    path = os.path.join(folder, name.replace('/', '_') + '.db')
    try:
        return name, run_program(options, path)
    except Exception:
        import traceback
        return name, {'error': traceback.format_exc(), 'pass': False}
    finally:
        if os.path.exists(path):
            os.unlink(path)


def run_all(chosen):
    import multiprocessing, shutil
    folder = oracle_adapter.memory_folder()
    try:
        with multiprocessing.Pool(2) as pool:
            return dict(pool.map(_one, [(k, v, folder) for k, v in chosen.items()], chunksize=4))
    finally:
        shutil.rmtree(folder)


if __name__ == '__main__':
    pattern = sys.argv[1] if len(sys.argv) > 1 else ''
    t0 = time.time()
    res = run_all({k: v for k, v in programs().items() if pattern in k})
    for k, v in res.items():
        if 'error' in v:
            print(k, v['error'].strip().splitlines()[-1])
    good = {k: v for k, v in res.items() if 'error' not in v}
    matrix.show(good, limit=int(sys.argv[2]) if len(sys.argv) > 2 else 60)
    matrix.summary(good)
    print(sum(v['pass'] for v in res.values()), 'of', len(res), 'pass', round(time.time() - t0, 1), 's')
