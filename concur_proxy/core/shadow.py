"""A shadow of one engine's prefix cache: which sessions' contexts are still there.

Engines evict the blocks that were released longest ago first, and never those of running requests. The shadow does the
same in units of sessions; shared prefixes are used all the time, stay, and count once. What engines report as cached
corrects the one thing it cannot know, how much of the capacity there really is for our sessions.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from concur_proxy.core.sessions import Session
from concur_proxy.core.shared import PrefixSizes, SharedTokens

WARM: Final = 0.5
"""A context is warm while more than this share of it is resident."""

STEP: Final = 0.02
RECOVERY: Final = 0.0004
"""Trust regained, up to the whole, each time that a context was found where it was believed to be: a law that holds
cold turns back sees few that are found against belief."""
LEAST_TRUST: Final = 0.3
MOST_TRUST: Final = 1.2
BLOCK_TOKENS: Final = 16
"""The least that a context occupies; bounds the number of contexts by the capacity."""


@dataclass(init=False, slots=True)
class _Left:
    """A context that nothing runs on: what there was, and what of it has not been evicted."""

    whole: int
    resident: int
    told: bool
    """The engine itself says what is resident."""

    def __init__(self, whole: int, resident: int, told: bool = False) -> None:  # noqa: FBT001, FBT002
        self.whole = whole
        self.resident = resident
        self.told = told

    @property
    def is_warm(self) -> bool:
        return self.resident > WARM * self.whole


class Shadow:
    """Tokens resident per session, shared prefixes apart.

    Without a capacity nothing is known of contexts that nothing runs on, and none counts as warm. What a call has
    turned cold is returned: the turns of those sessions may run elsewhere now.
    """

    __slots__ = ("_followed", "_gone_until", "_idle", "_pinned", "_shared", "_sizes", "_tokens", "capacity", "trust")

    def __init__(self, sizes: PrefixSizes) -> None:
        self.capacity: float | None = None
        self.trust = 1.0
        """Share of the capacity that seems to be there for our sessions."""
        self._sizes = sizes
        self._pinned: dict[Session, int] = {}
        self._idle: OrderedDict[Session, _Left] = OrderedDict()
        self._shared = SharedTokens()
        self._tokens = 0
        self._gone_until = -math.inf
        """When the context that was used last, of those that were evicted, had been used."""
        self._followed = False
        """The engine tells of contexts: who has just ended is not reckoned away before it is told of."""

    def __len__(self) -> int:
        return len(self._pinned) + len(self._idle)

    @property
    def tokens(self) -> int:
        """What is resident, shared prefixes once."""
        return self._tokens + self._shared.tokens

    @property
    def own_tokens(self) -> int:
        """The part of it that is no shared prefix."""
        return self._tokens

    @property
    def oldest_used_at(self) -> float | None:
        """Return when the context was used last that goes next, as far as the engine does not tell that."""
        session = self._oldest()
        return None if session is None else session.finished_at

    @property
    def limit(self) -> float | None:
        """Tokens of cache that seem to be there for our sessions; None where nothing is known."""
        return None if self.capacity is None else self.capacity * self.trust

    def set_capacity(self, capacity: float | None) -> Sequence[Session]:
        self.capacity = capacity
        return self.flush() if capacity is None else self._evict()

    def start(self, session: Session, tokens: int) -> Sequence[Session]:
        """A turn starts to run: ``tokens`` of context are resident and pinned from now on."""
        left = self._idle.pop(session, None)
        if left is not None:
            self._tokens -= left.resident
        elif session not in self._pinned:
            self._shared.join(session.prefix_key, self._sizes.of(session.prefix_key))
        self._pinned[session] = self._pinned.get(session, 0) + tokens
        self._tokens += tokens
        return self._evict()

    def end(self, session: Session, pinned: int, left: int) -> Sequence[Session]:
        """A turn that pinned ``pinned`` tokens has ended and leaves ``left`` behind, the newest of the cache."""
        rest = self._pinned.pop(session) - pinned
        self._tokens -= pinned
        if rest > 0:
            self._pinned[session] = rest
        elif left > 0 and self.capacity is not None:
            left = max(left, BLOCK_TOKENS)
            self._idle[session] = _Left(left, left, self._followed)
            self._tokens += left
        else:
            self._shared.leave(session.prefix_key)
        return self._evict()

    def take_in(self, session: Session, tokens: int) -> None:
        """Believe that a session which comes from another replica has left ``tokens`` behind, when it was used last.

        Not where contexts that were used later are gone.
        """
        used_at = _used_at(session)
        if tokens <= 0 or self.capacity is None or self.is_warm(session) or used_at <= self._gone_until:
            return
        self.forget(session)
        left = max(tokens, BLOCK_TOKENS)
        self._shared.join(session.prefix_key, self._sizes.of(session.prefix_key))
        self._idle[session] = _Left(left, left, self._followed)
        self._tokens += left
        for other in [each for each in self._idle if each is not session and _used_at(each) > used_at]:
            self._idle.move_to_end(other)
        self._evict()

    def forget(self, session: Session) -> None:
        """A session that nothing runs for is another replica's from now on."""
        left = self._idle.pop(session, None)
        if left is not None:
            self._tokens -= left.resident
            self._shared.leave(session.prefix_key)

    def flush(self) -> Sequence[Session]:
        """The engine's cache is empty; running turns still hold theirs."""
        lost = [session for session, left in self._idle.items() if left.is_warm]
        for session, left in self._idle.items():
            self._tokens -= left.resident
            self._shared.leave(session.prefix_key)
            self._gone_until = max(self._gone_until, session.finished_at or -math.inf)
        self._idle.clear()
        return lost

    def is_warm(self, session: Session) -> bool:
        """Tell whether more than half of a session's context is still there."""
        left = self._idle.get(session)
        return left.is_warm if left is not None else session in self._pinned

    def resident(self, session: Session) -> int:
        """Return the tokens of a context that are still there; of running ones all."""
        left = self._idle.get(session)
        return left.resident if left is not None else self._pinned.get(session, 0)

    def has_prefix(self, key: int) -> bool:
        """Tell whether a prefix is there: some context is that begins with it."""
        return key in self._shared

    def resize_prefix(self, key: int, size: int) -> None:
        self._shared.resize(key, size)

    def correct(self, *, believed_warm: bool, found_warm: bool) -> None:
        """Learn from an answer how far to trust the capacity: a step for each time that belief and finding differ."""
        if believed_warm != found_warm:
            step = 1.0 - STEP if believed_warm else 1.0 + STEP
            self.trust = min(MOST_TRUST, max(LEAST_TRUST, self.trust * step))
        elif found_warm and self.trust < 1.0:
            self.trust = min(1.0, self.trust * (1.0 + RECOVERY))

    def follow(self, resident: Callable[[str], int | None]) -> Sequence[Session]:
        """Believe the engine in what is left of contexts: tokens by session id, None where it does not tell.

        What it has evicted although by our account there was room tells that others use the cache, too. Two clients
        whose sessions have the same id are taken for one.
        """
        had_room = self.limit is not None and self.tokens <= self.limit
        cooled = []
        self._followed = False
        for session, left in self._idle.items():
            tokens = resident(session.key.id)
            left.told = tokens is not None
            if tokens is None:
                continue
            self._followed = True
            was_warm, before = left.is_warm, left.resident
            left.resident = min(left.whole, max(0, tokens - self._sizes.of(session.prefix_key)))
            self._tokens += left.resident - before
            if was_warm and not left.is_warm:
                cooled.append(session)
                if had_room:
                    self.correct(believed_warm=True, found_warm=False)
        for session in [session for session, left in self._idle.items() if left.resident == 0]:
            self._drop(session)
        return [*cooled, *self._evict()]

    def _evict(self) -> Sequence[Session]:
        if self.capacity is None or self._tokens + self._shared.tokens <= self.capacity * self.trust:
            return ()
        cooled = []
        while (excess := math.ceil(self.tokens - self.capacity * self.trust)) > 0:
            session = self._oldest()
            if session is None:
                break
            left = self._idle[session]
            was_warm = left.is_warm
            taken = min(excess, left.resident)
            left.resident -= taken
            self._tokens -= taken
            if was_warm and not left.is_warm:
                cooled.append(session)
                self._gone_until = max(self._gone_until, session.finished_at or -math.inf)
            if left.resident == 0:
                self._drop(session)
        return cooled

    def _oldest(self) -> Session | None:
        """Return whose context is evicted next, as far as the engine does not tell it."""
        for session, left in self._idle.items():
            if not left.told:
                return session
        return None

    def _drop(self, session: Session) -> None:
        del self._idle[session]
        self._shared.leave(session.prefix_key)


def _used_at(session: Session) -> float:
    """Return when a session's last turn ended; where that is not known, now."""
    return math.inf if session.finished_at is None else session.finished_at
