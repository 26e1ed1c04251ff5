"""Whether sessions come back for another turn: told by how their last answer ended, and for how long they are away.

Of each kind of answer it is counted how many sessions have come back after it and how many have not for longer than
almost all agents think. A session that has been away for t comes back with the probability

    p S(t) / (p S(t) + 1 - p),    S(t) = exp(-t / mean think time),

p the share of its kind that does (Bayes' rule).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import FinishReason

if TYPE_CHECKING:
    from concur_proxy.core.sessions import Session

BELIEF: Final = 5.0
"""Answers that what is believed at first is worth."""
FIRST_SHARES: Final = {FinishReason.TOOL_CALLS: 0.95, FinishReason.STOP: 0.5}
USUAL_SHARE: Final = 0.9
"""Share of sessions believed to come back after any other answer."""
LEAST_SHARE: Final = 0.01
MEMORY: Final = 400.0
"""Answers of a kind after which the older ones count half."""
SHORTEST_S: Final = 1e-3
FIRST_THINK_S: Final = 5.0
"""Mean think time where nobody has come back yet."""
LONGEST_THINK_S: Final = 10.0
"""How long to wait for the first ones before they count as gone."""
WATCHED: Final = 4096
"""Sessions at most whose return is waited for; the oldest ones are let go of."""

Kind = tuple[FinishReason | None, bool]


class Tally:
    """Of one kind of answer: how many came back, and how many did not."""

    __slots__ = ("back", "gone")

    def __init__(self, share: float) -> None:
        self.back = BELIEF * share
        self.gone = BELIEF - self.back

    def add(self, back: float, gone: float) -> None:
        self.back = max(self.back + back, 0.0)
        self.gone = max(self.gone + gone, 0.0)
        if self.back + self.gone > MEMORY:
            self.back /= 2.0
            self.gone /= 2.0

    @property
    def share(self) -> float:
        """From what is counted; neither all nor nobody."""
        return min(max(self.back / (self.back + self.gone), LEAST_SHARE), 1.0 - LEAST_SHARE)


class Returns:
    """Of the sessions of one engine, whose agents think as ``think`` says."""

    __slots__ = ("_away", "_tallies", "_think")

    def __init__(self, think: ThinkTime) -> None:
        self._think = think
        self._tallies: dict[Kind, Tally] = {}
        self._away: deque[tuple[float, Session, Kind]] = deque(maxlen=WATCHED)

    def left(self, session: Session, now: float) -> None:
        """A session has had its answer and is away from now on."""
        self._away.append((now, session, _kind(session)))
        self._count_gone(now)

    def came_back(self, session: Session) -> None:
        """Its next turn is there; ``left_at`` and ``think`` are still those of the answer before."""
        self._tally(_kind(session)).add(1.0, -1.0 if session.overdue else 0.0)
        session.overdue = False

    def chance(self, session: Session, now: float) -> float:
        """Return the probability that it still comes back, after the time for which it has been away."""
        share = self._tally(_kind(session)).share
        still = share * math.exp(-_away_s(session, now) / self._mean_s(session))
        return still / (still + 1.0 - share)

    def per_s(self, session: Session, now: float) -> float:
        """Return how often it is expected in a second.

        That is once in its mean think time, or, where it has been away for longer, in as long as that again: tool calls
        have heavy tails.
        """
        return self.chance(session, now) / max(self._mean_s(session), _away_s(session, now))

    def _mean_s(self, session: Session) -> float:
        known = session.think or self._think
        return max(known.mean, SHORTEST_S) if known.count else FIRST_THINK_S

    def _count_gone(self, now: float) -> None:
        """Count those as gone who have been away for longer than almost everybody is."""
        longest_s = self._think.upper() or LONGEST_THINK_S
        while self._away and self._away[0][0] < now - longest_s:
            at, session, kind = self._away.popleft()
            if session.left_at == at and not session.overdue:
                session.overdue = True
                self._tally(kind).add(0.0, 1.0)

    def _tally(self, kind: Kind) -> Tally:
        tally = self._tallies.get(kind)
        if tally is None:
            share = USUAL_SHARE if kind[0] is None else FIRST_SHARES.get(kind[0], USUAL_SHARE)
            tally = self._tallies[kind] = Tally(share)
        return tally


def _kind(session: Session) -> Kind:
    """Return how its answer ended, and whether it has come back before, where that was a final one after such a one."""
    reason = session.finish_reason
    return reason, session.goes_on_after_stop if reason is FinishReason.STOP else session.think is not None


def _away_s(session: Session, now: float) -> float:
    return 0.0 if session.finished_at is None else max(now - session.finished_at, 0.0)
