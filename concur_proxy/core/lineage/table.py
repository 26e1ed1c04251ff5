"""Which runs have come to which points: what lineage remembers, within a bound in bytes (invariant 9).

A run *stands* where its last request ended and, in the Responses API, at the answer to it. The points of its earlier
turns are kept as its past. Runs that have said the same so far are *siblings* and stand at one point together.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from concur_proxy.core.lineage.lengths import ENTRY_BYTES, Lengths
from concur_proxy.core.lineage.runs import Run, Siblings, State, beside

MAX_POINTS: Final = 16
"""Points of one run that are kept: its first and its last ones."""
MAX_SIBLINGS: Final = 256
"""Runs that stand at one point; the one that came first makes room."""

RUN_BYTES: Final = 500
POINT_BYTES: Final = 150
"""What a run and each point of it take, tables included; a test weighs them."""
LENGTHS_SHARE: Final = 16
"""The ends of plain prompts may take one part in so many of the bound."""


class Table:
    """``name`` begins every session's id; it differs from process to process."""

    def __init__(self, limit_bytes: int, name: str) -> None:
        self.limit_bytes = limit_bytes
        self.lengths = Lengths(limit_bytes // LENGTHS_SHARE // ENTRY_BYTES)
        self._name = name
        self._count = 0
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._points: dict[int, Run | Siblings] = {}
        self._before: dict[int, Run] = {}
        self._tails: dict[int, Run] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def bytes(self) -> int:
        """Return what is taken, about; never more than the bound."""
        return self._bytes + ENTRY_BYTES * len(self.lengths)

    # what is known

    def knows(self, run: Run) -> bool:
        """Tell whether a run has not been forgotten."""
        return self._runs.get(run.id) is run

    def furthest(self, points: list[int]) -> int:
        """Return the index of the last point at which somebody has been, -1 for none."""
        known = self._points
        for index in range(len(points) - 1, -1, -1):
            if points[index] in known:
                return index
        return -1

    def standing(self, point: int, namespace: str) -> list[Run]:
        """Return who stands at a point, in the order that they came."""
        there = self._points.get(point)
        if isinstance(there, Siblings):
            return [run for run in there.standing if run.namespace == namespace]
        return [there] if there is not None and point in there.tips and there.namespace == namespace else []

    def newest(self, point: int, namespace: str) -> Run | None:
        """Return who came last of those that stand at a point."""
        there = self._points.get(point)
        if isinstance(there, Siblings):
            run = next(reversed(there.standing), None)
        else:
            run = there if there is not None and point in there.tips else None
        return run if run is not None and run.namespace == namespace else None

    def lost(self, point: int, namespace: str) -> Run | None:
        """Return who stands at a point for longest with a request that came to nothing."""
        there = self._points.get(point)
        if isinstance(there, Siblings):
            return next((run for run in there.lost if run.namespace == namespace), None)
        stands = there is not None and there.state is State.LOST and point in there.tips
        return there if there is not None and stands and there.namespace == namespace else None

    def past(self, point: int, namespace: str) -> Run | None:
        """Return the last run that went on from a point."""
        there = self._points.get(point)
        run = there.past if isinstance(there, Siblings) else there
        return run if run is not None and point not in run.tips and run.namespace == namespace else None

    def before(self, point: int, namespace: str) -> Run | None:
        """Return the last run whose last message came right after a point."""
        run = self._before.get(point)
        return run if run is not None and run.namespace == namespace else None

    def tail(self, tail: int, namespace: str) -> Run | None:
        """Return the last run whose last two messages have this number."""
        run = self._tails.get(tail)
        return run if run is not None and run.namespace == namespace else None

    def is_shared(self, run: Run) -> bool:
        """Tell whether others stand where a run stands."""
        there = self._points.get(run.tips[0]) if run.tips else None
        return isinstance(there, Siblings) and len(there.standing) > 1

    # what changes

    def begin(self, namespace: str, seed: int) -> Run:
        self._count += 1
        run = Run(namespace, f"{self._name}-{self._count:x}", seed)
        self._runs[run.id] = run
        self._bytes += RUN_BYTES
        return run

    def move(self, run: Run, point: int, *, length: int, before: int, tail: int, stays: int = 0) -> None:
        """Bring a run to where its next request ends. ``stays``: a point at which it goes on standing."""
        if run.turns:
            self._leave(run)
            self._unlist(run)
            if stays:
                self._reach(run, stays)
            self._runs.move_to_end(run.id)
        run.turns += 1
        run.state, run.length = State.RUNNING, length
        self._reach(run, point)
        run.asks_beside = stays not in {0, point}
        run.tips = (point, stays) if run.asks_beside else (point,)
        if not run.asks_beside:
            run.answer = None
        run.before, run.tail = before, tail
        if before:
            self._before[before] = run
        if tail:
            self._tails[tail] = run
        while self.bytes > self.limit_bytes and len(self._runs) > 1:
            self.forget(next(iter(self._runs.values())))

    def settle(self, run: Run, state: State, *, also: int = 0) -> None:
        """Note how a run's request ended. ``also``: a further point at which it stands by that."""
        run.state = state
        for point in run.tips:
            there = self._points.get(point)
            if isinstance(there, Siblings):
                if state is State.LOST:
                    there.lost[run] = None
                else:
                    there.lost.pop(run, None)
        if also and also not in run.tips:
            self._reach(run, also)
            run.tips += (also,)

    def forget(self, run: Run) -> None:
        if not self.knows(run):
            return
        del self._runs[run.id]
        self._unlist(run)
        for point in run.points:
            self._vacate(run, point)
        self._bytes -= RUN_BYTES + POINT_BYTES * len(run.points)

    def _leave(self, run: Run) -> None:
        """What a run stood at becomes its past."""
        for point in run.tips:
            there = self._points.get(point)
            if isinstance(there, Siblings):
                there.standing.pop(run, None)
                there.lost.pop(run, None)
                there.past = run
        run.tips = ()

    def _reach(self, run: Run, point: int) -> None:
        self._keep(run, point)
        there = self._points.setdefault(point, run)
        if there is run:
            return
        if not isinstance(there, Siblings):
            there = self._points[point] = beside(there, point)
        there.standing[run] = None
        if len(there.standing) > MAX_SIBLINGS:
            self.forget(next(iter(there.standing)))

    def _keep(self, run: Run, point: int) -> None:
        """Add a point as the newest; the first one stays the first."""
        if point in run.points:
            first, *others = run.points
            run.points = run.points if point == first else (first, *(each for each in others if each != point), point)
        elif len(run.points) < MAX_POINTS:
            self._bytes += POINT_BYTES
            run.points += (point,)
        else:
            first, dropped, *others = run.points
            self._vacate(run, dropped)
            run.points = (first, *others, point)

    def _vacate(self, run: Run, point: int) -> None:
        there = self._points.get(point)
        if there is run:
            del self._points[point]
        elif isinstance(there, Siblings):
            there.standing.pop(run, None)
            there.lost.pop(run, None)
            if there.past is run:
                there.past = None
            if not there.standing and there.past is None:
                del self._points[point]

    def _unlist(self, run: Run) -> None:
        if self._before.get(run.before) is run:
            del self._before[run.before]
        if self._tails.get(run.tail) is run:
            del self._tails[run.tail]
