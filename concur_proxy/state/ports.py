"""What the shared state needs of the rest of the proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from concur_proxy.core.gate import Decision, Gate
from concur_proxy.model import BackendEvent, BackendId, RefusalReason, TurnRecord
from concur_proxy.windows.base import Unit, WindowView


class Door(Protocol):
    """The gate among sockets: what is decided here reaches the turns that wait."""

    gate: Gate
    clock: Callable[[], float]

    def carry_out(self, act: Callable[[float], list[Decision]]) -> None:
        """Let the gate decide, ``act(now)``, and tell those who wait."""
        ...

    def refuse_all(self, reason: RefusalReason) -> None:
        """Refuse what is held, and whatever comes, until ``reopen``."""
        ...

    def reopen(self) -> None: ...

    @property
    def held(self) -> int: ...

    def view(self, backend: BackendId) -> WindowView: ...

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None: ...

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None: ...

    def set_capacity(self, backend: BackendId, tokens: float | None) -> None: ...

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None: ...


class Laws(Protocol):
    """The control loop: it moves windows where this replica leads, and learns from everybody's turns."""

    def finished(self, record: TurnRecord) -> None: ...

    def refused(self, backend: BackendId) -> None: ...

    def dump(self) -> dict[BackendId, Mapping[str, object]]: ...

    def take_over(self, learned: Mapping[str, Any]) -> None:
        """Lead from now on, with what the one before had learned."""
        ...
