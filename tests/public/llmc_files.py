"""A randomly initialised GPT-2 of any size and tokens, in the file formats that llm.c reads (its version 3: fp32, 5: bf16)."""
import numpy as np

MODEL_MAGIC, TOKENS_MAGIC = 20240326, 20240520


def bf16(x):
    """Round to nearest, ties to even."""
    bits = x.view('<u4').astype(np.uint64)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype('<u2')


def parameters(config):
    """Tensors of a GPT-2 in the file's order: normal weights of deviation 0.02 (projections into the residual stream smaller by
    sqrt(2 layers)), gains 1, biases 0; rows of the vocabulary's padding are 0."""
    t, v, vp, layers, c = (config[k] for k in ('max_t', 'vocabulary', 'padded', 'layers', 'channels'))
    random = np.random.default_rng(42)

    def normal(*shape, deviation=0.02):
        return (deviation * random.standard_normal(shape)).astype('<f4')
    small = 0.02 / np.sqrt(2 * layers)
    wte = normal(vp, c)
    wte[v:] = 0
    zeros, ones = (lambda *s: np.zeros(s, '<f4')), (lambda *s: np.ones(s, '<f4'))
    return [wte, normal(t, c),
            ones(layers, c), zeros(layers, c), normal(layers, 3 * c, c), zeros(layers, 3 * c), normal(layers, c, c, deviation=small), zeros(layers, c),
            ones(layers, c), zeros(layers, c), normal(layers, 4 * c, c), zeros(layers, 4 * c), normal(layers, c, 4 * c, deviation=small), zeros(layers, c),
            ones(c), zeros(c)]


def write_model(path, config, half):
    """Returns the number of parameters."""
    head = np.zeros(256, '<i4')
    head[:8] = [MODEL_MAGIC, 5 if half else 3, config['max_t'], config['vocabulary'], config['layers'], config['heads'], config['channels'], config['padded']]
    tensors = parameters(config)
    with open(path, 'wb') as f:
        f.write(head.tobytes())
        for x in tensors:
            f.write((bf16(x) if half else x).tobytes())
    return sum(x.size for x in tensors)


def write_tokens(path, count, vocabulary, seed):
    head = np.zeros(256, '<i4')
    head[:3] = [TOKENS_MAGIC, 1, count]
    with open(path, 'wb') as f:
        f.write(head.tobytes())
        f.write(((np.random.default_rng(seed).zipf(1.3, count) - 1) % vocabulary).astype('<u2').tobytes())
