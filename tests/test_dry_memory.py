"""Does it fit? Of a GPT-2 XL, dry on devices that nobody here has: the smallest batch that runs out of memory is the one that
arithmetic gives, from the program's own account and the rule by which a device counts its memory (docs/INTERNALS.md)."""
import json, os, re
import pytest
from conftest import BUILD, ON_GPU, run
from test_profile import DEVICES, MIB

pytestmark = pytest.mark.skipif(ON_GPU, reason='of the virtual GPU')
ACCT, TRAIN = os.path.join(BUILD, 'acct'), os.path.join(BUILD, 'train')
SHAPE = '--model gpt --layers 48 --dim 1600 --heads 25 --seq 1024 --optimizer adamw --steps 1'


def dry(tmp_path, device, batch, *more):
    return run(TRAIN, *SHAPE.split(), '--batch', batch, *more, timeout=300, env={
        'LD_LIBRARY_PATH': os.path.join(BUILD, 'vgpu'), 'ACCT_VGPU': device, 'ACCT_VGPU_DRY': 'on'})


def blocks(tmp_path, batch):
    """Bytes of each cudaMalloc, from the program's account: its buffers."""
    r = dry(tmp_path, 'b200', batch, '--alloc', 'tensor', '--truth', tmp_path / f'{batch}.json')
    assert r.returncode == 0, r.stderr
    return [b['bytes'] for b in json.load(open(tmp_path / f'{batch}.json'))['buffers']]


def pages(sizes):
    """Bytes of the device: requests above 1 MiB take whole pages of 2 MiB, smaller ones, multiples of 512 bytes, share pages."""
    large = sum(-(-s // (2 * MIB)) * 2 * MIB for s in sizes if s > MIB)
    return large + -(-sum(-(-s // 512) * 512 for s in sizes if s <= MIB) // (2 * MIB)) * 2 * MIB


@pytest.mark.parametrize('device', ['h100-sxm', 'a100-40', 'b200'])
def test_smallest_batch_that_fails(tmp_path, device):
    one, two = blocks(tmp_path, 1), blocks(tmp_path, 2)
    assert len(one) == len(two)
    of = lambda batch: [a + (b - a) * (batch - 1) for a, b in zip(one, two)]         # each tensor has so much for each sequence
    d = DEVICES[device]
    total = d['total'] if isinstance(d['total'], int) else int(d['total'])
    available = total - d['reserved']
    fits = max(batch for batch in range(1, 64) if pages(of(batch)) <= available)
    assert 1 <= fits < 63
    r = dry(tmp_path, device, fits, '--alloc', 'tensor')
    assert r.returncode == 0, r.stderr
    r = dry(tmp_path, device, fits + 1, '--alloc', 'tensor')
    assert r.returncode != 0 and 'out of device memory' in r.stderr
