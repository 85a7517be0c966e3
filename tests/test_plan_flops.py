"""acct plan flops. einsum against numpy's own search of orders and an exhaustive one; other ops against counts made here one by one."""
import itertools, math, random, re
import numpy as np
import pytest
from plan_words import plan, refused

text = lambda values: ','.join(map(str, values))
prod = math.prod

# ---- einsum -----------------------------------------------------------------------------------------------------------------


class Einsum:
    """The convention, written again: tensors as {axis: size}, costs of sums and pairs. Expressions of letters without a diagonal or `...`;
    shapes may have 1 where others have more."""
    def __init__(self, expression, shapes):
        left, self.result = expression.split('->')
        self.terms = [dict(zip(t, s)) for t, s in zip(left.split(','), shapes)]

    def summed_first(self):
        """Axes that one operand alone has and the result lacks: 1 per element. What is left, and the cost."""
        out, cost = [], 0
        for i, t in enumerate(self.terms):
            alone = {a for a in t if a not in self.result and not any(a in o for j, o in enumerate(self.terms) if j != i)}
            cost += prod(t.values()) if alone else 0
            out.append({a: n for a, n in t.items() if a not in alone})
        return out, cost

    def pair(self, a, b, rest):
        both = {x: max(a.get(x, 1), b.get(x, 1)) for x in {**a, **b}}
        gone = {x for x in a if x in b and x not in self.result and not any(x in r for r in rest)}
        return {x: n for x, n in both.items() if x not in gone}, (2 if gone else 1) * prod(both.values())

    def along(self, path):
        """Cost of an order: pairs of positions; the result goes to the end (as numpy's paths have it)."""
        terms, cost = self.summed_first()
        for i, j in path:
            a, b = terms[i], terms[j]
            terms = [t for k, t in enumerate(terms) if k not in (i, j)]
            new, step = self.pair(a, b, terms)
            terms.append(new)
            cost += step
        assert len(terms) == 1
        return cost

    def given(self):
        n = len(self.terms)
        terms, cost = self.summed_first()
        while len(terms) > 1:
            new, step = self.pair(terms[0], terms[1], terms[2:])
            terms, cost = [new] + terms[2:], cost + step
        return cost

    def best(self):
        """Every order of pairs."""
        def search(terms):
            if len(terms) == 1:
                return 0
            least = math.inf
            for i, j in itertools.combinations(range(len(terms)), 2):
                rest = [t for k, t in enumerate(terms) if k not in (i, j)]
                new, step = self.pair(terms[i], terms[j], rest)
                if step < least:
                    least = min(least, step + search(rest + [new]))
            return least
        terms, cost = self.summed_first()
        return cost + search(terms)


EXPRESSIONS = '''ij,jk->ik  bij,bjk->bik  bsh,bth->bst  i,i->  i,j->ij  ij,ij->ij  ij,ij->  ij,jk,kl->il  ij,jk,kl,lm->im  ij,jk,kl,lm,mn->in
    ij,kl,jk->il  ab,bc,cd,da->  abc,cd,def->abef  bhtd,bhsd->bhts  bhts,bhsd->bhtd  bqhd,bkhd,bkhe->bqhe  ijk,jil,kl->  ai,bi,ci->abc  ai,bj,ck,abc->ijk  i,j,k->ijk
    ij,k->ik  ij,jk,k->i  ijl,jkm->ik  ab,cd,ef->  abcd,bd->ac  pi,qj,ijkl,rk,sl->pqrs  bik,bkj,bjl->bil  xa,xb,xc,xd->abcd  ij,j->i  ijk->ik  ijk->  ab,ac,ad->bcd  a,ab,b->
    abc,abd,cde->e  ij,jk,kl,li->  uvw,vwx,xy,yz->uz'''.split()


def numpy_s(expression, sizes):
    """numpy's optimal path and, as it prints it, that path's cost in its own convention."""
    arrays = [np.empty([sizes[a] for a in t], np.int8) for t in expression.split('->')[0].split(',')]
    path, report = np.einsum_path(expression, *arrays, optimize=('optimal', 2 ** 62))
    return path[1:], float(re.search(r'Optimized FLOP count: +(\S+)', report).group(1))


@pytest.mark.parametrize('expression', EXPRESSIONS)
def test_einsum_agrees_with_numpy_and_with_every_order(expression):
    rng = random.Random(expression)
    left, result = expression.split('->')
    for _ in range(2):
        sizes = {a: rng.choice([2, 3, 5, 8, 13, 40]) for a in left if a != ','}
        shapes = [[sizes[a] for a in t] for t in left.split(',')]
        s, e = plan('flops', 'einsum', expression, *map(text, shapes)), Einsum(expression, shapes)
        n = len(shapes)
        if n == 1:
            assert s.value('flops') == prod(shapes[0])             # sums: 1 per element
            continue
        assert s.value('flops') == e.given(), sizes
        best = s.value('best_flops') if n > 2 else s.value('flops')
        assert best == e.best(), sizes
        path, cost = numpy_s(expression, sizes)
        pairs = [p for p in path if len(p) == 2]
        if len(pairs) == len(path):
            # numpy counts product × (1 + 1 if an axis is summed) for each pair, and so do we, but for axes that one operand alone
            # has: those we sum first, it within the pair. Without any its best cost is ours, to the digits that it prints
            # (numpy 1.24 prints the sum and 1).
            assert best <= e.along(pairs)
            if e.summed_first()[1] == 0:
                assert best == e.along(pairs) and f'{cost:.3e}' in (f'{best:.3e}', f'{best + 1:.3e}'), (sizes, best, cost)
        reference = np.einsum(expression, *[np.zeros(x, np.int8) for x in shapes])
        assert s['operands'][-1]['elements'] == reference.size and s.value('bytes') == 4 * (sum(map(prod, shapes)) + reference.size)


def test_einsum_on_random_expressions():
    """Up to six operands of random axes: the best order is the best of all orders, the given one costs at least as much."""
    rng = random.Random(5)
    for _ in range(60):
        sizes = {a: rng.choice([1, 2, 3, 7, 20]) for a in 'abcdefg'}
        terms = [''.join(rng.sample('abcdefg', rng.randrange(0, 4))) for _ in range(rng.randrange(3, 7))]
        used = sorted(set(''.join(terms)))
        expression = ','.join(terms) + '->' + ''.join(rng.sample(used, rng.randrange(len(used) + 1)))
        if not used:
            continue
        s, e = plan('flops', 'einsum', expression, '--size', text(f'{a}={sizes[a]}' for a in used)), Einsum(expression, [[sizes[a] for a in t] for t in terms])
        assert (s.value('flops'), s.value('best_flops')) == (e.given(), e.best()), (expression, sizes)
        for order in ('given_order', 'best_order'):
            assert sum(step['flops'] for step in s[order]) == s.value('flops' if order[0] == 'g' else 'best_flops')
        between = [prod(sizes[a] for a in step['name'].split(' -> ')[1].strip('()')) for step in s['best_order'][:-1]]
        assert s.value('best_largest_intermediate_bytes') == 4 * max(between)


def test_einsum_that_broadcasts():
    rng = random.Random(12)
    for _ in range(40):
        sizes = {a: rng.choice([2, 3, 7]) for a in 'abcde'}
        terms = [''.join(rng.sample('abcde', rng.randrange(1, 4))) for _ in range(rng.randrange(2, 6))]
        shapes = [[sizes[a] if rng.random() < .6 else 1 for a in t] for t in terms]
        used = sorted(set(''.join(terms)))
        expression = ','.join(terms) + '->' + ''.join(rng.sample(used, rng.randrange(len(used) + 1)))
        s, e = plan('flops', 'einsum', expression, *map(text, shapes)), Einsum(expression, shapes)
        want = np.einsum(expression, *[np.zeros(x, np.int8) for x in shapes])
        assert s.value('flops') == e.given() and (len(terms) == 2 or s.value('best_flops') == e.best()), (expression, shapes)
        assert s['operands'][-1]['elements'] == want.size and s['operands'][-1]['shape'] == (text(want.shape) or '()')


@pytest.mark.parametrize('expression', ['...ij,...jk->...ik', '...i,...i->...', '...i,i...->i...', '...ij,...jk', 'i...->...', '...,...', '...ij->...ji', 'ba,dc', 'zya,ayz', '...a,b...->ab...'])
def test_shapes_of_dots_agree_with_numpy(expression):
    rng = random.Random(expression)
    left = expression.split('->')[0].split(',')
    for _ in range(6):
        sizes, dots = {a: rng.randrange(1, 5) for a in expression if a.isalpha()}, [rng.randrange(2, 4) for _ in range(2)]
        shapes = []
        for t in left:
            own = [n if rng.random() < .6 else 1 for n in dots[rng.randrange(3):]]
            shapes.append([n for x in t.replace('...', '.') for n in (own if x == '.' else [sizes[x]])])
        want = np.einsum(expression, *[np.zeros(x, np.int8) for x in shapes])
        assert plan('flops', 'einsum', expression, *map(text, shapes))['operands'][-1]['shape'] == (text(want.shape) or '()'), (expression, shapes)


def test_einsum_of_many_operands():
    """A chain of matrices has a known best order (dynamic programming over intervals); beyond 14 operands a greedy one is said to be that."""
    def chain(dims):
        best = {(i, i): 0 for i in range(len(dims) - 1)}
        for length in range(1, len(dims) - 1):
            for i in range(len(dims) - 1 - length):
                j = i + length
                best[i, j] = min(best[i, k] + best[k + 1, j] + 2 * dims[i] * dims[k + 1] * dims[j + 1] for k in range(i, j))
        return best[0, len(dims) - 2]
    rng = random.Random(1)
    for n in (7, 10, 14):
        dims = [rng.randrange(2, 60) for _ in range(n + 1)]
        expression = ','.join(f'{chr(97 + i)}{chr(98 + i)}' for i in range(n)) + f'->a{chr(97 + n)}'
        s = plan('flops', 'einsum', expression, *[f'{a},{b}' for a, b in zip(dims, dims[1:])])
        assert s.value('best_flops') == chain(dims) and not any('greedy' in x for x in s['notes'])
    words = ', '.join(f'x{i} x{i + 1}' for i in range(60)) + ' -> x0 x60'
    dims = [rng.randrange(2, 60) for _ in range(61)]
    s = plan('flops', 'einsum', words, *[f'{a},{b}' for a, b in zip(dims, dims[1:])])
    assert any('greedy' in x for x in s['notes']) and chain(dims) <= s.value('best_flops') <= s.value('flops')


def test_words_letters_dots_and_broadcast():
    e = lambda *w: plan('flops', 'einsum', *w)
    assert e('b s h, b t h -> b s t', '--size', 'b=2,s=3,t=4,h=5').value('flops') == 2 * 2 * 3 * 4 * 5
    assert e('bsh,bth->bst', '--size', 'b=2,s=3,t=4,h=5').value('flops') == 240
    assert e('time, time -> time', '--size', 'time=7').value('flops') == 7         # a size of a long name: words
    assert e('time,time->', '--size', 't=2,i=3,m=5,e=7')['inputs']['notation']['value'] == 'letters'
    assert e('ij,jk', '2,3', '3,4')['operands'][-1]['shape'] == '2,4'               # numpy's implied result
    assert e('ba', '2,3')['operands'][-1]['shape'] == '3,2' and e('ii', '3,3').value('flops') == 3
    assert e('... i j, ... j k -> ... i k', '6,1,2,3', '5,3,4').value('flops') == 2 * 6 * 5 * 2 * 3 * 4
    assert e('...ij,...jk->...ik', '6,1,2,3', '5,3,4')['operands'][-1]['shape'] == '6,5,2,4'
    assert e('...i,i->...', '--size', '...=2x3,i=5').value('flops') == 2 * 2 * 3 * 5
    s = e('b h, b h -> b', '1,5', '4,5')                                            # a size of 1 broadcasts
    assert s.value('flops') == 2 * 4 * 5 and s.value('bytes') == 4 * (5 + 20 + 4)
    assert e('ii->i', '5,5').value('flops') == 0 and e('ii->i', '5,5').value('bytes') == 0
    assert e('ii->', '5,5').value('flops') == 5 and e('ij,j->', '3,4', '4').value('flops') == 3 * 4 + 2 * 4
    assert e('ij->ji', '3,4').value('bytes') == 0 and e('i,j->ij', '3,4'.split(',')[0], '4').value('flops') == 12
    assert e('->', '').value('flops') == 0 and e('ij,jk->ik', '0,3', '3,4').value('flops') == 0 and e(',->', '', '').value('flops') == 1


def test_einsum_sums_by_counting():
    """Multiply-adds of small einsums, counted one by one."""
    rng = random.Random(9)
    for _ in range(20):
        a, b = rng.sample('ijkl', rng.randrange(1, 4)), rng.sample('ijkl', rng.randrange(1, 4))
        shared, size = set(a) & set(b), {x: rng.randrange(1, 5) for x in 'ijkl'}
        result = [x for x in sorted(set(a) | set(b)) if x not in shared or rng.random() < .5]
        s = plan('flops', 'einsum', f'{"".join(a)},{"".join(b)}->{"".join(result)}', '--size', text(f'{x}={size[x]}' for x in set(a + b)))
        count = 0
        for _ in itertools.product(*[range(size[x]) for x in sorted(set(a) | set(b))]):
            count += 1 if set(a) | set(b) == set(result) else 2                     # a product; a product and an addition
        assert s.value('flops') == count


@pytest.mark.parametrize('dtype,size', [('int8', 1), ('fp8', 1), ('bf16', 2), ('fp32', 4)])
def test_one_operand_keeps_its_format(dtype, size):
    """It is no product, which is written in another; a view can have no other."""
    e = lambda *w: plan('flops', 'einsum', *w, '--dtype', dtype)
    s = e('ij->ji', '3,4')
    assert [o['bytes'] for o in s['operands']] == [12 * size] * 2 and s.value('bytes') == 0 and any('A view' in n for n in s['notes'])
    assert e('ij->i', '3,4').value('bytes') == plan('flops', 'reduce', 'i j -> i', 'sum', '3,4', '--dtype', dtype).value('bytes') == (12 + 3) * size
    s = e('ij->ji', '3,4', '--out-dtype', 'fp64')
    assert s.value('bytes') == 12 * size + 12 * 8 and not any('A view' in n for n in s['notes']) and {o['use'] for o in s['operands']} == {'read', 'written'}


# ---- reduce -------------------------------------------------------------------------------------------------------------------

def test_reduce():
    r = lambda *w: plan('flops', 'reduce', *w)
    assert r('... h -> ...', 'sum', '2,3,4').value('flops') == 24 and r('... h -> ...', 'mean', '2,3,4').value('flops') == 24 + 6
    assert r('b h w -> b', 'max', '2,3,4').value('flops') == 24 and r('b h w -> b', 'max', '2,3,4').value('bytes') == 4 * (24 + 2)
    s = r('b (h p) (w q) -> b h w', 'max', '2,8,6', '--size', 'p=2,q=3')            # pooling
    assert s.value('flops') == 96 and s['operands'][-1]['shape'] == '2,4,2'
    assert r('a b -> 1 1', 'min', '3,4')['operands'][-1]['shape'] == '1,1' and r('a b -> b a', 'sum', '3,4').value('flops') == 0
    assert r('a b -> ', 'sum', '3,4', '--dtype', 'int8')['results']['integer_ops']['value'] == 12


# ---- products --------------------------------------------------------------------------------------------------------------------

def test_matmul_of_shapes_agrees_with_numpy():
    rng = random.Random(2)
    for _ in range(40):
        k, lead = rng.randrange(1, 6), [rng.choice([1, 2, 3]) for _ in range(rng.randrange(3))]
        a = rng.choice([[k], lead + [rng.randrange(1, 6), k], [rng.randrange(1, 6), k]])
        b = rng.choice([[k], [n if rng.random() < .5 else 1 for n in lead] + [k, rng.randrange(1, 6)]])
        want = np.matmul(np.zeros(a, np.int8), np.zeros(b, np.int8))
        s = plan('flops', 'matmul', text(a), text(b))
        assert s.value('flops') == 2 * want.size * k and s['operands'][2]['elements'] == want.size
        assert s['operands'][2]['shape'] == (text(want.shape) or '()') and s.value('bytes') == 4 * (prod(a) + prod(b) + want.size)


SECTION_3 = {                                                                       # ACCOUNTING, by routine
    'symm': (2, lambda m, n: 2 * m * m * n, lambda m, n: 2 * m * n * n), 'hemm': (2, lambda m, n: 2 * m * m * n, lambda m, n: 2 * m * n * n),
    'trmm': (2, lambda m, n: m * m * n, lambda m, n: m * n * n), 'trsm': (2, lambda m, n: m * m * n, lambda m, n: m * n * n),
    'syrk': (2, lambda n, k: k * n * (n + 1)), 'herk': (2, lambda n, k: k * n * (n + 1)), 'syrkx': (2, lambda n, k: k * n * (n + 1)),
    'syr2k': (2, lambda n, k: 2 * k * n * n + n), 'her2k': (2, lambda n, k: 2 * k * n * n + n), 'gemv': (2, lambda m, n: 2 * m * n), 'ger': (2, lambda m, n: 2 * m * n),
    'symv': (1, lambda n: 2 * n * n), 'hemv': (1, lambda n: 2 * n * n), 'trmv': (1, lambda n: n * n), 'trsv': (1, lambda n: n * n), 'syr': (1, lambda n: n * (n + 1)),
    'syr2': (1, lambda n: 2 * n * (n + 1)), 'dot': (1, lambda n: 2 * n), 'axpy': (1, lambda n: 2 * n), 'scal': (1, lambda n: n), 'nrm2': (1, lambda n: 2 * n),
    'asum': (1, lambda n: n), 'rot': (1, lambda n: 6 * n), 'copy': (1, lambda n: 0), 'swap': (1, lambda n: 0), 'iamax': (1, lambda n: 0),
    'dgmm': (2, lambda m, n: m * n), 'geam': (2, lambda m, n: m * n)}


@pytest.mark.parametrize('routine', SECTION_3)
def test_blas_by_name(routine):
    n, *formulas = SECTION_3[routine]
    rng = random.Random(routine)
    for side, f in zip(('left', 'right'), formulas):
        sizes = [rng.randrange(1, 3000) for _ in range(n)]
        options = ['--side', side] if len(formulas) == 2 else []
        s = plan('flops', routine, *sizes, *options)
        assert s.value('flops') == f(*sizes) and s.value('bytes') > 0
        assert plan('flops', routine, *sizes, *options, '--dtype', 'complex64').value('flops') == 4 * f(*sizes)
        assert plan('flops', routine, *sizes, *options, '--batch', 7).value('flops') == 7 * f(*sizes)
    assert s.value('bytes') % 4 == 0


def test_bands_by_counting():
    rng = random.Random(4)
    for _ in range(10):
        m, n, kl, ku = (rng.randrange(1, 12) for _ in range(4))
        band = sum(-kl <= j - i <= ku for i in range(m) for j in range(n))
        assert plan('flops', 'gbmv', m, n, kl, ku).value('flops') == 2 * band
        assert plan('flops', 'gbmv', m, n, kl, ku).value('bytes') == 4 * (band + n + m)
        k = rng.randrange(0, n + 2)
        assert plan('flops', 'sbmv', n, k).value('flops') == 2 * sum(abs(i - j) <= k for i in range(n) for j in range(n))


def test_bytes_of_scalars_strides_and_leading_dimensions():
    b = lambda *w: plan('flops', *w).value('bytes')
    m, n, k = 1000, 500, 200
    A, B, C = 4 * m * k, 4 * k * n, 4 * m * n
    assert b('gemm', m, n, k) == A + B + C and b('gemm', m, n, k, '--beta', 0) == A + B + C and b('gemm', m, n, k, '--beta', 1) == A + B + 2 * C
    assert b('gemm', m, n, k, '--beta', 0.5) == A + B + 2 * C and b('gemm', m, n, k, '--alpha', 0) == C and b('gemm', m, n, k, '--alpha', 0, '--beta', 1) == 0
    assert b('gemm', m, n, k, '--ld', '4096,4096,4096') == A + B + C
    assert b('gemm', m, n, k, '--dtype', 'bf16', '--out-dtype', 'fp32') == (A + B) // 2 + C and b('gemm', m, n, k, '--dtype', 'fp8', '--out-dtype', 'bf16') == (A + B) // 4 + C // 2
    s = plan('flops', 'gemm', m, n, k, '--beta', 'device')
    assert s.value('bytes') == A + B + 2 * C and 'bound' in s['notes'][0]
    assert b('gemv', m, n) == A // k * n + 4 * n + 4 * m and b('gemv', m, n, '--beta', 1) == b('gemv', m, n) + 4 * m and b('gemv', m, n, '--beta', 1, '--trans', 'T') == b('gemv', m, n) + 4 * n
    assert b('geam', m, n) == 3 * C and b('geam', m, n, '--beta', 0) == 2 * C
    assert b('gemm', 64, 64, 64, '--batch', 100, '--batch-stride', '0,0,4096') == 4 * 64 * 64 * 102


# ---- layers --------------------------------------------------------------------------------------------------------------------------

def conv_words(c, op='conv'):
    return ['flops', op, '--input', text([c['n'], c['cin'], *c['size']]), '--out-channels', c['cout'], '--kernel', text(c['kernel']), '--stride', text(c['stride']),
            '--padding', text(c['padding']), '--dilation', text(c['dilation']), '--groups', c['groups']]


def random_conv(rng):
    d, g = rng.randrange(1, 4), rng.choice([1, 1, 2, 3])
    c = {'n': rng.randrange(1, 3), 'groups': g, 'cin': g * rng.randrange(1, 3), 'cout': g * rng.randrange(1, 4)}
    c.update({k: [rng.randrange(1, 4) for _ in range(d)] for k in ('kernel', 'stride', 'dilation')}, padding=[rng.randrange(0, 2) for _ in range(d)])
    c['size'] = [rng.randrange(1, 5) + dl * (k - 1) for k, dl in zip(c['kernel'], c['dilation'])]
    return c


def windows(size, kernel, stride, padding, dilation):
    """Where a kernel fits within the padded input."""
    return sum(1 for at in range(-padding, size + padding, stride) if at + dilation * (kernel - 1) < size + padding)


def test_convolutions_by_counting():
    rng = random.Random(6)
    for _ in range(25):
        c = random_conv(rng)
        out = [windows(*x) for x in zip(c['size'], c['kernel'], c['stride'], c['padding'], c['dilation'])]
        macs = 0
        for _ in itertools.product(range(c['n']), range(c['cout']), *map(range, out)):  # each output is a sum over its group's channels and the kernel
            macs += c['cin'] // c['groups'] * prod(c['kernel'])
        s = plan(*conv_words(c))
        assert s.value('output') == text([c['n'], c['cout'], *out]) and s.value('flops') == 2 * macs, c
        both = plan(*conv_words(c), '--pass', 'both')
        assert both.value('flops') == 6 * macs and [p['flops'] for p in both['parts']] == [2 * macs] * 3
        x, w, y = c['n'] * c['cin'] * prod(c['size']), c['cout'] * c['cin'] // c['groups'] * prod(c['kernel']), c['n'] * c['cout'] * prod(out)
        assert s.value('bytes') == 4 * (x + w + y) and both.value('bytes') == 12 * (x + w + y)
        assert plan(*conv_words(c), '--pass', 'backward', '--grads', 'weight').value('flops') == 2 * macs


def test_transposed_convolutions_undo_the_sizes_of_convolutions():
    rng = random.Random(8)
    for _ in range(25):
        c = random_conv(rng)
        out = [windows(*x) for x in zip(c['size'], c['kernel'], c['stride'], c['padding'], c['dilation'])]
        back = dict(c, size=out, cin=c['cout'], cout=c['cin'])
        rest = [n - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for n, o, s, p, d, k in zip(c['size'], out, c['stride'], c['padding'], c['dilation'], c['kernel'])]
        words = conv_words(back, 'convtranspose') + ['--output-padding', text(rest)]
        s, forward = plan(*words), plan(*conv_words(c))
        # It is the input gradient of that convolution: the same products, from its output back to its input.
        assert s.value('output') == text([c['n'], c['cin'], *c['size']]) and s.value('flops') == forward.value('flops'), c


def pairs(tq, tk):
    """Queries are the last tq of tk positions; each sees itself and what is before it."""
    return sum(max(0, min(tk, tk - tq + i + 1)) for i in range(tq))


def test_attention():
    rng = random.Random(10)
    for _ in range(25):
        b, h, tq, tk, dqk, dv = (rng.randrange(1, 9) for _ in range(6))
        a = lambda *w: plan('flops', 'attention', b, h, tq, tk, dqk, dv, *w)
        full = 2 * b * h * tq * tk * (dqk + dv)
        s = a('--pass', 'both')
        assert (s.value('forward_flops'), s.value('backward_flops'), s.value('backward_executed_flops'), s.value('flops')) == (full, 2 * full, 2.5 * full, 3 * full)
        assert a('--causal', 'skipped').value('flops') == 2 * b * h * pairs(tq, tk) * (dqk + dv) and a('--causal', 'half').value('flops') == full // 2
        q, k, v, o = (4 * b * h * n for n in (tq * dqk, tk * dqk, tk * dv, tq * dv))
        assert [p['bytes'] for p in s['parts']] == [q + k + v + o, q + k + v + o + o + q + k + v] # with their gradients
        assert s.formula('flops') == '3 x forward, model' and a('--pass', 'backward').formula('flops') == '2 x forward, model'
    one = plan('flops', 'attention', 2, 8, 16, 64).value('flops')
    assert one == plan('flops', 'attention', '2,8,16,64').value('flops') == plan('flops', 'attention', '2,16,8,64', '--layout', 'bshd').value('flops')
    s = plan('flops', 'attention', 2, 8, 16, 64, '--kv-heads', 2)                   # grouped queries: query heads count, keys are fewer
    assert s.value('flops') == one and s.value('bytes') == 4 * 16 * 64 * 2 * (8 + 2 + 2 + 8)
    assert plan('flops', 'attention', '2,8,16,64', '2,2,16,64').value('bytes') == s.value('bytes')


def test_linear_chains():
    """The lecture's two layers, x(B×D) · W1(D×D) → h1 · W2(D×K)."""
    B, D, K = 64, 96, 10
    s = plan('flops', 'linear', B, D, D, K, '--pass', 'both')
    part = {p['name']: p['flops'] for p in s['parts']}
    assert part['layer 1: forward'] + part['layer 2: forward'] == s.value('forward_flops') == 2 * B * D * D + 2 * B * D * K
    assert (part['layer 2: weight gradient'], part['layer 2: input gradient']) == (2 * B * D * K, 2 * B * D * K)      # dW2, dh1
    assert (part['layer 1: weight gradient'], part['layer 1: input gradient']) == (2 * B * D * D, 2 * B * D * D)      # dW1, dx
    N = D * D + D * K
    assert s.value('backward_flops') == 4 * N * B and s.value('flops') == s.value('model_flops') == 6 * N * B
    s = plan('flops', 'linear', B, D, D, K, '--pass', 'both', '--grads', 'weight')
    assert s.value('backward_flops') == 4 * N * B - 2 * B * D * D and s.value('model_flops') == 6 * N * B and 'no gradient' in s['notes'][0]
    s = plan('flops', 'linear', 4, 8, 16, '--bias')
    assert (s.value('flops'), s.value('bias_flops')) == (1024, 64)
    s = plan('flops', 'embedding', 4096, 50257, 768)
    assert s.value('flops') == 0 and s.value('bytes') == 4 * (4096 + 2 * 4096 * 768)


def test_a_batch_of_nothing_moves_nothing():
    """As a product with m = 0: nothing at all; with k = 0, the weight gradient, zeros are written."""
    for layer, weights in ((['linear', 0, 3, 4], 12), (['conv', '--input', '0,3,8,8', '--out-channels', 4, '--kernel', 3], 108)):
        s = plan('flops', *layer, '--pass', 'both')
        assert s.value('flops') == 0 and [p['bytes'] for p in s['parts']] == [0, 0, 4 * weights], layer
        assert {o['use'] for o in s['operands'] if o['name'] == 'w'} == {'not touched'}


# ---- time at the roof -------------------------------------------------------------------------------------------------------------------

def test_time_at_the_roof():
    s = plan('flops', 'matmul', 4096, 4096, 1024, '--dtype', 'bf16', '--device', 'h100-sxm')
    flops, moved = 2 * 4096 * 4096 * 1024, 2 * (2 * 4096 * 1024 + 4096 * 4096)
    assert s.value('time') == pytest.approx(flops / 989.4e12, rel=1e-12) and s.value('bound') == 'compute' and s.value('intensity') == flops / moved
    s = plan('flops', 'matmul', 4096, 1, 4096, '--dtype', 'bf16', '--device', 'h100-sxm')
    assert s.value('time') == pytest.approx(2 * (4096 * 4096 + 2 * 4096) / 3350e9, rel=1e-12) and s.value('bound') == 'memory'
    assert plan('flops', 'matmul', 64, 64, 64, '--dtype', 'tf32', '--device', 'a100-80')['inputs']['peak']['value'] == 156e12
    assert plan('flops', 'matmul', 64, 64, 64, '--dtype', 'fp64', '--device', 'h100-sxm')['inputs']['peak']['value'] == 66.9e12     # matrix units
    assert plan('flops', 'gemv', 64, 64, '--dtype', 'fp64', '--device', 'h100-sxm')['inputs']['peak']['value'] == 33.5e12           # no matrix product
    assert plan('flops', 'reduce', 'a b -> a', 'sum', '64,64', '--dtype', 'bf16', '--device', 'h100-sxm')['inputs']['peak']['value'] == 66.9e12
    s = plan('flops', 'matmul', 64, 64, 64, '--dtype', 'fp8', '--device', 'a100-80')
    assert s.value('time') is None and 'peak unknown' in s.formula('time') and s.value('bound') is None
    s = plan('flops', 'matmul', 64, 64, 64)
    assert s.value('time') is None and '--device' in s.formula('time')
    s = plan('flops', 'linear', 8192, 4096, 4096, '--pass', 'both', '--dtype', 'bf16', '--device', 'h100-sxm')
    assert s.value('time') == pytest.approx(sum(max(p['flops'] / 989.4e12, p['bytes'] / 3350e9) for p in s['parts']), rel=1e-12)


def test_formats_by_the_names_of_plan_dtype():
    for short, name in (('e4m3', 'fp8_e4m3'), ('e5m2', 'fp8_e5m2'), ('e2m1', 'fp4_e2m1')):
        a, b = (plan('flops', 'matmul', '3', '4', '5', '--dtype', n) for n in (short, name))
        assert a['results'] == b['results'] and a['operands'] == b['operands'] and a['operands'][0]['dtype'] == name
    assert "'acc16'" in refused('flops', 'matmul', '3', '4', '5', '--dtype', 'acc16')


def test_a_peak_that_the_best_order_needs_is_named():
    """Products in int8 have a peak, products of elements have none; operations are no FLOPs, in the best order neither."""
    s = plan('flops', 'einsum', 'ef,fYe,fY,Y->', '1,3', '1,7,20', '1,7', '1', '--dtype', 'int8', '--device', 'h100-sxm')
    assert s.value('time') > 0 and s.value('best_time') is None and 'peak unknown' in s.formula('best_time')
    assert s.value('flops') == 0 and 'best_flops' not in s['results'] and s.value('best_integer_ops') == 407 == sum(p['integer_ops'] for p in s['best_order'])


# ---- properties ------------------------------------------------------------------------------------------------------------------------------

MONOTONE = [(['matmul'], [5, 7, 9]), (['syrk'], [9, 4]), (['symm'], [5, 6]), (['gemv'], [5, 6]), (['attention'], [2, 3, 5, 7, 4, 6]), (['linear'], [3, 4, 5, 6]), (['dot'], [5])]


@pytest.mark.parametrize('words,sizes', MONOTONE, ids=lambda v: v[0] if isinstance(v[0], str) else None)
def test_more_is_never_less(words, sizes):
    for i in range(len(sizes)):
        got = [plan('flops', *words, *(sizes[:i] + [sizes[i] * f] + sizes[i + 1:])) for f in (1, 2, 3)]
        assert got[0].value('flops') < got[1].value('flops') < got[2].value('flops')
        assert got[0].value('bytes') <= got[1].value('bytes') <= got[2].value('bytes')


def test_more_of_an_axis_is_never_less():
    sizes = dict(i=3, j=4, k=5, l=6)
    cost = lambda s: plan('flops', 'einsum', 'ij,jk,kl->il', '--size', text(f'{a}={n}' for a, n in s.items()))
    for a in sizes:
        one, two = cost(sizes), cost({**sizes, a: sizes[a] + 1})
        assert one.value('flops') < two.value('flops') and one.value('best_flops') < two.value('best_flops') and one.value('bytes') <= two.value('bytes')


def test_units():
    flops = lambda *w: plan('flops', 'matmul', *w).value('flops')
    assert flops('4k', '2M', '1e3') == flops(4000, 2000000, 1000) == 2 * 4000 * 2000000 * 1000 and flops('1_024', '0.5k', '1') == 2 * 1024 * 500


def test_nothing_overflows_up_to_1e30_flops():
    assert plan('flops', 'matmul', '1e10', '1e10', '5e9').value('flops') == 10 ** 30 and plan('flops', 'matmul', '1e10', '1e10', '5e9').value('bytes') == 4 * (10 ** 20 + 10 ** 20)
    assert plan('flops', 'einsum', 'ij,jk->ik', '--size', 'i=1e10,j=1e10,k=5e9').value('flops') == 10 ** 30
    assert plan('flops', 'linear', '1e15', '1e7', '5e7').value('flops') == 10 ** 30 and plan('flops', 'syrk', '1e10', '1e9').value('flops') == 10 ** 9 * 10 ** 10 * (10 ** 10 + 1)
    assert plan('flops', 'attention', '1e3', '1e3', '1e11', '25').value('flops') == 4 * 10 ** 6 * 10 ** 22 * 25
    assert plan('flops', 'conv', '--input', '1e8,1e6,1e8', '--out-channels', '5e7', '--kernel', '1').value('flops') == 10 ** 30
    assert plan('flops', 'gemv', '1e15', '5e14').value('flops') == 10 ** 30 and plan('flops', 'gemv', '1e15', '5e14').value('bytes') is None
    assert plan('flops', 'reduce', 'a b -> a', 'sum', '1e15,1e15').value('flops') == 10 ** 30
    for words in (['matmul', '9e18', '9e18', '9e18'], ['einsum', 'ij,jk->ik', '--size', 'i=9e18,j=9e18,k=9e18'], ['linear', '9e18', '9e18', '9e18'],
                  ['attention', '9e18', '9e18', '9e18', '1'], ['conv', '--input', '9e18,9e18,9e18', '--out-channels', '9e18', '--kernel', '1'], ['gemv', '9e18', '9e18', '--batch', '9e18'],
                  ['grouped', '9e18,9e18,9e18'], ['reduce', 'a b c -> a', 'sum', '9e18,9e18,9e18']):
        assert re.search('1(.7)?e38', refused('flops', *words)), words


# ---- what is refused ------------------------------------------------------------------------------------------------------------------------------

BAD = [
    ('', 'which op'), ('frobnicate 3', "'frobnicate'"), ('matmul 3', '1 operand'), ('matmul 3 4 5 6', '4 operands'), ('matmul 3 4 -5', "'-5'"), ('matmul 3 4 x', "'x'"),
    ('matmul 1.5 4 3', 'not a whole number'), ('matmul 3 4 99999999999999999999', 'too large'), ('matmul 2,3 4,5', 'inner sizes differ'), ('matmul 2,3,4 3,4,5', 'do not go together'),
    ('matmul 3 4 5 --groups 2', '--groups is not for this op'), ('matmul 3 4 5 --dtype fp33', "'fp33'"), ('matmul 3 4 5 --device b300', 'b300'), ('matmul 3 4 5 --beta x', '--beta'),
    ('matmul 3 4 5 --trans Q', '--trans'), ('matmul 3 4 5 --trans N,', '--trans'), ('matmul 30 4 5 --ld 8,8,8', 'leading dimension is 8'), ('matmul 3 4 5 --batch -1', 'negative'),
    ('matmul 3 4 5 --batch 2 --batch-stride 1,1,0', 'overwrite'), ('matmul 3,4 4,5 --batch 2', '--batch is not for shapes'), ('grouped 3,4', 'M,N,K'), ('grouped', '0 operands'),
    ('syrk 3', '1 operand'), ('syrk 3 4 --side left', '--side is not for this op'), ('syr 3 --beta 1', '--beta is not for this op'), ('dot 3 --trans T', '--trans is not for this op'),
    ('gemv 3 4 --dtype int8', 'int8'), ('symm 3 4 --side middle', "'middle'"), ('dot -- -1', 'negative'), ('getrf 3', "'getrf'"),
    ('einsum', '0 operands'), ('einsum ij,jk->ik 2,3', 'the size of axis'), ('einsum ij,jk->ik 2,3 4,5', "axis 'j' has two sizes, 3 and 4"), ('einsum ij,jk->ik 2,3 3,4 5', 'too many'),
    ('einsum ij,jk->iz 2,3 3,4', "axis 'z'"), ('einsum ij,jk->ii 2,3 3,4', 'twice'), ('einsum ij->i->j 2,3', 'more than one ->'), ('einsum ij,jk->i,k 2,3 3,4', 'more than one result'),
    ('einsum ij 2', 'its shape 1'), ('einsum ij,jk->ik --size i=2,j=3', "axis 'k'"), ('einsum ij,jk->ik --size i=2,j=3,q=4', "no axis 'q'"), ('einsum ij,jk->ik --size i=2,i=3', 'two sizes'),
    ('einsum ij,jk->ik --size i=2,j=-3,k=1', 'negative'), ('einsum ij,jk->ik --size i', 'NAME=VALUE'), ('einsum ij,jk->ik 2,3 3,4 --size j=5', 'two sizes'), ('einsum i$->i 3', "'$'"),
    ('einsum ...i->i', 'sizes of'), ('einsum i->...i 3', "'...' is in the result"), ('einsum ii->i 2,3', 'two sizes, 2 and 3'), ('einsum i,i->i 2,x 3', "'x'"),
    ('rearrange ab 3', 'no ->'), ('reduce a sum', 'no ->'), ('embedding 3 4', '2 operands'), ('embedding 3 0 4', 'zero'),
    ('conv --input 1,3,8,8 --out-channels 4', '--kernel'), ('conv --input 1,3 --out-channels 4 --kernel 1', '--input'), ('conv --input 1,3,8,8 --out-channels 4 --kernel 9', 'reaches over 9'),
    ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --groups 2', 'groups'), ('conv --input 1,3,8,8 --out-channels 4 --kernel 3,3,3', '3 numbers for 2'),
    ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --stride 0', 'zero'), ('conv --input 1,3,8,8 --out-channels 0 --kernel 3', 'zero'), ('conv 3 --input 1,3,8,8', '1 operand'),
    ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --output-padding 1', '--output-padding is not for this op'), ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --grads input', '--pass'),
    ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --pass sideways', "'sideways'"), ('conv --input 1,3,8,8 --out-channels 4 --kernel 3 --pass both --grads bias', "'bias'"),
    ('convtranspose --input 1,3,8,8 --out-channels 4 --kernel 3 --output-padding 5', 'output padding'), ('convtranspose --input 1,3,1,1 --out-channels 4 --kernel 1 --padding 3', 'padding takes all'),
    ('attention 1 2 3', 'dimensions'), ('attention 1 2 3 4 5', '5 operands'), ('attention 1 0 3 4', 'zero'), ('attention 1 6 3 4 --kv-heads 4', '4 key and value heads'),
    ('attention 1,2,3,4 --layout sbhd', "'sbhd'"), ('attention 1 2 3 4 --layout bshd', 'shapes'), ('attention 1,2,3,4 1,2,3,5', 'depth'), ('attention 1 2 3 4 --causal maybe', "'maybe'"),
    ('attention 1,2,3,4 1,2,3,4 --kv-heads 1', "k's shape"), ('linear 3 4', '2 operands'), ('linear 3 4 0', 'zero'), ('linear 3 4 5 --causal full', '--causal is not for this op'),
    ('einsum ij,jk->ik 2,3 3,4 --dtype complex64', 'no count is agreed on'), ('linear 2 3 4 --dtype complex128', 'no count is agreed on'), ('gemm 9e18 3 4 --dtype fp4,', "'fp4,'"),
    ('matmul 3 4 5 --frob', "'--frob'"), ('matmul 3 4 5 --dtype', '--dtype'), ('matmul 3 4 5 --format xml', 'xml')]
PATTERNS = [
    (['einsum', 'b s h, b t h'], 'no ->'), (['einsum', 'ij,jk-'], 'quote'), (['einsum', '(b s), b -> b'], '( )'), (['einsum', 'b 1 -> b'], '1 is for'), (['einsum', 'b 2 -> b'], "'2'"), (['rearrange', 'b h -> b', '2,3'], "axis 'h' is not in the result"),
    (['rearrange', 'b -> b h', '2'], "axis 'h'"), (['rearrange', 'b b -> b', '2,2'], 'twice'), (['rearrange', '(h w) -> h w', '12'], "'h' and 'w' share a dimension of 12"),
    (['rearrange', '(h w) -> h w', '12', '--size', 'h=5'], 'multiple of 5'), (['rearrange', '(h (w)) -> h w', '12'], '( within ( )'), (['rearrange', '(h -> h', '12'], '( without )'),
    (['rearrange', 'h) -> h', '12'], ') without ('), (['rearrange', 'a, b -> a b', '1', '2'], '3 operands'), (['rearrange', 'a, b -> a b', '1'], 'one operand'), (['rearrange', 'a 1 -> a', '2,3'], 'has size 3'),
    (['rearrange', 'a b -> b a', '2,3', '--stride', '1'], '2 dimensions'), (['reduce', 'a b -> a', 'median', '2,3'], "'median'"), (['reduce', '... b -> b', 'sum'], 'sizes of')]


@pytest.mark.parametrize('words,says', [(w.split(), s) for w, s in BAD] + PATTERNS, ids=lambda v: ' '.join(v) if isinstance(v, list) else None)
def test_what_cannot_be_is_refused(words, says):
    assert says in refused('flops', *words)


# ---- what is printed ----------------------------------------------------------------------------------------------------------------------------

DOCUMENTS = {'flops': [
    'matmul 4 5 6 --device h100-sxm', 'gemm 4 5 6 --dtype int8 --batch 2', 'symm 4 5', 'gbmv 4 5 1 1', 'syrk 4 5', 'grouped 1,2,3 4,5,6 --dtype int8', 'einsum ij,jk->ik 2,3 3,4', 'einsum ij,j->j 2,3 3 --device h200',
    'einsum ij,jk,kl->il 2,3 3,4 4,5 --device a100-80', 'einsum ij,jk,kl->il 2,3 3,4 4,5 --dtype int8', 'reduce,a b -> a,sum,2,3', 'rearrange,a b -> b a,2,3',
    'conv --input 1,2,5,5 --out-channels 3 --kernel 3 --pass both', 'convtranspose --input 1,2,5,5 --out-channels 3 --kernel 3', 'attention 1 2 3 4 --pass both',
    'linear 2 3 4 --pass both --bias', 'embedding 2 3 4'],
    'view': ['--shape 2,3 --index 1,1 --to 6 --index 3']}


@pytest.mark.parametrize('command', DOCUMENTS)
def test_keys_are_documented(command):
    """docs/JSON.md has the keys that are printed, and no others."""
    import test_format
    printed = set()
    for line in DOCUMENTS[command]:
        words = line.split(',', 2) if line.startswith('r') else line.split()
        s = plan(command, *([words[0], words[1], *words[2].split(',', 1)] if words[0] == 'reduce' else words))
        assert set(s) >= {'schema', 'command', 'convention', 'inputs', 'results', 'notes'}
        for part, says in (('inputs', 'from'), ('results', 'formula')):
            assert all(set(v) == {'value', 'unit', says} and v[says] for v in s[part].values()), line
            printed |= {f'{part}.{k}' for k in s[part]}
        for key in ('bytes', 'flops', 'integer_ops', 'best_flops'):                # the numbers of a formula make its value
            numbers = s['results'].get(key, {}).get('formula', '').split(' = ')[-1].replace('read ', '').replace('written ', '')
            if re.fullmatch(r'[\d+x() /]+', numbers) and s.value(key):
                assert eval(numbers.replace('x', '*').replace('/', '//')) == s.value(key), (line, key)
        printed |= {f'{table}[].{k}' for table in ('operands', 'parts', 'given_order', 'best_order', 'steps') for row in s.get(table, []) for k in row}
    assert printed == test_format.documented_keys()[f'acct plan {command}'] - {'convention'}


def test_people_see_what_machines_see():
    import subprocess
    from plan_words import ACCT
    words = 'plan flops einsum ij,jk,kl->il 20,30 30,40 40,50 --device h100-sxm --dtype bf16'.split()
    s = plan(*words[1:])
    for form in ('text', 'markdown', 'csv'):
        out = subprocess.run([ACCT, *words, '--format', form], capture_output=True, text=True)
        assert out.returncode == 0 and all(str(s.value(k)) in out.stdout for k in ('flops', 'best_flops', 'bytes')), form
        assert all(step['name'] in out.stdout for step in s['best_order'])


def test_people_see_large_sizes_as_machines_do():
    """Bytes of an operand beyond 2^63, bytes that are not known."""
    import subprocess
    from plan_words import ACCT
    for form in ('text', 'markdown'):
        out = lambda *w: subprocess.run([ACCT, 'plan', 'flops', *w, '--device', 'h100-sxm', '--format', form], capture_output=True, text=True).stdout
        large, unknown = out('matmul', '1e12', '1e9', '1'), out('gemv', '1e15', '5e14')
        assert f'{4 * 10 ** 21 / 2 ** 60:.2f} EiB ({4 * 10 ** 21})' in large
        assert 'nan' not in unknown and unknown.count('bytes not known') == 3


def test_rates_of_operations_are_scaled_too():
    import subprocess
    from plan_words import ACCT
    out = subprocess.run([ACCT, *'plan flops matmul 3 4 5 --dtype int8 --device t4'.split()], capture_output=True, text=True).stdout
    assert re.search(r'^  peak +130\.0 TOP/s ', out, re.M) and 'FLOP/s' not in out, out


def test_output_goes_to_a_file_and_help_is_there(tmp_path):
    import subprocess
    from plan_words import ACCT
    r = subprocess.run([ACCT, 'plan', 'flops', 'matmul', '3', '4', '5', '-f', 'json', '-o', tmp_path / 'x.json'], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout == '' and '"value": 120' in (tmp_path / 'x.json').read_text()
    helped = subprocess.run([ACCT, 'plan', 'flops', '--help'], capture_output=True, text=True).stdout
    assert all(re.search(rf'^  {op}', helped, re.M) for op in 'matmul grouped einsum reduce rearrange linear conv attention embedding'.split())
