"""README's "The lecture, line by line" and "The napkin and the ruler": every command runs as printed there, and every line of output that it shows comes out, in
that order (… stands for anything; the README leaves lines out)."""
import os, re
import pytest
from conftest import BUILD, DEVICE, TOP, run


def examples():
    """(command, lines shown), in groups: commands of one block follow one another."""
    text = open(os.path.join(TOP, 'README.md')).read()
    lecture, napkin = (re.search(rf'^## {title}\n(.*?)^## ', text, re.M | re.S).group(1) for title in ('The lecture, line by line', 'The napkin and the ruler'))
    blocks = re.findall(r'```console\n(.*?)```', lecture, re.S)
    assert len(blocks) == lecture.count('```') // 2 >= 14
    blocks += re.findall(r'```console\n(.*?)```', napkin, re.S)
    for block in blocks:
        parts = re.split(r'^\$ (.*)\n', block, flags=re.M)
        assert parts[0] == ''
        yield [(c, shown.splitlines()) for c, shown in zip(parts[1::2], parts[2::2])]


def appears(shown, lines, at):
    """Where the line comes next, or None. Blanks at its ends and their number do not matter."""
    pattern = re.compile('.*'.join(r'\s+'.join(map(re.escape, part.split())) for part in shown.split('…')))
    return next((i for i in range(at, len(lines)) if pattern.fullmatch(' '.join(lines[i].split())) or pattern.fullmatch(lines[i].strip())), None)


@pytest.mark.parametrize('block', examples(), ids=lambda b: re.sub(r'\W+', '-', b[0][0])[:40])
def test_as_the_readme_says(tmp_path, block):
    os.symlink(BUILD, tmp_path / 'build')
    for command, shown in block:
        r = run('bash', '-c', command, env=DEVICE, cwd=tmp_path) # what people type it into; dash expands redirections otherwise
        assert r.returncode == 0, (command, r)
        lines, at = (r.stdout + r.stderr).splitlines(), 0
        for line in shown:
            found = appears(line, lines, at)
            assert found is not None, (command, line, lines)
            at = found + 1
