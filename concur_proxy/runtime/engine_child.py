"""vLLM as a child of the proxy: ``serve --vllm MODEL``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from concur_proxy.config import BackendSettings, EngineKind, Settings
from concur_proxy.errors import ConcurError
from concur_proxy.fleet.child import VllmChild
from concur_proxy.tasks import end

NAME = "vllm"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """What to start: a model, and flags that go to the engine as they are."""

    model: str
    flags: tuple[str, ...] = ()


class EngineChild:
    """Runs the engine as long as the proxy runs; when it cannot be kept alive, the proxy ends, too."""

    def __init__(self, options: VllmOptions, on_failure: Callable[[str], None]) -> None:
        self._child = VllmChild(options.model, options.flags)
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    def added_to(self, settings: Settings) -> Settings:
        """Return the settings with the engine as one more backend."""
        backend = BackendSettings(url=self._child.url, name=NAME, kind=EngineKind.VLLM)
        return Settings.model_validate({**dict(settings), "backends": (*settings.backends, backend)})

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="vllm")

    async def _run(self) -> None:
        try:
            await self._child.start()
            # That it is down or up again is what the health probes see; they need no telling.
            await self._child.supervise(_nothing, _nothing)
        except ConcurError as error:
            self._on_failure(error.message)

    async def stop(self) -> None:
        await self._child.stop()
        await end(self._task)


def _nothing() -> None:
    pass
