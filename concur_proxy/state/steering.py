"""The gate as the control loop sees it where several replicas share each window: all of them as one.

What the law decides is the whole window. Where this replica does not lead, its loop decides nothing.
"""

from __future__ import annotations

from concur_proxy.model import BackendEvent, BackendId
from concur_proxy.state.replica import Replica
from concur_proxy.windows.base import Unit, WindowView


class SharedGate:
    """Implements ``core.regulator.GatePort``."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def view(self, backend: BackendId) -> WindowView:
        return self._replica.view(backend)

    def resize(self, backend: BackendId, window: float, *, hard: bool = False) -> None:
        self._replica.decide(backend, window, hard=hard)

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None:
        self._replica.begin(backend, unit, window)

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None:
        self._replica.set_bounds(backend, minimum, maximum)

    def set_capacity(self, backend: BackendId, tokens: float) -> None:
        self._replica.set_capacity(backend, tokens)

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None:
        self._replica.door.backend_event(backend, event)
