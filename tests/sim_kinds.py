"""Simulated programs of kinds that the oracle does not draw, in its manner: its primitives (read from shared/oracle, never copied),
truth by construction, the same score.

*Own kernels*: the oracle's programs without a library: each product is a kernel of the program (of one function per transposition,
or of one for all; or only the last layer is the library's). *Sharded optimizers* (ZeRO-1, ZeRO-2, FSDP), *a mixture of experts*, *offloaded
state*, *several models one after another*: what is expected of them is written down below, before their code.

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


# ---- conventions of the programs below ---------------------------------------------------------------------------------------
# Sharded optimizers, one rank's view of R: ZeRO-1 reduce-scatters the gradients in place, updates its share of each parameter and
# all-gathers the parameters in place: parameters and gradients keep their classes, the state of the share is `optimizer`. ZeRO-2
# reduce-scatters each gradient into a share that is kept (`grad`); the whole gradient, released in backward, is `temporary`. FSDP
# keeps shares of parameters (`param`), gathers each layer's before its use and releases it after: gathered copies live within
# a phase and are `temporary`.
# Mixture of experts: an expert that gets no token in a step is not run, and its weights are updated with zero gradients.
# Offloaded state: the optimizer's moments live on the host, come by copies into buffers of the device and go back: the buffers are
# `optimizer` as long as only the optimizer works on them.

class Sharded(sim.MLP):
    """shard: 'zero1', 'zero2', 'fsdp'; o.R ranks."""

    def __init__(n, s):
        n.shard, n.R = s.o.shard, s.o.R
        n.L, n.D, n.bn, n.tag = s.o.L, s.o.C, False, ''
        n.wname, n.flip = (lambda l: f'w.{l}'), (lambda l: False)
        kept = n.R if n.shard == 'fsdp' else 1               # the parameters themselves are the shares
        sim.Net.__init__(n, s, sim.Model(s, '', [(f'w.{l}', n.D * n.D // kept, True) for l in range(n.L)]))

    def part(n, t):
        return t.addr, t.bytes // n.R

    def gathered(n, w):
        s, P = n.s, n.m.p[w]
        t = s.new('full.' + w, 'temporary', P.n * n.R)
        s.kernel('all_gather', w=[t], r=[P])
        return t

    def lin_fwd(n, w, x, y, T, I, O, bias=None, flip=False):
        if n.shard != 'fsdp':
            return super().lin_fwd(w, x, y, T, I, O, bias, flip)
        W = n.gathered(w)
        n.s.gemm(O, T, I, W, 0, x, 0, y)
        n.s.drop(W)

    def lin_bwd(n, w, dy, x, dx, T, I, O, bias=None, xa=None, flip=False, acc_dx=False):
        s = n.s
        if n.shard == 'zero1':
            return super().lin_bwd(w, dy, x, dx, T, I, O, bias, xa, flip, acc_dx)
        W = n.gathered(w) if n.shard == 'fsdp' and dx is not None else n.m.p[w]
        if dx is not None:
            s.gemm(I, T, O, W, 1, dy, 0, dx)
        if n.shard == 'fsdp' and dx is not None:
            s.drop(W)
        whole = s.new('whole.' + w, 'temporary', I * O)
        s.gemm(I, O, T, x, 1, dy, 1, whole)
        m = n.m
        m.g[w] = s.new('g.' + w, 'grad', I * O // n.R, persistent=True, group='grad')
        s.kernel('reduce_scatter', w=[m.g[w]], r=[whole])
        s.drop(whole)

    def update(n):
        s, m = n.s, n.m
        for k in m.trainable:
            count = m.p[k].n // (1 if n.shard == 'fsdp' else n.R)
            for q in ('m', 'v'):
                if (q, k) not in m.st:
                    m.st[q, k] = s.new(f'{q}.{k}', 'optimizer', count, 4, persistent=True, group='opt_' + q)
                    s.memset(m.st[q, k])
        if n.shard == 'zero1':
            for k in m.trainable:
                s.kernel('reduce_scatter', w=[n.part(m.g[k])], r=[m.g[k]])
        for k in m.trainable:
            g = n.part(m.g[k]) if n.shard == 'zero1' else m.g[k]
            p = m.p[k] if n.shard == 'fsdp' else n.part(m.p[k])
            s.kernel('adam', rw=[p, m.st['m', k], m.st['v', k]], r=[g])
        for k in m.trainable if n.shard != 'fsdp' else []:
            s.kernel('all_gather', w=[m.p[k]], r=[n.part(m.p[k])])


def one_step(s, n, update=None):
    """A batch forward, backward, and the update (the model's, unless given); the loss and the batch."""
    T, D = s.o.B * s.o.T, s.o.C
    s.phase = 'forward'
    x, y = sim.feed(s, ['x', 'y'], [T * D] * 2, [s.e] * 2)
    s.h2d(x)
    s.h2d(y)
    out = n.forward(x, T)
    l, dl = n.loss(out, y, T, True)
    n.backward(dl, x, T)
    s.phase = 'optimizer'
    (update or n.update)()
    return l, x, y


def sharded(s):
    o = s.o
    n = Sharded(s)
    for st in range(o.steps):
        s.step, s.phase, s.mb = st, 'other', 0
        if o.shard == 'zero1':
            n.m.start_step()
        batch = one_step(s, n)
        s.phase = 'other'
        s.d2h(batch[0])
        for t in batch:
            s.drop(t)


class Experts(sim.Net):
    """A gate, E experts of two matrices each; tokens are scattered to experts and gathered again. idle: {step: experts without}"""

    def __init__(n, s):
        o = s.o
        D = o.C
        n.D, n.E = D, o.E
        sp = [('gate', D * 16, True)]
        for e in range(n.E):
            sp += [(f'up.{e}', 4 * D * D, True), (f'down.{e}', 4 * D * D, True)]
        sp.append(('head', D * D, True))
        super().__init__(s, sim.Model(s, '', sp))

    def step(n, st, x, y, T):
        s, D, P = n.s, n.D, n.m.p
        run = [e for e in range(n.E) if e not in s.o.idle.get(st, ())]
        C = T // n.E                                         # an expert's capacity
        gate, idx = n.act('logits', T * 16), n.act('idx', T, 4)
        n.lin_fwd('gate', x, gate, T, D, 16)
        s.kernel('top1', w=[idx], r=[gate])
        moe = n.act('moe', T * D)
        saved = {}
        for e in run:
            xe, h, a, ye = (n.act(f'{q}.{e}', C * k * D) for q, k in (('xe', 1), ('h', 4), ('a', 4), ('ye', 1)))
            s.kernel('gather_tokens', w=[xe], r=[x, idx])
            n.lin_fwd(f'up.{e}', xe, h, C, D, 4 * D)
            s.kernel('gelu', w=[a], r=[h])
            n.lin_fwd(f'down.{e}', a, ye, C, 4 * D, D)
            saved[e] = xe, h, a, ye
        s.kernel('combine_tokens', w=[moe], r=[v[3] for v in saved.values()] + [gate, idx])
        out = n.act('out', T * D)
        n.lin_fwd('head', moe, out, T, D, D)
        losses, dl = n.act('losses', T, 4), n.dact('dout', T * D)
        s.kernel('mse', w=[losses, dl], r=[out, y])
        s.phase = 'backward'
        dmoe = n.dact('dmoe', T * D)
        n.lin_bwd('head', dl, moe, dmoe, T, D, D)
        dgate = n.dact('dgate', T * 16)
        s.kernel('combine_gate_backward', w=[dgate], r=[dmoe, idx] + [v[3] for v in saved.values()])
        for e in reversed(run):
            xe, h, a, ye = saved[e]
            dye, dh = n.dact('dye', C * D), n.dact('dh', C * 4 * D)
            s.kernel('scatter_tokens_backward', w=[dye], r=[dmoe, gate, idx])
            n.lin_bwd(f'down.{e}', dye, a, dh, C, 4 * D, D)
            s.kernel('gelu_backward', rw=[dh], r=[h])
            n.lin_bwd(f'up.{e}', dh, xe, None, C, D, 4 * D)
            for t in (dye, dh, xe, h, a, ye):
                s.drop(t)
        n.lin_bwd('gate', dgate, x, None, T, D, 16)
        for t in (gate, idx, moe, out, dl, dmoe, dgate):
            s.drop(t)
        return losses


def experts(s):
    o = s.o
    n = Experts(s)
    T = o.B * o.T
    for st in range(o.steps):
        s.step, s.phase, s.mb = st, 'other', 0
        n.m.start_step()
        s.phase = 'forward'
        x, y = sim.feed(s, ['x', 'y'], [T * o.C] * 2, [s.e] * 2)
        s.h2d(x)
        s.h2d(y)
        l = n.step(st, x, y, T)
        s.phase = 'optimizer'
        n.m.update()
        n.m.end_step()
        s.phase = 'other'
        s.d2h(l)
        for t in (l, x, y) if o.style == 'torch' else ():
            s.drop(t)


class Offloading(sim.MLP):
    """Adam whose moments live on the host: they come into one pair of buffers for each parameter, and go back."""

    def update(n):
        s, m = n.s, n.m
        for k in m.trainable:
            mv = [s.new(f'{q}.{k}', 'optimizer', m.n_of[k], 4, persistent=True, group='opt_' + q) for q in 'mv']
            for t in mv:
                s.h2d(t, 1)
            s.kernel('adam', rw=[m.p[k]] + mv, r=[m.g[k]])
            for t in mv:
                s.d2h(t)


def offloading(s):
    o = s.o
    n = Offloading(s)
    for st in range(o.steps):
        s.step, s.phase, s.mb = st, 'other', 0
        n.m.start_step()
        one_step(s, n)
        n.m.end_step()


def sequence(s):
    """o.models models one after another, each freed; each is trained, or (o.serve) only run."""
    o = s.o
    T, D = o.B * o.T, o.C
    number = 0
    for i in range(o.models):
        s.step, s.phase = None, 'init'
        n = sim.MLP(s, f'{chr(65 + i)}.', L=o.L + i % 2)
        for _ in range(o.steps):
            s.step, s.phase, s.mb = number, 'other', 0
            number += 1
            if not o.inference:
                n.m.start_step()
            s.phase = 'forward'
            x, y = sim.feed(s, ['x', 'y'], [T * D] * 2, [s.e] * 2)
            s.h2d(x)
            if not o.inference:
                s.h2d(y)
            else:
                y.cls = 'unknown'
            out = n.forward(x, T, grad=not o.inference)
            if o.inference:
                s.d2h(out)
                for t in (out, x, y) if o.style == 'torch' else ():
                    s.drop(t)
                continue
            l, dl = n.loss(out, y, T, True)
            n.backward(dl, x, T)
            for t in (out, dl, l) + ((x, y) if o.style == 'torch' else ()):
                s.drop(t)
            s.phase = 'optimizer'
            n.m.update()
            n.m.end_step()
        for d in (n.m.p, n.m.g, n.m.st):
            for t in d.values():
                if t is not None and o.alloc in ('tensor', 'step', 'pool'):
                    s.drop(t, force=True)


KINDS = {'sharded': sharded, 'experts': experts, 'offloading': offloading, 'sequence': sequence}


def build(**options):
    """One program, as sim.build makes it."""
    plain, train = sim.Sim, sim.train
    kind = options.get('kind')
    try:
        sim.Sim = KindSim
        if kind:
            sim.train = KINDS[kind]
        if options.get('own') and options['own'] != 'mixed':
            options = {'ws': None, **options}           # a workspace belongs to a library
        return sim.build(**options)
    finally:
        sim.Sim, sim.train = plain, train


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
    for shard in ('zero1', 'zero2', 'fsdp'):
        for st in ('class', 'tensor', 'dyn'):
            if shard != 'zero1' and st == 'class':
                continue                                     # what is released needs an allocation of its own
            kw = {**styles[st], 'kind': 'sharded', 'model': 'linear', 'shard': shard, 'R': 4, 'style': 'torch'}
            P[f'shard/{shard}-{st}'] = {**kw, 'zero': 'zero_start' if shard == 'zero1' else 'none', 'alloc': 'step' if st == 'dyn' else st}
    for st, skw in styles.items():
        moe = {**skw, 'kind': 'experts', 'model': 'linear', 'E': 4, 'zero': 'zero_start'}
        P[f'moe/all-{st}'] = {**moe, 'idle': {}}
        P[f'moe/idle-{st}'] = {**moe, 'idle': {1: (2,), 3: (0, 1)}}
        P[f'moe/first-idle-{st}'] = {**moe, 'idle': {0: (3,), 2: (3,), 4: (1,)}}
        P[f'offload/adam-{st}'] = {**skw, 'kind': 'offloading', 'model': 'linear', 'zero': 'zero_start'}
    for n in (2, 4, 6):
        for st in ('tensor', 'dyn', 'class'):
            P[f'sequence/{n}-{st}'] = {**styles[st], 'kind': 'sequence', 'model': 'linear', 'models': n, 'steps': 4}
        P[f'sequence/{n}-inference-dyn'] = {**styles['dyn'], 'kind': 'sequence', 'model': 'linear', 'models': n, 'steps': 4, 'inference': True}
    return P


def run_all(chosen):
    return oracle_adapter.run_all(run_program, chosen)


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
