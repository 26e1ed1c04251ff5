"""A shadow of one engine's prefix cache: which sessions' contexts are still there.

Engines evict least recently released blocks first, and never those of running requests. The shadow does the same in
units of sessions. What engines report as cached corrects the one thing it cannot know, how much room there really is.
"""

from __future__ import annotations

from concur_proxy.model import SessionKey

WARM = 0.5
"""A context is warm while more than this share of it is resident."""

STEP = 0.02
SLACK = (0.3, 1.2)


class Shadow:
    """Tokens resident per session; ``capacity`` None: unknown, nothing is evicted and nothing is known to be warm."""

    __slots__ = ("_idle", "_idle_tokens", "_pinned", "_pinned_tokens", "capacity", "trust")

    def __init__(self, capacity: float | None = None) -> None:
        self.capacity = capacity
        self.trust = 1.0
        """Share of the capacity that seems to be there for our sessions."""
        self._pinned: dict[SessionKey, list[float]] = {}
        self._pinned_tokens = 0.0
        self._idle: dict[SessionKey, float] = {}
        self._idle_tokens = 0.0

    def start(self, key: SessionKey, tokens: float) -> None:
        """A turn starts to run; its context is resident and pinned from now on."""
        self._idle_tokens -= self._idle.pop(key, 0.0)
        self._pinned.setdefault(key, []).append(tokens)
        self._pinned_tokens += tokens
        self._evict()

    def release(self, key: SessionKey, tokens: float, *, keep: bool) -> None:
        """A turn has ended with a context of ``tokens``; ``keep``: the session may come back for it."""
        running = self._pinned.get(key)
        if not running:
            return
        self._pinned_tokens -= running.pop()
        if not running:
            del self._pinned[key]
            if keep:
                self._idle[key] = tokens
                self._idle_tokens += tokens
        self._evict()

    def forget(self, key: SessionKey) -> None:
        self._idle_tokens -= self._idle.pop(key, 0.0)

    def flush(self) -> None:
        """The engine's cache is empty; running turns still hold theirs."""
        self._idle.clear()
        self._idle_tokens = 0.0

    def resident(self, key: SessionKey) -> float:
        """Return the tokens of an idle session that are still there."""
        return self._idle.get(key, 0.0)

    def is_warm(self, key: SessionKey, footprint: float) -> bool:
        """Tell whether more than half of a session's context is still there."""
        if key in self._pinned:
            return True
        return self.capacity is not None and self._idle.get(key, 0.0) > WARM * footprint

    def correct(self, *, believed_warm: bool, was_warm: bool) -> None:
        """Learn from a response how far to trust the capacity."""
        if believed_warm != was_warm:
            least, most = SLACK
            self.trust = min(most, max(least, self.trust * (1.0 - STEP if believed_warm else 1.0 + STEP)))

    def _evict(self) -> None:
        if self.capacity is None:
            return
        excess = self._pinned_tokens + self._idle_tokens - self.capacity * self.trust
        while excess > 0.0 and self._idle:
            oldest = next(iter(self._idle))
            taken = min(excess, self._idle[oldest])
            self._idle[oldest] -= taken
            self._idle_tokens -= taken
            excess -= taken
            if self._idle[oldest] <= 0.0:
                del self._idle[oldest]
