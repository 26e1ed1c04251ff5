"""What ``meanfield`` learns from: busy seconds, stretches of time, finished turns."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.model import BackendId, Outcome, SessionKey, TurnRecord, Usage
from concur_proxy.windows.meanfield.costs import PRIOR, StepCosts, solve
from concur_proxy.windows.meanfield.stretch import STRETCH_S, Stretches
from concur_proxy.windows.meanfield.turns import Turns
from tests.windows.cases import signals, view

TRUE = (0.022, 1.25e-4, 3e-5, 8.7e-8)


def stretches(true, count, *, seed=1, noise=0.0):
    """Yield stretches of a load that varies, as an engine with these costs would take them."""
    random = Random(seed)
    for _ in range(count):
        running, context = random.uniform(4, 40), random.uniform(2000, 20_000)
        steps = random.uniform(50, 200)
        decoded, prefilled = steps * running, random.uniform(0, 30_000)
        row = (steps, prefilled + decoded, decoded, decoded * context)
        seconds = sum(cost * value for cost, value in zip(true, row, strict=True))
        yield seconds * random.gauss(1.0, noise), row


def learned(true, count=200, **kwargs):
    costs = StepCosts()
    for seconds, (steps, scheduled, decoded, context) in stretches(true, count, **kwargs):
        costs.add(seconds, steps=steps, scheduled=scheduled, decoded=decoded, context_tokens=context)
    return costs


def as_tuple(costs):
    found = costs.estimate()
    return found.step_s, found.token_s, found.decode_s, found.context_s


class TestStepCosts:
    def test_before_anything_it_is_the_prior(self):
        assert as_tuple(StepCosts()) == PRIOR

    @pytest.mark.parametrize("speed", [0.01, 1.0, 100.0])
    def test_true_costs_are_found_on_slow_and_on_fast_cards(self, speed):
        true = tuple(cost / speed for cost in TRUE)
        step, token, _, context = as_tuple(learned(true, noise=0.02))
        assert step == pytest.approx(true[0], rel=0.15)
        assert token == pytest.approx(true[1], rel=0.1)
        assert context == pytest.approx(true[3], rel=0.15)

    def test_what_is_predicted_of_the_whole_is_right_also_where_its_parts_are_not_told_apart(self):
        costs = StepCosts()
        row = (100.0, 20_000.0, 2000.0, 2e7)
        seconds = sum(cost * value for cost, value in zip(TRUE, row, strict=True))
        for _ in range(20):
            costs.add(seconds, steps=row[0], scheduled=row[1], decoded=row[2], context_tokens=row[3])
        found = as_tuple(costs)
        assert sum(cost * value for cost, value in zip(found, row, strict=True)) == pytest.approx(seconds, rel=1e-6)
        assert {round(cost / prior, 6) for cost, prior in zip(found, PRIOR, strict=True)} == {
            round(found[0] / PRIOR[0], 6)
        }

    def test_an_engine_that_has_become_slower_is_followed(self):
        costs = learned(TRUE)
        for seconds, (steps, scheduled, decoded, context) in stretches(tuple(2 * cost for cost in TRUE), 300, seed=2):
            costs.add(seconds, steps=steps, scheduled=scheduled, decoded=decoded, context_tokens=context)
        assert as_tuple(costs)[0] == pytest.approx(2 * TRUE[0], rel=0.2)

    @given(
        rows=st.lists(
            st.tuples(
                st.floats(0.0, 100.0), st.floats(0, 1e4), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e10)
            ),
            max_size=20,
        )
    )
    def test_no_cost_is_ever_negative_or_no_number(self, rows):
        costs = StepCosts()
        for seconds, steps, scheduled, decoded, context in rows:
            costs.add(seconds, steps=steps, scheduled=scheduled, decoded=decoded, context_tokens=context)
        assert all(math.isfinite(cost) and cost >= 0 for cost in as_tuple(costs))

    def test_what_it_knows_can_be_kept(self):
        costs, other = learned(TRUE, 30), StepCosts()
        other.load(**costs.dump())
        assert other.estimate() == costs.estimate()


@given(st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=3), min_size=3, max_size=3))
def test_elimination_solves_systems(lines):
    matrix = [[value + (50.0 if i == j else 0.0) for j, value in enumerate(line)] for i, line in enumerate(lines)]
    right = [1.0, -2.0, 3.0]
    found = solve(matrix, right)
    for line, value in zip(matrix, right, strict=True):
        assert sum(a * b for a, b in zip(line, found, strict=True)) == pytest.approx(value)


def turn(*, prompt=1000, output=100, cached=None, expected=None, think_s=None, waited_s=0.0, **fields):
    return TurnRecord(
        **{
            "backend": BackendId("a"),
            "session": SessionKey("", "s"),
            "outcome": Outcome.COMPLETED,
            "arrived_at": 0.0,
            "admitted_at": waited_s,
            "finished_at": waited_s + 3.0,
            "first_token_at": waited_s + 1.0,
            "think_s": think_s,
            "usage": Usage(prompt, output, cached),
            "expected_cached_tokens": expected,
        }
        | fields
    )


class TestTurns:
    def test_means_are_those_of_the_turns(self):
        turns = Turns()
        turns.add(turn(prompt=2000, output=200, cached=500), now=1.0)
        for _ in range(3):
            turns.add(turn(prompt=3000, output=200, cached=1000, expected=2000, think_s=1.0), now=1.0)
        assert turns.output == pytest.approx(200)
        assert turns.prefix == pytest.approx(500)
        returns = turns.returns
        assert turns.new == pytest.approx(1000 * returns + (2000 - 500) * (1 - returns), rel=0.01)
        assert turns.history == pytest.approx((2000 - 500) * returns, rel=0.01)
        assert turns.growth == pytest.approx(1200)
        assert turns.hit_rate == pytest.approx(0.5)

    def test_sessions_that_have_just_begun_are_believed_to_go_on(self):
        turns = Turns()
        for _ in range(200):
            turns.add(turn(), now=1.0)
        assert turns.returns >= 0.95

    def test_the_share_that_goes_on_is_learned_from_the_sessions_that_end(self):
        """One in four turns is its session's last."""
        turns = Turns()
        for index in range(2000):
            turns.add(turn(expected=800, think_s=1.0) if index % 4 else turn(), now=1.0)
            turns.depart(index % 4 == 3)
        assert turns.returns == pytest.approx(0.75, abs=0.03)

    def test_questions_that_nobody_goes_on_from_return_never(self):
        turns = Turns()
        for _ in range(2000):
            turns.add(turn(), now=1.0)
            turns.depart(1)
        assert turns.returns < 0.1

    def test_turns_that_waited_say_nothing_of_those_that_did_not(self):
        turns = Turns()
        turns.add(turn(cached=0, expected=800, think_s=1.0, waited_s=5.0), now=1.0)
        assert turns.hit_rate is None

    def test_only_what_was_computed_counts(self):
        turns = Turns()
        for outcome in set(Outcome) - {Outcome.COMPLETED}:
            turns.add(turn(outcome=outcome), now=1.0)
        turns.add(turn(usage=None), now=1.0)
        assert turns.count == 0

    def test_the_rate_is_turns_per_second(self):
        turns = Turns()
        for tenth in range(6000):
            turns.add(turn(), now=tenth / 10)
        assert turns.rate(now=600.0) == pytest.approx(10.0, rel=0.05)
        assert turns.rate(now=1200.0) < 0.01

    def test_the_rate_is_right_from_the_beginning(self):
        turns = Turns()
        for tenth in range(1000, 1050):
            turns.add(turn(), now=tenth / 10)
        assert turns.rate(now=105.0) == pytest.approx(10.0, rel=0.05)

    def test_the_old_is_forgotten(self):
        turns = Turns()
        for _ in range(1000):
            turns.add(turn(output=10), now=1.0)
        for _ in range(1500):
            turns.add(turn(output=1000), now=1.0)
        assert turns.output == pytest.approx(1000, rel=0.02)

    def test_what_it_knows_can_be_kept(self):
        turns, other = Turns(), Turns()
        turns.add(turn(cached=10, expected=100, think_s=1.0), now=1.0)
        other.load(turns.dump())
        assert (other.new, other.returns, other.hit_rate) == (turns.new, turns.returns, turns.hit_rate)


SECOND = {"steps": 40.0, "scheduled_tokens": 1400.0, "generation_tokens": 400.0}


class TestStretches:
    """A second has 40 steps of 10 decoding turns with contexts of 5000 tokens."""

    def play(self, seconds, *, busy=1.0, told=None, turns=(), start=0.0):
        costs, stretches = StepCosts(), Stretches()
        for second in range(seconds + 1):
            for one in turns:
                stretches.turn(one)
            seen = view(running=10, running_tokens=50_000.0, busy_s=start + busy * second)
            stretches.update(signals(**SECOND if told is None else told), seen, costs, now=100.0 + second)
        return costs

    def test_busy_time_becomes_equations(self):
        costs = self.play(40)
        assert costs.busy_s == pytest.approx(40, rel=0.1)
        found = costs.estimate()
        cost = 40 * found.step_s + 1400 * found.token_s + 400 * found.decode_s + 400 * 5000 * found.context_s
        assert cost == pytest.approx(1.0, rel=0.01)

    def test_what_went_before_it_was_there_does_not_count(self):
        assert self.play(40, start=1e6).busy_s == self.play(40).busy_s

    def test_seldom_busy_says_nothing(self):
        assert self.play(40, busy=0.3).busy_s == 0

    def test_an_engine_without_counters_is_followed_through_its_answers(self):
        """Four turns a second that stream a hundred tokens, each token in 25 ms."""
        told = {"steps": None, "interval_s": None}
        one = turn(prompt=5000, output=101, cached=4750, finished_at=3.5, first_token_at=1.0)
        found = self.play(60, told=told, turns=[one] * 4).estimate()
        cost = 40 * found.step_s + 1404 * found.token_s + 404 * found.decode_s + 404 * 5000 * found.context_s
        assert cost == pytest.approx(1.0, rel=0.05)

    def test_nothing_is_learned_of_an_engine_that_tells_nothing(self):
        assert self.play(60, told={"steps": None, "interval_s": None}).busy_s == 0

    def test_how_often_it_is_asked_changes_little(self):
        costs, stretches = StepCosts(), Stretches()
        for tenth in range(401):
            told = signals(**{name: value / 10 for name, value in SECOND.items()})
            stretches.update(told, view(running=10, running_tokens=50_000.0, busy_s=tenth / 10), costs, now=tenth / 10)
        often, once = costs.estimate(), self.play(40).estimate()
        assert often.step_s == pytest.approx(once.step_s, rel=0.1)
        assert STRETCH_S < 40


class TestShare:
    """Of what the engine computes, 1400 tokens a second."""

    def share(self, turns, told=None):
        stretches = Stretches()
        for second in range(200):
            for one in turns:
                stretches.turn(one)
            seen = view(running=10, running_tokens=50_000.0, busy_s=float(second))
            stretches.update(signals(**SECOND if told is None else told), seen, StepCosts(), now=float(second))
        return stretches.share

    def test_it_is_what_our_turns_have_computed(self):
        assert self.share([turn(prompt=700, output=0, cached=0)]) == pytest.approx(0.5, rel=0.05)
        assert self.share([turn(prompt=2000, output=100, cached=1400)]) == pytest.approx(0.5, rel=0.05)

    def test_nearly_all_is_all(self):
        assert self.share([turn(prompt=1300, output=0, cached=0)]) == 1.0

    def test_it_never_is_nothing(self):
        assert 0 < self.share([]) < 0.1

    def test_an_engine_that_does_not_tell_is_ours(self):
        assert self.share([], told={"steps": None, "scheduled_tokens": None}) == 1.0
