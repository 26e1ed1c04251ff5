"""One replica at a time runs the law: it says what each window is, and what of it everybody should get.

It leads while its lease in Redis lasts, by a count of leaders that Redis keeps (fencing): whoever was slow to see that
another has taken over is refused. By its own clock it stops before the lease can have ended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from concur_proxy.model import BackendId
from concur_proxy.state.holding import Whole, text
from concur_proxy.state.link import Answer, Link
from concur_proxy.state.reports import Report, load_reports
from concur_proxy.state.shares import Demand, divide, water_fill
from concur_proxy.windows.base import Unit

LEASE_MS = 3000
SURE_S = 2.5
"""Of its lease a leader believes in this much, from when it asked for it."""

LEARNED_EVERY_S = 10.0
EVEN_OUT_S = 1.0
"""Targets that nobody is short of are corrected this often."""

MUCH_LESS = 0.9
"""Of a window: where less than this is given out, it has grown."""

Learned = Mapping[str, Any]
Led = Callable[[dict[str, dict[BackendId, Report]], Learned | None], None]
Targets = dict[str, dict[BackendId, float]]


class Leader:
    """``led`` gets everybody's reports, and once, with the first ones, what the leader before had learned."""

    def __init__(self, link: Link, name: str, clock: Callable[[], float], led: Led) -> None:
        self._link = link
        self._name = name
        self._clock = clock
        self._led = led
        self._token = 0
        self._begun = 0
        self._turns_from = ""
        self._until = -math.inf
        self._asked = False
        self._again = False
        self._targets: Targets = {}
        self._targets_at = -math.inf
        self._learned_at = -math.inf
        self.decided: dict[BackendId, Whole] = {}
        self.bound: set[BackendId] = set()
        """Windows some share of which has kept a turn waiting since the law last decided."""
        self.dump: Callable[[], Mapping[BackendId, object]] = dict
        """What the laws have learned."""

    @property
    def leads(self) -> bool:
        return self._clock() < self._until

    @property
    def turns_from(self) -> tuple[int, str] | None:
        """How often it has begun to lead, and after what in the stream of turns; None where it does not lead."""
        return (self._begun, self._turns_from) if self.leads else None

    def decide(self, backend: BackendId, whole: Whole, *, first: bool = False) -> None:
        """Say what a window is; ``first``: unless another leader has said so before."""
        if self.decided.get(backend) != whole:
            self.decided[backend] = whole
            if not first and self.leads:
                self.renew()

    def forget(self, backend: BackendId) -> None:
        self.decided.pop(backend, None)

    def renew(self) -> None:
        """Lead on, or where nobody does; at most one call is on its way, and one more will follow it."""
        if self._asked:
            self._again = True
            return
        self._asked = True
        asked_at = self._clock()
        windows = [[backend, json.dumps(whole.dump())] for backend, whole in self.decided.items()]
        targets = [
            [name, [[each, text(share)] for each, share in mine.items()]] for name, mine in self._targets.items()
        ]
        operation = ["lead", self._token, LEASE_MS, windows, targets, self._learned(asked_at)]
        self._link.send(operation, lambda answer: self._answered(answer, asked_at))

    def _learned(self, now: float) -> str:
        if not self.leads or now - self._learned_at < LEARNED_EVERY_S:
            return ""
        self._learned_at = now
        learned = self.dump()
        return json.dumps(learned) if learned else ""

    def _answered(self, answer: Answer | None, asked_at: float) -> None:
        self._asked = False
        if answer is None:
            return
        if not answer["leads"]:
            self._until, self._token = -math.inf, 0
            return
        learned = self._begin(answer, asked_at) if answer["taken"] else None
        self._until = asked_at + SURE_S
        reports = {name: load_reports(said) for name, said in answer["reports"] or ()}
        for said in reports.values():
            self.bound |= {backend for backend, report in said.items() if report.bound}
        self._led(reports, learned)
        if self._divide(reports) or learned is not None or self._again:
            self._again = False
            self.renew()

    def _begin(self, answer: Answer, now: float) -> Learned:
        """Take over: windows as they are, and what has been learned."""
        self._token = answer["token"]
        self._begun += 1
        self._turns_from = answer["turns"]
        self._targets, self._targets_at = {}, -math.inf
        self._learned_at = now
        known = answer["windows"] or []
        for backend, said in zip(known[::2], known[1::2], strict=True):
            whole = json.loads(said)
            self.decided[BackendId(backend)] = Whole(float(whole["whole"]), Unit(whole["unit"]), whole["hard"])
        learned: Learned = json.loads(answer["learned"] or "{}")
        return learned

    def _divide(self, reports: Mapping[str, Mapping[BackendId, Report]]) -> bool:
        """Divide every window anew; True where that is worth telling now."""
        targets: Targets = {name: {} for name in reports}
        for backend, whole in self.decided.items():
            for name, share in _shares(whole, backend, reports).items():
                targets[name][backend] = share
        now = self._clock()
        if not self._worth_telling(targets, reports) and now - self._targets_at < EVEN_OUT_S:
            return False
        changed = targets != self._targets
        self._targets, self._targets_at = targets, now
        return changed

    def _worth_telling(self, targets: Targets, reports: Mapping[str, Mapping[BackendId, Report]]) -> bool:
        """Tell whether somebody is short of what there is, is new, or has more than there is any more."""
        before = self._targets
        if before.keys() != targets.keys():
            return True
        for backend, whole in self.decided.items():
            given = sum(mine.get(backend, 0.0) for mine in before.values())
            if not MUCH_LESS * whole.window <= given <= whole.window * (1 + 1e-9):
                return True
        return any(
            backend not in before[name] or _short(before[name][backend], share, reports[name][backend].demand)
            for name, mine in targets.items()
            for backend, share in mine.items()
        )


def _shares(whole: Whole, backend: BackendId, reports: Mapping[str, Mapping[BackendId, Report]]) -> dict[str, float]:
    """Divide one window; replicas that end keep what is active there, unless nobody is there to have the rest."""
    said = {name: mine[backend] for name, mine in reports.items() if backend in mine}
    staying = {name: report.demand for name, report in said.items() if not report.leaving}
    if not staying:
        staying = {name: report.demand for name, report in said.items()}
    kept = water_fill(whole.window, {name: each.demand.load for name, each in said.items() if name not in staying})
    rest = whole.window - sum(kept.values())
    return {**kept, **divide(max(0.0, rest), staying, indivisible=whole.unit is Unit.SESSIONS)}


def _short(before: float, share: float, demand: Demand) -> bool:
    return share > before + 1e-6 and demand.whole > before + 1e-6
