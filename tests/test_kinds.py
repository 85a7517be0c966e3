"""Programs with kernels of their own, run for real under acct (tests/programs/kinds_*.cu): each tells the classes of its tensors, its
steps and the FLOPs of its products, and the analysis has to find the same without it; then again with the kernels' PTX taken out
of the trace, as of a program that ships machine code only."""
import concurrent.futures, json, os, shutil, signal, sqlite3
import pytest
from conftest import BUILD, run

ACCT, PROGRAM = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'tests', 'kinds')

PROGRAMS = """
model=gpt attention=1 loss=in_place opt=block
model=gpt attention=1 alloc=malloc zero=none
model=gpt attention=1 dx=last loss=fused
model=gpt opt=master slabs=1 accum=2
model=gpt opt=master_copy slabs=1 accum=2 zero=beta
dtype=autocast norm=1 accum=2 alloc=malloc zero=none eval_every=2
dtype=autocast norm=1 layers=3
opt=foreach zero=none alloc=malloc accum=2 sum=add lazy=1
model=gpt opt=foreach zero=none alloc=malloc accum=2 sum=add attention=1
opt=list layers=3 lazy=1 zero=none alloc=async
model=gpt attention=1 recompute=block accum=4 alloc=malloc
model=gpt attention=1 recompute=block accum=4
model=gpt recompute=gelu loss=in_place
model=gpt recompute=gelu alloc=malloc accum=2
program=gan
program=gan alloc=malloc zero=none opt=momentum
model=gpt lora=4 accum=2 eval_every=2
model=gpt lora=4 alloc=malloc recompute=none zero=none
model=gpt frozen=1 frozen_head=1
layers=3 frozen=2 alloc=malloc
program=autoencoder
program=autoencoder alloc=malloc zero=none
twice=1 layers=3
twice=1 layers=3 alloc=malloc recompute=block
model=gpt tied=1 attention=1
model=gpt tied=1 alloc=malloc zero=none
skip=0 steps=4 model=gpt
skip=2 alloc=malloc zero=none accum=2
skip=4 steps=5 zero=beta
skip=13 steps=6 accum=2 model=gpt
cut=forward model=gpt
cut=backward model=gpt alloc=malloc
cut=second accum=2 layers=3
cut=backward accum=2 layers=3 zero=beta
eval=first model=gpt
eval_every=1 model=gpt
eval_every=2 ema=1 eval_with=ema
eval_every=2 ema=1 eval_with=swap model=gpt
eval_every=2 alloc=malloc last_eval=3
model=gpt sample=2 attention=1
model=gpt sample=1 loss=in_place batch=2
decay=1 opt=sgd model=gpt
decay=1 eval_every=2
clip=1 model=gpt
clip=1 zero=none alloc=malloc opt=momentum
clip=1 skip=- opt=sgd layers=3
steps=1 model=gpt
steps=1 opt=momentum
steps=2 model=gpt
layers=1
dim=32 batch=4 seq=8 vocab=32 layers=3
warm=1 model=gpt
data=fixed model=gpt
data=double model=gpt accum=2
data=double layers=3 alloc=malloc
opt=muon model=gpt
opt=muon alloc=malloc zero=none layers=3
opt=muon model=gpt nesterov=1 alloc=malloc zero=none
opt=muon nesterov=1 layers=3
in_backward=1 zero=none opt=sgd model=gpt
in_backward=1 zero=none alloc=malloc layers=3
model=gpt positions=4 batch=4
model=gpt opt=list lazy=1 clip=1 ema=1 eval_every=2 eval_with=ema recompute=gelu
model=gpt lora=4 recompute=block accum=2 alloc=async zero=none
model=gpt tied=1 recompute=block attention=1 opt=momentum alloc=malloc
model=gpt opt=master zero=none alloc=malloc recompute=block accum=2 lazy=1
program=one_after_another
program=one_after_another alloc=malloc zero=none opt=momentum
program=in_turn
program=in_turn opt=sgd alloc=malloc
model=bn opt=momentum eval_every=2
model=bn alloc=malloc zero=none
program=infer
program=infer alloc=malloc
program=cache steps=8
model=conv
model=conv alloc=malloc opt=momentum accum=2
model=gpt warm=1 unused=1 eval=first eval_every=2 sample=2 clip=1 ema=1 accum=2 checkpoint=2 skip=1 steps=6 attention=1
"""


def trace(folder, options):
    """Runs the program under acct; its account, and the trace."""
    path = str(folder / 't.db')
    r = run(ACCT, 'run', '--vgpu', '-o', path, '--', PROGRAM, *['train=0'] * ('program=infer' in options or 'program=cache' in options), *options.split())
    assert r.returncode == (128 + signal.SIGINT if 'cut=' in options else 0), r.stderr
    return json.loads(r.stdout), path


def without_ptx(path):
    """The same trace, had the program shipped machine code only."""
    blind = path + '.blind'
    shutil.copy(path, blind)
    db = sqlite3.connect(blind)
    db.execute("UPDATE module SET hash = NULL, why = 'machine code only'")
    db.commit()
    db.close()
    r = run(ACCT, 'analyze', blind)
    assert r.returncode == 0, r.stderr
    return blind


def classes(account, db):
    """[(tensor of the account, {class: bytes}, [(class, confidence, rule)])], tensors in the account's order."""
    allocs = db.execute("SELECT id, address, bytes FROM alloc WHERE memory IN ('device', 'async') ORDER BY id").fetchall()
    found = {}
    for alloc, lo, n, cls, confidence, rule in db.execute('SELECT alloc, offset, bytes, class, confidence, rule FROM alloc_class'):
        found.setdefault(alloc, []).append((lo, lo + n, cls, confidence, rule))
    out = []
    for x in account['tensors']:
        alloc, address, _ = allocs[x['allocation']]
        assert address + x['offset'] == x['address']
        rows = [(min(hi, x['offset'] + x['bytes']) - max(lo, x['offset']), *rest) for lo, hi, *rest in found[alloc]
                if lo < x['offset'] + x['bytes'] and hi > x['offset']]
        assert sum(r[0] for r in rows) == x['bytes']
        have = {}
        for r in rows:
            have[r[1]] = have.get(r[1], 0) + r[0]
        out.append((x, have, [r[1:] for r in rows]))
    return out


def wrong_classes(account, db):
    return sorted({(x['name'], x['class'], *r) for x, _, rows in classes(account, db) for r in rows if r[0] not in x['class'].split('|')})


def share_right(account, db):
    all_of_it = right = 0
    for x, have, _ in classes(account, db):
        all_of_it += x['bytes']
        right += sum(n for c, n in have.items() if c in x['class'].split('|'))
    return right / all_of_it


PHASES = 'forward', 'recompute', 'backward', 'optimizer'


def steps(db):
    out = []
    for i, m, rows in db.execute('SELECT id, micro_batches, tokens FROM step ORDER BY id').fetchall():
        flops = dict(db.execute('SELECT phase, sum(matmul_flops) FROM op_cost WHERE matmul AND step = ? GROUP BY phase', (i,)))
        out.append({**{p: flops.get(p, 0) for p in PHASES}, 'micro_batches': m, 'rows': rows})
    return out


def live_at_ends(account, db):
    """[{class: bytes}] at the end of each step, by the trace: of the account's tensors (not the room between those in one block), and
    not of what the program gives back before it does anything else. What may be one class or another is left out."""
    allocs = db.execute("SELECT alloc_ns, free_ns FROM alloc WHERE memory IN ('device', 'async') ORDER BY id").fetchall()
    tensors = [(*allocs[x['allocation']], have) for x, have, _ in classes(account, db) if '|' not in x['class']]
    out = []
    for (end,) in db.execute('SELECT end_ns FROM step ORDER BY id').fetchall():
        (until,) = db.execute("SELECT coalesce(min(start_ns), 1 << 62) FROM op WHERE start_ns > ? AND kind NOT IN ('free', 'event')", (end,)).fetchone()
        sums = {}
        for born, dead, have in tensors:
            if born > end or (dead is not None and dead < until):
                continue
            for cls, n in have.items():
                sums[cls] = sums.get(cls, 0) + n
        out.append(sums)
    return out


def account_at_ends(account):
    out = []
    for s in account['steps']:
        sums = {}
        for i in s['live']:
            x = account['tensors'][i]
            if '|' not in x['class']:
                sums[x['class']] = sums.get(x['class'], 0) + x['bytes']
        out.append(sums)
    return out


def told(account):
    return [{k: v for k, v in s.items() if k != 'live'} for s in account['steps']]


@pytest.fixture(scope='module')
def traces(tmp_path_factory, request):
    """options: (account, trace, trace without PTX); each program runs once, two at a time, those of the tests chosen."""
    folder = tmp_path_factory.mktemp('kinds')

    def one(options):
        mine = folder / options.replace(' ', '_')
        mine.mkdir()
        account, path = trace(mine, options)
        return account, path, without_ptx(path)
    chosen = dict.fromkeys(i.callspec.params['options'] for i in request.session.items if i.fspath == request.node.fspath)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return {options: pool.submit(one, options) for options in chosen}


@pytest.mark.parametrize('options', PROGRAMS.strip().splitlines())
def test_kind(traces, options):
    account, path, _ = traces[options].result()
    db = sqlite3.connect(path)
    assert wrong_classes(account, db) == []
    assert steps(db) == told(account)
    # (A step that was cut off has no end.)
    ends = account_at_ends(account)
    assert [a for a, b in zip(live_at_ends(account, db), ends) if b] == [b for b in ends if b]


@pytest.mark.parametrize('options', PROGRAMS.strip().splitlines())
def test_kind_without_ptx(traces, options):
    account, _, path = traces[options].result()
    db = sqlite3.connect(path)
    assert share_right(account, db) >= 0.95


if __name__ == '__main__':
    # python3 tests/test_kinds.py [PATTERN]: figures of each program, with PTX and without
    import pathlib, sys, tempfile

    def figures(options):
        with tempfile.TemporaryDirectory() as d:
            account, path = trace(pathlib.Path(d), options)
            db = sqlite3.connect(path)
            blind = sqlite3.connect(without_ptx(path))
            return (options, wrong_classes(account, db), steps(db), told(account), share_right(account, db), share_right(account, blind),
                    steps(blind) == told(account), wrong_classes(account, blind), steps(blind),
                    [(a, b) for a, b in zip(live_at_ends(account, db), account_at_ends(account)) if b and a != b])

    pattern = sys.argv[1] if len(sys.argv) > 1 else ''
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for options, wrong, have, want, share, blind, blind_steps, blind_wrong, blind_have, live in pool.map(
                figures, [p for p in PROGRAMS.strip().splitlines() if pattern in p]):
            print(f'{options}: {share:.4f} blind {blind:.4f}', '' if have == want else 'STEPS', '' if blind_steps else 'blind steps', 'LIVE' if live and not wrong else '')
            for w in wrong:
                print('    ', *w)
            if have != want:
                print('     have', *have, '     want', *want, sep='\n      ')
            if '-b' in sys.argv:
                for w in blind_wrong:
                    print('     blind', *w)
                if not blind_steps:
                    print('     blind have', *blind_have, '     want', *want, sep='\n      ')
            if live and not wrong:
                print('     live', *live, sep='\n       ')
