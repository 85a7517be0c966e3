"""The matrix: `train` under acct on the virtual GPU over its choices, the books against the program's own account (--truth).

    python3 tests/matrix_run.py [--runs N] [--only TEXT] [--keep FOLDER]        make matrix [MATRIX_RUNS=N]

At each phase's first and last call and at each step's peak, block by block: bytes of param, grad, optimizer and input are the
account's, none more and none less; of activation and activation_grad at least 99 %; at most 1 % unknown. Steps, micro-batches and
phases begin and end at the account's calls, FLOPs (recomputation's apart) are its own, evaluation is in no step. Then the same
trace with its PTX blanked, as of a program that ships machine code alone, analysed anew: at least 95 % of the bytes right (--alloc
pool excepted), and the classes believed less. Ends with a table; the exit code is 0 only if every run passes."""
import bisect, collections, contextlib, itertools, json, os, random, shutil, sqlite3, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from conftest import BUILD, DEVICE, run

ACCT, TRAIN = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'train')
EXACT = ('param', 'grad', 'optimizer', 'input')
NEARLY = ('activation', 'activation_grad')
LEAST_NEARLY, MOST_UNKNOWN, LEAST_BLIND = 0.99, 0.01, 0.95

# ---- which runs -----------------------------------------------------------------------------------------------------------------
# A model with its size; B·T = C and B = D make every matrix of one size, layers of 1 have no middle.
MODELS = {
    'gpt-1': '--model gpt --layers 1 --dim 32 --heads 2 --seq 16 --batch 2',
    'gpt-2': '--model gpt --layers 2 --dim 48 --heads 3 --seq 16 --batch 5',
    'gpt-square': '--model gpt --layers 2 --dim 64 --heads 4 --seq 16 --batch 4',
    'gpt-3-untied': '--model gpt --layers 3 --dim 64 --heads 4 --seq 32 --batch 3 --untied',
    'gpt-5': '--model gpt --layers 5 --dim 32 --heads 2 --seq 48 --batch 2',
    'linear-1': '--model linear --layers 1 --dim 64 --batch 16',
    'linear-3': '--model linear --layers 3 --dim 96 --batch 32',
    'linear-square': '--model linear --layers 4 --dim 64 --batch 64',
    'linear-7': '--model linear --layers 7 --dim 32 --batch 8',
}
AXES = {
    'model': list(MODELS),
    'optimizer': ['sgd', 'momentum', 'rmsprop', 'adagrad', 'adam', 'adamw'],
    'dtype': ['fp32', 'tf32', 'bf16', 'fp16', 'fp8'],
    'alloc': ['tensor', 'class', 'step', 'pool'],
    'accum': ['1', '2', '3'],
    'recompute': ['none', 'full'],
    'zero-grad': ['zero', 'none'],
    'clip': ['0', '0.5'],
    'evaluation': ['', '--eval-every 1 --eval-batches 1', '--eval-every 2 --eval-batches 3', '--sample', '--eval-every 2 --sample'],
    'steps': ['4', '1', '2', '5'],
    'resume': ['no', 'yes'],
}
NAMES = list(AXES)


def allowed(r):
    c = dict(zip(NAMES, r))
    if c['model'].startswith('linear'):
        return c['dtype'] != 'fp8' and c['recompute'] == 'none' and '--sample' not in c['evaluation']
    return True


def parts(r, n):
    return set(itertools.combinations(enumerate(r), n))


def covering(least):
    """Runs in which every pair of two choices' values occurs that may: greedy on pairs, then on triples; always the same. A run's
    first choices are a pair that is missing yet, the others the best of some that a fixed seed draws."""
    rng = random.Random(1)
    pairs = [p for i, j in itertools.combinations(range(len(NAMES)), 2) for p in itertools.product([(i, v) for v in AXES[NAMES[i]]], [(j, v) for v in AXES[NAMES[j]]])]
    runs, have2, have3, impossible = [], set(), set(), set()
    while len(runs) < least or any(p not in have2 and p not in impossible for p in pairs):
        missing = next((p for p in pairs if p not in have2 and p not in impossible), ())
        tried = []
        for _ in range(400):
            r = [rng.choice(AXES[n]) for n in NAMES]
            for i, v in missing:
                r[i] = v
            if allowed(r):
                tried.append(tuple(r))
        if not tried:
            impossible.add(missing)
            continue
        best = max(tried, key=lambda r: (len(parts(r, 2) - have2), len(parts(r, 3) - have3)))
        have2 |= parts(best, 2)
        have3 |= parts(best, 3)
        runs.append(best)
    return runs[:least]


def options_of(r):
    c = dict(zip(NAMES, r))
    out = MODELS[c['model']].split() + c['evaluation'].split()
    for k in ('optimizer', 'dtype', 'alloc', 'accum', 'zero-grad', 'clip', 'steps'):
        out += ['--' + k, c[k]]
    # The dynamic scale of fp16 begins so high that first steps may be skipped: a run without any update shows no optimizer.
    out += ['--loss-scale', '64'] if c['dtype'] == 'fp16' and (c['steps'] in '12' or c['model'].startswith('linear')) else []
    # A learning rate at which a deep linear model's gradients stay finite in 16 bits.
    out += ['--lr', '0.001'] if c['dtype'] == 'fp16' and c['model'].startswith('linear') else []
    return out + (['--recompute', c['recompute']] if c['model'].startswith('gpt') else [])


def name_of(r):
    return ' '.join(v or 'no-eval' for v in r).replace('--', '')


# ---- running --------------------------------------------------------------------------------------------------------------------
class Failed(Exception):
    pass


def must(*argv, **kw):
    r = run(*argv, **kw)
    if r.returncode:
        raise Failed(f'{" ".join(str(a) for a in argv)}: exit code {r.returncode}: {r.stderr.strip()[-500:]}')
    return r


def record(r, folder):
    """Run it; (database, account)."""
    db, truth, saved = (os.path.join(folder, n) for n in ('a.db', 'truth.json', 'saved'))
    options, c = options_of(r), dict(zip(NAMES, r))
    if c['resume'] == 'yes':          # two steps before, the same options: their weights come from the host
        must(TRAIN, *options, '--save', saved, '--steps', 2, env=DEVICE)
        options += ['--resume', saved, '--steps', 2 + int(c['steps'])]
    must(ACCT, 'run', '--vgpu', '-o', db, '--', TRAIN, *options, '--truth', truth, env=DEVICE)
    with open(truth) as f:
        return db, json.load(f)


# ---- the books by call ----------------------------------------------------------------------------------------------------------
class Books:
    """What acct says of each byte at each call of the program."""

    def __init__(self, path):
        with contextlib.closing(sqlite3.connect(f'file:{path}?mode=ro', uri=True)) as db:
            self.read(db)

    def read(self, db):
        q = lambda sql: db.execute(sql).fetchall()
        calls = q("select id, case kind when 'alloc' then end_ns else start_ns end as ns from op where status = 0 and kind in "
                  "('alloc', 'free', 'copy', 'memset', 'gemm', 'blas', 'launch') order by ns, id")
        self.number = {op: i + 1 for i, (op, _) in enumerate(calls)}
        self.ns = [ns for _, ns in calls]
        self.phases = [(s, n, m, self.number[a], self.number[b]) for s, n, m, a, b in q(
            "select step, name, micro_batch, first_op, last_op from phase where name <> 'recompute' order by step, first_op")]
        self.steps = [(mb, complete, self.number[a]) for mb, complete, a in q('select micro_batches, complete, last_op from step order by id')]
        self.flops = collections.Counter()
        for step, phase, flops in q('select step, phase, matmul_flops from op_cost where matmul'):
            self.flops[step, phase] += flops
        self.stepless = {op for op, in q('select op from op_cost where step is null')}
        self.mean_confidence = q("select sum(c.confidence * c.bytes) / sum(c.bytes) from alloc_class c join alloc a on a.id = c.alloc "
                                 "where a.memory in ('device', 'async') and c.class <> 'workspace'")[0][0]
        self.guessed = q("select count(*) from op_buffer b join op on op.id = b.op where op.kind = 'launch' and b.mode = '?'")[0][0]
        self.pieces = collections.defaultdict(list)    # (call, begin, end) of reads and writes, by page
        for op, a, n in q('select op, address, bytes from op_buffer where alloc is not null order by op'):
            if op in self.number:
                for page in range(a >> 12, (a + (n or 1) - 1 >> 12) + 1):
                    self.pieces[page].append((self.number[op], a, a + (n or 1)))
        self.touched = []                               # [begin, end] of all that some op reads or writes, merged
        for a, n in q('select distinct address, bytes from op_buffer order by address'):
            if self.touched and a <= self.touched[-1][1]:
                self.touched[-1][1] = max(self.touched[-1][1], a + (n or 1))
            else:
                self.touched.append([a, a + (n or 1)])
        self.rows = []                                  # (address, end, first call, call behind the last, class, rule)
        for address, born, dead, offset, size, a, z, cls, rule in q(
                "select a.address, a.id, a.free_op, c.offset, c.bytes, c.from_ns, c.until_ns, c.class, c.rule from alloc_class c "
                "join alloc a on a.id = c.alloc where a.memory in ('device', 'async')"):
            first = self.number[born] if a is None else self.call(a)
            last = self.call(z) if z is not None else self.number.get(dead, 1 << 60)
            self.rows.append((address + offset, address + offset + size, first, last, cls, rule))
        self.rows.sort()

    def call(self, ns):
        """The first call at or after a time."""
        return bisect.bisect_left(self.ns, ns) + 1

    def is_touched(self, at, end):
        i = bisect.bisect_left(self.touched, [end])
        return i > 0 and self.touched[i - 1][1] > at

    def used(self, b):
        """The first and the last of the calls that read or write a buffer while it lives."""
        at, end, last = b['address'], b['address'] + b['bytes'], b['to_call'] or 1 << 60
        calls = [c for page in range(at >> 12, (end - 1 >> 12) + 1) for c, lo, hi in self.pieces[page]
                 if b['from_call'] <= c <= last and lo < end and hi > at]
        return (min(calls), max(calls)) if calls else None

    def at(self, call):
        return [(lo, hi, cls, rule) for lo, hi, a, z, cls, rule in self.rows if a <= call < z]


def live(truth, call):
    return [b for b in truth['buffers'] if b['from_call'] <= call and (b['to_call'] is None or call <= b['to_call']) and b['class'] != 'workspace']


def only_gradients(rows, truth, call):
    """Bytes of a pool that no buffer has now, acct calls grad, and nothing but gradients ever has: that they were given back between
    the update and the next backward nobody can see."""
    others = sorted((b['address'], b['address'] + b['bytes']) for b in truth['buffers'] if b['class'] != 'grad' or b in live(truth, call))
    total = 0
    for lo, hi, cls, _ in rows:
        if cls != 'grad':
            continue
        free = [(lo, hi)]
        for a, z in others:
            free = [p for x, y in free for p in ((x, min(y, a)), (max(x, z), y)) if p[0] < p[1]]
        total += sum(y - x for x, y in free)
    return total


def compare(books, truth, call):
    """{(class by the account, class by acct): bytes}; None stands for what the account has no buffer for; and which rules were wrong."""
    pool = truth['options']['alloc'] == 'pool'
    rows, out, wrong = books.at(call), collections.Counter(), collections.Counter()
    edges = [r[0] for r in rows]
    outside = collections.Counter()
    for lo, hi, cls, _ in rows:
        outside[cls] += hi - lo
    for b in live(truth, call):
        at, end = b['address'], b['address'] + b['bytes']
        if at < (edges[0] if edges else 0) or at >= (rows[-1][1] if rows else 0):
            continue                                    # page-locked memory of the host
        idle = not books.is_touched(at, end)            # allocated and never used: unknown is as good an answer as the account's
        for lo, hi, cls, rule in rows[max(0, bisect.bisect_right(edges, at) - 1):]:
            if lo >= end:
                break
            n = min(hi, end) - max(lo, at)
            if n <= 0:
                continue
            outside[cls] -= n
            if idle and cls == 'unknown':
                continue
            if pool and rule == 'never accessed' and not books.is_touched(max(lo, at), min(hi, end)):
                out['not seen', cls] += n               # of a piece, bytes that nobody uses
                continue
            out[b['class'], cls] += n
            if b['class'] != cls:
                wrong[b['name'].rstrip('0123456789'), b['class'], cls, rule] += n
    for cls, n in outside.items():
        if n and cls in EXACT:
            out[None, cls] += n
    if out[None, 'grad'] and truth['options']['alloc'] == 'pool':
        out['never other', 'grad'] = only_gradients(rows, truth, call)
    return out, wrong


def looks_static(truth):
    """No two pieces of a pool cross, and none but activations, their gradients and what is temporary take turns in its memory: seen from
    outside, a program that works with fixed buffers, some of them twice."""
    kind = lambda b: 'any' if b['class'] in (*NEARLY, 'temporary') else b['class']
    extents = sorted({(b['address'], -b['address'] - b['bytes'], kind(b)) for b in truth['buffers']})
    stack = []
    for at, end, k in extents:
        while stack and stack[-1][0] <= at:
            stack.pop()
        if any(e < -end for e, _ in stack[-1:]) or any(x != k for _, x in stack):
            return False
        stack.append((-end, k))
    return True


def as_static(truth):
    """One class for a buffer, the first of activation and activation_grad; what forward leaves in a buffer that is kept is an activation."""
    shared = [b for b in truth['buffers'] if b['class'] in (*NEARLY, 'temporary')]
    meet = lambda a, b: a is not b and a['address'] < b['address'] + b['bytes'] and b['address'] < a['address'] + a['bytes']
    out = []
    for b in truth['buffers']:
        others = {x['class'] for x in shared if meet(x, b)} if b['class'] in (*NEARLY, 'temporary') else set()
        if others & {'activation', 'temporary'} or (others and b['class'] == 'temporary'):
            b = {**b, 'class': 'activation'}
        out.append(b)
    return {**truth, 'buffers': out}


def as_seen(books, truth):
    """Of a pool of the program's own only its use can be seen: activations and what is temporary count from the first to the last call
    that touches them; an activation that no call touches after its forward is one that was released there, so temporary."""
    forward = [(p['from_call'], p['to_call']) for s in truth['steps'] for p in s['phases'] if p['name'] == 'forward']
    out = []
    for b in truth['buffers']:
        if b['class'] in (*NEARLY, 'temporary'):
            used = books.used(b)
            if not used:
                continue
            b = {**b, 'from_call': used[0], 'to_call': used[1]}
            if b['class'] == 'activation' and any(lo <= used[0] and used[1] <= hi for lo, hi in forward):
                b['class'] = 'temporary'
        out.append(b)
    return {**truth, 'buffers': out}


def peak_call(truth, step):
    """The first of its calls at which most of the account's bytes are live."""
    change = collections.Counter()
    for b in truth['buffers']:
        if b['class'] == 'workspace' or (b['to_call'] is not None and b['to_call'] < step['from_call']) or b['from_call'] > step['to_call']:
            continue
        change[max(b['from_call'], step['from_call'])] += b['bytes']
        if b['to_call'] is not None and b['to_call'] < step['to_call']:
            change[b['to_call'] + 1] -= b['bytes']
    now = most = 0
    best = step['from_call']
    for call in sorted(change):
        now += change[call]
        if now > most:
            most, best = now, call
    return best


def judge_memory(books, truth, faults):
    """Worst figures over all points: share of activation and activation_grad right, share unknown, share of all bytes right."""
    worst, all_right, all_bytes, wrong = {'nearly': 1.0, 'unknown': 0.0}, 0, 0, collections.Counter()
    for i, s in enumerate(truth['steps']):
        points = [(f'{p["name"]} {p["micro_batch"]} {end}', p[end]) for p in s['phases'] for end in ('from_call', 'to_call')]
        for what, call in points + [('peak', peak_call(truth, s))]:
            got, bad = compare(books, truth, call)
            wrong |= bad
            total = sum(n for (own, _), n in got.items() if own and own != 'never other')
            all_bytes += total
            all_right += sum(n for (own, cls), n in got.items() if own == cls)
            for c in EXACT:
                own = sum(n for (o, _), n in got.items() if o == c)
                mine = sum(n for (o, k), n in got.items() if k == c and o != 'never other') - got['never other', c]
                if own != mine or got[c, c] != own:
                    faults.append(f'step {i}, {what}: {c} {mine} bytes, right of them {got[c, c]}, by the account {own}')
            nearly = sum(n for (o, _), n in got.items() if o in NEARLY)
            if nearly:
                share = sum(got[c, c] for c in NEARLY) / nearly
                worst['nearly'] = min(worst['nearly'], share)
                if share < LEAST_NEARLY:
                    faults.append(f'step {i}, {what}: activations {share:.4f} right')
            unknown = sum(n for (o, k), n in got.items() if o and k == 'unknown') / max(total, 1)
            worst['unknown'] = max(worst['unknown'], unknown)
            if unknown > MOST_UNKNOWN:
                faults.append(f'step {i}, {what}: {unknown:.4f} unknown')
    worst['bytes'] = all_right / max(all_bytes, 1)
    worst['wrong'] = wrong
    return worst


def judge_time(books, truth, faults):
    """Steps, phases, FLOPs."""
    want = [(i, p['name'], p['micro_batch'], p['from_call'], p['to_call']) for i, s in enumerate(truth['steps']) for p in s['phases']]
    if len(books.steps) != len(truth['steps']):
        faults.append(f'{len(books.steps)} steps, by the account {len(truth["steps"])}')
    elif [m for m, _, _ in books.steps] != [s['micro_batches'] for s in truth['steps']]:
        faults.append(f'micro-batches {[m for m, _, _ in books.steps]}')
    if books.phases != want:
        first = next((f'{g} for {w}' for g, w in itertools.zip_longest(books.phases, want) if g != w))
        faults.append(f'phases: {first}')
    for i, s in enumerate(truth['steps']):
        for phase, flops in s['flops'].items():
            if books.flops[i, phase] != flops:
                faults.append(f'step {i}: {phase} {books.flops[i, phase]} FLOPs, by the account {flops}')
    evaluated = sum(e['flops'] for e in truth['evaluations'])
    if books.flops[None, 'evaluation'] != evaluated:
        faults.append(f'evaluation {books.flops[None, "evaluation"]} FLOPs, by the account {evaluated}')
    if sum(books.flops.values()) != evaluated + sum(f for s in truth['steps'] for f in s['flops'].values()):
        faults.append('FLOPs that are nowhere in the account')


def blank(path, out):
    """The trace of the same program without PTX: its translation units have no text; names and parameters come from machine code."""
    shutil.copy(path, out)
    with contextlib.closing(sqlite3.connect(out)) as db:
        db.execute('update module set hash = null')
        db.execute('delete from ptx')
        db.commit()
    must(ACCT, 'analyze', out)


def kept(folder, kept_in):
    """The trace and the account of an earlier run, analysed anew."""
    for name in ('a.db', 'truth.json'):
        shutil.copy(os.path.join(kept_in, name), folder)
    must(ACCT, 'analyze', os.path.join(folder, 'a.db'))
    with open(os.path.join(folder, 'truth.json')) as f:
        return os.path.join(folder, 'a.db'), json.load(f)


def judge(r, folder, kept_in=None):
    """(faults, figures) of one run."""
    db, truth = kept(folder, kept_in) if kept_in else record(r, folder)
    faults, books = [], Books(db)
    judge_time(books, truth, faults)
    if truth['options']['alloc'] == 'pool':
        truth = as_static(truth) if looks_static(truth) else as_seen(books, truth)
    figures = judge_memory(books, truth, faults)
    blanked = os.path.join(folder, 'blank.db')
    blank(db, blanked)
    blind = Books(blanked)
    blind_figures = judge_memory(blind, truth, [])
    figures['blind'] = blind_figures['bytes']
    figures['blind_wrong'] = blind_figures['wrong']
    if figures['blind'] < LEAST_BLIND and truth['options']['alloc'] != 'pool':
        faults.append(f'without PTX {figures["blind"]:.4f} of the bytes right')
    if blind.guessed and not blind.mean_confidence < books.mean_confidence:
        faults.append(f'without PTX confidence {blind.mean_confidence:.4f}, with it {books.mean_confidence:.4f}')
    figures['confidence'] = books.mean_confidence, blind.mean_confidence
    return faults, figures


# ---- all of them ----------------------------------------------------------------------------------------------------------------
def memory_folder():
    import tempfile
    return tempfile.mkdtemp(prefix='matrix', dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)


def one(job):
    number, r, keep, again = job
    folder = memory_folder()
    try:
        return number, r, *judge(r, folder, again and os.path.join(again, str(number)))
    except Failed as e:
        return number, r, [str(e)], None
    finally:
        if keep:
            shutil.copytree(folder, os.path.join(keep, str(number)), dirs_exist_ok=True)
        shutil.rmtree(folder)


def show(results, seconds):
    """Failures by name, then the table."""
    failed = [x for x in results if x[2]]
    for number, r, faults, figures in failed:
        print(f'\nrun {number}: {name_of(r)}\n  train {" ".join(options_of(r))}')
        for f in faults[:4] + ([f'… {len(faults) - 4} more'] if len(faults) > 4 else []):
            print(f'  {f}')
        if figures:
            for kind in ('wrong', 'blind_wrong') if figures['blind'] < LEAST_BLIND else ('wrong',):
                for (name, own, cls, rule), n in figures[kind].most_common(5):
                    print(f'  {kind.replace("_", " ")}: {name} is {own}, not {cls} ({rule}): {n} bytes')
    known = [x for x in results if x[3]]
    print(f'\n{"allocations":12} {"runs":>5} {"pass":>5} {"activations":>12} {"unknown":>8} {"bytes right":>12} {"without PTX":>12} {"confidence":>16}')
    for alloc in AXES['alloc'] + ['all']:
        rows = [x for x in results if alloc in ('all', x[1][NAMES.index('alloc')])]
        fig = [x[3] for x in rows if x[3]]
        if not fig:
            continue
        mean = lambda i: sum(f['confidence'][i] for f in fig) / len(fig)
        print(f'{alloc:12} {len(rows):5} {sum(not x[2] for x in rows):5} {min(f["nearly"] for f in fig):12.4f} {max(f["unknown"] for f in fig):8.4f} '
              f'{min(f["bytes"] for f in fig):12.4f} {min(f["blind"] for f in fig):12.4f} {mean(0):8.3f} {mean(1):7.3f}')
    print(f'(the worst of each; confidence: mean, with and without PTX)   {seconds:.0f} s')
    print(f'matrix: {len(results) - len(failed)} of {len(results)} runs pass' + ('' if len(known) == len(results) else f'; {len(results) - len(known)} could not run'))
    return len(failed)


def main(argv):
    import argparse, multiprocessing
    p = argparse.ArgumentParser(description='train under acct over its choices, against its own account')
    p.add_argument('--runs', type=int, default=120)
    p.add_argument('--only', default='', help='runs whose name has all of these words')
    p.add_argument('--number', type=int, action='append')
    p.add_argument('--keep', help='leave traces and accounts in this folder')
    p.add_argument('--again', help='analyse anew what was kept there')
    a = p.parse_args(argv)
    jobs = [(i, r, a.keep, a.again) for i, r in enumerate(covering(a.runs)) if all(w in name_of(r).split() for w in a.only.split()) and (not a.number or i in a.number)]
    begin, results = time.time(), []
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for x in pool.imap_unordered(one, jobs):
            results.append(x)
            print('F' if x[2] else '.', end='', flush=True)
    return 1 if show(sorted(results), time.time() - begin) or not results else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
