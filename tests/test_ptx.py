"""The readers of PTX and fat binaries under their fuzzers, briefly; `make fuzz` runs them longer."""
import os, subprocess
import pytest
from conftest import BUILD, TOP


@pytest.mark.parametrize('name', ['fuzz_ptx', 'fuzz_fatbin'])
def test_fuzz_briefly(tmp_path, name):
    """A crash leaves the input in the folder and its report on stderr."""
    found = tmp_path / 'found'
    found.mkdir()
    r = subprocess.run([os.path.join(BUILD, 'fuzz', name), '-max_total_time=5', '-verbosity=0', '-seed=1', '-max_len=20000', found,
                        os.path.join(TOP, 'tests', 'fuzz', 'seeds_' + name)], cwd=tmp_path, timeout=120, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors='replace')
    assert r.returncode == 0, r.stdout[-5000:]
    assert any(found.iterdir()), 'the fuzzer found nothing new: it did not run'
