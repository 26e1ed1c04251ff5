"""What every adaptive law keeps over time: pace, drains, refusals, recovery. ``test_contract`` has the single steps."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.windows.guards import LONGEST_DRAIN_S, SETTLE_S
from tests.windows.cases import ADAPTIVE, SILENCE, Run, case, lives, make

weathers = st.sampled_from(["room", "congestion", "silence"])
spells = st.lists(st.tuples(weathers, st.floats(0.1, 5.0), st.integers(1, 40)), max_size=5)
"""What the time is like, seconds between updates, and how many of those."""


def told(name, weather):
    return SILENCE if weather == "silence" else getattr(case(name), weather)


def live_through(run, name, spells):
    for weather, after, count in spells:
        run.steps(count, after=after, **told(name, weather))


@pytest.mark.parametrize("name", ADAPTIVE)
class TestPace:
    @lives
    @given(
        weather=st.lists(st.sampled_from(["room", "congestion"]), max_size=8),
        asked=st.lists(st.lists(st.integers(1, 15), max_size=6), min_size=8, max_size=8),
        active=st.sampled_from([0, 40]),
    )
    def test_what_is_no_news_changes_nothing_however_often_it_is_asked(self, name, weather, asked, active):
        often, once = (case(name).run(name, active=active) for _ in range(2))
        for kind, sixteenths in zip(weather, asked, strict=False):
            news = told(name, kind)
            gauges = {key: news[key] for key in news.keys() & {"kv_usage", "capacity_tokens"}}
            passed = 0
            for sixteenth in sorted(set(sixteenths)):
                often.step(after=(sixteenth - passed) / 16, interval_s=None, **gauges)
                passed = sixteenth
            often.step(after=(16 - passed) / 16, **news)
            once.step(**news)
            assert often.window == once.window

    @pytest.mark.parametrize("per_second", [4, 16])
    def test_news_that_come_more_often_open_the_window_no_faster(self, name, per_second):
        often, once = (case(name).run(name) for _ in range(2))
        often.steps(20 * per_second, after=1 / per_second, **case(name).room)
        once.steps(20, **case(name).room)
        start = 16 * case(name).session
        assert once.window - start == pytest.approx(often.window - start, rel=0.15)

    @lives
    @given(steps=st.lists(st.tuples(weathers, st.floats(0.0, 2.0), st.booleans()), max_size=40))
    def test_within_a_second_no_window_moves_by_more_than_a_factor(self, name, steps):
        run = Run(make(name), 64 * case(name).session)
        seen = [(run.now, run.window)]
        for weather, after, refused in steps:
            run.step(after=after, **{"rejections": 1.0 if refused else 0.0} | told(name, weather))
            seen.append((run.now, run.window))
            lately = [window for at, window in seen if run.now - at < 1.0]
            assert max(lately) <= 4 * min(lately) * (1 + 1e-9)


@pytest.mark.parametrize("name", ADAPTIVE)
class TestDrains:
    @lives
    @given(spells=st.lists(st.tuples(st.sampled_from(["room", "congestion"]), st.floats(0.1, 5.0), st.integers(1, 30))))
    def test_a_second_cut_waits_for_what_the_first_was_to_drive_out(self, name, spells):
        run = case(name).run(name, 64.0, active=10_000)
        cuts = []
        for weather, after, count in spells:
            for _ in range(count):
                before = run.window
                run.step(after=after, **told(name, weather))
                if run.window < before:
                    cuts.append(run.now)
        assert all(later - earlier >= LONGEST_DRAIN_S for earlier, later in pairwise(cuts))

    @lives
    @given(after=st.floats(0.1, 1.0))
    def test_where_nothing_has_to_drain_it_waits_for_the_signals(self, name, after):
        run = case(name).run(name, 64.0, active=0)
        cuts = []
        for _ in range(60):
            before = run.window
            if run.step(after=after, **case(name).congestion).window < before:
                cuts.append(run.now)
        assert cuts
        assert all(later - earlier >= SETTLE_S for earlier, later in pairwise(cuts))


@pytest.mark.parametrize("name", ADAPTIVE)
class TestRefusals:
    @lives
    @given(spells=spells, weather=weathers, load=st.integers(1, 200))
    def test_a_refusal_shrinks_the_window_whatever_went_before(self, name, spells, weather, load):
        run = case(name).run(name, running=load, active=load)
        live_through(run, name, spells)
        before = run.window
        verdict = run.step(after=60.0, rejections=1.0, **told(name, weather))
        assert verdict.hard
        assert verdict.window <= max(1.0, 0.9 * before)

    @lives
    @given(spells=spells, load=st.integers(1, 200))
    def test_after_a_refusal_nothing_grows_for_a_while(self, name, spells, load):
        run = case(name).run(name, running=load, active=load)
        live_through(run, name, spells)
        low = run.step(rejections=1.0, **case(name).room).window
        for _ in range(4):
            assert run.step(**case(name).room).window <= low


@pytest.mark.parametrize("name", ADAPTIVE)
class TestRecovery:
    @lives
    @given(spells=spells)
    def test_whatever_went_before_room_opens_the_window_again(self, name, spells):
        run = case(name).run(name)
        live_through(run, name, spells)
        low = min(run.window, 128 * case(name).session)
        assert run.steps(180, **case(name).room) > 1.5 * low

    @lives
    @given(spells=spells)
    def test_nor_does_it_grow_where_nobody_waits(self, name, spells):
        run = case(name).run(name)
        live_through(run, name, spells)
        high = run.window
        assert run.steps(60, seen={"bound": False, "held": 0}, **case(name).room) <= high
