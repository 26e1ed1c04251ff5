import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.bench.engine_stats import EngineDelta
from concur_proxy.bench.figures import jain, quantile, spread
from concur_proxy.bench.report import ROUNDING_TOKENS, Tally
from concur_proxy.model import Usage


def answered(tally, usage, reusable=0, duration_s=1.0, ttft_s=None):
    tally.answered(usage, reusable=reusable, duration_s=duration_s, ttft_s=ttft_s)


def test_a_run_in_figures():
    tally = Tally(sessions=2, turns=4)
    answered(tally, Usage(1000, 50, 0), duration_s=2.0, ttft_s=0.5)
    answered(tally, Usage(1500, 50, 1040), reusable=1050, duration_s=1.0, ttft_s=0.1)
    answered(tally, Usage(2000, 100, 500), reusable=1550, duration_s=4.0, ttft_s=0.2)
    tally.failed("status 400: no")
    tally.retried()
    tally.session_ended("a", 9.0, completed=True)
    tally.session_ended("b", 1.0, completed=False)
    report = tally.report(10.0)
    assert (report.turns, report.errors, report.retries) == (3, 1, 1)
    assert (report.prompt_tokens, report.output_tokens, report.cached_tokens) == (4500, 200, 1540)
    assert report.new_tokens == 1000 + 450 + 450
    assert report.output_tokens_per_s == 20.0
    assert report.hit_rate == pytest.approx(1540 / 4500)
    assert report.recomputed_tokens == 1050  # the ten tokens missing in the second turn are rounding to blocks
    assert (report.turn_p50_s, report.turn_p95_s, report.ttft_p50_s, report.ttft_p95_s) == (2.0, 4.0, 0.2, 0.5)
    assert report.session_s == {"a": 9.0}
    assert report.problems == {"status 400: no": 1}
    assert json.loads(json.dumps(report.as_json()))["wall_s"] == 10.0


def test_what_was_before_a_warm_up_ended_is_forgotten_and_what_is_under_way_is_not():
    tally = Tally(sessions=3, turns=6)
    answered(tally, Usage(1000, 50, 0), duration_s=20.0, ttft_s=5.0)
    tally.failed("status 400: no")
    tally.session_ended("a", 9.0, completed=False)
    tally.sent()
    tally.forget()
    assert (tally.progress(1.0).active, tally.progress(1.0).sessions) == (1, 3)
    answered(tally, Usage(1500, 50, 1040), reusable=1050, duration_s=1.0, ttft_s=0.1)
    report = tally.report(10.0)
    assert (report.turns, report.errors, report.failed_sessions, report.problems) == (1, 0, 0, {})
    assert (report.prompt_tokens, report.new_tokens, report.turn_p95_s) == (1500, 450, 1.0)
    assert report.longest_wait_s == 0.1


def test_a_shortfall_of_less_than_two_blocks_is_rounding():
    tally = Tally(1, 2)
    answered(tally, Usage(2000, 1, 1000), reusable=1000 + ROUNDING_TOKENS)
    assert tally.report(1.0).recomputed_tokens == 0
    answered(tally, Usage(2000, 1, 1000), reusable=1001 + ROUNDING_TOKENS)
    assert tally.report(1.0).recomputed_tokens == ROUNDING_TOKENS + 1


def test_what_answers_do_not_tell_is_unknown():
    tally = Tally(1, 2)
    answered(tally, Usage(1000, 50, None))
    answered(tally, None)
    report = tally.report(1.0)
    assert (report.turns, report.cached_tokens, report.hit_rate, report.recomputed_tokens) == (2, None, None, None)
    assert (report.preemptions, report.ttft_p50_s) == (None, None)


def test_the_engine_tells_what_the_answers_do_not():
    tally = Tally(1, 2)
    answered(tally, Usage(1000, 50, None))
    answered(tally, Usage(1500, 50, None), reusable=1050)
    report = tally.report(1.0).with_engine(EngineDelta(prefix_hits=400, prefix_queries=2500, preemptions=3))
    assert (report.cached_tokens, report.hit_rate, report.preemptions) == (400, 0.16, 3)
    assert report.recomputed_tokens == 2500 - 400 - 1450


def test_answers_that_tell_go_before_the_engine():
    tally = Tally(1, 1)
    answered(tally, Usage(1000, 50, 100))
    report = tally.report(1.0).with_engine(EngineDelta(prefix_hits=400, prefix_queries=2500, preemptions=3))
    assert (report.cached_tokens, report.preemptions) == (100, 3)
    silent = Tally(1, 1).report(1.0).with_engine(EngineDelta())
    assert silent.hit_rate is None


def test_progress_counts_who_does_what():
    tally = Tally(sessions=2, turns=4)
    tally.sent()
    tally.sent()
    tally.returned()
    tally.thinks()
    progress = tally.progress(2.0)
    assert (progress.active, progress.thinking, progress.turns, progress.sessions) == (1, 1, 4, 2)
    assert progress.hit_rate is None
    assert progress.output_tokens_per_s == 0
    tally.thought()
    answered(tally, Usage(10, 4, 5))
    assert (tally.progress(2.0).thinking, tally.progress(2.0).hit_rate) == (0, 0.5)
    assert tally.progress(2.0).output_tokens_per_s == 2.0


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_smallest_value_that_covers_its_share(values, share):
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    below = [value for value in values if value < found]
    assert len(below) < share * len(values)


def test_quantiles_of_nothing():
    assert quantile([], 0.5) is None


def test_what_agents_had_of_it():
    tally = Tally(sessions=3, turns=6, objective_s=1.0)
    answered(tally, Usage(1000, 50, 0), duration_s=5.0, ttft_s=0.5)
    answered(tally, Usage(1500, 50, 1050), reusable=1050, duration_s=2.0, ttft_s=1.5)
    answered(tally, Usage(1000, 50, 0), duration_s=7.0)
    tally.session_ended("a", 9.0, completed=True, turns_per_s=0.2)
    tally.session_ended("b", 3.0, completed=True, turns_per_s=0.2)
    tally.session_ended("c", 1.0, completed=False, turns_per_s=0.0)
    report = tally.report(10.0)
    assert report.useful_tokens_per_s == (1000 + 450 + 1000 + 150) / 10
    assert (report.turns_per_s, report.goodput_per_s, report.longest_wait_s) == (0.3, 0.1, 7.0)
    assert report.jobs == spread([3.0, 9.0])
    assert (report.jobs.mean_s, report.jobs.p50_s, report.jobs.p99_s, report.jobs.longest_s) == (6.0, 3.0, 9.0, 9.0)
    assert report.failed_sessions == 1
    assert report.fairness == pytest.approx(2 / 3)
    assert Tally(1, 1).report(1.0).goodput_per_s is None


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=20))
def test_jains_index_is_one_where_all_are_alike_and_falls_with_the_number_of_those_who_starve(values):
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9
    assert jain([values[0]] * len(values)) == pytest.approx(1.0)
    assert jain([*values, *([0.0] * len(values))]) == pytest.approx(jain(values) / 2)


def test_of_nothing_there_are_no_statistics():
    assert (spread([]), jain([]), jain([0.0])) == (None, None, None)
