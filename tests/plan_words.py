"""What tests of `acct plan` share: running a word and reading its sheet."""
import json, os, subprocess
from conftest import BUILD

ACCT = os.path.join(BUILD, 'acct')


class Sheet(dict):
    """The JSON; s.value('flops') is a result, None where it is not known."""
    def value(self, key):
        return self['results'][key]['value']

    def formula(self, key):
        return self['results'][key]['formula']


def plan(*words):
    r = subprocess.run([ACCT, 'plan', *map(str, words), '--format', 'json'], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stderr == '', (words, r.stderr)
    sheet = Sheet(json.loads(r.stdout))
    assert sheet['schema'] == 1 and sheet['command'] == f'plan {words[0]}'
    return sheet


def refused(*words):
    """One line, exit code 2, nothing on standard output; returns the line."""
    r = subprocess.run([ACCT, 'plan', *map(str, words)], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and r.stdout == '' and r.stderr.count('\n') == 1, (words, r)
    return r.stderr
