"""A hot lane for interactive work, a cold one for batch work that uses whatever is idle.

Turns whose client asks for less than usual urgency are cold. Hot ones go first, and have a share of every window to
themselves (``gate.hot_share``, or what they need): a hot turn finds room at once while hot ones have not filled it, and
else takes the place of a cold session that is between two turns. A cold turn that is overdue goes before hot ones, but
not into their share. What is kept and taken is ``backend``'s and ``admission``'s affair; here is who goes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.core.order.base import Order, fifo_key
from concur_proxy.core.sessions import Turn

HOT, COLD = 1, 2

GROUP = 32
"""Cold turns of one source that go together; those after them form another group, so that no source waits for long."""

Source = int | str | tuple[int | None, int]


@dataclass(slots=True)
class Group:
    """Cold turns of one source that wait. ``key``: where the newest group of them stands."""

    key: float
    waiting: int = 0
    members: int = 0


class Lanes(Order):
    """First come, first served in each lane; cold turns of one source next to each other.

    What they share at the start of their prompts, or else whose they are, is their source: the engine computes the
    common part once, and finds it in its cache for the rest. Where it is known what they are about, that counts, too.
    """

    has_lanes = True

    def __init__(self, head_start_s: float) -> None:
        super().__init__(head_start_s)
        self._groups: dict[Source, Group] = {}

    def rank(self, turn: Turn) -> tuple[int, float]:
        key = fifo_key(turn, self.head_start_s)
        if not turn.session.cold:
            return HOT, key
        group = self._groups.get(_source(turn))
        return COLD, key if group is None or group.members >= GROUP else min(key, group.key)

    def is_cold(self, turn: Turn) -> bool:
        return turn.session.cold

    def joined(self, turn: Turn) -> None:
        if not turn.session.cold:
            return
        source = _source(turn)
        group = self._groups.get(source)
        if group is None:
            group = self._groups[source] = Group(fifo_key(turn, self.head_start_s))
        elif group.members >= GROUP:
            group.key, group.members = fifo_key(turn, self.head_start_s), 0
        group.waiting += 1
        group.members += 1

    def left(self, turn: Turn) -> None:
        if not turn.session.cold:
            return
        source = _source(turn)
        group = self._groups[source]
        group.waiting -= 1
        if not group.waiting:
            del self._groups[source]


def _source(turn: Turn) -> Source:
    key = turn.session.prefix_key
    if turn.topic is not None:
        return key, turn.topic
    return turn.facts.tenant if key is None else key
