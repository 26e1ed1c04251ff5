"""A run, what is known of it, and what is at a point that several runs have come to."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from concur_proxy.core.lineage.talk import Answer
from concur_proxy.model import SessionKey


class State(enum.Enum):
    RUNNING = "running"
    ANSWERED = "answered"
    LOST = "lost"
    """Its last request came to nothing: refused, failed, or its client left."""


class Run:
    """One agent's run, as far as its messages tell. Of many, the garbage collector has one object each to look at."""

    __slots__ = (
        *("answer", "asks_beside", "before", "has_tools", "id", "length", "namespace"),
        *("points", "seed", "state", "tail", "tips", "turns"),
    )

    def __init__(self, namespace: str, name: str, seed: int) -> None:
        self.namespace = namespace
        self.id = name
        self.seed = seed
        self.state = State.RUNNING
        self.turns = 0
        self.has_tools = False
        """Some turn has offered tools to the model."""
        self.length = 0
        """Points of its last request."""
        self.points: tuple[int, ...] = ()
        self.tips: tuple[int, ...] = ()
        """Where it stands."""
        self.asks_beside = False
        """Its last request has left it where it stood as well."""
        self.before = 0
        """The point before its last message: clients that rewrite that message go on from here."""
        self.tail = 0
        """Number of its last two messages, wherever they stand."""
        self.answer: Answer | None = None
        """To its last request that was not asked beside, where that was read."""

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.namespace, self.id)


class Siblings:
    """What is at a point that is not one run's alone."""

    __slots__ = ("lost", "past", "standing")

    def __init__(self) -> None:
        self.standing: dict[Run, None] = {}
        """In the order that they came."""
        self.lost: dict[Run, None] = {}
        """Those of them whose request came to nothing."""
        self.past: Run | None = None
        """The last that went on from here."""


def beside(run: Run, point: int) -> Siblings:
    """Make room at a point that was one run's."""
    siblings = Siblings()
    if point not in run.tips:
        siblings.past = run
        return siblings
    siblings.standing[run] = None
    if run.state is State.LOST:
        siblings.lost[run] = None
    return siblings


def oldest_answered(runs: Iterable[Run]) -> Run | None:
    """Return the first of those that wait for their agent."""
    return next((run for run in runs if run.state is State.ANSWERED), None)
