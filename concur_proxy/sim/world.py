"""One run of a scenario: engines, proxy, agents and what goes wrong, wired in virtual time.

agents ──▶ front (the real gate) ──▶ runners (engines)
             ▲                          │ metrics
             └── watch (the real law, through the real regulator) ◀┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.core.regulator import Bounds, Regulator
from concur_proxy.model import BackendEvent, BackendId, PoolId, TurnRecord
from concur_proxy.sim.agents import Agent, Fate, Line, Stage, TurnDone
from concur_proxy.sim.arms import Arm
from concur_proxy.sim.events import Events
from concur_proxy.sim.front import Front
from concur_proxy.sim.past import Past
from concur_proxy.sim.plans import Plan, make_plans
from concur_proxy.sim.result import Job, Result
from concur_proxy.sim.runner import Runner
from concur_proxy.sim.scenario import FaultPart, Scenario
from concur_proxy.sim.series import Series
from concur_proxy.sim.watch import Watch
from concur_proxy.sim.workload import SessionScript

OnProgress = Callable[[int, int, float], None]
"""Told sessions that have ended, all sessions, and the virtual time."""


class World:
    """Built for one run; ``run`` plays it."""

    def __init__(
        self,
        scenario: Scenario,
        arm: Arm,
        policy: GatePolicy,
        *,
        recorded: Sequence[SessionScript],
        seed: int,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.scenario = scenario
        self.arm = arm
        self.seed = seed
        self.events = Events()
        self.runners = {
            BackendId(name): Runner(
                BackendId(name), part.engine.config(), self.events, max_queued=part.engine.max_queued
            )
            for name, part in scenario.engines.items()
        }
        self.pools = {BackendId(name): PoolId(part.model) for name, part in scenario.engines.items()}
        self.front = Front(
            Gate(policy),
            self.runners,
            self.events,
            on_record=self._on_record,
            on_refusal=self._on_refusal,
            tells_cached=scenario.signals.cached_tokens,
            reconnect_s=policy.retry_after_s,
            random=Random(f"{seed}/pauses"),
        )
        self.past = Past(self._by_pool(), self.events)
        self.watches: dict[BackendId, Watch] = {}
        self.turns: list[TurnDone] = []
        self.jobs: list[Job] = []
        self.troubles: dict[str, int] = {}
        self._on_progress = on_progress
        self._agents = 0
        self._awaited = 0
        self._recorded = recorded
        self._block_size = next(iter(self.runners.values())).config.block_size

    def _by_pool(self) -> dict[PoolId, list[Runner]]:
        pools: dict[PoolId, list[Runner]] = {}
        for name, pool in self.pools.items():
            pools.setdefault(pool, []).append(self.runners[name])
        return pools

    def run(self) -> Result:
        """Play until all sessions that count have ended, or the scenario's time is over."""
        for name in self.runners:
            self._add_backend(name)
        for plan in make_plans(self.scenario, self._recorded, self.seed):
            self._awaited += not plan.part.unseen
            self.events.at(plan.start_s, partial(self._begin, plan))
        for fault in self.scenario.faults:
            self.events.at(fault.at_s, partial(self._break, fault))
        total, end = self._awaited, self.scenario.stop_after_s or self.scenario.give_up_after_s
        while self._awaited and self.events.next_at <= end and self.events.step():
            if self._on_progress is not None:
                self._on_progress(total - self._awaited, total, self.events.now)
        return Result.of(self)

    @property
    def unfinished(self) -> int:
        """Sessions that count and have not ended."""
        return self._awaited

    # backends

    def _add_backend(self, name: BackendId) -> None:
        runner, signals = self.runners[name], self.scenario.signals
        self.front.add_backend(name, self.pools[name])
        hint = None if signals.capacity and signals.metrics else float(runner.config.max_request_tokens)
        regulator = Regulator(
            name, self.front, self.arm.make_law, Bounds(), capacity_hint=hint, on_problem=self._on_problem
        )
        random = Random(f"{self.seed}/noise/{name}")
        self.watches[name] = Watch(runner, regulator, signals, self.events, Series(name), random)
        self.watches[name].start()
        self.front.backend_event(name, BackendEvent.UP)

    def _on_record(self, record: TurnRecord) -> None:
        self.watches[record.backend].regulator.record(record, now=self.events.now)

    def _on_refusal(self, backend: BackendId) -> None:
        self.watches[backend].refused()

    def _on_problem(self, _words: str, error: Exception | None) -> None:
        if error is not None:  # in traffic the window would stay; here somebody wants to know
            raise error

    def _break(self, fault: FaultPart) -> None:
        name = BackendId(fault.backend)
        runner, watch = self.runners[name], self.watches[name]
        match fault.kind:
            case "lost":
                self.front.backend_event(name, BackendEvent.LOST)
                runner.lose()
            case "back":
                runner.restart()
                self.front.backend_event(name, BackendEvent.UP)
            case "blind" | "seeing":
                watch.sees = fault.kind == "seeing"
            case "flush":
                runner.flush()
            case "capacity":
                runner.shrink(fault.share)
                if fault.told:
                    watch.capacity = fault.share * runner.engine.pool.total * runner.engine.pool.block_size

    # agents

    def _begin(self, plan: Plan, parent: Agent | None = None, on_end: Callable[[], None] | None = None) -> None:
        self._agents += 1
        line: Line = self.past if plan.part.unseen else self.front
        stage = Stage(
            events=self.events,
            line=line,
            client=self.scenario.client,
            block_size=self._block_size,
            names_sessions=self.arm.names_sessions or plan.part.unseen,
            on_turn=self._unseen_turn if plan.part.unseen else self.turns.append,
            on_trouble=self._on_trouble,
            spawn=self._begin,
        )
        agent = Agent(plan, self._agents, stage, parent, partial(self._ended, plan, self.events.now, parent, on_end))
        agent.start()

    def _unseen_turn(self, turn: TurnDone) -> None:
        pass

    def _ended(
        self, plan: Plan, started_at: float, parent: Agent | None, on_end: Callable[[], None] | None, fate: Fate
    ) -> None:
        if on_end is not None:
            on_end()
        if plan.part.unseen:
            if plan.part.endless:
                self._begin(plan)
        elif parent is None:
            self._awaited -= 1
            self.jobs.append(Job(plan.script.id, started_at, self.events.now, complete=fate is Fate.COMPLETE))

    def _on_trouble(self, why: str) -> None:
        self.troubles[why] = self.troubles.get(why, 0) + 1


def play(
    scenario: Scenario,
    arm: Arm,
    *,
    gate: Mapping[str, object],
    recorded: Sequence[SessionScript] = (),
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Result:
    """Play a scenario under an arm. ``gate``: settings that go over the scenario's own, and the arm's go over both."""
    policy = GatePolicy(**{**scenario.gate, **gate, **arm.gate})
    return World(scenario, arm, policy, recorded=recorded, seed=seed, on_progress=on_progress).run()
