"""Keeps a program and everything it starts on a leash: ``python warden.py GRACE_S PROGRAM [ARGUMENT...]``.

The program runs in a process group of its own. When the warden's standard input ends, which it also does when whoever
holds the other end is killed, the group gets SIGTERM and, after the grace time, SIGKILL. When the program ends by
itself, what it left behind in the group is ended too: an engine's worker that outlives its server keeps the GPU's
memory and the port. Should the warden itself be killed, the program gets SIGTERM from the kernel. The exit status is
the program's, 128 + N after signal N.

Run as a file, with no import but the standard library: it starts in milliseconds and depends on nothing that may break.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

POLL_S = 0.05
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)


def command(program: Sequence[str], *, grace_s: float) -> list[str]:
    """Return the command line that runs ``program`` under a warden; its standard input must be a pipe that you hold."""
    return [sys.executable, "-I", "-S", __file__, str(grace_s), *program]


def main(arguments: Sequence[str]) -> int:
    grace_s, program = float(arguments[0]), arguments[1:]
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the program become ours, so that their end can be seen
    child = subprocess.Popen(  # noqa: S603 - the caller's own program
        program,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - there is one thread as yet
    )
    signal.signal(signal.SIGTERM, lambda *_: _signal_group(child.pid, signal.SIGTERM))
    threading.Thread(target=_end_with_input, args=(child.pid, grace_s), daemon=True).start()
    status = child.wait()
    _end_leftovers(child.pid, grace_s)
    return status if status >= 0 else 128 - status


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the warden has to do without."""
    with contextlib.suppress(AttributeError):
        LIBC.prctl(option, value, 0, 0, 0)


def _end_with_input(group: int, grace_s: float) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    _signal_group(group, signal.SIGTERM)
    time.sleep(grace_s)
    _signal_group(group, signal.SIGKILL)


def _end_leftovers(group: int, grace_s: float) -> None:
    deadline = time.monotonic() + grace_s
    _signal_group(group, signal.SIGTERM)
    while _group_lives(group):
        if time.monotonic() >= deadline:
            _signal_group(group, signal.SIGKILL)
        time.sleep(POLL_S)


def _group_lives(group: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return _signal_group(group, 0)


def _signal_group(group: int, number: int) -> bool:
    """Whether there was anyone to get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
