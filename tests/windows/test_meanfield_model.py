"""The equations of ``meanfield`` against numeric integration, brute force and known limits."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.windows.meanfield.model import MOST_RUNNING, Costs, Model, Traffic
from concur_proxy.windows.meanfield.think import EDGES, ThinkTimes

COSTS = Costs(0.02, 1e-4, 3e-5, 8e-8)
TURN = Traffic(new=600, history=10_000, output=250, context=10_000, footprint=14_000, returns=0.95)


def thinking(*seconds):
    think = ThinkTimes()
    for one in seconds:
        think.add(one, now=0.0)
    return think


def exponential(mean_s, *, seed=1, count=4000):
    random = Random(seed)
    return thinking(*(random.expovariate(1 / mean_s) for _ in range(count)))


def model(*, capacity=300_000.0, think=None, costs=COSTS, traffic=TURN):
    return Model(costs, traffic, (think or exponential(5.0)).curve(traffic.returns), capacity)


class TestThinkTimes:
    def test_the_mean_is_that_of_the_samples(self):
        assert thinking(1.0, 2.0, 6.0).mean_s == pytest.approx(3.0)
        assert ThinkTimes().mean_s is None

    @pytest.mark.parametrize("mean_s", [0.5, 5.0, 120.0])
    def test_the_curve_is_the_distribution_function(self, mean_s):
        curve = exponential(mean_s).curve(1.0)
        for edge, reached in zip(EDGES, curve.reached, strict=True):
            assert reached == pytest.approx(1 - math.exp(-edge / mean_s), abs=0.03)

    @pytest.mark.parametrize("returns", [0.0, 0.5, 1.0])
    def test_the_area_is_the_integral_of_what_has_not_come_back(self, returns):
        curve = exponential(5.0).curve(returns)
        step = 0.001
        for index in (40, 50, 60):
            edge = EDGES[index]
            times = [(k + 0.5) * step for k in range(int(edge / step))]
            numeric = sum(1 - returns * (1 - math.exp(-t / 5.0)) for t in times) * step
            assert curve.away[index] == pytest.approx(numeric, rel=0.05)

    def test_it_forgets(self):
        think = thinking(*[100.0] * 50)
        for second in range(7200):
            think.add(1.0, now=float(second))
        assert think.mean_s == pytest.approx(1.0, abs=0.1)

    def test_a_day_is_the_longest_and_nothing_is_shorter_than_no_time(self):
        assert thinking(1e9).curve(1.0).reached[-1] == 1.0
        assert thinking(-5.0).mean_s == 0.0

    def test_what_it_knows_can_be_kept(self):
        think, other = exponential(5.0), ThinkTimes()
        other.load(**think.dump())
        assert other.curve(0.9) == think.curve(0.9)


class TestModel:
    def test_where_everything_fits_every_turn_finds_its_context(self):
        assert model(capacity=1e9).at(20.0).hit_rate == 1.0

    def test_where_running_turns_fill_the_cache_nothing_is_found(self):
        full = model()
        assert full.at(full.fit).hit_rate == 0.0

    def test_more_running_than_fit_wait_in_the_engine(self):
        full = model()
        assert full.at(1000.0).rate == full.at(full.fit).rate

    @pytest.mark.parametrize("running", [2.0, 8.0, 14.0])
    def test_hits_and_rate_solve_their_equations_together(self, running):
        """The exponential distribution has closed forms for F and its area."""
        full = model()
        point = full.at(running)
        assert point.rate == pytest.approx(full.rate(running, point.hit_rate))
        room = full.capacity - running * TURN.footprint
        time = -5.0 * math.log(1 - min(point.hit_rate, 1 - 1e-9))
        away = time - TURN.returns * (time - 5.0 * point.hit_rate)
        if point.hit_rate < 1.0:
            assert point.rate * TURN.footprint * away == pytest.approx(room, rel=0.08)

    @settings(deadline=None)
    @given(
        capacity=st.floats(1e4, 1e7),
        mean_s=st.floats(0.1, 200.0),
        footprint=st.floats(500, 50_000),
        history=st.floats(0, 50_000),
        output=st.floats(1, 2000),
    )
    def test_the_best_is_as_good_as_any(self, capacity, mean_s, footprint, history, output):
        traffic = Traffic(500, history, output, history, footprint, 0.9)
        full = model(capacity=capacity, traffic=traffic, think=exponential(mean_s, count=50))
        best = full.best()
        assert 1.0 <= best.running <= full.fit
        assert 0.0 <= best.hit_rate <= 1.0
        most = min(full.fit, MOST_RUNNING)
        brute = max(full.at(1.0 + (most - 1.0) * k / 200).rate for k in range(201))
        assert best.rate >= 0.99 * brute

    def test_a_faster_card_has_the_same_best_point(self):
        """With think times as much shorter, only the clock is another."""
        slow = model(think=exponential(10.0)).best()
        half = Costs(*(cost / 2 for cost in (COSTS.step_s, COSTS.token_s, COSTS.decode_s, COSTS.context_s)))
        fast = model(think=exponential(5.0), costs=half).best()
        assert fast.running == pytest.approx(slow.running, rel=0.05)
        assert fast.rate == pytest.approx(2 * slow.rate, rel=0.05)

    def test_without_history_more_is_always_better(self):
        full = model(traffic=Traffic(2000, 0, 250, 2000, 2250, 0.0))
        assert full.best().running == pytest.approx(full.fit)

    def test_others_on_the_engine_take_their_part_of_it(self):
        alone = model()
        shared = Model(alone.costs, alone.traffic, alone.curve, alone.capacity, share=0.5)
        assert shared.rate(8.0, 0.9) == pytest.approx(alone.rate(8.0, 0.9) / 2)
