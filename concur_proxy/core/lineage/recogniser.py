"""Whose turn it is, told by its messages.

Rules, the first that applies
1. What ends where a run stands is that run's request again, if that came to nothing, if the client says so, or if it
   is no first turn and has been answered. Any other is a *sibling*, with a run of its own.
2. What goes on from where a run stands is its next turn. Of several that stand there it is the one whose answer it
   carries; where no answer tells, the one that has waited longest for its agent. A question asked beside, which leaves
   out the answer, or the tools that the run has, is a turn of the run, too, but the run stands where it stood as well.
3. What goes on from before a run's last message, and has that run's answer at its place, is its next turn, too: the
   client has rewritten its last message, or taken a passing remark out.
4. What goes on from a run's past replaces its last request, if that came to nothing.
5. What carries a run's last words behind another beginning has been *compacted*: that run ends, another one begins.
6. What goes on from a run's past is a *branch*: another run, the child of that one.
7. Anything else is *new*.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from concur_proxy.core.lineage.runs import Run, State, oldest_answered
from concur_proxy.core.lineage.table import Table
from concur_proxy.core.lineage.talk import MODEL, Answer, Talk, response_point
from concur_proxy.model import SessionKey

CONTINUED: Final = "lineage"
NEW: Final = "lineage-new"
BRANCH: Final = "lineage-branch"
COMPACTED: Final = "lineage-compacted"
RULES = (CONTINUED, NEW, BRANCH, COMPACTED)
"""Every name that a turn recognised by its messages is reported under."""

SEARCHED: Final = 64
"""Messages, from the end, among which the last words of another run are looked for."""


class Recognised(NamedTuple):
    """``ended``: the session that this one takes the place of."""

    run: Run
    rule: str
    parent: SessionKey | None = None
    ended: SessionKey | None = None

    @property
    def session(self) -> SessionKey:
        return self.run.session


class Lineage:
    """One per proxy. ``name`` begins every session's id, and differs from process to process."""

    def __init__(self, limit_bytes: int, *, name: str) -> None:
        self._name = name
        self._table = Table(limit_bytes, name)

    def __len__(self) -> int:
        """Return how many runs are remembered."""
        return len(self._table)

    @property
    def bytes(self) -> int:
        """Return the memory that they take, about."""
        return self._table.bytes

    def recognise(self, namespace: str, talk: Talk, *, retry: bool = False) -> Recognised:
        """Return whose turn this is. ``retry``: the client says that it has asked before.

        Tell by ``answered`` how it ended: what comes next is told apart by that.
        """
        table = self._table
        seed = seed_of(self._name, namespace, talk.key)
        points = talk.points(seed, table.lengths)
        at = table.furthest(points)
        run = self._known(namespace, talk, points, at, retry=retry)
        if run is not None:
            beside = points[at] if at + 1 < len(points) and _asks_beside(run, talk, points, at) else 0
            self._move(run, talk, points, beside=beside)
            return Recognised(run, CONTINUED)
        rule, parent, ended = self._origin(namespace, talk, seed, points, at)
        run = table.begin(namespace, seed)
        self._move(run, talk, points)
        return Recognised(run, rule, parent, ended)

    def answered(
        self, run: Run, *, completed: bool, answer: Answer | None = None, response_id: str | None = None
    ) -> None:
        """The turn of a run has ended. ``response_id``: the Responses API's, by which the next turn may go on."""
        if not self._table.knows(run):
            return
        if not run.asks_beside:  # who stands there is known by what was answered there
            run.answer = answer
        also = response_point(run.seed, response_id) if response_id is not None else 0
        self._table.settle(run, State.ANSWERED if completed else State.LOST, also=also)

    def wants_answer(self, run: Run) -> bool:
        """Tell whether others wait for the same kind of next turn, so that its answer is worth being read."""
        return self._table.is_shared(run)

    def _move(self, run: Run, talk: Talk, points: list[int], *, beside: int = 0) -> None:
        """Bring a run to the end of a talk. ``beside``: where it stands on, its answer there not having been used."""
        table, last = self._table, len(points) - 1
        talk.remember(table.lengths)
        run.has_tools = run.has_tools or talk.has_tools
        before = points[last - 1] if last > 0 and talk.tail(run.seed, last - 1) else 0
        stays = beside if beside in run.tips else 0
        table.move(run, points[last], length=last + 1, before=before, tail=talk.tail(run.seed, last), stays=stays)

    def _known(self, namespace: str, talk: Talk, points: list[int], at: int, *, retry: bool) -> Run | None:
        """Return the run whose turn this is. ``at``: the last point at which somebody has been, -1 for none."""
        last = len(points) - 1
        run: Run | None = None
        if at == last:
            return self._again(points[at], namespace, retry=retry) or self._lost_past(points[at], namespace)
        if at >= 0:
            run = self._next(points[at], namespace, talk.answer(at + 1))
        run = run or self._rewritten(points, at, namespace, talk)
        return run or (self._lost_past(points[at], namespace) if at >= 0 else None)

    def _origin(
        self, namespace: str, talk: Talk, seed: int, points: list[int], at: int
    ) -> tuple[str, SessionKey | None, SessionKey | None]:
        """Return how a new run comes about: the rule, its parent, and whom it replaces."""
        left = self._compacted(talk, seed, len(points) - 1, namespace) if len(points) > 2 else None
        if left is not None:
            self._table.forget(left)
            return COMPACTED, None, left.session
        past = self._own_past(points[at], namespace) if at >= 0 else None
        return (BRANCH, past.session, None) if past is not None else (NEW, None, None)

    def _own_past(self, point: int, namespace: str) -> Run | None:
        """Return the run that went on from a point, unless that is where it began: so may others have."""
        past = self._table.past(point, namespace)
        return past if past is not None and point != past.points[0] else None

    def _lost_past(self, point: int, namespace: str) -> Run | None:
        past = self._own_past(point, namespace)
        return past if past is not None and past.state is State.LOST else None

    def _again(self, point: int, namespace: str, *, retry: bool) -> Run | None:
        table = self._table
        lost = table.lost(point, namespace)
        if lost is not None:
            return lost
        newest = table.newest(point, namespace)
        if newest is None or retry or newest.turns == 1:
            return newest if retry else None
        return oldest_answered(table.standing(point, namespace))

    def _next(self, point: int, namespace: str, answer: Answer | None) -> Run | None:
        standing = self._table.standing(point, namespace)
        if len(standing) <= 1:
            return standing[0] if standing else None
        if answer is not None:
            best = max(standing, key=lambda run: answer.likeness(run.answer))
            if answer.likeness(best.answer):
                return best
        unread = oldest_answered(run for run in standing if run.answer is None)
        return unread or oldest_answered(standing) or standing[0]

    def _rewritten(self, points: list[int], at: int, namespace: str, talk: Talk) -> Run | None:
        for index in range(len(points) - 2, at, -1):
            run = self._table.before(points[index], namespace)
            if run is None or run.state is State.RUNNING or run.length != index + 2:
                continue
            if talk.role(index + 1) == MODEL:
                return run
            own = run.turns > 1 or any(talk.role(earlier) == MODEL for earlier in range(index + 1))
            if own and index + 2 < len(points) and talk.role(index + 2) == MODEL:
                return run
        return None

    def _compacted(self, talk: Talk, seed: int, last: int, namespace: str) -> Run | None:
        for index in range(last - 1, max(-1, last - 1 - SEARCHED), -1):
            tail = talk.tail(seed, index)
            if not tail:
                break
            run = self._table.tail(tail, namespace)
            if run is not None and run.state is State.ANSWERED and talk.role(index + 1) == MODEL:
                return run
        return None


def _asks_beside(run: Run, talk: Talk, points: list[int], at: int) -> bool:
    """Tell whether a talk leaves out what the run's next turn will have. ``at``: where the run stands.

    Without the answer it may be about what many have begun with, and nobody's in particular.
    """
    if talk.skips_answer(at + 1):
        return points[at] != run.points[0]
    return run.has_tools and not talk.has_tools


def seed_of(name: str, namespace: str, key: str) -> int:
    """Return where the chains of one namespace begin, of the talks with one key of the client's."""
    return hash((name, namespace, key))
