"""One ring for each backend, and one for all of them together."""

from __future__ import annotations

from collections.abc import Mapping

from concur_proxy.history.moment import UNKNOWN, Moment, altogether
from concur_proxy.history.ring import Ring

INTERVAL_S = 10.0
SPAN_S = 24 * 3600.0
MAX_BACKENDS = 256
"""Rings kept at once; where backends come and go, the ring untouched for longest makes room."""


class History:
    """A day of moments. Backends that are gone are remembered until their last moment is a day old."""

    __slots__ = ("_rings", "max_backends", "total")

    def __init__(self, *, span_s: float = SPAN_S, interval_s: float = INTERVAL_S, backends: int = MAX_BACKENDS) -> None:
        limit = round(span_s / interval_s)
        self.total = Ring(limit)
        self.max_backends = backends
        self._rings: dict[str, Ring] = {}

    def record(self, moments: Mapping[str, Moment], *, now: float, held: float = UNKNOWN) -> None:
        """Keep what is known of each backend now, and how many turns wait for any of them."""
        for name, moment in moments.items():
            ring = self._rings.pop(name, None) or Ring(self.total.limit)
            self._rings[name] = ring  # the one touched last stands last
            ring.add(now, moment)
        while len(self._rings) > self.max_backends:
            del self._rings[next(iter(self._rings))]
        self.total.add(now, altogether(list(moments.values()))._replace(held=held))
        self._forget()

    @property
    def backends(self) -> list[str]:
        """The backends that something is known of, by name."""
        return sorted(self._rings)

    def ring(self, backend: str | None) -> Ring | None:
        """Return the ring of a backend, None where nothing is known of it; that of all for None."""
        return self.total if backend is None else self._rings.get(backend)

    def _forget(self) -> None:
        """Drop those of which nothing is younger than the oldest moment of all."""
        oldest = next(self.total.between(float("-inf")))[0]
        for name in [name for name, ring in self._rings.items() if ring.newest_at < oldest]:
            del self._rings[name]
