"""The deep linear model of `train --model linear` in double precision, from its formulas alone.

  h_0 = x (B, D)   h_l = h_{l-1} W_l   y = h_L   loss = 1/(B D) sum (y - x)^2

The gradient is in closed form, with no backward pass: dloss/dW_l = (x W_1 ... W_{l-1})^T G (W_{l+1} ... W_L)^T with
G = 2/(B D) (y - x). Weights and windows are drawn by the documented generator (sample_app/README.md), written anew."""
import functools
import numpy as np

GOLDEN, M1, M2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WEIGHTS, WINDOWS = 0, 1


def splitmix64(key, i):
    """Numbers i (an array) of the sequence that starts at key; uint64."""
    with np.errstate(over='ignore'):
        z = np.uint64(key) + (np.asarray(i, np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(M1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(M2)
        return z ^ (z >> np.uint64(31))


def subkey(key, i):
    return int(splitmix64(key, [i])[0])


def truncated_normal(n, key):
    """n standard normal numbers (Box and Muller, cosine branch), those beyond 3 left out."""
    pairs = np.arange(n + n // 50 + 64, dtype=np.uint64)
    u = ((splitmix64(key, 2 * pairs) >> np.uint64(11)).astype(float) + 1) * 2.0**-53
    v = (splitmix64(key, 2 * pairs + np.uint64(1)) >> np.uint64(11)).astype(float) * 2.0**-53
    z = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    z = z[np.abs(z) <= 3]
    assert len(z) >= n
    return z[:n]


def draw_weights(seed, layers, dim, std):
    key = subkey(seed, WEIGHTS)
    return [std * truncated_normal(dim * dim, subkey(key, l)).reshape(dim, dim) for l in range(layers)]


def draw_batch(seed, step, batch, dim, text):
    """The batch of step 1, 2, ...: (B, D)."""
    key = subkey(seed, WINDOWS)
    windows = (step - 1) * batch + np.arange(batch)
    offsets = splitmix64(key, windows) % np.uint64(len(text) - dim + 1)
    return np.array([np.frombuffer(text[int(o):int(o) + dim], np.uint8) for o in offsets]) / 127.5 - 1


def product(matrices, start):
    return functools.reduce(np.matmul, matrices, start)


def loss(x, W):
    return np.mean((product(W, x) - x) ** 2)


def gradients(x, W):
    B, D = x.shape
    G = 2 / (B * D) * (product(W, x) - x)
    return [product(W[:l], x).T @ G @ product(W[l + 1:], np.eye(D)).T for l in range(len(W))]


def train(seed, layers, dim, batch, steps, text, lr, momentum=None):
    """The losses of all steps; then x, W and dW of the last, before its update. momentum None: plain SGD."""
    W = draw_weights(seed, layers, dim, dim ** -0.5)
    v = [np.zeros_like(w) for w in W]
    losses = []
    for step in range(1, steps + 1):
        x = draw_batch(seed, step, batch, dim, text)
        losses.append(loss(x, W))
        g = gradients(x, W)
        if step == steps:
            return losses, x, W, g
        v = [momentum * a + b for a, b in zip(v, g)] if momentum is not None else g
        W = [w - lr * a for w, a in zip(W, v)]
