"""Agents that start agents and wait for them: whatever the tree, the order and the window, all of them come to an end.

Leases and longest waits are longer than the whole play here: nothing but the rules for relatives and for engines that
run nothing can get a fleet of agents on that all wait for their sub-agents.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.core.order.registry import ORDERS
from concur_proxy.model import Held
from tests.core.stand import SESSIONS, TOKENS, Stand

FOREVER = {"max_wait_s": 80_000.0, "lease_min_s": 80_000.0, "lease_max_s": 86_400.0}
LONGEST_S = 20_000.0


@dataclass(eq=False)
class Agent:
    """``turns``: after each, the sub-agents that it starts and waits for."""

    turns: list
    tokens: int
    urgency: int
    name: str = ""
    parent: "Agent | None" = None
    done: int = 0
    waits_for: int = 0
    children: list = field(default_factory=list)


def named(agent, name, parent=None):
    """Give a tree its names, from the root down."""
    agent.name, agent.parent = name, parent
    for index, children in enumerate(agent.turns):
        for number, child in enumerate(children):
            named(child, f"{name}.{index}{number}", agent)
    return agent


def agents(children):
    return st.builds(
        Agent,
        turns=st.lists(children, min_size=1, max_size=3),
        tokens=st.sampled_from([10, 100, 400, 2000]),
        urgency=st.sampled_from([0, 0, -1]),
    )


TREES = st.recursive(agents(st.just([])), lambda inner: agents(st.lists(inner, max_size=3)), max_leaves=12)


class Play:
    """Turns take a second, agents half a second between two; everything at once where it may be."""

    def __init__(self, roots, stand):
        self.stand = stand
        self.left = len(roots)
        self.events = [(0.0, number, "ask", root) for number, root in enumerate(roots)]
        self.sequence = len(roots)
        self.agents = {}

    def at(self, seconds, what, agent):
        self.sequence += 1
        self.events.append((self.stand.now + seconds, self.sequence, what, agent))
        self.events.sort(key=lambda event: event[:2])

    def run(self):
        while self.left:
            due = self.stand.gate.next_deadline()
            at = self.events[0][0] if self.events else due
            assert at is not None
            assert at < LONGEST_S, f"{len(self.stand.held)} turns wait for ever"
            granted = self.stand.wait(max(0.0, min(at, due if due is not None else at) - self.stand.now))
            self.begin(granted)
            while self.events and self.events[0][0] <= self.stand.now:
                _, _, what, agent = self.events.pop(0)
                getattr(self, what)(agent)

    def begin(self, names):
        for name in names:
            self.at(1.0, "answered", self.agents[name])

    def ask(self, agent):
        self.agents[agent.name] = agent
        parent = agent.parent.name if agent.parent else None
        final = agent.done + 1 == len(agent.turns)
        answer = self.stand.arrive(agent.name, parent=parent, tokens=agent.tokens, urgency=agent.urgency, final=final)
        if not isinstance(answer, Held):
            self.begin([agent.name])

    def answered(self, agent):
        self.begin(self.stand.finish(agent.name, prompt=agent.tokens))
        children = agent.turns[agent.done]
        agent.done += 1
        agent.waits_for = len(children)
        for child in children:
            self.at(0.0, "ask", child)
        if not children:
            self.go_on(agent)

    def go_on(self, agent):
        if agent.done < len(agent.turns):
            self.at(0.5, "ask", agent)
        elif agent.parent is None:
            self.left -= 1
        else:
            agent.parent.waits_for -= 1
            if not agent.parent.waits_for:
                self.go_on(agent.parent)


@pytest.mark.parametrize("order", sorted(ORDERS))
@given(
    trees=st.lists(TREES, min_size=1, max_size=4),
    window=st.sampled_from([(SESSIONS, 1), (SESSIONS, 2), (SESSIONS, 5), (TOKENS, 300), (TOKENS, 1000)]),
    backends=st.sampled_from([1, 1, 2]),
    objective=st.sampled_from([0.0, 0.0, 0.5]),
)
@settings(max_examples=40, deadline=None)
def test_no_tree_of_agents_blocks_itself(order, trees, window, backends, objective):
    """With an objective that every answer misses, batch work goes on when nobody else asks for anything."""
    unit, size = window
    rules = {"order": order, "hot_objective_s": objective, "cold_refuse_after_s": 80_000.0}
    stand = Stand(*[size] * backends, unit=unit, capacity=2000, **FOREVER, **rules)
    roots = [named(tree, f"agent-{number}") for number, tree in enumerate(trees)]
    Play(roots, stand).run()
    assert not stand.held
    assert not stand.refused


def test_a_fleet_of_parents_that_wait_for_their_children_goes_on():
    """As many parents as there are places, each with more children than there are places."""
    parents = [Agent([[Agent([[], []], 100, 0) for _ in range(5)], []], 100, 0) for _ in range(4)]
    stand = Stand(4, **FOREVER)
    Play([named(parent, f"parent-{number}") for number, parent in enumerate(parents)], stand).run()
    assert stand.now < 60.0


@pytest.mark.parametrize("order", sorted(ORDERS))
@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 3.0]),
            st.sampled_from([10, 100, 2000]),
            st.sampled_from([0, -1]),
            st.sampled_from([None, 5.0, 60.0]),
            st.sampled_from([0.5, 4.0, 1000.0]),
        ),
        max_size=40,
    ),
    objective=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=40, deadline=None)
def test_every_turn_is_admitted_or_refused_within_its_bound(order, arrivals, objective):
    """Whatever runs for how long, and however many others come: nobody waits for longer than he is told."""
    stand = Stand(2, order=order, max_wait_s=20.0, hot_objective_s=objective, cold_refuse_after_s=30.0)
    latest, ends = {}, []

    def wait(seconds):
        end = stand.now + seconds
        while ends and ends[0][0] <= end:
            at, name = ends.pop(0)
            stand.wait(max(0.0, at - stand.now))
            note(stand.finish(name))
            check()
        stand.wait(end - stand.now)
        check()

    def note(names):
        ends.extend((stand.now + durations[name], name) for name in names if name in stand.running)
        ends.sort()

    def check():
        note([name for name in stand.running if name not in {each for _, each in ends}])
        for name in stand.held:
            assert stand.now <= latest[name]

    durations = {}
    for number, (pause, tokens, urgency, timeout, duration) in enumerate(arrivals):
        wait(pause)
        name = f"agent-{number}"
        durations[name] = duration
        answer = stand.arrive(name, tokens=tokens, urgency=urgency, read_timeout_s=timeout, final=True)
        if isinstance(answer, Held):
            bound = 20.0 if timeout is None else min(20.0, 0.9 * timeout)
            assert answer.deadline <= stand.now + bound + 1e-9
            latest[name] = answer.deadline
        check()
    wait(21.0)
    assert not stand.held
