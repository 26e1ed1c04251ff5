"""Whether a session comes back: learned from how answers end and how long agents are away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.returns import BELIEF, LONGEST_THINK_S, MEMORY, WATCHED, Returns
from concur_proxy.core.sessions import Session
from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import FinishReason, PoolId, SessionKey

TOOLS, LENGTH, STOP = FinishReason.TOOL_CALLS, FinishReason.LENGTH, FinishReason.STOP


class Agents:
    """Sessions of one engine, told of as the gate does."""

    def __init__(self):
        self.think, self.now, self.made = ThinkTime(), 0.0, 0
        self.returns = Returns(self.think)

    def answer(self, reason, session=None):
        if session is None:
            self.made += 1
            session = Session(SessionKey("", str(self.made)), PoolId("pool"))
        session.finish_reason, session.left_at, session.finished_at = reason, self.now, self.now
        self.returns.left(session, self.now)
        return session

    def back(self, session):
        thought = self.now - session.left_at
        session.left_at = None
        self.returns.came_back(session)
        self.think.add(thought)
        session.think = session.think or ThinkTime()
        session.think.add(thought)

    def pass_time(self, seconds):
        self.now += seconds

    def chance(self, session):
        return self.returns.chance(session, self.now)


def test_at_first_it_is_believed_what_an_answer_says():
    agents = Agents()
    tools, length, stop = (agents.chance(agents.answer(reason)) for reason in (TOOLS, LENGTH, STOP))
    assert tools > length > stop > 0.3


def test_whoever_does_not_come_back_for_long_tells_of_the_others():
    agents = Agents()
    for _ in range(100):
        agents.answer(LENGTH)
    agents.pass_time(LONGEST_THINK_S + 1.0)
    assert agents.chance(agents.answer(LENGTH)) < 0.1
    assert agents.chance(agents.answer(TOOLS)) > 0.9


def test_sessions_that_have_come_back_once_are_told_from_those_at_their_first_answer():
    agents = Agents()
    for _ in range(50):
        agents.answer(LENGTH)
        agent = agents.answer(LENGTH)
        for _ in range(4):
            agents.pass_time(1.0)
            agents.back(agent)
            agents.answer(LENGTH, agent)
    agents.pass_time(60.0)
    first = agents.answer(LENGTH)
    again = agents.answer(LENGTH)
    agents.pass_time(0.1)
    agents.back(again)
    agents.answer(LENGTH, again)
    assert agents.chance(first) < 0.65
    assert agents.chance(again) > 0.75


def test_who_is_away_for_longer_is_less_likely_to_come_back():
    agents = Agents()
    session = agents.answer(LENGTH)
    agents.pass_time(1.0)
    agents.back(session)
    agents.answer(LENGTH, session)
    chances = []
    for _ in range(10):
        chances.append(agents.chance(session))
        agents.pass_time(1.0)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] < 0.01


def test_who_comes_back_after_all_is_counted_as_one_who_does():
    agents = Agents()
    late = [agents.answer(LENGTH) for _ in range(50)]
    agents.pass_time(LONGEST_THINK_S + 1.0)
    agents.answer(TOOLS)
    doubt = agents.chance(agents.answer(LENGTH))
    for session in late:
        agents.back(session)
    assert doubt < 0.1
    assert agents.chance(agents.answer(LENGTH)) > 0.9


def test_what_was_long_ago_is_forgotten():
    agents = Agents()
    for _ in range(int(3 * MEMORY)):
        agents.back(agents.answer(STOP))
    for _ in range(int(MEMORY)):
        agents.answer(STOP)
    agents.pass_time(60.0)
    assert agents.chance(agents.answer(STOP)) < 0.5


def test_of_many_who_are_away_no_more_than_a_bound_are_remembered():
    agents = Agents()
    for _ in range(2 * WATCHED):
        agents.answer(LENGTH)
    assert len(agents.returns._away) == WATCHED


@given(
    st.lists(st.tuples(st.sampled_from((TOOLS, LENGTH, STOP, None)), st.floats(0.0, 100.0), st.booleans()), max_size=60)
)
def test_a_chance_is_always_a_probability(steps):
    agents = Agents()
    for reason, seconds, returns in steps:
        session = agents.answer(reason)
        agents.pass_time(seconds)
        assert 0.0 < agents.chance(session) + 1e-300 <= 1.0
        assert agents.returns.per_s(session, agents.now) >= 0.0
        if returns:
            agents.back(session)


def test_belief_counts_for_some_answers_only():
    agents = Agents()
    for _ in range(int(BELIEF)):
        agents.back(agents.answer(STOP))
    assert agents.chance(agents.answer(STOP)) == pytest.approx(0.75, abs=0.01)
