"""The equations of ``meanfield`` against numeric integration, brute force and known limits."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.windows.meanfield.model import Costs, Model, Traffic, rate_of
from concur_proxy.windows.meanfield.think import ThinkTimes

COSTS = Costs(0.02, 1e-4, 3e-5, 8e-8)
TURN = Traffic(new=600, history=10_000, output=250, context=10_000, footprint=14_000, returns=0.95)


def thinking(*seconds):
    think = ThinkTimes()
    for one in seconds:
        think.add(one)
    return think


def exponential(mean_s, *, count=1024):
    """Evenly spread over the distribution, in an order in which every stretch is (van der Corput's)."""
    places = (int(f"{number:010b}"[::-1], 2) for number in range(1024))
    kept = [place for place in places if place % (1024 // count) == 0]
    return thinking(*(-mean_s * math.log(1 - (place + 0.5) / 1024) for place in kept))


def model(*, capacity=300_000.0, think=None, costs=COSTS, traffic=TURN):
    think = think or exponential(5.0)
    return Model(costs, traffic, think.curve(traffic.returns), think.mean_s, capacity)


class TestThinkTimes:
    def test_the_mean_is_that_of_the_samples(self):
        assert thinking(1.0, 2.0, 6.0).mean_s == pytest.approx(3.0)
        assert ThinkTimes().mean_s is None

    @pytest.mark.parametrize("returns", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("mean_s", [0.5, 5.0, 120.0])
    def test_the_area_is_the_integral_of_what_has_not_come_back(self, mean_s, returns):
        """Of an exponential distribution it has a closed form."""
        curve = exponential(mean_s).curve(returns)
        assert (curve.reached[0], curve.away[0], curve.reached[-1]) == (0.0, 0.0, pytest.approx(1.0))
        for reached, away in zip(curve.reached, curve.away, strict=True):
            if 0.2 < reached < 0.95:
                time = -mean_s * math.log(1 - reached)
                assert away == pytest.approx(time - returns * (time - mean_s * reached), rel=0.1)

    def test_the_curve_is_linear_within_bins_and_flat_between_them(self):
        """One in four thinks for about a second, the others for about a minute."""
        curve = thinking(1.0, 60.0, 60.0, 60.0).curve(1.0)
        assert sorted(set(curve.reached)) == [0.0, 0.25, 1.0]
        assert curve.away[-1] == pytest.approx(45.25, rel=0.1)
        flat = [away for reached, away in zip(curve.reached, curve.away, strict=True) if reached == 0.25]
        assert flat[1] - flat[0] == pytest.approx(0.75 * 55, rel=0.1)

    def test_it_forgets(self):
        think = thinking(*[100.0] * 50)
        for _ in range(2000):
            think.add(1.0)
        assert think.mean_s == pytest.approx(1.0, abs=0.1)

    def test_without_samples_nobody_comes_back(self):
        assert ThinkTimes().curve(1.0).reached == (0.0,)

    def test_a_day_is_the_longest_and_nothing_is_shorter_than_no_time(self):
        assert thinking(1e9).curve(1.0).reached[-1] == 1.0
        assert thinking(-5.0).mean_s == 0.0

    def test_what_it_knows_can_be_kept(self):
        think, other = exponential(5.0), ThinkTimes()
        other.load(**think.dump())
        assert other.curve(0.9) == think.curve(0.9)


def brute_force(full, running):
    """Return rate and hit rate of a number of running turns: the room that is needed grows with the time T."""
    knots = zip(full.curve.reached, full.curve.away, strict=True)
    room = full.capacity - running * full.traffic.footprint
    best = (full.rate(running, 0.0), 0.0)
    for (low, since), (high, until) in pairwise(knots):
        for part in range(21):
            hits, away = low + part / 20 * (high - low), since + part / 20 * (until - since)
            if full.rate(running, hits) * full.traffic.footprint * away <= room:
                best = (full.rate(running, hits), hits)
    return best


class TestModel:
    def test_where_everything_fits_every_turn_finds_its_context(self):
        full = model(capacity=1e8)
        assert full.best(full.points()).hit_rate == pytest.approx(1.0, abs=0.01)

    def test_where_running_turns_fill_the_cache_nothing_is_found(self):
        first = model().points()[0]
        assert (first.hit_rate, first.running) == (0.0, pytest.approx(300_000 / TURN.footprint))

    def test_each_point_solves_all_equations_together(self):
        full = model()
        knots = zip(full.curve.reached, full.curve.away, strict=True)
        for point, (hits, away) in zip(full.points(), knots, strict=True):
            assert point.hit_rate == hits
            room = full.capacity - point.running * TURN.footprint
            assert point.rate * TURN.footprint * away == pytest.approx(room, rel=1e-6, abs=1e-3)
            prefill = COSTS.token_s * (TURN.new + (1 - hits) * TURN.history)
            decode = TURN.output * (COSTS.token_s + COSTS.decode_s + COSTS.context_s * TURN.context)
            assert 1 / point.rate == pytest.approx(prefill + decode + TURN.output * COSTS.step_s / point.running)
            assert point.window == pytest.approx(point.running + point.rate * full.idle_s)

    def test_ever_fewer_run_along_the_curve(self):
        running = [point.running for point in model().points()]
        assert running == sorted(running, reverse=True)

    @settings(deadline=None, max_examples=30)
    @given(
        capacity=st.floats(1e4, 3e6),
        mean_s=st.floats(0.1, 200.0),
        footprint=st.floats(500, 50_000),
        history=st.floats(0, 50_000),
        output=st.floats(1, 2000),
    )
    def test_the_best_is_as_good_as_any(self, capacity, mean_s, footprint, history, output):
        traffic = Traffic(500, history, output, history, footprint, 0.9)
        full = model(capacity=capacity, traffic=traffic, think=exponential(mean_s, count=64))
        best = full.best(full.points())
        most = capacity / footprint
        assert 0.0 < best.running <= most * (1 + 1e-9)
        assert 0.0 <= best.hit_rate <= 1.0
        assert best.rate >= 0.99 * max(brute_force(full, most * k / 20)[0] for k in range(1, 21))

    def test_a_faster_card_has_the_same_best_point(self):
        """With think times as much shorter, only the clock is another."""
        slow = model(think=exponential(10.0))
        half = Costs(*(cost / 2 for cost in (COSTS.step_s, COSTS.token_s, COSTS.decode_s, COSTS.context_s)))
        fast = model(think=exponential(5.0), costs=half)
        one, other = slow.best(slow.points()), fast.best(fast.points())
        assert other.running == pytest.approx(one.running, rel=0.05)
        assert other.rate == pytest.approx(2 * one.rate, rel=0.05)

    def test_without_history_more_is_always_better(self):
        full = model(traffic=Traffic(2000, 0, 250, 2000, 2250, 0.0))
        assert full.best(full.points()).running == pytest.approx(300_000 / 2250)

    def test_others_on_the_engine_take_their_part_of_it(self):
        alone = model()
        shared = replace(alone, share=0.5)
        assert shared.rate(8.0, 0.9) == pytest.approx(alone.rate(8.0, 0.9) / 2)
        best = shared.best(shared.points())
        assert best.rate < alone.best(alone.points()).rate
        assert best.rate == pytest.approx(shared.rate(best.running, best.hit_rate))

    def test_the_rate_of_a_number_of_sessions_is_that_of_the_curve(self):
        full = model()
        points = full.points()
        for point in points[:-1]:
            assert rate_of(point.window, points) == pytest.approx(point.rate, rel=0.03)
        assert rate_of(1e6, points) == points[0].rate
        best = full.best(points)
        assert rate_of(2 * best.window, points) < best.rate
