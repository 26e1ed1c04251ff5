"""Tells when files change: keys and certificates are replaced while the proxy runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from concur_proxy.errors import ConcurError
from concur_proxy.tasks import end

LOOK_EVERY_S = 2.0
"""Mounts of secrets are swapped by links, which tells no watcher of the file: looking is what works everywhere."""

logger = logging.getLogger(__name__)

Stamp = tuple[int, int, int] | None


class FileWatch:
    """Calls ``on_change`` after some of the files have changed; a change that cannot be used is told and waited out."""

    def __init__(self, paths: Iterable[str], on_change: Callable[[], None], *, every_s: float = LOOK_EVERY_S) -> None:
        self._paths = tuple(Path(path) for path in paths)
        self._on_change = on_change
        self._every_s = every_s
        self._stamps = self._look()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="file watch")

    async def stop(self) -> None:
        await end(self._task)

    def check(self) -> bool:
        """Look once; True where something had changed."""
        stamps = self._look()  # before the files are read: what is written meanwhile is a change of its own
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        names = ", ".join(str(path) for path in self._paths)
        try:
            self._on_change()
        except ConcurError as error:
            logger.error("what was there before stays in force: %s", error.message)  # noqa: TRY400 - no bug of ours
        except Exception:
            logger.exception("what was there before stays in force: %s", names)
        else:
            logger.info("read again: %s", names)
        return True

    def _look(self) -> list[Stamp]:
        return [_stamp(path) for path in self._paths]

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            self.check()


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
