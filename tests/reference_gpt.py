"""The GPT of `train --model gpt` in double precision, written from its formulas (sample_app/README.md): whole arrays, no
kernels, and gradients by the chain rule of each formula, checked against the loss's slope in test_train_gpt.py.

Letters as there: B sequences, T positions, C channels, L layers, H heads of Q = C / H channels, V tokens. A weight is
(outputs, inputs)."""
import numpy as np
from number_formats import BF16, E4M3, E5M2, FP16, LARGEST, decode, encode
from reference_linear import WEIGHTS, WINDOWS, splitmix64, subkey

V = 256


def shapes(L, C, T, untied):
    """(name, shape) of each parameter, in the order in which train has and dumps them."""
    layered = [('ln1w', (C,)), ('ln1b', (C,)), ('qkvw', (3 * C, C)), ('qkvb', (3 * C,)), ('projw', (C, C)), ('projb', (C,)),
               ('ln2w', (C,)), ('ln2b', (C,)), ('fcw', (4 * C, C)), ('fcb', (4 * C,)), ('outw', (C, 4 * C)), ('outb', (C,))]
    return ([('wte', (V, C)), ('wpe', (T, C))] + [(f'{n}{l + 1}' if L > 1 else n, s) for n, s in layered for l in range(L)]
            + [('lnfw', (C,)), ('lnfb', (C,))] + ([('head', (V, C))] if untied else []))


def normal(key, n):
    i = np.arange(n, dtype=np.uint64)
    u = ((splitmix64(key, 2 * i) >> np.uint64(11)).astype(float) + 1) * 2.0**-53
    v = (splitmix64(key, 2 * i + np.uint64(1)) >> np.uint64(11)).astype(float) * 2.0**-53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def draw_parameters(seed, L, C, T, untied=False, scaled=True):
    key, out = subkey(seed, WEIGHTS), {}
    for i, (name, shape) in enumerate(shapes(L, C, T, untied)):
        if len(shape) == 1:
            out[name] = np.full(shape, 1.0 if name.rstrip('0123456789') in ('ln1w', 'ln2w', 'lnfw', 'ln') else 0.0)
            continue
        residual = name.startswith(('projw', 'outw'))
        std = 0.02 / np.sqrt(2 * L) if residual and scaled else 0.02
        out[name] = std * normal(subkey(key, i), shape[0] * shape[1]).reshape(shape)
    return out


def draw_batch(seed, step, B, T, text):
    """tokens, targets (B, T) of step 1, 2, …"""
    windows = (step - 1) * B + np.arange(B)
    offsets = splitmix64(subkey(seed, WINDOWS), windows) % np.uint64(len(text) - T)
    rows = np.array([np.frombuffer(text[int(o):int(o) + T + 1], np.uint8) for o in offsets]).astype(int)
    return rows[:, :-1], rows[:, 1:]


def layernorm(x, w, b):
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x - mean) * rstd * w + b


def layernorm_gradients(x, w, dout):
    """dx, dw, db: the Jacobian of y = (x − mean)/σ is (I − 1/C − y yᵀ/C)/σ, row by row."""
    C = x.shape[-1]
    mean = x.mean(-1, keepdims=True)
    sigma = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    y = (x - mean) / sigma
    jacobian = (np.eye(C) - 1 / C - np.einsum('nti,ntj->ntij', y, y) / C) / sigma[..., None]
    return np.einsum('nti,ntij->ntj', dout * w, jacobian), (dout * y).sum((0, 1)), dout.sum((0, 1))


ROOT = np.sqrt(2 / np.pi)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(ROOT * (x + 0.044715 * x ** 3)))


def gelu_slope(x):
    th = np.tanh(ROOT * (x + 0.044715 * x ** 3))
    return 0.5 * (1 + th) + 0.5 * x * (1 - th ** 2) * ROOT * (1 + 3 * 0.044715 * x ** 2)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads_of(x, H):
    """(B, T, C) as (B, H, T, Q)."""
    B, T, C = x.shape
    return x.reshape(B, T, H, C // H).transpose(0, 2, 1, 3)


def of_heads(x):
    B, H, T, Q = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * Q)


class Exact:
    """Arithmetic without rounding. What a number format does to it is told by the classes below, in the places where tensors
    are stored or multiplied, and nowhere else."""

    def real(self, x):
        """x as a tensor in the format of the run."""
        return x

    def product(self, a, b):
        """a · b, stored."""
        return self.real(a @ b)

    def product_dw(self, dout, x):
        """doutᵀ · x over all positions, a gradient of weights: fp32, exact here."""
        return sums(dout, x)

    def linear(self, x, w):
        """Of a layer's linear layers: x · wᵀ, and its two gradients."""
        return self.product(x, w.T)

    def linear_dx(self, dout, w):
        return self.product(dout, w)

    def linear_dw(self, dout, x):
        return self.product_dw(dout, x)


class Stored(Exact):
    """fp16 or bf16: every tensor is rounded where it is stored."""

    def __init__(self, fmt):
        self.fmt = fmt

    def real(self, x):
        return decode(encode(x, self.fmt), self.fmt)


class Tf32(Exact):
    """Factors of products have 10 bits behind the point, rounded to nearest."""

    def factor(self, x):
        mantissa, exponent = np.frexp(x)
        return np.ldexp(np.rint(np.ldexp(mantissa, 11)), exponent - 11)

    def product(self, a, b):
        return self.factor(a) @ self.factor(b)

    def product_dw(self, dout, x):
        return sums(self.factor(dout), self.factor(x))


class Fp8(Stored):
    """bf16, but the factors of linear layers are fp8: one scale for a tensor, which puts its largest number at the format's end."""

    def __init__(self):
        super().__init__(BF16)

    def factor(self, x, fmt):
        scale = LARGEST[fmt] / np.abs(x).max()
        return decode(encode(x * scale, fmt), fmt) / scale

    def linear(self, x, w):
        return self.real(self.factor(x, E4M3) @ self.factor(w, E4M3).T)

    def linear_dx(self, dout, w):
        return self.real(self.factor(dout, E5M2) @ self.factor(w, E4M3))

    def linear_dw(self, dout, x):
        return sums(self.factor(dout, E5M2), self.factor(x, E4M3))


ARITHMETIC = {'fp32': Exact(), 'tf32': Tf32(), 'bf16': Stored(BF16), 'fp16': Stored(FP16), 'fp8': Fp8()}
EXACT = ARITHMETIC['fp32']


def forward(p, tokens, targets, H, r=EXACT):
    """The loss, and what the gradients need of every layer."""
    B, T = tokens.shape
    L = sum(n.startswith('qkvw') for n in p)
    names = [str(l + 1) if L > 1 else '' for l in range(L)]
    C, kept = p['wte'].shape[1], []
    x = r.real(p['wte'][tokens] + p['wpe'][:T])
    for l in names:
        a = r.real(layernorm(x, p['ln1w' + l], p['ln1b' + l]))
        q, k, v = (heads_of(part, H) for part in np.split(r.real(r.linear(a, p['qkvw' + l]) + p['qkvb' + l]), 3, -1))
        scores = r.product(q, k.swapaxes(-1, -2)) / np.sqrt(C // H)
        att = r.real(softmax(np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)))
        joined = of_heads(r.product(att, v))
        middle = r.real(x + r.real(r.linear(joined, p['projw' + l]) + p['projb' + l]))
        b = r.real(layernorm(middle, p['ln2w' + l], p['ln2b' + l]))
        fc = r.real(r.linear(b, p['fcw' + l]) + p['fcb' + l])
        gelued = r.real(gelu(fc))
        kept.append((l, x, a, q, k, v, att, joined, middle, b, fc, gelued))
        x = r.real(middle + r.real(r.linear(gelued, p['outw' + l]) + p['outb' + l]))
    final = r.real(layernorm(x, p['lnfw'], p['lnfb']))
    probabilities = softmax(r.product(final, p.get('head', p['wte']).T))
    losses = -np.log(np.take_along_axis(probabilities, targets[..., None], -1))
    return losses.mean(), kept, x, final, probabilities


def loss(p, tokens, targets, H):
    return forward(p, tokens, targets, H)[0]


def sums(dout, x):
    """dw (outputs, inputs) of out = x wᵀ."""
    return np.einsum('bto,bti->oi', dout, x)


def gradients(p, tokens, targets, H, r=EXACT, scale=1):
    """The loss and the gradient of every parameter. `scale`: of the loss's gradient, taken off again at the end."""
    value, kept, x, final, probabilities = forward(p, tokens, targets, H, r)
    B, T = tokens.shape
    C, head = p['wte'].shape[1], 'head' if 'head' in p else 'wte'
    g = {n: np.zeros_like(w) for n, w in p.items()}
    dlogits = r.real(scale * (probabilities - np.eye(V)[targets]) / (B * T))
    g[head] += r.product_dw(dlogits, final)
    dx, g['lnfw'], g['lnfb'] = layernorm_gradients(x, p['lnfw'], r.product(dlogits, p[head]))
    dx = r.real(dx)
    for l, x, a, q, k, v, att, joined, middle, b, fc, gelued in reversed(kept):
        dgelu = r.linear_dx(dx, p['outw' + l])
        g['outw' + l], g['outb' + l] = r.linear_dw(dx, gelued), dx.sum((0, 1))
        dfc = r.real(dgelu * gelu_slope(fc))
        g['fcw' + l], g['fcb' + l] = r.linear_dw(dfc, b), dfc.sum((0, 1))
        dmiddle, g['ln2w' + l], g['ln2b' + l] = layernorm_gradients(middle, p['ln2w' + l], r.linear_dx(dfc, p['fcw' + l]))
        dx = r.real(dx + dmiddle)
        g['projw' + l], g['projb' + l] = r.linear_dw(dx, joined), dx.sum((0, 1))
        dy = heads_of(r.linear_dx(dx, p['projw' + l]), H)
        datt = r.product(dy, v.swapaxes(-1, -2))
        dscores = r.real(att * (datt - (att * datt).sum(-1, keepdims=True)) / np.sqrt(C // H))
        dqkv = np.concatenate([of_heads(r.product(dscores, k)), of_heads(r.product(dscores.swapaxes(-1, -2), q)),
                               of_heads(r.product(att.swapaxes(-1, -2), dy))], -1)
        g['qkvw' + l], g['qkvb' + l] = r.linear_dw(dqkv, a), dqkv.sum((0, 1))
        dinput, g['ln1w' + l], g['ln1b' + l] = layernorm_gradients(x, p['ln1w' + l], r.linear_dx(dqkv, p['qkvw' + l]))
        dx = r.real(dx + dinput)
    np.add.at(g['wte'], tokens, dx)
    g['wpe'][:T] += dx.sum(0)
    return value, {n: x / scale for n, x in g.items()}


def train(p, batches, H, optimizer, lr, momentum=0.9, decay=0.1, betas=(0.9, 0.95), epsilon=1e-8):
    """One update of p for each of the batches; yields loss, parameters and gradients of each step, before its update."""
    m, v = ({n: np.zeros_like(w) for n, w in p.items()} for _ in range(2))
    p = dict(p)
    for step, (tokens, targets) in enumerate(batches, 1):
        value, g = gradients(p, tokens, targets, H)
        yield value, dict(p), g
        for n in p:
            if optimizer == 'sgd':
                p[n] = p[n] - lr * g[n]
            elif optimizer == 'momentum':
                v[n] = momentum * v[n] + g[n]
                p[n] = p[n] - lr * v[n]
            else:
                m[n] = betas[0] * m[n] + (1 - betas[0]) * g[n]
                v[n] = betas[1] * v[n] + (1 - betas[1]) * g[n] ** 2
                change = m[n] / (1 - betas[0] ** step) / (np.sqrt(v[n] / (1 - betas[1] ** step)) + epsilon)
                p[n] = p[n] - lr * (change + (decay * p[n] if p[n].ndim == 2 else 0))
