"""What laws have learned, in a small file that outlives the proxy. A file that is no good is ignored with a warning."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from concur_proxy.model import BackendId
from concur_proxy.tasks import end

VERSION = 1
SAVE_EVERY_S = 60.0
OLDEST_S = 30 * 86_400.0
"""What was learned longer ago says little of today's traffic."""

logger = logging.getLogger(__name__)

State = Mapping[str, Any]


class Keeper:
    """Reads the file once, writes it now and then and at the end; ``dump`` gives each backend's state."""

    def __init__(self, path: Path, dump: Callable[[], Mapping[BackendId, State]]) -> None:
        self._path = path
        self._dump = dump
        self._kept = self._read()
        self._task: asyncio.Task[None] | None = None

    def kept(self, backend: BackendId) -> State | None:
        """Return what the file has of a backend."""
        state = self._kept.get(backend)
        return state if isinstance(state, Mapping) else None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="state file")

    async def stop(self) -> None:
        """Write once more and end."""
        if self._task is not None:
            await end(self._task)
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all; a failure is a warning."""
        states = {**self._kept, **{backend: dict(state) for backend, state in self._dump().items()}}
        text = json.dumps({"version": VERSION, "saved_at": time.time(), "backends": states})
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text, encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            logger.warning("control.state_file: cannot write %s: %s", self._path, error)
            with contextlib.suppress(OSError):
                beside.unlink()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            self.save()

    def _read(self) -> dict[BackendId, Any]:
        try:
            return _backends(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("control.state_file: %s is ignored: %s", self._path, error)
            return {}


def _backends(document: object) -> dict[BackendId, Any]:
    """Return the states in a file's content; ValueError says what is wrong with it."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"it is not a state file of version {VERSION}")
    saved_at, backends = document.get("saved_at"), document.get("backends")
    if isinstance(saved_at, int | float) and time.time() - saved_at > OLDEST_S:
        raise ValueError(f"it is older than {OLDEST_S / 86_400:.0f} days")
    if isinstance(saved_at, int | float) and isinstance(backends, dict):
        return backends
    raise ValueError("it has no saved_at or no backends")
