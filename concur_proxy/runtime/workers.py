"""Several processes on one host behind one port: started together, started again when they die, ended together.

All of them accept from the socket that the first process has opened, so that no connection is lost with a process that
dies before it has taken it. They share sessions and windows as replicas on several hosts do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from concur_proxy.errors import ConcurError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SHORTEST_LIFE_S = 1.0
"""A worker that ends sooner is started again only after this long."""

logger = logging.getLogger(__name__)


def run_workers(count: int, work: Callable[[int], int]) -> int:
    """Let ``work`` run in ``count`` child processes until SIGTERM or SIGINT; return the exit status of them all.

    Each is told its number, from 0 on; one that is started again has the number of the one before.
    """
    return _Workers(count, work).run()


class _Workers:
    def __init__(self, count: int, work: Callable[[int], int]) -> None:
        self._count = count
        self._work = work
        self._started: dict[int, float] = {}
        self._numbers: dict[int, int] = {}
        self._ending = False
        self._worst = 0

    def run(self) -> int:
        for number in SIGNALS:
            signal.signal(number, lambda received, _frame: self._end(received))
        for worker in range(self._count):
            self._start(worker)
        while self._started:
            pid, status = os.wait()
            self._ended(pid, os.waitstatus_to_exitcode(status))
        return self._worst

    def _start(self, worker: int) -> None:
        # A signal in the middle of this would be taken by our handler in the child, or not reach the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if not self._ending:
            self._fork(worker)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _fork(self, worker: int) -> None:
        pid = os.fork()
        if pid == 0:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os._exit(self._in_child(worker))
        self._started[pid] = time.monotonic()
        self._numbers[pid] = worker

    def _in_child(self, worker: int) -> int:
        try:
            return self._work(worker)
        except ConcurError as error:
            sys.stderr.write(f"concur-proxy: {error.message}\n")
            return 1
        except BaseException:
            logger.exception("a worker failed")
            return 1

    def _ended(self, pid: int, status: int) -> None:
        lived_s = time.monotonic() - self._started.pop(pid, 0.0)
        worker = self._numbers.pop(pid, 0)
        if self._ending:
            ours = status in {-number for number in SIGNALS}  # it had not yet begun to serve
            self._worst = max(self._worst, 0 if ours else abs(status))
            return
        logger.warning("worker %d has ended with status %d and is started again", pid, status)
        time.sleep(max(0.0, SHORTEST_LIFE_S - lived_s))
        self._start(worker)

    def _end(self, number: int) -> None:
        """Pass a signal on; the second one ends them at once, as it does with a single process."""
        self._ending = True
        for pid in list(self._started):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)
