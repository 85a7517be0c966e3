"""The oracle's simulated programs as trace databases, and the analysed tables as the oracle's Result.

The oracle (rules tried on simulated programs with known truth) lies beside the repository in shared/oracle; it is read, never
written. `python3 tests/oracle_adapter.py [PATTERN]` prints the programs that do not pass."""
import bisect, os, sqlite3, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from conftest import BUILD, SHARED
from trace_maker import Maker

ORACLE = os.path.join(SHARED, 'oracle')
sys.dont_write_bytecode = True
if os.path.isdir(ORACLE):
    sys.path.insert(0, ORACLE)


def repair():
    """Two faults of the simulator, one of the score, without which some programs cannot pass whatever the rules are.
    - llm.c's logits are scratch of other products too, and so is the half-precision gradient of a casting backward: the simulator makes
      them as large as their first use, so that with a small vocabulary products write beyond them, into what lies behind. They get room
      for the largest product that uses them.
    - In a hidden pool the score sees a tensor from its first access to its last, those of class other for ever: also one that was
      released, whose memory is another's by then. It ends with its release."""
    import score, sim
    new, observed = sim.Sim.new, score.observed

    def roomy(s, name, cls, n, *rest, **options):
        if s.static and name == 'output':
            n = n // s.o.V * max(s.o.V, 3 * s.o.C, s.o.NH * s.o.T)
        if s.static and name == 'g16':
            n = max([n] + [t.n for t in s.tensors if t.cls == 'param'])
        return new(s, name, cls, n, *rest, **options)

    def seen(s, t, q):
        x = observed(s, t, q)
        if x is not None and x is not q and x.t1 is None:
            x.t1 = q.t1
        return x
    sim.Sim.new, score.observed = roomy, seen


if os.path.isdir(ORACLE) and not os.environ.get('ORACLE_AS_GIVEN'): # set: simulator and score as they are
    repair()


def analyzer():
    return os.environ.get('ACCT_ANALYZER', os.path.join(BUILD, 'acct') + ' analyze').split()


def write_gemm(t, e, start):
    (m, n, k, batch), A, B, C = e[1], e[2], e[3], e[4]
    # a warm-up product of the simulator may reach beyond its small buffers, whose elements are then 2 bytes
    name = lambda o, x, y: 'fp32' if o[1] // (x * y * batch) == 4 else 'bf16'
    ta, tb = ('N' if A[2] == 1 else 'T'), ('N' if B[2] == 0 else 'T')
    stride = (lambda x, y: x * y) if batch > 1 else (lambda x, y: None)
    i = t.gemm(start=start, trans_a=ta, trans_b=tb, m=m, n=n, k=k, batch=batch, a=A[0], b=B[0], c=C[0], lda=m if ta == 'N' else k,
               ldb=k if tb == 'N' else n, ldc=m, stride_a=stride(m, k), stride_b=stride(k, n), stride_c=stride(m, n),
               a_type=name(A, m, k), b_type=name(B, k, n), c_type=name(C, m, n), compute='fp32',
               beta='zero' if e[5] else 'one')
    if e[6]:
        t.buffer(i, 'bias', e[6][0], e[6][1], 'r')
    return i


def write_trace(ev, path):
    """Event i of the simulator becomes the op whose id is returned in the list."""
    t, ids, ws, late = Maker(path), [], None, None
    for e in ev:
        k = e[0]
        start = None
        if k == 'gemm' and e[7] and e[7] != ws:
            ws = e[7]
            t.workspace(*ws)
        if k == 'alloc':
            if e[3]:                       # made inside the library call that follows
                late = (t.n + 1) * 1000 - 10
            i = t.alloc(e[1], e[2])
        elif k == 'free':
            i = t.free(e[1])
        elif k == 'copy':
            i = t.copy(e[1], e[2], e[3], e[4])
        elif k == 'memset':
            i = t.memset(e[1], e[2])
        elif k == 'gemm':
            i = write_gemm(t, e, late)
            late = None
        else:
            i = t.launch(e[1], e[2])
        ids.append(i + 1)
    t.close()
    return ids


def analyze(path):
    r = subprocess.run(analyzer() + [path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode:
        raise AssertionError(f'{" ".join(analyzer())} {path}: exit code {r.returncode}: {r.stdout}')


def split(t, block, places):
    """Cuts the oracle's ranges of a block at more places: the analyzer knows extents that the events do not tell."""
    import core
    segs = []
    for s in block.segs:
        inside = sorted(p for p in places if s.lo < p < s.hi)
        for lo, hi in zip([s.lo] + inside, inside + [s.hi]):
            x = s if (lo, hi) == (s.lo, s.hi) else core.Seg(len(t.segs), block, lo, hi)
            if x is not s:
                x.acc = s.acc
                t.segs.append(x)
            segs.append(x)
    block.segs, block.cuts = segs, [s.lo for s in segs] + [block.bytes]


def read_result(ev, ids, path):
    import core
    t = core.Trace(ev)
    r = core.Result(t)
    db = sqlite3.connect(path)
    event = {op: i for i, op in enumerate(ids)}
    for op, step, phase, mb in db.execute('SELECT op, step, phase, micro_batch FROM op_cost'):
        if op in event:
            i = event[op]
            r.step[i] = step
            r.phase[i] = {'evaluation': 'eval', None: 'other'}.get(phase, phase)
            r.mb[i] = mb or 0
    r.nsteps = db.execute('SELECT count(*) FROM step').fetchone()[0]
    at = {}
    for op, a, z in db.execute('SELECT id, start_ns, end_ns FROM op'):
        if op in event:
            at[a] = at[z] = event[op]
    times = sorted(at)                     # a class may end with a call that is no event of the simulator (a workspace): the next one
    when = lambda ns: at[times[min(bisect.bisect_left(times, ns), len(times) - 1)]]
    rows = {}
    for alloc, off, n, a, z, cls, conf, rule in db.execute(
            'SELECT alloc, offset, bytes, from_ns, until_ns, class, confidence, rule FROM alloc_class ORDER BY alloc, offset'):
        rows.setdefault(event[alloc], []).append((off, off + n, 0 if a is None else when(a), 1 << 60 if z is None else when(z), cls, conf, rule))
    db.close()
    for b in t.blocks:
        mine, j = rows.get(b.t0, []), 0
        split(t, b, {r[0] for r in mine} - set(b.cuts))
        for s in b.segs:
            while j < len(mine) and mine[j][1] <= s.lo:
                j += 1
            i = j
            while i < len(mine) and mine[i][0] < s.hi:
                assert mine[i][0] <= s.lo and mine[i][1] >= s.hi, 'a class ends inside an atomic range'
                r.cls.setdefault(s.id, []).append(mine[i][2:])
                i += 1
            assert s.id in r.cls, f'block {b.t0}: no class for [{s.lo}, {s.hi})'
    return r


def run_program(options, path):
    """Scores of one simulated program, as score.py gives them."""
    import score, sim
    s = sim.build(**options)
    ids = write_trace(s.ev, path)
    analyze(path)
    return score.score(s, read_result(s.ev, ids, path))


def _guarded(a):
    run, name, options, folder = a
    path = os.path.join(folder, name.replace('/', '_') + '.db')
    try:
        return name, run(options, path)
    except Exception:
        import traceback
        return name, {'error': traceback.format_exc(), 'pass': False}
    finally:
        if os.path.exists(path):
            os.unlink(path)


def run_all(run, programs):
    """{name: run(options, path of a trace to be made)} of {name: options}, or the error; two at a time. The traces lie in memory if
    they can: they are small, and nobody wants them after a crash."""
    import multiprocessing, shutil, tempfile
    folder = tempfile.mkdtemp(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
    try:
        with multiprocessing.Pool(2) as pool:
            return dict(pool.map(_guarded, [(run, k, v, folder) for k, v in programs.items()], chunksize=4))
    finally:
        shutil.rmtree(folder)


def run_matrix(programs):
    return run_all(run_program, programs)


def visible(options):
    return options.get('alloc') != 'pool' and options.get('rw', 'full') == 'full'


if __name__ == '__main__':
    import matrix
    pattern = sys.argv[1] if len(sys.argv) > 1 else ''
    chosen = {'known': visible, 'all': lambda o: True, 'pool': lambda o: o.get('alloc') == 'pool' and o.get('rw', 'full') == 'full',
              'blind': lambda o: o.get('alloc') != 'pool' and o.get('rw', 'full') != 'full',
              'blindpool': lambda o: o.get('alloc') == 'pool' and o.get('rw', 'full') != 'full'}[sys.argv[2] if len(sys.argv) > 2 else 'known']
    t0 = time.time()
    res = run_matrix({k: v for k, v in matrix.programs().items() if pattern in k and chosen(v)})
    for k, v in res.items():
        if 'error' in v:
            print(k, v['error'].strip().splitlines()[-1])
    matrix.show({k: v for k, v in res.items() if 'error' not in v}, limit=60)
    print(sum(v['pass'] for v in res.values()), 'of', len(res), 'pass', round(time.time() - t0, 1), 's')
