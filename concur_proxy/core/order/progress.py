"""How many turns sessions have: learned from those that went on and those that ended."""

from __future__ import annotations

from collections import OrderedDict

LONGEST = 256
"""Sessions with more turns than this count alike."""

TYPICAL_TURNS = 20.0
"""Turns of a session where nothing is known."""

PRIOR = 2.0
"""Sessions that this belief is worth, at each number of turns."""

KINDS = 64
"""Kinds of sessions that are told apart; those heard of least recently are forgotten (invariant 9)."""

FEW = 16
"""Observations that are not worth a new table."""

MEMORY = 20_000
"""Turns after which what was learned first weighs half."""


class TurnCounts:
    """After each number of turns: how many sessions went on, and how many ended (Kaplan and Meier's estimate).

    ``others`` are believed as far as nothing is known yet.
    """

    __slots__ = ("_ended", "_fresh", "_longest", "_others", "_remaining", "_seen", "_went_on")

    def __init__(self, others: TurnCounts | None = None) -> None:
        self._others = others
        self._went_on = [0.0] * (LONGEST + 1)
        self._ended = [0.0] * (LONGEST + 1)
        self._seen = 0
        self._fresh = 0
        """Observations since the table was made."""
        self._longest = -1
        """Turns of the longest session so far."""
        self._remaining: list[float] = []

    def went_on(self, turns: int) -> None:
        """A session has had another turn after ``turns``."""
        turns = min(turns, LONGEST)
        self._went_on[turns] += 1.0
        self._count(turns)

    def ended(self, turns: int) -> None:
        """A session has ended with ``turns``, or nothing more is expected of it."""
        turns = min(turns, LONGEST)
        self._ended[turns] += 1.0
        self._count(turns)

    def remaining(self, turns: int) -> float:
        """Return how many more turns to expect of a session that has had ``turns``."""
        if self._fresh > FEW and self._fresh * 8 > self._seen:
            self._tabulate()
        turns = min(turns, LONGEST)
        return self._remaining[turns] if turns < len(self._remaining) else self._unknown(turns)

    def _unknown(self, turns: int) -> float:
        """Return what to expect of a session that is longer than any was."""
        return TYPICAL_TURNS - 1.0 if self._others is None else self._others.remaining(turns)

    def _count(self, turns: int) -> None:
        self._longest = max(self._longest, turns)
        self._seen += 1
        self._fresh += 1
        if self._seen >= MEMORY:
            self._seen //= 2
            self._went_on = [count / 2 for count in self._went_on]
            self._ended = [count / 2 for count in self._ended]

    def _tabulate(self) -> None:
        """Sum up from the longest sessions down: each further turn happens if the session goes on."""
        self._fresh = 0
        last = self.going_on(LONGEST)
        more = last / (1.0 - last) if self._longest == LONGEST else self._unknown(self._longest + 1)
        known = min(self._longest, LONGEST - 1)
        self._remaining = [more] * (self._longest + 1)
        for turns in range(known, -1, -1):
            more = self.going_on(turns) * (1.0 + more)
            self._remaining[turns] = more

    def going_on(self, turns: int) -> float:
        """Return the probability that a session goes on after ``turns``."""
        belief = self._others.going_on(turns) if self._others else 1.0 - 1.0 / TYPICAL_TURNS
        went_on = self._went_on[turns] + PRIOR * belief
        return went_on / (went_on + self._ended[turns] + PRIOR * (1.0 - belief))


class Progress:
    """How far sessions are, by their kind: what they share at the start of their prompts (system text and tools)."""

    __slots__ = ("_all", "_kinds")

    def __init__(self) -> None:
        self._all = TurnCounts()
        self._kinds: OrderedDict[int, TurnCounts] = OrderedDict()

    def after(self, turns: int, kind: int | None) -> float:
        """Return which share of its turns a session has had after ``turns``, 0..1."""
        counts = self._kinds.get(kind, self._all) if kind is not None else self._all
        return turns / (turns + counts.remaining(turns))

    def went_on(self, turns: int, kind: int | None) -> None:
        """A session has had another turn after ``turns``."""
        self._all.went_on(turns)
        if kind is not None:
            self._kind(kind).went_on(turns)

    def ended(self, turns: int, kind: int | None) -> None:
        """A session has ended with ``turns``, or nothing more is expected of it."""
        self._all.ended(turns)
        if kind is not None:
            self._kind(kind).ended(turns)

    def _kind(self, kind: int) -> TurnCounts:
        counts = self._kinds.get(kind)
        if counts is None:
            counts = self._kinds[kind] = TurnCounts(self._all)
            if len(self._kinds) > KINDS:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        return counts
