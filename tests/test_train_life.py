"""What `train` does beside the arithmetic of a step: its text and its batches, evaluation, generated text, checkpoints. Runs
on the virtual GPU."""
import ast, json, os, random, re, signal, socket, sqlite3, struct, subprocess, time
import numpy as np
import pytest
import reference_gpt as gpt
import reference_linear as linear
from conftest import BUILD, DEVICE, MAY_MOUNT, run

TRAIN = os.path.join(BUILD, 'train')
TEXT_FILE = '/usr/share/common-licenses/GPL-3'
TEXT = open(TEXT_FILE, 'rb').read()
EVALUATION, SAMPLE = 2, 3      # purposes of random numbers, after WEIGHTS and WINDOWS
SMALL = {'gpt': ['--layers', 2, '--dim', 32, '--heads', 2, '--seq', 16, '--batch', 2],
         'linear': ['--model', 'linear', '--layers', 2, '--dim', 16, '--batch', 4]}
L, C, H, T, B = 2, 32, 2, 16, 2   # of the small gpt
FOREVER = ('--steps', 1000000000)


def train(*options, **kw):
    r = run(TRAIN, *options, env=DEVICE, **kw)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def refused(*options, code=1, **kw):
    """The one line that says why."""
    r = run(TRAIN, *options, env=DEVICE, timeout=30, **kw)
    assert r.returncode == code, r
    assert re.fullmatch(r'train: [^\n]+\n', r.stderr), r.stderr
    return r.stderr


def steps_of(output):
    """The loss of each step, as printed, and what was printed of steps that were skipped."""
    return re.findall(r'^(step \d+ (?:loss \S+|skipped.*?))(?: ms .*)?$', output, re.M)


def lines_of(output, word):
    return re.findall(rf'^{word} step \d+ .*$', output, re.M)


def draw(seed, purpose, index, B, window, first, tokens):
    """Where the windows of a batch begin, windows of `window` tokens among `tokens` from `first` on."""
    windows = np.arange(index * B, (index + 1) * B, dtype=np.uint64)
    return [first + int(w) for w in linear.splitmix64(linear.subkey(seed, purpose), windows) % np.uint64(tokens - window + 1)]


def batch_at(text, offsets, T):
    rows = np.array([[int(t) for t in text[o:o + T + 1]] for o in offsets])
    return rows[:, :-1], rows[:, 1:]


def dumped_batch(path, B, T):
    raw = open(path, 'rb').read().split(b'\n', 1)[1]
    return np.frombuffer(raw[:8 * B * T], '<i4').reshape(2, B, T)


# ---- the text and its batches ---------------------------------------------------------------------------------------

def test_a_text_larger_than_memory(tmp_path):
    """A sparse file, with something to see where the windows of the first step are; as much memory as for a small file."""
    total = int(re.search(r'MemTotal: +(\d+) kB', open('/proc/meminfo').read()).group(1)) * 1024
    size, seed, steps = max(64 << 30, 2 * total), 7, 60
    text, small, dump = tmp_path / 'text', tmp_path / 'small', tmp_path / 'dump'
    with open(text, 'wb') as f:
        f.truncate(size)
    small.write_bytes(bytes(1 << 20))
    offsets = draw(seed, linear.WINDOWS, 0, B, T + 1, 0, size)
    assert max(offsets) > 4 << 30
    mark = np.random.default_rng(1).integers(1, 256, (B, T + 1)).astype(np.uint8)
    with open(text, 'r+b') as f:
        for o, m in zip(offsets, mark):
            os.pwrite(f.fileno(), m.tobytes(), o)

    def peak(file, *more):
        p = subprocess.Popen([TRAIN, *map(str, SMALL['gpt']), '--seed', str(seed), '--steps', str(steps), '--data', str(file), *map(str, more)],
                             env={**os.environ, **DEVICE}, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        assert status == 0
        return usage.ru_maxrss * 1024

    more = peak(text, '--dump-gradients', dump) - peak(small)
    assert more < 64 << 20, f'{more} bytes more than with a text of 1 MiB'
    tokens, targets = dumped_batch(dump, B, T)
    assert np.array_equal(tokens, mark[:, :-1]) and np.array_equal(targets, mark[:, 1:])
    assert os.stat(text).st_blocks * 512 < 1 << 20


def two_byte_text(path, n, vocabulary):
    tokens = np.random.default_rng(2).integers(0, vocabulary, n).astype('<u2')
    path.write_bytes(tokens.tobytes())
    return tokens


def test_tokens_of_two_bytes(tmp_path):
    text, dump = tmp_path / 'text', tmp_path / 'dump'
    tokens = two_byte_text(text, 5000, 1000)
    assert tokens.max() > 990
    for step in (1, 3):
        train(*SMALL['gpt'], '--vocab', 1000, '--data', text, '--steps', 3, '--seed', 5, '--dump-gradients', dump, '--dump-step', step)
        expected = batch_at(tokens, draw(5, linear.WINDOWS, step - 1, B, T + 1, 0, len(tokens)), T)
        assert np.array_equal(dumped_batch(dump, B, T), expected)


def test_a_token_beyond_the_vocabulary(tmp_path):
    text = tmp_path / 'text'
    tokens = two_byte_text(text, T + 1, 1000)      # one window alone, so that every batch has the token
    tokens[11] = 1000
    text.write_bytes(tokens.tobytes())
    why = refused(*SMALL['gpt'], '--vocab', 1000, '--data', text, *FOREVER)
    assert f'the text {text} has token 1000 at byte 22; with --vocab 1000 the last one is 999' in why
    text.write_bytes(b'a' * 5 + b'z' + b'a' * 20)
    why = refused(*SMALL['gpt'], '--vocab', 100, '--seq', 25, '--data', text, *FOREVER)
    assert f'the text {text} has token 122 at byte 5; with --vocab 100' in why


def test_a_text_of_odd_size_has_no_tokens_of_two_bytes(tmp_path):
    text = tmp_path / 'text'
    text.write_bytes(b'a' * 1001)
    assert f'the text {text} has 1001 bytes, an odd number' in refused(*SMALL['gpt'], '--vocab', 257, '--data', text, *FOREVER)
    text.write_bytes(b'\0' * 32)                   # 16 tokens, and a window needs 17
    assert f'the text {text} has 16 tokens, a window needs 17' in refused(*SMALL['gpt'], '--vocab', 257, '--data', text, *FOREVER)


@pytest.mark.parametrize('accum', [1, 3])
def test_windows_of_accumulated_batches(tmp_path, accum):
    """Batch k of step s is number (s - 1) * K + k; a dump has the last one of its step."""
    dump = tmp_path / 'dump'
    train(*SMALL['gpt'], '--accum', accum, '--steps', 4, '--seed', 3, '--dump-gradients', dump, '--dump-step', 4)
    index = 4 * accum - 1
    expected = batch_at(TEXT, draw(3, linear.WINDOWS, index, B, T + 1, 0, len(TEXT)), T)
    assert np.array_equal(dumped_batch(dump, B, T), expected)


@pytest.mark.parametrize('late', ['device', 'copies'])
def test_slots_are_kept_in_order_by_events_alone(tmp_path, late):
    """A device, or copies, far behind the host, which never waits for them: every batch is seen whole, once, in its turn."""
    text, out, count, B, window = tmp_path / 'text', tmp_path / 'out', 24, 3, 50
    tokens = two_byte_text(text, 20000, 30000)
    r = run(os.path.join(BUILD, 'tests', 'batch_order'), text, 30000, B, window, count, 8, out, late, env=DEVICE)
    assert r.returncode == 0 and not r.stderr, r
    expected = [tokens[o:o + window] for i in range(count) for o in draw(8, linear.WINDOWS, i, B, window, 0, len(tokens))]
    assert np.array_equal(np.fromfile(out, '<i4').reshape(count * B, window), expected)


def test_copies_go_on_another_stream_while_the_device_works(tmp_path):
    """Each batch but the first is on its way before the host waits for the step before it, and on some step before the
    device has done with that."""
    trace, steps = tmp_path / 't.db', 8
    r = run(os.path.join(BUILD, 'acct'), 'run', '-o', trace, '--vgpu', '--', TRAIN, '--steps', steps, '--layers', 2, '--batch', 4)
    assert r.returncode == 0, r
    db = sqlite3.connect(trace)
    compute, = {s for s, in db.execute("select distinct stream from op where kind = 'launch' and stream is not null")}
    ops = db.execute("""select kind, stream from op where kind = 'launch' or (kind = 'copy' and act = 'h2d') or
                        (kind = 'sync' and act = 'stream') order by id""").fetchall()
    copies = [i for i, (kind, _) in enumerate(ops) if kind == 'copy']
    assert len(copies) == steps and len({ops[i][1] for i in copies}) == 1 and ops[copies[0]][1] != compute
    for before, after in zip(copies, copies[1:]):
        between = ops[before + 1:after]
        last = max(i for i, (kind, _) in enumerate(between) if kind == 'launch')
        assert ('sync', compute) not in between[last:], 'the host waited for the step before it staged the next batch'
    uploads = db.execute("select start_ns from activity where kind = 'copy' and copy_kind = 1 order by start_ns").fetchall()
    kernels = {s for s, in db.execute("select distinct stream from activity where kind = 'kernel'")}
    ours = {s for s, in db.execute("select distinct stream from activity where kind = 'copy' and copy_kind = 1")}
    assert len(uploads) == steps and kernels and not ours >= kernels
    # Whether a copy falls into a kernel or between two is the scheduler's choice; it need not wait for the step's last one.
    ends = [db.execute("""select max(a.end_ns) from activity a join correlation c on c.id = a.correlation join launch l on l.external = c.external
                          where a.kind = 'kernel' and l.op < (select id from op where kind = 'copy' and act = 'h2d' order by id limit 1 offset ?)""",
                       (i,)).fetchone()[0] for i in range(1, steps)]
    assert any(t < end for (t,), end in zip(uploads[1:], ends)), 'every copy waited for the step before it'


# ---- evaluation and seeds -------------------------------------------------------------------------------------------

TRAINING_TOKENS = len(TEXT) - len(TEXT) // 10


def test_evaluation_is_of_the_last_tenth_and_training_of_the_rest(tmp_path):
    """With --lr 0 the weights stay what they were, so the double-precision reference has both losses."""
    out = train(*SMALL['gpt'], '--steps', 4, '--lr', 0, '--seed', 9, '--eval-every', 2, '--eval-batches', 3)
    p = gpt.draw_parameters(9, L, C, T)
    batches = [batch_at(TEXT, draw(9, EVALUATION, i, B, T + 1, TRAINING_TOKENS, len(TEXT) - TRAINING_TOKENS), T) for i in range(3)]
    expected = np.mean([gpt.loss(p, *b, H) for b in batches])
    got = re.findall(r'^eval step (\d+) loss (\S+)$', out, re.M)
    assert [int(s) for s, _ in got] == [2, 4]
    assert [float(x) for _, x in got] == pytest.approx([expected] * 2, rel=1e-6)
    losses = [float(s.split()[-1]) for s in steps_of(out)]
    assert losses == pytest.approx([gpt.loss(p, *batch_at(TEXT, draw(9, linear.WINDOWS, i, B, T + 1, 0, TRAINING_TOKENS), T), H)
                                    for i in range(4)], rel=1e-6)


@pytest.mark.parametrize('model', ['gpt', 'linear'])
def test_evaluation_and_samples_leave_training_alone(tmp_path, model):
    options = [*SMALL[model], '--steps', 6, '--accum', 2]
    sample = ['--sample'] if model == 'gpt' else []
    outs = [train(*options, '--eval-every', n, *more, '--save', tmp_path / f'c{i}')
            for i, (n, more) in enumerate([(1, sample), (4, []), (100, [])])]
    assert len(steps_of(outs[0])) == 6
    assert steps_of(outs[0]) == steps_of(outs[1]) == steps_of(outs[2])
    assert len({(tmp_path / f'c{i}').read_bytes() for i in range(3)}) == 1
    assert lines_of(outs[0], 'eval')[3] in lines_of(outs[1], 'eval')      # of step 4 in both


def test_a_text_too_short_for_evaluation(tmp_path):
    text = tmp_path / 'text'
    text.write_bytes(b'a' * 169)               # a tenth of it has 16 tokens, a window 17
    assert f'the text {text} is too short for --eval-every' in refused(*SMALL['gpt'], '--data', text, '--eval-every', 1, *FOREVER)
    text.write_bytes(b'a' * 170)
    train(*SMALL['gpt'], '--data', text, '--eval-every', 1, '--steps', 1)


def test_a_seed_decides_all(tmp_path):
    options = [*SMALL['gpt'], '--steps', 5, '--eval-every', 2, '--sample', '--accum', 2]
    outs = [train(*options, '--seed', s, '--save', tmp_path / f'c{i}') for i, s in enumerate((5, 5, 6))]
    for f in (steps_of, lambda o: lines_of(o, 'eval'), lambda o: lines_of(o, 'sample')):
        a, b, other = map(f, outs)
        assert a == b and a and all(x != y for x, y in zip(a, other))
    files = [(tmp_path / f'c{i}').read_bytes() for i in range(3)]
    assert files[0] == files[1] != files[2]


# ---- generated text -------------------------------------------------------------------------------------------------

def text_in(line):
    return ast.literal_eval('b' + re.fullmatch(r'sample step \d+ (".*")', line).group(1))


def expected_sample(p, seed, step, prompt, T, H):
    """Drawn by the reference, as README.md says."""
    key = linear.subkey(linear.subkey(seed, SAMPLE), step)
    tokens = list(prompt)
    while len(tokens) <= T:
        row = np.array([tokens])
        probabilities = gpt.forward(p, row, row, H)[4][0, -1]
        u = float(linear.splitmix64(key, [len(tokens) - len(prompt)])[0] >> np.uint64(11)) * 2.0**-53
        tokens.append(int(np.searchsorted(np.cumsum(probabilities), u, side='right')))
    return bytes(tokens[len(prompt):])


@pytest.mark.parametrize('evaluation', [False, True])
def test_samples_are_draws_from_the_model(evaluation):
    out = train(*SMALL['gpt'], '--steps', 2, '--lr', 0, '--seed', 4, '--sample', *(['--eval-every', 1] if evaluation else []))
    p, first = gpt.draw_parameters(4, L, C, T), TRAINING_TOKENS if evaluation else 0
    lines = lines_of(out, 'sample')
    assert lines
    for line in lines:
        step = int(line.split()[2])
        assert text_in(line) == expected_sample(p, 4, step, TEXT[first:first + T // 2], T, H)


def test_a_trained_model_goes_on_with_its_text(tmp_path):
    """A text of one repeated word leaves little to choose: nearly each byte must be the one that follows the byte before."""
    text, word = tmp_path / 'text', b'"cuda\\\n\xff'
    text.write_bytes(word * 500)
    out = train(*SMALL['gpt'], '--data', text, '--steps', 150, '--batch', 8, '--lr', 0.01, '--sample', '--print-every', 1000)
    sample = text_in(lines_of(out, 'sample')[-1])
    follows = dict(zip(word, word[1:] + word[:1]))
    right = [follows.get(a) == b for a, b in zip(word[7:8] + sample, sample)]     # the prompt ends with the word
    assert len(right) == T + 1 - T // 2
    assert sum(right) >= len(right) - 1, sample


def test_samples_of_a_large_vocabulary_are_numbers(tmp_path):
    text = tmp_path / 'text'
    two_byte_text(text, 1000, 300)
    out = train(*SMALL['gpt'], '--vocab', 300, '--data', text, '--steps', 1, '--sample')
    numbers = re.fullmatch(r'sample step \d+ "([\d ]+)"', lines_of(out, 'sample')[-1]).group(1).split(' ')
    assert len(numbers) == T + 1 - T // 2 and all(0 <= int(n) < 300 for n in numbers)


# ---- checkpoints: going on ------------------------------------------------------------------------------------------

CASES = [('gpt', 'fp32', 'adamw', []), ('gpt', 'fp32', 'sgd', ['--accum', 2, '--untied', '--clip', 0.5]),
         ('gpt', 'tf32', 'adagrad', ['--eval-every', 3, '--sample']), ('gpt', 'bf16', 'adam', ['--accum', 2]),
         ('gpt', 'fp16', 'momentum', ['--clip', 1]), ('gpt', 'fp8', 'rmsprop', []), ('linear', 'fp32', 'momentum', []),
         ('linear', 'fp32', 'adamw', ['--eval-every', 2]), ('linear', 'bf16', 'adagrad', ['--accum', 3]), ('linear', 'fp16', 'adam', [])]


@pytest.mark.parametrize('model,dtype,optimizer,more', CASES, ids=['-'.join(c[:3]) for c in CASES])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, model, dtype, optimizer, more):
    whole, half, rest = (tmp_path / n for n in ('whole', 'half', 'rest'))
    options = [*SMALL[model], '--dtype', dtype, '--optimizer', optimizer, *more]
    a = train(*options, '--steps', 8, '--save', whole)
    first = train(*options, '--steps', 5, '--save', half)
    second = train(*options, '--steps', 8, '--resume', half, '--save', rest)
    assert f'resumed {half} at step 5' in second
    assert len(re.findall(r'^step \d+ loss', a, re.M)) == 8
    assert steps_of(first) + steps_of(second) == steps_of(a)
    for word in ('eval', 'sample'):
        both = lines_of(first, word) + lines_of(second, word)
        assert set(lines_of(a, word)) <= set(both)     # the first half may have one more, at its end
    assert rest.read_bytes() == whole.read_bytes()
    assert whole.read_bytes() != half.read_bytes()


def test_memory_choices_and_rate_may_differ(tmp_path):
    """What decides where bytes lie, not what is in them; and the learning rate, which people change."""
    half, out = tmp_path / 'half', []
    train(*SMALL['gpt'], '--steps', 3, '--save', half)
    plain = steps_of(train(*SMALL['gpt'], '--steps', 6, '--resume', half))
    assert len(plain) == 3
    for more in (['--alloc', 'class'], ['--alloc', 'step', '--zero-grad', 'none'], ['--alloc', 'pool', '--recompute', 'full'],
                 ['--print-every', 1, '--save', tmp_path / 'x', '--save-every', 2, '--truth', tmp_path / 't']):
        assert steps_of(train(*SMALL['gpt'], '--steps', 6, '--resume', half, *more)) == plain, more
    other = steps_of(train(*SMALL['gpt'], '--steps', 6, '--resume', half, '--lr', 0.01))
    assert other[0] == plain[0] and other[1:] != plain[1:]


def test_the_same_text_may_have_another_name(tmp_path):
    half, copy = tmp_path / 'half', tmp_path / 'copy'
    copy.write_bytes(TEXT)
    train(*SMALL['linear'], '--steps', 2, '--save', half)
    a, b = (steps_of(train(*SMALL['linear'], '--steps', 4, '--resume', half, *more)) for more in ([], ['--data', copy]))
    assert len(a) == 2 and a == b


# ---- checkpoints: the file ------------------------------------------------------------------------------------------

POLYNOMIAL = 0xC96C5795D7870F42     # CRC-64/XZ
CRC_TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    CRC_TABLE.append(value)


def crc64(data):
    crc = 2**64 - 1
    for b in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ b) & 255]
    return crc ^ 2**64 - 1


def sealed(body):
    """With the checksum, and the size where it belongs."""
    body = re.sub(rb'\nbytes \d+\n', b'\nbytes %020d\n' % (len(body) + 8), body, count=1)
    return body + struct.pack('<Q', crc64(body))


def read_checkpoint(path):
    raw = path.read_bytes()
    assert crc64(b'123456789') == 0x995DC9BBDF1939FA      # the check value of this checksum
    assert struct.unpack('<Q', raw[-8:])[0] == crc64(raw[:-8])
    head, data = raw[:-8].split(b'\nend\n', 1)
    lines = head.decode().split('\n')
    assert lines[0] == 'train checkpoint 1' and lines[1] == f'bytes {len(raw):020d}'
    tensors, at = {}, 0
    for line in lines:
        if line.startswith('tensor '):
            _, name, form, n = line.split()
            assert name not in tensors
            size = {'fp32': 4, 'bf16': 2, 'fp16': 2}[form]
            tensors[name], at = (form, data[at:at + int(n) * size]), at + int(n) * size
    assert at == len(data)
    return dict(line.split(' ', 1) for line in lines if not line.startswith('tensor ')), tensors


def test_the_file_has_what_the_run_had(tmp_path):
    """The weights after step 3 are those that step 4 dumps; Adam's moments and all choices are there."""
    file, dump = tmp_path / 'file', tmp_path / 'dump'
    options = [*SMALL['gpt'], '--untied', '--seed', 3]
    train(*options, '--steps', 3, '--save', file)
    train(*options, '--steps', 4, '--dump-gradients', dump, '--dump-step', 4)
    lines, tensors = read_checkpoint(file)
    shapes = gpt.shapes(L, C, T, True)
    raw, at = open(dump, 'rb').read().split(b'\n', 1)[1], 8 * B * T
    for name, shape in shapes:
        n = 4 * int(np.prod(shape))
        assert tensors[name] == ('fp32', raw[at:at + n]), name
        at += n
    assert list(tensors) == [m + name for m in ('', 'm.', 'v.') for name, _ in shapes]
    expected = {'step': '3', 'updates': '3', 'skipped': '0', '--model': 'gpt', '--dim': '32', '--seed': '3', '--optimizer': 'adamw',
                '--dtype': 'fp32', '--accum': '1', '--vocab': '256', 'evaluation': 'off'}
    assert {k: lines[k] for k in expected} == expected
    assert lines['text'].startswith(f'{len(TEXT)} bytes, checksum {crc64(TEXT + TEXT):016x}')     # both ends are the whole here
    assert not {'--data', '--save', '--steps', '--alloc', '--lr', '--print-every'} & set(lines)


@pytest.mark.parametrize('dtype,form', [('bf16', 'bf16'), ('fp16', 'fp16')])
def test_master_weights_are_in_the_file(tmp_path, dtype, form):
    file = tmp_path / 'file'
    train(*SMALL['gpt'], '--dtype', dtype, '--optimizer', 'momentum', '--steps', 2, '--save', file)
    _, tensors = read_checkpoint(file)
    names = [name for name, _ in gpt.shapes(L, C, T, False)]
    assert list(tensors) == names + ['master.' + n for n in names] + ['v.' + n for n in names]
    for n in names:
        assert tensors[n][0] == form and tensors['master.' + n][0] == 'fp32'
        master = np.frombuffer(tensors['master.' + n][1], '<f4')
        if form == 'fp16':
            assert np.array_equal(np.frombuffer(tensors[n][1], '<f2'), master.astype('<f2'))
        else:      # to nearest even in the upper half of the bits
            bits = master.view('<u4').astype(np.uint64)
            assert np.array_equal(np.frombuffer(tensors[n][1], '<u2'), (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


# ---- checkpoints: killed while saving -------------------------------------------------------------------------------

def test_killed_while_saving(tmp_path):
    """Again and again: what is there can always be gone on from, and the end is that of a run that was never killed."""
    file, rng = tmp_path / 'file', random.Random(1)
    options = ['--model', 'linear', '--layers', 4, '--dim', 192, '--batch', 4]
    seen, torn, resumed = {}, 0, 0
    for _ in range(30):
        resume = ['--resume', file] if file.exists() else []
        resumed += bool(resume)
        p = subprocess.Popen([str(a) for a in (TRAIN, *options, *FOREVER, '--save', file, '--save-every', 1, *resume)],
                             env={**os.environ, **DEVICE}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = ''
        for first in p.stdout:                                # wait until it trains
            if first.startswith('step '):
                break
        time.sleep(rng.uniform(0, 0.03))
        p.kill()
        out, err = p.communicate()
        assert p.returncode == -signal.SIGKILL and not err, err
        for s in steps_of(first + out):
            assert seen.setdefault(s.split()[1], s) == s      # a step that is done again comes out alike
        left = tmp_path / 'file.saving'
        torn += left.exists() and (not file.exists() or left.stat().st_size != file.stat().st_size)
        assert set(os.listdir(tmp_path)) <= {'file', 'file.saving'}
    assert torn and resumed > 20
    steps = int(re.search(rb'\nstep (\d+)\n', file.read_bytes()).group(1)) + 3
    rest, whole = tmp_path / 'rest', tmp_path / 'whole'
    out = train(*options, '--steps', steps, '--resume', file, '--save', rest)
    expected = steps_of(train(*options, '--steps', steps, '--save', whole))
    assert steps_of(out) == expected[-3:]
    assert rest.read_bytes() == whole.read_bytes()
    for s in expected:
        assert seen.get(s.split()[1], s) == s
    assert not (tmp_path / 'rest.saving').exists()


def test_what_a_killed_save_left_is_taken_over(tmp_path):
    file, clean = tmp_path / 'file', tmp_path / 'clean'
    (tmp_path / 'file.saving').write_bytes(b'x' * 1000000)
    for f in (file, clean):
        train(*SMALL['linear'], '--steps', 2, '--save', f)
    assert file.read_bytes() == clean.read_bytes()
    assert set(os.listdir(tmp_path)) == {'file', 'clean'}


# ---- checkpoints: refused -------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp('saved') / 'file'
    train(*SMALL['linear'], '--steps', 2, '--save', file)
    return file


def refusal(file, *more):
    """Of a resumed run: the reason, which names the file; and nothing was written."""
    folder = os.path.dirname(file)
    open(os.path.join(folder, 'account'), 'w').write('of the run before')
    before = {f: os.lstat(os.path.join(folder, f)).st_mtime_ns for f in os.listdir(folder)}
    why = refused(*SMALL['linear'], *FOREVER, '--resume', file, '--save', os.path.join(folder, 'new'), '--truth', os.path.join(folder, 'account'), *more)
    assert str(file) in why and open(os.path.join(folder, 'account')).read() == 'of the run before'
    assert {f: os.lstat(os.path.join(folder, f)).st_mtime_ns for f in os.listdir(folder)} == before
    return why


def test_every_kind_of_byte_is_checked(tmp_path, saved):
    raw = saved.read_bytes()
    marks = [0, 6, 17, 18, 25, raw.index(b'--dim') + 6, raw.index(b'--seed') + 7, raw.index(b'\nstep') + 6, raw.index(b'loss-scale') + 11,
             raw.index(b'tensor') + 8, raw.index(b'\nend\n') + 2, raw.index(b'\nend\n') + 5, len(raw) // 2, len(raw) - 9, len(raw) - 8, len(raw) - 1]
    for i in sorted(set(marks)):
        file = tmp_path / f'flipped{i}'
        file.write_bytes(raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1:])
        assert re.search('is damaged|is not a checkpoint|is of form', refusal(file)), i
        file.unlink()


def test_a_part_of_a_file_is_no_file(tmp_path, saved):
    raw = saved.read_bytes()
    for n in (0, 1, 16, 18, 19, 30, 45, 46, 60, raw.index(b'\nend\n') + 5, len(raw) // 2, len(raw) - 8, len(raw) - 1):
        file = tmp_path / f'cut{n}'
        file.write_bytes(raw[:n])
        assert re.search('is damaged: it has|is not a checkpoint', refusal(file)), n
        file.unlink()
    file = tmp_path / 'longer'
    file.write_bytes(raw + b'\0')
    assert 'is damaged: it has' in refusal(file)


def test_other_files_are_no_checkpoints(tmp_path):
    (tmp_path / 'text').write_bytes(TEXT)
    (tmp_path / 'program').write_bytes(open('/bin/true', 'rb').read())
    (tmp_path / 'blank').write_bytes(bytes(4096))
    for name in ('text', 'program', 'blank'):
        assert 'is not a checkpoint of train' in refusal(tmp_path / name)
    (tmp_path / 'folder').mkdir()
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'loop').symlink_to('loop')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(tmp_path / 'socket'))
    assert 'is not a regular file' in refusal(tmp_path / 'folder')
    assert 'is not a regular file' in refusal(tmp_path / 'pipe')
    assert 'cannot read the checkpoint' in refusal(tmp_path / 'socket')
    assert 'Too many levels of symbolic links' in refusal(tmp_path / 'loop')
    assert 'No such file or directory' in refusal(tmp_path / 'missing')
    listener.close()


def test_what_is_sealed_but_wrong(tmp_path, saved):
    """A right checksum does not make a right file."""
    body = saved.read_bytes()[:-8]
    first = re.search(rb'tensor (\S+) fp32 (\d+)\n', body)
    wrong = {
        b'train checkpoint 2\n' + body.split(b'\n', 1)[1]: 'is of form 2; this train reads form 1',
        body.replace(b'\nstep 2\n', b'\n'): 'does not tell its step',
        re.sub(rb'\nloss-scale \S+\n', b'\n', body): 'does not tell its loss-scale',
        body.replace(first.group(0), b''): 'does not have the tensors of this model',
        body.replace(first.group(0), first.group(0).replace(b'fp32', b'bf16')): 'does not have the tensors of this model',
        body.replace(first.group(0), b'tensor %s fp32 %d\n' % (first.group(1), int(first.group(2)) + 1)): 'does not have the tensors',
        body + b'\0' * 4: 'does not have the tensors of this model',
        body.replace(b'\nend\n', b'\nendless\n'): 'its description is no text with an end',
        body.replace(b'\nstep 2\n', b'\nstep 2\0'): 'its description is no text with an end',
        body.replace(b'\nstep 2\n', b'\nstep -2\n'): 'its step is -2',
        re.sub(rb'\nloss-scale \S+\n', b'\nloss-scale nan\n', body): 'its loss-scale is nan',
        body.replace(b'\n--seed 1\n', b'\n--seed \xff\n'): 'its description is no text with an end',
        body.replace(b'\nstep 2\n', b'\n--colour green\nstep 2\n'): '--colour is green in the checkpoint',
        body.replace(b'\n--dim 16\n', b'\n'): '--dim is not given in the checkpoint',
    }
    for i, (text, reason) in enumerate(wrong.items()):
        assert text != body
        file = tmp_path / f'wrong{i}'
        file.write_bytes(sealed(text))
        assert reason in refusal(file)
    (tmp_path / 'right').write_bytes(sealed(body))
    assert sealed(body) == saved.read_bytes()


def test_a_sealed_file_of_any_description_ends_well(tmp_path, saved):
    """Bytes of the description changed at random under a right checksum: taken or refused, never a crash."""
    body, rng, codes = saved.read_bytes()[:-8], random.Random(2), []
    end = body.index(b'\nend\n') + 5
    for i in range(25):
        text, file = bytearray(body), tmp_path / f'file{i}'
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(19, end)] = rng.choice(b'\0\n 0-9\xff')
        file.write_bytes(sealed(bytes(text)))
        r = run(TRAIN, *SMALL['linear'], '--steps', 3, '--resume', file, env=DEVICE, timeout=30)
        assert r.returncode in (0, 1, 2) and r.stderr.count('\n') == bool(r.returncode), r     # 2: it has done all --steps
        codes.append(r.returncode)
    assert 1 in codes


@pytest.mark.parametrize('option,value,was', [
    ('--dim', 32, 16), ('--layers', 3, 2), ('--batch', 5, 4), ('--accum', 2, 1), ('--seed', 2, 1), ('--dtype', 'bf16', 'fp32'),
    ('--dtype', 'tf32', 'fp32'), ('--optimizer', 'adam', 'momentum'), ('--momentum', 0.5, 0.9), ('--clip', 1, 0), ('--init', 'unscaled', 'scaled'),
    ('--eval-every', 3, 'off')])
def test_a_run_with_other_choices_is_refused(saved, option, value, was):
    now = 'on' if option == '--eval-every' else value
    assert f'{option} is {was} in the checkpoint {saved}, {now} here' in refusal(saved, option, value)


def test_another_model_is_refused(tmp_path, saved):
    file = tmp_path / 'file'
    train(*SMALL['gpt'], '--untied', '--steps', 1, '--save', file)
    assert '--model is linear in the checkpoint' in refused(*SMALL['gpt'], *FOREVER, '--resume', saved)
    assert '--model is gpt in the checkpoint' in refused(*SMALL['linear'], *FOREVER, '--resume', file)
    assert '--heads is 2 in the checkpoint' in refused(*SMALL['gpt'], '--untied', '--heads', 4, *FOREVER, '--resume', file)
    assert re.search(r'--untied is \S+ in the checkpoint \S+, not given here', refused(*SMALL['gpt'], *FOREVER, '--resume', file))


@pytest.mark.parametrize('how', ['longer', 'first byte', 'last byte'])
def test_another_text_is_refused(tmp_path, saved, how):
    text = tmp_path / 'text'
    text.write_bytes({'longer': TEXT + b'x', 'first byte': b'\0' + TEXT[1:], 'last byte': TEXT[:-1] + b'\0'}[how])
    assert 'is of a run on another text' in refusal(saved, '--data', text)


def test_a_place_that_takes_no_checkpoint(tmp_path):
    """Said before the work begins."""
    (tmp_path / 'folder').mkdir()
    assert 'is not a regular file' in refused(*SMALL['linear'], *FOREVER, '--save', tmp_path / 'folder')
    assert 'No such file or directory' in refused(*SMALL['linear'], *FOREVER, '--save', tmp_path / 'no' / 'file')
    assert 'is not a regular file' in refused(*SMALL['linear'], *FOREVER, '--save', '/dev/full')
    (tmp_path / 'a.saving').mkdir()
    os.mkfifo(tmp_path / 'b.saving')
    for name in 'ab':
        assert f'{name}.saving: it is not a regular file' in refused(*SMALL['linear'], *FOREVER, '--save', tmp_path / name)
    assert 'File name too long' in refused(*SMALL['linear'], *FOREVER, '--save', tmp_path / ('x' * 250))


@pytest.mark.parametrize('read,written', [('--data', '--save'), ('--data', '--truth'), ('--resume', '--truth'), ('--resume', '--dump-gradients'),
                                          ('--truth', '--dump-gradients'), ('--save', '--truth')])
def test_one_file_is_not_two_things(tmp_path, read, written):
    file, other = tmp_path / 'file', tmp_path / 'folder' / '..' / 'file'
    (tmp_path / 'folder').mkdir()
    file.write_bytes(TEXT)
    assert f'{read} and {written} are one file' in refused(*SMALL['linear'], *FOREVER, read, file, written, other, code=2)
    assert file.read_bytes() == TEXT and sorted(os.listdir(tmp_path)) == ['file', 'folder']


def test_an_account_that_is_there_is_replaced(tmp_path):
    """A shorter one leaves nothing of what was there."""
    account, dump, clean = tmp_path / 'account', tmp_path / 'dump', tmp_path / 'clean'
    for f in (account, dump):
        f.write_bytes(b'x' * 1000000)
    train(*SMALL['linear'], '--steps', 1, '--truth', account, '--dump-gradients', dump)
    assert json.loads(account.read_text())['first_step'] == 1
    train(*SMALL['linear'], '--steps', 1, '--dump-gradients', clean)
    assert dump.read_bytes() == clean.read_bytes()


def test_memory_does_not_grow_with_the_steps():
    """Tensors come and go in each step; of what has gone nothing is kept unless an account is to be written."""
    def peak(steps):
        options = '--layers 2 --dim 8 --heads 1 --seq 4 --batch 1 --alloc step --recompute full --print-every 1000000 --steps'.split()
        p = subprocess.Popen([TRAIN, *options, str(steps)], env={**os.environ, **DEVICE}, stdout=subprocess.DEVNULL)
        _, p.returncode, usage = os.wait4(p.pid, 0)
        assert p.returncode == 0
        return usage.ru_maxrss * 1024
    assert peak(3000) - peak(100) < 4 << 20


@pytest.mark.skipif(not MAY_MOUNT, reason='mounts a small file system')
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    """192 KiB hold one file of 132 KiB, not two."""
    script = ('mount -t tmpfs -o size=192k none "$1" && shift && "$@" --steps 2 --save disk/file && cp disk/file before && '
              '{ "$@" --steps 4 --resume disk/file --save disk/file; code=$?; cmp disk/file before && ls disk && exit $code; }')
    (tmp_path / 'disk').mkdir()
    r = run('unshare', '-m', 'sh', '-c', script, 'sh', tmp_path / 'disk', TRAIN, '--model', 'linear', '--layers', 1, '--dim', 128, '--batch', 2,
            env=DEVICE, cwd=tmp_path)
    assert r.returncode == 1, r
    assert r.stderr == 'train: cannot write the checkpoint disk/file: No space left on device\n'
    assert r.stdout.endswith('\nfile\n')
