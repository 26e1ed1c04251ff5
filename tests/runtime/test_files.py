"""The limit on open files, in a process of its own."""

import subprocess
import sys

CODE = """
import logging, resource
from concur_proxy.runtime.files import raise_open_files
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))
print(raise_open_files({connections}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def outcome(**values):
    ended = subprocess.run([sys.executable, "-c", CODE.format(**values)], capture_output=True, text=True, check=True)
    return ended.stdout.split(), ended.stderr


def test_the_limit_is_raised_as_far_as_it_goes():
    limits, said = outcome(hard=900, connections=900)
    assert limits == ["900", "900"]
    assert said == ""


def test_a_limit_that_does_not_do_is_told():
    limits, said = outcome(hard=900, connections=901)
    assert limits == ["900", "900"]
    assert "only 900 files may be open at once" in said
    assert "server.max_connections = 901" in said
