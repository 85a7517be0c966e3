"""acct plan view, and rearrange as views: agreement with numpy, which knows by its own code what can be reshaped without a copy."""
import itertools, math, random
import numpy as np
import pytest
from plan_words import plan, refused

text = lambda values: ','.join(map(str, values))
ints = lambda t: [int(v) for v in t.split(',')] if t not in ('', '()') else []
ITEM = 4


def sheet(shape, strides=None, **options):
    words = ['--shape', text(shape)] + ([] if strides is None else [f'--stride={text(strides)}'])
    return plan('view', *words, *[f'--{k}={v}' for k, v in options.items()])


def factors(n, rng):
    """A random shape of n elements, sizes of 1 among it."""
    shape = []
    while n > 1:
        d = rng.choice([d for d in range(2, n + 1) if n % d == 0])
        shape.append(d)
        n //= d
    for _ in range(rng.randrange(3)):
        shape.insert(rng.randrange(len(shape) + 1), 1)
    rng.shuffle(shape)
    return shape


def random_array(rng):
    """An int32 array with whatever strides: transposed, sliced, reversed, expanded, or free."""
    rank = rng.randrange(5)
    shape = [rng.choice([1, 2, 2, 3, 4, 6]) for _ in range(rank)]
    if rng.random() < .05 and rank:
        shape[rng.randrange(rank)] = 0
    if rng.random() < .3:
        base = np.zeros(20000, np.int32)
        return np.lib.stride_tricks.as_strided(base[10000:], shape, [ITEM * rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 24]) for _ in shape])
    big = [n * rng.choice([1, 1, 2]) for n in shape]
    a = np.zeros(math.prod(big), np.int32).reshape(big)
    a = a[tuple(slice(0, n * k, k) if (k := b // n if n else 1) and rng.random() < .5 else slice(0, n) for n, b in zip(shape, big))]
    if rng.random() < .6:
        a = a.transpose(rng.sample(range(rank), rank))
    if rng.random() < .2:
        a = np.broadcast_to(a, [rng.choice([2, 3])] + list(a.shape))
    return a


def reached(shape, strides):
    """Elements of the storage that a tensor reaches, counted one by one."""
    return len({sum(map(int.__mul__, i, strides)) for i in itertools.product(*map(range, shape))})


def check_shared(s, a):
    """An element that several indices reach is shared once."""
    n = 0 if a is None else reached(a.shape, [x // ITEM for x in a.strides])
    assert s.value('shared_bytes') == ITEM * n or 'at most' in s.formula('shared_bytes') and ITEM * n < s.value('shared_bytes') <= s.value('bytes')


def without_copy(a, shape):
    """numpy's reshape by strides alone, or None."""
    v = a.view()
    try:
        v.shape = shape
    except AttributeError:
        return None
    return v


def test_reshape_agrees_with_numpy_on_random_strides():
    rng, seen = random.Random(7), {'view': 0, 'copy': 0}
    for _ in range(260):
        a = random_array(rng)
        to = factors(a.size, rng) if a.size else list(rng.sample(a.shape, a.ndim))
        if a.ndim > 1 and rng.random() < .4:                     # merge neighbours: often a view
            i = rng.randrange(a.ndim - 1)
            to = list(a.shape[:i]) + [a.shape[i] * a.shape[i + 1]] + list(a.shape[i + 2:])
        s = sheet(a.shape, [x // ITEM for x in a.strides], to=text(to)) if to and a.ndim else None
        if s is None:
            continue
        v = without_copy(a, to)
        assert s.value('kind') == ('copy' if v is None else 'view'), (a.shape, a.strides, to, s['results'])
        seen[s.value('kind')] += 1
        assert ints(s.value('shape')) == to
        size = a.size * ITEM
        assert (s.value('bytes'), s.value('added_bytes')) == ((size, 0) if v is not None else (size, size))
        check_shared(s, a if v is not None else None)
        if v is None:
            assert 'cannot be merged' in s.formula('kind') and s.value('contiguous') == 'yes'
        else:
            got = ints(s.value('strides'))
            assert a.size == 0 or all(g * ITEM == w for g, w, n in zip(got, v.strides, to) if n > 1), (a.shape, a.strides, to)
            assert s.value('contiguous') == ('yes' if v.flags.c_contiguous else 'no')
    assert seen['view'] > 60 and seen['copy'] > 60 and sum(seen.values()) > 200, seen


def test_slices_transposes_and_expansions_agree_with_numpy():
    rng = random.Random(3)
    for _ in range(120):
        shape = [rng.choice([1, 2, 3, 5]) for _ in range(rng.randrange(1, 5))]
        a = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        v, options = a, {}
        if rng.random() < .7:
            cuts, indices = [], []
            for n in shape[:rng.randrange(1, len(shape) + 1)]:
                if rng.random() < .2:
                    indices.append(rng.randrange(-n, n))
                    cuts.append(str(indices[-1]))
                else:
                    bounds = [rng.choice([None, rng.randrange(-n - 1, n + 2)]) for _ in range(2)] + [rng.choice([None, 1, 2, -1, -2])]
                    indices.append(slice(*bounds))
                    cuts.append(':'.join('' if b is None else str(b) for b in bounds))
            v = v[(*indices, ...)]                          # ...: a view even where no dimension is left
            options['slice'] = text(cuts)
        if v.ndim > 1 and rng.random() < .5:
            i, j = rng.sample(range(v.ndim), 2)
            v = v.swapaxes(i, j)
            options['transpose'] = f'{i},{j - v.ndim}'
        if v.ndim > 1 and rng.random() < .5:
            order = rng.sample(range(v.ndim), v.ndim)
            v = v.transpose(order)
            options['permute'] = text(order)
        if v.ndim and rng.random() < .5:
            want = [rng.choice([2, 3])] * rng.randrange(2) + [n if n != 1 else rng.choice([1, 4]) for n in v.shape]
            v = np.broadcast_to(v, want)
            options['expand'] = text(want)
        s = sheet(shape, None, **options)
        assert ints(s.value('shape')) == list(v.shape), (shape, options)
        assert s.value('contiguous') == ('yes' if v.flags.c_contiguous else 'no'), (shape, options)
        assert s.value('bytes') == v.size * ITEM and s.value('kind') == 'view' and s.value('added_bytes') == 0
        if not v.size:
            continue
        assert s.value('offset') * ITEM == v.__array_interface__['data'][0] - a.__array_interface__['data'][0], (shape, options)
        assert all(g * ITEM == w for g, w, n in zip(ints(s.value('strides')), v.strides, v.shape) if n > 1), (shape, options)
        index = [rng.randrange(n) for n in v.shape]
        at = sheet(shape, None, **options, **({'index': text(index)} if index else {}))
        if index:                                                # the value of an element is its place
            assert at.value('element') == v[tuple(index)] and at.value('element_byte') == ITEM * v[tuple(index)]


def random_pattern(rng):
    """A rearrangement: axes with sizes, split on the left, permuted and merged on the right."""
    n = rng.randrange(1, 6)
    size = {a: rng.choice([1, 2, 3, 4]) for a in 'abcde'[:n]}
    group = lambda axes: [axes[i:j] for i, j in itertools.pairwise([0] + sorted(rng.sample(range(1, len(axes)), rng.randrange(len(axes)))) + [len(axes)])]
    left = group(list(size))
    axes = list(size)
    if rng.random() < .6:
        rng.shuffle(axes)
    return size, left, group(axes)


@pytest.mark.parametrize('strided', [False, True])
def test_rearrange_agrees_with_numpy(strided):
    rng, seen = random.Random(11 + strided), {'view': 0, 'copy': 0}
    side = lambda groups: ' '.join(g[0] if len(g) == 1 else f'({" ".join(g)})' for g in groups)
    for _ in range(80):
        size, left, right = random_pattern(rng)
        shape = [math.prod(size[a] for a in g) for g in left]
        a = np.zeros(shape, np.int32)
        stride = []
        if strided and len(shape) > 1:
            a = np.zeros(shape[::-1], np.int32).transpose()
            stride = [f'--stride={text(x // ITEM for x in a.strides)}']
        apart = a.reshape([size[x] for g in left for x in g])    # splitting is always a view
        assert np.shares_memory(apart, a)
        moved = apart.transpose([[x for g in left for x in g].index(x) for g in right for x in g])
        v = without_copy(moved, [math.prod(size[x] for x in g) for g in right])
        s = plan('flops', 'rearrange', f'{side(left)} -> {side(right)}', text(shape), '--size', text(f'{k}={n}' for k, n in size.items()), *stride)
        kind = s.value('kind')
        seen[kind] += 1
        assert kind == ('copy' if v is None else 'view'), (left, right, size, stride)
        assert s.value('flops') == 0 and s.value('bytes') == (2 * a.nbytes if v is None else 0)
        assert ints(s.value('shape')) == [math.prod(size[x] for x in g) for g in right]
        if v is not None:
            assert all(g * ITEM == w for g, w, n in zip(ints(s.value('strides')), v.strides, v.shape) if n > 1)
    assert min(seen.values()) > 10, seen


def test_the_reason_names_the_dimensions():
    s = sheet([2, 3, 4], None, transpose='1,2', to='2,12')
    assert s.value('kind') == 'copy' and s.formula('kind') == 'dimensions 1 and 2 cannot be merged: stride[1] = 1 is not stride[2] x size[2] = 4 x 3'
    assert [x['step'] for x in s['steps']] == ['tensor', 'transpose 1,2', 'to 2,12'] and s['steps'][1]['shape'] == [2, 4, 3] and s['steps'][1]['strides'] == [12, 1, 4]
    assert [x['kind'] for x in s['steps']] == ['view', 'view', 'copy'] and not s['steps'][1]['contiguous']
    assert sheet([2, 3, 4], None, transpose='1,2').value('contiguous_bytes') == 96       # contiguous() adds the whole tensor
    assert sheet([2, 3, 4]).value('contiguous_bytes') == 0
    s = plan('flops', 'rearrange', 'b h w -> b (w h)', '2,3,4')
    assert s.formula('kind') == 'axes w and h cannot be merged: stride of w = 1 is not stride x size of h = 4 x 3'


def test_the_lecture_s_figures():
    """4 x 8 fp32: 128 bytes; GPT-3's feed-forward matrix."""
    assert sheet([4, 8]).value('bytes') == 128 and sheet([4, 8]).value('elements') == 32
    assert sheet([12288 * 4, 12288]).value('bytes') == 2415919104
    assert sheet([12288 * 4, 12288], None, dtype='bf16').value('bytes') == 2415919104 // 2
    assert sheet([64, 4, 32, 512, 512], None, dtype='fp16').value('elements') == 2147483648
    assert sheet([64, 4, 32, 512, 512], None, dtype='fp16').value('bytes') == 4294967296
    assert sheet([3], None, dtype='fp4').value('bytes') == 2


def test_dimensions_of_one_and_none_and_minus_one():
    assert sheet([1, 6], [999, 1], to='2,3').value('kind') == 'view'                       # a size of 1 has no stride
    assert sheet([0, 3], [7, 5], to='3,0,2').value('kind') == 'view' and sheet([0, 3], [7, 5]).value('contiguous') == 'yes'
    assert ints(sheet([4, 6], None, to='3,-1').value('shape')) == [3, 8] and ints(sheet([4, 6], None, to='-1').value('shape')) == [24]
    assert sheet([], None).value('elements') == 1 and ints(sheet([1], None, expand='5').value('strides')) == [0]
    s = sheet([3, 1], None, expand='3,4', to='12')
    assert s.value('kind') == 'copy' and s.value('added_bytes') == 48                      # a repeated dimension has no room of its own
    assert any('same element' in n for n in sheet([3, 1], None, expand='3,4')['notes']) and not sheet([3, 4])['notes']


BAD = [
    ([], 'shape'), (['--shape', '2,x'], "'x'"), (['--shape', '-2'], 'negative'), (['--shape', '2,3', '--to', '4,2'], '6 elements'), (['--shape', '2,3', '--to', '4,-1'], 'multiple of 4'),
    (['--shape', '2,3', '--to', '-1,-1'], 'twice'), (['--shape', '0,3', '--to', '0,-1'], 'anything'), (['--shape', '2,3', '--transpose', '0,2'], 'no dimension 2'),
    (['--shape', '2,3', '--transpose', '1'], 'two dimensions'), (['--shape', '2,3', '--permute', '0,0'], 'twice'), (['--shape', '2,3', '--permute', '0'], 'has 2'),
    (['--shape', '2,3', '--stride', '3'], '2 dimensions'), (['--shape', '2,3', '--stride=-3,1'], 'before the start'), (['--shape', '2,3', '--slice', '0:1,0,0'], 'more ranges'),
    (['--shape', '2,3', '--slice', '5'], 'index 5'), (['--shape', '2,3', '--slice', '::0'], 'step of 0'), (['--shape', '2,3', '--slice', 'a:b'], "'a:b'"), (['--shape', '2,3', '--slice', ''], 'empty'),
    (['--shape', '2,3', '--expand', '2,4'], 'only a size of 1'), (['--shape', '2,3', '--expand', '3'], 'fewer'), (['--shape', '2,3', '--expand', '-1,2,3'], 'new'),
    (['--shape', '2,3', '--index', '2,0'], 'index 2'), (['--shape', '2,3', '--index', '0'], '2 dimensions'), (['--shape', '2,3', '--dtype', 'int7'], 'number format'),
    (['--shape', '9223372036854775807,9'], '2^61'), (['--shape', '99999999999999999999'], 'too large'), (['--shape', '2,3', '--frob', '1'], "'--frob'"), (['2,3'], "'2,3'"),
    (['--shape', '2,3', '--offset', '-1'], 'negative'), (['--shape', '2,3', '--stride', '4611686018427387904,1'], '2^61'), (['--shape', '2,3', '--format', 'xml'], 'xml')]


@pytest.mark.parametrize('words,says', BAD, ids=lambda v: ' '.join(v) if isinstance(v, list) else None)
def test_what_cannot_be_is_refused(words, says):
    assert says in refused('view', *words)


@pytest.mark.parametrize('shape,strides', [((4, 3), (0, 1)), ((8, 3), (1, 1)), ((3, 3, 6, 6), (8, 1, 8, 1)), ((3, 3, 3, 3), (8, 1, 16, 2)), ((2, 5, 4), (100, 0, 3)), ((5,), (0,)),
                                           ((3, 4), (-4, 2)), ((2, 0), (0, 1)), ((), ())])
def test_what_is_shared_counts_once(shape, strides):
    """Expanded dimensions and windows that overlap, as of a convolution by strides."""
    s = sheet(shape, strides, offset=100)
    assert s.value('shared_bytes') == ITEM * reached(shape, strides) and s.value('added_bytes') == 0
