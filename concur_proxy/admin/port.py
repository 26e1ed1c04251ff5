"""What the management API needs from the running proxy; ``runtime`` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from concur_proxy.admin.backends import BackendsPort
from concur_proxy.admin.changes import Change
from concur_proxy.admin.past import Past
from concur_proxy.admin.reports import Queue, SessionList, StatusReport
from concur_proxy.config import Settings
from concur_proxy.core.listing import Query


class AdminPort(BackendsPort, Protocol):
    """All calls come from the event loop of the data path; those that are not awaited return at once."""

    def status(self) -> StatusReport: ...

    async def sessions(self, query: Query) -> SessionList:
        """Return a page of sessions; of many, it lets turns pass while it looks."""
        ...

    def queue(self, *, limit: int) -> Queue: ...

    def past(self) -> Past: ...

    def ending(self) -> bool:
        """Tell whether the proxy is about to end."""
        ...

    def end_sessions(self, session_id: str, *, namespace: str | None) -> int:
        """End the session with this id, in one namespace or (None) in all; return how many there were."""
        ...

    def settings(self) -> Settings:
        """Return the settings in force."""
        ...

    def bounds(self) -> Sequence[tuple[float, float]]:
        """Return minimum and maximum in force of each backend's window."""
        ...

    def change(self, change: Change) -> None:
        """Put ``change.settings`` in force, for what ``change.names`` has.

        Where a bound of the window is named, each backend gets ``changes.bounds`` of its view; others keep theirs,
        unless the law counts in another unit from now on.
        """
        ...
