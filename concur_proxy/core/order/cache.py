"""Orders that follow the KV cache: what frees most of it soonest goes first."""

from __future__ import annotations

from concur_proxy.core.order.base import Order, Size, class_of
from concur_proxy.core.order.progress import Progress
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import Usage


class Smallest(Order):
    """The smallest context first: most agents for a cache. Paused sessions before new ones."""

    def __init__(self, head_start_s: float, size: Size) -> None:
        super().__init__(head_start_s)
        self._size = size

    def rank(self, turn: Turn) -> tuple[int, float]:
        return class_of(turn.session), self._size(turn)


class CacheAware(Order):
    """Nearly done and small first: progress over footprint.

    Progress is the share of its turns that a session will have had with this one, by what sessions of its kind have had
    so far; a turn that is said to be the last one completes it. Paused sessions before new ones.

    Every other room goes to the new session that has waited longest. Were all small ones first, a batch of work would
    end with large ones alone, and the last of these would leave the engine idle for long.
    """

    learns = True
    longest_share = 0.5

    def __init__(self, head_start_s: float, size: Size) -> None:
        super().__init__(head_start_s)
        self._size = size
        self._progress = Progress()

    def rank(self, turn: Turn) -> tuple[int, float]:
        session = turn.session
        had = session.turns + 1
        progress = 1.0 if turn.facts.final else self._progress.after(had, session.prefix_key)
        return class_of(session), -progress / self._size(turn)

    def finished(self, turn: Turn, usage: Usage | None) -> None:  # noqa: ARG002
        session = turn.session
        if session.one_turn:
            return
        if session.turns > 1:
            self._progress.went_on(session.turns - 1, session.prefix_key)
        if session.ended:
            self._progress.ended(session.turns, session.prefix_key)

    def vanished(self, session: Session) -> None:
        if session.turns and not session.one_turn:
            self._progress.ended(session.turns, session.prefix_key)
