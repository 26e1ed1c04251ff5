import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from concur_proxy.fleet import warden
from tests.clients.stack import children, ended

PATIENCE_S = 20.0
WAITS = "import signal; print('ready', flush=True); signal.pause()"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
DEAF = WAITS.replace("import signal;", IGNORES_SIGTERM)
LEAVES_A_WORKER = (
    "import subprocess, sys; "
    f"worker = subprocess.Popen([sys.executable, '-c', {WAITS!r}], stdout=subprocess.PIPE); "
    "worker.stdout.readline(); print(worker.pid, flush=True)"
)


@contextmanager
def guarded(code: str, *, grace_s: float = 10.0) -> Iterator[subprocess.Popen[bytes]]:
    """Python code under a warden, which has printed its first line, if any."""
    command = warden.command([sys.executable, "-c", code], grace_s=grace_s)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process


@pytest.mark.parametrize(("code", "status"), [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(0, 9)", 137)])
def test_the_programs_exit_status_is_the_wardens(code: str, status: int) -> None:
    with guarded(code) as process:
        assert process.wait(PATIENCE_S) == status


def test_letting_go_ends_the_program() -> None:
    with guarded(WAITS) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_a_program_that_will_not_go_is_killed_after_the_grace_time() -> None:
    with guarded(DEAF, grace_s=0.1) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL


@pytest.mark.parametrize("code", [LEAVES_A_WORKER, LEAVES_A_WORKER.replace("import signal;", IGNORES_SIGTERM)])
def test_what_a_program_leaves_behind_ends_with_it(code: str) -> None:
    with guarded(code, grace_s=0.1) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert process.wait(PATIENCE_S) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_orphans_become_the_wardens_so_that_it_sees_their_end() -> None:
    code = LEAVES_A_WORKER.replace("print(worker.pid", "import os; print(os.getpid(), worker.pid")
    with guarded(code.replace("import signal;", IGNORES_SIGTERM)) as process:
        assert process.stdout is not None
        program, worker = (int(pid) for pid in process.stdout.readline().split())
        assert ended(program)
        assert children(process.pid)[-1] == worker
        os.kill(worker, signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 0


def test_the_program_ends_when_the_warden_is_killed() -> None:
    with guarded(WAITS) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (program,) = children(process.pid)
        process.kill()
        assert ended(program)


def test_a_signal_to_the_warden_reaches_the_program() -> None:
    with guarded(WAITS) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
