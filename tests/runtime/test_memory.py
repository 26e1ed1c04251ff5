"""Garbage collections, and what is kept of freed memory: pages asked of the system again. In processes of their own."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource
from concur_proxy.runtime.memory import keep_freed_memory
{before}
keep_freed_memory()

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bodies = [b"x" * (1 << 20) for _ in range(20)]
    del bodies
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([pages() for _ in range(4)][-1])
"""
BODIES_PAGES = (20 << 20) // os.sysconf("SC_PAGE_SIZE")

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this is glibc's own")


def pages_asked_for_again(before="", **environment):
    kept = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    code = CODE.format(before=before)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept | environment
    )
    return int(ended.stdout)


@on_glibc
def test_bodies_take_the_memory_that_earlier_ones_have_left():
    assert pages_asked_for_again() < BODIES_PAGES / 10


@on_glibc
def test_what_the_operator_has_said_stays():
    assert pages_asked_for_again(MALLOC_TRIM_THRESHOLD_="131072") > BODIES_PAGES / 2


@on_glibc
def test_a_c_library_without_the_function_is_left_alone():
    assert pages_asked_for_again("import ctypes; ctypes.CDLL = lambda _: object()") > BODIES_PAGES / 2


COLLECTED = """
import gc
from concur_proxy.runtime.memory import leave_out_of_collections
kept = [{} for _ in range(10_000)]
leave_out_of_collections()
later = [[] for _ in range(100)]
print(sum(1 for each in gc.get_objects() if each in (kept, later)), len(gc.get_objects()))
"""


def test_what_is_there_before_the_first_request_is_left_out_of_collections():
    ended = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True)
    known, looked_at = map(int, ended.stdout.split())
    assert known == 1
    assert 100 <= looked_at < 1000
